/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_CLIENT_MANAGER_SERVER_H
#define TUTTI_FT_CLIENT_MANAGER_SERVER_H

/* The manager as a server: the machine of rules/manager.h between its ranks, which call, and a list of lighthouses,
 * which it calls. What the files share; the public calls are in <tutti/ft.h>. Begin with manager_server.c.
 *
 * Thread: the loop's. Private to this folder. */

#include "ft/client/quorum_cache.h"
#include "ft/rpc/message.h"
#include "ft/rules/manager.h"

#include <tutti/ft.h>

/* A rank's process, if it is on this host. */
struct manager_rank {
    struct tutti_loop_fd watch; /* its pidfd's; fd -1: it is not watched */
    struct tutti_ft_manager *manager;
    int64_t pid; /* the last one that was looked at */
};

struct tutti_ft_manager {
    struct tutti_loop *loop;
    struct tutti_loop_timer timer, end; /* the machine's; the end of this process, after a kill */
    struct tutti_rpc_server *rpc;
    struct tutti_rpc_channel *lighthouses;
    struct tutti_manager *machine;
    struct tutti_rpc_request *quorum, *beat, *leave; /* under way; NULL: none is */
    uint64_t heartbeat_ns;
    bool learns;                     /* it has asked for the lighthouse's settings */
    struct tutti_quorum_cache cache; /* the last quorum, as Step tells it */
    uint64_t plain_until_ns;         /* the lighthouse does not know Step: so long it is asked by Quorum */
    struct manager_rank *ranks;
    uint32_t world_size;
    uint64_t connect_ns;
    bool has_secret, anyone_may_kill, closes; /* with a secret, or certificates, all callers are proved */
    _Atomic uint32_t left;                    /* the lighthouse knows that the group leaves, or will not */
    char *replica_id;
    char address[320];
};

/* ---- manager_server.c ---- */
void manager_schedule(struct tutti_ft_manager *manager); /* the machine's next time: after every event */

/* ---- manager_calls.c: from the ranks ---- */
extern const struct tutti_rpc_method manager_methods[];
extern const size_t manager_n_methods;
void manager_cancelled(void *arg, struct tutti_rpc_call *call);
void manager_expired(void *arg, const struct tutti_rpc_call *call, char *why, size_t n); /* which ranks are missing */
void manager_placed(void *arg, uint64_t request, uint32_t group_rank, const struct tutti_quorum *quorum,
                    const struct tutti_place *place);
void manager_decided(void *arg, uint64_t request, bool commit);
void manager_refused(void *arg, uint64_t request, enum tutti_manager_why why, const char *text);

/* ---- manager_lighthouse.c: to the lighthouse ---- */
void manager_ask(void *arg, const struct tutti_replica *group, uint64_t deadline_ns);
void manager_withdraw(void *arg);
void manager_beat(void *arg, const struct tutti_manager_progress *progress);
void manager_leave(void *arg, const char *why);

/* ---- processes.c ---- */
/* The rank says that its process is this one: watched, if it is on this host, and the call comes from it. */
void manager_watch(struct tutti_ft_manager *manager, uint32_t rank, int64_t pid, const struct tutti_rpc_call *call);
void manager_unwatch_all(struct tutti_ft_manager *manager);

#endif
