/* SPDX-License-Identifier: BSD-3-Clause */

/* Strangers at the port of the net: who floods, replays, forges, stays silent or stops halfway is refused and costs
 * little, while members get through. */

#include "control/net/hand_test.h"

#include <malloc.h>
#include <sys/wait.h>

/* ---- strangers ---- */

static void a_recorded_handshake_is_refused(void **state)
{
    (void)state;
    for (int secret = 0; secret < 2; secret++) {
        struct hand member, replay;
        world_init(&world, 2, "127.0.0.1");
        world.secret[0] = secret ? "sesame" : NULL;
        world_open(&world, 0);
        const struct tutti_proof_key key = key_of(world.secret[0], world.number);
        hand_call(&member, &key, 1, TUTTI_NET_DATA, 0);
        hand_prove(&member, 0);
        assert_int_equal(hand_answer(&member), TUTTI_OK);
        assert_true(world_wait_opened(&world, 0, TUTTI_NET_DATA, 1, 1));
        /* The same bytes again, all at once and step by step. */
        for (int step = 0; step < 2; step++) {
            replay = (struct hand){.fd = world_call(&world, 0)};
            assert_true(writes(replay.fd, member.hello.bytes, member.hello.n));
            if (step == 1) assert_true(reads(replay.fd, replay.challenge.bytes, TUTTI_PROOF_SIGNED));
            assert_true(writes(replay.fd, member.sent.bytes, member.sent.n));
            if (step == 0) assert_true(reads(replay.fd, replay.challenge.bytes, TUTTI_PROOF_SIGNED));
            assert_true(memcmp(replay.challenge.bytes, member.challenge.bytes, TUTTI_PROOF_SIGNED) != 0);
            assert_true(is_closed(replay.fd));
            hand_end(&replay);
        }
        assert_int_equal(world_told(&world, 0, TUTTI_NET_DATA, 1).n_opened, 1);
        assert_int_equal(world_told(&world, 0, TUTTI_NET_CONTROL, 1).n_opened, 0);
        hand_end(&member);
        world_fini(&world);
    }
}

static void who_has_another_key_is_refused(void **state)
{
    (void)state;
    struct hand hand;
    struct tutti_proof_out none;
    world_init(&world, 2, "127.0.0.1");
    world.secret[0] = "sesame";
    world_open(&world, 0);
    const struct tutti_proof_key right = key_of("sesame", world.number);
    struct tutti_proof_key wrong[] = {key_of("Sesame", world.number), key_of(NULL, world.number),
                                      key_of("sesame", world.number + 1), /* another epoch */
                                      key_of("Sesame", world.number)};
    wrong[3].world = right.world; /* it has listened on the network */
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) {
        hand_call(&hand, &wrong[i], 1, TUTTI_NET_CONTROL, 0);
        assert_int_equal(tutti_proof_received(&hand.proof, hand.challenge.bytes, 0, &none), TUTTI_ERR_AUTH);
        if (i == 3) assert_true(writes(hand.fd, hand.challenge.bytes, TUTTI_PROOF_SIGNED)); /* reflected */
        assert_true(is_closed(hand.fd));
        hand_end(&hand);
    }
    /* The right key, but another member's number, or no member's. */
    static const uint32_t numbers[] = {0, 2, UINT32_MAX};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(numbers); i++) {
        const uint8_t nonce[TUTTI_NONCE_BYTES] = {1};
        hand.fd = world_call(&world, 0);
        tutti_proof_dial(&hand.proof, &right, TUTTI_NET_DATA, numbers[i], 0, nonce, &hand.hello);
        assert_true(writes(hand.fd, hand.hello.bytes, hand.hello.n));
        assert_true(is_closed(hand.fd));
        hand_end(&hand);
    }
    for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
        assert_int_equal(world_told(&world, 0, (enum tutti_net_role)role, 1).n_opened, 0);
    world_fini(&world);
}

