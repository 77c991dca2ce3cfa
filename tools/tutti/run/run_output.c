/* SPDX-License-Identifier: BSD-3-Clause */

/* What the ranks print, passed on in whole lines (by an agent: as it comes, in records), with "[rank] " before each if
 * wanted. A carriage return ends a line, too, so that progress bars move; a line that is begun and then left, a prompt,
 * is shown after a moment. Nothing here blocks: when nobody reads what tutti run prints, its queue fills, then the
 * ranks' pipes, then the ranks wait. */

#include "run.h"
#include "run_record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 65536      /* a longer line is passed on in pieces */
#define QUEUE_BYTES (1024 * 1024) /* beyond it the ranks are not read */
#define SETTLE_NS (200 * TUTTI_NS_PER_MS)
#define NO_RANK UINT32_MAX

struct stream { /* from one rank */
    int fd;     /* -1: at its end */
    uint32_t rank;
    size_t used; /* bytes of a line that waits for its end */
    uint64_t since_ns;
    char *line;
};

struct sink { /* to our own stdout or stderr */
    int fd;
    bool broken;        /* nobody will ever read it */
    uint32_t open_rank; /* the stream whose unfinished line is on the screen */
    size_t used, sent;
    char *queue;
};

struct run_output {
    bool tag, records; /* records: all goes to stdout, for a launcher to read */
    size_t n_streams;
    struct stream *streams; /* rank r has 2 r and 2 r + 1 */
    struct sink sinks[2];
};

#define QUEUE_CAPACITY (QUEUE_BYTES + 4 * LINE_MAX_BYTES) /* what one reading may add over the limit */

struct run_output *run_output_create(const struct run_options *options)
{
    struct run_output *output = tutti_alloc(sizeof *output);
    if (!output) return NULL;
    output->tag = options->tag_output;
    output->records = options->agent != NULL;
    output->n_streams = 2 * (size_t)options->n_ranks;
    output->streams = tutti_alloc_array(output->n_streams, sizeof *output->streams);
    for (int i = 0; i < 2; i++) {
        output->sinks[i] = (struct sink){.fd = i + 1, .open_rank = NO_RANK};
        output->sinks[i].queue = tutti_map_lazy(QUEUE_CAPACITY);
    }
    bool complete = output->streams && output->sinks[0].queue && output->sinks[1].queue;
    for (size_t i = 0; output->streams && i < output->n_streams; i++) {
        output->streams[i] = (struct stream){.fd = -1, .rank = options->first + (uint32_t)(i / 2)};
        output->streams[i].line = tutti_map_lazy(LINE_MAX_BYTES);
        complete = complete && output->streams[i].line;
    }
    if (complete) return output;
    run_output_destroy(output);
    return NULL;
}

void run_output_destroy(struct run_output *output)
{
    if (!output) return;
    for (size_t i = 0; output->streams && i < output->n_streams; i++) {
        if (output->streams[i].fd >= 0) close(output->streams[i].fd);
        if (output->streams[i].line) tutti_unmap(output->streams[i].line, LINE_MAX_BYTES);
    }
    for (int i = 0; i < 2; i++)
        if (output->sinks[i].queue) tutti_unmap(output->sinks[i].queue, QUEUE_CAPACITY);
    tutti_free(output->streams);
    tutti_free(output);
}

void run_output_add(struct run_output *output, uint32_t rank, int which, int fd)
{
    fcntl(fd, F_SETFL, O_NONBLOCK); /* our end alone */
    output->streams[2 * (size_t)rank + (size_t)which - 1].fd = fd;
}

static struct sink *sink_of(struct run_output *output, const struct stream *stream)
{
    return &output->sinks[output->records ? 0 : (stream - output->streams) % 2];
}

static void sink_put(struct sink *sink, const char *text, size_t bytes)
{
    if (sink->sent > 0 && sink->used + bytes > QUEUE_CAPACITY) {
        memmove(sink->queue, sink->queue + sink->sent, sink->used - sink->sent);
        sink->used -= sink->sent;
        sink->sent = 0;
    }
    if (sink->broken || sink->used + bytes > QUEUE_CAPACITY) return; /* the latter can not be: see QUEUE_CAPACITY */
    memcpy(sink->queue + sink->used, text, bytes);
    sink->used += bytes;
}

