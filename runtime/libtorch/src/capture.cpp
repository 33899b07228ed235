// A run of operators on a CUDA device, captured once and replayed. A library of its own, which is opened after libtorch's
// half for CUDA and finds there what it calls: the plug-in itself loads without either.

#include <exception>
#include <string>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAStream.h>

namespace {

struct Capture {
    at::cuda::CUDAGraph graph;
    // The stream that is captured; the default one cannot be.
    c10::cuda::CUDAStream stream;
    c10::cuda::CUDAStream before;
};

thread_local std::string said;

// Null, or what went wrong; the text stays until the next call on this thread.
template <typename Call> const char *told(Call call) {
    try {
        call();
        return nullptr;
    } catch (const std::exception &error) {
        said = error.what();
        return said.c_str();
    }
}

} // namespace

extern "C" {

// From here on this thread computes on the stream to be captured.
const char *flagperf_capture_enter(int device, Capture **capture) {
    return told([&] {
        auto index = static_cast<c10::DeviceIndex>(device);
        auto stream = c10::cuda::getStreamFromPool(false, index);
        *capture = new Capture{at::cuda::CUDAGraph(), stream, c10::cuda::getCurrentCUDAStream(index)};
        c10::cuda::setCurrentCUDAStream(stream);
    });
}

const char *flagperf_capture_begin(Capture *capture) {
    return told([&] { capture->graph.capture_begin(); });
}

const char *flagperf_capture_end(Capture *capture) {
    return told([&] { capture->graph.capture_end(); });
}

// Back to the stream from before.
const char *flagperf_capture_leave(Capture *capture) {
    return told([&] { c10::cuda::setCurrentCUDAStream(capture->before); });
}

// Runs it again, on the current stream.
const char *flagperf_capture_replay(Capture *capture) {
    return told([&] { capture->graph.replay(); });
}

void flagperf_capture_free(Capture *capture) { delete capture; }
}
