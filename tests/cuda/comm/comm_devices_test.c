/* SPDX-License-Identifier: BSD-3-Clause */
/* Which communicators have a device, and with it back ends: children, those whose device changes, those where a member
 * can not open or connect its own, and what options and configurations say. */

#include "comm_test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void children(struct rank *rank)
{
    struct fixture f;
    struct tutti_comm *half = NULL, *fewer = NULL;
    int32_t leave_out = rank->n - 1;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, rank->index % 2, -rank->index, &half));
    RANK_CHECK(rank, tutti_comm_device(half) == f.g.gpu->ordinal && fake_of(half));
    RANK_CHECK(rank,
               fake_of(half)->config.n == (uint32_t)tutti_comm_size(half) && fake_of(half)->config.id == half->id);
    RANK_CHECK(rank, tutti_comm_sequence(half) == 0);
    RANK_CHECK_OK(rank, tutti_all_reduce(f.a, f.b, N, TUTTI_FLOAT32, TUTTI_SUM, half, &f.options, NULL));
    RANK_CHECK(rank, fake_of(half)->n == 1 && fake_of(half)->entries[0].seq == 1 && f.fake->n == 0);
    tutti_comm_destroy(half);
    all_here(rank);
    if (rank->index == leave_out) {
        tutti_comm_abort(rank->comm, "gone");
    } else {
        RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, &leave_out, 1, &fewer));
        RANK_CHECK(rank, fake_of(fewer) && tutti_comm_device(fewer) == f.g.gpu->ordinal);
        tutti_comm_destroy(fewer);
    }
    fixture_close(&f);
}

struct asking {
    struct tutti_comm *comm;
    _Atomic bool enough;
};

static void *ask_for_state(void *arg)
{
    struct asking *asking = arg;
    while (!atomic_load(&asking->enough)) (void)tutti_comm_state(asking->comm, NULL);
    return NULL;
}

/* Again and again, and away. */
static void change_devices(struct fixture *f)
{
    struct rank *rank = f->g.rank;
    for (int i = 0; i < 3; i++) {
        uint64_t nonce = fake_of(rank->comm)->config.nonce;
        RANK_CHECK_OK(rank, SUM(f, f->a, f->b, N, &f->options, NULL));
        RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, f->g.gpu->ordinal));
        RANK_CHECK(rank, fake_of(rank->comm)->n == 0 && fake_of(rank->comm)->config.nonce != nonce);
    }
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, TUTTI_DEVICE_NONE));
    RANK_CHECK(rank, !rank->comm->device && tutti_comm_device(rank->comm) == TUTTI_DEVICE_NONE);
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, f->g.gpu->ordinal));
    /* One can not: nobody has one, and each knows whose fault it is. */
    if (rank->index == 1) {
        RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "there is no CUDA device 99",
                         tutti_comm_set_device(rank->comm, 99));
    } else {
        RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "rank 1 can not use its device",
                         tutti_comm_set_device(rank->comm, f->g.gpu->ordinal));
    }
    RANK_CHECK(rank, tutti_comm_device(rank->comm) == TUTTI_DEVICE_NONE);
    RANK_CHECK(rank, tutti_comm_state(rank->comm, NULL) == TUTTI_OK);
}

/* While somebody asks for the state. */
static void devices_change(struct rank *rank)
{
    struct fixture f;
    struct asking asking = {.comm = rank->comm};
    pthread_t thread;
    if (!fixture_open(rank, &f)) return;
    RANK_CHECK(rank, pthread_create(&thread, NULL, ask_for_state, &asking) == 0);
    change_devices(&f);
    atomic_store(&asking.enough, true);
    pthread_join(thread, NULL);
    if (!rank->failure[0]) fixture_close(&f);
}

/* What one member can not open or connect, none uses. */
static void not_everywhere(struct rank *rank)
{
    int32_t device = rank->index % (int32_t)tutti_cuda_count();
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, device));
    RANK_CHECK(rank, rank->comm->device && rank->comm->device->n == 0 && tutti_comm_device(rank->comm) == device);
}

static void named_way(struct rank *rank)
{
    int32_t device = rank->index % (int32_t)tutti_cuda_count();
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "option gpu is cuda, which can not be used here: rank 1: ",
                     tutti_comm_set_device(rank->comm, device));
    RANK_CHECK(rank, !rank->comm->device);
}

