/* SPDX-License-Identifier: BSD-3-Clause */

/* Windows in Python. */

#include "python/python.hpp"

#include "comms/window.hpp"

#include <torch/csrc/DynamicTypes.h>

#include <optional>

namespace tutti_torch
{

using Window = TorchCommWindow;
using WindowClass = py::class_<Window, std::shared_ptr<Window>>;

/* ---- windows ---- */

static Window::How how(bool async_op, const GivenHints &hints, const GivenTimeout &timeout)
{
    Window::How made;
    made.async_op = async_op;
    if (hints) made.hints = *hints;
    made.timeout = timeout.value_or(milliseconds(0));
    return made;
}

/* Methods of these arguments and of async_op, hints and a timeout behind them. */
template <typename... Values> struct With {
    using Method = Window::WorkPtr (Window::*)(Values..., const Window::How &);

    template <typename... Names>
    static void define(WindowClass &window, const char *name, Method method, const char *doc, Names... names)
    {
        window.def(
            name,
            [method](Window &self, std::decay_t<Values>... values, bool async_op, const GivenHints &hints,
                     const GivenTimeout &timeout) {
                const Window::How given = how(async_op, hints, timeout);
                py::gil_scoped_release release;
                return (self.*method)(std::move(values)..., given);
            },
            names..., py::arg("hints") = py::none(), py::arg("timeout") = py::none(), doc);
    }
};

/* ---- signals ---- */

static Window::Signal signal_of(std::optional<uint32_t> index, uint64_t value, tutti_signal_op op)
{
    return {index, value, op};
}

static void define_signals(WindowClass &window)
{
    using Index = std::optional<uint32_t>;
    window
        .def(
            "put_signal",
            [](Window &self, const Tensor &tensor, int peer, size_t at, bool async_op, const GivenHints &hints,
               const GivenTimeout &timeout, Index index, uint64_t value, tutti_signal_op op) {
                const Window::How given = how(async_op, hints, timeout);
                py::gil_scoped_release release;
                return self.put_signal(tensor, peer, at, given, signal_of(index, value, op));
            },
            py::arg("tensor"), py::arg("dst_rank"), py::arg("target_offset_nelems"), py::arg("async_op"),
            py::arg("hints") = py::none(), py::arg("timeout") = py::none(), py::arg("index") = py::none(),
            py::arg("value") = 1, py::arg("op") = TUTTI_SIGNAL_ADD,
            "put, then signal: who has waited for the signal sees the data.")
        .def(
            "signal",
            [](Window &self, int peer, bool async_op, const GivenHints &hints, const GivenTimeout &timeout, Index index,
               uint64_t value, tutti_signal_op op) {
                const Window::How given = how(async_op, hints, timeout);
                py::gil_scoped_release release;
                return self.signal(peer, given, signal_of(index, value, op));
            },
            py::arg("peer_rank"), py::arg("async_op"), py::arg("hints") = py::none(), py::arg("timeout") = py::none(),
            py::arg("index") = py::none(), py::arg("value") = 1, py::arg("op") = TUTTI_SIGNAL_ADD,
            "Tells peer_rank, after all that was put there before. With an index: adds `value` to, or sets, that "
            "signal.")
        .def(
            "wait_signal",
            [](Window &self, int peer, bool async_op, const GivenHints &hints, const GivenTimeout &timeout, Index index,
               uint64_t value, tutti_compare compare) {
                const Window::How given = how(async_op, hints, timeout);
                py::gil_scoped_release release;
                return self.wait_signal(peer, given, {index, value, compare});
            },
            py::arg("peer_rank"), py::arg("async_op"), py::arg("hints") = py::none(), py::arg("timeout") = py::none(),
            py::arg("index") = py::none(), py::arg("value") = 1, py::arg("compare") = TUTTI_COMPARE_GE,
            "Waits for one signal of peer_rank, and takes it. With an index: until that signal compares so with "
            "`value`; peer_rank, or -1, is who is to give it.")
        .def("read_signal", &Window::read_signal, py::arg("index"), Release(), "A signal of this rank as it is now.")
        .def("write_signal", &Window::write_signal, py::arg("index"), py::arg("value"), Release(),
             "Sets a signal of this rank; no peer may change it meanwhile.")
        .def_property_readonly("n_signals", &Window::n_signals);
}

/* ---- atomics ---- */

static void define_atomics(WindowClass &window)
{
    window
        .def("fetch_add", &Window::fetch_add, py::arg("rank"), py::arg("offset"), py::arg("value"), Release(),
             "Adds to a 64-bit integer (the offset counts those) in the part of the rank, and returns what was there.")
        .def("compare_swap", &Window::compare_swap, py::arg("rank"), py::arg("offset"), py::arg("expected"),
             py::arg("desired"), Release(), "Writes `desired` where `expected` is, and returns what was there.");
    With<const Tensor &, int, size_t, int64_t>::define(
        window, "fetch_add_into", &Window::fetch_add_into,
        "fetch_add that writes what was there into `result`, one int64 where the window is.", py::arg("result"),
        py::arg("rank"), py::arg("offset"), py::arg("value"), py::arg("async_op"));
    With<const Tensor &, int, size_t, int64_t, int64_t>::define(
        window, "compare_swap_into", &Window::compare_swap_into,
        "compare_swap that writes what was there into `result`, one int64 where the window is.", py::arg("result"),
        py::arg("rank"), py::arg("offset"), py::arg("expected"), py::arg("desired"), py::arg("async_op"));
}

static void define_one_sided(WindowClass &window)
{
    With<const Tensor &, int, size_t>::define(
        window, "put", &Window::put, "Writes the tensor into the part of dst_rank.", py::arg("tensor"),
        py::arg("dst_rank"), py::arg("target_offset_nelems"), py::arg("async_op"));
    With<const Tensor &, int, size_t>::define(
        window, "get", &Window::get, "Reads the part of src_rank into the tensor.", py::arg("tensor"),
        py::arg("src_rank"), py::arg("source_offset_nelems"), py::arg("async_op"));
    define_signals(window);
    define_atomics(window);
    With<std::optional<int>>::define(window, "flush", &Window::flush,
                                     "Until all that was called before has taken effect there; None: everywhere.",
                                     py::arg("rank") = py::none(), py::arg("async_op") = false);
    window.def("fence", &Window::fence, Release(), "Puts and gets before it take effect before those after it.");
}

static void define_for_kernels(WindowClass &window)
{
    window
        .def("get_device_window", &Window::device_window, py::arg("signal_count") = -1, py::arg("counter_count") = -1,
             py::arg("barrier_count") = 1, Release(),
             "Address on the device of a tutti_device_window (tutti/device.cuh), for kernels. Signals that have an "
             "index are those from get_size() of the communicator on.")
        .def("register_local_buffer", &Window::register_local_buffer, py::arg("tensor"), Release(),
             "Keeps a tensor that kernels put from; its address is the handle.")
        .def("deregister_local_buffer", &Window::deregister_local_buffer, py::arg("handle"), Release());
}

static void define_words_of_signals(py::module_ &module)
{
    py::enum_<tutti_signal_op>(module, "SignalOp", "What a signal does to its number.")
        .value("SET", TUTTI_SIGNAL_SET)
        .value("ADD", TUTTI_SIGNAL_ADD);
    py::enum_<tutti_compare>(module, "SignalCompare", "How a signal is compared: signal GE value.")
        .value("EQ", TUTTI_COMPARE_EQ)
        .value("NE", TUTTI_COMPARE_NE)
        .value("LT", TUTTI_COMPARE_LT)
        .value("LE", TUTTI_COMPARE_LE)
        .value("GT", TUTTI_COMPARE_GT)
        .value("GE", TUTTI_COMPARE_GE);
}

void define_comms_windows(py::module_ &module, CommClass &comm)
{
    using Access = Window::Access;
    struct Attributes {
        Access access_type = Access::separate;
    };
    py::enum_<Access>(module, "TorchCommWinAccessType", "Whether a peer's part can be mapped.")
        .value("WIN_ACCESS_TYPE_UNIFIED", Access::unified)
        .value("WIN_ACCESS_TYPE_SEPARATE", Access::separate);
    py::class_<Attributes>(module, "TorchCommWindowAttr")
        .def(py::init<>())
        .def_readwrite("access_type", &Attributes::access_type);
    WindowClass window(module, "TorchCommWindow", py::dynamic_attr(), "Tensors that other ranks write and read.");
    define_words_of_signals(module);
    define_one_sided(window);
    define_for_kernels(window);
    window
        .def("tensor_register", &Window::tensor_register, py::arg("tensor"), py::arg("owning") = true, Release(),
             "Collective: shows the tensor to the others.")
        .def("tensor_deregister", &Window::tensor_deregister, Release(), "Collective: ends what tensor_register began.")
        .def(
            "get_attr", [](Window &self, int peer) { return Attributes{self.access(peer)}; }, py::arg("peer_rank"),
            Release())
        .def("map_remote_tensor", &Window::map_remote_tensor, py::arg("rank"), Release(),
             "The part of the rank as a tensor, for loads and stores.")
        .def("get_size", &Window::bytes, "Bytes of the own part, 0 when none is registered.")
        .def("get_tensor", &Window::tensor)
        .def_property_readonly("dtype",
                               [](const Window &self) {
                                   return py::reinterpret_borrow<py::object>(
                                       reinterpret_cast<PyObject *>(torch::getTHPDtype(self.dtype())));
                               })
        .def_property_readonly("shape", &Window::shape)
        .def_property_readonly("device", &Window::device);
    comm.def(
        "new_window",
        [](const std::shared_ptr<TorchComm> &self, const std::optional<Tensor> &tensor, uint32_t n_signals) {
            return Window::create(self, tensor, n_signals);
        },
        py::arg("tensor") = py::none(), py::arg("n_signals") = Window::few_signals, Release(),
        "A window; with a tensor, which is registered: collective. n_signals: of those that have an index.");
    comm.def(
        "get_device_transport", [](TorchComm &self) -> int64_t { refuse_device_transport(self); }, Release(),
        "An error that says what is reached by kernels (which use windows), in place, and by messages.");
}

} // namespace tutti_torch
