/* SPDX-License-Identifier: BSD-3-Clause */
/* More sockets of a peer: pieces of large payloads out and in. What is written to one of them is in the kernel's hands,
 * and nobody knows whether it came: so a path that breaks ends the connection with the peer. */

#include "transport/tcp/peer.h"

#include "base/session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define HEAD TUTTI_TCP_PIECE_HEAD
#define PATH_BIT ((uint64_t)1) /* in what epoll tells: a path; peers are aligned */
#define NUMBER_BITS 6          /* ... and above it which one */
_Static_assert(TUTTI_TCP_PATHS <= 1 << (NUMBER_BITS - 1) && 1 << NUMBER_BITS <= TUTTI_CACHE_LINE, "");
#define AHEAD_MOST 65536 /* packets by which a path may be ahead of their heads */
#define WRITES 4         /* of one path, before others have their turn */

static struct tutti_tcp_leaving *leaving_at(struct tutti_tcp_stripes *s, uint64_t packet)
{
    return &s->leaving[packet % TUTTI_TCP_LEAVING];
}
static struct tutti_tcp_coming *coming_at(struct tutti_tcp_stripes *s, uint64_t packet)
{
    return &s->coming[packet % TUTTI_TCP_COMING];
}
static size_t stripes_bytes(const struct tutti_tcp *tcp)
{
    return sizeof(struct tutti_tcp_stripes) + tcp->base.max_payload;
}

/* ---- paths come and end ---- */

static enum tutti_status stripes_make(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    if (peer->stripes) return TUTTI_OK;
    peer->stripes = tutti_map_lazy(stripes_bytes(tcp));
    if (!peer->stripes) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the sockets of member %u", peer->member);
    peer->stripes->silence_ns = tcp->silence_ns;
    tcp->n_wide++;
    return TUTTI_OK;
}

enum tutti_status tutti_tcp_path_open(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, int fd,
                                      struct tutti_stream *stream)
{
    enum tutti_status status = stripes_make(tcp, peer);
    struct tutti_tcp_stripes *s = peer->stripes;
    if (status == TUTTI_OK && s->n_paths < TUTTI_TCP_PATHS) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                    .data.u64 = (uint64_t)(uintptr_t)peer | PATH_BIT | (uint64_t)s->n_paths << 1};
        if (epoll_ctl(tcp->notices.epoll, EPOLL_CTL_ADD, fd, &event) == 0) {
            struct tutti_tcp_path *path = &s->paths[s->n_paths++];
            *path = (struct tutti_tcp_path){.fd = fd, .stream = stream, .writable = true};
            path->readable = stream != NULL; /* it may hold something, which epoll does not tell */
            s->n_live++;
            path->rate = TUTTI_TCP_RATE_FIRST;
            tutti_tcp_peer_ready(tcp, peer);
            return TUTTI_OK;
        }
        status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "epoll does not take a socket of member %u", peer->member);
    }
    tutti_stream_close(stream);
    close(fd);
    return status;
}

static void path_close(struct tutti_tcp_stripes *s, struct tutti_tcp_path *path)
{
    if (path->fd < 0) return;
    tutti_stream_close(path->stream);
    close(path->fd);
    path->fd = -1, path->stream = NULL;
    path->readable = path->writable = false;
    s->n_live--;
}

/* The address of an end of a socket. */
static const char *end_text(int fd, bool far, char out[INET6_ADDRSTRLEN])
{
    struct sockaddr_in6 end = {.sin6_family = AF_UNSPEC};
    socklen_t bytes = sizeof end;
    const int failed =
        far ? getpeername(fd, (struct sockaddr *)&end, &bytes) : getsockname(fd, (struct sockaddr *)&end, &bytes);
    const void *address =
        end.sin6_family == AF_INET ? (const void *)&((struct sockaddr_in *)&end)->sin_addr : &end.sin6_addr;
    if (failed < 0 || !inet_ntop(end.sin6_family, address, out, INET6_ADDRSTRLEN)) strcpy(out, "?");
    return out;
}

/* Where the peer died, most likely, control tells that, and the first socket is read to its end: it may hold a goodbye.
 * Else its link is gone, which nobody else knows. */
