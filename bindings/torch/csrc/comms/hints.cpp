/* SPDX-License-Identifier: BSD-3-Clause */

/* The table of hints. */

#include "comms/hints.hpp"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>

namespace tutti_torch
{

const std::vector<Hint> &known_hints()
{
    static const std::vector<Hint> table = {
        {"rank", at_creation, "this rank, instead of the launcher's: several ranks may be threads of one process"},
        {"size", at_creation, "the number of ranks that go with it"},
        {"hostname", at_creation, "name or address by which others reach this host, for reconfigure"},
        {"algorithm", at_creation | in_set_hints | with_call,
         "how collectives on host memory are carried out, by names of `tutti sched list`: of a call \"ring\", of a "
         "communicator \"all_reduce=ring,broadcast=tree:4\""},
        {"wire", with_call,
         "how the data of all_reduce and reduce_scatter travels: bfloat16, float8_e4m3, float8_e5m2, int8, or none"},
        {"wire_block", with_call, "elements that share a scale, a multiple of 32 up to 1024; 256 if it is not given"},
        {"wire_seed", with_call, "of stochastic rounding; 0, if it is not given: to nearest"},
        {"tag", with_call, "of a message, 0 or more: receives take those of the same tag"},
    };
    return table;
}

namespace
{

/* Hints of other backends of torchcomms. */
constexpr const char *foreign_prefixes[] = {"ncclx::", "mccl::", "rcclx::"};
constexpr const char *foreign[] = {
    "blocking",
    "CTAPolicy",
    "cgaClusterSize",
    "collnetEnable",
    "commName",
    "enable_cuda_graph_support",
    "fastInitMode",
    "garbage_collect_interval_ms",
    "graph_timeout_check_interval_ms",
    "interface",
    "is_high_priority_stream",
    "lazy",
    "max_event_pool_size",
    "maxCTAs",
    "minCTAs",
    "nChannelsPerNetPeer",
    "netName",
    "nvlsCTAs",
    "persistent_store",
    "shrinkShare",
    "splitShare",
    "trafficClass",
};

bool is_foreign(const std::string &name)
{
    for (const char *prefix : foreign_prefixes)
        if (name.rfind(prefix, 0) == 0) return true;
    return std::find(std::begin(foreign), std::end(foreign), name) != std::end(foreign);
}

/* How many letters one has to change, add or leave out to make one word of the other. */
size_t distance(const std::string &one, const std::string &other)
{
    std::vector<size_t> row(other.size() + 1);
    for (size_t j = 0; j < row.size(); j++) row[j] = j;
    for (size_t i = 1; i <= one.size(); i++) {
        size_t diagonal = std::exchange(row[0], i);
        for (size_t j = 1; j <= other.size(); j++) {
            const size_t changed = diagonal + (one[i - 1] != other[j - 1]);
            diagonal = row[j];
            row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[other.size()];
}

std::string nearest(const std::string &name, HintPlace place)
{
    const Hint *best = nullptr;
    size_t least = SIZE_MAX;
    for (const Hint &hint : known_hints()) {
        if (!(hint.places & place)) continue;
        const size_t here = distance(name, hint.name);
        if (here < least) least = here, best = &hint;
    }
    return best ? best->name : "";
}

/* What programs repeat is warned of once. */
bool first_time(const std::string &name)
{
    static std::mutex lock;
    static auto *seen = new std::set<std::string>();
    std::lock_guard<std::mutex> guard(lock);
    return seen->insert(name).second;
}

} // namespace

void check_hints(const char *call, const Hints &hints, HintPlace place)
{
    for (const auto &[name, value] : hints) {
        const auto &table = known_hints();
        auto known = std::find_if(table.begin(), table.end(), [&](const Hint &hint) { return name == hint.name; });
        if (known != table.end() && (known->places & place)) continue;
        if (known == table.end() && is_foreign(name)) continue;
        const std::string why =
            c10::str("tutti: ", call, ": ", known == table.end() ? "unknown hint" : "no use of hint", " '", name,
                     "'; the nearest that means something here is '", nearest(name, place), "'");
        TORCH_CHECK(place != in_set_hints, why);
        if (first_time(name)) TORCH_WARN(why);
    }
}

/* all_gather_single and all_gather are one kind of collective, as the library counts them. */
static std::string kind_of(OpName name)
{
    std::string kind = text_of(name);
    const size_t end = kind.rfind("_single");
    return end == std::string::npos ? kind : kind.substr(0, end);
}

std::string algorithm_of(const std::string &all, OpName name)
{
    const std::string kind = kind_of(name) + "=";
    for (size_t at = 0; at < all.size();) {
        const size_t end = std::min(all.find(',', at), all.size());
        if (all.compare(at, kind.size(), kind) == 0) return all.substr(at + kind.size(), end - at - kind.size());
        at = end + 1;
    }
    return {};
}

void check_algorithms(const char *call, const std::string &all)
{
    for (size_t at = 0; at < all.size();) {
        const size_t end = std::min(all.find(',', at), all.size());
        const size_t equals = all.find('=', at);
        TORCH_CHECK(equals < end, "tutti: ", call, ": hint 'algorithm' is '", all,
                    "'; write it as in \"all_reduce=ring,broadcast=tree:4\"");
        at = end + 1;
    }
}

std::string hint_of(const Hints &hints, const char *name)
{
    auto found = hints.find(name);
    return found == hints.end() ? std::string() : found->second;
}

int64_t number_hint(const char *call, const Hints &hints, const char *name, int64_t least, int64_t most,
                    int64_t otherwise)
{
    const std::string text = hint_of(hints, name);
    if (text.empty()) return otherwise;
    char *end = nullptr;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    TORCH_CHECK(*end == '\0' && value >= least && value <= most, "tutti: ", call, ": hint '", name, "' is '", text,
                "', not a number from ", least, " to ", most);
    return value;
}

} // namespace tutti_torch
