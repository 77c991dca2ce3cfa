/* SPDX-License-Identifier: BSD-3-Clause */
/* A soak: random calls in every form, plain, asynchronous, grouped and persistent, which each rank chooses for itself;
 * on several communicators at once, which are split off, duplicated, shrunk and destroyed meanwhile; with random delays
 * between the steps. Every result is compared. With the argument "long": minutes of it. */
#include "test.h"

#include "flat/support/calls.h"
#include "flat/support/steps.h"

#include "base/base.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { COMMS = 5, BURST = 5, RANKS_MOST = 8 };

struct soak {
    uint64_t seed;
    uint32_t n_actions;
    const char *staging;
};

/* A communicator, and which ranks of the world it has, as all of them know. */
struct member {
    struct tutti_comm *comm; /* NULL: not of this rank */
    uint32_t n, ranks[RANKS_MOST];
    uint32_t me;
};

struct player {
    struct rank *rank;
    uint64_t common, own; /* random: alike on all ranks, and not */
    struct member members[COMMS];
    uint32_t n_members;
    struct mark_sheet sheets[BURST];
    size_t words;
};

/* A call of a burst. */
struct shot {
    struct mark_plan plan;
    struct member *member;
    struct tutti_work *work;
    struct tutti_persistent *persistent;
};

static uint64_t draw(uint64_t *random, uint64_t end)
{
    return mark_random(random) % end;
}

/* ---- delays ---- */

