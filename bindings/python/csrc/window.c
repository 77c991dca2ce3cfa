/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows as objects; their calls are in calls.c. A Window keeps the memory that it is on, and its communicator. */
#include "module.h"

#include <stdlib.h>

static PyObject *window_type;

bool window_is_open(const struct window_object *self, const char *call)
{
    if (self->window) return true;
    error_argument(NULL, call, "the window is closed");
    return false;
}

/* ---- creation, by a thread of its own (wait.c) ---- */

struct opening {
    struct tutti_comm *comm;
    struct view view;
    struct tutti_window_config config;
    struct tutti_window *window;
};

static enum tutti_status do_open(void *arg)
{
    struct opening *opening = arg;
    return tutti_window_create(opening->comm, opening->view.data, opening->view.bytes, &opening->config,
                               &opening->window);
}

/* The memory and the communicator stay taken: this happens where a signal ended the wait. */
static void open_undo(void *arg)
{
    struct opening *opening = arg;
    if (opening->window) tutti_window_destroy(opening->window);
    free(opening);
}

static PyObject *open_window(struct comm_object *comm, struct opening *opening, PyObject *memory)
{
    struct tutti_error error;
    struct window_object *self = PyObject_New(struct window_object, (PyTypeObject *)window_type);
    if (!self) return NULL;
    self->window = NULL;
    self->comm = comm;
    Py_IncRef((PyObject *)comm);
    self->memory = memory;
    Py_IncRef(memory);
    const enum tutti_status status = wait_function(do_open, open_undo, opening, &error);
    if (status == TUTTI_PENDING) return NULL; /* self stays with what it holds: the library still uses that */
    self->window = opening->window;
    self->view = opening->view; /* only what releases it is used from now on */
    free(opening);
    comm->n_children++;
    if (status >= 0) return (PyObject *)self;
    Py_DecRef((PyObject *)self);
    return error_raise(&error, comm->rank);
}

PyObject *window_wrap(struct comm_object *comm, PyObject *memory, uint32_t n_signals)
{
    const struct view_request request = {.comm = comm, .call = "window", .parameter = P_memory, .writable = true};
    if (group_is_open()) return error_argument(comm, "window", "not inside a group");
    struct opening *opening = calloc(1, sizeof *opening);
    if (!opening) return PyErr_NoMemory();
    opening->comm = comm->comm;
    opening->config = (struct tutti_window_config)TUTTI_WINDOW_CONFIG_INIT;
    opening->config.n_signals = n_signals;
    if (memory != Py_None && !view_take(&opening->view, memory, &request)) {
        free(opening);
        return NULL;
    }
    PyObject *window = open_window(comm, opening, memory);
    return window;
}

/* ---- methods ---- */

#define METHOD_ARGS PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames
#define PARSED(signature)                                                                                              \
    PyObject *values[N_PARAMETERS];                                                                                    \
    struct window_object *self = (struct window_object *)object;                                                       \
    if (!arguments_parse(&(signature), args, n, kwnames, values)) return NULL

enum { READ, WRITE, PEER, CLOSE, N_METHODS };
static struct signature signatures[N_METHODS] = {
    [READ] = SIGNATURE("signal_read", "index=0, stream=None", "A signal of this rank, now."),
    [WRITE] = SIGNATURE("signal_write", "value, index=0, stream=None",
                        "Writes a signal of this rank; no peer may change it now."),
    [PEER] = SIGNATURE("peer", "rank", "The part of a rank as a memoryview, or None where it can not be mapped here."),
    [CLOSE] = SIGNATURE("close", "", "Ends the window here. Not collective; the memory stays the caller's."),
};

static bool index_of(PyObject *const *values, uint32_t *out, struct tutti_call_options *options)
{
    int64_t index;
    if (!argument_number(values[P_index], P_index, 0, UINT32_MAX, 0, &index)) return false;
    *out = (uint32_t)index;
    if (values[P_stream] && values[P_stream] != Py_None) options->stream = PyLong_AsVoidPtr(values[P_stream]);
    return !PyErr_Occurred();
}

