/* SPDX-License-Identifier: BSD-3-Clause */

/* The Python module tutti_torch._C: the backend's class and its creation. */

#include "backend.hpp"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>

namespace py = pybind11;
using tutti_torch::Backend;

PYBIND11_MODULE(_C, module)
{
    module.doc() = "tutti's backend for torch.distributed";
    py::module_::import("torch._C._distributed_c10d"); /* the bases of the classes below */

    py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>> backend(module, "Backend");
    py::class_<Backend::Options, c10d::Backend::Options, c10::intrusive_ptr<Backend::Options>>(backend, "Options")
        .def(py::init<std::chrono::milliseconds>(), py::arg("timeout") = kBackendDefaultTimeout);
    backend
        .def(py::init(&Backend::create), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
             py::call_guard<py::gil_scoped_release>())
        /* PyTorch's own backends have these; its base class binds neither. */
        .def_property_readonly("options", &Backend::getBackendOptions)
        .def("_set_default_timeout", &Backend::setTimeout, py::arg("timeout"))
        /* new_group calls this on ranks outside the new group; here, they are not needed. */
        .def(
            "perform_nocolor_split", [](Backend &, const py::object &) {}, py::arg("device"));

    module.def(
        "torch_version", [] { return std::string(TORCH_VERSION); }, "The torch that this was built against.");
    module.def("tutti_version", [] { return std::string(tutti_version_text()); });
}
