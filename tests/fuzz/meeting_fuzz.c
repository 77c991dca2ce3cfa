/* SPDX-License-Identifier: BSD-3-Clause */

/* The messages of a meeting. A message that decodes encodes to what decodes to the same; without its last byte, or with
 * one more, it is none; and whatever a stranger sends, the leader seats nobody and a member believes nothing. */

#include "control/meet/machine.h"
#include "fuzz.h"

static void no_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    (void)arg, (void)link, (void)bytes;
    FUZZ_CHECK(n <= TUTTI_MEETING_FRAME_MAX && !memory);
}

static void no_drop(void *arg, uint32_t link)
{
    (void)arg, (void)link;
}

static bool no_end(void *arg, uint32_t link)
{
    (void)arg, (void)link;
    return false;
}

static enum tutti_status zeros(void *arg, void *out, size_t n)
{
    (void)arg;
    memset(out, 0, n);
    return TUTTI_OK;
}

static uint64_t never_started(void *arg, int32_t pid)
{
    (void)arg, (void)pid;
    return 0;
}

static bool lives(void *arg, int32_t pid, uint64_t start)
{
    (void)arg, (void)pid, (void)start;
    return true;
}

/* The bytes twice: as HELLO and after it. */
static void check_machines(const uint8_t *bytes, size_t n, const char *secret)
{
    const struct tutti_meeting_out out = {NULL, no_send, no_drop, no_end, zeros, never_started, lives};
    const struct tutti_meeting_self self = {
        .n_ranks = 3, .pid = 1, .secret = secret, .version = "1", .host = 5, .deadline_ns = TUTTI_NEVER};
    struct tutti_meeting_leader leader;
    struct tutti_meeting_member member;
    if (tutti_leader_init(&leader, &self, &out, 2, 0) < 0) return;
    tutti_leader_opened(&leader, 0, 2, 0);
    tutti_leader_received(&leader, 0, bytes, n, 0);
    tutti_leader_received(&leader, 0, bytes, n, 0);
    FUZZ_CHECK(leader.n_seated == 1 && leader.phase <= TUTTI_LEADER_DECIDED);
    FUZZ_CHECK(leader.phase == TUTTI_LEADER_GATHERS || leader.verdict.text[0]);
    tutti_leader_fini(&leader);
    tutti_member_begin(&member, &self, &out);
    tutti_member_received(&member, bytes, n);
    FUZZ_CHECK(member.phase != TUTTI_MEMBER_GRANTED);
    FUZZ_CHECK(member.phase != TUTTI_MEMBER_OVER || member.error.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static uint8_t wire[TUTTI_MEETING_FRAME_MAX], twice[TUTTI_MEETING_FRAME_MAX];
    struct tutti_session open = {.secret = NULL};
    struct tutti_meeting_message message, back;
    tutti_log_threshold = TUTTI_LOG_ERROR; /* refusals are the rule */
    check_machines(bytes, n, NULL);
    if (tutti_hmac_available()) check_machines(bytes, n, "a secret");
    if (tutti_meeting_decode(bytes, n, &message) != TUTTI_OK) return 0;
    FUZZ_CHECK(tutti_meeting_decode(bytes, n - 1, &back) != TUTTI_OK);
    size_t bare = 0;
    FUZZ_CHECK(tutti_meeting_encode(&open, &message, wire, &bare) == TUTTI_OK);
    FUZZ_CHECK(bare + (message.is_signed ? TUTTI_HMAC_BYTES : 0) == n);
    FUZZ_CHECK(tutti_meeting_decode(wire, bare, &back) == TUTTI_OK);
    size_t again = 0;
    FUZZ_CHECK(tutti_meeting_encode(&open, &back, twice, &again) == TUTTI_OK);
    FUZZ_CHECK(again == bare && memcmp(twice, wire, bare) == 0 && strcmp(back.text, message.text) == 0);
    return 0;
}
