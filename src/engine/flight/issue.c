/* SPDX-License-Identifier: BSD-3-Clause */

/* The scoreboard: per slice a base step and 64 bits of completion. A step is begun when its hazards are clear; local
 * steps complete at once, sends when the transport has given their bytes back (or the receiver read them), receives
 * when the last byte is in place. Messages of one slice leave for a peer in program order, and are granted in program
 * order: what the checker proves with one credit then holds for the oldest slice, which always has one. */

#include "engine/flight/flight.h"
#include "engine/team/report.h"

#include <string.h>

#define MAX_SPANS 32

enum outcome { COMPLETE, BUSY, WAITING, STALLED, BROKEN };

/* Peers that an earlier step of the slice still has to send to (or receive from). */
struct blocked {
    uint64_t filter;
    uint32_t n, peers[TUTTI_WINDOW];
};

static void block(struct blocked *b, uint32_t peer)
{
    b->filter |= UINT64_C(1) << (peer & 63);
    b->peers[b->n++] = peer;
}

static bool is_blocked(const struct blocked *b, uint32_t peer)
{
    if (!(b->filter >> (peer & 63) & 1)) return false;
    for (uint32_t i = 0; i < b->n; i++)
        if (b->peers[i] == peer) return true;
    return false;
}

/* A send that failed for good. */
static enum outcome undeliverable(struct tutti_team *team, struct tutti_slice *slice, uint32_t step, uint32_t peer,
                                  enum tutti_status status)
{
    tutti_report_undelivered(team, slice, step, peer, status);
    return BROKEN;
}

static struct tutti_packet packet_of(const struct tutti_slice *slice, const struct tutti_step *step, uint8_t type,
                                     size_t total)
{
    return (struct tutti_packet){.type = type,
                                 .seq = slice->flight->work.seq,
                                 .slice = slice->index,
                                 .fifo = step->fifo,
                                 .signature = slice->flight->info.signature,
                                 .total = total,
                                 .count = slice->flight->packed_count,
                                 .call = slice->flight->packed_call};
}

/* The spans of at most `limit` bytes of a message from `offset` on; returns their bytes. */
static size_t gather(const struct tutti_slice *slice, const struct tutti_step *step, size_t offset, size_t limit,
                     struct tutti_span spans[MAX_SPANS], uint32_t *n_spans)
{
    struct tutti_operand src = tutti_operand_src(step);
    size_t bytes = 0;

    for (*n_spans = 0; *n_spans < MAX_SPANS && bytes < limit; ++*n_spans) {
        unsigned char *at;
        size_t run = tutti_layout_run(&slice->flight->layout, &src, slice->index, offset + bytes, limit - bytes, &at);
        if (run == 0) break;
        spans[*n_spans] = (struct tutti_span){at, run};
        bytes += run;
    }
    return bytes;
}

static enum outcome send_eager(struct tutti_team *team, struct tutti_slice *slice, const struct tutti_step *step,
                               uint32_t index, size_t total)
{
    struct tutti_channel *channel = &team->channels[step->peer];
    struct tutti_span spans[MAX_SPANS];
    uint8_t in_use = (uint8_t)(channel->sent - channel->returned), credits = tutti_credits_of(team, total);
    uint32_t n_spans;

    if (in_use + credits > TUTTI_CREDITS - (slice == team->order[0] ? 0 : TUTTI_CREDITS_LONG)) return STALLED;
    size_t bytes = gather(slice, step, 0, total, spans, &n_spans);
    if (bytes < total) { /* too many pieces for one packet */
        unsigned char *stage = team->engine->stage;
        for (bytes = 0; bytes < total;) {
            size_t n = gather(slice, step, bytes, total - bytes, spans, &n_spans);
            for (uint32_t i = 0; i < n_spans; i++) {
                memcpy(stage + bytes, spans[i].base, spans[i].bytes);
                bytes += spans[i].bytes;
            }
            if (n == 0) break;
        }
        spans[0] = (struct tutti_span){stage, bytes}, n_spans = 1;
    }
    struct tutti_packet packet = packet_of(slice, step, TUTTI_PACKET_DATA, total);
    packet.flags = TUTTI_PACKET_EAGER | TUTTI_PACKET_LAST;
    packet.bytes = (uint32_t)bytes;
    enum tutti_status status = tutti_team_send(team, step->peer, &packet, spans, n_spans);
    if (status == TUTTI_AGAIN) return STALLED;
    if (status < 0) return undeliverable(team, slice, index, step->peer, status);
    channel->sent = (uint8_t)(channel->sent + credits);
    return COMPLETE;
}

