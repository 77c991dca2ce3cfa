/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at the ranks of a world: those of this host in the memory that they share, which needs no help of theirs; all
 * others through a rank of this host that answers. */

#include "doctor.h"

#include "base/clock.h"

#include <string.h>

#define LOCAL_NS (50 * TUTTI_NS_PER_MS)    /* between two looks at ranks of this host alone */
#define ANSWER_NS (1500 * TUTTI_NS_PER_MS) /* so long an answer may take */
#define POLL_NS (5 * TUTTI_NS_PER_MS)

enum tutti_status doctor_world_look_add(struct doctor_world *world, uint64_t at_ns)
{
    if (world->n_looks == DOCTOR_LOOKS) return tutti_fail(TUTTI_ERR_ARGUMENT, "more than %d looks", DOCTOR_LOOKS);
    struct doctor_rank *ranks = tutti_alloc_array(world->n, sizeof *ranks);
    if (!ranks) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a look at %u ranks", world->n);
    for (uint32_t i = 0; i < world->n; i++) ranks[i].life = TUTTI_LIFE_UNKNOWN;
    world->at_ns[world->n_looks] = at_ns;
    world->looks[world->n_looks++] = ranks;
    return TUTTI_OK;
}

void doctor_world_fini(struct doctor_world *world)
{
    for (uint32_t i = 0; i < world->n_looks; i++) tutti_free(world->looks[i]);
    world->n_looks = 0;
}

uint32_t doctor_worlds(const struct doctor_found *found, struct doctor_world *out, uint32_t capacity)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < found->n; s++) {
        for (uint32_t i = 0; i < found->segments[s]->base.n; i++) {
            struct tutti_who who;
            bool known = !tutti_who_read(found->segments[s], i, &who);
            for (uint32_t w = 0; w < n && !known; w++) known = out[w].world == who.world;
            if (known || n == capacity) continue;
            out[n] = (struct doctor_world){.world = who.world, .n = who.n};
            n++;
        }
    }
    return n;
}

/* ---- one rank ---- */

/* The k-th board in use; whether there may be more. */
static bool board_add(struct doctor_rank *rank, const struct tutti_board *board, uint64_t now)
{
    rank->known = true;
    rank->pid = board->pid, rank->process = (char)board->process;
    if (board->state != TUTTI_BOARD_IN_USE || rank->n_boards == DOCTOR_BOARDS) return false;
    struct tutti_board *b = &rank->boards[rank->n_boards++];
    *b = *board;
    uint64_t *times[] = {&b->called_ns, &b->since_ns, &b->letter_ns};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(times); i++)
        if (*times[i]) *times[i] = *times[i] < now ? now - *times[i] : 1;
    return rank->n_boards < DOCTOR_BOARDS;
}

static void local_look(struct tutti_host_control *host, uint32_t local, const struct tutti_who *who,
                       struct doctor_rank *rank)
{
    struct tutti_board board;
    rank->life = host->base.ops->life(&host->base, local);
    snprintf(rank->host, sizeof rank->host, "%s", who->host);
    for (uint32_t k = 0; k < DOCTOR_BOARDS; k++)
        if (host->base.ops->peek(&host->base, local, TUTTI_BOARD_NTH + k, &board) < 0 ||
            !board_add(rank, &board, tutti_now_ns()))
            return;
}

/* ---- ranks of other hosts ---- */

