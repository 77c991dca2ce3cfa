/* SPDX-License-Identifier: BSD-3-Clause */

/* Packets on a socket between hosts: a proved peer writes the bytes, and then ends. What arrives is of that peer and
 * within the limits; large payloads go where they were placed, or through the transport's memory, in turns; and what is
 * no packet ends the peer, and nothing else. */

#include "fuzz.h"
#include "transport/tcp/tcp.h"

#include <sys/socket.h>
#include <unistd.h>

enum { PEER = 1, MOST = 1 << 16 };

static void dial_nobody(struct tutti_dialer *dialer, uint32_t peer)
{
    (void)dialer, (void)peer;
}

static volatile unsigned sum; /* the sum of all bytes that came: sanitizers see them read */

static void read_all(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) sum = sum + bytes[i];
}

/* One event; payloads that are placed go into memory of their own size. */
static void check_event(struct tutti_transport *t, const struct tutti_event *e, uint8_t **placed)
{
    FUZZ_CHECK(e->type == TUTTI_EVENT_DONE || (e->packet.source == PEER && e->packet.bytes <= t->max_payload));
    if (e->type == TUTTI_EVENT_ARRIVAL) {
        read_all(e->payload, e->packet.bytes);
        t->ops->release(t);
    } else if (e->type == TUTTI_EVENT_HEADER && (*placed || e->packet.seq % 2)) {
        t->ops->place(t, NULL, 0, 0);
    } else if (e->type == TUTTI_EVENT_HEADER) {
        *placed = malloc(e->packet.bytes);
        if (!*placed) abort();
        t->ops->place(t, &(struct tutti_target){*placed, e->packet.bytes}, 1, 7);
    } else {
        FUZZ_CHECK(*placed && e->token == 7);
        free(*placed);
        *placed = NULL;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tutti_dialer dialer = {.dial = dial_nobody};
    const struct tutti_tcp_config config = {.n = 3, .me = 0, .dialer = &dialer};
    struct tutti_transport *t;
    struct tutti_event event;
    uint8_t *placed = NULL;
    size_t n_events = 0;
    int fds[2];
    tutti_log_threshold = TUTTI_LOG_ERROR;
    if (n > MOST || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) return 0;
    if (tutti_tcp_open(&config, &t) < 0) abort();
    tutti_tcp_connected(t, PEER, fds[0], NULL);
    FUZZ_CHECK(n == 0 || send(fds[1], bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
    close(fds[1]);
    for (int quiet = 0; quiet < 2;) {
        const enum tutti_status status = t->ops->poll(t, &event);
        FUZZ_CHECK(status == TUTTI_OK || status == TUTTI_AGAIN || status == TUTTI_ERR_PROTOCOL);
        FUZZ_CHECK(status != TUTTI_OK || n_events++ <= n);
        if (status == TUTTI_OK) check_event(t, &event, &placed);
        quiet = status == TUTTI_OK ? 0 : quiet + 1;
    }
    FUZZ_CHECK(!placed); /* it came back, whole or not */
    t->ops->close(t);
    return 0;
}
