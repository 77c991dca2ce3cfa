/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared links: rates against max-min as the textbook fills it, ends of messages against a slow fluid of the test's
 * own, times against ports where nothing is shared and against lower bounds, texts that are refused. */
#include "test.h"

#include "algo/algo.h"
#include "sim/network.h"
#include "sim/share.h"
#include "sim/topology.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state_of_random;

static uint32_t under(uint32_t n)
{
    return (uint32_t)(tutti_random64(&state_of_random) % n);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* ---- the textbook ---- */

enum { MOST_FLOWS = 128, MOST_LINKS = 4096, MOST_PATH = 24 };
struct textbook_flow {
    uint32_t links[MOST_PATH], n;
    double rate;
    bool there, fixed;
};

static bool crosses(const struct textbook_flow *flow, uint32_t link)
{
    for (uint32_t i = 0; i < flow->n; i++)
        if (flow->links[i] == link) return true;
    return false;
}

/* What the flows with a rate leave of a link for each of those without one; INFINITY: there are none. */
static double fair(const struct textbook_flow *flows, uint32_t n, uint32_t link, double capacity)
{
    uint32_t open = 0;
    for (uint32_t f = 0; f < n; f++) {
        if (!flows[f].there || !crosses(&flows[f], link)) continue;
        if (flows[f].fixed)
            capacity -= flows[f].rate;
        else
            open++;
    }
    return open ? capacity / open : INFINITY;
}

/* Fills all flows equally, until a link is full; again and again. */
static void textbook(struct textbook_flow *flows, uint32_t n, const double *capacity)
{
    uint32_t n_left = 0;
    for (uint32_t f = 0; f < n; f++) {
        flows[f].fixed = !flows[f].there;
        n_left += flows[f].there;
    }
    while (n_left > 0) {
        double least = INFINITY;
        uint32_t full = 0;
        for (uint32_t f = 0; f < n; f++)
            for (uint32_t i = 0; !flows[f].fixed && i < flows[f].n; i++) {
                double level = fair(flows, n, flows[f].links[i], capacity[flows[f].links[i]]);
                if (level >= least) continue;
                least = level;
                full = flows[f].links[i];
            }
        for (uint32_t f = 0; f < n; f++) {
            if (flows[f].fixed || !crosses(&flows[f], full)) continue;
            flows[f].rate = least;
            flows[f].fixed = true;
            n_left--;
        }
    }
}

/* Random flows over random links come and go in random numbers; after each solve all have the textbook's rates. */
static void random_rates(uint32_t n_links, uint32_t n_flows, uint32_t kinds)
{
    struct textbook_flow flows[MOST_FLOWS] = {0};
    uint32_t numbers[MOST_FLOWS];
    double capacity[32];
    struct tutti_sim_share share;
    assert_int_equal(tutti_sim_share_open(n_links, MOST_PATH, &share), TUTTI_OK);
    for (uint32_t l = 0; l < n_links; l++)
        capacity[l] = share.links[l].capacity = kinds ? 1 + under(kinds) : 1e-3 + (double)under(1000000) / 1e4;
    for (uint32_t round = 0; round < 60; round++) {
        for (uint32_t change = under(round % 4 == 0 ? n_flows : 3) + 1; change > 0; change--) {
            uint32_t f = under(n_flows);
            if (flows[f].there && share.flows[numbers[f]].asked) continue;
            flows[f].there = !flows[f].there;
            if (!flows[f].there) {
                tutti_sim_share_end(&share, numbers[f]);
                continue;
            }
            flows[f].n = 0;
            for (uint32_t hop = under(n_links < 8 ? n_links : 8) + 1; hop > 0; hop--) {
                uint32_t link = under(n_links);
                if (!crosses(&flows[f], link)) flows[f].links[flows[f].n++] = link;
            }
            assert_int_equal(tutti_sim_share_start(&share, flows[f].links, flows[f].n, &numbers[f]), TUTTI_OK);
        }
        tutti_sim_share_solve(&share);
        textbook(flows, n_flows, capacity);
        for (uint32_t f = 0; f < n_flows; f++) {
            if (!flows[f].there) continue;
            double rate = share.flows[numbers[f]].rate;
            if (fabs(rate - flows[f].rate) > 1e-6 * flows[f].rate)
                fail_msg("flow %u: %g instead of %g (seed %llu)", f, rate, flows[f].rate,
                         (unsigned long long)test_seed());
        }
    }
    tutti_sim_share_close(&share);
}

static void test_rates(void **state)
{
    (void)state;
    state_of_random = test_seed();
    for (uint32_t i = 0; i < 60; i++) random_rates(1 + under(30), 1 + under(MOST_FLOWS - 1), i % 3 == 0 ? 0 : i % 3);
}

/* ---- topologies ---- */

static void open_topology(const char *text, uint32_t n_ranks, struct tutti_sim_topology *out)
{
    const struct tutti_shape shape = {.size = n_ranks};
    if (tutti_sim_topology_open(text, &shape, out) < 0) fail_msg("%s", tutti_last_error()->text);
}

/* Where a message is after a link, as the link's name says it: so paths are walked without the formulas that made them.
 * False: the link does not begin there. */
struct place {
    uint32_t leaf, spine, pod, group, at;
    uint32_t *gate; /* behind a global link: the switch where it ends, which only what follows tells */
};
static uint32_t gates[2][16][16][4]; /* where a global link begins, and ends: the switch, plus 1 */

static bool gate_is(uint32_t *gate, uint32_t at)
{
    if (*gate == 0) *gate = at + 1;
    return *gate == at + 1;
}

/* It is at this switch. */
static bool place_at(struct place *p, uint32_t at)
{
    bool right = p->gate ? gate_is(p->gate, at) : p->at == at;
    p->gate = NULL;
    return right;
}

static bool walk_link(const struct tutti_sim_topology *topology, uint32_t link, struct place *p)
{
    char name[64], class[16], sign;
    unsigned a, b, c, d;
    tutti_sim_topology_name(topology, link, name, sizeof(name));
    if (sscanf(name, "local:%u.%u-%u.%u", &a, &b, &c, &d) == 4) {
        bool here = place_at(p, b) && p->group == a && b != c;
        p->at = c;
        return here;
    }
    if (sscanf(name, "global:%u-%u.%u", &a, &b, &c) == 3) {
        uint32_t *gate = &gates[0][a][b][c];
        bool unknown = p->gate && *gate == 0; /* two links meet in a switch that neither is known of */
        bool here = p->group == a && (unknown || (p->gate ? place_at(p, *gate - 1) : gate_is(gate, p->at)));
        p->group = b;
        p->gate = &gates[1][a][b][c];
        return here && a != b;
    }
    if (sscanf(name, "wire:%u.%u%c", &a, &b, &sign) == 3) {
        uint32_t stride = 1, size = topology->is.dims.size[b];
        for (uint32_t i = 0; i < b; i++) stride *= topology->is.dims.size[i];
        bool here = p->at == a;
        uint32_t x = a / stride % size, next = (x + (sign == '+' ? 1 : size - 1)) % size;
        p->at = a - x * stride + next * stride;
        return here;
    }
    if (sscanf(name, "%15[a-z_]:%u.%u.%u", class, &a, &b, &c) == 4) {
        bool up = strcmp(class, "core_up") == 0, here = p->spine == b && (up ? p->pod == a : p->at == c);
        p->pod = a;
        p->at = c;
        return here;
    }
    assert_int_equal(sscanf(name, "%15[a-z_]:%u.%u", class, &a, &b), 3);
    bool up = strcmp(class, "up") == 0, here = up ? p->leaf == a : p->spine == b;
    p->leaf = a;
    p->spine = b;
    return here;
}

static struct place place_of(const struct tutti_sim_topology *topology, uint32_t nic)
{
    const struct tutti_sim_parameters *is = &topology->is;
    uint32_t node = nic / topology->n_nics;
    struct place place = {0};
    if (is->hosts > 0) place.leaf = node / (uint32_t)is->hosts;
    if (strcmp(topology->fabric->name, "rails") == 0)
        place.leaf = place.leaf * topology->n_nics + nic % topology->n_nics;
    if (strcmp(topology->fabric->name, "torus") == 0) place.at = node;
    if (strcmp(topology->fabric->name, "dragonfly") == 0) {
        place.at = node / (uint32_t)is->nodes % (uint32_t)is->switches;
        place.group = node / (uint32_t)is->nodes / (uint32_t)is->switches;
    }
    place.pod = is->leaves > 0 ? place.leaf / (uint32_t)is->leaves : 0;
    return place;
}

/* Links of a path whose names begin so. */
static uint32_t count(const struct tutti_sim_topology *topology, const struct tutti_sim_path *path, const char *class)
{
    char name[64];
    uint32_t n = 0;
    for (uint32_t i = 0; i < path->n; i++) {
        tutti_sim_topology_name(topology, path->links[i], name, sizeof(name));
        n += strncmp(name, class, strlen(class)) == 0;
    }
    return n;
}

static void check_path(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to, bool detour,
                       const struct tutti_sim_path *path)
{
    const struct tutti_sim_class *nics = &topology->classes[TUTTI_SIM_NICS];
    uint32_t i = 0;
    for (uint32_t a = 0; a < path->n; a++)
        for (uint32_t b = 0; b < a; b++) assert_int_not_equal(path->links[a], path->links[b]);
    while (path->links[i] < nics->first) i++;
    uint32_t out = path->links[i] - nics->first, in = path->links[path->n - 1] - nics->first;
    assert_true(out % 2 == 0 && out < nics->n && in % 2 == 1 && in < nics->n);
    assert_int_equal(out / 2 / topology->n_nics, topology->node[from]);
    assert_int_equal(in / 2 / topology->n_nics, topology->node[to]);
    if (topology->is.pxn > 0) assert_int_equal(out / 2 % topology->n_nics, in / 2 % topology->n_nics);
    struct place place = place_of(topology, out / 2), end = place_of(topology, in / 2);
    bool fly = strcmp(topology->fabric->name, "dragonfly") == 0, far = place.group != end.group;
    if (fly && far) assert_int_equal(count(topology, path, "global"), detour ? 2 : 1);
    if (fly && !far && place.at != end.at) assert_int_equal(count(topology, path, "local"), detour ? 2 : 1);
    for (i++; i + 1 < path->n; i++)
        if (!walk_link(topology, path->links[i], &place)) fail_msg("%u to %u: broken at link %u", from, to, i);
    assert_true(place_at(&place, end.at));
    assert_int_equal(place.leaf, end.leaf);
    assert_int_equal(place.group, end.group);
}

static const struct {
    const char *text;
    uint32_t n_ranks;
} worlds[] = {
    {"fat_tree:hosts=4,ranks=2,taper=2", 48},
    {"fat_tree:hosts=3,ranks=4,nics=2,leaves=2,core_taper=2", 100},
    {"dragonfly:switches=4,nodes=2,nics=2,ranks=2,globals=2,routing=minimal", 96},
    {"dragonfly:switches=3,nodes=1,nics=4,ranks=2,globals=3,locals=2,routing=valiant", 60},
    {"dragonfly:switches=4,nodes=2,nics=3,ranks=4,globals=1,groups=9", 128},
    {"torus:dims=4x3x2", 24},
    {"torus:dims=8,ranks=3,inject=30", 24},
    {"torus:memory=40,ranks=2", 50},
    {"rails:ranks=4,nics=4,hosts=4,taper=2", 64},
    {"rails:ranks=4,nics=4,hosts=2,taper=4,pxn=0", 64},
};

/* All ways between all pairs lead from link to link. */
static void test_paths(void **state)
{
    (void)state;
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        struct tutti_sim_topology topology;
        struct tutti_sim_path path;
        open_topology(worlds[w].text, worlds[w].n_ranks, &topology);
        memset(gates, 0, sizeof(gates));
        for (uint32_t from = 0; from < topology.n_ranks; from++)
            for (uint32_t to = 0; to < topology.n_ranks; to++)
                for (uint32_t way = 0; way < 26; way++) {
                    uint32_t n = tutti_sim_topology_route(&topology, from, to, way % 2 == 1, way / 2, &path);
                    bool inside = topology.node[from] == topology.node[to];
                    assert_true(n > 0 || way % 2 == 1);
                    if (inside && n > 0)
                        assert_int_equal(path.n, topology.is.memory > 0 ? 3 : 2);
                    else if (n > 0)
                        check_path(&topology, from, to, way % 2 == 1, &path);
                }
        tutti_sim_topology_close(&topology);
        for (uint32_t a = 0; a < 16; a++) /* a global link and the one back join the same switches */
            for (uint32_t b = 0; b < 16; b++)
                for (uint32_t k = 0; k < 4; k++) assert_int_equal(gates[0][a][b][k], gates[1][b][a][k]);
    }
}

