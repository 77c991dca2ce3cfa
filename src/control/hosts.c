/* SPDX-License-Identifier: BSD-3-Clause */

/* The table of hosts: words for sentences, and its end. */

#include "control/hosts.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

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

void tutti_hosts_fini(struct tutti_hosts *hosts)
{
    tutti_free(hosts->hosts);
    tutti_free(hosts->members);
    *hosts = (struct tutti_hosts){.n_hosts = 0};
}
