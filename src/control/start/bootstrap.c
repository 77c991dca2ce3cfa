/* SPDX-License-Identifier: BSD-3-Clause */

/* From (rank, size, name) to a world: meet, exchange cards, open the transport, wait until everybody has. Each step
 * ends at the deadline, and a rank that fails says so to the others in the segment before it goes. */

#include "control/start/bootstrap.h"

#include "control/host/host.h"
#include "control/unix/meeting.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRACE_EVENTS 256 /* packets that the trace decorator keeps */

/* What must be equal for two processes to share a segment. */
static uint64_t build_hash(void)
{
    const char *version = tutti_version_text();
    const uint64_t layout[] = {TUTTI_WIRE_VERSION, sizeof(struct tutti_packet), sizeof(struct tutti_error),
                               TUTTI_CARD_BYTES};
    return tutti_hash64(layout, sizeof layout, tutti_hash64(version, strlen(version), 0));
}

/* Without a store ranks can meet on one host only. What the launcher says is believed where it speaks of these ranks.
 */
static enum tutti_status hosts_check(const struct tutti_bootstrap *b)
{
    struct tutti_launch launch;
    if (b->store || tutti_launch_read(b->config, &launch) < 0) return TUTTI_OK;
    if (launch.n_ranks != b->n_ranks || launch.rank != b->rank || launch.local_size < 0 ||
        launch.local_size >= launch.n_ranks)
        return TUTTI_OK;
    return tutti_fail(
        TUTTI_ERR_BOOTSTRAP,
        "%s started %d of %d ranks on this host: to meet the others set TUTTI_STORE to tcp://host:port or "
        "to file:///path on a shared file system",
        launch.launcher, (int)launch.local_size, (int)launch.n_ranks);
}

static enum tutti_status meet(const struct tutti_bootstrap *b, const struct tutti_meeting_request *request,
                              struct tutti_meeting_result *out)
{
    if (b->n_ranks == 1) {
        const struct tutti_segment_config config = {.n = 1,
                                                    .staging_bytes = request->staging_bytes,
                                                    .heap_bytes = request->heap_bytes,
                                                    .control_bytes = tutti_host_control_bytes(1)};
        const char *name;
        TUTTI_TRY(tutti_transport_choose(request->transport, false, 1, &name, &out->shared));
        TUTTI_TRY(tutti_random_bytes(&out->nonce, sizeof out->nonce));
        return tutti_segment_create(&config, out->shared, &out->segment);
    }
    return b->store ? tutti_meet_by_store(b->store, b->name, request, out) : tutti_meet(b->job, b->name, request, out);
}

/* Opens and decorates. The segment is the transport's on success, released on failure. */
static enum tutti_status transport_open(const struct tutti_bootstrap *b, const struct tutti_meeting_result *met,
                                        struct tutti_transport **out)
{
    const struct tutti_config *config = b->config;
    const struct tutti_decorator_options options = {.fault = config->text[TUTTI_OPT_fault],
                                                    .delay_ns = config->number[TUTTI_OPT_delay],
                                                    .trace_events = TRACE_EVENTS};
    struct tutti_transport *inner;
    const char *name;
    bool spans;
    enum tutti_status status =
        tutti_transport_choose(config->text[TUTTI_OPT_transport], met->shared, (uint32_t)b->n_ranks, &name, &spans);
    if (status >= 0) status = tutti_transport_open(name, met->segment, (uint32_t)b->rank, &inner);
    if (status < 0) {
        tutti_segment_release(met->segment);
        return status;
    }
    status = tutti_transport_decorate(inner, config->text[TUTTI_OPT_decorators], &options, out);
    if (status < 0) inner->ops->close(inner);
    return status;
}

