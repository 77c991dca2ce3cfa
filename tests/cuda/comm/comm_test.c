/* SPDX-License-Identifier: BSD-3-Clause */
/* What communicators do with calls around the back ends of devices: whose memory goes which way, numbers, the order of
 * groups, works, failures. */

#include "comm_test.h"

#include <pthread.h>
#include <string.h>

static const struct fake_entry *last(const struct fixture *f)
{
    static const struct fake_entry none;
    return f->fake->n ? &f->fake->entries[f->fake->n - 1] : &none;
}

/* ---- which way ---- */

/* In the short way and in the long one: a deadline of its own is unusual. */
static void routes_of(struct rank *rank, struct fixture *f, const struct tutti_call_options *options)
{
    size_t n = f->fake->n;
    RANK_CHECK_OK(rank, SUM(f, f->a, f->b, N, options, NULL));
    RANK_CHECK(rank, f->fake->n == n + 1 && last(f)->kind == TUTTI_ALL_REDUCE && last(f)->count == N);
    RANK_CHECK(rank, last(f)->input == f->a && last(f)->output == f->b && last(f)->stream == options->stream);
    RANK_CHECK(rank, last(f)->seq == tutti_comm_sequence(rank->comm));
    f->host[0] = 1;
    RANK_CHECK_OK(rank, SUM(f, f->host, f->host, 1, options, NULL));
    RANK_CHECK(rank, f->fake->n == n + 1 && f->host[0] == (float)rank->n);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "recv is host memory: copy one of them",
                     SUM(f, f->a, f->host, N, options, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "send is host memory: copy one of them",
                     SUM(f, f->host, f->a, N, options, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "send and recv overlap", SUM(f, f->a, f->a + 1, N, options, NULL));
    RANK_CHECK(rank, f->fake->n == n + 1);
}

static void routes(struct rank *rank)
{
    struct fixture f;
    struct tutti_comm *without = NULL;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &without));
    RANK_CHECK(rank, tutti_comm_device(without) == TUTTI_DEVICE_NONE);
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK(rank, tutti_comm_device(rank->comm) == f.g.gpu->ordinal);
    struct tutti_call_options plain = f.options, timed = f.options;
    timed.timeout_ns = 15 * TUTTI_NS_PER_S;
    routes_of(rank, &f, &plain);
    if (!rank->failure[0]) routes_of(rank, &f, &timed);
    if (rank->failure[0]) return;
    /* Only the significant side counts. */
    size_t n = f.fake->n;
    RANK_CHECK_OK(rank,
                  tutti_gather(f.a, rank->index == 0 ? f.b : f.host, 1, TUTTI_FLOAT32, 0, rank->comm, &plain, NULL));
    RANK_CHECK(rank, f.fake->n == n + 1 && (rank->index == 0) == (last(&f)->output == f.b));
    tutti_comm_destroy(without);
    fixture_close(&f);
}

/* Those that were there before the process used the driver are not looked after. */
static void foreign(struct rank *rank)
{
    struct fixture f;
    struct tutti_comm *without = NULL;
    float *other = NULL;
    struct tutti_device *gpu = NULL;
    if (!fixture_open(rank, &f)) return;
    struct tutti_call_options timed = f.options;
    timed.timeout_ns = 15 * TUTTI_NS_PER_S;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &without));
    RANK_CHECK_OK(rank, tutti_comm_set_device(without, TUTTI_DEVICE_NONE));
    RANK_CHECK(rank, tutti_comm_device(without) == TUTTI_DEVICE_NONE && !without->device);
    for (int i = 0; i < 2; i++)
        RANK_CHECK_ERROR(
            rank, TUTTI_ERR_ARGUMENT, "but the communicator has no device at this rank",
            tutti_all_reduce(f.a, f.b, N, TUTTI_FLOAT32, TUTTI_SUM, without, i ? &timed : &f.options, NULL));
    if (tutti_cuda_count() > 1) {
        RANK_CHECK_OK(rank, tutti_cuda_open((f.g.gpu->ordinal + 1) % 2, &gpu));
        RANK_CHECK_OK(rank, tutti_cuda_alloc(gpu, sizeof(float) * N, (void **)&other));
        for (int i = 0; i < 2; i++)
            RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "but the communicator's device at this rank is",
                             SUM(&f, other, other, N, i ? &timed : &f.options, NULL));
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "recv is memory of device", SUM(&f, f.a, other, N, &timed, NULL));
        tutti_cuda_free(gpu, other);
        tutti_cuda_close(gpu);
    }
    RANK_CHECK(rank, f.fake->n == 0);
    tutti_comm_destroy(without);
    fixture_close(&f);
}

