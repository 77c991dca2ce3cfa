/* SPDX-License-Identifier: BSD-3-Clause */

/* Names, error records and the log. */

#include "test.h"

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    enum tutti_status status;
    enum tutti_scope scope;
    const char *name;
} statuses[] = {
    {TUTTI_OK, TUTTI_SCOPE_NONE, "TUTTI_OK"},
    {TUTTI_AGAIN, TUTTI_SCOPE_NONE, "TUTTI_AGAIN"},
    {TUTTI_PENDING, TUTTI_SCOPE_NONE, "TUTTI_PENDING"},
    {TUTTI_ERR_ARGUMENT, TUTTI_SCOPE_CALL, "TUTTI_ERR_ARGUMENT"},
    {TUTTI_ERR_UNSUPPORTED, TUTTI_SCOPE_CALL, "TUTTI_ERR_UNSUPPORTED"},
    {TUTTI_ERR_MEMORY, TUTTI_SCOPE_CALL, "TUTTI_ERR_MEMORY"},
    {TUTTI_ERR_SYSTEM, TUTTI_SCOPE_CALL, "TUTTI_ERR_SYSTEM"},
    {TUTTI_ERR_CANCELLED, TUTTI_SCOPE_CALL, "TUTTI_ERR_CANCELLED"},
    {TUTTI_ERR_TRUNCATED, TUTTI_SCOPE_CALL, "TUTTI_ERR_TRUNCATED"},
    {TUTTI_ERR_PEER_DEAD, TUTTI_SCOPE_PEER, "TUTTI_ERR_PEER_DEAD"},
    {TUTTI_ERR_PEER_LEFT, TUTTI_SCOPE_PEER, "TUTTI_ERR_PEER_LEFT"},
    {TUTTI_ERR_TIMEOUT, TUTTI_SCOPE_COMM, "TUTTI_ERR_TIMEOUT"},
    {TUTTI_ERR_MISMATCH, TUTTI_SCOPE_COMM, "TUTTI_ERR_MISMATCH"},
    {TUTTI_ERR_ABORTED, TUTTI_SCOPE_COMM, "TUTTI_ERR_ABORTED"},
    {TUTTI_ERR_PROTOCOL, TUTTI_SCOPE_COMM, "TUTTI_ERR_PROTOCOL"},
    {TUTTI_ERR_CONFIG, TUTTI_SCOPE_CONTEXT, "TUTTI_ERR_CONFIG"},
    {TUTTI_ERR_AUTH, TUTTI_SCOPE_CONTEXT, "TUTTI_ERR_AUTH"},
    {TUTTI_ERR_BOOTSTRAP, TUTTI_SCOPE_CONTEXT, "TUTTI_ERR_BOOTSTRAP"},
    {TUTTI_ERR_INTERNAL, TUTTI_SCOPE_CONTEXT, "TUTTI_ERR_INTERNAL"},
};

static void test_statuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(statuses); i++) {
        assert_string_equal(tutti_status_name(statuses[i].status), statuses[i].name);
        assert_int_equal(tutti_status_scope(statuses[i].status), statuses[i].scope);
        assert_string_not_equal(tutti_status_text(statuses[i].status), "unknown status");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(tutti_status_text(statuses[i].status), tutti_status_text(statuses[j].status));
    }
    /* No number in the range of the enumeration has a name that is not in the list above. */
    for (int value = -100; value <= 10; value++) {
        bool listed = false;
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(statuses); i++) listed |= (int)statuses[i].status == value;
        assert_int_equal(strcmp(tutti_status_name((enum tutti_status)value), "TUTTI_?") != 0, listed);
    }
}

static void test_types(void **state)
{
    static const struct {
        const char *name;
        size_t bytes;
    } expected[] = {
        {"int8", 1},     {"uint8", 1},   {"int16", 2},   {"uint16", 2},        {"int32", 4},       {"uint32", 4},
        {"int64", 8},    {"uint64", 8},  {"bool", 1},    {"float8_e4m3fn", 1}, {"float8_e5m2", 1}, {"float16", 2},
        {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"complex64", 8},     {"complex128", 16},
    };
    static const char *const ops[] = {"sum", "prod", "min", "max", "avg", "premul_sum", "band", "bor", "bxor"};
    (void)state;
    assert_int_equal(TUTTI_ARRAY_LEN(expected), TUTTI_N_DTYPES);
    for (size_t i = 0; i < TUTTI_N_DTYPES; i++) {
        assert_string_equal(tutti_dtype_name((enum tutti_dtype)i), expected[i].name);
        assert_int_equal(tutti_dtype_bytes((enum tutti_dtype)i), expected[i].bytes);
    }
    assert_string_equal(tutti_dtype_name(TUTTI_N_DTYPES), "?");
    assert_string_equal(tutti_dtype_name((enum tutti_dtype) - 1), "?");
    assert_int_equal(tutti_dtype_bytes((enum tutti_dtype)1000), 0);
    assert_int_equal(TUTTI_ARRAY_LEN(ops), TUTTI_N_OPS);
    for (size_t i = 0; i < TUTTI_N_OPS; i++) assert_string_equal(tutti_op_name((enum tutti_op)i), ops[i]);
    assert_string_equal(tutti_op_name((enum tutti_op)(TUTTI_N_OPS + 5)), "user");
}

