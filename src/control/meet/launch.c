/* SPDX-License-Identifier: BSD-3-Clause */

/* What the launcher says of this rank, in the variables of each. */

#include "control/meet/bootstrap.h"

#include "store/share.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_SIZE_NAMES 2
#define N_JOB_NAMES 4

struct launcher {
    const char *name;
    const char *rank;
    const char *size[N_SIZE_NAMES]; /* the first one that is set */
    const char *local_rank, *local_size;
    const char *tasks_per_node, *node; /* local size as a list by node, "4(x2),3"; this node's index */
    const char *job[N_JOB_NAMES];      /* all that are set, together */
    const char *mark;                  /* set as well, where `rank` alone does not tell this launcher from others */
    bool passes;                       /* it may bring PMIx or PMI; set for others, too, by who started these */
};

/* The restart count is part of the name so that a restarted gang does not meet what is left of the one before. */
static const struct launcher launcher_table[] = {
    {"tutti run",
     "TUTTI_RANK",
     {"TUTTI_WORLD_SIZE"},
     "TUTTI_LOCAL_RANK",
     "TUTTI_LOCAL_WORLD_SIZE",
     NULL,
     NULL,
     {NULL},
     NULL,
     false},
    {"torchrun",
     "RANK",
     {"WORLD_SIZE"},
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     NULL,
     NULL,
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"},
     NULL,
     false},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     NULL,
     {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"},
     NULL,
     true},
    {"MPICH",
     "PMI_RANK",
     {"PMI_SIZE"},
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     NULL,
     NULL,
     {NULL},
     "MPI_LOCALNRANKS",
     true},
    {"Slurm",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     "SLURM_LOCALID",
     NULL,
     "SLURM_STEP_TASKS_PER_NODE",
     "SLURM_NODEID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     NULL,
     true}, /* srun --mpi=pmi2 sets PMI_RANK, too */
    {"PMI", "PMI_RANK", {"PMI_SIZE"}, NULL, NULL, NULL, NULL, {NULL}, NULL, true},
};

/* Set to nothing is not set. */
static const char *variable(const char *name)
{
    const char *value = name ? getenv(name) : NULL;
    return value && value[0] ? value : NULL;
}

static bool is_its(const struct launcher *row)
{
    return variable(row->rank) && (!row->mark || variable(row->mark));
}

/* *out is left alone when the variable is not set. */
static enum tutti_status number_read(const char *name, int32_t *out)
{
    const char *text = variable(name);
    char *end;
    if (!text) return TUTTI_OK;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || text[0] < '0' || text[0] > '9' || value > INT32_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "environment variable %s is \"%.64s\", which is not a whole number", name,
                          text);
    *out = (int32_t)value;
    return TUTTI_OK;
}

/* Slurm's "4(x2),3": the count of node `node`; -1 when the text is not of this form. */
static int32_t tasks_of_node(const char *text, int32_t node)
{
    for (int32_t first = 0; *text;) {
        char *end;
        long tasks = strtol(text, &end, 10), times = 1;
        if (end == text || tasks < 1 || tasks > INT32_MAX) return -1;
        if (end[0] == '(' && end[1] == 'x') {
            const char *digits = end + 2;
            times = strtol(digits, &end, 10);
            if (end == digits || *end++ != ')' || times < 1 || times > INT32_MAX - first) return -1;
        }
        if (node < first + times) return (int32_t)tasks;
        first += (int32_t)times;
        if (*end == ',')
            end++;
        else if (*end)
            return -1;
        text = end;
    }
    return -1;
}

static enum tutti_status numbers_read(const struct launcher *row, struct tutti_launch *out)
{
    int32_t node = -1;
    TUTTI_TRY(number_read(row->rank, &out->rank));
    for (size_t i = 0; i < N_SIZE_NAMES && out->n_ranks < 0; i++) TUTTI_TRY(number_read(row->size[i], &out->n_ranks));
    TUTTI_TRY(number_read(row->local_rank, &out->local_rank));
    TUTTI_TRY(number_read(row->local_size, &out->local_size));
    TUTTI_TRY(number_read(row->node, &node));
    const char *tasks = variable(row->tasks_per_node);
    if (tasks && node >= 0) out->local_size = tasks_of_node(tasks, node);
    return TUTTI_OK;
}

/* What can not be true of any job. */
static enum tutti_status numbers_check(const struct launcher *row, const struct tutti_launch *launch)
{
    const char *size = row->size[N_SIZE_NAMES - 1] ? row->size[N_SIZE_NAMES - 1] : row->size[0];
    if (launch->n_ranks < 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "environment variable %s is set, as by %s, but %s is not", row->rank,
                          row->name, size);
    if (launch->n_ranks == 0 || launch->rank >= launch->n_ranks)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "environment variables contradict one another: %s is %d, but %s is %d (ranks count from 0)",
                          row->rank, (int)launch->rank, size, (int)launch->n_ranks);
    if (launch->local_size > launch->n_ranks || launch->local_size == 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "environment variables contradict one another: this host has %d ranks, but %s is %d",
                          (int)launch->local_size, size, (int)launch->n_ranks);
    int32_t local_limit = launch->local_size > 0 ? launch->local_size : launch->n_ranks;
    if (launch->local_rank >= local_limit)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "environment variables contradict one another: %s is %d, but there are %d ranks here",
                          row->local_rank, (int)launch->local_rank, (int)local_limit);
    return TUTTI_OK;
}