/* Where no byte tells: all ranks alike. */
static void empties(struct rank *rank)
{
    struct fixture f;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, SUM(&f, NULL, NULL, 0, &f.options, NULL));
    RANK_CHECK(rank, f.fake->n == 1 && last(&f)->count == 0);
    size_t counts[4] = {3, 0, 3, 0}, nothing[4] = {0};
    bool mine = counts[rank->index] > 0;
    RANK_CHECK_OK(rank, tutti_gather_v(mine ? f.a : NULL, counts[rank->index], f.b, counts, NULL, TUTTI_FLOAT32, 0,
                                       rank->comm, &f.options, NULL));
    RANK_CHECK(rank, f.fake->n == 2 && last(&f)->kind == TUTTI_GATHER);
    RANK_CHECK_OK(rank, tutti_all_to_all_v(NULL, nothing, NULL, NULL, nothing, NULL, TUTTI_FLOAT32, rank->comm,
                                           &f.options, NULL));
    RANK_CHECK(rank, f.fake->n == 3);
    /* A pointer to the host says so. */
    RANK_CHECK_OK(rank, tutti_all_to_all_v(f.host, nothing, NULL, f.host, nothing, NULL, TUTTI_FLOAT32, rank->comm,
                                           &f.options, NULL));
    RANK_CHECK(rank, f.fake->n == 3);
    fixture_close(&f);
}

/* ---- numbers, names ---- */

static void numbers(struct rank *rank)
{
    struct fixture f;
    if (!fixture_open(rank, &f)) return;
    uint64_t first = tutti_comm_sequence(rank->comm);
    for (uint64_t i = 1; i <= 30; i++) {
        bool device = (i * 7) % 3 != 0;
        void *x = device ? (void *)f.a : f.host;
        f.host[0] = 2;
        struct tutti_call_options options = f.options;
        options.timeout_ns = i % 2 ? 15 * TUTTI_NS_PER_S : 0;
        RANK_CHECK_OK(rank, SUM(&f, x, x, 1, &options, NULL));
        RANK_CHECK(rank, tutti_comm_sequence(rank->comm) == first + i);
        RANK_CHECK(rank, device ? last(&f)->seq == first + i : f.host[0] == 2 * (float)rank->n);
    }
    fixture_close(&f);
}

static void named(struct rank *rank)
{
    struct fixture f;
    if (!fixture_open(rank, &f)) return;
    struct tutti_call_options options = f.options;
    options.algorithm = "cuda";
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &options, NULL));
    options.algorithm = "cuda:known";
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &options, NULL));
    RANK_CHECK(rank, f.fake->n == 2 && last(&f)->known && !f.fake->entries[0].known);
    options.algorithm = "cuda:unknown";
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "\"cuda:unknown\" can not run this call",
                     SUM(&f, f.a, f.b, N, &options, NULL));
    options.algorithm = "rings";
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "\"rings\" is none for device memory",
                     SUM(&f, f.a, f.b, N, &options, NULL));
    options.algorithm = "ring"; /* on the device, step by step: its messages are the back end's */
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &options, NULL));
    const size_t n = f.fake->n;
    RANK_CHECK(rank, n > 2);
    f.host[0] = 1;
    RANK_CHECK_OK(rank, SUM(&f, f.host, f.host, 1, &options, NULL));
    RANK_CHECK(rank, f.fake->n == n);
    /* An older, smaller struct has no stream. */
    options = f.options;
    options.size = offsetof(struct tutti_call_options, stream);
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &options, NULL));
    RANK_CHECK(rank, f.fake->n == n + 1 && last(&f)->stream == NULL);
    fixture_close(&f);
}

/* ---- groups ---- */

