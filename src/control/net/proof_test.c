/* SPDX-License-Identifier: BSD-3-Clause */

/* The proof without sockets: both ends prove to each other who they are; whoever changes, repeats, returns, reorders or
 * mixes frames, or has another key, proves nothing. */

#include "test.h"

#include "control/net/proof.h"

#include <stdio.h>
#include <string.h>

#define N 5
#define WORLD UINT64_C(0x0123456789abcdef)

static uint64_t seed;

static void nonce_make(uint8_t out[TUTTI_NONCE_BYTES])
{
    for (size_t i = 0; i < TUTTI_NONCE_BYTES; i++) out[i] = (uint8_t)tutti_random64(&seed);
}

/* A handshake between two ends, with all that passes. */
struct pair {
    struct tutti_proof_key keys[2]; /* the dialer's and the acceptor's */
    struct tutti_proof dialer, acceptor;
    struct tutti_proof_out hello, challenge, proof, ready;
};

static void pair_init(struct pair *pair, const char *const secrets[2], const uint64_t worlds[2])
{
    uint8_t nonce[TUTTI_NONCE_BYTES];
    memset(pair, 0, sizeof *pair);
    for (int i = 0; i < 2; i++) assert_int_equal(tutti_proof_key_init(&pair->keys[i], secrets[i], worlds[i]), TUTTI_OK);
    nonce_make(nonce);
    tutti_proof_dial(&pair->dialer, &pair->keys[0], TUTTI_NET_DATA, 3, 1, nonce, &pair->hello);
    nonce_make(nonce);
    tutti_proof_accept(&pair->acceptor, &pair->keys[1], 1, N, nonce);
}

static void pair_alike(struct pair *pair, const char *secret)
{
    pair_init(pair, (const char *const[2]){secret, secret}, (const uint64_t[2]){WORLD, WORLD});
}

/* Bytes of a frame to be changed on their way. */
struct change {
    enum tutti_proof_type frame; /* 0: none */
    size_t byte;
    uint8_t bits;
};

static void passes(struct tutti_proof_out *out, enum tutti_proof_type frame, const struct change *change)
{
    if (change->frame == frame) out->bytes[change->byte] ^= change->bits;
}

/* Until an end refuses. OK: both are proved, and READY said so. */
static enum tutti_status pair_run(struct pair *pair, const struct change *change)
{
    struct tutti_proof_out none;
    passes(&pair->hello, TUTTI_PROOF_HELLO, change);
    TUTTI_TRY(tutti_proof_received(&pair->acceptor, pair->hello.bytes, 0, &pair->challenge));
    passes(&pair->challenge, TUTTI_PROOF_CHALLENGE, change);
    TUTTI_TRY(tutti_proof_received(&pair->dialer, pair->challenge.bytes, 7, &pair->proof));
    passes(&pair->proof, TUTTI_PROOF_PROOF, change);
    TUTTI_TRY(tutti_proof_received(&pair->acceptor, pair->proof.bytes, 0, &none));
    assert_true(pair->acceptor.proved && none.n == 0);
    TUTTI_TRY(tutti_proof_answer(&pair->acceptor, TUTTI_ERR_PEER_DEAD, &pair->ready));
    passes(&pair->ready, TUTTI_PROOF_READY, change);
    return tutti_proof_received(&pair->dialer, pair->ready.bytes, 0, &none);
}

static const struct change no_change;

