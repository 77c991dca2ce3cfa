/* SPDX-License-Identifier: BSD-3-Clause */

/* Device memory between processes by descriptors: see cuda_descriptors.h. */

#include "device/cuda/cuda_descriptors.h"
#include "device/share.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECES_MAX ((uint64_t)1 << 16) /* an offer's: no table is larger */

/* The table, in memory that the importer reads. */
struct row {
    uint64_t bytes;
    int64_t descriptor; /* the exporter's */
};
struct head {
    uint64_t nonce; /* 0: withdrawn */
    uint64_t n;
};

/* What is offered; the process's. */
struct offer {
    struct offer *next;
    struct cuda_descriptors told;
    int *descriptors;
    size_t n;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct offer *offers;

/* ---- the exporter ---- */

static void offer_free(struct offer *offer)
{
    const uint64_t withdrawn = 0;
    tutti_descriptor_withdraw(offer->told.nonce);
    tutti_descriptor_withdraw(offer->told.nonce + 1);
    if (offer->told.table >= 0) {
        /* Before what it names can come to mean something else. It fails for lack of memory alone, of which there is
         * enough: the page is there. */
        if (pwrite(offer->told.table, &withdrawn, sizeof withdrawn, 0) < 0)
            tutti_log(TUTTI_LOG_WARN, "an offer of device memory could not be withdrawn: %s", strerror(errno));
        close(offer->told.table);
    }
    for (size_t i = 0; i < offer->n; i++) close(offer->descriptors[i]);
    tutti_free(offer->descriptors);
    tutti_free(offer);
}

static enum tutti_status piece_may(struct tutti_device *gpu, uint64_t handle)
{
    struct cuda_allocation what = {0};
    struct cuda_aside aside;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = cuda_calls(gpu)->virtual_properties(&what, handle);
    TUTTI_TRY(cuda_aside_done(gpu, &aside, result, "cuMemGetAllocationPropertiesFromHandle"));
    if ((what.handle_types & CUDA_HANDLE_DESCRIPTOR) && what.location.type == CUDA_LOCATION_DEVICE) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "its allocation is this process's alone: it was made without a type for descriptors");
}

enum tutti_status cuda_descriptors_may(struct tutti_device *gpu, const struct cuda_pieces *pieces)
{
    for (size_t i = 0; i < pieces->n; i++) TUTTI_TRY(piece_may(gpu, pieces->at[i].handle));
    return TUTTI_OK;
}

static enum tutti_status export_piece(struct tutti_device *gpu, uint64_t handle, int *out)
{
    struct cuda_aside aside;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = cuda_calls(gpu)->virtual_export(out, handle, CUDA_HANDLE_DESCRIPTOR, 0);
    TUTTI_TRY(cuda_aside_done(gpu, &aside, result, "cuMemExportToShareableHandle"));
    fcntl(*out, F_SETFD, FD_CLOEXEC);
    return TUTTI_OK;
}

static enum tutti_status table_write(struct offer *offer, const struct cuda_pieces *pieces)
{
    const struct head head = {offer->told.nonce, pieces->n};
    const size_t bytes = pieces->n * sizeof(struct row);
    struct row *rows = tutti_alloc_array(pieces->n, sizeof *rows);
    if (!rows) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu descriptors", pieces->n);
    for (size_t i = 0; i < pieces->n; i++) rows[i] = (struct row){pieces->at[i].bytes, offer->descriptors[i]};
    offer->told.table = memfd_create("tutti", MFD_CLOEXEC);
    const bool done = offer->told.table >= 0 && pwrite(offer->told.table, rows, bytes, sizeof head) == (ssize_t)bytes &&
                      pwrite(offer->told.table, &head, sizeof head, 0) == (ssize_t)sizeof head;
    tutti_free(rows);
    struct tutti_descriptor offered;
    if (done && tutti_descriptor_offer(&offer->told.table, 1, offer->told.nonce, &offered) &&
        tutti_descriptor_offer(offer->descriptors, offer->n, offer->told.nonce + 1, &offered)) {
        offer->told.door = offered.door;
        return TUTTI_OK;
    }
    return tutti_fail(TUTTI_ERR_SYSTEM, "no table for descriptors of device memory: %s", strerror(errno));
}

static enum tutti_status offer_fill(struct tutti_device *gpu, const struct cuda_pieces *pieces, struct offer *offer)
{
    offer->told = (struct cuda_descriptors){.pid = getpid(), .table = -1, .n = pieces->n};
    offer->descriptors = tutti_alloc_array(pieces->n, sizeof *offer->descriptors);
    if (!offer->descriptors) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu descriptors", pieces->n);
    if (pieces->n > PIECES_MAX)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "it consists of %zu allocations, of which %llu at most are exported",
                          pieces->n, (unsigned long long)PIECES_MAX);
    while (offer->told.nonce == 0) TUTTI_TRY(tutti_random_bytes(&offer->told.nonce, sizeof offer->told.nonce));
    for (; offer->n < pieces->n; offer->n++)
        TUTTI_TRY(export_piece(gpu, pieces->at[offer->n].handle, &offer->descriptors[offer->n]));
    return table_write(offer, pieces);
}

