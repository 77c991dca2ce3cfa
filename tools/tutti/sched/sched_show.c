/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched show`: seals one bundle, says what it costs, draws it, and has it proved. */

#include "sched.h"

#include "verify/verify.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DRAWN = 64, MAX_SIZE = 8192 };

struct options {
    const char *kind, *levels, *svg;
    uint32_t size, rank, root, radix;
    bool calls, ascii;
};
static struct options options;
static const struct tutti_arg args[] = {
    {"kind", 'k', TUTTI_ARG_TEXT, &options.kind, "KIND", "such as all_reduce (default: the first that ALG offers)"},
    {"size", 'n', TUTTI_ARG_U32, &options.size, "N", "number of ranks (default 8, or the plan's)"},
    {"rank", 'r', TUTTI_ARG_U32, &options.rank, "R", "the steps of this rank, with what each waits for"},
    {"root", 0, TUTTI_ARG_U32, &options.root, "R", "root of rooted kinds (default 0)"},
    {"levels", 'l', TUTTI_ARG_TEXT, &options.levels, "L", "groups of ranks, such as 8,8,7,8 or 2,2;2"},
    {"radix", 0, TUTTI_ARG_U32, &options.radix, "K", "radix of trees, dissemination, Bruck; parts of hierarchical"},
    {"calls", 'c', TUTTI_ARG_FLAG, &options.calls, NULL, "leave calls of other collectives as they are"},
    {"svg", 0, TUTTI_ARG_TEXT, &options.svg, "FILE", "write a space-time diagram"},
    {"ascii", 0, TUTTI_ARG_FLAG, &options.ascii, NULL, "draw without unicode"},
};
static const struct tutti_args spec = {
    .command = "tutti sched show",
    .usage = "ALG|FILE [options]",
    .about =
        "Draws the schedule of an algorithm: ranks are columns, rounds are rows, messages are arrows that carry the\n"
        "numbers of chunks. Then proves it; exit status 1 when it is refused.",
    .args = args,
    .n_args = sizeof args / sizeof args[0],
};

/* The first kind that is offered, when none was asked for. */
static bool kind_choose(const struct sched_subject *subject, enum tutti_kind *out)
{
    if (options.kind) return sched_kind_parse(&spec, options.kind, out);
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        if (!subject->algorithm->kinds[kind]) continue;
        *out = (enum tutti_kind)kind;
        return true;
    }
    return false;
}

static bool shape_choose(const struct sched_subject *subject, enum tutti_kind kind, struct tutti_shape *shape)
{
    char reason[256];
    *shape = (struct tutti_shape){.size = options.size, .root = options.root};
    if (!sched_radix_choose(&spec, subject, options.radix, &shape->radix)) return false;
    if (options.levels && sched_levels_size(options.levels) == 0) {
        tutti_args_fail(&spec, "--levels %s: give sizes of groups such as 8,8,7,8.", options.levels);
        return false;
    }
    if (shape->size == UINT32_MAX)
        shape->size = options.levels ? sched_levels_size(options.levels) : subject->ranks ? subject->ranks : 8;
    if (shape->size == 0 || shape->size > MAX_SIZE) {
        tutti_args_fail(&spec, "%u ranks can not be shown: give --size between 1 and %d.", shape->size, (int)MAX_SIZE);
        return false;
    }
    if (options.levels && tutti_shape_parse_levels(shape, options.levels) < 0) {
        tutti_args_fail(&spec, "%s.", tutti_last_error()->text);
        return false;
    }
    if (options.rank != UINT32_MAX && options.rank >= shape->size) {
        tutti_args_fail(&spec, "--rank %u: there are ranks 0 to %u.", options.rank, shape->size - 1);
        return false;
    }
    if (!tutti_algorithm_fits(subject->algorithm, kind, shape, reason, sizeof reason)) {
        tutti_args_fail(&spec, "%s.", reason);
        return false;
    }
    return true;
}

/* ---- what it costs ---- */

static void print_cost(const struct sched_bundle *bundle)
{
    const struct tutti_schedule *first = bundle->slots[0];
    uint64_t messages = 0, most = 0, most_chunks = 0;
    uint32_t most_steps = 0, scratch = 0;
    char levels[96] = "";
    for (uint32_t s = 0; s < bundle->n; s++) {
        const struct tutti_schedule *schedule = bundle->slots[s];
        uint64_t sent = 0, chunks = 0;
        for (uint32_t i = 0; i < schedule->n_steps; i++) {
            if (schedule->steps[i].op != TUTTI_STEP_SEND) continue;
            sent++;
            chunks += schedule->steps[i].n;
        }
        messages += sent;
        if (sent > most) most = sent;
        if (chunks > most_chunks) most_chunks = chunks;
        if (schedule->n_steps > most_steps) most_steps = schedule->n_steps;
        if (schedule->n_scratch > scratch) scratch = schedule->n_scratch;
    }
    printf("%s %s, %u rank%s", first->algorithm->name, tutti_kind_name(first->kind), bundle->n,
           tutti_plural(bundle->n));
    if (tutti_kind_info(first->kind)->rooted) printf(", root %u", first->shape.root);
    tutti_shape_levels_text(&first->shape, levels, sizeof levels);
    if (levels[0]) printf(", levels %s", levels);
    printf(": %u chunk%s", first->n_chunks, first->n_chunks == 1 ? "" : "s");
    if (scratch) printf(" and %u of scratch", scratch);
    printf(", %u round%s, at most %u step%s a rank\n", first->n_rounds, tutti_plural(first->n_rounds), most_steps,
           tutti_plural(most_steps));
    printf("%llu message%s; a rank sends at most %llu of them", (unsigned long long)messages, tutti_plural(messages),
           (unsigned long long)most);
    if (first->kind != TUTTI_BARRIER) printf(", %.3g times the data", (double)most_chunks / first->n_chunks);
    printf("\n\n");
}

/* ---- the steps of one rank ---- */

static void waits_text(const struct tutti_schedule *schedule, uint32_t index, char *out, size_t capacity)
{
    out[0] = '\0';
    for (uint32_t j = TUTTI_WINDOW; j > 0; j--)
        if (j <= index && (schedule->steps[index].wait >> (j - 1) & 1))
            tutti_append(out, capacity, "%s%u", out[0] ? " " : "", index - j);
}

static void step_line(const struct tutti_step *step, const struct tutti_schedule *schedule, char *out, size_t capacity)
{
    char src[32], dst[32];
    const char *side = step->flags & TUTTI_STEP_LEFT ? " from the left" : "";
    const char *old = step->flags & TUTTI_STEP_DST_INPUT ? " (old value: input)" : "";
    const char *input = step->flags & TUTTI_STEP_SRC_INPUT ? " (input)" : "";
    sched_chunks_label(step->src_buffer, step->src, step->n, src, sizeof src);
    sched_chunks_label(step->dst_buffer, step->dst, step->n, dst, sizeof dst);
    switch (step->op) {
    case TUTTI_STEP_SEND:
        snprintf(out, capacity, "send         %s%s to rank %u", src, input, step->peer);
        return;
    case TUTTI_STEP_RECV:
        snprintf(out, capacity, "receive      %s from rank %u", dst, step->peer);
        return;
    case TUTTI_STEP_RECV_REDUCE:
        snprintf(out, capacity, "recv-reduce  %s from rank %u%s%s", dst, step->peer, side, old);
        return;
    case TUTTI_STEP_COPY:
        snprintf(out, capacity, "copy         %s to %s%s", src, dst, input);
        return;
    case TUTTI_STEP_REDUCE:
        snprintf(out, capacity, "reduce       %s%s into %s%s%s", src, input, dst, side, old);
        return;
    default: {
        const struct tutti_lane_call *call = &schedule->calls[step->peer];
        snprintf(out, capacity, "call         %s of %u ranks (%u, %u, ...) on %s", tutti_kind_name(call->kind),
                 call->view.size, call->view.base, call->view.base + call->view.stride, dst);
    }
    }
}

/* The steps of one slot with what each waits for. */
static void draw_rank(const struct tutti_schedule *schedule)
{
    printf("rank %u\n%5s %6s  %-66s %s\n", schedule->shape.slot, "step", "round", "what", "waits for steps");
    for (uint32_t i = 0; i < schedule->n_steps; i++) {
        char what[128], waits[1024];
        step_line(&schedule->steps[i], schedule, what, sizeof what);
        waits_text(schedule, i, waits, sizeof waits);
        printf("%5u %6u  %-66s %s\n", i, schedule->steps[i].round, what, waits[0] ? waits : "-");
    }
    printf("\ns: scratch, i: the separate input; (input): read from the user's input, since this rank has not written "
           "it.\nStep %u and later ones also wait for the step %d before them.\n",
           TUTTI_WINDOW, TUTTI_WINDOW);
}

/* ---- the verb ---- */

/* The diagram shows messages, so calls are expanded for it. */
static bool draw_svg(const struct sched_bundle *bundle)
{
    const struct tutti_schedule *first = bundle->slots[0];
    struct sched_bundle expanded = {0};
    if (sched_bundle_seal(first->algorithm, first->kind, &first->shape, true, &expanded) < 0) {
        fprintf(stderr, "%s: %s\n", spec.command, tutti_last_error()->text);
        return false;
    }
    const bool written = sched_draw_svg(&spec, &expanded, SCHED_NO_MARK, options.svg);
    sched_bundle_free(&expanded);
    if (written) printf("\nwrote %s\n", options.svg);
    return written;
}

/* False when the picture could not be made. */
static bool draw(const struct sched_bundle *bundle)
{
    print_cost(bundle);
    if (options.rank != UINT32_MAX) {
        draw_rank(bundle->slots[options.rank]);
    } else if (bundle->n <= MAX_DRAWN) {
        sched_draw_grid(bundle, SCHED_NO_MARK, !options.ascii && sched_unicode());
    } else if (!options.svg) {
        printf("%u ranks are too many to draw here: --rank R lists the steps of one, --svg FILE draws all.\n",
               bundle->n);
    }
    return !options.svg || draw_svg(bundle);
}

static int show(const struct sched_subject *subject)
{
    struct sched_bundle bundle = {0};
    struct tutti_verdict verdict = {.ok = false};
    struct tutti_shape shape;
    enum tutti_kind kind;
    bool drawn = false;
    if (!kind_choose(subject, &kind) || !shape_choose(subject, kind, &shape)) return TUTTI_EXIT_USAGE;
    enum tutti_status status = tutti_verify(subject->algorithm, kind, &shape, &verdict);
    if (status >= 0) status = sched_bundle_seal(subject->algorithm, kind, &shape, !options.calls, &bundle);
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", spec.command, tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    drawn = draw(&bundle);
    sched_bundle_free(&bundle);
    printf("\n%s%s\n", verdict.ok ? "proved: right result, no deadlock" : "REFUSED: ", verdict.ok ? "" : verdict.text);
    return drawn && verdict.ok ? TUTTI_EXIT_OK : TUTTI_EXIT_WRONG;
}

static int show_in_process(void *argument)
{
    return show(argument);
}

static int show_apart(struct sched_subject *subject)
{
    const struct sched_apart task = {
        .act = show_in_process, .argument = subject, .size = options.size > MAX_SIZE ? 0 : options.size};
    char how[96];
    int code = TUTTI_EXIT_OK;
    if (sched_apart(&task, &code, how, sizeof how) < 0) {
        fprintf(stderr, "%s: %s\n", spec.command, tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    if (!how[0]) return code;
    printf("\nREFUSED: %s: %s\n", subject->algorithm->name, how);
    return TUTTI_EXIT_WRONG;
}

int sched_show(int argc, char **argv)
{
    struct sched_subject subject;
    int n;
    options = (struct options){.rank = UINT32_MAX, .size = UINT32_MAX};
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (n != 1) return tutti_args_fail(&spec, "name one algorithm, for example: tutti sched show ring --size 8");
    if (!sched_subject_open(&spec, argv[argc - 1], &subject)) return subject.code;
    const int code = subject.is_file ? show_apart(&subject) : show(&subject);
    return code;
}
