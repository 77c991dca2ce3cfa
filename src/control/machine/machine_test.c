/* SPDX-License-Identifier: BSD-3-Clause */

/* Thousands of meetings in a simulation: no socket, no thread, no sleep. Messages take random times, in order on each
 * connection; ranks come late, twice, with another secret, build or number, from another host; they crash and come
 * again; strangers send garbage. Whatever happens, the meeting ends in time; all that are granted are granted the same
 * world; who failed has a sentence; and who leads tells the truth about who is missing. */

#include "test.h"

#include "control/machine/machine.h"

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
    uint64_t last_ns[MAX_GUESTS][2]; /* of the last message, by direction: they stay in order */
};
struct peer { /* what the callbacks of a guest's machine get */
    struct sim *sim;
    uint32_t guest;
};
static struct sim sim;
static uint8_t table[3 * TUTTI_MEETING_PAYLOAD];
static struct peer peers[MAX_GUESTS];

static uint64_t rnd(uint64_t n)
{
    return tutti_random64(&sim.seed) % n;
}

static void post(uint32_t guest, bool to_leader, const uint8_t *bytes, size_t n, bool memory)
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

static void leader_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    (void)arg;
    assert_true(link < sim.n_guests && !sim.guests[link].unlinked);
    post(link, false, bytes, n, memory);
}

static void leader_drop(void *arg, uint32_t link)
{
    (void)arg;
    assert_false(sim.guests[link].unlinked);
    sim.guests[link].unlinked = true;
    post(link, false, NULL, 0, false);
}

static bool leader_ended(void *arg, uint32_t link)
{
    (void)arg;
    return sim.guests[link].dead || sim.guests[link].member.phase == TUTTI_MEMBER_OVER;
}

static void guest_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    const struct peer *peer = arg;
    (void)link;
    assert_false(memory);
    post(peer->guest, true, bytes, n, false);
}

static enum tutti_status random_bytes(void *arg, void *out, size_t n)
{
    (void)arg;
    for (size_t i = 0; i < n; i++) ((uint8_t *)out)[i] = (uint8_t)rnd(256);
    return TUTTI_OK;
}

static uint64_t started(void *arg, int32_t pid)
{
    (void)arg;
    return (uint64_t)pid * 7;
}

static bool alive(void *arg, int32_t pid, uint64_t start)
{
    (void)arg;
    assert_true(start == 0 || start == (uint64_t)pid * 7);
    for (uint32_t g = 0; g < sim.n_guests; g++)
        if (sim.guests[g].self.pid == pid) return !sim.guests[g].dead;
    return false;
}

/* ---- the world ---- */

static struct tutti_meeting_self self_of(int32_t rank, int32_t pid, const char *secret, uint64_t patience_ns)
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

static struct guest *guest_add(enum kind kind, int32_t rank, const char *secret, uint64_t patience_ns)
{
    struct guest *g = &sim.guests[sim.n_guests];
    *g = (struct guest){.kind = kind, .dies_ns = TUTTI_NEVER};
    g->self = self_of(rank, 100 + (int32_t)sim.n_guests, secret, patience_ns);
    g->comes_ns = rnd(50) * MS;
    peers[sim.n_guests] = (struct peer){&sim, sim.n_guests};
    sim.n_guests++;
    return g;
}

static void sim_begin(uint64_t seed, uint32_t n, const char *secret, uint64_t patience_ns)
{
    const struct tutti_meeting_out out = {NULL, leader_send, leader_drop, leader_ended, random_bytes, started, alive};
    sim.now = 0, sim.seed = seed, sim.n = n, sim.n_guests = sim.n_mail = sim.n_table = 0;
    memset(sim.last_ns, 0, sizeof sim.last_ns);
    const struct tutti_meeting_self self = self_of(0, 99, secret, patience_ns);
    assert_int_equal(tutti_leader_init(&sim.leader, &self, &out, MAX_GUESTS, 0), TUTTI_OK);
}

static void guest_come(uint32_t i)
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

static void guest_die(uint32_t i)
{
    struct guest *g = &sim.guests[i];
    g->dead = true;
    if (g->came && !g->unlinked) post(i, true, NULL, 0, false);
    if (g->member.phase != TUTTI_MEMBER_OVER) g->member.phase = TUTTI_MEMBER_OVER, g->member.error.status = TUTTI_AGAIN;
}

