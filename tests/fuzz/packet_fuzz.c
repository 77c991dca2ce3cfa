/* SPDX-License-Identifier: BSD-3-Clause */

/* The wire codec: whatever decodes is a packet that encodes to bytes which decode to it again. */

#include "fuzz.h"
#include "transport/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tutti_packet packet, again;
    uint8_t wire[TUTTI_PACKET_WIRE_BYTES], wire_again[TUTTI_PACKET_WIRE_BYTES];
    enum tutti_status status = tutti_packet_decode(bytes, n, &packet);
    if (status != TUTTI_OK) {
        FUZZ_CHECK(status == TUTTI_ERR_PROTOCOL);
        return 0;
    }
    FUZZ_CHECK(n >= TUTTI_PACKET_WIRE_BYTES);
    FUZZ_CHECK(packet.version == TUTTI_WIRE_VERSION);
    tutti_packet_encode(&packet, wire);
    FUZZ_CHECK(tutti_packet_decode(wire, sizeof wire, &again) == TUTTI_OK);
    FUZZ_CHECK(memcmp(wire, bytes, sizeof wire) == 0); /* nothing is lost */
    tutti_packet_encode(&again, wire_again);
    FUZZ_CHECK(memcmp(wire, wire_again, sizeof wire) == 0);
    return 0;
}
