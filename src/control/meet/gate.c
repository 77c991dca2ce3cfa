/* SPDX-License-Identifier: BSD-3-Clause */

/* Gates: connections between relays and the leader, and what comes through them to a door. Frames are gathered in
 * memory, both ways: of the many that a relay passes on, a system call carries hundreds. */

#include "base/session.h"

#include "control/meet/door.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- one gate ---- */

#define FULL_NS (2 * TUTTI_NS_PER_S)   /* that a peer which does not read may hold up the others */
#define PROVE_NS (10 * TUTTI_NS_PER_S) /* that a relay may take to prove itself */

enum tutti_status gate_open(struct gate *gate, int fd, struct tutti_tls *tls, uint32_t n_numbers)
{
    *gate = (struct gate){.fd = fd,
                          .tls = tls,
                          .in = tutti_alloc(GATE_BUFFER),
                          .out = tutti_alloc(GATE_BUFFER),
                          .numbers.most = n_numbers};
    gate->until_ns = tutti_deadline_ns(PROVE_NS);
    tutti_net_address_of(fd, true, &gate->far);
    if (gate->in && gate->out) return TUTTI_OK;
    gate_close(gate);
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a connection of the meeting");
}

void gate_close(struct gate *gate)
{
    gate_flush(gate);
    tutti_tls_close(gate->tls);
    if (gate->fd >= 0) close(gate->fd);
    tutti_free(gate->in);
    tutti_free(gate->out);
    tutti_free(gate->numbers.ends);
    *gate = (struct gate){.fd = -1};
}

/* ---- numbers ---- */

bool gate_number_set(struct gate *gate, uint32_t number, uint32_t link)
{
    struct gate_numbers *numbers = &gate->numbers;
    if (number >= numbers->most) return false;
    if (number >= numbers->n) {
        uint32_t n = 2 * number + 64;
        if (n > numbers->most) n = numbers->most;
        uint32_t *ends = tutti_alloc_array(n, sizeof *ends);
        if (!ends) return false;
        if (numbers->n > 0) memcpy(ends, numbers->ends, numbers->n * sizeof *ends);
        tutti_free(numbers->ends);
        numbers->ends = ends, numbers->n = n;
    }
    if (numbers->ends[number] != 0) return false;
    numbers->ends[number] = link + 1;
    return true;
}

uint32_t gate_number_find(const struct gate *gate, uint32_t number)
{
    return number < gate->numbers.n ? gate->numbers.ends[number] - 1 : UINT32_MAX;
}

void gate_number_forget(struct gate *gate, uint32_t number)
{
    if (number < gate->numbers.n) gate->numbers.ends[number] = 0;
}

/* ---- frames ---- */

