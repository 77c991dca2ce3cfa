/* SPDX-License-Identifier: BSD-3-Clause */
/* More sockets to a peer: which interfaces go together, what is told of them, and that each is proved and encrypted. */

#include "test.h"

#include "control/net/conn.h"
#include "control/net/net_test.h"

static struct tutti_net_interface interface_of(const char *text, uint32_t speed)
{
    struct tutti_net_interface interface = {.prefix = 24, .speed = speed};
    char address[46];
    snprintf(address, sizeof address, "%.45s", text);
    assert_true(tutti_net_address_parse(address, &interface.address));
    return interface;
}

/* "10.0.0.1>10.0.0.2 ..." */
static void ways_text(const struct tutti_net_way *ways, uint32_t n, char *out, size_t capacity)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && at < capacity; i++) {
        char to[46];
        at += (size_t)snprintf(out + at, capacity - at, "%s%s>%s", i ? " " : "", ways[i].from,
                               tutti_net_address_text(&ways[i].to, to, sizeof to));
    }
}

static void interfaces_go_together(void **state)
{
    static const struct {
        const char *mine[3], *theirs[3];
        uint32_t speed, sockets;
        const char *ways;
    } cases[] = {
        {{"10.0.0.1"}, {"10.0.0.2"}, 10000, 0, ""}, /* the first socket does as well */
        {{"10.0.0.1"}, {"10.0.0.2"}, 0, 0, ""},
        {{"10.0.0.1"}, {"10.0.0.2"}, 100000, 1, ""},
        {{"10.0.0.1"}, {"10.0.0.2"}, 25000, 0, "10.0.0.1>10.0.0.2 10.0.0.1>10.0.0.2"},
        {{"10.0.0.1"}, {"10.0.0.2"}, 0, 3, "10.0.0.1>10.0.0.2 10.0.0.1>10.0.0.2 10.0.0.1>10.0.0.2"},
        {{"10.0.0.1", "10.1.0.1"}, {"10.0.0.2", "10.1.0.2"}, 1000, 0, "10.0.0.1>10.0.0.2 10.1.0.1>10.1.0.2"},
        /* the other end names them in another order */
        {{"10.1.0.1", "10.0.0.1"}, {"10.0.0.2", "10.1.0.2"}, 1000, 0, "10.0.0.1>10.0.0.2 10.1.0.1>10.1.0.2"},
        /* in one network, or in none */
        {{"10.0.0.1", "10.0.0.3"}, {"10.0.0.2", "10.0.0.4"}, 0, 0, "10.0.0.1>10.0.0.2 10.0.0.3>10.0.0.4"},
        {{"10.0.0.1", "10.1.0.1"}, {"10.8.0.2", "10.9.0.2"}, 0, 0, "10.0.0.1>10.8.0.2 10.1.0.1>10.9.0.2"},
        {{"10.0.0.1", "10.0.0.3"}, {"10.0.0.2"}, 0, 0, "10.0.0.1>10.0.0.2 10.0.0.3>10.0.0.2"},
        {{"10.0.0.1"}, {"10.0.0.2", "10.0.0.4"}, 0, 0, "10.0.0.1>10.0.0.2 10.0.0.1>10.0.0.4"},
        {{"10.0.0.1", "10.1.0.1"},
         {"10.0.0.2", "10.1.0.2"},
         0,
         2,
         "10.0.0.1>10.0.0.2 10.1.0.1>10.1.0.2 10.0.0.1>10.0.0.2 10.1.0.1>10.1.0.2"},
        {{"10.0.0.1"}, {NULL}, 100000, 8, ""},
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct tutti_net_interface mine[3], theirs[3];
        struct tutti_net_way ways[TUTTI_NET_PATHS];
        uint32_t n_mine = 0, n_theirs = 0;
        char text[400];
        for (; n_mine < 3 && cases[i].mine[n_mine]; n_mine++)
            mine[n_mine] = interface_of(cases[i].mine[n_mine], 400000);
        for (; n_theirs < 3 && cases[i].theirs[n_theirs]; n_theirs++)
            theirs[n_theirs] = interface_of(cases[i].theirs[n_theirs], cases[i].speed); /* the slower one counts */
        ways_text(ways, tutti_net_ways(mine, n_mine, theirs, n_theirs, cases[i].sockets, ways), text, sizeof text);
        assert_string_equal(text, cases[i].ways);
    }
    struct tutti_net_interface many[TUTTI_NET_INTERFACES];
    struct tutti_net_way ways[TUTTI_NET_PATHS];
    for (uint32_t i = 0; i < TUTTI_NET_INTERFACES; i++) many[i] = interface_of("10.0.0.1", 0);
    assert_int_equal(tutti_net_ways(many, TUTTI_NET_INTERFACES, many, TUTTI_NET_INTERFACES, 16, ways), TUTTI_NET_PATHS);
}

