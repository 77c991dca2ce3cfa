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
    t->links[member] = (struct tutti_tree_link){.open = false};
    for (uint32_t i = 0; i < t->n_linked; i++)
        if (t->linked[i] == member) t->linked[i] = t->linked[--t->n_linked];
    t->out.drop(t->out.arg, member);
}

/* Ends a link that the tree does not need. */
static void unlink_from(struct tutti_tree_machine *t, uint32_t member)
{
    const struct tutti_tree_message unlink = {.type = TUTTI_TREE_UNLINK};
    if (!t->links[member].open) return;
    send_to(t, member, &unlink);
    link_close(t, member);
}

static void send_others(struct tutti_tree_machine *t, uint32_t but, const struct tutti_tree_message *message)
{
    for (uint32_t i = 0; i < t->n_linked; i++)
        if (t->linked[i] != but) send_to(t, t->linked[i], message);
}

#define NOBODY UINT32_MAX

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
    const uint32_t next = tutti_tree_next_link(t, end);
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

#define PINGS 8                                /* in the time after which silence is a death */
#define SETTLE_NS (300 * TUTTI_NS_PER_MS)      /* for the members to tell a new root what they know */
#define BEGIN_NS (20 * TUTTI_NS_PER_S)         /* for all processes to begin, once they have met */
#define COME_NS (200 * TUTTI_NS_PER_MS)        /* for who hangs on a new parent to come by itself */
#define DOUBT_LEAST_NS (200 * TUTTI_NS_PER_MS) /* some pings, where silence is short */
#define WIDTH_FIRST TUTTI_TREE_VOICES          /* who is asked first: the rest of a silent host, and the next one */

/* ---- the parent ---- */

static void dial(struct tutti_tree_machine *t, uint32_t member)
{
    struct tutti_tree_link *link = &t->links[member];
    if (link->open || t->lost) return;
    if (link->asked_ns == 0) link->asked_ns = t->now;
    if (link->dialing) return;
    link->dialing = true;
    t->out.dial(t->out.arg, member);
}

static void parent_dial(struct tutti_tree_machine *t)
{
    if (t->parent != NOBODY) dial(t, t->parent);
}

/* After a death, or at the beginning. */
static void parent_find(struct tutti_tree_machine *t)
{
    const uint32_t before = t->parent, parent = t->lost ? NOBODY : tutti_tree_parent_of(t, t->me, false);
    if (parent == before) {
        parent_dial(t);
        return;
    }
    t->parent = parent;
    if (before != NOBODY && tutti_tree_parent_of(t, before, false) != t->me) unlink_from(t, before);
    if (parent == NOBODY) t->settled_ns = t->now + SETTLE_NS;
    if (parent != NOBODY && t->links[parent].open) raise_again(t);
    parent_dial(t);
}

