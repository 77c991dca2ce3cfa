/* SPDX-License-Identifier: BSD-3-Clause */
/* How newcomers come into a communicator that survives. They knock at the store and wait; the lowest member looks there
 * when all call tutti_comm_admit. A surviving all_reduce tells all members whom it found, so those who live know the
 * same. Members and newcomers then make a communicator of all of them, over a world of its own, and the members agree,
 * as survivors do (shrink.c), whether each of them has it: if so, it is the next view, else nobody came. The first
 * thing that a view does (GATHER) tells the newcomers that they are in.
 *
 *     member                                store                                newcomer
 *                                           knock: a ticket, knock/T: its card <--
 *     -- to/T/1: are you there? -->                                  -- from/T/1: yes -->
 *     (all_reduce: T becomes rank 3)
 *     -- to/T/2: come, rank 3, view, call -->
 *     <========================= a communicator of all is made ========================>
 *     (agreement) GATHER <======================================================> GATHER: in */

#include "comm/call/device.h"
#include "comm/life/survive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUESTS_MOST = 64, CARD_MOST = 64, COME_VERSION = 2, INVITATION_MOST = 1 << 14 };
#define ANSWER_NS (300 * TUTTI_NS_PER_MS)    /* for a newcomer that lives to say so */
#define LOOK_EVERY_NS (10 * TUTTI_NS_PER_MS) /* calls that come sooner see what the last one saw */
#define DEAF_NS (5 * TUTTI_NS_PER_S)         /* a store that failed is left alone */
#define MEET_NS (10 * TUTTI_NS_PER_S)        /* for members and newcomers, who are all there, to meet */
#define WORD_EVERY_NS (20 * TUTTI_NS_PER_MS) /* between looks whether a meeting is called off */
#define NAP_NS (100 * UINT64_C(1000))

/* A newcomer that waits. */
struct knock {
    int64_t ticket;
    int32_t wanted; /* -1: any rank */
    int64_t asked;  /* the number of the question whether it is there; 0: none */
};
/* Those that come now, as all_reduce takes them. */
struct guests {
    uint64_t n, tickets[GUESTS_MOST], ranks[GUESTS_MOST];
};
/* What a newcomer is told. Two sets follow: the view's, and the members' of it. */
struct come {
    uint32_t version;
    int32_t rank, size;
    uint32_t n; /* in the view */
    uint64_t epoch, called;
    uint64_t comm;          /* the communicator's id */
    int64_t ticket, number; /* the newcomer's, and of this message */
};

/* ---- what both sides know ---- */

/* Where members and newcomers meet: no other attempt has the name. */
static void meeting_name(const struct tutti_door *door, uint64_t called, char out[64])
{
    snprintf(out, 64, "%016" PRIx64 "+%" PRIu64, tutti_hash64(door->name, strlen(door->name), 7), called);
}

static void next_config(const struct tutti_door *door, const char *name, struct tutti_comm_config *out)
{
    *out = (struct tutti_comm_config)TUTTI_COMM_CONFIG_INIT;
    out->store = &door->store;
    out->name = name;
    out->secret = door->secret;
    out->timeout_ns = MEET_NS;
    out->device = TUTTI_DEVICE_NONE;
}

/* ---- sets ---- */

static uint32_t set_count(const unsigned char *set, uint32_t size, uint32_t below, uint32_t *n_below)
{
    uint32_t n = 0;
    *n_below = 0;
    for (uint32_t rank = 0; rank < size; rank++) {
        if (!set_has(set, rank)) continue;
        n++;
        *n_below += rank < below;
    }
    return n;
}

/* ---- the lowest member looks ---- */

static void note(struct tutti_door *door, int64_t ticket)
{
    char card[CARD_MOST] = "", state = 0;
    int wanted = -1, end = 0;
    size_t bytes = 0;
    const uint64_t deadline_ns = tutti_deadline_ns(ANSWER_NS);
    if (tutti_door_get(door, "knock", ticket, 0, card, sizeof(card) - 1, &bytes, deadline_ns) < 0) return;
    if (sscanf(card, "%c %d%n", &state, &wanted, &end) != 2 || state != 'w' || wanted < -1 || card[end]) return;
    if (door->n_waiting == door->capacity) {
        const size_t more = door->capacity ? 2 * door->capacity : 16;
        struct knock *grown = tutti_alloc_array(more, sizeof(*grown));
        if (!grown) return;
        if (door->n_waiting) memcpy(grown, door->waiting, door->n_waiting * sizeof(*grown));
        tutti_free(door->waiting);
        door->waiting = grown;
        door->capacity = more;
    }
    door->waiting[door->n_waiting++] = (struct knock){.ticket = ticket, .wanted = wanted};
}

