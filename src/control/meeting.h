/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MEETING_H
#define TUTTI_CONTROL_MEETING_H

/* How the ranks of one host get hold of one segment. Whoever binds the meeting's abstract Unix socket leads; the others
 * connect to it, prove who they are, and wait. When all have come the leader makes the segment and passes it on. Ranks
 * that are threads of the leader's process hand in a ticket instead of connecting: a thousand of them need no
 * descriptors.
 *
 * On the socket (SOCK_SEQPACKET, so that a message is whole or nothing):
 *   member                              leader
 *   HELLO  who I am, nonce        ->
 *                                 <-    CHALLENGE  who I am, nonce, proof over both
 *   PROOF  over both              ->
 *                                 <-    VERDICT    status and sentence; when OK with the segment's descriptors
 *   ACK    mapped, or why not     ->
 * A member whose deadline passes sends ASK and gets a verdict that names the missing. A proof is an HMAC-SHA256 with
 * the job's secret; without a secret it is zero, and the peer's uid is all there is. A connection that ends without a
 * verdict means: the leader is gone, elect again.
 *
 * Who had come and died is awaited for a moment more, for it may be started again; then the meeting fails with
 * PEER_DEAD. The next leader hears of a dead one in the HELLO of those who had come to him. */

#include "control/bootstrap.h"

#include <stdatomic.h>

struct pollfd;

#define TUTTI_MEETING_PLACE 108 /* of an abstract name, without its leading zero byte */
#define TUTTI_MEETING_NONCE 16

/* A rank that had come, and went. */
struct tutti_meeting_loss {
    int32_t rank, pid;        /* pid 0: nobody */
    uint64_t start, until_ns; /* of the process; its seat is kept so long */
};
struct tutti_meeting_request {
    int32_t rank, n_ranks;
    const char *secret;                  /* NULL: none */
    const char *version;                 /* of this build, for sentences */
    uint64_t build, host;                /* must be equal */
    const char *transport;               /* auto, self, shm */
    const struct tutti_machine *machine; /* what this rank would have all use; NULL: the built-in constants */
    bool crowded;                        /* this rank is of a crowded world already */
    bool device;                         /* this rank has a device */
    size_t staging_bytes;                /* of the segment */
    uint64_t heap_bytes;                 /* of the segment */
    uint64_t started_ns, deadline_ns;
    const _Atomic bool *cancel;      /* may be NULL */
    struct tutti_meeting_loss *lost; /* the leader that went after this rank had come to it; may be NULL */
};
/* The time that a rank gives the others, for sentences: printed with %g, "0.5", "30". Rounded, for part of it is gone
 * before the meeting starts. */
static inline double tutti_meeting_patience_s(const struct tutti_meeting_request *request)
{
    if (request->deadline_ns <= request->started_ns) return 0;
    uint64_t ns = request->deadline_ns - request->started_ns;
    uint64_t unit = ns < 10 * TUTTI_NS_PER_S ? 10 * TUTTI_NS_PER_MS : TUTTI_NS_PER_S;
    uint64_t rounded_ms = (ns + unit / 2) / unit * (unit / TUTTI_NS_PER_MS);
    return (double)rounded_ms / 1e3;
}
struct tutti_meeting_result {
    struct tutti_segment *segment; /* owned by the caller */
    uint64_t nonce;                /* equal on all members */
    bool shared;                   /* memfd: members are in several processes, or transport is shm */
};

