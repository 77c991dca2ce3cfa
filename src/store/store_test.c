/* SPDX-License-Identifier: BSD-3-Clause */

/* Both stores: every call, many clients at once, deadlines, addresses, secrets, damaged files. */

#include "store_test.h"
#include "served.h"
#include "store/open.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- what every store must do ---- */

static void check_values(const struct tutti_store *s)
{
    const struct tutti_store_ops *ops = s->ops;
    char value[64];
    size_t n = 99;
    bool existed = true;
    assert_int_equal(ops->get(s->self, "absent", value, sizeof value, &n, in(0)), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(tutti_last_error()->text, "absent"));
    assert_non_null(strstr(tutti_last_error()->text, "timed out after "));
    assert_int_equal(n, 99);
    assert_int_equal(ops->remove(s->self, "absent", &existed), TUTTI_OK);
    assert_false(existed);
    assert_int_equal(ops->set(s->self, "a", "one", 3), TUTTI_OK);
    assert_int_equal(ops->get(s->self, "a", value, sizeof value, &n, in(0)), TUTTI_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(value, "one", 3);
    assert_int_equal(ops->set(s->self, "a", "three", 5), TUTTI_OK);
    memset(value, 'x', sizeof value);
    assert_int_equal(ops->get(s->self, "a", value, 2, &n, in(0)), TUTTI_ERR_TRUNCATED);
    assert_int_equal(n, 5);
    assert_memory_equal(value, "thxx", 4);
    assert_int_equal(ops->wait(s->self, "a", in(0)), TUTTI_OK);
    assert_int_equal(ops->remove(s->self, "a", &existed), TUTTI_OK);
    assert_true(existed);
    assert_int_equal(ops->wait(s->self, "a", in(20)), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(tutti_last_error()->text, "timed out after "));
    assert_int_equal(ops->remove(s->self, "a", NULL), TUTTI_OK);
    assert_int_equal(ops->set(s->self, "empty", NULL, 0), TUTTI_OK);
    assert_int_equal(ops->get(s->self, "empty", NULL, 0, &n, in(0)), TUTTI_OK);
    assert_int_equal(n, 0);
}

static void check_bounds(const struct tutti_store *s)
{
    const struct tutti_store_ops *ops = s->ops;
    uint8_t *big = malloc(TUTTI_STORE_VALUE_MAX + 1), *back = malloc(TUTTI_STORE_VALUE_MAX + 1);
    char key[TUTTI_STORE_KEY_MAX + 2], near_key[TUTTI_STORE_KEY_MAX + 1];
    size_t n;
    assert_true(big && back);
    for (size_t i = 0; i <= TUTTI_STORE_VALUE_MAX; i++) big[i] = (uint8_t)tutti_mix64(i);
    assert_int_equal(ops->set(s->self, "big", big, TUTTI_STORE_VALUE_MAX), TUTTI_OK);
    assert_int_equal(ops->get(s->self, "big", back, TUTTI_STORE_VALUE_MAX + 1, &n, in(0)), TUTTI_OK);
    assert_int_equal(n, TUTTI_STORE_VALUE_MAX);
    assert_memory_equal(big, back, n);
    assert_int_equal(ops->set(s->self, "big", big, TUTTI_STORE_VALUE_MAX + 1), TUTTI_ERR_ARGUMENT);

    /* The longest key; one that differs in its last character; one that is too long; keys of any bytes. */
    memset(key, '/', sizeof key);
    key[TUTTI_STORE_KEY_MAX] = '\0';
    memcpy(near_key, key, sizeof near_key);
    near_key[TUTTI_STORE_KEY_MAX - 1] = '-';
    assert_int_equal(ops->set(s->self, key, "k", 1), TUTTI_OK);
    assert_int_equal(ops->wait(s->self, near_key, in(0)), TUTTI_ERR_TIMEOUT);
    assert_int_equal(ops->get(s->self, key, back, 1, &n, in(0)), TUTTI_OK);
    key[TUTTI_STORE_KEY_MAX] = '/', key[TUTTI_STORE_KEY_MAX + 1] = '\0';
    assert_int_equal(ops->set(s->self, key, "k", 1), TUTTI_ERR_ARGUMENT);
    assert_int_equal(ops->set(s->self, "", "k", 1), TUTTI_ERR_ARGUMENT);
    assert_int_equal(ops->wait(s->self, NULL, in(0)), TUTTI_ERR_ARGUMENT);
    static const char *const odd[] = {"..", ".", "../../etc/passwd", "a b", "\xff\x01%41", "%", ".lock", "A", "a"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(odd); i++)
        assert_int_equal(ops->set(s->self, odd[i], &i, sizeof i), TUTTI_OK);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(odd); i++) {
        size_t value = 77;
        assert_int_equal(ops->get(s->self, odd[i], &value, sizeof value, &n, in(0)), TUTTI_OK);
        assert_int_equal(value, i);
    }
    free(big);
    free(back);
}

