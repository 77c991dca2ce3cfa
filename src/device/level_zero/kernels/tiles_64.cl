/* SPDX-License-Identifier: BSD-3-Clause */
#define XPU_DOUBLE
#define BODY "tiles_body.clh"
#include "each_64.clh"
