/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_BASE_H
#define TUTTI_BASE_BASE_H

/* The ground: what every file of the library may use. It uses nothing but the system. Begin here: the error record, the
 * log, clock, memory, hashes, processes, threads. config.h has the options, poller.h is where a thread sleeps,
 * session.h signs frames, symbols.h finds functions of libraries that are opened at run time. Each .c file begins with
 * what it is for. */

#include <tutti/status.h>
#include <tutti/types.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TUTTI_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define TUTTI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define TUTTI_NO_STEP UINT32_MAX
#define TUTTI_CACHE_LINE 64

/* Passes an error on; for functions that return a status. */
#define TUTTI_TRY(expr)                                                                                                \
    do {                                                                                                               \
        enum tutti_status try_status_ = (expr);                                                                        \
        if (try_status_ < 0) return try_status_;                                                                       \
    } while (0)
#define TUTTI_TRY_GOTO(status, expr, label)                                                                            \
    do {                                                                                                               \
        (status) = (expr);                                                                                             \
        if ((status) < 0) goto label;                                                                                  \
    } while (0)

/* Whether a call ended because a peer is no longer there: dead, or left in order. */
static inline bool tutti_status_is_gone(enum tutti_status status)
{
    return status == TUTTI_ERR_PEER_DEAD || status == TUTTI_ERR_PEER_LEFT;
}

/* ---- element types (names.c), from the table in <tutti/types.h> ---- */
enum tutti_dtype_class {
    TUTTI_SIGNED,
    TUTTI_UNSIGNED,
    TUTTI_BOOLEAN,
    TUTTI_SMALL_FLOAT, /* computed in float32 */
    TUTTI_FLOAT,
    TUTTI_COMPLEX, /* two floats */
};
struct tutti_dtype_info {
    const char *name;
    enum tutti_dtype_class class;
    uint32_t bytes;               /* an element's */
    uint32_t mantissa_bits, bias; /* floats, and parts of complex numbers */
    bool has_infinity;
};
extern const struct tutti_dtype_info tutti_dtypes[];
/* Whether it is one. */
static inline bool tutti_dtype_is(enum tutti_dtype dtype)
{
    return (unsigned)dtype < TUTTI_N_DTYPES;
}

/* Words that programs around tutti look for (torchft, Lightning, users' own). The sentence of every deadline that
 * passed has the first, with tutti_says_ms; that of every peer that died or left has the second. */
#define TUTTI_SAYS_TIMED_OUT "timed out after %llu ms"
#define TUTTI_SAYS_CLOSED "connection closed by peer"
static inline unsigned long long tutti_says_ms(uint64_t ns)
{
    return (ns + 999999) / 1000000;
}

/* ---- errors (error.c). The function that decides an error records it once, on its thread; callers pass it on. ---- */
/* Fills the thread's record and returns status, so that `return tutti_fail(TUTTI_ERR_ARGUMENT, "count %zu ...", n)`. */
enum tutti_status tutti_fail(enum tutti_status status, const char *format, ...) TUTTI_PRINTF(2, 3);
/* The same with errno appended as text ("...: No such file or directory") and kept in the record. */
enum tutti_status tutti_fail_errno(enum tutti_status status, const char *format, ...) TUTTI_PRINTF(2, 3);
/* ARGUMENT, of a text of the user's: "FILE:LINE: sentence". */
enum tutti_status tutti_fail_at(const char *file, uint32_t line, const char *format, ...) TUTTI_PRINTF(3, 4);
/* Copies a record into the thread's (for errors that were decided elsewhere: a work, a peer). Returns its status. */
enum tutti_status tutti_fail_record(const struct tutti_error *error);
void tutti_error_set(struct tutti_error *error, enum tutti_status status, const char *format, ...) TUTTI_PRINTF(3, 4);

/* ---- text (mem.c): appends to what is in `out`, cut where the room ends. ---- */
/* "1 rank", "2 ranks": what follows the word. */
static inline const char *tutti_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}
void tutti_append(char *out, size_t capacity, const char *format, ...) TUTTI_PRINTF(3, 4);
char *tutti_text_copy(const char *text); /* by tutti_alloc; NULL: out of memory */

