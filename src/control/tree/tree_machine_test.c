/* SPDX-License-Identifier: BSD-3-Clause */
/* The tree's machines in a made-up world: hosts with members, messages that take time, processes that are killed, hosts
 * that vanish, directions that are cut. After all of it: who lives and is reached is told dead to nobody; whoever died
 * is known to all who live; every failure that somebody raised is told to all who live, and the same one. */

#include "control/tree/machine.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define MS TUTTI_NS_PER_MS
enum { HOSTS = 64, MEMBERS = 320, MAIL = 1 << 16, COMMS = 4 };

enum msg { BYTES, LINKED, BROKEN, DEAD_END, NO_WAY, NEIGHBOUR, WITNESSED };
struct mail {
    uint64_t at_ns, number;
    enum msg msg;
    uint32_t from, to, n;
    uint64_t link; /* the number of its connection; a newer one makes it void */
    uint8_t bytes[TUTTI_TREE_FRAME_MAX];
};
struct node {
    struct tutti_tree_machine machine;
    _Atomic uint8_t lives[MEMBERS];
    struct tutti_tree_link links[MEMBERS];
    uint32_t linked[MEMBERS];
    uint64_t connection[MEMBERS]; /* its number; 0: none */
    bool dead, silent, left;      /* silent: of a host that vanished */
    bool stopped;                 /* what comes waits, as in the kernel's buffers */
    struct tutti_failure failures[COMMS * 2];
    uint32_t n_failures, n_answers;
};
static struct {
    uint64_t now, seed, number, last_ns[MEMBERS][MEMBERS];
    uint32_t n, n_hosts, n_mail, latency_ms, n_events;
    struct tutti_hosts hosts;
    struct tutti_host_row rows[HOSTS];
    struct tutti_member_row members[MEMBERS];
    bool cut[HOSTS][HOSTS];
} sim;
static struct node nodes[MEMBERS];
static struct mail *heap[MAIL];

static uint64_t rnd(uint64_t n)
{
    return tutti_random64(&sim.seed) % n;
}

