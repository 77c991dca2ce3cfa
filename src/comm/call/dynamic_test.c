/* SPDX-License-Identifier: BSD-3-Clause */
/* all_to_all_v_dynamic on host memory: what came is told, blocks go where they should, and what does not fit anywhere
 * is told to all, moves nothing and leaves the communicator whole. */
#include "ranks.h"
#include "test.h"

#include <string.h>
#include <tutti/tutti.h>

enum { RANKS_MOST = 8, ROOM = 4096 };

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33, x *= UINT64_C(0xff51afd7ed558ccd), x ^= x >> 33, x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

/* What rank `from` sends to rank `to` in a round: now and then nothing. */
static uint64_t count_of(uint64_t round, int32_t from, int32_t to)
{
    const uint64_t bits = mix(round * 1009 + (uint64_t)from * 31 + (uint64_t)to + test_seed());
    return bits % 5 == 0 ? 0 : bits >> 8 & 0xff;
}
static int32_t value_of(uint64_t round, int32_t from, int32_t to, uint64_t i)
{
    return (int32_t)(mix(round * 77 + (uint64_t)from * 5 + (uint64_t)to * 3 + i * 11) & 0x7fffffff);
}

struct sides {
    int32_t send[ROOM], recv[ROOM], want[ROOM];
    uint64_t send_counts[RANKS_MOST], send_displs[RANKS_MOST], recv_counts[RANKS_MOST], recv_displs[RANKS_MOST];
    uint64_t want_counts[RANKS_MOST];
};

/* Blocks lie with gaps between them, and in another order, or packed. */
static void fill(const struct rank *rank, uint64_t round, bool displs, struct sides *s)
{
    const int32_t n = rank->n, me = rank->index;
    uint64_t sent = 0, received = 0;
    memset(s->recv, 0x55, sizeof(s->recv));
    memset(s->want, 0x55, sizeof(s->want));
    for (int32_t i = 0; i < n; i++) {
        const int32_t r = displs ? n - 1 - i : i;
        s->send_counts[r] = count_of(round, me, r);
        s->want_counts[r] = count_of(round, r, me);
        if (displs) sent += mix(round + (uint64_t)i) % 7, received += mix(round + 1 + (uint64_t)i) % 7;
        s->send_displs[r] = sent, s->recv_displs[r] = received;
        for (uint64_t k = 0; k < s->send_counts[r]; k++) s->send[sent + k] = value_of(round, me, r, k);
        for (uint64_t k = 0; k < s->want_counts[r]; k++) s->want[received + k] = value_of(round, r, me, k);
        sent += s->send_counts[r], received += s->want_counts[r];
    }
}

static struct tutti_all_to_all_v_dynamic call_of(struct sides *s, bool displs, int32_t *status)
{
    return (struct tutti_all_to_all_v_dynamic){.size = sizeof(struct tutti_all_to_all_v_dynamic),
                                               .send = s->send,
                                               .send_counts = s->send_counts,
                                               .send_displs = displs ? s->send_displs : NULL,
                                               .send_capacity = ROOM,
                                               .recv = s->recv,
                                               .recv_counts = s->recv_counts,
                                               .recv_displs = displs ? s->recv_displs : NULL,
                                               .recv_capacity = ROOM,
                                               .status = status,
                                               .dtype = TUTTI_INT32};
}

static void moved(struct rank *rank)
{
    struct sides *s = rank_alloc(rank, sizeof(*s));
    for (uint64_t round = 0; round < 40; round++) {
        const bool displs = round % 2;
        int32_t status = 99;
        fill(rank, round, displs, s);
        const struct tutti_all_to_all_v_dynamic call = call_of(s, displs, round % 3 ? &status : NULL);
        struct tutti_work *work = NULL;
        RANK_CHECK_OK(rank, tutti_all_to_all_v_dynamic(&call, rank->comm, NULL, round % 4 ? NULL : &work));
        if (work) RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
        tutti_work_free(work);
        RANK_CHECK(rank, memcmp(s->recv_counts, s->want_counts, (size_t)rank->n * 8) == 0);
        RANK_CHECK(rank, memcmp(s->recv, s->want, sizeof(s->recv)) == 0);
        RANK_CHECK(rank, status == (round % 3 ? TUTTI_OK : 99));
    }
}

