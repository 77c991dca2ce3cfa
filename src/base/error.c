/* SPDX-License-Identifier: BSD-3-Clause */

/* The error record of each thread. Whoever decides an error fills it here, once; everybody above passes the status on.
 * The record is plain thread-local data: recording an error never allocates and so can not fail itself. */

#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct tutti_error last_error = {.peer = -1, .step = TUTTI_NO_STEP, .collective = ""};

const struct tutti_error *tutti_last_error(void)
{
    return &last_error;
}

static void error_fill(struct tutti_error *error, enum tutti_status status, int os_errno, const char *format,
                       va_list args) TUTTI_PRINTF(4, 0);

/* Formats into a private buffer first: the arguments may point into the record that is being replaced. */
static void error_fill(struct tutti_error *error, enum tutti_status status, int os_errno, const char *format,
                       va_list args)
{
    char text[TUTTI_ERROR_TEXT];
    int n = vsnprintf(text, sizeof text, format, args);
    size_t used = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    if (used == 0) used = (size_t)snprintf(text, sizeof text, "%s", tutti_status_text(status));
    if (os_errno != 0) {
        char reason[96];
        /* GNU strerror_r: returns the text, thread-safe. */
        snprintf(text + used, sizeof text - used, ": %s", strerror_r(os_errno, reason, sizeof reason));
    }
    memset(error, 0, sizeof *error);
    error->status = status;
    error->peer = -1;
    error->os_errno = os_errno;
    error->step = TUTTI_NO_STEP;
    error->collective = "";
    memcpy(error->text, text, sizeof text);
    error->text[sizeof error->text - 1] = '\0';
    /* What a stranger's file holds goes to terminals by sentences that quote it. */
    for (char *c = error->text; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\n' && *c != '\t') || *c == 0x7f) *c = '?';
}

/* Info: the caller gets the record and decides how loud it is. */
static void error_log(const struct tutti_error *error)
{
    tutti_log(TUTTI_LOG_INFO, "%s: %s", tutti_status_name(error->status), error->text);
}

enum tutti_status tutti_fail(enum tutti_status status, const char *format, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, format);
    error_fill(&last_error, status, 0, format, args);
    va_end(args);
    error_log(&last_error);
    errno = saved;
    return status;
}

enum tutti_status tutti_fail_at(const char *file, uint32_t line, const char *format, ...)
{
    char text[TUTTI_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: %s", file, line, text);
}

enum tutti_status tutti_fail_errno(enum tutti_status status, const char *format, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, format);
    error_fill(&last_error, status, saved, format, args);
    va_end(args);
    error_log(&last_error);
    errno = saved;
    return status;
}

enum tutti_status tutti_fail_record(const struct tutti_error *error)
{
    if (error != &last_error) last_error = *error;
    return error->status;
}

void tutti_error_set(struct tutti_error *error, enum tutti_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_fill(error, status, 0, format, args);
    va_end(args);
}