/* Whether the receiver asked for this message; takes the grant. */
static bool grant_take(struct tutti_channel *channel, const struct tutti_slice *slice, const struct tutti_step *step,
                       struct tutti_grant *out)
{
    for (uint32_t i = 0; i < channel->n_grants; i++) {
        struct tutti_grant *grant = &channel->grants[i];
        if (grant->seq != slice->flight->work.seq || grant->slice != slice->index || grant->fifo != step->fifo)
            continue;
        *out = *grant;
        *grant = channel->grants[--channel->n_grants];
        return true;
    }
    return false;
}

/* Offers the message if it is one run of memory that the peer can read. */
static enum outcome send_offer(struct tutti_team *team, struct tutti_slice *slice, const struct tutti_step *step,
                               uint32_t index, size_t total)
{
    struct tutti_operand src = tutti_operand_src(step);
    struct tutti_packet packet = packet_of(slice, step, TUTTI_PACKET_DATA, total);
    unsigned char *at;

    if (tutti_layout_run(&slice->flight->layout, &src, slice->index, 0, total, &at) < total ||
        !tutti_offer_locate(team, step->peer, at, total, &packet.offset))
        return WAITING;
    packet.flags = TUTTI_PACKET_OFFER | TUTTI_PACKET_LAST;
    enum tutti_status status = tutti_team_send(team, step->peer, &packet, NULL, 0);
    if (status == TUTTI_AGAIN) return STALLED;
    if (status < 0) return undeliverable(team, slice, index, step->peer, status);
    team->engine->stats.zero_copy_messages++;
    return BUSY;
}

/* Sends what the transport takes of a granted message; the channel remembers how far it came. */
static enum outcome send_pieces(struct tutti_team *team, struct tutti_slice *slice, const struct tutti_step *step,
                                uint32_t index, size_t total)
{
    struct tutti_channel *channel = &team->channels[step->peer];
    size_t most = team->port->transport->max_payload;
    const struct tutti_loan what = {.team = team, .of = slice, .step = index, .peer = step->peer};

    while (channel->out_offset < total) {
        struct tutti_span spans[MAX_SPANS];
        uint32_t n_spans;
        size_t left = total - channel->out_offset;
        size_t bytes = gather(slice, step, channel->out_offset, left < most ? left : most, spans, &n_spans);
        struct tutti_packet packet = packet_of(slice, step, TUTTI_PACKET_DATA, total);
        packet.offset = channel->out_offset;
        packet.bytes = (uint32_t)bytes;
        if (bytes == left) packet.flags = TUTTI_PACKET_LAST;
        enum tutti_status status = tutti_team_lend(team, step->peer, &packet, spans, n_spans, &what);
        if (status == TUTTI_AGAIN) return STALLED;
        if (status < 0) return undeliverable(team, slice, index, step->peer, status);
        channel->out_offset += bytes;
    }
    channel->out_slice = NULL;
    team->retry = true; /* others may wait for their turn on this channel */
    return tutti_is_lent(team->port, slice, index) ? BUSY : COMPLETE;
}

