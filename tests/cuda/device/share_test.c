/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory between two processes, by handles and by descriptors, of the maker that the argument names: what one
 * writes the other reads, whoever goes first; what can not be had says why; and no descriptor is left behind. Each case
 * is a pair of processes that have not used the driver before: the exporter and the importer. */

#include "test.h"

#include "cuda/support/descriptors.h"
#include "cuda/support/segment.h"
#include "device/cuda/cuda_descriptors.h"
#include "device/level_zero/xpu.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, OFFSET = 4321, ROUNDS = 5, DEADLINE_S = 100 };

/* In a child: says what is wrong, and ends it. */
#define CHECK(claim)                                                                                                   \
    do {                                                                                                               \
        if (!(claim)) {                                                                                                \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #claim, tutti_last_error()->text);                 \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define CHECK_OK(call) CHECK((call) == TUTTI_OK)

static const struct tutti_device_ops *ops = &tutti_device_cuda;
static bool is_cuda(void)
{
    return ops == &tutti_device_cuda;
}

/* ---- two processes ---- */

struct side {
    int socket;
    struct tutti_device *gpu;
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

static void child(void (*function)(struct side *side), int socket, int32_t device)
{
    struct side side = {.socket = socket};
    alarm(DEADLINE_S);
    CHECK_OK(ops->open(device % (int32_t)ops->count(), &side.gpu));
    function(&side);
    _exit(0);
}

static pid_t start(void (*function)(struct side *side), const int ends[2], int which)
{
    const pid_t pid = fork();
    if (pid != 0) return pid;
    close(ends[1 - which]);
    child(function, ends[which], which);
    return 0;
}

static void run_pair(void (*exporter)(struct side *side), void (*importer)(struct side *side), bool exporter_dies)
{
    int ends[2], status[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const pid_t pids[2] = {start(exporter, ends, 0), start(importer, ends, 1)};
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < 2; i++) assert_int_equal(waitpid(pids[i], &status[i], 0), pids[i]);
    assert_int_equal(status[1], 0);
    assert_true(exporter_dies ? WIFSIGNALED(status[0]) && WTERMSIG(status[0]) == SIGKILL : status[0] == 0);
}

/* ---- what they do ---- */

static unsigned char byte_at(size_t i, unsigned seed)
{
    return (unsigned char)(i * 7 + (i >> 12) + seed);
}

static void put(struct side *side, char *at, size_t bytes, unsigned seed)
{
    unsigned char *data = malloc(bytes);
    CHECK(data != NULL);
    for (size_t i = 0; i < bytes; i++) data[i] = byte_at(i, seed);
    CHECK_OK(ops->copy_now(side->gpu, at, data, bytes));
    free(data);
}

static void expect(struct side *side, const char *at, size_t bytes, unsigned seed)
{
    unsigned char *data = malloc(bytes);
    CHECK(data != NULL);
    CHECK_OK(ops->copy_now(side->gpu, data, at, bytes));
    for (size_t i = 0; i < bytes; i++) CHECK(data[i] == byte_at(i, seed));
    free(data);
}

/* Where the exporter has its memory. */
enum source { LEGACY, SHARED, SEGMENT, N_SOURCES };
static enum source source;
static enum source sources(void) /* that the maker has */
{
    return is_cuda() ? N_SOURCES : SHARED;
}
struct memory {
    char *at;
    size_t bytes;
    struct segment segment;
};

static void memory_open(struct side *side, struct memory *m)
{
    *m = (struct memory){.bytes = (size_t)3 << 20};
    if (source == SEGMENT) {
        CHECK(segment_open(&m->segment, side->gpu, 3, true));
        m->at = m->segment.base;
        m->bytes = 3 * m->segment.piece;
        return;
    }
    if (!is_cuda()) {
        CHECK_OK(ops->alloc(side->gpu, m->bytes, (void **)&m->at));
        return;
    }
    const enum tutti_device_share share = source == SHARED ? TUTTI_DEVICE_SHARE_FD : TUTTI_DEVICE_SHARE_IPC;
    CHECK_OK(ops->alloc_shared(side->gpu, share, m->bytes, (void **)&m->at));
}

static void memory_close(struct side *side, struct memory *m)
{
    if (source == SEGMENT)
        segment_close(&m->segment);
    else
        ops->free(side->gpu, m->at);
}

/* The range that is exported: it begins and ends inside. */
static size_t range(const struct memory *m)
{
    return m->bytes - 2 * (size_t)OFFSET;
}

static struct offer offer_of(struct side *side, const struct memory *m)
{
    struct offer offer;
    CHECK_OK(ops->export_memory(side->gpu, m->at + OFFSET, range(m), offer.handle, &offer.offset));
    CHECK(offer.offset == OFFSET);
    return offer;
}

static void export_both_ways(struct side *side)
{
    int before = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct memory m;
        memory_open(side, &m);
        put(side, m.at, m.bytes, (unsigned)round);
        if (round == 1) before = descriptors_open(); /* the driver opens what it needs once */
        struct offer offer = offer_of(side, &m);
        const size_t bytes = range(&m);
        tell(side, &bytes, sizeof bytes);
        tell(side, &offer, sizeof offer);
        meet(side); /* it has imported and changed it */
        ops->unexport_memory(offer.handle);
        ops->unexport_memory(offer.handle);
        if (round > 0) CHECK(descriptors_open() == before);
        meet(side); /* it still has it */
        expect(side, m.at + OFFSET, bytes, (unsigned)round + 100);
        meet(side); /* it has no more */
        memory_close(side, &m);
    }
}

static void import_both_ways(struct side *side)
{
    int before = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct offer offer;
        size_t bytes;
        void *mapped, *again;
        hear(side, &bytes, sizeof bytes);
        hear(side, &offer, sizeof offer);
        if (round == 1) before = descriptors_open();
        CHECK_OK(ops->import_memory(side->gpu, offer.handle, &mapped));
        CHECK_OK(ops->import_memory(side->gpu, offer.handle, &again));
        CHECK(mapped == again);
        ops->unimport_memory(side->gpu, again);
        char *at = (char *)mapped + offer.offset;
        for (size_t i = 0; i < 3; i++) { /* at the beginning, within, at the end */
            const size_t from = i * (bytes - 1000) / 2;
            unsigned char got[1000];
            CHECK_OK(ops->copy_now(side->gpu, got, at + from, sizeof got));
            for (size_t k = 0; k < sizeof got; k++) CHECK(got[k] == byte_at(from + k + OFFSET, (unsigned)round));
        }
        put(side, at, bytes, (unsigned)round + 100);
        meet(side);
        meet(side);
        expect(side, at, bytes, (unsigned)round + 100);
        ops->unimport_memory(side->gpu, mapped);
        if (round > 0 && (source != LEGACY || !is_cuda())) CHECK(descriptors_open() == before);
        CHECK(ops->of(mapped) == -1);
        if (source != LEGACY || !is_cuda()) { /* the offer was withdrawn */
            CHECK(ops->import_memory(side->gpu, offer.handle, &again) == TUTTI_ERR_UNSUPPORTED);
            CHECK(strstr(tutti_last_error()->text, "it is not there (any more)"));
        }
        meet(side);
    }
}

static void both_ways(void **state)
{
    (void)state;
    for (source = LEGACY; source < sources(); source++) run_pair(export_both_ways, import_both_ways, false);
}

/* Where the system lets nobody take descriptors of others (Yama, a container's filter), the exporter is asked. */
static void import_by_asking(struct side *side)
{
    CHECK(descriptors_forbid(SYS_pidfd_getfd, EPERM));
    import_both_ways(side);
}

static void where_tracing_is_forbidden_the_exporter_is_asked(void **state)
{
    (void)state;
    for (source = is_cuda() ? SHARED : LEGACY; source < sources(); source++)
        run_pair(export_both_ways, import_by_asking, false);
}

/* ---- who goes first ---- */

static bool killed;

static void export_and_go(struct side *side)
{
    struct memory m;
    memory_open(side, &m);
    put(side, m.at + OFFSET, range(&m), 7);
    const struct offer offer = offer_of(side, &m), second = offer_of(side, &m);
    const size_t bytes = range(&m);
    tell(side, &bytes, sizeof bytes);
    tell(side, &offer, sizeof offer);
    tell(side, &second, sizeof second);
    meet(side); /* the first is imported */
    if (killed) raise(SIGKILL);
    ops->unexport_memory(offer.handle);
    ops->unexport_memory(second.handle);
    memory_close(side, &m);
    memory_open(side, &m); /* perhaps where it was */
    put(side, m.at + OFFSET, range(&m), 8);
    meet(side);
    meet(side);
    memory_close(side, &m);
}

static void wait_for_the_end(struct side *side)
{
    char byte;
    while (recv(side->socket, &byte, 1, 0) > 0) continue;
}

static void import_and_stay(struct side *side)
{
    struct offer offer, second;
    size_t bytes;
    void *mapped, *other;
    hear(side, &bytes, sizeof bytes);
    hear(side, &offer, sizeof offer);
    hear(side, &second, sizeof second);
    CHECK_OK(ops->import_memory(side->gpu, offer.handle, &mapped));
    meet(side);
    if (killed)
        wait_for_the_end(side);
    else
        meet(side);
    expect(side, (char *)mapped + offer.offset, bytes, 7); /* as long as somebody has it, it is there */
    const int before = descriptors_open();
    CHECK(ops->import_memory(side->gpu, second.handle, &other) == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error()->text, "it is not there (any more)"));
    CHECK(descriptors_open() == before);
    ops->unimport_memory(side->gpu, mapped);
    CHECK(descriptors_open() <= before);
    if (!killed) meet(side);
}