/* Asks for the k-th board of those that are listed, and removes those that have no more. */
static void batch_ask(struct tutti_host_control *host, uint32_t local, struct doctor_rank *ranks, uint32_t *members,
                      uint32_t *n, uint32_t k)
{
    bool answered[TUTTI_ASKS_MOST] = {false};
    uint32_t left = *n, kept = 0;
    const uint64_t deadline = tutti_deadline_ns(ANSWER_NS);
    bool more[TUTTI_ASKS_MOST] = {false};
    for (uint32_t i = 0; i < *n; i++) tutti_asks_put(host, local, i, members[i], TUTTI_BOARD_NTH + k);
    while (left > 0 && tutti_now_ns() < deadline) {
        for (uint32_t i = 0; i < *n; i++) {
            struct tutti_ask_answer answer;
            if (answered[i] || !tutti_asks_get(host, local, i, &answer)) continue;
            struct doctor_rank *rank = &ranks[members[i]];
            answered[i] = true, left--;
            rank->life = answer.life;
            snprintf(rank->host, sizeof rank->host, "%s", answer.host);
            snprintf(rank->address, sizeof rank->address, "%s", answer.address);
            more[i] = answer.status == TUTTI_OK && board_add(rank, &answer.board, tutti_now_ns());
        }
        if (left > 0) tutti_clock_sleep(NULL, POLL_NS);
    }
    for (uint32_t i = 0; i < *n; i++) {
        struct doctor_rank *rank = &ranks[members[i]];
        struct tutti_ask_answer answer;
        if (!answered[i] && tutti_asks_peek(host, local, i, &answer)) {
            rank->life = answer.life;
            snprintf(rank->host, sizeof rank->host, "%s", answer.host);
            snprintf(rank->address, sizeof rank->address, "%s", answer.address);
        }
        if (more[i]) members[kept++] = members[i];
    }
    *n = kept;
}

/* All ranks that are on other hosts, through this one. */
static void others_ask(struct tutti_host_control *host, uint32_t local, struct doctor_world *world,
                       struct doctor_rank *ranks)
{
    uint32_t members[TUTTI_ASKS_MOST], n;
    for (uint32_t next = 0; next < world->n;) {
        for (n = 0; next < world->n && n < TUTTI_ASKS_MOST; next++)
            if (!ranks[next].known) members[n++] = next;
        for (uint32_t k = 0; k < DOCTOR_BOARDS && n > 0; k++) batch_ask(host, local, ranks, members, &n, k);
    }
}

static bool can_answer(const struct tutti_host_control *host, uint32_t local, const struct doctor_rank *rank)
{
    return rank->life == TUTTI_LIFE_ALIVE && rank->process != 'T' && rank->process != 't' &&
           tutti_asks_served(host, local, tutti_now_ns());
}

static void world_look(const struct doctor_found *found, struct doctor_world *world, struct doctor_rank *ranks)
{
    uint32_t seen = 0, before = 0;
    for (uint32_t s = 0; s < found->n; s++, before = seen)
        for (uint32_t i = 0; i < found->segments[s]->base.n; i++) {
            struct tutti_who who;
            if (!tutti_who_read(found->segments[s], i, &who) || who.world != world->world || who.member >= world->n)
                continue;
            local_look(found->segments[s], i, &who, &ranks[who.member]);
            seen++;
            world->one_host = seen - before == world->n;
        }
    for (uint32_t s = 0; s < found->n && seen < world->n; s++)
        for (uint32_t i = 0; i < found->segments[s]->base.n; i++) {
            struct tutti_who who;
            if (!tutti_who_read(found->segments[s], i, &who) || who.world != world->world || who.member >= world->n ||
                !can_answer(found->segments[s], i, &ranks[who.member]) || !tutti_asks_take(found->segments[s], i))
                continue;
            others_ask(found->segments[s], i, world, ranks);
            tutti_asks_give(found->segments[s], i);
            return;
        }
}

enum tutti_status doctor_look(const struct doctor_found *found, struct doctor_world *world, uint64_t watch_ns)
{
    const uint64_t begin = tutti_now_ns(), gap = watch_ns / (DOCTOR_LOOKS - 1), step = gap > LOCAL_NS ? gap : LOCAL_NS;
    for (uint64_t at = 0;; at = tutti_now_ns() - begin) {
        TUTTI_TRY(doctor_world_look_add(world, at));
        world_look(found, world, world->looks[world->n_looks - 1]);
        const uint64_t past = tutti_now_ns() - begin;
        if (past >= watch_ns || world->n_looks == DOCTOR_LOOKS) return TUTTI_OK;
        tutti_clock_sleep(NULL, watch_ns - past < step ? watch_ns - past : step);
    }
}
