/* SPDX-License-Identifier: BSD-3-Clause */
/* Boards and failures: read whole while they are written, told to all, and nobody is misled by what a broken member
 * writes. */

#include "control/host_world.h"

#include <pthread.h>
#include <stdatomic.h>

static const struct backend backends[] = {
    {"self", "self", "", false, 0, NULL},
    {"shm, own mappings", "shm", "", true, 0, NULL},
};

/* ---- boards ---- */

/* Every field follows from seq, so that a torn copy is seen. */
static struct tutti_board board_of(uint64_t seq)
{
    const uint64_t x = tutti_mix64(seq);
    struct tutti_board board;
    memset(&board, 0, sizeof(board)); /* the padding travels, too */
    board.comm = x;
    board.seq = seq;
    board.completed = x + 1;
    board.signature = x + 2;
    board.count = x + 3;
    board.step = (uint32_t)(x + 4);
    board.n_steps = (uint32_t)(x >> 32);
    board.peer = (int32_t)(x >> 7);
    board.root = (int32_t)(x >> 9);
    board.kind = (uint8_t)x, board.dtype = (uint8_t)(x >> 8), board.op = (uint8_t)(x >> 16);
    board.state = TUTTI_BOARD_IN_USE;
    return board;
}

struct publisher {
    struct tutti_control *c;
    uint64_t base, n_published;
    _Atomic bool *stop;
};

static void *publish_on_and_on(void *arg)
{
    struct publisher *p = arg;
    for (uint64_t seq = p->base; !atomic_load(p->stop); seq++) {
        const struct tutti_board board = board_of(seq);
        p->c->ops->publish(p->c, 3, &board);
        p->n_published++;
    }
    return NULL;
}

static void boards_are_whole_while_written(void **state)
{
    struct control_world world = control_world_make(*state, 2, false);
    struct tutti_control *c = world.controls[0];
    _Atomic bool stop = false;
    /* Any thread may publish: two of them do, on one slot. */
    struct publisher publishers[2] = {{world.controls[1], 1, 0, &stop},
                                      {world.controls[1], UINT64_C(1) << 40, 0, &stop}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, publish_on_and_on, &publishers[i]), 0);
    uint64_t last[2] = {0, 0}, n_read = 0;
    bool torn = false, backwards = false;
    const uint64_t end = tutti_deadline_ns(300 * TUTTI_NS_PER_MS), deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    while ((tutti_now_ns() < end || n_read < 1000) && tutti_now_ns() < deadline) {
        struct tutti_board board;
        if (c->ops->peek(c, 1, 3, &board) != TUTTI_OK || board.state == TUTTI_BOARD_EMPTY) continue;
        const struct tutti_board expected = board_of(board.seq);
        const int who = board.seq >> 40 != 0;
        torn |= memcmp(&board, &expected, sizeof(board)) != 0;
        backwards |= board.seq < last[who];
        last[who] = board.seq;
        n_read++;
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(tutti_host_control_of(c)->boards[TUTTI_BOARD_ALL + 3].sequence,
                     publishers[0].n_published + publishers[1].n_published); /* they took turns */
    assert_false(torn);
    assert_false(backwards);
    assert_true(n_read >= 1000);
    control_world_free(&world);
}

/* ---- failures ---- */

static struct tutti_failure failure_of(uint32_t k)
{
    struct tutti_failure failure = {.comm = k,
                                    .epoch = k + 1,
                                    .culprit = k % 3,
                                    .error = {.status = TUTTI_ERR_TIMEOUT,
                                              .peer = (int32_t)k + 2,
                                              .os_errno = (int32_t)k + 3,
                                              .step = k + 4,
                                              .seq = k + 5,
                                              .collective = "all_reduce"}};
    snprintf(failure.error.text, sizeof(failure.error.text), "failure %u: %0*u", k, (int)(k % 400), k);
    return failure;
}

