/* SPDX-License-Identifier: BSD-3-Clause */

#include "gradients/gradients.hpp"

#include "python/python.hpp"

namespace tutti_torch
{

void define_gradients(py::module_ &module)
{
    py::class_<Gradients, std::shared_ptr<Gradients>>(module, "Gradients")
        .def(py::init([](const c10::intrusive_ptr<c10d::ProcessGroup> &group, std::vector<at::Tensor> parameters,
                         std::vector<std::string> names, size_t first_bytes, size_t bytes, bool as_views) {
                 return Gradients::make(group, std::move(parameters), std::move(names), {first_bytes, bytes, as_views});
             }),
             py::arg("group"), py::arg("parameters"), py::arg("names"), py::arg("first_bytes"), py::arg("bytes"),
             py::arg("as_views"))
        .def("arm", &Gradients::arm, Release())
        .def("order", &Gradients::order, Release())
        .def("arrange", &Gradients::arrange, py::arg("order"), Release());
}

} // namespace tutti_torch
