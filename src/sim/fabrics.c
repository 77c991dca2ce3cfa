/* SPDX-License-Identifier: BSD-3-Clause */
/* What joins the NICs of nodes: trees of switches (fat_tree, and rails, whose leaf switches each join the same NIC of
 * many nodes), the dragonfly, the torus. A fabric numbers its links by formulas and finds paths by them; it keeps
 * nothing but sizes. Every link has one direction.
 *
 * C. Leiserson: Fat-trees (IEEE Trans. Computers 1985). J. Kim, W. Dally, S. Scott, D. Abts: Technology-driven,
 * highly-scalable dragonfly topology (ISCA 2008), where minimal, Valiant and adaptive routes are described. */

#include "sim/topology.h"

#include <stdio.h>

static void append(struct tutti_sim_path *path, const struct tutti_sim_topology *topology, uint32_t class, uint64_t i)
{
    path->links[path->n++] = topology->classes[class].first + (uint32_t)i;
}

/* One of n, by what is left of the choice. */
static uint32_t choose(uint64_t *choice, uint32_t n, uint32_t *ways)
{
    uint32_t one = (uint32_t)(*choice % n);
    *choice /= n;
    *ways *= n;
    return one;
}

static enum tutti_status refuse_links(const struct tutti_sim_topology *topology)
{
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: more than %u links", topology->fabric->name, TUTTI_SIM_MOST_LINKS);
}

static uint32_t up_to(double links_below, double taper)
{
    double up = links_below / taper + 0.5;
    return up < 1 ? 1 : up < 1e6 ? (uint32_t)up : 1000000;
}

/* ---- trees: leaf switches, pods of them with spine switches, a core above each spine number ---- */

enum { UP = TUTTI_SIM_FIRST_OWN, DOWN, CORE_UP, CORE_DOWN };
enum { LEAVES, SPINES, POD, PODS, CORES, BLOCKS }; /* sizes: in all; a pod's; leaves a pod; in all; a spine's; */

static enum tutti_status tree_plan(struct tutti_sim_topology *topology, uint32_t rails)
{
    const struct tutti_sim_parameters *is = &topology->is;
    uint32_t *size = topology->sizes, hosts = (uint32_t)is->hosts;
    size[BLOCKS] = (topology->n_nodes + hosts - 1) / hosts;
    size[LEAVES] = size[BLOCKS] * rails;
    size[SPINES] = up_to(is->hosts * topology->n_nics / rails, is->taper);
    size[POD] = is->leaves > 0 ? (uint32_t)is->leaves : size[LEAVES];
    size[PODS] = (size[LEAVES] + size[POD] - 1) / size[POD];
    size[CORES] = up_to(size[POD], is->core_taper);
    uint64_t up = size[LEAVES] > 1 ? (uint64_t)size[LEAVES] * size[SPINES] : 0;
    uint64_t core = size[PODS] > 1 ? (uint64_t)size[PODS] * size[SPINES] * size[CORES] : 0;
    tutti_sim_part_add(topology, hosts, is->bandwidth * size[SPINES] * rails);
    if (is->leaves > 0 && size[POD] % rails == 0)
        tutti_sim_part_add(topology, (uint64_t)hosts * size[POD] / rails, is->bandwidth * size[SPINES] * size[CORES]);
    bool added = tutti_sim_class_add(topology, "up", up, is->bandwidth) &&
                 tutti_sim_class_add(topology, "down", up, is->bandwidth) &&
                 tutti_sim_class_add(topology, "core_up", core, is->bandwidth) &&
                 tutti_sim_class_add(topology, "core_down", core, is->bandwidth);
    return added ? TUTTI_OK : refuse_links(topology);
}

static enum tutti_status fat_tree_plan(struct tutti_sim_topology *topology)
{
    return tree_plan(topology, 1);
}

static enum tutti_status rails_plan(struct tutti_sim_topology *topology)
{
    return tree_plan(topology, topology->n_nics);
}