static void check_counters(const struct tutti_store *s)
{
    const struct tutti_store_ops *ops = s->ops;
    int64_t value = 0;
    char text[32];
    size_t n;
    assert_int_equal(ops->add(s->self, "c", 0, &value), TUTTI_OK);
    assert_true(value == 0);
    assert_int_equal(ops->add(s->self, "c", 41, &value), TUTTI_OK);
    assert_int_equal(ops->add(s->self, "c", -50, &value), TUTTI_OK);
    assert_true(value == -9);
    assert_int_equal(ops->get(s->self, "c", text, sizeof text, &n, in(0)), TUTTI_OK);
    assert_int_equal(n, 2);
    assert_memory_equal(text, "-9", 2);
    assert_int_equal(ops->set(s->self, "c", "9223372036854775806", 19), TUTTI_OK);
    assert_int_equal(ops->add(s->self, "c", 1, &value), TUTTI_OK);
    assert_true(value == INT64_MAX);
    assert_int_equal(ops->add(s->self, "c", 1, &value), TUTTI_ERR_ARGUMENT);
    assert_true(value == INT64_MAX);
    static const char *const bad[] = {"", "x", "1 ", "+1", "01", "9223372036854775808", "1.5"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bad); i++) {
        assert_int_equal(ops->set(s->self, "c", bad[i], strlen(bad[i])), TUTTI_OK);
        assert_int_equal(ops->add(s->self, "c", 1, &value), TUTTI_ERR_ARGUMENT);
    }
    assert_int_equal(ops->remove(s->self, "c", NULL), TUTTI_OK);
    assert_int_equal(ops->add(s->self, "c", 3, &value), TUTTI_OK);
    assert_true(value == 3);
}

static void check_deadline(const struct tutti_store *s)
{
    size_t n;
    uint64_t start = tutti_now_ns();
    assert_int_equal(s->ops->get(s->self, "never", NULL, 0, &n, in(150)), TUTTI_ERR_TIMEOUT);
    assert_int_equal(s->ops->wait(s->self, "never", in(150)), TUTTI_ERR_TIMEOUT);
    uint64_t took = tutti_now_ns() - start;
    assert_true(took >= 299 * TUTTI_NS_PER_MS);
    assert_true(took < 60 * SECOND);
}

struct waiter {
    const struct tutti_store *store;
    enum tutti_status status;
    char value[32];
};

static void *waiter_thread(void *arg)
{
    struct waiter *w = arg;
    size_t n = 0;
    w->status = w->store->ops->get(w->store->self, "soon", w->value, sizeof w->value, &n, in(20000));
    return NULL;
}

