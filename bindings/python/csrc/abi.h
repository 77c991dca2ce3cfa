/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_PYTHON_ABI_H
#define TUTTI_PYTHON_ABI_H

/* Python's stable ABI of 3.9, so that one file serves 3.9 to 3.14, and two things that are in it only later.
 *
 * The buffer protocol is in the stable ABI from 3.11 on, as it is. 3.9 and 3.10 export the same functions with the same
 * structure, which has not changed since 3.0, and are closed: nothing there will change any more. So the structure that
 * 3.11 promises is declared here for all. Vector calls of methods (METH_FASTCALL) are in it from 3.10 on; 3.9 has them
 * under the same flag; so is PyUnicode_AsUTF8AndSize. The tests run with all versions that are there. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

#ifndef PyBUF_SIMPLE
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#define PyBUF_STRIDES (0x0010 | PyBUF_ND)
#define PyBUF_C_CONTIGUOUS (0x0020 | PyBUF_STRIDES)
#define Py_bf_getbuffer 1
#define Py_bf_releasebuffer 2
PyAPI_FUNC(int) PyObject_CheckBuffer(PyObject *object);
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
PyAPI_FUNC(int)
    PyBuffer_FillInfo(Py_buffer *view, PyObject *object, void *buf, Py_ssize_t len, int readonly, int flags);
#endif
PyAPI_FUNC(const char *) PyUnicode_AsUTF8AndSize(PyObject *text, Py_ssize_t *bytes);
#ifndef PyBUF_READ
#define PyBUF_READ 0x100
#define PyBUF_WRITE 0x200
#endif

#endif
