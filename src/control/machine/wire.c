/* SPDX-License-Identifier: BSD-3-Clause */

/* Frames of a meeting. Nothing here touches a socket. */

#include "control/machine/wire.h"

#include <string.h>

enum { SIGNED = 1, SECRET = 2, SHARED = 4, ALL_FLAGS = 7 };
enum { FRONT_BYTES = 32, HOST_BYTES = 16 };

static const uint8_t magic[4] = {'T', 'U', 'M', 'T'};

static uint64_t load_le(const uint8_t *p, unsigned n)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < n; i++) x |= (uint64_t)p[i] << (8 * i);
    return x;
}

static void store_le(uint8_t *p, unsigned n, uint64_t x)
{
    for (unsigned i = 0; i < n; i++) p[i] = (uint8_t)(x >> (8 * i));
}

static int32_t load_int(const uint8_t *p)
{
    return (int32_t)(uint32_t)load_le(p, 4);
}

static void store_int(uint8_t *p, int32_t x)
{
    store_le(p, 4, (uint32_t)x);
}

/* ---- decoding ---- */

static enum tutti_status front_decode(const uint8_t *bytes, size_t n, struct tutti_meeting_message *out)
{
    if (n < FRONT_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "%zu bytes that are no message of a meeting", n);
    out->build = load_le(bytes + 8, 8);
    memcpy(out->release, bytes + 16, strnlen((const char *)bytes + 16, sizeof out->release - 1));
    for (char *c = out->release; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    if (bytes[4] != TUTTI_MEETING_WIRE_VERSION)
        return tutti_fail(TUTTI_ERR_CONFIG, "a meeting of version %u, this build speaks %d", bytes[4],
                          TUTTI_MEETING_WIRE_VERSION);
    out->type = bytes[5];
    if (out->type == 0 || out->type >= TUTTI_MEETING_N_TYPES || bytes[6] > ALL_FLAGS || bytes[7] != 0)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of a meeting of type %u with flags %u can not be", bytes[5],
                          bytes[6]);
    out->is_signed = (bytes[6] & SIGNED) != 0;
    out->has_secret = (bytes[6] & SECRET) != 0;
    out->shared = (bytes[6] & SHARED) != 0;
    return TUTTI_OK;
}

enum tutti_status tutti_meeting_decode(const uint8_t *bytes, size_t n, struct tutti_meeting_message *out)
{
    memset(out, 0, sizeof *out);
    TUTTI_TRY(front_decode(bytes, n, out));
    const size_t n_hosts = n < TUTTI_MEETING_HEAD_BYTES ? 0 : load_le(bytes + 108, 2);
    const size_t text = n < TUTTI_MEETING_HEAD_BYTES ? 0 : load_le(bytes + 110, 2);
    if (n_hosts > TUTTI_MEETING_HOSTS || text >= sizeof out->text ||
        n != TUTTI_MEETING_HEAD_BYTES + HOST_BYTES * n_hosts + text + (out->is_signed ? TUTTI_HMAC_BYTES : 0))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of a meeting of type %u with %zu bytes can not be",
                          (unsigned)out->type, n);
    out->rank = load_int(bytes + 32), out->n_ranks = load_int(bytes + 36), out->pid = load_int(bytes + 40);
    out->status = load_int(bytes + 44), out->peer = load_int(bytes + 48);
    out->patience_ms = (uint32_t)load_le(bytes + 52, 4);
    out->host = load_le(bytes + 56, 8), out->world = load_le(bytes + 64, 8);
    memcpy(out->nonce, bytes + 72, sizeof out->nonce);
    out->lost = (struct tutti_meeting_loss){.rank = load_int(bytes + 88),
                                            .pid = load_int(bytes + 92),
                                            .start = load_le(bytes + 96, 8),
                                            .until_ns = load_le(bytes + 104, 4) * TUTTI_NS_PER_MS};
    const uint8_t *at = bytes + TUTTI_MEETING_HEAD_BYTES;
    out->n_hosts = (uint32_t)n_hosts;
    for (size_t i = 0; i < n_hosts; i++, at += HOST_BYTES)
        out->hosts[i] = (struct tutti_meeting_host){load_le(at, 8), load_int(at + 8), (uint32_t)load_le(at + 12, 4)};
    if (memchr(at, 0, text))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of a meeting with a zero byte in its text");
    memcpy(out->text, at, text);
    return TUTTI_OK;
}

