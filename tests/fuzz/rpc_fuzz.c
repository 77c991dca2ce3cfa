/* SPDX-License-Identifier: BSD-3-Clause */

/* What gRPC puts around messages, and texts of the command line and of headers: lengths stay within the bytes, what is
 * read is what was written, and what is shown is printable. */

#include "ft/rpc/wire.h"
#include "fuzz.h"

static void check_message(const uint8_t *bytes, size_t n)
{
    const uint8_t *message;
    size_t n_message, sent = 0;
    if (!rpc_message(bytes, n, &message, &n_message)) return;
    FUZZ_CHECK(message == bytes + RPC_PREFIX && n_message == n - RPC_PREFIX);
    for (size_t at = 0; at < n;) {
        uint8_t out[64];
        const size_t got = rpc_message_give(message, n_message, &sent, out, 1 + at % sizeof out);
        FUZZ_CHECK(got > 0 && got <= sizeof out && memcmp(out, bytes + at, got) == 0);
        at += got;
        FUZZ_CHECK(sent == at);
    }
}

static void check_texts(const char *text, size_t n)
{
    char host[RPC_HOST], port[RPC_PORT], encoded[300], written[RPC_TIMEOUT_TEXT];
    uint64_t ns, again;
    if (rpc_address_split(text, n, host, port)) FUZZ_CHECK(strlen(host) + strlen(port) < n && strlen(port) > 0);
    if (rpc_timeout_read(text, n, &ns)) {
        rpc_timeout_write(ns, written);
        FUZZ_CHECK(rpc_timeout_read(written, strlen(written), &again) && (again >= ns || ns > UINT64_MAX / 2));
    }
    rpc_percent_encode(text, encoded, sizeof encoded);
    for (const char *c = encoded; *c; c++) FUZZ_CHECK(*c >= 0x20 && *c < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char *text = malloc(n + 1);
    if (!text) abort();
    memcpy(text, bytes, n);
    text[n] = '\0';
    check_message(bytes, n);
    check_texts(text, strlen(text));
    free(text);
    return 0;
}
