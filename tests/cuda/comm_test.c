/* SPDX-License-Identifier: BSD-3-Clause */
/* What communicators do around the back ends of devices: whose memory goes which way, numbers, the order of groups,
 * works, what children have, failures. The back end writes down what it is given (fake_backend.h). */

#include "test.h"

#include "fake_backend.h"
#include "gpu_ranks.h"

#include "comm/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { N = 64 };

struct fixture {
    struct gpu_rank g;
    struct fake *fake;
    float *a, *b; /* on the device */
    float host[N];
    struct tutti_call_options options; /* with the stream */
};

static bool fixture_open(struct rank *rank, struct fixture *out)
{
    static const struct tutti_call_options init = TUTTI_CALL_OPTIONS_INIT;
    *out = (struct fixture){.options = init};
    if (!gpu_rank_open(rank, &out->g)) return false;
    out->fake = fake_of(rank->comm);
    out->a = (float *)(void *)gpu_rank_words(&out->g, N * 4), out->b = (float *)(void *)gpu_rank_words(&out->g, N * 4);
    out->options.stream = out->g.stream;
    if (!out->fake) rank_fail(rank, __FILE__, __LINE__, "the back end is not there");
    return out->fake && out->a && out->b;
}

static void fixture_close(struct fixture *f)
{
    tutti_gpu_stream_sync(f->g.gpu, f->g.stream);
    tutti_comm_destroy(f->g.rank->comm);
    f->g.rank->comm = NULL;
    tutti_gpu_free(f->g.gpu, f->a);
    tutti_gpu_free(f->g.gpu, f->b);
    gpu_rank_close(&f->g);
}

static unsigned run(uint32_t n, rank_function function, const struct tutti_option *options, size_t n_options)
{
    _Atomic int n_here = 0;
    struct ranks_config config = {
        .n = n, .options = options, .n_options = n_options, .deadline_s = 100, .arg = (void *)&n_here};
    fake_install();
    unsigned failed = ranks_run(&config, function);
    fake_remove();
    return failed;
}

static const struct fake_entry *last(const struct fixture *f)
{
    static const struct fake_entry none;
    return f->fake->n ? &f->fake->entries[f->fake->n - 1] : &none;
}

#define SUM(f, in, out, count, options, work)                                                                          \
    tutti_all_reduce((in), (out), (count), TUTTI_FLOAT32, TUTTI_SUM, (f)->g.rank->comm, (options), (work))

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
    struct tutti_gpu *gpu = NULL;
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
    if (tutti_gpu_count() > 1) {
        RANK_CHECK_OK(rank, tutti_gpu_open((f.g.gpu->ordinal + 1) % 2, &gpu));
        RANK_CHECK_OK(rank, tutti_gpu_alloc(gpu, sizeof(float) * N, (void **)&other));
        for (int i = 0; i < 2; i++)
            RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "but the communicator's device at this rank is",
                             SUM(&f, other, other, N, i ? &timed : &f.options, NULL));
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "recv is memory of device", SUM(&f, f.a, other, N, &timed, NULL));
        tutti_gpu_free(gpu, other);
        tutti_gpu_close(gpu);
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
    options.algorithm = "ring"; /* which no back end here carries out: through the host */
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &options, NULL));
    RANK_CHECK(rank, f.fake->n == 2);
    f.host[0] = 1;
    RANK_CHECK_OK(rank, SUM(&f, f.host, f.host, 1, &options, NULL));
    RANK_CHECK(rank, f.fake->n == 2);
    /* An older, smaller struct has no stream. */
    options = f.options;
    options.size = offsetof(struct tutti_call_options, stream);
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &options, NULL));
    RANK_CHECK(rank, f.fake->n == 3 && last(&f)->stream == NULL);
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
    RANK_CHECK_OK(rank, tutti_gpu_host(f.g.gpu, f.g.stream, await_flag, (void *)&go));
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
    RANK_CHECK_OK(rank, tutti_gpu_host(f.g.gpu, f.g.stream, await_flag, (void *)&go));
    RANK_CHECK_OK(rank, SUM(&f, f.a, f.b, N, &f.options, NULL));
    struct tutti_call_options soon = f.options;
    soon.timeout_ns = 20 * TUTTI_NS_PER_MS;
    if (rank->n == 1)
        RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "is not over after 0.02 s", tutti_barrier(rank->comm, &soon, NULL));
    atomic_store(&go, 1);
    if (rank->n > 1) RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->n > 1) RANK_CHECK_STATUS(rank, TUTTI_OK, tutti_gpu_stream_query(f.g.gpu, f.g.stream));
    if (rank->n > 1) {
        RANK_CHECK_OK(rank, tutti_gpu_graph_begin(f.g.gpu, f.g.stream));
        enum tutti_status status = SUM(&f, f.a, f.b, N, &f.options, &work);
        RANK_CHECK_OK(rank, tutti_gpu_graph_end(f.g.gpu, f.g.stream, &graph));
        RANK_CHECK(rank, status == TUTTI_ERR_ARGUMENT && strstr(tutti_last_error()->text, "captured"));
        tutti_gpu_graph_destroy(f.g.gpu, graph);
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

/* All ranks, threads of this process, have come so far: an abort ends also a call that this rank has left and another
 * has not. */
static void all_here(struct rank *rank)
{
    _Atomic int *n_here = rank->arg;
    atomic_fetch_add(n_here, 1);
    while (atomic_load(n_here) < rank->n) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void aborts(struct rank *rank)
{
    struct fixture f;
    struct tutti_work *work = NULL;
    struct tutti_error error;
    _Atomic int go = 0;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, tutti_gpu_host(f.g.gpu, f.g.stream, await_flag, (void *)&go));
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
    RANK_CHECK_OK(rank, tutti_gpu_stream_sync(f.g.gpu, f.g.stream));
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
    _Atomic int go; /* of the stream */
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
    RANK_CHECK_OK(rank, tutti_gpu_host(f.g.gpu, f.g.stream, await_flag, (void *)&meanwhile.go));
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

/* ---- what has a device ---- */

static void children(struct rank *rank)
{
    struct fixture f;
    struct tutti_comm *half = NULL, *fewer = NULL;
    int32_t leave_out = rank->n - 1;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, rank->index % 2, -rank->index, &half));
    RANK_CHECK(rank, tutti_comm_device(half) == f.g.gpu->ordinal && fake_of(half));
    RANK_CHECK(rank,
               fake_of(half)->config.n == (uint32_t)tutti_comm_size(half) && fake_of(half)->config.id == half->id);
    RANK_CHECK(rank, tutti_comm_sequence(half) == 0);
    RANK_CHECK_OK(rank, tutti_all_reduce(f.a, f.b, N, TUTTI_FLOAT32, TUTTI_SUM, half, &f.options, NULL));
    RANK_CHECK(rank, fake_of(half)->n == 1 && fake_of(half)->entries[0].seq == 1 && f.fake->n == 0);
    tutti_comm_destroy(half);
    all_here(rank);
    if (rank->index == leave_out) {
        tutti_comm_abort(rank->comm, "gone");
    } else {
        RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, &leave_out, 1, &fewer));
        RANK_CHECK(rank, fake_of(fewer) && tutti_comm_device(fewer) == f.g.gpu->ordinal);
        tutti_comm_destroy(fewer);
    }
    fixture_close(&f);
}

