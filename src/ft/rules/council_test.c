/* SPDX-License-Identifier: BSD-3-Clause */

/* Lighthouses and groups in simulated time, one life a seed: messages are late, lost and out of order, networks part,
 * processes die and come back with what they kept, disks refuse or are full. In all of it no two quorums have one
 * number, numbers only grow, and nothing is published by two at once; and once all is well again, but for one disk
 * maybe, all groups are in one quorum soon. */

#include "test.h"

#include "ft/rules/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS TUTTI_NS_PER_MS
#define NODES 5
#define GROUPS 4
#define ENDS (NODES + GROUPS)
#define MAIL 4096
#define LEASE (1000 * MS)
#define CALM (12000 * MS) /* from here on nothing goes wrong */
#define END (24000 * MS)
#define BOUND (8000 * MS) /* so long after that all are in one quorum */

enum kind { COUNCIL, BEAT, ASK, CANCEL, ANSWER, REFUSED };
struct mail {
    uint64_t at;
    uint32_t from, to; /* groups after nodes */
    enum kind kind;
    struct tutti_council_message council; /* one record at most */
    struct tutti_record record;
    uint8_t bytes[64];
    uint64_t request;
    int64_t id;
    uint32_t mask;
};
static struct mail mails[MAIL];
static uint32_t heap[MAIL], n_heap, spare[MAIL], n_spare;

struct node {
    bool up;
    uint64_t full;  /* its disk: no more records, from 2 on no more ballots, either */
    uint64_t clock; /* its clock is so much ahead */
    uint64_t promised;
    bool has_record;
    struct tutti_record record; /* kept */
    uint8_t bytes[64];
    struct write {
        uint64_t promised;
        bool has_record;
        struct tutti_record record;
        uint8_t bytes[64];
    } writes[64]; /* on their way to a slow disk, all at once */
    uint32_t n_writes;
    uint64_t written; /* when they are there */
    struct tutti_council *council;
    struct tutti_lighthouse *machine; /* while it leads */
    struct tutti_ledger ledger;
};
struct group {
    bool up, waits;
    uint32_t to; /* the lighthouse that it talks to */
    uint64_t request, due, beat, answered;
    int64_t id, step;
    bool together; /* with all others, since all is well */
};
static struct {
    uint64_t seed, random, now, number;
    uint32_t n, side[ENDS];                        /* sides do not hear one another */
    bool cut[NODES][NODES];                        /* nor do these two */
    uint64_t parts, heals, deaths, crashes, power; /* how often it goes wrong in this life */
    bool calm, slow;                               /* slow: disks are; when all is well but one may be */
    uint32_t slowest;
    struct node nodes[NODES];
    struct group groups[GROUPS];
    int64_t max_id;
    uint32_t masks[512]; /* by number; 0: not published */
} sim;

static uint64_t chance(uint64_t below)
{
    return tutti_random64(&sim.random) % below;
}

/* ---- the network ---- */
static bool is_before(uint32_t a, uint32_t b)
{
    return mails[a].at < mails[b].at || (mails[a].at == mails[b].at && a < b);
}

static void sift(uint32_t i)
{
    for (;;) {
        uint32_t least = i;
        for (uint32_t child = 2 * i + 1; child <= 2 * i + 2 && child < n_heap; child++)
            if (is_before(heap[child], heap[least])) least = child;
        if (least == i) return;
        const uint32_t mail = heap[i];
        heap[i] = heap[least], heap[least] = mail;
        i = least;
    }
}

static void post(struct mail mail)
{
    if (n_spare == 0 || (!sim.calm && chance(20) == 0)) return; /* lost */
    const uint32_t at = spare[--n_spare];
    uint32_t i = n_heap++;
    mail.at = sim.now + (chance(sim.calm ? 50 : 10) ? chance(20 * MS) : chance(sim.calm ? 100 * MS : 1500 * MS));
    mails[at] = mail;
    heap[i] = at;
    for (; i > 0 && is_before(heap[i], heap[(i - 1) / 2]); i = (i - 1) / 2) {
        const uint32_t other = heap[i];
        heap[i] = heap[(i - 1) / 2], heap[(i - 1) / 2] = other;
    }
}

/* ---- a lighthouse ---- */
static uint64_t clock_of(const struct node *node)
{
    return sim.now + node->clock;
}

static struct tutti_lighthouse_time time_of(const struct node *node)
{
    return (struct tutti_lighthouse_time){clock_of(node), (int64_t)sim.now};
}

static uint32_t number_of(const struct node *node)
{
    return (uint32_t)(node - sim.nodes);
}

