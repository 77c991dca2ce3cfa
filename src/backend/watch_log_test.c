/* SPDX-License-Identifier: BSD-3-Clause */

/* Logs of calls: that two ranks differ is found, where they first do, however far one is ahead; that they agree is
 * believed; what is overwritten is not read. */

#include "test.h"

#include "backend/watch_log.h"

#include <pthread.h>
#include <string.h>

static struct watch_log logs[2];

static void post(struct watch_log *log, uint64_t seq, uint64_t count)
{
    const struct tutti_backend_call call = {.info = {.kind = TUTTI_ALL_REDUCE,
                                                     .dtype = TUTTI_FLOAT32,
                                                     .op = TUTTI_SUM,
                                                     .root = -1,
                                                     .count = count,
                                                     .signature = tutti_mix64(count + 1)},
                                            .seq = seq};
    watch_log_post(log, &call, 0, 1000 + seq);
}

static void agree(void **state)
{
    struct tutti_board mine, theirs;
    (void)state;
    memset(logs, 0, sizeof(logs));
    assert_false(watch_log_last(&logs[0], &mine));
    for (uint64_t i = 1; i < 5 * WATCH_LOG_ENTRIES; i++) {
        post(&logs[i & 1], (i + 1) / 2, (i + 1) / 2 % 7);
        assert_false(watch_log_differ(&logs[0], &logs[1], &mine, &theirs));
    }
    assert_true(watch_log_last(&logs[0], &mine));
    assert_int_equal(mine.seq, 5 * WATCH_LOG_ENTRIES / 2 - 1);
    assert_int_equal(mine.kind, TUTTI_ALL_REDUCE);
}

static void differ(void **state)
{
    struct tutti_board mine, theirs;
    (void)state;
    memset(logs, 0, sizeof(logs));
    for (uint64_t i = 1; i <= 20; i++) post(&logs[0], i, i == 17 ? 99 : 5);
    for (uint64_t i = 1; i <= 16; i++) post(&logs[1], i, 5);
    assert_false(watch_log_differ(&logs[0], &logs[1], &mine, &theirs));
    for (uint64_t i = 17; i <= 40; i++) post(&logs[1], i, 5);
    assert_true(watch_log_differ(&logs[0], &logs[1], &mine, &theirs));
    assert_int_equal(mine.seq, 17);
    assert_int_equal(mine.count, 99);
    assert_int_equal(theirs.seq, 17);
    assert_int_equal(theirs.count, 5);
    assert_int_equal(theirs.dtype, TUTTI_FLOAT32);
}

/* Equal calls under other numbers are other calls: one has made calls on host memory between them. */
static void numbers_differ(void **state)
{
    struct tutti_board mine, theirs;
    (void)state;
    memset(logs, 0, sizeof(logs));
    post(&logs[0], 1, 5), post(&logs[1], 1, 5);
    post(&logs[0], 2, 5), post(&logs[1], 3, 5);
    assert_true(watch_log_differ(&logs[0], &logs[1], &mine, &theirs));
    assert_int_equal(mine.seq, 2);
    assert_int_equal(theirs.seq, 3);
}

/* Told when the slow one has come as far as the other remembers, and not before from what is overwritten. */
static void far_ahead(void **state)
{
    struct tutti_board mine, theirs;
    (void)state;
    memset(logs, 0, sizeof(logs));
    for (uint64_t i = 1; i <= 3 * WATCH_LOG_ENTRIES; i++) post(&logs[0], i, 5);
    for (uint64_t i = 1; i <= 3 * WATCH_LOG_ENTRIES; i++) {
        post(&logs[1], i, i == 2 * WATCH_LOG_ENTRIES + 50 ? 6 : 5);
        bool seen = watch_log_differ(&logs[0], &logs[1], &mine, &theirs);
        assert_int_equal(seen, i >= 2 * WATCH_LOG_ENTRIES + 50);
        if (seen) assert_int_equal(theirs.seq, 2 * WATCH_LOG_ENTRIES + 50);
    }
    assert_false(watch_log_find(&logs[0], 2 * WATCH_LOG_ENTRIES, &mine));
    assert_true(watch_log_find(&logs[0], 2 * WATCH_LOG_ENTRIES + 2, &mine));
    assert_int_equal(mine.seq, 2 * WATCH_LOG_ENTRIES + 2);
}

