// The operator @NAME@ of @VENDOR@: the larger of 0 and the sum of two tensors. Replace what it computes here, and `forms` in
// operator.yaml, which says the same in standard operators. Compiled by nvcc it runs on the device, by c++ on the processor.

#include "flagperf_operator.h"

#ifdef __CUDACC__
#define DEVICE __device__
#else
#define DEVICE
#endif

// A NaN stays a NaN.
DEVICE static float compute(float a, float b) {
    float sum = a + b;
    return sum < 0 ? 0 : sum;
}

#ifdef __CUDACC__
__global__ static void kernel(const float *a, const float *b, float *y, int64_t count) {
    int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < count)
        y[i] = compute(a[i], b[i]);
}
#endif

extern "C" const char *flagperf_operator_output(const FlagperfTensor *inputs, int32_t input_count,
                                                const FlagperfAttribute *, int32_t, int32_t, FlagperfOutput *output) {
    if (input_count != 2)
        return "@NAME@ has two inputs";
    if (inputs[0].element_type != FLAGPERF_FLOAT || inputs[1].element_type != FLAGPERF_FLOAT)
        return "the inputs must be f32";
    if (inputs[0].rank != inputs[1].rank || inputs[0].rank > FLAGPERF_RANK_MAX)
        return "the inputs must have the same shape";
    for (int32_t i = 0; i < inputs[0].rank; ++i) {
        if (inputs[0].shape[i] != inputs[1].shape[i])
            return "the inputs must have the same shape";
        output->shape[i] = inputs[0].shape[i];
    }
    output->rank = inputs[0].rank;
    output->element_type = FLAGPERF_FLOAT;
    return nullptr;
}

extern "C" const char *flagperf_operator_run(const FlagperfTensor *inputs, int32_t, FlagperfTensor *outputs, int32_t,
                                             const FlagperfAttribute *, int32_t, void *stream) {
    int64_t count = 1;
    for (int32_t i = 0; i < outputs[0].rank; ++i)
        count *= outputs[0].shape[i];
    if (count == 0)
        return nullptr;
    auto a = static_cast<const float *>(inputs[0].data), b = static_cast<const float *>(inputs[1].data);
    auto y = static_cast<float *>(outputs[0].data);
#ifdef __CUDACC__
    kernel<<<unsigned((count + 255) / 256), 256, 0, static_cast<cudaStream_t>(stream)>>>(a, b, y, count);
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
#else
    (void)stream;
    for (int64_t i = 0; i < count; ++i)
        y[i] = compute(a[i], b[i]);
    return nullptr;
#endif
}
