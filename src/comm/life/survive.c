/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators whose calls survive the death of a rank. The user's communicator is a handle; each view (synchrony.h)
 * is a communicator of its own over the same world: the first one a duplicate, the next ones what tutti_comm_shrink
 * leaves. A call is carried out on the view's communicator as any other, and the machine of views says what follows
 * when a rank is lost: here is the hand that does it. What a call overwrites of its own input is saved first, so that
 * it can be done again; a small result that is equal on all is kept for ranks that may be behind. */

#include "comm/life/survive.h"

#include "device/cpu/copy.h"

#include <string.h>

/* What is saved for the case that a member dies leaves the caches to the call where no CPU's own cache holds it. */
#define SAVE_PAST_CACHE ((size_t)2 << 20)

/* ---- sets and kept results ---- */

static struct kept *kept_at(const struct tutti_survive *s, uint64_t call)
{
    return (struct kept *)(void *)(s->kept + (call % N_KEPT) * s->kept_bytes);
}

static unsigned char *set_of(struct kept *kept)
{
    return (unsigned char *)(kept + 1);
}

/* Where the next large result is made, or copied to. */
static unsigned char *next_large(const struct tutti_survive *s)
{
    return s->kept_large + (s->last_large ? 0 : KEEP_MOST);
}

static unsigned char *result_of(const struct tutti_survive *s, struct kept *kept)
{
    if (kept->bytes > KEEP_SMALL) return s->kept_large + (s->last_large ? KEEP_MOST : 0);
    return set_of(kept) + s->set_bytes;
}

void tutti_survive_set_to_view(const struct tutti_survive *s, unsigned char *set)
{
    memset(set, 0, s->set_bytes);
    for (uint32_t i = 0; i < s->n; i++) set_add(set, s->ranks[i]);
}

/* ---- what a call is here ---- */

/* Elements of rank's block, of calls with a block for each rank. */
static size_t count_of(const struct tutti_call *call, uint32_t rank)
{
    return call->job.bind.v ? call->job.bind.counts[rank] : call->job.bind.count;
}

/* Elements before rank's block. */
static size_t begin_of(const struct tutti_call *call, uint32_t rank)
{
    size_t at = 0;
    if (!call->job.bind.v) return rank * call->job.bind.count;
    if (call->job.bind.displs) return call->job.bind.displs[rank];
    for (uint32_t r = 0; r < rank; r++) at += call->job.bind.counts[r];
    return at;
}

/* Bytes of the result where it is equal on all ranks, and of equal blocks; SIZE_MAX: it is not. */
static size_t common_bytes(const struct tutti_call *call)
{
    const struct tutti_call_info *info = &call->job.info;
    const size_t block = call->job.bind.count * tutti_dtype_bytes(info->dtype);
    if (call->job.bind.v) return SIZE_MAX;
    if (info->kind == TUTTI_BARRIER) return 0;
    if (info->kind == TUTTI_ALL_REDUCE || info->kind == TUTTI_BROADCAST) return block;
    return info->kind == TUTTI_ALL_GATHER ? block * (size_t)call->comm->size : SIZE_MAX;
}

/* What the call overwrites of its own input: a range of the output. */
size_t tutti_survive_overwritten(const struct tutti_call *call)
{
    const struct tutti_call_info *info = &call->job.info;
    const struct tutti_bind *bind = &call->job.bind;
    const size_t element = tutti_dtype_bytes(info->dtype), block = bind->count * element;
    const uint32_t me = (uint32_t)call->comm->rank;
    const char *in = bind->input, *out = bind->output;
    if (!in || !out) return 0;
    if (info->kind == TUTTI_ALL_REDUCE || (info->kind == TUTTI_REDUCE && info->root == call->comm->rank))
        return in == out ? block : 0;
    if (info->kind != TUTTI_REDUCE_SCATTER) return 0;
    return out == in + begin_of(call, me) * element ? count_of(call, me) * element : 0;
}

/* An all_reduce in place whose result is kept, but not with the small ones: it is made where it is kept, and copied
 * from there, so that nothing has to be saved. */
