/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room backend: the backend "tutti", a c10d::Backend over one communicator. Uses all rooms but comms and python.
 *
 * Begin here, then read submit() in backend.cpp: torch.distributed's methods (methods.cpp) and torchcomms' API make
 * requests, a request becomes a Call, and submit() alone starts calls. Methods that a version of torch lacks are
 * ordinary methods there. */

#include "base/compat.hpp"
#include "device/device_comm.hpp"
#include "work/operation.hpp"
#include "work/worker.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

namespace tutti_torch
{

/* While one is current, reductions that this thread asks torch.distributed for are quantised so. */
struct QuantisedRegion {
    static thread_local const Quantised *current;
};

/* While one is current, collectives that this thread asks torch.distributed for go by this algorithm, where it has
 * their kind. */
struct AlgorithmRegion {
    std::string name;
    static thread_local const AlgorithmRegion *current;
};

class Backend : public c10d::Backend
{
  public:
    struct Options : c10d::Backend::Options {
        /* The name is the one that the program said, where tutti stands in for another backend. */
        explicit Options(milliseconds timeout = kBackendDefaultTimeout, const std::string &name = "tutti");
        c10::intrusive_ptr<c10d::Backend::Options> clone() const;
        Place place;       /* its communicators', and that of groups that are split from it */
        bool dumps = true; /* a failure has the flight recorder written, unless the variables say otherwise */
    };
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    using TensorLists = std::vector<Tensors>;

    /* Blocks until all ranks of the group have come. */
    static c10::intrusive_ptr<Backend> create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                                              c10::intrusive_ptr<Options> options);
    Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<Options> options,
            std::shared_ptr<Comm> comm);
    ~Backend() override;

    /* ---- who it is, what it can ---- */
    const std::string getBackendName() const override { return "tutti"; }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions();
    const c10::intrusive_ptr<Options> &own_options() const { return options_; }
    bool supportsSplitting() const { return true; }
    bool supportsCoalescing() const { return true; }
    bool supportsShrinking() const { return true; }
    bool supportsTensorAlloc(c10::DeviceIndex) { return true; }
    void setTimeout(milliseconds timeout);
    void setGroupUid(const std::string &uid);
    /* Every rank of the group does this with its device: their first calls need not meet any more. */
    void eagerConnectSingleDevice(at::Device device) override;
    void setSequenceNumberForGroup() override {} /* numbers start at 0 on every rank */
    uint64_t getSequenceNumberForGroup() override;

    /* ---- collectives (methods.cpp) ---- */
    WorkPtr broadcast(Tensors &, const c10d::BroadcastOptions & = {}) override;
    WorkPtr allreduce(Tensors &, const c10d::AllreduceOptions & = {}) override;
    WorkPtr allreduce_sparse(Tensors &, const c10d::AllreduceOptions & = {}) override;
    WorkPtr allreduce_coalesced(Tensors &, const c10d::AllreduceCoalescedOptions & = {}) override;
    WorkPtr reduce(Tensors &, const c10d::ReduceOptions & = {}) override;
    WorkPtr allgather(TensorLists &, Tensors &, const c10d::AllgatherOptions & = {}) override;
    WorkPtr _allgather_base(Tensor &, Tensor &, const c10d::AllgatherOptions & = {}) override;
    WorkPtr allgather_coalesced(TensorLists &, Tensors &, const c10d::AllgatherOptions & = {}) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &, Tensors &, const c10d::AllgatherOptions & = {}) override;
    WorkPtr gather(TensorLists &, Tensors &, const c10d::GatherOptions & = {}) override;
    WorkPtr gather_into_tensor(Tensor &, Tensor &, const c10d::GatherOptions & = {});
    WorkPtr scatter(Tensors &, TensorLists &, const c10d::ScatterOptions & = {}) override;
    WorkPtr reduce_scatter(Tensors &, TensorLists &, const c10d::ReduceScatterOptions & = {}) override;
    WorkPtr _reduce_scatter_base(Tensor &, Tensor &, const c10d::ReduceScatterOptions & = {}) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &, Tensors &, const c10d::ReduceScatterOptions & = {}) override;
    WorkPtr alltoall_base(Tensor &, Tensor &, std::vector<int64_t> &, std::vector<int64_t> &,
                          const c10d::AllToAllOptions & = {}) override;
    WorkPtr alltoall(Tensors &, Tensors &, const c10d::AllToAllOptions & = {}) override;
    WorkPtr barrier(const c10d::BarrierOptions & = {}) override;
    void monitoredBarrier(const c10d::BarrierOptions &, bool wait_all_ranks = false) override;

    /* ---- point to point, coalescing ---- */
    WorkPtr send(Tensors &, int dest, int tag) override;
    WorkPtr recv(Tensors &, int source, int tag) override;
    WorkPtr recvAnysource(Tensors &, int tag) override;
    void startCoalescing() override;
    WorkPtr endCoalescing() override;
    void drop_coalescing(); /* an error left the region: nothing of it is started */

    /* ---- groups (groups.cpp) ---- */
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &, const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<c10d::Backend::Options> &);
    uint64_t n_splits(const std::vector<int> &ranks) const; /* how often these ranks became a group so far */
    c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store> &,
                                            const c10::intrusive_ptr<c10d::Backend::Options> &, const int &rank,
                                            const int &size);
    c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t> &exclude, int flags = 0,
                                             const c10::intrusive_ptr<c10d::Backend::Options> & = nullptr);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    bool supportsReconfigure() const override
    {
        return true;
    }
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    WorkPtr reconfigure(const c10d::ReconfigureOptions &) override;
#endif

    /* ---- errors, the end ---- */
    void abort();
    /* Waits for the calls in flight, for as long as there is patience; throws what signal handlers throw. Then the
     * other ranks know that this one left. */
    void shutdown();
    /* Remembers it until it goes. */
    static c10::intrusive_ptr<Backend> end_with_program(c10::intrusive_ptr<Backend>);
    /* Shuts down those that are still there, soon, as the program ends. */
    static void end_program();
