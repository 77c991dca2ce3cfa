/* SPDX-License-Identifier: BSD-3-Clause */

/* Meetings among strangers and squatters; meetings by a store; and memory that fails in turn. */

#include "control/meet/acts_test.h"
#include "process.h"
#include "served.h"

#include <dirent.h>
#include <inttypes.h>

/* ---- strangers ---- */

/* Garbage, oversized messages, silence, descriptors and messages out of turn, while two ranks wait for a third. */
static void test_strangers(void **state)
{
    static char junk[8192];
    char place[TUTTI_MEETING_PLACE];
    int fds[40];
    uint64_t seed = test_seed();
    (void)state;
    place_of_acts(place);
    for (int secret = 0; secret < (tutti_hmac_available() ? 2 : 1); secret++) {
        plan(3);
        for (int i = 0; i < 3; i++) acts[i].secret = secret ? "sesame" : NULL;
        acts[2].delay_ms = 500;
        pid_t pids[3] = {spawn(0, 1), spawn(1, 1), spawn(2, 1)};
        await_leader(place);
        for (int i = 0; i < 40; i++) {
            fds[i] = raw_connect(place);
            assert_true(fds[i] >= 0);
            for (size_t b = 0; b < sizeof junk; b++) junk[b] = (char)tutti_random64(&seed);
            static const char front[] = {'T', 'U', 'M', 'T', TUTTI_MEETING_VERSION};
            if (i % 2) memcpy(junk, front, sizeof front), junk[5] = (char)(i % 8), junk[6] = junk[7] = 0;
            if (i % 3) send(fds[i], junk, (size_t)(tutti_random64(&seed) % sizeof junk), MSG_NOSIGNAL);
            if (i % 5 == 0) close(fds[i]), fds[i] = -1;
        }
        for (int i = 0; i < 3; i++) reap(pids[i]);
        for (int i = 0; i < 40; i++)
            if (fds[i] >= 0) close(fds[i]);
        expect_world(3, "shm", secret);
    }
}

/* A process of another user is refused without a word, and refuses the leader in its turn. */
static void test_foreign_user(void **state)
{
    char place[TUTTI_MEETING_PLACE];
    (void)state;
    if (geteuid() != 0) skip(); /* only root can become another user */
    place_of_acts(place);
    plan(2);
    acts[1].delay_ms = 400;
    pid_t pids[2] = {spawn(0, 1), spawn(1, 1)};
    await_leader(place);
    pid_t foreign = fork();
    assert_true(foreign >= 0);
    if (foreign == 0) {
        char byte;
        int fd;
        if (setresuid(65534, 65534, 65534) != 0) _exit(1);
        if (tutti_meeting_connect(place, &fd) != TUTTI_ERR_AUTH) _exit(2);
        fd = raw_connect(place);
        _exit(fd >= 0 && recv(fd, &byte, 1, 0) == 0 ? 0 : 3);
    }
    reap(foreign);
    reap(pids[0]);
    reap(pids[1]);
    expect_world(2, "shm", false);
}

/* Another user holds the name, or a child of a leader that is gone: the ranks meet elsewhere. */
static void test_squatters(void **state)
{
    char place[TUTTI_MEETING_PLACE];
    (void)state;
    place_of_acts(place);
    for (int foreign = geteuid() == 0; foreign >= 0; foreign--) {
        plan(2);
        pid_t squatter = fork();
        assert_true(squatter >= 0);
        if (squatter == 0) {
            int fd;
            if (foreign && setresuid(65534, 65534, 65534) != 0) _exit(1);
            if (tutti_meeting_listen(place, &fd) != TUTTI_OK) _exit(2);
            if (!foreign) shutdown(fd, SHUT_RDWR);
            for (;;) pause();
        }
        tutti_sleep_ns(100 * TUTTI_NS_PER_MS);
        run_processes(2);
        assert_int_equal(kill(squatter, SIGKILL), 0);
        waitpid(squatter, NULL, 0);
        expect_world(2, "shm", false);
    }
}

