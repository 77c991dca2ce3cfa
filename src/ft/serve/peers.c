/* SPDX-License-Identifier: BSD-3-Clause */
/* The council's edge: its messages are calls to the other lighthouses, its records are in the store. The leader has the
 * jobs; the others have none, and pass calls on (forward.c). */
#include "ft/serve/jobs.h"

#include "ft/rpc/message.h"
#include "ft/serve/store.h"

#include <tutti.pb-c.h>

#include <stdlib.h>
#include <string.h>

#define START_NS TUTTI_NS_PER_S
#define BEAT_NS (150 * TUTTI_NS_PER_MS)
#define TELL "/tutti.CouncilService/Tell"

struct serve_council {
    struct tutti_loop_timer timer; /* first */
    struct tutti_serve *serve;
    struct tutti_council *machine;
    struct serve_store *store;
    uint32_t n, me;
    char *addresses; /* what the list's rows point into */
    const char *address[TUTTI_COUNCIL_MOST];
    struct tutti_rpc_channel *channels[TUTTI_COUNCIL_MOST]; /* NULL: its own */
    struct tutti_rpc_channel *calls[TUTTI_COUNCIL_MOST];    /* ... for calls that are passed on, beside the council's */
    uint32_t leader;                                        /* to whom they go; UINT32_MAX: nobody leads */
    bool led;                                               /* as await_lead saw it */
};

/* ---- messages ---- */
static struct tutti_rpc_body *encode(const struct tutti_council_message *m)
{
    Tutti__CouncilMessage message = TUTTI__COUNCIL_MESSAGE__INIT;
    Tutti__CouncilRecord *rows = tutti_alloc_array(m->n_records + 1, sizeof(*rows));
    Tutti__CouncilRecord **all = tutti_alloc_array(m->n_records + 1, sizeof(*all));

    for (uint32_t i = 0; rows && all && i < m->n_records; i++) {
        tutti__council_record__init(&rows[i]);
        rows[i].key = (char *)(uintptr_t)m->records[i].key;
        rows[i].value = (ProtobufCBinaryData){m->records[i].n, (uint8_t *)(uintptr_t)m->records[i].bytes};
        rows[i].ballot = m->records[i].ballot, rows[i].number = m->records[i].number;
        all[message.n_records++] = &rows[i];
    }
    message.records = all;
    message.kind = m->kind, message.from = m->from, message.good = m->good, message.trial = m->trial;
    message.ballot = m->ballot, message.promised = m->promised;
    message.number = m->number, message.sent_ns = m->sent_ns;
    struct tutti_rpc_body *body = rows && all ? tutti_message_body(&message.base) : NULL;
    tutti_free(rows);
    tutti_free(all);
    return body;
}

static void on_send(void *arg, uint32_t to, const struct tutti_council_message *message)
{
    struct serve_council *council = arg;
    const struct tutti_rpc_ask ask = {
        .path = TELL, .body = encode(message), .deadline_ns = tutti_now_ns() + TUTTI_LEASE_NS};

    tutti_rpc_send(council->channels[to], &ask); /* what is lost is said again */
}

/* Notes a change of the leader: calls that were passed on to the old one, which may be gone, go to the next. */
static void see_leader(struct serve_council *council)
{
    const uint32_t leader = tutti_council_leader(council->machine, tutti_now_ns()), old = council->leader;

    council->leader = leader;
    if (old != leader && old != UINT32_MAX && old != council->me) tutti_rpc_channel_drop(council->calls[old]);
}

static void schedule(struct serve_council *council)
{
    see_leader(council);
    tutti_loop_at(council->serve->loop, &council->timer, tutti_council_due(council->machine));
}

static void take(struct serve_council *council, const Tutti__CouncilMessage *m)
{
    struct tutti_record *records = tutti_alloc_array(m->n_records + 1, sizeof(*records));
    const struct tutti_council_message message = {.kind = (enum tutti_council_kind)m->kind,
                                                  .from = m->from,
                                                  .good = m->good,
                                                  .trial = m->trial,
                                                  .ballot = m->ballot,
                                                  .promised = m->promised,
                                                  .number = m->number,
                                                  .sent_ns = m->sent_ns,
                                                  .records = records,
                                                  .n_records = (uint32_t)m->n_records};
    bool good = records != NULL;

    for (size_t i = 0; good && i < m->n_records; i++) {
        const Tutti__CouncilRecord *row = m->records[i];
        records[i] = (struct tutti_record){row->key, row->value.data, row->value.len, row->ballot, row->number};
        good = serve_is_job_name(row->key);
    }
    if (good) tutti_council_received(council->machine, &message, tutti_now_ns());
    tutti_free(records);
    schedule(council);
}

