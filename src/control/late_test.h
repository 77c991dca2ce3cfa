/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_LATE_TEST_H
#define TUTTI_CONTROL_LATE_TEST_H

/* A control unlike that of one host, for tests: nothing is read from memory of others. Each member has a mailbox; what
 * it asks or tells takes `delay_ns`, a board must be asked for, and a hub decides whose failure counts. Without boards
 * it answers UNSUPPORTED. Who lives is UNKNOWN until the first word of it has come. */

#include "control/control.h"

#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define LATE_MEMBERS 16
#define LATE_FAILURES 256
#define LATE_FRESH_NS (100 * TUTTI_NS_PER_MS) /* after which a board is asked for again */

struct late_hub;
struct late_asked {               /* one board of one peer */
    uint64_t asked_ns, answer_ns; /* 0: not asked */
    struct tutti_board answer;
};
struct late_control {
    struct tutti_control base;
    struct late_hub *hub;
    _Atomic uint32_t alarm;
    uint32_t n_read;
    uint64_t opened_ns, left_ns, died_ns; /* 0: not */
    struct tutti_board boards[TUTTI_BOARD_ALL];
    struct late_asked asked[LATE_MEMBERS][TUTTI_BOARD_ALL];
    void (*wake)(void *arg);
    void *wake_arg;
};
struct late_hub {
    pthread_mutex_t lock;
    pthread_t thread;
    uint32_t n;
    uint64_t delay_ns;
    bool boards;
    _Atomic bool stop;
    struct late_control *members[LATE_MEMBERS];
    struct tutti_failure failures[LATE_FAILURES]; /* that count, in order */
    uint64_t told_ns[LATE_FAILURES];
    uint32_t n_failures, n_told;
    _Atomic uint32_t n_raised, n_pending; /* for tests: failures raised, questions without an answer yet */
};

static inline struct late_control *late_of(struct tutti_control *c)
{
    return (struct late_control *)(void *)c;
}

static inline enum tutti_life late_life(struct tutti_control *c, uint32_t peer)
{
    struct late_control *late = late_of(c);
    const uint64_t now = tutti_now_ns(), delay = late->hub->delay_ns;
    enum tutti_life life = TUTTI_LIFE_UNKNOWN;
    pthread_mutex_lock(&late->hub->lock);
    const struct late_control *p = peer < c->n ? late->hub->members[peer] : NULL;
    if (p && now >= p->opened_ns + delay) life = TUTTI_LIFE_ALIVE;
    if (p && p->left_ns && now >= p->left_ns + delay) life = TUTTI_LIFE_LEFT;
    if (p && p->died_ns && now >= p->died_ns + delay) life = TUTTI_LIFE_DEAD;
    pthread_mutex_unlock(&late->hub->lock);
    return life;
}

static inline void late_publish(struct tutti_control *c, uint32_t slot, const struct tutti_board *board)
{
    struct late_control *late = late_of(c);
    pthread_mutex_lock(&late->hub->lock);
    if (slot < TUTTI_BOARD_ALL && !late->died_ns) late->boards[slot] = *board;
    pthread_mutex_unlock(&late->hub->lock);
}

static inline enum tutti_status late_peek(struct tutti_control *c, uint32_t peer, uint32_t slot,
                                          struct tutti_board *out)
{
    struct late_control *late = late_of(c);
    struct late_hub *hub = late->hub;
    const uint64_t now = tutti_now_ns();
    enum tutti_status status = TUTTI_OK;
    if (peer >= c->n || slot >= TUTTI_BOARD_ALL || (!hub->boards && peer != c->me)) return TUTTI_ERR_UNSUPPORTED;
    pthread_mutex_lock(&hub->lock);
    struct late_asked *asked = &late->asked[peer][slot];
    if (peer == c->me) {
        *out = late->boards[slot];
    } else {
        const struct late_control *p = hub->members[peer];
        const uint64_t gone_ns = p->died_ns ? p->died_ns : p->left_ns;
        if (asked->asked_ns && now >= asked->asked_ns + hub->delay_ns) {
            asked->answer = p->boards[slot]; /* somebody keeps those of the dead */
            asked->asked_ns = 0, asked->answer_ns = now;
        }
        if (!asked->asked_ns && (gone_ns ? asked->answer_ns <= gone_ns : now >= asked->answer_ns + LATE_FRESH_NS))
            asked->asked_ns = now;
        status = asked->asked_ns ? TUTTI_PENDING : TUTTI_OK;
        if (status == TUTTI_PENDING) atomic_fetch_add(&hub->n_pending, 1);
        if (status == TUTTI_OK) *out = asked->answer;
    }
    pthread_mutex_unlock(&hub->lock);
    return status;
}

