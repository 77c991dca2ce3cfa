/* SPDX-License-Identifier: BSD-3-Clause */

/* The file store: a directory on a file system that all ranks share, a file a key. Values appear whole, by rename;
 * changes take a lock that the kernel frees when its holder dies, so that nothing stale stays behind; waits look again
 * and again, since no notification crosses hosts. */

#include "store/store_codec.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MIN_NS (TUTTI_NS_PER_MS)
#define LOOK_MAX_NS (20 * TUTTI_NS_PER_MS)
#define LOCK_NS (30 * TUTTI_NS_PER_S) /* holders keep it for microseconds; a stopped one is a sentence */
#define NAME_PLAIN_MAX 150            /* longer names of files end in a hash of the key */
#define FILE_MAGIC "TUTTI1\n"         /* 7 characters and a zero byte */

/* A file: magic, an HMAC over (key, value) or zeros, the value. */
struct file_head {
    char magic[8];
    uint8_t mac[TUTTI_HMAC_BYTES];
};
struct file_store {
    int dir, users; /* the file that it holds a lock of while it is open */
    bool meets;     /* keys of meetings go when nobody uses it any more */
    char path[PATH_MAX];
    char *secret; /* NULL: none */
};

/* Keys may hold anything, also slashes. Letters, digits and "_-." stand for themselves in the file's name, except a dot
 * at the beginning. */
static void name_of(const char *key, char out[NAME_MAX + 1])
{
    size_t n = strlen(key), used = 0;
    bool whole = true;
    out[used++] = 'k';
    for (size_t i = 0; i < n && whole; i++) {
        unsigned char c = (unsigned char)key[i];
        whole = used + 3 < NAME_PLAIN_MAX;
        if (!whole) break;
        if (isalnum(c) || c == '_' || c == '-' || c == '.')
            out[used++] = (char)c;
        else
            used += (size_t)snprintf(out + used, 4, "%%%02X", c);
    }
    out[used] = '\0';
    if (!whole)
        snprintf(out + used, NAME_MAX + 1 - used, "~%016" PRIx64 "%016" PRIx64, tutti_hash64(key, n, 1),
                 tutti_hash64(key, n, 2));
}

static enum tutti_status value_mac(const struct file_store *store, const char *key, const void *value, size_t bytes,
                                   uint8_t out[TUTTI_HMAC_BYTES])
{
    uint8_t of_key[TUTTI_HMAC_BYTES];
    memset(out, 0, TUTTI_HMAC_BYTES);
    if (!store->secret) return TUTTI_OK;
    TUTTI_TRY(tutti_hmac(store->secret, strlen(store->secret), key, strlen(key), of_key));
    return tutti_hmac(of_key, sizeof of_key, bytes ? value : "", bytes, out);
}

/* ---- one value ---- */

static enum tutti_status write_all(int fd, const void *bytes, size_t n)
{
    for (const uint8_t *p = bytes; n > 0;) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno != EINTR) return TUTTI_ERR_SYSTEM;
        if (k > 0) p += k, n -= (size_t)k;
    }
    return TUTTI_OK;
}

