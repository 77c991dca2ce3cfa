/* SPDX-License-Identifier: BSD-3-Clause */

/* The leader of a meeting: lets ranks in, seats them, and ends when all have come, when two of them contradict one
 * another, or when somebody's deadline passes. Peers that do not verify are refused and logged, and the others do not
 * notice. */

#include "control/meet/machine.h"

#include <stdio.h>
#include <string.h>

#define OPENING_NS (10 * TUTTI_NS_PER_S) /* that a connection may take to prove itself */
#define LOG_NS TUTTI_NS_PER_S
#define MISSED_NS (10 * TUTTI_NS_PER_S)       /* until the log is told who is missing, */
#define MISSED_AGAIN_NS (60 * TUTTI_NS_PER_S) /* and between two such lines */
#define GRACE_NS (600 * TUTTI_NS_PER_MS)      /* for a rank to come again; a death is told within 1 s */
#define LOOK_NS (5 * TUTTI_NS_PER_MS)         /* between looks at all links */
#define HIDDEN UINT64_MAX                     /* start of a process that the kernel does not show here */
#define ENDING_NS (200 * TUTTI_NS_PER_MS)     /* from the end of its connections to the end of a process */

/* Ends the meeting for all who have come, with the thread's record; after the verdict, because of `culprit`. */
void tutti_leader_fail(struct tutti_meeting_leader *l, bool told)
{
    if (l->phase == TUTTI_LEADER_OVER || l->verdict.status < 0) return;
    l->phase = l->phase == TUTTI_LEADER_TELLS ? TUTTI_LEADER_OVER : TUTTI_LEADER_DECIDED;
    l->verdict = *tutti_last_error();
    l->told = told;
}

static void message_send(struct tutti_meeting_leader *l, uint32_t link, const struct tutti_meeting_message *message,
                         bool memory)
{
    uint8_t bytes[TUTTI_MEETING_FRAME_MAX];
    size_t n;
    if (tutti_meeting_encode(&l->links[link].session, message, bytes, &n) == TUTTI_OK)
        l->out.send(l->out.arg, link, bytes, n, memory);
}

/* ---- who had come and went ---- */

static void loss_forget(struct tutti_meeting_leader *l, struct tutti_meeting_seat *seat)
{
    l->n_lost -= seat->lost.pid > 0;
    seat->lost.pid = 0;
}

/* Does nothing when the rank has its seat, or is known to have gone, or when the loss is nobody's. */
static void loss_note(struct tutti_meeting_leader *l, const struct tutti_meeting_loss *loss, uint64_t now)
{
    if (loss->pid <= 0 || loss->rank < 0 || loss->rank >= l->self.n_ranks) return;
    struct tutti_meeting_seat *seat = &l->seats[loss->rank];
    if (seat->taken || seat->lost.pid > 0) return; /* it has come again, or is known */
    seat->lost = *loss;
    if (loss->until_ns == 0 || loss->until_ns > now + GRACE_NS) seat->lost.until_ns = now + GRACE_NS;
    l->n_lost++;
}

/* The connection is all that is known of a process of another host. */
static bool is_dead(const struct tutti_meeting_leader *l, uint64_t host, int32_t pid, uint64_t start)
{
    return (host != 0 && host != l->self.host) || start == HIDDEN || !l->out.alive(l->out.arg, pid, start);
}

static void card_keep(struct tutti_meeting_seat *seat, const uint8_t *card, size_t n)
{
    seat->n_card = (uint16_t)n;
    if (n > 0) memcpy(seat->card, card, n);
}

enum tutti_status tutti_leader_init(struct tutti_meeting_leader *l, const struct tutti_meeting_self *self,
                                    const struct tutti_meeting_out *out, uint32_t max_links, uint64_t now)
{
    const uint32_t n = (uint32_t)self->n_ranks;
    *l = (struct tutti_meeting_leader){.self = *self, .out = *out, .max_links = max_links, .n_seated = 1};
    l->culprit = self->rank;
    l->missed_ns = now + MISSED_NS;
    l->seats = tutti_alloc_array(n, sizeof *l->seats);
    l->links = tutti_alloc_array(max_links, sizeof *l->links);
    if (!l->seats || !l->links) {
        tutti_leader_fini(l);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a meeting of %u ranks", n);
    }
    l->seats[self->rank] = (struct tutti_meeting_seat){.taken = true, .link = -1, .pid = self->pid, .host = self->host};
    card_keep(&l->seats[self->rank], self->card, self->n_card);
    loss_note(l, &self->lost, now);
    return TUTTI_OK;
}