static void record_put(struct run_output *output, const char *name, uint32_t number, const char *bytes, size_t n)
{
    char head[RUN_RECORD_HEAD];
    sink_put(&output->sinks[0], head, run_record_head(head, name, number, n));
    sink_put(&output->sinks[0], bytes, n);
    sink_put(&output->sinks[0], "\n", 1);
}

void run_output_record(struct run_output *output, const char *name, uint32_t number, const char *text)
{
    record_put(output, name, number, text, strlen(text));
}

/* What came of a stream; nothing: its end. */
static void stream_record(struct run_output *output, struct stream *stream)
{
    record_put(output, (stream - output->streams) % 2 ? "err" : "out", stream->rank, stream->line, stream->used);
    stream->used = 0;
}

/* A piece of a line, or a whole one with its end. */
static void line_put(struct run_output *output, struct stream *stream, const char *text, size_t bytes, bool ended)
{
    struct sink *sink = sink_of(output, stream);
    char tag[16];
    if (sink->open_rank != NO_RANK && sink->open_rank != stream->rank) {
        sink_put(sink, "\n", 1); /* another rank's line is unfinished on the screen */
        sink->open_rank = NO_RANK;
    }
    if (output->tag && sink->open_rank == NO_RANK)
        sink_put(sink, tag, (size_t)snprintf(tag, sizeof tag, "[%u] ", stream->rank));
    sink_put(sink, text, bytes);
    sink->open_rank = ended ? NO_RANK : stream->rank;
}

/* Passes on the whole lines that the stream holds; keeps what follows them. */
static void lines_put(struct run_output *output, struct stream *stream)
{
    size_t begin = 0;
    for (size_t i = 0; i < stream->used; i++) {
        if (stream->line[i] != '\n' && stream->line[i] != '\r') continue;
        if (stream->line[i] == '\r' && i + 1 == stream->used) break; /* a newline may follow */
        if (stream->line[i] == '\r' && stream->line[i + 1] == '\n') i++;
        line_put(output, stream, stream->line + begin, i + 1 - begin, true);
        begin = i + 1;
    }
    if (begin == 0 && stream->used == LINE_MAX_BYTES) {
        line_put(output, stream, stream->line, stream->used, false);
        begin = stream->used;
    }
    memmove(stream->line, stream->line + begin, stream->used - begin);
    stream->used -= begin;
    stream->since_ns = tutti_now_ns();
}

static void remainder_put(struct run_output *output, struct stream *stream, bool last)
{
    if (stream->used > 0) {
        const bool returned = stream->line[stream->used - 1] == '\r';
        line_put(output, stream, stream->line, stream->used, returned);
    }
    stream->used = 0;
    /* With tags each line is a line; without, the last one stays as the rank left it. */
    if (last && output->tag && sink_of(output, stream)->open_rank == stream->rank)
        line_put(output, stream, "\n", 1, true);
}

/* Reads once; false at the end, and when there is nothing now. */
static bool stream_read(struct run_output *output, struct stream *stream)
{
    const ssize_t n = read(stream->fd, stream->line + stream->used, LINE_MAX_BYTES - stream->used);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        if (output->records)
            stream_record(output, stream);
        else
            remainder_put(output, stream, true);
        close(stream->fd);
        stream->fd = -1;
        return false;
    }
    stream->used += (size_t)n;
    if (output->records)
        stream_record(output, stream);
    else
        lines_put(output, stream);
    return true;
}

void run_output_feed(struct run_output *output, uint32_t rank, int which, const char *bytes, size_t n)
{
    struct stream *stream = &output->streams[2 * (size_t)rank + (size_t)which - 1];
    if (n == 0) remainder_put(output, stream, true);
    while (n > 0) {
        const size_t room = LINE_MAX_BYTES - stream->used, piece = n < room ? n : room;
        memcpy(stream->line + stream->used, bytes, piece);
        stream->used += piece, bytes += piece, n -= piece;
        lines_put(output, stream);
    }
}

