/* SPDX-License-Identifier: BSD-3-Clause */
/* The transport tcp alone, beside a bare socket that spins: two processes, each on a CPU of its own, over the loopback.
 * Blocks of both take turns, so that the ratio holds on a machine that does other things, too.
 *
 *     wire                                 one way (half a round trip), and both ways at once
 *     wire --sizes 8,64K,64M --blocks 15 --congestion bbr
 * Microseconds: the median block, and the best one in brackets. */

#include "transport/tcp/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS_MOST = 101, BLOCK_NS = 1000000, PIECE = 1 << 20 };
static const char *congestion = "cubic", *sizes = "8,256,4K,16K,64K,256K,1M,4M,16M,64M";
static uint32_t n_blocks = 11, me;
static int raw;
static struct tutti_transport *t;
static unsigned char *out, *in;
static size_t room; /* both sides */

static void require(bool claim, const char *what)
{
    if (claim) return;
    fprintf(stderr, "wire: %s (%s; %s)\n", what, strerror(errno), tutti_last_error()->text);
    exit(1);
}

/* ---- a bare socket ---- */

static void raw_run(size_t sends, size_t receives)
{
    for (size_t sent = 0, received = 0; sent < sends || received < receives;) {
        if (sent < sends) {
            const size_t left = sends - sent;
            ssize_t n = send(raw, out + sent, left < PIECE ? left : PIECE, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n > 0) sent += (size_t)n;
            require(n > 0 || errno == EAGAIN, "send");
        }
        if (received < receives) {
            const size_t left = receives - received;
            ssize_t n = recv(raw, in + received, left < PIECE ? left : PIECE, MSG_DONTWAIT);
            if (n > 0) received += (size_t)n;
            require(n > 0 || (n < 0 && errno == EAGAIN), "recv");
        }
    }
}

/* ---- the transport ---- */

static size_t tcp_send(size_t sent, size_t sends, uint32_t *n_pending)
{
    while (sent < sends) {
        const size_t left = sends - sent, bytes = left < t->max_payload ? left : t->max_payload;
        const struct tutti_packet packet = {.type = TUTTI_PACKET_DATA, .bytes = (uint32_t)bytes, .offset = sent};
        const struct tutti_span span = {out + sent, bytes};
        enum tutti_status status = t->ops->send(t, 1 - me, &packet, &span, 1, 1);
        require(status >= 0, "the transport does not send");
        if (status == TUTTI_AGAIN) break;
        *n_pending += status == TUTTI_PENDING;
        sent += bytes;
    }
    return sent;
}

static void tcp_run(size_t sends, size_t receives)
{
    uint32_t n_pending = 0;
    static size_t received, placed; /* what the peer sent for the next run already */
    size_t sent = 0;
    while (sent < sends || received < receives || n_pending > 0 || t->ops->owes(t)) {
        struct tutti_event e;
        sent = tcp_send(sent, sends, &n_pending);
        enum tutti_status status = t->ops->poll(t, &e);
        require(status >= 0, "the transport does not poll");
        if (status == TUTTI_AGAIN) continue;
        if (e.type == TUTTI_EVENT_ARRIVAL) {
            require(e.packet.offset + e.packet.bytes <= room, "a packet that nobody sent");
            memcpy(in + e.packet.offset, e.payload, e.packet.bytes);
            received += e.packet.bytes;
            t->ops->release(t);
        } else if (e.type == TUTTI_EVENT_HEADER) {
            const struct tutti_target target = {in + e.packet.offset, e.packet.bytes};
            require(e.packet.offset + e.packet.bytes <= room, "a packet that nobody sent");
            placed = e.packet.bytes;
            t->ops->place(t, &target, 1, 2);
        } else if (e.token == 2) {
            received += placed;
        } else {
            n_pending--;
        }
    }
    received -= receives;
}

/* ---- blocks ---- */

typedef void (*runner)(size_t sends, size_t receives);

