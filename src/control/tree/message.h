/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_TREE_MESSAGE_H
#define TUTTI_CONTROL_TREE_MESSAGE_H

/* The messages of the tree as bytes. Integers are little-endian; a frame is
 *
 *   length u16 (of all), version u8, type u8, and then
 *   PING, UNLINK   nothing
 *   GONE           count u16, for each: member u32, life u8
 *   RAISE, TELL    comm u64, seq u64, epoch u32, culprit u32, step u32, status i32, peer i32, errno i32, text
 *   ASK            origin u32, target u32, slot u32, hops u32
 *   ANSWER         the same, the board (known u8, 120 bytes; its times are ages)
 *
 * Pure, over bytes that come from a proved peer, and are checked all the same. */

#include "control/control.h"

#define TUTTI_TREE_VERSION 3
#define TUTTI_TREE_GONE_MOST 128 /* of one frame */
#define TUTTI_TREE_FRAME_MAX (4 + 2 + 5 * TUTTI_TREE_GONE_MOST + TUTTI_ERROR_TEXT)

enum tutti_tree_type {
    TUTTI_TREE_PING = 1, /* I am here */
    TUTTI_TREE_UNLINK,   /* this link ends, I live on */
    TUTTI_TREE_GONE,     /* these left, or died */
    TUTTI_TREE_RAISE,    /* up to the root: end this communicator */
    TUTTI_TREE_TELL,     /* from the root to all: it has ended */
    TUTTI_TREE_ASK,      /* for a board */
    TUTTI_TREE_ANSWER,
    TUTTI_TREE_N_TYPES
};
struct tutti_tree_gone {
    uint32_t member;
    enum tutti_life life; /* LEFT, DEAD, SILENT */
};
struct tutti_tree_question {
    uint32_t origin, target, slot, hops;
};
struct tutti_tree_message {
    enum tutti_tree_type type;
    uint32_t n_gone;
    struct tutti_tree_gone gone[TUTTI_TREE_GONE_MOST];
    struct tutti_failure failure;
    struct tutti_tree_question question;
    bool known; /* ANSWER: the board is there */
    struct tutti_board board;
};

/* Returns the bytes written. */
size_t tutti_tree_encode(const struct tutti_tree_message *message, uint8_t out[TUTTI_TREE_FRAME_MAX]);
/* Bytes of the frame that begins here; 0: fewer than 4 bytes are here. More than FRAME_MAX: it is none. */
size_t tutti_tree_frame_bytes(const uint8_t *bytes, size_t n);
/* One whole frame, for a world of n_members. PROTOCOL. */
enum tutti_status tutti_tree_decode(const uint8_t *bytes, size_t n, uint32_t n_members, struct tutti_tree_message *out);

#endif
