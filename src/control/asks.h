/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_ASKS_H
#define TUTTI_CONTROL_ASKS_H

/* Questions of who is no member of a world (`tutti doctor`), by the memory that the members of a host share. Who can
 * map that memory may ask: the kernel lets only the same user open a process's descriptors, so there is no door that
 * would need a lock. Members of this host are read where they are, also when they are stopped or dead. What members of
 * other hosts are doing one of this host's is asked for: the asker writes (member, slot) into a row of that one, whose
 * network thread answers with what its control knows, ten times a second. One asks at a time.
 *
 *     tutti_host_control_observe(segment, &host);      of tutti_segment_look
 *     tutti_who_read(host, local, &who)               which member of which world that is
 *     tutti_asks_take(host, local)                    the rows of the member that is to answer
 *     tutti_asks_put(host, local, row, peer, slot);   ...
 *     tutti_asks_get(host, local, row, &answer)       true: answered
 *     tutti_asks_give(host, local);
 *
 * Everything that either side reads is checked: the other may have died while it wrote. */

#include "control/host.h"

#define TUTTI_ASKS_MOST 256
#define TUTTI_WHO_HOST 104   /* with an address, where several hosts have one name: TUTTI_HOST_TEXT */
#define TUTTI_WHO_ADDRESS 64 /* with a port */

struct tutti_ask_row {
    _Atomic uint32_t wanted, answered; /* equal: nothing is asked */
    _Atomic uint32_t member, slot;
    _Atomic uint64_t asked_ns;    /* what was shown before does not answer it */
    _Atomic uint32_t life, known; /* known: whether the board is */
    _Atomic uint64_t board[TUTTI_BOARD_WORDS];
    _Atomic uint64_t host[TUTTI_WHO_HOST / 8], address[TUTTI_WHO_ADDRESS / 8];
};
struct tutti_asks {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t served_ns; /* when its member last looked; 0: never */
    _Alignas(TUTTI_CACHE_LINE) _Atomic int32_t asker;      /* its process, 0: none */
    _Atomic uint32_t asked;                                /* moves with every question */
    _Atomic uint32_t served;                               /* `asked` when all were answered */
    struct tutti_ask_row rows[TUTTI_ASKS_MOST];
};

/* Which member of a world one of this host is. */
struct tutti_who {
    uint64_t world; /* random, equal on all members */
    uint32_t member, n;
    char host[TUTTI_WHO_HOST];
};
/* By the member itself, once it is open. */
void tutti_who_write(struct tutti_control *host, const struct tutti_who *who);
/* False: it has not come yet, or what is there can not be. */
bool tutti_who_read(const struct tutti_host_control *host, uint32_t local, struct tutti_who *out);

struct tutti_ask_answer {
    enum tutti_life life;
    enum tutti_status status; /* the board's: OK, PENDING, UNSUPPORTED */
    struct tutti_board board;
    char host[TUTTI_WHO_HOST], address[TUTTI_WHO_ADDRESS];
};
bool tutti_asks_served(const struct tutti_host_control *host, uint32_t local,
                       uint64_t now);                                  /* whether it would answer */
bool tutti_asks_take(struct tutti_host_control *host, uint32_t local); /* false: another process asks */
void tutti_asks_put(struct tutti_host_control *host, uint32_t local, uint32_t row, uint32_t peer, uint32_t slot);
bool tutti_asks_get(struct tutti_host_control *host, uint32_t local, uint32_t row, struct tutti_ask_answer *out);
/* What is known of a question that was not answered: all but the board. False: not even that. */
bool tutti_asks_peek(const struct tutti_host_control *host, uint32_t local, uint32_t row, struct tutti_ask_answer *out);
void tutti_asks_give(struct tutti_host_control *host, uint32_t local);

void tutti_asks_serve(struct tutti_control *c, struct tutti_control *world); /* by the member: see control.h */

#endif
