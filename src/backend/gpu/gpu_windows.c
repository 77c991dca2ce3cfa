/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows: memory of users that peers have mapped, all at the same offsets, which kernels and copy engines reach. */
#include "backend/gpu/gpu_backend.h"

#include <string.h>

#define WORDS_UNIT ((size_t)64 << 10)

/* The cards do not say whose process they are from; the scratch's do: what is not imported is this process's. */
static enum tutti_status map_peer(struct gpu_backend *b, uint32_t q, const struct tutti_window_card *card,
                                  void **import, void **out)
{
    void *memory;
    *out = NULL;
    if (card->bytes == 0) return TUTTI_OK;
    if (!b->imports[q]) {
        *out = (void *)(uintptr_t)card->address;
        return b->gpu->ops->gpu->reach_memory(b->gpu, *out, card->bytes);
    }
    TUTTI_TRY(gpu_import(b, card->handle, &memory));
    *import = memory;
    *out = (char *)memory + card->offset;
    return TUTTI_OK;
}

static void unmap(struct gpu_backend *b, struct gpu_window *window)
{
    for (uint32_t q = 0; q < b->site.n; q++) {
        if (window->imports[q]) b->gpu->ops->unimport_memory(b->gpu, window->imports[q]);
        if (window->word_imports[q]) b->gpu->ops->unimport_memory(b->gpu, window->word_imports[q]);
    }
}

/* With two windows a call's buffers would not say which one it is in, and the peers might say otherwise. */
static enum tutti_status check_apart(const struct gpu_backend *b, const char *own, size_t bytes)
{
    for (uint32_t i = 0; i < b->n_windows; i++) {
        const struct gpu_window *w = &b->windows[i];
        if (bytes == 0 || own >= w->base + w->part || w->base >= own + bytes) continue;
        return tutti_fail(TUTTI_ERR_ARGUMENT, "base and its %zu bytes overlap another window of device memory", bytes);
    }
    return TUTTI_OK;
}

static enum tutti_status block_id(struct gpu_backend *b, const void *own, uint64_t *out)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_device_enter(b->gpu, &scope));
    const enum tutti_status status = b->gpu->ops->gpu->block_id(b->gpu, own, out);
    tutti_device_leave(b->gpu, &scope);
    return status;
}

static enum tutti_status map_all(struct gpu_backend *b, const struct tutti_window_cards *cards,
                                 struct gpu_window *window, const struct tutti_window_places *out)
{
    for (uint32_t q = 0; q < b->site.n; q++) {
        struct tutti_window_card part, words;
        memcpy(&part, (const char *)cards->parts + q * cards->stride, sizeof(part));
        memcpy(&words, (const char *)cards->words + q * cards->stride, sizeof(words));
        window->id = tutti_hash64(&part, sizeof(part), window->id);
        /* What all have is what calls may use. */
        if (part.bytes < window->bytes) window->bytes = part.bytes;
        out->parts[q] = cards->own, out->words[q] = cards->own_words;
        if (q == b->site.me) continue;
        TUTTI_TRY(map_peer(b, q, &part, &window->imports[q], &out->parts[q]));
        TUTTI_TRY(map_peer(b, q, &words, &window->word_imports[q], &out->words[q]));
    }
    return TUTTI_OK;
}

enum tutti_status gpu_window_add(struct tutti_backend *backend, const struct tutti_window_cards *cards,
                                 const struct tutti_window_places *out)
{
    struct gpu_backend *b = gpu_of(backend);
    struct gpu_window window = {.base = cards->own, .part = cards->bytes, .bytes = cards->bytes};
    enum tutti_status status = check_apart(b, cards->own, cards->bytes); /* only who calls this changes them */
    if (status >= 0) status = block_id(b, cards->own, &window.block);
    if (status >= 0) status = b->gpu->ops->set(b->gpu, cards->own_words, 0, cards->word_bytes);
    if (status >= 0) status = map_all(b, cards, &window, out);
    for (uint32_t q = 0; q < b->site.n && status >= 0; q++) window.peers[q] = out->parts[q];
    pthread_mutex_lock(&b->lock);
    if (status >= 0 && b->n_windows == GPU_WINDOWS)
        status = tutti_fail(TUTTI_ERR_MEMORY, "a communicator has at most %d windows on devices", GPU_WINDOWS);
    if (status >= 0) b->windows[b->n_windows++] = window;
    pthread_mutex_unlock(&b->lock);
    if (status < 0) unmap(b, &window);
    return status;
}

