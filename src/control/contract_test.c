/* SPDX-License-Identifier: BSD-3-Clause */

/* The contract of control, over that of one host, which answers at once, and over one that answers late. What may come
 * later is awaited with a deadline, so one test serves both. */

#include "control/host_world.h"
#include "control/late_test.h"

#define LATE_NS (15 * TUTTI_NS_PER_MS)
#define SOON_NS (10 * TUTTI_NS_PER_S)

static const struct backend self = {"self", "self", "", false, 0, NULL};

struct party {
    bool late;
    uint32_t n;
    struct control_world world; /* the host's */
    struct late_hub *hub;
    struct tutti_control *members[8]; /* NULL: closed */
};

static struct party party_make(bool late, uint32_t n)
{
    struct party p = {.late = late, .n = n};
    if (late)
        p.hub = late_hub_make(n, LATE_NS, true);
    else
        p.world = control_world_make(&self, n, false);
    for (uint32_t i = 0; i < n; i++) p.members[i] = late ? late_open(p.hub, i) : p.world.controls[i];
    return p;
}

static void party_leave(struct party *p, uint32_t i)
{
    if (!p->members[i]) return;
    if (p->late)
        p->members[i]->ops->close(p->members[i]);
    else
        control_member_close(&p->world, i);
    p->members[i] = NULL;
}

static void party_free(struct party *p)
{
    for (uint32_t i = 0; i < p->n; i++) party_leave(p, i);
    if (p->late)
        late_hub_free(p->hub);
    else
        control_world_free(&p->world);
}

