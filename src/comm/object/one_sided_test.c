/* SPDX-License-Identifier: BSD-3-Clause */
/* A back end that one rank can not connect: all ranks are told, and none has a communicator. */
#include <string.h>

#include "comm/object/comm.h"
#include "ranks.h"
#include "test.h"

static struct tutti_backend_ops broken;

/* As flat, but on the last rank of the group. */
static _Thread_local bool breaks;

static enum tutti_status broken_open(const struct tutti_backend_config *config, void *card, struct tutti_backend **out)
{
    breaks = config->n > 1 && config->me == config->n - 1;
    return tutti_backend_flat.open(config, card, out);
}

static enum tutti_status broken_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    if (!breaks) return tutti_backend_flat.connect(backend, cards, stride);
    tutti_backend_flat.close(backend, 0);
    return tutti_fail(TUTTI_ERR_SYSTEM, "the memory of a peer can not be mapped");
}

static void split(struct rank *rank)
{
    struct tutti_comm *dup = NULL;
    if (rank->index == 0) tutti_backends[TUTTI_BACKEND_flat] = &broken;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    const bool own = rank->index == rank->n - 1;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_SYSTEM, own ? "can not be mapped" : "can not connect back end flat",
                     tutti_comm_dup(rank->comm, &dup));
    RANK_CHECK(rank, !dup);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == 0) tutti_backends[TUTTI_BACKEND_flat] = &tutti_backend_flat;
}

static void told_to_all(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        assert_int_equal(ranks_threads(n, split, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(told_to_all)};
    broken = tutti_backend_flat;
    broken.open = broken_open, broken.connect = broken_connect;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
