/* SPDX-License-Identifier: BSD-3-Clause */
/* What it takes to start: HOSTS hosts of RANKS processes each, on this machine, make a communicator, all_reduce, split
 * into groups of GROUP, all_reduce in them, and finish:
 *
 *     startup HOSTS RANKS GROUP
 *     startup HOSTS RANKS GROUP VICTIM    the last rank never comes; this one is killed while the others wait
 *
 * Option host gives each host its identity, so ranks of different hosts reach one another by TCP. All results are
 * checked. Prints how long each step took, and what a rank holds: memory, sockets, descriptors. When a rank is killed
 * all others have to be told that it died, and who. The status of the exit is 0 if nothing was wrong. docs/startup.md
 * has what it printed. */

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { BOARD_FD = 3, TIMEOUT_S = 300, RANKS_MOST = 20000, TOLD = 3 };
enum step { CREATE, REDUCE, SPLIT, GROUP, N_STEPS };
static const char *const step_names[] = {"communicator made", "first all_reduce", "split", "all_reduce in the groups"};

/* What a rank tells, in memory that all share. */
struct told {
    uint64_t began_ns, done_ns[N_STEPS];  /* by CLOCK_MONOTONIC */
    uint64_t n_sockets, n_descriptors;    /* now */
    uint64_t most_descriptors;            /* ever: a power of two above */
    uint64_t anonymous, shared, resident; /* KiB; resident: the most ever */
    uint64_t proportional;                /* KiB, what is shared divided by those that share it */
    uint64_t cpu_us;
    int finished;
};
static const char *step_now = "start";

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- a rank ---- */

static void check(enum tutti_status status, int rank)
{
    char victim[32];
    if (status >= 0) return;
    snprintf(victim, sizeof victim, "rank %s ", getenv("VICTIM") ? getenv("VICTIM") : "?");
    if (status == TUTTI_ERR_PEER_DEAD && strstr(tutti_last_error()->text, victim)) exit(TOLD);
    printf("rank %d: %s: %s\n", rank, step_now, tutti_last_error()->text);
    exit(1);
}

static uint64_t field(const char *path, const char *name)
{
    char line[256];
    uint64_t value = 0;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0) sscanf(line + strlen(name), " %" SCNu64, &value);
    if (file) fclose(file);
    return value;
}

static void descriptors_count(struct told *told)
{
    char target[64];
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *entry; all && (entry = readdir(all));) {
        if (entry->d_name[0] == '.') continue;
        const ssize_t n = readlinkat(dirfd(all), entry->d_name, target, sizeof target - 1);
        told->n_descriptors++;
        if (n > 7 && memcmp(target, "socket:", 7) == 0) told->n_sockets++;
    }
    if (all) closedir(all);
}

