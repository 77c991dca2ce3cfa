/* SPDX-License-Identifier: BSD-3-Clause */

/* The search for NaN in what calls are given, for who debugs with it. */

#include "tensors/call.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include <cstdlib>
#include <cstring>

namespace tutti_torch
{

bool numbers_are_to_be_checked()
{
    for (const char *name : {"TORCH_XCCL_NAN_CHECK", "TORCH_NCCL_NAN_CHECK"}) {
        const char *value = std::getenv(name);
        if (value && std::strcmp(value, "1") == 0) return true;
    }
    return false;
}

void check_numbers(const Call &call)
{
    at::AutoDispatchBelowAutograd guard;
    for (size_t i = 0; i < call.inputs.size(); i++) {
        const Tensor &input = call.inputs[i];
        if (!input.is_floating_point() && !input.is_complex()) continue;
        TORCH_CHECK(!at::isnan(input).any().item<bool>(), "tutti: ", call.name, ": input ", i, " of sizes ",
                    input.sizes(), " has a NaN, and TORCH_XCCL_NAN_CHECK or TORCH_NCCL_NAN_CHECK is 1");
    }
}

} // namespace tutti_torch
