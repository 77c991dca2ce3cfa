/* SPDX-License-Identifier: BSD-3-Clause */
/* Many ranks under one test: threads or forked processes, each with a context and a communicator of its own. The main
 * thread waits with a deadline, so that a hang is a failure that names its ranks, not a test that never ends. */
#include "ranks.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)1 << 20)
#define MAX_OPTIONS 16

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREADS_ONLY
#endif
#elif defined(__SANITIZE_THREAD__)
#define THREADS_ONLY
#endif

struct run {
    const struct ranks_config *config;
    rank_function function;
    char name[64];
};
/* One a rank, in memory that forked ranks share with their parent. */
struct seat {
    const struct run *run;
    int32_t index;
    _Atomic int returned;
    pthread_t thread;
    pid_t pid;
    char failure[RANK_TEXT];
};

void rank_fail(struct rank *rank, const char *file, int line, const char *format, ...)
{
    if (rank->failure[0]) return; /* the first one tells most */
    const char *slash = strrchr(file, '/');
    int at = snprintf(rank->failure, RANK_TEXT, "%s:%d: ", slash ? slash + 1 : file, line);
    va_list args;
    va_start(args, format);
    vsnprintf(rank->failure + at, RANK_TEXT - (size_t)at, format, args);
    va_end(args);
}

uint64_t rank_random(struct rank *rank)
{
    uint64_t x = rank->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

struct rank_block {
    struct rank_block *next;
    max_align_t bytes[];
};

void *rank_alloc(struct rank *rank, size_t bytes)
{
    struct rank_block *block = malloc(sizeof *block + bytes);
    if (!block) abort();
    block->next = rank->blocks;
    rank->blocks = block;
    return block->bytes;
}

static void rank_free(struct rank *rank)
{
    while (rank->blocks) {
        struct rank_block *block = rank->blocks;
        rank->blocks = block->next;
        free(block);
    }
}

static int ranks_a_host(void)
{
    const char *a_host = getenv("RANKS_A_HOST");
    return a_host ? atoi(a_host) : 0;
}

bool ranks_on_hosts(void)
{
    return ranks_a_host() > 0;
}

static enum tutti_status rank_context(const struct ranks_config *config, int32_t rank, struct tutti_context **out)
{
    enum { OWN = 4 };
    const int a_host = ranks_a_host();
    const char *network = getenv("RANKS_NETWORK") ? getenv("RANKS_NETWORK") : "tcp";
    char host[32] = "";
    if (a_host > 1) snprintf(host, sizeof(host), "host%d", (int)rank / a_host);
    struct tutti_option options[MAX_OPTIONS + OWN] = {{"transport", a_host == 1      ? network
                                                                    : a_host > 1     ? "auto"
                                                                    : config->forked ? "shm"
                                                                                     : "self"},
                                                      {"host", host},
                                                      {"trust_network", a_host ? "1" : "0"},
                                                      {"network", network}};
    size_t n = config->n_options < MAX_OPTIONS ? config->n_options : MAX_OPTIONS;
    if (n) memcpy(options + OWN, config->options, n * sizeof(options[0]));
    return tutti_context_create(options, n + OWN, out);
}

static enum tutti_status rank_comm(const struct run *run, struct rank *rank)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank->index;
    config.n_ranks = rank->n;
    config.name = run->name;
    config.timeout_ns = run->config->timeout_ns ? run->config->timeout_ns : UINT64_C(20000000000);
    return tutti_comm_create(rank->context, &config, &rank->comm);
}

static void rank_body(struct seat *seat)
{
    const struct run *run = seat->run;
    struct rank rank = {.index = seat->index, .n = (int32_t)run->config->n, .arg = run->config->arg, .name = run->name};
    rank.random = UINT64_C(20261121) + (uint64_t)seat->index * 7919;
    if (!run->config->no_context && rank_context(run->config, rank.index, &rank.context) < 0)
        rank_fail(&rank, __FILE__, __LINE__, "tutti_context_create: %s", tutti_last_error()->text);
    else if (!run->config->no_context && !run->config->no_comm && rank_comm(run, &rank) < 0)
        rank_fail(&rank, __FILE__, __LINE__, "tutti_comm_create: %s", tutti_last_error()->text);
    else
        run->function(&rank);
    if (rank.failure[0] && rank.comm) tutti_comm_abort(rank.comm, rank.failure); /* the others need not wait */
    tutti_comm_destroy(rank.comm);
    tutti_context_destroy(rank.context);
    rank_free(&rank);
    memcpy(seat->failure, rank.failure, RANK_TEXT);
    atomic_store(&seat->returned, 1);
}

static void *rank_thread(void *seat)
{
    rank_body(seat);
    return NULL;
}

static bool deadline_passed(const struct timespec *deadline)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > deadline->tv_sec || (now.tv_sec == deadline->tv_sec && now.tv_nsec > deadline->tv_nsec);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* ---- where a rank is that does not return: its stack, on request ---- */

enum { FRAMES = 40 };

static void tell_stack(int signal)
{
    void *frames[FRAMES];
    (void)signal;
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
}

static void stacks_prepare(void)
{
    void *frame;
    struct sigaction action = {.sa_handler = tell_stack, .sa_flags = SA_RESTART};
    (void)backtrace(&frame, 1); /* the first one loads a library, which a handler must not */
    sigaction(SIGUSR2, &action, NULL);
}

