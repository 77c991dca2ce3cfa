/* SPDX-License-Identifier: BSD-3-Clause */
/* The heap's bookkeeping against a model: no two allocations overlap, freed room is found again, and what is located,
 * mapped or refused is what the model says, from several threads, too. */

#include "test.h"

#include "transport/host/heap.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REGION (UINT64_C(256) << 20)
enum { MEMBERS = 3, ME = 1 };

static int heap_file(uint64_t region)
{
    int fd = memfd_create("heap-test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)(MEMBERS * region)), 0);
    return fd;
}

struct allocation {
    unsigned char *pointer;
    size_t bytes;
    uint64_t mark;
};

static void check_marks(const struct allocation *a)
{
    assert_memory_equal(a->pointer, &a->mark, 8);
    assert_memory_equal(a->pointer + a->bytes - 8, &a->mark, 8);
}

/* No gap before the block would have held it, and it overlaps nothing. */
static void assert_first_fit(const struct tutti_heap *heap, const void *pointer)
{
    uint64_t end = 0;
    for (size_t i = 0; i < heap->n_live; i++) {
        const struct tutti_heap_block *block = &heap->live[i];
        assert_true(block->offset >= end);
        if (block->offset != (uintptr_t)pointer - heap->window) {
            end = block->offset + block->bytes;
            continue;
        }
        uint64_t before = 0;
        for (size_t k = 0; k < i; k++) {
            assert_true(heap->live[k].offset - before < block->bytes);
            before = heap->live[k].offset + heap->live[k].bytes;
        }
        assert_int_equal(block->offset, before);
        assert_true(i + 1 == heap->n_live || block->offset + block->bytes <= heap->live[i + 1].offset);
        return;
    }
    fail_msg("an allocation is not in the list");
}

static void random_allocations(void **state)
{
    (void)state;
    enum { SLOTS = 200, STEPS = 4000 };
    struct tutti_heap own, peer;
    int fd = heap_file(REGION);
    assert_int_equal(tutti_heap_init(&own, fd, MEMBERS, ME, REGION), TUTTI_OK);
    assert_int_equal(tutti_heap_init(&peer, fd, MEMBERS, 0, REGION), TUTTI_OK);
    struct allocation slots[SLOTS] = {{NULL, 0, 0}};
    uint64_t random = test_seed();
    for (int step = 0; step < STEPS; step++) {
        struct allocation *a = &slots[tutti_random64(&random) % SLOTS];
        if (a->pointer) {
            check_marks(a);
            uint64_t offset = 0;
            size_t skip = tutti_random64(&random) % a->bytes;
            assert_true(tutti_heap_locate(&own.memory, a->pointer + skip, a->bytes - skip, &offset));
            const unsigned char *there = tutti_heap_map(&peer.memory, ME, offset - skip, a->bytes);
            assert_non_null(there);
            assert_memory_equal(there + a->bytes - 8, &a->mark, 8);
            assert_int_equal(tutti_heap_free(&own.memory, a->pointer), TUTTI_OK);
            assert_false(tutti_heap_locate(&own.memory, a->pointer, 1, &offset));
            a->pointer = NULL;
            continue;
        }
        const bool large = tutti_random64(&random) % 16 == 0;
        a->bytes = 16 + tutti_random64(&random) % (large ? 4 << 20 : 20000);
        a->mark = tutti_random64(&random);
        void *p;
        assert_int_equal(tutti_heap_alloc(&own.memory, a->bytes, &p), TUTTI_OK);
        a->pointer = p;
        assert_int_equal(a->pointer[0] | a->pointer[a->bytes - 1], 0);
        memcpy(a->pointer, &a->mark, 8);
        memcpy(a->pointer + a->bytes - 8, &a->mark, 8);
        assert_first_fit(&own, p);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].pointer) check_marks(&slots[i]);
    tutti_heap_fini(&own); /* with allocations left */
    tutti_heap_fini(&peer);
    close(fd);
}

