/* SPDX-License-Identifier: BSD-3-Clause */

/* The control of a world on several hosts. Calls come from any thread; machine and links belong to the network's thread
 * alone. */

#include "control/tree/tree.h"
#include "control/net/net.h"
#include "control/tree/machine.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TREE_FAILURES = 512, TREE_RAISES = 64, TREE_QUESTIONS = 256, TREE_BOARDS = 1024, TREE_PROBES = 16 };
enum { TREE_OUT = 1 << 18 };

struct tree_socket {
    struct tutti_loop_fd watch;  /* first */
    struct tutti_stream *stream; /* that encrypts; NULL: in the clear */
    struct tree *tree;
    uint32_t peer;
    uint32_t n_in, n_out;
    uint8_t in[2 * TUTTI_TREE_FRAME_MAX];
    uint8_t *out; /* TREE_OUT bytes: what the socket has not taken yet */
};

/* A board that was asked for. */
struct tree_board {
    uint32_t peer, slot;
    bool used, here;
    uint64_t asked_ns, looked_ns, came_ns;
    struct tutti_board board;
};

struct tree {
    struct tutti_control base; /* first */
    struct tutti_control *inner;
    const struct tutti_hosts *hosts;
    uint32_t host; /* this member's */
    struct tutti_net *net;
    struct tutti_tree_machine machine;
    struct tree_socket **sockets; /* n; NULL: no link */
    uint8_t *left_ticks;          /* looks since each member of this host left */
    struct tutti_loop_timer timer;
    struct tutti_loop_post post;
    bool may_leave;         /* the network's thread, while `detach` waits for it */
    bool over;              /* this member has left; the network's thread */
    _Atomic uint32_t alarm; /* failures told so far */

    pthread_mutex_t lock; /* guards all below */
    struct tutti_failure failures[TREE_FAILURES], raises[TREE_RAISES];
    uint32_t n_failures, failures_read, n_raises, n_questions;
    struct tree_board boards[TREE_BOARDS];
    struct tutti_tree_question questions[TREE_QUESTIONS];
    void (*wake)(void *arg);
    void *wake_arg;
};
static inline struct tree *tree_of(struct tutti_control *c)
{
    return (struct tree *)(void *)c;
}

/* ---- links ---- */

static struct tutti_loop *loop_of(const struct tree *tree)
{
    return tutti_net_loop(tree->net);
}

static void tree_socket_close(struct tree *tree, uint32_t peer)
{
    struct tree_socket *s = tree->sockets[peer];
    if (!s) return;
    tree->sockets[peer] = NULL;
    tutti_loop_forget(loop_of(tree), &s->watch);
    tutti_stream_close(s->stream);
    close(s->watch.fd);
    tutti_free(s->out);
    tutti_free(s);
}

/* How the peer's end is known: the kernel of a process that ends closes its sockets; all else is the network. */
static void socket_over(struct tree *tree, uint32_t peer, int error)
{
    const uint64_t now = tutti_now_ns();
    tree_socket_close(tree, peer);
    if (error == 0 || error == ECONNRESET || error == EPIPE)
        tutti_tree_broken(&tree->machine, peer, now);
    else
        tutti_tree_ended(&tree->machine, peer, now);
}

/* Gives the machine each whole frame. What the machine does may end this link. */
static void frames_give(struct tree *tree, struct tree_socket *s)
{
    const uint32_t peer = s->peer;
    size_t at = 0, n;
    while ((n = tutti_tree_frame_bytes(s->in + at, s->n_in - at)) > 0 && n <= s->n_in - at) {
        uint8_t frame[TUTTI_TREE_FRAME_MAX];
        if (n > sizeof frame) break;
        memcpy(frame, s->in + at, n);
        at += n;
        tutti_tree_received(&tree->machine, peer, frame, n, tutti_now_ns());
        if (tree->sockets[peer] != s) return;
    }
    if (n > TUTTI_TREE_FRAME_MAX) { /* it can not be understood any more */
        tutti_tree_received(&tree->machine, peer, s->in + at, 0, tutti_now_ns());
        return;
    }
    memmove(s->in, s->in + at, s->n_in - at);
    s->n_in -= (uint32_t)at;
}

