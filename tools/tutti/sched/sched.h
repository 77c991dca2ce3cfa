/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_SCHED_H
#define TUTTI_TOOLS_SCHED_H

/* `tutti sched`: lists, shows, draws and checks schedules. These files may use sched, algo, verify and sim of the
 * library. Begin with cmd_sched.c, then sched_show.c and sched_check.c. Here is what they share. */

#include "tools/tutti/cmd.h"

#include "sched/sched.h"

/* An algorithm by name ("ring", "tree:4") or from a file ("./mine.c", src/load). */
struct sched_subject {
    const struct tutti_algorithm *algorithm;
    uint32_t radix; /* in "tree:4"; else 0 */
    uint32_t ranks; /* the one number of ranks that it is for; 0: many */
    bool is_file;   /* it may be a stranger's, and acts in a process of its own */
    int code;       /* the exit status where there is none */
};
/* False, and a sentence on stderr, when there is none. */
bool sched_subject_open(const struct tutti_args *spec, const char *name, struct sched_subject *out);
/* The radix of the option (0: not given), else of the name, goes to *radix. False, and a sentence, when the two differ
 * or the algorithm has none. */
bool sched_radix_choose(const struct tutti_args *spec, const struct sched_subject *subject, uint32_t option,
                        uint32_t *radix);
bool sched_kind_parse(const struct tutti_args *spec, const char *name, enum tutti_kind *out);

/* Ranks in the lowest of these levels ("8,8x3,7" is 39); 0 when the text is not of the form. */
uint32_t sched_levels_size(const char *text);

/* The schedules of all slots; NULL where there is none. */
struct sched_bundle {
    struct tutti_schedule **slots;
    uint32_t n;
};
enum tutti_status sched_bundle_seal(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                    const struct tutti_shape *shape, bool expand, struct sched_bundle *out);
void sched_bundle_free(struct sched_bundle *bundle);
/* The step of `slot` that receives (or sends) message `fifo` from (to) `peer`; NULL if there is none. */
const struct tutti_step *sched_bundle_message(const struct sched_bundle *bundle, uint32_t slot, bool sends,
                                              uint32_t peer, uint32_t fifo);

/* What a plug-in does, in a process of its own: there act(argument) is called. An answer in
 * *argument, and progress, a number that changes as work is done (or NULL), lie in shared memory. *code is what act
 * returned; how says what became of the process when it did not return: "" if it did. */
struct sched_apart {
    int (*act)(void *argument);
    void *argument;
    const volatile uint32_t *progress;
    uint32_t size; /* number of ranks: the more, the more time */
};
enum tutti_status sched_apart(const struct sched_apart *task, int *code, char *how, size_t capacity);

/* ---- the verbs: exit statuses ---- */
int sched_list(int argc, char **argv);
int sched_show(int argc, char **argv);
int sched_check(int argc, char **argv);
int sched_mutants(int argc, char **argv);
int sched_sim(int argc, char **argv);
int sched_search(int argc, char **argv);
int sched_job(int argc, char **argv);
int sched_new(int argc, char **argv);
int sched_export(int argc, char **argv);
int sched_startup(int argc, char **argv);

/* ---- drawings ---- */
/* What is marked in a drawing as wrong; UINT32_MAX: no rank, no step in particular. */
struct sched_mark {
    uint32_t rank, step;
};
#define SCHED_NO_MARK ((struct sched_mark){UINT32_MAX, UINT32_MAX})
bool sched_unicode(void); /* whether the terminal has it */
/* Ranks as columns, rounds as rows, messages as arrows. */
void sched_draw_grid(const struct sched_bundle *bundle, struct sched_mark mark, bool unicode);
/* Writes an SVG: ranks from left to right, rounds downwards. False and a sentence when it can not. */
bool sched_draw_svg(const struct tutti_args *spec, const struct sched_bundle *bundle, struct sched_mark mark,
                    const char *path);
/* "3", "3-5", "s2" for SCRATCH, "i2" for IN. */
void sched_chunks_label(uint8_t buffer, uint32_t chunk, uint32_t n, char *out, size_t capacity);

#endif
