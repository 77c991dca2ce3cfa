/* SPDX-License-Identifier: BSD-3-Clause */
/* What decorators change when they are told to: faults by seed, delays, traces, and what a list of them may say. That
 * they change nothing else is in contract_test.c. */

#include "transport/world_test.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MANY = 10000 };

/* n bare members of "self", of which the last one is decorated. */
static void world_make(struct world *world, uint32_t n, const char *list, const struct tutti_decorator_options *options)
{
    static const struct backend bare = {"self", "self", "", false, 0, NULL};
    *world = test_world_make(&bare, n, 4 << 20, false);
    assert_int_equal(tutti_transport_decorate(world->members[n - 1], list, options, &world->members[n - 1]), TUTTI_OK);
}

/* ---- lists ---- */

static void lists(void **state)
{
    (void)state;
    static const char *const refused[] = {"tarce",
                                          ",",
                                          "trace,",
                                          ",trace",
                                          "trace,,fault",
                                          "trace fault",
                                          "Trace",
                                          "delaydelaydelaydelaydelay",
                                          "trace,trace,trace,trace,trace,trace,trace,trace,trace"};
    struct world world;
    world_make(&world, 1, "", NULL);
    struct tutti_transport *bare = world.members[0], *t = NULL;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(refused); i++) {
        assert_int_equal(tutti_transport_decorate(bare, refused[i], NULL, &t), TUTTI_ERR_ARGUMENT);
        if (strncmp(tutti_last_error()->text, "option decorators: ", 19) != 0) fail_msg("%s", tutti_last_error()->text);
        assert_null(t);
    }
    assert_int_equal(tutti_transport_decorate(bare, "quite another", NULL, &t), TUTTI_ERR_ARGUMENT);
#define NAMED(name, help) assert_non_null(strstr(tutti_last_error()->text, #name));
    TUTTI_DECORATORS(NAMED)
#undef NAMED
    const struct tutti_decorator_options wrong = {.fault = "drop=2"};
    assert_int_equal(tutti_transport_decorate(bare, "fault,trace", &wrong, &t), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_transport_decorate(bare, "trace,fault", &wrong, &t), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_transport_decorate(bare, "", NULL, &t), TUTTI_OK);
    assert_ptr_equal(t, bare);
    assert_int_equal(tutti_transport_decorate(bare, NULL, NULL, &t), TUTTI_OK);
    assert_ptr_equal(t, bare); /* which still works after all that */
    assert_int_equal(tutti_transport_decorate(bare, "trace,trace,delay", NULL, &world.members[0]), TUTTI_OK);
    assert_string_equal(world.members[0]->name, "trace"); /* outermost first */
    assert_int_equal(test_send(world.members[0], 0, 9, 1), TUTTI_OK);
    test_world_free(&world);
}

static void fault_options(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool accepted;
    } rows[] = {
        {"", true},
        {"seed=0x10", true},
        {"seed=1,drop=0.01,duplicate=0.01,delay=0.01:2ms,kill=100", true},
        {"drop=1", true},
        {"drop=0.25,duplicate=0.25,delay=.5", true},
        {"delay=1:3s", true},
        {"drop=0.5,", true},
        {"drop", false},
        {"drop=", false},
        {"drop=1.5", false},
        {"drop=-0.5", false},
        {"drop=0,5", false},
        {"drop=.", false},
        {"drop=0.1.2", false},
        {"drop=1e-3", false},
        {"drop=0.6,duplicate=0.6", false},
        {"delay=0.5:", false},
        {"delay=0.5:fast", false},
        {"delay=2:1ms", false},
        {"kill=x", false},
        {"kill=-1", false},
        {"seed=1 drop=1", false},
        {"dropp=0.1", false},
        {"drop=0.00000000000000000000000000000000000000000000000000000000000000001", false},
    };
    struct world world;
    world_make(&world, 1, "", NULL);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        const struct tutti_decorator_options options = {.fault = rows[i].text};
        struct tutti_transport *t = NULL;
        enum tutti_status status = tutti_transport_decorate(world.members[0], "fault", &options, &t);
        if (status != (rows[i].accepted ? TUTTI_OK : TUTTI_ERR_ARGUMENT)) fail_msg("'%s'", rows[i].text);
        if (status == TUTTI_OK) world.members[0] = t; /* they stack */
    }
    test_world_free(&world);
}