static bool mail_before(const struct mail *a, const struct mail *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static void heap_put(struct mail *m)
{
    uint32_t i = sim.n_mail++;
    for (; i > 0 && mail_before(m, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = m;
}

/* For who is stopped: later, in the order in which it came. */
static void post_again(struct mail *m)
{
    m->at_ns += 100 * MS;
    heap_put(m);
}

static void post(enum msg msg, uint32_t from, uint32_t to, const uint8_t *bytes, size_t n)
{
    struct mail *m = malloc(sizeof *m);
    assert_non_null(m);
    assert_true(sim.n_mail < MAIL);
    uint64_t at = sim.now + rnd(sim.latency_ms * 1000 + 1) * 1000 + 1;
    if (at <= sim.last_ns[from][to]) at = sim.last_ns[from][to] + 1;
    sim.last_ns[from][to] = at;
    m->at_ns = at, m->number = sim.number++, m->msg = msg, m->from = from, m->to = to, m->n = (uint32_t)n;
    m->link = nodes[to].connection[from];
    if (n > 0) memcpy(m->bytes, bytes, n);
    heap_put(m);
}

static struct mail *mail_next(void)
{
    struct mail *first = heap[0], *last = heap[--sim.n_mail];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < sim.n_mail; i = child) {
        if (child + 1 < sim.n_mail && mail_before(heap[child + 1], heap[child])) child++;
        if (!mail_before(heap[child], last)) break;
        heap[i] = heap[child];
    }
    if (sim.n_mail > 0) heap[i] = last;
    return first;
}

static uint32_t host_of(uint32_t member)
{
    return sim.members[member].host;
}

static bool passes(uint32_t from, uint32_t to)
{
    return !nodes[from].silent && !nodes[to].silent && !sim.cut[host_of(from)][host_of(to)];
}

/* ---- what the machines ask for ---- */

static uint32_t number_of(void *arg)
{
    return (uint32_t)((struct node *)arg - nodes);
}

static void node_send(void *arg, uint32_t member, const uint8_t *bytes, size_t n)
{
    const uint32_t me = number_of(arg);
    assert_true(nodes[me].connection[member] != 0);
    if (passes(me, member)) post(BYTES, me, member, bytes, n);
}

static void node_dial(void *arg, uint32_t member)
{
    const uint32_t me = number_of(arg);
    if (!passes(me, member) || !passes(member, me) || nodes[member].stopped) {
        const uint64_t now = sim.now;
        sim.now += 20000 * MS; /* the network's patience with a connection */
        post(NO_WAY, member, me, NULL, 0);
        sim.now = now;
    } else if (nodes[member].dead) {
        post(DEAD_END, member, me, NULL, 0);
    } else {
        nodes[me].connection[member] = nodes[member].connection[me] = ++sim.number;
        post(LINKED, me, member, NULL, 0);
        post(LINKED, member, me, NULL, 0);
    }
}

static void node_drop(void *arg, uint32_t member)
{
    const uint32_t me = number_of(arg);
    if (nodes[me].connection[member] == 0) return;
    nodes[me].connection[member] = 0;
    if (passes(me, member)) post(BROKEN, me, member, NULL, 0);
}

static void node_gone(void *arg, uint32_t member, enum tutti_life life)
{
    (void)arg, (void)member, (void)life;
}

static void node_failure(void *arg, const struct tutti_failure *failure)
{
    struct node *node = arg;
    assert_true(node->n_failures < TUTTI_ARRAY_LEN(node->failures));
    node->failures[node->n_failures++] = *failure;
}

/* Any member of its own host: those may be stopped. */
static bool node_board(void *arg, uint32_t member, uint32_t slot, struct tutti_board *out)
{
    const struct tutti_member_row *members = ((const struct node *)arg)->machine.hosts->members;
    assert_int_equal(members[member].host, members[number_of(arg)].host);
    *out = (struct tutti_board){.seq = member, .comm = slot};
    return true;
}

static void node_answer(void *arg, const struct tutti_tree_question *question, const struct tutti_board *board)
{
    struct node *node = arg;
    assert_true(board && board->seq == question->target && board->comm == question->slot);
    node->n_answers++;
}

/* ---- the world ---- */

static void sim_begin(uint64_t seed)
{
    memset(&sim, 0, sizeof sim);
    memset(nodes, 0, sizeof nodes);
    sim.seed = seed, sim.number = 1, sim.now = 1;
    sim.n_hosts = 1 + (uint32_t)rnd(HOSTS);
    sim.latency_ms = rnd(3) ? 1 : 50;
    for (uint32_t h = 0; h < sim.n_hosts; h++) {
        struct tutti_host_row *row = &sim.rows[h];
        row->leader = sim.n, row->n = 1 + (uint32_t)rnd(MEMBERS / HOSTS);
        for (uint32_t i = 0; i < row->n; i++) sim.members[sim.n++] = (struct tutti_member_row){.host = h, .local = i};
    }
    sim.hosts =
        (struct tutti_hosts){.n_hosts = sim.n_hosts, .n_members = sim.n, .hosts = sim.rows, .members = sim.members};
    for (uint32_t i = 0; i < sim.n; i++) {
        struct node *node = &nodes[i];
        node->machine = (struct tutti_tree_machine){
            .hosts = &sim.hosts,
            .me = i,
            .n = sim.n,
            .silence_ns = 5 * TUTTI_NS_PER_S,
            .out = {node, node_send, node_dial, node_drop, node_gone, node_failure, node_board, node_answer},
            .lives = node->lives,
            .links = node->links,
            .linked = node->linked};
    }
    for (uint32_t i = 0; i < sim.n; i++) tutti_tree_begin(&nodes[i].machine, sim.now);
}

static void deliver(struct mail *m)
{
    struct node *node = &nodes[m->to];
    struct tutti_tree_machine *machine = &node->machine;
    const bool lives = !node->dead && !node->left;
    if (m->msg == LINKED) {
        if (lives && node->connection[m->from] != 0) tutti_tree_linked(machine, m->from, sim.now);
    } else if (m->msg == BYTES) {
        if (lives && m->link != 0 && node->connection[m->from] == m->link)
            tutti_tree_received(machine, m->from, m->bytes, m->n, sim.now);
    } else if (m->msg == BROKEN) {
        if (lives && m->link != 0 && node->connection[m->from] == m->link) {
            node->connection[m->from] = 0;
            tutti_tree_broken(machine, m->from, sim.now);
        }
    } else if (lives && m->msg == WITNESSED) {
        tutti_tree_is_proved(machine, m->from, sim.now);
    } else if (lives && m->msg == NEIGHBOUR) {
        tutti_tree_local_gone(machine, m->from, nodes[m->from].left ? TUTTI_LIFE_LEFT : TUTTI_LIFE_DEAD, sim.now);
    } else if (lives) {
        tutti_tree_unreachable(machine, m->from, m->msg == DEAD_END, sim.now);
    }
}

static void sim_run(uint64_t ms)
{
    for (uint64_t end = sim.now + ms * MS; sim.now < end;) {
        const uint64_t step = sim.now + 100 * MS;
        while (sim.n_mail > 0 && heap[0]->at_ns <= step) {
            struct mail *m = mail_next();
            if (m->at_ns > sim.now) sim.now = m->at_ns;
            if (nodes[m->to].stopped)
                post_again(m);
            else
                deliver(m), free(m);
        }
        sim.now = step;
        for (uint32_t i = 0; i < sim.n; i++)
            if (!nodes[i].dead && !nodes[i].left && !nodes[i].stopped) tutti_tree_tick(&nodes[i].machine, sim.now);
    }
}

static void sim_end(void)
{
    while (sim.n_mail > 0) free(mail_next());
}

/* The control of its host tells the neighbours. */
static void neighbours_tell(uint32_t member)
{
    for (uint32_t i = 0; i < sim.n; i++)
        if (i != member && host_of(i) == host_of(member)) post(NEIGHBOUR, member, i, NULL, 0);
}

static void member_end(uint32_t member, bool leaves)
{
    struct node *node = &nodes[member];
    if (node->dead || node->left) return;
    if (leaves) tutti_tree_leave(&node->machine, sim.now);
    node->left = leaves;
    neighbours_tell(member);
    for (uint32_t i = 0; i < sim.n; i++)
        if (node->connection[i] != 0) node_drop(node, i);
    node->dead = true; /* nobody listens there any more */
}

static void host_vanish(uint32_t host)
{
    for (uint32_t i = 0; i < sim.n; i++)
        if (host_of(i) == host) nodes[i].silent = nodes[i].dead = true;
}

static bool is_alive(uint32_t member)
{
    return !nodes[member].dead && !nodes[member].left;
}

static void lives_check(const char *what, uint64_t seed)
{
    for (uint32_t i = 0; i < sim.n; i++) {
        if (!is_alive(i)) continue;
        for (uint32_t k = 0; k < sim.n; k++) {
            const enum tutti_life life = (enum tutti_life)nodes[i].lives[k];
            if (is_alive(k) != !tutti_life_gone(life))
                fail_msg("%s %llu (%u ms): member %u of %u is %s, member %u takes it for %s", what,
                         (unsigned long long)seed, sim.latency_ms, k, sim.n, is_alive(k) ? "alive" : "gone", i,
                         tutti_life_gone(life) ? "gone" : "alive");
            if (sim.n_events == 1 && nodes[k].left &&
                life != TUTTI_LIFE_LEFT) /* where several left, it may have been seen dead */
                fail_msg("%s %llu: member %u left, member %u says %d", what, (unsigned long long)seed, k, i, (int)life);
        }
    }
}

static struct tutti_failure failure_of(uint64_t comm, uint32_t by)
{
    struct tutti_failure failure = {.comm = comm, .epoch = 1, .culprit = by};
    tutti_error_set(&failure.error, TUTTI_ERR_TIMEOUT, "member %u raised it", by);
    return failure;
}

/* raised: bits of the communicators for which somebody who lives raised a failure. */
static void failures_check(const char *what, uint64_t seed, uint32_t raised)
{
    for (uint64_t comm = 1; comm <= COMMS; comm++) {
        const char *said = NULL;
        for (uint32_t i = 0; i < sim.n; i++) {
            const struct tutti_failure *heard = NULL;
            if (!is_alive(i)) continue;
            for (uint32_t k = 0; k < nodes[i].n_failures; k++)
                if (nodes[i].failures[k].comm == comm) {
                    if (heard) fail_msg("%s %llu: member %u was told twice", what, (unsigned long long)seed, i);
                    heard = &nodes[i].failures[k];
                }
            if (!heard && (said || raised >> comm & 1))
                fail_msg("%s %llu: member %u of %u does not know that %llu has ended", what, (unsigned long long)seed,
                         i, sim.n, (unsigned long long)comm);
            if (heard && said && strcmp(said, heard->error.text) != 0)
                fail_msg("%s %llu: member %u heard \"%s\", others \"%s\"", what, (unsigned long long)seed, i,
                         heard->error.text, said);
            if (heard) said = heard->error.text;
        }
    }
}

/* ---- tests ---- */

/* Nothing happens: nobody is told dead, and boards are found wherever they are. */
static void all_live(void **state)
{
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 30; seed < end; seed++) {
        sim_begin(seed);
        sim_run(3000);
        for (uint32_t i = 0; i < 20; i++) tutti_tree_ask(&nodes[i % sim.n].machine, (uint32_t)rnd(sim.n), 5, sim.now);
        sim_run(8000);
        uint32_t n_answers = 0;
        for (uint32_t i = 0; i < sim.n; i++) n_answers += nodes[i].n_answers;
        assert_int_equal(n_answers, 20);
        lives_check("all live", seed);
        sim_end();
    }
}

/* Processes are killed or leave at any time, the root too; half a second later all know. */
static void some_die(void **state)
{
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 200; seed < end; seed++) {
        sim_begin(seed);
        const bool early = rnd(4) == 0; /* before they have linked: who never came is known later */
        sim_run(early ? 0 : 3000);
        for (uint64_t k = 1 + rnd(6); k > 0; k--) {
            const uint32_t victim = rnd(3) ? (uint32_t)rnd(sim.n) : tutti_tree_speaker(&nodes[0].machine, 0, false);
            if (victim >= sim.n) continue;
            sim.n_events += 1 + early;
            member_end(victim, rnd(4) == 0);
            if (rnd(2)) sim_run(rnd(400));
        }
        sim_run(early ? 16000 : sim.latency_ms == 1 ? 1000 : 4000);
        lives_check("some die", seed);
        sim_end();
    }
}

