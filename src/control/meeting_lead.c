/* SPDX-License-Identifier: BSD-3-Clause */

/* The leader of a meeting: lets ranks in, seats them, and ends when all have come, when two of them contradict one
 * another, or when somebody's deadline passes. Peers that do not verify are refused and logged, and the others do not
 * notice. */

#include "control/meeting.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPENING_NS (10 * TUTTI_NS_PER_S) /* that a connection may take to prove itself */
#define SLICE_NS (50 * TUTTI_NS_PER_MS)  /* how soon a cancel is seen */
#define STRANGERS 64                     /* connections beyond one a rank */

enum tutti_status tutti_meeting_create(const char *place, const struct tutti_meeting_request *request, int listen_fd,
                                       struct tutti_meeting **out)
{
    enum tutti_status status;
    uint32_t n = (uint32_t)request->n_ranks;
    struct tutti_meeting *m = tutti_alloc(sizeof *m);
    if (!m) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a meeting of %u ranks", n);
    m->max_peers = n + STRANGERS;
    m->seats = tutti_alloc_array(n, sizeof *m->seats);
    m->peers = tutti_alloc_array(m->max_peers, sizeof(struct tutti_meeting_peer *));
    m->polls = tutti_alloc_array(m->max_peers + 2, sizeof *m->polls);
    if (!m->seats || !m->peers || !m->polls) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a meeting of %u ranks", n);
        goto err_free;
    }
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->wake_fd < 0) {
        status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "no eventfd for the meeting of the ranks");
        goto err_free;
    }
    m->request = request;
    m->pid = (int32_t)getpid();
    snprintf(m->place, sizeof m->place, "%s", place);
    m->seats[request->rank].taken = true;
    m->seats[request->rank].pid = m->pid;
    m->n_seated = 1;
    m->listen_fd = listen_fd;
    if (request->lost) tutti_meeting_loss_note(m, request->lost);
    *out = m;
    return TUTTI_OK;
err_free:
    tutti_free(m->polls);
    tutti_free((void *)m->peers);
    tutti_free(m->seats);
    tutti_free(m);
    return status;
}

static void seat_clear(struct tutti_meeting *m, struct tutti_meeting_seat *seat)
{
    memset(seat, 0, sizeof *seat); /* who has a seat is not lost */
    m->n_seated--;
}

static void peer_drop(struct tutti_meeting *m, struct tutti_meeting_peer *peer)
{
    if (peer->state == TUTTI_PEER_SEATED && m->seats[peer->rank].peer == peer) seat_clear(m, &m->seats[peer->rank]);
    for (uint32_t i = 0; i < m->n_peers; i++)
        if (m->peers[i] == peer) m->peers[i] = m->peers[--m->n_peers];
    close(peer->fd);
    tutti_free(peer);
}

void tutti_meeting_destroy(struct tutti_meeting *m)
{
    tutti_meeting_registry_remove(m);
    while (m->n_peers > 0) peer_drop(m, m->peers[0]);
    close(m->wake_fd);
    tutti_free(m->polls);
    tutti_free((void *)m->peers);
    tutti_free(m->seats);
    tutti_free(m);
}

/* Ends the meeting for all who have come, with the thread's record. */
static void meeting_fail(struct tutti_meeting *m, bool told)
{
    if (m->verdict.status < 0) return;
    m->verdict = *tutti_last_error();
    m->told = told;
}