static enum outcome begin_send(struct tutti_team *team, struct tutti_slice *slice, const struct tutti_step *step,
                               uint32_t index)
{
    struct tutti_channel *channel = &team->channels[step->peer];
    struct tutti_operand src = tutti_operand_src(step);
    struct tutti_grant grant;
    size_t total = tutti_layout_bytes(&slice->flight->layout, &src, slice->index);

    if (total == 0) return COMPLETE;
    if (channel->out_slice == slice) /* program order, or the very message that is under way */
        return channel->out_step == index ? send_pieces(team, slice, step, index, total) : STALLED;
    if (total <= team->eager) return send_eager(team, slice, step, index, total);
    if (channel->out_slice) return STALLED;
    if (!grant_take(channel, slice, step, &grant)) return WAITING;
    if (grant.total != total) {
        tutti_report_sizes(team, slice, index, total, grant.total);
        return BROKEN;
    }
    enum outcome outcome = send_offer(team, slice, step, index, total);
    if (outcome == STALLED) channel->grants[channel->n_grants++] = grant;
    if (outcome != WAITING) return outcome;
    channel->out_slice = slice, channel->out_step = index, channel->out_offset = 0;
    return send_pieces(team, slice, step, index, total);
}

static enum outcome begin_recv(struct tutti_team *team, struct tutti_slice *slice, const struct tutti_step *step,
                               uint32_t index)
{
    struct tutti_channel *channel = &team->channels[step->peer];
    struct tutti_operand dst = tutti_operand_dst(step);
    size_t total = tutti_layout_bytes(&slice->flight->layout, &dst, slice->index);
    bool failed = false;

    if (total == 0) return COMPLETE;
    if (channel->n_held > 0 && tutti_held_take(team, slice, index, &failed)) return COMPLETE;
    if (failed) return BROKEN;
    if (total <= team->eager) return BUSY;
    if (channel->n_incoming >= TUTTI_GRANTS - (slice == team->order[0] ? 0 : 1)) return STALLED;
    struct tutti_packet packet = packet_of(slice, step, TUTTI_PACKET_GRANT, total);
    enum tutti_status status = tutti_team_send(team, step->peer, &packet, NULL, 0);
    if (status == TUTTI_AGAIN) return STALLED;
    if (status < 0) return undeliverable(team, slice, index, step->peer, status);
    for (uint32_t i = 0; i < TUTTI_GRANTS; i++) {
        if (channel->incoming[i].slice) continue;
        channel->incoming[i] = (struct tutti_incoming){.slice = slice, .step = index};
        channel->n_incoming++;
        break;
    }
    return BUSY;
}

void tutti_recv_ask(struct tutti_team *team, const struct tutti_slice *slice, uint32_t index)
{
    const struct tutti_step *step = &slice->flight->bind.schedule->steps[index];
    struct tutti_operand dst = tutti_operand_dst(step);
    size_t total = tutti_layout_bytes(&slice->flight->layout, &dst, slice->index);
    struct tutti_packet packet = packet_of(slice, step, TUTTI_PACKET_GRANT, total);

    if (total > 0 && total <= team->eager) tutti_team_send(team, step->peer, &packet, NULL, 0);
}

static enum outcome begin(struct tutti_team *team, struct tutti_slice *slice, const struct tutti_step *step,
                          uint32_t index, struct blocked *sends, struct blocked *recvs)
{
    if (step->op == TUTTI_STEP_SEND)
        return is_blocked(sends, step->peer) ? WAITING : begin_send(team, slice, step, index);
    if (tutti_step_receives(step))
        return is_blocked(recvs, step->peer) ? WAITING : begin_recv(team, slice, step, index);
    if (step->op == TUTTI_STEP_CALL) return WAITING; /* for its turn on the lane: call.c */
    tutti_step_local(slice, step);
    return COMPLETE;
}

/* Tells the senders of offers that were read. False when the team broke. */
static bool acknowledge(struct tutti_team *team, struct tutti_slice *slice)
{
    for (uint64_t owed = slice->ack; owed;) {
        uint32_t k = (uint32_t)__builtin_clzll(owed), index = slice->base + k;
        const struct tutti_step *step = &slice->flight->bind.schedule->steps[index];
        struct tutti_packet packet = packet_of(slice, step, TUTTI_PACKET_READ, 0);

        owed &= ~tutti_slice_bit(k);
        enum tutti_status status = tutti_team_send(team, step->peer, &packet, NULL, 0);
        if (status == TUTTI_AGAIN) {
            slice->stalled = true;
            continue;
        }
        /* A peer that is gone needs no answer any more. */
        if (status < 0 && !tutti_status_is_gone(status)) {
            undeliverable(team, slice, index, step->peer, status);
            return false;
        }
        tutti_slice_complete(slice, index);
    }
    return true;
}

