/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_TOPOLOGY_H
#define TUTTI_SIM_TOPOLOGY_H

/* The links between the ranks of a world, and the path of a message over them: pure, by formulas. topology.c has the
 * parameters, the nodes and the text that describes both; fabrics.c what joins the nodes. */

#include "sim/parameters.h"
#include "sim/sim.h"

#define TUTTI_SIM_MOST_LINKS (UINT32_C(1) << 23)

/* X(name, default of fat_tree, of dragonfly, of torus, of rails (NONE: not a parameter of it), least, most, unit,
 * help). Rates are GB/s each way, times seconds. */
#define TUTTI_SIM_PARAMETERS(X)                                                                                        \
    X(ranks, 8, 8, 1, 8, 1, 4096, COUNT, "ranks a node, where levels do not say it")                                   \
    X(nics, 1, 8, NONE, 8, 1, 1024, COUNT, "network cards (NICs) a node")                                              \
    X(bandwidth, 25, 25, 25, 50, 1e-6, 1e6, RATE, "of a link, and of a NIC")                                           \
    X(inject, NONE, NONE, 0, NONE, 0, 1e6, RATE, "of a node into the network; 0: as much as its links")                \
    X(hosts, 32, NONE, NONE, 32, 1, 1e6, COUNT, "nodes a leaf switch")                                                 \
    X(taper, 1, NONE, NONE, 1, 0.01, 1e4, RATIO, "links from below into a leaf switch, for each one up")               \
    X(leaves, 0, NONE, NONE, 0, 0, 1e6, COUNT, "leaf switches a pod; 0: all, that is two levels of switches")          \
    X(core_taper, 1, NONE, NONE, 1, 0.01, 1e4, RATIO, "links from below into a spine switch, for each one up")         \
    X(pxn, NONE, NONE, NONE, 1, 0, 1, COUNT, "1: messages change rails in the sender's island; 0: at the spines")      \
    X(groups, NONE, 0, NONE, NONE, 0, 1e5, COUNT, "groups; 0: as many as the nodes need")                              \
    X(switches, NONE, 32, NONE, NONE, 1, 1024, COUNT, "switches a group, each joined to all others of it")             \
    X(nodes, NONE, 2, NONE, NONE, 1, 1e5, COUNT, "nodes a switch")                                                     \
    X(locals, NONE, 1, NONE, NONE, 1, 64, COUNT, "links between two switches of a group")                              \
    X(globals, NONE, 0, NONE, NONE, 0, 4096, COUNT,                                                                    \
      "links between two groups; 0: 16 a switch, dealt out to the groups")                                             \
    X(routing, NONE, 2, NONE, NONE, 0, 2, ROUTING, "minimal, valiant, or adaptive: the emptier when a message begins") \
    X(dims, NONE, NONE, 0, NONE, 0, 1e6, DIMS, "nodes in each dimension, such as 8x8x16; 0: near to a cube")           \
    X(local, 50, 50, 50, 450, 1e-6, 1e6, RATE, "of a rank, to and from others of its node")                            \
    X(memory, 0, 0, 0, 0, 0, 1e6, RATE, "of all messages within a node together; 0: no limit")                         \
    X(latency, 1e-6, 1e-6, 1e-6, 1e-6, 0, 1, TIME, "of a message between nodes, without its switches")                 \
    X(hop, 2e-7, 2e-7, 2e-7, 2e-7, 0, 1, TIME, "of each switch on its way")                                            \
    X(local_latency, 5e-7, 5e-7, 5e-7, 5e-7, 0, 1, TIME, "of a message within a node")                                 \
    X(overhead, 0, 0, 0, 0, 0, 1, TIME, "more for each message; in it the rank begins no other")                       \
    X(merge, 0.01, 0.01, 0.01, 0.01, 0, 1, RATIO, "of many messages, ends within this part of their time are one")     \
    X(seed, 0, 0, 0, 0, 0, 1e9, COUNT, "0: equal links are taken in turn by receiver; else by hash of this")

#define TUTTI_SIM_FABRICS TUTTI_SIM_COLUMNS
extern const struct tutti_sim_parameter tutti_sim_parameters[];
extern const size_t tutti_sim_n_parameters;
#define TUTTI_SIM_TYPE_COUNT double
#define TUTTI_SIM_TYPE_RATE double
#define TUTTI_SIM_TYPE_RATIO double
#define TUTTI_SIM_TYPE_TIME double
#define TUTTI_SIM_TYPE_ROUTING double
#define TUTTI_SIM_TYPE_DIMS struct tutti_sim_dims
struct tutti_sim_parameters {
#define TUTTI_SIM_FIELD(name, a, b, c, d, least, most, unit, help) TUTTI_SIM_TYPE_##unit name;
    TUTTI_SIM_PARAMETERS(TUTTI_SIM_FIELD)
#undef TUTTI_SIM_FIELD
};

