/* SPDX-License-Identifier: BSD-3-Clause */
/* The page, its texts and kills over HTTP/1.1, by libmicrohttpd, on connections that the server of calls hands on. The
 * daemon has no socket and no thread of its own: the loop runs it.
 *
 * With a token, reading takes it from all but this host, and a kill takes it from everybody, in a header that no page
 * of another site can make a browser send. Without one, all read and nobody kills. */
#include "ft/rpc/message.h"
#include "ft/serve/jobs.h"

#include <lighthouse_page.h> /* page.html, style.css, script.js: made by folder.cmake */
#include <microhttpd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KILL_NS (10 * TUTTI_NS_PER_S) /* within which a manager takes a kill */
#define MOST 64                       /* connections; beyond that the oldest goes */
#define MOST_OF_ONE 16u               /* ... of one address */
#define MEMORY ((size_t)32 << 10)
#define PATIENCE_S 10u

struct connection {
    struct connection *next; /* a younger one */
    int fd;
};
struct serve_http {
    struct tutti_loop_fd watch; /* first: the daemon's descriptor */
    struct tutti_loop_timer timer;
    struct tutti_serve *serve;
    struct MHD_Daemon *daemon;
    struct connection *connections; /* the oldest first */
    uint32_t n;
    struct {
        struct MHD_Connection *waits;      /* for its answer; NULL: nobody does, or not any more */
        struct tutti_rpc_channel *channel; /* to the group's manager; NULL: no kill is under way */
        struct tutti_loop_timer timer;     /* the channel is closed when nobody is inside it any more */
        bool done;                         /* `waits` is to be told */
        char why[512];
    } kill;
};

/* ---- answers ---- */
static const char *const always[][2] = {
    {"Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
                                "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cache-Control", "no-store"},
};

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type, const void *text, size_t n)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);

    if (!response) return MHD_NO;
    MHD_add_response_header(response, "Content-Type", type);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(always); i++) MHD_add_response_header(response, always[i][0], always[i][1]);
    if (status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, "WWW-Authenticate", "Basic realm=\"tutti lighthouse\", charset=\"UTF-8\"");
    const enum MHD_Result result = MHD_queue_response(c, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result say(struct MHD_Connection *c, unsigned status, const char *sentence)
{
    return answer(c, status, "text/plain; charset=utf-8", sentence, strlen(sentence));
}

/* ---- permissions ---- */
static bool is_this_host(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    static const uint8_t mapped[13] = {[10] = 0xff, [11] = 0xff, [12] = 127};

    if (!info) return false;
    if (info->client_addr->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)info->client_addr)->sin_addr.s_addr) >> 24 == 127;
    if (info->client_addr->sa_family != AF_INET6) return false;
    const struct in6_addr *address = &((const struct sockaddr_in6 *)info->client_addr)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(address) || memcmp(address, mapped, sizeof mapped) == 0;
}

/* In a time that says nothing but the token's length. */
static bool is_token(const struct serve_http *http, const char *text, size_t n)
{
    const char *token = http->serve->token;
    unsigned wrong = 0;

    if (n == 0 || n != strlen(token)) return false;
    for (size_t i = 0; i < n; i++) wrong |= (unsigned)(token[i] ^ text[i]);
    return wrong == 0;
}

static bool has_bearer(const struct serve_http *http, struct MHD_Connection *c)
{
    const char *header = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");

    return header && strncmp(header, "Bearer ", 7) == 0 && is_token(http, header + 7, strlen(header + 7));
}

static bool has_password(const struct serve_http *http, struct MHD_Connection *c)
{
    char *password = NULL, *user = MHD_basic_auth_get_username_password(c, &password);
    const bool good = password && is_token(http, password, strlen(password));

    MHD_free(user);
    MHD_free(password);
    return good;
}

/* A text costs its address as many units as it has KiB. */
static bool is_allowed(struct serve_http *http, struct MHD_Connection *c, size_t n)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);

    return info && http->serve->rpc &&
           tutti_rpc_server_allows(http->serve->rpc, info->client_addr, 1 + (uint32_t)(n >> 10));
}

