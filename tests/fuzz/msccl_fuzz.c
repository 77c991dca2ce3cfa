/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans of MSCCL from anybody: they are refused with a sentence, or they are plans of ours that can be sealed. */
#include "fuzz.h"

#include "load/msccl.h"

static struct tutti_plan read_plan;

static const struct tutti_plan *plan_of(const struct tutti_schedule_ops *ops, const struct tutti_shape *shape)
{
    (void)ops, (void)shape;
    return &read_plan;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const struct tutti_schedule_ops ops = {.needs = TUTTI_NEEDS_EQUAL_BLOCKS, .plan = plan_of};
    char name[64], *text = n > 1 << 16 ? NULL : malloc(n + 1);
    if (!text) return 0;
    memcpy(text, bytes, n);
    text[n] = '\0';
    if (tutti_msccl_load("fuzz", text, n, &read_plan, name) >= 0) {
        struct tutti_algorithm algorithm = {.name = name, .kinds = {0}};
        algorithm.kinds[read_plan.kind] = &ops;
        struct tutti_shape shape = {.size = read_plan.n_slots};
        for (; shape.slot < shape.size && shape.slot < 4; shape.slot++) {
            struct tutti_schedule *schedule;
            if (tutti_schedule_seal(&algorithm, read_plan.kind, &shape, true, &schedule) >= 0)
                tutti_schedule_destroy(schedule);
        }
        tutti_plan_fini(&read_plan);
    } else {
        FUZZ_CHECK(tutti_last_error()->text[0]);
    }
    free(text);
    return 0;
}