static void meeting_timeout(struct tutti_meeting *m, double patience_s)
{
    char missing[160];
    bool here[1024];
    uint32_t n = (uint32_t)m->request->n_ranks;
    if (tutti_meeting_losses_check(m, TUTTI_NEVER) < 0) { /* who is dead need not be awaited any more */
        meeting_fail(m, true);
        return;
    }
    bool all = n <= TUTTI_ARRAY_LEN(here);
    for (uint32_t i = 0; i < n && i < TUTTI_ARRAY_LEN(here); i++) all &= here[i] = m->seats[i].taken;
    uint32_t shown = n < TUTTI_ARRAY_LEN(here) ? n : (uint32_t)TUTTI_ARRAY_LEN(here);
    tutti_meeting_missing_text(here, shown, missing, sizeof missing);
    if (all)
        tutti_fail(TUTTI_ERR_TIMEOUT, "all %u ranks arrived, but did not agree within %.7g s", n, patience_s);
    else
        tutti_fail(TUTTI_ERR_TIMEOUT, "%s did not arrive within %.7g s%s%s", missing, patience_s,
                   m->refusal[0] ? "; refused: " : "", m->refusal);
    meeting_fail(m, true);
}

/* ---- seats ---- */

/* Who asks for a seat, by socket or by ticket. */
struct newcomer {
    int32_t rank, n_ranks, pid;
    uint64_t build, host;
    const char *version;
};

