/* SPDX-License-Identifier: BSD-3-Clause */
/* The text that describes a training job: lines "key = value", the one table of keys, then [tensors] with a line each,
 * and [steps] with measured times. '#' begins a comment. Files come from anybody, so all is bounded and checked. */

#include "base/config.h"
#include "sim/job.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1024 };
#define MOST_RANKS 1048576.0
#define MOST_SAMPLES 4e9

enum type { TEXT, TIME, SIZE, COUNT, RATIO, FLAG, PARALLEL, ORDER, NODES, NOISE, STRAGGLERS, PUBLISHED };

static const char *const parallels[TUTTI_JOB_PARALLELS] = {"data", "hsdp", "pipeline"};
static const char *const orders[TUTTI_JOB_ORDERS] = {"1f1b", "gpipe"};

/* least, most: of numbers, times in seconds. */
static const struct key {
    const char *name, *fallback, *help;
    enum type type;
    size_t offset;
    double least, most;
} keys[] = {
#define KEY(field, type, fallback, least, most, help)                                                                  \
    {                                                                                                                  \
#field, fallback, help, type, offsetof(struct tutti_job, field), least, most                                   \
    }
#define TIMED(name, field, fallback, help)                                                                             \
    {                                                                                                                  \
        name, fallback, help, TIME, offsetof(struct tutti_job, field), 0, 1e6                                          \
    }
    KEY(name, TEXT, "", 0, 0, "a name for tables and pictures"),
    KEY(parallel, PARALLEL, "data", 0, 0, "data (DDP), hsdp (parameters sharded, shards replicated), pipeline"),
    KEY(ranks_per_node, COUNT, "8", 1, 4096, "ranks a node"),
    KEY(nodes, NODES, "1,2,4,8,16,32,64", 0, 0, "numbers of nodes to look at"),
    KEY(net, TEXT, "ports", 0, 0, "the network, as --net of tutti sched sim has it"),
    KEY(slow_links, TEXT, "", 0, 0, "links and their part of the rate, as --slow-link has them: nic:1%=0.5"),
    KEY(failed_links, TEXT, "", 0, 0, "links that carry nothing, as --fail-link has them: global:1%"),
    KEY(algorithm, TEXT, "auto", 0, 0, "auto: the fastest; a name of the list; two_level, three_level:NODES"),
    TIMED("forward", forward_s, "0s", "forward pass of a rank, beyond what tensors say"),
    TIMED("backward", backward_s, "0s", "backward pass in all; default: until the last gradient"),
    TIMED("input", input_s, "0s", "before a step's first forward pass: loading, copies"),
    TIMED("optimizer", optimizer_s, "0s", "after the last gradient is reduced"),
    KEY(speed, RATIO, "1", 1e-6, 1e6, "times of computing are those of a machine that is so many times faster"),
    KEY(accumulate, COUNT, "1", 1, 65536, "passes of a step, of which only the last communicates"),
    KEY(bucket, SIZE, "25M", 1, 1e15, "data, pipeline: bytes that close a bucket"),
    KEY(first_bucket, SIZE, "1M", 1, 1e15, "the same of the first bucket; default: 1M, or bucket where that is given"),
    KEY(overlap, FLAG, "yes", 0, 0, "communication goes on beside the backward pass"),
    KEY(interference, RATIO, "0", 0, 100, "by how much computing is slower meanwhile (data, pipeline)"),
    TIMED("call_overhead", call_overhead_s, "0s", "of each collective, beyond what the network charges"),
    KEY(compression, RATIO, "1", 1, 1e6, "gradients are sent as so many times fewer bytes"),
    KEY(compression_rate, RATIO, "0", 0, 1e6, "GB/s of compressing and expanding; 0: they cost nothing"),
    KEY(gather, RATIO, "1", 0, 1e6, "hsdp: bytes gathered of parameters, for each byte of gradient"),
    KEY(shard, COUNT, "0", 0, 1e6, "hsdp: ranks that share the parameters; 0: those of a node"),
    KEY(unit, SIZE, "0", 0, 1e15, "hsdp: tensors that follow one another are sent as one until they have so much"),
    KEY(stages, COUNT, "1", 1, TUTTI_JOB_MOST_STAGES, "pipeline: stages; tensors are cut into them by their times"),
    KEY(microbatches, COUNT, "1", 1, 65536, "pipeline: microbatches of a step; times and activations are those of one"),
    KEY(order, ORDER, "1f1b", 0, 0, "pipeline: 1f1b, or gpipe: all forward passes first"),
    KEY(strong_from, COUNT, "1", 1, 1e6, "strong scaling shares the work that so many nodes have in weak scaling"),
    {"noise", "none", "gaussian:A, exponential:A, spikes:P:A, trace; several by commas. A: 1% of computing, or 2ms",
     NOISE, 0, 0, 0},
    {"stragglers", "none", "SHARE:FACTOR, as 0.1%:1.3: ranks that are always slower", STRAGGLERS, 0, 0, 0},
    KEY(drop, RATIO, "0", 0, 0.99, "share of ranks, the slowest, that a step does not wait for; their work is lost"),
    KEY(steps, COUNT, "200", 1, 100000, "steps that are sampled"),
    {"seed", "1", "of all that is random", SIZE, offsetof(struct tutti_job, seed), 0, 1e15},
    KEY(published, PUBLISHED, "", 0, 0, "NODES:EFFICIENCY, as 1:99%,2048:92%: measured by others, for the picture"),
#undef KEY
#undef TIMED
};

