/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_FLAT_FLAT_H
#define TUTTI_BACKEND_FLAT_FLAT_H

/* The back end flat: collectives between the ranks of one host through memory that all of them map. Begin here, then
 * read flat_op.c (a call from begin to end), flat_methods.c (the table of methods and the choice), and one walk.
 *
 * Every rank has an *area* that it alone writes; others read it. All waiting is for a word of a peer's area to reach a
 * value. Words only grow. So a method is right if each read follows, through such waits, the write that it needs, and
 * each write follows the reads of what it replaces.
 *
 * An *instance* is the areas of one group of ranks. It runs one *operation* at a time, in the order of the calls,
 * numbered from 1. A *method* carries out one kind of collective by a *walk*. A walk is a function that returns BLOCKED
 * where it would have to wait and is called again later: its state and its counters are in the operation. There is one
 * walk for each way of moving data: lines (flat_line.c), rounds of staging (flat_rounds.c), staging from rank to rank
 * (flat_relay.c), moves and folds straight between buffers (flat_move.c, flat_fold.c). Inside a walk, a table has a row
 * for each kind.
 *
 * Reuse. Posts and lines rotate over inst->depth operations: operation k may write its slot when all ranks have
 * finished operation k - depth (flat_room). Staging rotates over FLAT_SLOTS slots of FLAT_PARTS parts. A round takes a
 * power of two of parts, from a multiple of it on, so that short rounds let a rank run far ahead. Parts are numbered
 * through all operations of the instance: a part may be written when all ranks have read the part that lay there before
 * (flat_round_room). */

#include "backend/flat/flat_instance.h"

/* ---- waiting (flat_wait.c): true at once or within op->spins; else false, and op->awaited is the peer awaited ---- */
bool flat_spin(struct flat_op *op, uint32_t peer, const _Atomic uint64_t *word, uint64_t value);
bool flat_spin_word(struct flat_op *op, uint32_t peer, const _Atomic uint64_t *word);
/* The word of a call that ranks compare: its number, and a hash of the call and of earlier calls in which not all ranks
 * wait for all. So two ranks that both were root of such a call differ in the words of the next one. */
static inline uint64_t flat_word(const struct flat_instance *inst, uint64_t signature, uint64_t number)
{
    return (signature ^ inst->history) << 32 | (uint32_t)number;
}

static inline void flat_remember(struct flat_instance *inst, uint64_t signature)
{
    inst->history = (inst->history ^ signature) * UINT64_C(0x9e3779b97f4a7c15) >> 16;
}

/* The word of the peer has reached the value. */
static inline bool flat_reached(struct flat_op *op, uint32_t peer, const _Atomic uint64_t *word, uint64_t value)
{
    return atomic_load_explicit(word, memory_order_acquire) >= value || flat_spin(op, peer, word, value);
}
static inline const _Atomic uint64_t *flat_flag(const struct flat_op *op, uint32_t peer, enum flat_flag_name flag)
{
    return &op->inst->areas[peer]->flags[flag].n;
}
/* The place of an operation among the posts and lines that rotate. */
static inline uint32_t flat_turn(const struct flat_instance *inst, uint64_t number)
{
    return (uint32_t)number & (inst->depth - 1);
}
static inline struct flat_post *flat_post_of(const struct flat_op *op, uint32_t peer)
{
    return &op->inst->areas[peer]->posts[flat_turn(op->inst, op->number)];
}
/* The peer has posted this operation: its post can be read from now on. */
static inline bool flat_posted(struct flat_op *op, uint32_t peer)
{
    const _Atomic uint64_t *word = &flat_post_of(op, peer)->word;
    return atomic_load_explicit(word, memory_order_acquire) == op->word || flat_spin_word(op, peer, word);
}
/* The peer has staged the first n rounds of this operation. After flat_posted. */
static inline bool flat_staged(struct flat_op *op, uint32_t peer, uint64_t n)
{
    return flat_reached(op, peer, &flat_post_of(op, peer)->in, n);
}
/* Prefetches the lines that are about to be awaited one after the other. */
void flat_posts_ahead(const struct flat_op *op);
void flat_flags_ahead(const struct flat_op *op, enum flat_flag_name flag);
/* All ranks have left the slots of this operation's number. */
bool flat_room(struct flat_op *op);
/* All other ranks have completed this operation: nobody touches this rank's buffers any more. */
bool flat_left(struct flat_op *op);
/* All ranks have read what round `round` of this operation replaces in the staging memory. */
bool flat_round_room(struct flat_op *op, uint64_t round);
/* Notes that all ranks have read the parts before this one. */
static inline void flat_read_by_all(struct flat_instance *inst, uint64_t part)
{
    if (part > inst->read_by_all) inst->read_by_all = part;
}
/* The peer has not given this operation up: what this rank read of its buffers was there. */
static inline bool flat_is_intact(const struct flat_op *op, uint32_t peer)
{
    const struct flat_area *area = op->inst->areas[peer];
    return !atomic_load_explicit(&area->gone, memory_order_acquire) ||
           atomic_load_explicit(&area->done, memory_order_acquire) >= op->number;
}

