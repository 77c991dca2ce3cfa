/* SPDX-License-Identifier: BSD-3-Clause */
/* Joins every send with its receive: the k-th from s to r with the k-th that r expects from s, of as many chunks. Cost:
 * a few operations a message, and memory for the messages alone, whatever the number of pairs. */

#include "verify/bundle.h"

/* Sends by receiver: starts[r] .. starts[r + 1] is where those to r lie in `list`, by sender and in program order. */
struct sends {
    uint64_t *starts; /* n + 1 */
    uint32_t *list;   /* step numbers of the bundle */
    uint32_t *from;   /* their slots */
    /* For the receiver at hand, by sender: its first send in the list, and how many there are. */
    uint64_t *first;
    uint32_t *n;
};

static void sends_collect(struct sends *sends, const struct tutti_bundle *bundle)
{
    for (uint32_t s = 0; s < bundle->n; s++) {
        const struct tutti_schedule *schedule = bundle->schedules[s];
        for (uint32_t i = 0; i < schedule->n_steps; i++)
            if (tutti_step_sends(&schedule->steps[i])) sends->starts[schedule->steps[i].peer + 1]++;
    }
    for (uint32_t r = 0; r < bundle->n; r++) sends->starts[r + 1] += sends->starts[r];
    for (uint32_t s = 0; s < bundle->n; s++) {
        const struct tutti_schedule *schedule = bundle->schedules[s];
        for (uint32_t i = 0; i < schedule->n_steps; i++) {
            if (!tutti_step_sends(&schedule->steps[i])) continue;
            const uint64_t at = sends->starts[schedule->steps[i].peer]++;
            sends->list[at] = bundle->base[s] + i;
            sends->from[at] = s;
        }
    }
    for (uint32_t r = bundle->n; r > 0; r--) sends->starts[r] = sends->starts[r - 1];
    sends->starts[0] = 0;
}

static enum tutti_status sends_init(struct sends *sends, const struct tutti_bundle *bundle)
{
    sends->starts = tutti_alloc_array((size_t)bundle->n + 1, sizeof *sends->starts);
    sends->list = tutti_alloc_array((size_t)bundle->n_steps + 1, sizeof *sends->list);
    sends->from = tutti_alloc_array((size_t)bundle->n_steps + 1, sizeof *sends->from);
    sends->first = tutti_alloc_array(bundle->n, sizeof *sends->first);
    sends->n = tutti_alloc_array(bundle->n, sizeof *sends->n);
    if (!sends->starts || !sends->list || !sends->from || !sends->first || !sends->n) {
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to match the messages of %u ranks", bundle->n);
    }
    sends_collect(sends, bundle);
    return TUTTI_OK;
}

static void sends_fini(struct sends *sends)
{
    tutti_free(sends->starts);
    tutti_free(sends->list);
    tutti_free(sends->from);
    tutti_free(sends->first);
    tutti_free(sends->n);
}

/* Joins the receives of a slot with the sends to it; where two do not fit they stay alone. */
static void match_slot(struct tutti_bundle *bundle, const struct sends *sends, uint32_t slot)
{
    const struct tutti_schedule *schedule = bundle->schedules[slot];
    for (uint64_t at = sends->starts[slot]; at < sends->starts[slot + 1]; at++) {
        if (sends->n[sends->from[at]]++ == 0) sends->first[sends->from[at]] = at;
    }
    for (uint32_t i = 0; i < schedule->n_steps; i++) {
        const struct tutti_step *recv = &schedule->steps[i];
        if (!tutti_step_receives(recv) || recv->fifo >= sends->n[recv->peer]) continue;
        const uint64_t at = sends->first[recv->peer] + recv->fifo;
        const uint32_t send = sends->list[at], number = bundle->base[slot] + i;
        if (tutti_bundle_step(bundle, recv->peer, send - bundle->base[recv->peer])->n != recv->n) continue;
        bundle->match[number] = send;
        bundle->match[send] = number;
        if (recv->fifo > 0) bundle->previous[send] = sends->list[at - 1];
    }
    for (uint64_t at = sends->starts[slot]; at < sends->starts[slot + 1]; at++) sends->n[sends->from[at]] = 0;
}

