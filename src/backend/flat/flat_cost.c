/* SPDX-License-Identifier: BSD-3-Clause */
/* What the methods cost, predicted from the constants of the machine: how often ranks wait for one another in turn, and
 * how the bytes of the busiest rank move. The unit of waits is one transfer of a cache line between cores. Several
 * lines are under way at once, so each costs a part of a transfer. Staging moves bytes through the caches: in, folded,
 * out. Calls that are larger than the cache bring them from memory and back as well. At the end a prediction is
 * corrected by what `tutti tune` measured. */
#include "backend/flat/flat.h"
#include "model/costs.h"
#include "model/ways.h"

#include <limits.h>
#include <math.h>
#include <unistd.h>

static double line_ns_of(const struct flat_instance *inst)
{
    return inst->machine.links[TUTTI_LINK_HOST].line_ns;
}

/* Blocks: so many whatever the number of ranks, and so many for each rank. */
struct blocks {
    double once, each;
};
/* The busiest rank: what it takes in, folds (as one operand each) and gives out; transfers of a line in a round of
 * staging, from the first store to the last load; and how often it looks at each of the others meanwhile. */
static const struct {
    struct blocks in, fold, out;
    double transfers, looks;
} flows[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {{1, 0}, {1, 0}, {1, 0}, 2.6, 8},     [TUTTI_REDUCE] = {{1, 0}, {1, 0}, {1, 0}, 2.6, 8},
    [TUTTI_BROADCAST] = {{1, 0}, {0, 0}, {1, 0}, 2.6, 0},      [TUTTI_ALL_GATHER] = {{1, 0}, {0, 0}, {0, 1}, 2.6, 1},
    [TUTTI_GATHER] = {{1, 0}, {0, 0}, {0, 1}, 2.6, 1},         [TUTTI_SCATTER] = {{0, 1}, {0, 0}, {1, 0}, 1.8, 1},
    [TUTTI_REDUCE_SCATTER] = {{0, 1}, {0, 1}, {1, 0}, 1.8, 4}, [TUTTI_ALL_TO_ALL] = {{0, 1}, {0, 0}, {0, 1}, 1.8, 1},
    [TUTTI_BARRIER] = {{0, 0}, {0, 0}, {0, 0}, 1, 0},          [TUTTI_SCAN] = {{1, 0}, {0, 0.5}, {1, 0}, 1.8, 1},
    [TUTTI_EXSCAN] = {{1, 0}, {0, 0.5}, {1, 0}, 1.8, 1},
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The least whole number that is not below x: without the library of mathematics, and equal on all machines. */
static double whole(double x)
{
    double down = (double)(uint64_t)x;
    return down < x ? down + 1 : down;
}

static double block_bytes(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    size_t bytes = flat_block_bytes(inst, call);
    return (double)(bytes == SIZE_MAX ? COST_FLAT_UNKNOWN_BYTES : bytes);
}

/* Where ranks share CPUs each of them has to get its turn for every hand-over, and once more to see the last one. */
static double turns_ns(const struct flat_instance *inst, double handovers)
{
    double a_cpu = inst->n_cpus ? (double)inst->n / inst->n_cpus : inst->n;
    return inst->crowded ? (handovers + COST_FLAT_LAST_TURN) * a_cpu * (double)inst->machine.yield_ns : 0;
}

/* Where ranks share CPUs the bytes of one wait for those of another. */
static double share_of_cpu(const struct flat_instance *inst)
{
    return inst->n_cpus && inst->n > inst->n_cpus ? (double)inst->n / inst->n_cpus : 1;
}

/* ---- lines ---- */

/* Lines that the busiest rank writes and reads, hand-overs that follow one another, and peers read. */
struct lines {
    double written, read, handovers, peers;
};

static struct lines butterfly(const struct flat_instance *inst, size_t bytes)
{
    struct lines lines = {.handovers = inst->n_factors};
    for (uint32_t l = 0; l < inst->n_factors; l++) {
        lines.written += flat_lines_of(bytes);
        lines.read += (inst->factors[l] - 1) * (double)flat_lines_of(bytes);
        lines.peers += inst->factors[l] - 1;
    }
    return lines;
}

/* What a level hands on is all that came in at the levels below. */
static struct lines growing(const struct flat_instance *inst, size_t bytes)
{
    struct lines lines = {.handovers = inst->n_factors};
    for (uint32_t l = 0, stride = 1; l < inst->n_factors; stride *= inst->factors[l++]) {
        lines.written += flat_lines_of(bytes * stride);
        lines.read += (inst->factors[l] - 1) * (double)flat_lines_of(bytes * stride);
        lines.peers += inst->factors[l] - 1;
    }
    return lines;
}

static struct lines exchange(const struct flat_instance *inst, size_t bytes)
{
    return (struct lines){flat_lines_of(bytes * inst->n), (inst->n - 1) * (double)flat_lines_of(bytes), 1, inst->n - 1};
}

static struct lines to_root(const struct flat_instance *inst, size_t bytes)
{
    return (struct lines){flat_lines_of(bytes), (inst->n - 1) * (double)flat_lines_of(bytes), 1, inst->n - 1};
}

static struct lines from_root(const struct flat_instance *inst, size_t bytes)
{
    return (struct lines){flat_lines_of(bytes * inst->n), flat_lines_of(bytes), 1, 1};
}

/* Ranks, leaders of groups, root. */
static struct lines grouped(const struct flat_instance *inst, size_t bytes)
{
    uint32_t group = flat_group(inst);
    struct lines own = {flat_lines_of(bytes), (group - 1) * (double)flat_lines_of(bytes), 1, group - 1};
    if (group == inst->n) return own;
    uint32_t leaders = (inst->n - 1) / group; /* but the first */
    return (struct lines){2 * own.written, own.read + leaders * own.written, 2, own.peers + leaders};
}

static struct lines broadcast(const struct flat_instance *inst, size_t bytes)
{
    double lines = flat_lines_of(bytes), stages = flat_group(inst) < inst->n ? 2 : 1;
    return (struct lines){stages * lines, stages * lines, stages, stages};
}

static struct lines (*const lines_of[TUTTI_N_KINDS])(const struct flat_instance *inst, size_t bytes) = {
    [TUTTI_ALL_REDUCE] = butterfly,    [TUTTI_REDUCE] = grouped,
    [TUTTI_BROADCAST] = broadcast,     [TUTTI_ALL_GATHER] = growing,
    [TUTTI_GATHER] = to_root,          [TUTTI_SCATTER] = from_root,
    [TUTTI_REDUCE_SCATTER] = exchange, [TUTTI_ALL_TO_ALL] = exchange,
    [TUTTI_BARRIER] = butterfly,       [TUTTI_SCAN] = to_root,
    [TUTTI_EXSCAN] = to_root,
};

/* The first one is in the hand-over. */
static double further(double peers)
{
    return peers > 1 ? (peers - 1) * COST_FLAT_PEER_READ : 0;
}

/* Kinds in which a rank need not wait for the ranks that wait for it. */
static bool runs_ahead(enum tutti_kind kind)
{
    return tutti_kind_info(kind)->rooted || flat_is_scan(kind);
}

/* The lines of a call that are awaited one by one: behind them the prefetcher has seen where it goes. */
static double near(double lines)
{
    return lines < COST_FLAT_LINES_NEAR ? lines : COST_FLAT_LINES_NEAR;
}

double flat_cost_line(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    const struct lines lines = lines_of[call->info.kind](inst, (size_t)block_bytes(inst, call));
    bool ahead = runs_ahead(call->info.kind);
    double transfers = lines.handovers * (ahead ? COST_FLAT_AHEAD : COST_FLAT_EXCHANGE) +
                       near(lines.read) * (ahead ? COST_FLAT_LINE_READ_AHEAD : COST_FLAT_LINE_READ) +
                       near(lines.written) * COST_FLAT_LINE_WRITTEN;
    double read = lines.read - near(lines.read), written = lines.written - near(lines.written);
    double streamed = ahead ? larger(read, written) : read + written;
    return COST_FLAT_CALL_NS + (transfers + further(lines.peers)) * line_ns_of(inst) +
           streamed * FLAT_LINE_BYTES / (double)inst->machine.give_gbs +
           turns_ns(inst, lines.handovers) * (ahead ? COST_FLAT_AHEAD_TURNS : 1);
}

/* ---- bytes ---- */

struct bytes {
    double in, fold, out; /* the busiest rank's */
    double far;           /* time of a byte from outside the own cache or to there; 0: all stays in it */
};

static double blocks_bytes(const struct blocks *blocks, double block, double n)
{
    return block * (blocks->once + blocks->each * n);
}

/* Time of a byte beyond what the own cache takes, where a rank touches so many in all. */
static double far_of(const struct flat_instance *inst, double touched)
{
    const struct tutti_machine *m = &inst->machine;
    double over = share_of_cpu(inst) * touched / ((double)m->own_kib * 1024) - 0.5;
    if (inst->n * touched > (double)m->cache_kib * 1024) return 0.5 / tutti_machine_memory(m, inst->n);
    return over > 0 ? (over < 1 ? over : 1) * 0.5 / (double)m->mid_gbs : 0;
}

/* What the busiest rank touches: of a rooted call one puts, and others take. */
static double touched_bytes(enum tutti_kind kind, const struct bytes *bytes)
{
    return tutti_kind_info(kind)->rooted ? larger(bytes->in, bytes->out) : bytes->in + bytes->out;
}

static struct bytes bytes_of(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    enum tutti_kind kind = call->info.kind;
    double n = inst->n, block = block_bytes(inst, call);
    struct bytes bytes = {
        .in = blocks_bytes(&flows[kind].in, block, n),
        .fold = blocks_bytes(&flows[kind].fold, block, n),
        .out = blocks_bytes(&flows[kind].out, block, n),
    };
    bytes.far = far_of(inst, touched_bytes(kind, &bytes));
    return bytes;
}

/* Gather and scatter: a leaf's block may go straight between its buffer and the root's. */
static bool is_of_leaves(enum tutti_kind kind)
{
    return kind == TUTTI_GATHER || kind == TUTTI_SCATTER;
}

/* Bytes that lie with all ranks alike: the own part is near, the rest is pulled. */
static double spread_ns(const struct flat_instance *inst, double bytes, double near_gbs)
{
    double near = bytes / inst->n, pull = tutti_machine_pull(&inst->machine, inst->n);
    return near / near_gbs + (bytes - near) / (pull < near_gbs ? pull : near_gbs);
}

/* Blocks of all ranks that are copied only. Between two of them each line is given out when the other has just read it:
 * the dearer, the farther they are, which nobody measures at the start. */
static bool moves_all(enum tutti_kind kind)
{
    return kind == TUTTI_ALL_GATHER || kind == TUTTI_ALL_TO_ALL;
}

/* Rounds overlap but for the first; each further one still costs its flags. */
double flat_cost_stage(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    const struct tutti_machine *m = &inst->machine;
    const struct bytes bytes = bytes_of(inst, call);
    double most = bytes.in > bytes.out ? bytes.in : bytes.out, copy = m->copy_gbs, give = m->give_gbs;
    double rounds = inst->chunk ? most / (double)inst->chunk : 0, transfers = flows[call->info.kind].transfers + rounds;
    double posts = runs_ahead(call->info.kind) ? 0 : COST_FLAT_EXCHANGE - 1,
           turns = call->info.kind == TUTTI_REDUCE || posts > 0 ? 1 : COST_FLAT_AHEAD_STAGED;
    double looks = further((inst->n - 1) * flows[call->info.kind].looks) * (1 + rounds);
    double ns = COST_FLAT_STEPS_NS + (transfers + posts + looks) * line_ns_of(inst) + turns * turns_ns(inst, transfers);
    double past = bytes.out >= (double)FLAT_PAST_CACHE_BYTES ? COST_FLAT_PAST : 1;
    double in = bytes.in / give + bytes.in * bytes.far;
    double out = spread_ns(inst, bytes.out, copy) + past * bytes.out * bytes.far;
    double fold = spread_ns(inst, bytes.fold, (double)m->fold_gbs);
    const bool fits = inst->n * (bytes.in + bytes.out) <= (double)m->cache_kib * 1024;
    if (inst->n == 2 && moves_all(call->info.kind) && fits) in += COST_FLAT_GIVEN_BACK * bytes.in / give;
    if (!tutti_kind_info(call->info.kind)->rooted) return ns + share_of_cpu(inst) * (in + fold + out);
    /* One rank puts, others take; of gather and scatter the root alone is busy. But the root of a gather takes the
     * lines that leaves write next, and of two ranks that reduce the leaf alone folds. */
    double busy = is_of_leaves(call->info.kind) ? 1 : share_of_cpu(inst);
    if (call->info.kind == TUTTI_GATHER) return ns + share_of_cpu(inst) * in + out;
    return ns + busy * ((fold > 0 && inst->n == 2 ? in + out : larger(in, out)) + fold);
}

/* Leaves stage and go on; the root folds all that they staged, and takes the lines that they write next. */
double flat_cost_direct(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    const struct tutti_machine *m = &inst->machine;
    double block = block_bytes(inst, call), others = inst->n - 1.0, pull = tutti_machine_pull(m, 1);
    double rounds = inst->chunk ? block / (double)inst->chunk : 0, transfers = flows[TUTTI_REDUCE].transfers + rounds;
    double far = block * bytes_of(inst, call).far, fold = block / (pull < m->fold_gbs ? pull : (double)m->fold_gbs);
    double leaf = share_of_cpu(inst) * (block / (double)m->give_gbs + far);
    return COST_FLAT_STEPS_NS + (transfers + further(others) * (1 + rounds)) * line_ns_of(inst) +
           COST_FLAT_AHEAD_STAGED * turns_ns(inst, transfers) + COST_FLAT_OVERLAP * (leaf + others * (fold + far));
}

/* Nothing is staged: what comes from peers is pulled, or folded, or pushed, straight into place; all meet at the end,
 * or each leaf moves its own block. */
double flat_cost_mapped(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    double block = block_bytes(inst, call), transfers = 3;
    bool leaves = is_of_leaves(call->info.kind);
    const struct bytes bytes = leaves ? (struct bytes){block, 0, block, far_of(inst, 2 * block)} : bytes_of(inst, call);
    double moved = bytes.fold > bytes.out ? bytes.fold : bytes.out;
    double near = moved / (double)inst->machine.copy_gbs, far = (bytes.in + bytes.out) * bytes.far;
    double looks = further(flows[call->info.kind].looks > 0 ? inst->n - 1 : 1);
    bool each = flows[call->info.kind].in.each + flows[call->info.kind].out.each > 0 && !leaves;
    if (each && block < FLAT_LINE_BYTES) looks += (inst->n - 1) * COST_FLAT_PART_OF_LINE;
    double moves = share_of_cpu(inst) * (far > near ? far : near);
    return COST_FLAT_STEPS_NS + (transfers + looks) * line_ns_of(inst) +
           turns_ns(inst, leaves ? COST_FLAT_LEAF_TURNS : transfers) + moves;
}

/* ---- cross-memory copies ---- */

/* Blocks that the kernel copies for the busiest rank: at all events, one for each of the others, and, where each rank
 * has a share of the block, shares: its own, and so many times that of each of the others. */
static const struct {
    double once, each, share, shares;
} carried[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {0, 0, 0, 2}, [TUTTI_REDUCE] = {0, 0, 1, 1},         [TUTTI_BROADCAST] = {1, 0, 0, 0},
    [TUTTI_ALL_GATHER] = {0, 1, 0, 0}, [TUTTI_GATHER] = {1, 0, 0, 0},         [TUTTI_SCATTER] = {1, 0, 0, 0},
    [TUTTI_ALL_TO_ALL] = {0, 1, 0, 0}, [TUTTI_REDUCE_SCATTER] = {0, 1, 0, 0},
};

static double carried_bytes(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    enum tutti_kind kind = call->info.kind;
    double n = inst->n, block = block_bytes(inst, call), others = n - 1;
    if (kind == TUTTI_BROADCAST && inst->n == 2 && !inst->survives) return block / 2;
    return block * (carried[kind].once + carried[kind].each * others +
                    (carried[kind].share + carried[kind].shares * others) / n);
}

/* Bytes from or to so many of the others, by calls of a window each. */
static double carried_ns(const struct flat_instance *inst, double bytes, double peers, double gbs)
{
    double calls = peers * whole(bytes / peers / (double)FLAT_WINDOW_BYTES);
    return bytes / gbs + calls * (double)inst->machine.attach_ns;
}

static double waits_ns(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    double transfers = flows[call->info.kind].transfers + 1; /* all meet at the end */
    double turns = is_of_leaves(call->info.kind) ? COST_FLAT_LEAF_TURNS : transfers + COST_FLAT_ATTACH_TURNS, queue = 0;
    if (tutti_kind_info(call->info.kind)->rooted)
        queue = (inst->n_cpus && inst->n_cpus < inst->n ? inst->n_cpus : inst->n - 1) - 1.0;
    return COST_FLAT_ATTACHED_NS + transfers * line_ns_of(inst) + turns_ns(inst, turns) +
           queue * COST_FLAT_ATTACH_QUEUE_NS;
}

/* What is folded was copied here before. The kernel copies through the caches: what is too large for them is read
 * before it is overwritten. Results of shares lie in the caches of the ranks that folded them. */
double flat_cost_attach(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    const struct tutti_machine *m = &inst->machine;
    const struct bytes bytes = bytes_of(inst, call);
    enum tutti_kind kind = call->info.kind;
    bool folds = flows[kind].fold.once + flows[kind].fold.each > 0, all = carried[kind].each > 0;
    double peers = all || folds ? inst->n - 1.0 : 1, moved = carried_bytes(inst, call);
    double own = all && !folds ? bytes.out / inst->n : 0, touched = 2 * (moved + own);
    double gbs = carried[kind].shares > 0 && m->pull_gbs < m->attach_gbs ? (double)m->pull_gbs : (double)m->attach_gbs;
    double ns = carried_ns(inst, moved, peers, gbs) + own / (double)m->copy_gbs + touched * far_of(inst, touched);
    if (folds) ns += bytes.fold / (double)m->fold_gbs;
    return waits_ns(inst, call) + share_of_cpu(inst) * ns;
}

/* Private pages of the usual size: those of many have to be looked up for each use, and the kernel looks up all that
 * it copies from or to. */
static double cost_in(const struct flat_instance *inst, const struct flat_method *method,
                      const struct tutti_backend_call *call, uint64_t facts)
{
    const struct bytes bytes = bytes_of(inst, call);
    double ns = method->walk->cost_ns(inst, call), moved = carried_bytes(inst, call),
           touched = touched_bytes(call->info.kind, &bytes);
    if (facts & FLAT_HUGE) return ns;
    bool mapped = method->needs & (FLAT_SEND_MAPPED | FLAT_RECV_MAPPED);
    if (!mapped && share_of_cpu(inst) * touched > COST_FLAT_PAGES_CACHED * FLAT_PAGE_BYTES)
        ns += share_of_cpu(inst) * touched / FLAT_PAGE_BYTES * (double)inst->machine.walk_ns;
    if (!(method->needs & FLAT_ATTACHABLE)) return ns;
    if (call->info.kind == TUTTI_BROADCAST)
        moved *= inst->n - 1; /* ranks that pin the same pages wait for one another */
    return ns + share_of_cpu(inst) * moved / FLAT_PAGE_BYTES * (double)inst->machine.attach_page_ns;
}

/* ---- scans ---- */

/* Ranks run ahead of those above them: what one of them folds, keeps and hands over; the last of many has to wait for
 * the first. */
double flat_cost_chain(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    const struct tutti_machine *m = &inst->machine;
    double bytes = (double)flat_block_bytes(inst, call),
           hops = (inst->n - 1) * COST_FLAT_AHEAD + bytes / COST_FLAT_CHAIN_PIECE;
    double byte_ns = 1 / tutti_machine_pull(m, inst->n) + 1 / (double)m->copy_gbs + 1 / (double)m->give_gbs;
    double piece = bytes / flat_chain_pieces(inst), wait = inst->crowded ? 0 : inst->n - 2.0;
    if (piece > COST_FLAT_CHAIN_PIECE) piece = COST_FLAT_CHAIN_PIECE;
    return COST_FLAT_STEPS_NS + hops * line_ns_of(inst) + COST_FLAT_AHEAD_STAGED * turns_ns(inst, 1) +
           COST_FLAT_OVERLAP * share_of_cpu(inst) * bytes * (byte_ns + bytes_of(inst, call).far) +
           wait * (COST_FLAT_EXCHANGE * line_ns_of(inst) + piece * byte_ns);
}

double flat_cost_alone(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    return (double)(call->bind.count * tutti_dtype_bytes(call->info.dtype)) / inst->machine.memory_gbs;
}

/* ---- what `tutti tune` measured of the methods (model/ways.h). Members choose alike, so it counts where all have read
 * the same: cards compare its mark. ---- */

struct flat_tuned {
    float times[FLAT_METHODS_MOST][TUTTI_WAY_MEMORIES][TUTTI_WAY_SIZES];
};

/* The nearest of the file's numbers of ranks at which ranks have CPUs of their own if they have here. */
struct reading {
    struct flat_instance *inst;
    uint32_t ranks; /* 0: there is none yet */
    double distance;
};

static double distance_of(uint32_t a, uint32_t b)
{
    return a > b ? (double)a / b : (double)b / a;
}

static void take(void *to, const struct tutti_way_times *way)
{
    struct reading *reading = to;
    struct flat_tuned *tuned = reading->inst->tuned;
    const bool crowded = way->ranks > (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    const double distance = distance_of(way->ranks, reading->inst->n);
    if (crowded != reading->inst->crowded) return;
    if (way->ranks != reading->ranks) {
        if (reading->ranks && distance >= reading->distance) return;
        reading->ranks = way->ranks;
        reading->distance = distance;
        memset(tuned->times, 0, sizeof tuned->times);
    }
    for (size_t i = 0; i < flat_n_methods; i++)
        if (flat_methods[i].kind == way->kind && strcmp(flat_methods[i].name, way->name) == 0)
            memcpy(tuned->times[i][way->memory], way->times, sizeof way->times);
}

enum tutti_status flat_tuned_open(struct flat_instance *inst, const struct tutti_config *options, uint64_t *mark)
{
    struct reading reading = {.inst = inst};
    char path[PATH_MAX];
    *mark = 0;
    if (!tutti_machine_file(options, path, sizeof path)) return TUTTI_OK;
    inst->tuned = tutti_alloc(sizeof *inst->tuned);
    if (!inst->tuned) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for what tutti tune measured");
    /* What is wrong with the file was logged when the constants were read from it. */
    if (tutti_ways_read(path, take, &reading) >= 0 && reading.ranks)
        *mark = tutti_hash64(inst->tuned->times, sizeof inst->tuned->times, 0);
    if (*mark == 0) flat_tuned_close(inst);
    return TUTTI_OK;
}

void flat_tuned_close(struct flat_instance *inst)
{
    tutti_free(inst->tuned);
    inst->tuned = NULL;
}

/* A buffer that there is not counts as mapped. */
static enum tutti_way_memory memory_of(uint64_t facts)
{
    if ((facts & FLAT_SEND_MAPPED) && (facts & FLAT_RECV_MAPPED)) return TUTTI_WAY_MAPPED;
    return facts & FLAT_HUGE ? TUTTI_WAY_HUGE : TUTTI_WAY_4K;
}

/* Measured over predicted time; 1: not measured. */
static double correction(const struct flat_instance *inst, const struct flat_method *method,
                         const struct tutti_backend_call *call, uint64_t facts)
{
    const size_t block = flat_block_bytes(inst, call);
    if (!inst->tuned || block == SIZE_MAX) return 1;
    const uint64_t bytes = tutti_kind_info(call->info.kind)->block_a_slot ? (uint64_t)block * inst->n : block;
    return tutti_way_at(inst->tuned->times[method - flat_methods][memory_of(facts)], bytes);
}

double flat_cost_of(const struct flat_instance *inst, const struct flat_method *method,
                    const struct tutti_backend_call *call, uint64_t facts)
{
    return cost_in(inst, method, call, facts) * correction(inst, method, call, facts);
}