static void what_came_is_told(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= RANKS_MOST; n += n < 4 ? 1 : 4) assert_int_equal(ranks_threads(n, moved, NULL), 0);
    assert_int_equal(ranks_forked(3, moved, NULL), 0);
}

/* One rank has too little room, or sends what it does not have. */
static void misfits(struct rank *rank)
{
    struct sides *s = rank_alloc(rank, sizeof(*s));
    for (int what = 0; what < 4; what++) {
        const bool displs = what == 1, odd = rank->index == 1;
        int32_t status = 99;
        fill(rank, 500, displs, s);
        struct tutti_all_to_all_v_dynamic call = call_of(s, displs, &status);
        uint64_t total = 0;
        for (int32_t r = 0; r < rank->n; r++) total += s->want_counts[r];
        RANK_CHECK(rank, total > 0);
        if (odd && what == 0) call.recv_capacity = total - 1;
        if (odd && what == 1) s->recv_displs[0] = UINT64_MAX - 3;
        if (odd && what == 2) call.send_capacity = 3;
        if (odd && what == 3) s->send_counts[0] = UINT64_MAX;
        const char *says = what == 0   ? "rank 1 would receive"
                           : what == 1 ? "do not fit"
                                       : "what rank 1 sends is not all within its send";
        memset(s->want, 0x55, sizeof(s->want));
        RANK_CHECK_ERROR(rank, TUTTI_ERR_TRUNCATED, says, tutti_all_to_all_v_dynamic(&call, rank->comm, NULL, NULL));
        RANK_CHECK(rank, status == TUTTI_ERR_TRUNCATED && memcmp(s->recv, s->want, sizeof(s->recv)) == 0);
        RANK_CHECK(rank, what > 2 || memcmp(s->recv_counts, s->want_counts, (size_t)rank->n * 8) == 0);
    }
    moved(rank);
}

static void what_does_not_fit(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, misfits, NULL), 0);
}

static void refused(struct rank *rank)
{
    struct sides *s = rank_alloc(rank, sizeof(*s));
    struct tutti_comm *comm = rank->comm;
    fill(rank, 3, false, s);
    const struct tutti_all_to_all_v_dynamic good = call_of(s, false, NULL);
    struct tutti_all_to_all_v_dynamic call = good;
#define REFUSED(status, part) RANK_CHECK_ERROR(rank, status, part, tutti_all_to_all_v_dynamic(&call, comm, NULL, NULL))
    call.size = 8;
    REFUSED(TUTTI_ERR_ARGUMENT, "its size is not set");
    call = good, call.send_counts = NULL;
    REFUSED(TUTTI_ERR_ARGUMENT, "send_counts is NULL");
    call = good, call.recv_counts = NULL;
    REFUSED(TUTTI_ERR_ARGUMENT, "recv_counts is NULL");
    call = good, call.recv = NULL;
    REFUSED(TUTTI_ERR_ARGUMENT, "recv is NULL but recv_capacity is 4096");
    call = good, call.recv = s->send + 5;
    REFUSED(TUTTI_ERR_ARGUMENT, "send and recv overlap");
    call = good, call.dtype = (enum tutti_dtype)88;
    REFUSED(TUTTI_ERR_ARGUMENT, "dtype 88");
    call = good, call.send_capacity = SIZE_MAX / 2;
    REFUSED(TUTTI_ERR_ARGUMENT, "overflow");
    call = good;
    RANK_CHECK_OK(rank, tutti_group_start());
    REFUSED(TUTTI_ERR_ARGUMENT, "can not be called between group_start and group_end");
    RANK_CHECK_OK(rank, tutti_group_end(NULL));
}

static void refusals(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, refused, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_came_is_told),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
