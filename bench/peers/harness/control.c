/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ranks of one peer share for being measured, apart from the peer itself: a barrier that sleeps, figures by
 * rank, a common start, and the cache line whose latency tells the state of the machine. */

#include "collectives.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE 128 /* two cache lines: they are fetched in pairs */
#define SPINS 20000
#define PROBE_BATCHES 5
#define PROBE_TRIPS 1000
#define PROBE_LIMIT_NS 100000000u

#define N_FIGURES (PEER_MAX_BATCHES + 8)

struct control {
    _Alignas(LINE) _Atomic uint32_t arrived;
    _Alignas(LINE) _Atomic uint32_t phase; /* the futex */
    _Alignas(LINE) _Atomic uint64_t ball;
    _Alignas(LINE) _Atomic uint64_t start_number;
    uint64_t start_ns;
    _Alignas(LINE) char shared[1024];
    struct {
        _Alignas(LINE) double figures[N_FIGURES];
    } ranks[PEER_MAX_RANKS];
};

static struct control *control;
static int me, n_ranks;
static int cpus[PEER_MAX_RANKS], n_cpus;
static bool pinned, crowded;
static cpu_set_t all_cpus;

uint64_t peer_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void peer_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void pin_to(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) perror("sched_setaffinity");
}

/* The list comes from the script, for a launcher may have narrowed what this process is allowed. */
static void cpus_read(const char *list)
{
    CPU_ZERO(&all_cpus);
    for (const char *at = list; *at && n_cpus < PEER_MAX_RANKS;) {
        char *end;
        long cpu = strtol(at, &end, 10);
        if (end == at || cpu < 0 || cpu >= CPU_SETSIZE) break;
        cpus[n_cpus++] = (int)cpu;
        CPU_SET((int)cpu, &all_cpus);
        at = *end == ',' ? end + 1 : end;
    }
}

int peer_control_open(int rank, int n)
{
    const char *path = getenv("PEERS_CONTROL"), *list = getenv("PEERS_CPUS"), *pin = getenv("PEERS_PINNED");
    if (!path || !list || n > PEER_MAX_RANKS) return -1;
    cpus_read(list);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || n_cpus == 0) {
        perror(path);
        return -1;
    }
    control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (control == MAP_FAILED) {
        perror("mmap");
        return -1;
    }
    me = rank;
    n_ranks = n;
    crowded = n > n_cpus;
    pinned = pin && strcmp(pin, "1") == 0;
    if (pinned)
        pin_to(cpus[rank % n_cpus]);
    else if (sched_setaffinity(0, sizeof all_cpus, &all_cpus) != 0)
        perror("sched_setaffinity");
    return 0;
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

/* The script ends whoever waits too long (SIGALRM, see collectives.c). */
void peer_meet(void)
{
    uint32_t phase = atomic_load(&control->phase);
    if (atomic_fetch_add(&control->arrived, 1) + 1 == (uint32_t)n_ranks) {
        atomic_store(&control->arrived, 0);
        atomic_store(&control->phase, phase + 1);
        futex(&control->phase, FUTEX_WAKE, INT_MAX);
        return;
    }
    for (uint32_t spins = crowded ? SPINS : 0; atomic_load(&control->phase) == phase; spins++) {
        if (spins < SPINS)
            peer_relax();
        else
            futex(&control->phase, FUTEX_WAIT, phase);
    }
}

void peer_share(void *bytes, size_t n)
{
    if (n > sizeof control->shared) abort();
    if (me == 0) memcpy(control->shared, bytes, n);
    peer_meet();
    memcpy(bytes, control->shared, n);
    peer_meet();
}

void peer_tell(size_t i, double value)
{
    control->ranks[me].figures[i] = value;
}

double peer_largest(size_t i)
{
    double largest = control->ranks[0].figures[i];
    for (int r = 1; r < n_ranks; r++)
        if (control->ranks[r].figures[i] > largest) largest = control->ranks[r].figures[i];
    return largest;
}

uint64_t peer_start(void)
{
    uint64_t number = atomic_load(&control->start_number);
    peer_meet();
    if (crowded) return peer_now_ns();
    if (me == 0) {
        control->start_ns = peer_now_ns() + 3000 + 100 * (uint64_t)n_ranks;
        atomic_store(&control->start_number, number + 1);
    }
    while (atomic_load(&control->start_number) == number) peer_relax();
    uint64_t start = control->start_ns;
    while (peer_now_ns() < start) continue;
    return start;
}

/* Nanoseconds of the fastest batch's round trip: a busy machine takes a rank off its CPU now and then. */
static double trips(int rank)
{
    uint64_t begin = peer_now_ns(), last = begin, best = UINT64_MAX;
    for (uint64_t trip = 0; trip < PROBE_BATCHES * PROBE_TRIPS; trip++) {
        uint64_t mine = 2 * trip + (uint64_t)rank, spins = 0;
        while (atomic_load_explicit(&control->ball, memory_order_acquire) != mine) {
            if (++spins % 1024 == 0 && peer_now_ns() - begin > PROBE_LIMIT_NS) goto out;
        }
        atomic_store_explicit(&control->ball, mine + 1, memory_order_release);
        if ((trip + 1) % PROBE_TRIPS) continue;
        uint64_t now = peer_now_ns();
        if (now - last < best) best = now - last;
        last = now;
    }
out:
    return best == UINT64_MAX ? 0 : (double)best / PROBE_TRIPS;
}

double peer_probe(void)
{
    double round_trip = 0;
    if (n_ranks < 2 || n_cpus < 2) return 0;
    if (me == 0) atomic_store(&control->ball, 0);
    if (!pinned && me < 2) pin_to(cpus[me]);
    peer_meet();
    if (me < 2) round_trip = trips(me);
    peer_meet();
    if (!pinned && me < 2) (void)sched_setaffinity(0, sizeof all_cpus, &all_cpus);
    return round_trip / 2;
}