/* The same handle waits on several threads and sets on another. */
static void check_waiters(const struct tutti_store *s)
{
    pthread_t threads[4];
    struct waiter waiters[4];
    memset(waiters, 0, sizeof waiters);
    for (int i = 0; i < 4; i++) {
        waiters[i].store = s;
        assert_int_equal(pthread_create(&threads[i], NULL, waiter_thread, &waiters[i]), 0);
    }
    tutti_sleep_ns(50 * TUTTI_NS_PER_MS);
    assert_int_equal(s->ops->set(s->self, "soon", "here", 4), TUTTI_OK);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].status, TUTTI_OK);
        assert_string_equal(waiters[i].value, "here");
    }
    /* A counter that appears wakes, too. */
    assert_int_equal(s->ops->remove(s->self, "soon", NULL), TUTTI_OK);
    assert_int_equal(pthread_create(&threads[0], NULL, waiter_thread, &waiters[0]), 0);
    tutti_sleep_ns(20 * TUTTI_NS_PER_MS);
    int64_t value;
    assert_int_equal(s->ops->add(s->self, "soon", 7, &value), TUTTI_OK);
    pthread_join(threads[0], NULL);
    assert_int_equal(waiters[0].status, TUTTI_OK);
    assert_int_equal(waiters[0].value[0], '7');
}

enum { CLIENTS = 16, ADDS = 25 };

/* A process of its own: counts, tells, and waits for all the others. */
static int client_run(const char *address, const char *secret, int me)
{
    struct tutti_store s;
    char key[32], value[32];
    int64_t count;
    size_t n;
    if (tutti_store_open(address, secret, in(20000), &s) != TUTTI_OK) return 1;
    for (int i = 0; i < ADDS; i++)
        if (s.ops->add(s.self, "shared", 1, &count) != TUTTI_OK) return 2;
    snprintf(key, sizeof key, "client/%d", me);
    if (s.ops->set(s.self, key, key, strlen(key)) != TUTTI_OK) return 3;
    for (int i = 0; i < CLIENTS; i++) {
        snprintf(key, sizeof key, "client/%d", i);
        if (s.ops->get(s.self, key, value, sizeof value, &n, in(20000)) != TUTTI_OK) return 4;
        if (n != strlen(key) || memcmp(value, key, n) != 0) return 5;
    }
    tutti_store_close(&s);
    return 0;
}

static void check_clients(const char *address, const char *secret)
{
    pid_t pids[CLIENTS];
    struct tutti_store store;
    int64_t count;
    for (int i = 0; i < CLIENTS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) _exit(client_run(address, secret, i));
    }
    for (int i = 0; i < CLIENTS; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(tutti_store_open(address, secret, in(20000), &store), TUTTI_OK);
    assert_int_equal(store.ops->add(store.self, "shared", 0, &count), TUTTI_OK);
    assert_true(count == CLIENTS * ADDS);
    tutti_store_close(&store);
}

static void check_contract(bool file, const char *secret)
{
    struct served served; /* before this process has threads */
    struct fixture f;
    if (!file) served_open(&served, secret);
    fixture_open(&f, file, secret);
    check_values(&f.store);
    check_bounds(&f.store);
    check_counters(&f.store);
    check_deadline(&f.store);
    check_waiters(&f.store);
    check_clients(file ? f.address : served.address, secret);
    fixture_close(&f);
    if (!file) served_close(&served);
}

static void test_contract(void **state)
{
    (void)state;
    for (int secret = 0; secret < (tutti_hmac_available() ? 2 : 1); secret++)
        for (int file = 0; file < 2; file++) check_contract(file, secret ? "sesame" : NULL);
}

/* ---- addresses ---- */

