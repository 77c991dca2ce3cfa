/* SPDX-License-Identifier: BSD-3-Clause */
/* All calls that move data, as one table: what a method takes (arguments.h), what its buffers hold, and the public
 * function that it is. Everything else is the same for all: how arguments become those of C, and how a call is started,
 * waited for, recorded or collected. */
#include "calls.h"

#include <string.h>

/* ---- the functions ---- */

#define TAIL call->options, work
#define RUN(name, ...)                                                                                                 \
    static enum tutti_status run_##name(const struct call *call, struct tutti_work **work)                             \
    {                                                                                                                  \
        return tutti_##name(__VA_ARGS__);                                                                              \
    }
#define BOTH call->send, call->recv
#define ARRAY call->count, call->dtype
#define REDUCED call->count, call->dtype, (enum tutti_op)call->op
#define PART call->window, call->options, work

RUN(all_reduce, BOTH, REDUCED, call->comm, TAIL)
RUN(reduce, BOTH, REDUCED, call->root, call->comm, TAIL)
RUN(broadcast, call->recv, ARRAY, call->root, call->comm, TAIL)
RUN(all_gather, BOTH, ARRAY, call->comm, TAIL)
RUN(gather, BOTH, ARRAY, call->root, call->comm, TAIL)
RUN(scatter, BOTH, ARRAY, call->root, call->comm, TAIL)
RUN(reduce_scatter, BOTH, REDUCED, call->comm, TAIL)
RUN(all_to_all, BOTH, ARRAY, call->comm, TAIL)
RUN(scan, BOTH, REDUCED, call->comm, TAIL)
RUN(exscan, BOTH, REDUCED, call->comm, TAIL)
RUN(barrier, call->comm, TAIL)
RUN(all_gather_v, BOTH, call->counts, call->displs, call->dtype, call->comm, TAIL)
RUN(gather_v, call->send, call->count, call->recv, call->counts, call->displs, call->dtype, call->root, call->comm,
    TAIL)
RUN(scatter_v, call->send, call->counts, call->displs, call->recv, call->count, call->dtype, call->root, call->comm,
    TAIL)
RUN(reduce_scatter_v, BOTH, call->counts, call->dtype, (enum tutti_op)call->op, call->comm, TAIL)
RUN(all_to_all_v, call->send, call->send_counts, call->send_displs, call->recv, call->counts, call->displs, call->dtype,
    call->comm, TAIL)
RUN(send, call->send, ARRAY, call->dest, call->tag, call->comm, TAIL)
RUN(recv, call->recv, ARRAY, call->source, call->tag, call->comm, call->options, &call->borrow->message, work)
RUN(sendrecv, call->send, call->count, call->dest, call->send_tag, call->recv, call->recv_count, call->source,
    call->recv_tag, call->dtype, call->comm, call->options, &call->borrow->message, work)
RUN(put, call->send, call->send_bytes, call->peer, call->offset, PART)
RUN(get, call->recv, call->recv_bytes, call->peer, call->offset, PART)
RUN(signal, &call->signal, call->peer, PART)
RUN(put_signal, call->send, call->send_bytes, call->peer, call->offset, &call->signal, PART)
RUN(wait_signal, call->signal.index, call->compare, call->signal.value, call->source, PART)
RUN(fetch_add, call->signal.value, &call->borrow->before, call->peer, call->offset, PART)
RUN(compare_swap, call->expected, call->desired, &call->borrow->before, call->peer, call->offset, PART)
RUN(flush, call->peer, PART)

static enum tutti_status run_fence(const struct call *call, struct tutti_work **work)
{
    (void)work; /* it waits for nobody */
    return tutti_fence(call->window, call->options);
}

static enum tutti_status run_all_to_all_v_dynamic(const struct call *call, struct tutti_work **work)
{
    const struct tutti_all_to_all_v_dynamic dynamic = {
        .size = sizeof dynamic,
        .send = call->send,
        .send_counts = call->words[0],
        .send_displs = call->words[1],
        .send_capacity = call->send_bytes / tutti_dtype_bytes(call->dtype),
        .recv = call->recv,
        .recv_counts = call->words[2],
        .recv_displs = call->words[3],
        .recv_capacity = call->recv_bytes / tutti_dtype_bytes(call->dtype),
        .status = call->status,
        .dtype = call->dtype,
    };
    return tutti_all_to_all_v_dynamic(&dynamic, call->comm, TAIL);
}

