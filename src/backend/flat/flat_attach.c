/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-memory copies: the kernel copies straight between private buffers of two processes. They may be forbidden
 * (Yama, seccomp, namespaces), so each rank tries them with each other when an instance is made and writes its verdict
 * into its area. Methods that use them are chosen when all ranks may and when they cost less: a copy pins the pages
 * that it touches over there, one by one unless they are huge.
 *
 * Writes into a peer's private memory can not be called back: a rank that was stopped between its last look at the peer
 * and the system call writes when it goes on, though the peer's call may have failed and its buffer may be used for
 * something else. So a rank looks right before each write, and where the option `survives` is set, no rank ever writes
 * (docs/flat.md: what that costs). */
#include "backend/flat/flat.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#define LEAST_BYTES ((size_t)4 << 10) /* least block: below, copies through staging never lose */

/* ---- whether they are allowed ---- */

/* The page map of this process, below 0 if there is none. */
static int pages_open(struct tutti_backend_host *host)
{
    pthread_mutex_lock(&host->lock);
    if (host->pagemap == 0) host->pagemap = 1 + open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    int fd = host->pagemap - 1;
    pthread_mutex_unlock(&host->lock);
    return fd;
}

static ssize_t copy(int32_t pid, void *here, uint64_t there, size_t bytes, bool write)
{
    const struct iovec local = {here, bytes}, remote = {(void *)(uintptr_t)there, bytes};
    return write ? process_vm_writev(pid, &local, 1, &remote, 1, 0) : process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

/* The token proves that it is that process. */
static bool is_allowed(const struct flat_instance *inst, uint32_t peer, uint64_t memory)
{
    const struct flat_attach *attach = &inst->areas[peer]->attach;
    uint64_t at = memory + offsetof(struct flat_memory, area.attach), token = 0, expected = attach->token;
    if (expected == 0) return false;
    if (copy(inst->pids[peer], &token, at + offsetof(struct flat_attach, token), sizeof(token), false) !=
            (ssize_t)sizeof(token) ||
        token != expected)
        return false;
    if (inst->survives) return true; /* nobody writes */
    return copy(inst->pids[peer], &token, at + offsetof(struct flat_attach, tried), sizeof(token), true) ==
               (ssize_t)sizeof(token) &&
           atomic_load(&attach->tried) == expected;
}

void flat_attach_open(struct flat_instance *inst)
{
    struct flat_attach *own = &inst->memories[inst->me]->area.attach;
    inst->attach = !inst->addresses && tutti_random_bytes(&own->token, sizeof(own->token)) >= 0;
    inst->pagemap = -1;
}

void flat_attach_try(struct flat_instance *inst, uint32_t peer, uint64_t memory)
{
    if (inst->attach && peer != inst->me) inst->attach = is_allowed(inst, peer, memory);
}

void flat_attach_publish(struct flat_instance *inst)
{
    if (inst->attach) inst->pagemap = pages_open(inst->host);
    atomic_store(&inst->areas[inst->me]->attach.verdict, inst->attach ? FLAT_ALLOWED : FLAT_FORBIDDEN);
}

/* Whether all ranks may copy from and to all; false until all have tried. */
static bool all_may(struct flat_instance *inst)
{
    for (uint32_t r = 0; r < inst->n && inst->attach && !inst->attach_all; r++) {
        uint32_t verdict = atomic_load_explicit(&inst->areas[r]->attach.verdict, memory_order_relaxed);
        if (verdict == FLAT_FORBIDDEN) inst->attach = false;
        if (verdict != FLAT_ALLOWED) return false;
    }
    return inst->attach_all = inst->attach;
}

/* ---- Whether a buffer lies in huge pages: the kernel is asked (PAGEMAP_SCAN, Linux 6.7) about a few places of it, and
 * the answer is kept for some calls, for it may change and a wrong one costs nothing but time. ---- */

#define PAGE ((uint64_t)4096)
#define PLACES 4
#define USES 64

/* From <linux/fs.h>, which many systems have from before. */
struct region {
    uint64_t start, end, categories;
};
struct question {
    uint64_t size, flags, start, end, walk_end, regions, n_regions, max_pages;
    uint64_t inverted, all_of, any_of, returned;
};
#define SCAN _IOWR('f', 16, struct question)
#define IS_HUGE (UINT64_C(1) << 6)

static bool is_huge(int pagemap, uintptr_t address)
{
    struct region region;
    struct question question = {
        /* the kernel writes into it where it stopped */
        .size = sizeof(question),
        .start = address / PAGE * PAGE,
        .end = address / PAGE * PAGE + PAGE,
        .regions = (uintptr_t)&region,
        .n_regions = 1,
        .max_pages = 1,
        .all_of = IS_HUGE,
        .returned = IS_HUGE,
    };
    return ioctl(pagemap, SCAN, &question) == 1;
}

static bool are_huge(int pagemap, uintptr_t at, size_t bytes)
{
    for (size_t i = 0; i < PLACES; i++)
        if (!is_huge(pagemap, at + bytes / (2 * PLACES) * (2 * i + 1))) return false;
    return true;
}

/* What is known of a buffer, or the place for it. Buffers in huge pages are alike in the low bits of addresses. */
static struct flat_pages *place_of(struct flat_instance *inst, uintptr_t at, size_t bytes)
{
    for (size_t i = 0; i < FLAT_PAGES; i++)
        if (inst->pages[i].at == at && inst->pages[i].bytes == bytes) return &inst->pages[i];
    return &inst->pages[inst->n_pages++ % FLAT_PAGES];
}

bool flat_pages_huge(struct flat_instance *inst, const void *buffer, size_t bytes)
{
    uintptr_t at = (uintptr_t)buffer;
    if (bytes == 0) return true;
    if (inst->pagemap < 0) return false;
    struct flat_pages *known = place_of(inst, at, bytes);
    if (known->at != at || known->bytes != bytes || known->uses == 0)
        *known = (struct flat_pages){at, bytes, USES, are_huge(inst->pagemap, at, bytes)};
    known->uses--;
    return known->huge;
}

/* ---- whether they pay ---- */

/* What others touch of a rank's buffers. */
static const struct {
    bool send, recv;
} touched[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {true, true},  [TUTTI_REDUCE] = {true, true},          [TUTTI_BROADCAST] = {true, true},
    [TUTTI_ALL_GATHER] = {true, false}, [TUTTI_GATHER] = {false, true},         [TUTTI_SCATTER] = {true, false},
    [TUTTI_ALL_TO_ALL] = {true, false}, [TUTTI_REDUCE_SCATTER] = {true, false},
};

uint64_t flat_attach_facts(struct flat_op *op, uint64_t mapped)
{
    struct flat_instance *inst = op->inst;
    enum tutti_kind kind = op->call.info.kind;
    const bool used = touched[kind].send || touched[kind].recv;
    if (!used || (op->bytes < LEAST_BYTES && !flat_is_wanted(inst, &op->call, "attach"))) return 0;
    if (!all_may(inst)) return 0;
    bool send = touched[kind].send && !(mapped & FLAT_SEND_MAPPED);
    bool recv = touched[kind].recv && !(mapped & FLAT_RECV_MAPPED);
    bool huge = flat_pages_huge(inst, op->send, send ? flat_send_bytes(op) : 0) &&
                flat_pages_huge(inst, op->recv, recv ? flat_recv_bytes(op) : 0);
    return huge ? FLAT_ATTACHABLE | FLAT_HUGE : FLAT_ATTACHABLE;
}

/* A push into a page that its owner has not touched yet takes the kernel some fifty times as long as the owner's own
 * fault, and nobody can tell whether an output is new: so before others are told of it, it is touched. */
static void touch(volatile unsigned char *out, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += FLAT_PAGE_BYTES) out[at] = out[at];
    if (bytes > 0) out[bytes - 1] = out[bytes - 1];
}