static void test_addresses(void **state)
{
    static const char *const bad[] = {"",
                                      "127.0.0.1:80",
                                      "tcp://",
                                      "tcp://host",
                                      "tcp://host:",
                                      "tcp://:80",
                                      "tcp://127.0.0.1:http",
                                      "file://",
                                      "file://relative/path",
                                      "http://a:1",
                                      "tcp://127.0.0.1:99999999999999999999",
                                      "tcp://127.0.0.1:65536"};
    struct tutti_store s;
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bad); i++) {
        enum tutti_status status = tutti_store_open(bad[i], NULL, in(300), &s);
        if (status != TUTTI_ERR_ARGUMENT) fail_msg("\"%s\": %s", bad[i], tutti_status_name(status));
    }
    assert_int_equal(tutti_store_open(NULL, NULL, in(0), &s), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_store_open("file:///nonexistent/deep/path", NULL, in(0), &s), TUTTI_ERR_SYSTEM);
    assert_int_equal(tutti_store_open("file:///dev/null", NULL, in(0), &s), TUTTI_ERR_SYSTEM);
    struct tutti_store none = {NULL, NULL};
    tutti_store_close(&none);
    tutti_store_close(NULL);
    tutti_store_server_close(NULL);
    struct tutti_store_server *a, *b;
    assert_int_equal(tutti_store_server_open("127.0.0.1", 0, NULL, &a), TUTTI_OK);
    assert_int_equal(tutti_store_server_open("127.0.0.1", tutti_store_server_port(a), NULL, &b), TUTTI_ERR_SYSTEM);
    tutti_store_server_close(a);
    assert_int_equal(tutti_store_server_open(NULL, 0, NULL, &a), TUTTI_OK); /* all addresses */
    tutti_store_server_close(a);
}

/* Nobody listens yet: the client comes again until its deadline, and finds a server that is late. */
static void *late_server(void *arg)
{
    struct tutti_store_server **server = arg;
    uint16_t port = (uint16_t)(uintptr_t)*server;
    tutti_sleep_ns(200 * TUTTI_NS_PER_MS);
    if (tutti_store_server_open("127.0.0.1", port, NULL, server) != TUTTI_OK) *server = NULL;
    return NULL;
}

/* A port that nobody listens on, and nobody else gets while the descriptor is open. */
static int port_hold(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0); /* as servers do, who may join */
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static void test_late_server(void **state)
{
    struct tutti_store_server *server;
    struct tutti_store s;
    char address[64];
    pthread_t thread;
    (void)state;
    uint16_t port;
    int held = port_hold(&port);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", port);
    uint64_t start = tutti_now_ns();
    assert_int_equal(tutti_store_open(address, NULL, in(150), &s), TUTTI_ERR_TIMEOUT);
    assert_true(tutti_now_ns() - start >= 150 * TUTTI_NS_PER_MS);
    assert_non_null(strstr(tutti_last_error()->text, "timed out after 1"));
    server = (struct tutti_store_server *)(uintptr_t)port;
    assert_int_equal(pthread_create(&thread, NULL, late_server, &server), 0);
    assert_int_equal(tutti_store_open(address, NULL, in(10000), &s), TUTTI_OK);
    pthread_join(thread, NULL);
    assert_non_null(server);
    tutti_store_server_close(server);
    assert_int_equal(s.ops->set(s.self, "a", "b", 1), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error()->text, "connection closed by peer"));
    tutti_store_close(&s);
    close(held);
}

/* While nobody serves, the log says where it is looked for. */
static void test_nobody_serves(void **state)
{
    struct tutti_store s;
    char address[64], told[64], line[512] = "", path[] = "/tmp/tutti-store-log-XXXXXX";
    (void)state;
    uint16_t port;
    const int held = port_hold(&port), log = mkstemp(path);
    assert_true(log >= 0);
    assert_int_equal(tutti_log_open(path), TUTTI_OK);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", port);
    snprintf(told, sizeof told, "no store answers at 127.0.0.1:%u", port);
    assert_int_equal(tutti_store_open(address, NULL, in(3500), &s), TUTTI_ERR_TIMEOUT);
    assert_true(read(log, line, sizeof line - 1) > 0);
    if (!strstr(line, told)) fail_msg("the log says %s", line);
    close(log), close(held);
    unlink(path);
}

/* Without an interface that is up the sentence names the errno. */
static void test_no_network(void **state)
{
    struct tutti_store s;
    int status;
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (unshare(CLONE_NEWNET) != 0) _exit(77);
        const bool late = tutti_store_open("tcp://127.0.0.1:1", NULL, in(200), &s) == TUTTI_ERR_TIMEOUT;
        _exit(!late || !strstr(tutti_last_error()->text, strerror(ENETUNREACH)));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip(); /* no namespaces for this user */
    assert_int_equal(status, 0);
}

/* ---- secrets ---- */

