/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators that are made from others: split, shrunk, grown. They share the family, and so the device, of their
 * parent, but those that have grown, which are met anew. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

/* What split and shrink gave becomes the job's communicator; given NULL: this rank is in none. */
static int adopt(struct nccl_job *job, struct tutti_comm *given)
{
    const struct ncclComm *parent = job->subject;
    if (!given) return NCCL_SUCCESS;
    struct nccl_family *family = nccl_family_hold(parent->family);
    const int result =
        nccl_comm_new(&job->settings, tutti_comm_rank(given), tutti_comm_size(given), family, &job->made);
    if (result != NCCL_SUCCESS) {
        nccl_family_drop(family);
        tutti_comm_destroy(given);
        return result;
    }
    tutti_comm_set_timeout(given, nccl_timeout_ns());
    atomic_store(&job->made->comm, given);
    nccl_comm_enlist(job->made);
    atomic_store(&job->made->state, NCCL_SUCCESS);
    return NCCL_SUCCESS;
}

/* A communicator that was revoked is replaced by a new one of all its ranks, which is split. */
static int job_split(struct nccl_job *job)
{
    struct tutti_comm *parent = nccl_tutti(job->subject), *whole = NULL, *made = NULL;
    if (job->subject->revoked) {
        NCCL_TRY(nccl_told(tutti_comm_shrink(parent, NULL, 0, &whole)));
        parent = whole;
    }
    const int result = nccl_told(tutti_comm_split(parent, job->colour, job->key, &made));
    tutti_comm_destroy(whole);
    return result == NCCL_SUCCESS ? adopt(job, made) : result;
}

static int job_shrink(struct nccl_job *job)
{
    struct tutti_comm *made = NULL;
    if (job->flags & NCCL_SHRINK_ABORT) tutti_comm_abort(nccl_tutti(job->subject), "ncclCommShrink");
    NCCL_TRY(nccl_told(tutti_comm_shrink(nccl_tutti(job->subject), job->leave, (size_t)job->n, &made)));
    return adopt(job, made);
}

/* A parent that was revoked may have children; one that has failed can be shrunk. */
static int parent_check(const char *call, const struct ncclComm *parent, struct ncclComm **out, bool failed)
{
    NCCL_TRY(nccl_comm_check(call, parent));
    if (!out) return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: newcomm is NULL", call);
    *out = NULL;
    if (parent->revoked || (failed && atomic_load(&parent->state) != NCCL_IN_PROGRESS)) return NCCL_SUCCESS;
    return nccl_comm_ready(call, parent);
}

static int derive(struct nccl_job *job, const struct nccl_config *config)
{
    NCCL_TRY(nccl_settings_read(job->call, config, &job->subject->settings, &job->settings));
    return nccl_job_submit(job);
}

NCCL_TWIN(CommSplit);
int pncclCommSplit(struct ncclComm *comm, int colour, int key, struct ncclComm **out, struct nccl_config *config)
{
    struct nccl_job job = {
        .run = job_split, .call = "ncclCommSplit", .subject = comm, .out = out, .colour = colour, .key = key};
    int result = parent_check(job.call, comm, out, false);
    if (result == NCCL_SUCCESS && colour < NCCL_NO_COLOUR)
        result = nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommSplit on rank %d: colour is %d", comm->rank, colour);
    return nccl_group_note(result == NCCL_SUCCESS ? derive(&job, config) : result);
}

static int leave_check(const struct ncclComm *comm, const int *leave, int n)
{
    if (n < 0 || n >= comm->n_ranks || (n > 0 && !leave))
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommShrink on rank %d: %d ranks of %d are to leave", comm->rank,
                         leave ? n : 0, comm->n_ranks);
    for (int i = 0; i < n; i++)
        if (leave[i] < 0 || leave[i] >= comm->n_ranks || leave[i] == comm->rank)
            return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommShrink on rank %d: rank %d can not leave", comm->rank,
                             leave[i]);
    return NCCL_SUCCESS;
}

NCCL_TWIN(CommShrink);
int pncclCommShrink(struct ncclComm *comm, int *leave, int n, struct ncclComm **out, struct nccl_config *config,
                    int flags)
{
    struct nccl_job job = {
        .run = job_shrink, .call = "ncclCommShrink", .subject = comm, .out = out, .n = n, .flags = flags};
    int result = parent_check(job.call, comm, out, true);
    if (result == NCCL_SUCCESS) result = leave_check(comm, leave, n);
    if (result == NCCL_SUCCESS && n > 0) {
        job.leave = malloc((size_t)n * sizeof *leave);
        if (job.leave)
            memcpy(job.leave, leave, (size_t)n * sizeof *leave);
        else
            result = nccl_fail(NCCL_SYSTEM_ERROR, "ncclCommShrink: out of memory");
    }
    if (result == NCCL_SUCCESS) result = derive(&job, config);
    return nccl_group_note(result);
}

/* ---- growing ---- */

NCCL_TWIN(CommGetUniqueId);
int pncclCommGetUniqueId(struct ncclComm *comm, struct nccl_id *id)
{
    NCCL_TRY(nccl_comm_ready("ncclCommGetUniqueId", comm));
    if (!id) return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommGetUniqueId: uniqueId is NULL");
    if (comm->growing)
        return nccl_fail(NCCL_INVALID_USAGE, "ncclCommGetUniqueId on rank %d: the id before was not used yet",
                         comm->rank);
    NCCL_TRY(nccl_id_make(id));
    comm->growing = true;
    return NCCL_SUCCESS;
}

/* One rank of the parent has the id; the others have zeros. */
static int id_spread(struct nccl_job *job)
{
    struct nccl_id id;
    NCCL_TRY(nccl_told(
        tutti_all_reduce(&job->id, &id, sizeof id, TUTTI_UINT8, TUTTI_BOR, nccl_tutti(job->subject), NULL, NULL)));
    job->id = id;
    return nccl_id_check(job->call, &id);
}

static int job_grow(struct nccl_job *job)
{
    struct ncclComm *parent = job->subject;
    struct nccl_family *family;
    NCCL_TRY(id_spread(job));
    NCCL_TRY(nccl_family_new(&job->settings, parent->family->device, &family));
    int result = nccl_comm_new(&job->settings, parent->rank, job->n, family, &job->made);
    if (result != NCCL_SUCCESS) {
        nccl_family_drop(family);
        return result;
    }
    result = nccl_comm_meet(job->made, &job->id);
    atomic_store(&job->made->state, result);
    parent->growing = false;
    return result;
}

NCCL_TWIN(CommGrow);
int pncclCommGrow(struct ncclComm *comm, int n_ranks, const struct nccl_id *id, int rank, struct ncclComm **out,
                  struct nccl_config *config)
{
    static const char name[] = "ncclCommGrow";
    struct nccl_job job = {.run = job_grow, .call = name, .subject = comm, .out = out, .n = n_ranks};
    if (!comm && id) return nccl_group_note(nccl_comm_init(name, out, n_ranks, id, rank, config, NCCL_DEVICE_CURRENT));
    int result = parent_check(name, comm, out, false);
    if (result == NCCL_SUCCESS && n_ranks <= comm->n_ranks)
        result = nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: %d ranks are not more than %d", name, comm->rank,
                           n_ranks, comm->n_ranks);
    if (result == NCCL_SUCCESS && rank != -1)
        result = nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: rank is %d, and -1 for ranks that are there", name,
                           comm->rank, rank);
    if (result == NCCL_SUCCESS && id) {
        result = nccl_id_check(name, id);
        job.id = *id;
    }
    return nccl_group_note(result == NCCL_SUCCESS ? derive(&job, config) : result);
}
