/* SPDX-License-Identifier: BSD-3-Clause */
/* Gates against whoever finds their port: frames come back as they were, and nothing else is taken for one; who is not
 * proved opens itself alone, once. */

#include "base/session.h"
#include "control/meet/door.h"
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 4 };

static struct door door;
static struct tutti_meeting meeting;
static struct tutti_meeting_request request = {.n_ranks = RANKS};
static uint32_t n_opened, n_closed, n_astray;
static size_t n_received;

static void opened(void *arg, struct end *end, int32_t pid)
{
    (void)arg, (void)end;
    assert_int_equal(pid, 0);
    n_opened++;
}
static void received(void *arg, struct end *end, const uint8_t *bytes, size_t n)
{
    (void)arg, (void)bytes;
    assert_true(end->gate && n <= GATE_FRAME_MAX);
    n_received += n;
}
static void closed(void *arg, struct end *end, bool astray)
{
    (void)arg, (void)end;
    n_closed++;
    n_astray += astray;
}
static void full(void *arg)
{
    (void)arg;
    fail_msg("no descriptors");
}
static const struct door_ops ops = {.opened = opened, .received = received, .closed = closed, .full = full};

static void begin(void)
{
    const struct tutti_listener_config config = {.interface = "127.0.0.1"};
    memset(&meeting, 0, sizeof meeting);
    assert_int_equal(tutti_listener_open(&config, &meeting.listener), TUTTI_OK);
    meeting.request = &request, meeting.listen_fd = -1, meeting.wake_fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(door_open(&door, &meeting, &ops, NULL), TUTTI_OK);
    n_opened = n_closed = n_astray = 0, n_received = 0;
}

static void end(void)
{
    door_close(&door);
    close(meeting.wake_fd);
    tutti_listener_close(meeting.listener);
}

static void steps(int n)
{
    for (int i = 0; i < n; i++) door_step(&door, 2 * TUTTI_NS_PER_MS, NULL);
}

static int stranger(void)
{
    struct tutti_net_address address;
    int fd = -1;
    assert_true(tutti_net_address_parse("127.0.0.1", &address));
    assert_int_equal(tutti_net_connect(&address, tutti_listener_port(meeting.listener), "", "", &fd), TUTTI_OK);
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    assert_int_equal(poll(&room, 1, 5000), 1);
    return fd;
}

static void say(int fd, uint8_t what, uint32_t number, const uint8_t *bytes, size_t n)
{
    uint8_t frame[64];
    tutti_le_store(frame, 4, GATE_HEAD - 4 + n);
    frame[4] = what;
    tutti_le_store(frame + 5, 4, number);
    if (n > 0) memcpy(frame + GATE_HEAD, bytes, n);
    assert_int_equal(send(fd, frame, GATE_HEAD + n, MSG_NOSIGNAL), GATE_HEAD + n);
}

static bool is_closed(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET); /* the latter when it had not read all */
}

static const uint8_t here[32] = {0}, there[32] = {4, 10, 0, 0, 2};

/* Each is cut off, and nobody is let in for it. */
static void strangers_are_cut_off(void **state)
{
    static const struct {
        uint8_t what;
        uint32_t number;
        size_t n;
        bool known; /* that the address is said */
    } first[] = {{GATE_OPEN, 1, GATE_ADDRESS, false},
                 {GATE_OPEN, 0, GATE_ADDRESS, true},
                 {GATE_OPEN, 0, GATE_ADDRESS - 1, false},
                 {GATE_CLOSED, 0, 2, false},
                 {GATE_GRANT, 0, 0, false},
                 {GATE_DROP, 0, 0, false},
                 {GATE_PROVED, 0, 0, false},
                 {GATE_TABLE, 8, 8, false},
                 {0, 0, 0, false},
                 {255, UINT32_MAX, 20, false}};
    (void)state;
    begin();
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(first); i++) {
        const int fd = stranger();
        say(fd, first[i].what, first[i].number, first[i].known ? there : here, first[i].n);
        steps(8);
        assert_true(is_closed(fd));
        close(fd);
        assert_true(door.n_gates == 0 && n_opened == 0);
    }
    end();
}