/* Whether it has answered by then, or does at once. */
static bool is_there(const struct tutti_door *door, const struct knock *knock, uint64_t deadline_ns)
{
    char word[CARD_MOST];
    size_t bytes = 0;
    const uint64_t soon_ns = tutti_deadline_ns(TUTTI_NS_PER_MS);
    return knock->asked && tutti_door_get(door, "from", knock->ticket, knock->asked, word, sizeof(word), &bytes,
                                          deadline_ns > soon_ns ? deadline_ns : soon_ns) >= 0;
}

/* A rank that nobody has, and no guest yet; the wanted one, or the lowest. -1: none. */
static int32_t free_rank(const struct tutti_survive *s, const unsigned char *taken, int32_t wanted)
{
    if (wanted >= 0) return wanted < s->comm->size && !set_has(taken, (uint32_t)wanted) ? wanted : -1;
    for (int32_t rank = 0; rank < s->comm->size; rank++)
        if (!set_has(taken, (uint32_t)rank)) return rank;
    return -1;
}

static void forget(struct tutti_door *door, size_t i)
{
    memmove(&door->waiting[i], &door->waiting[i + 1], (door->n_waiting - i - 1) * sizeof(*door->waiting));
    door->n_waiting--;
}

/* Asks all for whom there may be a place, so that those who are dead are waited for together. */
static void ask(const struct tutti_survive *s, const unsigned char *taken)
{
    for (size_t i = 0; i < s->door.n_waiting; i++) {
        struct knock *knock = &s->door.waiting[i];
        knock->asked = 0;
        if (free_rank(s, taken, knock->wanted) < 0) continue;
        if (tutti_door_send(&s->door, knock->ticket, "?", 1, &knock->asked) < 0) knock->asked = 0;
    }
}

/* Finds those that live and for whom there is a place. taken: a set to work in. */
static void choose(struct tutti_survive *s, unsigned char *taken, struct guests *guests)
{
    struct tutti_door *door = &s->door;
    tutti_survive_set_to_view(s, taken);
    ask(s, taken);
    const uint64_t deadline_ns = tutti_deadline_ns(ANSWER_NS);
    for (size_t i = 0; i < door->n_waiting && guests->n < GUESTS_MOST;) {
        const struct knock knock = door->waiting[i];
        const int32_t rank = free_rank(s, taken, knock.wanted);
        if (rank >= 0 && !is_there(door, &knock, deadline_ns)) {
            forget(door, i);
            continue;
        }
        i++;
        if (rank < 0) continue;
        set_add(taken, (uint32_t)rank);
        guests->tickets[guests->n] = (uint64_t)knock.ticket;
        guests->ranks[guests->n++] = (uint64_t)rank;
    }
}

/* A store that fails lets nobody in: the members go on. */
static void look(struct tutti_survive *s, unsigned char *taken, struct guests *guests)
{
    struct tutti_door *door = &s->door;
    const uint64_t now = tutti_now_ns();
    int64_t n = 0;
    *guests = (struct guests){.n = 0};
    if (s->ranks[0] != (uint32_t)s->comm->rank || s->n == (uint32_t)s->comm->size) return;
    if (now - door->looked_ns < (door->is_deaf ? DEAF_NS : LOOK_EVERY_NS)) return;
    enum tutti_status status = tutti_door_open(door, &s->comm->context->config, tutti_deadline_ns(TUTTI_NS_PER_S));
    if (status >= 0 && status != TUTTI_AGAIN) status = tutti_door_add(door, "knock", 0, 0, &n);
    door->is_deaf = status < 0;
    door->looked_ns = tutti_now_ns();
    if (status < 0) tutti_log(TUTTI_LOG_WARN, "nobody can join: %s", tutti_last_error()->text);
    while (status == TUTTI_OK && door->n_seen < n) note(door, ++door->n_seen);
    choose(s, taken, guests);
}

/* ---- members ---- */

static bool is_disturbed(const struct tutti_survive *s)
{
    const struct tutti_comm *view = s->inner;
    struct tutti_control *control = view->family->world.control;
    for (uint32_t i = 0; i < s->n; i++)
        if (tutti_life_gone(control->ops->life(control, view->members[i]))) return true;
    return tutti_comm_state(s->inner, NULL) < 0;
}

