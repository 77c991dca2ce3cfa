/* SPDX-License-Identifier: BSD-3-Clause */

/* The Python module tutti_torch._C: the backend's class and its creation; torchcomms' API is in a module inside. */

#include "python/python.hpp"

#include "backend/backend.hpp"
#include "base/process.hpp"
#include "comm/store.hpp"
#include "comms/quantized.hpp"
#include "device/device_memory.hpp"
#include "record/recorder.hpp"

#include <thread>

namespace py = pybind11;
using tutti_torch::Backend;
using tutti_torch::Release;

/* What the base class's mem_allocator gives, of which PyTorch tells Python in its builds for GPUs only. */
static void define_allocator(py::module_ &module)
{
    if (!py::detail::get_type_info(typeid(c10::Allocator)))
        py::class_<c10::Allocator, std::shared_ptr<c10::Allocator>>(module, "Allocator");
}

/* split_group copies those of the parent. */
static void define_options(py::handle backend)
{
    auto clone = [](const Backend::Options &self) { return self.clone(); };
    py::class_<Backend::Options, c10d::Backend::Options, c10::intrusive_ptr<Backend::Options>>(backend, "Options")
        .def(py::init<std::chrono::milliseconds, const std::string &>(), py::arg("timeout") = kBackendDefaultTimeout,
             py::arg("backend") = "tutti")
        .def_property(/* which rank of this process; -1: the process is one rank */
                      "seat", [](const Backend::Options &self) { return self.place.seat; },
                      [](Backend::Options &self, int seat) { self.place.seat = seat; })
        .def_property(/* calls survive the death of ranks: docs/no_lost_step.md */
                      "survive", [](const Backend::Options &self) { return self.place.survive; },
                      [](Backend::Options &self, bool survive) { self.place.survive = survive; })
        .def_property(/* options of the library, by name */
                      "library", [](const Backend::Options &self) { return self.place.options; },
                      [](Backend::Options &self, const std::map<std::string, std::string> &options) {
                          self.place.options = options;
                      })
        .def_property(
            "is_high_priority_stream", [](const Backend::Options &self) { return self.place.high_priority; },
            [](Backend::Options &self, bool high) { self.place.high_priority = high; })
        .def("__copy__", clone)
        .def(
            "__deepcopy__", [clone](const Backend::Options &self, const py::dict &) { return clone(self); },
            py::arg("memo"));
}

