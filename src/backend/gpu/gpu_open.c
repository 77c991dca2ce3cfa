/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening: scratch memory of the size that may be taken, a card that says how to reach it, and, once all cards are
 * there, one layout for all and the peers' scratch as this device maps it. Between threads of a process by address,
 * between processes by handle. */

#include "backend/gpu/gpu_backend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CARD_VERSION 7

struct gpu_card {
    uint32_t version, n_sms, capability;
    int32_t pid;
    uint64_t process; /* random: numbers of processes mean nothing across containers */
    uint64_t build;   /* kernels and structures: what must be equal to be understood */
    uint64_t scratch, scratch_bytes;
    uint64_t offset;        /* where the scratch is in what the handle stands for */
    uint64_t gpu;           /* struct tutti_device, in the own process */
    uint64_t log;           /* offset in the heap, or address */
    struct gpu_speed speed; /* as this member knows it */
    uint32_t maps;          /* it maps ordinary memory of others */
    unsigned char uuid[16];
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
};
_Static_assert(sizeof(struct gpu_card) <= TUTTI_BACKEND_CARD_MOST, "a card holds what is told");

static uint64_t process_id;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void process_draw(void)
{
    if (tutti_random_bytes(&process_id, sizeof(process_id)) < 0)
        process_id = tutti_mix64((uint64_t)getpid() ^ tutti_now_ns());
}

static uint64_t build_hash(const struct gpu_backend *b)
{
    const char *built = b->base.ops->device->built_for();
    uint64_t sizes[] = {sizeof(struct gpu_exchange), sizeof(struct gpu_layout), sizeof(struct gpu_log),
                        sizeof(struct gpu_batch), b->base.ops->device->gpu->tile_threads};
    return tutti_hash64(sizes, sizeof(sizes), tutti_hash64(built, strlen(built), CARD_VERSION));
}

/* ---- kernels ---- */

/* The kernel for the fewest ranks that suffice, NULL if there is none: not every protocol has every reducer. */
static void *find_kernel(struct gpu_backend *b, const char *protocol, const char *reducer)
{
    for (uint32_t most = 2; most <= GPU_MAX_RANKS; most *= 2) {
        char name[64];
        snprintf(name, sizeof(name), "%s_%s_%u", protocol, reducer, most);
        void *kernel = most < b->site.n ? NULL : b->gpu->ops->gpu->kernel(b->gpu, name);
        if (kernel) return kernel;
    }
    return NULL;
}

static void find_kernels(struct gpu_backend *b)
{
    static const char *const protocols[GPU_N_PROTOCOLS] = {[GPU_LINES] = "lines",
                                                           [GPU_SENTINEL] = "sentinel",
                                                           [GPU_SENTINEL2] = "sentinel2",
                                                           [GPU_SENTINEL_RELAY] = "sentinel_relay",
                                                           [GPU_BATCH_LINES] = "batch_lines",
                                                           [GPU_BATCH_SENTINEL] = "batch_sentinel",
                                                           [GPU_TILES] = "tiles",
                                                           [GPU_DIRECT] = "direct",
                                                           [GPU_MAPPED] = "mapped",
                                                           [GPU_FOLD] = "fold"};
    for (uint32_t p = 0; p < GPU_N_PROTOCOLS; p++) {
        for (uint32_t r = 0; r < GPU_REDUCERS; r++) {
            const char *name = r == GPU_MOVE ? "move" : tutti_dtype_name((enum tutti_dtype)r);
            char sum[32];
            snprintf(sum, sizeof(sum), "%s_sum", name);
            b->kernels[p][r].any = find_kernel(b, protocols[p], name);
            b->kernels[p][r].sum = find_kernel(b, protocols[p], sum);
            b->site.has[p][r] = b->kernels[p][r].any || (p == GPU_MAPPED && b->kernels[p][r].sum);
        }
    }
    b->meet = b->gpu->ops->gpu->kernel(b->gpu, "meet");
    b->gate = b->gpu->ops->gpu->kernel(b->gpu, "gate");
    b->arrive = b->gpu->ops->gpu->kernel(b->gpu, "mapped_arrive_16");
    b->messages = b->gpu->ops->gpu->kernel(b->gpu, "messages_16");
    b->counted_tiles = b->gpu->ops->gpu->kernel(b->gpu, "tiles_counted_16");
    b->one.access = b->gpu->ops->gpu->kernel(b->gpu, "window_access");
    b->one.await = b->gpu->ops->gpu->kernel(b->gpu, "window_await");
    if (!b->arrive) memset(b->site.has[GPU_MAPPED], 0, sizeof(b->site.has[GPU_MAPPED]));
    if (!b->meet) memset(b->site.has[GPU_FOLD], 0, sizeof(b->site.has[GPU_FOLD]));
}

