/* SPDX-License-Identifier: BSD-3-Clause */

/* The reader of topologies on trees that are made here, and on this host. */

#include "topo/topo.h"
#include "tree.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Two packages of 4 cores with 2 threads: CPU c and c + 8 are one core. Each package is a node with two L3s. */
static void two_packages_write(void)
{
    file_write("0-15\n", "sys/devices/system/cpu/online");
    file_write("0-1\n", "sys/devices/system/node/online");
    file_write("0-3,8-11\n", "sys/devices/system/node/node0/cpulist");
    file_write("4-7,12-15\n", "sys/devices/system/node/node1/cpulist");
    for (int cpu = 0; cpu < 16; cpu++) {
        const int core = cpu % 8, l3 = core / 2 * 2;
        char text[64];
        snprintf(text, sizeof text, "%d,%d\n", core, core + 8);
        file_write(text, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        file_write(core < 4 ? "0\n" : "1\n", "sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
        file_write("1\n", "sys/devices/system/cpu/cpu%d/cache/index0/level", cpu);
        file_write("3\n", "sys/devices/system/cpu/cpu%d/cache/index1/level", cpu);
        snprintf(text, sizeof text, "%d-%d,%d-%d\n", l3, l3 + 1, l3 + 8, l3 + 9);
        file_write(text, "sys/devices/system/cpu/cpu%d/cache/index1/shared_cpu_list", cpu);
        file_write("32768K\n", "sys/devices/system/cpu/cpu%d/cache/index1/size", cpu);
    }
}

static void test_two_packages(void **state)
{
    (void)state;
    struct tutti_topo topo;
    uint32_t order[16];
    two_packages_write();
    file_write("Name:\tx\nCpus_allowed_list:\t1-9,15\nMems_allowed:\t1\n", "proc/self/status");
    file_write("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nprocessor\t: 1\n", "proc/cpuinfo");
    file_write("node7\n", "proc/sys/kernel/hostname");
    file_write("0c6d1f9e-0000-4000-8000-000000000001\n", "proc/sys/kernel/random/boot_id");
    assert_int_equal(tutti_topo_init_sys(&topo, root), TUTTI_OK);
    assert_int_equal(topo.n_cpus, 16);
    assert_int_equal(topo.n_allowed, 10);
    assert_int_equal(topo.n_cores, 8);
    assert_int_equal(topo.n_l3, 4);
    assert_int_equal(topo.n_nodes, 2);
    assert_int_equal(topo.n_packages, 2);
    assert_true(topo.l3_bytes == 32768 * 1024);
    assert_string_equal(topo.model, "Some CPU @ 2 GHz");
    assert_string_equal(topo.host, "node7");
    assert_string_equal(topo.boot_id, "0c6d1f9e-0000-4000-8000-000000000001");
    assert_int_equal(topo.cpus[13].core, 5);
    assert_int_equal(topo.cpus[13].l3, 2);
    assert_int_equal(topo.cpus[13].node, 1);
    assert_int_equal(topo.cpus[13].package, 1);
    /* allowed: 1-9, 15. Cores in order, each with its threads. */
    static const uint32_t want[] = {8, 1, 9, 2, 3, 4, 5, 6, 7, 15};
    assert_int_equal(tutti_topo_order(&topo, order), 10);
    assert_memory_equal(order, want, sizeof want);
    tutti_topo_fini(&topo);
}

/* CPU 1 is offline and package numbers have gaps: places and ids differ, groups are dense. */
static void test_gaps(void **state)
{
    (void)state;
    struct tutti_topo topo;
    file_write("0,2,5\n", "sys/devices/system/cpu/online");
    file_write("7\n", "sys/devices/system/cpu/cpu0/topology/physical_package_id");
    file_write("7\n", "sys/devices/system/cpu/cpu2/topology/physical_package_id");
    file_write("36\n", "sys/devices/system/cpu/cpu5/topology/physical_package_id");
    assert_int_equal(tutti_topo_init_sys(&topo, root), TUTTI_OK);
    assert_int_equal(topo.n_cpus, 3);
    assert_int_equal(topo.cpus[2].id, 5);
    assert_int_equal(topo.n_packages, 2);
    assert_int_equal(topo.cpus[2].package, 1);
    assert_int_equal(topo.n_cores, 3);
    assert_int_equal(topo.n_l3, 1);
    assert_int_equal(topo.n_nodes, 1);
    assert_int_equal(topo.n_allowed, 3);
    assert_true(topo.l3_bytes == 0);
    assert_string_equal(topo.model, "");
    tutti_topo_fini(&topo);
}

static void test_nonsense(void **state)
{
    (void)state;
    struct tutti_topo topo;
    assert_int_equal(tutti_topo_init_sys(&topo, root), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error()->text, root));
    file_write("0-99999999\n", "sys/devices/system/cpu/online");
    assert_int_equal(tutti_topo_init_sys(&topo, root), TUTTI_ERR_SYSTEM);
    file_write("0-1\n", "sys/devices/system/cpu/online");
    file_write("rubbish\n", "sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    file_write("\n", "sys/devices/system/cpu/cpu1/topology/thread_siblings_list");
    file_write("0-3\n", "sys/devices/system/node/online");
    assert_int_equal(tutti_topo_init_sys(&topo, root), TUTTI_OK);
    assert_int_equal(topo.n_cores, 2);
    tutti_topo_fini(&topo);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct tutti_topo topo;
    two_packages_write();
    enum tutti_status status = TUTTI_ERR_MEMORY;
    for (uint64_t nth = 1; status == TUTTI_ERR_MEMORY; nth++) {
        assert_in_range(nth, 1, 20);
        tutti_alloc_fail_at(nth);
        status = tutti_topo_init_sys(&topo, root);
        const uint64_t n_allocations = tutti_alloc_fail_at(0);
        assert_int_equal(status, n_allocations < nth ? TUTTI_OK : TUTTI_ERR_MEMORY);
        if (status < 0) assert_null(topo.cpus);
    }
    tutti_topo_fini(&topo);
}

static void test_this_host(void **state)
{
    (void)state;
    struct tutti_topo topo;
    assert_int_equal(tutti_topo_init(&topo), TUTTI_OK);
    assert_int_equal(topo.n_cpus, sysconf(_SC_NPROCESSORS_ONLN));
    assert_true(topo.n_allowed >= tutti_cpus_allowed());
    assert_true(topo.n_cores <= topo.n_cpus && topo.n_cores >= topo.n_packages);
    char host[65];
    gethostname(host, sizeof host);
    assert_string_equal(topo.host, host);
    assert_int_equal(strlen(topo.boot_id), 36);
    assert_string_equal(topo.source, tutti_topo_hwloc() ? tutti_topo_hwloc() : "/sys");
    tutti_topo_fini(&topo);
}

static void test_lists(void **state)
{
    (void)state;
    static const char *const bad[] = {"a", "1-", "3-1", "1,,2", ",", "-1", "1 2", "1;2", "70000", "0-9", "4294967297"};
    uint32_t ids[8];
    char text[64];
    assert_int_equal(tutti_topo_list_parse("0-3,7", ids, 8), 5);
    assert_int_equal(ids[3], 3);
    assert_int_equal(ids[4], 7);
    assert_string_equal(tutti_topo_list_format(ids, 5, text, sizeof text), "0-3,7");
    assert_int_equal(tutti_topo_list_parse(" 5 , 6\n", ids, 8), 2);
    assert_string_equal(tutti_topo_list_format(ids, 2, text, sizeof text), "5-6");
    assert_int_equal(tutti_topo_list_parse("", ids, 8), 0);
    assert_string_equal(tutti_topo_list_format(ids, 0, text, sizeof text), "");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bad); i++)
        if (tutti_topo_list_parse(bad[i], ids, 8) != SIZE_MAX) fail_msg("\"%s\" was taken for a list", bad[i]);
    const uint32_t many[] = {1, 3, 5, 7, 9, 11};
    assert_string_equal(tutti_topo_list_format(many, 6, text, 6), "1,3,5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_packages, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_gaps, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_nonsense, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_out_of_memory, tree_make, tree_remove),
        cmocka_unit_test(test_this_host),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
