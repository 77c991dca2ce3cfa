/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Gradients of a model that all ranks of a group hold, averaged while backward goes on: what DistributedDataParallel's
 * reducer does, with less of the host. That one copies each gradient into its bucket and back by launches of their own,
 * hundreds a step, which a step that is bound by launches waits for. Here a bucket is filled by one launch when its
 * last gradient is there, averaged by one call, and emptied by one launch at the end; or stays where the gradients are.
 *
 * Buckets go in their order, which is equal on all ranks: that of the parameters backwards, until arrange() says
 * another. A backward is averaged if arm() came before it. Hooks run on autograd's threads, one after another. */

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti_torch
{

class Gradients : public std::enable_shared_from_this<Gradients>
{
  public:
    struct Shape {
        size_t first_bytes, bytes; /* at most, of the first bucket and of others; a larger gradient has its own */
        bool as_views;             /* gradients become parts of the buckets, and are not copied back */
    };
    /* Parameters of one device, dense, whose gradients are as they are laid out. names: for sentences. */
    static std::shared_ptr<Gradients> make(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                           std::vector<at::Tensor> parameters, std::vector<std::string> names,
                                           Shape shape);
    ~Gradients();
    Gradients(const Gradients &) = delete;
    Gradients &operator=(const Gradients &) = delete;

    /* The next backward is averaged. Throws if the one before did not bring all gradients. */
    void arm();
    /* Parameters in the order in which the gradients of the last backward came; empty: there was none. */
    std::vector<int64_t> order();
    /* Buckets in this order of all parameters, the same on all ranks, between two backwards. */
    void arrange(const std::vector<int64_t> &order);

  private:
    /* Another kind of pointer in newer versions of PyTorch. */
    using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor &>()));
    struct Parameter {
        at::Tensor tensor, view; /* view: of its bucket, shaped like it */
        std::string name;
        Accumulator accumulator;
        uintptr_t hook = 0;
        size_t bucket = 0;
        bool ready = false;
        std::optional<c10::Stream> stream; /* on which the gradient was written */
    };
    struct Bucket {
        std::vector<size_t> parameters;
        at::Tensor flat;
        size_t n_missing = 0;
        c10::intrusive_ptr<c10d::Work> work;
    };

    Gradients(c10::intrusive_ptr<c10d::ProcessGroup> group, Shape shape);
    void add(at::Tensor tensor, std::string name);
    void hang_hooks();
    size_t bytes_of(const Parameter &parameter) const;
    void lay_out(const std::vector<size_t> &order);
    void fill_bucket(size_t index);
    void is_there(size_t index);
    void launch(Bucket &bucket);
    void finish();
    void copy(Bucket &bucket, bool back);
    std::string missing() const;

    const c10::intrusive_ptr<c10d::ProcessGroup> group_;
    const Shape shape_;
    std::mutex mutex_; /* guards what follows */
    std::vector<Parameter> parameters_;
    std::vector<Bucket> buckets_;
    std::vector<int64_t> order_;
    size_t next_ = 0; /* the bucket to be launched */
    bool armed_ = false;
};

} // namespace tutti_torch
