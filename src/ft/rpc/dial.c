/* SPDX-License-Identifier: BSD-3-Clause */
/* A client's connection: made when it is needed, again and again with growing pauses. */
#include "ft/rpc/client.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAUSE_FIRST_NS (100 * TUTTI_NS_PER_MS)
#define WINDOW                                                                                                         \
    (256 << 10) /* what a server may send before it hears that it was read: quorums of thousands are long              \
                 */
#define PAUSE_MOST_NS (10 * TUTTI_NS_PER_S)

static void dial_later(struct tutti_rpc_channel *channel)
{
    if (channel->config.gives_up)
        channel->pause_ns = 1; /* the next address, or those who wait are told: in the next turn */
    else
        channel->pause_ns = channel->pause_ns ? channel->pause_ns + channel->pause_ns / 2 : PAUSE_FIRST_NS;
    if (channel->pause_ns > PAUSE_MOST_NS) channel->pause_ns = PAUSE_MOST_NS;
    channel->state = RPC_PAUSES;
    tutti_loop_at(channel->config.loop, &channel->timer, tutti_now_ns() + channel->pause_ns);
}

void rpc_hang_up(struct tutti_rpc_channel *channel)
{
    tutti_loop_stop(channel->config.loop, &channel->timer);
    if (channel->link.watch.fd >= 0) {
        tutti_loop_forget(channel->config.loop, &channel->link.watch);
        close(channel->link.watch.fd);
    }
    nghttp2_session_del(channel->link.session);
    if (channel->link.tls) tutti_tls_close(channel->link.tls);
    channel->link = (struct rpc_link){.watch.fd = -1, .loop = channel->config.loop};
    channel->state = RPC_IDLE;
}

/* Finds one of those that were sent, or of those that wait; NULL: there is none. A callback may change the list. */
static struct tutti_rpc_request *first(const struct tutti_rpc_channel *channel, bool sent)
{
    struct tutti_rpc_request *request = channel->requests;

    while (request && (request->stream > 0) != sent) request = request->next;
    return request;
}

void rpc_lost(struct tutti_rpc_channel *channel, const char *why)
{
    struct tutti_rpc_request *request;

    snprintf(channel->why, sizeof channel->why, "%s", why);
    rpc_hang_up(channel);
    while ((request = first(channel, true))) {
        request->stream = 0;
        rpc_request_end(request, TUTTI_RPC_UNAVAILABLE, "the connection was lost");
    }
    if (channel->requests && channel->state == RPC_IDLE) dial_later(channel);
}

void rpc_on_time(struct tutti_loop_timer *timer)
{
    struct tutti_rpc_channel *channel =
        (struct tutti_rpc_channel *)((char *)timer - offsetof(struct tutti_rpc_channel, timer));
    struct tutti_rpc_request *request;

    if (channel->state != RPC_PAUSES) {
        rpc_lost(channel, channel->state == RPC_LOOKS ? "its name is not found in time" : "it does not answer");
        return;
    }
    channel->state = RPC_IDLE;
    const bool all = channel->n_tried >= channel->n_addresses;
    if (all && channel->addresses) rpc_forget_addresses(channel);
    if (!channel->config.gives_up || !all) {
        if (channel->requests) rpc_dial(channel);
        return;
    }
    while ((request = first(channel, false))) rpc_request_end(request, TUTTI_RPC_UNAVAILABLE, channel->why);
}

static void on_ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_rpc_channel *channel = (struct tutti_rpc_channel *)w;

    if (!rpc_link_run(&channel->link, events)) rpc_lost(channel, "the server closed the connection");
}

static void speak(struct tutti_rpc_channel *channel)
{
    struct rpc_link *link = &channel->link;
    struct tutti_rpc_request *request;

    const uint32_t window = channel->config.window ? channel->config.window : WINDOW;
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window}};

    if (nghttp2_session_client_new(&link->session, channel->callbacks, channel) != 0 ||
        nghttp2_submit_settings(link->session, NGHTTP2_FLAG_NONE, settings, TUTTI_ARRAY_LEN(settings)) != 0 ||
        nghttp2_session_set_local_window_size(link->session, NGHTTP2_FLAG_NONE, 0, (int32_t)window) != 0) {
        rpc_lost(channel, "out of memory for HTTP/2");
        return;
    }
    tutti_loop_stop(link->loop, &channel->timer);
    channel->state = RPC_OPEN;
    channel->pause_ns = 0;
    rpc_forget_addresses(channel);
    link->watch.ready = on_ready;
    if (!link->tls) link->writes = true; /* it was watched for room */
    while ((request = first(channel, false)) && rpc_request_submit(request)) continue;
    rpc_link_flush(link);
}

