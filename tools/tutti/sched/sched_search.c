/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti sched search`: proved schedules that are faster, in the simulator, than what the library would choose; and
 * their way into the tuning file. */

#include "sched.h"

#include "algo/algo.h"
#include "model/choose.h"
#include "search.h"
#include "sim_network.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ELEMENT_BYTES = 4, MAX_SIZE = 1024, SHOWN = 10, ACTIVE = 64 };

static struct options {
    const char *kind, *world, *store, *out;
    uint64_t bytes, slice, seconds_ns;
    uint32_t seed, active;
    bool keep;
} options;
static const struct tutti_arg args[] = {
    {"kind", 'k', TUTTI_ARG_TEXT, &options.kind, "KIND", "collective (default all_reduce)"},
    {"world", 'w', TUTTI_ARG_TEXT, &options.world, "W", "ranks, or groups of ranks such as 8x2: two of 8 (default 8)"},
    {"bytes", 'b', TUTTI_ARG_SIZE, &options.bytes, "B", "of the buffer (default 1M)"},
    {"slice", 0, TUTTI_ARG_SIZE, &options.slice, "B", "slices of chunks (default: several are tried)"},
    {"active", 0, TUTTI_ARG_U32, &options.active, "N", "slices of a rank under way at once (default 64)"},
    {"seconds", 0, TUTTI_ARG_TIME, &options.seconds_ns, "T", "changes plans of up to 8 ranks for so long (default 5s)"},
    {"search-seed", 0, TUTTI_ARG_U32, &options.seed, "N", "changes are drawn by it (default 1)"},
    {"out", 0, TUTTI_ARG_TEXT, &options.out, "FILE.plan", "write the best, where it is a plan"},
    {"store", 0, TUTTI_ARG_FLAG, &options.keep, NULL, "write it to the tuning file of this host, if it is better"},
    {"tuning", 0, TUTTI_ARG_TEXT, &options.store, "FILE", "with --store: this tuning file"},
    SCHED_NETWORK_ARGS,
};
static const struct tutti_args spec = {
    .command = "tutti sched search",
    .usage = "[options]",
    .about =
        "Tries all algorithms with radices and slices, for all_reduce over equal groups one algorithm inside, one "
        "between\n"
        "and one inside again, and for up to 8 ranks small changes to the fastest; keeps what is proved and times it "
        "on\n"
        "the network. The library takes what --store writes for this world and size of a block, on engines of its own.",
    .no_positional = true,
    .args = args,
    .n_args = sizeof args / sizeof args[0],
};

/* ---- times ---- */

struct clock {
    enum tutti_kind kind;
    uint64_t block_bytes, buffer_bytes;
    bool failed; /* there is no such network */
};

static uint64_t simulate(void *argument, const struct search_entry *entry)
{
    struct clock *clock = argument;
    struct tutti_sim_work work = {.block_bytes = clock->block_bytes,
                                  .element_bytes = ELEMENT_BYTES,
                                  .slice_bytes = entry->slice_bytes,
                                  .active = options.active};
    struct tutti_sim_program program;
    struct tutti_sim_network *network;
    struct tutti_sim_result result = {0};
    const char *levels =
        options.world && strspn(options.world, "0123456789") != strlen(options.world) ? options.world : NULL;
    uint64_t ps = TUTTI_NEVER;
    if (clock->failed || !sched_network_costs(&spec, clock->buffer_bytes, &work)) {
        clock->failed = true;
        return TUTTI_NEVER;
    }
    if (tutti_sim_program_make(entry->algorithm, clock->kind, &entry->shape, &work, &program) < 0) return TUTTI_NEVER;
    clock->failed = !sched_network_open(&spec, &program, levels, &network);
    if (!clock->failed) {
        if (tutti_sim_run(&program, network, &result) >= 0) ps = result.end_ps;
        network->ops->close(network);
    }
    tutti_sim_result_fini(&result);
    tutti_sim_program_fini(&program);
    return ps;
}

/* ---- what the library would take ---- */

static enum tutti_status library_choice(const struct search *search, uint64_t block_bytes, uint64_t slice_bytes,
                                        struct search_entry *out)
{
    struct tutti_facts facts = {.shape = search->world,
                                .min_cpus = 1,
                                .n_host = search->world.size,
                                .link = search->world.n_levels ? TUTTI_LINK_NET : TUTTI_LINK_HOST,
                                .machine = tutti_machine_default,
                                .slice_bytes = slice_bytes,
                                .eager_bytes = 8192};
    const struct tutti_question question = {.kind = search->kind, .bytes = block_bytes, .commutative = true};
    *out = (struct search_entry){.slice_bytes = slice_bytes};
    TUTTI_TRY(tutti_choose(&facts, &question, &out->algorithm, &out->shape));
    snprintf(out->label, sizeof out->label, out->shape.radix ? "%s:%u" : "%s", out->algorithm->name, out->shape.radix);
    out->ps = search->time(search->argument, out);
    return TUTTI_OK;
}

/* ---- the table ---- */

static void size_text(uint64_t bytes, char *out, size_t capacity)
{
    const uint64_t k = bytes >> 10;
    if (bytes == 0) snprintf(out, capacity, "-");
    if (bytes && (bytes % 1024 || k == 0)) snprintf(out, capacity, "%llu", (unsigned long long)bytes);
    if (bytes && bytes % 1024 == 0)
        snprintf(out, capacity, k % 1024 ? "%lluK" : "%lluM", (unsigned long long)(k % 1024 ? k : k >> 10));
}

static void print_entry(const struct search_entry *entry, uint64_t library_ps, const char *who)
{
    char slice[24];
    size_text(entry->slice_bytes, slice, sizeof slice);
    printf("%12.1f  %6.2fx  %-7s %-40s %s\n", (double)entry->ps / 1e6, (double)library_ps / (double)entry->ps, slice,
           entry->label, who);
}

static void print_table(const struct search *search, const struct search_entry *library, uint64_t bytes)
{
    printf("%s, %u rank%s%s%s, %llu bytes on %s\n", tutti_kind_name(search->kind), search->world.size,
           tutti_plural(search->world.size), search->world.n_levels ? ", groups " : "",
           search->world.n_levels ? options.world : "", (unsigned long long)bytes, sched_network.net);
    printf("%12s  %7s  %-7s %s\n", "microseconds", "", "slice",
           "algorithm (a / b / c: in groups, between, in groups; "
           "*: changed by the search)");
    uint32_t n_shown = 0;
    for (size_t i = 0; i < search->n && n_shown < SHOWN; i++) {
        bool again = false; /* with other slices it is slower */
        for (size_t j = 0; j < i && !again; j++)
            again = strcmp(search->entries[i].label, search->entries[j].label) == 0;
        if (again) continue;
        print_entry(&search->entries[i], library->ps, "");
        n_shown++;
    }
    print_entry(library, library->ps, "<- the library's choice");
    printf("%u schedules tried, %u of them refused by the checker; all that are shown are proved\n", search->n_tried,
           search->n_refused);
}

/* ---- keeping ---- */

static bool plan_write(const struct tutti_plan *plan, const char *path)
{
    FILE *file = fopen(path, "w");
    bool written = file && tutti_plan_write(plan, file);
    if (file && fclose(file) != 0) written = false;
    if (!written) fprintf(stderr, "%s: cannot write %s: %s\n", spec.command, path, strerror(errno));
    return written;
}

/* The line of the best; a plan goes to a file beside the tuning file, or to --out. */
static enum tutti_status store(const struct search *search, const struct search_entry *best, uint64_t block_bytes)
{
    char tuning[PATH_MAX], plan[PATH_MAX];
    struct tutti_found found = {.kind = search->kind,
                                .world = search->world,
                                .from = block_bytes - block_bytes / 4,
                                .to = block_bytes + block_bytes / 2};
    if (options.store)
        snprintf(tuning, sizeof tuning, "%s", options.store);
    else if (!tutti_machine_path(tuning, sizeof tuning))
        return tutti_fail(TUTTI_ERR_SYSTEM, "there is no place for a tuning file: give --tuning FILE");
    for (char *slash = strchr(tuning + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(tuning, 0755);
        *slash = '/';
    }
    snprintf(found.name, sizeof found.name, "%s", best->label);
    if (search_plan_of(best)) {
        const int n =
            options.out ? snprintf(plan, sizeof plan, "%s", options.out)
                        : snprintf(plan, sizeof plan, "%.3800s.%s-%u-%llu.plan", tuning, tutti_kind_name(search->kind),
                                   search->world.size, (unsigned long long)block_bytes);
        char *absolute = n > 0 && plan_write(search_plan_of(best), plan) ? realpath(plan, NULL) : NULL;
        if (!absolute || strlen(absolute) >= sizeof found.name) {
            free(absolute);
            return tutti_fail(TUTTI_ERR_SYSTEM, "the plan can not be kept as %s", plan);
        }
        snprintf(found.name, sizeof found.name, "%s", absolute);
        free(absolute);
    }
    TUTTI_TRY(tutti_found_append(tuning, &found));
    printf("%s: %s for blocks of %llu to %llu bytes\n", tuning, found.name, (unsigned long long)found.from,
           (unsigned long long)found.to);
    return TUTTI_OK;
}

/* ---- the verb ---- */

static bool world_read(struct tutti_shape *world)
{
    const char *text = options.world ? options.world : "8";
    *world = (struct tutti_shape){.size = 0};
    if (strspn(text, "0123456789") == strlen(text)) {
        const unsigned long n = strtoul(text, NULL, 10);
        world->size = n <= MAX_SIZE ? (uint32_t)n : 0;
    } else if (tutti_shape_parse_levels(world, text) < 0) {
        tutti_args_fail(&spec, "%s.", tutti_last_error()->text);
        return false;
    }
    if (world->size >= 2 && world->size <= MAX_SIZE) return true;
    tutti_args_fail(&spec, "--world %s: give 2 to %d ranks, or groups of ranks such as 8x2.", text, (int)MAX_SIZE);
    return false;
}

/* Everything with each slice, then the changes from what is fastest. */
static enum tutti_status search_all(struct search *search, uint64_t block_bytes)
{
    static const uint64_t slices[] = {UINT64_C(512) << 10, UINT64_C(128) << 10, UINT64_C(2) << 20, 0};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(slices); i++) {
        const uint64_t slice = options.slice ? options.slice : slices[i];
        if (i > 0 && (options.slice || (slice && slice >= block_bytes))) continue;
        TUTTI_TRY(search_table(search, slice));
        TUTTI_TRY(search_composed(search, slice));
    }
    search_sort(search);
    return search_local(search, tutti_now_ns() + options.seconds_ns);
}

static int answer(struct search *search, const struct clock *clock)
{
    struct search_entry library;
    enum tutti_status status = search_all(search, clock->block_bytes);
    if (status >= 0 && !clock->failed)
        status =
            library_choice(search, clock->block_bytes, options.slice ? options.slice : UINT64_C(512) << 10, &library);
    if (clock->failed) return TUTTI_EXIT_USAGE;
    if (status >= 0 && search->n == 0)
        return tutti_args_fail(&spec, "no algorithm runs %s on this world.", tutti_kind_name(search->kind));
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", spec.command, tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    print_table(search, &library, clock->buffer_bytes);
    size_t at = 0; /* slices are an option, which the best must not need to be another */
    while (at < search->n && search->entries[at].slice_bytes != library.slice_bytes) at++;
    const struct search_entry *best = &search->entries[at < search->n ? at : 0];
    const bool better = at < search->n && best->ps < library.ps;
    if (!better) printf("nothing is faster with the same slices than what the library takes\n");
    if (options.out && !options.keep && search_plan_of(best) && !plan_write(search_plan_of(best), options.out))
        return TUTTI_EXIT_WRONG;
    if (!better || !options.keep || store(search, best, clock->block_bytes) >= 0) return TUTTI_EXIT_OK;
    fprintf(stderr, "%s: %s\n", spec.command, tutti_last_error()->text);
    return TUTTI_EXIT_WRONG;
}

int sched_search(int argc, char **argv)
{
    struct clock clock = {0};
    struct search search = {.kind = TUTTI_ALL_REDUCE, .time = simulate, .argument = &clock};
    int n;
    options = (struct options){.bytes = 1 << 20, .seconds_ns = 5 * UINT64_C(1000000000), .seed = 1, .active = ACTIVE};
    sched_network = SCHED_NETWORK_DEFAULT;
    sched_network.net = "ports";
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (sched_network_help()) return TUTTI_EXIT_OK;
    if (options.kind && !sched_kind_parse(&spec, options.kind, &search.kind)) return TUTTI_EXIT_USAGE;
    if (!world_read(&search.world)) return TUTTI_EXIT_USAGE;
    const uint32_t blocks = tutti_kind_blocks(search.kind, search.world.size);
    clock.kind = search.kind;
    clock.block_bytes = options.bytes / blocks / ELEMENT_BYTES * ELEMENT_BYTES;
    clock.buffer_bytes = clock.block_bytes * blocks;
    if (clock.block_bytes == 0 && search.kind != TUTTI_BARRIER)
        return tutti_args_fail(&spec, "--bytes %llu: the blocks of %u ranks would be empty.",
                               (unsigned long long)options.bytes, search.world.size);
    search.seed = options.seed;
    const int code = answer(&search, &clock);
    search_fini(&search);
    return code;
}
