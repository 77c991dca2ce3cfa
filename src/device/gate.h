/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_GATE_H
#define TUTTI_DEVICE_GATE_H

/* A gate behind a call on a device: its stream goes on when all members have their results, or when the host says so.
 * So a member that goes on knows that nobody lacks anything; where one died, the stream stands still while the host
 * makes the call good, and what is behind it never sees a result that is none. Compiled as C and as CUDA. */

#include "device/exchange.h"

/* Words of host memory that is pinned and mapped, of one rank's calls. Their numbers grow, and gates are passed in
 * their order. */
struct tutti_gate_words {
    uint64_t passed; /* the device's: gates up to this one were passed, and all members have those results */
    uint64_t held;   /* the device's: 2 * number, + 1 if the result is here: this gate waits for the host */
    uint64_t padding[6];
    uint64_t open; /* the host's: gates up to this one may be passed */
};

/* `gate`: one block. */
struct gpu_gate {
    struct gpu_call call;
    TUTTI_DEVICE_POINTER(struct tutti_gate_words) words;
    uint64_t number;
};

#endif
