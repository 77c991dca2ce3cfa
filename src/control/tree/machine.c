/* SPDX-License-Identifier: BSD-3-Clause */

/* One member of the tree, without sockets: its shape, its links, who is gone, failures, questions for boards. */

#include "control/tree/machine.h"

#include <string.h>

/* ---- links ---- */

static void send_to(struct tutti_tree_machine *t, uint32_t member, const struct tutti_tree_message *message)
{
    uint8_t bytes[TUTTI_TREE_FRAME_MAX];
    const size_t n = tutti_tree_encode(message, bytes);
    t->links[member].sent_ns = t->now;
    t->out.send(t->out.arg, member, bytes, n);
}

static void link_close(struct tutti_tree_machine *t, uint32_t member)
{
    if (!t->links[member].open) return;
    t->links[member].open = false;
    for (uint32_t i = 0; i < t->n_linked; i++)
        if (t->linked[i] == member) t->linked[i] = t->linked[--t->n_linked];
    t->out.drop(t->out.arg, member);
}

static void send_others(struct tutti_tree_machine *t, uint32_t but, const struct tutti_tree_message *message)
{
    for (uint32_t i = 0; i < t->n_linked; i++)
        if (t->linked[i] != but) send_to(t, t->linked[i], message);
}

/* ---- who hangs on whom ---- */
/* The tree's edges: computed from the table of hosts and from who is gone, so that members that know the same agree.
 */

#define NOBODY UINT32_MAX
#define STEPS_MOST 64 /* from any member to the root */

uint32_t tutti_tree_speaker(const struct tutti_tree_machine *t, uint32_t host)
{
    uint32_t i = t->hosts->hosts[host].leader;
    while (i != NOBODY && tutti_tree_is_gone(t, i)) i = tutti_hosts_after(t->hosts, i);
    return i;
}

/* The number of a host among those that live. */
static uint32_t index_of(const struct tutti_tree_machine *t, uint32_t host)
{
    uint32_t index = 0;
    for (uint32_t h = 0; h < host; h++) index += tutti_tree_speaker(t, h) != NOBODY;
    return index;
}

/* The member that speaks for the living host of this number. */
static uint32_t speaker_at(const struct tutti_tree_machine *t, uint32_t index)
{
    for (uint32_t h = 0; h < t->hosts->n_hosts; h++) {
        const uint32_t speaker = tutti_tree_speaker(t, h);
        if (speaker != NOBODY && index-- == 0) return speaker;
    }
    return NOBODY;
}

static uint32_t parent_of(const struct tutti_tree_machine *t, uint32_t member)
{
    const uint32_t host = t->hosts->members[member].host, speaker = tutti_tree_speaker(t, host);
    if (speaker != member) return speaker;
    const uint32_t index = index_of(t, host);
    return index == 0 ? NOBODY : speaker_at(t, (index - 1) / TUTTI_TREE_FANOUT);
}

/* Those who speak for other hosts and hang on this member; returns how many, at most FANOUT. */
static uint32_t children_of(const struct tutti_tree_machine *t, uint32_t out[TUTTI_TREE_FANOUT])
{
    const uint32_t host = t->hosts->members[t->me].host;
    if (tutti_tree_speaker(t, host) != t->me) return 0;
    const uint32_t first = index_of(t, host) * TUTTI_TREE_FANOUT + 1;
    uint32_t n = 0;
    for (uint32_t h = 0, index = 0; h < t->hosts->n_hosts && n < TUTTI_TREE_FANOUT; h++) {
        const uint32_t speaker = tutti_tree_speaker(t, h);
        if (speaker == NOBODY) continue;
        if (index++ >= first) out[n++] = speaker;
    }
    return n;
}

