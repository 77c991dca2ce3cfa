/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The two templates around each call of a TorchComm: its hooks, and its errors in this API's words. */

#include "comms/comms.hpp"

namespace tutti_torch
{

inline Outcome outcome_of(OpName name, const TorchComm::WorkPtr &work)
{
    return {name, work};
}

inline Outcome outcome_of(OpName name, const TorchComm::Ptr &comm)
{
    return {name, {}, comm};
}

inline Outcome outcome_of(OpName name, const std::shared_ptr<TorchCommWindow> &window)
{
    return {name, {}, {}, window};
}

template <typename Body> auto TorchComm::told(const Request &request, Body body)
{
    if (C10_LIKELY(!pre_hooks_.any() && !post_hooks_.any())) return body();
    const uint64_t op_id = next_op_id();
    pre_hooks_.tell(op_id, request);
    auto made = [&] {
        const WithoutGil without_gil; /* hooks of Python would have to take it twice more */
        return body();
    }();
    post_hooks_.tell(op_id, outcome_of(request.name, made));
    return made;
}

template <typename Body> auto TorchComm::in_words(const char *call, Body body) const
{
    try {
        return body();
    } catch (const c10::Error &error) {
        fail_in_words(call, error);
    }
}

} // namespace tutti_torch
