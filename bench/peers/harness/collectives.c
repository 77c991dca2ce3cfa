/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank of one peer: it sleeps in a read of the script's socket, measures a point when a line tells it to, and rank
 * 0 answers with a line of JSON. A point is one operation of one size with one kind of memory: the call is run once and
 * compared with what must come out; then batches of calls back to back are timed, of which the slowest rank counts, and
 * the median is the point's time. "apart" times single calls that all ranks begin at one instant, so that no call finds
 * the others' last one under way; "barrier" does so behind the peer's own barrier; "fresh" writes the inputs anew.
 * Before and after, the latency of a cache line tells in which state the machine was. */

#include "collectives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HUGE ((size_t)2 << 20)
#define MALLOC_HEAD ((size_t)16) /* before what malloc gives, at the start of its first page */
#define BATCHES_MOST 40          /* short ones: a turn of another process spoils but one */
#define BATCHES_LEAST 3
#define CALLS_MOST ((uint64_t)1 << 20)
#define SAMPLED 61 /* blocks, of which one is compared after the batches */

enum { WRONG = PEER_MAX_BATCHES, OFFERED, IDLE };

struct order {
    char operation[32], memory[16];
    char way[16]; /* "back" (to back), "apart", "barrier" or "fresh" */
    size_t bytes;
    size_t verify; /* 0: not before the batches; else of so many blocks one */
    uint64_t budget_ns;
    unsigned limit_s;
};

struct point {
    const struct peer *peer;
    const struct order *order;
    struct peer_case c;
    struct peer_call call;
    int (*function)(const struct peer_call *);
    double before_ns, after_ns;
    double us[PEER_MAX_BATCHES];
    size_t n_us;
    uint64_t calls; /* in a batch */
};

