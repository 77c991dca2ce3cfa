/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_NET_NET_H
#define TUTTI_CONTROL_NET_NET_H

/* The one thread of a process that answers the network while its ranks compute, and the connections that it makes:
 * each is proved by both ends before anybody reads a byte of it. It may use src/base and the table of hosts.
 *
 *     tutti_listener_open(&config, &listener);     before the members meet: the port goes into the card
 *     tutti_net_open(&config, &net);               when they have met: takes the listener over
 *     tutti_net_start(net);                        begins to serve
 *     tutti_net_dial(net, role, peer);             -> config.opened(arg, role, peer, fd) or config.failed(...)
 *     tutti_net_close(net);                        no callback is running when it returns
 *
 * Proof. Both ends know the world (a random number that members alone were told) and, where there is one, the job's
 * secret. HELLO (role, from, to, world's number hashed, nonce) -> CHALLENGE (nonce, signed) -> PROOF (signed) -> READY
 * (status, signed); base/session.h signs over protocol, direction, both nonces and the number of the frame, so nothing
 * can be replayed, reflected or turned into another role. With certificates in place of a secret a connection
 * begins with a handshake of TLS 1.3, in which both ends show theirs (base/tls.h); what they agree on and the world's
 * number are then the key of these frames, for this connection alone. Without either the world's number itself is the
 * key: it keeps other jobs and whatever finds the port out, but not a listener on the network.
 * Before the proof a connection costs this process a row of a table of 64; a row ends after 5 s, and when a new one
 * needs one: first the oldest that has not said HELLO of this world. What was refused is told in the log, once a second
 * at most, with its address. A member that was told dead is refused (PEER_DEAD). Both ends may dial at once: the first
 * that is proved stays, that of the smaller member when both are on their way to that. The other is refused (AGAIN),
 * and its dialer hears of the one that stays.
 *
 * Thread: callbacks come from the thread of the net; all calls of this header may be made by any thread, `close` by
 * none of the net's. To begin with: loop.h, then net.c. */

#include "base/loop.h"
#include "base/stream.h"
#include "control/hosts.h"

/* ---- listening (listener.c) ---- */
struct tutti_listener_config {
    const char *interface;  /* option: names of interfaces, or addresses; "": any */
    const char *congestion; /* option; of the sockets that it accepts, too. NULL: the system's */
    uint64_t ports;         /* option port_range; 0: any */
};
struct tutti_listener; /* IPv4 and IPv6, one port */
/* CONFIG: there is no such interface or address; the sentence lists those that exist. SYSTEM. */
enum tutti_status tutti_listener_open(const struct tutti_listener_config *config, struct tutti_listener **out);
uint16_t tutti_listener_port(const struct tutti_listener *listener);
/* Addresses under which peers may reach it, best first: of the interface that was named, else of those that are up;
 * loopback last. Returns how many (at most capacity). */
uint32_t tutti_listener_addresses(const struct tutti_listener *listener, struct tutti_net_address *out,
                                  uint32_t capacity);
int tutti_listener_accept(struct tutti_listener *listener);   /* a non-blocking socket; -1: none waits */
int tutti_listener_fd(const struct tutti_listener *listener); /* for poll */
void tutti_listener_close(struct tutti_listener *listener);
/* Connects to an address, with a congestion control (as the listener's); does not block: writable, or in error, when it
 * is decided. */
enum tutti_status tutti_net_connect(const struct tutti_net_address *address, uint16_t port, const char *interface,
                                    const char *congestion, int *fd);
/* "10.0.0.1", "fe80::1"; capacity at least 46. Returns out. */
char *tutti_net_address_text(const struct tutti_net_address *address, char *out, size_t capacity);
/* From text; from a connected socket's own or far end. False: it is none. */
bool tutti_net_address_parse(const char *text, struct tutti_net_address *out);
bool tutti_net_address_of(int fd, bool far_end, struct tutti_net_address *out);

/* ---- more sockets to a peer, over one interface or several (way.c) ---- */
#define TUTTI_NET_INTERFACES 8 /* a host's */
#define TUTTI_NET_PATHS 32     /* sockets to a peer beyond the first */
#define TUTTI_NET_NAMES 256    /* most bytes of option interface */

struct tutti_net_interface {
    char name[16]; /* "": another host's */
    struct tutti_net_address address;
    uint32_t prefix; /* bits of its network; another host's: 0 */
    uint32_t scope;  /* for link-local addresses */
    uint32_t speed;  /* Mbit/s; 0: not known */
};
struct tutti_net_way {           /* one socket more */
    char from[TUTTI_NET_NAMES];  /* as option interface: what it is bound to; "": nothing */
    struct tutti_net_address to; /* family 0: where the peer's host is */
};
/* Interfaces that carry large messages: those that the option names, in its order; "": the one that has this host's
 * address. Each with its address of the family of `here` (NULL: before ranks have met, the one that others would find
 * first). Returns how many, at most TUTTI_NET_INTERFACES. */
