/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of members: some leave, die by SIGKILL, or whose process number belongs to somebody else. */

#include "control/host_world.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static const struct backend shm = {"shm", "shm", "", true, 0, NULL};

static void leaving_is_seen(void **state)
{
    (void)state;
    struct control_world world = control_world_make(&shm, 3, true);
    control_member_open(&world, 0);
    struct tutti_control *c = world.controls[0];
    assert_int_equal(c->ops->life(c, 0), TUTTI_LIFE_ALIVE);
    assert_int_equal(c->ops->life(c, 1), TUTTI_LIFE_ALIVE); /* not there yet */
    control_member_open(&world, 1);
    assert_int_equal(c->ops->life(c, 1), TUTTI_LIFE_ALIVE);
    control_member_close(&world, 1);
    assert_int_equal(c->ops->life(c, 1), TUTTI_LIFE_LEFT);

    struct tutti_segment *handle = test_handle(&world.wire);
    struct tutti_control *again;
    assert_int_equal(tutti_host_control_open(handle, 1, &again), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_host_control_open(handle, 3, &again), TUTTI_ERR_ARGUMENT);
    tutti_segment_release(handle); /* a failed open leaves it to the caller */
    control_world_free(&world);
}

/* A segment without room for control, or of a build that keeps other things there, is refused with a sentence. */
static void another_build_is_refused(void **state)
{
    const struct tutti_segment_config config = {.n = 2, .staging_bytes = 1 << 20, .heap_bytes = 1 << 20};
    struct tutti_segment *segment;
    struct tutti_control *c;
    (void)state;
    assert_int_equal(tutti_segment_create(&config, false, &segment), TUTTI_OK);
    assert_int_equal(tutti_host_control_open(segment, 0, &c), TUTTI_ERR_PROTOCOL);
    assert_non_null(strstr(tutti_last_error()->text, "has 0 bytes for control"));
    tutti_segment_release(segment);
}

/* Forks member 1, which publishes, raises and sends on and on. */
static pid_t busy_fork(struct control_world *world)
{
    const struct tutti_failure failure = {.culprit = 1, .error = {.status = TUTTI_ERR_ABORTED, .text = "x"}};
    const struct tutti_board board = {.seq = 1, .state = TUTTI_BOARD_IN_USE};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    control_member_open(world, 1);
    struct tutti_control *c = world->controls[1];
    for (uint64_t seq = 0; seq < UINT64_MAX; seq++) {
        test_send(world->wire.members[1], 0, 100, seq);
        c->ops->publish(c, 1, &board);
        if (seq % 16 == 0) c->ops->raise(c, &failure);
    }
    _exit(0);
}

static void await_first_packet(struct control_world *world)
{
    struct tutti_transport *t = world->wire.members[0];
    struct tutti_event arrival;
    assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
    t->ops->release(t);
}

/* Killed at a random instant: what it had told is whole, and its death is seen within half a second. */
static void death_is_seen(void **state)
{
    uint64_t random = test_seed();
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct control_world world = control_world_make(&shm, 2, true);
        control_member_open(&world, 0);
        struct tutti_control *c = world.controls[0];
        pid_t child = busy_fork(&world);
        struct tutti_failure failure;
        struct tutti_board board;
        await_first_packet(&world);
        assert_int_equal(c->ops->life(c, 1), TUTTI_LIFE_ALIVE);
        tutti_sleep_ns(tutti_random64(&random) % (5 * TUTTI_NS_PER_MS));
        kill(child, SIGKILL); /* not reaped: a zombie is dead, too */
        const uint64_t end = tutti_deadline_ns(TUTTI_NS_PER_S / 2);
        while (c->ops->life(c, 1) != TUTTI_LIFE_DEAD) assert_true(tutti_now_ns() < end);
        while (c->ops->failure(c, &failure) == TUTTI_OK) assert_string_equal(failure.error.text, "x");
        assert_int_equal(c->ops->peek(c, 1, 1, &board), TUTTI_OK);
        if (board.state != TUTTI_BOARD_EMPTY) assert_int_equal(board.seq, 1);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(c->ops->life(c, 1), TUTTI_LIFE_DEAD);
        control_world_free(&world);
    }
}

/* Forks member 1 into a process that does not end: it executes another program, or is in a namespace of
 * processes of its own, in which its number says nothing here, until it is killed. */
