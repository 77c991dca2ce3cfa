/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-memory copies on every sort of memory that programs have: small and huge pages, the end of a mapping, stacks,
 * read-only inputs, files, memory that comes and goes between calls; and while the kernel begins to refuse them, at any
 * moment of a call. Each kind of collective by `flat:attach`, against what each element has to be. */
#include "test.h"

#include "backend/flat/flat.h"
#include "comm/comm.h"
#include "ranks.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK 10007 /* int32 of a block: 40 KB, no whole pages */
#define MOST_RANKS 4
#define ELEMENTS (MOST_RANKS * BLOCK)
#define BYTES (ELEMENTS * sizeof(int32_t))
#define HUGE ((size_t)2 << 20)

/* ---- what is called, and what must come out ---- */

static int32_t value(int32_t rank, size_t i)
{
    return (int32_t)((uint32_t)(rank + 1) * 1000003u + (uint32_t)i * 7u);
}
static int32_t sum(const struct rank *rank, size_t i)
{
    uint32_t all = 0;
    for (int32_t r = 0; r < rank->n; r++) all += (uint32_t)value(r, i);
    return (int32_t)all;
}

struct call {
    struct rank *rank;
    int32_t *send, *recv;
    int32_t root;
    const struct tutti_call_options *options;
};

#define AT(call) (call)->rank->comm, (call)->options, NULL
static enum tutti_status all_reduce(const struct call *c)
{
    return tutti_all_reduce(c->send, c->recv, BLOCK, TUTTI_INT32, TUTTI_SUM, AT(c));
}
static enum tutti_status reduce(const struct call *c)
{
    return tutti_reduce(c->send, c->recv, BLOCK, TUTTI_INT32, TUTTI_SUM, c->root, AT(c));
}
static enum tutti_status broadcast(const struct call *c)
{
    const bool gives = c->rank->index == c->root;
    return tutti_broadcast(gives ? c->send : c->recv, BLOCK, TUTTI_INT32, c->root, AT(c));
}
static enum tutti_status all_gather(const struct call *c)
{
    return tutti_all_gather(c->send, c->recv, BLOCK, TUTTI_INT32, AT(c));
}
static enum tutti_status gather(const struct call *c)
{
    return tutti_gather(c->send, c->recv, BLOCK, TUTTI_INT32, c->root, AT(c));
}
static enum tutti_status scatter(const struct call *c)
{
    return tutti_scatter(c->send, c->recv, BLOCK, TUTTI_INT32, c->root, AT(c));
}
static enum tutti_status reduce_scatter(const struct call *c)
{
    return tutti_reduce_scatter(c->send, c->recv, BLOCK, TUTTI_INT32, TUTTI_SUM, AT(c));
}
static enum tutti_status all_to_all(const struct call *c)
{
    return tutti_all_to_all(c->send, c->recv, BLOCK, TUTTI_INT32, AT(c));
}

/* Element i of block b of the output. */
static int32_t of_sum(const struct call *c, size_t b, size_t i)
{
    (void)b;
    return sum(c->rank, i);
}
static int32_t of_own_sum(const struct call *c, size_t b, size_t i)
{
    (void)b;
    return sum(c->rank, (size_t)c->rank->index * BLOCK + i);
}
static int32_t of_root(const struct call *c, size_t b, size_t i)
{
    (void)b;
    return value(c->root, i);
}
static int32_t of_root_part(const struct call *c, size_t b, size_t i)
{
    (void)b;
    return value(c->root, (size_t)c->rank->index * BLOCK + i);
}
static int32_t of_each(const struct call *c, size_t b, size_t i)
{
    (void)c;
    return value((int32_t)b, i);
}
static int32_t of_each_part(const struct call *c, size_t b, size_t i)
{
    return value((int32_t)b, (size_t)c->rank->index * BLOCK + i);
}