void tutti_tree_begin(struct tutti_tree_machine *t, uint64_t now)
{
    t->now = now;
    t->begun_ns = now;
    t->parent = tutti_tree_parent_of(t, t->me, false);
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

/* ---- silence ---- */

static bool is_here(const struct tutti_tree_machine *t, uint32_t member)
{
    return t->hosts->members[member].host == t->hosts->members[t->me].host;
}

/* A member that should have been linked since the beginning: its process may not have begun. */
static bool begins(const struct tutti_tree_machine *t, const struct tutti_tree_link *link)
{
    return !link->open && link->asked_ns - t->begun_ns < TUTTI_NS_PER_S;
}

/* Whether nothing has been heard of it for so long: of who is linked, or asked. */
static bool is_silent(const struct tutti_tree_machine *t, uint32_t member, uint64_t ns)
{
    const struct tutti_tree_link *link = &t->links[member];
    const uint64_t since = link->open ? link->heard_ns : link->asked_ns;
    return since != 0 && t->now - since >= ns + (begins(t, link) ? BEGIN_NS : 0);
}

static uint64_t doubt_ns(const struct tutti_tree_machine *t)
{
    return t->silence_ns / 4 > DOUBT_LEAST_NS ? t->silence_ns / 4 : DOUBT_LEAST_NS;
}

/* The time in which who is asked must answer. */
static uint64_t asked_ns(const struct tutti_tree_machine *t)
{
    return t->silence_ns / 5 * 4;
}

/* The member of the same host behind this one that answers; UINT32_MAX: none does. */
static uint32_t answers_behind(const struct tutti_tree_machine *t, uint32_t member)
{
    uint32_t i = tutti_hosts_after(t->hosts, member);
    while (i != NOBODY && (!t->links[i].open || is_silent(t, i, doubt_ns(t)))) i = tutti_hosts_after(t->hosts, i);
    return i;
}

/* The speaker of another host says nothing any more: it and the members behind it, up to one that answers, are told
 * dead. False: it does not speak for its host, and others hear that host. */
static bool host_gone(struct tutti_tree_machine *t, uint32_t speaker)
{
    struct tutti_tree_gone gone[TUTTI_TREE_GONE_MOST];
    const uint32_t host = t->hosts->members[speaker].host, voice = answers_behind(t, speaker);
    char name[TUTTI_HOST_TEXT + 32];
    uint32_t n = 0;
    if (is_here(t, speaker) || speaker != tutti_tree_speaker(t, host, false)) return false;
    (voice == NOBODY ? tutti_hosts_name(t->hosts, host, name, sizeof name)
                     : tutti_hosts_say(t->hosts, speaker, name, sizeof name));
    tutti_log(TUTTI_LOG_WARN, "%s%s has been silent for %llu ms%s: it is taken for dead",
              voice == NOBODY ? "host " : "", name, (unsigned long long)(t->silence_ns / TUTTI_NS_PER_MS),
              voice == NOBODY ? "" : " while others of its host answer");
    t->doubts_until_ns = t->now + asked_ns(t); /* for all who were asked meanwhile */
    for (uint32_t i = speaker; i != voice; i = tutti_hosts_after(t->hosts, i)) {
        if (!tutti_tree_is_gone(t, i)) gone[n++] = (struct tutti_tree_gone){i, TUTTI_LIFE_SILENT};
        if (n < TUTTI_TREE_GONE_MOST) continue;
        gone_take(t, gone, n, NOBODY);
        n = 0;
    }
    if (n > 0) gone_take(t, gone, n, NOBODY);
    return true;
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
    struct tutti_tree_link *link = &t->links[member];
    t->now = now;
    if (t->lost || tutti_tree_is_gone(t, member)) {
        t->out.drop(t->out.arg, member);
        return;
    }
    if (!link->open) t->linked[t->n_linked++] = member;
    *link = (struct tutti_tree_link){.open = true, .extra = link->extra, .heard_ns = now, .sent_ns = now};
    send_to(t, member, &ping);
    failures_repeat(t, member); /* first, since who failed may be gone since */
    gone_tell_all(t, member);
    if (member == t->parent) raise_again(t);
    t->whole = t->whole || tutti_tree_is_whole(t);
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
    parent_dial(t);
}

void tutti_tree_unreachable(struct tutti_tree_machine *t, uint32_t member, bool dead, uint64_t now)
{
    t->now = now;
    if (t->links[member].open) return;
    t->links[member].dialing = false;
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

/* A member that was heard, and is not any more. Of this host it is stopped; whether it lives is known otherwise. */
static bool silence_check(struct tutti_tree_machine *t)
{
    for (uint32_t i = 0; i < t->n_linked; i++)
        if (is_silent(t, t->linked[i], t->silence_ns) && host_gone(t, t->linked[i])) return true;
    return false;
}

/* A member that was asked and does not answer: a parent, those who should hang on this member and do not come, and all
 * hosts where this is the root. A dial that is refused says so at once, silence later. */
static bool asked_check(struct tutti_tree_machine *t)
{
    for (uint32_t h = 0; h < t->hosts->n_hosts; h++) {
        const uint32_t member = tutti_tree_speaker(t, h, false);
        if (member == NOBODY || t->links[member].open || !is_silent(t, member, asked_ns(t))) continue;
        const bool mine = member == t->parent || t->parent == NOBODY || tutti_tree_parent_of(t, member, false) == t->me;
        if (mine && host_gone(t, member)) return true;
    }
    return false;
}

/* ---- doubts ---- */

/* Hosts that should hang on this member, and do not come: they went while the tree changed. */
static void children_ask(struct tutti_tree_machine *t, bool feared)
{
    uint32_t children[TUTTI_TREE_ASKED];
    const uint32_t n = tutti_tree_children(t, children, feared);
    for (uint32_t i = 0; i < n; i++) {
        struct tutti_tree_link *link = &t->links[children[i]];
        if (link->open) continue;
        if (link->asked_ns == 0) link->asked_ns = t->now;
        if (t->now - link->asked_ns < COME_NS) continue;
        if (!link->dialing) link->extra = t->extras = true;
        dial(t, children[i]);
        link->feared = t->doubts && !begins(t, link) && t->now - link->asked_ns >= 2 * COME_NS;
    }
}

/* Those who may be the parent next, in the order in which they would be. */
static void parents_ask(struct tutti_tree_machine *t)
{
    if (t->parent == NOBODY || !is_silent(t, t->parent, doubt_ns(t))) {
        t->width = 0;
        return;
    }
    if (t->width > 0 && t->now - t->widened_ns < COME_NS) return;
    t->width = t->width == 0 ? WIDTH_FIRST : t->width < TUTTI_TREE_ASKED / 4 ? 4 * t->width : TUTTI_TREE_ASKED;
    t->widened_ns = t->now;
    for (uint32_t i = 0; i < t->width; i++) {
        const uint32_t parent = tutti_tree_parent_of(t, t->me, true);
        if (parent == NOBODY || t->links[parent].open) return;
        dial(t, parent);
        t->links[parent].extra = t->links[parent].feared = t->extras = true;
    }
}

/* Links that were dialed in a doubt, and the tree as it is does not need. */
static void extras_end(struct tutti_tree_machine *t)
{
    t->extras = false;
    for (uint32_t i = 0; i < t->n; i++) {
        struct tutti_tree_link *link = &t->links[i];
        if (!link->extra && !link->feared && link->asked_ns == 0) continue;
        const bool needed = i == t->parent || tutti_tree_parent_of(t, i, false) == t->me;
        link->feared = false;
        if (!link->open && !needed) link->asked_ns = 0;
        if (link->extra && link->open && !needed) unlink_from(t, i);
        if (link->extra && !link->open && link->dialing) t->extras = true; /* it may still open */
        link->extra = link->extra && !needed;
    }
}

static void doubts_look(struct tutti_tree_machine *t)
{
    t->doubts = t->now < t->doubts_until_ns || (t->parent != NOBODY && is_silent(t, t->parent, doubt_ns(t)));
    for (uint32_t i = 0; i < t->n_linked; i++) {
        struct tutti_tree_link *link = &t->links[t->linked[i]];
        link->feared = is_silent(t, t->linked[i], doubt_ns(t));
        t->doubts |= link->feared && !is_here(t, t->linked[i]);
    }
    children_ask(t, false);
    parents_ask(t);
    if (t->doubts)
        children_ask(t, true);
    else if (t->extras)
        extras_end(t);
}

static void time_again(struct tutti_tree_machine *t, uint64_t away_ns)
{
    t->begun_ns += away_ns;
    for (uint32_t i = 0; i < t->n; i++) {
        struct tutti_tree_link *link = &t->links[i];
        if (link->open) link->heard_ns = t->now;
        if (link->asked_ns) link->asked_ns += away_ns;
    }
}

void tutti_tree_tick(struct tutti_tree_machine *t, uint64_t now)
{
    const struct tutti_tree_message ping = {.type = TUTTI_TREE_PING};
    const uint64_t before = t->now;
    t->now = now;
    if (t->ticked_ns && now - t->ticked_ns > t->silence_ns / 2) t->away_until_ns = now + t->silence_ns;
    t->ticked_ns = now;
    /* A member that was stopped itself has heard nobody: the others get their time again. */
    if (now - before > t->silence_ns / 2) time_again(t, now - before);
    doubts_look(t);
    for (uint32_t n = t->hosts->n_hosts; n > 0 && (silence_check(t) || asked_check(t)); n--) {
    }
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
    return t->n_raised == 0 && tutti_tree_is_whole(t);
}

void tutti_tree_leave(struct tutti_tree_machine *t, uint64_t now)
{
    const struct tutti_tree_message left = {.type = TUTTI_TREE_GONE, .n_gone = 1, .gone = {{t->me, TUTTI_LIFE_LEFT}}};
    t->now = now;
    send_others(t, NOBODY, &left);
}
