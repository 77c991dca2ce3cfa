/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a buffer lies in huge pages: the kernel is asked (PAGEMAP_SCAN, Linux 6.7) about a few places of it, and the
 * answer is kept for some calls, for it may change and a wrong one costs nothing but time. */
#include "backend/flat/flat.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PAGE ((uint64_t)4096)
#define PLACES 4
#define USES 64

/* Of <linux/fs.h>, which many systems have from before. */
struct region {
    uint64_t start, end, categories;
};
struct question {
    uint64_t size, flags, start, end, walk_end, regions, n_regions, max_pages;
    uint64_t inverted, all_of, any_of, returned;
};
#define SCAN _IOWR('f', 16, struct question)
#define IS_HUGE (UINT64_C(1) << 6)

int flat_pages_open(struct tutti_backend_host *host)
{
    pthread_mutex_lock(&host->lock);
    if (host->pagemap == 0) host->pagemap = 1 + open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    int fd = host->pagemap - 1;
    pthread_mutex_unlock(&host->lock);
    return fd;
}

static bool is_huge(int pagemap, uintptr_t address)
{
    struct region region;
    struct question question = {
        /* the kernel writes into it where it stopped */
        .size = sizeof(question),
        .start = address / PAGE * PAGE,
        .end = address / PAGE * PAGE + PAGE,
        .regions = (uintptr_t)&region,
        .n_regions = 1,
        .max_pages = 1,
        .all_of = IS_HUGE,
        .returned = IS_HUGE,
    };
    return ioctl(pagemap, SCAN, &question) == 1;
}

static bool are_huge(int pagemap, uintptr_t at, size_t bytes)
{
    for (size_t i = 0; i < PLACES; i++)
        if (!is_huge(pagemap, at + bytes / (2 * PLACES) * (2 * i + 1))) return false;
    return true;
}

/* What is known of a buffer, or the place for it. Buffers in huge pages are alike in the low bits of addresses. */
static struct flat_pages *place_of(struct flat_instance *inst, uintptr_t at, size_t bytes)
{
    for (size_t i = 0; i < FLAT_PAGES; i++)
        if (inst->pages[i].at == at && inst->pages[i].bytes == bytes) return &inst->pages[i];
    return &inst->pages[inst->n_pages++ % FLAT_PAGES];
}

bool flat_pages_huge(struct flat_instance *inst, const void *buffer, size_t bytes)
{
    uintptr_t at = (uintptr_t)buffer;
    if (bytes == 0) return true;
    if (inst->pagemap < 0) return false;
    struct flat_pages *known = place_of(inst, at, bytes);
    if (known->at != at || known->bytes != bytes || known->uses == 0)
        *known = (struct flat_pages){at, bytes, USES, are_huge(inst->pagemap, at, bytes)};
    known->uses--;
    return known->huge;
}
