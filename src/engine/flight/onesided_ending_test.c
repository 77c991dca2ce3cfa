/* SPDX-License-Identifier: BSD-3-Clause */

/* Accesses that end otherwise: windows and communicators that go under them, peers that die, deadlines, aborts,
 * nonsense from a peer; and owners that nobody disturbs for an hour. */

#include "engine/flight/onesided_rig_test.h"
#include "engine/pass/death_test.h"

/* ---- windows go while they are accessed: nobody touches their memory afterwards ---- */

enum { WINDOWS = 40, LARGE = 100000 };

static void come_and_go(struct rig_rank *rank)
{
    unsigned char *data = malloc(LARGE);
    struct tutti_work *works[4];

    memset(data, rank->me, LARGE);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        struct part part = {0};
        expose_as(rank, &part, LARGE, w);
        if (rank->me == 0) {
            for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(works); i++) {
                struct tutti_one_info info = i % 2 ? get_of(1, 0, data, LARGE) : put_of(1, 0, data, LARGE);
                info.window = w, info.name = "access";
                RIG_OK(rank, tutti_engine_one(rank->team, &info, true, &works[i]));
            }
        } else if (w % 3 == 1) {
            tutti_sleep_ns(200000);
        }
        if (rank->me == 1) hide(rank, &part, w);
        for (uint32_t i = 0; rank->me == 0 && i < TUTTI_ARRAY_LEN(works); i++) {
            enum tutti_status status = tutti_work_finish(works[i]);
            RIG_CHECK(rank, status == TUTTI_OK || status == TUTTI_ERR_ARGUMENT, "%s", tutti_last_error()->text);
        }
        if (rank->me == 0) (void)now(rank, flush_of(1)); /* takes the refusals */
        if (rank->me == 0) hide(rank, &part, w);
        rig_meet(rank);
    }
    RIG_CHECK(rank, tutti_team_state(rank->team, NULL) == TUTTI_OK, "the communicator failed");
    free(data);
}

/* ---- a rank ends the communicator while others access its part ---- */

static void leave(struct rig_rank *rank)
{
    struct part part = {0};
    unsigned char data[5000] = {0};
    enum tutti_status status = TUTTI_OK;

    expose(rank, &part, sizeof(data));
    if (rank->me == 1) tutti_sleep_ns(5 * TUTTI_NS_PER_MS);
    while (rank->me == 0 && status == TUTTI_OK) status = now(rank, get_of(1, 0, data, sizeof(data)));
    if (rank->me == 0) {
        RIG_CHECK(rank, status == TUTTI_ERR_PEER_LEFT, "%s", tutti_last_error()->text);
        RIG_CHECK(rank, strstr(tutti_last_error()->text, "get from rank 1 (window 3, 5000 bytes at offset 0)"), "%s",
                  tutti_last_error()->text);
    }
    tutti_team_destroy(rank->team);
    rank->team = NULL;
    free(part.base);
}

/* ---- an abort ends all that is under way, and what begins at that moment ---- */

static void count_end(void *n_ended, const struct tutti_error *error)
{
    (void)error;
    atomic_fetch_add((_Atomic uint32_t *)n_ended, 1);
}

/* Until the communicator has failed. Each that could start tells its end. */
static void start_on(struct rig_rank *rank)
{
    _Atomic uint32_t n_ended = 0;
    uint32_t n_started = 0;
    uint64_t word = 0;
    struct tutti_one_info info = put_of(1 - rank->me, 0, &word, sizeof(word));
    struct tutti_work *work;

    info.window = WINDOW, info.name = "put", info.end = count_end, info.arg = (void *)&n_ended;
    for (; tutti_engine_one(rank->team, &info, false, &work) == TUTTI_OK; n_started++) tutti_work_free(work);
    RIG_CHECK(rank, comes_32(&n_ended, n_started), "%u of %u told their end", atomic_load(&n_ended), n_started);
}

