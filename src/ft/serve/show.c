/* SPDX-License-Identifier: BSD-3-Clause */
/* What people and their programs see: JSON, which the page renders, and metrics. Names, addresses and all that groups
 * say are other people's words: json_text writes them, and nothing else does. */
#include "ft/serve/jobs.h"
#include "ft/serve/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct view {
    FILE *out;
    const struct serve_job *job;
    uint64_t now;
    uint32_t n, n_healing, n_asking;
    int64_t max_step;               /* in the last quorum */
    struct tutti_progress furthest; /* among the groups that are heard; n_ranks 0: none */
};

/* ---- other people's words ---- */
static void json_text(FILE *out, const char *text)
{
    fputc('"', out);
    serve_text_put(out, text);
    fputc('"', out);
}

/* ---- what is seen ---- */
static int64_t max_step(const struct tutti_quorum *quorum)
{
    int64_t most = INT64_MIN;

    for (uint32_t i = 0; quorum && i < quorum->n; i++)
        if (quorum->members[i]->step > most) most = quorum->members[i]->step;
    return most;
}

/* It is a member, and its step is not that of those that are ahead. */
static bool is_healing(const struct view *view, const struct tutti_lighthouse_seen *seen)
{
    const struct tutti_quorum *last = tutti_lighthouse_last(view->job->machine);
    const struct tutti_replica *member = seen->member && last ? tutti_quorum_find(last, seen->replica_id) : NULL;

    return member && member->step != view->max_step;
}

static bool is_before(const struct tutti_progress *a, const struct tutti_progress *b)
{
    return a->n_ranks > 0 && b->n_ranks > 0 &&
           (a->step < b->step || (a->step == b->step && a->collective < b->collective));
}

/* Its manager lives, but it has not moved for so long that it would be dead if it were silent, and others wait for it:
 * in a collective that it has not reached, or in a quorum that it does not ask for. */
static bool hangs(const struct view *view, const struct tutti_lighthouse_seen *seen)
{
    const struct tutti_progress *progress = &seen->progress;
    const bool waited_for = is_before(progress, &view->furthest) || view->n_asking > 0;

    return seen->member && progress->n_ranks > 0 && !seen->asks && waited_for &&
           view->now > progress->changed_ns + view->job->serve->config.options.heartbeat_timeout_ns;
}

static const char *state_of(const struct view *view, const struct tutti_lighthouse_seen *seen)
{
    return !seen->heard             ? "lost"
           : hangs(view, seen)      ? "hangs"
           : is_healing(view, seen) ? "healing"
           : seen->member           ? "member"
                                    : "waiting";
}

static uint64_t age_ms(const struct view *view, const struct tutti_lighthouse_seen *seen)
{
    return view->now > seen->beat_ns ? (view->now - seen->beat_ns) / TUTTI_NS_PER_MS : 0;
}

static void count(void *arg, const struct tutti_lighthouse_seen *seen)
{
    struct view *view = arg;

    if (is_healing(view, seen)) view->n_healing++;
    if (!seen->heard) return;
    view->n_asking += seen->asks && seen->member;
    if (view->furthest.n_ranks == 0 || is_before(&view->furthest, &seen->progress)) view->furthest = seen->progress;
}

static struct view view_of(FILE *out, const struct serve_job *job)
{
    struct view view = {.out = out, .job = job, .now = tutti_now_ns()};

    view.max_step = max_step(tutti_lighthouse_last(job->machine));
    tutti_lighthouse_each(job->machine, count, &view);
    return view;
}

/* The oldest event that is kept, and those after it. */
static uint64_t first_event(const struct serve_job *job)
{
    return job->n_events > JOB_EVENTS ? job->n_events - JOB_EVENTS : 0;
}

static bool is_trusted(const struct serve_job *job)
{
    return job->serve->token[0] != '\0';
}