/* Ranks in two namespaces of processes, whose numbers may be the same, are of one host where TUTTI_HOST says so. */
static void test_namespaces(void **state)
{
    (void)state;
    plan(2);
    setenv("TUTTI_HOST", "same", 1);
    pid_t pids[2];
    for (size_t i = 0; i < 2; i++) {
        assert_true((pids[i] = fork()) >= 0);
        if (pids[i] > 0) continue;
        if (unshare(CLONE_NEWPID) != 0) _exit(77);
        const pid_t inside = fork(); /* process 1 of its namespace */
        if (inside == 0) act_run(&acts[i]), _exit(0);
        _exit(inside < 0 || waitpid(inside, NULL, 0) != inside);
    }
    int status[2];
    for (size_t i = 0; i < 2; i++) assert_int_equal(waitpid(pids[i], &status[i], 0), pids[i]);
    unsetenv("TUTTI_HOST");
    if (WIFEXITED(status[0]) && WEXITSTATUS(status[0]) == 77) skip(); /* no namespaces for this user */
    expect_world(2, "shm", false);
}

/* Another build that knows the secret is a sentence on both sides. */
static void test_other_build(void **state)
{
    char place[TUTTI_MEETING_PLACE];
    struct tutti_meeting_result result;
    int fd;
    (void)state;
    place_of_acts(place);
    plan(2);
    pid_t pid = spawn(0, 1);
    await_leader(place);
    const struct tutti_meeting_request other = {.rank = 1,
                                                .n_ranks = 2,
                                                .version = "9.9.9",
                                                .build = 1,
                                                .host = tutti_host_id(""),
                                                .transport = "auto",
                                                .started_ns = tutti_now_ns(),
                                                .deadline_ns = tutti_deadline_ns(5 * TUTTI_NS_PER_S)};
    assert_int_equal(tutti_meeting_connect(place, &fd), TUTTI_OK);
    assert_int_equal(tutti_meeting_join(fd, -1, &other, &result), TUTTI_ERR_CONFIG);
    assert_non_null(strstr(tutti_last_error()->text, "another build of tutti"));
    reap(pid);
    expect_error(0, TUTTI_ERR_CONFIG, "runs another build of tutti: 9.9.9 there");
}

/* ---- by a store ---- */

static struct served server;

static void *store_thread(void *arg)
{
    act_run_by(arg, server.address);
    return NULL;
}

static void test_store(void **state)
{
    (void)state;
    served_open(&server, NULL);
    for (int round = 0; round < 3; round++) { /* the same name again and again */
        plan(5);
        pid_t pids[5];
        for (size_t i = 0; i < 5; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) act_run_by(&acts[i], server.address), _exit(0);
        }
        for (size_t i = 0; i < 5; i++) reap(pids[i]);
        expect_world(5, "shm", false);
        pthread_t threads[5];
        plan(5);
        for (size_t i = 0; i < 5; i++) assert_int_equal(pthread_create(&threads[i], NULL, store_thread, &acts[i]), 0);
        for (size_t i = 0; i < 5; i++) pthread_join(threads[i], NULL);
        expect_world(5, "self", false);
    }
    served_close(&server);
}

/* A store of the caller's has statuses alone: what it could not do is said all the same, whatever failed before. */
static enum tutti_status add_in_vain(void *self, const char *key, int64_t delta, int64_t *value)
{
    (void)self, (void)key, (void)delta, (void)value;
    return TUTTI_ERR_SYSTEM;
}

static void test_store_that_fails(void **state)
{
    static const struct tutti_store_ops ops = {.size = sizeof ops, .add = add_in_vain};
    const struct tutti_store store = {.ops = &ops};
    const struct tutti_meeting_request request = {.n_ranks = 2, .deadline_ns = tutti_deadline_ns(TUTTI_NS_PER_S)};
    struct tutti_meeting_result result;
    (void)state;
    tutti_fail(TUTTI_ERR_MEMORY, "something else");
    assert_int_equal(tutti_meet_by_store(&store, "job", &request, &result), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error()->text, "the store can not add to key tutti/job/0/"));
}

