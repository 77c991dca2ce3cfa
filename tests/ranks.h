/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_RANKS_H
#define TUTTI_TESTS_RANKS_H

/* Runs one function on n ranks, as threads of this process or as forked processes, each with its own context and
 * communicator, under a deadline. With the variable RANKS_A_HOST every so many ranks are a host of their own, and
 * others are reached by TCP, or by the network that RANKS_NETWORK names. A rank reports through RANK_CHECK (cmocka's
 * assertions belong to the main thread); the failures of all ranks are printed and counted. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

#define RANK_TEXT 768

struct rank {
    int32_t index, n;
    struct tutti_context *context;
    struct tutti_comm *comm; /* NULL with ranks_config.no_comm; a test may replace it (the last one is destroyed) */
    void *arg;
    const char *name;        /* the meeting's, unique to this run */
    uint64_t random;         /* state of tutti-independent randomness: rank_random */
    char failure[RANK_TEXT]; /* "" if all is well */
    struct rank_block *blocks;
};
typedef void (*rank_function)(struct rank *rank);

struct ranks_config {
    uint32_t n;
    bool forked;  /* processes (transport shm) instead of threads (transport self); with ThreadSanitizer threads, too */
    bool no_comm; /* the function makes its own communicators */
    bool no_context;                    /* ... and contexts */
    const struct tutti_option *options; /* beside the transport */
    size_t n_options;
    uint64_t timeout_ns; /* the communicator's; 0: 20 s */
    uint32_t deadline_s; /* for the whole run; 0: 60 */
    void *arg;           /* shared by threads, copied by fork */
    uint64_t may_die;    /* forked: bit r: rank r (below 64) may end by a signal */
};

/* Number of ranks that failed, died or did not return: 0 if all is well. */
unsigned ranks_run(const struct ranks_config *config, rank_function function);
/* False with ThreadSanitizer, which knows no threads after fork: then ranks can not be killed. */
bool ranks_can_fork(void);
/* Whether they are on several hosts, as RANKS_A_HOST says: then the engine carries out all calls. */
bool ranks_on_hosts(void);
/* The common cases: n threads, n processes. */
unsigned ranks_threads(uint32_t n, rank_function function, void *arg);
unsigned ranks_forked(uint32_t n, rank_function function, void *arg);

void rank_fail(struct rank *rank, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
uint64_t rank_random(struct rank *rank);
/* Memory that goes when the function has returned, also after a check that failed. Ends the process when there is none.
 */
void *rank_alloc(struct rank *rank, size_t bytes) __attribute__((returns_nonnull));

/* Return from the calling (void) function when the claim is false. */
#define RANK_CHECK(rank, claim)                                                                                        \
    do {                                                                                                               \
        if (!(claim)) {                                                                                                \
            rank_fail((rank), __FILE__, __LINE__, "%s", #claim);                                                       \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)
#define RANK_CHECK_OK(rank, call) RANK_CHECK_STATUS(rank, TUTTI_OK, call)
#define RANK_CHECK_STATUS(rank, expected, call)                                                                        \
    do {                                                                                                               \
        enum tutti_status status_ = (call);                                                                            \
        if (status_ != (expected)) {                                                                                   \
            rank_fail((rank), __FILE__, __LINE__, "%s: %s instead of %s: %s", #call, tutti_status_name(status_),       \
                      tutti_status_name(expected), status_ < 0 ? tutti_last_error()->text : "");                       \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)
/* The call fails so, and the sentence contains `part`. */
#define RANK_CHECK_ERROR(rank, expected, part, call)                                                                   \
    do {                                                                                                               \
        enum tutti_status status_ = (call);                                                                            \
        const char *text_ = tutti_last_error()->text;                                                                  \
        if (status_ != (expected) || !strstr(text_, (part))) {                                                         \
            rank_fail((rank), __FILE__, __LINE__, "%s: %s \"%s\" instead of %s \"...%s...\"", #call,                   \
                      tutti_status_name(status_), text_, tutti_status_name(expected), (part));                         \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#endif
