/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is sent or received into again after its pages have changed behind its address, by a card that keeps to
 * the pages that were there when memory was registered (tests/standin/fabric): what is there now arrives, and arrives
 * where it is read. With a card that caches registrations and is told nothing it must not, else this proves nothing. */

#include "standin/fabric/fabric_standin.h"
#include "transport/world_test.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>

#define BYTES ((size_t)128 << 10)

static const struct backend tagged = {"tagged", "ofi:pinned", "", false, 0, NULL};
static const struct backend writes = {"writes", "ofi=pinned", "", false, 0, NULL};

/* ---- ways to change what is behind an address ---- */

static void *fresh(void *at)
{
    const int fixed = at ? MAP_FIXED : 0;
    void *made = mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    assert_ptr_not_equal(made, MAP_FAILED);
    return made;
}

static void *unmapped_and_mapped(void *at)
{
    assert_int_equal(munmap(at, BYTES), 0);
    return fresh(at);
}

static void *mapped_over(void *at)
{
    return fresh(at);
}

static void *moved_there(void *at)
{
    void *other = fresh(NULL);
    memset(other, 3, BYTES);
    assert_ptr_equal(mremap(other, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, at), at);
    return at;
}

static void *given_up(void *at)
{
    assert_int_equal(madvise(at, BYTES, MADV_DONTNEED), 0);
    return at;
}

static void *of_a_file(void *at)
{
    const int file = memfd_create("pages", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, (off_t)BYTES), 0);
    assert_ptr_equal(mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0), at);
    close(file);
    return at;
}

static void *freed_and_allocated(void *at)
{
    free(at);
    void *again = malloc(BYTES); /* as large as before: glibc maps both, mostly at one address */
    assert_non_null(again);
    return again;
}

static void *grown(void *at)
{
    void *again = realloc(at, BYTES * 3), *small;
    assert_non_null(again);
    small = realloc(again, BYTES);
    assert_non_null(small);
    return small;
}

static const struct {
    const char *name;
    void *(*change)(void *at);
    bool heap;
} ways[] = {{"munmap, mmap", unmapped_and_mapped, false},
            {"mmap over it", mapped_over, false},
            {"mremap onto it", moved_there, false},
            {"madvise", given_up, false},
            {"a file", of_a_file, false},
            {"free, malloc", freed_and_allocated, true},
            {"realloc", grown, true}};

/* ---- one payload ---- */

/* From `source` to `target` without a copy between. */
static void transfer(struct world *world, const void *source, void *target, uint64_t seq)
{
    struct tutti_transport *from = world->members[0], *to = world->members[1];
    const uint64_t until_ns = tutti_deadline_ns(TEST_DEADLINE_NS);
    const struct tutti_target where = {target, BYTES};
    struct tutti_event event;
    bool sent = false, came = false;
    assert_int_equal(test_send_lent(from, 1, BYTES, seq, source, 1), TUTTI_PENDING);
    while (!(sent && came) && tutti_now_ns() < until_ns) {
        if (from->ops->poll(from, &event) == TUTTI_OK) {
            assert_int_equal(event.type, TUTTI_EVENT_DONE);
            assert_int_equal(event.status, TUTTI_OK);
            sent = true;
        }
        if (to->ops->poll(to, &event) != TUTTI_OK) continue;
        if (event.type == TUTTI_EVENT_HEADER) to->ops->place(to, &where, 1, 2);
        if (event.type == TUTTI_EVENT_DONE) assert_int_equal(event.status, TUTTI_OK);
        came |= event.type == TUTTI_EVENT_DONE;
    }
    assert_true(sent && came);
}

/* How many of the ways lost a payload: at the source, at the target. */
static uint32_t changes(const struct backend *backend)
{
    struct world world = test_world_make(backend, 2, 0, false);
    unsigned char *expected = malloc(BYTES);
    uint32_t n_wrong = 0;
    for (uint32_t i = 0; i < 2 * TUTTI_ARRAY_LEN(ways); i++) {
        const bool at_source = i % 2 == 0;
        unsigned char *still = malloc(BYTES), *moves = ways[i / 2].heap ? malloc(BYTES) : fresh(NULL);
        for (uint64_t round = 0; round < 3; round++) {
            if (round > 0) moves = ways[i / 2].change(moves);
            test_payload(expected, BYTES, 10 * i + round);
            memset(at_source ? still : moves, 0, BYTES);
            memcpy(at_source ? moves : still, expected, BYTES);
            transfer(&world, at_source ? moves : still, at_source ? still : moves, 10 * i + round);
            const bool right = memcmp(at_source ? still : moves, expected, BYTES) == 0;
            if (!right && !getenv("FABRIC_STANDIN_STALE"))
                printf("%s, %s: other bytes %s\n", backend->name, ways[i / 2].name, at_source ? "left" : "came");
            n_wrong += !right;
        }
        if (ways[i / 2].heap)
            free(moves);
        else
            munmap(moves, BYTES);
        free(still);
    }
    free(expected);
    test_world_free(&world);
    return n_wrong;
}

static struct fabric_standin_counts counts_now(void)
{
    struct fabric_standin_counts counts;
    fabric_standin_counts_function *ask = NULL;
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD), *found;
    assert_non_null(library);
    found = dlsym(library, "fabric_standin_counts");
    assert_non_null(found); /* another libfabric than the stand-in: LD_LIBRARY_PATH names its folder */
    memcpy(&ask, &found, sizeof(ask));
    ask(&counts);
    dlclose(library);
    return counts;
}

static void what_is_there_now_arrives(void **state)
{
    (void)state;
    assert_int_equal(changes(&tagged), 0);
    assert_int_equal(changes(&writes), 0);
    assert_true(counts_now().writes >= 6 * TUTTI_ARRAY_LEN(ways));
    assert_int_equal(counts_now().open, 0); /* no registration is left */
    assert_int_equal(counts_now().refused, 0);
}

static void a_cache_that_is_told_nothing_is_found_out(void **state)
{
    (void)state;
    if (!counts_now().real) skip(); /* no io_uring here: the card can not keep pages */
    char bytes[24];
    snprintf(bytes, sizeof(bytes), "%zu", BYTES);
    setenv("FABRIC_STANDIN_STALE", bytes, 1);
    /* each change of pages at one address is wrong, after it, on either side */
    assert_true(changes(&tagged) >= 2 * 2 * 5);
    assert_true(changes(&writes) >= 2 * 2 * 5);
    unsetenv("FABRIC_STANDIN_STALE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_there_now_arrives),
                                       cmocka_unit_test(a_cache_that_is_told_nothing_is_found_out)};
    mallopt(M_MMAP_THRESHOLD, 64 << 10); /* and it stays there: what is freed is unmapped */
    tutti_log_threshold = TUTTI_LOG_ERROR;
    return cmocka_run_group_tests_name("fabric.memory", tests, NULL, NULL);
}
