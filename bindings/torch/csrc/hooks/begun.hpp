/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room hooks: what can be hung on a communicator of torchcomms' API: the flight recorder (flight.hpp) and the log of
 * calls (clog.hpp). Uses comms and record. Begin with those two; this file is the joint of a hook's two halves. */

#include <cstdint>
#include <optional>
#include <vector>

namespace tutti_torch
{

/* What the half before a call leaves for the half after it, on the same thread: a thread makes one call at a time, but
 * several hooks may be told of it. */
template <typename Note> class Begun
{
  public:
    /* Returns what was left of an earlier call, which failed: nobody was told of its end. */
    std::optional<Note> put(const void *hook, uint64_t op_id, Note note)
    {
        std::optional<Note> left = take(hook);
        all().push_back({hook, op_id, note});
        return left;
    }
    std::optional<Note> take(const void *hook, uint64_t op_id)
    {
        for (size_t i = all().size(); i-- > 0;)
            if (all()[i].hook == hook && all()[i].op_id == op_id) return remove(i);
        return std::nullopt;
    }

  private:
    struct Item {
        const void *hook;
        uint64_t op_id;
        Note note;
    };

    static std::vector<Item> &all()
    {
        thread_local std::vector<Item> items;
        return items;
    }
    std::optional<Note> take(const void *hook)
    {
        for (size_t i = 0; i < all().size(); i++)
            if (all()[i].hook == hook) return remove(i);
        return std::nullopt;
    }
    static Note remove(size_t i)
    {
        Note note = all()[i].note;
        all()[i] = all().back();
        all().pop_back();
        return note;
    }
};

} // namespace tutti_torch
