/* SPDX-License-Identifier: BSD-3-Clause */

/* The page and the JSON of tutti info: well-formed whatever the values are, and without the secret. */

#include "info.h"
#include "test.h"

#include <ctype.h>
#include <string.h>

/* ---- a reader of JSON that only knows right from wrong ---- */
static const char *value_skip(const char *at);

static const char *space_skip(const char *at)
{
    while (at && isspace((unsigned char)*at)) at++;
    return at;
}

static const char *string_skip(const char *at)
{
    if (!at || *at++ != '"') return NULL;
    for (; *at != '"'; at++) {
        if (*at == '\0' || (unsigned char)*at < 0x20) return NULL;
        if (*at != '\\') continue;
        at++;
        if (*at == 'u') {
            for (int i = 1; i <= 4; i++)
                if (!isxdigit((unsigned char)at[i])) return NULL;
            at += 4;
        } else if (!*at || !strchr("\"\\/bfnrt", *at)) {
            return NULL;
        }
    }
    return at + 1;
}

static const char *members_skip(const char *at, char end)
{
    at = space_skip(at);
    if (*at == end) return at + 1;
    for (;;) {
        at = space_skip(at);
        if (end == '}') {
            at = space_skip(string_skip(at));
            if (!at || *at++ != ':') return NULL;
        }
        at = space_skip(value_skip(at));
        if (!at) return NULL;
        if (*at == end) return at + 1;
        if (*at++ != ',') return NULL;
    }
}

static const char *value_skip(const char *at)
{
    at = space_skip(at);
    if (!at) return NULL;
    if (*at == '{') return members_skip(at + 1, '}');
    if (*at == '[') return members_skip(at + 1, ']');
    if (*at == '"') return string_skip(at);
    if (strncmp(at, "true", 4) == 0) return at + 4;
    if (strncmp(at, "false", 5) == 0) return at + 5;
    if (!isdigit((unsigned char)*at)) return NULL;
    while (isdigit((unsigned char)*at)) at++;
    return at;
}

static bool is_json(const char *text)
{
    const char *end = space_skip(value_skip(text));
    return end && *end == '\0';
}

static void test_the_reader_can_refuse(void **state)
{
    (void)state;
    static const char *const bad[] = {"",       "{",       "{\"a\":}",   "{\"a\":1,}", "[1,2",        "{\"a\" 1}",
                                      "\"\n\"", "\"\\x\"", "{\"a\":1}}", "{a:1}",      "\"\\u12g4\"", "[1 2]"};
    assert_true(is_json("{\"a\":[1,true,{\"b\":\"\\u0041\\n\"}],\"c\":{}} \n"));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bad); i++)
        if (is_json(bad[i])) fail_msg("taken for JSON: %s", bad[i]);
}

/* ---- */
static char *written(void (*write)(FILE *, const struct info *), const struct info *info)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    write(f, info);
    fclose(f);
    return text;
}

static void json_all(FILE *out, const struct info *info)
{
    info_json_write(out, info, false);
}

static void json_config(FILE *out, const struct info *info)
{
    info_json_write(out, info, true);
}

static void facts_make(struct info *info)
{
    memset(info, 0, sizeof *info);
    info_text(info, "one", "strange_text", "a note", "%s", "quote \" backslash \\ newline \n byte \xe9 end");
    info_number(info, "one", "number", NULL, UINT64_MAX);
    info_bytes(info, "two", "size", NULL, UINT64_C(3) << 29);
    info_flag(info, "two", "flag", NULL, true);
}

static void expect(const char *text, const char *what, bool in)
{
    if ((strstr(text, what) != NULL) != in) fail_msg("\"%s\" %s in: %s", what, in ? "is not" : "is", text);
}

static void test_facts(void **state)
{
    (void)state;
    struct info *info = tutti_alloc(sizeof *info);
    assert_non_null(info);
    facts_make(info);
    info_lack(info, "thing", "it \"hurts\"", "apt-get install thing");
    snprintf(info->config_error, sizeof info->config_error, "option \"x\" is wrong");
    char *page = written(info_page_write, info), *json = written(json_all, info);
    expect(page, "1.5 GiB", true);
    expect(page, "strange text", true);
    expect(page, "(a note)", true);
    expect(page, "thing                it \"hurts\". To get it: apt-get install thing\n", true);
    expect(page, "the configuration is wrong: option \"x\" is wrong\n", true);
    if (!is_json(json)) fail_msg("no JSON: %s", json);
    expect(json, "\"size\":1610612736", true);
    expect(json, "\"number\":18446744073709551615", true);
    expect(json, "\"flag\":true", true);
    expect(json, "newline \\u000a byte \\u00e9 end", true);
    free(page);
    free(json);
    tutti_free(info);
}

static void test_options(void **state)
{
    (void)state;
    const struct tutti_option options[] = {{"secret", "sesame-open"}, {"spin", "5us"}};
    struct tutti_config config;
    struct info *info = tutti_alloc(sizeof *info);
    assert_non_null(info);
    facts_make(info);
    setenv("TUTTI_SLICE", "64K", 1);
    assert_int_equal(tutti_config_init(&config, options, 2), TUTTI_OK);
    unsetenv("TUTTI_SLICE");
    info->config = &config;
    char *texts[] = {written(info_page_write, info), written(info_options_write, info), written(json_all, info),
                     written(json_config, info)};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(texts); i++) {
        expect(texts[i], "sesame", false); /* the secret is nowhere */
        expect(texts[i], "(set)", true);
        for (enum tutti_option_id id = 0; id < TUTTI_N_OPTIONS; id++)
            if (tutti_option_info(id)->section != TUTTI_SECTION_HOOK)
                expect(texts[i], tutti_option_info(id)->name, true);
        expect(texts[i], "decorators", false); /* which tests set */
        if (i >= 2 && !is_json(texts[i])) fail_msg("no JSON: %s", texts[i]);
    }
    expect(texts[1], "slice            64K                  environment  128K", true);
    expect(texts[1], "spin             5us                  call         20us", true);
    expect(texts[3], "{\"name\":\"slice\",\"value\":\"64K\",\"origin\":\"environment\",\"default\":\"128K\"", true);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(texts); i++) free(texts[i]);
    tutti_config_fini(&config);
    tutti_free(info);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_reader_can_refuse),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