static bool goes_aside(const struct tutti_survive *s, const struct tutti_call *call)
{
    return s->synchrony.keeps && !s->is_shared && call->job.info.kind == TUTTI_ALL_REDUCE &&
           call->job.bind.input == call->job.bind.output && common_bytes(call) > KEEP_SMALL;
}

/* A view of one loses nobody. */
static enum tutti_status save(struct tutti_survive *s, const struct tutti_call *call)
{
    const size_t bytes = tutti_survive_overwritten(call);
    if (bytes == 0 || s->n == 1 || s->has_saved || goes_aside(s, call)) return TUTTI_OK;
    if (bytes > s->saved_bytes) {
        unsigned char *grown = tutti_alloc(bytes);
        if (!grown) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "no memory to save %zu bytes of the input", bytes);
        tutti_free(s->saved);
        s->saved = grown;
        s->saved_bytes = bytes;
    }
    if (bytes >= SAVE_PAST_CACHE)
        tutti_copy_past_cache(s->saved, call->job.bind.output, bytes);
    else
        memcpy(s->saved, call->job.bind.output, bytes);
    s->has_saved = true;
    return TUTTI_OK;
}

static void restore(const struct tutti_survive *s, const struct tutti_call *call)
{
    if (s->has_saved) memcpy(call->job.bind.output, s->saved, tutti_survive_overwritten(call));
}

/* ---- the call among the members of the view ---- */

static int32_t inner_rank(const struct tutti_survive *s, int32_t rank)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->ranks[i] == (uint32_t)rank) return (int32_t)i;
    return -1;
}

/* Counts and, behind them, displacements of the view's ranks. */
static size_t *view_table(const struct tutti_survive *s, const struct tutti_call *call)
{
    size_t *table = tutti_alloc_array(2 * (size_t)s->n, sizeof(*table));
    for (uint32_t i = 0; table && i < s->n; i++) {
        table[i] = count_of(call, s->ranks[i]);
        table[s->n + i] = begin_of(call, s->ranks[i]);
    }
    if (!table) tutti_call_fail(call, TUTTI_ERR_MEMORY, "no memory for a table of %u ranks", s->n);
    return table;
}

/* Blocks lie where they would with all ranks; those of lost ranks are zero. */
static enum tutti_status gather_some(struct tutti_survive *s, const struct tutti_call *call, int32_t root,
                                     const struct tutti_call_options *options)
{
    const struct tutti_bind *bind = &call->job.bind;
    const enum tutti_dtype dtype = call->job.info.dtype;
    const size_t element = tutti_dtype_bytes(dtype);
    size_t *counts = view_table(s, call), *displs = counts + s->n;
    if (!counts) return TUTTI_ERR_MEMORY;
    for (uint32_t r = 0; bind->output && s->n < (uint32_t)call->comm->size && r < (uint32_t)call->comm->size; r++)
        if (inner_rank(s, (int32_t)r) < 0)
            memset((char *)bind->output + begin_of(call, r) * element, 0, count_of(call, r) * element);
    enum tutti_status status =
        tutti_kind_info(call->job.info.kind)->rooted
            ? tutti_gather_v(bind->input, bind->count, bind->output, counts, displs, dtype, root, s->inner, options,
                             NULL)
            : tutti_all_gather_v(bind->input, bind->output, counts, displs, dtype, s->inner, options, NULL);
    tutti_free(counts);
    return status;
}

/* The same call among the members of the view. */
static enum tutti_status call_inner(struct tutti_survive *s, const struct tutti_call *call, int32_t root,
                                    const void *input, const struct tutti_call_options *options)
{
    const struct tutti_call_info *info = &call->job.info;
    struct tutti_call inner;
    tutti_call_set(&inner, info->kind, info->dtype, info->op, root, call->job.bind.count, input,
                   goes_aside(s, call) ? next_large(s) : call->job.bind.output);
    return tutti_call_collective(&inner, s->inner, options, NULL);
}

