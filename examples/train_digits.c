/* SPDX-License-Identifier: BSD-3-Clause */

/* Data-parallel training, whole: every rank holds the same two-layer network and takes its share of each batch of
 * handwritten digits; the gradients are averaged by asynchronous all_reduces that run behind the backward pass; every
 * rank takes the same step. At the end the claims are checked: accuracy on images that were held out, weights equal bit
 * for bit on all ranks, and equal but for rounding to those of one process that trained on the same batches. Start with
 *     tutti run -n 4 -- train_digits */

#include "digits.h"
#include "example.h"

#include <getopt.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define SEED 1
#define BUCKET 4096 /* values: 16 KiB */
#define MIN_ACCURACY 95.0
#define SHOW_NS UINT64_C(50000000) /* between two drawings of the progress bar */

struct job {
    struct tutti_comm *comm;
    int32_t rank, size;
    size_t epochs, batch, hidden;
    const char *file;
    struct digits train, held_out;
    uint32_t *order;
    uint64_t shown_ns; /* when the progress bar was drawn last */
};

/* ---- what is shown (by rank 0) ---- */
/* Under tutti run the ranks write to pipes; the launcher says whether what it writes to is a terminal. */
static bool is_terminal(void)
{
    return isatty(STDOUT_FILENO) || getenv("TUTTI_RUN_TERMINAL");
}

static void show_progress(struct job *job, size_t epoch, size_t done)
{
    enum { WIDTH = 40 };
    static const char full[WIDTH + 1] = "########################################";
    size_t of = job->train.n, epochs = job->epochs;
    uint64_t now = digits_now_ns();
    bool last = done == of;
    if (job->rank != 0 || !is_terminal() || (!last && now - job->shown_ns < SHOW_NS)) return;
    int filled = (int)(WIDTH * (epoch * of + done) / (epochs * of));
    printf("\repoch %2zu/%zu [%.*s%*s]", epoch + 1, epochs, filled, full, WIDTH - filled, "");
    fflush(stdout);
    job->shown_ns = now;
}

static void show_epoch(const struct job *job, size_t epoch, double loss, uint64_t epoch_ns)
{
    if (job->rank != 0) return;
    double rate = (double)job->train.n * 1e9 / (double)epoch_ns;
    bool last = epoch + 1 == job->epochs;
    if (is_terminal())
        printf(" loss %.4f, %6.0f images/s%s", loss, rate, last ? "\n" : "");
    else
        printf("epoch %2zu/%zu loss %.4f, %.0f images/s\n", epoch + 1, job->epochs, loss, rate);
    fflush(stdout);
}

/* ---- training ---- */
/* Slice `part` of `parts` of a batch, as equal as it can be; the scale makes the average over the ranks the mean over
 * the batch, also where the slices differ by one image or are empty. */
static double batch_gradient(struct job *job, struct model *model, size_t first, size_t n, size_t part, size_t parts,
                             struct reducer *reducer)
{
    size_t begin = n * part / parts, end = n * (part + 1) / parts;
    float scale = (float)parts / (float)n;
    return model_gradient(model, &job->train, job->order + first + begin, end - begin, scale,
                          reducer ? reducer_ready : NULL, reducer);
}

/* reducer NULL: one process alone. Returns the loss of the last epoch. */
static double train(struct job *job, struct model *model, struct reducer *reducer)
{
    size_t part = reducer ? (size_t)job->rank : 0, parts = reducer ? (size_t)job->size : 1;
    double loss = 0;
    for (size_t epoch = 0; epoch < job->epochs; epoch++) {
        uint64_t begin = digits_now_ns();
        loss = 0;
        digits_shuffle(job->order, job->train.n, (uint32_t)epoch);
        for (size_t first = 0; first < job->train.n; first += job->batch) {
            size_t n = job->train.n - first < job->batch ? job->train.n - first : job->batch;
            loss += batch_gradient(job, model, first, n, part, parts, reducer);
            if (reducer) CHECK(reducer_wait(reducer));
            model_step(model, DIGITS_RATE, DIGITS_MOMENTUM);
            if (reducer) show_progress(job, epoch, first + n);
        }
        if (!reducer) continue;
        CHECK(tutti_all_reduce(&loss, &loss, 1, TUTTI_FLOAT64, TUTTI_SUM, job->comm, NULL, NULL));
        loss /= (double)job->train.n;
        show_epoch(job, epoch, loss, digits_now_ns() - begin);
    }
    return loss;
}

static void report_speed(const struct job *job, const struct reducer *reducer, uint64_t train_ns)
{
    if (job->rank != 0) return;
    double seconds = (double)train_ns / 1e9, waited = (double)reducer->waited_ns / (double)train_ns;
    printf("%zu images in %.2f s on %d rank%s: %.0f images/s\n", job->epochs * job->train.n, seconds, job->size,
           job->size > 1 ? "s" : "", (double)(job->epochs * job->train.n) / seconds);
    if (job->size > 1)
        printf("communication %.1f %% of the time, waiting for slower ranks included; of the time in which reductions "
               "were "
               "in flight %.0f %% lay behind the backward pass\n",
               100 * waited, 100 * (1 - (double)reducer->waited_ns / (double)reducer->flying_ns));
}