static uint32_t tree_route(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to, uint64_t choice,
                           struct tutti_sim_path *path)
{
    const uint32_t *size = topology->sizes;
    uint32_t ways = 1, pod = from / size[POD], there = to / size[POD];
    if (from == to) return ways;
    uint32_t spine = choose(&choice, size[SPINES], &ways);
    append(path, topology, UP, (uint64_t)from * size[SPINES] + spine);
    if (pod != there) {
        uint32_t core = choose(&choice, size[CORES], &ways);
        append(path, topology, CORE_UP, ((uint64_t)pod * size[SPINES] + spine) * size[CORES] + core);
        append(path, topology, CORE_DOWN, ((uint64_t)there * size[SPINES] + spine) * size[CORES] + core);
    }
    append(path, topology, DOWN, (uint64_t)to * size[SPINES] + spine);
    return ways;
}

static uint32_t fat_tree_route(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to, bool detour,
                               uint64_t choice, struct tutti_sim_path *path)
{
    uint32_t nics = topology->n_nics * (uint32_t)topology->is.hosts;
    return detour ? 0 : tree_route(topology, from / nics, to / nics, choice, path);
}

/* Leaf switches are numbered rail by rail within a block of nodes. */
static uint32_t rail_leaf(const struct tutti_sim_topology *topology, uint32_t nic)
{
    uint32_t nics = topology->n_nics;
    return nic / nics / (uint32_t)topology->is.hosts * nics + nic % nics;
}

static uint32_t rails_route(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to, bool detour,
                            uint64_t choice, struct tutti_sim_path *path)
{
    return detour ? 0 : tree_route(topology, rail_leaf(topology, from), rail_leaf(topology, to), choice, path);
}

static void tree_name(const struct tutti_sim_topology *topology, uint32_t class, uint32_t i, char *out, size_t capacity)
{
    uint32_t spines = topology->sizes[SPINES], cores = topology->sizes[CORES];
    if (class == UP || class == DOWN)
        snprintf(out, capacity, "%u.%u", i / spines, i % spines);
    else
        snprintf(out, capacity, "%u.%u.%u", i / cores / spines, i / cores % spines, i % cores);
}

/* ---- dragonfly: groups of switches, all joined to all of the group; each pair of groups has some links ---- */

enum { LOCAL = TUTTI_SIM_FIRST_OWN, GLOBAL };
enum { GROUPS, SWITCHES, LOCALS, GLOBALS, SWITCH_NICS };

/* Links between two groups, when each switch has 16 for all others. */
static uint32_t deal(uint32_t switches, uint32_t groups)
{
    uint32_t each = groups > 1 ? 16 * switches / (groups - 1) : 1;
    return each > 0 ? each : 1;
}

static enum tutti_status dragonfly_plan(struct tutti_sim_topology *topology)
{
    const struct tutti_sim_parameters *is = &topology->is;
    uint32_t *size = topology->sizes;
    uint64_t group = (uint64_t)is->switches * (uint64_t)is->nodes, needed = (topology->n_nodes + group - 1) / group;
    size[GROUPS] = is->groups > 0 ? (uint32_t)is->groups : (uint32_t)needed;
    if (size[GROUPS] < needed)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "dragonfly: %u nodes do not fit into %u groups of %llu: give groups=%llu",
                          topology->n_nodes, size[GROUPS], (unsigned long long)group, (unsigned long long)needed);
    size[SWITCHES] = (uint32_t)is->switches;
    size[LOCALS] = (uint32_t)is->locals;
    size[GLOBALS] = is->globals > 0 ? (uint32_t)is->globals : deal(size[SWITCHES], size[GROUPS]);
    size[SWITCH_NICS] = (uint32_t)is->nodes * topology->n_nics;
    tutti_sim_part_add(topology, group, is->bandwidth * size[GLOBALS] * (size[GROUPS] - 1));
    uint64_t local = (uint64_t)size[GROUPS] * size[SWITCHES] * size[SWITCHES] * size[LOCALS];
    uint64_t global = (uint64_t)size[GROUPS] * size[GROUPS] * size[GLOBALS];
    return tutti_sim_class_add(topology, "local", local, is->bandwidth) &&
                   tutti_sim_class_add(topology, "global", global, is->bandwidth)
               ? TUTTI_OK
               : refuse_links(topology);
}

