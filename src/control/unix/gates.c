/* SPDX-License-Identifier: BSD-3-Clause */

/* The relays that come to a door: what they send, and what becomes of the members behind them. */

#include "control/unix/door.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void gate_accept(struct door *door)
{
    uint32_t n_strangers = 0;
    for (uint32_t i = 0; i < door->n_gates; i++) n_strangers += !door->gates[i]->proved;
    if (n_strangers >= DOOR_STRANGERS || door->n_gates == DOOR_GATES) {
        for (uint32_t i = 0; i < door->n_gates; i++) /* the oldest one goes */
            if (!door->gates[i]->proved) {
                gate_refuse(door, door->gates[i], "others wait, and it has not said who it is");
                break;
            }
    }
    int fd = tutti_listener_accept(door->meeting->listener);
    if (fd < 0) return;
    struct gate *gate = door->n_gates < DOOR_GATES ? tutti_alloc(sizeof *gate) : NULL;
    if (!gate) {
        close(fd);
        return;
    }
    if (gate_open(gate, fd, 8 * door->n_ends) < 0) {
        tutti_free(gate);
        return;
    }
    tutti_net_address_of(fd, false, &door->address);
    door->gates[door->n_gates++] = gate;
}

/* The relay's own rank is told first: its death is what happened, the others only lost their way. */
void gate_lost(struct door *door, struct gate *gate)
{
    for (uint32_t number = 0; number < gate->numbers.n; number++) {
        const uint32_t link = gate_number_find(gate, number);
        if (link == UINT32_MAX) continue;
        struct end *end = &door->ends[link];
        door->ops->closed(door->arg, end, number != 0);
        if (end->gate == gate) door_end_free(end);
    }
    for (uint32_t i = 0; i < door->n_gates; i++)
        if (door->gates[i] == gate) {
            door->n_gates--;
            memmove(&door->gates[i], &door->gates[i + 1], (door->n_gates - i) * sizeof door->gates[0]);
            break;
        }
    gate_close(gate);
    tutti_free(gate);
}

void gate_refuse(struct door *door, struct gate *gate, const char *why)
{
    const uint64_t now = tutti_now_ns();
    char address[64], more[48] = "";
    if (door->logged_ns != 0 && now < door->logged_ns + TUTTI_NS_PER_S) {
        door->n_unlogged++;
    } else {
        if (door->n_unlogged > 0) snprintf(more, sizeof more, " (and %u others before it)", door->n_unlogged);
        tutti_log(TUTTI_LOG_WARN, "refused %s at the meeting of the ranks: %s%s",
                  tutti_net_address_text(&gate->far, address, sizeof address), why, more);
        door->logged_ns = now, door->n_unlogged = 0;
    }
    gate_lost(door, gate);
}

/* A relay that is not proved brings in its own rank alone, under number 0. */
static bool newcomer_take(struct door *door, struct gate *gate, const struct gate_frame *frame)
{
    const uint8_t family = frame->n == GATE_ADDRESS ? frame->bytes[0] : 255;
    if ((family != 0 && family != 4 && family != 6) || (frame->number == 0) == gate->opened ||
        (frame->number != 0 && !gate->proved) || (frame->number == 0 && family != 0))
        return false;
    struct end *end = door_end_take(door);
    if (!end) return true; /* no room: it hears nothing, until its deadline */
    if (!gate_number_set(gate, frame->number, end->link)) {
        door_end_free(end);
        return false;
    }
    gate->opened = true;
    end->gate = gate, end->number = frame->number, end->address = gate->far;
    if (family != 0) {
        end->address.family = family;
        memcpy(end->address.bytes, frame->bytes + 1, sizeof end->address.bytes);
    }
    door->ops->opened(door->arg, end, 0);
    return true;
}

static bool frame_take(struct door *door, struct gate *gate, const struct gate_frame *frame)
{
    if (frame->what == GATE_OPEN) return !door->open || newcomer_take(door, gate, frame);
    const uint32_t link = gate_number_find(gate, frame->number);
    if (frame->what != GATE_SAY && (frame->what != GATE_CLOSED || frame->n != 1 || frame->bytes[0] > 1)) return false;
    if (link == UINT32_MAX) return true; /* it was dropped meanwhile */
    struct end *end = &door->ends[link];
    if (frame->what == GATE_SAY) {
        door->ops->received(door->arg, end, frame->bytes, frame->n);
        return true;
    }
    door->ops->closed(door->arg, end, frame->bytes[0]);
    if (end->gate == gate) door_end_free(end);
    return true;
}

void gate_serve(struct door *door, struct gate *gate)
{
    for (int i = 0; i < 64; i++) { /* the others' turn */
        struct gate_frame frame;
        const enum tutti_status status = gate_recv(gate, &frame);
        if (status == TUTTI_PENDING) return;
        if (status == TUTTI_OK && frame_take(door, gate, &frame)) continue;
        if (status == TUTTI_OK || !gate->proved)
            gate_refuse(door, gate,
                        status == TUTTI_OK ? "it sent what can not be" : "it went, or sent what can not be");
        else
            gate_lost(door, gate);
        return;
    }
}