/* True when the seat's holder is gone by now. */
static bool seat_vacate(struct tutti_meeting *m, struct tutti_meeting_seat *seat)
{
    char byte;
    if (seat->peer) {
        ssize_t n = recv(seat->peer->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return false;
        peer_drop(m, seat->peer);
        return true;
    }
    if (!seat->ticket || !tutti_meeting_ticket_gone(seat->ticket)) return false;
    seat_clear(m, seat);
    return true;
}

/* The newcomer's seat, or NULL when the meeting has failed over it. */
static struct tutti_meeting_seat *seat_take(struct tutti_meeting *m, const struct newcomer *who)
{
    const struct tutti_meeting_request *mine = m->request;
    struct tutti_meeting_seat *seat = NULL;
    bool range = who->rank >= 0 && who->rank < mine->n_ranks;
    if (range) seat = &m->seats[who->rank];
    if (who->build != mine->build)
        tutti_fail(TUTTI_ERR_CONFIG, "rank %d runs tutti %.15s, rank %d another build (%s)", (int)who->rank,
                   who->version, (int)mine->rank, mine->version);
    else if (who->host != mine->host)
        tutti_fail(
            TUTTI_ERR_UNSUPPORTED,
            "rank %d (process %d) and rank %d share a network but not the process numbers: they are in different "
            "containers, which this version can not connect",
            (int)who->rank, (int)who->pid, (int)mine->rank);
    else if (who->n_ranks != mine->n_ranks || !range)
        tutti_fail(TUTTI_ERR_BOOTSTRAP,
                   "rank %d (process %d) expects %d ranks, rank %d (process %d) expects %d: two jobs meet under one "
                   "name, or their sizes differ",
                   (int)who->rank, (int)who->pid, (int)who->n_ranks, (int)mine->rank, (int)m->pid, (int)mine->n_ranks);
    else if (seat->taken && !seat_vacate(m, seat))
        tutti_fail(TUTTI_ERR_BOOTSTRAP,
                   "rank %d came twice, as process %d and as process %d: two jobs meet under one name, or a rank was "
                   "given twice",
                   (int)who->rank, (int)seat->pid, (int)who->pid);
    else {
        tutti_meeting_loss_forget(m, seat);
        seat->taken = true;
        seat->pid = who->pid;
        m->n_seated++;
        return seat;
    }
    meeting_fail(m, true);
    return NULL;
}

/* ---- peers at sockets ---- */

/* A refusal for the log, and for the sentence of a timeout. */
static void refusal_note(struct tutti_meeting *m, const struct tutti_meeting_peer *peer, const char *why)
{
    tutti_log(TUTTI_LOG_WARN, "refused process %d at the meeting of the ranks: %s", (int)peer->pid, why);
    snprintf(m->refusal, sizeof m->refusal, "process %d: %.160s", (int)peer->pid, why);
}

/* The thread's record goes to this peer alone. */
static void peer_refuse(struct tutti_meeting *m, struct tutti_meeting_peer *peer)
{
    struct tutti_meeting_verdict verdict;
    const struct tutti_error *error = tutti_last_error();
    refusal_note(m, peer, error->text);
    tutti_meeting_head_fill(m->request, TUTTI_MEETING_VERDICT, &verdict.head);
    verdict.status = error->status;
    verdict.peer = error->peer;
    memcpy(verdict.text, error->text, sizeof verdict.text);
    tutti_meeting_send(peer->fd, &verdict, NULL);
    peer_drop(m, peer);
}

static enum tutti_status peer_hello(struct tutti_meeting *m, struct tutti_meeting_peer *peer,
                                    const struct tutti_meeting_hello *hello)
{
    const struct tutti_meeting_request *mine = m->request;
    struct tutti_meeting_challenge *challenge = &peer->challenge;
    if (hello->pid != peer->pid && hello->host == mine->host)
        return tutti_fail(TUTTI_ERR_AUTH, "a peer says that it is process %d, the kernel that it is process %d",
                          (int)hello->pid, (int)peer->pid);
    if ((hello->has_secret != 0) != (mine->secret != NULL))
        return tutti_fail(TUTTI_ERR_AUTH, "rank %d has %s secret, rank %d has %s: give all ranks of a job the same",
                          (int)hello->rank, hello->has_secret ? "a" : "no", (int)mine->rank,
                          mine->secret ? "one" : "none");
    peer->hello = *hello;
    tutti_meeting_head_fill(mine, TUTTI_MEETING_CHALLENGE, &challenge->head);
    challenge->rank = mine->rank;
    challenge->n_ranks = mine->n_ranks;
    challenge->pid = m->pid;
    challenge->has_secret = mine->secret != NULL;
    TUTTI_TRY(tutti_random_bytes(challenge->nonce, sizeof challenge->nonce));
    TUTTI_TRY(tutti_meeting_prove(mine->secret, "leader", hello, challenge, challenge->proof));
    peer->state = TUTTI_PEER_CHALLENGED;
    return tutti_meeting_send(peer->fd, challenge, NULL);
}

static enum tutti_status peer_proof(struct tutti_meeting *m, struct tutti_meeting_peer *peer,
                                    const struct tutti_meeting_proof *proof)
{
    uint8_t expected[TUTTI_HMAC_BYTES];
    const struct tutti_meeting_hello *hello = &peer->hello;
    TUTTI_TRY(tutti_meeting_prove(m->request->secret, "member", hello, &peer->challenge, expected));
    if (!tutti_hmac_equal(expected, proof->proof))
        return tutti_fail(TUTTI_ERR_AUTH, "rank %d (process %d) does not know the job's secret", (int)hello->rank,
                          (int)peer->pid);
    const struct newcomer who = {hello->rank,       hello->n_ranks, peer->pid,
                                 hello->head.build, hello->host,    hello->head.version};
    struct tutti_meeting_seat *seat = seat_take(m, &who);
    if (!seat) return TUTTI_OK; /* it will hear the verdict with the others */
    seat->peer = peer;
    peer->rank = hello->rank;
    peer->state = TUTTI_PEER_SEATED;
    tutti_meeting_loss_note(m, &hello->lost);
    return TUTTI_OK;
}

/* A message from a peer: OK, AGAIN when it is gone, else the reason to refuse it. */
static enum tutti_status peer_message(struct tutti_meeting *m, struct tutti_meeting_peer *peer)
{
    union tutti_meeting_message message;
    size_t n;
    enum tutti_status status = tutti_meeting_recv(peer->fd, &message, &n, NULL);
    if (status != TUTTI_OK) return status == TUTTI_PENDING ? TUTTI_OK : status;
    TUTTI_TRY(tutti_meeting_check(m->request, &message, n));
    uint32_t type = message.head.type;
    if (type == TUTTI_MEETING_HELLO && peer->state == TUTTI_PEER_FRESH) return peer_hello(m, peer, &message.hello);
    if (type == TUTTI_MEETING_PROOF && peer->state == TUTTI_PEER_CHALLENGED) return peer_proof(m, peer, &message.proof);
    if (type == TUTTI_MEETING_ASK && peer->state == TUTTI_PEER_SEATED) {
        meeting_timeout(m, message.ask.patience_s);
        return TUTTI_OK;
    }
    return tutti_fail(TUTTI_ERR_PROTOCOL, "a message of type %u out of turn", type);
}

static void peer_gone(struct tutti_meeting *m, struct tutti_meeting_peer *peer)
{
    struct tutti_meeting_loss loss = {.pid = 0};
    if (peer->state == TUTTI_PEER_SEATED) {
        tutti_log(TUTTI_LOG_WARN, "rank %d (process %d) went away while the ranks were meeting", (int)peer->rank,
                  (int)peer->pid);
        loss = tutti_meeting_loss_now(peer->rank, peer->pid);
    }
    /* It has seen our proof: it does not share our secret, or was ended. */
    if (peer->state == TUTTI_PEER_CHALLENGED && m->request->secret)
        refusal_note(m, peer, "it does not accept this rank's secret");
    peer_drop(m, peer);
    tutti_meeting_loss_note(m, &loss);
}

static void peer_serve(struct tutti_meeting *m, struct tutti_meeting_peer *peer)
{
    enum tutti_status status = peer_message(m, peer);
    if (status == TUTTI_AGAIN) {
        peer_gone(m, peer);
    } else if (status == TUTTI_ERR_CONFIG && peer->state == TUTTI_PEER_FRESH && !m->request->secret) {
        /* Another build, and the uid is all the proof there is: every rank shall know. */
        tutti_fail(TUTTI_ERR_CONFIG, "process %d runs %s", (int)peer->pid, tutti_last_error()->text);
        meeting_fail(m, true);
    } else if (status < 0) {
        peer_refuse(m, peer);
    }
}

static void peer_accept(struct tutti_meeting *m)
{
    int fd = accept4(m->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int32_t pid;
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) {
            tutti_fail_errno(TUTTI_ERR_SYSTEM,
                             "%u of %d ranks have come, and rank %d can not let in more; raise "
                             "`ulimit -n`",
                             m->n_seated, (int)m->request->n_ranks, (int)m->request->rank);
            meeting_fail(m, true);
        }
        return; /* else: the peer is gone already */
    }
    struct tutti_meeting_peer *peer = NULL;
    if (tutti_meeting_peer(fd, &pid) < 0)
        tutti_log(TUTTI_LOG_WARN, "refused a peer at the meeting of the ranks: %s", tutti_last_error()->text);
    else
        peer = tutti_alloc(sizeof *peer);
    if (!peer) {
        close(fd); /* out of memory: it will come again */
        return;
    }
    peer->fd = fd;
    peer->pid = pid;
    peer->rank = -1;
    peer->until_ns = tutti_deadline_ns(OPENING_NS);
    m->peers[m->n_peers++] = peer;
}

