/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that is no member sees who is there and what each shows, asks, and is not misled by what can not be. */

#include "control/asks.h"

#include "control/host_world.h"

#include <stdatomic.h>
#include <unistd.h>

static const struct backend shm = {"shm", "shm", "", true, 0, NULL};

static struct tutti_host_control *observe(struct control_world *world)
{
    struct tutti_segment *segment;
    struct tutti_host_control *host;
    int control_fd, heap_fd;
    tutti_segment_fds(tutti_host_control_of(world->controls[0])->segment, &control_fd, &heap_fd);
    assert_int_equal(tutti_segment_look(dup(control_fd), &segment), TUTTI_OK);
    assert_int_equal(tutti_host_control_observe(segment, &host), TUTTI_OK);
    return host;
}

static void test_who(void **state)
{
    (void)state;
    struct control_world world = control_world_make(&shm, 2, false);
    struct tutti_host_control *host = observe(&world);
    struct tutti_who who = {.world = 77, .member = 5, .n = 6, .host = "a"}, got;
    assert_false(tutti_who_read(host, 1, &got)); /* it has not said so yet */
    tutti_who_write(world.controls[1], &who);
    assert_true(tutti_who_read(host, 1, &got));
    assert_memory_equal(&got, &who, sizeof who);
    assert_false(tutti_who_read(host, 2, &got));
    who.member = 6;
    tutti_who_write(world.controls[1], &who);
    assert_false(tutti_who_read(host, 1, &got)); /* a member beyond the last */
    assert_int_equal(host->base.ops->life(&host->base, 1), TUTTI_LIFE_ALIVE);
    host->base.ops->close(&host->base);
    control_world_free(&world);
}

static void test_boards_in_use(void **state)
{
    (void)state;
    struct control_world world = control_world_make(&shm, 2, false);
    struct tutti_host_control *host = observe(&world);
    struct tutti_control *c = world.controls[1];
    struct tutti_board board = {.comm = 70, .seq = 3, .state = TUTTI_BOARD_IN_USE}, got;
    c->ops->publish(c, 6, &board);
    atomic_store(c->ops->counter(c, 6), tutti_board_count(70, 9));
    board.comm = 80, board.state = TUTTI_BOARD_LEFT;
    c->ops->publish(c, 7, &board);
    board.comm = 90, board.state = TUTTI_BOARD_IN_USE;
    c->ops->publish(c, 8, &board);
    atomic_store(c->ops->counter(c, 8), tutti_board_count(26, 9)); /* another communicator's */
    assert_int_equal(host->base.ops->peek(&host->base, 1, TUTTI_BOARD_NTH, &got), TUTTI_OK);
    assert_int_equal(got.comm, 70);
    assert_int_equal(got.counted, 9);
    assert_int_equal(got.pid, getpid());
    assert_true(got.process == 'R' || got.process == 'S');
    assert_int_equal(host->base.ops->peek(&host->base, 1, TUTTI_BOARD_NTH + 1, &got), TUTTI_OK);
    assert_int_equal(got.comm, 90);
    assert_int_equal(got.counted, 0);
    assert_int_equal(host->base.ops->peek(&host->base, 1, TUTTI_BOARD_NTH + 2, &got), TUTTI_OK);
    assert_int_equal(got.state, TUTTI_BOARD_EMPTY);
    assert_int_equal(host->base.ops->peek(&host->base, 1, TUTTI_BOARD_ASKED, &got), TUTTI_ERR_UNSUPPORTED);
    host->base.ops->close(&host->base);
    control_world_free(&world);
}

