/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls under way and calls that are repeated: Work and Persistent, and what calls return. */
#include "module.h"

static PyObject *work_type, *persistent_type, *message_type, *await_function;

struct work_object {
    PyObject ob_base;
    struct tutti_work *work;
    struct borrow *borrow; /* NULL once the call is over, or where a Persistent has it */
    PyObject *of;          /* that Persistent */
    struct tutti_message message;
    uint64_t before;
    enum call_result result;
    int32_t rank;
};
struct persistent_object {
    PyObject ob_base;
    struct tutti_persistent *persistent;
    struct borrow *borrow;
    enum call_result result;
    int32_t rank;
};

/* ---- results ---- */

PyObject *message_wrap(const struct tutti_message *message)
{
    PyObject *out = PyStructSequence_New((PyTypeObject *)message_type);
    if (!out) return NULL;
    PyStructSequence_SetItem(out, 0, PyLong_FromLong(message->source));
    PyStructSequence_SetItem(out, 1, PyLong_FromLong(message->tag));
    PyStructSequence_SetItem(out, 2, PyLong_FromSize_t(message->bytes));
    return out;
}

static PyObject *result_wrap(enum call_result result, const struct tutti_message *message, uint64_t before)
{
    if (result == RESULT_MESSAGE) return message_wrap(message);
    return result == RESULT_BEFORE ? PyLong_FromUnsignedLongLong(before) : Py_BuildValue("");
}

PyObject *borrow_result(const struct borrow *borrow, enum call_result result)
{
    return result_wrap(result, &borrow->message, borrow->before);
}

/* ---- works ---- */

#define SELF struct work_object *self = (struct work_object *)object
#define METHOD_ARGS PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames

static struct work_object *work_new(struct tutti_work *work, enum call_result result, int32_t rank)
{
    struct work_object *self = PyObject_New(struct work_object, (PyTypeObject *)work_type);
    if (!self) return NULL;
    self->work = work;
    self->borrow = NULL;
    self->of = NULL;
    self->message = (struct tutti_message){-1, -1, 0};
    self->before = 0;
    self->result = result;
    self->rank = rank;
    return self;
}

PyObject *work_wrap(struct tutti_work *work, struct borrow *borrow, enum call_result result, int32_t rank)
{
    struct work_object *self = work_new(work, result, rank);
    if (self)
        self->borrow = borrow;
    else
        borrow_leave(borrow, work);
    return (PyObject *)self;
}

/* The call is over: what it needed goes back. */
static void over(struct work_object *self)
{
    struct borrow *borrow = self->borrow;
    if (!borrow && self->of) borrow = ((struct persistent_object *)self->of)->borrow;
    if (borrow) self->message = borrow->message, self->before = borrow->before;
    borrow_give(self->borrow);
    self->borrow = NULL;
    Py_DecRef(self->of);
    self->of = NULL;
}

/* After a test or a wait. False: an exception is set. */
static bool settle(struct work_object *self, enum tutti_status status, const struct tutti_error *error)
{
    if (status == TUTTI_PENDING) return !PyErr_Occurred();
    PyObject *op = self->borrow ? self->borrow->op : NULL;
    const bool right = !op || user_op_check(op);
    over(self);
    if (status < 0) {
        PyErr_Clear();
        error_raise(error, self->rank);
    }
    return right && status >= 0;
}

static enum tutti_status test(struct work_object *self, struct tutti_error *error)
{
    LOCK_GIVE();
    const enum tutti_status status = tutti_work_test(self->work);
    if (status < 0) tutti_work_error(self->work, error);
    LOCK_TAKE();
    return status;
}

enum { WAIT, TEST, NOTIFY, START, N_METHODS };
static struct signature signatures[N_METHODS] = {
    [WAIT] = SIGNATURE(
        "wait", "timeout=None",
        "Waits until the call is over: True, or False where the timeout (seconds) passes first. Raises its error."),
    [TEST] = SIGNATURE("test", "", "Whether the call is over; never blocks. Raises its error."),
    [NOTIFY] = SIGNATURE("notify", "function",
                         "Calls function() once when the call is over, failed or not, on a thread of the library."),
    [START] =
        SIGNATURE("start", "async_op=False", "Runs the call again; its buffers are borrowed until that run is over."),
};

