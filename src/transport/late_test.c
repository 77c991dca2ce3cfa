/* SPDX-License-Identifier: BSD-3-Clause */
/* What the contract says of transports that complete late: sends that are pending, payloads that are placed, tokens
 * that come back once, taken back or cut. Asked of "late", bare and under each decorator, with a clock that the test
 * moves. */

#include "test.h"

#include "transport/late_test.h"
#include "transport/open.h"

enum { BYTES = 100000, LATENCY_NS = 1000 };

struct hand {
    struct tutti_clock clock; /* first */
    uint64_t now_ns;
};
static uint64_t hand_now(const struct tutti_clock *clock)
{
    return ((const struct hand *)(const void *)clock)->now_ns;
}

struct pair {
    struct hand hand;
    struct late_net *net;
    struct tutti_transport *t[2];
};
static void pair_open(struct pair *pair, const char *decorators)
{
    const struct tutti_decorator_options options = {.fault = "seed=1", .delay_ns = 1};
    *pair = (struct pair){.hand = {.clock = {.now_ns = hand_now}, .now_ns = 1}};
    pair->net = late_net_make(2, &pair->hand.clock, LATENCY_NS);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(tutti_transport_decorate(late_wire_open(pair->net, i), decorators, &options, &pair->t[i]), 0);
}
static void pair_close(struct pair *pair)
{
    for (uint32_t i = 0; i < 2; i++)
        if (pair->t[i]) pair->t[i]->ops->close(pair->t[i]);
    late_net_free(pair->net);
}

static unsigned char from[BYTES], to[BYTES];
static enum tutti_status send_large(struct tutti_transport *t, uint64_t seq)
{
    const struct tutti_packet packet = {.type = TUTTI_PACKET_DATA, .seq = seq, .bytes = BYTES, .total = BYTES};
    const struct tutti_span spans[2] = {{from, 1000}, {from + 1000, BYTES - 1000}};
    for (size_t i = 0; i < BYTES; i++) from[i] = (unsigned char)tutti_mix64(i + seq);
    return t->ops->send(t, 1, &packet, spans, 2, 70 + seq);
}

/* The next event, letting time pass; fails after a thousand steps. */
static void expect(struct pair *pair, uint32_t member, enum tutti_event_type type, struct tutti_event *out)
{
    struct tutti_transport *t = pair->t[member];
    for (int i = 0; i < 1000; i++) {
        enum tutti_status status = t->ops->poll(t, out);
        if (status == TUTTI_OK) {
            assert_int_equal(out->type, type);
            return;
        }
        assert_int_equal(status, TUTTI_AGAIN);
        pair->hand.now_ns += LATENCY_NS / 10;
        tutti_sleep_ns(10);
    }
    fail_msg("no event of type %d came", (int)type);
}

static void expect_nothing(struct pair *pair, uint32_t member)
{
    struct tutti_event e;
    pair->hand.now_ns += 3 * LATENCY_NS;
    assert_int_equal(pair->t[member]->ops->poll(pair->t[member], &e), TUTTI_AGAIN);
}

static void a_payload_is_placed(void **state)
{
    struct pair pair;
    struct tutti_event e;
    pair_open(&pair, *state);
    assert_int_equal(send_large(pair.t[0], 1), TUTTI_PENDING);
    expect_nothing(&pair, 0); /* borrowed: the receiver has not seen it */
    expect(&pair, 1, TUTTI_EVENT_HEADER, &e);
    assert_int_equal(e.packet.source, 0);
    assert_int_equal(e.packet.bytes, BYTES);
    const struct tutti_target targets[3] = {{to, 10}, {to + 10, 5000}, {to + 5010, BYTES - 5010}};
    pair.t[1]->ops->place(pair.t[1], targets, 3, 9);
    assert_memory_not_equal(to, from, BYTES);
    expect(&pair, 1, TUTTI_EVENT_DONE, &e);
    assert_int_equal(e.token, 9);
    assert_int_equal(e.status, TUTTI_OK);
    assert_memory_equal(to, from, BYTES);
    expect(&pair, 0, TUTTI_EVENT_DONE, &e);
    assert_int_equal(e.token, 71);
    expect_nothing(&pair, 0); /* once */
    expect_nothing(&pair, 1);
    pair_close(&pair);
}

/* Into the transport's memory: it comes as an arrival, and what was sent after it comes after it. */
static void a_payload_comes_whole(void **state)
{
    struct pair pair;
    struct tutti_event e;
    pair_open(&pair, *state);
    struct tutti_packet small = {.type = TUTTI_PACKET_DATA, .seq = 2};
    assert_int_equal(send_large(pair.t[0], 1), TUTTI_PENDING);
    assert_int_equal(pair.t[0]->ops->send(pair.t[0], 1, &small, NULL, 0, 0), TUTTI_OK);
    for (uint64_t seq = 1; seq <= 2; seq++) {
        for (int i = 0; i < 1000; i++) { /* a decorator may have asked for it already */
            enum tutti_status status = pair.t[1]->ops->poll(pair.t[1], &e);
            if (status == TUTTI_OK && e.type == TUTTI_EVENT_ARRIVAL) break;
            if (status == TUTTI_OK) pair.t[1]->ops->place(pair.t[1], NULL, 0, 0);
            pair.hand.now_ns += LATENCY_NS / 10;
            tutti_sleep_ns(10);
        }
        assert_int_equal(e.type, TUTTI_EVENT_ARRIVAL);
        assert_int_equal(e.packet.seq, seq);
        if (seq == 1) assert_memory_equal(e.payload, from, BYTES);
        pair.t[1]->ops->release(pair.t[1]);
    }
    expect(&pair, 0, TUTTI_EVENT_DONE, &e);
    assert_int_equal(e.token, 71);
    pair_close(&pair);
}

