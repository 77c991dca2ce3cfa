/* SPDX-License-Identifier: BSD-3-Clause */

/* Quotas of cgroups, both versions, on trees that are made here. */

#include "base/base.h"
#include "tree.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* The quota of a process in this group, and whose it is. */
static uint32_t quota_of(const char *cgroup, uint64_t *payer)
{
    file_write(cgroup, "proc/self/cgroup");
    const uint32_t quota = tutti_cpus_quota_read(root, payer);
    assert_int_equal(*payer == 0, quota == NONE);
    return quota;
}

static void test_none(void **state)
{
    uint64_t payer;
    (void)state;
    assert_int_equal(tutti_cpus_quota_read(root, &payer), NONE);
    assert_true(payer == 0);
    assert_int_equal(quota_of("0::/a\n", &payer), NONE);
    file_write("max 100000\n", "sys/fs/cgroup/a/cpu.max");
    assert_int_equal(quota_of("0::/a\n", &payer), NONE);
    file_write("nonsense\n", "sys/fs/cgroup/a/cpu.max");
    assert_int_equal(quota_of("0::/a\n", &payer), NONE);
    assert_int_equal(quota_of("no colons here\n0:\n", &payer), NONE);
}

static void test_version_2(void **state)
{
    uint64_t leaf, sibling, above, top;
    (void)state;
    file_write("250000 100000\n", "sys/fs/cgroup/job/one/cpu.max");
    file_write("200000 100000\n", "sys/fs/cgroup/job/two/cpu.max");
    assert_int_equal(quota_of("0::/job/one\n", &leaf), 2); /* two threads may spin, not three */
    assert_int_equal(quota_of("0::/job/two\n", &sibling), 2);
    assert_true(leaf != sibling);
    file_write("200000 100000\n", "sys/fs/cgroup/job/cpu.max"); /* as little, and all live on it */
    assert_int_equal(quota_of("0::/job/one\n", &above), 2);
    assert_int_equal(quota_of("0::/job/two\n", &sibling), 2);
    assert_true(above == sibling && above != leaf);
    file_write("50000 100000\n", "sys/fs/cgroup/cpu.max"); /* less than one is one */
    assert_int_equal(quota_of("0::/job/two\n", &top), 1);
    assert_int_equal(quota_of("0::/\n", &leaf), 1);
    assert_true(top == leaf && top != above);
    assert_int_equal(quota_of("0::/of/the/host/which/is/not/here\n", &leaf), 1);
    assert_true(top == leaf);
}

static void test_version_1(void **state)
{
    static const char groups[] = "5:memory:/job\n4:cpu,cpuacct:/job\n3:cpuset:/\n0::/\n";
    uint64_t payer;
    (void)state;
    file_write("-1\n", "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us");
    file_write("100000\n", "sys/fs/cgroup/cpu/job/cpu.cfs_period_us");
    assert_int_equal(quota_of(groups, &payer), NONE);
    file_write("800000\n", "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us");
    assert_int_equal(quota_of(groups, &payer), 8);
    assert_int_equal(quota_of("5:memory:/job\n3:cpuset:/job\n", &payer), NONE); /* not the controller */
    file_write("300000 100000\n", "sys/fs/cgroup/cpu.max");                     /* both versions at once */
    assert_int_equal(quota_of(groups, &payer), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_none, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_version_2, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_version_1, tree_make, tree_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
