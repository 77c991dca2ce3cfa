/* SPDX-License-Identifier: BSD-3-Clause */
/* How peers come and end. Over the socket each end says hello once: what follows here, little endian. Who leaves in
 * order says goodbye and how many frames it has sent; the other says farewell when it has them all, and the one that
 * leaves waits for that. A socket that ends without a goodbye is a death.
 *
 *   hello: "tuOF" u32, version u32, secret u64 (what frames to the sender must bear), copied u32, bytes of a name u32,
 *          hash of the provider u64, rails u32, whether it writes u32, names of the endpoints (128 bytes each)
 *   goodbye: "tuBY" u32, zero u32, frames that were sent u64.   farewell: "tuFW" u32, zeros */

#include "transport/ofi/state.h"

#include "base/session.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO UINT32_C(0x464f7574)
#define GOODBYE UINT32_C(0x59427574)
#define FAREWELL UINT32_C(0x57467574)
#define HELLO_VERSION 2u
#define NAMES_AT (TUTTI_OFI_HELLO - TUTTI_OFI_RAILS * TUTTI_OFI_NAME)
#define EVENTS 64
#define STUCK_NS TUTTI_NS_PER_S /* for the provider to give back what it fills for a peer that ended */

/* ---- it ends ---- */

static void large_ends(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    if (large->stage == TUTTI_OFI_WAITS || large->stage == TUTTI_OFI_GOES)
        tutti_ofi_large_done(ofi, large, large->op.peer->status);
    if (large->stage != TUTTI_OFI_FLIES || !ofi->open) return;
    if (!ofi->writes && large->op.kind < TUTTI_OFI_PUT)
        fi_cancel(&ofi->rails[large->rail].ep->fid, &large->op);
    else if (tutti_ofi_fills(large) && tutti_ofi_large_revoke(ofi, large))
        tutti_ofi_large_done(ofi, large, large->op.peer->status);
}

void tutti_ofi_peer_end(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, enum tutti_status status)
{
    if (peer->ended) return;
    if (!peer->ending) ofi->n_ending++;
    peer->ending = peer->ended = true, peer->status = status;
    if (peer->fd >= 0) close(peer->fd); /* and epoll forgets it */
    peer->fd = -1;
    for (uint32_t i = 0; i < TUTTI_OFI_LENT; i++) large_ends(ofi, &peer->lent[i]);
    peer->until_ns = tutti_deadline_ns(STUCK_NS);
    tutti_ofi_room(ofi, peer);
    tutti_log(TUTTI_LOG_DEBUG, "transport ofi: the socket of member %u ended: %s", peer->member,
              status == TUTTI_ERR_PEER_LEFT ? "it has left" : "closed by peer");
}

void tutti_ofi_break(struct tutti_ofi *ofi, const char *why)
{
    if (!ofi->open) return;
    if (why) tutti_log(TUTTI_LOG_WARN, "transport ofi: member %u closes its endpoint: %s", ofi->base.me, why);
    ofi->open = false;
    for (uint32_t i = 0; i < ofi->n_rails; i++) {
        fi_close(&ofi->rails[i].ep->fid);
        ofi->rails[i].ep = NULL;
    }
    for (struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next) {
        if (peer == ofi->self) continue;
        tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PEER_DEAD);
        for (uint32_t i = 0; i < TUTTI_OFI_LENT; i++)
            if (peer->lent[i].stage == TUTTI_OFI_FLIES) tutti_ofi_large_done(ofi, &peer->lent[i], TUTTI_ERR_PEER_DEAD);
    }
    ofi->n_flying = 0;
}

/* ---- what a socket says ---- */

static uint64_t provider_hash(const struct tutti_ofi *ofi)
{
    const char *name = ofi->rails[0].info->fabric_attr->prov_name;
    return tutti_hash64(name, strlen(name), ofi->rails[0].info->addr_format);
}

