/* SPDX-License-Identifier: BSD-3-Clause */

/* Windows and persistent calls in Python. */

#include "python/python.hpp"

#include "comms/persistent.hpp"
#include "comms/window.hpp"

#include <torch/csrc/DynamicTypes.h>

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

using Mover = Window::WorkPtr (Window::*)(const Tensor &, int, size_t, const Window::How &);
using Signaller = Window::WorkPtr (Window::*)(int, const Window::How &);

static void define_move(WindowClass &window, const char *name, Mover method, const char *rank, const char *offset,
                        const char *doc)
{
    window.def(
        name,
        [method](Window &self, const Tensor &tensor, int peer, size_t at, bool async_op, const GivenHints &hints,
                 const GivenTimeout &timeout) {
            const Window::How given = how(async_op, hints, timeout);
            py::gil_scoped_release release;
            return (self.*method)(tensor, peer, at, given);
        },
        py::arg("tensor"), py::arg(rank), py::arg(offset), py::arg("async_op"), py::arg("hints") = py::none(),
        py::arg("timeout") = py::none(), doc);
}

static void define_signal(WindowClass &window, const char *name, Signaller method, const char *doc)
{
    window.def(
        name,
        [method](Window &self, int peer, bool async_op, const GivenHints &hints, const GivenTimeout &timeout) {
            const Window::How given = how(async_op, hints, timeout);
            py::gil_scoped_release release;
            return (self.*method)(peer, given);
        },
        py::arg("peer_rank"), py::arg("async_op"), py::arg("hints") = py::none(), py::arg("timeout") = py::none(), doc);
}

static void define_one_sided(WindowClass &window)
{
    define_move(window, "put", &Window::put, "dst_rank", "target_offset_nelems",
                "Writes the tensor into the part of dst_rank.");
    define_move(window, "get", &Window::get, "src_rank", "source_offset_nelems",
                "Reads the part of src_rank into the tensor.");
    define_move(window, "put_signal", &Window::put_signal, "dst_rank", "target_offset_nelems",
                "put, then signal: who has waited for the signal sees the data.");
    define_signal(window, "signal", &Window::signal, "Tells peer_rank, after all that was put there before.");
    define_signal(window, "wait_signal", &Window::wait_signal, "Waits for one signal of peer_rank, and takes it.");
    window
        .def("fetch_add", &Window::fetch_add, py::arg("rank"), py::arg("offset"), py::arg("value"), Release(),
             "Adds to a 64-bit integer (the offset counts those) in the part of the rank, and returns what was there.")
        .def("compare_swap", &Window::compare_swap, py::arg("rank"), py::arg("offset"), py::arg("expected"),
             py::arg("desired"), Release(), "Writes `desired` where `expected` is, and returns what was there.")
        .def(
            "flush",
            [](Window &self, std::optional<int> rank, bool async_op, const GivenHints &hints,
               const GivenTimeout &timeout) {
                const Window::How given = how(async_op, hints, timeout);
                py::gil_scoped_release release;
                return self.flush(rank, given);
            },
            py::arg("rank") = py::none(), py::arg("async_op") = false, py::arg("hints") = py::none(),
            py::arg("timeout") = py::none(),
            "Until all that was called before has taken effect there; None: everywhere.")
        .def("fence", &Window::fence, Release(), "Puts and gets before it take effect before those after it.");
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
    define_one_sided(window);
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
        [](const std::shared_ptr<TorchComm> &self, const std::optional<Tensor> &tensor) {
            return Window::create(self, tensor);
        },
        py::arg("tensor") = py::none(), Release(), "A window; with a tensor, which is registered: collective.");
}

/* ---- persistent calls ---- */

/* Of a call with these arguments, and async_op behind them. */
template <typename... Arguments> struct Recorded {
    template <typename... Names>
    static void define(CommClass &comm, const std::string &name, Request (*make)(Arguments..., bool), Names... names);
};

