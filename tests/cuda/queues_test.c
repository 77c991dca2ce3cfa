/* SPDX-License-Identifier: BSD-3-Clause */
/* Who uses a stream for the first time does so while no other thread does, which waits, but not for ever. */

#include "test.h"

#include "device/cuda/driver.h"

#include <pthread.h>

static struct cuda_gpu gpu = {.queues = PTHREAD_MUTEX_INITIALIZER};

static bool is_first(int stream, enum cuda_use use)
{
    static char streams[64];
    const bool locked = cuda_queue_begin(&gpu.seen, &streams[stream], use);
    cuda_queue_end(&gpu.seen, locked);
    return locked;
}

static void first_uses(void **state)
{
    (void)state;
    for (int stream = 0; stream < 3; stream++)
        for (enum cuda_use use = 0; use < CUDA_N_USES; use++) assert_true(is_first(stream, use));
    for (int stream = 0; stream < 3; stream++)
        for (enum cuda_use use = 0; use < CUDA_N_USES; use++)
            assert_int_equal(is_first(stream, use), use == CUDA_USE_COPY);
    assert_false(cuda_queue_begin(&gpu.seen, NULL, CUDA_USE_KERNEL)); /* the default stream is there from the first */
}

/* A thread remembers some: one that it has not used for long counts as new. */
static void many_streams(void **state)
{
    (void)state;
    for (int stream = 10; stream < 40; stream++) assert_true(is_first(stream, CUDA_USE_KERNEL));
    assert_false(is_first(39, CUDA_USE_KERNEL));
    assert_true(is_first(10, CUDA_USE_KERNEL));
}

/* Its handle may be that of one that was destroyed. */
static void a_stream_is_made(void **state)
{
    (void)state;
    assert_true(is_first(50, CUDA_USE_GRAPH));
    assert_false(is_first(50, CUDA_USE_GRAPH));
    cuda_queue_forget();
    assert_true(is_first(50, CUDA_USE_GRAPH));
}

static void *come_second(void *waited_ns)
{
    const uint64_t begin = tutti_now_ns();
    const bool locked = is_first(60, CUDA_USE_KERNEL);
    *(uint64_t *)waited_ns = tutti_now_ns() - begin;
    return locked ? waited_ns : NULL;
}

static void *second_thread(uint64_t *waited_ns)
{
    pthread_t thread;
    void *locked = NULL;
    assert_int_equal(pthread_create(&thread, NULL, come_second, waited_ns), 0);
    assert_int_equal(pthread_join(thread, &locked), 0);
    return locked;
}

/* The first one is kept by the driver: the second goes on without it. */
static void at_the_same_time(void **state)
{
    uint64_t waited_ns;
    (void)state;
    const bool locked = cuda_queue_begin(&gpu.seen, &waited_ns, CUDA_USE_HOST);
    assert_true(locked);
    assert_null(second_thread(&waited_ns));
    assert_in_range(waited_ns, UINT64_C(5000000), UINT64_C(5000000000));
    cuda_queue_end(&gpu.seen, locked);
    assert_non_null(second_thread(&waited_ns));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_uses),
        cmocka_unit_test(many_streams),
        cmocka_unit_test(a_stream_is_made),
        cmocka_unit_test(at_the_same_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
