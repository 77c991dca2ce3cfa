/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MEET_MEETING_H
#define TUTTI_CONTROL_MEET_MEETING_H

/* How ranks meet: the edge of the machines in control/meet. Whoever binds the meeting's abstract Unix socket leads;
 * the others connect to it. Ranks that are threads of the leader's process hand in a ticket instead, and the leader's
 * thread runs their member machines for them: a thousand of them need no descriptors. With a store each host has such a
 * place. Whoever binds that of the first host leads; the others pass on what is said there (door.h).
 *
 * When all have come and all are of one host, the leader makes the segment and passes it on. When they are of several,
 * all get the table of hosts, and then the ranks of each host meet once more, for their segment (control/meet). It
 * uses the machines, topo, control/net and the segment of transport/host. To begin with: meet.c (who leads, where),
 * then lead.c, relay.c and join.c. */

#include "base/config.h"
#include "base/tls.h"
#include "control/meet/card.h"
#include "control/meet/machine.h"
#include "control/net/net.h"
#include "model/machine.h"
#include "topo/topo.h"
#include "transport/transport.h"

#include <tutti/store.h>

#define TUTTI_MEETING_PLACE 108                       /* an abstract name's length, without its leading zero byte */
#define TUTTI_MEETING_SLICE_NS (50 * TUTTI_NS_PER_MS) /* how soon a cancel is seen */

struct tutti_meeting_request {
    int32_t rank, n_ranks;
    const char *secret;                    /* NULL: none */
    struct tutti_certificate *certificate; /* this process has it in place of a secret; NULL: none */
    const char *version;                   /* this build's, for sentences */
    uint64_t build, host;                  /* must be equal */
    const char *transport;                 /* auto, self, shm */
    const struct tutti_card_record *card;  /* what this rank says of itself; NULL: nothing */
    struct tutti_listener *listener;       /* where ranks of other hosts come to; NULL: all must be of this host */
    const char *alone_because;             /* without a listener: why, as the end of a sentence */
    bool spread;                           /* the launcher says that the ranks are on several hosts */
    const char *interface;                 /* the network's; NULL: any */
    uint64_t ports;                        /* option port_range */
    size_t staging_bytes;                  /* the segment's */
    uint64_t heap_bytes;                   /* the segment's */
    uint64_t started_ns, deadline_ns;
    const _Atomic bool *cancel;      /* may be NULL */
    struct tutti_meeting_loss *lost; /* the leader that went after this rank had come to it; may be NULL */
};
struct tutti_meeting_result {
    struct tutti_segment *segment; /* owned by the caller; NULL: the ranks are of several hosts */
    const uint8_t *table;          /* then: the table of hosts (card.h); for tutti_handout_unmap */
    uint32_t n_table;
    const uint8_t *rows; /* the same for tutti_hosts_share, which takes it over; NULL: none came */
    uint32_t n_rows;
    uint64_t nonce; /* equal on all members */
    bool shared;    /* memfd: members are in several processes, or transport is shm */
};

static inline bool tutti_meeting_cancelled(const struct tutti_meeting_request *request)
{
    return request->cancel && *request->cancel;
}
static inline unsigned long long tutti_meeting_patience(const struct tutti_meeting_request *request)
{
    return tutti_meeting_patience_ms(request->started_ns, request->deadline_ns);
}
/* CANCELLED or TIMEOUT with a record, when it is time. */
enum tutti_status tutti_meeting_time(const struct tutti_meeting_request *request, const char *waiting_for);
/* Borrows `card`. */
struct tutti_meeting_self tutti_meeting_self(const struct tutti_meeting_request *request,
                                             uint8_t card[TUTTI_CARD_RECORD_BYTES]);
/* Reports a rank whose connection ended just now. */
struct tutti_meeting_loss tutti_meeting_loss_now(int32_t rank, int32_t pid);

/* ---- sockets (socket.c): every wait ends ---- */
/* AGAIN when another socket has the name. */
enum tutti_status tutti_meeting_listen(const char *place, int *fd);
/* AGAIN when nobody listens there, PENDING when too many wait already. AUTH (errno EPERM): the listener has another
 * uid. */
