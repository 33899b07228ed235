// Decodes the JPEG files of a batch with nvJPEG and resizes them: with the engines of the chip for JPEG if HARDWARE is defined, or
// else with kernels.
//
// nvJPEG writes the planes of the file, luma and chroma. Chroma is interpolated, and colours are converted, in the integers of
// libjpeg-turbo; axes are resized in those of the host. So the only difference from the host's pixels is that of the inverse
// cosine transform of kernels; the engines compute that of libjpeg-turbo.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <nvjpeg.h>

#include "flagperf_decoder.h"

namespace {

#ifdef HARDWARE
constexpr nvjpegBackend_t BACKEND = NVJPEG_BACKEND_HARDWARE;
constexpr const char *BACKEND_NAME = "hardware";
#else
constexpr nvjpegBackend_t BACKEND = NVJPEG_BACKEND_GPU_HYBRID;
constexpr const char *BACKEND_NAME = "kernels";
#endif
constexpr int CHANNELS = 3;
constexpr int LEVELS = 256;
// Bytes to which the rows and the beginnings of buffers on the device are aligned.
constexpr size_t ALIGNMENT = 256;

thread_local std::string failure;

// A failed call of a library.
struct Failure {
    std::string text;
};

void check(cudaError_t status, const char *call) {
    if (status != cudaSuccess) throw Failure{std::string(call) + ": " + cudaGetErrorString(status)};
}

void check(nvjpegStatus_t status, const char *call) {
    if (status != NVJPEG_STATUS_SUCCESS) throw Failure{std::string(call) + ": status " + std::to_string(status)};
}

#define CHECK(call) check(call, #call)

size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

struct Plane {
    const uint8_t *data;
    uint32_t pitch;
    int width, height;
};

struct Axis {
    const uint32_t *first;
    const int32_t *weights;
    uint32_t taps;
};

// An image on the device.
struct Image {
    Plane planes[CHANNELS];
    int components;
    // By how much chroma is smaller than luma.
    int across, down;
    int width, height;
    Axis columns, rows;
    // The rows that the second pass reads.
    int first_row, row_count;
    // They, after the first pass: three bytes a pixel.
    uint8_t *resized;
};

__device__ int at(const Plane &plane, int x, int y) { return plane.data[size_t(y) * plane.pitch + x]; }

// The chroma of a pixel, interpolated as libjpeg-turbo does where it has an interpolation for these factors.
__device__ int chroma(const Image &image, const Plane &plane, int x, int y) {
    int column = x / image.across, row = y / image.down;
    bool is_wide = image.across == 2 && image.down <= 2 && plane.width > 2;
    bool is_tall = image.down == 2 && (is_wide || image.across == 1);
    int other = min(max(row + (y % 2 ? 1 : -1), 0), plane.height - 1);
    if (is_wide) {
        bool is_right = x % 2;
        int beside = is_right ? min(column + 1, plane.width - 1) : max(column - 1, 0);
        if (!is_tall) return (3 * at(plane, column, row) + at(plane, beside, row) + (is_right ? 2 : 1)) >> 2;
        int near = 3 * at(plane, column, row) + at(plane, column, other);
        int far = 3 * at(plane, beside, row) + at(plane, beside, other);
        return (3 * near + far + (is_right ? 7 : 8)) >> 4;
    }
    if (is_tall) return (3 * at(plane, column, row) + at(plane, column, other) + (y % 2 ? 2 : 1)) >> 2;
    return at(plane, column, row);
}

__device__ int level(int value) { return min(max(value, 0), LEVELS - 1); }

// The colour of a pixel, converted with the 16 fractional bits of libjpeg-turbo.
__device__ void colour(const Image &image, int x, int y, int *rgb) {
    int luma = at(image.planes[0], x, y);
    if (image.components == 1) {
        rgb[0] = rgb[1] = rgb[2] = luma;
        return;
    }
    int blue = chroma(image, image.planes[1], x, y) - 128, red = chroma(image, image.planes[2], x, y) - 128;
    rgb[0] = level(luma + ((91881 * red + 32768) >> 16));
    rgb[1] = level(luma + ((-22554 * blue - 46802 * red + 32768) >> 16));
    rgb[2] = level(luma + ((116130 * blue + 32768) >> 16));
}

__device__ int rounded(int sum) { return level(sum >> FLAGPERF_WEIGHT_BITS); }

__global__ void resize_columns(const Image *images, int width) {
    const Image &image = images[blockIdx.z];
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= image.row_count) return;
    const Axis &axis = image.columns;
    int first = axis.first[column];
    int taps = min(int(axis.taps), image.width - first);
    int sums[CHANNELS], rgb[CHANNELS];
    for (int &sum : sums) sum = 1 << (FLAGPERF_WEIGHT_BITS - 1);
    for (int tap = 0; tap < taps; tap++) {
        int weight = axis.weights[size_t(column) * axis.taps + tap];
        colour(image, first + tap, image.first_row + row, rgb);
        for (int channel = 0; channel < CHANNELS; channel++) sums[channel] += weight * rgb[channel];
    }
    uint8_t *out = image.resized + (size_t(row) * width + column) * CHANNELS;
    for (int channel = 0; channel < CHANNELS; channel++) out[channel] = rounded(sums[channel]);
}

