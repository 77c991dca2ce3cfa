/* SPDX-License-Identifier: BSD-3-Clause */
/* Shrink: the survivors of a communicator agree on who they are and make a new one over the same world, one epoch on.
 * The old one stays as it is; its late messages carry another identity. */
#include "comm/call/device.h"
#include "comm/life/life.h"
#include "comm/life/synchrony.h"

#include <stdio.h>
#include <string.h>

#define NAP_FIRST_NS (50 * UINT64_C(1000))
#define NAP_LONGEST_NS (2 * TUTTI_NS_PER_MS)
#define LOOK_EVERY_NS (50 * TUTTI_NS_PER_MS) /* between looks at who lives */
#define STOPPED_NS (200 * TUTTI_NS_PER_MS)   /* behind a deadline, for a process that is stopped */
#define SETTLE_NS (2 * TUTTI_NS_PER_S)       /* until who left its communicator is known to have ended */

/* ---- the agreement, through boards that stay readable after their writers died. Agreement on the survivors of a
 * communicator. Each member publishes the hash of the set that it proposes, and takes members out of its set as they
 * die. The lowest rank of its own set decides once all in the set propose the same. Its decision stands on its board
 * even if it dies then. So whoever comes after it either finds the decision or knows that there is none. This is so
 * short because control makes no mistakes about who lives: a dead process writes no more. ---- */

struct survivors {
    struct tutti_comm *comm;
    struct tutti_comm *larger; /* tutti_comm_next; the last slot of a set, behind the ranks: all go on in it */
    uint64_t id;               /* this agreement's */
    uint32_t board;            /* where this rank speaks of it: one of TUTTI_BOARD_AGREE */
    uint64_t deadline_ns, look_ns;
    uint32_t n_versions;  /* a rank only takes members out of its proposal; version v is the proposal after v losses */
    uint32_t *removed_at; /* slot -> first version without it, UINT32_MAX: still in */
    uint64_t *hashes;     /* each version's */
    /* tutti_comm_next alone: who says nothing is taken out, too, and a majority must be left. */
    uint64_t patience_ns, late_ns;   /* 0: there is no end of patience; when it is */
    uint64_t stopped_ns, settled_ns; /* a stopped process is late then, too; the set is not new */
    const bool *elders;              /* by slot; NULL: all are */
    uint32_t *accused, n_accused; /* slots that were taken out for their silence; all are told of them, one at a look */
    uint32_t n_looks;
    int32_t accuser; /* the rank that took this one out, -1 */
};

/* The agreement's use of a board: seq is how far its writer is, signature the set's hash, count its size. */
enum stage { PROPOSED = 1, DECIDED, MADE, NOT_MADE };

static struct tutti_control *control_of(const struct survivors *survivors)
{
    return survivors->comm->family->world.control;
}

/* Takes a board of this rank that no other agreement uses now: threads may shrink several communicators at once. The
 * boards are taken in turns, because other ranks may still be reading the last one. */
static enum tutti_status board_take(struct survivors *survivors)
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
            return tutti_fail(
                TUTTI_ERR_TIMEOUT, "comm_shrink on rank %d " TUTTI_SAYS_TIMED_OUT ": %d others are under way",
                (int)survivors->comm->rank, tutti_says_ms(survivors->comm->create_timeout_ns), TUTTI_BOARD_AGREE);
        tutti_sleep_ns(NAP_LONGEST_NS);
    }
}

static void board_give(const struct survivors *survivors)
{
    atomic_fetch_and(&survivors->comm->family->agreeing, ~(UINT32_C(1) << survivors->board));
}

static uint32_t current(const struct survivors *survivors)
{
    return survivors->n_versions - 1;
}

static bool survivors_has(const struct survivors *survivors, uint32_t version, uint32_t slot)
{
    return survivors->removed_at[slot] > version;
}

static uint32_t set_size(const struct survivors *survivors, uint32_t version)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) n += survivors_has(survivors, version, s);
    return n;
}

static bool is_larger(const struct survivors *survivors, uint32_t version)
{
    return survivors_has(survivors, version, (uint32_t)survivors->comm->size);
}

static void hash_version(struct survivors *survivors, uint32_t version)
{
    uint64_t hash = survivors->id;
    for (uint32_t s = 0; s <= (uint32_t)survivors->comm->size; s++)
        if (survivors_has(survivors, version, s)) hash = tutti_hash64(&s, sizeof(s), hash);
    survivors->hashes[version] = hash;
}

