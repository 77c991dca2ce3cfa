/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes of ranks on this host are watched, so that a death is known at once. Whether a rank's process is the one
 * that it says, the kernel tells: the call's connection must be a socket that the process holds, and of our user. So
 * nobody can have us wait for a process that is not theirs. */
#include "ft/client/manager_server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILES_MOST 65536 /* files of a process, looked through */

/* An address of either family, as IPv6. */
struct end {
    struct in6_addr address;
    uint16_t port;
};

static struct in6_addr mapped(uint32_t v4)
{
    struct in6_addr out = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

    memcpy(&out.s6_addr[12], &v4, sizeof v4);
    return out;
}

/* "10.0.0.1:41002" or "[::1]:41002" */
static bool read_peer(const char *text, struct end *out)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    const bool is_v6 = text[0] == '[';
    struct in_addr v4;

    if (!colon) return false;
    snprintf(host, sizeof host, "%.*s", (int)(colon - text) - 2 * is_v6, text + is_v6);
    out->port = (uint16_t)strtoul(colon + 1, NULL, 10);
    if (is_v6) return inet_pton(AF_INET6, host, &out->address) == 1;
    if (inet_pton(AF_INET, host, &v4) != 1) return false;
    out->address = mapped(v4.s_addr);
    return true;
}

/* As the kernel prints it: words of the machine's own order. */
static bool read_hex(const char *text, struct in6_addr *out)
{
    uint32_t words[4];
    const size_t n = strlen(text) / 8;

    if (strlen(text) % 8 != 0 || (n != 1 && n != 4)) return false;
    for (size_t i = 0; i < n; i++)
        if (sscanf(text + 8 * i, "%8" SCNx32, &words[i]) != 1) return false;
    if (n == 1)
        *out = mapped(words[0]);
    else
        memcpy(out, words, sizeof *out);
    return true;
}

/* The socket on this host whose own end is `peer` and whose other end is our port; 0: there is none of our user. */
static unsigned long socket_in(const char *path, const struct end *peer, uint16_t port)
{
    char line[512], own[40], other[40];
    unsigned int own_port, other_port, state, uid;
    unsigned long inode, found = 0;
    struct in6_addr address;
    FILE *file = fopen(path, "re");

    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file)) {
        if (sscanf(line, " %*d: %39[0-9A-Fa-f]:%x %39[0-9A-Fa-f]:%x %x %*s %*s %*s %u %*d %lu", own, &own_port, other,
                   &other_port, &state, &uid, &inode) != 7)
            continue;
        if (own_port == peer->port && other_port == port && uid == geteuid() && read_hex(own, &address) &&
            memcmp(&address, &peer->address, sizeof address) == 0)
            found = inode;
    }
    fclose(file);
    return found;
}

static bool holds(int64_t pid, unsigned long inode)
{
    char path[64], wanted[64], name[300], target[64];
    bool found = false;
    struct dirent *entry;

    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd", pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *files = opendir(path);
    if (!files) return false;
    for (int i = 0; !found && i < FILES_MOST && (entry = readdir(files)); i++) {
        snprintf(name, sizeof name, "%s/%.200s", path, entry->d_name);
        const ssize_t n = readlink(name, target, sizeof target - 1);
        if (n < 0) continue;
        target[n] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    closedir(files);
    return found;
}

static bool is_of(int64_t pid, const struct tutti_ft_manager *manager, const struct tutti_rpc_call *call)
{
    struct end peer;
    const uint16_t port = tutti_rpc_server_port(manager->rpc);

    if (!read_peer(tutti_rpc_peer(call), &peer)) return false;
    unsigned long inode = socket_in("/proc/net/tcp", &peer, port);
    if (!inode) inode = socket_in("/proc/net/tcp6", &peer, port);
    return inode && holds(pid, inode);
}

static void unwatch(struct manager_rank *rank)
{
    if (rank->watch.fd < 0) return;
    tutti_loop_forget(rank->manager->loop, &rank->watch);
    close(rank->watch.fd);
    rank->watch.fd = -1;
}

static void on_ended(struct tutti_loop_fd *w, uint32_t events)
{
    struct manager_rank *rank = (struct manager_rank *)w;
    struct tutti_ft_manager *manager = rank->manager;
    char why[64];

    (void)events;
    unwatch(rank);
    snprintf(why, sizeof why, "its process %" PRId64 " ended", rank->pid);
    tutti_log(TUTTI_LOG_WARN, "%s: rank %td is gone: %s", manager->replica_id, rank - manager->ranks, why);
    rank->pid = 0;
    tutti_manager_dead(manager->machine, (uint32_t)(rank - manager->ranks), why);
    manager_schedule(manager);
}

void manager_watch(struct tutti_ft_manager *manager, uint32_t rank, int64_t pid, const struct tutti_rpc_call *call)
{
    if (rank >= manager->world_size || pid <= 0 || pid > INT32_MAX || pid == getpid() ||
        manager->ranks[rank].pid == pid)
        return;
    struct manager_rank *watched = &manager->ranks[rank];
    const int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0); /* first: then the number can not become another's */
    const bool is = fd >= 0 && is_of(pid, manager, call);
    unwatch(watched);
    watched->pid = pid;
    watched->watch = (struct tutti_loop_fd){.fd = is ? fd : -1, .ready = on_ended};
    if (is && tutti_loop_watch(manager->loop, &watched->watch, EPOLLIN) >= 0) return;
    watched->watch.fd = -1;
    if (fd >= 0) close(fd);
}

void manager_unwatch_all(struct tutti_ft_manager *manager)
{
    for (uint32_t i = 0; i < manager->world_size; i++) unwatch(&manager->ranks[i]);
}
