/* SPDX-License-Identifier: BSD-3-Clause */
/* Members as processes. What a member starts is found through /proc, whatever sessions it makes; what outlives its
 * parents comes to this process, which ends it at last. */
#include "chaos.h"
#include "tools/tutti/run/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TREE_MAX 1024

static bool read_byte(int fd)
{
    char byte;
    ssize_t n;

    do n = read(fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* In the child. `ready` tells the parent that the network is unshared; `linked` comes when there is a link. */
static void become(const struct chaos_member *m, int ready, int linked)
{
    sigset_t none;

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (m->address[0] && unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0) _exit(RUN_EXIT_NOT_EXECUTABLE);
    if (write(ready, "r", 1) != 1 || !read_byte(linked)) _exit(RUN_EXIT_NOT_EXECUTABLE);
    if (m->address[0] && !chaos_net_enter(m->address)) _exit(RUN_EXIT_NOT_EXECUTABLE);
    execvpe(m->argv[0], m->argv, m->environment);
    _exit(RUN_EXIT_NOT_FOUND);
}

bool chaos_start(struct chaos_member *m)
{
    int ready[2], linked[2];
    bool well = false;

    if (pipe2(ready, O_CLOEXEC) != 0) return false;
    if (pipe2(linked, O_CLOEXEC) != 0) return close(ready[0]), close(ready[1]), false;
    m->pid = fork();
    if (m->pid == 0) {
        close(ready[0]), close(linked[1]);
        become(m, ready[1], linked[0]);
    }
    close(ready[1]), close(linked[0]);
    if (m->pid > 0)
        well = read_byte(ready[0]) && (!m->address[0] || chaos_net_link(m->pid, m->address)) &&
               write(linked[1], "l", 1) == 1;
    close(ready[0]), close(linked[1]);
    if (!well) chaos_say("%s can not be started: %s", m->name, strerror(errno));
    m->stopped = 0;
    m->cut = m->struck = false;
    m->again_ns = 0;
    m->n_starts++;
    return well;
}

/* Pids of root and all below it, root first; parents come before their children. */
static size_t tree(pid_t root, pid_t *pids)
{
    struct {
        pid_t pid, parent;
    } all[8192];
    size_t n_all = 0, n = 1;
    DIR *proc = opendir("/proc");

    pids[0] = root;
    for (struct dirent *entry; proc && n_all < TUTTI_ARRAY_LEN(all) && (entry = readdir(proc)) != NULL;) {
        struct tutti_process process;
        const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0 && tutti_process_read(pid, &process)) all[n_all].pid = pid, all[n_all++].parent = process.parent;
    }
    if (proc) closedir(proc);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_all && n < TREE_MAX; k++)
            if (all[k].parent == pids[i]) pids[n++] = all[k].pid;
    return n;
}

void chaos_signal(pid_t pid, int number)
{
    pid_t pids[TREE_MAX];

    if (pid <= 0) return;
    for (size_t n = tree(pid, pids); n-- > 0;) kill(pids[n], number);
}

/* Its environment has this variable with this value. */
static bool has_variable(pid_t pid, const char *variable)
{
    static char bytes[256 << 10];
    char path[64];
    size_t n = 0;
    ssize_t more;

    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && n + 1 < sizeof bytes && (more = read(fd, bytes + n, sizeof bytes - 1 - n)) > 0) n += (size_t)more;
    if (fd >= 0) close(fd);
    bytes[n] = '\0';
    for (const char *at = bytes; at < bytes + n; at += strlen(at) + 1)
        if (strcmp(at, variable) == 0) return true;
    return false;
}

pid_t chaos_rank(const struct chaos_member *m, uint32_t rank)
{
    pid_t pids[TREE_MAX];
    char variable[40];

    snprintf(variable, sizeof variable, "TUTTI_LOCAL_RANK=%u", rank);
    const size_t n = m->pid > 0 ? tree(m->pid, pids) : 0;
    for (size_t i = 1; i < n; i++) /* the first is the parent of the others */
        if (has_variable(pids[i], variable)) return pids[i];
    return 0;
}

bool chaos_ended(struct chaos_member *m, int *status)
{
    if (m->pid <= 0 || waitpid(m->pid, status, WNOHANG) != m->pid) return false;
    m->pid = m->stopped = 0;
    return true;
}

void chaos_end_all(struct chaos_member *members, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        chaos_signal(members[i].stopped, SIGCONT);
        chaos_signal(members[i].pid, SIGKILL);
    }
    run_wipe(NULL, 0);
}
