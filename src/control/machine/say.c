/* SPDX-License-Identifier: BSD-3-Clause */

/* What leaders and members have in common: their messages' fronts, and sentences. */

#include "control/machine/machine.h"

#include <stdio.h>
#include <string.h>

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
