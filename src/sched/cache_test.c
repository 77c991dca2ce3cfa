/* SPDX-License-Identifier: BSD-3-Clause */

/* The cache: what is asked for again is the same schedule, what is in use stays, what is not used goes first, and many
 * threads may ask at once. */

#include "sched/sched.h"

#include <pthread.h>

#include "test.h"

static _Atomic uint32_t n_sealed;

static uint32_t one(const struct tutti_shape *shape)
{
    (void)shape;
    n_sealed++;
    return 1;
}

static void shift_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    (void)round;
    if (shape->size == 13) tutti_emit_send(emit, shape->slot, TUTTI_DATA, 0, 1); /* a defect */
    if (shape->slot > 0) tutti_emit_recv_reduce(emit, shape->slot - 1, TUTTI_DATA, 0, 1, TUTTI_LEFT);
    if (shape->slot + 1 < shape->size) tutti_emit_send(emit, shape->slot + 1, TUTTI_DATA, 0, 1);
}

static const struct tutti_schedule_ops shift_ops = {.rounds = one, .round = shift_round};
static const struct tutti_algorithm shift = {.name = "shift",
                                             .kinds = {[TUTTI_SCAN] = &shift_ops, [TUTTI_ALL_REDUCE] = &shift_ops}};

static const struct tutti_schedule *get(struct tutti_cache *cache, enum tutti_kind kind, uint32_t slot, uint32_t size)
{
    struct tutti_shape shape = {.slot = slot, .size = size};
    const struct tutti_schedule *schedule = NULL;

    assert_int_equal(tutti_cache_get(cache, &shift, kind, &shape, NULL, &schedule), TUTTI_OK);
    assert_int_equal(schedule->shape.slot, slot);
    assert_int_equal(schedule->shape.size, size);
    assert_int_equal(schedule->kind, kind);
    return schedule;
}

static void test_same_question_same_schedule(void **state)
{
    struct tutti_cache *cache = NULL;

    (void)state;
    assert_int_equal(tutti_cache_create(8, &cache), TUTTI_OK);
    n_sealed = 0;
    const struct tutti_schedule *a = get(cache, TUTTI_SCAN, 1, 4), *b = get(cache, TUTTI_SCAN, 1, 4);
    assert_ptr_equal(a, b);
    assert_int_equal(n_sealed, 1);
    const struct tutti_schedule *others[] = {get(cache, TUTTI_ALL_REDUCE, 1, 4), get(cache, TUTTI_SCAN, 2, 4),
                                             get(cache, TUTTI_SCAN, 1, 5)};
    assert_int_equal(n_sealed, 4);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(others); i++) {
        assert_ptr_not_equal(others[i], a);
        tutti_cache_release(cache, others[i]);
    }
    tutti_cache_release(cache, a);
    tutti_cache_release(cache, b);
    assert_ptr_equal(get(cache, TUTTI_SCAN, 1, 4), a); /* still there */
    tutti_cache_release(cache, a);
    tutti_cache_destroy(cache);
}

static void test_least_recently_used_goes(void **state)
{
    struct tutti_cache *cache = NULL;

    (void)state;
    assert_int_equal(tutti_cache_create(3, &cache), TUTTI_OK);
    for (uint32_t slot = 0; slot < 3; slot++) tutti_cache_release(cache, get(cache, TUTTI_SCAN, slot, 8));
    tutti_cache_release(cache, get(cache, TUTTI_SCAN, 0, 8)); /* 1 is the oldest now */
    tutti_cache_release(cache, get(cache, TUTTI_SCAN, 3, 8)); /* 1 goes */
    n_sealed = 0;
    tutti_cache_release(cache, get(cache, TUTTI_SCAN, 0, 8));
    tutti_cache_release(cache, get(cache, TUTTI_SCAN, 2, 8));
    tutti_cache_release(cache, get(cache, TUTTI_SCAN, 3, 8));
    assert_int_equal(n_sealed, 0);
    tutti_cache_release(cache, get(cache, TUTTI_SCAN, 1, 8));
    assert_int_equal(n_sealed, 1);
    tutti_cache_destroy(cache);
}

