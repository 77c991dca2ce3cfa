/* SPDX-License-Identifier: BSD-3-Clause */
/* A process of this command: its output is read until it ends or its time is up; then it goes with all that it
 * started. */

#include "base/base.h"
#include "prove.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 100
#define KILL_NS (5 * TUTTI_NS_PER_S)

static void become(const char *const *argv, const char *const *env, int to)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the command may be ended from outside */
    if (dup2(to, STDOUT_FILENO) < 0 || dup2(to, STDERR_FILENO) < 0) _exit(127);
    for (size_t i = 0; env && env[i]; i++) putenv((char *)(uintptr_t)env[i]);
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Until the other end is closed, or the time is up; what is too much is dropped. */
static bool read_all(int from, char *output, uint64_t until_ns)
{
    size_t n = 0;
    char rest[4096];
    for (;;) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        if (tutti_now_ns() >= until_ns) return false;
        if (poll(&ready, 1, LOOK_MS) <= 0) continue;
        const bool room = n + 1 < PROVE_OUTPUT;
        const ssize_t got = read(from, room ? output + n : rest, room ? PROVE_OUTPUT - 1 - n : sizeof rest);
        if (got <= 0 && errno == EINTR) continue;
        if (got <= 0) return true;
        if (room) n += (size_t)got;
    }
}

/* What does not end even when it is killed is left: a driver may hold it. */
static int end_of(pid_t pid, uint64_t until_ns, bool *is_late)
{
    int status = 0;
    for (bool killed = false;;) {
        const pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
        if (ended < 0 && errno != EINTR) return -1;
        if (tutti_now_ns() < until_ns) {
            tutti_sleep_ns(LOOK_MS * TUTTI_NS_PER_MS / 10);
            continue;
        }
        if (killed) return -1 - SIGKILL;
        kill(-pid, SIGKILL);
        *is_late = killed = true, until_ns = tutti_deadline_ns(KILL_NS);
    }
}

bool prove_child_run(const char *const *argv, const char *const *env, uint64_t timeout_ns, struct prove_child *out)
{
    int ends[2];
    out->output = calloc(1, PROVE_OUTPUT);
    if (!out->output || pipe(ends) < 0) {
        free(out->output);
        tutti_fail_errno(TUTTI_ERR_SYSTEM, "no pipe for a child");
        return false;
    }
    const pid_t pid = fork();
    if (pid == 0) become(argv, env, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        free(out->output);
        tutti_fail_errno(TUTTI_ERR_SYSTEM, "fork");
        return false;
    }
    setpgid(pid, pid); /* as the child does: whoever comes first */
    const uint64_t until_ns = tutti_deadline_ns(timeout_ns);
    out->is_late = !read_all(ends[0], out->output, until_ns);
    out->status = end_of(pid, until_ns, &out->is_late);
    close(ends[0]);
    return true;
}

static bool says_something(const char *line)
{
    return line[0] != '#' && strncmp(line, "tutti run: ", 11) != 0;
}

char *prove_last_line(char *output)
{
    for (;;) {
        size_t n = strlen(output);
        while (n > 0 && output[n - 1] == '\n') output[--n] = '\0';
        char *at = strrchr(output, '\n');
        if (!at) return says_something(output) ? output : output + n;
        if (says_something(at + 1)) return at + 1;
        *at = '\0';
    }
}

/* What points stand on: a device, a stream, memory on both sides; and how they say what is wrong. */

#define WAIT_NS (10 * TUTTI_NS_PER_S)

enum tutti_status prove_wrong(const char *what)
{
    return tutti_fail(TUTTI_ERR_INTERNAL, "%s", what);
}

enum tutti_status prove_is_wrong(const char *format, ...)
{
    const struct tutti_error why = *tutti_last_error();
    char where[100];
    va_list args;
    va_start(args, format);
    vsnprintf(where, sizeof where, format, args);
    va_end(args);
    return tutti_fail(why.status == TUTTI_ERR_UNSUPPORTED ? TUTTI_ERR_INTERNAL : why.status, "%s: %.240s", where,
                      why.text);
}

void prove_fill(unsigned char *at, uint64_t seed)
{
    for (size_t i = 0; i < PROVE_BYTES; i++) at[i] = (unsigned char)(tutti_mix64(seed + i / 8) >> i % 8 * 8);
}

void prove_bed_close(struct prove_bed *bed)
{
    if (!bed->device) return;
    if (bed->at) bed->ops->free(bed->device, bed->at);
    if (bed->host) bed->ops->free_host(bed->device, bed->host);
    if (bed->stream) bed->ops->stream_destroy(bed->device, bed->stream);
    bed->ops->close(bed->device);
}

enum tutti_status prove_bed_open(const struct tutti_device_ops *kind, int32_t ordinal, struct prove_bed *bed)
{
    void *memory = NULL;
    *bed = (struct prove_bed){.ops = kind};
    TUTTI_TRY(kind->open(ordinal, &bed->device));
    enum tutti_status status = kind->stream_create(bed->device, &bed->stream);
    if (status >= 0)
        status = kind->alloc_host(bed->device, 2 * PROVE_BYTES, &memory), bed->host = memory, memory = NULL;
    if (status >= 0) status = kind->alloc(bed->device, 2 * PROVE_BYTES, &memory), bed->at = memory;
    if (status < 0) prove_bed_close(bed);
    return status;
}

enum tutti_status prove_on_bed(const struct tutti_device_ops *kind,
                               enum tutti_status (*point)(const struct prove_bed *bed))
{
    struct prove_bed bed;
    TUTTI_TRY(prove_bed_open(kind, 0, &bed));
    const enum tutti_status status = point(&bed);
    prove_bed_close(&bed);
    return status;
}

enum tutti_status prove_move(const struct prove_bed *bed, bool by_kernel, void *dst, const void *src, void *stream)
{
    const struct tutti_fold fold = {.dtype = TUTTI_UINT32,
                                    .op = TUTTI_BOR,
                                    .dst = dst,
                                    .left = src,
                                    .right = src,
                                    .n = PROVE_BYTES / sizeof(uint32_t)};
    const enum tutti_status folded =
        by_kernel ? bed->ops->fold(bed->device, &fold, stream) : TUTTI_ERR_UNSUPPORTED; /* x | x */
    if (folded != TUTTI_ERR_UNSUPPORTED) return folded;
    return bed->ops->copy(bed->device, dst, src, PROVE_BYTES, stream);
}

enum tutti_status prove_until_over(const struct prove_bed *bed, void *event)
{
    const uint64_t until_ns = tutti_deadline_ns(WAIT_NS);
    enum tutti_status status;
    while ((status = bed->ops->event_query(bed->device, event)) == TUTTI_PENDING)
        if (tutti_now_ns() > until_ns) return prove_wrong("an event does not come to its end");
    return status;
}
