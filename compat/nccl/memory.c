/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that peers can map, and windows over it. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory: of the process, since it is made before communicators and outlives them ---- */

#define UNIT ((size_t)2 << 20) /* an allocation shares its mapping with nothing else */

struct block {
    struct block *next;
    void *memory;
    struct tutti_accelerator *accelerator; /* NULL: host memory, where there is no device */
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks; /* under the lock */

static int block_fill(struct block *block, size_t bytes)
{
    const int32_t current = tutti_accelerator_current();
    if (tutti_accelerator_open("cuda", current >= 0 ? current : 0, &block->accelerator) < 0) {
        block->accelerator = NULL;
        block->memory = aligned_alloc(UNIT, bytes);
        return block->memory ? NCCL_SUCCESS : nccl_fail(NCCL_SYSTEM_ERROR, "ncclMemAlloc: no %zu bytes", bytes);
    }
    const enum tutti_status status = tutti_accelerator_alloc(block->accelerator, bytes, &block->memory);
    if (status >= 0) return NCCL_SUCCESS;
    nccl_told(status);
    tutti_accelerator_close(block->accelerator);
    return NCCL_UNHANDLED_CUDA_ERROR;
}

NCCL_TWIN(MemAlloc);
int pncclMemAlloc(void **out, size_t bytes)
{
    if (!out || bytes == 0 || bytes > PTRDIFF_MAX - UNIT)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclMemAlloc: ptr is %s and size is %zu", out ? "given" : "NULL",
                         bytes);
    struct block *block = malloc(sizeof *block);
    if (!block) return nccl_fail(NCCL_SYSTEM_ERROR, "ncclMemAlloc: out of memory");
    const int result = block_fill(block, (bytes + UNIT - 1) & ~(UNIT - 1));
    if (result != NCCL_SUCCESS) {
        free(block);
        return result;
    }
    pthread_mutex_lock(&lock);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&lock);
    *out = block->memory;
    return NCCL_SUCCESS;
}

NCCL_TWIN(MemFree);
int pncclMemFree(void *memory)
{
    if (!memory) return NCCL_SUCCESS;
    pthread_mutex_lock(&lock);
    struct block **at = &blocks;
    while (*at && (*at)->memory != memory) at = &(*at)->next;
    struct block *block = *at;
    if (block) *at = block->next;
    pthread_mutex_unlock(&lock);
    if (!block) return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclMemFree: %p is not from ncclMemAlloc", memory);
    if (block->accelerator)
        tutti_accelerator_free(block->accelerator, memory);
    else
        free(memory);
    tutti_accelerator_close(block->accelerator);
    free(block);
    return NCCL_SUCCESS;
}

/* ---- registration: local, a hint ---- */

NCCL_TWIN(CommRegister);
int pncclCommRegister(struct ncclComm *comm, void *base, size_t bytes, void **handle)
{
    NCCL_TRY(nccl_comm_ready("ncclCommRegister", comm));
    if (!handle) return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclCommRegister: handle is NULL");
    struct nccl_registration *made = malloc(sizeof *made);
    if (!made) return nccl_fail(NCCL_SYSTEM_ERROR, "ncclCommRegister: out of memory");
    const int result = nccl_told(tutti_mem_register(nccl_tutti(comm), base, bytes, &made->memory));
    if (result != NCCL_SUCCESS) {
        free(made);
        return result;
    }
    pthread_mutex_lock(&comm->lock);
    made->next = comm->registrations;
    comm->registrations = made;
    pthread_mutex_unlock(&comm->lock);
    *handle = made;
    return NCCL_SUCCESS;
}

NCCL_TWIN(CommDeregister);
int pncclCommDeregister(struct ncclComm *comm, void *handle)
{
    NCCL_TRY(nccl_comm_check("ncclCommDeregister", comm));
    if (!handle) return NCCL_SUCCESS;
    pthread_mutex_lock(&comm->lock);
    struct nccl_registration **at = &comm->registrations;
    while (*at && *at != handle) at = &(*at)->next;
    struct nccl_registration *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&comm->lock);
    if (!found)
        return nccl_fail(NCCL_INVALID_ARGUMENT,
                         "ncclCommDeregister on rank %d: the handle is none of ncclCommRegister with this "
                         "communicator, or was deregistered",
                         comm->rank);
    tutti_mem_deregister(found->memory);
    free(found);
    return NCCL_SUCCESS;
}

/* ---- windows ---- */

int nccl_window_check(const char *call, const struct ncclWindow *window)
{
    if (!window) return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: the window is NULL", call);
    if (window->magic != NCCL_WINDOW_MAGIC)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s: the window is none, or was deregistered", call);
    return NCCL_SUCCESS;
}

/* Where offsets need not be equal on all ranks, collectives must not take the window for one of theirs: it is made over
 * another communicator of the same ranks. */
