/* SPDX-License-Identifier: BSD-3-Clause */
/* The smaller objects: stores where ranks meet, memory that peers can map, and operations of the user. */
#include "module.h"

#include <stdlib.h>
#include <time.h>

#define METHOD_ARGS PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames

static PyObject *store_type, *server_type, *memory_type, *op_type;

/* ---- stores ---- */

struct store_object {
    PyObject ob_base;
    struct tutti_store store;
    bool is_open;
};
struct server_object {
    PyObject ob_base;
    struct tutti_store_server *server;
    PyObject *host; /* as text */
};

static struct signature store_signature =
    SIGNATURE("Store", "address, secret=None, timeout=None",
              "A place where ranks meet: 'tcp://host:port' (of a StoreServer elsewhere) or 'file:///folder'.");
static struct signature server_signature = SIGNATURE(
    "StoreServer", "host='127.0.0.1', port=0, secret=None",
    "Serves a store over TCP from a thread of this process; its `address` is for Comm(store=...) of all ranks.");
static struct signature server_close_signature = SIGNATURE("close", "", "Ends the server.");

static PyObject *store_open(const char *address, const char *secret, uint64_t timeout_ns)
{
    struct timespec now;
    struct tutti_store store;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    LOCK_GIVE();
    const enum tutti_status status =
        tutti_store_open(address, secret, now_ns + (timeout_ns ? timeout_ns : 60 * 1000000000ull), &store);
    LOCK_TAKE();
    if (status < 0) return error_raise_last(-1);
    struct store_object *self = PyObject_New(struct store_object, (PyTypeObject *)store_type);
    if (!self) return tutti_store_close(&store), NULL;
    self->store = store;
    self->is_open = true;
    return (PyObject *)self;
}

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *values[N_PARAMETERS];
    const char *address, *secret;
    uint64_t timeout_ns;
    (void)type;
    if (!arguments_parse_tuple(&store_signature, args, kwargs, values) ||
        !argument_text(values[P_address], P_address, &address) || !argument_text(values[P_secret], P_secret, &secret) ||
        !argument_timeout(values[P_timeout], &timeout_ns))
        return NULL;
    return store_open(address, secret, timeout_ns);
}

static void store_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    LOCK_GIVE();
    tutti_store_close(&((struct store_object *)object)->store);
    LOCK_TAKE();
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
}

bool store_of(PyObject *object, const char *secret, uint64_t timeout_ns, const struct tutti_store **out,
              PyObject **opened)
{
    const char *address;
    if (Py_TYPE(object) == (PyTypeObject *)store_type) {
        Py_IncRef(object);
        *opened = object;
    } else {
        if (!argument_text(object, P_store, &address)) return false;
        *opened = store_open(address, secret, timeout_ns);
    }
    if (*opened) *out = &((struct store_object *)*opened)->store;
    return *opened != NULL;
}

static PyObject *server_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *values[N_PARAMETERS];
    const char *host, *secret;
    int64_t port;
    struct tutti_store_server *server;
    if (!arguments_parse_tuple(&server_signature, args, kwargs, values) ||
        !argument_text(values[P_host], P_host, &host) || !argument_text(values[P_secret], P_secret, &secret) ||
        !argument_number(values[P_port], P_port, 0, UINT16_MAX, 0, &port))
        return NULL;
    LOCK_GIVE();
    const enum tutti_status status =
        tutti_store_server_open(host ? host : "127.0.0.1", (uint16_t)port, secret, &server);
    LOCK_TAKE();
    if (status < 0) return error_raise_last(-1);
    struct server_object *self = PyObject_New(struct server_object, type);
    if (!self) return tutti_store_server_close(server), NULL;
    self->server = server;
    self->host = PyUnicode_FromString(host ? host : "127.0.0.1");
    return (PyObject *)self;
}

static void server_end(struct server_object *self)
{
    struct tutti_store_server *server = self->server;
    self->server = NULL;
    LOCK_GIVE();
    if (server) tutti_store_server_close(server);
    LOCK_TAKE();
}

static PyObject *server_close(METHOD_ARGS)
{
    PyObject *values[N_PARAMETERS];
    if (!arguments_parse(&server_close_signature, args, n, kwnames, values)) return NULL;
    server_end((struct server_object *)object);
    return Py_BuildValue("");
}

static void server_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    server_end((struct server_object *)object);
    Py_DecRef(((struct server_object *)object)->host);
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
}

static PyObject *server_enter(PyObject *object, PyObject *unused)
{
    return (void)unused, Py_IncRef(object), object;
}
static PyObject *server_exit(PyObject *object, PyObject *unused)
{
    return (void)unused, server_end((struct server_object *)object), Py_BuildValue("");
}

