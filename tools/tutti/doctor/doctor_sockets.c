/* SPDX-License-Identifier: BSD-3-Clause */
/* The sockets of a rank of this host to ranks of others: how many by which interface. The kernel lists them to who may
 * look at the process; the rank is not asked. */

#include "doctor.h"

#include "control/net/conn.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INODES 4096
enum { ESTABLISHED = 1 };

struct inodes {
    uint32_t n;
    unsigned long at[INODES];
};
struct line { /* one socket of /proc/PID/net/tcp, tcp6 */
    struct tutti_net_address from, to;
    unsigned state;
    unsigned long inode;
};

static void inodes_read(int32_t pid, struct inodes *out)
{
    char path[64], at[128], target[64];
    const struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *fds = opendir(path);
    out->n = 0;
    while (fds && out->n < INODES && (entry = readdir(fds))) {
        snprintf(at, sizeof at, "%s/%.16s", path, entry->d_name);
        const ssize_t n = readlink(at, target, sizeof target - 1);
        if (n <= 0) continue;
        target[n] = '\0';
        if (sscanf(target, "socket:[%lu]", &out->at[out->n]) == 1) out->n++;
    }
    if (fds) closedir(fds);
}

static bool is_among(const struct inodes *inodes, unsigned long inode)
{
    for (uint32_t i = 0; i < inodes->n; i++)
        if (inodes->at[i] == inode) return true;
    return false;
}

/* Eight digits a word, each as the machine has it in memory. */
static bool address_read(const char *digits, struct tutti_net_address *out)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const size_t n = strlen(digits) / 8;
    if (n != 1 && n != 4) return false;
    *out = (struct tutti_net_address){.family = n == 1 ? 4 : 6};
    for (size_t i = 0; i < n; i++) {
        char word[9];
        snprintf(word, sizeof word, "%.8s", digits + 8 * i);
        const uint32_t value = (uint32_t)strtoul(word, NULL, 16);
        memcpy(out->bytes + 4 * i, &value, sizeof value);
    }
    if (n == 4 && memcmp(out->bytes, mapped, sizeof mapped) == 0) {
        memmove(out->bytes, out->bytes + 12, 4);
        memset(out->bytes + 4, 0, 12);
        out->family = 4;
    }
    return true;
}

static bool line_read(const char *text, struct line *out)
{
    char from[33], to[33];
    return sscanf(text, " %*d: %32[0-9A-Fa-f]:%*x %32[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*d %lu", from, to, &out->state,
                  &out->inode) == 4 &&
           address_read(from, &out->from) && address_read(to, &out->to);
}

static void socket_count(struct doctor_sockets *sockets, const struct line *line)
{
    char from[46], to[46];
    tutti_net_address_text(&line->from, from, sizeof from);
    tutti_net_address_text(&line->to, to, sizeof to);
    uint32_t i = 0;
    while (i < sockets->n && (strcmp(sockets->ways[i].from, from) || strcmp(sockets->ways[i].to, to))) i++;
    if (i == DOCTOR_WAYS) return;
    if (i == sockets->n) {
        struct tutti_net_local locals[TUTTI_NET_LOCALS];
        uint32_t n_locals = 0;
        struct doctor_way *way = &sockets->ways[sockets->n++];
        snprintf(way->from, sizeof way->from, "%s", from);
        snprintf(way->to, sizeof way->to, "%s", to);
        if (tutti_net_locals("", locals, &n_locals) < 0) n_locals = 0;
        for (uint32_t k = 0; k < n_locals; k++)
            if (memcmp(&locals[k].address, &line->from, sizeof line->from) == 0)
                snprintf(way->interface, sizeof way->interface, "%s", locals[k].interface);
    }
    sockets->ways[i].n++;
}

void doctor_sockets_look(const struct doctor_rank *rank, struct doctor_sockets *out)
{
    static const char *const tables[] = {"tcp", "tcp6"};
    struct inodes inodes;
    *out = (struct doctor_sockets){.n = 0};
    if (!rank->known || !rank->here) return;
    inodes_read(rank->pid, &inodes);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(tables); i++) {
        char path[64], text[512];
        struct line line;
        snprintf(path, sizeof path, "/proc/%d/net/%s", (int)rank->pid, tables[i]);
        FILE *file = fopen(path, "re");
        while (file && fgets(text, sizeof text, file)) {
            if (line_read(text, &line) && line.state == ESTABLISHED && is_among(&inodes, line.inode))
                socket_count(out, &line);
        }
        if (file) fclose(file);
    }
}
