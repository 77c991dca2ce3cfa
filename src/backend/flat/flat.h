/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_FLAT_FLAT_H
#define TUTTI_BACKEND_FLAT_FLAT_H

/* The back end flat: collectives between the ranks of one host through memory that all of them map. Begin here, then
 * read flat_op.c (a call from begin to end), flat_methods.c (the table of methods), and one file of methods.
 *
 * Every rank has an *area* that it alone writes; others read it. All waiting is for a word of a peer's area to reach a
 * value: words only grow, so a method is right if each read follows, through such waits, the write it wants, and each
 * write the reads of what it replaces.
 *
 * An *instance* is the areas of one group of ranks; it runs one *operation* at a time, in the order of the calls,
 * numbered from 1. A *method* is a way to carry out a kind of collective. It is a resumable function: straight-line
 * code that returns BLOCKED where it would have to wait and goes on from there (FLAT_BEGIN, FLAT_WAIT); what it must
 * remember between two waits is in the operation. Where buffers are, and how many steps there are, differs from kind to
 * kind; how ranks wait for one another does not. So there is one walk for each way of moving data, and a row a kind of
 * what happens in a step: lines (flat_line.c), rounds of staging (flat_rounds.c), staging from rank to rank
 * (flat_relay.c), moves and folds straight between buffers (flat_move.c, flat_fold.c).
 *
 * Reuse. Posts and lines rotate over FLAT_DEPTH operations: number k may be written when all ranks have finished k -
 * FLAT_DEPTH (flat_room). Staging rotates over FLAT_SLOTS slots of FLAT_PARTS parts. A round takes as many parts as it
 * needs, a power of two from a multiple of it on, so that who gives little runs far ahead of who takes. Parts are
 * numbered through all operations of the instance: one may be written when all ranks have read what was there before,
 * all slots' parts earlier (flat_round_room). */

#include "backend/flat/flat_instance.h"

/* ---- resumable functions. No local variable survives a wait. ---- */
#define FLAT_BEGIN(at)                                                                                                 \
    uint32_t *const at_ = &(at);                                                                                       \
    switch (*at_) {                                                                                                    \
    case 0:
#define FLAT_WAIT(condition)                                                                                           \
    do {                                                                                                               \
        *at_ = __LINE__;                                                                                               \
        __attribute__((fallthrough));                                                                                  \
    case __LINE__:                                                                                                     \
        if (!(condition)) return TUTTI_RUN_BLOCKED;                                                                    \
    } while (0)
/* A step that may have to be begun again. */
#define FLAT_STEP(step)                                                                                                \
    do {                                                                                                               \
        *at_ = __LINE__;                                                                                               \
        __attribute__((fallthrough));                                                                                  \
    case __LINE__:;                                                                                                    \
        enum tutti_advance run_ = (step);                                                                              \
        if (run_ != TUTTI_RUN_DONE) return run_;                                                                       \
    } while (0)
/* Lets others run: bytes were moved for a while. */
#define FLAT_PAUSE()                                                                                                   \
    do {                                                                                                               \
        *at_ = __LINE__;                                                                                               \
        return TUTTI_RUN_MOVED;                                                                                        \
    case __LINE__:;                                                                                                    \
    } while (0)
#define FLAT_END                                                                                                       \
    }                                                                                                                  \
    *at_ = 0;                                                                                                          \
    return TUTTI_RUN_DONE

