/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring between two threads: random records of all sizes arrive once, whole, in order, whatever the timing; and a
 * side that writes nonsense is told apart from one that does not, without ever reading outside the ring. */

#include "test.h"

#include "transport/host/ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { RING_BYTES = 16 << 10, MAX_PAYLOAD = RING_BYTES / 4 };

static struct tutti_ring_shared *ring_make(void)
{
    struct tutti_ring_shared *ring = tutti_map_lazy(tutti_ring_memory(RING_BYTES));
    assert_non_null(ring);
    return ring;
}

/* ---- litmus ---- */

enum { LITMUS_RECORDS = 60000 };
struct litmus {
    struct tutti_ring_shared *ring;
    uint64_t seed;
    uint32_t stalls; /* puts that found no room */
};

/* The k-th record of a seed, the same on both sides. */
static uint32_t record_make(uint64_t seed, uint32_t k, struct tutti_packet *packet, unsigned char *payload)
{
    uint64_t state = seed + k;
    uint64_t r = tutti_random64(&state);
    uint32_t bytes = (uint32_t)(r % 4 == 0 ? (r >> 8) % (MAX_PAYLOAD + 1) : (r >> 8) % 200);
    *packet = (struct tutti_packet){.version = TUTTI_WIRE_VERSION,
                                    .type = TUTTI_PACKET_DATA,
                                    .bytes = bytes,
                                    .seq = k,
                                    .count = tutti_random64(&state)};
    for (uint32_t i = 0; i < bytes; i++) payload[i] = (unsigned char)(r + i * 7 + k);
    return bytes;
}

static void *litmus_produce(void *arg)
{
    struct litmus *l = arg;
    struct tutti_ring_out out = {0, 0};
    static _Thread_local unsigned char payload[MAX_PAYLOAD];
    for (uint32_t k = 0; k < LITMUS_RECORDS; k++) {
        struct tutti_packet packet;
        uint32_t bytes = record_make(l->seed, k, &packet, payload);
        const uint32_t cut = bytes / 3; /* gathered from three spans, one of them often empty */
        const struct tutti_span spans[3] = {{payload, cut}, {payload + cut, 0}, {payload + cut, bytes - cut}};
        enum tutti_status status;
        while ((status = tutti_ring_put(l->ring, RING_BYTES, &out,
                                        &(struct tutti_ring_record){&packet, k ^ 5, spans, 3})) == TUTTI_AGAIN) {
            l->stalls++;
            sched_yield();
        }
        if (status != TUTTI_OK) return l; /* asserts belong to the main thread */
    }
    return NULL;
}

static void litmus(void **state)
{
    (void)state;
    struct litmus l = {.ring = ring_make(), .seed = test_seed()};
    struct tutti_ring_in in = {0, 0};
    pthread_t producer;
    assert_int_equal(pthread_create(&producer, NULL, litmus_produce, &l), 0);
    static unsigned char expected[MAX_PAYLOAD];
    uint32_t hints = 0;
    for (uint32_t k = 0; k < LITMUS_RECORDS;) {
        struct tutti_ring_view view;
        enum tutti_status status = tutti_ring_peek(l.ring, RING_BYTES, &in, &view);
        if (status == TUTTI_AGAIN) {
            sched_yield();
            continue;
        }
        assert_int_equal(status, TUTTI_OK);
        struct tutti_packet packet;
        uint32_t bytes = record_make(l.seed, k, &packet, expected);
        assert_memory_equal(&view.packet, &packet, sizeof(packet));
        assert_int_equal(view.stamp, k ^ 5);
        assert_int_equal((uintptr_t)view.payload % 16, 0);
        if (bytes > 0) assert_memory_equal(view.payload, expected, bytes);
        hints += tutti_ring_pop(l.ring, &in, view.next);
        k++;
    }
    void *failed = NULL;
    pthread_join(producer, &failed);
    assert_null(failed);
    struct tutti_ring_view view;
    assert_int_equal(tutti_ring_peek(l.ring, RING_BYTES, &in, &view), TUTTI_AGAIN);
    assert_true(hints <= l.stalls); /* only a producer that found no room is told of some */
    tutti_unmap(l.ring, tutti_ring_memory(RING_BYTES));
}

/* ---- full and empty, in one thread ---- */