/* ---- signing ---- */

/* The key of a connection's direction and place; then the MAC of the frame with it. */
static enum tutti_status frame_mac(const struct tutti_meeting_session *session, bool to_leader, uint64_t number,
                                   const uint8_t *bytes, size_t n, uint8_t out[TUTTI_HMAC_BYTES])
{
    uint8_t context[16 + 2 * TUTTI_MEETING_NONCE + 8] = "tutti meeting1";
    uint8_t key[TUTTI_HMAC_BYTES];
    context[15] = to_leader;
    memcpy(context + 16, session->nonces, sizeof session->nonces);
    store_le(context + 16 + sizeof session->nonces, 8, number);
    TUTTI_TRY(tutti_hmac(session->secret, strlen(session->secret), context, sizeof context, key));
    enum tutti_status status = tutti_hmac(key, sizeof key, bytes, n, out);
    explicit_bzero(key, sizeof key);
    return status;
}

enum tutti_status tutti_meeting_encode(struct tutti_meeting_session *session,
                                       const struct tutti_meeting_message *message, uint8_t *out, size_t *bytes)
{
    const bool sign = session->secret && session->ready;
    const size_t text = strnlen(message->text, sizeof message->text - 1);
    uint8_t *at = out + TUTTI_MEETING_HEAD_BYTES;
    memset(out, 0, TUTTI_MEETING_HEAD_BYTES);
    memcpy(out, magic, sizeof magic);
    out[4] = TUTTI_MEETING_WIRE_VERSION;
    out[5] = (uint8_t)message->type;
    out[6] = (uint8_t)((sign ? SIGNED : 0) | (message->has_secret ? SECRET : 0) | (message->shared ? SHARED : 0));
    store_le(out + 8, 8, message->build);
    memcpy(out + 16, message->release, strnlen(message->release, sizeof message->release - 1));
    store_int(out + 32, message->rank), store_int(out + 36, message->n_ranks), store_int(out + 40, message->pid);
    store_int(out + 44, message->status), store_int(out + 48, message->peer);
    store_le(out + 52, 4, message->patience_ms);
    store_le(out + 56, 8, message->host), store_le(out + 64, 8, message->world);
    memcpy(out + 72, message->nonce, sizeof message->nonce);
    store_int(out + 88, message->lost.rank), store_int(out + 92, message->lost.pid);
    store_le(out + 96, 8, message->lost.start);
    store_le(out + 104, 4, message->lost.until_ns / TUTTI_NS_PER_MS);
    store_le(out + 108, 2, message->n_hosts);
    store_le(out + 110, 2, text);
    for (uint32_t i = 0; i < message->n_hosts; i++, at += HOST_BYTES) {
        store_le(at, 8, message->hosts[i].id);
        store_int(at + 8, message->hosts[i].leader);
        store_le(at + 12, 4, message->hosts[i].n);
    }
    memcpy(at, message->text, text);
    *bytes = (size_t)(at - out) + text;
    if (!sign) return TUTTI_OK;
    TUTTI_TRY(frame_mac(session, !session->leader, session->n_sent, out, *bytes, out + *bytes));
    *bytes += TUTTI_HMAC_BYTES;
    session->n_sent++;
    return TUTTI_OK;
}

enum tutti_status tutti_meeting_verify(struct tutti_meeting_session *session, const uint8_t *bytes, size_t n,
                                       const struct tutti_meeting_message *message)
{
    uint8_t expected[TUTTI_HMAC_BYTES];
    const bool due = session->secret && session->ready;
    if (due != message->is_signed)
        return tutti_fail(TUTTI_ERR_AUTH, "the other side has %s secret, this side has %s", due ? "no" : "a",
                          due ? "one" : "none");
    if (!due) return TUTTI_OK;
    const size_t front = n - TUTTI_HMAC_BYTES;
    TUTTI_TRY(frame_mac(session, session->leader, session->n_received, bytes, front, expected));
    if (!tutti_hmac_equal(expected, bytes + front))
        return tutti_fail(TUTTI_ERR_AUTH, "a message of the meeting does not verify: the secrets differ");
    session->n_received++;
    return TUTTI_OK;
}
