/* SPDX-License-Identifier: BSD-3-Clause */

/* Ends every descendant of this process. As the subreaper of all below it, it becomes the parent of each process whose
 * own parent dies: killing children over and over reaches them all, whatever groups and sessions they made. */

#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WIPE_NS                                                                                                        \
    (10 * TUTTI_NS_PER_S) /* a process in uninterruptible sleep may take longer; then it is the kernel's               \
                           */
#define WIPE_MAX 256

void run_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

size_t run_children(pid_t *pids, size_t capacity)
{
    const pid_t self = getpid();
    size_t n = 0;
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        struct tutti_process process;
        if (pid <= 0 || !tutti_process_read(pid, &process) || process.parent != self) continue;
        if (n < capacity) pids[n] = pid;
        n++;
    }
    if (proc) closedir(proc);
    return n;
}

static bool is_in(pid_t pid, const pid_t *pids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pids[i] == pid) return true;
    return false;
}

void run_wipe(const pid_t *keep, size_t n_keep)
{
    const uint64_t deadline = tutti_deadline_ns(WIPE_NS);
    do {
        pid_t pids[WIPE_MAX];
        const size_t n = run_children(pids, WIPE_MAX);
        size_t n_killed = 0;
        for (size_t i = 0; i < n && i < WIPE_MAX; i++) {
            if (is_in(pids[i], keep, n_keep)) continue;
            kill(pids[i], SIGKILL);
            while (waitpid(pids[i], NULL, WNOHANG) == 0 && tutti_now_ns() < deadline) tutti_sleep_ns(TUTTI_NS_PER_MS);
            n_killed++;
        }
        if (n_killed == 0) return;
    } while (tutti_now_ns() < deadline);
    run_say("some processes do not end after SIGKILL; the kernel still holds them");
}