/* A rank with several NICs uses all of them, and no other rank's. */
static void test_nics(void **state)
{
    struct tutti_sim_topology topology;
    struct tutti_sim_path path;
    (void)state;
    open_topology("fat_tree:ranks=2,nics=6,hosts=2", 8, &topology);
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t choice = 0; choice < 6; choice++) {
            tutti_sim_topology_route(&topology, rank, 5, false, choice, &path);
            uint32_t nic = (path.links[0] - topology.classes[TUTTI_SIM_NICS].first) / 2;
            assert_int_equal(nic, 3 * rank + choice % 3);
        }
    tutti_sim_topology_close(&topology);
}

/* ---- ends of messages ---- */

static enum tutti_status run_on(const struct tutti_sim_topology *topology, const struct tutti_sim_program *program,
                                struct tutti_sim_result *result, double *fullest)
{
    struct tutti_sim_network *network;
    struct tutti_sim_link link;
    assert_int_equal(tutti_sim_flows_open(topology, program, &network), TUTTI_OK);
    enum tutti_status status = tutti_sim_run(program, network, result);
    *fullest = 0;
    for (uint32_t i = 0; network->ops->link(network, i, &link, NULL, 0); i++)
        *fullest = larger(*fullest, (double)link.busy_ps / (double)result->end_ps);
    network->ops->close(network);
    return status;
}