/* The communicator of all; NULL: it could not be made. */
static struct tutti_comm *meet(struct tutti_survive *s, const unsigned char *set)
{
    char name[64];
    struct tutti_comm_config config;
    struct tutti_comm *next = NULL;
    uint32_t place = 0;
    meeting_name(&s->door, s->synchrony.called, name);
    next_config(&s->door, name, &config);
    config.n_ranks = (int32_t)set_count(set, (uint32_t)s->comm->size, (uint32_t)s->comm->rank, &place);
    config.rank = (int32_t)place;
    config.nonblocking = true;
    enum tutti_status status =
        tutti_door_open(&s->door, &s->comm->context->config, tutti_deadline_ns(TUTTI_NS_PER_S)) == TUTTI_OK
            ? tutti_comm_create(s->comm->context, &config, &next)
            : TUTTI_ERR_SYSTEM;
    bool disturbed = false;
    while (status >= 0 && (status = tutti_comm_state(next, NULL)) == TUTTI_PENDING) {
        if (!disturbed && is_disturbed(s)) tutti_comm_abort(next, "a member was lost"), disturbed = true;
        tutti_sleep_ns(NAP_NS);
    }
    if (status >= 0) return next;
    tutti_log(TUTTI_LOG_WARN, "nobody came in: %s", tutti_last_error()->text);
    if (next) tutti_comm_destroy(next);
    return NULL;
}

/* To those who wait to meet in vain. */
static void call_off(struct tutti_survive *s, const struct guests *guests)
{
    int64_t number;
    if (s->ranks[0] != (uint32_t)s->comm->rank) return;
    if (tutti_door_open(&s->door, &s->comm->context->config, tutti_deadline_ns(TUTTI_NS_PER_S)) != TUTTI_OK) return;
    for (uint64_t i = 0; i < guests->n; i++)
        (void)tutti_door_send(&s->door, (int64_t)guests->tickets[i], "-", 1, &number);
}

static void invite(struct tutti_survive *s, const struct guests *guests, const unsigned char *set)
{
    unsigned char text[INVITATION_MOST];
    const size_t bytes = sizeof(struct come) + 2 * s->set_bytes;
    struct come come = {.version = COME_VERSION,
                        .size = s->comm->size,
                        .n = s->n + (uint32_t)guests->n,
                        .epoch = s->synchrony.epoch + 1,
                        .called = s->synchrony.called,
                        .comm = s->comm->id};
    if (bytes > sizeof(text)) return; /* more than 65000 ranks */
    memcpy(text + sizeof(come), set, s->set_bytes);
    tutti_survive_set_to_view(s, text + sizeof(come) + s->set_bytes);
    for (uint64_t i = 0; i < guests->n; i++) {
        int64_t number;
        come.rank = (int32_t)guests->ranks[i];
        memcpy(text, &come, sizeof(come));
        if (tutti_door_send(&s->door, (int64_t)guests->tickets[i], text, bytes, &number) < 0)
            tutti_log(TUTTI_LOG_WARN, "a newcomer can not be told: %s", tutti_last_error()->text);
    }
}