static void await_life(struct tutti_control *c, uint32_t peer, enum tutti_life life)
{
    const uint64_t end = tutti_deadline_ns(SOON_NS);
    while (c->ops->life(c, peer) != life) {
        assert_true(tutti_now_ns() < end);
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
}

/* Until the peer's board shows `seq` or more. */
static struct tutti_board await_board(struct tutti_control *c, uint32_t peer, uint32_t slot, uint64_t seq)
{
    const uint64_t end = tutti_deadline_ns(SOON_NS);
    struct tutti_board board = {.seq = 0};
    for (;;) {
        const enum tutti_status status = c->ops->peek(c, peer, slot, &board);
        assert_true(status == TUTTI_OK || (status == TUTTI_PENDING && !c->answers_at_once));
        if (status == TUTTI_OK && board.seq >= seq) return board;
        assert_true(tutti_now_ns() < end && !(c->answers_at_once && status == TUTTI_OK));
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
}

static struct tutti_failure await_failure(struct tutti_control *c)
{
    const uint64_t end = tutti_deadline_ns(SOON_NS);
    struct tutti_failure failure;
    while (c->ops->failure(c, &failure) != TUTTI_OK) {
        assert_true(tutti_now_ns() < end);
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
    return failure;
}

/* ---- tests ---- */

static void lives_are_told(void **state)
{
    struct party p = party_make(*state != NULL, 3);
    struct tutti_control *c = p.members[0];
    await_life(c, 0, TUTTI_LIFE_ALIVE);
    await_life(c, 1, TUTTI_LIFE_ALIVE);
    party_leave(&p, 1);
    await_life(c, 1, TUTTI_LIFE_LEFT);
    assert_int_equal(c->ops->life(c, 1), TUTTI_LIFE_LEFT); /* for good */
    assert_int_equal(c->ops->life(c, 2), TUTTI_LIFE_ALIVE);
    party_free(&p);
}

static void boards_are_shown(void **state)
{
    struct party p = party_make(*state != NULL, 3);
    struct tutti_control *c = p.members[0], *peer = p.members[1];
    struct tutti_board board = await_board(c, 1, 5, 0);
    assert_int_equal(board.state, TUTTI_BOARD_EMPTY);
    for (uint64_t seq = 1; seq < 4; seq++) {
        const struct tutti_board shown = {.comm = 7, .seq = seq, .count = seq * 3, .state = TUTTI_BOARD_IN_USE};
        peer->ops->publish(peer, 5, &shown);
        assert_int_equal(peer->ops->peek(peer, 1, 5, &board), TUTTI_OK); /* one's own are known at once */
        assert_int_equal(board.seq, seq);
        board = await_board(c, 1, 5, seq);
        assert_true(board.comm == 7 && board.seq == seq && board.count == seq * 3);
    }
    assert_int_equal(c->ops->peek(c, 3, 5, &board), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(c->ops->peek(c, 1, TUTTI_BOARD_ALL, &board), TUTTI_ERR_UNSUPPORTED);
    /* A peer that is gone shows its last one, however little time there was to see it. */
    const struct tutti_board last = {.comm = 7, .seq = 4, .state = TUTTI_BOARD_LEFT};
    peer->ops->publish(peer, 5, &last);
    party_leave(&p, 1);
    await_life(c, 1, TUTTI_LIFE_LEFT);
    enum tutti_status status;
    while ((status = c->ops->peek(c, 1, 5, &board)) == TUTTI_PENDING) tutti_sleep_ns(TUTTI_NS_PER_MS);
    assert_int_equal(status, TUTTI_OK);
    assert_int_equal(board.seq, 4);
    party_free(&p);
}

/* All read one failure of a communicator and epoch, the same, once; the member that raised it, too. */
static void failures_reach_all(void **state)
{
    struct party p = party_make(*state != NULL, 4);
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        for (uint32_t i = 0; i < 4; i++) {
            struct tutti_failure failure = {.comm = 9, .epoch = epoch, .culprit = i};
            tutti_error_set(&failure.error, TUTTI_ERR_TIMEOUT, "rank %u says so", i);
            p.members[i]->ops->raise(p.members[i], &failure);
        }
        const struct tutti_failure first = await_failure(p.members[0]);
        assert_int_equal(first.epoch, epoch);
        for (uint32_t i = 1; i < 4; i++) {
            const struct tutti_failure same = await_failure(p.members[i]);
            assert_true(same.comm == 9 && same.epoch == epoch && same.culprit == first.culprit);
            assert_string_equal(same.error.text, first.error.text);
            assert_int_equal(same.error.status, TUTTI_ERR_TIMEOUT);
        }
    }
    tutti_sleep_ns(3 * LATE_NS);
    for (uint32_t i = 0; i < 4; i++) {
        struct tutti_failure failure;
        assert_int_equal(p.members[i]->ops->failure(p.members[i], &failure), TUTTI_AGAIN);
        assert_false(tutti_control_alarmed(p.members[i]));
    }
    party_free(&p);
}

static void count_wake(void *arg)
{
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

/* A member that sleeps is notified: by the alarm, and by a call where the raise itself wakes nobody. */
static void alarms_are_raised(void **state)
{
    struct party p = party_make(*state != NULL, 2);
    struct tutti_control *c = p.members[0];
    _Atomic uint32_t n_woken = 0;
    const struct tutti_failure failure = {.comm = 3, .error = {.status = TUTTI_ERR_ABORTED, .text = "x"}};
    const uint64_t end = tutti_deadline_ns(SOON_NS);
    if (c->ops->listen) c->ops->listen(c, count_wake, &n_woken);
    assert_false(tutti_control_alarmed(c));
    p.members[1]->ops->raise(p.members[1], &failure);
    while (!tutti_control_alarmed(c) || (c->ops->listen && n_woken == 0)) assert_true(tutti_now_ns() < end);
    await_failure(c);
    struct tutti_failure none;
    assert_int_equal(c->ops->failure(c, &none), TUTTI_AGAIN);
    assert_false(tutti_control_alarmed(c));
    if (c->ops->listen) c->ops->listen(c, NULL, NULL);
    party_free(&p);
}

#define ON_BOTH(test)                                                                                                  \
    {#test " (host)", test, NULL, NULL, NULL},                                                                         \
    {                                                                                                                  \
#test " (late)", test, NULL, NULL, (void *)&self                                                               \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {ON_BOTH(lives_are_told), ON_BOTH(boards_are_shown), ON_BOTH(failures_reach_all),
                                       ON_BOTH(alarms_are_raised)};
    return cmocka_run_group_tests_name("control.contract", tests, NULL, NULL);
}