/* The first call that the other has not made, while it is remembered; and its deadline. */
static void ahead(void **state)
{
    struct tutti_board call;
    (void)state;
    memset(logs, 0, sizeof(logs));
    assert_false(watch_log_ahead(&logs[0], &logs[1], &call));
    for (uint64_t i = 1; i <= 20; i++) post(&logs[0], 2 * i, i);
    for (uint64_t i = 1; i <= 7; i++) post(&logs[1], 2 * i, i);
    assert_true(watch_log_ahead(&logs[0], &logs[1], &call));
    assert_int_equal(call.seq, 16);
    assert_int_equal(call.count, 8);
    assert_false(watch_log_ahead(&logs[1], &logs[0], &call));
    assert_int_equal(watch_log_timeout(&logs[0], 16, 5), 1016);
    assert_int_equal(watch_log_timeout(&logs[0], 17, 5), 5);
    for (uint64_t i = 21; i <= WATCH_LOG_ENTRIES + 8; i++) post(&logs[0], 2 * i, i);
    assert_false(watch_log_ahead(&logs[0], &logs[1], &call));
    assert_int_equal(watch_log_timeout(&logs[0], 16, 5), 5);
}

/* ---- what waits for a peer: logs[0] is this rank's, logs[1] the peer's ---- */

static const struct watch_pair pair = {&logs[0], &logs[1], 0, 1};

/* A message from one to the other, as either of them has it. */
static uint64_t message(uint32_t rank, bool sends, size_t bytes)
{
    const uint64_t launch = watch_log_round(&logs[rank]);
    watch_log_message(&logs[rank], launch, 1 - rank, sends, bytes, 77);
    return launch;
}

/* Which parts of a launch the peer has made, and which of all it knows to be over. */
static void parts(void **state)
{
    (void)state;
    memset(logs, 0, sizeof(logs));
    assert_true(watch_log_done(&pair));
    post(&logs[0], 1, 5);
    const uint64_t launch = message(0, true, 8);
    assert_false(watch_log_made(&pair, 1));
    assert_false(watch_log_made(&pair, launch));
    logs[1].over = 1;
    assert_false(watch_log_done(&pair));
    logs[1].over = 0;
    message(1, false, 8);
    assert_true(watch_log_made(&pair, launch));
    assert_false(watch_log_made(&pair, 1));
    post(&logs[1], 1, 5);
    assert_true(watch_log_made(&pair, 1));
    assert_false(watch_log_done(&pair));
    logs[1].over = 1;
    assert_false(watch_log_done(&pair));
    logs[1].items_over = 2;
    assert_true(watch_log_done(&pair));
}

/* Sizes are compared as far as both have come, and once they differ, ever after. */
static void sizes(void **state)
{
    uint64_t n;
    (void)state;
    memset(logs, 0, sizeof(logs));
    for (size_t i = 1; i <= 5; i++) {
        message(0, true, i);
        assert_false(watch_log_letters(&pair, &n));
        message(1, false, i);
        assert_false(watch_log_letters(&pair, &n));
    }
    message(1, true, 8);
    message(0, false, 9);
    assert_true(watch_log_letters(&pair, &n));
    assert_int_equal(n, 1);
    message(1, true, 8), message(1, true, 8);
    assert_false(watch_log_letters(&pair, &n));
    message(0, false, 8), message(0, false, 8);
    assert_true(watch_log_letters(&pair, &n));
    assert_int_equal(n, 3);
}

