/* SPDX-License-Identifier: BSD-3-Clause */
/* What `tutti tune` found of the methods (model/ways.h). Members choose alike, so it counts where all have read the
 * same: cards compare its mark. */
#include "backend/flat/flat_ways.h"
#include "model/ways.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

struct flat_found {
    const struct flat_method *methods; /* the table, */
    size_t n;                          /* and its length */
    float times[FLAT_METHODS_MOST][TUTTI_WAY_MEMORIES][TUTTI_WAY_SIZES];
};

/* Of the numbers of ranks in the file, the nearest at which ranks have CPUs of their own if they have here. */
struct reading {
    struct flat_instance *inst;
    uint32_t ranks; /* 0: there is none yet */
    double distance;
};

static double distance_of(uint32_t a, uint32_t b)
{
    return a > b ? (double)a / b : (double)b / a;
}

static void take(void *to, const struct tutti_way_times *way)
{
    struct reading *reading = to;
    struct flat_found *found = reading->inst->found;
    const bool crowded = way->ranks > (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    const double distance = distance_of(way->ranks, reading->inst->n);
    if (crowded != reading->inst->crowded) return;
    if (way->ranks != reading->ranks) {
        if (reading->ranks && distance >= reading->distance) return;
        reading->ranks = way->ranks;
        reading->distance = distance;
        memset(found->times, 0, sizeof found->times);
    }
    for (size_t i = 0; i < found->n; i++)
        if (found->methods[i].kind == way->kind && strcmp(found->methods[i].name, way->name) == 0)
            memcpy(found->times[i][way->memory], way->times, sizeof way->times);
}

enum tutti_status flat_found_open(struct flat_instance *inst, const struct tutti_config *options,
                                  const struct flat_method *methods, size_t n, uint64_t *mark)
{
    struct reading reading = {.inst = inst};
    char path[PATH_MAX];
    *mark = 0;
    if (!tutti_machine_file(options, path, sizeof path)) return TUTTI_OK;
    inst->found = tutti_alloc(sizeof *inst->found);
    if (!inst->found) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for what tutti tune found");
    inst->found->methods = methods;
    inst->found->n = n < FLAT_METHODS_MOST ? n : FLAT_METHODS_MOST;
    /* What is wrong with a file was told when the constants were read from it. */
    if (tutti_ways_read(path, take, &reading) >= 0 && reading.ranks)
        *mark = tutti_hash64(inst->found->times, sizeof inst->found->times, 0);
    if (*mark == 0) flat_found_close(inst);
    return TUTTI_OK;
}

void flat_found_close(struct flat_instance *inst)
{
    tutti_free(inst->found);
    inst->found = NULL;
}

/* A buffer that there is not counts as mapped. */
static enum tutti_way_memory memory_of(uint64_t facts)
{
    if ((facts & FLAT_SEND_MAPPED) && (facts & FLAT_RECV_MAPPED)) return TUTTI_WAY_MAPPED;
    return facts & FLAT_HUGE ? TUTTI_WAY_HUGE : TUTTI_WAY_4K;
}

double flat_found_times(const struct flat_instance *inst, const struct flat_method *method,
                        const struct tutti_backend_call *call, uint64_t facts)
{
    const size_t block = flat_block_bytes(inst, call);
    const size_t i = inst->found ? (size_t)(method - inst->found->methods) : SIZE_MAX;
    if (!inst->found || i >= inst->found->n || block == SIZE_MAX) return 1;
    const uint64_t bytes = tutti_kind_info(call->info.kind)->block_a_slot ? (uint64_t)block * inst->n : block;
    return tutti_way_at(inst->found->times[i][memory_of(facts)], bytes);
}
