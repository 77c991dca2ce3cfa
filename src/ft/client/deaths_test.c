/* SPDX-License-Identifier: BSD-3-Clause */

/* Lighthouses that go and come back, and ranks that die: the others go on, or hear of it at once. Progress of ranks, as
 * the lighthouse shows it. */

#include "ft/client/groups_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

/* The first of two lighthouses is lost: the second one is asked. */
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
    assert_non_null(strstr(rank.text, "the lighthouse can not be reached: 127.0.0.1:1: Connection refused"));
    tutti_ft_manager_close(m);
}

/* Asks for a quorum, and waits. */
static int be_rank(const char *address, const char *number)
{
    struct rank rank = {.address = address, .number = (uint32_t)atoi(number), .timeout_ns = 60 * S};

    one_step(&rank);
    tutti_ft_place_free(rank.place);
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
    for (uint64_t i = 0; i < 1000; i++) OK(tutti_ft_client_progress(client, 1, 8, i)); /* the last one of many counts */
    OK(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &other));
    OK(tutti_ft_client_progress(other, 0, 9, 1));
    await_status(lighthouse, "\"progress\":{\"step\":8,\"collective\":999,\"rank\":1,\"ranks\":2");
    tutti_ft_client_close(other);
    tutti_ft_client_close(client);
    tutti_ft_manager_close(m);
    tutti_ft_lighthouse_close(lighthouse);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "rank") == 0) return be_rank(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lighthouse_comes_back),
        cmocka_unit_test(test_next_lighthouse),
        cmocka_unit_test(test_no_lighthouse),
        cmocka_unit_test(test_progress_is_shown),
        cmocka_unit_test(test_death_of_a_rank_is_known_at_once),
        cmocka_unit_test(test_group_of_the_dead_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
