/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks in, verdict out: a table of cases, each of them judged a second time after it went through a dump. */

#include "doctor.h"

#include "base/config.h"
#include "sched/kind.h"
#include "tests/test.h"

#include <string.h>

#define S TUTTI_NS_PER_S
enum { RANKS = 4, COMM = 0xabc, OTHER = 0xdef };

/* ---- a job of four ranks on two hosts ---- */

static struct tutti_board board_of(uint32_t rank, uint64_t seq, bool in_call)
{
    return (struct tutti_board){.comm = COMM,
                                .seq = seq,
                                .completed = in_call ? seq - 1 : seq,
                                .signature = 11 * seq,
                                .count = 64,
                                .called_ns = 5 * S,
                                .since_ns = 5 * S,
                                .peer = -1,
                                .root = -1,
                                .message_peer = -1,
                                .rank = rank,
                                .size = RANKS,
                                .kind = TUTTI_ALL_REDUCE,
                                .dtype = TUTTI_FLOAT32,
                                .op = TUTTI_SUM,
                                .state = TUTTI_BOARD_IN_USE};
}

/* All in call #17, looked at `looks` times; `step` calls further at each. */
static struct doctor_world job_make(uint32_t looks, uint64_t step)
{
    struct doctor_world world = {.world = 1, .n = RANKS};
    for (uint32_t k = 0; k < looks; k++) {
        assert_int_equal(doctor_world_look_add(&world, k * S / 4), TUTTI_OK);
        for (uint32_t i = 0; i < RANKS; i++) {
            struct doctor_rank *rank = &world.looks[k][i];
            *rank = (struct doctor_rank){.known = true, .pid = 100 + (int32_t)i, .process = 'S', .n_boards = 1};
            snprintf(rank->host, sizeof rank->host, "%s", i < RANKS / 2 ? "a" : "b");
            rank->boards[0] = board_of(i, 17 + step * k, true);
        }
    }
    return world;
}

#define EACH(world, look)                                                                                              \
    for (struct doctor_rank **look = (world)->looks; look < (world)->looks + (world)->n_looks; look++)

static void fine(struct doctor_world *w)
{
    EACH(w, look)
    for (uint32_t i = 0; i < RANKS; i++) (*look)[i].boards[0].called_ns = S / 1000;
}

static void computing(struct doctor_world *w)
{
    EACH(w, look)
    for (uint32_t i = 0; i < RANKS; i++) (*look)[i].boards[0].completed = 17, (*look)[i].process = 'R';
}

static void missing(struct doctor_world *w)
{
    EACH(w, look)(*look)[3].boards[0] = board_of(3, 16, false), (*look)[3].process = 'R';
}

/* The board lags behind: short calls are only counted. */
static void missing_counted(struct doctor_world *w)
{
    EACH(w, look)(*look)[3].boards[0] = board_of(3, 4, false), (*look)[3].boards[0].counted = 16;
}

static void missing_two(struct doctor_world *w)
{
    EACH(w, look)(*look)[1].boards[0] = board_of(1, 16, false), (*look)[3].boards[0] = board_of(3, 16, false);
}

/* Rank 3 has not called, since it waits in another communicator for rank 2, which has not called that. */
static void missing_elsewhere(struct doctor_world *w)
{
    EACH(w, look)
    {
        struct doctor_rank *ranks = *look;
        for (uint32_t i = 2; i < 4; i++) {
            ranks[i].boards[0] = board_of(i, 16, false);
            ranks[i].boards[1] = board_of(i - 2, i == 3 ? 9 : 8, i == 3);
            ranks[i].boards[1].comm = OTHER, ranks[i].boards[1].size = 2;
            ranks[i].boards[1].called_ns = 6 * S;
            ranks[i].n_boards = 2;
        }
    }
}

/* Ranks 0 and 1 call in two communicators in different orders. */
static void circle(struct doctor_world *w)
{
    EACH(w, look)
    {
        struct doctor_rank *ranks = *look;
        for (uint32_t i = 0; i < RANKS; i++) {
            ranks[i].boards[0] = board_of(i, 17, i != 1);
            if (i == 1) ranks[i].boards[0].seq = ranks[i].boards[0].completed = 16;
            ranks[i].boards[1] = board_of(i, i == 1 ? 9 : 8, i == 1);
            ranks[i].boards[1].comm = OTHER;
            ranks[i].n_boards = 2;
            if (i > 1) ranks[i].boards[0].seq = ranks[i].boards[0].completed = 17, ranks[i].boards[1].seq = 9;
            if (i > 1) ranks[i].boards[1].completed = 9, ranks[i].boards[1].signature = 99;
        }
    }
}

static void mismatch(struct doctor_world *w)
{
    EACH(w, look)
    {
        struct tutti_board *b = &(*look)[2].boards[0];
        b->kind = TUTTI_BROADCAST, b->root = 1, b->op = 255, b->signature = 99;
    }
}

