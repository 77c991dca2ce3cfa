/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening: scratch memory of the size that may be taken, a card that says how to reach it, and, once all cards are
 * there, one layout for all and the peers' scratch as this device maps it. Between threads of a process by address,
 * between processes by handle. */
#include "backend/cuda/run/cuda_backend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CARD_VERSION 6

struct cuda_card {
    uint32_t version, n_sms, capability;
    int32_t pid;
    uint64_t process; /* random: numbers of processes mean nothing across containers */
    uint64_t build;   /* kernels and structures: what must be equal to be understood */
    uint64_t scratch, scratch_bytes;
    uint64_t offset;         /* of the scratch in what the handle stands for */
    uint64_t gpu;            /* struct tutti_device, in the own process */
    uint64_t log;            /* offset in the heap, or address */
    struct cuda_speed speed; /* as this member knows it */
    unsigned char uuid[16];
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
};
_Static_assert(sizeof(struct cuda_card) <= TUTTI_BACKEND_CARD_MOST, "a card holds what is told");

static uint64_t process_id;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void process_draw(void)
{
    if (tutti_random_bytes(&process_id, sizeof(process_id)) < 0)
        process_id = tutti_mix64((uint64_t)getpid() ^ tutti_now_ns());
}

static uint64_t build_hash(void)
{
    const char *built = tutti_gpu_built_for();
    uint64_t sizes[] = {sizeof(struct cuda_exchange), sizeof(struct cuda_layout), sizeof(struct watch_log),
                        sizeof(struct cuda_batch), CUDA_TILE_THREADS};
    return tutti_hash64(sizes, sizeof(sizes), tutti_hash64(built, strlen(built), CARD_VERSION));
}

/* ---- kernels ---- */

/* The kernel for the fewest ranks that suffice, NULL if there is none: not every protocol has every reducer. */
static void *find_kernel(struct cuda_backend *b, const char *protocol, const char *reducer)
{
    for (uint32_t most = 2; most <= CUDA_MAX_RANKS; most *= 2) {
        char name[64];
        snprintf(name, sizeof(name), "%s_%s_%u", protocol, reducer, most);
        void *kernel = most < b->site.n ? NULL : tutti_gpu_kernel(b->gpu, name);
        if (kernel) return kernel;
    }
    return NULL;
}

static void find_kernels(struct cuda_backend *b)
{
    static const char *const protocols[CUDA_N_PROTOCOLS] = {[CUDA_LINES] = "lines",
                                                            [CUDA_SENTINEL] = "sentinel",
                                                            [CUDA_SENTINEL2] = "sentinel2",
                                                            [CUDA_BATCH_LINES] = "batch_lines",
                                                            [CUDA_BATCH_SENTINEL] = "batch_sentinel",
                                                            [CUDA_TILES] = "tiles",
                                                            [CUDA_DIRECT] = "direct",
                                                            [CUDA_FOLD] = "fold"};
    for (uint32_t p = 0; p < CUDA_N_PROTOCOLS; p++) {
        for (uint32_t r = 0; r < CUDA_REDUCERS; r++) {
            const char *name = r == CUDA_MOVE ? "move" : tutti_dtype_name((enum tutti_dtype)r);
            char sum[32];
            snprintf(sum, sizeof(sum), "%s_sum", name);
            b->kernels[p][r].any = find_kernel(b, protocols[p], name);
            b->kernels[p][r].sum = find_kernel(b, protocols[p], sum);
            b->site.has[p][r] = b->kernels[p][r].any != NULL;
        }
    }
    b->meet = tutti_gpu_kernel(b->gpu, "meet");
    b->messages = tutti_gpu_kernel(b->gpu, "messages_16");
    b->counted_tiles = tutti_gpu_kernel(b->gpu, "tiles_counted_16");
    b->one.access = tutti_gpu_kernel(b->gpu, "window_access");
    b->one.await = tutti_gpu_kernel(b->gpu, "window_await");
    if (!b->meet) memset(b->site.has[CUDA_FOLD], 0, sizeof(b->site.has[CUDA_FOLD]));
}

/* ---- open ---- */

