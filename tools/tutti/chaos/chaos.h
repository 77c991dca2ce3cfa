/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_CHAOS_H
#define TUTTI_TOOLS_CHAOS_H

/* `tutti chaos` shows what a fault-tolerant job is worth: it starts lighthouses and replica groups, lets them train
 * undisturbed for a while, then kills, stops and cuts them by a seed, and tells which share of the steps and of the
 * samples was done beside the undisturbed rate, and for how long all stood still after each blow. Begin with
 * cmd_chaos.c. Pure: what happens when and what it cost (chaos_judge.c). Edges: processes
 * (chaos_member.c), the networks that can be cut (chaos_net.c), where steps are seen (chaos_steps.c), the loop over
 * all of them (chaos_run.c), and what is told (chaos_show.c, chaos_plot.c). */

#include "tools/tutti/cmd.h"

#include "base/base.h"

#include <stdio.h>
#include <sys/types.h>

#define CHAOS_MEMBERS 64 /* groups and lighthouses */
#define CHAOS_ADDRESSES 4096

enum chaos_kind {
    CHAOS_KILL,
    CHAOS_STOP,
    CHAOS_CUT,
    CHAOS_RANK,
    CHAOS_RANK_STOP,
    CHAOS_LIGHTHOUSE,
    CHAOS_LIGHTHOUSE_STOP,
    CHAOS_LIGHTHOUSE_CUT,
    CHAOS_KINDS
};
enum chaos_whom { A_GROUP, A_RANK, A_LIGHTHOUSE };
enum chaos_how { BY_KILL, BY_STOP, BY_CUT };
extern const struct chaos_row {
    const char *name;
    enum chaos_whom whom;
    enum chaos_how how;
} chaos_rows[CHAOS_KINDS];

struct chaos_options {
    uint32_t n_groups, n_lighthouses, n_ranks; /* ranks: of a group */
    uint32_t n_kinds;                          /* at least 1 */
    enum chaos_kind kinds[CHAOS_KINDS];
    uint64_t seed;
    uint64_t calm_ns, chaos_ns; /* undisturbed, then disturbed */
    uint64_t every_ns;          /* between two blows */
    uint64_t hold_ns, pause_ns; /* how long a stop or a cut lasts; until what was killed is started again */
    const char *lighthouse;     /* addresses of those that run already; NULL: own ones */
    const char *program;        /* the lighthouses': takes --bind and --min-replicas; NULL: tutti lighthouse */
    const char *min_replicas;
    struct tutti_arg_list lighthouse_options;
    const char *json, *csv, *svg; /* files, "-": stdout; NULL: none */
    char **argv;                  /* the program's, NULL at the end */
};

/* ---- what happens when (chaos_judge.c) ---- */
struct chaos_blow {
    uint64_t at_ns; /* since the blows began */
    enum chaos_kind kind;
    uint32_t member; /* group or lighthouse, by the kind */
    uint32_t rank;   /* the rank of the group that alone is struck */
};
/* The blow after one at after_ns, 0 for the first: kinds by turns in an order that the seed mixes, members by chance
 * but never one twice in a row where there are several, times by chance within a quarter of every_ns around its
 * multiples. *state: the seed at first, kept by the caller. */
struct chaos_blow chaos_next(const struct chaos_options *options, uint64_t *state, const struct chaos_blow *last,
                             uint32_t number);

/* ---- what was seen, and what it cost (chaos_judge.c) ---- */
struct chaos_step {
    uint64_t at_ns; /* when the first group had committed it */
    int64_t step;
    uint64_t groups; /* those with work in it, as bits */
    uint32_t told;   /* how many did it together, as one of them said: the most; 0: none said */
    double samples;  /* all of theirs, and those of the steps since the one before that is known */
};
struct chaos_struck {
    uint64_t at_ns, again_ns; /* again_ns: when it was started or released, 0: not yet */
    enum chaos_kind kind;
    uint32_t member, rank;
};
struct chaos_record {
    struct chaos_step *steps; /* by number, each once */
    size_t n, capacity;
    uint32_t n_groups;
    uint64_t calm_ns, begin_ns, end_ns; /* undisturbed from calm_ns to begin_ns, blows from there to end_ns */
    struct chaos_struck struck[1024];
    size_t n_struck;
};
struct chaos_spread {
    double median, most_of_them, worst; /* most_of_them: nine in ten are not more */
    size_t n;
};
struct chaos_verdict {
    double calm_rate, chaos_rate, goodput; /* steps a second; their ratio. calm_rate 0: nothing was seen */
    double calm_gap_s;                     /* median time from step to step, undisturbed */
    double calm_samples;                   /* a second of one group, undisturbed */
    double samples, due;                   /* done under blows; what the groups that live would have done undisturbed */
    /* The longest time without a step, beyond calm_gap_s: from a blow until the member is started or released; */
    struct chaos_spread stall_s;
    struct chaos_spread rejoin_s; /* the same of times that begin after that, until the next blow */
    struct chaos_spread away_s;   /* from the start or release of a group until it takes part again */
    double still_s;               /* all of stall_s and rejoin_s: it asks little of the calm time, as goodput does */
    size_t apart;                 /* steps that more groups did than any of them knew of: not together */
};
/* Puts in a step, or who else did it: samples of a group that is known to have done it do not count again. False: out
 * of memory. */