static void test_what_is_in_use_stays(void **state)
{
    struct tutti_cache *cache = NULL;
    const struct tutti_schedule *held[6];

    (void)state;
    assert_int_equal(tutti_cache_create(2, &cache), TUTTI_OK);
    for (uint32_t slot = 0; slot < 6; slot++) held[slot] = get(cache, TUTTI_SCAN, slot, 8);
    for (uint32_t slot = 0; slot < 6; slot++) {
        assert_int_equal(held[slot]->shape.slot, slot);
        assert_int_equal(held[slot]->steps[0].op, slot ? TUTTI_STEP_RECV_REDUCE : TUTTI_STEP_SEND);
        const struct tutti_schedule *again = get(cache, TUTTI_SCAN, slot, 8);
        assert_ptr_equal(again, held[slot]);
        tutti_cache_release(cache, again);
    }
    for (uint32_t slot = 0; slot < 6; slot++) tutti_cache_release(cache, held[slot]);
    n_sealed = 0;
    tutti_cache_release(cache, get(cache, TUTTI_SCAN, 0, 8)); /* had to go, once it was free */
    assert_int_equal(n_sealed, 1);
    tutti_cache_destroy(cache);
}

static void test_errors_pass_through(void **state)
{
    struct tutti_cache *cache = NULL;
    struct tutti_shape shape = {.slot = 1, .size = 13};
    const struct tutti_schedule *schedule = NULL;

    (void)state;
    assert_int_equal(tutti_cache_create(2, &cache), TUTTI_OK);
    assert_int_equal(tutti_cache_get(cache, &shift, TUTTI_SCAN, &shape, NULL, &schedule), TUTTI_ERR_INTERNAL);
    assert_int_equal(tutti_cache_get(cache, &shift, TUTTI_GATHER, &shape, NULL, &schedule), TUTTI_ERR_UNSUPPORTED);
    shape.size = 4;
    uint64_t i = 0;
    enum tutti_status status;
    do {
        tutti_alloc_fail_at(++i);
        status = tutti_cache_get(cache, &shift, TUTTI_SCAN, &shape, NULL, &schedule);
        tutti_alloc_fail_at(0);
        if (status != TUTTI_OK) assert_int_equal(status, TUTTI_ERR_MEMORY);
    } while (status != TUTTI_OK);
    assert_true(i > 3);
    tutti_cache_release(cache, schedule);
    tutti_cache_destroy(cache);
    for (i = 1; i <= 2; i++) {
        tutti_alloc_fail_at(i);
        assert_int_equal(tutti_cache_create(2, &cache), TUTTI_ERR_MEMORY);
        tutti_alloc_fail_at(0);
    }
}

#define N_THREADS 8

struct worker {
    pthread_t thread;
    struct tutti_cache *cache;
    uint64_t random;
    uint32_t wrong; /* cmocka's asserts belong to the main thread */
};

static void *hammer(void *arg)
{
    struct worker *worker = arg;
    const struct tutti_schedule *held[4] = {NULL};

    for (int i = 0; i < 3000; i++) {
        uint32_t k = (uint32_t)(tutti_random64(&worker->random) % TUTTI_ARRAY_LEN(held));
        struct tutti_shape shape = {.slot = (uint32_t)(tutti_random64(&worker->random) % 24), .size = 24};
        if (held[k]) tutti_cache_release(worker->cache, held[k]);
        if (tutti_cache_get(worker->cache, &shift, TUTTI_SCAN, &shape, NULL, &held[k]) != TUTTI_OK) worker->wrong++;
        for (size_t j = 0; j < TUTTI_ARRAY_LEN(held); j++) {
            if (!held[j]) continue;
            uint32_t expected = held[j]->shape.slot == 23 ? 1 : 2; /* the first copies its input */
            if (held[j]->n_steps != expected) worker->wrong++;
        }
    }
    for (size_t j = 0; j < TUTTI_ARRAY_LEN(held); j++)
        if (held[j]) tutti_cache_release(worker->cache, held[j]);
    return NULL;
}

static void test_many_threads(void **state)
{
    struct worker workers[N_THREADS];
    struct tutti_cache *cache = NULL;

    (void)state;
    assert_int_equal(tutti_cache_create(10, &cache), TUTTI_OK);
    for (uint32_t t = 0; t < N_THREADS; t++) {
        workers[t] = (struct worker){.cache = cache, .random = test_seed() + t};
        assert_int_equal(pthread_create(&workers[t].thread, NULL, hammer, &workers[t]), 0);
    }
    for (uint32_t t = 0; t < N_THREADS; t++) {
        assert_int_equal(pthread_join(workers[t].thread, NULL), 0);
        assert_int_equal(workers[t].wrong, 0);
    }
    tutti_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_question_same_schedule),
        cmocka_unit_test(test_least_recently_used_goes),
        cmocka_unit_test(test_what_is_in_use_stays),
        cmocka_unit_test(test_errors_pass_through),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
