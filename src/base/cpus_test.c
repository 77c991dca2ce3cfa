/* SPDX-License-Identifier: BSD-3-Clause */

/* Quotas of cgroups, both versions, on trees that are made here. */

#include "base/base.h"
#include "test.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NONE UINT32_MAX

static char root[64];

static int tree_make(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/tutti-cpus-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int entry_remove(const char *path, const struct stat *s, int type, struct FTW *walk)
{
    (void)s, (void)type, (void)walk;
    return remove(path);
}

static int tree_remove(void **state)
{
    (void)state;
    return nftw(root, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static void file_write(const char *relative, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, relative);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST) fail_msg("cannot make %s", path);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    if (!f) fail_msg("cannot write %s", path);
    fputs(text, f);
    fclose(f);
}

/* The quota of a process in this group, and whose it is. */
static uint32_t quota_of(const char *cgroup, uint64_t *payer)
{
    file_write("proc/self/cgroup", cgroup);
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
    file_write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
    assert_int_equal(quota_of("0::/a\n", &payer), NONE);
    file_write("sys/fs/cgroup/a/cpu.max", "nonsense\n");
    assert_int_equal(quota_of("0::/a\n", &payer), NONE);
    assert_int_equal(quota_of("no colons here\n0:\n", &payer), NONE);
}

static void test_version_2(void **state)
{
    uint64_t leaf, sibling, above, top;
    (void)state;
    file_write("sys/fs/cgroup/job/one/cpu.max", "250000 100000\n");
    file_write("sys/fs/cgroup/job/two/cpu.max", "200000 100000\n");
    assert_int_equal(quota_of("0::/job/one\n", &leaf), 2); /* two threads may spin, not three */
    assert_int_equal(quota_of("0::/job/two\n", &sibling), 2);
    assert_true(leaf != sibling);
    file_write("sys/fs/cgroup/job/cpu.max", "200000 100000\n"); /* as little, and all live on it */
    assert_int_equal(quota_of("0::/job/one\n", &above), 2);
    assert_int_equal(quota_of("0::/job/two\n", &sibling), 2);
    assert_true(above == sibling && above != leaf);
    file_write("sys/fs/cgroup/cpu.max", "50000 100000\n"); /* less than one is one */
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
    file_write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    file_write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota_of(groups, &payer), NONE);
    file_write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "800000\n");
    assert_int_equal(quota_of(groups, &payer), 8);
    assert_int_equal(quota_of("5:memory:/job\n3:cpuset:/job\n", &payer), NONE); /* not the controller */
    file_write("sys/fs/cgroup/cpu.max", "300000 100000\n");                     /* both versions at once */
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
