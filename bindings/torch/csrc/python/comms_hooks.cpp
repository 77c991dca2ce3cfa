/* SPDX-License-Identifier: BSD-3-Clause */

/* Hooks in Python. What they are told is an object with a class for each call, whose attributes are those of
 * torchcomms. The attributes are read from the request when they are asked for. */

#include "comms/comms.hpp"
#include "comms/window.hpp"
#include "hooks/hooks.hpp"
#include "python/python.hpp"

#include <memory>
#include <optional>
#include <utility>

namespace tutti_torch
{

namespace
{

/* What hooks see of one call; the class below says which. The request is the call's own, or a copy where a hook keeps
 * this. */
struct AnyPreArgs {
    const Request *live = nullptr;
    std::optional<Request> kept;

    const Request &request() const { return live ? *live : *kept; }
    void show(const Request &of) { live = &of; }
    void keep() { kept = *std::exchange(live, nullptr); }
    void clear() { live = nullptr; }
};
template <OpName name> struct PreArgs : AnyPreArgs {
};
/* "AllReducePreHookArgs" */
std::string class_name(OpName name, const char *end)
{
    std::string made;
    bool upper = true;
    for (const char *c = text_of(name); *c; c++) {
        if (*c != '_') made.push_back(upper ? char(std::toupper(*c)) : *c);
        upper = *c == '_';
    }
    return made + end;
}

template <typename Args, typename Get> void attribute(py::class_<Args> &args, const char *name, Get get)
{
    args.def_property_readonly(name, [get](const Args &self) { return get(self.request()); });
}

template <OpName name> void define_pre(py::module_ &module)
{
    constexpr const OpRow &row = row_of(name);
    py::class_<PreArgs<name>> args(module, class_name(name, "PreHookArgs").c_str());
    if (row.has('t') || is_message(name))
        attribute(args, "tensor", [](const Request &r) { return (r.inputs.empty() ? r.outputs : r.inputs).at(0); });
    else if (row.has('i'))
        attribute(args, "input", [](const Request &r) { return r.inputs.at(0); });
    else if (row.has('I'))
        attribute(args, "input", [](const Request &r) { return r.inputs; });
    if (!is_message(name) && row.has('o')) attribute(args, "output", [](const Request &r) { return r.outputs.at(0); });
    if (row.has('O')) attribute(args, "output", [](const Request &r) { return r.outputs; });
    if (row.has('p')) attribute(args, is_message(name) ? "peer" : "root", [](const Request &r) { return r.peer; });
    if (row.has('r')) attribute(args, "op", [](const Request &r) { return r.op; });
    if (row.has('s')) {
        attribute(args, "input_split_sizes", [](const Request &r) { return r.input_splits; });
        attribute(args, "output_split_sizes", [](const Request &r) { return r.output_splits; });
    }
    if (name == OpName::batch_op_issue) attribute(args, "num_ops", [](const Request &r) { return r.parts.size(); });
    if (name == OpName::split) {
        attribute(args, "ranks", [](const Request &r) { return r.ranks; });
        attribute(args, "name", [](const Request &r) { return r.new_name; });
    }
    if (is_call(name) || name == OpName::batch_op_issue)
        attribute(args, "async_op", [](const Request &r) { return r.async_op; });
}

/* Classes of what came of calls; that of each collective is under the common one. */
struct CollectivePostArgs {
    Outcome outcome;

