/* SPDX-License-Identifier: BSD-3-Clause */
/* Joins every send with its receive: the k-th from s to r with the k-th that r expects from s, of as many chunks. */

#include "verify/bundle.h"

/* Receives by (sender, receiver): starts[s * n + r] .. is where those of the pair lie in `list`, in program order. */
struct receives {
    uint32_t *starts; /* n * n + 1 */
    uint32_t *list;   /* step numbers of the bundle */
};

static enum tutti_status receives_init(struct receives *receives, const struct tutti_bundle *bundle)
{
    const size_t pairs = (size_t)bundle->n * bundle->n;
    receives->starts = tutti_alloc_array(pairs + 1, sizeof *receives->starts);
    receives->list = tutti_alloc_array((size_t)bundle->n_steps + 1, sizeof *receives->list);
    if (!receives->starts || !receives->list) {
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to match the messages of %u ranks", bundle->n);
    }
    for (uint32_t r = 0; r < bundle->n; r++) {
        for (uint32_t i = 0; i < bundle->schedules[r]->n_steps; i++) {
            const struct tutti_step *step = tutti_bundle_step(bundle, r, i);
            if (tutti_step_receives(step)) receives->starts[(size_t)step->peer * bundle->n + r + 1]++;
        }
    }
    for (size_t i = 0; i < pairs; i++) receives->starts[i + 1] += receives->starts[i];
    for (uint32_t r = 0; r < bundle->n; r++) {
        for (uint32_t i = 0; i < bundle->schedules[r]->n_steps; i++) {
            const struct tutti_step *step = tutti_bundle_step(bundle, r, i);
            if (!tutti_step_receives(step)) continue;
            receives->list[receives->starts[(size_t)step->peer * bundle->n + r] + step->fifo] = bundle->base[r] + i;
        }
    }
    return TUTTI_OK;
}

static void receives_fini(struct receives *receives)
{
    tutti_free(receives->starts);
    tutti_free(receives->list);
}

static void match_send(struct tutti_bundle *bundle, const struct receives *receives, uint32_t slot, uint32_t index)
{
    const struct tutti_step *send = tutti_bundle_step(bundle, slot, index);
    const size_t pair = (size_t)slot * bundle->n + send->peer;
    const uint32_t expected = receives->starts[pair + 1] - receives->starts[pair];
    char chunks[48];
    tutti_chunks_text(send->src_buffer, send->src, send->n, chunks, sizeof chunks);
    if (send->fifo >= expected) {
        tutti_bundle_refuse(bundle, slot, index, "sends %s to rank %u, which expects only %u message%s from it", chunks,
                            send->peer, expected, expected == 1 ? "" : "s");
        return;
    }
    const uint32_t number = receives->list[receives->starts[pair] + send->fifo];
    const struct tutti_step *recv = tutti_bundle_step(bundle, send->peer, number - bundle->base[send->peer]);
    if (recv->n != send->n) {
        tutti_bundle_refuse(bundle, slot, index,
                            "sends %s to rank %u, which expects %u chunk%s (its round %u, step %u)", chunks, send->peer,
                            recv->n, recv->n == 1 ? "" : "s", recv->round, number - bundle->base[send->peer]);
        return;
    }
    bundle->match[number] = bundle->base[slot] + index;
    bundle->match[bundle->base[slot] + index] = number;
    /* The message before it in the channel is the match of the receive before. */
    if (send->fifo > 0)
        bundle->previous[bundle->base[slot] + index] =
            bundle->match[receives->list[receives->starts[pair] + send->fifo - 1]];
}

static void find_unmatched(struct tutti_bundle *bundle)
{
    for (uint32_t r = 0; r < bundle->n; r++) {
        for (uint32_t i = 0; i < bundle->schedules[r]->n_steps; i++) {
            const struct tutti_step *step = tutti_bundle_step(bundle, r, i);
            if (!tutti_step_receives(step) || bundle->match[bundle->base[r] + i] != TUTTI_NO_INDEX) continue;
            char chunks[48];
            tutti_chunks_text(step->dst_buffer, step->dst, step->n, chunks, sizeof chunks);
            tutti_bundle_refuse(bundle, r, i, "expects %s from rank %u, which sends it only %u message%s", chunks,
                                step->peer, step->fifo, step->fifo == 1 ? "" : "s");
            return;
        }
    }
}

enum tutti_status tutti_bundle_match(struct tutti_bundle *bundle)
{
    struct receives receives = {0};
    enum tutti_status status;
    for (uint32_t i = 0; i < bundle->n_steps; i++) bundle->match[i] = bundle->previous[i] = TUTTI_NO_INDEX;
    TUTTI_TRY_GOTO(status, receives_init(&receives, bundle), err_receives);
    for (uint32_t s = 0; s < bundle->n && bundle->verdict->ok; s++) {
        for (uint32_t i = 0; i < bundle->schedules[s]->n_steps && bundle->verdict->ok; i++) {
            if (tutti_step_sends(tutti_bundle_step(bundle, s, i))) match_send(bundle, &receives, s, i);
        }
    }
    if (bundle->verdict->ok) find_unmatched(bundle);
err_receives:
    receives_fini(&receives);
    return status;
}