static void the_exporter_goes_first(void **state)
{
    (void)state;
    for (source = SHARED; source < N_SOURCES; source++)
        for (int how = 0; how < 2; how++) {
            killed = how;
            run_pair(export_and_go, import_and_stay, killed);
        }
}

/* ---- what can not be had ---- */

/* A pipe stands where the handle says that the table is: it is told apart, and not read from. */
static void export_and_lie(struct side *side)
{
    int ends[2];
    char byte = 0;
    struct memory m;
    CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    memory_open(side, &m);
    const struct offer offer = offer_of(side, &m);
    tell(side, &offer, sizeof offer);
    tell(side, ends, sizeof ends[0]);
    meet(side);
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
    meet(side);
    tutti_cuda_unexport_memory(offer.handle);
    memory_close(side, &m);
}

static void refused(struct side *side, const struct cuda_offer *offer, const char *why)
{
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES] = {0};
    void *mapped = NULL;
    memcpy(handle, offer, sizeof *offer);
    const int before = descriptors_open();
    CHECK(tutti_cuda_import_memory(side->gpu, handle, &mapped) == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error()->text, why) && !mapped);
    CHECK(descriptors_open() == before);
}

static void import_in_vain(struct side *side)
{
    struct offer told;
    struct cuda_offer offer, wrong[6];
    int pipe_end;
    hear(side, &told, sizeof told);
    hear(side, &pipe_end, sizeof pipe_end);
    memcpy(&offer, told.handle, sizeof offer);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) wrong[i] = offer;
    wrong[0].by.descriptors.nonce++;
    wrong[1].by.descriptors.n++;
    wrong[2].by.descriptors.n = UINT64_MAX;
    wrong[3].by.descriptors.table = 12345;
    wrong[4].by.descriptors.table = pipe_end;
    wrong[5].by.descriptors.pid = getpid();
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) refused(side, &wrong[i], "not there");
    meet(side);
    CHECK(descriptors_forbid(SYS_pidfd_getfd, EPERM));
    CHECK(descriptors_forbid(SYS_connect, EACCES));
    refused(side, &offer, "permission to trace");
    CHECK(descriptors_forbid(SYS_pidfd_open, ENOSYS));
    refused(side, &offer, "Function not implemented");
    meet(side);
}

