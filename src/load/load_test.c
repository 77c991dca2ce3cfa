/* SPDX-License-Identifier: BSD-3-Clause */
/* What loading stands on: programs that are run with bounds, the folder of what is kept, contents and their hashes, and
 * a proof that is asked for once. */

#include "load/load.h"

#include "own_folder.h"
#include "test.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tutti_spawned ran(const char *script, uint64_t timeout_ns, size_t most)
{
    const char *const words[] = {"sh", "-c", script, NULL};
    struct tutti_spawned out;
    assert_int_equal(tutti_spawn(words, timeout_ns, most, &out), TUTTI_OK);
    return out;
}

static void check_ran(const char *script, size_t most, const char *output, const char *how)
{
    char said[96];
    struct tutti_spawned got = ran(script, 5 * TUTTI_NS_PER_S, most);
    tutti_spawned_text(&got, said, sizeof said);
    assert_string_equal(said, how);
    if (output) assert_string_equal(got.output, output);
    assert_true(got.bytes <= most && strlen(got.output) == got.bytes);
    tutti_free(got.output);
}

static void test_programs(void **state)
{
    (void)state;
    char said[96];
    check_ran("echo one; echo two >&2", 100, "one\ntwo\n", "");
    check_ran("exit 3", 100, "", "exits with status 3");
    check_ran("kill -9 $$", 100, "", "is ended by signal 9 (Killed)");
    check_ran("yes", 10000, NULL, "writes more than is allowed (or memory is out)");
    check_ran("head -c 9999 /dev/zero | tr '\\0' x", 9999, NULL, "");
    check_ran("read word; echo \"<$word>\"", 100, "<>\n", ""); /* no input */
    assert_int_equal(dup2(STDOUT_FILENO, 50), 50);             /* none of its descriptors */
    check_ran("[ -e /dev/fd/0 ] && [ ! -e /dev/fd/50 ] && echo none", 100, "none\n", "");
    close(50);
    /* Also what it has started, which holds its output. */
    struct tutti_spawned got = ran("sleep 60 & echo $!; sleep 60", 200 * TUTTI_NS_PER_MS, 100);
    tutti_spawned_text(&got, said, sizeof said);
    assert_true(got.late);
    assert_string_equal(said, "does not come to an end");
    const pid_t left = (pid_t)atoi(got.output);
    assert_true(left > 0);
    for (int tries = 0; tries < 2000 && tutti_process_alive(left, 0); tries++) tutti_sleep_ns(TUTTI_NS_PER_MS);
    assert_false(tutti_process_alive(left, 0));
    tutti_free(got.output);
    const char *const none[] = {"/no/such/program", NULL};
    assert_int_equal(tutti_spawn(none, 1, 1, &got), TUTTI_ERR_SYSTEM);
}

static void test_kept(void **state)
{
    (void)state;
    char path[PATH_MAX], *text;
    struct stat found;
    size_t bytes;
    assert_false(tutti_kept_read("nothing", 0, &text, &bytes));
    assert_int_equal(tutti_kept_write("some", "a\0b", 3), TUTTI_OK);
    assert_true(tutti_kept_read("some", 0, &text, &bytes));
    assert_int_equal(bytes, 3);
    assert_memory_equal(text, "a\0b", 4);
    tutti_free(text);
    assert_int_equal(tutti_kept_path("some", path), TUTTI_OK);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 077, 0);
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_false(tutti_kept_read("some", 60, &text, &bytes)); /* too old to be asked for */
    *strrchr(path, '/') = '\0';
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0700);
    const int lock = tutti_kept_lock("some");
    assert_true(lock >= 0);
    tutti_kept_unlock(lock);
    /* Where others may write, nothing is believed; then the user's home is asked, and there is none. */
    assert_int_equal(chmod(path, 0722), 0);
    assert_int_equal(tutti_kept_path("some", path), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error()->text, "nobody else may write"));
    snprintf(path, sizeof path, "%s/cache/tutti/algorithms", own_folder);
    assert_int_equal(chmod(path, 0700), 0);
}

static void test_texts(void **state)
{
    (void)state;
    char *text;
    size_t bytes;
    assert_int_equal(tutti_text_read(own_file("long", "12345"), 4, &text, &bytes), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "has 5 bytes, more than 4"));
    assert_int_equal(tutti_text_read(own_folder, 4, &text, &bytes), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "is no file"));
    assert_int_equal(tutti_text_read(own_file("empty", ""), 4, &text, &bytes), TUTTI_OK);
    assert_int_equal(bytes, 0);
    tutti_free(text);
}

