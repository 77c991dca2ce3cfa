/* SPDX-License-Identifier: BSD-3-Clause */
/* A channel: one connection, to one server of its list at a time. A server that can not be reached, or is lost, is
 * given up for the next one; after a round of all without an answer there is a pause. */
#include "ft/rpc/client.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_SERVERS 64
#define PAUSE_FIRST_NS (50 * TUTTI_NS_PER_MS)
#define PAUSE_MOST_NS TUTTI_NS_PER_S
#define WINDOW (256 << 10) /* of what a server may send unread: quorums of thousands are long */

const char tutti_rpc_connection_lost[] = "the connection was lost";

static struct rpc_target *target_of(struct tutti_rpc_channel *channel)
{
    return &channel->targets[channel->now];
}

static void hang_up(struct tutti_rpc_channel *channel)
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

static void forget_addresses(struct rpc_target *target)
{
    if (target->addresses) freeaddrinfo(target->addresses);
    target->addresses = NULL;
    target->next = NULL;
}

/* ---- what becomes of requests ---- */
/* The first one that `is` so. A done that is called may change the list, so each walk begins anew. */
static struct tutti_rpc_request *first(const struct tutti_rpc_channel *channel,
                                       bool (*is)(const struct tutti_rpc_request *request))
{
    struct tutti_rpc_request *request = channel->requests;

    while (request && !is(request)) request = request->next;
    return request;
}

static bool is_sent(const struct tutti_rpc_request *request)
{
    return request->stream > 0;
}

static bool waits(const struct tutti_rpc_request *request)
{
    return request->stream == 0;
}

static bool waits_in_vain(const struct tutti_rpc_request *request)
{
    return waits(request) && request->ask.reach_ns > 0 && request->lost_ns > 0 &&
           tutti_now_ns() - request->lost_ns >= request->ask.reach_ns;
}

static bool waits_a_round(const struct tutti_rpc_request *request)
{
    return waits(request) && request->ask.reach_ns == 0;
}

/* Those that were sent on a connection that is lost. */
static void lose_sent(struct tutti_rpc_channel *channel)
{
    struct tutti_rpc_request *request;

    while ((request = first(channel, is_sent))) {
        request->stream = 0;
        if (!rpc_request_retry(request, tutti_now_ns()))
            rpc_request_end(request, TUTTI_RPC_UNAVAILABLE, tutti_rpc_connection_lost);
    }
}

/* Those that wait, after a server could not be reached; round: nor could any other. */
static void end_waiting(struct tutti_rpc_channel *channel, bool round)
{
    const bool denied = round && channel->n_denied == channel->n;
    struct tutti_rpc_request *request;

    for (request = channel->requests; request; request = request->next)
        if (waits(request) && request->lost_ns == 0) request->lost_ns = tutti_now_ns();
    if (round) channel->n_denied = 0;
    while (denied && (request = first(channel, waits)))
        rpc_request_end(request, TUTTI_RPC_UNAUTHENTICATED, channel->why);
    while (round && (request = first(channel, waits_a_round)))
        rpc_request_end(request, TUTTI_RPC_UNAVAILABLE, channel->why);
    while ((request = first(channel, waits_in_vain))) rpc_request_end(request, TUTTI_RPC_UNAVAILABLE, channel->why);
}

/* ---- giving up a server ---- */
/* Goes to the next address of the host. False: there is none, and they are looked up anew the next time. */
static bool next_address(struct rpc_target *target)
{
    if (target->next) target->next = target->next->ai_next;
    if (!target->next) forget_addresses(target);
    return target->next != NULL;
}

static void dial_after(struct tutti_rpc_channel *channel, uint64_t pause_ns)
{
    channel->state = RPC_PAUSES;
    tutti_loop_at(channel->config.loop, &channel->timer, tutti_now_ns() + pause_ns);
}

/* The connection is lost, or could not be made. */
static void lost(struct tutti_rpc_channel *channel, const char *why)
{
    const bool was_open = channel->state >= RPC_OPEN;
    bool round = false;

    snprintf(channel->why, sizeof channel->why, "%s: %.160s", target_of(channel)->authority, why);
    hang_up(channel);
    if (was_open || !next_address(target_of(channel))) {
        forget_addresses(target_of(channel));
        channel->now = (channel->now + 1) % channel->n;
        round = ++channel->n_failed % channel->n == 0;
        channel->state = RPC_PAUSES; /* a caller that is told of an end does not dial */
        if (was_open) lose_sent(channel);
        end_waiting(channel, round);
        channel->state = RPC_IDLE;
    }
    if (!channel->requests) return;
    if (round) channel->pause_ns = channel->pause_ns ? channel->pause_ns + channel->pause_ns / 2 : PAUSE_FIRST_NS;
    if (channel->pause_ns > PAUSE_MOST_NS) channel->pause_ns = PAUSE_MOST_NS;
    dial_after(channel, round ? channel->pause_ns : 0);
}