/* ---- publishing ---- */
/* Publishes a value; a rank that reads it sees what was written before. Wakes sleepers. */
void flat_publish(struct flat_op *op, _Atomic uint64_t *word, uint64_t value);
static inline void flat_raise(struct flat_op *op, enum flat_flag_name flag, uint64_t value)
{
    flat_publish(op, &op->inst->areas[op->inst->me]->flags[flag].n, value);
}
/* One more round of this operation is staged. */
void flat_stage(struct flat_op *op);
/* This rank has read all that it wants of the first n rounds of this operation. */
void flat_has_read(struct flat_op *op, uint64_t n);

/* ---- posts (flat_wait.c) ---- */
/* Facts about this rank's buffers; sets op->send_at and op->recv_at. */
uint64_t flat_facts(struct flat_op *op);
void flat_post_write(struct flat_op *op, uint64_t facts);
/* Address here of a part of a peer's buffer that its post says is mapped. NULL: it can not be mapped. */
unsigned char *flat_peer_part(const struct flat_op *op, uint32_t peer, bool send, size_t at, size_t bytes);
enum tutti_advance flat_lost(void); /* FAILED, with a record that says that */

/* ---- blocks (flat_blocks.c) ---- */
/* Bytes of the whole send and receive buffers of a rank in this call (v forms: of the own ones). */
size_t flat_send_bytes(const struct flat_op *op);
size_t flat_recv_bytes(const struct flat_op *op);
/* Where block r lies in the buffer that holds all blocks, and its bytes; of all_to_all that is the receive buffer. */
size_t flat_block(const struct flat_op *op, uint32_t r, size_t *at);
/* The same in the buffer that holds all blocks that are sent. */
size_t flat_block_sent(const struct flat_op *op, uint32_t r, size_t *at);
/* The bytes of the largest block of a call; SIZE_MAX: not every rank knows it (all_to_all_v, gather_v, scatter_v). */
size_t flat_block_bytes(const struct flat_instance *inst, const struct tutti_backend_call *call);
/* Fills op->tables and op->bytes of a v form of which this rank knows all blocks. MEMORY. */
enum tutti_status flat_blocks_copy(struct flat_op *op);
/* gather_v and scatter_v without staging: before its post the root publishes where the blocks are in its buffer, and
 * a leaf reads the entry of its own block. */
#define FLAT_PUBLISHED_RANKS (FLAT_LEVELS * (FLAT_LINE_LEAST / (2 * sizeof(uint64_t)))) /* at most so many ranks */
void flat_blocks_publish(struct flat_op *op);
size_t flat_block_published(const struct flat_op *op, size_t *at);
/* all_to_all_v: a rank knows its own row and column alone. It writes places and sizes of its blocks into round 0 of its
 * staging memory, and peers read their entries. */
void flat_table_put(struct flat_op *op);
size_t flat_table_place(const struct flat_op *op, uint32_t peer); /* where the own block is in the peer's send buffer */
/* False, with a record: the peers differ in the bytes that one has for the other. */
bool flat_table_agrees(const struct flat_op *op, uint32_t peer);
bool flat_disagree(uint32_t from, size_t sends, uint32_t to, size_t expects);

