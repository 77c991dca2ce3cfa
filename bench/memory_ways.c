/* SPDX-License-Identifier: BSD-3-Clause */
/* What moving ordinary memory between processes of a host costs, each way alone, in the pattern of a collective: all
 * ranks at once get a block of their neighbour (as in all_gather), or all but rank 0 get one of rank 0 (as in
 * broadcast). Beside a memcpy of the same bytes. docs/memory_ways.md tells what was found.
 *
 *     cc -std=gnu17 -O3 -march=native bench/memory_ways.c -o memory_ways
 *     ./memory_ways [ranks [largest MiB [exchange | all]]] */

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined __x86_64__
#include <immintrin.h>
#endif

#define MOST_RANKS 16
#define SLOTS 4
#define CHUNK_MOST ((size_t)1 << 20)
#define HUGE ((size_t)2 << 20)
#define UNALIGNED 24
#define ROUNDS 15
#define ROUNDS_LARGE 7 /* of blocks from LARGE_BYTES on */
#define LARGE_BYTES ((size_t)16 << 20)
#define LIMIT_NS 20000000000ull /* of one wait */

/* ---- what all ranks share ---- */

struct word {
    _Alignas(128) _Atomic uint64_t n;
    _Atomic uint32_t sleepers;
};
struct shared {
    struct word arrived, put[MOST_RANKS], taken[MOST_RANKS];
    struct {
        uint64_t ns, src, dst;
        pid_t pid;
    } rank[MOST_RANKS];
    _Alignas(4096) unsigned char slots[MOST_RANKS][SLOTS][CHUNK_MOST];
};
static struct shared *shared;
static uint32_t n_ranks, me;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static long futex(const struct word *word, int what, uint32_t value)
{
    const struct timespec limit = {.tv_nsec = 100000000};
    return syscall(SYS_futex, &word->n, what, value, what == FUTEX_WAIT ? &limit : NULL, NULL, 0); /* its low half */
}

static void await(struct word *word, uint64_t value, bool sleeps)
{
    const uint64_t start = now_ns();
    uint64_t n;
    for (uint32_t spins = 1; (n = atomic_load(&word->n)) < value; spins++) {
        if (sleeps) {
            atomic_fetch_add(&word->sleepers, 1);
            futex(word, FUTEX_WAIT, (uint32_t)n);
            atomic_fetch_sub(&word->sleepers, 1);
        } else if (spins % 256) {
            continue;
        } else {
            sched_yield();
        }
        if (now_ns() - start > LIMIT_NS) fprintf(stderr, "rank %u: a peer did not come\n", me), _exit(1);
    }
}

static void publish(struct word *word, uint64_t value, bool sleeps)
{
    atomic_store_explicit(&word->n, value, memory_order_release);
    if (!sleeps) return;
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&word->sleepers) > 0) futex(word, FUTEX_WAKE, INT_MAX);
}

static void meet(void)
{
    static uint64_t meetings;
    atomic_fetch_add(&shared->arrived.n, 1);
    await(&shared->arrived, ++meetings * n_ranks, false);
}

/* ---- memory: where it lies, and where its bytes are before they are read ---- */

enum pages { SMALL, LARGE, FRESH };  /* 4 KiB; huge; 4 KiB, and the output's are touched for the first time */
enum source { WARM, WRITTEN, COLD }; /* as the last round left it; written just now by its owner; in no cache */
static const char *const page_names[] = {"4k", "huge", "fresh"};
static const char *const source_names[] = {"warm", "written", "cold"};