static void expect_failure(struct tutti_control *c, uint32_t k)
{
    struct tutti_failure got, expected = failure_of(k);
    assert_int_equal(c->ops->failure(c, &got), TUTTI_OK);
    assert_int_equal(got.comm, expected.comm);
    assert_int_equal(got.epoch, expected.epoch);
    assert_int_equal(got.culprit, expected.culprit);
    assert_int_equal(got.error.status, expected.error.status);
    assert_int_equal(got.error.peer, expected.error.peer);
    assert_int_equal(got.error.os_errno, expected.error.os_errno);
    assert_int_equal(got.error.step, expected.error.step);
    assert_int_equal(got.error.seq, expected.error.seq);
    assert_null(got.error.collective);
    assert_string_equal(got.error.text, expected.error.text);
}

static void expect_no_failure(struct tutti_control *c)
{
    struct tutti_failure failure;
    assert_int_equal(c->ops->failure(c, &failure), TUTTI_AGAIN);
}

static void failures_reach_all_once(void **state)
{
    struct control_world world = control_world_make(*state, 5, true);
    for (uint32_t i = 0; i < 4; i++) control_member_open(&world, i);
    for (uint32_t i = 0; i < 4; i++) expect_no_failure(world.controls[i]);
    for (uint32_t k = 0; k < 10; k++) {
        const struct tutti_failure failure = failure_of(k);
        world.controls[1]->ops->raise(world.controls[1], &failure);
    }
    control_member_open(&world, 4); /* late, but it must know, too */
    for (uint32_t i = 0; i < 5; i++) {
        struct tutti_control *c = world.controls[i];
        assert_true(tutti_control_alarmed(c));
        for (uint32_t k = 0; k < 10; k++) expect_failure(c, k);
        expect_no_failure(c);
        assert_false(tutti_control_alarmed(c));
    }
    const struct tutti_failure one = failure_of(100), two = failure_of(200);
    world.controls[3]->ops->raise(world.controls[3], &one);
    expect_failure(world.controls[0], 100); /* each reader is where it was */
    world.controls[2]->ops->raise(world.controls[2], &two);
    expect_failure(world.controls[0], 200);
    expect_no_failure(world.controls[0]);
    control_member_close(&world, 3);
    expect_failure(world.controls[4], 200); /* rows are read in the order of the members */
    expect_failure(world.controls[4], 100); /* also from one that left */
    expect_no_failure(world.controls[4]);
    control_world_free(&world);
}

/* Members that raise for one communicator at once are told the same: the first counts, whatever the order of reading.
 */
static void the_first_of_a_communicator_counts(void **state)
{
    struct control_world world = control_world_make(*state, 4, false);
    struct tutti_failure first = failure_of(7), second = failure_of(7), other = failure_of(7);
    strcpy(second.error.text, "it was too late");
    other.epoch++, other.error.seq++;
    world.controls[2]->ops->raise(world.controls[2], &first);
    world.controls[0]->ops->raise(world.controls[0], &second);
    world.controls[1]->ops->raise(world.controls[1], &other); /* another epoch's */
    for (uint32_t i = 0; i < 4; i++) {
        struct tutti_failure got;
        assert_int_equal(world.controls[i]->ops->failure(world.controls[i], &got), TUTTI_OK);
        assert_int_equal(got.epoch, other.epoch);
        expect_failure(world.controls[i], 7);
        expect_no_failure(world.controls[i]);
    }
    control_world_free(&world);
}

static void the_newest_failures_are_kept(void **state)
{
    struct control_world world = control_world_make(*state, 3, false);
    for (uint32_t k = 0; k < 3 * TUTTI_FAILURE_SLOTS + 5; k++) {
        const struct tutti_failure failure = failure_of(k);
        world.controls[0]->ops->raise(world.controls[0], &failure);
    }
    for (uint32_t k = 2 * TUTTI_FAILURE_SLOTS + 5; k < 3 * TUTTI_FAILURE_SLOTS + 5; k++)
        expect_failure(world.controls[1], k);
    expect_no_failure(world.controls[1]);
    control_world_free(&world);
}

