// Joins the NCCL group of a CUDA device. This is a separate library, opened after libtorch's CUDA library, which provides its symbols.

#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "catch_error.hpp"
#include "group.hpp"

extern "C" {

c10d::Backend *flagperf_nccl_join(c10d::Store *store, int rank, int size, int64_t timeout_ms, const char **error) {
    c10d::Backend *joined = nullptr;
    *error = catch_error([&] {
        auto options = c10d::ProcessGroupNCCL::Options::create(true);
        options->timeout = std::chrono::milliseconds(timeout_ms);
        auto shared = c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(store);
        joined = c10::make_intrusive<c10d::ProcessGroupNCCL>(shared, rank, size, options).release();
    });
    return joined;
}
}
