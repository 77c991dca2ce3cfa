/* SPDX-License-Identifier: BSD-3-Clause */

/* Encrypted data: what is sent arrives, however it is cut and offered again; and what is changed, repeated, left out or
 * cut off is noticed before anybody is told of it. */

#include "test.h"

#include "control/net/cipher.h"
#include "control/net/net_test.h"

#include <errno.h>

/* ---- two ends ---- */

struct end {
    struct tutti_stream *stream;
    int fd;
};

/* Over a pair of sockets, or (ours) each with a socket whose other end the test holds. */
static void ends_open(struct end ends[2], int ours[2], uint64_t renewed, int buffer)
{
    int a[2], b[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, a), 0);
    if (ours) assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, b), 0);
    ends[0].fd = a[0], ends[1].fd = ours ? b[0] : a[1];
    if (ours) ours[0] = a[1], ours[1] = b[1];
    for (int i = 0; i < 2; i++) {
        struct tutti_cipher_config config = {.fd = ends[i].fd, .renewed = renewed};
        memset(config.in, 1 + i, sizeof config.in);
        memset(config.out, 2 - i, sizeof config.out);
        if (buffer) setsockopt(ends[i].fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        assert_int_equal(tutti_cipher_open(&config, &ends[i].stream), TUTTI_OK);
    }
}

static void ends_close(struct end ends[2])
{
    for (int i = 0; i < 2; i++) {
        ends[i].stream->ops->close(ends[i].stream);
        close(ends[i].fd);
    }
}

static ssize_t say(struct end *end, const void *bytes, size_t n)
{
    const struct iovec iov = {(void *)(uintptr_t)bytes, n};
    return end->stream->ops->send(end->stream, &iov, 1);
}

static ssize_t hear(struct end *end, void *bytes, size_t n)
{
    const struct iovec iov = {bytes, n};
    return end->stream->ops->recv(end->stream, &iov, 1);
}

/* ---- what is sent arrives ---- */

static uint64_t state_of_random = 1;

static size_t below(size_t n)
{
    return (size_t)(tutti_mix64(state_of_random++) % n);
}

/* Pieces of so many bytes of memory, some of them empty. */
static size_t cut(uint8_t *bytes, size_t n, struct iovec iov[8])
{
    size_t at = 0, n_iov = 0;
    for (; n_iov < 7 && at < n; n_iov++) {
        const size_t run = below(4) == 0 ? 0 : below(n - at + 1);
        iov[n_iov] = (struct iovec){bytes + at, run};
        at += run;
    }
    iov[n_iov++] = (struct iovec){bytes + at, n - at};
    return n_iov;
}

#define STREAM ((size_t)3 << 20)

/* One step of a way: offers some bytes again and again, in other pieces and numbers, and reads some. */
static void way_step(struct end *from, struct end *to, uint8_t *bytes, size_t *sent, uint8_t *heard, size_t *got)
{
    static const size_t sizes[] = {1, 80, 5000, 70000, 700000};
    struct iovec iov[8];
    size_t n = 1 + below(sizes[below(5)]);
    if (n > STREAM - *sent) n = STREAM - *sent;
    ssize_t moved = n ? from->stream->ops->send(from->stream, iov, cut(bytes + *sent, n, iov)) : 0;
    assert_true(moved >= 0 ? moved <= (ssize_t)n : errno == EAGAIN);
    if (moved > 0) *sent += (size_t)moved;
    n = 1 + below(sizes[below(5)]);
    if (n > STREAM - *got) n = STREAM - *got;
    moved = n ? to->stream->ops->recv(to->stream, iov, cut(heard + *got, n, iov)) : 0;
    assert_true(moved >= 0 ? moved <= (ssize_t)n : errno == EAGAIN);
    if (moved > 0) *got += (size_t)moved;
}

static void all_arrives_however_it_is_cut(void **state)
{
    (void)state;
    uint8_t *bytes = malloc(STREAM), *heard[2] = {malloc(STREAM), malloc(STREAM)}, last;
    assert_true(bytes && heard[0] && heard[1]);
    for (size_t i = 0; i < STREAM; i += 8) memcpy(bytes + i, &(uint64_t){tutti_mix64(i)}, 8);
    for (int buffer = 0; buffer <= 4096; buffer += 4096) {
        struct end ends[2];
        size_t sent[2] = {0}, got[2] = {0};
        ends_open(ends, NULL, 7, buffer);
        while (got[0] < STREAM || got[1] < STREAM)
            for (int i = 0; i < 2; i++) way_step(&ends[i], &ends[1 - i], bytes, &sent[i], heard[i], &got[i]);
        for (int i = 0; i < 2; i++) assert_memory_equal(heard[i], bytes, STREAM);
        for (int i = 0; i < 2; i++) ends[i].stream->ops->finish(ends[i].stream);
        for (int i = 0; i < 2; i++) assert_int_equal(hear(&ends[i], &last, 1), 0);
        ends_close(ends);
    }
    free(bytes), free(heard[0]), free(heard[1]);
}

static void what_was_read_and_not_given_is_held(void **state)
{
    (void)state;
    struct end ends[2];
    char text[8];
    ends_open(ends, NULL, 0, 0);
    assert_int_equal(say(&ends[0], "abcdef", 6), 6);
    assert_false(ends[1].stream->ops->holds(ends[1].stream));
    assert_int_equal(hear(&ends[1], text, 2), 2);
    assert_true(ends[1].stream->ops->holds(ends[1].stream));
    assert_int_equal(hear(&ends[1], text, 8), 4);
    assert_memory_equal(text, "cdef", 4);
    assert_false(ends[1].stream->ops->holds(ends[1].stream));
    ends_close(ends);
}