/* ---- open ---- */

/* Others count otherwise. */
static uint32_t cuda_capability(const struct tutti_device *gpu)
{
    return strcmp(gpu->ops->name, "cuda") == 0 ? gpu->capability : 0;
}

static bool doubts_peers(const struct gpu_backend *b)
{
    return b->site.n > 1 && b->gpu->ops->gpu->doubts_peers;
}

static enum tutti_status open_memory(struct gpu_backend *b, const struct tutti_backend_config *config,
                                     struct gpu_card *card)
{
    void *memory;
    b->scratch_bytes = config->scratch_bytes ? config->scratch_bytes : GPU_SCRATCH_DEFAULT;
    struct gpu_words *scratch = tutti_alloc(sizeof *scratch);
    if (!scratch) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a device back end");
    b->words = scratch, scratch->in_use = true, b->share = config->share;
    TUTTI_TRY(b->gpu->ops->alloc_shared(b->gpu, config->share, b->scratch_bytes, &memory));
    b->scratch = b->bases[b->site.me] = scratch->at = memory;
    TUTTI_TRY(b->gpu->ops->alloc_host(b->gpu, sizeof(*b->control), &memory));
    b->control = memory;
    if (b->site.n > 1 && !tutti_memory_is_one(b->watched.transport->memory)) {
        TUTTI_TRY(b->gpu->ops->export_memory(b->gpu, b->scratch, b->scratch_bytes, b->offer, &card->offset));
        memcpy(card->handle, b->offer, sizeof(card->handle));
    }
    card->scratch = (uint64_t)(uintptr_t)b->scratch;
    card->scratch_bytes = b->scratch_bytes;
    return TUTTI_OK;
}

static enum tutti_status open_streams(struct gpu_backend *b)
{
    TUTTI_TRY(b->gpu->ops->event_create(b->gpu, false, &b->event));
    TUTTI_TRY(b->gpu->ops->event_create(b->gpu, false, &b->forked));
    TUTTI_TRY(b->gpu->ops->event_create(b->gpu, false, &b->joined));
    TUTTI_TRY(b->gpu->ops->stream_create(b->gpu, &b->own_streams[0]));
    return b->gpu->ops->stream_create(b->gpu, &b->own_streams[1]);
}

/* Whether this member maps ordinary memory of others; so do all, or none does. */
static bool may_map(const struct gpu_backend *b, const struct tutti_backend_config *config)
{
    const struct tutti_gpu_ops *gpu = b->gpu->ops->gpu;
    return config->n > 1 && config->options->number[TUTTI_OPT_gpu_map] && gpu->range_open && gpu->reach_memory &&
           b->site.has[GPU_MAPPED][GPU_MOVE] && b->gpu->ops->import_memory;
}

static const struct tutti_backend_ops *ops_for(const struct tutti_device *device);

