/* SPDX-License-Identifier: BSD-3-Clause */

/* AES-128-GCM by Intel's ipsec-mb (libIPSec_MB.so.1), opened at run time. Its table of functions is laid out as in its
 * header, so the library must be of the header's version, and its own test must have passed. gcm_mb_none.c is built in
 * its place where the header is missing. */

#include "base/base.h"
#include "base/symbols.h"
#include "control/net/gcm.h"

#include <dlfcn.h>
#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

static struct {
    unsigned (*version)(void);
    IMB_MGR *(*create)(uint64_t flags);
    void (*init)(IMB_MGR *manager, IMB_ARCH *arch);
} library;
static IMB_MGR *manager; /* constant once it is made: its calls for GCM use it as a table alone */
static const char *lacks = "the library libIPSec_MB.so.1 is missing";

static void load(void)
{
    const uint64_t wanted = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
    void *handle = dlopen("libIPSec_MB.so.1", RTLD_NOW | RTLD_LOCAL);
    static const struct tutti_symbol calls[] = {{"imb_get_version", offsetof(__typeof__(library), version), true},
                                                {"alloc_mb_mgr", offsetof(__typeof__(library), create), true},
                                                {"init_mb_mgr_auto", offsetof(__typeof__(library), init), true}};
    if (!handle) return;
    lacks = "the library libIPSec_MB.so.1 is of another version than the header of the build";
    if (tutti_symbols_find(handle, calls, TUTTI_ARRAY_LEN(calls), &library)) return;
    if (library.version() >> 8 != IMB_VERSION_NUM >> 8) return;
    lacks = "this CPU has no instructions for AES";
    IMB_MGR *m = library.create(0);
    if (!m || (m->features & wanted) != wanted) return;
    library.init(m, NULL);
    lacks = "the library libIPSec_MB.so.1 does not pass its own test";
    if ((m->features & IMB_FEATURE_SELF_TEST) && !(m->features & IMB_FEATURE_SELF_TEST_PASS)) return;
    lacks = NULL;
    manager = m;
}

/* ---- messages ---- */

struct gcm {
    struct tutti_gcm base; /* first */
    struct gcm_context_data message;
    _Alignas(64) struct gcm_key_data key; /* as its functions want it */
};

static struct gcm *gcm_of(struct tutti_gcm *gcm)
{
    return (struct gcm *)(void *)gcm;
}

static struct tutti_gcm *gcm_open(void)
{
    struct gcm *gcm = aligned_alloc(_Alignof(struct gcm), sizeof *gcm);
    return gcm ? &gcm->base : NULL;
}

static void gcm_close(struct tutti_gcm *gcm)
{
    explicit_bzero(gcm, sizeof(struct gcm));
    free(gcm);
}

static bool gcm_key(struct tutti_gcm *gcm, const uint8_t key[TUTTI_GCM_KEY])
{
    IMB_AES128_GCM_PRE(manager, key, &gcm_of(gcm)->key);
    return true;
}

static bool gcm_begin(struct tutti_gcm *gcm, const uint8_t nonce[TUTTI_GCM_NONCE], const uint8_t *clear, size_t n_clear)
{
    struct gcm *g = gcm_of(gcm);
    IMB_AES128_GCM_INIT(manager, &g->key, &g->message, nonce, clear, n_clear);
    return true;
}

static bool gcm_update(struct tutti_gcm *gcm, uint8_t *to, const uint8_t *from, size_t n)
{
    struct gcm *g = gcm_of(gcm);
    if (gcm->encrypts)
        IMB_AES128_GCM_ENC_UPDATE(manager, &g->key, &g->message, to, from, n);
    else
        IMB_AES128_GCM_DEC_UPDATE(manager, &g->key, &g->message, to, from, n);
    return true;
}

static bool gcm_end(struct tutti_gcm *gcm, uint8_t tag[TUTTI_GCM_TAG])
{
    struct gcm *g = gcm_of(gcm);
    uint8_t right[TUTTI_GCM_TAG];
    if (gcm->encrypts) {
        IMB_AES128_GCM_ENC_FINALIZE(manager, &g->key, &g->message, tag, TUTTI_GCM_TAG);
        return true;
    }
    IMB_AES128_GCM_DEC_FINALIZE(manager, &g->key, &g->message, right, TUTTI_GCM_TAG);
    return CRYPTO_memcmp(right, tag, TUTTI_GCM_TAG) == 0;
}

static const struct tutti_gcm_ops ops = {.name = "ipsec-mb",
                                         .open = gcm_open,
                                         .close = gcm_close,
                                         .key = gcm_key,
                                         .begin = gcm_begin,
                                         .update = gcm_update,
                                         .end = gcm_end};

const struct tutti_gcm_ops *tutti_gcm_mb(const char **why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *why = lacks;
    return manager ? &ops : NULL;
}
