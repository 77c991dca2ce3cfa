/* SPDX-License-Identifier: BSD-3-Clause */

/* The log: one write a line, to stderr or a file. */

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024
#define THRESHOLD_UNREAD INT_MAX /* every line is let through to tutti_log_write, which reads the environment */

_Atomic int tutti_log_threshold = THRESHOLD_UNREAD;

static _Atomic int log_fd = STDERR_FILENO;
static _Thread_local int32_t thread_rank = -1;
static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
static char file_open[PATH_MAX]; /* the pattern that log_fd was opened from; under file_lock */

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

int tutti_log_level(const char *text)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(level_names); i++)
        if (strcasecmp(text, level_names[i]) == 0) return (int)i;
    return -1;
}

void tutti_log_set_rank(int32_t rank)
{
    thread_rank = rank;
}

/* The thread's rank, else what a launcher says, else "". */
static const char *rank_text(char buffer[16])
{
    static const char *const variables[] = {"TUTTI_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    if (thread_rank >= 0) {
        snprintf(buffer, 16, "%d", (int)thread_rank);
        return buffer;
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(variables); i++) {
        const char *value = getenv(variables[i]);
        if (value && value[0] && strlen(value) < 16) return value;
    }
    return "";
}

/* Replaces %r and %p. False when the result is too long. */
static bool path_expand(const char *pattern, char *out, size_t capacity)
{
    char rank[16], pid[16];
    size_t used = 0;
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    for (const char *p = pattern; *p; p++) {
        char one[2] = {*p, '\0'};
        const char *piece = one;
        if (p[0] == '%' && p[1] == 'r')
            piece = rank_text(rank), p++;
        else if (p[0] == '%' && p[1] == 'p')
            piece = pid, p++;
        size_t n = strlen(piece);
        if (used + n >= capacity) return false;
        memcpy(out + used, piece, n);
        used += n;
    }
    out[used] = '\0';
    return true;
}

/* The old descriptor stays open: another thread may be writing to it. Files change once, if ever. */
enum tutti_status tutti_log_open(const char *pattern)
{
    char path[PATH_MAX];
    enum tutti_status status = TUTTI_OK;
    pthread_mutex_lock(&file_lock);
    if (strcmp(pattern, file_open) != 0) {
        int fd = -1;
        if (strlen(pattern) < sizeof file_open && path_expand(pattern, path, sizeof path))
            fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        else
            errno = ENAMETOOLONG;
        if (fd < 0)
            status = TUTTI_ERR_SYSTEM;
        else {
            atomic_store(&log_fd, fd);
            strcpy(file_open, pattern);
        }
    }
    pthread_mutex_unlock(&file_lock);
    return status;
}

/* A wrong value is not an error here (tutti_config_init says it): the default holds. */
static void threshold_read(void)
{
    const char *level = getenv("TUTTI_LOG"), *file = getenv("TUTTI_LOG_FILE");
    int threshold = level ? tutti_log_level(level) : -1, unread = THRESHOLD_UNREAD;
    if (file && file[0]) tutti_log_open(file);
    atomic_compare_exchange_strong(&tutti_log_threshold, &unread, threshold < 0 ? TUTTI_LOG_WARN : threshold);
}

/* One line, whatever a peer sent: cut to the buffer, without newlines but the last. Returns its length. */
static size_t line_end(char *text, size_t used, size_t capacity)
{
    if (used > capacity - 2) used = capacity - 2;
    for (size_t i = 0; i < used; i++)
        if (text[i] == '\n') text[i] = ' ';
    text[used++] = '\n';
    return used;
}

static void line_write(enum tutti_log_level level, const char *file, int line, const char *format, va_list args)
    TUTTI_PRINTF(4, 0);

static void line_write(enum tutti_log_level level, const char *file, int line, const char *format, va_list args)
{
    char text[LINE_MAX_BYTES], rank[16];
    const char *base = strrchr(file, '/');
    const char *who = rank_text(rank);
    int head = snprintf(text, sizeof text, "tutti[%s%s%d] %s %s:%d ", who, who[0] ? " " : "", (int)getpid(),
                        level_names[level], base ? base + 1 : file, line);
    size_t used = head < 0 ? 0 : (size_t)head;
    int body = used < sizeof text ? vsnprintf(text + used, sizeof text - used, format, args) : 0;
    if (body > 0) used += (size_t)body;
    ssize_t ignored = write(log_fd, text, line_end(text, used, sizeof text));
    (void)ignored; /* nowhere to tell it */
}

void tutti_log_write(enum tutti_log_level level, const char *file, int line, const char *format, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, format);
    if (tutti_log_threshold == THRESHOLD_UNREAD) threshold_read();
    if ((int)level <= tutti_log_threshold) line_write(level, file, line, format, args);
    va_end(args);
    errno = saved;
}

/* ---- what options set ---- */

enum tutti_status tutti_log_configure(const char *level, const char *file)
{
    int threshold = level ? tutti_log_level(level) : -1;

    if (level && threshold < 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "log level \"%s\": write error, warn, info, debug or trace", level);
    if (file && file[0] && tutti_log_open(file) < 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "log file \"%s\" can not be opened", file);
    if (level) tutti_log_threshold = threshold;
    return TUTTI_OK;
}
