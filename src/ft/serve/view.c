/* SPDX-License-Identifier: BSD-3-Clause */
/* What a quorum's answers are. A member's raw bytes are what does not change from step to step; its step, failures and
 * shrink_only are added where torchft's protocol wants them. */
#include "ft/serve/view.h"

#include <torchft.pb-c.h>
#include <tutti.pb-c.h>

#include <string.h>

#define TAIL 40 /* three fields of a member */
#define SINCE 4 /* answers since other epochs that are kept */

/* What is encoded of a quorum. */
struct bodies {
    struct tutti_rpc_body *whole;
    struct {
        int64_t known;
        struct tutti_rpc_body *body;
    } since[SINCE];
    uint32_t n;
};

static void discard(void *encoded)
{
    struct bodies *bodies = encoded;

    tutti_rpc_body_give(bodies->whole);
    for (uint32_t i = 0; i < bodies->n; i++) tutti_rpc_body_give(bodies->since[i].body);
    tutti_free(bodies);
}

static struct bodies *bodies_of(struct tutti_quorum *quorum)
{
    if (!quorum->encoded) quorum->encoded = tutti_alloc(sizeof(struct bodies)), quorum->discard = discard;
    return quorum->encoded;
}

static struct tutti_rpc_body *counted(struct tutti_rpc_body *body)
{
    if (body) body->refs++;
    return body;
}

/* ---- protobuf by hand, where its library would copy once more ---- */
static size_t put_number(uint8_t *out, uint64_t value)
{
    size_t n = 0;

    for (; value > 127; value >>= 7) out[n++] = (uint8_t)(value | 128);
    out[n++] = (uint8_t)value;
    return n;
}

static size_t number_bytes(uint64_t value)
{
    uint8_t out[10];
    return put_number(out, value);
}

static size_t put_field(uint8_t *out, uint32_t field, uint64_t value)
{
    if (value == 0) return 0;
    const size_t n = put_number(out, field << 3);
    return n + put_number(out + n, value);
}

static size_t put_head(uint8_t *out, uint32_t field, size_t bytes)
{
    const size_t n = put_number(out, field << 3 | 2);
    return n + put_number(out + n, bytes);
}

/* Step, shrink_only and failures of a member. */
static size_t put_tail(uint8_t *out, const struct tutti_replica *replica)
{
    size_t n = put_field(out, 4, (uint64_t)replica->step);

    n += put_field(out + n, 6, replica->shrink_only);
    return n + put_field(out + n, 8, (uint64_t)replica->commit_failures);
}

/* ---- whole ---- */
static struct tutti_rpc_body *encode_whole(const struct tutti_quorum *quorum)
{
    ProtobufCBinaryData *members = tutti_alloc_array(quorum->n, sizeof(*members));
    Torchft__Timestamp created = TORCHFT__TIMESTAMP__INIT;
    Torchft__Quorum packed = TORCHFT__QUORUM__INIT;
    Torchft__LighthouseQuorumResponse response = TORCHFT__LIGHTHOUSE_QUORUM_RESPONSE__INIT;
    size_t n = 0;

    for (uint32_t i = 0; i < quorum->n; i++) n += quorum->members[i]->n_raw + TAIL;
    uint8_t *arena = members ? tutti_alloc(n) : NULL, *at = arena;
    for (uint32_t i = 0; arena && i < quorum->n; i++) {
        const struct tutti_replica *replica = quorum->members[i];
        if (replica->n_raw > 0) memcpy(at, replica->raw, replica->n_raw);
        members[i] = (ProtobufCBinaryData){replica->n_raw + put_tail(at + replica->n_raw, replica), at};
        at += members[i].len;
    }
    created.seconds = quorum->created_ns / (int64_t)TUTTI_NS_PER_S;
    created.nanos = (int32_t)(quorum->created_ns % (int64_t)TUTTI_NS_PER_S);
    packed.quorum_id = quorum->id;
    packed.n_participants = quorum->n, packed.participants = members;
    packed.created = &created;
    response.quorum = &packed;
    struct tutti_rpc_body *body =
        arena ? tutti_rpc_body_new(torchft__lighthouse_quorum_response__get_packed_size(&response)) : NULL;
    if (body) torchft__lighthouse_quorum_response__pack(&response, body->bytes);
    tutti_free(arena);
    tutti_free(members);
    return body;
}

