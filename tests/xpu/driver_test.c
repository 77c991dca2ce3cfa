/* SPDX-License-Identifier: BSD-3-Clause */
/* Our declarations are Level Zero's, where its header is installed. Where there is no loader, none that will do, no
 * driver, or a driver that fails, a sentence says so; nothing is loaded that nobody uses. Each case is a process of its
 * own, since the driver is opened once. The argument is the stand-in. */

#include "test.h"

#include "device/level_zero/driver.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if __has_include(<level_zero/ze_api.h>)
#include <level_zero/ze_api.h>

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs)
SAME(XPU_RESULT_NOT_READY, ZE_RESULT_NOT_READY);
SAME(XPU_RESULT_DEVICE_LOST, ZE_RESULT_ERROR_DEVICE_LOST);
SAME(XPU_RESULT_OUT_OF_HOST_MEMORY, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
SAME(XPU_RESULT_OUT_OF_DEVICE_MEMORY, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
SAME(XPU_RESULT_MODULE_BUILD_FAILURE, ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
SAME(XPU_RESULT_INSUFFICIENT_PERMISSIONS, ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS);
SAME(XPU_RESULT_DEPENDENCY_UNAVAILABLE, ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
SAME(XPU_RESULT_UNINITIALIZED, ZE_RESULT_ERROR_UNINITIALIZED);
SAME(XPU_RESULT_UNSUPPORTED_VERSION, ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
SAME(XPU_RESULT_UNSUPPORTED_FEATURE, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
SAME(XPU_RESULT_INVALID_ARGUMENT, ZE_RESULT_ERROR_INVALID_ARGUMENT);
SAME(XPU_RESULT_INVALID_SIZE, ZE_RESULT_ERROR_INVALID_SIZE);
SAME(XPU_RESULT_UNSUPPORTED_SIZE, ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
SAME(XPU_RESULT_INVALID_NATIVE_BINARY, ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
SAME(XPU_STRUCTURE_DRIVER_PROPERTIES, ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES);
SAME(XPU_STRUCTURE_QUEUE_GROUP, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES);
SAME(XPU_STRUCTURE_MEMORY, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES);
SAME(XPU_STRUCTURE_CONTEXT, ZE_STRUCTURE_TYPE_CONTEXT_DESC);
SAME(XPU_STRUCTURE_QUEUE, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
SAME(XPU_STRUCTURE_LIST, ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC);
SAME(XPU_STRUCTURE_EVENT_POOL, ZE_STRUCTURE_TYPE_EVENT_POOL_DESC);
SAME(XPU_STRUCTURE_EVENT, ZE_STRUCTURE_TYPE_EVENT_DESC);
SAME(XPU_STRUCTURE_DEVICE_MEMORY, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
SAME(XPU_STRUCTURE_HOST_MEMORY, ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC);
SAME(XPU_STRUCTURE_ALLOCATION, ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES);
SAME(XPU_STRUCTURE_MODULE, ZE_STRUCTURE_TYPE_MODULE_DESC);
SAME(XPU_STRUCTURE_KERNEL, ZE_STRUCTURE_TYPE_KERNEL_DESC);
SAME(XPU_STRUCTURE_FREE, ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC);
SAME(XPU_STRUCTURE_LIMITS, ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC);
SAME(XPU_STRUCTURE_DEVICE, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2);
SAME(XPU_INIT_GPU_ONLY, ZE_INIT_FLAG_GPU_ONLY);
SAME(XPU_DEVICE_GPU, ZE_DEVICE_TYPE_GPU);
SAME(XPU_GROUP_COMPUTE, ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);
SAME(XPU_MODULES_DOUBLE, ZE_DEVICE_MODULE_FLAG_FP64);
SAME(XPU_LINK_ATOMICS, ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS);
SAME(XPU_STRUCTURE_MODULES, ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES);
SAME(XPU_STRUCTURE_LINK, ZE_STRUCTURE_TYPE_DEVICE_P2P_PROPERTIES);
SAME(XPU_QUEUE_ASYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
SAME(XPU_EVENT_HOST_VISIBLE, ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
SAME(XPU_EVENT_TIMED, ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
SAME(XPU_SCOPE_HOST, ZE_EVENT_SCOPE_FLAG_HOST);
SAME(XPU_MEMORY_DEVICE, ZE_MEMORY_TYPE_DEVICE);
SAME(XPU_MEMORY_SHARED, ZE_MEMORY_TYPE_SHARED);
SAME(XPU_FREE_BLOCKING, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE);
SAME(XPU_LIMITS_EXCEEDED, ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE);
SAME(XPU_MODULE_SPIRV, ZE_MODULE_FORMAT_IL_SPIRV);
SAME(XPU_MODULE_NATIVE, ZE_MODULE_FORMAT_NATIVE);
SAME(XPU_INDIRECT_ALL, ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST | ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE |
                           ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED);
#define PLACE(ours, member, theirs, of_theirs)                                                                         \
    SAME(sizeof(struct ours), sizeof(theirs));                                                                         \
    SAME(offsetof(struct ours, member), offsetof(theirs, of_theirs))
PLACE(xpu_driver_facts, version, ze_driver_properties_t, driverVersion);
PLACE(xpu_device_facts, name, ze_device_properties_t, name);
PLACE(xpu_device_facts, max_alloc, ze_device_properties_t, maxMemAllocSize);
PLACE(xpu_device_facts, slices, ze_device_properties_t, numSlices);
PLACE(xpu_device_facts, timer_resolution, ze_device_properties_t, timerResolution);
PLACE(xpu_device_facts, kernel_timestamp_bits, ze_device_properties_t, kernelTimestampValidBits);
PLACE(xpu_device_facts, uuid, ze_device_properties_t, uuid);
PLACE(xpu_memory_facts, bytes, ze_device_memory_properties_t, totalSize);
PLACE(xpu_module_facts, flags, ze_device_module_properties_t, flags);
PLACE(xpu_module_facts, max_arguments, ze_device_module_properties_t, maxArgumentsSize);
PLACE(xpu_flags_desc, flags, ze_device_p2p_properties_t, flags);
PLACE(xpu_group_facts, n_queues, ze_command_queue_group_properties_t, numQueues);
PLACE(xpu_allocation_facts, id, ze_memory_allocation_properties_t, id);
PLACE(xpu_queue_desc, priority, ze_command_queue_desc_t, priority);
PLACE(xpu_list_desc, flags, ze_command_list_desc_t, flags);
PLACE(xpu_pool_desc, n, ze_event_pool_desc_t, count);
PLACE(xpu_event_desc, wait_scope, ze_event_desc_t, wait);
PLACE(xpu_flags_desc, flags, ze_context_desc_t, flags);
PLACE(xpu_flags_desc, flags, ze_host_mem_alloc_desc_t, flags);
PLACE(xpu_flags_desc, flags, ze_relaxed_allocation_limits_exp_desc_t, flags);
PLACE(xpu_flags_desc, flags, ze_memory_free_ext_desc_t, freePolicy);
PLACE(xpu_device_memory_desc, memory, ze_device_mem_alloc_desc_t, ordinal);
PLACE(xpu_module_desc, constants, ze_module_desc_t, pConstants);
PLACE(xpu_kernel_desc, name, ze_kernel_desc_t, pKernelName);
PLACE(xpu_ipc_handle, bytes, ze_ipc_mem_handle_t, data);
PLACE(xpu_grid, groups, ze_group_count_t, groupCountX);
PLACE(xpu_timestamps, end, ze_kernel_timestamp_result_t, global.kernelEnd);
#endif

/* 0: all of this went as it should in a process of its own; else the step that did not. */
static int in_child(int (*steps)(void), const char *library, const char *name, const char *value)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        if (name) setenv(name, value, 1);
        if (library)
            setenv("TUTTI_LEVEL_ZERO_LIBRARY", library, 1);
        else
            unsetenv("TUTTI_LEVEL_ZERO_LIBRARY");
        _exit(steps());
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const char *wanted, *standin; /* part of the sentence */

static int absent(void)
{
    struct tutti_device *device;
    const void *pointer = &device;
    const char *why = tutti_xpu_absence();
    if (!why || !strstr(why, wanted)) return 1;
    if (tutti_xpu_count() != 0 || tutti_xpu_current() != -1 || tutti_xpu_of(pointer) != -1) return 2;
    if (tutti_xpu_open(0, &device) != TUTTI_ERR_UNSUPPORTED) return 3;
    if (!strstr(tutti_last_error()->text, wanted)) return 4;
    return why == tutti_xpu_absence() ? 0 : 5; /* it is found out once */
}

static void test_absences(void **state)
{
    static const struct {
        const char *library, *name, *value, *sentence;
    } cases[] = {
        {"/no/such/libze.so.1", NULL, NULL, "there is no Level Zero here: /no/such/libze.so.1: cannot open"},
        {"libc.so.6", NULL, NULL, "libc.so.6 is no loader of Level Zero 1.3 or later: it has no zeInit"},
        {NULL, "TUTTI_STANDIN_XPU_DEVICES", "0",
         "Level Zero's loader finds no driver for Intel GPUs (zeInit: 0x78000001)"},
        {NULL, "TUTTI_STANDIN_XPU_FAILS", "zeContextCreate:1:0x70000002",
         "Level Zero does not start: zeContextCreate: out of host memory (0x70000002)"},
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        const char *library = cases[i].library ? cases[i].library : standin;
        wanted = cases[i].sentence;
        assert_int_equal(in_child(absent, library, cases[i].name, cases[i].value), 0);
    }
}

/* A device whose opening fails can be opened later. */
static int opens_late(void)
{
    struct tutti_device *device;
    if (tutti_xpu_open(0, &device) >= 0 || !strstr(tutti_last_error()->text, wanted)) return 1;
    return tutti_xpu_open(0, &device) == TUTTI_OK && tutti_xpu_kernel(device, "fold_float32_16") ? 0 : 2;
}

static void test_failures(void **state)
{
    static const char *const fails[] = {"zeCommandListCreateImmediate:2:0x70000003",
                                        "zeDeviceGetProperties:3:0x70000001", "zeKernelCreate:1:0x70000002"};
    static const char *const sentences[] = {
        "zeCommandListCreateImmediate on XPU device 0 (stand-in of an Intel GPU): out of device memory (0x70000003)",
        "zeDeviceGetProperties: the device is lost (0x70000001)", "out of host memory"};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(fails); i++) {
        wanted = sentences[i];
        assert_int_equal(in_child(opens_late, standin, "TUTTI_STANDIN_XPU_FAILS", fails[i]), 0);
    }
}

/* A cached binary that the driver refuses, as one of another card may be, is compiled anew. */
static int opens(void)
{
    struct tutti_device *device;
    return tutti_xpu_open(0, &device) == TUTTI_OK && tutti_xpu_kernel(device, "fold_float32_16") ? 0 : 1;
}

static void test_a_refused_binary(void **state)
{
    (void)state;
    assert_int_equal(in_child(opens, standin, NULL, NULL), 0); /* it is in the cache from now on */
    assert_int_equal(in_child(opens, standin, "TUTTI_STANDIN_XPU_FAILS", "zeModuleCreate:1:0x7800000f"), 0);
}

/* The mark that a failing call had taken serves the next one. */
static int fails_and_goes_on(void)
{
    struct tutti_device *device;
    struct xpu_mark *before = NULL, *after = NULL;
    void *event, *stream, *no_stream = &device;
    if (tutti_xpu_open(0, &device) < 0 || tutti_xpu_event_create(device, false, &event) < 0) return 1;
    if (tutti_xpu_stream_create(device, &stream) < 0 || xpu_mark_take(xpu_driver(), false, &before) < 0) return 2;
    xpu_mark_return(before);
    if (tutti_xpu_event_record(device, event, no_stream) >= 0) return 3;
    if (tutti_xpu_stream_sync(device, no_stream) >= 0) return 4;
    if (xpu_mark_take(xpu_driver(), false, &after) < 0 || after != before) return 5;
    xpu_mark_return(after);
    if (xpu_streams_sync(xpu_of(device)) < 0 || tutti_xpu_event_record(device, event, stream) < 0) return 6;
    tutti_xpu_stream_destroy(device, stream);
    return xpu_streams_sync(xpu_of(device)) == TUTTI_OK && tutti_xpu_event_query(device, event) == TUTTI_OK ? 0 : 7;
}

/* A list that a queue does not take: its events serve others, more of them than a pool has. */
static int queue_fails(void)
{
    const struct xpu_queue_desc desc = {.structure = XPU_STRUCTURE_QUEUE, .mode = XPU_QUEUE_ASYNCHRONOUS};
    int (*create)(void *, void *, const struct xpu_queue_desc *, void **) = NULL;
    struct tutti_device *device;
    void *event, *stream, *queue, *symbol = dlsym(dlopen(standin, RTLD_NOW), "zeCommandQueueCreate");
    memcpy(&create, &symbol, sizeof symbol);
    if (tutti_xpu_open(0, &device) < 0 || tutti_xpu_event_create(device, false, &event) < 0) return 1;
    if (create(device->context, xpu_driver()->devices[0], &desc, &queue) != 0) return 2;
    if (tutti_xpu_stream_adopt(device, TUTTI_NATIVE_QUEUE, queue, &stream) < 0) return 3;
    if (tutti_xpu_event_record(device, event, stream) != TUTTI_ERR_MEMORY) return 4;
    for (int i = 0; i < 200; i++)
        if (tutti_xpu_event_record(device, event, stream) < 0 || tutti_xpu_stream_sync(device, stream) < 0) return 5;
    return xpu_streams_sync(xpu_of(device)) == TUTTI_OK && tutti_xpu_event_query(device, event) == TUTTI_OK ? 0 : 6;
}

static void test_calls_that_fail(void **state)
{
    (void)state;
    assert_int_equal(
        in_child(queue_fails, standin, "TUTTI_STANDIN_XPU_FAILS", "zeCommandQueueExecuteCommandLists:1:0x70000002"), 0);
    assert_int_equal(in_child(fails_and_goes_on, standin, NULL, NULL), 0);
}

static int asks_of_host_memory(void)
{
    int on_stack;
    if (tutti_xpu_current() != -1 || tutti_xpu_of(&on_stack) != -1) return 1;
    return dlopen("libze_loader.so.1", RTLD_NOW | RTLD_NOLOAD) ? 2 : 0;
}

static void test_a_driver_that_nobody_uses_stays_where_it_is(void **state)
{
    (void)state;
    assert_int_equal(in_child(asks_of_host_memory, NULL, NULL, NULL), 0);
}

/* What the driver's calls leave behind after a fork is not touched. */
static int forks(void)
{
    struct tutti_device *device;
    void *memory, *stream;
    int status = -1;
    if (tutti_xpu_open(0, &device) < 0 || tutti_xpu_alloc(device, 100, &memory) < 0) return 1;
    if (tutti_xpu_stream_create(device, &stream) < 0) return 2;
    const pid_t child = fork();
    if (child == 0) {
        if (!strstr(tutti_xpu_absence(), "after fork") || tutti_xpu_of(memory) != -1) _exit(1);
        if (tutti_xpu_copy(device, memory, memory, 1, stream) != TUTTI_ERR_UNSUPPORTED) _exit(2);
        tutti_xpu_stream_destroy(device, stream), tutti_xpu_free(device, memory);
        _exit(0);
    }
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 3;
}

static void test_forks(void **state)
{
    (void)state;
    assert_int_equal(in_child(forks, standin, NULL, NULL), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absences),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_a_driver_that_nobody_uses_stays_where_it_is),
        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_a_refused_binary),
        cmocka_unit_test(test_calls_that_fail),
    };
    standin = argc > 1 ? argv[1] : "";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