static enum tutti_status value_write(const struct file_store *store, const char *key, const void *value, size_t bytes)
{
    char name[NAME_MAX + 1], temporary[64];
    struct file_head head = {.magic = FILE_MAGIC};
    uint64_t random;
    TUTTI_TRY(value_mac(store, key, value, bytes, head.mac));
    TUTTI_TRY(tutti_random_bytes(&random, sizeof random));
    name_of(key, name);
    snprintf(temporary, sizeof temporary, ".new-%016" PRIx64, random);
    int fd = openat(store->dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the store %s can not take key %.100s", store->path, key);
    bool written = write_all(fd, &head, sizeof head) == TUTTI_OK && write_all(fd, value, bytes) == TUTTI_OK;
    written = close(fd) == 0 && written;
    if (written && renameat(store->dir, temporary, store->dir, name) == 0) return TUTTI_OK;
    enum tutti_status status =
        tutti_fail_errno(TUTTI_ERR_SYSTEM, "the store %s can not take key %.100s", store->path, key);
    unlinkat(store->dir, temporary, 0);
    return status;
}

/* The value in out[TUTTI_STORE_VALUE_MAX]; AGAIN when there is none. */
static enum tutti_status value_read(const struct file_store *store, const char *key, uint8_t *out, size_t *bytes)
{
    char name[NAME_MAX + 1];
    uint8_t expected[TUTTI_HMAC_BYTES];
    struct file_head head;
    name_of(key, name);
    int fd = openat(store->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && (errno == ENOENT || errno == ESTALE)) return TUTTI_AGAIN;
    if (fd < 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "key %.100s of the store %s can not be read", key, store->path);
    bool whole = read(fd, &head, sizeof head) == (ssize_t)sizeof head;
    size_t n = 0;
    ssize_t k = 0;
    while (whole && n < TUTTI_STORE_VALUE_MAX && (k = read(fd, out + n, TUTTI_STORE_VALUE_MAX - n)) > 0) n += (size_t)k;
    close(fd);
    if (!whole || k < 0 || memcmp(head.magic, FILE_MAGIC, sizeof head.magic) != 0)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "key %.100s of the store %s holds something that tutti did not write",
                          key, store->path);
    TUTTI_TRY(value_mac(store, key, out, n, expected));
    if (!tutti_hmac_equal(expected, head.mac)) {
        tutti_log(TUTTI_LOG_WARN, "refused key %.100s of the store %s: it does not verify", key, store->path);
        return tutti_fail(TUTTI_ERR_AUTH, "key %.100s of the store %s was written with another secret, or without one",
                          key, store->path);
    }
    *bytes = n;
    return TUTTI_OK;
}

/* Looks until there is a value. */
static enum tutti_status value_wait(const struct file_store *store, const char *key, uint64_t deadline_ns, uint8_t *out,
                                    size_t *bytes)
{
    const uint64_t start_ns = tutti_now_ns();
    uint64_t pause = LOOK_MIN_NS;
    for (;;) {
        enum tutti_status status = value_read(store, key, out, bytes);
        if (status != TUTTI_AGAIN) return status;
        uint64_t now = tutti_now_ns();
        if (now >= deadline_ns)
            return tutti_fail(TUTTI_ERR_TIMEOUT, "key %.100s did not appear in the store %s: " TUTTI_SAYS_TIMED_OUT,
                              key, store->path, tutti_says_ms(now - start_ns));
        tutti_sleep_ns(pause < deadline_ns - now ? pause : deadline_ns - now);
        pause = pause * 2 < LOOK_MAX_NS ? pause * 2 : LOOK_MAX_NS;
    }
}

/* ---- the lock ---- */

/* Each holder opens the file anew: locks of open file descriptions keep threads of one process apart, too. */
static enum tutti_status lock_take(const struct file_store *store, int *out)
{
    uint64_t deadline = tutti_deadline_ns(LOCK_NS);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(store->dir, ".lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the store %s can not be locked", store->path);
    while (fcntl(fd, F_OFD_SETLK, &whole) != 0) {
        bool busy = errno == EAGAIN || errno == EACCES || errno == EINTR;
        if (!busy || tutti_now_ns() >= deadline) {
            enum tutti_status status = tutti_fail_errno(busy ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_SYSTEM,
                                                        "the store %s can not be locked", store->path);
            close(fd);
            return status;
        }
        tutti_sleep_ns(LOOK_MIN_NS / 2);
    }
    *out = fd;
    return TUTTI_OK;
}

/* ---- the calls ---- */

static enum tutti_status file_set(void *self, const char *key, const void *value, size_t bytes)
{
    int lock = -1;
    TUTTI_TRY(tutti_store_key_check(key));
    TUTTI_TRY(tutti_store_value_check(bytes));
    TUTTI_TRY(lock_take(self, &lock)); /* not between the read and the write of an add */
    enum tutti_status status = value_write(self, key, value, bytes);
    close(lock);
    return status;
}

static enum tutti_status file_get(void *self, const char *key, void *value, size_t capacity, size_t *bytes,
                                  uint64_t deadline_ns)
{
    size_t n = 0;
    TUTTI_TRY(tutti_store_key_check(key));
    uint8_t *buffer = tutti_alloc(TUTTI_STORE_VALUE_MAX);
    if (!buffer) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a store's value");
    enum tutti_status status = value_wait(self, key, deadline_ns, buffer, &n);
    if (status == TUTTI_OK) status = tutti_store_value_give(key, buffer, n, value, capacity, bytes);
    tutti_free(buffer);
    return status;
}

