/* SPDX-License-Identifier: BSD-3-Clause */

/* From (rank, size, name) to a world: meet; then, with the members of this host, exchange cards, open the transport,
 * wait until everybody has; then, where there are other hosts, add the network. Each step ends at the deadline. */

#include "control/meet/bootstrap.h"

#include "control/asks.h"
#include "control/meet/card.h"
#include "control/meet/far.h"
#include "control/meet/meeting.h"
#include "transport/open.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRACE_EVENTS 256 /* packets that the trace decorator keeps */

/* All by the network, those of one host too: for tests and measurements. */
static bool by_network(const struct tutti_config *config)
{
    return tutti_transport_is_network(config->text[TUTTI_OPT_transport]);
}

/* What carries packets within this host. */
static const char *near_transport(const struct tutti_config *config)
{
    return by_network(config) ? "auto" : config->text[TUTTI_OPT_transport];
}

/* What must be equal for two processes to share a segment. */
static uint64_t build_hash(void)
{
    const char *version = tutti_version_text();
    const uint64_t layout[] = {TUTTI_WIRE_VERSION, sizeof(struct tutti_packet), sizeof(struct tutti_error),
                               TUTTI_CARD_BYTES};
    return tutti_hash64(layout, sizeof layout, tutti_hash64(version, strlen(version), 0));
}

#define SECRET_MISSES                                                                                                  \
    "hosts do not talk without the job's secret: give all ranks the same TUTTI_SECRET or TUTTI_SECRET_FILE, or "       \
    "certificates (TUTTI_TLS_CA), or TUTTI_TRUST_NETWORK=1 on a network of your own"

/* What the launcher says is believed where it speaks of these ranks. */
static bool is_spread(const struct tutti_bootstrap *b, struct tutti_launch *launch)
{
    return tutti_launch_read(b->config, launch) == TUTTI_OK && tutti_launch_spans(launch, b->rank, b->n_ranks);
}

/* Without a store ranks can meet on one host only. All that misses is told at once. */
static enum tutti_status hosts_check(const struct tutti_bootstrap *b, const struct tutti_launch *launch)
{
    const bool secret = (b->secret && b->secret[0]) || b->certificate || b->config->number[TUTTI_OPT_trust_network];
    if (b->store) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_BOOTSTRAP,
                      "%s started %d of %d ranks on this host, and nothing tells them where the others are: set "
                      "TUTTI_STORE=tcp://host:port or file:///shared/path, or MASTER_ADDR, MASTER_PORT to rank 0's "
                      "host and a free port%s%s%s",
                      launch->launcher, (int)launch->local_size, (int)launch->n_ranks,
                      strcmp(launch->launcher, "Slurm") == 0 ? " (srun --mpi=pmix needs none of these)" : "",
                      secret ? "" : "; and ", secret ? "" : SECRET_MISSES);
}

/* Opens a world or a host with one rank alone. shared: others than ranks may want to look at it. */
static enum tutti_status segment_alone(const struct tutti_meeting_request *request, bool shared,
                                       struct tutti_meeting_result *out)
{
    const struct tutti_segment_config config = {.n = 1,
                                                .staging_bytes = request->staging_bytes,
                                                .heap_bytes = request->heap_bytes,
                                                .control_bytes = tutti_host_control_bytes(1)};
    const char *name;
    TUTTI_TRY(tutti_transport_choose(request->transport, false, 1, &name, &out->shared));
    TUTTI_TRY(tutti_random_bytes(&out->nonce, sizeof out->nonce));
    out->shared = out->shared || shared;
    return tutti_segment_create(&config, out->shared, &out->segment);
}

static enum tutti_status meet(const struct tutti_bootstrap *b, const struct tutti_meeting_request *request,
                              struct tutti_meeting_result *out)
{
    if (b->n_ranks == 1) return segment_alone(request, false, out);
    return b->store ? tutti_meet_by_store(b->store, b->name, request, out) : tutti_meet(b->job, b->name, request, out);
}

/* ---- this host ---- */

static enum tutti_status decorate(const struct tutti_config *config, struct tutti_transport *inner,
                                  struct tutti_transport **out)
{
    const struct tutti_decorator_options options = {.fault = config->text[TUTTI_OPT_fault],
                                                    .delay_ns = config->number[TUTTI_OPT_delay],
                                                    .trace_events = TRACE_EVENTS};
    return tutti_transport_decorate(inner, config->text[TUTTI_OPT_decorators], &options, out);
}

