/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H

/* Contexts and communicators. A context is one rank's library state: options, transports, the progress engine. It has
 * no global state, so that many contexts (ranks) live in one process. A communicator is an ordered set of ranks. All
 * calls may be made from any thread.
 *
 * After fork a context, and what was made from it (communicators, works, windows), is the parent's alone: in the child
 * calls on it are refused (ARGUMENT) and change nothing of the parent's, abort, free and destroy do nothing, and what
 * the child makes itself works. */

#include <tutti/store.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tutti_context;
struct tutti_comm;
struct tutti_work; /* coll.h */

#define TUTTI_TIMEOUT_DEFAULT 0 /* 30 minutes, or the option TUTTI_TIMEOUT */

struct tutti_option {
    const char *name, *value; /* "transport", "shm"; names without the TUTTI_ prefix, any case */
};

/* Reads the options (file, environment, then these, the last one wins). options may be NULL when n is 0.
 * Errors: ARGUMENT (unknown option or value out of range; the text says what to write instead), MEMORY. */
TUTTI_API enum tutti_status tutti_context_create(const struct tutti_option *options, size_t n,
                                                 struct tutti_context **out) TUTTI_MUST_USE;
/* Destroy the communicators first; those still there are aborted. Returns when all functions of tutti_work_notify have.
 * NULL is ignored. */
TUTTI_API void tutti_context_destroy(struct tutti_context *context);
/* What an option is here by file and environment: its text, as given, and the number that it stands for (bytes,
 * nanoseconds, 0 or 1; 0 of a text). The option "secret" is also that of TUTTI_SECRET_FILE. Errors: as for create;
 * TRUNCATED (the text does not fit). */
TUTTI_API enum tutti_status tutti_option_get(const char *name, char *text, size_t capacity,
                                             uint64_t *number) TUTTI_MUST_USE;

struct tutti_comm_config {
    size_t size;           /* sizeof(struct tutti_comm_config) */
    int32_t rank, n_ranks; /* -1: from the environment (tutti run, torchrun, Open MPI, MPICH, Slurm) */
    const struct tutti_store
        *store;          /* where the members meet; borrowed until creation ends. NULL: from the environment */
    const char *name;    /* names the meeting; members give the same. NULL: "world" */
    const char *secret;  /* NULL: TUTTI_SECRET(_FILE) or certificates (TUTTI_TLS_CA), else unauthenticated */
    uint64_t timeout_ns; /* default deadline of this communicator's calls, creation included */
    bool nonblocking;    /* return at once; poll with tutti_comm_state */
    int64_t device;  /* the device whose memory calls may use: a CUDA device as this process counts, or one of the two
                        below; so wide that size tells whether it is there */
    int64_t survive; /* not 0: its calls survive the death of ranks, see tutti_work_contributors; so wide, too. Then the
                        store is borrowed until the communicator is destroyed */
    int64_t joins;   /* not 0, with survive: this rank comes when the others are at work, see tutti_comm_admit */
};
#define TUTTI_DEVICE_AUTO (-1) /* the device of the calling thread's current CUDA context, if there is one */
#define TUTTI_DEVICE_NONE (-2) /* host memory alone */
#define TUTTI_COMM_CONFIG_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(struct tutti_comm_config), -1, -1, NULL, NULL, NULL, TUTTI_TIMEOUT_DEFAULT, false, TUTTI_DEVICE_AUTO,   \
            0, 0                                                                                                       \
    }

/* Makes a communicator among the n_ranks processes that call with the same store or job and name. Blocking, unless
 * config->nonblocking. context NULL: makes a private one that goes with the communicator; config NULL: all defaults.
 * Errors: ARGUMENT, BOOTSTRAP, TIMEOUT (who is missing), PEER_DEAD (who had come and died), CONFIG (whose
 * configuration differs), AUTH, SYSTEM, MEMORY. */
TUTTI_API enum tutti_status tutti_comm_create(struct tutti_context *context, const struct tutti_comm_config *config,
                                              struct tutti_comm **out) TUTTI_MUST_USE;

#define TUTTI_UNDEFINED (-1) /* colour of a rank that joins no group */

/* Collective over comm: ranks of one colour become one communicator, ordered by key, then by old rank. *out is NULL for
 * TUTTI_UNDEFINED. O(log n) messages a rank. Blocking. */
TUTTI_API enum tutti_status tutti_comm_split(struct tutti_comm *comm, int32_t colour, int32_t key,
                                             struct tutti_comm **out) TUTTI_MUST_USE;