static enum tutti_status path_broke(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_tcp_path *path,
                                    int error)
{
    char ends[2][INET6_ADDRSTRLEN], why[64];
    peer->broke = error != 0 && error != ECONNRESET && error != EPIPE;
    if (peer->broke)
        tutti_fail(TUTTI_ERR_PEER_DEAD,
                   TUTTI_SAYS_CLOSED ": the socket from %s to %s, by which member %u reaches member %u, broke: %s",
                   end_text(path->fd, false, ends[0]), end_text(path->fd, true, ends[1]), tcp->base.me, peer->member,
                   strerror_r(error, why, sizeof why));
    path_close(peer->stripes, path);
    peer->error = error, peer->failed = true;
    tutti_tcp_peer_ready(tcp, peer);
    return peer->broke ? TUTTI_ERR_PEER_DEAD : TUTTI_AGAIN;
}

struct tutti_tcp_peer *tutti_tcp_path_event(uint64_t data, uint32_t events)
{
    if (!(data & PATH_BIT)) return NULL;
    struct tutti_tcp_peer *peer = (struct tutti_tcp_peer *)(uintptr_t)(data & ~(uint64_t)((1 << NUMBER_BITS) - 1));
    struct tutti_tcp_path *path = &peer->stripes->paths[(data & ((1 << NUMBER_BITS) - 1)) >> 1];
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) path->readable = true;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) path->ending = true;
    if (events & EPOLLOUT) path->writable = !path->error;
    return peer;
}

/* ---- out ---- */

bool tutti_tcp_stripes_have_room(const struct tutti_tcp_peer *peer)
{
    const struct tutti_tcp_stripes *s = peer->stripes;
    return !s || (s->end - s->begin < TUTTI_TCP_LEAVING && s->waiting < TUTTI_TCP_LENT * (size_t)(1 + s->n_live));
}

/* Packets that are written, and told, make room. */
static void leaving_settle(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    for (; s->begin < s->end; s->begin++) {
        struct tutti_tcp_leaving *l = leaving_at(s, s->begin);
        if (l->written < l->bytes || !l->told) break;
        tutti_free(l->copy);
        l->copy = NULL;
    }
    tutti_tcp_peer_owes(tcp, peer);
    tutti_tcp_peer_room(tcp, peer);
}

/* The path takes its share of what waits. False: nothing, now. */
static bool piece_take(struct tutti_tcp_stripes *s, struct tutti_tcp_path *path)
{
    if (s->waiting == 0) return false;
    tutti_tcp_paths_measure(s);
    struct tutti_tcp_leaving *l = leaving_at(s, s->next);
    size_t bytes = tutti_tcp_path_share(s, path);
    if (bytes == 0) {
        s->held = true;
        return false;
    }
    if (bytes > l->bytes - l->given) bytes = l->bytes - l->given;
    path->out = (struct tutti_tcp_piece_left){.n_head = HEAD, .packet = s->next, .at = l->given, .left = bytes};
    tutti_le_store(path->out.head, 8, s->next);
    tutti_le_store(path->out.head + 8, 4, l->given), tutti_le_store(path->out.head + 12, 4, bytes);
    l->given += bytes, s->waiting -= bytes;
    if (l->given == l->bytes) s->next++;
    return true;
}

/* The memory of [at, at + bytes) of a list of pieces of memory; returns how many. */
static size_t run_of(const struct tutti_target *of, uint32_t n, size_t at, size_t bytes, struct iovec *iov)
{
    size_t n_iov = 0;
    for (uint32_t i = 0; i < n && bytes > 0; i++) {
        const size_t skip = at < of[i].bytes ? at : of[i].bytes, here = of[i].bytes - skip;
        const size_t run = here < bytes ? here : bytes;
        at -= skip, bytes -= run;
        if (run > 0) iov[n_iov++] = (struct iovec){(uint8_t *)of[i].base + skip, run};
    }
    return n_iov;
}

