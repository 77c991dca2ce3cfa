/* SPDX-License-Identifier: BSD-3-Clause */

/* The sources of topologies agree: /sys and hwloc, on this host and on hosts that are made up here as trees of files,
 * which both can read, and for hwloc in its own notation. What they must say follows from the description. */

#include "topo/topo.h"
#include "tree.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CPUS 128

/* A host: what each CPU belongs to, in whatever numbers. */
struct spec {
    uint32_t n_cpus;
    struct {
        uint32_t package, node, l3, core;
        bool offline;
    } cpus[MAX_CPUS];
};
static struct spec spec;

/* ---- descriptions ---- */

/* With adjacent threads CPU 0 and 1 are a core; else the second threads follow all the first ones. */
static void host_describe(uint32_t n_packages, uint32_t n_l3, uint32_t n_cores, uint32_t n_threads, bool adjacent)
{
    const uint32_t all_cores = n_packages * n_l3 * n_cores;
    memset(&spec, 0, sizeof spec);
    spec.n_cpus = all_cores * n_threads;
    for (uint32_t cpu = 0; cpu < spec.n_cpus; cpu++) {
        const uint32_t core = adjacent ? cpu / n_threads : cpu % all_cores;
        spec.cpus[cpu].core = core;
        spec.cpus[cpu].l3 = core / n_cores;
        spec.cpus[cpu].node = spec.cpus[cpu].package = core / n_cores / n_l3;
    }
}

/* ---- the same as a tree ---- */

/* The CPUs that are online and belong to the same group as `cpu` by `same`, as a list and as a mask. */
static void set_write(const char *folder, const char *list_name, const char *mask_name,
                      bool (*same)(uint32_t, uint32_t), uint32_t cpu)
{
    uint32_t ids[MAX_CPUS], words[MAX_CPUS / 32] = {0};
    size_t n = 0, used = 0;
    char text[1024];
    for (uint32_t other = 0; other < spec.n_cpus; other++)
        if (!spec.cpus[other].offline && same(cpu, other)) ids[n++] = other, words[other / 32] |= 1u << other % 32;
    file_write(tutti_topo_list_format(ids, n, text, sizeof text), "%s/%s", folder, list_name);
    for (size_t i = MAX_CPUS / 32; i-- > 0;)
        used += (size_t)snprintf(text + used, sizeof text - used, "%08x%s", words[i], i ? "," : "");
    if (mask_name) file_write(text, "%s/%s", folder, mask_name);
}

static bool same_core(uint32_t a, uint32_t b)
{
    return spec.cpus[a].core == spec.cpus[b].core;
}
static bool same_l3(uint32_t a, uint32_t b)
{
    return spec.cpus[a].l3 == spec.cpus[b].l3;
}
static bool same_node(uint32_t a, uint32_t b)
{
    return spec.cpus[a].node == spec.cpus[b].node;
}
static bool same_package(uint32_t a, uint32_t b)
{
    return spec.cpus[a].package == spec.cpus[b].package;
}
static bool same_host(uint32_t a, uint32_t b)
{
    return a < MAX_CPUS && b < MAX_CPUS;
}

static void cache_write(uint32_t cpu, uint32_t index, const char *level, const char *type, const char *size,
                        bool (*same)(uint32_t, uint32_t))
{
    char folder[128];
    snprintf(folder, sizeof folder, "sys/devices/system/cpu/cpu%u/cache/index%u", cpu, index);
    file_write(level, "%s/level", folder);
    file_write(type, "%s/type", folder);
    file_write(size, "%s/size", folder);
    set_write(folder, "shared_cpu_list", "shared_cpu_map", same, cpu);
}

static void cpu_write(uint32_t cpu)
{
    char folder[128], number[16];
    snprintf(folder, sizeof folder, "sys/devices/system/cpu/cpu%u", cpu);
    file_write(spec.cpus[cpu].offline ? "0" : "1", "%s/online", folder);
    if (spec.cpus[cpu].offline) return;
    snprintf(folder, sizeof folder, "sys/devices/system/cpu/cpu%u/topology", cpu);
    snprintf(number, sizeof number, "%u", spec.cpus[cpu].package);
    file_write(number, "%s/physical_package_id", folder);
    snprintf(number, sizeof number, "%u", spec.cpus[cpu].core);
    file_write(number, "%s/core_id", folder);
    set_write(folder, "thread_siblings_list", "thread_siblings", same_core, cpu);
    set_write(folder, "core_siblings_list", "core_siblings", same_package, cpu);
    cache_write(cpu, 0, "1", "Data", "32K", same_core);
    cache_write(cpu, 1, "3", "Unified", "16384K", same_l3);
}

