/* SPDX-License-Identifier: BSD-3-Clause */
/* The option parser that all subcommands share: a table of options in, values out, the help page from the same table,
 * and for every mistake a sentence that says what to type instead. */

#include "cmd.h"

#include "base/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMES = 64 };

static void help(const struct tutti_args *spec)
{
    printf("usage: %s %s\n", spec->command, spec->usage);
    if (spec->about) printf("\n%s\n", spec->about);
    printf("\noptions:\n");
    for (size_t i = 0; i < spec->n_args; i++) {
        const struct tutti_arg *arg = &spec->args[i];
        char left[48];
        char letter[8] = "    ";
        if (arg->letter) snprintf(letter, sizeof letter, "-%c, ", arg->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, arg->name, arg->value ? " " : "",
                 arg->value ? arg->value : "");
        printf("  %-28s %s\n", left, arg->help);
    }
    printf("  %-28s %s\n", "-h, --help", "this page");
}

int tutti_args_fail(const struct tutti_args *spec, const char *format, ...)
{
    va_list ap;
    fflush(stdout); /* what was said before stays before */
    va_start(ap, format);
    fprintf(stderr, "%s: ", spec->command);
    vfprintf(stderr, format, ap);
    fprintf(stderr, "\nTry '%s --help'.\n", spec->command);
    va_end(ap);
    return TUTTI_EXIT_USAGE;
}

static bool is_digits(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text);
}

/* What went wrong with a value, or NULL. */
static const char *value_set(const struct tutti_arg *arg, const char *text)
{
    uint64_t number = 0;
    switch (arg->type) {
    case TUTTI_ARG_FLAG:
        *(bool *)arg->out = true;
        return NULL;
    case TUTTI_ARG_TEXT:
        *(const char **)arg->out = text;
        return NULL;
    case TUTTI_ARG_U32:
        if (!is_digits(text) || strlen(text) > 10 || !tutti_parse_size(text, &number) || number > UINT32_MAX) {
            return "give a whole number";
        }
        *(uint32_t *)arg->out = (uint32_t)number;
        return NULL;
    case TUTTI_ARG_SIZE:
        if (!tutti_parse_size(text, &number)) return "give a number of bytes such as 8, 64K, 256M or 1G";
        *(uint64_t *)arg->out = number;
        return NULL;
    case TUTTI_ARG_TIME:
        if (is_digits(text) && strlen(text) < 10) {
            char seconds[16];
            snprintf(seconds, sizeof seconds, "%ss", text);
            if (tutti_parse_time(seconds, (uint64_t *)arg->out)) return NULL;
        } else if (tutti_parse_time(text, &number)) {
            *(uint64_t *)arg->out = number;
            return NULL;
        }
        return "give a time such as 20ms, 5s or 30m";
    case TUTTI_ARG_LIST: {
        struct tutti_arg_list *list = arg->out;
        if (list->n == TUTTI_ARRAY_LEN(list->values)) return "it was given too often, 64 times at most";
        list->values[list->n++] = text;
        return NULL;
    }
    }
    return "is of no known type";
}

static const struct tutti_arg *arg_find(const struct tutti_args *spec, const char *name, size_t length)
{
    for (size_t i = 0; i < spec->n_args; i++) {
        if (strlen(spec->args[i].name) == length && memcmp(spec->args[i].name, name, length) == 0) {
            return &spec->args[i];
        }
    }
    return NULL;
}

static const struct tutti_arg *arg_find_letter(const struct tutti_args *spec, char letter)
{
    for (size_t i = 0; i < spec->n_args; i++) {
        if (spec->args[i].letter == letter) return &spec->args[i];
    }
    return NULL;
}

static enum tutti_args_result unknown(const struct tutti_args *spec, const char *text)
{
    const char *names[MAX_NAMES];
    char name[64];
    size_t n = 0;
    for (; n < spec->n_args && n < MAX_NAMES - 1; n++) names[n] = spec->args[n].name;
    names[n++] = "help";
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + 2, "="), text + 2);
    const char *near = text[1] == '-' ? tutti_nearest(name, names, n) : NULL;
    if (near) {
        tutti_args_fail(spec, "there is no option %.*s; did you mean --%s?", (int)strcspn(text, "="), text, near);
    } else {
        tutti_args_fail(spec, "there is no option %.*s.", (int)strcspn(text, "="), text);
    }
    return TUTTI_ARGS_WRONG;
}

/* One option at argv[*i]; moves *i over a value of its own. */
static enum tutti_args_result option_read(const struct tutti_args *spec, int argc, char **argv, int *i)
{
    const char *text = argv[*i];
    const char *value = NULL;
    const struct tutti_arg *arg;
    if (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0) {
        help(spec);
        return TUTTI_ARGS_HELP;
    }
    if (text[1] == '-') {
        const size_t length = strcspn(text + 2, "=");
        arg = arg_find(spec, text + 2, length);
        if (text[2 + length] == '=') value = text + 3 + length;
    } else {
        arg = arg_find_letter(spec, text[1]);
        if (text[2]) value = text + 2;
    }
    if (!arg) return unknown(spec, text);
    if (arg->type == TUTTI_ARG_FLAG && value) {
        tutti_args_fail(spec, "--%s takes no value, but '%s' was given.", arg->name, value);
        return TUTTI_ARGS_WRONG;
    }
    if (arg->type != TUTTI_ARG_FLAG && !value) {
        if (*i + 1 >= argc) {
            tutti_args_fail(spec, "--%s needs a value: type --%s %s.", arg->name, arg->name, arg->value);
            return TUTTI_ARGS_WRONG;
        }
        value = argv[++*i];
    }
    const char *reason = value_set(arg, value);
    if (reason) {
        tutti_args_fail(spec, "--%s %s: %s.", arg->name, value, reason);
        return TUTTI_ARGS_WRONG;
    }
    return TUTTI_ARGS_OK;
}

enum tutti_args_result tutti_args_parse(const struct tutti_args *spec, int argc, char **argv, int *n_positional)
{
    int n = 0;
    bool options = true;
    for (int i = 1; i < argc; i++) {
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && argv[i][0] == '-' && argv[i][1]) {
            enum tutti_args_result result = option_read(spec, argc, argv, &i);
            if (result != TUTTI_ARGS_OK) return result;
        } else {
            argv[++n] = argv[i];
            if (spec->stop_at_first) options = false;
        }
    }
    argv[n + 1] = NULL; /* so that they may be given to exec */
    *n_positional = n;
    return TUTTI_ARGS_OK;
}