static void both_ends_prove_who_they_are(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    for (int secret = 0; secret < 2; secret++) {
        struct pair pair;
        pair_alike(&pair, secret ? "sesame" : NULL);
        assert_int_equal(tutti_proof_due(&pair.acceptor), TUTTI_PROOF_BYTES);
        assert_int_equal(pair_run(&pair, &no_change), TUTTI_OK);
        assert_int_equal(pair.hello.n, TUTTI_PROOF_BYTES);
        assert_int_equal(pair.proof.n, TUTTI_PROOF_SIGNED);
        assert_true(pair.dialer.proved && pair.acceptor.proved);
        assert_int_equal(pair.acceptor.peer, 3);
        assert_int_equal(pair.acceptor.role, TUTTI_NET_DATA);
        assert_int_equal(pair.acceptor.accepted, 7);
        assert_int_equal(pair.dialer.status, TUTTI_ERR_PEER_DEAD);
        /* Nothing of secret or world is readable in what passed. */
        const struct tutti_proof_out *const all[] = {&pair.hello, &pair.challenge, &pair.proof, &pair.ready};
        uint8_t world[8];
        tutti_le_store(world, 8, WORLD);
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(all); i++) {
            assert_null(memmem(all[i]->bytes, all[i]->n, "sesame", 6));
            assert_null(memmem(all[i]->bytes, all[i]->n, world, sizeof world));
        }
    }
}

/* HELLO's status and nonce are covered by what follows, all others by their own MAC. */
static void no_bit_of_any_frame_can_be_changed(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    for (int type = TUTTI_PROOF_HELLO; type <= TUTTI_PROOF_READY; type++) {
        const size_t n = type == TUTTI_PROOF_HELLO ? TUTTI_PROOF_BYTES : TUTTI_PROOF_SIGNED;
        for (size_t bit = 0; bit < 8 * n; bit++) {
            struct pair pair;
            const struct change change = {(enum tutti_proof_type)type, bit / 8, (uint8_t)(1 << bit % 8)};
            pair_alike(&pair, bit & 1 ? "sesame" : NULL);
            const enum tutti_status status = pair_run(&pair, &change);
            assert_true(status == TUTTI_ERR_AUTH || status == TUTTI_ERR_PROTOCOL);
            assert_true(tutti_last_error()->text[0]);
            assert_false(pair.dialer.proved);
            if (type < TUTTI_PROOF_READY) assert_false(pair.acceptor.proved);
        }
    }
}

static void another_key_proves_nothing(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    static const struct {
        const char *secrets[2];
        uint64_t worlds[2];
        const char *says; /* at the acceptor */
    } cases[] = {
        {{"sesame", "Sesame"}, {WORLD, WORLD}, "another secret"},
        {{NULL, "sesame"}, {WORLD, WORLD}, "it has no secret, this rank has one"},
        {{"sesame", NULL}, {WORLD, WORLD}, "it has a secret, this rank has none"},
        {{"", NULL}, {WORLD, WORLD}, "it has a secret, this rank has none"},
        {{"sesame", "sesame"}, {WORLD, WORLD + 1}, "another job"}, /* another epoch */
        {{NULL, NULL}, {WORLD, WORLD + (UINT64_C(1) << 63)}, "another job"},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct pair pair;
        struct tutti_proof_out none;
        pair_init(&pair, cases[i].secrets, cases[i].worlds);
        assert_int_equal(tutti_proof_received(&pair.acceptor, pair.hello.bytes, 0, &pair.challenge), TUTTI_ERR_AUTH);
        assert_non_null(strstr(tutti_last_error()->text, cases[i].says));
        /* The dialer is challenged all the same, and hears why. */
        assert_int_equal(pair.challenge.n, TUTTI_PROOF_SIGNED);
        assert_int_equal(tutti_proof_received(&pair.dialer, pair.challenge.bytes, 0, &none), TUTTI_ERR_AUTH);
        assert_false(pair.dialer.proved || pair.acceptor.proved);
    }
}

