/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors of device memory that are withdrawn while somebody takes them: what was taken may be anything by then,
 * and is not used. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "device/cuda/driver.h"

#include <string.h>

static const unsigned char *offered; /* withdrawn when a piece of it has been taken; NULL: nothing is */

enum tutti_status __real_cuda_pieces_add(struct cuda_pieces *pieces, uint64_t handle, size_t bytes);
enum tutti_status __wrap_cuda_pieces_add(struct cuda_pieces *pieces, uint64_t handle, size_t bytes);
enum tutti_status __wrap_cuda_pieces_add(struct cuda_pieces *pieces, uint64_t handle, size_t bytes)
{
    if (offered) tutti_cuda_unexport_memory(offered);
    offered = NULL;
    return __real_cuda_pieces_add(pieces, handle, bytes);
}

static void withdrawn(void **state)
{
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
    struct tutti_device *gpu = NULL;
    void *memory = NULL, *taken = NULL;
    uint64_t offset;
    (void)state;
    assert_int_equal(tutti_cuda_open(0, &gpu), TUTTI_OK);
    if (tutti_cuda_alloc_shared(gpu, TUTTI_DEVICE_SHARE_FD, 1 << 20, &memory) == TUTTI_ERR_UNSUPPORTED) skip();
    for (int withdraws = 0; withdraws < 2; withdraws++) {
        assert_int_equal(tutti_cuda_export_memory(gpu, memory, 1 << 20, handle, &offset), TUTTI_OK);
        offered = withdraws ? handle : NULL;
        const enum tutti_status status = tutti_cuda_import_memory(gpu, handle, &taken);
        if (!withdraws && status == TUTTI_ERR_UNSUPPORTED) skip(); /* the system lets nobody take descriptors */
        assert_int_equal(status, withdraws ? TUTTI_ERR_UNSUPPORTED : TUTTI_OK);
        if (!withdraws) tutti_cuda_unimport_memory(gpu, taken);
        tutti_cuda_unexport_memory(handle);
    }
    assert_null(offered);
    assert_non_null(strstr(tutti_last_error()->text, "it is not there (any more)"));
    tutti_cuda_free(gpu, memory);
    tutti_cuda_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(withdrawn)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
