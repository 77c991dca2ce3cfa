/* SPDX-License-Identifier: BSD-3-Clause */
/* A world on several hosts: members of this host by its own transport, all others by a network; control through the
 * tree. */

#include "control/meet/far.h"

#include "control/net/net.h"
#include "control/tree/tree.h"
#include "control/tree/witness.h"
#include "transport/host/ring.h"
#include "transport/mixed.h"
#include "transport/ofi/ofi.h"
#include "transport/open.h"
#include "transport/tcp/tcp.h"

#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>

#define DIAL_NS (20 * TUTTI_NS_PER_S) /* a member that computes answers dials all the same: its thread does */

struct network {
    void (*connected)(struct tutti_transport *t, uint32_t peer, int fd, struct tutti_stream *stream);
    void (*failed)(struct tutti_transport *t, uint32_t peer, enum tutti_status status);
    void (*path_connected)(struct tutti_transport *t, uint32_t peer, int fd, struct tutti_stream *stream); /* or NULL */
};
static const struct network networks[] = {{tutti_tcp_connected, tutti_tcp_failed, tutti_tcp_path_connected},
                                          {tutti_ofi_connected, tutti_ofi_failed, NULL}};

struct tutti_far {
    struct tutti_dialer dialer; /* first */
    struct tutti_hosts hosts;
    struct tutti_net *net;
    struct tutti_transport *wire;                                /* the network */
    const struct network *network;                               /* ... and who hears of sockets */
    struct tutti_net_interface interfaces[TUTTI_NET_INTERFACES]; /* that carry large messages; */
    uint32_t n_interfaces, sockets;                              /* option sockets */
    struct tutti_control *tree;
    struct tutti_witnesses *witnesses; /* NULL: nobody asks which deaths are proved */
};

static void dial(struct tutti_dialer *dialer, uint32_t peer)
{
    struct tutti_far *far = (struct tutti_far *)(void *)dialer;
    const enum tutti_status status = tutti_net_dial(far->net, TUTTI_NET_DATA, peer);
    if (status < 0) far->network->failed(far->wire, peer, status);
}

/* ---- more sockets to a peer: this end tells its interfaces, or dials when it was told those of the other ---- */

static size_t tell(struct tutti_dialer *dialer, uint32_t peer, uint8_t *out, size_t capacity)
{
    const struct tutti_far *far = (struct tutti_far *)(void *)dialer;
    (void)peer;
    if (far->n_interfaces == 0 || capacity < TUTTI_NET_TOLD) return 0;
    return tutti_net_interfaces_encode(far->interfaces, far->n_interfaces, out);
}

static void widen(struct tutti_dialer *dialer, uint32_t peer, const uint8_t *told, size_t bytes)
{
    const struct tutti_far *far = (struct tutti_far *)(void *)dialer;
    struct tutti_net_interface theirs[TUTTI_NET_INTERFACES];
    struct tutti_net_way ways[TUTTI_NET_PATHS];
    const uint32_t n_theirs = tutti_net_interfaces_decode(told, bytes, theirs);
    if (n_theirs == UINT32_MAX) return; /* one socket is enough to work */
    const uint32_t n = tutti_net_ways(far->interfaces, far->n_interfaces, theirs, n_theirs, far->sockets, ways);
    for (uint32_t i = 0; i < n; i++)
        if (tutti_net_dial_path(far->net, peer, i, &ways[i]) < 0)
            tutti_log(TUTTI_LOG_WARN, "%s", tutti_last_error()->text);
    if (n > 0)
        tutti_log(TUTTI_LOG_INFO, "large messages to rank %u use %u sockets more, over %u interfaces", peer, n,
                  far->n_interfaces);
}

/* It carries nothing that would have to be encrypted. */
static void witness_opened(struct tutti_far *far, uint32_t peer, int fd, struct tutti_stream *stream)
{
    tutti_stream_close(stream);
    if (far->witnesses)
        tutti_witnesses_opened(far->witnesses, peer, fd);
    else
        close(fd);
}

static void path_opened(struct tutti_far *far, uint32_t peer, int fd, struct tutti_stream *stream)
{
    if (far->network->path_connected) {
        far->network->path_connected(far->wire, peer, fd, stream);
        return;
    }
    tutti_stream_close(stream);
    close(fd);
}

static void opened(void *arg, enum tutti_net_role role, uint32_t peer, int fd, struct tutti_stream *stream)
{
    struct tutti_far *far = arg;
    if (role == TUTTI_NET_DATA)
        far->network->connected(far->wire, peer, fd, stream);
    else if (role >= TUTTI_NET_PATH)
        path_opened(far, peer, fd, stream);
    else if (role == TUTTI_NET_WITNESS)
        witness_opened(far, peer, fd, stream);
    else
        tutti_tree_opened(far->tree, peer, fd, stream);
}

