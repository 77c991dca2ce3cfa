/* SPDX-License-Identifier: BSD-3-Clause */
/* How peers come and end. Over the socket each end says hello once: what follows here, little endian; and goodbye when
 * it leaves in order. A socket that ends without it is a death.
 *
 *   hello: "tuOF" u32, version u32, secret u64 (what frames to the sender must bear), copied u32, bytes of the name
 *          u32, hash of the provider's name u64, zeros, name of the endpoint (128 bytes)
 *   goodbye: "tuBY" u32, zero u32, frames that were sent u64 */

#include "transport/ofi/state.h"

#include "base/session.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO UINT32_C(0x464f7574)
#define GOODBYE UINT32_C(0x59427574)
#define HELLO_VERSION 1u
#define NAME_AT (TUTTI_OFI_HELLO - 128)
#define EVENTS 64
#define LEAVES_NS TUTTI_NS_PER_S       /* for what a peer sent before its goodbye */
#define DIES_NS (20 * TUTTI_NS_PER_MS) /* for what a peer sent before it died */
#define STUCK_NS TUTTI_NS_PER_S        /* for the provider to give back what it has for a peer that ended */

/* ---- lists ---- */

void tutti_ofi_peer_ready(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    if (peer->ready) return;
    peer->ready = true, peer->next_ready = NULL;
    *(ofi->first_ready ? &ofi->last_ready->next_ready : &ofi->first_ready) = peer;
    ofi->last_ready = peer;
}

struct tutti_ofi_peer *tutti_ofi_ready_take(struct tutti_ofi *ofi)
{
    struct tutti_ofi_peer *peer = ofi->first_ready;
    if (peer) ofi->first_ready = peer->next_ready, peer->ready = false;
    return peer;
}

/* ---- memory of a peer ---- */

static size_t buffers_at(void)
{
    return (sizeof(struct tutti_ofi_peer) + 4095) / 4096 * 4096;
}

static void buffers_divide(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, void *desc)
{
    uint8_t *at = (uint8_t *)peer + buffers_at();
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(peer->tx); i++, at += ofi->frame_bytes) {
        peer->tx[i] = (struct tutti_ofi_tx){
            .op = {.kind = TUTTI_OFI_FRAME, .peer = peer}, .next = peer->free, .data = at, .desc = desc};
        peer->free = &peer->tx[i];
    }
    for (uint32_t i = 0; i < TUTTI_OFI_RECEIVES; i++, at += ofi->frame_bytes)
        peer->rx[i] = (struct tutti_ofi_rx){.op = {.kind = TUTTI_OFI_RECEIVE}, .data = at, .desc = desc};
    for (uint32_t i = 0; i < TUTTI_OFI_CONTROLS; i++, at += TUTTI_CACHE_LINE) {
        peer->control[i] = (struct tutti_ofi_tx){
            .op = {.kind = TUTTI_OFI_CONTROL, .peer = peer}, .next = peer->free_control, .data = at, .desc = desc};
        peer->free_control = &peer->control[i];
    }
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) {
        peer->out[i].op = (struct tutti_ofi_op){.kind = TUTTI_OFI_LARGE_OUT, .peer = peer};
        peer->in[i].op = (struct tutti_ofi_op){.kind = TUTTI_OFI_LARGE_IN, .peer = peer};
    }
}