/* Ranks of a butterfly's group at a level: never none, which divisions and loops below rest on. */
static inline uint32_t flat_radix(const struct flat_instance *inst, uint32_t level)
{
    const uint32_t factor = inst->factors[level];
    if (factor == 0) __builtin_unreachable();
    return factor;
}

/* The peer whose mixed-radix number has digit d at this level of the butterfly, and else the digits of this rank. Lower
 * levels have `stride` ranks in all. */
static inline uint32_t flat_digit_peer(const struct flat_instance *inst, uint32_t level, uint32_t stride, uint32_t d)
{
    uint32_t own = inst->me / stride % flat_radix(inst, level);
    return inst->me - own * stride + d * stride;
}

/* ---- rooted kinds ---- */
static inline uint32_t flat_root(const struct flat_op *op)
{
    return (uint32_t)op->call.info.root;
}
static inline bool flat_is_root(const struct flat_op *op)
{
    return flat_root(op) == op->inst->me;
}

/* ---- groups of neighbours, each with a leader: its first rank, or the root of the operation ---- */
static inline uint32_t flat_group(const struct flat_instance *inst) /* ranks of one */
{
    uint32_t group = inst->n <= FLAT_GROUP_ALONE ? inst->n : FLAT_GROUP_ALONE / 2;
    while (group < inst->n && group * group < inst->n) group *= 2;
    return group;
}
static inline uint32_t flat_leader(const struct flat_op *op, uint32_t rank)
{
    uint32_t group = flat_group(op->inst);
    return rank / group == flat_root(op) / group ? flat_root(op) : rank / group * group;
}

/* The rank from which a rank takes a broadcast: its leader; a leader takes it from the root. */
static inline uint32_t flat_giver(const struct flat_op *op, uint32_t rank)
{
    uint32_t leader = flat_leader(op, rank);
    return leader == rank ? flat_root(op) : leader;
}
/* Whether others take the broadcast from this rank. The last group may be a leader alone. */
static inline bool flat_gives(const struct flat_op *op)
{
    uint32_t me = op->inst->me;
    return flat_is_root(op) || (flat_leader(op, me) == me && me + 1 < op->inst->n);
}

/* ---- scans, and whether a rank's own input is in its result ---- */
static inline bool flat_is_scan(enum tutti_kind kind)
{
    return kind == TUTTI_SCAN || kind == TUTTI_EXSCAN;
}
/* Pieces of a chain: the last of many ranks does not wait long for the first. Where ranks share CPUs each piece costs a
 * turn, so there are few. */
static inline uint32_t flat_chain_pieces(const struct flat_instance *inst)
{
    return inst->crowded || inst->n < 4 ? 2 : inst->n / 2;
}
static inline bool flat_takes_own(const struct flat_op *op)
{
    return op->call.info.kind == TUTTI_SCAN;
}

/* The barrier inside an operation, once: DONE when all ranks have come, else BLOCKED. */
enum tutti_advance flat_meet(struct flat_op *op);

/* ---- staging ---- */
#define FLAT_ALL_PARTS (FLAT_SLOTS * FLAT_PARTS)
/* The part with which a round of this operation begins; also: as many parts came before it. */
static inline uint64_t flat_number(const struct flat_op *op, uint64_t round)
{
    return op->base + round * op->width;
}
/* Rounds of this operation take so many bytes of a slot: sets op->width and op->base. */
void flat_rounds_place(struct flat_op *op, size_t bytes);
/* What the peer staged, and what it reduced, in round `round` of this operation, counted from 0. */
static inline unsigned char *flat_slot_in(const struct flat_op *op, uint32_t peer, uint64_t round)
{
    return op->inst->staging[peer] + flat_number(op, round) % FLAT_ALL_PARTS * (op->inst->chunk / FLAT_PARTS);
}
static inline unsigned char *flat_slot_out(const struct flat_op *op, uint32_t peer, uint64_t round)
{
    return flat_slot_in(op, peer, round) + FLAT_SLOTS * op->inst->chunk;
}

/* Cuts a block into rounds, where a slot holds a piece of each of n blocks: sets op->piece and op->n_rounds. There are
 * several rounds, so that they overlap, but none of tiny pieces. */