static void on_send(void *arg, uint32_t to, const struct tutti_council_message *message)
{
    struct mail mail = {.from = number_of(arg), .to = to, .kind = COUNCIL, .council = *message};
    assert_true(message->n_records <= 1);
    if (message->n_records == 1) {
        mail.record = message->records[0];
        assert_true(mail.record.n <= sizeof mail.bytes);
        memcpy(mail.bytes, mail.record.bytes, mail.record.n);
    }
    post(mail);
}

static void store(struct node *node, const struct write *write)
{
    assert_true(write->promised >= node->promised);
    node->promised = write->promised;
    if (!write->has_record) return;
    node->has_record = true;
    node->record = write->record;
    memcpy(node->bytes, write->bytes, sizeof node->bytes);
    node->record.bytes = node->bytes, node->record.key = "job";
}

static uint64_t disk_time(const struct node *node)
{
    const bool quick = sim.calm && (sim.n == 1 || number_of(node) != sim.slowest);
    return chance(quick ? 30 * MS : 3 * LEASE);
}

static enum tutti_council_kept on_keep(void *arg, uint64_t promised, const struct tutti_record *record)
{
    struct node *node = arg;
    struct write write = {.promised = promised, .has_record = record != NULL};
    if (!sim.calm && chance(100) == 0) return TUTTI_COUNCIL_NOT_KEPT;
    if (node->full > (record ? 0 : 1)) return TUTTI_COUNCIL_NOT_KEPT;
    if (record) write.record = *record, memcpy(write.bytes, record->bytes, record->n);
    if (!sim.slow || node->n_writes == TUTTI_ARRAY_LEN(node->writes)) {
        if (node->n_writes > 0) return TUTTI_COUNCIL_NOT_KEPT;
        store(node, &write);
        return TUTTI_COUNCIL_KEPT;
    }
    if (node->n_writes == 0) node->written = sim.now + disk_time(node);
    node->writes[node->n_writes++] = write;
    return TUTTI_COUNCIL_KEPT_LATER;
}

/* The writes so far are over, or the disk has refused them all. */
static void end_writes(struct node *node)
{
    const bool good = sim.calm || chance(50) > 0;
    const uint32_t n = node->n_writes;
    if (n == 0 || sim.now < node->written) return;
    for (uint32_t i = 0; good && i < n; i++) store(node, &node->writes[i]);
    node->n_writes = 0;
    tutti_council_kept(node->council, n, good, clock_of(node));
}

static void check(bool good, const char *what)
{
    if (!good) fail_msg("seed %" PRIu64 ", %.3f s: %s", sim.seed, (double)sim.now / 1e9, what);
}

static void on_answer(void *arg, uint64_t request, struct tutti_quorum *quorum)
{
    struct node *node = arg;
    uint32_t mask = 0;
    check(tutti_council_leads(node->council, clock_of(node)), "who does not lead publishes");
    for (uint32_t i = 0; i < quorum->n; i++) mask |= 1u << (quorum->members[i]->replica_id[0] - 'a');
    check(quorum->id > 0 && quorum->id < (int64_t)TUTTI_ARRAY_LEN(sim.masks), "a number out of bounds");
    check(quorum->id >= sim.max_id, "a number that is smaller than one before");
    check(sim.masks[quorum->id] == 0 || sim.masks[quorum->id] == mask, "two quorums with one number");
    sim.max_id = quorum->id;
    sim.masks[quorum->id] = mask;
    post((struct mail){.from = number_of(node),
                       .to = NODES + (uint32_t)(request % GROUPS),
                       .kind = ANSWER,
                       .request = request,
                       .id = quorum->id,
                       .mask = mask});
    tutti_quorum_give(quorum);
}

static bool on_commit(void *arg, const struct tutti_quorum *quorum)
{
    struct node *node = arg;
    return tutti_ledger_commit(&node->ledger, quorum, clock_of(node));
}

static void end_machine(struct node *node)
{
    tutti_lighthouse_destroy(node->machine);
    tutti_ledger_end(&node->ledger);
    node->machine = NULL;
}

static void on_leads(void *arg, bool leads)
{
    static const struct tutti_lighthouse_options rules = {1, 300 * MS, 1500 * MS, 100 * MS, 60000 * MS, 0};
    struct node *node = arg;
    const struct tutti_lighthouse_out out = {.arg = node, .answer = on_answer, .commit = on_commit};
    end_machine(node);
    if (!leads) return;
    assert_int_equal(tutti_lighthouse_create(&rules, &out, &node->machine), TUTTI_OK);
    assert_int_equal(tutti_ledger_begin(&node->ledger, "job", node->council, node->machine, clock_of(node)), TUTTI_OK);
}

