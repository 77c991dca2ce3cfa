/* SPDX-License-Identifier: BSD-3-Clause */
#define BODY "tiles_body.clh"
#include "each_fast.clh"
