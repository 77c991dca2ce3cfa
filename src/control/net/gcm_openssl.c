/* SPDX-License-Identifier: BSD-3-Clause */

/* AES-128-GCM by OpenSSL, and the choice of the library. */

#include "base/base.h"
#include "control/net/cipher.h"
#include "control/net/gcm.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

struct gcm {
    struct tutti_gcm base; /* first */
    EVP_CIPHER_CTX *context;
};

static EVP_CIPHER_CTX *context_of(struct tutti_gcm *gcm)
{
    return ((struct gcm *)(void *)gcm)->context;
}

static void gcm_close(struct tutti_gcm *gcm)
{
    EVP_CIPHER_CTX_free(context_of(gcm)); /* which clears it */
    tutti_free(gcm);
}

static struct tutti_gcm *gcm_open(void)
{
    struct gcm *gcm = tutti_alloc(sizeof *gcm);
    if (!gcm) return NULL;
    gcm->context = EVP_CIPHER_CTX_new();
    if (gcm->context) return &gcm->base;
    tutti_free(gcm);
    return NULL;
}

/* What OpenSSL fetches by name is fetched once a key, and kept for its records. */
static bool gcm_key(struct tutti_gcm *gcm, const uint8_t key[TUTTI_GCM_KEY])
{
    return EVP_CipherInit_ex(context_of(gcm), EVP_aes_128_gcm(), NULL, key, NULL, gcm->encrypts) == 1;
}

static bool gcm_begin(struct tutti_gcm *gcm, const uint8_t nonce[TUTTI_GCM_NONCE], const uint8_t *clear, size_t n_clear)
{
    int n;
    return EVP_CipherInit_ex(context_of(gcm), NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(context_of(gcm), NULL, &n, clear, (int)n_clear) == 1;
}

static bool gcm_update(struct tutti_gcm *gcm, uint8_t *to, const uint8_t *from, size_t n)
{
    int moved;
    return EVP_CipherUpdate(context_of(gcm), to, &moved, from, (int)n) == 1;
}

static bool gcm_end(struct tutti_gcm *gcm, uint8_t tag[TUTTI_GCM_TAG])
{
    EVP_CIPHER_CTX *context = context_of(gcm);
    uint8_t nothing[16];
    int n;
    if (gcm->encrypts)
        return EVP_CipherFinal_ex(context, nothing, &n) == 1 &&
               EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, TUTTI_GCM_TAG, tag) == 1;
    return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, TUTTI_GCM_TAG, tag) == 1 &&
           EVP_CipherFinal_ex(context, nothing, &n) == 1;
}

const struct tutti_gcm_ops tutti_gcm_openssl = {.name = "OpenSSL",
                                                .open = gcm_open,
                                                .close = gcm_close,
                                                .key = gcm_key,
                                                .begin = gcm_begin,
                                                .update = gcm_update,
                                                .end = gcm_end};

/* ---- the choice ---- */

#define WIDE 0x30100000 /* from OpenSSL 3.1 on AES-GCM uses VAES */

const char *tutti_cipher_library(const char **why)
{
    const struct tutti_gcm_ops *mb = tutti_gcm_mb(why);
    if (mb || OpenSSL_version_num() >= WIDE) *why = NULL;
    return mb ? mb->name : OpenSSL_version(OPENSSL_VERSION);
}

struct tutti_gcm *tutti_gcm_open(bool encrypts)
{
    const char *why;
    const struct tutti_gcm_ops *ops = tutti_gcm_mb(&why);
    if (!ops) ops = &tutti_gcm_openssl;
    struct tutti_gcm *gcm = ops->open();
    if (gcm) gcm->ops = ops, gcm->encrypts = encrypts;
    return gcm;
}