static enum tutti_status run_all_reduce_sparse_block(const struct call *call, struct tutti_work **work)
{
    return tutti_all_reduce_sparse_block(call->send, call->words[0], call->n_indices, call->block, call->recv,
                                         call->recv_bytes / tutti_dtype_bytes(call->dtype), call->dtype,
                                         (enum tutti_op)call->op, call->status, call->comm, TAIL);
}

/* ---- the table ---- */

#define O CALL_OPTIONS
#define TAKES(name, text, doc) .signature = SIGNATURE(#name, text, doc), .run = run_##name
static struct row comm_rows[] = {
    {TAKES(all_reduce, "send, recv=None, op='sum'" O,
           "Reduces over all ranks; every rank gets the result, in send where there is no recv."),
     .sends = ONE, .receives = ONE},
    {TAKES(reduce, "send, recv=None, op='sum', root=0" O, "Reduces over all ranks; the root gets the result."),
     .sends = ONE, .receives = ONE, .recv_at_root = true},
    {TAKES(broadcast, "buffer, root=0" O, "The root's buffer comes into those of all."), .receives = ONE,
     .reads_at_root = true},
    {TAKES(all_gather, "send, recv" O,
           "What each rank sends comes into recv of all, in rank order. send None: this rank's block of recv."),
     .sends = ONE, .receives = ALL},
    {TAKES(gather, "send, recv=None, root=0" O,
           "What each rank sends comes into recv of the root, in rank order. send None: the root's block of recv."),
     .sends = ONE, .receives = ALL, .recv_at_root = true},
    {TAKES(scatter, "send, recv=None, root=0" O,
           "Block r of the root's send comes into recv of rank r. recv None: the root's block of send."),
     .sends = ALL, .receives = ONE, .send_at_root = true},
    {TAKES(reduce_scatter, "send, recv=None, op='sum'" O,
           "Reduces over all ranks; rank r gets block r of the result. recv None: into this rank's block of send."),
     .sends = ALL, .receives = ONE},
    {TAKES(all_to_all, "send, recv=None" O,
           "Block r of send goes to rank r, into the block of this rank there. recv None: in place."),
     .sends = ALL, .receives = ALL},
    {TAKES(scan, "send, recv=None, op='sum'" O, "Rank r gets the reduction of ranks 0 to r."), .sends = ONE,
     .receives = ONE},
    {TAKES(exscan, "send, recv=None, op='sum'" O,
           "Rank r gets the reduction of ranks 0 to r - 1; recv of rank 0 stays as it is."),
     .sends = ONE, .receives = ONE},
    {TAKES(barrier, "" O, "Returns when all ranks have called it.")},
    {TAKES(all_gather_v, "send, recv, counts, displs=None" O,
           "all_gather of counts[r] elements from rank r, to displs[r] (None: packed). counts are equal on all ranks."),
     .sends = OWN, .receives = TABLE},
    {TAKES(gather_v, "send, recv=None, counts=None, displs=None, root=0" O,
           "gather of counts[r] elements from rank r. recv, counts and displs are the root's."),
     .sends = COUNT, .receives = TABLE, .recv_at_root = true},
    {TAKES(scatter_v, "send, recv=None, counts=None, displs=None, root=0" O,
           "scatter of counts[r] elements to rank r. send, counts and displs are the root's."),
     .sends = TABLE, .receives = COUNT, .send_at_root = true},
    {TAKES(reduce_scatter_v, "send, recv, counts, op='sum'" O,
           "reduce_scatter of counts[r] elements to rank r. counts are equal on all ranks. recv None: in place."),
     .sends = TABLE, .receives = OWN},
    {TAKES(all_to_all_v, "send, recv, send_counts, recv_counts, send_displs=None, recv_displs=None" O,
           "send_counts[r] elements go to rank r, recv_counts[r] come from it; displacements None: packed."),
     .sends = SEND_TABLE, .receives = TABLE},
    {TAKES(all_to_all_v_dynamic,
           "send, recv, send_counts, recv_counts, send_displs=None, recv_displs=None, status=None" O,
           "all_to_all_v whose counts only the senders know: counts and displacements are memory of uint64, beside the "
           "data; recv_counts are written, and status (int32)."),
     .sends = ANY, .receives = ANY, .words = {P_send_counts, P_send_displs, P_recv_counts, P_recv_displs},
     .written = P_recv_counts},
    {TAKES(
         all_reduce_sparse_block, "values, indices, recv, block, op='sum', status=None" O,
         "Adds block i of values, of `block` elements, to block indices[i] (int64) of recv, which is 0 elsewhere; then "
         "reduces recv over all ranks."),
     .sends = ANY, .receives = ANY, .words = {P_indices}},
    {TAKES(send, "buffer, dest, tag=0" O, "Sends a message to rank dest; the buffer may be used again afterwards."),
     .sends = COUNT},
    {TAKES(recv, "buffer, source=-1, tag=-1" O,
           "Receives a message of source (ANY_SOURCE) and tag (ANY_TAG); returns a Message."),
     .receives = COUNT, .result = RESULT_MESSAGE},
    {TAKES(sendrecv, "send, recv, dest, source=-1, send_tag=0, recv_tag=-1" O,
           "Sends one message while it receives another; returns a Message."),
     .sends = COUNT, .receives = COUNT_2, .result = RESULT_MESSAGE},
};