static void denied(struct tutti_rpc_channel *channel)
{
    const struct tutti_error error = *tutti_last_error();
    const char *why = error.text;

    channel->n_denied++;
    forget_addresses(target_of(channel)); /* its other addresses are the same server's */
    lost(channel, channel->proof.certificate ? why : "it does not show that it knows this job's secret");
}

void rpc_give_up(struct tutti_rpc_channel *channel, const char *why)
{
    if (channel->state != RPC_OPEN) return;
    snprintf(channel->cause, sizeof channel->cause, "%s", why);
    channel->state = RPC_ENDS;
    shutdown(channel->link.watch.fd, SHUT_RDWR);
}

/* The same of a server that could not be dialled. */
static void fail_later(struct tutti_rpc_channel *channel, const char *why)
{
    snprintf(channel->cause, sizeof channel->cause, "%s", why);
    channel->state = RPC_FAILS;
    tutti_loop_at(channel->config.loop, &channel->timer, tutti_now_ns());
}

static void on_time(struct tutti_loop_timer *timer)
{
    struct tutti_rpc_channel *channel =
        (struct tutti_rpc_channel *)((char *)timer - offsetof(struct tutti_rpc_channel, timer));

    if (channel->state != RPC_PAUSES) {
        const char *why = channel->state == RPC_LOOKS ? "its name is not found in time" : "it does not answer";
        lost(channel, channel->state == RPC_FAILS ? channel->cause : why);
        return;
    }
    channel->state = RPC_IDLE;
    if (channel->requests) rpc_dial(channel);
}

/* ---- the connection ---- */
static void on_ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_rpc_channel *channel = (struct tutti_rpc_channel *)w;

    if (rpc_link_run(&channel->link, events)) return;
    lost(channel, channel->state == RPC_ENDS ? channel->cause
                  : channel->greeted         ? "the server closed the connection"
                                             : "what listens there does not speak gRPC");
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
        lost(channel, "out of memory for HTTP/2");
        return;
    }
    tutti_loop_stop(link->loop, &channel->timer);
    channel->state = RPC_OPEN;
    channel->greeted = false;
    link->watch.ready = on_ready;
    if (!link->tls) link->writes = true; /* as it was watched while it dialled */
    while ((request = first(channel, waits)) && rpc_request_submit(request)) continue;
    rpc_link_flush(link);
}

static void on_agree(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_rpc_channel *channel = (struct tutti_rpc_channel *)w;
    const enum tutti_status status = rpc_link_agree(&channel->link);

    (void)events;
    if (status == TUTTI_ERR_AUTH)
        denied(channel);
    else if (status < 0)
        lost(channel, channel->proof.certificate ? "it broke off before it showed its certificate"
                                                 : "it broke off before it showed that it knows this job's secret");
    else if (status != TUTTI_PENDING)
        speak(channel);
}

static void begin_tls(struct tutti_rpc_channel *channel)
{
    channel->link.writes = true; /* as it was watched while it dialled */
    channel->link.watch.ready = on_agree;
    if (rpc_link_secure(&channel->link, true, &channel->proof) < 0)
        lost(channel, tutti_last_error()->text);
    else
        on_agree(&channel->link.watch, EPOLLOUT);
}

/* ---- dialling ---- */
static void on_dialed(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_rpc_channel *channel = (struct tutti_rpc_channel *)w;
    int wrong = 0;
    socklen_t n = sizeof wrong;

    (void)events;
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &wrong, &n) < 0) wrong = errno;
    if (wrong == EINPROGRESS) return;
    if (wrong != 0)
        lost(channel, strerror(wrong));
    else if (rpc_proves(&channel->proof))
        begin_tls(channel);
    else
        speak(channel);
}

static void dial_next(struct tutti_rpc_channel *channel)
{
    const struct addrinfo *one = target_of(channel)->next;
    const int fd = socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0) rpc_link_tune(fd);
    channel->state = RPC_DIALS;
    channel->link.watch = (struct tutti_loop_fd){.fd = fd, .ready = on_dialed};
    const bool dials = fd >= 0 && (connect(fd, one->ai_addr, one->ai_addrlen) == 0 || errno == EINPROGRESS);
    const int wrong = errno;
    if (fd >= 0 && tutti_loop_watch(channel->config.loop, &channel->link.watch, EPOLLIN | EPOLLOUT) < 0)
        fail_later(channel, tutti_last_error()->text);
    else if (!dials)
        fail_later(channel, strerror(wrong));
}

static void set_addresses(struct rpc_target *target, struct addrinfo *addresses)
{
    target->addresses = addresses;
    target->next = addresses;
}

/* Also when the dial that wanted it has ended: then it is there for the next one. */
static void on_found(void *arg)
{
    struct rpc_target *target = arg;
    struct tutti_rpc_channel *channel = target->channel;
    const char *why;

    set_addresses(target, rpc_lookup_take(target->lookup, &why));
    target->lookup = NULL;
    if (channel->state != RPC_LOOKS || target != target_of(channel)) return;
    if (target->addresses)
        dial_next(channel);
    else
        lost(channel, why);
}

