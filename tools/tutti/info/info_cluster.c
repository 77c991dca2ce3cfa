/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of a job meet, say where they are, and measure their links in pairs: one way of 8 bytes by messages to and
 * fro, and bandwidth by messages of 1 MiB and 16 MiB, in both directions. The rank that measures leads: the first word
 * of what it sends says what comes next, so that slow links take no longer than fast ones. */

#include "info_cluster.h"

#include "base/config.h"
#include "comm/comm.h"
#include "control/net/net.h"
#include "device/device.h"

#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

#define PATIENCE_NS (60 * TUTTI_NS_PER_S)
#define PINGS_NS (20 * TUTTI_NS_PER_MS) /* per pair */
#define SLOW_NS (100 * TUTTI_NS_PER_MS) /* a message of 1 MiB that takes longer is followed by no larger one */
enum { PINGS_LEAST = 4, BATCH = 10, MESSAGES = 4 };
enum word { END, PING, MEDIUM, LARGE };

struct meter {
    struct tutti_comm *comm;
    unsigned char *buffer;    /* CLUSTER_LARGE */
    enum tutti_status status; /* the first failure's */
};

/* ---- messages ---- */

static void send_to(struct meter *m, int32_t peer, const void *bytes, size_t n)
{
    if (m->status >= 0) m->status = tutti_send(bytes, n, TUTTI_UINT8, peer, 1, m->comm, NULL, NULL);
}

static void recv_from(struct meter *m, int32_t peer, void *bytes, size_t n)
{
    if (m->status >= 0) m->status = tutti_recv(bytes, n, TUTTI_UINT8, peer, 1, m->comm, NULL, NULL, NULL);
}

static void ping(struct meter *m, int32_t peer, uint64_t word)
{
    send_to(m, peer, &word, sizeof word);
    recv_from(m, peer, &word, sizeof word);
}

/* Answers until the peer is done. */
static void serve(struct meter *m, int32_t peer)
{
    uint64_t word = PING;
    while (m->status >= 0 && word != END) {
        recv_from(m, peer, &word, sizeof word);
        if (word == MEDIUM || word == LARGE)
            recv_from(m, peer, m->buffer, word == MEDIUM ? CLUSTER_MEDIUM : CLUSTER_LARGE);
        send_to(m, peer, &word, sizeof word);
    }
}

/* One way in us, the best batch: a busy machine takes a rank off its core now and then. */
static double latency_measure(struct meter *m, int32_t peer)
{
    const uint64_t begin = tutti_now_ns();
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < PINGS_LEAST; i++) ping(m, peer, PING); /* the connection is made at the first */
    for (uint32_t i = 0; i == 0 || tutti_now_ns() - begin < PINGS_NS; i++) {
        const uint64_t start = tutti_now_ns();
        for (uint32_t k = 0; k < BATCH; k++) ping(m, peer, PING);
        const uint64_t took = tutti_now_ns() - start;
        if (took < best) best = took;
        if (m->status < 0) return 0;
    }
    return (double)best / BATCH / 2 / 1e3;
}

/* GB/s of the best message; the time of a small one, which says that it came, is taken off. */
static double bandwidth_measure(struct meter *m, int32_t peer, enum word what, double latency_us)
{
    const size_t bytes = what == MEDIUM ? CLUSTER_MEDIUM : CLUSTER_LARGE;
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < MESSAGES && (i < 2 || best < SLOW_NS); i++) {
        uint64_t word = what;
        send_to(m, peer, &word, sizeof word);
        const uint64_t start = tutti_now_ns();
        send_to(m, peer, m->buffer, bytes);
        recv_from(m, peer, &word, sizeof word);
        const uint64_t took = tutti_now_ns() - start;
        if (i > 0 && took < best) best = took;
        if (m->status < 0) return 0;
    }
    const double ns = (double)best - latency_us * 1e3;
    return ns > 0 ? (double)bytes / ns : 0;
}

static void link_measure(struct meter *m, int32_t peer, struct cluster_link *link)
{
    link->latency_us = latency_measure(m, peer);
    link->medium = bandwidth_measure(m, peer, MEDIUM, link->latency_us);
    if (link->medium * (double)SLOW_NS > (double)CLUSTER_MEDIUM)
        link->large = bandwidth_measure(m, peer, LARGE, link->latency_us);
    ping(m, peer, END);
}

/* ---- all pairs ---- */

static void pairs_measure(struct cluster *c, struct meter *m, uint32_t mine)
{
    static uint32_t rounds[CLUSTER_MOST * CLUSTER_MOST];
    const uint32_t n = c->n_measured;
    uint32_t hosts[CLUSTER_MOST];
    for (uint32_t i = 0; i < n; i++) hosts[i] = c->ranks[c->measured[i]].host_index % CLUSTER_MOST;
    const uint32_t n_rounds = cluster_rounds(hosts, n, rounds);
    for (uint32_t round = 0; round < n_rounds && m->status >= 0; round++) {
        for (uint32_t i = 0; i < n && mine < n; i++) {
            const uint32_t a = i < mine ? i : mine, b = i < mine ? mine : i;
            const int32_t peer = (int32_t)c->measured[i];
            if (a == b || rounds[a * n + b] != round) continue;
            if (mine == a) link_measure(m, peer, &c->links[mine * n + i]);
            serve(m, peer);
            if (mine == b) link_measure(m, peer, &c->links[mine * n + i]);
        }
        if (m->status >= 0) m->status = tutti_barrier(m->comm, NULL, NULL);
    }
}