static enum tutti_status open_memory(struct cuda_backend *b, const struct tutti_backend_config *config,
                                     struct cuda_card *card)
{
    void *memory;
    b->scratch_bytes = config->scratch_bytes ? config->scratch_bytes : CUDA_SCRATCH_DEFAULT;
    struct cuda_words *scratch = tutti_alloc(sizeof *scratch);
    if (!scratch) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a device back end");
    b->words = scratch, scratch->in_use = true, b->share = config->share;
    TUTTI_TRY(tutti_gpu_alloc_shared(b->gpu, config->share, b->scratch_bytes, &memory));
    b->scratch = b->bases[b->site.me] = scratch->at = memory;
    TUTTI_TRY(tutti_gpu_alloc_host(b->gpu, sizeof(*b->control), &memory));
    b->control = memory;
    if (b->site.n > 1 && !tutti_memory_is_one(b->watched.transport->memory)) {
        TUTTI_TRY(tutti_gpu_export_memory(b->gpu, b->scratch, b->scratch_bytes, b->offer, &card->offset));
        memcpy(card->handle, b->offer, sizeof(card->handle));
    }
    card->scratch = (uint64_t)(uintptr_t)b->scratch;
    card->scratch_bytes = b->scratch_bytes;
    return TUTTI_OK;
}

static enum tutti_status open_streams(struct cuda_backend *b)
{
    TUTTI_TRY(tutti_gpu_event_create(b->gpu, false, &b->event));
    TUTTI_TRY(tutti_gpu_event_create(b->gpu, false, &b->forked));
    TUTTI_TRY(tutti_gpu_event_create(b->gpu, false, &b->joined));
    TUTTI_TRY(tutti_gpu_stream_create(b->gpu, &b->own_streams[0]));
    return tutti_gpu_stream_create(b->gpu, &b->own_streams[1]);
}

static enum tutti_status cuda_open(const struct tutti_backend_config *config, void *out_card,
                                   struct tutti_backend **out)
{
    pthread_once(&process_once, process_draw);
    struct cuda_backend *b = tutti_alloc(sizeof(*b));
    if (!b) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a device back end");
    enum tutti_status status;
    b->base.ops = &tutti_backend_cuda;
    b->watched.ops = &cuda_watch_ops;
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->one.lock, NULL);
    snprintf(b->forced, sizeof(b->forced), "%s", config->options->text[TUTTI_OPT_cuda]);
    struct cuda_card card = {.version = CARD_VERSION, .pid = getpid(), .process = process_id, .build = build_hash()};
    TUTTI_TRY_GOTO(status, watch_member_open(&b->watched, config, "cuda", sizeof(struct watch_log), &card.log),
                   err_free);
    b->site.n = config->n, b->site.me = config->me;
    TUTTI_TRY_GOTO(status, tutti_gpu_open(config->device->ordinal, &b->gpu), err_free);
    TUTTI_TRY_GOTO(status,
                   cuda_speed_load(config->options->text[TUTTI_OPT_gpu_tuning], b->gpu->name, b->site.n, &b->speed),
                   err_free);
    if (config->blocks)
        b->speed.blocks = config->blocks > CUDA_LEAST_BLOCKS ? (float)config->blocks : CUDA_LEAST_BLOCKS;
    card.speed = b->speed;
    b->site.speed = &b->speed;
    card.n_sms = b->gpu->n_sms, card.capability = b->gpu->capability;
    card.gpu = (uint64_t)(uintptr_t)b->gpu;
    memcpy(card.uuid, b->gpu->uuid, sizeof(card.uuid));
    find_kernels(b);
    TUTTI_TRY_GOTO(status, open_memory(b, config, &card), err_free);
    TUTTI_TRY_GOTO(status, open_streams(b), err_free);
    memcpy(out_card, &card, sizeof(card));
    *out = &b->base;
    return TUTTI_OK;
err_free:;
    struct tutti_error why = *tutti_last_error(); /* the driver may have more to say */
    cuda_discard(b);
    return tutti_fail_record(&why);
}

/* ---- connect ---- */

struct agreed {
    size_t budget;
    uint32_t n_blocks;
    bool shared; /* some GPU by several members */
};

static void read_card(const void *cards, size_t stride, uint32_t r, struct cuda_card *out)
{
    memcpy(out, (const char *)cards + r * stride, sizeof(*out));
}