/* Memory that stays in its process, and ranges that are not memory throughout. */
static void export_in_vain(struct side *side)
{
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
    uint64_t offset;
    struct segment secret;
    void *pooled = NULL, *plain = NULL;
    const int before = descriptors_open();
    CHECK(segment_open(&secret, side->gpu, 2, false));
    CHECK(tutti_cuda_export_memory(side->gpu, secret.base, 100, handle, &offset) == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error()->text, "without a type for descriptors"));
    CHECK_OK(tutti_cuda_holds(side->gpu, secret.base + 1, 2 * secret.piece - 1));
    CHECK(tutti_cuda_holds(side->gpu, secret.base + 1, 2 * secret.piece) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_cuda_export_memory(side->gpu, secret.base, 2 * secret.piece + 1, handle, &offset) ==
          TUTTI_ERR_ARGUMENT);
    segment_close(&secret);
    if (tutti_cuda_alloc_ordered(side->gpu, 1000, NULL, &pooled) == TUTTI_OK) {
        CHECK_OK(tutti_cuda_stream_sync(side->gpu, NULL));
        CHECK(tutti_cuda_export_memory(side->gpu, pooled, 1000, handle, &offset) == TUTTI_ERR_UNSUPPORTED);
        CHECK(strstr(tutti_last_error()->text, "this process's alone"));
        CHECK_OK(tutti_cuda_holds(side->gpu, pooled, 1000));
        CHECK_OK(tutti_cuda_free_ordered(side->gpu, pooled, NULL));
    }
    CHECK_OK(tutti_cuda_alloc(side->gpu, 1000, &plain));
    CHECK(tutti_cuda_export_memory(side->gpu, plain, (size_t)1 << 40, handle, &offset) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_cuda_export_memory(side->gpu, &side, 4, handle, &offset) == TUTTI_ERR_ARGUMENT);
    tutti_cuda_free(side->gpu, plain);
    CHECK(descriptors_open() == before || !pooled);
}