static void tell(const struct survivors *survivors, enum stage stage, uint64_t hash, uint64_t size, bool larger,
                 enum tutti_status status)
{
    struct tutti_board board = {
        .comm = survivors->id,
        .seq = stage,
        .completed = (uint64_t)(int64_t)status,
        .signature = hash,
        .count = size,
        .root = larger,
        .message_peer = -1,
        .peer = -1,
        .state = TUTTI_BOARD_IN_USE,
    };
    struct tutti_control *control = control_of(survivors);
    if (survivors->n_accused > 0)
        board.message_peer = (int32_t)survivors->accused[survivors->n_looks % survivors->n_accused];
    control->ops->publish(control, TUTTI_BOARD_SLOTS + survivors->board, &board);
}

static void publish(const struct survivors *survivors, enum stage stage, uint32_t version, enum tutti_status status)
{
    tell(survivors, stage, survivors->hashes[version], set_size(survivors, version), is_larger(survivors, version),
         status);
}

/* OK: the board of slot s. PENDING: control has not answered. AGAIN: it shows nothing of this agreement, or control
 * will never know. */
static enum tutti_status peek(const struct survivors *survivors, uint32_t slot, struct tutti_board *board)
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
static bool is_lost(const struct survivors *survivors, uint32_t slot)
{
    struct tutti_control *control = control_of(survivors);
    struct tutti_comm *comm = survivors->comm;
    uint32_t member = comm->members[slot];
    if (tutti_life_gone(control->ops->life(control, member))) return true;
    struct tutti_board board;
    return control->ops->peek(control, member, (uint32_t)(comm->id % TUTTI_BOARD_SLOTS), &board) == TUTTI_OK &&
           board.comm == comm->id && board.state == TUTTI_BOARD_LEFT;
}

static void survivors_fini(struct survivors *survivors)
{
    board_give(survivors);
    tutti_free(survivors->removed_at);
    tutti_free(survivors->hashes);
    tutti_free(survivors->accused);
}

static enum tutti_status survivors_init(struct survivors *survivors, struct tutti_comm *comm, const int32_t *exclude,
                                        size_t n_exclude, const struct tutti_next *next)
{
    const uint64_t patience_ns = next->patience_ns;
    size_t n = (size_t)comm->size;
    const uint64_t attempt = atomic_fetch_add(&comm->n_shrinks, 1);
    uint64_t facts[] = {comm->id, comm->epoch, attempt};
    memset(survivors, 0, sizeof(*survivors));
    survivors->comm = comm;
    survivors->larger = next->larger;
    survivors->elders = next->elders;
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
    if (!survivors->removed_at || !survivors->hashes || !survivors->accused) {
        tell(survivors, NOT_MADE, 0, 0, false, TUTTI_ERR_MEMORY); /* the others need not wait */
        survivors_fini(survivors);
        return tutti_fail(TUTTI_ERR_MEMORY, "comm_shrink on rank %d: out of memory", (int)comm->rank);
    }
    for (size_t s = 0; s < n; s++) survivors->removed_at[s] = UINT32_MAX;
    survivors->removed_at[n] = next->larger ? UINT32_MAX : 0;
    for (size_t i = 0; i < n_exclude; i++) survivors->removed_at[exclude[i]] = 0;
    survivors->n_versions = 1;
    hash_version(survivors, 0);
    return TUTTI_OK;
}

/* ---- who is taken out ---- */

static void take_out(struct survivors *survivors, uint32_t slot)
{
    survivors->removed_at[slot] = survivors->n_versions;
    hash_version(survivors, survivors->n_versions++);
    survivors->settled_ns = tutti_deadline_ns(SETTLE_NS);
}

static void accuse(struct survivors *survivors, uint32_t slot)
{
    if (slot >= (uint32_t)survivors->comm->size || !survivors_has(survivors, current(survivors), slot)) return;
    survivors->accused[survivors->n_accused++] = slot;
    take_out(survivors, slot);
}

static bool is_accused(const struct survivors *survivors, uint32_t slot)
{
    for (uint32_t i = 0; i < survivors->n_accused; i++)
        if (survivors->accused[i] == slot) return true;
    return false;
}

/* Its process is stopped, as the kernel says. */
static bool is_stopped(const struct survivors *survivors, uint32_t slot)
{
    struct tutti_board board;
    struct tutti_control *control = control_of(survivors);
    return control->ops->peek(control, survivors->comm->members[slot], TUTTI_BOARD_NTH, &board) == TUTTI_OK &&
           (board.process == 'T' || board.process == 't');
}