static pid_t other_fork(struct control_world *world, bool executes)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!executes && unshare(CLONE_NEWPID) != 0) _exit(1); /* the pipe ends */
        if (!executes && fork() > 0) pause();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        control_member_open(world, 1);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        if (executes) execlp("sleep", "sleep", "100", (char *)NULL);
        pause();
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) {
        waitpid(child, NULL, 0);
        child = -1;
    }
    close(ready[0]);
    return child;
}

static void another_program_is_a_death(void **state)
{
    (void)state;
    struct control_world world = control_world_make(&shm, 2, true);
    control_member_open(&world, 0);
    struct tutti_control *c = world.controls[0];
    const pid_t child = other_fork(&world, true);
    const uint64_t end = tutti_deadline_ns(TEST_DEADLINE_NS);
    while (c->ops->life(c, 1) != TUTTI_LIFE_DEAD) assert_true(tutti_now_ns() < end);
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0); /* it runs on */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    control_world_free(&world);
}

static void a_death_in_another_namespace_is_seen(void **state)
{
    (void)state;
    struct control_world world = control_world_make(&shm, 2, true);
    control_member_open(&world, 0);
    struct tutti_control *c = world.controls[0];
    const pid_t child = other_fork(&world, false);
    if (child > 0) {
        assert_int_equal(c->ops->life(c, 1), TUTTI_LIFE_ALIVE);
        kill(child, SIGKILL); /* and its child with it */
        waitpid(child, NULL, 0);
        const uint64_t end = tutti_deadline_ns(TEST_DEADLINE_NS);
        while (c->ops->life(c, 1) != TUTTI_LIFE_DEAD) assert_true(tutti_now_ns() < end);
    }
    control_world_free(&world);
    if (child < 0) skip(); /* no namespaces for this user */
}

struct watcher {
    struct tutti_control *c;
    enum tutti_life life;
};

static void *watch_until_gone(void *arg)
{
    struct watcher *w = arg;
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    while ((w->life = w->c->ops->life(w->c, 1)) == TUTTI_LIFE_ALIVE && tutti_now_ns() < deadline) continue;
    return NULL;
}

static void death_is_seen_by_any_thread(void **state)
{
    const int n_fds = test_n_fds();
    struct control_world world = control_world_make(&shm, 2, true);
    (void)state;
    control_member_open(&world, 0);
    pid_t child = busy_fork(&world);
    await_first_packet(&world);
    struct watcher watchers[3] = {{.c = world.controls[0]}, {.c = world.controls[0]}, {.c = world.controls[0]}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, watch_until_gone, &watchers[i]), 0);
    tutti_sleep_ns(5 * TUTTI_NS_PER_MS);
    kill(child, SIGKILL);
    watch_until_gone(&watchers[2]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(watchers[i].life, TUTTI_LIFE_DEAD);
    waitpid(child, NULL, 0);
    control_world_free(&world);
    assert_int_equal(test_n_fds(), n_fds); /* two opened a pidfd at once, one closed its own */
}

/* A number that now belongs to another process is not the member. */
static void a_reused_pid_is_not_the_member(void **state)
{
    struct control_world world = control_world_make(&shm, 3, false);
    struct tutti_control *c = world.controls[0];
    struct tutti_host_life *lives = tutti_host_control_of(c)->lives;
    (void)state;
    pid_t other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    atomic_store(&lives[1].pid, (int32_t)other); /* with the start time of another */
    assert_int_equal(c->ops->life(c, 1), TUTTI_LIFE_DEAD);
    atomic_store(&lives[2].pid, INT32_MAX - 1); /* nobody here, but a number of another namespace says nothing */
    atomic_fetch_add(&lives[2].pid_namespace, 1);
    assert_int_equal(c->ops->life(c, 2), TUTTI_LIFE_ALIVE);
    atomic_fetch_sub(&lives[2].pid_namespace, 1);
    assert_int_equal(c->ops->life(c, 2), TUTTI_LIFE_DEAD);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    control_world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaving_is_seen),
        cmocka_unit_test(another_build_is_refused),
        cmocka_unit_test(death_is_seen),
        cmocka_unit_test(death_is_seen_by_any_thread),
        cmocka_unit_test(another_program_is_a_death),
        cmocka_unit_test(a_death_in_another_namespace_is_seen),
        cmocka_unit_test(a_reused_pid_is_not_the_member),
    };
    return cmocka_run_group_tests_name("control.life", tests, NULL, NULL);
}