/* Writes once of the piece under way. False: the socket is full, or broken. */
static bool piece_write(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_tcp_path *path)
{
    struct tutti_tcp_piece_left *out = &path->out;
    struct tutti_tcp_leaving *l = leaving_at(peer->stripes, out->packet);
    struct iovec iov[TUTTI_SPANS_MAX + 1] = {{out->head + HEAD - out->n_head, out->n_head}};
    const size_t first = out->n_head > 0, asked = out->n_head + out->left;
    const size_t n_iov = first + run_of(l->spans, l->n_spans, out->at, out->left, iov + first);
    const ssize_t n = tutti_stream_send(path->stream, path->fd, iov, n_iov);
    if (n < 0 && errno != EAGAIN && errno != EINTR) { /* what came before is read first */
        path->error = errno;
        path->readable = path->ending = true;
        tutti_tcp_peer_ready(tcp, peer);
    }
    size_t gone = n > 0 ? (size_t)n : 0;
    path->n_out += gone, path->queued += gone;
    path->writable = n == (ssize_t)asked;
    const size_t head = gone < out->n_head ? gone : out->n_head;
    out->n_head -= head, gone -= head;
    out->at += gone, out->left -= gone, l->written += gone, peer->stripes->unwritten -= gone;
    if (l->written == l->bytes && !l->told) peer->stripes->n_over++;
    return path->writable;
}

void tutti_tcp_stripes_write(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    const bool held = s->held;
    s->held = false;
    for (uint32_t i = 0; i < s->n_paths && tutti_tcp_stripes_wait(peer); i++) {
        struct tutti_tcp_path *path = &s->paths[i];
        for (int n = 0; n < WRITES && path->writable; n++)
            if ((path->out.left + path->out.n_head == 0 && !piece_take(s, path)) || !piece_write(tcp, peer, path))
                break;
    }
    if (held != s->held) tcp->n_held += s->held ? 1 : -1u;
    if (s->n_over > 0) tutti_tcp_peer_over(tcp, peer);
    leaving_settle(tcp, peer);
}

enum tutti_status tutti_tcp_stripes_add(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer,
                                        const struct tutti_span *spans, uint32_t n_spans, size_t bytes, uint64_t token)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    struct tutti_tcp_leaving *l = leaving_at(s, s->end++);
    l->token = token, l->bytes = bytes, l->given = l->written = 0, l->told = false;
    l->n_spans = n_spans;
    for (uint32_t i = 0; i < n_spans; i++)
        l->spans[i] = (struct tutti_target){(void *)(uintptr_t)spans[i].base, spans[i].bytes};
    s->waiting += bytes, s->unwritten += bytes;
    tutti_tcp_stripes_write(tcp, peer);
    if (l->written < bytes) return TUTTI_PENDING;
    l->told = true, s->n_over--;
    leaving_settle(tcp, peer);
    return TUTTI_OK;
}

static bool leaving_tell(struct tutti_tcp_stripes *s, uint64_t *token)
{
    for (uint64_t i = s->begin; s->n_over > 0 && i < s->end; i++) {
        struct tutti_tcp_leaving *l = leaving_at(s, i);
        if (l->told || l->written < l->bytes) continue;
        l->told = true, s->n_over--;
        *token = l->token;
        return true;
    }
    return false;
}

/* ... or of a placement that was lost. */
static bool coming_tell(struct tutti_tcp_stripes *s, uint64_t *token)
{
    for (uint32_t i = 0; s->ended && s->n_over > 0 && i < TUTTI_TCP_COMING; i++) {
        if (!s->coming[i].open) continue;
        s->coming[i].open = false, s->n_over--;
        *token = s->coming[i].token;
        return true;
    }
    return false;
}

bool tutti_tcp_stripes_tell(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, uint64_t *token)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    if (!s || (!leaving_tell(s, token) && !coming_tell(s, token))) return false;
    leaving_settle(tcp, peer);
    return true;
}

/* ---- in ---- */

enum tutti_status tutti_tcp_stripes_expect(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, bool *out)
{
    TUTTI_TRY(stripes_make(tcp, peer)); /* the other end may have a path before this one */
    *out = !coming_at(peer->stripes, peer->stripes->n_placed)->open;
    return TUTTI_OK;
}

