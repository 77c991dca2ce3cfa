/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_H
#define TUTTI_FT_H

/* Fault tolerance of replica groups. A job is several groups of ranks that train the same model; a group is lost as a
 * whole. Before each step its ranks ask which groups take part; after the step they vote whether it counts.
 *
 *     lighthouse   one a job (or several that replace one another): decides who takes part, the quorum
 *     manager      one a group: speaks for it, gathers its ranks' requests and votes
 *     client       one a rank: asks its group's manager
 *
 *     tutti_ft_manager_open(&config, &manager);                       // rank 0 of the group
 *     tutti_ft_client_open(address_of_manager, timeout_ns, &client);  // every rank
 *     tutti_ft_client_quorum(client, &request, timeout_ns, &place);   // the groups that take part, and what this rank
 * does
 *     ... one step with place->replica_world_size members ...
 *     tutti_ft_client_should_commit(client, rank, step, !failed, timeout_ns, &commit);
 *     tutti_ft_place_free(place);
 *
 * All three speak torchft's protocol (gRPC over HTTP/2 in clear text), so each may be torchft's own at the other end.
 * Source: github.com/meta-pytorch/torchft, proto/torchft.proto and src/manager.rs of 2026-04.
 *
 * Threads: every call from any thread; calls of one client run side by side. Every call that waits has a timeout, after
 * which it fails with TIMEOUT. Strings of arguments are copied. Addresses: "http://host:port" or "host:port"; where a
 * lighthouse is meant, several with commas between. Where there is a secret of the job, all calls are TLS 1.3 with a
 * key made of it, and a peer that does not know it is refused; clients read it from TUTTI_SECRET or the file
 * TUTTI_SECRET_FILE, too, and can then not talk to torchft's parts. In its place certificates do (TUTTI_TLS_CA).
 * Without nghttp2 and protobuf-c every open is UNSUPPORTED. Errors of all: ARGUMENT naming the argument, or what the
 * other end said of it; MEMORY; SYSTEM, also for an end that can not be reached or is gone; TIMEOUT; AUTH. What the
 * other end answers is in the text in torchft's words: 'status: NotFound, message: "..."'. */

#include <tutti/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a group says of itself: torchft's QuorumMember. */
struct tutti_ft_member {
    const char *replica_id;    /* unlike all others', and new after each restart */
    const char *address;       /* its manager's */
    const char *store_address; /* "host:port" of the store where ranks of the groups may meet */
    const char *data;          /* the user's own, passed on; "" if none */
    int64_t step, commit_failures;
    uint64_t world_size;
    bool shrink_only;
    uint32_t n_handles;         /* world_size, or 0 where the group has none */
    const char *const *handles; /* its ranks' in order, by which their process groups are reached */
};
/* Members in the order of their names. Belongs to the caller, freed by tutti_ft_quorum_free. */
struct tutti_ft_quorum {
    int64_t id;
    int64_t created_ns; /* the lighthouse's wall clock, since 1970 */
    uint32_t n_members;
    const struct tutti_ft_member *members;
};
TUTTI_API void tutti_ft_quorum_free(struct tutti_ft_quorum *quorum); /* NULL is allowed */

/* ---- deadlines: one knob ---- */
/* What is 0 is derived from timeout_ns; what contradicts is refused with a sentence. The same for all parts of a job.
 */
struct tutti_ft_timeouts {
    size_t size;         /* sizeof(struct tutti_ft_timeouts) */
    uint64_t timeout_ns; /* for each call, vote and recovery of a step; 0: TUTTI_FT_TIMEOUT (60 s) */
    uint64_t quorum_ns;  /* until all groups have asked: timeout */
    uint64_t connect_ns; /* to a part that may be starting: timeout */
    uint64_t join_ns;    /* how long a quorum waits for groups that are heard but do not ask: half of quorum */
    uint64_t heartbeat_timeout_ns;  /* 5 s, or a quarter of quorum */
    uint64_t heartbeat_interval_ns; /* 100 ms, or a tenth of heartbeat_timeout */
    uint64_t tick_ns;               /* 100 ms, or a tenth of join */
};
#define TUTTI_FT_TIMEOUTS_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(struct tutti_ft_timeouts), 0, 0, 0, 0, 0, 0, 0                                                          \
    }
/* ARGUMENT names the two that contradict: one passes before another that contains it. */
TUTTI_API enum tutti_status tutti_ft_timeouts_fill(struct tutti_ft_timeouts *timeouts) TUTTI_MUST_USE;

