/* SPDX-License-Identifier: BSD-3-Clause */

/* What the kernel tells of CPUs: lists of them in its notation ("0-3,8"), what they share, and what this process may
 * use. */

#include "topo/topo.h"

#include "topo/source.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- lists of CPUs ---- */

/* CPU ids beyond this are nonsense; it also keeps the loops below short. */
#define MAX_ID 65535

static bool id_parse(const char **text, uint32_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**text)) return false;
    const unsigned long value = strtoul(*text, &end, 10);
    if (value > MAX_ID) return false;
    *text = end;
    *out = (uint32_t)value;
    return true;
}

size_t tutti_topo_list_parse(const char *text, uint32_t *ids, size_t capacity)
{
    size_t n = 0;
    while (isspace((unsigned char)*text)) text++;
    if (*text == '\0') return 0;
    for (;;) {
        uint32_t first, last;
        if (!id_parse(&text, &first)) return SIZE_MAX;
        last = first;
        if (*text == '-') {
            text++;
            if (!id_parse(&text, &last) || last < first) return SIZE_MAX;
        }
        if (last - first >= capacity - n) return SIZE_MAX;
        for (uint32_t id = first; id <= last; id++) ids[n++] = id;
        while (isspace((unsigned char)*text)) text++;
        if (*text == '\0') return n;
        if (*text++ != ',') return SIZE_MAX;
        while (isspace((unsigned char)*text)) text++;
    }
}

char *tutti_topo_list_format(const uint32_t *ids, size_t n, char *out, size_t capacity)
{
    if (capacity > 0) out[0] = '\0';
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && ids[next] == ids[next - 1] + 1;) next++;
        tutti_append(out, capacity, "%s%u", i ? "," : "", ids[i]);
        if (next - i > 1) tutti_append(out, capacity, "-%u", ids[next - 1]);
    }
    return out;
}

/* ---- CPUs of a topology, before a source has told what they share ---- */

enum tutti_status tutti_topo_cpus_make(struct tutti_topo *topo, uint32_t n)
{
    topo->cpus = tutti_alloc_array(n, sizeof *topo->cpus);
    if (!topo->cpus) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory while reading the topology of %u CPUs", n);
    topo->n_cpus = n;
    return TUTTI_OK;
}

struct tutti_topo_cpu *tutti_topo_cpu(const struct tutti_topo *topo, uint32_t id)
{
    for (uint32_t i = 0; i < topo->n_cpus; i++)
        if (topo->cpus[i].id == id) return &topo->cpus[i];
    return NULL;
}

/* ---- the kernel ---- */

#define MAX_CPUS 8192
#define TEXT_MAX 65536

/* The first bytes of a file as text, without the last newline. */
static bool text_read(const char *root, const char *path, char *out, size_t capacity)
{
    char file[PATH_MAX];
    if (snprintf(file, sizeof file, "%s%s", root, path) >= (int)sizeof file) return false;
    const int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t used = 0;
    ssize_t n;
    while (used < capacity - 1 && (n = read(fd, out + used, capacity - 1 - used)) > 0) used += (size_t)n;
    close(fd);
    out[used] = '\0';
    if (used && out[used - 1] == '\n') out[used - 1] = '\0';
    return used > 0;
}

static size_t list_read(const char *root, const char *path, char *text, uint32_t *ids)
{
    if (!text_read(root, path, text, TEXT_MAX)) return SIZE_MAX;
    return tutti_topo_list_parse(text, ids, MAX_CPUS);
}

static bool number_read(const char *root, const char *path, int64_t *out)
{
    char text[64], *end;
    if (!text_read(root, path, text, sizeof text)) return false;
    *out = strtoll(text, &end, 10);
    return end != text;
}

/* Cores and L3s go by their least CPU. */
static void cpu_read(const char *root, struct tutti_topo *topo, struct tutti_topo_cpu *cpu, char *text, uint32_t *ids)
{
    char path[128];
    int64_t number;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu->id);
    size_t n = list_read(root, path, text, ids);
    cpu->core = n != SIZE_MAX && n > 0 ? ids[0] : cpu->id;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/physical_package_id", cpu->id);
    cpu->package = number_read(root, path, &number) && number >= 0 ? (uint32_t)number : 0;
    cpu->l3 = TUTTI_TOPO_UNKNOWN;
    for (unsigned index = 0; index < 16; index++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cache/index%u/level", cpu->id, index);
        if (!number_read(root, path, &number)) break;
        if (number != 3) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cache/index%u/shared_cpu_list", cpu->id, index);
        n = list_read(root, path, text, ids);
        if (n != SIZE_MAX && n > 0) cpu->l3 = ids[0];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cache/index%u/size", cpu->id, index);
        if (topo->l3_bytes == 0 && number_read(root, path, &number) && number > 0) {
            topo->l3_bytes = (uint64_t)number * 1024; /* "32768K" */
        }
        break;
    }
}

