/* SPDX-License-Identifier: BSD-3-Clause */
/* Python's arguments of a call as C's: numbers and names by one table, then the buffers, whose sizes are compared with
 * what the call needs. */
#include "calls.h"

#include <stddef.h>

/* ---- numbers ---- */

static const char *op_member(int32_t op)
{
    return tutti_op_name((enum tutti_op)op);
}
static const char *wire_member(int32_t wire)
{
    return tutti_wire_name((enum tutti_wire)wire);
}
static const char *signal_member(int32_t op)
{
    return op == TUTTI_SIGNAL_SET ? "set" : "add";
}
static const char *compare_member(int32_t compare)
{
    static const char *const names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    return names[compare];
}

static bool op_fill(struct call *call, PyObject *value)
{
    if (!is_user_op(value)) return argument_member(value, P_op, op_member, TUTTI_N_OPS, &call->op);
    Py_IncRef(value);
    call->borrow->op = value;
    call->op = (int32_t)user_op_value(value);
    return true;
}

/* A sequence of one number a rank. */
static bool table_fill(struct call *call, PyObject *value, enum parameter parameter, const size_t **out)
{
    const Py_ssize_t n = value == Py_None ? 0 : PySequence_Size(value);
    if (value == Py_None) return true;
    if (n < 0) return false;
    if (n != call->object->size) {
        error_argument(call->object, call->row->signature.name, "%s has %zd numbers, and there are %d ranks",
                       parameter_name(parameter), n, call->object->size);
        return false;
    }
    size_t *table = borrow_table(call->borrow, (size_t)n);
    for (Py_ssize_t i = 0; table && i < n; i++) {
        uint64_t number = 0;
        PyObject *item = PySequence_GetItem(value, i);
        const bool right = item && argument_u64(item, parameter, 0, &number);
        Py_DecRef(item);
        if (!right) return false;
        table[i] = number;
    }
    *out = table;
    return table != NULL;
}

enum kind { OTHER, INT32, UINT64, TABLES, MEMBER };
static const struct {
    enum kind kind;
    uint16_t at;
    const char *(*member)(int32_t); /* and how many there are */
    int32_t n;
} takes[N_PARAMETERS] = {
#define AT(kind, field)                                                                                                \
    {                                                                                                                  \
        kind, offsetof(struct call, field), NULL, 0                                                                    \
    }
    [P_root] = AT(INT32, root),
    [P_dest] = AT(INT32, dest),
    [P_source] = AT(INT32, source),
    [P_tag] = AT(INT32, tag),
    [P_send_tag] = AT(INT32, send_tag),
    [P_recv_tag] = AT(INT32, recv_tag),
    [P_peer] = AT(INT32, peer),
    [P_offset] = AT(UINT64, offset),
    [P_block] = AT(UINT64, block),
    [P_value] = AT(UINT64, signal.value),
    [P_expected] = AT(UINT64, expected),
    [P_desired] = AT(UINT64, desired),
    [P_index] = AT(INT32, signal.index),
    [P_counts] = AT(TABLES, counts),
    [P_displs] = AT(TABLES, displs),
    [P_recv_counts] = AT(TABLES, counts),
    [P_recv_displs] = AT(TABLES, displs),
    [P_send_counts] = AT(TABLES, send_counts),
    [P_send_displs] = AT(TABLES, send_displs),
    [P_compare] = {MEMBER, offsetof(struct call, compare), compare_member, 6},
    [P_signal_op] = {MEMBER, offsetof(struct call, signal.op), signal_member, 2},
#undef AT
};

static bool number_fill(struct call *call, enum parameter parameter, int32_t absent)
{
    PyObject *value = call->values[parameter];
    void *field = (char *)call + takes[parameter].at;
    int64_t number;
    switch (takes[parameter].kind) {
    case INT32:
        if (!value) return *(int32_t *)field = absent, true;
        if (!argument_number(value, parameter, INT32_MIN, INT32_MAX, absent, &number)) return false;
        return *(int32_t *)field = (int32_t)number, true;
    case UINT64:
        return argument_u64(value, parameter, (uint64_t)absent, field);
    case TABLES:
        return !value || table_fill(call, value, parameter, field);
    case MEMBER:
        return !value || argument_member(value, parameter, takes[parameter].member, takes[parameter].n, field);
    case OTHER:
        break;
    }
    return true;
}

static bool is_words(const struct row *row, enum parameter parameter)
{
    for (size_t i = 0; i < 4; i++)
        if (row->words[i] && row->words[i] == parameter) return true;
    return false;
}

