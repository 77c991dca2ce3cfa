/* SPDX-License-Identifier: BSD-3-Clause */

/* The frames of the TCP store: what is encoded is decoded alike, at any length that has come so far, and a signature
 * covers every bit, its place, its direction and both nonces. */

#include "test.h"

#include "store/store_codec.h"

#include <string.h>

static void test_frames(void **state)
{
    uint8_t bytes[600], longer[600];
    uint64_t seed = test_seed();
    (void)state;
    for (int round = 0; round < 300; round++) {
        uint8_t key[100], value[300];
        struct tutti_session session = {.secret = NULL};
        struct tutti_store_frame in_frame = {.type = (uint8_t)(1 + tutti_random64(&seed) % (TUTTI_STORE_N_TYPES - 1)),
                                             .number = (int64_t)tutti_random64(&seed),
                                             .key = key,
                                             .key_bytes = (uint32_t)(tutti_random64(&seed) % sizeof key),
                                             .value = value,
                                             .value_bytes = (uint32_t)(tutti_random64(&seed) % sizeof value)},
                                 out;
        for (size_t i = 0; i < sizeof key; i++) key[i] = (uint8_t)(1 + tutti_random64(&seed) % 255);
        for (size_t i = 0; i < sizeof value; i++) value[i] = (uint8_t)tutti_random64(&seed);
        size_t n;
        assert_int_equal(tutti_store_frame_encode(&session, &in_frame, bytes, &n), TUTTI_OK);
        for (size_t cut = 0; cut < n; cut++) {
            /* In a buffer of that very size, so that the sanitizers see a read beyond it. */
            uint8_t *exact = malloc(cut ? cut : 1);
            assert_non_null(exact);
            memcpy(exact, bytes, cut);
            assert_int_equal(tutti_store_frame_decode(exact, cut, &out), TUTTI_AGAIN);
            free(exact);
        }
        assert_int_equal(tutti_store_frame_decode(bytes, n, &out), TUTTI_OK);
        assert_int_equal(out.type, in_frame.type);
        assert_true(out.number == in_frame.number && out.frame_bytes == n && out.signed_bytes == n && !out.mac);
        assert_int_equal(out.key_bytes, in_frame.key_bytes);
        assert_int_equal(out.value_bytes, in_frame.value_bytes);
        assert_memory_equal(out.key, key, out.key_bytes);
        assert_memory_equal(out.value, value, out.value_bytes);
        memcpy(longer, bytes, n);
        assert_int_equal(tutti_store_frame_decode(longer, n + 1, &out), TUTTI_OK); /* the next one follows */
        assert_int_equal(out.frame_bytes, n);
        static const size_t fixed[] = {0, 1, 2, 3, 4, 7};
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(fixed); i++) {
            longer[fixed[i]] ^= 0x40;
            assert_int_equal(tutti_store_frame_decode(longer, n, &out), TUTTI_ERR_PROTOCOL);
            longer[fixed[i]] ^= 0x40;
        }
    }
}

/* Every bit of a signed frame counts. */
static void test_signature(void **state)
{
    uint8_t bytes[256];
    struct tutti_session client = {.secret = "s", .nonces = {{1}, {2}}};
    struct tutti_store_frame frame = {.type = TUTTI_STORE_SET,
                                      .number = 5,
                                      .key = (const uint8_t *)"key",
                                      .key_bytes = 3,
                                      .value = (const uint8_t *)"value",
                                      .value_bytes = 5},
                             out;
    size_t n;
    (void)state;
    if (!tutti_hmac_available()) skip();
    assert_int_equal(tutti_store_frame_encode(&client, &frame, bytes, &n), TUTTI_OK);
    assert_int_equal(n, TUTTI_STORE_HEAD_BYTES + 8 + TUTTI_HMAC_BYTES);
    for (size_t bit = 0; bit <= 8 * n; bit++) {
        struct tutti_session server = {.secret = "s", .nonces = {{1}, {2}}, .server = true};
        if (bit < 8 * n) bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        enum tutti_status status = tutti_store_frame_decode(bytes, n, &out);
        if (status == TUTTI_OK) status = tutti_store_frame_verify(&server, bytes, &out);
        assert_int_equal(status == TUTTI_OK, bit == 8 * n);
        if (bit < 8 * n) bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    /* Another place, direction, nonce or secret. */
    struct tutti_session other[] = {
        {.secret = "s", .nonces = {{1}, {2}}, .server = true, .n_received = 1},
        {.secret = "s", .nonces = {{1}, {2}}, .server = false},
        {.secret = "s", .nonces = {{2}, {1}}, .server = true},
        {.secret = "t", .nonces = {{1}, {2}}, .server = true},
    };
    assert_int_equal(tutti_store_frame_decode(bytes, n, &out), TUTTI_OK);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(other); i++)
        assert_int_equal(tutti_store_frame_verify(&other[i], bytes, &out), TUTTI_ERR_AUTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_signature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
