/* SPDX-License-Identifier: BSD-3-Clause */

/* Stores by address. Each kind is a row: the scheme, and who opens what stands behind it. */

#include "store/open.h"
#include "store/store_codec.h"

#include <stdlib.h>
#include <string.h>

static enum tutti_status open_tcp(const char *rest, const char *secret, struct tutti_certificate *certificate,
                                  bool meets, uint64_t deadline_ns, struct tutti_store *out)
{
    (void)meets; /* its keys go with the server */
    char host[256];
    const char *colon = strrchr(rest, ':');
    const char *end = colon;
    if (!colon || colon == rest || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strlen(colon + 1) > 5 || strtol(colon + 1, NULL, 10) > UINT16_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the store's address \"tcp://%.200s\" is not of the form tcp://host:port",
                          rest);
    if (rest[0] == '[' && colon[-1] == ']') rest++, end--; /* [::1]:port */
    size_t n = (size_t)(end - rest);
    if (n == 0 || n >= sizeof host)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the store's address has a host name of %zu characters", n);
    memcpy(host, rest, n);
    host[n] = '\0';
    return tutti_store_tcp_open(host, colon + 1, secret, certificate, deadline_ns, out);
}

/* By whom a file may be changed says the file system. */
static enum tutti_status open_file(const char *rest, const char *secret, struct tutti_certificate *certificate,
                                   bool meets, uint64_t deadline_ns, struct tutti_store *out)
{
    (void)deadline_ns, (void)certificate; /* nothing to wait for */
    if (rest[0] != '/')
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "the store's address \"file://%.200s\" needs an absolute path: file:///path", rest);
    return tutti_store_file_open(rest, secret, meets, out);
}

static const struct {
    const char *scheme;
    enum tutti_status (*open)(const char *rest, const char *secret, struct tutti_certificate *certificate, bool meets,
                              uint64_t deadline_ns, struct tutti_store *out);
} store_table[] = {
    {"tcp://", open_tcp},
    {"file://", open_file},
};

enum tutti_status tutti_store_open_by(const char *address, const char *secret, struct tutti_certificate *certificate,
                                      bool meets, uint64_t deadline_ns, struct tutti_store *out)
{
    if (!address || !out) return tutti_fail(TUTTI_ERR_ARGUMENT, "store_open: %s is NULL", address ? "out" : "address");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(store_table); i++) {
        size_t n = strlen(store_table[i].scheme);
        if (strncmp(address, store_table[i].scheme, n) == 0)
            return store_table[i].open(address + n, secret, certificate, meets, deadline_ns, out);
    }
    return tutti_fail(TUTTI_ERR_ARGUMENT, "the store's address \"%.200s\" is neither tcp://host:port nor file:///path",
                      address);
}

enum tutti_status tutti_store_open(const char *address, const char *secret, uint64_t deadline_ns,
                                   struct tutti_store *out)
{
    struct tutti_certificate *certificate;
    TUTTI_TRY(tutti_certificate_beside(secret, &certificate));
    return tutti_store_open_by(address, secret, certificate, false, deadline_ns, out);
}

void tutti_store_close(struct tutti_store *store)
{
    if (!store || !store->ops) return;
    if (store->ops->close) store->ops->close(store->self);
    memset(store, 0, sizeof *store);
}
