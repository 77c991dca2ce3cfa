/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the steps of a column can complete. They make a bundle of their own: each rank has its steps of the column in
 * program order, with the hazards among them. Whatever waits there waits in the whole schedule, too: of two steps 64
 * apart in the column the later one waits for the earlier one also when more are in between. So a circle that is found
 * is one of the whole schedule; one that leads through other columns is not seen. */

#include "verify/column.h"

#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b)
{
    const struct tutti_column_place *x = &((const struct tutti_column_step *)a)->place;
    const struct tutti_column_place *y = &((const struct tutti_column_step *)b)->place;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

struct order {
    struct tutti_bundle bundle;
    struct tutti_schedule *schedules;       /* by rank */
    const struct tutti_schedule **pointers; /* to these */
    struct tutti_step *steps;
    uint32_t *sent, *received; /* by peer, of the rank at hand */
};

static bool meets(uint8_t buffer, uint32_t chunk, uint8_t other_buffer, uint32_t other)
{
    return buffer == other_buffer && chunk == other && buffer != TUTTI_IN;
}

/* Hazards and numbers of one rank's steps. */
static void finish_rank(struct order *order, struct tutti_step *steps, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct tutti_step *a = &steps[i];
        a->wait = 0;
        for (uint32_t j = 0; j < TUTTI_WINDOW && j < i; j++) {
            const struct tutti_step *b = &steps[i - 1 - j];
            const bool reads = tutti_step_reads_src(a), writes = tutti_step_writes_dst(a);
            const bool hazard =
                (writes && tutti_step_writes_dst(b) && meets(a->dst_buffer, a->dst, b->dst_buffer, b->dst)) ||
                (writes && tutti_step_reads_src(b) && meets(a->dst_buffer, a->dst, b->src_buffer, b->src)) ||
                (reads && tutti_step_writes_dst(b) && meets(a->src_buffer, a->src, b->dst_buffer, b->dst));
            a->wait |= (uint64_t)hazard << j;
        }
        if (tutti_step_is_message(a)) a->fifo = (tutti_step_sends(a) ? order->sent : order->received)[a->peer]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (tutti_step_is_message(&steps[i])) order->sent[steps[i].peer] = order->received[steps[i].peer] = 0;
    }
}

static enum tutti_status order_init(struct order *order, const struct tutti_bundle *bundle,
                                    struct tutti_column_step *kept, size_t n)
{
    const struct tutti_schedule *first = bundle->schedules[0];
    order->schedules = tutti_alloc_array(bundle->n, sizeof *order->schedules);
    order->pointers = tutti_alloc_array(bundle->n, sizeof *order->pointers);
    order->steps = tutti_alloc_array(n + 1, sizeof *order->steps);
    order->sent = tutti_alloc_array(bundle->n, 2 * sizeof *order->sent);
    if (!order->schedules || !order->pointers || !order->steps || !order->sent)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check a column of %zu steps", n);
    order->received = order->sent + bundle->n;
    if (n > 1) qsort(kept, n, sizeof *kept, by_place);
    size_t i = 0, n_steps = 0;
    for (uint32_t r = 0; r < bundle->n; r++) {
        struct tutti_step *steps = &order->steps[n_steps];
        const size_t begin = n_steps;
        for (; i < n && kept[i].place.rank == r; i++) {
            const bool again = i > 0 && by_place(&kept[i - 1], &kept[i]) == 0 &&
                               kept[i - 1].step.src == kept[i].step.src && kept[i - 1].step.dst == kept[i].step.dst;
            if (!again) order->steps[n_steps++] = kept[i].step;
        }
        order->schedules[r] = *first;
        order->schedules[r].shape.slot = r;
        order->schedules[r].steps = steps;
        order->schedules[r].n_steps = (uint32_t)(n_steps - begin);
        order->schedules[r].n_chunks = bundle->n_chunks;
        order->schedules[r].n_rounds = UINT32_MAX;
        order->pointers[r] = &order->schedules[r];
        finish_rank(order, steps, order->schedules[r].n_steps);
    }
    return tutti_bundle_init(&order->bundle, order->pointers, bundle->n, bundle->verdict);
}

enum tutti_status tutti_column_check_order(const struct tutti_bundle *bundle, struct tutti_column_step *steps, size_t n)
{
    struct order order = {0};
    enum tutti_status status;
    TUTTI_TRY_GOTO(status, order_init(&order, bundle, steps, n), err_order);
    order.bundle.finding = TUTTI_FOUND_UNMATCHED;
    if (bundle->verdict->ok) status = tutti_bundle_match(&order.bundle);
    order.bundle.finding = TUTTI_FOUND_DEADLOCK;
    if (status >= 0 && bundle->verdict->ok) status = tutti_bundle_check_deadlock(&order.bundle);
err_order:
    tutti_bundle_fini(&order.bundle);
    tutti_free(order.schedules);
    tutti_free(order.pointers);
    tutti_free(order.steps);
    tutti_free(order.sent);
    return status;
}
