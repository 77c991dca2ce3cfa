/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the memory that ranks share, among the descriptors of the processes of this machine. The kernel shows them to
 * the same user (and to root) alone. */

#include "doctor.h"

#include "transport/host/layout.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMFD "/memfd:tutti-control"

struct seen {
    dev_t device;
    ino_t inode;
};

static bool same_network(const char *pid)
{
    char path[64];
    struct stat mine, theirs;
    snprintf(path, sizeof path, "/proc/%.16s/ns/net", pid);
    return stat("/proc/self/ns/net", &mine) == 0 && stat(path, &theirs) == 0 && mine.st_ino == theirs.st_ino;
}

/* Takes a descriptor of a segment, unless it is known. */
static void segment_add(struct doctor_found *found, struct seen *seen, const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat info;
    struct tutti_segment *segment;
    if (fd < 0) return;
    bool known = fstat(fd, &info) != 0;
    for (uint32_t i = 0; i < found->n && !known; i++)
        known = seen[i].device == info.st_dev && seen[i].inode == info.st_ino;
    if (known || tutti_segment_look(fd, &segment) < 0) {
        if (!known) fprintf(stderr, "tutti doctor: %s: %s\n", path, tutti_last_error()->text);
        close(fd);
        return;
    }
    if (tutti_host_control_observe(segment, &found->segments[found->n]) < 0) {
        fprintf(stderr, "tutti doctor: %s: %s\n", path, tutti_last_error()->text);
        tutti_segment_release(segment);
        return;
    }
    seen[found->n++] = (struct seen){info.st_dev, info.st_ino};
}

static void process_look(struct doctor_found *found, struct seen *seen, const char *pid)
{
    char path[64], at[128], target[64];
    const struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    DIR *fds = opendir(path);
    while (fds && found->n < TUTTI_ARRAY_LEN(found->segments) && (entry = readdir(fds))) {
        snprintf(at, sizeof at, "%s/%.16s", path, entry->d_name);
        const ssize_t n = readlink(at, target, sizeof target - 1);
        if (n < (ssize_t)strlen(MEMFD) || strncmp(target, MEMFD, strlen(MEMFD)) != 0) continue;
        segment_add(found, seen, at);
    }
    if (fds) closedir(fds);
}

void doctor_find(struct doctor_found *found, bool all)
{
    struct seen seen[TUTTI_ARRAY_LEN(found->segments)];
    const struct dirent *entry;
    DIR *processes = opendir("/proc");
    found->n = 0;
    while (processes && (entry = readdir(processes)))
        if (isdigit((unsigned char)entry->d_name[0]) && (all || same_network(entry->d_name)))
            process_look(found, seen, entry->d_name);
    if (processes) closedir(processes);
}

void doctor_found_fini(struct doctor_found *found)
{
    for (uint32_t i = 0; i < found->n; i++) found->segments[i]->base.ops->close(&found->segments[i]->base);
    found->n = 0;
}
