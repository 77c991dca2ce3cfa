# SPDX-License-Identifier: BSD-3-Clause
"""Arrays that show their memory by DLPack alone, by the specification's structures."""

import ctypes

CPU, CUDA = 1, 2


class Tensor(ctypes.Structure):
    """DLTensor."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    """DLManagedTensor, of before 1.0."""
    _fields_ = [("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, of 1.0."""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


class Producer:
    """One array: data is a bytearray, or an address on `device`."""

    def __init__(self, data, code, bits, shape, strides=None, versioned=True, flags=0, offset=0, device=(CPU, 0)):
        self.memory = None if isinstance(data, int) else (ctypes.c_char * len(data)).from_buffer(data)
        self.data = data if self.memory is None else ctypes.addressof(self.memory)
        self.device, self.versioned, self.streams = device, versioned, []
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        tensor = Tensor(self.data, *device, len(shape), code, bits, 1, self.shape, self.strides, offset)
        self.managed = Versioned(1, 0, None, None, flags, tensor) if versioned else Managed(tensor, None, None)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if not self.versioned and "max_version" in options:
            raise TypeError("max_version is not known here")
        self.streams.append(options.get("stream"))
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(ctypes.addressof(self.managed), b"dltensor_versioned" if self.versioned else b"dltensor", None)