/* The example of two links, of 10 and 4 bytes/s, and two flows, of 40 bytes over both and of 30 over the first. */
static uint32_t example_route(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to, bool detour,
                              uint64_t choice, struct tutti_sim_path *path)
{
    uint32_t first = topology->classes[TUTTI_SIM_FIRST_OWN].first;
    (void)to, (void)choice;
    path->links[path->n++] = first;
    if (from == 0) path->links[path->n++] = first + 1;
    return detour ? 0 : 1;
}

static enum tutti_status example_plan(struct tutti_sim_topology *topology)
{
    tutti_sim_class_add(topology, "x", 1, 10);
    tutti_sim_class_add(topology, "y", 1, 4);
    return TUTTI_OK;
}

static void test_example(void **state)
{
    static const char text[] =
        "num_ranks 3\nrank 0 {\nsend 40000000b to 2 tag 0\n}\nrank 1 {\nsend 30000000b to 2 tag 1"
        "\n}\nrank 2 {\nrecv 40000000b from 0 tag 0\nrecv 30000000b from 1 tag 1\n}\n";
    struct tutti_sim_fabric example = {"example", "", example_plan, example_route, NULL};
    struct tutti_sim_topology topology;
    struct tutti_sim_program program;
    struct tutti_sim_result result;
    double fullest;
    (void)state;
    open_topology("torus:dims=3,latency=0ns,hop=0ns", 3, &topology);
    topology.fabric = &example;
    topology.n_classes--;
    topology.n_links = topology.classes[TUTTI_SIM_FIRST_OWN].first;
    example_plan(&topology);
    assert_int_equal(tutti_sim_goal_read("t", text, strlen(text), &program), TUTTI_OK);
    assert_int_equal(run_on(&topology, &program, &result, &fullest), TUTTI_OK);
    assert_int_equal(result.rank_end_ps[1], UINT64_C(5000000000)); /* 5 ms for millionths of the example's seconds */
    assert_int_equal(result.rank_end_ps[0], UINT64_C(10000000000));
    assert_int_equal(result.rank_end_ps[2], UINT64_C(10000000000));
    tutti_sim_result_fini(&result);
    tutti_sim_program_fini(&program);
}

