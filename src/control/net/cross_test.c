/* SPDX-License-Identifier: BSD-3-Clause */

/* Members that are played by hand: whatever crosses on its way, both ends are told of the same connections. */

#include "control/net/hand_test.h"

/* Net 0 has sent its PROOF; member 1 dials meanwhile: that of net 0 stays. */
static void of_two_that_are_proving_that_of_the_smaller_stays(void **state)
{
    (void)state;
    struct hand theirs, mine, late;
    world_init(&world, 2, "127.0.0.1");
    world_open(&world, 0);
    const struct tutti_proof_key key = key_of(NULL, world.number);
    world_dial(&world, 0, TUTTI_NET_DATA, 1);
    hand_accept(&theirs, &key, 1);
    hand_challenge(&theirs);
    hand_call(&mine, &key, 1, TUTTI_NET_DATA, 0);
    hand_call(&late, &key, 1, TUTTI_NET_DATA, 0);
    hand_prove(&mine, 0);
    assert_int_equal(hand_answer(&mine), TUTTI_AGAIN);
    assert_true(is_closed(mine.fd));
    assert_int_equal(world_told(&world, 0, TUTTI_NET_DATA, 1).n_opened, 0);
    hand_ready(&theirs);
    assert_true(world_wait_opened(&world, 0, TUTTI_NET_DATA, 1, 1));
    /* A PROOF that was on its way since before member 1 accepted is refused, too:
     * it does not know of that. */
    hand_prove(&late, 0);
    assert_int_equal(hand_answer(&late), TUTTI_AGAIN);
    assert_int_equal(world_told(&world, 0, TUTTI_NET_DATA, 1).n_opened, 1);
    hand_end(&late), hand_end(&mine);
    /* A peer that knows of it and dials again means it. */
    hand_call(&late, &key, 1, TUTTI_NET_DATA, 0);
    hand_prove(&late, 1);
    assert_int_equal(hand_answer(&late), TUTTI_OK);
    assert_true(world_wait_opened(&world, 0, TUTTI_NET_DATA, 1, 2));
    hand_end(&late), hand_end(&theirs);
    world_fini(&world);
}

/* The same, and the net is that of the larger member: it accepts, and lets go
 * of its own. */
static void of_two_that_are_proving_that_of_the_larger_goes(void **state)
{
    (void)state;
    struct hand theirs, mine;
    world_init(&world, 2, "127.0.0.1");
    world_open(&world, 1);
    const struct tutti_proof_key key = key_of(NULL, world.number);
    world_dial(&world, 1, TUTTI_NET_DATA, 0);
    hand_accept(&theirs, &key, 0);
    hand_challenge(&theirs);
    hand_call(&mine, &key, 0, TUTTI_NET_DATA, 1);
    hand_prove(&mine, 0);
    assert_int_equal(hand_answer(&mine), TUTTI_OK);
    assert_true(world_wait_opened(&world, 1, TUTTI_NET_DATA, 0, 1));
    assert_true(is_closed(theirs.fd));
    tutti_sleep_ns(20 * MS);
    assert_int_equal(world_told(&world, 1, TUTTI_NET_DATA, 0).n_opened, 1);
    hand_end(&mine), hand_end(&theirs);
    world_fini(&world);
}

/* Member 0 has accepted the net's connection, but READY is late; it dials, too.
 * The net keeps the one that it has. */
static void what_was_accepted_stays_though_ready_is_late(void **state)
{
    (void)state;
    struct hand theirs, mine;
    world_init(&world, 2, "127.0.0.1");
    world_open(&world, 1);
    const struct tutti_proof_key key = key_of(NULL, world.number);
    world_dial(&world, 1, TUTTI_NET_DATA, 0);
    hand_accept(&theirs, &key, 0);
    hand_challenge(&theirs);
    for (uint32_t n = 1; n <= 2; n++) {
        hand_call(&mine, &key, 0, TUTTI_NET_DATA, 1);
        hand_prove(&mine, 1);
        assert_int_equal(hand_answer(&mine), n == 1 ? TUTTI_AGAIN : TUTTI_OK);
        if (n == 1) hand_ready(&theirs);
        assert_true(world_wait_opened(&world, 1, TUTTI_NET_DATA, 0, n));
        hand_end(&mine);
    }
    hand_end(&theirs);
    world_fini(&world);
}

/* A try without its PROOF is worth nothing: the smaller member, too, accepts.
 * So a member that can be dialed by nobody but dials itself gets through. */
static void the_first_that_is_proved_stays(void **state)
{
    (void)state;
    struct hand theirs, mine;
    world_init(&world, 2, "127.0.0.1");
    world_open(&world, 0);
    const struct tutti_proof_key key = key_of(NULL, world.number);
    world_dial(&world, 0, TUTTI_NET_DATA, 1);
    hand_accept(&theirs, &key, 1); /* no CHALLENGE */
    hand_call(&mine, &key, 1, TUTTI_NET_DATA, 0);
    hand_prove(&mine, 0);
    assert_int_equal(hand_answer(&mine), TUTTI_OK);
    assert_true(world_wait_opened(&world, 0, TUTTI_NET_DATA, 1, 1));
    assert_true(is_closed(theirs.fd));
    hand_end(&mine), hand_end(&theirs);
    world_fini(&world);
}

