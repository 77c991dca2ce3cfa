/* SPDX-License-Identifier: BSD-3-Clause */

/* What the engine believes of one-sided packets: the input is packets of a peer, heads and payloads, each of which
 * comes as an arrival or is placed. Whatever they say, nothing but the part and the buffers of this rank's own accesses
 * is written, and the communicator goes on or ends with PROTOCOL. */

#include "engine/flight/onesided_access.h"
#include "fuzz.h"

enum { PART = 256, GUARD = 64, PEER = 1, COMM = 77, DEST = 96, MOST = 4096 };

/* ---- a wire with a script ---- */

struct script {
    struct tutti_transport base; /* first */
    const uint8_t *bytes;
    size_t n, at, given; /* given: bytes of the payload that the last event announced */
    uint64_t token;      /* a placement's that is to be reported */
    bool placed, over;
    _Atomic bool begun;
};

static struct script *script_of(struct tutti_transport *t)
{
    return (struct script *)(void *)t;
}

static enum tutti_status script_send(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                     const struct tutti_span *spans, uint32_t n, uint64_t token)
{
    size_t bytes = 0;
    volatile uint8_t sum = 0;
    (void)token;
    FUZZ_CHECK(peer < t->n && packet->bytes <= MOST);
    for (uint32_t i = 0; i < n; i++) {
        bytes += spans[i].bytes;
        for (size_t k = 0; k < spans[i].bytes; k++) sum = sum + ((const uint8_t *)spans[i].base)[k];
    }
    FUZZ_CHECK(bytes == packet->bytes);
    return TUTTI_OK;
}

static enum tutti_status script_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct script *s = script_of(t);
    uint8_t head[TUTTI_PACKET_WIRE_BYTES];
    if (s->placed) {
        *out = (struct tutti_event){.type = TUTTI_EVENT_DONE, .token = s->token};
        s->placed = false;
        return TUTTI_OK;
    }
    if (!s->begun) return TUTTI_AGAIN;
    if (s->given > 0 || s->n - s->at < sizeof head) {
        s->over = true;
        return TUTTI_AGAIN;
    }
    memcpy(head, s->bytes + s->at, sizeof head);
    s->at += sizeof head;
    head[0] = TUTTI_WIRE_VERSION, head[1] = (uint8_t)(TUTTI_PACKET_ONE + head[1] % 2);
    if (tutti_packet_decode(head, sizeof head, &out->packet) < 0) return TUTTI_AGAIN;
    out->packet.source = PEER, out->packet.comm = COMM, out->packet.epoch = 0;
    if (out->packet.bytes > s->n - s->at) out->packet.bytes = (uint32_t)(s->n - s->at);
    if (out->packet.bytes > MOST) out->packet.bytes = MOST;
    s->given = out->packet.bytes;
    out->payload = s->bytes + s->at;
    out->type = s->given > 0 && head[3] % 2 ? TUTTI_EVENT_HEADER : TUTTI_EVENT_ARRIVAL;
    if (out->type == TUTTI_EVENT_ARRIVAL) s->at += s->given, s->given = 0;
    return TUTTI_OK;
}

static void script_release(struct tutti_transport *t)
{
    (void)t;
}

/* What is not wanted in a place is lost: the engine has to live with that. */
static void script_place(struct tutti_transport *t, const struct tutti_target *targets, uint32_t n, uint64_t token)
{
    struct script *s = script_of(t);
    size_t room = s->given;
    FUZZ_CHECK(n <= 1 && (n == 0 || targets[0].bytes == room));
    if (n > 0) memcpy(targets[0].base, s->bytes + s->at, room);
    s->at += room, s->given = 0;
    s->placed = n > 0, s->token = token;
}

static void script_cancel(struct tutti_transport *t, uint64_t token)
{
    struct script *s = script_of(t);
    if (s->token == token) s->placed = false;
}

static bool script_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    (void)sources;
    return script_of(t)->over || !script_of(t)->begun;
}

static void script_nothing(struct tutti_transport *t)
{
    (void)t;
}

static void script_cut(struct tutti_transport *t, uint32_t peer)
{
    (void)t, (void)peer;
}

static const struct tutti_transport_ops wire_ops = {.size = sizeof(wire_ops),
                                                    .send = script_send,
                                                    .poll = script_poll,
                                                    .release = script_release,
                                                    .place = script_place,
                                                    .cancel = script_cancel,
                                                    .sleep_begin = script_sleep_begin,
                                                    .sleep_end = script_nothing,
                                                    .wake = script_nothing,
                                                    .cut = script_cut};

/* ---- a control that knows nothing ---- */