static enum tutti_status file_wait(void *self, const char *key, uint64_t deadline_ns)
{
    enum tutti_status status = file_get(self, key, NULL, 0, NULL, deadline_ns);
    return status == TUTTI_ERR_TRUNCATED ? TUTTI_OK : status;
}

/* The counter's value, 0 when there is none. */
static enum tutti_status counter_read(const struct file_store *store, const char *key, int64_t *out)
{
    uint8_t *buffer = tutti_alloc(TUTTI_STORE_VALUE_MAX);
    size_t n = 0;
    if (!buffer) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a store's value");
    enum tutti_status status = value_read(store, key, buffer, &n);
    *out = 0;
    if (status == TUTTI_OK && !tutti_store_counter_parse(buffer, n, out))
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "key %.100s does not hold a counter", key);
    tutti_free(buffer);
    return status == TUTTI_AGAIN ? TUTTI_OK : status;
}

static enum tutti_status file_add(void *self, const char *key, int64_t delta, int64_t *value)
{
    const struct file_store *store = self;
    char text[24];
    int64_t counter = 0;
    int lock = -1;
    TUTTI_TRY(tutti_store_key_check(key));
    TUTTI_TRY(lock_take(store, &lock));
    enum tutti_status status = counter_read(store, key, &counter);
    if (status == TUTTI_OK && __builtin_add_overflow(counter, delta, &counter))
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "the counter of key %.100s overflows", key);
    if (status == TUTTI_OK) {
        int n = snprintf(text, sizeof text, "%" PRId64, counter);
        status = value_write(store, key, text, (size_t)n);
    }
    close(lock);
    if (status == TUTTI_OK && value) *value = counter;
    return status;
}

static enum tutti_status file_remove(void *self, const char *key, bool *existed)
{
    const struct file_store *store = self;
    char name[NAME_MAX + 1];
    int lock = -1;
    TUTTI_TRY(tutti_store_key_check(key));
    name_of(key, name);
    TUTTI_TRY(lock_take(store, &lock));
    bool gone = unlinkat(store->dir, name, 0) == 0;
    enum tutti_status status = TUTTI_OK;
    if (!gone && errno != ENOENT)
        status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "key %.100s of the store %s can not be removed", key, store->path);
    close(lock);
    if (status == TUTTI_OK && existed) *existed = gone;
    return status;
}

/* ---- the directory: who uses it, and what stays ---- */

/* Each open store holds a shared lock of ".users", which the kernel frees when its process dies. Whoever gets it for
 * himself alone is the last: he removes what meetings left, and the directory where ".made" says that a store made it
 * and no key is left. */

static bool users_lock(const struct file_store *store, short type)
{
    struct flock whole = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(store->users, F_OFD_SETLK, &whole) == 0;
}

static bool users_join(const struct file_store *store)
{
    const uint64_t deadline = tutti_deadline_ns(LOCK_NS);
    while (!users_lock(store, F_RDLCK)) {
        const bool busy = errno == EAGAIN || errno == EACCES || errno == EINTR;
        if (!busy || tutti_now_ns() >= deadline) return false;
        tutti_sleep_ns(LOOK_MIN_NS / 2);
    }
    return true;
}

/* The directory is still what the path names, and so is the file of users. */
static bool is_current(const struct file_store *store)
{
    struct stat held, named;
    return fstat(store->dir, &held) == 0 && stat(store->path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev && fstat(store->users, &held) == 0 && held.st_nlink > 0;
}

/* A key of a meeting. Those of the door (comm/life) outlive it: an arbiter's word is for ever. */
static bool is_of_meeting(const char *name)
{
    return strncmp(name, "ktutti%2F", 9) == 0 && !strstr(name, "%2Fdoor%2F") && !strchr(name, '~');
}

/* Removes keys of meetings (if `meets`) and files that were not finished. True: no key is left. */
static bool keys_sweep(const struct file_store *store)
{
    const int copy = openat(store->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    bool empty = dir != NULL;
    if (!dir && copy >= 0) close(copy);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        static const char *const ours[] = {".", "..", ".lock", ".users", ".made"};
        bool known = false;
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(ours); i++) known = known || strcmp(name, ours[i]) == 0;
        const bool goes = strncmp(name, ".new-", 5) == 0 || (store->meets && is_of_meeting(name));
        if (!known && (!goes || unlinkat(store->dir, name, 0) != 0)) empty = false;
    }
    if (dir) closedir(dir);
    return empty;
}