void flat_cut(struct flat_op *op, size_t block, uint32_t n);
/* The same for one block that ranks hand on: at least n pieces, so that the next rank begins soon. */
void flat_cut_small(struct flat_op *op, size_t block, uint32_t n);
/* The same in as few rounds as slots allow, all alike: for all ranks copy in and out at once, and nothing overlaps. */
void flat_cut_evenly(struct flat_op *op, size_t block, uint32_t n);
/* Bytes of round u of a block. */
static inline size_t flat_piece(const struct flat_op *op, size_t block, uint64_t u)
{
    size_t at = u * op->piece;
    return at >= block ? 0 : block - at < op->piece ? block - at : op->piece;
}
/* Rounds of so many bytes. */
static inline uint64_t flat_rounds_of(const struct flat_op *op, size_t bytes)
{
    return (bytes + op->piece - 1) / op->piece;
}
/* The i-th rank after this one: each begins with another neighbour, so no rank is read by all at once. */
static inline uint32_t flat_after(const struct flat_instance *inst, uint32_t i)
{
    uint32_t r = inst->me + i;
    return r < inst->n ? r : r - inst->n;
}

/* ---- lines (flat_line.c): level 0 is what a rank gives, the others are partial results of butterflies ---- */
#define FLAT_LINE_STORAGE (FLAT_LINE_MOST + 2 * TUTTI_CACHE_LINE)
static inline size_t flat_line_max(const struct flat_instance *inst)
{
    return inst->slot_bytes - sizeof(uint64_t);
}
static inline struct flat_slot *flat_line_slot(const struct flat_instance *inst, uint32_t rank, uint32_t level,
                                               uint64_t number)
{
    unsigned char *slots = inst->areas[rank]->slots[level];
    return (struct flat_slot *)(void *)(slots + flat_turn(inst, number) * inst->slot_bytes);
}
static inline uint32_t flat_lines_of(size_t bytes)
{
    return (uint32_t)((bytes + 8 + FLAT_LINE_BYTES - 1) / FLAT_LINE_BYTES);
}
void flat_lines_put(struct flat_op *op, uint32_t level, const unsigned char *data, size_t bytes);
/* Whether the peer's lines are there; then, some bytes of them. */
bool flat_lines_there(struct flat_op *op, uint32_t peer, uint32_t level);
void flat_line_ahead(const struct flat_op *op, uint32_t peer, uint32_t level); /* prefetches it */
void flat_lines_part(const struct flat_op *op, uint32_t peer, uint32_t level, size_t at, size_t bytes,
                     unsigned char *out);

/* ---- bytes (flat_data.c) ---- */
/* dst = src, and, for a reduction that scales its inputs, scaled. */
void flat_take(const struct flat_op *op, void *dst, const void *src, size_t bytes);
/* Copies; past: past the caches, which needs flat_fence before anything is published. */
void flat_copy(void *dst, const void *src, size_t bytes, bool past);
void flat_fence(void);
/* Whether this rank writes its results past the caches: op->past. */
bool flat_goes_past(const struct flat_op *op);
/* dst = left op right, whole elements. */
void flat_fold(const struct flat_op *op, void *dst, const void *left, const void *right, size_t bytes);
/* Divides a result where the operation divides (avg). */
void flat_divide(const struct flat_op *op, void *data, size_t bytes);
struct flat_folding {
    unsigned char *const *dst;
    uint32_t n_dst, n_past; /* the last n_past destinations are written past the caches */
    const unsigned char *const *sources;
    uint32_t n; /* sources */
    size_t at;  /* where all sources begin */
};
/* Each dst[d][0..bytes) = sources[0][at..] op sources[1][at..] ..., folded from left to right, in blocks, and divided.
 * A destination may be what a source has at `at`. bytes: whole elements. */
void flat_fold_all(const struct flat_op *op, const struct flat_folding *what, size_t bytes);
/* Part `i` of n of `bytes`, cut at whole cache lines and elements: *at and its length. */
size_t flat_part(const struct flat_op *op, size_t bytes, uint32_t n, uint32_t i, size_t *at);