/* Reads once, and then what the stream holds, of which the loop does not tell. */
static void in_read(struct tree *tree, struct tree_socket *s)
{
    const uint32_t peer = s->peer;
    do {
        struct iovec iov = {s->in + s->n_in, sizeof s->in - s->n_in};
        const ssize_t n = tutti_stream_recv(s->stream, s->watch.fd, &iov, 1);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            socket_over(tree, peer, n == 0 ? 0 : errno);
            return;
        }
        s->n_in += (uint32_t)n;
        frames_give(tree, s);
    } while (tree->sockets[peer] == s && tutti_stream_holds(s->stream));
}

static void out_write(struct tree *tree, struct tree_socket *s)
{
    struct iovec iov = {s->out, s->n_out};
    const ssize_t n = tutti_stream_send(s->stream, s->watch.fd, &iov, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) return; /* recv tells why */
    memmove(s->out, s->out + n, s->n_out - (uint32_t)n);
    s->n_out -= (uint32_t)n;
    if (s->n_out == 0) tutti_loop_change(loop_of(tree), &s->watch, EPOLLIN);
}

static void ready(struct tutti_loop_fd *w, uint32_t events)
{
    struct tree_socket *s = (struct tree_socket *)(void *)w;
    struct tree *tree = s->tree;
    const uint32_t peer = s->peer;
    if (events & EPOLLOUT && s->n_out > 0) out_write(tree, s);
    if (tree->sockets[peer] == s && events & ~(uint32_t)EPOLLOUT) in_read(tree, s);
}

static void tree_socket_open(struct tree *tree, uint32_t peer, int fd, struct tutti_stream *stream)
{
    struct tree_socket *s = tutti_alloc(sizeof *s);
    tree_socket_close(tree, peer); /* a newer one takes its place */
    if (s) {
        *s = (struct tree_socket){.watch = {.fd = fd, .ready = ready}, .stream = stream, .tree = tree, .peer = peer};
        s->out = tutti_alloc(TREE_OUT);
    }
    if (!s || !s->out || tutti_loop_watch(loop_of(tree), &s->watch, EPOLLIN) < 0) {
        if (s) tutti_free(s->out);
        tutti_free(s);
        tutti_stream_close(stream);
        close(fd);
        tutti_tree_unreachable(&tree->machine, peer, false, tutti_now_ns());
        return;
    }
    tree->sockets[peer] = s;
    tutti_tree_linked(&tree->machine, peer, tutti_now_ns());
    if (tree->sockets[peer] == s && stream) in_read(tree, s); /* the stream may hold something already */
}

/* A member whose send buffer is full counts as silent: we send nothing until it drains. */
static void machine_send(void *arg, uint32_t peer, const uint8_t *bytes, size_t n)
{
    struct tree *tree = arg;
    struct tree_socket *s = tree->sockets[peer];
    ssize_t sent = 0;
    if (!s) return;
    struct iovec iov = {(void *)(uintptr_t)bytes, n};
    if (s->n_out == 0) sent = tutti_stream_send(s->stream, s->watch.fd, &iov, 1);
    if (sent < 0) sent = 0;
    if ((size_t)sent == n || n - (size_t)sent > TREE_OUT - s->n_out) return;
    if (s->n_out == 0) tutti_loop_change(loop_of(tree), &s->watch, EPOLLIN | EPOLLOUT);
    memcpy(s->out + s->n_out, bytes + sent, n - (size_t)sent);
    s->n_out += (uint32_t)(n - (size_t)sent);
}

/* ---- the control ---- */

#define TICK_NS (100 * TUTTI_NS_PER_MS)
#define LEAVE_AGAIN_NS TUTTI_NS_PER_MS
#define LEFT_TICKS 10 /* who left says so in the tree, after what it told; else its host is believed after that */
#define FRESH_NS (20 * TUTTI_NS_PER_MS) /* a board is asked for again after that */

static bool is_here(const struct tree *tree, uint32_t member)
{
    return tree->hosts->members[member].host == tree->host;
}

/* ---- what the machine asks for; the network's thread ---- */

static void machine_dial(void *arg, uint32_t member)
{
    tutti_net_dial(((struct tree *)arg)->net, TUTTI_NET_CONTROL, member);
}

static void machine_drop(void *arg, uint32_t member)
{
    tree_socket_close(arg, member);
}

static void owner_wake(struct tree *tree)
{
    pthread_mutex_lock(&tree->lock);
    if (tree->wake) tree->wake(tree->wake_arg);
    pthread_mutex_unlock(&tree->lock);
}

