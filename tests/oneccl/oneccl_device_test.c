/* SPDX-License-Identifier: BSD-3-Clause */
/* The back end oneccl on devices, over processes whose streams are SYCL queues: the contract of all calls with it; and
 * that every call that oneCCL would wait in for ever, or take for another, ends with a sentence on all ranks, after
 * which the process goes on. All of Intel's is played by stand-ins; SYCL's is the argument. */
#include "test.h"

#include "backend/library/oneccl_device.h"
#include "base/base.h"
#include "comm/call/device.h"
#include "comm/comm.h"
#include "contract/contract.h"
#include "device/level_zero/driver.h"
#include "standin/sycl/sycl_standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
enum { WORDS = 5000, TIMES = 4 };

static unsigned run(uint32_t n, rank_function function, void *arg, uint64_t may_die)
{
    const struct tutti_option options[] = {{"gpu", "oneccl"}, {"oneccl_library", TEST_ONECCL}};
    struct ranks_config config = {.n = n,
                                  .forked = true,
                                  .options = options,
                                  .n_options = 2,
                                  .timeout_ns = 60 * SECOND,
                                  .deadline_s = 120,
                                  .arg = arg,
                                  .may_die = may_die};
    return ranks_run(&config, function);
}

static struct sycl_standin_context *own; /* SYCL's default one */

static void *symbol(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) abort();
    return found;
}

/* ---- a rank with a device and a queue ---- */

struct there {
    struct tutti_device *device;
    struct sycl_standin_queue queue;
};

static bool queue_make(struct there *there)
{
    typedef int (*creator)(void *, void *, const struct xpu_queue_desc *, void **);
    const struct xpu_queue_desc desc = {.structure = XPU_STRUCTURE_QUEUE, .mode = XPU_QUEUE_ASYNCHRONOUS};
    void *library = dlopen(getenv("TUTTI_LEVEL_ZERO_LIBRARY"), RTLD_NOW);
    void *call = symbol(library, "zeCommandListCreateImmediate"), *native = NULL;
    creator create;
    memcpy(&create, &call, sizeof create);
    if (create(there->device->context, xpu_driver()->devices[there->device->ordinal], &desc, &native) != 0)
        return false;
    there->queue = (struct sycl_standin_queue){SYCL_STANDIN_LEVEL_ZERO, 1, native, own};
    return true;
}

static bool open_there(struct rank *rank, struct there *there)
{
    const int32_t ordinal = rank->index % (int32_t)tutti_device_xpu.count();
    if (tutti_comm_set_device(rank->comm, ordinal) < 0 || tutti_device_xpu.open(ordinal, &there->device) < 0 ||
        !queue_make(there)) {
        rank_fail(rank, __FILE__, __LINE__, "%s", tutti_last_error()->text);
        return false;
    }
    const struct tutti_comm_device *device = rank->comm->device;
    if (device->n == 1 && device->backends[0]->ops == &tutti_backend_oneccl_device) return true;
    rank_fail(rank, __FILE__, __LINE__, "oneccl is not open");
    return false;
}

static uint64_t n_enqueued(const struct rank *rank)
{
    return atomic_load(&library_of(rank->comm->device->backends[0])->watched.n_enqueued);
}

/* ---- all calls ---- */

struct batch {
    struct contract_case *cases;
    size_t n;
};

static void run_batch(struct rank *rank)
{
    const struct batch *batch = rank->arg;
    struct contract_memory memory;
    struct there there;
    if (!open_there(rank, &there)) return;
    contract_memory_init(&memory, there.device, &there.queue);
    for (size_t i = 0; i < batch->n && !rank->failure[0]; i++) {
        struct contract_case c = batch->cases[i];
        c.at[RANKS] = (uint32_t)rank->n - 1, c.memory = &memory, c.thrifty = true;
        contract_run(rank, &c, NULL);
    }
    if (rank->failure[0]) return;
    RANK_CHECK(rank, n_enqueued(rank) > 20);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    contract_memory_fini(&memory, rank->comm);
}

static void every_call(void **state)
{
    struct batch batch;
    (void)state;
    batch.cases = contract_pairs(test_seed() + 79, &batch.n);
    assert_non_null(batch.cases);
    assert_int_equal(run(2, run_batch, &batch, 0), 0);
    free(batch.cases);
}

/* ---- one call after the other ---- */

/* Enqueues; then waits for the work, since a queue that is stuck could not be waited for. */
static enum tutti_status sum_of(struct rank *rank, struct there *there, uint64_t *memory, size_t count,
                                enum tutti_op op)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_work *work = NULL;
    options.stream = &there->queue;
    options.timeout_ns = SECOND / 2;
    TUTTI_TRY(tutti_all_reduce(memory, memory, count, TUTTI_UINT64, op, rank->comm, &options, &work));
    const enum tutti_status status = tutti_work_wait(work, 20 * SECOND);
    tutti_work_free(work);
    return status;
}

