/* SPDX-License-Identifier: BSD-3-Clause */
/* What people and their programs see: JSON, the changing part of the page, metrics. Names, addresses and all that
 * groups say are strangers' words: each of the three has one function that writes them, and nothing else does. */
#include "ft/serve/jobs.h"
#include "ft/serve/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 500 /* rows on the page; JSON has all; JSON has all */

struct view {
    FILE *out;
    const struct serve_job *job;
    uint64_t now;
    uint32_t n, n_healing, n_asking;
    int64_t max_step;               /* in the last quorum */
    struct tutti_progress furthest; /* among the groups that are heard; n_ranks 0: none */
};

/* ---- strangers' words ---- */
static void json_text(FILE *out, const char *text)
{
    fputc('"', out);
    serve_text_put(out, text);
    fputc('"', out);
}

static void html_text(FILE *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        const int n = *c >= 0x80 ? serve_text_utf8(c) : 1;
        if (n == 0 || *c < 0x20 || *c == 0x7f)
            fputs("\xef\xbf\xbd", out); /* U+FFFD */
        else if (strchr("&<>\"'`", *c))
            fprintf(out, "&#%u;", *c);
        else
            fwrite(c, 1, (size_t)n, out), c += n - 1;
    }
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

static struct view look(FILE *out, const struct serve_job *job)
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
    fprintf(view->out, ",\"state\":\"%s\",\"asks\":%s,\"heartbeat_age_ms\":%" PRIu64, state_of(view, seen),
            seen->asks ? "true" : "false", age_ms(view, seen));
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
    struct view view = look(out, job);
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
    fputs("]}\n", out);
}

/* ---- the page ---- */
static void page_group(void *arg, const struct tutti_lighthouse_seen *seen)
{
    struct view *view = arg;
    const struct tutti_replica *r = seen->replica;

    if (view->n++ >= ROWS) return;
    fprintf(view->out, "<tr class=\"%s\"><td>", state_of(view, seen));
    html_text(view->out, seen->replica_id);
    fprintf(view->out, "</td><td>%s%s</td>", state_of(view, seen), seen->asks ? ", asks" : "");
    if (r)
        fprintf(view->out, "<td>%" PRId64 "</td><td>%" PRIu64 "</td><td>", r->step, r->world_size);
    else
        fputs("<td></td><td></td><td>", view->out);
    html_text(view->out, r ? r->address : "");
    fprintf(view->out, "</td><td>%" PRIu64 ".%" PRIu64 " s</td><td>", age_ms(view, seen) / 1000,
            age_ms(view, seen) / 100 % 10);
    if (seen->progress.n_ranks > 0)
        fprintf(view->out, "step %" PRId64 ", collective %" PRIu64 " for %" PRIu64 " s", seen->progress.step,
                seen->progress.collective, (view->now - seen->progress.changed_ns) / TUTTI_NS_PER_S);
    fputs("</td><td>", view->out);
    if (seen->member && is_trusted(view->job)) {
        fputs("<button data-kill=\"", view->out);
        html_text(view->out, seen->replica_id);
        fputs("\">kill</button>", view->out);
    }
    fputs("</td></tr>\n", view->out);
}

static void page_events(FILE *out, const struct serve_job *job)
{
    fputs("<h2>What happened</h2>\n<ol id=\"events\">\n", out);
    for (uint64_t i = job->n_events; i-- > first_event(job);) {
        const struct serve_event *event = &job->events[i % JOB_EVENTS];
        fprintf(out, "<li><time data-ms=\"%" PRId64 "\"></time> ", event->wall_ns / (int64_t)TUTTI_NS_PER_MS);
        html_text(out, event->text);
        fputs("</li>\n", out);
    }
    fputs("</ol>\n", out);
}

static void page_jobs(FILE *out, const struct serve_job *job)
{
    fputs("<p id=\"jobs\">Jobs:", out);
    for (const struct serve_job *other = job->serve->jobs; other; other = other->next) {
        fprintf(out, " <a href=\"/?job=%s\"%s>%s</a>", other->name, other == job ? " class=\"here\"" : "", other->name);
    }
    fputs("</p>\n", out);
}

