/* SPDX-License-Identifier: BSD-3-Clause */
/* What all subcommands share: from a table of options their values, by getopt_long, the help page, and for every
 * mistake a sentence that says what to type instead; and the choice of a subcommand. */

#include "cmd.h"

#include "base/config.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ARGS = 64, CODES = 256 }; /* CODES: of the first option without a letter */

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

static int code_of(const struct tutti_args *spec, size_t i)
{
    return spec->args[i].letter ? spec->args[i].letter : CODES + (int)i;
}

static const struct tutti_arg *arg_find(const struct tutti_args *spec, int code)
{
    for (size_t i = 0; i < spec->n_args; i++)
        if (code_of(spec, i) == code) return &spec->args[i];
    return NULL;
}

/* The table in the words of getopt_long. */
static void describe(const struct tutti_args *spec, struct option options[MAX_ARGS + 2], char letters[2 * MAX_ARGS + 8])
{
    size_t n = (size_t)sprintf(letters, "%s:h", spec->stop_at_first ? "+" : "");
    for (size_t i = 0; i < spec->n_args && i < MAX_ARGS; i++) {
        const struct tutti_arg *arg = &spec->args[i];
        const bool flag = arg->type == TUTTI_ARG_FLAG;
        options[i] = (struct option){arg->name, flag ? no_argument : required_argument, NULL, code_of(spec, i)};
        if (arg->letter) n += (size_t)sprintf(letters + n, "%c%s", arg->letter, flag ? "" : ":");
    }
    options[spec->n_args] = (struct option){"help", no_argument, NULL, 'h'};
}

/* What getopt_long did not take: an option that is none, or a flag with a value. */
static enum tutti_args_result refused(const struct tutti_args *spec, const char *text)
{
    const struct tutti_arg *flag = arg_find(spec, optopt);
    const char *names[MAX_ARGS + 1] = {"help"};
    char name[64];
    if (flag) {
        tutti_args_fail(spec, "--%s takes no value, but '%s' was given.", flag->name, strchr(text, '=') + 1);
        return TUTTI_ARGS_WRONG;
    }
    if (optopt) {
        tutti_args_fail(spec, "there is no option -%c.", optopt);
        return TUTTI_ARGS_WRONG;
    }
    for (size_t i = 0; i < spec->n_args && i < MAX_ARGS; i++) names[i + 1] = spec->args[i].name;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + 2, "="), text + 2);
    const char *near = tutti_nearest(name, names, spec->n_args + 1);
    tutti_args_fail(spec, "there is no option --%s%s%s%s", name, near ? "; did you mean --" : ".", near ? near : "",
                    near ? "?" : "");
    return TUTTI_ARGS_WRONG;
}

enum tutti_args_result tutti_args_parse(const struct tutti_args *spec, int argc, char **argv, int *n_positional)
{
    struct option options[MAX_ARGS + 2] = {{NULL, 0, NULL, 0}};
    char letters[2 * MAX_ARGS + 8];
    describe(spec, options, letters);
    opterr = optind = 0; /* from the beginning, and silent */
    for (int code; (code = getopt_long(argc, argv, letters, options, NULL)) != -1;) {
        if (code == 'h') {
            help(spec);
            return TUTTI_ARGS_HELP;
        }
        if (code == '?') return refused(spec, argv[optind - 1]);
        const struct tutti_arg *arg = arg_find(spec, code == ':' ? optopt : code);
        const char *reason = code == ':' ? NULL : value_set(arg, optarg);
        if (code == ':') tutti_args_fail(spec, "--%s needs a value: type --%s %s.", arg->name, arg->name, arg->value);
        if (reason) tutti_args_fail(spec, "--%s %s: %s.", arg->name, optarg, reason);
        if (code == ':' || reason) return TUTTI_ARGS_WRONG;
    }
    *n_positional = argc - optind;
    if (optind == argc || !spec->no_positional) return TUTTI_ARGS_OK;
    tutti_args_fail(spec, "it takes no argument, but '%s' was given.", argv[optind]);
    return TUTTI_ARGS_WRONG;
}

/* ---- tables of commands ---- */

static void commands_help(const struct tutti_commands *commands, FILE *out)
{
    fprintf(out, "usage: %s COMMAND [options]\n\ncommands:\n", commands->self);
    for (size_t i = 0; i < commands->n; i++) {
        const struct tutti_command *command = &commands->list[i];
        fprintf(out, "  %-6s %s%s\n", command->name, command->usage ? command->usage : "", command->help);
    }
    fprintf(out, "\n%s", commands->more);
}

int tutti_commands_run(const struct tutti_commands *commands, int argc, char **argv)
{
    const char *names[MAX_ARGS];
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        commands_help(commands, argc < 2 ? stderr : stdout);
        return argc < 2 ? TUTTI_EXIT_USAGE : TUTTI_EXIT_OK;
    }
    for (size_t i = 0; i < commands->n; i++) {
        names[i] = commands->list[i].name;
        if (strcmp(argv[1], names[i]) == 0) return commands->list[i].function(argc - 1, argv + 1);
    }
    const char *near = tutti_nearest(argv[1], names, commands->n);
    fprintf(stderr, "%s: there is no command '%s'; ", commands->self, argv[1]);
    if (near) fprintf(stderr, "did you mean '%s %s'?\n", commands->self, near);
    if (!near) fprintf(stderr, "'%s --help' lists them.\n", commands->self);
    return TUTTI_EXIT_USAGE;
}