/* By the last that uses it. Whoever comes meanwhile finds ".users" or the directory gone, and begins again. */
static void directory_leave(struct file_store *store)
{
    struct stat made;
    const bool goes = keys_sweep(store) && fstatat(store->dir, ".made", &made, 0) == 0;
    if (goes) {
        unlinkat(store->dir, ".lock", 0);
        unlinkat(store->dir, ".made", 0);
        unlinkat(store->dir, ".users", 0);
    }
    close(store->users); /* over NFS a file that is open keeps its directory */
    close(store->dir);
    store->users = store->dir = -1;
    if (goes) rmdir(store->path);
}

static void file_close(void *self)
{
    struct file_store *store = self;
    /* The last to unlock finds itself alone, also where several close at once. */
    if (store->users >= 0 && users_lock(store, F_UNLCK) && users_lock(store, F_WRLCK) && is_current(store))
        directory_leave(store);
    if (store->users >= 0) close(store->users);
    if (store->dir >= 0) close(store->dir);
    tutti_store_secret_free(store->secret);
    tutti_free(store);
}

/* AGAIN: the last that used it has just removed it. */
static enum tutti_status directory_enter(struct file_store *store)
{
    const char *path = store->path;
    const bool made = mkdir(path, 0700) == 0;
    if (!made && errno != EEXIST)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the store's directory %.200s can not be made", path);
    store->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->dir < 0 && errno == ENOENT) return TUTTI_AGAIN;
    if (store->dir < 0 || faccessat(store->dir, ".", R_OK | W_OK | X_OK, 0) != 0)
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the store's directory %.200s can not be used", path);
    store->users = openat(store->dir, ".users", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store->users < 0 && errno == ENOENT) return TUTTI_AGAIN;
    if (store->users < 0 || !users_join(store))
        return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the store %.200s can not be locked", path);
    if (!is_current(store)) return TUTTI_AGAIN;
    if (store->meets && users_lock(store, F_WRLCK)) { /* what is here is of those that were killed */
        keys_sweep(store);
        users_lock(store, F_RDLCK);
    }
    const int fd = made ? openat(store->dir, ".made", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) close(fd);
    return TUTTI_OK;
}

static const struct tutti_store_ops file_ops = {
    .size = sizeof(struct tutti_store_ops),
    .set = file_set,
    .get = file_get,
    .wait = file_wait,
    .add = file_add,
    .remove = file_remove,
    .close = file_close,
};

enum tutti_status tutti_store_file_open(const char *path, const char *secret, bool meets, struct tutti_store *out)
{
    const uint64_t deadline = tutti_deadline_ns(LOCK_NS);
    enum tutti_status status;
    struct file_store *store = tutti_alloc(sizeof *store);
    if (!store) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a store");
    store->dir = store->users = -1;
    store->meets = meets;
    snprintf(store->path, sizeof store->path, "%s", path);
    TUTTI_TRY_GOTO(status, tutti_store_secret_copy(secret, &store->secret), err_close);
    while ((status = directory_enter(store)) == TUTTI_AGAIN && tutti_now_ns() < deadline) {
        if (store->users >= 0) close(store->users);
        if (store->dir >= 0) close(store->dir);
        store->dir = store->users = -1;
        tutti_sleep_ns(LOOK_MIN_NS / 2);
    }
    if (status == TUTTI_AGAIN)
        status = tutti_fail(TUTTI_ERR_TIMEOUT, "the store's directory %.200s comes and goes", path);
    if (status < 0) goto err_close;
    *out = (struct tutti_store){&file_ops, store};
    return TUTTI_OK;
err_close:
    file_close(store);
    return status;
}
