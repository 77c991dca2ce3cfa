/* SPDX-License-Identifier: BSD-3-Clause */
/* From the bytes of a socket to events. What fits into the window is read with its head, and arrives from the buffer. A
 * larger payload is asked about when its head is here, and the rest of it is read where it belongs, together with the
 * head after it. Nothing is believed before it was checked. */

#include "transport/tcp/peer.h"

#include "base/session.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define HEAD TUTTI_PACKET_WIRE_BYTES
#define ALIGNMENT ((size_t)16)

/* ---- what was read ---- */

static enum tutti_status nonsense(const struct tutti_tcp *tcp, const struct tutti_tcp_peer *peer)
{
    const struct tutti_error why = *tutti_last_error();
    return tutti_fail(TUTTI_ERR_PROTOCOL, "member %u sent to member %u what can not be: %.200s", peer->member,
                      tcp->base.me, why.text);
}

/* The head in the buffer. PEER_LEFT: it is a goodbye, and nothing that was sent before is under way. */
static enum tutti_status decode(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    struct tutti_tcp_in *in = &peer->in;
    uint8_t *head = in->buffer + in->begin, whole[HEAD];
    if (head[0] == TUTTI_WIRE_VERSION && head[1] == TUTTI_TCP_GOODBYE) {
        in->full = peer->stripes && peer->stripes->n_coming > 0 && !peer->failed;
        return in->full ? TUTTI_AGAIN : TUTTI_ERR_PEER_LEFT;
    }
    in->striped = head[1] & TUTTI_TCP_STRIPED;
    if (in->striped) {
        memcpy(whole, head, HEAD);
        whole[1] &= (uint8_t)~TUTTI_TCP_STRIPED, head = whole;
    }
    if (tutti_packet_decode(head, HEAD, &in->packet) < 0) return nonsense(tcp, peer);
    if (!tutti_packet_valid(&in->packet, tcp->base.max_payload)) {
        tutti_fail(TUTTI_ERR_PROTOCOL, "a payload of %u bytes, of at most %zu", in->packet.bytes,
                   tcp->base.max_payload);
        return nonsense(tcp, peer);
    }
    in->packet.source = peer->member; /* the socket tells who, not the packet */
    return TUTTI_OK;
}

static void give_arrival(struct tutti_tcp_in *in, struct tutti_event *out)
{
    uint8_t *payload = in->buffer + in->begin + HEAD;
    uint8_t *aligned = in->buffer + (in->begin + HEAD) / ALIGNMENT * ALIGNMENT;
    if (payload != aligned) memmove(aligned, payload, in->packet.bytes); /* over its head, which is known */
    in->next = in->begin + HEAD + in->packet.bytes;
    in->reading = TUTTI_TCP_GIVEN;
    *out = (struct tutti_event){.type = TUTTI_EVENT_ARRIVAL, .packet = in->packet, .payload = aligned};
}

/* What the dialer needs for more sockets. OK: it is behind us; AGAIN: it is not whole. */
static enum tutti_status read_told(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    struct tutti_tcp_in *in = &peer->in;
    const uint8_t *head = in->buffer + in->begin;
    const size_t bytes = (size_t)tutti_le_load(head + offsetof(struct tutti_packet, bytes), 4);
    if (bytes > TUTTI_TCP_TOLD_MOST) {
        tutti_fail(TUTTI_ERR_PROTOCOL, "%zu bytes about more sockets", bytes);
        return nonsense(tcp, peer);
    }
    if (in->end - in->begin < HEAD + bytes) return TUTTI_AGAIN;
    if (tcp->dialer->widen) tcp->dialer->widen(tcp->dialer, peer->member, head + HEAD, bytes);
    in->next = in->begin + HEAD + bytes;
    tutti_tcp_in_release(in);
    return TUTTI_OK;
}

/* A packet of which the head alone is here. */
static enum tutti_status give_header(struct tutti_tcp_in *in, size_t next, struct tutti_event *out)
{
    in->next = next;
    in->reading = TUTTI_TCP_GIVEN;
    *out = (struct tutti_event){.type = TUTTI_EVENT_HEADER, .packet = in->packet};
    return TUTTI_OK;
}