/* ---- what there is ---- */
/* The leader has what is asked for. */
static enum MHD_Result point_to_leader(struct serve_http *http, struct MHD_Connection *c)
{
    const char *leader = serve_leader(http->serve);
    char text[512];

    if (!leader) return say(c, MHD_HTTP_SERVICE_UNAVAILABLE, "No lighthouse leads now.\n");
    snprintf(text, sizeof text, "This lighthouse does not lead: ask %s\n", leader);
    return say(c, MHD_HTTP_MISDIRECTED_REQUEST, text);
}

static enum MHD_Result text_of(struct serve_http *http, struct MHD_Connection *c, enum serve_kind kind,
                               const char *type)
{
    const char *name = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "job");
    struct serve_job *job = serve_job_find(http->serve, name ? name : SERVE_DEFAULT);
    const struct serve_shown *shown = job ? serve_show(job, kind) : NULL;

    if (!serve_leads(http->serve)) return point_to_leader(http, c);
    if (!job) return say(c, MHD_HTTP_NOT_FOUND, "There is no such job.\n");
    if (shown && !is_allowed(http, c, shown->n))
        return say(c, MHD_HTTP_TOO_MANY_REQUESTS, "This address has had its share for now.\n");
    if (!shown) return say(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "The lighthouse is out of memory.\n");
    return answer(c, MHD_HTTP_OK, type, shown->text, shown->n);
}

#define FILE_OF(stem) serve_##stem, serve_end_##stem
static const struct {
    const char *path, *type;
    const unsigned char *text, *end; /* NULL: kind */
    enum serve_kind kind;
} pages[] = {
    {"/", "text/html; charset=utf-8", FILE_OF(page), 0},
    {"/status", "text/html; charset=utf-8", FILE_OF(page), 0},
    {"/page.css", "text/css; charset=utf-8", FILE_OF(style), 0},
    {"/page.js", "text/javascript; charset=utf-8", FILE_OF(script), 0},
    {"/status.json", "application/json", NULL, NULL, SHOW_JSON},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", NULL, NULL, SHOW_METRICS},
};

static enum MHD_Result get(struct serve_http *http, struct MHD_Connection *c, const char *path)
{
    const bool open = http->serve->token[0] == '\0' || is_this_host(c);

    if (!open && !has_bearer(http, c) && !has_password(http, c))
        return say(c, MHD_HTTP_UNAUTHORIZED, "The token is missing: `tutti ft token` says it.\n");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(pages); i++) {
        if (strcmp(path, pages[i].path) != 0) continue;
        if (!pages[i].text) return text_of(http, c, pages[i].kind, pages[i].type);
        return answer(c, MHD_HTTP_OK, pages[i].type, pages[i].text, (size_t)(pages[i].end - pages[i].text));
    }
    return say(c, MHD_HTTP_NOT_FOUND, "There is no such page.\n");
}

/* ---- kill ---- */
static void run(struct serve_http *http);

static void close_kill(struct tutti_loop_timer *timer)
{
    struct serve_http *http = (struct serve_http *)((char *)timer - offsetof(struct serve_http, kill.timer));

    tutti_loop_stop(http->serve->loop, timer);
    tutti_rpc_channel_close(http->kill.channel);
    http->kill.channel = NULL;
}

/* A manager that exits at once does not answer: a connection that is lost is a kill, too. */
static void on_killed(void *arg, enum tutti_rpc_status status, const char *message, const uint8_t *bytes, size_t n)
{
    struct serve_http *http = arg;
    const bool killed = status == TUTTI_RPC_OK || strcmp(message, tutti_rpc_connection_lost) == 0;

    (void)bytes, (void)n;
    http->kill.done = true;
    snprintf(http->kill.why, sizeof http->kill.why, "%s%.480s\n",
             killed ? "Killed." : "Something went wrong: ", killed ? "" : message);
    http->kill.timer.due = close_kill;
    tutti_loop_at(http->serve->loop, &http->kill.timer, tutti_now_ns());
    if (http->kill.waits) MHD_resume_connection(http->kill.waits);
    run(http);
}

