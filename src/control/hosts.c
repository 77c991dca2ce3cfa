/* SPDX-License-Identifier: BSD-3-Clause */

/* The table of hosts: words for sentences, and its end. */

#include "control/hosts.h"

#include <stdio.h>

char *tutti_hosts_say(const struct tutti_hosts *hosts, uint32_t member, char *out, size_t capacity)
{
    const uint32_t host = hosts && member < hosts->n_members ? hosts->members[member].host : UINT32_MAX;
    if (hosts && host < hosts->n_hosts && hosts->hosts[host].name[0])
        snprintf(out, capacity, "rank %u on host %.*s", member, TUTTI_HOST_NAME - 1, hosts->hosts[host].name);
    else
        snprintf(out, capacity, "rank %u", member);
    return out;
}

void tutti_hosts_fini(struct tutti_hosts *hosts)
{
    tutti_free(hosts->hosts);
    tutti_free(hosts->members);
    *hosts = (struct tutti_hosts){.n_hosts = 0};
}
