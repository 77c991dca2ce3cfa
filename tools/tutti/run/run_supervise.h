/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_RUN_SUPERVISE_H
#define TUTTI_TOOLS_RUN_SUPERVISE_H

/* The supervisor and its three sides: ranks here (run_here.c), here for a launcher elsewhere (run_agent.c), and on
 * other hosts (run_remote.c). The supervisor decides what becomes of the job; a side starts ranks, reaches them, and
 * says which ended. */

#include "run.h"

#include <poll.h>

struct supervised { /* a rank */
    pid_t pid;      /* 0: not started, or reaped */
    int status;
    bool just_ended;
};

struct run_remote;
struct supervisor {
    const struct run_options *options;
    const struct run_side *side;
    struct run_remote *remote; /* that side's */
    struct run_meeting meeting;
    struct tutti_store_server *store;
    struct run_output *output;
    struct supervised *ranks;
    struct pollfd *fds;
    uint32_t n_live;
    int signals, alive;
    int exit_status;     /* the first failure's */
    bool failed, ending; /* ending: the ranks got SIGTERM */
    bool impatient;      /* asked to end when no rank was left */
    uint64_t timeout_at_ns, kill_at_ns, settle_at_ns;
    uint64_t look_at_ns; /* the side's */
};

struct run_side {
    bool (*open)(struct supervisor *s);                /* where the ranks will meet; false: a sentence was printed */
    void (*start)(struct supervisor *s, int stdin_fd); /* takes stdin_fd over */
    void (*signal)(struct supervisor *s, int signal);
    void (*reap)(struct supervisor *s);   /* run_rank_ended of each that did */
    bool (*finish)(struct supervisor *s); /* no rank is left: ends the rest; false: as run_step */
    /* May be NULL: */
    void (*ended)(struct supervisor *s, uint32_t rank);           /* a rank did */
    size_t (*poll)(struct supervisor *s, struct pollfd *fds);     /* own descriptors; returns how many */
    bool (*move)(struct supervisor *s, const struct pollfd *fds); /* the same; false: nobody wants the ranks any more */
    void (*look)(struct supervisor *s);                           /* when look_at_ns has come */
    void (*leave)(struct supervisor *s);                          /* at once: the guard is dead */
    void (*close)(struct supervisor *s);
};
extern const struct run_side run_side_here, run_side_agent, run_side_remote;

/* ---- run_agent.c: `tutti run --agent`, as a launcher's remote shell starts it; not for people ---- */
#define RUN_INPUT_BYTES 4096 /* bytes of rank 0's input in one record */
int run_agent_main(void);    /* the exit status */

/* ---- run_record.c: the launcher's addresses, and the task of a host's agent. False: a sentence was printed ---- */
struct run_queue;
/* text: all that agents shall try, by commas; bind: the first. */
bool run_addresses_find(const struct run_options *o, char *text, size_t capacity, char *bind, size_t bind_capacity);
/* Puts the task of host `index` into the queue. */
bool run_task_make(const struct supervisor *s, struct run_queue *queue, uint32_t index, const char *addresses);

/* ---- run_supervise.c ---- */
void run_rank_ended(struct supervisor *s, uint32_t rank, int status);
void run_fail(struct supervisor *s, int exit_status);
void run_ranks_end(struct supervisor *s);
void run_ranks_reap(struct supervisor *s);
/* One wait for anything, at most max_ms (-1: as long as it takes). False: the guard is dead, or the launcher. */
bool run_step(struct supervisor *s, int max_ms);

/* ---- run_here.c ---- */
uint16_t run_port_find(void); /* a port that is free now, for MASTER_PORT: rank 0 will bind it */
/* Job and secret, and the store, served on host (NULL: all addresses). */
bool run_meeting_make(struct supervisor *s, const char *host);
void run_here_start(struct supervisor *s, int stdin_fd); /* -1: nobody reads */
void run_here_signal(struct supervisor *s, int signal);
void run_here_reap(struct supervisor *s);
bool run_here_finish(struct supervisor *s);

#endif