/* The next event of what is in the buffer. AGAIN: it is not enough. */
static enum tutti_status parse(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_event *out)
{
    struct tutti_tcp_in *in = &peer->in;
    if (in->reading != TUTTI_TCP_HEAD && in->reading != TUTTI_TCP_WHOLE) return TUTTI_AGAIN;
    while (in->end - in->begin >= HEAD && in->buffer[in->begin + 1] == TUTTI_TCP_TOLD &&
           in->buffer[in->begin] == TUTTI_WIRE_VERSION)
        TUTTI_TRY(read_told(tcp, peer));
    const size_t here = in->end - in->begin;
    if (here < HEAD || in->full) return TUTTI_AGAIN;
    TUTTI_TRY(decode(tcp, peer));
    if (in->striped) {
        bool place;
        TUTTI_TRY(tutti_tcp_stripes_expect(tcp, peer, &place));
        in->full = !place;
        return place ? give_header(in, in->begin + HEAD, out) : TUTTI_AGAIN;
    }
    if (here >= HEAD + in->packet.bytes) {
        if (in->reading == TUTTI_TCP_HEAD && in->packet.bytes > 0) in->large = false;
        give_arrival(in, out);
        return TUTTI_OK;
    }
    if (in->reading == TUTTI_TCP_WHOLE || HEAD + in->packet.bytes <= TUTTI_TCP_WINDOW) return TUTTI_AGAIN;
    in->large = true;
    tutti_tcp_tell(tcp, peer);
    return give_header(in, in->end, out); /* all that is here is of this packet */
}

/* ---- answers to events ---- */

void tutti_tcp_in_release(struct tutti_tcp_in *in)
{
    in->reading = TUTTI_TCP_HEAD;
    in->begin = in->next;
    if (in->begin == in->end) in->begin = in->end = 0;
}

/* n bytes of the payload were read: the next targets begin after them. */
static void move_on(struct tutti_tcp_in *in, size_t n)
{
    in->left -= n;
    while (n > 0) {
        struct tutti_target *target = &in->targets[in->target];
        const size_t run = n < target->bytes ? n : target->bytes;
        target->base = (uint8_t *)target->base + run, target->bytes -= run, n -= run;
        if (target->bytes == 0) in->target++;
    }
}

void tutti_tcp_in_place(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, const struct tutti_target *targets,
                        uint32_t n, uint64_t token)
{
    struct tutti_tcp_in *in = &peer->in;
    if (in->striped) {
        tutti_tcp_in_release(in); /* the head */
        if (n == 0) in->reading = TUTTI_TCP_GATHERED;
        tutti_tcp_stripes_place(tcp, peer, targets, n, token);
        return;
    }
    if (n == 0) {
        memmove(in->buffer, in->buffer + in->begin, in->end - in->begin);
        in->end -= in->begin, in->begin = 0;
        in->reading = TUTTI_TCP_WHOLE;
        return;
    }
    in->reading = TUTTI_TCP_PLACED;
    in->token = token, in->left = in->packet.bytes;
    in->target = 0, in->n_targets = n < TUTTI_SPANS_MAX ? n : TUTTI_SPANS_MAX;
    memcpy(in->targets, targets, in->n_targets * sizeof(*targets));
    in->begin += HEAD;
    while (in->begin < in->end) { /* what came with the head; it is less than the payload */
        struct tutti_target *target = &in->targets[in->target];
        const size_t here = in->end - in->begin, run = here < target->bytes ? here : target->bytes;
        if (run > 0) memcpy(target->base, in->buffer + in->begin, run);
        if (run == 0) in->target++;
        in->begin += run;
        move_on(in, run);
    }
    in->begin = in->end = 0;
}

/* ---- reading ---- */