bool call_fill_numbers(struct call *call)
{
    const struct signature *signature = &call->row->signature;
    call->compare = TUTTI_COMPARE_GE;
    call->signal.op = TUTTI_SIGNAL_ADD;
    for (uint8_t i = 0; i < signature->n_positional; i++) {
        const enum parameter parameter = (enum parameter)signature->parameters[i];
        if (takes[parameter].kind != OTHER && !is_words(call->row, parameter) &&
            !number_fill(call, parameter, signature->numbers[i]))
            return false;
    }
    PyObject *op = signature->has[P_op] ? call->values[P_op] : NULL;
    return !op || op_fill(call, op);
}

/* ---- buffers ---- */

/* The next view of the call; NULL: an exception. */
static struct view *view_add(struct call *call, enum parameter parameter, bool writable)
{
    struct view *view = &call->borrow->views[call->borrow->n_views];
    const struct view_request request = {.comm = call->object,
                                         .call = call->row->signature.name,
                                         .parameter = parameter,
                                         .writable = writable,
                                         .stream = call->stream};
    if (!view_take(view, call->values[parameter], &request)) return NULL;
    call->borrow->n_views++;
    call->on_device = call->on_device || view->on_device;
    return view;
}

#define FAIL(...) (error_argument(call->object, call->row->signature.name, __VA_ARGS__), false)

/* The type of the call, which those of its two buffers and the option agree on. */
static bool dtype_settle(struct call *call, const struct view *view, enum parameter parameter)
{
    const int32_t dtype = call->dtype_given >= 0 ? call->dtype_given : view->dtype;
    if (dtype < 0) return FAIL("%s has elements of a type that tutti does not know", parameter_name(parameter));
    if (call->dtype_seen >= 0 && call->dtype_seen != dtype)
        return FAIL("%s is %s, and the other buffer %s", parameter_name(parameter),
                    tutti_dtype_name((enum tutti_dtype)dtype), tutti_dtype_name(call->dtype));
    if (view->bytes % tutti_dtype_bytes((enum tutti_dtype)dtype))
        return FAIL("%s has %zu bytes, which is no whole number of %s", parameter_name(parameter), view->bytes,
                    tutti_dtype_name((enum tutti_dtype)dtype));
    call->dtype = (enum tutti_dtype)(call->dtype_seen = dtype);
    return true;
}

static bool buffer_fill(struct call *call, enum parameter parameter, bool writable, void **data, size_t *bytes)
{
    struct view *view = view_add(call, parameter, writable);
    if (!view) return false;
    *data = view->data;
    *bytes = view->bytes;
    return dtype_settle(call, view, parameter);
}

/* How many elements a table reaches to. */
static bool extent(const size_t *counts, const size_t *displs, int32_t size, size_t *out)
{
    size_t packed = 0;
    *out = 0;
    for (int32_t i = 0; i < size; i++) {
        size_t end;
        if (__builtin_add_overflow(displs ? displs[i] : packed, counts[i], &end)) return false;
        packed = end;
        if (counts[i] > 0 && end > *out) *out = end;
    }
    return true;
}

static size_t place_of(const size_t *counts, const size_t *displs, int32_t rank)
{
    size_t place = 0;
    if (displs) return displs[rank];
    for (int32_t i = 0; i < rank; i++) place += counts[i];
    return place;
}

/* Compares one buffer's elements with what the layout wants, or takes count from it. */
static bool layout_check(struct call *call, enum layout layout, size_t elements, enum parameter parameter,
                         bool *counted)
{
    const size_t size = (size_t)call->object->size;
    const size_t *counts = layout == SEND_TABLE ? call->send_counts : call->counts;
    const size_t *displs = layout == SEND_TABLE ? call->send_displs : call->displs;
    const size_t blocks = layout == ALL ? size : 1;
    size_t reach;
    switch (layout) {
    case ONE:
    case ALL:
        if (elements % blocks)
            return FAIL("%s has %zu elements, which are no %zu equal blocks", parameter_name(parameter), elements,
                        size);
        if (*counted && elements != call->count * blocks)
            return FAIL("%s has %zu elements, and should have %zu", parameter_name(parameter), elements,
                        call->count * blocks);
        call->count = elements / blocks;
        *counted = true;
        return true;
    case OWN:
        if (!counts) return FAIL("counts is missing");
        if (elements != counts[call->object->rank])
            return FAIL("%s has %zu elements, and counts[%d] is %zu", parameter_name(parameter), elements,
                        call->object->rank, counts[call->object->rank]);
        return true;
    case TABLE:
    case SEND_TABLE:
        if (!counts) return FAIL("counts is missing");
        if (!extent(counts, displs, call->object->size, &reach) || reach > elements)
            return FAIL("%s has %zu elements, and counts and displacements reach beyond", parameter_name(parameter),
                        elements);
        return true;
    case COUNT:
        return call->count = elements, true;
    case COUNT_2:
        return call->recv_count = elements, true;
    case NOTHING:
    case ANY:
        break;
    }
    return true;
}

