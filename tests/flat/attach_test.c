/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-memory copies between processes: taken for large buffers in huge pages and not for others, as the kernel's own
 * account of the pages tells; by nobody where one rank may not, and by all where one of them has staged for another
 * way; and a buffer that can not be copied from is a failure of the call with a sentence. */
#include "test.h"

#include "backend/flat/flat.h"
#include "comm/comm.h"
#include "ranks.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RANKS = 3 };
#define BYTES ((size_t)8 << 20)
#define HUGE ((size_t)2 << 20)

static unsigned char *pages_open(int advice)
{
    unsigned char *base = mmap(NULL, BYTES + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    unsigned char *start = (unsigned char *)(((uintptr_t)base + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    munmap(base, (size_t)(start - base));
    munmap(start + BYTES, (size_t)(base + HUGE - start));
    madvise(start, BYTES, advice);
    memset(start, 1, BYTES);
    return start;
}

/* Bytes of the mapping that begins there and lie in huge pages. */
static size_t huge_bytes(const unsigned char *start)
{
    char line[256];
    unsigned long begin, end, kib;
    size_t found = 0;
    bool inside = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            inside = begin < (uintptr_t)start + BYTES && (uintptr_t)start < end;
        else if (inside && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
            found += kib << 10;
    }
    if (file) fclose(file);
    return found;
}

/* 0: the way is not there, 1: it is, 2: it is the chosen one. */
static int attaches(const struct rank *rank, const void *send, void *recv, size_t count)
{
    const struct tutti_backend_call call = {
        .bind = {.input = send, .output = recv, .count = count, .dtype = TUTTI_FLOAT32, .divisor = 1},
        .info = {.kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM, .root = -1},
        .commutative = true};
    struct tutti_backend_candidate ways[16];
    size_t n = rank->comm->backend->ops->candidates(rank->comm->backend, &call, ways, TUTTI_ARRAY_LEN(ways));
    for (size_t i = 0; i < n; i++)
        if (strcmp(ways[i].method, "attach") == 0) return 1 + ways[i].chosen;
    return 0;
}

/* All ranks add ones. */
static bool is_sum(struct rank *rank, float *send, float *recv, size_t count, const char *algorithm)
{
    struct tutti_call_options o = TUTTI_CALL_OPTIONS_INIT;
    const int32_t sum = rank->n * (rank->n + 1) / 2;
    bool right = true;
    o.algorithm = algorithm;
    for (size_t i = 0; i < count; i++) send[i] = (float)(rank->index + 1), recv[i] = -1;
    if (tutti_all_reduce(send, recv, count, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &o, NULL) != TUTTI_OK) return false;
    for (size_t i = 0; i < count; i++) right &= recv[i] == (float)sum;
    return right;
}

/* ---- pages ---- */

static bool kernel_tells(struct flat_instance *lane, const unsigned char *huge)
{
    return lane->pagemap >= 0 && flat_pages_huge(lane, huge + 1, BYTES - 2);
}

static void choose(struct rank *rank)
{
    struct flat_instance *lane = (struct flat_instance *)rank->comm->backend;
    unsigned char *huge[2], *small[2];
    for (int i = 0; i < 2; i++) {
        huge[i] = pages_open(MADV_HUGEPAGE), small[i] = pages_open(MADV_NOHUGEPAGE);
        RANK_CHECK(rank, huge[i] && small[i]);
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* all have tried all */
    RANK_CHECK(rank, lane->attach);
    bool are_huge = huge_bytes(huge[0]) == BYTES && huge_bytes(huge[1]) == BYTES;
    RANK_CHECK(rank, huge_bytes(small[0]) == 0 && !flat_pages_huge(lane, small[0], BYTES));
    if (are_huge && !kernel_tells(lane, huge[0])) fprintf(stderr, "skipped: this kernel does not tell huge pages\n");
    if (are_huge && kernel_tells(lane, huge[0])) RANK_CHECK(rank, attaches(rank, huge[0], huge[1], BYTES / 8) == 2);
    RANK_CHECK(rank, attaches(rank, small[0], small[1], BYTES / 8) > 0);
    RANK_CHECK(rank, attaches(rank, small[0], small[1], 100) == 0);
    for (int i = 0; i < 4; i++) /* some of one sort with one rank, of the other with others */
        RANK_CHECK(rank, is_sum(rank, (float *)(void *)(i & 1 ? huge : small)[0],
                                (float *)(void *)(rank->index < i ? huge : small)[1], BYTES / 8 + (size_t)i, NULL));
}

static void huge_pages(void **state)
{
    (void)state;
    const struct tutti_option option = {"tuning", "off"}; /* what a busy or a slow process measures is not asked here */
    for (uint32_t n = 2; n <= RANKS; n++) {
        const struct ranks_config config = {.n = n, .forked = true, .options = &option, .n_options = 1};
        assert_int_equal(ranks_run(&config, choose), 0);
    }
}

/* ---- one rank may not ---- */

static bool forbid(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {TUTTI_ARRAY_LEN(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void forbidden_to_one(struct rank *rank)
{
    struct tutti_comm *first = rank->comm;
    float *send = (float *)(void *)pages_open(MADV_HUGEPAGE), *recv = (float *)(void *)pages_open(MADV_HUGEPAGE);
    if (rank->index == 1) RANK_CHECK(rank, forbid());
    RANK_CHECK_OK(rank, tutti_comm_dup(first, &rank->comm));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK(rank, attaches(rank, send, recv, BYTES / 8) == 0);
    RANK_CHECK(rank, ((struct flat_instance *)rank->comm->backend)->attach == false || rank->index != 1);
    RANK_CHECK(rank, is_sum(rank, send, recv, BYTES / 8, "flat:attach"));
    RANK_CHECK(rank, is_sum(rank, send, recv, BYTES / 8, NULL));
    tutti_comm_destroy(first);
}

static void forbidden(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    assert_int_equal(ranks_forked(RANKS, forbidden_to_one, NULL), 0);
}

/* ---- memory that is not there ---- */

/* Rank 1 has no memory where rank 0 is to read. */
static void read_nowhere(struct rank *rank)
{
    struct tutti_call_options o = TUTTI_CALL_OPTIONS_INIT;
    unsigned char *send = pages_open(MADV_NOHUGEPAGE), *recv = pages_open(MADV_NOHUGEPAGE);
    RANK_CHECK(rank, send && recv);
    if (rank->index == 1) munmap(send, BYTES / 2);
    o.algorithm = "flat:attach";
    enum tutti_status status =
        tutti_reduce_scatter(send, recv, BYTES / 8, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &o, NULL);
    const char *text = tutti_last_error()->text;
    RANK_CHECK(rank, status == TUTTI_ERR_SYSTEM);
    RANK_CHECK(rank, strstr(text, "reduce_scatter #1") && strstr(text, "can not be copied from rank 1"));
    RANK_CHECK(rank, strstr(text, "failed on rank 0"));
}

static void nowhere(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    assert_int_equal(ranks_forked(2, read_nowhere, NULL), 0);
}

/* ---- one rank expects another way than all take ---- */

static char tuning[] = "/tmp/tutti-attach-XXXXXX";

/* Staging pays where buffers are mapped, cross-memory copies where they are not. */
static int tuning_make(void **state)
{
    (void)state;
    static const char *const ways[] = {"mapped all_reduce mapped 100", "mapped all_reduce attach 100",
                                       "4k all_reduce stage 100", "4k all_reduce attach 0.01"};
    static const unsigned ranks[] = {1, UINT16_MAX}; /* whether they share CPUs here or not */
    int fd = mkstemp(tuning);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    for (size_t i = 0; file && i < 2 * TUTTI_ARRAY_LEN(ways); i++)
        fprintf(file, "way %u %s - - - - -\n", ranks[i % 2], ways[i / 2]);
    return !file || fclose(file) != 0;
}

static int tuning_remove(void **state)
{
    (void)state;
    return unlink(tuning);
}

/* Rank 0 has mapped buffers and the others have not. */
static void differ(struct rank *rank)
{
    const size_t n = BYTES / 8;
    void *send = rank_alloc(rank, BYTES), *recv = rank_alloc(rank, BYTES);
    if (rank->index == 0) RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, BYTES, &send));
    if (rank->index == 0) RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, BYTES, &recv));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* all have tried all */
    uint64_t *in = send, *out = recv;
    for (uint64_t call = 1; call <= 5; call++) {
        for (size_t i = 0; i < n; i++) in[i] = (call * n + i) * (uint64_t)(rank->index + 1);
        RANK_CHECK_OK(rank, tutti_all_reduce(in, out, n, TUTTI_UINT64, TUTTI_SUM, rank->comm, NULL, NULL));
        for (size_t i = 0; i < n; i++) RANK_CHECK(rank, out[i] == (call * n + i) * 6);
    }
}

static void unlike(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    const struct tutti_option option = {"tuning", tuning};
    const struct ranks_config config = {.n = 3, .forked = true, .options = &option, .n_options = 1};
    assert_int_equal(ranks_run(&config, differ), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(huge_pages), cmocka_unit_test(forbidden),
                                       cmocka_unit_test(nowhere),
                                       cmocka_unit_test_setup_teardown(unlike, tuning_make, tuning_remove)};
    return cmocka_run_group_tests_name("flat attach", tests, NULL, NULL);
}
