/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_RUN_RECORD_H
#define TUTTI_TOOLS_RUN_RECORD_H

/* What launcher and agents say to one another, by the remote shell's standard input and output.
 *
 * To an agent, first its task: task, host, hosts, ranks, first, total, job, secret, store (number: port; text: the
 * addresses to try), dir, cores, terminal, env (of the launcher), set (of --env), arg, end. Then: start (number:
 * MASTER_PORT, text: MASTER_ADDR), signal (number), input (bytes for rank 0; none: its end), close (1 or 2: nobody
 * reads what ranks print there).
 * From an agent: hello (number: a free port, text: its address towards the launcher), refused (number: exit status,
 * text: why), out and err (number: rank; no bytes: the end), ended (number: rank, text: pid and status), more (rank 0
 * took its input). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RUN_RECORD_HEAD 48      /* bytes of its first line, at most */
#define RUN_RECORD_MAX 262144   /* a variable of the environment may have 128 KiB */
#define RUN_INBOX (1024 * 1024) /* bytes that came and are not read yet */

struct run_record {
    char name[16];
    uint32_t number;
    char *bytes; /* a zero byte follows them */
    size_t n;
};
/* Reads the record at the beginning of text, whose last newline becomes a zero byte. Returns its length; 0: it is not
 * whole; SIZE_MAX: it is none. */
size_t run_record_head(char out[RUN_RECORD_HEAD], const char *name, uint32_t number, size_t n);

struct run_queue { /* what waits to be sent */
    char *bytes;
    size_t used, sent, capacity;
};
bool run_queue_add(struct run_queue *queue, const char *name, uint32_t number, const char *bytes, size_t n);
bool run_queue_text(struct run_queue *queue, const char *name, uint32_t number, const char *text);
bool run_queue_send(struct run_queue *queue, int fd); /* what fd takes; false: nobody reads it */
void run_queue_fini(struct run_queue *queue);

struct run_inbox {
    char *bytes;
    size_t begin, used;
};
ssize_t run_inbox_fill(struct run_inbox *inbox, int fd);             /* as read(); records read before are gone */
int run_inbox_next(struct run_inbox *inbox, struct run_record *out); /* 1: one, 0: none is whole, -1: nonsense */
void run_inbox_fini(struct run_inbox *inbox);

#endif
