/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies: the table of their parameters, the text that sets them, nodes with their ranks and NICs, and paths as far
 * as they are the same in all fabrics. A rank has a link out and one in for messages within its node, a node may have a
 * limit for all of these, a NIC has a link out and one in. */

#include "sim/topology.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE NAN

const char *const tutti_sim_routings[TUTTI_SIM_ROUTINGS] = {"minimal", "valiant", "adaptive"};

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
    {"dragonfly", "aurora", "ranks=12,nics=8,nodes=2,switches=32,globals=2,bandwidth=25,local=28",
     "Aurora: 12 GPU tiles and 8 Slingshot-11 NICs a node, 64 nodes a group, 2 links between groups"},
    {"rails", "h100", "ranks=8,nics=8,hosts=32,bandwidth=50,local=450",
     "islands of 8 H100 with NVLink 4, a 400 Gb/s NIC a GPU, 32 islands a rail switch"},
};
const size_t tutti_sim_n_presets = TUTTI_ARRAY_LEN(tutti_sim_presets);

/* ---- text ---- */

struct word {
    const char *at;
    size_t n;
};

static bool word_is(struct word word, const char *text)
{
    return strlen(text) == word.n && memcmp(word.at, text, word.n) == 0;
}

static double *field(struct tutti_sim_parameters *is, size_t i)
{
    return (double *)(void *)((char *)is + tutti_sim_parameters[i].offset);
}

static const struct tutti_sim_fabric *fabric_of(const char *text)
{
    struct word name = {text, strcspn(text, ":")};
    for (size_t f = 0; f < TUTTI_SIM_FABRICS; f++)
        if (word_is(name, tutti_sim_fabrics[f].name)) return &tutti_sim_fabrics[f];
    return NULL;
}

bool tutti_sim_topology_named(const char *text)
{
    return fabric_of(text) != NULL;
}

static bool dims_parse(const char *text, struct tutti_sim_topology *out)
{
    char *end = (char *)(uintptr_t)text;
    out->n_dims = 0;
    for (;; text = end + 1) {
        unsigned long n = strtoul(text, &end, 10);
        if (end == text || *text == '-' || *text == '+' || n > 1000000) return false;
        if (n == 0) return out->n_dims == 0 && !*end;
        if (out->n_dims == TUTTI_SIM_MOST_DIMS) return false;
        out->dims[out->n_dims++] = (uint32_t)n;
        if (!*end) return true;
        if (*end != 'x') return false;
    }
}

/* A number with its unit; NAN: it is none. */
static double value_parse(const char *text, enum tutti_sim_unit unit)
{
    static const struct {
        const char *suffix;
        double seconds;
    } times[] = {{"ps", 1e-12}, {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    char *end;
    if (unit == TUTTI_SIM_ROUTING) {
        for (size_t r = 0; r < TUTTI_SIM_ROUTINGS; r++)
            if (strcmp(text, tutti_sim_routings[r]) == 0) return (double)r;
        return NAN;
    }
    double value = strtod(text, &end);
    if (end == text) return NAN;
    if (unit == TUTTI_SIM_COUNT)
        return *end == '\0' && value >= 0 && value < 1e15 && value == (double)(uint64_t)value ? value : NAN;
    if (unit != TUTTI_SIM_TIME || (*end == '\0' && value == 0)) return *end == '\0' ? value : NAN;
    for (size_t t = 0; t < TUTTI_ARRAY_LEN(times); t++)
        if (strcmp(end, times[t].suffix) == 0) return value * times[t].seconds;
    return NAN;
}

static enum tutti_status refuse_value(const struct tutti_sim_fabric *fabric, const struct tutti_sim_parameter *row,
                                      const char *text)
{
    static const char *const wants[] = {"a whole number",
                                        "a number of GB/s",
                                        "a number",
                                        "a time such as 200ns or 1.5us",
                                        "minimal, valiant or adaptive",
                                        "numbers of nodes such as 8x8x16, in at most 6 dimensions"};
    char range[64] = "";
    double scale = row->unit == TUTTI_SIM_TIME ? 1e6 : 1;
    if (row->unit < TUTTI_SIM_ROUTING)
        snprintf(range, sizeof(range), ", from %g to %g%s", row->least * scale, row->most * scale,
                 row->unit == TUTTI_SIM_TIME ? "us" : "");
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: %s=%s: it takes %s%s", fabric->name, row->name, text, wants[row->unit],
                      range);
}

/* One "name=value"; set: bit i: parameter i was. */
static enum tutti_status set_one(struct tutti_sim_topology *out, struct word item, uint64_t *set)
{
    const struct tutti_sim_fabric *fabric = out->fabric;
    struct word name = {item.at, 0};
    char text[64];
    while (name.n < item.n && item.at[name.n] != '=') name.n++;
    size_t n = item.n > name.n ? item.n - name.n - 1 : 0;
    snprintf(text, sizeof(text), "%.*s", (int)n, item.at + name.n + 1);
    for (size_t i = 0; i < tutti_sim_n_parameters; i++) {
        const struct tutti_sim_parameter *row = &tutti_sim_parameters[i];
        if (isnan(row->fallback[fabric - tutti_sim_fabrics]) || !word_is(name, row->name)) continue;
        if (n == 0 || n >= sizeof(text)) return refuse_value(fabric, row, n == 0 ? "" : "...");
        *set |= UINT64_C(1) << i;
        if (row->unit == TUTTI_SIM_DIMS) return dims_parse(text, out) ? TUTTI_OK : refuse_value(fabric, row, text);
        double value = value_parse(text, row->unit);
        if (!(value >= row->least && value <= row->most)) return refuse_value(fabric, row, text);
        *field(&out->is, i) = value;
        return TUTTI_OK;
    }
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s has no parameter '%.*s' (--net help lists them)", fabric->name,
                      (int)(name.n < 40 ? name.n : 40), name.at);
}

static const struct tutti_sim_preset *preset_of(const struct tutti_sim_fabric *fabric, struct word name)
{
    for (size_t i = 0; i < tutti_sim_n_presets; i++)
        if (strcmp(tutti_sim_presets[i].fabric, fabric->name) == 0 && word_is(name, tutti_sim_presets[i].name))
            return &tutti_sim_presets[i];
    return NULL;
}

/* Items between commas; the first may be a preset's name. */
static enum tutti_status set_all(struct tutti_sim_topology *out, const char *text, bool presets, uint64_t *set)
{
    for (const char *at = text; *at;) {
        struct word item = {at, strcspn(at, ",")};
        bool named = memchr(item.at, '=', item.n) == NULL;
        const struct tutti_sim_preset *preset = named && presets ? preset_of(out->fabric, item) : NULL;
        if (named && !preset)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "%s: '%.*s' is neither name=value nor a preset (--net help lists both)",
                              out->fabric->name, (int)(item.n < 40 ? item.n : 40), item.at);
        TUTTI_TRY(preset ? set_all(out, preset->text, false, set) : set_one(out, item, set));
        presets = false;
        at += item.n;
        if (*at == ',') at++;
    }
    return TUTTI_OK;
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
    for (size_t i = 0; i < tutti_sim_n_parameters; i++) {
        double fallback = tutti_sim_parameters[i].fallback[made.fabric - tutti_sim_fabrics];
        *field(&made.is, i) = isnan(fallback) ? 0 : fallback;
    }
    const char *rest = text + strcspn(text, ":");
    TUTTI_TRY(set_all(&made, *rest ? rest + 1 : rest, true, &set));
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
    topology->node = topology->first = NULL;
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
    return class_of(topology, link)->bandwidth;
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
