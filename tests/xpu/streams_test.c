/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams that a program has made itself, by the public calls: an immediate command list and a command queue of Level
 * Zero, and SYCL queues over either, whose library is a stand-in (argument). Calls come in the stream's order, between
 * copies that the program appends by the driver, as it may. */

#include "test.h"

#include "device/level_zero/driver.h"
#include "ranks.h"
#include "standin/sycl/sycl_standin.h"

#include <dlfcn.h>
#include <string.h>
#include <tutti/tutti.h>

enum { N = 5000, TIMES = 10 };

static const char *sycl_path;

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    assert_non_null(found);
    return found;
}

/* A list or queue of the program's own. */
static void *native_make(struct tutti_accelerator *acc, bool queue)
{
    typedef int (*creator)(void *, void *, const struct xpu_queue_desc *, void **);
    const struct xpu_queue_desc desc = {.structure = XPU_STRUCTURE_QUEUE, .mode = XPU_QUEUE_ASYNCHRONOUS};
    void *library = dlopen(getenv("TUTTI_LEVEL_ZERO_LIBRARY"), RTLD_NOW), *made = NULL;
    void *call = symbol(library, queue ? "zeCommandQueueCreate" : "zeCommandListCreateImmediate");
    creator create;
    memcpy(&create, &call, sizeof create);
    assert_int_equal(
        create(tutti_accelerator_context(acc), xpu_driver()->devices[tutti_accelerator_device(acc)], &desc, &made), 0);
    return made;
}

/* On the stream: the inputs, a call, and the outputs back, TIMES over without waiting. */
static void call_on(struct rank *rank, struct tutti_accelerator *acc, void *stream)
{
    static int32_t in[TIMES][N], out[TIMES][N];
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    void *buffer = NULL;
    options.stream = stream;
    RANK_CHECK_OK(rank, tutti_accelerator_alloc(acc, sizeof in[0], &buffer));
    for (int i = 0; i < TIMES; i++) {
        for (int j = 0; j < N; j++) in[i][j] = (rank->index + 1) * (i + j);
        RANK_CHECK_OK(rank, tutti_accelerator_copy(acc, buffer, in[i], sizeof in[i], stream));
        RANK_CHECK_OK(rank, tutti_all_reduce(buffer, buffer, N, TUTTI_INT32, TUTTI_SUM, rank->comm, &options, NULL));
        RANK_CHECK_OK(rank, tutti_accelerator_copy(acc, out[i], buffer, sizeof out[i], stream));
    }
    RANK_CHECK_OK(rank, tutti_accelerator_stream_sync(acc, stream));
    for (int i = 0; i < TIMES; i++)
        for (int j = 0; j < N; j++) RANK_CHECK(rank, out[i][j] == 3 * (i + j));
    tutti_accelerator_free(acc, buffer);
}

static void raw(struct rank *rank)
{
    struct tutti_accelerator *acc = NULL;
    void *stream = NULL;
    RANK_CHECK_OK(rank, tutti_accelerator_open("xpu", rank->index, &acc));
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, tutti_accelerator_device(acc)));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "native is NULL",
                     tutti_accelerator_stream_adopt(acc, TUTTI_NATIVE_LIST, NULL, &stream));
    for (int kind = TUTTI_NATIVE_LIST; kind <= TUTTI_NATIVE_QUEUE; kind++) {
        void *native = native_make(acc, kind == TUTTI_NATIVE_QUEUE);
        RANK_CHECK_OK(rank, tutti_accelerator_stream_adopt(acc, (enum tutti_native)kind, native, &stream));
        call_on(rank, acc, stream);
        tutti_accelerator_stream_destroy(acc, stream);
    }
    tutti_accelerator_close(acc);
}

static void test_raw_handles(void **state)
{
    const struct ranks_config config = {.n = 2, .forked = true, .deadline_s = 60};
    (void)state;
    assert_int_equal(ranks_run(&config, raw), 0);
}

