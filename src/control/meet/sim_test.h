/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MEET_SIM_TEST_H
#define TUTTI_CONTROL_MEET_SIM_TEST_H

/* A meeting in simulated time: no socket, no thread, no sleep. Messages take random times, in order on each connection.
 * sim_begin, guests, sim_run, sim_check. */

#include "test.h"

#include "control/meet/machine.h"

#include <stdio.h>
#include <string.h>

#define MS TUTTI_NS_PER_MS
#define MAX_RANKS 9
#define MAX_GUESTS 24 /* that come to the leader, in all */
#define MAX_MAIL 4096
#define HOST UINT64_C(0x1057)

enum kind { RANK, WRONG_SECRET, OTHER_BUILD, OTHER_SIZE, OTHER_HOST, GARBAGE, SILENT };

struct guest { /* a process that comes to the leader; its number is that of its link */
    enum kind kind;
    struct tutti_meeting_self self;
    struct tutti_meeting_member member;
    uint64_t comes_ns, dies_ns; /* dies: TUTTI_NEVER */
    bool came, dead, unlinked;  /* unlinked: the leader dropped the link, or was told that it ended */
    bool has_memory;
};
struct mail {
    uint64_t at_ns;
    uint32_t guest, n; /* n 0: the connection ended */
    bool to_leader, memory;
    uint8_t bytes[TUTTI_MEETING_FRAME_MAX];
};
struct sim {
    uint64_t now, seed;
    uint32_t n, n_guests, n_mail, n_table; /* n_table: bytes of the table that all get; 0: memory */
    struct tutti_meeting_leader leader;
    struct guest guests[MAX_GUESTS];
    struct mail mail[MAX_MAIL];
    uint64_t last_ns[MAX_GUESTS][2]; /* when the last message came, by direction: they stay in order */
};
struct peer { /* what the callbacks of a guest's machine get */
    struct sim *sim;
    uint32_t guest;
};
static struct sim sim;
static uint8_t table[3 * TUTTI_MEETING_PAYLOAD];
static struct peer peers[MAX_GUESTS];

static inline uint64_t rnd(uint64_t n)
{
    return tutti_random64(&sim.seed) % n;
}

static inline void post(uint32_t guest, bool to_leader, const uint8_t *bytes, size_t n, bool memory)
{
    assert_true(sim.n_mail < MAX_MAIL && n <= TUTTI_MEETING_FRAME_MAX);
    uint64_t at = sim.now + rnd(5) * rnd(10) * MS / 4, *last = &sim.last_ns[guest][to_leader];
    if (at < *last) at = *last;
    *last = at;
    struct mail *m = &sim.mail[sim.n_mail++];
    m->at_ns = at, m->guest = guest, m->n = (uint32_t)n, m->to_leader = to_leader, m->memory = memory;
    if (n) memcpy(m->bytes, bytes, n);
}

/* ---- what the machines ask for ---- */

static inline void leader_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    (void)arg;
    assert_true(link < sim.n_guests && !sim.guests[link].unlinked);
    post(link, false, bytes, n, memory);
}

static inline void leader_drop(void *arg, uint32_t link)
{
    (void)arg;
    assert_false(sim.guests[link].unlinked);
    sim.guests[link].unlinked = true;
    post(link, false, NULL, 0, false);
}

static inline bool leader_ended(void *arg, uint32_t link)
{
    (void)arg;
    return sim.guests[link].dead || sim.guests[link].member.phase == TUTTI_MEMBER_OVER;
}

static inline void guest_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    const struct peer *peer = arg;
    (void)link;
    assert_false(memory);
    post(peer->guest, true, bytes, n, false);
}

static inline enum tutti_status random_bytes(void *arg, void *out, size_t n)
{
    (void)arg;
    for (size_t i = 0; i < n; i++) ((uint8_t *)out)[i] = (uint8_t)rnd(256);
    return TUTTI_OK;
}

static inline uint64_t started(void *arg, int32_t pid)
{
    (void)arg;
    return (uint64_t)pid * 7;
}

static inline bool alive(void *arg, int32_t pid, uint64_t start)
{
    (void)arg;
    assert_true(start == 0 || start == (uint64_t)pid * 7);
    for (uint32_t g = 0; g < sim.n_guests; g++)
        if (sim.guests[g].self.pid == pid) return !sim.guests[g].dead;
    return false;
}

/* ---- the world ---- */

static inline struct tutti_meeting_self self_of(int32_t rank, int32_t pid, const char *secret, uint64_t patience_ns)
{
    return (struct tutti_meeting_self){.rank = rank,
                                       .n_ranks = (int32_t)sim.n,
                                       .pid = pid,
                                       .secret = secret,
                                       .version = "1.2.3",
                                       .build = 1,
                                       .host = HOST,
                                       .deadline_ns = patience_ns};
}

