/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_OFI_STATE_H
#define TUTTI_TRANSPORT_OFI_STATE_H

/* What the files of this room share, from the ground up; a file uses those above it in this list alone.
 *
 *   provider.c   libfabric, opened at run time; which provider and which domains
 *   rail.c       an endpoint on a domain, its registered memory, its completions
 *   peer.c       peers: their buffers, and the lists that they stand in
 *   frame.c      frames out and in, their window
 *   large.c      payloads that are not copied
 *   access.c     puts and gets: payloads without a packet
 *   meet.c       sockets: how peers come, say goodbye and end
 *   turn.c       progress, poll, sleep
 *   ofi.c        send, place, cancel, open, close
 *
 * A frame is what travels in posted buffers: a head of this room, the packet's head (packet.h), a payload of at most
 * t->copied bytes. Frames with a packet are numbered, so a provider may complete them in any order, and one that it
 * failed to send is sent again. The receiver posts CREDITS buffers for them, which is the window of the sender, and
 * some for control frames, whose number is bounded by what they answer.
 *
 * All is the owner's but what the lock guards, and the atomics. */

#include "transport/network.h"
#include "transport/ofi/ofi.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdatomic.h>
#include <sys/uio.h>

#define TUTTI_OFI_PAYLOAD ((size_t)1 << 20)
#define TUTTI_OFI_CONTROL_HEAD 48u
#define TUTTI_OFI_HEAD 128u                       /* of a frame with a packet: 48 bytes of this room, and its head */
#define TUTTI_OFI_COPIED ((size_t)64 << 10)       /* where memory need not be registered */
#define TUTTI_OFI_COPIED_LOCAL ((size_t)16 << 10) /* where it must be: buffers are pinned */
#define TUTTI_OFI_CREDITS 12u                     /* frames under way to a peer */
#define TUTTI_OFI_WINDOW 64u                      /* ... and queued for it */
#define TUTTI_OFI_LARGE 4u                        /* large packets under way to a peer */
#define TUTTI_OFI_ACCESSES 8u                     /* puts and gets under way */
#define TUTTI_OFI_LENT (2 * TUTTI_OFI_LARGE + TUTTI_OFI_ACCESSES)
#define TUTTI_OFI_CONTROLS (TUTTI_OFI_LARGE + 4u) /* a GO for each large packet; ACKs come by the half window */
#define TUTTI_OFI_RECEIVES (TUTTI_OFI_CREDITS + TUTTI_OFI_CONTROLS)
#define TUTTI_OFI_NAME 128u /* bytes of an endpoint's address, at most */
#define TUTTI_OFI_HELLO (40u + TUTTI_OFI_RAILS * TUTTI_OFI_NAME)
#define TUTTI_OFI_GOODBYE 16u
#define TUTTI_OFI_PARTS 8u /* of a payload that the provider gathers or scatters, at most */
#define TUTTI_OFI_BATCH 16u
#define TUTTI_OFI_NOBODY UINT32_MAX

struct tutti_ofi_peer;

/* ---- rails ---- */
enum tutti_ofi_kind {
    TUTTI_OFI_RECEIVE,
    TUTTI_OFI_FRAME,
    TUTTI_OFI_CONTROL,
    TUTTI_OFI_LARGE_OUT,
    TUTTI_OFI_LARGE_IN,
    TUTTI_OFI_PUT,
    TUTTI_OFI_GET
};
struct tutti_ofi_op {
    struct fi_context2 context; /* first: the provider's */
    enum tutti_ofi_kind kind;
    struct tutti_ofi_peer *peer; /* NULL: a RECEIVE, which is for all */
};
struct tutti_ofi_rail {
    struct fi_info *info;
    uint64_t ports; /* option port_range */
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    int fd;        /* the queue's, to sleep on; -1: the provider has none */
    bool local;    /* memory must be registered */
    bool enforced; /* by the network card: what is not registered any more is not touched any more */
    uint8_t name[TUTTI_OFI_NAME];
    size_t name_bytes;
    uint64_t next_key; /* for registered memory, where the provider does not choose it */
    struct fi_cq_tagged_entry entries[TUTTI_OFI_BATCH];
    uint32_t n_entries, next_entry;
};
struct tutti_ofi_completion {
    struct tutti_ofi_op *op; /* NULL: a peer wrote, with `ticket` */
    uint64_t ticket;
    size_t bytes;
    int error; /* 0, or FI_E... */
};
/* Registered memory, of one payload or of a peer's buffers. */
struct tutti_ofi_memory {
    struct fid_mr *mr;
    void *desc;
};

