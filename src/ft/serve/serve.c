/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of the server. */
#include "ft/serve/jobs.h"

#include "base/tls.h"
#include "ft/rpc/message.h"
#include "ft/serve/serve.h"

#include <tutti/ft.h>

#include <string.h>
#include <unistd.h>

#define MAX_CONNECTIONS 65536
#define MAX_CALLS 256                 /* of a connection */
#define PEER_CALLS 65536              /* ... of another lighthouse, which passes on those of all its groups */
#define MAX_MESSAGE ((size_t)1 << 20) /* of a request */

const char *tutti_serve_missing(void)
{
    return "";
}

enum tutti_status tutti_serve_token(const char *secret, char out[TUTTI_SERVE_TOKEN])
{
    static const char purpose[] = "tutti ft token 1";
    uint8_t mac[TUTTI_HMAC_BYTES];

    TUTTI_TRY(tutti_hmac(secret, strlen(secret), purpose, sizeof purpose - 1, mac));
    for (int i = 0; i < TUTTI_SERVE_TOKEN / 2; i++) snprintf(out + 2 * i, 3, "%02x", mac[i]);
    return TUTTI_OK;
}

static void open_page(void *arg)
{
    struct tutti_serve *serve = arg;

    if (serve_http_open(serve, &serve->http) < 0) tutti_log(TUTTI_LOG_WARN, "no page: %s", tutti_last_error()->text);
}

/* A process that speaks for others is known by the secret; without one they are on this host. */
static enum tutti_status check(const struct tutti_serve_config *config, const char *bind)
{
    if (!config->peers) return TUTTI_OK;
    if (!config->state) return tutti_fail(TUTTI_ERR_ARGUMENT, "peers need state: a folder for what each of them keeps");
    const bool proves = config->secret || config->certificate;
    if (!proves && !tutti_rpc_is_here(bind))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "peers without a secret listen on this host alone: bind is %s", bind);
    for (const char *at = config->peers + strspn(config->peers, ", "); *at && !proves;) {
        if (!tutti_rpc_is_here(strncmp(at, "http://", 7) == 0 ? at + 7 : at))
            return tutti_fail(
                TUTTI_ERR_ARGUMENT,
                "peers on other hosts need a secret, or a certificate: set TUTTI_SECRET_FILE or TUTTI_TLS_CA");
        at += strcspn(at, ", ");
        at += strspn(at, ", ");
    }
    return TUTTI_OK;
}

/* A server that listens on this host alone is reached by that name, others by the host's. */
static void name(struct tutti_serve *serve, const char *bind)
{
    const unsigned port = tutti_rpc_server_port(serve->rpc);
    char host[256] = "localhost";

    if (tutti_rpc_is_here(bind))
        snprintf(host, sizeof host, "%.*s", (int)(strrchr(bind, ':') - bind), bind);
    else
        gethostname(host, sizeof host - 1);
    snprintf(serve->address, sizeof serve->address, "http://%s:%u", host, port);
    if (!serve->config.secret && !serve->config.certificate)
        tutti_log(tutti_rpc_is_here(bind) ? TUTTI_LOG_INFO : TUTTI_LOG_WARN,
                  "the lighthouse at %s is unauthenticated: it believes all callers", serve->address);
}

static enum tutti_status open_parts(struct tutti_serve *serve, const char *bind)
{

    if (serve->config.secret) TUTTI_TRY(tutti_serve_token(serve->config.secret, serve->token));
    TUTTI_TRY(tutti_loop_open("tutti-lighthouse", &serve->loop));
    TUTTI_TRY(tutti_loop_start(serve->loop));
    if (serve->config.state)
        TUTTI_TRY(serve_council_open(serve));
    else if (!serve_job(serve, SERVE_DEFAULT))
        return tutti_last_error()->status;
    tutti_loop_run(serve->loop, open_page, serve);
    const struct tutti_rpc_server_config rpc = {.loop = serve->loop,
                                                .bind = bind,
                                                .methods = serve_methods,
                                                .n_methods = serve_n_methods,
                                                .arg = serve,
                                                .cancelled = serve_cancelled,
                                                .expired = serve_expired,
                                                .gone = serve_gone,
                                                .http = serve_http_take,
                                                .max_connections = MAX_CONNECTIONS,
                                                .max_calls = serve->config.peers ? PEER_CALLS : MAX_CALLS,
                                                .max_message = serve->config.peers ? SERVE_PEER_BYTES : MAX_MESSAGE,
                                                .secret = serve->config.secret,
                                                .certificate = serve->config.certificate,
                                                .rate = serve->config.rate};
    TUTTI_TRY(tutti_rpc_server_open(&rpc, &serve->rpc));
    name(serve, bind);
    return TUTTI_OK;
}

