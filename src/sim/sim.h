/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_SIM_H
#define TUTTI_SIM_SIM_H

/* A simulator of discrete events. A program says what each rank does, as sends, receives and computing that wait for
 * one another; a network says what each of them costs; the run gives the time at which each rank ends. Programs come
 * from sealed schedules (schedule.c) or from GOAL text (goal.c); networks are listed in network.h. Times are
 * picoseconds, runs are deterministic. This folder may use base and sched. Begin with struct tutti_sim_op, then run.c.
 *
 * Source of the terms: T. Hoefler, T. Schneider, A. Lumsdaine, "LogGOPSim - Simulating Large-Scale Applications in the
 * LogGOPS Model", LSAP 2010. */

#include "sched/sched.h"

#include <stdio.h>

#define TUTTI_SIM_PS_PER_NS UINT64_C(1000)
#define TUTTI_SIM_ANY UINT32_MAX /* a receive from any rank, or of any tag */
#define TUTTI_SIM_NONE UINT32_MAX
#define TUTTI_SIM_MOST_OPS (UINT32_C(1) << 30)
#define TUTTI_SIM_MOST_RANKS (UINT32_C(1) << 24)

/* The order is the one in which operations that become free together are begun. */
enum tutti_sim_type { TUTTI_SIM_SEND, TUTTI_SIM_RECV, TUTTI_SIM_CALC };

struct tutti_sim_op {
    uint64_t size; /* bytes; computing: picoseconds */
    uint32_t rank;
    uint32_t peer; /* messages: the other rank */
    uint32_t tag;
    uint32_t list;   /* messages: where they meet, filled by tutti_sim_program_seal */
    uint32_t before; /* how many operations it waits for */
    uint32_t after;  /* the first of those that wait for it, in `edges`; the next operation's is the end */
    uint32_t place;  /* where it comes from: line of the text, or round of the schedule */
    uint8_t type;    /* enum tutti_sim_type */
    uint8_t cpu, nic;
};

/* The end of an edge; with this bit it waits for the start of the operation, else for its end. */
#define TUTTI_SIM_ON_START (UINT32_C(1) << 31)

struct tutti_sim_edge {
    uint32_t from, to;
};

/* A world whose ranks are alike in turns: rank r is the one with number r % classes of group r / classes, and does what
 * rank r % classes does with all groups moved on by r / classes (rotation, modulo their number), or flipped by it (each
 * bit of a group's number that it has set). Then `classes` ranks stand for all. */
struct tutti_sim_turn {
    uint32_t world; /* number of ranks; 0: each stands for itself */
    uint32_t classes;
    bool flips;
};
/* The rank that is to `rank` what `of` is to the rank of group 0. */
static inline uint32_t tutti_sim_turned(const struct tutti_sim_turn *turn, uint32_t of, uint32_t rank)
{
    uint32_t groups = turn->world / turn->classes, a = of / turn->classes, b = rank / turn->classes;
    uint32_t group = turn->flips ? a ^ b : (uint32_t)(((uint64_t)a + b) % groups);
    return group * turn->classes + of % turn->classes;
}

/* Operations of rank r are ops[first[r] .. first[r + 1]). Fill it by the functions below, rank after rank. */
struct tutti_sim_program {
    uint32_t n_ranks, n_cpus, n_nics;
    uint32_t n_ops, n_lists;
    uint64_t n_edges;
    bool text;                            /* it comes from text */
    bool wild;                            /* some receive is from any rank or of any tag */
    uint32_t n_steps, n_rounds, n_slices; /* from schedules: the most of any rank; else 0 */
    uint32_t *first;
    struct tutti_sim_op *ops;   /* one more than there are: its `after` is the end of the last list */
    uint32_t *edges;            /* by operation */
    struct tutti_sim_turn turn; /* where ranks stand for others, n_ranks is the number of classes, */
    uint32_t *peers;            /* and this has the peers of operations in the world; else NULL */
    struct tutti_sim_edge *raw; /* edges as they were added, until it is sealed */
    uint64_t op_capacity, edge_capacity;
    uint32_t rank; /* the rank that is being filled */
};

/* As tutti_alloc_array, but not zeroed; what is large begins at a page, a large one where the system has them. */
void *tutti_sim_alloc(uint64_t n, size_t bytes);

