/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MEET_MACHINE_H
#define TUTTI_CONTROL_MEET_MACHINE_H

/* How ranks meet, as two state machines without sockets, threads or clocks: events and the time go in, messages come
 * out through struct tutti_meeting_out. What drives them, the edge, is in control/meet; the tests drive thousands of
 * meetings in a simulation.
 *
 *     member                      leader
 *     HELLO  who I am, nonce   ->
 *                              <- CHALLENGE  who I am, nonce; signed
 *     PROOF  signed            ->
 *                              <- VERDICT    status and sentence; when OK with the memory, or, when they are on
 *                                            several hosts, with the table of who is where, and its digest
 *     ACK    has it, or not    ->
 *
 * A member whose deadline passes sends ASK and gets a verdict that names the missing. Without a secret nothing is
 * signed, and what the edge knows of the peer (its uid) is all there is. A connection that ends without a verdict
 * means: the leader is gone, elect again. Who had come and went is awaited for a moment more, for it may be started
 * again; then the meeting fails with PEER_DEAD. The next leader hears of a leader that went in the HELLO of its
 * members.
 *
 * Members of other hosts are members like any: HELLO says which host, PROOF carries what a member says of itself (its
 * card, which only the edge reads), and the edge makes a table of all cards, which goes to all. It may go through
 * others (control/meet/relay.c): what a member takes has the digest that its leader signed. An edge that can not
 * connect other hosts says so (reaches_hosts), and then they are refused with a sentence.
 *
 * Thread: one at a time. Ownership: bytes belong to the caller. To begin with: leader.c. */

#include "control/meet/codec.h"

#define TUTTI_MEETING_CARD 512
#define TUTTI_MEETING_TABLE_MAX ((uint32_t)64 << 20)

/* This rank's identity, and what it brings. */
struct tutti_meeting_self {
    int32_t rank, n_ranks, pid;
    const char *secret;        /* NULL: none */
    const char *version;       /* this build's, for sentences */
    uint64_t build, host;      /* build must be equal */
    bool reaches_hosts;        /* leader: members of other hosts can be connected */
    const char *alone_because; /* ... if not, why, as the end of a sentence; NULL: it was not asked for */
    const uint8_t *card;       /* what the others shall know; borrowed */
    size_t n_card;             /* at most TUTTI_MEETING_CARD */
    uint64_t started_ns, deadline_ns;
    struct tutti_meeting_loss lost; /* the leader that went after this rank had come to it */
};
/* What the edge does for a machine. A leader has many links, numbered by the edge; a member's is 0. */
struct tutti_meeting_out {
    void *arg;
    /* memory: the memory of the meeting goes along. A link that is gone is told by `closed`, not here. */
    void (*send)(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory);
    void (*drop)(void *arg, uint32_t link);  /* the machine has done with it */
    bool (*ended)(void *arg, uint32_t link); /* whether the peer has closed it, though that was not told yet */
    enum tutti_status (*random)(void *arg, void *out, size_t n);
    uint64_t (*started)(void *arg, int32_t pid); /* when this process of this host started, 0: not known */
    bool (*alive)(void *arg, int32_t pid, uint64_t start);
};

/* ---- leader.c ---- */
enum tutti_leader_phase {
    TUTTI_LEADER_GATHERS, /* until all have come, or it has failed */
    TUTTI_LEADER_DECIDED, /* verdict holds; nobody has heard it: the edge makes the memory, then calls tell */
    TUTTI_LEADER_TELLS,   /* waits until all have the memory */
    TUTTI_LEADER_OVER,
};
enum tutti_link_state {
    TUTTI_LINK_FREE,
    TUTTI_LINK_FRESH,
    TUTTI_LINK_CHALLENGED,
    TUTTI_LINK_SEATED,
    TUTTI_LINK_TOLD, /* has the verdict, its ACK is awaited */
};
struct tutti_newcomer { /* what HELLO says */
    int32_t rank, n_ranks;
    uint64_t host;
    struct tutti_meeting_loss lost;
};
struct tutti_meeting_link {
    enum tutti_link_state state;
    bool astray;       /* the relay that passed on its messages went, and not it */
    bool hidden;       /* the kernel does not show its process here: it is in another namespace of processes */
    int32_t pid, rank; /* rank: -1 before it has a seat */
    char from[48];     /* the address of a peer of another host, for sentences; "": it is of this one */
    uint64_t until_ns; /* to be seated by then; told and gone: when its process is asked about */
    struct tutti_session session;
    struct tutti_newcomer who; /* from CHALLENGED on */
};
struct tutti_meeting_seat {
    bool taken;
    bool hidden;  /* as of its link */
    int32_t link; /* -1: the leader itself */
    int32_t pid;
    uint64_t host;
    uint16_t n_card;
    uint8_t card[TUTTI_MEETING_CARD];
    struct tutti_meeting_loss lost; /* the process that had the seat and went */
};
struct tutti_meeting_leader {
    struct tutti_meeting_self self;
    struct tutti_meeting_out out;
    enum tutti_leader_phase phase;
    struct tutti_meeting_seat *seats; /* n_ranks */
    struct tutti_meeting_link *links; /* max_links */
    uint32_t max_links, n_seated, n_lost, n_untold;
    struct tutti_error verdict; /* status OK: all have come */
    uint64_t looked_ns;         /* when all links were looked at last */
    bool told;                  /* the others hear a failure; else they elect again */
    int32_t culprit;            /* the rank that made it fail after the verdict */
    char refusal[200];          /* the last one, for the sentence of a timeout */
    uint64_t logged_ns;         /* when the log was told last of one */
    uint32_t n_unlogged;
    uint64_t missed_ns; /* when the log is told next who is missing */
};
enum tutti_status tutti_leader_init(struct tutti_meeting_leader *leader, const struct tutti_meeting_self *self,
                                    const struct tutti_meeting_out *out, uint32_t max_links, uint64_t now);