/* The table is believed when it is the leader's, to the last bit. */
static void table_check(const struct tutti_meeting_member *member)
{
    const uint32_t at = (uint32_t)rnd(sim.n_table);
    assert_int_equal(tutti_member_table_check(member, table, sim.n_table), TUTTI_OK);
    const uint8_t bit = (uint8_t)(1 << rnd(8));
    table[at] ^= bit;
    assert_int_equal(tutti_member_table_check(member, table, sim.n_table), TUTTI_ERR_PROTOCOL);
    table[at] ^= bit;
}

static void mail_deliver(struct mail *m)
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
static void sim_step(void)
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

static bool is_open(const struct guest *g)
{
    return g->came && !g->dead && g->kind != GARBAGE && g->kind != SILENT && g->member.phase != TUTTI_MEMBER_OVER;
}

/* Until everybody knows; in the end the leader's connections end. */
static void sim_run(uint64_t until_ns)
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

static void sim_check(const char *what, uint64_t seed)
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

/* ---- tests ---- */

static const char *secret_of(uint64_t seed)
{
    return tutti_hmac_available() && seed % 2 ? "sesame" : NULL;
}

/* In any order, among strangers: they meet. */
static void all_meet(void **state)
{
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 3000; seed < end; seed++) {
        const char *secret = secret_of(seed);
        sim_begin(seed, 2 + (uint32_t)(seed % (MAX_RANKS - 1)), secret, 30 * TUTTI_NS_PER_S);
        for (int32_t rank = 1; rank < (int32_t)sim.n; rank++) guest_add(RANK, rank, secret, 30 * TUTTI_NS_PER_S);
        for (uint64_t i = rnd(5); i > 0; i--) guest_add(rnd(2) ? GARBAGE : SILENT, 0, NULL, 0);
        if (rnd(3) == 0) guest_add(WRONG_SECRET, 1, secret ? rnd(2) ? "simsim" : NULL : "simsim", 30 * TUTTI_NS_PER_S);
        if (!tutti_hmac_available() && sim.guests[sim.n_guests - 1].kind == WRONG_SECRET) sim.n_guests--;
        sim_run(TUTTI_NS_PER_S);
        if (sim.leader.verdict.status < 0) fail_msg("seed %llu: %s", (unsigned long long)seed, sim.leader.verdict.text);
        for (uint32_t i = 0; i < sim.n_guests; i++)
            if (sim.guests[i].kind == RANK) {
                assert_int_equal(sim.guests[i].member.error.status, TUTTI_OK);
                assert_int_equal(sim.guests[i].member.n_table, 0);
            }
        sim_check("all meet", seed);
    }
}

/* Ranks die at any instant; some come again, some in time. All is over within a second of the last event, and whoever
 * is named dead is. */
static void some_die(void **state)
{
    uint32_t n_met = 0, n_dead = 0, n_late = 0;
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 3000; seed < end; seed++) {
        const char *secret = secret_of(seed);
        sim_begin(seed, 2 + (uint32_t)(seed % (MAX_RANKS - 1)), secret, 3 * TUTTI_NS_PER_S);
        for (int32_t rank = 1; rank < (int32_t)sim.n; rank++) {
            struct guest *g = guest_add(RANK, rank, secret, 3 * TUTTI_NS_PER_S);
            if (rnd(3) != 0) continue;
            g->dies_ns = g->comes_ns + rnd(80) * MS;
            if (rnd(2)) guest_add(RANK, rank, secret, 3 * TUTTI_NS_PER_S)->comes_ns = g->dies_ns + (1 + rnd(900)) * MS;
        }
        if (rnd(2)) sim.guests[rnd(sim.n_guests)].comes_ns += rnd(400) * MS; /* so that the others wait */
        sim_run(6 * TUTTI_NS_PER_S);
        const struct tutti_error *verdict = &sim.leader.verdict;
        n_met += verdict->status == TUTTI_OK, n_late += verdict->status == TUTTI_ERR_TIMEOUT;
        if (verdict->status == TUTTI_ERR_PEER_DEAD) {
            bool died = false;
            n_dead++;
            for (uint32_t i = 0; i < sim.n_guests; i++)
                died |= sim.guests[i].dead && sim.guests[i].self.rank == verdict->peer;
            if (!died) fail_msg("seed %llu: %s", (unsigned long long)seed, verdict->text);
            assert_non_null(strstr(verdict->text, "connection closed by peer"));
        }
        if (verdict->status == TUTTI_OK) { /* who has the memory and died later is the cards' matter */
            for (uint32_t i = 0; i < sim.n_guests; i++)
                if (sim.guests[i].dead && sim.guests[i].has_memory) verdict = NULL;
        }
        if (verdict)
            sim_check("some die", seed);
        else
            tutti_leader_fini(&sim.leader);
    }
    assert_true(n_met > 100 && n_dead > 100 && n_met + n_dead + n_late == 3000);
}

