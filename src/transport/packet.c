/* SPDX-License-Identifier: BSD-3-Clause */
/* The packet on the wire: 80 bytes, little endian, field after field in the order of the struct. A decoder needs the
 * head alone: on a stream the payload follows once the head says how long it is. */

#include "transport/packet.h"

#include "base/session.h"

#define WIRE_MAX_PAYLOAD (UINT32_C(1) << 30)

static const char *const type_names[] = {
    [TUTTI_PACKET_DATA] = "data",         [TUTTI_PACKET_GRANT] = "grant",
    [TUTTI_PACKET_CREDIT] = "credit",     [TUTTI_PACKET_READ] = "read",
    [TUTTI_PACKET_P2P] = "p2p",           [TUTTI_PACKET_P2P_GRANT] = "p2p-grant",
    [TUTTI_PACKET_P2P_DATA] = "p2p-data", [TUTTI_PACKET_P2P_READ] = "p2p-read",
    [TUTTI_PACKET_ONE] = "one",           [TUTTI_PACKET_ONE_ANSWER] = "one-answer",
};

const char *tutti_packet_type_name(uint8_t type)
{
    return type < TUTTI_ARRAY_LEN(type_names) && type_names[type] ? type_names[type] : "?";
}

bool tutti_packet_valid(const struct tutti_packet *packet, size_t max_payload)
{
    return packet->version == TUTTI_WIRE_VERSION && packet->type >= TUTTI_PACKET_DATA &&
           packet->type <= TUTTI_PACKET_ONE_ANSWER && packet->bytes <= max_payload;
}

/* Field after field: the wire has them where the struct has them. */
#define FIELDS(X)                                                                                                      \
    X(version)                                                                                                         \
    X(type)                                                                                                            \
    X(flags)                                                                                                           \
    X(credits)                                                                                                         \
    X(source) X(comm) X(epoch) X(slice) X(seq) X(call) X(fifo) X(bytes) X(signature) X(total) X(offset) X(count)

void tutti_packet_encode(const struct tutti_packet *packet, uint8_t out[TUTTI_PACKET_WIRE_BYTES])
{
#define PUT(field) tutti_le_store(out + offsetof(struct tutti_packet, field), sizeof packet->field, packet->field);
    FIELDS(PUT)
#undef PUT
}

enum tutti_status tutti_packet_decode(const uint8_t *bytes, size_t n, struct tutti_packet *out)
{
    struct tutti_packet p;
    if (n < TUTTI_PACKET_WIRE_BYTES)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a packet of %zu bytes is shorter than its head of %d", n,
                          TUTTI_PACKET_WIRE_BYTES);
#define GET(field)                                                                                                     \
    p.field = (__typeof__(p.field))tutti_le_load(bytes + offsetof(struct tutti_packet, field), sizeof p.field);
    FIELDS(GET)
#undef GET
    if (p.version != TUTTI_WIRE_VERSION)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a packet of wire version %u, this build speaks %d", p.version,
                          TUTTI_WIRE_VERSION);
    if (!tutti_packet_valid(&p, WIRE_MAX_PAYLOAD))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a packet of type %u with %u bytes of payload", p.type, p.bytes);
    *out = p;
    return TUTTI_OK;
}