/* ---- lighthouse ---- */
struct tutti_ft_lighthouse_config {
    size_t size;              /* sizeof(struct tutti_ft_lighthouse_config) */
    const char *bind;         /* "host:port"; port 0: any. NULL: port 29510, and without a secret of this host alone */
    uint64_t min_replicas;    /* at least 1 */
    uint64_t join_timeout_ns; /* so long a quorum waits for groups that are heard but do not ask */
    uint64_t tick_ns;         /* period of looking again */
    uint64_t heartbeat_timeout_ns; /* a group unheard for so long is gone */
    const char *secret;            /* as the manager's */
};
#define TUTTI_FT_LIGHTHOUSE_CONFIG_INIT                                                                                \
    {                                                                                                                  \
        sizeof(struct tutti_ft_lighthouse_config), NULL, 1, 60000000000, 100000000, 5000000000, NULL                   \
    }
struct tutti_ft_lighthouse;
/* Serves from a thread of this process. Without a secret it believes all callers: where these may come from
 * other hosts the log warns, "unauthenticated". */
TUTTI_API enum tutti_status tutti_ft_lighthouse_open(const struct tutti_ft_lighthouse_config *config,
                                                     struct tutti_ft_lighthouse **out) TUTTI_MUST_USE;
TUTTI_API const char *tutti_ft_lighthouse_address(const struct tutti_ft_lighthouse *lighthouse);
TUTTI_API void tutti_ft_lighthouse_close(struct tutti_ft_lighthouse *lighthouse);

/* A group without a manager asks itself. */
struct tutti_ft_lighthouse_client;
/* Blocks until a lighthouse of the list answers. */
TUTTI_API enum tutti_status tutti_ft_lighthouse_client_open(const char *addresses, uint64_t connect_timeout_ns,
                                                            struct tutti_ft_lighthouse_client **out) TUTTI_MUST_USE;
/* Blocks until there is a quorum with the member in it. */
TUTTI_API enum tutti_status tutti_ft_lighthouse_client_quorum(struct tutti_ft_lighthouse_client *client,
                                                              const struct tutti_ft_member *member, uint64_t timeout_ns,
                                                              struct tutti_ft_quorum **out) TUTTI_MUST_USE;
TUTTI_API enum tutti_status tutti_ft_lighthouse_client_heartbeat(struct tutti_ft_lighthouse_client *client,
                                                                 const char *replica_id,
                                                                 uint64_t timeout_ns) TUTTI_MUST_USE;
/* What the lighthouse tells all groups: its rules and the lines of its file, by their names. Freed by
 * tutti_ft_settings_free. UNSUPPORTED: torchft's does not know the call. */
struct tutti_ft_setting {
    const char *name, *value;
};
struct tutti_ft_settings {
    uint32_t n;
    const struct tutti_ft_setting *list;
};
TUTTI_API enum tutti_status tutti_ft_lighthouse_client_settings(struct tutti_ft_lighthouse_client *client,
                                                                uint64_t timeout_ns,
                                                                struct tutti_ft_settings **out) TUTTI_MUST_USE;
TUTTI_API void tutti_ft_settings_free(struct tutti_ft_settings *settings); /* NULL is allowed */
/* Groups of the job that are not heard any more, as it happens. When its lighthouse is lost the
 * next one tells; what happened meanwhile is not told. */
struct tutti_ft_failures;
TUTTI_API enum tutti_status tutti_ft_failures_open(struct tutti_ft_lighthouse_client *client,
                                                   struct tutti_ft_failures **out) TUTTI_MUST_USE;
/* Blocks until there is one; its name is freed by free(). UNSUPPORTED: as above. */
TUTTI_API enum tutti_status tutti_ft_failures_next(struct tutti_ft_failures *failures, uint64_t timeout_ns,
                                                   char **replica_id) TUTTI_MUST_USE;
TUTTI_API void tutti_ft_failures_close(struct tutti_ft_failures *failures); /* before its client */
TUTTI_API void tutti_ft_lighthouse_client_close(struct tutti_ft_lighthouse_client *client);

/* ---- manager ---- */
struct tutti_ft_manager_config {
    size_t size; /* sizeof(struct tutti_ft_manager_config) */
    const char *replica_id;
    const char *lighthouse;
    const char *hostname; /* under which the other groups reach it; NULL: this host's name */
    const char *bind;     /* "host:port"; NULL: any port, and without a secret and a hostname of this host alone */
    const char *store_address;
    uint32_t world_size; /* ranks of the group */
    uint64_t heartbeat_interval_ns;
    uint64_t connect_timeout_ns; /* to the lighthouse */
    uint32_t quorum_retries;     /* how often the lighthouse is asked anew when it refuses or can not be reached */
    const char *secret;          /* the job's; NULL: TUTTI_SECRET, or the file TUTTI_SECRET_FILE */
    bool anyone_may_kill;        /* as with torchft: tutti_ft_client_kill needs no secret */
};
#define TUTTI_FT_MANAGER_CONFIG_INIT                                                                                   \
    {                                                                                                                  \
        sizeof(struct tutti_ft_manager_config), NULL, NULL, NULL, NULL, "", 1, 100000000, 60000000000, 0, NULL, false  \
    }
