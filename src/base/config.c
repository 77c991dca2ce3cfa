/* SPDX-License-Identifier: BSD-3-Clause */

/* The option table at work: values from a file, the environment and the call, each checked as it comes, so that a wrong
 * value is a sentence that says where it stands and what to write instead. */

#include "base/config.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_LINE_MAX 4096

static const struct tutti_option_info option_table[TUTTI_N_OPTIONS] = {
#define TUTTI_OPTION_ROW(section, name, type, def, min, max, agreed, help)                                             \
    [TUTTI_OPT_##name] = {TUTTI_SECTION_##section, #name, #type, def, help, min, max, agreed},
    TUTTI_OPTIONS(TUTTI_OPTION_ROW)
#undef TUTTI_OPTION_ROW
};
static const char *const option_names[] = {/* that a wrong one may have been meant for */
#define TUTTI_OPTION_NAME(section, name, type, def, min, max, agreed, help) #name,
                                           TUTTI_OPTIONS_OF_USERS(TUTTI_OPTION_NAME)
#undef TUTTI_OPTION_NAME
};

/* Text options that take one of a few words. */
static const struct {
    enum tutti_option_id id;
    const char *words[6];
} choice_table[] = {
    {TUTTI_OPT_simd, {"auto", "scalar", "avx2", "avx512", "neon"}},
    {TUTTI_OPT_log, {"error", "warn", "info", "debug", "trace"}},
};

/* Variables that are not options, so that their likeness to one is no typing error. */
static const char *const other_variables[] = {
    "CONFIG", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "CUDA_DRIVER", "NCCL",
};

const struct tutti_option_info *tutti_option_info(enum tutti_option_id id)
{
    return (unsigned)id < TUTTI_N_OPTIONS ? &option_table[id] : NULL;
}

const char *tutti_section_title(enum tutti_option_section section)
{
    static const char *const titles[] = {
#define TUTTI_SECTION_TITLE(section, title) title,
        TUTTI_OPTION_SECTIONS(TUTTI_SECTION_TITLE)
#undef TUTTI_SECTION_TITLE
    };
    return (unsigned)section < TUTTI_N_SECTIONS ? titles[section] : "";
}

/* ---- one value ---- */

/* Where a value stands, for sentences. */
struct position {
    enum tutti_option_origin origin;
    const char *file;
    int line;
};

static void position_text(const struct position *position, const char *name, char *out, size_t capacity)
{
    if (position->origin == TUTTI_FROM_FILE)
        snprintf(out, capacity, "%s:%d: option %s", position->file, position->line, name);
    else if (position->origin == TUTTI_FROM_ENVIRONMENT) {
        char upper[64];
        size_t n = 0;
        for (; name[n] && n + 1 < sizeof upper; n++) upper[n] = (char)toupper((unsigned char)name[n]);
        upper[n] = '\0';
        snprintf(out, capacity, "environment variable TUTTI_%s", upper);
    } else
        snprintf(out, capacity, "option %s", name);
}

static bool flag_parse(const char *text, uint64_t *out)
{
    static const char *const words[][2] = {{"0", "1"}, {"off", "on"}, {"no", "yes"}, {"false", "true"}};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(words); i++)
        for (unsigned value = 0; value < 2; value++)
            if (strcasecmp(text, words[i][value]) == 0) {
                *out = value;
                return true;
            }
    return false;
}

static bool u32_parse(const char *text, uint64_t *out)
{
    uint64_t value;
    size_t n = strlen(text);
    if (n == 0 || !isdigit((unsigned char)text[n - 1]) || !tutti_parse_size(text, &value) || value > UINT32_MAX)
        return false;
    *out = value;
    return true;
}

