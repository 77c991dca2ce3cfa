/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_NET_HAND_TEST_H
#define TUTTI_CONTROL_NET_HAND_TEST_H

/* Strangers and members that a test plays by hand, frame by frame. */

#include "test.h"

#include "control/net/net_test.h"
#include "control/net/proof.h"

#include <errno.h>
#include <sys/time.h>

#define MS TUTTI_NS_PER_MS

static struct world world; /* the test's */

static inline struct tutti_proof_key key_of(const char *secret, uint64_t number)
{
    struct tutti_proof_key key;
    assert_int_equal(tutti_proof_key_init(&key, secret, number), TUTTI_OK);
    return key;
}

/* Reads n bytes; false: the connection ended before, or nothing came in 10 s.
 */
static inline bool reads(int fd, void *out, size_t n)
{
    const struct timeval patience = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return recv(fd, out, n, MSG_WAITALL) == (ssize_t)n;
}

static inline bool writes(int fd, const void *bytes, size_t n)
{
    return send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* Whether the other end closes the connection, and says nothing before, within
 * 10 s. */
static inline bool is_closed(int fd)
{
    char byte;
    const struct timeval patience = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const ssize_t n = recv(fd, &byte, 1, 0);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static inline void nonce_make(uint8_t nonce[TUTTI_NONCE_BYTES])
{
    assert_int_equal(tutti_random_bytes(nonce, TUTTI_NONCE_BYTES), TUTTI_OK);
}

/* A handshake by hand, and what passed. */
struct hand {
    struct tutti_proof_key key;
    struct tutti_proof proof;
    struct tutti_proof_out hello, challenge, sent, ready; /* sent: PROOF */
    int fd;
};

/* As a dialer: HELLO and CHALLENGE. */
static inline void hand_call(struct hand *hand, const struct tutti_proof_key *key, uint32_t me,
                             enum tutti_net_role role, uint32_t to)
{
    uint8_t nonce[TUTTI_NONCE_BYTES];
    nonce_make(nonce);
    memset(hand, 0, sizeof *hand);
    hand->key = *key;
    hand->fd = world_call(&world, to);
    assert_true(hand->fd >= 0);
    tutti_proof_dial(&hand->proof, &hand->key, role, me, to, nonce, &hand->hello);
    assert_true(writes(hand->fd, hand->hello.bytes, hand->hello.n));
    hand->challenge.n = TUTTI_PROOF_SIGNED;
    assert_true(reads(hand->fd, hand->challenge.bytes, TUTTI_PROOF_SIGNED));
}

/* ... PROOF and READY. */
static inline void hand_prove(struct hand *hand, uint32_t n_accepted)
{
    assert_int_equal(tutti_proof_received(&hand->proof, hand->challenge.bytes, n_accepted, &hand->sent), TUTTI_OK);
    assert_true(writes(hand->fd, hand->sent.bytes, hand->sent.n));
}

static inline enum tutti_status hand_answer(struct hand *hand)
{
    struct tutti_proof_out none;
    hand->ready.n = TUTTI_PROOF_SIGNED;
    assert_true(reads(hand->fd, hand->ready.bytes, TUTTI_PROOF_SIGNED));
    assert_int_equal(tutti_proof_received(&hand->proof, hand->ready.bytes, 0, &none), TUTTI_OK);
    return hand->proof.status;
}

/* As the acceptor at a member's listener: takes the next connection and its
 * HELLO. */
static inline void hand_accept(struct hand *hand, const struct tutti_proof_key *key, uint32_t me)
{
    struct tutti_listener *listener = world.members[me].listener;
    struct pollfd wait = {.fd = tutti_listener_fd(listener), .events = POLLIN};
    uint8_t nonce[TUTTI_NONCE_BYTES];
    nonce_make(nonce);
    memset(hand, 0, sizeof *hand);
    hand->key = *key;
    assert_int_equal(poll(&wait, 1, 10000), 1);
    hand->fd = tutti_listener_accept(listener);
    assert_true(hand->fd >= 0);
    fcntl(hand->fd, F_SETFL, 0); /* blocks */
    tutti_proof_accept(&hand->proof, &hand->key, me, world.n, nonce);
    assert_true(reads(hand->fd, hand->hello.bytes, TUTTI_PROOF_BYTES));
    assert_int_equal(tutti_proof_received(&hand->proof, hand->hello.bytes, 0, &hand->challenge), TUTTI_OK);
}

/* ... CHALLENGE and PROOF: the other end can not go back any more. */
static inline void hand_challenge(struct hand *hand)
{
    struct tutti_proof_out none;
    assert_true(writes(hand->fd, hand->challenge.bytes, hand->challenge.n));
    assert_true(reads(hand->fd, hand->sent.bytes, TUTTI_PROOF_SIGNED));
    assert_int_equal(tutti_proof_received(&hand->proof, hand->sent.bytes, 0, &none), TUTTI_OK);
    assert_int_equal(tutti_proof_answer(&hand->proof, TUTTI_OK, &hand->ready), TUTTI_OK);
}

static inline void hand_ready(struct hand *hand)
{
    assert_true(writes(hand->fd, hand->ready.bytes, hand->ready.n));
}

static inline void hand_end(struct hand *hand)
{
    close(hand->fd);
}

#endif