static PyObject *signal_read(METHOD_ARGS)
{
    uint32_t index;
    uint64_t value;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    PARSED(signatures[READ]);
    if (!window_is_open(self, "signal_read") || !index_of(values, &index, &options)) return NULL;
    LOCK_GIVE();
    const enum tutti_status status = tutti_signal_read(index, &value, self->window, &options);
    LOCK_TAKE();
    return status < 0 ? error_raise_last(self->comm->rank) : PyLong_FromUnsignedLongLong(value);
}

static PyObject *signal_write(METHOD_ARGS)
{
    uint32_t index;
    uint64_t value;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    PARSED(signatures[WRITE]);
    if (!window_is_open(self, "signal_write") || !index_of(values, &index, &options) ||
        !argument_u64(values[P_value], P_value, 0, &value))
        return NULL;
    LOCK_GIVE();
    const enum tutti_status status = tutti_signal_write(index, value, self->window, &options);
    LOCK_TAKE();
    return status < 0 ? error_raise_last(self->comm->rank) : Py_BuildValue("");
}

static PyObject *window_peer(METHOD_ARGS)
{
    int64_t rank;
    size_t bytes = 0;
    PARSED(signatures[PEER]);
    if (!window_is_open(self, "peer") || !argument_number(values[P_rank], P_rank, 0, self->comm->size - 1, 0, &rank))
        return NULL;
    void *part = tutti_window_peer(self->window, (int32_t)rank, &bytes);
    if (!part || self->view.on_device) return Py_BuildValue("");
    return PyMemoryView_FromMemory(part, (Py_ssize_t)bytes, PyBUF_WRITE);
}

static void destroy(struct window_object *self)
{
    struct tutti_window *window = self->window;
    self->window = NULL;
    if (!window) return;
    if (self->comm->comm) {
        LOCK_GIVE();
        tutti_window_destroy(window);
        LOCK_TAKE();
    }
    self->comm->n_children--;
    view_release(&self->view);
}

static PyObject *window_close(METHOD_ARGS)
{
    PARSED(signatures[CLOSE]);
    destroy(self);
    return Py_BuildValue("");
}

static PyObject *window_enter(PyObject *object, PyObject *unused)
{
    return (void)unused, Py_IncRef(object), object;
}
static PyObject *window_exit(PyObject *object, PyObject *unused)
{
    (void)unused;
    destroy((struct window_object *)object);
    return Py_BuildValue("");
}

static void window_dealloc(PyObject *object)
{
    struct window_object *self = (struct window_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    destroy(self);
    Py_DecRef(self->memory);
    Py_DecRef((PyObject *)self->comm);
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
}

static PyObject *get_n_signals(PyObject *object, void *unused)
{
    struct window_object *self = (struct window_object *)object;
    (void)unused;
    return window_is_open(self, "n_signals") ? PyLong_FromUnsignedLong(tutti_window_n_signals(self->window)) : NULL;
}

static PyGetSetDef attributes[] = {{"n_signals", get_n_signals, NULL, "How many signals each rank has.", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

bool window_make(PyObject *module)
{
    static PyObject *(*const functions[])(METHOD_ARGS) = {signal_read, signal_write, window_peer, window_close};
    static PyMethodDef methods[20];
    size_t n = window_calls_methods(methods);
    if (!n) return false;
    for (size_t i = 0; i < N_METHODS; i++) {
        if (!signature_make(&signatures[i], true)) return false;
        methods[n++] = (PyMethodDef)METHOD(signatures[i], functions[i]);
    }
    methods[n++] = (PyMethodDef){"__enter__", window_enter, METH_NOARGS, NULL};
    methods[n++] = (PyMethodDef){"__exit__", window_exit, METH_VARARGS, NULL};
    PyType_Slot slots[] = {{Py_tp_new, type_no_new},
                           {Py_tp_dealloc, window_dealloc},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, attributes},
                           {Py_tp_doc, "Memory that each rank shows to the others: Comm.window makes it."},
                           {0, NULL}};
    PyType_Spec spec = {"tutti._tutti.Window", sizeof(struct window_object), 0, Py_TPFLAGS_DEFAULT, slots};
    return (window_type = type_make(module, &spec)) != NULL;
}
