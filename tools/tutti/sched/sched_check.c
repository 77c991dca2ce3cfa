/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched check`: the checker over algorithms, kinds and shapes, with a line for each pair and the sentence of
 * each refusal. */

#include "sched.h"

#include "algo/algo.h"
#include "verify/sweep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_SIZE = 8192 };

struct options {
    const char *kind, *sizes, *levels;
    uint32_t root, radix;
};
struct totals {
    uint64_t n_pairs, n_shapes, n_refused;
    char why_none[256]; /* why the first pair fits none of the shapes */
};

static struct options options;
static const struct tutti_arg args[] = {
    {"kind", 'k', TUTTI_ARG_TEXT, &options.kind, "KIND", "only this kind, such as all_reduce"},
    {"sizes", 's', TUTTI_ARG_TEXT, &options.sizes, "A-B", "numbers of ranks (default 1-64)"},
    {"root", 0, TUTTI_ARG_U32, &options.root, "R", "only this root (default: several)"},
    {"radix", 0, TUTTI_ARG_U32, &options.radix, "K", "only this radix (default: several)"},
    {"levels", 'l', TUTTI_ARG_TEXT, &options.levels, "L", "only these groups, such as 8,8,7,8 (their sum is the size)"},
};
static const struct tutti_args spec = {
    .command = "tutti sched check",
    .usage = "[ALG|FILE] [options]",
    .about =
        "Proves for every rank at once: messages match in number and size; no deadlock with a window of 64 steps,\n"
        "messages in order and one credit a channel, alone and beside a second collective; the right result, in\n"
        "the promised order; equal bits on all replicas; no memory read before it is written or out of range.\n"
        "Without ALG all algorithms are proved. Exit status 1 when one is refused.",
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
    return options.levels || options.root != UINT32_MAX || options.radix;
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
        struct tutti_verdict verdict;
        struct tutti_shape shape;
        TUTTI_TRY(shape_given(size, &shape));
        if (!tutti_algorithm_fits(subject->algorithm, kind, &shape, NULL, 0)) continue;
        sweep->shape = shape;
        TUTTI_TRY(tutti_verify(subject->algorithm, kind, &shape, &verdict));
        sweep->n_shapes++;
        if (verdict.ok) continue;
        if (sweep->first.ok) sweep->first = verdict;
        sweep->n_refused++;
    }
    return TUTTI_OK;
}

static enum tutti_status check_shapes(const struct sched_subject *subject, enum tutti_kind kind, uint32_t first,
                                      uint32_t last, struct tutti_sweep *sweep)
{
    if (shapes_given()) return check_given(subject, kind, first, last, sweep);
    return tutti_verify_sweep(subject->algorithm, kind, first, last, false, sweep);
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
    sweep->first.ok = false;
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
        .act = check_in_process, .argument = apart, .progress = &apart->sweep.n_shapes, .size = last};
    enum tutti_status status = sched_apart(&task, &code, how, sizeof how);
    if (status == TUTTI_OK && how[0]) refuse_end(subject, kind, how, &apart->sweep);
    if (status == TUTTI_OK && !how[0] && code < 0) status = tutti_fail_record(&apart->error);
    *out = apart->sweep;
    munmap(apart, sizeof *apart);
    return status;
}

/* Why a kind fits no shape, as told of the largest. */
static enum tutti_status why_none(const struct sched_subject *subject, enum tutti_kind kind, uint32_t last,
                                  struct totals *totals)
{
    struct tutti_shape shape;
    if (totals->why_none[0]) return TUTTI_OK;
    TUTTI_TRY(shape_given(last, &shape));
    tutti_algorithm_fits(subject->algorithm, kind, &shape, totals->why_none, sizeof totals->why_none);
    return TUTTI_OK;
}

static enum tutti_status check_kind(const struct sched_subject *subject, enum tutti_kind kind, uint32_t first,
                                    uint32_t last, struct totals *totals)
{
    const uint64_t began_ns = tutti_now_ns();
    struct tutti_sweep sweep = {0};
    printf("%-17s %-15s", subject->algorithm->name, tutti_kind_name(kind));
    fflush(stdout);
    TUTTI_TRY((subject->is_file ? check_apart : check_shapes)(subject, kind, first, last, &sweep));
    const double seconds = (double)(tutti_now_ns() - began_ns) / 1e9;
    const char *word = !sweep.first.ok ? "REFUSED" : sweep.n_shapes ? "proved" : "fits none";
    printf(" %7u shape%s %7.2f s  %s\n", sweep.n_shapes, sweep.n_shapes == 1 ? " " : "s", seconds, word);
    if (!sweep.first.ok) printf("  %s\n", sweep.first.text);
    totals->n_pairs += sweep.n_shapes > 0;
    totals->n_shapes += sweep.n_shapes;
    totals->n_refused += !sweep.first.ok;
    return sweep.n_shapes ? TUTTI_OK : why_none(subject, kind, last, totals);
}

static enum tutti_status check_algorithm(const struct sched_subject *subject, int32_t only, uint32_t first,
                                         uint32_t last, struct totals *totals)
{
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        if (only >= 0 && (uint32_t)only != kind) continue;
        if (!subject->algorithm->kinds[kind]) {
            if (only >= 0) TUTTI_TRY(why_none(subject, (enum tutti_kind)kind, last, totals));
            continue;
        }
        TUTTI_TRY(check_kind(subject, (enum tutti_kind)kind, first, last, totals));
    }
    return TUTTI_OK;
}

static int conclude(const struct totals *totals, uint64_t began_ns)
{
    const double seconds = (double)(tutti_now_ns() - began_ns) / 1e9;
    if (totals->n_shapes == 0) {
        return tutti_args_fail(&spec, "there is nothing to check: %s.", totals->why_none);
    }
    printf("%llu of %llu proved on %llu shape%s in %.1f s\n", (unsigned long long)(totals->n_pairs - totals->n_refused),
           (unsigned long long)totals->n_pairs, (unsigned long long)totals->n_shapes, totals->n_shapes == 1 ? "" : "s",
           seconds);
    return totals->n_refused ? TUTTI_EXIT_WRONG : TUTTI_EXIT_OK;
}

/* Reads from the options what sizes, and which kind (-1: all). */
static bool options_read(uint32_t *first, uint32_t *last, int32_t *only)
{
    enum tutti_kind kind;
    *only = -1;
    if (options.kind && !sched_kind_parse(&spec, options.kind, &kind)) return false;
    if (options.kind) *only = (int32_t)kind;
    if (options.levels) {
        if (options.sizes) {
            tutti_args_fail(&spec, "--levels gives the size already: leave --sizes out.");
            return false;
        }
        *first = *last = sched_levels_size(options.levels);
        if (*first == 0) tutti_args_fail(&spec, "--levels %s: give sizes of groups such as 8,8,7,8.", options.levels);
        if (*first == 0) return false;
    } else if (!sizes_parse(options.sizes ? options.sizes : "1-64", first, last)) {
        tutti_args_fail(&spec, "--sizes %s: give a range such as 1-64 (at most %d).", options.sizes, (int)MAX_SIZE);
        return false;
    }
    return true;
}

int sched_check(int argc, char **argv)
{
    struct totals totals = {0};
    struct sched_subject subject = {0};
    enum tutti_status status = TUTTI_OK;
    uint32_t first, last;
    int32_t only;
    int n;
    const uint64_t began_ns = tutti_now_ns();
    options = (struct options){.root = UINT32_MAX};
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (n > 1)
        return tutti_args_fail(&spec, "one algorithm at a time, but '%s' and '%s' were given.", argv[argc - n],
                               argv[argc - n + 1]);
    if (!options_read(&first, &last, &only)) return TUTTI_EXIT_USAGE;
    if (n == 1) {
        if (!sched_subject_open(&spec, argv[argc - 1], &subject)) return subject.code;
        if (!sched_radix_choose(&spec, &subject, options.radix, &options.radix)) return TUTTI_EXIT_USAGE;
        if (subject.ranks && !options.sizes && !options.levels) first = last = subject.ranks;
        status = check_algorithm(&subject, only, first, last, &totals);
    }
    for (size_t i = 0; n == 0 && i < tutti_n_algorithms && status >= 0; i++) {
        const struct sched_subject each = {.algorithm = tutti_algorithms[i]};
        status = check_algorithm(&each, only, first, last, &totals);
    }
    if (status < 0) {
        fflush(stdout);
        fprintf(stderr, "\ntutti sched check: %s\n", tutti_last_error()->text);
    }
    const int code = status < 0 ? TUTTI_EXIT_WRONG : conclude(&totals, began_ns);
    return code;
}