/* What slot s proposes: whom it took out for their silence, and whether it goes on in the larger one. */
static void hear(struct survivors *survivors, uint32_t s)
{
    struct tutti_board board;
    const bool there = peek(survivors, s, &board) == TUTTI_OK;
    const uint64_t now = tutti_now_ns();
    if (!there && (now >= survivors->late_ns || (now >= survivors->stopped_ns && is_stopped(survivors, s))))
        accuse(survivors, s);
    if (!there) return;
    if (board.message_peer == survivors->comm->rank) survivors->accuser = (int32_t)s;
    if (board.message_peer >= 0 && board.message_peer != survivors->comm->rank)
        accuse(survivors, (uint32_t)board.message_peer);
    if (board.root == 0 && is_larger(survivors, current(survivors)))
        take_out(survivors, (uint32_t)survivors->comm->size);
}

/* Looks at who lives, now and then; takes the lost out and proposes the rest. The first look and proposal come at once.
 */
static void look(struct survivors *survivors)
{
    uint64_t now = tutti_now_ns();
    if (now < survivors->look_ns) return;
    const bool first = survivors->look_ns == 0;
    const uint32_t before = survivors->n_versions;
    survivors->look_ns = now + LOOK_EVERY_NS;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        if (s == (uint32_t)survivors->comm->rank || !survivors_has(survivors, current(survivors), s)) continue;
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

static bool is_proved(const struct survivors *survivors, uint32_t slot)
{
    struct tutti_control *control = control_of(survivors);
    const uint32_t member = survivors->comm->members[slot];
    const enum tutti_life life = control->ops->life(control, member);
    if (life == TUTTI_LIFE_LEFT && survivors->elders) return false; /* it may have gone on in the view before */
    return tutti_life_gone(life) && (!control->ops->proved || control->ops->proved(control, member));
}

/* Whether those who are left may go on, among all or the elders; n_missing: members that may live. */
static bool is_majority_of(const struct survivors *survivors, const bool *elders, uint32_t *n_missing)
{
    bool lowest = false, found = false;
    uint32_t n = 0;
    *n_missing = 0;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        const bool here = survivors_has(survivors, current(survivors), s);
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
static bool is_majority(const struct survivors *survivors, uint32_t *n_missing)
{
    *n_missing = 0;
    if (!survivors->patience_ns) return true;
    if (survivors->elders && !is_majority_of(survivors, survivors->elders, n_missing)) return false;
    return is_majority_of(survivors, NULL, n_missing);
}

/* Whether any member, also one that died since, shows a decision. It is read after the look, so that no decision of a
 * dead member is missed. */
static enum tutti_status find_decision(const struct survivors *survivors, struct tutti_board *board, uint32_t *by)
{
    enum tutti_status result = TUTTI_AGAIN;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        if (!survivors_has(survivors, 0, s) || is_accused(survivors, s)) continue;
        const enum tutti_status status = peek(survivors, s, board);
        if (status == TUTTI_PENDING) result = status; /* it may be a decision */
        if (status != TUTTI_OK || board->seq < DECIDED) continue;
        *by = s;
        return TUTTI_OK;
    }
    return result;
}

static bool all_propose(const struct survivors *survivors, uint32_t *missing, bool *other)
{
    struct tutti_board board;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        if (s == (uint32_t)survivors->comm->rank || !survivors_has(survivors, current(survivors), s)) continue;
        bool there = peek(survivors, s, &board) == TUTTI_OK;
        if (there && board.signature == survivors->hashes[current(survivors)]) continue;
        *missing = s;
        *other = there;
        return false;
    }
    return true;
}

static bool is_leader(const struct survivors *survivors)
{
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->rank; s++)
        if (survivors_has(survivors, current(survivors), s)) return false;
    return true;
}

static enum tutti_status failed_there(const struct survivors *survivors, uint32_t by, enum tutti_status status)
{
    return tutti_fail(status, "comm_shrink on rank %d: rank %u failed: %s", (int)survivors->comm->rank, by,
                      tutti_status_text(status));
}

static enum tutti_status taken_out(const struct survivors *survivors, int32_t by)
{
    return tutti_fail(TUTTI_ERR_TIMEOUT,
                      "rank %d was stopped, late or cut off for so long that the others, rank %d among them, went on "
                      "without it: it must join anew (config.joins)",
                      (int)survivors->comm->rank, (int)by);
}

static enum tutti_status minority(const struct survivors *survivors, uint32_t n_missing)
{
    const uint32_t n = set_size(survivors, current(survivors));
    return tutti_fail(TUTTI_ERR_TIMEOUT,
                      "rank %d is cut off: it reaches %u of the %u members that may live, and the side of %s goes on: "
                      "this rank must join anew (config.joins)",
                      (int)survivors->comm->rank, n, n + n_missing,
                      n == n_missing ? "the lowest rank" : "the majority");
}

