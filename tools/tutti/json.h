/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_JSON_H
#define TUTTI_TOOLS_JSON_H

/* What the subcommands' --json writes have in common. */

#include <stdio.h>

/* A string with its quotes. */
static inline void tutti_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20 || *c >= 0x7f) /* what is no ASCII may be no UTF-8 either */
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

#endif
