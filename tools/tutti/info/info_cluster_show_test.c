/* SPDX-License-Identifier: BSD-3-Clause */
/* What is written of a cluster: what was not measured is no number, names can not break JSON or SVG, and the greatest
 * value is the darkest. */

#include "info_cluster.h"

#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static struct cluster_rank ranks[] = {
    {.host = "a<&\"b", .address = "10.0.0.1", .cpus = 2},
    {.host = "a<&\"b", .address = "10.0.0.1", .cpus = 2, .device = "H100"},
    {.host = "c", .address = "10.0.0.2", .cpus = 4, .host_index = 1},
};
static struct cluster_link links[9] = {
    [1] = {1.5, 8, 10}, [2] = {150, 0.5, 0}, [3] = {1.5, 8, 10},
    [5] = {15, 2, 3},   [6] = {150, 0.5, 0}, [7] = {15, 2, 3},
};
static const struct cluster three = {
    .n = 3, .n_hosts = 2, .n_measured = 3, .ranks = ranks, .measured = {0, 1, 2}, .links = links};

static char *written(void (*write)(FILE *, const struct cluster *), const struct cluster *cluster)
{
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    assert_non_null(file);
    write(file, cluster);
    fclose(file);
    return text;
}

static void expect(const char *text, const char *what)
{
    if (!strstr(text, what)) fail_msg("\"%s\" is not in: %s", what, text);
}

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

static void test_page(void **state)
{
    (void)state;
    char *text = written(cluster_page_write, &three);
    expect(text, "3 ranks on 2 hosts\n  host a<&\"b at 10.0.0.1: ranks 0 (2 CPUs) 1 (2 CPUs, H100)\n");
    expect(text, "  host c at 10.0.0.2: ranks 2 (4 CPUs)\n");
    expect(text, "    0       -    1.50   150.0\n");
    expect(text, "    0       -   10.00       -\n");
    free(text);
}

static void test_json(void **state)
{
    (void)state;
    char *text = written(cluster_json_write, &three);
    expect(text, "\"host\":\"a<&\\\"b\"");
    expect(text, "\"latency_us\":[[null,1.5,150],[1.5,null,15],[150,15,null]]");
    expect(text, "\"gb_s_16MiB\":[[null,10,null],[10,null,3],[null,3,null]]");
    free(text);
}

static void test_svg(void **state)
{
    (void)state;
    char *text = written(cluster_svg_write, &three);
    assert_int_equal(count(text, "<title>"), 12);
    assert_int_equal(count(text, "a<&"), 0);
    expect(text, "fill=\"#b23c00\"><title>rank 0 on host a&lt;&amp;&quot;b to rank 2 on host c: 150 us</title>");
    expect(text,
           "fill=\"#f4f4f4\"><title>rank 0 on host a&lt;&amp;&quot;b to rank 1 on host a&lt;&amp;&quot;b: 1.5 us");
    expect(text, "fill=\"#0b3c7a\"><title>rank 0 on host a&lt;&amp;&quot;b to rank 1");
    assert_int_equal(count(text, "<path"), 2); /* one line between the hosts in each panel */
    free(text);
}

/* One rank: no links, and no division by nothing. */
static void test_alone(void **state)
{
    (void)state;
    struct cluster_link none = {0, 0, 0};
    const struct cluster one = {.n = 1, .n_hosts = 1, .n_measured = 1, .ranks = ranks, .links = &none};
    void (*const writers[])(FILE *, const struct cluster *) = {cluster_page_write, cluster_json_write,
                                                               cluster_svg_write};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(writers); i++) {
        char *text = written(writers[i], &one);
        assert_int_equal(count(text, "nan") + count(text, "inf"), 0);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_svg),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
