/* SPDX-License-Identifier: BSD-3-Clause */

/* tutti run, while all is well: variables, input, output, programs, binding and numbers of ranks. */

#include "run_test.h"

#include "base/base.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what a rank finds ---- */
static void test_variables(void **state)
{
    (void)state;
    struct launched l;
    char want[128];
    assert_int_equal(launched_run(&l, LAUNCH("-n", "3", "--", "sh", "-c",
                                             "echo $RANK.$WORLD_SIZE.$LOCAL_RANK.$LOCAL_WORLD_SIZE.$GROUP_RANK."
                                             "$TUTTI_RANK.$TUTTI_WORLD_SIZE.$MASTER_ADDR")),
                     0);
    for (int rank = 0; rank < 3; rank++) {
        snprintf(want, sizeof want, "%d.3.%d.3.0.%d.3.127.0.0.1\n", rank, rank, rank);
        expect_in(l.out_text, want);
    }
    assert_string_equal(l.err_text, "");
    launched_free(&l);
}

static void test_master_port_is_free(void **state)
{
    (void)state;
    struct launched l;
    launched_start(&l, LAUNCH("-n", "1", "sh", "-c", "echo port=$MASTER_PORT=; read line"));
    launched_expect(&l, "=\n");
    const int port = atoi(strstr(l.out_text, "port=") + 5);
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(port > 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    assert_int_equal(launched_wait(&l), 1); /* read found the end of input */
    launched_free(&l);
}

static void test_secret_is_fresh(void **state)
{
    (void)state;
    struct launched first, second;
    const char *const *args = LAUNCH("-n", "2", "sh", "-c", "echo \"<$TUTTI_SECRET>$TUTTI_JOB\"");
    assert_int_equal(launched_run(&first, args), 0);
    assert_int_equal(launched_run(&second, args), 0);
    const char *line_end = strchr(first.out_text, '\n');
    assert_non_null(line_end);
    const size_t length = (size_t)(line_end - first.out_text);
    assert_memory_equal(first.out_text, line_end + 1, length); /* both ranks have the same */
    assert_string_not_equal(first.out_text, second.out_text);
    assert_int_equal(strcspn(first.out_text + 1, ">"), tutti_hmac_available() ? 64 : 0);
    assert_memory_not_equal(strchr(first.out_text, '>'), strchr(second.out_text, '>'), 20);
    launched_free(&second);
    setenv("TUTTI_SECRET", "the user's own", 1);
    assert_int_equal(launched_run(&second, args), 0);
    unsetenv("TUTTI_SECRET");
    assert_memory_equal(second.out_text, "<the user's own>run-", 20);
    launched_free(&first);
    launched_free(&second);
}

static void test_env(void **state)
{
    (void)state;
    struct launched l;
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1); /* as if inside torchrun: rank 0 would not serve its own store */
    assert_int_equal(
        launched_run(&l, LAUNCH("-n", "1", "--env", "A=1", "--env=B=x=y", "--env", "MASTER_ADDR=::1", "--env", "A=2",
                                "sh", "-c", "echo $A,$B,$MASTER_ADDR,${TORCHELASTIC_USE_AGENT_STORE-unset}")),
        0);
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    assert_string_equal(l.out_text, "2,x=y,::1,unset\n");
    launched_free(&l);
}

static void test_input_goes_to_rank_0(void **state)
{
    (void)state;
    struct launched l;
    launched_start(&l, LAUNCH("-n", "3", "--tag-output", "sh", "-c", "cat; echo end"));
    assert_int_equal(write(l.in, "one\ntwo\n", 8), 8);
    assert_int_equal(launched_wait(&l), 0);
    static const char *const lines[] = {"[0] one\n", "[0] two\n", "[0] end\n"};
    const char *rest = l.out_text; /* lines of others may lie between them */
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        expect_in(rest, lines[i]);
        rest = strstr(rest, lines[i]) + strlen(lines[i]);
    }
    assert_int_equal(count_of(l.out_text, "end\n"), 3);
    assert_int_equal(count_of(l.out_text, "one"), 1);
    launched_free(&l);
}

/* A script that does not say what runs it, as a shell would start it. */
static void test_script_without_interpreter(void **state)
{
    (void)state;
    struct launched l;
    char path[64];
    snprintf(path, sizeof path, "/tmp/tutti-run-script-%d", (int)getpid());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("echo $1 $2 from $RANK\n", f);
    fclose(f);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "1", path, "a", "b c")), 0);
    unlink(path);
    assert_string_equal(l.out_text, "a b c from 0\n");
    launched_free(&l);
}

/* ---- output ---- */
static void test_tags(void **state)
{
    (void)state;
    struct launched l;
    assert_int_equal(
        launched_run(&l, LAUNCH("-n", "2", "--tag-output", "sh", "-c", "echo a; echo b >&2; printf 'c\\r'; printf d")),
        0);
    for (int rank = 0; rank < 2; rank++) {
        char line[64];
        snprintf(line, sizeof line, "[%d] a\n", rank);
        expect_in(l.out_text, line);
        snprintf(line, sizeof line, "[%d] d\n", rank);
        expect_in(l.out_text, line);
        snprintf(line, sizeof line, "[%d] c\r", rank);
        expect_in(l.out_text, line);
        snprintf(line, sizeof line, "[%d] b\n", rank);
        expect_in(l.err_text, line);
    }
    assert_int_equal(l.out_bytes, 2 * strlen("[0] a\n[0] c\r[0] d\n"));
    launched_free(&l);
}