/* ---- wire form (meeting_wire.c): pure ---- */
enum tutti_meeting_type {
    TUTTI_MEETING_HELLO = 1,
    TUTTI_MEETING_CHALLENGE,
    TUTTI_MEETING_PROOF,
    TUTTI_MEETING_VERDICT,
    TUTTI_MEETING_ACK,
    TUTTI_MEETING_ASK,
    TUTTI_MEETING_N_TYPES
};
/* The front of every message of every version: so that two versions understand that they do not understand. */
struct tutti_meeting_head {
    uint64_t magic;
    uint32_t type, bytes;
    uint64_t build;
    char version[16];
};
struct tutti_meeting_hello {
    struct tutti_meeting_head head;
    uint64_t host;
    int32_t rank, n_ranks, pid;
    uint32_t has_secret;
    struct tutti_meeting_loss lost; /* the leader before */
    uint8_t nonce[TUTTI_MEETING_NONCE];
};
struct tutti_meeting_challenge {
    struct tutti_meeting_head head;
    int32_t rank, n_ranks, pid;
    uint32_t has_secret;
    uint8_t nonce[TUTTI_MEETING_NONCE];
    uint8_t proof[TUTTI_HMAC_BYTES];
};
struct tutti_meeting_proof {
    struct tutti_meeting_head head;
    uint8_t proof[TUTTI_HMAC_BYTES];
};
struct tutti_meeting_verdict { /* ACK too */
    struct tutti_meeting_head head;
    int32_t status, peer; /* as in struct tutti_error */
    uint32_t shared;
    uint64_t nonce;
    char text[TUTTI_ERROR_TEXT];
};
struct tutti_meeting_ask {
    struct tutti_meeting_head head;
    double patience_s; /* of who asks */
};
union tutti_meeting_message {
    struct tutti_meeting_head head;
    struct tutti_meeting_hello hello;
    struct tutti_meeting_challenge challenge;
    struct tutti_meeting_proof proof;
    struct tutti_meeting_verdict verdict;
    struct tutti_meeting_ask ask;
};
/* Bytes of a message of this type, 0 if there is none. */
size_t tutti_meeting_bytes(uint32_t type);
void tutti_meeting_head_fill(const struct tutti_meeting_request *request, enum tutti_meeting_type type,
                             struct tutti_meeting_head *head);
/* Whether n received bytes are a whole message of our build. CONFIG: another build of tutti; PROTOCOL: nonsense. */
enum tutti_status tutti_meeting_check(const struct tutti_meeting_request *request,
                                      const union tutti_meeting_message *message, size_t n);
/* The proof of one side ("leader", "member") over both openings. */
enum tutti_status tutti_meeting_prove(const char *secret, const char *side, const struct tutti_meeting_hello *hello,
                                      const struct tutti_meeting_challenge *challenge, uint8_t out[TUTTI_HMAC_BYTES]);
/* "rank 3", "ranks 3, 5 and 6", "ranks 0, 1, 2, ... and 991 more" of those whose flag is false. Returns how many. */
uint32_t tutti_meeting_missing_text(const bool *here, uint32_t n, char *out, size_t capacity);

/* ---- sockets (meeting_socket.c): every wait ends at a deadline or a cancel ---- */
/* AGAIN when another socket has the name. */
enum tutti_status tutti_meeting_listen(const char *place, int *fd);
/* AGAIN when nobody listens there, PENDING when too many wait already. AUTH (errno EPERM): the listener has another
 * uid. */
enum tutti_status tutti_meeting_connect(const char *place, int *fd);
/* The peer's process; AUTH when its uid is not ours. */
enum tutti_status tutti_meeting_peer(int fd, int32_t *pid);
/* fds may be NULL, else two descriptors travel along. AGAIN when the peer is gone. */
enum tutti_status tutti_meeting_send(int fd, const void *message, const int fds[2]);
/* Receives what is there: OK, PENDING when nothing is, AGAIN when the peer is gone. fds (may be NULL) gets two
 * descriptors or -1; descriptors that nobody asked for are closed. */
enum tutti_status tutti_meeting_recv(int fd, union tutti_meeting_message *message, size_t *n, int fds[2]);
/* Waits until fd is readable. TIMEOUT (no record), CANCELLED (no record). */
enum tutti_status tutti_meeting_wait(int fd, uint64_t deadline_ns, const _Atomic bool *cancel);