static PyObject *get_port(PyObject *object, void *unused)
{
    struct tutti_store_server *server = ((struct server_object *)object)->server;
    (void)unused;
    return server ? PyLong_FromLong(tutti_store_server_port(server)) : Py_BuildValue("");
}

static PyObject *get_store_address(PyObject *object, void *unused)
{
    struct server_object *self = (struct server_object *)object;
    (void)unused;
    return self->server ? PyUnicode_FromFormat("tcp://%U:%d", self->host, (int)tutti_store_server_port(self->server))
                        : Py_BuildValue("");
}

/* ---- memory that peers can map ---- */

struct memory_object {
    PyObject ob_base;
    void *data;
    size_t bytes;
    struct comm_object *comm;
};

PyObject *memory_wrap(struct comm_object *comm, size_t bytes)
{
    void *data;
    LOCK_GIVE();
    const enum tutti_status status = tutti_mem_alloc(comm->comm, bytes, &data);
    LOCK_TAKE();
    if (status < 0) return error_raise_last(comm->rank);
    struct memory_object *self = PyObject_New(struct memory_object, (PyTypeObject *)memory_type);
    if (!self) {
        (void)tutti_mem_free(comm->comm, data);
        return NULL;
    }
    self->data = data;
    self->bytes = bytes;
    self->comm = comm;
    Py_IncRef((PyObject *)comm);
    comm->n_children++;
    return (PyObject *)self;
}

static int memory_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    struct memory_object *self = (struct memory_object *)object;
    if (tutti_comm_device(self->comm->comm) != TUTTI_DEVICE_NONE) {
        PyErr_SetString(PyExc_BufferError, "this is memory of a device: use its address");
        return -1;
    }
    return PyBuffer_FillInfo(view, object, self->data, (Py_ssize_t)self->bytes, 0, flags);
}

static void memory_dealloc(PyObject *object)
{
    struct memory_object *self = (struct memory_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->comm->comm) (void)tutti_mem_free(self->comm->comm, self->data);
    self->comm->n_children--;
    Py_DecRef((PyObject *)self->comm);
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
}

static PyObject *get_address(PyObject *object, void *unused)
{
    return (void)unused, PyLong_FromVoidPtr(((struct memory_object *)object)->data);
}
static PyObject *get_nbytes(PyObject *object, void *unused)
{
    return (void)unused, PyLong_FromSize_t(((struct memory_object *)object)->bytes);
}

/* ---- operations of the user ---- */

struct op_object {
    PyObject ob_base;
    PyObject *function, *context; /* what context_of was asked of */
    enum tutti_op op;
    PyObject *raised; /* by the function, and not told yet */
};

bool is_user_op(PyObject *object)
{
    return Py_TYPE(object) == (PyTypeObject *)op_type;
}
enum tutti_op user_op_value(PyObject *object)
{
    return ((struct op_object *)object)->op;
}

bool user_op_check(PyObject *object)
{
    struct op_object *self = (struct op_object *)object;
    PyObject *raised = self->raised;
    if (!raised) return true;
    self->raised = NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
    Py_DecRef(raised);
    return false;
}

/* A memoryview of the type's elements, or of bytes. */
static PyObject *memory_of(const void *data, size_t bytes, int mode, const char *format)
{
    PyObject *plain = PyMemoryView_FromMemory((char *)(uintptr_t)data, (Py_ssize_t)bytes, mode);
    PyObject *typed = plain && format[0] != 'B' ? PyObject_CallMethod(plain, "cast", "s", format) : plain;
    if (typed != plain) Py_DecRef(plain);
    return typed;
}

/* On a thread of the library, or in a call of it. */
static void op_run(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
{
    struct op_object *self = arg;
    const size_t bytes = count * tutti_dtype_bytes(dtype);
    const char *format = dtype_format(dtype);
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *views[3] = {memory_of(left, bytes, PyBUF_READ, format), memory_of(right, bytes, PyBUF_READ, format),
                          memory_of(out, bytes, PyBUF_WRITE, format)};
    PyObject *returned =
        views[0] && views[1] && views[2]
            ? PyObject_CallFunction(self->function, "OOOs", views[0], views[1], views[2], tutti_dtype_name(dtype))
            : NULL;
    if (!returned) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyErr_NormalizeException(&type, &value, &trace);
        Py_DecRef(self->raised);
        self->raised = value;
        Py_DecRef(type), Py_DecRef(trace);
    }
    Py_DecRef(returned);
    for (size_t i = 0; i < 3; i++) {
        PyObject *released = views[i] ? PyObject_CallMethod(views[i], "release", NULL) : NULL;
        if (!released) PyErr_Clear(); /* the function keeps it */
        Py_DecRef(released), Py_DecRef(views[i]);
    }
    PyGILState_Release(state);
}

