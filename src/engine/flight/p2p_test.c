/* SPDX-License-Identifier: BSD-3-Clause */

/* Point-to-point matching: order, tags, wildcards, truncation, to oneself, probe; small and large, copied and offered;
 * more unmatched messages than there are slots for payloads. */

#include "engine/pass/rig_test.h"

static void send_now(struct rig_rank *rank, const void *data, size_t bytes, uint32_t dest, int32_t tag)
{
    struct tutti_work *work;
    RIG_OK(rank, tutti_engine_send(
                     rank->team,
                     &(struct tutti_p2p_message_info){.send = data, .bytes = bytes, .peer = (int32_t)dest, .tag = tag},
                     false, &work));
    RIG_OK(rank, tutti_work_finish(work));
}

static struct tutti_message recv_now(struct rig_rank *rank, void *data, size_t bytes, int32_t source, int32_t tag)
{
    struct tutti_work *work;
    struct tutti_message message = {-7, -7, 0};
    RIG_OK(rank, tutti_engine_recv(rank->team,
                                   &(struct tutti_p2p_message_info){
                                       .recv = data, .bytes = bytes, .peer = source, .tag = tag, .message = &message},
                                   false, &work));
    RIG_OK(rank, tutti_work_finish(work));
    return message;
}

static uint8_t byte_of(uint32_t rank, int32_t tag, size_t i)
{
    return (uint8_t)tutti_mix64(rank * 31 + (uint64_t)tag * 1009 + i);
}

static uint8_t *filled(uint32_t rank, int32_t tag, size_t bytes)
{
    uint8_t *data = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) data[i] = byte_of(rank, tag, i);
    return data;
}

static void check(struct rig_rank *rank, const uint8_t *data, uint32_t source, int32_t tag, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        RIG_CHECK(rank, data[i] == byte_of(source, tag, i), "byte %zu of tag %d from %u", i, tag, source);
}

/* ---- in the order of the calls, all sizes, both ways at once ---- */
static void ordered(struct rig_rank *rank)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 2048, 2049, 5000, 70000, 300000};
    uint32_t to = (rank->me + 1) % rank->n, from = (rank->me + rank->n - 1) % rank->n;

    for (int round = 0; round < 3; round++) {
        struct tutti_work *sends[TUTTI_ARRAY_LEN(sizes)];
        uint8_t *out[TUTTI_ARRAY_LEN(sizes)];
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) {
            out[i] = filled(rank->me, (int32_t)i, sizes[i]);
            RIG_OK(rank, tutti_engine_send(rank->team,
                                           &(struct tutti_p2p_message_info){
                                               .send = out[i], .bytes = sizes[i], .peer = (int32_t)to, .tag = 5},
                                           round == 1, &sends[i]));
        }
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) {
            uint8_t *in = calloc(1, sizes[i] + 1);
            bool any = (i + (size_t)round) % 2;
            struct tutti_message m =
                recv_now(rank, in, sizes[i], any ? TUTTI_ANY_SOURCE : (int32_t)from, any ? TUTTI_ANY_TAG : 5);
            RIG_CHECK(rank, m.source == (int32_t)from && m.tag == 5 && m.bytes == sizes[i], "message %zu: %d %d %zu", i,
                      m.source, m.tag, m.bytes);
            check(rank, in, from, (int32_t)i, sizes[i]);
            RIG_CHECK(rank, in[sizes[i]] == 0, "wrote past %zu", sizes[i]);
            free(in);
        }
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) {
            RIG_OK(rank, tutti_work_finish(sends[i]));
            free(out[i]);
        }
    }
}

static void test_order(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = ordered, .staging_bytes = 1 << 16};
    rig_run(&rig);
    rig.n = 1; /* to oneself */
    rig_run(&rig);
}

static void test_offered(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = ordered, .zero_copy_bytes = 4096};
    rig_run(&rig);
}

static void test_late(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = ordered, .wire_ns = 20000};
    rig_run(&rig);
    rig.n = 1;
    rig_run(&rig);
}

static void test_tcp(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = ordered, .tcp = true};
    rig_run(&rig);
    rig.n = 1;
    rig_run(&rig);
}

