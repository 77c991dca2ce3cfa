/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of a thread, and jobs: what waits for other ranks while a communicator is made, derived or ended. The jobs of
 * a group run at the same time, each on a thread, since one thread may have several ranks; then its calls start, as one
 * group of tutti's. */
#include "shim.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct group {
    int depth, error; /* the first call's that failed */
    struct nccl_call *calls;
    struct nccl_job *jobs;
    size_t n_calls, calls_room, n_jobs, jobs_room;
} group;

/* Room for one more at the end of an array that doubles. */
static bool grow(void *array, size_t n, size_t *room, size_t each)
{
    void *old, *grown;
    if (n < *room) return true;
    memcpy(&old, array, sizeof old);
    const size_t more = *room ? 2 * *room : 16;
    if (!(grown = realloc(old, more * each))) return false;
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return true;
}

/* ---- jobs ---- */

static bool is_error(int result)
{
    return result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS;
}

/* The communicator that a blocking creation could not make is no handle any more. */
static void job_finish(struct nccl_job *job, int result)
{
    struct ncclComm *subject = job->subject;
    const bool creation = job->out && !job->made && *job->out == subject;
    int in_progress = NCCL_IN_PROGRESS;
    job->result = result;
    if (job->made && is_error(result)) {
        nccl_comm_drop(job->made);
    } else if (job->made) {
        *job->out = job->made;
    } else if (creation && is_error(result) && subject->settings.blocking) {
        *job->out = NULL;
        nccl_comm_drop(subject);
    }
    free(job->leave);
    job->leave = NULL;
    atomic_compare_exchange_strong(&subject->state, &in_progress, result);
    nccl_comm_drop(subject);
}

static void job_run(struct nccl_job *job)
{
    job_finish(job, job->run(job));
}

static void *job_thread(void *job)
{
    job_run(job);
    return NULL;
}

/* Where the communicator does not block, nobody waits for the thread. */
static void *job_apart(void *job)
{
    job_run(job);
    free(job);
    return NULL;
}

/* Signals are for the program's own threads. */
int nccl_thread_start(pthread_t *thread, void *(*function)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, function, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return nccl_fail(NCCL_SYSTEM_ERROR, "no thread can be started: error %d", error);
    return NCCL_SUCCESS;
}

static int job_start_apart(const struct nccl_job *job)
{
    pthread_t thread;
    struct nccl_job *copy = malloc(sizeof *copy);
    if (!copy) return nccl_fail(NCCL_SYSTEM_ERROR, "%s: out of memory", job->call);
    *copy = *job;
    int result = nccl_thread_start(&thread, job_apart, copy);
    if (result == NCCL_SUCCESS) {
        pthread_detach(thread);
        return NCCL_IN_PROGRESS;
    }
    job_finish(copy, result);
    free(copy);
    return result;
}

int nccl_job_submit(const struct nccl_job *given)
{
    struct nccl_job job = *given;
    atomic_fetch_add(&job.subject->refs, 1);
    if (!job.subject->settings.blocking) atomic_store(&job.subject->state, NCCL_IN_PROGRESS);
    if (group.depth > 0) {
        if (grow(&group.jobs, group.n_jobs, &group.jobs_room, sizeof job)) {
            group.jobs[group.n_jobs++] = job;
            return NCCL_SUCCESS;
        }
        job_finish(&job, nccl_fail(NCCL_SYSTEM_ERROR, "%s: out of memory", job.call));
        return job.result;
    }
    if (!job.subject->settings.blocking) return job_start_apart(&job);
    job_run(&job);
    return job.result;
}

/* Where no thread could be started for the others: what waits for them ends. */
static void job_end(const struct nccl_job *job)
{
    atomic_store(&job->subject->dropped, true);
    if (nccl_tutti(job->subject)) tutti_comm_abort(nccl_tutti(job->subject), "no thread for another rank's part");
}