/* Runs over the met segment. `gate` is a second handle: the transport may be gone when the others must be told. */
static enum tutti_status world_make(const struct tutti_bootstrap *b, const struct tutti_meeting_request *request,
                                    const struct tutti_meeting_result *met, struct tutti_segment *gate,
                                    struct tutti_world *out)
{
    struct tutti_card_facts facts = {.places = tutti_alloc_array((size_t)b->n_ranks, sizeof *facts.places)};
    struct tutti_segment *shared;
    struct tutti_transport *transport;
    struct tutti_control *control;
    enum tutti_status status = TUTTI_OK;
    if (!facts.places) status = tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a world of %d ranks", b->n_ranks);
    if (status >= 0) status = tutti_card_exchange(gate, request, b->config, &facts);
    if (status < 0) {
        tutti_segment_release(met->segment);
        goto err_free;
    }
    TUTTI_TRY_GOTO(status, transport_open(b, met, &transport), err_free);
    TUTTI_TRY_GOTO(status, tutti_segment_share(gate, &shared), err_close);
    status = tutti_host_control_open(shared, (uint32_t)b->rank, &control);
    if (status < 0) {
        tutti_segment_release(shared);
        goto err_close;
    }
    TUTTI_TRY_GOTO(status, tutti_card_wait_open(gate, request), err_leave);
    *out = (struct tutti_world){
        .transport = transport,
        .control = control,
        .n = (uint32_t)b->n_ranks,
        .me = (uint32_t)b->rank,
        .nonce = met->nonce,
        .authenticated = request->secret != NULL,
        .min_cpus = facts.min_cpus,
        .n_cpus = facts.n_cpus,
        .crowded = facts.crowded,
        .decorated = facts.decorated,
        .devices = facts.devices,
        .places = facts.places,
        .machine = facts.machine,
        .n_host = (uint32_t)b->n_ranks,
    };
    gethostname(out->host, sizeof out->host - 1);
    return TUTTI_OK;

err_leave:
    control->ops->close(control);
err_close:
    transport->ops->close(transport);
err_free:
    tutti_free(facts.places);
    return status;
}

/* Before anybody waits for so many ranks. */
static enum tutti_status limit_check(const struct tutti_bootstrap *b)
{
    const char *name;
    bool spans;
    return tutti_transport_choose(b->config->text[TUTTI_OPT_transport], false, (uint32_t)b->n_ranks, &name, &spans);
}

enum tutti_status tutti_world_open(const struct tutti_bootstrap *b, struct tutti_world *out)
{
    if (b->n_ranks < 1 || b->rank < 0 || b->rank >= b->n_ranks)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "rank %d of %d ranks can not be", (int)b->rank, (int)b->n_ranks);
    TUTTI_TRY(limit_check(b));
    if (!b->name || !b->name[0]) return tutti_fail(TUTTI_ERR_ARGUMENT, "a meeting of ranks needs a name");
    if (b->n_ranks > 1) TUTTI_TRY(hosts_check(b));
    struct tutti_meeting_loss lost = {.pid = 0};
    const struct tutti_meeting_request request = {
        .rank = b->rank,
        .n_ranks = b->n_ranks,
        .secret = b->secret && b->secret[0] ? b->secret : NULL,
        .version = tutti_version_text(),
        .build = build_hash(),
        .host = tutti_host_id(),
        .transport = b->config->text[TUTTI_OPT_transport],
        .machine = b->machine,
        .crowded = b->crowded,
        .device = b->device,
        .staging_bytes = tutti_rings_staging(b->config),
        .heap_bytes = b->config->number[TUTTI_OPT_heap],
        .started_ns = tutti_now_ns(),
        .deadline_ns = b->deadline_ns,
        .cancel = b->cancel,
        .lost = &lost,
    };
    struct tutti_meeting_result met = {.segment = NULL};
    struct tutti_segment *gate;
    TUTTI_TRY(meet(b, &request, &met));
    enum tutti_status status = tutti_segment_share(met.segment, &gate);
    if (status < 0) {
        tutti_card_fail(met.segment, (uint32_t)b->rank, tutti_last_error());
        tutti_segment_release(met.segment);
        return status;
    }
    status = world_make(b, &request, &met, gate, out);
    if (status < 0) tutti_card_fail(gate, (uint32_t)b->rank, tutti_last_error());
    tutti_segment_release(gate);
    return status;
}

void tutti_world_close(struct tutti_world *world)
{
    if (!world->transport) return;
    world->control->ops->close(world->control);
    world->transport->ops->close(world->transport);
    tutti_free(world->places);
    memset(world, 0, sizeof *world);
}
