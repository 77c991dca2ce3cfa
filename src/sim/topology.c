/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies: the table of their parameters, the text that sets them, nodes with their ranks and NICs, and paths as far
 * as they are the same in all fabrics. A rank has a link out and one in for messages within its node, a node may have a
 * limit for all of these, a NIC has a link out and one in. */

#include "sim/topology.h"

#include "sim/noise.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE NAN

const struct tutti_sim_parameter tutti_sim_parameters[] = {
#define ROW(field, fat_tree, dragonfly, torus, rails, least_value, most_value, unit_name, text)                        \
    {.name = #field,                                                                                                   \
     .help = text,                                                                                                     \
     .fallback = {fat_tree, dragonfly, torus, rails},                                                                  \
     .least = least_value,                                                                                             \
     .most = most_value,                                                                                               \
     .unit = TUTTI_SIM_##unit_name,                                                                                    \
     .offset = offsetof(struct tutti_sim_parameters, field)},
    TUTTI_SIM_PARAMETERS(ROW)
#undef ROW
};
const size_t tutti_sim_n_parameters = TUTTI_ARRAY_LEN(tutti_sim_parameters);

const struct tutti_sim_preset tutti_sim_presets[] = {
    {"dragonfly", "aurora", "groups=166,ranks=12,nics=8,nodes=2,switches=32,globals=2,bandwidth=25,local=28",
     "Aurora: 12 GPU tiles and 8 Slingshot-11 NICs a node, 64 nodes a group, 2 links between two groups"},
    {"rails", "h100", "ranks=8,nics=8,hosts=32,bandwidth=50,local=450",
     "islands of 8 H100 with NVLink 4, a 400 Gb/s NIC a GPU, 32 islands a rail switch"},
};
const size_t tutti_sim_n_presets = TUTTI_ARRAY_LEN(tutti_sim_presets);

/* ---- text ---- */

static bool starts(const char *text, const char *name)
{
    size_t n = strlen(name);
    return strncmp(text, name, n) == 0 && (text[n] == '\0' || text[n] == ':' || text[n] == ',');
}

static const struct tutti_sim_fabric *fabric_of(const char *text)
{
    for (size_t f = 0; f < TUTTI_SIM_FABRICS; f++)
        if (starts(text, tutti_sim_fabrics[f].name)) return &tutti_sim_fabrics[f];
    return NULL;
}

bool tutti_sim_topology_named(const char *text)
{
    return fabric_of(text) != NULL;
}

/* What follows the fabric's name: a preset, or not, then parameters. *set: bit i when row i of the table was among the
 * latter. */
static enum tutti_status set_all(struct tutti_sim_topology *out, const char *text, uint64_t *set)
{
    const char *name = out->fabric->name, *rest = text + strlen(name) + (text[strlen(name)] == ':');
    const struct tutti_sim_table table = {name, tutti_sim_parameters, tutti_sim_n_parameters,
                                          (size_t)(out->fabric - tutti_sim_fabrics)};
    uint64_t of_preset = 0;
    tutti_sim_parameters_default(&table, &out->is);
    for (size_t i = 0; i < tutti_sim_n_presets; i++) {
        const struct tutti_sim_preset *preset = &tutti_sim_presets[i];
        if (strcmp(preset->fabric, name) != 0 || !starts(rest, preset->name)) continue;
        TUTTI_TRY(tutti_sim_parameters_set(&table, preset->text, &out->is, &of_preset));
        rest += strlen(preset->name);
        if (*rest == ',') rest++;
        break;
    }
    size_t n = strcspn(rest, ",");
    if (n > 0 && !memchr(rest, '=', n))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: '%.*s' is neither name=value nor a preset (--net help lists both)",
                          name, (int)(n < 40 ? n : 40), rest);
    return tutti_sim_parameters_set(&table, rest, &out->is, set);
}

/* ---- nodes and classes ---- */

