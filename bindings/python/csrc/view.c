/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that objects of Python show, in the order in which they are asked: the buffer protocol (bytes, array, NumPy,
 * Arrow's buffers), DLPack (PyTorch, JAX, CuPy, Arrow; the only one for memory of devices), __array_interface__ (what
 * NumPy does not put into a buffer: bfloat16 and 8-bit floats of ml_dtypes). The object is kept until the view is
 * released. */
#include "module.h"

#include <string.h>

/* ---- element types ---- */

enum class { SIGNED, UNSIGNED, BOOLEAN, SMALL_FLOAT, FLOAT, COMPLEX, N_CLASSES };
static const struct type {
    enum class class;
    uint8_t bytes, mantissa;
} types[] = {
#define TYPE(id, name, class, bits, mantissa, bias, infinity, torch)                                                   \
    {class, bits * (1 + (class == COMPLEX)) / 8, mantissa},
    TUTTI_DTYPES(TYPE)
#undef TYPE
};
#define N_TYPES ((int32_t)(sizeof types / sizeof types[0]))

/* The type of that class with so many bytes; of several with so many bits of mantissa. -1: none. */
static int32_t type_find(enum class class, size_t bytes, uint8_t mantissa)
{
    for (int32_t i = 0; i < N_TYPES; i++)
        if (types[i].class == class && types[i].bytes == bytes &&
            (class != SMALL_FLOAT || types[i].mantissa == mantissa))
            return i;
    return -1;
}

/* Floats of that size as IEEE 754 has them. */
static int32_t float_find(size_t bytes)
{
    enum { HALF_MANTISSA = 10 };
    return bytes == 2 ? type_find(SMALL_FLOAT, 2, HALF_MANTISSA) : type_find(FLOAT, bytes, 0);
}

/* Codes of the struct module, and "Zf", "Zd" of PEP 3118, in the machine's byte order. */
static int32_t dtype_by_format(const char *format, Py_ssize_t itemsize)
{
    static const char *const codes[] = {[SIGNED] = "bhilqn", [UNSIGNED] = "BcHILQN", [BOOLEAN] = "?",
                                        [SMALL_FLOAT] = "e", [FLOAT] = "fd",         [COMPLEX] = "FD"};
    if (!format) format = "B";
    if (*format == '@' || *format == '=' || *format == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>'))
        format++;
    const bool is_complex = format[0] == 'Z';
    if (is_complex) format++;
    if (!format[0] || format[1]) return -1;
    for (enum class class = SIGNED; class < N_CLASSES; class ++)
        if (strchr(codes[class], format[0])) {
            if (is_complex) return class == FLOAT ? type_find(COMPLEX, (size_t)itemsize, 0) : -1;
            return class == SMALL_FLOAT ? float_find((size_t)itemsize) : type_find(class, (size_t)itemsize, 0);
        }
    return -1;
}

static int32_t dtype_by_name(PyObject *name)
{
    for (int32_t dtype = 0; dtype < N_TYPES; dtype++)
        if (PyUnicode_CompareWithASCIIString(name, tutti_dtype_name((enum tutti_dtype)dtype)) == 0) return dtype;
    return -1;
}

const char *dtype_format(enum tutti_dtype dtype)
{
    /* By the bytes: 1, 2, 4, 8. */
    static const char codes[][4][2] = {[SIGNED] = {"b", "h", "i", "q"},
                                       [UNSIGNED] = {"B", "H", "I", "Q"},
                                       [BOOLEAN] = {"?"},
                                       [FLOAT] = {"", "", "f", "d"}};
    const struct type *type = &types[dtype];
    const char *code = type->class <= FLOAT ? codes[type->class][__builtin_ctz(type->bytes)] : "";
    return code[0] ? code : "B";
}

/* The last word of a type's name: "float32" of "torch.float32", and of numpy.dtype and its classes. */
static PyObject *name_of(PyObject *value)
{
    PyObject *name = PyObject_GetAttrString(value, "name");
    if (!name) PyErr_Clear(), name = PyObject_GetAttrString(value, "__name__");
    if (!name) PyErr_Clear(), name = PyObject_Str(value);
    if (!name) return NULL;
    PyObject *words = PyObject_CallMethod(name, "rpartition", "s", ".");
    PyObject *last = words ? PyTuple_GetItem(words, 2) : NULL;
    Py_IncRef(last);
    Py_DecRef(words);
    Py_DecRef(name);
    return last;
}

bool dtype_of(PyObject *value, int32_t *out)
{
    int64_t number;
    if (PyLong_Check(value)) {
        if (!argument_number(value, P_dtype, 0, N_TYPES - 1, 0, &number)) return false;
        return *out = (int32_t)number, true;
    }
    PyObject *name = PyUnicode_Check(value) ? (Py_IncRef(value), value) : name_of(value);
    *out = name ? dtype_by_name(name) : -1;
    if (name && *out < 0) PyErr_Format(PyExc_ValueError, "dtype is %R: tutti.DType lists what there is", value);
    Py_DecRef(name);
    return *out >= 0;
}

/* ---- sentences ---- */

static bool refuse(const struct view_request *request, const char *why)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) return false;
    PyErr_Clear();
    error_argument(request->comm, request->call, "%s %s", parameter_name(request->parameter), why);
    return false;
}

