/* SPDX-License-Identifier: BSD-3-Clause */
/* Transports by name. The list is in open.h. */

#include "transport/open.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    bool spans;
    uint32_t max_members;
    enum tutti_status (*open)(struct tutti_segment *segment, uint32_t me, struct tutti_transport **out);
    /* NULL: a network */
} transports[] = {
#define TUTTI_TRANSPORT_ROW(name, spans, max_members, help) {#name, spans, max_members, tutti_##name##_open},
#define TUTTI_NETWORK_ROW(name, max_members, help) {#name, true, max_members, NULL},
    TUTTI_HOST_TRANSPORTS(TUTTI_TRANSPORT_ROW) TUTTI_NETWORKS(TUTTI_NETWORK_ROW)
#undef TUTTI_TRANSPORT_ROW
#undef TUTTI_NETWORK_ROW
};

bool tutti_transport_is_network(const char *name)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(transports); i++)
        if (strcmp(name, transports[i].name) == 0) return !transports[i].open;
    return false;
}

static enum tutti_status unknown(const char *name)
{
    char names[128] = "auto";
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(transports); i++)
        tutti_append(names, sizeof(names), ", %s", transports[i].name);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "option transport: there is no '%s'; it is one of %s", name, names);
}

enum tutti_status tutti_transport_choose(const char *wanted, bool several_processes, uint32_t n, const char **name,
                                         bool *spans)
{
    const bool any = strcmp(wanted, "auto") == 0;
    uint32_t most = 0; /* the limit of those that fit otherwise */
    bool known = any;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(transports); i++) {
        if (any ? !transports[i].open : strcmp(wanted, transports[i].name) != 0) continue;
        known = true;
        if (several_processes && !transports[i].spans) continue;
        if (transports[i].max_members > most) most = transports[i].max_members;
        if (n > transports[i].max_members) continue;
        *name = transports[i].name;
        *spans = transports[i].spans;
        return TUTTI_OK;
    }
    if (!known) return unknown(wanted);
    if (most == 0) return tutti_fail(TUTTI_ERR_CONFIG, "transport %s needs all ranks in one process", wanted);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "transport %s takes at most %u ranks of one host, but there are %u", wanted,
                      most, n);
}

enum tutti_status tutti_transport_open(const char *name, struct tutti_segment *segment, uint32_t me,
                                       struct tutti_transport **out)
{
    if (tutti_transport_is_network(name))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "option transport: %s is a network, not a transport of one host", name);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(transports); i++)
        if (strcmp(name, transports[i].name) == 0) return transports[i].open(segment, me, out);
    return unknown(name);
}
