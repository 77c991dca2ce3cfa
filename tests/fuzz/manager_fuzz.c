/* SPDX-License-Identifier: BSD-3-Clause */

/* What strangers say to a manager without a secret: the first byte says which call the rest is the message of. It
 * answers the next rank that asks rightly. */

#include "calls.h"

#include "ft/serve/serve.h"

#include <tutti/ft.h>

static uint16_t port; /* a manager's that this process serves; 0: it can not */

static void start(void)
{
    struct tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    struct tutti_ft_manager *manager;
    tutti_log_threshold = TUTTI_LOG_ERROR;
    if (port > 0 || tutti_serve_missing()[0]) return;
    config.replica_id = "a";
    config.lighthouse = "http://127.0.0.1:1"; /* nobody listens there */
    config.bind = "127.0.0.1:0";
    config.world_size = 2;
    if (tutti_ft_manager_open(&config, &manager) < 0) abort();
    port = (uint16_t)atoi(strrchr(tutti_ft_manager_address(manager), ':') + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char *const paths[] = {"/torchft.ManagerService/Quorum",
                                        "/torchft.ManagerService/ShouldCommit",
                                        "/torchft.ManagerService/CheckpointMetadata",
                                        "/tutti.ManagerService/Progress",
                                        "/torchft.ManagerService/Kill",
                                        "/tutti.ManagerService/Hello"};
    static unsigned n_inputs;
    start();
    if (port == 0 || n == 0 || n > 12000) return 0;
    calls_make(port, paths[bytes[0] % TUTTI_ARRAY_LEN(paths)], bytes + 1, n - 1);
    if (++n_inputs % 64 == 0) FUZZ_CHECK(calls_make(port, "/tutti.ManagerService/Hello", bytes, 0) > 9);
    return 0;
}
