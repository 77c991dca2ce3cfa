/* SPDX-License-Identifier: BSD-3-Clause */

/* This process's rank and world: every launcher's variables, their precedence, and what contradicts. */

#include "test.h"

#include "control/meet/bootstrap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const all_variables[] = {
    "TUTTI_RANK",
    "TUTTI_WORLD_SIZE",
    "TUTTI_LOCAL_RANK",
    "TUTTI_LOCAL_WORLD_SIZE",
    "TUTTI_JOB",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_MCA_ess_base_jobid",
    "PMIX_NAMESPACE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NODEID",
    "PMI_FD",
    "PMI_PORT",
};

static int clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(all_variables); i++) unsetenv(all_variables[i]);
    return 0;
}

/* "NAME=value NAME=value" into the environment. */
static void set(const char *assignments)
{
    char text[512], *save = NULL;
    snprintf(text, sizeof text, "%s", assignments);
    for (char *one = strtok_r(text, " ", &save); one; one = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(one, '=');
        assert_non_null(equals);
        *equals = '\0';
        assert_int_equal(setenv(one, equals + 1, 1), 0);
    }
}

static const struct {
    const char *environment, *launcher;
    int32_t rank, n_ranks, local_rank, local_size;
    const char *job; /* NULL: the parent process */
} cases[] = {
    {"", "none", 0, 1, 0, 1, NULL},
    {"RANK= WORLD_SIZE=", "none", 0, 1, 0, 1, NULL},
    {"TUTTI_RANK=3 TUTTI_WORLD_SIZE=8 TUTTI_LOCAL_RANK=3 TUTTI_LOCAL_WORLD_SIZE=8 TUTTI_JOB=j1", "tutti run", 3, 8, 3,
     8, "j1"},
    {"RANK=5 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 TORCHELASTIC_RUN_ID=abc TORCHELASTIC_RESTART_COUNT=0 "
     "MASTER_ADDR=n1 MASTER_PORT=29500",
     "torchrun", 5, 16, 1, 4, "abc/0/n1/29500"},
    {"RANK=1 WORLD_SIZE=2", "torchrun", 1, 2, -1, -1, NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_PORT=1234", "torchrun", 1, 2, -1, -1, "1234"},
    {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
     "OMPI_MCA_ess_base_jobid=77",
     "Open MPI", 2, 4, 0, 2, "77"},
    {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMIX_NAMESPACE=prterun-x@1", "Open MPI", 0, 1, -1, -1,
     "prterun-x@1"},
    {"PMI_RANK=1 PMI_SIZE=3 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=3", "MPICH", 1, 3, 1, 3, NULL},
    {"SLURM_PROCID=6 SLURM_NTASKS=7 SLURM_LOCALID=2 SLURM_JOB_ID=900 SLURM_STEP_ID=0", "Slurm", 6, 7, 2, -1, "900/0"},
    {"SLURM_PROCID=6 SLURM_NTASKS=7 SLURM_LOCALID=2 SLURM_JOB_ID=900 SLURM_STEP_TASKS_PER_NODE=2(x2),3 SLURM_NODEID=2",
     "Slurm", 6, 7, 2, 3, "900"},
    {"SLURM_PROCID=1 SLURM_NTASKS=7 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_NODEID=0", "Slurm", 1, 2,
     -1, 2, NULL},
    {"SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_STEP_TASKS_PER_NODE=4(x2 SLURM_NODEID=1", "Slurm", 3, 8, -1, -1, NULL},
    /* The nearest one is believed. */
    {"SLURM_PROCID=0 SLURM_NTASKS=2 RANK=5 WORLD_SIZE=8", "torchrun", 5, 8, -1, -1, NULL},
    {"TUTTI_RANK=1 TUTTI_WORLD_SIZE=2 RANK=5 WORLD_SIZE=8", "tutti run", 1, 2, -1, -1, NULL},
    {"PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 SLURM_PROCID=0 SLURM_NTASKS=2", "MPICH", 1, 4, 0, 2,
     NULL},
    {"PMI_RANK=1 PMI_SIZE=4 SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_NODEID=0", "Slurm", 1,
     4, -1, 2, NULL},
    {"PMI_RANK=1 PMI_SIZE=2", "PMI", 1, 2, -1, -1, NULL},
};

static void test_launchers(void **state)
{
    (void)state;
    char parent[64];
    struct tutti_process process;
    assert_true(tutti_process_read((int32_t)getppid(), &process));
    snprintf(parent, sizeof parent, "process-%d-%llu", (int)getppid(), (unsigned long long)process.start);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct tutti_config config;
        struct tutti_launch launch;
        clear(NULL);
        set(cases[i].environment);
        assert_int_equal(tutti_config_init(&config, NULL, 0), TUTTI_OK);
        if (tutti_launch_read(&config, &launch) != TUTTI_OK) fail_msg("case %zu: %s", i, tutti_last_error()->text);
        assert_string_equal(launch.launcher, cases[i].launcher);
        assert_int_equal(launch.rank, cases[i].rank);
        assert_int_equal(launch.n_ranks, cases[i].n_ranks);
        assert_int_equal(launch.local_rank, cases[i].local_rank);
        assert_int_equal(launch.local_size, cases[i].local_size);
        assert_string_equal(launch.job, cases[i].job ? cases[i].job : parent);
        tutti_config_fini(&config);
    }
}

