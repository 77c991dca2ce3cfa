/* SPDX-License-Identifier: BSD-3-Clause */

/* Listening and connecting: one port for both families, the interface that the user named and no other, and sentences
 * that say what exists. */

#include "test.h"

#include "control/net/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 64

static struct tutti_listener *listener_at(const char *interface)
{
    const struct tutti_listener_config config = {.interface = interface};
    struct tutti_listener *listener = NULL;
    assert_int_equal(tutti_listener_open(&config, &listener), TUTTI_OK);
    assert_true(tutti_listener_port(listener) > 0);
    return listener;
}

/* The errno with which a connection is decided; 0: it is there. -1: not in 5 s. */
static int decided(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int failed = 0;
    socklen_t n = sizeof failed;
    if (poll(&wait, 1, 5000) != 1) return -1;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &n), 0);
    return failed;
}

/* Connects; 0 and the socket, or why not. */
static int connects(const struct tutti_net_address *address, uint16_t port, const char *interface, int *fd)
{
    if (tutti_net_connect(address, port, interface, NULL, fd) < 0) return tutti_last_error()->os_errno;
    const int failed = decided(*fd);
    if (failed) close(*fd);
    return failed;
}

static int accepted(struct tutti_listener *listener)
{
    struct pollfd wait = {.fd = tutti_listener_fd(listener), .events = POLLIN};
    return poll(&wait, 1, 5000) == 1 ? tutti_listener_accept(listener) : -1;
}