static void tokens_are_taken_back(void **state)
{
    struct pair pair;
    struct tutti_event e;
    pair_open(&pair, *state);
    assert_int_equal(send_large(pair.t[0], 1), TUTTI_PENDING);
    expect(&pair, 1, TUTTI_EVENT_HEADER, &e);
    const struct tutti_target target = {to, BYTES};
    pair.t[1]->ops->place(pair.t[1], &target, 1, 9);
    pair.t[1]->ops->cancel(pair.t[1], 9);
    pair.t[1]->ops->cancel(pair.t[1], 1234); /* not out: nothing */
    memset(to, 7, BYTES);
    expect_nothing(&pair, 1);
    for (size_t i = 0; i < BYTES; i++) assert_int_equal(to[i], 7); /* nobody writes there any more */
    expect(&pair, 0, TUTTI_EVENT_DONE, &e);
    assert_int_equal(send_large(pair.t[0], 2), TUTTI_PENDING);
    pair.t[0]->ops->cancel(pair.t[0], 72);
    memset(from, 0, BYTES); /* ours again */
    expect_nothing(&pair, 0);
    pair_close(&pair);
}

static void a_cut_gives_tokens_back(void **state)
{
    struct pair pair;
    struct tutti_event e;
    pair_open(&pair, *state);
    assert_int_equal(send_large(pair.t[0], 1), TUTTI_PENDING);
    pair.t[0]->ops->cut(pair.t[0], 1);
    expect(&pair, 0, TUTTI_EVENT_DONE, &e);
    assert_int_equal(e.token, 71);
    assert_int_equal(e.status, TUTTI_ERR_PEER_DEAD);
    assert_int_equal(send_large(pair.t[0], 2), TUTTI_ERR_PEER_DEAD);
    pair_close(&pair);
}

static void who_leaves_gives_tokens_back(void **state)
{
    struct pair pair;
    struct tutti_event e;
    pair_open(&pair, *state);
    assert_int_equal(send_large(pair.t[0], 1), TUTTI_PENDING);
    pair.t[1]->ops->close(pair.t[1]);
    pair.t[1] = NULL;
    expect(&pair, 0, TUTTI_EVENT_DONE, &e);
    assert_int_equal(e.status, TUTTI_ERR_PEER_LEFT);
    assert_int_equal(send_large(pair.t[0], 2), TUTTI_ERR_PEER_LEFT);
    pair_close(&pair);
}

static void sleeps_end_when_something_is_due(void **state)
{
    struct pair pair;
    struct tutti_event e;
    struct tutti_sources sources;
    pair_open(&pair, *state);
    assert_int_equal(send_large(pair.t[0], 1), TUTTI_PENDING);
    tutti_sources_init(&sources);
    assert_true(pair.t[1]->ops->sleep_begin(pair.t[1], &sources));
    pair.t[1]->ops->sleep_end(pair.t[1]);
    assert_int_equal(sources.due_ns, 1 + LATENCY_NS);
    pair.hand.now_ns = sources.due_ns;
    assert_false(pair.t[1]->ops->sleep_begin(pair.t[1], &sources));
    pair.t[1]->ops->sleep_end(pair.t[1]);
    expect(&pair, 1, TUTTI_EVENT_HEADER, &e);
    pair.t[1]->ops->place(pair.t[1], NULL, 0, 0);
    pair_close(&pair);
}

int main(void)
{
    static char bare[] = "", trace[] = "trace", fault[] = "fault", delay[] = "delay";
#define ON(test, decorators)                                                                                           \
    {                                                                                                                  \
#test " " #decorators, test, NULL, NULL, decorators                                                            \
    }
    const struct CMUnitTest tests[] = {ON(a_payload_is_placed, bare),
                                       ON(a_payload_is_placed, trace),
                                       ON(a_payload_comes_whole, bare),
                                       ON(a_payload_comes_whole, trace),
                                       ON(a_payload_comes_whole, fault),
                                       ON(a_payload_comes_whole, delay),
                                       ON(tokens_are_taken_back, bare),
                                       ON(tokens_are_taken_back, trace),
                                       ON(a_cut_gives_tokens_back, bare),
                                       ON(a_cut_gives_tokens_back, fault),
                                       ON(who_leaves_gives_tokens_back, bare),
                                       ON(who_leaves_gives_tokens_back, delay),
                                       ON(sleeps_end_when_something_is_due, bare)};
    tutti_log_threshold = TUTTI_LOG_ERROR;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