static enum tutti_status gpu_open(const struct tutti_backend_config *config, void *out_card, struct tutti_backend **out)
{
    if (!config->device->ops->gpu)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there are no kernels for %s", config->device->ops->name);
    pthread_once(&process_once, process_draw);
    struct gpu_backend *b = tutti_alloc(sizeof(*b));
    if (!b) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a device back end");
    enum tutti_status status;
    b->base.ops = ops_for(config->device);
    b->watched.ops = &gpu_watch_ops;
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->one.lock, NULL);
    pthread_mutex_init(&b->maps.lock, NULL);
    b->overlap_blocks = (uint32_t)config->options->number[TUTTI_OPT_gpu_overlap_blocks];
    snprintf(b->forced, sizeof(b->forced), "%s", config->options->text[TUTTI_OPT_gpu_method]);
    struct gpu_card card = {.version = CARD_VERSION, .pid = getpid(), .process = process_id, .build = build_hash(b)};
    TUTTI_TRY_GOTO(status, watch_member_open(&b->watched, config, b->base.ops->name, sizeof(struct gpu_log), &card.log),
                   err_free);
    b->site.n = config->n, b->site.me = config->me;
    b->nonce = config->nonce;
    b->site.tile_threads = b->base.ops->device->gpu->tile_threads;
    TUTTI_TRY_GOTO(status, b->base.ops->device->open(config->device->ordinal, &b->gpu), err_free);
    TUTTI_TRY_GOTO(status,
                   gpu_speed_load(config->options->text[TUTTI_OPT_gpu_tuning], b->gpu->name, cuda_capability(b->gpu),
                                  b->site.n, &b->speed),
                   err_free);
    if (config->blocks) b->speed.blocks = config->blocks > GPU_LEAST_BLOCKS ? (float)config->blocks : GPU_LEAST_BLOCKS;
    card.speed = b->speed;
    b->site.speed = &b->speed;
    card.n_sms = b->gpu->n_sms, card.capability = b->gpu->capability;
    card.gpu = (uint64_t)(uintptr_t)b->gpu;
    memcpy(card.uuid, b->gpu->uuid, sizeof(card.uuid));
    find_kernels(b);
    card.maps = may_map(b, config);
    TUTTI_TRY_GOTO(status, open_memory(b, config, &card), err_free);
    TUTTI_TRY_GOTO(status, open_streams(b), err_free);
    if (card.maps) TUTTI_TRY_GOTO(status, gpu_maps_open(b), err_free);
    if (doubts_peers(b)) TUTTI_TRY_GOTO(status, gpu_probe_begin(b), err_free);
    memcpy(out_card, &card, sizeof(card));
    *out = &b->base;
    return TUTTI_OK;
err_free:;
    struct tutti_error why = *tutti_last_error(); /* the driver may have more to say */
    gpu_discard(b);
    return tutti_fail_record(&why);
}

/* ---- connect ---- */

struct agreed {
    size_t budget;
    uint32_t n_blocks;
    bool shared; /* some GPU by several members */
    bool maps;
};

static void read_card(const void *cards, size_t stride, uint32_t r, struct gpu_card *out)
{
    memcpy(out, (const char *)cards + r * stride, sizeof(*out));
}

/* The least of what the members can, and the first one's speed: equal on all, since all see all cards. */
static enum tutti_status agree(struct gpu_backend *b, const void *cards, size_t stride, struct agreed *out)
{
    struct gpu_card mine, card, other;
    read_card(cards, stride, b->site.me, &mine);
    read_card(cards, stride, 0, &card);
    b->speed = card.speed;
    *out = (struct agreed){SIZE_MAX, gpu_blocks_for((uint32_t)b->speed.blocks, 1), false, true};
    for (uint32_t r = 0; r < b->site.n; r++) {
        uint32_t sharing = 0;
        read_card(cards, stride, r, &card);
        if (card.version != CARD_VERSION || card.build != mine.build)
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "rank %u runs another build of the kernels", r);
        for (uint32_t q = 0; q < b->site.n; q++) {
            read_card(cards, stride, q, &other);
            sharing += memcmp(card.uuid, other.uuid, sizeof(card.uuid)) == 0;
        }
        out->shared |= sharing > 1;
        out->maps &= card.maps != 0;
        uint32_t n_blocks = gpu_blocks_for(card.n_sms, sharing);
        if (n_blocks < out->n_blocks) out->n_blocks = n_blocks;
        if (card.scratch_bytes < out->budget) out->budget = card.scratch_bytes;
    }
    return TUTTI_OK;
}

static enum tutti_status lay_out(struct gpu_backend *b, const struct agreed *agreed)
{
    struct gpu_site *site = &b->site;
    b->alone = !agreed->shared;
    site->maps = agreed->maps;
    const size_t budget = agreed->budget - (doubts_peers(b) ? GPU_PROBE_BYTES : 0);
    if (!gpu_layout(b->site.n, budget, agreed->n_blocks, &site->layout, &site->bounce_bytes))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "%zu bytes of scratch memory and %u blocks of a GPU are not enough for %s among %u ranks",
                          agreed->budget, agreed->n_blocks, b->base.ops->name, b->site.n);
    const struct gpu_layout *l = &site->layout;
    site->bounce = b->scratch + l->bytes;
    /* Peers write here once all members have told one another that they have connected. */
    TUTTI_TRY(b->gpu->ops->set(b->gpu, b->scratch, 0xff, l->lines));
    return b->gpu->ops->set(b->gpu, b->scratch + l->lines, 0, l->bytes - l->lines);
}

