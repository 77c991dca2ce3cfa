/* SPDX-License-Identifier: BSD-3-Clause */

/* What the TCP store's server does with a frame: the greeting, the requests as one table, and the answers. */

#include "store/store_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- answers ---- */

static void answer_number(struct tutti_store_server *s, struct tutti_store_client *c, int64_t number)
{
    tutti_store_client_send(s, c, &(struct tutti_store_frame){.type = TUTTI_STORE_ANSWER, .number = number});
}

static void answer_entry(struct tutti_store_server *s, struct tutti_store_client *c, uint8_t type,
                         const struct tutti_store_entry *entry)
{
    struct tutti_store_frame answer = {.type = TUTTI_STORE_ANSWER};
    if (type == TUTTI_STORE_GET) answer.value = entry->value, answer.value_bytes = entry->value_bytes;
    tutti_store_client_send(s, c, &answer);
}

/* ---- requests ---- */

static void waiters_answer(struct tutti_store_server *s, struct tutti_store_entry *entry)
{
    while (entry->waiters) {
        struct tutti_store_client *c = (struct tutti_store_client *)(void *)entry->waiters;
        tutti_store_waiter_remove(&s->table, &c->waiter); /* the entry stays: it is present */
        c->until_ns = TUTTI_NEVER;
        answer_entry(s, c, c->wait_type, entry);
        tutti_store_client_watch(s, c);
    }
}

static enum tutti_status serve_set(struct tutti_store_server *s, struct tutti_store_client *c,
                                   const struct tutti_store_frame *f)
{
    struct tutti_store_entry *entry;
    TUTTI_TRY(tutti_store_table_get(&s->table, f->key, f->key_bytes, &entry));
    TUTTI_TRY(tutti_store_table_set(&s->table, entry, f->value, f->value_bytes));
    answer_number(s, c, 0);
    waiters_answer(s, entry);
    return TUTTI_OK;
}

static enum tutti_status serve_wait(struct tutti_store_server *s, struct tutti_store_client *c,
                                    const struct tutti_store_frame *f)
{
    struct tutti_store_entry *entry = tutti_store_table_find(&s->table, f->key, f->key_bytes);
    if (entry && entry->present) {
        answer_entry(s, c, f->type, entry);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_store_table_get(&s->table, f->key, f->key_bytes, &entry));
    tutti_store_waiter_add(entry, &c->waiter);
    c->wait_type = f->type;
    c->wait_ns = (uint64_t)f->number;
    c->until_ns = tutti_deadline_ns((uint64_t)f->number);
    tutti_store_server_look_by(s, c->until_ns);
    return TUTTI_OK;
}

static enum tutti_status serve_add(struct tutti_store_server *s, struct tutti_store_client *c,
                                   const struct tutti_store_frame *f)
{
    struct tutti_store_entry *entry = tutti_store_table_find(&s->table, f->key, f->key_bytes);
    int64_t counter = 0;
    char text[24];
    if (entry && entry->present && !tutti_store_counter_parse(entry->value, entry->value_bytes, &counter))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "key %.*s does not hold a counter",
                          (int)(f->key_bytes < 100 ? f->key_bytes : 100), (const char *)f->key);
    if (__builtin_add_overflow(counter, f->number, &counter))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the counter of key %.*s overflows",
                          (int)(f->key_bytes < 100 ? f->key_bytes : 100), (const char *)f->key);
    TUTTI_TRY(tutti_store_table_get(&s->table, f->key, f->key_bytes, &entry));
    int n = snprintf(text, sizeof text, "%" PRId64, counter);
    TUTTI_TRY(tutti_store_table_set(&s->table, entry, text, (size_t)n));
    answer_number(s, c, counter);
    waiters_answer(s, entry);
    return TUTTI_OK;
}

static enum tutti_status serve_remove(struct tutti_store_server *s, struct tutti_store_client *c,
                                      const struct tutti_store_frame *f)
{
    struct tutti_store_entry *entry = tutti_store_table_find(&s->table, f->key, f->key_bytes);
    bool existed = entry && entry->present;
    if (existed) tutti_store_table_remove(&s->table, entry);
    answer_number(s, c, existed);
    return TUTTI_OK;
}

static enum tutti_status serve_ping(struct tutti_store_server *s, struct tutti_store_client *c,
                                    const struct tutti_store_frame *f)
{
    (void)f;
    answer_number(s, c, 0);
    return TUTTI_OK;
}

static const struct {
    enum tutti_status (*serve)(struct tutti_store_server *s, struct tutti_store_client *c,
                               const struct tutti_store_frame *f);
    bool keyed;
} request_table[TUTTI_STORE_N_TYPES] = {
    [TUTTI_STORE_SET] = {serve_set, true},       [TUTTI_STORE_GET] = {serve_wait, true},
    [TUTTI_STORE_WAIT] = {serve_wait, true},     [TUTTI_STORE_ADD] = {serve_add, true},
    [TUTTI_STORE_REMOVE] = {serve_remove, true}, [TUTTI_STORE_PING] = {serve_ping, false},
};

/* The first frame: nonces change hands. */
static enum tutti_status serve_hello(struct tutti_store_server *s, struct tutti_store_client *c,
                                     const struct tutti_store_frame *f)
{
    uint8_t *nonce = c->session.nonces[1];
    if (f->type != TUTTI_STORE_HELLO || f->value_bytes != TUTTI_NONCE_BYTES || f->mac)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a connection that does not begin with HELLO");
    memcpy(c->session.nonces[0], f->value, TUTTI_NONCE_BYTES);
    TUTTI_TRY(tutti_random_bytes(nonce, TUTTI_NONCE_BYTES));
    c->state = TUTTI_CLIENT_GREETED;
    tutti_store_client_send(
        s, c, &(struct tutti_store_frame){.type = TUTTI_STORE_HELLO, .value = nonce, .value_bytes = TUTTI_NONCE_BYTES});
    return TUTTI_OK;
}

/* PROTOCOL and AUTH end the connection; other errors are answers. */
static enum tutti_status frame_serve(struct tutti_store_server *s, struct tutti_store_client *c,
                                     const struct tutti_store_frame *f)
{
    if (c->state == TUTTI_CLIENT_FRESH) return serve_hello(s, c, f);
    TUTTI_TRY(tutti_store_frame_verify(&c->session, c->in, f));
    if (c->state != TUTTI_CLIENT_TRUSTED) {
        c->state = TUTTI_CLIENT_TRUSTED, c->until_ns = TUTTI_NEVER;
        s->n_strangers--;
    }
    if (!request_table[f->type].serve || request_table[f->type].keyed != (f->key_bytes > 0))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "a store frame of type %u is no request", f->type);
    enum tutti_status status = request_table[f->type].serve(s, c, f);
    if (status < 0) tutti_store_client_error(s, c);
    return TUTTI_OK;
}

/* Whole frames in c->in, until one must wait. */
void tutti_store_client_frames(struct tutti_store_server *s, struct tutti_store_client *c)
{
    while (!c->doomed && !c->n_out && !c->waiter.entry) {
        struct tutti_store_frame f;
        enum tutti_status status = tutti_store_frame_decode(c->in, c->n_in, &f);
        if (status == TUTTI_AGAIN) return;
        if (status == TUTTI_OK) status = frame_serve(s, c, &f);
        if (status < 0) {
            tutti_store_client_refuse(s, c);
            return;
        }
        c->n_in -= f.frame_bytes;
        memmove(c->in, c->in + f.frame_bytes, c->n_in);
    }
}
