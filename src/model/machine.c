/* SPDX-License-Identifier: BSD-3-Clause */

/* Constants of a host: the table of them, and which file an option means. */

#include "model/machine.h"

#include "model/found.h"
#include "model/ways.h"
#include "topo/topo.h"

#include <limits.h>
#include <stdio.h>
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
    struct tutti_found_list found = {.n = 0}; /* what a search left there stays, as far as it can be read */
    if (access(path, R_OK) != 0 || tutti_found_read(path, &found) < 0) found.n = 0;
    TUTTI_TRY(tutti_constants_write(&table, path, machine, about));
    for (uint32_t i = 0; i < found.n; i++) TUTTI_TRY(tutti_found_append(path, &found.list[i]));
    return TUTTI_OK;
}

/* ---- which file ---- */

bool tutti_machine_path(char *out, size_t capacity)
{
    const struct tutti_topo *host;
    const bool named = tutti_topo_host(&host) >= 0 && host->model[0];
    return tutti_constants_path(named ? host->model : "cpu", (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), out, capacity);
}

/* Where it is in the range of the constant. */
static void kib_set(struct tutti_machine *machine, float *constant, double bytes)
{
    const size_t at = (size_t)((char *)constant - (char *)machine);
    size_t i = 0;
    while (fields[i].offset != at) i++;
    if (bytes / 1024 >= (double)fields[i].minimum && bytes / 1024 <= (double)fields[i].maximum)
        *constant = (float)(bytes / 1024);
}

/* The last cache is of the third level, or where there is none of the second. A guest that has few CPUs is told of all
 * of its host's cache, most of which others use. */
#define CACHE_MOST_A_CPU ((double)(32 << 20))
static void caches_ask(struct tutti_machine *machine)
{
    const struct tutti_topo *host;
    const bool l3 = tutti_topo_host(&host) >= 0 && host->l3_bytes > 0;
    const double l2_bytes = (double)sysconf(_SC_LEVEL2_CACHE_SIZE);
    kib_set(machine, &machine->own_kib, l2_bytes);
    double last_bytes = l3 ? (double)host->l3_bytes : l2_bytes;
    if (l3 && last_bytes > CACHE_MOST_A_CPU * host->n_cpus / host->n_l3)
        last_bytes = CACHE_MOST_A_CPU * host->n_cpus / host->n_l3;
    kib_set(machine, &machine->cache_kib, last_bytes);
}

bool tutti_machine_has_file(void)
{
    char path[PATH_MAX];
    return tutti_machine_path(path, sizeof path) && access(path, F_OK) == 0;
}

bool tutti_machine_file(const struct tutti_config *config, char *out, size_t capacity)
{
    const char *tuning = config->text[TUTTI_OPT_tuning];
    if (strcmp(tuning, "off") == 0) return false;
    if (strcmp(tuning, "auto") == 0) return tutti_machine_has_file() && tutti_machine_path(out, capacity);
    snprintf(out, capacity, "%s", tuning);
    return true;
}

enum tutti_status tutti_machine_load(const struct tutti_config *config, struct tutti_machine *machine)
{
    char path[PATH_MAX];
    *machine = tutti_machine_default;
    caches_ask(machine);
    if (!tutti_machine_file(config, path, sizeof path)) return TUTTI_OK;
    enum tutti_status status = tutti_ways_read(path, NULL, NULL); /* all of the file counts, or nothing */
    if (status >= 0) status = tutti_constants_read(&table, path, machine);
    if (strcmp(config->text[TUTTI_OPT_tuning], "auto") != 0) return status;
    if (status < 0)
        tutti_log(TUTTI_LOG_WARN, "%s; going on without: `tutti tune` writes it anew", tutti_last_error()->text);
    return TUTTI_OK;
}