/* The first port, and 16 bits lower the last one; 0: none is named. */
static bool ports_parse(const char *text, uint64_t *out)
{
    char *end;
    *out = 0;
    if (!text[0]) return true;
    if (!isdigit((unsigned char)text[0])) return false;
    const unsigned long first = strtoul(text, &end, 10);
    unsigned long last = first;
    if (end[0] == '-' && isdigit((unsigned char)end[1])) last = strtoul(end + 1, &end, 10);
    *out = (uint64_t)first << 16 | last;
    return *end == '\0' && first > 0 && first <= last && last <= UINT16_MAX;
}

uint32_t tutti_ports_n(uint64_t range)
{
    return range ? (uint32_t)((range & UINT16_MAX) - (range >> 16)) + 1 : 1;
}

uint16_t tutti_ports_try(uint64_t range, uint32_t i)
{
    return range ? (uint16_t)((range >> 16) + ((uint32_t)getpid() + i) % tutti_ports_n(range)) : 0;
}

enum tutti_status tutti_ports_used_up(uint64_t range)
{
    errno = EADDRINUSE;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM,
                            "none of the %u ports of TUTTI_PORT_RANGE=%u-%u is free: each rank of a host listens at "
                            "one (two with network=ofi), the first of a host and rank 0 at another",
                            tutti_ports_n(range), (unsigned)(range >> 16), (unsigned)(range & UINT16_MAX));
}

static const struct {
    const char *type, *form;
    bool (*parse)(const char *text, uint64_t *out);
} type_table[] = {
    {"size", "a number of bytes such as 4096, 64K, 4M or 1G", tutti_parse_size},
    {"u32", "a whole number", u32_parse},
    {"time", "a time such as 30m, 5s, 20ms or 20us", tutti_parse_time},
    {"flag", "0, 1, off or on", flag_parse},
    {"ports", "a range of ports such as 20000-20100, of 1 to 65535", ports_parse},
};

static enum tutti_status choice_check(enum tutti_option_id id, const char *value, const char *where)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(choice_table); i++) {
        if (choice_table[i].id != id) continue;
        const char *const *words = choice_table[i].words;
        char list[128] = "";
        for (size_t w = 0; w < TUTTI_ARRAY_LEN(choice_table[i].words) && words[w]; w++) {
            if (strcmp(words[w], value) == 0) return TUTTI_OK;
            bool last = w + 1 == TUTTI_ARRAY_LEN(choice_table[i].words) || !words[w + 1];
            strcat(strcat(list, w == 0 ? "" : last ? " or " : ", "), words[w]);
        }
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: \"%.64s\" is not known: write %s", where, value, list);
    }
    return TUTTI_OK;
}

/* Checks one value; *number is written for the types that have one. The texts of secrets stay out of sentences. */
static enum tutti_status value_check(enum tutti_option_id id, const char *value, const struct position *position,
                                     uint64_t *number)
{
    const struct tutti_option_info *info = &option_table[id];
    char where[PATH_MAX + 96];
    position_text(position, info->name, where, sizeof where);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(type_table); i++) {
        if (strcmp(type_table[i].type, info->type) != 0) continue;
        uint64_t parsed;
        if (!type_table[i].parse(value, &parsed))
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: \"%.64s\" is not %s", where, value, type_table[i].form);
        if (parsed < info->minimum || parsed > info->maximum) {
            bool time = strcmp(info->type, "time") == 0;
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: \"%.64s\" is out of range: write %llu to %llu%s", where, value,
                              (unsigned long long)info->minimum, (unsigned long long)info->maximum,
                              time                              ? " nanoseconds"
                              : strcmp(info->type, "size") == 0 ? " bytes"
                                                                : "");
        }
        *number = parsed;
        return TUTTI_OK;
    }
    *number = 0;
    return choice_check(id, value, where);
}

static enum tutti_status value_set(struct tutti_config *config, enum tutti_option_id id, const char *value,
                                   const struct position *position)
{
    uint64_t number = 0;
    TUTTI_TRY(value_check(id, value, position, &number));
    size_t n = strlen(value) + 1;
    char *text = tutti_alloc(n);
    if (!text) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for option %s", option_table[id].name);
    memcpy(text, value, n);
    tutti_free(config->text[id]);
    config->text[id] = text;
    config->number[id] = number;
    config->origin[id] = position->origin;
    return TUTTI_OK;
}

