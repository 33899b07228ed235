// The result of a function that may throw, for callers in Rust.
#pragma once

#include <exception>
#include <string>

// Runs `call`, and returns null or the error message, which is valid until the next call on this thread.
template <typename Call> const char *catch_error(Call call) {
    thread_local std::string last_error;
    try {
        call();
        return nullptr;
    } catch (const std::exception &error) {
        last_error = error.what();
        return last_error.c_str();
    }
}
