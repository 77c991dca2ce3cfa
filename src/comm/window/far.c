/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls on memory that this process does not map. */
#include "comm/window/window.h"

enum tutti_status tutti_window_expose(struct tutti_window *window, struct tutti_comm *comm, void *base, size_t bytes)
{
    (void)window, (void)comm, (void)base, (void)bytes;
    return TUTTI_OK;
}

void tutti_window_hide(struct tutti_window *window, struct tutti_comm *comm)
{
    (void)window, (void)comm;
}

enum tutti_status tutti_window_far(struct tutti_window *window, struct tutti_comm *comm,
                                   const struct tutti_access *access)
{
    (void)window;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s on rank %d: the memory of rank %d can not be mapped here",
                      tutti_access_name(access->kind), (int)comm->rank, (int)access->peer);
}
