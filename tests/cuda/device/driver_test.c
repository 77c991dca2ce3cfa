/* SPDX-License-Identifier: BSD-3-Clause */
/* Where there is no driver, or none that will do, a sentence says so; nothing is loaded that nobody uses. Each case is
 * a process of its own, since the driver is opened once. */

#include "test.h"

#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#include <cudaTypedefs.h>

/* ---- our declarations are the driver's ---- */
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(CUDA_RESULT_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_RESULT_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_RESULT_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(CUDA_RESULT_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CUDA_RESULT_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(CUDA_RESULT_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CUDA_RESULT_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
SAME(CUDA_RESULT_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
SAME(CUDA_RESULT_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(CUDA_RESULT_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CUDA_RESULT_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CUDA_RESULT_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME(CUDA_RESULT_TOO_MANY_PEERS, CUDA_ERROR_TOO_MANY_PEERS);
SAME(CUDA_RESULT_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CUDA_DEVICE_N_SMS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CUDA_DEVICE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CUDA_DEVICE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CUDA_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(CUDA_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(CUDA_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CUDA_POINTER_IS_LEGACY_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME(CUDA_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(CUDA_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME(CUDA_POINTER_MAPPING_SIZE, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
SAME(CUDA_POINTER_MAPPING_START, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
SAME(CUDA_DEVICE_HAS_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CUDA_DEVICE_HAS_DESCRIPTORS, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(CUDA_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CUDA_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CUDA_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME(CUDA_HANDLE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(sizeof(struct cuda_allocation), sizeof(CUmemAllocationProp));
SAME(offsetof(struct cuda_allocation, handle_types), offsetof(CUmemAllocationProp, requestedHandleTypes));
SAME(offsetof(struct cuda_allocation, location), offsetof(CUmemAllocationProp, location));
SAME(offsetof(struct cuda_allocation, unused), offsetof(CUmemAllocationProp, win32HandleMetaData));
SAME(offsetof(struct cuda_allocation, compression), offsetof(CUmemAllocationProp, allocFlags));
SAME(sizeof(struct cuda_access), sizeof(CUmemAccessDesc));
SAME(offsetof(struct cuda_access, flags), offsetof(CUmemAccessDesc, flags));
SAME(sizeof(struct cuda_location), sizeof(CUmemLocation));
SAME(sizeof(uint64_t), sizeof(CUmemGenericAllocationHandle));
SAME(CUDA_MEMORY_OF_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(CUDA_FUNCTION_LOCAL_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(CUDA_FUNCTION_N_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(CUDA_HOST_DEVICEMAP, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(CUDA_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME(CUDA_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CUDA_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CUDA_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(CUDA_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(CUDA_CAPTURE_ADD_DEPENDENCIES, CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
SAME(CUDA_CAPTURE_SET_DEPENDENCIES, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
SAME(CUDA_WAIT_VALUE_GEQ, CU_STREAM_WAIT_VALUE_GEQ);
SAME(sizeof(struct cuda_ipc_handle), sizeof(CUipcMemHandle));
SAME(sizeof(struct cuda_uuid), sizeof(CUuuid));
SAME(CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(sizeof(struct cuda_launch_attribute), sizeof(CUlaunchAttribute));
SAME(offsetof(struct cuda_launch_attribute, value), offsetof(CUlaunchAttribute, value));
SAME(sizeof(struct cuda_launch_config), sizeof(CUlaunchConfig));
SAME(offsetof(struct cuda_launch_config, stream), offsetof(CUlaunchConfig, hStream));
SAME(offsetof(struct cuda_launch_config, attributes), offsetof(CUlaunchConfig, attrs));
SAME(offsetof(struct cuda_launch_config, n_attributes), offsetof(CUlaunchConfig, numAttrs));
SAME(sizeof(uint64_t), sizeof(CUdeviceptr));
SAME(sizeof(int), sizeof(CUdevice));
SAME(sizeof(uint64_t), sizeof(cuuint64_t));
#endif

/* 0: all of this went as it should in a process of its own; else the step that did not. */
static int in_child(int (*steps)(void), const char *driver)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        if (driver)
            setenv("TUTTI_CUDA_DRIVER", driver, 1);
        else
            unsetenv("TUTTI_CUDA_DRIVER");
        _exit(steps());
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const char *wanted; /* part of the sentence */

static int absent(void)
{
    struct tutti_device *gpu;
    void *pointer = &gpu;
    const char *why = tutti_cuda_absence();
    if (!why || !strstr(why, wanted)) return 1;
    if (tutti_cuda_count() != 0 || tutti_cuda_current() != -1 || tutti_cuda_of(pointer) != -1) return 2;
    if (tutti_cuda_open(0, &gpu) != TUTTI_ERR_UNSUPPORTED) return 3;
    if (!strstr(tutti_last_error()->text, wanted)) return 4;
    return why == tutti_cuda_absence() ? 0 : 5; /* it is found out once */
}

static void test_no_library(void **state)
{
    (void)state;
    wanted = "there is no CUDA driver here: /no/such/libcuda.so.1: cannot open";
    assert_int_equal(in_child(absent, "/no/such/libcuda.so.1"), 0);
}

static void test_another_library(void **state)
{
    (void)state;
    wanted = "libc.so.6 is no CUDA driver of 12.0 or later: it has no cuInit";
    assert_int_equal(in_child(absent, "libc.so.6"), 0);
}

static void test_an_old_driver(void **state)
{
    (void)state;
    wanted = "the CUDA driver here is for CUDA 11.8, and 12.0 or later is needed";
    assert_int_equal(in_child(absent, TEST_OLD_DRIVER), 0);
}

static int asks_of_host_memory(void)
{
    int on_stack;
    if (tutti_cuda_current() != -1 || tutti_cuda_of(&on_stack) != -1) return 1;
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) ? 2 : 0;
}

static void test_a_driver_that_nobody_uses_stays_where_it_is(void **state)
{
    (void)state;
    assert_int_equal(in_child(asks_of_host_memory, NULL), 0);
}

static void test_builds_say_what_they_are_for(void **state)
{
    (void)state;
    const char *at = tutti_cuda_built_for();
    for (; *at; at += strspn(at, " ")) {
        char *end;
        const unsigned long architecture = strtoul(at, &end, 10);
        assert_true(end > at && architecture >= 50 && architecture < 1000);
        at = end;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_library),
        cmocka_unit_test(test_another_library),
        cmocka_unit_test(test_an_old_driver),
        cmocka_unit_test(test_a_driver_that_nobody_uses_stays_where_it_is),
        cmocka_unit_test(test_builds_say_what_they_are_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