static enum tutti_status adopt(const struct survivors *survivors, const struct tutti_board *board, uint32_t by,
                               uint32_t *version)
{
    for (uint32_t v = 0; v < survivors->n_versions; v++) {
        if (survivors->hashes[v] != board->signature) continue;
        *version = v;
        return TUTTI_OK;
    }
    if (board->seq == NOT_MADE) return failed_there(survivors, by, (enum tutti_status)(int64_t)board->completed);
    if (survivors->patience_ns) return taken_out(survivors, (int32_t)by);
    return tutti_fail(TUTTI_ERR_ARGUMENT,
                      "comm_shrink on rank %d: rank %u decided on other survivors: all must leave out the same ranks",
                      (int)survivors->comm->rank, by);
}

static enum tutti_status too_late(const struct survivors *survivors)
{
    uint32_t missing = 0;
    bool other = false;
    const char *what = all_propose(survivors, &missing, &other) ? "did not decide"
                       : other                                  ? "left out other ranks, or sees other ranks dead"
                                                                : "did not call comm_shrink";
    if (all_propose(survivors, &missing, &other))
        for (missing = 0; !survivors_has(survivors, current(survivors), missing);) missing++;
    return tutti_fail(TUTTI_ERR_TIMEOUT,
                      "comm_shrink on rank %d " TUTTI_SAYS_TIMED_OUT
                      ": the survivors did not agree: rank %u %s (%u ranks are "
                      "proposed here)",
                      (int)survivors->comm->rank, tutti_says_ms(survivors->comm->create_timeout_ns), missing, what,
                      set_size(survivors, current(survivors)));
}

/* The leader's part. AGAIN: not yet. What stands in the way for too long is taken out, or ends this rank. */
static enum tutti_status decide(struct survivors *survivors, uint32_t *version)
{
    uint32_t missing = 0, n_missing = 0;
    bool other = false;
    const uint64_t now = tutti_now_ns();
    if (survivors->accuser >= 0) return taken_out(survivors, survivors->accuser);
    if (!all_propose(survivors, &missing, &other)) return TUTTI_AGAIN;
    if (!is_majority(survivors, &n_missing))
        return now >= survivors->settled_ns ? minority(survivors, n_missing) : TUTTI_AGAIN;
    if (!is_leader(survivors)) {
        for (missing = 0; !survivors_has(survivors, current(survivors), missing);) missing++;
        if (now >= survivors->late_ns && now - survivors->late_ns >= survivors->patience_ns)
            accuse(survivors, missing); /* it proposed, and does not decide: it is stopped */
        return TUTTI_AGAIN;
    }
    *version = current(survivors);
    publish(survivors, DECIDED, *version, TUTTI_OK);
    return TUTTI_OK;
}