static enum tutti_status reach(struct gpu_backend *b, uint32_t r, const struct gpu_card *card)
{
    void *memory = NULL;
    enum tutti_status status;
    if (card->process == process_id) {
        status = b->gpu->ops->reach(b->gpu, (struct tutti_device *)(uintptr_t)card->gpu);
        memory = (void *)(uintptr_t)card->scratch;
    } else if (!b->gpu->ops->gpu->may_reach(b->gpu, card->uuid)) {
        status = tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no peer access between the two GPUs");
    } else {
        status = gpu_import(b, card->handle, &memory);
        if (status >= 0) b->imports[r] = memory, memory = (char *)memory + card->offset;
    }
    b->bases[r] = memory;
    if (!b->gpu->ops->gpu->has_atomics(b->gpu, card->uuid)) b->no_atomics |= 1u << r, b->base.plain_links = true;
    if (status >= 0 && doubts_peers(b)) status = gpu_probe_peer(b, r, card->scratch_bytes);
    if (status >= 0) return TUTTI_OK;
    struct tutti_error why = *tutti_last_error();
    return tutti_fail(status == TUTTI_ERR_MEMORY ? status : TUTTI_ERR_UNSUPPORTED,
                      "rank %u can not reach the GPU of rank %u: %.300s", b->site.me, r, why.text);
}

/* What is the same in all calls. */
static void prefill(struct gpu_backend *b)
{
    struct gpu_call *call = &b->step.exchange.call;
    memcpy(call->base, b->bases, sizeof(call->base));
    call->control = b->control;
    call->layout = b->site.layout;
    call->n = b->site.n, call->me = b->site.me;
    b->two_shot.call = b->batch.call = b->fold.call = b->meeting.call = b->gate_of.call = *call;
    b->lists.call = b->counted.exchange.call = b->step.direct.call = *call;
}

static enum tutti_status connect_all(struct gpu_backend *b, const void *cards, size_t stride)
{
    struct agreed agreed;
    struct gpu_card card;
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

static enum tutti_status gpu_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    struct gpu_backend *b = gpu_of(backend);
    enum tutti_status status = connect_all(b, cards, stride);
    if (status >= 0) return TUTTI_OK;
    struct tutti_error why = *tutti_last_error();
    gpu_close(backend, 0);
    return tutti_fail_record(&why);
}

/* ---- the rest ---- */

/* Where the call's plan is made: with the window that holds its output. */
static void site_for(const struct gpu_backend *b, const struct tutti_backend_call *call, struct gpu_site *out)
{
    *out = b->site;
    gpu_window_site(b, call, out);
}

static double gpu_score(const struct tutti_backend *backend, const struct tutti_backend_call *call)
{
    const struct gpu_backend *b = gpu_of(backend);
    struct gpu_site site;
    double ns;
    if (call->gate && !b->gate) return HUGE_VAL;
    site_for(b, call, &site);
    const struct gpu_method *chosen = gpu_choose(&site, call, call->method ? call->method : b->forced, &ns);
    /* A call says what it wants, while the option asks for it where it can be had. */
    bool other = call->method && b->site.n > 1 && chosen && strcmp(chosen->name, call->method) != 0;
    return chosen && !other ? ns : HUGE_VAL;
}

static void *gpu_last_event(struct tutti_backend *backend)
{
    struct gpu_backend *b = gpu_of(backend);
    return atomic_load(&b->watched.n_enqueued) ? b->event : NULL;
}

static size_t gpu_scratch_used(const struct tutti_backend *backend)
{
    const struct gpu_backend *b = gpu_of(backend);
    return b->scratch_bytes;
}

static void gpu_describe(const struct tutti_backend *backend, char *out, size_t capacity)
{
    const struct gpu_backend *b = gpu_of(backend);
    uint32_t n_handles = 0;
    for (uint32_t r = 0; r < b->site.n; r++) n_handles += b->imports[r] != NULL;
    snprintf(out, capacity, "%u blocks, %u peers by address and %u by handle", b->site.layout.n_blocks,
             b->site.n - 1 - n_handles, n_handles);
}