/* Where a message is, and what is still to be chosen. */
struct walk {
    const struct tutti_sim_topology *topology;
    struct tutti_sim_path *path;
    uint32_t group, at; /* the switch, in its group */
    uint64_t choice;
    uint32_t ways;
};

static void walk_to(struct walk *walk, uint32_t to)
{
    const uint32_t *size = walk->topology->sizes;
    if (walk->at == to) return;
    uint64_t pair = ((uint64_t)walk->group * size[SWITCHES] + walk->at) * size[SWITCHES] + to;
    append(walk->path, walk->topology, LOCAL, pair * size[LOCALS] + choose(&walk->choice, size[LOCALS], &walk->ways));
    walk->at = to;
}

/* The switch of a group that has global link k to the other: links are dealt out to the switches in turn. */
static uint32_t gateway(const uint32_t *size, uint32_t group, uint32_t other, uint32_t k)
{
    uint64_t number = (uint64_t)((other + size[GROUPS] - group - 1) % size[GROUPS]) * size[GLOBALS] + k;
    return (uint32_t)(number % size[SWITCHES]);
}

static void walk_group(struct walk *walk, uint32_t group)
{
    const uint32_t *size = walk->topology->sizes;
    if (walk->group == group) return;
    uint32_t k = choose(&walk->choice, size[GLOBALS], &walk->ways);
    walk_to(walk, gateway(size, walk->group, group, k));
    append(walk->path, walk->topology, GLOBAL, ((uint64_t)walk->group * size[GROUPS] + group) * size[GLOBALS] + k);
    walk->at = gateway(size, group, walk->group, k);
    walk->group = group;
}

/* One of 0 .. n - 1 that is neither a nor b, which are different. */
static uint32_t other_than(struct walk *walk, uint32_t n, uint32_t a, uint32_t b)
{
    uint32_t low = a < b ? a : b, high = a < b ? b : a;
    uint32_t one = choose(&walk->choice, n - 2, &walk->ways);
    if (one >= low) one++;
    if (one >= high) one++;
    return one;
}

static uint32_t dragonfly_route(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to, bool detour,
                                uint64_t choice, struct tutti_sim_path *path)
{
    const uint32_t *size = topology->sizes;
    uint32_t here = from / size[SWITCH_NICS], there = to / size[SWITCH_NICS];
    struct walk walk = {topology, path, here / size[SWITCHES], here % size[SWITCHES], choice, 1};
    uint32_t group = there / size[SWITCHES], last = there % size[SWITCHES];
    if (detour && walk.group != group) {
        if (size[GROUPS] < 3) return 0;
        walk_group(&walk, other_than(&walk, size[GROUPS], walk.group, group));
    } else if (detour) {
        if (walk.at == last || size[SWITCHES] < 3) return 0;
        walk_to(&walk, other_than(&walk, size[SWITCHES], walk.at, last));
    }
    walk_group(&walk, group);
    walk_to(&walk, last);
    return walk.ways;
}

static void dragonfly_name(const struct tutti_sim_topology *topology, uint32_t class, uint32_t i, char *out,
                           size_t capacity)
{
    const uint32_t *size = topology->sizes;
    if (class == LOCAL) {
        uint32_t pair = i / size[LOCALS], from = pair / size[SWITCHES];
        snprintf(out, capacity, "%u.%u-%u.%u", from / size[SWITCHES], from % size[SWITCHES], pair % size[SWITCHES],
                 i % size[LOCALS]);
    } else {
        uint32_t pair = i / size[GLOBALS];
        snprintf(out, capacity, "%u-%u.%u", pair / size[GROUPS], pair % size[GROUPS], i % size[GLOBALS]);
    }
}

/* ---- torus: each node has a link either way in each dimension; dimensions are crossed in order ---- */

enum { WIRE = TUTTI_SIM_FIRST_OWN };

/* Three dimensions near to a cube that hold n nodes. */
static void cube(struct tutti_sim_topology *topology)
{
    uint32_t n = topology->n_nodes, a = 1, b = 1;
    while ((uint64_t)a * a * a < n) a++;
    uint32_t rest = (n + a - 1) / a;
    while ((uint64_t)b * b < rest) b++;
    topology->is.dims.n = 3;
    topology->is.dims.size[0] = a;
    topology->is.dims.size[1] = b;
    topology->is.dims.size[2] = (rest + b - 1) / b;
}