/* Where this rank's block of the other buffer is, for calls in place. */
static void *block_of(const struct call *call, void *data, enum layout layout, enum layout other)
{
    const size_t bytes = tutti_dtype_bytes(call->dtype);
    if (layout == other) return data;
    if (other == ALL) return (char *)data + (size_t)call->object->rank * call->count * bytes;
    return (char *)data + place_of(call->counts, call->displs, call->object->rank) * bytes;
}

/* One of send and recv, in a moment when it means something. */
struct side {
    enum parameter parameter;
    enum layout layout;
    bool is_given, is_needed;
};

static struct side side_of(const struct call *call, enum parameter parameter, uint8_t layout, bool at_root)
{
    const struct signature *signature = &call->row->signature;
    struct side side = {.parameter = parameter, .layout = (enum layout)layout};
    if (!signature->has[parameter]) side.parameter = signature->has[P_buffer] ? P_buffer : P_values;
    side.is_needed = layout != NOTHING && (!at_root || call->root == call->object->rank);
    PyObject *value = layout != NOTHING ? call->values[side.parameter] : NULL;
    side.is_given = side.is_needed && value && value != Py_None;
    return side;
}

/* One of the two is missing: it is the other one, or this rank's block of it. */
static bool in_place(struct call *call, const struct side *send, const struct side *recv)
{
    const bool sends = send->is_given;
    const struct side *there = sends ? send : recv, *lacks = sends ? recv : send;
    const bool holds_it = there->layout == lacks->layout
                              ? there->layout == ONE || there->layout == ALL
                              : (there->layout == ALL && lacks->layout == ONE) ||
                                    (there->layout == TABLE && (lacks->layout == OWN || lacks->layout == COUNT));
    if (!there->is_given || !lacks->is_needed || !holds_it)
        return FAIL("%s is missing", parameter_name(send->is_needed && !sends ? send->parameter : recv->parameter));
    if (lacks->layout == COUNT) call->count = call->counts[call->object->rank];
    *(sends ? &call->recv : &call->send) =
        block_of(call, sends ? call->send : call->recv, lacks->layout, there->layout);
    return true;
}

static bool sides_fill(struct call *call, const struct side *send, const struct side *recv)
{
    bool counted = false;
    const bool both = send->is_given && !recv->is_given && recv->is_needed; /* send is written, too */
    const bool writes = !(call->row->reads_at_root && call->root == call->object->rank);
    if (send->is_given && !buffer_fill(call, send->parameter, both, &call->send, &call->send_bytes)) return false;
    if (recv->is_given && !buffer_fill(call, recv->parameter, writes, &call->recv, &call->recv_bytes)) return false;
    const size_t bytes = call->dtype_seen >= 0 ? tutti_dtype_bytes(call->dtype) : 1;
    if (send->is_given && !layout_check(call, send->layout, call->send_bytes / bytes, send->parameter, &counted))
        return false;
    if (recv->is_given && !layout_check(call, recv->layout, call->recv_bytes / bytes, recv->parameter, &counted))
        return false;
    return (send->is_given == send->is_needed && recv->is_given == recv->is_needed) || in_place(call, send, recv);
}

/* Memory of words beside the data, and the status. */
static bool words_fill(struct call *call)
{
    for (size_t i = 0; i < 4 && call->row->words[i]; i++) {
        const enum parameter parameter = (enum parameter)call->row->words[i];
        if (!call->values[parameter] || call->values[parameter] == Py_None) continue;
        struct view *view = view_add(call, parameter, parameter == call->row->written);
        if (!view) return false;
        call->n_indices = view->bytes / sizeof(uint64_t);
        if (view->dtype != TUTTI_UINT64 && view->dtype != TUTTI_INT64)
            return FAIL("%s is not uint64 or int64", parameter_name(parameter));
        if (parameter != P_indices && call->n_indices != (size_t)call->object->size)
            return FAIL("%s has %zu numbers, and there are %d ranks", parameter_name(parameter), call->n_indices,
                        call->object->size);
        call->words[i] = view->data;
    }
    if (!call->values[P_status] || call->values[P_status] == Py_None) return true;
    struct view *view = view_add(call, P_status, true);
    if (view && view->bytes < sizeof(int32_t)) return FAIL("status has %zu bytes, and should have 4", view->bytes);
    call->status = view ? view->data : NULL;
    return view != NULL;
}

