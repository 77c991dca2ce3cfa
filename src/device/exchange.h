/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_EXCHANGE_H
#define TUTTI_DEVICE_EXCHANGE_H

/* What host code and kernels agree on; compiled as C, as CUDA and as C++ for OpenCL. Every collective of a host is one
 * or two exchanges: each rank sends a part of its input to each of some peers, and either stores what it gets from
 * each, or folds it with its own part, in rank order. Parts travel through rings in the receiver's scratch memory,
 * which all ranks map and into which senders push.
 *
 * Three protocols (README.md says more, docs/gpu.md which serves what):
 * - lines: 16-byte stores of two 8-byte words, each 4 bytes of data and a 4-byte flag. A word arrives whole, so no
 *   fence, no barrier: one latency. Twice the bytes. (NCCL calls it LL.)
 * - sentinel: 16 bytes of data; a word that has not arrived reads as all ones. Reductions of floating point never send
 *   that NaN; all else says in 16 bytes beside a warp's unit which of its words are ones by right (exceptions), if any.
 *   One latency, no more bytes than data. (Lamport's flag-free exchange, as in TensorRT-LLM.)
 * - tiles: 8 to 32 KiB of data, then a fence and a flag; the receiver gives tiles back. Any size, everything.
 * And one without rings, where the buffers of peers are mapped:
 * - direct: all meet, store to where the data is to be, fence, and meet again.
 *
 * Counters live in device memory and are advanced by the kernels, so that a captured launch can be replayed. Kernels of
 * one communicator on one device never run at the same time. */

#if defined(__cplusplus) && !defined(__OPENCL_CPP_VERSION__)
#include <cstddef>
#include <cstdint>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#include <tutti/device.h>

#define GPU_MAX_RANKS 16
#define GPU_MAX_BLOCKS 128     /* of a launch */
#define GPU_LEAST_TILE 8192    /* bytes: 16 for each of the threads that move a tile */
#define GPU_TILE_THREADS 576   /* of a block of `tiles`: 16 warps that move data, one that signals, one that watches */
#define GPU_LINE_THREADS 512   /* at most, of a block of `lines`, `sentinel` and `sentinel2` */
#define GPU_DIRECT_THREADS 512 /* of a block of `direct` */
#define GPU_PIECE 4096         /* bytes, at most, that one of its warps moves at once */
#define GPU_TIMEOUT 1          /* of reports: the deadline passed while waiting for `peer`; */
#define GPU_STOPPED 2          /* the host stopped the communicator */

/* In host memory that is pinned and mapped: the one way between kernels and the host's watch. Who waits asks for `stop`
 * about once in 1,024 spins, but of a rank's threads one in GPU_ASK_NS: thousands that ask the host at once keep each
 * other waiting for milliseconds, and their peers with them. Who times out writes the report first, then stop. */
#define GPU_ASK_NS 50000
struct gpu_control {
    uint64_t report;               /* 0: none. One word, since devices can not claim others of the host's by atomics */
    uint32_t stop;                 /* 0: go on. Set by the host (GPU_STOPPED) or by a kernel (GPU_TIMEOUT) */
    struct tutti_device_late late; /* for a report with GPU_ONE_SIDED, written before it */
    uint64_t now_ns; /* the host's clock as its watch last saw it: for deadlines, where kernels have no clock */
    uint64_t straight, by_tiles; /* mapped calls so far, by the way that they went */
};
/* In place of a call's number: a wait for a signal, or a barrier of kernels. */
#define GPU_ONE_SIDED (UINT64_C(1) << 54)
#define GPU_ANY_PEER 0x7f
#define GPU_REPORT(seq, peer) ((uint64_t)(seq) << 8 | 0x80 | (uint64_t)(peer))
#define GPU_REPORT_SEQ(report) ((report) >> 8) /* of the call that waited */
#define GPU_REPORT_PEER(report) (0x7f & (uint32_t)(report))

/* Where things are in each rank's scratch, in bytes from its base; equal on all ranks. [source] are all ranks; [other]
 * are all but the owner of the scratch, by which rank q has row q, or q - 1 if q is greater than the owner. */