/* Whether a link is open to the parent and to each one that hangs on this member. */
static bool is_whole(const struct tutti_tree_machine *t)
{
    uint32_t children[TUTTI_TREE_FANOUT];
    const uint32_t host = t->hosts->members[t->me].host, n = children_of(t, children);
    if (t->parent != NOBODY && !t->links[t->parent].open) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!t->links[children[i]].open) return false;
    if (tutti_tree_speaker(t, host) != t->me) return true;
    for (uint32_t i = t->hosts->hosts[host].leader; i != NOBODY; i = tutti_hosts_after(t->hosts, i))
        if (i != t->me && !tutti_tree_is_gone(t, i) && !t->links[i].open) return false;
    return true;
}

/* The link by which `target` is reached; UINT32_MAX: none. */
static uint32_t next_link(const struct tutti_tree_machine *t, uint32_t target)
{
    if (t->links[target].open) return target;
    for (uint32_t at = target, steps = 0; at != NOBODY && steps < STEPS_MOST; steps++) {
        const uint32_t above = parent_of(t, at);
        if (above == t->me) return t->links[at].open ? at : NOBODY;
        at = above;
    }
    return t->parent != NOBODY && t->links[t->parent].open ? t->parent : NOBODY;
}

/* ---- failures ---- */
/* Failures: up to the root, which lets one of each communicator and epoch pass; from there to all. */

/* Two failures that end the same thing. */
static bool is_same(const struct tutti_failure *a, const struct tutti_failure *b)
{
    return a->comm == b->comm && a->epoch == b->epoch && (a->comm != 0 || a->culprit == b->culprit);
}

static uint32_t told_count(const struct tutti_tree_machine *t)
{
    return t->n_told < TUTTI_TREE_TOLD ? t->n_told : TUTTI_TREE_TOLD;
}

static bool is_told(const struct tutti_tree_machine *t, const struct tutti_failure *failure)
{
    for (uint32_t i = 0; i < told_count(t); i++)
        if (is_same(&t->told[i], failure)) return true;
    return false;
}

static void failure_decided(struct tutti_tree_machine *t, const struct tutti_failure *failure, uint32_t from)
{
    const struct tutti_tree_message tell = {.type = TUTTI_TREE_TELL, .failure = *failure};
    for (uint32_t i = 0; i < t->n_raised; i++)
        if (is_same(&t->raised[i], failure)) t->raised[i--] = t->raised[--t->n_raised];
    if (is_told(t, failure)) return;
    t->told[t->n_told++ % TUTTI_TREE_TOLD] = *failure;
    for (uint32_t i = 0; i < t->n_linked; i++)
        if (t->linked[i] != from) send_to(t, t->linked[i], &tell);
    t->out.failure(t->out.arg, failure);
}

static void failures_repeat(struct tutti_tree_machine *t, uint32_t member)
{
    for (uint32_t i = 0; i < told_count(t); i++) {
        const struct tutti_tree_message tell = {.type = TUTTI_TREE_TELL, .failure = t->told[i]};
        send_to(t, member, &tell);
    }
}

static void raised_keep(struct tutti_tree_machine *t, const struct tutti_failure *failure)
{
    for (uint32_t i = 0; i < t->n_raised; i++)
        if (is_same(&t->raised[i], failure)) return;
    if (t->n_raised < TUTTI_TREE_RAISED)
        t->raised[t->n_raised++] = *failure;
    else
        failure_decided(t, failure, NOBODY); /* it ends here at least */
}

static void raise_up(struct tutti_tree_machine *t, const struct tutti_failure *failure)
{
    const struct tutti_tree_message raise = {.type = TUTTI_TREE_RAISE, .failure = *failure};
    if (is_told(t, failure)) return;
    if (t->parent == NOBODY && t->settled_ns == 0)
        failure_decided(t, failure, NOBODY);
    else if (t->parent != NOBODY && t->links[t->parent].open)
        send_to(t, t->parent, &raise);
    else
        raised_keep(t, failure); /* until there is a root, or a way to it */
}

