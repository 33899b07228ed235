// What tch lacks of libtorch.

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>

extern "C" {

// No autograd, no versions of tensors, on this thread until it is ended.
void *flagperf_inference_begin() { return new c10::InferenceMode(true); }

void flagperf_inference_end(void *mode) { delete static_cast<c10::InferenceMode *>(mode); }

// How devices compute, for the whole process: f32 is f32 there, too, and not TF32, which PyTorch takes for convolutions
// unless it is told otherwise; of cuDNN's algorithms the one is taken that is fastest for a shape when it is first met.
void flagperf_prepare_devices() {
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setBenchmarkCuDNN(true);
}

// Zeros in memory that a device reads by itself; null when there is none to be had.
at::Tensor *flagperf_pinned(int64_t bytes) {
    try {
        auto options = at::TensorOptions().dtype(at::kByte).pinned_memory(true);
        return new at::Tensor(at::empty({bytes}, options).zero_());
    } catch (const std::exception &) {
        return nullptr;
    }
}
}
