/* SPDX-License-Identifier: BSD-3-Clause */
/* Networks that can be cut: this process and each member have a network namespace of their own, tied by a bridge here.
 * It takes the command `ip`, and the right to make namespaces (root, or user namespaces). All is gone with the last
 * process in it. */
#include "chaos.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define WORDS 16

/* Runs one line of words; false: it did not end well. */
static bool run(const char *format, ...) TUTTI_PRINTF(1, 2);
static bool run(const char *format, ...)
{
    char line[256], *words[WORDS], *rest = line;
    size_t n = 0;
    pid_t pid;
    int status;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    while (n + 1 < WORDS && (words[n] = strsep(&rest, " ")) != NULL) n++;
    words[n] = NULL;
    if (posix_spawnp(&pid, words[0], NULL, NULL, words, environ) != 0) return false;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool write_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool well = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0) close(fd);
    return well;
}

/* As root of a user namespace, where the process is nobody special outside. */
static bool unshare_as_user(void)
{
    char map[64];
    const uid_t uid = getuid();
    const gid_t gid = getgid();

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", uid);
    if (!write_file("/proc/self/uid_map", map)) return false;
    snprintf(map, sizeof map, "0 %u 1", gid);
    return write_file("/proc/self/gid_map", map);
}

bool chaos_net_open(void)
{
    if (unshare(CLONE_NEWNET) != 0 && !unshare_as_user()) {
        chaos_say("networks that can be cut need the right to make namespaces: %s", strerror(errno));
        return false;
    }
    if (run("ip link set lo up") && run("ip link add chaos0 type bridge") &&
        run("ip addr add 10.79.0.1/24 dev chaos0") && run("ip link set chaos0 up"))
        return true;
    chaos_say("networks that can be cut need the command ip (package iproute2)");
    return false;
}

/* "10.79.0.12" has the link "chaos12". */
static const char *link_of(const char *address)
{
    return strrchr(address, '.') + 1;
}

bool chaos_net_link(pid_t pid, const char *address)
{
    const char *name = link_of(address);

    return run("ip link add chaos%s type veth peer name eth0 netns %d", name, (int)pid) &&
           run("ip link set chaos%s master chaos0", name) && run("ip link set chaos%s up", name);
}

/* In the child: its host's name is its address, so that others find it by what it calls itself. */
bool chaos_net_enter(const char *address)
{
    return sethostname(address, strlen(address)) == 0 && run("ip link set lo up") &&
           run("ip addr add %s/24 dev eth0", address) && run("ip link set eth0 up");
}

bool chaos_net_cut(const char *address, bool cut)
{
    return run("ip link set chaos%s %s", link_of(address), cut ? "down" : "up");
}
