/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls by sentinels that fill the slots of their blocks, of which all_reduces in two exchanges have a half for each:
 * one call behind another in any order, moves of words that are all ones among them, and nobody waits in between. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include "backend/gpu/gpu_backend.h"
#include "base/base.h"
#include "comm/call/device.h"

#include <string.h>

enum { ROW = 12, GROUP = 3 }; /* calls of a row, and of a group */

static const struct kind {
    const char *name, *method; /* NULL: a group, which is fused where it can be */
    enum gpu_protocol protocol;
} kinds[] = {{"all_gather", "cuda:sentinel", GPU_SENTINEL},
             {"all_reduce", "cuda:sentinel2", GPU_SENTINEL2},
             {"reduce_scatter", "cuda:sentinel", GPU_SENTINEL},
             {"all_to_all", "cuda:sentinel", GPU_SENTINEL},
             {"a group of all_gathers", NULL, GPU_BATCH_SENTINEL}};
enum { ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, ALL_TO_ALL, GATHERS, N_KINDS };

struct one {
    uint32_t number; /* tells its data */
    uint32_t kind;
    size_t count; /* in a part: what goes from one rank to another, or in a group's call */
    uint32_t *in, *out;
};

struct scene {
    struct gpu_rank g;
    const struct gpu_backend *backend;
    uint32_t n;
    size_t most; /* words of a part */
    uint32_t *host;
    uint64_t random;
    struct one calls[ROW];
};

/* Small whole numbers, of which sums are exact; or any bits, and every third run of words is all ones. */
static uint32_t word(const struct one *one, uint32_t rank, size_t i)
{
    if (one->kind == ALL_REDUCE || one->kind == REDUCE_SCATTER) {
        float value = (float)((i * 7 + (i >> 11) * 3 + rank * 13 + one->number * 29) % 101);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return bits;
    }
    if (one->number % 3 == 0 || (i >> 5) % 3 == 0) return UINT32_MAX;
    return (uint32_t)tutti_mix64(i + ((uint64_t)rank << 40) + ((uint64_t)one->number << 48));
}

static uint32_t sum(const struct scene *s, const struct one *one, size_t i)
{
    float all = 0;
    uint32_t bits;
    for (uint32_t q = 0; q < s->n; q++) {
        float value;
        bits = word(one, q, i);
        memcpy(&value, &bits, sizeof value);
        all += value;
    }
    memcpy(&bits, &all, sizeof bits);
    return bits;
}

/* Words of a call's input and output, and what has to be at one of the latter. */
static size_t input_words(const struct scene *s, const struct one *one)
{
    const size_t parts[N_KINDS] = {1, s->n, s->n, s->n, GROUP};
    return one->count * parts[one->kind];
}

static size_t output_words(const struct scene *s, const struct one *one)
{
    const size_t parts[N_KINDS] = {s->n, s->n, 1, s->n, (size_t)GROUP * s->n};
    return one->count * parts[one->kind];
}

static uint32_t want(const struct scene *s, const struct one *one, size_t i)
{
    const size_t part = i / one->count, at = i % one->count;
    const uint32_t from = (uint32_t)(part % s->n);
    const size_t mine = (size_t)s->g.rank->index * one->count;
    if (one->kind == ALL_REDUCE) return sum(s, one, i);
    if (one->kind == REDUCE_SCATTER) return sum(s, one, mine + i);
    return word(one, from, at + (one->kind == ALL_TO_ALL ? mine : part / s->n * one->count));
}

static enum tutti_status enqueue(const struct scene *s, const struct one *one)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_comm *comm = s->g.rank->comm;
    const size_t n = one->count;
    options.stream = s->g.stream;
    options.algorithm = kinds[one->kind].method;
    if (one->kind == ALL_GATHER) return tutti_all_gather(one->in, one->out, n, TUTTI_UINT32, comm, &options, NULL);
    if (one->kind == ALL_REDUCE)
        return tutti_all_reduce(one->in, one->out, s->n * n, TUTTI_FLOAT32, TUTTI_SUM, comm, &options, NULL);
    if (one->kind == REDUCE_SCATTER)
        return tutti_reduce_scatter(one->in, one->out, n, TUTTI_FLOAT32, TUTTI_SUM, comm, &options, NULL);
    if (one->kind == ALL_TO_ALL) return tutti_all_to_all(one->in, one->out, n, TUTTI_UINT32, comm, &options, NULL);
    TUTTI_TRY(tutti_group_start());
    for (size_t k = 0; k < GROUP; k++)
        TUTTI_TRY(tutti_all_gather(one->in + k * n, one->out + k * n * s->n, n, TUTTI_UINT32, comm, &options, NULL));
    return tutti_group_end(NULL);
}

