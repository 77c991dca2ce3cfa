/* SPDX-License-Identifier: BSD-3-Clause */

/* An error handled: the last rank calls all_reduce with another count than the others. Nobody hangs: every rank gets a
 * sentence that says who called what. The communicator is lost with that, the process is not: the ranks shrink it to
 * those that still live (here: all), and go on. */

#include "example.h"

/* What a program decides by is the scope of the status: how much was lost. */
static int is_survivable(enum tutti_status status)
{
    enum tutti_scope scope = tutti_status_scope(status);
    return scope == TUTTI_SCOPE_PEER || scope == TUTTI_SCOPE_COMM;
}

int main(void)
{
    struct tutti_comm *world = world_create(), *again = NULL;
    int32_t rank = tutti_comm_rank(world), size = tutti_comm_size(world);
    int32_t value[2] = {1, 1}, sum[2] = {0, 0};
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.timeout_ns = UINT64_C(10000000000);
    options.label = "step 1"; /* for traces */

    size_t count = size > 1 && rank == size - 1 ? 2 : 1; /* the mistake */
    enum tutti_status status = tutti_all_reduce(value, sum, count, TUTTI_INT32, TUTTI_SUM, world, &options, NULL);
    if (status < 0) {
        struct tutti_error error = *tutti_last_error(); /* a copy: the record lives until this thread's next call */
        printf("rank %d: %s: %s\n", rank, tutti_status_name(status), error.text);
        if (!is_survivable(status)) return 1;
        CHECK(tutti_comm_shrink(world, NULL, 0, &again));
        tutti_comm_destroy(world);
        world = again;
    } else if (size > 1) {
        fprintf(stderr, "rank %d: ranks called all_reduce with different counts, and nobody noticed\n", rank);
        return 1;
    }

    CHECK(tutti_all_reduce(value, sum, 1, TUTTI_INT32, TUTTI_SUM, world, NULL, NULL));
    printf("rank %d: and on with %d ranks\n", rank, sum[0]);
    int wrong = sum[0] != size || (size > 1 && status != TUTTI_ERR_MISMATCH);
    tutti_comm_destroy(world);
    return wrong;
}
