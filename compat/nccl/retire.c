/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of communicators whose ranks share this process. Ranks on devices give memory back when their peers have
 * closed, for which each waits a moment. One thread that destroys several ranks one after the other would wait for
 * itself every time, so all ranks of a communicator that are here end together, with the last one that is destroyed. */
#include "shim.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *list; /* under the lock: all that were made, and not ended */

void nccl_comm_enlist(struct ncclComm *comm)
{
    comm->id = tutti_comm_id(nccl_tutti(comm));
    pthread_mutex_lock(&lock);
    comm->next = list;
    list = comm;
    comm->listed = true;
    pthread_mutex_unlock(&lock);
}

static void *end(void *arg)
{
    struct ncclComm *comm = arg;
    struct tutti_accelerator *accelerator = comm->family->accelerator;
    tutti_comm_destroy(comm->apart);
    tutti_comm_destroy(nccl_tutti(comm));
    tutti_accelerator_stream_destroy(accelerator, comm->beside.stream);
    tutti_accelerator_event_destroy(accelerator, comm->beside.begin);
    tutti_accelerator_event_destroy(accelerator, comm->beside.end);
    nccl_family_drop(comm->family);
    pthread_mutex_destroy(&comm->lock);
    free(comm->factors);
    comm->magic = 0;
    free(comm);
    return NULL;
}

/* Takes those out of the list that end with this one, as a list of their own; NULL: others of its ranks live. */
static struct ncclComm *take(struct ncclComm *comm)
{
    struct ncclComm *taken = NULL;
    pthread_mutex_lock(&lock);
    comm->retired = true;
    bool last = true;
    for (const struct ncclComm *other = list; other; other = other->next)
        last = last && (other->id != comm->id || other->retired);
    for (struct ncclComm **at = &list; last && *at;) {
        struct ncclComm *other = *at;
        if (other->id != comm->id) {
            at = &other->next;
            continue;
        }
        *at = other->next;
        other->next = taken;
        taken = other;
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

/* All at the same time, each on a thread while there are threads. */
static void end_all(struct ncclComm *first)
{
    pthread_t thread;
    struct ncclComm *others = first->next;
    if (!others) {
        end(first);
        return;
    }
    const bool started = nccl_thread_start(&thread, end, first) == NCCL_SUCCESS;
    end_all(others);
    if (started)
        pthread_join(thread, NULL);
    else
        end(first);
}

void nccl_comm_retire(struct ncclComm *comm)
{
    nccl_memory_close(comm);
    nccl_signals_close(comm);
    struct ncclComm *all = comm->listed ? take(comm) : comm;
    if (all) end_all(all);
}
