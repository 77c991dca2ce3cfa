/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_ASK_TOLD_H
#define TUTTI_FT_ASK_TOLD_H

/* A client of lighthouses: what its files share. Of this room alone. */

#include "ft/ask/asker.h"

struct tutti_ft_lighthouse_client {
    struct asker asker;
};

#endif
