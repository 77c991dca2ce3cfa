/* SPDX-License-Identifier: BSD-3-Clause */

/* What ranks ask of their manager, what it answers, and what is refused and how. */

#include "ft/client/groups_test.h"

#include "base/tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- what listens where a lighthouse should: each connection gets a text ---- */
static pthread_t babbler;

static void *babble(void *arg)
{
    static const char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    const int listener = *(int *)arg;
    char got[4096];
    int fd;

    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        if (recv(fd, got, sizeof got, 0) > 0) send(fd, text, sizeof text - 1, MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

static int babbler_open(uint16_t *port)
{
    static int listener;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;

    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    *port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&babbler, NULL, babble, &listener), 0);
    return listener;
}

static void babbler_close(int listener)
{
    shutdown(listener, SHUT_RDWR);
    pthread_join(babbler, NULL);
    close(listener);
}

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

/* Without a secret it listens on this host alone, unless it is told otherwise. */
static void test_where_it_listens(void **state)
{
    static const struct {
        const char *hostname, *bind, *secret, *here;
    } rows[] = {{NULL, NULL, NULL, "http://localhost:"},
                {NULL, "127.0.0.1:0", NULL, "http://localhost:"},
                {"me", NULL, NULL, "http://me:"},
                {NULL, NULL, "sesame", NULL},
                {NULL, "[::]:0", NULL, NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
        struct tutti_ft_manager *m;
        char name[256] = "http://";
        if (rows[i].secret && !tutti_tls_available()) continue;
        gethostname(name + 7, sizeof name - 8);
        config.replica_id = "x", config.lighthouse = "http://localhost:1";
        config.hostname = rows[i].hostname, config.bind = rows[i].bind, config.secret = rows[i].secret;
        OK(tutti_ft_manager_open(&config, &m));
        const char *front = rows[i].here ? rows[i].here : name;
        assert_int_equal(strncmp(tutti_ft_manager_address(m), front, strlen(front)), 0);
        tutti_ft_manager_close(m);
    }
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
    assert_non_null(strstr(tutti_last_error()->text, "with the job's secret"));
    setenv("TUTTI_SECRET", "another", 1);
    assert_int_equal(tutti_ft_client_open(tutti_ft_manager_address(m), 600 * S, &stranger), TUTTI_ERR_AUTH);
    assert_non_null(strstr(tutti_last_error()->text, "does not show that it knows this job's secret"));
    unsetenv("TUTTI_SECRET");
    tutti_ft_client_close(client);
    tutti_ft_manager_close(m);
    tutti_ft_lighthouse_close(lighthouse);
}

/* Why there is no quorum is told in time, by settings that are equal: the lighthouse is away, something else listens
 * there, it has another secret, there are too few groups, or a rank of the group is missing. */
static void test_why_there_is_no_quorum(void **state)
{
    enum { N = 4 };
    static const char *const sentences[N] = {"need min_replicas 2", "1 of 2 ranks of b have asked for a quorum",
                                             "Connection refused", "does not speak gRPC"};
    struct tutti_ft_lighthouse *lighthouse = lighthouse_at("127.0.0.1:0", 2);
    struct tutti_ft_manager *managers[N];
    struct rank ranks[N] = {0};
    uint16_t port;
    int other = babbler_open(&port);
    char other_at[40];

    (void)state;
    snprintf(other_at, sizeof other_at, "http://127.0.0.1:%u", port);
    const char *at = tutti_ft_lighthouse_address(lighthouse), *addresses[N] = {at, at, "http://127.0.0.1:1", other_at};
    for (uint32_t i = 0; i < N; i++) {
        const char name[2] = {(char)('a' + i), '\0'};
        managers[i] = manager_of(name, addresses[i], 1 + (i == 1));
        ranks[i] = (struct rank){.address = tutti_ft_manager_address(managers[i]), .timeout_ns = 6 * S};
    }
    step_of_all(ranks, N);
    for (int i = 0; i < N; i++) {
        if (ranks[i].status != TUTTI_ERR_TIMEOUT || !strstr(ranks[i].text, sentences[i])) fail_msg("%s", ranks[i].text);
        tutti_ft_manager_close(managers[i]);
    }
    if (tutti_tls_available()) { /* a final answer: nobody waits for the end of 600 s */
        setenv("TUTTI_SECRET", "another", 1);
        managers[0] = manager_of("a", at, 1);
        ranks[0] = (struct rank){.address = tutti_ft_manager_address(managers[0]), .timeout_ns = 600 * S};
        step_of_all(ranks, 1);
        unsetenv("TUTTI_SECRET");
        assert_int_equal(ranks[0].status, TUTTI_ERR_SYSTEM);
        assert_non_null(strstr(ranks[0].text, "does not show that it knows this job's secret"));
        tutti_ft_manager_close(managers[0]);
    }
    babbler_close(other);
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
    if (argc == 4 && strcmp(argv[1], "manager") == 0) return be_manager(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_groups_of_two),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_where_it_listens),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_why_there_is_no_quorum),
        cmocka_unit_test(test_close_ends_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
