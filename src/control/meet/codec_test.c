/* SPDX-License-Identifier: BSD-3-Clause */

/* Messages of a meeting as bytes: they come back as they were, and what signs them binds them to their place. */

#include "test.h"

#include "control/meet/codec.h"

#include <stdio.h>
#include <string.h>

#define MS TUTTI_NS_PER_MS

static struct tutti_meeting_message message_of(uint64_t seed)
{
    struct tutti_meeting_message m = {
        .type = 1 + (unsigned)(seed % (TUTTI_MEETING_N_TYPES - 1)), .has_secret = seed & 1, .shared = seed & 2};
    static const uint8_t payload[TUTTI_MEETING_PAYLOAD] = {1, 2, 3};
    m.build = tutti_mix64(seed), m.host = tutti_mix64(seed + 1), m.world = tutti_mix64(seed + 2);
    m.rank = (int32_t)tutti_mix64(seed + 3), m.n_ranks = -1, m.pid = INT32_MAX, m.status = -61, m.peer = -1;
    m.patience_ms = UINT32_MAX;
    m.lost = (struct tutti_meeting_loss){3, 4, tutti_mix64(seed + 4), 600 * MS};
    if (seed & 4) m.far = true, m.total = (uint32_t)tutti_mix64(seed + 5), m.lost.until_ns = 0;
    m.payload = payload, m.n_payload = tutti_mix64(seed + 6) % (TUTTI_MEETING_PAYLOAD + 1);
    snprintf(m.release, sizeof m.release, "1.%u", (unsigned)(seed % 100));
    memset(m.text, 'x', seed % TUTTI_ERROR_TEXT);
    memcpy(m.nonce, &m.build, 8);
    return m;
}

static void frames_come_back(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct tutti_session session = {.secret = NULL};
        struct tutti_meeting_message m = message_of(seed), back;
        uint8_t bytes[TUTTI_MEETING_FRAME_MAX];
        size_t n;
        assert_int_equal(tutti_meeting_encode(&session, &m, bytes, &n), TUTTI_OK);
        assert_int_equal(tutti_meeting_decode(bytes, n, &back), TUTTI_OK);
        assert_int_equal(back.n_payload, m.n_payload);
        assert_memory_equal(back.payload, m.payload, m.n_payload);
        back.payload = m.payload;
        assert_memory_equal(&m, &back, sizeof m);
        assert_true(tutti_meeting_decode(bytes, n - 1, &back) < 0 && tutti_meeting_decode(bytes, n + 1, &back) < 0);
        bytes[4]++;
        assert_int_equal(tutti_meeting_decode(bytes, n, &back), TUTTI_ERR_CONFIG);
        assert_string_equal(back.release, m.release); /* another version, but it says of which release */
    }
}

/* Not altered, not twice, not in another order, not back to its sender, not in another meeting. */
static void signatures_bind(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    struct tutti_session member = {.secret = "s", .nonces = {{1}, {2}}, .ready = true}, leader = member, other;
    uint8_t first[TUTTI_MEETING_FRAME_MAX], second[TUTTI_MEETING_FRAME_MAX];
    struct tutti_meeting_message m = message_of(7), back;
    size_t n, n2;
    leader.server = true;
    assert_int_equal(tutti_meeting_encode(&member, &m, first, &n), TUTTI_OK);
    assert_int_equal(tutti_meeting_encode(&member, &m, second, &n2), TUTTI_OK);
    assert_int_equal(tutti_meeting_decode(first, n, &back), TUTTI_OK);
    assert_true(back.is_signed);
    assert_int_equal(tutti_meeting_verify(&leader, second, n2, &back), TUTTI_ERR_AUTH); /* not in this place */
    other = member, other.n_received = 0;
    assert_int_equal(tutti_meeting_verify(&other, first, n, &back), TUTTI_ERR_AUTH); /* reflected */
    other = leader, other.nonces[0][0] = 9;
    assert_int_equal(tutti_meeting_verify(&other, first, n, &back), TUTTI_ERR_AUTH); /* another meeting's */
    for (size_t i = 0; i < n; i += 13) {
        first[i] ^= 4;
        if (tutti_meeting_decode(first, n, &back) == TUTTI_OK)
            assert_int_equal(tutti_meeting_verify(&leader, first, n, &back), TUTTI_ERR_AUTH);
        first[i] ^= 4;
    }
    assert_int_equal(tutti_meeting_decode(first, n, &back), TUTTI_OK);
    assert_int_equal(tutti_meeting_verify(&leader, first, n, &back), TUTTI_OK);
    assert_int_equal(tutti_meeting_verify(&leader, first, n, &back), TUTTI_ERR_AUTH); /* replayed */
    assert_int_equal(tutti_meeting_verify(&leader, second, n2, &back), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_back),
        cmocka_unit_test(signatures_bind),
    };
    tutti_log_threshold = TUTTI_LOG_ERROR;
    return cmocka_run_group_tests_name("control.codec", tests, NULL, NULL);
}
