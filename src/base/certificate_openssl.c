/* SPDX-License-Identifier: BSD-3-Clause */

/* Certificates: files become a context of OpenSSL, which is proved to be whole before anybody is met with it. */

#include "base/certificate.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { CA, CERT, KEY, N_FILES };

static const char *const options[N_FILES] = {"tls_ca", "tls_cert", "tls_key"};

struct tutti_certificate {
    char *paths[N_FILES], *name; /* name: that a peer's certificate must bear, "": any */
    SSL_CTX *context;
    struct timespec changed[N_FILES]; /* the files, when they were read */
    uint64_t looked_ns;
    struct tutti_certificate *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tutti_certificate *all; /* under the lock, as what is in them */

/* A name is one of subjectAltName: a CA that signs for others may let them choose the subject. */
#define NAMES (X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)
#define LOOK_NS TUTTI_NS_PER_S /* between looks at whether the files were renewed */

SSL_CTX *tutti_tls_context_make(void)
{
    SSL_CTX *c = SSL_CTX_new(TLS_method());
    if (!c || !SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256") || !SSL_CTX_set_num_tickets(c, 0)) {
        SSL_CTX_free(c);
        return NULL;
    }
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    return c;
}

/* ---- reading the files ---- */

/* With what OpenSSL says of it. */
static enum tutti_status file_fail(const struct tutti_certificate *c, int file, const char *wanted)
{
    const unsigned long code = ERR_peek_last_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    tutti_fail(TUTTI_ERR_CONFIG, "%s=%.200s: %s (%s)", options[file], c->paths[file], wanted,
               text ? text : "it is not");
    ERR_clear_error();
    return TUTTI_ERR_CONFIG;
}

/* Nobody is there to be asked. */
static int no_pass_phrase(char *out, int capacity, int writes, void *arg)
{
    (void)out, (void)capacity, (void)writes, (void)arg;
    return -1;
}

static enum tutti_status files_look(struct tutti_certificate *c, struct timespec changed[N_FILES])
{
    for (int i = 0; i < N_FILES; i++) {
        struct stat st;
        FILE *f = fopen(c->paths[i], "re"); /* whether it can be read says the system better than OpenSSL */
        if (!f) return tutti_fail_errno(TUTTI_ERR_CONFIG, "%s=%.200s can not be read", options[i], c->paths[i]);
        const bool known = fstat(fileno(f), &st) == 0;
        fclose(f);
        changed[i] = known ? st.st_mtim : (struct timespec){0};
        if (known && i == KEY && !c->context && tutti_is_open_to_others(&st))
            tutti_log(TUTTI_LOG_WARN, "the key %s is open to other users: chmod 600 %s", c->paths[i], c->paths[i]);
    }
    return TUTTI_OK;
}

static enum tutti_status purpose_check(const struct tutti_certificate *c, SSL_CTX *context, X509 *own, int purpose)
{
    STACK_OF(X509) *chain = NULL;
    X509_STORE_CTX *look = X509_STORE_CTX_new();
    enum tutti_status status = TUTTI_OK;
    SSL_CTX_get0_chain_certs(context, &chain);
    if (!look || !X509_STORE_CTX_init(look, SSL_CTX_get_cert_store(context), own, chain)) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to look at the certificate %.200s", c->paths[CERT]);
    } else {
        X509_STORE_CTX_set_flags(look, X509_V_FLAG_PARTIAL_CHAIN);
        X509_STORE_CTX_set_purpose(look, purpose);
        if (X509_verify_cert(look) != 1)
            status =
                tutti_fail(TUTTI_ERR_CONFIG, "tls_cert=%.200s is no certificate of the CA of tls_ca=%.200s: %s",
                           c->paths[CERT], c->paths[CA], X509_verify_cert_error_string(X509_STORE_CTX_get_error(look)));
    }
    X509_STORE_CTX_free(look);
    return status;
}

/* This end's own certificate, as its peers will look at it: what they would refuse is told here. */
static enum tutti_status own_check(const struct tutti_certificate *c, SSL_CTX *context)
{
    static const int purposes[] = {X509_PURPOSE_SSL_CLIENT, X509_PURPOSE_SSL_SERVER}; /* it dials, and is dialed */
    X509 *own = SSL_CTX_get0_certificate(context);
    enum tutti_status status = TUTTI_OK;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(purposes) && status == TUTTI_OK; i++)
        status = purpose_check(c, context, own, purposes[i]);
    if (status == TUTTI_OK && c->name[0] && X509_check_host(own, c->name, 0, NAMES, NULL) != 1)
        status = tutti_fail(TUTTI_ERR_CONFIG, "tls_cert=%.200s does not bear the name tls_name=%.100s", c->paths[CERT],
                            c->name);
    ERR_clear_error();
    return status;
}