enum tutti_status tutti_serve_open(const struct tutti_serve_config *config, struct tutti_serve **out)
{
    struct tutti_serve *serve = tutti_alloc(sizeof(*serve));
    const char *bind = config->bind                            ? config->bind
                       : config->secret || config->certificate ? "[::]:29510"
                                                               : "localhost:29510";

    if (!serve) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the lighthouse");
    serve->config = *config;
    serve->config.bind = NULL;
    enum tutti_status status = check(config, bind);
    if (status >= 0) status = open_parts(serve, bind);
    if (status >= 0)
        *out = serve;
    else
        tutti_serve_close(serve);
    return status;
}

const char *tutti_serve_address(const struct tutti_serve *serve)
{
    return serve->address;
}

static void end_people(void *arg)
{
    struct tutti_serve *serve = arg;

    serve_council_stop(serve);
    serve_http_close(serve->http);
    serve->http = NULL;
}

static void end_jobs(void *arg)
{
    struct tutti_serve *serve = arg;

    serve_absent_end(serve);
    serve_forwards_end(serve);
    serve_jobs_end(arg);
}

void tutti_serve_close(struct tutti_serve *serve)
{
    if (!serve) return;
    const struct tutti_error why = *tutti_last_error();
    if (serve->loop) tutti_loop_run(serve->loop, end_people, serve);
    tutti_rpc_server_close(serve->rpc);
    if (serve->loop) tutti_loop_run(serve->loop, end_jobs, serve);
    if (serve->loop) serve_council_close(serve);
    if (serve->loop) tutti_loop_close(serve->loop);
    tutti_free(serve);
    if (why.status < 0) tutti_fail_record(&why);
}

/* ---- public calls: a lighthouse in this process ---- */
struct tutti_ft_lighthouse {
    struct tutti_serve *serve;
    char secret[TUTTI_MESSAGE_SECRET];
};

static void forget(struct tutti_ft_lighthouse *lighthouse)
{
    explicit_bzero(lighthouse->secret, sizeof lighthouse->secret);
    tutti_free(lighthouse);
}

enum tutti_status tutti_ft_lighthouse_open(const struct tutti_ft_lighthouse_config *config,
                                           struct tutti_ft_lighthouse **out)
{
    if (!config || !out)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_lighthouse_open: %s is NULL", config ? "out" : "config");
    if (config->size != sizeof(*config))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_lighthouse_open: config.size is wrong: begin with "
                                              "TUTTI_FT_LIGHTHOUSE_CONFIG_INIT");
    struct tutti_ft_lighthouse *lighthouse = tutti_alloc(sizeof(*lighthouse));
    if (!lighthouse) return tutti_fail(TUTTI_ERR_MEMORY, "ft_lighthouse_open: out of memory");
    struct tutti_certificate *certificate = NULL;
    enum tutti_status status = tutti_message_secret(config->secret, lighthouse->secret);
    if (status >= 0 && !config->secret) status = tutti_certificate_of(NULL, &certificate);
    const struct tutti_serve_config serve = {
        .bind = config->bind,
        .secret = lighthouse->secret[0] ? lighthouse->secret : NULL,
        .certificate = certificate,
        .rate = TUTTI_SERVE_RATE,
        .options = {.min_replicas = config->min_replicas,
                    .join_timeout_ns = config->join_timeout_ns,
                    .heartbeat_timeout_ns = config->heartbeat_timeout_ns,
                    .tick_ns = config->tick_ns,
                    .forget_ns = config->heartbeat_timeout_ns + TUTTI_SERVE_FORGET_NS,
                    .max_groups = TUTTI_SERVE_GROUPS}};
    if (status >= 0) status = tutti_serve_open(&serve, &lighthouse->serve);
    if (status >= 0)
        *out = lighthouse;
    else
        forget(lighthouse);
    return status;
}

const char *tutti_ft_lighthouse_address(const struct tutti_ft_lighthouse *lighthouse)
{
    return tutti_serve_address(lighthouse->serve);
}

void tutti_ft_lighthouse_close(struct tutti_ft_lighthouse *lighthouse)
{
    if (!lighthouse) return;
    tutti_serve_close(lighthouse->serve);
    forget(lighthouse);
}