/* How many ranks the node that begins with this rank has. */
static uint32_t node_size(const struct tutti_sim_topology *topology, const struct tutti_shape *shape, bool by_text,
                          uint32_t rank)
{
    uint32_t group, first, size = (uint32_t)topology->is.ranks;
    if (!by_text && shape->n_levels > 0) tutti_level_find(&shape->levels[0], rank, &group, &first, &size);
    return size < shape->size - rank ? size : shape->size - rank;
}

static enum tutti_status place_ranks(struct tutti_sim_topology *topology, const struct tutti_shape *shape, bool by_text)
{
    uint32_t n = shape->size;
    topology->n_ranks = n;
    topology->node = tutti_alloc_array(n, sizeof(*topology->node));
    topology->first = tutti_alloc_array((size_t)n + 1, sizeof(*topology->first));
    if (!topology->node || !topology->first) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u ranks", n);
    for (uint32_t rank = 0; rank < n; topology->n_nodes++) {
        uint32_t size = node_size(topology, shape, by_text, rank);
        topology->first[topology->n_nodes] = rank;
        for (uint32_t i = 0; i < size; i++) topology->node[rank++] = topology->n_nodes;
    }
    topology->first[topology->n_nodes] = n;
    return TUTTI_OK;
}

bool tutti_sim_class_add(struct tutti_sim_topology *topology, const char *name, uint64_t n, double gbs)
{
    if (n > TUTTI_SIM_MOST_LINKS - topology->n_links) return false;
    topology->classes[topology->n_classes++] =
        (struct tutti_sim_class){name, topology->n_links, (uint32_t)n, gbs * 1e9};
    topology->n_links += (uint32_t)n;
    return true;
}

/* Ranks that are alike in nodes that are alike: only of these the bounds know. */
static uint32_t even_ranks(const struct tutti_sim_topology *topology)
{
    uint32_t n = topology->first[1];
    for (uint32_t node = 0; node < topology->n_nodes; node++)
        if (topology->first[node + 1] - topology->first[node] != n) return 0;
    return n;
}

void tutti_sim_part_add(struct tutti_sim_topology *topology, uint64_t nodes, double gbs)
{
    struct tutti_sim_limits *limits = &topology->limits;
    uint32_t n = even_ranks(topology);
    if (n == 0 || nodes >= topology->n_nodes || limits->n_parts == TUTTI_ARRAY_LEN(limits->parts)) return;
    limits->parts[limits->n_parts++] = (struct tutti_sim_part){(uint32_t)nodes * n, 1e6 / gbs};
}

/* What single ranks and nodes allow. */
static void limit(struct tutti_sim_topology *topology)
{
    const struct tutti_sim_parameters *is = &topology->is;
    double nic = topology->classes[TUTTI_SIM_NICS].bandwidth / 1e9, nics = nic * topology->n_nics;
    uint32_t n = even_ranks(topology), own = n ? topology->n_nics / n : 1;
    bool alone = topology->n_nodes == 1;
    double least =
        alone || (n != 1 && is->local_latency < is->latency + is->hop) ? is->local_latency : is->latency + is->hop;
    topology->limits.latency_ps = (uint64_t)((least + is->overhead) * 1e12);
    if (n > 0)
        topology->limits.parts[topology->limits.n_parts++] =
            (struct tutti_sim_part){1, 1e6 / ((n > 1 ? is->local : 0) + (alone     ? 0
                                                                         : own > 1 ? own * nic
                                                                                   : nic))};
    tutti_sim_part_add(topology, 1, nics);
}

enum tutti_status tutti_sim_topology_open(const char *text, const struct tutti_shape *shape,
                                          struct tutti_sim_topology *out)
{
    struct tutti_sim_topology made = {.fabric = fabric_of(text)};
    uint64_t set = 0;
    if (!made.fabric)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "'%.40s' is no topology: there are fat_tree, dragonfly, torus, rails",
                          text);
    TUTTI_TRY(set_all(&made, text, &set));
    enum tutti_status status = place_ranks(&made, shape, set & 1); /* the first parameter is `ranks` */
    made.n_nics = made.is.nics > 0 ? (uint32_t)made.is.nics : 1;
    if (status >= 0) {
        tutti_sim_class_add(&made, "rank", 2 * (uint64_t)made.n_ranks, made.is.local);
        tutti_sim_class_add(&made, "memory", made.is.memory > 0 ? made.n_nodes : 0, made.is.memory);
        if (!tutti_sim_class_add(&made, "nic", 2 * (uint64_t)made.n_nodes * made.n_nics, made.is.bandwidth))
            status = tutti_fail(TUTTI_ERR_ARGUMENT, "%s: %u nodes of %u NICs are too many", made.fabric->name,
                                made.n_nodes, made.n_nics);
    }
    if (status >= 0) status = made.fabric->plan(&made);
    if (status >= 0) limit(&made);
    if (status < 0)
        tutti_sim_topology_close(&made);
    else
        *out = made;
    return status;
}