/* Descriptions of machines that exist, as text of parameters. */
struct tutti_sim_preset {
    const char *fabric, *name, *text, *help;
};
extern const struct tutti_sim_preset tutti_sim_presets[];
extern const size_t tutti_sim_n_presets;

#define TUTTI_SIM_MOST_HOPS 512

/* A way from rank to rank, link by link. */
struct tutti_sim_path {
    uint32_t n;
    uint32_t links[TUTTI_SIM_MOST_HOPS];
};

/* Links that are alike, numbered from `first` on. */
struct tutti_sim_class {
    const char *name;
    uint32_t first, n;
    double bandwidth; /* bytes a second */
};
enum { TUTTI_SIM_RANKS, TUTTI_SIM_MEMORIES, TUTTI_SIM_NICS, TUTTI_SIM_FIRST_OWN, TUTTI_SIM_CLASSES = 8 };

struct tutti_sim_topology {
    const struct tutti_sim_fabric *fabric;
    struct tutti_sim_parameters is;
    uint32_t n_ranks, n_nodes, n_nics; /* NICs: a node's */
    uint32_t *node;                    /* by rank */
    uint32_t *first;                   /* by node: its first rank; one more is the end */
    uint32_t sizes[6];                 /* what the fabric counted */
    uint32_t n_links, n_classes;
    struct tutti_sim_class classes[TUTTI_SIM_CLASSES]; /* ranks and memories within nodes, NICs, then the fabric's */
    double *health;                                    /* by link: part of its bandwidth; NULL: all are whole */
    uint32_t n_failed;                                 /* links of health 0 */
    struct tutti_sim_limits limits;                    /* ranks, nodes, and what the fabric knows */
};

/* What joins the nodes' NICs (fabrics.c). NIC i of node n is number n * n_nics + i. */
struct tutti_sim_fabric {
    const char *name, *help;
    /* Sizes and classes of links, once parameters and nodes are known. ARGUMENT with a sentence. */
    enum tutti_status (*plan)(struct tutti_sim_topology *topology);
    /* Appends the links from NIC to NIC of different nodes; `detour`: by a longer way. Among equal ways `choice`,
     * whatever it is, says which. Returns how many ways there are; 0: none of this sort. */
    uint32_t (*route)(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to, bool detour,
                      uint64_t choice, struct tutti_sim_path *path);
    /* Which link i of one of its classes is, as "3-5.0". */
    void (*name_link)(const struct tutti_sim_topology *topology, uint32_t class, uint32_t i, char *out,
                      size_t capacity);
};
extern const struct tutti_sim_fabric tutti_sim_fabrics[TUTTI_SIM_FABRICS];
/* For fabrics: appends a class of n links; false: there are too many. */
bool tutti_sim_class_add(struct tutti_sim_topology *topology, const char *name, uint64_t n, double gbs);
/* For fabrics: so many nodes that follow one another take in, and let out, at most so much. */
void tutti_sim_part_add(struct tutti_sim_topology *topology, uint64_t nodes, double gbs);

/* A topology of a text such as "dragonfly", "dragonfly:aurora" or "fat_tree:hosts=32,taper=2": its parameters, in
 * any order, after a preset. shape says how many ranks there are, and by its lowest level, where the text does not,
 * which of them share a node. ARGUMENT with a sentence; MEMORY. */
enum tutti_status tutti_sim_topology_open(const char *text, const struct tutti_shape *shape,
                                          struct tutti_sim_topology *out);
void tutti_sim_topology_close(struct tutti_sim_topology *topology);
/* Whether the text names one of the fabrics, right or wrong as it may be otherwise. */
bool tutti_sim_topology_named(const char *text);
/* The path between two ranks; arguments and answer as a fabric's route. */
uint32_t tutti_sim_topology_route(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to, bool detour,
                                  uint64_t choice, struct tutti_sim_path *path);
/* From the first byte's departure to its arrival. */
uint64_t tutti_sim_topology_latency_ps(const struct tutti_sim_topology *topology, uint32_t from, uint32_t to,
                                       const struct tutti_sim_path *path);
double tutti_sim_topology_bandwidth(const struct tutti_sim_topology *topology, uint32_t link); /* bytes a second */
/* Links become slower by this factor, or fail (0). which: a link's name, a class (nic), a share of all links or of a
 * class (1%, global:0.5%), which seed tells. ARGUMENT with a sentence; MEMORY. */
enum tutti_status tutti_sim_topology_damage(struct tutti_sim_topology *topology, const char *which, double factor,
                                            uint64_t seed);
/* A name such as "nic:12.3.out" or "global:3-5.0". */
void tutti_sim_topology_name(const struct tutti_sim_topology *topology, uint32_t link, char *out, size_t capacity);

#endif