/* All but one are killed at once. A witness between each two tells so, before or after a refused dial did: the last one
 * has a proof of each death. Where a host vanished, there is none. */
static void deaths_are_proved(void **state)
{
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 200; seed < end; seed++) {
        sim_begin(seed);
        sim_run(3000);
        const uint32_t last = (uint32_t)rnd(sim.n),
                       silent = rnd(2) && sim.n_hosts > 1 ? (host_of(last) ? 0 : 1) : HOSTS;
        if (silent < HOSTS) host_vanish(silent);
        for (uint32_t i = 0; i < sim.n; i++)
            if (i != last) member_end(i, false);
        if (rnd(2)) sim_run(1000);
        for (uint32_t i = 0; i < sim.n; i++)
            if (nodes[i].dead && !nodes[i].silent && host_of(i) != host_of(last)) post(WITNESSED, i, last, NULL, 0);
        sim_run(30000);
        for (uint32_t i = 0; i < sim.n; i++) {
            const uint8_t life = nodes[last].lives[i];
            if (i != last && life != (nodes[i].silent ? TUTTI_LIFE_SILENT : TUTTI_LIFE_DEAD))
                fail_msg("proofs %llu: member %u takes member %u for %u", (unsigned long long)seed, last, i, life);
        }
        sim_end();
    }
}

