/* SPDX-License-Identifier: BSD-3-Clause */

/* New members for a communicator, and the abort of those that it has, or is about to have. Each process serves a store
 * of its own, whose address is in its handle; those who are to become one communicator meet in the store of the first
 * of them. So nothing that is needed was made by somebody who may be gone, and processes that joined later are found
 * like all others. */

#include "comms/comms.hpp"
#include "comms/environment.hpp"
#include "comms/hints.hpp"

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <random>
#include <set>
#include <thread>
#include <unistd.h>

namespace tutti_torch
{

/* "tutti:<process>-<number>:<host>:<port>" */
static constexpr const char *handle_prefix = "tutti:";

static std::string unique_word()
{
    static std::atomic<uint32_t> last{0};
    return c10::str(getpid(), "-", ++last, "-", std::random_device()());
}

static std::string address_of(const InitHandle &handle)
{
    const std::string prefix = handle_prefix;
    const size_t colon = handle.find(':', prefix.size());
    TORCH_CHECK(handle.rfind(prefix, 0) == 0 && colon != std::string::npos, "tutti: reconfigure: '", handle,
                "' is no handle of get_init_handle");
    return handle.substr(colon + 1);
}

InitHandle TorchComm::init_handle()
{
    const WithoutGil without_gil;
    TORCH_CHECK(!foreign_, "tutti: get_init_handle: backend '", backend_name_, "' can not be reconfigured");
    std::lock_guard<std::mutex> guard(mutex_);
    TORCH_CHECK(!finalized_, "tutti: get_init_handle: communicator '", name_, "' is finalized already");
    if (!own_store_) {
        auto [store, address] = serve_store(hint_of(options_.hints, "hostname"), options_.timeout);
        own_store_ = std::move(store);
        init_handle_ = c10::str(handle_prefix, unique_word(), ":", address);
    }
    return init_handle_;
}

/* What reconfigure returns: its end is that of a future. */
class Reconfiguration final : public TorchWork
{
  public:
    explicit Reconfiguration(std::shared_future<void> done) : done_(std::move(done)) {}

    Status status() override
    {
        if (done_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return Status::INPROGRESS;
        try {
            done_.get();
        } catch (const std::exception &) {
            return Status::ERROR;
        }
        return Status::COMPLETED;
    }
    void wait() override
    {
        const WithoutGil without_gil;
        tell_waits();
        while (done_.wait_for(signals_every) != std::future_status::ready) check_signals();
        done_.get();
    }
    void wait_blocking() override { wait(); }
    void on_end(Callback callback) override
    {
        std::thread([done = done_, callback = std::move(callback)] {
            done.wait();
            callback();
        }).detach();
    }

  private:
    const std::shared_future<void> done_;
};

struct TorchComm::Change {
    std::promise<void> promise; /* kept by who takes the change from the communicator */
    const std::shared_future<void> done{promise.get_future()};
    std::atomic<bool> given_up{false};
    c10::intrusive_ptr<Backend> old; /* while its calls end; the communicator's mutex guards it */
};

/* With mutex_ taken, and no change under way. */
std::unique_lock<std::mutex> TorchComm::settled() const
{
    for (;;) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (C10_LIKELY(!change_)) return lock;
        const std::shared_future<void> done = change_->done;
        lock.unlock();
        const WithoutGil without_gil;
        while (done.wait_for(signals_every) != std::future_status::ready) check_signals();
    }
}

/* From now on there are no members. */
std::shared_ptr<TorchComm::Change> TorchComm::begin_change(int64_t uuid)
{
    auto change = std::make_shared<Change>();
    const auto guard = settled();
    TORCH_CHECK(!finalized_, "tutti: reconfigure: communicator '", name_, "' is finalized already");
    TORCH_CHECK(uuids_.insert(uuid).second, "tutti: reconfigure of communicator '", name_, "': the uuid ", uuid,
                " was used before");
    change->old.swap(backend_);
    rank_ = size_ = -1;
    ranks_.clear();
    aborted_ = false;
    change_ = change;
    return change;
}

/* By a thread of its own. */
c10::intrusive_ptr<Backend> TorchComm::new_members(const ReconfigureOptions &options, size_t place, Change &change)
{
    const UntilGivenUp until(change.given_up);
    StorePtr own;
    milliseconds timeout;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        own = own_store_;
        timeout = options.timeout.value_or(options_.timeout);
    }
    if (change.old) {
        deregister_all();
        change.old->flush_within(timeout / 2, "its communicator is reconfigured");
        change.old->shutdown();
        c10::intrusive_ptr<Backend> ended;
        std::lock_guard<std::mutex> guard(mutex_);
        ended.swap(change.old);
    }
    const StorePtr meeting = place == 0 ? own : connect_store(address_of(options.handles[0]), timeout);
    const StorePtr store =
        c10::make_intrusive<c10d::PrefixStore>(c10::str("reconfigure/", name_, "/", options.uuid), meeting);
    return backend_of(store, int(place), int(options.handles.size()), {name_, device_, timeout, place_});
}