/* As send and recv of a socket that does not block. */
static ssize_t bytes_send(struct gate *gate, const uint8_t *bytes, size_t n)
{
    size_t sent = 0;
    if (!gate->tls) return send(gate->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    const enum tutti_status status = tutti_tls_write(gate->tls, bytes, n, &sent);
    errno = status == TUTTI_PENDING ? EAGAIN : EPIPE;
    return status == TUTTI_OK ? (ssize_t)sent : -1;
}

static ssize_t bytes_recv(struct gate *gate, uint8_t *bytes, size_t capacity)
{
    size_t got = 0;
    if (!gate->tls) return recv(gate->fd, bytes, capacity, MSG_DONTWAIT);
    const enum tutti_status status = tutti_tls_read(gate->tls, bytes, capacity, &got);
    errno = status == TUTTI_PENDING ? EAGAIN : EPIPE;
    return status == TUTTI_OK ? (ssize_t)got : -1;
}

/* What is gathered is lost when the peer does not read, or is gone: recv tells that it is over. */
void gate_flush(struct gate *gate)
{
    const uint64_t until = gate->n_out > 0 ? tutti_deadline_ns(FULL_NS) : 0;
    for (uint32_t done = 0; done < gate->n_out;) {
        const ssize_t sent = bytes_send(gate, gate->out + done, gate->n_out - done);
        if (sent >= 0) {
            done += (uint32_t)sent;
        } else if (errno == EAGAIN && tutti_now_ns() < until) {
            struct pollfd room = {.fd = gate->fd, .events = POLLOUT};
            poll(&room, 1, 100);
        } else if (errno != EINTR) {
            shutdown(gate->fd, SHUT_RDWR);
            gate->is_over = true;
            break;
        }
    }
    gate->n_out = 0;
}

void gate_send(struct gate *gate, enum gate_what what, uint32_t number, const void *bytes, size_t n)
{
    if (gate->fd < 0 || gate->is_over) return;
    if (GATE_HEAD + n > GATE_BUFFER - gate->n_out) gate_flush(gate);
    uint8_t *out = gate->out + gate->n_out;
    tutti_le_store(out, 4, GATE_HEAD - 4 + n);
    out[4] = (uint8_t)what;
    tutti_le_store(out + 5, 4, number);
    if (n > 0) memcpy(out + GATE_HEAD, bytes, n);
    gate->n_out += GATE_HEAD + (uint32_t)n;
}

/* The frame that begins what came and was not taken: its bytes, 0 if it is not whole; UINT32_MAX: it is none. */
static uint32_t frame_whole(const struct gate *gate)
{
    const uint32_t have = gate->n_in - gate->taken;
    if (have < GATE_HEAD) return 0;
    const size_t follows = tutti_le_load(gate->in + gate->taken, 4);
    if (follows < GATE_HEAD - 4 || follows > GATE_FRAME_MAX - 4) return UINT32_MAX;
    return have >= follows + 4 ? (uint32_t)follows + 4 : 0;
}

enum tutti_status gate_recv(struct gate *gate, struct gate_frame *out)
{
    for (;;) {
        const uint32_t n = frame_whole(gate);
        if (n == UINT32_MAX) return TUTTI_AGAIN;
        if (n > 0) {
            const uint8_t *at = gate->in + gate->taken;
            *out = (struct gate_frame){.what = (enum gate_what)at[4],
                                       .number = (uint32_t)tutti_le_load(at + 5, 4),
                                       .bytes = at + GATE_HEAD,
                                       .n = n - GATE_HEAD};
            gate->taken += n;
            return TUTTI_OK;
        }
        gate->n_in -= gate->taken;
        if (gate->n_in > 0) memmove(gate->in, gate->in + gate->taken, gate->n_in);
        gate->taken = 0;
        const ssize_t got = bytes_recv(gate, gate->in + gate->n_in, GATE_BUFFER - gate->n_in);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return TUTTI_PENDING;
        if (got <= 0) return TUTTI_AGAIN;
        gate->n_in += (uint32_t)got;
        gate->n_reads++;
    }
}

void gate_table_send(struct gate *gate, const uint8_t *bytes, uint32_t n)
{
    if (gate->has_table) return;
    gate->has_table = true;
    for (uint32_t at = 0; at < n;) {
        const uint32_t part = n - at < TUTTI_MEETING_PAYLOAD ? n - at : TUTTI_MEETING_PAYLOAD;
        gate_send(gate, GATE_TABLE, n, bytes + at, part);
        at += part;
    }
}

/* ---- those of a door ---- */
/* The relays that come to a door: what they send, and what becomes of the members behind them. */

void gate_accept(struct door *door)
{
    uint32_t n_unproved = 0;
    for (uint32_t i = 0; i < door->n_gates; i++) n_unproved += !door->gates[i]->proved;
    if (n_unproved >= DOOR_UNPROVED || door->n_gates == DOOR_GATES) {
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
    const struct tutti_tls_proof proof = {.certificate = door->meeting->request->certificate};
    struct tutti_tls *tls = NULL;
    if (proof.certificate && tutti_tls_open(fd, false, &proof, &tls) < 0) {
        tutti_free(gate);
        close(fd);
        return;
    }
    if (gate_open(gate, fd, tls, 8 * door->n_ends) < 0) {
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

/* False: its ends do not agree yet, or never: then it is gone. */
static bool gate_agree(struct door *door, struct gate *gate)
{
    if (!gate->tls || gate->agreed) return true;
    const enum tutti_status status = tutti_tls_agree(gate->tls);
    if (status < 0) {
        const struct tutti_error error = *tutti_last_error();
        gate_refuse(door, gate, error.text);
    } else {
        gate->agreed = status == TUTTI_OK;
    }
    return status == TUTTI_OK;
}

/* Bytes that can not be, or the end of the connection. */
static void gate_wrong(struct door *door, struct gate *gate, bool ended)
{
    const char *shows = gate->opened || gate->tls ? NULL : tutti_tls_shows(gate->in, gate->n_in);
    if (shows) tutti_tls_refuse(gate->fd);
    if (shows || !ended || !gate->proved)
        gate_refuse(door, gate, shows ? shows : ended ? "it went, or sent what can not be" : "it sent what can not be");
    else
        gate_lost(door, gate);
}

void gate_serve(struct door *door, struct gate *gate)
{
    if (!gate_agree(door, gate)) return;
    /* A few reads, and all that came with them, for poll does not tell of it again; then it is the others' turn. */
    gate->n_reads = 0;
    while (gate->n_reads < 4 || frame_whole(gate) > 0) {
        struct gate_frame frame;
        const enum tutti_status status = gate_recv(gate, &frame);
        if (status == TUTTI_PENDING) return;
        if (status == TUTTI_OK && frame_take(door, gate, &frame)) continue;
        gate_wrong(door, gate, status != TUTTI_OK);
        return;
    }
}