static void host_write(void)
{
    char nodes[256] = "", folder[64];
    uint32_t ids[MAX_CPUS], n_nodes = 0;
    for (uint32_t cpu = 0; cpu < spec.n_cpus; cpu++) cpu_write(cpu);
    set_write("sys/devices/system/cpu", "online", NULL, same_host, 0);
    for (uint32_t node = 0; node < MAX_CPUS; node++)
        for (uint32_t cpu = 0; cpu < spec.n_cpus; cpu++) {
            if (spec.cpus[cpu].node != node) continue;
            snprintf(folder, sizeof folder, "sys/devices/system/node/node%u", node);
            set_write(folder, "cpulist", "cpumap", same_node, cpu);
            file_write("Node 0 MemTotal: 1024 kB", "%s/meminfo", folder);
            ids[n_nodes++] = node;
            break;
        }
    tutti_topo_list_format(ids, n_nodes, nodes, sizeof nodes);
    file_write(nodes, "sys/devices/system/node/online");
    file_write("processor : 0", "proc/cpuinfo");
}

/* ---- what must come out ---- */

static uint32_t field_of(uint32_t cpu, int level)
{
    const uint32_t fields[] = {spec.cpus[cpu].package, spec.cpus[cpu].node, spec.cpus[cpu].l3, spec.cpus[cpu].core};
    return fields[level];
}

static uint32_t group_of(const struct tutti_topo_cpu *cpu, int level)
{
    const uint32_t fields[] = {cpu->package, cpu->node, cpu->l3, cpu->core};
    return fields[level];
}

/* Groups are numbered by their least CPU: a group that was not there before gets the next number. */
static void expect_host(const struct tutti_topo *topo)
{
    uint32_t place = 0;
    for (uint32_t cpu = 0; cpu < spec.n_cpus; cpu++) {
        if (spec.cpus[cpu].offline) continue;
        assert_in_range(place, 0, topo->n_cpus - 1);
        assert_int_equal(topo->cpus[place++].id, cpu);
    }
    assert_int_equal(place, topo->n_cpus);
    const uint32_t numbers[] = {topo->n_packages, topo->n_nodes, topo->n_l3, topo->n_cores};
    for (int level = 0; level < 4; level++) {
        uint32_t n = 0, number_of[MAX_CPUS];
        memset(number_of, 0xff, sizeof number_of);
        for (place = 0; place < topo->n_cpus; place++) {
            uint32_t *const number = &number_of[field_of(topo->cpus[place].id, level)];
            if (*number == UINT32_MAX) *number = n++;
            if (group_of(&topo->cpus[place], level) != *number)
                fail_msg("%s: CPU %u is in group %u of level %d, not %u", topo->source, topo->cpus[place].id,
                         group_of(&topo->cpus[place], level), level, *number);
        }
        assert_int_equal(numbers[level], n);
    }
}