/* Only what is written to: of a gather the others' blocks, between which there may be gaps; of a broadcast between two
 * the leaf's second half. */
void flat_attach_touch(const struct flat_op *op)
{
    enum tutti_kind kind = op->call.info.kind;
    const struct flat_instance *inst = op->inst;
    size_t at, half = op->bytes / 2 / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE;
    bool root = tutti_kind_info(kind)->rooted && flat_is_root(op);
    if (op->facts & (FLAT_RECV_MAPPED | FLAT_HUGE)) return;
    if (inst->survives) return; /* nobody writes */
    if (kind == TUTTI_ALL_REDUCE || (kind == TUTTI_REDUCE && root)) touch(op->recv, op->bytes);
    if (kind == TUTTI_BROADCAST && !root && inst->n == 2) touch(op->recv + half, op->bytes - half);
    for (uint32_t r = 0; kind == TUTTI_GATHER && root && r < inst->n; r++) {
        size_t bytes = flat_block(op, r, &at);
        if (r != inst->me) touch(op->recv + at, bytes);
    }
}

/* ---- Cross-memory copies that the kernel refuses in the middle of a call, since the rights of a process have changed:
 * its peer copies for it, through staging memory. A rank asks one peer at a time for one piece: to get it, which the
 * peer puts into its own staging memory, or to give it, which the peer takes from this rank's: places of their own, for
 * others may still read what earlier calls have left in the slots. Who waits for others, at the end of its part or for
 * an answer, serves. From then on the rank's posts say that it can not attach. ---- */