static inline struct guest *guest_add(enum kind kind, int32_t rank, const char *secret, uint64_t patience_ns)
{
    struct guest *g = &sim.guests[sim.n_guests];
    *g = (struct guest){.kind = kind, .dies_ns = TUTTI_NEVER};
    g->self = self_of(rank, 100 + (int32_t)sim.n_guests, secret, patience_ns);
    g->comes_ns = rnd(50) * MS;
    peers[sim.n_guests] = (struct peer){&sim, sim.n_guests};
    sim.n_guests++;
    return g;
}

static inline void sim_begin(uint64_t seed, uint32_t n, const char *secret, uint64_t patience_ns)
{
    const struct tutti_meeting_out out = {NULL, leader_send, leader_drop, leader_ended, random_bytes, started, alive};
    sim.now = 0, sim.seed = seed, sim.n = n, sim.n_guests = sim.n_mail = sim.n_table = 0;
    memset(sim.last_ns, 0, sizeof sim.last_ns);
    const struct tutti_meeting_self self = self_of(0, 99, secret, patience_ns);
    assert_int_equal(tutti_leader_init(&sim.leader, &self, &out, MAX_GUESTS, 0), TUTTI_OK);
}

static inline void guest_come(uint32_t i)
{
    struct guest *g = &sim.guests[i];
    const struct tutti_meeting_out out = {.arg = &peers[i], .send = guest_send, .random = random_bytes};
    uint8_t junk[200];
    g->came = true;
    if (sim.leader.phase != TUTTI_LEADER_GATHERS) { /* nobody listens any more */
        g->unlinked = true;
        g->member.phase = TUTTI_MEMBER_OVER;
        g->member.error.status = TUTTI_AGAIN;
        return;
    }
    tutti_leader_opened(&sim.leader, i, g->self.pid, sim.now);
    if (g->kind == GARBAGE) {
        random_bytes(NULL, junk, sizeof junk);
        if (rnd(2))
            memcpy(junk, (const uint8_t[]){'T', 'U', 'M', 'T', TUTTI_MEETING_VERSION, (uint8_t)rnd(8), 0, 0}, 8);
        post(i, true, junk, 1 + rnd(sizeof junk), false);
    } else if (g->kind != SILENT) {
        tutti_member_begin(&g->member, &g->self, &out);
    }
}

static inline void guest_die(uint32_t i)
{
    struct guest *g = &sim.guests[i];
    g->dead = true;
    if (g->came && !g->unlinked) post(i, true, NULL, 0, false);
    if (g->member.phase != TUTTI_MEMBER_OVER) g->member.phase = TUTTI_MEMBER_OVER, g->member.error.status = TUTTI_AGAIN;
}

/* The table is believed when it is the leader's, to the last bit. */
static inline void table_check(const struct tutti_meeting_member *member)
{
    const uint32_t at = (uint32_t)rnd(sim.n_table);
    assert_int_equal(tutti_member_table_check(member, table, sim.n_table), TUTTI_OK);
    const uint8_t bit = (uint8_t)(1 << rnd(8));
    table[at] ^= bit;
    assert_int_equal(tutti_member_table_check(member, table, sim.n_table), TUTTI_ERR_PROTOCOL);
    table[at] ^= bit;
}

static inline void mail_deliver(struct mail *m)
{
    struct guest *g = &sim.guests[m->guest];
    if (m->to_leader && m->n == 0 && !g->unlinked) {
        g->unlinked = true;
        tutti_leader_closed(&sim.leader, m->guest, sim.now);
    } else if (m->to_leader && !g->unlinked) {
        tutti_leader_received(&sim.leader, m->guest, m->bytes, m->n, sim.now);
        if (g->kind == RANK && rnd(20) == 0 && !g->unlinked) /* a duplicate is refused, or ignored */
            if (sim.leader.phase == TUTTI_LEADER_OVER)
                tutti_leader_received(&sim.leader, m->guest, m->bytes, m->n, sim.now);
    } else if (!m->to_leader && !g->dead && g->kind != GARBAGE && g->kind != SILENT) {
        const enum tutti_member_phase before = g->member.phase;
        if (m->n == 0)
            tutti_member_closed(&g->member);
        else
            tutti_member_received(&g->member, m->bytes, m->n);
        if (g->member.phase == TUTTI_MEMBER_GRANTED && before != TUTTI_MEMBER_GRANTED) {
            assert_true(m->memory && g->member.n_table == sim.n_table);
            if (sim.n_table) table_check(&g->member);
            g->has_memory = true;
            tutti_member_mapped(&g->member, TUTTI_OK);
        } else if (g->member.phase == TUTTI_MEMBER_OVER && before != TUTTI_MEMBER_OVER && !g->unlinked) {
            post(m->guest, true, NULL, 0, false); /* it closes its end */
        }
    }
}

