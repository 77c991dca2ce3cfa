/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_KERNELS_SENTINEL_RELAY_H
#define TUTTI_DEVICE_KERNELS_SENTINEL_RELAY_H

/* sentinel_relay_move_R: a broadcast by sentinels in which the root sends all of it once (struct gpu_exchange, with
 * `relays` on all ranks but the root): each other rank gets a share, and sends it on to the rest, unit by unit, as it
 * comes. Each rank sends each other one part at most, so it is one exchange in the slots of one.
 *
 * A thread relays its unit before it waits for the same unit of others, and the root waits for nobody, so all get
 * through. Soundness: wires.h and turn.h, for which a unit that goes on is a unit that is sent. */

#include "device/kernels/oneshot.h"

/* What a rank is sent, without what it relays: that has a way of its own. */
struct gpu_relay_parts {
    const struct gpu_call &call;
    const struct gpu_exchange &x;
    const char *in;
    char *out;
    uint32_t units;

    __device__ __forceinline__ struct gpu_part share() const
    {
        return x.relays ? x.recv[x.relays - 1] : gpu_part{0, 0};
    }
    __device__ __forceinline__ struct gpu_part to(uint32_t q) const { return x.send[q]; }
    __device__ __forceinline__ struct gpu_part from(uint32_t q) const
    {
        if (q == call.me) return gpu_part{share().at, 0};
        return q + 1 == x.relays ? gpu_part{0, 0} : x.recv[q];
    }
    __device__ __forceinline__ uint64_t at(uint32_t u) const { return gpu_unit_at(units, u); }
    __device__ __forceinline__ uint64_t result_bytes() const { return share().bytes; }
};

/* Unit u of the own share, when it has come: on to those who get it, and to its place. By whole warps. */
template <typename Wire, uint32_t MOST, bool WHOLE, typename Ways>
GPU_DEVICE bool gpu_relay_unit(const struct gpu_exchange &x, const Ways &ways, struct gpu_turn *turn, uint32_t u)
{
    const struct gpu_call &call = x.call;
    const uint32_t on = gpu_unit_on(u), flag = gpu_turn_flag(*turn), row = gpu_row(call.me, x.relays - 1);
    const uint64_t slot = gpu_slot_on<Wire>(ways, *turn, u);
    const struct gpu_inbox inbox = gpu_inbox_on(ways.inbox, slot);
    const bool any = on < ways.left;
    bool came = true;
    typename Wire::seen seen = Wire::look(inbox, row);
    while (any && came && !Wire::there(seen, flag)) {
        came = gpu_go_on(&turn->waiter, call, x.relays - 1);
        seen = Wire::look(inbox, row);
    }
    if (!gpu_all(came) || !gpu_turn_pay(call, turn)) return false;
    const gpu_words unit = Wire::unit(seen);
    GPU_UNROLL_BY((MOST > 8 ? 1 : MOST))
    for (uint32_t i = 0; i + 1 < MOST && gpu_is_way<MOST>(call, i + 1); i++) {
        const struct gpu_way_to way = ways.peers.to(i);
        gpu_put_unit<Wire, gpu_move>(call, gpu_nth(call, i), way.slot + slot, on < way.left, unit, flag);
    }
    if (!any) return true;
    gpu_give_unit<WHOLE>(ways.result + on, unit, ways.left - on);
    Wire::empty(inbox.row(row));
    return true;
}

/* After the root's first unit has left. */
template <typename Wire, uint32_t MOST, uint32_t CHUNK, bool WHOLE, typename Ways>
GPU_DEVICE bool gpu_relay_units(const struct gpu_exchange &x, const Ways &ways, struct gpu_turn *turn)
{
    const uint32_t units = x.units, lag = gpu_lag(units);
    for (uint32_t u = 1; u < units && !x.relays; u++)
        gpu_send_unit<Wire, gpu_move, MOST, CHUNK, WHOLE>(x.call, ways, false, turn, u, nullptr);
    for (uint32_t u = 0; u < units + lag && x.relays; u++) {
        if (u < units && !gpu_relay_unit<Wire, MOST, WHOLE>(x, ways, turn, u)) return false;
        if (u >= lag && !gpu_move_unit<Wire, MOST, CHUNK, WHOLE>(x.call, ways, turn, u - lag)) return false;
    }
    return true;
}

template <uint32_t MOST, uint32_t CHUNK> GPU_DEVICE void gpu_sentinel_relay(const struct gpu_exchange &x)
{
    using Wire = gpu_sentinel<gpu_move::type::word>;
    const struct gpu_relay_parts parts = {x.call, x, x.in, x.out, x.units};
    const struct gpu_exchange_parts all = {x.call, x, x.in, x.out, x.units};
    const bool whole = gpu_is_whole(x.units, x.whole);
    auto ways = gpu_ways_find<Wire, gpu_move, 0, MOST>(parts, 0);
    struct gpu_audience audience = gpu_audience_of<MOST>(all, gpu_unit_at(x.units, 0) - 16 * gpu_thread());
    gpu_ways_settle<gpu_move>(&ways);
    struct gpu_turn turn = gpu_turn_begin(x.call, &audience);
    if (!x.relays && whole)
        gpu_send_unit<Wire, gpu_move, MOST, CHUNK, true>(x.call, ways, false, &turn, 0, nullptr);
    else if (!x.relays)
        gpu_send_unit<Wire, gpu_move, MOST, 2, false>(x.call, ways, false, &turn, 0, nullptr);
    gpu_turn_tell(turn, audience);
    if (turn.failed) return;
    if (!(whole ? gpu_relay_units<Wire, MOST, CHUNK, true>(x, ways, &turn)
                : gpu_relay_units<Wire, MOST, 2, false>(x, ways, &turn)))
        return;
    gpu_turn_count(x.call, turn, audience);
    gpu_turn_end(x.call, turn);
}

#define GPU_SENTINEL_RELAY(most, chunk)                                                                                \
    GPU_KERNEL(sentinel_relay_move_##most, struct gpu_exchange, x, GPU_LINE_THREADS)                                   \
    {                                                                                                                  \
        gpu_sentinel_relay<most, chunk>(x);                                                                            \
    }
GPU_SENTINEL_RELAY(4, 4)
GPU_SENTINEL_RELAY(8, 2) /* with more in flight registers would spill */
GPU_SENTINEL_RELAY(16, 4)

#endif