/* Tells the manager, at the address that the group gave, to end its process. False: there is no such member, or it can
 * not be told. */
static bool kill_group(struct serve_http *http, struct serve_job *job, const char *replica_id)
{
    const struct tutti_quorum *last = tutti_lighthouse_last(job->machine);
    const struct tutti_replica *member = last ? tutti_quorum_find(last, replica_id) : NULL;
    const struct tutti_rpc_channel_config config = {.loop = http->serve->loop,
                                                    .addresses = member ? member->address : "",
                                                    .max_message = 4096,
                                                    .secret = http->serve->config.secret,
                                                    .certificate = http->serve->config.certificate};
    Torchft__KillRequest request = TORCHFT__KILL_REQUEST__INIT;
    static char text[] = "killed from the lighthouse's page";

    if (!member || tutti_rpc_channel_open(&config, &http->kill.channel) < 0) return false;
    request.msg = text;
    const struct tutti_rpc_ask ask = {.path = "/torchft.ManagerService/Kill",
                                      .body = tutti_message_body(&request.base),
                                      .deadline_ns = tutti_now_ns() + KILL_NS,
                                      .done = on_killed,
                                      .arg = http};
    if (!tutti_rpc_send(http->kill.channel, &ask)) {
        close_kill(&http->kill.timer);
        return false;
    }
    serve_note(job, "%.64s is told to end by a visitor with the token", replica_id);
    return true;
}

/* "/replica/NAME/kill" */
static bool read_name(const char *path, char *out, size_t capacity)
{
    static const char front[] = "/replica/", end[] = "/kill";
    const size_t n = strlen(path), around = sizeof front - 1 + sizeof end - 1;

    if (n <= around || n - around >= capacity) return false;
    if (strncmp(path, front, sizeof front - 1) != 0 || strcmp(path + n - (sizeof end - 1), end) != 0) return false;
    memcpy(out, path + sizeof front - 1, n - around);
    out[n - around] = '\0';
    return true;
}

static enum MHD_Result kill_it(struct serve_http *http, struct MHD_Connection *c, const char *path)
{
    const char *job_name = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "job");
    struct serve_job *job = serve_job_find(http->serve, job_name ? job_name : SERVE_DEFAULT);
    char name[4097];

    if (http->kill.waits == c && http->kill.done) {
        http->kill.waits = NULL;
        return say(c, http->kill.why[0] == 'K' ? MHD_HTTP_OK : MHD_HTTP_INTERNAL_SERVER_ERROR, http->kill.why);
    }
    if (http->serve->token[0] == '\0')
        return say(c, MHD_HTTP_FORBIDDEN, "Nobody kills by an unauthenticated lighthouse: start it with a secret.\n");
    if (!has_bearer(http, c)) return say(c, MHD_HTTP_FORBIDDEN, "The token is wrong: `tutti ft token` says it.\n");
    if (!read_name(path, name, sizeof name)) return say(c, MHD_HTTP_NOT_FOUND, "There is no such page.\n");
    if (http->kill.waits || http->kill.channel)
        return say(c, MHD_HTTP_SERVICE_UNAVAILABLE, "Another kill is under way.\n");
    if (!job || !kill_group(http, job, name))
        return say(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "Something went wrong: there is no such member.\n");
    http->kill.waits = c, http->kill.done = false;
    MHD_suspend_connection(c);
    return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *body, size_t *n_body, void **state)
{
    static char seen;

    (void)version, (void)body;
    if (!*state || *n_body > 0) { /* its head alone, or a body, which nothing here needs */
        *state = &seen;
        *n_body = 0;
        return MHD_YES;
    }
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0) return get(arg, c, path);
    if (strcmp(method, "POST") == 0) return kill_it(arg, c, path);
    return say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET, HEAD and POST are all that there is.\n");
}