/* By the method that was named, and beyond the first half of each slot but in two exchanges. */
static void make(struct scene *s, const struct one *one)
{
    const struct gpu_step *step = &s->backend->step;
    const uint32_t half = gpu_phase_bytes(&s->backend->site.layout);
    GPU_CHECK_OK(&s->g, enqueue(s, one));
    RANK_CHECK(s->g.rank, step->protocol == kinds[one->kind].protocol);
    RANK_CHECK(s->g.rank, (step->exchange.units * step->threads * 16 > half) == (one->kind != ALL_REDUCE));
}

/* Nearly as much as there is room for. */
static void draw(struct scene *s, uint32_t number, struct one *one)
{
    one->number = number;
    one->kind = (uint32_t)(tutti_random64(&s->random) % N_KINDS);
    one->count = s->most - tutti_random64(&s->random) % (s->most / 8);
    if (one->kind == ALL_REDUCE) one->count /= 2;
    if (one->kind == GATHERS) one->count /= GROUP + 1; /* segments begin at multiples of 512 bytes */
}

static void fill(struct scene *s, const struct one *one)
{
    const size_t n = input_words(s, one);
    for (size_t i = 0; i < n; i++) s->host[i] = word(one, (uint32_t)s->g.rank->index, i);
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, one->in, s->host, n * 4));
    GPU_CHECK_OK(&s->g, tutti_cuda_set(s->g.gpu, one->out, 0x55, output_words(s, one) * 4));
}

static void compare(struct scene *s, const struct one *one)
{
    const size_t n = output_words(s, one);
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, s->host, one->out, n * 4));
    for (size_t i = 0; i < n; i++) {
        const uint32_t wanted = want(s, one, i);
        if (s->host[i] == wanted) continue;
        rank_fail(s->g.rank, __FILE__, __LINE__, "call %u, %s of %zu: word %zu is %08x instead of %08x", one->number,
                  kinds[one->kind].name, one->count, i, s->host[i], wanted);
        return;
    }
}

static void row(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    for (uint32_t k = 0; k < ROW; k++) {
        draw(s, round * ROW + k, &s->calls[k]);
        fill(s, &s->calls[k]);
    }
    for (uint32_t k = 0; k < ROW && !rank->failure[0]; k++) make(s, &s->calls[k]);
    if (rank->failure[0]) return;
    GPU_CHECK_OK(&s->g, tutti_cuda_stream_sync(s->g.gpu, s->g.stream));
    for (uint32_t k = 0; k < ROW && !rank->failure[0]; k++) compare(s, &s->calls[k]);
}

static void run(struct rank *rank)
{
    struct scene s = {.n = (uint32_t)rank->n, .random = *(const uint64_t *)rank->arg};
    const uint32_t rounds = gpu_ranks_stand_in() ? 2 : 50;
    if (!gpu_rank_open(rank, &s.g)) return;
    s.backend = (const struct gpu_backend *)(const void *)rank->comm->device->backends[0];
    const struct gpu_layout *layout = &s.backend->site.layout;
    s.most = (size_t)layout->n_blocks * layout->sentinel_bytes / 4;
    s.host = rank_alloc(rank, s.n * s.most * 4);
    for (uint32_t k = 0; k < ROW; k++) {
        s.calls[k].in = gpu_rank_words(&s.g, s.n * s.most);
        s.calls[k].out = gpu_rank_words(&s.g, s.n * s.most);
        RANK_CHECK(rank, s.calls[k].in && s.calls[k].out);
    }
    for (uint32_t round = 0; round < rounds && !rank->failure[0]; round++) row(&s, round);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    for (uint32_t k = 0; k < ROW; k++) {
        tutti_cuda_free(s.g.gpu, s.calls[k].in);
        tutti_cuda_free(s.g.gpu, s.calls[k].out);
    }
    gpu_rank_close(&s.g);
}

/* Takes little scratch memory, so that slots are short. */
static void full_slots(void **state)
{
    (void)state;
    static const struct tutti_option options[] = {{"gpu", "cuda"}, {"gpu_method", "batch"}, {"gpu_scratch", "4M"}};
    uint64_t seed = test_seed();
    for (uint32_t n = 3; n <= 4; n++) {
        struct ranks_config config = {.n = n,
                                      .forked = true,
                                      .options = options,
                                      .n_options = 3,
                                      .timeout_ns = 100 * TUTTI_NS_PER_S,
                                      .deadline_s = gpu_ranks_deadline_s(),
                                      .arg = &seed};
        assert_int_equal(ranks_run(&config, run), 0);
    }
}

int main(void)
{
    gpu_ranks_need_device();
    const struct CMUnitTest tests[] = {cmocka_unit_test(full_slots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
