/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes one call and compares. Every rank can compute the input of every other from the case's seed; the expected image
 * of the receive buffer is its image before the call with the expected blocks written over it, so that what must not be
 * written is compared, too. */

#include "contract.h"

#include "reference.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 32, GUARD = 64, GAP = 2 };

struct blocks { /* the blocks of a buffer, in elements */
    size_t n, total, count[MAX_RANKS], at[MAX_RANKS];
};

struct call;
struct setup {
    struct rank *rank;
    const struct contract_case *c;
    const struct call *call;
    enum tutti_dtype dtype;
    enum tutti_op op;
    size_t count, esize;
    uint32_t me, n, root;
    bool in_place;
    struct blocks send, recv;
    size_t block[MAX_RANKS]; /* elements of the block of each rank */
    char factor[16];
    struct tutti_call_options options;
    char *arena[2], *send_at, *recv_at;
    size_t arena_bytes[2];
};

/* ---- the calls ---- */

enum layout { NONE, ONE, EACH, ROOT_ONE, ROOT_EACH, OTHERS_ROW, OTHERS_COLUMN };
enum meaning { MOVED, REDUCED, PREFIX, BEFORE, NOTHING };
struct call {
    const char *name;
    enum layout send, recv;
    enum meaning meaning;
    bool v, displaced, in_place;
    /* For MOVED: whose input block b of my output is, and where in it. */
    void (*origin)(const struct setup *s, size_t b, uint32_t *rank, size_t *at);
    enum tutti_status (*make)(const struct setup *s, struct tutti_work **work);
};

static size_t matrix(const struct setup *s, uint32_t from, uint32_t to)
{
    return s->call->v ? s->count * ((from + 2 * to) % 3) / 2 : s->count;
}

#define COMM s->rank->comm, &s->options, work
#define MAKE(name) static enum tutti_status make_##name(const struct setup *s, struct tutti_work **work)
MAKE(all_reduce)
{
    return tutti_all_reduce(s->send_at, s->recv_at, s->count, s->dtype, s->op, COMM);
}
MAKE(reduce)
{
    return tutti_reduce(s->send_at, s->recv_at, s->count, s->dtype, s->op, (int32_t)s->root, COMM);
}
MAKE(broadcast)
{
    return tutti_broadcast(s->recv_at, s->count, s->dtype, (int32_t)s->root, COMM);
}
MAKE(all_gather)
{
    return tutti_all_gather(s->send_at, s->recv_at, s->count, s->dtype, COMM);
}
MAKE(all_gather_v)
{
    return tutti_all_gather_v(s->send_at, s->recv_at, s->recv.count, s->recv.at, s->dtype, COMM);
}
MAKE(gather)
{
    return tutti_gather(s->send_at, s->recv_at, s->count, s->dtype, (int32_t)s->root, COMM);
}
MAKE(gather_v)
{
    return tutti_gather_v(s->send_at, s->block[s->me], s->recv_at, s->recv.count, s->recv.at, s->dtype,
                          (int32_t)s->root, COMM);
}
MAKE(scatter)
{
    return tutti_scatter(s->send_at, s->recv_at, s->count, s->dtype, (int32_t)s->root, COMM);
}
MAKE(scatter_v)
{
    return tutti_scatter_v(s->send_at, s->send.count, s->send.at, s->recv_at, s->block[s->me], s->dtype,
                           (int32_t)s->root, COMM);
}
MAKE(reduce_scatter)
{
    return tutti_reduce_scatter(s->send_at, s->recv_at, s->count, s->dtype, s->op, COMM);
}
MAKE(reduce_scatter_v)
{
    return tutti_reduce_scatter_v(s->send_at, s->recv_at, s->block, s->dtype, s->op, COMM);
}
MAKE(all_to_all)
{
    return tutti_all_to_all(s->send_at, s->recv_at, s->count, s->dtype, COMM);
}
MAKE(all_to_all_v)
{
    return tutti_all_to_all_v(s->send_at, s->send.count, s->send.at, s->recv_at, s->recv.count, s->recv.at, s->dtype,
                              COMM);
}
MAKE(scan)
{
    return tutti_scan(s->send_at, s->recv_at, s->count, s->dtype, s->op, COMM);
}
MAKE(exscan)
{
    return tutti_exscan(s->send_at, s->recv_at, s->count, s->dtype, s->op, COMM);
}
MAKE(barrier)
{
    return tutti_barrier(COMM);
}
MAKE(sendrecv)
{
    return tutti_sendrecv(s->send_at, s->count, (int32_t)((s->me + 1) % s->n), 7, s->recv_at, s->count,
                          (int32_t)((s->me + s->n - 1) % s->n), 7, s->dtype, s->rank->comm, &s->options, NULL, work);
}

