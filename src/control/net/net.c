/* SPDX-License-Identifier: BSD-3-Clause */

/* The net: its life, and its door for other threads. */

#include "control/net/conn.h"
#include "control/net/tls.h"

#include <stdio.h>
#include <string.h>

enum tutti_status tutti_net_open(const struct tutti_net_config *config, struct tutti_net **out)
{
    enum tutti_status status;
    struct tutti_net *net = tutti_alloc(sizeof *net);
    if (!net) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the network of rank %u", config->me);
    net->config = *config;
    net->config.secret = NULL;
    snprintf(net->interface, sizeof net->interface, "%s", config->interface);
    net->config.interface = net->interface;
    snprintf(net->congestion, sizeof net->congestion, "%s", config->congestion ? config->congestion : "");
    net->config.congestion = net->congestion;
    pthread_mutex_init(&net->mutex, NULL);
    tutti_net_dials_begin(net);
    if (config->encrypt && !tutti_tls_available())
        TUTTI_TRY_GOTO(status, tutti_fail(TUTTI_ERR_UNSUPPORTED, "encrypted connections need OpenSSL"), free_net);
    TUTTI_TRY_GOTO(status, tutti_proof_key_init(&net->key, config->secret, config->world), free_net);
    TUTTI_TRY_GOTO(status, tutti_loop_open("tutti-net", &net->loop), free_net);
    TUTTI_TRY_GOTO(status, tutti_net_accepts_begin(net), close_loop);
    *out = net;
    return TUTTI_OK;
close_loop:
    tutti_loop_close(net->loop);
free_net:
    pthread_mutex_destroy(&net->mutex);
    tutti_proof_key_fini(&net->key);
    tutti_free(net);
    return status;
}

enum tutti_status tutti_net_start(struct tutti_net *net)
{
    return tutti_loop_start(net->loop);
}

struct tutti_loop *tutti_net_loop(struct tutti_net *net)
{
    return net->loop;
}

enum tutti_status tutti_net_dial(struct tutti_net *net, enum tutti_net_role role, uint32_t peer)
{
    if (peer >= net->config.hosts->n_members || peer == net->config.me)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "rank %u can not dial rank %u of %u", net->config.me, peer,
                          net->config.hosts->n_members);
    struct tutti_net_peer *p = tutti_net_peer_of(net, role, peer);
    if (!p) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for connections to rank %u", peer);
    tutti_net_peer_queue(p);
    return TUTTI_OK;
}

static void close_call(void *arg)
{
    struct tutti_net *net = arg;
    net->closing = true;
    tutti_net_accepts_end(net);
    tutti_net_dials_end(net);
}

void tutti_net_close(struct tutti_net *net)
{
    tutti_loop_run(net->loop, close_call, net);
    tutti_loop_close(net->loop);
    tutti_listener_close(net->config.listener);
    pthread_mutex_destroy(&net->mutex);
    tutti_proof_key_fini(&net->key);
    tutti_free(net);
}