/* The blocks of the lost ranks are left out of a copy of the input. */
static enum tutti_status scatter_some(struct tutti_survive *s, const struct tutti_call *call,
                                      const struct tutti_call_options *options)
{
    const size_t element = tutti_dtype_bytes(call->job.info.dtype);
    const bool some = s->n < (uint32_t)call->comm->size;
    const char *input = call->job.bind.input;
    size_t *counts = view_table(s, call), bytes = 0;
    if (!counts) return TUTTI_ERR_MEMORY;
    for (uint32_t i = 0; i < s->n; i++) bytes += counts[i] * element;
    char *copy = some ? tutti_alloc(bytes + 1) : NULL;
    if (some && !copy) {
        tutti_free(counts);
        return tutti_call_fail(call, TUTTI_ERR_MEMORY, "no memory for the blocks of %u ranks", s->n);
    }
    bytes = 0;
    for (uint32_t i = 0; some && input && i < s->n; i++) {
        if (counts[i]) memcpy(copy + bytes, input + counts[s->n + i] * element, counts[i] * element);
        bytes += counts[i] * element;
    }
    enum tutti_status status =
        call->job.bind.v
            ? tutti_reduce_scatter_v(some ? copy : input, call->job.bind.output, counts, call->job.info.dtype,
                                     (enum tutti_op)call->job.info.op, s->inner, options, NULL)
            : call_inner(s, call, 0, copy, options);
    tutti_free(copy);
    tutti_free(counts);
    return status;
}

static enum tutti_status carry_out(struct tutti_survive *s, const struct tutti_call *call)
{
    const struct tutti_kind_info *kind = tutti_kind_info(call->job.info.kind);
    const bool some = call->job.bind.v || (kind->block_a_slot && s->n < (uint32_t)call->comm->size);
    const int32_t root = kind->rooted ? inner_rank(s, call->job.info.root) : 0;
    struct tutti_call_options own = call->options;
    const struct tutti_call_options *options = own.size ? &own : NULL;
    if (call->job.info.op == TUTTI_PREMUL_SUM) own.premul = call->job.factor; /* which the check has read */
    if (call->staged && own.algorithm && tutti_backend_find(own.algorithm, true)) own.algorithm = NULL;
    if (s->gated) s->gated->is_redone = true;
    if (root < 0) {
        s->end.status = TUTTI_ERR_PEER_DEAD;
        s->end.lost = call->job.info.root;
        return TUTTI_OK;
    }
    if (s->is_shared) return tutti_shares_reduce(s, call, options);
    if (some && kind->reduces) return scatter_some(s, call, options);
    if (some) return gather_some(s, call, root, options);
    return call_inner(s, call, root, call->job.bind.input, options);
}

/* ---- what the machine asks for ---- */

/* A rank of the view is dead, left, or did not come in time: the others find one another. All else ends the
 * communicator. */
static bool is_loss(enum tutti_status status)
{
    return tutti_status_is_gone(status) || status == TUTTI_ERR_TIMEOUT;
}

enum tutti_synchrony_do tutti_survive_stop(struct tutti_survive *s)
{
    s->has_ended = true;
    s->error = *tutti_last_error();
    if (s->error.peer >= 0 && (uint32_t)s->error.peer < s->n) s->error.peer = (int32_t)s->ranks[s->error.peer];
    if (s->error.seq > 0) s->error.seq = s->synchrony.called;
    return TUTTI_SYNCHRONY_END;
}

static enum tutti_synchrony_do ended(struct tutti_survive *s, enum tutti_status status)
{
    if (status < 0 && !is_loss(status)) return tutti_survive_stop(s);
    if (status < 0) s->loss = *tutti_last_error();
    return tutti_synchrony_ended(&s->synchrony, status < 0);
}

/* The call among the members, on host memory. */
static enum tutti_status by_host(struct tutti_survive *s, const struct tutti_call *call)
{
    restore(s, call);
    enum tutti_status status = tutti_shares_ready(s, call);
    s->is_shared = status == TUTTI_OK;
    if (!s->is_shared && status >= 0) status = save(s, call);
    return status < 0 ? status : carry_out(s, call);
}

