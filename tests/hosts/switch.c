/* SPDX-License-Identifier: BSD-3-Clause */
/* A switch between network namespaces, with delay, jitter, rate, loss, duplicates and cuts by direction, for kernels
 * that have no netem.
 *
 *     switch NAMESPACE...     makes a tap device eth0 in each, with the address 02:00:00:00:00:<number + 1>, and says
 *                             "ready"; then it forwards until its input ends. Lines of its input, numbers from 0:
 *
 *     link A B delay_us=100 jitter_us=10 loss=0.01 duplicate=0.01 cut=1      packets from A to B; '*': all
 *     host A rate_mbit=1000 queue_kb=1000                                    up and down link of A; 0: no limit
 *
 * Each line is answered by "ok", or "no" and why. Packets stay whole (up to 64 KiB, as from a card that cuts them)
 * unless a rate, a loss or duplicates are set somewhere. */

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS = 32, VNET_HEAD = 10, PACKET = 66000, BURST = 32, NS_US = 1000 };

struct direction {
    double delay_us, jitter_us, loss, duplicate, cut;
    uint64_t last_ns; /* when the last packet left: they stay in order */
};
struct host {
    int fd;
    double rate_mbit, queue_kb;
    uint64_t up_ns, down_ns; /* its links are busy until then */
};
struct packet {
    uint64_t due_ns, number;
    int from, to;
    size_t bytes;
    uint8_t data[];
};
/* Packets that are on their way, as a heap: the next one first. */
struct way {
    struct packet **at;
    size_t n, room;
    uint64_t number;
};

static struct direction directions[HOSTS][HOSTS];
static struct host hosts[HOSTS];
static int n_hosts;
static struct way way;

static void die(const char *what)
{
    fprintf(stderr, "switch: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the way ---- */

static bool is_before(const struct packet *a, const struct packet *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void way_push(struct packet *packet)
{
    if (way.n == way.room) {
        way.room = way.room ? 2 * way.room : 1024;
        way.at = realloc(way.at, way.room * sizeof(*way.at));
        if (!way.at) die("memory");
    }
    size_t i = way.n++;
    for (; i > 0 && is_before(packet, way.at[(i - 1) / 2]); i = (i - 1) / 2) way.at[i] = way.at[(i - 1) / 2];
    way.at[i] = packet;
}

static struct packet *way_pop(void)
{
    struct packet *first = way.at[0], *last = way.at[--way.n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < way.n; i = child) {
        if (child + 1 < way.n && is_before(way.at[child + 1], way.at[child])) child++;
        if (!is_before(way.at[child], last)) break;
        way.at[i] = way.at[child];
    }
    if (way.n > 0) way.at[i] = last;
    return first;
}

/* ---- packets ---- */

/* When a link of this rate has passed the packet on; 0: its queue is full. */
static uint64_t link_pass(const struct host *host, uint64_t *busy_ns, uint64_t now, size_t bytes)
{
    const double bytes_a_ns = host->rate_mbit / 8000;
    if (host->rate_mbit <= 0) return now;
    if (*busy_ns < now) *busy_ns = now;
    if (host->queue_kb > 0 && (double)(*busy_ns - now) * bytes_a_ns > host->queue_kb * 1024) return 0;
    return *busy_ns += (uint64_t)((double)bytes / bytes_a_ns);
}

static void deliver(int to, const uint8_t *data, size_t bytes)
{
    if (write(hosts[to].fd, data, bytes) < 0 && errno != EAGAIN && errno != EIO && errno != EINVAL) die("tap");
}

static void forward(int from, int to, const uint8_t *data, size_t bytes)
{
    struct direction *d = &directions[from][to];
    const uint64_t now = now_ns();
    if (d->cut > 0 || (d->loss > 0 && drand48() < d->loss)) return;
    uint64_t due = link_pass(&hosts[from], &hosts[from].up_ns, now, bytes);
    if (due == 0) return;
    due += (uint64_t)((d->delay_us + d->jitter_us * drand48()) * NS_US);
    due = link_pass(&hosts[to], &hosts[to].down_ns, due, bytes);
    if (due == 0) return;
    if (due < d->last_ns) due = d->last_ns;
    d->last_ns = due;
    if (due <= now && way.n == 0) {
        deliver(to, data, bytes);
        return;
    }
    for (int copies = d->duplicate > 0 && drand48() < d->duplicate ? 2 : 1; copies > 0; copies--) {
        struct packet *packet = malloc(sizeof(*packet) + bytes);
        if (!packet) die("memory");
        *packet = (struct packet){.due_ns = due, .number = way.number++, .from = from, .to = to, .bytes = bytes};
        memcpy(packet->data, data, bytes);
        way_push(packet);
    }
}

static void host_read(int from)
{
    static uint8_t data[PACKET];
    static const uint8_t ours[5] = {2, 0, 0, 0, 0};
    for (int i = 0; i < BURST; i++) {
        const ssize_t n = read(hosts[from].fd, data, sizeof(data));
        const uint8_t *mac = data + VNET_HEAD;
        if (n < VNET_HEAD + 14) return;
        if (mac[0] & 1) { /* to all */
            for (int to = 0; to < n_hosts; to++)
                if (to != from) forward(from, to, data, (size_t)n);
        } else if (memcmp(mac, ours, sizeof(ours)) == 0 && mac[5] >= 1 && mac[5] <= n_hosts) {
            forward(from, mac[5] - 1, data, (size_t)n);
        }
    }
}

static void way_serve(void)
{
    const uint64_t now = now_ns();
    while (way.n > 0 && way.at[0]->due_ns <= now) {
        struct packet *packet = way_pop();
        if (directions[packet->from][packet->to].cut <= 0) deliver(packet->to, packet->data, packet->bytes);
        free(packet);
    }
}

/* ---- settings ---- */

/* Large packets only where each of them arrives once, and none waits for its turn. */
static void offload_set(void)
{
    bool whole = true;
    for (int i = 0; i < n_hosts; i++) {
        whole = whole && hosts[i].rate_mbit <= 0;
        for (int j = 0; j < n_hosts; j++)
            whole = whole && directions[i][j].loss <= 0 && directions[i][j].duplicate <= 0;
    }
    const unsigned long flags = whole ? TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 : 0;
    for (int i = 0; i < n_hosts; i++)
        if (ioctl(hosts[i].fd, TUNSETOFFLOAD, flags) != 0) die("offload");
}

static bool setting_take(const char *word, int from, int to)
{
    static const struct {
        const char *name;
        size_t at;
        bool of_host;
    } settings[] = {{"delay_us", offsetof(struct direction, delay_us), false},
                    {"jitter_us", offsetof(struct direction, jitter_us), false},
                    {"loss", offsetof(struct direction, loss), false},
                    {"duplicate", offsetof(struct direction, duplicate), false},
                    {"cut", offsetof(struct direction, cut), false},
                    {"rate_mbit", offsetof(struct host, rate_mbit), true},
                    {"queue_kb", offsetof(struct host, queue_kb), true}};
    const char *value = strchr(word, '=');
    for (size_t i = 0; value && i < sizeof(settings) / sizeof(settings[0]); i++) {
        const size_t length = (size_t)(value - word);
        if (strncmp(settings[i].name, word, length) != 0 || settings[i].name[length]) continue;
        if (settings[i].of_host != (to < 0)) return false;
        char *base = to < 0 ? (char *)&hosts[from] : (char *)&directions[from][to];
        const double number = strtod(value + 1, NULL);
        memcpy(base + settings[i].at, &number, sizeof(number));
        return true;
    }
    return false;
}

static bool is_host(const char *word, int host)
{
    return strcmp(word, "*") == 0 || atoi(word) == host;
}

static const char *line_take(char *line)
{
    char *words[16];
    int n = 0;
    for (char *word = strtok(line, " \n"); word && n < 16; word = strtok(NULL, " \n")) words[n++] = word;
    const bool link = n > 0 && strcmp(words[0], "link") == 0, host = n > 0 && strcmp(words[0], "host") == 0;
    const int first = link ? 3 : 2;
    if ((!link && !host) || n < first) return "no: neither 'link A B ...' nor 'host A ...'";
    for (int from = 0; from < n_hosts; from++)
        for (int to = 0; to < (link ? n_hosts : 1); to++)
            for (int i = first; i < n; i++)
                if (is_host(words[1], from) && (!link || is_host(words[2], to)) &&
                    !setting_take(words[i], from, link ? to : -1))
                    return "no: there is no such setting";
    offload_set();
    return "ok";
}

/* ---- beginning ---- */

static void tap_make(int number, const char *name, int epoll)
{
    char path[256];
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    snprintf(path, sizeof(path), "/var/run/netns/%s", name);
    const int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0) die(path);
    close(space);
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(request.ifr_name, sizeof(request.ifr_name), "eth0");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0) die("/dev/net/tun");
    request.ifr_hwaddr.sa_family = 1; /* Ethernet */
    memcpy(request.ifr_hwaddr.sa_data, (const uint8_t[6]){2, 0, 0, 0, 0, (uint8_t)(number + 1)}, 6);
    const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (control < 0 || ioctl(control, SIOCSIFHWADDR, &request) != 0) die("address of eth0");
    close(control);
    hosts[number] = (struct host){.fd = fd, .queue_kb = 1000};
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)number};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll");
}

