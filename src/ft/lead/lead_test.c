/* SPDX-License-Identifier: BSD-3-Clause */

/* Lighthouse, managers and clients over real sockets, by the public calls: two groups of two ranks, what is refused and
 * how, lighthouses and ranks that die. */

#include "test.h"

#include <tutti/ft.h>

#include "base/base.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS TUTTI_NS_PER_MS
#define S TUTTI_NS_PER_S
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) < 0) fail_msg("%s: %s", #call, tutti_last_error()->text);                                           \
    } while (0)

static struct tutti_ft_lighthouse *lighthouse_at(const char *bind, uint64_t min_replicas)
{
    struct tutti_ft_lighthouse_config config = TUTTI_FT_LIGHTHOUSE_CONFIG_INIT;
    struct tutti_ft_lighthouse *lighthouse;

    config.bind = bind;
    config.min_replicas = min_replicas;
    config.join_timeout_ns = config.heartbeat_timeout_ns = 60 * S; /* what comes sooner was told */
    OK(tutti_ft_lighthouse_open(&config, &lighthouse));
    return lighthouse;
}

static struct tutti_ft_manager *manager_of(const char *name, const char *lighthouse, uint32_t n)
{
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    struct tutti_ft_manager *manager;
    char store[64];

    snprintf(store, sizeof store, "store-of-%s:1", name);
    config.replica_id = name;
    config.lighthouse = lighthouse;
    config.hostname = "localhost";
    config.bind = "127.0.0.1:0";
    config.store_address = store;
    config.world_size = n;
    config.heartbeat_interval_ns = 20 * MS;
    config.connect_timeout_ns = 10 * S;
    OK(tutti_ft_manager_open(&config, &manager));
    return manager;
}

/* ---- ranks as threads ---- */
struct rank {
    pthread_t thread;
    const char *address; /* of its manager */
    uint32_t number;
    int64_t step;
    bool vote;
    uint64_t timeout_ns;
    enum tutti_status status;
    char text[TUTTI_ERROR_TEXT];
    struct tutti_ft_place *place;
    bool commit;
};

static void note(struct rank *rank, enum tutti_status status)
{
    rank->status = status;
    if (status < 0) memcpy(rank->text, tutti_last_error()->text, sizeof rank->text);
}

static void *one_step(void *arg)
{
    struct rank *rank = arg;
    struct tutti_ft_client *client;
    char metadata[32], handle[32];
    const uint64_t timeout = rank->timeout_ns ? rank->timeout_ns : 30 * S;

    snprintf(metadata, sizeof metadata, "state-%u", rank->number);
    snprintf(handle, sizeof handle, "handle-%u", rank->number);
    note(rank, tutti_ft_client_open(rank->address, 10 * S, &client));
    if (rank->status < 0) return NULL;
    const struct tutti_ft_request request = {.group_rank = rank->number,
                                             .step = rank->step,
                                             .checkpoint_metadata = metadata,
                                             .reconfigure_handle = handle,
                                             .init_sync = true};
    note(rank, tutti_ft_client_quorum(client, &request, timeout, &rank->place));
    if (rank->status >= 0)
        note(rank, tutti_ft_client_should_commit(client, rank->number, rank->step, rank->vote, timeout, &rank->commit));
    tutti_ft_client_close(client);
    return NULL;
}

static void start(struct rank *rank)
{
    assert_int_equal(pthread_create(&rank->thread, NULL, one_step, rank), 0);
}

static void join(struct rank *rank)
{
    pthread_join(rank->thread, NULL);
}

static void step_of_all(struct rank *ranks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) start(&ranks[i]);
    for (uint32_t i = 0; i < n; i++) join(&ranks[i]);
}

