/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: the calls of a `with tutti.group():` are started together at its end. A group is its thread's. */
#include "module.h"

static PyObject *group_type;

struct group_object {
    PyObject ob_base;
    PyObject *work; /* an async group's, that has ended */
    bool is_async, is_open;
};

/* The innermost group of this thread, and what its calls need until they are over. */
static _Thread_local int32_t depth;
static _Thread_local struct borrow *kept;
static _Thread_local int32_t kept_rank;

bool group_is_open(void)
{
    return depth > 0;
}

void group_keep(struct borrow *borrow)
{
    borrow->next = kept;
    kept = borrow;
    if (borrow->owner && is_comm(borrow->owner)) kept_rank = ((struct comm_object *)borrow->owner)->rank;
}

static struct signature group_signature = SIGNATURE(
    "group", "async_op=False",
    "with group(): collects the calls in the block and starts them together at its end, so that their order can not "
    "deadlock. async_op: the group's `work` is theirs.");

static PyObject *group_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *values[N_PARAMETERS];
    bool is_async;
    if (!arguments_parse_tuple(&group_signature, args, kwargs, values) ||
        !argument_flag(values[P_async_op], false, &is_async))
        return NULL;
    struct group_object *self = PyObject_New(struct group_object, type);
    if (!self) return NULL;
    self->work = NULL;
    self->is_async = is_async;
    self->is_open = false;
    return (PyObject *)self;
}

static PyObject *group_enter(PyObject *object, PyObject *unused)
{
    struct group_object *self = (struct group_object *)object;
    (void)unused;
    if (self->is_open) return error_argument(NULL, "group", "it is open");
    if (self->is_async && depth > 0)
        return error_argument(NULL, "group", "a group inside another has no work of its own");
    if (tutti_group_start() < 0) return error_raise_last(-1);
    depth++;
    self->is_open = true;
    Py_IncRef(object);
    return object;
}

/* The block raised: nothing of the group is started. */
static PyObject *drop(void)
{
    struct borrow *borrow = kept;
    if (tutti_barrier(NULL, NULL, NULL) >= 0) return NULL; /* it fails, and so the group does */
    (void)tutti_group_end(NULL);
    if (depth == 0) {
        kept = NULL;
        borrow_give(borrow);
    }
    return PyBool_FromLong(0);
}

static PyObject *end(struct group_object *self)
{
    struct tutti_error error;
    struct tutti_work *work = NULL;
    struct borrow *borrow = kept;
    if (depth > 0) return tutti_group_end(NULL) < 0 ? error_raise_last(kept_rank) : PyBool_FromLong(0);
    kept = NULL;
    if (!borrow) return tutti_group_end(NULL) < 0 ? error_raise_last(kept_rank) : PyBool_FromLong(0);
    bool on_device = false;
    for (struct borrow *one = borrow; one; one = one->next)
        for (int32_t i = 0; i < one->n_views; i++) on_device = on_device || one->views[i].on_device;
    const bool waits = !self->is_async && !on_device;
    LOCK_GIVE();
    enum tutti_status status = tutti_group_end(self->is_async || waits ? &work : NULL);
    if (status < 0) error = *tutti_last_error();
    LOCK_TAKE();
    if (status >= 0 && self->is_async) {
        self->work = work_wrap(work, borrow, RESULT_NONE, kept_rank);
        return self->work ? PyBool_FromLong(0) : NULL;
    }
    if (status >= 0 && work) {
        status = wait_work(work, 0, &error);
        if (status == TUTTI_PENDING) return borrow_leave(borrow, work), NULL;
        tutti_work_free(work);
    }
    borrow_give(borrow);
    return status < 0 ? error_raise(&error, kept_rank) : PyBool_FromLong(0);
}

static PyObject *group_exit(PyObject *object, PyObject *args)
{
    struct group_object *self = (struct group_object *)object;
    if (!self->is_open || depth == 0) return error_argument(NULL, "group", "it is not open on this thread");
    const bool raised = PyTuple_Check(args) && PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
    self->is_open = false;
    depth--;
    return raised ? drop() : end(self);
}

static PyObject *get_work(PyObject *object, void *unused)
{
    struct group_object *self = (struct group_object *)object;
    (void)unused;
    PyObject *work = self->work ? self->work : Py_None;
    Py_IncRef(work);
    return work;
}

static void group_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_DecRef(((struct group_object *)object)->work);
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
}

bool group_make(PyObject *module)
{
    static PyMethodDef methods[] = {{"__enter__", group_enter, METH_NOARGS, NULL},
                                    {"__exit__", group_exit, METH_VARARGS, NULL},
                                    {NULL, NULL, 0, NULL}};
    static PyGetSetDef attributes[] = {{"work", get_work, NULL, "The Work of an async group that has ended.", NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};
    if (!signature_make(&group_signature, false)) return false;
    PyType_Slot slots[] = {{Py_tp_new, group_new},
                           {Py_tp_dealloc, group_dealloc},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, attributes},
                           {Py_tp_doc, (void *)(uintptr_t)group_signature.shown},
                           {0, NULL}};
    PyType_Spec spec = {"tutti._tutti.group", sizeof(struct group_object), 0, Py_TPFLAGS_DEFAULT, slots};
    return (group_type = type_make(module, &spec)) != NULL;
}
