/* SPDX-License-Identifier: BSD-3-Clause */
/* A run: blows fall on members, and their steps are watched. */
#include "chaos.h"

#include "base/config.h"
#include "ft/serve/serve.h"
#include "tools/tutti/run/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what happens, as it happens: one line each to stderr ---- */
void chaos_say(const char *format, ...)
{
    char line[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "tutti chaos: %s\n", line);
}

/* ---- the loop over members, blows and what is seen ---- */
extern char **environ;

#define LOOK_NS (20 * TUTTI_NS_PER_MS)
#define FIRST_STEP_NS (300 * TUTTI_NS_PER_S) /* a job that has not begun to train by then never does */
#define ALL_MEET_NS (30 * TUTTI_NS_PER_S)    /* from the first step until all groups are in one */

struct chaos {
    const struct chaos_options *options;
    struct chaos_member members[CHAOS_MEMBERS]; /* lighthouses, then groups */
    uint32_t n;
    char addresses[CHAOS_ADDRESSES]; /* the lighthouses' */
    char self[4096];
    char token[TUTTI_SERVE_TOKEN]; /* for the lighthouses' pages; "": there is no secret */
    bool over;                     /* a group is through: nobody is struck or started again */
    char folder[32];               /* what lighthouses keep, and what groups report; "": not made */
    struct chaos_source source;
    struct chaos_record record;
    uint64_t begin_ns; /* when the run began */
    unsigned ended;    /* groups that failed by themselves */
};

static volatile sig_atomic_t told_to_end;
static void on_signal(int number)
{
    told_to_end = number;
}

static double since(const struct chaos *c)
{
    return (double)(tutti_now_ns() - c->begin_ns) / 1e9;
}

/* ---- members ---- */
static bool needs_net(const struct chaos_options *o)
{
    for (uint32_t i = 0; i < o->n_kinds; i++)
        if (chaos_rows[o->kinds[i]].how == BY_CUT) return true;
    return false;
}

static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof address;

    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, n) == 0) getsockname(fd, (struct sockaddr *)&address, &n);
    if (fd >= 0) close(fd);
    return ntohs(address.sin_port);
}

static char *text(const char *format, ...) TUTTI_PRINTF(1, 2);
static char *text(const char *format, ...)
{
    char *out = NULL;
    va_list arguments;

    va_start(arguments, format);
    if (vasprintf(&out, format, arguments) < 0) out = NULL;
    va_end(arguments);
    return out;
}

/* Our environment with more; strings and array live as long as the process. */
static char **environment(char *const *more, size_t n_more)
{
    size_t n = 0, k = 0;

    while (environ[n]) n++;
    char **out = calloc(n + n_more + 1, sizeof *out);
    for (size_t i = 0; out && i < n; i++) {
        bool again = false;
        const size_t name = strcspn(environ[i], "=") + 1;
        for (size_t m = 0; m < n_more; m++) again |= strncmp(environ[i], more[m], name) == 0;
        if (!again) out[k++] = environ[i];
    }
    for (size_t m = 0; out && m < n_more; m++) out[k++] = more[m];
    return out;
}

static void name_member(struct chaos *c, struct chaos_member *m, const char *kind, uint32_t number, bool net)
{
    snprintf(m->name, sizeof m->name, "%s %u", kind, number);
    if (net) snprintf(m->address, sizeof m->address, "10.79.0.%u", 2 + (unsigned)(m - c->members));
}

static bool make_lighthouse(struct chaos *c, uint32_t i, bool net)
{
    struct chaos_member *m = &c->members[c->n++];
    const struct chaos_options *o = c->options;
    const size_t used = strlen(c->addresses);
    char *program[] = {c->self, (char *)"lighthouse", NULL};
    char *words[] = {(char *)"--bind", NULL, (char *)"--min-replicas", (char *)(uintptr_t)o->min_replicas};
    size_t n = 0;

    name_member(c, m, "lighthouse", i, net);
    words[1] = net ? text("%s:29510", m->address) : text("localhost:%u", free_port());
    m->argv = calloc(TUTTI_ARRAY_LEN(words) + o->lighthouse_options.n + 9, sizeof *m->argv); /* 6 of introduce() */
    m->environment = environment(NULL, 0);
    if (!words[1] || !m->argv || !m->environment) return false;
    if (o->program) program[0] = (char *)(uintptr_t)o->program, program[1] = NULL;
    for (; program[n]; n++) m->argv[n] = program[n];
    for (size_t k = 0; k < TUTTI_ARRAY_LEN(words); k++) m->argv[n++] = words[k];
    for (size_t k = 0; k < o->lighthouse_options.n; k++)
        m->argv[n++] = (char *)(uintptr_t)o->lighthouse_options.values[k];
    snprintf(c->addresses + used, sizeof c->addresses - used, "%shttp://%s", used ? "," : "", words[1]);
    return true;
}