/* The least of what the members can, and the first one's speed: equal on all, since all see all cards. */
static enum tutti_status agree(struct cuda_backend *b, const void *cards, size_t stride, struct agreed *out)
{
    struct cuda_card mine, card, other;
    read_card(cards, stride, b->site.me, &mine);
    read_card(cards, stride, 0, &card);
    b->speed = card.speed;
    *out = (struct agreed){SIZE_MAX, cuda_blocks_for((uint32_t)b->speed.blocks, 1), false};
    for (uint32_t r = 0; r < b->site.n; r++) {
        uint32_t sharing = 0;
        read_card(cards, stride, r, &card);
        if (card.version != CARD_VERSION || card.build != mine.build)
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "rank %u runs another build of cuda's kernels", r);
        for (uint32_t q = 0; q < b->site.n; q++) {
            read_card(cards, stride, q, &other);
            sharing += memcmp(card.uuid, other.uuid, sizeof(card.uuid)) == 0;
        }
        out->shared |= sharing > 1;
        uint32_t n_blocks = cuda_blocks_for(card.n_sms, sharing);
        if (n_blocks < out->n_blocks) out->n_blocks = n_blocks;
        if (card.scratch_bytes < out->budget) out->budget = card.scratch_bytes;
    }
    return TUTTI_OK;
}

static enum tutti_status lay_out(struct cuda_backend *b, const struct agreed *agreed)
{
    struct cuda_site *site = &b->site;
    b->alone = !agreed->shared;
    if (!cuda_layout(b->site.n, agreed->budget, agreed->n_blocks, &site->layout, &site->bounce_bytes))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "%zu bytes of scratch memory and %u blocks of a GPU are not enough for cuda among %u ranks",
                          agreed->budget, agreed->n_blocks, b->site.n);
    const struct cuda_layout *l = &site->layout;
    site->bounce = b->scratch + l->bytes;
    /* Peers write here once all members have told one another that they have connected. */
    TUTTI_TRY(tutti_gpu_set(b->gpu, b->scratch, 0xff, l->lines));
    return tutti_gpu_set(b->gpu, b->scratch + l->lines, 0, l->bytes - l->lines);
}

static enum tutti_status reach(struct cuda_backend *b, uint32_t r, const struct cuda_card *card)
{
    void *memory = NULL;
    enum tutti_status status;
    if (card->process == process_id) {
        status = tutti_gpu_reach(b->gpu, (struct tutti_device *)(uintptr_t)card->gpu);
        memory = (void *)(uintptr_t)card->scratch;
    } else if (!tutti_gpu_may_reach(b->gpu, card->uuid)) {
        status = tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no peer access between the two GPUs");
    } else {
        status = tutti_gpu_import_memory(b->gpu, card->handle, &memory);
        if (status >= 0) b->imports[r] = memory, memory = (char *)memory + card->offset;
    }
    b->bases[r] = memory;
    if (!tutti_gpu_has_atomics(b->gpu, card->uuid)) b->no_atomics |= 1u << r;
    if (status >= 0) return TUTTI_OK;
    struct tutti_error why = *tutti_last_error();
    return tutti_fail(status == TUTTI_ERR_MEMORY ? status : TUTTI_ERR_UNSUPPORTED,
                      "rank %u can not reach the GPU of rank %u: %.300s", b->site.me, r, why.text);
}

/* What is the same in all calls. */
static void prefill(struct cuda_backend *b)
{
    struct cuda_call *call = &b->step.exchange.call;
    memcpy(call->base, b->bases, sizeof(call->base));
    call->control = b->control;
    call->layout = b->site.layout;
    call->n = b->site.n, call->me = b->site.me;
    b->two_shot.call = b->batch.call = b->fold.call = b->meeting.call = *call;
    b->lists.call = b->counted.exchange.call = b->step.direct.call = *call;
}

static enum tutti_status connect_all(struct cuda_backend *b, const void *cards, size_t stride)
{
    struct agreed agreed;
    struct cuda_card card;
    TUTTI_TRY(agree(b, cards, stride, &agreed)); /* on all or on none */
    b->watched.seen = true;
    for (uint32_t r = 0; r < b->site.n; r++) {
        read_card(cards, stride, r, &card);
        TUTTI_TRY(watch_member_map(&b->watched, r, card.log));
    }
    TUTTI_TRY(lay_out(b, &agreed));
    for (uint32_t r = 0; r < b->site.n; r++) {
        read_card(cards, stride, r, &card);
        if (r != b->site.me) TUTTI_TRY(reach(b, r, &card));
    }
    prefill(b);
    return watch_add(&b->watched);
}

