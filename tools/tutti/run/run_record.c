/* SPDX-License-Identifier: BSD-3-Clause */

/* Records between the launcher and its agents: "NAME NUMBER LENGTH", a newline, so many bytes, a newline. */

#include "run_record.h"
#include "run_supervise.h"

#include "base/base.h"
#include "control/net/net.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/store.h>
#include <unistd.h>

/* Digits, then `end`; NULL: not so. */
static const char *number_read(const char *at, const char *limit, char end, uint32_t *out)
{
    uint64_t value = 0;
    const char *begin = at;
    for (; at < limit && isdigit((unsigned char)*at) && value <= UINT32_MAX; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    if (at == begin || at == limit || *at != end || value > UINT32_MAX) return NULL;
    *out = (uint32_t)value;
    return at + 1;
}

static size_t run_record_read(char *text, size_t n, struct run_record *out)
{
    const char *newline = memchr(text, '\n', n < RUN_RECORD_HEAD ? n : RUN_RECORD_HEAD);
    if (!newline) return n < RUN_RECORD_HEAD ? 0 : SIZE_MAX;
    const char *limit = newline + 1, *blank = memchr(text, ' ', (size_t)(newline - text));
    uint32_t length;
    if (!blank || (size_t)(blank - text) >= sizeof out->name) return SIZE_MAX;
    memcpy(out->name, text, (size_t)(blank - text));
    out->name[blank - text] = '\0';
    const char *at = number_read(blank + 1, limit, ' ', &out->number);
    if (at) at = number_read(at, limit, '\n', &length);
    if (!at || length > RUN_RECORD_MAX) return SIZE_MAX;
    const size_t head = (size_t)(limit - text);
    if (n < head + length + 1) return 0;
    if (text[head + length] != '\n') return SIZE_MAX;
    text[head + length] = '\0';
    out->bytes = text + head, out->n = length;
    return head + length + 1;
}

size_t run_record_head(char out[RUN_RECORD_HEAD], const char *name, uint32_t number, size_t n)
{
    return (size_t)snprintf(out, RUN_RECORD_HEAD, "%.15s %u %zu\n", name, number, n);
}

static bool put(struct run_queue *queue, const char *bytes, size_t n)
{
    if (queue->used + n > queue->capacity) {
        size_t capacity = queue->capacity ? queue->capacity : 4096;
        while (capacity < queue->used + n) capacity *= 2;
        char *more = realloc(queue->bytes, capacity);
        if (!more) return false;
        queue->bytes = more, queue->capacity = capacity;
    }
    if (n) memcpy(queue->bytes + queue->used, bytes, n);
    queue->used += n;
    return true;
}

bool run_queue_add(struct run_queue *queue, const char *name, uint32_t number, const char *bytes, size_t n)
{
    char head[RUN_RECORD_HEAD];
    return n <= RUN_RECORD_MAX && put(queue, head, run_record_head(head, name, number, n)) && put(queue, bytes, n) &&
           put(queue, "\n", 1);
}

bool run_queue_text(struct run_queue *queue, const char *name, uint32_t number, const char *text)
{
    return run_queue_add(queue, name, number, text, strlen(text));
}

bool run_queue_send(struct run_queue *queue, int fd)
{
    while (queue->sent < queue->used) {
        const ssize_t n = write(fd, queue->bytes + queue->sent, queue->used - queue->sent);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN;
        queue->sent += (size_t)n;
    }
    queue->used = queue->sent = 0;
    return true;
}

void run_queue_fini(struct run_queue *queue)
{
    if (queue->bytes) explicit_bzero(queue->bytes, queue->capacity); /* the secret was there */
    free(queue->bytes);
    *queue = (struct run_queue){.used = 0};
}

ssize_t run_inbox_fill(struct run_inbox *inbox, int fd)
{
    if (!inbox->bytes && !(inbox->bytes = tutti_map_lazy(RUN_INBOX))) return -1;
    if (inbox->begin > 0) memmove(inbox->bytes, inbox->bytes + inbox->begin, inbox->used - inbox->begin);
    inbox->used -= inbox->begin;
    inbox->begin = 0;
    const ssize_t n = read(fd, inbox->bytes + inbox->used, RUN_INBOX - inbox->used);
    if (n > 0) inbox->used += (size_t)n;
    return n;
}

int run_inbox_next(struct run_inbox *inbox, struct run_record *out)
{
    if (!inbox->bytes) return 0;
    const size_t n = run_record_read(inbox->bytes + inbox->begin, inbox->used - inbox->begin, out);
    if (n == SIZE_MAX) return -1;
    inbox->begin += n;
    return n > 0;
}

void run_inbox_fini(struct run_inbox *inbox)
{
    if (inbox->bytes) tutti_unmap(inbox->bytes, RUN_INBOX);
    *inbox = (struct run_inbox){.used = 0};
}

/* What the launcher tells an agent before anything is started. */

#define ADDRESSES 8

/* The store listens at all addresses, or at that of the interface; agents try which of these they reach. */
bool run_addresses_find(const struct run_options *o, char *text, size_t capacity, char *bind, size_t bind_capacity)
{
    const struct tutti_listener_config config = {.interface = o->interface};
    struct tutti_net_address addresses[ADDRESSES];
    struct tutti_listener *listener;
    size_t used = 0;
    if (tutti_listener_open(&config, &listener) < 0) {
        run_say("--interface %s: %s", o->interface, tutti_last_error()->text);
        return false;
    }
    const uint32_t n = tutti_listener_addresses(listener, addresses, ADDRESSES);
    tutti_listener_close(listener);
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        char one[64];
        tutti_net_address_text(&addresses[i], one, sizeof one);
        if (used > 0 && (strncmp(one, "127.", 4) == 0 || strcmp(one, "::1") == 0)) continue; /* there it is another */
        if (strncmp(one, "fe80:", 5) == 0 || used + strlen(one) + 2 > capacity) continue;
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? "," : "", one);
    }
    snprintf(bind, bind_capacity, "%.*s", (int)strcspn(text, ","), text);
    return used > 0;
}