struct gpu_layout {
    uint32_t n_blocks; /* rings are made for; at most GPU_MAX_BLOCKS; no launch has more */
    /* lines and sentinel: two slots for each (other, block), taken in turns */
    uint32_t line_bytes, sentinel_bytes; /* data bytes that one block moves to one peer in one call; multiples of 1024.
                                            Of sentinel2 each phase has a half of them (gpu_phase_bytes) */
    uint64_t lines;                      /* [2 slots][other][block][2 * line_bytes] */
    uint64_t sentinels;                  /* [2 slots][other][block][sentinel_bytes], all ones when idle */
    uint64_t exceptions; /* [2 slots][other][block][sentinel_bytes / 32]: 16 bytes for 32 units; zeros at first */
    uint64_t begun; /* uint32_t [source][block]: the last line or sentinel call that source began without data for me */
    uint64_t called; /* uint64_t [block]: own count of line and sentinel calls, and who was heard of (turn.h) */
    /* tiles */
    uint32_t tile_bytes, n_tiles; /* a ring's, which belongs to one (other, block): at least 2 tiles of at most
                                     tile_bytes, a power of two times GPU_LEAST_TILE */
    uint64_t tiles;               /* [other][block][n_tiles][tile_bytes] */
    uint64_t arrived;             /* uint32_t [source][block]: tiles that source has written here, in all */
    uint64_t returned;            /* uint32_t [source][block]: of the tiles that I sent to source, those it gave back
                                     (the last one of a call when its next call begins) */
    uint64_t sent, received;      /* uint64_t [peer][block]: own counts, with the ring's next slot in the upper half */
    /* direct */
    uint64_t directs; /* uint32_t [block]: own count of its calls */
    uint64_t landed; /* uint32_t [source][block]: 2 c + 1: source has begun the call that is its c-th; 2 c + 2: all that
                        it stores here in that call is there */
    uint64_t relayed; /* uint64_t [block][warp]: of what goes on from here, the pieces that came, and c << 32 */
    /* mapped */
    uint64_t agreements; /* uint32_t [block]: own count of its calls; all blocks have the same */
    uint64_t ways;       /* uint64_t [2]: how many went by tiles, and straight */
    uint64_t posts;      /* uint64_t [2 calls in turns][source][2 places][2 halves]: where source's buffers are, as this
                            rank has mapped them; in the upper half of each word the call's number, from 1 */
    uint64_t met;        /* uint32_t [source], and met_own: of the handshakes around copy engines */
    uint64_t met_own;
    uint64_t asked;   /* uint64_t: when a thread has last asked the host whether to stop */
    uint64_t stopped; /* uint32_t: not 0 when one knows it */
    uint64_t bytes;   /* in all */
};

/* What a launch is for; by value in every kernel's parameter. */
struct gpu_call {
    TUTTI_DEVICE_POINTER(char) base[GPU_MAX_RANKS]; /* scratch of each rank, as this device maps it */
    TUTTI_DEVICE_POINTER(struct gpu_control) control;
    struct gpu_layout layout;
    uint32_t n, me;
    uint64_t seq;        /* for reports */
    uint64_t timeout_ns; /* from the first wait; 0: none */
    uint32_t op;         /* enum tutti_op; avg folds as sum, then divides by `divisor`; premul_sum multiplies first */
    uint32_t divisor;    /* 0: does not divide */
    uint32_t scales;     /* 1: own input times `factor` before anything */
    unsigned char factor[16]; /* one element */
};

/* One part: bytes at an offset from a buffer. */
struct gpu_part {
    uint64_t at, bytes;
};