/* ---- memory ---- */
static void *pages_open(size_t bytes, bool huge)
{
    size_t slack = huge ? HUGE : 0, rounded = (bytes + HUGE - 1) & ~(HUGE - 1);
    char *base = mmap(NULL, rounded + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    char *start = huge ? (char *)(((uintptr_t)base + HUGE - 1) & ~(uintptr_t)(HUGE - 1)) : base;
    if (start > base) munmap(base, (size_t)(start - base));
    if (base + slack > start) munmap(start + rounded, (size_t)(base + slack - start));
    (void)madvise(start, rounded, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return start;
}

static void *memory_open(const struct point *p, size_t floats)
{
    size_t bytes = floats ? floats * sizeof(float) : sizeof(float);
    if (strcmp(p->order->memory, "mapped") == 0) return p->peer->alloc(bytes);
    const size_t head = strcmp(p->order->memory, "malloc") == 0 ? MALLOC_HEAD : 0;
    char *base = pages_open(bytes + head, strcmp(p->order->memory, "huge") == 0);
    return base ? base + head : NULL;
}

static void memory_close(const struct point *p, const void *memory, size_t floats)
{
    size_t bytes = floats ? floats * sizeof(float) : sizeof(float);
    void *base = (void *)(uintptr_t)memory;
    if (!base) return;
    if (strcmp(p->order->memory, "mapped") == 0)
        p->peer->free(base);
    else if (strcmp(p->order->memory, "malloc") == 0)
        munmap((char *)base - MALLOC_HEAD, (bytes + MALLOC_HEAD + HUGE - 1) & ~(HUGE - 1));
    else
        munmap(base, (bytes + HUGE - 1) & ~(HUGE - 1));
}

/* ---- time ---- */
static void must(int status)
{
    if (status != 0) _exit(3); /* the peer said why; the script sees the end of the socket */
}

/* Microseconds a call, of the slowest rank. */
static double batch(struct point *p, uint64_t calls)
{
    size_t i = p->n_us++;
    peer_meet();
    uint64_t begin = peer_now_ns();
    for (uint64_t k = 0; k < calls; k++) must(p->function(&p->call));
    peer_tell(i, (double)(peer_now_ns() - begin) / 1e3 / (double)calls);
    peer_meet();
    return p->us[i] = peer_largest(i);
}

static double single_call(struct point *p, bool fresh)
{
    size_t i = p->n_us++;
    if (fresh && p->c.send) peer_fill((float *)(uintptr_t)p->call.send, p->c.send, p->call.rank);
    bool own = strcmp(p->order->way, "barrier") == 0 && p->peer->calls[PEER_BARRIER];
    if (own) must(p->peer->calls[PEER_BARRIER](&p->call));
    uint64_t begin = own ? peer_now_ns() : peer_start();
    must(p->function(&p->call));
    peer_tell(i, (double)(peer_now_ns() - begin) / 1e3);
    peer_meet();
    return p->us[i] = peer_largest(i);
}

static size_t clamp(double value, size_t least, size_t most)
{
    return value < (double)least ? least : value > (double)most ? most : (size_t)value;
}

/* Microseconds of a call that nothing disturbed, so far as two batches can tell. */
static double guess(struct point *p, uint64_t calls)
{
    double us = batch(p, calls), again;
    if (us * (double)calls > 50e3) return us;
    again = batch(p, calls);
    return again < us ? again : us;
}

/* All ranks see the same figures, and so decide alike. */
static void measure(struct point *p)
{
    double budget_us = (double)p->order->budget_ns / 1e3, us;
    uint64_t calls = 1;
    if (strcmp(p->order->way, "back") != 0) {
        bool fresh = strcmp(p->order->way, "fresh") == 0;
        us = single_call(p, fresh);
        p->n_us = 0;
        p->calls = 1;
        for (size_t n = clamp(budget_us / us, BATCHES_LEAST, PEER_MAX_BATCHES); n > 0; n--) (void)single_call(p, fresh);
        return;
    }
    while ((us = guess(p, calls)) * (double)calls < budget_us / BATCHES_MOST / 4 && calls < CALLS_MOST) calls *= 4;
    p->calls = clamp(budget_us / BATCHES_MOST / us, 1, CALLS_MOST);
    p->n_us = 0;
    for (size_t n = clamp(budget_us / us / (double)p->calls, BATCHES_LEAST, BATCHES_MOST); n > 0; n--)
        (void)batch(p, p->calls);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* ---- one point ---- */
static double checked(struct point *p, size_t stride)
{
    peer_tell(WRONG, (double)peer_wrong(&p->c, &p->call, stride));
    peer_meet();
    return peer_largest(WRONG);
}

/* false: the peer does not offer the call. */
static bool first_call(struct point *p, double *wrong)
{
    memset(p->call.recv, 0xa5, p->c.recv * sizeof(float));
    peer_fill((float *)(uintptr_t)p->call.send, p->c.send, p->call.rank);
    peer_meet();
    int status = p->function(&p->call);
    if (status < 0) must(status);
    peer_tell(OFFERED, status);
    peer_meet();
    if (peer_largest(OFFERED) > 0) return false;
    *wrong = p->order->verify ? checked(p, p->order->verify) : 0;
    return true;
}

static void answer(struct point *p, int socket, double wrong)
{
    double best = p->us[0];
    for (size_t i = 1; i < p->n_us; i++)
        if (p->us[i] < best) best = p->us[i];
    dprintf(socket,
            "{\"us\": %.6g, \"min_us\": %.6g, \"batches\": %zu, \"calls\": %llu, \"probe_ns\": [%.1f, %.1f], "
            "\"wrong\": %.0f, \"idle\": %.4f}\n",
            median(p->us, p->n_us), best, p->n_us, (unsigned long long)p->calls, p->before_ns, p->after_ns, wrong,
            peer_largest(IDLE));
}

static void run_point(struct point *p, int socket)
{
    double wrong = 0;
    bool root = p->call.rank == 0, offered = p->function != NULL;
    if (strcmp(p->order->memory, "mapped") == 0) offered = offered && p->peer->alloc;
    if (offered) {
        p->call.send = memory_open(p, p->c.send);
        p->call.recv = memory_open(p, p->c.recv);
        if (!p->call.send || !p->call.recv) {
            fprintf(stderr, "rank %d: no memory for %s of %zu bytes\n", p->call.rank, p->c.name, p->order->bytes);
            _exit(3);
        }
        if ((offered = first_call(p, &wrong))) {
            p->before_ns = peer_probe();
            measure(p);
            p->after_ns = peer_probe();
            if (wrong == 0) wrong = checked(p, SAMPLED);
            if (root) answer(p, socket, wrong);
        }
        memory_close(p, p->call.send, p->c.send);
        memory_close(p, p->call.recv, p->c.recv);
    }
    if (!offered && root) dprintf(socket, "{\"reason\": \"not offered\"}\n");
}

static bool order_read(const char *line, struct order *out)
{
    unsigned long long budget_us;
    int n = sscanf(line, "point %31s %zu %15s %15s %zu %llu %u", out->operation, &out->bytes, out->memory, out->way,
                   &out->verify, &budget_us, &out->limit_s);
    out->budget_ns = n == 7 ? budget_us * 1000 : 0;
    return n == 7;
}

/* ---- serving ---- */
static int socket_open(int rank)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("PEERS_SOCKET");
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!path || strlen(path) >= sizeof address.sun_path || fd < 0) return -1;
    strcpy(address.sun_path, path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror(path);
        return -1;
    }
    dprintf(fd, "hello %d %d\n", rank, (int)getpid());
    return fd;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Waits for the next line; tells what share of a CPU this process took meanwhile, which should have been none. */
static bool line_wait(FILE *in, char *line, int capacity)
{
    double cpu = cpu_s();
    uint64_t begin = peer_now_ns();
    alarm(0);
    bool came = fgets(line, capacity, in) != NULL;
    double waited = (double)(peer_now_ns() - begin) / 1e9;
    peer_tell(IDLE, waited > 0.05 ? (cpu_s() - cpu) / waited : 0);
    return came;
}

static int number(const char *const *names)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text && *text) return atoi(text);
    }
    return -1;
}

int peer_serve(const struct peer *p)
{
    static const char *const rank_names[] = {"PEERS_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", NULL};
    static const char *const size_names[] = {"PEERS_SIZE", NULL};
    int rank = number(rank_names), n = number(size_names);
    char line[256];
    if (rank < 0 || n < 1 || peer_control_open(rank, n) != 0) {
        fprintf(stderr, "this program is started by bench/cpu_peers.py\n");
        return 2;
    }
    alarm(120);
    if (p->open(rank, n) != 0) return 1;
    peer_meet();
    int socket = socket_open(rank);
    FILE *in = socket < 0 ? NULL : fdopen(socket, "r");
    if (!in) return 1;
    while (line_wait(in, line, sizeof line)) {
        struct order order;
        struct point point = {.peer = p, .order = &order, .call = {.rank = rank, .n = n}};
        if (!order_read(line, &order) || !peer_case_make(order.operation, order.bytes, rank, n, &point.c)) {
            fprintf(stderr, "rank %d does not know how to: %s", rank, line);
            return 1;
        }
        alarm(order.limit_s); /* a rank that hangs is ended */
        point.call.count = point.c.count;
        int operation = point.c.operation;
        point.function = operation < PEER_N_OPERATIONS ? p->calls[operation] : peer_own_call(operation);
        run_point(&point, socket);
    }
    alarm(20);
    p->close();
    fclose(in);
    return 0;
}