static void test_disordered(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = ordered, .decorators = "fault", .fault = "seed=3,duplicate=0.2,delay=0.05:1ms"};
    rig_run(&rig);
}

/* ---- tags are received in the opposite order: far more unmatched messages than payload slots ---- */
#define N_TAGS 300
static void reversed(struct rig_rank *rank)
{
    struct tutti_work *sends[N_TAGS];
    uint8_t *out[N_TAGS];
    uint32_t peer = 1 - rank->me;

    for (int32_t t = 0; t < N_TAGS; t++) {
        out[t] = filled(rank->me, t, 100);
        RIG_OK(rank,
               tutti_engine_send(rank->team,
                                 &(struct tutti_p2p_message_info){.send = out[t], .bytes = 100, .peer = peer, .tag = t},
                                 true, &sends[t]));
    }
    for (int32_t t = N_TAGS; t-- > 0;) {
        uint8_t in[100];
        recv_now(rank, in, 100, (int32_t)peer, t);
        check(rank, in, peer, t, 100);
    }
    for (int32_t t = 0; t < N_TAGS; t++) {
        RIG_OK(rank, tutti_work_finish(sends[t]));
        free(out[t]);
    }
}

static void test_reversed(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = reversed};
    rig_run(&rig);
}

/* ---- receives that were posted before: the first that fits gets the message ---- */
static void posted(struct rig_rank *rank)
{
    struct tutti_work *works[4];
    struct tutti_message messages[4];
    uint32_t in[4] = {0}, go = 0;
    static const struct {
        int32_t source, tag;
    } wanted[4] = {{1, 9}, {TUTTI_ANY_SOURCE, 3}, {1, TUTTI_ANY_TAG}, {TUTTI_ANY_SOURCE, TUTTI_ANY_TAG}};
    /* Rank 1 sends tags 3, 3, 9, 4 to rank 0: they meet the second, third, first and fourth. */
    static const int32_t tags[4] = {3, 3, 9, 4};
    static const uint32_t meets[4] = {1, 2, 0, 3};

    if (rank->me == 0) {
        for (int i = 0; i < 4; i++)
            RIG_OK(rank, tutti_engine_recv(rank->team,
                                           &(struct tutti_p2p_message_info){.recv = &in[i],
                                                                            .bytes = 4,
                                                                            .peer = wanted[i].source,
                                                                            .tag = wanted[i].tag,
                                                                            .message = &messages[i]},
                                           true, &works[i]));
        send_now(rank, &go, 4, 1, 0);
        for (int i = 0; i < 4; i++) RIG_OK(rank, tutti_work_finish(works[i]));
        for (uint32_t i = 0; i < 4; i++)
            RIG_CHECK(rank, in[meets[i]] == 100 + i && messages[meets[i]].tag == tags[i], "message %u is elsewhere", i);
    } else {
        recv_now(rank, &go, 4, 0, 0);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t x = 100 + i;
            send_now(rank, &x, 4, 0, tags[i]);
        }
    }
}

static void test_posted(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = posted};
    rig_run(&rig);
}

/* ---- truncation is the receive's alone ---- */
static void truncated(struct rig_rank *rank)
{
    static const size_t sizes[] = {100, 5000, 200000};

    for (size_t s = 0; s < TUTTI_ARRAY_LEN(sizes); s++) {
        uint8_t *data = rank->me == 0 ? filled(0, 1, sizes[s]) : calloc(1, sizes[s]);
        if (rank->me == 0) {
            send_now(rank, data, sizes[s], 1, 1);
        } else {
            struct tutti_work *work;
            struct tutti_message m;
            RIG_OK(rank, tutti_engine_recv(rank->team,
                                           &(struct tutti_p2p_message_info){
                                               .recv = data, .bytes = 70, .peer = 0, .tag = 1, .message = &m},
                                           false, &work));
            RIG_CHECK(rank, tutti_work_finish(work) == TUTTI_ERR_TRUNCATED, "not truncated");
            RIG_CHECK(rank, strstr(tutti_last_error()->text, "70") && strstr(tutti_last_error()->text, "rank 0"), "%s",
                      tutti_last_error()->text);
            RIG_CHECK(rank, m.bytes == sizes[s] && m.source == 0, "%zu from %d", m.bytes, m.source);
            check(rank, data, 0, 1, 70);
            for (size_t i = 70; i < sizes[s]; i++) RIG_CHECK(rank, data[i] == 0, "byte %zu was written", i);
        }
        free(data);
    }
    RIG_CHECK(rank, tutti_team_state(rank->team, NULL) == TUTTI_OK, "the communicator failed");
    uint32_t x = 7;
    if (rank->me == 0)
        send_now(rank, &x, 4, 1, 2);
    else
        recv_now(rank, &x, 4, 0, 2);
}