/* ---- the sentence, when messages are left ---- */

/* The receive at `slot` that is message `fifo` from a rank, or NULL; *n is how many it expects from there. */
static const struct tutti_step *expected_at(const struct tutti_bundle *bundle, uint32_t slot, uint32_t from,
                                            uint32_t fifo, uint32_t *n)
{
    const struct tutti_schedule *schedule = bundle->schedules[slot];
    const struct tutti_step *found = NULL;
    *n = 0;
    for (uint32_t i = 0; i < schedule->n_steps; i++) {
        const struct tutti_step *step = &schedule->steps[i];
        if (!tutti_step_receives(step) || step->peer != from) continue;
        if (step->fifo == fifo) found = step;
        ++*n;
    }
    return found;
}

static void refuse_send(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index)
{
    const struct tutti_step *send = tutti_bundle_step(bundle, slot, index);
    uint32_t expected;
    const struct tutti_step *recv = expected_at(bundle, send->peer, slot, send->fifo, &expected);
    char chunks[48];
    tutti_chunks_text(send->src_buffer, send->src, send->n, chunks, sizeof chunks);
    if (!recv) {
        tutti_bundle_refuse(bundle, slot, index, "sends %s to rank %u, which expects only %u message%s from it", chunks,
                            send->peer, expected, expected == 1 ? "" : "s");
    } else {
        tutti_bundle_refuse(bundle, slot, index,
                            "sends %s to rank %u, which expects %u chunk%s (its round %u, step %u)", chunks, send->peer,
                            recv->n, recv->n == 1 ? "" : "s", recv->round,
                            (uint32_t)(recv - bundle->schedules[send->peer]->steps));
    }
}

static void refuse_recv(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index)
{
    const struct tutti_step *recv = tutti_bundle_step(bundle, slot, index);
    char chunks[48];
    tutti_chunks_text(recv->dst_buffer, recv->dst, recv->n, chunks, sizeof chunks);
    tutti_bundle_refuse(bundle, slot, index, "expects %s from rank %u, which sends it only %u message%s", chunks,
                        recv->peer, recv->fifo, recv->fifo == 1 ? "" : "s");
}

/* Sends are told before receives. */
static void find_unmatched(const struct tutti_bundle *bundle)
{
    uint32_t recv_slot = TUTTI_NO_INDEX, recv_index = 0;
    for (uint32_t s = 0; s < bundle->n; s++) {
        const struct tutti_schedule *schedule = bundle->schedules[s];
        for (uint32_t i = 0; i < schedule->n_steps; i++) {
            const struct tutti_step *step = &schedule->steps[i];
            if (!tutti_step_is_message(step) || bundle->match[bundle->base[s] + i] != TUTTI_NO_INDEX) continue;
            if (tutti_step_sends(step)) {
                refuse_send(bundle, s, i);
                return;
            }
            if (recv_slot == TUTTI_NO_INDEX) recv_slot = s, recv_index = i;
        }
    }
    if (recv_slot != TUTTI_NO_INDEX) refuse_recv(bundle, recv_slot, recv_index);
}

enum tutti_status tutti_bundle_match(struct tutti_bundle *bundle)
{
    struct sends sends = {0};
    enum tutti_status status;
    for (uint32_t i = 0; i < bundle->n_steps; i++) bundle->match[i] = bundle->previous[i] = TUTTI_NO_INDEX;
    TUTTI_TRY_GOTO(status, sends_init(&sends, bundle), err_sends);
    for (uint32_t r = 0; r < bundle->n; r++) match_slot(bundle, &sends, r);
    find_unmatched(bundle);
err_sends:
    sends_fini(&sends);
    return status;
}
