/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments of Python's calls: see arguments.h. */
#include "arguments.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETER_TEXT(name) #name,
static const char *const texts[N_PARAMETERS] = {PARAMETERS(PARAMETER_TEXT)};
static PyObject *names[N_PARAMETERS]; /* interned, so that most are found by their address */

const char *parameter_name(enum parameter parameter)
{
    return texts[parameter];
}

/* ---- signatures ---- */

static bool names_make(void)
{
    for (int i = 0; i < N_PARAMETERS && !names[N_PARAMETERS - 1]; i++)
        if (!(names[i] = PyUnicode_InternFromString(texts[i]))) return false;
    return true;
}

static int find(const char *name, size_t bytes)
{
    for (int i = 0; i < N_PARAMETERS; i++)
        if (strlen(texts[i]) == bytes && memcmp(texts[i], name, bytes) == 0) return i;
    return -1;
}

/* One parameter: "op='sum'", or "*" behind which all have to be named. */
static bool parameter_add(struct signature *signature, const char *text, size_t bytes, bool *named)
{
    const size_t name_bytes = strcspn(text, "=,");
    const int found = find(text, name_bytes < bytes ? name_bytes : bytes);
    if (bytes == 1 && text[0] == '*') return *named = true;
    if (found < 0 || signature->n == MOST_PARAMETERS) {
        PyErr_Format(PyExc_SystemError, "tutti: %s can not take \"%.40s\"", signature->name, text);
        return false;
    }
    const bool may_lack = name_bytes < bytes;
    signature->numbers[signature->n] = may_lack ? (int32_t)strtol(text + name_bytes + 1, NULL, 10) : 0;
    signature->parameters[signature->n++] = (uint8_t)found;
    signature->has[found] = true;
    if (!may_lack) signature->n_required = signature->n;
    if (!*named) signature->n_positional = signature->n;
    return true;
}

bool signature_make(struct signature *signature, bool bound)
{
    bool named = false;
    if (!names_make()) return false;
    if (strncmp(signature->text, ", ", 2) == 0) signature->text += 2; /* it takes options alone */
    for (const char *text = signature->text; *text;) {
        const size_t bytes = strcspn(text, ",");
        if (!parameter_add(signature, text, bytes, &named)) return false;
        text += bytes;
        text += strspn(text, ", ");
    }
    char shown[1600];
    snprintf(shown, sizeof shown, "%s(%s%s)\n--\n\n%s", signature->name,
             !bound               ? ""
             : signature->text[0] ? "$self, "
                                  : "$self",
             signature->text, signature->doc);
    signature->shown = strdup(shown); /* as long as the module, which is never unloaded */
    if (!signature->shown) PyErr_NoMemory();
    return signature->shown != NULL;
}

/* ---- parsing ---- */

static bool is_named(PyObject *given, enum parameter parameter)
{
    return given == names[parameter] || PyUnicode_CompareWithASCIIString(given, texts[parameter]) == 0;
}

static bool name_take(const struct signature *signature, PyObject *given, PyObject *value, PyObject **values)
{
    uint8_t i = 0;
    while (i < signature->n && given != names[signature->parameters[i]]) i++;
    if (i == signature->n)
        for (i = 0; i < signature->n && !is_named(given, (enum parameter)signature->parameters[i]);) i++;
    if (i == signature->n) {
        PyErr_Format(PyExc_TypeError, "%s() takes no argument '%U'", signature->name, given);
        return false;
    }
    PyObject **at = &values[signature->parameters[i]];
    if (*at) PyErr_Format(PyExc_TypeError, "%s() got '%U' twice", signature->name, given);
    return *at ? false : (*at = value, true);
}

/* The first of those that must be there and is not. */
static bool all_there(const struct signature *signature, PyObject *const *values)
{
    for (uint8_t i = 0; i < signature->n_required; i++)
        if (!values[signature->parameters[i]]) {
            PyErr_Format(PyExc_TypeError, "%s() needs '%s'", signature->name, texts[signature->parameters[i]]);
            return false;
        }
    return true;
}

static bool positions_take(const struct signature *signature, PyObject *const *args, Py_ssize_t n, PyObject **values)
{
    if (n > signature->n_positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments without a name, and got %zd", signature->name,
                     signature->n_positional, n);
        return false;
    }
    for (uint8_t i = 0; i < signature->n; i++) values[signature->parameters[i]] = i < n ? args[i] : NULL;
    return true;
}

