/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods of communicators that move no data: what makes others of them, ends them, and asks them. */
#include "module.h"

#include <stdlib.h>

#define SELF struct comm_object *self = (struct comm_object *)object
#define PARSED(signature)                                                                                              \
    PyObject *values[N_PARAMETERS];                                                                                    \
    SELF;                                                                                                              \
    if (!arguments_parse(&(signature), args, n, kwnames, values) || !comm_is_open(self, (signature).name)) return NULL
#define METHOD_ARGS PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames

enum {
    SPLIT,
    DUP,
    SHRINK,
    ADMIT,
    ABORT,
    FLUSH,
    CLOSE,
    STATE,
    SET_DEVICE,
    PROBE,
    CONTRIBUTORS,
    WINDOW,
    MEM_ALLOC,
    N_METHODS
};
static struct signature signatures[N_METHODS] = {
    [SPLIT] = SIGNATURE("split", "colour, key=0",
                        "Ranks of one colour become a communicator, ordered by key, then by rank; None for UNDEFINED."),
    [DUP] = SIGNATURE("dup", "", "A communicator of the same ranks with its own order and errors."),
    [SHRINK] = SIGNATURE("shrink", "exclude=()",
                         "A communicator of the survivors, who alone call it, without those in exclude."),
    [ADMIT] =
        SIGNATURE("admit", "", "Takes newcomers into a communicator that survives; returns their ranks. Collective."),
    [ABORT] = SIGNATURE("abort", "reason=None", "Ends every call in flight, on all ranks. Returns at once."),
    [FLUSH] = SIGNATURE("flush", "timeout=None",
                        "Waits until no call is in flight here. False where the timeout passes first."),
    [CLOSE] = SIGNATURE("close", "", "Waits for the calls in flight here, then frees. Not collective."),
    [STATE] = SIGNATURE("state", "", "True when usable, False while it is being made; raises the error that ended it."),
    [SET_DEVICE] = SIGNATURE("set_device", "device", "Collective: calls may use memory of this device from now on."),
    [PROBE] = SIGNATURE("probe", "source=-1, tag=-1", "The Message that waits to be received, or None."),
    [CONTRIBUTORS] =
        SIGNATURE("contributors", "work=None",
                  "The ranks whose contributions the result of a call holds: of the last one, or of a Work."),
    [WINDOW] =
        SIGNATURE("window", "memory, n_signals=0",
                  "Collective: a Window on memory of this rank (a Memory, an array, or None) for one-sided calls."),
    [MEM_ALLOC] = SIGNATURE("mem_alloc", "nbytes",
                            "A Memory that all ranks of the host can map: collectives on it are zero-copy."),
};

/* ---- other communicators ---- */

/* What a thread of its own carries out (wait.c): a function that makes a communicator. */
struct making {
    const struct tutti_comm_config *config; /* create; else one of the next */
    struct tutti_context *context;
    struct tutti_comm *from;
    int32_t colour, key;
    int32_t *exclude;
    size_t n_exclude;
    struct tutti_comm *made;
};

static void making_undo(void *arg)
{
    struct making *making = arg;
    if (making->made) tutti_comm_abort(making->made, "interrupted"), tutti_comm_destroy(making->made);
    free(making->exclude);
    free(making);
}

static enum tutti_status do_split(void *arg)
{
    struct making *making = arg;
    return tutti_comm_split(making->from, making->colour, making->key, &making->made);
}
static enum tutti_status do_dup(void *arg)
{
    struct making *making = arg;
    return tutti_comm_dup(making->from, &making->made);
}
static enum tutti_status do_shrink(void *arg)
{
    struct making *making = arg;
    return tutti_comm_shrink(making->from, making->exclude, making->n_exclude, &making->made);
}

/* Takes `making` over. None where a rank joins no group. */
static PyObject *make(struct making *making, enum tutti_status (*function)(void *arg), struct comm_object *from)
{
    struct tutti_error error;
    if (group_is_open()) {
        free(making);
        return error_argument(from, "split", "not inside a group");
    }
    making->from = from->comm;
    Py_IncRef((PyObject *)from);
    const enum tutti_status status = wait_function(function, making_undo, making, &error);
    if (status == TUTTI_PENDING) return NULL; /* from stays: the function goes on */
    struct tutti_comm *made = making->made;
    free(making->exclude);
    free(making);
    PyObject *out = status < 0 ? error_raise(&error, from->rank)
                    : made     ? comm_wrap(made, from->context)
                               : Py_BuildValue("");
    Py_DecRef((PyObject *)from);
    return out;
}