extern char **environ;

/* What belongs to this host, or to the launcher's own place in a job, stays here. */
static bool is_passed(const char *entry)
{
    static const char *const kept[] = {"HOSTNAME=",
                                       "PWD=",
                                       "OLDPWD=",
                                       "SHLVL=",
                                       "_=",
                                       "SSH_",
                                       "XDG_",
                                       "DBUS_SESSION",
                                       "DISPLAY=",
                                       "WAYLAND_",
                                       "SLURMD_",
                                       "SLURM_NODEID=",
                                       "SLURM_PROCID",
                                       "SLURM_LOCALID",
                                       "SLURM_STEP",
                                       "SLURM_SRUN",
                                       "SLURM_TASK_PID",
                                       "SLURM_GTIDS",
                                       "SLURM_LAUNCH",
                                       "PMI",
                                       "TUTTI_SECRET=",
                                       "TUTTI_SECRET_FILE=",
                                       "TUTTI_STORE=",
                                       "TUTTI_HOST=",
                                       "TUTTI_INTERFACE="};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(kept); i++)
        if (strncmp(entry, kept[i], strlen(kept[i])) == 0) return false;
    return true;
}

bool run_task_make(const struct supervisor *s, struct run_queue *q, uint32_t index, const char *addresses)
{
    const struct run_options *o = s->options;
    const struct run_host *host = &o->hosts.hosts[index];
    char dir[4096];
    bool ok = getcwd(dir, sizeof dir) && run_queue_text(q, "task", 0, TUTTI_VERSION_TEXT) &&
              run_queue_text(q, "host", index, host->name) && run_queue_text(q, "hosts", (uint32_t)o->hosts.n, "") &&
              run_queue_text(q, "ranks", host->n, "") && run_queue_text(q, "first", host->first, "") &&
              run_queue_text(q, "total", o->n_ranks, "") && run_queue_text(q, "job", 0, s->meeting.job) &&
              run_queue_text(q, "secret", 0, s->meeting.secret) &&
              run_queue_text(q, "store", tutti_store_server_port(s->store), addresses) &&
              run_queue_text(q, "cores", 0, o->cores) && run_queue_text(q, "terminal", o->terminal, "");
    for (char **entry = environ; ok && *entry; entry++)
        if (is_passed(*entry)) ok = run_queue_text(q, "env", 0, *entry);
    ok = ok && run_queue_text(q, "dir", 0, dir);
    for (size_t i = 0; ok && i < o->env.n; i++) ok = run_queue_text(q, "set", 0, o->env.values[i]);
    for (char **arg = o->argv; ok && *arg; arg++) ok = run_queue_text(q, "arg", 0, *arg);
    ok = ok && run_queue_text(q, "end", 0, "");
    if (!ok) run_say("the task of host %s can not be written: %s", host->name, strerror(errno));
    return ok;
}