/* ---- connections ---- */
static void on_visit(void *arg, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what)
{
    struct serve_http *http = arg;
    struct connection *connection = what == MHD_CONNECTION_NOTIFY_STARTED ? tutti_alloc(sizeof(*connection)) : *context;
    struct connection **link = &http->connections;

    if (!connection) return;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        connection->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        while (*link) link = &(*link)->next;
        *link = connection;
        *context = connection;
        http->n++;
        return;
    }
    if (http->kill.waits == c) http->kill.waits = NULL; /* it is gone before its answer */
    while (*link != connection) link = &(*link)->next;
    *link = connection->next;
    http->n--;
    tutti_free(connection);
}

static void run(struct serve_http *http)
{
    MHD_UNSIGNED_LONG_LONG ms;

    MHD_run(http->daemon);
    if (MHD_get_timeout(http->daemon, &ms) == MHD_YES)
        tutti_loop_at(http->serve->loop, &http->timer, tutti_now_ns() + ms * TUTTI_NS_PER_MS);
    else
        tutti_loop_stop(http->serve->loop, &http->timer);
}

static void on_ready(struct tutti_loop_fd *w, uint32_t events)
{
    (void)events;
    run((struct serve_http *)w);
}

static void on_due(struct tutti_loop_timer *timer)
{
    run((struct serve_http *)((char *)timer - offsetof(struct serve_http, timer)));
}

void serve_http_take(void *arg, int fd)
{
    struct serve_http *http = ((struct tutti_serve *)arg)->http;
    struct sockaddr_storage from = {0};
    socklen_t n = sizeof from;

    if (!http || getpeername(fd, (struct sockaddr *)&from, &n) < 0) {
        close(fd);
        return;
    }
    if (http->n >= MOST) { /* the oldest is slow: it has had its time */
        shutdown(http->connections->fd, SHUT_RDWR);
        run(http);
    }
    if (MHD_add_connection(http->daemon, fd, (const struct sockaddr *)&from, n) == MHD_YES) run(http);
    /* else the daemon has closed it */
}

/* ---- life ---- */
const char *tutti_serve_page_missing(void)
{
    return "";
}

enum tutti_status serve_http_open(struct tutti_serve *serve, struct serve_http **out)
{
    struct serve_http *http = tutti_alloc(sizeof(*http));

    if (!http) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the lighthouse's page");
    http->serve = serve;
    http->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC,
                                    0, NULL, NULL, on_request, http, MHD_OPTION_CONNECTION_LIMIT, MOST + 8u,
                                    MHD_OPTION_PER_IP_CONNECTION_LIMIT, MOST_OF_ONE, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                    MEMORY, MHD_OPTION_CONNECTION_TIMEOUT, PATIENCE_S, MHD_OPTION_NOTIFY_CONNECTION,
                                    on_visit, http, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        http->daemon ? MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    http->watch = (struct tutti_loop_fd){.fd = info ? info->epoll_fd : -1, .ready = on_ready};
    http->timer.due = on_due;
    if (!info || tutti_loop_watch(serve->loop, &http->watch, EPOLLIN) < 0) {
        if (http->daemon) MHD_stop_daemon(http->daemon);
        tutti_free(http);
        return tutti_fail(TUTTI_ERR_SYSTEM, "libmicrohttpd can not serve the lighthouse's page");
    }
    *out = http;
    return TUTTI_OK;
}

void serve_http_close(struct serve_http *http)
{
    if (!http) return;
    tutti_loop_forget(http->serve->loop, &http->watch);
    tutti_loop_stop(http->serve->loop, &http->timer);
    if (http->kill.waits && !http->kill.done) { /* the daemon may not end while one sleeps */
        snprintf(http->kill.why, sizeof http->kill.why, "Something went wrong: the lighthouse ends\n");
        http->kill.done = true;
        MHD_resume_connection(http->kill.waits);
        MHD_run(http->daemon);
    }
    MHD_stop_daemon(http->daemon);
    close_kill(&http->kill.timer);
    tutti_free(http);
}