static enum tutti_life life(struct tutti_control *c, uint32_t peer)
{
    (void)c, (void)peer;
    return TUTTI_LIFE_ALIVE;
}
static void publish(struct tutti_control *c, uint32_t slot, const struct tutti_board *board)
{
    (void)c, (void)slot, (void)board;
}
static enum tutti_status peek(struct tutti_control *c, uint32_t peer, uint32_t slot, struct tutti_board *out)
{
    (void)c, (void)peer, (void)slot, (void)out;
    return TUTTI_ERR_UNSUPPORTED;
}
static void raise_failure(struct tutti_control *c, const struct tutti_failure *failure)
{
    (void)c, (void)failure;
}
static enum tutti_status no_failure(struct tutti_control *c, struct tutti_failure *out)
{
    (void)c, (void)out;
    return TUTTI_AGAIN;
}
static const struct tutti_control_ops control_ops = {.size = sizeof(control_ops),
                                                     .life = life,
                                                     .publish = publish,
                                                     .peek = peek,
                                                     .raise = raise_failure,
                                                     .failure = no_failure};

/* ---- a rank with a part, and accesses of its own that wait for answers ---- */

struct guarded {
    uint8_t before[GUARD], bytes[PART], after[GUARD];
};

static void guard(struct guarded *g)
{
    memset(g, 0x5a, sizeof *g);
}

static void check_guard(const struct guarded *g)
{
    for (size_t i = 0; i < GUARD; i++) FUZZ_CHECK(g->before[i] == 0x5a && g->after[i] == 0x5a);
}

static void play(struct tutti_team *team, struct script *s)
{
    static struct guarded dest;
    uint64_t before[2] = {0};
    const struct tutti_one_info infos[] = {
        {.kind = TUTTI_ONE_GET, .peer = PEER, .dest = dest.bytes, .bytes = DEST, .name = "get"},
        {.kind = TUTTI_ONE_PUT, .peer = PEER, .source = dest.before, .bytes = 8, .name = "put"},
        {.kind = TUTTI_ONE_ADD, .peer = PEER, .before = &before[0], .name = "fetch_add"},
        {.kind = TUTTI_ONE_GET, .peer = PEER, .dest = dest.bytes + DEST, .bytes = 8, .name = "get"},
        {.kind = TUTTI_ONE_FLUSH, .peer = UINT32_MAX, .name = "flush"},
    };
    struct tutti_work *works[TUTTI_ARRAY_LEN(infos)];
    struct tutti_error error;
    struct tutti_message message;
    guard(&dest);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(infos); i++)
        FUZZ_CHECK(tutti_engine_one(team, &infos[i], false, &works[i]) == TUTTI_OK);
    (void)tutti_engine_probe(team, -1, -1, &message); /* the accesses leave */
    s->begun = true;
    while (!s->over || s->placed) /* a probe is a pass */
        if (tutti_engine_probe(team, -1, -1, &message) < 0) break;
    (void)tutti_engine_probe(team, -1, -1, &message);
    enum tutti_status status = tutti_team_state(team, &error);
    FUZZ_CHECK(status == TUTTI_OK || status == TUTTI_ERR_PROTOCOL || status == TUTTI_ERR_PEER_LEFT);
    tutti_error_set(&error, TUTTI_ERR_ABORTED, "the end");
    tutti_team_fail(team, &error, false);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(infos); i++) {
        status = tutti_work_finish(works[i]);
        FUZZ_CHECK(status == TUTTI_OK || status == TUTTI_ERR_PROTOCOL || status == TUTTI_ERR_ABORTED ||
                   status == TUTTI_ERR_ARGUMENT || status == TUTTI_ERR_PEER_LEFT);
    }
    check_guard(&dest);
    for (size_t i = DEST + 8; i < PART; i++) FUZZ_CHECK(dest.bytes[i] == 0x5a);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static _Atomic uint32_t alarm_word;
    static struct guarded memory;
    static _Atomic uint64_t signals[6];
    struct script s = {.bytes = bytes, .n = n};
    struct tutti_control control = {.ops = &control_ops, .name = "none", .n = 2, .answers_at_once = true};
    const struct tutti_engine_config config = {
        .slice_bytes = 4096, .eager_bytes = 1024, .zero_copy_bytes = SIZE_MAX, .simd = "auto"};
    const struct tutti_exposed part = {
        .base = memory.bytes, .bytes = PART, .signals = signals + 1, .n_signals = 4, .signal_step = 1};
    const uint32_t members[2] = {0, 1};
    struct tutti_engine *engine;
    struct tutti_team *team;
    tutti_log_threshold = TUTTI_LOG_ERROR;
    s.base = (struct tutti_transport){.ops = &wire_ops, .name = "script", .n = 2, .max_payload = MOST, .copied = MOST};
    control.alarm = &alarm_word;
    const struct tutti_team_config team_config = {
        .transport = &s.base, .id = COMM, .size = 2, .members = members, .timeout_ns = 60 * TUTTI_NS_PER_S};
    guard(&memory);
    if (tutti_engine_create(&config, &engine) < 0 || tutti_engine_attach(engine, &s.base, &control) < 0) abort();
    if (tutti_team_create(engine, &team_config, &team) < 0) abort();
    FUZZ_CHECK(tutti_exposed_add(team, 0, &part) == TUTTI_OK);
    play(team, &s);
    check_guard(&memory);
    FUZZ_CHECK(signals[0] == 0 && signals[5] == 0);
    tutti_exposed_remove(team, 0);
    tutti_team_destroy(team);
    tutti_engine_detach(engine, &s.base);
    tutti_engine_destroy(engine);
    return 0;
}