static bool say(const struct tutti_ofi_peer *peer, const uint8_t *bytes, size_t n)
{
    return send(peer->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

static bool say_hello(struct tutti_ofi *ofi, const struct tutti_ofi_peer *peer)
{
    uint8_t hello[TUTTI_OFI_HELLO] = {0};
    tutti_le_store(hello, 4, HELLO);
    tutti_le_store(hello + 4, 4, HELLO_VERSION);
    tutti_le_store(hello + 8, 8, peer->secret_in);
    tutti_le_store(hello + 16, 4, ofi->base.copied);
    tutti_le_store(hello + 20, 4, ofi->rails[0].name_bytes);
    tutti_le_store(hello + 24, 8, provider_hash(ofi));
    tutti_le_store(hello + 32, 4, ofi->n_rails);
    tutti_le_store(hello + 36, 4, ofi->writes);
    for (uint32_t i = 0; i < ofi->n_rails; i++)
        memcpy(hello + NAMES_AT + i * TUTTI_OFI_NAME, ofi->rails[i].name, ofi->rails[i].name_bytes);
    return say(peer, hello, sizeof(hello));
}

void tutti_ofi_goodbye(struct tutti_ofi_peer *peer)
{
    uint8_t goodbye[TUTTI_OFI_GOODBYE] = {0};
    if (peer->fd < 0 || !peer->met || peer->ended) return;
    tutti_le_store(goodbye, 4, GOODBYE);
    tutti_le_store(goodbye + 8, 8, peer->submitted);
    say(peer, goodbye, sizeof(goodbye));
}

/* Says so once it has all that a peer sent before its goodbye. */
static void say_farewell(struct tutti_ofi_peer *peer)
{
    uint8_t farewell[TUTTI_OFI_GOODBYE] = {0};
    if (!peer->leaves || peer->told_farewell || peer->came != peer->leaves_at || peer->fd < 0) return;
    tutti_le_store(farewell, 4, FAREWELL);
    peer->told_farewell = say(peer, farewell, sizeof(farewell));
}

/* Takes a whole hello. False: it makes no sense. */
static bool take_hello(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    const uint8_t *hello = peer->said;
    const uint64_t n_rails = tutti_le_load(hello + 32, 4);
    if (tutti_le_load(hello, 4) != HELLO || tutti_le_load(hello + 4, 4) != HELLO_VERSION) return false;
    if (n_rails < 1 || n_rails > TUTTI_OFI_RAILS) return false;
    if (tutti_le_load(hello + 16, 4) != ofi->base.copied || tutti_le_load(hello + 20, 4) != ofi->rails[0].name_bytes ||
        tutti_le_load(hello + 24, 8) != provider_hash(ofi) || tutti_le_load(hello + 36, 4) != ofi->writes) {
        tutti_log(TUTTI_LOG_WARN,
                  "transport ofi: member %u uses another provider, or uses it otherwise, than member %u, with '%s'",
                  peer->member, ofi->base.me, ofi->rails[0].info->fabric_attr->prov_name);
        return false;
    }
    peer->secret_out = tutti_le_load(hello + 8, 8);
    peer->n_rails = n_rails < ofi->n_rails ? (uint32_t)n_rails : ofi->n_rails;
    for (uint32_t i = 0; i < peer->n_rails; i++)
        if (!ofi->open ||
            fi_av_insert(ofi->rails[i].av, hello + NAMES_AT + i * TUTTI_OFI_NAME, 1, &peer->addresses[i], 0, NULL) != 1)
            return false;
    peer->met = true;
    tutti_ofi_peer_waits(ofi, peer);
    return true;
}

/* A whole saying of a peer that is met. False: it makes no sense. */
static bool take_word(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    const uint64_t word = tutti_le_load(peer->said, 4);
    if (word == FAREWELL) peer->farewell = true;
    if (word != GOODBYE) return word == FAREWELL;
    peer->leaves = true, peer->leaves_at = (uint32_t)tutti_le_load(peer->said + 8, 8);
    tutti_ofi_peer_ends(ofi, peer, TUTTI_ERR_PEER_LEFT);
    return true;
}

static void read_socket(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    while (peer->fd >= 0 && !peer->ended) {
        const size_t whole = peer->met ? TUTTI_OFI_GOODBYE : TUTTI_OFI_HELLO;
        const ssize_t n = recv(peer->fd, peer->said + peer->n_said, whole - peer->n_said, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) { /* nothing more is said, and epoll is not to tell so again */
            epoll_ctl(ofi->notices.epoll, EPOLL_CTL_DEL, peer->fd, NULL);
            peer->farewell = true; /* nobody waits there any more */
            tutti_ofi_peer_ends(ofi, peer, TUTTI_ERR_PEER_DEAD);
            return;
        }
        peer->n_said += (uint32_t)n;
        if (peer->n_said < whole) continue;
        peer->n_said = 0;
        if (peer->met ? take_word(ofi, peer) : take_hello(ofi, peer)) continue;
        if (peer->met) tutti_ofi_nonsense(ofi, peer, "a word over its socket");
        tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PROTOCOL);
    }
}

void tutti_ofi_sockets(struct tutti_ofi *ofi)
{
    struct epoll_event events[EVENTS];
    const int n = epoll_wait(ofi->notices.epoll, events, EVENTS, 0);
    ofi->n_polls = 0;
    for (int i = 0; i < n; i++) {
        struct tutti_ofi_peer *peer = events[i].data.ptr;
        bool other = !peer; /* wake's, or a queue's */
        for (uint32_t k = 0; k < ofi->n_rails; k++) other |= (void *)peer == (void *)&ofi->rails[k];
        if (!other) read_socket(ofi, peer);
    }
}

/* ---- what is due of peers that end ---- */

static bool has_flying(const struct tutti_ofi_peer *peer, bool in)
{
    for (uint32_t i = 0; i < TUTTI_OFI_LENT; i++)
        if (peer->lent[i].stage == TUTTI_OFI_FLIES && tutti_ofi_fills(&peer->lent[i]) == in) return true;
    return false;
}

/* Whether all was given out that it can still give. */
static bool is_done(const struct tutti_ofi_peer *peer, uint64_t now)
{
    if (peer->status == TUTTI_ERR_PROTOCOL) return true;
    if (peer->slots[peer->taken % TUTTI_OFI_CREDITS] || peer->blocked) return false; /* here, and the engine's turn */
    if (peer->leaves && peer->taken == peer->leaves_at && !has_flying(peer, true)) return true;
    return now >= peer->until_ns;
}

static void ending(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, uint64_t now)
{
    if (!peer->ended) {
        say_farewell(peer);
        if (now >= peer->until_ns && !peer->leaves) read_socket(ofi, peer); /* what it said last */
        if (!is_done(peer, now)) return;
        tutti_ofi_peer_end(ofi, peer,
                           peer->leaves && peer->status != TUTTI_ERR_PROTOCOL ? TUTTI_ERR_PEER_LEFT : peer->status);
    }
    if (has_flying(peer, true) && now >= peer->until_ns)
        tutti_ofi_break(ofi, "its provider does not give back what it fills for a peer that ended");
    if (!has_flying(peer, true) && !has_flying(peer, false)) peer->over = true, ofi->n_ending--;
}

void tutti_ofi_endings(struct tutti_ofi *ofi)
{
    if (ofi->n_ending == 0) return;
    const uint64_t now = tutti_now_ns();
    for (struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next)
        if (peer->ending && !peer->over && peer != ofi->self) ending(ofi, peer, now);
}

/* ---- what other threads tell ---- */

/* The socket belongs to the peer, or is closed. */
static void attach(struct tutti_ofi *ofi, uint32_t member, int fd)
{
    struct tutti_ofi_peer *peer = ofi->members[member].peer;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    if ((peer && (peer->fd >= 0 || peer->ended)) || tutti_notices_is_cut(&ofi->notices, member) ||
        member == ofi->base.me || (!peer && tutti_ofi_peer_make(ofi, member, &peer) < 0)) {
        close(fd);
        return;
    }
    peer->fd = fd;
    event.data.ptr = peer;
    if (epoll_ctl(ofi->notices.epoll, EPOLL_CTL_ADD, fd, &event) < 0 || !say_hello(ofi, peer))
        tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PEER_DEAD);
    else
        read_socket(ofi, peer);
}

static void take_notice(void *arg, uint32_t member, const struct tutti_network_notice *notice)
{
    struct tutti_ofi *ofi = arg;
    struct tutti_ofi_member *m = &ofi->members[member];
    if (notice->status < 0) m->status = notice->status;
    if (notice->fd >= 0) attach(ofi, member, notice->fd);
    if (!m->peer || m->peer == ofi->self) return;
    if (m->status < 0 && m->peer->fd < 0) tutti_ofi_peer_end(ofi, m->peer, m->status);
    if (tutti_notices_is_cut(&ofi->notices, member)) tutti_ofi_peer_ends(ofi, m->peer, TUTTI_ERR_PEER_DEAD);
}

void tutti_ofi_news(struct tutti_ofi *ofi)
{
    tutti_notices_take(&ofi->notices, take_notice, ofi);
}
