/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MEET_DOOR_H
#define TUTTI_CONTROL_MEET_DOOR_H

/* The ranks that come to the leader of a meeting, or to a relay. One rank of each host, its relay, goes to the network;
 * the others of the host come to it by its Unix socket, or with tickets. Relays form a tree of fan-out 32, whose root
 * is the leader, and pass on what the members of their hosts and of those below them say to the leader, and back:
 *
 *     member --Unix--> relay --TCP--> relay --TCP--> leader <--Unix-- member
 *
 * So a rank has at most 32 connections and those of its host, also while a thousand hosts meet. What members and leader
 * say is signed from end to end with the job's secret: a relay can lose it, not change it. Where certificates take its
 * place each connection between hosts is TLS, whose ends have proved themselves before anything is passed on, and
 * relays are trusted as all members are. To the machine all are links (machine.h).
 *
 * A gate is a connection between two of them. Each frame is: bytes that follow u32, what u8, number u32, then
 *     up:    OPEN    a member comes; the address of its host (family u8, 16 bytes), family 0: that of this relay
 *            SAY     a frame of the meeting          CLOSED  it is gone; u8: 1 when a relay below went, and not it
 *     down:  SAY, GRANT (a verdict with which the table goes along), DROP (the leader has done with it)
 *            PROVED  it has its seat. Only then a relay opens others than itself
 *            TABLE   a part of the table of hosts, of `number` bytes
 * A relay counts the members that come to it from 1 on; number 0 is itself. All of it is checked. */

#include "control/meet/meeting.h"

struct pollfd;

#define DOOR_UNPROVED 64 /* connections beyond one a rank, and relays that are not proved */
#define DOOR_GATES 1024  /* relays: 32, and those whose own parents are gone */

enum gate_what { GATE_OPEN = 1, GATE_SAY, GATE_CLOSED, GATE_GRANT, GATE_DROP, GATE_PROVED, GATE_TABLE };
enum { GATE_HEAD = 9, GATE_ADDRESS = 17, GATE_FRAME_MAX = GATE_HEAD + TUTTI_MEETING_FRAME_MAX, GATE_BUFFER = 32 << 10 };
_Static_assert((int)GATE_BUFFER - (int)GATE_FRAME_MAX >= (int)TUTTI_TLS_RECORD, "a record fits behind a part");
_Static_assert((int)TUTTI_MEETING_FRAME_MAX > (int)GATE_ADDRESS, "all fit");

struct gate_frame {
    enum gate_what what;
    uint32_t number;
    const uint8_t *bytes; /* in the gate's buffer, or the sender's */
    size_t n;
};
/* Which end a number is. */
struct gate_numbers {
    uint32_t *ends; /* plus one; 0: none */
    uint32_t n, most;
};
struct gate {
    int fd;                /* -1: none */
    uint8_t *in, *out;     /* GATE_BUFFER each */
    uint32_t n_in, taken;  /* bytes that came; those of frames that were taken */
    uint32_t n_out;        /* bytes that wait for gate_flush */
    uint32_t n_reads;      /* since its turn began */
    bool is_over;          /* the peer is gone, or does not read */
    uint64_t until_ns;     /* to be proved by then */
    struct tutti_tls *tls; /* that carries it, NULL: nothing does */
    bool agreed;           /* its ends have proved themselves */
    bool proved, opened, has_table;
    struct gate_numbers numbers;
    struct tutti_net_address far;
};