void tutti_tcp_stripes_place(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, const struct tutti_target *targets,
                             uint32_t n, uint64_t token)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    struct tutti_tcp_coming *c = coming_at(s, s->n_placed++);
    const struct tutti_target own = {s->gathered, peer->in.packet.bytes};
    *c = (struct tutti_tcp_coming){.open = true, .gathers = n == 0, .token = token};
    c->bytes = c->left = c->unclaimed = peer->in.packet.bytes;
    c->n_targets = n == 0 ? 1 : n < TUTTI_SPANS_MAX ? n : TUTTI_SPANS_MAX;
    memcpy(c->targets, n == 0 ? &own : targets, c->n_targets * sizeof(*targets));
    s->n_coming++, tcp->n_striped++;
    tutti_tcp_peer_ready(tcp, peer);
}

/* Whether the head of a piece is here, and not yet a place for its packet. */
static bool waits_for_place(const struct tutti_tcp_stripes *s, const struct tutti_tcp_piece_left *in)
{
    return in->n_head == HEAD && tutti_le_load(in->head, 8) - s->n_placed < AHEAD_MOST;
}

/* The head of a piece is here. OK: its bytes can be read. AGAIN: its packet has no place yet. */
static enum tutti_status piece_begin(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_tcp_path *path)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    struct tutti_tcp_piece_left *in = &path->in;
    if (in->left > 0) return TUTTI_OK;
    in->packet = tutti_le_load(in->head, 8);
    const uint64_t at = tutti_le_load(in->head + 8, 4), bytes = tutti_le_load(in->head + 12, 4);
    if (waits_for_place(s, in)) return TUTTI_AGAIN;
    struct tutti_tcp_coming *c = coming_at(s, in->packet);
    if (s->n_placed - in->packet > TUTTI_TCP_COMING || !c->open || bytes == 0 || at + bytes > c->bytes ||
        bytes > c->unclaimed) /* no piece is read when its packet is whole */
        return tutti_fail(TUTTI_ERR_PROTOCOL,
                          "member %u sent to member %u what can not be: bytes %llu to %llu of packet %llu",
                          peer->member, tcp->base.me, (unsigned long long)at, (unsigned long long)(at + bytes),
                          (unsigned long long)in->packet);
    in->at = at, in->left = bytes, in->n_head = 0;
    c->unclaimed -= bytes;
    return TUTTI_OK;
}

/* A packet is whole. OK: *out tells it. */
static enum tutti_status coming_end(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_tcp_coming *c,
                                    struct tutti_event *out)
{
    struct tutti_tcp_in *in = &peer->in;
    c->open = false;
    peer->stripes->n_coming--, tcp->n_striped--;
    in->full = false;
    tutti_tcp_peer_ready(tcp, peer); /* the first socket may have waited for it */
    if (c->skipped) return TUTTI_AGAIN;
    *out = (struct tutti_event){.type = TUTTI_EVENT_DONE, .token = c->token};
    if (!c->gathers) return TUTTI_OK;
    in->reading = TUTTI_TCP_GIVEN, in->next = in->begin;
    *out = (struct tutti_event){.type = TUTTI_EVENT_ARRIVAL, .packet = in->packet, .payload = peer->stripes->gathered};
    return TUTTI_OK;
}

/* n bytes were read. */
static enum tutti_status path_took(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_tcp_path *path,
                                   size_t n, struct tutti_event *out)
{
    struct tutti_tcp_piece_left *in = &path->in;
    struct tutti_tcp_coming *c = coming_at(peer->stripes, in->packet);
    const size_t payload = n < in->left ? n : in->left;
    path->n_in += n;
    if (payload < n) in->n_head += n - payload;
    if (payload == 0) return TUTTI_AGAIN;
    in->at += payload, in->left -= payload, c->left -= payload;
    return c->left == 0 ? coming_end(tcp, peer, c, out) : TUTTI_AGAIN;
}

/* The end of a path: of one that has done its work, or not. */
static enum tutti_status path_ended(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_tcp_path *path,
                                    int error)
{
    const bool works = path->in.left > 0 || path->in.n_head > 0 || path->out.left > 0 || path->out.n_head > 0;
    if (error == EPROTO && path->stream)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "what member %u sent to member %u was changed on its way", peer->member,
                          tcp->base.me);
    if (error || works || (peer->stripes->n_live == 1 && (peer->stripes->n_coming > 0 || peer->stripes->waiting > 0)))
        return path_broke(tcp, peer, path, error);
    path_close(peer->stripes, path);
    return TUTTI_AGAIN;
}

