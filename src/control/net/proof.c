/* SPDX-License-Identifier: BSD-3-Clause */

/* Frames of the proof, and what each end makes of them. */

#include "control/net/proof.h"

#include <stdio.h>
#include <string.h>

#define PROTOCOL "tutti net 1"

enum { VERSION = 1, SECRET = 1 };

static const uint8_t magic[4] = {'T', 'U', 'N', 'E'};
static const uint8_t no_nonce[TUTTI_NONCE_BYTES];

/* ---- frames ---- */

void tutti_proof_encode(const struct tutti_proof_frame *frame, uint8_t out[TUTTI_PROOF_BYTES])
{
    memcpy(out, magic, sizeof magic);
    out[4] = VERSION, out[5] = (uint8_t)frame->type, out[6] = (uint8_t)frame->role;
    out[7] = frame->has_secret ? SECRET : 0;
    tutti_le_store(out + 8, 4, frame->from), tutti_le_store(out + 12, 4, frame->to);
    tutti_le_store(out + 16, 8, frame->world);
    memcpy(out + 24, frame->nonce, TUTTI_NONCE_BYTES);
    tutti_le_store(out + 40, 4, (uint32_t)frame->status), tutti_le_store(out + 44, 4, frame->accepted);
}

bool tutti_proof_may_be(const uint8_t *bytes, size_t n)
{
    return memcmp(bytes, magic, n < sizeof magic ? n : sizeof magic) == 0;
}

static bool is_role(unsigned role)
{
    return (role >= TUTTI_NET_CONTROL && role <= TUTTI_NET_WITNESS) ||
           (role >= TUTTI_NET_PATH && role < TUTTI_NET_PATH + TUTTI_NET_PATHS);
}

enum tutti_status tutti_proof_decode(const uint8_t bytes[TUTTI_PROOF_BYTES], struct tutti_proof_frame *out)
{
    const struct tutti_proof_frame frame = {.type = bytes[5],
                                            .role = bytes[6],
                                            .has_secret = bytes[7] == SECRET,
                                            .from = (uint32_t)tutti_le_load(bytes + 8, 4),
                                            .to = (uint32_t)tutti_le_load(bytes + 12, 4),
                                            .world = tutti_le_load(bytes + 16, 8),
                                            .status = (int32_t)(uint32_t)tutti_le_load(bytes + 40, 4),
                                            .accepted = (uint32_t)tutti_le_load(bytes + 44, 4)};
    if (!tutti_proof_may_be(bytes, sizeof magic))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "it does not speak the protocol of tutti");
    if (bytes[4] != VERSION)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "it speaks version %u of the protocol, this build %d", bytes[4], VERSION);
    const bool nonce = frame.type == TUTTI_PROOF_HELLO || frame.type == TUTTI_PROOF_CHALLENGE;
    if (frame.type < TUTTI_PROOF_HELLO || frame.type > TUTTI_PROOF_READY || !is_role(bytes[6]) || bytes[7] > SECRET ||
        (!nonce && memcmp(bytes + 24, no_nonce, sizeof no_nonce)) ||
        (frame.type != TUTTI_PROOF_READY && frame.status != 0) ||
        (frame.type != TUTTI_PROOF_PROOF && frame.accepted != 0))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a frame of type %u, role %u and flags %u can not be", bytes[5], bytes[6],
                          bytes[7]);
    *out = frame;
    memcpy(out->nonce, bytes + 24, TUTTI_NONCE_BYTES);
    return TUTTI_OK;
}

/* ---- the key ---- */

static void hex_write(const uint8_t mac[TUTTI_HMAC_BYTES], char *out)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < TUTTI_HMAC_BYTES; i++) out[2 * i] = hex[mac[i] >> 4], out[2 * i + 1] = hex[mac[i] & 15];
}