/* ---- faults ---- */

struct fates {
    uint8_t n_arrived[MANY];          /* for each packet from member 0 */
    uint32_t n_lost, n_twice, n_late; /* late: after a younger one */
};

/* Sends MANY packets from member 0, mixed with some from member 1, and notes what becomes of them. */
static struct fates *fates_of(const char *fault, uint32_t n_others)
{
    const struct tutti_decorator_options options = {.fault = fault};
    struct fates *fates = calloc(1, sizeof(*fates));
    struct world world;
    world_make(&world, 3, "fault", &options);
    struct tutti_transport *t = world.members[2];
    uint64_t newest = 0, quiet_since = 0, n_sent = 0;
    bool over = false;
    while (!over) {
        const uint64_t looked = tutti_now_ns(); /* what was late by then is seen now */
        for (int k = 0; k < 20 && n_sent < MANY; k++)
            if (test_send(world.members[0], 2, (uint32_t)(n_sent % 100), n_sent) == TUTTI_OK) n_sent++;
        for (uint32_t k = 0; k < n_others && n_sent < MANY; k++) test_send(world.members[1], 2, 10, k);
        struct tutti_event arrival;
        while (t->ops->poll(t, &arrival) == TUTTI_OK) {
            const uint64_t seq = arrival.packet.seq;
            if (arrival.packet.source == 0) {
                assert_true(seq < MANY && test_arrival_is(&arrival, 0, (uint32_t)(seq % 100), seq));
                fates->n_arrived[seq]++;
                fates->n_late += fates->n_arrived[seq] == 1 && seq < newest;
                newest = seq > newest ? seq : newest;
            }
            t->ops->release(t);
            quiet_since = tutti_now_ns();
        }
        over = n_sent == MANY && looked >= quiet_since + 20 * TUTTI_NS_PER_MS;
    }
    for (size_t i = 0; i < MANY; i++) {
        fates->n_lost += fates->n_arrived[i] == 0;
        fates->n_twice += fates->n_arrived[i] == 2;
        assert_in_range(fates->n_arrived[i], 0, 2);
    }
    test_world_free(&world);
    return fates;
}

static void faults_have_their_share(void **state)
{
    (void)state;
    struct fates *fates = fates_of("seed=7,drop=0.2,duplicate=0.1,delay=0.05:1ms", 0);
    assert_in_range(fates->n_lost, MANY / 5 - 200, MANY / 5 + 200); /* 5 sigma */
    assert_in_range(fates->n_twice, MANY / 10 - 150, MANY / 10 + 150);
    assert_in_range(fates->n_late, MANY / 40, MANY / 20 + 110); /* at least half of them were overtaken */
    free(fates);
    fates = fates_of("drop=0", 1);
    assert_int_equal(fates->n_lost + fates->n_twice + fates->n_late, 0);
    free(fates);
    fates = fates_of("drop=1", 0);
    assert_int_equal(fates->n_lost, MANY);
    free(fates);
    fates = fates_of("duplicate=1", 0);
    assert_int_equal(fates->n_twice, MANY);
    free(fates);
    fates = fates_of("delay=1:1ms", 0);
    assert_int_equal(fates->n_lost + fates->n_twice, 0);
    free(fates);
}

static void faults_follow_from_the_seed(void **state)
{
    (void)state;
    struct fates *a = fates_of("seed=7,drop=0.3,duplicate=0.3", 0), *b = fates_of("seed=7,drop=0.3,duplicate=0.3", 3),
                 *c = fates_of("seed=8,drop=0.3,duplicate=0.3", 0);
    assert_memory_equal(a->n_arrived, b->n_arrived, MANY); /* whatever else arrives in between */
    assert_memory_not_equal(a->n_arrived, c->n_arrived, MANY);
    free(a), free(b), free(c);
}

