/* SPDX-License-Identifier: BSD-3-Clause */
/* The forms of files, by suffix, and the loading of one: read, known already by its contents, or opened by the form's
 * function, then registered for names and options. To add a form: a row here, and its function in a file of its own. */

#include "load/load.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <tutti/coll.h>

static const struct form {
    const char *suffix;
    bool includes; /* what the file includes belongs to its contents */
    enum tutti_status (*open)(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject);
} forms[] = {
    {".c", true, tutti_open_c},        {".so", false, tutti_open_object},    {".py", false, tutti_open_python},
    {".xml", false, tutti_open_msccl}, {".json", false, tutti_open_mscclpp}, {".plan", false, tutti_open_plan},
};

/* One file's. Found again by its contents. */
struct file {
    struct tutti_loaded loaded;
    struct tutti_algorithm algorithm;
    char subject[PATH_MAX]; /* what the prover is given */
    struct file *older;
};
static struct file *files; /* with the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- which form ---- */

/* Characters of the name without a radix (":4"). */
static size_t length_of(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1) ? (size_t)(colon - name)
                                                                                     : strlen(name);
}

static const struct form *form_of(const char *path, size_t length)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(forms); i++) {
        const size_t n = strlen(forms[i].suffix);
        if (length > n && memcmp(path + length - n, forms[i].suffix, n) == 0) return &forms[i];
    }
    return NULL;
}

bool tutti_load_is_path(const char *name)
{
    return strchr(name, '/') || form_of(name, length_of(name));
}

static enum tutti_status form_fail(const char *path)
{
    char list[64] = "";
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(forms); i++)
        tutti_append(list, sizeof list, "%s%s", i == 0 ? "" : ", ", forms[i].suffix);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s is no file of an algorithm: its name ends with none of %s", path, list);
}

/* ---- loading. The lock is held ---- */

static struct file *file_find(uint64_t identity)
{
    struct file *file = files;
    while (file && file->algorithm.identity != identity) file = file->older;
    return file;
}

/* The same contents under another name are the same algorithm; the last name stands in front. */
static enum tutti_status file_name(const struct file *file, const char *path)
{
    const struct tutti_loaded *front = tutti_loaded_newest();
    if (front && front->algorithm == &file->algorithm && strcmp(front->path, path) == 0) return TUTTI_OK;
    struct tutti_loaded *loaded = tutti_alloc(sizeof *loaded);
    char *copy = tutti_text_copy(path);
    if (!loaded || !copy) {
        tutti_free(loaded);
        tutti_free(copy);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to load %s", path);
    }
    *loaded = (struct tutti_loaded){.algorithm = &file->algorithm, .path = copy};
    tutti_loaded_add(loaded);
    return TUTTI_OK;
}

enum tutti_status tutti_subject_keep(const struct tutti_load_source *source, const char *suffix, char *subject)
{
    char name[TUTTI_KEPT_NAME];
    snprintf(name, sizeof name, "%016llx%s", (unsigned long long)source->hash, suffix);
    TUTTI_TRY(tutti_kept_path(name, subject));
    return tutti_kept_write(name, source->text, source->bytes);
}

static enum tutti_status file_open(const struct form *form, const struct tutti_load_source *source, struct file **out)
{
    struct file *file = tutti_alloc(sizeof *file);
    if (!file) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to load %s", source->path);
    enum tutti_status status = form->open(source, &file->algorithm, file->subject);
    if (status >= 0 && !file->subject[0]) status = tutti_subject_keep(source, form->suffix, file->subject);
    if (status < 0) {
        tutti_free(file);
        return status;
    }
    file->algorithm.identity = source->hash;
    file->older = files;
    files = file;
    *out = file;
    tutti_log(TUTTI_LOG_INFO, "%s: algorithm %s, contents %016llx", source->path, file->algorithm.name,
              (unsigned long long)source->hash);
    return TUTTI_OK;
}

const char *tutti_load_subject(const struct tutti_algorithm *algorithm)
{
    return ((const struct file *)((const char *)algorithm - offsetof(struct file, algorithm)))->subject;
}

static enum tutti_status load(const struct tutti_config *config, const char *path, const struct tutti_algorithm **out)
{
    const struct form *form = form_of(path, strlen(path));
    struct tutti_load_source source = {.path = path, .config = config};
    char *text;
    if (!form) return form_fail(path);
    TUTTI_TRY(tutti_text_read(path, TUTTI_LOAD_MOST_BYTES, &text, &source.bytes));
    source.text = text;
    source.hash = tutti_hash64(text, source.bytes, tutti_hash64(form->suffix, strlen(form->suffix), 1)) | 1;
    if (form->includes) source.hash = tutti_includes_hash(path, text, 0, source.hash) | 1;
    struct file *file = file_find(source.hash);
    enum tutti_status status = file ? TUTTI_OK : file_open(form, &source, &file);
    tutti_free(text);
    if (status >= 0) status = file_name(file, path);
    if (status >= 0) *out = &file->algorithm;
    return status;
}