void serve_on_tell(void *arg, struct tutti_rpc_call *call, const uint8_t *bytes, size_t n)
{
    struct serve_council *council = ((struct tutti_serve *)arg)->council;
    Tutti__CouncilMessage *message = council ? tutti__council_message__unpack(NULL, n, bytes) : NULL;
    struct tutti_rpc_body *empty = message ? tutti_rpc_body_new(0) : NULL;

    if (empty)
        tutti_rpc_reply(call, empty);
    else
        tutti_rpc_fail(call, TUTTI_RPC_INVALID_ARGUMENT, "this is no message to this lighthouse");
    if (message) take(council, message);
    if (message) tutti__council_message__free_unpacked(message, NULL);
}

/* ---- what the machine says ---- */
static enum tutti_council_kept on_keep(void *arg, uint64_t promised, const struct tutti_record *record)
{
    const struct serve_council *council = arg;

    return serve_store_keep(council->store, promised, record) ? TUTTI_COUNCIL_KEPT_LATER : TUTTI_COUNCIL_NOT_KEPT;
}

static void on_kept(void *arg, uint64_t n, bool good)
{
    struct serve_council *council = arg;

    tutti_council_kept(council->machine, n, good, tutti_now_ns());
    schedule(council);
}

static void on_leads(void *arg, bool leads)
{
    struct serve_council *council = arg;
    struct tutti_serve *serve = council->serve;

    if (council->n > 1)
        tutti_log(TUTTI_LOG_INFO, leads ? "this lighthouse leads" : "this lighthouse does not lead any more");
    serve_jobs_end(serve);
    if (!leads) return;
    if (!serve_job(serve, SERVE_DEFAULT)) /* others are made when one of their groups speaks */
        tutti_log(TUTTI_LOG_ERROR, "job %s: %s", SERVE_DEFAULT, tutti_last_error()->text);
}

static void on_decided(void *arg, const struct tutti_record *record)
{
    struct serve_council *council = arg;
    struct serve_job *job = serve_job_find(council->serve, record->key);

    if (job && tutti_ledger_decided(&job->ledger, record) && serve_leads(council->serve)) serve_job_tick(job);
}

static void on_due(struct tutti_loop_timer *timer)
{
    struct serve_council *council = (struct serve_council *)timer;

    tutti_council_tick(council->machine, tutti_now_ns());
    schedule(council);
}

/* ---- what others ask ---- */
bool serve_leads(const struct tutti_serve *serve)
{
    return !serve->council || tutti_council_leads(serve->council->machine, tutti_now_ns());
}

const char *serve_leader(const struct tutti_serve *serve)
{
    const struct serve_council *council = serve->council;
    const uint32_t leader = council ? tutti_council_leader(council->machine, tutti_now_ns()) : UINT32_MAX;

    return leader == UINT32_MAX || leader == council->me ? NULL : council->address[leader];
}

struct tutti_rpc_channel *serve_leader_channel(const struct tutti_serve *serve)
{
    see_leader(serve->council);
    return serve->council->leader == UINT32_MAX ? NULL : serve->council->calls[serve->council->leader];
}

enum tutti_status serve_ledger_begin(struct serve_job *job)
{
    const struct serve_council *council = job->serve->council;
    struct tutti_record record;

    if (!council) return tutti_lighthouse_restore(job->machine, job->serve->floor, NULL, 0, tutti_now_ns());
    if (tutti_council_n_records(council->machine) >= JOB_RECORDS &&
        !tutti_council_record(council->machine, job->name, &record))
        return tutti_fail(TUTTI_ERR_MEMORY, "this lighthouse keeps the numbers of %d jobs already", JOB_RECORDS);
    return tutti_ledger_begin(&job->ledger, job->name, council->machine, job->machine, tutti_now_ns());
}