enum tutti_status tutti_ofi_peer_make(struct tutti_ofi *ofi, uint32_t member, struct tutti_ofi_peer **out)
{
    const size_t buffers = (TUTTI_OFI_WINDOW + 2 + TUTTI_OFI_RECEIVES) * ofi->frame_bytes + 4096;
    const size_t bytes = buffers_at() + buffers + 2 * TUTTI_OFI_PAYLOAD;
    const bool self = member == ofi->base.me;
    void *desc = NULL;
    enum tutti_status status = TUTTI_OK;
    if (!ofi->ep)
        return tutti_fail(TUTTI_ERR_SYSTEM, "transport ofi: the endpoint of member %u is closed", ofi->base.me);
    struct tutti_ofi_peer *peer = tutti_map_lazy(bytes);
    if (!peer) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the buffers of member %u", member);
    peer->member = member, peer->fd = -1, peer->mapped = bytes, peer->leaves_at = UINT64_MAX;
    peer->out_slab = (uint8_t *)peer + buffers_at() + buffers, peer->in_slab = peer->out_slab + TUTTI_OFI_PAYLOAD;
    status = tutti_random_bytes(&peer->secret_in, sizeof(peer->secret_in));
    if (status == TUTTI_OK && !self)
        status = tutti_ofi_register(ofi, (uint8_t *)peer + buffers_at(), buffers, &peer->mr, &desc);
    if (status != TUTTI_OK) {
        tutti_unmap(peer, bytes);
        return status < 0 ? status : tutti_fail(TUTTI_ERR_SYSTEM, "transport ofi: no room to register buffers");
    }
    buffers_divide(ofi, peer, desc);
    peer->next = ofi->peers, ofi->peers = peer;
    ofi->members[member].peer = peer;
    if (self)
        ofi->self = peer;
    else
        for (uint32_t i = 0; i < TUTTI_OFI_RECEIVES; i++) tutti_ofi_post(ofi, &peer->rx[i]);
    *out = peer;
    return TUTTI_OK;
}

void tutti_ofi_peer_free(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    (void)ofi;
    if (peer->fd >= 0) close(peer->fd);
    if (peer->mr) fi_close(&peer->mr->fid);
    tutti_unmap(peer, peer->mapped);
}

/* ---- it ends ---- */

void tutti_ofi_peer_ends(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, enum tutti_status status)
{
    const bool left = status == TUTTI_ERR_PEER_LEFT; /* it said so: a provider may have told of a broken end before */
    if (peer->ended || (peer->ending && (!left || peer->status == TUTTI_ERR_PEER_LEFT))) return;
    if (!peer->ending) ofi->n_ending++;
    peer->ending = true, peer->status = status;
    peer->until_ns = tutti_deadline_ns(left ? LEAVES_NS : DIES_NS);
}

static bool has_flying(const struct tutti_ofi_peer *peer)
{
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++)
        if (peer->out[i].stage == TUTTI_OFI_FLIES || peer->in[i].stage == TUTTI_OFI_FLIES) return true;
    return false;
}

static void large_ends(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    if (large->stage == TUTTI_OFI_WAITS || large->stage == TUTTI_OFI_GOES)
        tutti_ofi_large_done(ofi, large, large->op.peer->status);
    else if (large->stage == TUTTI_OFI_FLIES && ofi->ep)
        fi_cancel(&ofi->ep->fid, &large->op);
}

void tutti_ofi_peer_end(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, enum tutti_status status)
{
    if (peer->ended) return;
    if (!peer->ending) ofi->n_ending++;
    peer->ended = true, peer->status = status;
    if (peer->fd >= 0) close(peer->fd); /* and epoll forgets it */
    peer->fd = -1;
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) large_ends(ofi, &peer->out[i]), large_ends(ofi, &peer->in[i]);
    peer->until_ns = tutti_deadline_ns(STUCK_NS);
    if (peer->wants_room) peer->wants_room = false, ofi->room = true;
    tutti_log(TUTTI_LOG_DEBUG, "transport ofi: the socket of member %u ended: %s", peer->member,
              status == TUTTI_ERR_PEER_LEFT ? "it has left" : "closed by peer");
}

/* ---- what a socket says ---- */

static uint64_t provider_hash(const struct tutti_ofi *ofi)
{
    const char *name = ofi->info->fabric_attr->prov_name;
    return tutti_hash64(name, strlen(name), ofi->info->addr_format);
}

