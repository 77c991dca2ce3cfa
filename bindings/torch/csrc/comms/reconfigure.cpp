/* SPDX-License-Identifier: BSD-3-Clause */

/* New members for a communicator. Each process serves a store of its own, whose address is in its handle; those who are
 * to become one communicator meet in the store of the first of them. So nothing that is needed was made by somebody who
 * may be gone, and processes that joined later are found like all others. */

#include "comms/environment.hpp"
#include "comms/hints.hpp"
#include "comms/life.hpp"

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

void TorchComm::await_reconfigured() const
{
    if (C10_LIKELY(!pending_.load(std::memory_order_acquire))) return;
    const WithoutGil without_gil;
    std::shared_future<void> done;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        done = reconfigured_;
    }
    while (done.valid() && done.wait_for(signals_every) != std::future_status::ready) check_signals();
}

/* By a thread of its own. */
void TorchComm::replace_backend(const ReconfigureOptions &options, size_t place)
{
    c10::intrusive_ptr<Backend> old;
    StorePtr own;
    milliseconds timeout;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        old.swap(backend_);
        own = own_store_;
        timeout = options.timeout.value_or(options_.timeout);
        rank_ = size_ = -1;
        ranks_.clear();
    }
    if (old) {
        deregister_all();
        old->flush_within(timeout / 2, "its communicator is reconfigured");
        old->shutdown();
        old.reset();
    }
    const StorePtr meeting = place == 0 ? own : connect_store(address_of(options.handles[0]), timeout);
    const StorePtr store =
        c10::make_intrusive<c10d::PrefixStore>(c10::str("reconfigure/", name_, "/", options.uuid), meeting);
    c10::intrusive_ptr<Backend> made =
        backend_of(store, int(place), int(options.handles.size()), {name_, device_, timeout, place_});
    std::lock_guard<std::mutex> guard(mutex_);
    made->setTimeout(options_.timeout);
    fate_->renew();
    aborted_ = false;
    rank_ = int(place);
    size_ = int(options.handles.size());
    for (int r = 0; r < size_; r++) ranks_.push_back(r);
    backend_ = std::move(made);
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
    await_reconfigured();
    std::promise<void> promise;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        TORCH_CHECK(uuids_.insert(options.uuid).second, who, "the uuid ", options.uuid, " was used before");
        reconfigured_ = promise.get_future().share();
        pending_ = true;
    }
    WorkPtr work = c10::make_intrusive<Reconfiguration>(reconfigured_);
    const size_t index = size_t(place - options.handles.begin());
    std::thread([self = shared_from_this(), options = std::move(options), promise = std::move(promise),
                 index]() mutable {
        std::exception_ptr failed;
        try {
            self->replace_backend(options, index);
        } catch (...) {
            failed = std::current_exception();
        }
        self->pending_ = false;
        self.reset();
        if (failed)
            promise.set_exception(failed);
        else
            promise.set_value();
    }).detach();
    return work;
}

} // namespace tutti_torch
