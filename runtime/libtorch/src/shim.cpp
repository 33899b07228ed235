// Functions of libtorch that tch does not bind.

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

extern "C" {

// Starts inference mode on this thread (no autograd, no version counters), until `flagperf_inference_end`.
void *flagperf_inference_begin() { return new c10::InferenceMode(true); }

void flagperf_inference_end(void *mode) { delete static_cast<c10::InferenceMode *>(mode); }

// Lets this thread record operators for gradients, or prevents it. Returns what was set before.
bool flagperf_record(bool enabled) {
    bool before = c10::GradMode::is_enabled();
    c10::GradMode::set_enabled(enabled);
    return before;
}

// Configures devices for the whole process: whether products of fp32 are computed in TF32, as PyTorch does for
// convolutions by default, and that cuDNN benchmarks its algorithms for each new shape and uses the fastest.
void flagperf_prepare_devices(bool tf32) {
    at::globalContext().setAllowTF32CuDNN(tf32);
    at::globalContext().setAllowTF32CuBLAS(tf32);
    at::globalContext().setBenchmarkCuDNN(true);
}

// Allocates zeros in pinned memory, which a device reads directly; null when the allocation fails.
at::Tensor *flagperf_pinned(int64_t bytes) {
    try {
        auto options = at::TensorOptions().dtype(at::kByte).pinned_memory(true);
        return new at::Tensor(at::empty({bytes}, options).zero_());
    } catch (const std::exception &) {
        return nullptr;
    }
}
}