static void full_then_room(void **state)
{
    (void)state;
    struct tutti_ring_shared *ring = ring_make();
    struct tutti_ring_out out = {0, 0};
    struct tutti_ring_in in = {0, 0};
    struct tutti_ring_view view;
    static char payload[MAX_PAYLOAD];
    const struct tutti_packet packet = {.bytes = MAX_PAYLOAD};
    const struct tutti_span span = {payload, MAX_PAYLOAD};
    for (int round = 0; round < 50; round++) {
        int n = 0;
        while (tutti_ring_put(ring, RING_BYTES, &out, &(struct tutti_ring_record){&packet, 0, &span, 1}) == TUTTI_OK)
            n++;
        assert_in_range(n, 1, 3); /* a record is more than a quarter */
        for (int i = 0; i < n; i++) {
            assert_int_equal(tutti_ring_peek(ring, RING_BYTES, &in, &view), TUTTI_OK);
            assert_int_equal(tutti_ring_pop(ring, &in, view.next), i == 0); /* told once that there is room */
        }
        assert_int_equal(tutti_ring_peek(ring, RING_BYTES, &in, &view), TUTTI_AGAIN);
    }
    tutti_unmap(ring, tutti_ring_memory(RING_BYTES));
}

/* ---- nonsense ---- */

/* A ring between guard pages would fault on an access outside; here the memory after it tells. */
static void nonsense_is_found(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    unsigned n_refused = 0;
    for (int round = 0; round < 20000; round++) {
        static _Alignas(64) char memory[sizeof(struct tutti_ring_shared) + RING_BYTES];
        struct tutti_ring_shared *ring = (struct tutti_ring_shared *)(void *)memory;
        const uint64_t start = tutti_random64(&random) % 1000 * TUTTI_CACHE_LINE; /* the end of the ring included */
        struct tutti_ring_out out = {start, start};
        struct tutti_ring_in in = {start, start};
        struct tutti_ring_view view;
        static unsigned char payload[MAX_PAYLOAD];
        atomic_store(&ring->head, start);
        for (int i = 0; i < 5; i++) {
            struct tutti_packet packet;
            uint32_t bytes = record_make(random, (uint32_t)i, &packet, payload) % 512;
            packet.bytes = bytes;
            const struct tutti_span span = {payload, bytes};
            assert_int_equal(tutti_ring_put(ring, RING_BYTES, &out, &(struct tutti_ring_record){&packet, 0, &span, 1}),
                             TUTTI_OK);
        }
        /* Overwrite a word of what the producer owns: its position, or any of the first records. */
        uint64_t value = tutti_random64(&random);
        if (value % 3 == 0) value &= 0xffff;
        if (value % 7 == 0) value = (value & 0xffffffff) | UINT64_C(0x7265636f) << 32;
        if (value % 11 == 0) value = (value & 0x3fc0) | UINT64_C(0x70616421) << 32;
        uint64_t where = tutti_random64(&random) % 65;
        uint64_t *word = where == 64 ? (uint64_t *)(void *)&ring->tail
                                     : (uint64_t *)(void *)ring->data + (start / 8 + where) % (RING_BYTES / 8);
        memcpy(word, &value, 8);
        int n = 0;
        enum tutti_status status;
        while ((status = tutti_ring_peek(ring, RING_BYTES, &in, &view)) == TUTTI_OK) {
            assert_true((const char *)view.payload >= ring->data);
            assert_true((const char *)view.payload + view.packet.bytes <= ring->data + RING_BYTES);
            tutti_ring_pop(ring, &in, view.next);
            assert_true(++n <= RING_BYTES / 64);
        }
        assert_true(status == TUTTI_AGAIN || status == TUTTI_ERR_PROTOCOL);
        n_refused += status == TUTTI_ERR_PROTOCOL;
    }
    assert_true(n_refused > 1000); /* most overwritten payloads are nobody's business, heads and positions are */
}