static void a_slow_member_gets_through_and_who_stops_is_closed(void **state)
{
    (void)state;
    struct hand slow, halfway;
    uint8_t nonce[TUTTI_NONCE_BYTES];
    world_init(&world, 2, "127.0.0.1");
    world_open(&world, 0);
    const struct tutti_proof_key key = key_of(NULL, world.number);
    const uint64_t begin = tutti_now_ns();
    const int silent = world_call(&world, 0), half = world_call(&world, 0);
    assert_true(writes(half, "TUNE\1\1", 6));
    hand_call(&halfway, &key, 1, TUTTI_NET_CONTROL, 0); /* no PROOF */
    /* A byte at a time. */
    nonce_make(nonce);
    slow = (struct hand){.key = key, .fd = world_call(&world, 0)};
    tutti_proof_dial(&slow.proof, &slow.key, TUTTI_NET_DATA, 1, 0, nonce, &slow.hello);
    for (size_t i = 0; i < slow.hello.n; i++) {
        assert_true(writes(slow.fd, slow.hello.bytes + i, 1));
        tutti_sleep_ns(MS);
    }
    assert_true(reads(slow.fd, slow.challenge.bytes, TUTTI_PROOF_SIGNED));
    hand_prove(&slow, 0);
    assert_int_equal(hand_answer(&slow), TUTTI_OK);
    assert_true(world_wait_opened(&world, 0, TUTTI_NET_DATA, 1, 1));
    /* A connection that says something that no member says is closed at once. */
    static const char *const garbage[] = {"GET / HTTP/1.0\r\n\r\n", "SSH-2.0-OpenSSH", "\x16", "TUNA"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(garbage); i++) {
        const uint64_t called = tutti_now_ns();
        const int fd = world_call(&world, 0);
        assert_true(writes(fd, garbage[i], strlen(garbage[i])));
        assert_true(is_closed(fd));
        assert_true(tutti_now_ns() - called < 4 * TUTTI_NS_PER_S);
        close(fd);
    }
    const int fds[] = {silent, half, halfway.fd};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(fds); i++) {
        assert_true(is_closed(fds[i]));
        close(fds[i]);
    }
    assert_true(tutti_now_ns() - begin >= 4900 * MS); /* not before: a slow network is no crime */
    hand_end(&slow);
    world_fini(&world);
}

