/* SPDX-License-Identifier: BSD-3-Clause */
/* A plug-in acts in a process of its own, since it may crash, leave, or never come back. Its time is counted in
 * processor seconds without progress, which a crowded machine does not use up; a wall clock catches who sleeps. */

#include "sched.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CROWD = 6 }; /* wall seconds for each processor second */

struct outcome { /* shared with the process */
    int code;
    bool done;
};

static uint64_t cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* Waits for the end of the process; false: it was ended, since it made no progress. */
static bool await(pid_t pid, const volatile uint32_t *progress, uint64_t limit_ns, int *wait_status)
{
    const uint64_t first_ns = 100000, last_ns = 20000000;
    uint64_t began_ns = tutti_now_ns(), began_cpu_ns = 0, pause_ns = first_ns;
    uint32_t seen = progress ? *progress : 0;
    for (;;) {
        const pid_t ended = waitpid(pid, wait_status, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR)) return true;
        if (progress && *progress != seen) {
            seen = *progress;
            began_ns = tutti_now_ns();
            began_cpu_ns = cpu_ns(pid);
        }
        if (cpu_ns(pid) - began_cpu_ns > limit_ns || tutti_now_ns() - began_ns > CROWD * limit_ns) {
            kill(pid, SIGKILL);
            waitpid(pid, wait_status, 0);
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
        if (pause_ns < last_ns) pause_ns *= 2;
    }
}

enum tutti_status sched_apart(const struct sched_apart *task, int *code, char *how, size_t capacity)
{
    struct outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const uint64_t limit_s = 10 + (uint64_t)task->size * task->size / 50000;
    int wait_status = 0;
    if (shared == MAP_FAILED) return tutti_fail_errno(TUTTI_ERR_MEMORY, "no memory to share with a plug-in");
    fflush(NULL);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        shared->code = task->act(task->argument);
        fflush(NULL);
        shared->done = true;
        _exit(0);
    }
    if (pid < 0) {
        munmap(shared, sizeof *shared);
        return tutti_fail_errno(TUTTI_ERR_MEMORY, "cannot start a process for the plug-in");
    }
    how[0] = 0;
    if (!await(pid, task->progress, limit_s * 1000000000u, &wait_status)) {
        snprintf(how, capacity, "does not come to an end: given up after %llu s", (unsigned long long)limit_s);
    } else if (!shared->done && WIFSIGNALED(wait_status)) {
        snprintf(how, capacity, "crashes: signal %d (%s)", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    } else if (!shared->done) {
        snprintf(how, capacity, "ends the process with status %d", WEXITSTATUS(wait_status));
    }
    *code = shared->code;
    munmap(shared, sizeof *shared);
    return TUTTI_OK;
}
