/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without libfabric's header: transport ofi says so. */

#include "transport/ofi/ofi.h"

#include <unistd.h>

size_t tutti_ofi_providers(char *out, size_t bytes)
{
    if (bytes > 0) out[0] = '\0';
    return 0;
}

const char *tutti_ofi_lacks(void)
{
    return "header";
}

enum tutti_status tutti_ofi_open(const struct tutti_ofi_config *config, struct tutti_transport **out)
{
    (void)config, (void)out;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "transport ofi: this build knows no libfabric (apt-get install "
                                             "libfabric-dev, then build again)");
}

void tutti_ofi_connected(struct tutti_transport *t, uint32_t peer, int fd, struct tutti_stream *stream)
{
    (void)t, (void)peer, (void)stream;
    close(fd);
}

void tutti_ofi_failed(struct tutti_transport *t, uint32_t peer, enum tutti_status status)
{
    (void)t, (void)peer, (void)status;
}