/* at a new parent, or as the new root */
static void raise_again(struct tutti_tree_machine *t)
{
    struct tutti_failure raised[TUTTI_TREE_RAISED];
    const uint32_t n = t->n_raised;
    for (uint32_t i = 0; i < n; i++) raised[i] = t->raised[i];
    for (uint32_t i = 0; i < n; i++) raise_up(t, &raised[i]);
}

void tutti_tree_raise(struct tutti_tree_machine *t, const struct tutti_failure *failure, uint64_t now)
{
    t->now = now;
    if (is_told(t, failure)) return;
    if (t->lost) { /* nobody else will hear it */
        t->out.failure(t->out.arg, failure);
        return;
    }
    raised_keep(t, failure);
    raise_up(t, failure);
}

/* ---- questions for boards ---- */
/* Questions for boards, and their answers, on their way through the tree. What can not go on is dropped: who asked asks
 * again. */

#define HOPS_MOST 64

static void route(struct tutti_tree_machine *t, struct tutti_tree_message *message);

static void answer(struct tutti_tree_machine *t, const struct tutti_tree_question *question)
{
    struct tutti_tree_message message = {.type = TUTTI_TREE_ANSWER, .question = *question};
    message.question.hops = 0;
    message.known = t->out.board(t->out.arg, question->target, question->slot, &message.board);
    route(t, &message);
}

static void route(struct tutti_tree_machine *t, struct tutti_tree_message *message)
{
    struct tutti_tree_question *q = &message->question;
    const bool asks = message->type == TUTTI_TREE_ASK;
    const uint32_t end = asks ? q->target : q->origin;
    if (asks && t->hosts->members[end].host == t->hosts->members[t->me].host) {
        answer(t, q); /* for others of this host, too: they may be stopped */
        return;
    }
    if (end == t->me) {
        t->out.answer(t->out.arg, q, message->known ? &message->board : NULL);
        return;
    }
    const uint32_t next = next_link(t, end);
    if (next != NOBODY && q->hops++ < HOPS_MOST) send_to(t, next, message);
}

void tutti_tree_ask(struct tutti_tree_machine *t, uint32_t member, uint32_t slot, uint64_t now)
{
    struct tutti_tree_message message = {.type = TUTTI_TREE_ASK,
                                         .question = {.origin = t->me, .target = member, .slot = slot}};
    t->now = now;
    route(t, &message);
}

/* ---- who is gone, and time ---- */
/* The members that are gone, and what that makes of the tree. */

#define PINGS 5                           /* in the time after which silence is a death */
#define SETTLE_NS (300 * TUTTI_NS_PER_MS) /* for the members to tell a new root what they know */
#define BEGIN_NS (20 * TUTTI_NS_PER_S)    /* for all processes to begin, once they have met */
#define COME_NS (200 * TUTTI_NS_PER_MS)   /* for who hangs on a new parent to come by itself */

/* ---- the parent ---- */

static void parent_dial(struct tutti_tree_machine *t)
{
    if (t->parent == NOBODY || t->links[t->parent].open || t->dialing || t->lost) return;
    t->dialing = true;
    t->out.dial(t->out.arg, t->parent);
}

/* After a death, or at the beginning. */
static void parent_find(struct tutti_tree_machine *t)
{
    const uint32_t before = t->parent, parent = t->lost ? NOBODY : parent_of(t, t->me);
    const struct tutti_tree_message unlink = {.type = TUTTI_TREE_UNLINK};
    if (parent == before) {
        parent_dial(t);
        return;
    }
    t->parent = parent;
    t->dialing = false;
    t->parent_by_ns = t->now + t->silence_ns;
    if (before != NOBODY && t->links[before].open && parent_of(t, before) != t->me) {
        send_to(t, before, &unlink);
        link_close(t, before);
    }
    if (parent == NOBODY) t->settled_ns = t->now + SETTLE_NS;
    if (parent != NOBODY && t->links[parent].open) raise_again(t);
    parent_dial(t);
}

