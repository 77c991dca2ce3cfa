/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine: promises, the lead, records, and writes that are under way. */
#include "ft/rules/council.h"

#include <string.h>

#define REST_LEASES 3

enum role { FOLLOWS, TRIES, PREPARES, SYNCS, LEADS };

struct row {
    struct row *next;
    uint64_t write;             /* the number of the write that keeps it; 0: it is kept */
    bool lost;                  /* ... which failed: it is to be kept anew */
    struct tutti_record record; /* its key and bytes lie behind the row */
};
/* What is said once writes are over: up to `number` all records of the ballot are kept. to: the leader, or itself. */
struct pending {
    uint64_t write; /* the last of them; 0: nothing is to be said */
    uint32_t to;
    uint64_t ballot, number, sent_ns;
};
struct tutti_council {
    struct tutti_council_options options;
    struct tutti_council_out out;
    enum role role;
    uint64_t promised; /* the largest ballot that it has promised; kept */
    uint64_t seen;     /* the largest that it has heard of */
    uint64_t ballot;   /* its own, while it tries or leads */
    uint64_t since_ns; /* when its role began */
    uint64_t random;
    uint64_t quiet_ns; /* until then it promises nothing: somebody leads, or may */
    uint64_t due_ns;   /* it tries, or beats, next */
    uint32_t leader;
    uint32_t yes;                /* members that have promised, one bit each */
    uint64_t number;             /* the number of the last record of its ballot */
    uint64_t told;               /* records up to here are known to be decided */
    bool refused;                /* it leads, and could not keep a record: it is to lead no more */
    uint64_t writes, written;    /* writes that were for later, and those of them that are over */
    uint64_t stored;             /* the largest ballot that went to the disk */
    uint64_t own_write;          /* the one of its own ballot, which it has not promised before; 0: none is under way */
    uint64_t promise_write;      /* the one of `promised`; 0: it is kept */
    bool promise_lost;           /* ... which failed */
    struct pending promise, ack; /* a PROMISE; an ACCEPTED ... */
    struct pending next_ack;     /* ... and what has come meanwhile */
    struct {
        uint64_t acked, asked_ns; /* the last number that it keeps; when it was asked what it last answered */
    } peers[TUTTI_COUNCIL_MOST];
    struct row *rows; /* by key */
    uint32_t n_rows;
};

static uint32_t most(const struct tutti_council *c)
{
    return c->options.n / 2 + 1;
}

/* ---- rows ---- */
static struct row **place(struct tutti_council *c, const char *key)
{
    struct row **link = &c->rows;

    while (*link && strcmp((*link)->record.key, key) < 0) link = &(*link)->next;
    return link;
}

static bool is_newer(const struct tutti_record *a, const struct tutti_record *b)
{
    return a->ballot != b->ballot ? a->ballot > b->ballot : a->number > b->number;
}

/* In the place of an older one. False: out of memory. */
static bool put(struct tutti_council *c, const struct tutti_record *record)
{
    struct row **link = place(c, record->key), *old = *link;
    const size_t n_key = strlen(record->key) + 1;
    const bool replaces = old && strcmp(old->record.key, record->key) == 0;

    if (replaces && !is_newer(record, &old->record)) return true;
    struct row *row = tutti_alloc(sizeof(*row) + n_key + record->n);
    if (!row) return false;
    row->write = 0;
    row->lost = false;
    row->record = *record;
    row->record.key = memcpy(row + 1, record->key, n_key);
    row->record.bytes = (uint8_t *)(row + 1) + n_key;
    if (record->n > 0) memcpy((uint8_t *)(row + 1) + n_key, record->bytes, record->n);
    row->next = replaces ? old->next : old;
    *link = row;
    if (!replaces) c->n_rows++;
    if (replaces) tutti_free(old);
    return true;
}

static bool has_newer(struct tutti_council *c, const struct tutti_record *record)
{
    const struct row *row = *place(c, record->key);
    return row && strcmp(row->record.key, record->key) == 0 && !is_newer(record, &row->record);
}