/* ---- walks: NAME(op) advances, NAME_start, NAME_first and NAME_fits as in struct flat_walk ---- */
#define FLAT_WALK(name)                                                                                                \
    enum tutti_advance name(struct flat_op *op);                                                                       \
    void name##_start(struct flat_op *op);                                                                             \
    void name##_first(struct flat_op *op);                                                                             \
    bool name##_fits(const struct flat_instance *inst, const struct tutti_backend_call *call);
FLAT_WALK(flat_alone)       /* one rank: a copy */
FLAT_WALK(flat_line)        /* all_reduce, barrier, all_gather, reduce_scatter, all_to_all; fits: all kinds */
FLAT_WALK(flat_line_groups) /* reduce, scan, exscan */
FLAT_WALK(flat_line_broadcast)
FLAT_WALK(flat_line_gather)
FLAT_WALK(flat_line_scatter)
FLAT_WALK(flat_rounds) /* staging: all but broadcast, scatter and scans */
FLAT_WALK(flat_relay)  /* staging: broadcast, scatter; scans as a chain */
FLAT_WALK(flat_move)   /* straight between buffers: the kinds that move blocks; mapped ones or attached ones */
FLAT_WALK(flat_move_broadcast)
FLAT_WALK(flat_push)          /* flat_move, all_gather to mapped outputs */
FLAT_WALK(flat_attach)        /* flat_move by cross-memory copies */
FLAT_WALK(flat_swap)          /* all_to_all in place */
FLAT_WALK(flat_fold_mapped)   /* reductions straight from and to mapped buffers */
FLAT_WALK(flat_fold_attached) /* reductions of inputs that the kernel copies */
#undef FLAT_WALK