#define ORIGIN(name) static void origin_##name(const struct setup *s, size_t b, uint32_t *rank, size_t *at)
ORIGIN(root)
{
    (void)b, *rank = s->root, *at = 0;
}
ORIGIN(owner)
{
    (void)s, *rank = (uint32_t)b, *at = 0;
}
ORIGIN(left)
{
    (void)b, *rank = (s->me + s->n - 1) % s->n, *at = 0;
}
ORIGIN(root_block)
{
    (void)b, *rank = s->root, *at = 0;
    for (uint32_t r = 0; r < s->me; r++) *at += s->block[r];
    *at += s->call->displaced ? GAP * s->me : 0;
}
ORIGIN(row)
{
    *rank = (uint32_t)b, *at = 0;
    for (uint32_t to = 0; to < s->me; to++) *at += matrix(s, *rank, to);
    *at += s->call->displaced ? GAP * s->me : 0;
}

static const struct call calls[] = {
    {"all_reduce", ONE, ONE, REDUCED, false, false, true, NULL, make_all_reduce},
    {"reduce", ONE, ROOT_ONE, REDUCED, false, false, true, NULL, make_reduce},
    {"broadcast", ONE, ONE, MOVED, false, false, true, origin_root, make_broadcast},
    {"all_gather", ONE, EACH, MOVED, false, false, true, origin_owner, make_all_gather},
    {"all_gather_v", ONE, EACH, MOVED, true, true, true, origin_owner, make_all_gather_v},
    {"gather", ONE, ROOT_EACH, MOVED, false, false, true, origin_owner, make_gather},
    {"gather_v", ONE, ROOT_EACH, MOVED, true, true, true, origin_owner, make_gather_v},
    {"scatter", ROOT_EACH, ONE, MOVED, false, false, true, origin_root_block, make_scatter},
    {"scatter_v", ROOT_EACH, ONE, MOVED, true, true, true, origin_root_block, make_scatter_v},
    {"reduce_scatter", EACH, ONE, REDUCED, false, false, true, NULL, make_reduce_scatter},
    {"reduce_scatter_v", EACH, ONE, REDUCED, true, false, true, NULL, make_reduce_scatter_v},
    {"all_to_all", OTHERS_ROW, OTHERS_COLUMN, MOVED, false, false, true, origin_row, make_all_to_all},
    {"all_to_all_v", OTHERS_ROW, OTHERS_COLUMN, MOVED, true, true, false, origin_row, make_all_to_all_v},
    {"scan", ONE, ONE, PREFIX, false, false, true, NULL, make_scan},
    {"exscan", ONE, ONE, BEFORE, false, false, true, NULL, make_exscan},
    {"barrier", NONE, NONE, NOTHING, false, false, false, NULL, make_barrier},
    {"sendrecv", ONE, ONE, MOVED, false, false, false, origin_left, make_sendrecv},
};

uint32_t contract_n_calls(void)
{
    return sizeof calls / sizeof calls[0];
}
const char *contract_call_name(const struct contract_case *c)
{
    return calls[c->at[CALL]].name;
}
bool contract_call_reduces(uint32_t call)
{
    return calls[call].meaning == REDUCED || calls[call].meaning == PREFIX || calls[call].meaning == BEFORE;
}

