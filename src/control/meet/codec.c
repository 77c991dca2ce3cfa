/* SPDX-License-Identifier: BSD-3-Clause */

/* The messages of a meeting: as bytes, and what leaders and members have in common of them. */

#include "control/meet/codec.h"

#include "control/meet/machine.h"

#include <stdio.h>
#include <string.h>

enum { SIGNED = 1, SECRET = 2, SHARED = 4, FAR = 8, ALL_FLAGS = 15 };
enum { FRONT_BYTES = 32 };

#define PROTOCOL "tutti meeting 3"

static const uint8_t magic[4] = {'T', 'U', 'M', 'T'};

static int32_t load_int(const uint8_t *p)
{
    return (int32_t)(uint32_t)tutti_le_load(p, 4);
}

static void store_int(uint8_t *p, int32_t x)
{
    tutti_le_store(p, 4, (uint32_t)x);
}

/* ---- decoding ---- */

static enum tutti_status front_decode(const uint8_t *bytes, size_t n, struct tutti_meeting_message *out)
{
    if (n < FRONT_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "%zu bytes that are no message of a meeting", n);
    out->build = tutti_le_load(bytes + 8, 8);
    memcpy(out->release, bytes + 16, strnlen((const char *)bytes + 16, sizeof out->release - 1));
    for (char *c = out->release; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    if (bytes[4] != TUTTI_MEETING_VERSION)
        return tutti_fail(TUTTI_ERR_CONFIG, "a meeting of version %u, this build speaks %d", bytes[4],
                          TUTTI_MEETING_VERSION);
    out->type = bytes[5];
    if (out->type == 0 || out->type >= TUTTI_MEETING_N_TYPES || bytes[6] > ALL_FLAGS || bytes[7] != 0)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of a meeting of type %u with flags %u can not be", bytes[5],
                          bytes[6]);
    out->is_signed = (bytes[6] & SIGNED) != 0;
    out->has_secret = (bytes[6] & SECRET) != 0;
    out->shared = (bytes[6] & SHARED) != 0;
    out->far = (bytes[6] & FAR) != 0;
    return TUTTI_OK;
}

enum tutti_status tutti_meeting_decode(const uint8_t *bytes, size_t n, struct tutti_meeting_message *out)
{
    memset(out, 0, sizeof *out);
    TUTTI_TRY(front_decode(bytes, n, out));
    const size_t payload = n < TUTTI_MEETING_HEAD_BYTES ? 0 : tutti_le_load(bytes + 108, 2);
    const size_t text = n < TUTTI_MEETING_HEAD_BYTES ? 0 : tutti_le_load(bytes + 110, 2);
    if (payload > TUTTI_MEETING_PAYLOAD || text >= sizeof out->text ||
        n != TUTTI_MEETING_HEAD_BYTES + payload + text + (out->is_signed ? TUTTI_HMAC_BYTES : 0))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of a meeting of type %u with %zu bytes can not be",
                          (unsigned)out->type, n);
    out->rank = load_int(bytes + 32), out->n_ranks = load_int(bytes + 36), out->pid = load_int(bytes + 40);
    out->status = load_int(bytes + 44), out->peer = load_int(bytes + 48);
    out->patience_ms = (uint32_t)tutti_le_load(bytes + 52, 4);
    out->host = tutti_le_load(bytes + 56, 8), out->world = tutti_le_load(bytes + 64, 8);
    memcpy(out->nonce, bytes + 72, sizeof out->nonce);
    out->lost = (struct tutti_meeting_loss){.rank = load_int(bytes + 88),
                                            .pid = load_int(bytes + 92),
                                            .start = tutti_le_load(bytes + 96, 8),
                                            .until_ns = tutti_le_load(bytes + 104, 4) * TUTTI_NS_PER_MS};
    const uint8_t *at = bytes + TUTTI_MEETING_HEAD_BYTES;
    if (out->far) out->total = (uint32_t)tutti_le_load(bytes + 104, 4), out->lost.until_ns = 0;
    out->payload = at, out->n_payload = payload;
    at += payload;
    if (memchr(at, 0, text))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of a meeting with a zero byte in its text");
    memcpy(out->text, at, text);
    return TUTTI_OK;
}

/* ---- encoding ---- */

enum tutti_status tutti_meeting_encode(struct tutti_session *session, const struct tutti_meeting_message *message,
                                       uint8_t *out, size_t *bytes)
{
    const bool sign = session->secret && session->ready;
    const size_t text = strnlen(message->text, sizeof message->text - 1);
    uint8_t *at = out + TUTTI_MEETING_HEAD_BYTES;
    memset(out, 0, TUTTI_MEETING_HEAD_BYTES);
    memcpy(out, magic, sizeof magic);
    out[4] = TUTTI_MEETING_VERSION;
    out[5] = (uint8_t)message->type;
    out[6] = (uint8_t)((sign ? SIGNED : 0) | (message->has_secret ? SECRET : 0) | (message->shared ? SHARED : 0) |
                       (message->far ? FAR : 0));
    tutti_le_store(out + 8, 8, message->build);
    memcpy(out + 16, message->release, strnlen(message->release, sizeof message->release - 1));
    store_int(out + 32, message->rank), store_int(out + 36, message->n_ranks), store_int(out + 40, message->pid);
    store_int(out + 44, message->status), store_int(out + 48, message->peer);
    tutti_le_store(out + 52, 4, message->patience_ms);
    tutti_le_store(out + 56, 8, message->host), tutti_le_store(out + 64, 8, message->world);
    memcpy(out + 72, message->nonce, sizeof message->nonce);
    store_int(out + 88, message->lost.rank), store_int(out + 92, message->lost.pid);
    tutti_le_store(out + 96, 8, message->lost.start);
    tutti_le_store(out + 104, 4, message->far ? message->total : message->lost.until_ns / TUTTI_NS_PER_MS);
    tutti_le_store(out + 108, 2, message->n_payload);
    tutti_le_store(out + 110, 2, text);
    if (message->n_payload > 0) memcpy(at, message->payload, message->n_payload);
    at += message->n_payload;
    memcpy(at, message->text, text);
    *bytes = (size_t)(at - out) + text;
    if (!sign) return TUTTI_OK;
    TUTTI_TRY(tutti_session_sign(session, PROTOCOL, out, *bytes, out + *bytes));
    *bytes += TUTTI_HMAC_BYTES;
    return TUTTI_OK;
}

