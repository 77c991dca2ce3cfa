/* SPDX-License-Identifier: BSD-3-Clause */

/* A connection of the TCP store's server: what epoll is asked for it, its buffers, and the answers that it still gets.
 */

#include "store/store_server.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_MOST 100 /* refusals a second */

void tutti_store_server_look_by(struct tutti_store_server *s, uint64_t ns)
{
    if (ns < s->next_look_ns) s->next_look_ns = ns;
}

void tutti_store_client_close(struct tutti_store_server *s, struct tutti_store_client *c)
{
    tutti_store_waiter_remove(&s->table, &c->waiter);
    if (c->state != TUTTI_CLIENT_TRUSTED) s->n_strangers--;
    if (c->previous)
        c->previous->next = c->next;
    else
        s->clients = c->next;
    if (c->next) c->next->previous = c->previous;
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL); /* a forked child may keep the descriptor alive */
    close(c->fd);
    tutti_free(c->in);
    tutti_free(c->out);
    tutti_free(c);
}

void tutti_store_client_watch(struct tutti_store_server *s, struct tutti_store_client *c)
{
    uint32_t events = c->n_out ? EPOLLOUT : c->waiter.entry ? EPOLLRDHUP : EPOLLIN;
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (c->doomed || events == c->events) return;
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, c->fd, &event) == 0)
        c->events = events;
    else
        c->doomed = true;
}

bool tutti_store_client_room(struct tutti_store_client *c)
{
    if (c->n_in < c->max_in) return true;
    uint8_t *wider = c->state == TUTTI_CLIENT_TRUSTED && c->max_in < TUTTI_STORE_FRAME_MAX
                         ? tutti_alloc(TUTTI_STORE_FRAME_MAX)
                         : NULL;
    if (!wider) return false;
    memcpy(wider, c->in, c->n_in);
    tutti_free(c->in);
    c->in = wider;
    c->max_in = TUTTI_STORE_FRAME_MAX;
    return true;
}

void tutti_store_client_send(struct tutti_store_server *s, struct tutti_store_client *c,
                             const struct tutti_store_frame *answer)
{
    size_t n, sent = 0;
    if (c->doomed) return;
    if (tutti_store_frame_encode(&c->session, answer, s->frame, &n) < 0) {
        c->doomed = true;
        return;
    }
    ssize_t k = send(c->fd, s->frame, n, MSG_NOSIGNAL);
    if (k >= 0)
        sent = (size_t)k;
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        c->doomed = true;
    if (c->doomed || sent == n) return;
    c->out = tutti_alloc(n - sent);
    if (!c->out) {
        c->doomed = true;
        return;
    }
    memcpy(c->out, s->frame + sent, n - sent);
    c->n_out = n - sent;
    c->sent = 0;
}

void tutti_store_client_error(struct tutti_store_server *s, struct tutti_store_client *c)
{
    const struct tutti_error *error = tutti_last_error();
    tutti_store_client_send(s, c,
                            &(struct tutti_store_frame){.type = TUTTI_STORE_ERROR,
                                                        .number = error->status,
                                                        .value = (const uint8_t *)error->text,
                                                        .value_bytes = (uint32_t)strlen(error->text)});
}

void tutti_store_client_flush(struct tutti_store_client *c)
{
    ssize_t k = send(c->fd, c->out + c->sent, c->n_out - c->sent, MSG_NOSIGNAL);
    if (k >= 0)
        c->sent += (size_t)k;
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        c->doomed = true;
    if (c->sent < c->n_out) return;
    tutti_free(c->out);
    c->out = NULL;
    c->n_out = c->sent = 0;
}

/* A flood must not fill the disk. */
static bool may_log(struct tutti_store_server *s)
{
    const uint64_t now = tutti_now_ns();
    if (now >= s->logged_ns + TUTTI_NS_PER_S) {
        if (s->n_unlogged > 0) tutti_log(TUTTI_LOG_WARN, "the store's server refused %u more", s->n_unlogged);
        s->logged_ns = now, s->n_logged = s->n_unlogged = 0;
    }
    if (s->n_logged < LOG_MOST) return s->n_logged++, true;
    s->n_unlogged++;
    return false;
}

void tutti_store_client_refuse(struct tutti_store_server *s, struct tutti_store_client *c)
{
    char host[64] = "?", port[16] = "?";
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    const bool logs = may_log(s);
    if (logs && getpeername(c->fd, (struct sockaddr *)&address, &n) == 0)
        getnameinfo((struct sockaddr *)&address, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    if (logs)
        tutti_log(TUTTI_LOG_WARN, "the store's server refused %s port %s: %s", host, port, tutti_last_error()->text);
    tutti_store_client_error(s, c);
    c->doomed = true;
}