static void nodes_read(const char *root, struct tutti_topo *topo, char *text, uint32_t *ids)
{
    static const char nodes[] = "/sys/devices/system/node/online";
    const size_t n_nodes = list_read(root, nodes, text, ids);
    if (n_nodes == SIZE_MAX) return;
    for (uint32_t node = 0, last = n_nodes ? ids[n_nodes - 1] : 0; node <= last; node++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
        const size_t n = list_read(root, path, text, ids);
        for (size_t i = 0; n != SIZE_MAX && i < n; i++) {
            struct tutti_topo_cpu *cpu = tutti_topo_cpu(topo, ids[i]);
            if (cpu) cpu->node = node;
        }
    }
}

/* Which CPUs this process may use. */
static void allowed_read(const char *root, struct tutti_topo *topo, char *text, uint32_t *ids)
{
    static const char key[] = "Cpus_allowed_list:";
    size_t n = SIZE_MAX;
    if (text_read(root, "/proc/self/status", text, TEXT_MAX)) {
        char *line = strstr(text, key);
        if (line) {
            line += sizeof key - 1;
            line[strcspn(line, "\n")] = '\0';
            n = tutti_topo_list_parse(line, ids, MAX_CPUS);
        }
    }
    for (uint32_t i = 0; i < topo->n_cpus; i++) topo->cpus[i].allowed = n == SIZE_MAX;
    for (size_t i = 0; n != SIZE_MAX && i < n; i++) {
        struct tutti_topo_cpu *cpu = tutti_topo_cpu(topo, ids[i]);
        if (cpu) cpu->allowed = true;
    }
    topo->n_allowed = 0;
    for (uint32_t i = 0; i < topo->n_cpus; i++) topo->n_allowed += topo->cpus[i].allowed;
}

static void identity_read(const char *root, struct tutti_topo *topo, char *text)
{
    static const char *const keys[] = {"model name", "Hardware", "cpu model"};
    text_read(root, "/proc/sys/kernel/hostname", topo->host, sizeof topo->host);
    text_read(root, "/proc/sys/kernel/random/boot_id", topo->boot_id, sizeof topo->boot_id);
    if (!text_read(root, "/proc/cpuinfo", text, TEXT_MAX)) return;
    for (size_t k = 0; k < TUTTI_ARRAY_LEN(keys) && !topo->model[0]; k++) {
        const char *line = strstr(text, keys[k]), *value = line ? strchr(line, ':') : NULL;
        if (!value) continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(topo->model, sizeof topo->model, "%.*s", (int)strcspn(value, "\n"), value);
    }
}

/* Text of a file and ids of a list, for all that is read here. */
static enum tutti_status room_make(char **text, uint32_t **ids)
{
    *text = tutti_alloc(TEXT_MAX);
    *ids = *text ? tutti_alloc_array(MAX_CPUS, sizeof **ids) : NULL;
    if (*ids) return TUTTI_OK;
    tutti_free(*text);
    return tutti_fail(TUTTI_ERR_MEMORY, "out of memory while reading the topology of this host");
}

enum tutti_status tutti_topo_read_sys(struct tutti_topo *topo, const char *root)
{
    char *text;
    uint32_t *ids;
    TUTTI_TRY(room_make(&text, &ids));
    enum tutti_status status = TUTTI_OK;
    const size_t n = list_read(root, "/sys/devices/system/cpu/online", text, ids);
    if (n == SIZE_MAX || n == 0)
        status =
            tutti_fail(TUTTI_ERR_SYSTEM, "%s/sys/devices/system/cpu/online does not list the CPUs of this host", root);
    else
        status = tutti_topo_cpus_make(topo, (uint32_t)n);
    if (status >= 0) {
        for (size_t i = 0; i < n; i++) topo->cpus[i].id = ids[i];
        for (size_t i = 0; i < n; i++) cpu_read(root, topo, &topo->cpus[i], text, ids);
        nodes_read(root, topo, text, ids);
    }
    tutti_free(ids);
    tutti_free(text);
    return status;
}

enum tutti_status tutti_topo_read_proc(struct tutti_topo *topo, const char *root)
{
    char *text;
    uint32_t *ids;
    TUTTI_TRY(room_make(&text, &ids));
    allowed_read(root, topo, text, ids);
    identity_read(root, topo, text);
    tutti_free(ids);
    tutti_free(text);
    return TUTTI_OK;
}