static PyObject *work_wait(METHOD_ARGS)
{
    PyObject *values[N_PARAMETERS];
    uint64_t timeout_ns;
    struct tutti_error error;
    SELF;
    if (!arguments_parse(&signatures[WAIT], args, n, kwnames, values) ||
        !argument_timeout(values[P_timeout], &timeout_ns))
        return NULL;
    const enum tutti_status status = wait_work(self->work, timeout_ns, &error);
    return settle(self, status, &error) ? PyBool_FromLong(status != TUTTI_PENDING) : NULL;
}

static PyObject *work_test(METHOD_ARGS)
{
    PyObject *values[N_PARAMETERS];
    struct tutti_error error;
    SELF;
    if (!arguments_parse(&signatures[TEST], args, n, kwnames, values)) return NULL;
    const enum tutti_status status = test(self, &error);
    return settle(self, status, &error) ? PyBool_FromLong(status != TUTTI_PENDING) : NULL;
}

/* On the completion thread. */
static void tell(void *function)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *returned = PyObject_CallFunction(function, NULL);
    if (!returned) PyErr_WriteUnraisable(function);
    Py_DecRef(returned);
    Py_DecRef(function);
    PyGILState_Release(state);
}

static PyObject *work_notify(METHOD_ARGS)
{
    PyObject *values[N_PARAMETERS];
    SELF;
    if (!arguments_parse(&signatures[NOTIFY], args, n, kwnames, values)) return NULL;
    PyObject *function = values[P_function];
    if (!PyCallable_Check(function))
        return PyErr_Format(PyExc_TypeError, "function is %R, which can not be called", function);
    Py_IncRef(function);
    LOCK_GIVE();
    const enum tutti_status status = tutti_work_notify(self->work, tell, function);
    LOCK_TAKE();
    if (status >= 0) return Py_BuildValue("");
    Py_DecRef(function);
    return error_raise_last(self->rank);
}

/* await work: tutti/awaiting.py has the generator. */
static PyObject *work_await(PyObject *object)
{
    if (!await_function) {
        PyObject *module = PyImport_ImportModule("tutti.awaiting");
        await_function = module ? PyObject_GetAttrString(module, "awaiting") : NULL;
        Py_DecRef(module);
    }
    return await_function ? PyObject_CallFunction(await_function, "O", object) : NULL;
}

static PyObject *get_result(PyObject *object, void *unused)
{
    SELF;
    (void)unused;
    return result_wrap(self->result, &self->message, self->before);
}

static PyObject *get_error(PyObject *object, void *unused)
{
    struct tutti_error error;
    SELF;
    (void)unused;
    return test(self, &error) < 0 ? error_object(&error, self->rank) : Py_BuildValue("");
}

static PyObject *get_sequence(PyObject *object, void *unused)
{
    return (void)unused, PyLong_FromUnsignedLongLong(tutti_work_sequence(((struct work_object *)object)->work));
}

static PyObject *get_duration(PyObject *object, void *unused)
{
    return (void)unused, PyLong_FromUnsignedLongLong(tutti_work_duration_ns(((struct work_object *)object)->work));
}

struct tutti_work *work_of(PyObject *object)
{
    if (Py_TYPE(object) == (PyTypeObject *)work_type) return ((struct work_object *)object)->work;
    PyErr_Format(PyExc_TypeError, "work is %R, no Work", object);
    return NULL;
}

/* On the completion thread: a run of a Persistent is over. */
static void let_go(void *persistent)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DecRef(persistent);
    PyGILState_Release(state);
}

/* A call that is not over goes on, and keeps its buffers until then. */
static void work_dealloc(PyObject *object)
{
    SELF;
    PyTypeObject *type = Py_TYPE(object);
    struct tutti_error error;
    if ((self->borrow || self->of) && test(self, &error) != TUTTI_PENDING) over(self);
    if (self->of) {
        LOCK_GIVE();
        (void)tutti_work_notify(self->work, let_go, self->of);
        LOCK_TAKE();
    }
    borrow_leave(self->borrow, self->work);
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
}

/* ---- persistent calls ---- */

PyObject *persistent_wrap(struct tutti_persistent *persistent, struct borrow *borrow, enum call_result result,
                          int32_t rank)
{
    struct persistent_object *self = PyObject_New(struct persistent_object, (PyTypeObject *)persistent_type);
    if (!self) {
        tutti_persistent_destroy(persistent);
        borrow_give(borrow);
        return NULL;
    }
    self->persistent = persistent;
    self->borrow = borrow;
    self->result = result;
    self->rank = rank;
    return (PyObject *)self;
}

