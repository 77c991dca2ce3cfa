/* SPDX-License-Identifier: BSD-3-Clause */

/* What a lighthouse tells its clients, by the public calls: its settings, and each group that it hears no more. */

#include "ft/client/groups_test.h"

static struct tutti_ft_lighthouse *lighthouse_of(uint64_t heartbeat_timeout_ns)
{
    struct tutti_ft_lighthouse_config config = TUTTI_FT_LIGHTHOUSE_CONFIG_INIT;
    struct tutti_ft_lighthouse *lighthouse;

    config.bind = "127.0.0.1:0";
    config.heartbeat_timeout_ns = heartbeat_timeout_ns;
    OK(tutti_ft_lighthouse_open(&config, &lighthouse));
    return lighthouse;
}

static const char *setting(const struct tutti_ft_settings *settings, const char *name)
{
    for (uint32_t i = 0; i < settings->n; i++)
        if (strcmp(settings->list[i].name, name) == 0) return settings->list[i].value;
    return "";
}

static void test_settings_and_failures(void **state)
{
    struct tutti_ft_lighthouse *lighthouse = lighthouse_of(60 * S);
    struct tutti_ft_lighthouse_client *client, *dies;
    struct tutti_ft_settings *settings;
    struct tutti_ft_failures *failures;
    char *name;

    (void)state;
    OK(tutti_ft_lighthouse_client_open(tutti_ft_lighthouse_address(lighthouse), 10 * S, &client));
    OK(tutti_ft_lighthouse_client_settings(client, 10 * S, &settings));
    assert_string_equal(setting(settings, "min_replicas"), "1");
    assert_string_equal(setting(settings, "heartbeat_timeout_ms"), "60000");
    tutti_ft_settings_free(settings);
    OK(tutti_ft_failures_open(client, &failures));
    assert_int_equal(tutti_ft_failures_next(failures, 10 * MS, &name), TUTTI_ERR_TIMEOUT);
    for (int i = 0; i < 3; i++) { /* one after another, and nothing is lost between two calls */
        char replica_id[32];
        snprintf(replica_id, sizeof replica_id, "group %d \xc3\xa9", i);
        OK(tutti_ft_lighthouse_client_open(tutti_ft_lighthouse_address(lighthouse), 10 * S, &dies));
        OK(tutti_ft_lighthouse_client_heartbeat(dies, replica_id, 10 * S));
        tutti_ft_lighthouse_client_close(dies);
        if (i == 0) continue;
        if (i == 1) {
            OK(tutti_ft_failures_next(failures, 20 * S, &name));
            assert_string_equal(name, "group 0 \xc3\xa9");
            free(name);
        }
        OK(tutti_ft_failures_next(failures, 20 * S, &name));
        assert_string_equal(name, replica_id);
        free(name);
    }
    tutti_ft_failures_close(failures);
    tutti_ft_lighthouse_client_close(client);
    tutti_ft_lighthouse_close(lighthouse);
}

/* A manager that would beat too seldom for its lighthouse learns of it. */
static void test_managers_beat_often_enough(void **state)
{
    struct tutti_ft_lighthouse *lighthouse = lighthouse_of(400 * MS);
    struct tutti_ft_lighthouse_client *client;
    struct tutti_ft_failures *failures;
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    struct tutti_ft_manager *manager;
    char *name;

    (void)state;
    OK(tutti_ft_lighthouse_client_open(tutti_ft_lighthouse_address(lighthouse), 10 * S, &client));
    OK(tutti_ft_failures_open(client, &failures));
    config.replica_id = "slow";
    config.lighthouse = tutti_ft_lighthouse_address(lighthouse);
    config.bind = "127.0.0.1:0";
    config.heartbeat_interval_ns = 30 * S;
    OK(tutti_ft_manager_open(&config, &manager));
    assert_int_equal(tutti_ft_failures_next(failures, 1000 * MS, &name), TUTTI_ERR_TIMEOUT);
    tutti_ft_manager_close(manager);
    OK(tutti_ft_failures_next(failures, 20 * S, &name));
    assert_string_equal(name, "slow");
    free(name);
    tutti_ft_failures_close(failures);
    tutti_ft_lighthouse_client_close(client);
    tutti_ft_lighthouse_close(lighthouse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_settings_and_failures),
                                       cmocka_unit_test(test_managers_beat_often_enough)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