static void test_wrong_secret(void **state)
{
    static const char *const secrets[] = {"sesame", "simsim", NULL};
    struct tutti_store s;
    (void)state;
    if (!tutti_hmac_available()) skip();
    for (int server = 0; server < 3; server++) {
        struct fixture f;
        fixture_open(&f, false, secrets[server]);
        for (int client = 0; client < 3; client++) {
            enum tutti_status expected = client == server ? TUTTI_OK : TUTTI_ERR_AUTH;
            assert_int_equal(tutti_store_open(f.address, secrets[client], in(5000), &s), expected);
            if (expected == TUTTI_OK) tutti_store_close(&s);
        }
        assert_int_equal(f.store.ops->set(f.store.self, "still", "well", 4), TUTTI_OK);
        fixture_close(&f);
    }
    /* The file store: what another secret wrote is refused, and so is what moved from another key. */
    struct fixture f;
    char value[8], from[96], to[96];
    int64_t count;
    size_t n;
    fixture_open(&f, true, "sesame");
    assert_int_equal(f.store.ops->set(f.store.self, "a", "1", 1), TUTTI_OK);
    for (int client = 1; client < 3; client++) {
        assert_int_equal(tutti_store_open(f.address, secrets[client], in(0), &s), TUTTI_OK);
        assert_int_equal(s.ops->get(s.self, "a", value, sizeof value, &n, in(0)), TUTTI_ERR_AUTH);
        assert_int_equal(s.ops->add(s.self, "a", 1, &count), TUTTI_ERR_AUTH);
        tutti_store_close(&s);
    }
    snprintf(from, sizeof from, "%s/ka", f.directory);
    snprintf(to, sizeof to, "%s/kb", f.directory);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(f.store.ops->get(f.store.self, "b", value, sizeof value, &n, in(0)), TUTTI_ERR_AUTH);
    fixture_close(&f);
}

static void test_file_damage(void **state)
{
    struct fixture f;
    char path[96], value[8];
    size_t n;
    (void)state;
    fixture_open(&f, true, NULL);
    snprintf(path, sizeof path, "%s/kx", f.directory);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "short", 5), 5);
    close(fd);
    assert_int_equal(f.store.ops->get(f.store.self, "x", value, sizeof value, &n, in(0)), TUTTI_ERR_PROTOCOL);
    /* A holder of the lock that is killed leaves no lock behind. */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        snprintf(path, sizeof path, "%s/.lock", f.directory);
        fd = open(path, O_RDWR | O_CREAT, 0600);
        fcntl(fd, F_OFD_SETLK, &whole);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    uint64_t start = tutti_now_ns();
    assert_int_equal(f.store.ops->set(f.store.self, "x", "fine", 4), TUTTI_OK);
    assert_true(tutti_now_ns() - start < 60 * SECOND);
    fixture_close(&f);
}

/* A server that may take any port takes one that the user leaves. */
static void test_ports(void **state)
{
    struct tutti_store_server *held, *taken = NULL;
    char range[32];
    (void)state;
    assert_int_equal(tutti_store_server_open("127.0.0.1", 0, NULL, &held), TUTTI_OK);
    const uint16_t port = tutti_store_server_port(held);
    snprintf(range, sizeof range, "%u", port);
    setenv("TUTTI_PORT_RANGE", range, 1);
    assert_int_equal(tutti_store_server_open("127.0.0.1", 0, NULL, &taken), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error()->text, "TUTTI_PORT_RANGE"));
    tutti_store_server_close(held);
    assert_int_equal(tutti_store_server_open("127.0.0.1", 0, NULL, &taken), TUTTI_OK);
    assert_int_equal(tutti_store_server_port(taken), port);
    tutti_store_server_close(taken);
    setenv("TUTTI_PORT_RANGE", "7-5", 1);
    assert_int_equal(tutti_store_server_open("127.0.0.1", 0, NULL, &taken), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "\"7-5\" is not a range of ports"));
    unsetenv("TUTTI_PORT_RANGE");
}

/* ---- what stays of a file store ---- */

