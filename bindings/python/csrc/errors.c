/* SPDX-License-Identifier: BSD-3-Clause */
/* Exceptions: one for each status, in a class for what is lost (enum tutti_scope), with Python's own beside it where
 * Python has one: `except TimeoutError` and `except tutti.CommError` both catch TUTTI_ERR_TIMEOUT. */
#include "module.h"

#include <stdarg.h>
#include <stdio.h>

/* The classes of enum tutti_scope. */
static const struct {
    const char *name, *doc;
} scopes[] = {
    [TUTTI_SCOPE_NONE] =
        {"tutti.Error", "What a call of tutti raises. Attributes: status (a Status), scope ('call', 'peer', 'comm' or "
                        "'context': the largest thing that is lost), rank (this one, or None), peer (the rank that "
                        "caused it, or None), collective (its name, or ''), sequence (the collective's number, or "
                        "None), step, errno."},
    [TUTTI_SCOPE_CALL] = {"tutti.CallError", "Only this call is lost."},
    [TUTTI_SCOPE_PEER] = {"tutti.PeerError", "A peer can not be reached any more; nor can the communicator be used."},
    [TUTTI_SCOPE_COMM] = {"tutti.CommError", "The communicator is lost: close it, and make a new one."},
    [TUTTI_SCOPE_CONTEXT] = {"tutti.ContextError", "The context is lost."},
};
static const char *const scope_words[] = {"none", "call", "peer", "comm", "context"};
static PyObject *scope_types[5];

static const struct row {
    enum tutti_status status;
    const char *name;
    PyObject **builtin; /* a second base, or NULL */
} rows[] = {
    {TUTTI_ERR_ARGUMENT, "tutti.ArgumentError", &PyExc_ValueError},
    {TUTTI_ERR_UNSUPPORTED, "tutti.UnsupportedError", &PyExc_NotImplementedError},
    {TUTTI_ERR_MEMORY, "tutti.OutOfMemoryError", &PyExc_MemoryError},
    {TUTTI_ERR_SYSTEM, "tutti.SystemCallError", &PyExc_OSError},
    {TUTTI_ERR_CANCELLED, "tutti.CancelledError", NULL},
    {TUTTI_ERR_TRUNCATED, "tutti.TruncatedError", NULL},
    {TUTTI_ERR_PEER_DEAD, "tutti.PeerDeadError", &PyExc_ConnectionError},
    {TUTTI_ERR_PEER_LEFT, "tutti.PeerLeftError", &PyExc_ConnectionError},
    {TUTTI_ERR_TIMEOUT, "tutti.TimeoutError", &PyExc_TimeoutError},
    {TUTTI_ERR_MISMATCH, "tutti.MismatchError", NULL},
    {TUTTI_ERR_ABORTED, "tutti.AbortedError", NULL},
    {TUTTI_ERR_PROTOCOL, "tutti.ProtocolError", NULL},
    {TUTTI_ERR_CONFIG, "tutti.ConfigError", NULL},
    {TUTTI_ERR_AUTH, "tutti.AuthError", &PyExc_PermissionError},
    {TUTTI_ERR_BOOTSTRAP, "tutti.BootstrapError", NULL},
    {TUTTI_ERR_INTERNAL, "tutti.InternalError", NULL},
};
#define N_ROWS (sizeof rows / sizeof rows[0])
static PyObject *types[N_ROWS];
static PyObject *status_type; /* the enumeration Status */

static PyObject *add(PyObject *module, const char *name, const char *doc, PyObject *bases)
{
    PyObject *type = bases ? PyErr_NewExceptionWithDoc(name, doc, bases, NULL) : NULL;
    Py_DecRef(bases);
    if (type && PyObject_SetAttrString(module, name + sizeof "tutti." - 1, type) < 0) return NULL;
    return type; /* kept for good */
}

bool errors_make(PyObject *module)
{
    if (!(status_type = PyObject_GetAttrString(module, "Status"))) return false;
    for (size_t i = 0; i < 5; i++) {
        PyObject *base = i ? scope_types[TUTTI_SCOPE_NONE] : PyExc_Exception;
        scope_types[i] = add(module, scopes[i].name, scopes[i].doc, PyTuple_Pack(1, base));
        if (!scope_types[i]) return false;
    }
    for (size_t i = 0; i < N_ROWS; i++) {
        PyObject *base = scope_types[tutti_status_scope(rows[i].status)];
        types[i] = add(module, rows[i].name, tutti_status_text(rows[i].status),
                       rows[i].builtin ? PyTuple_Pack(2, base, *rows[i].builtin) : PyTuple_Pack(1, base));
        if (!types[i]) return false;
    }
    return true;
}

/* Takes the value over, NULL too. */
static bool set(PyObject *exception, const char *name, PyObject *value)
{
    const bool right = value && PyObject_SetAttrString(exception, name, value) == 0;
    Py_DecRef(value);
    return right;
}

static PyObject *number_or_none(int64_t value, bool is_there)
{
    return is_there ? PyLong_FromLongLong(value) : Py_BuildValue("");
}

PyObject *error_object(const struct tutti_error *error, int32_t rank)
{
    size_t i = 0;
    while (i < N_ROWS - 1 && rows[i].status != error->status) i++;
    PyObject *exception = PyObject_CallFunction(types[i], "s", error->text);
    if (!exception) return NULL;
    if (set(exception, "status", PyObject_CallFunction(status_type, "i", (int)error->status)) &&
        set(exception, "scope", PyUnicode_FromString(scope_words[tutti_status_scope(error->status)])) &&
        set(exception, "rank", number_or_none(rank, rank >= 0)) &&
        set(exception, "peer", number_or_none(error->peer, error->peer >= 0)) &&
        set(exception, "collective", PyUnicode_FromString(error->collective ? error->collective : "")) &&
        set(exception, "sequence", number_or_none((int64_t)error->seq, error->seq != 0)) &&
        set(exception, "step", number_or_none(error->step, error->step != UINT32_MAX)) &&
        set(exception, "errno", number_or_none(error->os_errno, error->os_errno != 0)))
        return exception;
    Py_DecRef(exception);
    return NULL;
}

PyObject *error_raise(const struct tutti_error *error, int32_t rank)
{
    PyObject *exception = error_object(error, rank);
    if (!exception) return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DecRef(exception);
    return NULL;
}

PyObject *error_raise_last(int32_t rank)
{
    const struct tutti_error error = *tutti_last_error();
    return error_raise(&error, rank);
}

PyObject *error_argument(const struct comm_object *comm, const char *call, const char *format, ...)
{
    struct tutti_error error = {.status = TUTTI_ERR_ARGUMENT, .peer = -1, .step = UINT32_MAX, .collective = call};
    int n;
    va_list args;
    if (comm && comm->comm) {
        error.seq = tutti_comm_sequence(comm->comm) + 1;
        n = snprintf(error.text, sizeof error.text, "%s #%llu on rank %d: ", call, (unsigned long long)error.seq,
                     comm->rank);
    } else {
        n = snprintf(error.text, sizeof error.text, "%s: ", call);
    }
    va_start(args, format);
    vsnprintf(error.text + n, sizeof error.text - (size_t)n, format, args);
    va_end(args);
    return error_raise(&error, comm ? comm->rank : -1);
}
