/* SPDX-License-Identifier: BSD-3-Clause */
/* Questions of who is no member: both sides. A row is written by one side at a time: the asker moves `wanted` when its
 * question is there, the member moves `answered` up to it when its answer is. */

#include "control/asks.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define SERVED_NS (2 * TUTTI_NS_PER_S) /* a member that has not looked for so long does not answer: it is stopped */

static void words_put(_Atomic uint64_t *to, const void *from, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++) {
        uint64_t word;
        memcpy(&word, (const char *)from + 8 * i, 8);
        atomic_store_explicit(&to[i], word, memory_order_relaxed);
    }
}

static void words_get(void *to, const _Atomic uint64_t *from, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++) {
        uint64_t word = atomic_load_explicit(&from[i], memory_order_relaxed);
        memcpy((char *)to + 8 * i, &word, 8);
    }
}

/* ---- who is who ---- */

void tutti_who_write(struct tutti_control *c, const struct tutti_who *who)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    struct tutti_host_life *life = &host->lives[c->me];
    words_put(life->host, who->host, TUTTI_WHO_HOST / 8);
    atomic_store_explicit(&life->world, who->world, memory_order_relaxed);
    atomic_store_explicit(&life->member, who->member, memory_order_relaxed);
    atomic_store_explicit(&life->n_members, who->n, memory_order_release);
}

bool tutti_who_read(const struct tutti_host_control *host, uint32_t local, struct tutti_who *out)
{
    if (local >= host->base.n) return false;
    const struct tutti_host_life *life = &host->lives[local];
    struct tutti_who who = {.n = atomic_load_explicit(&life->n_members, memory_order_acquire)};
    who.member = atomic_load_explicit(&life->member, memory_order_relaxed);
    who.world = atomic_load_explicit(&life->world, memory_order_relaxed);
    words_get(who.host, life->host, TUTTI_WHO_HOST / 8);
    who.host[sizeof who.host - 1] = '\0';
    if (who.n < host->base.n || who.member >= who.n) return false;
    *out = who;
    return true;
}

/* ---- the asker ---- */

bool tutti_asks_served(const struct tutti_host_control *host, uint32_t local, uint64_t now)
{
    const uint64_t served = atomic_load_explicit(&host->asks[local].served_ns, memory_order_acquire);
    return served != 0 && now - served < SERVED_NS;
}

bool tutti_asks_take(struct tutti_host_control *host, uint32_t local)
{
    struct tutti_asks *asks = &host->asks[local];
    int32_t asker = atomic_load(&asks->asker);
    if (asker != 0 && asker != host->pid && tutti_process_alive(asker, 0)) return false;
    return atomic_compare_exchange_strong(&asks->asker, &asker, host->pid);
}

void tutti_asks_give(struct tutti_host_control *host, uint32_t local)
{
    int32_t mine = host->pid;
    atomic_compare_exchange_strong(&host->asks[local].asker, &mine, 0);
}

void tutti_asks_put(struct tutti_host_control *host, uint32_t local, uint32_t row, uint32_t peer, uint32_t slot)
{
    struct tutti_asks *asks = &host->asks[local];
    struct tutti_ask_row *at = &asks->rows[row % TUTTI_ASKS_MOST];
    atomic_store_explicit(&at->member, peer, memory_order_relaxed);
    atomic_store_explicit(&at->slot, slot, memory_order_relaxed);
    atomic_store_explicit(&at->asked_ns, tutti_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&at->host[0], 0, memory_order_relaxed); /* left from the question before */
    atomic_fetch_add_explicit(&at->wanted, 1, memory_order_release);
    atomic_fetch_add_explicit(&asks->asked, 1, memory_order_release);
}

static void row_read(const struct tutti_ask_row *at, struct tutti_ask_answer *out)
{
    const uint32_t life = atomic_load_explicit(&at->life, memory_order_acquire);
    memset(out, 0, sizeof *out);
    out->life = life > TUTTI_LIFE_UNKNOWN ? TUTTI_LIFE_UNKNOWN : (enum tutti_life)life;
    out->status = TUTTI_PENDING;
    words_get(out->host, at->host, TUTTI_WHO_HOST / 8);
    words_get(out->address, at->address, TUTTI_WHO_ADDRESS / 8);
    out->host[sizeof out->host - 1] = out->address[sizeof out->address - 1] = '\0';
}