/* Hosts vanish: known within the silence that is allowed, and a bit for each level of the tree that went with them. */
static void hosts_vanish(void **state)
{
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 100; seed < end; seed++) {
        sim_begin(seed);
        if (sim.n_hosts < 2) {
            sim_end();
            continue;
        }
        sim_run(3000);
        host_vanish(rnd(2) ? 0 : (uint32_t)rnd(sim.n_hosts));
        if (rnd(2)) host_vanish((uint32_t)rnd(sim.n_hosts));
        sim_run(16000);
        lives_check("hosts vanish", seed);
        sim_end();
    }
}

/* Many raise at once while roots die: all hear of one for each communicator. */
static void failures_are_the_same(void **state)
{
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 200; seed < end; seed++) {
        uint32_t raised = 0;
        sim_begin(seed);
        sim_run(3000);
        for (uint64_t k = 10; k > 0; k--) {
            const uint64_t comm = 1 + rnd(COMMS);
            const uint32_t by = (uint32_t)rnd(sim.n);
            if (!is_alive(by)) continue;
            const struct tutti_failure failure = failure_of(comm, by);
            tutti_tree_raise(&nodes[by].machine, &failure, sim.now);
            if (rnd(4) == 0) {
                const uint32_t root = tutti_tree_speaker(&nodes[by].machine, host_of(by), false);
                for (uint32_t i = 0; i < sim.n; i++)
                    if (is_alive(i) && nodes[i].machine.parent == UINT32_MAX && root < sim.n) member_end(i, false);
            }
            if (rnd(2)) sim_run(rnd(40));
            if (is_alive(by)) raised |= 1u << comm;
        }
        for (uint64_t comm = 1; comm <= COMMS;
             comm++) { /* the member that raised it lives: else the failure may have died with it */
            bool lives = false;
            for (uint32_t i = 0; i < sim.n; i++)
                for (uint32_t k = 0; is_alive(i) && k < nodes[i].n_failures; k++)
                    lives |= nodes[i].failures[k].comm == comm;
            if (!lives) raised &= ~(1u << comm);
        }
        sim_run(6000);
        lives_check("failures", seed);
        failures_check("failures", seed, raised);
        sim_end();
    }
}