static void aborted(struct rig_rank *rank)
{
    struct part part = {0};
    enum { N = 100 };
    struct tutti_work *works[N];
    unsigned char *data = calloc(N, LARGE);
    struct tutti_error error;

    expose(rank, &part, LARGE);
    for (uint32_t i = 0; i < N; i++)
        works[i] = start(rank,
                         i % 2 ? put_of(1 - rank->me, 0, data + i * LARGE, LARGE)
                               : get_of(1 - rank->me, 0, data + i * LARGE, LARGE),
                         true);
    rig_meet(rank);
    tutti_error_set(&error, TUTTI_ERR_ABORTED, "enough of this");
    error.peer = -1;
    if (rank->me == 0) tutti_sleep_ns(300000);
    if (rank->me == 0)
        tutti_team_fail(rank->team, &error, true);
    else
        start_on(rank);
    for (uint32_t i = 0; i < N; i++) {
        enum tutti_status status = works[i] ? tutti_work_finish(works[i]) : TUTTI_ERR_ABORTED;
        RIG_CHECK(rank, status == TUTTI_OK || status == TUTTI_ERR_ABORTED, "%s", tutti_last_error()->text);
    }
    free(data);
    withdraw(rank, &part);
}

/* ---- a wire that loses everything: the deadline ends it ---- */

static void never(struct rig_rank *rank)
{
    struct part part = {0};
    uint64_t word = 0;

    expose(rank, &part, 64);
    struct tutti_one_info info = rank->me == 0 ? get_of(1, 8, &word, 8) : add_of(0, 8, 1, &word);
    info.timeout_ns = 300 * TUTTI_NS_PER_MS, info.label = "halo";
    enum tutti_status status = now(rank, info);
    RIG_CHECK(rank, status == TUTTI_ERR_TIMEOUT, "%s", tutti_last_error()->text);
    RIG_CHECK(rank,
              strstr(tutti_last_error()->text, "timed out after 300 ms") &&
                  strstr(tutti_last_error()->text, "did not answer") &&
                  strstr(tutti_last_error()->text, "label 'halo'"),
              "%s", tutti_last_error()->text);
    withdraw(rank, &part);
}

/* ---- nonsense from a peer ends the communicator, and nothing else happens ---- */

static const struct nonsense {
    const char *says;
    struct tutti_packet packet;
} nonsense[] = {
    {"an access that can not be", {.type = TUTTI_PACKET_ONE, .flags = 7, .seq = 1}},
    {"an access that can not be", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_REFUSED, .seq = 1}},
    {"an access that can not be", {.type = TUTTI_PACKET_ONE, .flags = 32, .seq = 1}},
    {"an access that can not be", {.type = TUTTI_PACKET_ONE, .flags = 16, .seq = 1}},
    {"an access that can not be", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_PUT, .seq = 1}},
    {"an access that can not be", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_PUT, .seq = 1, .bytes = 8, .total = 9}},
    {"an access that can not be", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_GET, .seq = 1, .total = UINT64_MAX}},
    {"an access that can not be", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_GET, .seq = 1}},
    {"an access that can not be", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_ADD, .seq = 1, .total = 8}},
    {"an access that can not be", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_FLUSH, .seq = 1, .bytes = 8}},
    {"more accesses than it may", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_FLUSH, .seq = 0}},
    {"more accesses than it may", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_FLUSH, .seq = 65}},
    {"more accesses than it may", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_FLUSH, .seq = UINT64_MAX}},
    {"more accesses than it has made", {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_FLUSH, .seq = 1, .count = 1}},
    {"more accesses than it has made", {.type = TUTTI_PACKET_ONE_ANSWER, .count = UINT64_MAX}},
    {"that it did not make", {.type = TUTTI_PACKET_ONE_ANSWER, .seq = 1}},
    {"that it did not make", {.type = TUTTI_PACKET_ONE_ANSWER, .flags = TUTTI_ONE_GET, .bytes = 8}},
};

static void hostile(struct rig_rank *rank)
{
    const struct nonsense *what = rank->rig->arg;
    struct part part = {0};
    const uint64_t until = tutti_deadline_ns(20 * TUTTI_NS_PER_S);
    struct tutti_error error = {0};

    if (rank->me == 0) {
        expose(rank, &part, 64);
        while (tutti_team_state(rank->team, &error) == TUTTI_OK && tutti_now_ns() < until)
            tutti_sleep_ns(TUTTI_NS_PER_MS);
        RIG_CHECK(rank, error.status == TUTTI_ERR_PROTOCOL && strstr(error.text, what->says), "%s", error.text);
        withdraw(rank, &part);
        return;
    }
    rig_meet(rank); /* nobody owns the engine of this rank: it has no part */
    struct tutti_packet packet = what->packet;
    const uint64_t words[1] = {0};
    packet.version = TUTTI_WIRE_VERSION, packet.comm = RIG_TEAM;
    RIG_OK(rank, rank->transport->ops->send(rank->transport, 0, &packet, &(struct tutti_span){words, packet.bytes},
                                            packet.bytes > 0, 0));
    rig_meet(rank);
}