/* Opens the transport of this host. The segment is the transport's on success, released on failure. */
static enum tutti_status transport_open(const struct tutti_meeting_request *request,
                                        const struct tutti_meeting_result *met, struct tutti_transport **out)
{
    const char *name;
    bool spans;
    enum tutti_status status =
        tutti_transport_choose(request->transport, met->shared, (uint32_t)request->n_ranks, &name, &spans);
    if (status >= 0) status = tutti_transport_open(name, met->segment, (uint32_t)request->rank, out);
    if (status < 0) tutti_segment_release(met->segment);
    return status;
}

/* Over the met segment, which it takes over. `gate` is a second handle: the transport may be gone when the others must
 * be told. config: of its decorators, NULL: none. */
static enum tutti_status near_make(const struct tutti_meeting_request *request, const struct tutti_meeting_result *met,
                                   const struct tutti_config *config, struct tutti_segment *gate,
                                   struct tutti_near *out)
{
    struct tutti_segment *shared;
    enum tutti_status status = TUTTI_OK;
    *out = (struct tutti_near){.places = tutti_alloc_array((size_t)request->n_ranks, sizeof *out->places)};
    if (!out->places) status = tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a world of %d ranks", request->n_ranks);
    if (status >= 0) status = tutti_card_exchange(gate, request, out->places, &out->facts);
    if (status < 0) {
        tutti_segment_release(met->segment);
        goto err;
    }
    TUTTI_TRY_GOTO(status, transport_open(request, met, &out->transport), err);
    if (config) TUTTI_TRY_GOTO(status, decorate(config, out->transport, &out->transport), err);
    TUTTI_TRY_GOTO(status, tutti_segment_share(gate, &shared), err);
    status = tutti_host_control_open(shared, (uint32_t)request->rank, &out->control);
    if (status < 0) {
        tutti_segment_release(shared);
        goto err;
    }
    TUTTI_TRY_GOTO(status, tutti_card_wait_open(gate, request), err);
    return TUTTI_OK;
err:
    tutti_near_close(out);
    return status;
}

/* A rank that fails says so to the others of the host before it goes. */
static enum tutti_status near_open(const struct tutti_meeting_request *request, const struct tutti_meeting_result *met,
                                   const struct tutti_config *config, struct tutti_near *out)
{
    struct tutti_segment *gate;
    enum tutti_status status = tutti_segment_share(met->segment, &gate);
    if (status < 0) {
        tutti_card_fail(met->segment, (uint32_t)request->rank, tutti_last_error());
        tutti_segment_release(met->segment);
        return status;
    }
    status = near_make(request, met, config, gate, out);
    if (status < 0) tutti_card_fail(gate, (uint32_t)request->rank, tutti_last_error());
    tutti_segment_release(gate);
    return status;
}

/* ---- the world ---- */

static void world_fill(const struct tutti_bootstrap *b, uint64_t nonce, const struct tutti_world_facts *facts,
                       struct tutti_world *out)
{
    out->n = (uint32_t)b->n_ranks, out->me = (uint32_t)b->rank;
    out->nonce = nonce;
    out->authenticated = (b->secret && b->secret[0]) || b->certificate;
    out->min_cpus = facts->min_cpus, out->n_cpus = facts->n_cpus, out->n_host = facts->n_host;
    out->crowded = facts->crowded, out->decorated = facts->decorated, out->devices = facts->devices;
    out->machine = facts->machine;
    tutti_host_name(b->config->text[TUTTI_OPT_host], out->host, sizeof out->host);
}

/* For who looks at the memory of this host from outside. hosts: NULL when there is one. */
static void show_who(const struct tutti_bootstrap *b, uint64_t world, const struct tutti_hosts *hosts,
                     struct tutti_control *near)
{
    struct tutti_who who = {.world = world, .member = (uint32_t)b->rank, .n = (uint32_t)b->n_ranks};
    if (hosts)
        tutti_hosts_name(hosts, hosts->members[b->rank].host, who.host, sizeof who.host);
    else
        tutti_host_name(b->config->text[TUTTI_OPT_host], who.host, sizeof who.host);
    tutti_who_write(near, &who);
}

static enum tutti_status world_near(const struct tutti_bootstrap *b, const struct tutti_meeting_request *request,
                                    const struct tutti_meeting_result *met, struct tutti_world *out)
{
    struct tutti_near near;
    TUTTI_TRY(near_open(request, met, b->config, &near));
    *out = (struct tutti_world){.transport = near.transport, .control = near.control, .places = near.places};
    world_fill(b, met->nonce, &near.facts, out);
    show_who(b, met->nonce, NULL, near.control);
    return TUTTI_OK;
}