static unsigned char *ask_bytes_of(const struct flat_instance *inst, uint32_t rank)
{
    return inst->staging[rank] + 2 * FLAT_SLOTS * inst->chunk;
}
static unsigned char *answer_bytes_of(const struct flat_instance *inst, uint32_t rank)
{
    return ask_bytes_of(inst, rank) + FLAT_ASK_BYTES;
}

/* ---- serving ---- */

/* The word of the ask of a rank that waits for this one's answer; 0: there is none. */
static uint64_t asked(const struct flat_op *op, uint32_t rank)
{
    const struct flat_instance *inst = op->inst;
    const struct flat_ask *ask = &inst->areas[rank]->ask;
    const uint64_t word = atomic_load_explicit(&ask->word, memory_order_acquire);
    if (word % FLAT_ASK_PEER != inst->me || rank == inst->me) return 0;
    if (word <= atomic_load_explicit(&inst->areas[inst->me]->answered[rank], memory_order_relaxed)) return 0;
    return atomic_load_explicit(&ask->operation, memory_order_relaxed) == op->number ? word : 0;
}

bool flat_is_asked(const struct flat_op *op)
{
    for (uint32_t r = 0; r < op->inst->n; r++)
        if (asked(op, r)) return true;
    return false;
}

static bool has_taken(const struct flat_instance *inst, uint32_t rank)
{
    const uint64_t answered = atomic_load_explicit(&inst->areas[inst->me]->answered[rank], memory_order_relaxed);
    return atomic_load_explicit(&inst->areas[rank]->ask.taken, memory_order_acquire) >= answered;
}

/* What is asked is checked against the own buffers. From now on this rank's posts say that others can not attach, since
 * of some kinds one post counts. */