static void show_page(FILE *out, const struct serve_job *job)
{
    struct view view = look(out, job);
    const struct tutti_quorum *last = tutti_lighthouse_last(job->machine);
    char reason[512];

    tutti_lighthouse_reason(job->machine, view.now, reason, sizeof reason);
    page_jobs(out, job);
    if (!is_trusted(job))
        fputs("<p id=\"trust\">unauthenticated: this lighthouse believes all who reach it</p>\n", out);
    if (last)
        fprintf(out,
                "<p id=\"quorum\">Quorum %" PRId64 " of %" PRIu32 " groups at step %" PRId64 ", %" PRIu32
                " healing; <time data-ms=\"%" PRId64 "\"></time></p>\n",
                last->id, last->n, view.max_step, view.n_healing, last->created_ns / (int64_t)TUTTI_NS_PER_MS);
    else
        fputs("<p id=\"quorum\">There was no quorum yet</p>\n", out);
    fputs("<p id=\"reason\">Next: ", out);
    html_text(out, reason);
    fputs(
        "</p>\n<table id=\"groups\"><thead><tr><th>group</th><th>state</th><th>step</th><th>ranks</th><th>manager</th>"
        "<th>heard</th><th>progress</th><th></th></tr></thead><tbody>\n",
        out);
    tutti_lighthouse_each(job->machine, page_group, &view);
    fputs("</tbody></table>\n", out);
    if (view.n > ROWS)
        fprintf(out, "<p>and %" PRIu32 " more: see <a href=\"/status.json?job=%s\">JSON</a></p>\n", view.n - ROWS,
                job->name);
    page_events(out, job);
}

/* ---- metrics: no words of strangers, but names of jobs, whose characters are checked ---- */
struct numbers {
    struct tutti_lighthouse_counts counts;
    struct view view;
    const struct tutti_quorum *last;
};

static double of_known(const struct serve_job *job, const struct numbers *n)
{
    return (void)job, n->counts.n_known;
}
static double of_heard(const struct serve_job *job, const struct numbers *n)
{
    return (void)job, n->counts.n_heard;
}
static double of_asking(const struct serve_job *job, const struct numbers *n)
{
    return (void)job, n->counts.n_asking;
}
static double of_healing(const struct serve_job *job, const struct numbers *n)
{
    return (void)job, n->view.n_healing;
}
static double of_members(const struct serve_job *job, const struct numbers *n)
{
    return (void)job, n->last ? n->last->n : 0;
}
static double of_id(const struct serve_job *job, const struct numbers *n)
{
    return (void)job, n->last ? (double)n->last->id : 0;
}
static double of_step(const struct serve_job *job, const struct numbers *n)
{
    return (void)job, n->last ? (double)n->view.max_step : 0;
}
static double of_quorums(const struct serve_job *job, const struct numbers *n)
{
    return (void)n, (double)job->n_quorums;
}
static double of_lost(const struct serve_job *job, const struct numbers *n)
{
    return (void)n, (double)job->n_lost;
}
static double of_beats(const struct serve_job *job, const struct numbers *n)
{
    return (void)n, (double)job->n_beats;
}
static double of_asks(const struct serve_job *job, const struct numbers *n)
{
    return (void)n, (double)job->n_asks;
}

static const struct {
    const char *name, *type, *help;
    double (*of)(const struct serve_job *job, const struct numbers *numbers);
} metrics[] = {
    {"groups_known", "gauge", "groups that are not forgotten", of_known},
    {"groups_heard", "gauge", "groups whose heartbeats come", of_heard},
    {"groups_asking", "gauge", "groups that wait for a quorum", of_asking},
    {"groups_healing", "gauge", "members of the last quorum that are behind", of_healing},
    {"quorum_groups", "gauge", "members of the last quorum", of_members},
    {"quorum_id", "gauge", "number of the last quorum", of_id},
    {"max_step", "gauge", "the furthest step of the last quorum", of_step},
    {"quorum_changes_total", "counter", "quorums with a new number", of_quorums},
    {"groups_lost_total", "counter", "groups that were not heard any more", of_lost},
    {"heartbeats_total", "counter", "heartbeats that came", of_beats},
    {"requests_total", "counter", "requests for a quorum that came", of_asks},
};

static void show_metrics(FILE *out, const struct serve_job *any)
{
    const struct tutti_serve *serve = any->serve;
    struct numbers *all = tutti_alloc_array(serve->n_jobs + 1, sizeof(*all));
    uint32_t n = 0;

    for (const struct serve_job *job = serve->jobs; all && job; job = job->next, n++) {
        all[n].view = look(out, job);
        all[n].last = tutti_lighthouse_last(job->machine);
        tutti_lighthouse_counts(job->machine, &all[n].counts);
    }
    for (size_t i = 0; all && i < TUTTI_ARRAY_LEN(metrics); i++) {
        fprintf(out, "# HELP tutti_lighthouse_%s %s\n# TYPE tutti_lighthouse_%s %s\n", metrics[i].name, metrics[i].help,
                metrics[i].name, metrics[i].type);
        n = 0;
        for (const struct serve_job *job = serve->jobs; job; job = job->next, n++)
            fprintf(out, "tutti_lighthouse_%s{job=\"%s\"} %.17g\n", metrics[i].name, job->name,
                    metrics[i].of(job, &all[n]));
    }
    tutti_free(all);
}

const struct serve_shown *serve_show(struct serve_job *job, enum serve_kind kind)
{
    static void (*const shows[N_SHOWS])(FILE * out, const struct serve_job *job) = {
        [SHOW_PAGE] = show_page, [SHOW_JSON] = show_json, [SHOW_METRICS] = show_metrics};
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
