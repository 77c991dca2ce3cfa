/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that is prepared but can not be started gives its schedule back: else the cache could never let go of it. The
 * linker puts the functions below in the place of the library's (folder.cmake). */
#include "comm/call/call.h"
#include "ranks.h"
#include "test.h"

static _Atomic int32_t n_held;    /* schedules that were taken and not given back */
static int32_t refuse_after = -1; /* calls that may start before one is refused; below 0: all may */

enum tutti_status __real_tutti_device_before(const struct tutti_call *call);
enum tutti_status __wrap_tutti_device_before(const struct tutti_call *call);
enum tutti_status __real_tutti_cache_get(struct tutti_cache *cache, const struct tutti_algorithm *algorithm,
                                         enum tutti_kind kind, const struct tutti_shape *shape,
                                         const struct tutti_lanes *lanes, const struct tutti_schedule **out);
enum tutti_status __wrap_tutti_cache_get(struct tutti_cache *cache, const struct tutti_algorithm *algorithm,
                                         enum tutti_kind kind, const struct tutti_shape *shape,
                                         const struct tutti_lanes *lanes, const struct tutti_schedule **out);
void __real_tutti_cache_release(struct tutti_cache *cache, const struct tutti_schedule *schedule);
void __wrap_tutti_cache_release(struct tutti_cache *cache, const struct tutti_schedule *schedule);

/* What calls on host memory wait for does not come. */
enum tutti_status __wrap_tutti_device_before(const struct tutti_call *call)
{
    if (refuse_after == 0) return tutti_call_fail(call, TUTTI_ERR_TIMEOUT, "what comes before it is not over");
    if (refuse_after > 0) refuse_after--;
    return __real_tutti_device_before(call);
}

enum tutti_status __wrap_tutti_cache_get(struct tutti_cache *cache, const struct tutti_algorithm *algorithm,
                                         enum tutti_kind kind, const struct tutti_shape *shape,
                                         const struct tutti_lanes *lanes, const struct tutti_schedule **out)
{
    enum tutti_status status = __real_tutti_cache_get(cache, algorithm, kind, shape, lanes, out);
    if (status >= 0) n_held++;
    return status;
}

void __wrap_tutti_cache_release(struct tutti_cache *cache, const struct tutti_schedule *schedule)
{
    n_held--;
    __real_tutti_cache_release(cache, schedule);
}

static void refused(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm, *dup = NULL;
    int32_t x = 1;
    struct tutti_work *work; /* with one a call goes the long way */
    struct tutti_persistent *persistent = NULL;
    RANK_CHECK_OK(rank, tutti_comm_dup(comm, &dup));
    RANK_CHECK(rank, n_held == 0);
    refuse_after = 0;
    RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, tutti_all_reduce(&x, &x, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, &work));
    RANK_CHECK(rank, n_held == 0);
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_OK(rank, tutti_all_reduce(&x, &x, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_persistent_end(&persistent));
    RANK_CHECK(rank, n_held == 1);
    RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, tutti_persistent_start(persistent, NULL));
    RANK_CHECK(rank, n_held == 1); /* its own */
    for (refuse_after = 0; refuse_after < 3; refuse_after++) {
        int32_t may_start = refuse_after;
        RANK_CHECK_OK(rank, tutti_group_start());
        for (int32_t i = 0; i < 3; i++)
            RANK_CHECK_OK(rank, tutti_all_reduce(&x, &x, 1, TUTTI_INT32, TUTTI_SUM, dup, NULL, NULL));
        RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, tutti_group_end(NULL)); /* which is the end of dup */
        RANK_CHECK(rank, n_held == 1);
        tutti_comm_destroy(dup);
        refuse_after = -1;
        RANK_CHECK_OK(rank, tutti_comm_dup(comm, &dup));
        refuse_after = may_start;
    }
    refuse_after = -1;
    tutti_persistent_destroy(persistent);
    tutti_comm_destroy(dup);
}

static void test_refused(void **state)
{
    (void)state;
    struct tutti_option off = {"backends", "off"}; /* the engine has schedules */
    struct ranks_config config = {.n = 1, .options = &off, .n_options = 1};
    assert_int_equal(ranks_run(&config, refused), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
