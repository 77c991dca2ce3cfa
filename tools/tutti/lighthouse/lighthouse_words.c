/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of options, read whole. */
#include "lighthouse.h"

#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (1 << 20)

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = file ? calloc(1, MOST_BYTES + 1) : NULL;
    const size_t n = text ? fread(text, 1, MOST_BYTES, file) : 0;

    if (!text || ferror(file) || n == MOST_BYTES || strlen(text) != n) {
        fprintf(stderr, "tutti lighthouse: --config: %s: %s\n", path,
                !text || ferror(file) ? strerror(errno) : "it is longer than 1 MiB, or no text");
        free(text);
        text = NULL;
    }
    if (file) fclose(file);
    return text;
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    for (size_t n = strlen(text); n > 0 && strchr(" \t\r", text[n - 1]); n--) text[n - 1] = '\0';
    return text;
}

const char *lighthouse_word(const struct lighthouse_words *words, const char *name)
{
    for (size_t i = 0; i < words->n; i++)
        if (strcmp(words->words[i].name, name) == 0) return words->words[i].value;
    return NULL;
}

void lighthouse_word_set(struct lighthouse_words *words, const char *name, const char *value)
{
    size_t i = 0;

    while (i < words->n && strcmp(words->words[i].name, name) != 0) i++;
    if (i == LIGHTHOUSE_WORDS) return;
    words->words[i] = (struct tutti_serve_word){name, value};
    if (i == words->n) words->n++;
}

bool lighthouse_words_read(struct lighthouse_words *words, const char *path)
{
    unsigned number = 0;
    char *rest;

    *words = (struct lighthouse_words){0};
    if (!path) return true;
    words->text = rest = read_all(path);
    if (!rest) return false;
    for (char *line; (line = strsep(&rest, "\n"));) {
        number++;
        line[strcspn(line, "#")] = '\0';
        char *value = strchr(line, '=');
        if (!*trim(line)) continue;
        if (!value || words->n == LIGHTHOUSE_WORDS - 8) { /* the rest is for options of the command line */
            fprintf(stderr, "tutti lighthouse: --config: %s:%u: %s\n", path, number,
                    value ? "these are too many lines" : "this is no \"name = value\"");
            return false;
        }
        *value = '\0';
        char *name = trim(line);
        for (char *at = name; *at; at++)
            if (*at == '-') *at = '_'; /* one spelling: torchft's */
        lighthouse_word_set(words, name, trim(value + 1));
    }
    return true;
}

void lighthouse_words_fini(struct lighthouse_words *words)
{
    free(words->text);
}