/* The ranks of this host meet at a place that only members of the world know. */
static enum tutti_status near_meet(const struct tutti_meeting_request *request, const struct tutti_hosts *hosts,
                                   uint64_t world, struct tutti_near *out)
{
    const struct tutti_member_row *mine = &hosts->members[request->rank];
    struct tutti_meeting_request within = *request;
    struct tutti_meeting_loss lost = {.pid = 0};
    struct tutti_meeting_result met = {.segment = NULL};
    char job[32], name[32];
    within.rank = (int32_t)mine->local, within.n_ranks = (int32_t)hosts->hosts[mine->host].n;
    within.listener = NULL, within.lost = &lost;
    snprintf(job, sizeof job, "%016" PRIx64, tutti_mix64(world));
    snprintf(name, sizeof name, "%016" PRIx64, request->host);
    TUTTI_TRY(within.n_ranks == 1 ? segment_alone(&within, true, &met) : tutti_meet(job, name, &within, &met));
    return near_open(&within, &met, NULL, out);
}

/* Places of the members of other hosts are not known. */
static struct tutti_cpu_place *places_spread(const struct tutti_hosts *hosts, uint32_t me,
                                             const struct tutti_cpu_place *near)
{
    struct tutti_cpu_place *places = tutti_alloc_array(hosts->n_members, sizeof *places);
    for (uint32_t i = 0; places && i < hosts->n_members; i++) {
        if (hosts->members[i].host == hosts->members[me].host)
            places[i] = near[hosts->members[i].local];
        else
            memset(&places[i], 0xff, sizeof places[i]); /* -1 */
    }
    return places;
}

/* Takes over the listener. */
static enum tutti_status world_far(const struct tutti_bootstrap *b, const struct tutti_meeting_request *request,
                                   const struct tutti_meeting_result *met, struct tutti_world *out)
{
    struct tutti_far_config config = {.bootstrap = b, .world = met->nonce, .listener = request->listener};
    struct tutti_world_facts facts;
    struct tutti_world world = {.transport = NULL};
    enum tutti_status status;
    status = tutti_table_read(met->table, met->n_table, (uint32_t)b->n_ranks, &facts, &config.hosts);
    if (status < 0) {
        tutti_handout_unmap(met->rows, met->n_rows);
        goto err_listener;
    }
    tutti_hosts_share(&config.hosts, met->rows, met->n_rows);
    TUTTI_TRY_GOTO(status, near_meet(request, &config.hosts, met->nonce, &config.near), err_hosts);
    show_who(b, met->nonce, &config.hosts, config.near.control);
    world.places = places_spread(&config.hosts, (uint32_t)b->rank, config.near.places);
    if (!world.places) {
        tutti_near_close(&config.near);
        status = tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a world of %d ranks", (int)b->n_ranks);
        goto err_hosts;
    }
    struct tutti_transport *joined;
    status = tutti_far_open(&config, &world.far, &joined, &world.control);
    if (status < 0) {
        tutti_free(world.places);
        return status;
    }
    status = decorate(b->config, joined, &world.transport);
    if (status < 0) world.transport = joined;
    world_fill(b, met->nonce, &facts, &world);
    world.hosts = tutti_far_hosts(world.far);
    if (status < 0)
        tutti_world_close(&world);
    else
        *out = world;
    return status;

err_hosts:
    tutti_hosts_fini(&config.hosts);
err_listener:
    tutti_listener_close(request->listener);
    return status;
}

/* Before anybody waits for so many ranks. */
static enum tutti_status limit_check(const struct tutti_bootstrap *b)
{
    const char *name;
    bool spans;
    if (b->store) return TUTTI_OK; /* they may be on many hosts */
    return tutti_transport_choose(near_transport(b->config), false, (uint32_t)b->n_ranks, &name, &spans);
}