/* Every address that a listener names leads to it, and both ends see which it is. */
static void addresses_lead(struct tutti_listener *listener, const char *interface)
{
    struct tutti_net_address addresses[N], seen;
    const uint32_t n = tutti_listener_addresses(listener, addresses, N);
    assert_true(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        int fd;
        assert_int_equal(connects(&addresses[i], tutti_listener_port(listener), interface, &fd), 0);
        const int end = accepted(listener);
        assert_true(end >= 0);
        assert_true(tutti_net_address_of(end, false, &seen));
        assert_memory_equal(&seen, &addresses[i], sizeof seen);
        assert_true(tutti_net_address_of(fd, true, &seen));
        assert_memory_equal(&seen, &addresses[i], sizeof seen);
        int on = 0;
        socklen_t size = sizeof on;
        assert_int_equal(getsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
        assert_true(on && fcntl(end, F_GETFL) & O_NONBLOCK && fcntl(end, F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK && fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(tutti_listener_accept(listener), -1);
        assert_int_equal(errno, EAGAIN);
        close(fd), close(end);
    }
}

static void congestion_of(int fd, char name[16])
{
    socklen_t bytes = 16;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
}

/* Both ends, on a system whose default may be another one. */
static void congestion_is_as_asked(void **state)
{
    static const char *const asked[] = {"auto", "reno", "system", "no-such-thing"};
    const struct tutti_net_address local = {.family = 4, .bytes = {127, 0, 0, 1}};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(asked); i++) {
        char expected[4][16] = {"cubic", "reno"}, name[16];
        const int plain = socket(AF_INET, SOCK_STREAM, 0);
        const struct tutti_listener_config config = {.interface = "", .congestion = asked[i]};
        struct tutti_listener *listener = NULL;
        int fd;
        if (!expected[i][0]) congestion_of(plain, expected[i]);
        close(plain);
        assert_int_equal(tutti_listener_open(&config, &listener), TUTTI_OK);
        assert_int_equal(tutti_net_connect(&local, tutti_listener_port(listener), "", asked[i], &fd), TUTTI_OK);
        assert_int_equal(decided(fd), 0);
        const int end = accepted(listener);
        congestion_of(fd, name);
        assert_string_equal(name, expected[i]);
        congestion_of(end, name);
        assert_string_equal(name, expected[i]);
        close(fd), close(end);
        tutti_listener_close(listener);
    }
}

static bool is_loopback(const struct tutti_net_address *address)
{
    static const uint8_t one[16] = {[15] = 1};
    return address->family == 4 ? address->bytes[0] == 127 : memcmp(address->bytes, one, sizeof one) == 0;
}

static void any_address_leads_to_the_one_port(void **state)
{
    (void)state;
    struct tutti_net_address addresses[N], one;
    struct tutti_listener *listener = listener_at("");
    addresses_lead(listener, "");
    const uint32_t n = tutti_listener_addresses(listener, addresses, N);
    for (uint32_t i = 1; i < n; i++) assert_true(is_loopback(&addresses[i]) || !is_loopback(&addresses[i - 1]));
    assert_int_equal(tutti_listener_addresses(listener, &one, 1), 1);
    assert_memory_equal(&one, &addresses[0], sizeof one);
    tutti_listener_close(listener);
}

static void an_interface_is_named_by_name_address_or_network(void **state)
{
    (void)state;
    static const struct {
        const char *interface, *address;
        bool reached; /* the address, at this listener */
    } cases[] = {
        {"lo", "127.0.0.1", true},           {"127.0.0.1", "127.0.0.1", true},    {"127.0.0.0/8", "127.0.0.1", true},
        {"127.0.0.1/32", "127.0.0.1", true}, {"127.0.0.1%lo", "127.0.0.1", true}, {"127.0.0.1", "127.0.0.2", false},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct tutti_listener *listener = listener_at(cases[i].interface);
        struct tutti_net_address address;
        int fd;
        assert_true(tutti_net_address_parse(cases[i].address, &address));
        const int failed = connects(&address, tutti_listener_port(listener), "", &fd);
        assert_int_equal(failed, cases[i].reached ? 0 : ECONNREFUSED);
        if (!failed) close(fd), close(accepted(listener));
        addresses_lead(listener, cases[i].interface);
        tutti_listener_close(listener);
    }
}

/* A host with another interface: a listener at `lo` is not there for others. */
static void others_do_not_reach_what_was_not_named(void **state)
{
    (void)state;
    struct tutti_net_local locals[TUTTI_NET_LOCALS];
    uint32_t n;
    struct tutti_listener *listener = listener_at("lo");
    assert_int_equal(tutti_net_locals("", locals, &n), TUTTI_OK);
    for (uint32_t i = 0; i < n; i++) {
        int fd;
        if (is_loopback(&locals[i].address)) continue;
        assert_int_equal(connects(&locals[i].address, tutti_listener_port(listener), "", &fd), ECONNREFUSED);
        /* Named by its own name it can be reached, link-local addresses, too. */
        struct tutti_listener *own = listener_at(locals[i].interface);
        addresses_lead(own, locals[i].interface);
        tutti_listener_close(own);
    }
    tutti_listener_close(listener);
}

static void who_names_what_is_not_there_reads_what_is(void **state)
{
    (void)state;
    static const char *const wrong[] = {"no-such-interface", "192.0.2.77",      "203.0.113.0/24", "127.0.0.0/40",
                                        "127.0.0.1/",        "127.0.0.1%eth77", "2001:db8::77"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) {
        const struct tutti_listener_config config = {.interface = wrong[i]};
        struct tutti_listener *listener = NULL;
        assert_int_equal(tutti_listener_open(&config, &listener), TUTTI_ERR_CONFIG);
        assert_null(listener);
        assert_non_null(strstr(tutti_last_error()->text, wrong[i]));
        assert_non_null(strstr(tutti_last_error()->text, "there is no such interface or address"));
        assert_non_null(strstr(tutti_last_error()->text, "lo (127.0.0.1)"));
    }
}

/* n ports in a row that are free, as the option port_range has them. */
static uint64_t free_ports(uint16_t n)
{
    const struct tutti_listener_config any_port = {.interface = ""};
    for (uint32_t first = 30000 + (uint32_t)getpid() % 20000; first < 60000; first += n) {
        struct tutti_listener *held[8];
        uint16_t n_held = 0;
        struct tutti_listener_config one = any_port;
        for (; n_held < n; n_held++) {
            one.ports = (uint64_t)(first + n_held) << 16 | (first + n_held);
            if (tutti_listener_open(&one, &held[n_held]) < 0) break;
        }
        for (uint16_t i = 0; i < n_held; i++) tutti_listener_close(held[i]);
        if (n_held == n) return (uint64_t)first << 16 | (first + n - 1u);
    }
    fail_msg("no ports are free");
    return 0;
}

static void a_range_of_ports_is_kept_until_it_is_used_up(void **state)
{
    (void)state;
    const uint64_t range = free_ports(3);
    const char *const interfaces[] = {"", "lo"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(interfaces); i++) {
        const struct tutti_listener_config config = {.interface = interfaces[i], .ports = range};
        struct tutti_listener *held[3], *one_more = NULL;
        bool seen[3] = {false};
        char words[64];
        for (int l = 0; l < 3; l++) {
            assert_int_equal(tutti_listener_open(&config, &held[l]), TUTTI_OK);
            const uint32_t port = tutti_listener_port(held[l]) - (uint32_t)(range >> 16);
            assert_true(port < 3 && !seen[port]);
            seen[port] = true;
        }
        assert_int_equal(tutti_listener_open(&config, &one_more), TUTTI_ERR_SYSTEM);
        snprintf(words, sizeof words, "none of the 3 ports of TUTTI_PORT_RANGE=%u-%u is free", (unsigned)(range >> 16),
                 (unsigned)(range & UINT16_MAX));
        assert_non_null(strstr(tutti_last_error()->text, words));
        for (int l = 0; l < 3; l++) tutti_listener_close(held[l]);
    }
}

/* In a network namespace of its own, where nothing is up. Returns 0, or the line that failed; 255: not allowed. */
#define CHILD_CHECK(claim)                                                                                             \
    if (!(claim)) return __LINE__ % 250
static int without_network(void)
{
    const struct tutti_listener_config any = {.interface = ""}, lo = {.interface = "lo"};
    const struct tutti_net_address far = {.family = 4, .bytes = {198, 51, 100, 7}};
    struct tutti_listener *listener;
    int fd;
    if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) return 255;
    CHILD_CHECK(tutti_listener_open(&any, &listener) == TUTTI_ERR_CONFIG);
    CHILD_CHECK(strstr(tutti_last_error()->text, "no interface is up"));
    CHILD_CHECK(tutti_listener_open(&lo, &listener) == TUTTI_ERR_CONFIG);
    CHILD_CHECK(strstr(tutti_last_error()->text, "it is down or has no address"));
    CHILD_CHECK(connects(&far, 1, "", &fd) == ENETUNREACH);
    CHILD_CHECK(strstr(tutti_last_error()->text, "198.51.100.7 port 1"));
    return 0;
}

static void a_host_without_network_says_so(void **state)
{
    (void)state;
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(without_network());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 255) skip(); /* no namespaces for this user */
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void addresses_as_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *again; /* NULL: it is none */
        uint8_t family;
    } cases[] = {
        {"10.0.0.1", "10.0.0.1", 4},
        {"255.255.255.255", "255.255.255.255", 4},
        {"fe80::1", "fe80::1", 6},
        {"2001:DB8:0:0::1", "2001:db8::1", 6},
        {"::", "::", 6},
        {"", NULL, 0},
        {"10.0.0", NULL, 0},
        {"10.0.0.256", NULL, 0},
        {"10.0.0.1 ", NULL, 0},
        {"host", NULL, 0},
        {"fe80::1%lo", NULL, 0},
        {"1:2", NULL, 0},
    };
    struct tutti_net_address address;
    char text[46];
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        address.family = 77;
        assert_int_equal(tutti_net_address_parse(cases[i].text, &address), cases[i].again != NULL);
        assert_int_equal(address.family, cases[i].again ? cases[i].family : 77);
        if (cases[i].again) assert_string_equal(tutti_net_address_text(&address, text, sizeof text), cases[i].again);
    }
    address = (struct tutti_net_address){.family = 0};
    assert_string_equal(tutti_net_address_text(&address, text, sizeof text), "no address");
    int fd;
    assert_int_equal(tutti_net_connect(&address, 5, "", NULL, &fd), TUTTI_ERR_SYSTEM);
    assert_false(tutti_net_address_of(0, true, &address)); /* no socket */
}

