/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* What differs between the versions of torch this shim is built against (2.6 to 2.14). Methods that a version lacks are
 * simply not virtual there: none is marked `override`, so one source serves all. */

#include <torch/version.h>

#define TUTTI_TORCH_AT_LEAST(major, minor)                                                                             \
    (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace tutti_torch
{

/* From 2.8 on Python takes None for a call that was complete when it returned; before, it waits on what it gets. */
inline constexpr bool sync_returns_none = TUTTI_TORCH_AT_LEAST(2, 8);

namespace detail
{
/* A stream's native handle, from 2.11 on; null before, and where the device does not tell it. */
template <typename Stream> auto handle_of(const Stream &stream, int) -> decltype(stream.native_handle())
{
    return stream.native_handle();
}
template <typename Stream> void *handle_of(const Stream &, long)
{
    return nullptr;
}

template <typename Options> auto async_of(const Options &options, int) -> decltype(bool(options.asyncOp))
{
    return options.asyncOp;
}
template <typename Options> bool async_of(const Options &, long)
{
    return true;
}
} // namespace detail

/* Whether the caller wants a Work to wait on; options without the field predate it, and their callers do. */
template <typename Options> bool is_async(const Options &options)
{
    return !sync_returns_none || detail::async_of(options, 0);
}

} // namespace tutti_torch
