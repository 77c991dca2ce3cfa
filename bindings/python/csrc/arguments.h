/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_PYTHON_ARGUMENTS_H
#define TUTTI_PYTHON_ARGUMENTS_H

/* What a function takes is written once, as Python would write it: "send, recv=None, op='sum', *, timeout=None". From
 * that text come the names, what may be left out, the numbers that stand for what was left out, and what help() and
 * inspect.signature() show. Every function of the module is parsed by it. */

#include "abi.h"

#include <stdbool.h>
#include <stdint.h>

/* All names of parameters. */
#define PARAMETERS(X)                                                                                                  \
    X(send)                                                                                                            \
    X(recv)                                                                                                            \
    X(buffer)                                                                                                          \
    X(values)                                                                                                          \
    X(indices)                                                                                                         \
    X(op)                                                                                                              \
    X(root)                                                                                                            \
    X(counts) X(displs) X(send_counts) X(recv_counts) X(send_displs) X(recv_displs) X(status) X(block) X(dest)         \
        X(source) X(tag) X(send_tag) X(recv_tag) X(peer) X(offset) X(index) X(value) X(signal_op) X(compare)           \
            X(expected) X(desired) X(async_op) X(persistent) X(timeout) X(algorithm) X(label) X(stream) X(dtype)       \
                X(premul) X(wire) X(wire_block) X(wire_seed) X(wire_seeds) X(rank) X(size) X(store) X(name) X(secret)  \
                    X(device) X(survive) X(nonblocking) X(context) X(options) X(colour) X(key) X(exclude) X(reason)    \
                        X(work) X(nbytes) X(n_signals) X(function) X(commutes) X(path) X(kind) X(host) X(port)         \
                            X(address) X(memory) X(joins) X(ordered) X(overlap)

#define PARAMETER_ID(name) P_##name,
enum parameter { PARAMETERS(PARAMETER_ID) N_PARAMETERS };
#undef PARAMETER_ID

#define MOST_PARAMETERS 24
struct signature {
    const char *name; /* "all_reduce" */
    const char *text; /* what it takes */
    const char *doc;  /* what it does: one paragraph */
    /* made of them by signature_make */
    uint8_t n, n_required, n_positional;
    uint8_t parameters[MOST_PARAMETERS];
    int32_t numbers[MOST_PARAMETERS]; /* what stands for what was left out; 0 where that is no number */
    bool has[N_PARAMETERS];
    const char *shown; /* for ml_doc and tp_doc */
};

#define SIGNATURE(name_, text_, doc_)                                                                                  \
    {                                                                                                                  \
        .name = (name_), .text = (text_), .doc = (doc_)                                                                \
    }

/* Options that every call takes. */
#define CALL_OPTIONS                                                                                                   \
    ", *, async_op=False, persistent=False, timeout=None, algorithm=None, label=None, stream=None, dtype=None, "       \
    "premul=None, wire=None, wire_block=0, wire_seed=0, wire_seeds=None, ordered=False, overlap=False"

/* False, with an exception, when the text has a name that is in no list, or there is no memory. bound: a method. */
bool signature_make(struct signature *signature, bool bound);
/* Fills values[parameter] for each of the function's, NULL where it was left out (borrowed). kwnames may be NULL.
 * False: an exception is set. */
bool arguments_parse(const struct signature *signature, PyObject *const *args, Py_ssize_t n, PyObject *kwnames,
                     PyObject *values[N_PARAMETERS]);
/* The same for constructors, which get a tuple and a dictionary. */
bool arguments_parse_tuple(const struct signature *signature, PyObject *args, PyObject *kwargs,
                           PyObject *values[N_PARAMETERS]);

/* Numbers out of an argument: `absent` where it was left out or is None. False: an exception is set, which names it. */
bool argument_number(PyObject *value, enum parameter parameter, int64_t least, int64_t most, int64_t absent,
                     int64_t *out);
bool argument_u64(PyObject *value, enum parameter parameter, uint64_t absent, uint64_t *out);
/* Seconds as nanoseconds; 0 where left out or None. */
bool argument_timeout(PyObject *value, uint64_t *out);
/* UTF-8, borrowed from the argument; NULL in *out where left out or None. */
bool argument_text(PyObject *value, enum parameter parameter, const char **out);
bool argument_flag(PyObject *value, bool absent, bool *out);
/* What an enumeration's member is: a number, or its name, one of names(0) to names(n - 1). */
bool argument_member(PyObject *value, enum parameter parameter, const char *(*names)(int32_t), int32_t n, int32_t *out);
const char *parameter_name(enum parameter parameter);

#endif
