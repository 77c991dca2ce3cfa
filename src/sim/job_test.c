/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of training jobs against closed forms, with times of collectives that are a straight line; expected maxima
 * against order statistics; descriptions that must be refused, with the line. */
#include "test.h"

#include "sim/job.h"

#include <math.h>
#include <string.h>

/* A call takes 1 ms and 1 ns a byte, whatever it is. */
static enum tutti_status line_seconds(void *argument, const struct tutti_job_call *call, double *out)
{
    uint32_t *n = argument;
    *out = 1e-3 + 1e-9 * (double)call->bytes;
    ++*n;
    return TUTTI_OK;
}

static void open_job(const char *text, struct tutti_job *job)
{
    tutti_job_init(job);
    if (tutti_job_read("t", text, strlen(text), job) < 0 || tutti_job_check(job) < 0)
        fail_msg("%s", tutti_last_error()->text);
}

static struct tutti_job_point step_of(const char *text, uint32_t nodes, bool strong)
{
    struct tutti_job job;
    struct tutti_job_point point;
    uint32_t n = 0;
    const struct tutti_job_times times = {line_seconds, &n};
    open_job(text, &job);
    if (tutti_job_step(&job, nodes, strong, &times, &point) < 0) fail_msg("%s", tutti_last_error()->text);
    tutti_job_fini(&job);
    return point;
}

static void near(double is, double should)
{
    if (fabs(is - should) > 1e-9 * fabs(should) + 1e-12) fail_msg("%.12g, not %.12g", is, should);
}

#define THREE "[tensors]\na bytes=1000000 backward=10ms\nb bytes=2000000 backward=20ms\nc bytes=3000000 backward=30ms\n"

/* Without overlap all collectives come on top: three buckets of 2, 3 and 4 ms to 60 ms back and 30 ms forth. */
static void test_data_without_overlap(void **state)
{
    (void)state;
    struct tutti_job_point point = step_of("forward = 30ms\nbucket=1\noverlap = no\noptimizer=1ms\n" THREE, 4, false);
    assert_int_equal(point.calls, 3);
    near(point.ideal_s, 0.091);
    near(point.called_s, 0.009);
    near(point.step_s, 0.100);
    near(point.efficiency, 0.91);
    near(step_of("forward=30ms\nbucket=1\noverlap=no\nspeed=3\n" THREE, 4, false).step_s, 0.030 + 0.009);
    near(step_of("forward=30ms\nbucket=1\noverlap=no\naccumulate=3\n" THREE, 4, false).step_s, 0.279);
    near(step_of("forward=30ms\nbucket=1\noverlap=no\ncall_overhead=1ms\ncompression=2\ncompression_rate=1\n" THREE, 4,
                 false)
             .step_s,
         0.090 + 3 * 2e-3 + 6e-3 / 2 + 6e-3);
}

/* With overlap the last bucket alone is left over; a bucket that is not done holds the next one. */
static void test_data_with_overlap(void **state)
{
    (void)state;
    near(step_of("bucket=1\n" THREE, 4, false).step_s, 0.060 + 0.002);
    /* 100 ms each: c is ready at 30, so the three end at 330. */
    near(step_of("bucket=1\ncall_overhead=100ms\n" THREE, 4, false).step_s, 0.030 + 3 * 0.1 + 9e-3);
    /* Computing at half speed while c, then b are under way: c's 4 ms cost 2, b's 3 ms cost 1.5. */
    near(step_of("bucket=1\ninterference=100%\n" THREE, 4, false).step_s, 0.060 + 0.0035 + 0.002);
    /* One rank calls nothing. */
    near(step_of("ranks_per_node=1\n" THREE, 1, false).efficiency, 1);
}

/* Strong: half the work on twice the nodes; what does not shrink, the optimizer, is a loss. */
static void test_strong(void **state)
{
    (void)state;
    struct tutti_job_point point = step_of("bucket=1\noverlap=no\noptimizer=2ms\nstrong_from=2\n" THREE, 4, true);
    near(point.step_s, 0.030 + 0.002 + 0.009);
    near(point.efficiency, 0.031 / 0.041);
}

/* Buckets as DDP makes them: the tensor that reaches the limit is in. */
static void test_buckets(void **state)
{
    (void)state;
    struct tutti_job job;
    uint32_t ends[8];
    open_job("[tensors]\na bytes=20M ready=6ms\nb bytes=4M ready=5ms\nc bytes=2M ready=4ms\nd bytes=20M ready=3ms\n"
             "e bytes=1000000 ready=2ms\nf bytes=50000 ready=1ms\n",
             &job);
    assert_int_equal(job.by_ready[0], 5);
    assert_int_equal(tutti_job_buckets(&job, job.by_ready, job.n_tensors, ends), 3);
    assert_int_equal(ends[0], 2); /* f and e: 1,050,000 are more than 1 MiB */
    assert_int_equal(ends[1], 5); /* d, c, b: 26 MiB */
    assert_int_equal(ends[2], 6);
    tutti_job_fini(&job);
    open_job("bucket = 2M\n" THREE, &job); /* then the first one is as large */
    assert_int_equal(tutti_job_buckets(&job, job.by_ready, job.n_tensors, ends), 2);
    assert_int_equal(ends[0], 1);
    tutti_job_fini(&job);
}

