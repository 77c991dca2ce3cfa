/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti bench`: inside `tutti run` (or another launcher) it is one rank; alone it starts its own ranks with it. */

#include "bench.h"
#include "tools/tutti/cmd.h"

#include "base/base.h"
#include "base/config.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 32

struct request {
    const char *ops, *types, *reductions, *only, *device, *mode, *factor;
    uint32_t n, root;
    const struct bench_op *op[MAX_NAMES];
    enum tutti_dtype dtype[MAX_NAMES];
    enum tutti_op reduction[MAX_NAMES];
    size_t n_op, n_dtype, n_reduction;
    size_t onesided[MAX_NAMES], n_onesided; /* instead of collectives */
    struct bench_settings settings;
};

/* Names separated by commas, or "all"; each is looked up by `index_of` in the name table. */
typedef const char *(*name_function)(size_t i);
static const char *op_at(size_t i)
{
    return i < bench_n_ops ? bench_ops[i].info->name : NULL;
}
static const char *dtype_at(size_t i)
{
    return tutti_dtype_is((enum tutti_dtype)i) ? tutti_dtype_name((enum tutti_dtype)i) : NULL;
}
static const char *reduction_at(size_t i)
{
    return i < TUTTI_N_OPS ? tutti_op_name((enum tutti_op)i) : NULL;
}

static bool read_names(const struct tutti_args *spec, const char *what, const char *text, name_function at,
                       size_t out[MAX_NAMES], size_t *n)
{
    char word[32];
    *n = 0;
    if (strcmp(text, "all") == 0) {
        while (at(*n)) out[*n] = *n, ++*n;
        return true;
    }
    for (const char *p = text; *p;) {
        size_t length = strcspn(p, ","), i = 0;
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), p);
        while (at(i) && strcmp(at(i), word) != 0) i++;
        if (!at(i) || *n == MAX_NAMES) {
            const char *names[MAX_NAMES];
            size_t n_names = 0;
            while (n_names < MAX_NAMES && at(n_names)) names[n_names] = at(n_names), n_names++;
            const char *near = tutti_nearest(word, names, n_names);
            tutti_args_fail(spec, "there is no %s '%s'%s%s%s", what, word, near ? "; did you mean '" : "",
                            near ? near : "", near ? "'?" : "");
            return false;
        }
        out[(*n)++] = i;
        p += length + (p[length] == ',');
    }
    return true;
}

/* Whether the names begin with a one-sided call: then all are. */
static bool is_onesided(const char *ops)
{
    const size_t length = strcspn(ops, ",");
    for (size_t i = 0; bench_onesided_at(i); i++)
        if (strlen(bench_onesided_at(i)) == length && strncmp(bench_onesided_at(i), ops, length) == 0) return true;
    return false;
}

static int understand_wire(const struct tutti_args *spec, struct bench_settings *s)
{
    if (!s->wire_name) return TUTTI_EXIT_OK;
    for (enum tutti_wire w = TUTTI_WIRE_BFLOAT16; w < TUTTI_N_WIRES; w++)
        if (strcmp(tutti_wire_name(w), s->wire_name) == 0) s->wire = w;
    if (s->wire == TUTTI_WIRE_NONE)
        return tutti_args_fail(spec, "--wire is '%s'; give bfloat16, float8_e4m3, float8_e5m2 or int8", s->wire_name);
    if (s->check || s->explain) return tutti_args_fail(spec, "--wire goes without --check and --explain");
    return TUTTI_EXIT_OK;
}

/* "mapped" is the flag of that name. */
static int understand_pages(const struct tutti_args *spec, struct bench_settings *s)
{
    if (!s->pages) return TUTTI_EXIT_OK;
    const bool mapped = strcmp(s->pages, "mapped") == 0;
    if (!mapped && strcmp(s->pages, "4k") != 0 && strcmp(s->pages, "huge") != 0)
        return tutti_args_fail(spec, "--pages is '%s'; give 4k, huge or mapped", s->pages);
    if (s->device) return tutti_args_fail(spec, "--pages does not go with --device");
    if (s->mapped && !mapped) return tutti_args_fail(spec, "--mapped and --pages %s are two kinds of memory", s->pages);
    if (mapped) s->mapped = true, s->pages = NULL;
    return TUTTI_EXIT_OK;
}

static int understand(const struct tutti_args *spec, struct request *r)
{
    size_t op[MAX_NAMES] = {0}, dtype[MAX_NAMES] = {0}, reduction[MAX_NAMES] = {0};
    struct bench_settings *s = &r->settings;
    char *end;
    s->factor = strtod(r->factor, &end);
    if (*end || !(s->factor > 1.0) || s->factor > 1e9)
        return tutti_args_fail(spec, "--factor is '%s'; give a number greater than 1", r->factor);
    const bool onesided = is_onesided(r->ops);
    if (!(onesided ? read_names(spec, "one-sided call", r->ops, bench_onesided_at, r->onesided, &r->n_onesided)
                   : read_names(spec, "collective", r->ops, op_at, op, &r->n_op)) ||
        !read_names(spec, "type", r->types, dtype_at, dtype, &r->n_dtype) ||
        !read_names(spec, "operation", r->reductions, reduction_at, reduction, &r->n_reduction))
        return TUTTI_EXIT_USAGE;
    for (size_t i = 0; i < r->n_op; i++) r->op[i] = &bench_ops[op[i]];
    for (size_t i = 0; i < r->n_dtype; i++) r->dtype[i] = (enum tutti_dtype)dtype[i];
    for (size_t i = 0; i < r->n_reduction; i++) r->reduction[i] = (enum tutti_op)reduction[i];
    if (r->n < 1) return tutti_args_fail(spec, "-n is 0; give at least 1 rank");
    if (s->iterations < 1 || s->rounds < 1) return tutti_args_fail(spec, "--calls and --rounds must be at least 1");
    if (s->min_bytes > s->max_bytes) return tutti_args_fail(spec, "-b is larger than -e");
    s->in_place_only = strcmp(r->only, "in") == 0, s->out_of_place_only = strcmp(r->only, "out") == 0;
    if (!s->in_place_only && !s->out_of_place_only && strcmp(r->only, "both") != 0)
        return tutti_args_fail(spec, "--place is '%s'; give in, out or both", r->only);
    const struct tutti_device_ops *kind = tutti_device_named(r->device);
    if (!kind) return tutti_args_fail(spec, "--device is '%s'; give one of: %s", r->device, TUTTI_DEVICE_NAMES);
    s->device = kind->on_host ? NULL : kind->name, s->eager = r->mode && strcmp(r->mode, "eager") == 0;
    if (r->mode && !s->eager && strcmp(r->mode, "graph") != 0)
        return tutti_args_fail(spec, "--mode is '%s'; give graph or eager", r->mode);
    s->eager |= !kind->graph_begin;
    if (s->survive && r->mode && !s->eager)
        return tutti_args_fail(spec, "--survive goes with --mode eager: calls that survive are not captured");
    s->eager |= s->survive;
    if (s->device && s->peer && strcmp(s->peer, "nccl") != 0)
        return tutti_args_fail(spec, "--peer is '%s'; on a device give nccl", s->peer);
    if (!s->device && (r->mode || s->group > 1))
        return tutti_args_fail(spec, "--mode and --group go with a --device that is not cpu");
    if (s->group < 1 || (s->group > 1 && s->explain))
        return tutti_args_fail(spec, "--group is at least 1, and 1 with --explain");
    if (onesided && (s->device || s->explain || s->plot || s->fresh))
        return tutti_args_fail(spec, "one-sided calls go without --device, --explain, --plot and --fresh");
    if (s->survive && (onesided || s->peer || s->explain || s->wire_name || s->mapped || s->group > 1))
        return tutti_args_fail(spec, "--survive goes with collectives, without --peer, --explain, --wire, --mapped and "
                                     "--group");
    if (s->device && s->fresh) return tutti_args_fail(spec, "--fresh does not go with --device");
    if (s->explain && s->peer) return tutti_args_fail(spec, "--explain tells of tutti alone, without --peer");
    const int status = understand_pages(spec, s);
    return status != TUTTI_EXIT_OK ? status : understand_wire(spec, s);
}

struct results {
    struct bench_point *points;
    size_t n, capacity;
    size_t n_cells, n_near; /* explained */
};

static bool keep(struct results *results, const struct bench_point *point)
{
    if (results->n == results->capacity) {
        size_t capacity = results->capacity ? 2 * results->capacity : 64;
        struct bench_point *grown = realloc(results->points, capacity * sizeof *grown);
        if (!grown) return false;
        results->points = grown;
        results->capacity = capacity;
    }
    results->points[results->n++] = *point;
    return true;
}

static enum tutti_status measure(struct bench_run *run, const struct bench_case *c, struct results *results)
{
    struct bench_point point;
    enum tutti_status status = bench_measure(run, c, &point);
    if (status < 0) return status;
    if (c->rank == 0) bench_show_point(stdout, run->settings, &point, results->n == 0);
    return keep(results, &point) ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for another point");
}

/* Out of place, unless asked otherwise. */
static enum tutti_status explain(struct bench_run *run, const struct bench_case *c, struct results *results)
{
    struct bench_case form = *c;
    struct bench_cell cell;
    form.in_place = run->settings->in_place_only;
    enum tutti_status status = bench_explain(run, &form, &cell);
    if (status < 0) return status;
    if (c->rank == 0) bench_explain_show(stdout, run->settings, &cell, results->n_cells == 0);
    results->n_cells++;
    results->n_near += cell.worst <= BENCH_NEAR;
    return TUTTI_OK;
}

/* Behind none comes one element. */
static double next_size(double bytes, size_t esize, double factor)
{
    return bytes < (double)esize ? (double)esize : bytes * factor;
}

/* All sizes of one collective, type and operation; undefined pairs are left out with a line. */
static enum tutti_status sweep(struct bench_run *run, const struct request *r, struct bench_case c,
                               struct results *results)
{
    const struct bench_settings *s = &r->settings;
    size_t esize = tutti_dtype_bytes(c.dtype);
    bool sized = bench_count(c.op, 1, 1) > 0;
    for (double bytes = (double)s->min_bytes; bytes <= (double)s->max_bytes;
         bytes = next_size(bytes, esize, s->factor)) {
        bench_case_size(&c, (size_t)bytes);
        if (s->explain && sized && c.count == 0) continue; /* nothing moves: there is nothing to choose */
        enum tutti_status status = s->explain ? explain(run, &c, results) : measure(run, &c, results);
        if (status == TUTTI_ERR_UNSUPPORTED) {
            if (c.rank == 0 && !s->json) printf("# left out: %s\n", tutti_last_error()->text);
            return TUTTI_OK;
        }
        if (status < 0) return status;
        if (!sized) break;
    }
    return TUTTI_OK;
}

static enum tutti_status all_sweeps(struct bench_run *run, const struct request *r, struct tutti_comm *comm,
                                    struct results *results)
{
    struct bench_case c = {.rank = tutti_comm_rank(comm), .n_ranks = tutti_comm_size(comm)};
    c.root = (int32_t)r->root;
    for (size_t i = 0; i < r->n_op; i++) {
        for (size_t d = 0; d < (bench_count(r->op[i], 1, 1) ? r->n_dtype : 1); d++) {
            for (size_t o = 0; o < (r->op[i]->info->reduces ? r->n_reduction : 1); o++) {
                c.op = r->op[i], c.dtype = r->dtype[d], c.reduction = r->reduction[o];
                enum tutti_status status = sweep(run, r, c, results);
                if (status < 0) return status;
            }
        }
    }
    return TUTTI_OK;
}

static size_t total_wrong(const struct results *results)
{
    size_t wrong = 0;
    for (size_t i = 0; i < results->n; i++)
        for (int form = 0; form < 2; form++)
            if (results->points[i].has[form] && results->points[i].time[form].wrong != SIZE_MAX)
                wrong += results->points[i].time[form].wrong;
    return wrong;
}

static int onesided(struct bench_run *run, const struct request *r)
{
    size_t wrong = 0;
    if (bench_onesided(run, r->onesided, r->n_onesided, &wrong) >= 0) return wrong ? TUTTI_EXIT_WRONG : TUTTI_EXIT_OK;
    fprintf(stderr, "tutti bench: %s\n", tutti_last_error()->text);
    return TUTTI_EXIT_WRONG;
}

static int be_a_rank(const struct tutti_args *spec, struct request *r)
{
    struct tutti_comm *comm = NULL;
    struct bench_run *run = NULL;
    struct results results = {0};
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.device = TUTTI_DEVICE_NONE;
    enum tutti_status status = tutti_comm_create(NULL, &config, &comm);
    int exit_status = TUTTI_EXIT_WRONG;
    if (status < 0) goto failed;
    if (r->root >= (uint32_t)tutti_comm_size(comm)) {
        exit_status = tutti_args_fail(spec, "--root is %u, but there are %d ranks", r->root, tutti_comm_size(comm));
        goto done;
    }
    status = bench_run_open(comm, &r->settings, &run);
    if (status < 0) goto failed;
    if (r->n_onesided > 0) {
        exit_status = onesided(run, r);
        goto done;
    }
    if (tutti_comm_rank(comm) == 0) bench_show_header(stdout, &r->settings, tutti_comm_size(comm));
    status = all_sweeps(run, r, comm, &results);
    if (status < 0) goto failed;
    const bool nothing = results.n + results.n_cells == 0; /* all was left out */
    exit_status = total_wrong(&results) || nothing ? TUTTI_EXIT_WRONG : TUTTI_EXIT_OK;
    if (tutti_comm_rank(comm) == 0) {
        if (r->settings.explain)
            bench_explain_footer(stdout, &r->settings, results.n_near, results.n_cells);
        else
            bench_show_footer(stdout, &r->settings, results.points, results.n);
        if (r->settings.plot && bench_plot(r->settings.plot, results.points, results.n) != 0) {
            fprintf(stderr, "tutti bench: can not write %s\n", r->settings.plot);
            exit_status = TUTTI_EXIT_WRONG;
        }
        fflush(stdout);
    }
    (void)tutti_barrier(comm, NULL, NULL); /* a rank that ends with a failure ends the others: not before all is said */
    goto done;
failed:
    fprintf(stderr, "tutti bench: %s\n", tutti_last_error()->text);
done:
    if (run) bench_run_close(run);
    tutti_comm_destroy(comm);
    free(results.points);
    return exit_status;
}

int tutti_cmd_bench(int argc, char **argv)
{
    struct request r = {.ops = "all_reduce", .types = "float32", .reductions = "sum", .only = "both", .device = "cpu"};
    r.n = 2, r.factor = "2";
    r.settings = (struct bench_settings){.iterations = 100, .warmup = 10, .rounds = 9, .min_bytes = 8};
    r.settings.max_bytes = 256u << 20, r.settings.group = 1;
    const struct tutti_arg args[] = {
        {"ranks", 'n', TUTTI_ARG_U32, &r.n, "N", "number of ranks, when not inside tutti run (default 2)"},
        {"begin", 'b', TUTTI_ARG_SIZE, &r.settings.min_bytes, "BYTES", "smallest size (default 8)"},
        {"end", 'e', TUTTI_ARG_SIZE, &r.settings.max_bytes, "BYTES", "largest size (default 256M)"},
        {"factor", 'f', TUTTI_ARG_TEXT, &r.factor, "F", "from one size to the next (default 2)"},
        {"types", 0, TUTTI_ARG_TEXT, &r.types, "LIST", "types, separated by commas, or all (default float32)"},
        {"ops", 0, TUTTI_ARG_TEXT, &r.reductions, "LIST", "operations of reductions, or all (default sum)"},
        {"root", 0, TUTTI_ARG_U32, &r.root, "RANK", "root of rooted collectives (default 0)"},
        {"calls", 0, TUTTI_ARG_U32, &r.settings.iterations, "N",
         "calls in a round, fewer for large sizes (default 100)"},
        {"rounds", 0, TUTTI_ARG_U32, &r.settings.rounds, "N", "rounds; their median and spread are shown (default 9)"},
        {"warmup", 0, TUTTI_ARG_U32, &r.settings.warmup, "N", "calls before the first round (default 10)"},
        {"place", 0, TUTTI_ARG_TEXT, &r.only, "WHICH", "in, out or both (default both)"},
        {"algorithm", 0, TUTTI_ARG_TEXT, &r.settings.algorithm, "NAME",
         "of tutti sched list, or a file's path, instead of the chosen one"},
        {"wire", 0, TUTTI_ARG_TEXT, &r.settings.wire_name, "NAME",
         "quantised all_reduce, reduce_scatter: bfloat16, float8_e4m3, float8_e5m2 or int8"},
        {"seed", 0, TUTTI_ARG_U32, &r.settings.seed, "N", "with wire: stochastic rounding by this seed"},
        {"check", 0, TUTTI_ARG_FLAG, &r.settings.check, NULL, "compare results; exit status 1 if one is wrong"},
        {"fresh", 0, TUTTI_ARG_FLAG, &r.settings.fresh, NULL, "rewrite the inputs before each call"},
        {"pages", 0, TUTTI_ARG_TEXT, &r.settings.pages, "WHICH", "4k or huge, private; or mapped (default: malloc's)"},
        {"mapped", 0, TUTTI_ARG_FLAG, &r.settings.mapped, NULL,
         "memory from tutti_mem_alloc (zero copy); on devices: windows"},
        {"explain", 0, TUTTI_ARG_FLAG, &r.settings.explain, NULL,
         "every way a call could go, predicted and measured, and how good the chosen one is"},
        {"device", 0, TUTTI_ARG_TEXT, &r.device, "WHICH", "memory of cpu, cuda or xpu (default cpu)"},
        {"mode", 0, TUTTI_ARG_TEXT, &r.mode, "HOW",
         "on devices: graph (replayed, where there are graphs) or eager (default graph)"},
        {"group", 0, TUTTI_ARG_U32, &r.settings.group, "N",
         "on devices: N calls on buffers of their own in a group (default 1)"},
        {"peer", 0, TUTTI_ARG_TEXT, &r.settings.peer, "NAME",
         "measure another algorithm as well, in turns; with cuda: nccl, as tutti's back end"},
        {"survive", 0, TUTTI_ARG_FLAG, &r.settings.survive, NULL,
         "a communicator that survives, and what that costs beside one that does not, in turns"},
        {"json", 0, TUTTI_ARG_FLAG, &r.settings.json, NULL, "one JSON object instead of the table"},
        {"plot", 0, TUTTI_ARG_TEXT, &r.settings.plot, "FILE.svg", "draw time against size"},
    };
    const struct tutti_args spec = {
        .command = "tutti bench",
        .usage = "[OP[,OP...]] [options]",
        .about = "Measures collectives (all_reduce if none is named, or all) and prints the columns of nccl-tests; or "
                 "one-sided calls (put, get, put_signal, fetch_add) from rank 0 to rank 1, beside memcpy and bare "
                 "words.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
    };
    int n = 0;
    const enum tutti_args_result parsed = tutti_args_parse(&spec, argc, argv, &n);
    if (parsed != TUTTI_ARGS_OK) return (int)parsed;
    if (n > 1)
        return tutti_args_fail(&spec, "'%s' is one argument too many; separate collectives by commas", argv[argc - 1]);
    if (n == 1) r.ops = argv[argc - 1];
    const int status = understand(&spec, &r);
    if (status != TUTTI_EXIT_OK) return status;
    return tutti_inside_a_job() ? be_a_rank(&spec, &r) : tutti_start_ranks(r.n, "none", argc, argv);
}