bool tutti_job_key(uint32_t i, const char **name, const char **fallback, const char **help)
{
    if (i >= TUTTI_ARRAY_LEN(keys)) return false;
    *name = keys[i].name;
    *fallback = keys[i].fallback;
    *help = keys[i].help;
    return true;
}

/* ---- values: false where the text is none ---- */

/* "5%" or "0.05". */
static bool ratio_parse(const char *text, double *out)
{
    char copy[64];
    size_t n = strlen(text);
    if (n == 0 || n >= sizeof(copy)) return false;
    memcpy(copy, text, n + 1);
    bool percent = copy[n - 1] == '%';
    if (percent) copy[n - 1] = '\0';
    if (!tutti_parse_decimal(copy, out)) return false;
    if (percent) *out /= 100;
    return true;
}

static bool time_parse(const char *text, double *out)
{
    uint64_t ns;
    if (!tutti_parse_time(text, &ns) || ns == TUTTI_NEVER) return false;
    *out = (double)ns / 1e9;
    return true;
}

static bool count_parse(const char *text, double least, double most, uint32_t *out)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    unsigned long n = strtoul(text, &end, 10);
    if (*end || (double)n < least || (double)n > most) return false;
    *out = (uint32_t)n;
    return true;
}

static bool word_parse(const char *text, const char *const *words, uint32_t n, uint32_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0) return *out = i, true;
    return false;
}

/* The next part of a text before `mark`; NULL: no more. *rest becomes NULL behind the last. */
static char *part_next(char **rest, char mark)
{
    char *part = *rest;
    if (!part) return NULL;
    *rest = strchr(part, mark);
    if (*rest) *(*rest)++ = '\0';
    return part;
}

static bool nodes_parse(char *text, struct tutti_job *job)
{
    uint32_t n = 0, list[TUTTI_JOB_MOST_POINTS];
    for (char *part; (part = part_next(&text, ','));) {
        if (n == TUTTI_JOB_MOST_POINTS || !count_parse(part, 1, 1e6, &list[n])) return false;
        if (n > 0 && list[n] <= list[n - 1]) return false;
        n++;
    }
    memcpy(job->nodes, list, n * sizeof(*list));
    job->n_nodes = n;
    return true;
}

static bool amount_parse(const char *text, struct tutti_job_noise *noise)
{
    noise->relative = text[0] && text[strlen(text) - 1] == '%';
    return noise->relative ? ratio_parse(text, &noise->amount) : time_parse(text, &noise->amount);
}

