/* SPDX-License-Identifier: BSD-3-Clause */

/* tutti run at a terminal: typed lines reach rank 0, Ctrl-C reaches each rank once, Ctrl-Z stops the job. */

#include "base/base.h"
#include "launched.h"
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct terminal {
    int master;
    pid_t pid;
    char seen[65536];
    size_t used;
};

/* `tutti run` as the foreground job of a terminal of its own. A session leader in between plays the shell: were the job
 * itself the leader, its group would be orphaned and never stop. */
static void terminal_open(struct terminal *t, const char *const *args)
{
    memset(t, 0, sizeof *t);
    t->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(t->master >= 0 && grantpt(t->master) == 0 && unlockpt(t->master) == 0);
    t->pid = fork();
    assert_true(t->pid >= 0);
    if (t->pid != 0) return;
    setsid();
    const int tty = open(ptsname(t->master), O_RDWR); /* becomes the controlling terminal */
    for (int i = 0; i < 3; i++) dup2(tty, i);
    const pid_t job = fork();
    if (job == 0) {
        const char *argv[32] = {launched_command, "run"};
        for (size_t i = 0; args[i] && i < 29; i++) argv[i + 2] = args[i];
        setpgid(0, 0);
        signal(SIGTTOU, SIG_IGN);
        tcsetpgrp(0, getpid());
        signal(SIGTTOU, SIG_DFL);
        execv(launched_command, (char **)(uintptr_t)argv);
        _exit(99);
    }
    int status;
    while (waitpid(job, &status, WUNTRACED) == job && WIFSTOPPED(status)) {
        dprintf(1, "(stopped)\n");
        tutti_sleep_ns(100 * TUTTI_NS_PER_MS);
        kill(-job, SIGCONT);
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void terminal_type(struct terminal *t, const char *text)
{
    assert_int_equal(write(t->master, text, strlen(text)), strlen(text));
}

static void terminal_expect(struct terminal *t, const char *text)
{
    const uint64_t deadline = tutti_deadline_ns(30 * TUTTI_NS_PER_S);
    while (!strstr(t->seen, text)) {
        struct pollfd fd = {.fd = t->master, .events = POLLIN};
        if (tutti_now_ns() > deadline) fail_msg("\"%s\" was not shown: %s", text, t->seen);
        if (poll(&fd, 1, 100) <= 0) continue;
        const ssize_t n = read(t->master, t->seen + t->used, sizeof t->seen - 1 - t->used);
        if (n <= 0) fail_msg("\"%s\" was not shown: %s", text, t->seen);
        t->used += (size_t)n;
    }
}

static int terminal_wait(struct terminal *t)
{
    const uint64_t deadline = tutti_deadline_ns(30 * TUTTI_NS_PER_S);
    int status;
    while (waitpid(t->pid, &status, WNOHANG) == 0) {
        struct pollfd fd = {.fd = t->master, .events = POLLIN};
        if (tutti_now_ns() > deadline) fail_msg("it does not end: %s", t->seen);
        if (poll(&fd, 1, 50) <= 0 || t->used >= sizeof t->seen - 1) continue;
        const ssize_t n = read(t->master, t->seen + t->used, sizeof t->seen - 1 - t->used);
        if (n > 0) t->used += (size_t)n;
    }
    close(t->master);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_typed_lines(void **state)
{
    (void)state;
    struct terminal t;
    terminal_open(&t,
                  LAUNCH("-n", "2", "sh", "-c", "[ $RANK = 1 ] && exit; printf 'name? '; read x; echo hello $x; cat"));
    terminal_expect(&t, "name? ");
    terminal_type(&t, "bob\n");
    terminal_expect(&t, "hello bob");
    terminal_type(&t, "more\n");
    terminal_expect(&t, "more\r\nmore"); /* the terminal's echo, and cat's */
    terminal_type(&t, "\004");           /* Ctrl-D */
    assert_int_equal(terminal_wait(&t), 0);
}

static void test_interrupt(void **state)
{
    (void)state;
    struct terminal t;
    terminal_open(&t, LAUNCH("-n", "2", "--tag-output", "sh", "-c",
                             "n=0; trap 'n=$((n+1)); echo caught $n' INT; trap 'exit 0' TERM; echo ready; "
                             "while :; do sleep 0.02; done"));
    terminal_expect(&t, "[0] ready");
    terminal_expect(&t, "[1] ready");
    terminal_type(&t, "\003");
    terminal_expect(&t, "[0] caught 1");
    terminal_expect(&t, "[1] caught 1");
    terminal_type(&t, "\003");
    terminal_expect(&t, "[0] caught 2"); /* not 3: each Ctrl-C arrives once */
    terminal_expect(&t, "[1] caught 2");
    terminal_type(&t, "\034"); /* Ctrl-backslash: SIGQUIT ends them */
    assert_int_equal(terminal_wait(&t), 128 + SIGQUIT);
    assert_null(strstr(t.seen, "caught 3"));
}

static void test_suspend(void **state)
{
    (void)state;
    struct terminal t;
    terminal_open(&t, LAUNCH("-n", "1", "sh", "-c", "echo ready; read x; echo read $x"));
    terminal_expect(&t, "ready");
    terminal_type(&t, "\032"); /* Ctrl-Z */
    terminal_expect(&t, "(stopped)");
    terminal_type(&t, "on\n");
    terminal_expect(&t, "read on");
    assert_int_equal(terminal_wait(&t), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_typed_lines),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_suspend),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s TUTTI\n", argv[0]);
        return 2;
    }
    launched_command = argv[1];
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* SIGQUIT would leave files behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