/* ---- frames ---- */
struct tutti_ofi_rx {
    struct tutti_ofi_op op; /* first */
    struct tutti_ofi_rx *next;
    uint8_t *data;
    void *desc;
    uint32_t bytes; /* that came */
};
struct tutti_ofi_tx {
    struct tutti_ofi_op op; /* first */
    struct tutti_ofi_tx *next;
    uint8_t *data;
    void *desc;
    uint32_t bytes;
    uint64_t failing_ns; /* since when the provider fails to send it; 0: it does not */
};

/* ---- payloads that are not copied ---- */
enum tutti_ofi_stage {
    TUTTI_OFI_FREE,
    TUTTI_OFI_WAITS, /* out: for GO. in: to be posted or exposed */
    TUTTI_OFI_GOES,  /* out: to be posted */
    TUTTI_OFI_FLIES, /* the provider, or the peer, may touch the memory */
    TUTTI_OFI_ENDED, /* its token is to be told */
};
struct tutti_ofi_large {
    struct tutti_ofi_op op; /* first */
    struct tutti_ofi_large *next_over;
    enum tutti_ofi_stage stage;
    enum tutti_status status; /* ENDED */
    bool told;                /* in: GO is out */
    bool silent;              /* its token was taken back, or there is none */
    bool slab;                /* through the peer's own memory */
    bool whole;               /* in: comes as an arrival */
    bool confirms;            /* put: reads from there, so that its bytes are */
    bool again;               /* in: when the provider gives it back, it is received elsewhere */
    uint8_t rail;
    uint32_t number; /* the announcing frame's */
    uint32_t n_uses; /* uses of this slot: a part of its ticket */
    uint64_t token, bytes;
    uint64_t tag, ticket, address, key; /* tag: of a tagged receive; the others: of memory to write to, or read */
    enum tutti_maker maker;             /* a put or get: whose memory it is */
    int32_t device;
    struct tutti_packet packet; /* in */
    uint32_t n;
    struct iovec parts[TUTTI_SPANS_MAX];
    void *copy; /* for memory that was taken back */
    struct tutti_ofi_memory memory[TUTTI_OFI_PARTS];
};

struct tutti_ofi_peer {
    struct tutti_ofi_peer *next, *next_ready, *next_waits;
    uint32_t member;
    bool ready, waits;        /* stands in the list: has something to give out, to submit */
    bool ending, ended, over; /* over: ended, and none of its payloads is with the provider any more */
    bool blocked;             /* a whole payload comes before any other packet */
    bool wants_room;
    enum tutti_status status; /* why it ends */
    int fd;                   /* -1: not met yet, or over */
    bool met;                 /* its addresses are known */
    uint32_t n_rails;
    fi_addr_t addresses[TUTTI_OFI_RAILS];
    uint64_t secret_in, secret_out; /* what its frames bear, and ours to it */
    uint64_t until_ns;              /* ending: no later */
    bool leaves;                    /* it said goodbye, and how many frames it sent in all */
    bool farewell;                  /* it has everything that we sent it */
    bool told_farewell;             /* ... and was told so of what it sent */
    uint32_t leaves_at, came;       /* came: frames from the first one on */
    uint8_t said[TUTTI_OFI_HELLO];  /* what came over the socket, not used yet */
    uint32_t n_said;
    /* out */
    uint32_t filled, submitted, acked; /* frames, counted */
    struct tutti_ofi_tx *window[TUTTI_OFI_WINDOW], *free, *free_control, *failed;
    struct tutti_ofi_tx tx[TUTTI_OFI_WINDOW + 2], control[TUTTI_OFI_CONTROLS];
    struct tutti_ofi_large lent[TUTTI_OFI_LENT], *out, *in, *accesses; /* these three are in it */
    uint8_t *out_slab;
    bool out_slab_used;
    /* in */
    uint32_t taken, used, told; /* frames: given out, given back, and told so */
    struct tutti_ofi_rx *slots[TUTTI_OFI_CREDITS];
    uint8_t *in_slab;
    bool in_slab_used;
    struct tutti_ofi_rx rx[TUTTI_OFI_RECEIVES];
    struct tutti_ofi_memory memory; /* all buffers */
    uint8_t *scratch;               /* in them: a byte for each put, of no meaning */
    size_t mapped;
};

struct tutti_ofi_member {
    struct tutti_ofi_peer *peer; /* NULL: nothing was sent, nobody came */
    enum tutti_status status;    /* why it can not be reached */
    bool dialed;
};

