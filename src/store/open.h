/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STORE_OPEN_H
#define TUTTI_STORE_OPEN_H

/* Stores for those who know their options: the same as in tutti/store.h, where the environment says by what certificate
 * a process without a secret proves itself. At most one of secret and certificate is given. */

#include "base/tls.h"

#include <tutti/store.h>

/* meets: for a meeting of ranks. When the last of them closes it, what meetings left there goes. */
enum tutti_status tutti_store_open_by(const char *address, const char *secret, struct tutti_certificate *certificate,
                                      bool meets, uint64_t deadline_ns, struct tutti_store *out);
enum tutti_status tutti_store_server_open_by(const char *host, uint16_t port, const char *secret,
                                             struct tutti_certificate *certificate, struct tutti_store_server **out);

#endif
