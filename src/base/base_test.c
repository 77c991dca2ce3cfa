/* SPDX-License-Identifier: BSD-3-Clause */

/* Hashes and HMACs against published vectors, clock, memory, processors, futexes between threads and
 * processes, who lives. */

#include "test.h"

#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Published vectors of XXH64: the sanity buffer of the reference implementation (xxhsum), byte i from a generator. */
static void test_hash(void **state)
{
    static const struct {
        size_t n;
        uint64_t seed, hash;
    } vectors[] = {
        {0, 0, UINT64_C(0xEF46DB3751D8E999)},   {0, 2654435761, UINT64_C(0xAC75FDA2929B17EF)},
        {1, 0, UINT64_C(0xE934A84ADB052768)},   {1, 2654435761, UINT64_C(0x5014607643A9B4C3)},
        {14, 0, UINT64_C(0x8282DCC4994E35C8)},  {14, 2654435761, UINT64_C(0xC3BD6BF63DEB6DF0)},
        {222, 0, UINT64_C(0xB641AE8CB691C174)}, {222, 2654435761, UINT64_C(0x20CB8AB7AE10C14A)},
    };
    uint8_t buffer[222];
    uint64_t generator = 2654435761;
    (void)state;
    for (size_t i = 0; i < sizeof buffer; i++) {
        buffer[i] = (uint8_t)(generator >> 56);
        generator *= UINT64_C(11400714785074694797);
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(vectors); i++)
        assert_true(tutti_hash64(buffer, vectors[i].n, vectors[i].seed) == vectors[i].hash);
    assert_true(tutti_hash64("a", 1, 0) == UINT64_C(0xD24EC4F1A98C6E5B));
    assert_true(tutti_hash64("abc", 3, 0) == UINT64_C(0x44BC2CF5AD770999));
    /* Any alignment gives the same. */
    uint8_t shifted[sizeof buffer + 1];
    memcpy(shifted + 1, buffer, sizeof buffer);
    assert_true(tutti_hash64(shifted + 1, sizeof buffer, 0) == UINT64_C(0xB641AE8CB691C174));
}

static void test_random(void **state)
{
    uint64_t seed = 1234567;
    uint8_t a[64], b[64];
    (void)state;
    /* splitmix64 from seed 1234567, as published with the algorithm. */
    assert_true(tutti_random64(&seed) == UINT64_C(6457827717110365317));
    assert_true(tutti_random64(&seed) == UINT64_C(3203168211198807973));
    assert_int_equal(tutti_random_bytes(a, sizeof a), TUTTI_OK);
    assert_int_equal(tutti_random_bytes(b, sizeof b), TUTTI_OK);
    assert_memory_not_equal(a, b, sizeof a);
}

