/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_COMM_TEST_H
#define TUTTI_TESTS_CUDA_COMM_TEST_H

/* Communicators around a back end that writes down what it is given (fake_backend.h), and tests of them over numbers of
 * ranks: for what is asserted of calls, and of devices. */

#include "test.h"

#include "cuda/support/fake_backend.h"
#include "cuda/support/gpu_ranks.h"

#include "comm/call/device.h"

#include <time.h>

enum { N = 64 };

struct fixture {
    struct gpu_rank g;
    struct fake *fake;
    float *a, *b; /* on the device */
    float host[N];
    struct tutti_call_options options; /* with the stream */
};

static inline bool fixture_open(struct rank *rank, struct fixture *out)
{
    static const struct tutti_call_options init = TUTTI_CALL_OPTIONS_INIT;
    *out = (struct fixture){.options = init};
    if (!gpu_rank_open(rank, &out->g)) return false;
    out->fake = fake_of(rank->comm);
    out->a = (float *)(void *)gpu_rank_words(&out->g, N * 4), out->b = (float *)(void *)gpu_rank_words(&out->g, N * 4);
    out->options.stream = out->g.stream;
    if (!out->fake) rank_fail(rank, __FILE__, __LINE__, "the back end is not there");
    return out->fake && out->a && out->b;
}

static inline void fixture_close(struct fixture *f)
{
    tutti_cuda_stream_sync(f->g.gpu, f->g.stream);
    tutti_comm_destroy(f->g.rank->comm);
    f->g.rank->comm = NULL;
    tutti_cuda_free(f->g.gpu, f->a);
    tutti_cuda_free(f->g.gpu, f->b);
    gpu_rank_close(&f->g);
}

static inline unsigned run(uint32_t n, rank_function function, const struct tutti_option *options, size_t n_options)
{
    _Atomic int n_here = 0;
    struct ranks_config config = {
        .n = n, .options = options, .n_options = n_options, .deadline_s = 100, .arg = (void *)&n_here};
    fake_install();
    unsigned failed = ranks_run(&config, function);
    fake_remove();
    return failed;
}

#define SUM(f, in, out, count, options, work)                                                                          \
    tutti_all_reduce((in), (out), (count), TUTTI_FLOAT32, TUTTI_SUM, (f)->g.rank->comm, (options), (work))

/* All ranks, threads of this process, have come so far: an abort ends also a call that this rank has left and another
 * has not. */
static inline void all_here(struct rank *rank)
{
    _Atomic int *n_here = rank->arg;
    atomic_fetch_add(n_here, 1);
    while (atomic_load(n_here) < rank->n) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

struct test {
    const char *name;
    rank_function function;
    uint32_t least, most; /* ranks */
    bool batches;
    int refuse_open, refuse_connect;
    struct tutti_option option;
};

static inline void run_rows(const struct test *tests, size_t n_tests)
{
    for (size_t i = 0; i < n_tests; i++) {
        const struct test *t = &tests[i];
        for (uint32_t n = t->least; n <= t->most; n++) {
            fake_switches.batches = t->batches;
            fake_switches.refuse_open = t->refuse_open;
            fake_switches.refuse_connect = t->refuse_connect;
            unsigned failed = run(n, t->function, &t->option, t->option.name ? 1 : 0);
            if (failed) fail_msg("%s: %u of %u ranks", t->name, failed, n);
        }
    }
}

/* The fake one is alone, also where NCCL is installed. */
static inline void need_device(void)
{
    setenv("TUTTI_NCCL_LIBRARY", "/there/is/none", 1);
    gpu_ranks_need_device();
}

#endif
