/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_VERIFY_PLANTED_TEST_H
#define TUTTI_VERIFY_PLANTED_TEST_H

/* For the tests of the checker: algorithms written as actions, so that a fault can be planted in any one of them, and
 * bundles that can be altered after they were sealed. */

#include "verify/verify.h"

#include "test.h"

#include <string.h>

enum planted_op { PLANTED_NOTHING, PLANTED_SEND, PLANTED_RECV, PLANTED_RECV_REDUCE, PLANTED_COPY, PLANTED_REDUCE };

struct planted_action {
    enum planted_op op;
    uint32_t peer;
    enum tutti_buffer buffer; /* the message's; of a copy's or reduction's destination */
    uint32_t chunk, n;
    enum tutti_side side;
    enum tutti_buffer src_buffer;
    uint32_t src;
};

static inline struct planted_action planted_send(uint32_t peer, enum tutti_buffer buffer, uint32_t chunk)
{
    return (struct planted_action){.op = PLANTED_SEND, .peer = peer, .buffer = buffer, .chunk = chunk, .n = 1};
}

static inline struct planted_action planted_recv(uint32_t peer, enum tutti_buffer buffer, uint32_t chunk)
{
    return (struct planted_action){.op = PLANTED_RECV, .peer = peer, .buffer = buffer, .chunk = chunk, .n = 1};
}

static inline struct planted_action planted_recv_reduce(uint32_t peer, uint32_t chunk, enum tutti_side side)
{
    return (struct planted_action){
        .op = PLANTED_RECV_REDUCE, .peer = peer, .buffer = TUTTI_DATA, .chunk = chunk, .n = 1, .side = side};
}

static inline struct planted_action planted_copy(enum tutti_buffer dst_buffer, uint32_t dst,
                                                 enum tutti_buffer src_buffer, uint32_t src)
{
    return (struct planted_action){
        .op = PLANTED_COPY, .buffer = dst_buffer, .chunk = dst, .n = 1, .src_buffer = src_buffer, .src = src};
}

static inline struct planted_action planted_reduce(uint32_t dst, uint32_t scratch, enum tutti_side side)
{
    return (struct planted_action){.op = PLANTED_REDUCE,
                                   .buffer = TUTTI_DATA,
                                   .chunk = dst,
                                   .n = 1,
                                   .src_buffer = TUTTI_SCRATCH,
                                   .src = scratch,
                                   .side = side};
}

static inline void planted_emit(struct tutti_emit *emit, const struct planted_action *a)
{
    switch (a->op) {
    case PLANTED_NOTHING:
        return;
    case PLANTED_SEND:
        tutti_emit_send(emit, a->peer, a->buffer, a->chunk, a->n);
        return;
    case PLANTED_RECV:
        tutti_emit_recv(emit, a->peer, a->buffer, a->chunk, a->n);
        return;
    case PLANTED_RECV_REDUCE:
        tutti_emit_recv_reduce(emit, a->peer, a->buffer, a->chunk, a->n, a->side);
        return;
    case PLANTED_COPY:
        tutti_emit_copy(emit, a->buffer, a->chunk, a->src_buffer, a->src, a->n);
        return;
    case PLANTED_REDUCE:
        tutti_emit_reduce(emit, a->buffer, a->chunk, a->src_buffer, a->src, a->n, a->side);
        return;
    }
}

/* All slots of a bundle, sealed, to be altered by the test. */
struct planted_bundle {
    uint32_t n;
    struct tutti_schedule *slots[64];
};

static inline void planted_bundle_seal(struct planted_bundle *bundle, const struct tutti_algorithm *algorithm,
                                       enum tutti_kind kind, const struct tutti_shape *shape)
{
    assert_true(shape->size <= TUTTI_ARRAY_LEN(bundle->slots));
    bundle->n = shape->size;
    for (uint32_t s = 0; s < shape->size; s++) {
        struct tutti_shape own = *shape;
        own.slot = s;
        assert_int_equal(tutti_schedule_seal(algorithm, kind, &own, true, &bundle->slots[s]), TUTTI_OK);
    }
}

static inline void planted_bundle_destroy(struct planted_bundle *bundle)
{
    for (uint32_t s = 0; s < bundle->n; s++) tutti_schedule_destroy(bundle->slots[s]);
}

static inline struct tutti_verdict planted_bundle_verify(const struct planted_bundle *bundle)
{
    struct tutti_verdict verdict;
    const struct tutti_schedule *const *slots = (const struct tutti_schedule *const *)bundle->slots;
    assert_int_equal(tutti_verify_bundle(slots, bundle->n, &verdict), TUTTI_OK);
    return verdict;
}

/* Fails the test unless the verdict is a refusal that names the algorithm and says all of the words. */
static inline void planted_expect(const struct tutti_verdict *verdict, const char *algorithm, const char *const *words,
                                  size_t n_words)
{
    if (verdict->ok) fail_msg("%s", "the checker accepted it");
    if (!strstr(verdict->text, algorithm)) fail_msg("no '%s' in: %s", algorithm, verdict->text);
    for (size_t i = 0; i < n_words && words[i]; i++) {
        if (!strstr(verdict->text, words[i])) fail_msg("no '%s' in: %s", words[i], verdict->text);
    }
}

#endif
