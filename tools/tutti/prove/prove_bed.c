/* SPDX-License-Identifier: BSD-3-Clause */
/* What points stand on: a device, a stream, memory on both sides; and how they say what is wrong. */
#include "prove.h"

#include <stdio.h>

#define WAIT_NS (10 * TUTTI_NS_PER_S)

enum tutti_status prove_wrong(const char *what)
{
    return tutti_fail(TUTTI_ERR_INTERNAL, "%s", what);
}

enum tutti_status prove_is_wrong(const char *format, ...)
{
    const struct tutti_error why = *tutti_last_error();
    char where[100];
    va_list args;
    va_start(args, format);
    vsnprintf(where, sizeof where, format, args);
    va_end(args);
    return tutti_fail(why.status == TUTTI_ERR_UNSUPPORTED ? TUTTI_ERR_INTERNAL : why.status, "%s: %.240s", where,
                      why.text);
}

void prove_fill(unsigned char *at, uint64_t seed)
{
    for (size_t i = 0; i < PROVE_BYTES; i++) at[i] = (unsigned char)(tutti_mix64(seed + i / 8) >> i % 8 * 8);
}

void prove_bed_close(struct prove_bed *bed)
{
    if (!bed->device) return;
    if (bed->at) bed->ops->free(bed->device, bed->at);
    if (bed->host) bed->ops->free_host(bed->device, bed->host);
    if (bed->stream) bed->ops->stream_destroy(bed->device, bed->stream);
    bed->ops->close(bed->device);
}

enum tutti_status prove_bed_open(const struct tutti_device_ops *kind, int32_t ordinal, struct prove_bed *bed)
{
    void *memory = NULL;
    *bed = (struct prove_bed){.ops = kind};
    TUTTI_TRY(kind->open(ordinal, &bed->device));
    enum tutti_status status = kind->stream_create(bed->device, &bed->stream);
    if (status >= 0)
        status = kind->alloc_host(bed->device, 2 * PROVE_BYTES, &memory), bed->host = memory, memory = NULL;
    if (status >= 0) status = kind->alloc(bed->device, 2 * PROVE_BYTES, &memory), bed->at = memory;
    if (status < 0) prove_bed_close(bed);
    return status;
}

enum tutti_status prove_on_bed(const struct tutti_device_ops *kind,
                               enum tutti_status (*point)(const struct prove_bed *bed))
{
    struct prove_bed bed;
    TUTTI_TRY(prove_bed_open(kind, 0, &bed));
    const enum tutti_status status = point(&bed);
    prove_bed_close(&bed);
    return status;
}

enum tutti_status prove_move(const struct prove_bed *bed, bool by_kernel, void *dst, const void *src, void *stream)
{
    const struct tutti_fold fold = {TUTTI_UINT32, TUTTI_BOR, dst, src, src, PROVE_BYTES / sizeof(uint32_t)};
    const enum tutti_status folded =
        by_kernel ? bed->ops->fold(bed->device, &fold, stream) : TUTTI_ERR_UNSUPPORTED; /* x | x */
    if (folded != TUTTI_ERR_UNSUPPORTED) return folded;
    return bed->ops->copy(bed->device, dst, src, PROVE_BYTES, stream);
}

enum tutti_status prove_until_over(const struct prove_bed *bed, void *event)
{
    const uint64_t until_ns = tutti_deadline_ns(WAIT_NS);
    enum tutti_status status;
    while ((status = bed->ops->event_query(bed->device, event)) == TUTTI_PENDING)
        if (tutti_now_ns() > until_ns) return prove_wrong("an event does not come to its end");
    return status;
}
