/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The backend "tutti": a c10d::Backend over one communicator. Methods take the arguments apart and hand a Call to
 * submit(); nothing else starts anything. Those that a version of torch lacks are ordinary methods there. */

#include "comm.hpp"
#include "compat.hpp"
#include "enqueued.hpp"
#include "lane.hpp"
#include "operation.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

namespace tutti_torch
{

class Backend : public c10d::Backend
{
  public:
    struct Options : c10d::Backend::Options {
        explicit Options(milliseconds timeout = kBackendDefaultTimeout);
        c10::intrusive_ptr<c10d::Backend::Options> clone() const;
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

    /* ---- collectives (collectives.cpp, lists.cpp, sparse.cpp) ---- */
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

    /* ---- point to point, coalescing (point_to_point.cpp) ---- */
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

    void release_resources() override;

  private:
    /* Starts the call, or keeps it for the end of the coalesced region; waits for it unless it is asynchronous. */
    WorkPtr submit(Call call);
    /* The same for several calls that start together; inside a coalesced region they join it. */
    WorkPtr submit_all(c10d::OpType type, const char *name, std::vector<Call> calls);
    /* ---- CUDA devices (devices.cpp) ---- */
    /* The way to the device of the call's tensors, with mutex_ taken: nothing ends before it is given back. Null when
     * they are the host's, or go through it. */
    std::shared_ptr<Channel> channel_of(const Call &call, std::unique_lock<std::mutex> &guard);
    std::shared_ptr<Channel> channel_to(c10::Device device);
    std::shared_ptr<Channel> open_channel(c10::Device device, int peer);
    std::vector<std::shared_ptr<Channel>> channels() const;
    std::shared_ptr<Comm> comm_of_device(c10::DeviceIndex index);
    WorkPtr enqueue(std::unique_lock<std::mutex> &guard, const std::shared_ptr<Channel> &channel, Call &&call);
    void leave_nothing(Channel &channel, const Call &call); /* with mutex_ held */
    bool leaves_nothing(const Call &call) const;            /* with mutex_ held */
    WorkPtr enqueue_all(std::unique_lock<std::mutex> &guard, const std::shared_ptr<Channel> &channel, c10d::OpType type,
                        const char *name, std::vector<Call> calls);
    void fail_region(std::exception_ptr error);
    /* These with mutex_ held. */
    int peer_of_channel(const Call &call) const;
    bool goes_through_host(c10::Device device) const;
    WorkPtr join_region(const std::shared_ptr<Channel> &channel, std::vector<Call> calls);
    WorkPtr end_region(std::unique_lock<std::mutex> &guard);
    WorkPtr begin_enqueued(std::unique_lock<std::mutex> &guard, const std::shared_ptr<Channel> &channel, Call head,
                           std::vector<Call> calls, const std::vector<Enqueued::Ptr> &parts = {});

    WorkPtr start_group(std::unique_lock<std::mutex> &guard, Call head, std::vector<c10::intrusive_ptr<Operation>>);
    /* These with mutex_ held. */
    c10::intrusive_ptr<Operation> make_operation(Call call);
    void note(Operation &operation); /* in the flight recorder */
    uint64_t note(const Call &call, uint64_t seq, bool begun = false);
    const std::shared_ptr<Comm> &live() const; /* throws after shutdown */
    /* Starts it, or queues it: behind others, or until its device has come this far. */
    void begin(const c10::intrusive_ptr<Operation> &operation);

    WorkPtr hand_out(const c10::intrusive_ptr<Operation> &operation);
    template <typename Started> void hook(Started &call);
    /* Operations that are unpacked whenever somebody sees their end; to remember one, mutex_ is held. */
    void remember_unpacking(const c10::intrusive_ptr<Operation> &operation);
    std::function<void()> finish_unpacking();
    WorkPtr completed_work() const;
    bool is_coalescing() const;
    void check_region(const char *name) const; /* with mutex_ held: it has no calls on a device */
    std::shared_ptr<Comm> comm() const;

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
    std::vector<c10::intrusive_ptr<Operation>> coalesced_;
    std::vector<c10::weak_intrusive_ptr<Operation>> unpacking_;

    /* By device and the other rank of single messages; null: tensors of that device go through the host. */
    static constexpr int whole_group = -1;
    std::map<std::pair<c10::DeviceIndex, int>, std::shared_ptr<Channel>> channels_;
    std::mutex opening_; /* of channels, which takes as long as the others do; taken before mutex_ */
    std::atomic<bool> eager_{false};
    struct Region { /* of calls on a device: what has been coalesced so far */
        std::shared_ptr<Channel> channel;
        std::vector<Call> calls;
        std::vector<Enqueued::Ptr> parts;
        std::vector<c10::Stream> streams; /* on which they were called */
    } region_;

    std::atomic<bool> timed_{false}; /* Work::getDuration answers */
    const std::shared_ptr<Staging> staging_ = std::make_shared<Staging>();
    Lane lane_;

    std::mutex pending_mutex_;
    std::condition_variable pending_none_;
    size_t n_hooked_ = 0; /* calls whose completion hook has not run */
};

} // namespace tutti_torch
