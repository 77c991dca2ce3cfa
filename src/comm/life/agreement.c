/* SPDX-License-Identifier: BSD-3-Clause */
/* Agreement on the survivors: agreement.h. */
#include "comm/life/agreement.h"
#include "comm/life/survive.h"

#include <string.h>

#define NAP_FIRST_NS (50 * UINT64_C(1000))
#define NAP_LONGEST_NS (2 * TUTTI_NS_PER_MS)
#define LOOK_EVERY_NS (50 * TUTTI_NS_PER_MS) /* between looks at who lives */
#define STOPPED_NS (200 * TUTTI_NS_PER_MS)   /* behind a deadline, for a process that is stopped */
#define HEARD_NS (300 * TUTTI_NS_PER_MS)     /* until others have read why this rank goes */
#define SETTLE_NS (2 * TUTTI_NS_PER_S)       /* until who left its communicator is known to have ended */

/* The agreement's use of a board: seq is how far its writer is, signature the set's hash, count its size. */
enum { LARGER = 1, ASKED = 2 }; /* bits of root */
enum stage { PROPOSED = 1, DECIDED, MADE, NOT_MADE };

/* In sentences. */
static const char *call_of(const struct tutti_survivors *survivors)
{
    return survivors->patience_ns ? "the agreement on who is left" : "comm_shrink";
}

static int said(const struct tutti_survivors *survivors, uint32_t slot)
{
    return (int)tutti_said_rank(survivors->comm->team, slot);
}

static int mine(const struct tutti_survivors *survivors)
{
    return said(survivors, (uint32_t)survivors->comm->rank);
}

static struct tutti_control *control_of(const struct tutti_survivors *survivors)
{
    return survivors->comm->family->world.control;
}

/* Takes a board of this rank that no other agreement uses now: threads may shrink several communicators at once. The
 * boards are taken in turns, because other ranks may still be reading the last one. */
static enum tutti_status board_take(struct tutti_survivors *survivors)
{
    struct tutti_family *family = survivors->comm->family;
    uint32_t first = atomic_fetch_add(&family->n_agreed, 1) % TUTTI_BOARD_AGREE;
    for (;;) {
        for (uint32_t i = 0; i < TUTTI_BOARD_AGREE; i++) {
            uint32_t k = (first + i) % TUTTI_BOARD_AGREE, bit = UINT32_C(1) << k;
            if (atomic_fetch_or(&family->agreeing, bit) & bit) continue;
            survivors->board = k;
            return TUTTI_OK;
        }
        if (tutti_now_ns() >= survivors->deadline_ns)
            return tutti_fail(TUTTI_ERR_TIMEOUT, "%s on rank %d " TUTTI_SAYS_TIMED_OUT ": %d others are under way",
                              call_of(survivors), mine(survivors), tutti_says_ms(survivors->comm->create_timeout_ns),
                              TUTTI_BOARD_AGREE);
        tutti_sleep_ns(NAP_LONGEST_NS);
    }
}

static void board_give(const struct tutti_survivors *survivors)
{
    atomic_fetch_and(&survivors->comm->family->agreeing, ~(UINT32_C(1) << survivors->board));
}

static uint32_t current(const struct tutti_survivors *survivors)
{
    return survivors->n_versions - 1;
}

static uint32_t set_size(const struct tutti_survivors *survivors, uint32_t version)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) n += tutti_survivors_has(survivors, version, s);
    return n;
}

static void hash_version(struct tutti_survivors *survivors, uint32_t version)
{
    uint64_t hash = survivors->id;
    for (uint32_t s = 0; s <= (uint32_t)survivors->comm->size; s++)
        if (tutti_survivors_has(survivors, version, s)) hash = tutti_hash64(&s, sizeof(s), hash);
    survivors->hashes[version] = hash;
}

static void tell(const struct tutti_survivors *survivors, enum stage stage, uint64_t hash, uint64_t size, bool larger,
                 enum tutti_status status)
{
    struct tutti_board board = {
        .comm = survivors->id,
        .seq = stage,
        .completed = (uint64_t)(int64_t)status,
        .signature = hash,
        .count = size,
        .root = (larger ? LARGER : 0) | (survivors->was_asked ? ASKED : 0),
        .message_peer = -1,
        .peer = -1,
        .state = TUTTI_BOARD_IN_USE,
    };
    struct tutti_control *control = control_of(survivors);
    if (survivors->n_accused > 0)
        board.message_peer = (int32_t)survivors->accused[survivors->n_looks % survivors->n_accused];
    control->ops->publish(control, TUTTI_BOARD_SLOTS + survivors->board, &board);
}

