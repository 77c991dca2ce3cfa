/* SPDX-License-Identifier: BSD-3-Clause */

/* What strangers send to a lighthouse's port. The first byte says what the rest is: bytes as they are (HTTP, TLS,
 * nonsense), frames behind HTTP/2's preface, or the message of a call in frames that are right; what lighthouses say to
 * one another goes to one that leads and to one of three. The lighthouse ends each connection whose peer has nothing
 * more to say, and answers the next one who asks rightly. */

#include "calls.h"
#include "ft/serve/serve.h"

enum { RAW, FRAMES, QUORUM, HEARTBEAT, STEP, LEAVE, FORWARD, TELL, FORWARD_ONE, N_KINDS };
#define HEARTBEAT_PATH "/torchft.LighthouseService/Heartbeat"

static char folder[] = "/dev/shm/tutti_fuzz_XXXXXX"; /* in memory: what is kept is kept at once */
static uint16_t leads, one_of_three;                 /* their ports; 0: this build can not */

static void end(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0) fprintf(stderr, "%s stays\n", folder);
}

static uint16_t open_one(const char *name, const char *peers)
{
    char state[64];
    const struct tutti_serve_config config = {
        .bind = "127.0.0.1:0",
        .state = state,
        .peers = peers,
        .options = {1, 1, TUTTI_NS_PER_S, TUTTI_NS_PER_MS, TUTTI_NS_PER_S, 1000},
    };
    struct tutti_serve *served;
    snprintf(state, sizeof state, "%s/%s", folder, name);
    if (tutti_serve_open(&config, &served) < 0) abort();
    return (uint16_t)atoi(strrchr(tutti_serve_address(served), ':') + 1);
}

static void start(void)
{
    tutti_log_threshold = TUTTI_LOG_ERROR;
    if (leads > 0 || tutti_serve_missing()[0]) return;
    if (!mkdtemp(folder)) abort();
    leads = open_one("leads", NULL);
    one_of_three =
        open_one("one", "http://127.0.0.1:1,http://127.0.0.1:2,http://127.0.0.1:3"); /* nobody listens there */
    atexit(end);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const struct {
        const char *path;
        uint16_t *to;
    } kinds[N_KINDS] = {[RAW] = {NULL, &leads},
                        [FRAMES] = {NULL, &leads},
                        [QUORUM] = {"/torchft.LighthouseService/Quorum", &leads},
                        [HEARTBEAT] = {HEARTBEAT_PATH, &leads},
                        [STEP] = {"/tutti.LighthouseService/Step", &leads},
                        [LEAVE] = {"/tutti.LighthouseService/Leave", &leads},
                        [FORWARD] = {"/tutti.CouncilService/Forward", &leads},
                        [TELL] = {"/tutti.CouncilService/Tell", &one_of_three},
                        [FORWARD_ONE] = {"/tutti.CouncilService/Forward", &one_of_three}};
    static uint8_t out[1 << 16];
    static char answer[1 << 16];
    static unsigned n_inputs;
    start();
    if (leads == 0 || n == 0 || n > 12000) return 0;
    const unsigned kind = bytes[0] % N_KINDS;
    if (kinds[kind].path) {
        calls_make(*kinds[kind].to, kinds[kind].path, bytes + 1, n - 1);
    } else {
        const size_t at = kind == RAW ? 0 : calls_put(out, 0, CALLS_PREFACE, sizeof CALLS_PREFACE - 1);
        calls_exchange(leads, kind == RAW, out, calls_put(out, at, bytes + 1, n - 1), answer, sizeof answer);
    }
    if (++n_inputs % 64 == 0) FUZZ_CHECK(calls_make(leads, HEARTBEAT_PATH, (const uint8_t *)"\x0a\x01x", 3) > 9);
    return 0;
}
