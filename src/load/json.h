/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_LOAD_JSON_H
#define TUTTI_LOAD_JSON_H

/* A reader of JSON: the whole text as an array of values. Depth and number of values are bounded. */

#include "base/base.h"

enum tutti_json_type {
    TUTTI_JSON_NULL,
    TUTTI_JSON_FALSE,
    TUTTI_JSON_TRUE,
    TUTTI_JSON_NUMBER,
    TUTTI_JSON_TEXT,
    TUTTI_JSON_LIST,
    TUTTI_JSON_OBJECT
};

struct tutti_json_value {
    uint8_t type;
    uint32_t line;
    uint32_t n;           /* members of lists and objects */
    uint32_t first, next; /* the first member, and the next value beside this one; 0: none */
    const char *name;     /* members of objects: in the text */
    const char *text;     /* texts and numbers, ended by a zero */
};
struct tutti_json {
    const char *file;
    struct tutti_json_value *values; /* values[0] is the whole */
    uint32_t n, capacity;
};
/* Reads the text, and writes zeros into it; there is one behind its end. ARGUMENT with "FILE:LINE: ..."; MEMORY. */
enum tutti_status tutti_json_read(const char *file, char *text, size_t bytes, struct tutti_json *out);
void tutti_json_fini(struct tutti_json *json);
/* The member of that name; NULL: there is none. */
const struct tutti_json_value *tutti_json_member(const struct tutti_json *json, const struct tutti_json_value *of,
                                                 const char *name);
/* The next member of a list or object, after `before` (NULL: the first); NULL: the end. */
const struct tutti_json_value *tutti_json_next(const struct tutti_json *json, const struct tutti_json_value *of,
                                               const struct tutti_json_value *before);

#endif