/* All rows to all. */
static enum tutti_status rows_gather(struct cluster *c, struct tutti_comm *comm, uint32_t mine)
{
    const uint32_t n = c->n_measured;
    const size_t row = n * sizeof *c->links;
    struct cluster_link *all = tutti_alloc_array((size_t)c->n * n, sizeof *all);
    struct cluster_link *own = tutti_alloc_array(n, sizeof *own);
    enum tutti_status status = TUTTI_ERR_MEMORY;
    if (all && own) {
        if (mine < n) memcpy(own, &c->links[mine * n], row);
        status = tutti_all_gather(own, all, row, TUTTI_UINT8, comm, NULL, NULL);
    }
    for (uint32_t i = 0; i < n && status >= 0; i++) memcpy(&c->links[i * n], &all[c->measured[i] * n], row);
    tutti_free(own);
    tutti_free(all);
    return status;
}

/* ---- who is where ---- */

static void self_fill(const struct tutti_comm *comm, struct cluster_rank *out)
{
    const struct tutti_world *world = &comm->family->world;
    const uint32_t n_devices = tutti_device_kind()->count();
    struct tutti_device_facts facts;
    out->pid = (int32_t)getpid(), out->cpus = (int32_t)tutti_cpus_allowed();
    if (world->hosts) {
        const uint32_t host = world->hosts->members[world->me].host;
        char name[TUTTI_HOST_TEXT];
        snprintf(out->host, sizeof out->host, "%.63s", tutti_hosts_name(world->hosts, host, name, sizeof name));
        tutti_net_address_text(&world->hosts->hosts[host].address, out->address, sizeof out->address);
        out->host_index = host;
    } else {
        snprintf(out->host, sizeof out->host, "%.63s", world->host);
    }
    if (n_devices > 0 && tutti_device_kind()->facts((int32_t)(world->me % n_devices), &facts) >= 0)
        snprintf(out->device, sizeof out->device, "%.80s", facts.name);
}

/* Chooses the ranks that measure: all, or the first of each host, CLUSTER_MOST at most. */
static void measured_choose(struct cluster *c)
{
    bool seen[CLUSTER_MOST] = {false};
    for (uint32_t i = 0; i < c->n; i++) {
        const uint32_t host = c->ranks[i].host_index;
        if (host + 1 > c->n_hosts) c->n_hosts = host + 1;
        if (c->n > CLUSTER_MOST && (host >= CLUSTER_MOST || seen[host])) continue;
        if (host < CLUSTER_MOST) seen[host] = true;
        c->measured[c->n_measured++] = i;
    }
}

static enum tutti_status ranks_gather(struct cluster *c, struct tutti_comm *comm)
{
    struct cluster_rank self;
    memset(&self, 0, sizeof self);
    self_fill(comm, &self);
    c->n = (uint32_t)tutti_comm_size(comm);
    c->ranks = tutti_alloc_array(c->n, sizeof *c->ranks);
    if (!c->ranks) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u ranks", c->n);
    TUTTI_TRY(tutti_all_gather(&self, c->ranks, sizeof self, TUTTI_UINT8, comm, NULL, NULL));
    measured_choose(c);
    c->links = tutti_alloc_array((size_t)c->n_measured * c->n_measured, sizeof *c->links);
    return c->links ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u links", c->n_measured);
}

static enum tutti_status all_measure(struct cluster *c, struct tutti_comm *comm)
{
    struct meter meter = {.comm = comm, .buffer = tutti_alloc(CLUSTER_LARGE)};
    uint32_t mine = 0;
    if (!meter.buffer) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a message of %zu bytes", CLUSTER_LARGE);
    memset(meter.buffer, 1, CLUSTER_LARGE);
    enum tutti_status status = ranks_gather(c, comm);
    while (status >= 0 && mine < c->n_measured && c->measured[mine] != (uint32_t)tutti_comm_rank(comm)) mine++;
    if (status >= 0) {
        pairs_measure(c, &meter, mine);
        status = meter.status;
    }
    if (status >= 0) status = rows_gather(c, comm, mine);
    tutti_free(meter.buffer);
    return status;
}

bool cluster_gather(struct cluster *c, bool *speaks)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_comm *comm = NULL;
    config.name = "tutti info";
    config.device = TUTTI_DEVICE_NONE;
    config.timeout_ns = PATIENCE_NS;
    *c = (struct cluster){.n = 0};
    enum tutti_status status = tutti_comm_create(NULL, &config, &comm);
    if (status >= 0) {
        *speaks = tutti_comm_rank(comm) == 0;
        status = all_measure(c, comm);
    }
    if (status < 0) fprintf(stderr, "tutti info: %s\n", tutti_last_error()->text);
    if (comm) tutti_comm_destroy(comm);
    return status >= 0;
}

void cluster_fini(struct cluster *c)
{
    tutti_free(c->ranks);
    tutti_free(c->links);
    *c = (struct cluster){.n = 0};
}

/* Pairs that measure at once. Pure, so that every rank comes to the same. */

/* One round: takes each pair that is left whose hosts are idle. Returns how many. */
static uint32_t round_fill(const uint32_t *hosts, uint32_t n, uint32_t round, uint32_t *rounds, bool *busy)
{
    uint32_t taken = 0;
    memset(busy, 0, n * sizeof *busy);
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = a + 1; b < n; b++) {
            if (rounds[a * n + b] != UINT32_MAX || busy[hosts[a]] || busy[hosts[b]]) continue;
            rounds[a * n + b] = round;
            busy[hosts[a]] = busy[hosts[b]] = true;
            taken++;
        }
    return taken;
}

uint32_t cluster_rounds(const uint32_t *hosts, uint32_t n, uint32_t *rounds)
{
    bool busy[CLUSTER_MOST];
    uint32_t round = 0;
    for (uint32_t i = 0; i < n * n; i++) rounds[i] = UINT32_MAX;
    while (round_fill(hosts, n, round, rounds, busy) > 0) round++;
    return round;
}
