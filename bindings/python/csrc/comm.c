/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators as objects: how they are made and ended. Their calls that move data are in calls.c, the others in
 * comm_methods.c. */
#include "module.h"

#include <stdlib.h>
#include <time.h>

static PyObject *comm_type;
static struct comm_object *open_comms; /* with the interpreter's lock */
static bool ended;                     /* the interpreter ends */

bool is_comm(PyObject *object)
{
    return Py_TYPE(object) == (PyTypeObject *)comm_type;
}

bool comm_is_open(const struct comm_object *self, const char *call)
{
    if (self->comm) return true;
    error_argument(NULL, call, "the communicator is closed");
    return false;
}

static void unlink_comm(struct comm_object *self)
{
    if (!self->prev) return;
    *self->prev = self->next;
    if (self->next) self->next->prev = self->prev;
    self->prev = NULL;
}

/* Takes comm over. */
PyObject *comm_wrap(struct tutti_comm *comm, PyObject *context)
{
    struct comm_object *self = PyObject_New(struct comm_object, (PyTypeObject *)comm_type);
    if (!self) {
        tutti_comm_destroy(comm);
        return NULL;
    }
    self->comm = comm;
    Py_IncRef(context);
    self->context = context;
    self->store = NULL;
    self->rank = tutti_comm_rank(comm);
    self->size = tutti_comm_size(comm);
    self->n_children = 0;
    self->next = open_comms;
    self->prev = &open_comms;
    if (self->next) self->next->prev = &self->next;
    open_comms = self;
    return (PyObject *)self;
}

/* ---- creation ---- */

static struct signature comm_signature = SIGNATURE(
    "Comm",
    "rank=-1, size=-1, *, store=None, name=None, secret=None, timeout=None, device=-1, survive=False, "
    "joins=False, nonblocking=False, context=None",
    "A communicator: an ordered set of ranks. With rank and size left out it is the world that the launcher says "
    "(tutti "
    "run, torchrun, mpirun, srun); else the `size` processes that come with the same store (a Store, or its address) "
    "and "
    "name. device: the CUDA or XPU device whose memory calls may use; DEVICE_AUTO, DEVICE_NONE. survive: calls survive "
    "the death of ranks; joins: this rank comes when the others are at work, and waits for their admit().");

static bool config_fill(PyObject *const *values, struct tutti_comm_config *config)
{
    int64_t rank, size;
    bool survive, joins;
    if (!argument_number(values[P_rank], P_rank, -1, INT32_MAX, -1, &rank) ||
        !argument_number(values[P_size], P_size, -1, INT32_MAX, -1, &size) ||
        !argument_number(values[P_device], P_device, TUTTI_DEVICE_NONE, INT32_MAX, TUTTI_DEVICE_AUTO,
                         &config->device) ||
        !argument_text(values[P_name], P_name, &config->name) ||
        !argument_text(values[P_secret], P_secret, &config->secret) ||
        !argument_timeout(values[P_timeout], &config->timeout_ns) ||
        !argument_flag(values[P_survive], false, &survive) || !argument_flag(values[P_joins], false, &joins) ||
        !argument_flag(values[P_nonblocking], false, &config->nonblocking))
        return false;
    config->rank = (int32_t)rank;
    config->n_ranks = (int32_t)size;
    config->survive = survive;
    config->joins = joins;
    return true;
}

/* Looks every millisecond whether a creation that was started without blocking is over; so signals are heard. */
static bool creation_wait(struct tutti_comm *comm)
{
    const struct timespec pause = {.tv_nsec = 200000};
    struct tutti_error error;
    enum tutti_status status;
    do {
        LOCK_GIVE();
        status = tutti_comm_state(comm, &error);
        if (status == TUTTI_PENDING) nanosleep(&pause, NULL);
        LOCK_TAKE();
    } while (status == TUTTI_PENDING && PyErr_CheckSignals() == 0);
    if (status < 0) error_raise(&error, -1);
    if (status == TUTTI_OK) return true;
    LOCK_GIVE();
    tutti_comm_abort(comm, "interrupted");
    tutti_comm_destroy(comm);
    LOCK_TAKE();
    return false;
}

