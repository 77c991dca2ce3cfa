/* SPDX-License-Identifier: BSD-3-Clause */

/* Tensors in memory that all ranks of the host can map: collectives on them are zero-copy. */

#include "backend/backend.hpp"
#include "base/errors.hpp"

#include <c10/core/Allocator.h>

#include <cstring>

namespace tutti_torch
{
namespace
{

class Allocator final : public c10::Allocator
{
  public:
    explicit Allocator(std::shared_ptr<Comm> comm) : comm_(std::move(comm)) {}

    c10::DataPtr allocate(size_t bytes) override
    {
        if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
        std::shared_ptr<Comm> comm = comm_.lock();
        if (!comm) C10_THROW_ERROR(DistBackendError, "tutti: allocation from a process group that was destroyed");
        void *memory = nullptr;
        check(tutti_mem_alloc(comm->handle(), bytes, &memory));
        /* It holds its communicator: it can be given back whenever the last tensor goes. In a forked process it is the
         * parent's still. */
        auto give_back = [comm = std::move(comm), origin = Origin()](void *piece) {
            if (origin.is_here() && tutti_mem_free(comm->handle(), piece) < 0)
                TORCH_WARN("tutti: ", tutti_last_error()->text);
        };
        return c10::InefficientStdFunctionContext::makeDataPtr(memory, give_back, c10::Device(c10::kCPU));
    }

    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void *to, const void *from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  private:
    std::weak_ptr<Comm> comm_;
};

} // namespace

std::shared_ptr<c10::Allocator> Backend::getMemAllocator()
{
    const WithoutGil without_gil; /* a thread that holds mutex_ may want it, for frames of Python */
    std::lock_guard<std::mutex> guard(mutex_);
    live();
    if (!allocator_) allocator_ = std::make_shared<Allocator>(comm_);
    return allocator_;
}

/* The storage can not grow, so it needs no allocator of its own. */
at::Tensor Backend::allocateTensor(long size, at::TensorOptions options)
{
    if (!options.device().is_cpu()) return at::empty({size}, options);
    TUTTI_CHECK_VALUE(size >= 0, "allocateTensor: size ", size, " is negative");
    std::shared_ptr<c10::Allocator> allocator = getMemAllocator();
    size_t bytes = size_t(size) * options.dtype().itemsize();
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, allocator->allocate(bytes), nullptr, false);
    return at::empty({0}, options).set_(storage, 0, {size}, {1});
}

} // namespace tutti_torch
