/* SPDX-License-Identifier: BSD-3-Clause */

/* Groups made from a group, and the end of a program whose groups were not destroyed. */

#include "backend/backend.hpp"
#include "base/process.hpp"

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <mutex>
#include <unistd.h>
#include <vector>

namespace tutti_torch
{

using BasePtr = c10::intrusive_ptr<c10d::Backend>;
using BaseOptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;

/* Our own kind of options with what the given ones say: those of a version may be shared with the parent. */
static c10::intrusive_ptr<Backend::Options> child_options(const BaseOptionsPtr &given, const Backend::Options &parent)
{
    auto options = c10::make_intrusive<Backend::Options>(given ? given->timeout : parent.timeout, parent.backend);
    const auto *own = dynamic_cast<const Backend::Options *>(given.get());
    options->place = own ? own->place : parent.place;
    options->place.seat = parent.place.seat;
    options->dumps = parent.dumps;
#if TUTTI_TORCH_AT_LEAST(2, 9)
    if (given) {
        options->group_name = given->group_name;
        options->group_desc = given->group_desc;
        options->global_ranks_in_group = given->global_ranks_in_group;
    }
#endif
    return options;
}

uint64_t Backend::n_splits(const std::vector<int> &ranks) const
{
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = n_splits_.find(ranks);
    return found == n_splits_.end() ? 0 : found->second;
}

/* Collective over the members of the new group alone: ranks outside pass through. PyTorch's name for it, of which the
 * store that is given is made, counts groups that not all members are in: they meet where the parent's are. */
BasePtr Backend::split(const c10::intrusive_ptr<c10d::Store> &, const std::vector<int> &ranks,
                       const BaseOptionsPtr &options)
{
    auto place = std::find(ranks.begin(), ranks.end(), rank_);
    if (place == ranks.end()) return nullptr;
    std::string name;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        const uint64_t parent = tutti_comm_id(live()->handle()), nth = n_splits_[ranks]++;
        name = c10::str("split/", parent, "/", nth, "/", c10::Join(",", ranks));
    }
    return create(c10::make_intrusive<c10d::PrefixStore>(name, store_), int(place - ranks.begin()), int(ranks.size()),
                  child_options(options, *options_));
}

BasePtr Backend::merge(const c10::intrusive_ptr<c10d::Store> &store, const BaseOptionsPtr &options, const int &rank,
                       const int &size)
{
    return create(store, rank, size, child_options(options, *options_));
}

/* torch.distributed.SHRINK_ABORT: calls in flight end now, and not when they are complete. */
static constexpr int shrink_abort = 1;

BasePtr Backend::shrink(const std::vector<int64_t> &exclude, int flags, const BaseOptionsPtr &options)
{
    std::shared_ptr<Comm> parent;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        parent = live();
    }
    if (flags & shrink_abort) tutti_comm_abort(parent->handle(), "the process group is shrunk");
    std::vector<int32_t> ranks(exclude.begin(), exclude.end());
    tutti_comm *handle = nullptr;
    {
        const WithoutGil without_gil;
        check(tutti_comm_shrink(parent->handle(), ranks.data(), ranks.size(), &handle));
    }
    std::shared_ptr<Comm> comm = Comm::adopt(*parent, handle);
    auto store = c10::make_intrusive<c10d::PrefixStore>(c10::str("shrink/", tutti_comm_id(handle)), store_);
    return end_with_program(c10::make_intrusive<Backend>(store, tutti_comm_rank(handle), tutti_comm_size(handle),
                                                         child_options(options, *options_), comm));
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
/* Handles only have to differ, and to be the same for the life of the backend. */
c10d::ReconfigureHandle Backend::get_reconfigure_handle() const
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    return c10::str("tutti:", host, ":", getpid(), ":", getID());
}

Backend::WorkPtr Backend::reconfigure(const c10d::ReconfigureOptions &options)
{
    std::vector<c10d::ReconfigureHandle> members;
    if (const auto *ordered = std::get_if<std::vector<c10d::ReconfigureHandle>>(&options.handles)) {
        members = *ordered;
    } else {
        const auto &set = std::get<std::unordered_set<c10d::ReconfigureHandle>>(options.handles);
        members.assign(set.begin(), set.end());
        std::sort(members.begin(), members.end());
    }
    auto own = std::find(members.begin(), members.end(), get_reconfigure_handle());
    TUTTI_CHECK_VALUE(own != members.end(), "reconfigure: this rank's handle is not among the ", members.size(),
                      " given");
    shutdown();
    int rank = int(own - members.begin()), size = int(members.size());
    auto store = c10::make_intrusive<c10d::PrefixStore>(c10::str("reconfigure/", options.uuid), store_);
    std::shared_ptr<Comm> comm =
        Comm::create(*store, rank, size, "torch", options.timeout.value_or(options_->timeout), options_->place);
    tutti_comm_set_timeout(comm->handle(), to_ns(options_->timeout));
    std::lock_guard<std::mutex> guard(mutex_);
    rank_ = rank;
    size_ = size;
    comm_ = std::move(comm);
    allocator_.reset();
    recorded_.reset();
    n_splits_.clear();
    n_monitored_ = 0;
    return completed_work();
}
#endif

/* The end of a program whose groups were not destroyed: by then Python is still there, for callbacks that come with the
 * end of a call, and the other ranks can be told why theirs ends. */

namespace
{

using Weak = c10::weak_intrusive_ptr<Backend>;

struct Living {
    std::mutex lock;
    std::vector<Weak> backends;
};

/* Never destroyed: threads may end after static objects. */
Living &living()
{
    static auto *found = new Living();
    return *found;
}

} // namespace

c10::intrusive_ptr<Backend> Backend::end_with_program(c10::intrusive_ptr<Backend> backend)
{
    std::lock_guard<std::mutex> guard(living().lock);
    living().backends.emplace_back(backend);
    return backend;
}

/* While there are weak references it is not destroyed with the last other one: so they are dropped here. */
void Backend::release_resources()
{
    std::lock_guard<std::mutex> guard(living().lock);
    std::vector<Weak> &known = living().backends;
    auto is_this = [this](const Weak &weak) { return weak._unsafe_get_target() == this; };
    known.erase(std::remove_if(known.begin(), known.end(), is_this), known.end());
}

void Backend::end_program()
{
    begin_end_of_program();
    std::vector<Weak> known;
    {
        std::lock_guard<std::mutex> guard(living().lock);
        known.swap(living().backends);
    }
    for (auto weak = known.rbegin(); weak != known.rend(); ++weak) {
        c10::intrusive_ptr<Backend> backend = weak->lock();
        if (!backend) continue;
        try {
            backend->shutdown();
        } catch (const std::exception &) {
            /* interrupted, or its device failed: it was aborted, and the program ends anyway */
        }
    }
}

} // namespace tutti_torch
