/* SPDX-License-Identifier: BSD-3-Clause */
/* The module tutti._tutti: its enumerations, its functions, and its types, which the other files make. */
#include "module.h"

#include <string.h>

PyObject *type_make(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    const char *name = strrchr(spec->name, '.') + 1;
    if (type && PyObject_SetAttrString(type, "__module__", PyUnicode_FromString("tutti")) == 0 &&
        PyObject_SetAttrString(module, name, type) == 0)
        return type;
    Py_DecRef(type);
    return NULL;
}

PyObject *type_no_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    (void)args, (void)keywords;
    return PyErr_Format(PyExc_TypeError, "%R is made by the calls of a communicator, not by its name", type);
}

/* ---- enumerations ---- */

struct member {
    const char *name;
    int value;
};
#define DTYPE_MEMBER(id, name, class, bits, mantissa, bias, infinity, torch) {#id, TUTTI_##id},
static const struct member dtypes[] = {TUTTI_DTYPES(DTYPE_MEMBER){NULL, 0}};
#define MEMBER(name)                                                                                                   \
    {                                                                                                                  \
#name, TUTTI_##name                                                                                            \
    }
static const struct member ops[] = {MEMBER(SUM),        MEMBER(PROD), MEMBER(MIN), MEMBER(MAX),  MEMBER(AVG),
                                    MEMBER(PREMUL_SUM), MEMBER(BAND), MEMBER(BOR), MEMBER(BXOR), {NULL, 0}};
static const struct member wires[] = {{"NONE", TUTTI_WIRE_NONE},
                                      {"BFLOAT16", TUTTI_WIRE_BFLOAT16},
                                      {"FLOAT8_E4M3", TUTTI_WIRE_FLOAT8_E4M3},
                                      {"FLOAT8_E5M2", TUTTI_WIRE_FLOAT8_E5M2},
                                      {"INT8", TUTTI_WIRE_INT8},
                                      {NULL, 0}};
#define STATUS(name)                                                                                                   \
    {                                                                                                                  \
#name, TUTTI_ERR_##name                                                                                        \
    }
static const struct member statuses[] = {
    STATUS(ARGUMENT),  STATUS(UNSUPPORTED), STATUS(MEMORY),    STATUS(SYSTEM),   STATUS(CANCELLED), STATUS(TRUNCATED),
    STATUS(PEER_DEAD), STATUS(PEER_LEFT),   STATUS(TIMEOUT),   STATUS(MISMATCH), STATUS(ABORTED),   STATUS(PROTOCOL),
    STATUS(CONFIG),    STATUS(AUTH),        STATUS(BOOTSTRAP), STATUS(INTERNAL), {NULL, 0}};
static const struct member numbers[] = {MEMBER(ANY_SOURCE),  MEMBER(ANY_TAG),   MEMBER(UNDEFINED), MEMBER(DEVICE_AUTO),
                                        MEMBER(DEVICE_NONE), MEMBER(ALL_PEERS), {NULL, 0}};

/* enum.IntEnum(name, {...}); flat: its members are the module's, too. */
static bool enumeration_make(PyObject *module, const char *name, const struct member *members, bool flat)
{
    PyObject *enums = PyImport_ImportModule("enum"), *pairs = PyList_New(0);
    for (; pairs && members->name; members++) {
        PyObject *pair = Py_BuildValue("(si)", members->name, members->value);
        if (!pair || PyList_Append(pairs, pair) < 0) Py_DecRef(pairs), pairs = NULL;
        Py_DecRef(pair);
    }
    PyObject *type = enums && pairs ? PyObject_CallMethod(enums, "IntEnum", "sO", name, pairs) : NULL;
    bool right = type && PyObject_SetAttrString(type, "__module__", PyUnicode_FromString("tutti")) == 0 &&
                 PyObject_SetAttrString(module, name, type) == 0;
    for (Py_ssize_t i = 0; right && flat && i < PyList_Size(pairs); i++) {
        PyObject *word = PyTuple_GetItem(PyList_GetItem(pairs, i), 0);
        PyObject *member = PyObject_GetAttr(type, word);
        right = member && PyObject_SetAttr(module, word, member) == 0;
        Py_DecRef(member);
    }
    Py_DecRef(enums), Py_DecRef(pairs), Py_DecRef(type);
    return right;
}

/* ---- functions ---- */

#define FUNCTION_ARGS PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *kwnames
#define PARSED(signature)                                                                                              \
    PyObject *values[N_PARAMETERS];                                                                                    \
    (void)module;                                                                                                      \
    if (!arguments_parse(&(signature), args, n, kwnames, values)) return NULL