enum tutti_status tutti_meeting_connect(const char *place, int *fd);
/* The peer's process; AUTH when its uid is not ours. */
enum tutti_status tutti_meeting_peer(int fd, int32_t *pid);
/* fds may be NULL, else two descriptors travel along. AGAIN when the peer is gone. */
enum tutti_status tutti_meeting_send(int fd, const void *bytes, size_t n, const int fds[2]);
/* Receives what is there: OK, PENDING when nothing is, AGAIN when the peer is gone. fds (may be NULL) gets two
 * descriptors or -1; descriptors that nobody asked for are closed. */
enum tutti_status tutti_meeting_recv(int fd, uint8_t bytes[TUTTI_MEETING_FRAME_MAX + 1], size_t *n, int fds[2]);
/* What machines ask of a host, for struct tutti_meeting_out. */
enum tutti_status tutti_meeting_random(void *arg, void *out, size_t n);
uint64_t tutti_meeting_started(void *arg, int32_t pid);
bool tutti_meeting_alive(void *arg, int32_t pid, uint64_t start);

/* ---- the table of hosts, once for all processes of a host ---- */
enum tutti_status tutti_handout_make(const uint8_t *bytes, uint32_t n, int *fd);
/* PROTOCOL: it is no such memory. Takes nothing over. */
enum tutti_status tutti_handout_map(int fd, const uint8_t **bytes, uint32_t *n);
void tutti_handout_unmap(const uint8_t *bytes, uint32_t n); /* NULL is ignored */

/* ---- a place on the network, as text: port and addresses ---- */
#define TUTTI_FAR_TEXT 512
void tutti_far_text(const struct tutti_listener *listener, char out[TUTTI_FAR_TEXT]);
/* Connects to the first address that answers. AGAIN: all of them refuse, so the leader is gone; PENDING: some do not
 * answer, errno says why. PROTOCOL: not such a text. CANCELLED. */
enum tutti_status tutti_far_connect(const char *text, const struct tutti_meeting_request *request, int *fd);

/* ---- the meetings that threads of this process lead (local.c) ---- */
struct tutti_ticket { /* a rank in the leader's process */
    struct tutti_meeting_self self;
    char version[16];
    uint8_t card[TUTTI_CARD_RECORD_BYTES];
    bool withdrawn;           /* the owner is gone, the leader frees the ticket (under the lock) */
    _Atomic uint32_t done;    /* futex; then error and result hold */
    struct tutti_error error; /* status AGAIN: the leader gave up, elect again */
    struct tutti_meeting_result result;
    struct tutti_meeting_member member; /* the leader's thread runs it */
    struct tutti_ticket *next;
};
struct tutti_meeting {
    const struct tutti_meeting_request *request; /* the leader's */
    char place[TUTTI_MEETING_PLACE];
    int listen_fd, wake_fd;
    struct tutti_listener *listener; /* where relays come to; NULL: none may; owned */
    int32_t pid;
    /* under the lock: */
    struct tutti_ticket *tickets; /* handed in, not taken yet */
    struct tutti_meeting *next;
};
/* In one step, so that the threads of a process never need to connect to one another: becomes the leader (*lead, a
 * meeting to run), or hands in a ticket with this process's leader and waits (status and *out as of join), or finds
 * that another process has the place (*elsewhere). */
enum tutti_status tutti_meeting_enter(const char *place, const struct tutti_meeting_request *request,
                                      struct tutti_meeting **lead, bool *elsewhere, struct tutti_meeting_result *out);
/* Frees the place. Tickets that nobody looked at are told to elect again. */
void tutti_meeting_leave(struct tutti_meeting *meeting);
void tutti_meeting_destroy(struct tutti_meeting *meeting); /* leaves first */
/* Tickets handed in since the last call, as a list. */
struct tutti_ticket *tutti_meeting_tickets_take(struct tutti_meeting *meeting);
/* Tells the ticket's owner; the ticket is not the leader's any more. False when the owner has withdrawn. */
bool tutti_ticket_done(struct tutti_ticket *ticket, const struct tutti_error *error,
                       const struct tutti_meeting_result *result);