static void test_asks(void **state)
{
    (void)state;
    struct control_world world = control_world_make(&shm, 2, false);
    struct tutti_host_control *host = observe(&world);
    struct tutti_control *c = world.controls[0], *peer = world.controls[1];
    struct tutti_board board = {.comm = 70, .seq = 3, .state = TUTTI_BOARD_IN_USE};
    struct tutti_ask_answer answer;
    peer->ops->publish(peer, 6, &board);
    assert_false(tutti_asks_served(host, 0, tutti_now_ns()));
    assert_true(tutti_asks_take(host, 0));
    tutti_asks_put(host, 0, 3, 1, 6);
    tutti_asks_put(host, 0, 4, 99, 6);
    assert_false(tutti_asks_get(host, 0, 3, &answer));
    assert_false(tutti_asks_peek(host, 0, 3, &answer));
    c->ops->serve(c, c);
    assert_true(tutti_asks_served(host, 0, tutti_now_ns()));
    assert_true(tutti_asks_get(host, 0, 3, &answer));
    assert_int_equal(answer.status, TUTTI_OK);
    assert_int_equal(answer.life, TUTTI_LIFE_ALIVE);
    assert_int_equal(answer.board.seq, 3);
    assert_true(tutti_asks_get(host, 0, 4, &answer)); /* no such member */
    assert_int_equal(answer.status, TUTTI_ERR_UNSUPPORTED);
    board.seq = 4;
    peer->ops->publish(peer, 6, &board);
    tutti_asks_put(host, 0, 3, 1, 6); /* the row again */
    assert_false(tutti_asks_get(host, 0, 3, &answer));
    c->ops->serve(c, c);
    assert_true(tutti_asks_get(host, 0, 3, &answer));
    assert_int_equal(answer.board.seq, 4);
    tutti_asks_give(host, 0);
    atomic_store(&host->asks[0].asker, 1); /* another process, which lives */
    assert_false(tutti_asks_take(host, 0));
    atomic_store(&host->asks[0].asker, 0x7ffffffe); /* one that is gone */
    assert_true(tutti_asks_take(host, 0));
    atomic_store(&host->asks[0].rows[3].life, 77);
    assert_true(tutti_asks_get(host, 0, 3, &answer));
    assert_int_equal(answer.life, TUTTI_LIFE_UNKNOWN);
    host->base.ops->close(&host->base);
    control_world_free(&world);
}

/* A control that keeps boards must not answer with one from before the question. */
static uint64_t shown_ns;
static struct tutti_control *keeper;
static enum tutti_status peek_since(struct tutti_control *c, uint32_t peer, uint32_t slot, uint64_t since_ns,
                                    struct tutti_board *out)
{
    if (shown_ns < since_ns) return TUTTI_PENDING;
    assert_true(c->ops->peek_since == peek_since);
    return tutti_host_peek(keeper, peer, slot, out);
}

static enum tutti_life life(struct tutti_control *c, uint32_t peer)
{
    return c->ops->peek_since == peek_since && peer == 0 ? TUTTI_LIFE_ALIVE : TUTTI_LIFE_UNKNOWN;
}

static void test_answers_are_new(void **state)
{
    (void)state;
    struct control_world world = control_world_make(&shm, 2, false);
    struct tutti_host_control *host = observe(&world);
    struct tutti_control *c = world.controls[0];
    struct tutti_control_ops ops = *c->ops;
    struct tutti_control keeps = *c;
    struct tutti_ask_answer answer;
    ops.peek_since = peek_since, ops.life = life, keeps.ops = &ops;
    keeper = c, shown_ns = tutti_now_ns();
    assert_true(tutti_asks_take(host, 0));
    tutti_asks_put(host, 0, 0, 0, TUTTI_BOARD_NTH);
    c->ops->serve(c, &keeps);
    assert_false(tutti_asks_get(host, 0, 0, &answer));
    shown_ns = tutti_now_ns();
    c->ops->serve(c, &keeps);
    assert_true(tutti_asks_get(host, 0, 0, &answer));
    tutti_asks_give(host, 0);
    host->base.ops->close(&host->base);
    control_world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who),
        cmocka_unit_test(test_boards_in_use),
        cmocka_unit_test(test_asks),
        cmocka_unit_test(test_answers_are_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