#define LAYERS                                                                                                         \
    "[layers]\na bytes=1000000 forward=10ms backward=20ms\nb bytes=1000000 forward=10ms backward=20ms\n"               \
    "c bytes=1000000 forward=10ms backward=20ms\nd bytes=1000000 forward=10ms backward=20ms\n"

#define IDLE_LAYERS                                                                                                    \
    "[layers]\na bytes=1000000 forward=0ms backward=0ms\nb bytes=1000000 forward=0ms backward=0ms\n"                   \
    "c bytes=1000000 forward=0ms backward=0ms\nd bytes=1000000 forward=0ms backward=0ms\n"

static void test_hsdp(void **state)
{
    (void)state;
    /* In the open: a unit is gathered twice, scattered, and a quarter of it goes to the replicas. */
    double all = 0.120 + 4 * (3 * 2e-3 + 1.25e-3);
    near(step_of("parallel=hsdp\nshard=4\noverlap=no\n" LAYERS, 1, false).step_s, all);
    /* Hidden but for the first gather, and what follows the last gradient. */
    near(step_of("parallel=hsdp\nshard=4\n" LAYERS, 1, false).step_s, 2e-3 + 0.120 + 2e-3 + 1.25e-3);
    /* Shards of two nodes and their replicas share a network: with nothing to compute all calls follow one another. */
    near(step_of("parallel=hsdp\nranks_per_node=2\nshard=4\n" IDLE_LAYERS, 4, false).step_s, 4 * (3 * 2e-3 + 1.25e-3));
    near(step_of("parallel=hsdp\nranks_per_node=4\nshard=4\n" IDLE_LAYERS, 4, false).step_s, 8 * 2e-3 + 2e-3 + 1.25e-3);
    near(step_of("parallel=hsdp\nranks_per_node=2\nshard=4\n" LAYERS, 4, false).step_s, 2e-3 + 0.120 + 2e-3 + 1.25e-3);
    /* As many units as there are, if a unit has two layers. */
    assert_int_equal(step_of("parallel=hsdp\nshard=4\nunit=1500000\n" LAYERS, 1, false).calls, 8);
    assert_false(step_of("parallel=hsdp\nnodes=1,3\nshard=3\n" LAYERS, 1, false).possible);
}

/* Equal stages: m microbatches take m + p - 1 times one, in either order. */
static void test_pipeline(void **state)
{
    (void)state;
    static const char *const orders[] = {"1f1b", "gpipe"};
    char text[512];
    for (uint32_t order = 0; order < 2; order++) {
        for (uint32_t m = 1; m < 20; m += 3) {
            snprintf(text, sizeof(text), "parallel=pipeline\nranks_per_node=4\nstages=4\nmicrobatches=%u\norder=%s\n%s",
                     m, orders[order], LAYERS);
            struct tutti_job_point point = step_of(text, 1, false);
            near(point.step_s, (m + 3) * 0.030);
            near(point.efficiency, m / (m + 3.0));
        }
    }
    /* Two replicas of a stage reduce its gradient; activations of 1 MB go 3 times forth and 3 back, 2 ms each. */
    const char *text2 = "parallel=pipeline\nstages=4\nmicrobatches=1\n[layers]\n"
                        "a bytes=1000000 forward=10ms backward=20ms activation=1000000\n"
                        "b bytes=1000000 forward=10ms backward=20ms activation=1000000\n"
                        "c bytes=1000000 forward=10ms backward=20ms activation=1000000\n"
                        "d bytes=1000000 forward=10ms backward=20ms activation=1000000\n";
    near(step_of(text2, 1, false).step_s, 0.120 + 6 * 2e-3 + 2e-3);
    /* Half the microbatches on twice the nodes; none can be halved once more. */
    near(step_of("parallel=pipeline\nstages=4\nranks_per_node=4\nmicrobatches=2\noverlap=no\n" LAYERS, 2, true).step_s,
         4 * 0.030 + 2e-3);
    assert_false(step_of("parallel=pipeline\nstages=4\nranks_per_node=4\nmicrobatches=2\n" LAYERS, 4, true).possible);
}

/* ---- noise ---- */

static double harmonic(uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 1; i <= n; i++) sum += 1.0 / i;
    return sum;
}

static double mean_delay(const char *text, uint32_t n_ranks, double compute_s)
{
    struct tutti_job job;
    double sum = 0, delays[2000];
    open_job(text, &job);
    assert_true(job.steps <= TUTTI_ARRAY_LEN(delays));
    assert_int_equal(tutti_job_delays(&job, n_ranks, compute_s, delays), TUTTI_OK);
    for (uint32_t i = 0; i < job.steps; i++) sum += delays[i];
    tutti_job_fini(&job);
    return sum / job.steps;
}

