/* SPDX-License-Identifier: BSD-3-Clause */

/* How many processors this process may keep busy: the affinity mask, and the cgroup quotas (v2 and v1) of its group and
 * of all groups above it. Whether waiting ranks may spin depends on it, and container runtimes limit by quota, not by
 * mask. */

#include "base/base.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t affinity_cpus(void)
{
    for (size_t n = 1024; n <= (size_t)1 << 20; n *= 4) {
        cpu_set_t *set = CPU_ALLOC(n);
        if (!set) break;
        size_t bytes = CPU_ALLOC_SIZE(n);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return (uint32_t)count;
    }
    return 1;
}

/* Reads the first line of dir/path/name. */
static bool line_read(const char *dir, const char *path, const char *name, char *out, int capacity)
{
    char file[PATH_MAX];
    if (snprintf(file, sizeof file, "%s%s/%s", dir, path, name) >= (int)sizeof file) return false;
    FILE *f = fopen(file, "re");
    if (!f) return false;
    bool ok = fgets(out, capacity, f) != NULL;
    fclose(f);
    return ok;
}

/* Whole CPUs of a quota: a quota of 2.5 lets two threads spin, not three. */
static uint32_t quota_cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) return UINT32_MAX;
    long long cpus = quota / period;
    return cpus < 1 ? 1 : cpus > UINT32_MAX ? UINT32_MAX : (uint32_t)cpus;
}

static uint32_t group_quota(const char *mount, const char *path, bool v2)
{
    char line[128];
    long long quota = -1, period = -1;
    if (v2) {
        if (line_read(mount, path, "cpu.max", line, sizeof line) && strncmp(line, "max", 3) != 0)
            sscanf(line, "%lld %lld", &quota, &period);
    } else if (line_read(mount, path, "cpu.cfs_quota_us", line, sizeof line)) {
        quota = strtoll(line, NULL, 10);
        if (line_read(mount, path, "cpu.cfs_period_us", line, sizeof line)) period = strtoll(line, NULL, 10);
    }
    return quota_cpus(quota, period);
}

/* The least quota of the group and of all above it. In a container the path of the host may not exist: the walk up to
 * the mount's root finds the container's own. */
static uint32_t groups_quota(const char *mount, char *path, bool v2)
{
    uint32_t least = UINT32_MAX;
    for (;;) {
        uint32_t quota = group_quota(mount, strcmp(path, "/") == 0 ? "" : path, v2);
        if (quota < least) least = quota;
        char *slash = strrchr(path, '/');
        if (!slash || path[0] == '\0') return least;
        *slash = '\0';
    }
}

/* True if the comma-separated list names the cpu controller. */
static bool lists_cpu(const char *list)
{
    for (const char *p = list; p; p = strchr(p, ',')) {
        if (*p == ',') p++;
        if (strncmp(p, "cpu", 3) == 0 && (p[3] == ',' || p[3] == '\0')) return true;
    }
    return false;
}

static uint32_t cgroup_cpus(void)
{
    char line[PATH_MAX];
    uint32_t least = UINT32_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return least;
    while (fgets(line, sizeof line, f)) { /* hierarchy:controllers:path */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        controllers++;
        *path++ = '\0';
        uint32_t quota = UINT32_MAX;
        if (controllers[0] == '\0')
            quota = groups_quota("/sys/fs/cgroup", path, true);
        else if (lists_cpu(controllers))
            quota = groups_quota("/sys/fs/cgroup/cpu", path, false);
        if (quota < least) least = quota;
    }
    fclose(f);
    return least;
}

uint32_t tutti_cpus_allowed(void)
{
    static _Atomic uint64_t read_at_ns;
    static _Atomic uint32_t cached;
    uint32_t cpus = atomic_load(&cached);
    uint64_t now = tutti_now_ns();
    if (cpus != 0 && now - atomic_load(&read_at_ns) < TUTTI_NS_PER_S) return cpus;
    uint32_t quota = cgroup_cpus();
    cpus = affinity_cpus();
    if (quota < cpus) cpus = quota;
    atomic_store(&cached, cpus);
    atomic_store(&read_at_ns, now);
    return cpus;
}