/* ---- layouts and inputs ---- */

static void lay_out(const struct setup *s, enum layout layout, uint32_t me, struct blocks *out)
{
    bool mine = layout < ROOT_ONE || layout > ROOT_EACH || me == s->root;
    memset(out, 0, sizeof *out);
    if (layout == NONE || !mine) return;
    out->n = layout == ONE || layout == ROOT_ONE ? 1 : s->n;
    for (uint32_t b = 0; b < out->n; b++) {
        out->count[b] = out->n == 1 && layout != EACH && layout != ROOT_EACH ? s->block[me] : s->block[b];
        if (layout == OTHERS_ROW) out->count[b] = matrix(s, me, b);
        if (layout == OTHERS_COLUMN) out->count[b] = matrix(s, b, me);
        out->at[b] = out->total;
        out->total += out->count[b] + (s->call->displaced && out->n > 1 ? GAP : 0);
    }
    if (layout == OTHERS_ROW || layout == OTHERS_COLUMN) return;
    if (out->n == 1 && s->n == 1 && (layout == EACH || layout == ROOT_EACH)) out->count[0] = s->block[0];
}

/* Sums of random 8-bit floats are too coarse to compare: theirs are always exact. */
static bool is_exact(const struct setup *s)
{
    return s->c->at[VALUES] == 0 || (ref_is_small_float(s->dtype) && ref_bytes(s->dtype) == 1);
}

/* The whole input of a rank, gaps included; malloc'ed. */
static char *input_of(const struct setup *s, uint32_t rank, size_t *n)
{
    struct blocks send;
    lay_out(s, s->call->send, rank, &send);
    char *out = calloc(send.total + 1, s->esize);
    *n = send.total;
    if (!out) return NULL;
    if (!contract_call_reduces(s->c->at[CALL]))
        ref_fill(s->dtype, REF_BITS, s->c->seed + rank, out, send.total);
    else if (is_exact(s))
        ref_fill_exact(s->dtype, s->op, s->c->seed, rank, s->n, out, send.total);
    else
        ref_fill(s->dtype, REF_FINITE, s->c->seed + rank, out, send.total);
    return out;
}

static void prepare(struct setup *s, struct rank *rank, const struct contract_case *c)
{
    static const struct tutti_call_options init = TUTTI_CALL_OPTIONS_INIT;
    memset(s, 0, sizeof *s);
    s->rank = rank, s->c = c, s->call = &calls[c->at[CALL]];
    s->dtype = (enum tutti_dtype)c->at[DTYPE], s->op = (enum tutti_op)c->at[OP];
    s->esize = ref_bytes(s->dtype), s->count = contract_sizes[c->at[SIZE]];
    s->me = (uint32_t)rank->index, s->n = (uint32_t)rank->n, s->root = (uint32_t)(c->seed % s->n);
    s->in_place = c->at[PLACE] && s->call->in_place;
    for (uint32_t r = 0; r < s->n; r++) s->block[r] = s->call->v ? s->count * (r % 3) / 2 + (r & 1) : s->count;
    lay_out(s, s->call->send, s->me, &s->send);
    lay_out(s, s->call->recv, s->me, &s->recv);
    if (s->dtype != TUTTI_BOOL && (ref_bytes(s->dtype) == 1 || s->dtype <= TUTTI_UINT64)) s->factor[0] = 2;
    s->options = init;
    s->options.premul_value = 2;
    s->options.algorithm = c->algorithm;
    s->options.label = "contract";
    if (c->seed & 1) s->options.premul = s->factor;
}