    void show(const Outcome &of) { outcome = of; }
    void keep() {}
    void clear() { outcome = {}; }
};
template <OpName name> struct PostArgs : CollectivePostArgs {
};

template <OpName name> void define_post(py::module_ &module)
{
    const std::string class_is = class_name(name, "PostHookArgs");
    if constexpr (is_call(name) || name == OpName::batch_op_issue) {
        py::class_<PostArgs<name>, CollectivePostArgs>(module, class_is.c_str());
    } else {
        py::class_<PostArgs<name>> args(module, class_is.c_str());
        if (name == OpName::split)
            args.def_property_readonly("new_comm", [](const PostArgs<name> &self) { return self.outcome.comm; });
        if (name == OpName::new_window)
            args.def_property_readonly("new_window", [](const PostArgs<name> &self) { return self.outcome.window; });
    }
}

/* An object of Python, and what is in it. */
template <typename Args> struct ArgsObject {
    py::object object;
    Args *args = nullptr;
};

template <typename Args, typename Own> ArgsObject<Args> make_args()
{
    auto made = std::make_unique<Own>();
    Args *args = made.get();
    return {py::cast(std::move(made)), args};
}

/* One for each name is left for the next call, if no hook has kept it: to make one costs more than a hook. Belongs to
 * whoever has the GIL. */
template <typename Args> struct SpareArgs {
    ArgsObject<Args> held;
    ArgsObject<Args> (*make)();
};

/* What hooks are shown, while one lives. */
template <typename Args> class ShownArgs
{
  public:
    template <typename What>
    ShownArgs(SpareArgs<Args> &spare, const What &what)
        : spare_(spare), own_(spare.held.object ? std::exchange(spare.held, {}) : spare.make())
    {
        own_.args->show(what);
    }
    ~ShownArgs()
    {
        if (own_.object.ref_count() > 1) {
            own_.args->keep();
            return;
        }
        own_.args->clear();
        spare_.held = std::move(own_);
    }
    ShownArgs(const ShownArgs &) = delete;
    ShownArgs &operator=(const ShownArgs &) = delete;
    PyObject *object() const { return own_.object.ptr(); }

  private:
    SpareArgs<Args> &spare_;
    ArgsObject<Args> own_;
};

/* Left: the process ends after Python. */
template <size_t... i> SpareArgs<AnyPreArgs> *spare_pre_args(std::index_sequence<i...>)
{
    static auto *const table = new SpareArgs<AnyPreArgs>[n_op_names] {
        {{}, make_args<AnyPreArgs, PreArgs<OpName(i)>>}...
    };
    return table;
}

template <size_t... i> SpareArgs<CollectivePostArgs> *spare_post_args(std::index_sequence<i...>)
{
    static auto *const table = new SpareArgs<CollectivePostArgs>[n_op_names] {
        {{}, make_args<CollectivePostArgs, PostArgs<OpName(i)>>}...
    };
    return table;
}

template <size_t... i> void define_all(py::module_ &module, std::index_sequence<i...>)
{
    (define_pre<OpName(i)>(module), ...);
    py::class_<CollectivePostArgs>(module, "CollectivePostHookArgs")
        .def_property_readonly("work", [](const CollectivePostArgs &self) { return self.outcome.work; });
    (define_post<OpName(i)>(module), ...);
}

using AllNames = std::make_index_sequence<n_op_names>;

/* A function of Python, which is let go of with the GIL. */
struct Callback {
    explicit Callback(py::function f) : function(std::move(f)) {}
    ~Callback()
    {
        py::gil_scoped_acquire gil;
        function = py::function();
    }
    Callback(const Callback &) = delete;
    Callback &operator=(const Callback &) = delete;
    template <size_t n> void operator()(PyObject *const (&arguments)[n]) const
    {
        auto result = py::reinterpret_steal<py::object>(PyObject_Vectorcall(function.ptr(), arguments, n, nullptr));
        if (!result) throw py::error_already_set();
    }
    py::function function;
};

std::vector<py::object> all_names()
{
    std::vector<py::object> names;
    for (size_t i = 0; i < n_op_names; i++) names.push_back(py::cast(OpName(i)));
    return names;
}

RemovableHandle add_pre_hook(TorchComm &self, py::function callback)
{
    auto held = std::make_shared<Callback>(std::move(callback));
    static auto *const known = new std::vector<py::object>(all_names()); /* as long as the module */
    return self.register_pre_hook([held](uint64_t op_id, const Request &request) {
        py::gil_scoped_acquire gil;
        const py::int_ number(op_id);
        const ShownArgs<AnyPreArgs> args(spare_pre_args(AllNames())[size_t(request.name)], request);
        (*held)({(*known)[size_t(request.name)].ptr(), number.ptr(), args.object()});
    });
}

RemovableHandle add_post_hook(TorchComm &self, py::function callback)
{
    auto held = std::make_shared<Callback>(std::move(callback));
    return self.register_post_hook([held](uint64_t op_id, const Outcome &outcome) {
        py::gil_scoped_acquire gil;
        const py::int_ number(op_id);
        const ShownArgs<CollectivePostArgs> args(spare_post_args(AllNames())[size_t(outcome.name)], outcome);
        (*held)({number.ptr(), args.object()});
    });
}

RemovableHandle add_abort_hook(TorchComm &self, py::function callback)
{
    auto held = std::make_shared<Callback>(std::move(callback));
    return self.register_abort_hook([held] {
        py::gil_scoped_acquire gil;
        held->function();
    });
}

} // namespace

void define_comms_hooks(py::module_ &module, CommClass &comm)
{
    define_all(module, AllNames());
    py::class_<RemovableHandle>(module, "RemovableHandle", "Of a hook. Dropping it leaves the hook where it is.")
        .def("remove", &RemovableHandle::remove, "The hook is told of nothing any more.");
    comm.def("register_pre_hook", &add_pre_hook, py::arg("callback"),
             "Calls callback(name, op_id, args) before each call.")
        .def("register_post_hook", &add_post_hook, py::arg("callback"), "Calls callback(op_id, args) after each call.")
        .def("register_abort_hook", &add_abort_hook, py::arg("callback"),
             "Calls callback() once, when the communicator fails or is aborted.");
    module.def("_reset_op_ids", &reset_op_ids);
}

/* The flight recorder and the log of calls, in Python. */

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