static void nobody_listens_is_refused(void **state)
{
    (void)state;
    struct tutti_listener *listener = listener_at("127.0.0.1");
    const uint16_t port = tutti_listener_port(listener);
    const struct tutti_net_address address = {.family = 4, .bytes = {127, 0, 0, 1}};
    int fd;
    tutti_listener_close(listener);
    assert_int_equal(connects(&address, port, "", &fd), ECONNREFUSED);
}

static uint32_t descriptors(void)
{
    uint32_t n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}
static uint32_t n_before;

static int setup(void **state)
{
    (void)state;
    n_before = descriptors();
    return 0;
}

static int nothing_is_left(void **state)
{
    (void)state;
    return descriptors() == n_before ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_address_leads_to_the_one_port),
        cmocka_unit_test(an_interface_is_named_by_name_address_or_network),
        cmocka_unit_test(others_do_not_reach_what_was_not_named),
        cmocka_unit_test(who_names_what_is_not_there_reads_what_is),
        cmocka_unit_test(a_range_of_ports_is_kept_until_it_is_used_up),
        cmocka_unit_test(a_host_without_network_says_so),
        cmocka_unit_test(congestion_is_as_asked),
        cmocka_unit_test(addresses_as_text),
        cmocka_unit_test(nobody_listens_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, nothing_is_left);
}