/* Long names are cut, with a hash of the whole at the end. */
static void job_fit(const char *text, char out[128])
{
    size_t n = strlen(text);
    if (n < 128)
        memcpy(out, text, n + 1);
    else
        snprintf(out, 128, "%.100s~%016llx", text, (unsigned long long)tutti_hash64(text, n, 0));
}

/* Whether a process was started with a variable set. */
static bool started_with(int32_t pid, const char *name)
{
    char path[64], *line = NULL;
    size_t capacity = 0, n = strlen(name);
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && getdelim(&line, &capacity, '\0', f) > 0) found = strncmp(line, name, n) == 0 && line[n] == '=';
    free(line);
    fclose(f);
    return found;
}

/* The process that started the ranks: the nearest ancestor that is not itself a rank. Between the two there may be a
 * wrapper a rank (a shell, timeout, numactl), which has the rank's variables. */
static int32_t starter(const struct launcher *row)
{
    int32_t pid = (int32_t)getppid();
    struct tutti_process process;
    while (row && pid > 1 && started_with(pid, row->rank) && tutti_process_read(pid, &process)) pid = process.parent;
    return pid;
}

/* The option, else the launcher's own names, else the process that started the ranks, which they share. */
static void job_read(const struct launcher *row, const struct tutti_config *config, char out[128])
{
    char text[1024] = "";
    size_t used = 0;
    const char *job = config ? config->text[TUTTI_OPT_job] : NULL;
    for (size_t i = 0; row && i < N_JOB_NAMES && !(job && job[0]); i++) {
        const char *value = variable(row->job[i]);
        if (!value || used >= sizeof text) continue;
        int n = snprintf(text + used, sizeof text - used, "%s%s", used ? "/" : "", value);
        used += n < 0 ? 0 : (size_t)n;
    }
    if (job && job[0])
        job_fit(job, out);
    else if (used > 0)
        job_fit(text, out);
    else {
        struct tutti_process process = {.start = 0};
        int32_t pid = starter(row);
        tutti_process_read(pid, &process);
        snprintf(out, 128, "process-%d-%llu", (int)pid, (unsigned long long)process.start);
    }
}

/* Whether all ranks of a job whose first is at this address are on its host. */
static bool is_loopback(const char *address)
{
    return strcmp(address, "localhost") == 0 || strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* How rank 0 tells the others where it is. torchrun serves MASTER_PORT where it says so; else rank 0 can. */
static void way_read(const struct launcher *row, struct tutti_launch *out)
{
    const char *address = variable("MASTER_ADDR"), *port = variable("MASTER_PORT");
    const char *agent = variable("TORCHELASTIC_USE_AGENT_STORE");
    const bool master = address && port && strlen(address) < sizeof out->master && strlen(port) < 6;
    if (row->passes && tutti_share_present())
        out->way = TUTTI_WAY_PMI;
    else if (master)
        out->way = agent && strcmp(agent, "True") == 0 ? TUTTI_WAY_TORCH : TUTTI_WAY_MASTER;
    if (!master) return;
    snprintf(out->master, sizeof out->master, "%s", address);
    snprintf(out->port, sizeof out->port, "%s", port);
    out->may_span = out->local_size < 0 && !is_loopback(address);
}

enum tutti_status tutti_launch_read(const struct tutti_config *config, struct tutti_launch *out)
{
    struct tutti_launch launch = {.rank = -1, .n_ranks = -1, .local_rank = -1, .local_size = -1, .launcher = "none"};
    const struct launcher *row = NULL;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(launcher_table) && !row; i++)
        if (is_its(&launcher_table[i])) row = &launcher_table[i];
    if (row) {
        launch.launcher = row->name;
        TUTTI_TRY(numbers_read(row, &launch));
        TUTTI_TRY(numbers_check(row, &launch));
        way_read(row, &launch);
    } else
        launch.rank = 0, launch.n_ranks = 1, launch.local_rank = 0, launch.local_size = 1;
    job_read(row, config, launch.job);
    *out = launch;
    return TUTTI_OK;
}

bool tutti_launch_spans(const struct tutti_launch *launch, int32_t rank, int32_t n_ranks)
{
    return launch->n_ranks == n_ranks && launch->rank == rank && launch->local_size >= 0 &&
           launch->local_size < launch->n_ranks;
}