static void define_backend(py::module_ &module)
{
    py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>> backend(module, "Backend");
    define_options(backend);
    backend
        /* The object is registered with the GIL held: a guard around all of it would let it go for that, too. */
        .def(py::init([](const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                         c10::intrusive_ptr<Backend::Options> options) {
                 const tutti_torch::WithoutGil without_gil;
                 return Backend::create(store, rank, size, std::move(options));
             }),
             py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"))
        /* PyTorch's own backends have these; its base class binds neither. */
        .def_property_readonly("options", &Backend::own_options)
        .def("_set_default_timeout", &Backend::setTimeout, py::arg("timeout"), Release())
        .def("_set_enable_nan_check", &Backend::check_numbers_from_now_on, py::arg("enable"))
        .def("_n_splits", &Backend::n_splits, py::arg("ranks"), Release())
        /* Whether nothing is in flight any more within the time; what is then, is aborted. */
        .def("_flush_within", &Backend::flush_within, py::arg("time"), py::arg("why_not_longer"), Release())
        .def("_failure", &Backend::failure, Release())
        /* The ranks in the result of a call that is over (of those on the host), or of the last one. */
        .def("_contributors", &Backend::contributors, py::arg("work") = nullptr, Release())
        .def("_drop_coalescing", &Backend::drop_coalescing, Release())
        .def("_serve_memory", &Backend::serve_memory, py::arg("device"), Release())
        .def("_add_windows", &Backend::add_windows, py::arg("device"), py::arg("segments"), Release())
#if TUTTI_TORCH_AT_LEAST(2, 7)
        .def("get_error", &Backend::getError, Release())
#endif
        /* Nor these, before 2.8. */
        .def("abort", &Backend::abort, Release())
        .def("shutdown", &Backend::shutdown, Release())
        /* new_group calls this on ranks outside the new group; here, they are not needed. */
        .def(
            "perform_nocolor_split", [](Backend &, const py::object &) {}, py::arg("device"));
}

/* `with Quantised("int8", block, seed):` the reductions that this thread calls within travel so. */
class QuantisedCalls
{
  public:
    QuantisedCalls(const std::string &wire, uint32_t block, uint64_t seed)
        : how_{tutti_torch::wire_named("Quantised", "wire", wire), block, seed, {}}
    {
    }
    void enter()
    {
        TORCH_CHECK(!within_, "tutti: Quantised: it is entered already");
        thread_ = std::this_thread::get_id();
        before_ = std::exchange(tutti_torch::QuantisedRegion::current, how_.wire ? &how_ : nullptr);
        within_ = true;
    }
    void leave(const py::args &)
    {
        TORCH_CHECK(thread_ == std::this_thread::get_id(), "tutti: Quantised: it was entered by another thread");
        tutti_torch::QuantisedRegion::current = before_;
        within_ = false;
    }

  private:
    tutti_torch::Quantised how_;
    const tutti_torch::Quantised *before_ = nullptr;
    bool within_ = false;
    std::thread::id thread_;
};

/* `with Algorithm("./mine.py"):` the collectives that this thread calls within go by it. A file is loaded when the
 * object is made. */
class AlgorithmCalls
{
  public:
    explicit AlgorithmCalls(const std::string &name)
    {
        const char *found = name.c_str();
        const bool is_file = name.find_first_of("/.") != std::string::npos;
        if (is_file) tutti_torch::check(tutti_algorithm_load(name.c_str(), &found));
        region_.name = found;
    }
    void enter()
    {
        TORCH_CHECK(!within_, "tutti: Algorithm: it is entered already");
        thread_ = std::this_thread::get_id();
        before_ = std::exchange(tutti_torch::AlgorithmRegion::current, &region_);
        within_ = true;
    }
    void leave(const py::args &)
    {
        TORCH_CHECK(thread_ == std::this_thread::get_id(), "tutti: Algorithm: it was entered by another thread");
        tutti_torch::AlgorithmRegion::current = before_;
        within_ = false;
    }
    const std::string &name() const { return region_.name; }

  private:
    tutti_torch::AlgorithmRegion region_;
    const tutti_torch::AlgorithmRegion *before_ = nullptr;
    bool within_ = false;
    std::thread::id thread_;
};

static void define_algorithm(py::module_ &module)
{
    py::class_<AlgorithmCalls>(module, "Algorithm")
        .def(py::init<const std::string &>(), py::arg("name"), Release())
        .def("__enter__", &AlgorithmCalls::enter)
        .def("__exit__", &AlgorithmCalls::leave)
        .def_property_readonly("name", &AlgorithmCalls::name);
}

static void define_quantised(py::module_ &module)
{
    py::class_<QuantisedCalls>(module, "Quantised")
        .def(py::init<const std::string &, uint32_t, uint64_t>(), py::arg("wire"), py::arg("block") = 0,
             py::arg("seed") = 0)
        .def("__enter__", &QuantisedCalls::enter)
        .def("__exit__", &QuantisedCalls::leave);
}

static void define_stores(py::module_ &module)
{
    using tutti_torch::OwnStore;
    using tutti_torch::StoreServer;
    py::class_<StoreServer>(module, "StoreServer")
        .def(py::init<const std::string &, uint16_t, const std::string &>(), py::arg("host") = "", py::arg("port") = 0,
             py::arg("secret") = "", Release())
        .def_property_readonly("port", &StoreServer::port);
    py::class_<OwnStore, c10d::Store, c10::intrusive_ptr<OwnStore>>(module, "OwnStore")
        .def(py::init<const std::string &, uint16_t, std::string, tutti_torch::milliseconds, const std::string &>(),
             py::arg("host"), py::arg("port"), py::arg("prefix"), py::arg("timeout"), py::arg("secret") = "",
             Release());
}

/* Its text, and the number that it stands for. */
static std::pair<std::string, uint64_t> option(const std::string &name)
{
    std::vector<char> text(1 << 16);
    uint64_t number = 0;
    tutti_torch::check(tutti_option_get(name.c_str(), text.data(), text.size(), &number));
    std::pair<std::string, uint64_t> read(text.data(), number);
    explicit_bzero(text.data(), text.size()); /* it may be the secret */
    return read;
}

/* The last calls of this process: the pickle that torchfrtrace reads. */
static py::bytes flight_recorder(bool only_active, bool include_collectives)
{
    std::string bytes;
    {
        py::gil_scoped_release release;
        bytes = tutti_torch::Recorder::get().dump(only_active, include_collectives);
    }
    return py::bytes(bytes);
}

/* Addresses of the functions of an allocator, as PyTorch's pluggable ones have. */
static std::pair<uintptr_t, uintptr_t> device_memory_functions()
{
    return {reinterpret_cast<uintptr_t>(&tutti_torch::device_memory_take),
            reinterpret_cast<uintptr_t>(&tutti_torch::device_memory_give)};
}

/* A class of exceptions that two others catch. */
static py::object exception_class(const py::module_ &module, const char *name, PyObject *one)
{
    const py::tuple bases = py::make_tuple(py::handle(one), py::handle(PyExc_RuntimeError));
    const std::string path = std::string("tutti_torch._C.") + name;
    py::object type = py::reinterpret_steal<py::object>(PyErr_NewException(path.c_str(), bases.ptr(), nullptr));
    if (!type) throw py::error_already_set();
    py::module_(module).attr(name) = type;
    return type;
}

/* The classes live as long as the process. */
static void define_exceptions(const py::module_ &module)
{
    static PyObject *value, *type;
    value = exception_class(module, "ArgumentError", PyExc_ValueError).release().ptr();
    type = exception_class(module, "ArgumentTypeError", PyExc_TypeError).release().ptr();
    py::register_exception_translator([](std::exception_ptr thrown) {
        try {
            if (thrown) std::rethrow_exception(thrown);
        } catch (const tutti_torch::Refusal &refusal) {
            PyErr_SetString(value, refusal.what_without_backtrace());
        } catch (const tutti_torch::TypeRefusal &refusal) {
            PyErr_SetString(type, refusal.what_without_backtrace());
        }
    });
}

PYBIND11_MODULE(_C, module)
{
    module.doc() = "tutti's backend for torch.distributed";
    define_exceptions(module);
    py::module_::import("torch._C._distributed_c10d"); /* the bases of the classes */
    tutti_torch::complete_operators();
    define_allocator(module);
    define_backend(module);
    define_stores(module);
    define_quantised(module);
    define_algorithm(module);
    module.def("tutti_version", &tutti_version_text);
    tutti_torch::define_crc(module);
    tutti_torch::define_gradients(module);
    module.def("option", &option, py::arg("name"));
    /* Shuts down the groups that are still there, soon: those who wait for this process are told that it left. */
    module.def("end_program", &Backend::end_program, Release());
    module.def("flight_recorder", &flight_recorder, py::arg("only_active") = false,
               py::arg("include_collectives") = true);
    module.def("device_memory_functions", &device_memory_functions);
    py::module_ comms = module.def_submodule("comms", "torchcomms' API");
    tutti_torch::define_comms(comms);
    py::module_ hooks = module.def_submodule("hooks", "what can be hung on communicators");
    tutti_torch::define_hooks(hooks);
    py::module_ ft = module.def_submodule("ft", "servers and clients of fault tolerance");
    tutti_torch::define_ft(ft);
}