void tutti_leader_fini(struct tutti_meeting_leader *l)
{
    tutti_free(l->links);
    tutti_free(l->seats);
    l->links = NULL, l->seats = NULL;
}

/* PEER_DEAD when a seat has been kept until now (TUTTI_NEVER: long enough), and its process is gone. */
static enum tutti_status losses_check(struct tutti_meeting_leader *l, uint64_t now)
{
    for (int32_t rank = 0; l->n_lost > 0 && rank < l->self.n_ranks; rank++) {
        struct tutti_meeting_seat *seat = &l->seats[rank];
        const struct tutti_meeting_loss *lost = &seat->lost;
        if (lost->pid <= 0 || now < lost->until_ns) continue;
        if (is_dead(l, seat->host, lost->pid, lost->start)) return tutti_meeting_fail_dead(rank, lost->pid);
        loss_forget(l, seat); /* it lives, and withdrew: it is awaited like any other */
    }
    return TUTTI_OK;
}

static bool is_here(const void *arg, uint32_t rank)
{
    const struct tutti_meeting_leader *l = arg;
    return l->seats[rank].taken;
}

/* What the sentence of a timeout and the log say of those who are missing: "; refused: ...", or nothing. */
static const char *refusal_say(const struct tutti_meeting_leader *l, char *out, size_t capacity)
{
    snprintf(out, capacity, "%s%s%s%s", l->refusal[0] ? "; refused: " : "", l->refusal,
             l->self.alone_because ? "; ranks of other hosts can not come: " : "",
             l->self.alone_because ? l->self.alone_because : "");
    return out;
}

static void time_is_over(struct tutti_meeting_leader *l, unsigned long long patience_ms)
{
    char missing[160], refused[TUTTI_ERROR_TEXT];
    const uint32_t n = (uint32_t)l->self.n_ranks;
    if (losses_check(l, TUTTI_NEVER) == TUTTI_OK) { /* a dead rank need not be awaited any more */
        tutti_meeting_missing_text(n, is_here, l, missing, sizeof missing);
        if (l->n_seated == n)
            tutti_fail(TUTTI_ERR_TIMEOUT, "all %u ranks arrived, but did not agree: " TUTTI_SAYS_TIMED_OUT, n,
                       patience_ms);
        else
            tutti_fail(TUTTI_ERR_TIMEOUT, "%s did not arrive: " TUTTI_SAYS_TIMED_OUT "%s", missing, patience_ms,
                       refusal_say(l, refused, sizeof refused));
    }
    tutti_leader_fail(l, true);
}

/* A start that hangs is told of long before its deadline. */
static void missed_log(struct tutti_meeting_leader *l, uint64_t now)
{
    char missing[160], refused[TUTTI_ERROR_TEXT];
    const uint32_t n = (uint32_t)l->self.n_ranks;
    if (now < l->missed_ns) return;
    l->missed_ns = now + MISSED_AGAIN_NS;
    tutti_meeting_missing_text(n, is_here, l, missing, sizeof missing);
    tutti_log(TUTTI_LOG_WARN, "%u of %u ranks have come in %llu s; missing: %s%s", l->n_seated, n,
              (unsigned long long)((now - l->self.started_ns) / TUTTI_NS_PER_S), missing,
              refusal_say(l, refused, sizeof refused));
}

/* ---- links ---- */

static void link_free(struct tutti_meeting_leader *l, uint32_t link)
{
    struct tutti_meeting_link *k = &l->links[link];
    if (k->rank >= 0 && l->seats[k->rank].taken && l->seats[k->rank].link == (int32_t)link) {
        l->seats[k->rank].taken = false;
        l->n_seated--;
    }
    memset(k, 0, sizeof *k);
}

static void link_drop(struct tutti_meeting_leader *l, uint32_t link)
{
    link_free(l, link);
    l->out.drop(l->out.arg, link);
}

