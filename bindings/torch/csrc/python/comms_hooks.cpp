/* SPDX-License-Identifier: BSD-3-Clause */

/* Hooks in Python. What they are told is an object with a class for each call, whose attributes are those of
 * torchcomms. The attributes are read from the request when they are asked for. */

#include "python/python.hpp"

#include "comms/comms.hpp"
#include "comms/window.hpp"

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

constexpr bool is_message(OpName name)
{
    return name == OpName::send || name == OpName::recv;
}

constexpr bool is_in_place(OpName name)
{
    return is_message(name) || name == OpName::broadcast || name == OpName::all_reduce || name == OpName::reduce;
}

constexpr bool is_reduction(OpName name)
{
    return name == OpName::all_reduce || name == OpName::reduce || name == OpName::reduce_scatter ||
           name == OpName::reduce_scatter_v || name == OpName::reduce_scatter_single;
}

constexpr bool is_rooted(OpName name)
{
    return name == OpName::broadcast || name == OpName::reduce || name == OpName::scatter || name == OpName::gather ||
           name == OpName::gather_single;
}

constexpr bool has_input_list(OpName name)
{
    return name == OpName::reduce_scatter || name == OpName::reduce_scatter_v || name == OpName::all_to_all ||
           name == OpName::scatter;
}

constexpr bool has_output_list(OpName name)
{
    return name == OpName::all_gather || name == OpName::all_gather_v || name == OpName::all_to_all ||
           name == OpName::gather;
}

constexpr bool is_collective(OpName name)
{
    return name < OpName::split;
}

template <typename Args> void tensor_or_list(py::class_<Args> &args, const char *name, Tensors Request::*list, bool all)
{
    if (all)
        attribute(args, name, [list](const Request &request) { return request.*list; });
    else
        attribute(args, name, [list](const Request &request) { return (request.*list).at(0); });
}

template <OpName name> void define_pre(py::module_ &module)
{
    py::class_<PreArgs<name>> args(module, class_name(name, "PreHookArgs").c_str());
    if (is_in_place(name)) {
        attribute(args, "tensor", [](const Request &r) { return (r.inputs.empty() ? r.outputs : r.inputs).at(0); });
    } else if (is_collective(name) && name != OpName::barrier) {
        tensor_or_list(args, "input", &Request::inputs, has_input_list(name));
        tensor_or_list(args, "output", &Request::outputs, has_output_list(name));
    }
    if (is_message(name)) attribute(args, "peer", [](const Request &r) { return r.peer; });
    if (is_rooted(name)) attribute(args, "root", [](const Request &r) { return r.peer; });
    if (is_reduction(name)) attribute(args, "op", [](const Request &r) { return r.op; });
    if (name == OpName::all_to_all_v_single) {
        attribute(args, "input_split_sizes", [](const Request &r) { return r.input_splits; });
        attribute(args, "output_split_sizes", [](const Request &r) { return r.output_splits; });
    }
    if (name == OpName::batch_op_issue) attribute(args, "num_ops", [](const Request &r) { return r.parts.size(); });
    if (name == OpName::split) {
        attribute(args, "ranks", [](const Request &r) { return r.ranks; });
        attribute(args, "name", [](const Request &r) { return r.new_name; });
    }
    if (is_collective(name) || name == OpName::batch_op_issue)
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
    if constexpr (is_collective(name) || name == OpName::batch_op_issue) {
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

} // namespace tutti_torch