static enum tutti_status load_with(const struct tutti_config *config, const char *path,
                                   const struct tutti_algorithm **out)
{
    struct tutti_config own;
    if (config) return load(config, path, out);
    TUTTI_TRY(tutti_config_init(&own, NULL, 0));
    const enum tutti_status status = load(&own, path, out);
    tutti_config_fini(&own);
    return status;
}

enum tutti_status tutti_load(const struct tutti_config *config, const char *path, const struct tutti_algorithm **out)
{
    pthread_mutex_lock(&lock);
    const enum tutti_status status = load_with(config, path, out);
    pthread_mutex_unlock(&lock);
    return status;
}

enum tutti_status tutti_load_find(const struct tutti_config *config, const char *name, uint32_t *radix,
                                  const struct tutti_algorithm **out)
{
    *out = tutti_algorithm_find(name, radix);
    if (*out || !tutti_load_is_path(name)) return TUTTI_OK;
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%.*s", (int)length_of(name), name) >= (int)sizeof path)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%.64s...: the path is too long", name);
    TUTTI_TRY(tutti_load(config, path, out));
    *out = tutti_algorithm_find(name, radix);
    return TUTTI_OK;
}

/* ---- the option algorithms ---- */

enum tutti_status tutti_load_list(struct tutti_config *config, const struct tutti_algorithm *only[TUTTI_N_KINDS])
{
    uint32_t several = 0; /* a bit for each kind */
    char *list = tutti_text_copy(config->text[TUTTI_OPT_algorithms]), *rest, agreed[1024] = "";
    enum tutti_status status = list ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory to load algorithms");
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) only[kind] = NULL;
    for (char *path = list ? strtok_r(list, ",: ", &rest) : NULL; path && status >= 0;
         path = strtok_r(NULL, ",: ", &rest)) {
        const struct tutti_algorithm *algorithm;
        status = tutti_load(config, path, &algorithm);
        for (uint32_t kind = 0; kind < TUTTI_N_KINDS && status >= 0; kind++) {
            if (!algorithm->kinds[kind]) continue;
            if (only[kind] && only[kind] != algorithm) several |= UINT32_C(1) << kind;
            only[kind] = several >> kind & 1 ? NULL : algorithm;
        }
        if (status >= 0)
            tutti_append(agreed, sizeof agreed, "%s%s#%016llx", agreed[0] ? "," : "", algorithm->name,
                         (unsigned long long)algorithm->identity);
    }
    tutti_free(list);
    char *copy = status >= 0 ? tutti_text_copy(agreed) : NULL;
    if (status < 0) return status;
    if (!copy) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to load algorithms");
    tutti_free(config->text[TUTTI_OPT_algorithms]);
    config->text[TUTTI_OPT_algorithms] = copy;
    return TUTTI_OK;
}

enum tutti_status tutti_load_overrides(const struct tutti_config *config)
{
    char entry[512];
    for (const char *text = config->text[TUTTI_OPT_algorithm]; *text;) {
        const size_t n = strcspn(text, ", ");
        const struct tutti_algorithm *algorithm;
        snprintf(entry, sizeof entry, "%.*s", (int)n, text);
        const char *name = strchr(entry, '=');
        if (name && tutti_load_is_path(name + 1)) TUTTI_TRY(tutti_load_find(config, name + 1, NULL, &algorithm));
        text += n + strspn(text + n, ", ");
    }
    return TUTTI_OK;
}

/* ---- the public call ---- */

/* A name of the table's is the table's: then the path is the name. */
static const char *name_of(const struct tutti_algorithm *algorithm)
{
    const struct tutti_loaded *loaded = tutti_loaded_newest();
    if (tutti_algorithm_find(algorithm->name, NULL) == algorithm) return algorithm->name;
    while (loaded->algorithm != algorithm) loaded = loaded->older;
    return loaded->path;
}

enum tutti_status tutti_algorithm_load(const char *path, const char **name)
{
    const struct tutti_algorithm *algorithm;
    if (!path || !path[0]) return tutti_fail(TUTTI_ERR_ARGUMENT, "algorithm_load: path is %s", path ? "empty" : "NULL");
    tutti_algorithms_init();
    TUTTI_TRY(tutti_load(NULL, path, &algorithm));
    if (name) *name = name_of(algorithm);
    return TUTTI_OK;
}

bool tutti_algorithm_offers(const char *name, const char *kind)
{
    enum tutti_kind parsed;
    const struct tutti_algorithm *algorithm = name ? tutti_algorithm_find(name, NULL) : NULL;
    return algorithm && kind && tutti_kind_parse(kind, &parsed) && algorithm->kinds[parsed];
}
