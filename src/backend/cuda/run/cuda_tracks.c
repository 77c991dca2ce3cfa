/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of one-sided calls: a track each, with an event behind its last call, by which the watch and who closes know
 * what is over. A track whose calls are over serves the next stream. And cells of pinned memory for what the device
 * tells the host. */
#include "backend/cuda/run/cuda_backend.h"

#define CELLS_A_PAGE 64
struct cuda_cell_page {
    struct cuda_cell_page *next;
    struct cuda_cell *cells; /* pinned */
};

/* ---- tracks ---- */

static bool is_idle(const struct cuda_track *track)
{
    return track->n_users == 0 && track->n_over == track->n_ended;
}

/* The stream's, else one that is idle; the lock is held. */
static struct cuda_track *find(struct cuda_onesided *one, const void *stream)
{
    struct cuda_track *idle = NULL;
    for (uint32_t i = 0; i < one->n_tracks; i++) {
        struct cuda_track *track = &one->tracks[i];
        if (tutti_device_one_stream(track->stream, stream)) return track;
        if (is_idle(track)) idle = track;
    }
    return idle;
}

static struct cuda_track *take(struct cuda_onesided *one, void *stream, void **event)
{
    pthread_mutex_lock(&one->lock);
    struct cuda_track *track = find(one, stream);
    if (!track && *event && one->n_tracks < CUDA_TRACKS) {
        track = &one->tracks[one->n_tracks++];
        *track = (struct cuda_track){.event = *event};
        *event = NULL;
    }
    if (track) track->stream = stream, track->n_users++;
    pthread_mutex_unlock(&one->lock);
    return track;
}

enum tutti_status cuda_track_begin(struct cuda_backend *b, void *stream, struct cuda_track **track)
{
    uint64_t capture;
    void *event = NULL;
    *track = NULL;
    TUTTI_TRY(tutti_gpu_capturing(b->gpu, stream, &capture));
    if (capture) return TUTTI_OK;
    *track = take(&b->one, stream, &event);
    if (*track) return TUTTI_OK;
    TUTTI_TRY(tutti_gpu_event_create(b->gpu, false, &event)); /* the first calls on a stream */
    *track = take(&b->one, stream, &event);
    tutti_gpu_event_destroy(b->gpu, event); /* which was not needed */
    return *track ? TUTTI_OK
                  : tutti_fail(TUTTI_ERR_MEMORY, "one-sided calls are under way on %d streams already", CUDA_TRACKS);
}

enum tutti_status cuda_track_end(struct cuda_backend *b, struct cuda_track *track,
                                 const struct tutti_backend_await *await)
{
    const enum tutti_status status = tutti_gpu_event_record(b->gpu, track->event, track->stream);
    pthread_mutex_lock(&b->one.lock);
    track->n_users--, track->n_ended++;
    if (await) track->wait = *await, track->waits = track->n_ended;
    pthread_mutex_unlock(&b->one.lock);
    atomic_fetch_add(&b->watched.n_enqueued, 1);
    watch_wake(&b->watched);
    return status;
}

void cuda_track_drop(struct cuda_backend *b, struct cuda_track *track)
{
    pthread_mutex_lock(&b->one.lock);
    track->n_users--;
    pthread_mutex_unlock(&b->one.lock);
}

bool cuda_tracks_idle(struct cuda_backend *b)
{
    bool idle = true;
    pthread_mutex_lock(&b->one.lock);
    for (uint32_t i = 0; i < b->one.n_tracks; i++) idle = idle && is_idle(&b->one.tracks[i]);
    pthread_mutex_unlock(&b->one.lock);
    return idle;
}

/* A track's event and what is known of it do not go while it is asked: there are no fewer tracks than there were. */
static enum tutti_status ask(struct cuda_backend *b, struct cuda_track *track)
{
    pthread_mutex_lock(&b->one.lock);
    const uint64_t n = track->n_ended;
    const bool over = track->n_over == n;
    pthread_mutex_unlock(&b->one.lock);
    if (over) return TUTTI_OK;
    const enum tutti_status status = tutti_gpu_event_query(b->gpu, track->event);
    if (status != TUTTI_OK) return status;
    pthread_mutex_lock(&b->one.lock);
    if (track->n_over < n) track->n_over = n;
    pthread_mutex_unlock(&b->one.lock);
    return TUTTI_OK;
}

enum tutti_status cuda_tracks_ask(struct cuda_backend *b)
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

bool cuda_tracks_await(struct cuda_backend *b, uint32_t peer, bool any, struct tutti_board *out)
{
    bool found = false;
    pthread_mutex_lock(&b->one.lock);
    for (uint32_t i = 0; i < b->one.n_tracks; i++) {
        const struct cuda_track *track = &b->one.tracks[i];
        const bool waits = track->waits > track->n_over;
        if (is_idle(track) || (!any && !(waits && track->wait.from == (int32_t)peer))) continue;
        if (found && !(waits && track->wait.from == (int32_t)peer)) continue;
        *out = (struct tutti_board){.kind = waits ? TUTTI_TOLD_WAIT_SIGNAL : TUTTI_TOLD_ONE_SIDED,
                                    .peer = waits ? track->wait.from : -1,
                                    .count = waits ? track->wait.index : 0,
                                    .root = -1};
        found = true;
    }
    pthread_mutex_unlock(&b->one.lock);
    return found;
}

/* ---- cells ---- */

static struct cuda_cell *pop(struct cuda_onesided *one)
{
    pthread_mutex_lock(&one->lock);
    struct cuda_cell *cell = one->idle;
    if (cell) one->idle = cell->next;
    pthread_mutex_unlock(&one->lock);
    return cell;
}

void cuda_cell_give(struct cuda_cell *cell)
{
    struct cuda_onesided *one = &cell->backend->one;
    cell->there = 0, cell->kept = false;
    pthread_mutex_lock(&one->lock);
    cell->next = one->idle;
    one->idle = cell;
    pthread_mutex_unlock(&one->lock);
}

static enum tutti_status add_page(struct cuda_backend *b)
{
    void *cells;
    struct cuda_cell_page *page = tutti_alloc(sizeof *page);
    if (!page) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for results of one-sided calls");
    if (tutti_gpu_alloc_host(b->gpu, CELLS_A_PAGE * sizeof(struct cuda_cell), &cells) < 0) {
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
        cuda_cell_give(&page->cells[i]);
    }
    return TUTTI_OK;
}

struct cuda_cell *cuda_cell_take(struct cuda_backend *b)
{
    struct cuda_cell *cell = pop(&b->one);
    while (!cell) {
        if (add_page(b) < 0) return NULL;
        cell = pop(&b->one);
    }
    return cell;
}

void cuda_tracks_close(struct cuda_backend *b)
{
    for (uint32_t i = 0; i < b->one.n_tracks; i++) tutti_gpu_event_destroy(b->gpu, b->one.tracks[i].event);
    while (b->one.pages) {
        struct cuda_cell_page *page = b->one.pages;
        b->one.pages = page->next;
        tutti_gpu_free_host(b->gpu, page->cells);
        tutti_free(page);
    }
}
