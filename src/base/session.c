/* SPDX-License-Identifier: BSD-3-Clause */

/* Signed frames: the secret and the place of a frame give a key, the key and the frame its MAC; no copy of the frame is
 * needed. */

#include "base/session.h"

#include <string.h>

/* sent: the frame that this side sends next; else the one that it receives next. */
static enum tutti_status frame_mac(const struct tutti_session *session, const char *protocol, bool sent,
                                   const uint8_t *bytes, size_t n, uint8_t out[TUTTI_HMAC_BYTES])
{
    uint8_t place[16 + 2 * TUTTI_NONCE_BYTES + 8] = {0}, key[TUTTI_HMAC_BYTES];
    memcpy(place, protocol, strnlen(protocol, 15));
    place[15] = sent != session->server; /* whether it goes to the server */
    memcpy(place + 16, session->nonces, sizeof session->nonces);
    tutti_le_store(place + 16 + sizeof session->nonces, 8, sent ? session->n_sent : session->n_received);
    TUTTI_TRY(tutti_hmac(session->secret, strlen(session->secret), place, sizeof place, key));
    enum tutti_status status = tutti_hmac(key, sizeof key, bytes, n, out);
    explicit_bzero(key, sizeof key);
    return status;
}

enum tutti_status tutti_session_sign(struct tutti_session *session, const char *protocol, const uint8_t *bytes,
                                     size_t n, uint8_t mac[TUTTI_HMAC_BYTES])
{
    TUTTI_TRY(frame_mac(session, protocol, true, bytes, n, mac));
    session->n_sent++;
    return TUTTI_OK;
}

enum tutti_status tutti_session_check(struct tutti_session *session, bool due, const char *protocol,
                                      const uint8_t *bytes, size_t n, const uint8_t *mac)
{
    uint8_t expected[TUTTI_HMAC_BYTES];
    if (due != (mac != NULL))
        return tutti_fail(TUTTI_ERR_AUTH, "the other side has %s secret, this side has %s", due ? "no" : "a",
                          due ? "one" : "none");
    if (!due) return TUTTI_OK;
    TUTTI_TRY(frame_mac(session, protocol, false, bytes, n, expected));
    if (!tutti_hmac_equal(expected, mac))
        return tutti_fail(TUTTI_ERR_AUTH, "a frame does not verify: the two sides have different secrets");
    session->n_received++;
    return TUTTI_OK;
}
