/* SPDX-License-Identifier: BSD-3-Clause */

/* The end of a program whose groups were not destroyed: by then Python is still there, for callbacks that come with the
 * end of a call, and the other ranks can be told why theirs ends. */

#include "backend/backend.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

namespace tutti_torch
{
namespace
{

using Weak = c10::weak_intrusive_ptr<Backend>;

struct Registry {
    std::mutex lock;
    std::vector<Weak> backends;
};

/* Never destroyed: threads may end after static objects. */
Registry &registry()
{
    static auto *found = new Registry();
    return *found;
}

} // namespace

c10::intrusive_ptr<Backend> Backend::end_with_program(c10::intrusive_ptr<Backend> backend)
{
    std::lock_guard<std::mutex> guard(registry().lock);
    registry().backends.emplace_back(backend);
    return backend;
}

/* While there are weak references it is not destroyed with the last other one: so they are dropped here. */
void Backend::release_resources()
{
    std::lock_guard<std::mutex> guard(registry().lock);
    std::vector<Weak> &known = registry().backends;
    auto is_this = [this](const Weak &weak) { return weak._unsafe_get_target() == this; };
    known.erase(std::remove_if(known.begin(), known.end(), is_this), known.end());
}

void Backend::end_program()
{
    begin_end_of_program();
    std::vector<Weak> known;
    {
        std::lock_guard<std::mutex> guard(registry().lock);
        known.swap(registry().backends);
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