static void machine_gone(void *arg, uint32_t member, enum tutti_life life)
{
    struct tree *tree = arg;
    char text[TUTTI_HOST_TEXT + 32];
    tutti_log(TUTTI_LOG_INFO, "%s %s", tutti_hosts_say(tree->hosts, member, text, sizeof(text)),
              life == TUTTI_LIFE_LEFT ? "left" : "died");
    owner_wake(tree);
}

static void machine_failure(void *arg, const struct tutti_failure *failure)
{
    struct tree *tree = arg;
    pthread_mutex_lock(&tree->lock);
    if (tree->n_failures - tree->failures_read < TREE_FAILURES)
        tree->failures[tree->n_failures++ % TREE_FAILURES] = *failure;
    else
        tutti_log(TUTTI_LOG_WARN, "more than %d failures wait to be read: one is lost", TREE_FAILURES);
    atomic_fetch_add(&tree->alarm, 1);
    if (tree->wake) tree->wake(tree->wake_arg);
    pthread_mutex_unlock(&tree->lock);
}

/* Each time t of a board becomes base + t, or base - t. */
static void times_move(struct tutti_board *board, uint64_t base, bool negate)
{
    uint64_t *const times[] = {&board->called_ns, &board->since_ns, &board->message_since_ns};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(times); i++)
        if (*times[i]) *times[i] = negate ? base - *times[i] : base + *times[i];
}

/* Clocks of hosts differ: times travel as ages. The same function turns them into ages and back. */
static void times_turn(struct tutti_board *board)
{
    times_move(board, tutti_now_ns(), true);
}

static bool machine_board(void *arg, uint32_t member, uint32_t slot, struct tutti_board *out)
{
    const struct tree *tree = arg;
    if (tree->inner->ops->peek(tree->inner, tree->hosts->members[member].local, slot, out) != TUTTI_OK) return false;
    times_turn(out);
    return true;
}

/* With the lock: the row of this board; else, if `take`, the row nearby that was looked at least lately. */
static struct tree_board *board_of(struct tree *tree, uint32_t peer, uint32_t slot, bool take)
{
    const uint64_t first = tutti_mix64((uint64_t)peer << 32 | slot);
    struct tree_board *oldest = NULL;
    for (uint32_t i = 0; i < TREE_PROBES; i++) {
        struct tree_board *b = &tree->boards[(first + i) % TREE_BOARDS];
        if (b->used && b->peer == peer && b->slot == slot) return b;
        if (!oldest || b->looked_ns < oldest->looked_ns) oldest = b;
    }
    if (!take) return NULL;
    *oldest = (struct tree_board){.used = true, .peer = peer, .slot = slot};
    return oldest;
}

static void machine_answer(void *arg, const struct tutti_tree_question *question, const struct tutti_board *board)
{
    struct tree *tree = arg;
    pthread_mutex_lock(&tree->lock);
    struct tree_board *b = board_of(tree, question->target, question->slot, false);
    if (board && b) {
        b->board = *board, b->here = true, b->came_ns = tutti_now_ns();
        times_turn(&b->board);
    }
    pthread_mutex_unlock(&tree->lock);
    if (tree->inner->ops->serve) tree->inner->ops->serve(tree->inner, &tree->base); /* it may be what was asked for */
}

/* ---- the network's thread ---- */

/* What other threads left to do. */
static void work_take(struct tutti_loop_post *post)
{
    struct tree *tree = (struct tree *)(void *)((char *)post - offsetof(struct tree, post));
    static _Thread_local struct tutti_failure raises[TREE_RAISES];
    struct tutti_tree_question questions[TREE_QUESTIONS];
    pthread_mutex_lock(&tree->lock);
    const uint32_t n_raises = tree->n_raises, n_questions = tree->n_questions;
    memcpy(raises, tree->raises, n_raises * sizeof raises[0]);
    memcpy(questions, tree->questions, n_questions * sizeof questions[0]);
    tree->n_raises = tree->n_questions = 0;
    pthread_mutex_unlock(&tree->lock);
    for (uint32_t i = 0; i < n_raises; i++) tutti_tree_raise(&tree->machine, &raises[i], tutti_now_ns());
    for (uint32_t i = 0; i < n_questions; i++)
        tutti_tree_ask(&tree->machine, questions[i].target, questions[i].slot, tutti_now_ns());
}