/* Only collectives are recorded. */
static const struct comm_object *owner_of(const struct borrow *borrow)
{
    return (struct comm_object *)borrow->owner;
}

static PyObject *persistent_start(METHOD_ARGS)
{
    PyObject *values[N_PARAMETERS];
    struct persistent_object *self = (struct persistent_object *)object;
    struct tutti_work *work = NULL;
    struct tutti_error error;
    bool is_async;
    if (!arguments_parse(&signatures[START], args, n, kwnames, values) ||
        !argument_flag(values[P_async_op], false, &is_async) || !comm_is_open(owner_of(self->borrow), "start"))
        return NULL;
    const bool waits = !is_async && is_main_thread();
    LOCK_GIVE();
    const enum tutti_status status = tutti_persistent_start(self->persistent, is_async || waits ? &work : NULL);
    if (status < 0) error = *tutti_last_error();
    LOCK_TAKE();
    if (status < 0) return error_raise(&error, self->rank);
    if (!work) return borrow_result(self->borrow, self->result);
    struct work_object *made = work_new(work, self->result, self->rank);
    if (!made) return borrow_leave(NULL, work), NULL;
    Py_IncRef(object);
    made->of = object;
    if (is_async) return (PyObject *)made;
    PyObject *right = work_wait((PyObject *)made, NULL, 0, NULL);
    Py_DecRef((PyObject *)made);
    Py_DecRef(right);
    return right ? borrow_result(self->borrow, self->result) : NULL;
}

static void persistent_dealloc(PyObject *object)
{
    struct persistent_object *self = (struct persistent_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    LOCK_GIVE();
    tutti_persistent_destroy(self->persistent);
    LOCK_TAKE();
    borrow_give(self->borrow);
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
}

/* ---- types ---- */

static PyGetSetDef attributes[] = {
    {"result", get_result, NULL, "What the blocking call would have returned: None, a Message, or a number.", NULL},
    {"error", get_error, NULL, "The exception that ended the call, or None.", NULL},
    {"sequence", get_sequence, NULL, "The collective's number in its communicator.", NULL},
    {"duration_ns", get_duration, NULL, "From its start to its end; 0 while it is under way.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static bool message_make(PyObject *module)
{
    static PyStructSequence_Field fields[] = {
        {"source", "The rank that sent it."}, {"tag", "Its tag."}, {"bytes", "How many came."}, {NULL, NULL}};
    static PyStructSequence_Desc description = {"tutti.Message", "What a receive or a probe found.", fields, 3};
    message_type = (PyObject *)PyStructSequence_NewType(&description);
    return message_type && PyObject_SetAttrString(module, "Message", message_type) == 0;
}

bool work_make(PyObject *module)
{
    static PyMethodDef methods[4], persistent_methods[2];
    for (size_t i = 0; i < N_METHODS; i++)
        if (!signature_make(&signatures[i], true)) return false;
    methods[0] = (PyMethodDef)METHOD(signatures[WAIT], work_wait);
    methods[1] = (PyMethodDef)METHOD(signatures[TEST], work_test);
    methods[2] = (PyMethodDef)METHOD(signatures[NOTIFY], work_notify);
    persistent_methods[0] = (PyMethodDef)METHOD(signatures[START], persistent_start);
    PyType_Slot slots[] = {{Py_tp_new, type_no_new},
                           {Py_tp_dealloc, work_dealloc},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, attributes},
                           {Py_am_await, work_await},
                           {Py_tp_doc, "A call under way: wait for it, test it, or await it."},
                           {0, NULL}};
    PyType_Slot persistent_slots[] = {{Py_tp_new, type_no_new},
                                      {Py_tp_dealloc, persistent_dealloc},
                                      {Py_tp_methods, persistent_methods},
                                      {Py_tp_doc, "A call that was recorded with persistent=True."},
                                      {0, NULL}};
    PyType_Spec work = {"tutti._tutti.Work", sizeof(struct work_object), 0, Py_TPFLAGS_DEFAULT, slots};
    PyType_Spec persistent = {"tutti._tutti.Persistent", sizeof(struct persistent_object), 0, Py_TPFLAGS_DEFAULT,
                              persistent_slots};
    return message_make(module) && (work_type = type_make(module, &work)) &&
           (persistent_type = type_make(module, &persistent));
}