/* Several stand for one another. */
static bool introduce(struct chaos *c)
{
    const uint32_t lighthouses = c->n;

    if (lighthouses < 2) return true;
    for (uint32_t i = 0; i < lighthouses; i++) {
        char *words[] = {(char *)"--peers", c->addresses,      (char *)"--number",
                         text("%u", i),     (char *)"--state", text("%s/%u", c->folder, i)};
        char **end = c->members[i].argv;
        while (*end) end++;
        if (!words[3] || !words[5]) return false;
        memcpy(end, words, sizeof words);
    }
    return true;
}

/* The folder has folders of files. */
static void forget_folder(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    char inner[512];

    while (folder && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (unlink(inner) < 0) forget_folder(inner);
    }
    if (folder) closedir(folder);
    rmdir(path);
}

/* All members share the secret of our environment. Lighthouses that stand for one another in networks of their own need
 * one: where the user has none it is made. */
static bool share_secret(struct chaos *c, bool net)
{
    struct tutti_config config;
    uint8_t random[32];
    char text[2 * sizeof random + 1];

    if (tutti_config_init(&config, NULL, 0) < 0) return chaos_say("%s", tutti_last_error()->text), false;
    const char *secret = config.text[TUTTI_OPT_secret];
    const bool certified = config.text[TUTTI_OPT_tls_ca][0] != 0;
    if (!secret[0] && !certified && net && c->options->n_lighthouses > 1 &&
        tutti_random_bytes(random, sizeof random) >= 0) {
        for (size_t i = 0; i < sizeof random; i++) snprintf(text + 2 * i, 3, "%02x", random[i]);
        setenv("TUTTI_SECRET", text, 1);
        secret = text;
    }
    const bool well = !secret[0] || tutti_serve_token(secret, c->token) >= 0;
    if (!well) chaos_say("%s", tutti_last_error()->text);
    tutti_config_fini(&config);
    return well;
}

/* A group is a job of `tutti run`, which gives its ranks what torchrun gives them; but no secret of its own, which
 * would be no other group's. */
static bool make_group(struct chaos *c, uint32_t i, bool net)
{
    struct chaos_member *m = &c->members[c->n++];
    const struct chaos_options *o = c->options;
    struct chaos_report *report = &c->source.reports[c->source.n_reports++];
    snprintf(report->path, sizeof report->path, "%s/steps.%u", c->folder, i);
    report->fd = -1;
    char *more[] = {text("REPLICA_GROUP_ID=%u", i), text("NUM_REPLICA_GROUPS=%u", o->n_groups),
                    text("TORCHFT_LIGHTHOUSE=%s", c->addresses), text(CHAOS_STEPS_VARIABLE "=%s", report->path)};
    char *words[] = {c->self,         (char *)"run",           (char *)"-n", text("%u", o->n_ranks),
                     (char *)"--env", (char *)"TUTTI_SECRET=", (char *)"--"};
    size_t n = TUTTI_ARRAY_LEN(words), n_program = 0;

    name_member(c, m, "group", i, net);
    m->is_group = true;
    while (o->argv[n_program]) n_program++;
    m->argv = calloc(n + n_program + 1, sizeof *m->argv);
    m->environment = environment(more, TUTTI_ARRAY_LEN(more));
    for (size_t k = 0; k < n; k++)
        if (!words[k]) return false;
    for (size_t k = 0; k < TUTTI_ARRAY_LEN(more); k++)
        if (!more[k]) return false;
    if (!m->argv || !m->environment) return false;
    if (c->token[0]) words[4] = words[n - 1], n = 5;
    memcpy(m->argv, words, n * sizeof *words);
    memcpy(m->argv + n, o->argv, n_program * sizeof *o->argv);
    return true;
}