/* Collective: a communicator of the same ranks with its own order and errors. */
TUTTI_API enum tutti_status tutti_comm_dup(struct tutti_comm *comm, struct tutti_comm **out) TUTTI_MUST_USE;
/* The ranks whose contributions a call's result holds, ascending; *n: how many. work NULL: the last call on comm that
 * ended; else a complete one of the last 64 of comm. ranks may be NULL; at most capacity of them are written. Of
 * communicators without config.survive: all ranks. Errors: ARGUMENT.
 *
 * A rank of a communicator with config.survive may die at any time: each call ends on all survivors with the same bits,
 * made of the same contributors, or with the same error (PEER_DEAD: the root of the call died). The survivors do not
 * lose the call that they are in: it is done again without the dead, unless some have returned from it with their
 * contribution; then all get that result. Input is intact, or restored, until a call is decided; the blocks of lost
 * ranks in the results of all_gather and gather are zero; avg divides by the contributors. all_reduce, reduce,
 * reduce_scatter, all_gather, gather, broadcast and barrier, all_gather_v and reduce_scatter_v are carried out, one
 * after another, those of a group too (others, and what makes something from the communicator: UNSUPPORTED). Calls on
 * device memory hold their stream until they are decided; not in graphs. Not with nonblocking. Ranks keep their
 * numbers.
 *
 * A rank that misses a call's deadline is waited for as long again as a host may be silent (option host_timeout),
 * unless its process is stopped. If it comes by then, the call is done again with it; when all come so late three times
 * in one call, it ends with TIMEOUT on all, and the communicator with it. Else, or where a cut network parts it from
 * the majority of those that may live (of two halves: from the lowest; with option arbiter: from the side that asks the
 * store first, and a side that is not the majority waits 2 s before it asks), it ends with TIMEOUT: the others go on
 * without it, and it may come anew (tutti_comm_admit). A rank without memory for what survival takes (MEMORY) is lost
 * to the others, who go on, or end with MEMORY, too. A rank that ends its part without a barrier may have a result that
 * the others, where one of them dies at that moment, make without it. */
TUTTI_API enum tutti_status tutti_work_contributors(const struct tutti_work *work, struct tutti_comm *comm,
                                                    int32_t *ranks, size_t capacity, size_t *n) TUTTI_MUST_USE;

/* Takes newcomers into a communicator with config.survive, in the place of ranks that were lost. Collective over the
 * ranks that are left; blocking; not at once with other calls on comm, but behind those that were started. Where nobody
 * waits at the door it is an all_reduce of 8 bytes. *n (may be NULL): how many came in; their ranks, ascending, at most
 * capacity of them, in ranks (may be NULL). The next call has them as contributors, and tutti_work_contributors(NULL,
 * ...) tells all who are in now. If a newcomer or a member dies in it, all go on without newcomers (*n is 0, OK), and
 * a later admit takes those who still wait. Errors: as a call's; ARGUMENT (comm does not survive).
 *
 * A newcomer calls tutti_comm_create with the same store and name (config.store, or the option TUTTI_STORE, which both
 * sides need), survive and joins. It waits until an admit takes it: TIMEOUT when none did within its deadline; then it
 * may call again. config.rank is the number that it wants, for which it waits until that is free; -1: the lowest one
 * that is free (the environment is not asked). n_ranks: the communicator's size, or -1. Who finds no place waits as a
 * spare. Afterwards its calls count like the others': tutti_comm_sequence is theirs. What came before it does not know:
 * the program tells it (tutti_broadcast). A rank that was lost, and lives, destroys its communicator and comes so. */
TUTTI_API enum tutti_status tutti_comm_admit(struct tutti_comm *comm, int32_t *ranks, size_t capacity,
                                             size_t *n) TUTTI_MUST_USE;

/* Called by the survivors alone, with the same list of ranks to leave out (dead ones may be left out of the list: they
 * are found). Works on an aborted or failed communicator, which stays as it is. Errors as for create.
 *
 * A network that is cut parts a communicator, and each side takes the others for dead: both shrink, and go on. With
 * option quorum (TUTTI_QUORUM=1, equal on all ranks) one side does: the majority of the ranks that may live (of two
 * halves: that of the lowest; a rank whose process is known to have ended counts for no side, one that is left out
 * while it lives counts), or, with option arbiter, the side that asks the store first (TUTTI_STORE; a side that is not
 * the majority waits 2 s before it asks). On the others shrink ends with TIMEOUT: they must not go on. */
TUTTI_API enum tutti_status tutti_comm_shrink(struct tutti_comm *comm, const int32_t *exclude, size_t n_exclude,
                                              struct tutti_comm **out) TUTTI_MUST_USE;

