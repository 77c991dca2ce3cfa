/* SPDX-License-Identifier: BSD-3-Clause */
/* Where steps are seen. A program may tell them: each group finds a path in CHAOS_STEPS, and appends a line to that
 * file for each step that it has committed, "TIME STEP SAMPLES [GROUPS]": nanoseconds of CLOCK_MONOTONIC, the step's
 * number, how many samples of this group are in it, and how many groups did it together. Where no program does, they
 * are what a lighthouse shows of its last quorum, tutti's by /metrics, torchft's by its page; then a group's part of a
 * step counts as one sample. */
#include "chaos.h"
#include "tools/tutti/http.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- told by programs ---- */
#define LINE_MAX_BYTES 128

static bool report_line(const char *line, uint32_t group, struct chaos_record *record)
{
    struct chaos_step step = {.groups = 1ull << group};
    char more;
    const int read = sscanf(line, "%" SCNu64 " %" SCNd64 " %lf %" SCNu32 " %c", &step.at_ns, &step.step, &step.samples,
                            &step.told, &more);

    if ((read != 3 && read != 4) || !(step.samples > 0) || step.samples > 1e12) return true; /* no report */
    return chaos_note(record, &step);
}

/* Whole lines; what has no end yet is read again. */
static bool report_look(struct chaos_report *report, uint32_t group, struct chaos_record *record)
{
    char bytes[4096];
    ssize_t n;

    if (report->fd < 0) report->fd = open(report->path, O_RDONLY | O_CLOEXEC);
    while (report->fd >= 0 && (n = pread(report->fd, bytes, sizeof bytes - 1, (off_t)report->offset)) > 0) {
        char *line = bytes, *end;
        bytes[n] = '\0';
        while ((end = memchr(line, '\n', (size_t)(bytes + n - line))) != NULL) {
            *end = '\0';
            if (end - line < LINE_MAX_BYTES && !report_line(line, group, record)) return false;
            line = end + 1;
        }
        if (line == bytes) { /* no end: half a line, or no report at all */
            if ((size_t)n < sizeof bytes - 1) break;
            line = bytes + n;
        }
        report->offset += (uint64_t)(line - bytes);
    }
    return true;
}

/* ---- shown by a lighthouse ---- */
#define WAIT_MS 200

/* Numbers stand behind `step`; the greatest counts. Groups: how many have it, or `groups` less `behind`. */
static const struct page {
    const char *path, *step, *groups, *behind;
} pages[] = {{"/metrics", "\ntutti_lighthouse_max_step{job=\"default\"}",
              "\ntutti_lighthouse_quorum_groups{job=\"default\"}",
              "\ntutti_lighthouse_groups_healing{job=\"default\"}"},
             {"/status", "Step: ", NULL, NULL}};

/* The greatest number behind that text, and how often it is there; false: there is none. */
static bool greatest(const char *text, const char *before, int64_t *out, uint32_t *times)
{
    *times = 0;
    for (const char *at = text; (at = strstr(at, before)) != NULL;) {
        char *end;
        at += strlen(before);
        const long long value = strtoll(at, &end, 10);
        if (end == at) continue;
        if (*times == 0 || value > *out) *out = value, *times = 0;
        *times += value == *out;
    }
    return *times > 0;
}

static bool page_read(const struct page *page, const char *text, int64_t *step, uint32_t *groups)
{
    int64_t members = 0, behind = 0;
    uint32_t times;

    if (!greatest(text, page->step, step, groups)) return false;
    if (!page->groups) return true;
    if (!greatest(text, page->groups, &members, &times) || !greatest(text, page->behind, &behind, &times)) return false;
    *groups = members > behind && members <= CHAOS_MEMBERS ? (uint32_t)(members - behind) : 0;
    return members > 0;
}

/* Asks the first of the addresses ("http://a:1,http://b:2") that answers within 200 ms. False: none answers, or there
 * was no quorum yet. */
static bool ask(const struct chaos_source *source, int64_t *step, uint32_t *groups)
{
    for (const char *one = source->addresses; one; one = strchr(one, ',') ? strchr(one, ',') + 1 : NULL) {
        struct tutti_http_where where;
        bool found = false;
        if (!tutti_http_where(one, &where)) continue;
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(pages) && !found; i++) {
            char *answer = tutti_http_get(&where, pages[i].path, source->token, WAIT_MS);
            if (!answer) break;
            found = tutti_http_is_ok(answer) && page_read(&pages[i], answer, step, groups);
            free(answer);
        }
        if (found) return true;
    }
    return false;
}

/* A step that is reached now: those since the last one are done, by the groups that take part now. */
static bool lighthouse_look(const struct chaos_source *source, struct chaos_record *record)
{
    const struct chaos_step *last = record->n > 0 ? &record->steps[record->n - 1] : NULL;
    struct chaos_step step = {0};
    uint32_t groups = 0;

    if (!ask(source, &step.step, &groups) || (last && step.step <= last->step)) return true;
    step.at_ns = tutti_now_ns();
    step.groups = chaos_guess(record, groups, step.at_ns);
    step.samples = last ? (double)groups * (double)(step.step - last->step) : 0;
    return chaos_note(record, &step);
}

bool chaos_steps_look(struct chaos_source *source, struct chaos_record *record)
{
    struct stat file;

    for (uint32_t g = 0; g < source->n_reports && !source->told; g++)
        if (stat(source->reports[g].path, &file) == 0 && file.st_size > 0)
            source->told = true, record->n = 0; /* from here on by one rule */
    if (!source->told) return lighthouse_look(source, record);
    for (uint32_t g = 0; g < source->n_reports; g++)
        if (!report_look(&source->reports[g], g, record)) return false;
    return true;
}

void chaos_steps_close(struct chaos_source *source)
{
    for (uint32_t g = 0; g < source->n_reports; g++)
        if (source->reports[g].fd >= 0) close(source->reports[g].fd);
}