static void test_fail(void **state)
{
    (void)state;
    errno = EBUSY;
    assert_int_equal(tutti_fail(TUTTI_ERR_ARGUMENT, "count %d is odd", 3), TUTTI_ERR_ARGUMENT);
    assert_int_equal(errno, EBUSY);
    const struct tutti_error *error = tutti_last_error();
    assert_int_equal(error->status, TUTTI_ERR_ARGUMENT);
    assert_string_equal(error->text, "count 3 is odd");
    assert_int_equal(error->peer, -1);
    assert_int_equal(error->step, UINT32_MAX);
    assert_int_equal(error->os_errno, 0);
    assert_int_equal(error->seq, 0);
    assert_string_equal(error->collective, "");

    errno = ENOENT;
    assert_int_equal(tutti_fail_errno(TUTTI_ERR_SYSTEM, "open %s", "x"), TUTTI_ERR_SYSTEM);
    assert_string_equal(error->text, "open x: No such file or directory");
    assert_int_equal(error->os_errno, ENOENT);

    /* The arguments may be the record's own text. */
    tutti_fail(TUTTI_ERR_SYSTEM, "again: %s", tutti_last_error()->text);
    assert_string_equal(error->text, "again: open x: No such file or directory");

    /* Never empty, never longer than the record. */
    tutti_fail(TUTTI_ERR_TIMEOUT, "%s", "");
    assert_string_equal(error->text, tutti_status_text(TUTTI_ERR_TIMEOUT));
    char big[2 * TUTTI_ERROR_TEXT];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    errno = EIO;
    tutti_fail_errno(TUTTI_ERR_SYSTEM, "%s", big);
    assert_int_equal(strlen(error->text), TUTTI_ERROR_TEXT - 1);

    struct tutti_error mine;
    tutti_error_set(&mine, TUTTI_ERR_PEER_DEAD, "rank %d died", 7);
    mine.peer = 7, mine.seq = 12, mine.collective = "barrier", mine.step = 3;
    assert_int_equal(tutti_fail_record(&mine), TUTTI_ERR_PEER_DEAD);
    assert_memory_equal(&mine, tutti_last_error(), sizeof mine);
    assert_int_equal(tutti_fail_record(tutti_last_error()), TUTTI_ERR_PEER_DEAD);
}

static void *other_thread(void *arg)
{
    *(enum tutti_status *)arg = tutti_last_error()->status;
    tutti_fail(TUTTI_ERR_MEMORY, "mine alone");
    return NULL;
}

static void test_record_of_thread(void **state)
{
    (void)state;
    pthread_t thread;
    enum tutti_status seen = TUTTI_ERR_INTERNAL;
    tutti_fail(TUTTI_ERR_AUTH, "here");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &seen), 0);
    pthread_join(thread, NULL);
    assert_int_equal(seen, TUTTI_OK);
    assert_string_equal(tutti_last_error()->text, "here");
}

static char log_path[64];

static void log_read(char *out, size_t capacity)
{
    int fd = open(log_path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, out, capacity - 1);
    assert_true(n >= 0);
    out[n] = '\0';
    close(fd);
    assert_int_equal(truncate(log_path, 0), 0);
}

static void *log_thread(void *arg)
{
    (void)arg;
    for (int i = 0; i < 200; i++) tutti_log(TUTTI_LOG_ERROR, "%0*d", 300, i);
    return NULL;
}

static void test_log(void **state)
{
    static char text[1 << 18];
    char expected[256];
    (void)state;
    snprintf(log_path, sizeof log_path, "/tmp/tutti-log-7-%d", (int)getpid());
    tutti_log_set_rank(7);
    assert_int_equal(tutti_log_configure("warn", "/tmp/tutti-log-%r-%p"), TUTTI_OK);
    int line = __LINE__ + 1;
    tutti_log(TUTTI_LOG_WARN, "two\nlines %d", 1);
    tutti_log(TUTTI_LOG_INFO, "not shown");
    log_read(text, sizeof text);
    snprintf(expected, sizeof expected, "tutti[7 %d] warn error_test.c:%d two lines 1\n", (int)getpid(), line);
    assert_string_equal(text, expected);

    assert_int_equal(tutti_log_configure("noisy", NULL), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "noisy"));
    assert_int_equal(tutti_log_configure("TRACE", NULL), TUTTI_OK);
    tutti_log(TUTTI_LOG_TRACE, "shown");
    log_read(text, sizeof text);
    assert_non_null(strstr(text, "trace error_test.c"));
    assert_int_equal(tutti_log_configure("error", NULL), TUTTI_OK);

    /* Lines of several threads do not mix. */
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, log_thread, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    int n_lines = 0;
    int fd = open(log_path, O_RDONLY);
    FILE *f = fdopen(fd, "r");
    while (fgets(text, sizeof text, f)) {
        assert_int_equal(strncmp(text, "tutti[", 6), 0);
        const char *last = strrchr(text, ' ');
        assert_non_null(last);
        assert_int_equal(strlen(last), 302);
        n_lines++;
    }
    fclose(f);
    assert_int_equal(n_lines, 800);
    assert_int_equal(tutti_log_configure(NULL, "/nonexistent/dir/file"), TUTTI_ERR_SYSTEM);
    assert_int_equal(tutti_log_configure("warn", "/dev/stderr"), TUTTI_OK);
    unlink(log_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statuses),         cmocka_unit_test(test_types), cmocka_unit_test(test_fail),
        cmocka_unit_test(test_record_of_thread), cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
