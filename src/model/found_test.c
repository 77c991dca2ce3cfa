/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines `found` of tuning files: written, read, matched; wrong ones are told; the choice takes what they name. */

#include "model/choose.h"

#include "algo/algo.h"

#include "test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/tutti_found_XXXXXX";

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void matches(void **state)
{
    struct tutti_found_list list = {.n = 0};
    struct tutti_shape world = {.size = 0}, flat = {.size = 16};
    (void)state;
    assert_int_equal(tutti_shape_parse_levels(&world, "8x2"), TUTTI_OK);
    struct tutti_found found = {
        .kind = TUTTI_ALL_REDUCE, .world = world, .from = 1000, .to = 2000, .name = "hierarchical:2"};
    write_text("# a comment\nline_ns 90\nway 4 4k all_reduce ring 1 1 1 1 1 1\n");
    assert_int_equal(tutti_found_append(path, &found), TUTTI_OK);
    assert_int_equal(tutti_found_read(path, &list), TUTTI_OK);
    assert_int_equal(list.n, 1);
    world.slot = 3, world.root = 2;
    assert_non_null(tutti_found_for(&list, TUTTI_ALL_REDUCE, &world, 1000));
    assert_non_null(tutti_found_for(&list, TUTTI_ALL_REDUCE, &world, 2000));
    assert_null(tutti_found_for(&list, TUTTI_ALL_REDUCE, &world, 2001));
    assert_null(tutti_found_for(&list, TUTTI_ALL_REDUCE, &world, 999));
    assert_null(tutti_found_for(&list, TUTTI_ALL_REDUCE, &flat, 1500));
    assert_null(tutti_found_for(&list, TUTTI_REDUCE, &world, 1500));
    assert_null(tutti_found_for(NULL, TUTTI_REDUCE, &world, 1500));
    /* Constants of the same file are read as ever. */
    struct tutti_config config;
    struct tutti_machine machine;
    const struct tutti_option option = {"tuning", path};
    assert_int_equal(tutti_config_init(&config, &option, 1), TUTTI_OK);
    assert_int_equal(tutti_machine_load(&config, &machine), TUTTI_OK);
    tutti_config_fini(&config);
    /* And written anew they leave the lines where they are. */
    assert_int_equal(tutti_machine_write(path, &machine, "again"), TUTTI_OK);
    list.n = 0;
    assert_int_equal(tutti_found_read(path, &list), TUTTI_OK);
    assert_int_equal(list.n, 1);
    assert_string_equal(list.list[0].name, "hierarchical:2");
    snprintf(found.name, sizeof found.name, "a b");
    assert_int_equal(tutti_found_append(path, &found), TUTTI_ERR_ARGUMENT);
}

static void wrong_lines(void **state)
{
    static const struct {
        const char *line, *words;
    } wrong[] = {
        {"found all_reduce 8 0 100", "too few words"},     {"found all_reduce 8 0 100 ring 7", "too many words"},
        {"found all_reduces 8 0 100 ring", "no KIND"},     {"found all_reduce 8y 0 100 ring", "WORLD"},
        {"found all_reduce 0 0 100 ring", "WORLD"},        {"found all_reduce 8 100 0 ring", "FROM and TO"},
        {"found all_reduce 8 -1 100 ring", "FROM and TO"},
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) {
        struct tutti_found_list list = {.n = 0};
        char text[128], where[64];
        snprintf(text, sizeof text, "\n%s\n", wrong[i].line);
        snprintf(where, sizeof where, "%s:2: ", path);
        write_text(text);
        assert_int_equal(tutti_found_read(path, &list), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error()->text, where));
        assert_non_null(strstr(tutti_last_error()->text, wrong[i].words));
    }
}

/* What is found is taken, where it may run the call; else the choice is as ever. */
static void chosen(void **state)
{
    struct tutti_found_list list = {.n = 2};
    struct tutti_facts facts = {.shape.size = 12, .min_cpus = 1, .machine = tutti_machine_default};
    const struct tutti_algorithm *algorithm;
    struct tutti_shape shape;
    (void)state;
    list.list[0] = (struct tutti_found){TUTTI_ALL_REDUCE, {.size = 12}, 1 << 20, 1 << 21, "tree:3"};
    list.list[1] = (struct tutti_found){TUTTI_ALL_REDUCE, {.size = 12}, 0, 100, "nothing_like_it"};
    struct tutti_question question = {.kind = TUTTI_ALL_REDUCE, .bytes = 3 << 19, .commutative = true};
    assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
    assert_string_not_equal(algorithm->name, "tree");
    facts.found = &list;
    assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
    assert_string_equal(algorithm->name, "tree");
    assert_int_equal(shape.radix, 3);
    facts.reproducible = true;
    assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
    assert_string_not_equal(algorithm->name, "tree");
    facts.reproducible = false;
    question.bytes = 50;
    assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches), cmocka_unit_test(wrong_lines),
                                       cmocka_unit_test(chosen)};
    tutti_algorithms_init();
    const int descriptor = mkstemp(path);
    if (descriptor < 0) return 1;
    close(descriptor);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