enum tutti_status tutti_proof_key_init(struct tutti_proof_key *key, const char *secret, uint64_t world)
{
    uint8_t label[24] = "tutti net key", mac[TUTTI_HMAC_BYTES];
    const size_t n = secret ? strlen(secret) : 0;
    tutti_le_store(label + 16, 8, world);
    memset(key, 0, sizeof *key);
    TUTTI_TRY(tutti_hmac(secret, n, label, sizeof label, mac));
    hex_write(mac, key->text);
    TUTTI_TRY(tutti_hmac(key->text, sizeof key->text - 1, "tutti net world", 15, mac));
    key->world = tutti_le_load(mac, 8);
    key->has_secret = secret != NULL;
    explicit_bzero(mac, sizeof mac);
    return TUTTI_OK;
}

void tutti_proof_key_fini(struct tutti_proof_key *key)
{
    explicit_bzero(key, sizeof *key);
}

/* ---- the ends ---- */

static enum tutti_status frame_make(struct tutti_proof *proof, enum tutti_proof_type type,
                                    const struct tutti_proof_frame *extra, struct tutti_proof_out *out)
{
    struct tutti_proof_frame frame = *extra;
    frame.type = type, frame.role = proof->role, frame.has_secret = proof->key->has_secret;
    frame.from = proof->me, frame.to = proof->peer, frame.world = proof->key->world;
    tutti_proof_encode(&frame, out->bytes);
    out->n = TUTTI_PROOF_BYTES;
    if (type == TUTTI_PROOF_HELLO) return TUTTI_OK;
    proof->session.secret = proof->text;
    TUTTI_TRY(tutti_session_sign(&proof->session, PROTOCOL, out->bytes, out->n, out->bytes + out->n));
    out->n = TUTTI_PROOF_SIGNED;
    return TUTTI_OK;
}

enum tutti_status tutti_proof_bind(struct tutti_proof *proof, const char *agreed)
{
    uint8_t mac[TUTTI_HMAC_BYTES];
    TUTTI_TRY(tutti_hmac(proof->text, sizeof proof->text - 1, agreed, strlen(agreed), mac));
    hex_write(mac, proof->text);
    explicit_bzero(mac, sizeof mac);
    return TUTTI_OK;
}

void tutti_proof_dial(struct tutti_proof *proof, const struct tutti_proof_key *key, enum tutti_net_role role,
                      uint32_t me, uint32_t peer, const uint8_t nonce[TUTTI_NONCE_BYTES], struct tutti_proof_out *out)
{
    struct tutti_proof_frame frame = {.status = 0};
    *proof = (struct tutti_proof){
        .key = key, .due = TUTTI_PROOF_CHALLENGE, .role = role, .me = me, .peer = peer, .n_members = UINT32_MAX};
    memcpy(proof->text, key->text, sizeof proof->text);
    memcpy(proof->session.nonces[0], nonce, TUTTI_NONCE_BYTES);
    memcpy(frame.nonce, nonce, TUTTI_NONCE_BYTES);
    frame_make(proof, TUTTI_PROOF_HELLO, &frame, out); /* without a MAC it can not fail */
}

void tutti_proof_accept(struct tutti_proof *proof, const struct tutti_proof_key *key, uint32_t me, uint32_t n_members,
                        const uint8_t nonce[TUTTI_NONCE_BYTES])
{
    *proof = (struct tutti_proof){
        .key = key, .session = {.server = true}, .due = TUTTI_PROOF_HELLO, .me = me, .n_members = n_members};
    memcpy(proof->text, key->text, sizeof proof->text);
    memcpy(proof->session.nonces[1], nonce, TUTTI_NONCE_BYTES);
}

/* Whether the frame shows the key of this end. That it has it, only its MAC proves. */
static enum tutti_status key_check(const struct tutti_proof *proof, const struct tutti_proof_frame *frame)
{
    if (frame->has_secret != proof->key->has_secret)
        return tutti_fail(TUTTI_ERR_AUTH, "it has %s secret, this rank has %s", frame->has_secret ? "a" : "no",
                          frame->has_secret ? "none" : "one");
    if (frame->world != proof->key->world)
        return tutti_fail(TUTTI_ERR_AUTH, "it is of another job, or has another secret");
    return TUTTI_OK;
}