template <typename Value>
__global__ void resize_rows(const Image *images, int width, int height, const Value *values, Value *out) {
    const Image &image = images[blockIdx.z];
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const Axis &axis = image.rows;
    int first = axis.first[row];
    int taps = min(int(axis.taps), image.height - first);
    int sums[CHANNELS];
    for (int &sum : sums) sum = 1 << (FLAGPERF_WEIGHT_BITS - 1);
    const uint8_t *source = image.resized + (size_t(first - image.first_row) * width + column) * CHANNELS;
    for (int tap = 0; tap < taps; tap++, source += size_t(width) * CHANNELS) {
        int weight = axis.weights[size_t(row) * axis.taps + tap];
        for (int channel = 0; channel < CHANNELS; channel++) sums[channel] += weight * source[channel];
    }
    out += size_t(blockIdx.z) * CHANNELS * height * width;
    for (int channel = 0; channel < CHANNELS; channel++) {
        out[(size_t(channel) * height + row) * width + column] = values[channel * LEVELS + rounded(sums[channel])];
    }
}

// Memory that grows: of the device, or of the host where the device can read it at full speed.
template <bool IsHost>
class Memory {
  public:
    ~Memory() { release(); }

    uint8_t *reserve(size_t bytes) {
        if (bytes > size) {
            release();
            // Batches differ a little in size.
            size_t more = bytes + bytes / 4;
            if (IsHost) CHECK(cudaMallocHost(reinterpret_cast<void **>(&data), more));
            else CHECK(cudaMalloc(reinterpret_cast<void **>(&data), more));
            size = more;
        }
        return data;
    }

  private:
    void release() {
        if (IsHost) cudaFreeHost(data);
        else cudaFree(data);
        data = nullptr;
        size = 0;
    }

    uint8_t *data = nullptr;
    size_t size = 0;
};

// By how much chroma is smaller than luma; false for a form that is not supported.
bool chroma_factors(nvjpegChromaSubsampling_t subsampling, int *across, int *down) {
    switch (subsampling) {
    case NVJPEG_CSS_444:
    case NVJPEG_CSS_GRAY: *across = 1, *down = 1; return true;
    case NVJPEG_CSS_422: *across = 2, *down = 1; return true;
    case NVJPEG_CSS_420: *across = 2, *down = 2; return true;
    case NVJPEG_CSS_440: *across = 1, *down = 2; return true;
    case NVJPEG_CSS_411: *across = 4, *down = 1; return true;
    case NVJPEG_CSS_410: *across = 4, *down = 2; return true;
    default: return false;
    }
}

