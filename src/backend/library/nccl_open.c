/* SPDX-License-Identifier: BSD-3-Clause */

/* NCCL as a back end: finding the library, the one that the process has loaded already (frameworks bring their own),
 * else the system's, but never the one of compat/nccl, whose calls come back here; opening, which looks whether NCCL
 * would take these members; and its table of functions. */

#include "backend/library/nccl.h"
#include "base/symbols.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARD_VERSION 4
#define EXIT_NS                                                                                                        \
    (10 * TUTTI_NS_PER_S)            /* for a communicator before the process may exit, which must not be meanwhile;   \
                                      */
#define HELD_NS (3 * TUTTI_NS_PER_S) /* and where a graph may hold calls of it, which it waits for */

/* ---- the library ---- */

#define NAME "libnccl.so.2"

/* The process's one, like the driver. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_library found; /* version 0: none yet */

/* Whether it is tutti's own: NVIDIA's knows no such parameter. */
static bool is_own(void *library)
{
    void *symbol = dlsym(library, "ncclParamBind"), *handle = NULL;
    int (*bind)(void **out, const char *key);
    memcpy(&bind, &symbol, sizeof bind);
    return symbol && bind(&handle, "TUTTI_NCCL_VERSION") == NCCL_OK;
}

/* By the path of the file, since the bare name is that of our own now; whose calls it must not find, either. */
static void *path_open(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library && access(path, R_OK) == 0) library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!library || !is_own(library)) return library;
    dlclose(library);
    return NULL;
}

static int mapped_open(struct dl_phdr_info *info, size_t bytes, void *out)
{
    (void)bytes;
    const char *base = strrchr(info->dlpi_name, '/');
    void *library = base && strcmp(base + 1, NAME) == 0 ? path_open(info->dlpi_name) : NULL;
    memcpy(out, &library, sizeof library);
    return library != NULL;
}

/* Beside our own: one that is mapped, else one in a folder where the loader looks. */
static void *other_open(void)
{
    void *library = NULL, *program = dlopen(NULL, RTLD_LAZY);
    char path[PATH_MAX];
    Dl_serinfo size, *folders = NULL;
    dl_iterate_phdr(mapped_open, &library);
    if (!library && program && dlinfo(program, RTLD_DI_SERINFOSIZE, &size) == 0) folders = malloc(size.dls_size);
    if (folders) {
        folders->dls_size = size.dls_size, folders->dls_cnt = size.dls_cnt;
        const int failed = dlinfo(program, RTLD_DI_SERINFO, folders);
        for (unsigned i = 0; i < folders->dls_cnt && !failed && !library; i++) {
            snprintf(path, sizeof path, "%s/" NAME, folders->dls_serpath[i].dls_name);
            library = path_open(path);
        }
    }
    free(folders);
    if (program) dlclose(program);
    return library;
}

static void *file_open(const char *named)
{
    if (*named) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    void *loaded = dlopen(NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!loaded) loaded = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
    if (!loaded || !is_own(loaded)) return loaded;
    dlclose(loaded);
    return other_open();
}

static const char *absence(void)
{
    const char *error = dlerror();
    return error ? error : "the library of that name is tutti's own; TUTTI_NCCL_LIBRARY names the file of NVIDIA's";
}

/* The name of the first function that is not there; NULL: all are. */
static const char *calls_find(void *library, struct nccl_library *out)
{
    static const struct tutti_symbol calls[] = {
#define NCCL_ROW(member, symbol, parameters) {#symbol, offsetof(struct nccl_library, member), true},
        NCCL_CALLS(NCCL_ROW)
#undef NCCL_ROW
            {"ncclGetErrorString", offsetof(struct nccl_library, error_text), true},
        {"ncclGetLastError", offsetof(struct nccl_library, last_error), true},
    };
    return tutti_symbols_find(library, calls, TUTTI_ARRAY_LEN(calls), out);
}

/* Under the lock. */
static enum tutti_status library_find(const char *named)
{
    struct nccl_library library = {0};
    void *handle = file_open(named);
    if (!handle) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no NCCL here: %s", absence());
    const char *missing = calls_find(handle, &library);
    int version = 0;
    if (!missing && library.version_get(&version) == NCCL_OK && version >= NCCL_NEEDED) {
        library.version = version;
        found = library;
        return TUTTI_OK; /* and stays open */
    }
    dlclose(handle);
    if (missing)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s is no NCCL of 2.18 or later: it has no %s", *named ? named : NAME,
                          missing);
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "NCCL %d.%d.%d is here, and 2.18 or later is needed", version / 10000,
                      version / 100 % 100, version % 100);
}

const struct nccl_library *nccl_library(const char *named)
{
    pthread_mutex_lock(&lock);
    const enum tutti_status status = found.version ? TUTTI_OK : library_find(named ? named : "");
    pthread_mutex_unlock(&lock);
    return status == TUTTI_OK ? &found : NULL;
}

bool nccl_shares(const struct nccl_library *library)
{
    const char *allowed = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return library->version >= 23000 && allowed && strcmp(allowed, "1") == 0;
}

/* ---- the watch, and the end ---- */

static bool find_error(struct library *l, uint64_t now)
{
    struct nccl_backend *b = nccl_of(l);
    int state = NCCL_OK, result = NCCL_OK;
    if (pthread_mutex_trylock(&b->lock) != 0) return false; /* a call is within, and will say */
    void *comm = __atomic_load_n(&b->comm, __ATOMIC_ACQUIRE);
    if (comm) result = b->library->comm_state(comm, &state);
    pthread_mutex_unlock(&b->lock);
    if (result == NCCL_OK && state == NCCL_OK) return false;
    if (!atomic_load(&b->error_ns)) atomic_store(&b->error_ns, now);
    if (now - atomic_load(&b->error_ns) < WATCH_ECHO_NS) return false;
    nccl_refused(b, result == NCCL_OK ? state : result, "NCCL");
    watch_fail(&l->watched, "a call by nccl", 0);
    return true;
}

