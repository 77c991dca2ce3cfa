/* SPDX-License-Identifier: BSD-3-Clause */

/* AES-128-GCM of each library: as its definition has it, the same of both however a message is cut, and no bit of text
 * or tag can be another. */

#include "test.h"

#include "base/base.h"
#include "control/net/gcm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 70000

static const struct tutti_gcm_ops *libraries[2];
static size_t n_libraries;

static uint64_t state_of_random = 1;

static size_t below(size_t n)
{
    return (size_t)(tutti_mix64(state_of_random++) % n);
}

static struct tutti_gcm *begin(const struct tutti_gcm_ops *ops, bool encrypts, const uint8_t *key, const uint8_t *nonce,
                               const uint8_t *clear, size_t n_clear)
{
    struct tutti_gcm *gcm = ops->open();
    assert_non_null(gcm);
    gcm->ops = ops, gcm->encrypts = encrypts;
    assert_true(ops->key(gcm, key));
    assert_true(ops->begin(gcm, nonce, clear, n_clear));
    return gcm;
}

static bool end(struct tutti_gcm *gcm, uint8_t tag[TUTTI_GCM_TAG])
{
    const bool good = gcm->ops->end(gcm, tag);
    gcm->ops->close(gcm);
    return good;
}

/* Test case 4 of McGrew and Viega, The Galois/Counter Mode of Operation, appendix B. */
static void as_defined(void **state)
{
    (void)state;
    static const uint8_t key[] = {0xfe, 0xff, 0xe9, 0x92, 0x86, 0x65, 0x73, 0x1c,
                                  0x6d, 0x6a, 0x8f, 0x94, 0x67, 0x30, 0x83, 0x08};
    static const uint8_t nonce[] = {0xca, 0xfe, 0xba, 0xbe, 0xfa, 0xce, 0xdb, 0xad, 0xde, 0xca, 0xf8, 0x88};
    static const uint8_t clear[] = {0xfe, 0xed, 0xfa, 0xce, 0xde, 0xad, 0xbe, 0xef, 0xfe, 0xed,
                                    0xfa, 0xce, 0xde, 0xad, 0xbe, 0xef, 0xab, 0xad, 0xda, 0xd2};
    static const uint8_t text[] = {0xd9, 0x31, 0x32, 0x25, 0xf8, 0x84, 0x06, 0xe5, 0xa5, 0x59, 0x09, 0xc5,
                                   0xaf, 0xf5, 0x26, 0x9a, 0x86, 0xa7, 0xa9, 0x53, 0x15, 0x34, 0xf7, 0xda,
                                   0x2e, 0x4c, 0x30, 0x3d, 0x8a, 0x31, 0x8a, 0x72, 0x1c, 0x3c, 0x0c, 0x95,
                                   0x95, 0x68, 0x09, 0x53, 0x2f, 0xcf, 0x0e, 0x24, 0x49, 0xa6, 0xb5, 0x25,
                                   0xb1, 0x6a, 0xed, 0xf5, 0xaa, 0x0d, 0xe6, 0x57, 0xba, 0x63, 0x7b, 0x39};
    static const uint8_t secret[] = {0x42, 0x83, 0x1e, 0xc2, 0x21, 0x77, 0x74, 0x24, 0x4b, 0x72, 0x21, 0xb7,
                                     0x84, 0xd0, 0xd4, 0x9c, 0xe3, 0xaa, 0x21, 0x2f, 0x2c, 0x02, 0xa4, 0xe0,
                                     0x35, 0xc1, 0x7e, 0x23, 0x29, 0xac, 0xa1, 0x2e, 0x21, 0xd5, 0x14, 0xb2,
                                     0x54, 0x66, 0x93, 0x1c, 0x7d, 0x8f, 0x6a, 0x5a, 0xac, 0x84, 0xaa, 0x05,
                                     0x1b, 0xa3, 0x0b, 0x39, 0x6a, 0x0a, 0xac, 0x97, 0x3d, 0x58, 0xe0, 0x91};
    static const uint8_t right[] = {0x5b, 0xc9, 0x4f, 0xbc, 0x32, 0x21, 0xa5, 0xdb,
                                    0x94, 0xfa, 0xe9, 0x5a, 0xe7, 0x12, 0x1a, 0x47};
    for (size_t i = 0; i < n_libraries; i++) {
        uint8_t bytes[sizeof text], tag[TUTTI_GCM_TAG];
        struct tutti_gcm *gcm = begin(libraries[i], true, key, nonce, clear, sizeof clear);
        assert_true(gcm->ops->update(gcm, bytes, text, sizeof text));
        assert_true(end(gcm, tag));
        assert_memory_equal(bytes, secret, sizeof secret);
        assert_memory_equal(tag, right, sizeof right);
    }
}

/* The bytes in parts of any size, each from memory with any alignment, in place or not. */
static void pass(struct tutti_gcm *gcm, uint8_t *to, const uint8_t *from, size_t n)
{
    for (size_t at = 0, run; at < n; at += run) {
        run = 1 + below(below(3) ? n - at : n - at < 40 ? n - at : 40);
        assert_true(gcm->ops->update(gcm, to + at, from + at, run));
    }
}

static void both_agree_however_it_is_cut(void **state)
{
    (void)state;
    uint8_t *text = malloc(MOST + 64), *there = malloc(MOST + 64), *back = malloc(MOST + 64);
    assert_true(text && there && back);
    for (size_t i = 0; i < MOST + 64; i++) text[i] = (uint8_t)below(256);
    for (int round = 0; round < 400; round++) {
        static const size_t sizes[] = {1, 80, 300, 5000, MOST};
        const size_t n = below(1 + sizes[below(5)]), shift = below(64);
        const struct tutti_gcm_ops *one = libraries[below(n_libraries)], *other = libraries[below(n_libraries)];
        const uint8_t *key = text + below(1000), *nonce = text + below(1000);
        uint8_t tag[TUTTI_GCM_TAG];
        struct tutti_gcm *gcm = begin(one, true, key, nonce, text, 4);
        pass(gcm, there + shift, text + shift / 2, n);
        assert_true(end(gcm, tag));
        uint8_t *place = round % 2 ? there + shift : back;
        const size_t bit = below(8 * (n + sizeof tag));
        const bool harm = round % 3 == 0;
        uint8_t *harmed = bit / 8 < n ? there + shift + bit / 8 : tag + bit / 8 - n;
        if (harm) *harmed ^= (uint8_t)(1 << bit % 8);
        gcm = begin(other, false, key, nonce, text, 4);
        pass(gcm, place, there + shift, n);
        if (!harm) assert_memory_equal(place, text + shift / 2, n);
        assert_int_equal(end(gcm, tag), !harm);
    }
    free(text), free(there), free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_defined), cmocka_unit_test(both_agree_however_it_is_cut)};
    const char *why;
    if (!tutti_hmac_available()) return 0;
    libraries[n_libraries++] = &tutti_gcm_openssl;
    if (tutti_gcm_mb(&why))
        libraries[n_libraries++] = tutti_gcm_mb(&why);
    else
        printf("skipped: ipsec-mb: %s\n", why);
    return cmocka_run_group_tests_name("control.gcm", tests, NULL, NULL);
}