void tutti_sim_topology_close(struct tutti_sim_topology *topology)
{
    tutti_free(topology->node);
    tutti_free(topology->first);
    tutti_free(topology->health);
    topology->node = topology->first = NULL;
    topology->health = NULL;
}

/* ---- paths ---- */

static void append(struct tutti_sim_path *path, const struct tutti_sim_topology *topology, uint32_t class, uint32_t i)
{
    path->links[path->n++] = topology->classes[class].first + i;
}

static void cross_node(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to,
                       struct tutti_sim_path *path)
{
    append(path, topology, TUTTI_SIM_RANKS, 2 * from);
    if (topology->is.memory > 0) append(path, topology, TUTTI_SIM_MEMORIES, topology->node[from]);
    append(path, topology, TUTTI_SIM_RANKS, 2 * to + 1);
}

/* The NIC of a rank: several ranks may share one; where a rank has several, `which` says which. */
static uint32_t nic_of(const struct tutti_sim_topology *topology, uint32_t rank, uint32_t which)
{
    uint32_t node = topology->node[rank], first = topology->first[node], n = topology->first[node + 1] - first;
    uint32_t nics = topology->n_nics, per = nics > n ? nics / n : 1;
    uint32_t own = per > 1 ? (rank - first) * per + which % per : (uint32_t)((uint64_t)(rank - first) * nics / n);
    return node * nics + own;
}

uint32_t tutti_sim_topology_route(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to, bool detour,
                                  uint64_t choice, struct tutti_sim_path *path)
{
    uint32_t node = topology->node[from], there = topology->node[to];
    path->n = 0;
    if (node == there) {
        if (!detour) cross_node(topology, from, to, path);
        return detour ? 0 : 1;
    }
    if (topology->is.pxn > 0) {
        uint32_t n = topology->first[node + 1] - topology->first[node];
        uint32_t proxy = topology->first[node] + (to - topology->first[there]) % n;
        if (proxy != from) cross_node(topology, from, proxy, path);
        from = proxy;
    }
    uint32_t n = topology->first[node + 1] - topology->first[node], per = topology->n_nics / n;
    if (per == 0) per = 1;
    uint32_t out = nic_of(topology, from, (uint32_t)(choice % per)),
             in = nic_of(topology, to, (uint32_t)(choice % per));
    append(path, topology, TUTTI_SIM_NICS, 2 * out);
    uint32_t ways = topology->fabric->route(topology, out, in, detour, choice / per, path);
    append(path, topology, TUTTI_SIM_NICS, 2 * in + 1);
    return ways * per;
}

uint64_t tutti_sim_topology_latency_ps(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to,
                                       const struct tutti_sim_path *path)
{
    double seconds = topology->is.local_latency;
    if (topology->node[from] != topology->node[to]) {
        uint32_t within = 0; /* links of a proxy's side */
        while (path->links[within] < topology->classes[TUTTI_SIM_NICS].first) within++;
        seconds = topology->is.latency + topology->is.hop * (path->n - within - 1) +
                  (within > 0 ? topology->is.local_latency : 0);
    }
    return (uint64_t)((seconds + topology->is.overhead) * 1e12 + 0.5);
}

static const struct tutti_sim_class *class_of(const struct tutti_sim_topology *topology, uint32_t link)
{
    const struct tutti_sim_class *class = &topology->classes[topology->n_classes - 1];
    while (link < class->first) class --;
    return class;
}