struct tutti_rpc_body *serve_view_whole(struct tutti_quorum *quorum)
{
    struct bodies *bodies = bodies_of(quorum);

    if (bodies && !bodies->whole) bodies->whole = encode_whole(quorum);
    return bodies ? counted(bodies->whole) : NULL;
}

/* ---- changes ---- */
/* Either a member that is new or other than it was, or the name of one that is gone. */
struct change {
    const struct tutti_replica *member;
    const char *gone;
};

static bool is_same(const struct tutti_replica *a, const struct tutti_replica *b)
{
    return a->n_raw == b->n_raw && (a->n_raw == 0 || memcmp(a->raw, b->raw, a->n_raw) == 0);
}

/* Both are in the order of names. Room: for all of both. */
static uint32_t compare(const struct tutti_quorum *old, const struct tutti_quorum *new, struct change *out)
{
    uint32_t n = 0, i = 0, j = 0;
    const uint32_t n_old = old ? old->n : 0;

    while (i < n_old || j < new->n) {
        const int order = i == n_old    ? 1
                          : j == new->n ? -1
                                        : strcmp(old->members[i]->replica_id, new->members[j]->replica_id);
        if (order < 0)
            out[n++] = (struct change){.gone = old->members[i++]->replica_id};
        else if (order > 0)
            out[n++] = (struct change){.member = new->members[j++]};
        else if (!is_same(old->members[i++], new->members[j++]))
            out[n++] = (struct change){.member = new->members[j - 1]};
    }
    return n;
}

/* A change is a field 4 with one field, 1 or 2. */
static size_t change_content(const struct change *change)
{
    return change->member ? change->member->n_raw : strlen(change->gone);
}

static size_t change_bytes(const struct change *change)
{
    const size_t n = change_content(change), inner = 1 + number_bytes(n) + n;
    return 1 + number_bytes(inner) + inner;
}

static size_t put_change(uint8_t *out, const struct change *change)
{
    const size_t n = change_content(change);
    size_t at = put_head(out, 4, 1 + number_bytes(n) + n);

    at += put_head(out + at, change->member ? 1 : 2, n);
    if (n > 0) memcpy(out + at, change->member ? (const void *)change->member->raw : change->gone, n);
    return at + n;
}

/* The changes from one quorum to another as bytes; false: out of memory. */
static bool encode_changes(const struct tutti_quorum *old, const struct tutti_quorum *new, struct serve_delta *out)
{
    struct change *changes = tutti_alloc_array((old ? old->n : 0) + (size_t) new->n, sizeof(*changes));
    size_t n = 0;

    if (!changes) return false;
    const uint32_t n_changes = compare(old, new, changes);
    for (uint32_t i = 0; i < n_changes; i++) n += change_bytes(&changes[i]);
    *out = (struct serve_delta){.bytes = n > 0 ? tutti_alloc(n) : NULL};
    for (uint32_t i = 0; out->bytes && i < n_changes; i++) out->n += put_change(out->bytes + out->n, &changes[i]);
    tutti_free(changes);
    return n == 0 || out->bytes;
}

/* ---- views ---- */
/* Epochs of another run of the lighthouse are other numbers. */
void serve_view_init(struct serve_view *view, int64_t wall_ns)
{
    *view = (struct serve_view){.epoch = wall_ns / (int64_t)TUTTI_NS_PER_MS << 20};
    view->first = view->epoch + 1;
}

void serve_view_fini(struct serve_view *view)
{
    for (int i = 0; i < VIEW_DELTAS; i++) tutti_free(view->deltas[i].bytes);
    tutti_quorum_give(view->of);
}