struct tutti_ft_manager;
/* Serves from a thread of this process and sends heartbeats to the lighthouse until it is closed. Without a secret it
 * believes all callers, and the log says "unauthenticated", as the lighthouse's. Does not wait for the
 * lighthouse. A lighthouse that is lost is dialled again, and the next of the list is; a quorum that was asked for
 * waits for connect_timeout, then all ranks are told. */
TUTTI_API enum tutti_status tutti_ft_manager_open(const struct tutti_ft_manager_config *config,
                                                  struct tutti_ft_manager **out) TUTTI_MUST_USE;
TUTTI_API const char *tutti_ft_manager_address(const struct tutti_ft_manager *manager); /* "http://host:port" */
/* The lighthouse is told that the group leaves, if it can be reached at once. */
TUTTI_API void tutti_ft_manager_close(struct tutti_ft_manager *manager);

/* ---- client of a manager ---- */
struct tutti_ft_client;
/* Blocks until the manager answers. A manager on this host watches this process from its first quorum on, and so knows
 * at once when it ends. */
TUTTI_API enum tutti_status tutti_ft_client_open(const char *address, uint64_t connect_timeout_ns,
                                                 struct tutti_ft_client **out) TUTTI_MUST_USE;
TUTTI_API void tutti_ft_client_close(struct tutti_ft_client *client); /* its calls end with CANCELLED */

struct tutti_ft_request {
    uint32_t group_rank; /* the caller's, in its group */
    int64_t step;
    const char *checkpoint_metadata; /* where others can fetch this rank's state */
    bool shrink_only;                /* no new groups now */
    bool init_sync;                  /* at step 0 all take one group's state */
    int64_t commit_failures;         /* one after another, until now */
    const char *reconfigure_handle;  /* by which the process group of this rank is reached; NULL or "": none */
};
/* What this rank does in the next step. Freed by tutti_ft_place_free. */
struct tutti_ft_place {
    int64_t quorum_id;
    uint32_t replica_rank, replica_world_size; /* among the groups that take part */
    uint32_t max_replica_rank, max_world_size; /* among those that are up to date; rank UINT32_MAX: it is not */
    int64_t max_step;
    int64_t commit_failures;            /* the most of any member */
    const char *store_address;          /* where the ranks of this number of all groups meet */
    bool heal;                          /* this rank takes the state of a peer first ... */
    uint32_t source_rank;               /* ... this one; UINT32_MAX: none */
    const char *source_manager_address; /* "" if none */
    uint32_t n_sources;         /* groups that have this very state: that one and, at most three, others; 0 ... */
    const char *const *sources; /* ... where the manager does not tell them; addresses of their managers */
    bool offers;                /* this rank is among such sources of a peer, whether or not the next two name it */
    uint32_t n_targets;         /* groups that take the state from this rank */
    const uint32_t *targets;
    uint32_t n_replicas; /* = replica_world_size; 0 where the manager does not tell the names */
    const char *const *replica_ids;
    const char *const *handles; /* the ranks of this number in the n_replicas groups; NULL: some group has none */
};
TUTTI_API void tutti_ft_place_free(struct tutti_ft_place *place); /* NULL is allowed */
/* Blocks until all ranks of the group have asked and the lighthouse has answered. */
TUTTI_API enum tutti_status tutti_ft_client_quorum(struct tutti_ft_client *client,
                                                   const struct tutti_ft_request *request, uint64_t timeout_ns,
                                                   struct tutti_ft_place **out) TUTTI_MUST_USE;
/* Blocks until all ranks of the group have voted; *commit: nobody voted false. ARGUMENT: ranks vote for other steps. */
TUTTI_API enum tutti_status tutti_ft_client_should_commit(struct tutti_ft_client *client, uint32_t group_rank,
                                                          int64_t step, bool vote, uint64_t timeout_ns,
                                                          bool *commit) TUTTI_MUST_USE;
/* What the rank of that number gave as checkpoint_metadata, freed by free(). */
TUTTI_API enum tutti_status tutti_ft_client_checkpoint_metadata(struct tutti_ft_client *client, uint32_t group_rank,
                                                                uint64_t timeout_ns, char **out) TUTTI_MUST_USE;
/* Liveness is progress: how far this rank is, by its last step and the number of its last collective. Goes to the
 * lighthouse with the next heartbeat; does not wait, and of several calls in short order the last one counts. torchft's
 * managers do not know the call (UNSUPPORTED). */