template <typename... Arguments>
template <typename... Names>
void Recorded<Arguments...>::define(CommClass &comm, const std::string &name, Request (*make)(Arguments..., bool),
                                    Names... names)
{
    comm.def((name + "_p_init").c_str(),
             [make](const std::shared_ptr<TorchComm> &self, std::decay_t<Arguments>... arguments,
                    const GivenHints &hints, const GivenTimeout &timeout) {
                 Request request = make(std::move(arguments)..., true);
                 if (hints) request.hints = *hints;
                 if (timeout) request.timeout = *timeout;
                 py::gil_scoped_release release;
                 return self->persist(std::move(request));
             },
             py::arg(names)..., py::arg("hints") = py::none(), py::arg("timeout") = py::none(),
             "Records the call, to be started again and again.");
    comm.def((name + "_p_exec").c_str(),
             [](TorchComm &, Persistent &handle, bool async_op) { return handle.start(async_op); }, py::arg("handle"),
             py::arg("async_op"), Release(), "Starts it. What was started before is over.");
    comm.def((name + "_p_free").c_str(), [](TorchComm &, Persistent &handle) { handle.release(); }, py::arg("handle"),
             Release());
}

static void define_all_gather(CommClass &comm)
{
    comm.def(
        "all_gather_p_init",
        [](const std::shared_ptr<TorchComm> &self, const Tensor &output, const GivenHints &hints,
           const GivenTimeout &timeout) {
            return std::make_shared<AllGatherP>(self, output, hints.value_or(Hints()),
                                                timeout.value_or(milliseconds(0)));
        },
        py::arg("output"), py::arg("hints") = py::none(), py::arg("timeout") = py::none(),
        "all_gather_single into this output, to be started again and again.");
    comm.def(
        "all_gather_p_exec",
        [](TorchComm &, AllGatherP &handle, const Tensor &input, bool async_op, const GivenHints &,
           const GivenTimeout &) {
            py::gil_scoped_release release;
            return handle.start(input, async_op);
        },
        py::arg("handle"), py::arg("input"), py::arg("async_op"), py::arg("hints") = py::none(),
        py::arg("timeout") = py::none());
    comm.def(
        "all_gather_p_free", [](TorchComm &, AllGatherP &handle) { handle.release(); }, py::arg("handle"), Release());
}

void define_comms_persistent(py::module_ &module, CommClass &comm)
{
    py::class_<Persistent, std::shared_ptr<Persistent>>(module, "PersistentCall", "A recorded call.");
    py::class_<AllGatherP, std::shared_ptr<AllGatherP>>(module, "AllGatherPHandle", "A recorded all_gather.");
    define_all_gather(comm);
    Recorded<const Tensor &, int>::define(comm, "broadcast", requests::broadcast, "tensor", "root");
    Recorded<const Tensor &, const ReduceOp &>::define(comm, "all_reduce", requests::all_reduce, "tensor", "op");
    Recorded<const Tensor &, int, const ReduceOp &>::define(comm, "reduce", requests::reduce, "tensor", "root", "op");
    Recorded<const Tensor &, const Tensor &>::define(comm, "all_gather_single", requests::all_gather_single, "output",
                                                     "input");
    Recorded<const Tensor &, const Tensor &, const ReduceOp &>::define(
        comm, "reduce_scatter_single", requests::reduce_scatter_single, "output", "input", "op");
    Recorded<const Tensor &, const Tensor &>::define(comm, "all_to_all_single", requests::all_to_all_single, "output",
                                                     "input");
    Recorded<const Tensor &, const Tensor &, Splits, Splits>::define(comm, "all_to_all_v_single",
                                                                     requests::all_to_all_v_single, "output", "input",
                                                                     "output_split_sizes", "input_split_sizes");
    Recorded<const Tensor &, const Tensor &, int>::define(comm, "gather_single", requests::gather_single, "output",
                                                          "input", "root");
    Recorded<>::define(comm, "barrier", requests::barrier);
}

} // namespace tutti_torch