/* A message of the slow fluid: it begins at a time until which its rank computes. */
struct slow {
    uint32_t to, bytes, begin_ns;
    double left, end, latency;
};

static void slow_paths(const struct tutti_sim_topology *topology, struct slow *messages, struct textbook_flow *flows)
{
    bool valiant = (int)topology->is.routing == TUTTI_SIM_VALIANT;
    struct tutti_sim_path path;
    for (uint32_t i = 0; i < topology->n_ranks; i++) {
        uint32_t to = messages[i].to;
        if (!valiant || tutti_sim_topology_route(topology, i, to, true, to, &path) == 0)
            assert_true(tutti_sim_topology_route(topology, i, to, false, to, &path) > 0);
        flows[i] = (struct textbook_flow){.n = path.n};
        assert_true(path.n <= MOST_PATH);
        memcpy(flows[i].links, path.links, path.n * sizeof(*path.links));
        messages[i].left = messages[i].bytes;
        messages[i].latency = (double)tutti_sim_topology_latency_ps(topology, i, to, &path);
    }
}

/* One message of each rank. */
static void slow_run(const struct tutti_sim_topology *topology, struct slow *messages)
{
    static struct textbook_flow flows[MOST_FLOWS];
    static double capacity[MOST_LINKS];
    uint32_t n = topology->n_ranks, n_done = 0;
    assert_true(topology->n_links <= MOST_LINKS && n <= MOST_FLOWS);
    for (uint32_t l = 0; l < topology->n_links; l++) capacity[l] = tutti_sim_topology_bandwidth(topology, l) / 1e12;
    slow_paths(topology, messages, flows);
    for (double now = 0, next; n_done < n; now = next) {
        textbook(flows, n, capacity);
        next = INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            double then = flows[i].there ? now + messages[i].left / flows[i].rate : messages[i].begin_ns * 1000.0;
            if (messages[i].left > 0) next = smaller(next, then);
        }
        for (uint32_t i = 0; i < n; i++) {
            bool ends = flows[i].there && now + messages[i].left / flows[i].rate <= next * (1 + 1e-12);
            if (flows[i].there) messages[i].left -= flows[i].rate * (next - now);
            if (!flows[i].there && messages[i].left > 0 && messages[i].begin_ns * 1000.0 <= next) flows[i].there = true;
            if (!ends) continue;
            flows[i].there = false;
            messages[i].left = 0;
            messages[i].end = next;
            n_done++;
        }
    }
}

