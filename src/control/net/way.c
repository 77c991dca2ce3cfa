/* SPDX-License-Identifier: BSD-3-Clause */

/* Which interfaces carry large messages to a peer, and over how many sockets each: pure, but for what the system says
 * of interfaces. */

#include "control/net/conn.h"

#include "base/session.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A socket carries what one CPU of the kernel does for it: some 10 to 30 Gbit/s. */
#define FAST_MBIT 25000    /* from here on two sockets */
#define FASTER_MBIT 100000 /* ... four */
#define VERSION 1
#define ROW 21 /* family 1, address 16, speed 4 */

/* ---- interfaces of this host ---- */

static uint32_t speed_of(const char *name)
{
    char path[64], text[16] = "";
    snprintf(path, sizeof path, "/sys/class/net/%.15s/speed", name);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    const bool said = fgets(text, sizeof text, file);
    fclose(file);
    const long speed = said ? strtol(text, NULL, 10) : 0; /* -1: it does not know; and of a virtual one, an error */
    return speed > 0 ? (uint32_t)speed : 0;
}

static bool is_at(const struct tutti_net_address *a, const struct tutti_net_address *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

uint32_t tutti_net_interfaces(const char *interface, const struct tutti_net_address *here,
                              struct tutti_net_interface *out)
{
    struct tutti_net_local locals[TUTTI_NET_LOCALS];
    uint32_t n_locals, n = 0;
    if (tutti_net_locals(interface, locals, &n_locals) < 0) return 0;
    if (!here) here = &locals[0].address;
    if (here->family == 0) return 0;
    for (uint32_t i = 0; i < n_locals && n < TUTTI_NET_INTERFACES; i++) {
        uint32_t k = 0;
        if (locals[i].address.family != here->family || (!interface[0] && !is_at(&locals[i].address, here))) continue;
        while (k < n && strcmp(out[k].name, locals[i].interface) != 0) k++;
        if (k < n) continue; /* an address each */
        out[n] = (struct tutti_net_interface){.address = locals[i].address,
                                              .prefix = locals[i].prefix,
                                              .scope = locals[i].scope,
                                              .speed = speed_of(locals[i].interface)};
        snprintf(out[n].name, sizeof out[n].name, "%s", locals[i].interface);
        n++;
    }
    return n;
}

/* ---- as bytes ---- */

size_t tutti_net_interfaces_encode(const struct tutti_net_interface *list, uint32_t n, uint8_t out[TUTTI_NET_TOLD])
{
    out[0] = VERSION, out[1] = (uint8_t)n;
    uint8_t *at = out + 2;
    for (uint32_t i = 0; i < n; i++, at += ROW) {
        at[0] = list[i].address.family;
        memcpy(at + 1, list[i].address.bytes, 16);
        tutti_le_store(at + 17, 4, list[i].speed);
    }
    return (size_t)(at - out);
}

uint32_t tutti_net_interfaces_decode(const uint8_t *bytes, size_t n_bytes, struct tutti_net_interface *out)
{
    if (n_bytes < 2 || bytes[0] != VERSION || bytes[1] > TUTTI_NET_INTERFACES || n_bytes != 2 + (size_t)bytes[1] * ROW)
        return UINT32_MAX;
    const uint8_t *at = bytes + 2;
    for (uint32_t i = 0; i < bytes[1]; i++, at += ROW) {
        out[i] = (struct tutti_net_interface){.address.family = at[0], .speed = (uint32_t)tutti_le_load(at + 17, 4)};
        memcpy(out[i].address.bytes, at + 1, 16);
        if (at[0] != 4 && at[0] != 6) return UINT32_MAX;
    }
    return bytes[1];
}

/* ---- ways ---- */

uint32_t tutti_net_sockets(uint32_t option, uint32_t speed)
{
    if (option > 0) return option;
    return speed >= FASTER_MBIT ? 4 : speed >= FAST_MBIT ? 2 : 1;
}

/* The n-th of this end's that is of the network of the address, counted round; where none is, the n-th of all. */
static const struct tutti_net_interface *nearest(const struct tutti_net_interface *mine, uint32_t n_mine,
                                                 const struct tutti_net_address *address, uint32_t number)
{
    uint32_t near[TUTTI_NET_INTERFACES], n = 0;
    for (uint32_t i = 0; i < n_mine; i++) {
        const struct tutti_net_local local = {.address = mine[i].address, .prefix = mine[i].prefix};
        if (tutti_net_local_near(&local, address)) near[n++] = i;
    }
    return &mine[n > 0 ? near[number % n] : number % n_mine];
}

static void way_make(const struct tutti_net_interface *from, const struct tutti_net_address *to,
                     struct tutti_net_way *out)
{
    char text[INET6_ADDRSTRLEN];
    out->to = *to;
    tutti_net_address_text(&from->address, text, sizeof text);
    snprintf(out->from, sizeof out->from, "%s%s%s", text, from->scope ? "%" : "", from->scope ? from->name : "");
}

uint32_t tutti_net_ways(const struct tutti_net_interface *mine, uint32_t n_mine,
                        const struct tutti_net_interface *theirs, uint32_t n_theirs, uint32_t option,
                        struct tutti_net_way *out)
{
    const uint32_t n_pairs = n_mine > n_theirs ? n_mine : n_theirs;
    uint32_t n = 0, most = 0;
    if (n_mine == 0 || n_theirs == 0) return 0;
    for (uint32_t round = 0; round == 0 || round < most; round++)
        for (uint32_t i = 0; i < n_pairs && n < TUTTI_NET_PATHS; i++) {
            const struct tutti_net_interface *to = &theirs[i % n_theirs];
            const struct tutti_net_interface *from =
                nearest(mine, n_mine, &to->address, n_mine > n_theirs ? i / n_theirs : i);
            const uint32_t speed = from->speed < to->speed ? from->speed : to->speed;
            const uint32_t sockets = tutti_net_sockets(option, speed);
            if (sockets > most) most = sockets;
            if (round < sockets) way_make(from, &to->address, &out[n++]);
        }
    return n > 1 ? n : 0;
}