/* A meeting that failed, by absence or by the leader's death, does not spoil the next one of the same name. */
static void test_store_after_failure(void **state)
{
    (void)state;
    served_open(&server, NULL);
    for (int killed = 0; killed < 2; killed++) {
        plan(3);
        pid_t pids[3];
        for (size_t i = 0; i < 2; i++) {
            acts[i].timeout_ms = killed ? 20000 : 1500;
            acts[i].delay_ms = 100 * i;
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) act_run_by(&acts[i], server.address), _exit(0);
        }
        tutti_sleep_ns(100 * TUTTI_NS_PER_MS + SEATED_NS);
        struct death death = {.at_ns = 0};
        if (killed) death = kill_rank(0, pids[0]);
        for (size_t i = (size_t)killed; i < 2; i++) reap(pids[i]);
        if (killed)
            expect_death(1, &death);
        else
            expect_error(1, TUTTI_ERR_TIMEOUT, "rank 2 did not arrive");
        plan(3);
        for (size_t i = 0; i < 3; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) act_run_by(&acts[i], server.address), _exit(0);
        }
        for (size_t i = 0; i < 3; i++) reap(pids[i]);
        expect_world(3, "shm", false);
    }
    served_close(&server);
}

/* The leader is on another host. */
static void test_store_other_host(void **state)
{
    struct tutti_store store;
    char key[128];
    int64_t value;
    (void)state;
    served_open(&server, NULL);
    assert_int_equal(tutti_store_open(server.address, NULL, tutti_deadline_ns(TUTTI_NS_PER_S), &store), TUTTI_OK);
    static const char text[] = "node17 ";
    snprintf(key, sizeof key, "tutti/%s/0/hosts", unique);
    assert_int_equal(store.ops->add(store.self, key, 1, &value), TUTTI_OK);
    snprintf(key, sizeof key, "tutti/%s/0/gate/0", unique);
    assert_int_equal(store.ops->set(store.self, key, text, sizeof text), TUTTI_OK);
    plan(2);
    act_run_by(&acts[1], server.address);
    expect_error(1, TUTTI_ERR_UNSUPPORTED, "node17");
    snprintf(key, sizeof key, "tutti/%s/0/%016" PRIx64 ".0/place", unique, tutti_host_id(NULL));
    assert_int_equal(store.ops->set(store.self, key, "gibberish", 9), TUTTI_OK);
    act_run_by(&acts[1], server.address);
    expect_error(1, TUTTI_ERR_PROTOCOL, "gibberish");
    tutti_store_close(&store);
    served_close(&server);
}

/* ---- nothing is left behind ---- */

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

/* The n-th allocation of one rank fails, for every n: it gets a sentence, the other one a sentence or a world, and the
 * process has as many descriptors and threads as before. */
static void test_memory_fails(void **state)
{
    (void)state;
    plan(2);
    run_threads(0, 2); /* whatever is opened once and kept */
    int n_fds = count_entries("/proc/self/fd");
    size_t n_threads = process_threads();
    for (int failing = 0; failing < 2; failing++) {
        bool failed = true;
        uint64_t n = 0;
        uint64_t patience_ms = 120;
        while (failed) {
            assert_true(++n < 500);
            plan(2);
            acts[failing].fail_at = n;
            acts[1].delay_ms = 5; /* rank 0 leads mostly */
            for (int i = 0; i < 2; i++) acts[i].timeout_ms = patience_ms;
            run_threads(0, 2);
            failed = acts[failing].status != TUTTI_OK;
            if (acts[failing].status == TUTTI_ERR_TIMEOUT && patience_ms < 2000) { /* the machine is busy: once more */
                patience_ms *= 2;
                n--;
                continue;
            }
            for (int i = 0; i < 2; i++) {
                if (acts[i].status < 0) assert_true(acts[i].text[0] != '\0');
                assert_true(acts[i].took_ns < 20 * TUTTI_NS_PER_S);
            }
            if (failed && acts[failing].status != TUTTI_ERR_MEMORY)
                fail_msg("allocation %d of rank %d: %s \"%s\"", (int)n, failing,
                         tutti_status_name(acts[failing].status), acts[failing].text);
            assert_int_equal(count_entries("/proc/self/fd"), n_fds);
        }
        assert_true(n > 3);
    }
    assert_int_equal(process_threads(), n_threads);
}