static unsigned char *buffer_open(size_t bytes, enum pages pages)
{
    unsigned char *buffer = mmap(NULL, bytes + 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) perror("mmap"), _exit(1);
    madvise(buffer, bytes + 2 * HUGE, pages == LARGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    buffer += HUGE - (uintptr_t)buffer % HUGE; /* the rest stays until the process ends */
    if (pages != FRESH) memset(buffer, (int)me + 1, bytes + UNALIGNED);
    return buffer;
}

static void prepare(unsigned char *source, size_t bytes, enum source how)
{
    if (how == WRITTEN) memset(source, (int)me + 1, bytes);
#if defined __x86_64__
    for (size_t at = 0; how == COLD && at < bytes; at += 64) _mm_clflush(source + at);
    _mm_mfence();
#endif
}

/* ---- the ways: each moves `bytes` that the rank `from` has into the own output ---- */

struct job {
    unsigned char *src, *dst;
    size_t bytes, chunk;
    bool to_all; /* rank 0's block to all others; otherwise each rank's to the one before it */
    bool sleeps; /* who waits for a peer sleeps at once */
};

static uint32_t from_of(const struct job *job)
{
    return job->to_all ? 0 : (me + 1) % n_ranks;
}

static void attach(uint32_t peer, void *here, uint64_t there, size_t bytes, bool write)
{
    while (bytes > 0) {
        const struct iovec local = {here, bytes}, remote = {(void *)(uintptr_t)there, bytes};
        const pid_t pid = shared->rank[peer].pid;
        const ssize_t n =
            write ? process_vm_writev(pid, &local, 1, &remote, 1, 0) : process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (n <= 0) perror("cross-memory copy"), _exit(2);
        here = (char *)here + n, there += (uint64_t)n, bytes -= (size_t)n;
    }
}

static void by_memcpy(const struct job *job)
{
    if (!job->to_all || me > 0) memcpy(job->dst, job->src, job->bytes);
}

static void by_pull(const struct job *job)
{
    if (!job->to_all || me > 0) attach(from_of(job), job->dst, shared->rank[from_of(job)].src, job->bytes, false);
}

static void by_push(const struct job *job)
{
    for (uint32_t r = 1; r < (job->to_all ? n_ranks : 2) && !(job->to_all && me > 0); r++) {
        const uint32_t to = job->to_all ? r : (me + n_ranks - 1) % n_ranks;
        attach(to, job->src, shared->rank[to].dst, job->bytes, true);
    }
}

/* Of two ranks one sends: it writes the second half while the other reads the first. */
static void by_halves(const struct job *job)
{
    const size_t half = job->bytes / 2;
    if (me == 0) attach(1, job->src + half, shared->rank[1].dst + half, job->bytes - half, true);
    if (me == 1) attach(0, job->dst, shared->rank[0].src, half, false);
}

/* In rounds, through slots that all map. A rank puts ahead of what it takes, as far as there is room. */
static void by_stage(const struct job *job)
{
    static uint64_t before; /* rounds of earlier jobs */
    const uint64_t rounds = (job->bytes + job->chunk - 1) / job->chunk;
    const uint32_t from = from_of(job), to = (me + n_ranks - 1) % n_ranks;
    const bool puts = !job->to_all || me == 0, takes = !job->to_all || me > 0;
    uint64_t put = puts ? 0 : rounds, taken = takes ? 0 : rounds;
    while (put < rounds || taken < rounds) {
        const uint64_t u = put < rounds && put < taken + 2 ? put : taken;
        const size_t at = (size_t)u * job->chunk, bytes = job->bytes - at < job->chunk ? job->bytes - at : job->chunk;
        if (put < rounds && u == put && put < taken + 2) {
            const uint64_t free_at = before + u < SLOTS ? 0 : before + u + 1 - SLOTS;
            for (uint32_t r = job->to_all ? 1 : to; r < (job->to_all ? n_ranks : to + 1); r++)
                await(&shared->taken[r], free_at, job->sleeps);
            memcpy(shared->slots[me][(before + u) % SLOTS], job->src + at, bytes);
            publish(&shared->put[me], before + ++put, job->sleeps);
        } else {
            await(&shared->put[from], before + u + 1, job->sleeps);
            memcpy(job->dst + at, shared->slots[from][(before + u) % SLOTS], bytes);
            publish(&shared->taken[me], before + ++taken, job->sleeps);
        }
    }
    before += rounds;
    publish(&shared->put[me], before, job->sleeps);
    publish(&shared->taken[me], before, job->sleeps);
}

/* ---- parts of staging, all slots of a rank as one block: in, where nobody or a peer has read what lay there; and
 * out ---- */

static void by_put(const struct job *job)
{
    if (!job->to_all || me == 0) memcpy(shared->slots[me], job->src, job->bytes);
}

static void by_take(const struct job *job)
{
    if (!job->to_all || me > 0) memcpy(job->dst, shared->slots[from_of(job)], job->bytes);
}

enum { TO_ALL_ONLY = 1, OF_TWO = 2, SLEEPS = 4, PART = 8 };
static const struct way {
    const char *name;
    void (*run)(const struct job *job), (*before)(const struct job *job); /* before: not timed */
    size_t chunk;
    int flags;
} ways[] = {
    {"memcpy", by_memcpy, NULL, 0, 0},
    {"pull", by_pull, NULL, 0, 0},
    {"push", by_push, NULL, 0, 0},
    {"halves", by_halves, NULL, 0, TO_ALL_ONLY | OF_TWO},
    {"stage 16k", by_stage, NULL, 16 << 10, 0},
    {"stage 64k", by_stage, NULL, 64 << 10, 0},
    {"stage 256k", by_stage, NULL, 256 << 10, 0},
    {"stage 1m", by_stage, NULL, CHUNK_MOST, 0},
    {"64k sleeps", by_stage, NULL, 64 << 10, SLEEPS},
    {"put", by_put, by_put, 0, PART},
    {"given", by_put, by_take, 0, PART},
    {"take", by_take, by_put, 0, PART},
};
#define N_WAYS (sizeof ways / sizeof ways[0])

/* ---- cells ---- */

struct cell {
    size_t bytes, offset;
    enum pages pages;
    enum source source;
    bool to_all;
};

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* us of the slowest rank, in the middle round. */
static double run_way(const struct way *way, const struct cell *cell, struct job job)
{
    uint64_t ns[ROUNDS];
    const int rounds = job.bytes < LARGE_BYTES ? ROUNDS : ROUNDS_LARGE;
    job.chunk = way->chunk, job.sleeps = way->flags & SLEEPS;
    for (int i = 0; i < rounds; i++) {
        if (cell->pages == FRESH) madvise(job.dst - cell->offset, job.bytes + UNALIGNED, MADV_DONTNEED);
        prepare(job.src, job.bytes, cell->source);
        if (way->before) meet(), way->before(&job);
        meet();
        const uint64_t start = now_ns();
        way->run(&job);
        meet();
        shared->rank[me].ns = now_ns() - start;
        meet();
        ns[i] = 0;
        for (uint32_t r = 0; r < n_ranks; r++)
            if (shared->rank[r].ns > ns[i]) ns[i] = shared->rank[r].ns;
        meet();
    }
    const bool moves = way->run != by_memcpy && way->run != by_put && (!cell->to_all || me > 0);
    for (size_t at = 0; moves && at < job.bytes; at++)
        if (job.dst[at] != from_of(&job) + 1) fprintf(stderr, "%s: byte %zu is wrong\n", way->name, at), _exit(1);
    qsort(ns, (size_t)rounds, sizeof ns[0], by_value);
    return (double)ns[rounds / 2] / 1e3;
}

static bool is_skipped(const struct way *way, const struct cell *cell)
{
    if ((way->flags & TO_ALL_ONLY) && !cell->to_all) return true;
    if ((way->flags & OF_TWO) && n_ranks != 2) return true;
    return (way->flags & PART) && cell->bytes > sizeof shared->slots[0];
}

static void run_cell(const struct cell *cell)
{
    unsigned char *src = buffer_open(cell->bytes, cell->pages == FRESH ? SMALL : cell->pages) + cell->offset;
    unsigned char *dst = buffer_open(cell->bytes, cell->pages) + cell->offset;
    const struct job job = {.src = src, .dst = dst, .bytes = cell->bytes, .to_all = cell->to_all};
    shared->rank[me].src = (uintptr_t)src, shared->rank[me].dst = (uintptr_t)dst;
    if (me == 0)
        printf("%-8s %9zu %-5s %-7s %s ", cell->to_all ? "to all" : "exchange", cell->bytes, page_names[cell->pages],
               source_names[cell->source], cell->offset ? "off" : "on ");
    for (size_t w = 0; w < N_WAYS; w++) {
        const bool skipped = is_skipped(&ways[w], cell);
        const double us = skipped ? 0 : run_way(&ways[w], cell, job);
        if (me == 0 && skipped) printf(" %10s", "-");
        if (me == 0 && !skipped) printf(" %10.1f", us);
    }
    if (me == 0) printf("\n"), fflush(stdout);
    munmap(src - cell->offset, cell->bytes + HUGE);
    munmap(dst - cell->offset, cell->bytes + HUGE);
}

static void run_all(size_t most, const char *pattern)
{
    shared->rank[me].pid = getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* Yama */
    if (me == 0) {
        printf("# %u ranks, us; bytes a rank\n# %-6s %9s %-5s %-7s %s ", n_ranks, "pattern", "bytes", "pages", "source",
               "page");
        for (size_t w = 0; w < N_WAYS; w++) printf(" %10s", ways[w].name);
        printf("\n");
    }
    for (int to_all = strcmp(pattern, "all") == 0; to_all < (strcmp(pattern, "exchange") == 0 ? 1 : 2); to_all++)
        for (size_t bytes = 64 << 10; bytes <= most; bytes *= 4)
            for (enum pages pages = SMALL; pages <= FRESH; pages++)
                for (enum source source = WARM; source <= (pages == FRESH ? WARM : COLD); source++)
                    for (size_t offset = 0; offset <= (pages == SMALL && source == WARM ? UNALIGNED : 0);
                         offset += UNALIGNED)
                        run_cell(&(struct cell){bytes, offset, pages, source, to_all});
}

int main(int argc, char **argv)
{
    const long n = argc > 1 ? atol(argv[1]) : 2, mib = argc > 2 ? atol(argv[2]) : 64;
    if (n < 2 || n > MOST_RANKS || mib < 1 || mib > 1024) {
        fprintf(stderr, "usage: memory_ways [ranks, 2 to %d [largest block in MiB, 1 to 1024 [exchange | all]]]\n",
                MOST_RANKS);
        return 2;
    }
    n_ranks = (uint32_t)n;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return perror("mmap"), 1;
    memset(shared, 0, sizeof *shared);
    for (uint32_t r = 1; r < n_ranks && me == 0; r++)
        if (fork() == 0) me = r;
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) { /* a CPU each, as far as there are some */
        int cpu = -1, at = (int)me % CPU_COUNT(&allowed);
        while (at >= 0) at -= CPU_ISSET(++cpu, &allowed) ? 1 : 0;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    run_all((size_t)mib << 20, argc > 3 ? argv[3] : "");
    int failed = 0, status;
    while (me == 0 && wait(&status) > 0) failed |= status;
    return failed != 0;
}
