/* SPDX-License-Identifier: BSD-3-Clause */
/* Files, written by a thread of their own. Each has a head of five numbers (magic, ballot, number, bytes of the key,
 * bytes of the value), key and value, and a checksum of all. The ballot's file is a record without a key. */
#include "ft/serve/store.h"

#include "base/session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x31656b616c747574)
#define HEAD ((size_t)40)
#define SUM ((size_t)8)
#define MOST ((size_t)64 << 20)
#define NAME 64
#define MANY 8 /* files that are flushed by one call rather than each */

/* A file that is to be written. */
struct write {
    struct write *next;
    char name[NAME];
    size_t n;
    uint8_t bytes[];
};
struct serve_store {
    struct tutti_loop_post post; /* first: some writes are over */
    struct tutti_loop *loop;
    void (*kept)(void *arg, uint64_t n, bool good);
    void *arg;
    int folder, lock;
    char *path;
    pthread_t thread;
    pthread_mutex_t mutex; /* for what follows */
    pthread_cond_t some;
    struct write *first, **last;
    bool runs, ends, good; /* good: of the writes that are over */
    uint64_t n_over;       /* ... and that nobody has heard of yet */
};

/* "ballot", or a name that is made of the key, which may be any text. */
static void name_of(const char *key, char out[NAME])
{
    if (!key[0])
        snprintf(out, NAME, "ballot");
    else
        snprintf(out, NAME, "job-%016" PRIx64 "%016" PRIx64, tutti_hash64(key, strlen(key), 1),
                 tutti_hash64(key, strlen(key), 2));
}

/* ---- writing ---- */
static bool write_all(int fd, const uint8_t *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t written = write(fd, bytes, n);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        bytes += written, n -= (size_t)written;
    }
    return true;
}

static struct write *encode(const struct tutti_record *record)
{
    const size_t n_key = strlen(record->key), n = HEAD + n_key + record->n + SUM;
    const uint64_t head[] = {MAGIC, record->ballot, record->number, n_key, record->n};
    struct write *write = tutti_alloc(sizeof(*write) + n);

    if (!write) return NULL;
    *write = (struct write){.n = n};
    name_of(record->key, write->name);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(head); i++) tutti_le_store(write->bytes + 8 * i, 8, head[i]);
    memcpy(write->bytes + HEAD, record->key, n_key);
    if (record->n > 0) memcpy(write->bytes + HEAD + n_key, record->bytes, record->n);
    tutti_le_store(write->bytes + n - SUM, 8, tutti_hash64(write->bytes, n - SUM, 0));
    return write;
}