void tutti_leader_opened(struct tutti_meeting_leader *l, uint32_t link, int32_t pid, uint64_t now)
{
    l->links[link] = (struct tutti_meeting_link){
        .state = TUTTI_LINK_FRESH,
        .pid = pid,
        .rank = -1,
        .until_ns = now + OPENING_NS,
        .session = {.secret = l->self.secret, .server = true},
    };
}

void tutti_leader_from(struct tutti_meeting_leader *l, uint32_t link, const char *address)
{
    snprintf(l->links[link].from, sizeof l->links[link].from, "%s", address);
}

/* The process at the link: "process 7", "process 7 at 10.0.0.2", or "10.0.0.2", which has not said more. */
static const char *peer_say(const struct tutti_meeting_link *k, char out[72])
{
    if (k->pid == 0 && k->from[0]) return k->from;
    snprintf(out, 72, "process %d%s%s", (int)k->pid, k->from[0] ? " at " : "", k->from);
    return out;
}

/* A refusal for the log, once a second at most, and for the sentence of a timeout. */
static void refusal_note(struct tutti_meeting_leader *l, const struct tutti_meeting_link *k, const char *why,
                         uint64_t now)
{
    char peer[72], more[48] = "";
    snprintf(l->refusal, sizeof l->refusal, "%s: %.120s", peer_say(k, peer), why);
    if (l->logged_ns != 0 && now < l->logged_ns + LOG_NS) {
        l->n_unlogged++;
        return;
    }
    if (l->n_unlogged > 0) snprintf(more, sizeof more, " (and %u others before it)", l->n_unlogged);
    tutti_log(TUTTI_LOG_WARN, "refused %s at the meeting of the ranks: %s%s", peer_say(k, peer), why, more);
    l->logged_ns = now, l->n_unlogged = 0;
}

static void failure_fill(const struct tutti_meeting_leader *l, const struct tutti_error *error,
                         struct tutti_meeting_message *verdict)
{
    tutti_meeting_fill(&l->self, TUTTI_MEETING_VERDICT, verdict);
    verdict->status = error->status;
    verdict->peer = error->peer;
    memcpy(verdict->text, error->text, sizeof verdict->text);
}

/* The thread's record goes to this peer alone. */
static void link_refuse(struct tutti_meeting_leader *l, uint32_t link, uint64_t now)
{
    const struct tutti_error error = *tutti_last_error();
    struct tutti_meeting_message verdict;
    refusal_note(l, &l->links[link], error.text, now);
    failure_fill(l, &error, &verdict);
    message_send(l, link, &verdict, false);
    link_drop(l, link);
}

/* ---- seats ---- */

/* True when the seat's holder is gone by now. */
static bool seat_vacate(struct tutti_meeting_leader *l, const struct tutti_meeting_seat *seat)
{
    if (seat->link < 0 || !l->out.ended(l->out.arg, (uint32_t)seat->link)) return false;
    link_drop(l, (uint32_t)seat->link);
    return true;
}

/* OK, or why the meeting fails over this newcomer. */
static enum tutti_status seat_check(struct tutti_meeting_leader *l, const struct tutti_newcomer *who, int32_t pid)
{
    const struct tutti_meeting_self *mine = &l->self;
    const bool range = who->rank >= 0 && who->rank < mine->n_ranks;
    if (who->host != mine->host && !mine->reaches_hosts)
        return tutti_fail(
            TUTTI_ERR_UNSUPPORTED,
            "rank %d (process %d) and rank %d are on different hosts, by TUTTI_HOST or as containers whose process "
            "numbers are their own: %s",
            (int)who->rank, (int)pid, (int)mine->rank,
            mine->alone_because ? mine->alone_because
                                : "give all ranks the same TUTTI_STORE and TUTTI_SECRET, or, where they can share "
                                  "memory, the same TUTTI_HOST");
    if (who->n_ranks != mine->n_ranks || !range)
        return tutti_fail(
            TUTTI_ERR_BOOTSTRAP,
            "rank %d (process %d) expects %d ranks, rank %d (process %d) expects %d: two jobs meet under one "
            "name, or their sizes differ",
            (int)who->rank, (int)pid, (int)who->n_ranks, (int)mine->rank, (int)mine->pid, (int)mine->n_ranks);
    if (l->seats[who->rank].taken && !seat_vacate(l, &l->seats[who->rank]))
        return tutti_fail(
            TUTTI_ERR_BOOTSTRAP,
            "rank %d came twice, as process %d and as process %d: two jobs meet under one name, or a rank "
            "was given twice",
            (int)who->rank, (int)l->seats[who->rank].pid, (int)pid);
    return TUTTI_OK;
}