/* ---- JSON ---- */
static void json_group(void *arg, const struct tutti_lighthouse_seen *seen)
{
    struct view *view = arg;
    const struct tutti_replica *r = seen->replica;

    fputs(view->n++ > 0 ? ",\n  {\"replica_id\":" : "\n  {\"replica_id\":", view->out);
    json_text(view->out, seen->replica_id);
    fprintf(view->out, ",\"state\":\"%s\",\"member\":%s,\"asks\":%s,\"heartbeat_age_ms\":%" PRIu64,
            state_of(view, seen), seen->member ? "true" : "false", seen->asks ? "true" : "false", age_ms(view, seen));
    if (r) {
        fprintf(view->out,
                ",\"step\":%" PRId64 ",\"commit_failures\":%" PRId64 ",\"world_size\":%" PRIu64
                ",\"shrink_only\":%s,\"address\":",
                r->step, r->commit_failures, r->world_size, r->shrink_only ? "true" : "false");
        json_text(view->out, r->address);
        fputs(",\"store_address\":", view->out);
        json_text(view->out, r->store_address);
    }
    if (seen->progress.n_ranks > 0)
        fprintf(view->out,
                ",\"progress\":{\"step\":%" PRId64 ",\"collective\":%" PRIu64 ",\"rank\":%" PRIu32 ",\"ranks\":%" PRIu32
                ",\"since_ms\":%" PRIu64 "}",
                seen->progress.step, seen->progress.collective, seen->progress.rank, seen->progress.n_ranks,
                (view->now - seen->progress.changed_ns) / TUTTI_NS_PER_MS);
    fputc('}', view->out);
}

static void json_quorum(const struct view *view, const struct tutti_quorum *quorum)
{
    if (!quorum) {
        fputs("null", view->out);
        return;
    }
    fprintf(view->out,
            "{\"quorum_id\":%" PRId64 ",\"groups\":%" PRIu32 ",\"max_step\":%" PRId64 ",\"created_ms\":%" PRId64 "}",
            quorum->id, quorum->n, view->max_step, quorum->created_ns / (int64_t)TUTTI_NS_PER_MS);
}

static void show_json(FILE *out, const struct serve_job *job)
{
    struct view view = view_of(out, job);
    struct tutti_lighthouse_counts counts;
    char reason[512];

    tutti_lighthouse_counts(job->machine, &counts);
    const bool ready = tutti_lighthouse_reason(job->machine, view.now, reason, sizeof reason);
    fputs("{\"job\":", out);
    json_text(out, job->name);
    fprintf(out,
            ",\"authenticated\":%s,\"known\":%" PRIu32 ",\"heard\":%" PRIu32 ",\"asking\":%" PRIu32
            ",\"ready\":%" PRIu32 ",\"healing\":%" PRIu32 ",\"quorum_ready\":%s,\"reason\":",
            is_trusted(job) ? "true" : "false", counts.n_known, counts.n_heard, counts.n_asking, counts.n_ready,
            view.n_healing, ready ? "true" : "false");
    json_text(out, reason);
    fputs(",\n \"quorum\":", out);
    json_quorum(&view, tutti_lighthouse_last(job->machine));
    fputs(",\n \"groups\":[", out);
    tutti_lighthouse_each(job->machine, json_group, &view);
    fputs("],\n \"events\":[", out);
    for (uint64_t i = first_event(job); i < job->n_events; i++) {
        const struct serve_event *event = &job->events[i % JOB_EVENTS];
        fprintf(out, "%s\n  {\"time_ms\":%" PRId64 ",\"text\":", i > first_event(job) ? "," : "",
                event->wall_ns / (int64_t)TUTTI_NS_PER_MS);
        json_text(out, event->text);
        fputc('}', out);
    }
    fputs("],\n \"jobs\":[", out);
    for (const struct serve_job *other = job->serve->jobs; other; other = other->next) {
        if (other != job->serve->jobs) fputc(',', out);
        json_text(out, other->name);
    }
    fputs("]}\n", out);
}

