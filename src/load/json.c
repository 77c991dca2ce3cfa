/* SPDX-License-Identifier: BSD-3-Clause */
#include "load/json.h"

#include <string.h>

enum { MOST_DEPTH = 24, MOST_VALUES = 1 << 22 };

struct reader {
    struct tutti_json *json;
    char *at, *end;
    uint32_t line;
    uint32_t open[MOST_DEPTH], last[MOST_DEPTH], depth; /* lists and objects that are open, and their last members */
};

#define REFUSE(reader, ...) tutti_fail_at((reader)->json->file, (reader)->line, __VA_ARGS__)

static void skip_space(struct reader *reader)
{
    for (; reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at; reader->at++)
        reader->line += *reader->at == '\n';
}

static enum tutti_status add(struct reader *reader, enum tutti_json_type type, const char *name, const char *text)
{
    struct tutti_json *json = reader->json;
    if (json->n == MOST_VALUES) return REFUSE(reader, "more than %d values", (int)MOST_VALUES);
    if (json->n == json->capacity) {
        const uint32_t capacity = 2 * json->capacity + 256;
        struct tutti_json_value *grown = tutti_alloc_array(capacity, sizeof *grown);
        if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to read %s", json->file);
        if (json->n > 0) memcpy(grown, json->values, json->n * sizeof *grown);
        tutti_free(json->values);
        json->values = grown;
        json->capacity = capacity;
    }
    const uint32_t number = json->n++;
    json->values[number] =
        (struct tutti_json_value){.type = (uint8_t)type, .line = reader->line, .name = name, .text = text};
    if (reader->depth == 0) return TUTTI_OK;
    struct tutti_json_value *of = &json->values[reader->open[reader->depth - 1]];
    if (of->n++ == 0)
        of->first = number;
    else
        json->values[reader->last[reader->depth - 1]].next = number;
    reader->last[reader->depth - 1] = number;
    return TUTTI_OK;
}

/* A text in place. What a plan has are plain words: an escape stays as it is. */
static enum tutti_status read_text(struct reader *reader, const char **out)
{
    char *from = ++reader->at;
    for (; reader->at < reader->end && *reader->at != '"'; reader->at++) {
        if ((unsigned char)*reader->at < ' ') return REFUSE(reader, "a text that does not end in its line");
        if (*reader->at == '\\' && reader->at + 1 < reader->end) reader->at++;
    }
    if (reader->at == reader->end) return REFUSE(reader, "the text ends within a value");
    *reader->at++ = '\0';
    *out = from;
    return TUTTI_OK;
}

/* A number or one of the three words. The character behind it is kept until it was read. */
static enum tutti_status read_word(struct reader *reader, const char *name)
{
    static const char *const words[] = {
        [TUTTI_JSON_NULL] = "null", [TUTTI_JSON_FALSE] = "false", [TUTTI_JSON_TRUE] = "true"};
    const char *from = reader->at;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(words); i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(reader->end - from) < n || memcmp(from, words[i], n) != 0) continue;
        reader->at += n;
        return add(reader, (enum tutti_json_type)i, name, words[i]);
    }
    while (reader->at < reader->end && *reader->at && strchr("+-.eE0123456789", *reader->at)) reader->at++;
    if (reader->at == from) return REFUSE(reader, "'%.1s' where a value is expected", from < reader->end ? from : "");
    return add(reader, TUTTI_JSON_NUMBER, name, from);
}

static enum tutti_status read_value(struct reader *reader, const char *name)
{
    const char *text = "";
    skip_space(reader);
    const char c = reader->at < reader->end ? *reader->at : '\0';
    if (c == '"') {
        TUTTI_TRY(read_text(reader, &text));
        return add(reader, TUTTI_JSON_TEXT, name, text);
    }
    if (c != '{' && c != '[') return read_word(reader, name);
    TUTTI_TRY(add(reader, c == '{' ? TUTTI_JSON_OBJECT : TUTTI_JSON_LIST, name, ""));
    reader->at++;
    if (reader->depth == MOST_DEPTH) return REFUSE(reader, "values in values, more than %d deep", (int)MOST_DEPTH);
    reader->open[reader->depth++] = reader->json->n - 1;
    return TUTTI_OK;
}

/* A member of what is open, or its end. */
static enum tutti_status read_member(struct reader *reader)
{
    const struct tutti_json_value *of = &reader->json->values[reader->open[reader->depth - 1]];
    const bool object = of->type == TUTTI_JSON_OBJECT;
    const char close = object ? '}' : ']';
    const char *name = NULL;
    skip_space(reader);
    if (reader->at == reader->end)
        return REFUSE(reader, "the text ends within %s that begins in line %u", object ? "an object" : "a list",
                      of->line);
    const char c = *reader->at;
    if (c == close || (c == ',' && of->n > 0)) *reader->at++ = '\0'; /* a number may end here */
    if (c == close) {
        reader->depth--;
        return TUTTI_OK;
    }
    if (c != ',' && of->n > 0) return REFUSE(reader, "'%c' where ',' or '%c' is expected", c, close);
    skip_space(reader);
    if (object) {
        if (reader->at == reader->end || *reader->at != '"') return REFUSE(reader, "a name in quotes is expected");
        TUTTI_TRY(read_text(reader, &name));
        skip_space(reader);
        if (reader->at == reader->end || *reader->at != ':')
            return REFUSE(reader, "':' is expected after \"%.40s\"", name);
        reader->at++;
    }
    return read_value(reader, name);
}

enum tutti_status tutti_json_read(const char *file, char *text, size_t bytes, struct tutti_json *out)
{
    struct reader reader = {.json = out, .at = text, .end = text + bytes, .line = 1};
    *out = (struct tutti_json){.file = file};
    enum tutti_status status = read_value(&reader, NULL);
    while (reader.depth > 0 && status >= 0) status = read_member(&reader);
    skip_space(&reader);
    if (status >= 0 && reader.at < reader.end) status = REFUSE(&reader, "more than one value");
    /* Numbers end at the first character that is none. */
    for (uint32_t i = 0; i < out->n && status >= 0; i++) {
        if (out->values[i].type != TUTTI_JSON_NUMBER) continue;
        char *end = text + (out->values[i].text - text);
        end[strspn(end, "+-.eE0123456789")] = '\0';
    }
    if (status < 0) tutti_json_fini(out);
    return status;
}

void tutti_json_fini(struct tutti_json *json)
{
    tutti_free(json->values);
    *json = (struct tutti_json){0};
}

const struct tutti_json_value *tutti_json_next(const struct tutti_json *json, const struct tutti_json_value *of,
                                               const struct tutti_json_value *before)
{
    const uint32_t next = before ? before->next : of->first;
    return next ? &json->values[next] : NULL;
}

const struct tutti_json_value *tutti_json_member(const struct tutti_json *json, const struct tutti_json_value *of,
                                                 const char *name)
{
    const struct tutti_json_value *value = of->type == TUTTI_JSON_OBJECT ? tutti_json_next(json, of, NULL) : NULL;
    while (value && strcmp(value->name, name) != 0) value = tutti_json_next(json, of, value);
    return value;
}
