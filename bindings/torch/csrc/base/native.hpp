/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Native devices: those that libtutti works on itself, CUDA's and Intel's ("xpu"); tensors of all others go through the
 * host. What only their own words for streams and captures can say is asked of the libraries that PyTorch has loaded
 * into this process: so the shim is built without the makers' headers, and fits builds of PyTorch without either. */

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace tutti_torch
{

bool is_native(c10::Device device);

/* What libtutti calls devices of this type, "cuda", "xpu"; null: it has none. */
const char *native_kind(c10::DeviceType type);

/* The driver's handle of a native device's stream: a cudaStream_t, null being the default stream, or a sycl::queue *.
 * Throws for a queue that is being recorded: calls can not be parts of SYCL's graphs. */
void *native_stream(const c10::Stream &stream);

/* What is enqueued on a native device's stream becomes part of a graph. */
bool is_captured(const c10::Stream &stream);

/* While one lives, this thread may ask for CUDA's events and take its memory though a graph is being captured: by
 * default a capture forbids that to all threads, since it could have been meant for the graph. */
class BesideCaptures
{
  public:
    BesideCaptures();
    ~BesideCaptures();
    BesideCaptures(const BesideCaptures &) = delete;
    BesideCaptures &operator=(const BesideCaptures &) = delete;

  private:
    int mode_;
};

} // namespace tutti_torch