/* One that contradicts the others ends the meeting for all, with one sentence; one that never comes, by its name. */
static void contradictions_are_told(void **state)
{
    static const struct {
        enum kind kind;
        enum tutti_status status;
        const char *part;
    } rows[] = {{OTHER_SIZE, TUTTI_ERR_BOOTSTRAP, "expects 77 ranks"},
                {OTHER_HOST, TUTTI_ERR_UNSUPPORTED, "different containers"},
                {OTHER_BUILD, TUTTI_ERR_CONFIG, "another build of tutti: 9.9.9 there, 1.2.3 here"},
                {SILENT, TUTTI_ERR_TIMEOUT, "rank 2 did not arrive: timed out after 2000 ms"},
                {RANK, TUTTI_ERR_BOOTSTRAP, "rank 1 came twice"}};
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 1000; seed < end; seed++)
        for (size_t k = 0; k < TUTTI_ARRAY_LEN(rows); k++) {
            sim_begin(seed, 4, NULL, 2 * TUTTI_NS_PER_S);
            guest_add(RANK, 1, NULL, 5 * TUTTI_NS_PER_S);
            guest_add(RANK, 3, NULL, 5 * TUTTI_NS_PER_S);
            struct guest *odd = guest_add(rows[k].kind, rows[k].kind == RANK ? 1 : 2, NULL, 5 * TUTTI_NS_PER_S);
            if (odd->kind == OTHER_SIZE) odd->self.n_ranks = 77;
            if (odd->kind == OTHER_HOST) odd->self.host++;
            if (odd->kind == OTHER_BUILD) odd->self.build++, odd->self.version = "9.9.9";
            sim_run(4 * TUTTI_NS_PER_S);
            assert_int_equal(sim.leader.verdict.status, rows[k].status);
            if (!strstr(sim.leader.verdict.text, rows[k].part)) fail_msg("\"%s\"", sim.leader.verdict.text);
            for (uint32_t i = 0; i < sim.n_guests; i++) {
                const struct guest *g = &sim.guests[i];
                assert_false(g->has_memory);
                if (g->came && g->kind == RANK && g->member.error.status != TUTTI_AGAIN)
                    assert_string_equal(g->member.error.text, sim.leader.verdict.text);
            }
            sim_check("contradictions", seed);
        }
}

/* A member whose time is over before the leader's gets the sentence for all; a leader that says nothing is told of. */
static void whose_time_is_over_asks(void **state)
{
    (void)state;
    sim_begin(1, 3, NULL, 60 * TUTTI_NS_PER_S);
    guest_add(RANK, 1, NULL, 700 * MS);
    sim_run(2 * TUTTI_NS_PER_S);
    assert_int_equal(sim.leader.verdict.status, TUTTI_ERR_TIMEOUT);
    assert_string_equal(sim.leader.verdict.text, "rank 2 did not arrive: timed out after 700 ms");
    assert_string_equal(sim.guests[0].member.error.text, sim.leader.verdict.text);
    sim_check("asks", 1);

    sim_begin(1, 3, NULL, 60 * TUTTI_NS_PER_S);
    guest_add(RANK, 1, NULL, 700 * MS);
    for (int i = 0; i < 300; i++) sim_step();
    sim.n_mail = 0;
    for (int i = 0; i < 3000; i++) tutti_member_tick(&sim.guests[0].member, sim.now + (uint64_t)i * MS), sim.n_mail = 0;
    assert_int_equal(sim.guests[0].member.error.status, TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(sim.guests[0].member.error.text, "does not answer rank 1: timed out after 700 ms"));
    tutti_leader_fini(&sim.leader);
}

