/* SPDX-License-Identifier: BSD-3-Clause */

/* Three lighthouses as processes, and three groups, each of which talks to another one of them. In the middle of a step
 * the one that leads is killed, or stops for ever, without a word: all groups take this step and those that follow, and
 * nobody hears of an error. Where there is TLS all have a secret. */

#include "ft/client/groups_test.h"

#include "base/tls.h"
#include "ft/serve/serve.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define N 3
#define STEPS 40

static char folder[] = "/tmp/tutti-losses-XXXXXX", addresses[N][40];
static uint16_t ports[N];
static pid_t lighthouses[N];

/* ---- lighthouses ---- */
static void list_from(uint32_t first, char out[128])
{
    out[0] = '\0';
    for (uint32_t i = 0; i < N; i++) tutti_append(out, 128, "%s%s", i > 0 ? "," : "", addresses[(first + i) % N]);
}

/* "NUMBER FOLDER"; the list of all in PEERS. */
static int be_lighthouse(const char *number, const char *at)
{
    const char *peers = getenv("PEERS"), *mine = peers;
    const uint32_t me = (uint32_t)atoi(number);
    char bind[40], state[64];

    for (uint32_t i = 0; i < me; i++) mine = strchr(mine, ',') + 1;
    snprintf(bind, sizeof bind, "%.*s", (int)strcspn(mine + 7, ","), mine + 7);
    snprintf(state, sizeof state, "%s/%s", at, number);
    const struct tutti_serve_config config = {.bind = bind,
                                              .secret = getenv("TUTTI_SECRET"),
                                              .peers = peers,
                                              .number = me,
                                              .state = state,
                                              .options = {N, 60 * S, 30 * S, 100 * MS, 3600 * S, 0}};
    struct tutti_serve *served;
    if (tutti_serve_open(&config, &served) < 0) return 3;
    sleep(120);
    return 4;
}

static void start_lighthouse(uint32_t i)
{
    char number[8];

    snprintf(number, sizeof number, "%u", i);
    lighthouses[i] = spawn("lighthouse", number, folder);
}

static void choose_ports(void)
{
    char list[128];
    int fds[N];

    for (int i = 0; i < N; i++) { /* all at once, so that they are different ones */
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t n = sizeof at;
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fds[i], (const struct sockaddr *)&at, n), 0);
        assert_int_equal(getsockname(fds[i], (struct sockaddr *)&at, &n), 0);
        ports[i] = ntohs(at.sin_port);
        snprintf(addresses[i], sizeof addresses[i], "http://127.0.0.1:%u", ports[i]);
    }
    for (int i = 0; i < N; i++) close(fds[i]);
    list_from(0, list);
    setenv("PEERS", list, 1);
}

/* Whether it leads, by its page. */
static bool leads(uint32_t i)
{
    static const char ask[] = "GET /status.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(ports[i]), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval most = {2, 0};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char said[64] = "";

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    const bool good = connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 &&
                      send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) > 0 && recv(fd, said, sizeof said - 1, 0) > 0;
    close(fd);
    return good && strncmp(said, "HTTP/1.1 200", 12) == 0;
}

static uint32_t leader(void)
{
    for (int i = 0; i < 3000; i++) {
        for (uint32_t j = 0; j < N; j++)
            if (leads(j)) return j;
        usleep(10000);
    }
    fail_msg("nobody leads within 30 s");
    return 0;
}

/* ---- groups ---- */
struct group {
    pthread_t thread;
    struct tutti_ft_manager *manager;
    _Atomic int64_t step;
    int64_t first_id, last_id;
    uint32_t number;
    char text[TUTTI_ERROR_TEXT]; /* "": no error */
};
static struct group groups[N];
static _Atomic int64_t holds; /* the last group does not begin this step */

static void *train(void *arg)
{
    struct group *group = arg;
    struct tutti_ft_client *client;

    if (tutti_ft_client_open(tutti_ft_manager_address(group->manager), 10 * S, &client) < 0) goto error;
    for (int64_t step = 0; step < STEPS; step++) {
        const struct tutti_ft_request request = {.step = step, .checkpoint_metadata = ""};
        struct tutti_ft_place *place;
        bool commit;
        while (group->number == N - 1 && atomic_load(&holds) == step) usleep(1000);
        if (tutti_ft_client_quorum(client, &request, 30 * S, &place) < 0) goto error;
        const bool whole = place->replica_world_size == N && place->max_step == step && !place->heal;
        if (step == 0) group->first_id = place->quorum_id;
        group->last_id = place->quorum_id;
        tutti_ft_place_free(place);
        if (!whole) snprintf(group->text, sizeof group->text, "step %lld is not of all", (long long)step);
        if (tutti_ft_client_should_commit(client, 0, step, true, 30 * S, &commit) < 0 || !commit) goto error;
        atomic_store(&group->step, step + 1);
        usleep(10000);
    }
    tutti_ft_client_close(client);
    return NULL;
error:
    snprintf(group->text, sizeof group->text, "%s", tutti_last_error()->text);
    return NULL;
}

static void await_step(uint32_t i, int64_t step)
{
    for (int j = 0; j < 30000 && atomic_load(&groups[i].step) < step && !groups[i].text[0]; j++) usleep(1000);
}

/* The last group holds the others in the middle of a step; meanwhile whoever leads is lost. */
static void lose_leader_at(int64_t step, int signal)
{
    await_step(0, step);
    await_step(1, step);
    usleep(50000); /* both wait for the third one */
    const uint32_t lost = leader();
    kill(lighthouses[lost], signal);
    if (signal == SIGKILL) waitpid(lighthouses[lost], NULL, 0), start_lighthouse(lost);
}

static void test_loss_of_one_loses_no_step(void **state)
{
    char list[128], command[64];

    (void)state;
    if (tutti_serve_page_missing()[0]) skip();
    if (tutti_tls_available()) setenv("TUTTI_SECRET", "sesame", 1); /* all of them talk over TLS */
    choose_ports();
    assert_non_null(mkdtemp(folder));
    for (uint32_t i = 0; i < N; i++) start_lighthouse(i);
    leader();
    atomic_store(&holds, 10);
    for (uint32_t i = 0; i < N; i++) {
        const char name[2] = {(char)('a' + i), '\0'};
        list_from(i, list);
        groups[i].manager = manager_of(name, list, 1);
        groups[i].number = i;
    }
    for (uint32_t i = 0; i < N; i++) assert_int_equal(pthread_create(&groups[i].thread, NULL, train, &groups[i]), 0);
    lose_leader_at(10, SIGKILL);
    atomic_store(&holds, 30);
    lose_leader_at(30, SIGSTOP);
    atomic_store(&holds, -1);
    for (uint32_t i = 0; i < N; i++) {
        pthread_join(groups[i].thread, NULL);
        if (groups[i].text[0]) fail_msg("group %u, step %lld: %s", i, (long long)groups[i].step, groups[i].text);
        assert_int_equal(groups[i].step, STEPS);
        assert_int_equal(groups[i].first_id, groups[i].last_id); /* the members were never others */
        tutti_ft_manager_close(groups[i].manager);
    }
    for (uint32_t i = 0; i < N; i++) kill(lighthouses[i], SIGKILL), waitpid(lighthouses[i], NULL, 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "lighthouse") == 0) return be_lighthouse(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loss_of_one_loses_no_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
