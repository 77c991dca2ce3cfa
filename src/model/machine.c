/* SPDX-License-Identifier: BSD-3-Clause */

/* Constants of a host: the table of them, their file, and which file an option means. Numbers are read and written by
 * hand, since those of the C library follow the locale of the program that loads the library. */

#include "model/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 256
#define N_FIELDS TUTTI_ARRAY_LEN(fields)
#define FRACTION 1000 /* values are written in thousandths */

const struct tutti_machine tutti_machine_default = {
#define MACHINE_DEFAULT(name, fallback, minimum, maximum, help) .name = (float)(fallback),
    TUTTI_MACHINE(MACHINE_DEFAULT)
#undef MACHINE_DEFAULT
};

static const struct tutti_machine_info fields[] = {
#define MACHINE_INFO(name, fallback, minimum, maximum, help) {#name, help, (float)(minimum), (float)(maximum)},
    TUTTI_MACHINE(MACHINE_INFO)
#undef MACHINE_INFO
};
static const size_t offsets[] = {
#define MACHINE_OFFSET(name, fallback, minimum, maximum, help) offsetof(struct tutti_machine, name),
    TUTTI_MACHINE(MACHINE_OFFSET)
#undef MACHINE_OFFSET
};

size_t tutti_machine_n(void)
{
    return N_FIELDS;
}

const struct tutti_machine_info *tutti_machine_info(size_t i)
{
    return i < N_FIELDS ? &fields[i] : NULL;
}

float *tutti_machine_at(struct tutti_machine *machine, size_t i)
{
    return (float *)(void *)((unsigned char *)machine + offsets[i]);
}

/* ---- reading ---- */

/* "12", "0.045": digits with one point at most. */
static bool number_parse(const char *text, float *out)
{
    double value = 0, place = 0;
    size_t digits = 0;
    for (; *text; text++) {
        if (*text == '.' && place == 0) {
            place = 1;
            continue;
        }
        if (*text < '0' || *text > '9' || ++digits > 15) return false;
        value = value * 10 + (*text - '0');
        place *= 10;
    }
    *out = (float)(place > 0 ? value / place : value);
    return digits > 0;
}

static size_t field_find(const char *name)
{
    size_t i = 0;
    while (i < N_FIELDS && strcmp(fields[i].name, name) != 0) i++;
    return i;
}

static enum tutti_status name_fail(const char *path, unsigned line, const char *name)
{
    const char *names[N_FIELDS];
    for (size_t i = 0; i < N_FIELDS; i++) names[i] = fields[i].name;
    const char *near = tutti_nearest(name, names, N_FIELDS);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: \"%.40s\" is no constant of a machine%s%s%s", path, line, name,
                      near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* seen: bit i for the i-th constant. */
static enum tutti_status line_read(const char *path, unsigned line, char *text, uint32_t *seen,
                                   struct tutti_machine *machine)
{
    char *rest = NULL, *name = strtok_r(text, " \t\r\n", &rest), *value = strtok_r(NULL, " \t\r\n", &rest);
    float number;
    if (!name || name[0] == '#') return TUTTI_OK;
    size_t i = field_find(name);
    if (i == N_FIELDS) return name_fail(path, line, name);
    if (*seen & UINT32_C(1) << i) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: %s is given twice", path, line, name);
    if (!value || strtok_r(NULL, " \t\r\n", &rest))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: not of the form `name value`", path, line);
    if (!number_parse(value, &number) || number < fields[i].minimum || number > fields[i].maximum)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: %s is \"%.40s\": write a number from %g to %g", path, line, name,
                          value, (double)fields[i].minimum, (double)fields[i].maximum);
    *seen |= UINT32_C(1) << i;
    *tutti_machine_at(machine, i) = number;
    return TUTTI_OK;
}

static enum tutti_status lines_read(FILE *file, const char *path, struct tutti_machine *machine)
{
    char text[LINE_MAX_BYTES];
    uint32_t seen = 0;
    _Static_assert(N_FIELDS <= 32, "a bit each");
    for (unsigned line = 1; fgets(text, sizeof text, file); line++) {
        if (strlen(text) == sizeof text - 1)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: the line is longer than %d bytes", path, line,
                              LINE_MAX_BYTES - 2);
        TUTTI_TRY(line_read(path, line, text, &seen, machine));
    }
    if (ferror(file)) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be read", path);
    return TUTTI_OK;
}