/* The factor as an element: 2, written by the reference. */
static void write_factor(struct setup *s)
{
    memset(s->factor, 0, sizeof s->factor);
    if (s->dtype <= TUTTI_BOOL) {
        s->factor[0] = 2; /* little endian */
    } else if (s->dtype == TUTTI_COMPLEX64) {
        memcpy(s->factor, &(float){2}, sizeof(float));
    } else if (s->dtype == TUTTI_COMPLEX128) {
        memcpy(s->factor, &(double){2}, sizeof(double));
    } else {
        ref_encode(s->dtype, 2, s->factor);
    }
}

static bool is_mapped(const struct setup *s)
{
    return s->c->mapped >> s->me % 64 & 1;
}

/* Memory of a buffer, and back. What is on a device has its image in ordinary memory. */
static char *take(const struct setup *s, size_t bytes)
{
    void *memory = NULL;
    if (!is_mapped(s) || s->c->memory) return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    return tutti_mem_alloc(s->rank->comm, bytes, &memory) == TUTTI_OK ? memory : NULL;
}

static void give_back(const struct setup *s, char *memory)
{
    if (!is_mapped(s) || s->c->memory)
        free(memory);
    else if (memory)
        (void)tutti_mem_free(s->rank->comm, memory);
}

static bool place(struct setup *s)
{
    size_t off = GUARD + (s->c->at[ALIGN] ? 1 : 0),
           larger = s->send.total > s->recv.total ? s->send.total : s->recv.total;
    size_t elements[2] = {s->in_place ? larger : s->send.total, s->in_place ? 0 : s->recv.total};
    for (int i = 0; i < 2; i++) {
        s->arena_bytes[i] = off + elements[i] * s->esize + GUARD;
        s->arena[i] = take(s, s->arena_bytes[i]);
        if (!s->arena[i]) return false;
        memset(s->arena[i], 0x5a, s->arena_bytes[i]);
    }
    s->send_at = s->arena[0] + off;
    s->recv_at = s->arena[1] + off;
    if (s->in_place) {
        char *base = s->send_at;
        s->recv_at = base;
        if (s->recv.n > 1 && s->send.n == 1) s->send_at = base + s->recv.at[s->me] * s->esize;
        if (s->send.n > 1 && s->recv.n == 1) s->recv_at = base + s->send.at[s->me] * s->esize;
        if (s->recv.n == 0) s->recv_at = NULL;
        if (s->send.n == 0) s->recv_at = base, s->send_at = NULL;
    }
    return true;
}

/* ---- comparing ---- */

/* A product of complex numbers may end in either zero, by its order. */
static bool same_complex(enum tutti_dtype dtype, const char *got, const char *want, size_t n)
{
    size_t part = dtype == TUTTI_COMPLEX64 ? sizeof(float) : sizeof(double);
    for (size_t i = 0; i < 2 * n; i++) {
        char x[8] = {0}, y[8] = {0};
        memcpy(x, got + i * part, part);
        memcpy(y, want + i * part, part);
        float xf, yf;
        double xd, yd;
        memcpy(&xf, x, sizeof xf), memcpy(&yf, y, sizeof yf), memcpy(&xd, x, sizeof xd), memcpy(&yd, y, sizeof yd);
        if (part == sizeof(float) ? xf != yf : xd != yd) return false;
    }
    return true;
}

/* Writes what is expected of block b to want; inputs[r] are the matching parts of all ranks' inputs. */
static bool expect_reduced(const struct setup *s, const void *const *inputs, size_t n_inputs, size_t n, const char *got,
                           char *want)
{
    size_t where = 0;
    ref_reduce(s->dtype, s->op, inputs, n_inputs, n, s->factor, want);
    if (is_exact(s) && (s->dtype == TUTTI_COMPLEX64 || s->dtype == TUTTI_COMPLEX128))
        return same_complex(s->dtype, got, want, n);
    if (is_exact(s)) return ref_equal(s->dtype, got, want, n, &where);
    return ref_close(s->dtype, s->op, inputs, n_inputs, n, s->factor, got, &where);
}

