/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls on memory that this process maps: copies, atomics and stores on the caller's thread. A signal is a
 * release, a wait an acquire; so who has seen a signal sees what its sender saw, and wrote, before. */
#include "comm/window/window.h"
#include "device/cpu/copy.h"
#include "engine/flight/onesided.h"

#include <inttypes.h>
#include <string.h>

#define LOOK_EVERY 64 /* calls: a look costs as much as ten of them */
#define SPINS 1024    /* looks at a word, before the engine is asked; */
#define HASTY 128     /* so many of them at once */

/* ---- data ---- */

/* Words are written and read as one, so that who races for them sees the old one or the new one. */
static bool is_word(const void *pointer, size_t bytes)
{
    return bytes == sizeof(uint64_t) && (uintptr_t)pointer % sizeof(uint64_t) == 0;
}

static void copy(unsigned char *to, const unsigned char *from, size_t bytes)
{
    const size_t apart = to > from ? (size_t)(to - from) : (size_t)(from - to);
    if (bytes >= TUTTI_PAST_CACHE_BYTES && apart >= bytes)
        tutti_copy_past_cache(to, from, bytes);
    else if (bytes > 0)
        memmove(to, from, bytes);
}

static void write_to(const struct tutti_window *window, const struct tutti_access *access)
{
    unsigned char *to = window->peers[access->peer].address + access->offset;
    uint64_t word;
    if (access->bytes == 0) return;
    if (!is_word(to, access->bytes)) {
        copy(to, access->source, access->bytes);
        return;
    }
    memcpy(&word, access->source, sizeof word);
    atomic_store_explicit((_Atomic uint64_t *)(void *)to, word, memory_order_relaxed);
}

static void read_from(const struct tutti_window *window, const struct tutti_access *access)
{
    unsigned char *from = window->peers[access->peer].address + access->offset;
    uint64_t word;
    if (access->bytes == 0) return;
    if (!is_word(from, access->bytes)) {
        copy(access->dest, from, access->bytes);
        return;
    }
    word = atomic_load_explicit((_Atomic uint64_t *)(void *)from, memory_order_relaxed);
    memcpy(access->dest, &word, sizeof word);
}

/* ---- signals ---- */

static void change_signal(const struct tutti_window *window, const struct tutti_access *access)
{
    const struct tutti_signal_info *signal = access->signal;
    _Atomic uint64_t *word = tutti_signal_of(window, (uint32_t)access->peer, signal->index);
    if (signal->op == TUTTI_SIGNAL_SET)
        atomic_store_explicit(word, signal->value, memory_order_release);
    else
        atomic_fetch_add_explicit(word, signal->value, memory_order_acq_rel);
    tutti_bell_ring(&window->peers[access->peer].pad->bell);
}

/* ---- the calls, by kind ---- */

typedef enum tutti_status (*direct_function)(struct tutti_window *window, struct tutti_comm *comm,
                                             const struct tutti_access *access);

static enum tutti_status put(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access)
{
    (void)comm;
    write_to(window, access);
    return TUTTI_OK;
}

static enum tutti_status put_signal(struct tutti_window *window, struct tutti_comm *comm,
                                    const struct tutti_access *access)
{
    (void)comm;
    write_to(window, access);
    change_signal(window, access);
    return TUTTI_OK;
}

static enum tutti_status get(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access)
{
    (void)comm;
    read_from(window, access);
    return TUTTI_OK;
}

static enum tutti_status signal(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access)
{
    (void)comm;
    change_signal(window, access);
    return TUTTI_OK;
}

static enum tutti_status wait_for(struct tutti_window *window, struct tutti_comm *comm,
                                  const struct tutti_access *access)
{
    const _Atomic uint64_t *word = tutti_signal_of(window, window->me, access->signal->index);
    /* What comes by messages the engine brings. */
    const uint32_t spins = access->work || window->far || comm->family->world.crowded ? 1 : SPINS;
    for (uint32_t i = 0; i < spins; i++) {
        const uint64_t now = atomic_load_explicit(word, memory_order_acquire);
        if (tutti_compare_holds(now, access->compare, access->signal->value)) return TUTTI_OK;
        if (i >= HASTY) tutti_cpu_relax();
    }
    return TUTTI_AGAIN;
}

static enum tutti_status read_signal(struct tutti_window *window, struct tutti_comm *comm,
                                     const struct tutti_access *access)
{
    (void)comm;
    const _Atomic uint64_t *word = tutti_signal_of(window, window->me, access->signal->index);
    *access->before = atomic_load_explicit(word, memory_order_acquire);
    return TUTTI_OK;
}

static enum tutti_status write_signal(struct tutti_window *window, struct tutti_comm *comm,
                                      const struct tutti_access *access)
{
    (void)comm;
    _Atomic uint64_t *word = tutti_signal_of(window, window->me, access->signal->index);
    atomic_store_explicit(word, access->signal->value, memory_order_release);
    tutti_bell_ring(&window->pad->pad->bell);
    return TUTTI_OK;
}

static _Atomic uint64_t *word_of(const struct tutti_window *window, const struct tutti_access *access)
{
    return (_Atomic uint64_t *)(void *)(window->peers[access->peer].address + access->offset);
}

