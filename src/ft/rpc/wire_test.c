/* SPDX-License-Identifier: BSD-3-Clause */

/* What gRPC puts around messages: lengths that lie, times in all units, sentences with all bytes. */

#include "test.h"

#include "ft/rpc/wire.h"

#include <string.h>

static void test_message(void **state)
{
    uint8_t bytes[RPC_PREFIX + 300] = {0};
    const uint8_t *message;
    size_t n;

    (void)state;
    for (size_t length = 0; length <= 300; length += 60) {
        rpc_prefix_write(bytes, length);
        assert_true(rpc_message(bytes, RPC_PREFIX + length, &message, &n));
        assert_ptr_equal(message, bytes + RPC_PREFIX);
        assert_int_equal(n, length);
        assert_false(rpc_message(bytes, RPC_PREFIX + length + 1, &message, &n)); /* two, or a piece of one */
        if (length > 0) assert_false(rpc_message(bytes, RPC_PREFIX + length - 1, &message, &n));
    }
    for (n = 0; n < RPC_PREFIX; n++) assert_false(rpc_message(bytes, n, &message, &n));
    rpc_prefix_write(bytes, 4);
    bytes[0] = 1; /* compressed */
    assert_false(rpc_message(bytes, RPC_PREFIX + 4, &message, &n));
}

static void test_timeout(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns; /* 0: it is none */
    } cases[] = {{"1n", 1},
                 {"5u", 5000},
                 {"20m", 20 * TUTTI_NS_PER_MS},
                 {"60S", 60 * TUTTI_NS_PER_S},
                 {"2M", 120 * TUTTI_NS_PER_S},
                 {"3H", 10800 * TUTTI_NS_PER_S},
                 {"99999999H", UINT64_MAX}, /* more than there is */
                 {"100000000n", 0},
                 {"", 0},
                 {"S", 0},
                 {"5", 0},
                 {"-5S", 0},
                 {"5 S", 0},
                 {"5s", 0}};
    uint64_t random = 7, ns, back;
    char text[RPC_TIMEOUT_TEXT];

    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        const bool read = rpc_timeout_read(cases[i].text, strlen(cases[i].text), &ns);
        assert_int_equal(read, cases[i].ns != 0);
        if (read) assert_true(ns == cases[i].ns);
    }
    for (int i = 0; i < 100000; i++) { /* what is written is read as at most a little more */
        ns = tutti_random64(&random) >> (tutti_random64(&random) % 63);
        rpc_timeout_write(ns, text);
        assert_true(rpc_timeout_read(text, strlen(text), &back));
        assert_true(back >= ns && back - ns <= ns / 10000);
    }
}

static void test_percent(void **state)
{
    char all[256], text[1024], small[8];

    (void)state;
    for (int i = 1; i < 256; i++) all[i - 1] = (char)i;
    all[255] = '\0';
    rpc_percent_encode(all, text, sizeof text);
    for (const char *at = text; *at; at++) assert_true(*at >= ' ' && *at <= '~');
    assert_non_null(strstr(text, "%0A"));
    assert_non_null(strstr(text, " !\"#$%25&'"));
    assert_non_null(strstr(text, "}~%7F%80"));
    rpc_percent_encode("abcdefghij", small, sizeof small);
    assert_true(strlen(small) < sizeof small);
    assert_memory_equal(small, "abcd", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_message), cmocka_unit_test(test_timeout),
                                       cmocka_unit_test(test_percent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
