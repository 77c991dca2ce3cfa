/* SPDX-License-Identifier: BSD-3-Clause */

/* Deadlines that follow from one, and those that contradict. */

#include "test.h"

#include "base/base.h"

#include <tutti/ft.h>

#include <string.h>

#define MS TUTTI_NS_PER_MS

static void test_timeouts(void **state)
{
    struct tutti_ft_timeouts t = TUTTI_FT_TIMEOUTS_INIT;

    (void)state;
    setenv("TUTTI_FT_TIMEOUT", "8s", 1);
    assert_int_equal(tutti_ft_timeouts_fill(&t), TUTTI_OK);
    unsetenv("TUTTI_FT_TIMEOUT");
    assert_int_equal(t.timeout_ns, 8000 * MS);
    assert_int_equal(t.quorum_ns, 8000 * MS);
    assert_int_equal(t.connect_ns, 8000 * MS);
    assert_int_equal(t.join_ns, 4000 * MS);
    assert_int_equal(t.heartbeat_timeout_ns, 2000 * MS);
    assert_int_equal(t.heartbeat_interval_ns, 100 * MS);
    assert_int_equal(t.tick_ns, 100 * MS);
    for (uint64_t ns = 1; ns < UINT64_MAX / 1000; ns *= 3) { /* what is derived never contradicts itself */
        t = (struct tutti_ft_timeouts){.size = sizeof t, .timeout_ns = ns * 100};
        assert_int_equal(tutti_ft_timeouts_fill(&t), TUTTI_OK);
    }
    t = (struct tutti_ft_timeouts){.size = sizeof t, .timeout_ns = 1000 * MS, .heartbeat_timeout_ns = 1500 * MS};
    assert_int_equal(tutti_ft_timeouts_fill(&t), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "heartbeat_timeout_ns (1500 ms) and quorum_ns (1000 ms): groups"));
    assert_int_equal(t.quorum_ns, 0); /* nothing was written */
    t = (struct tutti_ft_timeouts){.size = sizeof t, .quorum_ns = 1000 * MS};
    assert_int_equal(tutti_ft_timeouts_fill(&t), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "timeout_ns (60000 ms) and quorum_ns (1000 ms)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_timeouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
