/* SPDX-License-Identifier: BSD-3-Clause */

/* A ring of sends: every rank starts a token that goes once around, gathering the rank of each that it passes. Sending
 * to the right and receiving from the left is one call, tutti_sendrecv, which can not deadlock. */

#include "example.h"

#define TAG_TOKEN 7

int main(void)
{
    struct tutti_comm *world = world_create();
    int32_t rank = tutti_comm_rank(world), size = tutti_comm_size(world);
    int32_t right = (rank + 1) % size, left = (rank + size - 1) % size;
    int64_t token = 0, arrived = 0;

    for (int32_t hop = 0; hop < size; hop++) {
        struct tutti_message message;
        token += rank;
        CHECK(tutti_sendrecv(&token, 1, right, TAG_TOKEN, &arrived, 1, left, TAG_TOKEN, TUTTI_INT64, world, NULL,
                             &message, NULL));
        if (message.source != left || message.bytes != sizeof arrived) {
            fprintf(stderr, "rank %d: a token of %zu bytes came from rank %d\n", rank, message.bytes, message.source);
            return 1;
        }
        token = arrived;
    }

    /* After `size` hops each token is home again and has met every rank. */
    int64_t expected = (int64_t)size * (size - 1) / 2;
    printf("rank %d: the token came home with %lld\n", rank, (long long)token);
    tutti_comm_destroy(world);
    return token == expected ? 0 : 1;
}