static bool say_hello(struct tutti_ofi *ofi, const struct tutti_ofi_peer *peer)
{
    uint8_t hello[TUTTI_OFI_HELLO] = {0};
    tutti_le_store(hello, 4, HELLO);
    tutti_le_store(hello + 4, 4, HELLO_VERSION);
    tutti_le_store(hello + 8, 8, peer->secret_in);
    tutti_le_store(hello + 16, 4, ofi->base.copied);
    tutti_le_store(hello + 20, 4, ofi->name_bytes);
    tutti_le_store(hello + 24, 8, provider_hash(ofi));
    memcpy(hello + NAME_AT, ofi->name, ofi->name_bytes);
    return send(peer->fd, hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(hello);
}

void tutti_ofi_goodbye(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    uint8_t goodbye[TUTTI_OFI_GOODBYE] = {0};
    (void)ofi;
    if (peer->fd < 0 || peer->ended) return;
    tutti_le_store(goodbye, 4, GOODBYE);
    tutti_le_store(goodbye + 8, 8, peer->submitted);
    if (send(peer->fd, goodbye, sizeof(goodbye), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(goodbye))
        shutdown(peer->fd, SHUT_WR);
}

/* Takes a whole hello. False: it makes no sense. */
static bool take_hello(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    const uint8_t *hello = peer->told;
    if (tutti_le_load(hello, 4) != HELLO || tutti_le_load(hello + 4, 4) != HELLO_VERSION) return false;
    if (tutti_le_load(hello + 16, 4) != ofi->base.copied || tutti_le_load(hello + 20, 4) > 128 ||
        tutti_le_load(hello + 24, 8) != provider_hash(ofi)) {
        tutti_log(TUTTI_LOG_WARN, "transport ofi: member %u uses another provider than member %u, which is '%s'",
                  peer->member, ofi->base.me, ofi->info->fabric_attr->prov_name);
        return false;
    }
    peer->secret_out = tutti_le_load(hello + 8, 8);
    if (!ofi->ep || fi_av_insert(ofi->av, hello + NAME_AT, 1, &peer->address, 0, NULL) != 1) return false;
    peer->met = true;
    tutti_ofi_frames_submit(ofi, peer);
    return true;
}

static void read_socket(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    while (peer->fd >= 0 && !peer->ended) {
        const size_t whole = peer->met ? TUTTI_OFI_GOODBYE : TUTTI_OFI_HELLO;
        const ssize_t n = recv(peer->fd, peer->told + peer->n_told, whole - peer->n_told, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) { /* nothing more is said, and epoll is not to tell so again */
            epoll_ctl(ofi->epoll, EPOLL_CTL_DEL, peer->fd, NULL);
            tutti_ofi_peer_ends(ofi, peer, TUTTI_ERR_PEER_DEAD);
            return;
        }
        peer->n_told += (uint32_t)n;
        if (peer->n_told < whole) continue;
        peer->n_told = 0;
        if (!peer->met) {
            if (!take_hello(ofi, peer)) tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PROTOCOL);
        } else if (tutti_le_load(peer->told, 4) == GOODBYE) {
            peer->leaves_at = (uint32_t)tutti_le_load(peer->told + 8, 8);
            tutti_ofi_peer_ends(ofi, peer, TUTTI_ERR_PEER_LEFT);
        } else {
            tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PROTOCOL);
        }
    }
}

/* What is due of peers that end. */
static void look_after(struct tutti_ofi *ofi)
{
    const uint64_t now = tutti_now_ns();
    for (struct tutti_ofi_peer *peer = ofi->peers; peer && ofi->n_ending > 0; peer = peer->next) {
        if (!peer->until_ns) continue;
        if (!peer->ended && now >= peer->until_ns) read_socket(ofi, peer); /* what it said last */
        if (!peer->ended && peer->until_ns > now && peer->leaves_at != peer->taken) continue;
        const bool left = peer->status == TUTTI_ERR_PEER_LEFT && peer->leaves_at == peer->taken;
        if (!peer->ended && (left || now >= peer->until_ns)) tutti_ofi_peer_end(ofi, peer, peer->status);
        if (!peer->ended) continue;
        if (has_flying(peer) && now >= peer->until_ns)
            tutti_ofi_break(ofi, "its provider does not give back what it has for a peer that ended");
        if (!has_flying(peer)) peer->until_ns = 0, ofi->n_ending--;
    }
}

void tutti_ofi_sockets(struct tutti_ofi *ofi)
{
    struct epoll_event events[EVENTS];
    const int n = epoll_wait(ofi->epoll, events, EVENTS, 0);
    ofi->n_polls = 0;
    for (int i = 0; i < n; i++) {
        struct tutti_ofi_peer *peer = events[i].data.ptr;
        if (peer && (void *)peer != (void *)ofi) read_socket(ofi, peer); /* else wake's, or the queue's */
    }
    if (ofi->n_ending > 0) {
        tutti_ofi_progress(ofi); /* what came before the end */
        look_after(ofi);
    }
}

