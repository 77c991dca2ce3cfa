/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_OFI_STATE_H
#define TUTTI_TRANSPORT_OFI_STATE_H

/* What the files of this room share. library.c: libfabric, opened at run time. endpoint.c: the provider, its endpoint,
 * registered memory, completions. frame.c: frames out and in, credits. large.c: payloads that are not copied. peer.c:
 * sockets, and how peers come and end. ofi.c: the calls of the contract. All is the owner's but what the lock guards,
 * and the atomics.
 *
 * A frame is what travels in posted buffers: a head of this room, the packet's head (packet.h), a payload of at most
 * t->copied bytes. Frames with a packet are numbered, and a provider may complete them in any order: the receiver sorts
 * them. It posts CREDITS buffers for them, which is the window of the sender, and some for control frames, whose number
 * is bounded by what they answer. */

#include "transport/ofi/ofi.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdatomic.h>
#include <sys/uio.h>

#define TUTTI_OFI_PAYLOAD ((size_t)1 << 20)
#define TUTTI_OFI_HEAD 112u                       /* of a frame: 32 bytes of this room, and the packet's head */
#define TUTTI_OFI_COPIED ((size_t)64 << 10)       /* where memory need not be registered */
#define TUTTI_OFI_COPIED_LOCAL ((size_t)16 << 10) /* where it must be: buffers are pinned */
#define TUTTI_OFI_CREDITS 12u                     /* frames under way to a peer */
#define TUTTI_OFI_WINDOW 64u                      /* ... and queued for it */
#define TUTTI_OFI_LARGE 4u                        /* large packets under way to a peer */
#define TUTTI_OFI_CONTROLS (TUTTI_OFI_LARGE + 4u) /* a GO for each large packet; credits come by the half window */
#define TUTTI_OFI_RECEIVES (TUTTI_OFI_CREDITS + TUTTI_OFI_CONTROLS)
#define TUTTI_OFI_HELLO 192u
#define TUTTI_OFI_GOODBYE 16u
#define TUTTI_OFI_NOBODY UINT32_MAX

struct tutti_ofi_peer;

/* ---- operations of libfabric: the context of each one ---- */
enum tutti_ofi_kind { TUTTI_OFI_RECEIVE, TUTTI_OFI_FRAME, TUTTI_OFI_CONTROL, TUTTI_OFI_LARGE_OUT, TUTTI_OFI_LARGE_IN };
struct tutti_ofi_op {
    struct fi_context2 context; /* first: the provider's */
    enum tutti_ofi_kind kind;
    struct tutti_ofi_peer *peer; /* NULL: a RECEIVE, which is for all */
};
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
};

/* ---- payloads that are not copied ---- */
enum tutti_ofi_stage {
    TUTTI_OFI_FREE,
    TUTTI_OFI_WAITS, /* out: for GO. in: to be posted, and GO to be told */
    TUTTI_OFI_GOES,  /* out: to be posted */
    TUTTI_OFI_FLIES, /* the provider has it */
    TUTTI_OFI_ENDED, /* its token is to be told */
};
struct tutti_ofi_large {
    struct tutti_ofi_op op; /* first */
    enum tutti_ofi_stage stage;
    enum tutti_status status; /* ENDED */
    bool told;                /* in: GO is out */
    bool silent;              /* its token was taken back, or there is none */
    bool slab;                /* through the peer's own memory */
    bool whole;               /* in: comes as an arrival */
    bool again;               /* in: when the provider gives it back, it is received elsewhere */
    uint32_t id;              /* of the sender */
    uint64_t tag, token, bytes;
    struct tutti_packet packet; /* in */
    uint32_t n;
    struct iovec parts[TUTTI_SPANS_MAX];
    void *copy; /* out: of memory that was taken back */
    struct fid_mr *mr[8];
    void *desc[8];
};

struct tutti_ofi_peer {
    struct tutti_ofi_peer *next, *next_ready;
    uint32_t member;
    bool ready, ending, ended, blocked; /* blocked: a whole payload comes before any other packet */
    bool over;                          /* some token is to be told */
    bool wants_room;
    enum tutti_status status; /* why it ends */
    int fd;                   /* -1: not met yet, or over */
    bool met;                 /* its address is known */
    fi_addr_t address;
    uint64_t secret_in, secret_out; /* what its frames bear, and ours to it */
    uint64_t until_ns;              /* ending: no later */
    uint64_t leaves_at;             /* frames it has sent in all; UINT64_MAX: it did not say goodbye */
    uint8_t told[TUTTI_OFI_HELLO];  /* what came over the socket, not used yet */
    uint32_t n_told;
    /* out */
    uint32_t filled, submitted, acked; /* frames, counted */
    uint32_t large_id;
    struct tutti_ofi_tx *window[TUTTI_OFI_WINDOW], *free, *free_control;
    struct tutti_ofi_tx tx[TUTTI_OFI_WINDOW + 2], control[TUTTI_OFI_CONTROLS];
    uint8_t controls[TUTTI_OFI_CONTROLS][32];
    struct tutti_ofi_large out[TUTTI_OFI_LARGE];
    uint8_t *out_slab;
    bool out_slab_used;
    /* in */
    uint32_t taken, owed; /* frames given out; credits to give back */
    struct tutti_ofi_rx *slots[TUTTI_OFI_CREDITS];
    struct tutti_ofi_large in[TUTTI_OFI_LARGE];
    uint8_t *in_slab;
    bool in_slab_used;
    struct tutti_ofi_rx rx[TUTTI_OFI_RECEIVES];
    struct fid_mr *mr; /* of all buffers of the peer */
    size_t mapped;
};

