/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_NET_GCM_H
#define TUTTI_CONTROL_NET_GCM_H

/* AES-128-GCM (NIST SP 800-38D) of two libraries: Intel's ipsec-mb, opened at run time, and OpenSSL. Both give the same
 * bytes. The first takes a tenth of the time for a small record, and uses the wide instructions of newer CPUs (VAES),
 * which OpenSSL has from 3.1 on. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TUTTI_GCM_KEY 16
#define TUTTI_GCM_NONCE 12
#define TUTTI_GCM_TAG 16

struct tutti_gcm_ops;
struct tutti_gcm { /* one direction; one thread at a time */
    const struct tutti_gcm_ops *ops;
    bool encrypts;
};
/* False: the library refuses. */
struct tutti_gcm_ops {
    const char *name;                     /* for a person */
    struct tutti_gcm *(*open)(void);      /* NULL: no memory */
    void (*close)(struct tutti_gcm *gcm); /* no key stays in memory */
    bool (*key)(struct tutti_gcm *gcm, const uint8_t key[TUTTI_GCM_KEY]);
    /* A message: its nonce, and the bytes that its tag covers though they are in the clear; the rest in parts. */
    bool (*begin)(struct tutti_gcm *gcm, const uint8_t nonce[TUTTI_GCM_NONCE], const uint8_t *clear, size_t n_clear);
    bool (*update)(struct tutti_gcm *gcm, uint8_t *to, const uint8_t *from, size_t n); /* to: may be from */
    /* Encrypting: writes the tag. Decrypting: false if it is another one; takes as long wherever they differ. */
    bool (*end)(struct tutti_gcm *gcm, uint8_t tag[TUTTI_GCM_TAG]);
};

extern const struct tutti_gcm_ops tutti_gcm_openssl;
/* ipsec-mb: NULL, and why as words for a person, where the library or the CPU can not. Any thread. */
const struct tutti_gcm_ops *tutti_gcm_mb(const char **why);
/* Encrypts or decrypts, by the one that is quicker. NULL: no memory. */
struct tutti_gcm *tutti_gcm_open(bool encrypts);

#endif
