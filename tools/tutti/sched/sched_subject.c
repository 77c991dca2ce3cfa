/* SPDX-License-Identifier: BSD-3-Clause */
/* What the verbs of `tutti sched` are told to look at: an algorithm by name or from a file, a kind, a radix. */

#include "sched.h"

#include "algo/algo.h"
#include "base/config.h"
#include "load/load.h"
#include "verify/verify.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool file_open(const struct tutti_args *spec, const char *name, struct sched_subject *out)
{
    *out = (struct sched_subject){.is_file = true, .code = TUTTI_EXIT_WRONG};
    if (tutti_load_find(NULL, name, &out->radix, &out->algorithm) >= 0) {
        out->ranks = tutti_load_ranks(out->algorithm);
        return true;
    }
    fprintf(stderr, "%s: %s\n", spec->command, tutti_last_error()->text);
    return false;
}

bool sched_subject_open(const struct tutti_args *spec, const char *name, struct sched_subject *out)
{
    enum { MAX_NAMES = 64 };
    const char *names[MAX_NAMES];
    size_t n = 0;
    if (tutti_load_is_path(name)) return file_open(spec, name, out);
    *out = (struct sched_subject){.code = TUTTI_EXIT_USAGE};
    out->algorithm = tutti_algorithm_find(name, &out->radix);
    if (out->algorithm) return true;
    for (; n < tutti_n_algorithms && n < MAX_NAMES; n++) names[n] = tutti_algorithms[n]->name;
    const char *near = tutti_nearest(name, names, n);
    if (near) tutti_args_fail(spec, "there is no algorithm '%s'; did you mean '%s'?", name, near);
    if (!near) tutti_args_fail(spec, "there is no algorithm '%s'; 'tutti sched list' has their names.", name);
    return false;
}

bool sched_radix_choose(const struct tutti_args *spec, const struct sched_subject *subject, uint32_t option,
                        uint32_t *radix)
{
    const struct tutti_algorithm *algorithm = subject->algorithm;
    bool any = false;
    *radix = option ? option : subject->radix;
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++)
        if (algorithm->kinds[kind])
            any = any || algorithm->kinds[kind]->default_radix || (algorithm->kinds[kind]->needs & TUTTI_TAKES_RADIX);
    if (*radix && !any) {
        tutti_args_fail(spec, "%s has no radix: leave %s%u out ('tutti sched list' has those with one).",
                        algorithm->name, option ? "--radix " : ":", *radix);
        return false;
    }
    if (option && subject->radix && option != subject->radix) {
        tutti_args_fail(spec, "two radices: %s:%u and --radix %u.", algorithm->name, subject->radix, option);
        return false;
    }
    return true;
}

bool sched_kind_parse(const struct tutti_args *spec, const char *name, enum tutti_kind *out)
{
    const char *names[TUTTI_N_KINDS];
    if (tutti_kind_parse(name, out)) return true;
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) names[kind] = tutti_kind_name((enum tutti_kind)kind);
    const char *near = tutti_nearest(name, names, TUTTI_N_KINDS);
    tutti_args_fail(spec, "there is no kind '%s'; %s%s.", name, near ? "did you mean --kind " : "for example ",
                    near ? near : "--kind all_reduce");
    return false;
}

uint32_t sched_levels_size(const char *text)
{
    struct tutti_shape shape = {.size = 0};
    return tutti_shape_parse_levels(&shape, text) < 0 ? 0 : shape.size;
}

/* The schedules of all slots, for drawings; and how chunks are named in them. */

enum tutti_status sched_bundle_seal(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                    const struct tutti_shape *shape, bool expand, struct sched_bundle *out)
{
    out->n = shape->size;
    out->slots = tutti_alloc_array(shape->size, sizeof(struct tutti_schedule *));
    if (!out->slots) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u ranks", shape->size);
    const enum tutti_status status = tutti_seal_all(algorithm, kind, shape, expand, out->slots);
    if (status < 0) sched_bundle_free(out);
    return status;
}

