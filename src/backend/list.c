/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of back ends, and what is asked of it by names and options. */
#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

#define NAMES_BYTES 200

#define BACKEND_OPS(name) &tutti_backend_##name,
const struct tutti_backend_ops *tutti_backends[TUTTI_N_BACKENDS] = {TUTTI_BACKENDS(BACKEND_OPS)};
#undef BACKEND_OPS

static bool serves(const struct tutti_backend_ops *ops, bool devices)
{
    return devices ? ops->enqueue != NULL : ops->begin != NULL;
}

bool tutti_backend_is_named(const struct tutti_backend_ops *ops, const char *text, const char **method)
{
    size_t n = strlen(ops->name);
    if (!text || strncmp(text, ops->name, n) != 0 || (text[n] && text[n] != ':')) return false;
    *method = text[n] ? text + n + 1 : NULL;
    return true;
}

const struct tutti_backend_ops *tutti_backend_find(const char *text, bool devices)
{
    const char *method = NULL;
    for (size_t i = 0; i < TUTTI_N_BACKENDS; i++)
        if (serves(tutti_backends[i], devices) && tutti_backend_is_named(tutti_backends[i], text, &method))
            return tutti_backends[i];
    return NULL;
}

const char *tutti_backend_names(bool devices)
{
    static _Thread_local char names[NAMES_BYTES];
    size_t at = 0;
    for (size_t i = 0; i < TUTTI_N_BACKENDS && at < NAMES_BYTES; i++)
        if (serves(tutti_backends[i], devices))
            at += (size_t)snprintf(names + at, NAMES_BYTES - at, "%s%s", at ? ", " : "", tutti_backends[i]->name);
    return names;
}

/* ---- options ---- */

/* The one whose name the text begins with, up to a comma or the end, which *text is moved past. */
static const struct tutti_backend_ops *next_named(const char **text)
{
    const size_t n = strcspn(*text, ",");
    for (size_t i = 0; i < TUTTI_N_BACKENDS; i++) {
        const struct tutti_backend_ops *ops = tutti_backends[i];
        if (!serves(ops, false) || strlen(ops->name) != n || strncmp(*text, ops->name, n) != 0) continue;
        *text += n;
        if (**text == ',') ++*text;
        return ops;
    }
    return NULL;
}

static const struct tutti_backend_ops *first_own(void)
{
    size_t i = 0;
    while (i < TUTTI_N_BACKENDS && (!serves(tutti_backends[i], false) || tutti_backends[i]->is_library)) i++;
    return i < TUTTI_N_BACKENDS ? tutti_backends[i] : NULL;
}

enum tutti_status tutti_backends_for_host(const struct tutti_config *options, struct tutti_backends_wanted *out)
{
    const char *text = options->text[TUTTI_OPT_backends];
    const bool automatic = strcmp(text, "auto") == 0, off = strcmp(text, "off") == 0;
    *out = (struct tutti_backends_wanted){.own = automatic ? first_own() : NULL};
    while (!automatic && !off) {
        const struct tutti_backend_ops *ops = next_named(&text);
        const struct tutti_backend_ops **at = ops && ops->is_library ? &out->library : &out->own;
        if (!ops || *at)
            return tutti_fail(
                TUTTI_ERR_ARGUMENT,
                "option backends is \"%s\" but can be auto, off or one of: %s; or one of tutti's own and a "
                "library, as flat,oneccl",
                options->text[TUTTI_OPT_backends], tutti_backend_names(false));
        out->library_first |= ops->is_library && !out->own;
        *at = ops;
        if (!*text) break;
    }
    return TUTTI_OK;
}

static bool is_choice_for_devices(const char *text)
{
    const struct tutti_backend_ops *named = tutti_backend_find(text, true);
    if (strcmp(text, "host") == 0) return true;
    return strcmp(text, "auto") == 0 || strcmp(text, "off") == 0 || (named && strcmp(text, named->name) == 0);
}

enum tutti_status tutti_backends_check(const struct tutti_config *options)
{
    const char *gpu = options->text[TUTTI_OPT_gpu];
    struct tutti_backends_wanted wanted;
    TUTTI_TRY(tutti_backends_for_host(options, &wanted));
    if (!is_choice_for_devices(gpu))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "option gpu is \"%s\" but can be auto, host, off or one of: %s", gpu,
                          tutti_backend_names(true));
    for (size_t i = 0; i < TUTTI_N_BACKENDS; i++)
        if (tutti_backends[i]->check) TUTTI_TRY(tutti_backends[i]->check(options));
    return TUTTI_OK;
}