bool run_output_is_full(const struct run_output *output)
{
    for (int i = 0; i < 2; i++)
        if (output->sinks[i].used - output->sinks[i].sent >= QUEUE_BYTES) return true;
    return false;
}

bool run_output_is_broken(const struct run_output *output, int which)
{
    return output->sinks[which - 1].broken;
}

void run_output_shut(struct run_output *output, int which)
{
    for (size_t i = (size_t)which - 1; i < output->n_streams; i += 2) {
        if (output->streams[i].fd >= 0) close(output->streams[i].fd);
        output->streams[i].fd = -1;
        output->streams[i].used = 0;
    }
}

size_t run_output_poll(const struct run_output *output, struct pollfd *fds)
{
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        const struct sink *sink = &output->sinks[i];
        fds[n++] = (struct pollfd){.fd = sink->used > sink->sent ? sink->fd : -1, .events = POLLOUT};
    }
    for (size_t i = 0; i < output->n_streams; i++) {
        const struct sink *sink = &output->sinks[output->records ? 0 : i % 2];
        const bool full = sink->used - sink->sent >= QUEUE_BYTES;
        fds[n++] = (struct pollfd){.fd = full ? -1 : output->streams[i].fd, .events = POLLIN};
    }
    return n;
}

/* A pipe that polls writable takes PIPE_BUF bytes without blocking, and our stdout may be shared with others, whom
 * O_NONBLOCK would hit, too. */
static void sink_write(struct run_output *output, size_t which)
{
    struct sink *sink = &output->sinks[which];
    const size_t rest = sink->used - sink->sent;
    const ssize_t n = write(sink->fd, sink->queue + sink->sent, rest < PIPE_BUF ? rest : PIPE_BUF);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n < 0) { /* nobody reads any more: the ranks shall see that as a program in a pipe would */
        sink->broken = true;
        sink->used = sink->sent = 0;
        run_output_shut(output, (int)which + 1);
        return;
    }
    sink->sent += (size_t)n;
    if (sink->sent == sink->used) sink->used = sink->sent = 0;
}

void run_output_move(struct run_output *output, const struct pollfd *fds, size_t n)
{
    for (size_t i = 2; i < n; i++) {
        struct stream *stream = &output->streams[i - 2];
        if (fds[i].fd >= 0 && fds[i].revents && stream->fd == fds[i].fd) {
            const struct sink *sink = sink_of(output, stream);
            if (sink->used - sink->sent < QUEUE_BYTES) stream_read(output, stream);
        }
    }
    for (size_t i = 0; i < 2 && i < n; i++)
        if (fds[i].fd >= 0 && fds[i].revents) sink_write(output, i);
}

uint64_t run_output_settle(struct run_output *output, uint64_t now_ns)
{
    uint64_t next = TUTTI_NEVER;
    for (size_t i = 0; i < output->n_streams; i++) {
        struct stream *stream = &output->streams[i];
        if (stream->used == 0) continue;
        const bool returned = stream->line[stream->used - 1] == '\r'; /* no newline came right behind it */
        const uint64_t due = stream->since_ns + (returned ? SETTLE_NS / 10 : SETTLE_NS);
        if (due > now_ns)
            next = due < next ? due : next;
        else if (!output->tag || returned)
            remainder_put(output, stream, false);
    }
    return next;
}

void run_output_finish(struct run_output *output)
{
    for (size_t i = 0; i < output->n_streams; i++) {
        struct stream *stream = &output->streams[i];
        const struct sink *sink = sink_of(output, stream);
        while (stream->fd >= 0 && sink->used - sink->sent < QUEUE_BYTES && stream_read(output, stream)) continue;
        if (stream->fd < 0 || sink->used - sink->sent >= QUEUE_BYTES) continue; /* full: the next call reads on */
        if (!output->records) remainder_put(output, stream, true);
        close(stream->fd);
        stream->fd = -1;
    }
}

bool run_output_is_done(const struct run_output *output)
{
    for (size_t i = 0; i < output->n_streams; i++)
        if (output->streams[i].fd >= 0) return false;
    return output->sinks[0].used == 0 && output->sinks[1].used == 0;
}
