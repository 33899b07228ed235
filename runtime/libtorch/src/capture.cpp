// Captures a run of operators on a CUDA device as a graph, and replays it; and functions that libtorch compiles for the device when
// they are first used. This is a separate library, opened after
// libtorch's CUDA library, which provides its symbols: the plug-in itself loads without either.

#include <map>
#include <mutex>
#include <string>

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/jiterator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "catch_error.hpp"

namespace {

struct Capture {
    at::cuda::CUDAGraph graph;
    c10::DeviceIndex device;
    // Whether it uses what captures on the device share.
    bool shares;
    // The captured stream; the default stream cannot be captured.
    c10::cuda::CUDAStream stream;
    c10::cuda::CUDAStream before;
    // The memory of the captured run.
    at::cuda::MempoolId_t pool;
};

// The stream and the memory of all captured runs of a device. They are replayed on one stream, and what a run computes is copied before
// the next one begins, so that runs may use the same memory: the allocator reuses what was freed on the same stream.
struct Shared {
    c10::cuda::CUDAStream stream;
    at::cuda::MempoolId_t pool;
    // How many captures use the memory. The allocator gives it up with the last one, and refuses it to another one.
    size_t captures;
};

std::mutex shared_mutex;
std::map<c10::DeviceIndex, Shared> shared_of_devices;

// Returns what captures on a device share, for a further one.
Shared share(c10::DeviceIndex index) {
    std::lock_guard<std::mutex> lock(shared_mutex);
    auto found = shared_of_devices.find(index);
    if (found == shared_of_devices.end()) {
        auto made = Shared{c10::cuda::getStreamFromPool(false, index), at::cuda::graph_pool_handle(), 0};
        found = shared_of_devices.emplace(index, made).first;
    } else if (found->second.captures == 0) {
        found->second.pool = at::cuda::graph_pool_handle();
    }
    found->second.captures++;
    return found->second;
}

// Computes in f32, and rounds once.
const std::string rotate = R"(
template <typename T> void rotate(T first, T second, T cosine, T sine, T& real, T& imaginary) {
    float a = static_cast<float>(first), b = static_cast<float>(second);
    float c = static_cast<float>(cosine), s = static_cast<float>(sine);
    real = static_cast<T>(a * c - b * s);
    imaginary = static_cast<T>(b * c + a * s);
}
)";

} // namespace

extern "C" {

// Writes the result of the function `name`, whose source is `text`, for each element of `count` tensors, which broadcast.
const char *flagperf_elementwise(const char *name, const char *text, const at::Tensor *const *inputs, size_t count,
                                 at::Tensor **out) {
    return catch_error([&] {
        c10::SmallVector<at::Tensor> tensors;
        for (size_t i = 0; i < count; i++) {
            tensors.push_back(*inputs[i]);
        }
        *out = new at::Tensor(at::cuda::CompileAndLaunchKernel(text, name, 1, tensors, {}, false)[0]);
    });
}

// Writes x with pairs of elements of the last dimension rotated, as `flagperf_rotate` does.
const char *flagperf_rotate_on_device(const at::Tensor *x, const at::Tensor *cos, const at::Tensor *sin, bool interleaved,
                                      at::Tensor **out) {
    return catch_error([&] {
        auto half = x->size(-1) / 2;
        auto part = [&](int64_t index) {
            return interleaved ? x->slice(-1, index, x->size(-1), 2) : x->narrow(-1, index * half, half);
        };
        auto parts = at::cuda::CompileAndLaunchKernel(rotate, "rotate", 2, {part(0), part(1), *cos, *sin}, {}, true);
        *out = new at::Tensor(interleaved ? at::stack({parts[0], parts[1]}, -1).flatten(-2)
                                          : at::cat({parts[0], parts[1]}, -1));
    });
}

// Creates a capture, and makes its stream the current stream of this thread: that of all captures, or one of its own.
const char *flagperf_capture_enter(int device, bool is_own, Capture **capture) {
    return catch_error([&] {
        auto index = static_cast<c10::DeviceIndex>(device);
        auto before = c10::cuda::getCurrentCUDAStream(index);
        // Nothing is captured on a stream of its own.
        auto own = [&] { return Shared{c10::cuda::getStreamFromPool(false, index), {0, 0}, 0}; };
        auto [stream, pool, captures] = is_own ? own() : share(index);
        *capture = new Capture{at::cuda::CUDAGraph(), index, !is_own, stream, before, pool};
        c10::cuda::setCurrentCUDAStream(stream);
    });
}

// Makes the stream of a capture the current stream of this thread again, until `flagperf_capture_leave`.
const char *flagperf_capture_reenter(int device, Capture *capture) {
    return catch_error([&] {
        capture->before = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device));
        c10::cuda::setCurrentCUDAStream(capture->stream);
    });
}

const char *flagperf_capture_begin(Capture *capture) {
    // What the runs before left in the cache cannot be used by a captured run, which has memory of its own.
    return catch_error([&] {
        c10::cuda::CUDACachingAllocator::emptyCache();
        capture->graph.capture_begin(capture->pool);
    });
}

const char *flagperf_capture_end(Capture *capture) {
    return catch_error([&] { capture->graph.capture_end(); });
}

// Restores the previous stream of this thread.
const char *flagperf_capture_leave(Capture *capture) {
    return catch_error([&] { c10::cuda::setCurrentCUDAStream(capture->before); });
}

// Replays the captured run on the current stream.
const char *flagperf_capture_replay(Capture *capture) {
    return catch_error([&] { capture->graph.replay(); });
}

// Writes the current stream of this thread on a device, a cudaStream_t.
const char *flagperf_current_stream(int device, void **stream) {
    return catch_error([&] { *stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream(); });
}

void flagperf_capture_free(Capture *capture) {
    auto index = capture->device;
    auto shares = capture->shares;
    delete capture;
    if (shares) {
        std::lock_guard<std::mutex> lock(shared_mutex);
        shared_of_devices.at(index).captures--;
    }
}
}
