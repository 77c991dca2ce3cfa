/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of devices (device.h) over each of the list that is here, CUDA and Level Zero where there is a driver or
 * a stand-in, and over one for tests that is unlike them. */
#include <string.h>

#include "device/device.h"
#include "fake_device.h"
#include "test.h"

#include <stdatomic.h>

#define N 1000

static struct tutti_device *device;
static const struct tutti_device_ops *ops;
#define OK(call) assert_int_equal(call, TUTTI_OK)

static void until_over(void *event)
{
    enum tutti_status status = TUTTI_PENDING;
    for (int i = 0; i < 10000 && status == TUTTI_PENDING; i++) {
        status = ops->event_query(device, event);
        if (status == TUTTI_PENDING) tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
    OK(status);
}

static void memory(void)
{
    unsigned char host[N], *at = NULL, *pinned = NULL;
    OK(ops->alloc(device, N, (void **)&at));
    OK(ops->alloc_host(device, N, (void **)&pinned));
    for (int i = 0; i < N; i++) assert_int_equal(pinned[i], 0);
    assert_int_equal(ops->of(at), ops->on_host ? -1 : device->ordinal);
    assert_int_equal(ops->of(host), -1);
    assert_true(ops->of(pinned) == -1 || ops->of(pinned) == TUTTI_DEVICE_PINNED);
    OK(ops->holds(device, at, N));
    OK(ops->set(device, at, 7, N));
    OK(ops->copy_now(device, host, at, N));
    for (int i = 0; i < N; i++) assert_int_equal(host[i], 7);
    ops->free(device, at);
    ops->free(device, NULL);
    ops->free_host(device, pinned);
}

static void count_call(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* Two streams tied by an event, a copy each, and functions of the host in between. */
static void streams(void)
{
    _Atomic int calls = 0;
    void *first, *second, *event, *end;
    char *a, *b, in[N], out[N];
    uint64_t capture = 1;
    memset(in, 5, N), memset(out, 0, N);
    OK(ops->alloc(device, N, (void **)&a));
    OK(ops->alloc(device, N, (void **)&b));
    OK(ops->stream_create(device, &first));
    OK(ops->stream_create(device, &second));
    OK(ops->event_create(device, true, &event));
    OK(ops->event_create(device, true, &end));
    OK(ops->event_query(device, event)); /* never recorded */
    OK(tutti_device_capturing(device, first, &capture));
    assert_int_equal(capture, 0);
    OK(ops->copy(device, a, in, N, first));
    OK(ops->host_call(device, first, count_call, &calls));
    OK(ops->event_record(device, event, first));
    OK(ops->stream_wait(device, second, event));
    OK(ops->copy(device, b, a, N, second));
    OK(ops->copy(device, out, b, N, second));
    OK(ops->host_call(device, second, count_call, &calls));
    OK(ops->event_record(device, end, second));
    until_over(end);
    assert_int_equal(calls, 2);
    assert_memory_equal(in, out, N);
    double us = -1;
    OK(ops->elapsed(device, event, end, &us));
    assert_true(us >= 0);
    OK(ops->stream_sync(device, second));
    ops->event_destroy(device, event), ops->event_destroy(device, end);
    ops->stream_destroy(device, first), ops->stream_destroy(device, second);
    ops->free(device, a), ops->free(device, b);
}

/* A word that has come to the value, or past it modulo 2^32, holds nobody up. */
static void words(void)
{
    uint32_t *word = NULL;
    void *stream;
    OK(ops->alloc_host(device, sizeof(*word), (void **)&word));
    OK(ops->stream_create(device, &stream));
    *word = 3;
    OK(ops->stream_wait_word(device, stream, word, 3));
    OK(ops->stream_wait_word(device, stream, word, UINT32_MAX));
    OK(ops->stream_sync(device, stream));
    ops->stream_destroy(device, stream);
    ops->free_host(device, word);
}

/* What waits for a word holds up its stream, and no caller. Who waits for an event waits for the record that was the
 * last one by then: recording it anew changes nothing. */
static void late(void)
{
    char *host = NULL, *a = NULL;
    void *first, *event, *end, *word = NULL;
    OK(ops->alloc_host(device, 2 * N, (void **)&host));
    OK(ops->alloc_host(device, sizeof(uint32_t), &word));
    OK(ops->alloc(device, N, (void **)&a));
    OK(ops->stream_create(device, &first));
    OK(ops->event_create(device, false, &event));
    OK(ops->event_create(device, false, &end));
    memset(host, 5, N);
    OK(ops->stream_wait_word(device, first, word, 1));
    OK(ops->copy(device, a, host, N, first));
    OK(ops->event_record(device, event, first));
    OK(ops->stream_wait(device, NULL, event)); /* the default stream */
    OK(ops->copy(device, host + N, a, N, NULL));
    OK(ops->event_record(device, end, NULL));
    OK(ops->event_record(device, event, NULL));
    assert_int_equal(ops->event_query(device, event), TUTTI_PENDING);
    assert_int_equal(ops->event_query(device, end), TUTTI_PENDING);
    assert_int_equal(host[N], 0);
    atomic_store((_Atomic uint32_t *)word, 1);
    until_over(end), until_over(event);
    assert_memory_equal(host, host + N, N);
    ops->event_destroy(device, event), ops->event_destroy(device, end);
    ops->stream_destroy(device, first);
    ops->free(device, a), ops->free_host(device, host), ops->free_host(device, word);
}

static void folds(void)
{
    int32_t left[N], right[N], got[N], *a = NULL, *b = NULL;
    void *stream;
    OK(ops->alloc(device, sizeof(left), (void **)&a));
    OK(ops->alloc(device, sizeof(right), (void **)&b));
    OK(ops->stream_create(device, &stream));
    for (int i = 0; i < N; i++) left[i] = i - 500, right[i] = 3 * i;
    for (int max = 0; max < 2; max++) {
        OK(ops->copy_now(device, a, left, sizeof(left)));
        OK(ops->copy_now(device, b, right, sizeof(right)));
        OK(ops->fold(
            device,
            &(struct tutti_fold){
                .dtype = TUTTI_INT32, .op = max ? TUTTI_MAX : TUTTI_SUM, .dst = a, .left = a, .right = b, .n = N},
            stream));
        OK(ops->stream_sync(device, stream));
        OK(ops->copy_now(device, got, a, sizeof(got)));
        for (int i = 0; i < N; i++)
            assert_int_equal(got[i], !max ? left[i] + right[i] : left[i] > right[i] ? left[i] : right[i]);
    }
    const int32_t factor = 7;
    struct tutti_fold fold = {.dtype = TUTTI_INT32, .op = TUTTI_SUM};
    OK(ops->fold(device, &fold, stream)); /* only asks */
    fold.dst = a, fold.left = b, fold.n = N, fold.factor = &factor, fold.divisor = 3;
    OK(ops->fold(device, &fold, stream));
    fold.dst = b, fold.factor = NULL, fold.divisor = 5;
    OK(ops->fold(device, &fold, stream));
    OK(ops->stream_sync(device, stream));
    OK(ops->copy_now(device, got, a, sizeof(got)));
    OK(ops->copy_now(device, left, b, sizeof(left)));
    for (int i = 0; i < N; i++) assert_true(got[i] == 3 * i * 7 / 3 && left[i] == 3 * i / 5);
    ops->stream_destroy(device, stream);
    ops->free(device, a), ops->free(device, b);
}

static void test_contract(void **state)
{
    struct tutti_device_facts facts;
    ops = *state;
    if (ops->absence()) skip();
    assert_true(ops->count() > 0);
    OK(ops->facts(0, &facts));
    assert_true(facts.name[0] && facts.n_sms > 0);
    assert_true(ops->open((int32_t)ops->count(), &device) < 0);
    OK(ops->open(0, &device));
    assert_ptr_equal(device->ops, ops);
    assert_string_equal(device->name, facts.name);
    memory();
    streams();
    words();
    if (!ops->on_host) late();
    folds();
    ops->close(device);
}

int main(void)
{
    struct CMUnitTest tests[TUTTI_N_DEVICES + 1];
    for (size_t i = 0; i <= TUTTI_N_DEVICES; i++) {
        const struct tutti_device_ops *each = i < TUTTI_N_DEVICES ? tutti_devices[i] : &fake_device;
        tests[i] = (struct CMUnitTest)cmocka_unit_test_prestate(test_contract, (void *)(uintptr_t)each);
        tests[i].name = each->name;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
