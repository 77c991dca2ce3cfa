/* SPDX-License-Identifier: BSD-3-Clause */

/* The protocol of the TCP store: the input is what one side receives, frame after frame. A frame that decodes encodes
 * to the same bytes; without its last byte it is not yet a frame; unsigned or foreign it does not pass where there is a
 * secret; signed it passes, and with any one byte altered it does not. */

#include "fuzz.h"
#include "store/store_codec.h"

static uint8_t wire[TUTTI_STORE_FRAME_MAX];

static void check_signing(const struct tutti_store_frame *frame, size_t salt)
{
    struct tutti_session client = {.secret = "a secret"}, server = {.secret = "a secret", .server = true};
    struct tutti_store_frame received;
    size_t n = 0;
    FUZZ_CHECK(tutti_store_frame_encode(&client, frame, wire, &n) == TUTTI_OK);
    FUZZ_CHECK(tutti_store_frame_decode(wire, n, &received) == TUTTI_OK);
    FUZZ_CHECK((received.mac != NULL) == (frame->type != TUTTI_STORE_HELLO));
    if (!received.mac) return;
    size_t at = salt % n;
    wire[at] ^= (uint8_t)(1u << salt % 8);
    FUZZ_CHECK(tutti_store_frame_decode(wire, n, &received) != TUTTI_OK ||
               tutti_store_frame_verify(&server, wire, &received) == TUTTI_ERR_AUTH);
    wire[at] ^= (uint8_t)(1u << salt % 8);
    FUZZ_CHECK(tutti_store_frame_decode(wire, n, &received) == TUTTI_OK);
    FUZZ_CHECK(tutti_store_frame_verify(&server, wire, &received) == TUTTI_OK);
    FUZZ_CHECK(tutti_store_frame_verify(&server, wire, &received) == TUTTI_ERR_AUTH); /* the same again: a replay */
}

static void check_frame(const uint8_t *bytes, const struct tutti_store_frame *frame)
{
    struct tutti_session open = {0}, secret = {.secret = "a secret", .server = true};
    struct tutti_store_frame shorter;
    int64_t counter = 0;
    FUZZ_CHECK(frame->key_bytes <= TUTTI_STORE_KEY_MAX && frame->value_bytes <= TUTTI_STORE_VALUE_MAX);
    FUZZ_CHECK(tutti_store_frame_decode(bytes, frame->frame_bytes - 1, &shorter) == TUTTI_AGAIN);
    if (tutti_hmac_available()) {
        FUZZ_CHECK(tutti_store_frame_verify(&secret, bytes, frame) == TUTTI_ERR_AUTH);
        check_signing(frame, frame->signed_bytes + (size_t)frame->number);
    }
    if (frame->mac) {
        FUZZ_CHECK(tutti_store_frame_verify(&open, bytes, frame) == TUTTI_ERR_AUTH);
    } else {
        size_t n = 0;
        FUZZ_CHECK(tutti_store_frame_verify(&open, bytes, frame) == TUTTI_OK);
        FUZZ_CHECK(tutti_store_frame_encode(&open, frame, wire, &n) == TUTTI_OK);
        FUZZ_CHECK(n == frame->frame_bytes && memcmp(wire, bytes, n) == 0);
    }
    (void)tutti_store_counter_parse(frame->value, frame->value_bytes, &counter);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tutti_store_frame frame;
    enum tutti_status status;
    while ((status = tutti_store_frame_decode(bytes, n, &frame)) == TUTTI_OK) {
        FUZZ_CHECK(frame.frame_bytes <= n);
        check_frame(bytes, &frame);
        bytes += frame.frame_bytes;
        n -= frame.frame_bytes;
    }
    FUZZ_CHECK(status == TUTTI_AGAIN || status == TUTTI_ERR_PROTOCOL);
    FUZZ_CHECK(status != TUTTI_AGAIN || n < TUTTI_STORE_FRAME_MAX); /* waiting for more always ends */
    return 0;
}
