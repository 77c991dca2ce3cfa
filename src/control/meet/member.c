/* SPDX-License-Identifier: BSD-3-Clause */

/* A member: says who it is, makes sure that the leader knows the secret before it shows that it does, and waits for the
 * verdict. */

#include "control/meet/machine.h"

#include <string.h>

#define GRACE_NS (2 * TUTTI_NS_PER_S) /* that an answer to ASK may take */

/* With the thread's record. */
static void over(struct tutti_meeting_member *m, enum tutti_status status)
{
    m->phase = TUTTI_MEMBER_OVER;
    if (status < 0)
        m->error = *tutti_last_error();
    else
        m->error = (struct tutti_error){.status = status, .peer = -1, .step = TUTTI_NO_STEP, .collective = ""};
}

static void message_send(struct tutti_meeting_member *m, const struct tutti_meeting_message *message)
{
    uint8_t bytes[TUTTI_MEETING_FRAME_MAX];
    size_t n;
    enum tutti_status status = tutti_meeting_encode(&m->session, message, bytes, &n);
    if (status < 0)
        over(m, status);
    else
        m->out.send(m->out.arg, 0, bytes, n, false);
}

void tutti_member_begin(struct tutti_meeting_member *m, const struct tutti_meeting_self *self,
                        const struct tutti_meeting_out *out)
{
    struct tutti_meeting_message hello;
    *m = (struct tutti_meeting_member){.self = *self, .out = *out, .session = {.secret = self->secret}};
    m->until_ns = self->deadline_ns;
    tutti_meeting_fill(self, TUTTI_MEETING_HELLO, &hello);
    hello.lost = self->lost;
    hello.lost.until_ns = 0; /* the leader decides how long it is awaited */
    enum tutti_status status = out->random(out->arg, hello.nonce, sizeof hello.nonce);
    if (status < 0) {
        over(m, status);
        return;
    }
    memcpy(m->session.nonces[0], hello.nonce, sizeof hello.nonce);
    message_send(m, &hello);
}

static enum tutti_status challenge_take(struct tutti_meeting_member *m, const struct tutti_meeting_message *challenge)
{
    struct tutti_meeting_message proof;
    if (challenge->type != TUTTI_MEETING_CHALLENGE)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of type %u where a challenge was due",
                          (unsigned)challenge->type);
    m->leader = (struct tutti_meeting_loss){.rank = challenge->rank, .pid = challenge->pid};
    m->phase = TUTTI_MEMBER_WAITS;
    tutti_meeting_fill(&m->self, TUTTI_MEETING_PROOF, &proof);
    proof.payload = m->self.card, proof.n_payload = m->self.n_card;
    message_send(m, &proof);
    return TUTTI_OK;
}

/* A refusal becomes this thread's record. */
static enum tutti_status verdict_take(struct tutti_meeting_member *m, const struct tutti_meeting_message *verdict)
{
    struct tutti_error error;
    if (verdict->type != TUTTI_MEETING_VERDICT || (verdict->status >= 0 && m->phase == TUTTI_MEMBER_GREETS))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of type %u out of turn from the leader of the meeting",
                          (unsigned)verdict->type);
    if (verdict->status < 0) {
        tutti_error_set(
            &error, verdict->status >= TUTTI_ERR_INTERNAL ? (enum tutti_status)verdict->status : TUTTI_ERR_BOOTSTRAP,
            "%s", verdict->text[0] ? verdict->text : "the meeting of the ranks failed");
        error.peer = verdict->peer;
        return tutti_fail_record(&error);
    }
    if (verdict->far &&
        (verdict->total == 0 || verdict->total > TUTTI_MEETING_TABLE_MAX || verdict->n_payload != sizeof m->digest))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a table of hosts of %u bytes can not be", verdict->total);
    m->phase = TUTTI_MEMBER_GRANTED;
    m->shared = verdict->shared, m->world = verdict->world;
    if (!verdict->far) return TUTTI_OK;
    m->n_table = verdict->total;
    memcpy(m->digest, verdict->payload, sizeof m->digest);
    return TUTTI_OK;
}

enum tutti_status tutti_member_table_check(const struct tutti_meeting_member *m, const uint8_t *bytes, size_t n)
{
    uint8_t digest[TUTTI_HMAC_BYTES];
    TUTTI_TRY(tutti_meeting_digest(&m->self, m->world, bytes, n, digest));
    if (n == m->n_table && tutti_hmac_equal(digest, m->digest)) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_PROTOCOL, "%zu bytes that are not the table of the rank that leads the meeting", n);
}

void tutti_member_received(struct tutti_meeting_member *m, const uint8_t *bytes, size_t n)
{
    struct tutti_meeting_message message;
    if (m->phase >= TUTTI_MEMBER_GRANTED) return;
    enum tutti_status status = tutti_meeting_read(&m->self, &m->session, bytes, n, &message);
    if (status == TUTTI_ERR_AUTH && message.type == TUTTI_MEETING_CHALLENGE)
        status =
            tutti_fail(TUTTI_ERR_AUTH, "rank %d (process %d), which leads the meeting, does not know rank %d's secret",
                       (int)message.rank, (int)message.pid, (int)m->self.rank);
    if (status == TUTTI_OK && m->phase == TUTTI_MEMBER_GREETS && message.type != TUTTI_MEETING_VERDICT)
        status = challenge_take(m, &message);
    else if (status == TUTTI_OK)
        status = verdict_take(m, &message);
    if (status < 0) over(m, status);
}

void tutti_member_closed(struct tutti_meeting_member *m)
{
    if (m->phase < TUTTI_MEMBER_GRANTED) over(m, TUTTI_AGAIN);
}

void tutti_member_tick(struct tutti_meeting_member *m, uint64_t now)
{
    struct tutti_meeting_message ask;
    if (m->phase >= TUTTI_MEMBER_GRANTED || now < m->until_ns) return;
    if (m->phase == TUTTI_MEMBER_WAITS) {
        tutti_meeting_fill(&m->self, TUTTI_MEETING_ASK, &ask);
        ask.patience_ms = (uint32_t)tutti_meeting_patience_ms(m->self.started_ns, m->self.deadline_ns);
        m->phase = TUTTI_MEMBER_ASKED;
        m->until_ns = now + GRACE_NS;
        message_send(m, &ask);
        return;
    }
    over(m,
         tutti_fail(TUTTI_ERR_TIMEOUT, "the rank that leads the meeting does not answer rank %d: " TUTTI_SAYS_TIMED_OUT,
                    (int)m->self.rank, tutti_meeting_patience_ms(m->self.started_ns, m->self.deadline_ns)));
}

void tutti_member_mapped(struct tutti_meeting_member *m, enum tutti_status status)
{
    struct tutti_meeting_message ack;
    tutti_meeting_fill(&m->self, TUTTI_MEETING_ACK, &ack);
    over(m, status);
    ack.status = status;
    if (status < 0) memcpy(ack.text, m->error.text, sizeof ack.text);
    message_send(m, &ack);
}