/* ---- writes ---- */
/* Begins to write; *number: of a write for later, else 0. False: it can not be kept. */
static bool begin_write(struct tutti_council *c, uint64_t promised, const struct tutti_record *record, uint64_t *number)
{
    if (promised > c->stored) c->stored = promised;
    const enum tutti_council_kept kept = c->out.keep(c->out.arg, c->stored, record);

    *number = kept == TUTTI_COUNCIL_KEPT_LATER ? ++c->writes : 0;
    return kept != TUTTI_COUNCIL_NOT_KEPT;
}

static bool write_row(struct tutti_council *c, struct row *row)
{
    row->lost = !begin_write(c, c->promised, &row->record, &row->write);
    return !row->lost;
}

/* The record is told to nobody before its write is over. False: it can not be kept. */
static bool keep(struct tutti_council *c, const struct tutti_record *record)
{
    uint64_t write;

    if (has_newer(c, record)) {
        struct row *row = *place(c, record->key);
        return !row->lost || write_row(c, row);
    }
    if (!begin_write(c, c->promised, record, &write) || !put(c, record)) return false;
    (*place(c, record->key))->write = write;
    return true;
}

static bool promise(struct tutti_council *c, uint64_t ballot)
{
    uint64_t write;

    if (ballot == c->promised && !c->promise_lost) return true;
    if (!begin_write(c, ballot, NULL, &write)) return false;
    c->promised = ballot;
    c->promise_write = write;
    c->promise_lost = false;
    return true;
}

/* ---- messages out ---- */
/* With the rows whose number is above `above` (of ACCEPT), or all (of PROMISE). */
static void send(struct tutti_council *c, uint32_t to, struct tutti_council_message message, uint64_t above)
{
    struct tutti_record *records = c->n_rows > 0 ? tutti_alloc_array(c->n_rows, sizeof(*records)) : NULL;

    if (c->n_rows > 0 && !records) return; /* as if it were lost */
    for (const struct row *row = c->rows; row && above != UINT64_MAX; row = row->next)
        if (message.kind == TUTTI_COUNCIL_PROMISE || row->record.number > above)
            records[message.n_records++] = row->record;
    message.records = records;
    message.from = c->options.me;
    c->out.send(c->out.arg, to, &message);
    tutti_free(records);
}

static void send_others(struct tutti_council *c, enum tutti_council_kind kind)
{
    for (uint32_t i = 0; i < c->options.n; i++)
        if (i != c->options.me)
            send(c, i, (struct tutti_council_message){.kind = kind, .ballot = c->ballot}, UINT64_MAX);
}

static void ask_to_keep(struct tutti_council *c, uint64_t now)
{
    for (uint32_t i = 0; i < c->options.n; i++) {
        const struct tutti_council_message message = {
            .kind = TUTTI_COUNCIL_ACCEPT, .ballot = c->ballot, .number = c->number, .sent_ns = now};
        if (i != c->options.me) send(c, i, message, c->peers[i].acked);
    }
    c->due_ns = now + c->options.beat_ns;
}

/* ---- leading ---- */
static uint64_t by_chance(struct tutti_council *c, uint64_t below)
{
    return tutti_random64(&c->random) % below;
}

static void follow(struct tutti_council *c, uint64_t now)
{
    const bool led = c->role == LEADS;
    const uint64_t from = c->quiet_ns > now ? c->quiet_ns : now;

    c->role = FOLLOWS;
    c->refused = false;
    c->since_ns = now;
    c->due_ns = from + c->options.lease_ns / 20 + by_chance(c, c->options.lease_ns / 2);
    if (led) c->out.leads(c->out.arg, false);
}

/* It can not keep what a leader has to: others have their turn before it tries again. */
static void give_up(struct tutti_council *c, uint64_t now)
{
    follow(c, now);
    c->due_ns += REST_LEASES * c->options.lease_ns;
}