static void groups(struct rank *rank)
{
    struct fixture f;
    struct tutti_comm *twin = NULL;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &twin));
    RANK_CHECK(rank, tutti_comm_device(twin) == tutti_comm_device(rank->comm) && fake_of(twin));
    int32_t next = (rank->index + 1) % rank->n, before = (rank->index + rank->n - 1) % rank->n;
    struct tutti_message message = {0};
    f.host[0] = 3;
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, tutti_send(f.a, 4, TUTTI_FLOAT32, next, 5, rank->comm, &f.options, NULL));
    RANK_CHECK_OK(rank, SUM(&f, f.host, f.host, 1, &f.options, NULL));
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, 1, &f.options, NULL));
    RANK_CHECK_OK(rank, tutti_broadcast(f.a, 2, TUTTI_FLOAT32, 1, twin, &f.options, NULL));
    RANK_CHECK_OK(rank, tutti_recv(f.b, 4, TUTTI_FLOAT32, before, 5, rank->comm, &f.options, &message, NULL));
    RANK_CHECK_OK(rank, tutti_broadcast(f.a, 3, TUTTI_FLOAT32, 0, rank->comm, &f.options, NULL));
    RANK_CHECK(rank, f.fake->n == 0);
    RANK_CHECK_OK(rank, tutti_group_end(NULL));
    RANK_CHECK(rank, f.host[0] == 3 * (float)rank->n);
    const struct fake_entry *e = f.fake->entries;
    RANK_CHECK(rank, f.fake->n == 3 && e[0].kind == TUTTI_ALL_REDUCE && e[1].kind == TUTTI_BROADCAST);
    RANK_CHECK(rank, e[1].seq == e[0].seq + 1);
    RANK_CHECK(rank, e[0].type == (fake_switches.batches ? FAKE_BATCH : FAKE_CALL) && e[1].type == e[0].type);
    RANK_CHECK(rank, e[2].type == FAKE_MESSAGES && e[2].n == 2 && e[2].messages[0].send && !e[2].messages[1].send);
    RANK_CHECK(rank, e[2].messages[0].peer == (uint32_t)next && e[2].messages[1].peer == (uint32_t)before);
    RANK_CHECK(rank, e[2].messages[0].buffer == f.a && e[2].messages[1].bytes == 16);
    RANK_CHECK(rank, message.source == before && message.tag == 5 && message.bytes == 16);
    RANK_CHECK(rank, fake_of(twin)->n == 1);
    tutti_comm_destroy(twin);
    fixture_close(&f);
}

static void spoiled_group(struct rank *rank)
{
    struct fixture f;
    struct tutti_work *work = NULL;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, 1, &f.options, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "copy one of them", SUM(&f, f.a, f.host, 1, &f.options, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "copy one of them", tutti_group_end(&work));
    RANK_CHECK(rank, f.fake->n == 0 && tutti_comm_state(rank->comm, NULL) == TUTTI_OK);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "TUTTI_ANY_SOURCE",
                     tutti_recv(f.a, 1, TUTTI_FLOAT32, TUTTI_ANY_SOURCE, 0, rank->comm, &f.options, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_sendrecv(f.a, 1, 0, 0, f.b, 1, 0, 0, TUTTI_FLOAT32, rank->comm, &f.options, NULL, NULL));
    RANK_CHECK(rank, f.fake->n == 1 && last(&f)->type == FAKE_MESSAGES && last(&f)->n == 2);
    fixture_close(&f);
}

/* ---- works ---- */

static void await_flag(void *arg)
{
    const _Atomic int *flag = arg;
    while (!atomic_load(flag)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void count_up(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void works(struct rank *rank)
{
    struct fixture f;
    struct tutti_work *work = NULL, *all = NULL;
    _Atomic int go = 0, told = 0;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, tutti_cuda_host_call(f.g.gpu, f.g.stream, await_flag, (void *)&go));
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &f.options, &work));
    RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_work_test(work));
    RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_work_wait(work, 2 * TUTTI_NS_PER_MS));
    RANK_CHECK(rank, tutti_work_sequence(work) == tutti_comm_sequence(rank->comm));
    RANK_CHECK_OK(rank, tutti_work_notify(work, count_up, (void *)&told));
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, 1, &f.options, NULL));
    RANK_CHECK_OK(rank, tutti_send(f.a, 1, TUTTI_FLOAT32, 0, 0, rank->comm, &f.options, NULL));
    RANK_CHECK_OK(rank, tutti_group_end(&all));
    RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_work_test(all));
    RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_comm_flush(rank->comm, 2 * TUTTI_NS_PER_MS));
    RANK_CHECK(rank, told == 0);
    atomic_store(&go, 1);
    RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
    RANK_CHECK_OK(rank, tutti_work_wait(all, 0));
    RANK_CHECK(rank, tutti_work_duration_ns(work) > 4 * TUTTI_NS_PER_MS);
    RANK_CHECK_OK(rank, tutti_comm_flush(rank->comm, 0));
    for (int i = 0; i < 1000 && !told; i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    RANK_CHECK(rank, told == 1);
    tutti_work_free(work);
    tutti_work_free(all);
    fixture_close(&f);
}

