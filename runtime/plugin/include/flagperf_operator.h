/// The C interface between flagperf and an operator that a vendor brings: a shared library that exports
/// `flagperf_operator_output` and `flagperf_operator_run`. src/operator.rs of the crate flagperf-plugin has the same types.

#ifndef FLAGPERF_OPERATOR_H
#define FLAGPERF_OPERATOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The values of ONNX's TensorProto.DataType that an operator is likely to name. Others may occur.
enum {
    FLAGPERF_FLOAT = 1,
    FLAGPERF_INT32 = 6,
    FLAGPERF_INT64 = 7,
    FLAGPERF_BOOL = 9,
    FLAGPERF_FLOAT16 = 10,
    FLAGPERF_DOUBLE = 11,
    FLAGPERF_BFLOAT16 = 16
};

/// The most dimensions of a tensor.
enum { FLAGPERF_RANK_MAX = 16 };

/// A contiguous tensor in row-major order.
///
/// `data` points to memory of the device that the library was built for, aligned to its element and to nothing more.
/// It may be NULL if the tensor has no elements. An optional input or output that is omitted has `data` NULL and
/// `rank` -1; one that comes after the last argument is omitted as well. Outputs overlap neither inputs nor each
/// other.
typedef struct {
    void *data;
    const int64_t *shape; ///< `rank` sizes, none of them negative
    int32_t rank;
    int32_t element_type; ///< a TensorProto.DataType
} FlagperfTensor;

/// An attribute of the node. `integer` is set if ONNX gives it an integer, `number` if it gives it a float.
typedef struct {
    const char *name;
    int64_t integer;
    double number;
} FlagperfAttribute;

/// The shape and type of an output.
typedef struct {
    int64_t shape[FLAGPERF_RANK_MAX];
    int32_t rank;
    int32_t element_type;
} FlagperfOutput;

/// Writes the shape and type of output `place`, from 0, for these inputs, whose `data` is not read.
///
/// Returns NULL, or the reason why the operator does not accept the inputs or attributes, as static text.
const char *flagperf_operator_output(const FlagperfTensor *inputs, int32_t input_count,
                                     const FlagperfAttribute *attributes, int32_t attribute_count, int32_t place,
                                     FlagperfOutput *output);

/// Enqueues the operator on `stream`, a cudaStream_t in a CUDA build; a CPU build ignores it and computes at once.
///
/// The caller owns every buffer, and the outputs have the shapes and types that `flagperf_operator_output` returned.
/// It has checked nothing else: the operator checks what it relies on.
///
/// Returns NULL, or the reason why the operator cannot run, as static text that the caller must not free. After a
/// reason nothing was enqueued. The function neither allocates device memory nor synchronises, so that the stream may
/// be capturing a graph. Several threads may call it at the same time. The arrays of arguments may be freed once it
/// returns; the buffers must live until the stream has passed the work.
const char *flagperf_operator_run(const FlagperfTensor *inputs, int32_t input_count, FlagperfTensor *outputs,
                                  int32_t output_count, const FlagperfAttribute *attributes, int32_t attribute_count,
                                  void *stream);

#ifdef __cplusplus
}
#endif

#endif
