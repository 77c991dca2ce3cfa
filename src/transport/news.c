/* SPDX-License-Identifier: BSD-3-Clause */
/* A list of members under a lock; the owner looks at one word to see whether it is empty. */

#include "transport/news.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static enum tutti_status open_epoll(struct tutti_news *news)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    news->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (news->epoll < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "transport %s: no epoll", news->name);
    news->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (news->event >= 0 && epoll_ctl(news->epoll, EPOLL_CTL_ADD, news->event, &event) == 0) return TUTTI_OK;
    tutti_fail_errno(TUTTI_ERR_SYSTEM, "transport %s: no eventfd", news->name);
    if (news->event >= 0) close(news->event);
    close(news->epoll);
    return TUTTI_ERR_SYSTEM;
}

enum tutti_status tutti_news_open(struct tutti_news *news, const char *name, uint32_t n, uint32_t me)
{
    *news = (struct tutti_news){.name = name, .n = n, .me = me, .first = TUTTI_NEWS_NOBODY};
    news->rows = tutti_map_lazy(n * sizeof(*news->rows));
    if (!news->rows) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a table of %u members", n);
    const enum tutti_status status = open_epoll(news);
    if (status < 0) {
        tutti_unmap(news->rows, n * sizeof(*news->rows));
        return status;
    }
    pthread_mutex_init(&news->lock, NULL);
    return TUTTI_OK;
}

void tutti_news_close(struct tutti_news *news)
{
    pthread_mutex_destroy(&news->lock);
    close(news->event);
    close(news->epoll);
    tutti_unmap(news->rows, news->n * sizeof(*news->rows));
}

static void ring(struct tutti_news *news)
{
    const uint64_t one = 1;
    if (atomic_load(&news->sleeping) && write(news->event, &one, sizeof(one)) < 0)
        tutti_log(TUTTI_LOG_WARN, "transport %s: member %u can not be woken", news->name, news->me);
}

void tutti_news_wake(struct tutti_news *news)
{
    atomic_store(&news->woken, true);
    ring(news);
}

/* The lock is held on entry, and given back. */
static void tell(struct tutti_news *news, uint32_t member)
{
    struct tutti_news_row *row = &news->rows[member];
    if (!row->listed) {
        row->listed = true;
        row->next = news->first, news->first = member;
    }
    atomic_store(&news->any, true);
    pthread_mutex_unlock(&news->lock);
    ring(news);
}

void tutti_news_connected(struct tutti_news *news, uint32_t peer, int fd, struct tutti_stream *stream)
{
    struct tutti_news_row *row = peer < news->n ? &news->rows[peer] : NULL;
    pthread_mutex_lock(&news->lock);
    if (!row || row->fd) {
        pthread_mutex_unlock(&news->lock);
        tutti_stream_close(stream);
        close(fd);
        return;
    }
    row->fd = fd + 1, row->stream = stream;
    tell(news, peer);
}

void tutti_news_failed(struct tutti_news *news, uint32_t peer, enum tutti_status status)
{
    if (peer >= news->n) return;
    pthread_mutex_lock(&news->lock);
    news->rows[peer].status = status;
    tell(news, peer);
}

void tutti_news_cut(struct tutti_news *news, uint32_t peer)
{
    if (peer >= news->n) return;
    atomic_store(&news->rows[peer].cut, true);
    pthread_mutex_lock(&news->lock);
    tell(news, peer);
}

void tutti_news_take(struct tutti_news *news, void (*take)(void *arg, uint32_t member, const struct tutti_newly *newly),
                     void *arg)
{
    pthread_mutex_lock(&news->lock);
    atomic_store(&news->any, false);
    while (news->first != TUTTI_NEWS_NOBODY) {
        const uint32_t member = news->first;
        struct tutti_news_row *row = &news->rows[member];
        const struct tutti_newly newly = {row->fd - 1, row->stream, row->status};
        news->first = row->next;
        row->listed = false, row->fd = 0, row->stream = NULL, row->status = TUTTI_OK;
        take(arg, member, &newly);
    }
    pthread_mutex_unlock(&news->lock);
}
