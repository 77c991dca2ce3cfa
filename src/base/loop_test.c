/* SPDX-License-Identifier: BSD-3-Clause */

/* The loop: what is registered is called on its thread, in order, as often as due; what is forgotten is not called any
 * more, not even in the same turn. */

#include "test.h"

#include "base/loop.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define MS TUTTI_NS_PER_MS
#define PATIENCE_NS (30 * TUTTI_NS_PER_S)

static struct tutti_loop *loop;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(tutti_loop_open("tutti-test", &loop), TUTTI_OK);
    assert_int_equal(tutti_loop_start(loop), TUTTI_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tutti_loop_close(loop);
    return 0;
}

static void wait_for(_Atomic uint32_t *count, uint32_t n)
{
    const uint64_t due = tutti_deadline_ns(PATIENCE_NS);
    for (uint32_t now; (now = atomic_load(count)) < n;) {
        assert_true(tutti_now_ns() < due);
        tutti_futex_wait(count, now, due);
    }
}

static void count_up(_Atomic uint32_t *count)
{
    atomic_fetch_add(count, 1);
    tutti_futex_wake(count, 1);
}

/* ---- posts and runs ---- */

#define N_THREADS 4
#define N_POSTS 2000

static struct tutti_loop_post posts[N_THREADS][N_POSTS];
static _Atomic uint32_t n_called;
static uint32_t next_of[N_THREADS]; /* the loop's thread alone writes it */

static void post_called(struct tutti_loop_post *post)
{
    const uint32_t i = (uint32_t)(post - posts[0]), thread = i / N_POSTS;
    assert_int_equal(i % N_POSTS, next_of[thread]++);
    assert_false(atomic_load(&post->posted));
    atomic_fetch_add(&n_called, 1);
}

static void ask_calls(void *arg)
{
    *(uint32_t *)arg = atomic_load(&n_called);
}

static void *post_all(void *arg)
{
    const uint32_t thread = (uint32_t)(uintptr_t)arg;
    for (uint32_t i = 0; i < N_POSTS; i++) {
        posts[thread][i].call = post_called;
        tutti_loop_post(loop, &posts[thread][i]);
    }
    uint32_t seen = 0;
    tutti_loop_run(loop, ask_calls, &seen);
    assert_true(seen >= N_POSTS); /* its own posts, at least */
    return NULL;
}

static void posts_of_many_threads_are_called_once_and_in_order(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    atomic_store(&n_called, 0);
    memset(next_of, 0, sizeof next_of);
    for (uintptr_t i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, (void *)i), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&n_called), N_THREADS * N_POSTS);
}

static _Atomic uint32_t n_again;

static void post_again(struct tutti_loop_post *post)
{
    for (int i = 0; i < 2 && atomic_load(&n_again) < 5; i++) tutti_loop_post(loop, post); /* twice is once */
    count_up(&n_again);
}

static void nested(void *arg)
{
    uint32_t seen = 7;
    tutti_loop_run(loop, ask_calls, &seen); /* at once: it is the loop's thread */
    *(bool *)arg = seen != 7;
}

static void a_post_may_post_itself_and_a_run_may_run(void **state)
{
    (void)state;
    struct tutti_loop_post post = {.call = post_again};
    bool nested_ran = false;
    atomic_store(&n_again, 0);
    tutti_loop_post(loop, &post);
    wait_for(&n_again, 6);
    tutti_loop_run(loop, nested, &nested_ran);
    assert_true(nested_ran);
    assert_int_equal(atomic_load(&n_again), 6);
}

/* ---- timers ---- */

struct timed {
    struct tutti_loop_timer timer; /* first */
    uint32_t i;
};
static uint32_t order[8];
static uint64_t called_ns[8];
static _Atomic uint32_t n_due;

static void timed_due(struct tutti_loop_timer *timer)
{
    const struct timed *timed = (const struct timed *)timer;
    const uint32_t n = atomic_load(&n_due);
    assert_int_equal(timer->due_ns, 0);
    order[n] = timed->i, called_ns[n] = tutti_now_ns();
    count_up(&n_due);
}

static struct timed timed[6];
static uint64_t base_ns;

