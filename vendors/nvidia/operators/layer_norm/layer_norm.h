/// What the CUDA build and the CPU build of `LayerNorm` share: the reading and checking of the arguments.
///
/// Inputs: X, Scale (optional), Bias (optional), Residual (optional). Scale and Bias have one element for each column
/// and X's element type or f32; Residual has X's shape and type. Output 0 is Y, of X's shape and of the type that the
/// attribute `to` names, by default X's. Output 1 (optional) is the sum X + Residual, of X's shape and type.
///
/// The sum is rounded to X's element type before it is normalised, whether or not output 1 is wanted. The fused
/// operator thus gives what an Add followed by a LayerNorm gives.

#ifndef FLAGPERF_LAYER_NORM_H
#define FLAGPERF_LAYER_NORM_H

#include <cstring>
#include <initializer_list>

#include "flagperf_operator.h"

namespace layer_norm {

/// A call whose arguments were found valid. Pointers to omitted tensors are null.
struct Call {
    const void *x, *scale, *bias, *residual;
    void *y, *sum;
    int32_t x_type, scale_type, bias_type, y_type;
    int64_t rows, columns;
    double epsilon;
    bool plain;
};

/// The attributes, with their defaults.
struct Options {
    int64_t axis = -1, to = 0;
    double epsilon = 1e-5;
    bool plain = false;

    /// Returns why the attributes are not those of a LayerNorm, or null.
    const char *read(const FlagperfAttribute *attributes, int32_t count)
    {
        for (const FlagperfAttribute *attribute = attributes; attribute != attributes + count; ++attribute) {
            if (std::strcmp(attribute->name, "axis") == 0)
                axis = attribute->integer;
            else if (std::strcmp(attribute->name, "epsilon") == 0)
                epsilon = attribute->number;
            else if (std::strcmp(attribute->name, "to") == 0)
                to = attribute->integer;
            else if (std::strcmp(attribute->name, "plain") == 0)
                plain = attribute->integer != 0;
            else
                return "LayerNorm has no attributes but axis, epsilon, to and plain";
        }
        return epsilon >= 0 ? nullptr : "the attribute epsilon is negative or not a number";
    }
};

inline bool is_supported(int32_t element_type)
{
    return element_type == FLAGPERF_FLOAT || element_type == FLAGPERF_FLOAT16 || element_type == FLAGPERF_BFLOAT16;
}

inline bool same_shape(const FlagperfTensor &a, const FlagperfTensor &b)
{
    if (a.rank != b.rank)
        return false;
    for (int32_t i = 0; i < a.rank; ++i)
        if (a.shape[i] != b.shape[i])
            return false;
    return true;
}

inline int64_t product(const int64_t *first, const int64_t *last)
{
    int64_t result = 1;
    for (; first != last; ++first)
        result *= *first;
    return result;
}

/// Fills `call`, or returns why the arguments are not those of a LayerNorm.
inline const char *read_call(const FlagperfTensor *inputs, int32_t input_count, const FlagperfTensor *outputs,
                             int32_t output_count, const FlagperfAttribute *attributes, int32_t attribute_count,
                             Call &call)
{
    static const int64_t no_shape = 0;
    const FlagperfTensor omitted = {nullptr, &no_shape, -1, 0};
    const auto input = [&](int32_t i) { return i < input_count ? inputs[i] : omitted; };
    const auto output = [&](int32_t i) { return i < output_count ? outputs[i] : omitted; };
    const FlagperfTensor x = input(0), scale = input(1), bias = input(2), residual = input(3);
    const FlagperfTensor y = output(0), sum = output(1);
    if (input_count > 4 || output_count > 2)
        return "LayerNorm has at most 4 inputs and 2 outputs";
    if (x.rank < 0 || y.rank < 0)
        return "LayerNorm needs its input X and its output Y";

    Options options;
    if (const char *reason = options.read(attributes, attribute_count))
        return reason;
    call.epsilon = options.epsilon;
    call.plain = options.plain;
    int64_t axis = options.axis;
    if (axis < -x.rank || axis >= x.rank)
        return "the attribute axis is outside the rank of X";
    axis += axis < 0 ? x.rank : 0;
    call.rows = product(x.shape, x.shape + axis);
    call.columns = product(x.shape + axis, x.shape + x.rank);
    if (call.columns == 0)
        return "X has rows without elements, whose mean is undefined";

    if (!is_supported(x.element_type) || !is_supported(y.element_type))
        return "X and Y must be f32, f16 or bf16";
    if (!same_shape(x, y))
        return "Y must have the shape of X";
    for (const FlagperfTensor &parameter : {scale, bias}) {
        if (parameter.rank < 0)
            continue;
        if (parameter.element_type != x.element_type && parameter.element_type != FLAGPERF_FLOAT)
            return "Scale and Bias must have X's element type or be f32";
        if (product(parameter.shape, parameter.shape + parameter.rank) != call.columns)
            return "Scale and Bias must have one element for each normalised element of X";
    }
    if (residual.rank >= 0 && (residual.element_type != x.element_type || !same_shape(x, residual)))
        return "Residual must have the shape and the element type of X";
    if (sum.rank >= 0 && residual.rank < 0)
        return "output 1 is the sum X + Residual, and there is no Residual";
    if (sum.rank >= 0 && (sum.element_type != x.element_type || !same_shape(x, sum)))
        return "output 1 must have the shape and the element type of X";
    for (const FlagperfTensor &tensor : {x, y, scale, bias, residual, sum})
        if (tensor.rank >= 0 && tensor.data == nullptr && call.rows != 0)
            return "a tensor that has elements has no data";

    call.x = x.data;
    call.scale = scale.data;
    call.bias = bias.data;
    call.residual = residual.data;
    call.y = y.data;
    call.sum = sum.data;
    call.x_type = x.element_type;
    call.scale_type = scale.element_type;
    call.bias_type = bias.element_type;
    call.y_type = y.element_type;
    return nullptr;
}

} // namespace layer_norm

/// Defined here because each library is built from one source, which includes this file.
extern "C" const char *flagperf_operator_output(const FlagperfTensor *inputs, int32_t input_count,
                                                const FlagperfAttribute *attributes, int32_t attribute_count,
                                                int32_t place, FlagperfOutput *output)
{
    layer_norm::Options options;
    if (const char *reason = options.read(attributes, attribute_count))
        return reason;
    if (input_count < 1 || inputs[0].rank < 0 || inputs[0].rank > FLAGPERF_RANK_MAX)
        return "LayerNorm needs its input X, of at most 16 dimensions";
    for (int32_t i = 0; i < inputs[0].rank; ++i)
        output->shape[i] = inputs[0].shape[i];
    output->rank = inputs[0].rank;
    output->element_type = place == 0 && options.to != 0 ? int32_t(options.to) : inputs[0].element_type;
    return nullptr;
}

#endif