static void room_is_found_again(void **state)
{
    (void)state;
    struct tutti_heap heap;
    int fd = heap_file(REGION);
    assert_int_equal(tutti_heap_init(&heap, fd, MEMBERS, ME, REGION), TUTTI_OK);
    void *quarters[4], *p;
    for (int i = 0; i < 4; i++) assert_int_equal(tutti_heap_alloc(&heap.memory, REGION / 4, &quarters[i]), TUTTI_OK);
    assert_int_equal(tutti_heap_alloc(&heap.memory, 1, &p), TUTTI_ERR_MEMORY); /* full to the last page */
    assert_non_null(strstr(tutti_last_error()->text, "TUTTI_HEAP"));
    assert_int_equal(tutti_heap_alloc(&heap.memory, REGION + 1, &p), TUTTI_ERR_MEMORY);
    assert_int_equal(tutti_heap_alloc(&heap.memory, SIZE_MAX, &p), TUTTI_ERR_MEMORY);
    assert_int_equal(tutti_heap_free(&heap.memory, quarters[1]), TUTTI_OK);
    assert_int_equal(tutti_heap_free(&heap.memory, quarters[2]), TUTTI_OK);
    assert_int_equal(tutti_heap_alloc(&heap.memory, REGION / 2 + 1, &p), TUTTI_ERR_MEMORY);
    assert_int_equal(tutti_heap_alloc(&heap.memory, REGION / 2, &p), TUTTI_OK); /* two gaps became one */
    assert_ptr_equal(p, quarters[1]);
    uint64_t offset;
    assert_false(tutti_heap_locate(&heap.memory, &offset, 8, &offset));                  /* not ours at all */
    assert_false(tutti_heap_locate(&heap.memory, quarters[0], REGION / 4 + 1, &offset)); /* runs into another's */
    assert_true(tutti_heap_locate(&heap.memory, quarters[0], REGION / 4, &offset));
    assert_int_equal(offset, 0);
    tutti_heap_fini(&heap);
    close(fd);
}

/* Views of every size and place show the same memory, whatever blocks serve them. */
static void views_agree(void **state)
{
    (void)state;
    const uint64_t region = UINT64_C(1) << 30;
    struct tutti_heap heap;
    int fd = heap_file(region);
    assert_int_equal(tutti_heap_init(&heap, fd, MEMBERS, ME, region), TUTTI_OK);
    uint64_t random = test_seed();
    for (int i = 0; i < 2000; i++) {
        const uint32_t peer = (uint32_t)(tutti_random64(&random) % MEMBERS);
        const uint64_t bytes = 8 + tutti_random64(&random) % (UINT64_C(1) << (3 + tutti_random64(&random) % 27));
        const uint64_t offset = tutti_random64(&random) % (region - bytes + 1), mark = tutti_random64(&random);
        unsigned char *there = tutti_heap_map(&heap.memory, peer, offset, bytes);
        assert_non_null(there);
        uint64_t got;
        memcpy(there + bytes - 8, &mark, 8);
        assert_int_equal(pread(fd, &got, 8, (off_t)(peer * region + offset + bytes - 8)), 8);
        assert_int_equal(got, mark);
        assert_ptr_equal(tutti_heap_map(&heap.memory, peer, offset, bytes), there); /* valid until close */
        if (i % 64 == 0) assert_int_equal(ftruncate(fd, 0) | ftruncate(fd, (off_t)(MEMBERS * region)), 0);
    }
    assert_non_null(tutti_heap_map(&heap.memory, 0, 0, region));
    assert_null(tutti_heap_map(&heap.memory, 0, 0, region + 1));
    assert_null(tutti_heap_map(&heap.memory, 0, 1, region));
    assert_null(tutti_heap_map(&heap.memory, 0, region, 1));
    assert_null(tutti_heap_map(&heap.memory, 0, 0, 0));
    assert_null(tutti_heap_map(&heap.memory, MEMBERS, 0, 1));
    tutti_heap_fini(&heap);
    close(fd);
}

static void *alloc_and_free(void *arg)
{
    struct tutti_heap *heap = arg;
    uint64_t random = test_seed() ^ (uint64_t)(uintptr_t)&random;
    for (int i = 0; i < 500; i++) {
        const size_t bytes = 1 + tutti_random64(&random) % 100000;
        uint64_t offset;
        void *p;
        if (tutti_heap_alloc(&heap->memory, bytes, &p) != TUTTI_OK) return heap;
        if (!tutti_heap_locate(&heap->memory, p, bytes, &offset)) return heap;
        memset(p, 1, bytes < 5000 ? bytes : 5000);
        const char *view = tutti_heap_map(&heap->memory, ME, offset, bytes);
        if (!view || view[0] != 1 || tutti_heap_free(&heap->memory, p) != TUTTI_OK) return heap;
    }
    return NULL;
}

static void threads_may_allocate(void **state)
{
    (void)state;
    struct tutti_heap heap;
    int fd = heap_file(REGION);
    assert_int_equal(tutti_heap_init(&heap, fd, MEMBERS, ME, REGION), TUTTI_OK);
    pthread_t threads[3];
    void *failed = NULL, *any_failed = NULL;
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, alloc_and_free, &heap), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &failed);
        if (failed) any_failed = failed;
    }
    assert_null(any_failed);
    assert_int_equal(heap.n_live, 0);
    tutti_heap_fini(&heap);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_allocations),
        cmocka_unit_test(room_is_found_again),
        cmocka_unit_test(views_agree),
        cmocka_unit_test(threads_may_allocate),
    };
    return cmocka_run_group_tests_name("transport.heap", tests, NULL, NULL);
}
