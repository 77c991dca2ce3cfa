/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STORE_H
#define TUTTI_STORE_H

/* A store is where ranks that know nothing of one another meet: short keys, short values. The caller may bring his own
 * (PyTorch's, etcd, ...) as a table of functions; tutti brings a TCP and a file store. */

#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_STORE_KEY_MAX 255
#define TUTTI_STORE_VALUE_MAX 65536

/* Every function may be called from any thread, several at once. deadline_ns is absolute on CLOCK_MONOTONIC. */
struct tutti_store_ops {
    size_t size; /* sizeof(struct tutti_store_ops): calls may be added at the end */
    /* Stores bytes under key, replacing. */
    enum tutti_status (*set)(void *store, const char *key, const void *value, size_t bytes);
    /* Waits until key exists, then copies at most capacity bytes and writes the value's full length to *bytes.
     * TUTTI_ERR_TIMEOUT at the deadline, TUTTI_ERR_TRUNCATED if capacity is too small. */
    enum tutti_status (*get)(void *store, const char *key, void *value, size_t capacity, size_t *bytes,
                             uint64_t deadline_ns);
    /* Waits until key exists. */
    enum tutti_status (*wait)(void *store, const char *key, uint64_t deadline_ns);
    /* Adds to a decimal counter (absent = 0), writes the new value. */
    enum tutti_status (*add)(void *store, const char *key, int64_t delta, int64_t *value);
    /* Removes key; *existed may be NULL. */
    enum tutti_status (*remove)(void *store, const char *key, bool *existed);
    /* Releases the store. NULL when the caller keeps it. */
    void (*close)(void *store);
};

struct tutti_store {
    const struct tutti_store_ops *ops;
    void *self; /* passed back as the first argument */
};

/* Opens a store by address: "tcp://host:port" (a client of a server that runs elsewhere), "file:///path" (a directory
 * on a file system that all ranks share). secret: frames are authenticated with HMAC-SHA256. NULL: tcp proves itself by
 * the certificate of TUTTI_TLS_CA, where there is one, else it is unauthenticated; so does a server. Blocks
 * until deadline_ns. Errors: ARGUMENT, SYSTEM, AUTH, TIMEOUT. Close with tutti_store_close. */
TUTTI_API enum tutti_status tutti_store_open(const char *address, const char *secret, uint64_t deadline_ns,
                                             struct tutti_store *out) TUTTI_MUST_USE;
TUTTI_API void tutti_store_close(struct tutti_store *store);

/* Serves a TCP store from a thread of this process on host:port (port 0: any free one); *out owns the thread. */
struct tutti_store_server;
TUTTI_API enum tutti_status tutti_store_server_open(const char *host, uint16_t port, const char *secret,
                                                    struct tutti_store_server **out) TUTTI_MUST_USE;
TUTTI_API uint16_t tutti_store_server_port(const struct tutti_store_server *server);
TUTTI_API void tutti_store_server_close(struct tutti_store_server *server);

#ifdef __cplusplus
}
#endif

#endif
