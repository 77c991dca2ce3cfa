/* SPDX-License-Identifier: BSD-3-Clause */
/* The proof of a loaded algorithm for one world, before its first call there. `tutti sched check` makes it, in a
 * process of its own: code of a stranger may crash, end the process or never come back, and what it does there does no
 * harm here. (A fork of this process would be no place for it: other threads may hold locks in that moment. Where the
 * command is not to be found, nothing is proved, and what is not proved is not run.)
 *
 * A proof is kept by the hash of file, version, kind and shape, so that of all ranks of a user on a host one makes it;
 * a refusal is kept for a minute, for the same ranks. In memory a hash says what was proved, without a lock. */

#include "load/load.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROOF_NS (600 * TUTTI_NS_PER_S)
#define REFUSAL_S 60

/* ---- what was proved already ---- */

#define MEMO_ENTRIES 1024
static _Atomic uint64_t memo[MEMO_ENTRIES]; /* keys; a later one may take the place */

/* Never 0. Equal on all machines. */
static uint64_t key_of(const struct tutti_algorithm *algorithm, enum tutti_kind kind, const struct tutti_shape *shape)
{
    const uint64_t low = (uint64_t)shape->size << 32 | shape->root;
    const uint64_t high = (uint64_t)shape->radix << 32 | (uint64_t)kind << 8 | shape->n_levels;
    uint64_t hash = tutti_mix64(algorithm->identity ^ tutti_mix64(low ^ tutti_mix64(high)));
    for (uint32_t l = 0; l < shape->n_levels; l++)
        hash = tutti_hash64(shape->levels[l].runs, shape->levels[l].n_runs * sizeof(struct tutti_run), hash);
    return hash | 1;
}

/* ---- the prover ---- */

static bool is_program(char *path, size_t capacity, const char *folder, const char *name)
{
    return snprintf(path, capacity, "%s/%s", folder, name) < (int)capacity && access(path, X_OK) == 0;
}

/* The option's; else near the library or program that this code is in: build/lib and build/test have build/bin beside
 * them, as a prefix's lib has its bin; else by the PATH. */
static bool prover_find(const struct tutti_config *config, char *out, size_t capacity)
{
    const char *given = config->text[TUTTI_OPT_prover];
    static const char *const beside[] = {"tutti", "../bin/tutti", "../../bin/tutti", "../../../bin/tutti"};
    char own[PATH_MAX], list[4096];
    Dl_info info;
    if (given[0]) return snprintf(out, capacity, "%s", given) < (int)capacity;
    if (dladdr((const void *)(uintptr_t)&tutti_load_prove, &info) && realpath(info.dli_fname, own)) {
        *strrchr(own, '/') = '\0';
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(beside); i++)
            if (is_program(out, capacity, own, beside[i])) return true;
    }
    const char *path = getenv("PATH");
    char *rest;
    snprintf(list, sizeof list, "%s", path ? path : "");
    for (char *folder = strtok_r(list, ":", &rest); folder; folder = strtok_r(NULL, ":", &rest))
        if (is_program(out, capacity, folder, "tutti")) return true;
    return false;
}

/* The sentence behind "REFUSED", which has a line of its own. */
static bool refusal_in(const char *output, char *out, size_t capacity)
{
    const char *line = strstr(output, "REFUSED");
    line = line ? strchr(line, '\n') : NULL;
    if (!line) return false;
    line += 1 + strspn(line + 1, " ");
    snprintf(out, capacity, "%.*s", (int)strcspn(line, "\n"), line);
    return out[0] != '\0';
}

/* What went wrong elsewhere: the command's own sentence, else the last line. */
static void complaint_in(char *output, char *out, size_t capacity)
{
    static const char own[] = "tutti sched check: ";
    size_t n = strlen(output);
    while (n > 0 && output[n - 1] == '\n') output[--n] = '\0';
    const char *line = strrchr(output, '\n'), *sentence = strstr(output, own);
    line = sentence ? sentence + strlen(own) : line ? line + 1 : output;
    snprintf(out, capacity, "%.*s", (int)strcspn(line, "\n"), line);
}