static enum tutti_synchrony_do do_data(struct tutti_survive *s, const struct tutti_call *call)
{
    const bool by_device = s->gated && !s->gated->is_void && !s->gated->is_tried;
    tutti_survive_name_call(s);
    s->end = (struct kept){.call = s->synchrony.called, .lost = -1};
    enum tutti_status status = by_device ? tutti_gated_result(s->gated, false) : by_host(s, call);
    if (status >= 0) {
        (by_device ? tutti_gated_set : tutti_survive_set_to_view)(s, s->set);
        if (s->synchrony.keeps) {
            struct kept *kept = kept_at(s, s->synchrony.called);
            *kept = s->end;
            kept->bytes = common_bytes(call);
            memcpy(set_of(kept), s->set, s->set_bytes);
            if (kept->bytes > KEEP_SMALL) s->last_large = !s->last_large;
            if (goes_aside(s, call))
                memcpy(call->job.bind.output, result_of(s, kept), kept->bytes);
            else if (kept->bytes > 0)
                memcpy(result_of(s, kept), call->job.bind.output, kept->bytes);
        }
    }
    return ended(s, status);
}

/* Whether a member of the view before that is not of this one may live. */
static bool has_missing(const struct tutti_comm *before, const struct tutti_comm *next)
{
    struct tutti_control *control = before->family->world.control;
    for (int32_t k = 0, i = 0; k < before->size; k++) {
        if (i < next->size && before->members[k] == next->members[i])
            i++;
        else if (!tutti_life_gone(control->ops->life(control, before->members[k])) ||
                 (control->ops->proved && !control->ops->proved(control, before->members[k])))
            return true;
    }
    return false;
}

static void keep_world(struct tutti_survive *s, struct tutti_family *family)
{
    struct tutti_family **place = &s->left[s->n_left++ % LEFT_MOST];
    if (*place) tutti_family_drop(*place);
    *place = tutti_family_hold(family);
    s->has_missing = false;
}

static void install(struct tutti_survive *s, struct tutti_comm *next)
{
    tutti_survive_name_view(s, next);
    struct tutti_comm *before = s->inner;
    if (before && before->family == next->family) s->has_missing = s->has_missing || has_missing(before, next);
    if (before && before->family != next->family && s->has_missing) keep_world(s, before->family);
    pthread_mutex_lock(&s->comm->lock); /* an abort may ask for it */
    s->inner = next;
    pthread_mutex_unlock(&s->comm->lock);
    s->n = (uint32_t)next->size;
    s->is_joint = false;
    next->create_timeout_ns = s->comm->create_timeout_ns;
    atomic_store(&next->timeout_ns, atomic_load(&s->comm->timeout_ns));
    if (before) tutti_comm_destroy(before);
}

void tutti_survive_set_view(struct tutti_survive *s, struct tutti_comm *inner, const unsigned char *set,
                            const unsigned char *elders)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < (uint32_t)s->comm->size; rank++)
        if (set_has(set, rank)) s->ranks[n++] = rank;
    for (uint32_t i = 0; elders && i < n; i++) s->elders[i] = set_has(elders, s->ranks[i]);
    install(s, inner);
    s->is_joint = elders != NULL;
}

void tutti_survive_follow(struct tutti_survive *s, struct tutti_comm *next)
{
    for (uint32_t i = 0, k = 0; i < (uint32_t)next->size; i++) { /* both in the order of ranks */
        while (s->inner->members[k] != next->members[i]) k++;
        s->ranks[i] = s->ranks[k++];
    }
    install(s, next);
}

/* A rank that did not come to a call in time is not waited for any longer than a host that is silent. Else members may
 * be busy between two calls, for as long as a call waits for them. */
uint64_t tutti_survive_patience(const struct tutti_survive *s)
{
    const uint64_t most = s->comm->create_timeout_ns, host = s->comm->context->config.number[TUTTI_OPT_host_timeout];
    const uint64_t calls = atomic_load(&s->comm->timeout_ns);
    const uint64_t patience = s->loss.status == TUTTI_ERR_TIMEOUT || calls < host ? host : calls;
    return patience < most ? patience : most;
}