/* What is to be read next; returns its bytes. */
static size_t prepare(struct tutti_tcp_in *in, struct iovec *iov, size_t *n_iov)
{
    size_t bytes = 0;
    *n_iov = 0;
    if (in->reading == TUTTI_TCP_PLACED) {
        for (uint32_t i = in->target; i < in->n_targets; i++) {
            if (in->targets[i].bytes == 0) continue;
            iov[(*n_iov)++] = (struct iovec){in->targets[i].base, in->targets[i].bytes};
        }
        iov[(*n_iov)++] = (struct iovec){in->buffer, HEAD};
        return in->left + HEAD;
    }
    if (in->reading == TUTTI_TCP_SKIPPED) {
        bytes = in->left < TUTTI_TCP_WINDOW ? in->left : TUTTI_TCP_WINDOW;
        iov[(*n_iov)++] = (struct iovec){in->buffer, bytes};
        return bytes;
    }
    const size_t here = in->end - in->begin;
    if (in->begin > 0 && (in->reading == TUTTI_TCP_WHOLE || in->end + HEAD > TUTTI_TCP_WINDOW || here < HEAD)) {
        memmove(in->buffer, in->buffer + in->begin, here);
        in->begin = 0, in->end = here;
    }
    if (in->reading == TUTTI_TCP_WHOLE)
        bytes = 2 * HEAD + in->packet.bytes - in->end;
    else if (in->large && here < HEAD)
        bytes = HEAD - here;
    else
        bytes = TUTTI_TCP_WINDOW - in->end;
    iov[(*n_iov)++] = (struct iovec){in->buffer + in->end, bytes};
    return bytes;
}

/* n bytes were read. OK: a payload is where it was placed. */
static enum tutti_status take(struct tutti_tcp_in *in, size_t n, struct tutti_event *out)
{
    if (in->reading != TUTTI_TCP_PLACED && in->reading != TUTTI_TCP_SKIPPED) {
        in->end += n;
        return TUTTI_AGAIN;
    }
    const bool placed = in->reading == TUTTI_TCP_PLACED;
    const size_t payload = n < in->left ? n : in->left;
    if (placed)
        move_on(in, payload);
    else
        in->left -= payload;
    in->end = n - payload; /* the end of the head after it */
    if (in->left > 0) return TUTTI_AGAIN;
    in->reading = TUTTI_TCP_HEAD;
    if (!placed) return TUTTI_AGAIN;
    *out = (struct tutti_event){.type = TUTTI_EVENT_DONE, .token = in->token};
    return TUTTI_OK;
}

enum tutti_status tutti_tcp_in_turn(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_event *out)
{
    struct tutti_tcp_in *in = &peer->in;
    struct iovec iov[TUTTI_SPANS_MAX + 1];
    size_t n_iov;
    enum tutti_status status = parse(tcp, peer, out);
    if (status != TUTTI_AGAIN) return status;
    if (tutti_tcp_in_waits(in)) return tutti_tcp_in_vain(peer) ? TUTTI_ERR_PEER_DEAD : TUTTI_AGAIN;
    const size_t asked = prepare(in, iov, &n_iov);
    const ssize_t n = tutti_stream_recv(peer->stream, peer->fd, iov, n_iov);
    if (n < 0 && errno == EINTR) return TUTTI_AGAIN;
    if (n < 0 && errno == EAGAIN && !peer->failed) {
        peer->readable = false;
        return TUTTI_AGAIN;
    }
    if (n < 0 && peer->stream && errno == EPROTO)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "what member %u sent to member %u was changed on its way", peer->member,
                          tcp->base.me);
    if (n <= 0) {
        if (n < 0 && errno != EAGAIN) peer->error = errno;
        return TUTTI_ERR_PEER_DEAD; /* a peer that leaves says goodbye */
    }
    if ((size_t)n < asked && !peer->ending && !peer->failed) peer->readable = false;   /* epoll tells of more */
    if ((size_t)n == asked && tutti_stream_holds(peer->stream)) peer->readable = true; /* epoll told of it before */
    status = take(in, (size_t)n, out);
    return status == TUTTI_AGAIN ? parse(tcp, peer, out) : status;
}
