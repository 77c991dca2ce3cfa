/* SPDX-License-Identifier: BSD-3-Clause */
/* Joins every send with its receive: the k-th from s to r with the k-th that r expects from s, of as many chunks. */

#include "verify/world.h"

/* Receives by (sender, receiver): starts[s * n + r] .. is where those of the pair lie in `list`, in program order. */
struct receives {
    uint32_t *starts; /* n * n + 1 */
    uint32_t *list;   /* step numbers of the world */
};

static enum tutti_status receives_init(struct receives *receives, const struct tutti_world *world)
{
    const size_t pairs = (size_t)world->n * world->n;
    receives->starts = tutti_alloc_array(pairs + 1, sizeof *receives->starts);
    receives->list = tutti_alloc_array((size_t)world->n_steps + 1, sizeof *receives->list);
    if (!receives->starts || !receives->list) {
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to match the messages of %u ranks", world->n);
    }
    for (uint32_t r = 0; r < world->n; r++) {
        for (uint32_t i = 0; i < world->schedules[r]->n_steps; i++) {
            const struct tutti_step *step = tutti_world_step(world, r, i);
            if (tutti_step_receives(step)) receives->starts[(size_t)step->peer * world->n + r + 1]++;
        }
    }
    for (size_t i = 0; i < pairs; i++) receives->starts[i + 1] += receives->starts[i];
    for (uint32_t r = 0; r < world->n; r++) {
        for (uint32_t i = 0; i < world->schedules[r]->n_steps; i++) {
            const struct tutti_step *step = tutti_world_step(world, r, i);
            if (!tutti_step_receives(step)) continue;
            receives->list[receives->starts[(size_t)step->peer * world->n + r] + step->fifo] = world->base[r] + i;
        }
    }
    return TUTTI_OK;
}

static void receives_fini(struct receives *receives)
{
    tutti_free(receives->starts);
    tutti_free(receives->list);
}

static void match_send(struct tutti_world *world, const struct receives *receives, uint32_t slot, uint32_t index)
{
    const struct tutti_step *send = tutti_world_step(world, slot, index);
    const size_t pair = (size_t)slot * world->n + send->peer;
    const uint32_t expected = receives->starts[pair + 1] - receives->starts[pair];
    char chunks[48];
    tutti_chunks_text(send->src_buffer, send->src, send->n, chunks, sizeof chunks);
    if (send->fifo >= expected) {
        tutti_world_refuse(world, slot, index, "sends %s to rank %u, which expects only %u message%s from it", chunks,
                           send->peer, expected, expected == 1 ? "" : "s");
        return;
    }
    const uint32_t number = receives->list[receives->starts[pair] + send->fifo];
    const struct tutti_step *recv = tutti_world_step(world, send->peer, number - world->base[send->peer]);
    if (recv->n != send->n) {
        tutti_world_refuse(world, slot, index, "sends %s to rank %u, which expects %u chunk%s (its round %u, step %u)",
                           chunks, send->peer, recv->n, recv->n == 1 ? "" : "s", recv->round,
                           number - world->base[send->peer]);
        return;
    }
    world->match[number] = world->base[slot] + index;
    world->match[world->base[slot] + index] = number;
    /* The message before it in the channel is the match of the receive before. */
    if (send->fifo > 0)
        world->previous[world->base[slot] + index] =
            world->match[receives->list[receives->starts[pair] + send->fifo - 1]];
}

static void find_unmatched(struct tutti_world *world)
{
    for (uint32_t r = 0; r < world->n; r++) {
        for (uint32_t i = 0; i < world->schedules[r]->n_steps; i++) {
            const struct tutti_step *step = tutti_world_step(world, r, i);
            if (!tutti_step_receives(step) || world->match[world->base[r] + i] != TUTTI_NO_INDEX) continue;
            char chunks[48];
            tutti_chunks_text(step->dst_buffer, step->dst, step->n, chunks, sizeof chunks);
            tutti_world_refuse(world, r, i, "expects %s from rank %u, which sends it only %u message%s", chunks,
                               step->peer, step->fifo, step->fifo == 1 ? "" : "s");
            return;
        }
    }
}

enum tutti_status tutti_world_match(struct tutti_world *world)
{
    struct receives receives = {0};
    enum tutti_status status;
    for (uint32_t i = 0; i < world->n_steps; i++) world->match[i] = world->previous[i] = TUTTI_NO_INDEX;
    TUTTI_TRY_GOTO(status, receives_init(&receives, world), err_receives);
    for (uint32_t s = 0; s < world->n && world->verdict->ok; s++) {
        for (uint32_t i = 0; i < world->schedules[s]->n_steps && world->verdict->ok; i++) {
            if (tutti_step_sends(tutti_world_step(world, s, i))) match_send(world, &receives, s, i);
        }
    }
    if (world->verdict->ok) find_unmatched(world);
err_receives:
    receives_fini(&receives);
    return status;
}