static enum tutti_synchrony_do do_agree(struct tutti_survive *s)
{
    struct tutti_comm *next;
    struct tutti_next how = {.patience_ns = tutti_survive_patience(s),
                             .is_late = s->loss.status == TUTTI_ERR_TIMEOUT,
                             .elders = s->is_joint ? s->elders : NULL};
    if (tutti_survive_next(s, &how, &next) < 0) return tutti_survive_stop(s);
    const bool all_late = s->loss.status == TUTTI_ERR_TIMEOUT && (uint32_t)next->size == s->n;
    if (s->late_at != s->synchrony.last) s->n_late = 0; /* calls were over since: the same on all members */
    s->late_at = s->synchrony.last;
    if (all_late && s->n_late++ == LATE_MOST) { /* all are there again and again, and too slow */
        tutti_comm_destroy(next);
        tutti_fail_record(&s->loss);
        return tutti_survive_stop(s);
    }
    tutti_survive_follow(s, next);
    return tutti_synchrony_installed(&s->synchrony, s->synchrony.epoch + 1);
}

static enum tutti_synchrony_do gathered(struct tutti_survive *s, const struct tutti_says *all)
{
    struct tutti_synchrony_state *states = tutti_alloc_array(s->n, sizeof(*states));
    for (uint32_t i = 0; states && i < s->n; i++) states[i] = all[i].state;
    s->is_joint = false, s->is_gathered = true; /* all are here */
    tutti_gated_changed(s, all);
    if (!states) tutti_fail(TUTTI_ERR_MEMORY, "no memory for the states of %u ranks", s->n);
    enum tutti_synchrony_do next =
        states ? tutti_synchrony_gathered(&s->synchrony, states, s->n) : tutti_survive_stop(s);
    tutti_free(states);
    return next;
}

static enum tutti_synchrony_do do_gather(struct tutti_survive *s)
{
    struct tutti_says mine, *all = tutti_alloc_array(s->n, sizeof(*all));
    if (!all) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u states", s->n), tutti_survive_stop(s);
    /* The shares of those who are gone are whole, or it is done again. */
    if (s->synchrony.state.held_epoch > 0 && s->is_shared && !tutti_shares_whole(s)) s->synchrony.state.held_epoch = 0;
    mine.state = s->synchrony.state;
    tutti_gated_change(s, &mine);
    enum tutti_status status =
        tutti_all_gather(&mine, all, sizeof(mine) / sizeof(uint64_t), TUTTI_UINT64, s->inner, NULL, NULL);
    if (status < 0) s->loss = *tutti_last_error();
    enum tutti_synchrony_do next = status >= 0       ? gathered(s, all)
                                   : is_loss(status) ? tutti_synchrony_gathered(&s->synchrony, NULL, s->n)
                                                     : tutti_survive_stop(s);
    tutti_free(all);
    return next;
}

static enum tutti_synchrony_do do_hand_on(struct tutti_survive *s)
{
    const int32_t from = (int32_t)s->synchrony.from;
    struct kept *kept = kept_at(s, s->synchrony.handed);
    enum tutti_status status = tutti_broadcast(kept, s->kept_bytes, TUTTI_UINT8, from, s->inner, NULL, NULL);
    if (status >= 0 && (kept->bytes > KEEP_MOST || kept->call != s->synchrony.handed))
        status = tutti_fail(TUTTI_ERR_PROTOCOL, "the result that is handed on is none of call %llu",
                            (unsigned long long)s->synchrony.handed);
    if (status >= 0 && kept->bytes > KEEP_SMALL)
        status = tutti_broadcast(result_of(s, kept), kept->bytes, TUTTI_UINT8, from, s->inner, NULL, NULL);
    return ended(s, status);
}

static void take(struct tutti_survive *s, const struct tutti_call *call)
{
    struct kept *kept = kept_at(s, s->synchrony.called);
    s->end = *kept;
    memcpy(s->set, set_of(kept), s->set_bytes);
    if (kept->bytes > 0 && kept->status >= 0) memcpy(call->job.bind.output, result_of(s, kept), kept->bytes);
}