static bool is_open(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* When all rows are taken the oldest goes that has said nothing; who has said
 * HELLO stays. */
static void who_says_nothing_makes_room(void **state)
{
    (void)state;
    enum { ROWS = 64, MORE = 40 };
    int silent[ROWS + MORE];
    struct hand member;
    world_init(&world, 2, "127.0.0.1");
    world_open(&world, 0);
    const struct tutti_proof_key key = key_of(NULL, world.number);
    hand_call(&member, &key, 1, TUTTI_NET_DATA, 0);
    for (int i = 0; i < ROWS + MORE; i++) {
        silent[i] = world_call(&world, 0);
        assert_true(silent[i] >= 0);
        const int gone = i - (ROWS - 1); /* the member has a row, too */
        if (gone >= 0) assert_true(is_closed(silent[gone]));
        assert_true(is_open(silent[gone + 1 > 0 ? gone + 1 : 0]));
    }
    hand_prove(&member, 0);
    assert_int_equal(hand_answer(&member), TUTTI_OK);
    for (int i = 0; i < ROWS + MORE; i++) close(silent[i]);
    hand_end(&member);
    world_fini(&world);
}

/* 2,000 connections from another process, of all kinds; half of them stay open
 * as long as they may. */
static int flood(const struct hand *recorded, uint64_t until_ns)
{
    enum { KEPT = 500 };
    static int kept[KEPT];
    uint64_t seed = test_seed();
    uint32_t n_kept = 0, n_made = 0;
    memset(kept, -1, sizeof kept);
    while (n_made < 2000 || tutti_now_ns() < until_ns) {
        const uint32_t to = (uint32_t)(tutti_random64(&seed) % world.n);
        const uint32_t kind = (uint32_t)(tutti_random64(&seed) % 6);
        const int fd = world_call(&world, to);
        uint8_t junk[200];
        if (fd < 0) continue;
        n_made++;
        for (size_t i = 0; i < sizeof junk; i++) junk[i] = (uint8_t)tutti_random64(&seed);
        const size_t n = tutti_random64(&seed) % sizeof junk;
        if (kind == 1) writes(fd, junk, n);                                      /* garbage */
        if (kind == 2) writes(fd, recorded->hello.bytes, n % TUTTI_PROOF_BYTES); /* a frame that was cut */
        if (kind == 3) writes(fd, recorded->hello.bytes, TUTTI_PROOF_BYTES);     /* a whole one, and no more */
        if (kind == 4) writes(fd, recorded->hello.bytes, TUTTI_PROOF_BYTES), writes(fd, junk, n);
        if (kind == 5) /* for another member, mostly */
            writes(fd, recorded->hello.bytes, TUTTI_PROOF_BYTES), writes(fd, recorded->sent.bytes, TUTTI_PROOF_SIGNED);
        if (n_made % 2) { /* the others are closed at once */
            int *place = &kept[n_kept++ % KEPT];
            if (*place >= 0) close(*place);
            *place = fd;
        } else {
            close(fd);
        }
    }
    return 0;
}

static void a_flood_keeps_no_member_out(void **state)
{
    (void)state;
    struct hand recorded;
    int status;
    world_init(&world, WORLD_MAX, "127.0.0.1");
    for (uint32_t m = 0; m < world.n; m++) world.secret[m] = "sesame";
    for (uint32_t m = 0; m < world.n; m++) world_open(&world, m);
    const struct tutti_proof_key key = key_of("sesame", world.number);
    hand_call(&recorded, &key, 1, TUTTI_NET_DATA, 0);
    hand_prove(&recorded, 0);
    assert_int_equal(hand_answer(&recorded), TUTTI_OK);
    assert_true(world_wait_opened(&world, 0, TUTTI_NET_DATA, 1, 1));
    hand_end(&recorded);
    const uint32_t n_fds = world_descriptors();
    const size_t memory = mallinfo2().uordblks;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(flood(&recorded, tutti_deadline_ns(500 * MS)));
    tutti_sleep_ns(50 * MS);
    const uint64_t begin = tutti_now_ns();
    for (uint32_t a = 0; a < world.n; a++)
        for (uint32_t b = 0; b < world.n; b++)
            if (a != b) world_want(&world, a, TUTTI_NET_CONTROL, b);
    uint32_t most = 0;
    for (pid_t ended = 0; ended == 0; tutti_sleep_ns(5 * MS)) {
        const uint32_t now = world_descriptors();
        if (now > most) most = now;
        ended = waitpid(child, &status, WNOHANG);
        assert_true(tutti_now_ns() - begin < 60 * TUTTI_NS_PER_S);
    }
    assert_int_equal(status, 0);
    for (uint32_t a = 0; a < world.n; a++)
        for (uint32_t b = 0; b < world.n; b++) {
            if (a == b) continue;
            assert_true(world_wait_opened(&world, a, TUTTI_NET_CONTROL, b, 1));
            assert_int_equal(world_told(&world, a, TUTTI_NET_CONTROL, b).n_opened, 1);
            assert_int_equal(world_told(&world, a, TUTTI_NET_CONTROL, b).n_failed, 0);
        }
    for (uint32_t a = 0; a < world.n; a++)
        for (uint32_t b = 0; b < a; b++) assert_true(world_talks(&world, a, TUTTI_NET_CONTROL, b));
    assert_int_equal(world_told(&world, 0, TUTTI_NET_DATA, 1).n_opened, 1);
    /* A table of 64 strangers for each member, and the members' own connections
     * and tries. */
    assert_true(most <= n_fds + world.n * (64 + 2 * (world.n - 1)) + 8);
    assert_true(mallinfo2().uordblks < memory + (1 << 20));
    world_fini(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_handshake_is_refused),
        cmocka_unit_test(who_has_another_key_is_refused),
        cmocka_unit_test(a_slow_member_gets_through_and_who_stops_is_closed),
        cmocka_unit_test(who_says_nothing_makes_room),
        cmocka_unit_test(a_flood_keeps_no_member_out),
    };
    if (!tutti_hmac_available()) return 0; /* built without OpenSSL: hosts do not talk */
    return cmocka_run_group_tests(tests, world_note_descriptors, world_check_descriptors);
}
