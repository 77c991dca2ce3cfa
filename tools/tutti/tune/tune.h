/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_TUNE_H
#define TUTTI_TOOLS_TUNE_H

/* `tutti tune` measures the constants of a machine (model/machine.h). It may use topo, device and model. Each constant
 * is one small measurement that some of the ranks make at once (tune_measure.c); rounds, medians and the file are the
 * command's (cmd_tune.c), where to begin. */

#include "device/cpu/reduce.h"
#include "model/machine.h"
#include "tools/tutti/measure.h"

#include <tutti/tutti.h>

struct tune_fact {
    uint64_t address, small; /* the addresses of a and small[0] */
    int32_t pid, cpu;
};

/* What the ranks measure with. Memory is touched before anything is timed. */
struct tune {
    struct tutti_comm *comm, *pair, *alone; /* all ranks; ranks 0 and 1, NULL at others; this rank */
    struct tutti_window *window;
    uint32_t rank, n;
    unsigned char *own;                /* TUNE_SHARED_BYTES of the window; */
    unsigned char **peers;             /* those of all ranks */
    unsigned char *a, *b, *sum;        /* private, far_bytes each, huge pages where the kernel gives some */
    size_t far_bytes;                  /* together past any cache */
    unsigned char *small[2];           /* private, TUNE_SMALL_BYTES each, in pages of 4 KiB */
    struct tune_fact *facts;           /* all ranks' facts */
    uint64_t n_meetings;               /* that this rank took part in */
    uint32_t n_together;               /* ranks of the row that is measured: the first so many */
    const struct tutti_machine *known; /* constants of earlier rows */
    tutti_reduce_kernel add;           /* what is measured folds with it, */
    size_t copied;                     /* or copies so many bytes, */
    bool of_small;                     /* true for memory in pages of 4 KiB */
};
#define TUNE_SHARED_BYTES ((size_t)1 << 20)
#define TUNE_SMALL_BYTES ((size_t)2 << 20)

enum tune_who { TUNE_ONE, TUNE_PAIR, TUNE_ALL }; /* rank 0; ranks 0 and 1; all ranks */
enum tune_sum { TUNE_MEAN, TUNE_TOTAL };         /* what these ranks' values come to */
struct tune_row {
    const char *name; /* the constant's */
    enum tune_who who;
    enum tune_sum sum;
    bool spins;                           /* needs a CPU for each of its ranks */
    double (*measure)(struct tune *tune); /* the value as this rank finds it; 0: it can not be measured here */
};
extern const struct tune_row tune_rows[];
extern const size_t tune_n_rows;

/* By all ranks. *value is 0 where one of the row's ranks could not measure it. */
enum tutti_status tune_measure(struct tune *tune, const struct tune_row *row, const struct tutti_machine *known,
                               double *value);

/* ---- tune_ways.c ---- */
/* By all ranks of a job: how long the ways take beside what the constants in the file predict, for so long at most;
 * rank 0 adds it to the file. */
enum tutti_status tune_ways(const char *path, uint64_t limit_ns);

/* ---- tune_open.c ---- */
enum tutti_status tune_open(struct tutti_comm *comm, float cache_kib, struct tune *out);
void tune_close(struct tune *tune);
/* Ranks share CPUs, so what they do at once is not measured. */
bool tune_is_crowded(const struct tune *tune);

#endif