void rpc_dial(struct tutti_rpc_channel *channel)
{
    struct rpc_target *target = target_of(channel);

    if (channel->state != RPC_IDLE) return;
    if (channel->config.dial_ns)
        tutti_loop_at(channel->config.loop, &channel->timer, tutti_deadline_ns(channel->config.dial_ns));
    if (!target->addresses && !target->lookup) set_addresses(target, rpc_lookup_numeric(target->host, target->port));
    if (target->addresses) {
        dial_next(channel);
        return;
    }
    channel->state = RPC_LOOKS;
    if (!target->lookup &&
        rpc_lookup_start(channel->config.loop, target->host, target->port, on_found, target, &target->lookup) < 0)
        fail_later(channel, tutti_last_error()->text);
}

/* ---- life ---- */
/* Reads "http://JOB@host:port", and what may stand behind a slash. */
static bool read_address(struct rpc_target *target, const char *address, size_t length)
{
    const bool scheme = length >= 7 && strncmp(address, "http://", 7) == 0;
    const char *at = scheme ? address + 7 : address, *slash = memchr(at, '/', (size_t)(address + length - at));
    const size_t n = (size_t)((slash ? slash : address + length) - at);
    const char *end_of_job = memchr(at, '@', n), *host = end_of_job ? end_of_job + 1 : at;

    if (n >= sizeof target->authority || host - at > RPC_JOB + 1) return false;
    if (!rpc_address_split(host, (size_t)(at + n - host), target->host, target->port)) return false;
    memcpy(target->authority, at, n);
    return target->host[0] != '\0';
}

static enum tutti_status read_list(struct tutti_rpc_channel *channel, const char *list, const char *what)
{
    for (const char *at = list; at[0];) {
        const size_t n = strcspn(at, ", ");
        if (n > 0 && channel->n == MOST_SERVERS)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: more than %d", what, MOST_SERVERS);
        if (n > 0 && !read_address(&channel->targets[channel->n], at, n))
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: \"%.*s\" is no address: write http://HOST:PORT", what,
                              n < 200 ? (int)n : 200, at);
        if (n > 0) channel->targets[channel->n++].channel = channel;
        at += n + strspn(at + n, ", ");
    }
    return channel->n > 0 ? TUTTI_OK : tutti_fail(TUTTI_ERR_ARGUMENT, "%s: there is no address", what);
}

static size_t count_addresses(const char *list)
{
    size_t n = 1;

    for (; *list; list++) n += *list == ',' || *list == ' ';
    return n < MOST_SERVERS ? n : MOST_SERVERS;
}

enum tutti_status tutti_rpc_channel_open(const struct tutti_rpc_channel_config *config, struct tutti_rpc_channel **out)
{
    const char *what = config->what ? config->what : "the server";
    struct tutti_rpc_channel *channel = tutti_alloc(sizeof(*channel));
    struct rpc_target *targets = tutti_alloc_array(count_addresses(config->addresses), sizeof(*targets));

    if (!channel || !targets) {
        tutti_free(channel);
        tutti_free(targets);
        return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a client");
    }
    channel->config = *config;
    channel->config.secret = channel->config.what = channel->config.addresses = NULL;
    channel->targets = targets;
    channel->timer.due = on_time;
    channel->link = (struct rpc_link){.watch.fd = -1, .loop = config->loop};
    enum tutti_status status = read_list(channel, config->addresses, what);
    if (status >= 0) status = rpc_proof_init(config->secret, config->certificate, &channel->proof);
    if (status >= 0) status = rpc_client_callbacks(&channel->callbacks);
    if (status < 0) {
        tutti_free(channel->targets);
        tutti_free(channel);
    } else {
        *out = channel;
    }
    return status;
}

const char *tutti_rpc_channel_authority(const struct tutti_rpc_channel *channel)
{
    return channel->targets[channel->now].authority;
}

uint32_t tutti_rpc_channel_n(const struct tutti_rpc_channel *channel)
{
    return channel->n;
}

void tutti_rpc_channel_drop(struct tutti_rpc_channel *channel)
{
    rpc_give_up(channel, "it does not answer");
}

static void end_all(void *arg)
{
    struct tutti_rpc_channel *channel = arg;

    hang_up(channel);
    for (uint32_t i = 0; i < channel->n; i++) {
        rpc_lookup_drop(channel->targets[i].lookup);
        forget_addresses(&channel->targets[i]);
    }
    while (channel->requests) tutti_rpc_withdraw(channel->requests);
}

void tutti_rpc_channel_close(struct tutti_rpc_channel *channel)
{
    if (!channel) return;
    tutti_loop_run(channel->config.loop, end_all, channel);
    nghttp2_session_callbacks_del(channel->callbacks);
    explicit_bzero(&channel->proof, sizeof channel->proof);
    tutti_free(channel->targets);
    tutti_free(channel);
}
