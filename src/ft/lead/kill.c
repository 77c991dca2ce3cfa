/* SPDX-License-Identifier: BSD-3-Clause */
/* The process ends itself when somebody asks who may. SIGTERM first, so that what handles it can tidy up. */
#include "ft/lead/lead.h"

#include <signal.h>
#include <unistd.h>

#define TIDY_NS (5 * TUTTI_NS_PER_S)

void lead_end(struct tutti_loop_timer *timer)
{
    (void)timer;
    kill(getpid(), SIGKILL);
}

void lead_on_kill(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n)
{
    struct tutti_ft_manager *lead = arg;
    Torchft__KillRequest *request = torchft__kill_request__unpack(NULL, n, message);
    struct tutti_rpc_body *empty = tutti_rpc_body_new(0);

    if (!request || !empty) {
        tutti_rpc_fail(call, TUTTI_RPC_INTERNAL, "the request can not be read");
    } else if (!lead->anyone_may_kill && !lead->has_secret) {
        tutti_log(TUTTI_LOG_WARN, "%s: %s wants to kill this process", lead->replica_id, tutti_rpc_peer(call));
        tutti_rpc_fail(call, TUTTI_RPC_PERMISSION_DENIED,
                       "this manager has no secret (TUTTI_SECRET), so nobody may kill it");
    } else {
        tutti_log(TUTTI_LOG_WARN, "%s: this process is killed by %s: %.200s", lead->replica_id, tutti_rpc_peer(call),
                  request->msg);
        tutti_rpc_reply(call, empty), empty = NULL;
        tutti_loop_at(lead->loop, &lead->end, tutti_deadline_ns(TIDY_NS));
        kill(getpid(), SIGTERM);
    }
    tutti_rpc_body_give(empty);
    if (request) torchft__kill_request__free_unpacked(request, NULL);
}