/* False at the end of the input. */
static bool turn(int epoll)
{
    struct epoll_event events[HOSTS + 1];
    struct timespec wait = {.tv_sec = 1};
    const uint64_t now = now_ns();
    if (way.n > 0) {
        const uint64_t rest = way.at[0]->due_ns > now ? way.at[0]->due_ns - now : 0;
        wait = (struct timespec){(time_t)(rest / 1000000000u), (long)(rest % 1000000000u)};
    }
    const int n = epoll_pwait2(epoll, events, HOSTS + 1, &wait, NULL);
    way_serve();
    for (int i = 0; i < n; i++) {
        char line[512];
        if (events[i].data.u32 < HOSTS) {
            host_read((int)events[i].data.u32);
            continue;
        }
        if (!fgets(line, sizeof(line), stdin)) return false;
        puts(line_take(line));
        fflush(stdout);
    }
    return true;
}

int main(int argc, char **argv)
{
    n_hosts = argc - 1;
    if (n_hosts < 1 || n_hosts > HOSTS) {
        fprintf(stderr, "usage: %s NAMESPACE... (at most %d)\n", argv[0], HOSTS);
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0);
    const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), epoll = epoll_create1(EPOLL_CLOEXEC);
    if (home < 0 || epoll < 0) die("beginning");
    for (int i = 0; i < n_hosts; i++) tap_make(i, argv[1 + i], epoll);
    if (setns(home, CLONE_NEWNET) != 0) die("own namespace");
    offload_set();
    setvbuf(stdin, NULL, _IONBF, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = HOSTS};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event) != 0) die("input");
    puts("ready");
    fflush(stdout);
    while (turn(epoll)) continue;
    return 0;
}
