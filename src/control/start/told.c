/* SPDX-License-Identifier: BSD-3-Clause */

/* A bare `srun ./program` or `mpirun ./program` on several hosts names no store. Then rank 0 serves one, and the
 * launcher's own wire (store/share.h) tells the others where, and the secret that it speaks with: who reads that wire
 * could start processes of the job as well. Once in a process: later communicators find the same store. */

#include "control/net/net.h"
#include "control/start/bootstrap.h"
#include "store/share.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESSES 8
#define TRY_MS 2000 /* for an address to answer */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tutti_told told; /* under the lock; address "": not yet */

bool tutti_launch_spans(const struct tutti_launch *launch, int32_t rank, int32_t n_ranks)
{
    return launch->n_ranks == n_ranks && launch->rank == rank && launch->local_size >= 0 &&
           launch->local_size < launch->n_ranks;
}

/* ---- rank 0 ---- */

/* text: port/secret/address,address; the secret is "-" when all have it already, or there is none. */
static enum tutti_status serve(const struct tutti_config *config, struct tutti_told *out,
                               char text[TUTTI_SHARE_MAX + 1])
{
    const struct tutti_listener_config named = {.interface = config->text[TUTTI_OPT_interface],
                                                .congestion = config->text[TUTTI_OPT_congestion]};
    struct tutti_net_address addresses[ADDRESSES];
    struct tutti_listener *listener;
    struct tutti_store_server *server; /* lives as long as the process */
    uint8_t random[32];
    bool six = false;
    TUTTI_TRY(tutti_listener_open(&named, &listener));
    const uint32_t n = tutti_listener_addresses(listener, addresses, ADDRESSES);
    tutti_listener_close(listener);
    for (uint32_t i = 0; i < n; i++) six = six || addresses[i].family == 6;
    if (!out->secret[0] && tutti_hmac_available()) {
        TUTTI_TRY(tutti_random_bytes(random, sizeof random));
        for (size_t i = 0; i < sizeof random; i++) sprintf(out->secret + 2 * i, "%02x", random[i]);
        out->secret_told = true;
    }
    TUTTI_TRY(tutti_store_server_open(six ? "::" : "0.0.0.0", 0, out->secret[0] ? out->secret : NULL, &server));
    int used = snprintf(text, TUTTI_SHARE_MAX, "%u/%s/", tutti_store_server_port(server),
                        out->secret_told ? out->secret : "-");
    for (uint32_t i = 0; i < n; i++) {
        char one[64];
        tutti_net_address_text(&addresses[i], one, sizeof one);
        if ((size_t)used + strlen(one) + 2 > TUTTI_SHARE_MAX) break;
        used += snprintf(text + used, TUTTI_SHARE_MAX - (size_t)used, "%s%s", i ? "," : "", one);
    }
    return TUTTI_OK;
}

/* ---- all ---- */

static bool answers(const char *text, uint16_t port)
{
    struct tutti_net_address address;
    int fd, error = 0;
    socklen_t n = sizeof error;
    if (!tutti_net_address_parse(text, &address) || tutti_net_connect(&address, port, "", NULL, &fd) < 0) return false;
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    const bool there =
        poll(&room, 1, TRY_MS) > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && error == 0;
    close(fd);
    return there;
}

static enum tutti_status find(struct tutti_told *out, char *text)
{
    char *rest = text;
    const char *port = strsep(&rest, "/"), *secret = strsep(&rest, "/");
    const unsigned long number = strtoul(port, NULL, 10);
    if (!secret || !rest || number == 0 || number > UINT16_MAX || strlen(secret) >= sizeof out->secret)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the launcher passes on \"%.60s\", which is no place of a store", text);
    if (strcmp(secret, "-") != 0) {
        snprintf(out->secret, sizeof out->secret, "%s", secret);
        out->secret_told = true;
    }
    for (const char *one; (one = strsep(&rest, ","));) {
        if (!answers(one, (uint16_t)number)) continue;
        const bool six = strchr(one, ':') != NULL;
        snprintf(out->address, sizeof out->address, "tcp://%s%.46s%s:%lu", six ? "[" : "", one, six ? "]" : "", number);
        return TUTTI_OK;
    }
    return tutti_fail(TUTTI_ERR_BOOTSTRAP, "rank 0's store answers at none of its addresses; TUTTI_INTERFACE names the "
                                           "network that all hosts share");
}

enum tutti_status tutti_store_told(const struct tutti_config *config, int32_t rank, int32_t n_ranks, const char *secret,
                                   uint64_t deadline_ns, struct tutti_told *out)
{
    struct tutti_launch launch;
    char text[TUTTI_SHARE_MAX + 1] = "";
    enum tutti_status status = TUTTI_OK;
    *out = (struct tutti_told){.address = ""};
    if (tutti_launch_read(config, &launch) < 0 || !tutti_launch_spans(&launch, rank, n_ranks)) return TUTTI_OK;
    if (secret && strlen(secret) >= sizeof out->secret) return TUTTI_OK;
    pthread_mutex_lock(&lock);
    if (!told.address[0]) {
        struct tutti_told mine = {.address = ""};
        if (secret) snprintf(mine.secret, sizeof mine.secret, "%s", secret);
        if (tutti_share_present()) {
            if (rank == 0) status = serve(config, &mine, text);
            if (status == TUTTI_OK) status = tutti_share_text(rank, deadline_ns, text);
            if (status == TUTTI_OK) status = find(&mine, text);
            if (status == TUTTI_OK) told = mine;
        }
    }
    if (status == TUTTI_OK) *out = told;
    pthread_mutex_unlock(&lock);
    return status;
}