/* TUTTI_N_OPTIONS when there is none. */
static enum tutti_option_id option_find(const char *name)
{
    enum tutti_option_id id = 0;
    while (id < TUTTI_N_OPTIONS && strcasecmp(option_table[id].name, name) != 0) id++;
    return id;
}

static enum tutti_status option_unknown(const char *name, const struct position *position)
{
    char where[PATH_MAX + 96];
    const char *nearest = tutti_nearest(name, option_names, TUTTI_ARRAY_LEN(option_names));
    position_text(position, name, where, sizeof where);
    if (nearest) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s is not known; did you mean %s?", where, nearest);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s is not known; `tutti info --config` lists all options", where);
}

/* ---- the three sources ---- */

static char *trim(char *text)
{
    while (isspace((unsigned char)*text)) text++;
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1])) text[--n] = '\0';
    return text;
}

static enum tutti_status line_apply(struct tutti_config *config, char *line, const struct position *position)
{
    char *name = trim(line);
    if (name[0] == '\0' || name[0] == '#') return TUTTI_OK;
    char *equals = strchr(name, '=');
    if (!equals)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%d: \"%.64s\" is not of the form `name = value`", position->file,
                          position->line, name);
    *equals = '\0';
    char *value = trim(equals + 1);
    name = trim(name);
    enum tutti_option_id id = option_find(name);
    if (id == TUTTI_N_OPTIONS) return option_unknown(name, position);
    return value_set(config, id, value, position);
}

static enum tutti_status apply_file(struct tutti_config *config, const char *path)
{
    char line[FILE_LINE_MAX];
    struct position position = {TUTTI_FROM_FILE, path, 0};
    enum tutti_status status = TUTTI_OK;
    FILE *f = fopen(path, "re");
    if (!f) return tutti_fail_errno(TUTTI_ERR_ARGUMENT, "the file of TUTTI_CONFIG, %s, can not be read", path);
    while (status >= 0 && fgets(line, sizeof line, f)) {
        position.line++;
        if (strlen(line) == sizeof line - 1 && line[sizeof line - 2] != '\n')
            status = tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%d: the line is longer than %d bytes", path, position.line,
                                FILE_LINE_MAX - 2);
        else
            status = line_apply(config, line, &position);
    }
    if (status >= 0 && ferror(f)) status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be read", path);
    fclose(f);
    return status;
}

static void variable_name(enum tutti_option_id id, char *out, size_t capacity)
{
    size_t n = (size_t)snprintf(out, capacity, "TUTTI_%s", option_table[id].name);
    for (size_t i = 0; i < n && i < capacity; i++) out[i] = (char)toupper((unsigned char)out[i]);
}

/* A variable that is nearly an option is most likely a typing error. Only a warning: it may be another program's. */
static void warn_of_near_misses(void)
{
    static _Atomic bool warned;
    if (warned) return;
    warned = true;
    for (char **entry = environ; entry && *entry; entry++) {
        char name[64];
        if (strncmp(*entry, "TUTTI_", 6) != 0) continue;
        size_t n = strcspn(*entry + 6, "=");
        if (n >= sizeof name) continue;
        memcpy(name, *entry + 6, n);
        name[n] = '\0';
        bool known = option_find(name) != TUTTI_N_OPTIONS || strncmp(name, "TEST_", 5) == 0;
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(other_variables) && !known; i++)
            known = strcmp(name, other_variables[i]) == 0;
        const char *nearest = known ? NULL : tutti_nearest(name, option_names, TUTTI_ARRAY_LEN(option_names));
        if (nearest)
            tutti_log(TUTTI_LOG_WARN, "environment variable TUTTI_%s is not an option; did you mean %s?", name,
                      nearest);
    }
}