/* Reads once, at most. */
static enum tutti_status path_read(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_tcp_path *path,
                                   struct tutti_event *out)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    struct tutti_tcp_piece_left *in = &path->in;
    struct iovec iov[TUTTI_SPANS_MAX + 1];
    size_t n_iov = 0, payload = 0;
    if (in->n_head == HEAD) TUTTI_TRY(piece_begin(tcp, peer, path));
    if (in->n_head == HEAD) return TUTTI_AGAIN;
    if (in->left > 0) {
        const struct tutti_tcp_coming *c = coming_at(s, in->packet);
        payload = c->skipped && in->left > sizeof(s->scrap) ? sizeof(s->scrap) : in->left;
        const struct tutti_target scrap = {s->scrap, payload};
        n_iov =
            c->skipped ? run_of(&scrap, 1, 0, payload, iov) : run_of(c->targets, c->n_targets, in->at, payload, iov);
    }
    if (payload == in->left) iov[n_iov++] = (struct iovec){in->head + in->n_head, HEAD - in->n_head};
    const size_t asked = payload + (payload == in->left ? HEAD - in->n_head : 0);
    const ssize_t n = tutti_stream_recv(path->stream, path->fd, iov, n_iov);
    if (n < 0 && errno == EINTR) return TUTTI_AGAIN;
    if (n < 0 && errno == EAGAIN && !path->error) {
        path->readable = false;
        return TUTTI_AGAIN;
    }
    if (n <= 0) return path_ended(tcp, peer, path, path->error ? path->error : n < 0 ? errno : 0);
    if ((size_t)n < asked) tutti_tcp_path_confirm(path);
    if ((size_t)n < asked && !path->ending) path->readable = false; /* epoll tells of more */
    return path_took(tcp, peer, path, (size_t)n, out);
}

/* Whether it has to be read: its next piece may wait for a place. */
static bool path_due(const struct tutti_tcp_stripes *s, const struct tutti_tcp_path *path)
{
    return path->readable && !waits_for_place(s, &path->in);
}

bool tutti_tcp_stripes_have_work(const struct tutti_tcp_peer *peer)
{
    const struct tutti_tcp_stripes *s = peer->stripes;
    for (uint32_t i = 0; s && i < s->n_paths; i++) {
        const struct tutti_tcp_path *path = &s->paths[i];
        if (path_due(s, path)) return true;
        if (path->writable && (path->out.left + path->out.n_head > 0 || (s->waiting > 0 && !s->held))) return true;
    }
    return false;
}

enum tutti_status tutti_tcp_stripes_turn(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer, struct tutti_event *out)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    if (tutti_tcp_stripes_wait(peer)) tutti_tcp_stripes_write(tcp, peer);
    const uint32_t first = s->turn++;
    for (uint32_t i = 0; i < s->n_paths; i++) {
        struct tutti_tcp_path *path = &s->paths[(first + i) % s->n_paths];
        for (int n = 0; n < 2 && path_due(s, path); n++) { /* a head, and what is behind it */
            const enum tutti_status status = path_read(tcp, peer, path, out);
            if (status != TUTTI_AGAIN) return status;
        }
    }
    return TUTTI_AGAIN;
}

/* ---- memory is taken back, and the end ---- */

static bool leaving_own(struct tutti_tcp_leaving *l)
{
    struct tutti_tcp_copy *copy = tutti_alloc(sizeof(*copy) + l->bytes);
    if (!copy) return false;
    size_t at = 0;
    for (uint32_t i = 0; i < l->n_spans; at += l->spans[i++].bytes)
        if (l->spans[i].bytes > 0) memcpy(copy->bytes + at, l->spans[i].base, l->spans[i].bytes);
    l->copy = copy;
    l->n_spans = 1, l->spans[0] = (struct tutti_target){copy->bytes, l->bytes};
    return true;
}