/* The n-th largest of what most have. */
static uint64_t of_most(const struct tutti_council *c, uint64_t now, bool times)
{
    uint64_t best = 0;

    for (uint32_t i = 0; i < c->options.n; i++) {
        const uint64_t mine = times ? now : c->peers[c->options.me].acked;
        const uint64_t value = i == c->options.me ? mine : times ? c->peers[i].asked_ns : c->peers[i].acked;
        uint32_t n = 0;
        for (uint32_t j = 0; j < c->options.n; j++)
            n += (j == c->options.me ? mine : times ? c->peers[j].asked_ns : c->peers[j].acked) >= value;
        if (n >= most(c) && value > best) best = value;
    }
    return best;
}

static uint64_t leads_until(const struct tutti_council *c, uint64_t now)
{
    const uint64_t asked = of_most(c, now, true);
    return asked == 0 ? 0 : asked + c->options.lease_ns - c->options.lease_ns / 8;
}

bool tutti_council_leads(const struct tutti_council *c, uint64_t now)
{
    return c->role == LEADS && !c->refused && now < leads_until(c, now);
}

/* The record with the next number that most keep; NULL: there is none. */
static const struct tutti_record *next_decided(const struct tutti_council *c, uint64_t kept)
{
    const struct tutti_record *next = NULL;

    for (const struct row *row = c->rows; row; row = row->next) {
        const uint64_t number = row->record.number;
        if (number > c->told && number <= kept && (!next || number < next->number)) next = &row->record;
    }
    return next;
}

/* Records that most keep are decided, each once; a member whose records are all decided leads. */
static void conclude(struct tutti_council *c, uint64_t now)
{
    const struct tutti_record *next;

    if (c->role == SYNCS && of_most(c, now, false) >= c->number && now < leads_until(c, now)) {
        c->role = LEADS;
        c->told = c->number;
        c->leader = c->options.me;
        c->out.leads(c->out.arg, true);
    }
    while (c->role == LEADS && (next = next_decided(c, of_most(c, now, false)))) {
        c->told = next->number;
        c->out.decided(c->out.arg, next);
    }
}

/* ---- what is said once writes are over ---- */
static void acknowledge(struct tutti_council *c, const struct pending *ack, uint64_t now)
{
    if (ack->to != c->options.me) {
        send(c, ack->to,
             (struct tutti_council_message){.kind = TUTTI_COUNCIL_ACCEPTED,
                                            .good = true,
                                            .ballot = ack->ballot,
                                            .promised = c->promised,
                                            .number = ack->number,
                                            .sent_ns = ack->sent_ns},
             UINT64_MAX);
    } else if (ack->ballot == c->ballot && c->role >= SYNCS) {
        c->peers[ack->to].acked = ack->number;
        conclude(c, now);
    }
}

/* Now, or when all writes so far are over. */
static void acknowledge_soon(struct tutti_council *c, struct pending ack, uint64_t now)
{
    ack.write = c->writes;
    if (c->written == c->writes)
        acknowledge(c, &ack, now);
    else if (c->ack.write == 0)
        c->ack = ack;
    else
        c->next_ack = ack;
}

/* All its own records are kept up to the last one, or will be. */
static void acknowledge_own(struct tutti_council *c, uint64_t now)
{
    acknowledge_soon(c, (struct pending){.to = c->options.me, .ballot = c->ballot, .number = c->number}, now);
}

static bool keep_anew(struct tutti_council *c)
{
    for (struct row *row = c->rows; row; row = row->next) {
        row->record.ballot = c->ballot;
        row->record.number = ++c->number;
        if (!write_row(c, row)) return false;
    }
    return true;
}

static void synchronise(struct tutti_council *c, uint64_t now)
{
    c->role = SYNCS;
    c->since_ns = now;
    c->number = c->told = 0;
    c->ack.write = c->next_ack.write = 0;
    memset(c->peers, 0, sizeof c->peers);
    if (!keep_anew(c)) {
        give_up(c, now);
        return;
    }
    ask_to_keep(c, now);
    acknowledge_own(c, now);
}

