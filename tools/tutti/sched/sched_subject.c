/* SPDX-License-Identifier: BSD-3-Clause */
/* What the verbs of `tutti sched` are told to look at: an algorithm by name or from a plug-in, a kind, a radix. */

#include "sched.h"

#include "algo/algo.h"
#include "base/config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static bool is_path(const char *name)
{
    const size_t length = strlen(name);
    return strchr(name, '/') || (length > 3 && strcmp(name + length - 3, ".so") == 0);
}

/* What is missing in an algorithm that somebody else compiled, or NULL. */
static const char *incomplete(const struct tutti_algorithm *algorithm)
{
    bool any = false;
    if (!algorithm->name || !algorithm->name[0]) return "has no name";
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        const struct tutti_schedule_ops *ops = algorithm->kinds[kind];
        if (ops && (!ops->rounds || !ops->round)) return "offers a kind without rounds() or round()";
        any = any || ops;
    }
    return any ? NULL : "offers no kind: fill .kinds";
}

static bool plugin_open(const struct tutti_args *spec, const char *name, struct sched_subject *out)
{
    char path[4096];
    /* Without a slash the loader would search its own directories. */
    if (snprintf(path, sizeof path, "%s%s", strchr(name, '/') ? "" : "./", name) >= (int)sizeof path) {
        tutti_args_fail(spec, "the path of the plug-in is too long.");
        return false;
    }
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) {
        tutti_args_fail(spec, "cannot load the plug-in: %s.", dlerror());
        return false;
    }
    const struct tutti_algorithm *algorithm = dlsym(plugin, "tutti_algorithm");
    if (!algorithm) {
        tutti_args_fail(spec,
                        "%s does not export 'tutti_algorithm': define `const struct tutti_algorithm "
                        "tutti_algorithm = {...};` in it.",
                        name);
    } else if (incomplete(algorithm)) {
        tutti_args_fail(spec, "tutti_algorithm of %s %s.", name, incomplete(algorithm));
    } else {
        *out = (struct sched_subject){.algorithm = algorithm, .plugin = plugin};
        return true;
    }
    dlclose(plugin);
    return false;
}

bool sched_subject_open(const struct tutti_args *spec, const char *name, struct sched_subject *out)
{
    enum { MAX_NAMES = 64 };
    const char *names[MAX_NAMES];
    size_t n = 0;
    if (is_path(name)) return plugin_open(spec, name, out);
    *out = (struct sched_subject){0};
    out->algorithm = tutti_algorithm_find(name, &out->radix);
    if (out->algorithm) return true;
    for (; n < tutti_n_algorithms && n < MAX_NAMES; n++) names[n] = tutti_algorithms[n]->name;
    const char *near = tutti_nearest(name, names, n);
    if (near) tutti_args_fail(spec, "there is no algorithm '%s'; did you mean '%s'?", name, near);
    if (!near) tutti_args_fail(spec, "there is no algorithm '%s'; 'tutti sched list' has their names.", name);
    return false;
}

void sched_subject_close(struct sched_subject *subject)
{
    if (subject->plugin) dlclose(subject->plugin);
}

bool sched_radix_choose(const struct tutti_args *spec, const struct sched_subject *subject, uint32_t option,
                        uint32_t *radix)
{
    const struct tutti_algorithm *algorithm = subject->algorithm;
    bool any = false;
    *radix = option ? option : subject->radix;
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++)
        if (algorithm->kinds[kind])
            any = any || algorithm->kinds[kind]->default_radix || (algorithm->kinds[kind]->needs & TUTTI_TAKES_RADIX);
    if (*radix && !any) {
        tutti_args_fail(spec, "%s has no radix: leave %s%u out ('tutti sched list' has those with one).",
                        algorithm->name, option ? "--radix " : ":", *radix);
        return false;
    }
    if (option && subject->radix && option != subject->radix) {
        tutti_args_fail(spec, "two radices: %s:%u and --radix %u.", algorithm->name, subject->radix, option);
        return false;
    }
    return true;
}

bool sched_kind_parse(const struct tutti_args *spec, const char *name, enum tutti_kind *out)
{
    const char *names[TUTTI_N_KINDS];
    if (tutti_kind_parse(name, out)) return true;
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) names[kind] = tutti_kind_name((enum tutti_kind)kind);
    const char *near = tutti_nearest(name, names, TUTTI_N_KINDS);
    tutti_args_fail(spec, "there is no kind '%s'; %s%s.", name, near ? "did you mean --kind " : "for example ",
                    near ? near : "--kind all_reduce");
    return false;
}

uint32_t sched_levels_size(const char *text)
{
    struct tutti_shape shape = {.size = 0};
    return tutti_shape_parse_levels(&shape, text) < 0 ? 0 : shape.size;
}