/* ---- programs (program.c) ---- */
enum tutti_status tutti_sim_program_init(struct tutti_sim_program *program, uint32_t n_ranks);
void tutti_sim_program_fini(struct tutti_sim_program *program);
/* The operations that are added from now on are rank's: all ranks, in order. */
void tutti_sim_program_rank(struct tutti_sim_program *program, uint32_t rank);
/* Appends an operation, whose rank, list, before and after are ignored; *out is its number. */
enum tutti_status tutti_sim_program_add(struct tutti_sim_program *program, const struct tutti_sim_op *op,
                                        uint32_t *out);
/* Operation `to` starts when `from` has ended, or (on_start) begun. Both belong to the rank that is being filled. */
enum tutti_status tutti_sim_program_after(struct tutti_sim_program *program, uint32_t from, uint32_t to, bool on_start);
/* No more operations: sorts the edges, and gives messages their lists. Then the program does not change any more. */
enum tutti_status tutti_sim_program_seal(struct tutti_sim_program *program);

/* ---- from an algorithm to a program (schedule.c): what a call of so many bytes does on every rank of a world ---- */
struct tutti_sim_work {
    uint64_t block_bytes;      /* as a call's count: all_reduce of S has one block of S, all_gather n of S / n */
    uint32_t element_bytes;    /* blocks are cut between elements */
    uint64_t slice_bytes;      /* a chunk is cut into slices of at most this; 0: into none */
    uint32_t active;           /* slices of a rank that are under way at once; 0: all */
    uint32_t calls;            /* so many, each when the one before is over on that rank; 0: one */
    uint32_t rounds;           /* only the first ones of the schedule; 0: all */
    uint64_t copy_fs, fold_fs; /* femtoseconds a byte that is copied, or folded */
    /* Called after each rank, where it is not NULL. */
    void (*progress)(void *argument, uint32_t n_done, uint32_t n);
    void *argument;
};
/* The slot of the shape does not matter. UNSUPPORTED: the algorithm does not offer this; ARGUMENT: it is defective, or
 * there would be too many operations; MEMORY. The program is sealed. */
enum tutti_status tutti_sim_program_make(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                         const struct tutti_shape *shape, const struct tutti_sim_work *work,
                                         struct tutti_sim_program *out);

/* Slices into which each chunk of the schedule is cut. */
uint32_t tutti_sim_slices_of(const struct tutti_sim_work *work, const struct tutti_schedule *schedule);

/* ---- the same from few ranks that stand for all (symmetry.c) ---- */
struct tutti_sim_symmetry {
    uint32_t n_compared;  /* ranks that were sealed, and found to do what the one does that stands for them */
    bool rounded;         /* blocks were made larger, so that all their chunks are of one size, */
    uint64_t block_bytes; /* namely this */
};
/* A program whose ranks stand for others (see struct tutti_sim_turn), for networks that charge all ranks alike. All
 * ranks are compared if they have at most most_steps steps together, else as many as have, drawn by chance. rounded:
 * whether blocks may be made larger. UNSUPPORTED with a sentence when ranks are not alike in any turn that is known;
 * else as tutti_sim_program_make. */
enum tutti_status tutti_sim_program_reduce(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                           const struct tutti_shape *shape, const struct tutti_sim_work *work,
                                           uint64_t most_steps, bool rounded, struct tutti_sim_program *out,
                                           struct tutti_sim_symmetry *symmetry);

/* ---- GOAL text (goal.c) ---- */
/* Reads a program; calc counts nanoseconds. ARGUMENT with a sentence of the form "NAME:LINE: ..." where the text is
 * wrong or too large; MEMORY. The program is sealed. */
enum tutti_status tutti_sim_goal_read(const char *name, const char *text, size_t bytes, struct tutti_sim_program *out);
/* Writes it as GOAL text; false when the file refuses. Computing is rounded to nanoseconds. */
bool tutti_sim_goal_write(const struct tutti_sim_program *program, FILE *file);

/* ---- lower bounds (bounds.c): what no algorithm can beat, whatever it does ---- */
/* What a network allows, by its own rule. A part is a set of `ranks` ranks that follow one another; all parts of the
 * world are alike, and each takes in, and lets out, a byte in fs_per_byte femtoseconds. The part of one rank is its
 * port. Zeroed: nothing is known. */
