/* SPDX-License-Identifier: BSD-3-Clause */

/* The store of ranks on several hosts to which none is named, as after a bare `srun ./program`, `mpirun ./program` or
 * `torchrun --no-python ./program`. Rank 0 serves one, and tells the others where by what the launcher brings: its own
 * wire (store/share.h), which who may start processes of the job can read, so that a secret goes by it, too; the store
 * of torchrun, which any process that reaches it can read; or nothing but the port MASTER_PORT of the host MASTER_ADDR.
 * Once in a process: later communicators find the same store. */

#include "control/meet/bootstrap.h"

#include "control/net/net.h"
#include "store/open.h"
#include "store/share.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESSES 8
#define TRY_MS 2000 /* for an address to answer */
#define LOOK_NS (200 * TUTTI_NS_PER_MS)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tutti_launch_store cached;  /* under the lock; address "": not yet */
static struct tutti_store_server *server; /* rank 0's, under the lock; lives as long as the process */

/* What is known of the job, and the process. */
struct seeker {
    const struct tutti_config *config;
    const struct tutti_launch *launch;
    const char *secret;                    /* the user's; NULL: none */
    struct tutti_certificate *certificate; /* ... in its place; NULL: none */
    uint64_t deadline_ns;
};

/* ---- rank 0 ---- */

/* Port 0: any that the user leaves. */
static enum tutti_status server_open(const struct seeker *s, const char *host, uint16_t port, const char *secret,
                                     struct tutti_store_server **out)
{
    const uint64_t range = port ? 0 : s->config->number[TUTTI_OPT_port_range];
    for (uint32_t i = 0; i < tutti_ports_n(range); i++) {
        const uint16_t at = range ? tutti_ports_try(range, i) : port;
        const enum tutti_status status = tutti_store_server_open_by(host, at, secret, s->certificate, out);
        if (status == TUTTI_OK || !range || tutti_last_error()->os_errno != EADDRINUSE) return status;
    }
    return tutti_ports_used_up(range);
}

/* text: port/secret/address,address; the secret is "-" when all have it already, or there is none. port 0: any. */
static enum tutti_status serve(const struct seeker *s, uint16_t port, const char *secret, bool told,
                               char text[TUTTI_SHARE_MAX + 1])
{
    const struct tutti_config *config = s->config;
    const struct tutti_listener_config named = {.interface = config->text[TUTTI_OPT_interface],
                                                .congestion = config->text[TUTTI_OPT_congestion]};
    struct tutti_net_address addresses[ADDRESSES];
    struct tutti_listener *listener;
    bool six = false;
    TUTTI_TRY(tutti_listener_open(&named, &listener));
    const uint32_t n = tutti_listener_addresses(listener, addresses, ADDRESSES);
    tutti_listener_close(listener);
    for (uint32_t i = 0; i < n; i++) six = six || addresses[i].family == 6;
    TUTTI_TRY(server_open(s, six ? "::" : "0.0.0.0", port, secret, &server));
    int used = snprintf(text, TUTTI_SHARE_MAX, "%u/%s/", tutti_store_server_port(server), told ? secret : "-");
    for (uint32_t i = 0; i < n; i++) {
        char one[64];
        tutti_net_address_text(&addresses[i], one, sizeof one);
        if ((size_t)used + strlen(one) + 2 > TUTTI_SHARE_MAX) break;
        used += snprintf(text + used, TUTTI_SHARE_MAX - (size_t)used, "%s%s", i ? "," : "", one);
    }
    return TUTTI_OK;
}

static enum tutti_status secret_make(struct tutti_launch_store *out)
{
    uint8_t random[32];
    TUTTI_TRY(tutti_random_bytes(random, sizeof random));
    for (size_t i = 0; i < sizeof random; i++) sprintf(out->secret + 2 * i, "%02x", random[i]);
    out->secret_made = true;
    return TUTTI_OK;
}

/* ---- the others ---- */

/* False: errno says why. */
static bool answers(const char *text, uint16_t port)
{
    struct tutti_net_address address;
    int fd, error = 0;
    socklen_t n = sizeof error;
    if (!tutti_net_address_parse(text, &address)) return false;
    if (tutti_net_connect(&address, port, "", NULL, &fd) < 0) {
        errno = tutti_last_error()->os_errno;
        return false;
    }
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (poll(&room, 1, TRY_MS) <= 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0) error = ETIMEDOUT;
    close(fd);
    errno = error;
    return error == 0;
}

/* Where the store is that a text tells of. wire: NULL, or what everybody can write to, which gives no secret. Nor does
 * any take the place of what this process proves itself by. BOOTSTRAP: at none of its addresses, now. */
