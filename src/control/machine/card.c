/* SPDX-License-Identifier: BSD-3-Clause */

/* Records of ranks as bytes. Pure: one walk over the fields writes or reads them. */

#include "control/machine/card.h"

#include "base/session.h"

#include <string.h>

#define CARD_VERSION 3

struct cursor {
    uint8_t *at;
    bool reads;
};

static void number(struct cursor *c, void *value, unsigned bytes)
{
    uint64_t x = c->reads ? tutti_le_load(c->at, bytes) : 0;
    memcpy(c->reads ? value : &x, c->reads ? &x : value,
           bytes); /* little-endian machines only, as all of this library */
    if (!c->reads) tutti_le_store(c->at, bytes, x);
    c->at += bytes;
}

static void text(struct cursor *c, char *value, size_t bytes)
{
    if (c->reads)
        memcpy(value, c->at, bytes);
    else
        memcpy(c->at, value, bytes);
    if (c->reads) value[bytes - 1] = '\0';
    c->at += bytes;
}

#define NUMBER(field) number(c, &(field), sizeof(field))
#define NUMBERS(array)                                                                                                 \
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(array); i++) NUMBER((array)[i])

static void walk(struct cursor *c, struct tutti_card_record *r)
{
    NUMBER(r->pid);
    NUMBER(r->uid);
    NUMBER(r->cpus);
    NUMBER(r->start);
    NUMBER(r->build);
    NUMBER(r->host);
    NUMBER(r->boot);
    NUMBER(r->config_hash);
    text(c, r->version, sizeof r->version);
    text(c, r->agreed, sizeof r->agreed);
    NUMBER(r->crowded);
    NUMBER(r->decorated);
    NUMBER(r->device);
    NUMBERS(r->group);
    NUMBER(r->payer);
    NUMBER(r->quota);
    NUMBERS(r->cpu_words);
    NUMBERS(r->machine);
    NUMBER(r->port);
    text(c, r->host_name, sizeof r->host_name);
}

_Static_assert(sizeof(struct tutti_card_record) < TUTTI_CARD_RECORD_BYTES, "all fields, without gaps, and a version");

void tutti_card_encode(const struct tutti_card_record *record, uint8_t out[TUTTI_CARD_RECORD_BYTES])
{
    struct tutti_card_record copy = *record;
    struct cursor c = {.at = out + 1};
    memset(out, 0, TUTTI_CARD_RECORD_BYTES);
    out[0] = CARD_VERSION;
    walk(&c, &copy);
}

bool tutti_card_decode(const uint8_t bytes[TUTTI_CARD_RECORD_BYTES], struct tutti_card_record *out)
{
    uint8_t copy[TUTTI_CARD_RECORD_BYTES]; /* what was checked can not change any more */
    memcpy(copy, bytes, sizeof copy);
    struct cursor c = {.at = copy + 1, .reads = true};
    memset(out, 0, sizeof *out);
    if (copy[0] != CARD_VERSION) return false;
    walk(&c, out);
    return true;
}
