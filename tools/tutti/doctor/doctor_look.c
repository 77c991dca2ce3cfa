/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at the ranks of a world: those of this host in the memory that they share, which needs no help of theirs; all
 * others through a rank of this host that answers. */

#include "doctor.h"

#include "base/clock.h"
#include "control/net/net.h"
#include "transport/host/layout.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCAL_NS (50 * TUTTI_NS_PER_MS)    /* between two looks at ranks of this host alone */
#define ANSWER_NS (1500 * TUTTI_NS_PER_MS) /* so long an answer may take */
#define POLL_NS (5 * TUTTI_NS_PER_MS)

enum tutti_status doctor_world_look_add(struct doctor_world *world, uint64_t at_ns)
{
    if (world->n_looks == DOCTOR_LOOKS) return tutti_fail(TUTTI_ERR_ARGUMENT, "more than %d looks", DOCTOR_LOOKS);
    struct doctor_rank *ranks = tutti_alloc_array(world->n, sizeof *ranks);
    if (!ranks) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a look at %u ranks", world->n);
    for (uint32_t i = 0; i < world->n; i++) ranks[i].life = TUTTI_LIFE_UNKNOWN;
    world->at_ns[world->n_looks] = at_ns;
    world->looks[world->n_looks++] = ranks;
    return TUTTI_OK;
}

void doctor_world_fini(struct doctor_world *world)
{
    for (uint32_t i = 0; i < world->n_looks; i++) tutti_free(world->looks[i]);
    world->n_looks = 0;
}

uint32_t doctor_worlds(const struct doctor_found *found, struct doctor_world *out, uint32_t capacity)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < found->n; s++) {
        for (uint32_t i = 0; i < found->segments[s]->base.n; i++) {
            struct tutti_who who;
            bool known = !tutti_who_read(found->segments[s], i, &who);
            for (uint32_t w = 0; w < n && !known; w++) known = out[w].world == who.world;
            if (known || n == capacity) continue;
            out[n] = (struct doctor_world){.world = who.world, .n = who.n};
            n++;
        }
    }
    return n;
}

/* ---- one rank ---- */

/* Times become ages. */
static void board_age(struct tutti_board *b, uint64_t now)
{
    uint64_t *times[] = {&b->called_ns, &b->since_ns, &b->message_since_ns};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(times); i++)
        if (*times[i]) *times[i] = *times[i] < now ? now - *times[i] : 1;
}

/* The k-th board in use, with ages; whether there may be more. */
static bool board_add(struct doctor_rank *rank, const struct tutti_board *board)
{
    rank->known = true;
    rank->pid = board->pid, rank->process = (char)board->process;
    if (board->state != TUTTI_BOARD_IN_USE || rank->n_boards == DOCTOR_BOARDS) return false;
    rank->boards[rank->n_boards++] = *board;
    return rank->n_boards < DOCTOR_BOARDS;
}

static void local_look(struct tutti_host_control *host, uint32_t local, const struct tutti_who *who,
                       struct doctor_rank *rank)
{
    struct tutti_board board;
    rank->life = host->base.ops->life(&host->base, local);
    rank->here = true;
    snprintf(rank->host, sizeof rank->host, "%s", who->host);
    for (uint32_t k = 0; k < DOCTOR_BOARDS; k++) {
        if (host->base.ops->peek(&host->base, local, TUTTI_BOARD_NTH + k, &board) < 0) return;
        board_age(&board, tutti_now_ns());
        if (!board_add(rank, &board)) return;
    }
}

/* ---- ranks of other hosts ---- */

enum { AT_ONCE = 2, MEMBERS_AT_ONCE = TUTTI_ASKS_MOST / AT_ONCE }; /* most ranks show one board, and then none */

static void head_fill(struct doctor_rank *rank, const struct tutti_ask_answer *answer)
{
    rank->life = answer->life;
    snprintf(rank->host, sizeof rank->host, "%s", answer->host);
    snprintf(rank->address, sizeof rank->address, "%s", answer->address);
}

