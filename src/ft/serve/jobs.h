/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_SERVE_JOBS_H
#define TUTTI_FT_SERVE_JOBS_H

/* What the files of this room share: the server, and its jobs, each with a machine of its own. Private to this folder.
 * Thread: the loop's. */

#include "ft/rpc/rpc.h"
#include "ft/rules/ledger.h"
#include "ft/serve/serve.h"
#include "ft/serve/view.h"

#include <stdio.h>

#define SERVE_DEFAULT "default" /* the job of clients that name none */
#define JOB_NAME 64
#define JOB_EVENTS 64
#define JOB_MOST 1024
#define JOB_RECORDS 4096 /* jobs of which something is kept */
#define EVENT_TEXT 240

/* What happened, for people: a ring of the last ones. */
struct serve_event {
    int64_t wall_ns;
    char text[EVENT_TEXT];
};
/* A cached text: it is made anew every 20 ms or 20 times what making it took, at most, so polling costs a copy. */
#define SHOWN_NS (20 * TUTTI_NS_PER_MS)
#define SHOWN_TIMES 20
enum serve_kind { SHOW_JSON, SHOW_METRICS, N_SHOWS };
struct serve_shown {
    char *text;
    size_t n;
    uint64_t until_ns;
};
/* Subscribers that are notified of lost groups. */
struct serve_subscriber {
    struct serve_subscriber *next;
    struct tutti_rpc_call *call;
};
struct serve_lost {
    struct serve_lost *next;
    char replica_id[];
};
struct serve_job {
    struct serve_job *next;
    struct tutti_serve *serve;
    struct tutti_loop_timer timer;
    struct tutti_lighthouse *machine;
    uint64_t due_ns;            /* when the machine wanted to be called at the latest */
    struct tutti_ledger ledger; /* where there is a council */
    struct serve_view view;
    struct serve_subscriber *subscribers;
    bool notifying;             /* ... is under way: subscribers stay */
    struct serve_lost *lost;    /* they are not told of these yet */
    struct tutti_quorum *noted; /* the last one with a new number; counted */
    char name[JOB_NAME + 1];
    struct serve_event events[JOB_EVENTS];
    uint64_t n_events, n_quorums, n_lost, n_beats, n_asks;
    struct serve_shown shown[N_SHOWS];
};

struct serve_http;
struct serve_present;
struct serve_council;
struct serve_forward;
struct tutti_serve {
    struct tutti_serve_config config; /* bind NULL */
    char token[TUTTI_SERVE_TOKEN];    /* "": no secret */
    struct tutti_loop *loop;
    struct tutti_rpc_server *rpc;
    struct serve_http *http; /* NULL: this build has no page */
    struct serve_job *jobs;
    struct serve_present *absent, *last_absent; /* groups whose connections ended, until they are gone */
    struct tutti_loop_timer absence;
    struct serve_council *council; /* NULL: it is alone, and keeps nothing */
    struct serve_forward *forwards;
    struct tutti_loop_timer forwarding;
    uint32_t n_jobs;
    int64_t floor; /* the largest number of a job that was forgotten: where nothing is kept, others begin above it */
    char address[320];
};

/* ---- jobs.c ---- */
struct tutti_lighthouse_time serve_now(void);
/* The same for the job's machine, which is told when this thread was away, as it was stopped. */
struct tutti_lighthouse_time serve_job_now(struct serve_job *job);
/* NULL: there is none of this name. */
struct serve_job *serve_job_find(struct tutti_serve *serve, const char *name);
/* Finds or makes; NULL: the record says why. */
struct serve_job *serve_job(struct tutti_serve *serve, const char *name);
void serve_jobs_end(struct tutti_serve *serve); /* their open calls fail: the callers ask another lighthouse */
bool serve_is_job_name(const char *name);
void serve_job_tick(struct serve_job *job);
/* After every event of a job's machine. */
void serve_schedule(struct serve_job *job);
void serve_note(struct serve_job *job, const char *format, ...) TUTTI_PRINTF(2, 3);

/* The group was heard by the connection of this call. */
void serve_present(const char *job, struct tutti_rpc_call *call, const char *replica_id, uint64_t now);
/* The leader has heard what came by this call's connection, by now at the latest. */
void serve_present_there(struct tutti_rpc_call *call, uint64_t now);
void serve_gone(void *arg, void *kept); /* the server's: a connection has ended */
void serve_absent_end(struct tutti_serve *serve);

/* ---- peers.c ---- */
#define SERVE_PEER_BYTES ((size_t)64 << 20)
enum tutti_status serve_council_open(struct tutti_serve *serve);
void serve_council_stop(struct tutti_serve *serve); /* on the loop's thread */
void serve_council_close(struct tutti_serve *serve);
bool serve_leads(const struct tutti_serve *serve);
const char *serve_leader(const struct tutti_serve *serve); /* another's address; NULL: nobody's, as far as it knows */
struct tutti_rpc_channel *serve_leader_channel(const struct tutti_serve *serve); /* NULL: nobody leads */
enum tutti_status serve_ledger_begin(struct serve_job *job);
bool serve_commit(void *arg, const struct tutti_quorum *quorum);
void serve_on_tell(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n);

/* ---- forward.c ---- */
/* Takes the call over. */
void serve_forward(struct tutti_serve *serve, struct tutti_rpc_call *call, const uint8_t *message, size_t n);
bool serve_forward_cancelled(struct tutti_rpc_call *call); /* whether it was one */
void serve_forwards_end(struct tutti_serve *serve);        /* for calls that are over */
void serve_forward_leave(struct tutti_serve *serve, const char *job, const char *replica_id, uint64_t unless_heard_ms);
void serve_on_forward(void *arg, struct tutti_rpc_call *call, const uint8_t *message, size_t n);

/* ---- calls.c ---- */
extern const struct tutti_rpc_method serve_methods[];
extern const size_t serve_n_methods;
void serve_notify_lost(struct serve_job *job); /* subscribers hear of them, and they are freed */
/* As tutti_lighthouse_out.answer: a request is over; the job is the argument. */
void serve_answer(void *arg, uint64_t request, struct tutti_quorum *quorum);
void serve_cancelled(void *arg, struct tutti_rpc_call *call);
void serve_expired(void *arg, const struct tutti_rpc_call *call, char *why, size_t n); /* why there is no quorum */
/* The method of a call that may be passed on; NULL: it may not. */
const struct tutti_rpc_method *serve_forwarded(const char *path);

/* ---- show.c ---- */
/* NULL: out of memory. Borrowed until the next call for the same. */
const struct serve_shown *serve_show(struct serve_job *job, enum serve_kind kind);

/* ---- http.c or http_none.c ---- */
enum tutti_status serve_http_open(struct tutti_serve *serve, struct serve_http **out);
void serve_http_close(struct serve_http *http); /* on the loop's thread; NULL is allowed */
void serve_http_take(void *arg, int fd);        /* a connection, now its own; arg: the server */

#endif
