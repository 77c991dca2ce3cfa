/* SPDX-License-Identifier: BSD-3-Clause */

/* Sockets of a meeting: abstract Unix sockets within a host, TCP between hosts, and the table of hosts as memory that
 * is passed along. */

#include "control/meet/meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- Unix sockets ---- */

#define BACKLOG 4096

static socklen_t address_fill(const char *place, struct sockaddr_un *address)
{
    size_t n = strnlen(place, sizeof address->sun_path - 1);
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, place, n); /* the zero byte before it makes the name abstract */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static enum tutti_status socket_make(int *out)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "no Unix socket for the meeting of the ranks");
    *out = fd;
    return TUTTI_OK;
}

enum tutti_status tutti_meeting_listen(const char *place, int *out)
{
    struct sockaddr_un address;
    socklen_t bytes = address_fill(place, &address);
    enum tutti_status status = TUTTI_AGAIN;
    int fd = -1;
    TUTTI_TRY(socket_make(&fd));
    if (bind(fd, (struct sockaddr *)&address, bytes) != 0) {
        if (errno != EADDRINUSE)
            status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "the meeting place @%s can not be bound", place);
        goto err_close;
    }
    if (listen(fd, BACKLOG) != 0) {
        status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "the meeting place @%s can not be listened at", place);
        goto err_close;
    }
    *out = fd;
    return TUTTI_OK;
err_close:
    close(fd);
    return status;
}

enum tutti_status tutti_meeting_connect(const char *place, int *out)
{
    struct sockaddr_un address;
    socklen_t bytes = address_fill(place, &address);
    enum tutti_status status = TUTTI_AGAIN;
    int32_t pid;
    int fd = -1;
    TUTTI_TRY(socket_make(&fd));
    if (connect(fd, (struct sockaddr *)&address, bytes) != 0) {
        if (errno == EAGAIN || errno == EINTR)
            status = TUTTI_PENDING;
        else if (errno != ECONNREFUSED)
            status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "the meeting place @%s can not be reached", place);
        goto err_close;
    }
    TUTTI_TRY_GOTO(status, tutti_meeting_peer(fd, &pid), err_close);
    *out = fd;
    return TUTTI_OK;
err_close:
    close(fd);
    return status;
}

enum tutti_status tutti_meeting_peer(int fd, int32_t *pid)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the kernel does not say who a peer is");
    errno = EPERM; /* marks the uid as the reason */
    if (peer.uid != geteuid())
        return tutti_fail_errno(TUTTI_ERR_AUTH,
                                "process %d at the meeting place belongs to uid %u, this rank to uid %u", (int)peer.pid,
                                (unsigned)peer.uid, (unsigned)geteuid());
    *pid = (int32_t)peer.pid;
    return TUTTI_OK;
}

enum tutti_status tutti_meeting_send(int fd, const void *bytes, size_t size, const int fds[2])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds) {
        memset(&control, 0, sizeof control);
        header.msg_control = control.bytes;
        header.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(2 * sizeof(int));
        memcpy(CMSG_DATA(c), fds, 2 * sizeof(int));
    }
    ssize_t n;
    do n = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)size) return TUTTI_OK;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)) return TUTTI_AGAIN;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "a message of the meeting can not be sent");
}

/* Takes over the descriptors of a received message; what is not wanted is closed. */
static void descriptors_take(struct msghdr *header, int fds[2])
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        bool wanted = fds && n == 2 && fds[0] < 0;
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (wanted)
                fds[i] = fd;
            else
                close(fd);
        }
    }
}

enum tutti_status tutti_meeting_recv(int fd, uint8_t bytes[TUTTI_MEETING_FRAME_MAX + 1], size_t *n, int fds[2])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = bytes, .iov_len = TUTTI_MEETING_FRAME_MAX + 1};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes};
    if (fds) fds[0] = fds[1] = -1;
    ssize_t got;
    bool ended = false, again;
    do {
        header.msg_controllen = sizeof control.bytes; /* 0 after an end */
        got = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        /* What a peer sent before it closed can still lie here when its end is told: as a reset, once, when it closed
         * before it read all; and as an end, when it sent and closed while the kernel was in this call. */
        again = !ended && (got == 0 || (got < 0 && errno == ECONNRESET));
        ended |= again;
    } while (again || (got < 0 && errno == EINTR));
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return TUTTI_PENDING;
    if (got < 0 && errno == ECONNRESET) return TUTTI_AGAIN;
    if (got < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "a message of the meeting can not be received");
    descriptors_take(&header, fds);
    if (got == 0) return TUTTI_AGAIN;
    *n = (size_t)got; /* what is too long was cut to one byte more than any message has */
    return TUTTI_OK;
}

enum tutti_status tutti_meeting_random(void *arg, void *out, size_t n)
{
    (void)arg;
    return tutti_random_bytes(out, n);
}

