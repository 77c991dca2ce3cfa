/* SPDX-License-Identifier: BSD-3-Clause */
/* The store as the door of a communicator that survives: the keys under which newcomers and members speak (admit.c);
 * and as an arbiter, which lets one side of a cut go on. A view is left by the first side that asks: one, and for ever.
 * Where some may not have come into a view yet, they may ask for the one before, so that one is asked for, too. */

#include "comm/life/survive.h"

#include "store/open.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum tutti_status tutti_door_init(struct tutti_door *door, const struct tutti_comm_config *given)
{
    const char *name = given->name ? given->name : "world";
    if (!name[0] || strlen(name) > TUTTI_STORE_KEY_MAX / 2)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: name has %zu characters, not 1 to %d", strlen(name),
                          TUTTI_STORE_KEY_MAX / 2);
    if (given->store && !given->store->ops)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: store has no table of functions");
    snprintf(door->name, sizeof(door->name), "%s", name);
    if (given->store) door->store = *given->store;
    if (!given->secret) return TUTTI_OK;
    const size_t bytes = strlen(given->secret) + 1;
    if (bytes > TUTTI_SECRET_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_create: the secret is longer than %d bytes", TUTTI_SECRET_MAX);
    door->secret = tutti_alloc(bytes);
    if (!door->secret) return tutti_fail(TUTTI_ERR_MEMORY, "comm_create: out of memory");
    memcpy(door->secret, given->secret, bytes);
    return TUTTI_OK;
}

void tutti_door_close(struct tutti_door *door)
{
    if (door->is_own) tutti_store_close(&door->store);
    if (door->secret) explicit_bzero(door->secret, strlen(door->secret));
    tutti_free(door->secret);
    tutti_free(door->waiting);
    *door = (struct tutti_door){.name = ""};
}

/* AGAIN: nothing names a store. */
enum tutti_status tutti_door_open(struct tutti_door *door, const struct tutti_config *config, uint64_t deadline_ns)
{
    const char *address = config->text[TUTTI_OPT_store], *secret = config->text[TUTTI_OPT_secret];
    if (door->store.ops) return TUTTI_OK;
    if (!address || !address[0]) return TUTTI_AGAIN;
    struct tutti_certificate *certificate = NULL;
    if (door->secret)
        secret = door->secret;
    else
        TUTTI_TRY(tutti_certificate_of(config, &certificate));
    TUTTI_TRY(tutti_store_open_by(address, secret && secret[0] ? secret : NULL, certificate, false, deadline_ns,
                                  &door->store));
    door->is_own = true;
    return TUTTI_OK;
}

/* ticket 0, number 0: not in the key. */
static void key_make(const struct tutti_door *door, const char *what, int64_t ticket, int64_t number,
                     char out[TUTTI_STORE_KEY_MAX + 1])
{
    const size_t room = TUTTI_STORE_KEY_MAX + 1;
    size_t n = (size_t)snprintf(out, room, "tutti/%.128s/door/%s", door->name, what);
    if (ticket) n += (size_t)snprintf(out + n, room - n, "/%" PRId64, ticket);
    if (number) snprintf(out + n, room - n, "/%" PRId64, number);
}

enum tutti_status tutti_door_set(const struct tutti_door *door, const char *what, int64_t ticket, int64_t number,
                                 const void *value, size_t bytes)
{
    char key[TUTTI_STORE_KEY_MAX + 1];
    key_make(door, what, ticket, number, key);
    return door->store.ops->set(door->store.self, key, value, bytes);
}

enum tutti_status tutti_door_get(const struct tutti_door *door, const char *what, int64_t ticket, int64_t number,
                                 void *value, size_t capacity, size_t *bytes, uint64_t deadline_ns)
{
    char key[TUTTI_STORE_KEY_MAX + 1];
    key_make(door, what, ticket, number, key);
    const enum tutti_status status = door->store.ops->get(door->store.self, key, value, capacity, bytes, deadline_ns);
    if (status >= 0 && *bytes > capacity) return TUTTI_ERR_TRUNCATED;
    return status;
}

enum tutti_status tutti_door_add(const struct tutti_door *door, const char *what, int64_t ticket, int64_t delta,
                                 int64_t *value)
{
    char key[TUTTI_STORE_KEY_MAX + 1];
    key_make(door, what, ticket, 0, key);
    return door->store.ops->add(door->store.self, key, delta, value);
}

/* The next message to a newcomer. */
enum tutti_status tutti_door_send(const struct tutti_door *door, int64_t ticket, const void *value, size_t bytes,
                                  int64_t *number)
{
    TUTTI_TRY(tutti_door_add(door, "to", ticket, 1, number));
    return tutti_door_set(door, "to", ticket, *number, value, bytes);
}

/* ---- the store as an arbiter between the sides of a cut ---- */

enum tutti_status tutti_door_need(struct tutti_door *door, const struct tutti_comm *comm)
{
    const struct tutti_config *config = &comm->context->config;
    if (!config->number[TUTTI_OPT_arbiter]) return TUTTI_OK;
    const enum tutti_status status = tutti_door_open(door, config, tutti_deadline_ns(comm->create_timeout_ns));
    if (status != TUTTI_AGAIN) return status;
    return tutti_fail(TUTTI_ERR_ARGUMENT,
                      "comm_create: option arbiter needs a store: give config.store, or set TUTTI_STORE");
}

enum tutti_status tutti_door_win(const struct tutti_door *door, uint64_t comm, uint64_t epoch, bool *won)
{
    char what[32];
    int64_t n = 0;
    snprintf(what, sizeof(what), "view-%016" PRIx64, comm);
    TUTTI_TRY(tutti_door_add(door, what, (int64_t)epoch, 1, &n));
    *won = n == 1;
    return TUTTI_OK;
}

enum tutti_status tutti_survive_next(struct tutti_survive *s, struct tutti_next *how, struct tutti_comm **out)
{
    const struct tutti_arbiter arbiter = {.door = &s->door,
                                          .comm = s->comm->id,
                                          .epoch = s->synchrony.epoch,
                                          .asks_before = s->synchrony.epoch > 1 && !s->is_gathered && !s->was_asked};
    bool was_asked = false;
    how->handle = s->comm;
    how->arbiter = s->comm->context->config.number[TUTTI_OPT_arbiter] ? &arbiter : NULL;
    how->was_asked = &was_asked;
    const enum tutti_status status = tutti_comm_next(s->inner, how, out);
    s->is_gathered = false;
    s->was_asked = was_asked;
    return status;
}