/* ---- ranks in this process ---- */

static void ticket_seat(struct tutti_meeting *m, struct tutti_meeting_ticket *ticket)
{
    const struct newcomer who = {ticket->rank, ticket->n_ranks, m->pid, ticket->build, ticket->host, ticket->version};
    if (!ticket->same_secret) {
        tutti_fail(TUTTI_ERR_AUTH, "rank %d and rank %d, threads of process %d, have different secrets",
                   (int)ticket->rank, (int)m->request->rank, (int)m->pid);
        tutti_log(TUTTI_LOG_WARN, "refused: %s", tutti_last_error()->text);
        snprintf(m->refusal, sizeof m->refusal, "%.190s", tutti_last_error()->text);
        tutti_meeting_ticket_done(ticket, tutti_last_error(), NULL);
        return;
    }
    struct tutti_meeting_seat *seat = seat_take(m, &who);
    if (!seat) {
        tutti_meeting_ticket_done(ticket, &m->verdict, NULL);
        return;
    }
    seat->ticket = ticket;
    tutti_meeting_loss_note(m, &ticket->lost);
}

static void tickets_serve(struct tutti_meeting *m)
{
    double asked_s;
    bool withdrawn;
    eventfd_t ignored;
    eventfd_read(m->wake_fd, &ignored);
    struct tutti_meeting_ticket *ticket = tutti_meeting_tickets_take(m, &asked_s, &withdrawn);
    for (int32_t i = 0; withdrawn && i < m->request->n_ranks; i++)
        if (m->seats[i].ticket) seat_vacate(m, &m->seats[i]);
    while (ticket) {
        struct tutti_meeting_ticket *next = ticket->next;
        ticket_seat(m, ticket);
        ticket = next;
    }
    if (asked_s > 0 && m->n_seated < (uint32_t)m->request->n_ranks) meeting_timeout(m, asked_s);
}