struct door;
struct end { /* one end of a link */
    struct door *door;
    uint32_t link;
    int fd;                      /* a Unix socket; -1: none */
    struct tutti_ticket *ticket; /* NULL: none */
    struct gate *gate;           /* NULL: none */
    uint32_t number;             /* at the gate */
    uint32_t up;                 /* what a relay is called upwards */
    struct tutti_net_address address;
};
struct door_ops {
    void (*opened)(void *arg, struct end *end, int32_t pid);
    void (*received)(void *arg, struct end *end, const uint8_t *bytes, size_t n);
    void (*closed)(void *arg, struct end *end, bool astray);
    void (*full)(void *arg); /* there are no descriptors for more; errno says which */
};
struct door {
    struct tutti_meeting *meeting;
    const struct door_ops *ops;
    void *arg;
    bool open;               /* for newcomers */
    struct end *ends;        /* n_ends, by link */
    uint32_t *vacant, *here; /* links that were used and are free; links of this host */
    uint32_t n_ends, n_used, n_vacant, n_here;
    struct gate *gates[DOOR_GATES];
    uint32_t n_gates;
    struct pollfd *polls;
    uint32_t *polled;                   /* the ends of polls */
    struct tutti_meeting_result result; /* what goes along: the segment, or */
    int table_fd, rows_fd;              /* the table, as it came and as rows, -1: none */
    struct tutti_error verdict;         /* for tickets that are withdrawn */
    struct tutti_net_address address;   /* this host's, as relays see it; family 0: none came */
    uint64_t logged_ns;                 /* when the log was told last of a gate that was refused */
    uint32_t n_unlogged;
};

/* ---- ends of links ---- */
struct end *door_end_take(struct door *door); /* for a newcomer; NULL: there is no room */
void door_end_free(struct end *end);

/* ---- gate.c: one connection ---- */
/* Takes over fd and tls (NULL: none), also when it fails. */
enum tutti_status gate_open(struct gate *gate, int fd, struct tutti_tls *tls, uint32_t n_numbers);
void gate_close(struct gate *gate);
/* A frame leaves with the next flush: whoever sends flushes before it waits. That the peer is gone is told by recv. */
void gate_send(struct gate *gate, enum gate_what what, uint32_t number, const void *bytes, size_t n);
void gate_flush(struct gate *gate);
/* One frame, valid until the next, or PENDING. AGAIN: the other end is gone, or sent what can not be. */
enum tutti_status gate_recv(struct gate *gate, struct gate_frame *out);
bool gate_number_set(struct gate *gate, uint32_t number, uint32_t link); /* false: it can not be, or no memory */
uint32_t gate_number_find(const struct gate *gate, uint32_t number);     /* the link; UINT32_MAX: none */
void gate_number_forget(struct gate *gate, uint32_t number);
void gate_table_send(struct gate *gate, const uint8_t *bytes, uint32_t n);

/* ---- those that come to a door ---- */
void gate_accept(struct door *door);
void gate_serve(struct door *door, struct gate *gate);                   /* what came on it */
void gate_lost(struct door *door, struct gate *gate);                    /* all behind it go */
void gate_refuse(struct door *door, struct gate *gate, const char *why); /* ... and the log is told, once a second */

/* ---- door.c ---- */
enum tutti_status door_open(struct door *door, struct tutti_meeting *meeting, const struct door_ops *ops, void *arg);
void door_close(struct door *door); /* a rank that is still there finds its connection ended */
/* Flushes all gates, then waits for whatever comes, at most rest_ns. extra (may be NULL): one more to wait for. */
void door_step(struct door *door, uint64_t rest_ns, struct pollfd *extra);
void door_tickets_serve(struct door *door);
/* grant: memory goes along. Who is gone is told by `closed`. */
void door_say(struct door *door, uint32_t link, const uint8_t *bytes, size_t n, bool grant);
void door_drop(struct door *door, uint32_t link);        /* the link ends; `closed` is not called */
bool door_ended(const struct door *door, uint32_t link); /* whether the peer has closed it, though that was not told */
/* From now on the table goes along; takes over the descriptor. */
enum tutti_status door_table_set(struct door *door, int fd);
/* Maps both for a rank of this process, and checks the table. */
enum tutti_status door_table_map(const struct door *door, const struct tutti_meeting_member *member,
                                 struct tutti_meeting_result *out);

#endif
