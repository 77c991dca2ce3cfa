/* SPDX-License-Identifier: BSD-3-Clause */

/* Constants of a host: the table of them, and which file an option means. */

#include "model/machine.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_FIELDS TUTTI_ARRAY_LEN(fields)

#define LINK_DEFAULT(level, prefix, where, line, message, ring) {line, message, ring},
#define MACHINE_DEFAULT(name, fallback, minimum, maximum, help) .name = (float)(fallback),
const struct tutti_machine tutti_machine_default = {.links = {TUTTI_LINKS(LINK_DEFAULT)},
                                                    TUTTI_MACHINE(MACHINE_DEFAULT)};

#define AT(level, field) offsetof(struct tutti_machine, links[TUTTI_LINK_##level].field)
static const struct tutti_constant fields[] = {
#define LINK_INFO(level, prefix, where, ...)                                                                           \
    {prefix "line_ns", "a cache line " where " from its writer to a reader that spins, one way", 1, 1e5f,              \
     AT(level, line_ns)},                                                                                              \
        {prefix "message_ns", "a message through the engine " where ", at both ends", 1, 1e7f, AT(level, message_ns)}, \
        {prefix "ring_gbs", "messages " where ", sent and received at once: bytes of one direction", 0.01f, 1e4f,      \
         AT(level, ring_gbs)},
    TUTTI_LINKS(LINK_INFO)
#undef LINK_INFO
#define MACHINE_INFO(name, fallback, minimum, maximum, help)                                                           \
    {#name, help, (float)(minimum), (float)(maximum), offsetof(struct tutti_machine, name)},
        TUTTI_MACHINE(MACHINE_INFO)
#undef MACHINE_INFO
};
static const struct tutti_constants table = {fields, N_FIELDS, sizeof(struct tutti_machine), "a machine"};
_Static_assert(N_FIELDS <= 32 && sizeof(struct tutti_machine) <= TUTTI_CONSTANTS_MOST_BYTES, "they fit in a table");

size_t tutti_machine_n(void)
{
    return N_FIELDS;
}

const struct tutti_constant *tutti_machine_info(size_t i)
{
    return i < N_FIELDS ? &fields[i] : NULL;
}

float *tutti_machine_at(struct tutti_machine *machine, size_t i)
{
    return tutti_constant_at(&table, machine, i);
}

enum tutti_status tutti_machine_write(const char *path, const struct tutti_machine *machine, const char *about)
{
    return tutti_constants_write(&table, path, machine, about);
}

/* ---- which file ---- */

/* The first bytes of a file of the kernel, "" when there is none. */
static const char *kernel_text(const char *path, char *out, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, capacity - 1);
    if (fd >= 0) close(fd);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

/* "AMD EPYC 9B45". */
static void model_name(char *out, size_t capacity)
{
    char text[2048];
    const char *line = strstr(kernel_text("/proc/cpuinfo", text, sizeof text), "model name");
    const char *from = line ? strchr(line, ':') : NULL;
    if (!from) from = ": cpu";
    from += 1 + strspn(from + 1, " \t");
    snprintf(out, capacity, "%.*s", (int)strcspn(from, "\n"), from);
}

bool tutti_machine_path(char *out, size_t capacity)
{
    char model[100];
    model_name(model, sizeof model);
    return tutti_constants_path(model, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), out, capacity);
}

static void cache_ask(struct tutti_machine *machine)
{
    char text[64];
    static const char *const paths[] = {"/sys/devices/system/cpu/cpu0/cache/index3/size",
                                        "/sys/devices/system/cpu/cpu0/cache/index2/size"};
    size_t i = 0;
    while (strcmp(fields[i].name, "cache_kib") != 0) i++;
    for (size_t p = 0; p < TUTTI_ARRAY_LEN(paths); p++) {
        double kib = (double)strtoul(kernel_text(paths[p], text, sizeof text), NULL, 10); /* "32768K" */
        if (kib < (double)fields[i].minimum || kib > (double)fields[i].maximum) continue;
        machine->cache_kib = (float)kib;
        return;
    }
}

enum tutti_status tutti_machine_load(const struct tutti_config *config, struct tutti_machine *machine)
{
    const char *tuning = config->text[TUTTI_OPT_tuning];
    char path[PATH_MAX];
    *machine = tutti_machine_default;
    cache_ask(machine);
    if (strcmp(tuning, "off") == 0) return TUTTI_OK;
    if (strcmp(tuning, "auto") != 0) return tutti_constants_read(&table, tuning, machine);
    if (!tutti_machine_path(path, sizeof path) || access(path, F_OK) != 0) return TUTTI_OK;
    if (tutti_constants_read(&table, path, machine) < 0)
        tutti_log(TUTTI_LOG_WARN, "%s; going on without: `tutti tune` writes it anew", tutti_last_error()->text);
    return TUTTI_OK;
}