struct asking {
    struct tutti_comm *comm;
    _Atomic bool enough;
};

static void *ask_for_state(void *arg)
{
    struct asking *asking = arg;
    while (!atomic_load(&asking->enough)) (void)tutti_comm_state(asking->comm, NULL);
    return NULL;
}

/* Again and again, and away. */
static void change_devices(struct fixture *f)
{
    struct rank *rank = f->g.rank;
    for (int i = 0; i < 3; i++) {
        uint64_t nonce = fake_of(rank->comm)->config.nonce;
        RANK_CHECK_OK(rank, SUM(f, f->a, f->b, N, &f->options, NULL));
        RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, f->g.gpu->ordinal));
        RANK_CHECK(rank, fake_of(rank->comm)->n == 0 && fake_of(rank->comm)->config.nonce != nonce);
    }
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, TUTTI_DEVICE_NONE));
    RANK_CHECK(rank, !rank->comm->device && tutti_comm_device(rank->comm) == TUTTI_DEVICE_NONE);
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, f->g.gpu->ordinal));
    /* One can not: nobody has one, and each knows whose fault it is. */
    if (rank->index == 1) {
        RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "there is no CUDA device 99",
                         tutti_comm_set_device(rank->comm, 99));
    } else {
        RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "rank 1 can not use its device",
                         tutti_comm_set_device(rank->comm, f->g.gpu->ordinal));
    }
    RANK_CHECK(rank, tutti_comm_device(rank->comm) == TUTTI_DEVICE_NONE);
    RANK_CHECK(rank, tutti_comm_state(rank->comm, NULL) == TUTTI_OK);
}

/* While somebody asks for the state. */
static void devices_change(struct rank *rank)
{
    struct fixture f;
    struct asking asking = {.comm = rank->comm};
    pthread_t thread;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK(rank, pthread_create(&thread, NULL, ask_for_state, &asking) == 0);
    change_devices(&f);
    atomic_store(&asking.enough, true);
    pthread_join(thread, NULL);
    if (!rank->failure[0]) fixture_close(&f);
}

/* What one member can not open or connect, none uses. */
static void not_everywhere(struct rank *rank)
{
    int32_t device = rank->index % (int32_t)tutti_gpu_count();
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, device));
    RANK_CHECK(rank, rank->comm->device && rank->comm->device->n == 0 && tutti_comm_device(rank->comm) == device);
}