static void what_is_told_is_read(void **state)
{
    const struct tutti_net_interface list[] = {interface_of("10.0.0.1", 25000), interface_of("fd77::1", 0)};
    struct tutti_net_interface read[TUTTI_NET_INTERFACES];
    uint8_t bytes[TUTTI_NET_TOLD];
    (void)state;
    const size_t n = tutti_net_interfaces_encode(list, 2, bytes);
    assert_int_equal(tutti_net_interfaces_decode(bytes, n, read), 2);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(&read[i].address, &list[i].address, sizeof read[i].address);
        assert_int_equal(read[i].speed, list[i].speed);
    }
    for (size_t less = 0; less < n; less++)
        assert_int_equal(tutti_net_interfaces_decode(bytes, less, read), UINT32_MAX);
    for (int at = 0; at < 3; at++) { /* version, number, family */
        const uint8_t was = bytes[at];
        bytes[at] = 200;
        assert_int_equal(tutti_net_interfaces_decode(bytes, n, read), UINT32_MAX);
        bytes[at] = was;
    }
}

/* Names in their order, each with what it has; a name that nothing has is refused, and named. */
static void several_interfaces_by_name(void **state)
{
    struct tutti_net_local locals[TUTTI_NET_LOCALS];
    const struct tutti_net_address here = {.family = 4, .bytes = {127, 0, 0, 1}};
    struct tutti_net_interface list[TUTTI_NET_INTERFACES];
    uint32_t n, n_alone;
    (void)state;
    assert_int_equal(tutti_net_locals("127.0.0.1", locals, &n_alone), TUTTI_OK);
    assert_int_equal(n_alone, 1);
    assert_int_equal(locals[0].prefix, 8);
    assert_int_equal(tutti_net_locals("lo,127.0.0.1,127.0.0.0/8", locals, &n), TUTTI_OK);
    for (uint32_t i = 0; i < n; i++) assert_string_equal(locals[i].interface, "lo"); /* once each */
    assert_int_equal(tutti_net_locals("lo,no-such", locals, &n), TUTTI_ERR_CONFIG);
    assert_non_null(strstr(tutti_last_error()->text, "interface=no-such: there is no such interface"));
    assert_int_equal(tutti_net_interfaces("lo,127.0.0.1", &here, list), 1);
    assert_string_equal(list[0].name, "lo");
    assert_int_equal(tutti_net_interfaces("", &here, list), 1);
    const struct tutti_net_address nowhere = {.family = 0};
    assert_int_equal(tutti_net_interfaces("", &nowhere, list), 0);
}

static struct world world;

/* All paths of a pair come to be beside one another, each once, and what encrypts data encrypts them. */
static void paths_are_proved_and_encrypted(void **state)
{
    enum { PATHS = 5 };
    const struct tutti_net_way way = {.from = "127.0.0.1", .to = {.family = 4, .bytes = {127, 0, 0, 1}}};
    (void)state;
    for (int encrypt = 0; encrypt < 2; encrypt++) {
        world_init(&world, 2, "127.0.0.1");
        world.encrypt = encrypt ? 1 << TUTTI_NET_DATA : 0;
        for (int i = 0; i < 2; i++) world.secret[i] = "sesame";
        world_open_all(&world);
        for (uint32_t i = 0; i < PATHS; i++)
            assert_int_equal(tutti_net_dial_path(world.members[0].net, 1, i, &way), TUTTI_OK);
        for (uint32_t i = 0; i < PATHS; i++)
            for (uint32_t m = 0; m < 2; m++) {
                const enum tutti_net_role role = (enum tutti_net_role)(TUTTI_NET_PATH + i);
                assert_true(world_wait_opened(&world, m, role, 1 - m, 1));
                assert_int_equal(world_told(&world, m, role, 1 - m).n_opened, 1);
                assert_int_equal(world_told(&world, m, role, 1 - m).stream != NULL, encrypt);
                if (m == 1 && !encrypt) assert_true(world_talks(&world, 0, role, 1));
            }
        assert_int_equal(tutti_net_dial_path(world.members[0].net, 1, TUTTI_NET_PATHS, &way), TUTTI_ERR_ARGUMENT);
        world_fini(&world);
    }
}

/* A rank with another secret gets no path either; the one that dials is told, by the address that it dialed. */
static void a_stranger_gets_no_path(void **state)
{
    const struct tutti_net_way way = {.from = "127.0.0.1", .to = {.family = 4, .bytes = {127, 0, 0, 1}}};
    (void)state;
    world_init(&world, 2, "127.0.0.1");
    world.secret[0] = "sesame", world.secret[1] = "another";
    world_open_all(&world);
    assert_int_equal(tutti_net_dial_path(world.members[0].net, 1, 0, &way), TUTTI_OK);
    assert_true(world_wait_failed(&world, 0, TUTTI_NET_PATH, 1, 1));
    const struct tutti_error error = world_told(&world, 0, TUTTI_NET_PATH, 1).error;
    assert_int_equal(error.status, TUTTI_ERR_AUTH);
    assert_non_null(strstr(error.text, "one more socket to rank 1 on host host-1 (127.0.0.1 port "));
    assert_int_equal(world_told(&world, 1, TUTTI_NET_PATH, 0).n_opened, 0);
    world_fini(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interfaces_go_together),     cmocka_unit_test(what_is_told_is_read),
        cmocka_unit_test(several_interfaces_by_name), cmocka_unit_test(paths_are_proved_and_encrypted),
        cmocka_unit_test(a_stranger_gets_no_path),
    };
    return cmocka_run_group_tests_name("control.net.way", tests, world_note_descriptors, world_check_descriptors);
}