static struct tutti_store meets(const char *address)
{
    struct tutti_store store;
    if (tutti_store_open_by(address, NULL, NULL, true, in(5000), &store) != TUTTI_OK)
        fail_msg("%s", tutti_last_error()->text);
    return store;
}

static void put(const struct tutti_store *s, const char *key)
{
    assert_int_equal(s->ops->set(s->self, key, "v", 1), TUTTI_OK);
}

static bool has(const struct tutti_store *s, const char *key)
{
    char value[8];
    size_t n;
    return s->ops->get(s->self, key, value, sizeof value, &n, in(0)) == TUTTI_OK;
}

/* A meeting's keys, and the directory, go with the last that met there; what others put there stays. */
static void test_file_leaves(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, true, NULL);
    struct tutti_store a = meets(f.address), b = meets(f.address);
    put(&a, "tutti/w/0/claim");
    tutti_store_close(&f.store);
    tutti_store_close(&a);
    assert_true(has(&b, "tutti/w/0/claim"));
    tutti_store_close(&b);
    assert_int_equal(access(f.directory, F_OK), -1);

    b = meets(f.address);
    put(&b, "tutti/w/0/claim");
    put(&b, "tutti/w/door/left/1"); /* for ever: comm/life/door.c */
    put(&b, "mine");
    tutti_store_close(&b);
    assert_int_equal(tutti_store_open(f.address, NULL, in(5000), &f.store), TUTTI_OK);
    assert_true(has(&f.store, "mine") && has(&f.store, "tutti/w/door/left/1") && !has(&f.store, "tutti/w/0/claim"));
    assert_int_equal(f.store.ops->remove(f.store.self, "mine", NULL), TUTTI_OK);
    assert_int_equal(f.store.ops->remove(f.store.self, "tutti/w/door/left/1", NULL), TUTTI_OK);
    tutti_store_close(&f.store);
    assert_int_equal(access(f.directory, F_OK), -1);

    assert_int_equal(mkdir(f.directory, 0700), 0); /* the user's own */
    b = meets(f.address);
    put(&b, "tutti/w/0/claim");
    tutti_store_close(&b);
    assert_int_equal(access(f.directory, F_OK), 0);
    fixture_close(&f);
}

/* Ranks that were killed in a meeting do not stand in the way of the next. */
static void test_file_killed(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, true, NULL);
    tutti_store_close(&f.store);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct tutti_store store = meets(f.address);
        put(&store, "tutti/w/0/claim");
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    assert_int_equal(access(f.directory, F_OK), 0);
    struct tutti_store store = meets(f.address);
    assert_false(has(&store, "tutti/w/0/claim"));
    tutti_store_close(&store);
    assert_int_equal(access(f.directory, F_OK), -1);
    fixture_close(&f);
}

/* Many come and go at once, each time the last one takes the directory away: no key is lost while it is awaited. */
static int comer_run(const char *address, int me)
{
    char key[48];
    for (int i = 0; i < 100; i++) {
        struct tutti_store store;
        if (tutti_store_open_by(address, NULL, NULL, true, in(20000), &store) < 0) return 1;
        snprintf(key, sizeof key, "tutti/w/%d/%d", me, i);
        if (store.ops->set(store.self, key, "v", 1) < 0 || !has(&store, key)) return 2;
        tutti_store_close(&store);
    }
    return 0;
}

static void test_file_comers(void **state)
{
    struct fixture f;
    pid_t children[4];
    int status;
    (void)state;
    fixture_open(&f, true, NULL);
    tutti_store_close(&f.store);
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) _exit(comer_run(f.address, i));
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(access(f.directory, F_OK), -1);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ports),        cmocka_unit_test(test_file_leaves),   cmocka_unit_test(test_file_killed),
        cmocka_unit_test(test_file_comers),  cmocka_unit_test(test_contract),      cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_late_server),  cmocka_unit_test(test_nobody_serves), cmocka_unit_test(test_no_network),
        cmocka_unit_test(test_wrong_secret), cmocka_unit_test(test_file_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