/* As a program: each rank computes, then sends; and receives what it is sent. */
static void make_program(const struct slow *messages, uint32_t n, struct tutti_sim_program *program)
{
    uint32_t calc, op;
    assert_int_equal(tutti_sim_program_init(program, n), TUTTI_OK);
    for (uint32_t r = 0; r < n; r++) {
        const struct tutti_sim_op wait = {.type = TUTTI_SIM_CALC, .size = messages[r].begin_ns * UINT64_C(1000)};
        const struct tutti_sim_op send = {.type = TUTTI_SIM_SEND, .size = messages[r].bytes, .peer = messages[r].to};
        tutti_sim_program_rank(program, r);
        assert_int_equal(tutti_sim_program_add(program, &wait, &calc), TUTTI_OK);
        assert_int_equal(tutti_sim_program_add(program, &send, &op), TUTTI_OK);
        assert_int_equal(tutti_sim_program_after(program, calc, op, false), TUTTI_OK);
        for (uint32_t i = 0; i < n; i++) {
            const struct tutti_sim_op recv = {.type = TUTTI_SIM_RECV, .size = messages[i].bytes, .peer = i};
            if (messages[i].to == r) assert_int_equal(tutti_sim_program_add(program, &recv, &op), TUTTI_OK);
        }
    }
    assert_int_equal(tutti_sim_program_seal(program), TUTTI_OK);
}

static void random_messages(const char *text, uint32_t n)
{
    struct slow messages[MOST_FLOWS];
    struct tutti_sim_topology topology;
    struct tutti_sim_program program;
    struct tutti_sim_result result;
    double fullest, ends[MOST_FLOWS];
    open_topology(text, n, &topology);
    if ((int)topology.is.routing == TUTTI_SIM_ADAPTIVE) topology.is.routing = TUTTI_SIM_MINIMAL;
    for (uint32_t i = 0; i < n; i++)
        messages[i] = (struct slow){.to = under(n), .bytes = 1 + under(4000000), .begin_ns = under(50000)};
    slow_run(&topology, messages);
    make_program(messages, n, &program);
    if (run_on(&topology, &program, &result, &fullest) < 0) fail_msg("%s", tutti_last_error()->text);
    assert_true(fullest <= 1);
    for (uint32_t r = 0; r < n; r++) {
        ends[r] = messages[r].end;
        for (uint32_t i = 0; i < n; i++)
            if (messages[i].to == r) ends[r] = larger(ends[r], messages[i].end + messages[i].latency);
        if (fabs((double)result.rank_end_ps[r] - ends[r]) > 1e-7 * ends[r] + 2)
            fail_msg("%s: rank %u ends at %llu instead of %.1f", text, r, (unsigned long long)result.rank_end_ps[r],
                     ends[r]);
    }
    tutti_sim_result_fini(&result);
    tutti_sim_program_fini(&program);
}

