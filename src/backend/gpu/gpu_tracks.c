/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of one-sided calls: a track each, with an event behind its last call, by which the watch and who closes know
 * what is over. A track whose calls are over serves the next stream. And cells of pinned memory for what the device
 * tells the host. */
#include "backend/gpu/gpu_backend.h"

#define CELLS_A_PAGE 64
struct gpu_cell_page {
    struct gpu_cell_page *next;
    struct gpu_cell *cells; /* pinned */
};

/* ---- tracks ---- */

static bool is_idle(const struct gpu_track *track)
{
    return track->n_users == 0 && track->n_over == track->n_ended;
}

/* The stream's, else one that is idle; the lock is held. */
static struct gpu_track *find(struct gpu_onesided *one, const void *stream)
{
    struct gpu_track *idle = NULL;
    for (uint32_t i = 0; i < one->n_tracks; i++) {
        struct gpu_track *track = &one->tracks[i];
        if (tutti_device_one_handle(track->stream, stream)) return track;
        if (is_idle(track)) idle = track;
    }
    return idle;
}

static struct gpu_track *take(struct gpu_onesided *one, void *stream, void **event)
{
    pthread_mutex_lock(&one->lock);
    struct gpu_track *track = find(one, stream);
    if (!track && *event && one->n_tracks < GPU_TRACKS) {
        track = &one->tracks[one->n_tracks++];
        *track = (struct gpu_track){.event = *event};
        *event = NULL;
    }
    if (track) track->stream = stream, track->n_users++;
    pthread_mutex_unlock(&one->lock);
    return track;
}

/* The event behind a track's last call tells of all of them, even if the handle is another stream by now. */
static enum tutti_status follow(struct gpu_backend *b, void *stream, struct gpu_track **track)
{
    if (!b->gpu->ops->handles_move) return TUTTI_OK;
    const enum tutti_status status = b->gpu->ops->stream_wait(b->gpu, stream, (*track)->event);
    if (status == TUTTI_OK) return TUTTI_OK;
    gpu_track_drop(b, *track);
    *track = NULL;
    return status;
}

enum tutti_status gpu_track_begin(struct gpu_backend *b, void *stream, struct gpu_track **track)
{
    uint64_t capture;
    void *event = NULL;
    *track = NULL;
    TUTTI_TRY(tutti_device_capturing(b->gpu, stream, &capture));
    if (capture) return TUTTI_OK;
    *track = take(&b->one, stream, &event);
    if (*track) return follow(b, stream, track);
    TUTTI_TRY(b->gpu->ops->event_create(b->gpu, false, &event)); /* the first calls on a stream */
    *track = take(&b->one, stream, &event);
    b->gpu->ops->event_destroy(b->gpu, event); /* which was not needed */
    return *track ? follow(b, stream, track)
                  : tutti_fail(TUTTI_ERR_MEMORY, "one-sided calls are under way on %d streams already", GPU_TRACKS);
}

enum tutti_status gpu_track_end(struct gpu_backend *b, struct gpu_track *track, const struct tutti_backend_await *await)
{
    const enum tutti_status status = b->gpu->ops->event_record(b->gpu, track->event, track->stream);
    pthread_mutex_lock(&b->one.lock);
    track->n_users--, track->n_ended++;
    if (await) track->wait = *await, track->waits = track->n_ended;
    pthread_mutex_unlock(&b->one.lock);
    atomic_fetch_add(&b->watched.n_enqueued, 1);
    watch_wake(&b->watched);
    return status;
}

void gpu_track_drop(struct gpu_backend *b, struct gpu_track *track)
{
    pthread_mutex_lock(&b->one.lock);
    track->n_users--;
    pthread_mutex_unlock(&b->one.lock);
}