bool call_fill_buffers(struct call *call)
{
    const struct row *row = call->row;
    const struct side send = side_of(call, P_send, row->sends, row->send_at_root);
    const struct side recv = side_of(call, P_recv, row->receives, row->recv_at_root);
    if ((send.is_needed || recv.is_needed) && !sides_fill(call, &send, &recv)) return false;
    if (!row->words[0]) return true;
    if (!words_fill(call)) return false;
    if (row->signature.has[P_block] &&
        (call->block == 0 || call->send_bytes / tutti_dtype_bytes(call->dtype) != call->n_indices * call->block))
        return FAIL("values has %zu elements, which are no %zu blocks of %zu",
                    call->send_bytes / tutti_dtype_bytes(call->dtype), call->n_indices, call->block);
    return true;
}

/* ---- options ---- */

static bool text_fill(PyObject *value, enum parameter parameter, PyObject **kept, const char **out)
{
    if (!argument_text(value, parameter, out)) return false;
    if (*out) Py_IncRef(value), *kept = value;
    return true;
}

/* A factor by value, or as memory of one element of the call's type. */
static bool premul_fill(struct call *call, PyObject *value)
{
    struct tutti_call_options *options = &call->borrow->options;
    if (PyFloat_Check(value) || PyLong_Check(value)) {
        options->premul_value = PyFloat_AsDouble(value);
        return !PyErr_Occurred();
    }
    struct view *view = view_add(call, P_premul, false);
    if (view && (view->dtype != call->dtype_seen || view->bytes != tutti_dtype_bytes(call->dtype)))
        return FAIL("premul is neither a number nor one element of the buffers' type");
    options->premul = view ? view->data : NULL;
    return view != NULL;
}

static bool wire_fill(struct call *call)
{
    PyObject *const *values = call->values;
    struct tutti_call_options *options = &call->borrow->options;
    int64_t block = 0;
    int32_t wire = 0;
    if (values[P_wire] && values[P_wire] != Py_None &&
        !argument_member(values[P_wire], P_wire, wire_member, TUTTI_N_WIRES, &wire))
        return false;
    if (!argument_number(values[P_wire_block], P_wire_block, 0, UINT32_MAX, 0, &block) ||
        !argument_u64(values[P_wire_seed], P_wire_seed, 0, &options->wire_seed))
        return false;
    options->wire = (enum tutti_wire)wire;
    options->wire_block = (uint32_t)block;
    if (!values[P_wire_seeds] || values[P_wire_seeds] == Py_None) return true;
    struct view *view = view_add(call, P_wire_seeds, false);
    if (view && view->bytes < sizeof(uint64_t)) return FAIL("wire_seeds has %zu bytes, and should have 8", view->bytes);
    options->wire_seeds = view ? view->data : NULL;
    return view != NULL;
}

/* A stream as a number, or as an object of CuPy, PyTorch or CUDA's own package. */
static bool stream_fill(PyObject *value, void **out)
{
    static const char *const attributes[] = {"ptr", "cuda_stream", "handle"};
    PyObject *number = PyLong_Check(value) ? (Py_IncRef(value), value) : NULL;
    for (size_t i = 0; !number && i < sizeof attributes / sizeof attributes[0]; i++)
        if (!(number = PyObject_GetAttrString(value, attributes[i]))) PyErr_Clear();
    PyObject *index = number ? PyNumber_Index(number) : NULL;
    *out = index ? PyLong_AsVoidPtr(index) : NULL;
    Py_DecRef(number), Py_DecRef(index);
    if (!index && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "stream is %R, no stream", value);
    return !PyErr_Occurred();
}

bool call_fill_flags(struct call *call)
{
    PyObject *dtype = call->values[P_dtype], *stream = call->values[P_stream];
    if (dtype && dtype != Py_None && !dtype_of(dtype, &call->dtype_given)) return false;
    if (stream && stream != Py_None && !stream_fill(stream, &call->stream)) return false;
    return argument_flag(call->values[P_async_op], false, &call->is_async) &&
           argument_flag(call->values[P_persistent], false, &call->is_persistent);
}

bool call_fill_options(struct call *call)
{
    static const struct tutti_call_options none = TUTTI_CALL_OPTIONS_INIT;
    PyObject *const *values = call->values;
    struct tutti_call_options *options = &call->borrow->options;
    *options = none;
    options->attended = !call->is_async;
    call->options = options;
    if (!argument_timeout(values[P_timeout], &options->timeout_ns) ||
        !text_fill(values[P_algorithm], P_algorithm, &call->borrow->algorithm, &options->algorithm) ||
        !text_fill(values[P_label], P_label, &call->borrow->label, &options->label))
        return false;
    options->stream = call->stream;
    if (values[P_premul] && values[P_premul] != Py_None && !premul_fill(call, values[P_premul])) return false;
    return argument_flag(values[P_ordered], false, &options->ordered) &&
           argument_flag(values[P_overlap], false, &options->overlap) && wire_fill(call);
}