bool arguments_parse(const struct signature *signature, PyObject *const *args, Py_ssize_t n, PyObject *kwnames,
                     PyObject *values[N_PARAMETERS])
{
    const Py_ssize_t n_named = kwnames ? PyTuple_Size(kwnames) : 0;
    if (!positions_take(signature, args, n, values)) return false;
    for (Py_ssize_t i = 0; i < n_named; i++)
        if (!name_take(signature, PyTuple_GetItem(kwnames, i), args[n + i], values)) return false;
    return n >= signature->n_required || all_there(signature, values);
}

bool arguments_parse_tuple(const struct signature *signature, PyObject *args, PyObject *kwargs,
                           PyObject *values[N_PARAMETERS])
{
    PyObject *given[MOST_PARAMETERS], *name, *value;
    const Py_ssize_t n = PyTuple_Size(args);
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < n && i < MOST_PARAMETERS; i++) given[i] = PyTuple_GetItem(args, i);
    if (!positions_take(signature, given, n, values)) return false;
    while (kwargs && PyDict_Next(kwargs, &at, &name, &value))
        if (!name_take(signature, name, value, values)) return false;
    return all_there(signature, values);
}

/* ---- values ---- */

static bool out_of_range(PyObject *value, enum parameter parameter, const char *what)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError)) return false; /* not a number at all */
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s is %S: it is %s", texts[parameter], value, what);
    return false;
}

bool argument_number(PyObject *value, enum parameter parameter, int64_t least, int64_t most, int64_t absent,
                     int64_t *out)
{
    char range[64];
    if (!value || value == Py_None) return *out = absent, true;
    PyObject *index = PyNumber_Index(value);
    if (!index) {
        PyErr_Format(PyExc_TypeError, "%s is %R, no whole number", texts[parameter], value);
        return false;
    }
    const int64_t number = PyLong_AsLongLong(index);
    Py_DecRef(index);
    if (!PyErr_Occurred() && number >= least && number <= most) return *out = number, true;
    snprintf(range, sizeof range, "from %lld to %lld", (long long)least, (long long)most);
    return out_of_range(value, parameter, range);
}

bool argument_u64(PyObject *value, enum parameter parameter, uint64_t absent, uint64_t *out)
{
    if (!value || value == Py_None) return *out = absent, true;
    PyObject *index = PyNumber_Index(value);
    if (!index) {
        PyErr_Format(PyExc_TypeError, "%s is %R, no whole number", texts[parameter], value);
        return false;
    }
    *out = PyLong_AsUnsignedLongLong(index);
    Py_DecRef(index);
    return !PyErr_Occurred() || out_of_range(value, parameter, "from 0 to 2**64 - 1");
}

bool argument_timeout(PyObject *value, uint64_t *out)
{
    if (!value || value == Py_None) return *out = 0, true;
    const double seconds = PyFloat_AsDouble(value);
    if (PyErr_Occurred()) return false;
    if (!(seconds > 0) || seconds > 1e9) return out_of_range(value, P_timeout, "seconds, more than 0 and at most 1e9");
    const double ns = ceil(seconds * 1e9);
    return *out = (uint64_t)ns, true;
}

bool argument_text(PyObject *value, enum parameter parameter, const char **out)
{
    if (!value || value == Py_None) return *out = NULL, true;
    Py_ssize_t bytes;
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s is %R, no str", texts[parameter], value);
        return false;
    }
    *out = PyUnicode_AsUTF8AndSize(value, &bytes);
    if (*out && strlen(*out) != (size_t)bytes) return out_of_range(value, parameter, "a text without a zero byte");
    return *out != NULL;
}

bool argument_flag(PyObject *value, bool absent, bool *out)
{
    if (!value) return *out = absent, true;
    const int is_true = PyObject_IsTrue(value);
    *out = is_true > 0;
    return is_true >= 0;
}

bool argument_member(PyObject *value, enum parameter parameter, const char *(*member)(int32_t), int32_t n, int32_t *out)
{
    int64_t number;
    if (!PyUnicode_Check(value)) {
        if (!argument_number(value, parameter, 0, n - 1, 0, &number)) return false;
        return *out = (int32_t)number, true;
    }
    for (int32_t i = 0; i < n; i++)
        if (PyUnicode_CompareWithASCIIString(value, member(i)) == 0) return *out = i, true;
    char all[400] = "";
    for (int32_t i = 0; i < n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", member(i));
    return out_of_range(value, parameter, all);
}