static void timers_begin(void *arg)
{
    static const uint64_t after_ms[6] = {30, 10, 50, 20, 0, 40};
    (void)arg;
    base_ns = tutti_now_ns();
    for (uint32_t i = 0; i < 6; i++) {
        timed[i] = (struct timed){.timer = {.due = timed_due}, .i = i};
        tutti_loop_at(loop, &timed[i].timer, base_ns + after_ms[i] * MS);
    }
    tutti_loop_at(loop, &timed[1].timer, base_ns + 35 * MS); /* moved behind 0 */
    tutti_loop_stop(loop, &timed[5].timer);
    tutti_loop_stop(loop, &timed[5].timer); /* again: nothing */
}

static void timers_come_in_the_order_of_their_times(void **state)
{
    (void)state;
    static const uint32_t expected[] = {4, 3, 0, 1, 2}, at_ms[] = {0, 20, 30, 35, 50};
    atomic_store(&n_due, 0);
    tutti_loop_run(loop, timers_begin, NULL);
    wait_for(&n_due, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(order[i], expected[i]);
        assert_true(called_ns[i] >= base_ns + at_ms[i] * MS); /* never early */
    }
    tutti_sleep_ns(20 * MS);
    assert_int_equal(atomic_load(&n_due), 5);
}

static struct tutti_loop_timer busy;
static _Atomic uint32_t n_busy;

static void busy_due(struct tutti_loop_timer *timer)
{
    count_up(&n_busy);
    tutti_loop_at(loop, timer, 1); /* long past */
}

static void busy_begin(void *arg)
{
    (void)arg;
    busy = (struct tutti_loop_timer){.due = busy_due};
    tutti_loop_at(loop, &busy, 1);
}

static void busy_end(void *arg)
{
    (void)arg;
    tutti_loop_stop(loop, &busy);
}

static void a_timer_that_is_always_due_leaves_time_for_others(void **state)
{
    (void)state;
    atomic_store(&n_busy, 0);
    tutti_loop_run(loop, busy_begin, NULL);
    wait_for(&n_busy, 100);
    tutti_loop_run(loop, busy_end, NULL); /* comes through, too */
    const uint32_t n = atomic_load(&n_busy);
    tutti_sleep_ns(5 * MS);
    assert_int_equal(atomic_load(&n_busy), n);
}

/* ---- descriptors ---- */

struct piped {
    struct tutti_loop_fd watch; /* first */
    int write_fd;
    struct piped *other; /* to be forgotten by this one */
    _Atomic uint32_t n_ready, events;
};
static struct piped pipes[2];

static void piped_ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct piped *piped = (struct piped *)w;
    char byte;
    atomic_store(&piped->events, events);
    if ((events & EPOLLIN) && read(w->fd, &byte, 1) == 1 && piped->other) tutti_loop_forget(loop, &piped->other->watch);
    if (events & EPOLLHUP) tutti_loop_forget(loop, w);
    count_up(&piped->n_ready);
}

static void pipes_watch(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) assert_int_equal(tutti_loop_watch(loop, &pipes[i].watch, EPOLLIN), TUTTI_OK);
    /* Both are ready before the loop looks. */
    for (int i = 0; i < 2; i++) assert_int_equal(write(pipes[i].write_fd, "x", 1), 1);
}

static void pipes_open(void)
{
    for (int i = 0; i < 2; i++) {
        int fds[2];
        assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
        memset(&pipes[i], 0, sizeof pipes[i]);
        pipes[i].watch = (struct tutti_loop_fd){.fd = fds[0], .ready = piped_ready};
        pipes[i].write_fd = fds[1];
    }
}

static void pipes_forget(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) tutti_loop_forget(loop, &pipes[i].watch);
}

static void pipes_close(void)
{
    tutti_loop_run(loop, pipes_forget, NULL);
    for (int i = 0; i < 2; i++) {
        close(pipes[i].watch.fd);
        if (pipes[i].write_fd >= 0) close(pipes[i].write_fd);
    }
}

