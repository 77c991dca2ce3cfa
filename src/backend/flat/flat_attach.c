/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-memory copies: the kernel copies straight between private buffers of two processes. They may be forbidden
 * (Yama, seccomp, namespaces), so each rank tries them with each other when an instance is made and writes its verdict
 * into its area; the ways that use them are taken when all ranks may, and they cost less than others: a copy pins the
 * pages that it touches over there, one by one unless they are huge. */
#include "backend/flat/flat.h"

#include <errno.h>
#include <sys/uio.h>

#define LEAST_BYTES ((size_t)4 << 10) /* of a block: below, copies through staging never lose */

/* ---- whether they are allowed ---- */

static ssize_t copy(int32_t pid, void *here, uint64_t there, size_t bytes, bool write)
{
    const struct iovec local = {here, bytes}, remote = {(void *)(uintptr_t)there, bytes};
    return write ? process_vm_writev(pid, &local, 1, &remote, 1, 0) : process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

/* The token tells that it is that process indeed. */
static bool is_allowed(const struct flat_instance *inst, uint32_t peer, uint64_t memory)
{
    const struct flat_attach *attach = &inst->areas[peer]->attach;
    uint64_t at = memory + offsetof(struct flat_memory, area.attach), token = 0, expected = attach->token;
    if (expected == 0) return false;
    if (copy(inst->pids[peer], &token, at + offsetof(struct flat_attach, token), sizeof(token), false) !=
            (ssize_t)sizeof(token) ||
        token != expected)
        return false;
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

void flat_attach_tell(struct flat_instance *inst)
{
    if (inst->attach) inst->pagemap = flat_pages_open(inst->host);
    atomic_store(&inst->areas[inst->me]->attach.verdict, inst->attach ? FLAT_ALLOWED : FLAT_FORBIDDEN);
}

/* Known once all have tried. */
static bool all_may(struct flat_instance *inst)
{
    for (uint32_t r = 0; r < inst->n && inst->attach && !inst->attach_all; r++) {
        uint32_t verdict = atomic_load_explicit(&inst->areas[r]->attach.verdict, memory_order_relaxed);
        if (verdict == FLAT_FORBIDDEN) inst->attach = false;
        if (verdict != FLAT_ALLOWED) return false;
    }
    return inst->attach_all = inst->attach;
}

/* ---- whether they pay ---- */

/* Whether a method of the kind makes such copies. */
static bool is_used(const struct flat_instance *inst, enum tutti_kind kind)
{
    for (const struct flat_method *const *m = inst->others[kind]; *m; m++)
        if ((*m)->needs & FLAT_ATTACHABLE) return true;
    return false;
}

/* What others touch of a rank's buffers. */
static const struct {
    bool send, recv;
} touched[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {true, true},  [TUTTI_REDUCE] = {true, true},          [TUTTI_BROADCAST] = {true, true},
    [TUTTI_ALL_GATHER] = {true, false}, [TUTTI_GATHER] = {false, true},         [TUTTI_SCATTER] = {true, false},
    [TUTTI_ALL_TO_ALL] = {true, false}, [TUTTI_REDUCE_SCATTER] = {true, false},
};

uint64_t flat_attach_fact(const struct flat_op *op, uint64_t mapped)
{
    struct flat_instance *inst = op->inst;
    enum tutti_kind kind = op->call.info.kind;
    bool named = flat_is_named(inst, &op->call, "attach") || flat_is_named(inst, &op->call, "attach_staged");
    if (!is_used(inst, kind) || (op->bytes < LEAST_BYTES && !named)) return 0;
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
    if (kind == TUTTI_ALL_REDUCE || (kind == TUTTI_REDUCE && root)) touch(op->recv, op->bytes);
    if (kind == TUTTI_BROADCAST && !root && inst->n == 2) touch(op->recv + half, op->bytes - half);
    for (uint32_t r = 0; kind == TUTTI_GATHER && root && r < inst->n; r++) {
        size_t bytes = flat_block(op, r, &at);
        if (r != inst->me) touch(op->recv + at, bytes);
    }
}

/* ---- copies ---- */

static bool is_refused(int error)
{
    return error == EPERM || error == EACCES || error == ENOSYS;
}

/* From `at` on in a buffer of the peer, which is at `address` over there. */
static enum tutti_advance copy_all(struct flat_op *op, uint32_t peer, unsigned char *here, uint64_t address, size_t at,
                                   size_t bytes, bool write)
{
    size_t done = 0;
    bool asking = op->inst->asks || op->inst->asked > 0;
    while (done < bytes) {
        ssize_t n = asking ? -1 : copy(op->inst->pids[peer], here + done, address + at + done, bytes - done, write);
        if (n > 0) {
            done += (size_t)n;
        } else if (asking || (n < 0 && is_refused(errno))) {
            return flat_ask(op, peer, here, at, bytes, write); /* from the start, as it begins again where it waits */
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
                                      size_t bytes, bool write)
{
    unsigned char *there = flat_peer_part(op, peer, !write, at, bytes);
    if (!there) return flat_lost();
    memcpy(write ? there : here, write ? here : there, bytes);
    return TUTTI_RUN_DONE;
}

static enum tutti_advance copy_part(struct flat_op *op, uint32_t peer, unsigned char *here, size_t at, size_t bytes,
                                    bool write)
{
    const struct flat_post *post = flat_post_of(op, peer);
    uint64_t facts = atomic_load_explicit(&post->facts, memory_order_relaxed);
    uint64_t address = atomic_load_explicit(write ? &post->recv : &post->send, memory_order_relaxed);
    if (facts & (write ? FLAT_RECV_MAPPED : FLAT_SEND_MAPPED)) return copy_mapped(op, peer, here, at, bytes, write);
    return copy_all(op, peer, here, address, at, bytes, write);
}

enum tutti_advance flat_attach_read(struct flat_op *op, uint32_t peer, void *here, size_t at, size_t bytes)
{
    return copy_part(op, peer, here, at, bytes, false);
}

enum tutti_advance flat_attach_write(struct flat_op *op, uint32_t peer, const void *here, size_t at, size_t bytes)
{
    return copy_part(op, peer, (unsigned char *)(uintptr_t)here, at, bytes, true);
}
