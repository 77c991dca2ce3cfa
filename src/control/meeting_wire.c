/* SPDX-License-Identifier: BSD-3-Clause */

/* The messages of a meeting: sizes, checks, proofs and the sentence that names who is missing. Nothing here touches a
 * socket. */

#include "control/meeting.h"

#include <stdio.h>
#include <string.h>

#define MEETING_MAGIC UINT64_C(0x6774656d74747574) /* "tuttmetg" */
#define MISSING_LISTED 8

static const size_t message_bytes[TUTTI_MEETING_N_TYPES] = {
    [TUTTI_MEETING_HELLO] = sizeof(struct tutti_meeting_hello),
    [TUTTI_MEETING_CHALLENGE] = sizeof(struct tutti_meeting_challenge),
    [TUTTI_MEETING_PROOF] = sizeof(struct tutti_meeting_proof),
    [TUTTI_MEETING_VERDICT] = sizeof(struct tutti_meeting_verdict),
    [TUTTI_MEETING_ACK] = sizeof(struct tutti_meeting_verdict),
    [TUTTI_MEETING_ASK] = sizeof(struct tutti_meeting_ask),
};

size_t tutti_meeting_bytes(uint32_t type)
{
    return type < TUTTI_MEETING_N_TYPES ? message_bytes[type] : 0;
}

void tutti_meeting_head_fill(const struct tutti_meeting_request *request, enum tutti_meeting_type type,
                             struct tutti_meeting_head *head)
{
    memset(head, 0, message_bytes[type]);
    head->magic = MEETING_MAGIC;
    head->type = type;
    head->bytes = (uint32_t)message_bytes[type];
    head->build = request->build;
    snprintf(head->version, sizeof head->version, "%s", request->version);
}

enum tutti_status tutti_meeting_check(const struct tutti_meeting_request *request,
                                      const union tutti_meeting_message *message, size_t n)
{
    const struct tutti_meeting_head *head = &message->head;
    if (n < sizeof *head || head->magic != MEETING_MAGIC)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "%zu bytes that are no message of a meeting", n);
    if (head->build != request->build && head->version[0] >= '0' && head->version[0] <= '9')
        return tutti_fail(TUTTI_ERR_CONFIG, "another build of tutti: %.15s there, %s here; ranks must run the same one",
                          head->version, request->version);
    if (head->build != request->build || head->type == 0 || tutti_meeting_bytes(head->type) != n || head->bytes != n)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of type %u with %zu bytes can not be", head->type, n);
    return TUTTI_OK;
}

enum tutti_status tutti_meeting_prove(const char *secret, const char *side, const struct tutti_meeting_hello *hello,
                                      const struct tutti_meeting_challenge *challenge, uint8_t out[TUTTI_HMAC_BYTES])
{
    struct {
        char side[16];
        struct tutti_meeting_hello hello;
        struct tutti_meeting_challenge challenge;
    } message;
    memset(out, 0, TUTTI_HMAC_BYTES);
    if (!secret) return TUTTI_OK;
    memset(&message, 0, sizeof message);
    snprintf(message.side, sizeof message.side, "tutti %s", side);
    message.hello = *hello;
    message.challenge = *challenge;
    memset(message.challenge.proof, 0, sizeof message.challenge.proof);
    return tutti_hmac(secret, strlen(secret), &message, sizeof message, out);
}

uint32_t tutti_meeting_missing_text(const bool *here, uint32_t n, char *out, size_t capacity)
{
    uint32_t n_missing = 0, n_listed = 0;
    for (uint32_t rank = 0; rank < n; rank++) n_missing += !here[rank];
    uint32_t limit = n_missing <= MISSING_LISTED + 1 ? n_missing : MISSING_LISTED;
    int used = snprintf(out, capacity, n_missing == 1 ? "rank " : "ranks ");
    for (uint32_t rank = 0; rank < n && n_listed < limit && used >= 0 && (size_t)used < capacity; rank++) {
        if (here[rank]) continue;
        const char *before = n_listed == 0 ? "" : n_listed + 1 == n_missing ? " and " : ", ";
        used += snprintf(out + used, capacity - (size_t)used, "%s%u", before, rank);
        n_listed++;
    }
    if (n_listed < n_missing && used >= 0 && (size_t)used < capacity)
        snprintf(out + used, capacity - (size_t)used, " and %u more", n_missing - n_listed);
    return n_missing;
}
