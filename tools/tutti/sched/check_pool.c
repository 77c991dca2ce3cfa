/* SPDX-License-Identifier: BSD-3-Clause */
/* A pool of processes for proofs. A task is one size of one pair, pairs in their order and sizes upwards; each process
 * takes the next task by a counter in shared memory, and leaves its answer there. The parent reports pairs as they are
 * done, in their order. */

#include "check_pool.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { MOST_PROCESSES = 64 };

/* What a pair has come to; processes add to it. */
struct tally {
    _Atomic uint64_t n_shapes, n_sampled, n_refused, n_schedules, n_steps, n_messages, ns;
    _Atomic uint32_t n_done;       /* sizes */
    _Atomic uint32_t refused_size; /* the smallest so far; UINT32_MAX: none */
    _Atomic uint32_t lock;         /* for the two below */
    struct tutti_verdict first;
    struct tutti_shape refused;
};
struct shared {
    _Atomic uint64_t next;
    _Atomic uint32_t failed; /* a proof could not be made: why stands in error */
    struct tutti_error error;
    struct tally tallies[];
};
struct run {
    const struct check_pool *pool;
    struct shared *shared;
    size_t bytes;
    uint64_t n_sizes, n_tasks, began_ns;
    pid_t processes[MOST_PROCESSES];
    uint32_t n_alive;
};

/* Keeps the refusal of the smallest size. */
static void tally_refuse(struct tally *tally, const struct tutti_sweep *sweep)
{
    uint32_t free_lock = 0;
    while (!atomic_compare_exchange_weak(&tally->lock, &free_lock, 1)) free_lock = 0;
    if (sweep->refused.size < atomic_load(&tally->refused_size)) {
        tally->first = sweep->first, tally->refused = sweep->refused;
        atomic_store(&tally->refused_size, sweep->refused.size);
    }
    atomic_store(&tally->lock, 0);
}

/* Time of the processor, which does not grow with the load of the machine. */
static uint64_t cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static enum tutti_status task_do(const struct run *run, uint64_t task)
{
    const struct check_pair *pair = &run->pool->pairs[task / run->n_sizes];
    struct tally *tally = &run->shared->tallies[task / run->n_sizes];
    const uint32_t size = run->pool->first + (uint32_t)(task % run->n_sizes);
    const uint64_t began_ns = cpu_ns();
    struct tutti_sweep sweep;
    if (size < atomic_load(&tally->refused_size)) {
        TUTTI_TRY(tutti_verify_sweep(pair->algorithm, pair->kind, size, size, &run->pool->depth, &sweep));
        atomic_fetch_add(&tally->n_shapes, sweep.n_shapes);
        atomic_fetch_add(&tally->n_sampled, sweep.n_sampled);
        atomic_fetch_add(&tally->n_refused, sweep.n_refused);
        atomic_fetch_add(&tally->n_schedules, sweep.n_schedules);
        atomic_fetch_add(&tally->n_steps, sweep.n_steps);
        atomic_fetch_add(&tally->n_messages, sweep.n_messages);
        atomic_fetch_add(&tally->ns, cpu_ns() - began_ns);
        if (!sweep.first.ok) tally_refuse(tally, &sweep);
    }
    atomic_fetch_add(&tally->n_done, 1);
    return TUTTI_OK;
}

static void work(const struct run *run)
{
    struct shared *shared = run->shared;
#ifdef __GLIBC__
    /* Memory is wanted again at once for the next shape. */
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
#endif
    for (;;) {
        const uint64_t task = atomic_fetch_add(&shared->next, 1);
        if (task >= run->n_tasks || atomic_load(&shared->failed)) return;
        if (task_do(run, task) >= 0) continue;
        if (atomic_exchange(&shared->failed, 1) == 0) shared->error = *tutti_last_error();
        return;
    }
}

static enum tutti_status start(struct run *run)
{
    const pid_t parent = getpid();
    fflush(NULL);
    for (uint32_t i = 0; i < run->pool->n_processes && i < MOST_PROCESSES; i++) {
        const pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == parent) work(run);
            _exit(0);
        }
        if (pid < 0 && i == 0) return tutti_fail_errno(TUTTI_ERR_MEMORY, "cannot start a process for the proofs");
        if (pid < 0) break;
        run->processes[run->n_alive++] = pid;
    }
    return TUTTI_OK;
}