static uint32_t count(uint32_t bits)
{
    return (uint32_t)__builtin_popcount(bits);
}

static void ask_promises(struct tutti_council *c, uint64_t now)
{
    c->promised = c->ballot;
    c->promise_write = 0;
    c->promise_lost = false;
    send_others(c, TUTTI_COUNCIL_PREPARE);
    if (count(c->yes) >= most(c)) synchronise(c, now);
}

/* The others are asked when its own promise is kept; until then it may follow another one. */
static void prepare(struct tutti_council *c, uint64_t now)
{
    c->role = PREPARES;
    c->yes = 1u << c->options.me;
    if (!begin_write(c, c->ballot, NULL, &c->own_write))
        give_up(c, now);
    else if (c->own_write == 0)
        ask_promises(c, now);
}

/* The low bits of a ballot are the number of the member that makes it. */
static void try(struct tutti_council *c, uint64_t now)
{
    c->role = TRIES;
    c->leader = UINT32_MAX;
    c->seen = c->promised > c->seen ? c->promised : c->seen;
    c->ballot = ((c->seen >> 8) + 1) << 8 | c->options.me;
    c->yes = 1u << c->options.me;
    c->due_ns = now + c->options.lease_ns / 2 + by_chance(c, c->options.lease_ns / 2);
    send_others(c, TUTTI_COUNCIL_TRIAL);
    if (count(c->yes) >= most(c)) prepare(c, now);
}

/* ---- messages in ---- */
static void answer_request(struct tutti_council *c, uint32_t to, uint64_t ballot, bool good, bool trial)
{
    send(c, to,
         (struct tutti_council_message){
             .kind = TUTTI_COUNCIL_PROMISE, .good = good, .trial = trial, .ballot = ballot, .promised = c->promised},
         good && !trial ? 0 : UINT64_MAX);
}

static void on_request(struct tutti_council *c, const struct tutti_council_message *m, uint64_t now)
{
    const bool trial = m->kind == TUTTI_COUNCIL_TRIAL;
    bool good = m->ballot > c->promised && now >= c->quiet_ns && c->role != LEADS;

    if (good && !trial) {
        good = promise(c, m->ballot);
        if (good) follow(c, now);
    }
    if (good && !trial && c->promise_write > 0)
        c->promise = (struct pending){.write = c->promise_write, .to = m->from, .ballot = m->ballot};
    else
        answer_request(c, m->from, m->ballot, good, trial);
}

static void on_promise(struct tutti_council *c, const struct tutti_council_message *m, uint64_t now)
{
    if (m->ballot != c->ballot || c->role != (m->trial ? TRIES : PREPARES)) return;
    if (!m->good) {
        if (m->promised > c->seen && m->promised < UINT64_MAX >> 1) c->seen = m->promised; /* the next is above it */
        return;
    }
    for (uint32_t i = 0; i < m->n_records; i++)
        if (!put(c, &m->records[i])) return;
    c->yes |= 1u << m->from;
    if (count(c->yes) < most(c)) return;
    if (m->trial)
        prepare(c, now);
    else
        synchronise(c, now);
}

static void on_accept(struct tutti_council *c, const struct tutti_council_message *m, uint64_t now)
{
    bool good = m->ballot >= c->promised && promise(c, m->ballot);

    if (good) {
        c->quiet_ns = now + c->options.lease_ns;
        c->leader = m->from;
        follow(c, now);
    }
    for (uint32_t i = 0; good && i < m->n_records; i++)
        good = m->records[i].ballot == m->ballot && keep(c, &m->records[i]);
    struct tutti_council_message answer = {.kind = TUTTI_COUNCIL_ACCEPTED,
                                           .good = good,
                                           .ballot = m->ballot,
                                           .promised = c->promised,
                                           .sent_ns = m->sent_ns};
    if (good)
        acknowledge_soon(
            c, (struct pending){.to = m->from, .ballot = m->ballot, .number = m->number, .sent_ns = m->sent_ns}, now);
    /* A slow disk costs no lease: it is answered at once, with no record. */
    if (!good || (c->written < c->writes && c->promise_write == 0)) send(c, m->from, answer, UINT64_MAX);
}