static void seat_take(struct tutti_meeting_leader *l, uint32_t link, const struct tutti_meeting_message *proof,
                      uint64_t now)
{
    struct tutti_meeting_link *k = &l->links[link];
    const struct tutti_newcomer *who = &k->who;
    if (seat_check(l, who, k->pid) < 0) {
        tutti_leader_fail(l, true); /* it hears the verdict with the others */
        return;
    }
    struct tutti_meeting_seat *seat = &l->seats[who->rank];
    loss_forget(l, seat);
    seat->taken = true;
    seat->link = (int32_t)link, seat->pid = k->pid, seat->host = who->host, seat->hidden = k->hidden;
    card_keep(seat, proof->payload, proof->n_payload);
    l->n_seated++;
    k->rank = who->rank;
    k->state = TUTTI_LINK_SEATED;
    loss_note(l, &who->lost, now);
    if (l->n_seated == (uint32_t)l->self.n_ranks && l->phase == TUTTI_LEADER_GATHERS) l->phase = TUTTI_LEADER_DECIDED;
}

/* ---- messages: OK, or the reason to refuse the peer ---- */

static enum tutti_status hello_take(struct tutti_meeting_leader *l, uint32_t link,
                                    const struct tutti_meeting_message *hello)
{
    struct tutti_meeting_link *k = &l->links[link];
    struct tutti_meeting_message challenge;
    if (hello->host == l->self.host && k->from[0])
        return tutti_fail(TUTTI_ERR_AUTH, "a peer on the network says that it is on this host");
    if (hello->has_secret != (l->self.secret != NULL))
        return tutti_fail(TUTTI_ERR_AUTH, "rank %d has %s secret, rank %d has %s: give all ranks of a job the same",
                          (int)hello->rank, hello->has_secret ? "a" : "no", (int)l->self.rank,
                          l->self.secret ? "one" : "none");
    tutti_meeting_fill(&l->self, TUTTI_MEETING_CHALLENGE, &challenge);
    TUTTI_TRY(l->out.random(l->out.arg, challenge.nonce, sizeof challenge.nonce));
    k->hidden = k->pid == 0;
    if (k->hidden) k->pid = hello->pid; /* on another host: only what it says is known */
    k->who = (struct tutti_newcomer){hello->rank, hello->n_ranks, hello->host, hello->lost};
    memcpy(k->session.nonces[0], hello->nonce, sizeof hello->nonce);
    memcpy(k->session.nonces[1], challenge.nonce, sizeof challenge.nonce);
    k->session.ready = true;
    k->state = TUTTI_LINK_CHALLENGED;
    message_send(l, link, &challenge, false);
    return TUTTI_OK;
}

/* The member has the memory, or says why not. */
static enum tutti_status ack_take(struct tutti_meeting_leader *l, uint32_t link,
                                  const struct tutti_meeting_message *ack)
{
    struct tutti_meeting_link *k = &l->links[link];
    if (ack->status < 0) {
        l->culprit = k->rank;
        tutti_fail(TUTTI_ERR_BOOTSTRAP, "rank %d could not join: %.380s", (int)k->rank, ack->text);
        tutti_leader_fail(l, true);
        return TUTTI_OK;
    }
    k->state = TUTTI_LINK_SEATED;
    if (--l->n_untold == 0 && l->phase == TUTTI_LEADER_TELLS) l->phase = TUTTI_LEADER_OVER;
    return TUTTI_OK;
}