static void dead(struct doctor_world *w)
{
    missing(w);
    EACH(w, look)(*look)[3].life = TUTTI_LIFE_DEAD, (*look)[3].known = false;
}

static void stopped(struct doctor_world *w)
{
    EACH(w, look)(*look)[1].process = 'T';
}

static void left(struct doctor_world *w)
{
    EACH(w, look)(*look)[3].n_boards = 0;
}

static void unheard(struct doctor_world *w)
{
    EACH(w, look)
    for (uint32_t i = 2; i < 4; i++)
        (*look)[i].known = false, (*look)[i].n_boards = 0, (*look)[i].life = TUTTI_LIFE_ALIVE;
}

/* The same, but the host takes connections: the process that speaks for it is stopped. */
static void stopped_speaker(struct doctor_world *w)
{
    unheard(w);
    for (uint32_t i = 2; i < 4; i++) w->looks[w->n_looks - 1][i].reach = DOCTOR_CONNECTS;
}

static void host_gone(struct doctor_world *w)
{
    unheard(w);
    for (uint32_t i = 2; i < 4; i++) w->looks[w->n_looks - 1][i].reach = DOCTOR_NO_WAY;
}

static void letter(struct doctor_world *w)
{
    EACH(w, look)
    for (uint32_t i = 0; i < RANKS; i++) {
        struct tutti_board *b = &(*look)[i].boards[0];
        *b = board_of(i, 16, false);
        if (i == 0) b->message = TUTTI_BOARD_RECV, b->message_peer = 2, b->message_tag = 7, b->message_since_ns = 3 * S;
    }
}

static void unsignalled(struct doctor_world *w)
{
    letter(w);
    EACH(w, look)(*look)[0].boards[0].message = TUTTI_BOARD_WAIT;
}

/* All have called; each waits for the one before it in a ring: a message is on its way. */
static void ring(struct doctor_world *w)
{
    EACH(w, look)
    for (uint32_t i = 0; i < RANKS; i++) (*look)[i].boards[0].peer = (int32_t)(i + 3) % RANKS;
}

/* Each look finds rank 2 late: it has not called yet. */
static void slow_rank(struct doctor_world *w)
{
    uint64_t seq = 17;
    EACH(w, look)(*look)[2].boards[0] = board_of(2, seq++ - 1, false), (*look)[2].process = 'R';
}

static void slow_link(struct doctor_world *w)
{
    ring(w);
    EACH(w, look)
    {
        for (uint32_t i = 0; i < RANKS; i++) (*look)[i].boards[0].step = 3 + i, (*look)[i].boards[0].called_ns = S / 5;
        (*look)[2].boards[0].step = 1;
    }
}

static const struct {
    void (*make)(struct doctor_world *);
    enum doctor_kind kind;
    int32_t rank, other;
    uint64_t step; /* calls from one look to the next */
    const char *says;
} cases[] = {
    {fine, DOCTOR_FINE, -1, -1, 3,
     "nothing is wrong with the 4 ranks: calls on communicator abc went from #17 to #38 in"},
    {computing, DOCTOR_FINE, -1, -1, 0, "no rank waits long for another"},
    {missing, DOCTOR_MISSING, 3, 0, 0,
     "rank 3 on host b has not called all_reduce #17 (float32, 64 elements, sum) on communicator abc, which 3 ranks "
     "have "
     "been waiting in for 5.0 s; its last call there is all_reduce #16 (float32, 64 elements, sum), complete for 5.0 "
     "s; "
     "its process 103 computes"},
    {missing_counted, DOCTOR_MISSING, 3, 0, 0, "its last call there is #16; its process 103 sleeps"},
    {missing_two, DOCTOR_MISSING, 1, 0, 0, "rank 1 on host a (and 1 more ranks) has not called all_reduce #17"},
    {missing_elsewhere, DOCTOR_MISSING, 2, 3, 0,
     "rank 2 on host b has not called all_reduce #9 (float32, 64 elements, sum) on communicator def"},
    {circle, DOCTOR_CIRCLE, -1, -1, 0, "wait for one another in different calls"},
    {mismatch, DOCTOR_MISMATCH, 2, 0, 0,
     "rank 2 on host b called broadcast(float32, 64 elements, root 1) as #17 on communicator abc, rank 0 on host a "
     "called "
     "all_reduce(float32, 64 elements, sum)"},
    {dead, DOCTOR_DEAD, 3, 0, 0,
     "rank 3 on host b died: its process or its host is gone; 3 ranks have waited in all_reduce #17"},
    {stopped, DOCTOR_STOPPED, 1, 0, 0,
     "rank 1 on host a is stopped (SIGSTOP, a debugger): process 101; 3 ranks have waited in all_reduce #17"},
    {left, DOCTOR_LEFT, 3, 0, 0, "rank 3 on host b has left the communicator"},
    {unheard, DOCTOR_UNHEARD, 2, 0, 0,
     "rank 2 on host b (and 1 more ranks) does not answer: the process that speaks for its host is stopped"},
    {stopped_speaker, DOCTOR_STOPPED, 2, 0, 0,
     "rank 2 on host b is stopped, or does not get to run: its host takes connections, but the process does not "
     "answer"},
    {host_gone, DOCTOR_UNHEARD, 2, 0, 0,
     "rank 2 on host b (and 1 more ranks) does not answer, and no connection to its host can be made"},
    {letter, DOCTOR_LETTER, 2, 0, 0,
     "rank 2 on host b has not sent the message with tag 7 that rank 0 on host a waits for: recv from rank 2 (tag 7) "
     "on "
     "communicator abc, for 3.0 s"},
    {unsignalled, DOCTOR_LETTER, 2, 0, 0,
     "rank 2 on host b has not sent signal 7 that rank 0 on host a waits for: wait_signal from rank 2 (signal 7) on "
     "communicator abc, for 3.0 s"},
    {ring, DOCTOR_LINK, -1, -1, 0, "does not arrive, though all have called it; 4 ranks have waited in all_reduce #17"},
    {slow_rank, DOCTOR_SLOW_RANK, 2, 0, 1, "rank 2 on host b is slow: in 8 of 8 looks the others waited for it"},
    {slow_link, DOCTOR_SLOW_LINK, 1, 2, 1,
     "the link between rank 1 on host a and rank 2 on host b is slow: in 8 of 8 looks messages between their hosts"},
};

