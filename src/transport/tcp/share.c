/* SPDX-License-Identifier: BSD-3-Clause */
/* How much of what waits each path takes. All paths shall be done at one time: that is after T = (what waits + what is
 * queued on all of them) / (their rates together), and a path takes as much as it has written by then. So a slow one
 * takes little, and none of a message that the others have carried away sooner. No path takes more than it writes in
 * some milliseconds, so that what is in the queue of a slow one does not hold up messages for long. */

#include "transport/tcp/peer.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define MEASURE_NS 50000 /* what the kernel said is as old as this, at most */
#define RATE_LEAST 1e5
#define BUSY_US 16000
#define BURST 131072
#define SAMPLE 262144
#define SAMPLE_NS 100000
#define SAMPLE_MOST_NS (5 * TUTTI_NS_PER_MS)
#define AHEAD_S 0.010      /* beyond its way there and back, a path has so much to do */
#define AHEAD_LEAST 131072 /* or so many bytes */
#define PIECE_LEAST 32768
#define PIECE_MOST 262144
#define PIECE_UNIT 4096

/* The rate is what was confirmed while there was something to confirm, after the first bytes: a link that is shaped
 * lets some through at once. The last bytes do not count either: who gets them confirms them later. */
static void rate_learn(struct tutti_tcp_path *path, uint64_t acked, uint64_t now)
{
    const bool idle = acked + TUTTI_TCP_IDLE >= path->written; /* what waited when it was asked last is gone */
    path->written = acked + path->queued;
    if (idle) path->burst = acked + BURST;
    if (idle || acked < path->burst) {
        path->acked = acked, path->acked_ns = now;
        return;
    }
    const uint64_t bytes = acked - path->acked, ns = now - path->acked_ns;
    if (ns < SAMPLE_NS || (bytes < SAMPLE && ns < SAMPLE_MOST_NS)) return;
    const double rate = 1e9 * (double)bytes / (double)ns;
    path->rate += (rate - path->rate) / (rate < path->rate ? 2 : 8); /* less is believed at once, more by and by */
    path->acked = acked, path->acked_ns = now;
    if (path->rate < RATE_LEAST) path->rate = RATE_LEAST;
}

/* The kernel's count of the time in which there was something to confirm is one of ticks, and of what a link lets
 * through at once as well: its rate is too high, but no less. */
static void rate_limit(struct tutti_tcp_path *path, uint64_t acked, uint64_t busy_us)
{
    const uint64_t us = busy_us - path->busy_us;
    if (us < BUSY_US) return;
    const double rate = 1e6 * (double)(acked - path->busy_acked) / (double)us;
    if (rate < path->rate) path->rate = rate > RATE_LEAST ? rate : RATE_LEAST;
    path->busy_acked = acked, path->busy_us = busy_us;
}

/* A link that is gone: nothing is confirmed for so long, nor anything heard. Who is stopped, or does not read, confirms
 * what asks whether he is there. */
static bool is_gone(struct tutti_tcp_path *path, const struct tcp_info *info, uint64_t now, uint64_t silence_ns)
{
    const uint64_t heard_ns = info->tcpi_last_ack_recv * TUTTI_NS_PER_MS;
    if (path->idle || path->progress != info->tcpi_bytes_acked) path->progress_ns = now;
    path->idle = info->tcpi_unacked == 0, path->progress = info->tcpi_bytes_acked;
    return silence_ns > 0 && info->tcpi_retransmits > 0 && heard_ns > silence_ns &&
           now - path->progress_ns > silence_ns;
}

static void path_measure(struct tutti_tcp_path *path, uint64_t now, uint64_t silence_ns)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (getsockopt(path->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0 ||
        bytes < offsetof(struct tcp_info, tcpi_busy_time) + sizeof info.tcpi_busy_time)
        return; /* a kernel before 4.10 */
    path->queued = (size_t)info.tcpi_unacked * info.tcpi_snd_mss + info.tcpi_notsent_bytes;
    path->trip_s = info.tcpi_min_rtt == UINT32_MAX ? 0 : 1e-6 * info.tcpi_min_rtt;
    if (is_gone(path, &info, now, silence_ns)) path->error = ETIMEDOUT, path->readable = path->ending = true;
    rate_learn(path, info.tcpi_bytes_acked, now);
    rate_limit(path, info.tcpi_bytes_acked, info.tcpi_busy_time);
}

/* The kernel would confirm the last bytes some 40 ms later: that is no time for which the other end's path was busy. */
void tutti_tcp_path_confirm(const struct tutti_tcp_path *path)
{
    const int on = 1;
    setsockopt(path->fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

void tutti_tcp_paths_measure(struct tutti_tcp_stripes *s)
{
    const uint64_t now = tutti_now_ns();
    if (now < s->measured_ns + MEASURE_NS) return;
    s->measured_ns = now;
    double best = 0;
    for (uint32_t i = 0; i < s->n_paths; i++) {
        if (s->paths[i].fd >= 0) path_measure(&s->paths[i], now, s->silence_ns);
        if (s->paths[i].fd >= 0 && s->paths[i].rate > best) best = s->paths[i].rate;
    }
    for (uint32_t i = 0; i < s->n_paths; i++) /* one that seems slower is tried now and then all the same */
        if (s->paths[i].rate < best / 16) s->paths[i].rate = best / 16;
}

/* As far as is known: what they do is to be looked at. */
bool tutti_tcp_paths_busy(const struct tutti_tcp_stripes *s)
{
    for (uint32_t i = 0; i < s->n_paths; i++)
        if (s->paths[i].fd >= 0 && s->paths[i].queued > TUTTI_TCP_IDLE) return true;
    return false;
}

/* What the path has written when all are done, beyond what it has to write now. */
static double share_of(const struct tutti_tcp_stripes *s, const struct tutti_tcp_path *path)
{
    double bytes = (double)s->waiting, rate = 0;
    for (uint32_t i = 0; i < s->n_paths; i++) {
        if (s->paths[i].fd < 0) continue;
        bytes += (double)s->paths[i].queued;
        rate += s->paths[i].rate;
    }
    return path->rate * bytes / rate - (double)path->queued;
}

static bool is_best(const struct tutti_tcp_stripes *s, double share)
{
    for (uint32_t i = 0; i < s->n_paths; i++)
        if (s->paths[i].fd >= 0 && share_of(s, &s->paths[i]) > share) return false;
    return true;
}

size_t tutti_tcp_path_share(const struct tutti_tcp_stripes *s, const struct tutti_tcp_path *path)
{
    const double share = share_of(s, path);
    const double ahead = path->rate * (path->trip_s + AHEAD_S), most = ahead > AHEAD_LEAST ? ahead : AHEAD_LEAST;
    const size_t waiting = s->waiting < PIECE_MOST ? s->waiting : PIECE_MOST;
    if ((double)path->queued >= most) return 0;
    if (share < PIECE_LEAST && !is_best(s, share)) return 0;
    size_t bytes = share > PIECE_MOST ? PIECE_MOST : share < PIECE_LEAST ? PIECE_LEAST : (size_t)share;
    bytes -= bytes % PIECE_UNIT;
    return bytes < waiting ? bytes : waiting;
}