uint32_t tutti_net_interfaces(const char *interface, const struct tutti_net_address *here,
                              struct tutti_net_interface *out);
/* Sockets of an interface of this speed (Mbit/s; 0: not known); option: what the user says, 0: as many as are quick. */
uint32_t tutti_net_sockets(uint32_t option, uint32_t speed);
/* As bytes for the other end, and back; at most TUTTI_NET_TOLD bytes. UINT32_MAX: it is no list. */
#define TUTTI_NET_TOLD (2 + 21 * TUTTI_NET_INTERFACES)
size_t tutti_net_interfaces_encode(const struct tutti_net_interface *list, uint32_t n, uint8_t out[TUTTI_NET_TOLD]);
uint32_t tutti_net_interfaces_decode(const uint8_t *bytes, size_t n_bytes, struct tutti_net_interface *out);
/* The sockets that this end makes: so many for each pair of interfaces, those of one network together. Returns how
 * many, 0 where the first socket does as well, at most TUTTI_NET_PATHS. Pure. */
uint32_t tutti_net_ways(const struct tutti_net_interface *mine, uint32_t n_mine,
                        const struct tutti_net_interface *theirs, uint32_t n_theirs, uint32_t option,
                        struct tutti_net_way *out);

/* ---- the net ---- */
/* PATH: a socket more beside that of DATA, and encrypted as it is; the number of the path is added. */
enum tutti_net_role { TUTTI_NET_CONTROL = 1, TUTTI_NET_DATA, TUTTI_NET_WITNESS, TUTTI_NET_PATH = 16 };
struct tutti_net_config {
    uint32_t me;
    const struct tutti_hosts *hosts;       /* lives longer than the net */
    uint64_t world;                        /* random, equal on all members, known to nobody else */
    const char *secret;                    /* NULL: none; copied */
    struct tutti_certificate *certificate; /* in place of a secret; NULL: none */
    const char *interface;                 /* as the listener's; copied, */
    const char *congestion;                /* as this */
    struct tutti_listener *listener;       /* taken over on success */
    uint32_t encrypt;                      /* bits 1 << role: connections that are encrypted; equal on all members */
    uint64_t dial_ns;                      /* that reaching a peer may take before it fails with TIMEOUT */
    void *arg;
    /* A proved socket, non-blocking, TCP_NODELAY, and the stream that encrypts what passes by it (NULL: it goes in the
     * clear). Both belong to the function that is called, which encrypts on its own thread. Dialed here or by the peer.
     * Of connections that both dial at once both ends are given the same one. If there is one more of the same role and
     * peer, because somebody dialed again, both are given them in the same order: so either may be kept, if both ends
     * do alike. */
    void (*opened)(void *arg, enum tutti_net_role role, uint32_t peer, int fd, struct tutti_stream *stream);
    /* What was dialed here can not be: PEER_DEAD (one of the two was told dead, or nobody listens there any more: its
     * process has ended, or a firewall refuses), AUTH, PROTOCOL (no tutti answers there), TIMEOUT, SYSTEM (no route, no
     * descriptors), MEMORY. error: with its sentence, which names member, host and address. It may be opened later. */
    void (*failed)(void *arg, enum tutti_net_role role, uint32_t peer, const struct tutti_error *error);
    bool (*is_dead)(void *arg, uint32_t peer); /* whether to refuse it */
};
struct tutti_net;
enum tutti_status tutti_net_open(const struct tutti_net_config *config, struct tutti_net **out);
enum tutti_status tutti_net_start(struct tutti_net *net); /* its thread: nothing is called back before */
struct tutti_loop *tutti_net_loop(struct tutti_net *net); /* for others who live on its thread */
/* One answer follows, opened or failed; a dial of who is being dialed is the same one, and a dial that was called
 * before an `opened` of this role and peer has returned is answered by that. MEMORY, ARGUMENT: no answer follows. */
enum tutti_status tutti_net_dial(struct tutti_net *net, enum tutti_net_role role, uint32_t peer);
/* The same in role PATH + number, by this way. One end alone dials the paths of a pair. */
enum tutti_status tutti_net_dial_path(struct tutti_net *net, uint32_t peer, uint32_t number,
                                      const struct tutti_net_way *way);
void tutti_net_close(struct tutti_net *net); /* what is being dialed gets no answer */

#endif
