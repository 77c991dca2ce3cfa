/* SPDX-License-Identifier: BSD-3-Clause */

/* Ends of links: found and freed in a few steps, however many there are. */

#include "control/unix/door.h"

#include <unistd.h>

struct end *door_end_take(struct door *door)
{
    if (door->n_vacant == 0 && door->n_used == door->n_ends) return NULL;
    const uint32_t link = door->n_vacant > 0 ? door->vacant[--door->n_vacant] : door->n_used++;
    door->ends[link] = (struct end){.door = door, .link = link, .fd = -1};
    return &door->ends[link];
}

void door_end_free(struct end *end)
{
    struct door *door = end->door;
    const bool here = end->fd >= 0 || end->ticket;
    if (!here && !end->gate) return;
    if (end->gate) gate_number_forget(end->gate, end->number);
    if (end->fd >= 0) close(end->fd);
    for (uint32_t i = 0; here && i < door->n_here; i++)
        if (door->here[i] == end->link) door->here[i] = door->here[--door->n_here];
    *end = (struct end){.door = door, .link = end->link, .fd = -1};
    door->vacant[door->n_vacant++] = end->link;
}
