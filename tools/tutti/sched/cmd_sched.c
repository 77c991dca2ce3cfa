/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched`: list, draw and prove the algorithms of the library, or one of your own from a plug-in. */

#include "sched.h"

#include "algo/algo.h"
#include "base/config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct verb {
    const char *name, *usage, *help;
    int (*function)(int argc, char **argv);
} verbs[] = {
    {"list", "", "the algorithms: kinds, needs, radix, source", sched_list},
    {"show", "ALG --size N", "draw a schedule in the terminal, or as SVG", sched_show},
    {"check", "[ALG|FILE.so]", "prove algorithms for every rank at once", sched_check},
};

static void help(FILE *out)
{
    fprintf(out, "usage: tutti sched VERB [options]\n\nverbs:\n");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(verbs); i++) {
        fprintf(out, "  %-6s %-14s %s\n", verbs[i].name, verbs[i].usage, verbs[i].help);
    }
    fprintf(out, "\nALG is a name of the list, with a radix where it has one (tree:4), or the path of a plug-in that\n"
                 "exports `const struct tutti_algorithm tutti_algorithm` (see docs/schedules.md):\n"
                 "  cc -shared -fPIC -Iinclude mine.c -o mine.so && tutti sched check ./mine.so\n"
                 "\n'tutti sched VERB --help' tells the options of a verb.\n");
}

int tutti_cmd_sched(int argc, char **argv)
{
    const char *names[TUTTI_ARRAY_LEN(verbs)];
    tutti_algorithms_init();
    if (argc < 2) {
        help(stderr);
        return TUTTI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help(stdout);
        return TUTTI_EXIT_OK;
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(verbs); i++) {
        names[i] = verbs[i].name;
        if (strcmp(argv[1], verbs[i].name) == 0) return verbs[i].function(argc - 1, argv + 1);
    }
    const char *near = tutti_nearest(argv[1], names, TUTTI_ARRAY_LEN(verbs));
    fprintf(stderr, "tutti sched: there is no verb '%s'; ", argv[1]);
    if (near) fprintf(stderr, "did you mean 'tutti sched %s'?\n", near);
    if (!near) fprintf(stderr, "type 'tutti sched list', 'show' or 'check'.\n");
    return TUTTI_EXIT_USAGE;
}

/* ---- subjects ---- */

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
    uint64_t total = 0;
    while (*text && *text != ';') {
        char *end;
        uint64_t size = strtoul(text, &end, 10), repeat = 1;
        if (end == text) return 0;
        if (*end == 'x') repeat = strtoul(end + 1, &end, 10);
        total += size > UINT32_MAX || repeat > UINT32_MAX ? UINT32_MAX : size * repeat;
        text = *end == ',' ? end + 1 : end;
        if (total > UINT32_MAX || (*end != ',' && *end != ';' && *end)) return 0;
    }
    return (uint32_t)total;
}

/* ---- worlds ---- */

enum tutti_status sched_world_seal(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                   const struct tutti_shape *shape, bool expand, struct sched_world *out)
{
    enum tutti_status status = TUTTI_OK;
    struct sched_world world = {.n = shape->size};
    world.slots = tutti_alloc_array(shape->size, sizeof(struct tutti_schedule *));
    if (!world.slots) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u ranks", shape->size);
    for (uint32_t s = 0; s < shape->size; s++) {
        struct tutti_shape own = *shape;
        own.slot = s;
        TUTTI_TRY_GOTO(status, tutti_schedule_seal(algorithm, kind, &own, expand, &world.slots[s]), err_slots);
    }
    *out = world;
    return TUTTI_OK;
err_slots:
    sched_world_free(&world);
    return status;
}

void sched_world_free(struct sched_world *world)
{
    for (uint32_t s = 0; world->slots && s < world->n; s++) tutti_schedule_destroy(world->slots[s]);
    tutti_free(world->slots);
}

const struct tutti_step *sched_world_message(const struct sched_world *world, uint32_t slot, bool sends, uint32_t peer,
                                             uint32_t fifo)
{
    const struct tutti_schedule *schedule = world->slots[slot];
    for (uint32_t i = 0; i < schedule->n_steps; i++) {
        const struct tutti_step *step = &schedule->steps[i];
        const bool receives = step->op == TUTTI_STEP_RECV || step->op == TUTTI_STEP_RECV_REDUCE;
        if ((sends ? step->op == TUTTI_STEP_SEND : receives) && step->peer == peer && step->fifo == fifo) return step;
    }
    return NULL;
}
