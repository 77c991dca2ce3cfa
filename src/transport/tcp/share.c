/* SPDX-License-Identifier: BSD-3-Clause */
/* How much of what waits each path takes. All paths shall be done at one time: that is after T = (what waits + what is
 * queued on all of them) / (their rates together), and a path takes as much as it has written by then. So a slow one
 * takes little, and none of a message that the others have carried away sooner. No path takes more than it writes in
 * some milliseconds, so that what is in the queue of a slow one does not hold up messages for long. */

#include "transport/tcp/peer.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define RATE_FIRST 125e6   /* bytes a second, until it is known better: all paths count alike */
#define AHEAD_S 0.005      /* beyond its way there and back, a path has so much to do */
#define AHEAD_LEAST 131072 /* or so many bytes */
#define PIECE_LEAST 32768
#define PIECE_MOST 262144
#define PIECE_UNIT 4096

/* The kernel's measure of the rate is that of the last round trip; where the socket had nothing to send it is a lower
 * bound. */
void tutti_tcp_path_measure(struct tutti_tcp_path *path)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (path->rate <= 0) path->rate = RATE_FIRST;
    if (getsockopt(path->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0 ||
        bytes < offsetof(struct tcp_info, tcpi_delivery_rate) + sizeof info.tcpi_delivery_rate)
        return; /* a kernel before 4.9 */
    path->queued = (size_t)info.tcpi_unacked * info.tcpi_snd_mss + info.tcpi_notsent_bytes;
    path->trip_s = info.tcpi_min_rtt == UINT32_MAX ? 0 : 1e-6 * info.tcpi_min_rtt;
    const double rate = (double)info.tcpi_delivery_rate;
    if (!info.tcpi_delivery_rate_app_limited && rate > 0)
        path->rate += (rate - path->rate) / 4;
    else if (rate > path->rate)
        path->rate = rate;
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