void tutti_tree_begin(struct tutti_tree_machine *t, uint64_t now)
{
    t->now = now;
    t->begun_ns = now;
    t->parent_by_ns = now + BEGIN_NS + t->silence_ns;
    t->parent = parent_of(t, t->me);
    parent_dial(t);
}

/* ---- who is gone ---- */

/* Tells a member that may live that it is taken for dead: when it hears again, it must not take the end of this link
 * for a death. */
static void tell_itself(struct tutti_tree_machine *t, uint32_t member)
{
    const struct tutti_tree_message message = {
        .type = TUTTI_TREE_GONE, .n_gone = 1, .gone = {{member, TUTTI_LIFE_SILENT}}};
    if (t->links[member].open) send_to(t, member, &message);
}

/* True when that is news: a death, or the proof of one. */
static bool gone_note(struct tutti_tree_machine *t, uint32_t member, enum tutti_life life)
{
    if (t->lost) return false;
    if (tutti_tree_is_gone(t, member)) {
        if (t->lives[member] != TUTTI_LIFE_SILENT || life != TUTTI_LIFE_DEAD) return false;
        t->lives[member] = TUTTI_LIFE_DEAD;
        return true;
    }
    if (member == t->me) { /* the others hold this member for dead: for it, they are; as for those of its host */
        t->lost = true;
        for (uint32_t i = 0; i < t->n; i++) {
            if (i == t->me || tutti_tree_is_gone(t, i)) continue;
            if (t->hosts->members[i].host == t->hosts->members[t->me].host) tell_itself(t, i);
            link_close(t, i);
            t->lives[i] = TUTTI_LIFE_SILENT;
            t->out.gone(t->out.arg, i, TUTTI_LIFE_SILENT);
        }
        return false;
    }
    t->lives[member] = (uint8_t)life;
    if (life == TUTTI_LIFE_SILENT) tell_itself(t, member);
    link_close(t, member);
    t->out.gone(t->out.arg, member, life);
    return true;
}

/* Notes them, tells the others what is new, and finds its place in the tree that is left. */
static void gone_take(struct tutti_tree_machine *t, const struct tutti_tree_gone *gone, uint32_t n, uint32_t from)
{
    struct tutti_tree_message news = {.type = TUTTI_TREE_GONE};
    bool some = false;
    for (uint32_t i = 0; i < n; i++) {
        if (!gone_note(t, gone[i].member, gone[i].life)) continue;
        some = true;
        news.gone[news.n_gone++] = gone[i];
        if (news.n_gone < TUTTI_TREE_GONE_MOST) continue;
        send_others(t, from, &news);
        news.n_gone = 0;
    }
    if (news.n_gone > 0) send_others(t, from, &news);
    if (some || t->lost) parent_find(t);
}

static void one_gone(struct tutti_tree_machine *t, uint32_t member, enum tutti_life life)
{
    const struct tutti_tree_gone gone = {member, life};
    gone_take(t, &gone, 1, NOBODY);
}

/* All members of a host that says nothing any more. */
static void host_gone(struct tutti_tree_machine *t, uint32_t host)
{
    struct tutti_tree_gone gone[TUTTI_TREE_GONE_MOST];
    uint32_t n = 0;
    for (uint32_t i = t->hosts->hosts[host].leader; i != NOBODY; i = tutti_hosts_after(t->hosts, i)) {
        if (tutti_tree_is_gone(t, i)) continue;
        gone[n++] = (struct tutti_tree_gone){i, TUTTI_LIFE_SILENT};
        if (n < TUTTI_TREE_GONE_MOST) continue;
        gone_take(t, gone, n, NOBODY);
        n = 0;
    }
    if (n > 0) gone_take(t, gone, n, NOBODY);
}