static void failed(void *arg, enum tutti_net_role role, uint32_t peer, const struct tutti_error *error)
{
    struct tutti_far *far = arg;
    if (role == TUTTI_NET_DATA) {
        tutti_log(TUTTI_LOG_WARN, "%s", error->text);
        far->network->failed(far->wire, peer, error->status);
    } else if (role >= TUTTI_NET_PATH) {
        tutti_log(TUTTI_LOG_WARN, "%s: large messages go without it", error->text);
    } else if (role == TUTTI_NET_CONTROL) {
        tutti_tree_failed(far->tree, peer, error);
    }
}

static bool is_dead(void *arg, uint32_t peer)
{
    struct tutti_control *tree = ((struct tutti_far *)arg)->tree;
    return tree->ops->life(tree, peer) == TUTTI_LIFE_DEAD;
}

/* Packets of a world have one greatest payload: that of the host with the most members, whose rings are smallest. */
static size_t payload_agreed(const struct tutti_config *config, const struct tutti_hosts *hosts)
{
    uint32_t most = 1;
    for (uint32_t h = 0; h < hosts->n_hosts; h++)
        if (hosts->hosts[h].n > most) most = hosts->hosts[h].n;
    if (most == 1) return TUTTI_TCP_PAYLOAD; /* and that of ofi */
    return tutti_ring_max_payload(tutti_segment_ring_bytes(most, tutti_rings_staging(config)));
}

/* Where each host has one member only the network is all there is; else each peer has its way. Takes over both. */
static enum tutti_status transports_join(struct tutti_far *far, const struct tutti_bootstrap *b,
                                         struct tutti_transport **near, struct tutti_transport **out)
{
    const struct tutti_hosts *hosts = &far->hosts;
    const uint32_t n = hosts->n_members, me = (uint32_t)b->rank, here = hosts->members[me].host;
    if (hosts->n_hosts == n) {
        (*near)->ops->close(*near);
        *near = NULL;
        *out = far->wire;
        return TUTTI_OK;
    }
    struct tutti_mixed_peer *peers = tutti_alloc_array(n, sizeof *peers);
    if (!peers) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the ways to %u members", n);
    for (uint32_t i = 0; i < n; i++)
        peers[i] = hosts->members[i].host == here ? (struct tutti_mixed_peer){0, hosts->members[i].local}
                                                  : (struct tutti_mixed_peer){1, i};
    struct tutti_transport *inner[] = {*near, far->wire};
    const size_t most = payload_agreed(b->config, hosts);
    if ((*near)->max_payload > most) (*near)->max_payload = most;
    if ((*near)->copied > most) (*near)->copied = most;
    enum tutti_status status = tutti_mixed_open(inner, 2, peers, n, me, out);
    tutti_free(peers);
    if (status == TUTTI_OK) *near = NULL;
    return status;
}

void tutti_near_close(struct tutti_near *near)
{
    if (near->control) near->control->ops->close(near->control);
    if (near->transport) near->transport->ops->close(near->transport);
    tutti_free(near->places);
    *near = (struct tutti_near){.transport = NULL};
}

/* 1: writes, 0: tagged messages, -1: as the transport finds it. */
static int ofi_writes(const char *rendezvous)
{
    return strcmp(rendezvous, "auto") == 0 ? -1 : strcmp(rendezvous, "write") == 0;
}

/* The network that option transport names, else option network. */
static enum tutti_status wire_open(struct tutti_far *far, const struct tutti_bootstrap *b)
{
    const char *name = b->config->text[TUTTI_OPT_transport];
    const uint32_t n = far->hosts.n_members, me = (uint32_t)b->rank;
    const struct tutti_tcp_config tcp = {
        .n = n, .me = me, .dialer = &far->dialer, .silence_ns = b->config->number[TUTTI_OPT_host_timeout]};
    far->network = &networks[0];
    if (!tutti_transport_is_network(name)) name = b->config->text[TUTTI_OPT_network];
    if (strcmp(name, "tcp") == 0) return tutti_tcp_open(&tcp, &far->wire);
    if (strcmp(name, "ofi") != 0)
        return tutti_fail(TUTTI_ERR_CONFIG, "option network: there is no '%s'; it is tcp or ofi", name);
    if (b->config->number[TUTTI_OPT_encrypt])
        return tutti_fail(TUTTI_ERR_CONFIG, "option encrypt needs network tcp: what ofi carries is not encrypted");
    char address[INET6_ADDRSTRLEN] = ""; /* where others reach this host */
    const struct tutti_net_address *here = &far->hosts.hosts[far->hosts.members[me].host].address;
    if (here->family) inet_ntop(here->family == 4 ? AF_INET : AF_INET6, here->bytes, address, sizeof address);
    const struct tutti_ofi_config ofi = {.n = n,
                                         .me = me,
                                         .dialer = &far->dialer,
                                         .provider = b->config->text[TUTTI_OPT_ofi_provider],
                                         .domain = b->config->text[TUTTI_OPT_ofi_domain],
                                         .address = address,
                                         .devices = b->device || b->in_use,
                                         .ports = b->config->number[TUTTI_OPT_port_range],
                                         .writes = ofi_writes(b->config->text[TUTTI_OPT_ofi_rendezvous])};
    far->network = &networks[1];
    return tutti_ofi_open(&ofi, &far->wire);
}

