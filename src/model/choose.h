/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_MODEL_CHOOSE_H
#define TUTTI_MODEL_CHOOSE_H

/* Predicted times, and the choice that follows from them. This room may use base, sched, topo and algo. Begin here:
 * which algorithm runs a call, a pure function of facts agreed at creation and of arguments that all ranks share.
 * cost.h says what a call costs, machine.h holds the measured constants of a host. */

#include "model/found.h"
#include "model/machine.h"
#include "sched/sched.h"
#include "topo/topo.h"

#include <stdatomic.h>

/* What was chosen already; a prediction takes microseconds. Any number of threads use one at once, without a lock:
 * `check` is the question xored with the answer, so halves of two answers do not pass for an answer. Zeroed is
 * empty. */
#define TUTTI_MEMO_ENTRIES 64
struct tutti_memo {
    struct {
        _Atomic uint64_t check, answer;
    } entries[TUTTI_MEMO_ENTRIES];
};

struct tutti_facts {
    struct tutti_shape shape;  /* size and levels; slot and root ignored */
    uint32_t min_cpus, n_host; /* least CPUs of a rank, ranks of a host: for sentences */
    uint32_t n_cpus;           /* CPUs of a host that its ranks may use together; 0: unknown */
    bool crowded;              /* the ranks of a host, also those of other worlds, outnumber the CPUs that they may
                                * use */
    struct tutti_domains domains[TUTTI_TOPO_N_LEVELS]; /* that the ranks form on their host, by level */
    enum tutti_link_level link;                        /* the farthest that its messages cross */
    bool reproducible;
    const struct tutti_algorithm *const *own; /* option "algorithms": by kind, the one that is used where it fits; NULL:
                                               * none */
    const char *overrides;                /* option "algorithm": all_reduce=ring,broadcast=tree:4; already checked */
    const struct tutti_found_list *found; /* by a search, beside the table; NULL: nothing */
    struct tutti_machine machine;
    uint64_t slice_bytes, eager_bytes; /* options of these names */
    struct tutti_memo *memo;           /* for these facts (apart from reproducible and overrides); NULL: none */
};
struct tutti_question {
    enum tutti_kind kind;
    uint64_t bytes;        /* a block's, equal on all ranks; v forms: the largest block's, or 0 when not shared */
    bool commutative;      /* the operation */
    bool v, counts_shared; /* a v form; whether all ranks know the whole table */
    const char *algorithm; /* per-call override, or NULL */
};
/* An algorithm that may run the call, and the time that is predicted. */
struct tutti_candidate {
    const struct tutti_algorithm *algorithm;
    struct tutti_shape shape; /* complete but for slot and root */
    double ns;
};

/* What the call's override or the option asks for, else what was found for this world and size where it may run the
 * call, else the candidate of the least predicted time. Exception: if the
 * shape has levels, an algorithm that uses them goes before all others. Levels say that it is dear to leave a group,
 * and no constant tells how dear. ARGUMENT or UNSUPPORTED with a sentence when an override is unknown or does not fit;
 * without override there is always an answer. */
enum tutti_status tutti_choose(const struct tutti_facts *facts, const struct tutti_question *question,
                               const struct tutti_algorithm **algorithm, struct tutti_shape *shape);
#define TUTTI_MAX_CANDIDATES 16
/* The candidates between which a call without override would choose, at most `capacity`; their number. */
size_t tutti_candidates(const struct tutti_facts *facts, const struct tutti_question *question,
                        struct tutti_candidate *out, size_t capacity);
/* Whether the option "algorithm" names one for this kind. */
bool tutti_overridden(const struct tutti_facts *facts, enum tutti_kind kind);
/* Whether every entry of an option "algorithm" names a collective and an algorithm that offers it. ARGUMENT. */
enum tutti_status tutti_overrides_check(const char *text);

#endif