static bool has_error(const struct library *l)
{
    return atomic_load(&nccl_of(l)->error_ns) != 0;
}

static void end(struct library *l, bool over, uint64_t deadline_ns)
{
    (void)deadline_ns; /* an exit of the process while a communicator ends is worse than a late one */
    nccl_end_begin(nccl_of(l), over && l->watched.n == 1);
    nccl_end_wait(nccl_of(l), atomic_load(&l->watched.captured) ? HELD_NS : EXIT_NS);
}

static void release(struct library *l)
{
    nccl_ending_leave(nccl_of(l));
    pthread_mutex_destroy(&nccl_of(l)->lock);
}

static const struct library_ops ops = {
    .make = nccl_make,
    .run = nccl_run,
    .failed = nccl_stopped,
    .stop = nccl_stop,
    .look = find_error,
    .waits = has_error,
    .end = end,
    .release = release,
};

/* ---- opening ---- */

struct nccl_card {
    uint32_t version, nccl;
    unsigned char uuid[16];
    uint64_t board; /* offset in the heap, or address */
    uint32_t shares, unused;
};
_Static_assert(sizeof(struct nccl_card) <= TUTTI_BACKEND_CARD_MOST, "a card holds what is told");

static enum tutti_status nccl_open(const struct tutti_backend_config *config, void *out_card,
                                   struct tutti_backend **out)
{
    const struct nccl_library *library = nccl_library(config->options->text[TUTTI_OPT_nccl_library]);
    if (!library) return tutti_last_error()->status;
    struct nccl_backend *b = tutti_alloc(sizeof *b);
    if (!b) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a device back end");
    struct nccl_card card = {
        .version = CARD_VERSION, .nccl = (uint32_t)library->version, .shares = nccl_shares(library)};
    b->l.base.ops = &tutti_backend_nccl;
    b->l.ops = &ops;
    b->library = library;
    b->blocks = config->blocks;
    memcpy(card.uuid, config->device->uuid, sizeof card.uuid);
    pthread_mutex_init(&b->lock, NULL);
    TUTTI_TRY(library_open(&b->l, config, sizeof(struct nccl_board), &card.board));
    memcpy(out_card, &card, sizeof card);
    *out = &b->l.base;
    return TUTTI_OK;
}

static void card_read(const void *cards, size_t stride, uint32_t r, struct nccl_card *out)
{
    memcpy(out, (const char *)cards + r * stride, sizeof *out);
}

/* What NCCL would find out only when the communicator is made. */
static enum tutti_status cards_check(uint32_t n, const void *cards, size_t stride)
{
    struct nccl_card first, card, other;
    card_read(cards, stride, 0, &first);
    for (uint32_t r = 0; r < n; r++) {
        card_read(cards, stride, r, &card);
        if (card.version != CARD_VERSION || card.nccl / 100 != first.nccl / 100)
            return tutti_fail(TUTTI_ERR_UNSUPPORTED, "rank %u has NCCL %u.%u, and rank 0 %u.%u", r, card.nccl / 10000,
                              card.nccl / 100 % 100, first.nccl / 10000, first.nccl / 100 % 100);
        for (uint32_t q = 0; q < r; q++) {
            card_read(cards, stride, q, &other);
            if (memcmp(card.uuid, other.uuid, sizeof card.uuid) == 0 && !(card.shares && other.shares))
                return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                                  "ranks %u and %u share a GPU, which NCCL allows from 2.30 on where "
                                  "NCCL_MULTI_RANK_GPU_ENABLE is 1",
                                  q, r);
        }
    }
    return TUTTI_OK;
}

static enum tutti_status nccl_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    struct library *l = library_of(backend);
    enum tutti_status status = library_map(l, cards, stride, offsetof(struct nccl_card, board));
    if (status == TUTTI_OK) status = cards_check(l->watched.n, cards, stride);
    if (status < 0) library_discard(l);
    return status;
}

/* ---- the table ---- */

/* Its communicator takes seconds and memory when the first call makes it: a few percent are not worth that. */
#define WORTH_IT 2.0

static double nccl_score(const struct tutti_backend *backend, const struct tutti_backend_call *call)
{
    const struct library *l = library_of(backend);
    if (l->reproducible && tutti_kind_info(call->info.kind)->reduces) return HUGE_VAL; /* not in rank order */
    return nccl_can(call, l->watched.n) ? WORTH_IT * nccl_cost_ns(call, l->watched.n) : HUGE_VAL;
}

static void stop(struct tutti_backend *backend)
{
    nccl_stop(library_of(backend));
    nccl_stopped(library_of(backend));
}

static size_t nccl_scratch_used(const struct tutti_backend *backend)
{
    (void)backend;
    return 0; /* none of ours; NCCL does not say how much it takes */
}

const struct tutti_backend_ops tutti_backend_nccl = {
    .name = "nccl",
    .help = "NVIDIA GPUs, by NVIDIA's library, where it is installed",
    .device = &tutti_device_cuda,
    .card_bytes = sizeof(struct nccl_card),
    .open = nccl_open,
    .connect = nccl_connect,
    .connected = library_connected,
    .close = library_close,
    .score = nccl_score,
    .enqueue = library_enqueue,
    .messages = library_messages,
    .stop = stop,
    .failed = library_failed,
    .last_event = library_last_event,
    .memory_used = nccl_scratch_used,
};
