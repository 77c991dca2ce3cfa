/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators from their making to their end. The handle is there before the communicator is: what makes it is a job
 * (group.c), which has a reference of its own. */
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- families ---- */

/* The device of the calling thread; 0 where none was chosen yet, as in CUDA, or where there is none. */
static int device_current(void)
{
    const int32_t current = tutti_accelerator_current();
    return current >= 0 ? current : 0;
}

/* Without any GPU buffers are host memory; a GPU that is there has to work. */
static int device_open(struct nccl_family *family, int device)
{
    struct tutti_accelerator *first;
    family->device = device == NCCL_DEVICE_CURRENT ? device_current() : device;
    enum tutti_status status = tutti_accelerator_open("cuda", family->device, &family->accelerator);
    if (status >= 0) return NCCL_SUCCESS;
    family->accelerator = NULL;
    if (status != TUTTI_ERR_UNSUPPORTED && status != TUTTI_ERR_ARGUMENT) {
        nccl_told(status);
        return NCCL_UNHANDLED_CUDA_ERROR;
    }
    if (family->device != 0 && tutti_accelerator_open("cuda", 0, &first) == TUTTI_OK) {
        const int n = tutti_accelerator_count(first);
        tutti_accelerator_close(first);
        return nccl_fail(NCCL_INVALID_ARGUMENT, "device %d can not be used: this process sees %d devices",
                         family->device, n);
    }
    nccl_log_info("communicators are of host memory: %s", tutti_last_error()->text);
    family->device = -1;
    return NCCL_SUCCESS;
}

int nccl_family_new(const struct nccl_settings *settings, int device, struct nccl_family **out)
{
    char blocks[16];
    snprintf(blocks, sizeof blocks, "%u", settings->gpu_blocks);
    const struct tutti_option options[] = {{"job", "nccl"}, {"gpu_blocks", blocks}};
    struct nccl_family *family = calloc(1, sizeof *family);
    if (!family) return nccl_fail(NCCL_SYSTEM_ERROR, "out of memory for a communicator");
    family->refs = 1;
    int result = device_open(family, device);
    if (result == NCCL_SUCCESS)
        result = nccl_told(tutti_context_create(options, settings->gpu_blocks ? 2 : 1, &family->context));
    if (result == NCCL_SUCCESS)
        *out = family;
    else
        nccl_family_drop(family);
    return result;
}

struct nccl_family *nccl_family_hold(struct nccl_family *family)
{
    atomic_fetch_add(&family->refs, 1);
    return family;
}

void nccl_family_drop(struct nccl_family *family)
{
    if (!family || atomic_fetch_sub(&family->refs, 1) != 1) return;
    tutti_context_destroy(family->context);
    tutti_accelerator_close(family->accelerator);
    free(family);
}

/* ---- handles ---- */

int nccl_comm_check(const char *call, const struct ncclComm *comm)
{
    if (!comm) return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: comm is NULL", call);
    if (comm->magic != NCCL_COMM_MAGIC)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: comm is no communicator, or was destroyed", call);
    return NCCL_SUCCESS;
}

int nccl_comm_ready(const char *call, const struct ncclComm *comm)
{
    NCCL_TRY(nccl_comm_check(call, comm));
    const int state = atomic_load_explicit(&comm->state, memory_order_acquire);
    if (state == NCCL_IN_PROGRESS)
        return nccl_fail(NCCL_INVALID_ARGUMENT,
                         "%s on rank %d: an earlier call on the communicator is in progress: ask ncclCommGetAsyncError "
                         "until it is over",
                         call, comm->rank);
    if (state != NCCL_SUCCESS) return nccl_fail(state, "%s on rank %d: the communicator failed", call, comm->rank);
    if (atomic_load_explicit(&comm->ended, memory_order_relaxed))
        return nccl_fail(NCCL_INVALID_USAGE, "%s on rank %d: the communicator was %s", call, comm->rank,
                         comm->revoked ? "revoked" : "finalized");
    return NCCL_SUCCESS;
}

