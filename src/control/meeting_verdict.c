/* SPDX-License-Identifier: BSD-3-Clause */

/* The end of a meeting: the leader makes the segment, tells everybody, and sees to it that each one has it. A member
 * that can not take it ends the meeting for the others, who have it already, through the cards in it. */

#include "control/host/host.h"
#include "control/meeting.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define SLICE_NS (50 * TUTTI_NS_PER_MS)

/* A rank that is another process than the leader's, -1 if there is none. */
static int32_t rank_elsewhere(const struct tutti_meeting *m)
{
    for (int32_t rank = 0; rank < m->request->n_ranks; rank++)
        if (m->seats[rank].peer) return rank;
    return -1;
}

/* Makes the segment: plain memory when all ranks are threads of this process, else what processes can map. */
enum tutti_status tutti_meeting_decide(struct tutti_meeting *m, struct tutti_meeting_result *out)
{
    const struct tutti_meeting_request *mine = m->request;
    struct tutti_meeting_result result = {.segment = NULL};
    int32_t other = rank_elsewhere(m);
    const char *name;
    enum tutti_status status = tutti_transport_choose(mine->transport, other >= 0, &name, &result.shared);
    if (status == TUTTI_ERR_CONFIG)
        return tutti_fail(status,
                          "transport=%s needs all ranks in one process, but rank %d is process %d and rank %d process "
                          "%d: write transport=auto",
                          mine->transport, (int)mine->rank, (int)m->pid, (int)other, (int)m->seats[other].pid);
    if (status < 0) return status;
    TUTTI_TRY(tutti_random_bytes(&result.nonce, sizeof result.nonce));
    const struct tutti_segment_config config = {.n = (uint32_t)mine->n_ranks,
                                                .staging_bytes = mine->staging_bytes,
                                                .heap_bytes = mine->heap_bytes,
                                                .control_bytes = tutti_host_control_bytes((uint32_t)mine->n_ranks)};
    TUTTI_TRY(tutti_segment_create(&config, result.shared, &result.segment));
    for (uint32_t rank = 0; rank < config.n; rank++) tutti_card_expect(result.segment, rank, m->seats[rank].pid);
    *out = result;
    return TUTTI_OK;
}

/* ---- telling a failure ---- */

/* The others learn what went wrong; when the leader just withdraws they elect another one. */
static enum tutti_status deliver_failure(struct tutti_meeting *m)
{
    struct tutti_error error = m->verdict;
    struct tutti_meeting_verdict verdict;
    tutti_meeting_head_fill(m->request, TUTTI_MEETING_VERDICT, &verdict.head);
    verdict.status = error.status;
    verdict.peer = error.peer;
    memcpy(verdict.text, error.text, sizeof verdict.text);
    for (uint32_t i = 0; m->told && i < m->n_peers; i++) tutti_meeting_send(m->peers[i]->fd, &verdict, NULL);
    if (!m->told) error.status = TUTTI_AGAIN;
    for (int32_t rank = 0; rank < m->request->n_ranks; rank++) {
        struct tutti_meeting_seat *seat = &m->seats[rank];
        if (seat->ticket) tutti_meeting_ticket_done(seat->ticket, &error, NULL);
        seat->ticket = NULL;
    }
    return tutti_fail_record(&m->verdict);
}

/* ---- handing out the segment ---- */

static void deliver_tickets(struct tutti_meeting *m, const struct tutti_meeting_result *result)
{
    const struct tutti_error fine = {.status = TUTTI_OK, .peer = -1, .step = TUTTI_NO_STEP, .collective = ""};
    struct tutti_error withdrew;
    tutti_error_set(&withdrew, TUTTI_ERR_CANCELLED, "it withdrew while the ranks were meeting");
    for (int32_t rank = 0; rank < m->request->n_ranks; rank++) {
        struct tutti_meeting_seat *seat = &m->seats[rank];
        struct tutti_meeting_result copy = *result;
        if (!seat->ticket) continue;
        bool shared = tutti_segment_share(result->segment, &copy.segment) == TUTTI_OK;
        const struct tutti_error *error = shared ? &fine : tutti_last_error();
        bool delivered = tutti_meeting_ticket_done(seat->ticket, error, &copy);
        seat->ticket = NULL;
        if (!shared)
            tutti_card_fail(result->segment, (uint32_t)rank, error);
        else if (!delivered) {
            tutti_card_fail(result->segment, (uint32_t)rank, &withdrew);
            tutti_segment_release(copy.segment);
        }
    }
}

