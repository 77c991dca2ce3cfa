/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STORE_STORE_SERVER_H
#define TUTTI_STORE_STORE_SERVER_H

/* The TCP store's server: its thread and its events (store_server.c), requests (store_requests.c), and a connection's
 * buffers (store_client.c). Each file uses only those after it in this list. */

#include "store/store_table.h"

#include <pthread.h>

enum tutti_client_state { TUTTI_CLIENT_FRESH, TUTTI_CLIENT_GREETED, TUTTI_CLIENT_TRUSTED };

struct tutti_store_client {
    struct tutti_store_waiter waiter; /* first member: a waiter is its client */
    int fd;
    enum tutti_client_state state;
    uint32_t events;   /* asked of epoll */
    uint64_t until_ns; /* until then it must have proved the secret, or its wait ends; TUTTI_NEVER */
    uint64_t wait_ns;  /* how long it waits */
    uint8_t wait_type; /* GET or WAIT */
    bool doomed;       /* closed at the end of the round of events */
    struct tutti_session session;
    uint8_t *in, *out;
    size_t n_in, max_in, n_out, sent;
    struct tutti_store_client *next, *previous;
};
struct tutti_store_server {
    pthread_t thread;
    int epoll_fd, listen_fd, stop_fd;
    uint16_t port;
    char *secret;
    struct tutti_store_table table;
    struct tutti_store_client *clients; /* the newest first */
    uint32_t n_strangers;               /* those that have proved nothing yet */
    uint64_t logged_ns;                 /* when this second of the log began, */
    uint32_t n_logged, n_unlogged;      /* refusals told in it, and not told */
    uint64_t next_look_ns;              /* the earliest time at which some client's time may be up */
    bool accepting;
    uint8_t frame[TUTTI_STORE_FRAME_MAX]; /* the answer that is being made */
};

/* ---- store_client.c ---- */
/* Asks epoll for what the client's state needs: for its end if it is parked, for room if an answer is not sent yet,
 * else for requests. */
void tutti_store_client_watch(struct tutti_store_server *s, struct tutti_store_client *c);
/* Looks by then, since some client's time may be up. */
void tutti_store_server_look_by(struct tutti_store_server *s, uint64_t ns);
/* Makes room for the whole frame that has begun. Only a trusted client gets more than a little. */
bool tutti_store_client_room(struct tutti_store_client *c);
/* Sends what it can, keeps the rest; flush sends what was kept. */
void tutti_store_client_send(struct tutti_store_server *s, struct tutti_store_client *c,
                             const struct tutti_store_frame *answer);
void tutti_store_client_flush(struct tutti_store_client *c);
/* Answers with the thread's record. */
void tutti_store_client_error(struct tutti_store_server *s, struct tutti_store_client *c);
/* Says why, with the thread's record, to the log and to the client, and dooms it. */
void tutti_store_client_refuse(struct tutti_store_server *s, struct tutti_store_client *c);
void tutti_store_client_close(struct tutti_store_server *s, struct tutti_store_client *c);

/* store_requests.c: serves the whole frames in c->in, until one must wait or the client is doomed. */
void tutti_store_client_frames(struct tutti_store_server *s, struct tutti_store_client *c);

#endif
