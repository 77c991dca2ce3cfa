/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched check`: the checker over algorithms, kinds and shapes, with a line for each pair; each refusal is made
 * as small as it gets, and told with a picture. */

#include "sched.h"

#include "algo/algo.h"
#include "check_pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_SIZE = 1 << 20, SAMPLE = 4 };

struct options {
    const char *kind, *sizes, *levels, *world, *svg;
    uint32_t root, radix, sample, jobs;
    bool all, full, ascii;
};
struct totals {
    uint64_t n_pairs, n_shapes, n_sampled, n_refused, n_schedules, n_steps, n_messages;
    enum tutti_status status; /* what comes after a proof */
    char why_none[256];       /* why the first pair fits none of the shapes */
};

static struct options options;
static struct totals totals;
static struct tutti_sweep_depth depth;
static const struct tutti_arg args[] = {
    {"all", 'a', TUTTI_ARG_FLAG, &options.all, NULL, "all algorithms of the table (as without ALG)"},
    {"kind", 'k', TUTTI_ARG_TEXT, &options.kind, "KIND", "only this kind, such as all_reduce"},
    {"sizes", 's', TUTTI_ARG_TEXT, &options.sizes, "A-B", "numbers of ranks (default 1-64)"},
    {"world", 'w', TUTTI_ARG_TEXT, &options.world, "W", "one world: ranks, or groups of ranks such as 8x16384"},
    {"root", 0, TUTTI_ARG_U32, &options.root, "R", "only this root (default: several)"},
    {"radix", 0, TUTTI_ARG_U32, &options.radix, "K", "only this radix (default: several)"},
    {"levels", 'l', TUTTI_ARG_TEXT, &options.levels, "L", "only these groups, such as 8,8,7,8 (their sum is the size)"},
    {"sample", 0, TUTTI_ARG_U32, &options.sample, "C", "prove by sample: contents of C chunks alone"},
    {"full", 0, TUTTI_ARG_FLAG, &options.full, NULL, "prove everything in full, however long it takes"},
    {"jobs", 'j', TUTTI_ARG_U32, &options.jobs, "J", "processes (default: one a core)"},
    {"svg", 0, TUTTI_ARG_TEXT, &options.svg, "FILE", "write the picture of a counterexample as SVG, too"},
    {"ascii", 0, TUTTI_ARG_FLAG, &options.ascii, NULL, "draw without unicode"},
};
static const struct tutti_args spec = {
    .command = "tutti sched check",
    .usage = "[ALG|FILE] [options]",
    .about =
        "Proves for every rank at once: messages match in number and size; no deadlock with a window of 64 steps,\n"
        "messages in order and one credit a channel, alone and beside a second collective; the right result, in\n"
        "the promised order; equal bits on all replicas; no memory read before it is written or out of range.\n"
        "Without ALG all algorithms are proved. Exit status 1 when one is refused; then the smallest shape with the\n"
        "same kind of defect is sought, and drawn.\n"
        "What is long is proved by sample, and it says so: an algorithm that was named, in shapes of more than 24\n"
        "million steps; without ALG, sizes from 257 on in shapes of more than 131,072 steps, but for one size in 64.",
    .args = args,
    .n_args = sizeof args / sizeof args[0],
};

static bool sizes_parse(const char *text, uint32_t *first, uint32_t *last)
{
    char *end;
    errno = 0;
    const unsigned long a = strtoul(text, &end, 10);
    unsigned long b = a;
    if (end == text || errno) return false;
    if (*end == '-') {
        const char *rest = end + 1;
        b = strtoul(rest, &end, 10);
        if (end == rest || errno) return false;
    }
    if (*end || a < 1 || b < a || b > MAX_SIZE) return false;
    *first = (uint32_t)a;
    *last = (uint32_t)b;
    return true;
}

/* Whether the options name shapes themselves. */
static bool shapes_given(void)
{
    return options.levels || options.world || options.root != UINT32_MAX || options.radix;
}

/* The shape of the options, in this size. */
static enum tutti_status shape_given(uint32_t size, struct tutti_shape *out)
{
    *out = (struct tutti_shape){
        .size = size, .root = options.root == UINT32_MAX ? 0 : options.root, .radix = options.radix};
    return options.levels ? tutti_shape_parse_levels(out, options.levels) : TUTTI_OK;
}

/* One shape of each size; sizes that the algorithm does not fit are left out. */
static enum tutti_status check_given(const struct sched_subject *subject, enum tutti_kind kind, uint32_t first,
                                     uint32_t last, struct tutti_sweep *sweep)
{
    *sweep = (struct tutti_sweep){.first.ok = true};
    for (uint32_t size = first; size <= last; size++) {
        struct tutti_shape shape;
        TUTTI_TRY(shape_given(size, &shape));
        if (!tutti_algorithm_fits(subject->algorithm, kind, &shape, NULL, 0)) continue;
        TUTTI_TRY(tutti_sweep_check(subject->algorithm, kind, &shape, &depth, sweep));
    }
    return TUTTI_OK;
}

/* All shapes, and if one is refused the smallest that is. */
static enum tutti_status check_shapes(const struct sched_subject *subject, enum tutti_kind kind, uint32_t first,
                                      uint32_t last, struct tutti_sweep *sweep)
{
    if (shapes_given())
        TUTTI_TRY(check_given(subject, kind, first, last, sweep));
    else
        TUTTI_TRY(tutti_verify_sweep(subject->algorithm, kind, first, last, &depth, sweep));
    if (sweep->first.ok) return TUTTI_OK;
    return tutti_sweep_shrink(subject->algorithm, kind, shapes_given() ? UINT32_MAX : first, sweep);
}

/* What a process of its own needs to check a plug-in, and its answer: in shared memory. */
struct apart {
    const struct sched_subject *subject;
    enum tutti_kind kind;
    uint32_t first, last;
    struct tutti_sweep sweep;
    struct tutti_error error;
};

static int check_in_process(void *argument)
{
    struct apart *apart = argument;
    const enum tutti_status status =
        check_shapes(apart->subject, apart->kind, apart->first, apart->last, &apart->sweep);
    apart->error = *tutti_last_error();
    return (int)status;
}

/* The sentence for a plug-in that did not come back. */
static void refuse_end(const struct sched_subject *subject, enum tutti_kind kind, const char *how,
                       struct tutti_sweep *sweep)
{
    sweep->n_shapes++;
    sweep->n_refused++;
    sweep->first = (struct tutti_verdict){.rank = UINT32_MAX, .step = UINT32_MAX};
    sweep->refused.size = 0; /* nothing to draw */
    snprintf(sweep->first.text, sizeof sweep->first.text, "%s %s, size %u, root %u, radix %u: %s",
             subject->algorithm->name, tutti_kind_name(kind), sweep->shape.size, sweep->shape.root, sweep->shape.radix,
             how);
}

static enum tutti_status check_apart(const struct sched_subject *subject, enum tutti_kind kind, uint32_t first,
                                     uint32_t last, struct tutti_sweep *out)
{
    struct apart *apart = mmap(NULL, sizeof *apart, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char how[96];
    int code = 0;
    if (apart == MAP_FAILED) return tutti_fail_errno(TUTTI_ERR_MEMORY, "no memory to share with the check");
    *apart = (struct apart){.subject = subject, .kind = kind, .first = first, .last = last};
    const struct sched_apart task = {
        .act = check_in_process, .argument = apart, .progress = &apart->sweep.n_tried, .size = last};
    enum tutti_status status = sched_apart(&task, &code, how, sizeof how);
    if (status == TUTTI_OK && how[0]) refuse_end(subject, kind, how, &apart->sweep);
    if (status == TUTTI_OK && !how[0] && code < 0) status = tutti_fail_record(&apart->error);
    *out = apart->sweep;
    munmap(apart, sizeof *apart);
    return status;
}

/* Why a kind fits no shape, as told of the largest. */
static enum tutti_status why_none(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t last)
{
    struct tutti_shape shape;
    if (totals.why_none[0]) return TUTTI_OK;
    TUTTI_TRY(shape_given(last, &shape));
    tutti_algorithm_fits(algorithm, kind, &shape, totals.why_none, sizeof totals.why_none);
    return TUTTI_OK;
}

/* ---- what was found ---- */

struct counterexample {
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    struct tutti_shape shape;
    struct sched_mark mark;
};

static int draw(void *argument)
{
    enum { MOST_RANKS = 20, MOST_STEPS = 600 };
    const struct counterexample *found = argument;
    struct sched_bundle bundle = {0};
    uint64_t n_steps = 0;
    if (sched_bundle_seal(found->algorithm, found->kind, &found->shape, true, &bundle) < 0) return TUTTI_EXIT_WRONG;
    for (uint32_t s = 0; s < bundle.n; s++) n_steps += bundle.slots[s]->n_steps;
    if (bundle.n <= MOST_RANKS && n_steps <= MOST_STEPS && n_steps > 0) {
        printf("\n");
        sched_draw_grid(&bundle, found->mark, !options.ascii && sched_unicode());
        printf("\n");
    } else if (n_steps > 0 && !options.svg) {
        printf("  (too large to be drawn here: --svg FILE)\n");
    }
    if (options.svg && sched_draw_svg(&spec, &bundle, found->mark, options.svg)) printf("  wrote %s\n", options.svg);
    sched_bundle_free(&bundle);
    return TUTTI_EXIT_OK;
}

/* The sentence, and the picture; code of a stranger is asked for its steps in a process of its own. */
static void report_refusal(const struct tutti_algorithm *algorithm, enum tutti_kind kind, bool is_file,
                           const struct tutti_sweep *sweep)
{
    struct counterexample found = {algorithm, kind, sweep->refused, {sweep->first.rank, sweep->first.step}};
    struct sched_apart task = {.act = draw, .argument = &found, .size = found.shape.size};
    char how[96];
    int code;
    printf("  %s\n", sweep->first.text);
    if (found.shape.size == 0) return;
    if (!is_file)
        draw(&found);
    else if (sched_apart(&task, &code, how, sizeof how) < 0 || how[0])
        printf("  (it can not be drawn)\n");
}

static void report_sample(const struct tutti_coverage *coverage)
{
    printf("  by sample: %s", coverage->all_steps ? "all steps of all ranks are checked" : "these steps alone");
    if (coverage->of_columns == 0) {
        printf("; that all have come before one leaves, for every so many ranks\n");
        return;
    }
    printf("; contents of %u of %u chunk%s, followed to %llu of their %llu results", coverage->n_columns,
           coverage->of_columns, coverage->of_columns == 1 ? "" : "s", (unsigned long long)coverage->n_results,
           (unsigned long long)coverage->of_results);
    if (coverage->n_assumed)
        printf(";\n  %llu reads of input were taken for such after a look at the rounds before them, not at all",
               (unsigned long long)coverage->n_assumed);
    printf("\n");
}

static void report_pair(const struct tutti_algorithm *algorithm, enum tutti_kind kind, bool is_file,
                        const struct tutti_sweep *sweep, double seconds)
{
    const char *word = !sweep->first.ok ? "REFUSED" : sweep->n_shapes ? "proved" : "fits none";
    printf("%-17s %-15s %7u shape%s %7.2f s  %s", algorithm->name, tutti_kind_name(kind), sweep->n_shapes,
           sweep->n_shapes == 1 ? " " : "s", seconds, word);
    if (sweep->first.ok && sweep->n_sampled && sweep->n_shapes > 1) printf(", %u by sample", sweep->n_sampled);
    printf("\n");
    if (!sweep->first.ok) report_refusal(algorithm, kind, is_file, sweep);
    if (sweep->first.ok && sweep->n_shapes == 1 && sweep->n_sampled == 1) report_sample(&sweep->coverage);
    totals.n_pairs += sweep->n_shapes > 0;
    totals.n_shapes += sweep->n_shapes, totals.n_sampled += sweep->n_sampled;
    totals.n_refused += !sweep->first.ok;
    totals.n_schedules += sweep->n_schedules;
    totals.n_steps += sweep->n_steps, totals.n_messages += sweep->n_messages;
    fflush(stdout);
}

/* ---- one algorithm, or all ---- */

static enum tutti_status check_kind(const struct sched_subject *subject, enum tutti_kind kind, uint32_t first,
                                    uint32_t last, bool among_all)
{
    const uint64_t began_ns = tutti_now_ns();
    struct tutti_sweep sweep = {0};
    const enum tutti_status status =
        (subject->is_file ? check_apart : check_shapes)(subject, kind, first, last, &sweep);
    if (status == TUTTI_ERR_UNSUPPORTED && among_all) { /* the others can be proved all the same */
        printf("%-17s %-15s %7s %15.2f s  NOT PROVED\n  %s\n", subject->algorithm->name, tutti_kind_name(kind), "",
               (double)(tutti_now_ns() - began_ns) / 1e9, tutti_last_error()->text);
        fflush(stdout);
        totals.n_pairs++, totals.n_refused++;
        return TUTTI_OK;
    }
    TUTTI_TRY(status);
    report_pair(subject->algorithm, kind, subject->is_file, &sweep, (double)(tutti_now_ns() - began_ns) / 1e9);
    return sweep.n_shapes ? TUTTI_OK : why_none(subject->algorithm, kind, last);
}

static void pool_report(const struct check_pair *pair)
{
    struct tutti_sweep sweep = pair->sweep;
    if (!sweep.first.ok && totals.status >= 0)
        totals.status = tutti_sweep_shrink(pair->algorithm, pair->kind, 1, &sweep);
    report_pair(pair->algorithm, pair->kind, false, &sweep, pair->seconds);
}

/* Sizes of several pairs at once, where there are several. */
static enum tutti_status check_pool(struct check_pair *pairs, size_t n, uint32_t first, uint32_t last)
{
    const long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct check_pool pool = {.pairs = pairs,
                              .n_pairs = n,
                              .first = first,
                              .last = last,
                              .depth = depth,
                              .n_processes = options.jobs  ? options.jobs
                                             : n_cores > 0 ? (uint32_t)n_cores
                                                           : 1,
                              .show_progress = isatty(STDERR_FILENO),
                              .report = pool_report};
    TUTTI_TRY(check_pool_run(&pool));
    for (size_t i = 0; i < n; i++)
        if (!pairs[i].sweep.n_shapes) TUTTI_TRY(why_none(pairs[i].algorithm, pairs[i].kind, last));
    return totals.status;
}

/* Kinds of one algorithm, those that are asked for. */
static enum tutti_status check_algorithm(const struct sched_subject *subject, int32_t only, uint32_t first,
                                         uint32_t last, bool among_all, struct check_pair *pairs, size_t *n_pairs)
{
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        if (only >= 0 && (uint32_t)only != kind) continue;
        if (!subject->algorithm->kinds[kind]) {
            if (only >= 0) TUTTI_TRY(why_none(subject->algorithm, (enum tutti_kind)kind, last));
        } else if (subject->is_file || shapes_given()) {
            TUTTI_TRY(check_kind(subject, (enum tutti_kind)kind, first, last, among_all));
        } else {
            pairs[(*n_pairs)++] = (struct check_pair){.algorithm = subject->algorithm, .kind = (enum tutti_kind)kind};
        }
    }
    return TUTTI_OK;
}

static enum tutti_status check_all(const struct sched_subject *subject, int32_t only, uint32_t first, uint32_t last)
{
    const size_t n = subject->algorithm ? 1 : tutti_n_algorithms;
    struct check_pair *pairs = tutti_alloc_array(n * TUTTI_N_KINDS, sizeof *pairs);
    enum tutti_status status = TUTTI_OK;
    size_t n_pairs = 0;
    if (!pairs) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu algorithms", n);
    for (size_t i = 0; i < n && status >= 0; i++) {
        const struct sched_subject each = {.algorithm = tutti_algorithms[i]};
        status = check_algorithm(subject->algorithm ? subject : &each, only, first, last, !subject->algorithm, pairs,
                                 &n_pairs);
    }
    if (status >= 0 && n_pairs > 0) status = check_pool(pairs, n_pairs, first, last);
    tutti_free(pairs);
    return status;
}

static int conclude(uint64_t began_ns)
{
    const double seconds = (double)(tutti_now_ns() - began_ns) / 1e9;
    if (totals.n_pairs == 0) {
        return tutti_args_fail(&spec, "there is nothing to check: %s.", totals.why_none);
    }
    printf("%llu of %llu proved on %llu shape%s in %.1f s", (unsigned long long)(totals.n_pairs - totals.n_refused),
           (unsigned long long)totals.n_pairs, (unsigned long long)totals.n_shapes, totals.n_shapes == 1 ? "" : "s",
           seconds);
    printf(": %llu schedule%s, %llu step%s, %llu message%s\n", (unsigned long long)totals.n_schedules,
           tutti_plural(totals.n_schedules), (unsigned long long)totals.n_steps, tutti_plural(totals.n_steps),
           (unsigned long long)totals.n_messages, tutti_plural(totals.n_messages));
    if (totals.n_sampled)
        printf("%llu shape%s in full, %llu by sample\n", (unsigned long long)(totals.n_shapes - totals.n_sampled),
               totals.n_shapes - totals.n_sampled == 1 ? "" : "s", (unsigned long long)totals.n_sampled);
    return totals.n_refused ? TUTTI_EXIT_WRONG : TUTTI_EXIT_OK;
}

/* Reads from the options what sizes, and which kind (-1: all). */
static bool options_read(uint32_t *first, uint32_t *last, int32_t *only)
{
    enum tutti_kind kind;
    *only = -1;
    if (options.kind && !sched_kind_parse(&spec, options.kind, &kind)) return false;
    if (options.kind) *only = (int32_t)kind;
    if (options.world && (options.levels || options.sizes)) {
        tutti_args_fail(&spec, "--world says all that --sizes and --levels say: give one of them.");
        return false;
    }
    if (options.world && strspn(options.world, "0123456789") != strlen(options.world))
        options.levels = options.world;
    else if (options.world)
        options.sizes = options.world;
    if (options.sample && options.full) {
        tutti_args_fail(&spec, "--sample %u and --full: give one of them.", options.sample);
        return false;
    }
    if (options.levels) {
        if (options.sizes) {
            tutti_args_fail(&spec, "--levels gives the size already: leave --sizes out.");
            return false;
        }
        *first = *last = sched_levels_size(options.levels);
        if (*first == 0 || *first > MAX_SIZE) *first = 0;
        if (*first == 0) tutti_args_fail(&spec, "--levels %s: give sizes of groups such as 8,8,7,8.", options.levels);
        if (*first == 0) return false;
    } else if (!sizes_parse(options.sizes ? options.sizes : "1-64", first, last)) {
        tutti_args_fail(&spec, "--sizes %s: give a range such as 1-64 (at most %d).", options.sizes, (int)MAX_SIZE);
        return false;
    }
    return true;
}

/* How much is proved in full. */
static struct tutti_sweep_depth depth_choose(bool named)
{
    const uint32_t n_columns = options.sample ? options.sample : SAMPLE;
    const struct tutti_sampling sampling = {
        .n_columns = n_columns, .most_sealed = UINT64_C(16) << 20, .most_work = UINT64_C(1) << 26};
    const struct tutti_sampling quick = {.n_columns = 2, .most_sealed = 1 << 17, .most_work = 1 << 17};
    if (options.full) return TUTTI_SWEEP_FULL;
    if (options.sample) return (struct tutti_sweep_depth){.sampling = sampling};
    if (named || shapes_given())
        return (struct tutti_sweep_depth){.full_steps = TUTTI_SWEEP_LONG, .sampling = sampling};
    return (struct tutti_sweep_depth){.full_size = 256, .full_steps = 1 << 17, .full_every = 64, .sampling = quick};
}

int sched_check(int argc, char **argv)
{
    struct sched_subject subject = {0};
    enum tutti_status status = TUTTI_OK;
    uint32_t first, last;
    int32_t only;
    int n;
    const uint64_t began_ns = tutti_now_ns();
    options = (struct options){.root = UINT32_MAX};
    totals = (struct totals){0};
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (n > 1)
        return tutti_args_fail(&spec, "one algorithm at a time, but '%s' and '%s' were given.", argv[argc - n],
                               argv[argc - n + 1]);
    if (n == 1 && options.all)
        return tutti_args_fail(&spec, "--all is all algorithms: leave '%s' out.", argv[argc - 1]);
    if (!options_read(&first, &last, &only)) return TUTTI_EXIT_USAGE;
    if (n == 1) {
        if (!sched_subject_open(&spec, argv[argc - 1], &subject)) return subject.code;
        if (!sched_radix_choose(&spec, &subject, options.radix, &options.radix)) return TUTTI_EXIT_USAGE;
        if (subject.ranks && !options.sizes && !options.levels) first = last = subject.ranks;
    }
    depth = depth_choose(n == 1);
    status = check_all(&subject, only, first, last);
    if (status < 0) {
        fflush(stdout);
        fprintf(stderr, "\ntutti sched check: %s\n", tutti_last_error()->text);
    }
    return status < 0 ? TUTTI_EXIT_WRONG : conclude(began_ns);
}
