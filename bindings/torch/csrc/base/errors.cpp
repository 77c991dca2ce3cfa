/* SPDX-License-Identifier: BSD-3-Clause */

/* Exceptions. */

#include "base/errors.hpp"

#include <cctype>
#include <string>

namespace tutti_torch
{

static std::string capital(std::string text)
{
    text[0] = char(std::toupper(static_cast<unsigned char>(text[0])));
    return text;
}

void raise(const tutti_error &error)
{
    switch (error.status) {
    case TUTTI_ERR_ARGUMENT:
    case TUTTI_ERR_UNSUPPORTED:
        throw Refusal({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, error.text);
    case TUTTI_ERR_TIMEOUT: /* the words that PyTorch's tests, and people, look for */
        C10_THROW_ERROR(DistBackendError, c10::str("tutti: Timed out waiting: ", error.text));
    case TUTTI_ERR_PEER_DEAD:
    case TUTTI_ERR_PEER_LEFT: /* "Connection closed by peer" is what gloo says, and torchft's tests look for */
        C10_THROW_ERROR(DistBackendError, capital(error.text));
    case TUTTI_ERR_MEMORY:
        C10_THROW_ERROR(OutOfMemoryError, std::string(error.text));
    default:
        C10_THROW_ERROR(DistBackendError, std::string(error.text));
    }
}

std::exception_ptr exception_of(const tutti_error &error)
{
    try {
        raise(error);
    } catch (...) {
        return std::current_exception();
    }
}

} // namespace tutti_torch