static void off(struct rank *rank)
{
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, rank->index % (int32_t)tutti_cuda_count()));
    RANK_CHECK(rank, !rank->comm->device && tutti_comm_device(rank->comm) == TUTTI_DEVICE_NONE);
}

/* By the configuration: a number, or the context of the calling thread. */
static void configured(struct rank *rank)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_device_scope scope;
    struct tutti_device *gpu = NULL;
    char name[128];
    config.rank = rank->index, config.n_ranks = rank->n, config.name = name;
    int32_t device = rank->index % (int32_t)tutti_cuda_count();
    RANK_CHECK_OK(rank, tutti_cuda_open(device, &gpu));
    for (int way = 0; way < 4; way++) {
        static const int64_t wanted[] = {0, TUTTI_DEVICE_AUTO, TUTTI_DEVICE_AUTO, TUTTI_DEVICE_NONE};
        struct tutti_comm *comm = NULL;
        snprintf(name, sizeof name, "%.100s-%d", rank->name, way);
        config.device = way == 0 ? device : wanted[way];
        config.nonblocking = way == 1; /* on a thread of its own */
        if (way != 2) RANK_CHECK_OK(rank, tutti_cuda_enter(gpu, &scope));
        enum tutti_status status = tutti_comm_create(rank->context, &config, &comm);
        if (way != 2) tutti_cuda_leave(&scope);
        RANK_CHECK(rank, status == TUTTI_OK);
        while (tutti_comm_state(comm, NULL) == TUTTI_PENDING) tutti_sleep_ns(TUTTI_NS_PER_MS);
        RANK_CHECK_OK(rank, tutti_comm_state(comm, NULL));
        RANK_CHECK(rank, tutti_comm_device(comm) == (way < 2 ? device : TUTTI_DEVICE_NONE));
        RANK_CHECK(rank, tutti_comm_sequence(comm) == 0 && !fake_of(comm) == (way >= 2));
        tutti_comm_destroy(comm);
    }
    /* An older, smaller struct names none. */
    struct tutti_comm *comm = NULL;
    config.size = offsetof(struct tutti_comm_config, device);
    config.device = 99;
    snprintf(name, sizeof name, "%.100s-old", rank->name);
    RANK_CHECK_OK(rank, tutti_comm_create(rank->context, &config, &comm));
    RANK_CHECK(rank, tutti_comm_device(comm) == TUTTI_DEVICE_NONE);
    tutti_comm_destroy(comm);
    tutti_cuda_close(gpu);
}

static void test_arguments(void **state)
{
    (void)state;
    struct tutti_option wrong = {"gpu", "nothing"};
    struct tutti_context *context = NULL;
    assert_int_equal(tutti_context_create(&wrong, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "auto, host, off or one of: cuda, xpu, nccl"));
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_comm *comm = NULL;
    config.device = -3;
    assert_int_equal(tutti_comm_create(NULL, &config, &comm), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "device is -3"));
    assert_int_equal(tutti_comm_device(NULL), TUTTI_DEVICE_NONE);
}

/* ---- all ---- */

static const struct test tests[] = {
    {"children", children, 3, 4, false, 0, 0, {NULL, NULL}},
    {"devices change", devices_change, 2, 3, false, 0, 0, {NULL, NULL}},
    {"not opened by one", not_everywhere, 2, 3, false, 2, 0, {NULL, NULL}},
    {"not connected by one", not_everywhere, 2, 3, false, 0, 2, {NULL, NULL}},
    {"a way that is not there", named_way, 2, 2, false, 0, 2, {"gpu", "cuda"}},
    {"through the host by option", not_everywhere, 2, 2, false, 0, 0, {"gpu", "host"}},
    {"no devices by option", off, 2, 2, false, 0, 0, {"gpu", "off"}},
    {"configured", configured, 1, 2, false, 0, 0, {NULL, NULL}},
};

static void test_all(void **state)
{
    (void)state;
    run_rows(tests, sizeof tests / sizeof tests[0]);
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(test_arguments), cmocka_unit_test(test_all)};
    need_device();
    return cmocka_run_group_tests(all, NULL, NULL);
}
