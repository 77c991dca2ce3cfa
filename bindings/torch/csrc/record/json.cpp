/* SPDX-License-Identifier: BSD-3-Clause */

/* JSON. */

#include "record/json.hpp"

#include <c10/util/Exception.h>

#include <cmath>
#include <cstdio>

namespace tutti_torch
{
namespace
{

class JsonText
{
  public:
    std::string out;

    void put(const c10::IValue &value)
    {
        if (value.isNone()) {
            out += "null";
        } else if (value.isBool()) {
            out += value.toBool() ? "true" : "false";
        } else if (value.isInt()) {
            out += std::to_string(value.toInt());
        } else if (value.isDouble()) {
            number(value.toDouble());
        } else if (value.isString()) {
            text(value.toStringRef());
        } else if (value.isTuple()) {
            items(value.toTupleRef().elements());
        } else if (value.isList()) {
            items(value.toListRef());
        } else {
            TORCH_CHECK(value.isGenericDict(), "no JSON for a ", value.tagKind());
            dict(value.toGenericDict());
        }
    }

  private:
    void text(const std::string &plain)
    {
        out += '"';
        for (const char c : plain) {
            char coded[8];
            std::snprintf(coded, sizeof coded, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
            if (c == '"' || c == '\\') {
                out += '\\';
                out += c;
            } else if (static_cast<unsigned char>(c) < 0x20) {
                out += coded;
            } else {
                out += c;
            }
        }
        out += '"';
    }

    void number(double given)
    {
        char digits[32];
        std::snprintf(digits, sizeof digits, "%.9g", given);
        out += std::isfinite(given) ? digits : "null";
    }

    template <typename Items> void items(const Items &all)
    {
        const char *before = "";
        out += '[';
        for (const auto &item : all) {
            out += before;
            put(item);
            before = ", ";
        }
        out += ']';
    }

    void dict(const c10::Dict<c10::IValue, c10::IValue> &all)
    {
        const char *before = "";
        out += '{';
        for (const auto &item : all) {
            out += before;
            text(item.key().toStringRef());
            out += ": ";
            put(item.value());
            before = ", ";
        }
        out += '}';
    }
};

} // namespace

std::string json_of(const c10::IValue &value)
{
    JsonText json;
    json.put(value);
    return std::move(json.out);
}

} // namespace tutti_torch