bool tutti_asks_get(struct tutti_host_control *host, uint32_t local, uint32_t row, struct tutti_ask_answer *out)
{
    struct tutti_ask_row *at = &host->asks[local].rows[row % TUTTI_ASKS_MOST];
    const uint32_t wanted = atomic_load_explicit(&at->wanted, memory_order_relaxed);
    if (atomic_load_explicit(&at->answered, memory_order_acquire) != wanted) return false;
    row_read(at, out);
    out->status = atomic_load_explicit(&at->known, memory_order_relaxed) == 1 ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED;
    words_get(&out->board, at->board, TUTTI_BOARD_WORDS);
    return true;
}

bool tutti_asks_peek(const struct tutti_host_control *host, uint32_t local, uint32_t row, struct tutti_ask_answer *out)
{
    row_read(&host->asks[local].rows[row % TUTTI_ASKS_MOST], out);
    return out->host[0] != '\0';
}

/* ---- the member ---- */

static enum tutti_status board_look(const struct tutti_ask_row *at, struct tutti_control *world, uint32_t member,
                                    struct tutti_board *out)
{
    const uint32_t slot = atomic_load_explicit(&at->slot, memory_order_relaxed);
    const uint64_t asked_ns = atomic_load_explicit(&at->asked_ns, memory_order_relaxed);
    return world->ops->peek_since ? world->ops->peek_since(world, member, slot, asked_ns, out)
                                  : world->ops->peek(world, member, slot, out);
}

/* False: the board was asked for and is not here yet. */
static bool row_serve(struct tutti_ask_row *at, struct tutti_control *world)
{
    const uint32_t wanted = atomic_load_explicit(&at->wanted, memory_order_acquire);
    if (wanted == atomic_load_explicit(&at->answered, memory_order_relaxed)) return true;
    const uint32_t member = atomic_load_explicit(&at->member, memory_order_relaxed);
    struct tutti_board board = {.state = TUTTI_BOARD_EMPTY};
    enum tutti_status status = TUTTI_ERR_UNSUPPORTED;
    enum tutti_life life = TUTTI_LIFE_UNKNOWN;
    char host[TUTTI_WHO_HOST + 64] = "", address[TUTTI_WHO_ADDRESS] = "";
    if (member < world->n) {
        status = board_look(at, world, member, &board);
        life = world->ops->life(world, member);
        if (world->ops->host) world->ops->host(world, member, host, sizeof host);
        if (world->ops->address) world->ops->address(world, member, address, sizeof address);
    }
    words_put(at->address, address, TUTTI_WHO_ADDRESS / 8);
    words_put(at->host, host, TUTTI_WHO_HOST / 8);
    atomic_store_explicit(&at->life, life, memory_order_relaxed);
    if (status == TUTTI_PENDING) return false;
    words_put(at->board, &board, TUTTI_BOARD_WORDS);
    atomic_store_explicit(&at->known, status == TUTTI_OK, memory_order_relaxed);
    atomic_store_explicit(&at->answered, wanted, memory_order_release);
    return true;
}

void tutti_asks_serve(struct tutti_control *c, struct tutti_control *world)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    struct tutti_asks *asks = &host->asks[c->me];
    atomic_store_explicit(&asks->served_ns, tutti_now_ns(), memory_order_release);
    const uint32_t asked = atomic_load_explicit(&asks->asked, memory_order_acquire);
    if (asked == atomic_load_explicit(&asks->served, memory_order_relaxed)) return;
    bool all = true;
    for (uint32_t i = 0; i < TUTTI_ASKS_MOST; i++) all &= row_serve(&asks->rows[i], world);
    if (all) atomic_store_explicit(&asks->served, asked, memory_order_relaxed);
}