/* ---- waiting (flat_wait.c): true at once or within op->spins; else false, and op->awaited says whom for ---- */
bool flat_spin(struct flat_op *op, uint32_t peer, const _Atomic uint64_t *word, uint64_t value);
bool flat_spin_word(struct flat_op *op, uint32_t peer, const _Atomic uint64_t *word);
/* What ranks show one another of a call, and compare: its number, and a hash of what it is and of the calls before it
 * in which not all wait for all. So whoever took itself for the root there is found out by the next ones. */
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
static inline struct flat_post *flat_post_of(const struct flat_op *op, uint32_t peer)
{
    return &op->inst->areas[peer]->posts[op->number % FLAT_DEPTH];
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
/* Of the lines that are about to be waited for one after the other, where ranks are many: they are asked for at once.
 */
void flat_posts_ahead(const struct flat_op *op);
void flat_flags_ahead(const struct flat_op *op, enum flat_flag_name flag);
/* All ranks have left the slots of this operation's number. */
bool flat_room(struct flat_op *op);
/* All other ranks have completed this operation: nobody touches this rank's buffers any more. */
bool flat_left(struct flat_op *op);
/* All ranks have read what round `round` of this operation replaces in the staging memory. */
bool flat_round_room(struct flat_op *op, uint64_t round);
/* A round that all ranks are known to have read. */
static inline void flat_read_by_all(struct flat_instance *inst, uint64_t round)
{
    if (round > inst->read_by_all) inst->read_by_all = round;
}

/* ---- telling ---- */
/* Publishes a value; what was written before is visible to who sees it. Wakes sleepers. */
void flat_publish(struct flat_op *op, _Atomic uint64_t *word, uint64_t value);
static inline void flat_raise(struct flat_op *op, enum flat_flag_name flag, uint64_t value)
{
    flat_publish(op, &op->inst->areas[op->inst->me]->flags[flag].n, value);
}
/* One more round of this operation is staged. */
void flat_stage(struct flat_op *op);
/* This rank has read all that it wants of the first n rounds of this operation. */
void flat_has_read(struct flat_op *op, uint64_t n);

/* ---- posts (flat_post.c) ---- */
/* What this rank's post says of its buffers, and where they are. */
uint64_t flat_facts(const struct flat_op *op, _Atomic uint64_t *send, _Atomic uint64_t *recv);
void flat_post_write(struct flat_op *op, uint64_t facts);
/* Address here of a part of a peer's buffer, by its post, which says that it is mapped. NULL: it can not be mapped. */
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
/* The bytes of the largest block of a call, as far as all ranks know it: SIZE_MAX if they do not (all_to_all_v,
 * gather_v, scatter_v). */
size_t flat_block_bytes(const struct flat_instance *inst, const struct tutti_backend_call *call);
/* Fills op->tables and op->bytes of a v form; nothing where it knows its own block alone. MEMORY. */
enum tutti_status flat_blocks_copy(struct flat_op *op);
/* Of gather_v and scatter_v through mapped memory: the root tells all where their blocks are, before its post; a leaf
 * then asks for its own. */
#define FLAT_TOLD_RANKS (FLAT_LEVELS * (FLAT_LINE_MAX / (2 * sizeof(uint64_t)))) /* of at most so many */
void flat_blocks_tell(struct flat_op *op);
size_t flat_block_told(const struct flat_op *op, size_t *at);
/* all_to_all_v, of which a rank knows but its own row and column: it puts where its blocks are, and their bytes, into
 * round 0 of its staging memory, from which the peers read where theirs lies. */
void flat_table_put(struct flat_op *op);
size_t flat_table_place(const struct flat_op *op, uint32_t peer); /* of the own block in the peer's send buffer */
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

/* The peer that has digit d where this rank has its own in the mixed-radix number of ranks: at a level of the butterfly
 * whose lower levels have `stride` ranks in all. */
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

/* Whom a rank takes a broadcast from: its leader, of which the root's is the root. And who gives: the root, and
 * leaders; the last group may be a leader alone. */
static inline uint32_t flat_giver(const struct flat_op *op, uint32_t rank)
{
    uint32_t leader = flat_leader(op, rank);
    return leader == rank ? flat_root(op) : leader;
}
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
/* The last of many ranks of a chain is not to wait long for the first; but where they share CPUs pieces cost turns. */
static inline uint32_t flat_chain_pieces(const struct flat_instance *inst)
{
    return inst->crowded || inst->n < 4 ? 2 : inst->n / 2;
}
static inline bool flat_takes_own(const struct flat_op *op)
{
    return op->call.info.kind == TUTTI_SCAN;
}

/* ---- barrier inside an operation: DONE when all ranks have come; resumable through op->meet_at ---- */
enum tutti_advance flat_meet(struct flat_op *op);
#define FLAT_MEET(op) FLAT_WAIT(flat_meet(op) == TUTTI_RUN_DONE)

/* ---- staging ---- */
#define FLAT_ALL_PARTS (FLAT_SLOTS * FLAT_PARTS)
/* The part with which a round of this operation begins; also: as many parts came before it. */
static inline uint64_t flat_number(const struct flat_op *op, uint64_t round)
{
    return op->base + round * op->width;
}
/* Rounds of this operation take so many bytes of a slot: sets op->width and op->base. */
void flat_rounds_place(struct flat_op *op, size_t bytes);
/* Of round `round` of this operation, counted from 0: what the peer staged, and what it reduced. */
static inline unsigned char *flat_slot_in(const struct flat_op *op, uint32_t peer, uint64_t round)
{
    return op->inst->staging[peer] + flat_number(op, round) % FLAT_ALL_PARTS * (op->inst->chunk / FLAT_PARTS);
}
static inline unsigned char *flat_slot_out(const struct flat_op *op, uint32_t peer, uint64_t round)
{
    return flat_slot_in(op, peer, round) + FLAT_SLOTS * op->inst->chunk;
}

/* Rounds of blocks, of which a slot holds a piece of each of n: sets op->piece and op->n_rounds. Several rounds, so
 * that what ranks do in one overlaps with the next, but none of tiny pieces. */
void flat_cut(struct flat_op *op, size_t block, uint32_t n);
/* The same of one block that ranks hand on, in n pieces at least, so that what they do one after another begins soon.
 */
void flat_cut_small(struct flat_op *op, size_t block, uint32_t n);
/* The same in as few rounds as slots allow, all alike: where all ranks copy in and out at once, nothing overlaps. */
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
/* The i-th rank after this one: where all begin with their own neighbour, none is asked by all at once. */
static inline uint32_t flat_after(const struct flat_instance *inst, uint32_t i)
{
    uint32_t r = inst->me + i;
    return r < inst->n ? r : r - inst->n;
}

/* ---- lines (flat_line.c): level 0 is what a rank gives, the others are partial results of butterflies ---- */
#define FLAT_LINE_ROOM (FLAT_LINE_MAX + 2 * TUTTI_CACHE_LINE)
static inline uint32_t flat_lines_of(size_t bytes)
{
    return (uint32_t)((bytes + 8 + FLAT_LINE_BYTES - 1) / FLAT_LINE_BYTES);
}
void flat_lines_put(struct flat_op *op, uint32_t level, const unsigned char *data, size_t bytes);
/* Whether what the peer gives is there; after that, some bytes of it. */
bool flat_lines_there(struct flat_op *op, uint32_t peer, uint32_t level);
void flat_line_ahead(const struct flat_op *op, uint32_t peer, uint32_t level); /* see flat_posts_ahead */
void flat_lines_part(const struct flat_op *op, uint32_t peer, uint32_t level, size_t at, size_t bytes,
                     unsigned char *out);

/* ---- bytes (flat_data.c) ---- */
/* dst = src, and, for a reduction that scales its inputs, scaled. */
void flat_take(const struct flat_op *op, void *dst, const void *src, size_t bytes);
/* Copies; past: past the caches (a fence is due before it is told: flat_fence). */
void flat_copy(void *dst, const void *src, size_t bytes, bool past);
void flat_fence(void);
/* Whether what this rank writes of the results is written past the caches: op->past. */
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

/* ---- methods (flat_methods.c): one table; the first of a kind that fits is taken where nothing else tells ---- */
extern const struct flat_method flat_methods[];
extern const size_t flat_n_methods;
enum tutti_status flat_options_check(const struct tutti_config *options); /* the option flat is a method */
/* Reads what `tutti tune` found on this host; the mark tells members whether they read the same, 0: nothing. */
enum tutti_status flat_found_open(struct flat_instance *inst, const struct tutti_config *options,
                                  const struct flat_method *methods, size_t n, uint64_t *mark);
void flat_found_close(struct flat_instance *inst);
#define FLAT_METHODS_MOST 64
/* The cheapest method that needs nothing; cost_ns may be NULL. NULL: none fits. */
const struct flat_method *flat_choose(const struct flat_instance *inst, const struct tutti_backend_call *call,
                                      double *cost_ns);
/* `plain`, or what the posts allow instead of it: the method that is asked for, else the cheapest. */
const struct flat_method *flat_choose_by_facts(const struct flat_instance *inst, const struct tutti_backend_call *call,
                                               const struct flat_method *plain, uint64_t facts);
/* Four classes an octave; the least size of a class. */
static inline uint32_t flat_size_class(size_t bytes)
{
    if (bytes < 4) return (uint32_t)bytes;
    uint32_t log = 63 - (uint32_t)__builtin_clzll(bytes), c = 4 * (log - 1) + (uint32_t)(bytes >> (log - 2) & 3);
    return c < FLAT_SIZE_CLASSES ? c : FLAT_SIZE_CLASSES - 1;
}
static inline size_t flat_size_least(uint32_t c)
{
    return c < 4 ? c : (size_t)(4 + c % 4) << (c / 4 - 1);
}
/* The same by that table where it applies; bytes: of a block. */
const struct flat_method *flat_method_of(const struct flat_instance *inst, const struct tutti_backend_call *call,
                                         size_t bytes);
void flat_choose_plain(struct flat_instance *inst); /* fills inst->plain and inst->others */
/* The first of this name; NULL: none. */
const struct flat_method *flat_method_named(enum tutti_kind kind, const char *name);
const char *flat_lasting(const char *name); /* a method's name that outlasts the caller's: it is asked for once more */
/* The name of the methods that are asked for; "": none, the cheapest is taken. */
static inline const char *flat_wanted(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    return call->method ? call->method : inst->forced;
}
/* Whether nothing but kind, facts and bytes tells calls apart: those whose choices are kept. */
static inline bool flat_is_plain(const struct tutti_backend_call *call)
{
    const struct tutti_bind *bind = &call->bind;
    return !bind->v && !bind->scale && !bind->user && !call->method;
}
static inline bool flat_is_named(const struct flat_instance *inst, const struct tutti_backend_call *call,
                                 const char *name)
{
    const char *wanted = flat_wanted(inst, call);
    return wanted[0] && strcmp(wanted, name) == 0;
}

/* A leaf of a small gather stages and goes on, whatever the root's buffer is: to wait for its post costs more than any
 * way that it allows saves, unless ranks have CPUs of their own and the root would copy much. */
#define FLAT_EAGER_BYTES ((size_t)32 << 10)
static inline bool flat_is_eager(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    const size_t copies = inst->crowded ? 1 : inst->n - 1;
    return call->info.kind == TUTTI_GATHER && !call->bind.v &&
           copies * flat_block_bytes(inst, call) < FLAT_EAGER_BYTES &&
           (!flat_wanted(inst, call)[0] || flat_is_named(inst, call, "stage"));
}

/* ---- tiny calls (flat_tiny.c) ---- */
enum tutti_advance flat_tiny(struct tutti_backend *backend, const struct tutti_tiny *tiny);
size_t flat_tiny_below(const struct flat_instance *inst, enum tutti_kind kind);
/* Wakes who sleeps for what was just published. */
void flat_wake(struct flat_area *area);
static inline void flat_told(struct flat_instance *inst)
{
    struct flat_area *area = inst->areas[inst->me];
    if (inst->fences) atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&area->sleepers, memory_order_relaxed)) flat_wake(area);
}

