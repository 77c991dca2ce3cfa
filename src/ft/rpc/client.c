/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels and their requests, as callers see them. */
#include "ft/rpc/client.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* "http://JOB@host:port", and what may stand behind a slash. */
static bool read_address(struct tutti_rpc_channel *channel, const char *address)
{
    const char *at = strncmp(address, "http://", 7) == 0 ? address + 7 : address;
    const size_t n = strcspn(at, "/");
    const char *end_of_job = memchr(at, '@', n), *host = end_of_job ? end_of_job + 1 : at;

    if (n >= sizeof channel->authority || host - at > RPC_JOB + 1) return false;
    if (!rpc_address_split(host, (size_t)(at + n - host), channel->host, channel->port)) return false;
    memcpy(channel->authority, at, n);
    return channel->host[0] != '\0';
}

enum tutti_status tutti_rpc_channel_open(const struct tutti_rpc_channel_config *config, struct tutti_rpc_channel **out)
{
    struct tutti_rpc_channel *channel = tutti_alloc(sizeof(*channel));

    if (!channel) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a client");
    channel->config = *config;
    channel->config.secret = NULL;
    channel->has_key = config->secret != NULL;
    channel->timer.due = rpc_on_time;
    channel->link = (struct rpc_link){.watch.fd = -1, .loop = config->loop};
    enum tutti_status status = TUTTI_OK;
    if (!read_address(channel, config->address))
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "\"%.200s\" is no address of a server: write http://HOST:PORT",
                            config->address);
    if (status >= 0 && channel->has_key) status = rpc_link_key(config->secret, channel->key);
    if (status >= 0) status = rpc_client_callbacks(&channel->callbacks);
    if (status < 0)
        tutti_free(channel);
    else
        *out = channel;
    return status;
}

const char *tutti_rpc_channel_authority(const struct tutti_rpc_channel *channel)
{
    return channel->authority;
}

/* The loop sees the end in its next turn: nghttp2 may be inside the session now. */
void tutti_rpc_channel_drop(struct tutti_rpc_channel *channel)
{
    if (channel->state == RPC_OPEN) shutdown(channel->link.watch.fd, SHUT_RDWR);
}

static void end_all(void *arg)
{
    struct tutti_rpc_channel *channel = arg;

    rpc_hang_up(channel);
    rpc_forget_addresses(channel);
    while (channel->requests) tutti_rpc_withdraw(channel->requests);
}

void tutti_rpc_channel_close(struct tutti_rpc_channel *channel)
{
    if (!channel) return;
    tutti_loop_run(channel->config.loop, end_all, channel);
    nghttp2_session_callbacks_del(channel->callbacks);
    explicit_bzero(channel->key, sizeof channel->key);
    tutti_free(channel);
}

static void too_late(struct tutti_loop_timer *timer)
{
    struct tutti_rpc_request *request =
        (struct tutti_rpc_request *)((char *)timer - offsetof(struct tutti_rpc_request, timer));
    struct tutti_rpc_channel *channel = request->channel;
    char text[2 * RPC_SENTENCE];

    snprintf(text, sizeof text, request->stream > 0 ? "no answer from %s in time" : "no connection to %s: %s",
             channel->authority, channel->why[0] ? channel->why : "it did not come about in time");
    rpc_request_end(request, TUTTI_RPC_DEADLINE_EXCEEDED, text);
    rpc_link_flush(&channel->link);
}

struct tutti_rpc_request *tutti_rpc_send(struct tutti_rpc_channel *channel, const char *path,
                                         struct tutti_rpc_body *body, uint64_t deadline_ns, tutti_rpc_done done,
                                         void *arg)
{
    struct tutti_rpc_request *request = tutti_alloc(sizeof(*request));

    if (!request) {
        tutti_rpc_body_give(body);
        return NULL;
    }
    *request = (struct tutti_rpc_request){.next = channel->requests,
                                          .channel = channel,
                                          .path = path,
                                          .body = body,
                                          .deadline_ns = deadline_ns,
                                          .timer.due = too_late,
                                          .done = done,
                                          .arg = arg,
                                          .as = TUTTI_RPC_INTERNAL,
                                          .status = -1};
    channel->requests = request;
    tutti_loop_at(channel->config.loop, &request->timer, deadline_ns);
    if (channel->state == RPC_OPEN) {
        rpc_request_submit(request);
        rpc_link_flush(&channel->link);
    } else {
        rpc_dial(channel);
    }
    return request;
}

void tutti_rpc_set_each(struct tutti_rpc_request *request, void (*each)(void *arg, const uint8_t *bytes, size_t n))
{
    request->each = each;
}

void tutti_rpc_discard(struct tutti_rpc_request *request)
{
    request->discards = true;
}

void tutti_rpc_withdraw(struct tutti_rpc_request *request)
{
    struct tutti_rpc_channel *channel = request->channel;

    request->done = NULL;
    rpc_request_end(request, TUTTI_RPC_CANCELLED, "");
    rpc_link_flush(&channel->link);
}