/* ---- log (log.c): TUTTI_LOG=error|warn|info|debug|trace (default warn), to stderr or TUTTI_LOG_FILE. One write a
 * line. */
enum tutti_log_level { TUTTI_LOG_ERROR, TUTTI_LOG_WARN, TUTTI_LOG_INFO, TUTTI_LOG_DEBUG, TUTTI_LOG_TRACE };
extern _Atomic int tutti_log_threshold;
void tutti_log_write(enum tutti_log_level level, const char *file, int line, const char *format, ...)
    TUTTI_PRINTF(4, 5);
/* The rank that this thread's lines show; -1: what the launcher's variables say. */
void tutti_log_set_rank(int32_t rank);
int tutti_log_level(const char *text);              /* -1: text is no level */
enum tutti_status tutti_log_open(const char *path); /* from now on lines go there; SYSTEM: errno says why */
/* Sets level and file of the process, NULL: leave as it is. ARGUMENT, SYSTEM. */
enum tutti_status tutti_log_configure(const char *level, const char *file);
#define tutti_log(level, ...)                                                                                          \
    do {                                                                                                               \
        if ((int)(level) <= tutti_log_threshold) tutti_log_write((level), __FILE__, __LINE__, __VA_ARGS__);            \
    } while (0)

/* ---- clock (thread.c): CLOCK_MONOTONIC, nanoseconds. ---- */
#define TUTTI_NS_PER_S UINT64_C(1000000000)
#define TUTTI_NS_PER_MS UINT64_C(1000000)
#define TUTTI_NEVER UINT64_MAX
/* n units of so many nanoseconds, TUTTI_NEVER where they do not fit: times of users become nanoseconds here. */
static inline uint64_t tutti_ns(uint64_t n, uint64_t unit_ns)
{
    uint64_t ns;
    return __builtin_mul_overflow(n, unit_ns, &ns) ? TUTTI_NEVER : ns;
}
uint64_t tutti_now_ns(void);
void tutti_sleep_ns(uint64_t ns);
/* now + timeout, TUTTI_NEVER on overflow. */
uint64_t tutti_deadline_ns(uint64_t timeout_ns);
static inline void tutti_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- hash and random (hash.c) ---- */
uint64_t tutti_hash64(const void *bytes, size_t n, uint64_t seed); /* stable across machines: used on the wire */
static inline uint64_t tutti_mix64(uint64_t x)                     /* splitmix64 finaliser */
{
    x ^= x >> 30, x *= UINT64_C(0xbf58476d1ce4e5b9), x ^= x >> 27, x *= UINT64_C(0x94d049bb133111eb), x ^= x >> 31;
    return x;
}
/* splitmix64: deterministic from the seed. */
static inline uint64_t tutti_random64(uint64_t *state)
{
    return tutti_mix64(*state += UINT64_C(0x9e3779b97f4a7c15));
}
enum tutti_status tutti_random_bytes(void *out, size_t n); /* getrandom */

/* ---- HMAC-SHA256 (hmac_openssl.c or hmac_none.c) ---- */
#define TUTTI_HMAC_BYTES 32
bool tutti_hmac_available(void);
/* UNSUPPORTED (a sentence: how to get it) when built without OpenSSL. */
enum tutti_status tutti_hmac(const void *key, size_t key_bytes, const void *message, size_t bytes,
                             uint8_t out[TUTTI_HMAC_BYTES]);
bool tutti_hmac_equal(const uint8_t *a, const uint8_t *b); /* constant time */

/* ---- memory (mem.c): malloc that tests can make fail at the n-th call; zeroed. ---- */
void *tutti_alloc(size_t bytes);                 /* NULL when out of memory */
void *tutti_alloc_array(size_t n, size_t bytes); /* overflow-checked */
void tutti_free(void *pointer);
/* Zeroed, page-aligned, untouched pages cost nothing (MAP_NORESERVE). */
void *tutti_map_lazy(size_t bytes);
void tutti_unmap(void *pointer, size_t bytes);
/* A sealable memfd of so many bytes, closed on exec. SYSTEM: the sentence names what forbids it; a limit of the sizes
 * of files (`ulimit -f`), which counts for memfds, too, would else end the process by SIGXFSZ. */