static const struct kind {
    const char *name;
    enum tutti_status (*run)(const struct call *call);
    int32_t (*expected)(const struct call *call, size_t block, size_t i);
    bool blocks, at_root, not_at_root; /* the output has one of each rank; only the root has some; all but the root */
} kinds[] = {
    {"all_reduce", all_reduce, of_sum, false, false, false},
    {"reduce", reduce, of_sum, false, true, false},
    {"broadcast", broadcast, of_root, false, false, true},
    {"all_gather", all_gather, of_each, true, false, false},
    {"gather", gather, of_each, true, true, false},
    {"scatter", scatter, of_root_part, false, false, false},
    {"reduce_scatter", reduce_scatter, of_own_sum, false, false, false},
    {"all_to_all", all_to_all, of_each_part, true, false, false},
};

static void check(const struct call *c, const struct kind *kind, const char *what)
{
    struct rank *rank = c->rank;
    const bool root = rank->index == c->root;
    for (size_t i = 0; i < ELEMENTS; i++) c->recv[i] = -1;
    enum tutti_status status = kind->run(c);
    if (status < 0) rank_fail(rank, __FILE__, __LINE__, "%s, %s: %s", kind->name, what, tutti_last_error()->text);
    if (status < 0 || (kind->at_root && !root) || (kind->not_at_root && root)) return;
    for (size_t b = 0; b < (kind->blocks ? (size_t)rank->n : 1); b++)
        for (size_t i = 0; i < BLOCK; i++) {
            const int32_t is = c->recv[b * BLOCK + i], to_be = kind->expected(c, b, i);
            if (is == to_be) continue;
            rank_fail(rank, __FILE__, __LINE__, "%s, %s: element %zu of block %zu is %d instead of %d", kind->name,
                      what, i, b, is, to_be);
            return;
        }
}

/* ---- memory ---- */

static void *pages(size_t bytes, int advice)
{
    unsigned char *base = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    base += HUGE - (uintptr_t)base % HUGE;
    madvise(base, bytes, advice);
    return base;
}
static void *small(void)
{
    return pages(BYTES, MADV_NOHUGEPAGE);
}
static void *large(void)
{
    return pages(BYTES, MADV_HUGEPAGE);
}
/* Behind its last byte nothing is mapped. */
static void *edge(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (BYTES + page - 1) / page * page;
    unsigned char *base = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    munmap(base + whole, page);
    return base + (whole - BYTES);
}
static void *file(int flags)
{
    FILE *opened = tmpfile();
    void *base = MAP_FAILED;
    if (opened && ftruncate(fileno(opened), BYTES) == 0)
        base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, fileno(opened), 0);
    if (opened) fclose(opened);
    return base == MAP_FAILED ? NULL : base;
}
static void *file_private(void)
{
    return file(MAP_PRIVATE);
}
static void *file_shared(void)
{
    return file(MAP_SHARED);
}
static void *heap(void)
{
    return malloc(BYTES);
}

static const struct memory {
    const char *name;
    void *(*open)(void);
    bool read_only, freed; /* the input, once it is filled; after each call, and taken anew */
} memories[] = {
    {"small pages", small, false, false},
    {"huge pages", large, false, false},
    {"the end of a mapping", edge, false, false},
    {"read-only inputs", small, true, false},
    {"private file mappings", file_private, true, false},
    {"shared file mappings", file_shared, false, false},
    {"memory that is freed and used again", heap, false, true},
};

static void fill(const struct rank *rank, int32_t *send)
{
    for (size_t i = 0; i < ELEMENTS; i++) send[i] = value(rank->index, i);
}

static void run_kinds(struct rank *rank, const struct memory *m, int32_t *send, int32_t *recv)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.algorithm = "flat:attach";
    for (size_t k = 0; k < TUTTI_ARRAY_LEN(kinds); k++) {
        struct call call = {rank, send, recv, (int32_t)k % rank->n, &options};
        if (m && m->freed) call.send = m->open(), call.recv = m->open();
        RANK_CHECK(rank, call.send && call.recv);
        if (m && m->freed) fill(rank, call.send);
        check(&call, &kinds[k], m ? m->name : "stacks");
        if (m && m->freed) free(call.send), free(call.recv);
    }
}