static void neighbour_look(struct tree *tree, uint32_t member)
{
    const uint32_t local = tree->hosts->members[member].local;
    const enum tutti_life life = tree->inner->ops->life(tree->inner, local);
    if (life == TUTTI_LIFE_LEFT && tree->left_ticks[local]++ < LEFT_TICKS) return;
    if (tutti_life_gone(life)) tutti_tree_local_gone(&tree->machine, member, life, tutti_now_ns());
}

/* Members of this host are watched by its own control. Who speaks for it looks at all and tells them; the others look
 * at that one: of a host with many members all would look at all, ten times a second. */
static void neighbours_look(struct tree *tree)
{
    for (uint32_t i = tree->hosts->hosts[tree->host].leader; i != UINT32_MAX; i = tutti_hosts_after(tree->hosts, i)) {
        if (i == tree->base.me || tutti_tree_is_gone(&tree->machine, i)) continue;
        neighbour_look(tree, i);
        if (i < tree->base.me && !tutti_tree_is_gone(&tree->machine, i)) return;
    }
}

static void tick(struct tutti_loop_timer *timer)
{
    struct tree *tree = (struct tree *)(void *)((char *)timer - offsetof(struct tree, timer));
    neighbours_look(tree);
    if (tree->inner->ops->serve) tree->inner->ops->serve(tree->inner, &tree->base);
    tutti_tree_tick(&tree->machine, tutti_now_ns());
    tutti_loop_at(tutti_net_loop(tree->net), timer, tutti_deadline_ns(TICK_NS));
}

static void begin(void *arg)
{
    struct tree *tree = arg;
    tutti_tree_begin(&tree->machine, tutti_now_ns());
    tutti_loop_at(tutti_net_loop(tree->net), &tree->timer, tutti_deadline_ns(TICK_NS));
}

static void end(void *arg)
{
    struct tree *tree = arg;
    tutti_loop_stop(tutti_net_loop(tree->net), &tree->timer);
    work_take(&tree->post);
    tutti_tree_leave(&tree->machine, tutti_now_ns());
    for (uint32_t i = 0; i < tree->base.n; i++) tree_socket_close(tree, i);
    tree->over = true;
}

void tutti_tree_attach(struct tutti_control *c, struct tutti_net *net)
{
    tree_of(c)->net = net;
    tutti_loop_run(tutti_net_loop(net), begin, tree_of(c));
}

/* A failure that was told just before its teller leaves reaches all: the tree may have begun, or changed, just now. */
static void may_leave(void *arg)
{
    struct tree *tree = arg;
    work_take(&tree->post);
    tree->may_leave = tutti_tree_may_leave(&tree->machine);
    for (uint32_t i = 0; i < tree->machine.n_linked; i++) {
        const struct tree_socket *s = tree->sockets[tree->machine.linked[i]];
        if (s && s->n_out > 0) tree->may_leave = false;
    }
}

void tutti_tree_detach(struct tutti_control *c)
{
    struct tree *tree = tree_of(c);
    if (!tree->net) return;
    const uint64_t deadline = tutti_deadline_ns(tree->machine.silence_ns);
    for (;;) {
        tutti_loop_run(tutti_net_loop(tree->net), may_leave, tree);
        if (tree->may_leave || tutti_now_ns() >= deadline) break;
        nanosleep(&(struct timespec){.tv_nsec = LEAVE_AGAIN_NS}, NULL);
    }
    tutti_loop_run(tutti_net_loop(tree->net), end, tree);
    pthread_mutex_lock(&tree->lock);
    tree->net = NULL;
    pthread_mutex_unlock(&tree->lock);
}

void tutti_tree_opened(struct tutti_control *c, uint32_t peer, int fd, struct tutti_stream *stream)
{
    if (!tree_of(c)->over) {
        tree_socket_open(tree_of(c), peer, fd, stream);
        return;
    }
    tutti_stream_close(stream); /* this member has left */
    close(fd);
}

void tutti_tree_failed(struct tutti_control *c, uint32_t peer, const struct tutti_error *error)
{
    const bool dead = error->status == TUTTI_ERR_PEER_DEAD;
    if (!tree_of(c)->over) tutti_tree_unreachable(&tree_of(c)->machine, peer, dead, tutti_now_ns());
}

