/* SPDX-License-Identifier: BSD-3-Clause */

/* Backends that programs write in Python: classes under TorchCommBackend, with torchcomms' methods. A method returns
 * None when it is done, or something with wait(). */

#include "python/python.hpp"

#include "comms/comms.hpp"

namespace tutti_torch
{
namespace
{

/* The base class; it has no state of its own. */
struct TorchCommBackend {
};

/* A thing of Python that may be let go of on any thread. */
class Held
{
  public:
    explicit Held(py::object object) : object_(std::move(object)) {}
    ~Held()
    {
        py::gil_scoped_acquire gil;
        object_ = py::object();
    }
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;
    const py::object &get() const { return object_; }

  private:
    py::object object_;
};

class PythonWork final : public TorchWork
{
  public:
    explicit PythonWork(py::object work) : work_(std::make_shared<Held>(std::move(work))) {}

    Status status() override
    {
        if (waited_) return Status::COMPLETED;
        py::gil_scoped_acquire gil;
        if (!py::hasattr(work_->get(), "is_completed")) return Status::INPROGRESS;
        return work_->get().attr("is_completed")().cast<bool>() ? Status::COMPLETED : Status::INPROGRESS;
    }
    void wait() override
    {
        tell_waits();
        py::gil_scoped_acquire gil;
        work_->get().attr("wait")();
        waited_ = true;
    }
    void wait_blocking() override
    {
        tell_waits();
        py::gil_scoped_acquire gil;
        work_->get().attr(py::hasattr(work_->get(), "wait_blocking") ? "wait_blocking" : "wait")();
        waited_ = true;
    }
    void on_end(Callback callback) override { callback(); }

  private:
    const std::shared_ptr<Held> work_;
    std::atomic<bool> waited_{false};
};

c10::intrusive_ptr<TorchWork> work_of(py::object result)
{
    if (result.is_none()) return c10::make_intrusive<TorchWork>();
    if (py::isinstance<TorchWork>(result)) return result.cast<c10::intrusive_ptr<TorchWork>>();
    return c10::make_intrusive<PythonWork>(std::move(result));
}

void append(py::list &list, char letter, const Request &request)
{
    switch (letter) {
    case 't':
    case 'i':
        return list.append(request.inputs.at(0));
    case 'o':
        return list.append(request.outputs.at(0));
    case 'I':
        return list.append(request.inputs);
    case 'O':
        return list.append(request.outputs);
    case 'p':
        return list.append(request.peer);
    case 'r':
        return list.append(request.op);
    case 's':
        return list.append(request.output_splits);
    default:
        list.append(request.input_splits);
    }
}

class PythonBackend final : public ForeignBackend
{
  public:
    explicit PythonBackend(py::object object) : object_(std::move(object)) {}

    c10::intrusive_ptr<TorchWork> run(const Request &request) override
    {
        py::gil_scoped_acquire gil;
        py::list list;
        for (const char *letter = row_of(request.name).form; *letter; letter++) append(list, *letter, request);
        list.append(request.async_op);
        return work_of(object_.get().attr(text_of(request.name))(*py::tuple(list)));
    }
    std::shared_ptr<ForeignBackend> split(const std::vector<int> &ranks, const std::string &name,
                                          const CommOptions &options) override
    {
        py::gil_scoped_acquire gil;
        py::object made = object_.get().attr("split")(ranks, name, options);
        return made.is_none() ? nullptr : std::make_shared<PythonBackend>(std::move(made));
    }
    void finalize() override
    {
        py::gil_scoped_acquire gil;
        object_.get().attr("finalize")();
    }
    int rank() const override { return number("get_rank"); }
    int size() const override { return number("get_size"); }
    void set_timeout(milliseconds timeout) override
    {
        py::gil_scoped_acquire gil;
        object_.get().attr("set_timeout")(timeout);
    }
    const py::object &object() const { return object_.get(); }

  private:
    int number(const char *method) const
    {
        py::gil_scoped_acquire gil;
        return object_.get().attr(method)().cast<int>();
    }

    const Held object_;
};

void register_class(const std::string &name, py::object backend_class)
{
    auto held = std::make_shared<Held>(std::move(backend_class));
    register_backend(name, [held](c10::Device device, const std::string &comm_name, const CommOptions &options) {
        py::gil_scoped_acquire gil;
        py::object made = held->get()();
        made.attr("init")(device, comm_name, options);
        return std::shared_ptr<ForeignBackend>(std::make_shared<PythonBackend>(std::move(made)));
    });
}

} // namespace

void define_comms_backends(py::module_ &module)
{
    py::class_<TorchCommBackend>(module, "TorchCommBackend", py::dynamic_attr(),
                                 "Base of backends that are written in Python.")
        .def(py::init<>());
    py::class_<ForeignBackend, std::shared_ptr<ForeignBackend>>(module, "_ForeignBackend")
        .def_property_readonly(
            "object", [](const ForeignBackend &self) { return dynamic_cast<const PythonBackend &>(self).object(); });
    module.def("register_backend", &register_class, py::arg("name"), py::arg("backend_class"),
               "new_comm(name, ...) makes communicators of this class.");
    module.def("_is_backend_registered", &is_backend_registered, py::arg("name"));
    module.def("built_backends", &built_backends, Release(), "The names that new_comm takes here.");
    module.def(
        "is_backend_built",
        [](const std::string &name) {
            const std::vector<std::string> names = built_backends();
            return std::find(names.begin(), names.end(), name) != names.end();
        },
        py::arg("backend"), Release());
}

} // namespace tutti_torch
