/* SPDX-License-Identifier: BSD-3-Clause */
/* Shrink: the survivors of a communicator agree on who they are and make a new one over the same world, one epoch on.
 * The old one stays as it is; its late messages carry another identity. */
#include "comm/call/device.h"
#include "comm/life/life.h"

#include <stdio.h>
#include <string.h>

#define NAP_FIRST_NS (50 * UINT64_C(1000))
#define NAP_LONGEST_NS (2 * TUTTI_NS_PER_MS)
#define LOOK_EVERY_NS (50 * TUTTI_NS_PER_MS) /* between looks at who lives */

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
        .peer = -1,
        .state = TUTTI_BOARD_IN_USE,
    };
    struct tutti_control *control = control_of(survivors);
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
}

static enum tutti_status survivors_init(struct survivors *survivors, struct tutti_comm *comm, const int32_t *exclude,
                                        size_t n_exclude, struct tutti_comm *larger)
{
    size_t n = (size_t)comm->size;
    const uint64_t attempt = atomic_fetch_add(&comm->n_shrinks, 1);
    uint64_t facts[] = {comm->id, comm->epoch, attempt};
    memset(survivors, 0, sizeof(*survivors));
    survivors->comm = comm;
    survivors->larger = larger;
    survivors->id = tutti_hash64(facts, sizeof(facts), 1) | 1;
    survivors->deadline_ns = tutti_deadline_ns(comm->create_timeout_ns);
    TUTTI_TRY(board_take(survivors));
    survivors->removed_at = tutti_alloc_array(n + 1, sizeof(*survivors->removed_at));
    survivors->hashes = tutti_alloc_array(n + 2, sizeof(*survivors->hashes));
    if (!survivors->removed_at || !survivors->hashes) {
        tell(survivors, NOT_MADE, 0, 0, false, TUTTI_ERR_MEMORY); /* the others need not wait */
        survivors_fini(survivors);
        return tutti_fail(TUTTI_ERR_MEMORY, "comm_shrink on rank %d: out of memory", (int)comm->rank);
    }
    for (size_t s = 0; s < n; s++) survivors->removed_at[s] = UINT32_MAX;
    survivors->removed_at[n] = larger ? UINT32_MAX : 0;
    for (size_t i = 0; i < n_exclude; i++) survivors->removed_at[exclude[i]] = 0;
    survivors->n_versions = 1;
    hash_version(survivors, 0);
    return TUTTI_OK;
}

/* Some member of the set does not go on in the larger one. */
static bool is_refused(const struct survivors *survivors)
{
    struct tutti_board board;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++)
        if (survivors_has(survivors, current(survivors), s) && peek(survivors, s, &board) == TUTTI_OK &&
            board.root == 0)
            return true;
    return false;
}

/* Looks at who lives, now and then; takes the lost out and proposes the rest. The first look and proposal come at once.
 */
static void look(struct survivors *survivors)
{
    uint64_t now = tutti_now_ns();
    if (now < survivors->look_ns) return;
    bool first = survivors->look_ns == 0, changed = false;
    survivors->look_ns = now + LOOK_EVERY_NS;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        if (s == (uint32_t)survivors->comm->rank || !survivors_has(survivors, current(survivors), s)) continue;
        if (!is_lost(survivors, s)) continue;
        survivors->removed_at[s] = survivors->n_versions;
        changed = true;
    }
    if (is_larger(survivors, current(survivors)) && is_refused(survivors)) {
        survivors->removed_at[survivors->comm->size] = survivors->n_versions;
        changed = true;
    }
    if (changed) hash_version(survivors, survivors->n_versions++);
    if (changed || first) publish(survivors, PROPOSED, current(survivors), TUTTI_OK);
}

/* Whether any member, also one that died since, shows a decision. It is read after the look, so that no decision of a
 * dead member is missed. */
static enum tutti_status find_decision(const struct survivors *survivors, struct tutti_board *board, uint32_t *by)
{
    enum tutti_status result = TUTTI_AGAIN;
    for (uint32_t s = 0; s < (uint32_t)survivors->comm->size; s++) {
        if (!survivors_has(survivors, 0, s)) continue;
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

static enum tutti_status adopt(const struct survivors *survivors, const struct tutti_board *board, uint32_t by,
                               uint32_t *version)
{
    for (uint32_t v = 0; v < survivors->n_versions; v++) {
        if (survivors->hashes[v] != board->signature) continue;
        *version = v;
        return TUTTI_OK;
    }
    if (board->seq == NOT_MADE) return failed_there(survivors, by, (enum tutti_status)(int64_t)board->completed);
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

static enum tutti_status survivors_agree(struct survivors *survivors, uint32_t *version)
{
    struct tutti_board board;
    uint32_t by = 0, missing;
    bool other;
    for (uint64_t nap = NAP_FIRST_NS; tutti_now_ns() < survivors->deadline_ns;
         nap = nap < NAP_LONGEST_NS ? 2 * nap : nap) {
        look(survivors);
        const enum tutti_status found = find_decision(survivors, &board, &by);
        if (found == TUTTI_OK) return adopt(survivors, &board, by, version);
        if (found == TUTTI_AGAIN && is_leader(survivors) && all_propose(survivors, &missing, &other)) {
            *version = current(survivors);
            publish(survivors, DECIDED, *version, TUTTI_OK);
            return TUTTI_OK;
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
    if (status != TUTTI_ERR_PEER_DEAD) return status;
    struct tutti_error why = *tutti_last_error();
    tutti_team_fail(child->team, &why, true);
    return TUTTI_OK;
}

static enum tutti_status shrink(struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude,
                                struct tutti_comm *larger, struct tutti_comm **out)
{
    struct survivors survivors;
    struct tutti_comm *child = NULL;
    uint32_t version = 0;
    TUTTI_TRY(survivors_init(&survivors, comm, exclude, n_exclude, larger));
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
                                          struct tutti_comm *larger, struct tutti_comm **out)
{
    TUTTI_TRY(tutti_comm_enter(comm, "comm_shrink"));
    enum tutti_status status = check_list(comm, exclude, n_exclude);
    if (status >= 0) status = shrink(comm, exclude, n_exclude, larger, out);
    tutti_comm_leave(comm);
    return status;
}

enum tutti_status tutti_comm_next(struct tutti_comm *comm, struct tutti_comm *larger, struct tutti_comm **out)
{
    return enter_and_shrink(comm, NULL, 0, larger, out);
}

enum tutti_status tutti_comm_shrink(struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude,
                                    struct tutti_comm **out)
{
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "comm_shrink: out is NULL");
    TUTTI_TRY(tutti_call_alone("comm_shrink"));
    return enter_and_shrink(comm, exclude, n_exclude, NULL, out);
}
