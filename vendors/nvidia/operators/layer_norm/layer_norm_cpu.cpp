/// `LayerNorm` on the CPU, for machines without a GPU. It is written to be right and short, not to be fast.
///
/// Build: `g++ -O2 -std=c++17 -shared -fPIC layer_norm_cpu.cpp -o liblayer_norm_cpu.so`

#include <cmath>
#include <cstdint>
#include <cstring>

#include "layer_norm.h"

namespace {

float from_bits(uint32_t bits)
{
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

uint32_t to_bits(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float half_to_float(uint16_t half)
{
    const uint32_t sign = uint32_t(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    if (exponent == 0) // Zero and subnormal numbers are multiples of 2^-24.
        return std::copysign(float(fraction) * 0x1p-24f, from_bits(sign | 0x3f800000));
    const uint32_t wide = exponent == 0x1f ? 0xff : exponent + 112;
    return from_bits(sign | wide << 23 | fraction << 13);
}

/// Rounds to nearest, ties to even.
uint16_t float_to_half(float value)
{
    const uint32_t bits = to_bits(value), magnitude = bits & 0x7fffffff;
    const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000)
        return sign | 0x7e00;
    if (magnitude >= 0x477ff000) // From 65,520 on, the nearest half is infinity.
        return sign | 0x7c00;
    if (magnitude < 0x38800000) // Below 2^-14, the unit is 2^-24, and nearbyint rounds ties to even.
        return sign | uint16_t(std::nearbyint(from_bits(magnitude) * 0x1p24f));
    // A carry out of the fraction increments the exponent, as it should.
    const uint32_t rebiased = magnitude - (112u << 23);
    return sign | uint16_t((rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13);
}

float bfloat_to_float(uint16_t value)
{
    return from_bits(uint32_t(value) << 16);
}

/// Rounds to nearest, ties to even.
uint16_t float_to_bfloat(float value)
{
    const uint32_t bits = to_bits(value);
    if (std::isnan(value)) // Rounding could carry a NaN into infinity.
        return uint16_t(bits >> 16 | 0x40);
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float read(const void *data, int32_t element_type, int64_t index)
{
    switch (element_type) {
    case FLAGPERF_FLOAT16:
        return half_to_float(static_cast<const uint16_t *>(data)[index]);
    case FLAGPERF_BFLOAT16:
        return bfloat_to_float(static_cast<const uint16_t *>(data)[index]);
    default:
        return static_cast<const float *>(data)[index];
    }
}

void write(void *data, int32_t element_type, int64_t index, float value)
{
    switch (element_type) {
    case FLAGPERF_FLOAT16:
        static_cast<uint16_t *>(data)[index] = float_to_half(value);
        break;
    case FLAGPERF_BFLOAT16:
        static_cast<uint16_t *>(data)[index] = float_to_bfloat(value);
        break;
    default:
        static_cast<float *>(data)[index] = value;
    }
}

/// The sum passes through X's element type, as the interface promises.
float rounded_sum(float a, float b, int32_t element_type)
{
    float result;
    uint16_t narrow;
    void *const place = element_type == FLAGPERF_FLOAT ? static_cast<void *>(&result) : &narrow;
    write(place, element_type, 0, a + b);
    return read(place, element_type, 0);
}

void normalise_row(const layer_norm::Call &call, int64_t row)
{
    const int64_t first = row * call.columns;
    const auto element = [&](int64_t column) {
        const float x = read(call.x, call.x_type, first + column);
        return call.residual ? rounded_sum(x, read(call.residual, call.x_type, first + column), call.x_type) : x;
    };
    double total = 0;
    for (int64_t column = 0; column < call.columns; ++column)
        total += element(column);
    const double mean = total / double(call.columns);
    double squares = 0;
    for (int64_t column = 0; column < call.columns; ++column)
        squares += (element(column) - mean) * (element(column) - mean);
    const double inverse = 1 / std::sqrt(squares / double(call.columns) + call.epsilon);
    for (int64_t column = 0; column < call.columns; ++column) {
        const float value = element(column);
        const double scale = call.scale ? read(call.scale, call.scale_type, column) : 1;
        const double bias = call.bias ? read(call.bias, call.bias_type, column) : 0;
        if (call.sum)
            write(call.sum, call.x_type, first + column, value);
        write(call.y, call.y_type, first + column, float((value - mean) * inverse * scale + bias));
    }
}

} // namespace

/// The attribute `plain` changes nothing here, because there is one version only.
extern "C" const char *flagperf_operator_run(const FlagperfTensor *inputs, int32_t input_count, FlagperfTensor *outputs,
                                             int32_t output_count, const FlagperfAttribute *attributes,
                                             int32_t attribute_count, void *)
{
    layer_norm::Call call;
    if (const char *reason =
            layer_norm::read_call(inputs, input_count, outputs, output_count, attributes, attribute_count, call))
        return reason;
    for (int64_t row = 0; row < call.rows; ++row)
        normalise_row(call, row);
    return nullptr;
}
