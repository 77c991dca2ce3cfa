/* SPDX-License-Identifier: BSD-3-Clause */

/* How tutti run ends: exit statuses, signals, and that no process outlives it, whoever is killed. */

#include "run_test.h"

#include "base/base.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- ends ---- */
static void test_exit_statuses(void **state)
{
    (void)state;
    struct launched l;
    assert_int_equal(launched_run(&l, LAUNCH("-n", "2", "true")), 0);
    launched_free(&l);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "3", "sh", "-c", "[ $RANK != 1 ] && sleep 30; exit 7")), 7);
    expect_in(l.err_text, "rank 1 (pid ");
    expect_in(l.err_text, ") ended with exit status 7; ending the others");
    assert_int_equal(count_of(l.err_text, "tutti run:"), 1);
    launched_free(&l);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "1", "no-such-program-here")), 127);
    expect_in(l.err_text, "there is no program 'no-such-program-here' in PATH");
    launched_free(&l);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "1", "/etc/passwd")), 126);
    launched_free(&l);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "1", "./no/such/file")), 127);
    launched_free(&l);
    assert_int_equal(launched_run(&l, LAUNCH("true")), 2);
    expect_in(l.err_text, "tutti run -n 4 true");
    launched_free(&l);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "2", "--env", "X", "true")), 2);
    launched_free(&l);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "2", "--tag-outptu", "true")), 2);
    expect_in(l.err_text, "--tag-output");
    launched_free(&l);
}

static void test_killed_rank(void **state)
{
    (void)state;
    struct launched l;
    launched_start(&l, LAUNCH("-n", "4", "--grace", "60s", "sh", "-c", "echo pid$RANK=$$=; exec sleep 100"));
    for (int rank = 0; rank < 4; rank++) {
        char key[16];
        snprintf(key, sizeof key, "pid%d=", rank);
        launched_expect(&l, key);
    }
    const pid_t pid = atoi(strstr(l.out_text, "pid2=") + 5);
    char want[128];
    snprintf(want, sizeof want, "rank 2 (pid %d) was killed by signal 9 (SIGKILL); ending the others", (int)pid);
    const uint64_t start = tutti_now_ns();
    kill(pid, SIGKILL);
    assert_int_equal(launched_wait(&l), 128 + SIGKILL);
    assert_true(tutti_now_ns() - start < 30 * TUTTI_NS_PER_S); /* SIGTERM sufficed */
    expect_in(l.err_text, want);
    launched_free(&l);
}

static void test_others_get_sigterm_then_sigkill(void **state)
{
    (void)state;
    struct launched l;
    launched_start(&l, LAUNCH("-n", "3", "--grace", "2s", "--tag-output", "sh", "-c",
                              "trap 'echo term; [ $RANK = 1 ] && exit 0' TERM; echo ready; "
                              "[ $RANK = 0 ] && read line && exit 5; while :; do sleep 0.05; done"));
    launched_expect(&l, "[0] ready\n");
    launched_expect(&l, "[1] ready\n");
    launched_expect(&l, "[2] ready\n");
    const uint64_t start = tutti_now_ns();
    assert_int_equal(write(l.in, "go\n", 3), 3);
    assert_int_equal(launched_wait(&l), 5);
    expect_in(l.out_text, "[1] term\n");
    expect_in(l.out_text, "[2] term\n");
    expect_in(l.err_text, "1 rank did not end within 2 s of SIGTERM; killing");
    assert_true(tutti_now_ns() - start >= 2 * TUTTI_NS_PER_S);
    launched_free(&l);
}

/* A SIGTERM to the launcher is passed on, and means it. */
static void test_ranks_that_ignore_sigterm_are_killed(void **state)
{
    (void)state;
    struct launched l;
    launched_start(&l, LAUNCH("-n", "2", "--grace", "1s", "--tag-output", "sh", "-c",
                              "trap 'echo term' TERM; echo ready; while :; do sleep 0.05; done"));
    launched_expect(&l, "[0] ready\n");
    launched_expect(&l, "[1] ready\n");
    kill(l.pid, SIGTERM);
    assert_int_equal(launched_wait(&l), 128 + SIGKILL);
    expect_in(l.out_text, "[0] term\n");
    expect_in(l.out_text, "[1] term\n");
    expect_in(l.err_text, "2 ranks did not end within 1 s of SIGTERM; killing");
    launched_free(&l);
}

