/* SPDX-License-Identifier: BSD-3-Clause */
/* The packet on the wire: its bytes are these and no others, on every machine, and what can not be is refused. */

#include "test.h"

#include "transport/packet.h"

#include <string.h>

static const struct tutti_packet sample = {
    .version = TUTTI_WIRE_VERSION,
    .type = TUTTI_PACKET_P2P_GRANT,
    .flags = 5,
    .credits = 6,
    .source = 0x01020304,
    .comm = UINT64_C(0x1112131415161718),
    .epoch = 0x21222324,
    .slice = 0x41424344,
    .seq = UINT64_C(0x3132333435363738),
    .call = UINT64_C(0xa1a2a3a4a5a6a7a8),
    .fifo = 0x51525354,
    .bytes = 0x00000105,
    .signature = UINT64_C(0x6162636465666768),
    .total = UINT64_C(0x7172737475767778),
    .offset = UINT64_C(0x8182838485868788),
    .count = UINT64_C(0x9192939495969798),
};
static const uint8_t sample_bytes[TUTTI_PACKET_WIRE_BYTES] = {
    5,    6,    5,    6,    0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
    0x24, 0x23, 0x22, 0x21, 0x44, 0x43, 0x42, 0x41, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,
    0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1, 0x54, 0x53, 0x52, 0x51, 0x05, 0x01, 0x00, 0x00,
    0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61, 0x78, 0x77, 0x76, 0x75, 0x74, 0x73, 0x72, 0x71,
    0x88, 0x87, 0x86, 0x85, 0x84, 0x83, 0x82, 0x81, 0x98, 0x97, 0x96, 0x95, 0x94, 0x93, 0x92, 0x91,
};

static void bytes_are_these(void **state)
{
    (void)state;
    uint8_t bytes[TUTTI_PACKET_WIRE_BYTES];
    tutti_packet_encode(&sample, bytes);
    assert_memory_equal(bytes, sample_bytes, sizeof(bytes));
    struct tutti_packet packet;
    assert_int_equal(tutti_packet_decode(sample_bytes, sizeof(sample_bytes), &packet), TUTTI_OK);
    assert_memory_equal(&packet, &sample, sizeof(packet));
}

static void what_can_not_be_is_refused(void **state)
{
    (void)state;
    struct tutti_packet packet = {.seq = 42};
    for (size_t n = 0; n < TUTTI_PACKET_WIRE_BYTES; n++) {
        uint8_t *exact = malloc(n ? n : 1); /* a read beyond is seen by the sanitizers */
        memcpy(exact, sample_bytes, n);
        assert_int_equal(tutti_packet_decode(exact, n, &packet), TUTTI_ERR_PROTOCOL);
        free(exact);
    }
    uint8_t bytes[TUTTI_PACKET_WIRE_BYTES];
    for (unsigned x = 0; x < 256; x++) {
        memcpy(bytes, sample_bytes, sizeof(bytes));
        bytes[0] = (uint8_t)x;
        assert_int_equal(tutti_packet_decode(bytes, sizeof(bytes), &packet) == TUTTI_OK, x == TUTTI_WIRE_VERSION);
        memcpy(bytes, sample_bytes, sizeof(bytes));
        bytes[1] = (uint8_t)x;
        assert_int_equal(tutti_packet_decode(bytes, sizeof(bytes), &packet) == TUTTI_OK,
                         x >= 1 && x <= TUTTI_PACKET_ONE_ANSWER);
        memcpy(bytes, sample_bytes, sizeof(bytes));
        bytes[47] = (uint8_t)x; /* the payload's length: at most 1 GiB */
        assert_int_equal(tutti_packet_decode(bytes, sizeof(bytes), &packet) == TUTTI_OK, x < 0x40);
    }
    packet.seq = 42;
    assert_int_equal(tutti_packet_decode(bytes, sizeof(bytes), &packet), TUTTI_ERR_PROTOCOL);
    assert_int_equal(packet.seq, 42); /* written only on success */
}

/* What is accepted is what would have been sent. */
static void random_bytes_round_trip(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    unsigned n_accepted = 0;
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[TUTTI_PACKET_WIRE_BYTES], again[TUTTI_PACKET_WIRE_BYTES];
        for (size_t k = 0; k < sizeof(bytes); k += 8) {
            uint64_t word = tutti_random64(&random);
            memcpy(bytes + k, &word, 8);
        }
        if (i % 2 == 0) bytes[0] = TUTTI_WIRE_VERSION, bytes[1] = (uint8_t)(1 + bytes[1] % 11), bytes[47] &= 0x3f;
        struct tutti_packet packet;
        if (tutti_packet_decode(bytes, sizeof(bytes), &packet) != TUTTI_OK) continue;
        n_accepted++;
        tutti_packet_encode(&packet, again);
        assert_memory_equal(again, bytes, sizeof(bytes));
    }
    assert_in_range(n_accepted, 8000, 10000);
}

static void types_have_names(void **state)
{
    (void)state;
    for (unsigned type = TUTTI_PACKET_DATA; type <= TUTTI_PACKET_ONE_ANSWER; type++)
        assert_string_not_equal(tutti_packet_type_name((uint8_t)type), "?");
    assert_string_equal(tutti_packet_type_name(TUTTI_PACKET_P2P_GRANT), "p2p-grant");
    assert_string_equal(tutti_packet_type_name(0), "?");
    assert_string_equal(tutti_packet_type_name(TUTTI_PACKET_ONE_ANSWER + 1), "?");
    assert_string_equal(tutti_packet_type_name(255), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_these),
        cmocka_unit_test(what_can_not_be_is_refused),
        cmocka_unit_test(random_bytes_round_trip),
        cmocka_unit_test(types_have_names),
    };
    return cmocka_run_group_tests_name("transport.packet", tests, NULL, NULL);
}