static void deliver_peers(struct tutti_meeting *m, const struct tutti_meeting_result *result)
{
    struct tutti_meeting_verdict verdict;
    int fds[2];
    tutti_segment_fds(result->segment, &fds[0], &fds[1]);
    tutti_meeting_head_fill(m->request, TUTTI_MEETING_VERDICT, &verdict.head);
    verdict.shared = result->shared;
    verdict.nonce = result->nonce;
    for (uint32_t i = 0; i < m->n_peers; i++) {
        struct tutti_meeting_peer *peer = m->peers[i];
        /* Others than the seated are strangers, or early for the next meeting: their connection just ends. A member
         * that can not be told is found by the missing ACK. */
        if (peer->state != TUTTI_PEER_SEATED) continue;
        tutti_meeting_send(peer->fd, &verdict, fds);
        peer->state = TUTTI_PEER_TOLD;
    }
}

/* OK: acknowledged. PENDING: not yet. Else the member's trouble is told to all. */
static enum tutti_status ack_take(struct tutti_meeting *m, struct tutti_meeting_peer *peer)
{
    union tutti_meeting_message message;
    char why[TUTTI_ERROR_TEXT];
    size_t n;
    enum tutti_status status = tutti_meeting_recv(peer->fd, &message, &n, NULL);
    if (status == TUTTI_PENDING) return status;
    if (status == TUTTI_AGAIN && tutti_meeting_process_ended(peer->pid))
        return tutti_meeting_fail_dead(peer->rank, peer->pid);
    if (status == TUTTI_OK) status = tutti_meeting_check(m->request, &message, n);
    if (status == TUTTI_OK && message.head.type == TUTTI_MEETING_ASK) return TUTTI_PENDING; /* crossed the verdict */
    if (status == TUTTI_OK && message.head.type == TUTTI_MEETING_ACK && message.verdict.status == TUTTI_OK) {
        peer->state = TUTTI_PEER_SEATED;
        return TUTTI_OK;
    }
    if (status == TUTTI_OK && message.head.type == TUTTI_MEETING_ACK) {
        message.verdict.text[sizeof message.verdict.text - 1] = '\0';
        snprintf(why, sizeof why, "%s", message.verdict.text);
    } else
        snprintf(why, sizeof why, "process %d went away while the ranks were meeting", (int)peer->pid);
    return tutti_fail(TUTTI_ERR_BOOTSTRAP, "rank %d could not join: %.380s", (int)peer->rank, why);
}

/* Waits until all members at sockets have the segment. */
static enum tutti_status acks_wait(struct tutti_meeting *m, int32_t *culprit)
{
    const struct tutti_meeting_request *mine = m->request;
    for (;;) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < m->n_peers; i++)
            if (m->peers[i]->state == TUTTI_PEER_TOLD)
                m->polls[n++] = (struct pollfd){.fd = m->peers[i]->fd, .events = POLLIN};
        if (n == 0) return TUTTI_OK;
        *culprit = mine->rank;
        TUTTI_TRY(tutti_meeting_patience(mine, "the ranks to map their shared memory"));
        poll(m->polls, n, (int)(SLICE_NS / TUTTI_NS_PER_MS));
        for (uint32_t i = 0; i < m->n_peers; i++) {
            if (m->peers[i]->state != TUTTI_PEER_TOLD) continue;
            *culprit = m->peers[i]->rank;
            TUTTI_TRY(ack_take(m, m->peers[i]));
        }
    }
}

enum tutti_status tutti_meeting_deliver(struct tutti_meeting *m, struct tutti_meeting_result *result)
{
    int32_t culprit = m->request->rank;
    if (m->verdict.status < 0) return deliver_failure(m);
    deliver_tickets(m, result);
    if (!result->shared) return TUTTI_OK;
    deliver_peers(m, result);
    enum tutti_status status = acks_wait(m, &culprit);
    if (status == TUTTI_OK) return status;
    tutti_card_fail(result->segment, (uint32_t)culprit, tutti_last_error());
    tutti_segment_release(result->segment);
    return status;
}
