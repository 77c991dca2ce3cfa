/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows: memory of users that peers have mapped, all at the same offsets, which kernels and copy engines reach. */
#include "backend/cuda/run/cuda_backend.h"

#include <string.h>

/* The cards do not say whose process they are from; the scratch's do: what is not imported is this process's. */
static enum tutti_status map_peer(struct cuda_backend *b, uint32_t q, const struct tutti_window_card *card,
                                  struct cuda_window *window)
{
    void *memory;
    if (card->bytes == 0) return TUTTI_OK;
    if (!b->imports[q]) {
        window->peers[q] = (char *)(uintptr_t)card->address;
        return tutti_gpu_reach_memory(b->gpu, window->peers[q], card->bytes);
    }
    TUTTI_TRY(tutti_gpu_import_memory(b->gpu, card->handle, &memory));
    window->imports[q] = memory;
    window->peers[q] = (char *)memory + card->offset;
    return TUTTI_OK;
}

static void unmap(struct cuda_backend *b, struct cuda_window *window)
{
    for (uint32_t q = 0; q < b->site.n; q++)
        if (window->imports[q]) tutti_gpu_unimport_memory(b->gpu, window->imports[q]);
}

/* Of two windows it could not be told by its buffers which one a call is in, and the peers might tell otherwise. */
static enum tutti_status check_apart(const struct cuda_backend *b, const char *own, size_t bytes)
{
    for (uint32_t i = 0; i < b->n_windows; i++) {
        const struct cuda_window *w = &b->windows[i];
        if (bytes == 0 || own >= w->base + w->part || w->base >= own + bytes) continue;
        return tutti_fail(TUTTI_ERR_ARGUMENT, "base and its %zu bytes overlap another window of device memory", bytes);
    }
    return TUTTI_OK;
}

static enum tutti_status block_id(struct cuda_backend *b, const void *own, uint64_t *out)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_gpu_enter(b->gpu, &scope));
    const enum tutti_status status = tutti_gpu_block_id(b->gpu, own, out);
    tutti_gpu_leave(&scope);
    return status;
}

enum tutti_status cuda_window_add(struct tutti_backend *backend, const struct tutti_window_card *cards, size_t stride,
                                  void *own, size_t bytes, void **peers)
{
    struct cuda_backend *b = cuda_of(backend);
    struct cuda_window window = {.base = own, .part = bytes, .bytes = bytes};
    enum tutti_status status = check_apart(b, own, bytes); /* only who calls this changes them */
    if (status >= 0) status = block_id(b, own, &window.block);
    window.peers[b->site.me] = own;
    for (uint32_t q = 0; q < b->site.n && status >= 0; q++) {
        struct tutti_window_card card;
        memcpy(&card, (const char *)cards + q * stride, sizeof(card));
        if (q != b->site.me) status = map_peer(b, q, &card, &window);
        window.id = tutti_hash64(&card, sizeof(card), window.id);
        /* What all have is what calls may use. */
        if (card.bytes < window.bytes) window.bytes = card.bytes;
    }
    pthread_mutex_lock(&b->lock);
    if (status >= 0 && b->n_windows == CUDA_WINDOWS)
        status = tutti_fail(TUTTI_ERR_MEMORY, "a communicator has at most %d windows on devices", CUDA_WINDOWS);
    if (status >= 0) b->windows[b->n_windows++] = window;
    pthread_mutex_unlock(&b->lock);
    if (status < 0) unmap(b, &window);
    for (uint32_t q = 0; q < b->site.n && status >= 0; q++) peers[q] = window.peers[q];
    return status;
}

void cuda_window_remove(struct tutti_backend *backend, void *own)
{
    struct cuda_backend *b = cuda_of(backend);
    pthread_mutex_lock(&b->lock);
    for (uint32_t i = 0; i < b->n_windows; i++) {
        if (b->windows[i].base != own) continue;
        unmap(b, &b->windows[i]);
        b->windows[i] = b->windows[--b->n_windows];
        break;
    }
    pthread_mutex_unlock(&b->lock);
}

void cuda_windows_close(struct cuda_backend *b)
{
    while (b->n_windows > 0) unmap(b, &b->windows[--b->n_windows]);
}

/* Bytes of the whole output, where each rank has all of it or a block of it. */
static size_t output_bytes(const struct cuda_backend *b, const struct tutti_backend_call *call)
{
    const struct tutti_kind_info *kind = tutti_kind_info(call->info.kind);
    bool whole = kind->block_a_slot && call->info.kind != TUTTI_REDUCE_SCATTER && call->info.kind != TUTTI_SCATTER;
    return cuda_call_bytes(call) * (whole ? b->site.n : 1);
}

/* What peers have mapped is what was there, whatever is at the address now. */
enum tutti_status cuda_window_check(const struct cuda_backend *b, const struct cuda_site *site)
{
    uint64_t block;
    TUTTI_TRY(tutti_gpu_block_id(b->gpu, site->own, &block));
    if (block == site->block) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "the output lies in a window whose memory was freed: destroy a window first");
}

void cuda_window_site(const struct cuda_backend *b, const struct tutti_backend_call *call, struct cuda_site *site)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&b->lock;
    char *out = call->bind.output;
    site->own = NULL;
    if (b->n_windows == 0 || !out || call->bind.v) return;
    size_t bytes = output_bytes(b, call);
    pthread_mutex_lock(lock);
    for (uint32_t i = 0; i < b->n_windows && !site->own; i++) {
        const struct cuda_window *w = &b->windows[i];
        if (out < w->base || (size_t)(out - w->base) >= w->bytes || bytes > w->bytes - (size_t)(out - w->base))
            continue;
        site->own = w->base, site->block = w->block;
        site->where = tutti_mix64(w->id + (uint64_t)(out - w->base));
        memcpy(site->peers, w->peers, sizeof(site->peers));
    }
    pthread_mutex_unlock(lock);
}
