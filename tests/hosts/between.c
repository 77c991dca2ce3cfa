/* SPDX-License-Identifier: BSD-3-Clause */
/* What somebody between two hosts does to the bytes that pass: put in front of send() of one rank by LD_PRELOAD, behind
 * its encryption and before the network. It acts once, as the variables say:
 *
 *     BETWEEN=flip     changes a bit            BETWEEN=replay  sends what was sent some time before instead
 *     BETWEEN=drop     leaves bytes out         BETWEEN=swap    lets the bytes after these go first
 *     BETWEEN=cut      ends the connection, as if the sender had closed it in order
 *     BETWEEN_LEAST, BETWEEN_MOST   bytes of the calls that it looks at
 *     BETWEEN_AT                    acts on this one of them, counted from 1
 *
 * It writes "between acts" to the rank's error output when it does. */

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

enum { MOST = 1 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ssize_t (*next)(int fd, const void *bytes, size_t n, int flags);
static unsigned long n_seen;
static unsigned char kept[MOST]; /* the first call's bytes, or those that are held back */
static size_t n_kept;
static int held = -1; /* the socket that bytes are held back from */

static unsigned long number(const char *name, unsigned long other)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : other;
}

/* All of them, though the socket may be full for a while. */
static void put(int fd, const unsigned char *bytes, size_t n)
{
    for (int tries = 0; n > 0 && tries < 100; tries++) {
        const ssize_t sent = next(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        if (sent > 0) bytes += sent, n -= (size_t)sent;
        if (n > 0) poll(&room, 1, 50);
    }
}

static void act(const char *how, int fd, const unsigned char *bytes, size_t n)
{
    unsigned char *copy = malloc(n);
    fprintf(stderr, "between acts\n");
    if (strcmp(how, "flip") == 0 && copy) {
        memcpy(copy, bytes, n);
        copy[n / 2] ^= 4;
        put(fd, copy, n);
    } else if (strcmp(how, "replay") == 0) {
        put(fd, kept, n_kept);
    } else if (strcmp(how, "swap") == 0) {
        memcpy(kept, bytes, n);
        n_kept = n, held = fd;
    } else if (strcmp(how, "cut") == 0) {
        shutdown(fd, SHUT_WR);
    }
    free(copy);
}

ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
    const char *how = getenv("BETWEEN");
    pthread_mutex_lock(&lock);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "send");
    ssize_t done = -2;
    if (how && fd == held) {
        put(fd, bytes, n);
        put(fd, kept, n_kept);
        held = -1, done = (ssize_t)n;
    } else if (how && n >= number("BETWEEN_LEAST", 1) && n <= number("BETWEEN_MOST", MOST)) {
        if (n_seen == 0) memcpy(kept, bytes, n_kept = n);
        if (++n_seen == number("BETWEEN_AT", 20)) {
            act(how, fd, bytes, n);
            done = (ssize_t)n;
        }
    }
    pthread_mutex_unlock(&lock);
    return done == -2 ? next(fd, bytes, n, flags) : done;
}