/* ---- predicted times (flat_cost.c) ---- */
double flat_cost_alone(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_line(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_stage(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_direct(const struct flat_instance *inst, const struct tutti_backend_call *call); /* the root folds */
double flat_cost_chain(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_mapped(const struct flat_instance *inst, const struct tutti_backend_call *call);
double flat_cost_attach(const struct flat_instance *inst, const struct tutti_backend_call *call);
/* For a method, if all posts have these facts, corrected by what `tutti tune` measured. Of all facts only FLAT_HUGE,
 * and whether both buffers are mapped, change it. */
double flat_cost_of(const struct flat_instance *inst, const struct flat_method *method,
                    const struct tutti_backend_call *call, uint64_t facts);
/* Reads what `tutti tune` measured on this host. Members compare *mark: whether they have read the same; 0: nothing. */
enum tutti_status flat_tuned_open(struct flat_instance *inst, const struct tutti_config *options, uint64_t *mark);
void flat_tuned_close(struct flat_instance *inst);

/* ---- methods (flat_methods.c) ---- */
extern const struct flat_method flat_methods[];
extern const size_t flat_n_methods;
#define FLAT_METHODS_MOST 64
enum tutti_status flat_options_check(const struct tutti_config *options); /* the option flat is a method */
bool flat_fits(const struct flat_instance *inst, const struct flat_method *method,
               const struct tutti_backend_call *call);
/* The choice for a call on buffers with these facts, from the last ones in *chosen where it can be. */
struct flat_choice flat_choose(const struct flat_instance *inst, struct flat_chosen *chosen,
                               const struct tutti_backend_call *call, size_t bytes, uint64_t facts);
void flat_lines_limit(struct flat_instance *inst); /* fills inst->line_below */
double flat_score(const struct tutti_backend *backend, const struct tutti_backend_call *call);
size_t flat_candidates(const struct tutti_backend *backend, const struct tutti_backend_call *call,
                       struct tutti_backend_candidate *out, size_t capacity);
/* The first of this name; NULL: none. */
const struct flat_method *flat_method_named(enum tutti_kind kind, const char *name);
const char *flat_method_name(const char *name); /* the same name in static memory; "none": no method has it */
/* The name of the method that is asked for; "": none, so the cheapest is chosen. */
static inline const char *flat_wanted(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    return call->method ? call->method : inst->forced;
}
static inline bool flat_is_wanted(const struct flat_instance *inst, const struct tutti_backend_call *call,
                                  const char *name)
{
    const char *wanted = flat_wanted(inst, call);
    return wanted[0] && strcmp(wanted, name) == 0;
}
/* Whether kind, bytes and facts say all that a choice needs. */
static inline bool flat_is_plain(const struct tutti_backend_call *call)
{
    const struct tutti_bind *bind = &call->bind;
    return !bind->v && !bind->scale && !bind->user && !call->method && !call->stride;
}
/* A leaf of a small gather stages its block and goes on: waiting for the root's post would cost more than a faster
 * method saves, except where ranks do not share CPUs and the root copies much. */
#define FLAT_EAGER_BYTES ((size_t)32 << 10)
static inline bool flat_is_eager(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    const size_t copies = inst->crowded ? 1 : inst->n - 1;
    return call->info.kind == TUTTI_GATHER && !call->bind.v &&
           copies * flat_block_bytes(inst, call) < FLAT_EAGER_BYTES &&
           (!flat_wanted(inst, call)[0] || flat_is_wanted(inst, call, "stage"));
}

/* ---- tiny calls (flat_tiny.c) ---- */
enum tutti_advance flat_tiny(struct tutti_backend *backend, const struct tutti_tiny *tiny);
size_t flat_tiny_below(const struct flat_instance *inst, enum tutti_kind kind);
void flat_wake(struct flat_area *area);
/* Wakes the ranks that sleep for what was just published. */
static inline void flat_notify(struct flat_instance *inst)
{
    struct flat_area *area = inst->areas[inst->me];
    if (inst->fences) atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&area->sleepers, memory_order_relaxed)) flat_wake(area);
}

/* ---- cross-memory copies (flat_attach.c) ---- */
void flat_attach_open(struct flat_instance *inst); /* the own memory is there */
/* Tries the peer, whose memory is mapped here and at `memory` over there; then publishes the verdict. */
void flat_attach_try(struct flat_instance *inst, uint32_t peer, uint64_t memory);
void flat_attach_publish(struct flat_instance *inst);
/* FLAT_ATTACHABLE if others can copy from and to what they touch of this rank's buffers, FLAT_HUGE if that lies in huge
 * pages; mapped: the other facts. */
uint64_t flat_attach_facts(struct flat_op *op, uint64_t mapped);
void flat_attach_touch(const struct flat_op *op); /* before a post after which others may write into the output */
#define FLAT_PAGE_BYTES ((size_t)4096)
#define FLAT_WINDOW_BYTES ((size_t)256 << 10) /* copied by one call: many pages, but still in the cache */
/* Copies between a buffer here and bytes from `at` on of the peer's send buffer (read) or receive buffer (result,
 * write). DONE, FAILED, or BLOCKED: then again from the start. Nothing is written to a peer that has given up. */
enum tutti_advance flat_attach_read(struct flat_op *op, uint32_t peer, void *here, size_t at, size_t bytes);
enum tutti_advance flat_attach_result(struct flat_op *op, uint32_t peer, void *here, size_t at, size_t bytes);
enum tutti_advance flat_attach_write(struct flat_op *op, uint32_t peer, const void *here, size_t at, size_t bytes);
/* Answers what peers ask of this rank in this operation. False: one of them has not read an answer yet. */
bool flat_serve(struct flat_op *op);
bool flat_is_asked(const struct flat_op *op); /* a peer waits for an answer of this rank */
bool flat_pages_huge(struct flat_instance *inst, const void *buffer, size_t bytes);

/* ---- operations (flat_op.c) ---- */
void flat_resume(struct tutti_backend *backend, struct tutti_backend_op *op);
enum tutti_status flat_begin(struct tutti_backend *backend, struct tutti_backend_op *op);
enum tutti_advance flat_run_inline(struct tutti_backend_op *op, const struct tutti_team *team);
void flat_overlay(struct tutti_backend *backend, uint32_t peer, struct tutti_board *board);
bool flat_sleep_begin(struct tutti_runner *runner, _Atomic uint32_t **word, uint32_t *expected);
void flat_sleep_end(struct tutti_runner *runner);
/* Says that this rank touches nothing any more: its peers need not wait for it. */
void flat_leave(struct flat_instance *inst);
/* The same of an operation that has failed after its post. Returns when no living peer touches its buffers any more, at
 * the latest after 300 ms. */
void flat_withdraw(struct flat_op *op);

#endif