/* An abort that came while the members agreed has ended the view before: the others hear of it in this one. */
static enum tutti_synchrony_do unless_aborted(struct tutti_survive *s, enum tutti_synchrony_do next)
{
    const bool is_over = next == TUTTI_SYNCHRONY_END || next == TUTTI_SYNCHRONY_TAKE ||
                         next == TUTTI_SYNCHRONY_RETURN || (s->gated && !s->gated->is_lost);
    if (is_over || !atomic_load(&s->is_aborted)) return next;
    tutti_comm_end_calls(s->inner, s->reason);
    tutti_fail(TUTTI_ERR_ABORTED, "rank %d aborted the communicator%s%s", (int)s->comm->rank, s->reason[0] ? ": " : "",
               s->reason);
    return tutti_survive_stop(s);
}

/* A rank that has no memory for what must be done goes: the others go on without it. */
static void leave_view(struct tutti_survive *s)
{
    pthread_mutex_lock(&s->comm->lock);
    struct tutti_comm *inner = s->inner;
    s->inner = NULL;
    pthread_mutex_unlock(&s->comm->lock);
    if (inner) tutti_comm_destroy(inner);
}

enum tutti_status tutti_survive_run(struct tutti_survive *s, const struct tutti_call *call)
{
    if (s->has_ended) return tutti_fail_record(&s->error);
    s->has_saved = s->is_shared = false;
    atomic_store_explicit(&s->inner->timeout_ns, atomic_load_explicit(&s->comm->timeout_ns, memory_order_relaxed),
                          memory_order_relaxed);
    const bool syncs = !tutti_kind_info(call->job.info.kind)->rooted;
    const bool by_device = (s->gated || call->staged) && tutti_gated_takes(s, call); /* it has a gate instead */
    const bool keeps = !by_device && common_bytes(call) <= (syncs ? KEEP_MOST : KEEP_SMALL);
    return tutti_survive_drive(s, call, tutti_synchrony_call(&s->synchrony, keeps, syncs));
}

enum tutti_status tutti_survive_drive(struct tutti_survive *s, const struct tutti_call *call,
                                      enum tutti_synchrony_do next)
{
    for (;;) switch (next = unless_aborted(s, next)) {
        case TUTTI_SYNCHRONY_DATA:
            next = do_data(s, call);
            break;
        case TUTTI_SYNCHRONY_COMMIT:
            next = ended(s, s->gated && !s->gated->is_redone ? tutti_gated_result(s->gated, true)
                                                             : tutti_barrier(s->inner, NULL, NULL));
            break;
        case TUTTI_SYNCHRONY_AGREE:
            next = do_agree(s);
            break;
        case TUTTI_SYNCHRONY_GATHER:
            next = do_gather(s);
            break;
        case TUTTI_SYNCHRONY_HAND_ON:
            next = do_hand_on(s);
            break;
        case TUTTI_SYNCHRONY_END:
            if (call) restore(s, call);
            if (!s->has_ended) tutti_survive_stop(s);
            if (s->error.status == TUTTI_ERR_MEMORY) leave_view(s);
            return tutti_fail_record(&s->error);
        case TUTTI_SYNCHRONY_TAKE:
            take(s, call); /* fall through */
        case TUTTI_SYNCHRONY_RETURN:
            if (call && s->is_shared && !tutti_shares_take(s, call)) {
                next = do_agree(s); /* which tells it that the others went on */
                if (next != TUTTI_SYNCHRONY_END) tutti_fail(TUTTI_ERR_INTERNAL, "the result is lost");
                next = TUTTI_SYNCHRONY_END;
                continue;
            }
            if (s->end.status >= 0) return TUTTI_OK;
            return tutti_call_fail(call, (enum tutti_status)s->end.status, "rank %d died, which is the root",
                                   s->end.lost);
        }
}

/* ---- begin and end ---- */

