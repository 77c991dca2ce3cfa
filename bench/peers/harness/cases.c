/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations by their names and sizes, as nccl-tests counts them, with the data that goes in and a reference for
 * what must come out: every element tells its rank and its place, and sums of them are exact in any order. */

#include "collectives.h"

#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define BLOCK ((size_t)1024) /* floats that are compared at once */

/* How much a rank has, in blocks of `count`: one, as many as ranks, or only at the root. */
enum side { NONE, ONE, ALL, ONE_AT_ROOT, ALL_AT_ROOT };
/* The input that element i of the output comes from: all ranks' sum, the sum of this rank and those before it, rank
 * i / count, or the root's; and from which block of it. */
enum origin { SUM, SUM_OWN, SUM_BEFORE, OF_RANK, OF_RANK_OWN, OF_ROOT, OF_ROOT_OWN, OF_SELF, OF_PAIR };

struct operation {
    const char *name;
    enum side send, recv;
    enum origin origin;
    bool shared; /* the size is that of all blocks */
};

static const struct operation operations[] = {
    [PEER_ALL_REDUCE] = {"all_reduce", ONE, ONE, SUM, false},
    [PEER_REDUCE_SCATTER] = {"reduce_scatter", ALL, ONE, SUM_OWN, true},
    [PEER_ALL_GATHER] = {"all_gather", ONE, ALL, OF_RANK, true},
    [PEER_ALL_TO_ALL] = {"all_to_all", ALL, ALL, OF_RANK_OWN, true},
    [PEER_BROADCAST] = {"broadcast", ONE, ONE, OF_ROOT, false},
    [PEER_REDUCE] = {"reduce", ONE, ONE_AT_ROOT, SUM, false},
    [PEER_GATHER] = {"gather", ONE, ALL_AT_ROOT, OF_RANK, true},
    [PEER_SCATTER] = {"scatter", ALL_AT_ROOT, ONE, OF_ROOT_OWN, true},
    [PEER_SCAN] = {"scan", ONE, ONE, SUM_BEFORE, false},
    [PEER_BARRIER] = {"barrier", NONE, NONE, OF_SELF, false},
    [PEER_SEND_RECV] = {"send_recv", ONE, ONE, OF_PAIR, false},
    [PEER_N_OPERATIONS] = {"copy", ONE, ONE, OF_SELF, false},
    [PEER_N_OPERATIONS + 1] = {"stream", ONE, ONE, OF_SELF, false},
};
#define N_OPERATIONS (sizeof operations / sizeof operations[0])

static int copy_call(const struct peer_call *c)
{
    memcpy(c->recv, c->send, c->count * sizeof *c->recv);
    return 0;
}

#ifdef __x86_64__
__attribute__((target("avx"))) static void stream(float *out, const float *in, size_t n)
{
    for (; n >= 32; n -= 32, in += 32, out += 32)
        for (int i = 0; i < 32; i += 8) _mm256_stream_ps(out + i, _mm256_loadu_ps(in + i));
    memcpy(out, in, n * sizeof *out);
    _mm_sfence();
}
static bool can_stream(void)
{
    return __builtin_cpu_supports("avx");
}
#else
static void stream(float *out, const float *in, size_t n)
{
    memcpy(out, in, n * sizeof *out);
}
static bool can_stream(void)
{
    return false;
}
#endif

static int stream_call(const struct peer_call *c)
{
    if (!can_stream()) return copy_call(c);
    stream(c->recv, c->send, c->count); /* pages are aligned */
    return 0;
}

int (*peer_own_call(int operation))(const struct peer_call *)
{
    return operation == PEER_N_OPERATIONS ? copy_call : stream_call;
}

static size_t floats(enum side side, size_t count, int rank, int n)
{
    const size_t blocks[] = {
        [NONE] = 0, [ONE] = 1, [ALL] = (size_t)n, [ONE_AT_ROOT] = rank == 0, [ALL_AT_ROOT] = rank ? 0 : (size_t)n};
    return blocks[side] * count;
}

bool peer_case_make(const char *name, size_t bytes, int rank, int n, struct peer_case *out)
{
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        const struct operation *o = &operations[i];
        if (strcmp(o->name, name) != 0) continue;
        size_t count = bytes / sizeof(float) / (o->shared ? (size_t)n : 1);
        if (count == 0 && o->send != NONE) count = 1;
        out->name = o->name;
        out->operation = (int)i;
        out->count = count;
        out->send = floats(o->send, count, rank, n);
        out->recv = floats(o->recv, count, rank, n);
        return true;
    }
    return false;
}

/* Never nothing, so that a contribution that is missing shows. */
static inline float value(int rank, size_t i)
{
    return (float)((((uint32_t)i * 2654435761u + (uint32_t)rank * 0x9E3779B9u) >> 24) + 1);
}

void peer_fill(float *out, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++) out[i] = value(rank, i);
}

/* n floats of the output from `at` on, all of one block. */
static void expect(const struct peer_case *c, const struct peer_call *call, size_t at, size_t n, float *out)
{
    enum origin origin = operations[c->operation].origin;
    size_t in_block = at % c->count, own = c->count * (size_t)call->rank;
    bool sum = origin == SUM || origin == SUM_OWN || origin == SUM_BEFORE;
    int end = origin == SUM_BEFORE ? call->rank + 1 : call->n;
    bool own_block = origin == SUM_OWN || origin == OF_RANK_OWN || origin == OF_ROOT_OWN;
    int first = origin == OF_RANK || origin == OF_RANK_OWN ? (int)(at / c->count)
                : origin == OF_SELF                        ? call->rank
                : origin == OF_PAIR                        ? call->rank ^ 1
                                                           : call->root;
    size_t from = in_block + (own_block ? own : 0);
    if (sum) first = 0;
    for (size_t i = 0; i < n; i++) out[i] = value(first, from + i);
    for (int r = 1; sum && r < end; r++)
        for (size_t i = 0; i < n; i++) out[i] += value(r, from + i);
}

size_t peer_wrong(const struct peer_case *c, const struct peer_call *call, size_t stride)
{
    float expected[BLOCK];
    size_t wrong = 0, total = c->recv;
    if (c->operation == PEER_BROADCAST && call->rank == call->root) total = 0; /* it reads only */
    if (c->operation == PEER_SEND_RECV && (call->rank ^ 1) >= call->n) total = 0;
    for (size_t at = 0, turn = 0; at < total; turn++) {
        size_t n = c->count - at % c->count;
        if (n > BLOCK) n = BLOCK;
        if (turn % stride == 0 || at + n == total) {
            expect(c, call, at, n, expected);
            for (size_t i = 0; i < n; i++) wrong += call->recv[at + i] != expected[i];
        }
        at += n;
    }
    return wrong;
}