enum tutti_status tutti_meeting_verify(struct tutti_session *session, const uint8_t *bytes, size_t n,
                                       const struct tutti_meeting_message *message)
{
    const bool due = session->secret && session->ready;
    const size_t front = message->is_signed ? n - TUTTI_HMAC_BYTES : n;
    return tutti_session_check(session, due, PROTOCOL, bytes, front, message->is_signed ? bytes + front : NULL);
}

/* ---- fronts of messages, and sentences ---- */
/* What leaders and members have in common: their messages' fronts, and sentences. */

#define MISSING_LISTED 8

void tutti_meeting_fill(const struct tutti_meeting_self *self, enum tutti_meeting_type type,
                        struct tutti_meeting_message *out)
{
    memset(out, 0, sizeof *out);
    out->type = type;
    out->build = self->build, out->host = self->host;
    out->rank = self->rank, out->n_ranks = self->n_ranks, out->pid = self->pid;
    out->has_secret = self->secret != NULL;
    out->peer = -1;
    snprintf(out->release, sizeof out->release, "%s", self->version);
}

enum tutti_status tutti_meeting_digest(const struct tutti_meeting_self *self, uint64_t world, const uint8_t *bytes,
                                       size_t n, uint8_t out[TUTTI_HMAC_BYTES])
{
    char key[256];
    memset(out, 0, TUTTI_HMAC_BYTES);
    tutti_le_store(out, 8, tutti_hash64(bytes, n, world));
    if (!self->secret) return TUTTI_OK;
    /* A key of its own: nothing that is signed elsewhere can stand for a table. */
    const int length = snprintf(key, sizeof key, "table %016llx %.200s", (unsigned long long)world, self->secret);
    return tutti_hmac(key, (size_t)length, bytes, n, out);
}

enum tutti_status tutti_meeting_read(const struct tutti_meeting_self *self, struct tutti_session *session,
                                     const uint8_t *bytes, size_t n, struct tutti_meeting_message *out)
{
    enum tutti_status status = tutti_meeting_decode(bytes, n, out);
    if (status == TUTTI_ERR_CONFIG || (status == TUTTI_OK && out->build != self->build))
        return tutti_fail(TUTTI_ERR_CONFIG, "another build of tutti: %s there, %s here; ranks must run the same one",
                          out->release, self->version);
    if (status < 0) return status;
    if (out->type == TUTTI_MEETING_CHALLENGE && !session->server && !session->ready) {
        memcpy(session->nonces[1], out->nonce, sizeof out->nonce);
        session->ready = true;
    }
    return tutti_meeting_verify(session, bytes, n, out);
}

enum tutti_status tutti_meeting_fail_dead(int32_t rank, int32_t pid)
{
    struct tutti_error error;
    tutti_error_set(&error, TUTTI_ERR_PEER_DEAD,
                    "rank %d (process %d) died while the ranks were meeting: " TUTTI_SAYS_CLOSED, (int)rank, (int)pid);
    error.peer = rank;
    return tutti_fail_record(&error);
}

unsigned long long tutti_meeting_patience_ms(uint64_t started_ns, uint64_t deadline_ns)
{
    if (deadline_ns <= started_ns) return 0;
    const uint64_t ns = deadline_ns - started_ns;
    const uint64_t unit = ns < 10 * TUTTI_NS_PER_S ? 10 * TUTTI_NS_PER_MS : TUTTI_NS_PER_S;
    const uint64_t ms = (ns + unit / 2) / unit * (unit / TUTTI_NS_PER_MS);
    return ms < UINT32_MAX ? ms : UINT32_MAX;
}

uint32_t tutti_meeting_missing_text(uint32_t n, bool (*here)(const void *arg, uint32_t rank), const void *arg,
                                    char *out, size_t capacity)
{
    uint32_t n_missing = 0, n_listed = 0;
    for (uint32_t rank = 0; rank < n; rank++) n_missing += !here(arg, rank);
    uint32_t limit = n_missing <= MISSING_LISTED + 1 ? n_missing : MISSING_LISTED;
    int used = snprintf(out, capacity, n_missing == 1 ? "rank " : "ranks ");
    for (uint32_t rank = 0; rank < n && n_listed < limit && used >= 0 && (size_t)used < capacity; rank++) {
        if (here(arg, rank)) continue;
        const char *before = n_listed == 0 ? "" : n_listed + 1 == n_missing ? " and " : ", ";
        used += snprintf(out + used, capacity - (size_t)used, "%s%u", before, rank);
        n_listed++;
    }
    if (n_listed < n_missing && used >= 0 && (size_t)used < capacity)
        snprintf(out + used, capacity - (size_t)used, " and %u more", n_missing - n_listed);
    return n_missing;
}