class Decoder {
  public:
    explicit Decoder(const FlagperfDecoderOptions &options)
        : width(options.width), height(options.height), value_bytes(options.value_bytes) {
        const char *number = strchr(options.device, ':');
        device = number ? atoi(number + 1) : 0;
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&finished, cudaEventBlockingSync | cudaEventDisableTiming));
        size_t bytes = size_t(CHANNELS) * LEVELS * value_bytes;
        CHECK(cudaMemcpy(values.reserve(bytes), options.values, bytes, cudaMemcpyHostToDevice));
        if (nvjpegCreateEx(BACKEND, nullptr, nullptr, NVJPEG_FLAGS_DEFAULT, &main) != NVJPEG_STATUS_SUCCESS) {
            throw Failure{std::string("this GPU cannot decode JPEG with ") + BACKEND_NAME};
        }
        CHECK(nvjpegJpegStateCreate(main, &main_state));
        CHECK(nvjpegJpegStreamCreate(main, &parsed));
        CHECK(nvjpegCreateEx(NVJPEG_BACKEND_DEFAULT, nullptr, nullptr, NVJPEG_FLAGS_DEFAULT, &other));
        CHECK(nvjpegJpegStateCreate(other, &other_state));
        int version[3];
        CHECK(nvjpegGetProperty(MAJOR_VERSION, &version[0]));
        CHECK(nvjpegGetProperty(MINOR_VERSION, &version[1]));
        CHECK(nvjpegGetProperty(PATCH_LEVEL, &version[2]));
        char text[80];
        snprintf(text, sizeof text, "nvJPEG %d.%d.%d, %s", version[0], version[1], version[2], BACKEND_NAME);
        description = text;
    }

    ~Decoder() {
        nvjpegJpegStateDestroy(other_state);
        nvjpegDestroy(other);
        nvjpegJpegStreamDestroy(parsed);
        nvjpegJpegStateDestroy(main_state);
        nvjpegDestroy(main);
        cudaEventDestroy(finished);
        cudaStreamDestroy(stream);
    }

    void decode(FlagperfImage *files, uint32_t count) {
        CHECK(cudaSetDevice(device));
        begin(files, count);
        decode_planes(files);
        resize(files);
        copy_out(files);
    }

    std::string description;

  private:
    // Reads the headers, and reserves the planes of the images that are supported.
    void begin(FlagperfImage *files, uint32_t count) {
        images.clear();
        places.clear();
        outputs.clear();
        size_t bytes = 0;
        for (uint32_t place = 0; place < count; place++) {
            FlagperfImage &file = files[place];
            Image image{};
            int widths[NVJPEG_MAX_COMPONENT], heights[NVJPEG_MAX_COMPONENT];
            nvjpegChromaSubsampling_t subsampling;
            nvjpegStatus_t status =
                nvjpegGetImageInfo(main, file.file, file.bytes, &image.components, &subsampling, widths, heights);
            file.status = status == NVJPEG_STATUS_SUCCESS ? FLAGPERF_IMAGE_DECODED : FLAGPERF_IMAGE_UNSUPPORTED;
            bool is_known = chroma_factors(subsampling, &image.across, &image.down) &&
                            (image.components == 1 || image.components == CHANNELS);
            if (file.status == FLAGPERF_IMAGE_DECODED && !is_known) file.status = FLAGPERF_IMAGE_UNSUPPORTED;
            if (file.status != FLAGPERF_IMAGE_DECODED) continue;
            if (widths[0] != int(file.width) || heights[0] != int(file.height)) {
                file.status = FLAGPERF_IMAGE_DAMAGED;
                continue;
            }
            image.width = widths[0];
            image.height = heights[0];
            for (int plane = 0; plane < image.components; plane++) {
                int across = plane ? image.across : 1, down = plane ? image.down : 1;
                Plane &target = image.planes[plane];
                target.width = (image.width + across - 1) / across;
                target.height = (image.height + down - 1) / down;
                target.pitch = aligned(target.width);
                // Offsets, until the memory is reserved.
                target.data = reinterpret_cast<const uint8_t *>(bytes);
                bytes += size_t(target.pitch) * target.height;
            }
            images.push_back(image);
            places.push_back(place);
        }
        uint8_t *start = planes.reserve(bytes);
        for (Image &image : images) {
            nvjpegImage_t output{};
            for (int plane = 0; plane < image.components; plane++) {
                Plane &target = image.planes[plane];
                target.data = start + reinterpret_cast<size_t>(target.data);
                output.channel[plane] = const_cast<uint8_t *>(target.data);
                output.pitch[plane] = target.pitch;
            }
            outputs.push_back(output);
        }
    }

    // Returns whether the main backend decodes a file.
    bool is_for_main(const FlagperfImage &file) {
        nvjpegJpegEncoding_t encoding;
        int refused = 1;
        return nvjpegJpegStreamParse(main, file.file, file.bytes, 0, 0, parsed) == NVJPEG_STATUS_SUCCESS &&
               nvjpegJpegStreamGetJpegEncoding(parsed, &encoding) == NVJPEG_STATUS_SUCCESS &&
               encoding == NVJPEG_ENCODING_BASELINE_DCT &&
               nvjpegDecodeBatchedSupported(main, parsed, &refused) == NVJPEG_STATUS_SUCCESS && refused == 0;
    }

    // Decodes in two batches: what the main backend decodes, and the rest, such as progressive files.
    void decode_planes(FlagperfImage *files) {
        std::vector<size_t> usual, rest;
        for (size_t image = 0; image < images.size(); image++) {
            (is_for_main(files[places[image]]) ? usual : rest).push_back(image);
        }
        decode_batch(main, main_state, main_size, files, usual);
        decode_batch(other, other_state, other_size, files, rest);
    }

    void decode_batch(nvjpegHandle_t handle, nvjpegJpegState_t state, size_t &size, FlagperfImage *files,
                      const std::vector<size_t> &chosen) {
        if (chosen.empty()) return;
        std::vector<const unsigned char *> data;
        std::vector<size_t> lengths;
        std::vector<nvjpegImage_t> targets;
        for (size_t image : chosen) {
            const FlagperfImage &file = files[places[image]];
            data.push_back(file.file);
            lengths.push_back(file.bytes);
            targets.push_back(outputs[image]);
        }
        if (size != chosen.size()) {
            CHECK(nvjpegDecodeBatchedInitialize(handle, state, int(chosen.size()), 1, NVJPEG_OUTPUT_YUV));
            size = chosen.size();
        }
        nvjpegStatus_t status =
            nvjpegDecodeBatched(handle, state, data.data(), lengths.data(), targets.data(), stream);
        if (status == NVJPEG_STATUS_SUCCESS) return;
        // One damaged file fails a batch.
        size = 0;
        CHECK(cudaStreamSynchronize(stream));
        for (size_t image : chosen) {
            FlagperfImage &file = files[places[image]];
            status = nvjpegDecode(other, other_state, file.file, file.bytes, NVJPEG_OUTPUT_YUV, &outputs[image], stream);
            if (status != NVJPEG_STATUS_SUCCESS) file.status = FLAGPERF_IMAGE_DAMAGED;
        }
        other_size = 0;
    }

    // Copies the descriptions of the images to the device, and resizes them there.
    void resize(FlagperfImage *files) {
        if (images.empty()) return;
        size_t resized_bytes = 0, table_bytes = aligned(images.size() * sizeof(Image));
        int rows_max = 0;
        auto axis_bytes = [](const FlagperfAxis &axis, size_t pixels) {
            return aligned(pixels * sizeof(uint32_t)) + aligned(pixels * axis.taps * sizeof(int32_t));
        };
        for (size_t place = 0; place < images.size(); place++) {
            const FlagperfImage &file = files[places[place]];
            Image &image = images[place];
            image.first_row = int(file.rows.first[0]);
            int last = 0;
            for (uint32_t row = 0; row < height; row++) last = std::max(last, int(file.rows.first[row] + file.rows.taps));
            image.row_count = std::min(last, image.height) - image.first_row;
            rows_max = std::max(rows_max, image.row_count);
            image.resized = reinterpret_cast<uint8_t *>(resized_bytes);
            resized_bytes += aligned(size_t(image.row_count) * width * CHANNELS);
            table_bytes += axis_bytes(file.columns, width) + axis_bytes(file.rows, height);
        }
        uint8_t *host = staging.reserve(table_bytes), *tables = device_tables.reserve(table_bytes);
        uint8_t *lines = resized.reserve(resized_bytes);
        size_t used = aligned(images.size() * sizeof(Image));
        auto place_table = [&](const void *data, size_t bytes) {
            memcpy(host + used, data, bytes);
            const uint8_t *place = tables + used;
            used += aligned(bytes);
            return place;
        };
        auto place_axis = [&](const FlagperfAxis &axis, size_t pixels) {
            Axis placed{};
            placed.taps = axis.taps;
            placed.first = reinterpret_cast<const uint32_t *>(place_table(axis.first, pixels * sizeof(uint32_t)));
            size_t bytes = pixels * axis.taps * sizeof(int32_t);
            placed.weights = reinterpret_cast<const int32_t *>(place_table(axis.weights, bytes));
            return placed;
        };
        for (size_t place = 0; place < images.size(); place++) {
            const FlagperfImage &file = files[places[place]];
            Image &image = images[place];
            image.resized = lines + reinterpret_cast<size_t>(image.resized);
            image.columns = place_axis(file.columns, width);
            image.rows = place_axis(file.rows, height);
        }
        memcpy(host, images.data(), images.size() * sizeof(Image));
        CHECK(cudaMemcpyAsync(tables, host, used, cudaMemcpyHostToDevice, stream));
        const Image *all = reinterpret_cast<const Image *>(tables);
        dim3 block(32, 8);
        auto blocks = [&](int rows) {
            return dim3((width + block.x - 1) / block.x, (rows + block.y - 1) / block.y, unsigned(images.size()));
        };
        uint8_t *out = results.reserve(images.size() * image_bytes());
        resize_columns<<<blocks(rows_max), block, 0, stream>>>(all, int(width));
        switch (value_bytes) {
        case 1: start_rows<uint8_t>(blocks(int(height)), block, all, out); break;
        case 2: start_rows<uint16_t>(blocks(int(height)), block, all, out); break;
        case 4: start_rows<uint32_t>(blocks(int(height)), block, all, out); break;
        default: start_rows<uint64_t>(blocks(int(height)), block, all, out);
        }
        CHECK(cudaGetLastError());
    }

    template <typename Value>
    void start_rows(dim3 blocks, dim3 block, const Image *all, uint8_t *out) {
        const Value *table = reinterpret_cast<const Value *>(values.reserve(0));
        resize_rows<Value>
            <<<blocks, block, 0, stream>>>(all, int(width), int(height), table, reinterpret_cast<Value *>(out));
    }

    // Copies the values to the host, neighbours together, and waits for them.
    void copy_out(FlagperfImage *files) {
        const uint8_t *out = results.reserve(0);
        size_t bytes = image_bytes();
        for (size_t first = 0, next; first < images.size(); first = next) {
            uint8_t *target = static_cast<uint8_t *>(files[places[first]].out);
            for (next = first + 1; next < images.size(); next++) {
                if (files[places[next]].out != target + (next - first) * bytes) break;
            }
            CHECK(cudaMemcpyAsync(target, out + first * bytes, (next - first) * bytes, cudaMemcpyDeviceToHost, stream));
        }
        CHECK(cudaEventRecord(finished, stream));
        CHECK(cudaEventSynchronize(finished));
    }

    size_t image_bytes() const { return size_t(CHANNELS) * height * width * value_bytes; }

    uint32_t width, height, value_bytes;
    int device = 0;
    cudaStream_t stream = nullptr;
    cudaEvent_t finished = nullptr;
    nvjpegHandle_t main = nullptr, other = nullptr;
    nvjpegJpegState_t main_state = nullptr, other_state = nullptr;
    nvjpegJpegStream_t parsed = nullptr;
    // The sizes of the batches for which the states were prepared.
    size_t main_size = 0, other_size = 0;
    // The images of the batch that are decoded here, their places in it, and their planes for nvJPEG.
    std::vector<Image> images;
    std::vector<uint32_t> places;
    std::vector<nvjpegImage_t> outputs;
    Memory<true> staging;
    Memory<false> values, planes, device_tables, resized, results;
};

// Lets this thread allocate memory while another one captures a graph: nothing here is part of it.
class BesideCaptures {
  public:
    BesideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode); }
    ~BesideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode); }

  private:
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
};

// Runs a function and returns its failure as text.
template <typename Body>
const char *reason_of(Body body) {
    BesideCaptures beside;
    try {
        body();
        return nullptr;
    } catch (const Failure &failed) {
        failure = failed.text;
    } catch (const std::exception &failed) {
        failure = failed.what();
    }
    return failure.c_str();
}

} // namespace

extern "C" {

uint32_t flagperf_decoder_version(void) { return FLAGPERF_DECODER_VERSION; }

const char *flagperf_decoder_open(const FlagperfDecoderOptions *options, void **decoder) {
    return reason_of([&] { *decoder = std::make_unique<Decoder>(*options).release(); });
}

const char *flagperf_decoder_describe(const void *decoder) {
    return static_cast<const Decoder *>(decoder)->description.c_str();
}

const char *flagperf_decoder_decode(void *decoder, FlagperfImage *images, uint32_t count) {
    return reason_of([&] { static_cast<Decoder *>(decoder)->decode(images, count); });
}

void flagperf_decoder_close(void *decoder) { delete static_cast<Decoder *>(decoder); }
}