/* ---- tests ---- */
static void test_two_groups_of_two(void **state)
{
    struct tutti_ft_lighthouse *lighthouse = lighthouse_at("127.0.0.1:0", 2);
    struct tutti_ft_manager *a = manager_of("a", tutti_ft_lighthouse_address(lighthouse), 2),
                            *b = manager_of("b", tutti_ft_lighthouse_address(lighthouse), 2);
    struct rank ranks[4] = {0};

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        ranks[i].address = tutti_ft_manager_address(i < 2 ? a : b);
        ranks[i].number = i % 2;
        ranks[i].step = i < 2 ? 7 : 5; /* b is behind */
        ranks[i].vote = i != 3;        /* and does not commit */
    }
    ranks[3].step = 5;
    step_of_all(ranks, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct tutti_ft_place *p = ranks[i].place;
        if (ranks[i].status < 0) fail_msg("rank %u: %s", i, ranks[i].text);
        assert_int_equal(p->quorum_id, 1);
        assert_int_equal(p->replica_rank, i / 2);
        assert_int_equal(p->replica_world_size, 2);
        assert_int_equal(p->max_step, 7);
        assert_int_equal(p->max_world_size, 1);
        assert_int_equal(p->max_replica_rank, i < 2 ? 0 : UINT32_MAX);
        assert_string_equal(p->store_address, "store-of-a:1");
        assert_int_equal(p->heal, i >= 2);
        assert_int_equal(p->source_rank, i < 2 ? UINT32_MAX : 0);
        assert_string_equal(p->source_manager_address, i < 2 ? "" : tutti_ft_manager_address(a));
        assert_int_equal(p->n_targets, i < 2);
        if (i < 2) assert_int_equal(p->targets[0], 1);
        assert_int_equal(p->offers, i < 2);
        assert_int_equal(p->n_sources, i >= 2);
        if (i >= 2) assert_string_equal(p->sources[0], tutti_ft_manager_address(a));
        assert_int_equal(p->n_replicas, 2);
        assert_string_equal(p->replica_ids[1], "b");
        assert_non_null(p->handles);
        assert_string_equal(p->handles[0], i % 2 ? "handle-1" : "handle-0");
        assert_int_equal(ranks[i].commit, i < 2);
        tutti_ft_place_free(ranks[i].place);
    }
    tutti_ft_manager_close(a);
    tutti_ft_manager_close(b);
    tutti_ft_lighthouse_close(lighthouse);
}

static void test_what_is_refused(void **state)
{
    struct tutti_ft_lighthouse *lighthouse = lighthouse_at("127.0.0.1:0", 2);
    struct tutti_ft_manager *m = manager_of("alone", tutti_ft_lighthouse_address(lighthouse), 2);
    struct tutti_ft_client *client;
    struct tutti_ft_place *place;
    struct tutti_ft_request request = {.group_rank = 0};
    char *metadata;
    bool commit;

    (void)state;
    OK(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &client));
    assert_int_equal(tutti_ft_client_quorum(client, &request, 30 * MS, &place), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(tutti_last_error()->text, "quorum of rank 0 timed out after 30 ms"));
    assert_non_null(strstr(tutti_last_error()->text, "status: Cancelled, message: \"Timeout expired\""));
    assert_int_equal(tutti_ft_client_should_commit(client, 0, 1, true, 30 * MS, &commit), TUTTI_ERR_TIMEOUT);
    request.group_rank = 2;
    assert_int_equal(tutti_ft_client_quorum(client, &request, 10 * S, &place), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "group_rank is 2, but alone has 2 ranks"));
    assert_int_equal(tutti_ft_client_checkpoint_metadata(client, 1, 10 * S, &metadata), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "status: InvalidArgument, message: \"rank not found\""));
    OK(tutti_ft_client_checkpoint_metadata(client, 0, 10 * S, &metadata));
    assert_string_equal(metadata, "");
    free(metadata);
    OK(tutti_ft_client_progress(client, 0, 3, 4));
    assert_int_equal(tutti_ft_client_kill(client, "test", 10 * S), TUTTI_ERR_AUTH);
    assert_non_null(strstr(tutti_last_error()->text, "no secret"));
    tutti_ft_client_close(client);
    assert_int_equal(tutti_ft_client_open("http://127.0.0.1:1", 100 * MS, &client), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(tutti_last_error()->text, "Connection refused"));
    assert_int_equal(tutti_ft_client_open("nowhere", 100 * MS, &client), TUTTI_ERR_ARGUMENT);
    tutti_ft_manager_close(m);
    tutti_ft_lighthouse_close(lighthouse);
}

