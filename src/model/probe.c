/* SPDX-License-Identifier: BSD-3-Clause */
/* What one process finds out of its machine at once, where no file says it: copies in the own cache and beyond it, and
 * cross-memory copies, of its own memory. What the kernel guards against, and whether this is a guest, changes them,
 * and choices depend on them. Some 0.7 ms, once a process. */

#include "model/machine.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define BYTES ((size_t)256 << 10) /* with what they are copied to in the own cache */
#define PAGE_BYTES 4096
#define MID_BYTES ((size_t)1 << 20) /* with what they are copied to beyond the own cache, in the last one */
#define TRIES 8
#define MID_TRIES 3

static struct {
    pthread_once_t once;
    float copy_gbs, mid_gbs, attach_ns, attach_page_ns, attach_gbs; /* 0: not known */
} found = {.once = PTHREAD_ONCE_INIT};

typedef bool act_function(unsigned char *to, unsigned char *from, size_t bytes);

static bool copy(unsigned char *to, unsigned char *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return true;
}

static bool attach(unsigned char *to, unsigned char *from, size_t bytes)
{
    const struct iovec here = {to, bytes}, there = {from, bytes};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* Time of the fastest copy in ns; 0: it is not permitted. */
static double best_ns(act_function *act, unsigned char *to, unsigned char *from, size_t bytes, int tries)
{
    double best = 0;
    for (int i = 0; i < tries; i++) {
        const uint64_t start = tutti_now_ns();
        if (!act(to, from, bytes)) return 0;
        const double ns = (double)(tutti_now_ns() - start);
        if (i == 0 || ns < best) best = ns;
    }
    return best;
}

/* In steps of a quarter of an octave: so nearly every start of a program finds the same, and chooses the same. */
static float coarse(double value)
{
    double step = 1.0 / 64;
    while (step * 1.09 < value) step *= 1.189207115;
    return (float)step;
}

static void measure(unsigned char *memory)
{
    unsigned char *from = memory + MID_BYTES;
    const double mid_ns = best_ns(copy, memory, from, MID_BYTES, MID_TRIES);
    const double copy_ns = best_ns(copy, memory, from, BYTES, TRIES), pages = BYTES / PAGE_BYTES;
    const double call_ns = best_ns(attach, memory, from, 8, TRIES),
                 all_ns = best_ns(attach, memory, from, BYTES, TRIES);
    if (copy_ns <= 0 || mid_ns <= 0) return;
    found.copy_gbs = coarse(BYTES / copy_ns);
    found.mid_gbs = coarse(MID_BYTES / mid_ns);
    if (call_ns < 1 || all_ns <= 0) return;
    found.attach_ns = coarse(call_ns);
    found.attach_page_ns = coarse((all_ns - call_ns - copy_ns) / pages);
    found.attach_gbs = found.copy_gbs; /* apart from its pages */
}

static void probe(void)
{
    unsigned char *memory = mmap(NULL, 2 * MID_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    (void)madvise(memory, 2 * MID_BYTES, MADV_NOHUGEPAGE);
    memset(memory, 1, 2 * MID_BYTES);
    measure(memory);
    munmap(memory, 2 * MID_BYTES);
}

void tutti_machine_probe(const struct tutti_config *config, struct tutti_machine *machine)
{
    if (strcmp(config->text[TUTTI_OPT_tuning], "auto") != 0 || tutti_machine_has_file()) return;
    pthread_once(&found.once, probe);
    if (found.copy_gbs > 0) machine->copy_gbs = found.copy_gbs, machine->mid_gbs = found.mid_gbs;
    if (found.attach_ns <= 0) return;
    machine->attach_ns = found.attach_ns;
    machine->attach_page_ns = found.attach_page_ns;
    machine->attach_gbs = found.attach_gbs;
}