enum tutti_status tutti_memfd(const char *name, uint64_t bytes, int *out);
/* Test hook: the n-th next allocation on this thread fails (0: off). Returns allocations counted since the last call.
 */
uint64_t tutti_alloc_fail_at(uint64_t n);

/* ---- threads (thread.c) ---- */
/* A thread that takes no signals; stack_bytes 0: the usual. Returns 0 or an errno. */
int tutti_thread_start(pthread_t *thread, size_t stack_bytes, void *(*function)(void *), void *arg);
/* Waits for the mutex `ns` at most; false: others had it all the while. */
bool tutti_mutex_lock_within(pthread_mutex_t *mutex, uint64_t ns);

/* How deep this thread is in calls that may wait: a signal handler that it runs meanwhile must not enter the library.
 * Its address is the thread's mark, too. */
extern _Thread_local uint32_t tutti_inside;
/* How often this process was forked off by one that used the library: what was made before the last fork is another
 * process's, whose memory and descriptors it shares, and must not be used here. tutti_forks_count begins to count. */
extern uint32_t tutti_n_forks;
void tutti_forks_count(void);

/* ---- cpus (process.c) ---- */
#define TUTTI_CPU_SET_BITS 1024
/* CPUs by their numbers. A number beyond the table counts as its remainder; then two CPUs may look like one. */
struct tutti_cpu_set {
    uint64_t words[TUTTI_CPU_SET_BITS / 64];
};
static inline uint32_t tutti_cpu_set_count(const struct tutti_cpu_set *set)
{
    uint32_t n = 0;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(set->words); i++) n += (uint32_t)__builtin_popcountll(set->words[i]);
    return n;
}
static inline bool tutti_cpu_set_has(const struct tutti_cpu_set *set, uint32_t cpu)
{
    return set->words[cpu % TUTTI_CPU_SET_BITS / 64] >> cpu % 64 & 1;
}
/* Where the calling thread may run. False, and the set is empty, when the kernel does not say. */
bool tutti_cpus_affinity(struct tutti_cpu_set *out);
/* Whole CPUs that the cgroup's quota pays for, UINT32_MAX without one; *payer is equal for processes that share it.
 * Cached for a second. */
uint32_t tutti_cpus_quota(uint64_t *payer);
/* The same, read now. root: "" for this host, else a directory that holds proc/ and sys/. */
uint32_t tutti_cpus_quota_read(const char *root, uint64_t *payer);
uint32_t tutti_cpus_allowed(void); /* by mask and quota, for the calling thread; at least 1 */

/* ---- processes (process.c) ---- */
struct tutti_process {
    bool running; /* neither a zombie nor gone */
    char state;   /* the kernel's letter: R, S, D, T (stopped), t, Z, X */
    int32_t parent;
    uint64_t start; /* clock ticks after boot: tells it from a later process of the same number */
};
bool tutti_process_read(int32_t pid, struct tutti_process *out); /* false when there is none, or no /proc */
bool tutti_process_alive(int32_t pid, uint64_t start);           /* start 0: whatever its age */
uint64_t tutti_process_namespace(void); /* in which numbers of processes mean what they mean here; 0: not known */

/* ---- futex (thread.c), on words that may be shared between processes ---- */
/* Sleeps while *word == expected, at most until deadline (absolute, monotonic). Spurious returns are allowed. */
void tutti_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns);
void tutti_futex_wake(_Atomic uint32_t *word, uint32_t n_sleepers);
/* Sleeps on up to 16 words at once (futex_waitv; where the kernel lacks it, naps of 1 ms). */
void tutti_futex_wait_any(_Atomic uint32_t *const *words, const uint32_t *expected, uint32_t n, uint64_t deadline_ns);

#endif