/* Lines of different ranks never mix, however they come: here in two writes each. */
static void test_lines_stay_whole(void **state)
{
    (void)state;
    struct launched l;
    assert_int_equal(
        launched_run(&l, LAUNCH("-n", "8", "sh", "-c",
                                "i=0; while [ $i -lt 200 ]; do printf '<%s%s%s%s' $RANK $RANK $RANK $RANK; "
                                "printf '%s%s>\\n' $RANK $RANK; i=$((i+1)); done")),
        0);
    assert_int_equal(l.out_bytes, 8 * 200 * strlen("<000000>\n"));
    for (size_t i = 0; i < l.out_bytes; i += 9) {
        const char *line = l.out_text + i;
        if (line[0] != '<' || line[7] != '>' || line[8] != '\n') fail_msg("a line is torn: %.9s", line);
        for (int k = 2; k < 7; k++) assert_int_equal(line[k], line[1]);
    }
    launched_free(&l);
}

static void test_much_output(void **state)
{
    (void)state;
    struct launched l;
    launched_start(&l, LAUNCH("-n", "4", "sh", "-c", "yes 0123456789abcde | head -c 4000000"));
    tutti_sleep_ns(300 * TUTTI_NS_PER_MS); /* a slow reader: everything is full */
    assert_int_equal(launched_wait(&l), 0);
    assert_int_equal(l.out_bytes, 4 * 4000000);
    for (size_t i = 0; i < l.out_bytes; i += 16)
        if (memcmp(l.out_text + i, "0123456789abcde\n", 16) != 0) fail_msg("a line is torn: %.16s", l.out_text + i);
    launched_free(&l);
    /* One line, longer than any buffer. */
    assert_int_equal(launched_run(&l, LAUNCH("-n", "1", "--tag-output", "sh", "-c",
                                             "head -c 300000 /dev/zero | tr '\\0' x; echo; echo end")),
                     0);
    assert_int_equal(l.out_bytes, strlen("[0] ") + 300000 + strlen("\n[0] end\n"));
    expect_in(l.out_text, "xx\n[0] end\n");
    launched_free(&l);
}

static void test_prompt_is_shown(void **state)
{
    (void)state;
    struct launched l;
    launched_start(&l, LAUNCH("-n", "1", "sh", "-c", "printf 'name? '; read name; echo hello $name"));
    launched_expect(&l, "name? ");
    assert_int_equal(write(l.in, "bob\n", 4), 4);
    assert_int_equal(launched_wait(&l), 0);
    assert_string_equal(l.out_text, "name? hello bob\n");
    launched_free(&l);
}

static void test_reader_goes_away(void **state)
{
    (void)state;
    struct launched l;
    launched_start(&l, LAUNCH("-n", "2", "yes"));
    launched_expect(&l, "y\n");
    close(l.out);
    l.out = -1;
    assert_int_equal(launched_wait(&l), 128 + SIGPIPE);
    launched_free(&l);
}

/* ---- binding and numbers ---- */
static void test_cores(void **state)
{
    (void)state;
    struct launched l;
    cpu_set_t allowed;
    char list[32], want[64];
    const char *show = "grep Cpus_allowed_list /proc/self/status | tr -d '\\t'";
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int first = 0;
    while (!CPU_ISSET(first, &allowed)) first++;
    snprintf(list, sizeof list, "%d", first);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "2", "--cores", list, "sh", "-c", show)), 0);
    snprintf(want, sizeof want, "Cpus_allowed_list:%d\nCpus_allowed_list:%d\n", first, first);
    assert_string_equal(l.out_text, want);
    launched_free(&l);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "1", "--cores", "60000", "true")), 2);
    expect_in(l.err_text, "CPU 60000 does not exist or is offline; there are ");
    launched_free(&l);
    assert_int_equal(launched_run(&l, LAUNCH("-n", "1", "--cores", "many", "true")), 2);
    expect_in(l.err_text, "write spread, none, or a list such as 0-3,8");
    launched_free(&l);
    /* As many ranks as CPUs: each has one of its own. */
    snprintf(list, sizeof list, "%d", CPU_COUNT(&allowed));
    assert_int_equal(launched_run(&l, LAUNCH("-n", list, "--cores", "spread", "sh", "-c", show)), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        snprintf(want, sizeof want, "list:%d\n", cpu);
        assert_int_equal(count_of(l.out_text, want), CPU_ISSET(cpu, &allowed) ? 1 : 0);
    }
    launched_free(&l);
}

static void test_many_ranks(void **state)
{
    (void)state;
    struct launched l;
    assert_int_equal(launched_run(&l, LAUNCH("-n", "64", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")), 0);
    assert_int_equal(count_of(l.out_text, " of 64\n"), 64);
    for (int rank = 0; rank < 64; rank++) {
        char want[64];
        snprintf(want, sizeof want, "rank %d of 64\n", rank);
        assert_int_equal(count_of(l.out_text, want), 1);
    }
    launched_free(&l);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_master_port_is_free),
        cmocka_unit_test(test_secret_is_fresh),
        cmocka_unit_test(test_env),
        cmocka_unit_test(test_input_goes_to_rank_0),
        cmocka_unit_test(test_script_without_interpreter),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_lines_stay_whole),
        cmocka_unit_test(test_much_output),
        cmocka_unit_test(test_prompt_is_shown),
        cmocka_unit_test(test_reader_goes_away),
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_many_ranks),
    };
    if (!launched_begin(argc, argv)) return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
