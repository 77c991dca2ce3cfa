/* SPDX-License-Identifier: BSD-3-Clause */

/* Enumerations, options, reductions and handles of torchcomms' API, in Python. */

#include "python/python.hpp"

#include "comms/comms.hpp"

#include <pybind11/functional.h>

#include <set>
#include <variant>

namespace tutti_torch
{

/* ---- enumerations ---- */

static void define_enumerations(py::module_ &module)
{
    using Type = ReduceOp::Type;
    py::enum_<Type>(module, "RedOpType", "Kinds of reductions.")
        .value("SUM", Type::SUM)
        .value("PRODUCT", Type::PRODUCT)
        .value("MIN", Type::MIN)
        .value("MAX", Type::MAX)
        .value("BAND", Type::BAND)
        .value("BOR", Type::BOR)
        .value("BXOR", Type::BXOR)
        .value("PREMUL_SUM", Type::PREMUL_SUM)
        .value("AVG", Type::AVG);
    using Status = TorchWork::Status;
    py::enum_<Status>(module, "WorkStatus", "How far a call has come.")
        .value("NOT_STARTED", Status::NOT_STARTED)
        .value("INPROGRESS", Status::INPROGRESS)
        .value("COMPLETED", Status::COMPLETED)
        .value("TIMEDOUT", Status::TIMEDOUT)
        .value("ERROR", Status::ERROR);
    py::enum_<OpName> names(module, "OpName", "Names of calls, as hooks are told.");
    for (size_t i = 0; i < n_op_names; i++) names.value(text_of(OpName(i)), OpName(i));
}

/* ---- reductions ---- */

static void define_reductions(py::module_ &module)
{
    using Type = ReduceOp::Type;
    /* Classes of the ordinary metaclass: a compiler looks into such classes. */
    const py::metaclass ordinary(reinterpret_cast<PyObject *>(&PyType_Type));
    py::class_<ReduceOp> op(module, "ReduceOp", py::dynamic_attr(), ordinary,
                            "A reduction: ReduceOp.SUM, ReduceOp.PREMUL_SUM(0.5).");
    auto copy = [](const ReduceOp &self) { return self; };
    op.def(py::init<Type>(), py::arg("opType"))
        .def("__copy__", copy)
        .def(
            "__deepcopy__", [](const ReduceOp &self, const py::dict &) { return self; }, py::arg("memo"))
        .def(
            "__eq__",
            [](const ReduceOp &self, const py::object &other) {
                if (!py::isinstance<ReduceOp>(other)) return false;
                const auto &that = other.cast<const ReduceOp &>();
                if (self.type != that.type || self.factor.index() != that.factor.index()) return false;
                if (const Tensor *tensor = std::get_if<Tensor>(&self.factor))
                    return tensor->is_same(std::get<Tensor>(that.factor));
                return std::get<double>(self.factor) == std::get<double>(that.factor);
            },
            py::arg("other"))
        .def("__hash__", [](const ReduceOp &self) { return size_t(self.type); })
        .def_property_readonly("type", [](const ReduceOp &self) { return self.type; })
        .def_property_readonly("factor", [](const ReduceOp &self) { return self.factor; })
        .def_static(
            "PREMUL_SUM", &ReduceOp::premul_sum, py::arg("factor"),
            "The sum of what each rank's tensor is when it is multiplied by its factor: a number, or a tensor.");
    const std::pair<const char *, Type> plain[] = {{"SUM", Type::SUM},   {"PRODUCT", Type::PRODUCT}, {"MIN", Type::MIN},
                                                   {"MAX", Type::MAX},   {"BAND", Type::BAND},       {"BOR", Type::BOR},
                                                   {"BXOR", Type::BXOR}, {"AVG", Type::AVG}};
    for (const auto &[name, type] : plain) op.attr(name) = py::cast(ReduceOp(type));
}

/* ---- options ---- */

/* Hints and a timeout, 0 for the communicator's; one class a call, as in torchcomms. */
struct CallOptions {
    std::unordered_map<std::string, std::string> hints;
    milliseconds timeout{0};
};
template <int> struct CallOptionsOf : CallOptions {
};

template <int number> static void define_call_options(py::module_ &module, const char *name)
{
    using Options = CallOptionsOf<number>;
    py::class_<Options>(module, name)
        .def(py::init<>())
        .def_readwrite("hints", &Options::hints)
        .def_readwrite("timeout", &Options::timeout);
}

template <int... numbers>
static void define_all_call_options(py::module_ &module, std::integer_sequence<int, numbers...>,
                                    const char *const (&names)[sizeof...(numbers)])
{
    (define_call_options<numbers>(module, names[numbers]), ...);
}

static void define_options(py::module_ &module)
{
    static constexpr const char *names[] = {"SendOptions",
                                            "RecvOptions",
                                            "BroadcastOptions",
                                            "AllReduceOptions",
                                            "ReduceOptions",
                                            "AllGatherOptions",
                                            "AllGatherSingleOptions",
                                            "ReduceScatterOptions",
                                            "ReduceScatterSingleOptions",
                                            "AllToAllOptions",
                                            "AllToAllSingleOptions",
                                            "AllToAllvSingleOptions",
                                            "BarrierOptions",
                                            "ScatterOptions",
                                            "GatherOptions",
                                            "GatherSingleOptions",
                                            "AllGatherPInitOptions",
                                            "AllGatherPExecOptions",
                                            "PutOptions",
                                            "SignalOptions",
                                            "WaitSignalOptions",
                                            "BatchP2POptions"};
    define_all_call_options(module, std::make_integer_sequence<int, std::size(names)>(), names);
    py::class_<CommOptions>(module, "CommOptions", "What a communicator was made with.")
        .def(py::init<>())
        .def_readwrite("abort_process_on_timeout_or_error", &CommOptions::abort_process_on_timeout_or_error)
        .def_readwrite("timeout", &CommOptions::timeout)
        .def_readwrite("is_high_priority_stream", &CommOptions::is_high_priority_stream)
        .def_readwrite("store", &CommOptions::store)
        .def_readwrite("name", &CommOptions::name)
        .def_readwrite("enable_reconfigure", &CommOptions::enable_reconfigure)
        .def_readwrite("hints", &CommOptions::hints);
}

/* Handles in the order of ranks (a list), or in none (a set). */
using GivenHandles = std::variant<std::vector<InitHandle>, std::set<InitHandle>>;
struct ReconfigureArguments {
    int64_t uuid = 0;
    GivenHandles init_handles;
    GivenTimeout timeout;
    std::unordered_map<std::string, std::string> hints;
};

static void define_reconfigure_options(py::module_ &module)
{
    using Arguments = ReconfigureArguments;
    py::class_<Arguments>(module, "ReconfigureOptions", "The arguments of TorchComm.reconfigure.")
        .def(py::init([](int64_t uuid, GivenHandles handles, GivenTimeout timeout, const GivenHints &hints) {
                 return Arguments{uuid, std::move(handles), timeout, hints.value_or(Hints())};
             }),
             py::arg("uuid") = 0, py::arg("init_handles") = std::vector<InitHandle>(), py::arg("timeout") = py::none(),
             py::arg("hints") = py::none())
        .def_readwrite("uuid", &Arguments::uuid)
        .def_readwrite("init_handles", &Arguments::init_handles)
        .def_readwrite("timeout", &Arguments::timeout)
        .def_readwrite("hints", &Arguments::hints);
}

/* ---- handles ---- */

static void define_works(py::module_ &module)
{
    py::class_<TorchWork, c10::intrusive_ptr<TorchWork>>(module, "TorchWork", py::dynamic_attr(),
                                                         "The handle of a call. Dropping it is safe.")
        .def("is_completed", &TorchWork::is_completed, Release(), "Whether the call has ended. Never blocks.")
        .def("wait", &TorchWork::wait, Release(),
             "Waits for the call; of tensors on a device: makes the current stream wait, and not the host.")
        .def("wait_blocking", &TorchWork::wait_blocking, Release(),
             "Waits for the call, on the host also for calls on a device.")
        .def("status", &TorchWork::status, Release(), "How far it has come: a WorkStatus. Never blocks.")
        .def("_on_end", &TorchWork::on_end, py::arg("callback"), Release())
        .def("_on_wait", &TorchWork::on_wait, py::arg("callback"), Release());
    module.attr("_complete") = py::cast(TorchWork::complete()); /* so that each call finds its object */
}

void define_comms_types(py::module_ &module)
{
    define_enumerations(module);
    define_reductions(module);
    define_options(module);
    define_reconfigure_options(module);
    define_works(module);
}

} // namespace tutti_torch
