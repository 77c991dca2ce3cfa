/* SPDX-License-Identifier: BSD-3-Clause */

#include "store/share.h"

#include <stdlib.h>

bool tutti_share_present(void)
{
    return getenv("PMIX_NAMESPACE") || getenv("PMI_FD") || getenv("PMI_PORT");
}

enum tutti_status tutti_share_text(int32_t rank, uint64_t deadline_ns, char text[TUTTI_SHARE_MAX + 1])
{
    const enum tutti_status status = tutti_share_pmix(rank, deadline_ns, text);
    return status == TUTTI_ERR_UNSUPPORTED ? tutti_share_pmi(rank, deadline_ns, text) : status;
}