static enum tutti_status apply_environment(struct tutti_config *config)
{
    struct position position = {TUTTI_FROM_ENVIRONMENT, NULL, 0};
    for (enum tutti_option_id id = 0; id < TUTTI_N_OPTIONS; id++) {
        char name[64];
        variable_name(id, name, sizeof name);
        const char *value = getenv(name);
        /* An empty variable counts as not set; only for texts it takes away what the file says. */
        if (!value || (value[0] == '\0' && strcmp(option_table[id].type, "text") != 0)) continue;
        if (value[0] == '\0' && option_table[id].fallback[0] != '\0') continue;
        TUTTI_TRY(value_set(config, id, value, &position));
    }
    warn_of_near_misses();
    return TUTTI_OK;
}

static enum tutti_status apply_call(struct tutti_config *config, const struct tutti_option *options, size_t n)
{
    struct position position = {TUTTI_FROM_CALL, NULL, 0};
    if (n > 0 && !options) return tutti_fail(TUTTI_ERR_ARGUMENT, "options is NULL but there are %zu", n);
    for (size_t i = 0; i < n; i++) {
        if (!options[i].name || !options[i].value)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "option %zu: name or value is NULL", i);
        enum tutti_option_id id = option_find(options[i].name);
        if (id == TUTTI_N_OPTIONS) return option_unknown(options[i].name, &position);
        TUTTI_TRY(value_set(config, id, options[i].value, &position));
    }
    return TUTTI_OK;
}

/* A file of another owner is read by its group where that is how it was handed to this process (a volume of a pod). */
bool tutti_is_open_to_others(const struct stat *info)
{
    const mode_t others = info->st_uid == geteuid() ? S_IRWXG | S_IRWXO : S_IWGRP | S_IRWXO;
    return (info->st_mode & others) != 0;
}

/* The secret of secret_file becomes the option secret, unless a later source gave one. */
static enum tutti_status apply_secret_file(struct tutti_config *config)
{
    char secret[TUTTI_SECRET_MAX + 2];
    const char *path = config->text[TUTTI_OPT_secret_file];
    struct position position = {config->origin[TUTTI_OPT_secret_file], path, 1};
    struct stat info;
    if (path[0] == '\0' || (config->text[TUTTI_OPT_secret][0] != '\0' &&
                            config->origin[TUTTI_OPT_secret] >= config->origin[TUTTI_OPT_secret_file]))
        return TUTTI_OK;
    FILE *f = fopen(path, "re");
    if (!f) return tutti_fail_errno(TUTTI_ERR_ARGUMENT, "the secret file %s can not be read", path);
    size_t n = fread(secret, 1, sizeof secret - 1, f);
    const bool open_to_others = fstat(fileno(f), &info) == 0 && tutti_is_open_to_others(&info);
    fclose(f);
    while (n > 0 && (secret[n - 1] == '\n' || secret[n - 1] == '\r')) n--;
    secret[n] = '\0';
    if (n == 0 || n > TUTTI_SECRET_MAX || strlen(secret) != n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the secret file %s must hold a text of 1 to %d bytes", path,
                          TUTTI_SECRET_MAX);
    if (open_to_others) tutti_log(TUTTI_LOG_WARN, "secret file %s is open to other users: chmod 600 %s", path, path);
    enum tutti_status status = value_set(config, TUTTI_OPT_secret, secret, &position);
    explicit_bzero(secret, sizeof secret);
    return status;
}

static enum tutti_status apply_log(const struct tutti_config *config)
{
    bool level = config->origin[TUTTI_OPT_log] != TUTTI_FROM_DEFAULT;
    return tutti_log_configure(level ? config->text[TUTTI_OPT_log] : NULL, config->text[TUTTI_OPT_log_file]);
}

