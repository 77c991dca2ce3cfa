/* SPDX-License-Identifier: BSD-3-Clause */

/* A line to a member or the leader: a Unix socket, whose messages are whole or nothing, or TCP, where each frame
 * follows its length (u32, little-endian). */

#include "base/session.h"
#include "control/unix/meeting.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LENGTH_BYTES = 4, IN_BYTES = LENGTH_BYTES + TUTTI_MEETING_FRAME_MAX };
#define FULL_NS (2 * TUTTI_NS_PER_S) /* that a peer which does not read may hold up the others */

enum tutti_status tutti_line_open(struct tutti_meeting_line *line, int fd, bool far)
{
    *line = (struct tutti_meeting_line){.fd = fd};
    if (!far) return TUTTI_OK;
    line->in = tutti_alloc(IN_BYTES);
    return line->in ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a connection of the meeting");
}

void tutti_line_close(struct tutti_meeting_line *line)
{
    if (line->fd >= 0) close(line->fd);
    tutti_free(line->in);
    *line = (struct tutti_meeting_line){.fd = -1};
}

static enum tutti_status far_send(int fd, const uint8_t *bytes, size_t size)
{
    uint8_t length[LENGTH_BYTES];
    struct iovec parts[2] = {{length, sizeof length}, {(void *)(uintptr_t)bytes, size}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};
    const uint64_t until = tutti_deadline_ns(FULL_NS);
    tutti_le_store(length, sizeof length, size);
    for (size_t left = sizeof length + size; left > 0;) {
        const ssize_t n = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN && tutti_now_ns() < until) {
            struct pollfd room = {.fd = fd, .events = POLLOUT};
            poll(&room, 1, 100);
            continue;
        }
        if (n < 0) return TUTTI_AGAIN; /* recv tells that the peer is gone */
        left -= (size_t)n;
        for (size_t done = (size_t)n; done > 0;) {
            const size_t k = done < header.msg_iov->iov_len ? done : header.msg_iov->iov_len;
            header.msg_iov->iov_base = (char *)header.msg_iov->iov_base + k, header.msg_iov->iov_len -= k, done -= k;
            if (header.msg_iov->iov_len == 0 && header.msg_iovlen > 1) header.msg_iov++, header.msg_iovlen--;
        }
    }
    return TUTTI_OK;
}

/* One frame, or PENDING. A length that can not be comes back as a frame that can not be. */
static enum tutti_status far_recv(struct tutti_meeting_line *line, uint8_t *bytes, size_t *n)
{
    for (;;) {
        size_t want = LENGTH_BYTES;
        if (line->n_in >= LENGTH_BYTES) {
            const size_t frame = tutti_le_load(line->in, LENGTH_BYTES);
            *n = frame;
            if (frame == 0 || frame > TUTTI_MEETING_FRAME_MAX) {
                memset(bytes, 0, 1);
                *n = 1;
                return TUTTI_OK;
            }
            want += frame;
            if (line->n_in == want) {
                memcpy(bytes, line->in + LENGTH_BYTES, frame);
                line->n_in = 0;
                return TUTTI_OK;
            }
        }
        const ssize_t got = recv(line->fd, line->in + line->n_in, want - line->n_in, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return TUTTI_PENDING;
        if (got <= 0) return TUTTI_AGAIN;
        line->n_in += (uint32_t)got;
    }
}

enum tutti_status tutti_line_send(const struct tutti_meeting_line *line, const uint8_t *bytes, size_t n,
                                  const int fds[2])
{
    return line->in ? far_send(line->fd, bytes, n) : tutti_meeting_send(line->fd, bytes, n, fds);
}

enum tutti_status tutti_line_recv(struct tutti_meeting_line *line, uint8_t bytes[TUTTI_MEETING_FRAME_MAX + 1],
                                  size_t *n, int fds[2])
{
    if (!line->in) return tutti_meeting_recv(line->fd, bytes, n, fds);
    if (fds) fds[0] = fds[1] = -1;
    return far_recv(line, bytes, n);
}
