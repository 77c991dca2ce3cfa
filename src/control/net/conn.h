/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_NET_CONN_H
#define TUTTI_CONTROL_NET_CONN_H

/* What the files of the net share: the net itself, a connection on its way to its proof, and a peer,
 * whose connections are accepted (net.c) and dialed (dial.c). All but what the mutex guards belongs to the net's
 * thread.
 */

#include "base/tls.h"
#include "control/net/proof.h"

#include <net/if.h>

#define TUTTI_NET_ROWS 64
#define TUTTI_NET_BUCKETS 256

/* A connection that is not proved yet. */
struct tutti_net_conn {
    struct tutti_loop_fd watch; /* first: the watch is the connection; fd -1: there is none */
    struct tutti_net *net;
    struct tutti_net_peer *peer; /* that this end dialed; else NULL */
    struct tutti_tls *tls; /* by which both ends show their certificates before HELLO; NULL: they have, or need not */
    struct tutti_proof proof;
    bool connected;               /* dialed */
    struct tutti_proof_out hello; /* ... and still to be sent */
    uint8_t bytes[TUTTI_PROOF_SIGNED];
    size_t n_bytes; /* the due frame's */
    uint64_t since_ns;
    struct tutti_loop_timer timer; /* accepted: until it must be proved */
};
/* Begins TLS, where certificates are the proof. */
enum tutti_status tutti_net_conn_begin(struct tutti_net_conn *conn, bool client);
/* Goes on with it. OK: both ends have shown their certificates, to which the proof is bound, or need not. PENDING.
 * AUTH, PROTOCOL: no member. */
enum tutti_status tutti_net_conn_agree(struct tutti_net_conn *conn);
/* Reads on. OK: a frame is whole, in `bytes`. PENDING. PROTOCOL: no frame. SYSTEM: it ended; the record has the errno,
 * 0 when the other end closed it. */
enum tutti_status tutti_net_conn_read(struct tutti_net_conn *conn);
/* One frame always fits into a new socket. SYSTEM: the connection ended. */
enum tutti_status tutti_net_conn_send(struct tutti_net_conn *conn, const struct tutti_proof_out *out);
int tutti_net_conn_take(struct tutti_net_conn *conn); /* its socket, forgotten here */
void tutti_net_conn_end(struct tutti_net_conn *conn); /* closes it */

/* A member in one role, from the first connection that was dialed or accepted. Never freed before the net. */
struct tutti_net_peer {
    struct tutti_net *net;
    struct tutti_net_peer *next; /* in its bucket */
    enum tutti_net_role role;
    uint32_t member;
    struct tutti_net_way way; /* by which this end dials a path */
    bool queued;              /* under the mutex: dialed, and the net's thread has not looked yet */
    struct tutti_net_peer *next_queued;

    bool wanted; /* a dial waits for its answer */
    uint64_t deadline_ns, retry_ns;
    uint32_t n_tries, n_refused;
    struct tutti_net_conn *conn;           /* the try under way, NULL between tries */
    struct tutti_net_agreement *agreement; /* a proved connection whose ends agree on keys; NULL: none */
    struct tutti_loop_timer timer;
    const char *why; /* the last try failed */
    int why_errno;
    uint32_t n_dialed, n_accepted; /* connections that became proved ones, by who dialed */
};

struct tutti_net {
    struct tutti_net_config config; /* secret NULL */
    char interface[TUTTI_NET_NAMES], congestion[16];
    struct tutti_proof_key key;
    struct tutti_loop *loop;
    bool closing;

    struct tutti_loop_fd accepts; /* for the listener */
    struct tutti_loop_timer accepts_again;
    struct tutti_net_conn rows[TUTTI_NET_ROWS];
    uint64_t told_ns; /* when the log was told last of a connection that was refused */
    uint32_t n_untold;

    pthread_mutex_t mutex; /* guards buckets and queue */
    struct tutti_net_peer *buckets[TUTTI_NET_BUCKETS];
    struct tutti_net_peer *queue, **queue_end;
    struct tutti_loop_post dials;
};

/* ---- listener.c ---- */
#define TUTTI_NET_LOCALS 64

/* An address that an interface of this host has. */
struct tutti_net_local {
    struct tutti_net_address address;
    char interface[IF_NAMESIZE];
    uint32_t scope;  /* the interface's index, for link-local addresses; else 0 */
    uint32_t prefix; /* bits of its network */
    uint32_t rank;   /* less is better */
    bool up;
};

/* Those that the option names (an interface, an address, or a network such as 10.0.0.0/8; several, with commas between
 * them; "": all), of the first name first, best first of each; *n at most TUTTI_NET_LOCALS, at least 1. CONFIG: a name
 * without any, with a sentence that lists what exists. SYSTEM. */
enum tutti_status tutti_net_locals(const char *interface, struct tutti_net_local *out, uint32_t *n);
/* Whether both are of the network that the address of this host has. */
bool tutti_net_local_near(const struct tutti_net_local *local, const struct tutti_net_address *address);

/* ---- dial.c ---- */
/* Any thread; NULL: no memory. */
struct tutti_net_peer *tutti_net_peer_of(struct tutti_net *net, enum tutti_net_role role, uint32_t member);
void tutti_net_peer_queue(struct tutti_net_peer *peer); /* any thread */
/* A connection of it, dialed or accepted, is proved by both ends: its user gets it, at once or when it is encrypted,
 * and whatever was dialed before is answered by that. On failure it is closed, with a record. */
enum tutti_status tutti_net_peer_proved(struct tutti_net_peer *peer, const struct tutti_proof *proof, int fd);
/* Whether this end dials it, too, and may not let go of that any more. */
bool tutti_net_peer_committed(const struct tutti_net_peer *peer);
void tutti_net_dials_begin(struct tutti_net *net);
void tutti_net_dials_end(struct tutti_net *net); /* ends all tries, frees the peers */

#endif