/* Asks for the next boards, from the k-th on, of those that are listed, and removes those that have no more. */
static void batch_ask(struct tutti_host_control *host, uint32_t local, struct doctor_rank *ranks, uint32_t *members,
                      uint32_t *n, uint32_t k)
{
    struct tutti_ask_answer answers[TUTTI_ASKS_MOST];
    bool answered[TUTTI_ASKS_MOST] = {false};
    const uint32_t n_rows = *n * AT_ONCE;
    const uint64_t deadline = tutti_deadline_ns(ANSWER_NS);
    for (uint32_t row = 0; row < n_rows; row++)
        tutti_asks_put(host, local, row, members[row / AT_ONCE], TUTTI_BOARD_NTH + k + row % AT_ONCE);
    for (uint32_t left = n_rows; left > 0 && tutti_now_ns() < deadline;) {
        for (uint32_t row = 0; row < n_rows; row++)
            if (!answered[row] && tutti_asks_get(host, local, row, &answers[row])) {
                answered[row] = true, left--;
                board_age(&answers[row].board, tutti_now_ns());
            }
        if (left > 0) tutti_clock_sleep(NULL, POLL_NS);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0, row = 0; i < *n; i++) {
        struct doctor_rank *rank = &ranks[members[i]];
        bool more = true;
        for (uint32_t j = 0; j < AT_ONCE; j++, row++) {
            if (answered[row] || tutti_asks_peek(host, local, row, &answers[row])) head_fill(rank, &answers[row]);
            more = more && answered[row] && answers[row].status == TUTTI_OK && board_add(rank, &answers[row].board);
        }
        if (more) members[kept++] = members[i];
    }
    *n = kept;
}

/* All ranks that are on other hosts, through this one. */
static void others_ask(struct tutti_host_control *host, uint32_t local, struct doctor_world *world,
                       struct doctor_rank *ranks)
{
    uint32_t members[MEMBERS_AT_ONCE], n;
    for (uint32_t next = 0; next < world->n;) {
        for (n = 0; next < world->n && n < MEMBERS_AT_ONCE; next++)
            if (!ranks[next].known) members[n++] = next;
        for (uint32_t k = 0; k < DOCTOR_BOARDS && n > 0; k += AT_ONCE) batch_ask(host, local, ranks, members, &n, k);
    }
}

static bool can_answer(const struct tutti_host_control *host, uint32_t local, const struct doctor_rank *rank)
{
    return rank->life == TUTTI_LIFE_ALIVE && rank->process != 'T' && rank->process != 't' &&
           tutti_asks_served(host, local, tutti_now_ns());
}

static void world_look(const struct doctor_found *found, struct doctor_world *world, struct doctor_rank *ranks)
{
    uint32_t seen = 0, before = 0;
    for (uint32_t s = 0; s < found->n; s++, before = seen)
        for (uint32_t i = 0; i < found->segments[s]->base.n; i++) {
            struct tutti_who who;
            if (!tutti_who_read(found->segments[s], i, &who) || who.world != world->world || who.member >= world->n)
                continue;
            local_look(found->segments[s], i, &who, &ranks[who.member]);
            seen++;
            world->one_host = seen - before == world->n;
        }
    for (uint32_t s = 0; s < found->n && seen < world->n; s++)
        for (uint32_t i = 0; i < found->segments[s]->base.n; i++) {
            struct tutti_who who;
            if (!tutti_who_read(found->segments[s], i, &who) || who.world != world->world || who.member >= world->n ||
                !can_answer(found->segments[s], i, &ranks[who.member]) || !tutti_asks_take(found->segments[s], i))
                continue;
            others_ask(found->segments[s], i, world, ranks);
            tutti_asks_give(found->segments[s], i);
            return;
        }
}

enum tutti_status doctor_look(const struct doctor_found *found, struct doctor_world *world, uint64_t watch_ns)
{
    const uint64_t begin = tutti_now_ns(), gap = watch_ns / (DOCTOR_LOOKS - 1), step = gap > LOCAL_NS ? gap : LOCAL_NS;
    for (uint64_t at = 0;; at = tutti_now_ns() - begin) {
        TUTTI_TRY(doctor_world_look_add(world, at));
        world_look(found, world, world->looks[world->n_looks - 1]);
        const uint64_t past = tutti_now_ns() - begin;
        if (past >= watch_ns || world->n_looks == DOCTOR_LOOKS) return TUTTI_OK;
        tutti_clock_sleep(NULL, watch_ns - past < step ? watch_ns - past : step);
    }
}

/* Finds the memory that ranks share, among the descriptors of the processes of this machine. The kernel shows them to
 * the same user (and to root) alone. */

#define MEMFD "/memfd:tutti-control"

struct seen {
    dev_t device;
    ino_t inode;
};

static bool same_network(const char *pid)
{
    char path[64];
    struct stat mine, theirs;
    snprintf(path, sizeof path, "/proc/%.16s/ns/net", pid);
    return stat("/proc/self/ns/net", &mine) == 0 && stat(path, &theirs) == 0 && mine.st_ino == theirs.st_ino;
}