static enum tutti_status tree_open(struct tutti_far *far, const struct tutti_bootstrap *b, struct tutti_near *near)
{
    const struct tutti_tree_config config = {.me = (uint32_t)b->rank,
                                             .hosts = &far->hosts,
                                             .inner = near->control,
                                             .silence_ns = b->config->number[TUTTI_OPT_host_timeout]};
    TUTTI_TRY(tutti_tree_open(&config, &far->tree));
    near->control = NULL;
    const bool wanted = b->config->number[TUTTI_OPT_survives] || b->config->number[TUTTI_OPT_quorum];
    if (!wanted || far->hosts.n_members > TUTTI_WITNESSES_MOST) return TUTTI_OK;
    const enum tutti_status status = tutti_witnesses_open(config.me, &far->hosts, far->tree, &far->witnesses);
    if (status < 0) far->tree->ops->close(far->tree);
    return status;
}

static enum tutti_status net_open(struct tutti_far *far, const struct tutti_far_config *config)
{
    const struct tutti_bootstrap *b = config->bootstrap;
    const bool secret = b->secret && b->secret[0], proves = secret || b->certificate;
    const bool data = b->config->number[TUTTI_OPT_encrypt];
    const struct tutti_net_config net = {
        .me = (uint32_t)b->rank,
        .hosts = &far->hosts,
        .world = config->world,
        .secret = secret ? b->secret : NULL,
        .certificate = secret ? NULL : b->certificate,
        .encrypt = (proves ? 1u << TUTTI_NET_CONTROL : 0) | (data ? 1u << TUTTI_NET_DATA : 0),
        .interface = b->config->text[TUTTI_OPT_interface],
        .congestion = b->config->text[TUTTI_OPT_congestion],
        .listener = config->listener,
        .dial_ns = DIAL_NS,
        .arg = far,
        .opened = opened,
        .failed = failed,
        .is_dead = is_dead,
    };
    return tutti_net_open(&net, &far->net);
}

enum tutti_status tutti_far_open(const struct tutti_far_config *config, struct tutti_far **out,
                                 struct tutti_transport **transport, struct tutti_control **control)
{
    const struct tutti_bootstrap *b = config->bootstrap;
    struct tutti_near near = config->near;
    struct tutti_hosts hosts = config->hosts;
    struct tutti_transport *joined = NULL;
    struct tutti_listener *listener = config->listener;
    enum tutti_status status = TUTTI_OK;
    struct tutti_far *far = tutti_alloc(sizeof *far);
    if (!far) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a world on several hosts");
        tutti_hosts_fini(&hosts);
        goto err_near;
    }
    *far = (struct tutti_far){.dialer = {.dial = dial, .tell = tell, .widen = widen}, .hosts = hosts};
    far->sockets = (uint32_t)b->config->number[TUTTI_OPT_sockets];
    far->n_interfaces = tutti_net_interfaces(b->config->text[TUTTI_OPT_interface],
                                             &hosts.hosts[hosts.members[b->rank].host].address, far->interfaces);
    TUTTI_TRY_GOTO(status, wire_open(far, b), err_free);
    joined = far->wire;
    TUTTI_TRY_GOTO(status, tree_open(far, b, &near), err_wire);
    TUTTI_TRY_GOTO(status, transports_join(far, b, &near.transport, &joined), err_tree);
    TUTTI_TRY_GOTO(status, net_open(far, config), err_tree);
    tutti_tree_attach(far->tree, far->net);
    if (far->witnesses) tutti_witnesses_attach(far->witnesses, far->net);
    status = tutti_net_start(far->net);
    if (status < 0) {
        if (far->witnesses) tutti_witnesses_detach(far->witnesses);
        tutti_tree_detach(far->tree);
        tutti_net_close(far->net);
        listener = NULL;
        goto err_tree;
    }
    tutti_free(near.places);
    *out = far, *transport = joined, *control = far->tree;
    return TUTTI_OK;

err_tree:
    tutti_witnesses_close(far->witnesses);
    far->tree->ops->close(far->tree);
err_wire:
    joined->ops->close(joined);
err_free:
    tutti_hosts_fini(&far->hosts);
    tutti_free(far);
err_near:
    tutti_near_close(&near);
    if (listener) tutti_listener_close(listener);
    return status;
}

const struct tutti_hosts *tutti_far_hosts(const struct tutti_far *far)
{
    return &far->hosts;
}

void tutti_far_begin_close(struct tutti_far *far)
{
    /* A peer that was declared dead and comes back shall find a death here, not a goodbye. */
    for (uint32_t i = 0; i < far->hosts.n_members; i++)
        if (is_dead(far, i)) far->wire->ops->cut(far->wire, i);
    if (far->witnesses) tutti_witnesses_detach(far->witnesses);
    tutti_tree_detach(far->tree);
    tutti_net_close(far->net);
}

void tutti_far_end_close(struct tutti_far *far)
{
    tutti_witnesses_close(far->witnesses);
    tutti_hosts_fini(&far->hosts);
    tutti_free(far);
}