/* ---- SYCL ---- */

static struct sycl_standin_context *own; /* its default one, which is Level Zero's */

/* Before tutti asks for a device: it is one of a program that uses SYCL. */
static void sycl_load(void)
{
    static char context; /* the stand-in of the driver looks at no more than that there is one */
    void *library = dlopen(sycl_path, RTLD_NOW | RTLD_GLOBAL);
    assert_non_null(library);
    own = symbol(library, "sycl_standin_default");
    own->native = &context;
}

/* A queue that is another one by the next call, at the same address, as local variables are: that call waits for the
 * first one, which something of the program's own holds up. */
static void moves(struct rank *rank, struct tutti_accelerator *acc)
{
    struct sycl_standin_queue queue = {SYCL_STANDIN_LEVEL_ZERO, 1, native_make(acc, false), own};
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct xpu_mark *held = NULL;
    void *words[2], *event = NULL, *first = queue.native;
    options.stream = &queue;
    for (int i = 0; i < 2; i++) RANK_CHECK_OK(rank, tutti_accelerator_alloc(acc, N * sizeof(int32_t), &words[i]));
    RANK_CHECK_OK(rank, tutti_accelerator_event_create(acc, &event));
    RANK_CHECK_OK(rank, xpu_mark_take(xpu_driver(), false, &held));
    RANK_CHECK(rank, xpu_driver()->append_barrier(first, NULL, 1, &held->event) == 0);
    for (int i = 0; i < 2; i++) {
        RANK_CHECK_OK(rank,
                      tutti_all_reduce(words[i], words[i], N, TUTTI_INT32, TUTTI_SUM, rank->comm, &options, NULL));
        if (i == 0) queue.native = native_make(acc, false);
    }
    RANK_CHECK_OK(rank, tutti_accelerator_event_record(acc, event, &queue));
    tutti_sleep_ns(100 * TUTTI_NS_PER_MS); /* time enough for what is not held up */
    RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_accelerator_event_query(acc, event));
    RANK_CHECK(rank, xpu_driver()->event_signal(held->event) == 0);
    RANK_CHECK_OK(rank, tutti_accelerator_stream_sync(acc, &queue));
    for (int i = 0; i < 2; i++) tutti_accelerator_free(acc, words[i]);
    tutti_accelerator_event_destroy(acc, event);
}

static void queues(struct rank *rank)
{
    struct sycl_standin_context other = {&other};
    struct tutti_accelerator *acc = NULL;
    RANK_CHECK_OK(rank, tutti_accelerator_open("xpu", rank->index, &acc));
    RANK_CHECK(rank, tutti_accelerator_context(acc) == own->native);
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, tutti_accelerator_device(acc)));
    for (int immediate = 0; immediate < 2; immediate++) {
        struct sycl_standin_queue queue = {SYCL_STANDIN_LEVEL_ZERO, immediate, native_make(acc, !immediate), own};
        call_on(rank, acc, &queue);
    }
    moves(rank, acc);
    struct sycl_standin_queue refused[] = {{SYCL_STANDIN_OPENCL, 0, &other, own},
                                           {SYCL_STANDIN_LEVEL_ZERO, 1, &other, &other}};
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "is not Level Zero's",
                     tutti_accelerator_stream_sync(acc, &refused[0]));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "is not of the default context of its platform",
                     tutti_accelerator_stream_sync(acc, &refused[1]));
    tutti_accelerator_close(acc);
}

static void test_sycl_queues(void **state)
{
    const struct ranks_config config = {.n = 2, .forked = true, .deadline_s = 60};
    (void)state;
    if (!ranks_can_fork()) skip(); /* tutti has asked for a device before */
    sycl_load();
    assert_int_equal(ranks_run(&config, queues), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_raw_handles), cmocka_unit_test(test_sycl_queues)};
    sycl_path = argc > 1 ? argv[1] : "";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