TUTTI_API enum tutti_status tutti_ft_client_progress(struct tutti_ft_client *client, uint32_t group_rank, int64_t step,
                                                     uint64_t collective) TUTTI_MUST_USE;
/* The manager's process ends itself (SIGTERM, 5 s later SIGKILL), as torchft's does. A manager of tutti without a
 * secret refuses it (AUTH), unless its configuration says otherwise. */
TUTTI_API enum tutti_status tutti_ft_client_kill(struct tutti_ft_client *client, const char *why,
                                                 uint64_t timeout_ns) TUTTI_MUST_USE;

/* ---- a team: steps that survive the death of groups (docs/no_lost_step.md) ---- */
/* The ranks of one number of all groups, as a communicator whose calls survive the death of some. No step waits for a
 * quorum: a thread of the team asks for them while training goes on, and meets newcomers beside the communicator in
 * use; all members take them in when they begin a step. What is decided is decided in calls of all members, so all know
 * the same.
 *
 *     tutti_ft_team_open(&config, &team);
 *     while (step < n_steps) {
 *         tutti_ft_team_begin(team, step, &begun);
 *         ... if begun.n_behind: they get the state of rank begun.source, and go on from begun.step ...
 *         ... the calls of the step, on begun.comm ...
 *         tutti_ft_team_commit(team, failed, &commit);
 *         step += commit;
 *     }
 *
 * All members make the same calls between begin and commit. Thread: begin, commit, leave and close are one thread's. */
struct tutti_ft_team_config {
    size_t size;                   /* sizeof(struct tutti_ft_team_config) */
    const char *manager;           /* the address of the group's */
    struct tutti_context *context; /* for the communicators; NULL: each has one of its own */
    struct tutti_comm *inside;     /* the ranks of this group, in begin and commit the team's; NULL: it has one rank */
    uint32_t group_rank;
    uint32_t min_replicas; /* a step counts when so many groups are in it */
    const char *secret;    /* the job's; NULL: as the manager's */
    uint64_t timeout_ns;   /* for each call of the communicator, and until a quorum is there */
    uint64_t every_ns;     /* between questions for a quorum, and 1 ms for each group: so soon newcomers are heard of */
};
#define TUTTI_FT_TEAM_CONFIG_INIT                                                                                      \
    {                                                                                                                  \
        sizeof(struct tutti_ft_team_config), NULL, NULL, NULL, 0, 1, NULL, 60000000000, 250000000                      \
    }
struct tutti_ft_team;
/* Blocks until the manager answers. */
TUTTI_API enum tutti_status tutti_ft_team_open(const struct tutti_ft_team_config *config,
                                               struct tutti_ft_team **out) TUTTI_MUST_USE;
/* The others go on without this rank. NULL is allowed. */
TUTTI_API void tutti_ft_team_close(struct tutti_ft_team *team);

/* The same for all members, but for heals. The lists are the team's until its next call. */
struct tutti_ft_step {
    struct tutti_comm *comm; /* the team's; until the next begin, leave or close */
    int64_t quorum_id;
    int64_t step;     /* up to which the members are that are not behind */
    bool taken;       /* the communicator is a new one: ranks have other numbers */
    bool heals;       /* this rank is behind */
    int32_t source;   /* the rank that has the state for those behind; -1: nobody is */
    uint32_t n_alive; /* members; more may have died since the last vote */
    const int32_t *alive;
    uint32_t n_behind; /* members that need the state: at step 0 all but one */
    const int32_t *behind;
};
/* Begins a step: step is how far this rank is, -1: it has no state to go on with. Blocks until there are min_replicas
 * groups, and for a newcomer until the others take it in. Errors: TIMEOUT says why there is no quorum; PEER_DEAD, when
 * another rank of this group is gone. */
TUTTI_API enum tutti_status tutti_ft_team_begin(struct tutti_ft_team *team, int64_t step,
                                                struct tutti_ft_step *out) TUTTI_MUST_USE;
/* Ends it: *commit, the same on all members: nobody has failed, and min_replicas groups are there. failed: what this
 * rank has computed is of no use. Where a call of the step failed, or was not made that the others made, this rank
 * leaves instead, and is taken in again. */
TUTTI_API enum tutti_status tutti_ft_team_commit(struct tutti_ft_team *team, bool failed, bool *commit) TUTTI_MUST_USE;
/* This rank can not go on in the step: the others do without it, and the next begin takes it in again. */
TUTTI_API void tutti_ft_team_leave(struct tutti_ft_team *team);

#ifdef __cplusplus
}
#endif

#endif