/* HELLO: who is it, and is it of this world? Nothing is proved yet. Who has another key is challenged all the same: the
 * CHALLENGE does not verify there, so that its user hears at once what is wrong. */
static enum tutti_status hello_received(struct tutti_proof *proof, const struct tutti_proof_frame *hello,
                                        struct tutti_proof_out *out)
{
    struct tutti_proof_frame challenge = {.status = 0};
    if (hello->to != proof->me || hello->from == proof->me || hello->from >= proof->n_members)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "it calls itself rank %u and wants rank %u, this is rank %u of %u",
                          hello->from, hello->to, proof->me, proof->n_members);
    proof->role = hello->role, proof->peer = hello->from;
    memcpy(proof->session.nonces[0], hello->nonce, TUTTI_NONCE_BYTES);
    memcpy(challenge.nonce, proof->session.nonces[1], TUTTI_NONCE_BYTES);
    TUTTI_TRY(frame_make(proof, TUTTI_PROOF_CHALLENGE, &challenge, out));
    return key_check(proof, hello);
}

/* A signed frame: that of this connection, role and pair of members, and nothing else. */
static enum tutti_status signed_check(struct tutti_proof *proof, const uint8_t *bytes,
                                      const struct tutti_proof_frame *frame)
{
    TUTTI_TRY(key_check(proof, frame));
    if (frame->role != proof->role || frame->from != proof->peer || frame->to != proof->me)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a frame for another connection: from rank %u to rank %u", frame->from,
                          frame->to);
    if (frame->type == TUTTI_PROOF_CHALLENGE) memcpy(proof->session.nonces[1], frame->nonce, TUTTI_NONCE_BYTES);
    proof->session.secret = proof->text;
    return tutti_session_check(&proof->session, true, PROTOCOL, bytes, TUTTI_PROOF_BYTES, bytes + TUTTI_PROOF_BYTES);
}

enum tutti_status tutti_proof_received(struct tutti_proof *proof, const uint8_t *bytes, uint32_t accepted,
                                       struct tutti_proof_out *out)
{
    const struct tutti_proof_frame answer = {.accepted = accepted};
    struct tutti_proof_frame frame;
    out->n = 0;
    if (proof->proved) return tutti_fail(TUTTI_ERR_PROTOCOL, "a frame after the last one");
    TUTTI_TRY(tutti_proof_decode(bytes, &frame));
    if (frame.type != proof->due)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a frame of type %d where %d is due", (int)frame.type, (int)proof->due);
    if (frame.type != TUTTI_PROOF_HELLO) TUTTI_TRY(signed_check(proof, bytes, &frame));
    switch (frame.type) {
    case TUTTI_PROOF_HELLO:
        TUTTI_TRY(hello_received(proof, &frame, out));
        proof->due = TUTTI_PROOF_PROOF;
        break;
    case TUTTI_PROOF_CHALLENGE:
        TUTTI_TRY(frame_make(proof, TUTTI_PROOF_PROOF, &answer, out));
        proof->due = TUTTI_PROOF_READY;
        break;
    case TUTTI_PROOF_PROOF:
        proof->accepted = frame.accepted;
        proof->proved = true;
        break;
    case TUTTI_PROOF_READY:
        proof->status = frame.status;
        proof->proved = true;
        break;
    }
    return TUTTI_OK;
}

enum tutti_status tutti_proof_answer(struct tutti_proof *proof, enum tutti_status status, struct tutti_proof_out *out)
{
    const struct tutti_proof_frame answer = {.status = status};
    return frame_make(proof, TUTTI_PROOF_READY, &answer, out);
}

enum tutti_status tutti_proof_channel_key(const struct tutti_proof *proof, uint8_t out[TUTTI_HMAC_BYTES])
{
    uint8_t label[16 + sizeof proof->session.nonces] = "tutti channel";
    memcpy(label + 16, proof->session.nonces, sizeof proof->session.nonces);
    return tutti_hmac(proof->text, strlen(proof->text), label, sizeof label, out);
}