enum tutti_status tutti_machine_read(const char *path, struct tutti_machine *machine)
{
    struct tutti_machine read = *machine;
    FILE *file = fopen(path, "re");
    if (!file) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the tuning file %s can not be read", path);
    enum tutti_status status = lines_read(file, path, &read);
    fclose(file);
    if (status >= 0) *machine = read;
    return status;
}

/* ---- writing ---- */

/* The directories of a path; one that can not be made is told by who opens the file. */
static void parents_make(const char *path)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(part, 0755);
        *slash = '/';
    }
}

static void text_write(FILE *file, const struct tutti_machine *machine, const char *about)
{
    struct tutti_machine copy = *machine;
    fprintf(file, "# %s\n", about);
    for (size_t i = 0; i < N_FIELDS; i++) {
        uint64_t thousandths = (uint64_t)((double)*tutti_machine_at(&copy, i) * FRACTION + 0.5);
        fprintf(file, "%-15s %llu.%03llu\n", fields[i].name, (unsigned long long)(thousandths / FRACTION),
                (unsigned long long)(thousandths % FRACTION));
    }
}

enum tutti_status tutti_machine_write(const char *path, const struct tutti_machine *machine, const char *about)
{
    char draft[PATH_MAX];
    if (snprintf(draft, sizeof draft, "%s.%d", path, (int)getpid()) >= (int)sizeof draft)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the path of the tuning file is longer than %d bytes", PATH_MAX - 1);
    parents_make(path);
    FILE *file = fopen(draft, "we");
    if (!file) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", draft);
    text_write(file, machine, about);
    bool failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    if (!failed && rename(draft, path) == 0) return TUTTI_OK;
    int saved = errno;
    unlink(draft);
    errno = saved;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", path);
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

/* "AMD EPYC 9B45" as "amd-epyc-9b45". */
static void model_name(char *out, size_t capacity)
{
    char text[2048];
    const char *line = strstr(kernel_text("/proc/cpuinfo", text, sizeof text), "model name");
    const char *from = line ? strchr(line, ':') : NULL;
    size_t n = 0;
    for (from = from ? from + 1 : ""; *from && *from != '\n' && n + 1 < capacity; from++) {
        char c = *from >= 'A' && *from <= 'Z' ? (char)(*from - 'A' + 'a') : *from;
        bool keep = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (keep || (n > 0 && out[n - 1] != '-')) out[n++] = keep ? c : '-';
    }
    if (n > 0 && out[n - 1] == '-') n--;
    out[n] = '\0';
    if (n == 0) snprintf(out, capacity, "cpu");
}

bool tutti_machine_path(char *out, size_t capacity)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool has_cache = cache && cache[0] == '/'; /* the specification has relative ones ignored */
    char model[100];
    if (!has_cache && (!home || home[0] != '/')) return false;
    model_name(model, sizeof model);
    int n = snprintf(out, capacity, "%s%s/tutti/%s-%ld.tune", has_cache ? cache : home, has_cache ? "" : "/.cache",
                     model, sysconf(_SC_NPROCESSORS_ONLN));
    return n > 0 && (size_t)n < capacity;
}

static void cache_ask(struct tutti_machine *machine)
{
    char text[64];
    static const char *const paths[] = {"/sys/devices/system/cpu/cpu0/cache/index3/size",
                                        "/sys/devices/system/cpu/cpu0/cache/index2/size"};
    size_t i = field_find("cache_kib");
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
    if (strcmp(tuning, "auto") != 0) return tutti_machine_read(tuning, machine);
    if (!tutti_machine_path(path, sizeof path) || access(path, F_OK) != 0) return TUTTI_OK;
    if (tutti_machine_read(path, machine) < 0)
        tutti_log(TUTTI_LOG_WARN, "%s; going on without: `tutti tune` writes it anew", tutti_last_error()->text);
    return TUTTI_OK;
}
