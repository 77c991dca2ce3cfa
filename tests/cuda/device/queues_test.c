/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread uses a stream for the first time while no other thread does on the device, which waits, but not for ever;
 * whatever enqueues something, by a driver that looks who is locked out. */

#include "test.h"

#include "device/cuda/driver.h"

#include <pthread.h>

/* ---- a driver that carries nothing out ---- */

static struct cuda_gpu gpu, other;
static bool captures;
static int n_alone, n_together; /* calls that enqueued something: while nobody else could, and otherwise */

static int seen(void)
{
    const bool alone = pthread_mutex_trylock(&gpu.queues) != 0;
    if (!alone) pthread_mutex_unlock(&gpu.queues);
    alone ? n_alone++ : n_together++;
    return CUDA_RESULT_OK;
}

static int context_get(void **context)
{
    *context = NULL;
    return CUDA_RESULT_OK;
}

static int capture_info(void *stream, int *status, uint64_t *id, void **graph, void *const **nodes, size_t *n)
{
    (void)stream, (void)graph, (void)nodes, (void)n;
    *status = captures ? CUDA_CAPTURE_ACTIVE : CUDA_CAPTURE_NONE;
    *id = 7;
    return CUDA_RESULT_OK;
}

static int capture_mode(int *mode)
{
    (void)mode;
    return CUDA_RESULT_OK;
}

static int stream_create(void **out, unsigned flags)
{
    static char handle; /* that of one which was destroyed */
    (void)flags;
    *out = &handle;
    return CUDA_RESULT_OK;
}

static int launch(void *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
                  unsigned shared, void *stream, void **parameters, void **extra)
{
    (void)function, (void)x, (void)y, (void)z, (void)tx, (void)ty, (void)tz, (void)shared, (void)stream;
    (void)parameters, (void)extra;
    return seen();
}

static int launch_by(const struct cuda_launch_config *config, void *function, void **parameters, void **extra)
{
    (void)config, (void)function, (void)parameters, (void)extra;
    return seen();
}

static int memory_copy(uint64_t dst, uint64_t src, size_t bytes, void *stream)
{
    (void)dst, (void)src, (void)bytes, (void)stream;
    return seen();
}

static int stream_wait_event(void *stream, void *event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return seen();
}

static int stream_wait_value(void *stream, uint64_t word, uint32_t value, unsigned flags)
{
    (void)stream, (void)word, (void)value, (void)flags;
    return seen();
}

static int event_record(void *event, void *stream)
{
    (void)event, (void)stream;
    return seen();
}

static int launch_host(void *stream, void (*function)(void *arg), void *arg)
{
    (void)stream, (void)function, (void)arg;
    return seen();
}

static int graph_launch(void *graph, void *stream)
{
    (void)graph, (void)stream;
    return seen();
}

static int memory_alloc_ordered(uint64_t *out, size_t bytes, void *stream)
{
    (void)out, (void)bytes, (void)stream;
    return seen();
}

static int memory_free_ordered(uint64_t pointer, void *stream)
{
    (void)pointer, (void)stream;
    return seen();
}

static const struct cuda_driver driver = {.context_get = context_get,
                                          .capture_info = capture_info,
                                          .capture_mode = capture_mode,
                                          .stream_create = stream_create,
                                          .launch = launch,
                                          .launch_by = launch_by,
                                          .memory_copy = memory_copy,
                                          .stream_wait_event = stream_wait_event,
                                          .stream_wait_value = stream_wait_value,
                                          .event_record = event_record,
                                          .launch_host = launch_host,
                                          .graph_launch = graph_launch,
                                          .memory_alloc_ordered = memory_alloc_ordered,
                                          .memory_free_ordered = memory_free_ordered};

/* ---- what enqueues something ---- */

static char streams[64];

static void launch_at(void *stream)
{
    const struct tutti_gpu_launch how = {.stream = stream, .blocks = 1, .threads = 1};
    assert_int_equal(tutti_cuda_launch(&gpu.seen, &how, NULL), TUTTI_OK);
}

static void launch_overlapping_at(void *stream)
{
    const struct tutti_gpu_launch how = {.stream = stream, .blocks = 1, .threads = 1, .overlaps = true};
    gpu.overlaps = true;
    assert_int_equal(tutti_cuda_launch(&gpu.seen, &how, NULL), TUTTI_OK);
}

static void copy_at(void *stream)
{
    char bytes[2] = {0};
    assert_int_equal(tutti_cuda_copy(&gpu.seen, bytes, bytes + 1, 1, stream), TUTTI_OK);
}

static void wait_at(void *stream)
{
    assert_int_equal(tutti_cuda_stream_wait(&gpu.seen, stream, NULL), TUTTI_OK);
}

static void wait_word_at(void *stream)
{
    const uint32_t word = 0;
    assert_int_equal(tutti_cuda_stream_wait_word(&gpu.seen, stream, &word, 0), TUTTI_OK);
}

static void record_at(void *stream)
{
    assert_int_equal(tutti_cuda_event_record(&gpu.seen, NULL, stream), TUTTI_OK);
}

static void host_at(void *stream)
{
    assert_int_equal(tutti_cuda_host_call(&gpu.seen, stream, NULL, NULL), TUTTI_OK);
}

