/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti doctor: says why a job hangs, or is slow, from beside it or from what it wrote down of it. */

#include "doctor.h"
#include "tools/tutti/cmd.h"

#include <errno.h>
#include <string.h>

enum { WORLDS_MOST = 32 };

struct options {
    bool json, all;
    uint64_t watch_ns;
    const char *dump;
};

static bool dumps_read(int n, char **names, struct doctor_world *worlds, uint32_t *n_worlds)
{
    for (int i = 0; i < n; i++) {
        FILE *in = fopen(names[i], "re");
        if (!in) {
            fprintf(stderr, "tutti doctor: %s: %s\n", names[i], strerror(errno));
            return false;
        }
        const enum tutti_status status = doctor_dump_read(in, worlds, WORLDS_MOST, n_worlds);
        fclose(in);
        if (status == TUTTI_OK) continue;
        fprintf(stderr, "tutti doctor: %s: %s\n", names[i], tutti_last_error()->text);
        return false;
    }
    return true;
}

static bool job_look(const struct options *options, struct doctor_world *worlds, uint32_t *n_worlds)
{
    struct doctor_found found;
    bool ok = true;
    doctor_find(&found, options->all);
    *n_worlds = doctor_worlds(&found, worlds, WORLDS_MOST);
    for (uint32_t w = 0; w < *n_worlds && ok; w++) ok = doctor_look(&found, &worlds[w], options->watch_ns) == TUTTI_OK;
    for (uint32_t w = 0; w < *n_worlds && ok; w++) doctor_reach(&worlds[w]);
    doctor_found_fini(&found);
    if (!ok) fprintf(stderr, "tutti doctor: %s\n", tutti_last_error()->text);
    if (ok && *n_worlds == 0)
        fprintf(stderr, "tutti doctor: no ranks of this user are in this network namespace (--all looks at the whole "
                        "machine)\n");
    return ok && *n_worlds > 0;
}

static bool dump(const char *name, const struct doctor_world *worlds, uint32_t n)
{
    FILE *out = fopen(name, "we");
    bool ok = out != NULL;
    for (uint32_t w = 0; w < n && ok; w++) ok = doctor_dump_write(out, &worlds[w]);
    if (out && fclose(out) != 0) ok = false;
    if (!ok) fprintf(stderr, "tutti doctor: %s: %s\n", name, strerror(errno));
    return ok;
}

/* Writes all verdicts; whether all worlds are fine. */
static bool judge(const struct options *options, const struct doctor_world *worlds, uint32_t n)
{
    bool fine = true;
    for (uint32_t w = 0; w < n; w++) {
        struct doctor_verdict verdict;
        doctor_diagnose(&worlds[w], &verdict);
        fine &= verdict.kind == DOCTOR_FINE;
        if (options->json)
            doctor_json_write(stdout, &worlds[w], &verdict);
        else
            doctor_page_write(stdout, &worlds[w], &verdict);
    }
    return fine;
}

int tutti_cmd_doctor(int argc, char **argv)
{
    struct options options = {.watch_ns = 2 * TUTTI_NS_PER_S};
    const struct tutti_arg args[] = {
        {"watch", 'w', TUTTI_ARG_TIME, &options.watch_ns, "TIME", "for how long to look (2s)"},
        {"all", 'a', TUTTI_ARG_FLAG, &options.all, NULL, "also at jobs of other network namespaces of this machine"},
        {"dump", 0, TUTTI_ARG_TEXT, &options.dump, "FILE", "also write what was seen to FILE, for a later look"},
        {"json", 0, TUTTI_ARG_FLAG, &options.json, NULL, "one JSON object for each job instead of the page"},
    };
    const struct tutti_args spec = {
        .command = "tutti doctor",
        .usage = "[options] [DUMP ...]",
        .about =
            "Looks at the jobs of this user that have ranks on this host, asks their ranks on all hosts where they\n"
            "are, and says in a sentence who is to blame when they hang or are slow. With DUMPs, which --dump\n"
            "wrote on one host or on several, it judges those instead. Exit status 1 if something is wrong.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
    };
    int n_positional;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);
    if (result != TUTTI_ARGS_OK) return (int)result;
    static struct doctor_world worlds[WORLDS_MOST];
    uint32_t n = 0;
    bool ok = n_positional > 0 ? dumps_read(n_positional, argv + argc - n_positional, worlds, &n)
                               : job_look(&options, worlds, &n);
    if (ok && options.dump) ok = dump(options.dump, worlds, n);
    if (ok) ok = judge(&options, worlds, n);
    for (uint32_t w = 0; w < n; w++) doctor_world_fini(&worlds[w]);
    return ok ? TUTTI_EXIT_OK : TUTTI_EXIT_WRONG;
}