static void test_stopped_rank_is_ended(void **state)
{
    (void)state;
    struct launched l;
    const uint64_t start = tutti_now_ns();
    assert_int_equal(launched_run(&l, LAUNCH("-n", "2", "--grace", "60s", "sh", "-c",
                                             "[ $RANK = 1 ] && kill -STOP $$; sleep 0.2; exit 4")),
                     4);
    assert_true(tutti_now_ns() - start < 30 * TUTTI_NS_PER_S);
    launched_free(&l);
}

static void test_keep_going(void **state)
{
    (void)state;
    struct launched l;
    assert_int_equal(launched_run(&l, LAUNCH("-n", "3", "--keep-going", "sh", "-c",
                                             "[ $RANK = 1 ] && kill -9 $$; sleep 0.3; echo done $RANK")),
                     137);
    expect_in(l.out_text, "done 0\n");
    expect_in(l.out_text, "done 2\n");
    expect_in(l.err_text, "was killed by signal 9 (SIGKILL); the others go on");
    launched_free(&l);
}

static void test_timeout(void **state)
{
    (void)state;
    struct launched l;
    const uint64_t start = tutti_now_ns();
    assert_int_equal(launched_run(&l, LAUNCH("-n", "2", "--grace", "60s", "--timeout", "300ms", "sleep", "100")), 124);
    assert_true(tutti_now_ns() - start < 30 * TUTTI_NS_PER_S);
    expect_in(l.err_text, "2 of 2 ranks did not end within 0.3 s (--timeout); ending them");
    launched_free(&l);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "2", "--timeout", "100s", "true")), 0);
    launched_free(&l);
}

/* ---- signals ---- */
static void test_signals_are_passed_on(void **state)
{
    (void)state;
    static const struct {
        int signal;
        const char *name;
    } signals[] = {{SIGUSR1, "USR1"},   {SIGUSR2, "USR2"}, {SIGHUP, "HUP"},
                   {SIGWINCH, "WINCH"}, {SIGQUIT, "QUIT"}, {SIGINT, "INT"}};
    struct launched l;
    launched_start(&l, LAUNCH("-n", "2", "sh", "-c",
                              "for s in USR1 USR2 HUP WINCH QUIT INT; do trap \"echo got $s\" $s; done; "
                              "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done"));
    while (count_of(l.out_text, "ready\n") < 2) launched_expect(&l, "ready\n"), launched_expect(&l, "ready\nready\n");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(signals); i++) {
        char want[32];
        snprintf(want, sizeof want, "got %s\ngot %s\n", signals[i].name, signals[i].name);
        kill(l.pid, signals[i].signal);
        launched_expect(&l, want);
    }
    kill(-l.pid, SIGTERM); /* to the whole group, as a shell does: it arrives once */
    assert_int_equal(launched_wait(&l), 0);
    assert_int_equal(count_of(l.out_text, "bye\n"), 2);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(signals); i++) {
        char want[32];
        snprintf(want, sizeof want, "got %s\n", signals[i].name);
        assert_int_equal(count_of(l.out_text, want), 2);
    }
    launched_free(&l);
}

static void test_interrupt_ends_all(void **state)
{
    (void)state;
    struct launched l;
    launched_start(&l, LAUNCH("-n", "3", "sh", "-c", "echo ready; exec sleep 60"));
    launched_expect(&l, "ready\nready\nready\n");
    kill(l.pid, SIGINT);
    assert_int_equal(launched_wait(&l), 128 + SIGINT);
    launched_free(&l);
}

static char state_of(pid_t pid)
{
    char path[64], text[256] = {0};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f) return '?';
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    const char *at = n ? strrchr(text, ')') : NULL;
    return at && at[1] ? at[2] : '?';
}

static void test_stop_and_continue(void **state)
{
    (void)state;
    struct launched l;
    int status;
    launched_start(&l, LAUNCH("-n", "1", "sh", "-c", "echo pid=$$=; read line; echo read $line"));
    launched_expect(&l, "=\n");
    const pid_t rank = atoi(strstr(l.out_text, "pid=") + 4);
    kill(l.pid, SIGTSTP);
    assert_int_equal(waitpid(l.pid, &status, WUNTRACED), l.pid);
    assert_true(WIFSTOPPED(status)); /* so a shell knows */
    const uint64_t deadline = tutti_deadline_ns(30 * TUTTI_NS_PER_S);
    while (state_of(rank) != 'T' && tutti_now_ns() < deadline) tutti_sleep_ns(TUTTI_NS_PER_MS);
    assert_int_equal(state_of(rank), 'T');
    kill(l.pid, SIGCONT);
    assert_int_equal(write(l.in, "on\n", 3), 3);
    assert_int_equal(launched_wait(&l), 0);
    expect_in(l.out_text, "read on\n");
    launched_free(&l);
}