/* Moves the window past what is complete. */
static bool advance(struct tutti_slice *slice)
{
    uint32_t n = ~slice->done ? (uint32_t)__builtin_clzll(~slice->done) : 64;

    if (n == 0) return false;
    slice->base += n;
    slice->done = n < 64 ? slice->done << n : 0;
    slice->busy = n < 64 ? slice->busy << n : 0;
    slice->ack = n < 64 ? slice->ack << n : 0;
    return true;
}

/* Those steps of `open` that receive, or the others. False when the team broke. */
static bool sweep_part(struct tutti_team *team, struct tutti_slice *slice, uint64_t open, bool receiving, bool *moved)
{
    const struct tutti_schedule *schedule = slice->flight->bind.schedule;
    struct blocked sends, recvs;

    sends.filter = recvs.filter = 0, sends.n = recvs.n = 0; /* the peers need not be written */
    while (open) {
        uint32_t k = (uint32_t)__builtin_clzll(open), index = slice->base + k;
        const struct tutti_step *step = &schedule->steps[index];
        bool sending = step->op == TUTTI_STEP_SEND;
        enum outcome outcome = WAITING;

        open &= ~tutti_slice_bit(k);
        if (tutti_step_receives(step) != receiving) continue;
        if (tutti_step_ready(slice, k)) outcome = begin(team, slice, step, index, &sends, &recvs);
        if (outcome == BROKEN) return false;
        if (outcome == COMPLETE) tutti_slice_complete(slice, index);
        if (outcome == BUSY) slice->busy |= tutti_slice_bit(k);
        if (outcome == COMPLETE || outcome == BUSY) *moved = true;
        if (outcome == STALLED) slice->stalled = true;
        if (outcome != STALLED && outcome != WAITING) continue;
        if (sending)
            block(&sends, step->peer);
        else if (tutti_step_receives(step))
            block(&recvs, step->peer);
    }
    return true;
}

/* One pass over the window. Receives come first: what they ask a peer for would wait behind the bytes that are sent to
 * it, and on a slow link the two directions would take turns. False when the team broke. */
static bool sweep(struct tutti_team *team, struct tutti_slice *slice, bool *moved)
{
    uint32_t left = slice->flight->bind.schedule->n_steps - slice->base;
    uint64_t window = left >= TUTTI_WINDOW ? ~UINT64_C(0) : ~(~UINT64_C(0) >> left);

    return sweep_part(team, slice, ~(slice->done | slice->busy) & window, true, moved) &&
           sweep_part(team, slice, ~(slice->done | slice->busy) & window, false, moved);
}

bool tutti_slice_issue(struct tutti_team *team, struct tutti_slice *slice)
{
    bool moved = false;

    slice->dirty = slice->stalled = false;
    if (slice->ack && !acknowledge(team, slice)) return true;
    advance(slice); /* what has arrived may have been the end */
    do {
        if (tutti_slice_over(slice)) break;
        if (!sweep(team, slice, &moved)) return true;
        slice->dirty = false; /* steps that completed in the sweep were seen by the later ones */
    } while (advance(slice));
    return moved;
}

/* Averages are divided, once all steps of the slice are over: what others were sent is the sum. */
void tutti_slice_finish(struct tutti_slice *slice)
{
    const struct tutti_flight *flight = slice->flight;
    const struct tutti_layout *l = &flight->layout;

    if (!flight->bind.divide || l->kind == TUTTI_BARRIER) return;
    for (uint32_t b = 0; b < l->n_blocks; b++) {
        if (!tutti_layout_visible(l, b)) continue;
        struct tutti_operand all = {.buffer = TUTTI_DATA, .chunk = b * l->per_block, .n = l->per_block};
        size_t total = tutti_layout_bytes(l, &all, slice->index);
        for (size_t at = 0; at < total;) {
            unsigned char *to;
            size_t run = tutti_layout_run(l, &all, slice->index, at, total - at, &to);
            if (run == 0) break;
            flight->bind.divide(to, to, run / l->element, flight->bind.divisor);
            at += run;
        }
    }
}