/* One record forged at a place of the ring, and why it can not be. */
static void forged_records_are_found(void **state)
{
    (void)state;
    enum { RECORD = 0x7265636f, PAD = 0x70616421, END = RING_BYTES };
    static const struct {
        uint32_t at;
        int32_t available; /* what the producer says to have written */
        uint32_t kind, length, bytes;
        bool sound;
    } rows[] = {
        {0, 128, RECORD, 128, 32, true},
        {END - 128, 128, RECORD, 128, 1, true},        /* up to the very end */
        {END - 64, 64 + 128, PAD, 64, 0, true},        /* and a record at the start */
        {END - 128, 4096, RECORD, 192, 96, false},     /* beyond the end of the ring */
        {END - 4096, 8192, RECORD, 4224, 4096, false}, /* likewise, with a payload */
        {0, 128, RECORD, 192, 96, false},              /* beyond what has been published */
        {0, 128, RECORD, 64, 0, false},                /* shorter than its head */
        {0, 256, RECORD, 128, 33, false},              /* the payload does not fit the record */
        {0, 256, RECORD, 192, 32, false},              /* nor the record the payload */
        {0, 8192, RECORD, 4288, 4160, false},          /* more than the greatest payload */
        {0, 128, RECORD, 0, 0, false},                 /* for ever at one place */
        {0, 128, 0, 128, 32, false},                   /* neither record nor padding */
        {END - 256, 512, PAD, 128, 0, false},          /* padding that stops before the end */
        {END - 256, 512, PAD, 320, 0, false},          /* or goes beyond it */
        {END - 256, 256, PAD, 256, 0, false},          /* or has nothing after it */
        {END - 256, 64, PAD, 256, 0, false},           /* or has not been published itself */
        {0, 8192, PAD, 0, 0, false},
        {0, END, RECORD, 128, 32, true}, /* positions: a full ring */
        {0, END + 64, RECORD, 128, 32, false},
        {0, 129, RECORD, 128, 32, false},
        {0, -64, RECORD, 128, 32, false},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        struct tutti_ring_shared *ring = ring_make();
        const uint64_t start = 5 * RING_BYTES + rows[i].at;
        struct tutti_ring_in in = {start, start};
        struct tutti_ring_view view;
        uint64_t words[4] = {(uint64_t)rows[i].kind << 32 | rows[i].length, 0, 0, 0};
        const struct tutti_packet packet = {.bytes = rows[i].bytes};
        memcpy(ring->data + rows[i].at, words, 16);
        if (rows[i].at + 96 <= END) memcpy(ring->data + rows[i].at + 16, &packet, sizeof(packet));
        if (rows[i].kind == PAD) { /* a sound record where the padding ends */
            words[0] = (uint64_t)RECORD << 32 | 128;
            memcpy(ring->data, words, 16);
        }
        if (rows[i].kind == PAD && rows[i].length == 0) memcpy(ring->data, &(uint64_t){(uint64_t)PAD << 32}, 8);
        atomic_store(&ring->tail, start + (uint64_t)(int64_t)rows[i].available);
        enum tutti_status status = tutti_ring_peek(ring, RING_BYTES, &in, &view);
        if (status != (rows[i].sound ? TUTTI_OK : TUTTI_ERR_PROTOCOL)) fail_msg("row %zu: status %d", i, (int)status);
        tutti_unmap(ring, tutti_ring_memory(RING_BYTES));
    }
}

static void impossible_heads_are_found(void **state)
{
    (void)state;
    static const uint64_t heads[] = {1, 63, UINT64_MAX, UINT64_C(1) << 40, UINT64_MAX - 63};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(heads); i++) {
        struct tutti_ring_shared *ring = ring_make();
        struct tutti_ring_out out = {0, 0};
        static char payload[MAX_PAYLOAD];
        const struct tutti_packet packet = {.bytes = MAX_PAYLOAD};
        const struct tutti_span span = {payload, MAX_PAYLOAD};
        enum tutti_status status = TUTTI_OK;
        for (int k = 0; k < 3; k++)
            assert_int_equal(tutti_ring_put(ring, RING_BYTES, &out, &(struct tutti_ring_record){&packet, 0, &span, 1}),
                             TUTTI_OK);
        atomic_store(&ring->head, heads[i]);
        status = tutti_ring_put(ring, RING_BYTES, &out, &(struct tutti_ring_record){&packet, 0, &span, 1});
        assert_int_equal(status, TUTTI_ERR_PROTOCOL);
        tutti_unmap(ring, tutti_ring_memory(RING_BYTES));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(litmus),
        cmocka_unit_test(full_then_room),
        cmocka_unit_test(nonsense_is_found),
        cmocka_unit_test(forged_records_are_found),
        cmocka_unit_test(impossible_heads_are_found),
    };
    return cmocka_run_group_tests_name("transport.ring", tests, NULL, NULL);
}
