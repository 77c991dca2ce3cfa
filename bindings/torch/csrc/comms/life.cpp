/* SPDX-License-Identifier: BSD-3-Clause */

/* Communicators: made, split, ended; and what is asked of them meanwhile. */

#include "comms/comms.hpp"
#include "comms/environment.hpp"
#include "comms/hints.hpp"

#include "base/process.hpp"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <dlfcn.h>
#include <set>

namespace tutti_torch
{

CommOptions::CommOptions()
    : abort_process_on_timeout_or_error(flag_of("TORCHCOMM_ABORT_ON_ERROR", false)),
      timeout(std::chrono::seconds(number_of("TORCHCOMM_TIMEOUT_SECONDS", 600)))
{
}

/* ---- names of backends ---- */

namespace
{

struct Way {
    const char *name, *option, *value;
    const char *devices;                           /* the type that it serves; null: all */
    std::initializer_list<const char *> libraries; /* without which it is not there; of the last one */
    const char *file;                              /* ... this variable may name another file */
    const char *root = nullptr;                    /* ... or the folder above lib */
};

const Way ways[] = {
    {"flat", "backends", "flat", nullptr, {}, nullptr},
    {"engine", "backends", "off", nullptr, {}, nullptr},
    {"oneccl", "backends", "oneccl,flat", nullptr, {"libccl.so.2"}, "TUTTI_ONECCL_LIBRARY", "CCL_ROOT"},
    {"host", "gpu", "host", nullptr, {}, nullptr},
    {"cuda", "gpu", "cuda", "cuda", {"libcuda.so.1"}, nullptr},
    {"xpu", "gpu", "xpu", "xpu", {"libze_loader.so.1"}, "TUTTI_LEVEL_ZERO_LIBRARY"},
    {"nccl", "gpu", "nccl", "cuda", {"libcuda.so.1", "libnccl.so.2"}, "TUTTI_NCCL_LIBRARY"},
};

bool is_here(const Way &way)
{
    for (const char *library : way.libraries) {
        const bool last = library == way.libraries.end()[-1];
        const char *named = last && way.file ? std::getenv(way.file) : nullptr;
        const char *root = last && way.root ? std::getenv(way.root) : nullptr;
        void *opened = dlopen(named && *named ? named : library, RTLD_LAZY | RTLD_LOCAL);
        if (!opened && root) opened = dlopen((std::string(root) + "/lib/" + library).c_str(), RTLD_LAZY | RTLD_LOCAL);
        if (!opened) return false;
        dlclose(opened);
    }
    return true;
}

struct Registry {
    std::mutex lock;
    std::map<std::string, ForeignFactory> factories;
};

Registry &foreign_registry()
{
    static auto *registry = new Registry();
    return *registry;
}

ForeignFactory factory_of(const std::string &name)
{
    Registry &registry = foreign_registry();
    std::lock_guard<std::mutex> guard(registry.lock);
    auto found = registry.factories.find(name);
    return found == registry.factories.end() ? nullptr : found->second;
}

} // namespace

std::vector<std::string> built_backends()
{
    std::vector<std::string> names = {"tutti"};
    for (const Way &way : ways)
        if (is_here(way)) names.push_back(std::string("tutti:") + way.name);
    return names;
}

std::vector<std::string> registered_backends()
{
    Registry &registry = foreign_registry();
    std::lock_guard<std::mutex> guard(registry.lock);
    std::vector<std::string> names;
    for (const auto &[name, factory] : registry.factories) names.push_back(name);
    return names;
}

bool is_backend_registered(const std::string &name)
{
    const std::vector<std::string> built = built_backends();
    return factory_of(name) || std::find(built.begin(), built.end(), name) != built.end();
}

void register_backend(const std::string &name, ForeignFactory factory)
{
    TORCH_CHECK(name != "tutti" && name.rfind("tutti:", 0) != 0, "tutti: register_backend: the name '", name,
                "' is taken");
    Registry &registry = foreign_registry();
    std::lock_guard<std::mutex> guard(registry.lock);
    registry.factories[name] = std::move(factory);
}

[[noreturn]] static void refuse_backend(const std::string &name)
{
    std::vector<std::string> names = built_backends();
    for (const std::string &other : registered_backends()) names.push_back(other);
    TORCH_CHECK(false, "tutti: new_comm: there is no backend '", name, "' here, but ", c10::Join(", ", names));
}

/* "tutti:nccl": the library's option that makes it so. */
static Place place_of(const std::string &backend, c10::Device device)
{
    Place place;
    if (backend == "tutti") return place;
    for (const Way &way : ways) {
        if (backend != std::string("tutti:") + way.name || !is_here(way)) continue;
        TORCH_CHECK(!way.devices || c10::DeviceTypeName(device.type(), true) == way.devices,
                    "tutti: new_comm: backend '", backend, "' serves devices of type ", way.devices, ", not ", device);
        place.options[way.option] = way.value;
        return place;
    }
    refuse_backend(backend);
}

/* ---- creation ---- */

TorchComm::TorchComm(Made made)
    : backend_name_(std::move(made.backend_name)), name_(made.options.name), device_(made.device),
      foreign_(std::move(made.foreign)),
      fate_(std::make_shared<Fate>(made.options.abort_process_on_timeout_or_error && !made.options.enable_reconfigure
                                       ? made.options.abort_asked_by
                                       : nullptr)),
      place_(std::move(made.place)), options_(std::move(made.options)), backend_(std::move(made.backend)),
      ranks_(std::move(made.ranks))
{
    algorithms_ = hint_of(options_.hints, "algorithm");
    if (backend_) rank_ = backend_->getRank(), size_ = backend_->getSize();
    if (foreign_) rank_ = foreign_->rank(), size_ = foreign_->size();
    for (int r = int(ranks_.size()); r < size_; r++) ranks_.push_back(r);
}

c10::intrusive_ptr<Backend> backend_of(const StorePtr &store, int rank, int size, const BackendFacts &facts)
{
    auto options = c10::make_intrusive<Backend::Options>(facts.timeout);
    options->place = facts.place;
    options->dumps = false; /* hooks tell of failures here */
#if TUTTI_TORCH_AT_LEAST(2, 9)
    options->group_name = facts.name;
#endif
    c10::intrusive_ptr<Backend> backend = Backend::create(store, rank, size, std::move(options));
    backend->setGroupUid(facts.name);
    backend->settle_device(facts.device);
    return backend;
}

/* The seat of a rank that is a thread; -1: the process is the rank. */
static int seat_of(const Hints &hints, int *rank, int *size)
{
    const bool seated = hints.count("rank") > 0;
    TORCH_CHECK(seated == (hints.count("size") > 0), "tutti: new_comm: the hints \"rank\" and \"size\" go together");
    if (!seated) {
        std::tie(*rank, *size) = rank_and_size();
        return -1;
    }
    *size = int(number_hint("new_comm", hints, "size", 1, INT32_MAX, 1));
    *rank = int(number_hint("new_comm", hints, "rank", 0, *size - 1, 0));
    return *rank;
}

TorchComm::Ptr TorchComm::create(const std::string &backend, c10::Device device, const std::string &name,
                                 CommOptions options)
{
    const WithoutGil without_gil;
    options.name = name;
    Made made{backend, device, {}, {}, {}, {}, {}};
    if (ForeignFactory factory = factory_of(backend)) {
        made.foreign = factory(device, name, options);
        made.options = std::move(options);
        return born(std::move(made));
    }
    made.place = place_of(backend, device);
    check_hints("new_comm", options.hints, at_creation);
    check_algorithms("new_comm", hint_of(options.hints, "algorithm"));
    if (!options.enable_reconfigure) {
        int rank = 0, size = 1;
        made.place.seat = seat_of(options.hints, &rank, &size);
        StorePtr store = options.store ? options.store : store_of_environment(rank, size, options.timeout);
        made.backend =
            backend_of(store_for(store, name, rank), rank, size, {name, device, options.timeout, made.place});
    } else if (options.hints.count("rank")) {
        int rank = 0, size = 1;
        made.place.seat = seat_of(options.hints, &rank, &size);
    }
    made.options = std::move(options);
    return born(std::move(made));
}

TorchComm::Ptr TorchComm::split(const std::vector<int> &ranks, const std::string &name, CommOptions options)
{
    Request request{OpName::split};
    request.ranks = ranks;
    request.new_name = name;
    return between_hooks(request, [&]() -> Ptr {
        const int n = size(), me = rank();
        const std::string who = described();
        for (int r : ranks)
            TORCH_CHECK(r >= 0 && r < n, "tutti: split on ", who, ": rank ", r, " is not in [0, ", n, ")");
        TORCH_CHECK(std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size(), "tutti: split on ", who,
                    ": Duplicate ranks found in ranks list");
        if (ranks.empty()) return nullptr;
        TORCH_CHECK(std::find(ranks.begin(), ranks.end(), me) != ranks.end(), "tutti: split on ", who,
                    ": Current rank ", me, " is not included in the provided ranks list");
        return in_words("split", [&] { return child(ranks, name, std::move(options)); });
    });
}

TorchComm::Ptr TorchComm::child(const std::vector<int> &ranks, const std::string &name, CommOptions options)
{
    const WithoutGil without_gil;
    Made made{backend_name_, device_, {}, {}, {}, {}, place_};
    options.name = name;
    options.enable_reconfigure = false;
    if (foreign_) {
        made.foreign = foreign_->split(ranks, name, options);
        if (!made.foreign) return nullptr;
    } else {
        check_hints("split", options.hints, at_creation);
        check_algorithms("split", hint_of(options.hints, "algorithm"));
        auto wanted = c10::make_intrusive<Backend::Options>(options.timeout);
#if TUTTI_TORCH_AT_LEAST(2, 9)
        wanted->group_name = name;
#endif
        auto made_backend = backend()->split(nullptr, ranks, wanted);
        made.backend = c10::dynamic_intrusive_pointer_cast<Backend>(made_backend);
        made.backend->setGroupUid(name);
        made.backend->settle_device(device_);
    }
    made.options = std::move(options);
    std::lock_guard<std::mutex> guard(mutex_);
    for (int r : ranks) made.ranks.push_back(size_t(r) < ranks_.size() ? ranks_[size_t(r)] : r);
    return born(std::move(made));
}

/* ---- all of them ---- */

namespace
{

struct All {
    std::mutex lock;
    std::vector<std::weak_ptr<TorchComm>> comms;
};

All &all_comms()
{
    static auto *all = new All();
    return *all;
}

/* What it gives out is of the communicator that is the newest at that time. */
class NewestAllocator final : public c10::Allocator
{
  public:
    c10::DataPtr allocate(size_t bytes) override
    {
        const TorchComm::Ptr comm = TorchComm::newest();
        TORCH_CHECK(comm, "tutti: get_mem_allocator: there is no communicator to take memory of");
        return comm->mem_allocator()->allocate(bytes);
    }
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void *to, const void *from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

} // namespace

TorchComm::Ptr TorchComm::born(Made made)
{
    Ptr comm = std::make_shared<TorchComm>(std::move(made));
    All &all = all_comms();
    std::lock_guard<std::mutex> guard(all.lock);
    auto gone = [](const std::weak_ptr<TorchComm> &known) { return known.expired(); };
    all.comms.erase(std::remove_if(all.comms.begin(), all.comms.end(), gone), all.comms.end());
    all.comms.push_back(comm);
    return comm;
}

TorchComm::Ptr TorchComm::newest()
{
    std::vector<std::weak_ptr<TorchComm>> known;
    {
        std::lock_guard<std::mutex> guard(all_comms().lock);
        known = all_comms().comms;
    }
    for (auto weak = known.rbegin(); weak != known.rend(); ++weak) {
        Ptr comm = weak->lock();
        if (comm && !comm->foreign_ && !comm->is_finalized()) return comm;
    }
    return nullptr;
}

std::shared_ptr<c10::Allocator> mem_allocator_of(const std::string &backend)
{
    static const auto allocator = std::make_shared<NewestAllocator>();
    if (backend != "tutti" && backend.rfind("tutti:", 0) != 0) refuse_backend(backend);
    return allocator;
}

/* ---- what is asked of it ---- */

c10::intrusive_ptr<Backend> TorchComm::backend() const
{
    const auto guard = settled();
    if (C10_LIKELY(backend_.defined())) return backend_;
    TORCH_CHECK(!foreign_, "tutti: communicator '", name_, "' is one of backend '", backend_name_, "'");
    TORCH_CHECK(!finalized_, "tutti: communicator '", name_, "' is finalized already");
    TORCH_CHECK(false, "tutti: communicator '", name_, "' has no members: call reconfigure first");
}

int TorchComm::rank() const
{
    const auto guard = settled();
    return rank_;
}

int TorchComm::size() const
{
    const auto guard = settled();
    return size_;
}

std::vector<int> TorchComm::ranks() const
{
    const auto guard = settled();
    return ranks_;
}

const char *TorchComm::backend_version() const
{
    TORCH_CHECK(!foreign_, "tutti: backend '", backend_name_, "' does not say its version");
    return tutti_version_text();
}

CommOptions TorchComm::options() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return options_;
}

std::shared_ptr<c10::Allocator> TorchComm::mem_allocator()
{
    return in_words("get_mem_allocator", [&] { return backend()->getMemAllocator(); });
}

void TorchComm::set_timeout(milliseconds timeout)
{
    TORCH_CHECK(timeout.count() > 0, "tutti: set_timeout on ", described(), ": the timeout must be more than 0, not ",
                timeout.count(), " ms");
    c10::intrusive_ptr<Backend> backend;
    {
        const auto guard = settled();
        options_.timeout = timeout;
        backend = backend_;
    }
    if (backend) backend->setTimeout(timeout);
    if (foreign_) foreign_->set_timeout(timeout);
}

void TorchComm::set_hints(const Hints &hints)
{
    check_hints("set_hints", hints, in_set_hints);
    check_algorithms("set_hints", hint_of(hints, "algorithm"));
    std::lock_guard<std::mutex> guard(mutex_);
    for (const auto &[name, value] : hints) options_.hints[name] = value;
    algorithms_ = hint_of(options_.hints, "algorithm");
}

/* ---- memory that is told beforehand ---- */

void TorchComm::tensor_register(const Tensor &tensor)
{
    check_contiguous("tensor_register", "tensor", tensor);
    const c10::intrusive_ptr<Backend> backend = this->backend();
    std::lock_guard<std::mutex> guard(mutex_);
    for (const Registered &known : registered_)
        TORCH_CHECK(known.tensor.data_ptr() != tensor.data_ptr(), "tutti: tensor_register: it is registered already");
    Registered made{tensor, backend->host_comm(), nullptr};
    if (tensor.device().is_cpu() && tensor.nbytes() > 0)
        check(tutti_mem_register(made.comm->handle(), tensor.data_ptr(), tensor.nbytes(), &made.memory));
    registered_.push_back(std::move(made));
}

void TorchComm::tensor_deregister(const Tensor &tensor)
{
    std::lock_guard<std::mutex> guard(mutex_);
    auto is_it = [&](const Registered &known) { return known.tensor.data_ptr() == tensor.data_ptr(); };
    auto found = std::find_if(registered_.begin(), registered_.end(), is_it);
    TORCH_CHECK(found != registered_.end(), "tutti: tensor_deregister on communicator '", name_,
                "': the tensor is not registered");
    tutti_mem_deregister(found->memory);
    registered_.erase(found);
}

void TorchComm::deregister_all()
{
    std::vector<Registered> all;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        all.swap(registered_);
    }
    for (const Registered &each : all) tutti_mem_deregister(each.memory);
}

/* ---- the end ---- */

void TorchComm::finalize()
{
    const WithoutGil without_gil;
    settled();
    pre_hooks_.tell(SIZE_MAX, Request{OpName::finalize});
    c10::intrusive_ptr<Backend> backend;
    {
        const auto guard = settled();
        TORCH_CHECK(!finalized_, "tutti: finalize: communicator '", name_, "' is finalized already");
        finalized_ = true;
        backend.swap(backend_);
        own_store_.reset();
    }
    deregister_all();
    if (backend) backend->shutdown();
    if (foreign_) foreign_->finalize();
    post_hooks_.tell(SIZE_MAX, Outcome{OpName::finalize});
}

bool TorchComm::is_finalized() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return finalized_;
}

TorchComm::~TorchComm()
{
    if (finalized_) return;
    if (backend_ || foreign_)
        TORCH_WARN("tutti: communicator '", name_,
                   "' was destroyed without finalize(); its calls in flight are waited for");
    deregister_all();
}

} // namespace tutti_torch
