/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched new`: a file to begin an algorithm with. It is the example examples/algorithms/ring.c (or .py) under
 * another name, so it passes the check as it is. */

#include "sched.h"

#include <sched_templates.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OWN_NAME "my_ring" /* what the templates are called inside, */
#define OWN_FILE "./ring." /* and what their comments call them */

static struct {
    bool python;
} options;
static const struct tutti_arg args[] = {
    {"python", 0, TUTTI_ARG_FLAG, &options.python, NULL, "write NAME.py instead of NAME.c"},
};
static const struct tutti_args spec = {
    .command = "tutti sched new",
    .usage = "NAME [--python]",
    .about = "Writes NAME.c, an algorithm of one function with comments: a ring that adds up. It passes the check as\n"
             "it is; change it, and check again. docs/write_a_collective.md leads on from there.",
    .args = args,
    .n_args = sizeof args / sizeof args[0],
};

static bool is_identifier(const char *name)
{
    if (!isalpha((unsigned char)name[0]) || strlen(name) > 40) return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_') return false;
    return true;
}

/* Writes the template, with its name for its own. */
static bool template_write(FILE *file, const char *text, size_t bytes, const char *name)
{
    const char *end = text + bytes;
    while (text < end) {
        const size_t left = (size_t)(end - text);
        if (left >= strlen(OWN_NAME) && memcmp(text, OWN_NAME, strlen(OWN_NAME)) == 0) {
            fputs(name, file);
            text += strlen(OWN_NAME);
        } else if (left >= strlen(OWN_FILE) && memcmp(text, OWN_FILE, strlen(OWN_FILE)) == 0) {
            fprintf(file, "./%s.", name);
            text += strlen(OWN_FILE);
        } else {
            fputc(*text++, file);
        }
    }
    return !ferror(file);
}

int sched_new(int argc, char **argv)
{
    int n;
    char path[64];
    options.python = false;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (n != 1) return tutti_args_fail(&spec, "give one name, for example: tutti sched new mine");
    const char *name = argv[argc - 1];
    if (!is_identifier(name))
        return tutti_args_fail(&spec, "the name '%s' must be one of a function: a letter, then letters, digits, '_'.",
                               name);
    snprintf(path, sizeof path, "%s.%s", name, options.python ? "py" : "c");
    FILE *file = fopen(path, "wx");
    const unsigned char *begin = options.python ? template_py_ring : template_c_ring;
    const unsigned char *end = options.python ? template_py_end_ring : template_c_end_ring;
    bool written = file && template_write(file, (const char *)begin, (size_t)(end - begin), name);
    if (file && fclose(file) != 0) written = false;
    if (!written) {
        fprintf(stderr, "tutti sched new: cannot write %s: %s\n", path, strerror(errno));
        return TUTTI_EXIT_WRONG;
    }
    printf("wrote %s: now `tutti sched check ./%s`\n", path, path);
    return TUTTI_EXIT_OK;
}
