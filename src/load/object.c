/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared objects that define `const struct tutti_algorithm tutti_algorithm`, compiled by us or by the user. */

#include "load/load.h"

#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* What is missing in an algorithm that somebody else compiled, or NULL. */
static const char *incomplete(const struct tutti_algorithm *algorithm)
{
    bool any = false;
    if (!algorithm->name || !algorithm->name[0]) return "has no name";
    if (strlen(algorithm->name) > 60) return "has a name of more than 60 characters";
    for (const char *c = algorithm->name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_-.", *c)) return "has a name of other than letters, digits, _ - .";
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        const struct tutti_schedule_ops *ops = algorithm->kinds[kind];
        if (ops && (!ops->rounds || !ops->round)) return "offers a kind without rounds() or round()";
        any = any || ops;
    }
    return any ? NULL : "offers no kind: fill .kinds";
}

/* An object finds tutti_emit_* among what all of the process may see. Where a program's module brought the library in
 * (Python's do), that is not so yet. */
static void make_visible(void)
{
    Dl_info info;
    if (dladdr((const void *)(uintptr_t)&tutti_emit_send, &info) && info.dli_fname)
        (void)dlopen(info.dli_fname,
                     RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD); /* a program itself is no library: no harm */
}

enum tutti_status tutti_object_open(const struct tutti_load_source *source, const char *object,
                                    struct tutti_algorithm *out)
{
    make_visible();
    void *handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror(), *rest = strstr(why, ": ");
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s cannot be loaded: %.300s", source->path, rest ? rest + 2 : why);
    }
    const struct tutti_algorithm *algorithm = dlsym(handle, "tutti_algorithm");
    enum tutti_status status = TUTTI_OK;
    if (!algorithm)
        status = tutti_fail(TUTTI_ERR_ARGUMENT,
                            "%s does not export 'tutti_algorithm': define `const struct tutti_algorithm "
                            "tutti_algorithm = {...};` in it, or use TUTTI_COLLECTIVE (<tutti/schedule.h>)",
                            source->path);
    else if (incomplete(algorithm))
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "tutti_algorithm of %s %s", source->path, incomplete(algorithm));
    else
        *out = *algorithm;
    if (status < 0) dlclose(handle);
    return status;
}

/* A copy is opened: the user's file may be written anew while this process runs. */
enum tutti_status tutti_open_object(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject)
{
    char name[TUTTI_KEPT_NAME];
    snprintf(name, sizeof name, "%016llx.so", (unsigned long long)source->hash);
    TUTTI_TRY(tutti_kept_path(name, subject));
    TUTTI_TRY(tutti_kept_write(name, source->text, source->bytes));
    return tutti_object_open(source, subject, out);
}