static int communicator_of(struct ncclComm *comm, int flags, struct tutti_comm **out)
{
    *out = nccl_tutti(comm);
    if (flags & NCCL_WINDOW_SYMMETRIC) return NCCL_SUCCESS;
    if (!comm->apart) NCCL_TRY(nccl_told(tutti_comm_dup(*out, &comm->apart)));
    *out = comm->apart;
    return NCCL_SUCCESS;
}

static void window_link(struct ncclComm *comm, struct ncclWindow *window)
{
    pthread_mutex_lock(&comm->lock);
    window->next = comm->windows;
    comm->windows = window;
    pthread_mutex_unlock(&comm->lock);
}

/* Memory that can not be mapped by all is no error: there is no window then, on any rank, and calls go without. */
static int job_window(struct nccl_job *job)
{
    struct ncclComm *comm = job->subject;
    struct tutti_comm *of;
    struct ncclWindow *window = calloc(1, sizeof *window);
    if (!window) return nccl_fail(NCCL_SYSTEM_ERROR, "ncclCommWindowRegister: out of memory");
    *window = (struct ncclWindow){.magic = NCCL_WINDOW_MAGIC, .comm = comm, .base = job->base, .bytes = job->bytes};
    int result = communicator_of(comm, job->flags, &of);
    if (result == NCCL_SUCCESS) {
        const enum tutti_status status = tutti_window_create(of, job->base, job->bytes, NULL, &window->window);
        result = nccl_told(status);
        if (status == TUTTI_ERR_UNSUPPORTED || status == TUTTI_ERR_ARGUMENT) {
            free(window);
            nccl_log_info("ncclCommWindowRegister on rank %d: no window: %s", comm->rank, tutti_last_error()->text);
            return NCCL_SUCCESS;
        }
    }
    if (result == NCCL_SUCCESS) result = nccl_signals_open(comm);
    if (result != NCCL_SUCCESS) {
        tutti_window_destroy(window->window);
        free(window);
        return result;
    }
    window_link(comm, window);
    *job->window = window;
    return NCCL_SUCCESS;
}

NCCL_TWIN(CommWindowRegister);
int pncclCommWindowRegister(struct ncclComm *comm, void *base, size_t bytes, struct ncclWindow **out, int flags)
{
    static const char name[] = "ncclCommWindowRegister";
    const struct nccl_job job = {
        .run = job_window, .call = name, .subject = comm, .base = base, .bytes = bytes, .flags = flags, .window = out};
    int result = nccl_comm_ready(name, comm);
    if (result == NCCL_SUCCESS && (!out || !base || bytes == 0))
        result = nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: win is %s, buff is %s and size is %zu", name,
                           comm->rank, out ? "given" : "NULL", base ? "given" : "NULL", bytes);
    if (result == NCCL_SUCCESS && flags & ~NCCL_WINDOW_FLAGS)
        result = nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: winFlags are %d", name, comm->rank, flags);
    if (result != NCCL_SUCCESS) return nccl_group_note(result);
    *out = NULL;
    return nccl_group_note(nccl_job_submit(&job));
}

static void window_close(struct ncclWindow *window)
{
    tutti_window_destroy(window->window);
    window->magic = 0;
    free(window);
}

NCCL_TWIN(CommWindowDeregister);
int pncclCommWindowDeregister(struct ncclComm *comm, struct ncclWindow *window)
{
    NCCL_TRY(nccl_comm_check("ncclCommWindowDeregister", comm));
    if (!window) return NCCL_SUCCESS;
    NCCL_TRY(nccl_window_check("ncclCommWindowDeregister", window));
    pthread_mutex_lock(&comm->lock);
    struct ncclWindow **at = &comm->windows;
    while (*at && *at != window) at = &(*at)->next;
    const bool found = *at != NULL;
    if (found) *at = window->next;
    pthread_mutex_unlock(&comm->lock);
    if (!found)
        return nccl_fail(NCCL_INVALID_ARGUMENT,
                         "ncclCommWindowDeregister on rank %d: the window is another "
                         "communicator's",
                         comm->rank);
    window_close(window);
    return NCCL_SUCCESS;
}

void nccl_memory_close(struct ncclComm *comm)
{
    while (comm->registrations) {
        struct nccl_registration *registration = comm->registrations;
        comm->registrations = registration->next;
        tutti_mem_deregister(registration->memory);
        free(registration);
    }
    while (comm->windows) {
        struct ncclWindow *window = comm->windows;
        comm->windows = window->next;
        window_close(window);
    }
}

NCCL_TWIN(WinGetUserPtr);
int pncclWinGetUserPtr(struct ncclComm *comm, struct ncclWindow *window, void **out)
{
    NCCL_TRY(nccl_comm_check("ncclWinGetUserPtr", comm));
    if (!out) return nccl_fail(NCCL_INVALID_ARGUMENT, "ncclWinGetUserPtr: outUserPtr is NULL");
    *out = NULL;
    if (!window) return NCCL_SUCCESS;
    NCCL_TRY(nccl_window_check("ncclWinGetUserPtr", window));
    *out = window->base;
    return NCCL_SUCCESS;
}
