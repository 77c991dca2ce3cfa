/* SPDX-License-Identifier: BSD-3-Clause */

/* Processes and CPUs: what /proc and the cgroups say. */

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- processes ---- */

bool tutti_process_read(int32_t pid, struct tutti_process *out)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = '\0';
    /* Fields 3, 4, 20 and 22; the name before them may hold anything, ')' too. Of a process whose main thread has left
     * (pthread_exit) while others run the state is Z, too, but it has threads. */
    char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || at[2] == '\0') return false;
    at += 2;
    const char state = *at;
    long threads = 0;
    out->state = state;
    out->parent = (int32_t)strtol(at + 1, NULL, 10);
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (!at) return false;
        at++;
        if (field + 1 == 20) threads = strtol(at, NULL, 10);
    }
    out->running = state != 'X' && (state != 'Z' || threads > 1);
    out->start = strtoull(at, NULL, 10);
    return true;
}

bool tutti_process_alive(int32_t pid, uint64_t start)
{
    struct tutti_process process;
    if (pid <= 0) return false;
    if (!tutti_process_read(pid, &process)) return kill(pid, 0) == 0 || errno != ESRCH;
    return process.running && (start == 0 || process.start == start);
}

uint64_t tutti_process_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* ---- CPUs that this process may use ---- */

#define CPUS_MAX 65536

struct quota {
    uint32_t cpus;
    uint64_t payer; /* names the group that it is the quota of */
};

bool tutti_cpus_affinity(struct tutti_cpu_set *out)
{
    uint64_t all[CPUS_MAX / 64]; /* the kernel refuses less room than it has CPUs */
    *out = (struct tutti_cpu_set){.words = {0}};
    if (sched_getaffinity(0, sizeof all, (cpu_set_t *)(void *)all) != 0) return false;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(all); i++) out->words[i % TUTTI_ARRAY_LEN(out->words)] |= all[i];
    return true;
}

/* Reads the first line of a file of a group. */
static bool line_read(const char *root, const char *group, const char *name, char *out, int capacity)
{
    char file[PATH_MAX];
    if (snprintf(file, sizeof file, "%s%s/%s", root, group, name) >= (int)sizeof file) return false;
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

static uint32_t group_quota(const char *root, const char *group, bool v2)
{
    char line[128];
    long long quota = -1, period = -1;
    if (v2) {
        if (line_read(root, group, "cpu.max", line, sizeof line) && strncmp(line, "max", 3) != 0)
            sscanf(line, "%lld %lld", &quota, &period);
    } else if (line_read(root, group, "cpu.cfs_quota_us", line, sizeof line)) {
        quota = strtoll(line, NULL, 10);
        if (line_read(root, group, "cpu.cfs_period_us", line, sizeof line)) period = strtoll(line, NULL, 10);
    }
    return quota_cpus(quota, period);
}

/* The least quota of the group and of all above it, of equal ones the uppermost, for more ranks live on that. In a
 * container the path of the host may not exist: the walk up to the mount's root finds the container's own. */
static void groups_quota(const char *root, const char *mount, const char *path, bool v2, struct quota *least)
{
    char group[PATH_MAX];
    if (snprintf(group, sizeof group, "%s%s", mount, strcmp(path, "/") == 0 ? "" : path) >= (int)sizeof group) return;
    for (;;) {
        const uint32_t cpus = group_quota(root, group, v2);
        if (cpus != UINT32_MAX && cpus <= least->cpus)
            *least = (struct quota){cpus, tutti_hash64(group, strlen(group), 0)};
        if (strlen(group) <= strlen(mount)) return;
        *strrchr(group, '/') = '\0';
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

uint32_t tutti_cpus_quota_read(const char *root, uint64_t *payer)
{
    char line[PATH_MAX];
    struct quota least = {UINT32_MAX, 0};
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *f = fopen(line, "re");
    while (f && fgets(line, sizeof line, f)) { /* hierarchy:controllers:path */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        controllers++;
        *path++ = '\0';
        if (controllers[0] == '\0')
            groups_quota(root, "/sys/fs/cgroup", path, true, &least);
        else if (lists_cpu(controllers))
            groups_quota(root, "/sys/fs/cgroup/cpu", path, false, &least);
    }
    if (f) fclose(f);
    *payer = least.payer;
    return least.cpus;
}

uint32_t tutti_cpus_quota(uint64_t *payer)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct quota cached;
    static uint64_t read_at_ns;
    const uint64_t now = tutti_now_ns();
    pthread_mutex_lock(&lock);
    struct quota quota = cached;
    const bool fresh = quota.cpus != 0 && now - read_at_ns < TUTTI_NS_PER_S;
    pthread_mutex_unlock(&lock);
    if (!fresh) {
        quota.cpus = tutti_cpus_quota_read("", &quota.payer);
        pthread_mutex_lock(&lock);
        cached = quota;
        read_at_ns = now;
        pthread_mutex_unlock(&lock);
    }
    *payer = quota.payer;
    return quota.cpus;
}

uint32_t tutti_cpus_allowed(void)
{
    struct tutti_cpu_set set;
    uint64_t payer;
    const uint32_t quota = tutti_cpus_quota(&payer), cpus = tutti_cpus_affinity(&set) ? tutti_cpu_set_count(&set) : 1;
    return quota < cpus ? quota : cpus;
}