static bool leads(const struct node *node)
{
    return node->machine && tutti_council_leads(node->council, clock_of(node));
}

static void on_decided(void *arg, const struct tutti_record *record)
{
    struct node *node = arg;
    if (node->machine && tutti_ledger_decided(&node->ledger, record) && leads(node))
        tutti_lighthouse_tick(node->machine, time_of(node));
}

static void start_node(struct node *node)
{
    const struct tutti_council_options options = {sim.n, number_of(node), LEASE, 150 * MS, tutti_random64(&sim.random)};
    const struct tutti_council_out out = {node, on_send, on_keep, on_leads, on_decided};
    node->up = true;
    node->clock = chance(1000000) * MS;
    assert_int_equal(tutti_council_create(&options, &out, &node->council), TUTTI_OK);
    assert_int_equal(tutti_council_restore(node->council, node->promised, &node->record, node->has_record), TUTTI_OK);
    tutti_council_start(node->council, clock_of(node));
}

static void stop_node(struct node *node)
{
    end_machine(node);
    node->n_writes = 0; /* they are lost */
    tutti_council_destroy(node->council);
    node->council = NULL;
    node->up = false;
}

/* ---- a group ---- */
static void ask(uint32_t i)
{
    struct group *group = &sim.groups[i];
    if (group->waits)
        post((struct mail){.from = NODES + i, .to = group->to, .kind = CANCEL, .request = group->request});
    if (group->waits || (!sim.calm && chance(10) == 0)) group->to = (group->to + 1) % sim.n;
    group->waits = true;
    group->request = ++sim.number * GROUPS + i;
    group->due = sim.now + 800 * MS + chance(400 * MS);
    post((struct mail){.from = NODES + i, .to = group->to, .kind = ASK, .request = group->request, .id = group->step});
}

static void live_group(uint32_t i)
{
    struct group *group = &sim.groups[i];
    if (!group->up) return;
    if (sim.now >= group->due) ask(i);
    if (sim.now < group->beat) return;
    group->beat = sim.now + 200 * MS;
    post((struct mail){.from = NODES + i, .to = group->to, .kind = BEAT});
}

static void hear_group(const struct mail *mail)
{
    struct group *group = &sim.groups[mail->to - NODES];
    if (!group->up || !group->waits || mail->request != group->request) return;
    if (mail->kind == REFUSED) { /* the next one, soon */
        group->due = sim.now + 30 * MS + chance(50 * MS);
        return;
    }
    check(mail->id >= group->id, "a group hears of a smaller number");
    check(mail->mask >> (mail->to - NODES) & 1, "an answer to who is no member");
    group->waits = false;
    group->id = mail->id;
    group->together = group->together || (sim.calm && mail->mask == (1u << GROUPS) - 1);
    group->step++;
    group->answered = sim.now;
    group->due = sim.now + 50 * MS + chance(250 * MS);
}

static void hear_node(const struct mail *mail)
{
    struct node *node = &sim.nodes[mail->to];
    if (!node->up) return;
    if (mail->kind == COUNCIL) {
        struct tutti_council_message message = mail->council;
        struct tutti_record record = mail->record;
        record.bytes = mail->bytes, record.key = "job";
        message.records = &record;
        tutti_council_received(node->council, &message, clock_of(node));
        return;
    }
    const char name[2] = {(char)('a' + mail->from - NODES), '\0'};
    const struct tutti_replica replica = {name, "", "", "", .step = mail->id, .commit_failures = chance(20) == 0};
    if (!leads(node)) {
        if (mail->kind == ASK)
            post((struct mail){.from = mail->to, .to = mail->from, .kind = REFUSED, .request = mail->request});
    } else if (mail->kind == ASK) {
        tutti_lighthouse_ask(node->machine, &replica, mail->request, time_of(node));
    } else if (mail->kind == BEAT) {
        tutti_lighthouse_beat(node->machine, name, time_of(node));
    } else {
        tutti_lighthouse_cancel(node->machine, mail->request, time_of(node));
    }
}

/* ---- a life ---- */
static void tick_node(struct node *node)
{
    if (!node->up) return;
    end_writes(node);
    tutti_council_tick(node->council, clock_of(node));
    if (leads(node) && tutti_lighthouse_due(node->machine) <= clock_of(node))
        tutti_lighthouse_tick(node->machine, time_of(node));
}

static void part(void)
{
    const uint64_t a = chance(sim.n), b = chance(sim.n), how = chance(3);
    if (how == 0) sim.cut[a][b] = sim.cut[b][a] = true;
    for (uint32_t i = 0; how > 0 && i < ENDS; i++) sim.side[i] = (uint32_t)chance(2);
    for (uint32_t i = 0; how == 2 && i < sim.n; i++) sim.side[i] = leads(&sim.nodes[i]);
}