static void test_ends(void **state)
{
    (void)state;
    state_of_random = test_seed();
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++)
        for (uint32_t i = 0; i < 3; i++) random_messages(worlds[w].text, worlds[w].n_ranks);
}

/* Messages of a pair go one after the other: on 100 ranks each sends four to each of five others, and a receiver
 * computes after the first of each. */
static void test_pairs(void **state)
{
    enum { N = 100, PEERS = 5, EACH = 4, BYTES = 250000 };
    struct tutti_sim_topology topology;
    struct tutti_sim_program program;
    struct tutti_sim_result result;
    double fullest;
    uint32_t op, calc;
    (void)state;
    open_topology("fat_tree:ranks=1,hosts=100,latency=0ns,hop=0ns", N, &topology);
    assert_int_equal(tutti_sim_program_init(&program, N), TUTTI_OK);
    for (uint32_t r = 0; r < N; r++) {
        tutti_sim_program_rank(&program, r);
        for (uint32_t i = 0; i < 2 * PEERS * EACH; i++) {
            uint32_t step = 7 * (i / 2 % PEERS + 1), peer = (r + (i % 2 ? N - step : step)) % N, tag = i / 2 / PEERS;
            const struct tutti_sim_op message = {
                .type = i % 2 ? TUTTI_SIM_RECV : TUTTI_SIM_SEND, .size = BYTES, .peer = peer, .tag = tag};
            const struct tutti_sim_op compute = {.type = TUTTI_SIM_CALC, .size = UINT64_C(1000000000)};
            assert_int_equal(tutti_sim_program_add(&program, &message, &op), TUTTI_OK);
            if (i % 2 == 0 || tag > 0) continue;
            assert_int_equal(tutti_sim_program_add(&program, &compute, &calc), TUTTI_OK);
            assert_int_equal(tutti_sim_program_after(&program, op, calc, false), TUTTI_OK);
        }
    }
    assert_int_equal(tutti_sim_program_seal(&program), TUTTI_OK);
    assert_int_equal(run_on(&topology, &program, &result, &fullest), TUTTI_OK);
    for (uint32_t r = 0; r < N; r++) /* 5 * 250000 bytes at 25 GB/s, then five times a millisecond */
        assert_int_equal(result.rank_end_ps[r], UINT64_C(50000000) + PEERS * UINT64_C(1000000000));
    tutti_sim_result_fini(&result);
    tutti_sim_program_fini(&program);
}

/* Two messages whose turn is the same global link: adaptive routes take the other one, too. */
static void test_adaptive(void **state)
{
    static const char text[] =
        "num_ranks 8\nrank 0 {\nsend 1000000b to 4\n}\nrank 1 {\n}\nrank 2 {\nsend 1000000b to 6\n}\n"
        "rank 3 {\n}\nrank 4 {\nrecv 1000000b from 0\n}\nrank 5 {\n}\nrank 6 {\nrecv 1000000b "
        "from 2\n}\nrank 7 {\n}\n";
    static const char *const routings[] = {"minimal", "adaptive"};
    static const uint64_t ends[] = {80000000, 40000000};
    struct tutti_sim_program program;
    (void)state;
    assert_int_equal(tutti_sim_goal_read("t", text, strlen(text), &program), TUTTI_OK);
    for (size_t i = 0; i < 2; i++) {
        char net[128];
        struct tutti_sim_topology topology;
        struct tutti_sim_result result;
        double fullest;
        snprintf(net, sizeof(net),
                 "dragonfly:ranks=1,nics=1,switches=4,nodes=1,globals=2,latency=0ns,hop=0ns,routing=%s", routings[i]);
        open_topology(net, 8, &topology);
        assert_int_equal(run_on(&topology, &program, &result, &fullest), TUTTI_OK);
        assert_int_equal(result.end_ps, ends[i]);
        tutti_sim_result_fini(&result);
    }
    tutti_sim_program_fini(&program);
}