static void nothing(struct side *side)
{
    (void)side;
}

/* ---- where the driver makes no handles, or no descriptors; and within a process ---- */

static void without(struct side *side)
{
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES];
    uint64_t offset;
    void *memory = NULL;
    struct cuda_offer offer;
    setenv("TUTTI_STANDIN_IPC", "0", 1);
    for (int twice = 0; twice < 2; twice++) {
        CHECK_OK(tutti_cuda_alloc_shared(side->gpu, TUTTI_DEVICE_SHARE_AUTO, 1000, &memory));
        CHECK_OK(tutti_cuda_export_memory(side->gpu, memory, 1000, handle, &offset));
        memcpy(&offer, handle, sizeof offer);
        CHECK(offer.kind == CUDA_OFFER_DESCRIPTORS);
        tutti_cuda_unexport_memory(handle);
        tutti_cuda_free(side->gpu, memory);
    }
    setenv("TUTTI_STANDIN_FDS", "0", 1);
    memory = NULL;
    CHECK(tutti_cuda_alloc_shared(side->gpu, TUTTI_DEVICE_SHARE_FD, 1000, &memory) == TUTTI_ERR_UNSUPPORTED && !memory);
    CHECK(strstr(tutti_last_error()->text, "has no memory that descriptors share"));
    CHECK_OK(tutti_cuda_alloc_shared(side->gpu, TUTTI_DEVICE_SHARE_AUTO, 1000, &memory));
    CHECK_OK(tutti_cuda_set(side->gpu, memory, 1, 1000));
    CHECK(tutti_cuda_export_memory(side->gpu, memory, 1000, handle, &offset) == TUTTI_ERR_UNSUPPORTED);
    tutti_cuda_free(side->gpu, memory);
}