static void within(double is, double should, double part)
{
    if (fabs(is / should - 1) > part) fail_msg("%.6g, not %.6g", is, should);
}

/* Expected maxima and order statistics: David and Nagaraja, Order Statistics (2003), 2.5 and 4.2. */
static void test_noise(void **state)
{
    (void)state;
    within(mean_delay("steps=2000\nnoise=exponential:2ms\n" THREE, 1, 1), 2e-3, 0.08);
    within(mean_delay("steps=2000\nnoise=exponential:1%\n" THREE, 1000, 0.5), 5e-3 * harmonic(1000), 0.02);
    within(mean_delay("steps=2000\nnoise=gaussian:1ms\n" THREE, 1000, 1), 3.2414e-3, 0.02);
    within(mean_delay("steps=1000\nnoise=gaussian:1ms\n" THREE, 10000, 1), 3.8516e-3, 0.02);
    within(mean_delay("steps=2000\nnoise=spikes:0.1%:10ms\n" THREE, 1000, 1), 10e-3 * (1 - pow(0.999, 1000)), 0.05);
    /* The slowest 1 % of 1000 are not waited for. */
    within(mean_delay("steps=2000\nnoise=exponential:1ms\ndrop=1%\n" THREE, 1000, 1),
           1e-3 * (harmonic(1000) - harmonic(10)), 0.02);
    /* Steps of 9, 10, 11 ms: the largest of many ranks is 10 % above the mean. */
    within(mean_delay("noise=trace\n" THREE "[steps]\n9ms\n10ms\n11ms\n", 1000, 0.2), 0.02, 1e-9);
    /* One rank of ten is always 1.5 times slower, so one of 1000 is. */
    within(mean_delay("stragglers=10%:1.5\n" THREE, 1000, 0.2), 0.1, 1e-9);
    assert_true(mean_delay("seed=1\nnoise=gaussian:1%\n" THREE, 8, 1) !=
                mean_delay("seed=2\nnoise=gaussian:1%\n" THREE, 8, 1));
    /* A step of 90 ms that is 10 % longer is 9 ms longer; what is called is not stretched. */
    struct tutti_job_point point = step_of("forward=30ms\nbucket=1\noverlap=no\nstragglers=100%:1.1\n" THREE, 4, false);
    near(point.waited_s, 0.009);
    near(point.step_s, 0.108);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"nodes = 2,1\n" THREE, "t:1: nodes = 2,1: it takes numbers of nodes that rise"},
        {"\n\nbucked = 1\n" THREE, "t:3: there is no key 'bucked'; did you mean bucket"},
        {"overlap = maybe\n", "t:1: overlap = maybe: it takes yes or no"},
        {"forward = -1ms\n", "t:1: forward = -1ms: it takes a time"},
        {"forward\n", "t:1: 'forward' is not key = value"},
        {"noise = gaussian\n", "t:1: noise = gaussian: it takes none, or gaussian:1%"},
        {"noise = spikes:200%:1ms\n", "t:1: noise = spikes:200%:1ms: it takes"},
        {"drop = 100%\n", "t:1: drop = 100%: it takes a number, or a share such as 5% from 0 to 0.99"},
        {"[tensor]\n", "t:1: '[tensor]': there are [tensors]"},
        {"[tensors]\na bytes=1\n", "t:2: tensor a: give one of backward= and ready="},
        {"[tensors]\na backward=1ms\n", "t:2: tensor a has no bytes="},
        {"[tensors]\na bytes=-1 ready=1ms\n", "t:2: tensor a: bytes=-1: it takes bytes"},
        {"[tensors]\na bytes=1 ready=1ms\nb bytes=1 backward=1ms\n", "t:3: tensor b: give backward= for all"},
        {"[tensors]\na bytes=1 size=3\n", "t:2: tensor a: there is no 'size'"},
        {"[steps]\n0ms\n", "t:2: '0ms' is no time of a step"},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct tutti_job job;
        tutti_job_init(&job);
        assert_int_equal(tutti_job_read("t", cases[i][0], strlen(cases[i][0]), &job), TUTTI_ERR_ARGUMENT);
        if (!strstr(tutti_last_error()->text, cases[i][1])) fail_msg("%s", tutti_last_error()->text);
        tutti_job_fini(&job);
    }
    static const char *const late[] = {"forward=1ms\n", "noise=trace\n" THREE, "backward=1ms\n" THREE,
                                       "parallel=pipeline\nstages=4\n" THREE};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(late); i++) {
        struct tutti_job job;
        tutti_job_init(&job);
        assert_int_equal(tutti_job_read("t", late[i], strlen(late[i]), &job), TUTTI_OK);
        assert_int_equal(tutti_job_check(&job), TUTTI_ERR_ARGUMENT);
        tutti_job_fini(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_without_overlap),
        cmocka_unit_test(test_data_with_overlap),
        cmocka_unit_test(test_strong),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_hsdp),
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
