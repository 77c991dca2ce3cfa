/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_CMD_H
#define TUTTI_TOOLS_CMD_H

/* The command `tutti`. Begin with main.c, the table of subcommands; each has a folder (run, bench, ...)
 * with a header that says more. This room may use base alone. Here: the subcommands, the parser of options that they
 * share (args.c), and ranks as processes (ranks.c). A subcommand returns the exit status: 0 done, 1 it found something
 * wrong, 2 it was not understood. argv[0] is the subcommand's name. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TUTTI_EXIT_OK 0
#define TUTTI_EXIT_WRONG 1
#define TUTTI_EXIT_USAGE 2

int tutti_cmd_run(int argc, char **argv);
int tutti_cmd_chaos(int argc, char **argv);
int tutti_cmd_bench(int argc, char **argv);
int tutti_cmd_doctor(int argc, char **argv);
int tutti_cmd_ft(int argc, char **argv);
int tutti_cmd_info(int argc, char **argv);
int tutti_cmd_lighthouse(int argc, char **argv);
int tutti_cmd_prove(int argc, char **argv);
int tutti_cmd_sched(int argc, char **argv);
int tutti_cmd_tune(int argc, char **argv);

/* ---- commands that need ranks (ranks.c) ---- */
bool tutti_inside_a_job(void); /* this process is a rank, by what a launcher set */
/* Runs this command again as n ranks, bound to CPUs as `tutti run --cores` says; the exit status. */
int tutti_start_ranks(uint32_t n, const char *cores, int argc, char **argv);

/* ---- in place of NCCL (as_nccl.c) ---- */
/* The file of tutti's libnccl.so.2 that was installed with this command; false: it is not there. */
bool tutti_nccl_file(char *out, size_t room);
/* "LD_PRELOAD=that:what is preloaded already", freed by the caller; NULL: it is not there, or its path has a space or
 * colon, which the variable can not carry. */
char *tutti_nccl_preload(void);

/* ---- a table of commands (args.c) ---- */
struct tutti_command {
    const char *name, *usage, *help; /* usage: what follows the name, padded; NULL: nothing */
    int (*function)(int argc, char **argv);
};
struct tutti_commands {
    const char *self; /* "tutti sched" */
    const struct tutti_command *list;
    size_t n;
    const char *more; /* the end of the help */
};
/* Runs the command that argv[1] names; --help lists them. Returns the exit status. */
int tutti_commands_run(const struct tutti_commands *commands, int argc, char **argv);

/* ---- options (args.c): --name value, --name=value, -n value, -nvalue; `--` ends them ---- */
enum tutti_arg_type {
    TUTTI_ARG_FLAG, /* bool */
    TUTTI_ARG_TEXT, /* const char *: points into argv */
    TUTTI_ARG_U32,  /* uint32_t */
    TUTTI_ARG_SIZE, /* uint64_t, with K, M, G */
    TUTTI_ARG_TIME, /* uint64_t nanoseconds; "5s", "20ms", a bare number is seconds */
    TUTTI_ARG_LIST, /* struct tutti_arg_list: every value of an option that may be given again and again */
};
struct tutti_arg_list {
    const char *values[64]; /* point into argv */
    size_t n;
};
struct tutti_arg {
    const char *name; /* without dashes */
    char letter;      /* 0: none */
    enum tutti_arg_type type;
    void *out;         /* keeps its value when the option is not given */
    const char *value; /* what to call the value in the help: "FILE"; NULL for flags */
    const char *help;
};
struct tutti_args {
    const char *command; /* "tutti sched show" */
    const char *usage;   /* what follows the command: "ALG [options]" */
    const char *about;   /* a paragraph; may be NULL */
    const struct tutti_arg *args;
    size_t n_args;
    bool stop_at_first; /* the first positional argument ends the options (tutti run PROGRAM ...) */
    bool no_positional; /* there are none: one is WRONG */
};
/* All but OK are the exit status. */
enum tutti_args_result { TUTTI_ARGS_OK = -1, TUTTI_ARGS_HELP = TUTTI_EXIT_OK, TUTTI_ARGS_WRONG = TUTTI_EXIT_USAGE };

/* Reads argv[1..argc), whose order may change: the positional arguments are the last ones then. HELP: --help was
 * printed to stdout. WRONG: a sentence with what to type instead was printed to stderr. */
enum tutti_args_result tutti_args_parse(const struct tutti_args *spec, int argc, char **argv, int *n_positional);
/* Prints "COMMAND: text" and how to get help to stderr; returns TUTTI_EXIT_USAGE. */
int tutti_args_fail(const struct tutti_args *spec, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
