/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping on words and descriptors: whichever fires ends the sleep, and nothing of it is left for the next one. */

#include "base/poller.h"

#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

enum { N = 3 };
static _Atomic uint32_t words[N];
static int fds[N];

struct firing {
    int word, fd; /* -1: none */
};

static void *fire(void *arg)
{
    const struct firing *firing = arg;
    const uint64_t one = 1;
    tutti_sleep_ns(2 * TUTTI_NS_PER_MS);
    if (firing->word >= 0) {
        atomic_fetch_add(&words[firing->word], 1);
        tutti_futex_wake(&words[firing->word], 1);
    }
    if (firing->fd >= 0) assert_int_equal(write(fds[firing->fd], &one, sizeof(one)), sizeof(one));
    return NULL;
}

static void gather(struct tutti_sources *sources, bool with_words, bool with_fds)
{
    tutti_sources_init(sources);
    for (int i = 0; i < N && with_words; i++) tutti_sources_add_word(sources, &words[i], atomic_load(&words[i]));
    for (int i = 0; i < N && with_fds; i++) tutti_sources_add_fd(sources, fds[i]);
    tutti_sources_until(sources, tutti_deadline_ns(20 * TUTTI_NS_PER_S));
}

static void one_of_them_fires(bool with_words, bool with_fds)
{
    for (int round = 0; round < 30; round++) {
        struct firing firing = {with_words ? round % N : -1, -1};
        struct tutti_sources sources;
        pthread_t thread;
        uint64_t drain;
        if (with_fds && (!with_words || round % 2)) firing = (struct firing){-1, round % N};
        gather(&sources, with_words, with_fds);
        assert_int_equal(pthread_create(&thread, NULL, fire, &firing), 0);
        while (firing.word >= 0 ? atomic_load(&words[firing.word]) == sources.at[firing.word].expected
                                : read(fds[firing.fd], &drain, sizeof(drain)) < 0) {
            tutti_poller_wait(NULL, &sources);
            assert_true(tutti_now_ns() < sources.due_ns); /* it was woken */
        }
        pthread_join(thread, NULL);
    }
}

static void words_alone(void **state)
{
    (void)state;
    one_of_them_fires(true, false);
}
static void descriptors_alone(void **state)
{
    (void)state;
    one_of_them_fires(false, true);
}
static void both(void **state)
{
    (void)state;
    one_of_them_fires(true, true);
}

/* What has fired before the sleep ends it at once, and so does a time that is over. */
static void no_sleep(void **state)
{
    (void)state;
    struct tutti_sources sources;
    const uint64_t one = 1;
    uint64_t drain;
    gather(&sources, true, true);
    atomic_fetch_add(&words[1], 1);
    tutti_poller_wait(NULL, &sources);
    assert_true(tutti_now_ns() < sources.due_ns);
    gather(&sources, true, true);
    assert_int_equal(write(fds[2], &one, sizeof(one)), sizeof(one));
    tutti_poller_wait(NULL, &sources);
    assert_true(tutti_now_ns() < sources.due_ns);
    assert_int_equal(read(fds[2], &drain, sizeof(drain)), sizeof(drain));
    gather(&sources, true, true);
    sources.due_ns = 1;
    tutti_poller_wait(NULL, &sources);
    gather(&sources, true, true);
    sources.due_ns = tutti_deadline_ns(3 * TUTTI_NS_PER_MS);
    tutti_poller_wait(NULL, &sources);
}

/* A child of a process that has slept so sleeps, too. */
static void in_a_child(void **state)
{
    (void)state;
    both(NULL);
    pid_t child = fork();
    if (child == 0) {
        both(NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    both(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_alone), cmocka_unit_test(descriptors_alone),
                                       cmocka_unit_test(both), cmocka_unit_test(no_sleep),
                                       cmocka_unit_test(in_a_child)};
    for (int i = 0; i < N; i++) fds[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return cmocka_run_group_tests_name("base.poller", tests, NULL, NULL);
}