static struct making *making_new(void)
{
    struct making *making = calloc(1, sizeof *making);
    if (!making) PyErr_NoMemory();
    return making;
}

static PyObject *comm_split(METHOD_ARGS)
{
    int64_t colour, key;
    PARSED(signatures[SPLIT]);
    if (!argument_number(values[P_colour], P_colour, INT32_MIN, INT32_MAX, 0, &colour) ||
        !argument_number(values[P_key], P_key, INT32_MIN, INT32_MAX, 0, &key))
        return NULL;
    struct making *making = making_new();
    if (!making) return NULL;
    making->colour = (int32_t)colour, making->key = (int32_t)key;
    return make(making, do_split, self);
}

static PyObject *comm_dup(METHOD_ARGS)
{
    PARSED(signatures[DUP]);
    struct making *making = making_new();
    return making ? make(making, do_dup, self) : NULL;
}

static PyObject *comm_shrink(METHOD_ARGS)
{
    PARSED(signatures[SHRINK]);
    PyObject *given = values[P_exclude];
    const Py_ssize_t n_given = given ? PySequence_Size(given) : 0;
    struct making *making = n_given >= 0 ? making_new() : NULL;
    if (!making) return NULL;
    making->exclude = calloc((size_t)n_given + 1, sizeof *making->exclude);
    bool right = making->exclude != NULL;
    for (Py_ssize_t i = 0; right && i < n_given; i++) {
        int64_t rank = 0;
        PyObject *item = PySequence_GetItem(given, i);
        right = item && argument_number(item, P_exclude, 0, INT32_MAX, 0, &rank);
        Py_DecRef(item);
        making->exclude[making->n_exclude++] = (int32_t)rank;
    }
    if (right) return make(making, do_shrink, self);
    making_undo(making);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

static PyObject *ranks_list(const int32_t *ranks, size_t n)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *rank = PyLong_FromLong(ranks[i]);
        if (!rank || PyList_Append(list, rank) < 0) Py_DecRef(list), list = NULL;
        Py_DecRef(rank);
    }
    return list;
}

static enum tutti_status do_admit(void *arg)
{
    struct making *making = arg;
    return tutti_comm_admit(making->from, making->exclude, making->n_exclude, &making->n_exclude);
}

static PyObject *comm_admit(METHOD_ARGS)
{
    struct tutti_error error;
    PARSED(signatures[ADMIT]);
    struct making *making = making_new();
    int32_t *ranks = making ? calloc((size_t)self->size + 1, sizeof *ranks) : NULL;
    if (!ranks) {
        free(making);
        return PyErr_NoMemory();
    }
    making->from = self->comm;
    making->exclude = ranks, making->n_exclude = (size_t)self->size;
    Py_IncRef(object);
    const enum tutti_status status = wait_function(do_admit, making_undo, making, &error);
    if (status == TUTTI_PENDING) return NULL; /* self stays: the function goes on */
    PyObject *list = status < 0 ? error_raise(&error, self->rank) : ranks_list(ranks, making->n_exclude);
    making_undo(making);
    Py_DecRef(object);
    return list;
}

/* ---- calls in flight, state, memory ---- */

static PyObject *comm_abort(METHOD_ARGS)
{
    const char *reason;
    PARSED(signatures[ABORT]);
    if (!argument_text(values[P_reason], P_reason, &reason)) return NULL;
    LOCK_GIVE();
    tutti_comm_abort(self->comm, reason);
    LOCK_TAKE();
    return Py_BuildValue("");
}

static PyObject *comm_flush(METHOD_ARGS)
{
    uint64_t timeout_ns;
    bool over;
    PARSED(signatures[FLUSH]);
    if (!argument_timeout(values[P_timeout], &timeout_ns) || !comm_wait_quiet(self, timeout_ns, &over)) return NULL;
    return PyBool_FromLong(over);
}