struct tutti_ofi_member {
    struct tutti_ofi_peer *peer; /* NULL: nothing was sent, nobody came */
    enum tutti_status status;    /* why it can not be reached */
    bool dialed;
    _Atomic bool cut;
    /* with the lock: what the dialer says */
    bool told;
    enum tutti_status told_status;
    int told_fd; /* plus one */
    uint32_t next_told;
};

struct tutti_ofi {
    struct tutti_transport base; /* first */
    struct tutti_dialer *dialer;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    bool local; /* memory must be registered */
    int cq_fd;  /* -1: the provider has none */
    uint8_t name[128];
    size_t name_bytes, frame_bytes;
    uint64_t next_tag, next_key; /* key: of registered memory, where the provider does not choose it */
    struct tutti_ofi_rx *unposted;
    int epoll, event;
    struct tutti_ofi_member *members;
    struct tutti_ofi_peer *peers, *first_ready, *last_ready, *self;
    struct tutti_ofi_peer *given; /* whose event is unanswered */
    struct tutti_ofi_rx *given_rx;
    struct tutti_ofi_large *given_large;
    uint32_t n_polls;  /* since epoll was asked */
    uint32_t n_flying; /* sends that the provider has */
    uint32_t n_over;   /* tokens to be told */
    uint32_t n_ending; /* peers */
    bool waits;        /* something is to be submitted */
    bool room;
    bool strangers; /* one was told of */
    pthread_mutex_t lock;
    uint32_t first_told;
    _Atomic bool news, woken, sleeping;
};
static inline struct tutti_ofi *tutti_ofi_of(struct tutti_transport *t)
{
    return (struct tutti_ofi *)(void *)t;
}

/* ---- library.c ---- */
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

/* ---- endpoint.c ---- */
enum tutti_status tutti_ofi_endpoint_open(struct tutti_ofi *ofi, const struct tutti_ofi_config *config);
void tutti_ofi_endpoint_close(struct tutti_ofi *ofi);
/* Registers memory where that is needed. AGAIN: not now. */
enum tutti_status tutti_ofi_register(struct tutti_ofi *ofi, void *base, size_t bytes, struct fid_mr **mr, void **desc);
/* Reads what is complete, and submits what waits. */
void tutti_ofi_progress(struct tutti_ofi *ofi);
/* The endpoint ends with everything on it: so memory is taken back that the provider would not give back. */
void tutti_ofi_break(struct tutti_ofi *ofi, const char *why);

/* ---- frame.c ---- */
bool tutti_ofi_has_room(const struct tutti_ofi_peer *peer);
/* Queues a frame with a packet; large: the id of its payload, else the spans are copied. */
void tutti_ofi_frame_add(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const struct tutti_packet *packet,
                         const struct tutti_span *spans, uint32_t n_spans, const struct tutti_ofi_large *large);
void tutti_ofi_frames_submit(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);
void tutti_ofi_frame_sent(struct tutti_ofi *ofi, struct tutti_ofi_tx *tx);
void tutti_ofi_frame_came(struct tutti_ofi *ofi, struct tutti_ofi_rx *rx, size_t bytes);
void tutti_ofi_post(struct tutti_ofi *ofi, struct tutti_ofi_rx *rx);
void tutti_ofi_frame_used(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_rx *rx);
/* The next event of a peer. AGAIN: none. */
enum tutti_status tutti_ofi_deliver(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_event *out);
bool tutti_ofi_go_tell(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_large *in);

/* ---- large.c ---- */
struct tutti_ofi_large *tutti_ofi_large_free(struct tutti_ofi_large larges[TUTTI_OFI_LARGE]);
/* AGAIN: no room. */
enum tutti_status tutti_ofi_large_add(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer,
                                      const struct tutti_packet *packet, const struct tutti_span *spans, uint32_t n,
                                      uint64_t token);
bool tutti_ofi_large_go(struct tutti_ofi_peer *peer, uint32_t id, uint64_t tag);
void tutti_ofi_large_place(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_large *in,
                           const struct tutti_target *targets, uint32_t n, uint64_t token);
void tutti_ofi_large_submit(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);
void tutti_ofi_large_done(struct tutti_ofi *ofi, struct tutti_ofi_large *large, enum tutti_status status);
/* Its slot, and its slab, are free again. */
void tutti_ofi_large_over(struct tutti_ofi *ofi, struct tutti_ofi_large *large);
void tutti_ofi_large_cancel(struct tutti_ofi *ofi, uint64_t token);
bool tutti_ofi_large_tell(struct tutti_ofi *ofi, struct tutti_event *out);
/* The provider gave a receive back that was cancelled. True: it is posted again, elsewhere. */
bool tutti_ofi_large_again(struct tutti_ofi *ofi, struct tutti_ofi_large *large);

/* ---- peer.c ---- */
enum tutti_status tutti_ofi_peer_make(struct tutti_ofi *ofi, uint32_t member, struct tutti_ofi_peer **out);
void tutti_ofi_peer_free(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);
void tutti_ofi_peer_ready(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);
struct tutti_ofi_peer *tutti_ofi_ready_take(struct tutti_ofi *ofi);
/* It ends with the status when everything that it sent before was given out, or soon. */
void tutti_ofi_peer_ends(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, enum tutti_status status);
void tutti_ofi_peer_end(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, enum tutti_status status);
void tutti_ofi_sockets(struct tutti_ofi *ofi); /* what sockets say, and what is due */
void tutti_ofi_news(struct tutti_ofi *ofi);
void tutti_ofi_goodbye(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer);
void tutti_ofi_ring(struct tutti_ofi *ofi);
void tutti_ofi_cut(struct tutti_transport *t, uint32_t peer);
void tutti_ofi_wake(struct tutti_transport *t);

#endif