enum { VERSION, OPTION_GET, LOAD, OFFERS, DTYPE_BYTES, N_FUNCTIONS };
static struct signature signatures[N_FUNCTIONS] = {
    [VERSION] = SIGNATURE("version", "", "The library's version as a number: major << 16 | minor << 8 | patch."),
    [OPTION_GET] =
        SIGNATURE("option_get", "name",
                  "What an option is here, by file and environment: its text and the number that it stands for."),
    [LOAD] = SIGNATURE("algorithm_load", "path",
                       "Loads an algorithm from a file (.c, .py, .so, or a plan); returns the name to call it by."),
    [OFFERS] =
        SIGNATURE("algorithm_offers", "name, kind", "Whether an algorithm has schedules for a kind: 'all_reduce'."),
    [DTYPE_BYTES] = SIGNATURE("dtype_bytes", "dtype", "The bytes of an element."),
};

static PyObject *version(FUNCTION_ARGS)
{
    PARSED(signatures[VERSION]);
    return PyLong_FromUnsignedLong(tutti_version());
}

static PyObject *option_get(FUNCTION_ARGS)
{
    const char *name;
    char text[4096];
    uint64_t number = 0;
    PARSED(signatures[OPTION_GET]);
    if (!argument_text(values[P_name], P_name, &name)) return NULL;
    if (tutti_option_get(name, text, sizeof text, &number) < 0) return error_raise_last(-1);
    return Py_BuildValue("(sK)", text, (unsigned long long)number);
}

static PyObject *algorithm_load(FUNCTION_ARGS)
{
    const char *path, *name = NULL;
    PyObject *bytes;
    PARSED(signatures[LOAD]);
    PyObject *text = PyObject_CallMethod(values[P_path], "__fspath__", NULL); /* a Path */
    if (!text) PyErr_Clear(), Py_IncRef(text = values[P_path]);
    bytes = text;
    enum tutti_status status = TUTTI_OK;
    if (argument_text(text, P_path, &path)) {
        LOCK_GIVE();
        status = tutti_algorithm_load(path, &name);
        LOCK_TAKE();
        if (status < 0) error_raise_last(-1);
    }
    Py_DecRef(bytes);
    return PyErr_Occurred() ? NULL : PyUnicode_FromString(name);
}

static PyObject *algorithm_offers(FUNCTION_ARGS)
{
    const char *name, *kind;
    PARSED(signatures[OFFERS]);
    if (!argument_text(values[P_name], P_name, &name) || !argument_text(values[P_kind], P_kind, &kind)) return NULL;
    return PyBool_FromLong(tutti_algorithm_offers(name, kind));
}

static PyObject *dtype_bytes(FUNCTION_ARGS)
{
    int32_t dtype;
    PARSED(signatures[DTYPE_BYTES]);
    if (!dtype_of(values[P_dtype], &dtype)) return NULL;
    return PyLong_FromSize_t(tutti_dtype_bytes((enum tutti_dtype)dtype));
}

static bool functions_make(PyObject *module)
{
    static PyObject *(*const functions[])(FUNCTION_ARGS) = {version, option_get, algorithm_load, algorithm_offers,
                                                            dtype_bytes};
    static PyMethodDef methods[N_FUNCTIONS + 1];
    for (size_t i = 0; i < N_FUNCTIONS; i++) {
        if (!signature_make(&signatures[i], false)) return false;
        methods[i] = (PyMethodDef)METHOD(signatures[i], functions[i]);
    }
    return PyModule_AddFunctions(module, methods) == 0;
}

/* Before the interpreter ends, so that no thread of the library calls Python afterwards. */
static bool end_make(void)
{
    static PyMethodDef end = {"_comms_end", comms_end, METH_NOARGS, NULL};
    PyObject *function = PyCFunction_NewEx(&end, NULL, NULL), *module = PyImport_ImportModule("atexit");
    PyObject *registered = function && module ? PyObject_CallMethod(module, "register", "O", function) : NULL;
    Py_DecRef(function), Py_DecRef(module), Py_DecRef(registered);
    return registered != NULL;
}

static bool fill(PyObject *module)
{
    for (const struct member *number = numbers; number->name; number++)
        if (PyModule_AddIntConstant(module, number->name, number->value) < 0) return false;
    return PyModule_AddStringConstant(module, "__version__", tutti_version_text()) == 0 &&
           enumeration_make(module, "DType", dtypes, true) && enumeration_make(module, "Op", ops, true) &&
           enumeration_make(module, "Wire", wires, false) && enumeration_make(module, "Status", statuses, false) &&
           errors_make(module) && waits_make() && work_make(module) && group_make(module) && window_make(module) &&
           objects_make(module) && context_make(module) && comm_make(module) && functions_make(module) && end_make();
}

PyMODINIT_FUNC PyInit__tutti(void);
PyMODINIT_FUNC PyInit__tutti(void)
{
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                     "tutti._tutti",
                                     "Collective communications: libtutti from Python.",
                                     -1,
                                     NULL,
                                     NULL,
                                     NULL,
                                     NULL,
                                     NULL};
    PyObject *module = PyModule_Create(&definition);
    if (!module || fill(module)) return module;
    Py_DecRef(module);
    return NULL;
}