/* ---- collectives ---- */

static void make_call(const char *algorithm, enum tutti_kind kind, uint32_t n, uint64_t bytes,
                      struct tutti_sim_program *program)
{
    struct tutti_shape shape = {.size = n};
    const struct tutti_sim_work work = {
        .block_bytes = bytes / tutti_kind_blocks(kind, n), .element_bytes = 1, .active = 64};
    const struct tutti_algorithm *found = tutti_algorithm_find(algorithm, &shape.radix);
    if (tutti_sim_program_make(found, kind, &shape, &work, program) < 0) fail_msg("%s", tutti_last_error()->text);
}

/* Where nothing is shared, times are those of ports, within the rounding of a picosecond a message. */
static void test_as_ports(void **state)
{
    static const struct {
        const char *algorithm;
        enum tutti_kind kind;
    } calls[] = {{"ring", TUTTI_ALL_REDUCE},
                 {"ring", TUTTI_BROADCAST},
                 {"ring", TUTTI_REDUCE},
                 {"halving_doubling", TUTTI_ALL_REDUCE},
                 {"dissemination", TUTTI_BARRIER}};
    static const char *const texts[] = {"fat_tree:ranks=1,hosts=64,hop=500ns",
                                        "torus:dims=64,inject=25,hop=0ns,latency=2us"};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(calls) * TUTTI_ARRAY_LEN(texts); i++) {
        const char *algorithm = calls[i / 2].algorithm;
        bool torus = i % 2 == 1; /* in which only neighbours have links of their own */
        if (torus && strcmp(algorithm, "ring") != 0) continue;
        struct tutti_sim_ports rule = {.alpha_ps = torus ? 2000000 : 1500000, .beta_fs = 40000};
        struct tutti_sim_topology topology;
        struct tutti_sim_program program;
        struct tutti_sim_network *network;
        struct tutti_sim_result ports, flows;
        double fullest;
        make_call(algorithm, calls[i / 2].kind, 64, 64 * 7777, &program);
        open_topology(texts[i % 2], 64, &topology);
        assert_int_equal(tutti_sim_ports_open(&rule, &program, &network), TUTTI_OK);
        assert_int_equal(tutti_sim_run(&program, network, &ports), TUTTI_OK);
        network->ops->close(network);
        assert_int_equal(run_on(&topology, &program, &flows, &fullest), TUTTI_OK);
        if (llabs((long long)(flows.end_ps - ports.end_ps)) > 128)
            fail_msg("%s on %s: %llu, ports %llu", algorithm, texts[i % 2], (unsigned long long)flows.end_ps,
                     (unsigned long long)ports.end_ps);
        tutti_sim_result_fini(&ports);
        tutti_sim_result_fini(&flows);
        tutti_sim_program_fini(&program);
    }
}

/* No call beats what its topology allows, no link carries more than it can, and a run gives the same again. */
static void test_bounds(void **state)
{
    (void)state;
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++)
        for (size_t a = 0; a < tutti_n_algorithms; a++)
            for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
                const uint32_t n = 24;
                const struct tutti_shape shape = {.size = n};
                if (!tutti_algorithm_fits(tutti_algorithms[a], (enum tutti_kind)kind, &shape, NULL, 0)) continue;
                struct tutti_sim_program program;
                struct tutti_sim_result results[2];
                make_call(tutti_algorithms[a]->name, (enum tutti_kind)kind, n, n * 10000, &program);
                for (uint32_t i = 0; i < 2; i++) {
                    struct tutti_sim_topology topology;
                    double fullest;
                    open_topology(worlds[w].text, n, &topology);
                    const struct tutti_sim_bounds bounds =
                        tutti_sim_bounds_of((enum tutti_kind)kind, n, n * 10000, &topology.limits);
                    assert_int_equal(run_on(&topology, &program, &results[i], &fullest), TUTTI_OK);
                    if (results[i].end_ps < bounds.most_ps || fullest > 1 + 1e-6)
                        fail_msg("%s %s on %s: %llu ps, bound %llu, fullest link %g", tutti_algorithms[a]->name,
                                 tutti_kind_name((enum tutti_kind)kind), worlds[w].text,
                                 (unsigned long long)results[i].end_ps, (unsigned long long)bounds.most_ps, fullest);
                }
                assert_memory_equal(results[0].rank_end_ps, results[1].rank_end_ps, n * sizeof(uint64_t));
                for (uint32_t i = 0; i < 2; i++) tutti_sim_result_fini(&results[i]);
                tutti_sim_program_fini(&program);
            }
}