static bool noise_parse(char *text, struct tutti_job *job)
{
    static const char *const names[] = {"gaussian", "exponential", "spikes", "trace"};
    struct tutti_job_noise list[TUTTI_JOB_MOST_NOISES] = {{0}};
    uint32_t n = 0, kind;
    bool none = strcmp(text, "none") == 0;
    for (char *part; !none && (part = part_next(&text, ','));) {
        char *name = part_next(&part, ':');
        if (n == TUTTI_JOB_MOST_NOISES || !word_parse(name, names, TUTTI_ARRAY_LEN(names), &kind)) return false;
        struct tutti_job_noise *noise = &list[n++];
        noise->kind = (enum tutti_job_noise_kind)kind;
        if (kind == TUTTI_JOB_TRACE) {
            if (part) return false;
            noise->relative = true;
            continue;
        }
        char *likely = kind == TUTTI_JOB_SPIKES ? part_next(&part, ':') : NULL;
        if (kind == TUTTI_JOB_SPIKES && (!likely || !ratio_parse(likely, &noise->probability))) return false;
        if (noise->probability > 1 || !part || !amount_parse(part, noise)) return false;
    }
    memcpy(job->noises, list, sizeof(list));
    job->n_noises = n;
    return true;
}

static bool stragglers_parse(char *text, struct tutti_job *job)
{
    double share = 0, factor = 1;
    if (strcmp(text, "none") != 0) {
        char *first = part_next(&text, ':');
        if (!text || !ratio_parse(first, &share) || !ratio_parse(text, &factor)) return false;
    }
    if (share > 1 || factor < 1 || factor > 1e6) return false;
    job->slow_share = share;
    job->slow_factor = factor;
    return true;
}

static bool published_parse(char *text, struct tutti_job *job)
{
    uint32_t n = 0;
    if (!*text) text = NULL;
    for (char *part; (part = part_next(&text, ','));) {
        char *nodes = part_next(&part, ':');
        if (n == TUTTI_JOB_MOST_POINTS || !part || !count_parse(nodes, 1, 1e6, &job->published[n].nodes) ||
            !ratio_parse(part, &job->published[n].efficiency) || job->published[n].efficiency > 10)
            return false;
        n++;
    }
    job->n_published = n;
    return true;
}

static bool text_parse(const char *text, char *out)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20) return false;
    if (strlen(text) >= TUTTI_JOB_TEXT) return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool size_parse(const struct key *key, const char *text, uint64_t *out)
{
    uint64_t size;
    if (!tutti_parse_size(text, &size) || (double)size < key->least || (double)size > key->most) return false;
    *out = size;
    return true;
}

static bool number_parse(const struct key *key, const char *text, double *out)
{
    double value;
    if (!(key->type == TIME ? time_parse(text, &value) : ratio_parse(text, &value))) return false;
    if (value < key->least || value > key->most) return false;
    *out = value;
    return true;
}

static bool flag_parse(const char *text, bool *out)
{
    static const char *const words[] = {"no", "yes"};
    uint32_t which;
    if (!word_parse(text, words, 2, &which)) return false;
    *out = which == 1;
    return true;
}

/* text may be written to. */
static bool value_parse(const struct key *key, char *text, struct tutti_job *job)
{
    void *out = (char *)job + key->offset;
    switch (key->type) {
    case TEXT:
        return text_parse(text, out);
    case TIME:
    case RATIO:
        return number_parse(key, text, out);
    case SIZE:
        return size_parse(key, text, out);
    case COUNT:
        return count_parse(text, key->least, key->most, out);
    case FLAG:
        return flag_parse(text, out);
    case PARALLEL:
        return word_parse(text, parallels, TUTTI_JOB_PARALLELS, out);
    case ORDER:
        return word_parse(text, orders, TUTTI_JOB_ORDERS, out);
    case NODES:
        return nodes_parse(text, job);
    case NOISE:
        return noise_parse(text, job);
    case STRAGGLERS:
        return stragglers_parse(text, job);
    case PUBLISHED:
        return published_parse(text, job);
    }
    return false;
}

static enum tutti_status refuse_value(const struct key *key, const char *text)
{
    static const char *const wants[] = {
        [TEXT] = "text of at most 255 characters",
        [TIME] = "a time such as 20ms or 1.5us",
        [SIZE] = "bytes such as 25M",
        [COUNT] = "a whole number",
        [RATIO] = "a number, or a share such as 5%",
        [FLAG] = "yes or no",
        [PARALLEL] = "data, hsdp or pipeline",
        [ORDER] = "1f1b or gpipe",
        [NODES] = "numbers of nodes that rise, such as 1,2,4, at most 32",
        [NOISE] = "none, or gaussian:1%, exponential:2ms, spikes:0.01%:200ms, trace, or several of them by commas",
        [STRAGGLERS] = "none, or a share of ranks and a factor from 1 on, such as 0.1%:1.3",
        [PUBLISHED] = "nodes and efficiencies, such as 1:99%,2048:92%"};
    char range[64] = "";
    if (key->type == COUNT || key->type == RATIO)
        snprintf(range, sizeof(range), " from %g to %g", key->least, key->most);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s = %.60s: it takes %s%s", key->name, text, wants[key->type], range);
}

