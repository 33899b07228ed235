// A decoder for the tests: the pixels of an image are in comments of its file. FAULT selects what it does wrong.

#include <stdlib.h>
#include <string.h>

#include "flagperf_decoder.h"

enum { HONEST, WRONG_PIXELS, NO_PIXEL, FAILS, UNSUPPORTED, DAMAGED, OTHER_STATUS, CANNOT_OPEN };
#ifndef FAULT
#define FAULT HONEST
#endif
#ifndef VERSION
#define VERSION FLAGPERF_DECODER_VERSION
#endif
#define CHANNELS 3
#define MARK "pixels:"

struct decoder {
    uint32_t width, height, value_bytes;
    uint8_t *values;
};

uint32_t flagperf_decoder_version(void) { return VERSION; }

const char *flagperf_decoder_open(const FlagperfDecoderOptions *options, void **decoder) {
    if (FAULT == CANNOT_OPEN) return "the device is missing";
    struct decoder *own = malloc(sizeof *own);
    size_t bytes = (size_t)CHANNELS * 256 * options->value_bytes;
    *own = (struct decoder){options->width, options->height, options->value_bytes, malloc(bytes)};
    memcpy(own->values, options->values, bytes);
    *decoder = own;
    return NULL;
}

const char *flagperf_decoder_describe(const void *decoder) { return decoder ? "test decoder 1.0" : ""; }

// Copies the pixels in the comments of a file; returns their number of bytes.
static size_t pixels(const FlagperfImage *image, uint8_t *out) {
    size_t copied = 0, mark = strlen(MARK);
    for (const uint8_t *at = image->file + 2; at[0] == 0xff && at[1] == 0xfe;) {
        size_t length = (size_t)at[2] << 8 | at[3];
        if (length < 2 + mark || memcmp(at + 4, MARK, mark)) break;
        memcpy(out + copied, at + 4 + mark, length - 2 - mark);
        copied += length - 2 - mark;
        at += 2 + length;
    }
    return copied;
}

static uint8_t level(int32_t sum) {
    int32_t level = sum >> FLAGPERF_WEIGHT_BITS;
    return (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
}

// Returns the sum of weighted levels, which lie `step` bytes apart.
static uint8_t resized(const FlagperfAxis *axis, uint32_t at, uint32_t length, const uint8_t *source, size_t step) {
    int32_t sum = 1 << (FLAGPERF_WEIGHT_BITS - 1);
    for (uint32_t tap = 0; tap < axis->taps && axis->first[at] + tap < length; tap++) {
        sum += axis->weights[(size_t)at * axis->taps + tap] * source[(axis->first[at] + tap) * step];
    }
    return level(sum);
}

static void decode(const struct decoder *own, FlagperfImage *image) {
    size_t bytes = (size_t)image->width * image->height * CHANNELS;
    uint8_t *rgb = malloc(bytes + 65536), *rows = malloc((size_t)own->width * image->height * CHANNELS);
    image->status = pixels(image, rgb) == bytes ? FLAGPERF_IMAGE_DECODED : FLAGPERF_IMAGE_UNSUPPORTED;
    if (image->status == FLAGPERF_IMAGE_DECODED) {
        for (uint32_t y = 0; y < image->height; y++) {
            for (uint32_t x = 0; x < own->width * CHANNELS; x++) {
                const uint8_t *row = rgb + (size_t)y * image->width * CHANNELS + x % CHANNELS;
                rows[(size_t)y * own->width * CHANNELS + x] =
                    resized(&image->columns, x / CHANNELS, image->width, row, CHANNELS);
            }
        }
        for (uint32_t channel = 0; channel < CHANNELS; channel++) {
            for (uint32_t y = 0; y < own->height; y++) {
                for (uint32_t x = 0; x < own->width; x++) {
                    size_t stride = (size_t)own->width * CHANNELS, place = ((size_t)channel * own->height + y) * own->width + x;
                    int value = resized(&image->rows, y, image->height, rows + x * CHANNELS + channel, stride);
                    if (FAULT == WRONG_PIXELS) value = value < 128 ? value + 9 : value - 9;
                    memcpy((uint8_t *)image->out + place * own->value_bytes,
                           own->values + (size_t)(channel * 256 + value) * own->value_bytes, own->value_bytes);
                }
            }
        }
        if (FAULT == NO_PIXEL) memset(image->out, 1, own->value_bytes);
    }
    free(rgb);
    free(rows);
}

const char *flagperf_decoder_decode(void *decoder, FlagperfImage *images, uint32_t count) {
    if (FAULT == FAILS) return "the device was lost";
    for (uint32_t place = 0; place < count; place++) {
        if (FAULT == UNSUPPORTED) images[place].status = FLAGPERF_IMAGE_UNSUPPORTED;
        else if (FAULT == DAMAGED) images[place].status = FLAGPERF_IMAGE_DAMAGED;
        else decode(decoder, &images[place]);
        if (FAULT == OTHER_STATUS) images[place].status = 7;
    }
    return NULL;
}

void flagperf_decoder_close(void *decoder) {
    struct decoder *own = decoder;
    free(own->values);
    free(own);
}