struct tutti_sim_limits {
    uint64_t latency_ps;  /* from the begin of the first message until the end of its receive, but for its bytes */
    uint64_t overhead_ps; /* a part of it: on the CPU of either rank */
    uint32_t n_parts;
    struct tutti_sim_part {
        uint32_t ranks;
        double fs_per_byte;
    } parts[4];
};
struct tutti_sim_bounds {
    uint64_t latency_ps;  /* one message */
    uint64_t parts_ps[4]; /* by part of the limits: one message, and the bytes that the kind needs to bring in or out */
    uint64_t most_ps;     /* the largest of all */
    uint32_t ranks;       /* size of the part that it comes from; 0: it is the latency */
};
/* bytes: of the buffer, as of a call of `tutti bench`. No reduction within the network. */
struct tutti_sim_bounds tutti_sim_bounds_of(enum tutti_kind kind, uint32_t n_ranks, uint64_t bytes,
                                            const struct tutti_sim_limits *limits);

/* ---- runs (run.c) ---- */
struct tutti_sim_network;
/* What is kept of an operation. cause: what was the last to let it begin (receives: to let it end), TUTTI_SIM_NONE at
 * the start; with TUTTI_SIM_BY_MESSAGE not that operation, which is a send, but the arrival of its message. */
#define TUTTI_SIM_BY_MESSAGE (UINT32_C(1) << 31)
struct tutti_sim_moment {
    uint64_t begin_ps; /* receives: when it was posted */
    uint64_t end_ps;   /* until when it occupied its CPU or port; receives: and until when the message did */
    uint32_t cause;
    uint32_t mate;        /* sends: the receive of its message; receives: the send */
    uint32_t left, order; /* the run's own */
};

struct tutti_sim_result {
    uint64_t end_ps;   /* when the last rank ends */
    uint64_t n_events; /* operations, and messages that arrived */
    uint64_t n_messages, n_bytes;
    uint64_t n_unclear;    /* where ranks stand for others: how often the order of two events may not be that of all */
    uint64_t *rank_end_ps; /* by rank */
    struct tutti_sim_moment *moments; /* by operation; NULL: were not kept */
};
void tutti_sim_result_fini(struct tutti_sim_result *result);
/* Runs a sealed program. ARGUMENT with a sentence when it can not end: an operation that waits for ever, a message that
 * nobody receives, a message longer than its receive, or operations that wait for one another. MEMORY. The network is
 * used up. */
enum tutti_status tutti_sim_run(const struct tutti_sim_program *program, struct tutti_sim_network *network,
                                struct tutti_sim_result *out);
struct tutti_sim_watch {
    bool traced; /* keeps moments */
    /* Called now and then with the number of operations that are over, where it is not NULL. */
    void (*progress)(void *argument, uint32_t n_done, uint32_t n);
    void *argument;
};
/* The same; watch: NULL for nothing. */
enum tutti_status tutti_sim_run_watched(const struct tutti_sim_program *program, struct tutti_sim_network *network,
                                        const struct tutti_sim_watch *watch, struct tutti_sim_result *out);

/* ---- after a run that kept moments (trace.c) ---- */
/* The critical path: from the last end back through what was the last to let each operation begin. Each picosecond of
 * the run is one of latency, bandwidth or computing. */
struct tutti_sim_critical {
    uint64_t latency_ps;   /* messages', and the CPU's for each */
    uint64_t bandwidth_ps; /* bytes on their way, and waits for a port or link */
    uint64_t computing_ps;
    uint32_t n_messages, n_ranks; /* messages that were waited for; ranks that it passes */
    uint32_t *ops;                /* from the first to the last, */
    uint32_t *ranks;              /* and whose they are in the world, where few ranks stand for all, too */
    uint32_t n;
};
/* Undo by tutti_sim_critical_fini. MEMORY. */
enum tutti_status tutti_sim_critical_find(const struct tutti_sim_program *program,
                                          const struct tutti_sim_network *network,
                                          const struct tutti_sim_result *result, struct tutti_sim_critical *out);
void tutti_sim_critical_fini(struct tutti_sim_critical *critical);
/* From when to when an operation occupies its rank; receives: from when the first byte may come. */
struct tutti_sim_span {
    uint64_t begin_ps, end_ps;
};
struct tutti_sim_span tutti_sim_span_of(const struct tutti_sim_program *program,
                                        const struct tutti_sim_network *network, const struct tutti_sim_result *result,
                                        uint32_t op);
/* The share of time in which a rank neither sends nor receives nor computes: the mean of at most 1024 ranks. MEMORY. */
enum tutti_status tutti_sim_idle(const struct tutti_sim_program *program, const struct tutti_sim_network *network,
                                 const struct tutti_sim_result *result, double *out);

#endif