enum tutti_status tutti_job_set(struct tutti_job *job, const char *name, const char *value)
{
    const char *names[TUTTI_ARRAY_LEN(keys)];
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(keys); i++) {
        char copy[LINE];
        names[i] = keys[i].name;
        if (strcmp(name, keys[i].name) != 0) continue;
        snprintf(copy, sizeof(copy), "%s", value);
        if (strlen(value) >= sizeof(copy) || !value_parse(&keys[i], copy, job)) return refuse_value(&keys[i], value);
        if (strcmp(name, "bucket") == 0) job->bucket_given = true;
        if (strcmp(name, "first_bucket") == 0) job->first_bucket_given = true;
        return TUTTI_OK;
    }
    const char *near = tutti_nearest(name, names, TUTTI_ARRAY_LEN(keys));
    return tutti_fail(TUTTI_ERR_ARGUMENT, "there is no key '%.40s'%s%s", name, near ? "; did you mean " : "",
                      near ? near : " ('tutti sched job --keys' lists them)");
}

void tutti_job_init(struct tutti_job *job)
{
    *job = (struct tutti_job){.slow_factor = 1};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(keys); i++) tutti_job_set(job, keys[i].name, keys[i].fallback);
    job->bucket_given = job->first_bucket_given = false;
}

void tutti_job_fini(struct tutti_job *job)
{
    free(job->tensors);
    free(job->samples);
    tutti_free(job->by_ready);
    job->tensors = NULL;
    job->samples = NULL;
    job->by_ready = NULL;
}

/* ---- lines ---- */

/* Room for one more; false: no memory. */
static bool grow(void **array, uint32_t n, uint32_t *capacity, size_t size)
{
    if (n < *capacity) return true;
    uint32_t more = *capacity ? 2 * *capacity : 64;
    void *grown = realloc(*array, more * size);
    if (!grown) return false;
    *array = grown;
    *capacity = more;
    return true;
}

/* "NAME bytes=N backward=T ..." */
static enum tutti_status tensor_read(struct tutti_job *job, char *line)
{
    struct tutti_job_tensor tensor = {.ready_s = -1};
    char *rest = line, *name = strtok_r(line, " \t", &rest);
    if (job->n_tensors == TUTTI_JOB_MOST_TENSORS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "more than %u tensors", TUTTI_JOB_MOST_TENSORS);
    snprintf(tensor.name, sizeof(tensor.name), "%s", name);
    bool has_bytes = false;
    for (char *word; (word = strtok_r(NULL, " \t", &rest));) {
        char *value = word, *what = part_next(&value, '=');
        if (!value) return tutti_fail(TUTTI_ERR_ARGUMENT, "tensor %.40s: '%.40s' is not name=value", name, word);
        bool bytes = strcmp(what, "bytes") == 0, activation = strcmp(what, "activation") == 0, right = false;
        double *time = strcmp(what, "forward") == 0    ? &tensor.forward_s
                       : strcmp(what, "backward") == 0 ? &tensor.backward_s
                       : strcmp(what, "ready") == 0    ? &tensor.ready_s
                                                       : NULL;
        if (!time && !bytes && !activation)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "tensor %.40s: there is no '%.40s': bytes, forward, backward, ready, activation", name,
                              what);
        if (time) right = time_parse(value, time) && *time <= 1e6;
        if (bytes || activation) {
            uint64_t *size = bytes ? &tensor.bytes : &tensor.activation;
            right = tutti_parse_size(value, size) && *size < UINT64_C(1) << 50;
        }
        if (!right)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "tensor %.40s: %s=%.40s: it takes %s", name, what, value,
                              time ? "a time such as 1.5ms" : "bytes such as 6400 or 25M");
        has_bytes = has_bytes || bytes;
        tensor.has_backward = tensor.has_backward || time == &tensor.backward_s;
    }
    if (!has_bytes) return tutti_fail(TUTTI_ERR_ARGUMENT, "tensor %.40s has no bytes=", name);
    if ((tensor.ready_s >= 0) == tensor.has_backward)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "tensor %.40s: give one of backward= and ready=", name);
    if (job->n_tensors > 0 && job->tensors[0].has_backward != tensor.has_backward)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "tensor %.40s: give backward= for all tensors, or ready= for all", name);
    if (!grow((void **)&job->tensors, job->n_tensors, &job->tensor_capacity, sizeof(tensor)))
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u tensors", job->n_tensors + 1);
    job->tensors[job->n_tensors++] = tensor;
    return TUTTI_OK;
}

