/* SPDX-License-Identifier: BSD-3-Clause */
/* A point of two ranks: memory of the first one's device, mapped by the other by its handle, read and written by copies
 * and by kernels. */
#include "prove.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

enum { BY_COPY, BY_KERNEL, N_WAYS };
struct side {
    struct prove_bed bed;
    struct tutti_comm *comm;
    int32_t me;
    unsigned char *shared; /* two pieces of PROVE_BYTES: rank 0's own; rank 1: as it maps them */
    void *mapped;
    struct note {
        int32_t failed;
        unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
        uint64_t offset;
    } notes[2];
};

/* What rank 0 wrote before the handle was given, and what rank 1 writes. */
static uint64_t seed_of(int writer, int way)
{
    return 100 + (uint64_t)writer * 10 + (uint64_t)way;
}

/* Both come to it; whether neither has failed. The record of who has stays as it is. */
static bool both(struct side *side, enum tutti_status status)
{
    struct note mine = side->notes[side->me];
    mine.failed = status < 0;
    const struct tutti_error why = *tutti_last_error();
    const enum tutti_status met =
        tutti_all_gather(&mine, side->notes, sizeof mine, TUTTI_UINT8, side->comm, NULL, NULL);
    if (status < 0) tutti_fail_record(&why);
    return met >= 0 && !side->notes[0].failed && !side->notes[1].failed;
}

static enum tutti_status offer(struct side *side)
{
    const struct prove_bed *bed = &side->bed;
    struct note *mine = &side->notes[0];
    void *memory = NULL;
    if (side->me != 0) return TUTTI_OK;
    TUTTI_TRY(bed->ops->alloc_shared(bed->device, TUTTI_DEVICE_SHARE_AUTO, 2 * PROVE_BYTES, &memory));
    side->shared = memory;
    for (int way = 0; way < N_WAYS; way++) {
        prove_fill(bed->host, seed_of(0, way));
        TUTTI_TRY(bed->ops->copy_now(bed->device, side->shared + (size_t)way * PROVE_BYTES, bed->host, PROVE_BYTES));
    }
    if (!bed->ops->export_memory) return prove_wrong("its memory has no handles");
    if (bed->ops->export_memory(bed->device, side->shared, 2 * PROVE_BYTES, mine->handle, &mine->offset) < 0)
        return prove_is_wrong("memory is not offered");
    return TUTTI_OK;
}

/* Reads the piece, then writes it. */
static enum tutti_status use(struct side *side, int way)
{
    static const char *const says[N_WAYS] = {
        "what a copy read from memory of the other process is not what is there",
        "what a kernel read from memory of the other process is not what is there"};
    const struct prove_bed *bed = &side->bed;
    unsigned char *there = side->shared + (size_t)way * PROVE_BYTES, *back = bed->host + PROVE_BYTES;
    TUTTI_TRY(prove_move(bed, way == BY_KERNEL, bed->at, there, bed->stream));
    TUTTI_TRY(bed->ops->stream_sync(bed->device, bed->stream));
    TUTTI_TRY(bed->ops->copy_now(bed->device, back, bed->at, PROVE_BYTES));
    prove_fill(bed->host, seed_of(0, way));
    if (memcmp(bed->host, back, PROVE_BYTES) != 0) return prove_wrong(says[way]);
    prove_fill(bed->host, seed_of(1, way));
    TUTTI_TRY(bed->ops->copy_now(bed->device, bed->at, bed->host, PROVE_BYTES));
    TUTTI_TRY(prove_move(bed, way == BY_KERNEL, there, bed->at, bed->stream));
    return bed->ops->stream_sync(bed->device, bed->stream);
}

static enum tutti_status map_and_use(struct side *side)
{
    const struct prove_bed *bed = &side->bed;
    if (side->me != 1) return TUTTI_OK;
    if (bed->ops->import_memory(bed->device, side->notes[0].handle, &side->mapped) < 0)
        return prove_is_wrong("memory of the other process is not mapped");
    side->shared = (unsigned char *)side->mapped + side->notes[0].offset;
    TUTTI_TRY(use(side, BY_COPY));
    return use(side, BY_KERNEL);
}

static enum tutti_status look(struct side *side)
{
    static const char *const says[N_WAYS] = {"what a copy of the other process wrote is not there",
                                             "what a kernel of the other process wrote is not there"};
    const struct prove_bed *bed = &side->bed;
    for (int way = 0; way < N_WAYS && side->me == 0; way++) {
        unsigned char *back = bed->host + PROVE_BYTES;
        TUTTI_TRY(bed->ops->copy_now(bed->device, back, side->shared + (size_t)way * PROVE_BYTES, PROVE_BYTES));
        prove_fill(bed->host, seed_of(1, way));
        if (memcmp(bed->host, back, PROVE_BYTES) != 0) return prove_wrong(says[way]);
    }
    return TUTTI_OK;
}

/* Each step on both, as long as neither has failed; the first rank says how it went well. */
static enum tutti_status steps(struct side *side, struct prove_finding *out)
{
    static enum tutti_status (*const all[])(struct side *) = {offer, map_and_use, look};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(all); i++) {
        const enum tutti_status status = all[i](side);
        if (!both(side, status)) return status;
    }
    if (side->me == 0)
        snprintf(out->text, sizeof out->text, "1 MiB read and written by copies, and by kernels, of another process");
    return TUTTI_OK;
}

static void side_close(struct side *side)
{
    const struct prove_bed *bed = &side->bed;
    if (side->me == 1 && side->mapped) bed->ops->unimport_memory(bed->device, side->mapped);
    (void)both(side, TUTTI_OK); /* nobody maps it any more */
    if (side->me != 0 || !side->shared) return;
    if (bed->ops->unexport_memory) bed->ops->unexport_memory(side->notes[0].handle);
    bed->ops->free(bed->device, side->shared);
}

static enum tutti_status with_device(struct tutti_comm *comm, const struct tutti_device_ops *kind,
                                     struct prove_finding *out)
{
    struct side side = {.comm = comm, .me = tutti_comm_rank(comm)};
    if (kind->count() > 1 && !kind->reaches(1, 0))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "the devices do not reach one another");
    const enum tutti_status opened = prove_bed_open(kind, side.me % (int32_t)kind->count(), &side.bed);
    if (!both(&side, opened)) return opened;
    const enum tutti_status status = steps(&side, out);
    const struct tutti_error why = *tutti_last_error();
    side_close(&side);
    prove_bed_close(&side.bed);
    return status < 0 ? tutti_fail_record(&why) : status;
}

enum tutti_status prove_handles(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    struct tutti_context *context = NULL;
    struct tutti_comm *comm = NULL;
    TUTTI_TRY(tutti_context_create(NULL, 0, &context));
    enum tutti_status status = tutti_comm_create(context, NULL, &comm);
    if (status >= 0) status = with_device(comm, kind, out);
    const struct tutti_error why = *tutti_last_error();
    tutti_comm_destroy(comm);
    tutti_context_destroy(context);
    return status < 0 ? tutti_fail_record(&why) : status;
}