/* ---- cross-memory copies (flat_attach.c, flat_pages.c) ---- */
void flat_attach_open(struct flat_instance *inst); /* the own memory is there */
/* Tries the peer, whose memory is mapped here and at `memory` over there; then tells the others. */
void flat_attach_try(struct flat_instance *inst, uint32_t peer, uint64_t memory);
void flat_attach_tell(struct flat_instance *inst);
/* FLAT_ATTACHABLE if others can copy from and to what they would touch of this rank's buffers, FLAT_HUGE if that lies
 * in huge pages; mapped: what else is known of them. */
uint64_t flat_attach_fact(const struct flat_op *op, uint64_t mapped);
void flat_attach_touch(const struct flat_op *op); /* before a post after which others may push into the output */
#define FLAT_PAGE_BYTES ((size_t)4096)
#define FLAT_WINDOW_BYTES ((size_t)256 << 10) /* copied by one call: many pages, but still in the cache */
/* Between a buffer here and bytes from `at` on of the peer's send or receive buffer. DONE, FAILED, or BLOCKED: then
 * again from the start. */
enum tutti_advance flat_attach_read(struct flat_op *op, uint32_t peer, void *here, size_t at, size_t bytes);
enum tutti_advance flat_attach_write(struct flat_op *op, uint32_t peer, const void *here, size_t at, size_t bytes);
/* What the kernel refuses in the middle, the peer does (flat_ask.c): the same for that copy, by its help. */
enum tutti_advance flat_ask(struct flat_op *op, uint32_t peer, unsigned char *here, size_t at, size_t bytes,
                            bool write);