/* By what rank 0 can tell the others where it is, and whether they may be on other hosts. */
static void test_ways(void **state)
{
#define HERE "RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_PORT=29500 "
    static const struct {
        const char *environment;
        enum tutti_launch_way way;
        bool spans, may_span;
    } ways_of[] = {
        {HERE, TUTTI_WAY_NONE, true, false},
        {HERE "MASTER_ADDR=n1", TUTTI_WAY_MASTER, true, false},
        {HERE "MASTER_ADDR=n1 TORCHELASTIC_USE_AGENT_STORE=True", TUTTI_WAY_TORCH, true, false},
        {HERE "MASTER_ADDR=n1 TORCHELASTIC_USE_AGENT_STORE=False", TUTTI_WAY_MASTER, true, false},
        /* srun --mpi=pmix torchrun: the wire is of the agents, not of these ranks. */
        {HERE "MASTER_ADDR=n1 TORCHELASTIC_USE_AGENT_STORE=True PMIX_NAMESPACE=s", TUTTI_WAY_TORCH, true, false},
        {"RANK=1 WORLD_SIZE=4 MASTER_PORT=29500 MASTER_ADDR=n1", TUTTI_WAY_MASTER, false, true},
        {"RANK=1 WORLD_SIZE=4 MASTER_PORT=29500 MASTER_ADDR=127.0.0.1", TUTTI_WAY_MASTER, false, false},
        {"RANK=1 WORLD_SIZE=4 MASTER_PORT=29500 MASTER_ADDR=localhost", TUTTI_WAY_MASTER, false, false},
        {"PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 PMI_FD=7 MASTER_ADDR=n1 MASTER_PORT=1",
         TUTTI_WAY_PMI, true, false},
        {"SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_NODEID=0", TUTTI_WAY_NONE, true, false},
        {"SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_NODEID=0 MASTER_ADDR=n1 MASTER_PORT=1",
         TUTTI_WAY_MASTER, true, false},
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(ways_of); i++) {
        struct tutti_launch launch;
        clear(NULL);
        set(ways_of[i].environment);
        assert_int_equal(tutti_launch_read(NULL, &launch), TUTTI_OK);
        if (launch.way != ways_of[i].way || launch.may_span != ways_of[i].may_span ||
            tutti_launch_spans(&launch, 1, 4) != ways_of[i].spans)
            fail_msg("%s: way %d, may span %d", ways_of[i].environment, launch.way, launch.may_span);
    }
}

static void test_contradictions(void **state)
{
    static const struct {
        const char *environment, *words[3];
    } wrong[] = {
        {"RANK=1", {"RANK", "torchrun", "WORLD_SIZE"}},
        {"RANK=x WORLD_SIZE=2", {"RANK", "\"x\"", "whole number"}},
        {"RANK=-1 WORLD_SIZE=2", {"RANK", "\"-1\""}},
        {"RANK=+1 WORLD_SIZE=2", {"RANK", "\"+1\""}},
        {"RANK=1.5 WORLD_SIZE=2", {"RANK", "\"1.5\""}},
        {"RANK=0 WORLD_SIZE=99999999999", {"WORLD_SIZE", "99999999999"}},
        {"RANK=0 WORLD_SIZE=0", {"WORLD_SIZE is 0"}},
        {"RANK=2 WORLD_SIZE=2", {"RANK is 2", "WORLD_SIZE is 2"}},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2", {"LOCAL_RANK is 2", "2 ranks here"}},
        {"RANK=0 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", {"LOCAL_RANK is 2", "2 ranks here"}},
        {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=4", {"this host has 4 ranks", "WORLD_SIZE is 2"}},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=zero", {"LOCAL_RANK", "\"zero\""}},
        {"TUTTI_RANK=0 RANK=0 WORLD_SIZE=2", {"TUTTI_RANK", "tutti run", "TUTTI_WORLD_SIZE"}},
        {"SLURM_PROCID=0", {"SLURM_PROCID", "SLURM_NTASKS"}},
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) {
        struct tutti_launch launch = {.rank = 42};
        clear(NULL);
        set(wrong[i].environment);
        assert_int_equal(tutti_launch_read(NULL, &launch), TUTTI_ERR_ARGUMENT);
        for (size_t w = 0; w < 3 && wrong[i].words[w]; w++)
            if (!strstr(tutti_last_error()->text, wrong[i].words[w]))
                fail_msg("case %zu: \"%s\" lacks \"%s\"", i, tutti_last_error()->text, wrong[i].words[w]);
        assert_int_equal(launch.rank, 42);
    }
}