/* Two halves that do not hear each other any more: each of them goes on as one, and nobody waits for ever. */
static void a_cut_is_told(void **state)
{
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 60; seed < end; seed++) {
        sim_begin(seed);
        if (sim.n_hosts < 3) {
            sim_end();
            continue;
        }
        sim_run(3000);
        const uint32_t alone = (uint32_t)rnd(sim.n_hosts);
        const bool one_way = rnd(2);
        for (uint32_t h = 0; h < sim.n_hosts; h++)
            if (h != alone) {
                sim.cut[alone][h] = true;
                if (!one_way) sim.cut[h][alone] = true;
            }
        sim_run(40000 + 6000ull * sim.n_hosts);
        for (uint32_t i = 0; i < sim.n; i++)
            for (uint32_t k = 0; k < sim.n; k++) {
                const bool apart = (host_of(i) == alone) != (host_of(k) == alone);
                const bool gone = tutti_life_gone((enum tutti_life)nodes[i].lives[k]);
                if (apart && !gone)
                    fail_msg("cut %llu: member %u still waits for member %u", (unsigned long long)seed, i, k);
                if (!apart && gone && host_of(i) != alone)
                    fail_msg("cut %llu: member %u takes member %u for gone", (unsigned long long)seed, i, k);
            }
        sim_end();
    }
}

/* One cut between any two sets of hosts: a second beyond the silence that is allowed, both sides know it, and each is
 * a tree of its own. */
static void both_sides_know_in_one_round(void **state)
{
    bool other[HOSTS];
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 30; seed < end; seed++) {
        sim_begin(seed);
        const uint64_t odds = rnd(4); /* the last host alone; halves; every other one; any */
        for (uint32_t h = 0; h < sim.n_hosts; h++)
            other[h] = odds == 0 ? h + 1 == sim.n_hosts : odds == 1 ? h >= sim.n_hosts / 2 : odds == 2 ? h % 2 : rnd(2);
        sim_run(3000 + rnd(1000));
        for (uint32_t h = 0; h < sim.n_hosts; h++)
            for (uint32_t k = 0; k < sim.n_hosts; k++) sim.cut[h][k] = other[h] != other[k];
        sim_run(6000);
        for (uint32_t i = 0; i < sim.n; i++) {
            for (uint32_t k = 0; k < sim.n; k++) {
                const bool apart = other[host_of(i)] != other[host_of(k)];
                if (apart != tutti_life_gone((enum tutti_life)nodes[i].lives[k]))
                    fail_msg("cut %llu of kind %llu: member %u on host %u of %u says %u of member %u on host %u",
                             (unsigned long long)seed, (unsigned long long)odds, i, host_of(i), sim.n_hosts,
                             nodes[i].lives[k], k, host_of(k));
            }
            assert_true(tutti_tree_is_whole(&nodes[i].machine));
        }
        sim_end();
    }
}

static void is_known(uint64_t seed, uint32_t stopped, bool gone)
{
    for (uint32_t i = 0; i < sim.n; i++)
        for (uint32_t k = 0; i != stopped && k < sim.n; k++)
            if (tutti_life_gone((enum tutti_life)nodes[i].lives[k]) != (gone && k == stopped))
                fail_msg("stop %llu: member %u on host %u says %u of member %u on host %u, %u is stopped",
                         (unsigned long long)seed, i, host_of(i), nodes[i].lives[k], k, host_of(k), stopped);
}