enum tutti_status tutti_config_init(struct tutti_config *config, const struct tutti_option *options, size_t n)
{
    enum tutti_status status;
    const char *file = getenv("TUTTI_CONFIG");
    struct position fallback = {TUTTI_FROM_DEFAULT, NULL, 0};
    memset(config, 0, sizeof *config);
    for (enum tutti_option_id id = 0; id < TUTTI_N_OPTIONS; id++)
        TUTTI_TRY_GOTO(status, value_set(config, id, option_table[id].fallback, &fallback), err_config);
    if (file && file[0]) TUTTI_TRY_GOTO(status, apply_file(config, file), err_config);
    TUTTI_TRY_GOTO(status, apply_environment(config), err_config);
    TUTTI_TRY_GOTO(status, apply_call(config, options, n), err_config);
    TUTTI_TRY_GOTO(status, apply_secret_file(config), err_config);
    TUTTI_TRY_GOTO(status, apply_log(config), err_config);
    return TUTTI_OK;
err_config:
    tutti_config_fini(config);
    return status;
}

enum tutti_status tutti_option_get(const char *name, char *text, size_t capacity, uint64_t *number)
{
    const struct position position = {TUTTI_FROM_CALL, NULL, 0};
    struct tutti_config config;
    enum tutti_status status = TUTTI_OK;

    if (!name || !text || !number) return tutti_fail(TUTTI_ERR_ARGUMENT, "option_get: name, text or number is NULL");
    const enum tutti_option_id id = option_find(name);
    if (id == TUTTI_N_OPTIONS) return option_unknown(name, &position);
    TUTTI_TRY(tutti_config_init(&config, NULL, 0));
    const size_t n = strlen(config.text[id]);
    if (n >= capacity) {
        status = tutti_fail(TUTTI_ERR_TRUNCATED, "option_get: %s has %zu bytes, of %zu that fit", name, n, capacity);
    } else {
        memcpy(text, config.text[id], n + 1);
        *number = config.number[id];
    }
    tutti_config_fini(&config);
    return status;
}

void tutti_config_fini(struct tutti_config *config)
{
    char *secret = config->text[TUTTI_OPT_secret];
    if (secret) explicit_bzero(secret, strlen(secret));
    for (enum tutti_option_id id = 0; id < TUTTI_N_OPTIONS; id++) tutti_free(config->text[id]);
    memset(config, 0, sizeof *config);
}

/* ---- what ranks agree on ---- */

/* Numbers are hashed by value, so that 64K and 65536 agree. */
uint64_t tutti_config_hash(const struct tutti_config *config)
{
    uint64_t hash = 0;
    for (enum tutti_option_id id = 0; id < TUTTI_N_OPTIONS; id++) {
        const struct tutti_option_info *info = &option_table[id];
        char number[24];
        if (!info->agreed) continue;
        bool text = strcmp(info->type, "text") == 0;
        if (!text) snprintf(number, sizeof number, "%llu", (unsigned long long)config->number[id]);
        const char *value = text ? config->text[id] : number;
        hash = tutti_hash64(info->name, strlen(info->name), hash);
        hash = tutti_hash64(value, strlen(value), hash);
    }
    return hash;
}

static bool is_default(const struct tutti_config *config, enum tutti_option_id id)
{
    const struct tutti_option_info *info = &option_table[id];
    uint64_t number = 0;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(type_table); i++)
        if (strcmp(type_table[i].type, info->type) == 0)
            return type_table[i].parse(info->fallback, &number) && number == config->number[id];
    return strcmp(config->text[id], info->fallback) == 0;
}

void tutti_config_agreed_text(const struct tutti_config *config, char *out, size_t capacity)
{
    if (capacity == 0) return;
    out[0] = '\0';
    for (enum tutti_option_id id = 0; id < TUTTI_N_OPTIONS; id++) /* if cut, the hash still tells the difference */
        if (option_table[id].agreed && !is_default(config, id))
            tutti_append(out, capacity, "%s%s=%s", out[0] ? " " : "", option_table[id].name, config->text[id]);
}
