/* SPDX-License-Identifier: BSD-3-Clause */

/* Encrypted connections: a listener between the ends reads nothing, and can change, repeat and cut nothing unnoticed;
 * members get a stream for each connection, and hear of its end at once. */

#include "test.h"

#include "base/tls.h"
#include "control/net/net_test.h"

#include <errno.h>
#include <signal.h>

#define MS TUTTI_NS_PER_MS

/* ---- two ends, and the test between them ---- */

struct between {
    struct tutti_tls *end[2];
    int fds[2][2]; /* each end's own socket, and ours */
    uint8_t seen[1 << 16];
    size_t n_seen; /* by who stands between */
};

static void between_open(struct between *b, const uint8_t keys[2][TUTTI_HMAC_BYTES])
{
    memset(b, 0, sizeof *b);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, b->fds[i]), 0);
        const struct tutti_tls_proof proof = {.key = keys[i]};
        assert_int_equal(tutti_tls_open(b->fds[i][0], i == 0, &proof, &b->end[i]), TUTTI_OK);
    }
}

static void between_close(struct between *b)
{
    for (int i = 0; i < 2; i++) {
        tutti_tls_close(b->end[i]);
        close(b->fds[i][0]), close(b->fds[i][1]);
    }
}

/* What an end has sent, not yet passed on; returns its length. */
static size_t taken(struct between *b, int from, uint8_t *bytes, size_t capacity)
{
    const ssize_t n = recv(b->fds[from][1], bytes, capacity, 0);
    if (n <= 0) return 0;
    assert_true(b->n_seen + (size_t)n <= sizeof b->seen);
    memcpy(b->seen + b->n_seen, bytes, (size_t)n);
    b->n_seen += (size_t)n;
    return (size_t)n;
}

static void given(struct between *b, int to, const uint8_t *bytes, size_t n)
{
    if (n > 0) assert_int_equal(send(b->fds[to][1], bytes, n, MSG_NOSIGNAL), n);
}

/* Passes on what both say until they have agreed, or one refuses. */
static enum tutti_status between_agree(struct between *b)
{
    uint8_t bytes[4096], text[TUTTI_TLS_RECORD];
    size_t n;
    enum tutti_status worst = TUTTI_OK;
    for (int i = 0; i < 20; i++) {
        const int end = i % 2;
        const enum tutti_status status = tutti_tls_read(b->end[end], text, sizeof text, &n);
        if (status < 0) worst = status;
        given(b, 1 - end, bytes, taken(b, end, bytes, sizeof bytes));
    }
    return worst;
}

static const uint8_t same_keys[2][TUTTI_HMAC_BYTES] = {{1, 2, 3}, {1, 2, 3}};

static void who_stands_between_reads_nothing(void **state)
{
    (void)state;
    struct between b;
    uint8_t bytes[4096], text[TUTTI_TLS_RECORD];
    size_t n;
    between_open(&b, same_keys);
    assert_int_equal(between_agree(&b), TUTTI_OK);
    for (int from = 0; from < 2; from++) {
        assert_int_equal(tutti_tls_write(b.end[from], "the words of members", 20, &n), TUTTI_OK);
        assert_int_equal(n, 20);
        given(&b, 1 - from, bytes, taken(&b, from, bytes, sizeof bytes));
        assert_int_equal(tutti_tls_read(b.end[1 - from], text, sizeof text, &n), TUTTI_OK);
        assert_true(n == 20 && memcmp(text, "the words of members", 20) == 0);
    }
    assert_true(b.n_seen > 100);
    assert_null(memmem(b.seen, b.n_seen, "words", 5));
    assert_null(memmem(b.seen, b.n_seen, same_keys[0], TUTTI_HMAC_BYTES));
    /* An end that is said, and one that is not. */
    tutti_tls_finish(b.end[0]);
    given(&b, 1, bytes, taken(&b, 0, bytes, sizeof bytes));
    assert_int_equal(tutti_tls_read(b.end[1], text, sizeof text, &n), TUTTI_ERR_PEER_LEFT);
    shutdown(b.fds[0][1], SHUT_RDWR);
    assert_int_equal(tutti_tls_read(b.end[0], text, sizeof text, &n), TUTTI_ERR_PROTOCOL);
    between_close(&b);
}

static void another_key_does_not_open(void **state)
{
    (void)state;
    struct between b;
    const uint8_t keys[2][TUTTI_HMAC_BYTES] = {{1, 2, 3}, {1, 2, 4}};
    between_open(&b, keys);
    assert_int_equal(between_agree(&b), TUTTI_ERR_PROTOCOL);
    between_close(&b);
}