static uint64_t hash_of(const char *path)
{
    char *text;
    size_t bytes;
    assert_int_equal(tutti_text_read(path, 1 << 20, &text, &bytes), TUTTI_OK);
    const uint64_t hash = tutti_includes_hash(path, text, 0, 7);
    tutti_free(text);
    return hash;
}

/* What a file includes is a part of it, however deep; a circle of includes ends. */
static void test_includes(void **state)
{
    (void)state;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", own_file("top.c", "#include <stdio.h>\n  #  include \"one.h\"\n"));
    assert_int_equal(hash_of(path), 7);
    own_file("one.h", "#include \"two.h\"\n");
    const uint64_t one = hash_of(path);
    own_file("two.h", "int two;\n");
    const uint64_t two = hash_of(path);
    own_file("two.h", "int three;\n");
    const uint64_t three = hash_of(path);
    assert_true(one != 7 && two != one && three != two);
    own_file("two.h", "#include \"one.h\"\n#include \"two.h\"\n");
    assert_true(hash_of(path) != three);
}

static void test_names(void **state)
{
    (void)state;
    const struct tutti_algorithm *found;
    static const char *const paths[] = {"./ring", "mine.c", "mine.py:4", "/a/b.so", "x/y:2"};
    static const char *const names[] = {"ring", "tree:4", "flat:line", "c", "py", ".c", "mine.cc"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(paths); i++) assert_true(tutti_load_is_path(paths[i]));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(names); i++) assert_false(tutti_load_is_path(names[i]));
    assert_int_equal(tutti_load_find(NULL, "no_such", NULL, &found), TUTTI_OK);
    assert_null(found);
    assert_int_equal(tutti_load_find(NULL, "./no_such.c", NULL, &found), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_load(NULL, own_file("mine.txt", ""), &found), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "its name ends with none of .c, .so, .py"));
}

/* A prover that counts how often it is asked, and says what a file says. */
static void test_proofs(void **state)
{
    (void)state;
    const struct tutti_algorithm *mine;
    char text[PATH_MAX + 128], prover[PATH_MAX];
    struct tutti_shape shape = {.size = 4};
    struct tutti_config config;
    struct stat asked;
    snprintf(text, sizeof text, "#!/bin/sh\necho asked >>%s/asked\nprintf '\\n'; cat %s/answer\n", own_folder,
             own_folder);
    snprintf(prover, sizeof prover, "%s", own_file("prover", text));
    assert_int_equal(chmod(prover, 0700), 0);
    const struct tutti_option option = {"prover", prover};
    assert_int_equal(tutti_config_init(&config, &option, 1), TUTTI_OK);
    const char *path = own_file("one.py", "import tutti\n@tutti.algorithm('barrier')\ndef one(rank): pass\n");
    assert_int_equal(tutti_load(&config, path, &mine), TUTTI_OK);

    own_file("answer", "1 of 1 proved on 1 shape in 0.1 s\n");
    for (int i = 0; i < 3; i++) assert_int_equal(tutti_load_prove(&config, mine, TUTTI_BARRIER, &shape), TUTTI_OK);
    snprintf(text, sizeof text, "%s/asked", own_folder);
    assert_int_equal(stat(text, &asked), 0);
    assert_int_equal(asked.st_size, strlen("asked\n"));

    own_file("answer", "one barrier 1 shape 0.1 s  REFUSED\n  because\n0 of 1 proved on 1 shape\n");
    shape.size = 5;
    for (int i = 0; i < 3; i++)
        assert_int_equal(tutti_load_prove(&config, mine, TUTTI_BARRIER, &shape), TUTTI_ERR_ARGUMENT);
    assert_string_equal(tutti_last_error()->text, "algorithm one is refused: because");
    assert_int_equal(stat(text, &asked), 0);
    assert_int_equal(asked.st_size, 2 * strlen("asked\n"));

    own_file("answer", "I have no time\n");
    shape.size = 6;
    assert_int_equal(tutti_load_prove(&config, mine, TUTTI_BARRIER, &shape), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error()->text, "algorithm one is not run: it can not be proved"));
    assert_non_null(strstr(tutti_last_error()->text, "I have no time"));
    tutti_config_fini(&config);
    /* Those of the table are proved. */
    assert_int_equal(tutti_load_prove(NULL, tutti_algorithms[0], TUTTI_ALL_REDUCE, &shape), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs), cmocka_unit_test(test_kept),  cmocka_unit_test(test_texts),
        cmocka_unit_test(test_includes), cmocka_unit_test(test_names), cmocka_unit_test(test_proofs),
    };
    return cmocka_run_group_tests(tests, own_folder_begin, own_folder_end);
}
