/* SPDX-License-Identifier: BSD-3-Clause */

/* Encrypted connections: who stands between reads nothing, and can change, repeat and cut nothing unnoticed; and
 * whoever uses one finds it like any other, up to ends of files and last words. */

#include "test.h"

#include "control/net/net_test.h"
#include "control/net/tls.h"

#include <errno.h>
#include <signal.h>
#include <sys/time.h>

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
        assert_int_equal(tutti_tls_open(b->fds[i][0], i == 0, keys[i], &b->end[i]), TUTTI_OK);
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

/* An encrypted connection; blocking sockets, with some patience. */
static void pair_open(int fds[2])
{
    world_encrypted(2);
    world_dial(&world, 0, TUTTI_NET_DATA, 1);
    for (uint32_t m = 0; m < 2; m++) {
        const struct timeval patience = {.tv_sec = 20};
        assert_true(world_wait_opened(&world, m, TUTTI_NET_DATA, 1 - m, 1));
        fds[m] = world_told(&world, m, TUTTI_NET_DATA, 1 - m).fd;
        fcntl(fds[m], F_SETFL, 0);
        setsockopt(fds[m], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(fds[m], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    }
}

/* Closes a member's end. */
static void pair_close(uint32_t member)
{
    struct world_member *m = &world.members[member];
    close(m->told[TUTTI_NET_DATA][1 - member].fd);
    m->told[TUTTI_NET_DATA][1 - member].fd = -1;
}

static void members_talk_as_on_any_connection(void **state)
{
    (void)state;
    world_encrypted(WORLD_MAX);
    for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
        for (uint32_t a = 0; a < world.n; a++)
            for (uint32_t b = 0; b < world.n; b++)
                if (a != b) world_want(&world, a, role, b);
    for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
        for (uint32_t a = 0; a < world.n; a++)
            for (uint32_t b = 0; b < a; b++) {
                assert_true(world_wait_opened(&world, a, role, b, 1) && world_wait_opened(&world, b, role, a, 1));
                assert_true(world_talks(&world, a, role, b));
                assert_true(fcntl(world_told(&world, a, role, b).fd, F_GETFL) & O_NONBLOCK);
                assert_true(fcntl(world_told(&world, a, role, b).fd, F_GETFD) & FD_CLOEXEC);
            }
    world_fini(&world);
}

#define STREAM ((size_t)6 << 20)
struct stream {
    int fd;
    uint64_t seed;
    bool good;
};

static void *stream_send(void *arg)
{
    struct stream *s = arg;
    static _Thread_local uint8_t bytes[30000];
    s->good = true;
    for (size_t at = 0, n; at < STREAM && s->good; at += n) {
        n = STREAM - at < sizeof bytes ? STREAM - at : sizeof bytes;
        for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(tutti_mix64(s->seed + (at + i) / 8) >> (at + i) % 8 * 8);
        for (size_t done = 0; done < n && s->good;) {
            const ssize_t sent = send(s->fd, bytes + done, n - done, MSG_NOSIGNAL);
            s->good = sent > 0;
            done += sent > 0 ? (size_t)sent : 0;
        }
    }
    shutdown(s->fd, SHUT_WR); /* half an end: the other direction goes on */
    return NULL;
}

static void *stream_receive(void *arg)
{
    struct stream *s = arg;
    static _Thread_local uint8_t bytes[50000];
    size_t at = 0;
    ssize_t n;
    s->good = true;
    while ((n = recv(s->fd, bytes, sizeof bytes, 0)) > 0)
        for (ssize_t i = 0; i < n; i++, at++)
            s->good = s->good && bytes[i] == (uint8_t)(tutti_mix64(s->seed + at / 8) >> at % 8 * 8);
    s->good = s->good && n == 0 && at == STREAM;
    return NULL;
}

static void streams_go_both_ways_at_once_to_their_ends(void **state)
{
    (void)state;
    int fds[2];
    pthread_t threads[4];
    pair_open(fds);
    struct stream streams[4] = {{fds[0], 1, false}, {fds[1], 1, false}, {fds[1], 2, false}, {fds[0], 2, false}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i % 2 ? stream_receive : stream_send, &streams[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) assert_true(streams[i].good);
    world_fini(&world);
}

/* Last words of who closes at once, and of who closes its net: all arrive, and then the end. */
static void last_words_arrive(void **state)
{
    (void)state;
    static uint8_t words[100000], heard[sizeof words];
    for (int net = 0; net < 2; net++) {
        int fds[2];
        size_t at = 0;
        ssize_t n;
        pair_open(fds);
        memset(words, 'w', sizeof words);
        assert_int_equal(send(fds[0], words, sizeof words, MSG_NOSIGNAL), sizeof words);
        pair_close(0);
        if (net) world_close(&world, 0);
        while (at < sizeof heard && (n = recv(fds[1], heard + at, sizeof heard - at, 0)) > 0) at += (size_t)n;
        assert_int_equal(at, sizeof words);
        assert_memory_equal(words, heard, sizeof words);
        assert_int_equal(recv(fds[1], heard, 1, 0), 0);
        world_fini(&world);
    }
}

static void say_and_close(struct tutti_loop_post *post)
{
    (void)post;
    assert_int_equal(send(world_told(&world, 0, TUTTI_NET_DATA, 1).fd, "goodbye", 7, MSG_NOSIGNAL), 7);
    pair_close(0);
}

/* What is said on the net's thread just before the net closes. */
static void last_words_arrive_though_the_net_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        int fds[2];
        char heard[8] = "";
        struct tutti_loop_post post = {.call = say_and_close};
        pair_open(fds);
        tutti_loop_post(tutti_net_loop(world.members[0].net), &post);
        tutti_net_close(world.members[0].net);
        world.members[0].net = NULL;
        assert_int_equal(recv(fds[1], heard, 7, MSG_WAITALL), 7);
        assert_string_equal(heard, "goodbye");
        assert_int_equal(recv(fds[1], heard, 1, 0), 0);
        world_fini(&world);
    }
}

static void a_reader_that_is_gone_ends_the_connection(void **state)
{
    (void)state;
    int fds[2];
    uint8_t byte = 'x';
    pair_open(fds);
    pair_close(1);
    assert_int_equal(recv(fds[0], &byte, 1, 0), 0);
    ssize_t n = 1;
    for (int i = 0; i < 2000 && n == 1; i++, tutti_sleep_ns(MS)) n = send(fds[0], &byte, 1, MSG_NOSIGNAL);
    assert_true(n < 0 && errno == EPIPE);
    world_fini(&world);
}

/* ---- data as streams ---- */

static struct tutti_stream *stream_of(uint32_t member, uint32_t peer)
{
    struct tutti_stream *stream = NULL;
    for (int i = 0; i < 20000 && !stream; i++, tutti_sleep_ns(MS))
        stream = world_told(&world, member, TUTTI_NET_DATA, peer).stream;
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
 * looks. Control stays a socket of this host. */
static void data_comes_as_streams(void **state)
{
    (void)state;
    world_init(&world, WORLD_MAX, "127.0.0.1");
    world.encrypt = 1 << TUTTI_NET_CONTROL | 1 << TUTTI_NET_DATA;
    world.streams = true;
    for (uint32_t i = 0; i < world.n; i++) world.secret[i] = "sesame";
    world_open_all(&world);
    for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
        for (uint32_t a = 0; a < world.n; a++)
            for (uint32_t b = 0; b < world.n; b++)
                if (a != b) world_want(&world, a, role, b);
    for (uint32_t a = 0; a < world.n; a++)
        for (uint32_t b = 0; b < world.n; b++) {
            char words[32];
            const struct iovec iov = {words, (size_t)snprintf(words, sizeof words, "%u to %u", a, b)};
            if (a == b) continue;
            struct tutti_stream *stream = stream_of(a, b);
            assert_int_equal(stream->ops->send(stream, &iov, 1), iov.iov_len);
        }
    for (uint32_t a = 0; a < world.n; a++)
        for (uint32_t b = 0; b < world.n; b++) {
            char words[32];
            snprintf(words, sizeof words, "%u to %u", b, a);
            if (a != b) stream_hears(stream_of(a, b), words);
            if (a != b) assert_int_equal(world_told(&world, a, TUTTI_NET_DATA, b).n_opened, 1);
            if (a < b) assert_true(world_wait_opened(&world, a, TUTTI_NET_CONTROL, b, 1));
        }
    world_fini(&world);
}

static int setup(void **state)
{
    signal(SIGPIPE, SIG_IGN); /* the net's thread has it blocked, this one uses TLS, too */
    return world_note_descriptors(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_stands_between_reads_nothing),
        cmocka_unit_test(another_key_does_not_open),
        cmocka_unit_test(what_passes_can_not_be_changed_or_repeated),
        cmocka_unit_test(members_talk_as_on_any_connection),
        cmocka_unit_test(streams_go_both_ways_at_once_to_their_ends),
        cmocka_unit_test(last_words_arrive),
        cmocka_unit_test(last_words_arrive_though_the_net_closes),
        cmocka_unit_test(a_reader_that_is_gone_ends_the_connection),
        cmocka_unit_test(data_comes_as_streams),
    };
    if (!tutti_tls_available()) return 0; /* built without OpenSSL */
    return cmocka_run_group_tests(tests, setup, world_check_descriptors);
}
