/* SPDX-License-Identifier: BSD-3-Clause */
/* One call: filled (fill.c), then blocking, with a Work, recorded, or collected in a group. */
#include "calls.h"

static const struct tutti_call_options at_once = {.size = sizeof at_once, .premul_value = 1.0, .attended = true};

/* The first of the short waits of the main thread (wait.c). */
#define FIRST_WAIT_NS 50000000

static bool fill(struct call *call, bool named)
{
    call->dtype_given = call->dtype_seen = -1;
    call->options = &at_once;
    if (named && !call_fill_flags(call)) return false;
    return call_fill_numbers(call) && call_fill_buffers(call) && (!named || call_fill_options(call));
}

/* ---- the four ways ---- */

static PyObject *result_of(struct call *call)
{
    PyObject *result = borrow_result(call->borrow, (enum call_result)call->row->result);
    PyObject *op = call->borrow->op;
    if (op && !user_op_check(op)) {
        Py_DecRef(result);
        result = NULL;
    }
    borrow_give(call->borrow);
    return result;
}

static PyObject *failed(struct call *call, const struct tutti_error *error)
{
    borrow_give(call->borrow);
    return error_raise(error, call->object->rank);
}

/* A signal's handler raised: the call goes on, and keeps its buffers until it is over. */
static PyObject *left(struct call *call, struct tutti_work *work)
{
    borrow_leave(call->borrow, work);
    return NULL;
}

static PyObject *run_blocking(struct call *call)
{
    struct tutti_error error;
    struct tutti_work *work = NULL;
    const bool hears = is_main_thread() && !call->on_device && !call->row->blocks;
    LOCK_GIVE();
    enum tutti_status status = call->row->run(call, hears ? &work : NULL);
    if (status < 0) error = *tutti_last_error();
    if (work) {
        status = tutti_work_wait(work, FIRST_WAIT_NS);
        if (status < 0) tutti_work_error(work, &error);
    }
    LOCK_TAKE();
    if (work) {
        if (status == TUTTI_PENDING) status = PyErr_CheckSignals() < 0 ? TUTTI_PENDING : wait_work(work, 0, &error);
        if (status == TUTTI_PENDING) return left(call, work);
        tutti_work_free(work);
    }
    return status < 0 ? failed(call, &error) : result_of(call);
}

static PyObject *run_async(struct call *call)
{
    struct tutti_error error;
    struct tutti_work *work = NULL;
    LOCK_GIVE();
    const enum tutti_status status = call->row->run(call, &work);
    if (status < 0) error = *tutti_last_error();
    LOCK_TAKE();
    if (status < 0) return failed(call, &error);
    return work_wrap(work, call->borrow, (enum call_result)call->row->result, call->object->rank);
}

static PyObject *run_recorded(struct call *call)
{
    struct tutti_persistent *persistent = NULL;
    struct tutti_error error;
    enum tutti_status status = tutti_persistent_record();
    if (status >= 0) {
        status = call->row->run(call, NULL);
        if (status < 0) error = *tutti_last_error();
        const enum tutti_status ended = tutti_persistent_end(&persistent);
        if (status >= 0 && ended < 0) status = ended, error = *tutti_last_error();
    } else {
        error = *tutti_last_error();
    }
    if (status < 0) return failed(call, &error);
    return persistent_wrap(persistent, call->borrow, (enum call_result)call->row->result, call->object->rank);
}

static PyObject *run_collected(struct call *call)
{
    const enum tutti_status status = call->row->run(call, NULL); /* nothing is started */
    if (status < 0) {
        const struct tutti_error error = *tutti_last_error();
        return failed(call, &error);
    }
    group_keep(call->borrow);
    return Py_BuildValue("");
}

static PyObject *start(struct call *call)
{
    if (call->is_persistent && call->window) {
        borrow_give(call->borrow);
        return error_argument(call->object, call->row->signature.name, "only collectives are recorded");
    }
    if (!group_is_open())
        return call->is_persistent ? run_recorded(call) : call->is_async ? run_async(call) : run_blocking(call);
    if (!call->is_async && !call->is_persistent && call->row->result == RESULT_NONE) return run_collected(call);
    if (!call->is_async && !call->is_persistent && call->row->result == RESULT_MESSAGE) return run_collected(call);
    borrow_give(call->borrow);
    return error_argument(call->object, call->row->signature.name,
                          "inside a group a call has no work and no result of its own: the group has");
}

PyObject *call_run(const struct row *row, PyObject *self, struct comm_object *comm, PyObject *const *args, Py_ssize_t n,
                   PyObject *kwnames)
{
    PyObject *values[N_PARAMETERS];
    struct call call = {.row = row, .object = comm, .values = values, .comm = comm->comm};
    if (!arguments_parse(&row->signature, args, n, kwnames, values)) return NULL;
    if (self == (PyObject *)comm ? !comm_is_open(comm, row->signature.name)
                                 : !window_is_open((struct window_object *)self, row->signature.name))
        return NULL;
    if (self != (PyObject *)comm) call.window = ((struct window_object *)self)->window;
    call.borrow = borrow_take();
    if (!call.borrow) return NULL;
    Py_IncRef(self);
    call.borrow->owner = self;
    if (fill(&call, kwnames != NULL)) return start(&call);
    borrow_give(call.borrow);
    return NULL;
}
