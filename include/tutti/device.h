/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_H
#define TUTTI_DEVICE_H

/* A window of device memory as kernels of users see it. The host asks for it once, passes it to kernels by value, and
 * they use the functions of tutti/device.cuh.
 *
 *     tutti::device_window w{TUTTI_DEVICE_WINDOW_INIT};
 *     tutti_window_device(window, &w);
 *     kernel<<<blocks, threads, 0, stream>>>(w, ...);
 *
 * It is good as long as the window is: kernels that use it are over before tutti_window_destroy. */

#ifdef __OPENCL_CPP_VERSION__
#include <tutti/types.h>
#define TUTTI_DEVICE_POINTER(type) uint64_t /* OpenCL has no pointers in parameters that are structs: addresses */
#else
#include <tutti/window.h>
#define TUTTI_DEVICE_POINTER(type) type *
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_DEVICE_RANKS 16    /* per window, at most */
#define TUTTI_DEVICE_BARRIERS 16 /* each is one at a time among all ranks */

/* What a wait of a kernel writes down when its time is up, for the sentence that the host tells. */
struct tutti_device_late {
    uint64_t value, seen, timeout_ns;
    uint32_t index, compare; /* the signal's; compare TUTTI_DEVICE_BARRIER: a barrier */
};
#define TUTTI_DEVICE_BARRIER 6

/* How waits of kernels hear that they are to end, and tell that they ran out of time. The library's. */
struct tutti_device_alarm {
    TUTTI_DEVICE_POINTER(uint64_t) asked;   /* this device's: when a thread has last asked the host */
    TUTTI_DEVICE_POINTER(uint32_t) stopped; /* this device's: not 0: leave */
    TUTTI_DEVICE_POINTER(uint32_t) stop;    /* the host's, as all that follows */
    TUTTI_DEVICE_POINTER(uint64_t) report;
    TUTTI_DEVICE_POINTER(struct tutti_device_late) late;
    uint64_t code; /* for reports */
};

struct tutti_device_window {
    size_t size;   /* sizeof(struct tutti_device_window) */
    int32_t me, n; /* this rank, ranks */
    uint32_t n_signals;
    uint64_t timeout_ns; /* for each wait; 0: none. The communicator's, and may be changed here */
    TUTTI_DEVICE_POINTER(char)
    parts[TUTTI_DEVICE_RANKS]; /* each rank's, as this device maps it; NULL: it has no bytes */
    size_t bytes[TUTTI_DEVICE_RANKS];
    TUTTI_DEVICE_POINTER(uint64_t) signals[TUTTI_DEVICE_RANKS]; /* each rank's; behind them its words for barriers */
    struct tutti_device_alarm alarm;
};
#define TUTTI_DEVICE_WINDOW_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(struct tutti_device_window)                                                                             \
    }

#ifndef __OPENCL_CPP_VERSION__
/* Describes a window over memory of devices that reach one another; UNSUPPORTED: it is another one. *out was
 * initialised. From then on the library looks every few milliseconds whether peers live, since it does not see kernels
 * of users. */
TUTTI_API enum tutti_status tutti_window_device(struct tutti_window *window, struct tutti_device_window *out);
#endif

#ifdef __cplusplus
}
#endif

#endif