static void drivers_without_handles_share_descriptors(void **state)
{
    (void)state;
    const char *driver = getenv("TUTTI_CUDA_DRIVER");
    if (!driver || !strstr(driver, "standin")) skip(); /* this machine's has what it has */
    run_pair(without, nothing, false);
}

/* The memory of one device, for another of the process: own allocations at once, others when it is said. */
static void reach(struct side *side)
{
    struct tutti_device *other;
    struct segment segment;
    void *own;
    unsigned char got[100], *data = malloc(100);
    if (tutti_cuda_count() < 2 || !tutti_cuda_reaches(1, 0)) return;
    CHECK_OK(tutti_cuda_open(1, &other));
    CHECK_OK(tutti_cuda_reach(other, side->gpu));
    CHECK(segment_open(&segment, side->gpu, 3, true));
    CHECK_OK(tutti_cuda_alloc_shared(side->gpu, TUTTI_DEVICE_SHARE_FD, 100, &own));
    CHECK_OK(tutti_cuda_reach_memory(side->gpu, segment.base, 100));
    CHECK_OK(tutti_cuda_reach_memory(other, segment.base + 100, 2 * segment.piece)); /* all three pieces */
    memset(data, 0x5a, 100);
    char *const where[] = {segment.base, segment.base + 3 * segment.piece - 100, own};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(where); i++) {
        CHECK_OK(tutti_cuda_set(side->gpu, where[i], 1, 100));
        CHECK_OK(tutti_cuda_copy_now(other, where[i], data, 100));
        CHECK_OK(tutti_cuda_copy_now(side->gpu, got, where[i], 100));
        CHECK(memcmp(got, data, 100) == 0);
    }
    tutti_cuda_free(side->gpu, own);
    segment_close(&segment);
    free(data);
}

/* ---- others who would have it, or keep it from its owner ---- */

/* The names that a process's number alone makes are taken, and its socket gets questions that mean nothing. */
static void export_besieged(struct side *side)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int squatter = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "tutti.xpu.%d", getpid());
    CHECK(bind(squatter, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0);
    CHECK(listen(squatter, 1) == 0);
    export_both_ways(side);
}

static void export_to_strangers(struct side *side)
{
    struct memory m;
    memory_open(side, &m);
    const struct offer offer = offer_of(side, &m);
    tell(side, &offer, sizeof offer);
    meet(side);
    ops->unexport_memory(offer.handle);
    memory_close(side, &m);
}

static void import_as_a_stranger(struct side *side)
{
    struct offer offer;
    void *mapped = NULL;
    hear(side, &offer, sizeof offer);
    CHECK(setuid(65534) == 0);
    CHECK(ops->import_memory(side->gpu, offer.handle, &mapped) == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error()->text, "permission to trace") && !mapped);
    meet(side);
}

static void another_user_gets_nothing(void **state)
{
    (void)state;
    if (geteuid() != 0) skip(); /* only root can become another user */
    source = is_cuda() ? SHARED : LEGACY;
    run_pair(export_to_strangers, import_as_a_stranger, false);
}

