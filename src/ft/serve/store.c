/* SPDX-License-Identifier: BSD-3-Clause */
/* Files: a head of five numbers (magic, ballot, number, bytes of the key, bytes of the value), key and value, and a
 * checksum of all. The ballot's file is a record without a key. */
#include "ft/serve/store.h"

#include "base/session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

struct serve_store {
    int folder, lock;
    uint64_t promised; /* as it is on the disk */
    char *path;
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

static uint8_t *encode(const struct tutti_record *record, size_t *n)
{
    const size_t n_key = strlen(record->key);
    const uint64_t head[] = {MAGIC, record->ballot, record->number, n_key, record->n};

    *n = HEAD + n_key + record->n + SUM;
    uint8_t *bytes = tutti_alloc(*n);
    if (!bytes) return NULL;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(head); i++) tutti_le_store(bytes + 8 * i, 8, head[i]);
    memcpy(bytes + HEAD, record->key, n_key);
    if (record->n > 0) memcpy(bytes + HEAD + n_key, record->bytes, record->n);
    tutti_le_store(bytes + *n - SUM, 8, tutti_hash64(bytes, *n - SUM, 0));
    return bytes;
}

/* The old file, or the new one whole: never between. */
static bool put(const struct serve_store *store, const struct tutti_record *record)
{
    char name[NAME];
    size_t n;
    uint8_t *bytes = encode(record, &n);
    const int fd = bytes ? openat(store->folder, "new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    bool good = fd >= 0 && write_all(fd, bytes, n) && fsync(fd) == 0;

    name_of(record->key, name);
    if (fd >= 0) good = close(fd) == 0 && good;
    good = good && renameat(store->folder, "new", store->folder, name) == 0 && fsync(store->folder) == 0;
    if (!good) tutti_log(TUTTI_LOG_ERROR, "can not write to %s: %s", store->path, strerror(errno));
    tutti_free(bytes);
    return good;
}

bool serve_store_keep(struct serve_store *store, uint64_t promised, const struct tutti_record *record)
{
    if (record) return put(store, record);
    if (!put(store, &(struct tutti_record){.key = "", .ballot = promised})) return false;
    store->promised = promised;
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

static enum tutti_status load(struct serve_store *store, const char *name, struct tutti_council *council)
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
        store->promised = record.ballot;
    else
        status = tutti_council_restore(council, store->promised, &record, 1);
    tutti_free(bytes);
    return status;
}

static enum tutti_status load_all(struct serve_store *store, struct tutti_council *council)
{
    const int fd = dup(store->folder);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    enum tutti_status status = TUTTI_OK;

    if (!folder) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "can not read %s", store->path);
    while (status >= 0 && (entry = readdir(folder)))
        if (strcmp(entry->d_name, "ballot") == 0 || strncmp(entry->d_name, "job-", 4) == 0)
            status = load(store, entry->d_name, council);
    closedir(folder);
    return status < 0 ? status : tutti_council_restore(council, store->promised, NULL, 0);
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

enum tutti_status serve_store_open(const char *path, struct tutti_council *council, struct serve_store **out)
{
    struct serve_store *store = tutti_alloc(sizeof(*store));

    if (!store) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the lighthouse");
    store->folder = store->lock = -1;
    store->path = tutti_text_copy(path);
    enum tutti_status status =
        store->path ? open_folder(store, path) : tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the lighthouse");
    if (status >= 0) status = load_all(store, council);
    if (status < 0)
        serve_store_close(store);
    else
        *out = store;
    return status;
}

void serve_store_close(struct serve_store *store)
{
    if (!store) return;
    if (store->lock >= 0) close(store->lock);
    if (store->folder >= 0) close(store->folder);
    tutti_free(store->path);
    tutti_free(store);
}