static enum tutti_status add(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access)
{
    (void)comm;
    *access->before = atomic_fetch_add(word_of(window, access), access->value);
    return TUTTI_OK;
}

static enum tutti_status swap(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access)
{
    (void)comm;
    uint64_t before = access->expected;
    atomic_compare_exchange_strong(word_of(window, access), &before, access->value);
    *access->before = before;
    return TUTTI_OK;
}

/* What was stored is where others look, once it has left this processor. */
static enum tutti_status order(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access)
{
    (void)comm;
    const bool all = access->kind == TUTTI_ACCESS_FENCE || access->peer == TUTTI_ALL_PEERS;
    atomic_thread_fence(memory_order_seq_cst);
    return window->far && all ? TUTTI_AGAIN : TUTTI_OK;
}

static const direct_function functions[TUTTI_N_ACCESSES] = {
    [TUTTI_ACCESS_PUT] = put,
    [TUTTI_ACCESS_PUT_SIGNAL] = put_signal,
    [TUTTI_ACCESS_GET] = get,
    [TUTTI_ACCESS_SIGNAL] = signal,
    [TUTTI_ACCESS_WAIT] = wait_for,
    [TUTTI_ACCESS_READ] = read_signal,
    [TUTTI_ACCESS_WRITE] = write_signal,
    [TUTTI_ACCESS_ADD] = add,
    [TUTTI_ACCESS_SWAP] = swap,
    [TUTTI_ACCESS_FLUSH] = order,
    [TUTTI_ACCESS_FENCE] = order,
};

void tutti_window_direct(struct tutti_window *window, const struct tutti_access *access)
{
    (void)functions[access->kind](window, NULL, access);
}

/* ---- who is reached so, and lives ---- */

/* The rank that the call writes to or reads from in place, or -1. */
static int32_t other_of(const struct tutti_window *window, const struct tutti_access *access)
{
    const bool has = access->kind != TUTTI_ACCESS_WAIT && access->kind != TUTTI_ACCESS_READ &&
                     access->kind != TUTTI_ACCESS_WRITE && access->kind != TUTTI_ACCESS_FENCE;
    return has && (uint32_t)access->peer != window->me ? access->peer : -1;
}

/* Memory of the dead can be written, too: so one looks at every flush of a peer, and now and then. */
static bool is_dead(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access)
{
    const int32_t other = other_of(window, access);
    if (other < 0) return false;
    _Atomic uint32_t *n_calls = &window->peers[other].n_calls;
    const uint32_t n = atomic_load_explicit(n_calls, memory_order_relaxed);
    atomic_store_explicit(n_calls, n + 1, memory_order_relaxed);
    if (n % LOOK_EVERY && access->kind != TUTTI_ACCESS_FLUSH) return false;
    return tutti_team_life(comm->team, (uint32_t)other) == TUTTI_LIFE_DEAD;
}

static enum tutti_status quick(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access)
{
    const int32_t other = other_of(window, access);
    if (comm->device && tutti_access_is_streamed(comm, access)) return TUTTI_AGAIN;
    if (other >= 0 && !window->peers[other].signals) return TUTTI_AGAIN;
    if (is_dead(window, comm, access)) return TUTTI_AGAIN;
    const uint64_t start_ns = access->work ? tutti_now_ns() : 0;
    enum tutti_status status = functions[access->kind](window, comm, access);
    if (status != TUTTI_OK || !access->work) return status;
    return tutti_work_past(comm->team, 0, start_ns, access->work);
}

/* ---- what may wait ---- */

static void end_wait(void *arg, const struct tutti_error *error)
{
    (void)error;
    tutti_pad_drop(arg);
}

static enum tutti_status start_wait(struct tutti_window *window, struct tutti_comm *comm,
                                    const struct tutti_access *access)
{
    struct tutti_work *work = NULL;
    const bool attended = access->options && access->options->attended;
    const struct tutti_one_wait wait = {
        .word = tutti_signal_of(window, window->me, access->signal->index),
        .compare = access->compare,
        .value = access->signal->value,
        .from = access->peer,
        .timeout_ns = tutti_access_timeout(comm, access),
        .signal = access->signal->index,
        .bell = &window->pad->pad->bell,
        .label = tutti_access_label(access),
        .end = end_wait,
        .arg = window->pad,
    };
    tutti_pad_hold(window->pad);
    enum tutti_status status = tutti_engine_wait_word(comm->team, &wait, access->work && !attended, &work);
    if (status < 0) {
        tutti_pad_drop(window->pad);
        return status;
    }
    if (!access->work) return tutti_work_finish(work);
    *access->work = work;
    return TUTTI_OK;
}

static enum tutti_status run(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access)
{
    const int32_t other = other_of(window, access);
    if (comm->device && tutti_access_is_streamed(comm, access))
        return tutti_window_stream_ops.run(window, comm, access);
    if (access->kind == TUTTI_ACCESS_WAIT) return start_wait(window, comm, access);
    if (other >= 0 && tutti_team_life(comm->team, (uint32_t)other) == TUTTI_LIFE_DEAD)
        return tutti_report_one_lost(comm->team, (uint32_t)other, tutti_access_name(access->kind));
    return tutti_window_far(window, comm, access);
}

const struct tutti_window_ops tutti_window_host_ops = {.quick = quick, .run = run};