/* One exchange. Kernels `lines_R` and `sentinel_R` (one block exchanges at most layout.line_bytes or sentinel_bytes
 * with each peer, so blocks * that >= the longest part), and `tiles_R` (any size). R names what the receiver does:
 * "move", or for a reduction the dtype ("bfloat16": any operation), or dtype and operation of the fast ones
 * ("bfloat16_sum"); and to that the most ranks that the kernel is for: "lines_bfloat16_sum_4", "tiles_move_16".
 * Not all numbers exist for all of them: the least one that is enough serves.
 *
 * move: what comes from q goes to out + recv[q]; the own part (send[me] to recv[me], bytes equal) is copied unless it
 * is there already. Reductions: what comes from those q with recv[q].bytes > 0 and, if recv[me].bytes > 0, in +
 * send[me], is folded in rank order; recv[q].bytes are all equal or 0; the result goes to out + recv[me].at (which is
 * set even where the own part is not folded: exscan), result_bytes long. In place: buffers of a reduction may be one,
 * and those of a move where in + send[q].at is out + recv[q].at for all q, of equal bytes (all_to_all): then what is at
 * some place has left for all who get it before anything is stored there. Any alignment: whole elements, no more.
 * Blocks: in `lines` and `sentinel`, unit i of 16 bytes belongs to block i / (threads * units a thread); all ranks
 * launch the same grid. In `tiles`, tile j of the part for q belongs to block j % gpu_tile_blocks(bytes, ...), which
 * sender and receiver compute alike; a launch has as many blocks as its longest part asks for, of GPU_TILE_THREADS
 * threads; the own part is for as many as there are.
 * In a move by tiles no part waits for another, whoever its peer is, but where `relays` says so: what comes from that
 * rank goes on from where it is stored (in + send[q].at is out + recv[p].at) as it comes, whole, to all who are sent
 * anything; there is no own part. Ranks that relay must not form a cycle. By `sentinel_relay_move_R` the same, in
 * blocks and slots as of `sentinel`, where all who relay do so from one rank, which is sent nothing. Blocks of `lines`
 * and `sentinel` have a multiple of 32 threads, at most GPU_LINE_THREADS, and units * threads * 16 is at most
 * line_bytes or sentinel_bytes.
 */
struct gpu_exchange {
    struct gpu_call call;
    TUTTI_DEVICE_POINTER(const char) in;
    TUTTI_DEVICE_POINTER(char) out;
    uint64_t result_bytes;
    struct gpu_part send[GPU_MAX_RANKS], recv[GPU_MAX_RANKS];
    uint32_t units;        /* lines, sentinel: units of 16 bytes that each thread exchanges with each peer */
    uint32_t whole, alike; /* what gpu_exchange_seal found; zeros are right, too, and slower */
    uint32_t relays;       /* moves by tiles, sentinel_relay: 1 + the rank whose part goes on as it comes; 0: none */
    uint32_t spreads;      /* reductions by tiles in which all contribute to all, on all ranks or none: */
    /* The result goes there, too, on all other ranks, as this device maps it: at what is out + recv[me].at modulo 16.
     * Nobody reads what is there but as input of the same place, for this rank's result. */
    TUTTI_DEVICE_POINTER(char) spread[GPU_MAX_RANKS];
};

/* Several parts for each peer, as one launch: `messages_16`. Those for q, and those from q, travel one behind the
 * other, each cut into tiles as if it were by itself, so that a rank need not know which of them its peers have in one
 * launch, in a launch each or by `tiles_move_16`: it is the same tiles of the same blocks in the same order. None waits
 * for one of another peer or of the other direction. No part is received where another one is received or sent from,
 * nor is there one of the own rank. A launch has as many blocks as its longest part asks for, of GPU_TILE_THREADS
 * threads. */
#define GPU_LISTED 208
struct gpu_lists {
    struct gpu_call call;
    uint8_t first[2 * GPU_MAX_RANKS];  /* for what is sent to q, and, at GPU_MAX_RANKS + q, received; 0: nothing is */
    uint8_t next[GPU_LISTED];          /* behind this one, 0: nothing */
    struct gpu_part parts[GPU_LISTED]; /* from 1 on; at: where in memory; bytes: not 0 */
};