static void answer(struct flat_op *op, uint32_t rank, uint64_t word)
{
    struct flat_instance *inst = op->inst;
    const struct flat_ask *ask = &inst->areas[rank]->ask;
    const uint64_t at = atomic_load_explicit(&ask->at, memory_order_relaxed);
    const uint64_t bytes = atomic_load_explicit(&ask->bytes, memory_order_relaxed);
    const enum flat_copied what = (enum flat_copied)atomic_load_explicit(&ask->copy, memory_order_relaxed);
    const size_t whole = what == FLAT_READ_INPUT ? flat_send_bytes(op) : flat_recv_bytes(op);
    if (bytes > FLAT_ASK_BYTES || bytes > whole || at > whole - bytes)
        word |= FLAT_ASK_REFUSED;
    else if (what == FLAT_WRITE_RESULT)
        memcpy(op->recv + at, ask_bytes_of(inst, rank), bytes);
    else
        memcpy(answer_bytes_of(inst, inst->me), (what == FLAT_READ_INPUT ? op->send : op->recv) + at, bytes);
    inst->attach = inst->attach_all = false;
    inst->served = rank + 1;
    flat_publish(op, &inst->areas[inst->me]->answered[rank], word);
}

bool flat_serve(struct flat_op *op)
{
    struct flat_instance *inst = op->inst;
    for (uint32_t i = 1; i < inst->n; i++) {
        const uint32_t r = flat_after(inst, i);
        const uint64_t word = asked(op, r);
        if (word == 0) continue;
        if (inst->served > 0 && !has_taken(inst, inst->served - 1)) return false;
        answer(op, r, word);
    }
    return inst->served == 0 || has_taken(inst, inst->served - 1);
}

/* ---- asking ---- */

/* The peer may sleep until somebody else has come. */
static void ask(struct flat_op *op, uint32_t peer, size_t at, size_t bytes, enum flat_copied what)
{
    struct flat_instance *inst = op->inst;
    struct flat_ask *own = &inst->areas[inst->me]->ask;
    atomic_store_explicit(&own->operation, op->number, memory_order_relaxed);
    atomic_store_explicit(&own->at, at, memory_order_relaxed);
    atomic_store_explicit(&own->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&own->copy, what, memory_order_relaxed);
    const uint64_t number = atomic_load_explicit(&own->word, memory_order_relaxed) / FLAT_ASK_PEER + 1;
    flat_publish(op, &own->word, number * FLAT_ASK_PEER + peer);
    for (uint32_t r = 0; r < inst->n; r++) flat_wake(inst->areas[r]);
}

static enum tutti_advance refused(uint32_t peer)
{
    tutti_fail(TUTTI_ERR_PROTOCOL, "rank %u has no such bytes as are asked of it", peer);
    return TUTTI_RUN_FAILED;
}

static enum tutti_advance ask_for(struct flat_op *op, uint32_t peer, unsigned char *here, size_t at, size_t bytes,
                                  enum flat_copied what)
{
    struct flat_instance *inst = op->inst;
    struct flat_ask *own = &inst->areas[inst->me]->ask;
    inst->attach = inst->attach_all = false;
    while (inst->asked < bytes) {
        const size_t left = bytes - inst->asked, some = left < FLAT_ASK_BYTES ? left : FLAT_ASK_BYTES;
        if (!inst->asks) {
            if (what == FLAT_WRITE_RESULT) memcpy(ask_bytes_of(inst, inst->me), here + inst->asked, some);
            ask(op, peer, at + inst->asked, some, what);
            inst->asks = true;
        }
        flat_serve(op);
        const _Atomic uint64_t *answered = &inst->areas[peer]->answered[inst->me];
        const uint64_t word = atomic_load_explicit(&own->word, memory_order_relaxed);
        if (!flat_reached(op, peer, answered, word)) return TUTTI_RUN_BLOCKED;
        if (atomic_load_explicit(answered, memory_order_relaxed) & FLAT_ASK_REFUSED) return refused(peer);
        if (what != FLAT_WRITE_RESULT) memcpy(here + inst->asked, answer_bytes_of(inst, peer), some);
        flat_publish(op, &own->taken, word);
        inst->asks = false;
        inst->asked += some;
    }
    if (!flat_serve(op)) return TUTTI_RUN_BLOCKED; /* what this rank answered has its place until it is taken */
    inst->asked = 0;
    return TUTTI_RUN_DONE;
}