void sched_bundle_free(struct sched_bundle *bundle)
{
    for (uint32_t s = 0; bundle->slots && s < bundle->n; s++) tutti_schedule_destroy(bundle->slots[s]);
    tutti_free(bundle->slots);
    bundle->slots = NULL;
}

const struct tutti_step *sched_bundle_message(const struct sched_bundle *bundle, uint32_t slot, bool sends,
                                              uint32_t peer, uint32_t fifo)
{
    const struct tutti_schedule *schedule = bundle->slots[slot];
    for (uint32_t i = 0; i < schedule->n_steps; i++) {
        const struct tutti_step *step = &schedule->steps[i];
        if ((sends ? tutti_step_sends(step) : tutti_step_receives(step)) && step->peer == peer && step->fifo == fifo)
            return step;
    }
    return NULL;
}

void sched_chunks_label(uint8_t buffer, uint32_t chunk, uint32_t n, char *out, size_t capacity)
{
    static const char *const prefix[] = {[TUTTI_DATA] = "", [TUTTI_SCRATCH] = "s", [TUTTI_IN] = "i"};
    if (n == 1) snprintf(out, capacity, "%s%u", prefix[buffer], chunk);
    if (n != 1) snprintf(out, capacity, "%s%u-%u", prefix[buffer], chunk, chunk + n - 1);
}

/* A plug-in acts in a process of its own, since it may crash, leave, or never come back. Its time is counted in
 * processor seconds without progress, which a crowded machine does not use up; a wall clock catches who sleeps. */

enum { CROWD = 6 }; /* wall seconds for each processor second */

struct outcome { /* shared with the process */
    int code;
    bool done;
};

static uint64_t cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* Waits for the end of the process; false: it was ended, since it made no progress. */
static bool await(pid_t pid, const volatile uint32_t *progress, uint64_t limit_ns, int *wait_status)
{
    const uint64_t first_ns = 100000, last_ns = 20000000;
    uint64_t began_ns = tutti_now_ns(), began_cpu_ns = 0, pause_ns = first_ns;
    uint32_t seen = progress ? *progress : 0;
    for (;;) {
        const pid_t ended = waitpid(pid, wait_status, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR)) return true;
        if (progress && *progress != seen) {
            seen = *progress;
            began_ns = tutti_now_ns();
            began_cpu_ns = cpu_ns(pid);
        }
        if (cpu_ns(pid) - began_cpu_ns > limit_ns || tutti_now_ns() - began_ns > CROWD * limit_ns) {
            kill(pid, SIGKILL);
            waitpid(pid, wait_status, 0);
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
        if (pause_ns < last_ns) pause_ns *= 2;
    }
}

enum tutti_status sched_apart(const struct sched_apart *task, int *code, char *how, size_t capacity)
{
    struct outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const uint64_t limit_s = 10 + (uint64_t)task->size * task->size / 50000;
    int wait_status = 0;
    if (shared == MAP_FAILED) return tutti_fail_errno(TUTTI_ERR_MEMORY, "no memory to share with a plug-in");
    fflush(NULL);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        shared->code = task->act(task->argument);
        fflush(NULL);
        shared->done = true;
        _exit(0);
    }
    if (pid < 0) {
        munmap(shared, sizeof *shared);
        return tutti_fail_errno(TUTTI_ERR_MEMORY, "cannot start a process for the plug-in");
    }
    how[0] = 0;
    if (!await(pid, task->progress, limit_s * 1000000000u, &wait_status)) {
        snprintf(how, capacity, "does not come to an end: given up after %llu s", (unsigned long long)limit_s);
    } else if (!shared->done && WIFSIGNALED(wait_status)) {
        snprintf(how, capacity, "crashes: signal %d (%s)", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    } else if (!shared->done) {
        snprintf(how, capacity, "ends the process with status %d", WEXITSTATUS(wait_status));
    }
    *code = shared->code;
    munmap(shared, sizeof *shared);
    return TUTTI_OK;
}