/* A peer that says that it has a secret, or shows the number of the world, does not have it by that. */
static void what_is_shown_is_not_what_counts(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    struct pair pair;
    struct tutti_proof_out none;
    pair_init(&pair, (const char *const[2]){NULL, "sesame"}, (const uint64_t[2]){WORLD, WORLD});
    pair.keys[0].has_secret = true, pair.keys[0].world = pair.keys[1].world;
    const uint8_t nonce[TUTTI_NONCE_BYTES] = {1};
    tutti_proof_dial(&pair.dialer, &pair.keys[0], TUTTI_NET_DATA, 3, 1, nonce, &pair.hello);
    assert_int_equal(tutti_proof_received(&pair.acceptor, pair.hello.bytes, 0, &pair.challenge), TUTTI_OK);
    assert_int_equal(tutti_proof_received(&pair.dialer, pair.challenge.bytes, 0, &none), TUTTI_ERR_AUTH);
    /* ... and goes on with its own key: */
    struct tutti_proof_frame frame = {.type = TUTTI_PROOF_PROOF,
                                      .role = TUTTI_NET_DATA,
                                      .has_secret = true,
                                      .from = 3,
                                      .to = 1,
                                      .world = pair.keys[1].world};
    uint8_t forged[TUTTI_PROOF_SIGNED];
    tutti_proof_encode(&frame, forged);
    assert_int_equal(
        tutti_session_sign(&pair.dialer.session, "tutti net 1", forged, TUTTI_PROOF_BYTES, forged + TUTTI_PROOF_BYTES),
        TUTTI_OK);
    assert_int_equal(tutti_proof_received(&pair.acceptor, forged, 0, &none), TUTTI_ERR_AUTH);
    assert_false(pair.acceptor.proved);
}

static void what_was_recorded_is_worth_nothing_again(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    for (int secret = 0; secret < 2; secret++) {
        struct pair old, pair;
        struct tutti_proof_out none;
        pair_alike(&old, secret ? "sesame" : NULL);
        assert_int_equal(pair_run(&old, &no_change), TUTTI_OK);
        /* The dialer's side, to a new acceptor. */
        pair_alike(&pair, secret ? "sesame" : NULL);
        assert_int_equal(tutti_proof_received(&pair.acceptor, old.hello.bytes, 0, &pair.challenge), TUTTI_OK);
        assert_int_equal(tutti_proof_received(&pair.acceptor, old.proof.bytes, 0, &none), TUTTI_ERR_AUTH);
        assert_false(pair.acceptor.proved);
        /* The acceptor's side, to a new dialer. */
        assert_int_equal(tutti_proof_received(&pair.dialer, old.challenge.bytes, 0, &none), TUTTI_ERR_AUTH);
        /* An old READY in place of the new one. */
        pair_alike(&pair, secret ? "sesame" : NULL);
        assert_int_equal(tutti_proof_received(&pair.acceptor, pair.hello.bytes, 0, &pair.challenge), TUTTI_OK);
        assert_int_equal(tutti_proof_received(&pair.dialer, pair.challenge.bytes, 0, &pair.proof), TUTTI_OK);
        assert_int_equal(tutti_proof_received(&pair.dialer, old.ready.bytes, 0, &none), TUTTI_ERR_AUTH);
        assert_false(pair.dialer.proved);
    }
}

/* A frame with other members in it; its MAC is left as it is. */
static void turn_round(struct tutti_proof_out *out)
{
    struct tutti_proof_frame frame;
    assert_int_equal(tutti_proof_decode(out->bytes, &frame), TUTTI_OK);
    const uint32_t from = frame.from;
    frame.from = frame.to, frame.to = from;
    tutti_proof_encode(&frame, out->bytes);
}

/* Member 3 dials 1; who stands between gives it its own frames back, as they are and with the members exchanged. */
static void what_comes_back_is_worth_nothing(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    for (int turned = 0; turned < 2; turned++) {
        struct pair pair;
        struct tutti_proof mirror; /* member 3 as the acceptor */
        struct tutti_proof_out challenge, none;
        const uint8_t nonce[TUTTI_NONCE_BYTES] = {9};
        pair_alike(&pair, "sesame");
        tutti_proof_accept(&mirror, &pair.keys[0], 3, N, nonce);
        if (turned) turn_round(&pair.hello);
        const enum tutti_status status = tutti_proof_received(&mirror, pair.hello.bytes, 0, &challenge);
        if (!turned) {
            assert_int_equal(status, TUTTI_ERR_PROTOCOL); /* it is for member 1 */
            continue;
        }
        assert_int_equal(status, TUTTI_OK); /* and now member 3 challenges itself */
        assert_int_equal(tutti_proof_received(&pair.dialer, challenge.bytes, 0, &none), TUTTI_ERR_PROTOCOL);
        turn_round(&challenge);
        assert_int_equal(tutti_proof_received(&pair.dialer, challenge.bytes, 0, &none), TUTTI_ERR_AUTH);
        assert_false(pair.dialer.proved);
    }
}