/* A peer that was refused because the other dials hears of that one, or tries again
 * when nothing comes of it. */
static void who_is_refused_for_now_tries_again(void **state)
{
    (void)state;
    struct hand theirs;
    world_init(&world, 2, "127.0.0.1");
    world_open(&world, 1);
    const struct tutti_proof_key key = key_of(NULL, world.number);
    world_dial(&world, 1, TUTTI_NET_DATA, 0);
    for (int i = 0; i < 4; i++) {
        hand_accept(&theirs, &key, 0);
        if (i < 3) hand_challenge(&theirs);
        if (i == 1) { /* AGAIN; else the connection ends without a word */
            struct tutti_proof_out again;
            theirs.proof.session.n_sent = 1;
            assert_int_equal(tutti_proof_answer(&theirs.proof, TUTTI_AGAIN, &again), TUTTI_OK);
            assert_true(writes(theirs.fd, again.bytes, again.n));
        }
        if (i == 2) { /* and bytes that belong to who gets the socket come with READY */
            uint8_t both[TUTTI_PROOF_SIGNED + 5];
            memcpy(both, theirs.ready.bytes, TUTTI_PROOF_SIGNED);
            memcpy(both + TUTTI_PROOF_SIGNED, "hello", 5);
            assert_true(writes(theirs.fd, both, sizeof both));
            break;
        }
        hand_end(&theirs);
    }
    assert_true(world_wait_opened(&world, 1, TUTTI_NET_DATA, 0, 1));
    char text[8] = "";
    assert_int_equal(recv(world_told(&world, 1, TUTTI_NET_DATA, 0).fd, text, sizeof text, 0), 5);
    assert_string_equal(text, "hello");
    assert_int_equal(world_told(&world, 1, TUTTI_NET_DATA, 0).n_failed, 0);
    hand_end(&theirs);
    world_fini(&world);
}

/* The other end may have accepted: the connection is kept beyond the deadline,
 * and told when READY comes. */
static void a_late_ready_is_told_after_the_failure(void **state)
{
    (void)state;
    struct hand theirs;
    world_init(&world, 2, "127.0.0.1");
    world.dial_ns = 100 * MS;
    world_open(&world, 0);
    const struct tutti_proof_key key = key_of(NULL, world.number);
    world_dial(&world, 0, TUTTI_NET_DATA, 1);
    hand_accept(&theirs, &key, 1);
    hand_challenge(&theirs);
    assert_true(world_wait_failed(&world, 0, TUTTI_NET_DATA, 1, 1));
    assert_int_equal(world_told(&world, 0, TUTTI_NET_DATA, 1).error.status, TUTTI_ERR_TIMEOUT);
    world_dial(&world, 0, TUTTI_NET_DATA, 1); /* the same connection */
    assert_true(world_wait_failed(&world, 0, TUTTI_NET_DATA, 1, 2));
    hand_ready(&theirs);
    assert_true(world_wait_opened(&world, 0, TUTTI_NET_DATA, 1, 1));
    assert_int_equal(tutti_listener_accept(world.members[1].listener), -1);
    hand_end(&theirs);
    world_fini(&world);
}

/* What answers at a member's port is no member: garbage, and a member of
 * another job. */
static void who_answers_wrongly_is_told(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        struct hand theirs;
        world_init(&world, 2, "127.0.0.1");
        world_open(&world, 0);
        const struct tutti_proof_key key = key_of(NULL, world.number);
        world_dial(&world, 0, TUTTI_NET_DATA, 1);
        hand_accept(&theirs, &key, 1);
        if (other) theirs.challenge.bytes[16] ^= 1;
        assert_true(writes(theirs.fd, other ? (const char *)theirs.challenge.bytes : "220 mail.example.org ESMTP\r\n",
                           other ? TUTTI_PROOF_SIGNED : 28));
        assert_true(world_wait_failed(&world, 0, TUTTI_NET_DATA, 1, 1));
        const struct tutti_error error = world_told(&world, 0, TUTTI_NET_DATA, 1).error;
        assert_int_equal(error.status, other ? TUTTI_ERR_AUTH : TUTTI_ERR_PROTOCOL);
        assert_non_null(strstr(error.text, other ? "it is of another job" : "it does not speak the protocol of tutti"));
        assert_non_null(strstr(error.text, "rank 1 on host host-1 (127.0.0.1 port "));
        hand_end(&theirs);
        world_fini(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_that_are_proving_that_of_the_smaller_stays),
        cmocka_unit_test(of_two_that_are_proving_that_of_the_larger_goes),
        cmocka_unit_test(what_was_accepted_stays_though_ready_is_late),
        cmocka_unit_test(the_first_that_is_proved_stays),
        cmocka_unit_test(who_is_refused_for_now_tries_again),
        cmocka_unit_test(a_late_ready_is_told_after_the_failure),
        cmocka_unit_test(who_answers_wrongly_is_told),
    };
    if (!tutti_hmac_available()) return 0; /* built without OpenSSL: hosts do not talk */
    return cmocka_run_group_tests(tests, world_note_descriptors, world_check_descriptors);
}
