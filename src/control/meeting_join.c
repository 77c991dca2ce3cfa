/* SPDX-License-Identifier: BSD-3-Clause */

/* A member at the leader's socket: says who it is, makes sure that the leader knows the secret before it shows that it
 * does, and waits for the verdict. */

#include "control/meeting.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GRACE_NS (2 * TUTTI_NS_PER_S) /* that an answer to ASK may take */

enum tutti_status tutti_meeting_patience(const struct tutti_meeting_request *request, const char *waiting_for)
{
    uint64_t now = tutti_now_ns();
    if (request->cancel && *request->cancel)
        return tutti_fail(TUTTI_ERR_CANCELLED, "rank %d withdrew while it waited for %s", (int)request->rank,
                          waiting_for);
    if (now >= request->deadline_ns)
        return tutti_fail(TUTTI_ERR_TIMEOUT, "rank %d waited %.7g s for %s", (int)request->rank,
                          tutti_meeting_patience_s(request), waiting_for);
    return TUTTI_OK;
}

/* Waits for one whole message of our build. AGAIN: the leader is gone. */
static enum tutti_status message_wait(int fd, const struct tutti_meeting_request *request, uint64_t deadline_ns,
                                      union tutti_meeting_message *message, int fds[2])
{
    enum tutti_status status;
    size_t n;
    do {
        status = tutti_meeting_wait(fd, deadline_ns, request->cancel);
        if (status == TUTTI_OK) status = tutti_meeting_recv(fd, message, &n, fds);
    } while (status == TUTTI_PENDING);
    if (status == TUTTI_ERR_CANCELLED)
        return tutti_fail(status, "rank %d withdrew while the ranks were meeting", (int)request->rank);
    if (status == TUTTI_ERR_TIMEOUT)
        return tutti_fail(status, "rank %d waited %.7g s, and the rank that leads the meeting does not answer",
                          (int)request->rank, tutti_meeting_patience_s(request));
    if (status != TUTTI_OK) return status;
    status = tutti_meeting_check(request, message, n);
    message->verdict.text[sizeof message->verdict.text - 1] = '\0';
    return status;
}

/* A verdict that is a refusal becomes this thread's record. */
static enum tutti_status verdict_refusal(const struct tutti_meeting_verdict *verdict)
{
    if (verdict->status >= 0)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the leader of the meeting sent a verdict out of turn");
    enum tutti_status status =
        verdict->status >= TUTTI_ERR_INTERNAL ? (enum tutti_status)verdict->status : TUTTI_ERR_BOOTSTRAP;
    struct tutti_error error;
    tutti_error_set(&error, status, "%s", verdict->text);
    error.peer = verdict->peer;
    return tutti_fail_record(&error);
}

/* HELLO, CHALLENGE, PROOF. Who leads is known when all of that is done. */
static enum tutti_status introduce(int fd, const struct tutti_meeting_request *request,
                                   struct tutti_meeting_loss *leader)
{
    union tutti_meeting_message answer = {.head = {.type = 0}};
    struct tutti_meeting_hello hello;
    struct tutti_meeting_proof proof;
    uint8_t expected[TUTTI_HMAC_BYTES];
    const struct tutti_meeting_challenge *challenge = &answer.challenge;
    tutti_meeting_head_fill(request, TUTTI_MEETING_HELLO, &hello.head);
    hello.host = request->host;
    hello.rank = request->rank;
    hello.n_ranks = request->n_ranks;
    hello.pid = (int32_t)getpid();
    hello.has_secret = request->secret != NULL;
    if (request->lost) hello.lost = *request->lost;
    TUTTI_TRY(tutti_random_bytes(hello.nonce, sizeof hello.nonce));
    enum tutti_status status = tutti_meeting_send(fd, &hello, NULL);
    if (status == TUTTI_OK) status = message_wait(fd, request, request->deadline_ns, &answer, NULL);
    if (status != TUTTI_OK) return status;
    if (answer.head.type == TUTTI_MEETING_VERDICT) return verdict_refusal(&answer.verdict);
    if (answer.head.type != TUTTI_MEETING_CHALLENGE)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of type %u where a challenge was due", answer.head.type);
    TUTTI_TRY(tutti_meeting_prove(request->secret, "leader", &hello, challenge, expected));
    if ((challenge->has_secret != 0) != (request->secret != NULL) || !tutti_hmac_equal(expected, challenge->proof))
        return tutti_fail(TUTTI_ERR_AUTH,
                          "rank %d (process %d), which leads the meeting, does not know rank %d's secret",
                          (int)challenge->rank, (int)challenge->pid, (int)request->rank);
    tutti_meeting_head_fill(request, TUTTI_MEETING_PROOF, &proof.head);
    TUTTI_TRY(tutti_meeting_prove(request->secret, "member", &hello, challenge, proof.proof));
    TUTTI_TRY(status = tutti_meeting_send(fd, &proof, NULL));
    if (status == TUTTI_OK) leader->rank = challenge->rank, leader->pid = challenge->pid;
    return status;
}