static bool right_reduction(const struct setup *s, const char *got)
{
    size_t n = s->block[s->me], first = s->call->send == EACH ? s->send.at[s->me] : 0, length;
    size_t n_inputs = s->call->meaning == PREFIX ? s->me + 1 : s->call->meaning == BEFORE ? s->me : s->n;
    const void *inputs[MAX_RANKS];
    if (s->c->thrifty && n > 1000 && s->me != (s->c->seed >> 20) % s->n) return true;
    char *whole[MAX_RANKS] = {0}, *want = calloc(n + 1, s->esize);
    bool right = want != NULL;
    for (uint32_t r = 0; r < n_inputs && right; r++) {
        whole[r] = input_of(s, r, &length);
        right = whole[r] != NULL;
        inputs[r] = right ? whole[r] + first * s->esize : NULL;
    }
    if (right && n_inputs > 0) right = expect_reduced(s, inputs, n_inputs, n, got, want);
    for (uint32_t r = 0; r < n_inputs; r++) free(whole[r]);
    free(want);
    return right;
}

static bool right_move(const struct setup *s, const char *got, size_t b)
{
    uint32_t from;
    size_t at, length;
    s->call->origin(s, b, &from, &at);
    char *input = input_of(s, from, &length);
    bool right =
        input && memcmp(got + s->recv.at[b] * s->esize, input + at * s->esize, s->recv.count[b] * s->esize) == 0;
    free(input);
    return right;
}

/* Bytes of arena i that belong to no received block must be as they were. */
static bool untouched(const struct setup *s, int i, const char *before)
{
    char *now = before ? malloc(s->arena_bytes[i]) : NULL;
    if (!now) return false;
    memcpy(now, s->arena[i], s->arena_bytes[i]);
    bool written = !(s->call->meaning == BEFORE && s->me == 0);
    for (size_t b = 0; b < s->recv.n && written; b++) {
        char *block = s->recv_at + s->recv.at[b] * s->esize;
        if (block < s->arena[i] || block >= s->arena[i] + s->arena_bytes[i]) continue;
        size_t at = (size_t)(block - s->arena[i]);
        memcpy(now + at, before + at, s->recv.count[b] * s->esize);
    }
    bool same = memcmp(now, before, s->arena_bytes[i]) == 0;
    free(now);
    return same;
}

static enum tutti_status make(const struct setup *s)
{
    struct tutti_work *work = NULL;
    enum tutti_status status;
    switch (s->c->at[FORM]) {
    case BLOCKING:
        return s->call->make(s, NULL);
    case ASYNCHRONOUS:
        status = s->call->make(s, &work);
        break;
    default:
        status = tutti_group_start();
        if (status == TUTTI_OK) status = s->call->make(s, NULL);
        if (status == TUTTI_OK) status = tutti_barrier(s->rank->comm, NULL, NULL);
        enum tutti_status ended = tutti_group_end(&work);
        if (status == TUTTI_OK) status = ended;
    }
    if (status == TUTTI_OK) status = tutti_work_wait(work, 0);
    tutti_work_free(work);
    return status;
}

/* Where a pointer into an arena is on the device. */
static char *moved(const struct setup *s, char *const device[2], char *pointer)
{
    for (int i = 0; i < 2; i++)
        if (pointer && pointer >= s->arena[i] && pointer <= s->arena[i] + s->arena_bytes[i])
            return device[i] + (pointer - s->arena[i]);
    return pointer;
}

