/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Hints: words for the backend, at the creation of a communicator, in set_hints, and with each call. One table has all
 * that mean something here. Programs that were written for other backends give those theirs: they are taken, and mean
 * nothing. What nobody knows is refused by set_hints, and elsewhere warned of once. */

#include "tensors/request.hpp"

#include <cstdint>

namespace tutti_torch
{

enum HintPlace : uint32_t { at_creation = 1, in_set_hints = 2, with_call = 4 };

struct Hint {
    const char *name;
    uint32_t places;
    const char *meaning;
};
const std::vector<Hint> &known_hints();

/* RuntimeError (in set_hints) or a warning for a hint that means nothing there, with the nearest one that does. */
void check_hints(const char *call, const Hints &hints, HintPlace place);
/* What the communicator's hint "all_reduce=ring,broadcast=tree:4" says of this call. Empty: nothing. */
std::string algorithm_of(const std::string &all, OpName name);
/* RuntimeError unless it is of that form. */
void check_algorithms(const char *call, const std::string &all);
/* Empty when it is not given. */
std::string hint_of(const Hints &hints, const char *name);
/* RuntimeError when it is no number in that range. */
int64_t number_hint(const char *call, const Hints &hints, const char *name, int64_t least, int64_t most,
                    int64_t otherwise);

} // namespace tutti_torch
