/* SPDX-License-Identifier: BSD-3-Clause */
/* Teams (tutti/ft.h): groups are processes that add up numbers. One is killed between two calls of a step, and started
 * again; the others must finish that very step, with what the contributors of its calls make, and the newcomer must
 * have the same sums from then on. A group that lost a rank is lost as a whole. */
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/coll.h>
#include <tutti/ft.h>
#include <unistd.h>

enum { GROUPS = 3, STEPS = 4000, DIES_AT = 5, FULL = 5 };
#define S UINT64_C(1000000000)

/* What all processes see. */
static struct board {
    char lighthouse[300];
    int32_t status; /* the lighthouse's */
    pid_t lighthouse_pid;
    struct seen {
        bool commits;
        uint32_t n[2]; /* contributors of the two calls */
        int32_t set[2][GROUPS];
        int64_t sum;
    } seen[GROUPS][STEPS];
    uint32_t n_void[GROUPS], n_full[GROUPS]; /* full: steps of all groups that counted after one of fewer */
    bool ends_alone;                         /* group 0 */
} * board;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) < 0) {                                                                                              \
            fprintf(stderr, "%s: %s\n", #call, tutti_last_error()->text);                                              \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static void nap(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static int64_t share(int32_t group, int64_t step)
{
    return (group + 1) * (step + 7);
}

/* ---- processes ---- */

/* It ends with the test. */
static pid_t split(void)
{
    const pid_t pid = fork();
    if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

static void serve(uint64_t least, const char *address)
{
    struct tutti_ft_lighthouse_config config = TUTTI_FT_LIGHTHOUSE_CONFIG_INIT;
    struct tutti_ft_lighthouse *lighthouse;

    config.bind = address;
    config.min_replicas = least;
    config.join_timeout_ns = S;
    config.heartbeat_timeout_ns = 2 * S;
    const enum tutti_status status = tutti_ft_lighthouse_open(&config, &lighthouse);
    if (status >= 0)
        snprintf(board->lighthouse, sizeof board->lighthouse, "%s", tutti_ft_lighthouse_address(lighthouse));
    __atomic_store_n(&board->status, status < 0 ? status : 1, __ATOMIC_RELEASE);
    for (;;) pause();
}

struct group {
    struct tutti_store_server *store;
    struct tutti_ft_manager *manager;
    struct tutti_ft_team *team;
};

static void open_manager(struct group *g, int32_t number, uint32_t n_ranks)
{
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    char id[64], address[64];

    OK(tutti_store_server_open("127.0.0.1", 0, NULL, &g->store));
    snprintf(address, sizeof address, "127.0.0.1:%u", tutti_store_server_port(g->store));
    snprintf(id, sizeof id, "group-%d:%d", (int)number, (int)getpid());
    config.replica_id = id;
    config.lighthouse = board->lighthouse;
    config.store_address = address;
    config.hostname = "127.0.0.1";
    config.bind = "127.0.0.1:0";
    config.world_size = n_ranks;
    OK(tutti_ft_manager_open(&config, &g->manager));
}

static void open_team(struct group *g, const char *manager, uint32_t rank, uint32_t least, struct tutti_comm *inside)
{
    struct tutti_ft_team_config config = TUTTI_FT_TEAM_CONFIG_INIT;

    config.manager = manager;
    config.group_rank = rank;
    config.min_replicas = least;
    config.inside = inside;
    config.timeout_ns = 60 * S;
    OK(tutti_ft_team_open(&config, &g->team));
}

/* How a group trains: it dies in that step, or in that one of its own after it has come; 0: in none. */
struct life {
    uint32_t least;
    int64_t dies_at, dies_after;
    bool with_lighthouse; /* at the same moment */
};

/* Adds the shares of all groups to the sum of one more step; true: it counts. */
static bool step_once(struct group *g, int32_t number, int64_t *step, int64_t *sum, const struct life *dies,
                      struct seen *out)
{
    struct tutti_ft_step begun;
    int64_t parts[2];
    bool commit = false;

    OK(tutti_ft_team_begin(g->team, *step, &begun));
    if (begun.n_behind > 0) OK(tutti_broadcast(sum, 1, TUTTI_INT64, begun.source, begun.comm, NULL, NULL));
    for (int i = 0; i < 2; i++) {
        size_t n = 0;
        if (dies && i == 1 && dies->with_lighthouse) kill(board->lighthouse_pid, SIGKILL);
        if (dies && i == 1) kill(getpid(), SIGKILL);
        parts[i] = share(number, begun.step) * (i + 1);
        OK(tutti_all_reduce(&parts[i], &parts[i], 1, TUTTI_INT64, TUTTI_SUM, begun.comm, NULL, NULL));
        OK(tutti_work_contributors(NULL, begun.comm, out->set[i], GROUPS, &n));
        out->n[i] = (uint32_t)n;
    }
    OK(tutti_ft_team_commit(g->team, false, &commit));
    *step = begun.step + commit;
    if (commit) *sum += parts[0] + parts[1];
    out->commits = commit;
    out->sum = *sum;
    return commit;
}

/* Until all groups were in some steps after one in which a group was missing; or, then, until it was alone in some. */
static void train(int32_t number, const struct life *life)
{
    struct group g = {0};
    int64_t step = 0, sum = 0, n_own = 0;
    uint32_t n_full = 0, n_alone = 0;
    bool was_missing = false;

    open_manager(&g, number, 1);
    open_team(&g, tutti_ft_manager_address(g.manager), 0, life->least, NULL);
    while ((board->ends_alone ? n_alone : n_full) < FULL && step < STEPS) {
        struct seen seen = {0};
        const bool dies = (life->dies_at && step == life->dies_at) || (life->dies_after && ++n_own > life->dies_after);
        const bool counts = step_once(&g, number, &step, &sum, dies ? life : NULL, &seen);
        if (counts)
            board->seen[number][step - 1] = seen;
        else
            board->n_void[number]++;
        was_missing |= step > DIES_AT && seen.n[1] < GROUPS;
        n_full += counts && seen.n[1] == GROUPS && step > DIES_AT + 1 &&
                  (was_missing || life->least == GROUPS || number == 2);
        n_alone += counts && n_full >= FULL && seen.n[1] == 1;
        __atomic_store_n(&board->n_full[number], n_full, __ATOMIC_RELEASE);
        nap(2);
    }
    tutti_ft_team_close(g.team);
    tutti_ft_manager_close(g.manager);
    tutti_store_server_close(g.store);
    _exit(n_full < FULL);
}

static pid_t start(int32_t number, struct life life)
{
    const pid_t pid = split();
    if (pid == 0) train(number, &life);
    return pid;
}

static int end_of(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static pid_t lighthouse_at(const char *address, uint64_t least)
{
    board->status = 0;
    const pid_t pid = split();
    if (pid == 0) serve(least, address);
    while (__atomic_load_n(&board->status, __ATOMIC_ACQUIRE) == 0) nap(1);
    return board->lighthouse_pid = pid;
}

static pid_t start_lighthouse(uint64_t least)
{
    memset(board, 0, sizeof(*board));
    return lighthouse_at("127.0.0.1:0", least);
}

static void stop_lighthouse(pid_t pid)
{
    kill(pid, SIGKILL);
    end_of(pid);
}

/* ---- one of three dies ---- */

/* Sums of shares over the contributors of each call of each step that counted. */
static void check_sums(void)
{
    int64_t sum = 0, step = 0;

    for (; board->seen[0][step].commits; step++) {
        const struct seen *seen = &board->seen[0][step];
        for (int call = 0; call < 2; call++)
            for (uint32_t k = 0; k < seen->n[call]; k++) sum += share(seen->set[call][k], step) * (call + 1);
        assert_int_equal(seen->sum, sum);
        if (board->seen[1][step].commits) assert_memory_equal(seen, &board->seen[1][step], sizeof(*seen));
        if (board->seen[2][step].commits) assert_int_equal(board->seen[2][step].sum, sum);
    }
    assert_true(step > DIES_AT + FULL && board->seen[1][step - (board->ends_alone ? FULL + 2 : 1)].commits);
}

static void one_dies(uint32_t least)
{
    const pid_t lighthouse = start_lighthouse(GROUPS);
    pid_t pids[GROUPS];

    if (board->status == TUTTI_ERR_UNSUPPORTED) {
        stop_lighthouse(lighthouse);
        skip();
    }
    for (int32_t i = 0; i < GROUPS; i++)
        pids[i] = start(i, (struct life){.least = least, .dies_at = i == 2 ? DIES_AT : 0});
    assert_int_equal(end_of(pids[2]), -SIGKILL);
    pids[2] = start(2, (struct life){.least = least});
    for (int32_t i = 0; i < GROUPS; i++) assert_int_equal(end_of(pids[i]), 0);
    stop_lighthouse(lighthouse);
    check_sums();
}

static void survivors_finish(void **state)
{
    const struct seen *last = &board->seen[0][DIES_AT];

    (void)state;
    one_dies(1);
    assert_int_equal(board->n_void[0] + board->n_void[1], 0);
    assert_true(last->n[1] == 2 && last->set[1][0] == 0 && last->set[1][1] == 1);
}

/* With fewer than min_replicas the step does not count, and is tried again when there are enough. */
static void survivors_wait(void **state)
{
    (void)state;
    one_dies(GROUPS);
    assert_int_equal(board->n_void[0], 1);
    assert_int_equal(board->seen[0][DIES_AT].n[1], GROUPS);
}

/* A group and the lighthouse die at once; the group comes back, and dies again in its third step; it comes back once
 * more; then all die but one, which goes on alone. No step is void. */
static void bad_moments(void **state)
{
    const pid_t lighthouse = start_lighthouse(GROUPS);
    char address[64];
    pid_t pids[GROUPS];

    (void)state;
    if (board->status == TUTTI_ERR_UNSUPPORTED) {
        stop_lighthouse(lighthouse);
        skip();
    }
    board->ends_alone = true;
    for (int32_t i = 0; i < GROUPS; i++)
        pids[i] = start(i, (struct life){.least = 1, .dies_at = i == 2 ? DIES_AT : 0, .with_lighthouse = i == 2});
    assert_int_equal(end_of(pids[2]), -SIGKILL);
    assert_int_equal(end_of(lighthouse), -SIGKILL);
    snprintf(address, sizeof address, "%s", strstr(board->lighthouse, "127.0.0.1"));
    const pid_t next = lighthouse_at(address, 2); /* with 1, a group that comes first begins alone */
    assert_int_equal(board->status, 1);
    pids[2] = start(2, (struct life){.least = 1, .dies_after = 2});
    assert_int_equal(end_of(pids[2]), -SIGKILL);
    pids[2] = start(2, (struct life){.least = 1});
    while (__atomic_load_n(&board->n_full[0], __ATOMIC_ACQUIRE) < FULL) nap(1);
    for (int32_t i = 1; i < GROUPS; i++) kill(pids[i], SIGKILL);
    assert_int_equal(end_of(pids[0]), 0);
    for (int32_t i = 1; i < GROUPS; i++) assert_int_equal(end_of(pids[i]), -SIGKILL);
    stop_lighthouse(next);
    assert_int_equal(board->n_void[0], 0);
    check_sums();
}

/* ---- groups of two ranks ---- */
struct pair {
    char manager[300], inside[64];
    uint32_t is_there;
};
static struct pair *pairs;

/* With its vote, in a step whose calls end well. */
static bool hears_of_loss(struct group *g)
{
    struct tutti_ft_step begun;
    int64_t part = 1;
    bool commit = false;

    OK(tutti_ft_team_begin(g->team, 3, &begun));
    for (int i = 0; i < 2; i++) OK(tutti_all_reduce(&part, &part, 1, TUTTI_INT64, TUTTI_SUM, begun.comm, NULL, NULL));
    const bool heard = tutti_ft_team_commit(g->team, false, &commit) == TUTTI_ERR_PEER_DEAD;
    tutti_ft_team_close(g->team);
    return heard;
}

/* Rank 1 of the last group dies in its fourth step; the other one hears so, and leaves. */
static void train_pair(int32_t number, uint32_t rank)
{
    struct pair *pair = &pairs[number];
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_comm *inside;
    struct tutti_store store;
    struct group g = {0};
    int64_t step = 0, sum = 0;

    if (rank == 0) {
        open_manager(&g, number, 2);
        snprintf(pair->inside, sizeof pair->inside, "tcp://127.0.0.1:%u", tutti_store_server_port(g.store));
        snprintf(pair->manager, sizeof pair->manager, "%s", tutti_ft_manager_address(g.manager));
        __atomic_store_n(&pair->is_there, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&pair->is_there, __ATOMIC_ACQUIRE)) nap(1);
    OK(tutti_store_open(pair->inside, NULL, UINT64_MAX, &store));
    config.rank = (int32_t)rank, config.n_ranks = 2, config.store = &store, config.name = "inside";
    OK(tutti_comm_create(NULL, &config, &inside));
    open_team(&g, pair->manager, rank, 1, inside);
    while (step < 8) {
        struct seen seen = {0};
        if (number == 1 && rank == 1 && step == 3) kill(getpid(), SIGKILL);
        if (number == 1 && rank == 0 && step == 3) _exit(hears_of_loss(&g) ? 3 : 1);
        step_once(&g, number, &step, &sum, NULL, &seen);
        board->seen[rank][step - 1] = seen;
    }
    tutti_ft_team_close(g.team);
    _exit(0);
}

static void a_group_is_lost_as_a_whole(void **state)
{
    const pid_t lighthouse = start_lighthouse(2);
    pid_t pids[2][2];

    (void)state;
    if (board->status == TUTTI_ERR_UNSUPPORTED) {
        stop_lighthouse(lighthouse);
        skip();
    }
    memset(pairs, 0, 2 * sizeof(*pairs));
    for (int32_t g = 0; g < 2; g++)
        for (uint32_t r = 0; r < 2; r++)
            if ((pids[g][r] = split()) == 0) train_pair(g, r);
    assert_int_equal(end_of(pids[1][1]), -SIGKILL);
    assert_int_equal(end_of(pids[1][0]), 3);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(end_of(pids[0][r]), 0);
        for (int64_t step = 0; step < 8; step++) assert_true(board->seen[r][step].commits);
        assert_int_equal(board->seen[r][7].n[1], 1);
    }
    stop_lighthouse(lighthouse);
}

/* ---- what is refused ---- */
static void refusals(void **state)
{
    struct tutti_ft_team_config config = TUTTI_FT_TEAM_CONFIG_INIT;
    struct tutti_ft_team *team;

    (void)state;
    if (tutti_ft_team_open(&config, &team) == TUTTI_ERR_UNSUPPORTED) skip();
    assert_non_null(strstr(tutti_last_error()->text, "config.manager is NULL"));
    config.manager = "127.0.0.1:1";
    config.min_replicas = 0;
    assert_int_equal(tutti_ft_team_open(&config, &team), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "config.min_replicas is 0"));
    config.min_replicas = 1;
    config.every_ns = 0;
    assert_int_equal(tutti_ft_team_open(&config, &team), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_ft_team_begin(NULL, 0, NULL), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_ft_team_commit(NULL, false, NULL), TUTTI_ERR_ARGUMENT);
    tutti_ft_team_leave(NULL);
    tutti_ft_team_close(NULL);
}

static void *shared(size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

int main(void)
{
    board = shared(sizeof(*board));
    pairs = shared(2 * sizeof(*pairs));
    if (board == MAP_FAILED || pairs == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals), cmocka_unit_test(survivors_finish),
                                       cmocka_unit_test(survivors_wait), cmocka_unit_test(bad_moments),
                                       cmocka_unit_test(a_group_is_lost_as_a_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
