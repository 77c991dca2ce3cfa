/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched job`: what becomes of a training step on more nodes than there are. */

#include "job_report.h"
#include "job_times.h"
#include "sched.h"

#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RUNS = 16, LABEL = 256, FIT_STEPS = 40 };

struct options {
    struct tutti_arg_list set, with;
    const char *fit, *to, *svg;
    bool json, keys;
};
static struct options options;
static const struct tutti_arg args[] = {
    {"set", 's', TUTTI_ARG_LIST, &options.set, "KEY=VALUE", "in place of what FILE says; again for more"},
    {"with", 'w', TUTTI_ARG_LIST, &options.with, "KEY=VALUE",
     "compare with the job that has this, too; several by ';'; again for more jobs"},
    {"fit", 0, TUTTI_ARG_TEXT, &options.fit, "KEY=TEXT",
     "find the number for {} in TEXT, such as noise=exponential:{}ms, with --to"},
    {"to", 0, TUTTI_ARG_TEXT, &options.to, "E", "the weak efficiency at the most nodes that it shall have: 92%"},
    {"json", 0, TUTTI_ARG_FLAG, &options.json, NULL, "one JSON object instead of a table"},
    {"svg", 0, TUTTI_ARG_TEXT, &options.svg, "FILE", "draw efficiency by nodes"},
    {"keys", 0, TUTTI_ARG_FLAG, &options.keys, NULL, "list the keys of a description"},
};
static const struct tutti_args spec = {
    .command = "tutti sched job",
    .usage = "FILE [options]",
    .about = "Tells the efficiency of a training job by number of nodes, weak and strong, from a description: what a\n"
             "rank computes and sends, the network, and how unequal ranks are. See docs/prediction.md.",
    .args = args,
    .n_args = sizeof args / sizeof args[0],
};

static int say(void)
{
    fprintf(stderr, "%s: %s\n", spec.command, tutti_last_error()->text);
    return TUTTI_EXIT_WRONG;
}

static int show_keys(void)
{
    const char *name, *fallback, *help;
    for (uint32_t i = 0; tutti_job_key(i, &name, &fallback, &help); i++)
        printf("%-17s %-17s %s\n", name, fallback[0] ? fallback : "-", help);
    printf("\nBelow [tensors], or [layers], a line each, as the forward pass takes them:\n"
           "NAME bytes=N backward=T|ready=T [forward=T] [activation=N]\n"
           "Below [steps], for noise = trace, a line each: how long a step took.\n");
    return TUTTI_EXIT_OK;
}

/* The caller's to free; NULL and a sentence when it can not be read. */
static char *file_read(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *text = file ? malloc((size_t)TUTTI_JOB_MOST_BYTES + 1) : NULL;
    if (text) *n = fread(text, 1, (size_t)TUTTI_JOB_MOST_BYTES + 1, file);
    if (!text || ferror(file)) {
        tutti_args_fail(&spec, "cannot read %s.", path);
        free(text);
        text = NULL;
    }
    if (file) fclose(file);
    return text;
}

/* ---- a job as described, with other keys ---- */

struct source {
    const char *name, *text;
    size_t bytes;
    char fitted[LABEL]; /* "KEY=VALUE" that was found; empty: none */
};

/* "KEY=VALUE;KEY=VALUE" */
static enum tutti_status set_all(struct tutti_job *job, const char *text)
{
    char copy[1024], *rest;
    snprintf(copy, sizeof(copy), "%s", text);
    if (strlen(text) >= sizeof(copy)) return tutti_fail(TUTTI_ERR_ARGUMENT, "'%.40s...' is too long", text);
    for (char *item = strtok_r(copy, ";", &rest); item; item = strtok_r(NULL, ";", &rest)) {
        char *value = strchr(item, '=');
        if (!value) return tutti_fail(TUTTI_ERR_ARGUMENT, "'%.60s' is not KEY=VALUE", item);
        *value = '\0';
        TUTTI_TRY(tutti_job_set(job, item, value + 1));
    }
    return TUTTI_OK;
}

/* with: NULL for none. The job is finied by the caller, whatever comes back. */
static enum tutti_status job_open(const struct source *source, const char *with, struct tutti_job *job)
{
    tutti_job_init(job);
    TUTTI_TRY(tutti_job_read(source->name, source->text, source->bytes, job));
    for (size_t i = 0; i < options.set.n; i++) TUTTI_TRY(set_all(job, options.set.values[i]));
    if (source->fitted[0]) TUTTI_TRY(set_all(job, source->fitted));
    if (with) TUTTI_TRY(set_all(job, with));
    return tutti_job_check(job);
}

static enum tutti_status run_points(struct job_run *run, struct job_times *times)
{
    struct tutti_job_times ask;
    job_times_use(times, &run->job, &ask);
    for (uint32_t i = 0; i < run->job.n_nodes; i++) {
        if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%.60s: %u nodes ...\033[K", run->label, run->job.nodes[i]);
        TUTTI_TRY(tutti_job_step(&run->job, run->job.nodes[i], false, &ask, &run->weak[i]));
        TUTTI_TRY(tutti_job_step(&run->job, run->job.nodes[i], true, &ask, &run->strong[i]));
    }
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    return TUTTI_OK;
}

/* ---- fitting: the number with which the efficiency at the most nodes is as given ---- */

static bool fit_text(double number, char out[LABEL])
{
    const char *hole = strstr(options.fit, "{}");
    int n = hole ? snprintf(out, LABEL, "%.*s%.6f%s", (int)(hole - options.fit), options.fit, number, hole + 2) : -1;
    return n > 0 && n < LABEL;
}

static enum tutti_status fit_efficiency(struct source *source, struct job_times *times, double number, double *out)
{
    struct tutti_job job;
    struct tutti_job_times ask;
    struct tutti_job_point point;
    if (!fit_text(number, source->fitted))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "--fit %.60s: there is no {} in it", options.fit);
    enum tutti_status status = job_open(source, NULL, &job);
    if (status >= 0) {
        job_times_use(times, &job, &ask);
        status = tutti_job_step(&job, job.nodes[job.n_nodes - 1], false, &ask, &point);
    }
    if (status >= 0) *out = point.efficiency;
    tutti_job_fini(&job);
    return status;
}

/* The efficiency falls as the number grows. */
static enum tutti_status fit(struct source *source, struct job_times *times)
{
    double goal, low = 0, high = 1, at;
    char text[16];
    snprintf(text, sizeof(text), "%s", options.to);
    size_t n = strlen(text);
    bool share = n > 0 && text[n - 1] == '%';
    if (share) text[n - 1] = '\0';
    if (strlen(options.to) >= sizeof(text) || !tutti_parse_decimal(text, &goal))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "--to %.40s: it takes an efficiency such as 92%%", options.to);
    if (share) goal /= 100;
    TUTTI_TRY(fit_efficiency(source, times, high, &at));
    while (at > goal && high < 1e6 && fit_efficiency(source, times, 4 * high, &at) >= 0) high *= 4;
    if (at > goal)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "--fit %.60s: the efficiency is still %.2f %% with %g", options.fit,
                          100 * at, high);
    for (int i = 0; i < FIT_STEPS && high - low > 1e-6; i++) {
        double middle = (low + high) / 2;
        TUTTI_TRY(fit_efficiency(source, times, middle, &at));
        if (at > goal)
            low = middle;
        else
            high = middle;
    }
    TUTTI_TRY(fit_efficiency(source, times, (low + high) / 2, &at));
    if (at - goal > 0.002 || goal - at > 0.002)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "--fit %.60s: nothing comes nearer than %.2f %%, with %g; steps may be too few", options.fit,
                          100 * at, (low + high) / 2);
    return TUTTI_OK;
}

/* ---- all of it ---- */

static bool draw(const struct job_run *runs, size_t n)
{
    FILE *file = fopen(options.svg, "w");
    bool written = file && job_report_svg(runs, n, file);
    if (file && fclose(file) != 0) written = false;
    if (!written) fprintf(stderr, "%s: cannot write %s\n", spec.command, options.svg);
    return written;
}

static enum tutti_status run_all(struct source *source, struct job_times *times, struct job_run *runs, size_t n)
{
    if (options.fit) TUTTI_TRY(fit(source, times));
    runs[0].label = source->fitted[0] ? source->fitted : "as described";
    for (size_t i = 0; i < n; i++) {
        if (i > 0) runs[i].label = options.with.values[i - 1];
        TUTTI_TRY(job_open(source, i > 0 ? runs[i].label : NULL, &runs[i].job));
        if (i > 0 && (runs[i].job.n_nodes != runs[0].job.n_nodes ||
                      memcmp(runs[i].job.nodes, runs[0].job.nodes, sizeof(runs[0].job.nodes)) != 0))
            return tutti_fail(TUTTI_ERR_ARGUMENT, "--with %.60s: give other nodes by --set, to all", runs[i].label);
        TUTTI_TRY(run_points(&runs[i], times));
    }
    return TUTTI_OK;
}

static int answer(struct source *source)
{
    static struct job_run runs[MOST_RUNS];
    struct job_times *times = job_times_open(&spec);
    size_t n = 1 + options.with.n;
    enum tutti_status status =
        times ? run_all(source, times, runs, n) : tutti_fail(TUTTI_ERR_MEMORY, "no memory for times");
    int code = status < 0 ? say() : TUTTI_EXIT_OK;
    if (status >= 0 && options.json)
        job_report_json(runs, n, stdout);
    else if (status >= 0)
        job_report_show(runs, n, stdout);
    if (status >= 0 && source->fitted[0] && !options.json) printf("  fitted: %s\n", source->fitted);
    if (status >= 0 && options.svg && !draw(runs, n)) code = TUTTI_EXIT_WRONG;
    for (size_t i = 0; i < n; i++) tutti_job_fini(&runs[i].job);
    job_times_close(times);
    return code;
}

int sched_job(int argc, char **argv)
{
    int n;
    options = (struct options){.fit = NULL};
    enum tutti_args_result parsed = tutti_args_parse(&spec, argc, argv, &n);
    if (parsed != TUTTI_ARGS_OK) return (int)parsed;
    if (options.keys) return show_keys();
    if (n != 1) return tutti_args_fail(&spec, "name one file that describes a job (--keys: what is in it).");
    if (!options.fit != !options.to) return tutti_args_fail(&spec, "--fit and --to go together.");
    if (options.with.n >= MOST_RUNS) return tutti_args_fail(&spec, "at most %d of --with.", (int)MOST_RUNS - 1);
    struct source source = {.name = argv[argc - 1]};
    char *text = file_read(source.name, &source.bytes);
    if (!text) return TUTTI_EXIT_USAGE;
    source.text = text;
    int code = answer(&source);
    free(text);
    return code;
}
