/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_CERTIFICATE_H
#define TUTTI_BASE_CERTIFICATE_H

/* What the files of TLS by OpenSSL share: contexts. tls.h is for all others. */

#include "base/tls.h"

#include <openssl/ssl.h>

/* One for TLS 1.3 with AES-128-GCM, and no way back into an old session. NULL: OpenSSL can not. */
SSL_CTX *tutti_tls_context_make(void);
/* That of a certificate, as its files are now: one more reference. NULL: it can not be. */
SSL_CTX *tutti_certificate_context(struct tutti_certificate *certificate);

#endif