bool tutti_ticket_withdrawn(struct tutti_ticket *ticket);

/* ---- both sides ---- */
/* lead.c: runs the meeting until it is decided, and destroys it. before_verdict (may be NULL) is called once, before
 * anybody hears the outcome: from then on newcomers belong to the next meeting. */
enum tutti_status tutti_meeting_lead(struct tutti_meeting *meeting, void (*before_verdict)(void *arg), void *arg,
                                     struct tutti_meeting_result *out);
/* relay.c: runs the relay of a host until the leader is done, and destroys the meeting. fd: a connected TCP socket of
 * who is above it, tls: what both ends have agreed on, NULL without certificates; both are taken over. AGAIN: the
 * leader is gone, or the way to it. */
enum tutti_status tutti_meeting_relay(struct tutti_meeting *meeting, int fd, struct tutti_tls *tls,
                                      struct tutti_meeting_result *out);
/* join.c: by a member with a connected Unix socket, which is closed. AGAIN: the leader is gone, or the relay. relay:
 * the rank that passes on what is said, -1: it is the leader. */
enum tutti_status tutti_meeting_join(int fd, int32_t relay, const struct tutti_meeting_request *request,
                                     struct tutti_meeting_result *out);

/* ---- meet.c ---- */
/* The place of a meeting without a store. */
void tutti_meeting_place(const char *job, const char *name, unsigned alternative, char out[TUTTI_MEETING_PLACE]);
/* Meets at a place that all ranks derive from uid, job and name. */
enum tutti_status tutti_meet(const char *job, const char *name, const struct tutti_meeting_request *request,
                             struct tutti_meeting_result *out);
/* Meets at a place that the leader publishes in a store: O(1) operations a rank. */
enum tutti_status tutti_meet_by_store(const struct tutti_store *store, const char *name,
                                      const struct tutti_meeting_request *request, struct tutti_meeting_result *out);

/* ---- cards (exchange.c): what ranks tell one another, and what must be equal ---- */
struct tutti_card_self {
    const char *version;                 /* this build's */
    uint64_t build, host;                /* must be equal; tutti_host_id */
    const struct tutti_machine *machine; /* what this rank would have all use; NULL: the built-in constants */
    bool crowded;                        /* this rank is of a crowded world already */
    bool device;                         /* this rank has a device */
    uint16_t port;                       /* where it listens; 0: nowhere */
};
/* What of this machine must be equal for ranks to share memory: boot, network and process namespaces; or boot and what
 * option host says. */
uint64_t tutti_host_id(const char *named);
/* As users call it: what option host says, else the host name. */
void tutti_host_name(const char *named, char *out, size_t capacity);
/* What this rank says of itself. MEMORY. */
enum tutti_status tutti_card_fill(const struct tutti_card_self *self, const struct tutti_config *config,
                                  struct tutti_card_record *out);
/* Writes the leader's knowledge of a member's process, before anybody else sees the segment. */
void tutti_card_expect(struct tutti_segment *segment, uint32_t member, int32_t pid);
/* Says to all who wait that `member` can not take part, and why: when somebody died, they get the same error. */
void tutti_card_fail(struct tutti_segment *segment, uint32_t member, const struct tutti_error *why);
/* Writes the own card, arrives, waits for all, compares; places: of all members. TIMEOUT names the missing; PEER_DEAD a
 * member that died; BOOTSTRAP one that failed; CONFIG rank and options. */
enum tutti_status tutti_card_exchange(struct tutti_segment *segment, const struct tutti_meeting_request *request,
                                      struct tutti_cpu_place *places, struct tutti_world_facts *out);
/* Says that this member's transport is open, waits until everybody's is. */
enum tutti_status tutti_card_wait_open(struct tutti_segment *segment, const struct tutti_meeting_request *request);

#endif
