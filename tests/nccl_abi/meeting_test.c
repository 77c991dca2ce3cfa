/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the ranks of libnccl.so.2 meet, how long they wait for one another, what they are told of one that dies. */

#include "test.h"

#include "nccl_abi/nccl.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- where ranks meet ---- */

static void met(struct rank *rank)
{
    CHECK(rank, members(rank->comm, rank->index) == 3);
}

static unsigned free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (void *)&address, n), 0);
    assert_int_equal(getsockname(fd, (void *)&address, &n), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static void test_meeting(void **state)
{
    (void)state;
    static const char *const interfaces[] = {"lo", "=lo", "^docker0,lo"};
    unique_id id;
    char text[32];
    for (size_t i = 0; i < sizeof interfaces / sizeof *interfaces; i++) {
        setenv("NCCL_SOCKET_IFNAME", interfaces[i], 1);
        assert_int_equal(ranks_run(2, true, met, NULL), 0);
    }
    setenv("NCCL_SOCKET_IFNAME", "nosuch0", 1);
    assert_int_equal(nccl.GetUniqueId(&id), INVALID_USAGE);
    assert_non_null(strstr(nccl.GetLastError(NULL), "is named \"nosuch0\" (NCCL_SOCKET_IFNAME)"));
    unsetenv("NCCL_SOCKET_IFNAME");
    snprintf(text, sizeof text, "127.0.0.1:%u", free_port());
    setenv("NCCL_COMM_ID", text, 1);
    for (int i = 0; i < 2; i++) assert_int_equal(ranks_run(2, true, met, NULL), 0); /* one id, several communicators */
    setenv("NCCL_COMM_ID", "nowhere", 1);
    assert_int_equal(nccl.GetUniqueId(&id), INVALID_ARGUMENT);
    unsetenv("NCCL_COMM_ID");
}

/* Without the variable there is no deadline: the ranks of the other tests wait as long as it takes. */
static void late(struct rank *rank)
{
    comm_t twin = NULL;
    int word = 1;
    ranks_meet(rank); /* the first communicator is there, however long that took */
    if (rank->index == 0) setenv("TUTTI_NCCL_TIMEOUT", "200ms", 1);
    ranks_meet(rank);
    CHECK_OK(rank, nccl.CommSplit(rank->comm, 0, 0, &twin, NULL));
    if (rank->index == 0) {
        CHECK_RESULT(rank, TIMED_OUT, nccl.AllReduce(&word, &word, 1, INT32, SUM, twin, NULL));
        CHECK(rank, strstr(nccl.GetLastError(NULL), "timed out after 200 ms"));
    }
    ranks_meet(rank);
    CHECK_OK(rank, nccl.CommAbort(twin));
}

static void test_deadlines(void **state)
{
    (void)state;
    unique_id id;
    comm_t comm = NULL;
    assert_int_equal(ranks_run(2, true, late, NULL), 0);
    assert_int_equal(nccl.GetUniqueId(&id), OK);
    assert_int_equal(nccl.CommInitRank(&comm, 2, id, 0), TIMED_OUT);
    assert_string_equal(nccl.GetLastError(NULL), "rank 1 did not arrive: timed out after 200 ms");
    assert_null(comm);
    unsetenv("TUTTI_NCCL_TIMEOUT");
}

/* A process that dies is told to the others, which wait without a deadline. */
static void test_death(void **state)
{
    (void)state;
    unique_id id;
    int state_of = OK, word = 1;
    comm_t comm = NULL;
    int ends[2];
    if (!ranks_can_fork()) skip();
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork(); /* opens the library anew */
    if (child == 0) {
        if (read(ends[0], &id, sizeof id) != sizeof id) _exit(1);
        if (nccl.CommInitRank(&comm, 2, id, 1) != OK || members(comm, 1) != 3) _exit(2);
        _exit(0);
    }
    assert_int_equal(nccl.GetUniqueId(&id), OK);
    assert_int_equal(write(ends[1], &id, sizeof id), (long)sizeof id);
    assert_int_equal(nccl.CommInitRank(&comm, 2, id, 0), OK);
    assert_int_equal(members(comm, 0), 3);
    assert_int_equal(nccl.AllReduce(&word, &word, 1, INT32, SUM, comm, NULL), REMOTE_ERROR);
    assert_int_equal(nccl.CommGetAsyncError(comm, &state_of), OK);
    assert_int_equal(state_of, REMOTE_ERROR);
    assert_int_equal(nccl.CommAbort(comm), OK);
    assert_int_equal(waitpid(child, &word, 0), child);
    assert_int_equal(word, 0);
    for (int i = 0; i < 2; i++) close(ends[i]);
}

int main(void)
{
    nccl_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death), /* first: before there are threads */
        cmocka_unit_test(test_meeting),
        cmocka_unit_test(test_deadlines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