static void test_arguments(void **state)
{
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    struct tutti_ft_manager *m;

    (void)state;
    assert_int_equal(tutti_ft_manager_open(&config, &m), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "config.replica_id is NULL"));
    config.replica_id = "x";
    config.lighthouse = ",";
    assert_int_equal(tutti_ft_manager_open(&config, &m), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "lighthouse: there is no address"));
    config.lighthouse = "http://localhost:1,elsewhere";
    assert_int_equal(tutti_ft_manager_open(&config, &m), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "\"elsewhere\" is no address"));
    config.lighthouse = "http://localhost:1";
    config.world_size = 0;
    assert_int_equal(tutti_ft_manager_open(&config, &m), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_ft_manager_open(&config, NULL), TUTTI_ERR_ARGUMENT);
}

/* The lighthouse goes while two groups wait, and comes back at its address: the quorum comes, too. */
static void test_lighthouse_comes_back(void **state)
{
    struct tutti_ft_lighthouse *lighthouse = lighthouse_at("127.0.0.1:0", 2);
    char address[64], bind[64];
    struct rank ranks[2] = {0};

    (void)state;
    snprintf(address, sizeof address, "http://127.0.0.1:%s", strrchr(tutti_ft_lighthouse_address(lighthouse), ':') + 1);
    snprintf(bind, sizeof bind, "%s", address + 7);
    struct tutti_ft_manager *a = manager_of("a", address, 1), *b = manager_of("b", address, 1);
    ranks[0] = (struct rank){.address = tutti_ft_manager_address(a), .vote = true};
    ranks[1] = (struct rank){.address = tutti_ft_manager_address(b), .vote = true};
    start(&ranks[0]);
    usleep(100000);
    tutti_ft_lighthouse_close(lighthouse);
    usleep(100000);
    lighthouse = lighthouse_at(bind, 2);
    start(&ranks[1]);
    for (int i = 0; i < 2; i++) {
        join(&ranks[i]);
        if (ranks[i].status < 0) fail_msg("rank %d: %s", i, ranks[i].text);
        assert_int_equal(ranks[i].place->replica_world_size, 2);
        assert_true(ranks[i].commit);
        tutti_ft_place_free(ranks[i].place);
    }
    tutti_ft_manager_close(a);
    tutti_ft_manager_close(b);
    tutti_ft_lighthouse_close(lighthouse);
}

/* Of two lighthouses the first is lost: the second one is asked. */
static void test_next_lighthouse(void **state)
{
    struct tutti_ft_lighthouse *first = lighthouse_at("127.0.0.1:0", 2), *second = lighthouse_at("127.0.0.1:0", 1);
    struct tutti_ft_lighthouse_client *client;
    struct tutti_ft_quorum *quorum;
    char list[700];

    (void)state;
    snprintf(list, sizeof list, "%s, %s", tutti_ft_lighthouse_address(first), tutti_ft_lighthouse_address(second));
    struct tutti_ft_manager *m = manager_of("a", list, 1);
    struct rank rank = {.address = tutti_ft_manager_address(m), .vote = true};
    start(&rank);
    usleep(100000); /* it waits for one more at the first */
    tutti_ft_lighthouse_close(first);
    join(&rank);
    if (rank.status < 0) fail_msg("%s", rank.text);
    assert_true(rank.commit);
    tutti_ft_place_free(rank.place);
    OK(tutti_ft_lighthouse_client_open(list, 10 * S, &client)); /* the first is dead now */
    OK(tutti_ft_lighthouse_client_heartbeat(client, "b", 10 * S));
    const struct tutti_ft_member member = {.replica_id = "b", .address = "x", .data = "{}", .step = 9};
    tutti_ft_manager_close(m); /* which leaves, and so need not be waited for */
    OK(tutti_ft_lighthouse_client_quorum(client, &member, 10 * S, &quorum));
    assert_string_equal(quorum->members[quorum->n_members - 1].replica_id, "b");
    assert_string_equal(quorum->members[quorum->n_members - 1].data, "{}");
    assert_int_equal(quorum->members[quorum->n_members - 1].step, 9);
    assert_true(quorum->created_ns > 0);
    tutti_ft_quorum_free(quorum);
    tutti_ft_lighthouse_client_close(client);
    tutti_ft_lighthouse_close(second);
}

