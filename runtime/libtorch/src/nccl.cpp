// Joins the NCCL group of a CUDA device. This is a separate library, opened after libtorch's CUDA library, which provides its symbols.

#include <exception>
#include <string>

#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "group.hpp"

extern "C" {

c10d::Backend *flagperf_nccl_join(c10d::Store *store, int rank, int size, int64_t timeout_ms, const char **error) {
    static thread_local std::string last_error;
    try {
        auto options = c10d::ProcessGroupNCCL::Options::create(true);
        options->timeout = std::chrono::milliseconds(timeout_ms);
        auto shared = c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(store);
        return c10::make_intrusive<c10d::ProcessGroupNCCL>(shared, rank, size, options).release();
    } catch (const std::exception &reason) {
        last_error = reason.what();
        *error = last_error.c_str();
        return nullptr;
    }
}
}
