/// The C interface between flagperf and a decoder of images that a vendor brings: a shared library that exports the functions
/// below. It decodes the JPEG files of a batch on the device, resizes them there, and writes the values that a model reads to host
/// memory. src/decoder.rs of the crate flagperf-engine has the same types.
///
/// A function that can fail returns NULL, or the reason as text that is valid until the next call of the same thread.

#ifndef FLAGPERF_DECODER_H
#define FLAGPERF_DECODER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The version of this interface, which `flagperf_decoder_version` returns.
enum { FLAGPERF_DECODER_VERSION = 1 };

/// What became of an image.
enum {
    FLAGPERF_IMAGE_DECODED = 0,
    FLAGPERF_IMAGE_UNSUPPORTED = 1, ///< the host decodes it instead, and the record counts it
    FLAGPERF_IMAGE_DAMAGED = 2
};

/// The fractional bits of a weight.
enum { FLAGPERF_WEIGHT_BITS = 22 };

/// How one axis of an image is resized. Pixel `i` of the result is
///
///     clamp((2^21 + sum over t of weights[i * taps + t] * source[first[i] + t]) >> 22, 0, 255)
///
/// where `source` ends with the image: the weights of pixels beyond it are 0.
typedef struct {
    const uint32_t *first;
    const int32_t *weights;
    uint32_t taps;
} FlagperfAxis;

/// A JPEG file to decode, in YCbCr or grey. Columns are resized first, then rows; both results are rounded to 8 bits.
typedef struct {
    const uint8_t *file;
    uint64_t bytes;
    uint32_t width; ///< of the image in the file
    uint32_t height;
    FlagperfAxis columns;
    FlagperfAxis rows;
    void *out;      ///< host memory for the values of red, then of green, then of blue, each row by row
    int32_t status; ///< to be written: a FLAGPERF_IMAGE_*
} FlagperfImage;

/// What the images of a decoder have in common.
typedef struct {
    const char *device; ///< such as `cuda:0`
    uint32_t width;     ///< of the resized images
    uint32_t height;
    uint32_t value_bytes; ///< 1, 2, 4 or 8
    /// The value of each level of each channel: value `level` of channel `c` is at `(c * 256 + level) * value_bytes`.
    const uint8_t *values;
} FlagperfDecoderOptions;

/// Returns FLAGPERF_DECODER_VERSION.
uint32_t flagperf_decoder_version(void);

/// Creates a decoder. Each is used by one thread at a time; several may decode at once.
const char *flagperf_decoder_open(const FlagperfDecoderOptions *options, void **decoder);

/// Returns the library and what decodes, such as `nvJPEG 13.0.1, hardware`, valid as long as the decoder.
const char *flagperf_decoder_describe(const void *decoder);

/// Decodes `count` images, all of whose values are in host memory when it returns.
const char *flagperf_decoder_decode(void *decoder, FlagperfImage *images, uint32_t count);

/// Ends a decoder.
void flagperf_decoder_close(void *decoder);

#ifdef __cplusplus
}
#endif

#endif