static struct signature op_signature = SIGNATURE(
    "UserOp", "context, function, commutes=True",
    "An operation of your own for calls of a communicator's context: function(left, right, out, dtype) gets three "
    "memoryviews and writes out[i] = left[i] op right[i]; out may be left or right. It must be associative.");

static PyObject *op_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *values[N_PARAMETERS];
    bool commutes;
    if (!arguments_parse_tuple(&op_signature, args, kwargs, values) ||
        !argument_flag(values[P_commutes], true, &commutes))
        return NULL;
    struct tutti_context *context = context_of(values[P_context]);
    if (!context) return NULL;
    if (!PyCallable_Check(values[P_function]))
        return PyErr_Format(PyExc_TypeError, "function is %R, which can not be called", values[P_function]);
    struct op_object *self = PyObject_New(struct op_object, type);
    if (!self) return NULL;
    self->raised = self->function = self->context = NULL;
    if (tutti_op_create(context, op_run, self, commutes, &self->op) < 0) {
        Py_DecRef((PyObject *)self);
        return error_raise_last(-1);
    }
    self->function = values[P_function];
    self->context = values[P_context];
    Py_IncRef(self->function), Py_IncRef(self->context);
    return (PyObject *)self;
}

static void op_dealloc(PyObject *object)
{
    struct op_object *self = (struct op_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *of = self->context;
    struct comm_object *comm = of && is_comm(of) ? (struct comm_object *)of : NULL;
    struct tutti_context *context = !of || (comm && !comm->comm) ? NULL : context_of(of);
    if (context) (void)tutti_op_destroy(context, self->op);
    Py_DecRef(self->function), Py_DecRef(self->raised), Py_DecRef(of);
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
}

/* ---- types ---- */

bool objects_make(PyObject *module)
{
    static PyMethodDef server_methods[4];
    static PyGetSetDef server_attributes[] = {{"port", get_port, NULL, "The port that it listens on.", NULL},
                                              {"address", get_store_address, NULL, "For Comm(store=...).", NULL},
                                              {NULL, NULL, NULL, NULL, NULL}};
    static PyGetSetDef memory_attributes[] = {{"address", get_address, NULL, "Where it begins.", NULL},
                                              {"nbytes", get_nbytes, NULL, "How long it is.", NULL},
                                              {NULL, NULL, NULL, NULL, NULL}};
    if (!signature_make(&store_signature, false) || !signature_make(&server_signature, false) ||
        !signature_make(&op_signature, false) || !signature_make(&server_close_signature, true))
        return false;
    server_methods[0] = (PyMethodDef)METHOD(server_close_signature, server_close);
    server_methods[1] = (PyMethodDef){"__enter__", server_enter, METH_NOARGS, NULL};
    server_methods[2] = (PyMethodDef){"__exit__", server_exit, METH_VARARGS, NULL};
#define DOC(signature) (void *)(uintptr_t)(signature).shown
    PyType_Slot store[] = {
        {Py_tp_new, store_new}, {Py_tp_dealloc, store_dealloc}, {Py_tp_doc, DOC(store_signature)}, {0, NULL}};
    PyType_Slot server[] = {
        {Py_tp_new, server_new},           {Py_tp_dealloc, server_dealloc},    {Py_tp_methods, server_methods},
        {Py_tp_getset, server_attributes}, {Py_tp_doc, DOC(server_signature)}, {0, NULL}};
    PyType_Slot memory[] = {{Py_tp_new, type_no_new},
                            {Py_tp_dealloc, memory_dealloc},
                            {Py_bf_getbuffer, memory_getbuffer},
                            {Py_tp_getset, memory_attributes},
                            {Py_tp_doc, "Memory that all ranks of the host can map: Comm.mem_alloc makes it."},
                            {0, NULL}};
    PyType_Slot op[] = {{Py_tp_new, op_new}, {Py_tp_dealloc, op_dealloc}, {Py_tp_doc, DOC(op_signature)}, {0, NULL}};
    PyType_Spec specs[] = {{"tutti._tutti.Store", sizeof(struct store_object), 0, Py_TPFLAGS_DEFAULT, store},
                           {"tutti._tutti.StoreServer", sizeof(struct server_object), 0, Py_TPFLAGS_DEFAULT, server},
                           {"tutti._tutti.Memory", sizeof(struct memory_object), 0, Py_TPFLAGS_DEFAULT, memory},
                           {"tutti._tutti.UserOp", sizeof(struct op_object), 0, Py_TPFLAGS_DEFAULT, op}};
    PyObject **const types[] = {&store_type, &server_type, &memory_type, &op_type};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        if (!(*types[i] = type_make(module, &specs[i]))) return false;
    return true;
}