bool serve_view_follow(struct serve_view *view, struct tutti_quorum *quorum)
{
    struct serve_delta delta;

    if (view->of == quorum) return true;
    if (!encode_changes(view->of, quorum, &delta)) return false;
    tutti_quorum_give(view->of);
    view->of = quorum;
    quorum->refs++;
    if (delta.n == 0) return true;
    view->epoch++;
    view->n_whole = 0;
    for (uint32_t i = 0; i < quorum->n; i++)
        view->n_whole += change_bytes(&(struct change){.member = quorum->members[i]});
    struct serve_delta *row = &view->deltas[view->epoch % VIEW_DELTAS];
    tutti_free(row->bytes);
    *row = delta;
    if (view->epoch - view->first >= VIEW_DELTAS) view->first = view->epoch - VIEW_DELTAS + 1;
    return true;
}

/* The changes since that epoch are there, and shorter than all. */
static bool has_since(const struct serve_view *view, int64_t known, size_t *n)
{
    *n = 0;
    if (known > view->epoch || known + 1 < view->first) return false;
    for (int64_t epoch = known + 1; epoch <= view->epoch; epoch++) *n += view->deltas[epoch % VIEW_DELTAS].n;
    return *n <= view->n_whole;
}

/* All that is not a change. */
static struct tutti_rpc_body *encode_head(const struct serve_view *view, const struct tutti_quorum *quorum, bool whole,
                                          size_t n_changes)
{
    Tutti__StepResponse head = TUTTI__STEP_RESPONSE__INIT;
    Tutti__Behind *behind = tutti_alloc_array(quorum->n, sizeof(*behind)), **all;
    all = tutti_alloc_array(quorum->n, sizeof(*all));
    struct tutti_rpc_body *body = NULL;

    head.max_step = INT64_MIN;
    for (uint32_t i = 0; i < quorum->n; i++) {
        const struct tutti_replica *replica = quorum->members[i];
        if (replica->step > head.max_step) head.max_step = replica->step;
        if (replica->commit_failures > head.commit_failures) head.commit_failures = replica->commit_failures;
    }
    for (uint32_t i = 0; behind && all && i < quorum->n; i++) {
        if (quorum->members[i]->step == head.max_step) continue;
        Tutti__Behind *one = all[head.n_behind++] = &behind[i];
        tutti__behind__init(one);
        one->index = i, one->step = quorum->members[i]->step;
    }
    head.quorum_id = quorum->id, head.epoch = view->epoch, head.whole = whole;
    head.created_ns = quorum->created_ns, head.n_members = quorum->n;
    head.behind = all;
    if (behind && all) body = tutti_rpc_body_new(tutti__step_response__get_packed_size(&head) + n_changes);
    if (body) tutti__step_response__pack(&head, body->bytes);
    tutti_free(behind);
    tutti_free(all);
    return body;
}

static struct tutti_rpc_body *encode_since(const struct serve_view *view, const struct tutti_quorum *quorum,
                                           int64_t known)
{
    struct serve_delta whole = {0};
    size_t n;
    const bool since = has_since(view, known, &n);

    if (!since && !encode_changes(NULL, quorum, &whole)) return NULL;
    if (!since) n = whole.n;
    struct tutti_rpc_body *body = encode_head(view, quorum, !since, n);
    uint8_t *at = body ? body->bytes + body->n - n : NULL;
    for (int64_t epoch = known + 1; at && since && epoch <= view->epoch; epoch++) {
        const struct serve_delta *delta = &view->deltas[epoch % VIEW_DELTAS];
        if (delta->n > 0) memcpy(at, delta->bytes, delta->n);
        at += delta->n;
    }
    if (at && whole.n > 0) memcpy(at, whole.bytes, whole.n);
    tutti_free(whole.bytes);
    return body;
}

struct tutti_rpc_body *serve_view_since(struct serve_view *view, struct tutti_quorum *quorum, int64_t known)
{
    struct bodies *bodies = bodies_of(quorum);

    if (!bodies) return NULL;
    for (uint32_t i = 0; i < bodies->n; i++)
        if (bodies->since[i].known == known) return counted(bodies->since[i].body);
    struct tutti_rpc_body *body = encode_since(view, quorum, known);
    if (!body || bodies->n == SINCE) return body;
    bodies->since[bodies->n].known = known;
    bodies->since[bodies->n++].body = body;
    return counted(body);
}
