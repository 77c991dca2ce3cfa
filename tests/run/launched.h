/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_LAUNCHED_H
#define TUTTI_TESTS_LAUNCHED_H

/* Starts `tutti run` for a test, reads what it prints, and finds whatever it may have left behind: all its descendants
 * carry a mark in their environment. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct launched {
    pid_t pid;
    int in, out, err; /* our ends of its pipes; in may be closed with launched_close_in */
    char mark[64];
    char *out_text, *err_text; /* what was read so far */
    size_t out_bytes, err_bytes;
};

extern const char *launched_command; /* path of tutti */

/* Starts `tutti run ARGS...`; the list ends with NULL. */
void launched_start(struct launched *l, const char *const *args);
void launched_close_in(struct launched *l);
/* Reads until `text` was printed to stdout; fails the test after 40 s. */
void launched_expect(struct launched *l, const char *text);
/* Reads to the end and waits; returns the exit status, or 128 + signal. Fails the test after 60 s, or when a process is
 * left behind. Frees nothing: the texts stay. */
int launched_wait(struct launched *l);
void launched_free(struct launched *l);
/* Both at once: the whole run. */
int launched_run(struct launched *l, const char *const *args);
/* Number of processes that carry the mark; with except, without that one. */
size_t launched_count(const struct launched *l, pid_t except);
/* Waits until none is left; fails the test after 30 s. */
void launched_expect_none(const struct launched *l);
/* The supervisor: the only child of the process that was started. */
pid_t launched_supervisor(const struct launched *l);

#define LAUNCH(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