/* TUTTI_PENDING while a non-blocking create is under way, TUTTI_OK when usable, else the error that ended it (also the
 * record of a communicator that failed or was aborted later; error may be NULL). */
TUTTI_API enum tutti_status tutti_comm_state(struct tutti_comm *comm, struct tutti_error *error);

/* Ends every call in flight on this communicator, on all ranks, with TUTTI_ERR_ABORTED and this reason (may be NULL).
 * Returns at once; any thread. Outputs of the ended calls are undefined. The process lives on. A signal handler that
 * interrupts a call of the library can not abort: then nothing happens, and tutti_last_error says so (ARGUMENT); let
 * the handler set a flag or write to a pipe for another thread. A rank of this host that was stopped in the middle of
 * an ended call for more than 300 ms may still write into an output, except where the option `survives` is set:
 * programs that use their buffers again after a failure set it. */
TUTTI_API void tutti_comm_abort(struct tutti_comm *comm, const char *reason);
/* Waits until no call is in flight here, at most timeout_ns (0: until their deadlines); TUTTI_PENDING when that passes
 * first. For who can not wait as long as destroy may: flush, abort what is left, destroy. */
TUTTI_API enum tutti_status tutti_comm_flush(struct tutti_comm *comm, uint64_t timeout_ns);
/* Waits for the calls in flight here (until their deadlines) and their functions (tutti_work_notify), then frees. Not
 * collective. NULL is ignored. Where calls were captured, not while anything else on the device is: the driver can not
 * say then whether graphs still run, ends that capture, and the communicator's device memory stays taken. */
TUTTI_API void tutti_comm_destroy(struct tutti_comm *comm);

/* Collective over all ranks of comm, each with its own device (or TUTTI_DEVICE_NONE, or _AUTO); no call may be in
 * flight. Communicators made from comm afterwards have it, too; those of config.device need no call of this. Where
 * every rank has a device and they reach one another, calls run on the devices; where some have none, or can not,
 * device memory goes through the host, and host and device memory may be mixed between the ranks of a call (not between
 * the buffers of one rank). UNSUPPORTED, with the reason: this rank can not use that device. */
TUTTI_API enum tutti_status tutti_comm_set_device(struct tutti_comm *comm, int32_t device) TUTTI_MUST_USE;
/* The device, TUTTI_DEVICE_NONE if there is none. */
TUTTI_API int32_t tutti_comm_device(const struct tutti_comm *comm);

TUTTI_API int32_t tutti_comm_rank(const struct tutti_comm *comm);
TUTTI_API int32_t tutti_comm_size(const struct tutti_comm *comm);
TUTTI_API uint64_t tutti_comm_id(const struct tutti_comm *comm); /* equal on all members */
TUTTI_API struct tutti_context *tutti_comm_context(const struct tutti_comm *comm);
TUTTI_API void tutti_comm_set_timeout(struct tutti_comm *comm, uint64_t timeout_ns);
TUTTI_API uint64_t tutti_comm_timeout(const struct tutti_comm *comm);
/* The number of collectives called so far on this communicator, those inside split, dup and window_create included. */
TUTTI_API uint64_t tutti_comm_sequence(const struct tutti_comm *comm);

/* Memory that every rank of the host can map, of the communicator's device, if it has one, else of the host:
 * collectives on it are zero-copy (on devices: inside windows). Page-aligned, zeroed, private to this rank until used
 * in a call. Free it before the communicator's whole family is destroyed. Not collective. */
TUTTI_API enum tutti_status tutti_mem_alloc(struct tutti_comm *comm, size_t bytes, void **out) TUTTI_MUST_USE;
TUTTI_API enum tutti_status tutti_mem_free(struct tutti_comm *comm, void *pointer);
/* Prepares memory of the caller for transfers: local, and a hint. No transport of this version registers memory, so the
 * arguments are checked, the handle is made, and nothing else is done. */
struct tutti_mem;
TUTTI_API enum tutti_status tutti_mem_register(struct tutti_comm *comm, void *pointer, size_t bytes,
                                               struct tutti_mem **out) TUTTI_MUST_USE;
TUTTI_API void tutti_mem_deregister(struct tutti_mem *mem);

/* The library's version: (major << 16) | (minor << 8) | patch, and as text. The soname is libtutti.so.MAJOR. */
TUTTI_API uint32_t tutti_version(void);
TUTTI_API const char *tutti_version_text(void);

#ifdef __cplusplus
}
#endif

#endif