static void on_stack(struct rank *rank)
{
    int32_t send[ELEMENTS], recv[ELEMENTS];
    fill(rank, send);
    run_kinds(rank, NULL, send, recv);
}

static void all_memories(struct rank *rank)
{
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* all have tried all */
    for (size_t m = 0; m < TUTTI_ARRAY_LEN(memories); m++) {
        int32_t *send = memories[m].open(), *recv = memories[m].open();
        RANK_CHECK(rank, send && recv);
        fill(rank, send);
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)send / page * page;
        if (memories[m].read_only) RANK_CHECK(rank, mprotect((void *)at, BYTES, PROT_READ) == 0);
        run_kinds(rank, &memories[m], send, recv);
        if (memories[m].freed) free(send), free(recv);
    }
    on_stack(rank);
    /* The half that is not used any more goes. */
    int32_t *send = small(), *recv = small();
    RANK_CHECK(rank, send && recv);
    fill(rank, send);
    const struct call call = {rank, send, recv, 0, NULL};
    check(&call, &kinds[0], "before");
    RANK_CHECK(rank, munmap((char *)send + BYTES / 4096 / 2 * 4096, BYTES / 2) == 0);
    for (int i = 0; i < 3; i++)
        RANK_CHECK_OK(rank, tutti_all_reduce(send, recv, BLOCK, TUTTI_INT32, TUTTI_SUM, AT(&call)));
    for (size_t i = 0; i < BLOCK; i++) RANK_CHECK(rank, recv[i] == sum(rank, i));
}

static void any_memory(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    for (uint32_t n = 2; n <= MOST_RANKS; n++) assert_int_equal(ranks_forked(n, all_memories, NULL), 0);
}

/* ---- refused from some moment on ---- */

static void *refuse(void *arg)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {TUTTI_ARRAY_LEN(code), code};
    usleep((unsigned)(uintptr_t)arg);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const long failed = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    return (void *)(uintptr_t)(failed != 0);
}

/* One rank, or all: those of the mask. */
static void call_meanwhile(struct rank *rank)
{
    const uint32_t mask = *(const uint32_t *)rank->arg;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    int32_t *send = small(), *recv = small();
    pthread_t thread;
    void *failed = NULL;
    RANK_CHECK(rank, send && recv);
    fill(rank, send);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    const bool refuses = mask & 1u << rank->index;
    if (refuses)
        RANK_CHECK(rank, pthread_create(&thread, NULL, refuse, (void *)(uintptr_t)(rank_random(rank) % 3000)) == 0);
    options.algorithm = "flat:attach";
    for (size_t i = 0; i < 26 * TUTTI_ARRAY_LEN(kinds) && !rank->failure[0]; i++) {
        const struct call call = {rank, send, recv, (int32_t)(i / 3) % rank->n, &options};
        const bool last = i == 25 * TUTTI_ARRAY_LEN(kinds); /* by then it was refused */
        if (last && refuses) RANK_CHECK(rank, pthread_join(thread, &failed) == 0 && !failed);
        check(&call, &kinds[i % TUTTI_ARRAY_LEN(kinds)], "refused in the middle");
    }
    const bool alone = mask == 1u << rank->index; /* nobody else can have told it to give up */
    if (alone) RANK_CHECK(rank, !((struct flat_instance *)rank->comm->backend)->attach);
}

static void refused_in_the_middle(void **state)
{
    static const uint32_t masks[] = {1, 2, 6, 15};
    (void)state;
    if (!ranks_can_fork()) skip();
    for (uint32_t i = 0; i < 4 * TUTTI_ARRAY_LEN(masks); i++)
        assert_int_equal(
            ranks_forked(2 + i / TUTTI_ARRAY_LEN(masks) % 3, call_meanwhile, (void *)(uintptr_t)&masks[i % 4]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_memory), cmocka_unit_test(refused_in_the_middle)};
    return cmocka_run_group_tests_name("flat memory", tests, NULL, NULL);
}
