/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank of bench/levels.py: one collective of a job on several hosts, and its two parts alone, in turns: that of the
 * ranks of one host, and that of one rank of each host. Arguments: the operation, ranks of a host, seconds, sizes.
 * Rank 0 prints a line for each size: bytes, and for each way the least and the median time of a call in us. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

#define MOST_TURNS 1000
#define BLOCK_S 0.02 /* of calls that are timed together */

enum way { WITHIN, BETWEEN, ALL, N_WAYS };

struct place {
    struct tutti_comm *comm; /* NULL: this rank has no part in it */
    int n, me;
};

static struct tutti_comm *world;
static float *send_buffer, *recv_buffer;
static const char *operation;

static void check(enum tutti_status status)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", tutti_last_error()->text);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* `bytes` is the larger side of the call. */
static enum tutti_status call(const struct place *p, size_t bytes)
{
    const size_t whole = bytes / sizeof(float) > 0 ? bytes / sizeof(float) : 1,
                 part = (whole + (size_t)p->n - 1) / (size_t)p->n;
    const float *in = send_buffer;
    float *out = recv_buffer;

    if (!strcmp(operation, "all_reduce"))
        return tutti_all_reduce(in, out, whole, TUTTI_FLOAT32, TUTTI_SUM, p->comm, NULL, NULL);
    if (!strcmp(operation, "reduce"))
        return tutti_reduce(in, out, whole, TUTTI_FLOAT32, TUTTI_SUM, 0, p->comm, NULL, NULL);
    if (!strcmp(operation, "broadcast")) return tutti_broadcast(out, whole, TUTTI_FLOAT32, 0, p->comm, NULL, NULL);
    if (!strcmp(operation, "all_gather")) return tutti_all_gather(in, out, part, TUTTI_FLOAT32, p->comm, NULL, NULL);
    if (!strcmp(operation, "reduce_scatter"))
        return tutti_reduce_scatter(in, out, part, TUTTI_FLOAT32, TUTTI_SUM, p->comm, NULL, NULL);
    if (!strcmp(operation, "all_to_all")) return tutti_all_to_all(in, out, part, TUTTI_FLOAT32, p->comm, NULL, NULL);
    if (!strcmp(operation, "barrier")) return tutti_barrier(p->comm, NULL, NULL);
    fprintf(stderr, "%s is no operation\n", operation);
    exit(2);
}

/* The longest time of a rank for a call, of n in a row. */
static double block_s(const struct place *p, size_t bytes, int n)
{
    check(tutti_barrier(world, NULL, NULL));
    const double begin = now_s();
    for (int i = 0; p->comm && i < n; i++) check(call(p, bytes));
    double own = (now_s() - begin) / n, longest;
    check(tutti_all_reduce(&own, &longest, 1, TUTTI_FLOAT64, TUTTI_MAX, world, NULL, NULL));
    return longest;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct place places[N_WAYS], size_t bytes, double seconds, bool tells)
{
    static double times[N_WAYS][MOST_TURNS];
    int calls[N_WAYS], n = 0;

    for (int w = 0; w < N_WAYS; w++) {
        block_s(&places[w], bytes, 10);
        const double wanted = BLOCK_S / block_s(&places[w], bytes, 10);
        calls[w] = wanted < 3 ? 3 : wanted > 20000 ? 20000 : (int)wanted;
    }
    double until = now_s() + seconds;
    check(tutti_broadcast(&until, 1, TUTTI_FLOAT64, 0, world, NULL, NULL));
    for (double now = 0; now < until && n < MOST_TURNS; n++) {
        for (int w = 0; w < N_WAYS; w++) times[w][n] = block_s(&places[w], bytes, calls[w]);
        now = now_s();
        check(tutti_broadcast(&now, 1, TUTTI_FLOAT64, 0, world, NULL, NULL));
    }
    if (!tells) return;
    printf("%zu %d", bytes, n);
    for (int w = 0; w < N_WAYS; w++) {
        qsort(times[w], (size_t)n, sizeof(times[w][0]), ascending);
        printf(" %.3f %.3f", 1e6 * times[w][0], 1e6 * times[w][n / 2]);
    }
    printf("\n");
    fflush(stdout);
}

static void place(struct place *p, int color, int key, bool takes_part)
{
    struct tutti_comm *comm;
    check(tutti_comm_split(world, color, key, &comm));
    *p = (struct place){takes_part ? comm : NULL, tutti_comm_size(comm), tutti_comm_rank(comm)};
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    operation = argv[1];
    const int a_host = atoi(argv[2]);
    const double seconds = atof(argv[3]);
    size_t most = 0;
    for (int i = 4; i < argc; i++) most = strtoull(argv[i], NULL, 10) > most ? strtoull(argv[i], NULL, 10) : most;
    send_buffer = calloc(1, most + 4096), recv_buffer = calloc(1, most + 4096);
    if (!send_buffer || !recv_buffer || a_host < 1) return 2;
    memset(send_buffer, 0, most + 4096), memset(recv_buffer, 0, most + 4096);
    check(tutti_comm_create(NULL, NULL, &world));
    const int rank = tutti_comm_rank(world), n = tutti_comm_size(world), host = rank / a_host, local = rank % a_host;
    struct place places[N_WAYS] = {[ALL] = {world, n, rank}};
    place(&places[WITHIN], host, local, host == 0);
    place(&places[BETWEEN], local, host, local == 0);
    for (int i = 4; i < argc; i++) measure(places, strtoull(argv[i], NULL, 10), seconds, rank == 0);
    check(tutti_barrier(world, NULL, NULL));
    tutti_comm_destroy(world);
    return 0;
}