/* Where the edge can connect other hosts their members are members like any: the leader has what each says of itself,
 * and all get the table that is made of it, whatever its size. */
static void hosts_meet(void **state)
{
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 300; seed < end; seed++) {
        sim_begin(seed, 8, NULL, 30 * TUTTI_NS_PER_S);
        sim.leader.self.reaches_hosts = true;
        sim.n_table = 1 + (uint32_t)rnd(sizeof table);
        random_bytes(NULL, table, sim.n_table);
        const char *secret = secret_of(seed);
        sim.leader.self.secret = secret;
        for (int32_t rank = 1; rank < 8; rank++) {
            struct guest *guest = guest_add(RANK, rank, secret, 30 * TUTTI_NS_PER_S);
            guest->self.host = HOST + (uint64_t)rank / 3;
            guest->self.card = (const uint8_t *)"card number X" + rank;
            guest->self.n_card = 13 - (size_t)rank;
        }
        sim_run(TUTTI_NS_PER_S);
        assert_int_equal(sim.leader.verdict.status, TUTTI_OK);
        for (int32_t rank = 1; rank < 8; rank++) {
            const struct tutti_meeting_seat *seat = &sim.leader.seats[rank];
            assert_true(seat->host == HOST + (uint64_t)rank / 3 && seat->n_card == 13 - rank);
            assert_memory_equal(seat->card, "card number X" + rank, 13 - (size_t)rank);
        }
        sim_check("hosts", seed);
    }
}

static void guest_astray(uint32_t i)
{
    struct guest *g = &sim.guests[i];
    tutti_leader_astray(&sim.leader, i, sim.now);
    g->unlinked = true;
    g->member.phase = TUTTI_MEMBER_OVER, g->member.error.status = TUTTI_AGAIN;
}

static struct guest *far_guest_add(int32_t rank, const char *secret, uint64_t comes_ns)
{
    struct guest *guest = guest_add(RANK, rank, secret, 30 * TUTTI_NS_PER_S);
    guest->self.host = HOST + (uint64_t)rank / 3;
    guest->comes_ns = comes_ns;
    return guest;
}

/* The ranks 3 to 5 are on one host, and come by 3. When that one dies it is told dead, and never those that came by it.
 * When whoever it came by goes, all three come again, however long that takes. */
static void relays_go(void **state)
{
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 300; seed < end; seed++) {
        const char *secret = secret_of(seed);
        const bool dies = seed / 2 % 2;
        sim_begin(seed, 8, secret, 30 * TUTTI_NS_PER_S);
        sim.leader.self.reaches_hosts = true;
        for (int32_t rank = 1; rank < 8; rank++) far_guest_add(rank, secret, rank < 7 ? rnd(50) * MS : 3000 * MS);
        while (sim.leader.n_seated < 7 && sim.now < TUTTI_NS_PER_S) sim_step();
        assert_int_equal(sim.leader.n_seated, 7);
        if (dies) guest_die(2);
        for (uint32_t i = dies ? 3 : 2; i < 5; i++) guest_astray(i);
        assert_int_equal(sim.leader.n_lost, 0);
        for (int32_t rank = dies ? 4 : 3; rank < 6; rank++) far_guest_add(rank, secret, sim.now + rnd(1500) * MS);
        sim_run(5 * TUTTI_NS_PER_S);
        assert_int_equal(sim.leader.verdict.status, dies ? TUTTI_ERR_PEER_DEAD : TUTTI_OK);
        if (dies) assert_int_equal(sim.leader.verdict.peer, 3);
        sim_check("relays", seed);
    }
}

/* ---- frames ---- */

static struct tutti_meeting_message message_of(uint64_t seed)
{
    struct tutti_meeting_message m = {
        .type = 1 + (unsigned)(seed % (TUTTI_MEETING_N_TYPES - 1)), .has_secret = seed & 1, .shared = seed & 2};
    static const uint8_t payload[TUTTI_MEETING_PAYLOAD] = {1, 2, 3};
    m.build = tutti_mix64(seed), m.host = tutti_mix64(seed + 1), m.world = tutti_mix64(seed + 2);
    m.rank = (int32_t)tutti_mix64(seed + 3), m.n_ranks = -1, m.pid = INT32_MAX, m.status = -61, m.peer = -1;
    m.patience_ms = UINT32_MAX;
    m.lost = (struct tutti_meeting_loss){3, 4, tutti_mix64(seed + 4), 600 * MS};
    if (seed & 4) m.far = true, m.total = (uint32_t)tutti_mix64(seed + 5), m.lost.until_ns = 0;
    m.payload = payload, m.n_payload = tutti_mix64(seed + 6) % (TUTTI_MEETING_PAYLOAD + 1);
    snprintf(m.release, sizeof m.release, "1.%u", (unsigned)(seed % 100));
    memset(m.text, 'x', seed % TUTTI_ERROR_TEXT);
    memcpy(m.nonce, &m.build, 8);
    return m;
}