static struct tutti_comm *create(struct tutti_context *context, struct tutti_comm_config *config)
{
    struct tutti_comm *comm = NULL;
    const bool waits = !config->nonblocking;
    const bool polls = waits && !config->survive && is_main_thread();
    config->nonblocking = config->nonblocking || polls;
    LOCK_GIVE();
    const enum tutti_status status = tutti_comm_create(context, config, &comm);
    LOCK_TAKE();
    if (status < 0) return error_raise_last(config->rank), NULL;
    return !polls || creation_wait(comm) ? comm : NULL;
}

static PyObject *comm_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *values[N_PARAMETERS], *opened = NULL;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    (void)type;
    if (!arguments_parse_tuple(&comm_signature, args, kwargs, values) || !config_fill(values, &config)) return NULL;
    if (ended) return error_argument(NULL, "comm_create", "the interpreter ends");
    PyObject *context = values[P_context] == Py_None ? NULL : values[P_context];
    struct tutti_context *in = context ? context_of(context) : NULL;
    if (context && !in) return NULL;
    if (values[P_store] && values[P_store] != Py_None &&
        !store_of(values[P_store], config.secret, config.timeout_ns, &config.store, &opened))
        return NULL;
    struct tutti_comm *comm = create(in, &config);
    PyObject *self = comm ? comm_wrap(comm, context) : NULL;
    if (self && config.survive)
        ((struct comm_object *)self)->store = opened; /* borrowed until it is destroyed */
    else
        Py_DecRef(opened);
    return self;
}

/* ---- the end ---- */

#define SELF struct comm_object *self = (struct comm_object *)object

bool comm_wait_quiet(struct comm_object *self, uint64_t timeout_ns, bool *over)
{
    struct timespec now, begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        const uint64_t slice_ns = timeout_ns && timeout_ns < 50000000 ? timeout_ns : 50000000;
        LOCK_GIVE();
        const enum tutti_status status = tutti_comm_flush(self->comm, slice_ns);
        LOCK_TAKE();
        if (status < 0) return error_raise_last(self->rank), false;
        clock_gettime(CLOCK_MONOTONIC, &now);
        const double past_ns = (double)(now.tv_sec - begin.tv_sec) * 1e9 + (double)(now.tv_nsec - begin.tv_nsec);
        *over = status == TUTTI_OK;
        if (*over || (timeout_ns && past_ns >= (double)timeout_ns)) return true;
        if (PyErr_CheckSignals() < 0) return false;
    }
}

void comm_end(struct comm_object *self, const char *reason)
{
    struct tutti_comm *comm = self->comm;
    self->comm = NULL;
    unlink_comm(self);
    if (!comm) return;
    LOCK_GIVE();
    if (reason && tutti_comm_flush(comm, 1) != TUTTI_OK) tutti_comm_abort(comm, reason);
    tutti_comm_destroy(comm);
    LOCK_TAKE();
}

/* Waits for what is in flight, then closes. */
PyObject *comm_finish(struct comm_object *self)
{
    bool over;
    if (!self->comm) return Py_BuildValue("");
    if (self->n_children)
        return error_argument(self, "close", "%d windows and memories of it are open: close them first",
                              self->n_children);
    if (!comm_wait_quiet(self, 0, &over)) return NULL;
    comm_end(self, NULL);
    return Py_BuildValue("");
}

static PyObject *comm_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    Py_IncRef(object);
    return object;
}

/* An exception inside the block aborts: peers that wait for this rank are told. */
static PyObject *comm_exit(PyObject *object, PyObject *args)
{
    SELF;
    PyObject *type = PyTuple_Check(args) && PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : Py_None;
    if (type == Py_None) return comm_finish(self);
    PyObject *name = PyObject_GetAttrString(type, "__name__");
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (self->comm) {
        LOCK_GIVE();
        tutti_comm_abort(self->comm, text);
        LOCK_TAKE();
    }
    Py_DecRef(name);
    PyErr_Clear();
    if (!self->n_children) comm_end(self, NULL);
    return Py_BuildValue("");
}

static void comm_dealloc(PyObject *object)
{
    SELF;
    PyTypeObject *type = Py_TYPE(object);
    comm_end(self, "its object was deleted");
    Py_DecRef(self->context), Py_DecRef(self->store);
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
}