struct tutti_ofi {
    struct tutti_transport base; /* first */
    struct tutti_dialer *dialer;
    struct tutti_ofi_rail rails[TUTTI_OFI_RAILS];
    uint32_t n_rails;
    bool open;   /* the endpoints are */
    bool writes; /* large payloads are written into exposed memory, else sent to a tagged receive */
    bool ticket_wide;
    bool delivers; /* a put can be asked to end when its bytes are there */
    size_t frame_bytes;
    uint64_t next_tag;
    uint32_t next_rail;
    struct tutti_ofi_rx *unposted;
    struct tutti_notices notices;
    struct tutti_ofi_member *members;
    struct tutti_ofi_peer *peers, *self;
    struct tutti_ofi_peer *first_ready, *last_ready; /* have something to give out */
    struct tutti_ofi_peer *waiting;                  /* have something to submit */
    struct tutti_ofi_large *first_over, *last_over;  /* have a token to tell */
    struct tutti_ofi_peer *given;                    /* the peer whose event is unanswered */
    struct tutti_ofi_rx *given_rx;
    struct tutti_ofi_large *given_large;
    uint32_t n_polls;       /* since epoll was asked */
    uint32_t n_flying;      /* sends that the provider has */
    uint32_t n_ending;      /* peers that end, until they are over */
    uint64_t retry_ns;      /* failed frames are sent again then; 0: there are none */
    uint32_t nonsense;      /* the member that is to be told of next; NOBODY */
    bool room;              /* there is some where a send found none */
    bool strangers, errors; /* one was told of */
};
static inline struct tutti_ofi *tutti_ofi_of(struct tutti_transport *t)
{
    return (struct tutti_ofi *)(void *)t;
}

/* ---- provider.c: the library ---- */
struct tutti_ofi_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int error);
    uint32_t (*version)(void);
};
const struct tutti_ofi_library *tutti_ofi_library(void); /* NULL: there is none, and the thread's error says why */
const char *tutti_ofi_says(ssize_t error);               /* FI_E..., either sign */

/* ---- provider.c ---- */
/* One info for each rail, to be freed by the caller; *n of them. UNSUPPORTED, ARGUMENT. */
enum tutti_status tutti_ofi_choose(const struct tutti_ofi_config *config, struct fi_info *infos[TUTTI_OFI_RAILS],
                                   uint32_t *n);
/* Whether it can tell of a write when its bytes are there. */
bool tutti_ofi_delivers(const struct fi_info *info);

/* ---- rail.c ---- */
enum tutti_status tutti_ofi_rail_open(struct tutti_ofi_rail *rail, int epoll, bool registers);
void tutti_ofi_rail_close(struct tutti_ofi_rail *rail);
/* The next completion. False: there is none now. */
bool tutti_ofi_rail_read(struct tutti_ofi_rail *rail, struct tutti_ofi_completion *out);
/* False: something is there already. */
bool tutti_ofi_rail_may_sleep(struct tutti_ofi_rail *rail);
/* Registers memory for what this member does with it, where that is needed. AGAIN: not now. */
enum tutti_status tutti_ofi_register(struct tutti_ofi_rail *rail, const struct tutti_range *memory,
                                     struct tutti_ofi_memory *out);
/* ... and for a peer, which writes to it, or reads it, by *address and *key. */
enum tutti_status tutti_ofi_expose(struct tutti_ofi_rail *rail, const struct tutti_range *memory, bool reads,
                                   struct tutti_ofi_memory *out, uint64_t *address, uint64_t *key);
void tutti_ofi_unregister(struct tutti_ofi_memory *memory);

/* ---- peer.c ---- */
enum tutti_status tutti_ofi_peer_make(struct tutti_ofi *ofi, uint32_t member, struct tutti_ofi_peer **out);
void tutti_ofi_peer_free(struct tutti_ofi_peer *peer);
void tutti_ofi_peer_ready(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);
struct tutti_ofi_peer *tutti_ofi_ready_take(struct tutti_ofi *ofi);
void tutti_ofi_peer_waits(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);
void tutti_ofi_room(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);
/* It ends with the status when everything that it sent before was given out, or soon. */
void tutti_ofi_peer_ends(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, enum tutti_status status);
/* ... since it sent what can not be: at once. */
void tutti_ofi_nonsense(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const char *what);
/* Posts a buffer for frames of anybody. */
void tutti_ofi_post(struct tutti_ofi *ofi, struct tutti_ofi_rx *rx);

/* ---- frame.c ---- */
bool tutti_ofi_has_room(const struct tutti_ofi *ofi, const struct tutti_ofi_peer *peer);
/* Queues a frame with a packet; outside: its payload goes another way, else the spans are copied. */
void tutti_ofi_frame_add(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const struct tutti_packet *packet,
                         const struct tutti_span *spans, uint32_t n_spans, bool outside);
/* False: something is left for later. */
bool tutti_ofi_frames_submit(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);
bool tutti_ofi_go_tell(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const struct tutti_ofi_large *in);
void tutti_ofi_frame_sent(struct tutti_ofi *ofi, struct tutti_ofi_tx *tx, int error);
/* What a GO says. */
struct tutti_ofi_go {
    uint32_t number;
    uint8_t rail;
    uint64_t word, address, ticket;
};
/* True: it is a GO, and *go says which. */
bool tutti_ofi_frame_came(struct tutti_ofi *ofi, struct tutti_ofi_rx *rx, size_t bytes, struct tutti_ofi_peer **from,
                          struct tutti_ofi_go *go);
