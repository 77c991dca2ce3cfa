/* SPDX-License-Identifier: BSD-3-Clause */
/* The dimensions of the contract suite, and sets of cases: all pairs (greedy, deterministic by seed) and the product.
 */

#include "contract.h"

#include <stdlib.h>
#include <string.h>

/* Zero, one, odd, a prime, just past a cache line, several packets, several slices and more than the staging of a pair.
 */
const size_t contract_sizes[CONTRACT_N_SIZES] = {0, 1, 3, 17, 257, 4099, 40009};
const uint32_t contract_domain[N_DIMENSIONS] = {
    [CALL] = 17, [DTYPE] = TUTTI_N_DTYPES, [OP] = TUTTI_N_OPS, [SIZE] = CONTRACT_N_SIZES, [RANKS] = 17, [PLACE] = 2,
    [ALIGN] = 2, [FORM] = N_FORMS,         [VALUES] = 2};

enum { MAX_VALUES = 17, CANDIDATES = 40 };

struct pairs {
    bool seen[N_DIMENSIONS][N_DIMENSIONS][MAX_VALUES][MAX_VALUES];
    size_t n_left;
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Whether a case says anything of a pair: no data, one rank, or an operation on a call that takes none would cover
 * pairs without trying them. */
static bool tells(const struct contract_case *c, int a, int b)
{
    bool has_data = contract_sizes[c->at[SIZE]] > 1 || a == SIZE || b == SIZE;
    bool has_peers = c->at[RANKS] > 0 || a == RANKS || b == RANKS;
    bool has_op = contract_call_reduces(c->at[CALL]) || (a != OP && b != OP);
    return has_data && has_peers && has_op;
}

/* Pairs that the case would add; adds them. */
static size_t cover(struct pairs *pairs, const struct contract_case *c, bool add)
{
    size_t n = 0;
    for (int a = 0; a < N_DIMENSIONS; a++) {
        for (int b = a + 1; b < N_DIMENSIONS; b++) {
            bool *seen = &pairs->seen[a][b][c->at[a]][c->at[b]];
            if (*seen || !tells(c, a, b)) continue;
            n++;
            if (add) *seen = true;
        }
    }
    return n;
}

/* Pairs that mean nothing: an operation on a call that takes none. */
static void strike_out(struct pairs *pairs)
{
    for (uint32_t call = 0; call < contract_domain[CALL]; call++)
        for (uint32_t op = 0; op < contract_domain[OP] && !contract_call_reduces(call); op++)
            if (!pairs->seen[CALL][OP][call][op]) pairs->seen[CALL][OP][call][op] = true, pairs->n_left--;
}

/* A random case that contains one pair not seen yet. */
static void seed_case(const struct pairs *pairs, uint64_t *random, struct contract_case *c)
{
    for (int d = 0; d < N_DIMENSIONS; d++) c->at[d] = (uint32_t)(next_random(random) % contract_domain[d]);
    size_t skip = next_random(random) % pairs->n_left;
    for (int a = 0; a < N_DIMENSIONS; a++)
        for (int b = a + 1; b < N_DIMENSIONS; b++)
            for (uint32_t x = 0; x < contract_domain[a]; x++)
                for (uint32_t y = 0; y < contract_domain[b]; y++)
                    if (!pairs->seen[a][b][x][y] && skip-- == 0) {
                        c->at[a] = x, c->at[b] = y;
                        if (a != CALL && (b == OP || a == OP) && !contract_call_reduces(c->at[CALL])) c->at[CALL] = 0;
                        if (a != SIZE && b != SIZE && c->at[SIZE] < 2) c->at[SIZE] = 2;
                        if (a != RANKS && b != RANKS && c->at[RANKS] == 0) c->at[RANKS] = 1;
                    }
}

struct contract_case *contract_pairs(uint64_t seed, size_t *n)
{
    struct pairs *pairs = calloc(1, sizeof *pairs);
    struct contract_case *cases = NULL;
    size_t capacity = 0;
    *n = 0;
    if (!pairs) return NULL;
    for (int a = 0; a < N_DIMENSIONS; a++)
        for (int b = a + 1; b < N_DIMENSIONS; b++) pairs->n_left += (size_t)contract_domain[a] * contract_domain[b];
    strike_out(pairs);
    while (pairs->n_left > 0) {
        struct contract_case best = {0}, candidate = {0};
        for (int i = 0; i < CANDIDATES; i++) {
            seed_case(pairs, &seed, &candidate);
            if (i == 0 || cover(pairs, &candidate, false) > cover(pairs, &best, false)) best = candidate;
        }
        if (*n == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            struct contract_case *grown = realloc(cases, capacity * sizeof *cases);
            if (!grown) break;
            cases = grown;
        }
        best.seed = next_random(&seed);
        pairs->n_left -= cover(pairs, &best, true);
        cases[(*n)++] = best;
    }
    free(pairs);
    return cases;
}

struct contract_case *contract_product(uint32_t n_ranks, uint64_t seed, size_t *n)
{
    size_t total = 1;
    for (int d = 0; d < N_DIMENSIONS; d++) total *= d == RANKS ? 1 : contract_domain[d];
    struct contract_case *cases = calloc(total, sizeof *cases);
    *n = 0;
    for (size_t i = 0; cases && i < total; i++) {
        struct contract_case *c = &cases[*n];
        size_t rest = i;
        for (int d = 0; d < N_DIMENSIONS; d++) {
            if (d == RANKS) continue;
            c->at[d] = (uint32_t)(rest % contract_domain[d]);
            rest /= contract_domain[d];
        }
        if (!contract_call_reduces(c->at[CALL]) && c->at[OP] != 0) continue; /* the same case again */
        c->at[RANKS] = n_ranks - 1;
        c->seed = next_random(&seed);
        c->thrifty = true;
        ++*n;
    }
    return cases;
}
