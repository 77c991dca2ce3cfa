/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_LEVEL_ZERO_STANDIN_H
#define TUTTI_STANDIN_LEVEL_ZERO_STANDIN_H

/* What the files of the stand-in share. One lock guards all of it; one condition tells of every change. */

#include "device/level_zero/driver.h"

#define API __attribute__((visibility("default")))

extern pthread_mutex_t standin_lock;
extern pthread_cond_t standin_changed;

/* ---- driver.c ---- */
/* A number that the environment gives, else the other one. */
long standin_setting(const char *name, long otherwise);
/* What TUTTI_STANDIN_XPU_FAILS asks of this call; 0: nothing. */
int standin_fails(const char *function);
#define STANDIN_MAY_FAIL()                                                                                             \
    do {                                                                                                               \
        const int failure_ = standin_fails(__func__);                                                                  \
        if (failure_) return failure_;                                                                                 \
    } while (0)
/* A mistake that a driver might not tell: ends the process. */
_Noreturn void standin_fatal(const char *format, ...) TUTTI_PRINTF(1, 2);
struct standin_device {
    int32_t ordinal;
};
bool standin_is_device(const void *device);
#define STANDIN_UNITS 4
#define STANDIN_TIMER_HZ UINT64_C(12500000)
#define STANDIN_TIMER_BITS 32

/* ---- event.c ---- */
struct standin_event {
    struct standin_pool *pool;
    uint32_t index;
    bool set;
    uint32_t n_users; /* commands that are to come, and name it */
    uint64_t start, end;
};
/* Under the lock. */
void standin_event_set(struct standin_event *event, uint64_t start_ns);
void standin_events_use(struct standin_event *signal, uint32_t n_waits, void *const *waits);
void standin_event_leave(struct standin_event *event); /* NULL is fine */

/* ---- list.c ---- */
/* Under the lock: until what is enqueued by now, on any list, is over. */
void standin_drain(void);

/* ---- memory.c ---- */
/* Whether one is of a device, and the other of another device or process. */
bool standin_is_between(const void *dst, const void *src);
/* Kernels of the device find something else in memory of other devices and processes, and what they write there is
 * lost; until it is shown again. */
void standin_hide(const void *device);
void standin_show(const void *device);

/* ---- module.c ---- */
struct standin_launch {
    size_t index;
    uint32_t groups, group_size;
    unsigned char argument[XPU_PARAMETER_MOST];
};
/* What the kernel is told by now; false: not enough. */
bool standin_kernel_capture(const void *kernel, struct standin_launch *out);

/* ---- kernels.cpp: the .cl files ---- */
size_t standin_n_kernels(void);
const char *standin_kernel_name(size_t index);
size_t standin_kernel_bytes(size_t index); /* its argument's size */
/* room: how many groups run at once */
void standin_kernel_run(size_t index, uint32_t groups, uint32_t group_size, const void *argument, uint32_t room);
struct standin_kernel { /* made of a module */
    size_t index;
    uint32_t group_size;
    bool has_argument;
    unsigned char argument[XPU_PARAMETER_MOST];
};

#endif