static enum tutti_status message_take(struct tutti_meeting_leader *l, uint32_t link,
                                      const struct tutti_meeting_message *m, uint64_t now)
{
    struct tutti_meeting_link *k = &l->links[link];
    if (m->type == TUTTI_MEETING_HELLO && k->state == TUTTI_LINK_FRESH) return hello_take(l, link, m);
    if (m->type == TUTTI_MEETING_ACK && k->state == TUTTI_LINK_TOLD) return ack_take(l, link, m);
    if (m->type == TUTTI_MEETING_ASK && k->state == TUTTI_LINK_TOLD) return TUTTI_OK; /* crossed the verdict */
    if (m->type == TUTTI_MEETING_PROOF && k->state == TUTTI_LINK_CHALLENGED && m->n_payload <= TUTTI_MEETING_CARD) {
        seat_take(l, link, m, now);
        return TUTTI_OK;
    }
    if (m->type == TUTTI_MEETING_ASK && k->state == TUTTI_LINK_SEATED) {
        if (l->phase == TUTTI_LEADER_GATHERS) time_is_over(l, m->patience_ms);
        return TUTTI_OK;
    }
    return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of type %u out of turn", (unsigned)m->type);
}

void tutti_leader_received(struct tutti_meeting_leader *l, uint32_t link, const uint8_t *bytes, size_t n, uint64_t now)
{
    struct tutti_meeting_link *k = &l->links[link];
    struct tutti_meeting_message message;
    if (k->state == TUTTI_LINK_FREE || (l->phase != TUTTI_LEADER_GATHERS && k->state != TUTTI_LINK_TOLD)) return;
    enum tutti_status status = tutti_meeting_read(&l->self, &k->session, bytes, n, &message);
    if (status == TUTTI_ERR_AUTH && message.type == TUTTI_MEETING_PROOF && k->state == TUTTI_LINK_CHALLENGED)
        tutti_fail(status, "it calls itself rank %d, and does not know the job's secret", (int)k->who.rank);
    if (status == TUTTI_OK) status = message_take(l, link, &message, now);
    if (status == TUTTI_OK) return;
    if (status == TUTTI_ERR_CONFIG && k->state == TUTTI_LINK_FRESH && !l->self.secret) {
        /* Another build, and the uid is all the proof there is: every rank shall know. */
        tutti_fail(TUTTI_ERR_CONFIG, "process %d runs %s", (int)k->pid, tutti_last_error()->text);
        tutti_leader_fail(l, true);
    } else if (k->state == TUTTI_LINK_TOLD) {
        l->culprit = k->rank;
        tutti_fail(TUTTI_ERR_BOOTSTRAP, "rank %d could not join: it sent something else", (int)k->rank);
        tutti_leader_fail(l, true);
    } else {
        link_refuse(l, link, now);
    }
}

void tutti_leader_closed(struct tutti_meeting_leader *l, uint32_t link, uint64_t now)
{
    struct tutti_meeting_link *k = &l->links[link];
    const struct tutti_meeting_link was = *k;
    if (was.state == TUTTI_LINK_TOLD) { /* its process ends, or it just went: known in a moment */
        k->until_ns = now + ENDING_NS;
        return;
    }
    /* It has seen our proof: it does not share our secret, or was ended. */
    if (was.state == TUTTI_LINK_CHALLENGED && l->self.secret)
        refusal_note(l, &was, "it does not accept this rank's secret", now);
    link_free(l, link);
    if (was.state != TUTTI_LINK_SEATED || l->phase > TUTTI_LEADER_DECIDED || l->verdict.status < 0) return;
    l->phase = TUTTI_LEADER_GATHERS; /* if all had come, nobody has heard it yet */
    tutti_log(TUTTI_LOG_WARN, "rank %d (process %d) went away while the ranks were meeting", (int)was.rank,
              (int)was.pid);
    const struct tutti_meeting_loss loss = {
        .rank = was.rank, .pid = was.pid, .start = was.hidden ? HIDDEN : l->out.started(l->out.arg, was.pid)};
    loss_note(l, &loss, now);
}

void tutti_leader_astray(struct tutti_meeting_leader *l, uint32_t link, uint64_t now)
{
    struct tutti_meeting_link *k = &l->links[link];
    if (k->state == TUTTI_LINK_TOLD) {
        k->until_ns = now + ENDING_NS;
        k->astray = true;
        return;
    }
    const bool seated = k->state == TUTTI_LINK_SEATED;
    link_free(l, link);
    if (seated && l->phase == TUTTI_LEADER_DECIDED && l->verdict.status == TUTTI_OK) l->phase = TUTTI_LEADER_GATHERS;
}

/* ---- time ---- */

