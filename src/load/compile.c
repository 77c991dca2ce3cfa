/* SPDX-License-Identifier: BSD-3-Clause */
/* C files: compiled by the system's compiler into the user's folder, by the hash of text, flags and version, against
 * the public headers as they were when this library was built. A file that was compiled once needs no compiler. */

#include "load/load.h"

#include <load_headers.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMPILE_NS (120 * TUTTI_NS_PER_S)
static const char *const flags[] = {"-std=gnu17", "-O2", "-fPIC", "-shared"};

/* ---- what a file includes by name of its own ---- */

/* The file named in `#include "..."` on this line, in the folder of `path`; false: there is none on it. */
static bool include_on(const char *line, const char *path, char *out)
{
    char name[NAME_MAX + 1];
    const char *slash = strrchr(path, '/');
    if (sscanf(line, " # include \"%255[^\"\n]\"", name) != 1) return false;
    const int folder = slash && name[0] != '/' ? (int)(slash - path) + 1 : 0;
    return snprintf(out, PATH_MAX, "%.*s%s", folder, path, name) < PATH_MAX;
}

uint64_t tutti_includes_hash(const char *path, const char *text, uint32_t depth, uint64_t seed)
{
    enum { MOST_DEPTH = 6, MOST_BYTES = 1 << 20 };
    for (const char *line = text; line && depth < MOST_DEPTH; line = strchr(line, '\n')) {
        char file[PATH_MAX], *inner;
        size_t bytes;
        if (*line == '\n') line++;
        if (!include_on(line, path, file) || access(file, R_OK) != 0 ||
            tutti_text_read(file, MOST_BYTES, &inner, &bytes) < 0)
            continue; /* the compiler says what is missing */
        seed = tutti_includes_hash(file, inner, depth + 1, tutti_hash64(inner, bytes, seed));
        tutti_free(inner);
    }
    return seed;
}

/* ---- the public headers ---- */

/* Their hash, and the folder to include from: it is written once. */
static uint64_t headers_hash(void)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(headers); i++)
        hash = tutti_hash64(headers[i].begin, (size_t)(headers[i].end - headers[i].begin), hash);
    return hash;
}

static enum tutti_status headers_write(uint64_t hash, char *folder)
{
    char name[TUTTI_KEPT_NAME], path[PATH_MAX];
    snprintf(name, sizeof name, "include-%016llx", (unsigned long long)hash);
    TUTTI_TRY(tutti_kept_path(name, folder));
    snprintf(name, sizeof name, "include-%016llx/tutti", (unsigned long long)hash);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(headers); i++) {
        char file[TUTTI_KEPT_NAME + 32];
        snprintf(file, sizeof file, "%s/%s", name, headers[i].name);
        TUTTI_TRY(tutti_kept_folder(file));
        TUTTI_TRY(tutti_kept_path(file, path));
        if (access(path, R_OK) == 0) continue;
        TUTTI_TRY(tutti_kept_write(file, headers[i].begin, (size_t)(headers[i].end - headers[i].begin)));
    }
    return TUTTI_OK;
}

/* ---- compiling ---- */

/* The line of a compiler's output that says most, as one line of text. */
static void first_error(const char *output, char *out, size_t capacity)
{
    const char *line = strstr(output, "error");
    while (line && line > output && line[-1] != '\n') line--;
    if (!line) line = output;
    snprintf(out, capacity, "%.*s", (int)strcspn(line, "\n"), line);
}

/* The compiler of the option, split at spaces, after what goes before it. */
static size_t words_of(char *text, const char **words, size_t n, size_t most)
{
    char *rest;
    for (char *word = strtok_r(text, " ", &rest); word && n < most; word = strtok_r(NULL, " ", &rest))
        words[n++] = word;
    return n;
}

static enum tutti_status compile(const struct tutti_load_source *source, const char *cc, const char *include,
                                 const char *object)
{
    enum { MOST_WORDS = 32, MOST_OUTPUT = 1 << 20 };
    char compiler[512], folder[PATH_MAX + 2], why[96], error[300];
    const char *words[MOST_WORDS] = {"env", "LC_ALL=C"};
    struct tutti_spawned ran;
    snprintf(compiler, sizeof compiler, "%s", cc);
    snprintf(folder, sizeof folder, "-I%s", include);
    size_t n = words_of(compiler, words, 2, MOST_WORDS / 2);
    if (n == 2) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s is not compiled: the option cc is empty", source->path);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(flags); i++) words[n++] = flags[i];
    words[n++] = folder, words[n++] = "-o", words[n++] = object;
    words[n++] = "-x", words[n++] = "c", words[n++] = source->path;
    TUTTI_TRY(tutti_spawn(words, COMPILE_NS, MOST_OUTPUT, &ran));
    tutti_spawned_text(&ran, why, sizeof why);
    first_error(ran.output, error, sizeof error);
    tutti_free(ran.output);
    if (why[0] && !ran.late && strstr(error, "env: ") == error)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s is not compiled: there is no compiler \"%s\" (option cc, TUTTI_CC)",
                          source->path, cc);
    if (why[0]) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s does not compile: %s", source->path, error[0] ? error : why);
    return TUTTI_OK;
}

/* Compiles beside the place and renames, unless it is there. */
static enum tutti_status object_make(const struct tutti_load_source *source, const char *cc, uint64_t include_hash,
                                     const char *name, const char *object)
{
    char include[PATH_MAX], beside[PATH_MAX], new_name[TUTTI_KEPT_NAME];
    if (access(object, R_OK) == 0) return TUTTI_OK;
    const int lock = tutti_kept_lock(name);
    snprintf(new_name, sizeof new_name, "new-%d-%.16s.so", (int)getpid(), name);
    enum tutti_status status = tutti_kept_path(new_name, beside);
    if (status >= 0 && access(object, R_OK) != 0) { /* others may have made it meanwhile */
        status = headers_write(include_hash, include);
        if (status >= 0) status = compile(source, cc, include, beside);
        if (status >= 0 && rename(beside, object) != 0)
            status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be written", object);
        (void)unlink(beside);
    }
    tutti_kept_unlock(lock);
    return status;
}

enum tutti_status tutti_open_c(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject)
{
    const char *cc = source->config->text[TUTTI_OPT_cc];
    const uint64_t include_hash = headers_hash();
    char name[TUTTI_KEPT_NAME];
    uint64_t key = tutti_hash64(cc, strlen(cc), source->hash ^ include_hash);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(flags); i++) key = tutti_hash64(flags[i], strlen(flags[i]), key);
    snprintf(name, sizeof name, "%016llx.so", (unsigned long long)key);
    TUTTI_TRY(tutti_kept_path(name, subject));
    TUTTI_TRY(object_make(source, cc, include_hash, name, subject));
    return tutti_object_open(source, subject, out);
}
