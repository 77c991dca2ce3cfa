/* SPDX-License-Identifier: BSD-3-Clause */
#define BODY "oneshot_body.clh"
#define PROTOCOL lines
#define WIRE WIRE_LINES
#include "each_fast.clh"