/* Writes it beside the old file. */
static bool put_beside(const struct serve_store *store, const struct write *write, bool sync)
{
    char beside[NAME + 8];

    snprintf(beside, sizeof beside, "new-%s", write->name);
    const int fd = openat(store->folder, beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write_all(fd, write->bytes, write->n) && (!sync || fsync(fd) == 0);
    if (fd >= 0) good = close(fd) == 0 && good;
    return good;
}

/* In the place of the old file: the old one or the new one whole, never between. */
static bool put_in_place(const struct serve_store *store, const struct write *write)
{
    char beside[NAME + 8];

    snprintf(beside, sizeof beside, "new-%s", write->name);
    return renameat(store->folder, beside, store->folder, write->name) == 0;
}

/* All of them, or as if none were; the last write to a file is in its place. Of many the whole disk is asked once. */
static bool put_all(const struct serve_store *store, const struct write *writes)
{
    bool good = true;
    uint32_t n = 0;

    for (const struct write *write = writes; write; write = write->next) n++;
    for (const struct write *write = writes; good && write; write = write->next)
        good = put_beside(store, write, n < MANY);
    if (n >= MANY) good = good && syncfs(store->folder) == 0;
    for (const struct write *write = writes; good && write; write = write->next)
        good = put_in_place(store, write) || errno == ENOENT; /* a later one of the same name was there before */
    good = good && fsync(store->folder) == 0;
    if (!good) tutti_log(TUTTI_LOG_ERROR, "can not write to %s: %s", store->path, strerror(errno));
    return good;
}

static uint64_t free_all(struct write *writes)
{
    uint64_t n = 0;

    while (writes) {
        struct write *write = writes;
        writes = write->next;
        tutti_free(write);
        n++;
    }
    return n;
}

/* The thread that waits for the disk. */
static void *run(void *arg)
{
    struct serve_store *store = arg;

    pthread_mutex_lock(&store->mutex);
    while (store->first || !store->ends) {
        struct write *writes = store->n_over == 0 ? store->first : NULL;
        if (!writes) {
            pthread_cond_wait(&store->some, &store->mutex);
            continue;
        }
        store->first = NULL, store->last = &store->first;
        pthread_mutex_unlock(&store->mutex);
        const bool good = put_all(store, writes);
        const uint64_t n = free_all(writes);
        pthread_mutex_lock(&store->mutex);
        store->good = good, store->n_over = n;
        tutti_loop_post(store->loop, &store->post);
    }
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}

/* On the loop's thread. */
static void on_over(struct tutti_loop_post *post)
{
    struct serve_store *store = (struct serve_store *)post;

    pthread_mutex_lock(&store->mutex);
    const uint64_t n = store->n_over;
    const bool good = store->good, ends = store->ends;
    store->n_over = 0;
    pthread_cond_signal(&store->some);
    pthread_mutex_unlock(&store->mutex);
    if (!ends && n > 0) store->kept(store->arg, n, good);
}

bool serve_store_keep(struct serve_store *store, uint64_t promised, const struct tutti_record *record)
{
    struct write *write = encode(record ? record : &(struct tutti_record){.key = "", .ballot = promised});

    if (!write) return false;
    pthread_mutex_lock(&store->mutex);
    *store->last = write;
    store->last = &write->next;
    pthread_cond_signal(&store->some);
    pthread_mutex_unlock(&store->mutex);
    return true;
}

/* ---- reading ---- */
static uint8_t *read_all(int fd, size_t *n)
{
    struct stat stat;
    if (fstat(fd, &stat) < 0 || stat.st_size < (off_t)(HEAD + SUM) || (size_t)stat.st_size > MOST) return NULL;
    uint8_t *bytes = tutti_alloc((size_t)stat.st_size + 1);
    *n = 0;
    while (bytes && *n < (size_t)stat.st_size) {
        const ssize_t got = read(fd, bytes + *n, (size_t)stat.st_size - *n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            tutti_free(bytes);
            return NULL;
        }
        *n += (size_t)got;
    }
    return bytes;
}

/* key: room for the 0 at its end. */
static bool decode(const uint8_t *bytes, size_t n, char key[256], struct tutti_record *out)
{
    const uint64_t n_key = tutti_le_load(bytes + 24, 8), n_value = tutti_le_load(bytes + 32, 8);

    if (tutti_le_load(bytes, 8) != MAGIC || n_key > 255 || n_value > MOST || HEAD + n_key + n_value + SUM != n ||
        tutti_le_load(bytes + n - SUM, 8) != tutti_hash64(bytes, n - SUM, 0))
        return false;
    memcpy(key, bytes + HEAD, n_key);
    key[n_key] = '\0';
    *out = (struct tutti_record){key, bytes + HEAD + n_key, n_value, tutti_le_load(bytes + 8, 8),
                                 tutti_le_load(bytes + 16, 8)};
    return strlen(key) == n_key;
}

static enum tutti_status load(const struct serve_store *store, const char *name, struct tutti_council *council,
                              uint64_t *promised)
{
    const int fd = openat(store->folder, name, O_RDONLY | O_CLOEXEC);
    struct tutti_record record;
    char key[256], expected[NAME];
    size_t n = 0;
    uint8_t *bytes = fd >= 0 ? read_all(fd, &n) : NULL;
    bool good = bytes && decode(bytes, n, key, &record);
    enum tutti_status status = TUTTI_OK;

    if (fd >= 0) close(fd);
    if (good) name_of(key, expected);
    good = good && strcmp(name, expected) == 0;
    if (!good)
        status = tutti_fail(TUTTI_ERR_PROTOCOL, "%s/%s is not what a lighthouse has written", store->path, name);
    else if (!key[0])
        *promised = record.ballot;
    else
        status = tutti_council_restore(council, *promised, &record, 1);
    tutti_free(bytes);
    return status;
}

static enum tutti_status load_all(const struct serve_store *store, struct tutti_council *council)
{
    uint64_t promised = 0;
    const int fd = dup(store->folder);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    enum tutti_status status = TUTTI_OK;

    if (!folder) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not read %s", store->path);
    while (status >= 0 && (entry = readdir(folder)))
        if (strcmp(entry->d_name, "ballot") == 0 || strncmp(entry->d_name, "job-", 4) == 0)
            status = load(store, entry->d_name, council, &promised);
    closedir(folder);
    return status < 0 ? status : tutti_council_restore(council, promised, NULL, 0);
}

/* ---- life ---- */
static enum tutti_status open_folder(struct serve_store *store, const char *path)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not make %s", path);
    store->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->folder < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not open %s", path);
    store->lock = openat(store->folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store->lock < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not write to %s", path);
    if (flock(store->lock, LOCK_EX | LOCK_NB) < 0)
        return tutti_fail(TUTTI_ERR_CONFIG, "another lighthouse has %s", path);
    return TUTTI_OK;
}

static enum tutti_status start_thread(struct serve_store *store)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int wrong = pthread_create(&store->thread, NULL, run, store);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    store->runs = wrong == 0;
    return wrong == 0 ? TUTTI_OK
                      : tutti_fail(TUTTI_ERR_SYSTEM, "no thread for the lighthouse's files: %s", strerror(wrong));
}

enum tutti_status serve_store_open(const struct serve_store_config *config, struct tutti_council *council,
                                   struct serve_store **out)
{
    struct serve_store *store = tutti_alloc(sizeof(*store));

    if (!store) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the lighthouse");
    store->post.call = on_over;
    store->loop = config->loop;
    store->kept = config->kept, store->arg = config->arg;
    store->folder = store->lock = -1;
    store->last = &store->first;
    pthread_mutex_init(&store->mutex, NULL);
    pthread_cond_init(&store->some, NULL);
    store->path = tutti_text_copy(config->folder);
    enum tutti_status status = store->path ? open_folder(store, config->folder)
                                           : tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the lighthouse");
    if (status >= 0) status = load_all(store, council);
    if (status >= 0) status = start_thread(store);
    if (status < 0)
        serve_store_close(store);
    else
        *out = store;
    return status;
}

static void nothing(void *arg)
{
    (void)arg;
}

void serve_store_close(struct serve_store *store)
{
    if (!store) return;
    pthread_mutex_lock(&store->mutex);
    store->ends = true;
    pthread_cond_signal(&store->some);
    pthread_mutex_unlock(&store->mutex);
    if (store->runs) pthread_join(store->thread, NULL);
    tutti_loop_run(store->loop, nothing, NULL); /* what it has posted is over */
    if (store->lock >= 0) close(store->lock);
    if (store->folder >= 0) close(store->folder);
    pthread_cond_destroy(&store->some);
    pthread_mutex_destroy(&store->mutex);
    tutti_free(store->path);
    tutti_free(store);
}