int nccl_comm_new(const struct nccl_settings *settings, int rank, int n_ranks, struct nccl_family *family,
                  struct ncclComm **out)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (!comm) return nccl_fail(NCCL_SYSTEM_ERROR, "out of memory for a communicator");
    comm->magic = NCCL_COMM_MAGIC;
    comm->refs = 1;
    comm->family = family;
    comm->settings = *settings;
    comm->rank = rank;
    comm->n_ranks = n_ranks;
    pthread_mutex_init(&comm->lock, NULL);
    *out = comm;
    return NCCL_SUCCESS;
}

void nccl_comm_drop(struct ncclComm *comm)
{
    if (comm && atomic_fetch_sub(&comm->refs, 1) == 1) nccl_comm_retire(comm);
}

/* ---- making ---- */

static void nap(uint64_t ns)
{
    nanosleep(&(struct timespec){0, (long)ns}, NULL);
}

/* So that an abort ends it, the creation is one that does not block, and is waited for here. */
static int creation_wait(const struct ncclComm *comm)
{
    struct tutti_error error;
    uint64_t ns = 20000;
    enum tutti_status status;
    while ((status = tutti_comm_state(nccl_tutti(comm), &error)) == TUTTI_PENDING) {
        nap(ns);
        if (ns < 500000) ns += ns / 2;
    }
    if (status >= 0) return NCCL_SUCCESS;
    return nccl_fail(nccl_code(status), "%s", error.text);
}

int nccl_comm_meet(struct ncclComm *comm, const struct nccl_id *id)
{
    char name[NCCL_NAME_BYTES], secret[NCCL_NAME_BYTES];
    struct tutti_store store = {NULL, NULL};
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_comm *made = NULL;
    if (comm->n_ranks > 1) NCCL_TRY(nccl_id_store(id, comm->rank, &store));
    int result = nccl_id_names(id, comm->rank, &store, name, secret);
    config.rank = comm->rank;
    config.n_ranks = comm->n_ranks;
    config.store = comm->n_ranks > 1 ? &store : NULL;
    config.name = name;
    config.secret = secret;
    config.timeout_ns = nccl_timeout_ns();
    config.nonblocking = true;
    config.device = comm->family->accelerator ? comm->family->device : TUTTI_DEVICE_NONE;
    if (result == NCCL_SUCCESS) result = nccl_told(tutti_comm_create(comm->family->context, &config, &made));
    if (result == NCCL_SUCCESS) {
        atomic_store(&comm->comm, made);
        if (atomic_load(&comm->dropped)) tutti_comm_abort(made, "ncclCommAbort");
        result = creation_wait(comm);
        if (result == NCCL_SUCCESS) nccl_comm_enlist(comm);
    }
    tutti_store_close(&store);
    return result;
}

static int job_meet(struct nccl_job *job)
{
    nccl_log_version();
    nccl_plugins_tell();
    return nccl_comm_meet(job->subject, &job->id);
}

int nccl_comm_init(const char *call, struct ncclComm **out, int n_ranks, const struct nccl_id *id, int rank,
                   const struct nccl_config *config, int device)
{
    struct nccl_settings settings;
    struct nccl_family *family;
    struct nccl_job job = {.run = job_meet, .call = call, .id = *id};
    if (!out) return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: comm is NULL", call);
    *out = NULL;
    if (n_ranks < 1 || rank < 0 || rank >= n_ranks)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: rank %d is not one of %d ranks", call, rank, n_ranks);
    NCCL_TRY(nccl_id_check(call, id));
    NCCL_TRY(nccl_settings_read(call, config, NULL, &settings));
    NCCL_TRY(nccl_family_new(&settings, device, &family));
    const int result = nccl_comm_new(&settings, rank, n_ranks, family, &job.subject);
    if (result != NCCL_SUCCESS) {
        nccl_family_drop(family);
        return result;
    }
    job.out = out;
    *out = job.subject;
    return nccl_job_submit(&job);
}

NCCL_TWIN(CommInitRank);
int pncclCommInitRank(struct ncclComm **out, int n_ranks, struct nccl_id id, int rank)
{
    return nccl_group_note(nccl_comm_init("ncclCommInitRank", out, n_ranks, &id, rank, NULL, NCCL_DEVICE_CURRENT));
}