/* `direct_move_16`: parts go straight to where they are to be at each rank, as this device maps it. Nothing is stored
 * at a rank before its stream has come to the call, and no rank's call ends before all that others store there has
 * come. What one rank sends may not lie where others store, but where `relays` says so: that all of it is stored by one
 * rank in this call, whose part it is (of equal length, beginning at `in` + at), and goes on piece by piece as it
 * comes; that rank may relay it, too, but not in a circle. All ranks launch the same grid of blocks of
 * GPU_DIRECT_THREADS threads, at most n_blocks; any alignment. Of each part warp w of block b moves the pieces b *
 * warps + w, and so on by as many as there are warps in the grid. */
struct gpu_direct {
    struct gpu_call call;
    TUTTI_DEVICE_POINTER(const char) in;
    struct gpu_part send[GPU_MAX_RANKS];          /* the own part, too, where it is not there already */
    TUTTI_DEVICE_POINTER(char) to[GPU_MAX_RANKS]; /* where rank q has it; NULL: nothing is sent */
    uint32_t piece_bytes;                         /* equal on all ranks: a multiple of 512, at most GPU_PIECE */
    uint32_t alike;                               /* all that are sent anything are sent the same bytes */
    uint32_t relays;                              /* 1 + the rank from which what is sent comes in this call; 0: none */
    uint32_t relayed;                             /* ranks that are sent anything relay it */
};

/* ---- mapped: between buffers of users that lie in no window. Peers have mapped the allocations of which they were
 * told, some time after a call first used them (backend/gpu/gpu_maps.c). Whether all have mapped what a call needs is
 * known when it runs: each rank posts to each where its buffers are at that one, or that they are not known there to
 * all; so all ranks find the same, and go straight, or by tiles. ---- */

/* An allocation that all ranks have mapped; in pinned memory of the host, for calls that are replayed. */
struct gpu_known {
    uint64_t number;               /* the allocation's, which no other one of this rank ever has; 0: none */
    uint64_t there[GPU_MAX_RANKS]; /* where rank q has mapped its first byte; written before the number */
};
struct gpu_place {
    TUTTI_DEVICE_POINTER(const struct gpu_known) known; /* captured calls: looked up when the call runs; else NULL */
    uint64_t number, at;           /* ... this allocation, the buffer `at` bytes behind its beginning */
    uint64_t there[GPU_MAX_RANKS]; /* other calls: where rank q has the buffer; all 0: not all have it */
};
enum { GPU_INPUT, GPU_OUTPUT, GPU_PLACES };
#define GPU_POST_BYTES ((GPU_PLACES + 1) * 2 * sizeof(uint64_t)) /* a rank's for another: places, and blocks */
#define GPU_APART (UINT64_C(1) << 60)                            /* where nothing is */
/* `mapped_move_16` and `mapped_R`, of GPU_TILE_THREADS threads: all ranks launch n_blocks blocks. Places that are given
 * are multiples of 16. Straight go the first blocks, as many as the rank offers that offers the fewest (`blocks`). A
 * move goes as `direct` says, whose `to` for others are as if they had their outputs GPU_APART behind this rank's. A
 * reduction loads what its rank folds from all inputs, in which it lies at the same place, and if it `spreads` stores
 * the result to all outputs, in the same way. Else the exchange is made, by tiles; if it spreads, each rank then sends
 * what it has folded to all others: shards of one buffer, which lie in all outputs as send[q] says. `mapped_arrive_16`,
 * of the same parameter, one block of a warp: posts and waits for all posts, so that the launch behind it, which then
 * has `posted`, finds them there and holds no SM for a rank that is late. Not all ranks need to do so. */
struct gpu_mapped {
    struct gpu_exchange exchange;
    struct gpu_direct direct; /* moves only */
    struct gpu_place places[GPU_PLACES];
    uint32_t needs;   /* bits of places, equal on all ranks */
    uint32_t blocks;  /* that this rank offers: 1 to n_blocks */
    uint32_t spreads; /* equal on all ranks */
    uint32_t posted;
};

/* all_reduce in two exchanges of one launch: each rank folds the shard that is its own of what all push, and pushes the
 * result to all. Kernels `sentinel2_R` (floating point; shards of at most blocks * gpu_phase_bytes). A shard is
 * shard_bytes (a multiple of 16) but for the last ones, which may be short or empty. */