/* Takes leave of processes that ended. A proof may take more memory than there is: then the system kills it. */
static void reap(struct run *run)
{
    for (uint32_t i = 0; i < run->n_alive; i++) {
        int how;
        const pid_t pid = waitpid(run->processes[i], &how, WNOHANG);
        if (pid == 0 || (pid < 0 && errno == EINTR)) continue;
        if (pid > 0 && WIFSIGNALED(how) && atomic_exchange(&run->shared->failed, 1) == 0) {
            tutti_fail(TUTTI_ERR_MEMORY,
                       "a process of the check was ended by signal %d (%s); fewer --jobs take less "
                       "memory",
                       WTERMSIG(how), strsignal(WTERMSIG(how)));
            run->shared->error = *tutti_last_error();
        }
        run->processes[i--] = run->processes[--run->n_alive];
    }
}

static void progress(const struct run *run)
{
    const struct check_pool *pool = run->pool;
    uint64_t next = atomic_load(&run->shared->next), n_steps = 0;
    if (!pool->show_progress || next == 0) return;
    if (next > run->n_tasks) next = run->n_tasks;
    const struct check_pair *pair = &pool->pairs[(next - 1) / run->n_sizes];
    for (size_t i = 0; i < pool->n_pairs; i++) n_steps += atomic_load(&run->shared->tallies[i].n_steps);
    fprintf(stderr, "\r%5.1f %%  %s %s, %u ranks; %.3g steps, %.0f s \033[K",
            100.0 * (double)next / (double)run->n_tasks, pair->algorithm->name, tutti_kind_name(pair->kind),
            pool->first + (uint32_t)((next - 1) % run->n_sizes), (double)n_steps,
            (double)(tutti_now_ns() - run->began_ns) / 1e9);
}

/* Reports the pairs from *n_reported on, as far as they are done. */
static void report(const struct run *run, size_t *n_reported)
{
    for (; *n_reported < run->pool->n_pairs; ++*n_reported) {
        struct tally *tally = &run->shared->tallies[*n_reported];
        struct check_pair *pair = &run->pool->pairs[*n_reported];
        if (atomic_load(&tally->n_done) < run->n_sizes) return;
        pair->sweep = (struct tutti_sweep){.n_shapes = (uint32_t)tally->n_shapes,
                                           .n_sampled = (uint32_t)tally->n_sampled,
                                           .n_refused = (uint32_t)tally->n_refused,
                                           .n_schedules = tally->n_schedules,
                                           .n_steps = tally->n_steps,
                                           .n_messages = tally->n_messages,
                                           .first = tally->first,
                                           .refused = tally->refused};
        pair->seconds = (double)tally->ns / 1e9;
        if (run->pool->show_progress) fprintf(stderr, "\r\033[K");
        run->pool->report(pair);
    }
}

enum tutti_status check_pool_run(struct check_pool *pool)
{
    struct run run = {.pool = pool, .n_sizes = pool->last - pool->first + 1, .began_ns = tutti_now_ns()};
    size_t n_reported = 0;
    run.n_tasks = run.n_sizes * pool->n_pairs;
    run.bytes = sizeof *run.shared + pool->n_pairs * sizeof run.shared->tallies[0];
    run.shared = mmap(NULL, run.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.shared == MAP_FAILED) return tutti_fail_errno(TUTTI_ERR_MEMORY, "no memory to share with the proofs");
    for (size_t i = 0; i < pool->n_pairs; i++) {
        atomic_store(&run.shared->tallies[i].refused_size, UINT32_MAX);
        run.shared->tallies[i].first.ok = true;
    }
    enum tutti_status status = start(&run);
    while (status >= 0 && run.n_alive > 0) {
        reap(&run);
        report(&run, &n_reported);
        progress(&run);
        if (run.n_alive > 0) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    if (pool->show_progress) fprintf(stderr, "\r\033[K");
    report(&run, &n_reported);
    if (status >= 0 && atomic_load(&run.shared->failed)) status = tutti_fail_record(&run.shared->error);
    munmap(run.shared, run.bytes);
    return status;
}