static void measure(struct told *told)
{
    struct rusage usage;
    descriptors_count(told);
    told->most_descriptors = field("/proc/self/status", "FDSize:");
    told->anonymous = field("/proc/self/status", "RssAnon:");
    told->shared = field("/proc/self/status", "RssShmem:");
    told->resident = field("/proc/self/status", "VmHWM:");
    told->proportional = field("/proc/self/smaps_rollup", "Pss:");
    getrusage(RUSAGE_SELF, &usage);
    told->cpu_us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
                   (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* The sum of the ranks' numbers, first and following. */
static void sum_check(struct tutti_comm *comm, int rank, int64_t first, int64_t n)
{
    int64_t mine = rank, sum = 0;
    check(tutti_all_reduce(&mine, &sum, 1, TUTTI_INT64, TUTTI_SUM, comm, NULL, NULL), rank);
    if (sum == n * first + n * (n - 1) / 2) return;
    printf("rank %d: %s: the sum is %lld\n", rank, step_now, (long long)sum);
    exit(1);
}

static int rank_run(int rank, int n, int group)
{
    struct told *told = mmap(NULL, (size_t)n * sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, BOARD_FD, 0);
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_comm *world, *part;
    if (told == MAP_FAILED) return 1;
    told += rank;
    told->began_ns = now_ns();
    config.rank = rank, config.n_ranks = n,
    config.timeout_ns = (getenv("VICTIM") ? 20 : TIMEOUT_S) * UINT64_C(1000000000);
    step_now = step_names[CREATE];
    check(tutti_comm_create(NULL, &config, &world), rank);
    told->done_ns[CREATE] = now_ns();
    step_now = step_names[REDUCE];
    sum_check(world, rank, 0, n);
    told->done_ns[REDUCE] = now_ns();
    step_now = step_names[SPLIT];
    check(tutti_comm_split(world, rank / group, rank, &part), rank);
    told->done_ns[SPLIT] = now_ns();
    step_now = step_names[GROUP];
    sum_check(part, rank, rank / group * group, tutti_comm_size(part));
    told->done_ns[GROUP] = now_ns();
    step_now = "end";
    check(tutti_barrier(world, NULL, NULL), rank); /* nobody is held up by who measures, */
    measure(told);
    check(tutti_barrier(world, NULL, NULL), rank); /* and nobody leaves before all have */
    tutti_comm_destroy(part);
    tutti_comm_destroy(world);
    told->finished = 1;
    return 0;
}

/* ---- all of them ---- */

static pid_t rank_start(char *self, const char *group, int rank, int n, int a_host)
{
    char number[16], size[16], host[16];
    const pid_t pid = fork();
    if (pid != 0) return pid;
    snprintf(number, sizeof number, "%d", rank);
    snprintf(size, sizeof size, "%d", n);
    snprintf(host, sizeof host, "h%d", rank / a_host);
    setenv("TUTTI_HOST", host, 1);
    execl("/proc/self/exe", self, "rank", number, size, group, (char *)NULL);
    _exit(127);
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void line_print(const char *name, const char *unit, const struct told *told, int n, size_t offset)
{
    static uint64_t values[RANKS_MOST];
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        memcpy(&values[i], (const char *)&told[i] + offset, sizeof values[i]);
        sum += values[i];
    }
    qsort(values, (size_t)n, sizeof values[0], compare);
    printf("%-26s %8" PRIu64 " %8" PRIu64 " %8" PRIu64 " %10" PRIu64 "  %s\n", name, values[0], values[n / 2],
           values[n - 1], sum, unit);
}

static void all_print(const struct told *told, int n, uint64_t began_ns, uint64_t ended_ns)
{
    uint64_t before = began_ns;
    for (int i = 0; i < n; i++)
        if (told[i].began_ns > before) before = told[i].began_ns;
    printf("%-26s %8.3f s\n", "last process began", (double)(before - began_ns) * 1e-9);
    for (int step = 0; step < N_STEPS; step++) {
        uint64_t last = 0;
        for (int i = 0; i < n; i++)
            if (told[i].done_ns[step] > last) last = told[i].done_ns[step];
        printf("%-26s %8.3f s after that\n", step_names[step], (double)(last - before) * 1e-9);
        before = last;
    }
    printf("%-26s %8.3f s in all\n", "last process ended", (double)(ended_ns - began_ns) * 1e-9);
    printf("%-26s %8s %8s %8s %10s\n", "of a rank", "least", "median", "most", "sum");
    line_print("memory, own", "KiB", told, n, offsetof(struct told, anonymous));
    line_print("memory, shared", "KiB", told, n, offsetof(struct told, shared));
    line_print("memory, proportional", "KiB", told, n, offsetof(struct told, proportional));
    line_print("memory, most ever", "KiB", told, n, offsetof(struct told, resident));
    line_print("sockets", "", told, n, offsetof(struct told, n_sockets));
    line_print("descriptors", "", told, n, offsetof(struct told, n_descriptors));
    line_print("descriptors, most ever", "or less", told, n, offsetof(struct told, most_descriptors));
    line_print("processor time", "us", told, n, offsetof(struct told, cpu_us));
}

/* Rank 0 leads and the victim comes second, so that other hosts go through it if it is the first of its host. */
static int victim_run(char *self, const char *group, int n, int a_host, int victim)
{
    const struct timespec pause = {.tv_nsec = 300000000}, all_wait = {.tv_sec = 2};
    int n_told = 0, status;
    pid_t pid = rank_start(self, group, 0, n, a_host);
    nanosleep(&pause, NULL);
    if (victim != 0) pid = rank_start(self, group, victim, n, a_host);
    nanosleep(&pause, NULL);
    for (int rank = 1; rank < n - 1; rank++)
        if (rank != victim) rank_start(self, group, rank, n, a_host);
    nanosleep(&all_wait, NULL);
    const uint64_t killed_ns = now_ns();
    kill(pid, SIGKILL);
    while (wait(&status) > 0) n_told += WIFEXITED(status) && WEXITSTATUS(status) == TOLD;
    printf("%d of %d ranks were told that rank %d died, %.3f s after that\n", n_told, n - 2, victim,
           (double)(now_ns() - killed_ns) * 1e-9);
    return n_told != n - 2;
}

static int all_run(char *self, int n_hosts, int a_host, const char *group, const char *victim)
{
    const int n = n_hosts * a_host;
    const size_t bytes = (size_t)n * sizeof(struct told);
    struct tutti_store_server *store;
    char address[64];
    int wrong = 0, board = memfd_create("startup", 0);
    if (board < 0 || ftruncate(board, (off_t)bytes) != 0 || (board != BOARD_FD && dup2(board, BOARD_FD) < 0)) return 1;
    struct told *told = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, BOARD_FD, 0);
    if (told == MAP_FAILED) return 1;
    setenv("TUTTI_SECRET", "of startup.c", 0);
    if (tutti_store_server_open("127.0.0.1", 0, getenv("TUTTI_SECRET"), &store) < 0)
        return puts(tutti_last_error()->text), 1;
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", tutti_store_server_port(store));
    setenv("TUTTI_STORE", address, 1);
    if (!victim)
        setenv("TUTTI_HOST_TIMEOUT", "60s", 0); /* so many processes on few cores wait for a turn for seconds */
    const uint64_t began_ns = now_ns();
    int started = 0;
    if (victim) setenv("VICTIM", victim, 1);
    if (victim) return victim_run(self, group, n, a_host, atoi(victim));
    while (started < n && rank_start(self, group, started, n, a_host) > 0) started++;
    if (started < n) wrong = printf("only %d processes could be started\n", started);
    for (int status; wait(&status) > 0;) wrong |= status != 0;
    for (int i = 0; i < n; i++) wrong |= !told[i].finished;
    tutti_store_server_close(store);
    if (!wrong) all_print(told, n, began_ns, now_ns());
    return wrong != 0;
}

int main(int n, char **words)
{
    if (n == 5 && strcmp(words[1], "rank") == 0) return rank_run(atoi(words[2]), atoi(words[3]), atoi(words[4]));
    if (n < 4 || n > 5 || atoi(words[1]) < 1 || atoi(words[2]) < 1 || atoi(words[3]) < 1 ||
        atoi(words[1]) > RANKS_MOST / atoi(words[2]))
        return fprintf(stderr, "usage: startup HOSTS RANKS GROUP [VICTIM]\n"), 2;
    printf("%s hosts of %s, groups of %s\n", words[1], words[2], words[3]);
    fflush(stdout);
    return all_run(words[0], atoi(words[1]), atoi(words[2]), words[3], n == 5 ? words[4] : NULL);
}