static PyObject *comm_close(METHOD_ARGS)
{
    PyObject *values[N_PARAMETERS];
    SELF;
    return arguments_parse(&signatures[CLOSE], args, n, kwnames, values) ? comm_finish(self) : NULL;
}
static PyObject *comm_state(METHOD_ARGS)
{
    struct tutti_error error;
    PARSED(signatures[STATE]);
    const enum tutti_status status = tutti_comm_state(self->comm, &error);
    if (status < 0) return error_raise(&error, self->rank);
    self->rank = tutti_comm_rank(self->comm), self->size = tutti_comm_size(self->comm); /* known from now on */
    return PyBool_FromLong(status == TUTTI_OK);
}

static PyObject *comm_set_device(METHOD_ARGS)
{
    int64_t device;
    PARSED(signatures[SET_DEVICE]);
    if (!argument_number(values[P_device], P_device, TUTTI_DEVICE_NONE, INT32_MAX, TUTTI_DEVICE_AUTO, &device))
        return NULL;
    LOCK_GIVE();
    const enum tutti_status status = tutti_comm_set_device(self->comm, (int32_t)device);
    LOCK_TAKE();
    return status < 0 ? error_raise_last(self->rank) : Py_BuildValue("");
}

static PyObject *comm_probe(METHOD_ARGS)
{
    int64_t source, tag;
    struct tutti_message message;
    PARSED(signatures[PROBE]);
    if (!argument_number(values[P_source], P_source, INT32_MIN, INT32_MAX, TUTTI_ANY_SOURCE, &source) ||
        !argument_number(values[P_tag], P_tag, INT32_MIN, INT32_MAX, TUTTI_ANY_TAG, &tag))
        return NULL;
    LOCK_GIVE();
    const enum tutti_status status = tutti_probe((int32_t)source, (int32_t)tag, self->comm, &message);
    LOCK_TAKE();
    if (status < 0) return error_raise_last(self->rank);
    return status == TUTTI_OK ? message_wrap(&message) : Py_BuildValue("");
}

static PyObject *comm_contributors(METHOD_ARGS)
{
    size_t n_ranks = 0;
    PARSED(signatures[CONTRIBUTORS]);
    PyObject *given = values[P_work];
    const struct tutti_work *work = given && given != Py_None ? work_of(given) : NULL;
    if (given && given != Py_None && !work) return NULL;
    int32_t *ranks = calloc((size_t)self->size + 1, sizeof *ranks);
    if (!ranks) return PyErr_NoMemory();
    const enum tutti_status status = tutti_work_contributors(work, self->comm, ranks, (size_t)self->size, &n_ranks);
    PyObject *list = status < 0 ? error_raise_last(self->rank)
                                : ranks_list(ranks, n_ranks < (size_t)self->size ? n_ranks : (size_t)self->size);
    free(ranks);
    return list;
}

static PyObject *comm_window(METHOD_ARGS)
{
    int64_t n_signals;
    PARSED(signatures[WINDOW]);
    if (!argument_number(values[P_n_signals], P_n_signals, 0, UINT32_MAX, 0, &n_signals)) return NULL;
    return window_wrap(self, values[P_memory], (uint32_t)n_signals);
}

static PyObject *comm_mem_alloc(METHOD_ARGS)
{
    uint64_t bytes;
    PARSED(signatures[MEM_ALLOC]);
    return argument_u64(values[P_nbytes], P_nbytes, 0, &bytes) ? memory_wrap(self, bytes) : NULL;
}

size_t comm_own_methods(PyMethodDef *methods)
{
    static const struct {
        int signature;
        PyObject *(*function)(METHOD_ARGS);
    } own[] = {{SPLIT, comm_split},        {DUP, comm_dup},       {SHRINK, comm_shrink},
               {ADMIT, comm_admit},        {ABORT, comm_abort},   {FLUSH, comm_flush},
               {CLOSE, comm_close},        {STATE, comm_state},   {SET_DEVICE, comm_set_device},
               {PROBE, comm_probe},        {WINDOW, comm_window}, {CONTRIBUTORS, comm_contributors},
               {MEM_ALLOC, comm_mem_alloc}};
    for (size_t i = 0; i < N_METHODS; i++) {
        if (!signature_make(&signatures[own[i].signature], true)) return 0;
        methods[i] = (PyMethodDef)METHOD(signatures[own[i].signature], own[i].function);
    }
    return N_METHODS;
}