/* Opens the listener if this job may use the network; else says why not. */
static enum tutti_status listener_open(const struct tutti_bootstrap *b, struct tutti_meeting_request *request)
{
    const struct tutti_config *config = b->config;
    const struct tutti_listener_config listener = {.interface = config->text[TUTTI_OPT_interface],
                                                   .congestion = config->text[TUTTI_OPT_congestion],
                                                   .ports = config->number[TUTTI_OPT_port_range]};
    const bool named = config->text[TUTTI_OPT_host][0] != '\0';
    if (b->n_ranks == 1 || (!b->store && !named && !by_network(config))) return TUTTI_OK;
    const bool proves = request->secret || request->certificate;
    if (!proves && config->number[TUTTI_OPT_encrypt])
        request->alone_because = "option encrypt needs the job's secret: give all ranks the same TUTTI_SECRET or "
                                 "TUTTI_SECRET_FILE, or certificates (TUTTI_TLS_CA)";
    else if (!proves && !config->number[TUTTI_OPT_trust_network])
        request->alone_because = SECRET_MISSES;
    if (request->alone_because) return TUTTI_OK;
    const enum tutti_status status = tutti_listener_open(&listener, &request->listener);
    if (status == TUTTI_OK) return status;
    const struct tutti_error why = *tutti_last_error();
    char host[64];
    tutti_host_name(config->text[TUTTI_OPT_host], host, sizeof host);
    return tutti_fail(status, "rank %d on host %s: %.400s", (int)b->rank, host, why.text);
}

static enum tutti_status world_meet(const struct tutti_bootstrap *b, struct tutti_meeting_request *request,
                                    struct tutti_world *out)
{
    struct tutti_meeting_result met = {.segment = NULL};
    enum tutti_status status = meet(b, request, &met);
    if (status == TUTTI_OK && met.table) {
        status = world_far(b, request, &met, out);
        tutti_handout_unmap(met.table, met.n_table);
        return status;
    }
    if (status == TUTTI_OK) status = world_near(b, request, &met, out);
    if (request->listener) tutti_listener_close(request->listener);
    return status;
}

/* Where all go by the network each rank is a host of its own. */
static uint64_t host_of(const struct tutti_bootstrap *b)
{
    const uint64_t host = tutti_host_id(b->config->text[TUTTI_OPT_host]);
    return by_network(b->config) ? tutti_mix64(host + (uint64_t)b->rank + 1) : host;
}

enum tutti_status tutti_world_open(const struct tutti_bootstrap *b, struct tutti_world *out)
{
    if (b->n_ranks < 1 || b->rank < 0 || b->rank >= b->n_ranks)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "rank %d of %d ranks can not be", (int)b->rank, (int)b->n_ranks);
    TUTTI_TRY(limit_check(b));
    if (!b->name || !b->name[0]) return tutti_fail(TUTTI_ERR_ARGUMENT, "a meeting of ranks needs a name");
    struct tutti_launch launch;
    const bool spread = b->n_ranks > 1 && is_spread(b, &launch);
    if (spread) TUTTI_TRY(hosts_check(b, &launch));
    struct tutti_meeting_loss lost = {.pid = 0};
    struct tutti_card_record card;
    struct tutti_meeting_request request = {
        .rank = b->rank,
        .n_ranks = b->n_ranks,
        .secret = b->secret && b->secret[0] ? b->secret : NULL,
        .certificate = b->secret && b->secret[0] ? NULL : b->certificate,
        .version = tutti_version_text(),
        .build = build_hash(),
        .host = host_of(b),
        .transport = near_transport(b->config),
        .card = &card,
        .spread = spread,
        .interface = b->config->text[TUTTI_OPT_interface],
        .ports = b->config->number[TUTTI_OPT_port_range],
        .staging_bytes = tutti_rings_staging(b->config),
        .heap_bytes = b->config->number[TUTTI_OPT_heap],
        .started_ns = tutti_now_ns(),
        .deadline_ns = b->deadline_ns,
        .cancel = b->cancel,
        .lost = &lost,
    };
    TUTTI_TRY(listener_open(b, &request));
    const struct tutti_card_self self = {.version = request.version,
                                         .build = request.build,
                                         .host = request.host,
                                         .machine = b->machine,
                                         .crowded = b->crowded,
                                         .device = b->device,
                                         .port = request.listener ? tutti_listener_port(request.listener) : 0};
    enum tutti_status status = tutti_card_fill(&self, b->config, &card);
    if (status == TUTTI_OK) return world_meet(b, &request, out);
    if (request.listener) tutti_listener_close(request.listener);
    return status;
}

void tutti_world_close(struct tutti_world *world)
{
    if (!world->transport) return;
    if (world->far) tutti_far_begin_close(world->far);
    world->control->ops->close(world->control);
    world->transport->ops->close(world->transport);
    if (world->far) tutti_far_end_close(world->far);
    tutti_free(world->places);
    memset(world, 0, sizeof *world);
}