static void who_is_not_proved_opens_itself_alone(void **state)
{
    const uint8_t was_astray = 1;
    (void)state;
    begin();
    for (int proved = 0; proved < 2; proved++) {
        const int fd = stranger();
        n_opened = n_closed = n_astray = 0, n_received = 0;
        say(fd, GATE_OPEN, 0, here, GATE_ADDRESS);
        say(fd, GATE_SAY, 0, (const uint8_t *)"hello", 5);
        steps(8);
        assert_true(door.n_gates == 1 && n_opened == 1 && n_received == 5);
        door.gates[0]->proved = proved;
        say(fd, GATE_OPEN, 1, there, GATE_ADDRESS);
        say(fd, GATE_OPEN, 2, here, GATE_ADDRESS);
        steps(8);
        assert_int_equal(n_opened, proved ? 3 : 1);
        assert_true(is_closed(fd) == !proved);
        if (proved) {
            assert_int_equal(door.ends[gate_number_find(door.gates[0], 1)].address.bytes[3], 2);
            assert_int_equal(door.ends[gate_number_find(door.gates[0], 2)].address.bytes[0], 127);
            say(fd, GATE_CLOSED, 2, &was_astray, 1);
            say(fd, GATE_SAY, 2, here, 4); /* it is gone */
            steps(8);
            assert_true(n_closed == 1 && n_astray == 1 && n_received == 5);
        }
        close(fd);
        steps(8);
        assert_int_equal(n_closed, proved ? 3 : 1); /* the first died, who came by it lost its way */
        assert_int_equal(n_astray, proved ? 2 : 0);
        assert_int_equal(door.n_gates, 0);
    }
    end();
}

/* More than are let in; then random bytes, some of them in frames of the right length. The door stays open. */
static void floods_and_garbage(void **state)
{
    int fds[3 * DOOR_UNPROVED];
    uint64_t seed = test_seed();
    (void)state;
    begin();
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(fds); i++) fds[i] = stranger(), steps(1);
    steps(8);
    assert_in_range(door.n_gates, 1, DOOR_UNPROVED);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(fds); i++) {
        uint8_t junk[512];
        for (size_t b = 0; b < sizeof junk; b++) junk[b] = (uint8_t)tutti_random64(&seed);
        if (i % 2) tutti_le_store(junk, 4, GATE_HEAD - 4 + tutti_random64(&seed) % 40), junk[4] %= GATE_TABLE + 1;
        if (i % 4 == 1) tutti_le_store(junk + 5, 4, tutti_random64(&seed) % 3);
        send(fds[i], junk, tutti_random64(&seed) % sizeof junk, MSG_NOSIGNAL);
        steps(1);
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(fds); i++) close(fds[i]);
    steps(20);
    assert_int_equal(door.n_gates, 0);
    assert_int_equal(n_opened, n_closed);
    const int fd = stranger();
    say(fd, GATE_OPEN, 0, here, GATE_ADDRESS);
    steps(8);
    assert_int_equal(n_opened, n_closed + 1);
    close(fd);
    end();
}

static void frames_come_back(void **state)
{
    static uint8_t bytes[GATE_FRAME_MAX];
    uint64_t seed = test_seed();
    struct gate_frame frame;
    struct gate a, b;
    int fds[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    assert_true(gate_open(&a, fds[0], NULL, 100) == TUTTI_OK && gate_open(&b, fds[1], NULL, 100) == TUTTI_OK);
    for (size_t i = 0; i < 1000; i++) { /* bursts of frames, more than what is gathered at once */
        const size_t n_frames = 1 + tutti_random64(&seed) % 9,
                     n = tutti_random64(&seed) % (TUTTI_MEETING_FRAME_MAX - 9);
        for (size_t k = 0; k < n + 9; k++) bytes[k] = (uint8_t)(k + i);
        for (size_t f = 0; f < n_frames; f++) gate_send(&a, GATE_SAY, (uint32_t)(i * f), bytes + f, n);
        gate_flush(&a);
        for (size_t f = 0; f < n_frames; f++) {
            assert_int_equal(gate_recv(&b, &frame), TUTTI_OK);
            assert_true(frame.what == GATE_SAY && frame.number == i * f && frame.n == n);
            assert_memory_equal(frame.bytes, bytes + f, n);
        }
        assert_int_equal(gate_recv(&b, &frame), TUTTI_PENDING);
    }
    assert_true(gate_number_set(&a, 7, 3) && !gate_number_set(&a, 7, 4) && !gate_number_set(&a, 100, 4));
    assert_int_equal(gate_number_find(&a, 7), 3);
    assert_int_equal(gate_number_find(&a, 99), UINT32_MAX);
    gate_number_forget(&a, 7);
    assert_int_equal(gate_number_find(&a, 7), UINT32_MAX);
    tutti_le_store(bytes, 4, GATE_FRAME_MAX); /* longer than any */
    assert_int_equal(send(a.fd, bytes, GATE_HEAD, 0), GATE_HEAD);
    assert_int_equal(gate_recv(&b, &frame), TUTTI_AGAIN);
    gate_close(&a);
    gate_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_back),
        cmocka_unit_test(strangers_are_cut_off),
        cmocka_unit_test(who_is_not_proved_opens_itself_alone),
        cmocka_unit_test(floods_and_garbage),
    };
    setenv("TUTTI_LOG", "error", 0); /* the refusals are on purpose */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
