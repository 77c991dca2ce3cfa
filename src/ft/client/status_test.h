/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_CLIENT_STATUS_TEST_H
#define TUTTI_FT_CLIENT_STATUS_TEST_H

/* What a lighthouse's status page says to programs. */

#include "test.h"

#include <tutti/ft.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* All of the status page that other programs read; "": this build has no page. */
static inline void read_status(const struct tutti_ft_lighthouse *lighthouse, char *out, size_t room)
{
    static const char ask[] = "GET /status.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const char *port = strrchr(tutti_ft_lighthouse_address(lighthouse), ':') + 1;
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t n = 0;
    ssize_t more;

    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL), sizeof ask - 1);
    while (n + 1 < room && (more = recv(fd, out + n, room - 1 - n, 0)) > 0) n += (size_t)more;
    out[n] = '\0';
    close(fd);
}

static inline void await_status(const struct tutti_ft_lighthouse *lighthouse, const char *wanted)
{
    static char status[65536];

    for (int i = 0; i < 2000; i++) {
        read_status(lighthouse, status, sizeof status);
        if (!status[0] || strstr(status, wanted)) return;
        usleep(10000);
    }
    fail_msg("%s is not in %s", wanted, status);
}

#endif