/* The process that speaks for a host is stopped, and others of its host live: after the silence that is allowed it
 * alone is told dead, on its own host, too; where it goes on in time nothing is told, and no link is left over. When it
 * goes on later it is told that the others are gone. */
static void a_stopped_speaker_is_told_alone(void **state)
{
    (void)state;
    for (uint64_t seed = test_seed(), end = seed + 50; seed < end; seed++) {
        sim_begin(seed);
        const struct tutti_host_row *host = &sim.rows[rnd(2) ? 0 : rnd(sim.n_hosts)];
        const uint32_t stopped = host->leader;
        if (host->n < 2 || sim.n_hosts < 2) {
            sim_end();
            continue;
        }
        sim_run(3000 + rnd(1000));
        const bool back = rnd(2);
        nodes[stopped].stopped = true;
        sim_run(back ? 1500 + rnd(2500) : 5300);
        is_known(seed, stopped, !back);
        nodes[stopped].stopped = false;
        sim_run(6000);
        is_known(seed, stopped, !back);
        for (uint32_t i = 0; i < sim.n; i++) {
            const struct tutti_tree_machine *machine = &nodes[i].machine;
            if (i == stopped && !back)
                for (uint32_t k = 0; k < sim.n; k++)
                    assert_true(k == i || tutti_life_gone((enum tutti_life)nodes[i].lives[k]));
            if (i == stopped && !back) continue;
            assert_true(tutti_tree_is_whole(machine));
            for (uint32_t k = 0; k < machine->n_linked; k++)
                if (machine->linked[k] != machine->parent &&
                    tutti_tree_parent_of(machine, machine->linked[k], false) != i)
                    fail_msg("stop %llu: member %u keeps a link to member %u", (unsigned long long)seed, i,
                             machine->linked[k]);
        }
        sim_end();
    }
}

static void frames_are_checked(void **state)
{
    uint8_t bytes[TUTTI_TREE_FRAME_MAX];
    struct tutti_tree_message message = {.type = TUTTI_TREE_ASK, .question = {1, 2, 3, 4}}, back;
    size_t n = tutti_tree_encode(&message, bytes);
    (void)state;
    assert_int_equal(tutti_tree_decode(bytes, n, 3, &back), TUTTI_OK);
    assert_memory_equal(&message, &back, sizeof message);
    assert_true(tutti_tree_decode(bytes, n, 2, &back) < 0); /* there is no member 2 */
    for (size_t cut = 0; cut < n; cut++) assert_true(tutti_tree_decode(bytes, cut, 3, &back) < 0);
    message = (struct tutti_tree_message){.type = TUTTI_TREE_TELL, .failure = failure_of(7, 1)};
    n = tutti_tree_encode(&message, bytes);
    assert_int_equal(tutti_tree_decode(bytes, n, 3, &back), TUTTI_OK);
    assert_string_equal(back.failure.error.text, "member 1 raised it");
    assert_int_equal(back.failure.error.status, TUTTI_ERR_TIMEOUT);
    uint64_t seed = test_seed();
    for (int i = 0; i < 100000; i++) { /* nonsense is refused, or harmless */
        for (size_t k = 0; k < 64; k++) bytes[k] = (uint8_t)tutti_random64(&seed);
        bytes[0] = (uint8_t)(tutti_random64(&seed) % 64), bytes[1] = 0, bytes[2] = TUTTI_TREE_VERSION;
        bytes[3] = (uint8_t)(tutti_random64(&seed) % 9);
        if (tutti_tree_decode(bytes, bytes[0], 3, &back) == TUTTI_OK) assert_true(back.n_gone <= TUTTI_TREE_GONE_MOST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_checked),
        cmocka_unit_test(all_live),
        cmocka_unit_test(some_die),
        cmocka_unit_test(deaths_are_proved),
        cmocka_unit_test(hosts_vanish),
        cmocka_unit_test(failures_are_the_same),
        cmocka_unit_test(a_cut_is_told),
        cmocka_unit_test(both_sides_know_in_one_round),
        cmocka_unit_test(a_stopped_speaker_is_told_alone),
    };
    tutti_log_threshold = TUTTI_LOG_ERROR; /* silent hosts are on purpose */
    return cmocka_run_group_tests_name("control.tree_machine", tests, NULL, NULL);
}