static void ask_where(uint32_t rank, uint32_t n, pthread_t thread, pid_t pid)
{
    fprintf(stderr, "rank %u of %u did not return before the deadline; it is at\n", rank, n);
    if (pid ? kill(pid, SIGUSR2) : pthread_kill(thread, SIGUSR2)) return;
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* a rank that waits in the kernel may never answer */
}

static void start_threads(struct seat *seats, uint32_t n)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (uint32_t r = 0; r < n; r++)
        if (pthread_create(&seats[r].thread, &attr, rank_thread, &seats[r])) {
            fprintf(stderr, "ranks: no thread for rank %u\n", r);
            _exit(3);
        }
    pthread_attr_destroy(&attr);
}

/* A thread that hangs can not be ended: print who, and end the whole program. */
static void join_threads(struct seat *seats, uint32_t n, const struct timespec *deadline)
{
    for (uint32_t r = 0; r < n; r++)
        while (!atomic_load(&seats[r].returned)) {
            if (!deadline_passed(deadline)) {
                nap();
                continue;
            }
            for (uint32_t i = 0; i < n; i++)
                if (!atomic_load(&seats[i].returned))
                    ask_where(i, n, seats[i].thread, 0);
                else if (seats[i].failure[0])
                    fprintf(stderr, "rank %u: %s\n", i, seats[i].failure);
            if (getenv("TUTTI_TEST_CORE")) abort();
            _exit(3);
        }
    for (uint32_t r = 0; r < n; r++) pthread_join(seats[r].thread, NULL);
}

static void start_processes(struct seat *seats, uint32_t n)
{
    fflush(NULL);
    for (uint32_t r = 0; r < n; r++) {
        pid_t pid = fork();
        if (pid < 0) {
            fprintf(stderr, "ranks: no process for rank %u: %s\n", r, strerror(errno));
            _exit(3);
        }
        if (pid > 0) seats[r].pid = pid; /* shared memory: the child must not write it */
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            rank_body(&seats[r]);
            fflush(NULL);
            exit(0); /* not _exit: leak checkers report at exit */
        }
    }
}

/* All that are left, before one of them is ended: the others would see that and go on. */
static void ask_processes(const struct seat *seat)
{
    const uint32_t n = seat->run->config->n;
    for (uint32_t r = (uint32_t)seat->index; r < n; r++, seat++)
        if (!atomic_load(&seat->returned)) ask_where(r, n, seat->thread, seat->pid);
}

static void wait_process(struct seat *seat, const struct timespec *deadline, bool may_die, bool *asked)
{
    int status = 0;
    bool late = false;
    while (waitpid(seat->pid, &status, WNOHANG) == 0) {
        if (deadline_passed(deadline) && !late) {
            late = true;
            if (!*asked) ask_processes(seat);
            *asked = true;
            kill(seat->pid, getenv("TUTTI_TEST_CORE") ? SIGABRT : SIGKILL);
        }
        nap();
    }
    if (late)
        snprintf(seat->failure, RANK_TEXT, "did not return before the deadline");
    else if (WIFSIGNALED(status) && !may_die)
        snprintf(seat->failure, RANK_TEXT, "ended by signal %d", WTERMSIG(status));
    else if (WIFEXITED(status) && WEXITSTATUS(status) && !seat->failure[0])
        snprintf(seat->failure, RANK_TEXT, "exit status %d", WEXITSTATUS(status));
}

bool ranks_can_fork(void)
{
#ifdef THREADS_ONLY
    return false;
#else
    return true;
#endif
}

unsigned ranks_run(const struct ranks_config *config, rank_function function)
{
    static _Atomic unsigned runs;
    struct run run = {.config = config, .function = function};
    snprintf(run.name, sizeof(run.name), "test-%d-%u", (int)getpid(), atomic_fetch_add(&runs, 1));
    uint32_t n = config->n;
    stacks_prepare();
    size_t bytes = n * sizeof(struct seat);
    struct seat *seats = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seats == MAP_FAILED) {
        fprintf(stderr, "ranks: no memory for %u ranks\n", n);
        _exit(3);
    }
    for (uint32_t r = 0; r < n; r++) seats[r].run = &run, seats[r].index = (int32_t)r;
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += config->deadline_s ? (time_t)config->deadline_s : 60;
    if (config->forked && ranks_can_fork()) {
        bool asked = false;
        start_processes(seats, n);
        for (uint32_t r = 0; r < n; r++)
            wait_process(&seats[r], &deadline, r < 64 && (config->may_die >> r & 1), &asked);
    } else {
        start_threads(seats, n);
        join_threads(seats, n, &deadline);
    }
    unsigned failed = 0;
    for (uint32_t r = 0; r < n; r++)
        if (seats[r].failure[0]) {
            failed++;
            fprintf(stderr, "rank %u of %u: %s\n", r, n, seats[r].failure);
        }
    munmap(seats, bytes);
    return failed;
}

unsigned ranks_threads(uint32_t n, rank_function function, void *arg)
{
    return ranks_run(&(struct ranks_config){.n = n, .arg = arg}, function);
}

unsigned ranks_forked(uint32_t n, rank_function function, void *arg)
{
    return ranks_run(&(struct ranks_config){.n = n, .arg = arg, .forked = true}, function);
}
