/* SPDX-License-Identifier: BSD-3-Clause */

/* TorchComm in Python, and how one is made. */

#include "python/python.hpp"

#include "comms/comms.hpp"
#include "comms/hints.hpp"
#include "comms/persistent.hpp"
#include "comms/quantized.hpp"

#include <pybind11/functional.h>

#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <variant>

namespace tutti_torch
{

/* ---- calls: the table of operations says their arguments ---- */

static void complete(Request &request, const GivenHints &hints, const GivenTimeout &timeout)
{
    if (hints) request.hints = *hints;
    if (timeout) request.timeout = *timeout;
}

static c10::intrusive_ptr<TorchWork> run(TorchComm &self, Request &&request)
{
    std::optional<py::gil_scoped_release> release;
    if (!self.has_hooks()) release.emplace();
    return self.run(std::move(request));
}

template <OpName name, size_t... k> static void define_call(CommClass &comm, std::index_sequence<k...>)
{
    constexpr const OpRow &row = row_of(name);
    comm.def(
        row.name,
        [](TorchComm &self, typename Argument<name, k>::Type... values, bool async_op, const GivenHints &hints,
           const GivenTimeout &timeout) {
            Request made = request<name>(async_op, std::move(values)...);
            complete(made, hints, timeout);
            return run(self, std::move(made));
        },
        py::arg(row.arguments[k])..., py::arg("async_op"), py::arg("hints") = py::none(),
        py::arg("timeout") = py::none(), row.doc);
}

/* The call, recorded, to be started again and again. all_gather's input comes with each start: below. */
template <OpName name, size_t... k> static void define_persistent(CommClass &comm, std::index_sequence<k...>)
{
    constexpr const OpRow &row = row_of(name);
    const std::string prefix = std::string(row.name) + "_p_";
    comm.def((prefix + "init").c_str(),
             [](const std::shared_ptr<TorchComm> &self, typename Argument<name, k>::Type... values,
                const GivenHints &hints, const GivenTimeout &timeout) {
                 Request made = request<name>(true, std::move(values)...);
                 complete(made, hints, timeout);
                 py::gil_scoped_release release;
                 return self->persist(std::move(made));
             },
             py::arg(row.arguments[k])..., py::arg("hints") = py::none(), py::arg("timeout") = py::none(),
             "Records the call, to be started again and again.");
    comm.def((prefix + "exec").c_str(),
             [](TorchComm &, Persistent &handle, bool async_op) { return handle.start(async_op); }, py::arg("handle"),
             py::arg("async_op"), Release(), "Starts it, when what was started before is over.");
    comm.def((prefix + "free").c_str(), [](TorchComm &, Persistent &handle) { handle.release(); }, py::arg("handle"),
             Release());
}

template <size_t... i> static void define_calls(CommClass &comm, std::index_sequence<i...>)
{
    (define_call<OpName(i)>(comm, Arguments<OpName(i)>()), ...);
}

template <size_t... i> static void define_persistents(CommClass &comm, std::index_sequence<i...>)
{
    auto define = [&comm](auto place) {
        constexpr OpName name = OpName(decltype(place)::value);
        if constexpr (!is_message(name) && name != OpName::all_gather) define_persistent<name>(comm, Arguments<name>());
    };
    (define(std::integral_constant<size_t, i>()), ...);
}

/* A call that torchcomms has in one of its backends alone (comms/quantized.hpp). */
template <typename... Values, typename... Names>
static void define_special(CommClass &comm, const char *name, Request (*make)(Values...), const char *doc,
                           Names... names)
{
    comm.def(
        name,
        [make](TorchComm &self, std::decay_t<Values>... values, const GivenHints &hints, const GivenTimeout &timeout) {
            Request made = make(std::move(values)...);
            complete(made, hints, timeout);
            return run(self, std::move(made));
        },
        py::arg(names)..., py::arg("hints") = py::none(), py::arg("timeout") = py::none(), doc);
}

static void define_collectives(CommClass &comm)
{
    define_calls(comm, std::make_index_sequence<size_t(OpName::split)>());
    define_special(
        comm, "reduce_scatter_quantized", requests::reduce_scatter_quantized,
        "reduce_scatter_single whose data travels as bfloat16, rounded stochastically by the seed; other formats "
        "by the hint 'wire'.",
        "output", "input", "op", "seed", "async_op");
    define_special(comm, "_all_to_all_v_dynamic", requests::all_to_all_v_dynamic, "See all_to_all_v_dynamic.", "output",
                   "input", "output_counts", "input_counts", "status", "async_op");
    define_special(comm, "_all_reduce_sparse_block", requests::all_reduce_sparse_block, "See all_reduce_sparse_block.",
                   "output", "values", "indices", "op", "status", "async_op");
}

/* ---- persistent calls ---- */

static void define_all_gather_p(CommClass &comm)
{
    comm.def(
        "all_gather_p_init",
        [](const std::shared_ptr<TorchComm> &self, const std::variant<Tensor, Tensors> &output, const GivenHints &hints,
           const GivenTimeout &timeout) {
            const Tensor *one = std::get_if<Tensor>(&output);
            return std::make_shared<AllGatherP>(self, one ? Tensors{*one} : std::get<Tensors>(output), !one,
                                                hints.value_or(Hints()), timeout.value_or(milliseconds(0)));
        },
        py::arg("output"), py::arg("hints") = py::none(), py::arg("timeout") = py::none(),
        "all_gather_single into this output, or all_gather into this list, to be started again and again.");
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

static void define_comms_persistent(py::module_ &module, CommClass &comm)
{
    py::class_<Persistent, std::shared_ptr<Persistent>>(module, "PersistentCall", "A recorded call.");
    py::class_<AllGatherP, std::shared_ptr<AllGatherP>>(module, "AllGatherPHandle", "A recorded all_gather.");
    define_all_gather_p(comm);
    define_persistents(comm, std::make_index_sequence<size_t(OpName::split)>());
}

/* ---- batches ---- */

struct P2POp {
    enum class Type { SEND, RECV };
    Type type;
    Tensor tensor;
    int peer;
};

struct BatchSendRecv {
    std::shared_ptr<TorchComm> comm;
    std::vector<P2POp> ops;

    void add(P2POp::Type type, const Tensor &tensor, int peer) { ops.push_back({type, tensor, peer}); }
    c10::intrusive_ptr<TorchWork> issue(bool async_op, const Hints &hints, milliseconds timeout) const
    {
        std::vector<Request> requests;
        for (const P2POp &op : ops)
            requests.push_back(op.type == P2POp::Type::SEND ? request<OpName::send>(async_op, op.tensor, op.peer)
                                                            : request<OpName::recv>(async_op, op.tensor, op.peer));
        return comm->run_batch(std::move(requests), async_op, hints, timeout);
    }
};

static void define_batches(py::module_ &module, CommClass &comm)
{
    py::enum_<P2POp::Type>(module, "P2POpType", "What a part of a batch does.")
        .value("SEND", P2POp::Type::SEND)
        .value("RECV", P2POp::Type::RECV);
    py::class_<P2POp>(module, "P2POp", "A send or a receive, as a part of a batch.")
        .def(py::init([](P2POp::Type type, const Tensor &tensor, int peer) {
                 return P2POp{type, tensor, peer};
             }),
             py::arg("type"), py::arg("tensor"), py::arg("peer"))
        .def_readwrite("type", &P2POp::type)
        .def_readwrite("tensor", &P2POp::tensor)
        .def_readwrite("peer", &P2POp::peer);
    py::class_<BatchSendRecv, std::shared_ptr<BatchSendRecv>>(module, "BatchSendRecv", py::dynamic_attr(),
                                                              "Sends and receives that begin together, in any order.")
        .def(
            "send",
            [](BatchSendRecv &self, const Tensor &tensor, int dst) { self.add(P2POp::Type::SEND, tensor, dst); },
            py::arg("tensor"), py::arg("dst"))
        .def(
            "recv",
            [](BatchSendRecv &self, const Tensor &tensor, int src) { self.add(P2POp::Type::RECV, tensor, src); },
            py::arg("tensor"), py::arg("src"))
        .def(
            "issue",
            [](const BatchSendRecv &self, bool async_op, const py::object &options) {
                Hints hints;
                milliseconds timeout(0);
                if (!options.is_none()) {
                    hints = options.attr("hints").cast<Hints>();
                    timeout = options.attr("timeout").cast<milliseconds>();
                }
                py::gil_scoped_release release;
                return self.issue(async_op, hints, timeout);
            },
            py::arg("async_op"), py::arg("options") = py::none(), "Begins them all; options: BatchP2POptions.")
        .def_readwrite("ops", &BatchSendRecv::ops);
    comm.def(
        "batch_op_create",
        [](const std::shared_ptr<TorchComm> &self) {
            return std::make_shared<BatchSendRecv>(BatchSendRecv{self, {}});
        },
        "An empty batch of sends and receives.");
}

/* ---- life ---- */

static CommOptions with(CommOptions options, const GivenHints &hints, const GivenTimeout &timeout)
{
    if (hints) options.hints = *hints;
    if (timeout) options.timeout = *timeout;
    return options;
}

static std::shared_ptr<TorchComm> new_comm(const std::string &backend, c10::Device device, const std::string &name,
                                           std::optional<bool> abort_process_on_timeout_or_error,
                                           const GivenTimeout &timeout, std::optional<bool> is_high_priority_stream,
                                           const std::optional<StorePtr> &store, bool enable_reconfigure,
                                           const GivenHints &hints)
{
    CommOptions options = with(CommOptions(), hints, timeout);
    if (abort_process_on_timeout_or_error) {
        options.abort_process_on_timeout_or_error = *abort_process_on_timeout_or_error;
        options.abort_asked_by = "abort_process_on_timeout_or_error=True";
    }
    options.is_high_priority_stream = is_high_priority_stream.value_or(false);
    if (store) options.store = *store;
    options.enable_reconfigure = enable_reconfigure;
    return TorchComm::create(backend, device, name, std::move(options));
}

static c10::intrusive_ptr<TorchWork>
reconfigure(TorchComm &self, int64_t uuid, const std::variant<std::vector<InitHandle>, std::set<InitHandle>> &handles,
            const GivenTimeout &timeout, const GivenHints &hints)
{
    ReconfigureOptions options;
    options.uuid = uuid;
    options.ordered = handles.index() == 0;
    std::visit([&](const auto &given) { options.handles.assign(given.begin(), given.end()); }, handles);
    options.timeout = timeout;
    if (hints) options.hints = *hints;
    py::gil_scoped_release release;
    return self.reconfigure(std::move(options));
}

static py::object backend_impl(const TorchComm &self)
{
    if (self.foreign()) return py::cast(self.foreign());
    c10::intrusive_ptr<Backend> backend;
    {
        py::gil_scoped_release release;
        backend = self.backend();
    }
    return py::cast(backend);
}

static void define_life(CommClass &comm)
{
    auto self = [](const py::object &same, const py::args &) { return same; };
    comm.def("__copy__", self)
        .def("__deepcopy__", self)
        .def(
            "split",
            [](TorchComm &parent, const std::vector<int> &ranks, const std::string &name, const GivenHints &hints,
               const GivenTimeout &timeout) {
                CommOptions options = parent.options();
                options.hints.erase("rank");
                options.hints.erase("size");
                options = with(std::move(options), hints, timeout);
                py::gil_scoped_release release;
                return parent.split(ranks, name, std::move(options));
            },
            py::arg("ranks"), py::arg("name"), py::arg("hints") = py::none(), py::arg("timeout") = py::none(),
            "A communicator of these ranks, in this order. Called by each of them; others pass [] and get None.")
        .def("finalize", &TorchComm::finalize, Release(), "Waits for the calls in flight, and ends. Not collective.")
        .def("abort", &TorchComm::abort, Release(), "Ends all calls in flight, on all ranks, with an error.")
        .def("is_abort_supported", &TorchComm::is_abort_supported)
        .def("is_aborted", &TorchComm::is_aborted, Release(), "Whether it was aborted, or failed: calls are errors.")
        .def("get_init_handle", &TorchComm::init_handle, Release(),
             "A word by which others find this rank when communicators are reconfigured.")
        .def(
            "reconfigure", reconfigure, py::arg("uuid"), py::arg("init_handles"), py::arg("timeout") = py::none(),
            py::arg("hints") = py::none(),
            "New members: the owners of the handles, who all call this. Rank r is init_handles[r] of a list; of a set, "
            "ranks are in the order of the sorted handles. Returns at once; calls that follow wait for it.");
}

static void define_queries(CommClass &comm)
{
    comm.def("get_rank", &TorchComm::rank, Release(), "This rank; -1 before the first reconfigure.")
        .def("get_size", &TorchComm::size, Release(), "How many ranks there are.")
        .def("get_ranks", &TorchComm::ranks, Release(), "The members, as the communicator that was split counts them.")
        .def("get_name", &TorchComm::name)
        .def("get_options", &TorchComm::options)
        .def("get_device", &TorchComm::device)
        .def("get_backend", &TorchComm::backend_name)
        .def("get_backend_version", &TorchComm::backend_version)
        .def("get_backend_impl", backend_impl, "A torch.distributed backend of the same ranks.")
        .def("unsafe_get_backend", backend_impl)
        .def("get_mem_allocator", &TorchComm::mem_allocator, Release(),
             "Of memory that the ranks of the host reach directly.")
        .def_property_readonly("mem_allocator", &TorchComm::mem_allocator)
        .def("set_timeout", &TorchComm::set_timeout, py::arg("timeout"), Release(),
             "The deadline of calls that are given none.")
        .def("set_hints", &TorchComm::set_hints, py::arg("hints"), Release(),
             "Hints of calls that are given none. One that is unknown is an error.")
        .def("tensor_register", &TorchComm::tensor_register, py::arg("tensor"), Release())
        .def("tensor_deregister", &TorchComm::tensor_deregister, py::arg("tensor"), Release());
}

void define_comms(py::module_ &module)
{
    define_comms_types(module);
    CommClass comm(module, "TorchComm", py::dynamic_attr(), "A communicator.");
    define_collectives(comm);
    define_batches(module, comm);
    define_life(comm);
    define_queries(comm);
    define_comms_hooks(module, comm);
    define_comms_windows(module, comm);
    define_comms_persistent(module, comm);
    define_comms_backends(module);
    module.def("new_comm", &new_comm, py::arg("backend"), py::arg("device"), py::arg("name"),
               py::arg("abort_process_on_timeout_or_error") = py::none(), py::arg("timeout") = py::none(),
               py::arg("is_high_priority_stream") = py::none(), py::arg("store") = py::none(),
               py::arg("enable_reconfigure") = false, py::arg("hints") = py::none(),
               "A communicator of all ranks that the environment tells of; each calls this.");
    module.def("get_mem_allocator", &mem_allocator_of, py::arg("backend"),
               "Of memory that the ranks of the host reach directly; of the newest communicator.");
    module.def("_newest", &TorchComm::newest);
    module.def("_calls", [] { /* the table of operations: the form and the arguments of each call */
                              std::map<std::string, std::pair<std::string, std::vector<std::string>>> table;
                              for (size_t i = 0; i < size_t(OpName::split); i++) {
                                  const OpRow &row = op_rows[i];
                                  std::vector<std::string> words(row.arguments.begin(),
                                                                 row.arguments.begin() + std::strlen(row.form));
                                  table[row.name] = {row.form, std::move(words)};
                              }
                              return table;
    });
    module.def("_hints", [] {
        std::vector<std::pair<std::string, std::string>> table;
        for (const Hint &hint : known_hints()) table.emplace_back(hint.name, hint.meaning);
        return table;
    });
}

} // namespace tutti_torch