static enum tutti_status find(const struct seeker *s, const char *wire, struct tutti_launch_store *out, char *text)
{
    char *rest = text;
    const char *port = strsep(&rest, "/"), *secret = strsep(&rest, "/");
    const unsigned long number = strtoul(port, NULL, 10);
    if (!secret || !rest || number == 0 || number > UINT16_MAX || strlen(secret) >= sizeof out->secret)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the launcher passes on \"%.60s\", which is no place of a store", text);
    const bool told = strcmp(secret, "-") != 0;
    if (told && wire) return tutti_fail(TUTTI_ERR_AUTH, "%s tells a secret, which rank 0 did not put there", wire);
    if (told && (s->secret || s->certificate))
        return tutti_fail(TUTTI_ERR_AUTH, "rank 0 has made a secret, and this rank has %s of its own",
                          s->secret ? "one" : "a certificate");
    if (told) {
        snprintf(out->secret, sizeof out->secret, "%s", secret);
        out->secret_made = true;
    }
    for (const char *one; (one = strsep(&rest, ","));) {
        if (!answers(one, (uint16_t)number)) continue;
        const bool six = strchr(one, ':') != NULL;
        snprintf(out->address, sizeof out->address, "tcp://%s%.46s%s:%lu", six ? "[" : "", one, six ? "]" : "", number);
        return TUTTI_OK;
    }
    return tutti_fail_errno(TUTTI_ERR_BOOTSTRAP,
                            "rank 0's store answers at none of its addresses; TUTTI_INTERFACE names "
                            "the network that all hosts share");
}

/* ---- ways: UNSUPPORTED where it is none after all ---- */

/* Nobody but the job's user reads the launcher's wire. */
static enum tutti_status by_pmi(const struct seeker *s, struct tutti_launch_store *out)
{
    char text[TUTTI_SHARE_MAX + 1] = "";
    const char *secret = s->secret;
    if (s->launch->rank == 0) {
        if (!secret && !s->certificate && tutti_hmac_available()) TUTTI_TRY(secret_make(out));
        if (!secret && out->secret_made) secret = out->secret;
        TUTTI_TRY(serve(s, 0, secret, out->secret_made, text));
    }
    TUTTI_TRY(tutti_share_text(s->launch->rank, s->deadline_ns, text));
    return find(s, NULL, out, text);
}

/* A place where nobody answers is of ranks that were there before these: torchrun's store outlives them. */
static enum tutti_status by_torch(const struct seeker *s, struct tutti_launch_store *out)
{
    const struct tutti_launch *launch = s->launch;
    char text[TUTTI_SHARE_MAX + 1] = "", key[sizeof launch->job + 32];
    enum tutti_status status;
    snprintf(key, sizeof key, TUTTI_SHARE_KEY "/%s", launch->job);
    if (launch->rank == 0) TUTTI_TRY(serve(s, 0, s->secret, false, text));
    do {
        TUTTI_TRY(tutti_share_torch(launch->master, launch->port, key, launch->rank, s->deadline_ns, text));
        status = find(s, "torchrun's store", out, text);
        if (status != TUTTI_ERR_BOOTSTRAP || launch->rank == 0) return status;
        tutti_sleep_ns(LOOK_NS);
    } while (tutti_now_ns() < s->deadline_ns);
    return status;
}

static enum tutti_status by_master(const struct seeker *s, struct tutti_launch_store *out)
{
    const struct tutti_launch *launch = s->launch;
    char text[TUTTI_SHARE_MAX + 1];
    const bool six = strchr(launch->master, ':') != NULL;
    const unsigned long port = strtoul(launch->port, NULL, 10);
    if (port == 0 || port > UINT16_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "environment variable MASTER_PORT is \"%s\", which is no port",
                          launch->port);
    if (launch->rank == 0) TUTTI_TRY(serve(s, (uint16_t)port, s->secret, false, text));
    snprintf(out->address, sizeof out->address, "tcp://%s%s%s:%lu", six ? "[" : "", launch->master, six ? "]" : "",
             port);
    return TUTTI_OK;
}

static enum tutti_status (*const ways[])(const struct seeker *s, struct tutti_launch_store *out) = {
    [TUTTI_WAY_PMI] = by_pmi, [TUTTI_WAY_TORCH] = by_torch, [TUTTI_WAY_MASTER] = by_master};

enum tutti_status tutti_launch_store_find(const struct tutti_config *config, int32_t rank, int32_t n_ranks,
                                          const char *secret, struct tutti_certificate *certificate,
                                          uint64_t deadline_ns, struct tutti_launch_store *out)
{
    struct tutti_launch launch;
    const struct seeker seeker = {config, &launch, secret, certificate, deadline_ns};
    enum tutti_status status = TUTTI_OK;
    *out = (struct tutti_launch_store){.address = ""};
    if (tutti_launch_read(config, &launch) < 0 || launch.rank != rank || launch.n_ranks != n_ranks) return TUTTI_OK;
    if (launch.way == TUTTI_WAY_NONE || !(launch.may_span || tutti_launch_spans(&launch, rank, n_ranks)))
        return TUTTI_OK;
    pthread_mutex_lock(&lock);
    if (!cached.address[0]) {
        struct tutti_launch_store mine = {.address = ""};
        status = ways[launch.way](&seeker, &mine);
        if (status == TUTTI_OK) cached = mine;
    }
    if (status == TUTTI_OK) *out = cached;
    pthread_mutex_unlock(&lock);
    return status == TUTTI_ERR_UNSUPPORTED ? TUTTI_OK : status;
}