static enum tutti_status sample_read(struct tutti_job *job, const char *line)
{
    double seconds;
    if (!time_parse(line, &seconds) || seconds <= 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "'%.40s' is no time of a step, such as 104.5ms", line);
    if (job->n_samples == TUTTI_JOB_MOST_TENSORS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "more than %u steps", TUTTI_JOB_MOST_TENSORS);
    if (!grow((void **)&job->samples, job->n_samples, &job->sample_capacity, sizeof(*job->samples)))
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u steps", job->n_samples + 1);
    job->samples[job->n_samples++] = seconds;
    return TUTTI_OK;
}

static enum tutti_status key_read(struct tutti_job *job, char *line)
{
    char *value = line, *name = part_next(&value, '=');
    if (!value) return tutti_fail(TUTTI_ERR_ARGUMENT, "'%.40s' is not key = value", line);
    for (size_t n = strlen(name); n > 0 && strchr(" \t", name[n - 1]); n--) name[n - 1] = '\0';
    value += strspn(value, " \t");
    return tutti_job_set(job, name, value);
}

/* section: what [name] lines said last. */
static enum tutti_status line_read(struct tutti_job *job, char *line, char *section)
{
    if (*line == '[') {
        if (strcmp(line, "[tensors]") != 0 && strcmp(line, "[layers]") != 0 && strcmp(line, "[steps]") != 0)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "'%.40s': there are [tensors], also called [layers], and [steps]",
                              line);
        *section = line[1];
        return TUTTI_OK;
    }
    if (*section == 's') return sample_read(job, line);
    return *section ? tensor_read(job, line) : key_read(job, line);
}

enum tutti_status tutti_job_read(const char *name, const char *text, size_t bytes, struct tutti_job *job)
{
    char line[LINE], section = 0;
    const char *end = text + bytes;
    if (bytes > TUTTI_JOB_MOST_BYTES)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: %zu bytes: at most %u are read", name, bytes, TUTTI_JOB_MOST_BYTES);
    for (uint32_t number = 1; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text)), *stop = newline ? newline : end;
        size_t n = (size_t)(stop - text);
        if (n >= sizeof(line) || memchr(text, '\0', n))
            return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: %s", name, number,
                              n >= sizeof(line) ? "a line has at most 1023 characters" : "a byte is 0");
        memcpy(line, text, n);
        line[n] = '\0';
        text = newline ? newline + 1 : end;
        char *comment = strchr(line, '#'), *begin = line + strspn(line, " \t\r");
        if (comment) *comment = '\0';
        for (n = strlen(begin); n > 0 && strchr(" \t\r", begin[n - 1]); n--) begin[n - 1] = '\0';
        if (!*begin) continue;
        enum tutti_status status = line_read(job, begin, &section);
        if (status < 0) {
            char sentence[512];
            snprintf(sentence, sizeof(sentence), "%s", tutti_last_error()->text);
            return tutti_fail(status, "%s:%u: %s", name, number, sentence);
        }
    }
    return TUTTI_OK;
}

/* ---- what is worked out when all is known ---- */

static int compare_ready(const void *a, const void *b, void *argument)
{
    const struct tutti_job_tensor *tensors = argument;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    double x = tensors[i].ready_s, y = tensors[j].ready_s;
    return x < y ? -1 : x > y ? 1 : i > j ? -1 : 1; /* among equal ones the later tensor is first */
}