/* ---- the loop ---- */

static void strangers_expire(struct tutti_meeting *m, uint64_t now)
{
    for (uint32_t i = m->n_peers; i-- > 0;) {
        struct tutti_meeting_peer *peer = m->peers[i];
        if (peer->state == TUTTI_PEER_SEATED || now < peer->until_ns) continue;
        tutti_fail(TUTTI_ERR_TIMEOUT, "process %d did not say who it is within 10 s", (int)peer->pid);
        peer_refuse(m, peer);
    }
}

/* What came from whom is served before newcomers, so that who left has left before it comes again. */
static void lead_step(struct tutti_meeting *m, uint64_t now)
{
    uint64_t rest = m->request->deadline_ns - now;
    if (rest > SLICE_NS) rest = SLICE_NS;
    uint32_t n = m->n_peers;
    m->polls[0] = (struct pollfd){.fd = n < m->max_peers ? m->listen_fd : -1, .events = POLLIN};
    m->polls[1] = (struct pollfd){.fd = m->wake_fd, .events = POLLIN};
    for (uint32_t i = 0; i < n; i++) m->polls[2 + i] = (struct pollfd){.fd = m->peers[i]->fd, .events = POLLIN};
    if (poll(m->polls, n + 2, (int)((rest + TUTTI_NS_PER_MS - 1) / TUTTI_NS_PER_MS)) <= 0) return;
    /* From the back: a dropped peer is replaced by the last one, which has been served. */
    for (uint32_t i = n; i-- > 0;)
        if (m->polls[2 + i].revents && i < m->n_peers && m->peers[i]->fd == m->polls[2 + i].fd)
            peer_serve(m, m->peers[i]);
    if (m->polls[1].revents) tickets_serve(m);
    for (uint32_t i = 0; m->polls[0].revents && i < 16 && m->n_peers < m->max_peers; i++) peer_accept(m);
}

enum tutti_status tutti_meeting_lead(struct tutti_meeting *m, void (*before_verdict)(void *arg), void *arg,
                                     struct tutti_meeting_result *out)
{
    const struct tutti_meeting_request *mine = m->request;
    struct tutti_meeting_result result = {.segment = NULL};
    while (m->verdict.status == TUTTI_OK && m->n_seated < (uint32_t)mine->n_ranks) {
        uint64_t now = tutti_now_ns();
        if (mine->cancel && *mine->cancel) {
            tutti_fail(TUTTI_ERR_CANCELLED, "rank %d withdrew while the ranks were meeting", (int)mine->rank);
            meeting_fail(m, false);
        } else if (now >= mine->deadline_ns) {
            meeting_timeout(m, tutti_meeting_patience_s(mine));
        } else {
            strangers_expire(m, now);
            lead_step(m, now);
            /* After it: whoever waits at the door has come, however late this rank looks. */
            if (tutti_meeting_losses_check(m, now) < 0) meeting_fail(m, true);
        }
    }
    if (m->verdict.status == TUTTI_OK && tutti_meeting_decide(m, &result) < 0) meeting_fail(m, true);
    if (before_verdict) before_verdict(arg);
    tutti_meeting_registry_remove(m);
    enum tutti_status status = tutti_meeting_deliver(m, &result);
    if (status == TUTTI_OK) *out = result;
    tutti_meeting_destroy(m);
    return status;
}
