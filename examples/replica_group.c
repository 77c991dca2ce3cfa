/* SPDX-License-Identifier: BSD-3-Clause */

/* A replica group of one rank, in C: it trains with other groups, which may die and come back at any time.
 *
 *     tutti chaos -g 3 --every 2s --calm 5s --for 20s -- build/bin/replica_group
 *
 * The model is a row of numbers that all groups pull towards their own data; the optimum is the mean. No step is lost
 * when a group dies: the others finish it, with the average of what they have. Who comes is taken in as a step begins,
 * and gets the model from one that has it. */

#include "example.h"

#include <string.h>
#include <time.h>
#include <tutti/ft.h>
#include <unistd.h>

#define WEIGHTS 4096
#define STEP_NS UINT64_C(5000000)     /* computing */
#define WAIT_NS UINT64_C(10000000000) /* the longest that anything may take */

struct group {
    int64_t step;
    double weights[WEIGHTS], gradients[WEIGHTS];
    struct tutti_ft_team *team; /* all groups that take part */
};

static const char *variable(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && value[0] ? value : otherwise;
}

/* The job's; NULL: it has none. */
static const char *secret(void)
{
    static char text[4097];
    const char *path = variable("TUTTI_SECRET_FILE", NULL), *given = variable("TUTTI_SECRET", NULL);
    FILE *file = !given && path ? fopen(path, "re") : NULL;

    if (!file) return given;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    text[strcspn(text, "\r\n")] = '\0';
    return text;
}

/* ---- a step ---- */
static void compute(struct group *g, double data)
{
    for (size_t i = 0; i < WEIGHTS; i++) g->gradients[i] = g->weights[i] - data;
    nanosleep(&(struct timespec){.tv_nsec = (long)STEP_NS}, NULL);
}

/* To `tutti chaos`: that a step counts, with one batch of this group, and how many groups are in it. */
static void tell(int64_t step, size_t n_groups)
{
    static FILE *steps;
    const char *path = variable("CHAOS_STEPS", NULL);
    struct timespec now;

    if (path && !steps) steps = fopen(path, "ae");
    if (!steps) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(steps, "%lld %lld 1 %zu\n", now.tv_sec * 1000000000ll + now.tv_nsec, (long long)step, n_groups);
    fflush(steps);
}

/* Those who are behind get the model, and then all are alike. When the one that has it dies in this, they come again.
 */
static enum tutti_status train(struct group *g, const struct tutti_ft_step *step, double data)
{
    enum tutti_status status = TUTTI_OK;

    if (step->n_behind > 0)
        status = tutti_broadcast(g->weights, WEIGHTS, TUTTI_FLOAT64, step->source, step->comm, NULL, NULL);
    if (status < 0 && step->heals) return status;
    compute(g, data);
    return tutti_all_reduce(g->gradients, g->gradients, WEIGHTS, TUTTI_FLOAT64, TUTTI_AVG, step->comm, NULL, NULL);
}

static void turn(struct group *g, double data)
{
    struct tutti_ft_step step;
    size_t n_groups = 0;
    bool commit = false;

    CHECK(tutti_ft_team_begin(g->team, g->step, &step));
    enum tutti_status status = train(g, &step, data);
    if (status >= 0) status = tutti_work_contributors(NULL, step.comm, NULL, 0, &n_groups);
    if (status < 0) {
        fprintf(stderr, "step %lld: %s\n", (long long)step.step, tutti_last_error()->text);
        tutti_ft_team_leave(g->team); /* the next begin takes it in again */
        return;
    }
    CHECK(tutti_ft_team_commit(g->team, false, &commit));
    for (size_t i = 0; commit && i < WEIGHTS; i++) g->weights[i] -= 0.1 * g->gradients[i];
    g->step = step.step + commit;
    if (commit) tell(g->step, n_groups);
}

int main(int argc, char **argv)
{
    const long n_steps = argc > 1 ? strtol(argv[1], NULL, 10) : 0; /* 0: until it is killed */
    const char *number = variable("REPLICA_GROUP_ID", "0");
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    struct tutti_ft_team_config team = TUTTI_FT_TEAM_CONFIG_INIT;
    struct tutti_store_server *store;
    struct tutti_ft_manager *manager;
    struct group *g = calloc(1, sizeof *g);
    char id[64], host[256] = "localhost", address[300];

    if (!g) return 1;
    gethostname(host, sizeof host - 1);
    CHECK(tutti_store_server_open("0.0.0.0", 0, secret(), &store)); /* where other groups may meet */
    snprintf(address, sizeof address, "%s:%u", host, tutti_store_server_port(store));
    snprintf(id, sizeof id, "group-%s:%d", number, (int)getpid()); /* another one after each start */
    config.replica_id = id;
    config.lighthouse = variable("TORCHFT_LIGHTHOUSE", "http://localhost:29510");
    config.store_address = address;
    CHECK(tutti_ft_manager_open(&config, &manager));
    team.manager = tutti_ft_manager_address(manager);
    team.secret = secret();
    team.timeout_ns = WAIT_NS;
    CHECK(tutti_ft_team_open(&team, &g->team));
    while (n_steps == 0 || g->step < n_steps) turn(g, strtod(number, NULL));
    printf("group %s: step %lld, weight %.6f\n", number, (long long)g->step, g->weights[0]);
    tutti_ft_team_close(g->team);
    tutti_ft_manager_close(manager);
    tutti_store_server_close(store);
    free(g);
    return 0;
}
