/* SPDX-License-Identifier: BSD-3-Clause */

/* CRC-32C (Castagnoli's polynomial) of states on their way: eight bytes an instruction where the CPU has one, else by
 * tables. zlib's takes four times as long. */

#include "python/python.hpp"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tutti_torch
{
namespace
{

constexpr uint32_t polynomial = 0x82f63b78; /* with the least bit first */
using Tables = std::array<std::array<uint32_t, 256>, 8>;

/* What a byte does to the CRC, with k bytes of zero behind it. */
Tables make_tables()
{
    Tables tables{};
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? polynomial : 0);
        tables[0][byte] = crc;
    }
    for (size_t k = 1; k < tables.size(); k++)
        for (size_t byte = 0; byte < 256; byte++) {
            const uint32_t before = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][before & 255];
        }
    return tables;
}

uint32_t by_tables(uint32_t crc, const uint8_t *at, size_t n)
{
    static const Tables tables = make_tables();

    for (; n >= 8; n -= 8, at += 8) {
        uint8_t bytes[8];
        memcpy(bytes, at, sizeof bytes);
        for (int i = 0; i < 4; i++) bytes[i] ^= uint8_t(crc >> 8 * i);
        crc = 0;
        for (size_t i = 0; i < 8; i++) crc ^= tables[7 - i][bytes[i]];
    }
    for (; n > 0; n--, at++) crc = (crc >> 8) ^ tables[0][(crc ^ *at) & 255];
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t crc, const uint8_t *at, size_t n)
{
    uint64_t wide = crc;

    for (; n >= 8; n -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = uint32_t(wide);
    for (; n > 0; n--, at++) crc = _mm_crc32_u8(crc, *at);
    return crc;
}
bool has_instruction()
{
    return __builtin_cpu_supports("sse4.2");
}
#else
constexpr auto by_instruction = by_tables;
constexpr bool has_instruction()
{
    return false;
}
#endif

uint32_t crc32c(const py::buffer &data, uint32_t before, bool tables)
{
    const py::buffer_info info = data.request();
    if (info.itemsize != 1 || info.ndim != 1 || (info.size > 1 && info.strides[0] != 1))
        throw py::value_error("crc32c: data is not bytes in a row");
    const auto *at = static_cast<const uint8_t *>(info.ptr);
    const py::gil_scoped_release release;
    return ~(tables || !has_instruction() ? by_tables : by_instruction)(~before, at, size_t(info.size));
}

} // namespace

void define_crc(py::module_ &module)
{
    module.def("crc32c", &crc32c, py::arg("data"), py::arg("before") = 0, py::arg("tables") = false);
}

} // namespace tutti_torch
