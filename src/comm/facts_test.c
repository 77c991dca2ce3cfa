/* SPDX-License-Identifier: BSD-3-Clause */

/* Facts of communicators: crowding and domains, in the first one, in those made from it and in further worlds. */

#include "comm/comm.h"
#include "ranks.h"
#include "test.h"

#include <stdio.h>

/* What the host's topology and the ranks' bindings might say: ranks of two packages, each with two L3s. */
static void places_pretend(struct tutti_comm *comm, bool cyclic)
{
    for (int32_t i = 0; i < comm->size; i++) {
        struct tutti_cpu_place *place = &comm->family->world.places[i];
        place->group[TUTTI_TOPO_L3] = (int16_t)(cyclic ? i % 4 : i / (comm->size / 4));
        place->group[TUTTI_TOPO_NODE] = -1;
        place->group[TUTTI_TOPO_PACKAGE] = (int16_t)(cyclic ? i % 2 : place->group[TUTTI_TOPO_L3] / 2);
    }
}

static bool domains_are(const struct tutti_comm *comm, enum tutti_topo_level level, uint32_t n, uint32_t size,
                        bool cyclic)
{
    const struct tutti_domains *domains = &comm->facts.domains[level];
    return domains->n == n && (n == 0 || (domains->size == size && domains->cyclic == cyclic));
}

static void domains_of_children(struct rank *rank)
{
    struct tutti_comm *copy = NULL, *half = NULL, *pairs = NULL, *turned = NULL;
    places_pretend(rank->comm, false);
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &copy));
    RANK_CHECK(rank, domains_are(copy, TUTTI_TOPO_PACKAGE, 2, 4, false));
    RANK_CHECK(rank, domains_are(copy, TUTTI_TOPO_L3, 4, 2, false));
    RANK_CHECK(rank, domains_are(copy, TUTTI_TOPO_NODE, 0, 0, false));
    /* Ranks 0 to 3 and 4 to 7: each half lies in one package and two L3s. */
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, rank->index / 4, 0, &half));
    RANK_CHECK(rank, domains_are(half, TUTTI_TOPO_PACKAGE, 0, 0, false));
    RANK_CHECK(rank, domains_are(half, TUTTI_TOPO_L3, 2, 2, false));
    /* Every second: one of each L3, two of each package; backwards, too. */
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, rank->index % 2, -rank->index, &pairs));
    RANK_CHECK(rank, domains_are(pairs, TUTTI_TOPO_PACKAGE, 2, 2, false));
    RANK_CHECK(rank, domains_are(pairs, TUTTI_TOPO_L3, 0, 0, false));
    places_pretend(rank->comm, true);
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, 0, 0, &turned));
    RANK_CHECK(rank, domains_are(turned, TUTTI_TOPO_PACKAGE, 2, 4, true));
    RANK_CHECK(rank, domains_are(turned, TUTTI_TOPO_L3, 4, 2, true));
    tutti_comm_destroy(turned);
    tutti_comm_destroy(pairs);
    tutti_comm_destroy(half);
    tutti_comm_destroy(copy);
}

static void test_domains(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(8, domains_of_children, NULL), 0);
}

/* A part of a crowded world is crowded, and so is whatever its ranks open beside it, for the others run, too. */
static void crowding_is_inherited(struct rank *rank)
{
    struct tutti_comm *alone = NULL, *beside = NULL;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    char name[96];
    RANK_CHECK(rank, rank->comm->facts.crowded && rank->context->crowded);
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, rank->index, 0, &alone));
    RANK_CHECK(rank, alone->facts.crowded);
    snprintf(name, sizeof name, "%.80s-%d", rank->name, (int)rank->index);
    config.name = name, config.rank = 0, config.n_ranks = 1;
    RANK_CHECK_OK(rank, tutti_comm_create(rank->context, &config, &beside));
    RANK_CHECK(rank, beside->facts.crowded);
    tutti_comm_destroy(beside);
    tutti_comm_destroy(alone);
}

static void one_rank_is_not(struct rank *rank)
{
    RANK_CHECK(rank, !rank->comm->facts.crowded && !rank->context->crowded);
}

static void test_crowding(void **state)
{
    const uint32_t n = tutti_cpus_allowed() + 1;
    (void)state;
    assert_int_equal(ranks_threads(1, one_rank_is_not, NULL), 0);
    if (n > 64) skip(); /* too many CPUs to crowd them by threads */
    assert_int_equal(ranks_threads(n, crowding_is_inherited, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_domains), cmocka_unit_test(test_crowding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