static void test_no_lighthouse(void **state)
{
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    struct tutti_ft_manager *m;

    (void)state;
    config.replica_id = "a";
    config.lighthouse = "http://127.0.0.1:1";
    config.hostname = "localhost";
    config.bind = "127.0.0.1:0";
    config.connect_timeout_ns = 200 * MS;
    OK(tutti_ft_manager_open(&config, &m));
    struct rank rank = {.address = tutti_ft_manager_address(m)};
    step_of_all(&rank, 1); /* long before its own 30 s */
    assert_int_equal(rank.status, TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(rank.text, "the lighthouse at 127.0.0.1:1 can not be reached: Connection refused"));
    tutti_ft_manager_close(m);
}

/* ---- ranks as processes: this program with other arguments ---- */
extern char **environ;

static pid_t spawn(const char *role, const char *address, const char *number)
{
    char *const args[] = {(char *)"lead_test", (char *)(uintptr_t)role, (char *)(uintptr_t)address,
                          (char *)(uintptr_t)number, NULL};
    pid_t pid;

    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ), 0);
    return pid;
}

/* Asks for a quorum, and waits. */
static int be_rank(const char *address, const char *number)
{
    struct rank rank = {.address = address, .number = (uint32_t)atoi(number), .timeout_ns = 60 * S};

    one_step(&rank);
    return rank.status < 0 ? 3 : 0;
}

static void test_death_of_a_rank_is_known_at_once(void **state)
{
    struct tutti_ft_lighthouse *lighthouse = lighthouse_at("127.0.0.1:0", 2);
    struct tutti_ft_manager *m = manager_of("a", tutti_ft_lighthouse_address(lighthouse), 3);
    const pid_t pid = spawn("rank", tutti_ft_manager_address(m), "1");
    struct rank rank = {.address = tutti_ft_manager_address(m), .number = 0, .timeout_ns = 60 * S};
    struct tutti_ft_client *client;
    char *metadata = NULL;
    char said[64];

    (void)state;
    OK(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &client));
    for (int i = 0; i < 10000 && tutti_ft_client_checkpoint_metadata(client, 1, 10 * S, &metadata) < 0; i++)
        usleep(1000);
    assert_non_null(metadata); /* it has asked */
    free(metadata);
    start(&rank);
    usleep(50000);
    kill(pid, SIGKILL);
    join(&rank);
    assert_int_equal(rank.status, TUTTI_ERR_SYSTEM);
    snprintf(said, sizeof said, "rank 1 of a is gone: its process %d ended", (int)pid);
    if (!strstr(rank.text, said)) fail_msg("%s", rank.text);
    waitpid(pid, NULL, 0);
    tutti_ft_client_close(client);
    tutti_ft_manager_close(m);
    tutti_ft_lighthouse_close(lighthouse);
}

/* All of the status page that other programs read; "": this build has no page. */
static void read_status(const struct tutti_ft_lighthouse *lighthouse, char *out, size_t room)
{
    static const char ask[] = "GET /status.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const char *port = strrchr(tutti_ft_lighthouse_address(lighthouse), ':') + 1;
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t n = 0;
    ssize_t more;

    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL), sizeof ask - 1);
    while (n + 1 < room && (more = recv(fd, out + n, room - 1 - n, 0)) > 0) n += (size_t)more;
    out[n] = '\0';
    close(fd);
}