/* A barrier waits for what is on the device; a captured call has no work. */
static void barriers(struct rank *rank)
{
    struct fixture f;
    struct tutti_work *work = NULL;
    void *graph = NULL;
    _Atomic int go = 0;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, tutti_cuda_host_call(f.g.gpu, f.g.stream, await_flag, (void *)&go));
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &f.options, NULL));
    struct tutti_call_options soon = f.options;
    soon.timeout_ns = 20 * TUTTI_NS_PER_MS;
    if (rank->n == 1)
        RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "is not over after 0.02 s", tutti_barrier(rank->comm, &soon, NULL));
    atomic_store(&go, 1);
    if (rank->n > 1) RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->n > 1) RANK_CHECK_STATUS(rank, TUTTI_OK, tutti_cuda_stream_query(f.g.gpu, f.g.stream));
    if (rank->n > 1) {
        RANK_CHECK_OK(rank, tutti_cuda_graph_begin(f.g.gpu, f.g.stream));
        enum tutti_status status = SUM(&f, f.a, f.b, N, &f.options, &work);
        RANK_CHECK_OK(rank, tutti_cuda_graph_end(f.g.gpu, f.g.stream, &graph));
        RANK_CHECK(rank, status == TUTTI_ERR_ARGUMENT && strstr(tutti_last_error()->text, "captured"));
        tutti_cuda_graph_destroy(f.g.gpu, graph);
    }
    fixture_close(&f);
}

static void persistent(struct rank *rank)
{
    struct fixture f;
    struct tutti_persistent *p = NULL;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &f.options, NULL));
    RANK_CHECK_OK(rank, tutti_persistent_end(&p));
    RANK_CHECK(rank, f.fake->n == 0);
    for (int i = 0; i < 3; i++) RANK_CHECK_OK(rank, tutti_persistent_start(p, NULL));
    RANK_CHECK(rank, f.fake->n == 3 && last(&f)->input == f.a && last(&f)->stream == f.g.stream);
    tutti_persistent_destroy(p);
    fixture_close(&f);
}

/* ---- failures ---- */

static void aborts(struct rank *rank)
{
    struct fixture f;
    struct tutti_work *work = NULL;
    struct tutti_error error;
    _Atomic int go = 0;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, tutti_cuda_host_call(f.g.gpu, f.g.stream, await_flag, (void *)&go));
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &f.options, &work));
    all_here(rank);
    tutti_comm_abort(rank->comm, "enough");
    RANK_CHECK(rank, f.fake->n_stops > 0);
    atomic_store(&go, 1);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "enough", tutti_work_wait(work, 0));
    tutti_work_free(work);
    size_t n = f.fake->n;
    struct tutti_call_options timed = f.options;
    timed.timeout_ns = TUTTI_NS_PER_S;
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ABORTED, SUM(&f, f.a, f.b, N, &f.options, NULL));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ABORTED, SUM(&f, f.a, f.b, N, &timed, NULL));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ABORTED, tutti_send(f.a, 1, TUTTI_FLOAT32, 0, 0, rank->comm, &f.options, NULL));
    RANK_CHECK(rank, f.fake->n == n && tutti_comm_state(rank->comm, &error) == TUTTI_ERR_ABORTED);
    fixture_close(&f);
}

/* What the device reports is known at once, though the team hears of it later. */
static void reports(struct rank *rank)
{
    struct fixture f;
    struct tutti_work *work = NULL;
    struct tutti_error told;
    if (!fixture_open(rank, &f)) return;
    fake_switches.reports_failure = true;
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &f.options, &work));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(f.g.gpu, f.g.stream));
    RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_work_wait(work, 5 * TUTTI_NS_PER_MS));
    tutti_error_set(&told, TUTTI_ERR_PEER_DEAD, "rank 7 died");
    tutti_team_fail(rank->comm->team, &told, true);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_PEER_DEAD, "rank 7 died", tutti_work_wait(work, 0));
    tutti_work_free(work);
    fixture_close(&f);
}