/* All at the same time; the last one on this thread. */
static int jobs_wait(struct nccl_job *jobs, size_t n)
{
    int result = NCCL_SUCCESS;
    size_t started = 0;
    while (started + 1 < n && nccl_thread_start(&jobs[started].thread, job_thread, &jobs[started]) == NCCL_SUCCESS)
        started++;
    const bool all = started + 1 == n;
    for (size_t i = 0; i < started && !all; i++) job_end(&jobs[i]);
    for (size_t i = started; i < n; i++)
        if (all)
            job_run(&jobs[i]);
        else
            job_finish(&jobs[i], NCCL_SYSTEM_ERROR);
    for (size_t i = 0; i < started; i++) pthread_join(jobs[i].thread, NULL);
    for (size_t i = 0; i < n && result == NCCL_SUCCESS; i++) result = jobs[i].result;
    return result;
}

static int jobs_run(struct nccl_job *jobs, size_t n)
{
    const bool blocking = n == 0 || jobs[0].subject->settings.blocking;
    int result = NCCL_SUCCESS;
    for (size_t i = 1; i < n; i++)
        if (jobs[i].subject->settings.blocking != blocking)
            result = nccl_fail(NCCL_INVALID_ARGUMENT, "ncclGroupEnd: some communicators of the group block and some do "
                                                      "not");
    for (size_t i = 0; i < n && is_error(result); i++) job_finish(&jobs[i], result);
    if (is_error(result)) return result;
    if (blocking) return n ? jobs_wait(jobs, n) : NCCL_SUCCESS;
    for (size_t i = 0; i < n; i++) {
        const int started = job_start_apart(&jobs[i]);
        if (!is_error(result)) result = started;
    }
    return result;
}

/* ---- groups ---- */

int nccl_group_note(int result)
{
    if (group.depth > 0 && is_error(result) && !group.error) group.error = result;
    return result;
}

bool nccl_group_takes(const struct nccl_call *call, int *result)
{
    if (group.depth == 0) return false;
    *result = NCCL_SUCCESS;
    if (grow(&group.calls, group.n_calls, &group.calls_room, sizeof *call))
        group.calls[group.n_calls++] = *call;
    else
        *result = nccl_group_note(nccl_fail(NCCL_SYSTEM_ERROR, "out of memory for a group of %zu", group.n_calls));
    return true;
}

NCCL_TWIN(GroupStart);
int pncclGroupStart(void)
{
    group.depth++;
    return NCCL_SUCCESS;
}

/* simulate: what its calls would take; they are not started. */
static int group_end(const char *call, struct nccl_simulation *simulate)
{
    if (group.depth == 0) return nccl_fail(NCCL_INVALID_USAGE, "%s without ncclGroupStart", call);
    if (group.depth > 1) {
        group.depth--;
        return NCCL_SUCCESS;
    }
    struct group ended = group;
    memset(&group, 0, sizeof group);
    int result = ended.error;
    if (result == NCCL_SUCCESS)
        result = jobs_run(ended.jobs, ended.n_jobs);
    else
        for (size_t i = 0; i < ended.n_jobs; i++) job_finish(&ended.jobs[i], result);
    if (!is_error(result) && simulate)
        simulate->time_us = nccl_calls_estimate(ended.calls, ended.n_calls);
    else if (!is_error(result) && ended.n_calls) {
        const int started = nccl_calls_start(ended.calls, ended.n_calls);
        if (started != NCCL_SUCCESS) result = started;
    }
    free(ended.calls);
    free(ended.jobs);
    return result;
}

NCCL_TWIN(GroupEnd);
int pncclGroupEnd(void)
{
    return group_end("ncclGroupEnd", NULL);
}

NCCL_TWIN(GroupSimulateEnd);
int pncclGroupSimulateEnd(struct nccl_simulation *out)
{
    struct nccl_simulation none = {.time_us = 0};
    if (out && (out->magic != NCCL_SIMULATION_MAGIC || out->size < sizeof *out))
        return nccl_group_note(nccl_fail(NCCL_INVALID_ARGUMENT, "ncclGroupSimulateEnd: simInfo was not initialised by "
                                                                "NCCL_SIM_INFO_INITIALIZER"));
    return group_end("ncclGroupSimulateEnd", out ? out : &none);
}