static void verdict_check(size_t i, const struct doctor_world *world)
{
    struct doctor_verdict verdict;
    doctor_diagnose(world, &verdict);
    if (verdict.kind != cases[i].kind || !strstr(verdict.text, cases[i].says))
        fail_msg("case %zu: %s: %s, not %s: %s", i, doctor_kind_name(verdict.kind), verdict.text,
                 doctor_kind_name(cases[i].kind), cases[i].says);
    if (cases[i].rank < 0) return;
    assert_int_equal(verdict.rank, cases[i].rank);
    assert_int_equal(verdict.other, cases[i].other);
}

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct doctor_world world = job_make(8, cases[i].step), read = {.n = 0};
        uint32_t n = 0;
        cases[i].make(&world);
        verdict_check(i, &world);
        FILE *file = tmpfile();
        assert_true(file && doctor_dump_write(file, &world));
        rewind(file);
        assert_int_equal(doctor_dump_read(file, &read, 1, &n), TUTTI_OK);
        fclose(file);
        assert_int_equal(n, 1);
        verdict_check(i, &read);
        doctor_world_fini(&world);
        doctor_world_fini(&read);
    }
}

/* Each of two dumps knows the ranks of one host. */
static void test_dumps_are_joined(void **state)
{
    (void)state;
    struct doctor_world joined = {.n = 0};
    uint32_t n = 0;
    for (uint32_t half = 0; half < 2; half++) {
        struct doctor_world world = job_make(4, 0);
        missing(&world);
        EACH(&world, look)
        for (uint32_t i = 0; i < RANKS; i++)
            if (i / 2 != half) (*look)[i] = (struct doctor_rank){.life = TUTTI_LIFE_UNKNOWN};
        FILE *file = tmpfile();
        assert_true(file && doctor_dump_write(file, &world));
        rewind(file);
        assert_int_equal(doctor_dump_read(file, &joined, 1, &n), TUTTI_OK);
        fclose(file);
        doctor_world_fini(&world);
    }
    verdict_check(2, &joined);
    doctor_world_fini(&joined);
}

static void test_dumps_that_can_not_be(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "hello\n",
        "tutti-looks 1 world=1 n=0 looks=1 one_host=0\n",
        "look at=1\n",
        "tutti-looks 1 world=1 n=4 looks=1 one_host=0\nrank 0 known=1 life=0 pid=1 process=83 reach=0 host=a\n",
        "tutti-looks 1 world=1 n=4 looks=1 one_host=0\nlook at=0\nrank 4 known=1 life=0 pid=1 process=83 reach=0 "
        "host=a\n",
        "tutti-looks 1 world=1 n=4 looks=1 one_host=0\nlook at=0\nrank 0 known=1 life=9 pid=1 process=83 reach=0 "
        "host=a\n",
        "tutti-looks 1 world=1 n=4 looks=1 one_host=0\nlook at=0\nboard comm=1\n",
        "tutti-looks 1 world=1 n=4 looks=1 one_host=0\nlook at=0\nrank 0 known=1 life=0 pid=1 process=83 reach=0 "
        "host=a\nboard "
        "comm=1 seq=2\n",
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(texts); i++) {
        struct doctor_world world = {.n = 0};
        uint32_t n = 0;
        FILE *file = tmpfile();
        assert_true(file && fputs(texts[i], file) >= 0);
        rewind(file);
        if (doctor_dump_read(file, &world, 1, &n) != TUTTI_ERR_CONFIG) fail_msg("text %zu was understood", i);
        fclose(file);
        if (n > 0) doctor_world_fini(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_dumps_are_joined),
        cmocka_unit_test(test_dumps_that_can_not_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