/* What the prover says of the file: *refusal is "" when it is proved. UNSUPPORTED: there is no telling. */
static enum tutti_status prove(const struct tutti_config *config, const char *subject, enum tutti_kind kind,
                               const struct tutti_shape *shape, char *refusal, size_t capacity)
{
    enum { MOST_OUTPUT = 1 << 16 };
    char prover[PATH_MAX], size[16], root[16], radix[16], levels[640], how[96];
    struct tutti_spawned ran;
    if (!prover_find(config, prover, sizeof prover))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "it can not be proved: the command tutti is neither beside the library "
                          "nor on the PATH (option prover, TUTTI_PROVER)");
    snprintf(size, sizeof size, "%u", shape->size);
    snprintf(root, sizeof root, "%u", shape->root);
    snprintf(radix, sizeof radix, "%u", shape->radix);
    tutti_shape_levels_text(shape, levels, sizeof levels);
    const char *words[20] = {prover, "sched", "check", subject, "--kind", tutti_kind_name(kind), "--root", root};
    size_t n = 8;
    if (shape->radix) words[n++] = "--radix", words[n++] = radix;
    words[n++] = shape->n_levels ? "--levels" : "--sizes";
    words[n++] = shape->n_levels ? levels : size;
    TUTTI_TRY(tutti_spawn(words, PROOF_NS, MOST_OUTPUT, &ran));
    tutti_spawned_text(&ran, how, sizeof how);
    enum tutti_status status = TUTTI_OK;
    refusal[0] = '\0';
    if (!strstr(ran.output, "\n1 of 1 proved") && !refusal_in(ran.output, refusal, capacity)) {
        char said[256];
        complaint_in(ran.output, said, sizeof said);
        status = tutti_fail(TUTTI_ERR_UNSUPPORTED, "it can not be proved: %s sched check %s: %s", prover,
                            how[0] ? how : "says something unknown", said);
    }
    if (status >= 0 && !refusal[0] && strstr(ran.output, "\n  by sample: "))
        tutti_log(TUTTI_LOG_WARN, "%s of %u ranks by %s: proved by sample, since the whole takes too long",
                  tutti_kind_name(kind), shape->size, subject);
    tutti_free(ran.output);
    return status;
}

/* ---- one proof for all ---- */

/* Whether another process knows; the refusal is "" when it is proved. */
static bool known(const char *proved, const char *refused, char *refusal, size_t capacity)
{
    char *text;
    size_t bytes;
    refusal[0] = '\0';
    if (tutti_kept_read(proved, 0, &text, &bytes)) {
        tutti_free(text);
        return true;
    }
    if (!tutti_kept_read(refused, REFUSAL_S, &text, &bytes)) return false;
    snprintf(refusal, capacity, "%s", text);
    tutti_free(text);
    return refusal[0] != '\0';
}

static enum tutti_status find_out(const struct tutti_config *config, const char *subject, uint64_t key,
                                  enum tutti_kind kind, const struct tutti_shape *shape, char *refusal, size_t capacity)
{
    char proved[TUTTI_KEPT_NAME], refused[TUTTI_KEPT_NAME];
    const uint64_t of_version = tutti_hash64(tutti_version_text(), strlen(tutti_version_text()), key);
    snprintf(proved, sizeof proved, "%016llx.proved", (unsigned long long)of_version);
    snprintf(refused, sizeof refused, "%016llx.refused", (unsigned long long)of_version);
    if (known(proved, refused, refusal, capacity)) return TUTTI_OK;
    const int lock = tutti_kept_lock(proved);
    enum tutti_status status = TUTTI_OK;
    if (!known(proved, refused, refusal, capacity)) {
        status = prove(config, subject, kind, shape, refusal, capacity);
        const char *text = refusal[0] ? refusal : "proved\n";
        if (status >= 0 && tutti_kept_write(refusal[0] ? refused : proved, text, strlen(text)) < 0)
            tutti_log(TUTTI_LOG_WARN, "%s: the next process proves it again", tutti_last_error()->text);
    }
    tutti_kept_unlock(lock);
    return status;
}

/* The prover knows a plan by the file that it was given, whose name is a hash: the algorithm's in its place. */
static void name_refusal(const struct tutti_algorithm *algorithm, char *refusal, size_t capacity)
{
    char rest[TUTTI_ERROR_TEXT];
    const char *base = strrchr(tutti_load_subject(algorithm), '/');
    const size_t n = base ? strcspn(base + 1, ".") : 0;
    if (n == 0 || strncmp(refusal, base + 1, n) != 0 || refusal[n] != ' ') return;
    snprintf(rest, sizeof rest, "%s", refusal + n);
    snprintf(refusal, capacity, "%s%s", algorithm->name, rest);
}

enum tutti_status tutti_load_prove(const struct tutti_config *config, const struct tutti_algorithm *algorithm,
                                   enum tutti_kind kind, const struct tutti_shape *shape)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!algorithm->identity) return TUTTI_OK;
    const uint64_t key = key_of(algorithm, kind, shape);
    _Atomic uint64_t *place = &memo[tutti_mix64(key) % MEMO_ENTRIES];
    if (atomic_load_explicit(place, memory_order_acquire) == key) return TUTTI_OK;
    char refusal[TUTTI_ERROR_TEXT] = "";
    const struct tutti_schedule_ops *ops = algorithm->kinds[kind];
    if (ops && ops->plan && !ops->plan(ops, shape))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "algorithm %s is refused: %.350s", algorithm->name,
                          tutti_last_error()->text);
    pthread_mutex_lock(&lock);
    const enum tutti_status status =
        find_out(config, tutti_load_subject(algorithm), key, kind, shape, refusal, sizeof refusal);
    if (status >= 0 && !refusal[0]) atomic_store_explicit(place, key, memory_order_release);
    pthread_mutex_unlock(&lock);
    if (status < 0)
        return tutti_fail(status, "algorithm %s is not run: %.330s", algorithm->name, tutti_last_error()->text);
    name_refusal(algorithm, refusal, sizeof refusal);
    if (refusal[0]) return tutti_fail(TUTTI_ERR_ARGUMENT, "algorithm %s is refused: %.350s", algorithm->name, refusal);
    return TUTTI_OK;
}
