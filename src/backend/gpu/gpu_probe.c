/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether peers' memory is what it seems: on some boards a device reaches another one, and what it copies there, or
 * from there, is not what was meant, or what its kernels store and load there. So each member writes words into a place
 * of its own, before the cards are exchanged; whoever has mapped the peer reads them, writes words of its own beside
 * them, and reads these back, once by copies and once by a kernel. Behind what the scratch is for, so that nothing else
 * is stored there meanwhile. */
#include "backend/gpu/gpu_backend.h"

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

enum way { BY_COPY, BY_KERNEL, N_WAYS };
static const char *const ways[N_WAYS] = {[BY_COPY] = "a copy", [BY_KERNEL] = "a kernel"};

/* A board that is wrong may also hang; then its memory stays taken. */
static enum tutti_status until_over(struct gpu_backend *b)
{
    const uint64_t until_ns = tutti_deadline_ns(PROBE_NS);
    enum tutti_status status;
    while ((status = b->gpu->ops->event_query(b->gpu, b->event)) == TUTTI_PENDING) {
        if (tutti_now_ns() >= until_ns)
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "what was to reach the other GPU does not end");
        tutti_sleep_ns(NAP_NS);
    }
    return status;
}

/* As calls do it. The kernel stores x | x. */
static enum tutti_status move_row(struct gpu_backend *b, enum way way, char *dst, const char *src)
{
    const struct tutti_device_ops *ops = b->gpu->ops;
    const struct tutti_fold fold = {TUTTI_UINT32, TUTTI_BOR, dst, src, src, ROW / sizeof(uint32_t)};
    if (way == BY_KERNEL)
        TUTTI_TRY(ops->fold(b->gpu, &fold, b->own_streams[0]));
    else
        TUTTI_TRY(ops->copy(b->gpu, dst, src, ROW, b->own_streams[0]));
    TUTTI_TRY(ops->event_record(b->gpu, b->event, b->own_streams[0]));
    return until_over(b);
}

/* Words of the seed (fill) from the peer's row into one of the own device. */
static enum tutti_status read_row(struct gpu_backend *b, enum way way, const char *row, uint32_t writer, uint32_t owner,
                                  bool *same)
{
    uint64_t expected[WORDS], got[WORDS];
    char *here = row_of(b->scratch, b->scratch_bytes, GPU_MAX_RANKS + owner);
    TUTTI_TRY(b->gpu->ops->set(b->gpu, here, 0, ROW));
    TUTTI_TRY(move_row(b, way, here, row));
    TUTTI_TRY(b->gpu->ops->copy_now(b->gpu, got, here, ROW));
    fill(b->nonce, writer, owner, expected);
    *same = memcmp(got, expected, ROW) == 0;
    return TUTTI_OK;
}

/* ... and from one of the own device to the peer's. */
static enum tutti_status write_row(struct gpu_backend *b, enum way way, char *row, uint32_t writer, uint32_t owner)
{
    uint64_t words[WORDS];
    char *here = row_of(b->scratch, b->scratch_bytes, GPU_MAX_RANKS + owner);
    fill(b->nonce, writer, owner, words);
    TUTTI_TRY(b->gpu->ops->copy_now(b->gpu, here, words, ROW));
    return move_row(b, way, row, here);
}

enum tutti_status gpu_probe_begin(struct gpu_backend *b)
{
    uint64_t words[WORDS];
    fill(b->nonce, b->site.me, b->site.me, words);
    return b->gpu->ops->copy_now(b->gpu, row_of(b->scratch, b->scratch_bytes, b->site.me), words, ROW);
}

static enum tutti_status probe_by(struct gpu_backend *b, enum way way, uint32_t r, size_t scratch_bytes)
{
    bool reads = false, writes = false;
    const uint32_t writer = b->site.me + (uint32_t)way * GPU_MAX_RANKS; /* other words each time */
    char *mine = row_of(b->bases[r], scratch_bytes, b->site.me);
    TUTTI_TRY(read_row(b, way, row_of(b->bases[r], scratch_bytes, r), r, r, &reads));
    TUTTI_TRY(write_row(b, way, mine, writer, r));
    TUTTI_TRY(read_row(b, BY_COPY, mine, writer, r, &writes));
    if (reads && writes) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "data is not the same after it was %s the other GPU by %s",
                      reads ? "written to" : "read from", ways[way]);
}

enum tutti_status gpu_probe_peer(struct gpu_backend *b, uint32_t r, size_t scratch_bytes)
{
    TUTTI_TRY(probe_by(b, BY_COPY, r, scratch_bytes));
    return probe_by(b, BY_KERNEL, r, scratch_bytes);
}
