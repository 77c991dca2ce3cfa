/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls. NCCL's signals belong to a communicator and count; tutti's belong to a window. So a communicator has
 * one more window, for signals alone, made with its first window: a word for each peer, signal and context, which that
 * peer adds 1 to. Who waits counts what it has waited for before. */
#include "shim.h"

#include <stdlib.h>

enum { SIGNALS = 4, CONTEXTS = 4, EACH = SIGNALS * CONTEXTS, PAGE = 4096 };

struct nccl_signals {
    struct tutti_window *window;
    uint64_t *awaited; /* under the communicator's lock */
};

int nccl_signals_open(struct ncclComm *comm)
{
    struct tutti_window_config config = TUTTI_WINDOW_CONFIG_INIT;
    if (comm->signals) return NCCL_SUCCESS;
    struct nccl_signals *made = calloc(1, sizeof *made);
    if (made) made->awaited = calloc((size_t)comm->n_ranks * EACH, sizeof *made->awaited);
    if (!made || !made->awaited) {
        free(made);
        return nccl_fail(NCCL_SYSTEM_ERROR, "out of memory for signals");
    }
    config.n_signals = (uint32_t)comm->n_ranks * EACH;
    void *memory = NULL;
    enum tutti_status status = tutti_mem_alloc(nccl_tutti(comm), PAGE, &memory);
    if (status >= 0) status = tutti_window_create(nccl_tutti(comm), memory, PAGE, &config, &made->window);
    comm->signals = made;
    if (status >= 0) return NCCL_SUCCESS;
    const int result = nccl_told(status);
    nccl_signals_close(comm);
    return result;
}

void nccl_signals_close(struct ncclComm *comm)
{
    struct nccl_signals *signals = comm->signals;
    if (!signals) return;
    tutti_window_destroy(signals->window); /* a peer's last signal may be on its way: the memory goes with the family */
    free(signals->awaited);
    free(signals);
    comm->signals = NULL;
}

static int check(const char *call, struct ncclComm *comm, int peer, int signal, int context)
{
    NCCL_TRY(nccl_comm_ready(call, comm));
    if (!comm->signals)
        return nccl_fail(NCCL_INVALID_USAGE,
                         "%s on rank %d: the communicator has no window yet: "
                         "ncclCommWindowRegister first",
                         call, comm->rank);
    if (peer < 0 || peer >= comm->n_ranks)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: peer is %d but the ranks are 0 to %d", call, comm->rank,
                         peer, comm->n_ranks - 1);
    if (signal < 0 || signal >= SIGNALS || context < 0 || context >= CONTEXTS)
        return nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: signal %d of context %d: there are %d of each of %d",
                         call, comm->rank, signal, context, SIGNALS, CONTEXTS);
    return NCCL_SUCCESS;
}

static uint32_t index_of(int peer, int signal, int context)
{
    return (uint32_t)(peer * EACH + context * SIGNALS + signal);
}

static struct tutti_call_options options_of(void *stream)
{
    return (struct tutti_call_options){.size = sizeof(struct tutti_call_options), .premul_value = 1, .stream = stream};
}

static int tell(struct ncclComm *comm, int peer, int signal, int context, void *stream)
{
    const struct tutti_call_options options = options_of(stream);
    const struct tutti_signal_info info = {index_of(comm->rank, signal, context), TUTTI_SIGNAL_ADD, 1};
    return nccl_told(tutti_signal(&info, peer, comm->signals->window, &options, NULL));
}

NCCL_TWIN(Signal);
int pncclSignal(int peer, int signal, int context, unsigned flags, struct ncclComm *comm, void *stream)
{
    (void)flags; /* none are defined */
    const int result = check("ncclSignal", comm, peer, signal, context);
    return nccl_group_note(result == NCCL_SUCCESS ? tell(comm, peer, signal, context, stream) : result);
}

/* The signal is in another window: flush puts it behind the data. */
static int put(const void *local, size_t bytes, int peer, const struct ncclWindow *window, size_t offset, void *stream)
{
    const struct tutti_call_options options = options_of(stream);
    if (bytes == 0) return NCCL_SUCCESS;
    NCCL_TRY(nccl_told(tutti_put(local, bytes, peer, offset, window->window, &options, NULL)));
    return nccl_told(tutti_flush(peer, window->window, &options, NULL));
}

NCCL_TWIN(PutSignal);
int pncclPutSignal(const void *local, size_t count, int type, int peer, struct ncclWindow *window, size_t offset,
                   int signal, int context, unsigned flags, struct ncclComm *comm, void *stream)
{
    static const char name[] = "ncclPutSignal";
    enum tutti_dtype dtype = TUTTI_INT8;
    size_t bytes = 0;
    (void)flags;
    int result = check(name, comm, peer, signal, context);
    if (result == NCCL_SUCCESS) result = nccl_window_check(name, window);
    if (result == NCCL_SUCCESS && window->comm != comm)
        result =
            nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: the window is another communicator's", name, comm->rank);
    if (result == NCCL_SUCCESS) result = nccl_type_check(name, type, &dtype);
    if (result == NCCL_SUCCESS && __builtin_mul_overflow(count, tutti_dtype_bytes(dtype), &bytes))
        result = nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: count is %zu", name, comm->rank, count);
    if (result == NCCL_SUCCESS) result = put(local, bytes, peer, window, offset, stream);
    return nccl_group_note(result == NCCL_SUCCESS ? tell(comm, peer, signal, context, stream) : result);
}

static int await(struct ncclComm *comm, const struct nccl_wait *wait, void *stream)
{
    const struct tutti_call_options options = options_of(stream);
    const uint32_t index = index_of(wait->peer, wait->signal, wait->context);
    pthread_mutex_lock(&comm->lock);
    const uint64_t value = comm->signals->awaited[index] += (uint64_t)wait->n;
    pthread_mutex_unlock(&comm->lock);
    return nccl_told(
        tutti_wait_signal(index, TUTTI_COMPARE_GE, value, wait->peer, comm->signals->window, &options, NULL));
}

NCCL_TWIN(WaitSignal);
int pncclWaitSignal(int n, struct nccl_wait *waits, struct ncclComm *comm, void *stream)
{
    static const char name[] = "ncclWaitSignal";
    int result = nccl_comm_ready(name, comm);
    if (result == NCCL_SUCCESS && (n < 0 || (n > 0 && !waits)))
        result = nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: %d waits", name, comm->rank, waits ? n : 0);
    for (int i = 0; i < n && result == NCCL_SUCCESS; i++) {
        result = check(name, comm, waits[i].peer, waits[i].signal, waits[i].context);
        if (result == NCCL_SUCCESS && waits[i].n < 0)
            result = nccl_fail(NCCL_INVALID_ARGUMENT, "%s on rank %d: opCnt is %d", name, comm->rank, waits[i].n);
    }
    for (int i = 0; i < n && result == NCCL_SUCCESS; i++) result = await(comm, &waits[i], stream);
    return nccl_group_note(result);
}