/* Answers what peers ask of this rank in this operation. False: one of them has not taken an answer yet. */
bool flat_serve(struct flat_op *op);
/* The word of the ask of a rank that waits for this one's answer; 0: there is none. */
static inline uint64_t flat_asked(const struct flat_op *op, uint32_t rank)
{
    const struct flat_instance *inst = op->inst;
    const struct flat_ask *ask = &inst->areas[rank]->ask;
    const uint64_t word = atomic_load_explicit(&ask->word, memory_order_acquire);
    if (word % FLAT_ASK_PEER != inst->me || rank == inst->me) return 0;
    if (word <= atomic_load_explicit(&inst->areas[inst->me]->answered[rank], memory_order_relaxed)) return 0;
    return atomic_load_explicit(&ask->operation, memory_order_relaxed) == op->number ? word : 0;
}
/* FLAT_MEET, and the wait of a root, where peers may ask. */
#define FLAT_SERVE_UNTIL(condition) FLAT_WAIT((condition) || (flat_serve(op), false))
/* The page map of this process, below 0 if there is none. */
int flat_pages_open(struct tutti_backend_host *host);
bool flat_pages_huge(struct flat_instance *inst, const void *buffer, size_t bytes);

size_t flat_candidates(const struct tutti_backend *backend, const struct tutti_backend_call *call,
                       struct tutti_backend_candidate *out, size_t capacity);

/* ---- operations (flat_op.c) ---- */
void flat_resume(struct tutti_backend *backend, struct tutti_backend_op *op);
enum tutti_status flat_begin(struct tutti_backend *backend, struct tutti_backend_op *op);
enum tutti_advance flat_hurry(struct tutti_backend_op *op, const struct tutti_team *team);
void flat_overlay(struct tutti_backend *backend, uint32_t peer, struct tutti_board *board);
bool flat_sleep_begin(struct tutti_runner *runner, _Atomic uint32_t **word, uint32_t *expected);
void flat_sleep_end(struct tutti_runner *runner);
/* This rank reads nothing any more: its peers need not wait for it. */
void flat_leave(struct flat_instance *inst);
/* The same of an operation that has failed after its post; returns when no living peer touches its buffers any more. */
void flat_withdraw(struct flat_op *op);

#endif