void tutti_leader_fini(struct tutti_meeting_leader *leader);
/* A peer came on a free link; pid: its process as the edge knows it. */
void tutti_leader_opened(struct tutti_meeting_leader *leader, uint32_t link, int32_t pid, uint64_t now);
/* Called after tutti_leader_opened for a peer of another host: its address, for the log and for sentences. */
void tutti_leader_from(struct tutti_meeting_leader *leader, uint32_t link, const char *address);
void tutti_leader_received(struct tutti_meeting_leader *leader, uint32_t link, const uint8_t *bytes, size_t n,
                           uint64_t now);
void tutti_leader_closed(struct tutti_meeting_leader *leader, uint32_t link, uint64_t now);
/* The relay that passed on its messages is gone: it lives, for all that is known, and comes again. */
void tutti_leader_astray(struct tutti_meeting_leader *leader, uint32_t link, uint64_t now);
void tutti_leader_tick(struct tutti_meeting_leader *leader, uint64_t now);
/* The thread's record ends the meeting: the others hear it, or elect again. */
void tutti_leader_fail(struct tutti_meeting_leader *leader, bool told);
/* A rank that is another process than the leader's, -1: there is none. */
int32_t tutti_leader_elsewhere(const struct tutti_meeting_leader *leader);
/* What all hear: the memory of this host goes along, or a table. */
struct tutti_meeting_grant {
    bool shared;                      /* the memory is for several processes */
    uint64_t world;                   /* equal on all members, random */
    uint32_t n_table;                 /* its bytes; 0: no table, all are of this host */
    uint8_t digest[TUTTI_HMAC_BYTES]; /* the table's */
};
/* After DECIDED: everybody hears the verdict. */
void tutti_leader_tell(struct tutti_meeting_leader *leader, const struct tutti_meeting_grant *grant);

/* ---- member.c ---- */
enum tutti_member_phase {
    TUTTI_MEMBER_GREETS,  /* until the leader's CHALLENGE */
    TUTTI_MEMBER_WAITS,   /* for the verdict */
    TUTTI_MEMBER_ASKED,   /* its time is over, it asked who is missing */
    TUTTI_MEMBER_GRANTED, /* the memory or the table came: the edge takes it and calls mapped */
    TUTTI_MEMBER_OVER,    /* error.status: OK, AGAIN (the leader is gone: elect again), or why not */
};
struct tutti_meeting_member {
    struct tutti_meeting_self self;
    struct tutti_meeting_out out;
    enum tutti_member_phase phase;
    struct tutti_session session;
    struct tutti_error error;
    uint64_t until_ns;
    struct tutti_meeting_loss leader; /* the leading process, once it is known: pid 0 before */
    bool shared;
    uint64_t world;
    uint32_t n_table; /* bytes of the table that comes along, 0: the segment */
    uint8_t digest[TUTTI_HMAC_BYTES];
};
void tutti_member_begin(struct tutti_meeting_member *member, const struct tutti_meeting_self *self,
                        const struct tutti_meeting_out *out);
void tutti_member_received(struct tutti_meeting_member *member, const uint8_t *bytes, size_t n);
void tutti_member_closed(struct tutti_meeting_member *member);
void tutti_member_tick(struct tutti_meeting_member *member, uint64_t now);
/* After GRANTED; status < 0: the thread's record says why not. */
void tutti_member_mapped(struct tutti_meeting_member *member, enum tutti_status status);
/* Whether these bytes, from whomever, are the table of the verdict. PROTOCOL. */
enum tutti_status tutti_member_table_check(const struct tutti_meeting_member *member, const uint8_t *bytes, size_t n);

/* ---- what both say (codec.c) ---- */
/* Signs a table: nobody without the secret can make another that has it. */
enum tutti_status tutti_meeting_digest(const struct tutti_meeting_self *self, uint64_t world, const uint8_t *bytes,
                                       size_t n, uint8_t out[TUTTI_HMAC_BYTES]);
void tutti_meeting_fill(const struct tutti_meeting_self *self, enum tutti_meeting_type type,
                        struct tutti_meeting_message *out);
/* Decodes and checks that it is of this build, and signed as it must be. CONFIG, PROTOCOL, AUTH. */
enum tutti_status tutti_meeting_read(const struct tutti_meeting_self *self, struct tutti_session *session,
                                     const uint8_t *bytes, size_t n, struct tutti_meeting_message *out);
/* The error of a death, with its sentence and its peer. */
enum tutti_status tutti_meeting_fail_dead(int32_t rank, int32_t pid);
/* "rank 3", "ranks 3, 5 and 6", "ranks 0, 1, 2, ... and 991 more" of those who are not here. Returns how many. */
uint32_t tutti_meeting_missing_text(uint32_t n, bool (*here)(const void *arg, uint32_t rank), const void *arg,
                                    char *out, size_t capacity);
/* The time that a rank gives the others, in ms, rounded: part of it is gone before the meeting starts. */
unsigned long long tutti_meeting_patience_ms(uint64_t started_ns, uint64_t deadline_ns);

#endif