uint64_t tutti_meeting_started(void *arg, int32_t pid)
{
    struct tutti_process process;
    (void)arg;
    return tutti_process_read(pid, &process) ? process.start : 0;
}

bool tutti_meeting_alive(void *arg, int32_t pid, uint64_t start)
{
    (void)arg;
    return tutti_process_alive(pid, start);
}

/* ---- the table of hosts ---- */
/* The table of hosts, once for all processes of a host: in memory that nobody can change any more. */

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL };

enum tutti_status tutti_handout_make(const uint8_t *bytes, uint32_t n, int *out)
{
    int fd;
    TUTTI_TRY(tutti_memfd("tutti-table", n, &fd));
    for (uint32_t at = 0; at < n;) {
        const ssize_t written = write(fd, bytes + at, n - at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) break;
        at += (uint32_t)written;
    }
    if (lseek(fd, 0, SEEK_CUR) == (off_t)n && fcntl(fd, F_ADD_SEALS, SEALS) == 0) {
        *out = fd;
        return TUTTI_OK;
    }
    tutti_fail_errno(TUTTI_ERR_SYSTEM, "the table of hosts can not be shared");
    close(fd);
    return TUTTI_ERR_SYSTEM;
}

enum tutti_status tutti_handout_map(int fd, const uint8_t **out, uint32_t *n)
{
    struct stat st;
    const int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) != 0 || st.st_size <= 0 || st.st_size > UINT32_MAX)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "what came with the verdict is no table of hosts");
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) return tutti_fail_errno(TUTTI_ERR_MEMORY, "the table of hosts can not be mapped");
    *out = bytes, *n = (uint32_t)st.st_size;
    return TUTTI_OK;
}

void tutti_handout_unmap(const uint8_t *bytes, uint32_t n)
{
    if (bytes) munmap((void *)(uintptr_t)bytes, n);
}

/* ---- other hosts ---- */
/* Where the leader of a meeting can be reached by ranks of other hosts: "port,address,address". A host has addresses
 * that others can not reach, or that are addresses of their own (a bridge of containers): they are tried in turn. */

#define ADDRESSES 8
#define TRY_NS TUTTI_NS_PER_S /* for an address to answer */

void tutti_far_text(const struct tutti_listener *listener, char out[TUTTI_FAR_TEXT])
{
    struct tutti_net_address addresses[ADDRESSES];
    const uint32_t n = tutti_listener_addresses(listener, addresses, ADDRESSES);
    int used = snprintf(out, TUTTI_FAR_TEXT, "%u", tutti_listener_port(listener));
    for (uint32_t i = 0; i < n; i++) {
        char text[64];
        tutti_net_address_text(&addresses[i], text, sizeof text);
        if ((size_t)used + strlen(text) + 2 > TUTTI_FAR_TEXT) return;
        used += snprintf(out + used, TUTTI_FAR_TEXT - (size_t)used, ",%s", text);
    }
}

/* OK, AGAIN when it is refused, PENDING (with errno) when nothing answers in time. */
static enum tutti_status address_try(const struct tutti_net_address *address, uint16_t port,
                                     const struct tutti_meeting_request *request, int *out)
{
    uint64_t until = tutti_deadline_ns(TRY_NS);
    int fd = -1, error = 0;
    socklen_t bytes = sizeof error;
    if (tutti_net_connect(address, port, request->interface, NULL, &fd) < 0) {
        errno = tutti_last_error()->os_errno;
        return TUTTI_PENDING;
    }
    if (until > request->deadline_ns) until = request->deadline_ns;
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    while (tutti_now_ns() < until && !tutti_meeting_cancelled(request) && poll(&room, 1, 20) <= 0) continue;
    const bool decided = room.revents != 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0;
    if (decided && error == 0) {
        *out = fd;
        return TUTTI_OK;
    }
    close(fd);
    errno = decided ? error : ETIMEDOUT;
    return decided && error == ECONNREFUSED ? TUTTI_AGAIN : TUTTI_PENDING;
}

enum tutti_status tutti_far_connect(const char *text, const struct tutti_meeting_request *request, int *fd)
{
    char copy[TUTTI_FAR_TEXT], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    const char *port = strsep(&rest, ",");
    const unsigned long number = strtoul(port, NULL, 10);
    enum tutti_status status = TUTTI_AGAIN;
    if (number == 0 || number > UINT16_MAX || !rest)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the store holds \"%.60s\", not the address of a meeting", text);
    for (const char *one; (one = strsep(&rest, ","));) {
        struct tutti_net_address address;
        if (!tutti_net_address_parse(one, &address))
            return tutti_fail(TUTTI_ERR_PROTOCOL, "the store holds the address \"%.60s\", which is none", one);
        TUTTI_TRY(tutti_meeting_time(request, "the rank that leads the meeting"));
        const enum tutti_status tried = address_try(&address, (uint16_t)number, request, fd);
        if (tried == TUTTI_OK) return tried;
        if (tried == TUTTI_PENDING) status = tried;
    }
    return status;
}