/* ---- a meeting that a thread of this process leads ---- */
struct tutti_meeting_ticket { /* a rank in the leader's process */
    int32_t rank, n_ranks;
    uint64_t build, host;
    char version[16];
    bool same_secret;
    struct tutti_meeting_loss lost; /* the leader before, in another process */
    bool withdrawn;                 /* the member is gone, the leader frees the ticket (under the registry's lock) */
    _Atomic uint32_t done;          /* futex; then error and result hold */
    struct tutti_error error;       /* status AGAIN: the leader gave up, elect again */
    struct tutti_meeting_result result;
    struct tutti_meeting_ticket *next;
};
enum tutti_meeting_peer_state {
    TUTTI_PEER_FRESH,
    TUTTI_PEER_CHALLENGED,
    TUTTI_PEER_SEATED,
    TUTTI_PEER_TOLD, /* has the segment's descriptors, its ACK is awaited */
};
struct tutti_meeting_peer { /* a connection */
    int fd;
    enum tutti_meeting_peer_state state;
    uint64_t until_ns; /* to be seated by then */
    int32_t pid, rank; /* rank: -1 before it has a seat */
    struct tutti_meeting_hello hello;
    struct tutti_meeting_challenge challenge;
};
struct tutti_meeting_seat {
    bool taken;
    int32_t pid;
    struct tutti_meeting_peer *peer;     /* at a socket, */
    struct tutti_meeting_ticket *ticket; /* or in this process; neither: the leader */
    struct tutti_meeting_loss lost;      /* who had the seat and went */
};
struct tutti_meeting {
    const struct tutti_meeting_request *request;
    char place[TUTTI_MEETING_PLACE];
    int listen_fd, wake_fd;
    int32_t pid;
    struct tutti_meeting_seat *seats; /* n_ranks */
    uint32_t n_seated, n_lost;
    struct tutti_meeting_peer **peers;
    struct pollfd *polls;
    uint32_t n_peers, max_peers;
    struct tutti_error verdict; /* OK while undecided */
    bool told;                  /* the others hear the verdict; else they elect again */
    char refusal[200];          /* the last one, for the sentence of a timeout */
    /* under the registry's lock: */
    struct tutti_meeting_ticket *tickets;
    double asked_s; /* a ticket's owner has waited so long and asks who is missing; 0: none does */
    bool withdrawn; /* some ticket is */
    struct tutti_meeting *next;
};
/* meeting_lead.c */
enum tutti_status tutti_meeting_create(const char *place, const struct tutti_meeting_request *request, int listen_fd,
                                       struct tutti_meeting **out);
void tutti_meeting_destroy(struct tutti_meeting *meeting);
/* Runs the meeting until it is decided. before_verdict (may be NULL) is called once, before anybody hears the outcome:
 * from then on newcomers belong to the next meeting. */
enum tutti_status tutti_meeting_lead(struct tutti_meeting *meeting, void (*before_verdict)(void *arg), void *arg,
                                     struct tutti_meeting_result *out);
/* meeting_verdict.c */
enum tutti_status tutti_meeting_decide(struct tutti_meeting *meeting, struct tutti_meeting_result *out);
enum tutti_status tutti_meeting_deliver(struct tutti_meeting *meeting, struct tutti_meeting_result *result);

/* ---- who had come and went (meeting_loss.c) ---- */
/* The error of a death, with its sentence and its peer. */
enum tutti_status tutti_meeting_fail_dead(int32_t rank, int32_t pid);
/* Whether a process whose connection ended has ended, too; waits a little, for the kernel closes descriptors first. */
bool tutti_meeting_process_ended(int32_t pid);
/* Of a rank whose connection ended just now. */
struct tutti_meeting_loss tutti_meeting_loss_now(int32_t rank, int32_t pid);
/* Does nothing when the rank has its seat, or is known to have gone, or when the loss is nobody's. */
void tutti_meeting_loss_note(struct tutti_meeting *meeting, const struct tutti_meeting_loss *loss);
void tutti_meeting_loss_forget(struct tutti_meeting *meeting, struct tutti_meeting_seat *seat);
/* PEER_DEAD when a seat has been kept until now (TUTTI_NEVER: long enough), and its process is gone. */
enum tutti_status tutti_meeting_losses_check(struct tutti_meeting *meeting, uint64_t now);

