/* SPDX-License-Identifier: BSD-3-Clause */
/* Grids (grid.h). The scheduler goes round all threads of all blocks, from a place that changes from round to round;
 * threads that wait at a barrier are passed over, and a round in which all only looked at memory gives the CPU away. */

#include "grid.h"

#include "fiber.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>
#include <sched.h>
#include <unordered_map>
#include <vector>

namespace
{
const uint32_t warp_threads = 32;

/* A meeting of threads that takes place again and again; values of two turns, since who is quick begins the next one
 * while others still read. */
struct meeting {
    uint32_t members = 0; /* that have not returned */
    uint32_t n_came = 0, turn = 0;
    cuda_standin_kind kind = STANDIN_SYNC;
    cuda_standin_votes votes[2] = {};
    uint32_t values[2][warp_threads] = {}, lanes[2] = {};
};
struct block_state {
    meeting all;
    std::vector<meeting> warps;
    std::unordered_map<const void *, std::unique_ptr<char[]>> shared;
};
} // namespace

struct cuda_standin_fiber {
    cuda_standin_thread thread;
    fiber stack;
    block_state *block;
    const uint32_t *gate; /* waits while *gate is `shut` */
    uint32_t shut;
    bool begun, over;
};

namespace
{
struct grid {
    const cuda_standin_launch *launch;
    fiber home; /* the thread that runs the grid */
    std::vector<cuda_standin_fiber> fibers;
    std::deque<block_state> blocks;
    size_t n_left;
    size_t n_begun; /* blocks that have had room by now */
};
thread_local grid *current_grid;

void go_home()
{
    grid *all = current_grid;
    cuda_standin_fiber *self = cuda_standin_current->self;
    self->thread.n_loads = 0;
    fiber_switch(&self->stack, &all->home);
}

void wait_at(const uint32_t *gate, uint32_t shut)
{
    cuda_standin_fiber *self = cuda_standin_current->self;
    self->gate = gate;
    self->shut = shut;
    go_home();
}

void open_turn(meeting *met)
{
    const uint32_t next = (met->turn + 1) & 1;
    met->votes[next] = {};
    met->lanes[next] = 0;
    met->n_came = 0;
    met->turn++;
}

/* Comes to the meeting and waits for all others; the turn that it was. `place`: among the values. */
uint32_t come(meeting *met, cuda_standin_kind kind, uint32_t place, bool flag, uint32_t value)
{
    const uint32_t turn = met->turn;
    if (met->n_came == 0) met->kind = kind;
    if (met->kind != kind) cuda_standin_fatal("threads meet in different operations (%d, %d)", met->kind, kind);
    cuda_standin_votes *votes = &met->votes[turn & 1];
    votes->n++;
    votes->n_true += flag;
    if (place < warp_threads) {
        votes->mask |= (uint32_t)flag << place;
        met->values[turn & 1][place] = value;
        met->lanes[turn & 1] |= 1u << place;
    }
    if (++met->n_came == met->members) {
        open_turn(met);
    } else {
        wait_at(&met->turn, turn);
    }
    return turn;
}

meeting *warp_of(cuda_standin_fiber *self)
{
    return &self->block->warps[self->thread.thread / warp_threads];
}

/* A thread that has returned is not waited for. */
void leave(meeting *met)
{
    met->members--;
    if (met->members > 0 && met->n_came == met->members) open_turn(met);
}

void run_thread(void *arg)
{
    cuda_standin_fiber *self = static_cast<cuda_standin_fiber *>(arg);
    const cuda_standin_launch *launch = current_grid->launch;
    launch->kernel->run(launch->parameter);
    leave(warp_of(self));
    leave(&self->block->all);
    self->over = true;
    go_home();
}

bool runnable(const grid *all, const cuda_standin_fiber *fiber)
{
    return fiber->thread.block < all->n_begun && !fiber->over && (!fiber->gate || *fiber->gate != fiber->shut);
}

/* Lets the thread run until it waits: whether it came to a barrier or its end, rather than to look once more. */
bool resume(grid *all, cuda_standin_fiber *next)
{
    next->gate = nullptr;
    if (!next->begun) {
        next->begun = true;
        fiber_prepare(&next->stack, run_thread, next);
    }
    cuda_standin_current = &next->thread;
    fiber_switch(&all->home, &next->stack);
    cuda_standin_current = nullptr;
    if (next->over) {
        all->n_left--;
        if (next->block->all.members == 0) all->n_begun++;
        fiber_release(&next->stack);
    }
    return next->over || next->gate;
}

void prepare(grid *all, const cuda_standin_launch &launch)
{
    all->launch = &launch;
    all->n_left = (size_t)launch.blocks * launch.threads;
    all->n_begun = launch.room;
    all->fibers.resize(all->n_left);
    for (uint32_t b = 0; b < launch.blocks; b++) {
        all->blocks.emplace_back();
        block_state *block = &all->blocks.back();
        block->all.members = launch.threads;
        block->warps.resize((launch.threads + warp_threads - 1) / warp_threads);
        for (uint32_t t = 0; t < launch.threads; t++) {
            cuda_standin_fiber *made = &all->fibers[(size_t)b * launch.threads + t];
            *made = {};
            made->thread = {t, launch.threads, b, launch.blocks, 0, false, made};
            made->block = block;
            block->warps[t / warp_threads].members++;
        }
    }
}
} // namespace