static void from_hex(const char *hex, uint8_t *out)
{
    for (size_t i = 0; hex[2 * i]; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
}

/* RFC 4231, test cases 1 to 4, 6 and 7. */
static void test_hmac(void **state)
{
    uint8_t key[131], data[160], mac[TUTTI_HMAC_BYTES], expected[TUTTI_HMAC_BYTES];
    struct {
        int key_byte;
        size_t key_bytes;
        const char *key_text;
        int data_byte;
        size_t data_bytes;
        const char *data_text, *mac;
    } cases[] = {
        {0x0b, 20, NULL, 0, 0, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {0, 0, "Jefe", 0, 0, "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {0xaa, 20, NULL, 0xdd, 50, NULL, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {-1, 25, NULL, 0xcd, 50, NULL, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {0xaa, 131, NULL, 0, 0, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {0xaa, 131, NULL, 0, 0,
         "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
         "hashed before being used by the HMAC algorithm.",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    (void)state;
    if (!tutti_hmac_available()) {
        assert_int_equal(tutti_hmac("k", 1, "m", 1, mac), TUTTI_ERR_UNSUPPORTED);
        return;
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        size_t key_bytes = cases[i].key_text ? strlen(cases[i].key_text) : cases[i].key_bytes;
        size_t bytes = cases[i].data_text ? strlen(cases[i].data_text) : cases[i].data_bytes;
        for (size_t b = 0; b < key_bytes; b++)
            key[b] = cases[i].key_byte < 0 ? (uint8_t)(b + 1) : (uint8_t)cases[i].key_byte;
        if (cases[i].key_text) memcpy(key, cases[i].key_text, key_bytes);
        memset(data, cases[i].data_byte, bytes);
        if (cases[i].data_text) memcpy(data, cases[i].data_text, bytes);
        from_hex(cases[i].mac, expected);
        assert_int_equal(tutti_hmac(key, key_bytes, data, bytes, mac), TUTTI_OK);
        assert_memory_equal(mac, expected, sizeof mac);
        assert_true(tutti_hmac_equal(mac, expected));
        for (size_t b = 0; b < sizeof mac; b++) {
            expected[b] ^= 1;
            assert_false(tutti_hmac_equal(mac, expected));
            expected[b] ^= 1;
        }
    }
    assert_int_equal(tutti_hmac(NULL, 0, "", 0, mac), TUTTI_OK);
    from_hex("b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad", expected);
    assert_memory_equal(mac, expected, sizeof mac);
}

static void test_clock(void **state)
{
    (void)state;
    uint64_t before = tutti_now_ns();
    tutti_sleep_ns(3 * TUTTI_NS_PER_MS);
    uint64_t after = tutti_now_ns();
    assert_true(after - before >= 3 * TUTTI_NS_PER_MS);
    assert_true(after - before < 5 * TUTTI_NS_PER_S);
    assert_true(tutti_deadline_ns(TUTTI_NEVER) == TUTTI_NEVER);
    assert_true(tutti_deadline_ns(TUTTI_NEVER - 1) == TUTTI_NEVER);
    assert_true(tutti_deadline_ns(0) >= after);
    assert_true(tutti_deadline_ns(TUTTI_NS_PER_S) >= after + TUTTI_NS_PER_S);
}

static void test_memory(void **state)
{
    (void)state;
    tutti_alloc_fail_at(0);
    uint8_t *bytes = tutti_alloc(100);
    assert_non_null(bytes);
    for (int i = 0; i < 100; i++) assert_int_equal(bytes[i], 0);
    tutti_free(bytes);
    bytes = tutti_alloc(0);
    assert_non_null(bytes);
    tutti_free(bytes);
    assert_null(tutti_alloc_array(SIZE_MAX / 2, 3));
    assert_int_equal(tutti_alloc_fail_at(3), 2); /* the overflow never came to be an allocation */
    void *a = tutti_alloc(1), *b = tutti_alloc_array(2, 8), *c = tutti_alloc(1), *d = tutti_alloc(1);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(c);
    assert_non_null(d); /* one failure, then all is well again */
    tutti_free(a);
    tutti_free(b);
    tutti_free(d);
    assert_int_equal(tutti_alloc_fail_at(1), 4);
    assert_null(tutti_map_lazy(4096));
    size_t huge = (size_t)1 << 40; /* far more than there is: untouched pages cost nothing */
    uint8_t *map = tutti_map_lazy(huge);
    assert_non_null(map);
    assert_int_equal((uintptr_t)map % 4096, 0);
    assert_int_equal(map[huge / 2], 0);
    map[huge - 1] = 1;
    tutti_unmap(map, huge);
    tutti_unmap(NULL, 5);
    tutti_free(NULL);
}

static void test_cpus(void **state)
{
    cpu_set_t all, one;
    struct tutti_cpu_set set;
    uint64_t payer, again;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    uint32_t n = tutti_cpus_allowed();
    assert_in_range(n, 1, CPU_COUNT(&all));
    assert_true(tutti_cpus_affinity(&set));
    assert_int_equal(tutti_cpu_set_count(&set), CPU_COUNT(&all));
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        assert_int_equal(tutti_cpu_set_has(&set, cpu), CPU_ISSET(cpu, &all) != 0);
    const uint32_t quota = tutti_cpus_quota(&payer);
    assert_int_equal(tutti_cpus_quota(&again), quota);
    assert_true(again == payer && (payer == 0) == (quota == UINT32_MAX));
    assert_int_equal(n, quota < tutti_cpu_set_count(&set) ? quota : tutti_cpu_set_count(&set));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(tutti_cpus_allowed(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* Two processes pass a token through two words of shared memory. */
static void test_futex_processes(void **state)
{
    enum { ROUNDS = 2000 };
    (void)state;
    _Atomic uint32_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true((void *)words != MAP_FAILED);
    uint64_t deadline = tutti_deadline_ns(30 * TUTTI_NS_PER_S);
    pid_t child = fork();
    assert_true(child >= 0);
    int me = child == 0;
    bool late = false;
    for (uint32_t i = 1; i <= ROUNDS && !late; i++) {
        if (!me) atomic_store(&words[0], i), tutti_futex_wake(&words[0], 1);
        uint32_t seen;
        while ((seen = atomic_load(&words[!me])) != i && !late) {
            tutti_futex_wait(&words[!me], seen, deadline);
            late = tutti_now_ns() >= deadline;
        }
        if (me) atomic_store(&words[1], i), tutti_futex_wake(&words[1], 1);
    }
    if (me) _exit(late ? 1 : 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_false(late);
    munmap((void *)words, 4096);
}

static void test_futex_deadline(void **state)
{
    _Atomic uint32_t a = 1, b = 2;
    _Atomic uint32_t *words[] = {&a, &b};
    const uint32_t expected[] = {1, 2}, stale[] = {1, 3};
    (void)state;
    uint64_t start = tutti_now_ns();
    while (tutti_now_ns() < start + 20 * TUTTI_NS_PER_MS)
        tutti_futex_wait(&a, 1, start + 20 * TUTTI_NS_PER_MS); /* spurious returns are allowed */
    tutti_futex_wait(&a, 7, TUTTI_NEVER);                      /* the word differs: returns at once */
    tutti_futex_wait_any(words, expected, 2, tutti_now_ns() + 20 * TUTTI_NS_PER_MS);
    tutti_futex_wait_any(words, stale, 2, TUTTI_NEVER);
    tutti_futex_wait_any(words, expected, 0, TUTTI_NEVER);
    tutti_futex_wait(&a, 1, 0); /* a deadline long past */
    assert_true(tutti_now_ns() - start < 10 * TUTTI_NS_PER_S);
}

static void *wake_second(void *arg)
{
    _Atomic uint32_t *word = arg;
    tutti_sleep_ns(10 * TUTTI_NS_PER_MS);
    atomic_store(word, 9);
    tutti_futex_wake(word, UINT32_MAX);
    return NULL;
}

static void test_futex_any(void **state)
{
    _Atomic uint32_t words[20];
    _Atomic uint32_t *list[20];
    uint32_t expected[20] = {0};
    (void)state;
    for (uint32_t n = 2; n <= 20; n += 9) { /* 2, 11, 20: the last one is more than the kernel is asked for */
        pthread_t thread;
        for (uint32_t i = 0; i < n; i++) atomic_init(&words[i], 0), list[i] = &words[i];
        assert_int_equal(pthread_create(&thread, NULL, wake_second, (void *)&words[n - 1]), 0);
        uint64_t deadline = tutti_deadline_ns(20 * TUTTI_NS_PER_S);
        while (atomic_load(&words[n - 1]) == 0 && tutti_now_ns() < deadline)
            tutti_futex_wait_any(list, expected, n, deadline);
        assert_true(tutti_now_ns() < deadline);
        assert_int_equal(atomic_load(&words[n - 1]), 9);
        pthread_join(thread, NULL);
    }
}

/* ---- processes ---- */

static void *stay(void *arg)
{
    for (;;) pause();
    return arg;
}

static char state_of(pid_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(text, sizeof text, f)) fail_msg("cannot read %s", path);
    fclose(f);
    return strrchr(text, ')')[2];
}

/* Its main thread may leave a process that goes on. */
static void test_main_thread_left(void **state)
{
    struct tutti_process child = {0};
    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, stay, NULL)) _exit(1);
        pthread_exit(NULL);
    }
    for (uint64_t until = tutti_deadline_ns(20 * TUTTI_NS_PER_S); state_of(pid) != 'Z' && tutti_now_ns() < until;)
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    assert_int_equal(state_of(pid), 'Z');
    assert_true(tutti_process_read((int32_t)pid, &child) && child.running);
    assert_true(tutti_process_alive((int32_t)pid, child.start));
    kill(pid, SIGKILL);
    for (uint64_t until = tutti_deadline_ns(20 * TUTTI_NS_PER_S);
         tutti_process_alive((int32_t)pid, child.start) && tutti_now_ns() < until;)
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    assert_false(tutti_process_alive((int32_t)pid, child.start)); /* nobody has waited for it yet */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_hmac),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_futex_processes),
        cmocka_unit_test(test_futex_deadline),
        cmocka_unit_test(test_futex_any),
        cmocka_unit_test(test_main_thread_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