/* The room of a packet that comes twice is given back after the second time. */
static void a_repeated_packet_stays_whole(void **state)
{
    (void)state;
    const struct tutti_decorator_options options = {.fault = "duplicate=1"};
    struct world world;
    world_make(&world, 2, "fault", &options);
    struct tutti_transport *t = world.members[1];
    const uint32_t bytes = (uint32_t)t->max_payload;
    uint64_t n_sent = 0, n_at_once = 0;
    for (uint64_t seq = 0; seq < 50; seq++) {
        while (test_send(world.members[0], 1, bytes, n_sent) == TUTTI_OK) n_sent++;
        struct tutti_event arrival;
        assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
        t->ops->release(t);
        const uint64_t first = arrival.packet.seq;
        const bool room = test_send(world.members[0], 1, bytes, n_sent) == TUTTI_OK;
        n_sent += room;
        if (room) continue; /* it comes again later, out of the queue, or has just done so */
        assert_int_equal(t->ops->poll(t, &arrival), TUTTI_OK);
        assert_true(test_arrival_is(&arrival, 0, bytes, arrival.packet.seq));
        n_at_once += arrival.packet.seq == first;
        t->ops->release(t);
    }
    assert_true(n_at_once > 5);
    test_world_free(&world);
}

/* What the queue of 8 MiB can not hold is not delayed, and not lost. */
static void the_queue_of_faults_is_bounded(void **state)
{
    (void)state;
    enum { BYTES = 200 << 10, N = 100 };
    const struct tutti_decorator_options options = {.fault = "delay=1:3600s"};
    struct world world;
    world_make(&world, 2, "fault", &options);
    struct tutti_transport *t = world.members[1];
    uint32_t n_sent = 0, n_arrived = 0;
    uint64_t last = 0;
    while (n_sent < N) {
        while (n_sent < N && test_send(world.members[0], 1, BYTES, n_sent) == TUTTI_OK) n_sent++;
        struct tutti_event arrival;
        while (t->ops->poll(t, &arrival) == TUTTI_OK) {
            assert_true(test_arrival_is(&arrival, 0, BYTES, arrival.packet.seq));
            assert_true(n_arrived == 0 ||
                        arrival.packet.seq == last + 1); /* none of those after the first is missing */
            last = arrival.packet.seq;
            n_arrived++;
            t->ops->release(t);
        }
    }
    assert_int_equal(last, N - 1);
    assert_in_range(n_arrived, N - 41, N - 35);
    test_world_free(&world);
}

