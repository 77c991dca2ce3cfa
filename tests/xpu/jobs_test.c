/* SPDX-License-Identifier: BSD-3-Clause */
/* Packed data, sparse blocks and rows of counts by the kernels of the device xpu, on the stand-in of Level Zero, whose
 * kernels may use all memory of the process. */
#include "xpu/jobs.h"

#include "device/gpu.h"

#include <stdio.h>

static const struct tutti_device_ops *ops = &tutti_device_xpu;
static struct tutti_device *device;

static void run(const char *module, const char *name, uint32_t blocks, uint32_t threads, const void *args,
                size_t args_bytes)
{
    (void)module;
    const struct tutti_gpu_launch launch = {.kernel = ops->gpu->kernel(device, name),
                                            .blocks = blocks,
                                            .threads = threads,
                                            .args_bytes = (uint32_t)args_bytes};
    assert_non_null(launch.kernel);
    assert_int_equal(ops->gpu->launch(device, &launch, args), TUTTI_OK);
    assert_int_equal(ops->stream_sync(device, NULL), TUTTI_OK);
}

static void test_packed_data(void **state)
{
    (void)state;
    jobs_recode(run, test_seed(), 2);
}

static void test_sparse_blocks(void **state)
{
    (void)state;
    jobs_sparse(run, test_seed());
}

static void test_rows(void **state)
{
    (void)state;
    jobs_counted_row(run, test_seed());
}

static void test_windows(void **state)
{
    (void)state;
    jobs_windows(run, test_seed());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_data),
        cmocka_unit_test(test_sparse_blocks),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_windows),
    };
    if (ops->absence()) {
        printf("skipped: %s\n", ops->absence());
        return 77;
    }
    if (ops->open(0, &device) != TUTTI_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