bool tutti_survive_state(const struct tutti_comm *comm, struct tutti_error *error)
{
    struct tutti_survive *s = comm->survive;
    if (!s) return false;
    pthread_mutex_lock(&s->lock);
    if (!s->is_running && s->has_ended) *error = s->error;
    pthread_mutex_unlock(&s->lock);
    return true;
}

void tutti_survive_close(struct tutti_comm *comm)
{
    struct tutti_survive *s = comm->survive;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stops = true; /* when what waits is over */
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) pthread_join(s->thread, NULL);
    comm->survive = NULL;
    tutti_gated_close(s);
    if (s->inner) tutti_comm_destroy(s->inner);
    tutti_synchrony_fini(&s->synchrony);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    for (uint32_t i = 0; i < LEFT_MOST; i++)
        if (s->left[i]) tutti_family_drop(s->left[i]);
    tutti_held_close(s);
    tutti_door_close(&s->door);
    tutti_free(s->elders);
    tutti_free(s->sets);
    tutti_free(s->ranks);
    tutti_free(s->kept);
    tutti_free(s->kept_large);
    tutti_free(s->set);
    tutti_free(s->saved);
    tutti_shares_close(s);
    tutti_free(s);
}

enum tutti_status tutti_survive_new(struct tutti_comm *comm, const struct tutti_comm_config *given)
{
    const uint32_t n = (uint32_t)comm->size;
    struct tutti_survive *s = tutti_alloc(sizeof(*s));
    if (!s) return tutti_fail(TUTTI_ERR_MEMORY, "comm_create: no memory for a communicator that survives");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->comm = comm;
    s->tail = &s->first;
    tutti_synchrony_init(&s->synchrony);
    s->set_bytes = (n + SET_WORD - 1) / SET_WORD * sizeof(uint64_t);
    s->kept_bytes = sizeof(struct kept) + s->set_bytes + KEEP_SMALL;
    s->ranks = tutti_alloc_array(n, sizeof(*s->ranks));
    s->elders = tutti_alloc_array(n, sizeof(*s->elders));
    s->kept = tutti_alloc(N_KEPT * s->kept_bytes);
    s->kept_large = tutti_alloc((size_t)2 * KEEP_MOST);
    s->set = tutti_alloc(s->set_bytes);
    s->sets = tutti_alloc(N_KEPT * s->set_bytes);
    s->gates.ranks = tutti_alloc_array(n, sizeof(*s->gates.ranks));
    s->gates.all = comm->wanted_device != TUTTI_DEVICE_NONE;
    comm->survive = s;
    comm->survive_call = tutti_survive_call;
    if (!s->gates.ranks || !s->ranks || !s->elders || !s->kept || !s->kept_large || !s->set || !s->sets)
        return tutti_fail(TUTTI_ERR_MEMORY, "comm_create: no memory for what %u ranks keep", n);
    TUTTI_TRY(tutti_door_init(&s->door, given));
    return tutti_door_need(&s->door, comm);
}

enum tutti_status tutti_survive_open(struct tutti_comm *comm, const struct tutti_comm_config *given)
{
    struct tutti_comm *view = NULL;
    enum tutti_status status = tutti_comm_dup(comm, &view);
    if (status >= 0) status = tutti_survive_new(comm, given);
    if (status < 0) {
        if (view) tutti_comm_destroy(view);
        if (comm->survive) tutti_survive_close(comm);
        return status;
    }
    struct tutti_survive *s = comm->survive;
    memset(s->set, 0xff, s->set_bytes);
    tutti_survive_set_view(s, view, s->set, NULL);
    tutti_survive_set_to_view(s, s->set);
    int32_t mine = s->gates.all, all = 0;
    status = tutti_all_reduce(&mine, &all, 1, TUTTI_INT32, TUTTI_MIN, view, NULL, NULL);
    if (status < 0) {
        tutti_survive_close(comm);
        return status;
    }
    s->gates.all = all != 0;
    atomic_store(&comm->sequence, 0); /* the duplicate was none of the user's calls */
    return TUTTI_OK;
}