/* ---- the claims; each returns whether it holds, equally on all ranks ---- */
static bool check_accuracy(struct job *job, struct model *model)
{
    size_t n = job->held_out.n, rank = (size_t)job->rank, size = (size_t)job->size;
    size_t begin = n * rank / size, end = n * (rank + 1) / size;
    uint64_t n_right = model_count_right(model, &job->held_out, begin, end - begin);
    CHECK(tutti_all_reduce(&n_right, &n_right, 1, TUTTI_UINT64, TUTTI_SUM, job->comm, NULL, NULL));
    double accuracy = 100.0 * (double)n_right / (double)n;
    if (rank == 0) printf("%zu of %zu held-out images are right\naccuracy %.1f %%\n", (size_t)n_right, n, accuracy);
    return accuracy >= MIN_ACCURACY;
}

/* Least and greatest of all ranks, of each weight's bits: equal only if all are. */
static bool check_replicas(const struct job *job, const struct model *model)
{
    size_t n = model->n_weights;
    uint32_t *least = malloc(3 * n * sizeof *least);
    if (!least) return fprintf(stderr, "out of memory\n"), false;
    uint32_t *greatest = least + n, *bits = greatest + n;
    memcpy(bits, model->weights, n * sizeof *bits);
    CHECK(tutti_all_reduce(bits, least, n, TUTTI_UINT32, TUTTI_MIN, job->comm, NULL, NULL));
    CHECK(tutti_all_reduce(bits, greatest, n, TUTTI_UINT32, TUTTI_MAX, job->comm, NULL, NULL));
    size_t n_different = 0;
    for (size_t i = 0; i < n; i++) n_different += least[i] != greatest[i] || bits[i] != least[i];
    free(least);
    if (job->rank == 0 && n_different == 0)
        printf("weights: %zu values, bit for bit equal on %d ranks\n", n, job->size);
    else if (n_different)
        fprintf(stderr, "rank %d: %zu of %zu weights differ between ranks\n", job->rank, n_different, n);
    return n_different == 0;
}

/* Rank 0 trains once more, alone, on the same batches. */
static bool check_single(struct job *job, const struct model *model)
{
    int32_t holds = 1;
    struct model single;
    if (job->rank == 0 && !model_init(&single, job->hidden, job->batch, SEED)) {
        fprintf(stderr, "out of memory\n");
        holds = 0;
    } else if (job->rank == 0) {
        double distance = 0;
        train(job, &single, NULL);
        for (size_t i = 0; i < model->n_weights; i++) {
            double apart = fabs((double)model->weights[i] - (double)single.weights[i]);
            distance = apart <= distance ? distance : apart; /* so that NaN is kept */
        }
        holds = distance <= DIGITS_TOLERANCE;
        printf("one process on the same batches: the weights differ by at most %.1e, which is %s than %.0e: %s\n",
               distance, holds ? "less" : "not less", DIGITS_TOLERANCE, holds ? "rounding" : "WRONG");
        model_free(&single);
    }
    CHECK(tutti_broadcast(&holds, 1, TUTTI_INT32, 0, job->comm, NULL, NULL));
    return holds != 0;
}

/* ---- start and end ---- */
static int run(struct job *job)
{
    struct model model;
    struct reducer reducer;
    size_t part = job->batch / (size_t)job->size + 1;
    if (!model_init(&model, job->hidden, part, SEED)) return fprintf(stderr, "out of memory\n"), 1;
    if (!reducer_init(&reducer, job->comm, model.gradient, model.n_weights, BUCKET)) {
        model_free(&model);
        return fprintf(stderr, "out of memory\n"), 1;
    }
    if (job->rank == 0)
        printf("%d ranks, %zu images (%zu held out), %zu weights in %zu buckets\n", job->size, job->train.n,
               job->held_out.n, model.n_weights, reducer.n_buckets);
    uint64_t begin = digits_now_ns();
    train(job, &model, &reducer);
    report_speed(job, &reducer, digits_now_ns() - begin);

    bool holds = check_accuracy(job, &model);
    holds = check_replicas(job, &model) && holds;
    holds = check_single(job, &model) && holds;
    if (!holds && job->rank == 0) fprintf(stderr, "train_digits: not all of this is as it must be\n");
    reducer_free(&reducer);
    model_free(&model);
    return holds ? 0 : 1;
}

static bool read_arguments(int argc, char **argv, struct job *job)
{
    static const struct option names[] = {
        {"epochs", 1, NULL, 'e'}, {"batch", 1, NULL, 'b'}, {"hidden", 1, NULL, 'h'}, {NULL, 0, NULL, 0}};
    *job = (struct job){.epochs = 30, .batch = 64, .hidden = 256, .file = DIGITS_CSV};
    for (int letter; (letter = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        size_t value = optarg ? strtoul(optarg, NULL, 10) : 0;
        if (value == 0 || value > 1000000) letter = '?';
        if (letter == 'e') job->epochs = value;
        if (letter == 'b') job->batch = value;
        if (letter == 'h') job->hidden = value;
        if (letter == '?')
            return fprintf(stderr, "usage: train_digits [--epochs N] [--batch N] [--hidden N] [digits.csv]\n"), false;
    }
    if (optind < argc) job->file = argv[optind];
    return true;
}

int main(int argc, char **argv)
{
    struct job job;
    int status = 1;
    if (!read_arguments(argc, argv, &job)) return 2;
    if (!digits_load(job.file, &job.train, &job.held_out)) return 1;
    job.order = malloc(job.train.n * sizeof *job.order);
    if (job.order) {
        job.comm = world_create();
        job.rank = tutti_comm_rank(job.comm);
        job.size = tutti_comm_size(job.comm);
        status = run(&job);
        tutti_comm_destroy(job.comm);
    }
    free(job.order);
    digits_free(&job.train);
    digits_free(&job.held_out);
    return status;
}