/* Takes a descriptor of a segment, unless it is known. */
static void segment_add(struct doctor_found *found, struct seen *seen, const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat info;
    struct tutti_segment *segment;
    if (fd < 0) return;
    bool known = fstat(fd, &info) != 0;
    for (uint32_t i = 0; i < found->n && !known; i++)
        known = seen[i].device == info.st_dev && seen[i].inode == info.st_ino;
    if (known || tutti_segment_look(fd, &segment) < 0) {
        if (!known) fprintf(stderr, "tutti doctor: %s: %s\n", path, tutti_last_error()->text);
        close(fd);
        return;
    }
    if (tutti_host_control_observe(segment, &found->segments[found->n]) < 0) {
        fprintf(stderr, "tutti doctor: %s: %s\n", path, tutti_last_error()->text);
        tutti_segment_release(segment);
        return;
    }
    seen[found->n++] = (struct seen){info.st_dev, info.st_ino};
}

static void process_look(struct doctor_found *found, struct seen *seen, const char *pid)
{
    char path[64], at[128], target[64];
    const struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    DIR *fds = opendir(path);
    while (fds && found->n < TUTTI_ARRAY_LEN(found->segments) && (entry = readdir(fds))) {
        snprintf(at, sizeof at, "%s/%.16s", path, entry->d_name);
        const ssize_t n = readlink(at, target, sizeof target - 1);
        if (n < (ssize_t)strlen(MEMFD) || strncmp(target, MEMFD, strlen(MEMFD)) != 0) continue;
        segment_add(found, seen, at);
    }
    if (fds) closedir(fds);
}

void doctor_find(struct doctor_found *found, bool all)
{
    struct seen seen[TUTTI_ARRAY_LEN(found->segments)];
    const struct dirent *entry;
    DIR *processes = opendir("/proc");
    found->n = 0;
    while (processes && (entry = readdir(processes)))
        if (isdigit((unsigned char)entry->d_name[0]) && (all || same_network(entry->d_name)))
            process_look(found, seen, entry->d_name);
    if (processes) closedir(processes);
}

void doctor_found_fini(struct doctor_found *found)
{
    for (uint32_t i = 0; i < found->n; i++) found->segments[i]->base.ops->close(&found->segments[i]->base);
    found->n = 0;
}

/* Whether the host of a rank that does not answer is there: its kernel takes a connection to where the rank listens,
 * also while the process is stopped. Nothing is sent. */

#define CONNECT_MS 1000

static enum doctor_reach connect_try(const char *where)
{
    struct tutti_net_address address;
    struct pollfd wait = {.events = POLLOUT};
    char text[TUTTI_WHO_ADDRESS];
    unsigned port;
    int error = 0;
    socklen_t n = sizeof error;
    if (sscanf(where, "%63s %u", text, &port) != 2 || port == 0 || port > UINT16_MAX ||
        !tutti_net_address_parse(text, &address))
        return DOCTOR_NOT_TRIED;
    if (tutti_net_connect(&address, (uint16_t)port, "", "system", &wait.fd) < 0) return DOCTOR_NO_WAY;
    const bool decided = poll(&wait, 1, CONNECT_MS) > 0;
    if (decided) getsockopt(wait.fd, SOL_SOCKET, SO_ERROR, &error, &n);
    close(wait.fd);
    if (!decided) return DOCTOR_NO_WAY;
    return error == 0 ? DOCTOR_CONNECTS : error == ECONNREFUSED ? DOCTOR_REFUSES : DOCTOR_NO_WAY;
}

/* A rank before this one on the same host that was tried. */
static const struct doctor_rank *neighbour_of(const struct doctor_rank *ranks, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        if (ranks[i].reach != DOCTOR_NOT_TRIED && strcmp(ranks[i].host, ranks[rank].host) == 0) return &ranks[i];
    return NULL;
}

void doctor_reach(struct doctor_world *world)
{
    struct doctor_rank *ranks = world->looks[world->n_looks - 1];
    for (uint32_t i = 0; i < world->n; i++) {
        if (ranks[i].known || ranks[i].life != TUTTI_LIFE_ALIVE || !ranks[i].address[0]) continue;
        const struct doctor_rank *tried = neighbour_of(ranks, i);
        ranks[i].reach = tried ? tried->reach : connect_try(ranks[i].address);
    }
}