/* ---- who stands between ---- */

#define WORDS "the words of members"
#define FRAME (TUTTI_CIPHER_HEAD + sizeof WORDS + TUTTI_CIPHER_TAG)

/* Three records, taken on their way. */
static void three_take(struct end ends[2], int ours[2], uint8_t records[3][FRAME])
{
    ends_open(ends, ours, 0, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(say(&ends[0], WORDS, sizeof WORDS), sizeof WORDS);
        assert_int_equal(recv(ours[0], records[i], FRAME, 0), FRAME);
        assert_null(memmem(records[i], FRAME, "words", 5));
    }
    assert_memory_not_equal(records[0], records[1], FRAME);
}

static void three_end(struct end ends[2], int ours[2])
{
    ends_close(ends);
    close(ours[0]), close(ours[1]);
}

static void no_bit_can_be_changed(void **state)
{
    (void)state;
    for (size_t bit = 0; bit < 8 * FRAME; bit++) {
        struct end ends[2];
        int ours[2];
        uint8_t records[3][FRAME], text[2 * sizeof WORDS];
        three_take(ends, ours, records);
        records[0][bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(send(ours[1], records, sizeof records, 0), sizeof records);
        close(ours[1]); /* a record that seems to be longer does not come */
        for (int i = 0; i < 3; i++) assert_int_equal(hear(&ends[1], text, sizeof text), -1);
        assert_true(errno == EPROTO || errno == ECONNRESET);
        ends_close(ends);
        close(ours[0]);
    }
}

static void none_can_be_left_out_repeated_or_moved(void **state)
{
    (void)state;
    static const int orders[][3] = {{1, 0, 2}, {0, 0, 1}, {0, 2, 1}, {0, 1, 0}, {0, 1, 1}};
    for (size_t o = 0; o < TUTTI_ARRAY_LEN(orders); o++) {
        struct end ends[2];
        int ours[2];
        uint8_t records[3][FRAME], text[sizeof WORDS];
        ssize_t n = 1;
        three_take(ends, ours, records);
        for (int i = 0; i < 3; i++) assert_int_equal(send(ours[1], records[orders[o][i]], FRAME, 0), FRAME);
        for (int i = 0; i < 3 && n > 0; i++) {
            n = hear(&ends[1], text, sizeof text);
            assert_int_equal(n, orders[o][i] == i ? (ssize_t)sizeof text : -1);
        }
        assert_int_equal(n, -1);
        assert_int_equal(errno, EPROTO);
        three_end(ends, ours);
    }
}

static void nothing_comes_back(void **state)
{
    (void)state;
    struct end ends[2];
    int ours[2];
    uint8_t records[3][FRAME], text[sizeof WORDS];
    three_take(ends, ours, records);
    assert_int_equal(send(ours[0], records, sizeof records, 0), sizeof records); /* to who said it */
    assert_int_equal(hear(&ends[0], text, sizeof text), -1);
    assert_int_equal(errno, EPROTO);
    three_end(ends, ours);
}

static void an_end_that_was_not_said_is_none(void **state)
{
    (void)state;
    for (int said = 0; said < 2; said++) {
        struct end ends[2];
        int ours[2];
        uint8_t records[3][FRAME], end[64], text[sizeof WORDS];
        three_take(ends, ours, records);
        assert_int_equal(send(ours[1], records, sizeof records, 0), sizeof records);
        ends[0].stream->ops->finish(ends[0].stream);
        const ssize_t n = recv(ours[0], end, sizeof end, 0);
        assert_int_equal(n, TUTTI_CIPHER_HEAD + TUTTI_CIPHER_TAG);
        if (said) assert_int_equal(send(ours[1], end, (size_t)n, 0), n);
        shutdown(ours[1], SHUT_WR);
        for (int i = 0; i < 3; i++) assert_int_equal(hear(&ends[1], text, sizeof text), sizeof text);
        assert_int_equal(hear(&ends[1], text, sizeof text), said ? 0 : -1);
        if (!said) assert_int_equal(errno, ECONNRESET);
        three_end(ends, ours);
    }
}

static int setup(void **state)
{
    (void)state;
    tutti_log_threshold = TUTTI_LOG_ERROR;
    return 0;
}

/* The other end says something and goes: who sends to it then fails, and still hears what it said. */
static void what_has_come_outlives_a_send_that_fails(void **state)
{
    (void)state;
    struct end ends[2];
    char said[64] = "";
    ends_open(ends, NULL, 0, 0);
    assert_int_equal(say(&ends[0], "I leave", 8), 8);
    shutdown(ends[0].fd, SHUT_RDWR);
    while (say(&ends[1], "a question", 11) >= 0) {
    }
    assert_true(errno == EPIPE || errno == ECONNRESET);
    assert_int_equal(hear(&ends[1], said, sizeof said), 8);
    assert_string_equal(said, "I leave");
    assert_int_equal(hear(&ends[1], said, sizeof said), -1);
    assert_int_equal(errno, ECONNRESET);
    ends_close(ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_come_outlives_a_send_that_fails), cmocka_unit_test(all_arrives_however_it_is_cut),
        cmocka_unit_test(what_was_read_and_not_given_is_held),      cmocka_unit_test(no_bit_can_be_changed),
        cmocka_unit_test(none_can_be_left_out_repeated_or_moved),   cmocka_unit_test(nothing_comes_back),
        cmocka_unit_test(an_end_that_was_not_said_is_none),
    };
    if (!tutti_hmac_available()) return 0;
    return cmocka_run_group_tests_name("control.cipher", tests, setup, NULL);
}
