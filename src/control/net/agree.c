/* SPDX-License-Identifier: BSD-3-Clause */

/* From a proved socket to one with a stream that encrypts: both ends agree on keys, on the net's thread, so that what
 * is sent to a rank that computes goes, as it does in the clear. */

#include "control/net/cipher.h"
#include "control/net/conn.h"
#include "control/net/tls.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Gives the socket back. */
static int agreement_free(struct tutti_net_agreement *a)
{
    const int fd = a->watch.fd;
    a->peer->agreement = NULL;
    tutti_loop_forget(a->peer->net->loop, &a->watch);
    tutti_tls_close(a->tls);
    tutti_free(a);
    return fd;
}

void tutti_net_agreement_end(struct tutti_net_peer *peer)
{
    if (peer->agreement) close(agreement_free(peer->agreement));
}

static enum tutti_status stream_make(struct tutti_net_agreement *a, struct tutti_stream **stream)
{
    struct tutti_cipher_config config = {.fd = a->watch.fd};
    enum tutti_status status = tutti_tls_secrets(a->tls, config.in, config.out);
    if (status == TUTTI_OK) status = tutti_cipher_open(&config, stream);
    explicit_bzero(&config, sizeof config);
    return status;
}

static void step(struct tutti_loop_fd *w, uint32_t events)
{
    struct tutti_net_agreement *a = (struct tutti_net_agreement *)(void *)w;
    struct tutti_net_peer *peer = a->peer;
    struct tutti_stream *stream;
    enum tutti_status status = tutti_tls_agree(a->tls);
    (void)events;
    if (status == TUTTI_PENDING) {
        tutti_loop_change(peer->net->loop, w, EPOLLIN | (tutti_tls_wants_room(a->tls) ? EPOLLOUT : 0));
        return;
    }
    if (status == TUTTI_OK) status = stream_make(a, &stream);
    void (*const over)(struct tutti_net_peer *, int, struct tutti_stream *) = a->over;
    const int fd = agreement_free(a);
    if (status == TUTTI_OK) {
        over(peer, fd, stream);
        return;
    }
    tutti_log(TUTTI_LOG_INFO, "%s", tutti_last_error()->text);
    close(fd);
    over(peer, -1, NULL);
}

enum tutti_status tutti_net_agreement_begin(struct tutti_net_peer *peer, const struct tutti_proof *proof, int fd,
                                            void (*over)(struct tutti_net_peer *, int, struct tutti_stream *))
{
    uint8_t key[TUTTI_HMAC_BYTES];
    struct tutti_net_agreement *a = tutti_alloc(sizeof *a);
    if (!a) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an encrypted connection");
    *a = (struct tutti_net_agreement){.watch = {.fd = fd, .ready = step}, .peer = peer, .over = over};
    enum tutti_status status = tutti_proof_channel_key(proof, key);
    if (status == TUTTI_OK) status = tutti_tls_open(fd, !proof->session.server, key, &a->tls);
    explicit_bzero(key, sizeof key);
    if (status == TUTTI_OK && (status = tutti_loop_watch(peer->net->loop, &a->watch, EPOLLIN)) < 0)
        tutti_tls_close(a->tls);
    if (status < 0) {
        tutti_free(a);
        return status;
    }
    tutti_net_agreement_end(peer); /* an earlier connection's */
    peer->agreement = a;
    step(&a->watch, 0);
    return TUTTI_OK;
}