#if TUTTI_TORCH_AT_LEAST(2, 7)
    c10d::ErrorType getError();
#endif

    /* ---- hooks, timing ---- */
    void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) override;
    void waitForPendingWorks() override;
    void enableCollectivesTiming() override
    {
        timed_.store(true, std::memory_order_relaxed);
    }

    /* Whether calls whose input has a NaN are refused; as the variables say, unless somebody says. */
    void check_numbers_from_now_on(bool wanted)
    {
        numbers_checked_by_ = wanted ? "_set_enable_nan_check(True)" : nullptr;
    }

    /* ---- memory that all ranks of the host can map (memory.cpp) ---- */
    std::shared_ptr<c10::Allocator> getMemAllocator();
    /* Memory of that CUDA device comes from this group (device_memory.hpp). Collective, if it is the first that the
     * group hears of the device. */
    void serve_memory(c10::DeviceIndex index);
    /* Collective: these segments of it are where calls find them on all ranks; the same sizes in the same order. */
    void add_windows(c10::DeviceIndex index, const std::vector<uintptr_t> &segments);
    at::Tensor allocateTensor(long size, at::TensorOptions options = {});

    int64_t current_rank() const
    {
        return rank_;
    }

    /* ---- for whoever makes calls of his own (comms) ---- */
    /* Starts the call, or keeps it for the end of the coalesced region; waits for it unless it is asynchronous. */
    WorkPtr submit(Call call);
    /* The call of a request on this group. */
    Call prepare(Request &&request);
    /* Both. */
    WorkPtr run(Request &&request);
    /* The same for several calls that start together; inside a coalesced region they join it. */
    WorkPtr submit_all(c10d::OpType type, const char *name, std::vector<Call> calls);
    /* Collective: every rank says what device its tensors are on, and has it from now on. All on CUDA: as
     * eagerConnectSingleDevice. Some: calls mix the host's memory and devices'. Throws where a way that the place
     * forces is not there. */
    void settle_device(c10::Device device);
    std::optional<c10::Device> own_device() const;     /* that of settle_device */
    std::shared_ptr<Comm> host_comm() const;           /* throws after shutdown */
    std::shared_ptr<Comm> comm_of(c10::Device device); /* on which calls on its tensors are */
    /* Collective: where a window is made to which this rank brings memory of the device, and what others bring. */
    struct WindowPlace {
        std::shared_ptr<Comm> comm;
        std::vector<c10::DeviceType> parts;
    };
    WindowPlace place_of_window(c10::Device device);
    tutti_status state() const;  /* the first error of its communicators */
    std::string failure() const; /* ... in its sentence; "" while there is none */
    /* Ranks whose contributions the result of a call holds, one of the last 64 that are over; null: the last one. */
    std::vector<int> contributors(const WorkPtr &work) const;
    /* False: calls are still in flight, and are aborted now. */
    bool flush_within(milliseconds time, const char *why_not_longer);

    void release_resources() override;

  private:
    Seat seat() const
    {
        return {rank_, size_};
    }
    WorkPtr run_sparse(Request request, const Tensors &targets);
    /* Carries a collective on the host's memory out before it returns. False: nothing was done. */
    bool at_once(const Call &call);

    /* ---- how calls start (backend.cpp); these with mutex_ held ---- */
    using Device = std::shared_ptr<DeviceComm>; /* null: the host */
    Operation::Ptr make_operation(Call call, const Device &device, bool is_member = false);
    WorkPtr join_region(const Device &device, std::vector<Call> calls);
    /* Release the guard before they wait. */
    WorkPtr begin(std::unique_lock<std::mutex> &guard, const Operation::Ptr &operation);
    WorkPtr begin_group(std::unique_lock<std::mutex> &guard, Call head, const Device &device,
                        std::vector<Operation::Ptr> members);
    /* Nobody gets a handle of the call, and nobody wants to be told of its end. */
    bool leaves_nothing(const Call &call) const;
    void leave_nothing(DeviceComm &device, const Call &call);
    void note(Operation &operation); /* in the flight recorder */
    uint64_t note(const Call &call, uint64_t seq, bool begun = false);
    const std::shared_ptr<Comm> &live() const; /* throws after shutdown */
    void hook(Operation &operation);
    void unhook(Operation &operation);
    /* Operations that are unpacked whenever somebody sees their end. */
    void remember_unpacking(const Operation::Ptr &operation);
    std::function<void()> finish_unpacking(); /* without mutex_ */

    /* ---- native devices (devices.cpp) ---- */
    /* The way to the device of the call's tensors, with mutex_ taken: nothing ends before it is given back. Null, and
     * mutex_ is free, when they are the host's, or go through it. */
    Device device_of_call(const Call &call, std::unique_lock<std::mutex> &guard);
    Device device_comm(c10::Device device);
    Device open_device(c10::Device device, int peer);
    void mix_devices(c10::Device device);
    Device device_with_memory(c10::DeviceIndex index);
    int peer_of(const Call &call) const; /* with mutex_ held, as the next one */
    bool goes_through_host(c10::Device device) const;

    WorkPtr completed_work() const;
    bool is_coalescing() const;
    std::vector<std::shared_ptr<Comm>> comms() const; /* the host's, and those of devices; none after shutdown */

    const Origin origin_;
    c10::intrusive_ptr<c10d::Store> store_;
    c10::intrusive_ptr<Options> options_;

    mutable std::mutex mutex_; /* all below; held while a call is started, so that numbers follow the order of calls */
    std::shared_ptr<Comm> comm_;               /* null after shutdown */
    std::shared_ptr<const std::string> group_; /* its name, for errors */
    std::shared_ptr<c10::Allocator> allocator_;
    std::map<std::vector<int>, uint64_t> n_splits_;
    uint64_t seq_ = 0;
    uint64_t n_monitored_ = 0;
    uint64_t p2p_seq_ = 0;
    std::shared_ptr<RecordedGroup> recorded_; /* from the first call on */
    int coalescing_ = 0;                      /* depth */
    struct Region {                           /* what has been coalesced so far */
        Device device;
        std::vector<Operation::Ptr> calls;
        std::vector<c10::Stream> streams; /* the device's, on which they were called */
    } region_;
    std::vector<c10::weak_intrusive_ptr<Operation>> unpacking_;

    /* By device and the other rank of single messages; null: tensors of that device go through the host. */
    struct Road {
        c10::Device device;
        int peer;
        bool operator<(const Road &other) const
        {
            return std::tuple(device.type(), device.index(), peer) <
                   std::tuple(other.device.type(), other.device.index(), other.peer);
        }
    };
    static constexpr int whole_group = -1;
    std::map<Road, Device> devices_;
    std::mutex
        opening_; /* held while a DeviceComm is opened, which takes as long as the others do; taken before mutex_ */
    std::atomic<bool> eager_{false};
    std::optional<c10::Device> own_device_; /* settled before the first call, as the next one */
    bool mixed_ = false;                    /* ranks are on devices of several types */

    std::atomic<bool> timed_{false};                                     /* Work::getDuration answers */
    std::atomic<const char *> numbers_checked_by_{nan_check_variable()}; /* null: they are not */
    Worker worker_{"tutti-worker", true}; /* starts calls whose inputs a device has yet to compute */

    std::mutex pending_mutex_;
    std::condition_variable pending_none_;
    size_t n_hooked_ = 0; /* calls whose completion hook has not run */
};

/* Gives "xpu" the operators that hand collectives to a group's backend ("c10d::allreduce_"), where it lacks them; once.
 * They come with XCCL, from 2.8 on; before, and in builds without it, there are none. */
void complete_operators();

} // namespace tutti_torch
