/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans of MSCCL from anybody: they are refused with a sentence, or they are plans of ours that can be sealed, and
 * written as plans of MSCCL, which are read again. */
#include "fuzz.h"

#include "load/msccl.h"

static struct tutti_plan read_plan;

static const struct tutti_plan *plan_of(const struct tutti_schedule_ops *ops, const struct tutti_shape *shape)
{
    (void)ops, (void)shape;
    return &read_plan;
}

enum { MOST = 8 };

/* What is written of the schedules is read again. */
static void write_and_read(const struct tutti_schedule *const *schedules, uint32_t n)
{
    struct tutti_plan again;
    char name[64], *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    FUZZ_CHECK(file);
    const enum tutti_status written = tutti_msccl_write(schedules, n, file);
    fclose(file);
    if (written >= 0) {
        FUZZ_CHECK(tutti_msccl_load("again", text, bytes, &again, name) >= 0);
        tutti_plan_fini(&again);
    }
    free(text);
}

static void seal_all(const char *name)
{
    static const struct tutti_schedule_ops ops = {.needs = TUTTI_NEEDS_EQUAL_BLOCKS, .plan = plan_of};
    struct tutti_algorithm algorithm = {.name = name, .kinds = {0}};
    struct tutti_schedule *schedules[MOST] = {NULL};
    struct tutti_shape shape = {.size = read_plan.n_slots};
    bool sound = shape.size <= MOST;
    algorithm.kinds[read_plan.kind] = &ops;
    for (; shape.slot < shape.size && shape.slot < MOST; shape.slot++) {
        const enum tutti_status status =
            tutti_schedule_seal(&algorithm, read_plan.kind, &shape, true, &schedules[shape.slot]);
        sound = sound && status >= 0 && !schedules[shape.slot]->defect;
    }
    if (sound) write_and_read((const struct tutti_schedule *const *)schedules, shape.size);
    for (uint32_t s = 0; s < MOST; s++) tutti_schedule_destroy(schedules[s]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char name[64], *text = n > 1 << 16 ? NULL : malloc(n + 1);
    if (!text) return 0;
    memcpy(text, bytes, n);
    text[n] = '\0';
    if (tutti_msccl_load("fuzz", text, n, &read_plan, name) >= 0) {
        seal_all(name);
        tutti_plan_fini(&read_plan);
    } else {
        FUZZ_CHECK(tutti_last_error()->text[0]);
    }
    free(text);
    return 0;
}