static void frames_are_for_one_role_and_pair(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    static const struct {
        uint32_t role, from, to, me;
    } hellos[] = {
        {TUTTI_NET_DATA, 3, 2, 1},          /* for another member */
        {TUTTI_NET_DATA, 1, 1, 1},          /* from itself */
        {TUTTI_NET_DATA, N, 1, 1},          /* there is no such member */
        {TUTTI_NET_DATA, UINT32_MAX, 1, 1}, /* nor such a one */
    };
    struct pair pair;
    struct tutti_proof_out out;
    const uint8_t nonce[TUTTI_NONCE_BYTES] = {9};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(hellos); i++) {
        pair_alike(&pair, "sesame");
        tutti_proof_dial(&pair.dialer, &pair.keys[0], hellos[i].role, hellos[i].from, hellos[i].to, nonce, &pair.hello);
        assert_int_equal(tutti_proof_received(&pair.acceptor, pair.hello.bytes, 0, &out), TUTTI_ERR_PROTOCOL);
        assert_int_equal(out.n, 0);
    }
    /* A dialer of the right key that says DATA in HELLO and CONTROL in PROOF, or becomes another member. */
    for (int i = 0; i < 2; i++) {
        pair_alike(&pair, "sesame");
        assert_int_equal(tutti_proof_received(&pair.acceptor, pair.hello.bytes, 0, &pair.challenge), TUTTI_OK);
        struct tutti_proof liar = pair.dialer;
        assert_int_equal(tutti_proof_received(&pair.dialer, pair.challenge.bytes, 0, &pair.proof), TUTTI_OK);
        liar.session.secret = liar.text;
        memcpy(liar.session.nonces, pair.dialer.session.nonces, sizeof liar.session.nonces);
        struct tutti_proof_frame frame;
        assert_int_equal(tutti_proof_decode(pair.proof.bytes, &frame), TUTTI_OK);
        if (i == 0)
            frame.role = TUTTI_NET_CONTROL;
        else
            frame.from = 2;
        tutti_proof_encode(&frame, out.bytes);
        assert_int_equal(tutti_session_sign(&liar.session, "tutti net 1", out.bytes, TUTTI_PROOF_BYTES,
                                            out.bytes + TUTTI_PROOF_BYTES),
                         TUTTI_OK);
        struct tutti_proof_out none;
        assert_int_equal(tutti_proof_received(&pair.acceptor, out.bytes, 0, &none), TUTTI_ERR_PROTOCOL);
        assert_false(pair.acceptor.proved);
    }
}

/* What certificates have agreed on is of one connection: frames of another one do not verify, and the keys differ. */
static void certificates_bind_to_one_connection(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    static const char *const agreed[][2] = {{"a", "a"}, {"b", "b"}, {"a", "b"}, {"a", NULL}, {NULL, "a"}};
    uint8_t keys[2][2][TUTTI_HMAC_BYTES];
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(agreed); i++) {
        struct pair pair;
        const bool same = i < 2;
        pair_alike(&pair, NULL);
        if (agreed[i][0]) assert_int_equal(tutti_proof_bind(&pair.dialer, agreed[i][0]), TUTTI_OK);
        if (agreed[i][1]) assert_int_equal(tutti_proof_bind(&pair.acceptor, agreed[i][1]), TUTTI_OK);
        assert_int_equal(tutti_proof_received(&pair.acceptor, pair.hello.bytes, 0, &pair.challenge), TUTTI_OK);
        assert_int_equal(tutti_proof_received(&pair.dialer, pair.challenge.bytes, 0, &pair.proof),
                         same ? TUTTI_OK : TUTTI_ERR_AUTH);
        if (!same) continue;
        assert_int_equal(tutti_proof_received(&pair.acceptor, pair.proof.bytes, 0, &pair.ready), TUTTI_OK);
        for (int end = 0; end < 2; end++) {
            const struct tutti_proof moved = end ? pair.acceptor : pair.dialer;
            assert_int_equal(tutti_proof_channel_key(&moved, keys[i][end]), TUTTI_OK);
        }
        assert_memory_equal(keys[i][0], keys[i][1], TUTTI_HMAC_BYTES);
    }
    assert_memory_not_equal(keys[0][0], keys[1][0], TUTTI_HMAC_BYTES);
}

