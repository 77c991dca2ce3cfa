/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_PROVE_H
#define TUTTI_TOOLS_PROVE_H

/* tutti prove: what stand-ins can not show of a kind of devices, tried on real ones by whoever has them. Each point is
 * a process, or a job of two ranks, of its own with a deadline, since a driver may crash or hang. Begin with
 * prove_points.c, the table of points, and cmd_prove.c; prove_device.c: points of one process; prove_calls.c: of ranks;
 * prove_child.c: processes. */

#include "tools/tutti/cmd.h"

#include "prove_points.h"

/* ---- prove_device.c ---- */
enum tutti_status prove_driver(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_memory(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_order(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_words(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_folds(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_peers(const struct tutti_device_ops *kind, struct prove_finding *out);

/* ---- prove_calls.c: of two ranks ---- */
enum tutti_status prove_death(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_absence(const struct tutti_device_ops *kind, struct prove_finding *out);

/* ---- prove_child.c ---- */
#define PROVE_OUTPUT ((size_t)256 * 1024)
struct prove_child {
    int status;   /* its exit status, or -1 - the signal that ended it */
    bool is_late; /* and was ended */
    char *output; /* stdout and stderr, PROVE_OUTPUT at most; the caller's to free */
};
/* Runs this command with other words (NULL at the end), and variables NAME=VALUE (NULL at the end); false: the record
 * says why it could not be started. */
bool prove_child_run(const char *const *argv, const char *const *env, uint64_t timeout_ns, struct prove_child *out);
/* The last line that is not empty and does not begin with #; "" if there is none. It ends the output there. */
char *prove_last_line(char *output);

#endif
