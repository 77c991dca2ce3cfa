/* SPDX-License-Identifier: BSD-3-Clause */
/* Hosts and ranks from text. */
#include "base/base.h"
#include "run_hosts.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

/* "a:2@0,b:1@2" */
static void expect_hosts(const struct run_hosts *hosts, const char *wanted)
{
    char text[512] = "";
    for (size_t i = 0; i < hosts->n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:%u@%u", i ? "," : "", hosts->hosts[i].name,
                 hosts->hosts[i].n, hosts->hosts[i].first);
    assert_string_equal(text, wanted);
}

static void lists(void **state)
{
    static const struct {
        const char *text, *wanted;
        uint32_t n_ranks;
    } cases[] = {
        {"a:4,b:4", "a:4@0,b:4@4", 0},
        {"a,b", "a:1@0,b:1@1", 0},
        {"a,b", "a:2@0,b:1@2", 3},
        {"a,b,c", "a:1@0,b:1@1", 2},
        {"a:4,b:4", "a:4@0,b:1@4", 5},
        {"a:2,b,a:1", "a:3@0,b:1@3", 0},
        {"me@a:2,[fd00::1]:3,[::1]", "me@a:2@0,fd00::1:3@2,::1:1@5", 0},
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct run_hosts hosts = {.n = 0};
        assert_true(run_hosts_list(&hosts, cases[i].text));
        assert_true(run_hosts_share(&hosts, cases[i].n_ranks));
        expect_hosts(&hosts, cases[i].wanted);
        run_hosts_fini(&hosts);
    }
}

static void files(void **state)
{
    struct run_hosts hosts = {.n = 0};
    (void)state;
    assert_true(run_hosts_file(&hosts, "# all\n a:2\t# one\n\nb slots=3\r\nc"));
    assert_true(run_hosts_share(&hosts, 0));
    expect_hosts(&hosts, "a:2@0,b:3@2,c:1@5");
    run_hosts_fini(&hosts);
}

static void slurm(void **state)
{
    struct run_hosts hosts = {.n = 0};
    (void)state;
    assert_true(run_hosts_slurm(&hosts, "n[1-3,07],b,c[08-10]x[1-2]", "2(x3),1,4(x7)"));
    assert_true(run_hosts_share(&hosts, 0));
    expect_hosts(&hosts, "n1:2@0,n2:2@2,n3:2@4,n07:1@6,b:4@7,c08x1:4@11,c08x2:4@15,c09x1:4@19,c09x2:4@23,c10x1:4@27,"
                         "c10x2:4@31");
    run_hosts_fini(&hosts);
}

static void wrong(void **state)
{
    static const char *const list[] = {"",    "a,",  "a:",  "a:0", "a:x", "a:70000", "-oProxyCommand=x",
                                       "a;b", "a b", "[::1"};
    static const char *const file[] = {"", "# none", "a slots=", "a slots=2 more", "a 4", "a b c"};
    static const char *const nodes[] = {"", "a[1-", "a[3-1]", "a[]b[x]", "a[1-99999]", "-x"};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(list) + TUTTI_ARRAY_LEN(file) + TUTTI_ARRAY_LEN(nodes); i++) {
        struct run_hosts hosts = {.n = 0};
        size_t k = i;
        if (k < TUTTI_ARRAY_LEN(list))
            assert_false(run_hosts_list(&hosts, list[k]));
        else if ((k -= TUTTI_ARRAY_LEN(list)) < TUTTI_ARRAY_LEN(file))
            assert_false(run_hosts_file(&hosts, file[k]));
        else
            assert_false(run_hosts_slurm(&hosts, nodes[k - TUTTI_ARRAY_LEN(file)], NULL));
        assert_true(strlen(hosts.why) > 0);
        run_hosts_fini(&hosts);
    }
    struct run_hosts hosts = {.n = 0};
    assert_true(run_hosts_list(&hosts, "a:1,b:1"));
    assert_false(run_hosts_share(&hosts, 3));
    run_hosts_fini(&hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists), cmocka_unit_test(files), cmocka_unit_test(slurm),
                                       cmocka_unit_test(wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