static enum tutti_status context_fill(const struct tutti_certificate *c, SSL_CTX *context)
{
    X509_VERIFY_PARAM *wanted = SSL_CTX_get0_param(context);
    ERR_clear_error();
    if (SSL_CTX_get_security_level(context) < 2) SSL_CTX_set_security_level(context, 2); /* RSA from 2,048 bits */
    SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN); /* what is in tls_cert is shown, and not what is in tls_ca */
    SSL_CTX_set_default_passwd_cb(context, no_pass_phrase);
    if (SSL_CTX_load_verify_locations(context, c->paths[CA], NULL) != 1)
        return file_fail(c, CA, "it holds no certificate of a CA");
    if (SSL_CTX_use_certificate_chain_file(context, c->paths[CERT]) != 1)
        return file_fail(c, CERT, "it holds no certificate that can be used");
    if (SSL_CTX_use_PrivateKey_file(context, c->paths[KEY], SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1)
        return file_fail(c, KEY, "it holds no key of the certificate of tls_cert, without a pass phrase");
    /* tls_ca is the one that counts, be it a root or signed by one. */
    X509_VERIFY_PARAM_set_flags(wanted, X509_V_FLAG_PARTIAL_CHAIN);
    X509_VERIFY_PARAM_set_hostflags(wanted, NAMES);
    if (c->name[0] && X509_VERIFY_PARAM_set1_host(wanted, c->name, 0) != 1)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a certificate");
    return own_check(c, context);
}

/* Under the lock. What is there stays where the files can not be used. */
static enum tutti_status context_read(struct tutti_certificate *c)
{
    struct timespec changed[N_FILES];
    TUTTI_TRY(files_look(c, changed));
    if (c->context && memcmp(changed, c->changed, sizeof changed) == 0) return TUTTI_OK;
    SSL_CTX *context = tutti_tls_context_make();
    if (!context) return tutti_fail(TUTTI_ERR_MEMORY, "OpenSSL can not make a context");
    const enum tutti_status status = context_fill(c, context);
    if (status < 0) {
        SSL_CTX_free(context);
        return status;
    }
    SSL_CTX_free(c->context);
    c->context = context;
    memcpy(c->changed, changed, sizeof changed);
    return TUTTI_OK;
}

SSL_CTX *tutti_certificate_context(struct tutti_certificate *c)
{
    const uint64_t now = tutti_now_ns();
    pthread_mutex_lock(&lock);
    if (now >= c->looked_ns + LOOK_NS) {
        c->looked_ns = now;
        if (context_read(c) < 0) tutti_log(TUTTI_LOG_WARN, "the certificate stays: %s", tutti_last_error()->text);
    }
    SSL_CTX *context = c->context;
    SSL_CTX_up_ref(context);
    pthread_mutex_unlock(&lock);
    return context;
}

/* ---- the list of them ---- */

static void certificate_free(struct tutti_certificate *c)
{
    for (int i = 0; i < N_FILES; i++) tutti_free(c->paths[i]);
    tutti_free(c->name);
    tutti_free(c);
}

static bool is_of(const struct tutti_certificate *c, const char *const paths[N_FILES], const char *name)
{
    for (int i = 0; i < N_FILES; i++)
        if (strcmp(c->paths[i], paths[i]) != 0) return false;
    return strcmp(c->name, name) == 0;
}

/* Under the lock. */
static enum tutti_status find(const char *const paths[N_FILES], const char *name, struct tutti_certificate **out)
{
    struct tutti_certificate *c = all;
    while (c && !is_of(c, paths, name)) c = c->next;
    if (c) {
        *out = c;
        return context_read(c);
    }
    if (!(c = tutti_alloc(sizeof *c))) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a certificate");
    bool whole = (c->name = tutti_text_copy(name)) != NULL;
    for (int i = 0; i < N_FILES; i++) whole = (c->paths[i] = tutti_text_copy(paths[i])) && whole;
    const enum tutti_status status =
        whole ? context_read(c) : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a certificate");
    if (status < 0) {
        certificate_free(c);
        return status;
    }
    c->looked_ns = tutti_now_ns();
    c->next = all;
    *out = all = c;
    return TUTTI_OK;
}

enum tutti_status tutti_certificate_find(const char *ca, const char *cert, const char *key, const char *name,
                                         struct tutti_certificate **out)
{
    const char *const paths[N_FILES] = {ca, cert, key};
    struct tutti_certificate *found = NULL;
    pthread_mutex_lock(&lock);
    const enum tutti_status status = find(paths, name, &found);
    pthread_mutex_unlock(&lock);
    if (status == TUTTI_OK) *out = found;
    return status;
}