static void frames_come_back(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct tutti_session session = {.secret = NULL};
        struct tutti_meeting_message m = message_of(seed), back;
        uint8_t bytes[TUTTI_MEETING_FRAME_MAX];
        size_t n;
        assert_int_equal(tutti_meeting_encode(&session, &m, bytes, &n), TUTTI_OK);
        assert_int_equal(tutti_meeting_decode(bytes, n, &back), TUTTI_OK);
        assert_int_equal(back.n_payload, m.n_payload);
        assert_memory_equal(back.payload, m.payload, m.n_payload);
        back.payload = m.payload;
        assert_memory_equal(&m, &back, sizeof m);
        assert_true(tutti_meeting_decode(bytes, n - 1, &back) < 0 && tutti_meeting_decode(bytes, n + 1, &back) < 0);
        bytes[4]++;
        assert_int_equal(tutti_meeting_decode(bytes, n, &back), TUTTI_ERR_CONFIG);
        assert_string_equal(back.release, m.release); /* another version, but it says of which release */
    }
}

/* Not altered, not twice, not in another order, not back to its sender, not in another meeting. */
static void signatures_bind(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    struct tutti_session member = {.secret = "s", .nonces = {{1}, {2}}, .ready = true}, leader = member, other;
    uint8_t first[TUTTI_MEETING_FRAME_MAX], second[TUTTI_MEETING_FRAME_MAX];
    struct tutti_meeting_message m = message_of(7), back;
    size_t n, n2;
    leader.server = true;
    assert_int_equal(tutti_meeting_encode(&member, &m, first, &n), TUTTI_OK);
    assert_int_equal(tutti_meeting_encode(&member, &m, second, &n2), TUTTI_OK);
    assert_int_equal(tutti_meeting_decode(first, n, &back), TUTTI_OK);
    assert_true(back.is_signed);
    assert_int_equal(tutti_meeting_verify(&leader, second, n2, &back), TUTTI_ERR_AUTH); /* not in this place */
    other = member, other.n_received = 0;
    assert_int_equal(tutti_meeting_verify(&other, first, n, &back), TUTTI_ERR_AUTH); /* reflected */
    other = leader, other.nonces[0][0] = 9;
    assert_int_equal(tutti_meeting_verify(&other, first, n, &back), TUTTI_ERR_AUTH); /* of another meeting */
    for (size_t i = 0; i < n; i += 13) {
        first[i] ^= 4;
        if (tutti_meeting_decode(first, n, &back) == TUTTI_OK)
            assert_int_equal(tutti_meeting_verify(&leader, first, n, &back), TUTTI_ERR_AUTH);
        first[i] ^= 4;
    }
    assert_int_equal(tutti_meeting_decode(first, n, &back), TUTTI_OK);
    assert_int_equal(tutti_meeting_verify(&leader, first, n, &back), TUTTI_OK);
    assert_int_equal(tutti_meeting_verify(&leader, first, n, &back), TUTTI_ERR_AUTH); /* replayed */
    assert_int_equal(tutti_meeting_verify(&leader, second, n2, &back), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_meet),
        cmocka_unit_test(some_die),
        cmocka_unit_test(hosts_meet),
        cmocka_unit_test(relays_go),
        cmocka_unit_test(contradictions_are_told),
        cmocka_unit_test(frames_come_back),
        cmocka_unit_test(whose_time_is_over_asks),
        cmocka_unit_test(signatures_bind),
    };
    tutti_log_threshold = TUTTI_LOG_ERROR; /* the refusals are on purpose */
    return cmocka_run_group_tests_name("control.machine", tests, NULL, NULL);
}