static void publish(const struct tutti_survivors *survivors, enum stage stage, uint32_t version,
                    enum tutti_status status)
{
    tell(survivors, stage, survivors->hashes[version], set_size(survivors, version),
         tutti_survivors_is_larger(survivors, version), status);
}

/* OK: the board of slot s. PENDING: control has not answered. AGAIN: it shows nothing of this agreement, or control
 * will never know. */
static enum tutti_status peek(const struct tutti_survivors *survivors, uint32_t slot, struct tutti_board *board)
{
    enum tutti_status result = TUTTI_AGAIN, status;
    struct tutti_control *control = control_of(survivors);
    uint32_t member = survivors->comm->members[slot];
    for (uint32_t k = 0; k < TUTTI_BOARD_AGREE; k++) {
        status = control->ops->peek(control, member, TUTTI_BOARD_SLOTS + k, board);
        if (status == TUTTI_OK && board->comm == survivors->id && board->state == TUTTI_BOARD_IN_USE) return TUTTI_OK;
        if (status == TUTTI_PENDING) result = TUTTI_PENDING;
    }
    return result;
}

/* Dead, gone from the world, or gone from this communicator. */
static bool is_lost(const struct tutti_survivors *survivors, uint32_t slot)
{
    struct tutti_control *control = control_of(survivors);
    struct tutti_comm *comm = survivors->comm;
    uint32_t member = comm->members[slot];
    if (tutti_life_gone(control->ops->life(control, member))) return true;
    struct tutti_board board;
    return control->ops->peek(control, member, (uint32_t)(comm->id % TUTTI_BOARD_SLOTS), &board) == TUTTI_OK &&
           board.comm == comm->id && board.state == TUTTI_BOARD_LEFT;
}

void tutti_survivors_fini(struct tutti_survivors *survivors)
{
    board_give(survivors);
    tutti_free(survivors->removed_at);
    tutti_free(survivors->hashes);
    tutti_free(survivors->accused);
    tutti_free(survivors->ended);
}

enum tutti_status tutti_survivors_init(struct tutti_survivors *survivors, struct tutti_comm *comm,
                                       const int32_t *exclude, size_t n_exclude, const struct tutti_next *next)
{
    const uint64_t patience_ns = next->patience_ns;
    size_t n = (size_t)comm->size;
    const uint64_t attempt = atomic_fetch_add(&comm->n_shrinks, 1);
    uint64_t facts[] = {comm->id, comm->epoch, attempt};
    memset(survivors, 0, sizeof(*survivors));
    survivors->comm = comm;
    survivors->larger = next->larger;
    survivors->elders = next->elders;
    survivors->handle = next->handle;
    survivors->arbiter = next->arbiter;
    survivors->quorum = next->quorum || patience_ns;
    survivors->id = tutti_hash64(facts, sizeof(facts), 1) | 1;
    survivors->patience_ns = patience_ns;
    survivors->late_ns = patience_ns ? tutti_deadline_ns(patience_ns) : TUTTI_NEVER;
    survivors->stopped_ns = next->is_late ? tutti_deadline_ns(STOPPED_NS) : survivors->late_ns;
    survivors->deadline_ns = tutti_deadline_ns(comm->create_timeout_ns + 2 * patience_ns);
    survivors->settled_ns = tutti_deadline_ns(SETTLE_NS);
    survivors->accuser = -1;
    TUTTI_TRY(board_take(survivors));
    survivors->removed_at = tutti_alloc_array(n + 1, sizeof(*survivors->removed_at));
    survivors->hashes = tutti_alloc_array(n + 2, sizeof(*survivors->hashes));
    survivors->accused = tutti_alloc_array(n, sizeof(*survivors->accused));
    survivors->ended = tutti_alloc_array(n, sizeof(*survivors->ended));
    if (!survivors->removed_at || !survivors->hashes || !survivors->accused || !survivors->ended) {
        tell(survivors, NOT_MADE, 0, 0, false, TUTTI_ERR_MEMORY); /* the others need not wait */
        if (patience_ns) tutti_sleep_ns(HEARD_NS);
        tutti_survivors_fini(survivors);
        return tutti_fail(TUTTI_ERR_MEMORY, "%s on rank %d: out of memory", call_of(survivors), mine(survivors));
    }
    for (size_t s = 0; s < n; s++) survivors->removed_at[s] = UINT32_MAX;
    survivors->removed_at[n] = next->larger ? UINT32_MAX : 0;
    for (size_t i = 0; i < n_exclude; i++) survivors->removed_at[exclude[i]] = 0;
    survivors->n_versions = 1;
    hash_version(survivors, 0);
    return TUTTI_OK;
}

