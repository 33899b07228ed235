// Functions of libtorch that tch does not bind.

#include <exception>
#include <string>
#include <vector>

#include <malloc.h>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

namespace {

thread_local std::string last_error;

// Returns a new tensor that the caller owns, or null; `last_error` then has the reason.
template <typename Compute> at::Tensor *own(Compute compute) {
    try {
        return new at::Tensor(compute());
    } catch (const std::exception &error) {
        last_error = error.what();
        return nullptr;
    }
}

std::vector<at::Tensor> list(const at::Tensor *const *tensors, size_t count) {
    std::vector<at::Tensor> list;
    for (size_t i = 0; i < count; i++) {
        list.push_back(*tensors[i]);
    }
    return list;
}

} // namespace

extern "C" {

// The reason why the last function on this thread returned null.
const char *flagperf_last_error() { return last_error.c_str(); }

// a + b * factor, in one pass over memory.
at::Tensor *flagperf_add_scaled(const at::Tensor *a, const at::Tensor *b, double factor) {
    return own([&] { return at::add(*a, *b, factor); });
}

// a + factor * b * c, in one pass over memory.
at::Tensor *flagperf_multiply_add(const at::Tensor *a, const at::Tensor *b, const at::Tensor *c, double factor) {
    return own([&] { return at::addcmul(*a, *b, *c, factor); });
}

// Rotates pairs of elements of the last dimension by the angles with these cosines and sines: adjacent elements if `interleaved` is
// true, else those half the width apart.
at::Tensor *flagperf_rotate(const at::Tensor *x, const at::Tensor *cos, const at::Tensor *sin, bool interleaved) {
    return own([&] {
        auto half = x->size(-1) / 2;
        auto part = [&](const at::Tensor &whole, int64_t index) {
            return interleaved ? whole.slice(-1, index, whole.size(-1), 2) : whole.narrow(-1, index * half, half);
        };
        if (x->requires_grad()) {
            auto first = part(*x, 0), second = part(*x, 1);
            auto real = at::sub(at::mul(first, *cos), at::mul(second, *sin));
            auto imaginary = at::add(at::mul(first, *sin), at::mul(second, *cos));
            return interleaved ? at::stack({real, imaginary}, -1).flatten(-2) : at::cat({real, imaginary}, -1);
        }
        auto rotated = at::empty_like(*x);
        auto real = part(rotated, 0), imaginary = part(rotated, 1);
        auto first = part(*x, 0), second = part(*x, 1);
        at::mul_out(real, first, *cos).addcmul_(second, *sin, -1);
        at::mul_out(imaginary, second, *cos).addcmul_(first, *sin);
        return rotated;
    });
}

// The root of the sum of the squares of all elements of `count` tensors.
at::Tensor *flagperf_norm(const at::Tensor *const *tensors, size_t count) {
    return own([&] { return at::linalg_vector_norm(at::stack(at::_foreach_norm(list(tensors, count), 2))); });
}

// Copies the elements of each of `count` tensors to another one, all of them together. Returns null, or the reason of a failure,
// which is valid until the next call on this thread.
const char *flagperf_copy_all(const at::Tensor *const *to, const at::Tensor *const *from, size_t count) {
    try {
        at::_foreach_copy_(list(to, count), list(from, count), true);
        return nullptr;
    } catch (const std::exception &error) {
        last_error = error.what();
        return last_error.c_str();
    }
}

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

// Makes the C library keep the memory that tensors free, for the whole process. It would return large blocks to the system, which
// clears them before it lends them again: that takes longer than many operators.
void flagperf_keep_freed_memory() {
#ifdef __GLIBC__
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

// Allocates zeros in pinned memory, which a device reads directly; null when the allocation fails.
at::Tensor *flagperf_pinned(int64_t bytes) {
    return own([&] {
        auto options = at::TensorOptions().dtype(at::kByte).pinned_memory(true);
        return at::empty({bytes}, options).zero_();
    });
}
}