bool chaos_note(struct chaos_record *record, const struct chaos_step *step);
/* Bits of n groups that take part, where only their number is known: as many as can be of those that are not down, then
 * of those that could be back. */
uint64_t chaos_guess(const struct chaos_record *record, uint32_t n, uint64_t now_ns);
/* When the group that was struck takes part again; the next blow on it, or end_ns, where it does not before. */
uint64_t chaos_back(const struct chaos_record *record, size_t struck);
struct chaos_verdict chaos_judge(const struct chaos_record *record);

/* ---- where steps are seen (chaos_steps.c) ---- */
#define CHAOS_STEPS_VARIABLE "CHAOS_STEPS"
struct chaos_source {
    const char *addresses, *token; /* the lighthouses'; token "": there is no secret */
    struct chaos_report {
        char path[64];   /* what the group is told */
        int fd;          /* -1: not opened */
        uint64_t offset; /* read so far */
    } reports[CHAOS_MEMBERS];
    uint32_t n_reports;
    bool told; /* a program tells its steps: the lighthouse is not asked */
};
/* Notes what is new. False: out of memory. */
bool chaos_steps_look(struct chaos_source *source, struct chaos_record *record);
void chaos_steps_close(struct chaos_source *source);

/* ---- what is told (chaos_show.c, chaos_plot.c); false: a sentence was printed ---- */
struct chaos_told {
    const struct chaos_options *options;
    const struct chaos_record *record;
    struct chaos_verdict verdict;
    unsigned ended; /* groups that failed by themselves */
    bool by_programs;
};
bool chaos_show(const struct chaos_told *told);
void chaos_plot(FILE *out, const struct chaos_told *told);

/* ---- members (chaos_member.c): a process and all below it ---- */
struct chaos_member {
    char name[32];    /* "group 2", "lighthouse 0" */
    char address[64]; /* its network's, "" if it has none of its own */
    char **argv, **environment;
    pid_t pid;         /* 0: it does not run */
    uint64_t again_ns; /* when it is started or released; 0: not asked for */
    pid_t stopped;     /* what is, it or a rank of it; 0: nothing */
    bool cut, is_group, done;
    bool struck; /* a rank of it was killed: it is to end */
    uint32_t n_starts;
};
/* In its own session, with output as ours; in a network of its own where address is set. False: a sentence was printed.
 */
bool chaos_start(struct chaos_member *member);
/* To it and all its descendants, the deepest first; 0: to nobody. */
void chaos_signal(pid_t pid, int number);
/* The process of a rank of this host that `tutti run` started as member; 0: it does not run. */
pid_t chaos_rank(const struct chaos_member *member, uint32_t rank);
/* Whether it ended; *status as of waitpid. */
bool chaos_ended(struct chaos_member *member, int *status);
void chaos_end_all(struct chaos_member *members, uint32_t n);

/* ---- networks (chaos_net.c) ---- */
/* This process gets a network of its own with a switch in it. False: a sentence was printed. */
bool chaos_net_open(void);
/* Gives pid, which has unshared its network, a link to the switch; in the child: sets it up. Status 0: well. */
bool chaos_net_link(pid_t pid, const char *address);
bool chaos_net_enter(const char *address);
bool chaos_net_cut(const char *address, bool cut);

/* ---- all together (chaos_run.c) ---- */
int chaos_run(const struct chaos_options *options);

/* Prints "tutti chaos: ..." to stderr (chaos_run.c). */
void chaos_say(const char *format, ...) TUTTI_PRINTF(1, 2);

#endif
