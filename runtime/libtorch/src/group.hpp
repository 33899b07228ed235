// The group of processes that train a model together.
#pragma once

#include <cstddef>
#include <cstdint>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

// Returns the collectives of a CUDA device, or null and the reason in `error`.
using JoinOnDevice = c10d::Backend *(*)(c10d::Store *store, int rank, int size, int64_t timeout_ms, const char **error);

struct Group {
    c10::intrusive_ptr<c10d::Store> store;
    c10::intrusive_ptr<c10d::Backend> backend;
    int size;
};
