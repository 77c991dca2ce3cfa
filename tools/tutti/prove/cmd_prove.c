/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti prove KIND: tries one point after another, and what is said of each. */
#include "prove.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINT_NS (120 * TUTTI_NS_PER_S)
struct request {
    const char *output, *point, *only;
};

enum verdict { WORKS, WRONG, NOT_HERE, N_VERDICTS };
static const char *const verdicts[N_VERDICTS] = {[WORKS] = "works", [WRONG] = "wrong", [NOT_HERE] = "not here"};

/* ---- a point, in a process of its own ---- */

/* Each rank prints what it has to say; another rank may have been killed meanwhile. */
static int be_a_point(const struct tutti_device_ops *kind, const char *name)
{
    struct prove_finding found = {""};
    const struct prove_point *point = prove_point_named(name);
    if (!point || !point->function) return TUTTI_EXIT_USAGE;
    const bool there = !point->has_sycl || prove_sycl_load();
    const char *absence = there ? kind->absence() : tutti_last_error()->text;
    if (absence) {
        printf("%s: %s\n", verdicts[NOT_HERE], absence);
        return TUTTI_EXIT_OK;
    }
    const enum tutti_status status = point->function(kind, &found);
    const enum verdict verdict = status >= 0 ? WORKS : status == TUTTI_ERR_UNSUPPORTED ? NOT_HERE : WRONG;
    const char *text = status >= 0 ? found.text : tutti_last_error()->text;
    if (text[0]) printf("%s: %s\n", verdicts[verdict], text);
    return TUTTI_EXIT_OK;
}

/* ---- what came of one ---- */

struct command {
    const char *argv[2 * PROVE_WORDS];
    const char *env[3]; /* entries NAME=VALUE */
    char way[40], method[40];
};

/* The words of the command that tries it. */
static void command_fill(const struct prove_point *point, const char *kind, struct command *out)
{
    static const char *const job[] = {"tutti", "run", "-n", "2", "--keep-going", "--", "/proc/self/exe"};
    static const char *const bench[] = {"tutti", "bench", "-n", "2", "--device"};
    const char **argv = out->argv, **env = out->env;
    size_t n = 0;
    *out = (struct command){.argv = {NULL}};
    if (point->way) {
        snprintf(out->way, sizeof out->way, "TUTTI_GPU=%s", point->way[0] ? point->way : kind);
        *env++ = out->way;
    }
    if (point->method) {
        snprintf(out->method, sizeof out->method, "TUTTI_GPU_METHOD=%s", point->method);
        *env++ = out->method;
    }
    if (!point->function) {
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(bench); i++) argv[n++] = bench[i];
        argv[n++] = kind;
        for (size_t i = 0; point->bench[i]; i++) argv[n++] = point->bench[i];
        return;
    }
    for (size_t i = 0; point->has_ranks && i < TUTTI_ARRAY_LEN(job); i++) argv[n++] = job[i];
    if (n == 0) argv[n++] = "tutti";
    argv[n++] = "prove", argv[n++] = kind, argv[n++] = "--point", argv[n++] = point->name;
}

/* Finds in the output of a function's process the last line that is a verdict. */
static bool verdict_read(const char *output, enum verdict *verdict, const char **text)
{
    bool found = false;
    for (const char *line = output; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        for (int v = 0; v < N_VERDICTS; v++) {
            const size_t n = strlen(verdicts[v]);
            if (strncmp(line, verdicts[v], n) != 0 || line[n] != ':') continue;
            *verdict = (enum verdict)v, *text = line + n + 2, found = true;
        }
    }
    return found;
}

static bool checks(const struct prove_point *point)
{
    for (size_t i = 0; point->bench[i]; i++)
        if (strcmp(point->bench[i], "--check") == 0) return true;
    return false;
}

/* Finds in the output of a bench the sum of wrong values, else the last line. */
static const char *complaint_of(const char *output, const char *last)
{
    const char *wrong = strstr(output, "wrong values: ");
    return wrong && strncmp(wrong, "wrong values: 0", 15) != 0 ? wrong : last && last[0] ? last : "it said nothing";
}

static enum verdict judge(const struct prove_point *point, const struct prove_child *child, char *text, size_t capacity)
{
    enum verdict verdict = WRONG;
    const char *said = NULL;
    char *copy = strdup(child->output), *last = copy ? prove_last_line(copy) : NULL;
    if (point->function && verdict_read(child->output, &verdict, &said))
        snprintf(text, capacity, "%.*s", (int)strcspn(said, "\n"), said);
    else if (!point->function && strstr(child->output, "there is no peer access between"))
        verdict = NOT_HERE, snprintf(text, capacity, "the devices do not reach one another");
    else if (child->is_late)
        snprintf(text, capacity, "it had not ended after %.0f s", (double)POINT_NS / 1e9);
    else if (child->status < 0)
        snprintf(text, capacity, "its process was ended by signal %d", -1 - child->status);
    else if (!point->function && child->status == 0)
        verdict = WORKS, snprintf(text, capacity, "%s", checks(point) ? "every value is right" : last ? last : "");
    else
        said = complaint_of(child->output, last), snprintf(text, capacity, "%.*s", (int)strcspn(said, "\n"), said);
    free(copy);
    return verdict;
}

/* ---- all of them ---- */