/* One millisecond. */
static inline void sim_step(void)
{
    for (uint32_t i = 0; i < sim.n_guests; i++) {
        struct guest *g = &sim.guests[i];
        if (!g->came && g->comes_ns <= sim.now && g->dies_ns > sim.now) guest_come(i);
        if (g->came && !g->dead && g->dies_ns <= sim.now) guest_die(i);
        const bool was_over = g->member.phase == TUTTI_MEMBER_OVER;
        if (g->came && !g->dead && g->kind != GARBAGE && g->kind != SILENT) tutti_member_tick(&g->member, sim.now);
        if (g->came && !was_over && g->member.phase == TUTTI_MEMBER_OVER && !g->unlinked && !g->dead)
            post(i, true, NULL, 0, false);
    }
    for (uint32_t i = 0; i < sim.n_mail;) {
        if (sim.mail[i].at_ns > sim.now) {
            i++;
            continue;
        }
        static struct mail m;
        m = sim.mail[i];
        memmove(&sim.mail[i], &sim.mail[i + 1], (--sim.n_mail - i) * sizeof m);
        mail_deliver(&m);
        i = 0;
    }
    tutti_leader_tick(&sim.leader, sim.now);
    struct tutti_meeting_grant grant = {.shared = true, .world = 4711, .n_table = sim.n_table};
    assert_int_equal(tutti_meeting_digest(&sim.leader.self, grant.world, table, sim.n_table, grant.digest), TUTTI_OK);
    if (sim.leader.phase == TUTTI_LEADER_DECIDED) tutti_leader_tell(&sim.leader, &grant);
    sim.now += MS;
}

static inline bool is_open(const struct guest *g)
{
    return g->came && !g->dead && g->kind != GARBAGE && g->kind != SILENT && g->member.phase != TUTTI_MEMBER_OVER;
}

/* Until everybody knows; in the end the leader's connections end. */
static inline void sim_run(uint64_t until_ns)
{
    bool open = true;
    while (open && sim.now < until_ns) {
        sim_step();
        open = sim.leader.phase != TUTTI_LEADER_OVER || sim.n_mail > 0;
        if (sim.leader.phase != TUTTI_LEADER_OVER) continue;
        for (uint32_t i = 0; i < sim.n_guests; i++) {
            if (sim.guests[i].came && !sim.guests[i].unlinked && !sim.n_mail) leader_drop(NULL, i);
            open |= is_open(&sim.guests[i]);
        }
    }
    if (open)
        fail_msg("seed %llu: the meeting goes on after %llu ms", (unsigned long long)sim.seed,
                 (unsigned long long)(sim.now / MS));
}

static inline void sim_check(const char *what, uint64_t seed)
{
    const struct tutti_error *verdict = &sim.leader.verdict;
    if (verdict->status < 0 && !verdict->text[0]) fail_msg("%s %llu: no sentence", what, (unsigned long long)seed);
    for (uint32_t i = 0; i < sim.n_guests; i++) {
        const struct guest *g = &sim.guests[i];
        if (!g->came || g->kind == GARBAGE || g->kind == SILENT) continue;
        const struct tutti_error *error = &g->member.error;
        if (g->has_memory && (g->kind != RANK || g->member.world != 4711 || !g->member.shared))
            fail_msg("%s %llu: guest %u (kind %d) was granted something", what, (unsigned long long)seed, i, g->kind);
        if (g->kind == WRONG_SECRET && !g->dead && error->status == TUTTI_OK)
            fail_msg("%s %llu", what, (unsigned long long)seed);
        if (error->status < 0 && !error->text[0])
            fail_msg("%s %llu: guest %u has no sentence", what, (unsigned long long)seed, i);
    }
    if (verdict->status == TUTTI_OK)
        for (int32_t rank = 1; rank < (int32_t)sim.n; rank++) {
            uint32_t n = 0;
            for (uint32_t i = 0; i < sim.n_guests; i++)
                n += sim.guests[i].has_memory && sim.guests[i].self.rank == rank;
            if (n != 1) fail_msg("%s %llu: rank %d is there %u times", what, (unsigned long long)seed, (int)rank, n);
        }
    tutti_leader_fini(&sim.leader);
}

#endif