/* A reader that looks while a message is being written down, its hash before its number, sees neither. */
static void half_written(void **state)
{
    uint64_t n;
    (void)state;
    memset(logs, 0, sizeof(logs));
    for (uint64_t i = 1; i <= 4; i++) {
        message(0, true, i);
        atomic_store(&logs[0].sent[1].n, i - 1);
        assert_false(watch_log_letters(&pair, &n));
        atomic_store(&logs[0].sent[1].n, i);
        message(1, false, i);
        atomic_store(&logs[1].received[0].n, i - 1);
        assert_false(watch_log_letters(&pair, &n));
        atomic_store(&logs[1].received[0].n, i);
        assert_false(watch_log_letters(&pair, &n));
    }
}

static _Atomic bool over;

static void *play(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < 1000000; i++) message(i & 1, true, i), message(1 - (i & 1), false, i);
    atomic_store(&over, true);
    return NULL;
}

static void meanwhile(void **state)
{
    pthread_t thread;
    uint64_t n, seen = 0;
    (void)state;
    memset(logs, 0, sizeof(logs));
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&thread, NULL, play, NULL), 0);
    while (!atomic_load(&over)) seen += watch_log_letters(&pair, &n);
    pthread_join(thread, NULL);
    assert_int_equal(seen, 0);
}

static void check_waits(bool died, int kind, uint64_t seq, uint64_t count)
{
    struct tutti_board board;
    assert_true(watch_log_awaits(&pair, died, &board));
    assert_int_equal(board.kind, kind);
    assert_int_equal(board.seq, seq);
    assert_int_equal(board.count, count);
    if (seq == 0) assert_int_equal(board.peer, 1);
}

static void to_another(size_t n)
{
    for (size_t i = 0; i < n; i++) watch_log_message(&logs[0], watch_log_round(&logs[0]), 2, true, 9, 77);
}

/* A rank that has left has done what it has made, whatever came between. */
static void left(void **state)
{
    struct tutti_board board;
    (void)state;
    memset(logs, 0, sizeof(logs));
    post(&logs[0], 1, 5), post(&logs[1], 1, 5);
    assert_false(watch_log_awaits(&pair, false, &board));
    message(0, false, 40);
    check_waits(false, TUTTI_REPORT_RECV, 0, 40);
    message(1, true, 40);
    assert_false(watch_log_awaits(&pair, false, &board));
    post(&logs[0], 2, 6);
    message(0, true, 8);
    check_waits(false, TUTTI_ALL_REDUCE, 2, 6);
    post(&logs[1], 2, 6);
    check_waits(false, TUTTI_REPORT_SEND, 0, 8);
    watch_log_message(&logs[0], watch_log_round(&logs[0]), 2, true, 9, 77); /* to another one */
    atomic_store(&logs[0].items_over, 4); /* the message was over without the peer's call, as rings hold it */
    assert_false(watch_log_awaits(&pair, false, &board));
    assert_true(watch_log_behind(&pair));
    to_another(WATCH_LOG_ITEMS);
    assert_true(watch_log_awaits(&pair, false, &board)); /* what it was is forgotten */
    assert_int_equal(board.peer, -1);
}