/* A member that links anew hears all that is known here. */
static void gone_tell_all(struct tutti_tree_machine *t, uint32_t member)
{
    struct tutti_tree_message message = {.type = TUTTI_TREE_GONE};
    for (uint32_t i = 0; i < t->n; i++) {
        if (!tutti_tree_is_gone(t, i)) continue;
        message.gone[message.n_gone++] = (struct tutti_tree_gone){i, (enum tutti_life)t->lives[i]};
        if (message.n_gone < TUTTI_TREE_GONE_MOST) continue;
        send_to(t, member, &message);
        message.n_gone = 0;
    }
    if (message.n_gone > 0) send_to(t, member, &message);
}

/* ---- events ---- */

void tutti_tree_linked(struct tutti_tree_machine *t, uint32_t member, uint64_t now)
{
    const struct tutti_tree_message ping = {.type = TUTTI_TREE_PING};
    t->now = now;
    if (member == t->parent) t->dialing = false;
    if (t->lost || tutti_tree_is_gone(t, member)) {
        t->out.drop(t->out.arg, member);
        return;
    }
    if (!t->links[member].open) t->linked[t->n_linked++] = member;
    t->links[member] = (struct tutti_tree_link){.open = true, .heard_ns = now, .sent_ns = now};
    send_to(t, member, &ping);
    failures_repeat(t, member); /* first, since who failed may be gone since */
    gone_tell_all(t, member);
    if (member == t->parent) raise_again(t);
    t->whole = t->whole || is_whole(t);
}

void tutti_tree_received(struct tutti_tree_machine *t, uint32_t member, const uint8_t *bytes, size_t n, uint64_t now)
{
    struct tutti_tree_message message;
    t->now = now;
    if (!t->links[member].open) return;
    t->links[member].heard_ns = now;
    if (tutti_tree_decode(bytes, n, t->n, &message) < 0) {
        tutti_log(TUTTI_LOG_WARN, "member %u: %s", member, tutti_last_error()->text);
        one_gone(t, member, TUTTI_LIFE_SILENT); /* it can not be understood, nor trusted */
        return;
    }
    switch (message.type) {
    case TUTTI_TREE_UNLINK:
        link_close(t, member);
        return;
    case TUTTI_TREE_GONE:
        gone_take(t, message.gone, message.n_gone, member);
        return;
    case TUTTI_TREE_RAISE:
        raise_up(t, &message.failure);
        return;
    case TUTTI_TREE_TELL:
        failure_decided(t, &message.failure, member);
        return;
    case TUTTI_TREE_ASK:
    case TUTTI_TREE_ANSWER:
        route(t, &message);
        return;
    default:
        return; /* a ping */
    }
}

void tutti_tree_broken(struct tutti_tree_machine *t, uint32_t member, uint64_t now)
{
    t->now = now;
    /* A member that was stopped for long may have been taken for dead, and its links were closed for that. */
    const bool away = now < t->away_until_ns || (t->ticked_ns && now - t->ticked_ns > t->silence_ns / 2);
    if (t->links[member].open) one_gone(t, member, away ? TUTTI_LIFE_SILENT : TUTTI_LIFE_DEAD);
}

void tutti_tree_ended(struct tutti_tree_machine *t, uint32_t member, uint64_t now)
{
    t->now = now;
    link_close(t, member);
    if (member == t->parent) t->parent_by_ns = now + t->silence_ns;
    parent_dial(t);
}

void tutti_tree_unreachable(struct tutti_tree_machine *t, uint32_t member, bool dead, uint64_t now)
{
    t->now = now;
    if (t->links[member].open) return;
    t->links[member].dialed = false;
    if (member == t->parent) t->dialing = false;
    if (dead) one_gone(t, member, TUTTI_LIFE_SILENT); /* or a firewall refuses, or it refuses this member */
}

void tutti_tree_is_proved(struct tutti_tree_machine *t, uint32_t member, uint64_t now)
{
    t->now = now;
    one_gone(t, member, TUTTI_LIFE_DEAD);
}

void tutti_tree_local_gone(struct tutti_tree_machine *t, uint32_t member, enum tutti_life life, uint64_t now)
{
    t->now = now;
    one_gone(t, member, life);
}