void tutti_tree_closed(struct tutti_control *c, uint32_t peer)
{
    if (!tree_of(c)->over) tutti_tree_is_proved(&tree_of(c)->machine, peer, tutti_now_ns());
}

/* ---- the contract ---- */

static enum tutti_life tree_life(struct tutti_control *c, uint32_t peer)
{
    struct tree *tree = tree_of(c);
    const uint8_t known = atomic_load_explicit(&tree->machine.lives[peer], memory_order_relaxed);
    const enum tutti_life life = (enum tutti_life)known;
    if (life == TUTTI_LIFE_SILENT) return TUTTI_LIFE_DEAD;
    if (tutti_life_gone(life) || !is_here(tree, peer)) return life;
    const enum tutti_life here = tree->inner->ops->life(tree->inner, tree->hosts->members[peer].local);
    return here == TUTTI_LIFE_LEFT ? TUTTI_LIFE_ALIVE : here; /* what it told last may still be on its way */
}

static bool tree_proved(const struct tutti_control *c, uint32_t peer)
{
    const struct tree *tree = (const struct tree *)(const void *)c;
    return atomic_load_explicit(&tree->machine.lives[peer], memory_order_relaxed) != TUTTI_LIFE_SILENT;
}

static void tree_publish(struct tutti_control *c, uint32_t slot, const struct tutti_board *board)
{
    struct tree *tree = tree_of(c);
    tree->inner->ops->publish(tree->inner, slot, board);
}

static _Atomic uint64_t *tree_counter(struct tutti_control *c, uint32_t slot)
{
    struct tree *tree = tree_of(c);
    return tree->inner->ops->counter ? tree->inner->ops->counter(tree->inner, slot) : NULL;
}

/* With the lock. */
static void work_post(struct tree *tree)
{
    if (tree->net) tutti_loop_post(tutti_net_loop(tree->net), &tree->post);
}

/* With the lock; what does not fit is asked for again by who looks again. */
static void ask(struct tree *tree, struct tree_board *b)
{
    const uint64_t now = b->looked_ns;
    if (now - b->asked_ns < FRESH_NS || tree->n_questions == TREE_QUESTIONS) return;
    b->asked_ns = now;
    tree->questions[tree->n_questions++] = (struct tutti_tree_question){.target = b->peer, .slot = b->slot};
    work_post(tree);
}

static enum tutti_status tree_peek_since(struct tutti_control *c, uint32_t peer, uint32_t slot, uint64_t since_ns,
                                         struct tutti_board *out)
{
    struct tree *tree = tree_of(c);
    if (is_here(tree, peer)) return tree->inner->ops->peek(tree->inner, tree->hosts->members[peer].local, slot, out);
    if (slot >= TUTTI_BOARD_ASKED) return TUTTI_ERR_UNSUPPORTED;
    const bool gone = tutti_life_gone(tree_life(c, peer));
    pthread_mutex_lock(&tree->lock);
    struct tree_board *b = board_of(tree, peer, slot, true);
    b->looked_ns = tutti_now_ns();
    const bool here = b->here && (gone || b->came_ns >= since_ns);
    if (!gone && !(here && since_ns)) ask(tree, b);
    if (here) *out = b->board;
    if (here && since_ns) times_move(out, b->looked_ns - b->came_ns, false); /* as when it came */
    pthread_mutex_unlock(&tree->lock);
    return here ? TUTTI_OK : gone ? TUTTI_ERR_UNSUPPORTED : TUTTI_PENDING;
}

static enum tutti_status tree_peek(struct tutti_control *c, uint32_t peer, uint32_t slot, struct tutti_board *out)
{
    return tree_peek_since(c, peer, slot, 0, out);
}

static void tree_raise(struct tutti_control *c, const struct tutti_failure *failure)
{
    struct tree *tree = tree_of(c);
    pthread_mutex_lock(&tree->lock);
    const bool kept = tree->net && tree->n_raises < TREE_RAISES;
    if (kept) {
        tree->raises[tree->n_raises++] = *failure;
        work_post(tree);
    }
    pthread_mutex_unlock(&tree->lock);
    if (!kept) machine_failure(tree, failure); /* nobody else hears it, but this member does */
}