/* ---- who is taken out ---- */

static void take_out(struct tutti_survivors *survivors, uint32_t slot)
{
    survivors->removed_at[slot] = survivors->n_versions;
    hash_version(survivors, survivors->n_versions++);
    survivors->settled_ns = tutti_deadline_ns(SETTLE_NS);
}

static void accuse(struct tutti_survivors *survivors, uint32_t slot)
{
    if (slot >= (uint32_t)survivors->comm->size || !tutti_survivors_has(survivors, current(survivors), slot)) return;
    survivors->accused[survivors->n_accused++] = slot;
    take_out(survivors, slot);
}

static bool is_accused(const struct tutti_survivors *survivors, uint32_t slot)
{
    for (uint32_t i = 0; i < survivors->n_accused; i++)
        if (survivors->accused[i] == slot) return true;
    return false;
}

/* Its process is stopped, as the kernel says. */
static bool is_stopped(const struct tutti_survivors *survivors, uint32_t slot)
{
    struct tutti_board board;
    struct tutti_control *control = control_of(survivors);
    return control->ops->peek(control, survivors->comm->members[slot], TUTTI_BOARD_NTH, &board) == TUTTI_OK &&
           (board.process == 'T' || board.process == 't');
}

/* It goes: it has not decided, and adopts nothing. */
static bool has_no_memory(const struct tutti_board *board)
{
    return board->seq == NOT_MADE && (int64_t)board->completed == TUTTI_ERR_MEMORY && board->signature == 0;
}

/* What slot s proposes: whom it took out for their silence, and whether it goes on in the larger one. */
static void hear(struct tutti_survivors *survivors, uint32_t s)
{
    struct tutti_board board;
    const bool there = peek(survivors, s, &board) == TUTTI_OK;
    const uint64_t now = tutti_now_ns();
    if (!there && (now >= survivors->late_ns || (now >= survivors->stopped_ns && is_stopped(survivors, s))))
        accuse(survivors, s);
    if (!there) return;
    if (has_no_memory(&board)) {
        survivors->ended[s] = true;
        take_out(survivors, s);
        return;
    }
    if (board.message_peer == survivors->comm->rank) survivors->accuser = (int32_t)s;
    if (board.message_peer >= 0 && board.message_peer != survivors->comm->rank)
        accuse(survivors, (uint32_t)board.message_peer);
    if (!(board.root & LARGER) && tutti_survivors_is_larger(survivors, current(survivors)))
        take_out(survivors, (uint32_t)survivors->comm->size);
}

/* Looks at who lives, now and then; takes the lost out and proposes the rest. The first time at once. */
static void look(struct tutti_survivors *survivors)
{
    uint64_t now = tutti_now_ns();
    if (now < survivors->look_ns) return;
    const bool first = survivors->look_ns == 0;
    const uint32_t before = survivors->n_versions;
    survivors->look_ns = now + LOOK_EVERY_NS;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        if (s == (uint32_t)survivors->comm->rank || !tutti_survivors_has(survivors, current(survivors), s)) continue;
        if (is_lost(survivors, s))
            take_out(survivors, s);
        else if (survivors->patience_ns)
            hear(survivors, s);
    }
    survivors->n_looks++;
    if (survivors->n_versions > before && survivors->patience_ns)
        survivors->late_ns = tutti_deadline_ns(survivors->patience_ns); /* for those who hear of it */
    if (survivors->n_versions > before || first || survivors->n_accused > 0)
        publish(survivors, PROPOSED, current(survivors), TUTTI_OK);
}

static bool is_proved(const struct tutti_survivors *survivors, uint32_t slot)
{
    struct tutti_control *control = control_of(survivors);
    const uint32_t member = survivors->comm->members[slot];
    const enum tutti_life life = control->ops->life(control, member);
    if (survivors->ended[slot]) return true;
    if (life == TUTTI_LIFE_LEFT && survivors->elders) return false; /* it may have gone on in the view before */
    return tutti_life_gone(life) && (!control->ops->proved || control->ops->proved(control, member));
}

