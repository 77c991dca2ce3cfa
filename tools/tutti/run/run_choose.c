/* SPDX-License-Identifier: BSD-3-Clause */

/* Which hosts, by which remote shell: from options, a file, or a Slurm allocation. */

#include "run.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILE_BYTES (1024 * 1024)
#define SLURM_NO_STEP 0xfffffff0ul /* step numbers from here on are shells and scripts, not tasks of a step */

/* -x, -a: nothing of the user's is lent to other hosts. No question can be answered, and a dead host is seen. */
static const char ssh[] = "ssh -T -x -a -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 "
                          "-o ServerAliveCountMax=3";
/* All that the allocation has of a node, beside other steps. */
static const char srun[] = "srun --nodes=1 --ntasks=1 --overlap --mpi=none --cpu-bind=none --unbuffered --quiet -w";

/* True where several nodes are allocated; for one node, how many ranks it has room for is set. */
static bool in_allocation(uint32_t *one_node)
{
    const char *nodes = getenv("SLURM_JOB_NODELIST"), *n = getenv("SLURM_JOB_NUM_NODES"),
               *step = getenv("SLURM_STEP_ID"), *tasks = getenv("SLURM_TASKS_PER_NODE");
    if (!nodes || !nodes[0] || (step && strtoul(step, NULL, 10) < SLURM_NO_STEP)) return false;
    if (!n || strcmp(n, "1") != 0) return true;
    *one_node = tasks ? (uint32_t)strtoul(tasks, NULL, 10) : 0;
    return false;
}

static bool file_read(const char *path, struct run_hosts *hosts)
{
    char *text = calloc(1, FILE_BYTES);
    FILE *f = fopen(path, "re");
    bool ok = false;
    if (!f || !text)
        run_say("--hostfile %s: %m", path);
    else if (fread(text, 1, FILE_BYTES - 1, f) == FILE_BYTES - 1)
        run_say("--hostfile %s: it is larger than 1 MiB", path);
    else if (!(ok = run_hosts_file(hosts, text)))
        run_say("--hostfile %s: %s", path, hosts->why);
    if (f) fclose(f);
    free(text);
    return ok;
}

static bool words_split(const char *text, char ***out)
{
    static char *copy; /* stays, as the words that are in it */
    copy = strdup(text);
    char *rest = copy;
    size_t n = 0;
    char **words = calloc(strlen(text) + 2, sizeof *words);
    if (!copy || !words) return false;
    for (char *word; (word = strsep(&rest, " \t"));)
        if (word[0]) words[n++] = word;
    *out = words;
    return n > 0;
}

static bool self_find(struct run_options *o)
{
    static char self[4096];
    if (!o->agent_path) {
        const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n < 0) return false;
        o->agent_path = self;
    }
    /* A remote shell may join words and split them again. */
    if (strspn(o->agent_path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%=:,~") ==
        strlen(o->agent_path))
        return true;
    run_say("the path of tutti on the hosts, '%s', has characters that shells take for more: name another one by "
            "--remote-tutti",
            o->agent_path);
    return false;
}

/* ---- this machine among the hosts ---- */

#define RESOLVE_NS (2 * TUTTI_NS_PER_S) /* for all names together */

/* "a" is "a.example.org". */
static bool same_name(const char *a, const char *b)
{
    const size_t n = strcspn(a, "."), m = strcspn(b, ".");
    return n == m && strncasecmp(a, b, n) == 0 && (!a[n] || !b[m] || strcasecmp(a, b) == 0);
}

/* Only an address of this machine can be bound. */
static bool is_own_address(const struct addrinfo *list)
{
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        const bool own = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (fd >= 0) close(fd);
        if (own) return true;
    }
    return false;
}

static bool is_here(const char *name, bool resolve)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = resolve ? 0 : AI_NUMERICHOST};
    struct addrinfo *list = NULL;
    char self[256] = "";
    gethostname(self, sizeof self - 1);
    if (strcasecmp(name, "localhost") == 0 || (self[0] && !strchr(name, ':') && same_name(name, self))) return true;
    if (getaddrinfo(name, NULL, &hints, &list) != 0) return false;
    const bool own = is_own_address(list);
    freeaddrinfo(list);
    return own;
}

static void here_find(struct run_hosts *hosts)
{
    const uint64_t until = tutti_deadline_ns(RESOLVE_NS);
    for (size_t i = 0; i < hosts->n; i++) hosts->hosts[i].here = is_here(hosts->hosts[i].name, tutti_now_ns() < until);
}

bool run_hosts_choose(struct run_options *o, const struct run_hosts_given *given)
{
    struct run_hosts *hosts = &o->hosts;
    const char *shell = given->shell ? given->shell : ssh;
    uint32_t one_node = 0;
    if (given->list) {
        if (!run_hosts_list(hosts, given->list)) {
            run_say("--hosts %s: %s", given->list, hosts->why);
            return false;
        }
    } else if (given->file) {
        if (!file_read(given->file, hosts)) return false;
    } else if (in_allocation(&one_node)) {
        const char *tasks = getenv("SLURM_TASKS_PER_NODE");
        if (!run_hosts_slurm(hosts, getenv("SLURM_JOB_NODELIST"), tasks)) {
            run_say("the hosts of this Slurm allocation: %s; name them by --hosts", hosts->why);
            return false;
        }
        if (!given->shell) shell = srun; /* also here: ranks are tasks of a step, which Slurm accounts for */
    } else {
        if (o->n_ranks == 0) o->n_ranks = one_node;
        return true;
    }
    if (!run_hosts_share(hosts, o->n_ranks)) {
        run_say("%s", hosts->why);
        return false;
    }
    o->n_ranks = o->total = run_hosts_ranks(hosts);
    if (shell != srun) here_find(hosts);
    if (!words_split(shell, &o->shell)) {
        run_say("--remote-shell: it names no program");
        return false;
    }
    return self_find(o);
}