/* ---- metrics: of other people's words only names of jobs, whose characters are checked ---- */
enum metric { KNOWN, HEARD, ASKING, HEALING, MEMBERS, ID, STEP, QUORUMS, LOST, BEATS, ASKS, N_METRICS };
static const struct {
    const char *name, *type, *help;
} metrics[N_METRICS] = {
    [KNOWN] = {"groups_known", "gauge", "groups that are not forgotten"},
    [HEARD] = {"groups_heard", "gauge", "groups whose heartbeats come"},
    [ASKING] = {"groups_asking", "gauge", "groups that wait for a quorum"},
    [HEALING] = {"groups_healing", "gauge", "members of the last quorum that are behind"},
    [MEMBERS] = {"quorum_groups", "gauge", "members of the last quorum"},
    [ID] = {"quorum_id", "gauge", "number of the last quorum"},
    [STEP] = {"max_step", "gauge", "the furthest step of the last quorum"},
    [QUORUMS] = {"quorum_changes_total", "counter", "quorums with a new number"},
    [LOST] = {"groups_lost_total", "counter", "groups that were not heard any more"},
    [BEATS] = {"heartbeats_total", "counter", "heartbeats that came"},
    [ASKS] = {"requests_total", "counter", "requests for a quorum that came"},
};

static void count_metrics(const struct serve_job *job, double out[N_METRICS])
{
    const struct view view = view_of(NULL, job);
    const struct tutti_quorum *last = tutti_lighthouse_last(job->machine);
    struct tutti_lighthouse_counts counts;

    tutti_lighthouse_counts(job->machine, &counts);
    const double values[N_METRICS] = {[KNOWN] = counts.n_known,
                                      [HEARD] = counts.n_heard,
                                      [ASKING] = counts.n_asking,
                                      [HEALING] = view.n_healing,
                                      [MEMBERS] = last ? last->n : 0,
                                      [ID] = last ? (double)last->id : 0,
                                      [STEP] = last ? (double)view.max_step : 0,
                                      [QUORUMS] = (double)job->n_quorums,
                                      [LOST] = (double)job->n_lost,
                                      [BEATS] = (double)job->n_beats,
                                      [ASKS] = (double)job->n_asks};
    memcpy(out, values, sizeof values);
}

static void show_metrics(FILE *out, const struct serve_job *any)
{
    const struct tutti_serve *serve = any->serve;
    double(*all)[N_METRICS] = tutti_alloc_array(serve->n_jobs + 1, sizeof(*all));
    uint32_t n = 0;

    for (const struct serve_job *job = serve->jobs; all && job; job = job->next) count_metrics(job, all[n++]);
    for (size_t i = 0; all && i < N_METRICS; i++) {
        fprintf(out, "# HELP tutti_lighthouse_%s %s\n# TYPE tutti_lighthouse_%s %s\n", metrics[i].name, metrics[i].help,
                metrics[i].name, metrics[i].type);
        n = 0;
        for (const struct serve_job *job = serve->jobs; job; job = job->next)
            fprintf(out, "tutti_lighthouse_%s{job=\"%s\"} %.17g\n", metrics[i].name, job->name, all[n++][i]);
    }
    tutti_free(all);
}

const struct serve_shown *serve_show(struct serve_job *job, enum serve_kind kind)
{
    static void (*const shows[N_SHOWS])(FILE * out, const struct serve_job *job) = {
        [SHOW_JSON] = show_json, [SHOW_METRICS] = show_metrics};
    struct serve_shown *shown = &job->shown[kind], made = {0};
    const uint64_t before = tutti_now_ns();

    if (shown->text && before < shown->until_ns) return shown;
    FILE *out = open_memstream(&made.text, &made.n);
    if (!out) return NULL;
    shows[kind](out, job);
    const bool whole = !ferror(out);
    if (fclose(out) != 0 || !whole) {
        free(made.text);
        return NULL;
    }
    const uint64_t now = tutti_now_ns(), rest = SHOWN_TIMES * (now - before);
    made.until_ns = now + (rest > SHOWN_NS ? rest : SHOWN_NS);
    free(shown->text);
    *shown = made;
    return shown;
}
