/* SPDX-License-Identifier: BSD-3-Clause */

/* Without OpenSSL nothing is encrypted, and hosts do not talk at all. */

#include "control/net/cipher.h"

const char *tutti_cipher_library(const char **why)
{
    *why = NULL;
    return "nothing: built without OpenSSL";
}

enum tutti_status tutti_cipher_open(const struct tutti_cipher_config *config, struct tutti_stream **out)
{
    (void)config, (void)out;
    return TUTTI_ERR_UNSUPPORTED;
}