struct gpu_two_shot {
    struct gpu_call call;
    TUTTI_DEVICE_POINTER(const char) in;
    TUTTI_DEVICE_POINTER(char) out;
    uint64_t bytes, shard_bytes;
    uint32_t units; /* that each thread pushes of each shard */
    uint32_t whole; /* as in gpu_exchange, by gpu_two_shot_seal */
};

/* Several collectives that are alike in all but their buffers and sizes, as one exchange: kernels `batch_lines_R` and
 * `batch_sentinel_R`. Segment s is units of 16 bytes from first[s] on, a multiple of GPU_SEGMENT_UNITS, so that the
 * units of a warp are of one segment; units belong to blocks and threads as in `lines`, those beyond a segment's end
 * are nothing. Rank q's part of a segment is its bytes, from q * bytes on where each has a block of its own. Buffers as
 * in struct gpu_exchange. A rank whose segments depend on one another carries the batch out in several launches of the
 * same grid, a range of whole segments each, in their order, without its peers taking notice: whatever a segment waits
 * for at a peer, that peer waits for no later one before it. The last launch, which ends where the batch ends, is the
 * one that counts. */
#define GPU_SEGMENT_UNITS 32
#define GPU_SEGMENTS 64
struct gpu_segment {
    TUTTI_DEVICE_POINTER(const char) in;
    TUTTI_DEVICE_POINTER(char) out;
    uint64_t bytes; /* a part's */
};
struct gpu_batch {
    struct gpu_call call;
    uint32_t sends, receives; /* masks of the ranks, the own one included, who get parts, and from whom parts come */
    uint32_t sends_each, receives_each;
    uint32_t units;                   /* each thread's */
    uint32_t begin, end;              /* units that this launch is for */
    uint32_t first[GPU_SEGMENTS + 1]; /* ascending; where there are no more segments: where the batch ends */
    struct gpu_segment segments[GPU_SEGMENTS];
};

/* `meet`: one block; returns when all ranks have come to it, with everything that they (their streams) wrote before.
 * Around copies by copy engines. */
struct gpu_meeting {
    struct gpu_call call;
};

/* `fold_R` (R as above, the number of ranks: "fold_bfloat16_sum_4"): out = fold in rank order of `in` (rank me) and of
 * chunks that lie in the own scratch (or anywhere on this device), after copies by copy engines. */
struct gpu_fold {
    struct gpu_call call;
    TUTTI_DEVICE_POINTER(const char) from[GPU_MAX_RANKS]; /* rank q's; mine: the own input */
    TUTTI_DEVICE_POINTER(char) out;
    uint64_t bytes;
};

/* `tiles_counted_16`: an exchange by tiles whose parts are told by rows in device memory (device/counted.h), gathered
 * from all ranks. `exchange` has its call, in and out. */
struct gpu_counted {
    struct gpu_exchange exchange;
    TUTTI_DEVICE_POINTER(const uint64_t) rows;
    TUTTI_DEVICE_POINTER(const uint64_t) send_displs; /* NULL: packed */
    TUTTI_DEVICE_POINTER(uint64_t) recv_counts;       /* elements from each rank; */
    TUTTI_DEVICE_POINTER(int32_t) status;             /* 0, or `truncated` where nothing was moved; may be NULL */
    int32_t truncated;
    uint32_t element; /* bytes */
};

#ifdef __CUDACC__
#define GPU_BOTH __host__ __device__
#else
#define GPU_BOTH
#endif

/* Data bytes that one block moves to one peer in one phase of sentinel2, which has its own half of each slot. */
GPU_BOTH static inline uint32_t gpu_phase_bytes(const struct gpu_layout *layout)
{
    return layout->sentinel_bytes / 2;
}

/* How a part is cut: the bytes of a tile, and how many blocks move them. Pure, so both ends get the same. At least four
 * tiles a block, so that the first arrive while the last leave; where that can not be, the smallest tiles. */
