/* SPDX-License-Identifier: BSD-3-Clause */

/* The frames of the proof. A frame that decodes encodes to the same bytes; and whatever a stranger sends, to either end
 * and at any time, proves nothing. */

#include "control/net/proof.h"
#include "fuzz.h"

/* The bytes as the frame that is due, and then as the next one. */
static void check_ends(const uint8_t *bytes, const struct tutti_proof_key *key)
{
    static const uint8_t nonce[TUTTI_NONCE_BYTES] = {1, 2, 3};
    struct tutti_proof dialer, acceptor;
    struct tutti_proof_out out;
    tutti_proof_dial(&dialer, key, TUTTI_NET_DATA, 0, 1, nonce, &out);
    FUZZ_CHECK(out.n == TUTTI_PROOF_BYTES);
    FUZZ_CHECK(tutti_proof_received(&dialer, bytes, 0, &out) < 0 && !dialer.proved && out.n == 0);
    tutti_proof_accept(&acceptor, key, 1, 3, nonce);
    FUZZ_CHECK(tutti_proof_due(&acceptor) == TUTTI_PROOF_BYTES);
    const enum tutti_status status = tutti_proof_received(&acceptor, bytes, 0, &out);
    FUZZ_CHECK(out.n == 0 || out.n == TUTTI_PROOF_SIGNED);
    FUZZ_CHECK(!acceptor.proved && (status < 0 || (acceptor.peer < 3 && acceptor.peer != 1)));
    FUZZ_CHECK(tutti_proof_received(&acceptor, bytes, 0, &out) < 0 || out.n > 0);
    FUZZ_CHECK(!acceptor.proved);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct tutti_proof_key keys[2];
    uint8_t whole[TUTTI_PROOF_SIGNED] = {0}, again[TUTTI_PROOF_BYTES];
    struct tutti_proof_frame frame;
    const bool signs = tutti_hmac_available();
    if (signs && !keys[0].text[0]) {
        FUZZ_CHECK(tutti_proof_key_init(&keys[0], NULL, 5) == TUTTI_OK);
        FUZZ_CHECK(tutti_proof_key_init(&keys[1], "a secret", 5) == TUTTI_OK);
    }
    memcpy(whole, bytes, n < sizeof whole ? n : sizeof whole);
    const bool may_be = tutti_proof_may_be(bytes, n < 4 ? n : 4);
    if (tutti_proof_decode(whole, &frame) == TUTTI_OK) {
        FUZZ_CHECK(may_be);
        tutti_proof_encode(&frame, again);
        FUZZ_CHECK(memcmp(whole, again, sizeof again) == 0);
    }
    for (int i = 0; signs && i < 2; i++) {
        check_ends(whole, &keys[i]);
        tutti_le_store(whole + 16, 8, keys[i].world); /* a stranger may have seen it on the network */
        check_ends(whole, &keys[i]);
    }
    return 0;
}
