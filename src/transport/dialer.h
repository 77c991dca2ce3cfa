/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_DIALER_H
#define TUTTI_TRANSPORT_DIALER_H

/* The dialer makes the first connection to a peer for a network, and proves who is at the other end (control/net). */

#include "base/base.h"

struct tutti_dialer {
    /* Wants a socket to `peer`: one call of the network's _connected or _failed follows, from any thread, now or later.
     * Called by the owner of the transport; does not block. Not called again for a peer. */
    void (*dial)(struct tutti_dialer *dialer, uint32_t peer);
};

#endif