bool tutti_tcp_stripes_cancel(struct tutti_tcp_peer *peer, uint64_t token, bool *lost)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    for (uint64_t i = s->begin; i < s->end; i++) {
        struct tutti_tcp_leaving *l = leaving_at(s, i);
        if (l->told || l->token != token) continue;
        if (l->written == l->bytes) s->n_over--;
        l->told = true;
        *lost = l->written < l->bytes && !leaving_own(l);
        return true;
    }
    for (uint32_t i = 0; i < TUTTI_TCP_COMING; i++) {
        struct tutti_tcp_coming *c = &s->coming[i];
        if (!c->open || c->gathers || c->skipped || c->token != token) continue;
        c->skipped = true;
        if (s->ended) c->open = false, s->n_over--;
        return true;
    }
    return false;
}

bool tutti_tcp_stripes_hold(const struct tutti_tcp_peer *peer)
{
    const struct tutti_tcp_stripes *s = peer->stripes;
    for (uint32_t i = 0; s && i < s->n_paths; i++) {
        int bytes = 0;
        const struct tutti_tcp_path *path = &s->paths[i];
        if (path->fd < 0) continue;
        if (tutti_stream_holds(path->stream) || (ioctl(path->fd, FIONREAD, &bytes) == 0 && bytes > 0)) return true;
    }
    return false;
}

void tutti_tcp_stripes_check(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    tutti_tcp_paths_measure(peer->stripes);
    if (peer->fd >= 0 && tutti_tcp_stripes_have_work(peer)) tutti_tcp_peer_ready(tcp, peer);
}

void tutti_tcp_stripes_drain(struct tutti_tcp_peer *peer)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    for (uint32_t i = 0; i < s->n_paths; i++) {
        struct iovec iov = {s->scrap, sizeof(s->scrap)};
        if (s->paths[i].fd < 0) continue;
        while (tutti_stream_recv(s->paths[i].stream, s->paths[i].fd, &iov, 1) > 0) continue;
    }
}

uint32_t tutti_tcp_stripes_watch(struct tutti_tcp_peer *peer, struct pollfd *fds)
{
    const struct tutti_tcp_stripes *s = peer->stripes;
    uint32_t n = 0;
    for (uint32_t i = 0; s && i < s->n_paths; i++) {
        struct tutti_tcp_path *path = &peer->stripes->paths[i];
        if (path->fd < 0) continue;
        path->writable = !path->error; /* it is tried */
        fds[n++] = (struct pollfd){.fd = path->fd, .events = POLLIN | (s->unwritten > 0 ? POLLOUT : 0)};
    }
    return n;
}

void tutti_tcp_stripes_finish(struct tutti_tcp_peer *peer)
{
    for (uint32_t i = 0; i < peer->stripes->n_paths; i++) {
        const struct tutti_tcp_path *path = &peer->stripes->paths[i];
        if (path->fd < 0) continue;
        if (path->stream) path->stream->ops->finish(path->stream);
        shutdown(path->fd, SHUT_WR);
    }
}

/* Its sockets are closed; what was lent is over, or lost. */
void tutti_tcp_stripes_end(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    for (uint32_t i = 0; i < s->n_paths; i++) path_close(s, &s->paths[i]);
    if (s->held) tcp->n_held--;
    s->held = false;
    for (uint64_t i = s->begin; i < s->end; i++) {
        struct tutti_tcp_leaving *l = leaving_at(s, i);
        if (l->written < l->bytes && !l->told) s->n_over++;
        l->written = l->bytes;
    }
    s->waiting = s->unwritten = 0, s->next = s->end;
    for (uint32_t i = 0; i < TUTTI_TCP_COMING; i++) {
        struct tutti_tcp_coming *c = &s->coming[i];
        c->open = c->open && !c->skipped && !c->gathers;
        s->n_over += c->open;
    }
    tcp->n_striped -= s->n_coming;
    s->n_coming = 0;
    s->ended = true;
}

void tutti_tcp_stripes_free(struct tutti_tcp *tcp, struct tutti_tcp_peer *peer)
{
    struct tutti_tcp_stripes *s = peer->stripes;
    if (!s) return;
    for (uint32_t i = 0; i < TUTTI_TCP_LEAVING; i++) tutti_free(s->leaving[i].copy);
    tutti_unmap(s, stripes_bytes(tcp));
}