static void expect_tree(void)
{
    struct tutti_topo topo;
    host_write();
    assert_int_equal(tutti_topo_init_sys(&topo, root), TUTTI_OK);
    expect_host(&topo);
    assert_true(topo.l3_bytes == 16384 << 10);
    tutti_topo_fini(&topo);
    if (!tutti_topo_hwloc()) return;
    setenv("HWLOC_FSROOT", root, 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    const enum tutti_status status = tutti_topo_init_hwloc(&topo, NULL);
    unsetenv("HWLOC_FSROOT");
    unsetenv("HWLOC_THISSYSTEM");
    assert_int_equal(status, TUTTI_OK);
    expect_host(&topo);
    assert_true(topo.l3_bytes == 16384 << 10);
    tutti_topo_fini(&topo);
}

static void expect_synthetic(const char *text)
{
    struct tutti_topo topo;
    if (!tutti_topo_hwloc()) return;
    assert_int_equal(tutti_topo_init_hwloc(&topo, text), TUTTI_OK);
    expect_host(&topo);
    assert_int_equal(topo.n_allowed, topo.n_cpus);
    tutti_topo_fini(&topo);
}

/* ---- hosts ---- */

static void test_two_packages(void **state)
{
    (void)state;
    host_describe(2, 2, 4, 2, true);
    expect_tree();
    expect_synthetic("package:2 [numanode] l3cache:2 core:4 pu:2");
    host_describe(2, 2, 4, 2, false);
    expect_tree();
    expect_synthetic("package:2 [numanode] l3cache:2 core:4 pu:2(indexes=0,16,1,17,2,18,3,19,4,20,5,21,6,22,7,23,"
                     "8,24,9,25,10,26,11,27,12,28,13,29,14,30,15,31)");
}

static void test_eight_caches(void **state)
{
    (void)state;
    host_describe(1, 8, 8, 1, true);
    expect_tree();
    expect_synthetic("package:1 [numanode] l3cache:8 core:8 pu:1");
}

/* A node for each cache, four sockets, numbers with gaps. */
static void test_nodes_of_caches(void **state)
{
    (void)state;
    host_describe(4, 2, 3, 2, false);
    for (uint32_t cpu = 0; cpu < spec.n_cpus; cpu++) {
        spec.cpus[cpu].node = spec.cpus[cpu].l3 * 2 + 1;
        spec.cpus[cpu].package = 60 - 7 * spec.cpus[cpu].package;
    }
    expect_tree();
}

/* Caches of one, five and two cores; three CPUs are offline, among them the first of its cache and a whole core. */
static void test_uneven(void **state)
{
    (void)state;
    host_describe(2, 1, 8, 2, false);
    for (uint32_t cpu = 0; cpu < spec.n_cpus; cpu++) {
        const uint32_t core = spec.cpus[cpu].core;
        spec.cpus[cpu].l3 = core < 1 ? 0 : core < 6 ? 1 : core < 8 ? 2 : core < 9 ? 3 : 4;
    }
    expect_tree();
    spec.cpus[1].offline = spec.cpus[3].offline = spec.cpus[19].offline = true;
    expect_tree();
}

/* ---- this host ---- */

static void expect_equal(const struct tutti_topo *a, const struct tutti_topo *b)
{
    assert_int_equal(a->n_cpus, b->n_cpus);
    assert_memory_equal(a->cpus, b->cpus, a->n_cpus * sizeof *a->cpus);
    assert_int_equal(a->n_allowed, b->n_allowed);
    assert_int_equal(a->n_cores, b->n_cores);
    assert_int_equal(a->n_l3, b->n_l3);
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_packages, b->n_packages);
    assert_true(a->l3_bytes == b->l3_bytes);
    assert_string_equal(a->model, b->model);
    assert_string_equal(a->boot_id, b->boot_id);
}

static void both_compare(uint32_t n_allowed)
{
    struct tutti_topo sys, hwloc;
    assert_int_equal(tutti_topo_init_sys(&sys, ""), TUTTI_OK);
    assert_int_equal(sys.n_allowed, n_allowed);
    assert_int_equal(tutti_topo_init_hwloc(&hwloc, NULL), TUTTI_OK);
    expect_equal(&sys, &hwloc);
    tutti_topo_fini(&sys);
    tutti_topo_fini(&hwloc);
}

static void test_this_host(void **state)
{
    (void)state;
    struct tutti_topo topo;
    cpu_set_t all, one, after;
    if (!tutti_topo_hwloc()) {
        assert_int_equal(tutti_topo_init_hwloc(&topo, NULL), TUTTI_ERR_UNSUPPORTED);
        skip();
    }
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    both_compare((uint32_t)CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    both_compare(1);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0); /* nobody was moved */
    assert_true(CPU_EQUAL(&one, &after));
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* hwloc can be told by its variables to describe another host; /sys is believed then. */
static void test_another_host(void **state)
{
    (void)state;
    struct tutti_topo topo, sys;
    if (!tutti_topo_hwloc()) skip();
    setenv("HWLOC_SYNTHETIC", "package:3 core:5 pu:1", 1);
    assert_int_equal(tutti_topo_init_hwloc(&topo, NULL), TUTTI_ERR_SYSTEM);
    assert_int_equal(tutti_topo_init(&topo), TUTTI_OK);
    unsetenv("HWLOC_SYNTHETIC");
    assert_string_equal(topo.source, "/sys");
    assert_int_equal(tutti_topo_init_sys(&sys, ""), TUTTI_OK);
    expect_equal(&topo, &sys);
    tutti_topo_fini(&topo);
    tutti_topo_fini(&sys);
    assert_int_equal(tutti_topo_init_hwloc(&topo, "nonsense"), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error()->text, "nonsense"));
    assert_null(topo.cpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_packages, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_eight_caches, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_nodes_of_caches, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_uneven, tree_make, tree_remove),
        cmocka_unit_test(test_this_host),
        cmocka_unit_test(test_another_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