static void on_accepted(struct tutti_council *c, const struct tutti_council_message *m, uint64_t now)
{
    if (m->ballot != c->ballot || c->role < SYNCS) return;
    if (!m->good) {
        c->seen = m->promised > c->seen && m->promised < UINT64_MAX >> 1 ? m->promised : c->seen;
        if (m->promised > c->ballot) follow(c, now);
        return;
    }
    if (m->number > c->number || m->sent_ns > now) return; /* nobody asked that */
    if (m->number > c->peers[m->from].acked) c->peers[m->from].acked = m->number;
    if (m->sent_ns > c->peers[m->from].asked_ns) c->peers[m->from].asked_ns = m->sent_ns;
    conclude(c, now);
}

void tutti_council_received(struct tutti_council *c, const struct tutti_council_message *m, uint64_t now)
{
    static void (*const takes[TUTTI_COUNCIL_N_KINDS])(struct tutti_council *, const struct tutti_council_message *,
                                                      uint64_t) = {
        [TUTTI_COUNCIL_TRIAL] = on_request,     [TUTTI_COUNCIL_PREPARE] = on_request,
        [TUTTI_COUNCIL_PROMISE] = on_promise,   [TUTTI_COUNCIL_ACCEPT] = on_accept,
        [TUTTI_COUNCIL_ACCEPTED] = on_accepted,
    };

    if (m->from >= c->options.n || m->from == c->options.me || (unsigned)m->kind >= TUTTI_COUNCIL_N_KINDS) return;
    const bool asks = m->kind != TUTTI_COUNCIL_PROMISE && m->kind != TUTTI_COUNCIL_ACCEPTED;
    if (asks && ((m->ballot & 0xff) != m->from || m->ballot >= UINT64_MAX >> 1)) return; /* it can not have made it */
    takes[m->kind](c, m, now);
}

/* ---- time, and what is asked of it ---- */
/* A record of its own could not be kept: others lead; one that is alone writes it again at the next tick. */
static void write_failed(struct tutti_council *c, uint64_t now)
{
    c->promise.write = c->ack.write = c->next_ack.write = 0;
    if (c->role == PREPARES || (c->role >= SYNCS && c->options.n > 1)) give_up(c, now);
}

void tutti_council_kept(struct tutti_council *c, uint64_t n, bool good, uint64_t now)
{
    const bool promised = c->promise_write > 0 && c->promise_write <= c->written + n;
    const bool own = c->own_write > 0 && c->own_write <= c->written + n;

    c->written += n;
    for (struct row *row = c->rows; row; row = row->next)
        if (row->write > 0 && row->write <= c->written) row->write = 0, row->lost = !good;
    if (promised) c->promise_write = 0, c->promise_lost = !good;
    if (own) c->own_write = 0;
    if (!good) {
        write_failed(c, now);
        return;
    }
    if (c->promise.write > 0 && c->promise.write <= c->written) {
        if (c->promise.ballot == c->promised) answer_request(c, c->promise.to, c->promise.ballot, true, false);
        c->promise.write = 0;
    }
    if (own && c->role == PREPARES && c->ballot > c->promised) ask_promises(c, now);
    while (c->ack.write > 0 && c->ack.write <= c->written) {
        const struct pending ack = c->ack;
        c->ack = c->next_ack;
        c->next_ack.write = 0;
        acknowledge(c, &ack, now);
    }
}

static void write_lost(struct tutti_council *c, uint64_t now)
{
    bool all = false;

    for (struct row *row = c->rows; row; row = row->next)
        if (row->lost) all = write_row(c, row);
    if (all) acknowledge_own(c, now);
}

