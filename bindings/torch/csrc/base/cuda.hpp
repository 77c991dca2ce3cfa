/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* What only CUDA's own words for streams and captures can say. It is asked of the libraries that PyTorch has loaded
 * into this process, so that the shim is built without CUDA's headers, and fits builds of PyTorch without CUDA. */

#include <c10/core/Stream.h>

namespace tutti_torch
{

/* The driver's handle of a CUDA device's stream; null is its default stream. */
void *native_stream(const c10::Stream &stream);

/* What is enqueued on the stream becomes part of a graph. */
bool is_captured(void *native);

/* While one lives, this thread may ask for events and take memory though a graph is being captured: by default a
 * capture forbids that to all threads, since it could have been meant for the graph. */
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