static void killed_with_the_nth_packet(void **state)
{
    (void)state;
    static const struct backend shm = {"shm", "shm", "", true, 0, NULL};
    for (uint64_t n = 1; n < 40; n += 13) {
        struct world world = test_world_make(&shm, 2, 1 << 20, true);
        test_member_open(&world, 0);
        struct tutti_transport *t = world.members[0];
        pid_t child = fork();
        if (child == 0) {
            char fault[32];
            snprintf(fault, sizeof(fault), "kill=%u", (unsigned)n);
            const struct tutti_decorator_options options = {.fault = fault};
            test_member_open(&world, 1);
            tutti_transport_decorate(world.members[1], "fault", &options, &t);
            for (uint64_t seq = 0; seq < 1000; seq++) test_send(t, 0, 10, seq);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        struct tutti_event arrival;
        for (uint64_t seq = 0; seq < n; seq++) {
            assert_int_equal(t->ops->poll(t, &arrival), TUTTI_OK);
            assert_true(test_arrival_is(&arrival, 1, 10, seq));
            t->ops->release(t);
        }
        test_expect_nothing(t);
        test_world_free(&world);
    }
}

/* ---- delay ---- */

/* When a sleep would end by itself. */
static uint64_t due_ns(struct tutti_transport *t)
{
    struct tutti_sources sources;
    tutti_sources_init(&sources);
    (void)t->ops->sleep_begin(t, &sources);
    t->ops->sleep_end(t);
    return sources.due_ns;
}

static void latency_is_added_in_order(void **state)
{
    (void)state;
    enum { N = 50, LATENCY_NS = 5000000 };
    const struct tutti_decorator_options options = {.delay_ns = LATENCY_NS};
    struct world world;
    world_make(&world, 2, "delay", &options);
    struct tutti_transport *t = world.members[1];
    uint64_t sent_ns[N] = {0}, n_received = 0;
    assert_true(due_ns(t) == TUTTI_NEVER);
    for (uint64_t seq = 0; seq < N; seq++) {
        sent_ns[seq] = tutti_now_ns();
        assert_int_equal(test_send(world.members[0], 1, 100, seq), TUTTI_OK);
        tutti_sleep_ns(TUTTI_NS_PER_MS / 5);
        struct tutti_event arrival;
        while (n_received < N && t->ops->poll(t, &arrival) == TUTTI_OK) {
            assert_true(test_arrival_is(&arrival, 0, 100, n_received));
            assert_true(tutti_now_ns() - sent_ns[n_received++] >= LATENCY_NS);
            t->ops->release(t);
        }
    }
    /* The rest while asleep: nobody rings, the time of the next event is what ends each sleep. */
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    while (n_received < N) {
        struct tutti_event arrival;
        if (t->ops->poll(t, &arrival) == TUTTI_AGAIN) {
            assert_true(due_ns(t) <= tutti_deadline_ns(LATENCY_NS));
            assert_true(test_sleep(t, deadline));
            continue;
        }
        assert_true(test_arrival_is(&arrival, 0, 100, n_received));
        assert_true(tutti_now_ns() - sent_ns[n_received++] >= LATENCY_NS);
        t->ops->release(t);
    }
    assert_true(due_ns(t) == TUTTI_NEVER);
    test_world_free(&world);
}

static void delayed_packets_outlive_their_sender(void **state)
{
    (void)state;
    const struct tutti_decorator_options options = {.delay_ns = 30 * TUTTI_NS_PER_MS};
    struct world world;
    world_make(&world, 2, "delay", &options);
    struct tutti_transport *t = world.members[1];
    assert_int_equal(test_send(world.members[0], 1, 100, 5), TUTTI_OK);
    test_expect_nothing(t); /* under way */
    test_member_close(&world, 0);
    assert_true(t->ops->holds(t, 0)); /* it is not to be missed before this has come */
    struct tutti_event arrival;
    assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
    assert_true(test_arrival_is(&arrival, 0, 100, 5));
    t->ops->release(t);
    assert_false(t->ops->holds(t, 0));
    test_world_free(&world);
}

static void a_full_link_pushes_back(void **state)
{
    (void)state;
    enum { BYTES = 250 << 10 };
    const struct tutti_decorator_options options = {.delay_ns = (TEST_TSAN ? 3000 : 500) * TUTTI_NS_PER_MS};
    struct world world;
    world_make(&world, 2, "delay", &options);
    struct tutti_transport *t = world.members[1];
    uint32_t n_sent = 0, n_stalled = 0;
    for (; n_sent < 1000 && n_stalled < 3; n_stalled++) { /* until polling makes no room any more */
        while (test_send(world.members[0], 1, BYTES, n_sent) == TUTTI_OK) n_sent++, n_stalled = 0;
        test_expect_nothing(t);
    }
    assert_in_range(n_sent, 20, 60);
    for (uint32_t seq = 0; seq < n_sent; seq++) {
        struct tutti_event arrival;
        assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
        assert_true(test_arrival_is(&arrival, 0, BYTES, seq));
        t->ops->release(t);
    }
    assert_int_equal(test_send(world.members[0], 1, BYTES, 0), TUTTI_OK);
    test_world_free(&world);
}

/* ---- what is said ---- */

/* The lines that body logs, as one string. */
static char *logged(void (*body)(void))
{
    const int file = memfd_create("log", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
    const int threshold = atomic_exchange(&tutti_log_threshold, TUTTI_LOG_INFO);
    assert_true(file >= 0 && saved >= 0);
    dup2(file, STDERR_FILENO);
    body();
    dup2(saved, STDERR_FILENO);
    close(saved);
    atomic_store(&tutti_log_threshold, threshold);
    const off_t bytes = lseek(file, 0, SEEK_END);
    char *text = calloc(1, (size_t)bytes + 1);
    assert_int_equal(pread(file, text, (size_t)bytes, 0), bytes);
    close(file);
    return text;
}

static int n_of(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static void idle_body(void)
{
    const struct tutti_decorator_options options = {.fault = "seed=1,drop=0"};
    struct world world;
    world_make(&world, 1, "fault,fault,delay", &options);
    test_world_free(&world);
}

static void busy_body(void)
{
    const struct tutti_decorator_options options = {.fault = "kill=1000", .delay_ns = 1};
    struct world world;
    world_make(&world, 1, "fault,delay,trace", &options);
    test_world_free(&world);
}

static void who_does_nothing_says_so(void **state)
{
    (void)state;
    char *text = logged(idle_body);
    assert_int_equal(n_of(text, "decorator fault does nothing: set option fault"), 2);
    assert_int_equal(n_of(text, "decorator delay does nothing: set option delay"), 1);
    free(text);
    text = logged(busy_body);
    assert_int_equal(n_of(text, "does nothing"), 0);
    free(text);
}

static void trace_body(void)
{
    const struct tutti_decorator_options options = {.trace_events = 8};
    struct world world;
    world_make(&world, 2, "trace", &options);
    struct tutti_transport *t = world.members[1];
    struct tutti_event arrival;
    for (uint64_t seq = 100; seq < 110; seq++) assert_int_equal(test_send(t, 0, 11, seq), TUTTI_OK);
    assert_int_equal(test_send(world.members[0], 1, 12, 777), TUTTI_OK);
    assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
    t->ops->release(t);
    t->ops->failed(t, "somebody is late"); /* dumps eight */
    assert_int_equal(test_send(t, 0, 13, 888), TUTTI_OK);
    test_world_free(&world); /* dumps the one since */
}

static void traces_are_dumped_once(void **state)
{
    (void)state;
    char *text = logged(trace_body);
    assert_int_equal(n_of(text, "somebody is late"), 1);
    assert_int_equal(n_of(text, "the last 8 packets, 3 older ones are lost"), 1);
    assert_int_equal(n_of(text, "1 -> 0 data"), 8);
    assert_int_equal(n_of(text, "1 <- 0 data"), 1);
    assert_int_equal(n_of(text, "seq=102 "), 0); /* overwritten */
    assert_int_equal(n_of(text, "seq=103 "), 1);
    assert_int_equal(n_of(text, "seq=777 "), 1);
    assert_int_equal(n_of(text, "at close: the last 1 packets, 0 older"), 1);
    assert_int_equal(n_of(text, "seq=888 "), 1);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(fault_options),
        cmocka_unit_test(faults_have_their_share),
        cmocka_unit_test(faults_follow_from_the_seed),
        cmocka_unit_test(a_repeated_packet_stays_whole),
        cmocka_unit_test(the_queue_of_faults_is_bounded),
        cmocka_unit_test(killed_with_the_nth_packet),
        cmocka_unit_test(latency_is_added_in_order),
        cmocka_unit_test(delayed_packets_outlive_their_sender),
        cmocka_unit_test(a_full_link_pushes_back),
        cmocka_unit_test(who_does_nothing_says_so),
        cmocka_unit_test(traces_are_dumped_once),
    };
    return cmocka_run_group_tests_name("transport.decorator", tests, NULL, NULL);
}