/* With nobody else in a call. *came: they are in. */
static enum tutti_status let_in(struct tutti_survive *s, const struct guests *guests, bool *came)
{
    unsigned char *sets = tutti_alloc(2 * s->set_bytes), *set = sets + s->set_bytes;
    struct tutti_comm *larger = NULL, *next = NULL;
    if (sets) {
        tutti_survive_set_to_view(s, sets);
        memcpy(set, sets, s->set_bytes);
        /* One whose members are not those who drew this conclusion was handed on: a member was lost meanwhile. */
        if (memcmp(sets, s->set, s->set_bytes) != 0) {
            tutti_free(sets);
            call_off(s, guests);
            return TUTTI_OK;
        }
        for (uint64_t i = 0; i < guests->n; i++) set_add(set, (uint32_t)guests->ranks[i]);
        if (s->ranks[0] == (uint32_t)s->comm->rank) invite(s, guests, set);
        larger = meet(s, set);
    }
    enum tutti_synchrony_do what;
    struct tutti_next how = {.larger = larger, .patience_ns = s->comm->create_timeout_ns + MEET_NS};
    if (tutti_survive_next(s, &how, &next) < 0) {
        what = tutti_survive_stop(s);
    } else if (next == larger) {
        *came = true;
        tutti_survive_set_view(s, larger, set, sets);
        larger = NULL;
        what = tutti_synchrony_admitted(&s->synchrony, s->synchrony.epoch + 1);
    } else {
        tutti_survive_follow(s, next);
        what = tutti_synchrony_admitted(&s->synchrony, s->synchrony.epoch + 1);
    }
    tutti_free(sets);
    if (larger) tutti_comm_destroy(larger);
    if (!*came && what != TUTTI_SYNCHRONY_END) call_off(s, guests);
    return tutti_survive_drive(s, NULL, what);
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static bool is_sane(const struct tutti_survive *s, const struct guests *guests)
{
    if (guests->n > GUESTS_MOST) return false;
    for (uint64_t i = 0; i < guests->n; i++)
        if (guests->ranks[i] >= (uint64_t)s->comm->size) return false;
    return true;
}

/* What the lowest member saw, to all; none if it died meanwhile. */
static enum tutti_status tell_all(struct tutti_survive *s, struct guests *guests)
{
    uint64_t n = guests->n;
    TUTTI_TRY(tutti_all_reduce(&n, &n, 1, TUTTI_UINT64, TUTTI_MAX, s->comm, NULL, NULL));
    if (n == 0) {
        guests->n = 0;
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_all_reduce(guests, guests, sizeof(*guests) / sizeof(uint64_t), TUTTI_UINT64, TUTTI_MAX, s->comm,
                               NULL, NULL));
    return is_sane(s, guests) ? TUTTI_OK
                              : tutti_fail(TUTTI_ERR_PROTOCOL, "comm_admit on rank %d: the members say what can not be",
                                           (int)s->comm->rank);
}

static enum tutti_status admit(struct tutti_survive *s, struct guests *guests, bool *came)
{
    unsigned char *taken = tutti_alloc(s->set_bytes);
    if (taken) look(s, taken, guests);
    tutti_free(taken);
    TUTTI_TRY(tell_all(s, guests));
    if (guests->n == 0) return TUTTI_OK;
    tutti_survive_begin(s);
    enum tutti_status status = let_in(s, guests, came);
    if (status >= 0) tutti_survive_set_to_view(s, set_at(s, s->synchrony.called));
    for (size_t i = 0; *came && i < s->door.n_waiting; i++)
        for (uint64_t k = 0; k < guests->n; k++)
            if ((uint64_t)s->door.waiting[i].ticket == guests->tickets[k]) {
                forget(&s->door, i--);
                break;
            }
    tutti_survive_finish(s);
    return status;
}

enum tutti_status tutti_comm_admit(struct tutti_comm *comm, int32_t *ranks, size_t capacity, size_t *n)
{
    struct guests guests = {.n = 0};
    bool came = false;
    TUTTI_TRY(tutti_call_alone("comm_admit"));
    TUTTI_TRY(tutti_comm_enter(comm, "comm_admit"));
    enum tutti_status status =
        comm->survive
            ? admit(comm->survive, &guests, &came)
            : tutti_fail(TUTTI_ERR_ARGUMENT, "comm_admit on rank %d: the communicator was not made with config.survive",
                         (int)comm->rank);
    tutti_comm_leave(comm);
    if (status < 0) return status;
    if (!came) guests.n = 0;
    qsort(guests.ranks, guests.n, sizeof(guests.ranks[0]), compare);
    for (size_t i = 0; ranks && i < guests.n && i < capacity; i++) ranks[i] = (int32_t)guests.ranks[i];
    if (n) *n = guests.n;
    return TUTTI_OK;
}

/* ---- newcomers ---- */

/* The handle: its own team is this rank alone, of the world that it comes into. */
static enum tutti_status handle_make(const struct tutti_comm *view, int32_t rank, int32_t size, struct tutti_comm **out)
{
    struct tutti_comm *comm = NULL;
    TUTTI_TRY(tutti_comm_new(view->context, rank, size, &comm));
    for (int32_t i = 0; i < size; i++) comm->members[i] = view->members[view->rank];
    comm->family = tutti_family_hold(view->family);
    comm->id = tutti_hash64(&view->id, sizeof(view->id), (uint64_t)rank) | 1;
    comm->facts.machine = view->facts.machine;
    comm->facts.shape.size = 1;
    comm->rank = 0, comm->size = 1;
    const enum tutti_status status = tutti_comm_open_team(comm);
    comm->rank = rank, comm->size = size;
    if (status < 0) {
        tutti_comm_free(comm);
        return status;
    }
    tutti_comm_ready(comm);
    *out = comm;
    return TUTTI_OK;
}

static enum tutti_status come_in(struct tutti_comm *comm, const struct come *come, const unsigned char *set,
                                 struct tutti_comm *view)
{
    struct tutti_survive *s = comm->survive;
    tutti_survive_set_view(s, view, set, set + s->set_bytes);
    TUTTI_TRY(tutti_survive_drive(s, NULL, tutti_synchrony_join(&s->synchrony, come->called, come->epoch)));
    s->n_before = come->called - 1;
    s->n_over = come->called;
    tutti_survive_set_to_view(s, set_at(s, come->called));
    atomic_store(&comm->sequence, come->called);
    tutti_gated_renew(s);
    return TUTTI_OK;
}

/* The members say by another message that they go on without it. */
static enum tutti_status meet_members(struct tutti_context *context, const struct tutti_door *door,
                                      struct tutti_comm_config *config, const struct come *come,
                                      struct tutti_comm **out)
{
    struct tutti_comm *view = NULL;
    enum tutti_status status;
    config->nonblocking = true;
    TUTTI_TRY(tutti_comm_create(context, config, &view));
    uint64_t look_ns = tutti_deadline_ns(WORD_EVERY_NS);
    while ((status = tutti_comm_state(view, NULL)) == TUTTI_PENDING) {
        char word;
        size_t bytes = 0;
        if (tutti_now_ns() >= look_ns) {
            look_ns = tutti_deadline_ns(WORD_EVERY_NS);
            if (tutti_door_get(door, "to", come->ticket, come->number + 1, &word, 1, &bytes, tutti_now_ns()) >= 0)
                tutti_comm_abort(view, "the members go on without it");
        }
        tutti_sleep_ns(NAP_NS);
    }
    if (status >= 0) {
        *out = view;
        return TUTTI_OK;
    }
    struct tutti_error why = *tutti_last_error();
    tutti_comm_destroy(view);
    return tutti_fail_record(&why);
}

static enum tutti_status enter(struct tutti_context *context, const struct tutti_comm_config *given,
                               const struct tutti_door *door, const struct come *come, const unsigned char *set,
                               struct tutti_comm **out)
{
    char name[64];
    struct tutti_comm_config config;
    struct tutti_comm *view = NULL, *comm = NULL;
    uint32_t place = 0;
    meeting_name(door, come->called, name);
    next_config(door, name, &config);
    config.n_ranks = (int32_t)set_count(set, (uint32_t)come->size, (uint32_t)come->rank, &place);
    config.rank = (int32_t)place;
    TUTTI_TRY(meet_members(context, door, &config, come, &view));
    tutti_log_set_rank(come->rank); /* not its place in the view */
    enum tutti_status status = handle_make(view, come->rank, come->size, &comm);
    if (status < 0) {
        tutti_comm_destroy(view);
        return status;
    }
    comm->id = come->comm; /* as the members call it; its team is of this rank alone */
    const uint64_t *number = context->config.number;
    comm->wanted_device = tutti_device_resolve(&context->config, given->device);
    comm->create_timeout_ns = given->timeout_ns ? given->timeout_ns : number[TUTTI_OPT_timeout_create];
    atomic_store(&comm->timeout_ns, given->timeout_ns ? given->timeout_ns : number[TUTTI_OPT_timeout]);
    status = tutti_survive_new(comm, given);
    if (status < 0)
        tutti_comm_destroy(view);
    else
        status = come_in(comm, come, set, view);
    if (status < 0) {
        struct tutti_error why = *tutti_last_error();
        tutti_comm_destroy(comm);
        return tutti_fail_record(&why);
    }
    *out = comm;
    return TUTTI_OK;
}

/* What comes from the store is checked before it is believed. */
static bool is_invitation(const unsigned char *text, size_t bytes, struct come *come)
{
    if (bytes < sizeof(*come)) return false;
    memcpy(come, text, sizeof(*come));
    if (come->version != COME_VERSION || come->size < 1 || come->rank < 0 || come->rank >= come->size) return false;
    const size_t set = ((size_t)come->size + SET_WORD - 1) / SET_WORD * sizeof(uint64_t);
    uint32_t below;
    return come->called > 0 && bytes == sizeof(*come) + 2 * set &&
           set_has(text + sizeof(*come), (uint32_t)come->rank) &&
           set_count(text + sizeof(*come), (uint32_t)come->size, 0, &below) == come->n;
}

/* What one attempt died of, so that the next one may do. */
static bool may_try_again(enum tutti_status status)
{
    return tutti_status_is_gone(status) || status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_BOOTSTRAP ||
           status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_CANCELLED;
}

/* AGAIN: an attempt to take this rank failed. */
static enum tutti_status wait_in_line(struct tutti_context *context, const struct tutti_comm_config *given,
                                      const struct tutti_door *door, int64_t ticket, uint64_t deadline_ns,
                                      struct tutti_comm **out)
{
    unsigned char text[INVITATION_MOST];
    for (int64_t number = 1;; number++) {
        size_t bytes = 0;
        struct come come;
        TUTTI_TRY(tutti_door_get(door, "to", ticket, number, text, sizeof(text), &bytes, deadline_ns));
        if (bytes == 1) {
            TUTTI_TRY(tutti_door_set(door, "from", ticket, number, "!", 1));
            continue;
        }
        if (!is_invitation(text, bytes, &come))
            return tutti_fail(TUTTI_ERR_PROTOCOL, "comm_create: what the store says to a newcomer can not be read");
        if (given->n_ranks >= 0 && given->n_ranks != come.size)
            return tutti_fail(TUTTI_ERR_CONFIG, "comm_create: n_ranks is %d, but the communicator to join has %d",
                              (int)given->n_ranks, (int)come.size);
        come.ticket = ticket, come.number = number;
        const enum tutti_status status = enter(context, given, door, &come, text + sizeof(come), out);
        return status < 0 && may_try_again(status) ? TUTTI_AGAIN : status;
    }
}

/* Each attempt has a ticket of its own: who does not answer to one is not asked again. */
static enum tutti_status knock(struct tutti_context *context, const struct tutti_comm_config *given,
                               const struct tutti_door *door, uint64_t deadline_ns, struct tutti_comm **out)
{
    enum tutti_status status;
    char card[CARD_MOST];
    snprintf(card, sizeof(card), "w %d", given->rank < 0 ? -1 : (int)given->rank);
    do {
        int64_t ticket = 0;
        TUTTI_TRY(tutti_door_add(door, "knock", 0, 1, &ticket));
        status = tutti_door_set(door, "knock", ticket, 0, card, strlen(card));
        if (status >= 0) status = wait_in_line(context, given, door, ticket, deadline_ns, out);
        struct tutti_error why = *tutti_last_error();
        (void)tutti_door_set(door, "knock", ticket, 0, "-", 1); /* nobody waits there any more */
        if (status < 0) tutti_fail_record(&why);
        if (status == TUTTI_AGAIN) tutti_log(TUTTI_LOG_INFO, "a newcomer waits on: %s", why.text);
    } while (status == TUTTI_AGAIN && tutti_now_ns() < deadline_ns);
    return status == TUTTI_AGAIN ? TUTTI_ERR_TIMEOUT : status;
}

enum tutti_status tutti_survive_join(struct tutti_context *context, const struct tutti_comm_config *given,
                                     struct tutti_comm **out)
{
    struct tutti_door door = {.name = ""};
    const uint64_t timeout_ns =
        given->timeout_ns ? given->timeout_ns : context->config.number[TUTTI_OPT_timeout_create];
    const uint64_t deadline_ns = tutti_deadline_ns(timeout_ns);
    enum tutti_status status = tutti_door_init(&door, given);
    context->config.number[TUTTI_OPT_survives] = 1; /* no rank writes to a peer's buffer */
    tutti_engine_set_attentive(context->engine);
    if (status >= 0) status = tutti_door_open(&door, &context->config, deadline_ns);
    if (status == TUTTI_AGAIN)
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: who joins needs a store: give config.store, or set "
                                                "TUTTI_STORE to that of the others");
    if (status >= 0) status = knock(context, given, &door, deadline_ns, out);
    if (status == TUTTI_ERR_TIMEOUT)
        tutti_fail(TUTTI_ERR_TIMEOUT, "comm_create " TUTTI_SAYS_TIMED_OUT ": no admit of \"%s\" took this rank",
                   tutti_says_ms(timeout_ns), door.name);
    tutti_door_close(&door);
    return status;
}