static void unproved_expire(struct tutti_meeting_leader *l, uint64_t now)
{
    for (uint32_t i = 0; i < l->max_links; i++) {
        const struct tutti_meeting_link *k = &l->links[i];
        if ((k->state != TUTTI_LINK_FRESH && k->state != TUTTI_LINK_CHALLENGED) || now < k->until_ns) continue;
        tutti_fail(TUTTI_ERR_TIMEOUT, "it did not say who it is within 10 s");
        link_refuse(l, i, now);
    }
}

/* Members that have the verdict and whose connection ended. */
static enum tutti_status told_check(struct tutti_meeting_leader *l, uint64_t now)
{
    for (uint32_t i = 0; i < l->max_links; i++) {
        const struct tutti_meeting_link *k = &l->links[i];
        if (k->state != TUTTI_LINK_TOLD || k->until_ns == TUTTI_NEVER) continue;
        l->culprit = k->rank;
        if (!k->astray && is_dead(l, l->seats[k->rank].host, k->pid, k->hidden ? HIDDEN : 0))
            return tutti_meeting_fail_dead(k->rank, k->pid);
        if (now >= k->until_ns)
            return tutti_fail(
                TUTTI_ERR_BOOTSTRAP,
                "rank %d could not join: process %d went away while the ranks were meeting: " TUTTI_SAYS_CLOSED,
                (int)k->rank, (int)k->pid);
    }
    l->culprit = l->self.rank;
    if (now < l->self.deadline_ns) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_TIMEOUT,
                      "rank %d waited for the ranks to map their shared memory: " TUTTI_SAYS_TIMED_OUT,
                      (int)l->self.rank, tutti_meeting_patience_ms(l->self.started_ns, l->self.deadline_ns));
}

void tutti_leader_tick(struct tutti_meeting_leader *l, uint64_t now)
{
    const bool looks = now - l->looked_ns >= LOOK_NS || now >= l->self.deadline_ns;
    if (looks) l->looked_ns = now;
    if (looks && l->phase == TUTTI_LEADER_TELLS && told_check(l, now) < 0) tutti_leader_fail(l, true);
    if (!looks || l->phase != TUTTI_LEADER_GATHERS) return;
    if (now >= l->self.deadline_ns) {
        time_is_over(l, tutti_meeting_patience_ms(l->self.started_ns, l->self.deadline_ns));
        return;
    }
    unproved_expire(l, now);
    missed_log(l, now);
    if (losses_check(l, now) < 0) tutti_leader_fail(l, true);
}

/* ---- the verdict ---- */

int32_t tutti_leader_elsewhere(const struct tutti_meeting_leader *l)
{
    for (int32_t rank = 0; rank < l->self.n_ranks; rank++)
        if (l->seats[rank].taken &&
            (l->seats[rank].pid != l->self.pid || l->seats[rank].host != l->self.host || l->seats[rank].hidden))
            return rank;
    return -1;
}

void tutti_leader_tell(struct tutti_meeting_leader *l, const struct tutti_meeting_grant *grant)
{
    struct tutti_meeting_message verdict;
    const bool good = l->verdict.status == TUTTI_OK, far = good && grant->n_table > 0;
    if (good) {
        tutti_meeting_fill(&l->self, TUTTI_MEETING_VERDICT, &verdict);
        verdict.shared = grant->shared, verdict.world = grant->world;
        verdict.far = far, verdict.total = grant->n_table;
        if (far) verdict.payload = grant->digest, verdict.n_payload = sizeof grant->digest;
    } else {
        failure_fill(l, &l->verdict, &verdict);
    }
    l->phase = good ? TUTTI_LEADER_TELLS : TUTTI_LEADER_OVER;
    for (uint32_t i = 0; good && i < l->max_links; i++) {
        if (l->links[i].state != TUTTI_LINK_SEATED) continue;
        l->links[i].state = TUTTI_LINK_TOLD;
        l->links[i].until_ns = TUTTI_NEVER;
        l->n_untold++;
    }
    /* When all is well, others than the seated are unauthenticated, or early for the next meeting: their connection
     * ends. */
    for (uint32_t i = 0; i < l->max_links; i++) {
        if (l->links[i].state == TUTTI_LINK_FREE) continue;
        if (l->links[i].state != TUTTI_LINK_TOLD && (good || !l->told)) continue;
        message_send(l, i, &verdict, good);
    }
    if (good && l->n_untold == 0) l->phase = TUTTI_LEADER_OVER;
}