enum tutti_status cuda_descriptors_offer(struct tutti_device *gpu, const struct cuda_pieces *pieces,
                                         struct cuda_descriptors *out)
{
    struct offer *offer = tutti_alloc(sizeof *offer);
    if (!offer) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for an offer of device memory");
    const enum tutti_status status = offer_fill(gpu, pieces, offer);
    if (status < 0) {
        struct tutti_error why = *tutti_last_error();
        offer_free(offer);
        return tutti_fail_record(&why);
    }
    *out = offer->told;
    pthread_mutex_lock(&lock);
    offer->next = offers;
    offers = offer;
    pthread_mutex_unlock(&lock);
    return TUTTI_OK;
}

void cuda_descriptors_withdraw(const struct cuda_descriptors *told)
{
    if (told->pid != getpid()) return; /* another process's, or this one's parent's, which still offers it */
    pthread_mutex_lock(&lock);
    struct offer **at = &offers;
    while (*at && (*at)->told.nonce != told->nonce) at = &(*at)->next;
    struct offer *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&lock);
    if (found) offer_free(found);
}

/* ---- the importer ---- */

/* A descriptor of the offer: the table's, or that of piece i for `nth` 1 + i. */
static enum tutti_status take(const struct cuda_descriptors *offer, int64_t descriptor, uint64_t nth, int *out)
{
    const struct tutti_descriptor told = {offer->pid, (int32_t)descriptor, offer->door, offer->nonce + nth};
    return tutti_descriptor_take(&told, out);
}

static enum tutti_status fail_gone(const struct cuda_descriptors *offer)
{
    const struct tutti_descriptor told = {.pid = offer->pid};
    return tutti_descriptor_gone(&told);
}

/* Whether the table is the offer's, still. Whatever else that descriptor may be: this reads nothing from it that
 * somebody would miss. */
static bool is_offered(int table, const struct cuda_descriptors *offer)
{
    struct stat found;
    struct head head;
    return fstat(table, &found) == 0 && S_ISREG(found.st_mode) &&
           (uint64_t)found.st_size == sizeof head + offer->n * sizeof(struct row) &&
           pread(table, &head, sizeof head, 0) == (ssize_t)sizeof head && head.nonce == offer->nonce &&
           head.n == offer->n;
}

static enum tutti_status import_piece(struct tutti_device *gpu, int descriptor, uint64_t *out)
{
    CUDA_RETURN_ASIDE(gpu, "cuMemImportFromShareableHandle", virtual_import, out, (void *)(intptr_t)descriptor,
                      CUDA_HANDLE_DESCRIPTOR);
}

static enum tutti_status take_row(struct tutti_device *gpu, const struct cuda_descriptors *offer, int table, uint64_t i,
                                  struct cuda_pieces *out)
{
    struct row row;
    int descriptor;
    if (pread(table, &row, sizeof row, (off_t)(sizeof(struct head) + i * sizeof row)) != (ssize_t)sizeof row ||
        row.bytes == 0 || row.bytes > (uint64_t)1 << 48)
        return fail_gone(offer);
    TUTTI_TRY(take(offer, row.descriptor, 1 + i, &descriptor));
    enum tutti_status status = cuda_pieces_add(out, 0, (size_t)row.bytes);
    if (status >= 0) status = import_piece(gpu, descriptor, &out->at[out->n - 1].handle);
    close(descriptor);
    return status;
}

static enum tutti_status take_table(struct tutti_device *gpu, const struct cuda_descriptors *offer,
                                    struct cuda_pieces *out)
{
    int table;
    TUTTI_TRY(take(offer, offer->table, 0, &table));
    enum tutti_status status = is_offered(table, offer) ? TUTTI_OK : fail_gone(offer);
    for (uint64_t i = 0; i < offer->n && status >= 0; i++) status = take_row(gpu, offer, table, i, out);
    /* Descriptors that were taken after it was withdrawn may be anything. */
    if (!is_offered(table, offer)) status = fail_gone(offer);
    close(table);
    return status;
}

enum tutti_status cuda_descriptors_take(struct tutti_device *gpu, const struct cuda_descriptors *offer,
                                        struct cuda_pieces *out)
{
    *out = (struct cuda_pieces){0};
    if (offer->n == 0 || offer->n > PIECES_MAX || offer->pid <= 0) return fail_gone(offer);
    const enum tutti_status status = take_table(gpu, offer, out);
    if (status >= 0) return TUTTI_OK;
    struct tutti_error why = *tutti_last_error();
    cuda_pieces_free(gpu, out);
    return tutti_fail_record(&why);
}
