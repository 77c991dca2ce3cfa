/* SPDX-License-Identifier: BSD-3-Clause */
/* What gRPC puts around messages. */
#include "ft/rpc/wire.h"

#include "ft/rpc/rpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 8
#define FIRST_CAPACITY 512

void rpc_prefix_write(uint8_t out[RPC_PREFIX], size_t n)
{
    out[0] = 0;
    for (int i = 0; i < 4; i++) out[1 + i] = (uint8_t)(n >> (24 - 8 * i));
}

size_t rpc_message_give(const uint8_t *bytes, size_t n, size_t *sent, uint8_t *out, size_t capacity)
{
    uint8_t prefix[RPC_PREFIX];
    size_t given = 0;

    rpc_prefix_write(prefix, n);
    while (given < capacity && *sent < RPC_PREFIX) out[given++] = prefix[(*sent)++];
    if (given == capacity) return given;
    const size_t at = *sent - RPC_PREFIX, left = n - at < capacity - given ? n - at : capacity - given;
    memcpy(out + given, bytes + at, left);
    *sent += left;
    return given + left;
}

bool rpc_address_split(const char *text, size_t n, char host[RPC_HOST], char port[RPC_PORT])
{
    size_t colon = n;

    while (colon > 0 && text[colon - 1] != ':') colon--;
    const size_t n_port = n - colon, digits = strspn(text + colon, "0123456789");
    if (colon == 0 || n_port == 0 || n_port >= RPC_PORT || digits < n_port) return false;
    if (strtoul(text + colon, NULL, 10) > UINT16_MAX) return false; /* what follows the digits ends the number */
    size_t n_host = colon - 1;
    const bool framed = n_host > 1 && text[0] == '[' && text[n_host - 1] == ']';
    if (framed) n_host -= 2;
    if (n_host >= RPC_HOST) return false;
    memcpy(host, text + (framed ? 1 : 0), n_host);
    host[n_host] = '\0';
    memcpy(port, text + colon, n_port);
    port[n_port] = '\0';
    return true;
}

bool tutti_rpc_is_here(const char *address)
{
    return (strncmp(address, "127.", 4) == 0 && strspn(address, "0123456789.") == strcspn(address, ":")) ||
           strncmp(address, "localhost:", 10) == 0 || strncmp(address, "[::1]:", 6) == 0;
}

bool rpc_message_length(const uint8_t *bytes, size_t n, size_t *n_message)
{
    size_t length = 0;

    if (n < RPC_PREFIX) return false;
    for (int i = 1; i < RPC_PREFIX; i++) length = length << 8 | bytes[i];
    *n_message = length;
    return length <= n - RPC_PREFIX;
}

bool rpc_message(const uint8_t *bytes, size_t n, const uint8_t **message, size_t *n_message)
{
    size_t length;

    if (!rpc_message_length(bytes, n, &length) || bytes[0] != 0 || length != n - RPC_PREFIX) return false;
    *message = bytes + RPC_PREFIX;
    *n_message = length;
    return true;
}

const char *rpc_bytes_add(struct rpc_bytes *bytes, const uint8_t *more, size_t n, size_t most)
{
    if (n > most - bytes->n) return "the message is too long";
    if (bytes->n + n > bytes->capacity) {
        const size_t capacity =
            bytes->n + n > 2 * bytes->capacity ? bytes->n + n + FIRST_CAPACITY : 2 * bytes->capacity;
        uint8_t *at = tutti_alloc(capacity);
        if (!at) return "out of memory";
        if (bytes->n > 0) memcpy(at, bytes->at, bytes->n);
        tutti_free(bytes->at);
        bytes->at = at;
        bytes->capacity = capacity;
    }
    if (n > 0) memcpy(bytes->at + bytes->n, more, n);
    bytes->n += n;
    return NULL;
}

void rpc_bytes_free(struct rpc_bytes *bytes)
{
    tutti_free(bytes->at);
    *bytes = (struct rpc_bytes){0};
}

static const struct {
    char letter;
    uint64_t ns;
} units[] = {{'n', 1},
             {'u', 1000},
             {'m', TUTTI_NS_PER_MS},
             {'S', TUTTI_NS_PER_S},
             {'M', 60 * TUTTI_NS_PER_S},
             {'H', 3600 * TUTTI_NS_PER_S}};

bool rpc_timeout_read(const char *text, size_t n, uint64_t *ns)
{
    uint64_t value = 0;

    if (n < 2 || n > MAX_DIGITS + 1) return false;
    for (size_t i = 0; i + 1 < n; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = 10 * value + (uint64_t)(text[i] - '0');
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(units); i++) {
        if (units[i].letter != text[n - 1]) continue;
        *ns = tutti_ns(value, units[i].ns);
        return true;
    }
    return false;
}

void rpc_timeout_write(uint64_t ns, char out[RPC_TIMEOUT_TEXT])
{
    size_t unit = 0;
    uint64_t value = ns;

    while (value > 99999999 && unit + 1 < TUTTI_ARRAY_LEN(units))
        unit++, value = ns / units[unit].ns + (ns % units[unit].ns != 0);
    snprintf(out, RPC_TIMEOUT_TEXT, "%" PRIu64 "%c", value > 99999999 ? (uint64_t)99999999 : value, units[unit].letter);
}

void rpc_percent_encode(const char *text, char *out, size_t capacity)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;

    for (; *text && n + 4 <= capacity; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c >= ' ' && c <= '~' && c != '%') {
            out[n++] = (char)c;
            continue;
        }
        out[n++] = '%', out[n++] = digits[c >> 4], out[n++] = digits[c & 15];
    }
    out[n < capacity ? n : capacity - 1] = '\0';
}

/* ---- bytes that several calls may send ---- */
struct tutti_rpc_body *tutti_rpc_body_new(size_t n)
{
    struct tutti_rpc_body *body = tutti_alloc(sizeof(*body) + n);

    if (body) body->refs = 1, body->n = n;
    return body;
}

void tutti_rpc_body_give(struct tutti_rpc_body *body)
{
    if (body && --body->refs == 0) tutti_free(body);
}
