/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the time of small calls over TCP goes: put before a program by LD_PRELOAD, it times what the program's calls of
 * send and recv take, and what lies between them, and tells the means when the program ends.
 *
 *     cc -O2 -shared -fPIC bench/peers/harness/socket_times.c -o build/socket_times.so
 *     TUTTI_TRANSPORT=tcp TUTTI_TRUST_NETWORK=1 build/bin/tutti run -n 2 env LD_PRELOAD=build/socket_times.so \
 *         build/bin/tutti bench all_reduce -b 8 -e 8 --place out --calls 20000
 *
 * What lasts longer than LONGEST_NS is left out: the rank slept, or other programs had the CPU. */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_NS 60000
#define LEAST_SENDS 5000 /* who sends less has nothing to tell */

/* What ended last. */
enum stage { NOTHING, SENT, RECEIVED, FOUND_NOTHING };
static const char *const names[] = {
    "send", "to the first look", "a look in vain", "to the next look", "the look that finds", "to the next send"};
enum span { SEND, TO_LOOK, VAIN, NEXT_LOOK, FINDS, TO_SEND, N_SPANS };
static _Thread_local enum stage stage;
static _Thread_local double last_ns;
static double total_ns[N_SPANS];
static unsigned long n[N_SPANS];

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void count(enum span span, double ns)
{
    if (ns > LONGEST_NS) return;
    total_ns[span] += ns;
    n[span]++;
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    const double begin = now_ns();
    if (stage == RECEIVED) count(TO_SEND, begin - last_ns);
    const ssize_t got = syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
    last_ns = now_ns(), stage = SENT;
    count(SEND, last_ns - begin);
    return got;
}

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    const double begin = now_ns();
    if (stage == SENT) count(TO_LOOK, begin - last_ns);
    if (stage == FOUND_NOTHING) count(NEXT_LOOK, begin - last_ns);
    const ssize_t got = syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
    const int error = errno;
    last_ns = now_ns(), stage = got > 0 ? RECEIVED : FOUND_NOTHING;
    count(got > 0 ? FINDS : VAIN, last_ns - begin);
    errno = error;
    return got;
}

__attribute__((destructor)) static void tell(void)
{
    if (n[SEND] < LEAST_SENDS) return;
    for (int i = 0; i < N_SPANS; i++)
        if (n[i])
            fprintf(stderr, "process %d: %-20s %5.0f ns, %.2f for each send\n", (int)getpid(), names[i],
                    total_ns[i] / (double)n[i], (double)n[i] / (double)n[SEND]);
}
