/* SPDX-License-Identifier: BSD-3-Clause */

/* send and recv: matched by source and tag in the order of the calls. */

#include "backend/backend.hpp"
#include "base/errors.hpp"

namespace tutti_torch
{

using c10d::OpType;

static Call message_call(OpType type, const char *name, Tensors &tensors, int peer, int tag)
{
    Call call{};
    call.type = type;
    call.name = name;
    call.peer = peer;
    check_dense(name, "tensor", only(name, "", tensors));
    TUTTI_CHECK_VALUE(tag >= 0, name, ": tag ", tag, " is negative");
    return call;
}

static Call send_call(Tensors &tensors, int dest, int tag)
{
    Call call = message_call(OpType::SEND, "send", tensors, dest, tag);
    call.inputs = {tensors[0]};
    call.results = {tensors[0]};
    call.launch = [wire = wire_of(tensors[0]), dest, tag](const Start &s) {
        return tutti_send(s.in[0], wire.count, wire.dtype, dest, tag, s.comm, s.options, s.work);
    };
    return call;
}

Backend::WorkPtr Backend::send(Tensors &tensors, int dest, int tag)
{
    return submit(send_call(tensors, dest, tag));
}

static Call receive_call(OpType type, const char *name, Tensors &tensors, int source, int tag)
{
    Call call = message_call(type, name, tensors, source, tag);
    call.outputs = {tensors[0]};
    call.message = std::make_shared<tutti_message>(tutti_message{source, tag, 0});
    call.launch = [wire = wire_of(tensors[0]), source, tag](const Start &s) {
        return tutti_recv(s.out[0], wire.count, wire.dtype, source, tag, s.comm, s.options, s.message, s.work);
    };
    return call;
}

Backend::WorkPtr Backend::recv(Tensors &tensors, int source, int tag)
{
    TUTTI_CHECK_VALUE(source >= 0, "recv: source ", source, " is not a rank");
    return submit(receive_call(OpType::RECV, "recv", tensors, source, tag));
}

Call Backend::message(bool sends, Tensors &tensors, int peer, int tag, bool async, milliseconds timeout)
{
    Call call = sends ? send_call(tensors, peer, tag) : receive_call(OpType::RECV, "recv", tensors, peer, tag);
    call.async = async;
    call.timeout = timeout;
    return call;
}

Backend::WorkPtr Backend::recvAnysource(Tensors &tensors, int tag)
{
    return submit(receive_call(OpType::RECVANYSOURCE, "recv_any_source", tensors, TUTTI_ANY_SOURCE, tag));
}

} // namespace tutti_torch