static void await_status(const struct tutti_ft_lighthouse *lighthouse, const char *wanted)
{
    static char status[65536];

    for (int i = 0; i < 2000; i++) {
        read_status(lighthouse, status, sizeof status);
        if (!status[0] || strstr(status, wanted)) return;
        usleep(10000);
    }
    fail_msg("%s is not in %s", wanted, status);
}

/* A trainer that hangs is seen although its manager lives: the lighthouse knows its step and its last collective. */
static void test_progress_is_shown(void **state)
{
    struct tutti_ft_lighthouse *lighthouse = lighthouse_at("127.0.0.1:0", 1);
    struct tutti_ft_manager *m = manager_of("a", tutti_ft_lighthouse_address(lighthouse), 2);
    struct tutti_ft_client *client, *other;

    (void)state;
    OK(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &client));
    OK(tutti_ft_client_progress(client, 0, 7, 41));
    await_status(lighthouse, "\"progress\":{\"step\":7,\"collective\":41,\"rank\":0,\"ranks\":1");
    OK(tutti_ft_client_progress(client, 1, 7, 40));
    await_status(lighthouse, "\"progress\":{\"step\":7,\"collective\":40,\"rank\":1,\"ranks\":2");
    for (uint64_t i = 0; i < 1000; i++) OK(tutti_ft_client_progress(client, 1, 8, i)); /* of many the last one counts */
    OK(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &other));
    OK(tutti_ft_client_progress(other, 0, 9, 1));
    await_status(lighthouse, "\"progress\":{\"step\":8,\"collective\":999,\"rank\":1,\"ranks\":2");
    tutti_ft_client_close(other);
    tutti_ft_client_close(client);
    tutti_ft_manager_close(m);
    tutti_ft_lighthouse_close(lighthouse);
}

/* Another group goes on at once when a rank of the first dies. */
static void test_group_of_the_dead_is_not_waited_for(void **state)
{
    struct tutti_ft_lighthouse *lighthouse = lighthouse_at("127.0.0.1:0", 1);
    struct tutti_ft_manager *a = manager_of("a", tutti_ft_lighthouse_address(lighthouse), 1),
                            *b = manager_of("b", tutti_ft_lighthouse_address(lighthouse), 1);
    struct rank rank = {.address = tutti_ft_manager_address(b), .vote = true, .timeout_ns = 60 * S};
    char *metadata = NULL;
    struct tutti_ft_client *client;

    (void)state;
    await_status(lighthouse, "\"a\"");
    const pid_t pid = spawn("rank", tutti_ft_manager_address(a), "0");
    start(&rank);
    join(&rank); /* both asked */
    if (rank.status < 0) fail_msg("%s", rank.text);
    assert_int_equal(rank.place->replica_world_size, 2);
    tutti_ft_place_free(rank.place);
    OK(tutti_ft_client_open(tutti_ft_manager_address(a), 10 * S, &client));
    OK(tutti_ft_client_checkpoint_metadata(client, 0, 10 * S, &metadata));
    free(metadata);
    tutti_ft_client_close(client);
    waitpid(pid, NULL, 0); /* it took its step, and is gone */
    rank = (struct rank){.address = tutti_ft_manager_address(b), .vote = true, .timeout_ns = 20 * S};
    step_of_all(&rank, 1); /* a was a member, and its manager lives */
    if (rank.status < 0) fail_msg("%s", rank.text);
    assert_int_equal(rank.place->replica_world_size, 1);
    tutti_ft_place_free(rank.place);
    tutti_ft_manager_close(a);
    tutti_ft_manager_close(b);
    tutti_ft_lighthouse_close(lighthouse);
}

