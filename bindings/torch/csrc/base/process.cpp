/* SPDX-License-Identifier: BSD-3-Clause */

/* Forks, signals, the end of the program; exceptions. */

#include "base/process.hpp"

#include <torch/csrc/utils/pybind.h>

#include <cctype>
#include <chrono>
#include <pthread.h>
#include <string>
#include <unistd.h>

namespace tutti_torch
{

namespace
{

std::atomic<uint32_t> forks{0}; /* between the first process and this one */
[[maybe_unused]] const int told_of_forks =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

using std::chrono::steady_clock;
using namespace std::chrono_literals;

std::atomic<uint64_t> interrupts{0};
std::atomic<pid_t> ending{0};                        /* the thread that ends the program */
std::atomic<steady_clock::duration> moment_end{0ns}; /* when patience is lost */

steady_clock::duration now()
{
    return steady_clock::now().time_since_epoch();
}

} // namespace

uint32_t Origin::current()
{
    return forks.load(std::memory_order_relaxed);
}

WithoutGil::WithoutGil() : thread_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil()
{
    if (thread_) PyEval_RestoreThread(static_cast<PyThreadState *>(thread_));
}

void check_signals()
{
    if (gettid() != getpid() || !Py_IsInitialized()) return;
    pybind11::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0) return;
    interrupts++;
    throw pybind11::error_already_set();
}

bool handles_exception()
{
    if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) return false; /* a thread that Python does not know */
    pybind11::gil_scoped_acquire gil;
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_GetExcInfo(&type, &value, &trace);
    bool found = value != nullptr && value != Py_None;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return found;
}

Patience::Patience() : interrupts_(interrupts) {}

void Patience::shorten(bool failing)
{
    failing_ = failing;
    bool together = now() < moment_end.load() + 2s; /* with other groups: one moment for all */
    if ((failing || interrupts != interrupts_) && !together) moment_end = now() + 300ms;
}

const char *Patience::lost() const
{
    const char *why = ending != 0                 ? "its program ends"
                      : interrupts != interrupts_ ? "a wait was interrupted"
                      : failing_                  ? "it handles an exception"
                                                  : nullptr;
    return why && now() < moment_end.load() ? nullptr : why;
}

void begin_end_of_program()
{
    moment_end = now() + 1s;
    ending = gettid();
}

void stay_if_program_ends()
{
    pid_t by = ending.load(std::memory_order_relaxed);
    if (C10_LIKELY(by == 0) || by == gettid()) return;
    for (;;) pause();
}

/* Exceptions. */

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
        throw Refusal({__func__, __FILE__, uint32_t(__LINE__)}, std::string(error.text));
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