/* Long names stay different, and the option goes before the launcher. */
static void test_job(void **state)
{
    struct tutti_config config;
    struct tutti_launch a, b;
    char name[300];
    (void)state;
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    set("RANK=0 WORLD_SIZE=1");
    setenv("TORCHELASTIC_RUN_ID", name, 1);
    assert_int_equal(tutti_launch_read(NULL, &a), TUTTI_OK);
    name[sizeof name - 2] = 'm';
    setenv("TORCHELASTIC_RUN_ID", name, 1);
    assert_int_equal(tutti_launch_read(NULL, &b), TUTTI_OK);
    assert_true(strlen(a.job) < sizeof a.job && strlen(b.job) < sizeof b.job);
    assert_string_not_equal(a.job, b.job);
    const struct tutti_option option = {"job", "mine"};
    assert_int_equal(tutti_config_init(&config, &option, 1), TUTTI_OK);
    assert_int_equal(tutti_launch_read(&config, &a), TUTTI_OK);
    assert_string_equal(a.job, "mine");
    tutti_config_fini(&config);
}

/* With a wrapper a rank: its variables tell it from the process that started all of them. */
static void test_wrapped(void **state)
{
    char job[2][128] = {"", ""}, expected[128];
    struct tutti_process self;
    (void)state;
    for (int r = 0; r < 2; r++) {
        char *path = realpath("/proc/self/exe", NULL);
        assert_non_null(path);
        char rank[32];
        int out[2];
        assert_int_equal(pipe(out), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            snprintf(rank, sizeof rank, "%d", r);
            setenv("PMI_RANK", rank, 1);
            setenv("PMI_SIZE", "2", 1);
            dup2(out[1], STDOUT_FILENO);
            execl("/bin/sh", "sh", "-c", "sh -c '\"$0\" job; true' \"$0\"; true", path, (char *)NULL);
            _exit(127);
        }
        close(out[1]);
        ssize_t n = read(out[0], job[r], sizeof job[r] - 1);
        assert_true(n > 0);
        job[r][n] = '\0';
        close(out[0]);
        waitpid(pid, NULL, 0);
        free(path);
    }
    assert_true(tutti_process_read((int32_t)getpid(), &self));
    snprintf(expected, sizeof expected, "process-%d-%llu", (int)getpid(), (unsigned long long)self.start);
    assert_string_equal(job[0], expected);
    assert_string_equal(job[1], expected);
}

/* ---- torchrun's store, where anybody may have written ---- */

/* As PyTorch's TCPStore, to one client that asks for one text. */
static void *store_run(void *arg)
{
    static const char text[] = "4711/anybody's secret/127.0.0.1";
    const uint64_t n = sizeof text - 1;
    uint8_t asked[512], answer[sizeof n + sizeof text];
    const int fd = accept(*(const int *)arg, NULL, NULL);
    memcpy(answer, &n, sizeof n);
    memcpy(answer + sizeof n, text, n);
    if (recv(fd, asked, sizeof asked, 0) == 10) send(fd, asked + 6, 4, MSG_NOSIGNAL); /* VALIDATE, PING */
    if (recv(fd, asked, sizeof asked, 0) > 0) send(fd, "", 1, MSG_NOSIGNAL);          /* WAIT */
    if (recv(fd, asked, sizeof asked, 0) > 0) send(fd, answer, sizeof n + n, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

/* Whatever it holds, a rank proves itself by what its user gave. */
static void test_a_store_gives_no_secret(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char environment[200];
    struct tutti_config config;
    struct tutti_launch_store found;
    pthread_t thread;
    (void)state;
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    snprintf(environment, sizeof environment,
             "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 TORCHELASTIC_USE_AGENT_STORE=True "
             "MASTER_ADDR=127.0.0.1 MASTER_PORT=%u",
             ntohs(at.sin_port));
    set(environment);
    assert_int_equal(tutti_config_init(&config, NULL, 0), TUTTI_OK);
    for (int own = 0; own < 2; own++) {
        assert_int_equal(pthread_create(&thread, NULL, store_run, (void *)(uintptr_t)&fd), 0);
        assert_int_equal(tutti_launch_store_find(&config, 1, 2, own ? "sesame" : NULL, NULL,
                                                 tutti_deadline_ns(10 * TUTTI_NS_PER_S), &found),
                         TUTTI_ERR_AUTH);
        assert_non_null(strstr(tutti_last_error()->text, "tells a secret, which rank 0 did not put there"));
        assert_false(found.secret_made);
        pthread_join(thread, NULL);
    }
    tutti_config_fini(&config);
    close(fd);
}

/* With the argument "job": prints the job's name. */
int main(int argc, char **argv)
{
    struct tutti_launch launch;
    if (argc == 2 && strcmp(argv[1], "job") == 0)
        return tutti_launch_read(NULL, &launch) < 0 || fputs(launch.job, stdout) < 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_launchers, clear, clear),
        cmocka_unit_test_setup_teardown(test_ways, clear, clear),
        cmocka_unit_test_setup_teardown(test_contradictions, clear, clear),
        cmocka_unit_test_setup_teardown(test_job, clear, clear),
        cmocka_unit_test_setup_teardown(test_wrapped, clear, clear),
        cmocka_unit_test_setup_teardown(test_a_store_gives_no_secret, clear, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
