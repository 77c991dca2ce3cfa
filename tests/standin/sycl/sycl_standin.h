/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_SYCL_SYCL_STANDIN_H
#define TUTTI_STANDIN_SYCL_SYCL_STANDIN_H

/* Objects of the stand-in for a SYCL library. `sycl_standin_default`, found by dlsym, is the context that it calls the
 * default one; a test writes a context of Level Zero into it. */

enum { SYCL_STANDIN_OPENCL = 1, SYCL_STANDIN_LEVEL_ZERO = 2 };
struct sycl_standin_context {
    void *native;
};
struct sycl_standin_queue {
    char backend;
    int immediate; /* native is an immediate command list, rather than a queue */
    void *native;
    const struct sycl_standin_context *context;
};

#endif