/* Whether those who are left may go on, among all or the elders; n_missing: members that may live. */
static bool is_majority_of(const struct tutti_survivors *survivors, const bool *elders, uint32_t *n_missing)
{
    bool lowest = false, found = false;
    uint32_t n = 0;
    *n_missing = 0;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        const bool here = tutti_survivors_has(survivors, current(survivors), s);
        if ((elders && !elders[s]) || (!here && is_proved(survivors, s))) continue;
        n += here;
        *n_missing += !here;
        if (!found) lowest = here;
        found = true;
    }
    return tutti_synchrony_may_go_on(n, *n_missing, lowest);
}

/* In a view of which it is not known that all have come into it, some may be in the one before: then the elders, who
 * were in that, must be more, too. */
static bool is_majority(const struct tutti_survivors *survivors, uint32_t *n_missing)
{
    *n_missing = 0;
    if (!survivors->quorum) return true;
    if (survivors->elders && !is_majority_of(survivors, survivors->elders, n_missing)) return false;
    return is_majority_of(survivors, NULL, n_missing);
}

/* Whether any member, also one that died since, shows a decision. It is read after the look, so that no decision of a
 * dead member is missed. */
static enum tutti_status find_decision(const struct tutti_survivors *survivors, struct tutti_board *board, uint32_t *by)
{
    enum tutti_status result = TUTTI_AGAIN;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        if (!tutti_survivors_has(survivors, 0, s) || is_accused(survivors, s)) continue;
        const enum tutti_status status = peek(survivors, s, board);
        if (status == TUTTI_PENDING) result = status; /* it may be a decision */
        if (status != TUTTI_OK || board->seq < DECIDED || (survivors->patience_ns && has_no_memory(board))) continue;
        *by = s;
        return TUTTI_OK;
    }
    return result;
}

static bool all_propose(const struct tutti_survivors *survivors, uint32_t *missing, bool *other)
{
    struct tutti_board board;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        if (s == (uint32_t)survivors->comm->rank || !tutti_survivors_has(survivors, current(survivors), s)) continue;
        bool there = peek(survivors, s, &board) == TUTTI_OK;
        if (there && board.signature == survivors->hashes[current(survivors)]) continue;
        *missing = s;
        *other = there;
        return false;
    }
    return true;
}

static bool is_leader(const struct tutti_survivors *survivors)
{
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->rank; s++)
        if (tutti_survivors_has(survivors, current(survivors), s)) return false;
    return true;
}

/* The reason of an abort is told beside the board, and may come a bit later. */
static enum tutti_status aborted_there(const struct tutti_survivors *survivors, uint32_t by)
{
    const uint64_t until_ns = tutti_deadline_ns(TUTTI_NS_PER_S);
    struct tutti_error why;
    for (; survivors->handle && tutti_now_ns() < until_ns; tutti_sleep_ns(NAP_LONGEST_NS))
        if (tutti_team_state(survivors->handle->team, &why) == TUTTI_ERR_ABORTED) return tutti_fail_record(&why);
    return tutti_fail(TUTTI_ERR_ABORTED, "rank %d aborted the communicator", said(survivors, by));
}

static enum tutti_status failed_there(const struct tutti_survivors *survivors, uint32_t by, enum tutti_status status)
{
    if (status == TUTTI_ERR_ABORTED) return aborted_there(survivors, by);
    return tutti_fail(status, "%s on rank %d: rank %d failed: %s", call_of(survivors), mine(survivors),
                      said(survivors, by), tutti_status_text(status));
}

static enum tutti_status taken_out(const struct tutti_survivors *survivors, int32_t by)
{
    return tutti_fail(TUTTI_ERR_TIMEOUT,
                      "rank %d was stopped, late or cut off for so long that the others, rank %d among them, went on "
                      "without it: it must join anew (config.joins)",
                      mine(survivors), said(survivors, (uint32_t)by));
}

