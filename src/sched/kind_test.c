/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of kinds against a second one, written from the public header: three slots, the root is slot 1. */
#include "sched/kind.h"

#include "test.h"

#include <string.h>

enum { SLOTS = 3, ROOT = 1 };
/* Contents of DATA, slot after slot, blocks of a slot without space: '.' nothing, 'o' the own contribution, 'b' the
 * block of its owner or of the root, 'A' all reduced, 'P' the prefix, 'B' what is before. flows: "from,to" as rows. */
static const struct meaning {
    const char *name, *before, *after, *flows, *sent, *received;
    enum tutti_in_place in_place;
    enum tutti_tables tables;
    enum tutti_on_loss on_loss;
    bool reduces, rooted;
} meanings[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {"all_reduce", "o o o", "A A A", "111 111 111", "111", "111", TUTTI_SAME_BUFFER,
                          TUTTI_NO_TABLES, TUTTI_ON_LOSS_SHRINK, true, false},
    [TUTTI_REDUCE] = {"reduce", "o o o", ". A .", "010 010 010", "111", "010", TUTTI_SAME_BUFFER, TUTTI_NO_TABLES,
                      TUTTI_ON_LOSS_SHRINK, true, true},
    [TUTTI_BROADCAST] = {"broadcast", ". b .", "b b b", "000 111 000", "010", "111", TUTTI_ONE_BUFFER, TUTTI_NO_TABLES,
                         TUTTI_ON_LOSS_FAIL, false, true},
    [TUTTI_ALL_GATHER] = {"all_gather", "b.. .b. ..b", "bbb bbb bbb", "111 111 111", "111", "333", TUTTI_SEND_IN_RECV,
                          TUTTI_SHARED_TABLE, TUTTI_ON_LOSS_FAIL, false, false},
    [TUTTI_GATHER] = {"gather", "b.. .b. ..b", "... bbb ...", "010 010 010", "111", "030", TUTTI_SEND_IN_RECV,
                      TUTTI_TABLE_AT_ROOT, TUTTI_ON_LOSS_FAIL, false, true},
    [TUTTI_SCATTER] = {"scatter", "... bbb ...", "b.. .b. ..b", "000 111 000", "030", "111", TUTTI_RECV_IN_SEND,
                       TUTTI_TABLE_AT_ROOT, TUTTI_ON_LOSS_FAIL, false, true},
    [TUTTI_REDUCE_SCATTER] = {"reduce_scatter", "ooo ooo ooo", "A.. .A. ..A", "111 111 111", "333", "111",
                              TUTTI_RECV_IN_SEND, TUTTI_SHARED_TABLE, TUTTI_ON_LOSS_SHRINK, true, false},
    [TUTTI_ALL_TO_ALL] = {"all_to_all", "... ... ...", "bbb bbb bbb", "111 111 111", "333", "333", TUTTI_SAME_BUFFER,
                          TUTTI_TABLE_EACH_SIDE, TUTTI_ON_LOSS_FAIL, false, false},
    [TUTTI_BARRIER] = {"barrier", "o o o", "A A A", "111 111 111", "000", "000", TUTTI_NEVER_IN_PLACE, TUTTI_NO_TABLES,
                       TUTTI_ON_LOSS_SHRINK, false, false},
    [TUTTI_SCAN] = {"scan", "o o o", "P P P", "111 011 001", "111", "111", TUTTI_SAME_BUFFER, TUTTI_NO_TABLES,
                    TUTTI_ON_LOSS_SHRINK, true, false},
    [TUTTI_EXSCAN] = {"exscan", "o o o", ". B B", "011 001 000", "111", "011", TUTTI_SAME_BUFFER, TUTTI_NO_TABLES,
                      TUTTI_ON_LOSS_SHRINK, true, false},
};

static void contents(enum tutti_kind kind,
                     enum tutti_content (*of)(enum tutti_kind, const struct tutti_shape *, uint32_t), char *out)
{
    uint32_t n = tutti_kind_blocks(kind, SLOTS);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        struct tutti_shape shape = {.slot = slot, .size = SLOTS, .root = ROOT};
        for (uint32_t block = 0; block < n; block++) *out++ = ".obAPB"[of(kind, &shape, block)];
        *out++ = slot + 1 < SLOTS ? ' ' : '\0';
    }
}

static void flows(enum tutti_kind kind, char *out)
{
    for (uint32_t from = 0; from < SLOTS; from++) {
        for (uint32_t to = 0; to < SLOTS; to++) *out++ = tutti_kind_flows(kind, ROOT, from, to) ? '1' : '0';
        *out++ = from + 1 < SLOTS ? ' ' : '\0';
    }
}

static void blocks(struct tutti_kind_side side, char *out)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) *out++ = (char)('0' + tutti_side_blocks(side, slot, ROOT, SLOTS));
    *out = '\0';
}

static void test_rows(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
        enum tutti_kind kind = (enum tutti_kind)k, parsed;
        const struct tutti_kind_info *info = tutti_kind_info(kind);
        const struct meaning *m = &meanings[k];
        char text[16];
        assert_string_equal(info->name, m->name);
        assert_string_equal(tutti_kind_name(kind), m->name);
        assert_true(tutti_kind_parse(m->name, &parsed) && parsed == kind);
        contents(kind, tutti_kind_before, text), assert_string_equal(text, m->before);
        contents(kind, tutti_kind_after, text), assert_string_equal(text, m->after);
        flows(kind, text), assert_string_equal(text, m->flows);
        blocks(info->send, text), assert_string_equal(text, m->sent);
        blocks(info->recv, text), assert_string_equal(text, m->received);
        assert_int_equal(info->in_place, m->in_place);
        assert_int_equal(info->tables, m->tables);
        assert_int_equal(info->on_loss, m->on_loss);
        assert_int_equal(info->reduces, m->reduces);
        assert_int_equal(info->rooted, m->rooted);
        assert_int_equal(info->block_a_slot, strlen(m->after) > 5);
        assert_int_equal(info->separate_in, kind == TUTTI_ALL_TO_ALL);
    }
}

/* What avg divides by is the number of slots whose data flows there. */
static void test_contributors(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < TUTTI_N_KINDS; k++)
        for (uint32_t to = 0; to < SLOTS && meanings[k].reduces; to++) {
            uint32_t n = 0;
            for (uint32_t from = 0; from < SLOTS; from++) n += meanings[k].flows[from * (SLOTS + 1) + to] == '1';
            if (n > 0) assert_int_equal(tutti_kind_contributors((enum tutti_kind)k, to, SLOTS), n);
        }
    assert_int_equal(tutti_kind_contributors(TUTTI_EXSCAN, 0, SLOTS), 1);
}

static void test_unknown(void **state)
{
    (void)state;
    enum tutti_kind kind;
    assert_null(tutti_kind_info(TUTTI_N_KINDS));
    assert_string_equal(tutti_kind_name(TUTTI_N_KINDS), "unknown");
    assert_false(tutti_kind_parse("all", &kind));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_contributors),
                                       cmocka_unit_test(test_unknown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
