/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_LEAD_LEAD_H
#define TUTTI_FT_LEAD_LEAD_H

/* The manager as a server: the machine of ft/manager between its ranks, which call, and a list of lighthouses, which it
 * calls, on a loop's thread. What the files of this room share; the calls themselves are <tutti/ft.h>'s. Begin with
 * lead.c. Of this room alone, on the loop's thread. */

#include "ft/ask/known.h"
#include "ft/ask/servers.h"
#include "ft/manager/manager.h"
#include "ft/message/message.h"

#include <tutti/ft.h>

/* A rank's process, if it is on this host. */
struct lead_rank {
    struct tutti_loop_fd watch; /* on its pidfd; fd -1: it is not watched */
    struct tutti_ft_manager *lead;
    int64_t pid; /* the last one that was looked at */
};

struct tutti_ft_manager {
    struct tutti_loop *loop;
    struct tutti_loop_timer timer, end; /* the machine's; the end of this process, after a kill */
    struct tutti_rpc_server *rpc;
    struct tutti_servers *lighthouses;
    struct tutti_manager *machine;
    struct tutti_asked quorum, beat, leave, settings;
    uint64_t heartbeat_ns;
    bool learns;              /* it has asked for the lighthouse's settings */
    struct tutti_known known; /* the last quorum, as Step tells it */
    uint64_t plain_until_ns;  /* the lighthouse does not know Step: so long it is asked by Quorum */
    struct lead_rank *ranks;
    uint32_t world_size;
    uint64_t connect_ns;
    bool has_secret, anyone_may_kill, closes; /* with a secret all who can call know it */
    _Atomic uint32_t left;                    /* the lighthouse knows that the group leaves, or will not */
    char *replica_id;
    char address[320];
};

/* ---- settle.c ---- */
void lead_settle(struct tutti_ft_manager *lead); /* after every event */
void lead_due(struct tutti_loop_timer *timer);   /* when `timer` is due */

/* ---- calls.c: from the ranks ---- */
extern const struct tutti_rpc_method lead_methods[];
extern const size_t lead_n_methods;
void lead_cancelled(void *arg, struct tutti_rpc_call *call);
void lead_placed(void *arg, uint64_t request, uint32_t group_rank, const struct tutti_quorum *quorum,
                 const struct tutti_place *place);
void lead_decided(void *arg, uint64_t request, bool commit);
void lead_refused(void *arg, uint64_t request, enum tutti_manager_why why, const char *text);

/* ---- lighthouses.c: to the lighthouse ---- */
void lead_ask(void *arg, const struct tutti_replica *group, uint64_t deadline_ns);
void lead_withdraw(void *arg);
void lead_beat(void *arg, const struct tutti_manager_progress *progress);
void lead_leave(void *arg, const char *why);

/* ---- processes.c ---- */
/* The rank says that its process is this one: watched, if it is on this host, and the call comes from it. */
void lead_watch(struct tutti_ft_manager *lead, uint32_t rank, int64_t pid, const struct tutti_rpc_call *call);
void lead_unwatch_all(struct tutti_ft_manager *lead);

/* ---- kill.c ---- */
void lead_on_kill(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n);
void lead_end(struct tutti_loop_timer *timer); /* when `end` is due */

#endif
