/* SPDX-License-Identifier: BSD-3-Clause */

/* A `tutti run` under test, as a child process. */

#include "launched.h"

#include "base/base.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *launched_command;

void launched_start(struct launched *l, const char *const *args)
{
    static unsigned serial;
    int in[2], out[2], err[2];
    *l = (struct launched){.out_text = calloc(1, 1), .err_text = calloc(1, 1)};
    snprintf(l->mark, sizeof l->mark, "TUTTI_TEST_MARK=%d-%u", (int)getpid(), ++serial);
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC) | pipe2(err, O_CLOEXEC), 0);
    l->pid = fork();
    assert_true(l->pid >= 0);
    if (l->pid == 0) {
        const char *argv[32] = {launched_command, "run"};
        for (size_t i = 0; args[i] && i < 29; i++) argv[i + 2] = args[i];
        setpgid(0, 0);
        signal(SIGPIPE, SIG_DFL); /* the test ignores it */
        dup2(in[0], 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        putenv(l->mark);
        execv(launched_command, (char **)(uintptr_t)argv);
        _exit(99);
    }
    close(in[0]), close(out[1]), close(err[1]);
    l->in = in[1], l->out = out[0], l->err = err[0];
}

void launched_close_in(struct launched *l)
{
    if (l->in >= 0) close(l->in);
    l->in = -1;
}

static void append(char **text, size_t *bytes, const char *more, size_t n)
{
    /* Room in powers of two: what is there is copied a few times only. */
    size_t capacity = 65536;
    while (capacity < *bytes + n + 1) capacity *= 2;
    if (*bytes == 0 || *bytes + 1 <= capacity / 2) *text = realloc(*text, capacity);
    memcpy(*text + *bytes, more, n);
    *bytes += n;
    (*text)[*bytes] = '\0';
}

/* Reads what comes within timeout_ms; false once both pipes have ended. */
static bool read_some(struct launched *l, int timeout_ms)
{
    struct pollfd fds[] = {{.fd = l->out, .events = POLLIN}, {.fd = l->err, .events = POLLIN}};
    char buffer[65536];
    if (l->out < 0 && l->err < 0) return false;
    if (poll(fds, 2, timeout_ms) <= 0) return true;
    for (int i = 0; i < 2; i++) {
        int *fd = i ? &l->err : &l->out;
        if (!fds[i].revents) continue;
        const ssize_t n = read(*fd, buffer, sizeof buffer);
        if (n > 0 && i == 0) append(&l->out_text, &l->out_bytes, buffer, (size_t)n);
        if (n > 0 && i == 1) append(&l->err_text, &l->err_bytes, buffer, (size_t)n);
        if (n <= 0) close(*fd), *fd = -1;
    }
    return true;
}

void launched_expect(struct launched *l, const char *text)
{
    const uint64_t deadline = tutti_deadline_ns(40 * TUTTI_NS_PER_S);
    while (!strstr(l->out_text, text)) {
        if (tutti_now_ns() > deadline || !read_some(l, 100)) {
            kill(l->pid, SIGKILL);
            fail_msg("\"%s\" was not printed; stdout: %s, stderr: %s", text, l->out_text, l->err_text);
        }
    }
}

int launched_wait(struct launched *l)
{
    const uint64_t deadline = tutti_deadline_ns(60 * TUTTI_NS_PER_S);
    int status;
    launched_close_in(l);
    while (read_some(l, 100)) {
        if (tutti_now_ns() < deadline) continue;
        kill(l->pid, SIGKILL);
        fail_msg("tutti run did not end; stdout: %s, stderr: %s", l->out_text, l->err_text);
    }
    assert_int_equal(waitpid(l->pid, &status, 0), l->pid);
    launched_expect_none(l);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void launched_free(struct launched *l)
{
    launched_close_in(l);
    if (l->out >= 0) close(l->out);
    if (l->err >= 0) close(l->err);
    free(l->out_text);
    free(l->err_text);
}

int launched_run(struct launched *l, const char *const *args)
{
    launched_start(l, args);
    return launched_wait(l);
}

/* Reads up to capacity bytes of a file of /proc. */
static size_t proc_read(const char *pid, const char *name, char *out, size_t capacity)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.16s/%s", pid, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t n;
    if (fd < 0) return 0;
    while (used < capacity && (n = read(fd, out + used, capacity - used)) > 0) used += (size_t)n;
    close(fd);
    return used;
}

size_t launched_count(const struct launched *l, pid_t except)
{
    static char environment[262144];
    size_t count = 0;
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    assert_non_null(proc);
    while ((entry = readdir(proc))) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || atoi(entry->d_name) == except) continue;
        const size_t n = proc_read(entry->d_name, "environ", environment, sizeof environment);
        if (n && memmem(environment, n, l->mark, strlen(l->mark) + 1)) count++;
    }
    closedir(proc);
    return count;
}

void launched_expect_none(const struct launched *l)
{
    const uint64_t deadline = tutti_deadline_ns(30 * TUTTI_NS_PER_S);
    size_t n;
    while ((n = launched_count(l, 0)) > 0) {
        if (tutti_now_ns() > deadline) fail_msg("%zu processes were left behind", n);
        tutti_sleep_ns(10 * TUTTI_NS_PER_MS);
    }
}

pid_t launched_supervisor(const struct launched *l)
{
    char text[64];
    snprintf(text, sizeof text, "%d/task/%d", (int)l->pid, (int)l->pid);
    char path[96], children[256] = {0};
    snprintf(path, sizeof path, "/proc/%s/children", text);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, children, sizeof children - 1) > 0);
    close(fd);
    return atoi(children);
}