NCCL_TWIN(CommInitRankConfig);
int pncclCommInitRankConfig(struct ncclComm **out, int n_ranks, struct nccl_id id, int rank, struct nccl_config *config)
{
    return nccl_group_note(
        nccl_comm_init("ncclCommInitRankConfig", out, n_ranks, &id, rank, config, NCCL_DEVICE_CURRENT));
}

NCCL_TWIN(CommInitRankScalable);
int pncclCommInitRankScalable(struct ncclComm **out, int n_ranks, int rank, int n_ids, struct nccl_id *ids,
                              struct nccl_config *config)
{
    if (n_ids < 1 || n_ids > n_ranks || !ids)
        return nccl_group_note(
            nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommInitRankScalable: %d ids of %d ranks", ids ? n_ids : 0, n_ranks));
    /* All ranks have the same list, and the first one is enough. */
    return nccl_group_note(
        nccl_comm_init("ncclCommInitRankScalable", out, n_ranks, ids, rank, config, NCCL_DEVICE_CURRENT));
}

#define ALL_MOST 1024

NCCL_TWIN(CommInitAll);
int pncclCommInitAll(struct ncclComm **out, int n, const int *devices)
{
    struct nccl_id id;
    if (!out || n < 1)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommInitAll: comms is %s and ndev is %d", out ? "given" : "NULL",
                         n);
    if (n > ALL_MOST)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommInitAll: ndev is %d: one process takes at most %d ranks", n,
                         ALL_MOST);
    NCCL_TRY(nccl_id_make(&id));
    NCCL_TRY(pncclGroupStart());
    int result = NCCL_SUCCESS;
    for (int i = 0; i < n && result == NCCL_SUCCESS; i++)
        result = nccl_group_note(nccl_comm_init("ncclCommInitAll", &out[i], n, &id, i, NULL, devices ? devices[i] : i));
    const int ended = pncclGroupEnd();
    return result == NCCL_SUCCESS ? ended : result;
}

/* ---- the end ---- */

/* The handle is gone after it. A job that is under way keeps what it needs. */
static void let_go(struct ncclComm *comm)
{
    atomic_store(&comm->dropped, true);
    nccl_comm_drop(comm);
}

static int job_flush(struct nccl_job *job)
{
    struct ncclComm *comm = job->subject;
    return nccl_told(tutti_comm_flush(nccl_tutti(comm), 0));
}

NCCL_TWIN(CommFinalize);
int pncclCommFinalize(struct ncclComm *comm)
{
    if (!comm) return NCCL_SUCCESS;
    NCCL_TRY(nccl_comm_check("ncclCommFinalize", comm));
    if (comm->finalized || comm->revoked)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommFinalize on rank %d: the communicator was %s before",
                         comm->rank, comm->revoked ? "revoked" : "finalized");
    NCCL_TRY(nccl_comm_ready("ncclCommFinalize", comm));
    comm->finalized = true;
    atomic_store(&comm->ended, true);
    const struct nccl_job job = {.run = job_flush, .call = "ncclCommFinalize", .subject = comm};
    return nccl_group_note(nccl_job_submit(&job));
}

NCCL_TWIN(CommDestroy);
int pncclCommDestroy(struct ncclComm *comm)
{
    if (!comm) return NCCL_SUCCESS;
    NCCL_TRY(nccl_comm_check("ncclCommDestroy", comm));
    let_go(comm);
    return NCCL_SUCCESS;
}

NCCL_TWIN(CommAbort);
int pncclCommAbort(struct ncclComm *comm)
{
    if (!comm) return NCCL_SUCCESS;
    NCCL_TRY(nccl_comm_check("ncclCommAbort", comm));
    atomic_store(&comm->dropped, true);
    struct tutti_comm *of = nccl_tutti(comm);
    if (of) tutti_comm_abort(of, "ncclCommAbort");
    if (comm->apart) tutti_comm_abort(comm->apart, "ncclCommAbort");
    let_go(comm);
    return NCCL_SUCCESS;
}

