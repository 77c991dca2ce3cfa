/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_PYTHON_MODULE_H
#define TUTTI_PYTHON_MODULE_H

/* The Python module tutti._tutti: libtutti's public calls, and Python's objects around its handles. Begin with calls.c,
 * where the table of all calls is. Everything here runs with the interpreter's lock, but between LOCK_GIVE and
 * LOCK_TAKE, where the library may wait; there no object of Python is touched. */

#include "arguments.h"

#include <tutti/tutti.h>

#define LOCK_GIVE() PyThreadState *lock_state = PyEval_SaveThread()
#define LOCK_TAKE() PyEval_RestoreThread(lock_state)

/* ---- errors.c: exceptions ---- */

bool errors_make(PyObject *module);
/* Sets the exception of a record; rank: the caller's, -1 where there is none. Returns NULL. */
PyObject *error_raise(const struct tutti_error *error, int32_t rank);
/* The exception of a record, as an object. */
PyObject *error_object(const struct tutti_error *error, int32_t rank);
/* What this thread's last failed call left. */
PyObject *error_raise_last(int32_t rank);
/* ArgumentError: the sentence goes on behind "all_reduce #4 on rank 3: "; comm may be NULL. Returns NULL. */
struct comm_object;
__attribute__((format(printf, 3, 4))) PyObject *error_argument(const struct comm_object *comm, const char *call,
                                                               const char *format, ...);

/* ---- view.c: memory of others ---- */

/* Memory that an object of Python shows: by the buffer protocol, DLPack, or __array_interface__. */
struct view {
    void *data;
    size_t bytes;
    int32_t dtype;  /* enum tutti_dtype, -1: none of them */
    bool on_device; /* else of the host */
    bool has_buffer;
    Py_buffer buffer;
    PyObject *keep; /* the capsule, or the object itself */
};
struct view_request {
    const struct comm_object *comm; /* for sentences, as the next two */
    const char *call;
    enum parameter parameter;
    bool writable;
    void *stream; /* in whose order memory of a device is to be there */
};
/* False: an exception is set. A view stays where it is until it is released. */
bool view_take(struct view *view, PyObject *object, const struct view_request *request);
void view_release(struct view *view);
/* An element type from a member of DType, a name, numpy's or PyTorch's. */
bool dtype_of(PyObject *value, int32_t *out);
/* The struct module's code of a type, for memoryviews: "f"; "B" for those that it has none for. */
const char *dtype_format(enum tutti_dtype dtype);

/* ---- borrow.c: what a call needs until it is over ---- */

#define MOST_VIEWS 9
struct user_op;
/* Everything of Python that a call holds on to. It stays where it is. */
struct borrow {
    struct borrow *next; /* calls of one group; the free list */
    int32_t n_views;
    struct view views[MOST_VIEWS];
    size_t *tables; /* counts and displacements */
    size_t n_tables;
    PyObject *label, *algorithm; /* texts that options point into */
    PyObject *op;                /* a UserOp, or NULL */
    PyObject *owner;             /* the communicator or window */
    struct tutti_call_options options;
    struct tutti_message message;
    uint64_t before;
};
struct borrow *borrow_take(void); /* NULL: an exception is set */
/* These two take all calls of a group; NULL is ignored. */
void borrow_give(struct borrow *borrow);
/* Gives them back when the work is over. The work is freed. */
void borrow_leave(struct borrow *borrow, struct tutti_work *work);
/* So many counts in memory of the borrow; NULL: an exception is set. */
size_t *borrow_table(struct borrow *borrow, size_t n);

/* ---- context.c, comm.c, comm_methods.c ---- */