static bool make_members(struct chaos *c)
{
    const struct chaos_options *o = c->options;
    const bool net = needs_net(o);

    snprintf(c->folder, sizeof c->folder, "/tmp/tutti_chaos_XXXXXX");
    if (!mkdtemp(c->folder)) return c->folder[0] = '\0', chaos_say("no folder in /tmp: %s", strerror(errno)), false;
    if (!share_secret(c, net) || (net && !chaos_net_open())) return false;
    if (o->lighthouse) snprintf(c->addresses, sizeof c->addresses, "%s", o->lighthouse);
    for (uint32_t i = 0; i < o->n_lighthouses; i++)
        if (!make_lighthouse(c, i, net)) return false;
    if (!introduce(c)) return false;
    for (uint32_t i = 0; i < o->n_groups; i++)
        if (!make_group(c, i, net)) return false;
    for (uint32_t i = 0; i < c->n; i++)
        if (!chaos_start(&c->members[i])) return false;
    return true;
}

/* ---- the loop ---- */
/* What was done to that member last is over. */
static void note_again(struct chaos *c, const struct chaos_member *m)
{
    const uint32_t number = (uint32_t)(m - c->members), n = c->options->n_lighthouses;
    for (size_t i = c->record.n_struck; i-- > 0;) {
        struct chaos_struck *s = &c->record.struck[i];
        if (s->member + (chaos_rows[s->kind].whom == A_LIGHTHOUSE ? 0 : n) != number) continue;
        if (s->again_ns == 0) s->again_ns = tutti_now_ns();
        return;
    }
}

/* Starts again what was killed or ended, and lets go what was held. False: no group is left to run. */
static bool look_after(struct chaos *c)
{
    const uint64_t now = tutti_now_ns();
    bool any = false;

    for (uint32_t i = 0; i < c->n; i++) {
        struct chaos_member *m = &c->members[i];
        int status;
        if (chaos_ended(m, &status)) {
            m->done = m->is_group && (c->over || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
            c->over |= m->done;
            if (!m->done && m->again_ns == 0) {
                if (!m->struck)
                    chaos_say("%.1f s: %s ended by itself with status %d", since(c), m->name, status), c->ended++;
                m->again_ns = now + c->options->pause_ns;
            }
        }
        if (m->again_ns > 0 && now >= m->again_ns && !m->done && (m->pid > 0 || !m->is_group || !c->over)) {
            chaos_signal(m->stopped, SIGCONT);
            if (m->cut) chaos_net_cut(m->address, false);
            if (m->pid == 0) chaos_start(m);
            m->stopped = 0, m->cut = false;
            m->again_ns = 0;
            note_again(c, m);
            chaos_say("%.1f s: %s again", since(c), m->name);
        }
        any |= m->is_group && (c->over ? m->pid > 0 : !m->done);
    }
    return any;
}

/* By the blow's kind, which began now. False: it struck nobody. */
static bool strike_one(struct chaos *c, struct chaos_member *m, const struct chaos_blow *blow)
{
    const struct chaos_row *row = &chaos_rows[blow->kind];
    const pid_t pid = row->whom == A_RANK ? chaos_rank(m, blow->rank) : m->pid;
    const uint64_t now = tutti_now_ns();

    if (pid <= 0) return false; /* the rank has not begun, or has ended */
    if (row->how == BY_CUT && !chaos_net_cut(m->address, true)) return false;
    if (row->how == BY_CUT)
        m->cut = true;
    else
        chaos_signal(pid, row->how == BY_STOP ? SIGSTOP : SIGKILL);
    if (row->how == BY_STOP) m->stopped = pid;
    m->struck = row->whom == A_RANK && row->how == BY_KILL; /* its launcher ends the others */
    if (!m->struck) m->again_ns = now + (m->stopped || m->cut ? c->options->hold_ns : c->options->pause_ns);
    return true;
}

static void strike(struct chaos *c, const struct chaos_blow *blow)
{
    const struct chaos_row *row = &chaos_rows[blow->kind];
    struct chaos_member *m = &c->members[blow->member + (row->whom == A_LIGHTHOUSE ? 0 : c->options->n_lighthouses)];
    struct chaos_record *r = &c->record;

    if (m->pid == 0 || m->stopped || m->cut || m->struck) return; /* it is down already */
    if (!strike_one(c, m, blow)) return;
    if (r->n_struck < TUTTI_ARRAY_LEN(r->struck))
        r->struck[r->n_struck++] = (struct chaos_struck){
            .at_ns = tutti_now_ns(), .kind = blow->kind, .member = blow->member, .rank = blow->rank};
    if (row->whom == A_RANK)
        chaos_say("%.1f s: %s %u of %s", since(c), row->name, blow->rank, m->name);
    else
        chaos_say("%.1f s: %s %s", since(c), row->name,
                  row->whom == A_LIGHTHOUSE ? m->name + strlen("lighthouse ") : m->name);
}

static bool look(struct chaos *c)
{
    const bool going = look_after(c);

    if (!chaos_steps_look(&c->source, &c->record)) return false;
    tutti_sleep_ns(LOOK_NS);
    return going && !told_to_end;
}

/* Blows from begin_ns on. */
static void go(struct chaos *c)
{
    const struct chaos_options *o = c->options;
    uint64_t state = o->seed;
    uint32_t number = 0;
    struct chaos_blow blow = chaos_next(o, &state, NULL, number);

    c->record.begin_ns = tutti_now_ns();
    while (tutti_now_ns() < c->record.begin_ns + o->chaos_ns && look(c)) {
        if (c->over || tutti_now_ns() < c->record.begin_ns + blow.at_ns) continue;
        strike(c, &blow);
        blow = chaos_next(o, &state, &blow, ++number);
    }
    c->record.end_ns = tutti_now_ns();
}

static bool all_met(const struct chaos_record *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->steps[i].groups == UINT64_MAX >> (64 - r->n_groups)) return true;
    return false;
}