static void on_agree(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_rpc_channel *channel = (struct tutti_rpc_channel *)w;
    const enum tutti_status status = rpc_link_agree(&channel->link);

    (void)events;
    if (status < 0)
        rpc_lost(channel, "it does not show that it knows this job's secret");
    else if (status != TUTTI_PENDING)
        speak(channel);
}

static void begin_tls(struct tutti_rpc_channel *channel)
{
    channel->link.writes = true; /* it was watched for room */
    channel->link.watch.ready = on_agree;
    if (tutti_tls_open(channel->link.watch.fd, true, channel->key, &channel->link.tls) < 0)
        rpc_lost(channel, tutti_last_error()->text);
    else
        on_agree(&channel->link.watch, EPOLLOUT);
}

static void on_dialed(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_rpc_channel *channel = (struct tutti_rpc_channel *)w;
    int wrong = 0;
    socklen_t n = sizeof wrong;

    (void)events;
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &wrong, &n) < 0) wrong = errno;
    if (wrong == EINPROGRESS) return;
    if (wrong != 0)
        rpc_lost(channel, strerror(wrong));
    else if (channel->has_key)
        begin_tls(channel);
    else
        speak(channel);
}

/* The next of the host's addresses. */
static int dial_one(struct tutti_rpc_channel *channel)
{
    const struct addrinfo *one = channel->addresses;

    channel->n_tried++;
    for (uint32_t i = channel->n_dialed++ % channel->n_addresses; i > 0; i--) one = one->ai_next;
    const int fd = socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) rpc_link_tune(fd);
    if (fd >= 0 && (connect(fd, one->ai_addr, one->ai_addrlen) == 0 || errno == EINPROGRESS)) return fd;
    snprintf(channel->why, sizeof channel->why, "%s", strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

static void dial_found(struct tutti_rpc_channel *channel)
{
    const int fd = dial_one(channel);

    if (fd < 0) {
        dial_later(channel);
        return;
    }
    channel->state = RPC_DIALS;
    channel->link.watch = (struct tutti_loop_fd){.fd = fd, .ready = on_dialed};
    if (tutti_loop_watch(channel->config.loop, &channel->link.watch, EPOLLIN | EPOLLOUT) < 0)
        rpc_lost(channel, tutti_last_error()->text);
}

/* ---- addresses ---- */
void rpc_forget_addresses(struct tutti_rpc_channel *channel)
{
    rpc_lookup_drop(channel->lookup);
    channel->lookup = NULL;
    if (channel->addresses) freeaddrinfo(channel->addresses);
    channel->addresses = NULL;
    channel->n_addresses = channel->n_tried = 0;
}

static void found(struct tutti_rpc_channel *channel, struct addrinfo *addresses)
{
    channel->addresses = addresses;
    channel->n_addresses = channel->n_tried = 0;
    for (const struct addrinfo *one = addresses; one; one = one->ai_next) channel->n_addresses++;
}

/* Also when the dial that asked for it has ended: then it is there for the next one. */
static void on_found(void *arg)
{
    struct tutti_rpc_channel *channel = arg;
    const bool looks = channel->state == RPC_LOOKS;
    const char *why;

    found(channel, rpc_lookup_take(channel->lookup, &why));
    channel->lookup = NULL;
    if (!looks) return;
    if (channel->addresses)
        dial_found(channel);
    else
        rpc_lost(channel, why);
}

void rpc_dial(struct tutti_rpc_channel *channel)
{
    if (channel->state != RPC_IDLE) return;
    if (channel->config.dial_ns)
        tutti_loop_at(channel->config.loop, &channel->timer, tutti_deadline_ns(channel->config.dial_ns));
    if (!channel->addresses && !channel->lookup) found(channel, rpc_lookup_numeric(channel->host, channel->port));
    if (channel->addresses) {
        dial_found(channel);
        return;
    }
    channel->state = RPC_LOOKS;
    if (!channel->lookup &&
        rpc_lookup_start(channel->config.loop, channel->host, channel->port, on_found, channel, &channel->lookup) < 0)
        rpc_lost(channel, tutti_last_error()->text);
}