/* ---- the buffer protocol ---- */

/* AGAIN: it has none, or NumPy has no code for its type. */
enum taken { TAKEN, REFUSED, ASK_ELSE };

static enum taken buffer_take(struct view *view, PyObject *object, const struct view_request *request)
{
    const int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (request->writable ? PyBUF_WRITABLE : 0);
    if (!PyObject_CheckBuffer(object)) return ASK_ELSE;
    if (PyObject_GetBuffer(object, &view->buffer, flags) < 0) {
        PyErr_Clear();
        if (PyObject_GetBuffer(object, &view->buffer, PyBUF_FORMAT | PyBUF_STRIDES) < 0) return PyErr_Clear(), ASK_ELSE;
        const bool is_readonly = request->writable && view->buffer.readonly;
        PyBuffer_Release(&view->buffer);
        return refuse(request, is_readonly ? "is read-only" : "is not contiguous in C's order"), REFUSED;
    }
    view->has_buffer = true;
    view->data = view->buffer.buf;
    view->bytes = (size_t)view->buffer.len;
    view->dtype = dtype_by_format(view->buffer.format, view->buffer.itemsize);
    return TAKEN;
}

/* ---- DLPack ---- */

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_READ_ONLY = 1 };
struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct dl_managed_versioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

static int32_t dtype_by_dlpack(const struct dl_tensor *tensor)
{
    /* DLPack's codes from 0 on, and the bits of the mantissa of small floats. */
    static const struct {
        enum class class;
        uint8_t mantissa;
    } codes[] = {[0] = {SIGNED, 0},       [1] = {UNSIGNED, 0},   [2] = {FLOAT, 0},       [3] = {N_CLASSES, 0},
                 [4] = {SMALL_FLOAT, 7},  [5] = {COMPLEX, 0},    [6] = {BOOLEAN, 0},     [7 ... 9] = {N_CLASSES, 0},
                 [10] = {SMALL_FLOAT, 3}, [11] = {N_CLASSES, 0}, [12] = {SMALL_FLOAT, 2}};
    if (tensor->lanes != 1 || tensor->bits % 8 || tensor->code >= sizeof codes / sizeof codes[0]) return -1;
    const enum class class = codes[tensor->code].class;
    if (class == FLOAT) return float_find(tensor->bits / 8);
    return type_find(class, tensor->bits / 8, codes[tensor->code].mantissa);
}

/* Whether it is one piece; its bytes in *bytes. */
static bool is_one_piece(const struct dl_tensor *tensor, size_t *bytes)
{
    int64_t n = 1;
    bool is_packed = true;
    for (int32_t i = tensor->ndim; i-- > 0;) {
        is_packed = is_packed && (!tensor->strides || tensor->shape[i] <= 1 || tensor->strides[i] == n);
        n *= tensor->shape[i];
    }
    *bytes = (size_t)n * tensor->bits / 8;
    return is_packed || n == 0;
}

/* object.__dlpack__(...), with a stream where its memory is a device's, which takes it over (NULL too). Producers of
 * before 1.0 take no max_version. */
static PyObject *capsule_of(PyObject *object, PyObject *stream)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *capsule = NULL;
    PyObject *none = PyTuple_New(0), *old = PyDict_New();
    PyObject *new = Py_BuildValue("{s(ii)}", "max_version", 1, 0);
    if (method && none && old && new &&
        (!stream ||
         (PyDict_SetItemString(old, "stream", stream) == 0 && PyDict_SetItemString(new, "stream", stream) == 0))) {
        capsule = PyObject_Call(method, none, new);
        if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Clear(), capsule = PyObject_Call(method, none, old);
    }
    Py_DecRef(method), Py_DecRef(none), Py_DecRef(old), Py_DecRef(new), Py_DecRef(stream);
    return capsule;
}

/* The kind of device, in DLPack's words; 0: an exception. */
static int device_of(PyObject *object)
{
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    PyObject *kind = device && PyTuple_Check(device) ? PyTuple_GetItem(device, 0) : NULL;
    PyObject *index = kind ? PyNumber_Index(kind) : NULL;
    const long number = index ? PyLong_AsLong(index) : 0;
    Py_DecRef(index), Py_DecRef(device);
    return number > 0 ? (int)number : 0;
}

/* Arrays of JAX never change, and what they hand out before DLPack 1.0 does not say so. */
static bool is_immutable(PyObject *object)
{
    PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__module__");
    const char *name = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL;
    const bool is = name && strncmp(name, "jax", 3) == 0;
    Py_DecRef(module);
    PyErr_Clear();
    return is;
}

