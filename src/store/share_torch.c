/* SPDX-License-Identifier: BSD-3-Clause */

/* The store that torchrun serves at MASTER_ADDR:MASTER_PORT, PyTorch's TCPStore, as a wire: of its protocol what one
 * text takes. A connection begins with VALIDATE and a number that both sides know; numbers travel in the order of the
 * host's bytes, keys with a slash before them, texts and keys behind their length. SET has no answer, so that a PING
 * behind it tells that it came. */

#include "store/share.h"
#include "store/store_codec.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define VALIDATION UINT32_C(0x3C85F7CE)
#define RETRY_NS (50 * TUTTI_NS_PER_MS)
#define REQUEST_MAX 2048

enum request { VALIDATE = 0, SET = 1, GET = 3, WAIT = 6, PING = 13 };

struct torch {
    int fd;
    const char *host, *port;
    uint64_t start_ns, deadline_ns;
    uint8_t out[REQUEST_MAX];
    size_t n_out;
};

static void add(struct torch *t, const void *bytes, size_t n)
{
    if (n > sizeof t->out - t->n_out) return; /* keys and texts are shorter */
    memcpy(t->out + t->n_out, bytes, n);
    t->n_out += n;
}

static void add_type(struct torch *t, enum request type)
{
    add(t, &(uint8_t){(uint8_t)type}, 1);
}

static void add_text(struct torch *t, const char *slash, const char *text)
{
    add(t, &(uint64_t){strlen(slash) + strlen(text)}, sizeof(uint64_t));
    add(t, slash, strlen(slash));
    add(t, text, strlen(text));
}

static enum tutti_status lost(const struct torch *t)
{
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "torchrun's store at %s:%s (MASTER_ADDR, MASTER_PORT) has ended", t->host,
                            t->port);
}

static enum tutti_status ready(const struct torch *t, short events)
{
    if (tutti_store_fd_wait(t->fd, events, t->deadline_ns) == TUTTI_OK) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_TIMEOUT,
                      "rank 0 did not say in torchrun's store at %s:%s (MASTER_ADDR, MASTER_PORT) where it "
                      "is: " TUTTI_SAYS_TIMED_OUT,
                      t->host, t->port, tutti_says_ms(tutti_now_ns() - t->start_ns));
}

/* Sends what was added, and reads an answer of n bytes. */
static enum tutti_status ask(struct torch *t, void *answer, size_t n)
{
    for (size_t sent = 0; sent < t->n_out;) {
        const ssize_t k = send(t->fd, t->out + sent, t->n_out - sent, MSG_NOSIGNAL);
        if (k >= 0)
            sent += (size_t)k;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            TUTTI_TRY(ready(t, POLLOUT));
        else if (errno != EINTR)
            return lost(t);
    }
    t->n_out = 0;
    for (size_t got = 0; got < n;) {
        const ssize_t k = recv(t->fd, (uint8_t *)answer + got, n - got, 0);
        if (k > 0)
            got += (size_t)k;
        else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            TUTTI_TRY(ready(t, POLLIN));
        else if (k == 0)
            return errno = ECONNRESET, lost(t);
        else if (errno != EINTR)
            return lost(t);
    }
    return TUTTI_OK;
}

static enum tutti_status ping(struct torch *t)
{
    const uint32_t nonce = (uint32_t)getpid();
    uint32_t answer = 0;
    add_type(t, PING);
    add(t, &nonce, sizeof nonce);
    TUTTI_TRY(ask(t, &answer, sizeof answer));
    if (answer == nonce) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_PROTOCOL, "what answers at %s:%s (MASTER_ADDR, MASTER_PORT) is not torchrun's store",
                      t->host, t->port);
}

static enum tutti_status text_get(struct torch *t, const char *key, char text[TUTTI_SHARE_MAX + 1])
{
    uint8_t waited = 1;
    uint64_t n = 0;
    add_type(t, WAIT);
    add(t, &(uint64_t){1}, sizeof(uint64_t));
    add_text(t, "/", key);
    TUTTI_TRY(ask(t, &waited, 1));
    add_type(t, GET);
    add_text(t, "/", key);
    if (waited == 0) TUTTI_TRY(ask(t, &n, sizeof n));
    if (waited != 0 || n == 0 || n > TUTTI_SHARE_MAX)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "torchrun's store at %s:%s lost what rank 0 said", t->host, t->port);
    TUTTI_TRY(ask(t, text, (size_t)n));
    text[n] = '\0';
    return TUTTI_OK;
}

static enum tutti_status begin(struct torch *t)
{
    int why = 0;
    enum tutti_status status;
    while ((status = tutti_store_connect(t->host, t->port, t->deadline_ns, &t->fd, &why)) == TUTTI_AGAIN) {
        if (tutti_now_ns() >= t->deadline_ns)
            return tutti_fail(TUTTI_ERR_TIMEOUT,
                              "torchrun's store does not answer at %s:%s (MASTER_ADDR, MASTER_PORT): %s", t->host,
                              t->port, tutti_store_why(why));
        tutti_sleep_ns(RETRY_NS);
    }
    if (status < 0) return status;
    add_type(t, VALIDATE);
    add(t, &(uint32_t){VALIDATION}, sizeof(uint32_t));
    return ping(t);
}

enum tutti_status tutti_share_torch(const char *host, const char *port, const char *key, int32_t rank,
                                    uint64_t deadline_ns, char text[TUTTI_SHARE_MAX + 1])
{
    struct torch t = {.fd = -1, .host = host, .port = port, .start_ns = tutti_now_ns(), .deadline_ns = deadline_ns};
    enum tutti_status status = begin(&t);
    if (status == TUTTI_OK && rank == 0) {
        add_type(&t, SET);
        add_text(&t, "/", key);
        add_text(&t, "", text);
        status = ping(&t);
    } else if (status == TUTTI_OK) {
        status = text_get(&t, key, text);
    }
    if (t.fd >= 0) close(t.fd);
    return status;
}