static void *raise_later(void *arg)
{
    struct tutti_control *c = arg;
    const struct tutti_failure failure = failure_of(1);
    tutti_sleep_ns(30 * TUTTI_NS_PER_MS);
    c->ops->raise(c, &failure);
    return NULL;
}

/* As the engine's owner does. True: it was told not to sleep, or woken. */
static bool sleep_once(struct control_world *world, uint64_t deadline)
{
    struct tutti_transport *t = world->wire.members[0];
    struct tutti_sources sources;
    tutti_sources_init(&sources);
    if (t->ops->sleep_begin(t, &sources) && !tutti_control_alarmed(world->controls[0]))
        tutti_futex_wait(sources.at[0].word, sources.at[0].expected, deadline);
    t->ops->sleep_end(t);
    return tutti_now_ns() < deadline;
}

static void a_failure_ends_a_sleep(void **state)
{
    struct control_world world = control_world_make(*state, 2, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, raise_later, world.controls[1]), 0);
    struct tutti_failure failure;
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    while (world.controls[0]->ops->failure(world.controls[0], &failure) == TUTTI_AGAIN)
        assert_true(sleep_once(&world, deadline));
    pthread_join(thread, NULL);
    control_world_free(&world);
}

/* What a reader makes of a row that a broken member wrote. */
static void nonsense_in_rows_is_survived(void **state)
{
    struct control_world world = control_world_make(*state, 3, false);
    struct tutti_control *c = world.controls[0];
    struct tutti_failure_row *row = &tutti_host_control_of(c)->failures[1];
    _Atomic uint32_t *hint = &tutti_host_control_of(c)->claims->hint;
    atomic_store(&row->n_raised, UINT64_MAX); /* failures that are not there */
    atomic_fetch_add(hint, 1);
    expect_no_failure(c);
    atomic_store(&row->n_raised, 3);
    atomic_fetch_add(hint, 1);
    expect_no_failure(c);
    /* A success that failed, by nobody, without a sentence or an end of it. */
    const struct tutti_failure failure = {.culprit = 77, .error = {.status = TUTTI_OK}};
    world.controls[2]->ops->raise(world.controls[2], &failure);
    struct tutti_failure got;
    assert_int_equal(c->ops->failure(c, &got), TUTTI_OK);
    assert_int_equal(got.error.status, TUTTI_ERR_PROTOCOL);
    assert_int_equal(got.culprit, UINT32_MAX);
    assert_true(strlen(got.error.text) > 0);
    struct tutti_failure endless = failure_of(1);
    memset(endless.error.text, 'x', sizeof(endless.error.text));
    world.controls[2]->ops->raise(world.controls[2], &endless);
    assert_int_equal(c->ops->failure(c, &got), TUTTI_OK);
    assert_int_equal(strlen(got.error.text), sizeof(got.error.text) - 1);
    /* A writer that died halfway: the stamp is odd, the count not moved. */
    struct tutti_failure_row *dead = &tutti_host_control_of(c)->failures[2];
    atomic_store(&dead->slots[2].stamp, 5);
    atomic_fetch_add(hint, 1);
    expect_no_failure(c);
    control_world_free(&world);
}

#define ON_ALL(test)                                                                                                   \
    {#test " (self)", test, NULL, NULL, (void *)&backends[0]},                                                         \
    {                                                                                                                  \
#test " (shm)", test, NULL, NULL, (void *)&backends[1]                                                         \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ALL(boards_are_whole_while_written),
        ON_ALL(failures_reach_all_once),
        ON_ALL(the_first_of_a_communicator_counts),
        ON_ALL(the_newest_failures_are_kept),
        ON_ALL(a_failure_ends_a_sleep),
        {"nonsense_in_rows_is_survived", nonsense_in_rows_is_survived, NULL, NULL, (void *)&backends[1]},
    };
    return cmocka_run_group_tests_name("control.board", tests, NULL, NULL);
}
