/* SPDX-License-Identifier: BSD-3-Clause */
/* The packet on the wire: 80 bytes, little endian, field after field in the order of the struct. A decoder needs the
 * head alone: on a stream the payload follows once the head says how long it is. */

#include "transport/packet.h"

#define WIRE_MAX_PAYLOAD (UINT32_C(1) << 30)

static const char *const type_names[] = {
    [TUTTI_PACKET_DATA] = "data",         [TUTTI_PACKET_GRANT] = "grant",       [TUTTI_PACKET_CREDIT] = "credit",
    [TUTTI_PACKET_READ] = "read",         [TUTTI_PACKET_P2P] = "p2p",           [TUTTI_PACKET_P2P_GRANT] = "p2p-grant",
    [TUTTI_PACKET_P2P_DATA] = "p2p-data", [TUTTI_PACKET_P2P_READ] = "p2p-read",
};

const char *tutti_packet_type_name(uint8_t type)
{
    return type < TUTTI_ARRAY_LEN(type_names) && type_names[type] ? type_names[type] : "?";
}

bool tutti_packet_valid(const struct tutti_packet *packet, size_t max_payload)
{
    return packet->version == TUTTI_WIRE_VERSION && packet->type >= TUTTI_PACKET_DATA &&
           packet->type <= TUTTI_PACKET_P2P_READ && packet->bytes <= max_payload;
}

static uint8_t *put32(uint8_t *at, uint32_t x)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(x >> 8 * i);
    return at + 4;
}

static uint8_t *put64(uint8_t *at, uint64_t x)
{
    return put32(put32(at, (uint32_t)x), (uint32_t)(x >> 32));
}

static const uint8_t *get32(const uint8_t *at, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) *out |= (uint32_t)at[i] << 8 * i;
    return at + 4;
}

static const uint8_t *get64(const uint8_t *at, uint64_t *out)
{
    uint32_t low, high;
    at = get32(get32(at, &low), &high);
    *out = (uint64_t)high << 32 | low;
    return at;
}

void tutti_packet_encode(const struct tutti_packet *packet, uint8_t out[TUTTI_PACKET_WIRE_BYTES])
{
    out[0] = packet->version, out[1] = packet->type, out[2] = packet->flags, out[3] = packet->credits;
    uint8_t *at = put32(out + 4, packet->source);
    at = put64(at, packet->comm);
    at = put32(at, packet->epoch);
    at = put32(at, packet->slice);
    at = put64(at, packet->seq);
    at = put64(at, packet->call);
    at = put32(at, packet->fifo);
    at = put32(at, packet->bytes);
    at = put64(at, packet->signature);
    at = put64(at, packet->total);
    at = put64(at, packet->offset);
    put64(at, packet->count);
}

enum tutti_status tutti_packet_decode(const uint8_t *bytes, size_t n, struct tutti_packet *out)
{
    if (n < TUTTI_PACKET_WIRE_BYTES)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a packet of %zu bytes is shorter than its head of %d", n,
                          TUTTI_PACKET_WIRE_BYTES);
    struct tutti_packet p = {.version = bytes[0], .type = bytes[1], .flags = bytes[2], .credits = bytes[3]};
    const uint8_t *at = get32(bytes + 4, &p.source);
    at = get64(at, &p.comm);
    at = get32(at, &p.epoch);
    at = get32(at, &p.slice);
    at = get64(at, &p.seq);
    at = get64(at, &p.call);
    at = get32(at, &p.fifo);
    at = get32(at, &p.bytes);
    at = get64(at, &p.signature);
    at = get64(at, &p.total);
    at = get64(at, &p.offset);
    get64(at, &p.count);
    if (p.version != TUTTI_WIRE_VERSION)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a packet of wire version %u, this build speaks %d", p.version,
                          TUTTI_WIRE_VERSION);
    if (!tutti_packet_valid(&p, WIRE_MAX_PAYLOAD))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a packet of type %u with %u bytes of payload", p.type, p.bytes);
    *out = p;
    return TUTTI_OK;
}
