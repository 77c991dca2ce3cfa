/* SPDX-License-Identifier: BSD-3-Clause */

/* The table of hosts: words for sentences, how processes share it, and its end. */

#include "control/hosts.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

char *tutti_hosts_name(const struct tutti_hosts *hosts, uint32_t host, char *out, size_t capacity)
{
    const struct tutti_host_row *row = &hosts->hosts[host];
    const int family = row->address.family == 6 ? AF_INET6 : AF_INET;
    char text[INET6_ADDRSTRLEN];
    uint32_t same = 0;
    for (uint32_t h = 0; h < hosts->n_hosts; h++)
        same += strncmp(hosts->hosts[h].name, row->name, sizeof row->name) == 0;
    if (same > 1 && row->address.family != 0 && inet_ntop(family, row->address.bytes, text, sizeof text))
        snprintf(out, capacity, "%.*s (%s)", TUTTI_HOST_NAME - 1, row->name, text);
    else
        snprintf(out, capacity, "%.*s", TUTTI_HOST_NAME - 1, row->name);
    return out;
}

char *tutti_hosts_say(const struct tutti_hosts *hosts, uint32_t member, char *out, size_t capacity)
{
    const uint32_t host = hosts && member < hosts->n_members ? hosts->members[member].host : UINT32_MAX;
    char name[TUTTI_HOST_TEXT];
    if (hosts && host < hosts->n_hosts && hosts->hosts[host].name[0])
        snprintf(out, capacity, "rank %u on host %s", member, tutti_hosts_name(hosts, host, name, sizeof name));
    else
        snprintf(out, capacity, "rank %u", member);
    return out;
}

static void arrays_free(struct tutti_hosts *hosts)
{
    if (hosts->mapped) {
        munmap((void *)(uintptr_t)hosts->mapped, hosts->n_mapped);
        return;
    }
    tutti_free(hosts->hosts);
    tutti_free(hosts->members);
}

void tutti_hosts_fini(struct tutti_hosts *hosts)
{
    arrays_free(hosts);
    *hosts = (struct tutti_hosts){.n_hosts = 0};
}

/* ---- sharing ---- */

static size_t packed_bytes(const struct tutti_hosts *hosts)
{
    return hosts->n_hosts * sizeof hosts->hosts[0] + hosts->n_members * sizeof hosts->members[0];
}

enum tutti_status tutti_hosts_pack(const struct tutti_hosts *hosts, uint8_t **out, uint32_t *bytes)
{
    const size_t n = packed_bytes(hosts), n_hosts = hosts->n_hosts * sizeof hosts->hosts[0];
    uint8_t *packed = n <= UINT32_MAX ? tutti_alloc(n) : NULL;
    if (!packed) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a table of %u members", hosts->n_members);
    memcpy(packed, hosts->hosts, n_hosts);
    memcpy(packed + n_hosts, hosts->members, n - n_hosts);
    *out = packed, *bytes = (uint32_t)n;
    return TUTTI_OK;
}

static bool host_equal(const struct tutti_host_row *a, const struct tutti_host_row *b)
{
    return a->id == b->id && memcmp(a->name, b->name, sizeof a->name) == 0 && a->leader == b->leader && a->n == b->n &&
           a->address.family == b->address.family &&
           memcmp(a->address.bytes, b->address.bytes, sizeof a->address.bytes) == 0;
}

static bool all_equal(const struct tutti_hosts *a, const struct tutti_hosts *b)
{
    for (uint32_t h = 0; h < a->n_hosts; h++)
        if (!host_equal(&a->hosts[h], &b->hosts[h])) return false;
    for (uint32_t i = 0; i < a->n_members; i++)
        if (a->members[i].host != b->members[i].host || a->members[i].local != b->members[i].local ||
            a->members[i].port != b->members[i].port)
            return false;
    return true;
}

void tutti_hosts_share(struct tutti_hosts *hosts, const uint8_t *bytes, size_t n)
{
    struct tutti_hosts shared = {
        .n_hosts = hosts->n_hosts, .n_members = hosts->n_members, .mapped = bytes, .n_mapped = n};
    if (!bytes) return;
    shared.hosts = (struct tutti_host_row *)(uintptr_t)bytes;
    shared.members = (struct tutti_member_row *)(void *)(shared.hosts + hosts->n_hosts);
    if (n == packed_bytes(hosts) && all_equal(hosts, &shared)) {
        arrays_free(hosts);
        *hosts = shared;
    } else {
        arrays_free(&shared);
    }
}
