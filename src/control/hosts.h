/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_HOSTS_H
#define TUTTI_CONTROL_HOSTS_H

/* Where the members of a world are, when they are on several hosts: equal on all members, constant once they have met.
 * A host is what shares memory: a machine, or a container that shares nothing with others. Bytes: 88 a host, 12 a
 * member, once for all processes of a host. */

#include "base/base.h"

#define TUTTI_HOST_NAME 48

/* An address of IPv4 or IPv6, without a port. Plain data; it travels. */
struct tutti_net_address {
    uint8_t family;    /* 4, 6; 0: none */
    uint8_t bytes[16]; /* in the network's order; of IPv4 the first four */
};
struct tutti_host_row {
    uint64_t id;                /* tutti_host_id */
    char name[TUTTI_HOST_NAME]; /* as its users call it: for sentences */
    struct tutti_net_address address;
    uint32_t leader; /* its member of the least number */
    uint32_t n;      /* members there */
};
struct tutti_member_row {
    uint32_t host;  /* its row */
    uint32_t local; /* number among the members of its host, in their order */
    uint16_t port;  /* where it listens (control/net), on its host's address */
};
struct tutti_hosts {
    uint32_t n_hosts, n_members;
    struct tutti_host_row *hosts;     /* in the order of their leaders */
    struct tutti_member_row *members; /* n_members */
    const uint8_t *mapped; /* the memory that both lie in, and nobody can change; NULL: each is its own allocation */
    size_t n_mapped;
};

/* The next member of the same host, in their order; UINT32_MAX: it was the last one. The first is the host's leader. */
static inline uint32_t tutti_hosts_after(const struct tutti_hosts *hosts, uint32_t member)
{
    const uint32_t host = hosts->members[member].host;
    if (hosts->members[member].local + 1 >= hosts->hosts[host].n) return UINT32_MAX;
    while (++member < hosts->n_members)
        if (hosts->members[member].host == host) return member;
    return UINT32_MAX;
}

#define TUTTI_HOST_TEXT (TUTTI_HOST_NAME + 50) /* with an address */
/* "a" for sentences; "a (10.0.0.2)" where several hosts have that name. Returns out. */
char *tutti_hosts_name(const struct tutti_hosts *hosts, uint32_t host, char *out, size_t capacity);
/* "rank 3 on host a" for sentences; without a table (NULL) "rank 3". Returns out. */
char *tutti_hosts_say(const struct tutti_hosts *hosts, uint32_t member, char *out, size_t capacity);
void tutti_hosts_fini(struct tutti_hosts *hosts);
/* Both arrays one after the other, for memory that the processes of a host share. MEMORY. */
enum tutti_status tutti_hosts_pack(const struct tutti_hosts *hosts, uint8_t **out, uint32_t *bytes);
/* Takes over such memory, a mapping of its own, in place of the arrays if it holds the same; else unmaps it. */
void tutti_hosts_share(struct tutti_hosts *hosts, const uint8_t *bytes, size_t n);

#endif