void tutti_ofi_frame_used(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_rx *rx);
/* The next packet of a peer and its buffer; *outside: its payload is not there. AGAIN: none. */
enum tutti_status tutti_ofi_frame_next(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_packet *packet,
                                       struct tutti_ofi_rx **rx, bool *outside);
void tutti_ofi_frame_take(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);

/* ---- large.c ---- */
struct tutti_ofi_large *tutti_ofi_large_free(struct tutti_ofi_large *first, uint32_t n); /* NULL: none is */
/* AGAIN: no room. */
enum tutti_status tutti_ofi_large_add(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer,
                                      const struct tutti_packet *packet, const struct tutti_span *spans, uint32_t n,
                                      uint64_t token);
/* False: that can not be. */
bool tutti_ofi_large_go(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const struct tutti_ofi_go *go);
void tutti_ofi_large_place(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_large *in,
                           const struct tutti_target *targets, uint32_t n, uint64_t token);
/* False: something is left for later. */
bool tutti_ofi_large_submit(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);
/* The peer wrote with this ticket. */
void tutti_ofi_large_written(struct tutti_ofi *ofi, uint64_t ticket);
void tutti_ofi_large_done(struct tutti_ofi *ofi, struct tutti_ofi_large *large, enum tutti_status status);
/* Its slot, and its slab, are free again. */
void tutti_ofi_large_over(struct tutti_ofi *ofi, struct tutti_ofi_large *large);
bool tutti_ofi_large_tell(struct tutti_ofi *ofi, struct tutti_event *out);
/* It goes on from or into memory of its own. False: there is none. */
bool tutti_ofi_large_own(struct tutti_ofi_large *large);
/* The provider gave a receive back that was cancelled. True: it is posted again, elsewhere. */
bool tutti_ofi_large_again(struct tutti_ofi *ofi, struct tutti_ofi_large *large);
/* Memory that the peer was told of is not its any more, if the network card sees to it; else false. */
bool tutti_ofi_large_revoke(struct tutti_ofi *ofi, struct tutti_ofi_large *large);

/* Hands a put or get to the provider, or leaves it to submit. */
void tutti_ofi_large_start(struct tutti_ofi *ofi, struct tutti_ofi_large *access);
/* The bytes of a put were sent; it goes on until they are there. False: they are. */
bool tutti_ofi_large_confirm(struct tutti_ofi *ofi, struct tutti_ofi_large *access);
/* Whether it is the provider, or the peer, that writes to the memory. */
static inline bool tutti_ofi_fills(const struct tutti_ofi_large *large)
{
    return large->op.kind == TUTTI_OFI_LARGE_IN || large->op.kind == TUTTI_OFI_GET;
}

/* ---- access.c: the calls of the contract ---- */
bool tutti_ofi_direct(struct tutti_transport *t, uint32_t member);
enum tutti_status tutti_ofi_reg(struct tutti_transport *t, const struct tutti_range *memory, struct tutti_key *key,
                                void **registration);
void tutti_ofi_unreg(struct tutti_transport *t, void *registration);
enum tutti_status tutti_ofi_put(struct tutti_transport *t, uint32_t member, const struct tutti_key *key,
                                uint64_t offset, const struct tutti_range *from, uint64_t token);
enum tutti_status tutti_ofi_get(struct tutti_transport *t, uint32_t member, const struct tutti_key *key,
                                uint64_t offset, const struct tutti_range *to, uint64_t token);

/* ---- meet.c ---- */
void tutti_ofi_peer_end(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, enum tutti_status status);
void tutti_ofi_sockets(struct tutti_ofi *ofi); /* what sockets say */
void tutti_ofi_endings(struct tutti_ofi *ofi); /* what is due of peers that end */
void tutti_ofi_news(struct tutti_ofi *ofi);
void tutti_ofi_goodbye(struct tutti_ofi_peer *peer);
/* The endpoints end with everything on them: so memory is taken back that the provider would not give back. */
void tutti_ofi_break(struct tutti_ofi *ofi, const char *why);

/* ---- turn.c ---- */
/* Reads what is complete, and submits what waits. */
void tutti_ofi_progress(struct tutti_ofi *ofi);
enum tutti_status tutti_ofi_poll(struct tutti_transport *t, struct tutti_event *out);
bool tutti_ofi_holds(struct tutti_transport *t, uint32_t peer);
bool tutti_ofi_owes(struct tutti_transport *t);
bool tutti_ofi_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources);
void tutti_ofi_sleep_end(struct tutti_transport *t);

#endif
