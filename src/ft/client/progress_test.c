/* SPDX-License-Identifier: BSD-3-Clause */

/* Liveness is progress: what ranks say of theirs, as the lighthouse shows it. */

#include "ft/client/groups_test.h"
#include "ft/client/status_test.h"

/* A trainer that hangs is seen although its manager lives: the lighthouse knows its step and its last collective. */
static void test_progress_is_shown(void **state)
{
    struct tutti_ft_lighthouse *lighthouse = lighthouse_at("127.0.0.1:0", 1);
    struct tutti_ft_manager *m = manager_of("a", tutti_ft_lighthouse_address(lighthouse), 2);
    struct tutti_ft_client *client, *other;

    (void)state;
    OK(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &client));
    OK(tutti_ft_client_progress(client, 0, 7, 41));
    await_status(lighthouse, "\"progress\":{\"step\":7,\"collective\":41,\"rank\":0,\"ranks\":1");
    OK(tutti_ft_client_progress(client, 1, 7, 40));
    await_status(lighthouse, "\"progress\":{\"step\":7,\"collective\":40,\"rank\":1,\"ranks\":2");
    for (uint64_t i = 0; i < 1000; i++) OK(tutti_ft_client_progress(client, 1, 8, i)); /* the last one of many counts */
    OK(tutti_ft_client_open(tutti_ft_manager_address(m), 10 * S, &other));
    OK(tutti_ft_client_progress(other, 0, 9, 1));
    await_status(lighthouse, "\"progress\":{\"step\":8,\"collective\":999,\"rank\":1,\"ranks\":2");
    tutti_ft_client_close(other);
    tutti_ft_client_close(client);
    tutti_ft_manager_close(m);
    tutti_ft_lighthouse_close(lighthouse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_progress_is_shown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