struct meanwhile {
    struct tutti_team *team;
    struct tutti_work *work;
    _Atomic int go; /* for the stream */
};

static void *end_team(void *arg)
{
    struct tutti_error told;
    tutti_error_set(&told, TUTTI_ERR_PEER_DEAD, "rank 7 died");
    tutti_team_fail(((struct meanwhile *)arg)->team, &told, true);
    return NULL;
}

static void *look(void *arg)
{
    struct meanwhile *meanwhile = arg;
    atomic_store(&meanwhile->go, 1);
    (void)tutti_work_wait(meanwhile->work, 0);
    return NULL;
}

/* Another thread, as the engine's owner, stops the device or looks at it while this one destroys the communicator. */
static void destroyed_meanwhile(struct rank *rank, void *(*what)(void *))
{
    struct fixture f;
    struct meanwhile meanwhile = {.team = rank->comm->team};
    pthread_t thread;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, tutti_cuda_host_call(f.g.gpu, f.g.stream, await_flag, (void *)&meanwhile.go));
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &f.options, &meanwhile.work));
    RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_work_test(meanwhile.work));
    fake_switches.lingers = true;
    RANK_CHECK(rank, pthread_create(&thread, NULL, what, &meanwhile) == 0);
    while (atomic_load(&f.fake->n_entered) == 0) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    fake_switches.lingers = false; /* for this thread */
    atomic_store(&meanwhile.go, 1);
    fixture_close(&f);
    pthread_join(thread, NULL);
    tutti_work_free(meanwhile.work);
    RANK_CHECK(rank, fake_switches.n_closed_within == 0);
}

static void failed_meanwhile(struct rank *rank)
{
    destroyed_meanwhile(rank, end_team);
}

static void looked_meanwhile(struct rank *rank)
{
    destroyed_meanwhile(rank, look);
}

/* What could not be enqueued was not called. */
static void not_enqueued(struct rank *rank)
{
    struct fixture f;
    if (!fixture_open(rank, &f)) return;
    uint64_t before = tutti_comm_sequence(rank->comm);
    fake_switches.fail_enqueue = true;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_MEMORY, "the fake has no memory", SUM(&f, f.a, f.b, N, &f.options, NULL));
    RANK_CHECK(rank, tutti_comm_sequence(rank->comm) == before && tutti_comm_state(rank->comm, NULL) == TUTTI_OK);
    fake_switches.fail_enqueue = false;
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &f.options, NULL));
    RANK_CHECK(rank, last(&f)->seq == before + 1);
    fixture_close(&f);
}

/* ---- all ---- */

static const struct test tests[] = {
    {"routes", routes, 1, 3, false, 0, 0, {NULL, NULL}},
    {"foreign", foreign, 1, 2, false, 0, 0, {NULL, NULL}},
    {"empties", empties, 4, 4, false, 0, 0, {NULL, NULL}},
    {"numbers", numbers, 1, 3, false, 0, 0, {NULL, NULL}},
    {"named", named, 2, 2, false, 0, 0, {NULL, NULL}},
    {"groups", groups, 2, 3, false, 0, 0, {NULL, NULL}},
    {"groups in batches", groups, 2, 3, true, 0, 0, {NULL, NULL}},
    {"spoiled group", spoiled_group, 1, 2, false, 0, 0, {NULL, NULL}},
    {"works", works, 1, 2, false, 0, 0, {NULL, NULL}},
    {"barriers", barriers, 1, 2, false, 0, 0, {NULL, NULL}},
    {"persistent", persistent, 1, 2, false, 0, 0, {NULL, NULL}},
    {"aborts", aborts, 1, 2, false, 0, 0, {NULL, NULL}},
    {"reports", reports, 1, 1, false, 0, 0, {NULL, NULL}},
    {"failed meanwhile", failed_meanwhile, 1, 1, false, 0, 0, {NULL, NULL}},
    {"looked at meanwhile", looked_meanwhile, 1, 1, false, 0, 0, {NULL, NULL}},
    {"not enqueued", not_enqueued, 1, 1, false, 0, 0, {NULL, NULL}},
};

static void test_all(void **state)
{
    (void)state;
    run_rows(tests, sizeof tests / sizeof tests[0]);
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(test_all)};
    need_device();
    return cmocka_run_group_tests(all, NULL, NULL);
}
