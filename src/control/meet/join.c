/* SPDX-License-Identifier: BSD-3-Clause */

/* A member at the leader's socket: drives its machine, and takes the memory that comes with the verdict. */

#include "control/meet/meeting.h"
#include "transport/host/segment.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define GRACE_NS (600 * TUTTI_NS_PER_MS) /* for a leader to come again */

struct tutti_meeting_self tutti_meeting_self(const struct tutti_meeting_request *request,
                                             uint8_t card[TUTTI_CARD_RECORD_BYTES])
{
    struct tutti_meeting_self self = {.rank = request->rank,
                                      .n_ranks = request->n_ranks,
                                      .pid = (int32_t)getpid(),
                                      .secret = request->secret,
                                      .version = request->version,
                                      .build = request->build,
                                      .host = request->host,
                                      .started_ns = request->started_ns,
                                      .deadline_ns = request->deadline_ns};
    if (request->lost) self.lost = *request->lost;
    if (!request->card) return self;
    tutti_card_encode(request->card, card);
    self.card = card, self.n_card = TUTTI_CARD_RECORD_BYTES;
    return self;
}

struct tutti_meeting_loss tutti_meeting_loss_now(int32_t rank, int32_t pid)
{
    return (struct tutti_meeting_loss){
        .rank = rank, .pid = pid, .start = tutti_meeting_started(NULL, pid), .until_ns = tutti_deadline_ns(GRACE_NS)};
}

enum tutti_status tutti_meeting_time(const struct tutti_meeting_request *request, const char *waiting_for)
{
    if (tutti_meeting_cancelled(request))
        return tutti_fail(TUTTI_ERR_CANCELLED, "rank %d withdrew while it waited for %s", (int)request->rank,
                          waiting_for);
    if (tutti_now_ns() >= request->deadline_ns)
        return tutti_fail(TUTTI_ERR_TIMEOUT, "rank %d waited for %s: " TUTTI_SAYS_TIMED_OUT, (int)request->rank,
                          waiting_for, tutti_meeting_patience(request));
    return TUTTI_OK;
}

static void socket_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    (void)link, (void)memory;
    tutti_meeting_send(*(const int *)arg, bytes, n, NULL); /* a leader that is gone is told by recv */
}

/* Waits a little for the leader, and gives the machine what came. Descriptors stay for the verdict. */
static enum tutti_status step(int fd, struct tutti_meeting_member *member, int fds[2])
{
    uint8_t bytes[TUTTI_MEETING_FRAME_MAX + 1];
    struct pollfd event = {.fd = fd, .events = POLLIN};
    uint64_t now = tutti_now_ns(), rest = now < member->until_ns ? member->until_ns - now : 0;
    int came[2] = {-1, -1};
    size_t n;
    if (rest > TUTTI_MEETING_SLICE_NS) rest = TUTTI_MEETING_SLICE_NS;
    int k = poll(&event, 1, (int)((rest + TUTTI_NS_PER_MS - 1) / TUTTI_NS_PER_MS));
    if (k < 0 && errno != EINTR) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "poll failed at the meeting place");
    enum tutti_status status = k > 0 ? tutti_meeting_recv(fd, bytes, &n, came) : TUTTI_PENDING;
    if (status == TUTTI_OK && came[0] >= 0) {
        if (fds[0] >= 0) close(fds[0]), close(fds[1]);
        fds[0] = came[0], fds[1] = came[1];
    }
    now = tutti_now_ns();
    if (status == TUTTI_OK) tutti_member_received(member, bytes, n);
    if (status == TUTTI_AGAIN) tutti_member_closed(member);
    if (status < 0) return status;
    tutti_member_tick(member, now);
    return TUTTI_OK;
}

/* Maps what came with the verdict: the segment, or the table and its rows. */
static enum tutti_status grant_map(const struct tutti_meeting_member *member, int fds[2],
                                   struct tutti_meeting_result *result)
{
    if (fds[0] < 0) return tutti_fail(TUTTI_ERR_PROTOCOL, "a verdict without its memory");
    if (member->n_table == 0) {
        TUTTI_TRY(tutti_segment_attach(fds[0], fds[1], &result->segment));
        fds[0] = fds[1] = -1;
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_handout_map(fds[0], &result->table, &result->n_table));
    TUTTI_TRY(tutti_handout_map(fds[1], &result->rows, &result->n_rows));
    return tutti_member_table_check(member, result->table, result->n_table);
}

static enum tutti_status member_run(int fd, const struct tutti_meeting_request *request,
                                    struct tutti_meeting_member *member, struct tutti_meeting_result *out)
{
    const struct tutti_meeting_out edge = {.arg = &fd, .send = socket_send, .random = tutti_meeting_random};
    uint8_t card[TUTTI_CARD_RECORD_BYTES];
    const struct tutti_meeting_self self = tutti_meeting_self(request, card);
    struct tutti_meeting_result result = {.segment = NULL};
    enum tutti_status status = TUTTI_OK;
    int fds[2] = {-1, -1};
    tutti_member_begin(member, &self, &edge);
    while (status == TUTTI_OK && member->phase < TUTTI_MEMBER_GRANTED) {
        status =
            tutti_meeting_cancelled(request)
                ? tutti_fail(TUTTI_ERR_CANCELLED, "rank %d withdrew while the ranks were meeting", (int)request->rank)
                : step(fd, member, fds);
    }
    if (status == TUTTI_OK && member->phase == TUTTI_MEMBER_GRANTED) {
        result.shared = member->shared, result.nonce = member->world;
        tutti_member_mapped(member, grant_map(member, fds, &result)); /* and tells the leader how it went */
    }
    if (fds[0] >= 0) close(fds[0]), close(fds[1]);
    if (status == TUTTI_OK && member->error.status == TUTTI_OK) {
        *out = result;
        return TUTTI_OK;
    }
    tutti_handout_unmap(result.table, result.n_table);
    tutti_handout_unmap(result.rows, result.n_rows);
    if (status < 0) return status;
    return member->error.status < 0 ? tutti_fail_record(&member->error) : member->error.status;
}

/* The process that went: the relay's, as the kernel knows it, or the leader's, as it said itself. */
static void loss_keep(const struct tutti_meeting_member *member, int32_t relay, int32_t pid,
                      const struct tutti_meeting_request *request)
{
    const int32_t rank = relay >= 0 ? relay : member->leader.rank;
    if (relay < 0) pid = member->leader.pid;
    if (pid <= 0) return;
    tutti_log(TUTTI_LOG_INFO, "rank %d, which %s the meeting, is gone: electing another", (int)rank,
              relay >= 0 ? "passed on" : "led");
    if (request->lost) *request->lost = tutti_meeting_loss_now(rank, pid);
}

enum tutti_status tutti_meeting_join(int fd, int32_t relay, const struct tutti_meeting_request *request,
                                     struct tutti_meeting_result *out)
{
    struct tutti_meeting_member member = {.phase = TUTTI_MEMBER_GREETS};
    int32_t pid = 0;
    enum tutti_status status = tutti_meeting_peer(fd, &pid);
    if (status == TUTTI_OK) status = member_run(fd, request, &member, out);
    close(fd);
    if (status == TUTTI_AGAIN) loss_keep(&member, relay, pid, request);
    return status;
}
