/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call on memory of a device that no back end serves, so that all calls go through the host: one that is neither
 * the host's nor CUDA's (fake_device.h; whoever touched its memory but by the device's functions would end the
 * program). Or of the one of the list that an argument names, by the way that a second one names: host, or auto. */
#include "test.h"

#include "comm/call/device.h"
#include "contract.h"
#include "fake_device.h"

#include <string.h>

enum { RANKS_MOST = 4 };

struct batch {
    const struct contract_case *cases;
    size_t n;
};

static const struct tutti_device_ops *kind = &fake_device;
static struct tutti_option way = {"gpu", "auto"};
static bool has_backends;

static int32_t ordinal_of(const struct rank *rank)
{
    return rank->index % (int32_t)kind->count();
}

static void run_cases(struct rank *rank, struct contract_memory *memory)
{
    const struct batch *batch = rank->arg;
    for (size_t i = 0; i < batch->n && !rank->failure[0]; i++) {
        struct contract_case c = batch->cases[i];
        if (c.at[RANKS] % RANKS_MOST + 1 != (uint32_t)rank->n) continue;
        c.memory = memory, c.thrifty = true, c.mapped = c.seed >> 5;
        contract_run(rank, &c, NULL);
    }
}

/* On a stream of its own, or on the default one. */
static void run_batch(struct rank *rank)
{
    struct contract_memory memory;
    struct tutti_device *device;
    void *stream = NULL;
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, ordinal_of(rank)));
    RANK_CHECK(rank, rank->comm->device && (rank->comm->device->n > 0) == has_backends);
    RANK_CHECK_OK(rank, kind->open(ordinal_of(rank), &device));
    if (rank->index % 2) RANK_CHECK_OK(rank, kind->stream_create(device, &stream));
    contract_memory_init(&memory, device, stream);
    run_cases(rank, &memory);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    contract_memory_fini(&memory, rank->comm);
    kind->stream_destroy(device, stream);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    kind->close(device);
}

/* Worlds are processes and threads by turns. */
static void every_call(void **state)
{
    struct batch batch;
    struct contract_case *cases = contract_pairs(test_seed() + 61, &batch.n);
    (void)state;
    assert_non_null(cases);
    batch.cases = cases;
    for (uint32_t n = 1; n <= RANKS_MOST; n++) {
        struct ranks_config config = {.n = n, .forked = n % 2 == 0, .deadline_s = 120, .arg = &batch};
        assert_int_equal(ranks_run(&config, run_batch), 0);
    }
    free(cases);
}

/* A back end of another kind of device is not opened, though devices have the same ordinals. */
static void not_for_it(struct rank *rank)
{
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "option gpu is cuda, which can not be used here",
                     tutti_comm_set_device(rank->comm, ordinal_of(rank)));
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "is a fake"));
}

static void other_kinds(void **state)
{
    const struct tutti_option gpu = {"gpu", "cuda"};
    struct ranks_config config = {.n = 2, .options = &gpu, .n_options = 1};
    (void)state;
    assert_int_equal(ranks_run(&config, not_for_it), 0);
}

/* Algorithms from files carry out all_reduce and all_gather, copied to the host and back. */
static void every_call_by_files(void **state)
{
    struct batch batch;
    struct contract_case *cases = contract_pairs(test_seed() + 63, &batch.n);
    const struct tutti_option files = {"algorithms", RING_C "," PAT_C};
    struct ranks_config config = {.n = 3, .deadline_s = 120, .arg = &batch, .options = &files, .n_options = 1};
    (void)state;
    assert_non_null(cases);
    batch.cases = cases;
    assert_int_equal(ranks_run(&config, run_batch), 0);
    free(cases);
}

/* Processes first: drivers do not survive a fork. */
static void every_call_named(void **state)
{
    struct batch batch;
    struct contract_case *cases = contract_pairs(test_seed() + 62, &batch.n);
    struct ranks_config config = {
        .n = 2, .forked = *state == NULL, .deadline_s = 120, .arg = &batch, .options = &way, .n_options = 1};
    assert_non_null(cases);
    batch.cases = cases;
    assert_int_equal(ranks_run(&config, run_batch), 0);
    free(cases);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call), cmocka_unit_test(other_kinds),
                                       cmocka_unit_test(every_call_by_files)};
    static char threads;
    struct CMUnitTest named[] = {cmocka_unit_test(every_call_named),
                                 cmocka_unit_test_prestate(every_call_named, &threads)};
    if (argc > 1) {
        kind = tutti_device_named(argv[1]);
        way.value = argc > 2 ? argv[2] : "host";
        has_backends = strcmp(way.value, "host") != 0;
        return kind ? cmocka_run_group_tests_name("contract of a device", named, NULL, NULL) : 2;
    }
    tutti_devices[TUTTI_DEVICE_cuda] = &fake_device;
    return cmocka_run_group_tests_name("contract device", tests, NULL, NULL);
}