/* Gradients in the order in which they are there, and both ways to tell their times. */
static enum tutti_status order_ready(struct tutti_job *job)
{
    double at = 0;
    tutti_free(job->by_ready);
    job->by_ready = tutti_alloc_array(job->n_tensors, sizeof(*job->by_ready));
    if (!job->by_ready) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u tensors", job->n_tensors);
    for (uint32_t i = job->n_tensors; i-- > 0 && job->tensors[0].has_backward;)
        job->tensors[i].ready_s = at += job->tensors[i].backward_s;
    for (uint32_t i = 0; i < job->n_tensors; i++) job->by_ready[i] = i;
    qsort_r(job->by_ready, job->n_tensors, sizeof(*job->by_ready), compare_ready, job->tensors);
    at = 0;
    for (uint32_t i = 0; i < job->n_tensors && !job->tensors[0].has_backward; i++) {
        struct tutti_job_tensor *tensor = &job->tensors[job->by_ready[i]];
        tensor->backward_s = tensor->ready_s - at;
        at = tensor->ready_s;
    }
    return TUTTI_OK;
}

/* Times as they are on a machine of this speed. */
static void hasten(struct tutti_job *job)
{
    double *times[] = {&job->input_s, &job->forward_s, &job->backward_s, &job->optimizer_s};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(times); i++) *times[i] /= job->speed;
    for (uint32_t i = 0; i < job->n_tensors; i++) {
        job->tensors[i].forward_s /= job->speed;
        job->tensors[i].backward_s /= job->speed;
        job->tensors[i].ready_s /= job->speed;
    }
}

/* Samples become shares of their mean. */
static void center_samples(struct tutti_job *job)
{
    double sum = 0;
    for (uint32_t i = 0; i < job->n_samples; i++) sum += job->samples[i];
    for (uint32_t i = 0; i < job->n_samples; i++) job->samples[i] = job->samples[i] * job->n_samples / sum - 1;
}

/* Bounds that keep an answer within minutes. */
static enum tutti_status check_work(const struct tutti_job *job)
{
    const uint32_t most = job->nodes[job->n_nodes - 1];
    const double ranks = (double)most * job->ranks_per_node, noises = job->n_noises > 1 ? job->n_noises : 1;
    const double passes = job->parallel == TUTTI_JOB_PIPELINE ? (double)job->stages * job->microbatches : 0;
    if (ranks > MOST_RANKS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%u nodes of %u ranks: at most %.0f ranks are simulated", most,
                          job->ranks_per_node, MOST_RANKS);
    if ((job->n_noises > 0 && ranks * noises * job->steps > MOST_SAMPLES) ||
        (passes + job->n_tensors) * job->accumulate * job->steps > MOST_SAMPLES)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "steps = %u are too many for this job: give fewer", job->steps);
    return TUTTI_OK;
}

/* Some number of nodes must make whole shards, or whole pipelines. */
static enum tutti_status check_parts(const struct tutti_job *job)
{
    bool shards = job->parallel == TUTTI_JOB_HSDP, pipes = job->parallel == TUTTI_JOB_PIPELINE;
    uint32_t parts = shards ? job->shard : pipes ? job->stages : 1;
    if (parts < 2) return TUTTI_OK;
    for (uint32_t i = 0; i < job->n_nodes; i++)
        if ((uint64_t)job->nodes[i] * job->ranks_per_node % parts == 0) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s = %u divides the ranks of none of the numbers of nodes (%u ranks a node)",
                      shards ? "shard" : "stages", parts, job->ranks_per_node);
}

enum tutti_status tutti_job_check(struct tutti_job *job)
{
    if (job->n_tensors == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "there are no tensors: list them below [tensors]");
    TUTTI_TRY(order_ready(job));
    double last = job->tensors[job->by_ready[job->n_tensors - 1]].ready_s;
    if (job->backward_s > 0 && job->backward_s < last)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "backward = %g s, but the last gradient is there after %g s",
                          job->backward_s, last);
    if (job->backward_s == 0) job->backward_s = last;
    if (job->bucket_given && !job->first_bucket_given) job->first_bucket = job->bucket;
    for (uint32_t i = 0; i < job->n_noises; i++)
        if (job->noises[i].kind == TUTTI_JOB_TRACE && job->n_samples == 0)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "noise = trace: list times of steps below [steps]");
    if (job->stages > job->n_tensors)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%u stages of %u tensors: a stage has one at least", job->stages,
                          job->n_tensors);
    TUTTI_TRY(check_parts(job));
    TUTTI_TRY(check_work(job));
    center_samples(job);
    hasten(job);
    return TUTTI_OK;
}
