/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_TEAM_LETTER_H
#define TUTTI_ENGINE_TEAM_LETTER_H

/* Messages between two ranks: a letter is one that this rank sends or wants, an envelope is one that came unasked, and
 * an inflow says which bytes of a message are here (inflow.c). All of it is the owner's. */

#include "engine/work/work.h"

enum tutti_letter_state {
    TUTTI_LETTER_QUEUED,   /* send: no room for the envelope yet. recv: posted */
    TUTTI_LETTER_WAITING,  /* send: for the grant. recv: the grant is to be sent */
    TUTTI_LETTER_MOVING,   /* payload on its way */
    TUTTI_LETTER_READ_OWED /* recv: an offer was read, which is to be told */
};
/* Progress of a message of several packets: all before `received`, and what came out of order after it. */
#define TUTTI_INFLOW_GAPS 6
struct tutti_inflow {
    uint64_t received;
    uint32_t n_ahead;
    struct {
        uint64_t first, end;
    } ahead[TUTTI_INFLOW_GAPS];
};
struct tutti_letter {
    struct tutti_work work; /* first */
    struct tutti_letter *next;
    enum tutti_letter_state state;
    unsigned char *buffer;
    size_t bytes, total; /* of the buffer; of the message */
    size_t offset;       /* send: what left */
    int32_t peer, tag;   /* slot; recv: maybe ANY until matched */
    uint64_t number;     /* of the message between this pair, from 1 */
    bool offered;
    struct tutti_inflow inflow;
    struct tutti_message *message;
};

/* An envelope that nobody asked for yet. Index 0 is none. */
struct tutti_envelope {
    uint32_t next, source; /* slot */
    int32_t tag;
    uint32_t payload; /* 1 + payload slot, 0: none */
    uint64_t number, total;
};

/* Whether the piece is new (duplicates are not). *broken: it can not be, or too much is out of order. */
bool tutti_inflow_add(struct tutti_inflow *inflow, uint64_t total, uint64_t offset, uint64_t bytes, bool *broken);

#endif