/* ---- what other threads tell ---- */

void tutti_ofi_ring(struct tutti_ofi *ofi)
{
    const uint64_t one = 1;
    if (atomic_load(&ofi->sleeping) && write(ofi->event, &one, sizeof(one)) < 0)
        tutti_log(TUTTI_LOG_WARN, "transport ofi: member %u can not be woken", ofi->base.me);
}

void tutti_ofi_wake(struct tutti_transport *t)
{
    atomic_store(&tutti_ofi_of(t)->woken, true);
    tutti_ofi_ring(tutti_ofi_of(t));
}

/* The lock is held on entry, and given back. */
static void tell(struct tutti_ofi *ofi, uint32_t member)
{
    struct tutti_ofi_member *m = &ofi->members[member];
    if (!m->told) {
        m->told = true;
        m->next_told = ofi->first_told, ofi->first_told = member;
    }
    atomic_store(&ofi->news, true);
    pthread_mutex_unlock(&ofi->lock);
    tutti_ofi_ring(ofi);
}

void tutti_ofi_connected(struct tutti_transport *t, uint32_t peer, int fd)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    struct tutti_ofi_member *m = peer < t->n ? &ofi->members[peer] : NULL;
    pthread_mutex_lock(&ofi->lock);
    if (!m || m->told_fd) {
        pthread_mutex_unlock(&ofi->lock);
        close(fd);
        return;
    }
    m->told_fd = fd + 1;
    tell(ofi, peer);
}

void tutti_ofi_failed(struct tutti_transport *t, uint32_t peer, enum tutti_status status)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    if (peer >= t->n) return;
    pthread_mutex_lock(&ofi->lock);
    ofi->members[peer].told_status = status;
    tell(ofi, peer);
}

void tutti_ofi_cut(struct tutti_transport *t, uint32_t peer)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    if (peer >= t->n) return;
    atomic_store(&ofi->members[peer].cut, true);
    pthread_mutex_lock(&ofi->lock);
    tell(ofi, peer);
}

/* The socket belongs to the peer, or is closed. */
static void attach(struct tutti_ofi *ofi, uint32_t member, int fd)
{
    struct tutti_ofi_peer *peer = ofi->members[member].peer;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    if ((peer && (peer->fd >= 0 || peer->ended)) || atomic_load(&ofi->members[member].cut) || member == ofi->base.me ||
        (!peer && tutti_ofi_peer_make(ofi, member, &peer) < 0)) {
        close(fd);
        return;
    }
    peer->fd = fd;
    event.data.ptr = peer;
    if (epoll_ctl(ofi->epoll, EPOLL_CTL_ADD, fd, &event) < 0 || !say_hello(ofi, peer))
        tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PEER_DEAD);
    else
        read_socket(ofi, peer);
}

static void take_news(struct tutti_ofi *ofi, uint32_t member)
{
    struct tutti_ofi_member *m = &ofi->members[member];
    if (m->told_status < 0) m->status = m->told_status;
    if (m->told_fd) attach(ofi, member, m->told_fd - 1);
    m->told = false, m->told_fd = 0, m->told_status = TUTTI_OK;
    if (!m->peer || m->peer == ofi->self) return;
    if (m->status < 0 && m->peer->fd < 0) tutti_ofi_peer_end(ofi, m->peer, m->status);
    if (atomic_load(&m->cut)) tutti_ofi_peer_ends(ofi, m->peer, TUTTI_ERR_PEER_DEAD);
}

void tutti_ofi_news(struct tutti_ofi *ofi)
{
    pthread_mutex_lock(&ofi->lock);
    atomic_store(&ofi->news, false);
    while (ofi->first_told != TUTTI_OFI_NOBODY) {
        const uint32_t member = ofi->first_told;
        ofi->first_told = ofi->members[member].next_told;
        take_news(ofi, member);
    }
    pthread_mutex_unlock(&ofi->lock);
}