static void what_is_forgotten_is_not_called_even_in_the_same_turn(void **state)
{
    (void)state;
    pipes_open();
    pipes[0].other = &pipes[1], pipes[1].other = &pipes[0];
    tutti_loop_run(loop, pipes_watch, NULL);
    const uint64_t due = tutti_deadline_ns(PATIENCE_NS);
    while (atomic_load(&pipes[0].n_ready) + atomic_load(&pipes[1].n_ready) == 0 && tutti_now_ns() < due)
        tutti_sleep_ns(MS);
    tutti_sleep_ns(10 * MS);
    assert_int_equal(atomic_load(&pipes[0].n_ready) + atomic_load(&pipes[1].n_ready), 1);
    pipes_close();
}

static void pipes_pause(void *arg)
{
    (void)arg;
    tutti_loop_change(loop, &pipes[0].watch, 0);
}

static void pipes_resume(void *arg)
{
    (void)arg;
    tutti_loop_change(loop, &pipes[0].watch, EPOLLIN);
}

static void descriptors_are_level_triggered_and_may_pause(void **state)
{
    (void)state;
    pipes_open();
    tutti_loop_run(loop, pipes_watch, NULL);
    for (int i = 0; i < 2; i++) wait_for(&pipes[i].n_ready, 1);
    assert_int_equal(write(pipes[0].write_fd, "abc", 3), 3); /* a byte is read each time */
    wait_for(&pipes[0].n_ready, 4);
    tutti_loop_run(loop, pipes_pause, NULL);
    assert_int_equal(write(pipes[0].write_fd, "d", 1), 1);
    tutti_sleep_ns(10 * MS);
    assert_int_equal(atomic_load(&pipes[0].n_ready), 4);
    tutti_loop_run(loop, pipes_resume, NULL);
    wait_for(&pipes[0].n_ready, 5);
    close(pipes[0].write_fd);
    pipes[0].write_fd = -1;
    wait_for(&pipes[0].n_ready, 6);
    assert_true(atomic_load(&pipes[0].events) & EPOLLHUP);
    pipes_close();
}

static void a_closed_descriptor_can_not_be_watched(void **state)
{
    (void)state;
    struct tutti_loop *other;
    struct tutti_loop_fd w = {.fd = -1, .ready = piped_ready};
    assert_int_equal(tutti_loop_open("tutti-other", &other), TUTTI_OK);
    assert_int_equal(tutti_loop_watch(other, &w, EPOLLIN), TUTTI_ERR_SYSTEM);
    tutti_loop_close(other); /* one that never started */
}

/* ---- the thread ---- */

static void look(void *arg)
{
    sigset_t blocked;
    char name[16];
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    pthread_getname_np(pthread_self(), name, sizeof name);
    *(bool *)arg = sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGINT) == 1 &&
                   sigismember(&blocked, SIGUSR1) == 1 && strcmp(name, "tutti-test") == 0;
}

static void the_thread_has_its_name_and_takes_no_signals(void **state)
{
    (void)state;
    bool good = false;
    tutti_loop_run(loop, look, &good);
    assert_true(good);
}

static uint32_t descriptors(void)
{
    uint32_t n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void a_loop_leaves_nothing_behind(void **state)
{
    (void)state;
    const uint32_t before = descriptors();
    for (int i = 0; i < 20; i++) {
        struct tutti_loop *other;
        assert_int_equal(tutti_loop_open("tutti-other-name-that-is-long", &other), TUTTI_OK);
        assert_int_equal(tutti_loop_start(other), TUTTI_OK);
        tutti_loop_close(other);
    }
    assert_int_equal(descriptors(), before);
    tutti_alloc_fail_at(1);
    struct tutti_loop *none = NULL;
    assert_int_equal(tutti_loop_open("tutti-none", &none), TUTTI_ERR_MEMORY);
    tutti_alloc_fail_at(0);
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(posts_of_many_threads_are_called_once_and_in_order),
        cmocka_unit_test(a_post_may_post_itself_and_a_run_may_run),
        cmocka_unit_test(timers_come_in_the_order_of_their_times),
        cmocka_unit_test(a_timer_that_is_always_due_leaves_time_for_others),
        cmocka_unit_test(what_is_forgotten_is_not_called_even_in_the_same_turn),
        cmocka_unit_test(descriptors_are_level_triggered_and_may_pause),
        cmocka_unit_test(a_closed_descriptor_can_not_be_watched),
        cmocka_unit_test(the_thread_has_its_name_and_takes_no_signals),
        cmocka_unit_test(a_loop_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
