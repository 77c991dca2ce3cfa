/* SPDX-License-Identifier: BSD-3-Clause */
/* Campaigns of the fault decorator by seed. Duplicated and delayed packets must change nothing; a lost packet must end
 * in a sentence on every rank by the deadline, never in a wrong result or a hang; so must a rank that dies at its n-th
 * packet. */

#include "test.h"

#include "ranks.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 5, ELEMENTS = 20000, CALLS = 40 };

struct campaign {
    bool harmless;
    int32_t victim;
};

static bool right(const int64_t *got, size_t n, size_t call)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != (int64_t)(RANKS * (i + call)) + RANKS * (RANKS - 1) / 2) return false;
    return true;
}

/* Results are right as long as calls succeed; the first failure must be the same sentence everywhere, which the failed
 * communicator repeats. */
static void all_reduces(struct rank *rank)
{
    const struct campaign *campaign = rank->arg;
    static _Thread_local int64_t in[ELEMENTS], out[ELEMENTS];
    enum tutti_status status = TUTTI_OK;
    for (size_t call = 0; call < CALLS; call++) {
        size_t n = call % 4 == 0 ? ELEMENTS : call * 7;
        for (size_t i = 0; i < n; i++) in[i] = (int64_t)(i + call) + rank->index;
        status = tutti_all_reduce(in, out, n, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, NULL);
        if (status < 0) break;
        RANK_CHECK(rank, right(out, n, call));
    }
    if (campaign->harmless) RANK_CHECK_OK(rank, status);
    if (status >= 0) return;
    struct tutti_error error;
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "all_reduce") != NULL);
    RANK_CHECK(rank, tutti_comm_state(rank->comm, &error) == status);
    /* A sender that is through while its packet is missing may as well have called with another count. */
    RANK_CHECK(rank, status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_PEER_DEAD || status == TUTTI_ERR_MISMATCH);
}

static unsigned campaign(const char *faults, bool forked, bool harmless, int32_t victim)
{
    struct campaign plan = {harmless, victim};
    struct tutti_option options[] = {{"decorators", "fault"}, {"fault", faults}, {"slice", "16K"}, {"staging", "256K"}};
    struct ranks_config config = {.n = RANKS,
                                  .forked = forked,
                                  .options = options,
                                  .n_options = 4,
                                  .timeout_ns = harmless ? UINT64_C(20000000000) : UINT64_C(700000000),
                                  .deadline_s = 30,
                                  .arg = &plan,
                                  .may_die = victim < 0 ? 0 : UINT64_C(0xffffffff)};
    unsigned failed = ranks_run(&config, all_reduces);
    if (failed) print_message("failed with faults %s (%s)\n", faults, forked ? "shm" : "self");
    return failed;
}

static void duplicates_and_delays(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (unsigned seed = 1; seed <= 10; seed++) {
        char faults[96];
        snprintf(faults, sizeof faults, "seed=%u,duplicate=0.3", seed);
        failed += campaign(faults, seed % 2, true, -1);
        snprintf(faults, sizeof faults, "seed=%u,duplicate=0.1,delay=0.1:300us", seed);
        failed += campaign(faults, seed % 2, true, -1);
    }
    assert_int_equal(failed, 0);
}

static void drops(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (unsigned seed = 1; seed <= 12; seed++) {
        char faults[96];
        snprintf(faults, sizeof faults, "seed=%u,drop=%s", seed, seed % 3 ? "0.002" : "0.05");
        failed += campaign(faults, seed % 2, false, -1);
    }
    assert_int_equal(failed, 0);
}

static void deaths_at_a_packet(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip(); /* ranks are threads here: the test itself would die */
    unsigned failed = 0;
    for (unsigned seed = 1; seed <= 10; seed++) {
        char faults[96];
        snprintf(faults, sizeof faults, "seed=%u,kill=%u", seed, 1 + seed * seed * 7);
        failed += campaign(faults, true, false, 0);
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(duplicates_and_delays),
        cmocka_unit_test(drops),
        cmocka_unit_test(deaths_at_a_packet),
    };
    return cmocka_run_group_tests_name("faults.campaign", tests, NULL, NULL);
}
