/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of the tree. */

#include "control/tree/message.h"

#include "base/session.h"

#include <string.h>

enum { HEAD = 4, GONE_BYTES = 5, FAILURE_BYTES = 40, QUESTION_BYTES = 16, BOARD_BYTES = sizeof(struct tutti_board) };
_Static_assert(sizeof(struct tutti_board) == 120, "it travels as bytes: little-endian machines only");

/* ---- encoding ---- */

static size_t failure_encode(const struct tutti_failure *f, uint8_t *at)
{
    const size_t text = strnlen(f->error.text, sizeof f->error.text - 1);
    tutti_le_store(at, 8, f->comm), tutti_le_store(at + 8, 8, f->error.seq);
    tutti_le_store(at + 16, 4, f->epoch), tutti_le_store(at + 20, 4, f->culprit);
    tutti_le_store(at + 24, 4, f->error.step), tutti_le_store(at + 28, 4, (uint32_t)f->error.status);
    tutti_le_store(at + 32, 4, (uint32_t)f->error.peer), tutti_le_store(at + 36, 4, (uint32_t)f->error.os_errno);
    memcpy(at + FAILURE_BYTES, f->error.text, text);
    return FAILURE_BYTES + text;
}

static size_t question_encode(const struct tutti_tree_question *q, uint8_t *at)
{
    tutti_le_store(at, 4, q->origin), tutti_le_store(at + 4, 4, q->target);
    tutti_le_store(at + 8, 4, q->slot), tutti_le_store(at + 12, 4, q->hops);
    return QUESTION_BYTES;
}

static size_t gone_encode(const struct tutti_tree_message *m, uint8_t *at)
{
    tutti_le_store(at, 2, m->n_gone);
    for (uint32_t i = 0; i < m->n_gone; i++) {
        tutti_le_store(at + 2 + i * GONE_BYTES, 4, m->gone[i].member);
        at[2 + i * GONE_BYTES + 4] = (uint8_t)m->gone[i].life;
    }
    return 2 + (size_t)m->n_gone * GONE_BYTES;
}

size_t tutti_tree_encode(const struct tutti_tree_message *m, uint8_t out[TUTTI_TREE_FRAME_MAX])
{
    size_t n = HEAD;
    if (m->type == TUTTI_TREE_GONE) n += gone_encode(m, out + n);
    if (m->type == TUTTI_TREE_RAISE || m->type == TUTTI_TREE_TELL) n += failure_encode(&m->failure, out + n);
    if (m->type == TUTTI_TREE_ASK || m->type == TUTTI_TREE_ANSWER) n += question_encode(&m->question, out + n);
    if (m->type == TUTTI_TREE_ANSWER) {
        out[n] = m->known;
        memcpy(out + n + 1, &m->board, BOARD_BYTES);
        n += 1 + BOARD_BYTES;
    }
    tutti_le_store(out, 2, n);
    out[2] = TUTTI_TREE_VERSION;
    out[3] = (uint8_t)m->type;
    return n;
}

/* ---- decoding: true when these n bytes are such a body ---- */

static bool failure_decode(const uint8_t *at, size_t n, struct tutti_failure *out)
{
    const size_t text = n - FAILURE_BYTES;
    if (n < FAILURE_BYTES || text >= sizeof out->error.text || memchr(at + FAILURE_BYTES, 0, text)) return false;
    *out = (struct tutti_failure){.comm = tutti_le_load(at, 8),
                                  .epoch = (uint32_t)tutti_le_load(at + 16, 4),
                                  .culprit = (uint32_t)tutti_le_load(at + 20, 4)};
    out->error.seq = tutti_le_load(at + 8, 8);
    out->error.step = (uint32_t)tutti_le_load(at + 24, 4);
    out->error.status = (enum tutti_status)(int32_t)(uint32_t)tutti_le_load(at + 28, 4);
    out->error.peer = (int32_t)(uint32_t)tutti_le_load(at + 32, 4);
    out->error.os_errno = (int32_t)(uint32_t)tutti_le_load(at + 36, 4);
    memcpy(out->error.text, at + FAILURE_BYTES, text);
    return out->error.status < 0 && out->error.status >= TUTTI_ERR_INTERNAL;
}

static bool question_decode(const uint8_t *at, size_t n, uint32_t n_members, struct tutti_tree_question *out)
{
    if (n < QUESTION_BYTES) return false;
    *out = (struct tutti_tree_question){(uint32_t)tutti_le_load(at, 4), (uint32_t)tutti_le_load(at + 4, 4),
                                        (uint32_t)tutti_le_load(at + 8, 4), (uint32_t)tutti_le_load(at + 12, 4)};
    return out->origin < n_members && out->target < n_members && out->slot < TUTTI_BOARD_ASKED;
}

static bool gone_decode(const uint8_t *at, size_t n, uint32_t n_members, struct tutti_tree_message *out)
{
    out->n_gone = n < 2 ? 0 : (uint32_t)tutti_le_load(at, 2);
    if (n < 2 || out->n_gone > TUTTI_TREE_GONE_MOST || n != 2 + (size_t)out->n_gone * GONE_BYTES) return false;
    for (uint32_t i = 0; i < out->n_gone; i++) {
        const uint8_t *one = at + 2 + i * GONE_BYTES;
        out->gone[i] = (struct tutti_tree_gone){(uint32_t)tutti_le_load(one, 4), (enum tutti_life)one[4]};
        if (out->gone[i].member >= n_members || !tutti_life_gone(out->gone[i].life)) return false;
    }
    return true;
}

static bool body_decode(const uint8_t *at, size_t n, uint32_t n_members, struct tutti_tree_message *out)
{
    switch (out->type) {
    case TUTTI_TREE_PING:
    case TUTTI_TREE_UNLINK:
        return n == 0;
    case TUTTI_TREE_GONE:
        return gone_decode(at, n, n_members, out);
    case TUTTI_TREE_RAISE:
    case TUTTI_TREE_TELL:
        return failure_decode(at, n, &out->failure);
    case TUTTI_TREE_ASK:
        return n == QUESTION_BYTES && question_decode(at, n, n_members, &out->question);
    case TUTTI_TREE_ANSWER:
        if (n != QUESTION_BYTES + 1 + BOARD_BYTES || at[QUESTION_BYTES] > 1) return false;
        out->known = at[QUESTION_BYTES];
        memcpy(&out->board, at + QUESTION_BYTES + 1, BOARD_BYTES);
        return question_decode(at, n, n_members, &out->question);
    default:
        return false;
    }
}

size_t tutti_tree_frame_bytes(const uint8_t *bytes, size_t n)
{
    const size_t length = n < HEAD ? 0 : tutti_le_load(bytes, 2);
    return n >= HEAD && length < HEAD ? SIZE_MAX : length;
}

enum tutti_status tutti_tree_decode(const uint8_t *bytes, size_t n, uint32_t n_members, struct tutti_tree_message *out)
{
    memset(out, 0, sizeof *out);
    if (n < HEAD || n > TUTTI_TREE_FRAME_MAX || tutti_le_load(bytes, 2) != n || bytes[2] != TUTTI_TREE_VERSION)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "%zu bytes that are no message of the control of hosts", n);
    out->type = (enum tutti_tree_type)bytes[3];
    if (body_decode(bytes + HEAD, n - HEAD, n_members, out)) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of type %u of the control of hosts with %zu bytes can not be",
                      bytes[3], n);
}