double tutti_sim_topology_bandwidth(const struct tutti_sim_topology *topology, uint32_t link)
{
    return class_of(topology, link)->bandwidth * (topology->health ? topology->health[link] : 1);
}

void tutti_sim_topology_name(const struct tutti_sim_topology *topology, uint32_t link, char *out, size_t capacity)
{
    const struct tutti_sim_class *class = class_of(topology, link);
    uint32_t index = (uint32_t)(class - topology->classes), i = link - class->first, nics = topology->n_nics;
    const char *side = i % 2 ? "in" : "out";
    out[0] = '\0';
    tutti_append(out, capacity, "%s:", class->name);
    size_t n = strlen(out);
    if (index == TUTTI_SIM_RANKS)
        tutti_append(out, capacity, "%u.%s", i / 2, side);
    else if (index == TUTTI_SIM_MEMORIES)
        tutti_append(out, capacity, "%u", i);
    else if (index == TUTTI_SIM_NICS)
        tutti_append(out, capacity, "%u.%u.%s", i / 2 / nics, i / 2 % nics, side);
    else
        topology->fabric->name_link(topology, index, i, out + n, capacity - n);
}

/* ---- damage ---- */

static void hurt(struct tutti_sim_topology *topology, uint32_t link, double factor)
{
    if (factor == 0 && topology->health[link] > 0) topology->n_failed++;
    topology->health[link] *= factor;
}

/* The link of a class that has this name; the class's end: there is none. */
static uint32_t find(const struct tutti_sim_topology *topology, const struct tutti_sim_class *class, const char *name)
{
    char text[64];
    uint32_t link = class->first, end = class->first + class->n;
    for (; link < end; link++) {
        tutti_sim_topology_name(topology, link, text, sizeof(text));
        if (strcmp(text, name) == 0) break;
    }
    return link;
}

static enum tutti_status refuse_which(const struct tutti_sim_topology *topology, const char *which)
{
    char text[200] = "";
    for (uint32_t c = 0; c < topology->n_classes; c++) {
        char name[64];
        if (topology->classes[c].n == 0) continue;
        tutti_sim_topology_name(topology, topology->classes[c].first, name, sizeof(name));
        tutti_append(text, sizeof(text), "%s%s", text[0] ? ", " : "", name);
    }
    return tutti_fail(
        TUTTI_ERR_ARGUMENT,
        "no link is called '%.40s': give a share (1%%), a class and a share (nic:1%%) or a name such as %s", which,
        text);
}

enum tutti_status tutti_sim_topology_damage(struct tutti_sim_topology *topology, const char *which, double factor,
                                            uint64_t seed)
{
    const struct tutti_sim_class all = {"all", 0, topology->n_links, 0}, *class = NULL;
    const char *rest = strchr(which, ':');
    char *end;
    for (uint32_t c = 0; c < topology->n_classes && !class; c++)
        if (starts(which, topology->classes[c].name)) class = &topology->classes[c];
    rest = class ? (rest ? rest + 1 : "100%") : which;
    double share = strtod(rest, &end) / 100;
    bool shared = *rest >= '0' && *rest <= '9' && strcmp(end, "%") == 0 && share > 0 && share <= 1;
    if (!class && shared) class = &all;
    uint32_t link = class && !shared ? find(topology, class, which) : 0;
    if (!class || class->n == 0 || (!shared && link == class->first + class->n)) return refuse_which(topology, which);
    if (!topology->health) {
        topology->health = tutti_alloc_array(topology->n_links, sizeof(*topology->health));
        if (!topology->health) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u links", topology->n_links);
        for (uint32_t i = 0; i < topology->n_links; i++) topology->health[i] = 1;
    }
    struct tutti_sim_sample sample = tutti_sim_sample_of(share, class->n, seed);
    if (!shared) hurt(topology, link, factor);
    for (uint32_t i = class->first; shared && i < class->first + class->n; i++)
        if (tutti_sim_sample_takes(&sample)) hurt(topology, i, factor);
    return TUTTI_OK;
}
