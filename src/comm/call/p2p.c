/* SPDX-License-Identifier: BSD-3-Clause */
/* Point-to-point calls: requests like the collectives, matched by the engine. */
#include "comm/call/call.h"

enum tutti_status tutti_send(const void *buffer, size_t count, enum tutti_dtype dtype, int32_t dest, int32_t tag,
                             struct tutti_comm *comm, const struct tutti_call_options *options,
                             struct tutti_work **work)
{
    struct tutti_request request = {.type = TUTTI_REQUEST_SEND,
                                    .name = "send",
                                    .send = buffer,
                                    .count = count,
                                    .dtype = dtype,
                                    .dest = dest,
                                    .send_tag = tag,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_recv(void *buffer, size_t count, enum tutti_dtype dtype, int32_t source, int32_t tag,
                             struct tutti_comm *comm, const struct tutti_call_options *options,
                             struct tutti_message *message, struct tutti_work **work)
{
    struct tutti_request request = {.type = TUTTI_REQUEST_RECV,
                                    .name = "recv",
                                    .recv = buffer,
                                    .recv_count = count,
                                    .dtype = dtype,
                                    .source = source,
                                    .recv_tag = tag,
                                    .message = message,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_sendrecv(const void *send, size_t send_count, int32_t dest, int32_t send_tag, void *recv,
                                 size_t recv_count, int32_t source, int32_t recv_tag, enum tutti_dtype dtype,
                                 struct tutti_comm *comm, const struct tutti_call_options *options,
                                 struct tutti_message *message, struct tutti_work **work)
{
    struct tutti_request request = {.type = TUTTI_REQUEST_SENDRECV,
                                    .name = "sendrecv",
                                    .send = send,
                                    .count = send_count,
                                    .dest = dest,
                                    .send_tag = send_tag,
                                    .recv = recv,
                                    .recv_count = recv_count,
                                    .source = source,
                                    .recv_tag = recv_tag,
                                    .dtype = dtype,
                                    .message = message,
                                    .comm = comm,
                                    .work = work};
    return tutti_request_submit(&request, options);
}

enum tutti_status tutti_probe(int32_t source, int32_t tag, struct tutti_comm *comm, struct tutti_message *message)
{
    struct tutti_request request = {.type = TUTTI_REQUEST_RECV,
                                    .name = "probe",
                                    .dtype = TUTTI_UINT8,
                                    .source = source,
                                    .recv_tag = tag,
                                    .comm = comm};
    TUTTI_TRY(tutti_comm_enter(comm, "probe"));
    enum tutti_status status = tutti_request_check(&request);
    struct tutti_message found;
    if (status >= 0) status = tutti_engine_probe(comm->team, source, tag, &found);
    if (status == TUTTI_OK && message) *message = found;
    tutti_comm_leave(comm);
    return status;
}