static void in_order(struct rank *rank)
{
    static uint64_t in[TIMES][WORDS], out[TIMES][WORDS];
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    const struct tutti_device_ops *ops = &tutti_device_xpu;
    struct there there;
    void *memory = NULL;
    if (!open_there(rank, &there)) return;
    options.stream = &there.queue;
    RANK_CHECK_OK(rank, ops->alloc(there.device, sizeof in[0], &memory));
    for (uint64_t i = 0; i < TIMES; i++) {
        for (uint64_t j = 0; j < WORDS; j++) in[i][j] = ((uint64_t)rank->index + 1) * (i + j);
        RANK_CHECK_OK(rank, ops->copy(there.device, memory, in[i], sizeof in[i], &there.queue));
        RANK_CHECK_OK(rank,
                      tutti_all_reduce(memory, memory, WORDS, TUTTI_UINT64, TUTTI_SUM, rank->comm, &options, NULL));
        RANK_CHECK_OK(rank, ops->copy(there.device, out[i], memory, sizeof out[i], &there.queue));
    }
    RANK_CHECK_OK(rank, ops->stream_sync(there.device, &there.queue));
    for (uint64_t i = 0; i < TIMES; i++)
        for (uint64_t j = 0; j < WORDS; j++) RANK_CHECK(rank, out[i][j] == 3 * (i + j));
    RANK_CHECK(rank, n_enqueued(rank) == TIMES);
    options.stream = NULL;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT,
                     "oneCCL takes streams that are SYCL queues, and the default stream is none",
                     tutti_all_reduce(memory, memory, WORDS, TUTTI_UINT64, TUTTI_SUM, rank->comm, &options, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    ops->free(there.device, memory);
}

/* To the other rank and to oneself, received first; twice, of which the second has more than oneCCL's buffers. */
static void letters(struct rank *rank)
{
    static uint64_t words[4][WORDS];
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    const struct tutti_device_ops *ops = &tutti_device_xpu;
    const int32_t me = rank->index, other = 1 - me;
    struct there there;
    void *memory = NULL;
    if (!open_there(rank, &there)) return;
    options.stream = &there.queue;
    RANK_CHECK_OK(rank, ops->alloc(there.device, sizeof words, &memory));
    uint64_t *at = memory;
    for (uint64_t count = 7; count <= WORDS; count += WORDS - 7) {
        for (uint64_t i = 0; i < WORDS; i++) words[0][i] = 1000 * (uint64_t)me + i, words[1][i] = i;
        RANK_CHECK_OK(rank, ops->copy_now(there.device, memory, words, sizeof words));
        RANK_CHECK_OK(rank, tutti_group_start());
        RANK_CHECK_OK(rank,
                      tutti_recv(at + 2 * WORDS, count, TUTTI_UINT64, other, 0, rank->comm, &options, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_recv(at + 3 * WORDS, count, TUTTI_UINT64, me, 0, rank->comm, &options, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_send(at, count, TUTTI_UINT64, other, 0, rank->comm, &options, NULL));
        RANK_CHECK_OK(rank, tutti_send(at + WORDS, count, TUTTI_UINT64, me, 0, rank->comm, &options, NULL));
        RANK_CHECK_OK(rank, tutti_group_end(NULL));
        RANK_CHECK_OK(rank, ops->stream_sync(there.device, &there.queue));
        RANK_CHECK_OK(rank, ops->copy_now(there.device, words, memory, sizeof words));
        for (uint64_t i = 0; i < count; i++)
            RANK_CHECK(rank, words[2][i] == 1000 * (uint64_t)other + i && words[3][i] == i);
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK(rank, n_enqueued(rank) == 2);
    ops->free(there.device, memory);
}

static void streams(void **state)
{
    (void)state;
    assert_int_equal(run(2, in_order, NULL, 0), 0);
    assert_int_equal(run(2, letters, NULL, 0), 0);
}

/* For which oneCCL would hang. */
static void of_one_process(struct rank *rank)
{
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "of one process, for which oneCCL hangs",
                     tutti_comm_set_device(rank->comm, rank->index));
}

static void two_of_one_process(void **state)
{
    const struct tutti_option options[] = {{"gpu", "oneccl"}, {"oneccl_library", TEST_ONECCL}};
    struct ranks_config config = {.n = 2, .options = options, .n_options = 2};
    (void)state;
    assert_int_equal(ranks_run(&config, of_one_process), 0);
}

/* ---- what goes wrong ---- */

struct wrong {
    const char *variable, *value; /* for the stand-in, on all ranks */
    enum tutti_status status;
    const char *said;
    uint32_t odd; /* 1 + the rank that does something else */
    enum tutti_status (*does)(struct rank *rank, struct there *there, uint64_t *memory);
};

static enum tutti_status nothing(struct rank *rank, struct there *there, uint64_t *memory)
{
    (void)there, (void)memory;
    for (int i = 0; i < 20000 && tutti_comm_state(rank->comm, NULL) == TUTTI_OK; i++) usleep(1000);
    return tutti_barrier(rank->comm, NULL, NULL);
}

static enum tutti_status shorter(struct rank *rank, struct there *there, uint64_t *memory)
{
    return sum_of(rank, there, memory, WORDS - 1, TUTTI_SUM);
}

static enum tutti_status greatest(struct rank *rank, struct there *there, uint64_t *memory)
{
    return sum_of(rank, there, memory, WORDS, TUTTI_MAX);
}

static const struct wrong wrongs[] = {
    {NULL, NULL, TUTTI_ERR_TIMEOUT, "has not called it", 2, nothing},
    {NULL, NULL, TUTTI_ERR_MISMATCH, "4999", 2, shorter},
    {NULL, NULL, TUTTI_ERR_MISMATCH, "max", 2, greatest},
    {"TUTTI_STANDIN_ONECCL_DIES", "1:2", TUTTI_ERR_PEER_DEAD, "rank 1", 0, NULL},
    {"TUTTI_STANDIN_ONECCL_DIES", "1:0", TUTTI_ERR_PEER_DEAD, "rank 1", 0, NULL},
    {"TUTTI_STANDIN_ONECCL_STUCK", "1:0", TUTTI_ERR_TIMEOUT, "timed out", 0, NULL},
    {"TUTTI_STANDIN_ONECCL_STUCK", "1:2", TUTTI_ERR_TIMEOUT, "timed out", 0, NULL},
    {"TUTTI_STANDIN_ONECCL_FAILS", "1:2", TUTTI_ERR_SYSTEM, "result 11: the stand-in refuses call 2", 0, NULL},
};

/* The rest of the ranks goes on by a communicator of its own, which has the device, too; on another queue, since what
 * waits within oneCCL keeps the one that it is on. */
static void go_on(struct rank *rank, struct there *there)
{
    const struct tutti_device_ops *ops = &tutti_device_xpu;
    struct tutti_comm *fresh = NULL, *lost = rank->comm;
    uint64_t words[WORDS] = {1};
    void *memory = NULL;
    unsetenv("TUTTI_STANDIN_ONECCL_STUCK");
    unsetenv("TUTTI_STANDIN_ONECCL_FAILS");
    unsetenv("TUTTI_STANDIN_ONECCL_DIES");
    RANK_CHECK_OK(rank, tutti_comm_shrink(lost, NULL, 0, &fresh));
    RANK_CHECK(rank, tutti_comm_device(fresh) == there->device->ordinal && queue_make(there));
    RANK_CHECK_OK(rank, ops->alloc(there->device, sizeof words, &memory));
    RANK_CHECK_OK(rank, ops->copy_now(there->device, memory, words, sizeof words));
    const uint64_t n = (uint64_t)tutti_comm_size(fresh);
    rank->comm = fresh;
    const enum tutti_status status = sum_of(rank, there, memory, WORDS, TUTTI_SUM);
    rank->comm = lost;
    RANK_CHECK_OK(rank, status);
    RANK_CHECK_OK(rank, ops->copy_now(there->device, words, memory, sizeof words));
    ops->free(there->device, memory);
    tutti_comm_destroy(fresh);
    RANK_CHECK(rank, words[0] == n);
}

static void goes_wrong(struct rank *rank)
{
    const struct wrong *w = rank->arg;
    enum tutti_status status = TUTTI_OK;
    struct there there;
    void *memory = NULL;
    if (!open_there(rank, &there)) return;
    RANK_CHECK_OK(rank, tutti_device_xpu.alloc(there.device, WORDS * sizeof(uint64_t), &memory));
    if (w->variable) setenv(w->variable, w->value, 1);
    if (!w->variable) status = sum_of(rank, &there, memory, WORDS, TUTTI_SUM);
    const uint64_t begin = tutti_now_ns();
    for (int i = 0; i < 3 && status == TUTTI_OK; i++)
        status = w->odd == 1 + (uint32_t)rank->index ? w->does(rank, &there, memory)
                                                     : sum_of(rank, &there, memory, WORDS, TUTTI_SUM);
    const char *text = tutti_last_error()->text;
    if (status != w->status || !strstr(text, w->said)) {
        rank_fail(rank, __FILE__, __LINE__, "%s %s: %s \"%s\"", w->said, w->value ? w->value : "",
                  tutti_status_name(status), text);
        return;
    }
    RANK_CHECK(rank, tutti_now_ns() - begin < 60 * SECOND);                    /* long before the default deadline */
    RANK_CHECK_STATUS(rank, w->status, tutti_barrier(rank->comm, NULL, NULL)); /* the communicator is lost */
    go_on(rank, &there);
}

static void sentences(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrongs); i++) {
        struct wrong w = wrongs[i];
        const uint64_t may_die = w.status == TUTTI_ERR_PEER_DEAD ? 2 : 0;
        assert_int_equal(run(2 + (uint32_t)(i % 2), goes_wrong, &w, may_die), 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call), cmocka_unit_test(streams), cmocka_unit_test(sentences),
        cmocka_unit_test(two_of_one_process), /* last: this process has the driver then, and forks no more */
    };
    static char context; /* the stand-in of the driver looks at no more than that there is one */
    if (!ranks_can_fork() || argc < 2) return 0;
    own = symbol(dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL), "sycl_standin_default"); /* before there is a device */
    own->native = &context;
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name("oneccl on devices", tests, NULL, NULL);
}
