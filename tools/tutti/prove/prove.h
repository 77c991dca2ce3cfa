/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_PROVE_H
#define TUTTI_TOOLS_PROVE_H

/* tutti prove: what stand-ins can not show of a kind of devices, tried on real ones by whoever has them. Each point is
 * a process, or a job of two ranks, of its own with a deadline, since a driver may crash or hang. Begin with
 * prove_points.c, the table of points, and cmd_prove.c; prove_device.c, prove_kernels.c and prove_sycl.c: points of one
 * process; prove_calls.c, prove_handles.c: of ranks; prove_child.c: processes. */

#include "tools/tutti/cmd.h"

#include "prove_points.h"

/* ---- prove_child.c ---- */
#define PROVE_BYTES ((size_t)1 << 20)
struct prove_bed {
    const struct tutti_device_ops *ops;
    struct tutti_device *device;
    void *stream;
    unsigned char *host, *at; /* 2 * PROVE_BYTES each; host: pinned */
};
enum tutti_status prove_bed_open(const struct tutti_device_ops *kind, int32_t ordinal, struct prove_bed *bed);
void prove_bed_close(struct prove_bed *bed);
/* The point, on a bed of the first device. */
enum tutti_status prove_on_bed(const struct tutti_device_ops *kind,
                               enum tutti_status (*point)(const struct prove_bed *bed));
void prove_fill(unsigned char *at, uint64_t seed); /* PROVE_BYTES */
/* So many bytes from one place to another, by a kernel if there is one. */
enum tutti_status prove_move(const struct prove_bed *bed, bool by_kernel, void *dst, const void *src, void *stream);
enum tutti_status prove_until_over(const struct prove_bed *bed, void *event);
enum tutti_status prove_wrong(const char *what);
/* The error in the thread's record, with where it was: wrong even if it is UNSUPPORTED, since there is what is needed.
 */
enum tutti_status prove_is_wrong(const char *format, ...) TUTTI_PRINTF(1, 2);

/* ---- prove_device.c, prove_kernels.c: of one process ---- */
enum tutti_status prove_driver(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_memory(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_order(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_words(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_peers(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_folds(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_resident(const struct tutti_device_ops *kind, struct prove_finding *out);

/* ---- prove_sycl.c: queues of a SYCL library ---- */
bool prove_sycl_load(void); /* before there is a device, which lives in SYCL's context then; false: there is none */
struct prove_queue {
    void *room[8]; /* a sycl::queue, whose address is a stream */
};
/* Opens an in-order queue on the device, in SYCL's default context. */
enum tutti_status prove_queue_open(const struct tutti_device *device, struct prove_queue *out);
void prove_queue_copy(struct prove_queue *queue, void *dst, const void *src, size_t bytes); /* SYCL's own */
void prove_queue_wait(struct prove_queue *queue);
enum tutti_status prove_queue_order(const struct tutti_device_ops *kind, struct prove_finding *out);

/* ---- prove_calls.c, prove_handles.c: of two ranks ---- */
enum tutti_status prove_death(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_absence(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_oneccl(const struct tutti_device_ops *kind, struct prove_finding *out);
enum tutti_status prove_handles(const struct tutti_device_ops *kind, struct prove_finding *out);

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
/* The last line that is not empty, no comment (#), and not of who runs the ranks; "" if there is none. It ends the
 * output there. */
char *prove_last_line(char *output);

#endif