static void frames_come_in_their_order_and_once(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip();
    struct pair done;
    pair_alike(&done, "sesame");
    assert_int_equal(pair_run(&done, &no_change), TUTTI_OK);
    struct tutti_proof_out none;
    assert_int_equal(tutti_proof_received(&done.acceptor, done.proof.bytes, 0, &none), TUTTI_ERR_PROTOCOL);
    assert_int_equal(tutti_proof_received(&done.dialer, done.ready.bytes, 0, &none), TUTTI_ERR_PROTOCOL);
    /* Any other frame of the same handshake in place of the one that is due. */
    const struct tutti_proof_out *const all[] = {&done.hello, &done.challenge, &done.proof, &done.ready};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(all); i++) {
        struct pair pair;
        pair_alike(&pair, "sesame");
        if (i != 0) {
            assert_int_equal(tutti_proof_received(&pair.acceptor, all[i]->bytes, 0, &none), TUTTI_ERR_PROTOCOL);
        }
        if (i != 1) assert_int_equal(tutti_proof_received(&pair.dialer, all[i]->bytes, 0, &none), TUTTI_ERR_PROTOCOL);
    }
}

static void frames_are_what_they_were(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        uint8_t bytes[TUTTI_PROOF_BYTES], again[TUTTI_PROOF_BYTES];
        struct tutti_proof_frame frame = {.type = (enum tutti_proof_type)(1 + tutti_random64(&seed) % 4),
                                          .role = (enum tutti_net_role)(1 + tutti_random64(&seed) % 2),
                                          .has_secret = tutti_random64(&seed) % 2,
                                          .from = (uint32_t)tutti_random64(&seed),
                                          .to = (uint32_t)tutti_random64(&seed),
                                          .world = tutti_random64(&seed)},
                                 back;
        if (frame.type <= TUTTI_PROOF_CHALLENGE) nonce_make(frame.nonce);
        if (frame.type == TUTTI_PROOF_READY) frame.status = (int32_t)tutti_random64(&seed);
        if (frame.type == TUTTI_PROOF_PROOF) frame.accepted = (uint32_t)tutti_random64(&seed);
        tutti_proof_encode(&frame, bytes);
        assert_int_equal(tutti_proof_decode(bytes, &back), TUTTI_OK);
        tutti_proof_encode(&back, again);
        assert_memory_equal(bytes, again, sizeof bytes);
        assert_true(back.from == frame.from && back.to == frame.to && back.world == frame.world);
        for (size_t n = 0; n <= sizeof bytes; n++) assert_true(tutti_proof_may_be(bytes, n));
        bytes[i % 4] ^= 0x20;
        assert_false(tutti_proof_may_be(bytes, sizeof bytes));
        assert_true(tutti_proof_may_be(bytes, (size_t)(i % 4)));
        assert_int_equal(tutti_proof_decode(bytes, &back), TUTTI_ERR_PROTOCOL);
    }
}

static int setup(void **state)
{
    (void)state;
    seed = test_seed();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_prove_who_they_are),
        cmocka_unit_test(no_bit_of_any_frame_can_be_changed),
        cmocka_unit_test(another_key_proves_nothing),
        cmocka_unit_test(what_is_shown_is_not_what_counts),
        cmocka_unit_test(what_was_recorded_is_worth_nothing_again),
        cmocka_unit_test(what_comes_back_is_worth_nothing),
        cmocka_unit_test(frames_are_for_one_role_and_pair),
        cmocka_unit_test(certificates_bind_to_one_connection),
        cmocka_unit_test(frames_come_in_their_order_and_once),
        cmocka_unit_test(frames_are_what_they_were),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
