/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_LIGHTHOUSE_H
#define TUTTI_TOOLS_LIGHTHOUSE_H

/* The lighthouse's file of options: lines "name = value", # begins a comment. Of this room alone. */

#include "ft/serve/serve.h"

#define LIGHTHOUSE_WORDS 256

struct lighthouse_words {
    struct tutti_serve_word words[LIGHTHOUSE_WORDS];
    size_t n;
    char *text; /* what the words point into */
};
/* False: a sentence was printed. NULL is a file without words. */
bool lighthouse_words_read(struct lighthouse_words *words, const char *path);
void lighthouse_words_fini(struct lighthouse_words *words);
/* NULL: there is none of this name. */
const char *lighthouse_word(const struct lighthouse_words *words, const char *name);
/* In the place of the one of this name, or after all. */
void lighthouse_word_set(struct lighthouse_words *words, const char *name, const char *value);

#endif