/* A track's event and what is known of it do not go while it is asked: there are no fewer tracks than there were. */
static enum tutti_status ask(struct gpu_backend *b, struct gpu_track *track)
{
    pthread_mutex_lock(&b->one.lock);
    const uint64_t n = track->n_ended;
    const bool over = track->n_over == n;
    pthread_mutex_unlock(&b->one.lock);
    if (over) return TUTTI_OK;
    const enum tutti_status status = b->gpu->ops->event_query(b->gpu, track->event);
    if (status != TUTTI_OK) return status;
    pthread_mutex_lock(&b->one.lock);
    if (track->n_over < n) track->n_over = n;
    pthread_mutex_unlock(&b->one.lock);
    return TUTTI_OK;
}

enum tutti_status gpu_tracks_ask(struct gpu_backend *b)
{
    enum tutti_status all = TUTTI_OK;
    pthread_mutex_lock(&b->one.lock);
    const uint32_t n = b->one.n_tracks;
    pthread_mutex_unlock(&b->one.lock);
    for (uint32_t i = 0; i < n; i++) {
        const enum tutti_status status = ask(b, &b->one.tracks[i]);
        if (status < 0) return status;
        if (status != TUTTI_OK) all = status;
    }
    return all;
}

bool gpu_tracks_await(struct gpu_backend *b, uint32_t peer, bool any, struct tutti_board *out)
{
    bool found = false;
    pthread_mutex_lock(&b->one.lock);
    for (uint32_t i = 0; i < b->one.n_tracks; i++) {
        const struct gpu_track *track = &b->one.tracks[i];
        const bool waits = track->waits > track->n_over;
        if (is_idle(track) || (!any && !(waits && track->wait.from == (int32_t)peer))) continue;
        if (found && !(waits && track->wait.from == (int32_t)peer)) continue;
        *out = (struct tutti_board){.kind = waits ? TUTTI_REPORT_WAIT_SIGNAL : TUTTI_REPORT_ONE_SIDED,
                                    .peer = waits ? track->wait.from : -1,
                                    .count = waits ? track->wait.index : 0,
                                    .root = -1};
        found = true;
    }
    pthread_mutex_unlock(&b->one.lock);
    return found;
}

/* ---- cells ---- */

static struct gpu_cell *pop(struct gpu_onesided *one)
{
    pthread_mutex_lock(&one->lock);
    struct gpu_cell *cell = one->idle;
    if (cell) one->idle = cell->next;
    pthread_mutex_unlock(&one->lock);
    return cell;
}

void gpu_cell_give(struct gpu_cell *cell)
{
    struct gpu_onesided *one = &cell->backend->one;
    cell->there = 0, cell->kept = false;
    pthread_mutex_lock(&one->lock);
    cell->next = one->idle;
    one->idle = cell;
    pthread_mutex_unlock(&one->lock);
}

static enum tutti_status add_page(struct gpu_backend *b)
{
    void *cells;
    struct gpu_cell_page *page = tutti_alloc(sizeof *page);
    if (!page) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for results of one-sided calls");
    if (b->gpu->ops->alloc_host(b->gpu, CELLS_A_PAGE * sizeof(struct gpu_cell), &cells) < 0) {
        tutti_free(page);
        return tutti_last_error()->status;
    }
    page->cells = cells;
    pthread_mutex_lock(&b->one.lock);
    page->next = b->one.pages;
    b->one.pages = page;
    pthread_mutex_unlock(&b->one.lock);
    for (uint32_t i = 0; i < CELLS_A_PAGE; i++) {
        page->cells[i].backend = b;
        gpu_cell_give(&page->cells[i]);
    }
    return TUTTI_OK;
}

struct gpu_cell *gpu_cell_take(struct gpu_backend *b)
{
    struct gpu_cell *cell = pop(&b->one);
    while (!cell) {
        if (add_page(b) < 0) return NULL;
        cell = pop(&b->one);
    }
    return cell;
}

void gpu_tracks_close(struct gpu_backend *b)
{
    for (uint32_t i = 0; i < b->one.n_tracks; i++) b->gpu->ops->event_destroy(b->gpu, b->one.tracks[i].event);
    while (b->one.pages) {
        struct gpu_cell_page *page = b->one.pages;
        b->one.pages = page->next;
        b->gpu->ops->free_host(b->gpu, page->cells);
        tutti_free(page);
    }
}