/* Nanoseconds of one transfer. */
static double block(runner run, size_t bytes, bool both, uint32_t n)
{
    const uint64_t start = tutti_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        if (both) {
            run(bytes, bytes);
        } else if (me == 0) {
            run(bytes, 0);
            run(0, bytes);
        } else {
            run(0, bytes);
            run(bytes, 0);
        }
    }
    return (double)(tutti_now_ns() - start) / n / (both ? 1 : 2);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(size_t bytes, bool both)
{
    static const runner runners[2] = {raw_run, tcp_run};
    double times[2][BLOCKS_MOST];
    const double guess = 8000 + (double)bytes / 2;
    const uint32_t n = guess * 2 > BLOCK_NS ? 1 : (uint32_t)(BLOCK_NS / guess);
    for (uint32_t b = 0; b < n_blocks + 1; b++) /* the first one is not counted */
        for (int k = 0; k < 2; k++) times[k][b > 0 ? b - 1 : 0] = block(runners[k], bytes, both, n) / 1000;
    for (int k = 0; k < 2; k++) qsort(times[k], n_blocks, sizeof(double), by_value);
    if (me != 0) return;
    const double raw_us = times[0][n_blocks / 2], tcp_us = times[1][n_blocks / 2];
    printf("| %s | %zu | %.2f (%.2f) | %.2f (%.2f) | %.2f (%.2f) |\n", both ? "both ways" : "one way", bytes, raw_us,
           times[0][0], tcp_us, times[1][0], tcp_us / raw_us, times[1][0] / times[0][0]);
    fflush(stdout);
}

/* ---- the two processes ---- */

static void nobody_dials(struct tutti_dialer *dialer, uint32_t peer)
{
    (void)dialer, (void)peer;
}

/* Before it is connected: what has once been a socket of BBR is paced for ever. */
static void choose_congestion(int fd)
{
    require(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)) == 0,
            "no such congestion control");
}

static void connect_pair(int fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    choose_congestion(listener); /* an accepted connection has it, too */
    require(bind(listener, (struct sockaddr *)&address, bytes) == 0 && listen(listener, 1) == 0 &&
                getsockname(listener, (struct sockaddr *)&address, &bytes) == 0,
            "no socket to listen at");
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    choose_congestion(fds[0]);
    require(connect(fds[0], (struct sockaddr *)&address, bytes) == 0, "no connection");
    fds[1] = accept(listener, NULL, NULL);
    close(listener);
}

static int process(const int raws[2], const int tcps[2])
{
    struct tutti_dialer nobody = {nobody_dials};
    const struct tutti_tcp_config config = {.n = 2, .me = me, .dialer = &nobody};
    const int one = 1;
    char list[256];
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(me, &cpus);
    sched_setaffinity(0, sizeof(cpus), &cpus);
    raw = raws[me];
    close(raws[1 - me]), close(tcps[1 - me]);
    setsockopt(raw, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    require(tutti_tcp_open(&config, &t) == TUTTI_OK, "no transport");
    tutti_tcp_connected(t, 1 - me, tcps[me]);
    if (me == 0) printf("| | bytes | bare socket, us | tcp, us | ratio |\n|---|--:|--:|--:|--:|\n");
    for (int both = 0; both < 2; both++) {
        snprintf(list, sizeof(list), "%s", sizes);
        for (char *save, *item = strtok_r(list, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
            char *unit;
            size_t bytes = strtoull(item, &unit, 10);
            bytes <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : 0;
            room = bytes, out = malloc(bytes), in = malloc(bytes);
            memset(out, 1, bytes), memset(in, 1, bytes);
            measure(bytes, both);
            free(out), free(in);
        }
    }
    t->ops->close(t);
    return 0;
}

int main(int argc, char **argv)
{
    int raws[2], tcps[2], status = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--sizes") == 0) sizes = argv[i + 1];
        if (strcmp(argv[i], "--blocks") == 0) n_blocks = (uint32_t)atoi(argv[i + 1]);
        if (strcmp(argv[i], "--congestion") == 0) congestion = argv[i + 1];
    }
    alarm(600); /* a peer that failed is waited for no longer */
    require(n_blocks > 0 && n_blocks <= BLOCKS_MOST, "--blocks is from 1 to 101");
    connect_pair(raws), connect_pair(tcps);
    pid_t child = fork();
    me = child == 0;
    if (child == 0) return process(raws, tcps);
    process(raws, tcps);
    waitpid(child, &status, 0);
    return status != 0;
}
