/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of transports: one file and one row here for each. */

#include "transport/host.h"

#include <string.h>

static const struct {
    const char *name;
    enum tutti_status (*open)(struct tutti_segment *segment, uint32_t me, struct tutti_transport **out);
} transports[] = {
    {"self", tutti_self_open},
    {"shm", tutti_shm_open},
};

enum tutti_status tutti_transport_open(const char *name, struct tutti_segment *segment, uint32_t me,
                                       struct tutti_transport **out)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(transports); i++)
        if (strcmp(name, transports[i].name) == 0) return transports[i].open(segment, me, out);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "there is no transport named %s: self or shm", name);
}
