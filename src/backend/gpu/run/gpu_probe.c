/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether peers' memory is what it seems: on some boards a device reaches another one, and what it copies there, or
 * from there, is not what was meant. So each member writes words into a place of its own, before the cards are
 * exchanged; whoever has mapped the peer reads them, writes words of its own beside them, and reads these back. Behind
 * what the scratch is for, so that nothing else is stored there meanwhile. */
#include "backend/gpu/run/gpu_backend.h"

#include <string.h>

#define WORDS (GPU_PROBE_BYTES / GPU_MAX_RANKS / 2 / sizeof(uint64_t))
#define ROW (WORDS * sizeof(uint64_t))
#define PROBE_NS (5 * TUTTI_NS_PER_S)
#define NAP_NS (UINT64_C(50) * 1000)

/* Rows of a member: what each member writes there, then room for what is read elsewhere. */
static char *row_of(char *scratch, size_t scratch_bytes, uint32_t r)
{
    return scratch + scratch_bytes - GPU_PROBE_BYTES + r * ROW;
}

static void fill(uint64_t nonce, uint32_t writer, uint32_t owner, uint64_t *words)
{
    const uint64_t seed = tutti_mix64(nonce ^ ((uint64_t)writer << 32 | owner));
    for (size_t i = 0; i < WORDS; i++) words[i] = tutti_mix64(seed + i);
}

static enum tutti_status write_row(struct gpu_backend *b, char *row, uint32_t owner)
{
    uint64_t words[WORDS];
    fill(b->nonce, b->site.me, owner, words);
    return b->gpu->ops->copy_now(b->gpu, row, words, ROW);
}

/* A board that is wrong may also hang; then its memory stays taken. */
static enum tutti_status until_over(struct gpu_backend *b)
{
    const uint64_t until_ns = tutti_deadline_ns(PROBE_NS);
    enum tutti_status status;
    while ((status = b->gpu->ops->event_query(b->gpu, b->event)) == TUTTI_PENDING) {
        if (tutti_now_ns() >= until_ns)
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "a copy from the other GPU does not end");
        tutti_sleep_ns(NAP_NS);
    }
    return status;
}

/* By a copy of the device into its own memory, as calls make them. */
static enum tutti_status read_row(struct gpu_backend *b, const char *row, uint32_t writer, uint32_t owner, bool *same)
{
    const struct tutti_device_ops *ops = b->gpu->ops;
    uint64_t expected[WORDS], got[WORDS];
    char *here = row_of(b->scratch, b->scratch_bytes, GPU_MAX_RANKS + owner);
    TUTTI_TRY(ops->copy(b->gpu, here, row, ROW, b->own_streams[0]));
    TUTTI_TRY(ops->event_record(b->gpu, b->event, b->own_streams[0]));
    TUTTI_TRY(until_over(b));
    TUTTI_TRY(ops->copy_now(b->gpu, got, here, ROW));
    fill(b->nonce, writer, owner, expected);
    *same = memcmp(got, expected, ROW) == 0;
    return TUTTI_OK;
}

enum tutti_status gpu_probe_begin(struct gpu_backend *b)
{
    return write_row(b, row_of(b->scratch, b->scratch_bytes, b->site.me), b->site.me);
}

enum tutti_status gpu_probe_peer(struct gpu_backend *b, uint32_t r, size_t scratch_bytes)
{
    bool reads = false, writes = false;
    char *mine = row_of(b->bases[r], scratch_bytes, b->site.me);
    TUTTI_TRY(read_row(b, row_of(b->bases[r], scratch_bytes, r), r, r, &reads));
    TUTTI_TRY(write_row(b, mine, r));
    TUTTI_TRY(read_row(b, mine, b->site.me, r, &writes));
    if (reads && writes) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "data is not the same after it was %s the other GPU",
                      reads ? "written to" : "read from");
}
