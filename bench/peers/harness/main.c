/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank of the peer that is linked with this file. */

#include "collectives.h"

int main(void)
{
    return peer_serve(&peer);
}