/* Memory of CUDA's devices belongs to one of them. */
static bool is_elsewhere(const struct view_request *request, const struct dl_tensor *tensor)
{
    const int32_t own = request->comm ? tutti_comm_device(request->comm->comm) : TUTTI_DEVICE_NONE;
    if (tensor->device_type != DL_CUDA || own < 0 || tensor->device_id == own) return false;
    error_argument(request->comm, request->call, "%s is memory of device %d, and the communicator has %d",
                   parameter_name(request->parameter), (int)tensor->device_id, (int)own);
    return true;
}

static enum taken dlpack_take(struct view *view, PyObject *object, const struct view_request *request)
{
    if (!PyObject_HasAttrString(object, "__dlpack__")) return ASK_ELSE;
    const int device = device_of(object);
    const bool on_host = device == DL_CPU || device == DL_CUDA_HOST;
    /* In DLPack the default stream is 1. */
    PyObject *stream = on_host ? NULL : request->stream ? PyLong_FromVoidPtr(request->stream) : PyLong_FromLong(1);
    PyObject *capsule = device ? capsule_of(object, stream) : NULL;
    if (!capsule) return PyErr_Clear(), ASK_ELSE;
    struct dl_managed_versioned *versioned =
        PyCapsule_IsValid(capsule, "dltensor_versioned") ? PyCapsule_GetPointer(capsule, "dltensor_versioned") : NULL;
    struct dl_tensor *tensor = versioned ? &versioned->tensor : PyCapsule_GetPointer(capsule, "dltensor");
    const char *why = NULL;
    if (!tensor || (versioned && versioned->major != 1))
        why = "has a DLPack that is not of version 0 or 1";
    else if (!is_one_piece(tensor, &view->bytes))
        why = "is not contiguous in C's order";
    else if (request->writable && (versioned ? versioned->flags & DL_READ_ONLY : is_immutable(object)))
        why = "is read-only";
    if (why) return refuse(request, why), Py_DecRef(capsule), REFUSED;
    if (is_elsewhere(request, tensor)) return Py_DecRef(capsule), REFUSED;
    view->data = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    view->dtype = dtype_by_dlpack(tensor);
    view->on_device = !on_host;
    view->keep = capsule; /* nobody takes the tensor out: it ends with the capsule */
    return TAKEN;
}

/* ---- __array_interface__ ---- */

static enum taken interface_take(struct view *view, PyObject *object, const struct view_request *request)
{
    PyObject *interface = PyObject_GetAttrString(object, "__array_interface__");
    PyObject *dtype = interface ? PyObject_GetAttrString(object, "dtype") : NULL;
    PyObject *name = dtype ? name_of(dtype) : NULL, *nbytes = name ? PyObject_GetAttrString(object, "nbytes") : NULL;
    PyObject *data = nbytes && PyDict_Check(interface) ? PyDict_GetItemString(interface, "data") : NULL;
    PyObject *strides = data ? PyDict_GetItemString(interface, "strides") : NULL;
    enum taken taken = ASK_ELSE;
    if (data && PyTuple_Check(data) && PyTuple_Size(data) == 2) {
        view->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
        view->bytes = PyLong_AsSize_t(nbytes);
        view->dtype = dtype_by_name(name);
        taken = PyErr_Occurred() ? ASK_ELSE : TAKEN;
        if (strides && strides != Py_None)
            taken = (refuse(request, "is not contiguous in C's order"), REFUSED);
        else if (request->writable && PyObject_IsTrue(PyTuple_GetItem(data, 1)))
            taken = (refuse(request, "is read-only"), REFUSED);
    }
    Py_DecRef(interface), Py_DecRef(dtype), Py_DecRef(name), Py_DecRef(nbytes);
    if (taken == TAKEN) Py_IncRef(object), view->keep = object;
    if (taken == ASK_ELSE) PyErr_Clear();
    return taken;
}

bool view_take(struct view *view, PyObject *object, const struct view_request *request)
{
    static enum taken (*const ways[])(struct view *, PyObject *,
                                      const struct view_request *) = {buffer_take, dlpack_take, interface_take};
    view->on_device = view->has_buffer = false;
    view->keep = NULL;
    enum taken taken = ASK_ELSE;
    for (size_t i = 0; taken == ASK_ELSE && i < sizeof ways / sizeof ways[0]; i++)
        taken = ways[i](view, object, request);
    if (taken != ASK_ELSE) return taken == TAKEN;
    PyErr_Format(PyExc_TypeError, "%s on rank %d: %s is a %R, which shows no memory: it has no buffer and no DLPack",
                 request->call, request->comm->rank, parameter_name(request->parameter), (PyObject *)Py_TYPE(object));
    return false;
}

void view_release(struct view *view)
{
    if (view->has_buffer) PyBuffer_Release(&view->buffer);
    view->has_buffer = false;
    if (view->keep) Py_DecRef(view->keep);
    view->keep = NULL;
}
