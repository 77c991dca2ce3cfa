/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_SERVED_H
#define TUTTI_TESTS_SERVED_H

/* A store's server in a process of its own, for tests that fork: a child of a process with threads may find locks taken
 * for ever, those of AddressSanitizer's allocator for one. */

#include "test.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <tutti/store.h>
#include <unistd.h>

struct served {
    char address[64];
    pid_t process;
    int until_closed; /* it goes on until this is */
};

static inline void served_run(const char *secret, int port, int end)
{
    struct tutti_store_server *server;
    char none;
    if (tutti_store_server_open("127.0.0.1", 0, secret, &server) < 0) _exit(1);
    const uint32_t told = tutti_store_server_port(server);
    if (write(port, &told, sizeof told) != (ssize_t)sizeof told || read(end, &none, 1) != 0) _exit(2);
    tutti_store_server_close(server);
    _exit(0);
}

static inline void served_open(struct served *s, const char *secret)
{
    int port[2], end[2];
    uint32_t told = 0;
    assert_int_equal(pipe(port), 0);
    assert_int_equal(pipe(end), 0);
    s->process = fork();
    assert_true(s->process >= 0);
    if (s->process == 0) {
        close(end[1]);
        served_run(secret, port[1], end[0]);
    }
    close(port[1]);
    close(end[0]);
    s->until_closed = end[1];
    assert_int_equal(read(port[0], &told, sizeof told), sizeof told);
    close(port[0]);
    snprintf(s->address, sizeof s->address, "tcp://127.0.0.1:%u", told);
}

/* When all children have ended, which have the end of the pipe, too. */
static inline void served_close(const struct served *s)
{
    int status;
    close(s->until_closed);
    assert_int_equal(waitpid(s->process, &status, 0), s->process);
    assert_int_equal(status, 0);
}

#endif