static void test_truncated(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = truncated};
    rig_run(&rig);
    rig.zero_copy_bytes = 1000;
    rig_run(&rig);
}

/* ---- probe ---- */
static void probed(struct rig_rank *rank)
{
    struct tutti_message m = {-1, -1, 0};
    uint8_t *data = filled(rank->me, 4, 9000);
    uint32_t x = 1;

    if (rank->me == 0) {
        send_now(rank, &x, 4, 1, 3);
        send_now(rank, data, 9000, 1, 4);
    } else {
        uint64_t deadline = tutti_deadline_ns(20 * TUTTI_NS_PER_S);
        while (tutti_engine_probe(rank->team, TUTTI_ANY_SOURCE, 4, &m) == TUTTI_AGAIN && tutti_now_ns() < deadline)
            tutti_sleep_ns(TUTTI_NS_PER_MS);
        RIG_CHECK(rank, m.source == 0 && m.tag == 4 && m.bytes == 9000, "found %d %d %zu", m.source, m.tag, m.bytes);
        RIG_OK(rank, tutti_engine_probe(rank->team, 0, TUTTI_ANY_TAG, &m));
        RIG_CHECK(rank, m.tag == 3 && m.bytes == 4, "first is %d", m.tag);
        RIG_CHECK(rank, tutti_engine_probe(rank->team, 0, 8, &m) == TUTTI_AGAIN, "found what was not sent");
        recv_now(rank, data, 9000, 0, 4);
        check(rank, data, 0, 4, 9000);
        recv_now(rank, &x, 4, 0, 3);
        RIG_CHECK(rank, tutti_engine_probe(rank->team, TUTTI_ANY_SOURCE, TUTTI_ANY_TAG, &m) == TUTTI_AGAIN,
                  "left over");
    }
    free(data);
}

static void test_probe(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = probed};
    rig_run(&rig);
}

/* ---- a stream of small messages flows on credit ---- */
static void stream(struct rig_rank *rank)
{
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t x = i;
        if (rank->me == 0) {
            send_now(rank, &x, 4, 1, 0);
        } else {
            recv_now(rank, &x, 4, 0, 0);
            RIG_CHECK(rank, x == i, "%u instead of %u", x, i);
        }
    }
}

static void test_stream(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = stream};
    rig_run(&rig);
}

/* ---- to and fro: an answer takes the credits along, so there is a packet a message ---- */
static void answered(struct rig_rank *rank)
{
    enum { N = 100 };
    struct tutti_engine_stats before, after;
    uint32_t x = 0;

    tutti_engine_stats(rank->engine, &before);
    for (uint32_t i = 0; i < N; i++) {
        if (rank->me == 0) send_now(rank, &i, 4, 1, 0);
        recv_now(rank, &x, 4, 1 - (int32_t)rank->me, 0);
        if (rank->me == 1) send_now(rank, &x, 4, 0, 0);
        RIG_CHECK(rank, x == i, "%u instead of %u", x, i);
    }
    tutti_engine_stats(rank->engine, &after);
    RIG_CHECK(rank, after.packets_sent - before.packets_sent == N, "%" PRIu64 " packets",
              after.packets_sent - before.packets_sent);
}

static void test_answered(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = answered};
    rig_run(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),  cmocka_unit_test(test_offered),   cmocka_unit_test(test_disordered),
        cmocka_unit_test(test_late),   cmocka_unit_test(test_tcp),       cmocka_unit_test(test_reversed),
        cmocka_unit_test(test_posted), cmocka_unit_test(test_truncated), cmocka_unit_test(test_probe),
        cmocka_unit_test(test_stream), cmocka_unit_test(test_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
