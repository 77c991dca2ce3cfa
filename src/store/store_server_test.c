/* SPDX-License-Identifier: BSD-3-Clause */

/* The server of the TCP store: what a stranger may send, what was recorded and comes again, and what clients hear when
 * the server goes away. */

#include "store_test.h"

#include "store/store_codec.h"
#include "store/store_table.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

static int raw_connect(const struct fixture *f)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(tutti_store_server_port(f->server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 5};
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Reads until the server closes; false when it does not. */
static bool raw_closed(int fd)
{
    char buffer[1024];
    ssize_t n;
    while ((n = recv(fd, buffer, sizeof buffer, 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
}

/* Lines of the log that hold a text. */
static int log_count(const char *path, const char *text)
{
    char line[2048];
    int n = 0;
    FILE *log = fopen(path, "r");
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) n += strstr(line, text) != NULL;
    fclose(log);
    return n;
}

static void test_garbage(void **state)
{
    static uint8_t junk[1 << 17];
    struct fixture f;
    uint64_t seed = test_seed();
    char log_path[64], rest[96];
    (void)state;
    snprintf(log_path, sizeof log_path, "/tmp/tutti-store-log-%d", (int)getpid());
    assert_int_equal(tutti_log_configure("warn", log_path), TUTTI_OK);
    fixture_open(&f, false, tutti_hmac_available() ? "sesame" : NULL);
    for (int i = 0; i < 40; i++) {
        int fd = raw_connect(&f);
        for (size_t b = 0; b < sizeof junk; b++) junk[b] = (uint8_t)tutti_random64(&seed);
        if (i % 2) memcpy(junk, "TUST\1", 5), junk[7] = 0; /* nearly a frame */
        if (i % 4 == 1) junk[5] = (uint8_t)(i / 4 % TUTTI_STORE_N_TYPES), junk[6] = 0;
        if (i % 4 == 1) memset(junk + 16, 0xff, 8); /* endless key and value */
        send(fd, junk, i % 3 ? sizeof junk : 64, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        assert_true(raw_closed(fd));
        close(fd);
    }
    int n_refused = 40;
    /* A frame that claims 64 KiB before it has proved anything is cut off early. */
    if (tutti_hmac_available()) {
        struct tutti_session session = {.secret = NULL};
        struct tutti_store_frame set = {.type = TUTTI_STORE_SET,
                                        .key = (const uint8_t *)"k",
                                        .key_bytes = 1,
                                        .value = junk,
                                        .value_bytes = TUTTI_STORE_VALUE_MAX};
        struct tutti_store_frame hello = {.type = TUTTI_STORE_HELLO, .value = junk, .value_bytes = 16};
        static uint8_t bytes[TUTTI_STORE_FRAME_MAX];
        size_t n;
        int fd = raw_connect(&f);
        assert_int_equal(tutti_store_frame_encode(&session, &hello, bytes, &n), TUTTI_OK);
        assert_int_equal(send(fd, bytes, n, 0), n);
        assert_int_equal(tutti_store_frame_encode(&session, &set, bytes, &n), TUTTI_OK);
        send(fd, bytes, n, MSG_NOSIGNAL);
        assert_true(raw_closed(fd));
        close(fd);
        n_refused++;
    }
    assert_int_equal(f.store.ops->set(f.store.self, "still", "well", 4), TUTTI_OK);
    fixture_close(&f);
    /* The first of an address have a line each, the others one line a minute, or at the end. */
    snprintf(rest, sizeof rest, "refused %d more from 127.0.0.1; the last one: ", n_refused - 3);
    assert_int_equal(log_count(log_path, "the store's server refused 127.0.0.1 port "), 3);
    assert_int_equal(log_count(log_path, rest), 1);
    assert_int_equal(log_count(log_path, "the store's server"), 4);
    tutti_log_configure("warn", "/dev/stderr");
    unlink(log_path);
}

/* However many come, from however many addresses: three lines of each of 16, and then one a minute. */
static void test_refusals(void **state)
{
    static struct tutti_refusals refusals;
    char log_path[64], host[16];
    (void)state;
    snprintf(log_path, sizeof log_path, "/tmp/tutti-refusals-log-%d", (int)getpid());
    assert_int_equal(tutti_log_configure("warn", log_path), TUTTI_OK);
    for (int minute = 0; minute < 2; minute++) {
        for (int i = 0; i < 20 * 50; i++) {
            snprintf(host, sizeof host, "10.0.0.%d", i % 20);
            tutti_refusals_note(&refusals, host, "1", i < 20 * 49 ? "early" : "late");
        }
        assert_true(tutti_refusals_tell(&refusals));
        assert_int_equal(log_count(log_path, " port 1: early"), 17 * 3);
        assert_int_equal(log_count(log_path, minute ? "refused 50 more from 10.0.0.7; the last one: late"
                                                    : "refused 47 more from 10.0.0.7; the last one: late"),
                         1);
        assert_int_equal(log_count(log_path, minute ? "refused 200 more from other addresses"
                                                    : "refused 197 more from other addresses"),
                         1);
        assert_int_equal(log_count(log_path, " more from "), 17 * (minute + 1));
    }
    assert_false(tutti_refusals_tell(&refusals)); /* quiet for a minute: forgotten */
    tutti_refusals_note(&refusals, "10.0.0.7", "1", "again");
    assert_int_equal(log_count(log_path, "refused 10.0.0.7 port 1: again"), 1);
    tutti_log_configure("warn", "/dev/stderr");
    unlink(log_path);
}

/* A frame that was recorded is refused when it comes again, on the same connection or another. */
static void test_replay(void **state)
{
    uint8_t bytes[2][512], answer[512];
    struct fixture f;
    struct tutti_session session = {.secret = "sesame"};
    struct tutti_store_frame frame = {.type = TUTTI_STORE_HELLO,
                                      .value = session.nonces[0],
                                      .value_bytes = TUTTI_NONCE_BYTES},
                             got;
    size_t n[2], k = 0;
    int64_t count;
    (void)state;
    if (!tutti_hmac_available()) skip();
    fixture_open(&f, false, "sesame");
    for (int connection = 0; connection < 2; connection++) {
        int fd = raw_connect(&f);
        if (connection == 0) assert_int_equal(tutti_store_frame_encode(&session, &frame, bytes[0], &n[0]), TUTTI_OK);
        assert_int_equal(send(fd, bytes[0], n[0], 0), n[0]);
        k = (size_t)recv(fd, answer, sizeof answer, 0);
        assert_int_equal(tutti_store_frame_decode(answer, k, &got), TUTTI_OK);
        memcpy(session.nonces[1], got.value, TUTTI_NONCE_BYTES);
        if (connection == 0) {
            struct tutti_store_frame add = {
                .type = TUTTI_STORE_ADD, .number = 1, .key = (const uint8_t *)"n", .key_bytes = 1};
            assert_int_equal(tutti_store_frame_encode(&session, &add, bytes[1], &n[1]), TUTTI_OK);
            assert_int_equal(send(fd, bytes[1], n[1], 0), n[1]);
            k = (size_t)recv(fd, answer, sizeof answer, 0);
            assert_int_equal(tutti_store_frame_decode(answer, k, &got), TUTTI_OK);
            assert_int_equal(tutti_store_frame_verify(&session, answer, &got), TUTTI_OK);
            assert_true(got.type == TUTTI_STORE_ANSWER && got.number == 1);
        }
        send(fd, bytes[1], n[1], MSG_NOSIGNAL);
        assert_true(raw_closed(fd));
        close(fd);
    }
    assert_int_equal(f.store.ops->add(f.store.self, "n", 0, &count), TUTTI_OK);
    assert_true(count == 1);
    fixture_close(&f);
}

/* Connections that stay silent take all descriptors that the server has: a client gets through. */
static int flood(const struct fixture *f)
{
    struct tutti_store store;
    int64_t value = 0;
    for (int i = 0; i < 300; i++) raw_connect(f);
    if (tutti_store_open(f->address, f->secret, tutti_deadline_ns(20 * SECOND), &store) < 0) return 1;
    return store.ops->add(store.self, "n", 1, &value) == TUTTI_OK && value == 1 ? 0 : 2;
}

static void test_flood(void **state)
{
    struct fixture f;
    struct rlimit limit;
    int status;
    (void)state;
    tutti_log_configure("error", "/dev/stderr"); /* refusals are the rule here */
    fixture_open(&f, false, tutti_hmac_available() ? "sesame" : NULL);
    const pid_t child = fork(); /* its descriptors are its own */
    assert_true(child >= 0);
    if (child == 0) _exit(flood(&f));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit few = {.rlim_cur = 100, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, 0);
    fixture_close(&f);
    tutti_log_configure("warn", "/dev/stderr");
}

/* The server goes while clients wait: a sentence, at once. */
static void *closer(void *arg)
{
    tutti_sleep_ns(500 * TUTTI_NS_PER_MS); /* it waits by then, on a busy machine too */
    tutti_store_server_close(arg);
    return NULL;
}

static void test_server_leaves(void **state)
{
    struct fixture f;
    pthread_t thread;
    size_t n;
    (void)state;
    fixture_open(&f, false, NULL);
    uint64_t start = tutti_now_ns();
    assert_int_equal(pthread_create(&thread, NULL, closer, f.server), 0);
    f.server = NULL;
    assert_int_equal(f.store.ops->get(f.store.self, "k", NULL, 0, &n, in(60000)), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error()->text, "connection closed by peer"));
    assert_true(tutti_now_ns() - start < 20 * SECOND);
    pthread_join(thread, NULL);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_garbage), cmocka_unit_test(test_refusals),      cmocka_unit_test(test_replay),
        cmocka_unit_test(test_flood),   cmocka_unit_test(test_server_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