/* ---- who exposes a part and calls nothing for an hour sleeps, and is there when it is needed ---- */

static void hour(struct rig_rank *rank)
{
    struct part part = {0};
    struct tutti_engine_stats before, after;
    uint64_t word;

    expose(rank, &part, 64);
    tutti_engine_stats(rank->engine, &before);
    for (uint64_t i = 0; i < 6; i++) {
        rig_sleep(600 * TUTTI_NS_PER_S);
        if (rank->me == 0) RIG_OK(rank, now(rank, add_of(1, 0, 1, &word)));
        if (rank->me == 0) RIG_CHECK(rank, word == i, "%" PRIu64, word);
    }
    tutti_engine_stats(rank->engine, &after);
    /* Ten looks a second, and some more. */
    RIG_CHECK(rank, after.sleeps - before.sleeps < 40000, "%" PRIu64 " sleeps", after.sleeps - before.sleeps);
    withdraw(rank, &part);
}

/* ---- a process that is killed ---- */

static enum tutti_status access_victim(struct rig_rank *rank, void *memory)
{
    static struct part part;
    static unsigned char data[LARGE];
    _Atomic uint32_t *n = memory;
    enum tutti_status status = TUTTI_OK;

    if (!part.base) {
        part.base = calloc(1, LARGE);
        const struct tutti_exposed exposed = {
            .base = part.base, .bytes = LARGE, .signals = part.signals, .n_signals = N_SIGNALS, .signal_step = 8};
        TUTTI_TRY(tutti_exposed_add(rank->team, WINDOW, &exposed));
        atomic_fetch_add(n, 1);
        while (atomic_load(n) < rank->n) tutti_sleep_ns(100000);
        return now(rank, flush_of(UINT32_MAX));
    }
    while (status == TUTTI_OK) {
        status = now(rank, put_of(DEATH_VICTIM, 0, data, LARGE));
        if (status == TUTTI_OK && rank->me == 2) status = now(rank, get_of(DEATH_VICTIM, 0, data, LARGE));
        if (status == TUTTI_OK) status = now(rank, flush_of(DEATH_VICTIM));
    }
    return status;
}

static void test_killed(void **state)
{
    (void)state;
    struct death *death = death_run(access_victim, 64);
    assert_non_null(strstr(death->error[0].text, " rank 1 (window 3"));
    death_free(death);
}

static void run_all(void (*main)(struct rig_rank *rank), bool with_moves)
{
    for (int moves = 0; moves <= with_moves; moves++) {
        struct rig rigs[] = {
            {.n = 2, .main = main, .staging_bytes = 1 << 17},
            {.n = 2, .main = main, .wire_ns = 20000},
            {.n = 2, .main = main, .tcp = true},
        };
        every_second_moves = moves;
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(rigs); i++) rig_run(&rigs[i]);
    }
    every_second_moves = false;
}

static void test_come_and_go(void **state)
{
    (void)state;
    run_all(come_and_go, true);
}
static void test_leave(void **state)
{
    (void)state;
    run_all(leave, false);
}
static void test_aborted(void **state)
{
    (void)state;
    run_all(aborted, true);
}
static void test_never(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = never, .decorators = "fault", .fault = "drop=1"};
    rig_run(&rig);
}
static void test_hostile(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(nonsense); i++) {
        struct nonsense what = nonsense[i];
        struct rig rig = {.n = 2, .main = hostile, .arg = &what};
        rig_run(&rig);
    }
}
static void test_hour(void **state)
{
    (void)state;
    rig_virtual = true;
    struct rig rig = {.n = 2, .main = hour, .timeout_ns = 3600 * TUTTI_NS_PER_S};
    rig_run(&rig);
    rig_virtual = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),  cmocka_unit_test(test_come_and_go), cmocka_unit_test(test_leave),
        cmocka_unit_test(test_aborted), cmocka_unit_test(test_never),       cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_hour),
    };
    return cmocka_run_group_tests_name("engine.ending", tests, NULL, NULL);
}