static void dawdle(void)
{
    static _Thread_local uint64_t random;
    if (random == 0) random = (uint64_t)(uintptr_t)&random ^ tutti_now_ns();
    uint64_t what = draw(&random, 600);
    if (what < 6) sched_yield();
    if (what == 6) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* ---- communicators ---- */

static void adopt(struct player *p, const struct member *member)
{
    p->members[p->n_members++] = *member;
}

/* Parts of a communicator by a colour that is drawn for each rank; each is kept as far as there is room. */
static void split(struct player *p, const struct member *parent)
{
    struct rank *rank = p->rank;
    uint32_t n_colors = 1 + (uint32_t)draw(&p->common, 2), colors[RANKS_MOST];
    for (uint32_t i = 0; i < parent->n; i++) colors[i] = (uint32_t)draw(&p->common, n_colors);
    struct tutti_comm *mine = NULL;
    if (parent->comm) RANK_CHECK_OK(rank, tutti_comm_split(parent->comm, (int32_t)colors[parent->me], 0, &mine));
    for (uint32_t color = 0; color < n_colors; color++) {
        struct member part = {0};
        for (uint32_t i = 0; i < parent->n; i++) {
            if (colors[i] != color) continue;
            if (parent->comm && i == parent->me) part.comm = mine, part.me = part.n;
            part.ranks[part.n++] = parent->ranks[i];
        }
        if (part.n > 0 && p->n_members < COMMS)
            adopt(p, &part);
        else
            tutti_comm_destroy(part.comm);
    }
}

static void shrink(struct player *p, const struct member *parent)
{
    struct rank *rank = p->rank;
    struct member copy = *parent;
    copy.comm = NULL;
    if (parent->comm) RANK_CHECK_OK(rank, tutti_comm_shrink(parent->comm, NULL, 0, &copy.comm));
    adopt(p, &copy);
}

static void drop(struct player *p, uint32_t i)
{
    tutti_comm_destroy(p->members[i].comm);
    p->members[i] = p->members[--p->n_members];
}

/* The first one is the world's, which stays. */
static void change_members(struct player *p)
{
    uint64_t what = draw(&p->common, 5);
    uint32_t i = (uint32_t)draw(&p->common, p->n_members);
    struct member parent = p->members[i];
    if (p->n_members == COMMS || (what > 2 && i > 0))
        drop(p, i > 0 ? i : COMMS - 1);
    else if (what > 0)
        split(p, &parent);
    else
        shrink(p, &parent);
}

/* ---- calls ---- */

static void start(struct player *p, struct shot *shot, size_t i, struct tutti_work **work)
{
    if (mark_start(&shot->plan, &p->sheets[i], shot->member->comm, work) != TUTTI_OK)
        rank_fail(p->rank, __FILE__, __LINE__, "%s", tutti_last_error()->text);
}

static void start_persistent(struct player *p, struct shot *shot, size_t i)
{
    struct rank *rank = p->rank;
    RANK_CHECK_OK(rank, tutti_persistent_record());
    start(p, shot, i, NULL);
    RANK_CHECK_OK(rank, tutti_persistent_end(&shot->persistent));
    RANK_CHECK_OK(rank, tutti_persistent_start(shot->persistent, &shot->work));
}

/* Calls [i, i + n) as one group, whose work the first one keeps. */
static void start_group(struct player *p, struct shot *shots, size_t i, size_t n)
{
    struct rank *rank = p->rank;
    bool blocks = draw(&p->own, 2), empty = true;
    RANK_CHECK_OK(rank, tutti_group_start());
    for (size_t k = i; k < i + n; k++) {
        if (!shots[k].member->comm) continue;
        start(p, &shots[k], k, NULL);
        empty = false;
    }
    RANK_CHECK_OK(rank, tutti_group_end(blocks || empty ? NULL : &shots[i].work));
}

/* Every rank in its own way; how many calls were started. */
static size_t start_some(struct player *p, struct shot *shots, size_t i, size_t n)
{
    size_t grouped = n - i > 1 ? 1 + draw(&p->own, 2) : 1;
    uint64_t form = draw(&p->own, 6);
    if (form == 0) {
        start_group(p, shots, i, grouped);
        return grouped;
    }
    if (!shots[i].member->comm) return 1;
    if (form == 1)
        start_persistent(p, &shots[i], i);
    else
        start(p, &shots[i], i, form < 4 ? NULL : &shots[i].work);
    return 1;
}

static void finish(struct player *p, struct shot *shot, size_t i)
{
    struct rank *rank = p->rank;
    char why[512];
    if (shot->work) RANK_CHECK_OK(rank, tutti_work_wait(shot->work, 0));
    tutti_work_free(shot->work);
    tutti_persistent_destroy(shot->persistent);
    if (!shot->member->comm || rank->failure[0]) return;
    if (!mark_check(&shot->plan, shot->member->me, &p->sheets[i], why, sizeof why))
        rank_fail(rank, __FILE__, __LINE__, "%s", why);
}

/* Some calls on one or two communicators, all in flight at once as far as their forms let them. */
static void burst(struct player *p)
{
    struct shot shots[BURST];
    size_t n = 1 + draw(&p->common, BURST);
    const bool rooted = draw(&p->common, 4) == 0; /* nothing but the slots keeps ranks together */
    struct member *two[] = {&p->members[draw(&p->common, p->n_members)], &p->members[draw(&p->common, p->n_members)]};
    for (size_t i = 0; i < n; i++) {
        struct member *member = two[draw(&p->common, 2)];
        struct mark_mix mix = {.n = member->n,
                               .chunk = 4096,
                               .words_most = p->words - 2 * RANKS_MOST,
                               .named = draw(&p->common, 3) == 0,
                               .rooted = rooted};
        shots[i] = (struct shot){.member = member};
        mark_draw(&p->common, &mix, &shots[i].plan);
        if (member->n == 1) shots[i].plan.algorithm[0] = '\0';
        if (member->comm) mark_prepare(&shots[i].plan, member->me, &p->sheets[i]);
    }
    for (size_t i = 0; i < n && !p->rank->failure[0];) i += start_some(p, shots, i, n);
    for (size_t i = 0; i < n && !p->rank->failure[0]; i++) finish(p, &shots[i], i);
    for (size_t i = 0; i < n && !p->rank->failure[0]; i++)
        if (mark_touched(&p->sheets[i])) rank_fail(p->rank, __FILE__, __LINE__, "a buffer was touched after its call");
}

static void play(struct rank *rank)
{
    const struct soak *soak = rank->arg;
    struct player p = {.rank = rank, .common = soak->seed, .own = soak->seed + 77 + (uint64_t)rank->index};
    struct member world = {.comm = rank->comm, .n = (uint32_t)rank->n, .me = (uint32_t)rank->index};
    for (uint32_t r = 0; r < world.n; r++) world.ranks[r] = r;
    p.words = 12000;
    adopt(&p, &world);
    for (int i = 0; i < BURST; i++) RANK_CHECK(rank, calls_open(rank, p.words, &p.sheets[i]));
    for (uint32_t a = 0; a < soak->n_actions && !rank->failure[0]; a++) {
        burst(&p);
        if (!rank->failure[0] && draw(&p.common, 4) == 0) change_members(&p);
    }
    while (p.n_members > 1) drop(&p, p.n_members - 1);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    for (int i = 0; i < BURST; i++) calls_close(rank, &p.sheets[i]);
}

static void run(uint32_t n, bool forked, uint32_t n_actions, uint64_t seed)
{
    struct soak soak = {.seed = seed + n + 100 * forked, .n_actions = n_actions};
    const struct tutti_option options[] = {{"staging", n % 2 ? "448K" : "4M"}, {"slice", "16K"}};
    struct ranks_config config = {.n = n,
                                  .forked = forked,
                                  .options = options,
                                  .n_options = TUTTI_ARRAY_LEN(options),
                                  .timeout_ns = UINT64_C(60000000000),
                                  .deadline_s = 100,
                                  .arg = &soak};
    atomic_store(&steps_between, dawdle);
    if (ranks_run(&config, play) != 0) fail_msg("seed %llu", (unsigned long long)seed);
}

static int rounds = 1;

static void threads(void **state)
{
    (void)state;
    for (int i = 0; i < rounds; i++) {
        run(2, false, 150, test_seed() + (uint64_t)i);
        run(3, false, 150, test_seed() + (uint64_t)i);
        run(6, false, 100, test_seed() + (uint64_t)i);
    }
}

static void processes(void **state)
{
    (void)state;
    for (int i = 0; i < rounds; i++) {
        run(2, true, 150, test_seed() + (uint64_t)i);
        run(4, true, 100, test_seed() + (uint64_t)i);
        run(7, true, 80, test_seed() + (uint64_t)i);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads), cmocka_unit_test(processes)};
    if (argc > 1 && strcmp(argv[1], "long") == 0) rounds = 40;
    return cmocka_run_group_tests_name("flat soak", tests, NULL, NULL);
}
