/* SPDX-License-Identifier: BSD-3-Clause */
/* A group is ended by its manager, which is told so at the address that the group gave. */
#include "ft/serve/jobs.h"

#include <torchft.pb-c.h>

#include <stdio.h>
#include <string.h>

#define WITHIN_NS (10 * TUTTI_NS_PER_S)

struct serve_kill {
    struct tutti_loop_timer timer; /* what ended is freed when nobody is inside it any more */
    struct serve_kill *next;
    struct tutti_serve *serve;
    struct tutti_rpc_channel *channel;
    void (*done)(void *arg, const char *why);
    void *arg;
};

static void finish(struct tutti_loop_timer *timer)
{
    struct serve_kill *kill = (struct serve_kill *)timer, **link = &kill->serve->kills;

    while (*link != kill) link = &(*link)->next;
    *link = kill->next;
    tutti_loop_stop(kill->serve->loop, timer);
    tutti_rpc_channel_close(kill->channel);
    tutti_free(kill);
}

void serve_kills_end(struct tutti_serve *serve)
{
    while (serve->kills) finish(&serve->kills->timer);
}

/* A manager that exits at once does not answer: a lost connection is a kill, too. */
static void on_answer(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct serve_kill *kill = arg;

    (void)bytes, (void)n;
    kill->done(kill->arg, status == TUTTI_RPC_OK || status == TUTTI_RPC_UNAVAILABLE ? "" : message);
    kill->timer.due = finish;
    tutti_loop_at(kill->serve->loop, &kill->timer, tutti_now_ns());
}

static struct tutti_rpc_body *encode(void)
{
    Torchft__KillRequest request = TORCHFT__KILL_REQUEST__INIT;
    static char text[] = "killed from the lighthouse's page";

    request.msg = text;
    struct tutti_rpc_body *body = tutti_rpc_body_new(torchft__kill_request__get_packed_size(&request));
    if (body) torchft__kill_request__pack(&request, body->bytes);
    return body;
}

bool serve_kill(struct serve_job *job, const char *replica_id, void (*done)(void *arg, const char *why), void *arg)
{
    const struct tutti_quorum *last = tutti_lighthouse_last(job->machine);
    const struct tutti_replica *member = last ? tutti_quorum_find(last, replica_id) : NULL;
    struct serve_kill *kill = member ? tutti_alloc(sizeof(*kill)) : NULL;
    struct tutti_rpc_body *body = kill ? encode() : NULL;
    const struct tutti_rpc_channel_config config = {.loop = job->serve->loop,
                                                    .address = member ? member->address : "",
                                                    .max_message = 4096,
                                                    .secret = job->serve->config.secret};

    if (!body || tutti_rpc_channel_open(&config, &kill->channel) < 0) {
        tutti_rpc_body_give(body);
        tutti_free(kill);
        return false;
    }
    kill->serve = job->serve;
    kill->next = job->serve->kills;
    job->serve->kills = kill;
    kill->done = done, kill->arg = arg;
    if (!tutti_rpc_send(kill->channel, "/torchft.ManagerService/Kill", body, tutti_now_ns() + WITHIN_NS, on_answer,
                        kill)) {
        finish(&kill->timer);
        return false;
    }
    serve_note(job, "%.64s is told to end by who knows the token", replica_id);
    return true;
}