static enum verdict prove_one(const struct prove_point *point, const char *kind, FILE *report)
{
    char text[1000];
    struct command command;
    struct prove_child child;
    enum verdict verdict = WRONG;
    command_fill(point, kind, &command);
    printf("  %-10s %s ... ", point->name, point->what), fflush(stdout);
    if (prove_child_run(command.argv, command.env, POINT_NS, &child)) {
        verdict = judge(point, &child, text, sizeof text);
    } else {
        child.output = NULL;
        snprintf(text, sizeof text, "%s", tutti_last_error()->text);
    }
    printf("%s: %s\n", verdicts[verdict], text);
    fprintf(report, "## %s: %s\n%s: %s\n", point->name, point->what, verdicts[verdict], text);
    for (size_t i = 0; command.env[i]; i++) fprintf(report, "%s ", command.env[i]);
    for (size_t i = 0; command.argv[i]; i++) fprintf(report, "%s ", command.argv[i]);
    fprintf(report, "\n%s\n", child.output ? child.output : "");
    free(child.output);
    return verdict;
}

static void facts(FILE *report)
{
    static const char *const argv[] = {"tutti", "info", NULL};
    struct prove_child child;
    if (!prove_child_run(argv, NULL, POINT_NS, &child)) return;
    fprintf(report, "%s\n", child.output);
    free(child.output);
}

/* The next of names with commas between; "" at the end. */
static const char *name_next(const char *names, char *name, size_t room)
{
    const size_t n = strcspn(names, ",");
    snprintf(name, room, "%.*s", (int)n, names);
    return names + n + (names[n] == ',');
}

static bool is_wanted(const struct prove_point *point, const char *names)
{
    char name[40] = "";
    bool found = !names;
    for (const char *rest = names; rest && *rest;) {
        rest = name_next(rest, name, sizeof name);
        found |= strcmp(name, point->name) == 0;
    }
    return found;
}

/* Finds the first of those names that is no point, in *name. */
static bool has_stranger(const char *names, char *name, size_t room)
{
    for (const char *rest = names; rest && *rest;) {
        rest = name_next(rest, name, room);
        if (!prove_point_named(name)) return true;
    }
    return false;
}

static int prove_all(const struct tutti_device_ops *kind, const struct request *request)
{
    uint32_t n[N_VERDICTS] = {0};
    char own[64];
    snprintf(own, sizeof own, "tutti-prove-%s.txt", kind->name);
    const char *path = request->output ? request->output : own, *absence = kind->absence();
    if (absence) {
        fprintf(stderr, "tutti prove: not here: %s\n", absence);
        return TUTTI_EXIT_WRONG;
    }
    FILE *report = fopen(path, "w");
    if (!report) {
        fprintf(stderr, "tutti prove: %s can not be written; say --output FILE\n", path);
        return TUTTI_EXIT_WRONG;
    }
    fprintf(report, "# tutti %s prove %s\n", TUTTI_VERSION_TEXT, kind->name);
    for (size_t i = 0; i < prove_n_points; i++) {
        const struct prove_point *point = &prove_points[i];
        if (prove_point_is_of(point, kind->name) && is_wanted(point, request->only))
            n[prove_one(point, kind->name, report)]++;
    }
    facts(report);
    fclose(report);
    printf("%u points work, %u are wrong, %u could not be tried; all that was said is in %s\n", n[WORKS], n[WRONG],
           n[NOT_HERE], path);
    return n[WRONG] > 0 ? TUTTI_EXIT_WRONG : TUTTI_EXIT_OK;
}

int tutti_cmd_prove(int argc, char **argv)
{
    struct request request = {.output = NULL};
    const struct tutti_arg args[] = {
        {"output", 'o', TUTTI_ARG_TEXT, &request.output, "FILE",
         "where the report goes (default tutti-prove-KIND.txt)"},
        {"only", 0, TUTTI_ARG_TEXT, &request.only, "POINT,...", "these points alone"},
        {"point", 0, TUTTI_ARG_TEXT, &request.point, "POINT",
         "be the process that tries it (used by tutti prove itself)"},
    };
    const struct tutti_args spec = {
        .command = "tutti prove",
        .usage = "KIND [options]",
        .about = "Tries on this machine what can not be proved without its devices (KIND: cuda, xpu), each point in\n"
                 "processes of its own, in some minutes, and says of each: works, wrong, or not here. Please send the\n"
                 "report in, above all where something is wrong.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
    };
    int n = 0;
    char stranger[40];
    const enum tutti_args_result parsed = tutti_args_parse(&spec, argc, argv, &n);
    if (parsed != TUTTI_ARGS_OK) return (int)parsed;
    if (n != 1) return tutti_args_fail(&spec, "name one kind of devices: %s", TUTTI_DEVICE_NAMES);
    const struct tutti_device_ops *kind = tutti_device_named(argv[argc - 1]);
    if (has_stranger(request.only, stranger, sizeof stranger))
        return tutti_args_fail(&spec, "'%s' is no point", stranger);
    if (!kind || kind->on_host)
        return tutti_args_fail(&spec, "'%s' is no kind of devices with memory of its own (%s)", argv[argc - 1],
                               TUTTI_DEVICE_NAMES);
    return request.point ? be_a_point(kind, request.point) : prove_all(kind, &request);
}
