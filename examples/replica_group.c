/* SPDX-License-Identifier: BSD-3-Clause */

/* A replica group of one rank, in C: it trains with other groups, which may die and come back at any time.
 *
 *     tutti chaos -g 3 --every 2s --calm 5s --for 20s -- build/bin/replica_group
 *
 * The model is a row of numbers that all groups pull towards their own data; the optimum is the mean. Before each step
 * the group asks who takes part. When that changed, the groups make a new communicator at the store of one of them, and
 * who is behind gets the model from who is not. A step whose all_reduce failed is voted down, and tried again. */

#include "example.h"

#include <string.h>
#include <time.h>
#include <tutti/ft.h>
#include <unistd.h>

#define WEIGHTS 4096
#define STEP_NS UINT64_C(5000000)     /* computing */
#define WAIT_NS UINT64_C(10000000000) /* the longest that anything may take */

struct group {
    int64_t step, failures, quorum; /* failures: one after another; quorum: of the communicator */
    double weights[WEIGHTS], gradients[WEIGHTS];
    struct tutti_comm *comm; /* all groups that take part; NULL: none yet */
    struct tutti_ft_client *manager;
};

static uint64_t deadline(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec + WAIT_NS;
}

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

/* ---- all groups of the quorum ---- */
static enum tutti_status meet(struct group *g, const struct tutti_ft_place *place)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_store store;
    char address[300], name[64];

    if (g->comm) {
        tutti_comm_abort(g->comm, "other groups take part now"); /* nothing of the old one is waited for */
        tutti_comm_destroy(g->comm);
        g->comm = NULL;
    }
    snprintf(address, sizeof address, "tcp://%s", place->store_address);
    snprintf(name, sizeof name, "quorum-%lld", (long long)place->quorum_id);
    enum tutti_status status = tutti_store_open(address, secret(), deadline(), &store);
    if (status < 0) return status;
    config.rank = (int32_t)place->replica_rank;
    config.n_ranks = (int32_t)place->replica_world_size;
    config.store = &store;
    config.name = name;
    config.timeout_ns = WAIT_NS;
    status = tutti_comm_create(NULL, &config, &g->comm);
    tutti_store_close(&store);
    return status;
}

/* A group that is behind receives the model from one that is not. */
static enum tutti_status heal(struct group *g, const struct tutti_ft_place *place)
{
    enum tutti_status status = TUTTI_OK;

    for (uint32_t i = 0; i < place->n_targets && status == TUTTI_OK; i++)
        status = tutti_send(g->weights, WEIGHTS, TUTTI_FLOAT64, (int32_t)place->targets[i], 0, g->comm, NULL, NULL);
    if (place->heal && status == TUTTI_OK)
        status =
            tutti_recv(g->weights, WEIGHTS, TUTTI_FLOAT64, (int32_t)place->source_rank, 0, g->comm, NULL, NULL, NULL);
    return status;
}

/* ---- a step ---- */
static void compute(struct group *g, double data)
{
    for (size_t i = 0; i < WEIGHTS; i++) g->gradients[i] = g->weights[i] - data;
    nanosleep(&(struct timespec){.tv_nsec = (long)STEP_NS}, NULL);
}

static enum tutti_status train(struct group *g, const struct tutti_ft_place *place, double data)
{
    enum tutti_status status = TUTTI_OK;

    if (g->quorum != place->quorum_id) status = meet(g, place);
    g->quorum = status < 0 ? -1 : place->quorum_id; /* -1: meet again */
    if (status == TUTTI_OK) status = heal(g, place);
    if (status < 0) return status;
    g->step = place->max_step;
    compute(g, data);
    return tutti_all_reduce(g->gradients, g->gradients, WEIGHTS, TUTTI_FLOAT64, TUTTI_AVG, g->comm, NULL, NULL);
}

static void turn(struct group *g, double data)
{
    struct tutti_ft_request request = {.step = g->step, .commit_failures = g->failures, .init_sync = true};
    struct tutti_ft_place *place;
    bool commit = false;

    CHECK(tutti_ft_client_quorum(g->manager, &request, 6 * WAIT_NS, &place));
    const enum tutti_status status = train(g, place, data);
    if (status < 0) fprintf(stderr, "step %lld: %s\n", (long long)g->step, tutti_last_error()->text);
    CHECK(tutti_ft_client_should_commit(g->manager, 0, g->step, status == TUTTI_OK, WAIT_NS, &commit));
    for (size_t i = 0; commit && i < WEIGHTS; i++) g->weights[i] -= 0.1 * g->gradients[i];
    g->failures = commit ? 0 : g->failures + 1;
    g->step += commit;
    tutti_ft_place_free(place);
}

int main(int argc, char **argv)
{
    const long n_steps = argc > 1 ? strtol(argv[1], NULL, 10) : 0; /* 0: until it is killed */
    const char *number = variable("REPLICA_GROUP_ID", "0");
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
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
    CHECK(tutti_ft_client_open(tutti_ft_manager_address(manager), WAIT_NS, &g->manager));
    g->quorum = -1;
    while (n_steps == 0 || g->step < n_steps) turn(g, strtod(number, NULL));
    printf("group %s: step %lld, weight %.6f\n", number, (long long)g->step, g->weights[0]);
    tutti_comm_destroy(g->comm);
    tutti_ft_client_close(g->manager);
    tutti_ft_manager_close(manager);
    tutti_store_server_close(store);
    free(g);
    return 0;
}