/* ---- copies ---- */

static bool is_refused(int error)
{
    return error == EPERM || error == EACCES || error == ENOSYS;
}

/* The peer gave up, or a failure was raised: nothing is written to its memory any more, and the engine will hear of it.
 */
static enum tutti_advance gone(struct flat_op *op, uint32_t peer)
{
    op->awaited = peer;
    return TUTTI_RUN_BLOCKED;
}

/* From `at` on in a buffer of the peer, which is at `address` over there. */
static enum tutti_advance copy_all(struct flat_op *op, uint32_t peer, unsigned char *here, uint64_t address, size_t at,
                                   size_t bytes, enum flat_copied what)
{
    const bool write = what == FLAT_WRITE_RESULT;
    size_t done = 0;
    bool asking = op->inst->asks || op->inst->asked > 0;
    while (done < bytes) {
        if (write && !flat_is_intact(op, peer)) return gone(op, peer);
        ssize_t n = asking ? -1 : copy(op->inst->pids[peer], here + done, address + at + done, bytes - done, write);
        if (n > 0) {
            done += (size_t)n;
        } else if (asking || (n < 0 && is_refused(errno))) {
            return ask_for(op, peer, here, at, bytes, what); /* from the start, as it begins again where it waits */
        } else if (n < 0 && errno == ESRCH && !flat_reached(op, peer, &op->inst->areas[peer]->done, op->number)) {
            return TUTTI_RUN_BLOCKED; /* it is dead, which the engine will learn */
        } else if (n == 0 || errno != EINTR) {
            tutti_fail_errno(TUTTI_ERR_SYSTEM, "%zu bytes can not be copied %s rank %u (process %d)", bytes,
                             write ? "to" : "from", peer, (int)op->inst->pids[peer]);
            return TUTTI_RUN_FAILED;
        }
    }
    return TUTTI_RUN_DONE;
}

/* A buffer that is mapped is not copied by the kernel: the post has an offset in place of an address. */
static enum tutti_advance copy_mapped(const struct flat_op *op, uint32_t peer, unsigned char *here, size_t at,
                                      size_t bytes, enum flat_copied what)
{
    unsigned char *there = flat_peer_part(op, peer, what == FLAT_READ_INPUT, at, bytes);
    if (!there) return flat_lost();
    memcpy(what == FLAT_WRITE_RESULT ? there : here, what == FLAT_WRITE_RESULT ? here : there, bytes);
    return TUTTI_RUN_DONE;
}

static enum tutti_advance copy_part(struct flat_op *op, uint32_t peer, unsigned char *here, size_t at, size_t bytes,
                                    enum flat_copied what)
{
    const struct flat_post *post = flat_post_of(op, peer);
    uint64_t facts = atomic_load_explicit(&post->facts, memory_order_relaxed);
    const bool input = what == FLAT_READ_INPUT;
    uint64_t address = atomic_load_explicit(input ? &post->send : &post->recv, memory_order_relaxed);
    if (facts & (input ? FLAT_SEND_MAPPED : FLAT_RECV_MAPPED)) return copy_mapped(op, peer, here, at, bytes, what);
    return copy_all(op, peer, here, address, at, bytes, what);
}

enum tutti_advance flat_attach_read(struct flat_op *op, uint32_t peer, void *here, size_t at, size_t bytes)
{
    return copy_part(op, peer, here, at, bytes, FLAT_READ_INPUT);
}

enum tutti_advance flat_attach_result(struct flat_op *op, uint32_t peer, void *here, size_t at, size_t bytes)
{
    return copy_part(op, peer, here, at, bytes, FLAT_READ_RESULT);
}

enum tutti_advance flat_attach_write(struct flat_op *op, uint32_t peer, const void *here, size_t at, size_t bytes)
{
    return copy_part(op, peer, (unsigned char *)(uintptr_t)here, at, bytes, FLAT_WRITE_RESULT);
}