static inline void late_raise(struct tutti_control *c, const struct tutti_failure *failure)
{
    struct late_hub *hub = late_of(c)->hub;
    bool first = true;
    pthread_mutex_lock(&hub->lock);
    atomic_fetch_add(&hub->n_raised, 1);
    for (uint32_t i = 0; i < hub->n_failures; i++)
        first &=
            failure->comm == 0 || hub->failures[i].comm != failure->comm || hub->failures[i].epoch != failure->epoch;
    if (first && hub->n_failures < LATE_FAILURES) {
        hub->failures[hub->n_failures] = *failure;
        hub->failures[hub->n_failures].error.collective = NULL;
        hub->told_ns[hub->n_failures++] = tutti_now_ns() + 2 * hub->delay_ns;
    }
    pthread_mutex_unlock(&hub->lock);
}

static inline enum tutti_status late_failure(struct tutti_control *c, struct tutti_failure *out)
{
    struct late_control *late = late_of(c);
    enum tutti_status status = TUTTI_AGAIN;
    pthread_mutex_lock(&late->hub->lock);
    if (late->n_read < late->hub->n_told) {
        *out = late->hub->failures[late->n_read++];
        status = TUTTI_OK;
    } else {
        atomic_store(&c->heard, atomic_load(&late->alarm));
    }
    pthread_mutex_unlock(&late->hub->lock);
    return status;
}

static inline void late_listen(struct tutti_control *c, void (*wake)(void *arg), void *arg)
{
    struct late_control *late = late_of(c);
    pthread_mutex_lock(&late->hub->lock);
    late->wake = wake, late->wake_arg = arg;
    pthread_mutex_unlock(&late->hub->lock);
}

static inline void late_close(struct tutti_control *c)
{
    pthread_mutex_lock(&late_of(c)->hub->lock);
    late_of(c)->left_ns = tutti_now_ns();
    pthread_mutex_unlock(&late_of(c)->hub->lock); /* the hub frees it: others still ask of it */
}

/* The mail: what is due is told to all, and their owners are woken. */
static inline void *late_thread(void *arg)
{
    struct late_hub *hub = arg;
    while (!atomic_load(&hub->stop)) {
        tutti_sleep_ns(TUTTI_NS_PER_MS);
        pthread_mutex_lock(&hub->lock);
        while (hub->n_told < hub->n_failures && hub->told_ns[hub->n_told] <= tutti_now_ns()) {
            hub->n_told++;
            for (uint32_t i = 0; i < hub->n; i++) {
                if (!hub->members[i]) continue;
                atomic_fetch_add(&hub->members[i]->alarm, 1);
                if (hub->members[i]->wake) hub->members[i]->wake(hub->members[i]->wake_arg);
            }
        }
        pthread_mutex_unlock(&hub->lock);
    }
    return NULL;
}

static inline struct late_hub *late_hub_make(uint32_t n, uint64_t delay_ns, bool boards)
{
    struct late_hub *hub = calloc(1, sizeof(*hub));
    assert_non_null(hub);
    assert_true(n <= LATE_MEMBERS);
    hub->n = n, hub->delay_ns = delay_ns, hub->boards = boards;
    pthread_mutex_init(&hub->lock, NULL);
    assert_int_equal(pthread_create(&hub->thread, NULL, late_thread, hub), 0);
    return hub;
}

static inline void late_hub_free(struct late_hub *hub)
{
    atomic_store(&hub->stop, true);
    pthread_join(hub->thread, NULL);
    for (uint32_t i = 0; i < hub->n; i++) free(hub->members[i]);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

static inline struct tutti_control *late_open(struct late_hub *hub, uint32_t me)
{
    static const struct tutti_control_ops ops = {.size = sizeof(ops),
                                                 .close = late_close,
                                                 .life = late_life,
                                                 .publish = late_publish,
                                                 .peek = late_peek,
                                                 .raise = late_raise,
                                                 .failure = late_failure,
                                                 .listen = late_listen};
    struct late_control *late = calloc(1, sizeof(*late));
    if (!late) abort();
    late->base = (struct tutti_control){.ops = &ops, .name = "late", .n = hub->n, .me = me, .alarm = &late->alarm};
    late->hub = hub;
    late->opened_ns = tutti_now_ns();
    pthread_mutex_lock(&hub->lock);
    hub->members[me] = late;
    pthread_mutex_unlock(&hub->lock);
    return &late->base;
}

/* From now on the member is dead; the others hear of it late. */
static inline void late_kill(struct tutti_control *c)
{
    pthread_mutex_lock(&late_of(c)->hub->lock);
    late_of(c)->died_ns = tutti_now_ns();
    pthread_mutex_unlock(&late_of(c)->hub->lock);
}

#endif
