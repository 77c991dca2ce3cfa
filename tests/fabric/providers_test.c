/* SPDX-License-Identifier: BSD-3-Clause */
/* Which provider transport ofi takes, over the stand-in, which has one; sentences where it can take none. */

#include "transport/world_test.h"

static void expect_refusal(const char *provider, const char *sentence)
{
    struct pairs *pairs = pairs_new(1, AF_INET);
    struct tutti_transport *t = NULL;
    pairs->provider = provider;
    assert_int_equal(pairs_open(pairs, 0, &t), TUTTI_ERR_UNSUPPORTED);
    assert_string_equal(tutti_last_error()->text, sentence);
    assert_null(t);
    pairs_free(pairs);
}

static void what_can_not_be_is_told(void **state)
{
    (void)state;
    expect_refusal("shm",
                   "transport ofi: provider 'shm' carries within a host alone, where transport shm does, and ends a "
                   "process whose peer leaves; there are: pinned on card0 with device memory");
    expect_refusal("efa",
                   "transport ofi: no provider 'efa' with tagged messages, reliable and without connections; there "
                   "are: pinned on card0 with device memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_can_not_be_is_told)};
    tutti_log_threshold = TUTTI_LOG_ERROR;
    return cmocka_run_group_tests_name("fabric.providers", tests, NULL, NULL);
}