static enum tutti_status torus_plan(struct tutti_sim_topology *topology)
{
    uint64_t n = 1, hops = 0;
    if (topology->is.dims.n == 0) cube(topology);
    for (uint32_t d = 0; d < topology->is.dims.n; d++) {
        n *= topology->is.dims.size[d];
        hops += topology->is.dims.size[d];
        if (n > TUTTI_SIM_MOST_LINKS) return refuse_links(topology);
    }
    if (n < topology->n_nodes)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "torus: %u nodes do not fit into one of %llu", topology->n_nodes,
                          (unsigned long long)n);
    if (hops > TUTTI_SIM_MOST_HOPS - 8)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "torus: dimensions of %llu nodes together: at most %d",
                          (unsigned long long)hops, TUTTI_SIM_MOST_HOPS - 8);
    double links = 2.0 * topology->is.dims.n * topology->is.bandwidth;
    topology->classes[TUTTI_SIM_NICS].bandwidth = (topology->is.inject > 0 ? topology->is.inject : links) * 1e9;
    return tutti_sim_class_add(topology, "wire", 2 * n * topology->is.dims.n, topology->is.bandwidth)
               ? TUTTI_OK
               : refuse_links(topology);
}

/* The index-th order of n dimensions. */
static void order_of(uint32_t n, uint32_t index, uint32_t *order)
{
    for (uint32_t d = 0; d < n; d++) order[d] = d;
    for (uint32_t d = 0; d < n; d++) {
        uint32_t at = d + index % (n - d), taken = order[at];
        index /= n - d;
        for (; at > d; at--) order[at] = order[at - 1];
        order[d] = taken;
    }
}

/* Straight ways: in order of dimensions, the shorter way around each; where both are equal, a bit of the choice says
 * which. Detours: any order, either way around. */
static uint32_t torus_route(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to, bool detour,
                            uint64_t choice, struct tutti_sim_path *path)
{
    uint32_t n = topology->is.dims.n, order[TUTTI_SIM_MOST_DIMS], stride[TUTTI_SIM_MOST_DIMS], ways = 1, orders = 1;
    uint64_t turns = choose(&choice, 1u << n, &ways);
    for (uint32_t d = 0, s = 1; d < n; s *= topology->is.dims.size[d++]) stride[d] = s;
    for (uint32_t d = 2; d <= n; d++) orders *= d;
    order_of(n, detour ? choose(&choice, orders, &ways) : 0, order);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d = order[i], size = topology->is.dims.size[d];
        uint32_t at = from / stride[d] % size, end = to / stride[d] % size;
        uint32_t ahead = (end + size - at) % size, turned = turns >> d & 1;
        bool back = detour || 2 * ahead == size ? turned : 2 * ahead > size;
        for (; at != end; at = (at + (back ? size - 1 : 1)) % size) {
            uint32_t node = from - from / stride[d] % size * stride[d] + at * stride[d];
            append(path, topology, WIRE, ((uint64_t)node * n + d) * 2 + back);
        }
        from += end * stride[d] - from / stride[d] % size * stride[d];
    }
    return ways;
}

static void torus_name(const struct tutti_sim_topology *topology, uint32_t class, uint32_t i, char *out,
                       size_t capacity)
{
    uint32_t n = topology->is.dims.n;
    (void)class;
    snprintf(out, capacity, "%u.%u%c", i / 2 / n, i / 2 % n, i % 2 ? '-' : '+');
}

const struct tutti_sim_fabric tutti_sim_fabrics[TUTTI_SIM_FABRICS] = {
    {"fat_tree", "switches in two or three levels, with a taper", fat_tree_plan, fat_tree_route, tree_name},
    {"dragonfly", "groups of switches, each pair of groups joined", dragonfly_plan, dragonfly_route, dragonfly_name},
    {"torus", "nodes in a grid of rings, a link either way in each", torus_plan, torus_route, torus_name},
    {"rails", "islands of GPUs, one leaf switch for the same GPU of many islands", rails_plan, rails_route, tree_name},
};
