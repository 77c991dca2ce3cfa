/* SPDX-License-Identifier: BSD-3-Clause */

/* PMI-1 by its wire: lines of key=value to the launcher's proxy, at the descriptor PMI_FD or the address PMI_PORT. A
 * program of MPI uses the same wire, before or after us: only a program without MPI says that it is done with it. */

#include "store/share.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINE 2048

struct pmi {
    int fd;
    uint64_t deadline_ns;
    char line[LINE];
};

static enum tutti_status line_receive(struct pmi *pmi)
{
    for (size_t n = 0; n < LINE - 1;) {
        const uint64_t now = tutti_now_ns();
        struct pollfd event = {.fd = pmi->fd, .events = POLLIN};
        if (now >= pmi->deadline_ns) return tutti_fail(TUTTI_ERR_TIMEOUT, "the launcher's PMI does not answer");
        if (poll(&event, 1, 100) <= 0) continue;
        const ssize_t k = read(pmi->fd, pmi->line + n, 1); /* not a byte of the next line */
        if (k < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (k <= 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the launcher's PMI has ended");
        if (pmi->line[n] == '\n') {
            pmi->line[n] = '\0';
            return TUTTI_OK;
        }
        n += (size_t)k;
    }
    return tutti_fail(TUTTI_ERR_PROTOCOL, "the launcher's PMI answers more than %d bytes", LINE);
}

/* The value of a key in the line that came, up to a blank; false: it is not there, or too long. */
static bool value_find(const struct pmi *pmi, const char *key, char *out, size_t capacity)
{
    const size_t length = strlen(key);
    for (const char *at = pmi->line; at; at = strchr(at, ' ')) {
        while (*at == ' ') at++;
        if (strncmp(at, key, length) != 0 || at[length] != '=') continue;
        const char *value = at + length + 1;
        const size_t n = strcspn(value, " ");
        if (n >= capacity) return false;
        memcpy(out, value, n);
        out[n] = '\0';
        return true;
    }
    return false;
}

/* Sends a line; the answer must be of this command, and say rc=0 or nothing of it. */
static enum tutti_status ask(struct pmi *pmi, const char *answer, const char *format, ...) TUTTI_PRINTF(3, 4);
static enum tutti_status ask(struct pmi *pmi, const char *answer, const char *format, ...)
{
    char text[LINE], cmd[64], rc[16] = "0";
    va_list ap;
    va_start(ap, format);
    const int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (n < 0 || n >= LINE) return tutti_fail(TUTTI_ERR_INTERNAL, "a line of PMI is too long");
    for (int sent = 0; sent < n;) {
        const ssize_t k = write(pmi->fd, text + sent, (size_t)(n - sent));
        if (k < 0 && errno != EINTR && errno != EAGAIN)
            return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the launcher's PMI can not be written to");
        sent += k > 0 ? (int)k : 0;
    }
    TUTTI_TRY(line_receive(pmi));
    value_find(pmi, "rc", rc, sizeof rc);
    if (value_find(pmi, "cmd", cmd, sizeof cmd) && strcmp(cmd, answer) == 0 && strcmp(rc, "0") == 0) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_PROTOCOL, "the launcher's PMI answers \"%.100s\" where %s was expected", pmi->line,
                      answer);
}

static enum tutti_status port_connect(const char *address, int *out)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    if (!colon || (size_t)(colon - address) >= sizeof host || strtoul(colon + 1, NULL, 10) > UINT16_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "PMI_PORT is \"%.100s\", not host:port", address);
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    if (getaddrinfo(host, colon + 1, &hints, &list) != 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "PMI_PORT: the host \"%s\" is not known", host);
    *out = -1;
    for (const struct addrinfo *a = list; a && *out < 0; a = a->ai_next) {
        *out = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (*out < 0 || connect(*out, a->ai_addr, a->ai_addrlen) == 0) continue;
        close(*out);
        *out = -1;
    }
    freeaddrinfo(list);
    return *out >= 0 ? TUTTI_OK : tutti_fail_errno(TUTTI_ERR_SYSTEM, "PMI_PORT: nobody answers at %s", address);
}

static enum tutti_status exchange(struct pmi *pmi, int32_t rank, char text[TUTTI_SHARE_MAX + 1])
{
    char name[512];
    TUTTI_TRY(ask(pmi, "response_to_init", "cmd=init pmi_version=1 pmi_subversion=1\n"));
    TUTTI_TRY(ask(pmi, "my_kvsname", "cmd=get_my_kvsname\n"));
    if (!value_find(pmi, "kvsname", name, sizeof name))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the launcher's PMI names no space of keys");
    if (rank == 0)
        TUTTI_TRY(ask(pmi, "put_result", "cmd=put kvsname=%s key=" TUTTI_SHARE_KEY " value=%s\n", name, text));
    TUTTI_TRY(ask(pmi, "barrier_out", "cmd=barrier_in\n"));
    TUTTI_TRY(ask(pmi, "get_result", "cmd=get kvsname=%s key=" TUTTI_SHARE_KEY "\n", name));
    if (!value_find(pmi, "value", text, TUTTI_SHARE_MAX + 1))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the launcher's PMI lost what rank 0 said");
    return dlsym(RTLD_DEFAULT, "MPI_Init") ? TUTTI_OK : ask(pmi, "finalize_ack", "cmd=finalize\n");
}

enum tutti_status tutti_share_pmi(int32_t rank, uint64_t deadline_ns, char text[TUTTI_SHARE_MAX + 1])
{
    const char *fd = getenv("PMI_FD"), *port = getenv("PMI_PORT"), *id = getenv("PMI_ID");
    struct pmi pmi = {.deadline_ns = deadline_ns};
    if (fd && fd[0]) {
        pmi.fd = (int)strtol(fd, NULL, 10);
        return exchange(&pmi, rank, text);
    }
    if (!port || !port[0]) return TUTTI_ERR_UNSUPPORTED;
    TUTTI_TRY(port_connect(port, &pmi.fd));
    enum tutti_status status = ask(&pmi, "initack", "cmd=initack pmiid=%d\n", id ? (int)strtol(id, NULL, 10) : rank);
    for (int i = 0; i < 3 && status == TUTTI_OK; i++) status = line_receive(&pmi); /* size, rank, debug */
    if (status == TUTTI_OK) status = exchange(&pmi, rank, text);
    close(pmi.fd);
    return status;
}