struct context_object {
    PyObject ob_base;
    struct tutti_context *context;
};
struct comm_object {
    PyObject ob_base;
    struct tutti_comm *comm;          /* NULL: closed */
    PyObject *context, *store;        /* what it was made in, and what it needs until it is closed; or NULL */
    struct comm_object *next, **prev; /* all that are open */
    int32_t rank, size;
    int32_t n_children; /* windows and memory that need it */
};
bool context_make(PyObject *module);
bool comm_make(PyObject *module);
size_t comm_own_methods(PyMethodDef *methods); /* how many, 0: an exception */
PyObject *comm_wrap(struct tutti_comm *comm, PyObject *context);
/* Whether it is open; else an exception that names the call. */
bool comm_is_open(const struct comm_object *self, const char *call);
bool is_comm(PyObject *object);
/* The context of a Comm or Context; NULL: an exception. */
struct tutti_context *context_of(PyObject *object);
/* Waits until no call is in flight, or the time (not 0) is over. False: an exception is set. */
bool comm_wait_quiet(struct comm_object *self, uint64_t timeout_ns, bool *over);
/* Closes it, and aborts what is in flight for a reason (NULL: waits for it). */
void comm_end(struct comm_object *self, const char *reason);
/* Waits, then closes. */
PyObject *comm_finish(struct comm_object *self);
/* Before the interpreter ends: every communicator that is open, and the threads that run functions of Python. */
PyObject *comms_end(PyObject *module, PyObject *unused);

/* ---- wait.c: waiting so that signals are heard ---- */

bool waits_make(void);
bool is_main_thread(void);
/* Waits for a work; the lock is held before and after. PENDING: an exception is set, which a signal's handler raised,
 * or (timeout_ns not 0) that time has passed, without an exception. */
enum tutti_status wait_work(struct tutti_work *work, uint64_t timeout_ns, struct tutti_error *error);
/* Carries function(arg) out on a thread of its own, and returns what it returns, its error in *error. PENDING: an
 * exception is set; the function goes on, and `undo(arg)` is called when it returns. */
enum tutti_status wait_function(enum tutti_status (*function)(void *arg), void (*undo)(void *arg), void *arg,
                                struct tutti_error *error);

/* ---- calls.c ---- */

/* The methods of the two tables of calls; how many, 0: an exception. */
size_t comm_calls_methods(PyMethodDef *methods);
size_t window_calls_methods(PyMethodDef *methods);

/* ---- work.c, group.c, window.c, objects.c ---- */

bool work_make(PyObject *module);
/* Takes both over. NULL: an exception. result: enum call_result. */
enum call_result { RESULT_NONE, RESULT_MESSAGE, RESULT_BEFORE };
PyObject *work_wrap(struct tutti_work *work, struct borrow *borrow, enum call_result result, int32_t rank);
PyObject *persistent_wrap(struct tutti_persistent *persistent, struct borrow *borrow, enum call_result result,
                          int32_t rank);
PyObject *borrow_result(const struct borrow *borrow, enum call_result result);
PyObject *message_wrap(const struct tutti_message *message);
struct tutti_work *work_of(PyObject *object); /* NULL: an exception */

bool group_make(PyObject *module);
bool group_is_open(void);
void group_keep(struct borrow *borrow);

bool window_make(PyObject *module);
struct window_object {
    PyObject ob_base;
    struct tutti_window *window; /* NULL: closed */
    struct comm_object *comm;
    PyObject *memory; /* what the view is of */
    struct view view;
};
bool window_is_open(const struct window_object *self, const char *call);
PyObject *window_wrap(struct comm_object *comm, PyObject *memory, uint32_t n_signals);

bool objects_make(PyObject *module); /* Store, StoreServer, Memory, UserOp */
bool is_user_op(PyObject *object);
enum tutti_op user_op_value(PyObject *object);
/* Raises what its function raised meanwhile. False: it did. */
bool user_op_check(PyObject *object);
PyObject *memory_wrap(struct comm_object *comm, size_t bytes);
/* The store of a Store or an address, which *opened then owns; false: an exception. */
bool store_of(PyObject *object, const char *secret, uint64_t timeout_ns, const struct tutti_store **out,
              PyObject **opened);

/* A type from its parts, added to the module under its name. NULL: an exception. */
PyObject *type_make(PyObject *module, PyType_Spec *spec);
/* What stands in Py_tp_new where the calls make the objects, and programs do not: a TypeError. */
PyObject *type_no_new(PyTypeObject *type, PyObject *args, PyObject *keywords);
/* A method by a signature: name, function and doc of one entry. */
#define METHOD(signature, function)                                                                                    \
    {                                                                                                                  \
        (signature).name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS, (signature).shown    \
    }

#endif