/* why: NULL: there are too few. */
static enum tutti_status minority(const struct tutti_survivors *survivors, uint32_t n_missing, const char *why)
{
    const uint32_t n = set_size(survivors, current(survivors));
    char names[200] = "";
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++)
        if (!tutti_survivors_has(survivors, current(survivors), s) && !is_proved(survivors, s))
            tutti_append(names, sizeof(names), "%s%d", names[0] ? ", " : "", said(survivors, s));
    return tutti_fail(TUTTI_ERR_TIMEOUT,
                      "%srank %d is cut off: it reaches %u of the %u members that may live (others are silent, or "
                      "refuse%s: %s), and %s: %s",
                      survivors->patience_ns ? "" : "comm_shrink: ", mine(survivors), n, n + n_missing,
                      survivors->patience_ns ? "" : ", or are left out", names,
                      why              ? why
                      : n == n_missing ? "the side of the lowest rank goes on"
                                       : "the side of the majority goes on",
                      survivors->patience_ns ? "this rank must join anew (config.joins)"
                                             : "this rank must end (option quorum)");
}

static enum tutti_status adopt(struct tutti_survivors *survivors, const struct tutti_board *board, uint32_t by,
                               uint32_t *version)
{
    for (uint32_t v = 0; v < survivors->n_versions; v++) {
        if (survivors->hashes[v] != board->signature) continue;
        *version = v;
        survivors->was_asked = board->root & ASKED;
        return TUTTI_OK;
    }
    const bool lost = board->seq == NOT_MADE && (int64_t)board->completed == TUTTI_ERR_TIMEOUT;
    uint32_t n_missing = 0;
    if (lost && survivors->arbiter) {
        (void)is_majority(survivors, &n_missing);
        return minority(survivors, n_missing, "the store does not let its side go on");
    }
    if (board->seq == NOT_MADE) return failed_there(survivors, by, (enum tutti_status)(int64_t)board->completed);
    if (survivors->patience_ns) return taken_out(survivors, (int32_t)by);
    return tutti_fail(TUTTI_ERR_ARGUMENT,
                      "%s on rank %d: rank %d decided on other survivors: all must leave out the same ranks",
                      call_of(survivors), mine(survivors), said(survivors, by));
}

static enum tutti_status too_late(const struct tutti_survivors *survivors)
{
    uint32_t missing = 0;
    bool other = false;
    const bool all = all_propose(survivors, &missing, &other);
    const char *what = all     ? "did not decide"
                       : other ? "left out other ranks, or sees other ranks dead"
                               : "did not call it";
    if (all)
        for (missing = 0; !tutti_survivors_has(survivors, current(survivors), missing);) missing++;
    return tutti_fail(TUTTI_ERR_TIMEOUT,
                      "%s on rank %d " TUTTI_SAYS_TIMED_OUT ": the survivors did not agree: rank %d %s (%u ranks are "
                      "proposed here)",
                      call_of(survivors), mine(survivors), tutti_says_ms(survivors->comm->create_timeout_ns),
                      said(survivors, missing), what, set_size(survivors, current(survivors)));
}

/* OK: this side goes on. */
static enum tutti_status ask_arbiter(struct tutti_survivors *survivors, uint32_t n_missing)
{
    const struct tutti_arbiter *arbiter = survivors->arbiter;
    bool won = true;
    enum tutti_status status = TUTTI_OK;
    const struct tutti_config *config = arbiter->config;
    if (config)
        status = tutti_door_open(arbiter->door, config, tutti_deadline_ns(config->number[TUTTI_OPT_host_timeout]));
    if (status >= 0 && arbiter->asks_before)
        status = tutti_door_win(arbiter->door, arbiter->comm, arbiter->epoch - 1, &won);
    if (status >= 0 && won) status = tutti_door_win(arbiter->door, arbiter->comm, arbiter->epoch, &won);
    survivors->was_asked = status >= 0 && won;
    if (survivors->was_asked) return TUTTI_OK;
    tell(survivors, NOT_MADE, 0, 0, false, TUTTI_ERR_TIMEOUT);
    tutti_sleep_ns(HEARD_NS);
    return minority(survivors, n_missing,
                    status < 0 ? "the store, which decides, can not be asked" : "the store lets another side go on");
}

