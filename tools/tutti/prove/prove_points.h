/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_PROVE_POINTS_H
#define TUTTI_TOOLS_PROVE_POINTS_H

/* The one list of points that `tutti prove` tries; `tutti info` lists those of Intel GPUs, as long as nobody has tried
 * them on one, and docs/xpu.md has the same list. */

#include "device/device.h"

/* What a point found, for people: one line. */
#define PROVE_TEXT 400
struct prove_finding {
    char text[PROVE_TEXT];
};
/* OK: it works. UNSUPPORTED: there is nothing here to try it on. Below zero else: wrong, as the record says. */
typedef enum tutti_status (*prove_function)(const struct tutti_device_ops *kind, struct prove_finding *out);

#define PROVE_WORDS 24
/* A point is a function, of one process or two ranks, or what `tutti bench` says to these words. */
struct prove_point {
    const char *name, *what;
    const char *kind; /* the devices that it is of; NULL: all */
    prove_function function;
    bool has_ranks, has_sycl;       /* two of them; a SYCL library is in the process, before there is a device */
    const char *way;                /* option gpu: host, or "" for the kind's own back end; NULL: no matter */
    const char *method;             /* option gpu_method; NULL: no matter */
    const char *bench[PROVE_WORDS]; /* behind "bench ... --device KIND" */
};
extern const struct prove_point prove_points[];
extern const size_t prove_n_points;

bool prove_point_is_of(const struct prove_point *point, const char *kind);
const struct prove_point *prove_point_named(const char *name); /* NULL: there is none */

#endif
