/* SPDX-License-Identifier: BSD-3-Clause */
/* Every function of the device once, in an order that a program might have them in, with nothing but their answers
 * looked at: so that it runs on the stand-in, and on Intel's own driver without hardware, which takes every call,
 * carries out none, and lets only those come to an end who wait. Its validation layer is in front there: what is wrong
 * with an argument, or with the life of a handle, is an answer, too. */

#include "test.h"

#include "device/level_zero/driver.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#define N 4096
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        const enum tutti_status status_ = (call);                                                                      \
        if (status_ != TUTTI_OK) fail_msg("%s: %s", #call, tutti_last_error()->text);                                  \
    } while (0)

static struct tutti_device *device, *other;

static bool executes(void)
{
    return xpu_driver()->standin_kernels;
}

static void until_over(void *event)
{
    if (!executes()) return;
    enum tutti_status status = TUTTI_PENDING;
    for (int i = 0; i < 10000 && status == TUTTI_PENDING; i++) {
        status = tutti_xpu_event_query(device, event);
        if (status == TUTTI_PENDING) tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
    OK(status);
}

static void count_call(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void test_facts(void **state)
{
    struct tutti_device_facts facts;
    (void)state;
    assert_null(tutti_xpu_absence());
    assert_true(tutti_xpu_count() >= 2 && tutti_xpu_driver_version() >= 1003);
    OK(tutti_xpu_facts(0, &facts));
    assert_true(facts.name[0] && facts.n_sms > 0 && facts.memory_bytes > 0);
    OK(tutti_xpu_open(0, &device));
    OK(tutti_xpu_open(1, &other));
    assert_true(tutti_xpu_in_use());
    if (tutti_xpu_reaches(0, 1)) OK(tutti_xpu_reach(device, other));
    assert_non_null(tutti_xpu_kernel(device, "fold_float32_16"));
    assert_null(tutti_xpu_kernel(device, "fold_of_nothing"));
}

static void test_memory(void **state)
{
    char *memory = NULL, *host = NULL, *far = NULL, on_stack[N] = {0};
    (void)state;
    OK(tutti_xpu_alloc(device, N, (void **)&memory));
    OK(tutti_xpu_alloc_shared(other, TUTTI_DEVICE_SHARE_AUTO, N, (void **)&far));
    OK(tutti_xpu_alloc_host(device, N, (void **)&host));
    assert_int_equal(tutti_xpu_of(memory + 100), 0);
    assert_int_equal(tutti_xpu_of(far), 1);
    assert_int_equal(tutti_xpu_of(host), -1);
    assert_int_equal(tutti_xpu_of(on_stack), -1);
    OK(tutti_xpu_holds(device, memory + 1, N - 1));
    assert_int_equal(tutti_xpu_holds(device, host, N), TUTTI_ERR_ARGUMENT);
    OK(tutti_xpu_set(device, memory, 7, N));
    OK(tutti_xpu_copy_now(device, memory, on_stack, N));
    OK(tutti_xpu_copy_now(device, host, memory, N));
    OK(tutti_xpu_copy_now(device, far, memory, N));
    tutti_xpu_free(device, memory), tutti_xpu_free(other, far), tutti_xpu_free_host(device, host);
    assert_int_equal(tutti_xpu_of(memory), -1);
}

/* More events than a pool has, used again and again. */
static void test_streams(void **state)
{
    enum { ROUNDS = 200 };
    _Atomic int calls = 0;
    void *first, *second, *event, *from, *to, *memory, *other_memory, *word = NULL;
    double us = -1;
    (void)state;
    OK(tutti_xpu_alloc(device, N, &memory));
    OK(tutti_xpu_alloc(device, N, &other_memory));
    OK(tutti_xpu_alloc_host(device, sizeof(uint32_t), &word));
    OK(tutti_xpu_stream_create(device, &first));
    OK(tutti_xpu_stream_create(device, &second));
    OK(tutti_xpu_event_create(device, false, &event));
    OK(tutti_xpu_event_create(device, true, &from));
    OK(tutti_xpu_event_create(device, true, &to));
    OK(tutti_xpu_event_record(device, from, first));
    OK(tutti_xpu_stream_wait_word(device, first, word, 1));
    for (int i = 0; i < ROUNDS; i++) {
        struct tutti_fold fold = {.dtype = TUTTI_FLOAT32,
                                  .op = TUTTI_SUM,
                                  .dst = memory,
                                  .left = memory,
                                  .right = memory,
                                  .n = N / sizeof(float)};
        OK(tutti_gpu_fold(device, &fold, first));
        OK(tutti_xpu_host_call(device, first, count_call, &calls));
        OK(tutti_xpu_event_record(device, event, first));
        OK(tutti_xpu_stream_wait(device, second, event));
        OK(tutti_xpu_stream_wait(device, NULL, event));
        OK(tutti_xpu_copy(device, other_memory, other_memory, N, second));
    }
    atomic_store((_Atomic uint32_t *)word, 1);
    OK(tutti_xpu_event_record(device, to, second));
    until_over(to);
    OK(tutti_xpu_stream_sync(device, first));
    OK(tutti_xpu_stream_sync(device, NULL));
    if (executes()) {
        assert_int_equal(calls, ROUNDS);
        OK(tutti_xpu_elapsed(device, from, to, &us));
        assert_true(us >= 0);
    }
    tutti_xpu_event_destroy(device, event), tutti_xpu_event_destroy(device, from), tutti_xpu_event_destroy(device, to);
    tutti_xpu_stream_destroy(device, first), tutti_xpu_stream_destroy(device, second);
    tutti_xpu_free(device, memory), tutti_xpu_free(device, other_memory), tutti_xpu_free_host(device, word);
}

/* Raw handles of a program: a command list, and a queue, whose calls become lists of their own. */
static void test_adopted(void **state)
{
    const struct xpu_queue_desc desc = {.structure = XPU_STRUCTURE_QUEUE, .mode = XPU_QUEUE_ASYNCHRONOUS};
    const struct xpu_driver *driver = xpu_driver();
    void *natives[2] = {NULL, NULL}, *library = dlopen(getenv("TUTTI_LEVEL_ZERO_LIBRARY"), RTLD_NOW), *memory;
    int (*queue_create)(void *, void *, const struct xpu_queue_desc *, void **) = NULL;
    int (*queue_destroy)(void *) = NULL;
    (void)state;
    void *symbol = dlsym(library, "zeCommandQueueCreate");
    memcpy(&queue_create, &symbol, sizeof symbol);
    symbol = dlsym(library, "zeCommandQueueDestroy");
    memcpy(&queue_destroy, &symbol, sizeof symbol);
    OK(tutti_xpu_alloc(device, N, &memory));
    assert_int_equal(driver->list_create_immediate(device->context, driver->devices[0], &desc, &natives[0]), 0);
    assert_int_equal(queue_create(device->context, driver->devices[0], &desc, &natives[1]), 0);
    for (int kind = 0; kind < 2; kind++) {
        void *stream = NULL;
        OK(tutti_xpu_stream_adopt(device, kind ? TUTTI_NATIVE_QUEUE : TUTTI_NATIVE_LIST, natives[kind], &stream));
        for (int i = 0; i < 100; i++) OK(tutti_xpu_copy(device, memory, memory, N, stream));
        OK(tutti_xpu_stream_sync(device, stream));
        tutti_xpu_stream_destroy(device, stream);
    }
    int on_stack;
    assert_int_equal(tutti_xpu_copy(device, memory, memory, N, &on_stack), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "is no stream of tutti's"));
    assert_int_equal(driver->list_destroy(natives[0]), 0);
    assert_int_equal(queue_destroy(natives[1]), 0);
    tutti_xpu_free(device, memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_facts), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_streams), cmocka_unit_test(test_adopted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
