/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory between two processes: what one writes the other reads; what can not be had says why; no descriptor is
 * left behind. Each case is a pair of processes that have not used the driver before: the exporter and the importer. */

#include "test.h"

#include "device/level_zero/driver.h"

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum { BYTES = 70000, OFFSET = 4321, DEADLINE_S = 60 };

/* In a child: says what is wrong, and ends it. */
#define CHECK(claim)                                                                                                   \
    do {                                                                                                               \
        if (!(claim)) {                                                                                                \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #claim, tutti_last_error()->text);                 \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define CHECK_OK(call) CHECK((call) == TUTTI_OK)

struct side {
    int socket;
    struct tutti_device *device;
};
struct offer {
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
    uint64_t offset;
};

static void tell(const struct side *side, const void *what, size_t bytes)
{
    CHECK(write(side->socket, what, bytes) == (ssize_t)bytes);
}

static void hear(const struct side *side, void *what, size_t bytes)
{
    CHECK(recv(side->socket, what, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

/* Both have come here. */
static void meet(const struct side *side)
{
    char byte = 1;
    tell(side, &byte, 1);
    hear(side, &byte, 1);
}

static int n_descriptors(void)
{
    int n = 0;
    DIR *all = opendir("/proc/self/fd");
    while (readdir(all)) n++;
    closedir(all);
    return n;
}

static pid_t start(void (*function)(struct side *side), const int ends[2], int which)
{
    const pid_t pid = fork();
    if (pid != 0) return pid;
    struct side side = {.socket = ends[which]};
    close(ends[1 - which]);
    alarm(DEADLINE_S);
    CHECK_OK(tutti_xpu_open(which, &side.device));
    function(&side);
    _exit(0);
}

static void run_pair(void (*exporter)(struct side *side), void (*importer)(struct side *side))
{
    int ends[2], status[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const pid_t pids[2] = {start(exporter, ends, 0), start(importer, ends, 1)};
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < 2; i++) assert_int_equal(waitpid(pids[i], &status[i], 0), pids[i]);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

static void put(const struct side *side, char *at, char value)
{
    CHECK_OK(tutti_xpu_set(side->device, at, (unsigned char)value, BYTES));
}

static void expect(const struct side *side, const char *at, char value)
{
    static char data[BYTES];
    CHECK_OK(tutti_xpu_copy_now(side->device, data, at, BYTES));
    for (size_t i = 0; i < BYTES; i++) CHECK(data[i] == value);
}

/* ---- there and back ---- */

static void exports(struct side *side)
{
    struct offer offer;
    char *memory;
    CHECK_OK(tutti_xpu_alloc(side->device, OFFSET + BYTES, (void **)&memory));
    const int before = n_descriptors() + 1; /* the socket at which others ask stays */
    CHECK_OK(tutti_xpu_export_memory(side->device, memory + OFFSET, BYTES, offer.handle, &offer.offset));
    put(side, memory + OFFSET, 5);
    tell(side, &offer, sizeof offer);
    meet(side);
    expect(side, memory + OFFSET, 6);
    tutti_xpu_unexport_memory(offer.handle);
    for (int i = 0; i < 1000 && n_descriptors() != before; i++) tutti_sleep_ns(TUTTI_NS_PER_MS); /* of who has asked */
    CHECK(n_descriptors() == before);
    meet(side);
    meet(side); /* who asks has an answer */
    tutti_xpu_free(side->device, memory);
}

static void imports(struct side *side)
{
    struct offer offer;
    char *there = NULL, *again = NULL;
    hear(side, &offer, sizeof offer);
    CHECK(offer.offset == OFFSET);
    CHECK_OK(tutti_xpu_import_memory(side->device, offer.handle, (void **)&there));
    CHECK_OK(tutti_xpu_import_memory(side->device, offer.handle, (void **)&again));
    CHECK(there == again && tutti_xpu_of(there) == 1);
    expect(side, there + OFFSET, 5);
    put(side, there + OFFSET, 6);
    meet(side);
    tutti_xpu_unimport_memory(side->device, again);
    expect(side, there + OFFSET, 6);
    tutti_xpu_unimport_memory(side->device, there);
    CHECK(tutti_xpu_of(there) == -1);
    meet(side);
    /* The offer was withdrawn. */
    CHECK(tutti_xpu_import_memory(side->device, offer.handle, (void **)&again) == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error()->text, "can not be had: it is not there (any more)"));
    meet(side);
}

static void test_there_and_back(void **state)
{
    (void)state;
    run_pair(exports, imports);
}

/* Where the system lets nobody take descriptors of others (Yama, a container's filter), the exporter is asked. */
static void imports_forbidden(struct side *side)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_getfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {TUTTI_ARRAY_LEN(filter), filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    CHECK(syscall(SYS_pidfd_getfd, -1, 0, 0) < 0 && errno == EPERM);
    imports(side);
}

static void test_by_asking(void **state)
{
    (void)state;
    run_pair(exports, imports_forbidden);
}

/* ---- what can not be had ---- */

static void refuses(struct side *side)
{
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES] = {0};
    uint64_t offset;
    char *memory, *host;
    void *out;
    CHECK_OK(tutti_xpu_alloc(side->device, BYTES, (void **)&memory));
    CHECK_OK(tutti_xpu_alloc_host(side->device, BYTES, (void **)&host));
    CHECK(tutti_xpu_export_memory(side->device, host, BYTES, handle, &offset) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_xpu_export_memory(side->device, memory, 2 * BYTES, handle, &offset) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_xpu_import_memory(side->device, handle, &out) == TUTTI_ERR_ARGUMENT);
    CHECK_OK(tutti_xpu_export_memory(side->device, memory, BYTES, handle, &offset));
    close(*(int *)(void *)(handle + 16)); /* the descriptor comes to mean something else */
    CHECK(dup2(2, *(int *)(void *)(handle + 16)) >= 0);
    const int before = n_descriptors();
    CHECK(tutti_xpu_import_memory(side->device, handle, &out) == TUTTI_ERR_UNSUPPORTED);
    CHECK(n_descriptors() == before);
    setenv("TUTTI_STANDIN_XPU_IPC", "0", 1);
    CHECK(tutti_xpu_export_memory(side->device, memory, BYTES, handle, &offset) == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error()->text, "zeMemGetIpcHandle"));
}

static void test_refusals(void **state)
{
    (void)state;
    run_pair(refuses, refuses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_by_asking),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