static int be_manager(const char *lighthouse, const char *path)
{
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    struct tutti_ft_manager *m;

    config.replica_id = "victim";
    config.lighthouse = lighthouse;
    config.hostname = "localhost";
    config.bind = "127.0.0.1:0";
    config.anyone_may_kill = true;
    if (tutti_ft_manager_open(&config, &m) < 0) return 3;
    FILE *file = fopen(path, "w");
    if (!file) return 3;
    fprintf(file, "%s\n", tutti_ft_manager_address(m));
    fclose(file);
    sleep(60);
    return 4;
}

static void test_kill(void **state)
{
    char path[] = "/tmp/tutti-lead-XXXXXX", address[128] = "";
    const int fd = mkstemp(path);
    const pid_t pid = spawn("manager", "http://127.0.0.1:1", path);
    struct tutti_ft_client *client;
    int status;

    (void)state;
    for (int i = 0; i < 10000 && !strchr(address, '\n'); i++) {
        usleep(1000);
        if (pread(fd, address, sizeof address - 1, 0) < 0) break;
    }
    close(fd);
    unlink(path);
    address[strcspn(address, "\n")] = '\0';
    OK(tutti_ft_client_open(address, 10 * S, &client));
    OK(tutti_ft_client_kill(client, "the test", 10 * S));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    tutti_ft_client_close(client);
}

static void test_secret(void **state)
{
    struct tutti_ft_client *client, *stranger;

    (void)state;
    if (!tutti_hmac_available()) skip();
    setenv("TUTTI_SECRET", "sesame", 1);
    struct tutti_ft_lighthouse *lighthouse = lighthouse_at("127.0.0.1:0", 1);
    struct tutti_ft_manager *m = manager_of("a", tutti_ft_lighthouse_address(lighthouse), 1);
    struct rank rank = {.address = tutti_ft_manager_address(m), .vote = true};
    step_of_all(&rank, 1);
    if (rank.status < 0) fail_msg("%s", rank.text);
    assert_true(rank.commit);
    tutti_ft_place_free(rank.place);
    OK(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &client));
    unsetenv("TUTTI_SECRET");
    assert_int_equal(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &stranger), TUTTI_ERR_AUTH);
    assert_non_null(strstr(tutti_last_error()->text, "who knows its job's secret"));
    setenv("TUTTI_SECRET", "another", 1);
    assert_int_equal(tutti_ft_client_open(tutti_ft_manager_address(m), 100 * MS, &stranger), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(tutti_last_error()->text, "does not show that it knows this job's secret"));
    unsetenv("TUTTI_SECRET");
    tutti_ft_client_close(client);
    tutti_ft_manager_close(m);
    tutti_ft_lighthouse_close(lighthouse);
}

/* A client that is closed ends the calls that others have under way. */
static void *wait_for_commit(void *arg)
{
    struct tutti_ft_client *client = arg;
    static enum tutti_status status;
    bool commit;

    status = tutti_ft_client_should_commit(client, 0, 1, true, 60 * S, &commit);
    return &status;
}

static void test_close_ends_calls(void **state)
{
    struct tutti_ft_manager *m = manager_of("a", "http://127.0.0.1:1", 2);
    struct tutti_ft_client *client;
    pthread_t thread;
    void *status;

    (void)state;
    OK(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &client));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_commit, client), 0);
    usleep(50000);
    tutti_ft_client_close(client);
    pthread_join(thread, &status);
    assert_int_equal(*(enum tutti_status *)status, TUTTI_ERR_CANCELLED);
    tutti_ft_manager_close(m);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "rank") == 0) return be_rank(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "manager") == 0) return be_manager(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_groups_of_two),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_lighthouse_comes_back),
        cmocka_unit_test(test_next_lighthouse),
        cmocka_unit_test(test_no_lighthouse),
        cmocka_unit_test(test_death_of_a_rank_is_known_at_once),
        cmocka_unit_test(test_progress_is_shown),
        cmocka_unit_test(test_group_of_the_dead_is_not_waited_for),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_close_ends_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