static enum tutti_status tree_failure(struct tutti_control *c, struct tutti_failure *out)
{
    struct tree *tree = tree_of(c);
    enum tutti_status status = TUTTI_AGAIN;
    pthread_mutex_lock(&tree->lock);
    if (tree->failures_read != tree->n_failures) {
        *out = tree->failures[tree->failures_read++ % TREE_FAILURES];
        status = TUTTI_OK;
    } else {
        atomic_store(&c->heard, atomic_load(&tree->alarm));
    }
    pthread_mutex_unlock(&tree->lock);
    return status;
}

static void tree_listen(struct tutti_control *c, void (*wake)(void *arg), void *arg)
{
    struct tree *tree = tree_of(c);
    pthread_mutex_lock(&tree->lock);
    tree->wake = wake, tree->wake_arg = arg;
    pthread_mutex_unlock(&tree->lock);
}

/* ---- open and close ---- */

static void tree_free(struct tree *tree)
{
    tutti_free((void *)(uintptr_t)tree->machine.lives);
    tutti_free(tree->machine.links);
    tutti_free(tree->machine.linked);
    tutti_free(tree->sockets);
    tutti_free(tree->left_ticks);
    pthread_mutex_destroy(&tree->lock);
    tutti_free(tree);
}

static void tree_close(struct tutti_control *c)
{
    struct tree *tree = tree_of(c);
    tutti_tree_detach(c);
    tree->inner->ops->close(tree->inner);
    tree_free(tree);
}

static void tree_host(const struct tutti_control *c, uint32_t peer, char *out, size_t capacity)
{
    const struct tutti_hosts *hosts = ((const struct tree *)(const void *)c)->hosts;
    tutti_hosts_name(hosts, hosts->members[peer].host, out, capacity);
}

static void tree_address(const struct tutti_control *c, uint32_t peer, char *out, size_t capacity)
{
    const struct tutti_hosts *hosts = ((const struct tree *)(const void *)c)->hosts;
    const struct tutti_member_row *member = &hosts->members[peer];
    char text[TUTTI_HOST_TEXT];
    tutti_net_address_text(&hosts->hosts[member->host].address, text, sizeof text);
    snprintf(out, capacity, "%s %u", text, member->port);
}

static const struct tutti_control_ops tree_ops = {.size = sizeof(tree_ops),
                                                  .close = tree_close,
                                                  .life = tree_life,
                                                  .publish = tree_publish,
                                                  .peek = tree_peek,
                                                  .raise = tree_raise,
                                                  .failure = tree_failure,
                                                  .listen = tree_listen,
                                                  .host = tree_host,
                                                  .address = tree_address,
                                                  .counter = tree_counter,
                                                  .proved = tree_proved,
                                                  .peek_since = tree_peek_since};

enum tutti_status tutti_tree_open(const struct tutti_tree_config *config, struct tutti_control **out)
{
    const uint32_t n = config->hosts->n_members;
    struct tree *tree = tutti_alloc(sizeof *tree);
    if (!tree) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the control of %u members", n);
    tree->base =
        (struct tutti_control){.ops = &tree_ops, .name = "tree", .n = n, .me = config->me, .alarm = &tree->alarm};
    tree->inner = config->inner, tree->hosts = config->hosts, tree->host = config->hosts->members[config->me].host;
    tree->timer.due = tick, tree->post.call = work_take;
    pthread_mutex_init(&tree->lock, NULL);
    tree->sockets = tutti_alloc_array(n, sizeof(*tree->sockets));
    tree->left_ticks = tutti_alloc_array(config->hosts->hosts[tree->host].n, sizeof(*tree->left_ticks));
    tree->machine = (struct tutti_tree_machine){.hosts = config->hosts,
                                                .me = config->me,
                                                .n = n,
                                                .silence_ns = config->silence_ns,
                                                .out = {tree, machine_send, machine_dial, machine_drop, machine_gone,
                                                        machine_failure, machine_board, machine_answer},
                                                .lives = tutti_alloc_array(n, sizeof(*tree->machine.lives)),
                                                .links = tutti_alloc_array(n, sizeof(*tree->machine.links)),
                                                .linked = tutti_alloc_array(n, sizeof(*tree->machine.linked))};
    if (!tree->sockets || !tree->left_ticks || !tree->machine.lives || !tree->machine.links || !tree->machine.linked) {
        tree_free(tree);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the control of %u members", n);
    }
    *out = &tree->base;
    return TUTTI_OK;
}
