/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_PYTHON_CALLS_H
#define TUTTI_PYTHON_CALLS_H

/* One call, from Python's arguments to C's. */

#include "module.h"

/* What a buffer of a call holds: nothing; `count` elements; as many from or for each rank; counts[rank]; what counts
 * and displacements say; whatever it has, which sets count, or (ANY) nothing. */
enum layout { NOTHING, ONE, ALL, OWN, TABLE, SEND_TABLE, COUNT, COUNT_2, ANY };

struct call;
struct row {
    struct signature signature;
    enum tutti_status (*run)(const struct call *call, struct tutti_work **work);
    uint8_t sends, receives;         /* enum layout */
    bool send_at_root, recv_at_root; /* other ranks' buffers mean nothing */
    bool reads_at_root;              /* the root's recv is only read */
    bool blocks;                     /* it has no work */
    uint8_t words[4], written;       /* parameters that are memory of 8-byte words, and which of them is written */
    uint8_t result;                  /* enum call_result */
};

struct call {
    const struct row *row;
    struct comm_object *object;
    PyObject *const *values;
    struct borrow *borrow;
    struct tutti_comm *comm;
    struct tutti_window *window;
    void *send, *recv;
    size_t send_bytes, recv_bytes, count, recv_count;
    int32_t dtype_given, dtype_seen; /* -1: none */
    enum tutti_dtype dtype;
    int32_t op, root, dest, source, tag, send_tag, recv_tag, peer;
    size_t offset, block, n_indices;
    const size_t *counts, *displs, *send_counts, *send_displs;
    void *words[4];
    int32_t *status;
    struct tutti_signal_info signal;
    enum tutti_compare compare;
    uint64_t expected, desired;
    const struct tutti_call_options *options;
    void *stream;
    bool on_device, is_async, is_persistent;
};

PyObject *call_run(const struct row *row, PyObject *self, struct comm_object *comm, PyObject *const *args, Py_ssize_t n,
                   PyObject *kwnames);

/* ---- fill.c: false: an exception is set ---- */
/* In this order: how it is called; numbers, operations, counts; buffers; options. The first and the last only where
 * some argument is named. */
bool call_fill_flags(struct call *call);
bool call_fill_numbers(struct call *call);
bool call_fill_buffers(struct call *call);
bool call_fill_options(struct call *call);

#endif
