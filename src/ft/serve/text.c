/* SPDX-License-Identifier: BSD-3-Clause */
/* Strangers' words: UTF-8, and what of it is shown as it is. */
#include "ft/serve/text.h"

#include <string.h>

int serve_text_utf8(const unsigned char *c)
{
    const int n = c[0] >= 0xc2 && c[0] < 0xe0   ? 2
                  : c[0] >= 0xe0 && c[0] < 0xf0 ? 3
                  : c[0] >= 0xf0 && c[0] < 0xf5 ? 4
                                                : 0;
    const bool narrow = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) ||
                        (c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] > 0x8f);

    for (int i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80) return 0; /* the end of the text, too */
    return narrow ? 0 : n;
}

/* What a terminal may obey, or what turns the text around it: controls of ASCII and of U+0080, marks of direction. */
static bool is_control(const unsigned char *c, int n, uint32_t *out)
{
    const uint32_t point = n == 1   ? c[0]
                           : n == 2 ? (c[0] & 0x1fu) << 6 | (c[1] & 0x3f)
                           : n == 3 ? (c[0] & 0xfu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3f)
                                    : 0x10000;

    *out = point;
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || (point >= 0x200e && point <= 0x200f) ||
           (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

void serve_text_put(FILE *out, const char *text)
{
    uint32_t point;

    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        const int n = *c >= 0x80 ? serve_text_utf8(c) : 1;
        if (n == 0)
            fputs("\\ufffd", out);
        else if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (is_control(c, n, &point))
            fprintf(out, "\\u%04x", point);
        else
            fwrite(c, 1, (size_t)n, out);
        if (n > 0) c += n - 1;
    }
}