/* More in flight than is kept: a collective is told though its item is forgotten, and then by its number alone. */
static void left_behind(void **state)
{
    struct tutti_board board;
    (void)state;
    memset(logs, 0, sizeof(logs));
    post(&logs[0], 1, 5), post(&logs[1], 1, 5);
    to_another(WATCH_LOG_ITEMS);
    assert_false(watch_log_awaits(&pair, false, &board));
    post(&logs[0], 12, 6); /* those before were on memory of the host */
    message(0, true, 8);
    check_waits(false, TUTTI_ALL_REDUCE, 12, 6);
    to_another(WATCH_LOG_ITEMS - 2);
    check_waits(false, TUTTI_ALL_REDUCE, 12, 6);
    to_another(WATCH_LOG_ITEMS);
    check_waits(false, TUTTI_ALL_REDUCE, 12, 6);
    check_waits(true, TUTTI_ALL_REDUCE, 12, 6);
    message(0, true, 8);
    post(&logs[0], 13, 7);
    check_waits(false, TUTTI_ALL_REDUCE, 12, 6);
    atomic_store(&logs[0].over, 12); /* without the peer's call */
    check_waits(false, TUTTI_REPORT_SEND, 0, 8);
    atomic_store(&logs[0].over, 0);
    for (uint64_t i = 14; i < 14 + 2 * WATCH_LOG_ENTRIES; i++) post(&logs[0], i, i);
    check_waits(false, TUTTI_N_KINDS, 12, 0);
    atomic_store(&logs[0].over, 20);
    check_waits(true, TUTTI_N_KINDS, 21, 0);
    atomic_store(&logs[0].over, 14 + WATCH_LOG_ENTRIES);
    check_waits(false, TUTTI_ALL_REDUCE, 15 + WATCH_LOG_ENTRIES, 15 + WATCH_LOG_ENTRIES);
}

/* A rank that has died may have done what it has made, or not. */
static void died(void **state)
{
    (void)state;
    memset(logs, 0, sizeof(logs));
    for (uint32_t r = 0; r < 2; r++) post(&logs[r], 1, 5), message(r, r == 1, 40);
    check_waits(true, TUTTI_REPORT_RECV, 0, 40);
    message(0, true, 8);
    check_waits(true, TUTTI_REPORT_RECV, 0, 40);
    atomic_store(&logs[1].items_over, 2);
    check_waits(true, TUTTI_REPORT_SEND, 0, 8);
    message(1, false, 8);
    post(&logs[0], 2, 6);
    check_waits(true, TUTTI_REPORT_SEND, 0, 8);
    atomic_store(&logs[0].items_over, 3);
    check_waits(true, TUTTI_ALL_REDUCE, 2, 6);
}

/* The part of a group that the peer has not made; and the deadline. */
static void launched(void **state)
{
    struct tutti_board board;
    (void)state;
    memset(logs, 0, sizeof(logs));
    post(&logs[0], 1, 5);
    const uint64_t first = message(0, false, 7), round = watch_log_round(&logs[0]);
    watch_log_message(&logs[0], round, 1, false, 40, 78);
    watch_log_message(&logs[0], round, 1, true, 8, 78);
    watch_log_message(&logs[0], round, 2, true, 9, 78);
    message(0, true, 6);
    message(1, true, 7);
    watch_log_launched(&pair, round, &board);
    assert_int_equal(board.kind, TUTTI_REPORT_RECV);
    assert_int_equal(board.count, 40);
    message(1, true, 40);
    watch_log_launched(&pair, round, &board);
    assert_int_equal(board.kind, TUTTI_REPORT_SEND);
    assert_int_equal(board.count, 8);
    message(1, false, 8);
    watch_log_launched(&pair, round, &board);
    assert_int_equal(board.kind, TUTTI_REPORT_RECV);
    watch_log_launched(&pair, 1, &board);
    assert_int_equal(board.seq, 1);
    assert_int_equal(watch_log_timeout(&logs[0], first, 5), 77);
    assert_int_equal(watch_log_timeout(&logs[0], round, 5), 78);
    assert_int_equal(watch_log_timeout(&logs[0], 1, 5), 1001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agree),     cmocka_unit_test(differ),       cmocka_unit_test(numbers_differ),
        cmocka_unit_test(far_ahead), cmocka_unit_test(ahead),        cmocka_unit_test(parts),
        cmocka_unit_test(sizes),     cmocka_unit_test(half_written), cmocka_unit_test(meanwhile),
        cmocka_unit_test(left),      cmocka_unit_test(died),         cmocka_unit_test(left_behind),
        cmocka_unit_test(launched)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
