/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of a thread, and jobs: what waits for other ranks while a communicator is made, derived or ended, or a window
 * registered. The jobs of a group run at the same time, those of each communicator on a thread, since one thread may
 * have several ranks; a communicator's own run in the order of their calls, which all ranks agree in. Then the calls of
 * the group start, as one group of tutti's. */
#include "shim.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct chain { /* the jobs of a communicator, of which it has a reference */
    struct ncclComm *subject;
    struct nccl_job *first, *last;
    pthread_t thread;
    int result;
};
static _Thread_local struct group {
    int depth, error; /* the first call's that failed */
    struct nccl_call *calls;
    struct chain *chains;
    size_t n_calls, calls_room, n_chains, chains_room;
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

static bool is_creation(const struct nccl_job *job)
{
    return job->out && !job->made && *job->out == job->subject;
}

/* The communicator that a blocking creation could not make is no handle any more. */
static void job_finish(struct nccl_job *job, int result)
{
    struct ncclComm *subject = job->subject;
    const bool creation = is_creation(job);
    int in_progress = NCCL_IN_PROGRESS;
    if (job->made && is_error(result)) {
        nccl_comm_drop(job->made);
    } else if (job->made) {
        *job->out = job->made;
    } else if (creation && is_error(result) && subject->settings.blocking) {
        *job->out = NULL;
        nccl_comm_drop(subject);
    }
    free(job->leave);
    if (!job->next) atomic_compare_exchange_strong(&subject->state, &in_progress, result);
    nccl_comm_drop(subject);
    free(job);
}

/* Behind one that failed none runs; result: what came before them. */
static int jobs_run(struct nccl_job *job, int result)
{
    for (struct nccl_job *next; job; job = next) {
        next = job->next;
        if (!is_error(result)) result = job->run(job);
        job_finish(job, result);
    }
    return result;
}

static void *chain_thread(void *arg)
{
    struct chain *chain = arg;
    chain->result = jobs_run(chain->first, NCCL_SUCCESS);
    return NULL;
}

/* Where the communicator does not block, nobody waits for the thread. */
static void *jobs_apart(void *first)
{
    jobs_run(first, NCCL_SUCCESS);
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

static int jobs_start_apart(struct nccl_job *first)
{
    pthread_t thread;
    atomic_store(&first->subject->state, NCCL_IN_PROGRESS);
    const int result = nccl_thread_start(&thread, jobs_apart, first);
    if (result != NCCL_SUCCESS) return jobs_run(first, result);
    pthread_detach(thread);
    return NCCL_IN_PROGRESS;
}

/* To the group's end; false: there is no memory. */
static bool group_takes_job(struct nccl_job *job)
{
    for (size_t i = 0; i < group.n_chains; i++) {
        struct chain *chain = &group.chains[i];
        if (chain->subject != job->subject) continue;
        chain->last = chain->last->next = job;
        return true;
    }
    if (!grow(&group.chains, group.n_chains, &group.chains_room, sizeof *group.chains)) return false;
    group.chains[group.n_chains++] = (struct chain){.subject = job->subject, .first = job, .last = job};
    atomic_fetch_add(&job->subject->refs, 1);
    return true;
}

/* Inside a group a communicator that is there takes more calls until the group's end. */
int nccl_job_submit(const struct nccl_job *given)
{
    struct nccl_job *job = malloc(sizeof *job);
    if (!job) {
        if (is_creation(given)) *given->out = NULL, nccl_comm_drop(given->subject);
        free(given->leave);
        return nccl_fail(NCCL_SYSTEM_ERROR, "%s: out of memory", given->call);
    }
    *job = *given;
    const bool blocking = job->subject->settings.blocking;
    atomic_fetch_add(&job->subject->refs, 1);
    if (!blocking && is_creation(job)) atomic_store(&job->subject->state, NCCL_IN_PROGRESS);
    if (group.depth == 0) return blocking ? jobs_run(job, NCCL_SUCCESS) : jobs_start_apart(job);
    if (group_takes_job(job)) return NCCL_SUCCESS;
    return jobs_run(job, nccl_fail(NCCL_SYSTEM_ERROR, "%s: out of memory", given->call));
}

/* Where no thread could be started for the others: what waits for them ends. */
static void abort_early(struct ncclComm *comm)
{
    atomic_store(&comm->dropped, true);
    if (nccl_tutti(comm)) tutti_comm_abort(nccl_tutti(comm), "no thread for another rank's part");
}

/* All at the same time; the last one on this thread. */
static int chains_wait(struct chain *chains, size_t n)
{
    int result = NCCL_SUCCESS;
    size_t started = 0;
    while (started + 1 < n &&
           nccl_thread_start(&chains[started].thread, chain_thread, &chains[started]) == NCCL_SUCCESS)
        started++;
    const bool all = started + 1 == n;
    for (size_t i = 0; i < started && !all; i++) abort_early(chains[i].subject);
    for (size_t i = started; i < n; i++)
        chains[i].result = jobs_run(chains[i].first, all ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR);
    for (size_t i = 0; i < started; i++) pthread_join(chains[i].thread, NULL);
    for (size_t i = 0; i < n && result == NCCL_SUCCESS; i++) result = chains[i].result;
    return result;
}

/* given: an error of the group's calls, for which none runs. */
static int chains_run(struct chain *chains, size_t n, int given)
{
    const bool blocking = n == 0 || chains[0].subject->settings.blocking;
    int result = given;
    for (size_t i = 1; i < n && !is_error(result); i++)
        if (chains[i].subject->settings.blocking != blocking)
            result = nccl_fail(NCCL_INVALID_ARGUMENT, "ncclGroupEnd: some communicators of the group block and some do "
                                                      "not");
    if (n == 0) return result;
    if (!is_error(result) && blocking) return chains_wait(chains, n);
    const bool none = is_error(result);
    for (size_t i = 0; i < n; i++) {
        const int started = none ? jobs_run(chains[i].first, result) : jobs_start_apart(chains[i].first);
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
    int result = chains_run(ended.chains, ended.n_chains, ended.error);
    for (size_t i = 0; i < ended.n_chains; i++) nccl_comm_drop(ended.chains[i].subject);
    if (!is_error(result) && simulate)
        simulate->time_us = nccl_calls_estimate(ended.calls, ended.n_calls);
    else if (!is_error(result) && ended.n_calls) {
        const int started = nccl_calls_start(ended.calls, ended.n_calls);
        if (started != NCCL_SUCCESS) result = started;
    }
    free(ended.calls);
    free(ended.chains);
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
