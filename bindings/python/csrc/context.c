/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts as objects. A communicator that names none has one of its own, which goes with it. */
#include "module.h"

#include <stdlib.h>

static PyObject *context_type;

static struct signature context_signature = SIGNATURE(
    "Context", "options=None",
    "One rank's library state, with options of its own: {'transport': 'tcp', ...}; tutti info --options lists "
    "them.");

/* Pairs of texts; NULL with an exception. *n of them. */
static struct tutti_option *options_of(PyObject *given, size_t *n)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    if (!PyDict_Check(given)) return PyErr_Format(PyExc_TypeError, "options is %R, no dict", given), NULL;
    struct tutti_option *options = calloc((size_t)PyDict_Size(given) + 1, sizeof *options);
    if (!options) return PyErr_NoMemory(), NULL;
    for (*n = 0; PyDict_Next(given, &at, &name, &value); ++*n)
        if (!argument_text(name, P_options, &options[*n].name) ||
            !argument_text(value, P_options, &options[*n].value)) {
            free(options);
            return NULL;
        }
    return options;
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *values[N_PARAMETERS];
    struct tutti_option *options = NULL;
    struct tutti_context *context;
    size_t n = 0;
    if (!arguments_parse_tuple(&context_signature, args, kwargs, values)) return NULL;
    PyObject *given = values[P_options];
    if (given && given != Py_None && !(options = options_of(given, &n))) return NULL;
    const enum tutti_status status = tutti_context_create(options, n, &context);
    free(options);
    if (status < 0) return error_raise_last(-1);
    struct context_object *self = PyObject_New(struct context_object, type);
    if (!self) return tutti_context_destroy(context), NULL;
    self->context = context;
    return (PyObject *)self;
}

static void context_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    LOCK_GIVE();
    tutti_context_destroy(((struct context_object *)object)->context);
    LOCK_TAKE();
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
}

struct tutti_context *context_of(PyObject *object)
{
    if (Py_TYPE(object) == (PyTypeObject *)context_type) return ((struct context_object *)object)->context;
    if (is_comm(object))
        return comm_is_open((struct comm_object *)object, "context")
                   ? tutti_comm_context(((struct comm_object *)object)->comm)
                   : NULL;
    PyErr_Format(PyExc_TypeError, "context is %R, neither a Context nor a Comm", object);
    return NULL;
}

bool context_make(PyObject *module)
{
    if (!signature_make(&context_signature, false)) return false;
    PyType_Slot slots[] = {{Py_tp_new, context_new},
                           {Py_tp_dealloc, context_dealloc},
                           {Py_tp_doc, (void *)(uintptr_t)context_signature.shown},
                           {0, NULL}};
    PyType_Spec spec = {"tutti._tutti.Context", sizeof(struct context_object), 0, Py_TPFLAGS_DEFAULT, slots};
    return (context_type = type_make(module, &spec)) != NULL;
}
