/* SPDX-License-Identifier: BSD-3-Clause */

/* Rates of addresses: what is let through in a time, that addresses do not pay for one another, and that a flood of
 * addresses frees nobody of his debts. */

#include "test.h"

#include "ft/rpc/limit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#define S TUTTI_NS_PER_S

static struct rpc_limit limit;

static void address_of(uint32_t number, uint8_t out[16])
{
    const struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(number)};
    rpc_limit_address((const struct sockaddr *)&from, out);
}

static uint32_t let_through(const uint8_t address[16], uint64_t from, uint64_t to)
{
    uint32_t n = 0;
    for (uint64_t now = from; now < to; now += S / 1000) n += rpc_limit_take(&limit, address, 10, now) == 0;
    return n;
}

static void test_rate(void **state)
{
    uint8_t a[16], b[16];

    (void)state;
    limit = (struct rpc_limit){.rate = 1000};
    address_of(1, a), address_of(2, b);
    const uint32_t first =
        let_through(a, 100 * S, 101 * S); /* 1000 tries: what is saved of two seconds, and one more */
    assert_in_range(first, 290, 310);
    assert_in_range(let_through(b, 100 * S, 101 * S), 290, 310);
    assert_in_range(let_through(a, 101 * S, 111 * S), 980, 1010); /* 100 a second */
    assert_in_range(let_through(a, 200 * S, 201 * S), 290, 310);  /* after a pause */
    limit.rate = 0;
    assert_int_equal(let_through(a, 201 * S, 202 * S), 1000);
}

static void test_many_addresses(void **state)
{
    uint8_t debtor[16], other[16];

    (void)state;
    limit = (struct rpc_limit){.rate = 1000, .seed = 7};
    address_of(1, debtor);
    assert_true(let_through(debtor, 100 * S, 101 * S) < 400);
    for (uint32_t i = 2; i < 100000; i++) {
        address_of(i, other);
        assert_int_equal(rpc_limit_take(&limit, other, 10, 101 * S), 0);
    }
    assert_true(let_through(debtor, 101 * S, 101 * S + S / 10) < 15); /* forgotten, it were 100 */
}

static void test_addresses(void **state)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    uint8_t a[16], b[16];

    (void)state;
    inet_pton(AF_INET6, "::ffff:10.0.0.1", &six.sin6_addr);
    rpc_limit_address((const struct sockaddr *)&six, a);
    address_of(0x0a000001, b);
    assert_memory_equal(a, b, 16);
    inet_pton(AF_INET6, "2001:db8::1", &six.sin6_addr);
    rpc_limit_address((const struct sockaddr *)&six, a);
    inet_pton(AF_INET6, "2001:db8::2:3:4:5", &six.sin6_addr);
    rpc_limit_address((const struct sockaddr *)&six, b);
    assert_memory_equal(a, b, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_many_addresses),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