static enum tutti_status survivors_agree(struct survivors *survivors, uint32_t *version)
{
    struct tutti_board board;
    uint32_t by = 0;
    for (uint64_t nap = NAP_FIRST_NS; tutti_now_ns() < survivors->deadline_ns;
         nap = nap < NAP_LONGEST_NS ? 2 * nap : nap) {
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
static enum stage word_of(const struct survivors *survivors, uint32_t s, enum tutti_status *status)
{
    struct tutti_board board;
    const enum tutti_status known = peek(survivors, s, &board);
    if (known != TUTTI_OK) return known == TUTTI_PENDING ? PROPOSED : MADE;
    *status = (enum tutti_status)(int64_t)board.completed;
    return (enum stage)board.seq;
}

static enum tutti_status survivors_confirm(struct survivors *survivors, uint32_t version, enum tutti_status made)
{
    publish(survivors, made < 0 ? NOT_MADE : MADE, version, made);
    if (made < 0) return made;
    uint64_t nap = NAP_FIRST_NS, look_ns = 0;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        if (s == (uint32_t)survivors->comm->rank || !survivors_has(survivors, version, s)) continue;
        enum tutti_status theirs = TUTTI_OK;
        enum stage stage;
        while ((stage = word_of(survivors, s, &theirs)) < MADE) {
            if (tutti_now_ns() >= survivors->late_ns) break; /* it is stopped: a later call says so */
            if (tutti_now_ns() >= survivors->deadline_ns)
                return tutti_fail(TUTTI_ERR_TIMEOUT,
                                  "comm_shrink on rank %d " TUTTI_SAYS_TIMED_OUT ": rank %u did not make its part",
                                  (int)survivors->comm->rank, tutti_says_ms(survivors->comm->create_timeout_ns), s);
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

/* ---- the new communicator ---- */

static enum tutti_status check_list(const struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude)
{
    if (n_exclude && !exclude)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_shrink on rank %d: exclude is NULL but n_exclude is %zu",
                          (int)comm->rank, n_exclude);
    for (size_t i = 0; i < n_exclude; i++) {
        if (exclude[i] < 0 || exclude[i] >= comm->size)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "comm_shrink on rank %d: exclude[%zu] is %d but the ranks are 0 to %d", (int)comm->rank,
                              i, (int)exclude[i], (int)comm->size - 1);
        if (exclude[i] == comm->rank)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_shrink on rank %d: exclude[%zu] is the caller itself",
                              (int)comm->rank, i);
    }
    return TUTTI_OK;
}

static enum tutti_status make(struct survivors *survivors, uint32_t version, struct tutti_comm **out)
{
    struct tutti_comm *comm = survivors->comm;
    if (is_larger(survivors, version)) {
        *out = survivors->larger;
        return TUTTI_OK;
    }
    uint32_t *slots = tutti_alloc_array((size_t)comm->size, sizeof(*slots));
    if (!slots) return tutti_fail(TUTTI_ERR_MEMORY, "comm_shrink on rank %d: out of memory", (int)comm->rank);
    uint32_t n = 0, me = 0;
    for (uint32_t s = 0; s < (uint32_t)comm->size; s++) {
        if (!survivors_has(survivors, version, s)) continue;
        if (s == (uint32_t)comm->rank) me = n;
        slots[n++] = s;
    }
    uint64_t facts[] = {survivors->id, survivors->hashes[version]};
    struct tutti_child child = {
        .slots = slots, .n = n, .me = me, .id = tutti_hash64(facts, sizeof(facts), 0) | 1, .epoch = comm->epoch + 1};
    enum tutti_status status = tutti_comm_new_child(comm, &child, out);
    tutti_free(slots);
    return status;
}

/* A survivor that dies now is one of the new communicator, which others may have already: all have it, and it fails. */
static enum tutti_status open_all(const struct tutti_comm *comm, struct tutti_comm *child)
{
    enum tutti_status status = tutti_comm_open_backend(child);
    if (status >= 0 && comm->device) status = tutti_comm_open_device(child, "comm_shrink", comm->device->ordinal, true);
    if (!tutti_status_is_gone(status)) return status; /* left: it saw a death */
    struct tutti_error why = *tutti_last_error();
    tutti_team_fail(child->team, &why, true);
    return TUTTI_OK;
}

static enum tutti_status shrink(struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude,
                                const struct tutti_next *next, struct tutti_comm **out)
{
    struct survivors survivors;
    struct tutti_comm *child = NULL, *larger = next->larger;
    uint32_t version = 0;
    TUTTI_TRY(survivors_init(&survivors, comm, exclude, n_exclude, next));
    enum tutti_status status = survivors_agree(&survivors, &version);
    if (status >= 0) {
        enum tutti_status made = make(&survivors, version, &child);
        status = survivors_confirm(&survivors, version, made);
        if (made < 0) status = made;
    }
    survivors_fini(&survivors);
    if (status >= 0 && child != larger) status = open_all(comm, child);
    if (status < 0) {
        struct tutti_error why = *tutti_last_error();
        if (child && child != larger) tutti_comm_discard(child);
        return tutti_fail_record(&why);
    }
    *out = child;
    if (child == larger) return TUTTI_OK;
    tutti_log(TUTTI_LOG_INFO, "comm_shrink on rank %d: %d of %d ranks go on", (int)comm->rank, (int)child->size,
              (int)comm->size);
    tutti_comm_ready(child);
    return TUTTI_OK;
}

static enum tutti_status enter_and_shrink(struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude,
                                          const struct tutti_next *next, struct tutti_comm **out)
{
    TUTTI_TRY(tutti_comm_enter(comm, "comm_shrink"));
    enum tutti_status status = check_list(comm, exclude, n_exclude);
    if (status >= 0) status = shrink(comm, exclude, n_exclude, next, out);
    tutti_comm_leave(comm);
    return status;
}

enum tutti_status tutti_comm_next(struct tutti_comm *comm, const struct tutti_next *next, struct tutti_comm **out)
{
    return enter_and_shrink(comm, NULL, 0, next, out);
}

enum tutti_status tutti_comm_shrink(struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude,
                                    struct tutti_comm **out)
{
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_shrink: out is NULL");
    TUTTI_TRY(tutti_call_alone("comm_shrink"));
    if (comm) TUTTI_TRY(tutti_survive_refuse(comm, "comm_shrink"));
    const struct tutti_next plain = {.larger = NULL};
    return enter_and_shrink(comm, exclude, n_exclude, &plain, out);
}