/* ---- what Level Zero can not export ---- */
static void xpu_export_in_vain(struct side *side)
{
    enum { DESCRIPTOR = 24 }; /* the handle's first word */
    unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES] = {0};
    uint64_t offset;
    void *memory, *host, *out;
    CHECK_OK(ops->alloc(side->gpu, 1000, &memory));
    CHECK_OK(ops->alloc_host(side->gpu, 1000, &host));
    CHECK(ops->export_memory(side->gpu, host, 1000, handle, &offset) == TUTTI_ERR_ARGUMENT);
    CHECK(ops->export_memory(side->gpu, memory, 1 << 20, handle, &offset) == TUTTI_ERR_ARGUMENT);
    CHECK(ops->import_memory(side->gpu, handle, &out) == TUTTI_ERR_ARGUMENT);
    CHECK_OK(ops->export_memory(side->gpu, memory, 1000, handle, &offset));
    int descriptor;
    memcpy(&descriptor, handle + DESCRIPTOR, sizeof descriptor);
    CHECK(dup2(2, descriptor) >= 0); /* it comes to mean something else */
    const int before = descriptors_open();
    CHECK(ops->import_memory(side->gpu, handle, &out) == TUTTI_ERR_UNSUPPORTED);
    CHECK(descriptors_open() == before);
    setenv("TUTTI_STANDIN_XPU_IPC", "0", 1);
    CHECK(ops->export_memory(side->gpu, memory, 1000, handle, &offset) == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error()->text, "zeMemGetIpcHandle"));
}

/* Whether there is a device, and it has virtual memory, as a child finds. */
static int look(void)
{
    struct tutti_device *gpu;
    void *memory;
    if (ops->absence() || ops->open(0, &gpu) < 0) return 1;
    if (!is_cuda()) return 0;
    return tutti_cuda_alloc_shared(gpu, TUTTI_DEVICE_SHARE_FD, 1, &memory) == TUTTI_OK ? 0 : 2;
}

struct pair {
    void (*exporter)(struct side *side), (*importer)(struct side *side);
    enum source source; /* CUDA's */
};
static void pair_play(void **state)
{
    const struct pair *pair = *state;
    source = is_cuda() ? pair->source : LEGACY;
    run_pair(pair->exporter, pair->importer, false);
}

int main(int argc, char **argv)
{
    static struct pair in_vain = {export_and_lie, import_in_vain, SEGMENT},
                       private = {export_in_vain, nothing, SEGMENT}, reaches = {reach, nothing, SEGMENT},
                       besieged = {export_besieged, import_by_asking, SHARED},
                       refusals = {xpu_export_in_vain, nothing, LEGACY};
    const struct CMUnitTest xpu_tests[] = {
        cmocka_unit_test(both_ways),
        cmocka_unit_test(where_tracing_is_forbidden_the_exporter_is_asked),
        {"nobody_takes_the_place_of_the_exporter", pair_play, NULL, NULL, &besieged},
        cmocka_unit_test(another_user_gets_nothing),
        {"xpu_refusals", pair_play, NULL, NULL, &refusals},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways),
        cmocka_unit_test(where_tracing_is_forbidden_the_exporter_is_asked),
        {"nobody_takes_the_place_of_the_exporter", pair_play, NULL, NULL, &besieged},
        cmocka_unit_test(another_user_gets_nothing),
        cmocka_unit_test(the_exporter_goes_first),
        {"what_can_not_be_had_says_why", pair_play, NULL, NULL, &in_vain},
        {"what_is_private_stays_private", pair_play, NULL, NULL, &private},
        cmocka_unit_test(drivers_without_handles_share_descriptors),
        {"devices_of_a_process_reach_mappings", pair_play, NULL, NULL, &reaches},
    };
    static const char *const why[] = {"", "no device", "the CUDA device has no memory that descriptors share"};
    int status = 0;
    if (argc > 1 && strcmp(argv[1], "xpu") == 0) ops = &tutti_device_xpu;
    const pid_t pid = fork();
    if (pid == 0) _exit(look());
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return 1;
    if (WEXITSTATUS(status) != 0) {
        printf("skipped: %s\n", why[WEXITSTATUS(status)]);
        return SKIPPED;
    }
    return is_cuda() ? cmocka_run_group_tests(tests, NULL, NULL) : cmocka_run_group_tests(xpu_tests, NULL, NULL);
}