static enum tutti_status cuda_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    struct cuda_backend *b = cuda_of(backend);
    enum tutti_status status = connect_all(b, cards, stride);
    if (status >= 0) return TUTTI_OK;
    struct tutti_error why = *tutti_last_error();
    cuda_close(backend, 0);
    return tutti_fail_record(&why);
}

/* ---- the rest ---- */

/* Where the call's plan is made: with the window that holds its output. */
static void site_for(const struct cuda_backend *b, const struct tutti_backend_call *call, struct cuda_site *out)
{
    *out = b->site;
    cuda_window_site(b, call, out);
}

static double cuda_score(const struct tutti_backend *backend, const struct tutti_backend_call *call)
{
    const struct cuda_backend *b = cuda_of(backend);
    struct cuda_site site;
    double ns;
    site_for(b, call, &site);
    const struct cuda_method *chosen = cuda_choose(&site, call, call->method ? call->method : b->forced, &ns);
    /* A call says what it wants, while the option asks for it where it can be had. */
    bool other = call->method && b->site.n > 1 && chosen && strcmp(chosen->name, call->method) != 0;
    return chosen && !other ? ns : HUGE_VAL;
}

static void *cuda_last_event(struct tutti_backend *backend)
{
    struct cuda_backend *b = cuda_of(backend);
    return atomic_load(&b->watched.n_enqueued) ? b->event : NULL;
}

static size_t cuda_scratch_used(const struct tutti_backend *backend)
{
    const struct cuda_backend *b = cuda_of(backend);
    return b->scratch_bytes;
}

static void cuda_describe(const struct tutti_backend *backend, char *out, size_t capacity)
{
    const struct cuda_backend *b = cuda_of(backend);
    uint32_t n_handles = 0;
    for (uint32_t r = 0; r < b->site.n; r++) n_handles += b->imports[r] != NULL;
    snprintf(out, capacity, "%u blocks, %u peers by address and %u by handle", b->site.layout.n_blocks,
             b->site.n - 1 - n_handles, n_handles);
}

static size_t cuda_ways(const struct tutti_backend *backend, const struct tutti_backend_call *call,
                        struct tutti_backend_candidate *out, size_t capacity)
{
    const struct cuda_backend *b = cuda_of(backend);
    struct cuda_site site;
    site_for(b, call, &site);
    return cuda_candidates(&site, call, b->forced, out, capacity);
}

static void stop(struct tutti_backend *backend)
{
    cuda_stop(cuda_of(backend));
}

static bool cuda_failed(struct tutti_backend *backend)
{
    return __atomic_load_n(&(cuda_of(backend))->control->stop, __ATOMIC_RELAXED) != 0;
}

static bool cuda_busy(struct tutti_backend *backend)
{
    return cuda_tracks_ask(cuda_of(backend)) == TUTTI_PENDING;
}

static void cuda_kernels_alarm(struct tutti_backend *backend, struct tutti_device_alarm *out)
{
    struct cuda_backend *b = cuda_of(backend);
    cuda_alarm(backend, out);
    atomic_store(&b->one.by_kernels, true);
    if (!atomic_exchange(&b->watched.captured, true)) watch_wake(&b->watched);
}

const struct tutti_backend_ops tutti_backend_cuda = {
    .name = "cuda",
    .help = "NVIDIA GPUs of one host that reach one another, by tutti's own kernels",
    .check = cuda_options_check,
    .device = &tutti_device_cuda,
    .card_bytes = sizeof(struct cuda_card),
    .open = cuda_open,
    .connect = cuda_connect,
    .connected = cuda_connected,
    .close = cuda_close,
    .score = cuda_score,
    .enqueue = cuda_enqueue,
    .messages = cuda_messages,
    .counts_on_device = true,
    .batch = cuda_batch,
    .window_add = cuda_window_add,
    .window_remove = cuda_window_remove,
    .words_take = cuda_words_take,
    .words_give = cuda_words_give,
    .access = cuda_access,
    .await = cuda_await,
    .read_word = cuda_read_word,
    .alarm = cuda_kernels_alarm,
    .busy = cuda_busy,
    .stop = stop,
    .last_event = cuda_last_event,
    .memory_used = cuda_scratch_used,
    .describe = cuda_describe,
    .candidates = cuda_ways,
    .failed = cuda_failed,
};
