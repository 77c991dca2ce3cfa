/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STATUS_H
#define TUTTI_STATUS_H

/* What a call returns. Zero is success; positive values are not errors; negative values are errors, grouped by the
 * largest thing that is lost: this call, that peer, this communicator, this context. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#define TUTTI_MUST_USE __attribute__((warn_unused_result))
#else
#define TUTTI_API
#define TUTTI_MUST_USE
#endif

enum tutti_status {
    TUTTI_OK = 0,
    TUTTI_AGAIN = 1,   /* no room or nothing there now: call again */
    TUTTI_PENDING = 2, /* started, not complete */

    /* this call: nothing was started, or only this call is affected */
    TUTTI_ERR_ARGUMENT = -1,    /* an argument is wrong; the text names it */
    TUTTI_ERR_UNSUPPORTED = -2, /* not defined (band on floats), or not built */
    TUTTI_ERR_MEMORY = -3,      /* out of memory */
    TUTTI_ERR_SYSTEM = -4,      /* a system call failed; the record holds errno */
    TUTTI_ERR_CANCELLED = -5,   /* the call was withdrawn before it completed */
    TUTTI_ERR_TRUNCATED = -6,   /* a received message is longer than its buffer; the buffer holds the front of it */

    /* that peer: it can not be reached any more */
    TUTTI_ERR_PEER_DEAD = -20, /* its process died */
    TUTTI_ERR_PEER_LEFT = -21, /* it destroyed its communicator while others still wait */

    /* this communicator: abort it, destroy it, make a new one */
    TUTTI_ERR_TIMEOUT = -40,  /* the deadline passed */
    TUTTI_ERR_MISMATCH = -41, /* ranks called different collectives, counts, types, operations, roots or sizes */
    TUTTI_ERR_ABORTED = -42,  /* a user's abort, here or on another rank */
    TUTTI_ERR_PROTOCOL = -43, /* a message that can not be: version, layout, bounds */

    /* this context: give it up */
    TUTTI_ERR_CONFIG = -60,    /* ranks have different configurations, versions or facts */
    TUTTI_ERR_AUTH = -61,      /* a peer does not prove itself (secret, certificate), or has another uid */
    TUTTI_ERR_BOOTSTRAP = -62, /* ranks did not find one another */
    TUTTI_ERR_INTERNAL = -63,  /* a defect in tutti */
};

/* The largest thing lost with a status. */
enum tutti_scope { TUTTI_SCOPE_NONE, TUTTI_SCOPE_CALL, TUTTI_SCOPE_PEER, TUTTI_SCOPE_COMM, TUTTI_SCOPE_CONTEXT };

#define TUTTI_ERROR_TEXT 440

/* The error record: what happened, where, as a sentence. Plain data, copied freely. */
struct tutti_error {
    enum tutti_status status;
    int32_t peer;           /* rank in the communicator that caused it, -1 if none */
    int32_t os_errno;       /* 0 if none */
    uint32_t step;          /* step of the schedule, UINT32_MAX if none */
    uint64_t seq;           /* sequence number of the collective in its communicator, 0 if none (they count from 1) */
    const char *collective; /* static string, "" if none */
    char text[TUTTI_ERROR_TEXT]; /* one sentence, never empty when status < 0 */
};

/* "TUTTI_ERR_TIMEOUT", static. Any thread. */
TUTTI_API const char *tutti_status_name(enum tutti_status status);
/* A short description, static. Any thread. */
TUTTI_API const char *tutti_status_text(enum tutti_status status);
TUTTI_API enum tutti_scope tutti_status_scope(enum tutti_status status);
/* The record of the last call that failed on this thread; status TUTTI_OK if none did. Valid until the thread's next
 * tutti call. Never NULL. */
TUTTI_API const struct tutti_error *tutti_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