void gpu_window_remove(struct tutti_backend *backend, void *own)
{
    struct gpu_backend *b = gpu_of(backend);
    pthread_mutex_lock(&b->lock);
    for (uint32_t i = 0; i < b->n_windows; i++) {
        if (b->windows[i].base != own) continue;
        unmap(b, &b->windows[i]);
        b->windows[i] = b->windows[--b->n_windows];
        break;
    }
    pthread_mutex_unlock(&b->lock);
}

void gpu_windows_close(struct gpu_backend *b)
{
    while (b->n_windows > 0) unmap(b, &b->windows[--b->n_windows]);
}

/* ---- words: what one window had serves the next one. Peers have nothing under way there any more: a window is
 * destroyed between the same calls on all ranks, each waits for its own, and the next one is made by all. ---- */

static struct gpu_words *find_words(const struct gpu_backend *b, size_t bytes)
{
    struct gpu_words *best = NULL;
    for (struct gpu_words *w = b->words; w; w = w->next)
        if (!w->in_use && w->bytes >= bytes && (!best || w->bytes < best->bytes)) best = w;
    return best;
}

static enum tutti_status words_new(struct gpu_backend *b, size_t bytes, struct gpu_words **out)
{
    struct gpu_words *words = tutti_alloc(sizeof *words);
    if (!words) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the signals of a window");
    words->bytes = (bytes + WORDS_UNIT - 1) / WORDS_UNIT * WORDS_UNIT, words->in_use = true;
    if (b->gpu->ops->alloc_shared(b->gpu, b->share, words->bytes, &words->at) < 0) {
        tutti_free(words);
        return tutti_last_error()->status;
    }
    pthread_mutex_lock(&b->lock);
    words->next = b->words;
    b->words = words;
    pthread_mutex_unlock(&b->lock);
    *out = words;
    return TUTTI_OK;
}

enum tutti_status gpu_words_take(struct tutti_backend *backend, size_t bytes, void **out)
{
    struct gpu_backend *b = gpu_of(backend);
    pthread_mutex_lock(&b->lock);
    struct gpu_words *words = find_words(b, bytes);
    if (words) words->in_use = true;
    pthread_mutex_unlock(&b->lock);
    if (!words) TUTTI_TRY(words_new(b, bytes, &words));
    *out = words->at;
    return TUTTI_OK;
}

void gpu_words_give(struct tutti_backend *backend, void *at)
{
    struct gpu_backend *b = gpu_of(backend);
    pthread_mutex_lock(&b->lock);
    for (struct gpu_words *w = b->words; w; w = w->next)
        if (w->at == at) w->in_use = false;
    pthread_mutex_unlock(&b->lock);
}

/* ---- calls in windows ---- */

/* Bytes of the whole output, where each rank has all of it or a block of it. */
static size_t output_bytes(const struct gpu_backend *b, const struct tutti_backend_call *call)
{
    const struct tutti_kind_info *kind = tutti_kind_info(call->info.kind);
    bool whole = kind->block_a_slot && call->info.kind != TUTTI_REDUCE_SCATTER && call->info.kind != TUTTI_SCATTER;
    return gpu_call_bytes(call) * (whole ? b->site.n : 1);
}

/* What peers have mapped is what was there, whatever is at the address now. */
enum tutti_status gpu_window_check(const struct gpu_backend *b, const struct gpu_site *site)
{
    uint64_t block;
    TUTTI_TRY(b->gpu->ops->gpu->block_id(b->gpu, site->own, &block));
    if (block == site->block) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "the output lies in a window whose memory was freed: destroy a window first");
}

void gpu_window_site(const struct gpu_backend *b, const struct tutti_backend_call *call, struct gpu_site *site)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&b->lock;
    char *out = call->bind.output;
    site->own = NULL;
    if (b->n_windows == 0 || !out || call->bind.v) return;
    size_t bytes = output_bytes(b, call);
    pthread_mutex_lock(lock);
    for (uint32_t i = 0; i < b->n_windows && !site->own; i++) {
        const struct gpu_window *w = &b->windows[i];
        if (out < w->base || (size_t)(out - w->base) >= w->bytes || bytes > w->bytes - (size_t)(out - w->base))
            continue;
        site->own = w->base, site->block = w->block;
        site->where = tutti_mix64(w->id + (uint64_t)(out - w->base));
        memcpy(site->peers, w->peers, sizeof(site->peers));
    }
    pthread_mutex_unlock(lock);
}