/* Until three steps are done, and one by all groups. Where all never meet in a step, as with spares, it is time enough
 * after a while. False: a sentence was printed. */
static bool await_steps(struct chaos *c)
{
    const struct chaos_record *r = &c->record;
    const uint64_t limit = tutti_now_ns() + FIRST_STEP_NS;
    uint64_t enough = 0;

    while (r->n < 3 || (!all_met(r) && tutti_now_ns() < enough)) {
        if (!look(c) || tutti_now_ns() > limit) {
            chaos_say("the groups did not begin to train within %.0f s", since(c));
            return false;
        }
        if (r->n > 0 && enough == 0) enough = tutti_now_ns() + ALL_MEET_NS;
    }
    return true;
}

static int run(struct chaos *c)
{
    struct chaos_record *r = &c->record;

    r->n_groups = c->options->n_groups;
    c->source.addresses = c->addresses, c->source.token = c->token;
    if (!make_members(c) || !await_steps(c)) return TUTTI_EXIT_WRONG;
    r->calm_ns = tutti_now_ns();
    chaos_say("%.1f s: all train", since(c));
    while (tutti_now_ns() < r->calm_ns + c->options->calm_ns)
        if (!look(c)) break;
    go(c);
    const struct chaos_told told = {.options = c->options,
                                    .record = r,
                                    .verdict = chaos_judge(r),
                                    .ended = c->ended,
                                    .by_programs = c->source.told};
    if (!chaos_show(&told)) return TUTTI_EXIT_WRONG;
    return told_to_end || told.verdict.calm_rate <= 0 ? TUTTI_EXIT_WRONG : TUTTI_EXIT_OK;
}

int chaos_run(const struct chaos_options *options)
{
    struct chaos *c = tutti_alloc(sizeof *c);
    const struct sigaction end = {.sa_handler = on_signal};
    ssize_t n;
    int status = TUTTI_EXIT_WRONG;

    if (!c) return TUTTI_EXIT_WRONG;
    c->options = options;
    c->begin_ns = tutti_now_ns();
    n = readlink("/proc/self/exe", c->self, sizeof c->self - 1);
    c->self[n > 0 ? n : 0] = '\0';
    run_adopt();
    sigaction(SIGINT, &end, NULL), sigaction(SIGTERM, &end, NULL);
    status = run(c);
    chaos_end_all(c->members, c->n);
    chaos_steps_close(&c->source);
    if (c->folder[0]) forget_folder(c->folder);
    free(c->record.steps);
    tutti_free(c);
    return status;
}