/* The same call on device memory, which holds what the arenas hold, and then the other way round. */
static enum tutti_status make_on_device(const struct setup *s)
{
    struct contract_memory *memory = s->c->memory;
    struct tutti_comm *comm = s->rank->comm;
    struct setup there = *s;
    enum tutti_status status = TUTTI_ERR_MEMORY;
    char *device[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) device[i] = memory->put(memory, comm, is_mapped(s), s->arena[i], s->arena_bytes[i]);
    if (device[0] && device[1]) {
        there.send_at = moved(s, device, s->send_at), there.recv_at = moved(s, device, s->recv_at);
        there.options.stream = memory->stream;
        status = make(&there);
    }
    for (int i = 0; i < 2; i++) {
        if (status == TUTTI_OK && !memory->get(memory, device[i], s->arena[i], s->arena_bytes[i]))
            status = TUTTI_ERR_SYSTEM;
        if (device[i]) memory->release(memory, device[i]);
    }
    /* What fails on the way ends the communicator, and no call tells. */
    return status == TUTTI_OK ? tutti_comm_state(comm, NULL) : status;
}

#define DESCRIBED "%s %s %s count %zu, %u ranks, root %u%s%s, form %u, values %u, seed %llu, algorithm %s"
#define DESCRIPTION(s)                                                                                                 \
    (s)->call->name, tutti_dtype_name((s)->dtype), tutti_op_name((s)->op), (s)->count, (s)->n, (s)->root,              \
        (s)->in_place ? ", in place" : "", (s)->c->at[ALIGN] ? ", unaligned" : "", (s)->c->at[FORM],                   \
        (s)->c->at[VALUES], (unsigned long long)(s)->c->seed, (s)->c->algorithm ? (s)->c->algorithm : "chosen"

static void compare(struct setup *s, char *const before[2])
{
    size_t written = s->recv.n;
    for (int i = 0; i < 2; i++)
        if (!untouched(s, i, before[i])) {
            rank_fail(s->rank, __FILE__, __LINE__, "wrote outside its output: " DESCRIBED, DESCRIPTION(s));
            return;
        }
    for (size_t b = 0; b < written; b++) {
        bool right = s->call->meaning == MOVED ? right_move(s, s->recv_at, b) : right_reduction(s, s->recv_at);
        if (right) continue;
        rank_fail(s->rank, __FILE__, __LINE__, "wrong block %zu: " DESCRIBED, b, DESCRIPTION(s));
        return;
    }
}

void contract_run(struct rank *rank, const struct contract_case *c, bool *refused)
{
    struct setup s;
    size_t n_input = 0;
    char *before[2] = {NULL, NULL};
    prepare(&s, rank, c);
    write_factor(&s);
    char *input = input_of(&s, s.me, &n_input);
    bool defined = !contract_call_reduces(c->at[CALL]) || ref_defined(s.dtype, s.op);
    if (!input || !place(&s)) {
        rank_fail(rank, __FILE__, __LINE__, "out of memory");
        goto done;
    }
    bool is_broadcast = s.call->make == make_broadcast;
    bool windows = c->memory && c->memory->rooms[0].window; /* there the root has it where the others have theirs */
    if (is_broadcast && !s.in_place && s.me == s.root) s.send_at = s.recv_at = windows ? s.recv_at : s.send_at;
    if (s.send_at && (!is_broadcast || s.me == s.root)) memcpy(s.send_at, input, n_input * s.esize);
    for (int i = 0; i < 2; i++) {
        before[i] = malloc(s.arena_bytes[i]);
        if (before[i]) memcpy(before[i], s.arena[i], s.arena_bytes[i]);
    }
    enum tutti_status status = c->memory ? make_on_device(&s) : make(&s),
                      wanted = defined ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED;
    bool unfit = c->algorithm && (status == TUTTI_ERR_ARGUMENT || status == TUTTI_ERR_UNSUPPORTED);
    if (refused) *refused = unfit;
    if (status != wanted && !unfit)
        rank_fail(rank, __FILE__, __LINE__, "%s instead of %s (%s): " DESCRIBED, tutti_status_name(status),
                  tutti_status_name(wanted), tutti_last_error()->text, DESCRIPTION(&s));
    else if (status == TUTTI_OK)
        compare(&s, before);
done:
    free(input);
    for (int i = 0; i < 2; i++) free(before[i]), give_back(&s, s.arena[i]);
}
