/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_PASS_DEATH_TEST_H
#define TUTTI_ENGINE_PASS_DEATH_TEST_H

/* Three ranks as processes, the second of which is killed while the others wait for it in their second call. */

#include "engine/pass/rig_test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEATH_RANKS 3
#define DEATH_VICTIM 1

/* What the processes share; `memory` of their own comes behind it. */
struct death {
    enum tutti_status (*call)(struct rig_rank *rank, void *memory); /* the same one each time */
    _Atomic uint32_t ready;
    _Atomic uint64_t returned_ns[DEATH_RANKS];
    struct tutti_error error[DEATH_RANKS]; /* the error of the survivors' second call */
    uint64_t died_ns;
    size_t bytes;
    _Alignas(64) unsigned char memory[];
};

static inline void death_process(struct death *death, struct tutti_segment *segment, uint32_t me)
{
    struct tutti_engine_config config = {.slice_bytes = 1 << 17,
                                         .eager_bytes = 2048,
                                         .zero_copy_bytes = SIZE_MAX,
                                         .compare_after_ns = 5 * TUTTI_NS_PER_S,
                                         .simd = "auto"};
    struct rig rig = {.n = DEATH_RANKS, .timeout_ns = 60 * TUTTI_NS_PER_S};
    struct rig_rank rank = {.rig = &rig, .me = me, .n = DEATH_RANKS};

    struct tutti_segment *handle;
    if (tutti_segment_share(segment, &handle) < 0 || tutti_host_control_open(handle, me, &rank.control) < 0) _exit(1);
    if (tutti_transport_open("shm", segment, me, &rank.transport) < 0) _exit(2);
    if (tutti_engine_create(&config, &rank.engine) < 0) _exit(3);
    if (tutti_engine_attach(rank.engine, rank.transport, rank.control) < 0) _exit(4);
    tutti_segment_arrive(segment, me);
    if (tutti_segment_wait_all(segment, tutti_deadline_ns(10 * TUTTI_NS_PER_S)) < 0) _exit(5);
    rank.team = rig_team(&rank, RIG_TEAM, 0);
    if (!rank.team || death->call(&rank, death->memory) < 0) _exit(6);
    atomic_fetch_add(&death->ready, 1);
    if (me == DEATH_VICTIM)
        for (;;) pause();
    if (death->call(&rank, death->memory) == TUTTI_OK) _exit(7);
    atomic_store(&death->returned_ns[me], tutti_now_ns());
    death->error[me] = *tutti_last_error();
    tutti_team_destroy(rank.team);
    tutti_engine_detach(rank.engine, rank.transport);
    rank.control->ops->close(rank.control);
    rank.transport->ops->close(rank.transport);
    tutti_engine_destroy(rank.engine);
    _exit(0);
}

/* Both survivors fail with the same sentence, PEER_DEAD. bytes: of the memory that calls share, zeros at first. The
 * caller frees what is returned. */
static inline struct death *death_run(enum tutti_status (*call)(struct rig_rank *rank, void *memory), size_t bytes)
{
    struct tutti_segment_config config = {DEATH_RANKS, 1 << 20, 1 << 24, tutti_host_control_bytes(DEATH_RANKS)};
    struct tutti_segment *segment;
    pid_t pids[DEATH_RANKS];
    struct death *death = mmap(NULL, sizeof(*death) + bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(death, MAP_FAILED);
    death->call = call, death->bytes = bytes;
    assert_int_equal(tutti_segment_create(&config, true, &segment), TUTTI_OK);
    for (uint32_t i = 0; i < DEATH_RANKS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) death_process(death, segment, i);
    }
    uint64_t deadline = tutti_deadline_ns(20 * TUTTI_NS_PER_S);
    while (atomic_load(&death->ready) < DEATH_RANKS && tutti_now_ns() < deadline) tutti_sleep_ns(TUTTI_NS_PER_MS);
    assert_int_equal(atomic_load(&death->ready), DEATH_RANKS);
    tutti_sleep_ns(100 * TUTTI_NS_PER_MS); /* the others wait for it, or soon will */
    death->died_ns = tutti_now_ns();
    kill(pids[DEATH_VICTIM], SIGKILL);
    for (uint32_t i = 0; i < DEATH_RANKS; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        if (i == DEATH_VICTIM) continue;
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(death->error[i].status, TUTTI_ERR_PEER_DEAD);
        assert_int_equal(death->error[i].peer, DEATH_VICTIM);
    }
    assert_string_equal(death->error[0].text, death->error[2].text);
    tutti_segment_release(segment);
    return death;
}

static inline void death_free(struct death *death)
{
    munmap(death, sizeof(*death) + death->bytes);
}

#endif