NCCL_TWIN(CommRevoke);
int pncclCommRevoke(struct ncclComm *comm, int flags)
{
    NCCL_TRY(nccl_comm_check("ncclCommRevoke", comm));
    if (flags != 0) return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommRevoke: flags are %d and not 0", flags);
    if (comm->finalized || comm->revoked)
        return nccl_fail(NCCL_INVALID_USAGE, "ncclCommRevoke on rank %d: the communicator was %s before", comm->rank,
                         comm->revoked ? "revoked" : "finalized");
    comm->revoked = true;
    atomic_store(&comm->ended, true);
    struct tutti_comm *of = nccl_tutti(comm);
    if (of) tutti_comm_abort(of, "ncclCommRevoke");
    return NCCL_SUCCESS;
}

/* ---- questions ---- */

NCCL_TWIN(CommGetAsyncError);
int pncclCommGetAsyncError(struct ncclComm *comm, int *error)
{
    struct tutti_error why;
    NCCL_TRY(nccl_comm_check("ncclCommGetAsyncError", comm));
    if (!error) return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommGetAsyncError: asyncError is NULL");
    *error = atomic_load(&comm->state);
    struct tutti_comm *of = nccl_tutti(comm);
    if (*error != NCCL_SUCCESS || !of || comm->revoked) return NCCL_SUCCESS;
    const enum tutti_status status = tutti_comm_state(of, &why);
    if (status < 0) *error = nccl_fail(nccl_code(status), "%s", why.text);
    return NCCL_SUCCESS;
}

static int ask(const char *call, const struct ncclComm *comm, int value, int *out)
{
    NCCL_TRY(nccl_comm_check(call, comm));
    if (!out) return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: the result's address is NULL", call);
    *out = value;
    return NCCL_SUCCESS;
}

NCCL_TWIN(CommCount);
int pncclCommCount(struct ncclComm *comm, int *n)
{
    return ask("ncclCommCount", comm, comm ? comm->n_ranks : 0, n);
}

NCCL_TWIN(CommCuDevice);
int pncclCommCuDevice(struct ncclComm *comm, int *device)
{
    return ask("ncclCommCuDevice", comm, comm ? comm->family->device : 0, device);
}

NCCL_TWIN(CommUserRank);
int pncclCommUserRank(struct ncclComm *comm, int *rank)
{
    return ask("ncclCommUserRank", comm, comm ? comm->rank : 0, rank);
}

/* ---- memory that a communicator would give back: tutti's scratch memory stays ---- */

NCCL_TWIN(CommSuspend);
int pncclCommSuspend(struct ncclComm *comm, int flags)
{
    NCCL_TRY(nccl_comm_ready("ncclCommSuspend", comm));
    if (flags != NCCL_SUSPEND_MEMORY)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommSuspend: flags are %d and not %d", flags, NCCL_SUSPEND_MEMORY);
    if (comm->suspended) return nccl_fail(NCCL_INVALID_USAGE, "ncclCommSuspend: it is suspended already");
    comm->suspended = true;
    return NCCL_SUCCESS;
}

NCCL_TWIN(CommResume);
int pncclCommResume(struct ncclComm *comm)
{
    NCCL_TRY(nccl_comm_ready("ncclCommResume", comm));
    if (!comm->suspended) return nccl_fail(NCCL_INVALID_USAGE, "ncclCommResume: it is not suspended");
    comm->suspended = false;
    return NCCL_SUCCESS;
}

NCCL_TWIN(CommMemStats);
int pncclCommMemStats(struct ncclComm *comm, int which, uint64_t *bytes)
{
    enum { SUSPENDABLE, SUSPENDED, PERSISTENT, TOTAL };
    uint64_t scratch = 0;
    char text[32];
    NCCL_TRY(nccl_comm_check("ncclCommMemStats", comm));
    if (!bytes || which < SUSPENDABLE || which > TOTAL)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommMemStats: there is no statistic %d", which);
    const bool device = comm->family->accelerator && comm->n_ranks > 1;
    if (device && tutti_option_get("gpu_scratch", text, sizeof text, &scratch) < 0) scratch = 0;
    *bytes = which == SUSPENDABLE ? 0 : which == SUSPENDED ? comm->suspended : scratch;
    return NCCL_SUCCESS;
}
