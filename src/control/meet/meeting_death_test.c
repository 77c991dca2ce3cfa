/* SPDX-License-Identifier: BSD-3-Clause */

/* Ranks that are killed while they meet: who comes again in time is met, who does not is told to the others by name,
 * in time. */

#include "control/meet/acts_test.h"

/* The leader is killed while two wait for a fourth: they elect another one. When it is started again, and the fourth
 * comes, all meet; else the new leader says who died. The two are processes, or threads of one. */
static void test_leader_killed(void **state)
{
    char place[TUTTI_MEETING_PLACE];
    (void)state;
    place_of_acts(place);
    for (int threads = 0; threads < 2; threads++)
        for (int again = 0; again < 2; again++) {
            plan(4);
            pid_t leader = spawn(0, 1);
            await_leader(place);
            pid_t pids[2] = {spawn(1, threads ? 2 : 1), threads ? -1 : spawn(2, 1)};
            await_seated(place, 2);
            struct death death = kill_rank(0, leader);
            pid_t rest[2] = {again ? spawn(0, 1) : -1, again ? spawn(3, 1) : -1};
            for (int i = 0; i < 2 - threads; i++) reap(pids[i]);
            for (int i = 0; i < 2 && again; i++) reap(rest[i]);
            if (again) expect_world(4, "shm", false);
            for (size_t i = 1; i < 3 && !again; i++) expect_death(i, &death);
        }
}

/* A member that is killed while it waits may come again, too; when it does not, the others hear of it at once. */
static void test_member_killed(void **state)
{
    char place[TUTTI_MEETING_PLACE];
    (void)state;
    place_of_acts(place);
    for (int again = 0; again < 2; again++) {
        plan(4);
        pid_t leader = spawn(0, 1);
        await_leader(place);
        pid_t members[2] = {spawn(1, 1), spawn(3, 1)};
        await_seated(place, 2);
        struct death death = kill_rank(1, members[0]);
        pid_t rest[2] = {again ? spawn(1, 1) : -1, again ? spawn(2, 1) : -1};
        reap(leader);
        reap(members[1]);
        for (int i = 0; i < 2 && again; i++) reap(rest[i]);
        if (again) {
            expect_world(4, "shm", false);
            continue;
        }
        expect_death(0, &death);
        expect_death(3, &death);
        /* A rank that comes after that misses the others. They may all come again. */
        acts[2].timeout_ms = 300;
        run_threads(2, 1);
        expect_error(2, TUTTI_ERR_TIMEOUT, "ranks 0, 1 and 3 did not arrive: timed out after 300 ms");
        plan(4);
        run_processes(4);
        expect_world(4, "shm", false);
    }
}

/* A meeting of two that never becomes a world: what came of it, for each rank. */
struct encounter {
    struct tutti_meeting_request request;
    enum tutti_status status;
    struct tutti_error error;
    uint64_t delay_ms;
};

static void *encounter_run(void *arg)
{
    struct encounter *e = arg;
    struct tutti_meeting_result result;
    tutti_sleep_ns(e->delay_ms * TUTTI_NS_PER_MS);
    e->status = tutti_meet(ACTS_JOB, unique, &e->request, &result);
    if (e->status == TUTTI_OK) tutti_segment_release(result.segment);
    e->error = *tutti_last_error();
    return NULL;
}

static struct tutti_meeting_request encounter_request(int32_t rank, int32_t n, uint64_t timeout_ns)
{
    return (struct tutti_meeting_request){.rank = rank,
                                          .n_ranks = n,
                                          .version = "1.2.3",
                                          .build = 1,
                                          .host = tutti_host_id(""),
                                          .transport = "auto",
                                          .staging_bytes = 1 << 16,
                                          .started_ns = tutti_now_ns(),
                                          .deadline_ns = tutti_deadline_ns(timeout_ns)};
}

/* A process that has ended. */
static pid_t dead_process(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(0);
    reap(pid);
    return pid;
}

/* Rank 1 leads and knows of nobody; rank 2, in its process or another, comes from a leader that went. Dead: both are
 * told. Alive: it just withdrew, and is missed when the time is over. */