static void what_passes_can_not_be_changed_or_repeated(void **state)
{
    (void)state;
    for (int repeat = 0; repeat < 2; repeat++) {
        struct between b;
        uint8_t bytes[4096], text[TUTTI_TLS_RECORD];
        size_t n;
        between_open(&b, same_keys);
        assert_int_equal(between_agree(&b), TUTTI_OK);
        assert_int_equal(tutti_tls_write(b.end[0], "ten bytes.", 10, &n), TUTTI_OK);
        const size_t record = taken(&b, 0, bytes, sizeof bytes);
        assert_true(record > 10);
        if (repeat) {
            given(&b, 1, bytes, record);
            assert_int_equal(tutti_tls_read(b.end[1], text, sizeof text, &n), TUTTI_OK);
        } else {
            bytes[record > 10 ? record - 5 : 0] ^= 1;
        }
        given(&b, 1, bytes, record);
        assert_int_equal(tutti_tls_read(b.end[1], text, sizeof text, &n), TUTTI_ERR_PROTOCOL);
        between_close(&b);
    }
}

/* ---- members ---- */

static struct world world;

static void world_encrypted(uint32_t n)
{
    world_init(&world, n, "127.0.0.1");
    world.encrypt = 1 << TUTTI_NET_CONTROL | 1 << TUTTI_NET_DATA;
    for (uint32_t i = 0; i < n; i++) world.secret[i] = "sesame";
    world_open_all(&world);
}

static struct tutti_stream *stream_of(uint32_t member, enum tutti_net_role role, uint32_t peer)
{
    assert_true(world_wait_opened(&world, member, role, peer, 1));
    struct tutti_stream *stream = world_told(&world, member, role, peer).stream;
    assert_non_null(stream);
    return stream;
}

static void stream_hears(struct tutti_stream *stream, const char *words)
{
    char text[32] = "";
    const struct iovec iov = {text, sizeof text};
    ssize_t n = -1;
    for (int i = 0; i < 20000 && n < 0; i++, tutti_sleep_ns(MS)) n = stream->ops->recv(stream, &iov, 1);
    assert_int_equal(n, strlen(words));
    assert_memory_equal(text, words, strlen(words));
}

/* All dial all at once; one connection comes of it for each two, and its first words are said before the other end
 * looks. */
static void members_get_streams(void **state)
{
    (void)state;
    world_encrypted(WORLD_MAX);
    for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
        for (uint32_t a = 0; a < world.n; a++)
            for (uint32_t b = 0; b < world.n; b++)
                if (a != b) world_want(&world, a, role, b);
    for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
        for (uint32_t a = 0; a < world.n; a++)
            for (uint32_t b = 0; b < world.n; b++) {
                char words[32];
                const struct iovec iov = {words, (size_t)snprintf(words, sizeof words, "%d: %u to %u", role, a, b)};
                if (a == b) continue;
                struct tutti_stream *stream = stream_of(a, role, b);
                assert_int_equal(stream->ops->send(stream, &iov, 1), iov.iov_len);
            }
    for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
        for (uint32_t a = 0; a < world.n; a++)
            for (uint32_t b = 0; b < world.n; b++) {
                char words[32];
                snprintf(words, sizeof words, "%d: %u to %u", role, b, a);
                if (a != b) stream_hears(stream_of(a, role, b), words);
                if (a != b) assert_int_equal(world_told(&world, a, role, b).n_opened, 1);
            }
    world_fini(&world);
}

/* An end that was not said (a process died, a host reset the connection) is an error at once, also while this end
 * sends and nobody reads. */
static void a_broken_connection_is_an_error_at_once(void **state)
{
    (void)state;
    for (int resets = 0; resets < 2; resets++) {
        static uint8_t bytes[1 << 20];
        const struct iovec all = {bytes, sizeof bytes}, one = {bytes, 1};
        const struct linger now = {.l_onoff = 1};
        world_encrypted(2);
        world_dial(&world, 0, TUTTI_NET_CONTROL, 1);
        struct tutti_stream *stream = stream_of(0, TUTTI_NET_CONTROL, 1);
        stream_of(1, TUTTI_NET_CONTROL, 0);
        while (resets && stream->ops->send(stream, &all, 1) > 0) continue; /* until there is no room */
        struct world_told *far = &world.members[1].told[TUTTI_NET_CONTROL][0];
        if (resets) setsockopt(far->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(far->fd);
        far->fd = -1;
        struct pollfd end = {.fd = world_told(&world, 0, TUTTI_NET_CONTROL, 1).fd, .events = POLLIN};
        assert_int_equal(poll(&end, 1, 10000), 1);
        assert_int_equal(stream->ops->recv(stream, &one, 1), -1);
        assert_int_equal(errno, ECONNRESET);
        world_fini(&world);
    }
}

static int setup(void **state)
{
    signal(SIGPIPE, SIG_IGN); /* the net's thread has it blocked, this one uses TLS, too */
    return world_note_descriptors(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_stands_between_reads_nothing),           cmocka_unit_test(another_key_does_not_open),
        cmocka_unit_test(what_passes_can_not_be_changed_or_repeated), cmocka_unit_test(members_get_streams),
        cmocka_unit_test(a_broken_connection_is_an_error_at_once),
    };
    if (!tutti_tls_available()) return 0; /* built without OpenSSL */
    return cmocka_run_group_tests(tests, setup, world_check_descriptors);
}
