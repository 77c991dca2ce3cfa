/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans, of MSCCL, of MSCCL++ and of our own, as algorithms: one kind, one number of ranks, root 0. */

#include "load/msccl.h"
#include "load/mscclpp.h"

#include <stdio.h>
#include <string.h>

struct loaded {
    struct tutti_schedule_ops ops; /* first: who has the ops has this */
    struct tutti_plan plan;
    char *path, name[64];
};

static const struct tutti_plan *plan_of(const struct tutti_schedule_ops *ops, const struct tutti_shape *shape)
{
    const struct loaded *loaded = (const struct loaded *)ops;
    if (shape->size == loaded->plan.n_slots && shape->root == 0) return &loaded->plan;
    tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s is a plan for %u ranks%s", loaded->path, loaded->plan.n_slots,
               tutti_kind_info(loaded->plan.kind)->rooted ? " and root 0" : "");
    return NULL;
}

uint32_t tutti_load_ranks(const struct tutti_algorithm *algorithm)
{
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++)
        if (algorithm->kinds[kind] && algorithm->kinds[kind]->plan == plan_of)
            return ((const struct loaded *)algorithm->kinds[kind])->plan.n_slots;
    return 0;
}

typedef enum tutti_status (*loader)(const char *file, char *text, size_t bytes, struct tutti_plan *out, char *name);

static enum tutti_status load(const struct tutti_load_source *source, loader from, const char *help,
                              struct tutti_algorithm *out)
{
    struct loaded *loaded = tutti_alloc(sizeof *loaded);
    char *text = tutti_alloc(source->bytes + 1);
    enum tutti_status status = TUTTI_OK;
    if (loaded) loaded->path = tutti_text_copy(source->path);
    if (!loaded || !text || !loaded->path) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to load %s", source->path);
    if (status >= 0) {
        memcpy(text, source->text, source->bytes);
        status = from(source->path, text, source->bytes, &loaded->plan, loaded->name);
    }
    tutti_free(text);
    if (status < 0) {
        if (loaded) tutti_free(loaded->path);
        tutti_free(loaded);
        return status;
    }
    loaded->ops =
        (struct tutti_schedule_ops){.needs = TUTTI_NEEDS_COMMUTATIVE | TUTTI_NEEDS_EQUAL_BLOCKS, .plan = plan_of};
    *out = (struct tutti_algorithm){.name = loaded->name, .help = help, .source = loaded->path};
    out->kinds[loaded->plan.kind] = &loaded->ops;
    return TUTTI_OK;
}

enum tutti_status tutti_open_msccl(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject)
{
    (void)subject;
    return load(source, tutti_msccl_load, "a plan of MSCCL", out);
}

enum tutti_status tutti_open_mscclpp(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject)
{
    (void)subject;
    return load(source, tutti_pp_load, "a plan of MSCCL++", out);
}

/* The text of a plan of our own (sched/plan.h); its file's name is its name. */
static enum tutti_status read_plan(const char *path, char *text, size_t bytes, struct tutti_plan *out, char *name)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    snprintf(name, sizeof((struct loaded *)NULL)->name, "%.*s", (int)(strlen(base) - strlen(".plan")), base);
    return tutti_plan_read(path, text, bytes, out);
}

enum tutti_status tutti_open_plan(const struct tutti_load_source *source, struct tutti_algorithm *out, char *subject)
{
    (void)subject;
    return load(source, read_plan, "a plan for one number of ranks", out);
}