static void test_texts(void **state)
{
    static const char *const texts[][2] = {
        {"star", "'star' is no topology: there are fat_tree, dragonfly, torus, rails"},
        {"fat_tree:hosts", "fat_tree: 'hosts' is neither name=value nor a preset"},
        {"fat_tree:aurora", "fat_tree: 'aurora' is neither"},
        {"dragonfly:nodes=2,aurora", "dragonfly has no parameter 'aurora'"},
        {"fat_tree:groups=3", "fat_tree has no parameter 'groups'"},
        {"fat_tree:hosts=2.5", "fat_tree: hosts=2.5: it takes a whole number, from 1 to 1e+06"},
        {"fat_tree:hosts=", "fat_tree: hosts=: it takes a whole number"},
        {"fat_tree:taper=nan", "fat_tree: taper=nan: it takes a number, from 0.01"},
        {"fat_tree:latency=5", "fat_tree: latency=5: it takes a time such as 200ns or 1.5us, from 0 to 1s"},
        {"fat_tree:bandwidth=-1", "it takes a number of GB/s"},
        {"dragonfly:routing=best", "routing=best: it takes minimal, valiant or adaptive"},
        {"dragonfly:groups=1,switches=2,nodes=1,ranks=1", "16 nodes do not fit into 1 groups of 2"},
        {"torus:dims=2x2x", "dims=2x2x: it takes numbers of nodes such as 8x8x16"},
        {"torus:dims=2x3", "torus: 16 nodes do not fit into one of 6"},
        {"torus:dims=600x2", "torus: dimensions of 602 nodes together: at most 504"},
        {"torus:dims=1000000x1000000x1000000x1000000", "more than 8388608 links"},
        {"dragonfly:aurora,groups=1,switches=1,ranks=1", "16 nodes do not fit into 1 groups of 2"},
        {"dragonfly:groups=100000,globals=4096", "dragonfly: more than 8388608 links"},
    };
    const struct tutti_shape shape = {.size = 16};
    struct tutti_sim_topology topology;
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(texts); i++) {
        assert_int_equal(tutti_sim_topology_open(texts[i][0], &shape, &topology), TUTTI_ERR_ARGUMENT);
        if (!strstr(tutti_last_error()->text, texts[i][1]))
            fail_msg("\"%s\" instead of \"%s\"", tutti_last_error()->text, texts[i][1]);
    }
    for (size_t i = 0; i < tutti_sim_n_presets; i++) {
        char text[64];
        snprintf(text, sizeof(text), "%s:%s,seed=3", tutti_sim_presets[i].fabric, tutti_sim_presets[i].name);
        open_topology(text, 100, &topology);
        assert_int_equal((int)topology.is.seed, 3);
        tutti_sim_topology_close(&topology);
        /* Nodes are as large as the text says, else the levels; a preset comes last. */
        const struct tutti_shape levels = {.size = 12, .n_levels = 1, .levels = {{1, {{6, 2}}}}};
        assert_int_equal(tutti_sim_topology_open(tutti_sim_presets[i].fabric, &levels, &topology), TUTTI_OK);
        assert_int_equal(topology.n_nodes, 2);
        tutti_sim_topology_close(&topology);
        assert_int_equal(tutti_sim_topology_open(text, &levels, &topology), TUTTI_OK);
        assert_int_equal(topology.n_nodes, 2);
        tutti_sim_topology_close(&topology);
        tutti_append(text, sizeof(text), ",ranks=3");
        assert_int_equal(tutti_sim_topology_open(text, &levels, &topology), TUTTI_OK);
        assert_int_equal(topology.n_nodes, 4);
        tutti_sim_topology_close(&topology);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),    cmocka_unit_test(test_paths),    cmocka_unit_test(test_example),
        cmocka_unit_test(test_ends),     cmocka_unit_test(test_as_ports), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_texts),    cmocka_unit_test(test_nics),     cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_adaptive),
    };
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
