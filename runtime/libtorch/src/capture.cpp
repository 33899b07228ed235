// Captures a run of operators on a CUDA device as a graph, and replays it. This is a separate library, opened after
// libtorch's CUDA library, which provides its symbols: the plug-in itself loads without either.

#include <exception>
#include <string>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

namespace {

struct Capture {
    at::cuda::CUDAGraph graph;
    // The captured stream; the default stream cannot be captured.
    c10::cuda::CUDAStream stream;
    c10::cuda::CUDAStream before;
};

thread_local std::string last_error;

// Runs `call`, and returns null or the error message, which is valid until the next call on this thread.
template <typename Call> const char *catch_error(Call call) {
    try {
        call();
        return nullptr;
    } catch (const std::exception &error) {
        last_error = error.what();
        return last_error.c_str();
    }
}

} // namespace

extern "C" {

// Creates a capture, and makes its stream the current stream of this thread.
const char *flagperf_capture_enter(int device, Capture **capture) {
    return catch_error([&] {
        auto index = static_cast<c10::DeviceIndex>(device);
        auto stream = c10::cuda::getStreamFromPool(false, index);
        *capture = new Capture{at::cuda::CUDAGraph(), stream, c10::cuda::getCurrentCUDAStream(index)};
        c10::cuda::setCurrentCUDAStream(stream);
    });
}

const char *flagperf_capture_begin(Capture *capture) {
    // What the runs before left in the cache cannot be used by a captured run, which has memory of its own.
    return catch_error([&] {
        c10::cuda::CUDACachingAllocator::emptyCache();
        capture->graph.capture_begin();
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

void flagperf_capture_free(Capture *capture) { delete capture; }
}
