/* SPDX-License-Identifier: BSD-3-Clause */
/* What guard and supervisor share: sentences, and the signals that are passed on. */

#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const int run_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};
const size_t run_n_signals = TUTTI_ARRAY_LEN(run_signals);

static char said_by[300] = "tutti run: ";

void run_say_host(const char *host)
{
    snprintf(said_by, sizeof said_by, "tutti run on %.250s: ", host);
}

void run_say(const char *format, ...)
{
    char text[1536];
    const size_t prefix = strlen(said_by);
    memcpy(text, said_by, prefix);
    va_list ap;
    va_start(ap, format);
    const int n = vsnprintf(text + prefix, sizeof text - prefix - 1, format, ap);
    va_end(ap);
    size_t length = prefix + (n < 0 ? 0 : (size_t)n);
    if (length > sizeof text - 2) length = sizeof text - 2;
    text[length] = '\n';
    if (write(STDERR_FILENO, text, length + 1) < 0) return; /* nobody to tell */
}
