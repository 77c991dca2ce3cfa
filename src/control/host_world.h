/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_HOST_HOST_WORLD_H
#define TUTTI_CONTROL_HOST_HOST_WORLD_H

/* What the tests of this room share: the transports' worlds, in which each member has a control, too. */

#include "control/host.h"
#define TEST_CONTROL_BYTES(n) tutti_host_control_bytes(n)
#include "transport/world_test.h"

struct control_world {
    struct world wire;
    struct tutti_control **controls;
};

static inline void control_member_open(struct control_world *world, uint32_t i)
{
    assert_int_equal(tutti_host_control_open(test_handle(&world->wire), i, &world->controls[i]), TUTTI_OK);
    test_member_open(&world->wire, i);
}

static inline void control_member_close(struct control_world *world, uint32_t i)
{
    if (world->controls[i]) world->controls[i]->ops->close(world->controls[i]);
    world->controls[i] = NULL;
    test_member_close(&world->wire, i);
}

/* Members are opened unless `empty`. */
static inline struct control_world control_world_make(const struct backend *backend, uint32_t n, bool empty)
{
    struct control_world world = {.wire = test_world_make(backend, n, 0, true)};
    world.controls = calloc(n, sizeof(*world.controls));
    assert_non_null(world.controls);
    for (uint32_t i = 0; i < n && !empty; i++) control_member_open(&world, i);
    return world;
}

static inline void control_world_free(struct control_world *world)
{
    for (uint32_t i = 0; i < world->wire.n; i++) control_member_close(world, i);
    test_world_free(&world->wire);
    free(world->controls);
}

#endif