static void graph_at(void *stream)
{
    assert_int_equal(tutti_cuda_graph_launch(&gpu.seen, NULL, stream), TUTTI_OK);
}

static void alloc_at(void *stream)
{
    void *memory;
    assert_int_equal(tutti_cuda_alloc_ordered(&gpu.seen, 1, stream, &memory), TUTTI_OK);
}

static void free_at(void *stream)
{
    assert_int_equal(tutti_cuda_free_ordered(&gpu.seen, NULL, stream), TUTTI_OK);
}

static void (*const uses[])(void *stream) = {
    launch_at, launch_overlapping_at, copy_at, wait_at, wait_word_at, record_at, host_at, graph_at, alloc_at, free_at};

/* The first of each, on a stream of its own, is made alone; later ones as copies, which may go the other way. */
static void first_uses(void **state)
{
    (void)state;
    for (size_t u = 0; u < TUTTI_ARRAY_LEN(uses); u++) {
        n_alone = n_together = 0;
        for (int i = 0; i < 3; i++) uses[u](&streams[u]);
        assert_int_equal(n_alone, uses[u] == copy_at ? 3 : 1);
        assert_int_equal(n_together, uses[u] == copy_at ? 0 : 2);
        assert_int_equal(pthread_mutex_trylock(&gpu.queues), 0); /* it was given back */
        pthread_mutex_unlock(&gpu.queues);
    }
}

/* ---- which use is a first one ---- */

static bool is_first(int stream, enum cuda_use use)
{
    const bool locked = cuda_queue_begin(&gpu.seen, &streams[stream], use);
    cuda_queue_end(&gpu.seen, locked);
    return locked;
}

static void of_each_kind(void **state)
{
    (void)state;
    for (enum cuda_use use = 0; use < CUDA_N_USES; use++) assert_true(is_first(20, use));
    for (enum cuda_use use = 0; use < CUDA_N_USES; use++) assert_int_equal(is_first(20, use), use == CUDA_USE_COPY);
}

/* A thread remembers some: one that it has not used for long counts as new. */
static void many_streams(void **state)
{
    (void)state;
    for (int stream = 30; stream < 50; stream++) assert_true(is_first(stream, CUDA_USE_KERNEL));
    assert_false(is_first(49, CUDA_USE_KERNEL));
    assert_true(is_first(30, CUDA_USE_KERNEL));
}

static void *make_stream(void *out)
{
    assert_int_equal(tutti_cuda_stream_create(&gpu.seen, out), TUTTI_OK);
    return NULL;
}

/* By whatever thread: its handle may be that of one that was destroyed. */
static void a_stream_is_made(void **state)
{
    pthread_t thread;
    void *stream = NULL;
    (void)state;
    assert_true(is_first(50, CUDA_USE_GRAPH));
    assert_false(is_first(50, CUDA_USE_GRAPH));
    assert_int_equal(pthread_create(&thread, NULL, make_stream, &stream), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(stream);
    assert_true(is_first(50, CUDA_USE_GRAPH));
}

/* What is captured is enqueued by nobody yet. */
static void in_a_capture(void **state)
{
    (void)state;
    captures = true;
    assert_false(is_first(51, CUDA_USE_KERNEL));
    captures = false;
    assert_true(is_first(51, CUDA_USE_KERNEL));
    assert_false(is_first(51, CUDA_USE_KERNEL));
}

/* ---- two at the same time ---- */

static void *come_second(void *waited_ns)
{
    const uint64_t begin = tutti_now_ns();
    const bool locked = is_first(60, CUDA_USE_KERNEL);
    *(uint64_t *)waited_ns = tutti_now_ns() - begin;
    return locked ? waited_ns : NULL;
}

static bool second_thread(uint64_t *waited_ns)
{
    pthread_t thread;
    void *locked = NULL;
    assert_int_equal(pthread_create(&thread, NULL, come_second, waited_ns), 0);
    assert_int_equal(pthread_join(thread, &locked), 0);
    return locked;
}

/* The first one is kept by the driver: others of the device go on without it, those of another one do at once. */
static void at_the_same_time(void **state)
{
    uint64_t waited_ns;
    (void)state;
    const bool locked = cuda_queue_begin(&gpu.seen, &streams[61], CUDA_USE_HOST);
    assert_true(locked);
    for (int i = 0; i < 2; i++) {
        assert_false(second_thread(&waited_ns));
        assert_in_range(waited_ns, UINT64_C(5000000), UINT64_C(3000000000)); /* a machine may be busy */
    }
    const bool of_other = cuda_queue_begin(&other.seen, &streams[62], CUDA_USE_HOST);
    assert_true(of_other);
    cuda_queue_end(&other.seen, of_other);
    cuda_queue_end(&gpu.seen, locked);
    assert_true(second_thread(&waited_ns));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_uses),       cmocka_unit_test(of_each_kind), cmocka_unit_test(many_streams),
        cmocka_unit_test(a_stream_is_made), cmocka_unit_test(in_a_capture), cmocka_unit_test(at_the_same_time),
    };
    gpu.driver = other.driver = &driver;
    pthread_mutex_init(&gpu.queues, NULL);
    pthread_mutex_init(&other.queues, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