/* False: it was given up, and who did that has told so. */
bool TorchComm::end_change(const std::shared_ptr<Change> &change, c10::intrusive_ptr<Backend> made)
{
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (change_ == change) {
            change_.reset();
            if (!made) return true;
            made->setTimeout(options_.timeout);
            fate_->renew();
            rank_ = made->getRank();
            size_ = made->getSize();
            for (int r = 0; r < size_; r++) ranks_.push_back(r);
            backend_ = std::move(made);
            return true;
        }
    }
    if (made) made->abort(); /* the others have this rank among them */
    return false;
}

TorchComm::WorkPtr TorchComm::reconfigure(ReconfigureOptions options)
{
    const InitHandle own = init_handle();
    const std::string who = c10::str("tutti: reconfigure of communicator '", name_, "': ");
    check_hints("reconfigure", options.hints, at_creation);
    if (!options.ordered) std::sort(options.handles.begin(), options.handles.end());
    for (const InitHandle &handle : options.handles) address_of(handle);
    TORCH_CHECK(std::set<InitHandle>(options.handles.begin(), options.handles.end()).size() == options.handles.size(),
                who, "a handle is given twice");
    const auto place = std::find(options.handles.begin(), options.handles.end(), own);
    TORCH_CHECK(place != options.handles.end(), who, "this rank's handle is not among the ", options.handles.size(),
                " given");
    std::shared_ptr<Change> change = begin_change(options.uuid);
    WorkPtr work = c10::make_intrusive<Reconfiguration>(change->done);
    const size_t index = size_t(place - options.handles.begin());
    std::thread([self = shared_from_this(), options = std::move(options), change = std::move(change), index]() mutable {
        c10::intrusive_ptr<Backend> made;
        std::exception_ptr failed;
        try {
            made = self->new_members(options, index, *change);
        } catch (...) {
            failed = std::current_exception();
        }
        const bool is_ours = self->end_change(change, std::move(made));
        self.reset();
        if (!is_ours) return;
        if (failed)
            change->promise.set_exception(failed);
        else
            change->promise.set_value();
    }).detach();
    return work;
}

/* ---- abort ---- */

static std::exception_ptr given_up(const std::string &name)
{
    try {
        C10_THROW_ERROR(DistBackendError, c10::str("tutti: reconfigure of communicator '", name,
                                                   "': this rank aborted it before all members had come"));
    } catch (...) {
        return std::current_exception();
    }
}

void TorchComm::abort()
{
    TORCH_CHECK(!foreign_, "tutti: abort: backend '", backend_name_, "' can not");
    c10::intrusive_ptr<Backend> backend;
    std::shared_ptr<Change> change;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        change.swap(change_);
        backend = change ? change->old : backend_;
        if (change) change->given_up = true;
        aborted_ = true;
    }
    if (backend) backend->abort();
    if (change) change->promise.set_exception(given_up(name_));
    fate_->tell_hooks();
}

/* That another rank aborted is for a rank that calls: before its first call, it has a communicator that it can abort.
 */
bool TorchComm::is_aborted() const
{
    c10::intrusive_ptr<Backend> backend;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        backend = backend_;
    }
    if (!backend) return aborted_;
    if (backend->state() >= 0) return false;
    tutti_error error;
    tutti_comm_state(backend->host_comm()->handle(), &error);
    const bool by_another = error.status == TUTTI_ERR_ABORTED && error.peer != backend->getRank();
    return aborted_ || !by_another || backend->getSequenceNumberForGroup() > 0;
}

} // namespace tutti_torch
