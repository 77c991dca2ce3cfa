/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room python: the module tutti_torch._C: what Python sees of all other rooms, and nothing else. Begin here, and in
 * module.cpp: each file defines what one function below names. */

#include "base/process.hpp"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <unordered_map>

namespace tutti_torch
{

namespace py = pybind11;
using Release = py::call_guard<py::gil_scoped_release>;
using GivenHints = std::optional<std::unordered_map<std::string, std::string>>;
using GivenTimeout = std::optional<milliseconds>;

class TorchComm;
using CommClass = py::class_<TorchComm, std::shared_ptr<TorchComm>>;

/* tutti_torch._C.comms: torchcomms' API. */
void define_comms(py::module_ &module);
/* Its parts, in this order. */
void define_comms_types(py::module_ &module);
void define_comms_hooks(py::module_ &module, CommClass &comm);
void define_comms_windows(py::module_ &module, CommClass &comm);
void define_comms_backends(py::module_ &module);
/* tutti_torch._C.hooks: what can be hung on communicators. */
void define_hooks(py::module_ &module);
/* tutti_torch._C.crc32c. */
void define_crc(py::module_ &module);
/* tutti_torch._C.Gradients. */
void define_gradients(py::module_ &module);
/* tutti_torch._C.ft: torchft's servers and clients. */
void define_ft(py::module_ &module);

} // namespace tutti_torch