static struct row window_rows[] = {
    {TAKES(put, "buffer, peer, offset=0" O, "Writes the buffer into the peer's part, from byte offset on."),
     .sends = ANY},
    {TAKES(get, "buffer, peer, offset=0" O, "Reads the peer's part from byte offset on into the buffer."),
     .receives = ANY},
    {TAKES(signal, "peer, index=0, value=1, signal_op='add'" O, "Changes a signal of the peer: 'add' or 'set'.")},
    {TAKES(put_signal, "buffer, peer, offset=0, index=0, value=1, signal_op='add'" O, "put, then signal."),
     .sends = ANY},
    {TAKES(
        wait_signal, "value, index=0, compare='ge', source=-1" O,
        "Waits until a signal of this rank compares so with value: 'eq', 'ne', 'lt', 'le', 'gt' or 'ge'. source: the "
        "rank that is to change it.")},
    {TAKES(fetch_add, "value, peer, offset=0" O,
           "Adds to the 8 bytes at offset of the peer's part; returns what was there before."),
     .result = RESULT_BEFORE},
    {TAKES(compare_swap, "expected, desired, peer, offset=0" O,
           "Writes desired to the 8 bytes at offset of the peer's part if expected is there; returns what was there."),
     .result = RESULT_BEFORE},
    {TAKES(flush, "peer=-1" O,
           "Waits until all that was called before for the peer (ALL_PEERS) has taken effect in its part.")},
    {TAKES(fence, "" O, "Puts and gets before it take effect before those after it; waits for nobody."),
     .blocks = true},
};

/* ---- methods ---- */

#define METHODS(X)                                                                                                     \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20)
#define N_COMM (sizeof comm_rows / sizeof comm_rows[0])
#define N_WINDOW (sizeof window_rows / sizeof window_rows[0])

/* A method is told of its object alone, not of its row: so each row has a function. */
#define COMM_METHOD(i)                                                                                                 \
    static PyObject *comm_##i(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)                  \
    {                                                                                                                  \
        return call_run(&comm_rows[i], self, (struct comm_object *)self, args, n, kwnames);                            \
    }
METHODS(COMM_METHOD)
#define WINDOWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define WINDOW_METHOD(i)                                                                                               \
    static PyObject *window_##i(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)                \
    {                                                                                                                  \
        return call_run(&window_rows[i], self, ((struct window_object *)self)->comm, args, n, kwnames);                \
    }
WINDOWS(WINDOW_METHOD)

typedef PyObject *(*method)(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
#define COMM_NAME(i) comm_##i,
#define WINDOW_NAME(i) window_##i,
static const method comm_methods[] = {METHODS(COMM_NAME)}, window_methods[] = {WINDOWS(WINDOW_NAME)};
_Static_assert(sizeof comm_methods / sizeof comm_methods[0] == N_COMM, "each row of comm_rows has its method");
_Static_assert(sizeof window_methods / sizeof window_methods[0] == N_WINDOW, "each row of window_rows has its method");

static size_t methods_make(struct row *rows, size_t n, const method *functions, PyMethodDef *out)
{
    for (size_t i = 0; i < n; i++) {
        if (!signature_make(&rows[i].signature, true)) return 0;
        out[i] = (PyMethodDef)METHOD(rows[i].signature, functions[i]);
    }
    return n;
}

size_t comm_calls_methods(PyMethodDef *methods)
{
    return methods_make(comm_rows, N_COMM, comm_methods, methods);
}
size_t window_calls_methods(PyMethodDef *methods)
{
    return methods_make(window_rows, N_WINDOW, window_methods, methods);
}