/* ---- the other side (meeting_join.c) ---- */
/* By a member with a connected socket, which is closed. AGAIN: the leader is gone. */
enum tutti_status tutti_meeting_join(int fd, const struct tutti_meeting_request *request,
                                     struct tutti_meeting_result *out);
/* CANCELLED or TIMEOUT with a record, when it is time. */
enum tutti_status tutti_meeting_patience(const struct tutti_meeting_request *request, const char *waiting_for);

/* ---- registry of the meetings that this process leads (meeting_registry.c) ---- */
/* In one step, so that the threads of a process never need to connect to one another: becomes the leader (*lead, a
 * meeting to run), or hands in a ticket with this process's leader and waits (status and *out as of join), or finds
 * that another process has the place (*elsewhere). */
enum tutti_status tutti_meeting_enter(const char *place, const struct tutti_meeting_request *request,
                                      struct tutti_meeting **lead, bool *elsewhere, struct tutti_meeting_result *out);
/* Frees the place. Tickets that nobody looked at are told to elect again. */
void tutti_meeting_registry_remove(struct tutti_meeting *meeting);
/* Tickets handed in since the last call, as a list; *asked_s and *withdrawn as in the meeting, which forgets them. */
struct tutti_meeting_ticket *tutti_meeting_tickets_take(struct tutti_meeting *meeting, double *asked_s,
                                                        bool *withdrawn);
/* Tells the ticket's owner; the ticket is not the leader's any more. False when the owner has withdrawn. */
bool tutti_meeting_ticket_done(struct tutti_meeting_ticket *ticket, const struct tutti_error *error,
                               const struct tutti_meeting_result *result);
/* True, and the ticket is freed, when its owner has withdrawn. */
bool tutti_meeting_ticket_gone(struct tutti_meeting_ticket *ticket);

/* ---- meeting.c ---- */
/* The place of a meeting without a store. */
void tutti_meeting_place(const char *job, const char *name, unsigned alternative, char out[TUTTI_MEETING_PLACE]);
/* Meets at a place that all ranks derive from uid, job and name. */
enum tutti_status tutti_meet(const char *job, const char *name, const struct tutti_meeting_request *request,
                             struct tutti_meeting_result *out);
/* Meets at a place that the leader publishes in a store: O(1) operations a rank. */
enum tutti_status tutti_meet_by_store(const struct tutti_store *store, const char *name,
                                      const struct tutti_meeting_request *request, struct tutti_meeting_result *out);

/* ---- cards (card.c): what ranks tell one another through the segment, and what must be equal ---- */
struct tutti_card_facts {
    uint32_t min_cpus, n_cpus; /* least CPUs of a rank; of all ranks together */
    bool crowded, decorated, devices;
    struct tutti_place *places;   /* the caller's, of all members */
    struct tutti_machine machine; /* of rank 0 */
};
/* What of this machine must be equal for ranks to share memory: boot, network and process namespaces. */
uint64_t tutti_host_id(void);
/* Writes the leader's knowledge of a member's process, before anybody else sees the segment. */
void tutti_card_expect(struct tutti_segment *segment, uint32_t member, int32_t pid);
/* Says to all who wait that `member` can not take part, and why: when somebody died, they get the same error. */
void tutti_card_fail(struct tutti_segment *segment, uint32_t member, const struct tutti_error *why);
/* Writes the own card, arrives, waits for all, compares. TIMEOUT names the missing; PEER_DEAD a member that died;
 * BOOTSTRAP one that failed; CONFIG rank and options. */
enum tutti_status tutti_card_exchange(struct tutti_segment *segment, const struct tutti_meeting_request *request,
                                      const struct tutti_config *config, struct tutti_card_facts *out);
/* Says that this member's transport is open, waits until everybody's is. */
enum tutti_status tutti_card_wait_open(struct tutti_segment *segment, const struct tutti_meeting_request *request);

#endif