static size_t gpu_ways(const struct tutti_backend *backend, const struct tutti_backend_call *call,
                       struct tutti_backend_candidate *out, size_t capacity)
{
    const struct gpu_backend *b = gpu_of(backend);
    struct gpu_site site;
    site_for(b, call, &site);
    return gpu_candidates(&site, call, b->forced, out, capacity);
}

static void stop(struct tutti_backend *backend)
{
    gpu_stop(gpu_of(backend));
}

static bool gpu_failed(struct tutti_backend *backend)
{
    return __atomic_load_n(&(gpu_of(backend))->control->stop, __ATOMIC_RELAXED) != 0;
}

static bool gpu_busy(struct tutti_backend *backend)
{
    return gpu_tracks_ask(gpu_of(backend)) == TUTTI_PENDING;
}

static void gpu_kernels_alarm(struct tutti_backend *backend, struct tutti_device_alarm *out)
{
    struct gpu_backend *b = gpu_of(backend);
    gpu_alarm(backend, out);
    atomic_store(&b->one.by_kernels, true);
    if (!atomic_exchange(&b->watched.captured, true)) watch_wake(&b->watched);
}

/* A maker's GPUs: the same back end, whose name is the device's. */
#define GPU_BACKEND(maker)                                                                                             \
    const struct tutti_backend_ops tutti_backend_##maker = {                                                           \
        .name = #maker,                                                                                                \
        .help = "GPUs of one host that reach one another, by tutti's own kernels",                                     \
        .check = gpu_options_check,                                                                                    \
        .device = &tutti_device_##maker,                                                                               \
        .card_bytes = sizeof(struct gpu_card),                                                                         \
        .open = gpu_open,                                                                                              \
        .connect = gpu_connect,                                                                                        \
        .connected = gpu_connected,                                                                                    \
        .close = gpu_close,                                                                                            \
        .score = gpu_score,                                                                                            \
        .enqueue = gpu_enqueue,                                                                                        \
        .messages = gpu_messages,                                                                                      \
        .counts_on_device = true,                                                                                      \
        .gates = true,                                                                                                 \
        .batch = gpu_batch,                                                                                            \
        .window_add = gpu_window_add,                                                                                  \
        .window_remove = gpu_window_remove,                                                                            \
        .words_take = gpu_words_take,                                                                                  \
        .words_give = gpu_words_give,                                                                                  \
        .access = gpu_access,                                                                                          \
        .await = gpu_await,                                                                                            \
        .read_word = gpu_read_word,                                                                                    \
        .alarm = gpu_kernels_alarm,                                                                                    \
        .busy = gpu_busy,                                                                                              \
        .stop = stop,                                                                                                  \
        .freeze = gpu_freeze,                                                                                          \
        .last_event = gpu_last_event,                                                                                  \
        .memory_used = gpu_scratch_used,                                                                               \
        .describe = gpu_describe,                                                                                      \
        .candidates = gpu_ways,                                                                                        \
        .failed = gpu_failed};
TUTTI_GPUS(GPU_BACKEND)

static const struct tutti_backend_ops *ops_for(const struct tutti_device *device)
{
#define GPU_MAKER(maker) &tutti_backend_##maker,
    static const struct tutti_backend_ops *const makers[] = {TUTTI_GPUS(GPU_MAKER)};
    size_t i = 0;
    while (makers[i]->device != device->ops && i + 1 < TUTTI_ARRAY_LEN(makers)) i++;
    return makers[i];
}

/* Whether peers' memory is what it seems: on some boards a device reaches another one, and what it copies there, or
 * from there, is not what was meant, or what its kernels store and load there. So each member writes words into a place
 * of its own, before the cards are exchanged; whoever has mapped the peer reads them, writes words of its own beside
 * them, and reads these back, once by copies and once by a kernel. Behind what the scratch is for, so that nothing else
 * is stored there meanwhile. */

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
    const struct tutti_fold fold = {
        .dtype = TUTTI_UINT32, .op = TUTTI_BOR, .dst = dst, .left = src, .right = src, .n = ROW / sizeof(uint32_t)};
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
