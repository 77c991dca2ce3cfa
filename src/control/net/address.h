/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_NET_ADDRESS_H
#define TUTTI_CONTROL_NET_ADDRESS_H

/* Addresses of this host, and addresses as the system's calls want them; for this room. */

#include "control/net/net.h"

#include <net/if.h>
#include <sys/socket.h>

#define TUTTI_NET_LOCALS 64

/* An address that an interface of this host has. */
struct tutti_net_local {
    struct tutti_net_address address;
    char interface[IF_NAMESIZE];
    uint32_t scope; /* the interface's index, for link-local addresses; else 0 */
    uint32_t rank;  /* less is better */
    bool up;
};

/* Those that the option names (an interface, an address, or a network such as 10.0.0.0/8; "": all), best first; *n at
 * most TUTTI_NET_LOCALS, at least 1. CONFIG: none, with a sentence that lists what exists. SYSTEM. */
enum tutti_status tutti_net_locals(const char *interface, struct tutti_net_local *out, uint32_t *n);

/* As the system wants it; returns its length, 0 for none. */
socklen_t tutti_net_sockaddr(const struct tutti_net_address *address, uint32_t scope, uint16_t port,
                             struct sockaddr_storage *out);
bool tutti_net_address_from(const struct sockaddr *from, struct tutti_net_address *out);
uint16_t tutti_net_sockaddr_port(const struct sockaddr_storage *from);
bool tutti_net_link_local(const struct tutti_net_address *address); /* for IPv6: true only with a scope */
/* A stream socket that neither blocks nor delays, for addresses of this family. */
int tutti_net_socket(sa_family_t family, const char *congestion);

#endif