/* Waits for the verdict; when our deadline passes, the leader is asked who is missing. */
static enum tutti_status verdict_wait(int fd, const struct tutti_meeting_request *request,
                                      union tutti_meeting_message *answer, int fds[2])
{
    struct tutti_meeting_ask ask;
    enum tutti_status status = message_wait(fd, request, request->deadline_ns, answer, fds);
    if (status != TUTTI_ERR_TIMEOUT) return status;
    tutti_meeting_head_fill(request, TUTTI_MEETING_ASK, &ask.head);
    ask.patience_s = tutti_meeting_patience_s(request);
    status = tutti_meeting_send(fd, &ask, NULL);
    if (status < 0) return status; /* AGAIN: gone, but its verdict may lie here */
    return message_wait(fd, request, tutti_deadline_ns(GRACE_NS), answer, fds);
}

/* Maps what came with the verdict and tells the leader how it went. Takes over the descriptors. */
static enum tutti_status segment_take(int fd, const struct tutti_meeting_request *request,
                                      const struct tutti_meeting_verdict *verdict, const int fds[2],
                                      struct tutti_meeting_result *out)
{
    struct tutti_meeting_result result = {.shared = verdict->shared != 0, .nonce = verdict->nonce};
    struct tutti_meeting_verdict ack;
    enum tutti_status status = fds[0] < 0 ? tutti_fail(TUTTI_ERR_PROTOCOL, "a verdict without the segment's memory")
                                          : tutti_segment_attach(fds[0], fds[1], &result.segment);
    tutti_meeting_head_fill(request, TUTTI_MEETING_ACK, &ack.head);
    ack.status = status;
    if (status < 0) memcpy(ack.text, tutti_last_error()->text, sizeof ack.text);
    tutti_meeting_send(fd, &ack, NULL); /* a leader that is gone is noticed through the cards */
    if (status < 0) {
        if (fds[0] >= 0) close(fds[0]), close(fds[1]);
        return status;
    }
    *out = result;
    return TUTTI_OK;
}

static enum tutti_status member_run(int fd, const struct tutti_meeting_request *request,
                                    struct tutti_meeting_loss *leader, struct tutti_meeting_result *out)
{
    union tutti_meeting_message answer = {.head = {.type = 0}};
    int fds[2] = {-1, -1};
    enum tutti_status status = introduce(fd, request, leader);
    if (status != TUTTI_OK) return status;
    status = verdict_wait(fd, request, &answer, fds);
    if (status == TUTTI_OK && answer.head.type != TUTTI_MEETING_VERDICT)
        status = tutti_fail(TUTTI_ERR_PROTOCOL, "a message of type %u where a verdict was due", answer.head.type);
    if (status == TUTTI_OK && answer.verdict.status == TUTTI_OK)
        return segment_take(fd, request, &answer.verdict, fds, out);
    if (status == TUTTI_OK) status = verdict_refusal(&answer.verdict);
    if (fds[0] >= 0) close(fds[0]), close(fds[1]);
    return status;
}

enum tutti_status tutti_meeting_join(int fd, const struct tutti_meeting_request *request,
                                     struct tutti_meeting_result *out)
{
    struct tutti_meeting_loss leader = {.pid = 0};
    enum tutti_status status = member_run(fd, request, &leader, out);
    close(fd);
    if (status == TUTTI_AGAIN && leader.pid > 0) {
        tutti_log(TUTTI_LOG_INFO, "rank %d, which led the meeting, is gone: electing another", (int)leader.rank);
        if (request->lost) *request->lost = tutti_meeting_loss_now(leader.rank, leader.pid);
    }
    return status;
}