static void named_way(struct rank *rank)
{
    int32_t device = rank->index % (int32_t)tutti_gpu_count();
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "option gpu is cuda, which can not be used here: rank 1: ",
                     tutti_comm_set_device(rank->comm, device));
    RANK_CHECK(rank, !rank->comm->device);
}

static void off(struct rank *rank)
{
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, rank->index % (int32_t)tutti_gpu_count()));
    RANK_CHECK(rank, !rank->comm->device && tutti_comm_device(rank->comm) == TUTTI_DEVICE_NONE);
}

/* By the configuration: a number, or the context of the calling thread. */
static void configured(struct rank *rank)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_gpu_scope scope;
    struct tutti_gpu *gpu = NULL;
    char name[128];
    config.rank = rank->index, config.n_ranks = rank->n, config.name = name;
    int32_t device = rank->index % (int32_t)tutti_gpu_count();
    RANK_CHECK_OK(rank, tutti_gpu_open(device, &gpu));
    for (int way = 0; way < 4; way++) {
        static const int64_t wanted[] = {0, TUTTI_DEVICE_AUTO, TUTTI_DEVICE_AUTO, TUTTI_DEVICE_NONE};
        struct tutti_comm *comm = NULL;
        snprintf(name, sizeof name, "%.100s-%d", rank->name, way);
        config.device = way == 0 ? device : wanted[way];
        config.nonblocking = way == 1; /* on a thread of its own */
        if (way != 2) RANK_CHECK_OK(rank, tutti_gpu_enter(gpu, &scope));
        enum tutti_status status = tutti_comm_create(rank->context, &config, &comm);
        if (way != 2) tutti_gpu_leave(&scope);
        RANK_CHECK(rank, status == TUTTI_OK);
        while (tutti_comm_state(comm, NULL) == TUTTI_PENDING) tutti_sleep_ns(TUTTI_NS_PER_MS);
        RANK_CHECK_OK(rank, tutti_comm_state(comm, NULL));
        RANK_CHECK(rank, tutti_comm_device(comm) == (way < 2 ? device : TUTTI_DEVICE_NONE));
        RANK_CHECK(rank, tutti_comm_sequence(comm) == 0 && !fake_of(comm) == (way >= 2));
        tutti_comm_destroy(comm);
    }
    /* An older, smaller struct names none. */
    struct tutti_comm *comm = NULL;
    config.size = offsetof(struct tutti_comm_config, device);
    config.device = 99;
    snprintf(name, sizeof name, "%.100s-old", rank->name);
    RANK_CHECK_OK(rank, tutti_comm_create(rank->context, &config, &comm));
    RANK_CHECK(rank, tutti_comm_device(comm) == TUTTI_DEVICE_NONE);
    tutti_comm_destroy(comm);
    tutti_gpu_close(gpu);
}

static void test_arguments(void **state)
{
    (void)state;
    struct tutti_option wrong = {"gpu", "nothing"};
    struct tutti_context *context = NULL;
    assert_int_equal(tutti_context_create(&wrong, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "auto, cuda, nccl, host or off"));
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_comm *comm = NULL;
    config.device = -3;
    assert_int_equal(tutti_comm_create(NULL, &config, &comm), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "device is -3"));
    assert_int_equal(tutti_comm_device(NULL), TUTTI_DEVICE_NONE);
}

/* ---- all ---- */

struct test {
    const char *name;
    rank_function function;
    uint32_t least, most; /* ranks */
    bool batches;
    int refuse_open, refuse_connect;
    struct tutti_option option;
};
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
    {"children", children, 3, 4, false, 0, 0, {NULL, NULL}},
    {"devices change", devices_change, 2, 3, false, 0, 0, {NULL, NULL}},
    {"not opened by one", not_everywhere, 2, 3, false, 2, 0, {NULL, NULL}},
    {"not connected by one", not_everywhere, 2, 3, false, 0, 2, {NULL, NULL}},
    {"a way that is not there", named_way, 2, 2, false, 0, 2, {"gpu", "cuda"}},
    {"through the host by option", not_everywhere, 2, 2, false, 0, 0, {"gpu", "host"}},
    {"no devices by option", off, 2, 2, false, 0, 0, {"gpu", "off"}},
    {"configured", configured, 1, 2, false, 0, 0, {NULL, NULL}},
};

static void test_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        const struct test *t = &tests[i];
        for (uint32_t n = t->least; n <= t->most; n++) {
            fake_switches.batches = t->batches;
            fake_switches.refuse_open = t->refuse_open;
            fake_switches.refuse_connect = t->refuse_connect;
            unsigned failed = run(n, t->function, &t->option, t->option.name ? 1 : 0);
            if (failed) fail_msg("%s: %u of %u ranks", t->name, failed, n);
        }
    }
}

int main(void)
{
    setenv("TUTTI_NCCL_LIBRARY", "/there/is/none", 1); /* the fake one is alone, also where NCCL is installed */
    const struct CMUnitTest all[] = {cmocka_unit_test(test_arguments), cmocka_unit_test(test_all)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests(all, NULL, NULL);
}