thread_local cuda_standin_thread *cuda_standin_current;

void cuda_standin_fatal(const char *format, ...)
{
    const cuda_standin_thread *at = cuda_standin_current;
    if (current_grid) fprintf(stderr, "standin: kernel %s: ", current_grid->launch->kernel->name);
    if (at) fprintf(stderr, "block %u thread %u: ", at->block, at->thread);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

void cuda_standin_idle(size_t n_rounds)
{
    static const timespec nap = {0, 50000};
    if (n_rounds < 100) {
        sched_yield();
    } else {
        nanosleep(&nap, nullptr);
    }
}

void cuda_standin_run(const cuda_standin_launch &launch)
{
    grid all;
    prepare(&all, launch);
    current_grid = &all;
    const size_t n = all.fibers.size();
    size_t from = 0, n_idle = 0;
    while (all.n_left > 0) {
        size_t n_ran = 0;
        bool advanced = false;
        for (size_t i = 0; i < n; i++) {
            cuda_standin_fiber *next = &all.fibers[from + i < n ? from + i : from + i - n];
            if (!runnable(&all, next)) continue;
            n_ran++;
            advanced |= resume(&all, next);
        }
        if (n_ran == 0) cuda_standin_fatal("all %zu threads wait at barriers", all.n_left);
        n_idle = advanced ? 0 : n_idle + 1;
        if (n_idle > 0) cuda_standin_idle(n_idle);
        from = (from + 7919) % n;
    }
    current_grid = nullptr;
}

static cuda_standin_kernel *first_kernel;

cuda_standin_kernel::cuda_standin_kernel(const char *kernel_name, void (*kernel_run)(const void *), size_t bytes,
                                         cuda_standin_bounds of_launches)
    : name(kernel_name), run(kernel_run), parameter_bytes(bytes), bounds(of_launches), next(first_kernel)
{
    first_kernel = this;
}

cuda_standin_kernel *cuda_standin_kernels()
{
    return first_kernel;
}

/* ---- what threads ask for ---- */
void cuda_standin_yield()
{
    go_home();
}

void cuda_standin_sync_block()
{
    come(&cuda_standin_current->self->block->all, STANDIN_SYNC, warp_threads, false, 0);
}

cuda_standin_votes cuda_standin_vote_block(bool flag)
{
    meeting *met = &cuda_standin_current->self->block->all;
    return met->votes[come(met, STANDIN_VOTE, warp_threads, flag, 0) & 1];
}

void cuda_standin_sync_warp()
{
    come(warp_of(cuda_standin_current->self), STANDIN_SYNC, cuda_standin_current->thread % warp_threads, false, 0);
}

cuda_standin_votes cuda_standin_vote_warp(bool flag)
{
    meeting *met = warp_of(cuda_standin_current->self);
    return met->votes[come(met, STANDIN_VOTE, cuda_standin_current->thread % warp_threads, flag, 0) & 1];
}

uint32_t cuda_standin_shuffle(uint32_t v, uint32_t lane)
{
    meeting *met = warp_of(cuda_standin_current->self);
    const uint32_t turn = come(met, STANDIN_SHUFFLE, cuda_standin_current->thread % warp_threads, false, v) & 1;
    return met->lanes[turn] & 1u << lane ? met->values[turn][lane] : 0xdeadbeef; /* none met: undefined */
}

static std::unique_ptr<char[]> garbage(size_t bytes)
{
    std::unique_ptr<char[]> made(new char[bytes + 16]);
    memset(made.get(), 0xcd, bytes + 16);
    return made;
}

void *cuda_standin_shared(const void *tag, size_t bytes)
{
    std::unique_ptr<char[]> &memory = cuda_standin_current->self->block->shared[tag];
    if (!memory) memory = garbage(bytes);
    return memory.get();
}