PyObject *comms_end(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    ended = true;
    while (open_comms) {
        struct comm_object *self = open_comms;
        if (!self->n_children) {
            comm_end(self, "the interpreter ends");
            continue;
        }
        /* Windows and arrays may still point into it: it stays until the process ends. */
        unlink_comm(self);
        LOCK_GIVE();
        if (tutti_comm_flush(self->comm, 1) != TUTTI_OK) tutti_comm_abort(self->comm, "the interpreter ends");
        LOCK_TAKE();
    }
    return Py_BuildValue("");
}

/* ---- attributes ---- */

#define GETTER(name, expression)                                                                                       \
    static PyObject *get_##name(PyObject *object, void *unused)                                                        \
    {                                                                                                                  \
        SELF;                                                                                                          \
        (void)unused;                                                                                                  \
        return comm_is_open(self, #name) ? (expression) : NULL;                                                        \
    }
GETTER(id, PyLong_FromUnsignedLongLong(tutti_comm_id(self->comm)))
GETTER(device, PyLong_FromLong(tutti_comm_device(self->comm)))
GETTER(sequence, PyLong_FromUnsignedLongLong(tutti_comm_sequence(self->comm)))
GETTER(timeout, PyFloat_FromDouble((double)tutti_comm_timeout(self->comm) * 1e-9))

static PyObject *get_rank(PyObject *object, void *unused)
{
    return (void)unused, PyLong_FromLong(((struct comm_object *)object)->rank);
}
static PyObject *get_size(PyObject *object, void *unused)
{
    return (void)unused, PyLong_FromLong(((struct comm_object *)object)->size);
}
static PyObject *get_closed(PyObject *object, void *unused)
{
    return (void)unused, PyBool_FromLong(!((struct comm_object *)object)->comm);
}

static int set_timeout(PyObject *object, PyObject *value, void *unused)
{
    uint64_t timeout_ns;
    SELF;
    (void)unused;
    if (!comm_is_open(self, "timeout") || !argument_timeout(value, &timeout_ns)) return -1;
    if (timeout_ns) tutti_comm_set_timeout(self->comm, timeout_ns);
    return 0;
}

static PyGetSetDef attributes[] = {
    {"rank", get_rank, NULL, "This process's number in it.", NULL},
    {"size", get_size, NULL, "How many ranks it has.", NULL},
    {"id", get_id, NULL, "A number that is equal on all members.", NULL},
    {"device", get_device, NULL, "The device whose memory calls may use, or DEVICE_NONE.", NULL},
    {"sequence", get_sequence, NULL, "How many collectives were called.", NULL},
    {"timeout", get_timeout, set_timeout, "The deadline of its calls, in seconds.", NULL},
    {"closed", get_closed, NULL, "Whether it was closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *comm_repr(PyObject *object)
{
    SELF;
    return PyUnicode_FromFormat(self->comm ? "<tutti.Comm rank %d of %d>" : "<tutti.Comm, closed>", self->rank,
                                self->size);
}

bool comm_make(PyObject *module)
{
    static PyMethodDef methods[48];
    size_t n = comm_calls_methods(methods);
    const size_t n_own = n ? comm_own_methods(methods + n) : 0;
    if (!n_own || !signature_make(&comm_signature, false)) return false;
    n += n_own;
    methods[n++] = (PyMethodDef){"__enter__", comm_enter, METH_NOARGS, NULL};
    methods[n++] = (PyMethodDef){"__exit__", comm_exit, METH_VARARGS, NULL};
    PyType_Slot comm_slots[] = {{Py_tp_new, comm_new},
                                {Py_tp_dealloc, comm_dealloc},
                                {Py_tp_repr, comm_repr},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, attributes},
                                {Py_tp_doc, (void *)(uintptr_t)comm_signature.shown},
                                {0, NULL}};
    PyType_Spec comm = {"tutti._tutti.Comm", sizeof(struct comm_object), 0, Py_TPFLAGS_DEFAULT, comm_slots};
    return (comm_type = type_make(module, &comm)) != NULL;
}