/* The leader's part. AGAIN: not yet. What stands in the way for too long is taken out, or ends this rank. */
static enum tutti_status decide(struct tutti_survivors *survivors, uint32_t *version)
{
    uint32_t missing = 0, n_missing = 0;
    bool other = false;
    const uint64_t now = tutti_now_ns();
    if (survivors->accuser >= 0) return taken_out(survivors, survivors->accuser);
    if (!all_propose(survivors, &missing, &other)) return TUTTI_AGAIN;
    const bool more = is_majority(survivors, &n_missing);
    if (!more && now < survivors->settled_ns) return TUTTI_AGAIN; /* the majority may ask an arbiter first */
    if (!more && !survivors->arbiter) return minority(survivors, n_missing, NULL);
    if (!is_leader(survivors)) {
        for (missing = 0; !tutti_survivors_has(survivors, current(survivors), missing);) missing++;
        if (now >= survivors->late_ns && now - survivors->late_ns >= survivors->patience_ns)
            accuse(survivors, missing); /* it proposed, and does not decide: it is stopped */
        return TUTTI_AGAIN;
    }
    if (survivors->arbiter && n_missing > 0) TUTTI_TRY(ask_arbiter(survivors, n_missing));
    *version = current(survivors);
    publish(survivors, DECIDED, *version, TUTTI_OK);
    return TUTTI_OK;
}

/* An abort of the handle, here or elsewhere: the others need not wait. */
static enum tutti_status look_for_abort(const struct tutti_survivors *survivors)
{
    struct tutti_error why;
    if (!survivors->handle || tutti_team_state(survivors->handle->team, &why) != TUTTI_ERR_ABORTED) return TUTTI_OK;
    tell(survivors, NOT_MADE, 0, 0, false, TUTTI_ERR_ABORTED);
    return tutti_fail_record(&why);
}

enum tutti_status tutti_survivors_agree(struct tutti_survivors *survivors, uint32_t *version)
{
    struct tutti_board board;
    uint32_t by = 0;
    for (uint64_t nap = NAP_FIRST_NS; tutti_now_ns() < survivors->deadline_ns;
         nap = nap < NAP_LONGEST_NS ? 2 * nap : nap) {
        TUTTI_TRY(look_for_abort(survivors));
        look(survivors);
        const enum tutti_status found = find_decision(survivors, &board, &by);
        if (found == TUTTI_OK) return adopt(survivors, &board, by, version);
        if (found == TUTTI_AGAIN) {
            const enum tutti_status status = decide(survivors, version);
            if (status != TUTTI_AGAIN) return status;
        }
        tutti_sleep_ns(nap);
    }
    return too_late(survivors);
}

/* What slot s says after the decision: PROPOSED while it has not said. A board that was taken over belongs to one that
 * went on. */
static enum stage word_of(const struct tutti_survivors *survivors, uint32_t s, enum tutti_status *status)
{
    struct tutti_board board;
    const enum tutti_status known = peek(survivors, s, &board);
    if (known != TUTTI_OK) return known == TUTTI_PENDING ? PROPOSED : MADE;
    *status = (enum tutti_status)(int64_t)board.completed;
    return (enum stage)board.seq;
}

enum tutti_status tutti_survivors_confirm(struct tutti_survivors *survivors, uint32_t version, enum tutti_status made)
{
    publish(survivors, made < 0 ? NOT_MADE : MADE, version, made);
    if (made < 0 && survivors->patience_ns) tutti_sleep_ns(HEARD_NS);
    if (made < 0) return made;
    uint64_t nap = NAP_FIRST_NS, look_ns = 0;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        if (s == (uint32_t)survivors->comm->rank || !tutti_survivors_has(survivors, version, s)) continue;
        enum tutti_status theirs = TUTTI_OK;
        enum stage stage;
        while ((stage = word_of(survivors, s, &theirs)) < MADE) {
            if (tutti_now_ns() >= survivors->late_ns) break; /* it is stopped: a later call says so */
            if (tutti_now_ns() >= survivors->deadline_ns)
                return tutti_fail(TUTTI_ERR_TIMEOUT,
                                  "%s on rank %d " TUTTI_SAYS_TIMED_OUT ": rank %d did not make its part",
                                  call_of(survivors), mine(survivors),
                                  tutti_says_ms(survivors->comm->create_timeout_ns), said(survivors, s));
            if (tutti_now_ns() >= look_ns) {
                if (is_lost(survivors, s)) break; /* a later call says so */
                look_ns = tutti_now_ns() + LOOK_EVERY_NS;
            }
            tutti_sleep_ns(nap);
            nap = nap < NAP_LONGEST_NS ? 2 * nap : nap;
        }
        if (stage == NOT_MADE) return failed_there(survivors, s, theirs);
    }
    return TUTTI_OK;
}