static void test_leader_before(void **state)
{
    char place[TUTTI_MEETING_PLACE];
    struct encounter *two = (struct encounter *)(void *)acts; /* memory that processes share */
    (void)state;
    place_of_acts(place);
    for (int process = 0; process < 2; process++)
        for (int alive = 0; alive < 2; alive++) {
            struct tutti_meeting_loss lost = tutti_meeting_loss_now(0, alive ? (int32_t)getpid() : dead_process());
            for (int i = 0; i < 2; i++)
                two[i] = (struct encounter){.request = encounter_request(1 + i, 3, TUTTI_NS_PER_S)};
            two[1].request.lost = &lost;
            pthread_t threads[2];
            pid_t pid = process ? fork() : -1;
            assert_true(!process || pid >= 0);
            if (pid == 0) two[1].delay_ms = 100, encounter_run(&two[1]), _exit(0);
            assert_int_equal(pthread_create(&threads[0], NULL, encounter_run, &two[0]), 0);
            await_leader(place);
            if (!process) assert_int_equal(pthread_create(&threads[1], NULL, encounter_run, &two[1]), 0);
            pthread_join(threads[0], NULL);
            if (process)
                reap(pid);
            else
                pthread_join(threads[1], NULL);
            for (int i = 0; i < 2; i++) {
                char sentence[128];
                snprintf(sentence, sizeof sentence,
                         "rank 0 (process %d) died while the ranks were meeting: connection closed by peer",
                         (int)lost.pid);
                assert_string_equal(two[i].error.text,
                                    alive ? "rank 0 did not arrive: timed out after 1000 ms" : sentence);
                assert_int_equal(two[i].status, alive ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_PEER_DEAD);
                assert_int_equal(two[i].error.peer, alive ? -1 : 0);
            }
        }
}

static void raw_send(void *arg, uint32_t link, const uint8_t *bytes, size_t n, bool memory)
{
    (void)link, (void)memory;
    if (tutti_meeting_send(*(const int *)arg, bytes, n, NULL) != TUTTI_OK) _exit(1);
}

/* A member that dies with the verdict in its hands. */
static void member_dies_late(const char *place, const struct tutti_meeting_request *request)
{
    uint8_t bytes[TUTTI_MEETING_FRAME_MAX + 1];
    struct tutti_meeting_member member;
    uint8_t card[TUTTI_CARD_RECORD_BYTES];
    const struct tutti_meeting_self self = tutti_meeting_self(request, card);
    const uint64_t deadline = tutti_deadline_ns(10 * TUTTI_NS_PER_S);
    enum tutti_status status;
    size_t n;
    int fd;
    if (tutti_meeting_connect(place, &fd) != TUTTI_OK) _exit(3);
    const struct tutti_meeting_out out = {.arg = &fd, .send = raw_send, .random = tutti_meeting_random};
    tutti_member_begin(&member, &self, &out);
    while (member.phase < TUTTI_MEMBER_GRANTED && tutti_now_ns() < deadline) {
        while ((status = tutti_meeting_recv(fd, bytes, &n, NULL)) == TUTTI_PENDING && tutti_now_ns() < deadline)
            tutti_sleep_ns(TUTTI_NS_PER_MS);
        if (status != TUTTI_OK) _exit(2);
        tutti_member_received(&member, bytes, n);
    }
    kill(getpid(), SIGKILL);
}

static void test_killed_with_verdict(void **state)
{
    char place[TUTTI_MEETING_PLACE], sentence[128];
    pthread_t thread;
    int status;
    (void)state;
    place_of_acts(place);
    struct encounter leader = {.request = encounter_request(0, 2, 20 * TUTTI_NS_PER_S)};
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct tutti_meeting_request request = encounter_request(1, 2, 20 * TUTTI_NS_PER_S);
        await_leader(place);
        member_dies_late(place, &request);
    }
    assert_int_equal(pthread_create(&thread, NULL, encounter_run, &leader), 0);
    pthread_join(thread, NULL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    snprintf(sentence, sizeof sentence,
             "rank 1 (process %d) died while the ranks were meeting: connection closed by peer", (int)pid);
    assert_int_equal(leader.status, TUTTI_ERR_PEER_DEAD);
    assert_string_equal(leader.error.text, sentence);
    assert_int_equal(leader.error.peer, 1);
}

#define ACT(test) cmocka_unit_test_setup_teardown(test, acts_setup, acts_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {ACT(test_leader_killed), ACT(test_member_killed), ACT(test_leader_before),
                                       ACT(test_killed_with_verdict)};
    setenv("TUTTI_LOG", "error", 0); /* the deaths are on purpose */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