struct gpu_tiling {
    uint32_t tile_bytes, blocks;
    uint64_t tiles;
};
GPU_BOTH static inline struct gpu_tiling gpu_tiling_of(uint64_t bytes, uint32_t tile_bytes, uint32_t n_blocks)
{
    struct gpu_tiling t;
    t.tile_bytes = GPU_LEAST_TILE;
    t.tiles = (bytes + GPU_LEAST_TILE - 1) / GPU_LEAST_TILE;
    while (t.tile_bytes < tile_bytes && t.tiles >= (uint64_t)8 * n_blocks) {
        t.tile_bytes *= 2;
        t.tiles = (t.tiles + 1) / 2;
    }
    t.blocks = t.tiles < n_blocks ? (uint32_t)t.tiles : n_blocks;
    return t;
}
GPU_BOTH static inline uint32_t gpu_tile_blocks(uint64_t bytes, uint32_t tile_bytes, uint32_t n_blocks)
{
    return gpu_tiling_of(bytes, tile_bytes, n_blocks).blocks;
}

/* The grid for parts of at most so many bytes, of at most n_blocks: warps take as little at once as gives all of them
 * something. */
struct gpu_direct_grid {
    uint32_t piece_bytes, blocks;
};
static inline struct gpu_direct_grid gpu_direct_grid_of(uint64_t bytes, uint32_t n_blocks)
{
    const uint32_t warps = GPU_DIRECT_THREADS / 32;
    struct gpu_direct_grid grid = {512, n_blocks};
    while (grid.piece_bytes < GPU_PIECE && (uint64_t)n_blocks * warps * grid.piece_bytes < bytes) grid.piece_bytes *= 2;
    const uint64_t needed = (bytes + (uint64_t)warps * grid.piece_bytes - 1) / ((uint64_t)warps * grid.piece_bytes);
    if (needed < n_blocks) grid.blocks = (uint32_t)needed;
    return grid;
}

/* The row of rank q in the scratch of `owner`, where it has one of all but the owner; and back. */
GPU_BOTH static inline uint32_t gpu_row(uint32_t owner, uint32_t q)
{
    return q > owner ? q - 1 : q;
}

GPU_BOTH static inline uint32_t gpu_rank_of(uint32_t owner, uint32_t row)
{
    return row < owner ? row : row + 1;
}

#ifndef __OPENCL_CPP_VERSION__
/* The last thing to do to the parameter of `lines` and `sentinel`: `whole` is how many units of every part are 16 bytes
 * at a multiple of 16 (all: UINT32_MAX), `alike` whether all others are sent the same bytes, and the own part, if there
 * is one, is the same. */
static inline void gpu_exchange_seal(struct gpu_exchange *x)
{
    uint64_t places = (uint64_t)(uintptr_t)x->in | (uint64_t)(uintptr_t)x->out, least = UINT32_MAX;
    const struct gpu_part sent = x->send[x->call.me == 0 ? x->call.n - 1 : 0];
    x->alike = x->call.n > 1;
    for (uint32_t q = 0; q < x->call.n; q++) {
        const struct gpu_part parts[2] = {x->send[q], x->recv[q]};
        const bool same = parts[0].at == sent.at && parts[0].bytes == sent.bytes;
        if (!same && (q != x->call.me || parts[0].bytes > 0)) x->alike = 0;
        for (uint32_t k = 0; k < 2; k++) {
            if (parts[k].bytes > 0) places |= parts[k].at;
            if (parts[k].bytes % 16 && parts[k].bytes / 16 < least) least = parts[k].bytes / 16;
        }
    }
    places |= x->recv[x->call.me].at; /* places of a result to which the own part may not belong */
    if (x->result_bytes % 16 && x->result_bytes / 16 < least) least = x->result_bytes / 16;
    x->whole = places % 16 ? 0 : (uint32_t)least;
}
static inline void gpu_two_shot_seal(struct gpu_two_shot *x)
{
    const uint64_t places = (uint64_t)(uintptr_t)x->in | (uint64_t)(uintptr_t)x->out;
    const uint64_t last = x->shard_bytes > 0 ? x->bytes % x->shard_bytes : 0; /* a short shard's */
    x->whole = places % 16 ? 0 : last % 16 ? (uint32_t)(last / 16) : UINT32_MAX;
}

#endif

#endif