void tutti_council_tick(struct tutti_council *c, uint64_t now)
{
    if (now < c->due_ns) return;
    if (c->refused)
        give_up(c, now);
    else if ((c->role == LEADS && now >= leads_until(c, now)) ||
             (c->role == SYNCS && now - c->since_ns > 2 * c->options.lease_ns && now >= leads_until(c, now)))
        follow(c, now);
    else if (c->role >= SYNCS)
        ask_to_keep(c, now), write_lost(c, now);
    else if (c->role == PREPARES && c->own_write > 0)
        c->due_ns = now + c->options.lease_ns / 2; /* its disk is slow */
    else
        try(c, now);
}

uint64_t tutti_council_due(const struct tutti_council *c)
{
    return c->due_ns;
}

enum tutti_status tutti_council_propose(struct tutti_council *c, const char *key, const uint8_t *bytes, size_t n,
                                        uint64_t now)
{
    const struct tutti_record record = {key, bytes, n, c->ballot, c->number + 1};

    if (!tutti_council_leads(c, now)) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "this lighthouse does not lead");
    if (!keep(c, &record)) {
        c->refused = c->options.n > 1; /* at the next tick: the caller may be a part of what ends then */
        if (c->refused) c->due_ns = now;
        return tutti_fail(TUTTI_ERR_SYSTEM, "the lighthouse can not keep its state");
    }
    c->number++;
    ask_to_keep(c, now);
    acknowledge_own(c, now);
    return TUTTI_OK;
}

uint32_t tutti_council_leader(const struct tutti_council *c, uint64_t now)
{
    return tutti_council_leads(c, now) ? c->options.me : now < c->quiet_ns ? c->leader : UINT32_MAX;
}

uint32_t tutti_council_n_records(const struct tutti_council *c)
{
    return c->n_rows;
}

bool tutti_council_record(const struct tutti_council *c, const char *key, struct tutti_record *out)
{
    const struct row *row = c->rows;

    while (row && strcmp(row->record.key, key) < 0) row = row->next;
    if (!row || strcmp(row->record.key, key) != 0) return false;
    *out = row->record;
    return true;
}

/* ---- life ---- */
enum tutti_status tutti_council_create(const struct tutti_council_options *options, const struct tutti_council_out *out,
                                       struct tutti_council **made)
{
    if (options->n == 0 || options->n > TUTTI_COUNCIL_MOST || options->me >= options->n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "there are %u lighthouses, and this is number %u: write 1 to %u, from 0",
                          options->n, options->me, TUTTI_COUNCIL_MOST);
    struct tutti_council *c = tutti_alloc(sizeof(*c));
    if (!c) return tutti_fail(TUTTI_ERR_MEMORY, "the lighthouse is out of memory");
    c->options = *options;
    c->out = *out;
    c->random = options->seed;
    c->leader = UINT32_MAX;
    c->due_ns = UINT64_MAX;
    *made = c;
    return TUTTI_OK;
}

void tutti_council_destroy(struct tutti_council *c)
{
    if (!c) return;
    while (c->rows) {
        struct row *row = c->rows;
        c->rows = row->next;
        tutti_free(row);
    }
    tutti_free(c);
}

enum tutti_status tutti_council_restore(struct tutti_council *c, uint64_t promised, const struct tutti_record *records,
                                        uint32_t n)
{
    c->promised = c->stored = promised;
    for (uint32_t i = 0; i < n; i++)
        if (!put(c, &records[i])) return tutti_fail(TUTTI_ERR_MEMORY, "the lighthouse is out of memory");
    return TUTTI_OK;
}

/* What it promised, or heard, before is not known: so it waits, unless it is alone. */
void tutti_council_start(struct tutti_council *c, uint64_t now)
{
    c->quiet_ns = c->options.n > 1 ? now + c->options.lease_ns : now;
    if (c->options.n > 1)
        follow(c, now);
    else
        try(c, now);
}