static void heal(void)
{
    memset(sim.side, 0, sizeof sim.side);
    memset(sim.cut, 0, sizeof sim.cut);
}

static void go_wrong(void)
{
    struct node *node = &sim.nodes[chance(sim.n)];
    struct group *group = &sim.groups[chance(GROUPS)];
    const uint64_t what = chance(60);
    if (what < sim.crashes && node->up) stop_node(node);
    if (what >= 3 && what < 6 && !node->up) start_node(node);
    if (what >= 6 && what < 6 + sim.heals) heal();
    if (what >= 9 && what < 12 && !group->up) *group = (struct group){.up = true, .to = (uint32_t)chance(sim.n)};
    if (what == 12 && sim.power)
        for (uint32_t i = 0; i < sim.n; i++) /* the power fails */
            if (sim.nodes[i].up) stop_node(&sim.nodes[i]);
    if (what >= 20 && what < 20 + sim.parts) part();
    if (what >= 40 && what < 40 + sim.deaths) group->up = false;
}

static void be_calm(void)
{
    sim.calm = true;
    heal();
    for (uint32_t i = 0; i < sim.n; i++)
        if (!sim.nodes[i].up) start_node(&sim.nodes[i]);
    for (uint32_t i = 0; i < GROUPS; i++)
        if (!sim.groups[i].up) sim.groups[i] = (struct group){.up = true};
    if (sim.n > 1) sim.nodes[sim.slow ? sim.slowest : chance(sim.n)].full = chance(3); /* one, maybe the leader */
}

static void deliver(void)
{
    while (n_heap > 0 && mails[heap[0]].at <= sim.now) {
        const uint32_t at = heap[0];
        const struct mail mail = mails[at];
        heap[0] = heap[--n_heap];
        sift(0);
        spare[n_spare++] = at;
        const bool both = mail.from < NODES && mail.to < NODES;
        if (sim.side[mail.from] != sim.side[mail.to] || (both && sim.cut[mail.from][mail.to])) continue;
        if (mail.to >= NODES)
            hear_group(&mail);
        else
            hear_node(&mail);
    }
}

static void live(uint64_t seed)
{
    memset(&sim, 0, sizeof sim);
    sim.seed = sim.random = seed;
    sim.n = (uint32_t[]){3, 3, 3, 1, 5}[chance(5)];
    sim.parts = 1 + chance(8), sim.heals = 1 + chance(3), sim.deaths = 1 + chance(12);
    sim.crashes = chance(4), sim.power = chance(2), sim.slow = chance(2), sim.slowest = (uint32_t)chance(sim.n);
    n_heap = 0;
    for (n_spare = 0; n_spare < MAIL; n_spare++) spare[n_spare] = n_spare;
    for (uint32_t i = 0; i < sim.n; i++) start_node(&sim.nodes[i]);
    for (uint32_t i = 0; i < GROUPS; i++) sim.groups[i] = (struct group){.up = true, .to = (uint32_t)chance(sim.n)};
    for (; sim.now < END; sim.now += 10 * MS) {
        if (!sim.calm && sim.now >= CALM) be_calm();
        if (!sim.calm && chance(10) == 0) go_wrong();
        deliver();
        for (uint32_t i = 0; i < sim.n; i++) tick_node(&sim.nodes[i]);
        uint32_t n_leads = 0;
        for (uint32_t i = 0; i < sim.n; i++) n_leads += leads(&sim.nodes[i]);
        check(n_leads <= 1, "two lead at once");
        for (uint32_t i = 0; i < GROUPS; i++) live_group(i);
        for (uint32_t i = 0; i < GROUPS && sim.now >= CALM + BOUND; i++)
            check(sim.groups[i].together && sim.now - sim.groups[i].answered < 3000 * MS,
                  "all is well, and a group is left out");
    }
    for (uint32_t i = 0; i < sim.n; i++) stop_node(&sim.nodes[i]);
}

static uint64_t n_lives;

static void test_lives(void **state)
{
    const uint64_t n = n_lives;
    int64_t sum = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= n; seed++) {
        live(seed);
        sum += sim.max_id;
    }
    assert_true(sum > 5 * (int64_t)n); /* there was something to agree about */
}

/* usage: test_ft_council_test [lives] */
int main(int argc, char **argv)
{
    n_lives = argc > 1 ? strtoull(argv[1], NULL, 10) : getenv("TUTTI_TEST_SAMPLE") ? 200 : 5000;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
