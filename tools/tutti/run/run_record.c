/* SPDX-License-Identifier: BSD-3-Clause */

/* Records between the launcher and its agents: "NAME NUMBER LENGTH", a newline, so many bytes, a newline. */

#include "run_record.h"

#include "base/base.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

size_t run_record_read(char *text, size_t n, struct run_record *out)
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
