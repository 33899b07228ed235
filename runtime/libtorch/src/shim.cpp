// Functions of libtorch that tch does not bind.

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>

extern "C" {

// Starts inference mode on this thread (no autograd, no version counters), until `flagperf_inference_end`.
void *flagperf_inference_begin() { return new c10::InferenceMode(true); }

void flagperf_inference_end(void *mode) { delete static_cast<c10::InferenceMode *>(mode); }

// Configures devices for the whole process: disables TF32, which PyTorch uses for fp32 convolutions by default, and
// makes cuDNN benchmark its algorithms for each new shape and use the fastest.
void flagperf_prepare_devices() {
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setAllowTF32CuBLAS(false);
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