/* ---- no orphan ---- */
/* Ranks with children of their own, one of them in a session of its own and deaf to SIGTERM and SIGHUP. */
#define FAMILY                                                                                                         \
    "sleep 60 & (trap '' TERM HUP INT; exec setsid sh -c 'trap \"\" TERM HUP INT; sleep 60; sleep 60') & "             \
    "echo ready; "

static void family_start(struct launched *l)
{
    launched_start(l, LAUNCH("-n", "3", "sh", "-c", FAMILY "wait; sleep 60"));
    launched_expect(l, "ready\nready\nready\n");
    const uint64_t deadline = tutti_deadline_ns(40 * TUTTI_NS_PER_S);
    while (launched_count(l, 0) < 2 + 3 * 4) { /* guard, supervisor; sh, sleep, sh, sleep */
        if (tutti_now_ns() > deadline) fail_msg("of 14 processes there are %zu", launched_count(l, 0));
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
}

static void test_killed_launcher_leaves_nobody(void **state)
{
    (void)state;
    struct launched l;
    family_start(&l);
    kill(l.pid, SIGKILL);
    assert_int_equal(launched_wait(&l), 128 + SIGKILL);
    launched_free(&l);
}

static void test_killed_group_leaves_nobody(void **state)
{
    (void)state;
    struct launched l;
    family_start(&l);
    kill(-l.pid, SIGKILL);
    assert_int_equal(launched_wait(&l), 128 + SIGKILL);
    launched_free(&l);
}

static void test_killed_supervisor_leaves_nobody(void **state)
{
    (void)state;
    struct launched l;
    family_start(&l);
    kill(launched_supervisor(&l), SIGKILL);
    assert_int_equal(launched_wait(&l), 128 + SIGKILL);
    expect_in(l.err_text, "its supervisor was killed by signal 9 (SIGKILL); ended all ranks");
    launched_free(&l);
}

/* From the first instant on: killed at random moments of its start. */
static void test_killed_while_starting(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (int i = 0; i < 25; i++) {
        struct launched l;
        launched_start(&l, LAUNCH("-n", "8", "sh", "-c", "sleep 60 & sleep 60"));
        tutti_sleep_ns(tutti_random64(&seed) % (20 * TUTTI_NS_PER_MS));
        kill(l.pid, SIGKILL);
        assert_int_equal(launched_wait(&l), 128 + SIGKILL);
        launched_free(&l);
    }
}

static void test_what_ranks_leave_behind_is_ended(void **state)
{
    (void)state;
    struct launched l;
    assert_int_equal(launched_run(&l, LAUNCH("-n", "1", "sh", "-c", FAMILY "sleep 0.1")), 0);
    expect_in(l.err_text, "the ranks left ");
    launched_free(&l);
}

/* Children that the process had before it became `tutti run` are none of its business. */
static void test_earlier_children_are_spared(void **state)
{
    (void)state;
    int status;
    char script[512];
    snprintf(script, sizeof script, "sleep 60 & echo $! > /tmp/tutti-spared-%d; exec %s run -n 1 true", (int)getpid(),
             launched_command);
    assert_int_equal(status = system(script), 0);
    snprintf(script, sizeof script, "/tmp/tutti-spared-%d", (int)getpid());
    FILE *f = fopen(script, "r");
    int pid = 0;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &pid), 1);
    fclose(f);
    unlink(script);
    assert_int_equal(kill(pid, SIGKILL), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_statuses),
        cmocka_unit_test(test_killed_rank),
        cmocka_unit_test(test_others_get_sigterm_then_sigkill),
        cmocka_unit_test(test_ranks_that_ignore_sigterm_are_killed),
        cmocka_unit_test(test_stopped_rank_is_ended),
        cmocka_unit_test(test_keep_going),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_signals_are_passed_on),
        cmocka_unit_test(test_interrupt_ends_all),
        cmocka_unit_test(test_stop_and_continue),
        cmocka_unit_test(test_killed_launcher_leaves_nobody),
        cmocka_unit_test(test_killed_group_leaves_nobody),
        cmocka_unit_test(test_killed_supervisor_leaves_nobody),
        cmocka_unit_test(test_killed_while_starting),
        cmocka_unit_test(test_what_ranks_leave_behind_is_ended),
        cmocka_unit_test(test_earlier_children_are_spared),
    };
    if (!launched_begin(argc, argv)) return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