/* A peer of this host that is silent is stopped; whether it lives is known otherwise. */
static void silence_check(struct tutti_tree_machine *t)
{
    const uint32_t here = t->hosts->members[t->me].host;
    for (uint32_t i = 0; i < t->n_linked; i++) {
        const uint32_t member = t->linked[i], host = t->hosts->members[member].host;
        if (host == here || t->now - t->links[member].heard_ns < t->silence_ns) continue;
        char name[TUTTI_HOST_TEXT];
        tutti_log(TUTTI_LOG_WARN, "host %s has been silent for %llu ms: it is taken for dead",
                  tutti_hosts_name(t->hosts, host, name, sizeof name),
                  (unsigned long long)(t->silence_ns / TUTTI_NS_PER_MS));
        host_gone(t, host);
        return; /* the links are others now */
    }
}

/* Hosts that should hang on this member, and do not come: they went while the tree changed. A dial that is refused says
 * so at once, silence later. */
static void children_check(struct tutti_tree_machine *t)
{
    uint32_t children[TUTTI_TREE_FANOUT];
    const uint32_t n = children_of(t, children);
    for (uint32_t i = 0; i < n; i++) {
        struct tutti_tree_link *link = &t->links[children[i]];
        if (link->open) continue;
        if (link->awaited_ns == 0) link->awaited_ns = t->now;
        if (!link->dialed && t->now - link->awaited_ns >= COME_NS) {
            link->dialed = true;
            t->out.dial(t->out.arg, children[i]);
        }
        const bool first = link->awaited_ns - t->begun_ns < TUTTI_NS_PER_S;
        if (t->now - link->awaited_ns < t->silence_ns + (first ? BEGIN_NS : 0)) continue;
        host_gone(t, t->hosts->members[children[i]].host);
        return; /* the children are others now */
    }
}

/* A parent that can not be linked went with the one before it; whether one of this host lives is known otherwise. */
static void parent_check(struct tutti_tree_machine *t)
{
    if (t->parent == NOBODY || t->links[t->parent].open || t->now < t->parent_by_ns) return;
    const uint32_t host = t->hosts->members[t->parent].host;
    if (host != t->hosts->members[t->me].host) host_gone(t, host);
}

void tutti_tree_tick(struct tutti_tree_machine *t, uint64_t now)
{
    const struct tutti_tree_message ping = {.type = TUTTI_TREE_PING};
    const uint64_t before = t->now;
    t->now = now;
    if (t->ticked_ns && now - t->ticked_ns > t->silence_ns / 2) t->away_until_ns = now + t->silence_ns;
    t->ticked_ns = now;
    /* A member that was stopped itself has heard nobody: the others get their time again. */
    if (now - before > t->silence_ns / 2) {
        t->parent_by_ns += now - before;
        for (uint32_t i = 0; i < t->n_linked; i++) t->links[t->linked[i]].heard_ns = now;
    }
    silence_check(t);
    parent_check(t);
    children_check(t);
    for (uint32_t i = 0; i < t->n_linked; i++)
        if (now - t->links[t->linked[i]].sent_ns >= t->silence_ns / PINGS) send_to(t, t->linked[i], &ping);
    if (t->parent == NOBODY && t->settled_ns != 0 && now >= t->settled_ns) {
        t->settled_ns = 0;
        raise_again(t);
    }
    parent_dial(t);
}

bool tutti_tree_may_leave(const struct tutti_tree_machine *t)
{
    if (t->lost || (t->whole && t->n_told == 0 && t->n_raised == 0)) return true;
    return t->n_raised == 0 && is_whole(t);
}

void tutti_tree_leave(struct tutti_tree_machine *t, uint64_t now)
{
    const struct tutti_tree_message left = {.type = TUTTI_TREE_GONE, .n_gone = 1, .gone = {{t->me, TUTTI_LIFE_LEFT}}};
    t->now = now;
    send_others(t, NOBODY, &left);
}
