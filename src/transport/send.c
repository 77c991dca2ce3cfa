/* SPDX-License-Identifier: BSD-3-Clause */

#include "transport/send.h"

#include <string.h>

enum tutti_status tutti_send_gone(uint32_t peer, enum tutti_status status, int error)
{
    if (status == TUTTI_ERR_PEER_LEFT) return tutti_fail(status, TUTTI_SAYS_CLOSED ": member %u has left", peer);
    if (status == TUTTI_ERR_PROTOCOL) return tutti_fail(status, "member %u broke the protocol before", peer);
    if (status != TUTTI_ERR_PEER_DEAD) return tutti_fail(status, "member %u can not be reached", peer);
    return tutti_fail(status, TUTTI_SAYS_CLOSED ": the socket of member %u ended%s%s", peer, error ? ": " : "",
                      error ? strerror(error) : "");
}

enum tutti_status tutti_send_check(const struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                   const struct tutti_span *spans, uint32_t n_spans)
{
    size_t bytes = 0;
    if (peer >= t->n) return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet to member %u of %u", peer, t->n);
    for (uint32_t i = 0; i < n_spans; i++) bytes += spans[i].bytes;
    if (bytes != packet->bytes || bytes > t->max_payload || n_spans > TUTTI_SPANS_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "a packet of %u bytes (at most %zu) with %zu bytes of payload in %u spans", packet->bytes,
                          t->max_payload, bytes, n_spans);
    return TUTTI_OK;
}