bool serve_commit(void *arg, const struct tutti_quorum *quorum)
{
    struct serve_job *job = arg;
    struct serve_council *council = job->serve->council;

    if (!council) return true;
    const bool good = tutti_ledger_commit(&job->ledger, quorum, tutti_now_ns());
    schedule(council);
    return good;
}

/* ---- life ---- */
static enum tutti_status read_peers(struct serve_council *council, const char *peers)
{
    char *rest = council->addresses = tutti_text_copy(peers ? peers : "");

    if (!rest) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the lighthouse");
    for (char *one; (one = strsep(&rest, ", "));) {
        if (!one[0]) continue;
        if (council->n == TUTTI_COUNCIL_MOST)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "peers: more than %u lighthouses", TUTTI_COUNCIL_MOST);
        council->address[council->n++] = one;
    }
    if (council->n == 0) council->n = 1; /* alone */
    return TUTTI_OK;
}

static enum tutti_status dial_peers(struct serve_council *council)
{
    for (uint32_t i = 0; i < council->n; i++) {
        const struct tutti_rpc_channel_config config = {.loop = council->serve->loop,
                                                        .addresses = council->address[i],
                                                        .what = "peers",
                                                        .max_message = SERVE_PEER_BYTES,
                                                        .secret = council->serve->config.secret,
                                                        .certificate = council->serve->config.certificate,
                                                        .dial_ns = TUTTI_LEASE_NS / 2};
        if (i == council->me) continue;
        TUTTI_TRY(tutti_rpc_channel_open(&config, &council->channels[i]));
        TUTTI_TRY(tutti_rpc_channel_open(&config, &council->calls[i]));
    }
    return TUTTI_OK;
}

static void start(void *arg)
{
    struct serve_council *council = arg;

    tutti_council_start(council->machine, tutti_now_ns());
    schedule(council);
}

static void see_lead(void *arg)
{
    struct serve_council *council = arg;

    council->led = tutti_council_leads(council->machine, tutti_now_ns());
}

/* One that is alone leads as soon as its disk has its ballot: then its port opens. */
static void await_lead(struct serve_council *council)
{
    const uint64_t until = tutti_deadline_ns(START_NS);

    while (council->n == 1 && !council->led && tutti_now_ns() < until) {
        tutti_sleep_ns(TUTTI_NS_PER_MS / 5);
        tutti_loop_run(council->serve->loop, see_lead, council);
    }
}

enum tutti_status serve_council_open(struct tutti_serve *serve)
{
    struct serve_council *council = serve->council = tutti_alloc(sizeof(*council));
    struct tutti_council_options options = {.me = serve->config.number, .lease_ns = TUTTI_LEASE_NS, .beat_ns = BEAT_NS};
    const struct tutti_council_out out = {council, on_send, on_keep, on_leads, on_decided};

    if (!council) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the lighthouse");
    council->serve = serve;
    council->me = serve->config.number;
    council->leader = UINT32_MAX;
    council->timer.due = on_due;
    TUTTI_TRY(read_peers(council, serve->config.peers));
    options.n = council->n;
    TUTTI_TRY(tutti_random_bytes(&options.seed, sizeof options.seed));
    TUTTI_TRY(tutti_council_create(&options, &out, &council->machine));
    const struct serve_store_config store = {
        .folder = serve->config.state, .loop = serve->loop, .kept = on_kept, .arg = council};
    TUTTI_TRY(serve_store_open(&store, council->machine, &council->store));
    TUTTI_TRY(dial_peers(council));
    tutti_loop_run(serve->loop, start, council);
    await_lead(council);
    return TUTTI_OK;
}

void serve_council_stop(struct tutti_serve *serve)
{
    if (serve->council) tutti_loop_stop(serve->loop, &serve->council->timer);
}

void serve_council_close(struct tutti_serve *serve)
{
    struct serve_council *council = serve->council;

    if (!council) return;
    serve_store_close(council->store);
    for (uint32_t i = 0; i < council->n; i++) {
        tutti_rpc_channel_close(council->channels[i]);
        tutti_rpc_channel_close(council->calls[i]);
    }
    tutti_council_destroy(council->machine);
    tutti_free(council->addresses);
    tutti_free(council);
    serve->council = NULL;
}
