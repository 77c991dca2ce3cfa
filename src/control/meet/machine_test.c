/* SPDX-License-Identifier: BSD-3-Clause */

/* Thousands of meetings in a simulation: no socket, no thread, no sleep. Messages take random times, in order on each
 * connection; ranks come late, twice, with another secret, build or number, from another host; they crash and come
 * again; strangers send garbage. Whatever happens, the meeting ends in time; all that are granted are granted the same
 * world; who failed has a sentence; and who leads tells the truth about who is missing. */

#include "control/meet/sim_test.h"

#include <sys/mman.h>
#include <unistd.h>

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
        if (verdict->status == TUTTI_OK) { /* a death after that is the cards' matter */
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
                {OTHER_HOST, TUTTI_ERR_UNSUPPORTED, "are on different hosts, by TUTTI_HOST or as containers"},
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

/* The log of a start that hangs says soon, and then once a minute, who is missing and who was refused. */
static void missing_are_logged(void **state)
{
    static const char *const secrets[][2] = {{NULL, "sesame"}, {"sesame", NULL}}; /* rank 0's, rank 1's */
    (void)state;
    if (!tutti_hmac_available()) skip();
    for (size_t k = 0; k < TUTTI_ARRAY_LEN(secrets); k++) {
        const int log = memfd_create("log", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
        char text[4096] = "", line[160];
        sim_begin(1, 4, secrets[k][0], 300 * TUTTI_NS_PER_S);
        guest_add(WRONG_SECRET, 1, secrets[k][1], 300 * TUTTI_NS_PER_S);
        guest_add(RANK, 2, secrets[k][0], 300 * TUTTI_NS_PER_S);
        tutti_log_threshold = TUTTI_LOG_WARN;
        dup2(log, STDERR_FILENO);
        while (sim.now < TUTTI_NS_PER_S) sim_step();
        for (; sim.now < 135 * TUTTI_NS_PER_S; sim.now += 50 * MS) tutti_leader_tick(&sim.leader, sim.now);
        dup2(saved, STDERR_FILENO);
        tutti_log_threshold = TUTTI_LOG_ERROR;
        assert_true(pread(log, text, sizeof text - 1, 0) > 0);
        const char *at = text;
        for (unsigned s = 10; s <= 130; s += 60) {
            snprintf(line, sizeof line,
                     " 2 of 4 ranks have come in %u s; missing: ranks 1 and 3; refused: process 100: "
                     "rank 1 has %s secret, rank 0 has %s: give",
                     s, k ? "no" : "a", k ? "one" : "none");
            at = strstr(at, line);
            if (!at) fail_msg("%s lacks \"%s\"", text, line);
        }
        assert_null(strstr(at + strlen(line), "have come in"));
        close(log), close(saved);
        tutti_leader_fini(&sim.leader);
    }
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
            assert_memory_equal(seat->card, &"card number X"[rank], 13 - (size_t)rank);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_meet),
        cmocka_unit_test(some_die),
        cmocka_unit_test(hosts_meet),
        cmocka_unit_test(relays_go),
        cmocka_unit_test(contradictions_are_told),
        cmocka_unit_test(missing_are_logged),
        cmocka_unit_test(whose_time_is_over_asks),
    };
    tutti_log_threshold = TUTTI_LOG_ERROR; /* the refusals are on purpose */
    return cmocka_run_group_tests_name("control.machine", tests, NULL, NULL);
}
