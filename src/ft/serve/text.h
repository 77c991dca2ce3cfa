/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_SERVE_TEXT_H
#define TUTTI_FT_SERVE_TEXT_H

/* Strangers' words, as JSON and terminals can have them. Pure. */

#include "base/base.h"

#include <stdio.h>

/* Bytes of the character at `c` beyond ASCII; 0: it is no UTF-8 (RFC 3629). */
int serve_text_utf8(const unsigned char *c);
/* As within a string of JSON: quotes, controls and marks of direction are escaped, what is no UTF-8 is U+FFFD. */
void serve_text_put(FILE *out, const char *text);

#endif
