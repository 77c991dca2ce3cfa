/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_DOCTOR_H
#define TUTTI_TOOLS_DOCTOR_H

/* `tutti doctor` looks at a running job from beside it, and says who is to blame when it hangs. Begin with
 * cmd_doctor.c. doctor_look.c finds the worlds of this host in the memory of its processes, samples all ranks of one
 * several times, and tries hosts that do not answer; doctor_diagnose.c makes a verdict of the samples, a pure function;
 * doctor_say.c has its words, doctor_show.c writes page and JSON, doctor_dump.c keeps samples in a file. It may use
 * control (life, boards) and engine/team/report.h (a call in words). */

#include "control/asks.h"
#include "control/control.h"

#include <stdio.h>

#define DOCTOR_BOARDS 8 /* per rank */
#define DOCTOR_LOOKS 64
#define DOCTOR_HOST 112

/* Whether a host takes connections whose rank does not answer: its kernel does, though the process is stopped. */
enum doctor_reach { DOCTOR_NOT_TRIED, DOCTOR_CONNECTS, DOCTOR_REFUSES, DOCTOR_NO_WAY, DOCTOR_N_REACHES };

/* One rank at one look. Times of boards are ages: how long ago it was. */
struct doctor_rank {
    bool here;  /* on this host */
    bool known; /* its boards and process; else only its life and host, if anything */
    enum tutti_life life;
    enum doctor_reach reach;
    char address[TUTTI_WHO_ADDRESS]; /* where it listens, "10.0.0.2 4711" */
    char host[DOCTOR_HOST];          /* "": not known, or the only one */
    int32_t pid;
    char process; /* the kernel's letter; 0: not known */
    uint32_t n_boards;
    struct tutti_board boards[DOCTOR_BOARDS];
};
/* Looks at all ranks of one world. */
struct doctor_world {
    uint64_t world;
    uint32_t n, n_looks;
    bool one_host;
    uint64_t at_ns[DOCTOR_LOOKS]; /* since the first */
    struct doctor_rank *looks[DOCTOR_LOOKS];
};
enum tutti_status doctor_world_look_add(struct doctor_world *world,
                                        uint64_t at_ns); /* n ranks that nothing is known of */
void doctor_world_fini(struct doctor_world *world);

/* ---- worlds of this host (doctor_look.c) ---- */
struct doctor_found {
    struct tutti_host_control *segments[64];
    uint32_t n;
};
/* Searches the processes of this network namespace; all: every process of this machine that may be read. */
void doctor_find(struct doctor_found *found, bool all);
void doctor_found_fini(struct doctor_found *found);

/* ---- looking (doctor_look.c) ---- */
/* Worlds that a segment belongs to, each once. Returns how many. */
uint32_t doctor_worlds(const struct doctor_found *found, struct doctor_world *out, uint32_t capacity);
/* Adds looks for so long; at least one. */
enum tutti_status doctor_look(const struct doctor_found *found, struct doctor_world *world, uint64_t watch_ns);

/* Tries to connect to ranks that did not answer at the last look, one a host. */
void doctor_reach(struct doctor_world *world);

/* ---- sockets to other hosts (doctor_sockets.c) ---- */
#define DOCTOR_WAYS 16
struct doctor_way {
    char from[46], to[46], interface[16]; /* interface "": not known here */
    uint32_t n;                           /* sockets */
};
struct doctor_sockets {
    uint32_t n;
    struct doctor_way ways[DOCTOR_WAYS];
};
/* n 0: of a rank of another host, or where the kernel does not tell. */
void doctor_sockets_look(const struct doctor_rank *rank, struct doctor_sockets *out);

/* ---- the verdict (doctor_diagnose.c): pure ---- */
enum doctor_kind { /* worse ones later */
                   DOCTOR_FINE,
                   DOCTOR_SLOW_RANK,
                   DOCTOR_SLOW_LINK,
                   DOCTOR_UNHEARD,
                   DOCTOR_LINK,
                   DOCTOR_LETTER,
                   DOCTOR_CIRCLE,
                   DOCTOR_LEFT,
                   DOCTOR_MISSING,
                   DOCTOR_MISMATCH,
                   DOCTOR_STOPPED,
                   DOCTOR_DEAD,
                   DOCTOR_N_KINDS
};
struct doctor_verdict {
    enum doctor_kind kind;
    int32_t rank;            /* the rank of the job that is to blame; -1: none */
    int32_t other;           /* a rank that waits for it, or differs from it; -1 */
    struct tutti_board call; /* what is waited for; comm 0: nothing */
    struct tutti_board last; /* what the rank shows of that communicator; comm 0: nothing */
    uint32_t n_waiting;      /* ranks that wait in it */
    uint32_t n_guilty;       /* as many as this rank */
    uint64_t age_ns;         /* for how long they have waited */
    uint32_t n_blamed, n_of; /* slow: in how many looks */
    char text[TUTTI_ERROR_TEXT + 512];
};
void doctor_diagnose(const struct doctor_world *world, struct doctor_verdict *out);
const char *doctor_kind_name(enum doctor_kind kind);
void doctor_say(const struct doctor_world *world, struct doctor_verdict *verdict); /* fills text (doctor_say.c) */
/* "rank 3 on host b" */
void doctor_say_rank(const struct doctor_world *world, int32_t rank, char *out, size_t capacity);
static inline uint64_t doctor_called(const struct tutti_board *b)
{
    return b->counted > b->seq ? b->counted : b->seq;
}
static inline bool doctor_is_in_call(const struct tutti_board *b)
{
    return b->completed < b->seq && b->counted < b->seq;
}

/* ---- writing ---- */
void doctor_page_write(FILE *out, const struct doctor_world *world, const struct doctor_verdict *verdict);
void doctor_json_write(FILE *out, const struct doctor_world *world, const struct doctor_verdict *verdict);
bool doctor_dump_write(FILE *out, const struct doctor_world *world);
/* Adds what a dump holds to the worlds: of one world the ranks that several dumps know. CONFIG: it is none. */
enum tutti_status doctor_dump_read(FILE *in, struct doctor_world *worlds, uint32_t capacity, uint32_t *n);

#endif
