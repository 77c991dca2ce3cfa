/* SPDX-License-Identifier: BSD-3-Clause */
/* Every argument check says what is wrong, starts nothing, and leaves the communicator whole; what is allowed passes.
 */
#include "ranks.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#define F32 TUTTI_FLOAT32
#define BAD TUTTI_ERR_ARGUMENT
#define REFUSED(part, ...) RANK_CHECK_ERROR(rank, BAD, part, __VA_ARGS__)

static _Thread_local float a[64], b[64];

static void pointers(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    char whole[96];
    uint64_t next = tutti_comm_sequence(comm) + 1;
    snprintf(whole, sizeof(whole), "all_reduce #%llu on rank %d: recv is NULL but count is 1024",
             (unsigned long long)next, (int)rank->index);
    REFUSED(whole, tutti_all_reduce(a, NULL, 1024, F32, TUTTI_SUM, comm, NULL, NULL));
    RANK_CHECK(rank, !strcmp(tutti_last_error()->collective, "all_reduce"));
    RANK_CHECK(rank, tutti_last_error()->status == BAD && tutti_last_error()->seq == next);
    REFUSED("send is NULL", tutti_all_reduce(NULL, b, 4, F32, TUTTI_SUM, comm, NULL, NULL));
    REFUSED("comm is NULL", tutti_all_reduce(a, b, 4, F32, TUTTI_SUM, NULL, NULL, NULL));
    REFUSED("buffer is NULL", tutti_broadcast(NULL, 4, F32, 0, comm, NULL, NULL));
    REFUSED("send is NULL", tutti_gather(NULL, b, 4, F32, 0, comm, NULL, NULL));
    REFUSED("recv is NULL", tutti_scatter(a, NULL, 4, F32, 0, comm, NULL, NULL));
    REFUSED("recv is NULL", tutti_gather(a, NULL, 4, F32, rank->index, comm, NULL, NULL));
    REFUSED("send is NULL", tutti_scatter(NULL, b, 4, F32, rank->index, comm, NULL, NULL));
    REFUSED("send is NULL", tutti_all_to_all(NULL, b, 4, F32, comm, NULL, NULL));
    REFUSED("recv is NULL", tutti_reduce(a, NULL, 4, F32, TUTTI_SUM, rank->index, comm, NULL, NULL));
    REFUSED("buffer is NULL", tutti_send(NULL, 4, F32, 0, 0, comm, NULL, NULL));
    REFUSED("buffer is NULL", tutti_recv(NULL, 4, F32, 0, 0, comm, NULL, NULL, NULL));
    REFUSED("end of the address space",
            tutti_all_reduce(a, (void *)(UINTPTR_MAX - 63), 64, F32, TUTTI_SUM, comm, NULL, NULL));
    /* without elements no pointer is needed */
    RANK_CHECK_OK(rank, tutti_all_reduce(NULL, NULL, 0, F32, TUTTI_SUM, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_all_gather(NULL, NULL, 0, F32, comm, NULL, NULL));
}

static void ranges(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    size_t most = SIZE_MAX / sizeof(float);
    REFUSED("overflow", tutti_all_reduce(a, b, most + 1, F32, TUTTI_SUM, comm, NULL, NULL));
    REFUSED("overflow", tutti_all_gather(a, b, most / (size_t)rank->n + 1, F32, comm, NULL, NULL));
    REFUSED("overflow", tutti_all_to_all(a, b, most, F32, comm, NULL, NULL));
    REFUSED("overflow", tutti_send(a, most + 1, F32, 0, 0, comm, NULL, NULL));
    REFUSED("root is 3 but the ranks are 0 to 2", tutti_broadcast(b, 4, F32, 3, comm, NULL, NULL));
    REFUSED("root is -1", tutti_reduce(a, b, 4, F32, TUTTI_SUM, -1, comm, NULL, NULL));
    REFUSED("dest is 9", tutti_send(a, 4, F32, 9, 0, comm, NULL, NULL));
    REFUSED("dest is -1", tutti_send(a, 4, F32, TUTTI_ANY_SOURCE, 0, comm, NULL, NULL));
    REFUSED("source is -2", tutti_recv(b, 4, F32, -2, 0, comm, NULL, NULL, NULL));
    REFUSED("tag is -1", tutti_send(a, 4, F32, 0, TUTTI_ANY_TAG, comm, NULL, NULL));
    REFUSED("tag is -3", tutti_recv(b, 4, F32, 0, -3, comm, NULL, NULL, NULL));
    REFUSED("source is 3", tutti_probe(3, 0, comm, NULL));
    RANK_CHECK_STATUS(rank, TUTTI_AGAIN, tutti_probe(TUTTI_ANY_SOURCE, TUTTI_ANY_TAG, comm, NULL));
    REFUSED("send_tag", tutti_sendrecv(a, 1, 0, -1, b, 1, 0, 0, F32, comm, NULL, NULL, NULL));
    REFUSED("overlap", tutti_sendrecv(a, 4, 0, 0, a + 2, 4, 0, 0, F32, comm, NULL, NULL, NULL));
}

static void types(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    enum tutti_status undefined = TUTTI_ERR_UNSUPPORTED;
    REFUSED("dtype 99", tutti_all_reduce(a, b, 4, (enum tutti_dtype)99, TUTTI_SUM, comm, NULL, NULL));
    REFUSED("dtype -1", tutti_broadcast(b, 4, (enum tutti_dtype) - 1, 0, comm, NULL, NULL));
    REFUSED("op 77", tutti_all_reduce(a, b, 4, F32, (enum tutti_op)77, comm, NULL, NULL));
    REFUSED("op -4", tutti_scan(a, b, 4, F32, (enum tutti_op) - 4, comm, NULL, NULL));
    RANK_CHECK_ERROR(rank, undefined, "band is not defined on float32",
                     tutti_all_reduce(a, b, 4, F32, TUTTI_BAND, comm, NULL, NULL));
    RANK_CHECK_ERROR(rank, undefined, "complex",
                     tutti_reduce(a, b, 4, TUTTI_COMPLEX64, TUTTI_MIN, 0, comm, NULL, NULL));
    RANK_CHECK_ERROR(rank, undefined, "bool", tutti_scan(a, b, 4, TUTTI_BOOL, TUTTI_AVG, comm, NULL, NULL));
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.size = 3;
    REFUSED("options.size is 3", tutti_barrier(comm, &options, NULL));
    options.size = sizeof(options);
    options.algorithm = "rnig";
    REFUSED("rnig", tutti_all_reduce(a, b, 4, F32, TUTTI_SUM, comm, &options, NULL));
    options.algorithm = "pairwise";
    options.label = "step 12";
    REFUSED(" [step 12] on rank", tutti_all_reduce(a, b, 4, F32, TUTTI_SUM, comm, &options, NULL));
}

static void overlaps(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    int32_t me = rank->index;
    float *own = b + 4 * me;
    REFUSED("overlap", tutti_all_reduce(b, b + 1, 4, F32, TUTTI_SUM, comm, NULL, NULL));
    REFUSED("overlap", tutti_all_reduce(b + 3, b, 4, F32, TUTTI_SUM, comm, NULL, NULL));
    REFUSED("overlap", tutti_all_gather(own + 1, b, 4, F32, comm, NULL, NULL));
    REFUSED("own block of recv", tutti_all_gather(b + 4 * ((me + 1) % 3), b, 4, F32, comm, NULL, NULL));
    REFUSED("own block of send", tutti_reduce_scatter(b, own + 1, 4, F32, TUTTI_SUM, comm, NULL, NULL));
    REFUSED("overlap", tutti_all_to_all(b, b + 1, 4, F32, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(b, b + 4, 4, F32, TUTTI_SUM, comm, NULL, NULL)); /* just beside */
    RANK_CHECK_OK(rank, tutti_all_gather(own, b, 4, F32, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_reduce_scatter(b, own, 4, F32, TUTTI_SUM, comm, NULL, NULL));
    /* insignificant arguments are not looked at */
    RANK_CHECK_OK(rank, tutti_reduce(b, me ? b + 1 : b, 4, F32, TUTTI_SUM, 0, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_gather(own, me ? own : b, 4, F32, 0, comm, NULL, NULL));
}

static void tables(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    int32_t me = rank->index;
    size_t counts[3] = {2, 2, 2}, displs[3] = {0, 1, 4}, backwards[3] = {8, 4, 0}, huge[3] = {SIZE_MAX, 2, 2};
    size_t wide[3] = {SIZE_MAX / 8, SIZE_MAX / 8, SIZE_MAX / 8}, far[3] = {0, SIZE_MAX - 1, 4}, other[3] = {2, 2, 2};
    REFUSED("counts is NULL", tutti_all_gather_v(a, b, NULL, NULL, F32, comm, NULL, NULL));
    REFUSED("blocks 0 and 1 of recv overlap", tutti_all_gather_v(a, b, counts, displs, F32, comm, NULL, NULL));
    REFUSED("overflow", tutti_all_gather_v(a, b, huge, NULL, F32, comm, NULL, NULL));
    REFUSED("overflow", tutti_all_gather_v(a, b, wide, NULL, F32, comm, NULL, NULL));
    REFUSED("displs[1]", tutti_all_gather_v(a, b, counts, far, F32, comm, NULL, NULL));
    REFUSED("counts is NULL", tutti_gather_v(a, 2, b, NULL, NULL, F32, me, comm, NULL, NULL));
    REFUSED("count is 1 but counts", tutti_gather_v(a, 1, b, counts, NULL, F32, me, comm, NULL, NULL));
    REFUSED("count is 1 but counts", tutti_scatter_v(a, counts, NULL, b, 1, F32, me, comm, NULL, NULL));
    REFUSED("send_counts is NULL", tutti_all_to_all_v(a, NULL, NULL, b, counts, NULL, F32, comm, NULL, NULL));
    REFUSED("recv_counts is NULL", tutti_all_to_all_v(a, counts, NULL, b, NULL, NULL, F32, comm, NULL, NULL));
    other[me] = 3;
    REFUSED("of the same block", tutti_all_to_all_v(a, other, NULL, b, counts, NULL, F32, comm, NULL, NULL));
    REFUSED("not defined here", tutti_all_to_all_v(b, counts, NULL, b, counts, NULL, F32, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_all_gather_v(a, b, counts, backwards, F32, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_all_gather_v(b + backwards[me], b, counts, backwards, F32, comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_all_gather_v(b + 2, b, counts, backwards, F32, comm, NULL, NULL)); /* in a gap */
}

static void whole_after(struct rank *rank)
{
    void (*const parts[])(struct rank *) = {pointers, ranges, types, overlaps, tables};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !rank->failure[0]; i++) {
        parts[i](rank);
        int32_t one = 1, sum = 0;
        if (!rank->failure[0])
            RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, NULL));
        RANK_CHECK(rank, rank->failure[0] || sum == rank->n);
    }
}

static void every_check(void **state)
{
    (void)state;
    assert_int_equal(ranks_forked(3, whole_after, NULL), 0);
}

static void op_checks(void **state)
{
    (void)state;
    enum tutti_op op = TUTTI_SUM;
    struct tutti_context *context = NULL;
    assert_int_equal(tutti_op_create(NULL, (tutti_op_function)(void (*)(void))op_checks, NULL, true, &op), BAD);
    assert_int_equal(tutti_context_create(NULL, 0, &context), TUTTI_OK);
    assert_int_equal(tutti_op_create(context, NULL, NULL, true, &op), BAD);
    assert_int_equal(tutti_op_destroy(context, TUTTI_SUM), BAD);
    assert_int_equal(tutti_op_destroy(context, (enum tutti_op)1000), BAD);
    tutti_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_check),
        cmocka_unit_test(op_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
