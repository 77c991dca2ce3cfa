/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that are run for us: the compiler, Python, the prover. A program gets no input, none of this process's
 * descriptors and no blocked signals; it has a deadline and a bound on what it writes, and is ended with all that it
 * started when it passes either. posix_spawn, since the process that loads has threads. */

#include "load/load.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Every other descriptor that is open here; one that another thread opens meanwhile is closed on exec, as all of this
 * library are. (addclosefrom_np is of glibc 2.34.) */
static void rest_close(posix_spawn_file_actions_t *actions)
{
    DIR *open_here = opendir("/proc/self/fd");
    for (struct dirent *entry; open_here && (entry = readdir(open_here));) {
        const int descriptor = atoi(entry->d_name);
        if (descriptor > STDERR_FILENO) posix_spawn_file_actions_addclose(actions, descriptor);
    }
    if (open_here) closedir(open_here);
}

static int start(const char *const *words, int output, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&actions) != 0) return ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    rest_close(&actions);
    const int error = posix_spawnp(pid, words[0], &actions, &attributes, (char *const *)(uintptr_t)words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Makes room for more; false: memory is out. */
static bool grow(struct tutti_spawned *out, size_t *capacity)
{
    if (out->bytes + 1 < *capacity) return true;
    const size_t more = 2 * *capacity;
    char *larger = tutti_alloc(more);
    if (!larger) return false;
    memcpy(larger, out->output, out->bytes);
    tutti_free(out->output);
    out->output = larger;
    *capacity = more;
    return true;
}

/* Reads until the program closes its end, the deadline passes or there is too much. */
static void collect(int from, uint64_t deadline_ns, size_t capacity, size_t most_bytes, struct tutti_spawned *out)
{
    struct pollfd poll_one = {.fd = from, .events = POLLIN};
    for (;;) {
        const uint64_t now_ns = tutti_now_ns();
        if (now_ns >= deadline_ns) {
            out->late = true;
            return;
        }
        const int ready = poll(&poll_one, 1, (int)((deadline_ns - now_ns) / TUTTI_NS_PER_MS) + 1);
        if (ready < 0 && errno != EINTR) return;
        if (ready <= 0) continue;
        out->huge = out->bytes > most_bytes || !grow(out, &capacity);
        if (out->huge) return;
        const ssize_t n = read(from, out->output + out->bytes, capacity - 1 - out->bytes);
        if (n == 0 || (n < 0 && errno != EINTR)) return;
        if (n > 0) out->bytes += (size_t)n;
    }
}

/* A program that has closed its output may live on: it has until the deadline, too. Where the host process ignores
 * SIGCHLD the status is lost: then it counts as 0, and what was written decides. */
static void await(pid_t pid, uint64_t deadline_ns, struct tutti_spawned *out)
{
    if (out->late || out->huge) kill(-pid, SIGKILL);
    for (;;) {
        const pid_t ended = waitpid(pid, &out->status, out->late || out->huge ? 0 : WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR)) break;
        if (ended == 0 && tutti_now_ns() >= deadline_ns) {
            out->late = true;
            kill(-pid, SIGKILL);
        }
        if (ended == 0) tutti_sleep_ns(TUTTI_NS_PER_MS / 5);
    }
    kill(-pid, SIGKILL); /* what it left behind */
}

enum tutti_status tutti_spawn(const char *const *words, uint64_t timeout_ns, size_t most_bytes,
                              struct tutti_spawned *out)
{
    enum { FIRST_BYTES = 4096 };
    const uint64_t deadline_ns = tutti_deadline_ns(timeout_ns);
    struct tutti_spawned got = {.output = tutti_alloc(FIRST_BYTES)};
    int ends[2];
    pid_t pid;
    if (!got.output) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to run %s", words[0]);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        tutti_free(got.output);
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be run: no pipe", words[0]);
    }
    const int error = start(words, ends[1], &pid);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        tutti_free(got.output);
        errno = error;
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s can not be run", words[0]);
    }
    collect(ends[0], deadline_ns, FIRST_BYTES, most_bytes, &got);
    close(ends[0]);
    await(pid, deadline_ns, &got);
    if (got.bytes > most_bytes) got.bytes = most_bytes;
    got.output[got.bytes] = '\0';
    *out = got;
    return TUTTI_OK;
}

void tutti_spawned_text(const struct tutti_spawned *spawned, char *out, size_t capacity)
{
    const int status = spawned->status;
    out[0] = '\0';
    if (spawned->late)
        snprintf(out, capacity, "does not come to an end");
    else if (spawned->huge)
        snprintf(out, capacity, "writes more than is allowed (or memory is out)");
    else if (WIFSIGNALED(status))
        snprintf(out, capacity, "is ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
        snprintf(out, capacity, "exits with status %d", WEXITSTATUS(status));
}