/* After failures of all kinds no descriptor is left, in the process that leads as in the others. */
static void test_descriptors(void **state)
{
    (void)state;
    plan(2);
    run_threads(0, 2);
    int n_fds = count_entries("/proc/self/fd");
    for (int round = 0; round < 4; round++) {
        plan(3);
        acts[0].timeout_ms = acts[1].timeout_ms = round == 3 ? 0 : 100;
        if (round == 1) acts[1].n_ranks = 4;
        if (round == 2) acts[2].option = (struct tutti_option){"slice", "64K"};
        if (round == 3)
            for (int i = 0; i < 3; i++) acts[i].option = (struct tutti_option){"transport", "shm"};
        run_threads(0, round < 2 ? 2 : 3);
        assert_int_equal(acts[0].status == TUTTI_OK, round == 3);
        assert_int_equal(count_entries("/proc/self/fd"), n_fds);
    }
    /* A member process, with the leader in this one. */
    plan(2);
    pid_t member = fork();
    assert_true(member >= 0);
    if (member == 0) {
        int before = count_entries("/proc/self/fd");
        acts[1].delay_ms = 50;
        act_run(&acts[1]);
        _exit(count_entries("/proc/self/fd") == before ? 0 : 1);
    }
    run_threads(0, 1);
    reap(member);
    expect_world(2, "shm", false);
    assert_int_equal(count_entries("/proc/self/fd"), n_fds);
}

/* ---- the end of a peer ---- */

static bool ends_early;
ssize_t __real_recvmsg(int fd, struct msghdr *header, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *header, int flags);
/* An end that the kernel tells before the last message: Linux does so when the peer sends and closes during the call.
 */
ssize_t __wrap_recvmsg(int fd, struct msghdr *header, int flags)
{
    if (!ends_early) return __real_recvmsg(fd, header, flags);
    ends_early = false;
    header->msg_controllen = 0;
    return 0;
}

static void test_last_message(void **state)
{
    const uint8_t sent[] = "a message";
    uint8_t got[TUTTI_MEETING_FRAME_MAX + 1];
    size_t n = 0;
    int fds[2], more[2] = {-1, -1};
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(tutti_meeting_recv(fds[0], got, &n, NULL), TUTTI_PENDING);
    assert_int_equal(tutti_meeting_send(fds[1], sent, sizeof sent, fds), TUTTI_OK);
    close(fds[1]);
    ends_early = true;
    assert_int_equal(tutti_meeting_recv(fds[0], got, &n, more), TUTTI_OK);
    assert_false(ends_early);
    assert_true(more[0] >= 0 && more[1] >= 0);
    close(more[0]), close(more[1]);
    assert_int_equal(n, sizeof sent);
    assert_memory_equal(got, sent, n);
    assert_int_equal(tutti_meeting_recv(fds[0], got, &n, NULL), TUTTI_AGAIN);
    close(fds[0]);
}

#define ACT(test) cmocka_unit_test_setup_teardown(test, acts_setup, acts_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ACT(test_strangers),        ACT(test_foreign_user), ACT(test_squatters),        ACT(test_namespaces),
        ACT(test_other_build),      ACT(test_store),        ACT(test_store_that_fails), ACT(test_store_after_failure),
        ACT(test_store_other_host), ACT(test_memory_fails), ACT(test_descriptors),      ACT(test_last_message),
    };
    setenv("TUTTI_LOG", "error", 0); /* the refusals are on purpose */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
