/* SPDX-License-Identifier: BSD-3-Clause */

/* The flight recorder and the log of calls, in Python. */

#include "python/python.hpp"

#include "hooks/clog.hpp"
#include "hooks/flight.hpp"

namespace tutti_torch
{

static void define_flight_recorder(py::module_ &module)
{
    using Hook = FlightRecorderHook;
    py::class_<Hook, std::shared_ptr<Hook>>(module, "FlightRecorderHook",
                                            "Keeps the last calls of communicators, for torchfrtrace.")
        .def(py::init<size_t, bool>(), py::arg("max_entries") = 2048, py::arg("isolated") = false,
             "isolated: with a recorder of its own; else all of the process share one, which the first makes.")
        .def("register_with_comm", &Hook::register_with_comm, py::arg("comm"), Release(),
             "Records the calls of the communicator, and of those that are split from it.")
        .def("dump_json", &Hook::dump_json, py::arg("include_completed") = true, Release(),
             "The calls as JSON, which torchfrtrace -j reads.")
        .def("dump_file", &Hook::dump_file, py::arg("rank"), py::arg("include_completed") = true, Release(),
             "Writes the calls to the file of this rank, which torchfrtrace reads; returns its name.")
        .def("reset", &Hook::reset, Release(), "Forgets all calls.")
        .def("is_enabled", &Hook::is_enabled, "Whether it was registered with a communicator.")
        .def("size", &Hook::size, Release(), "Calls since the last reset.")
        .def("__len__", &Hook::size, Release());
}

static void define_clog(py::module_ &module)
{
    using Words = std::vector<std::string>;
    py::class_<Clog, std::shared_ptr<Clog>>(module, "clog", "A log of calls, a line for each event.")
        .def(py::init<const std::string &, const Words &, const Words &>(), py::arg("output"), py::arg("events"),
             py::arg("verbose") = Words(),
             "output: the file, emptied. events: [], or [\"LIFECYCLE\"] (or [\"ALL\"]) for beginnings, ends and waits, "
             "too. verbose: [\"buffers\"] for addresses.")
        .def("register_with_comm", &Clog::register_with_comm, py::arg("comm"), Release(),
             "Logs the calls of the communicator, and of those that are split from it.");
}

void define_hooks(py::module_ &module)
{
    define_flight_recorder(module);
    define_clog(module);
}

} // namespace tutti_torch
