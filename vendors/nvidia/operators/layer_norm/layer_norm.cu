/// `LayerNorm` for inference on NVIDIA GPUs. `layer_norm.h` describes its inputs, outputs and attributes.
///
/// Layer normalization does little arithmetic: it can take the time of moving X in and Y out once, and no less. What
/// matters is that enough loads are in flight, and that nothing is read twice. Three kernels follow:
///
/// - `plain_kernel` is the baseline that a first attempt would be.
/// - `register_kernel` keeps rows in registers: of up to 1,024 columns in a warp or a part of one, longer ones in a
///   block.
/// - `shared_kernel` takes the rows that are too long for that, and those of more than 256 columns whose alignment
///   forbids wide loads. It keeps a row in shared memory, or reads it twice if it does not fit.
///
/// Build: `nvcc -O3 -std=c++17 -arch=sm_90 -shared -Xcompiler -fPIC layer_norm.cu -o liblayer_norm.so`

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "layer_norm.h"

namespace {

constexpr int warp_size = 32;
constexpr unsigned whole_warp = 0xffffffff;
constexpr int64_t small_x = 3 << 20; // elements

// ---- Elements, packs, tensors ----

__device__ float to_float(float value) { return value; }
__device__ float to_float(__half value) { return __half2float(value); }
__device__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T> __device__ T from_float(float value)
{
    if constexpr (std::is_same_v<T, __half>)
        return __float2half_rn(value);
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        return __float2bfloat16_rn(value);
    else
        return value;
}

constexpr size_t pack_alignment(size_t bytes) { return bytes < 16 ? bytes : 16; }

/// `V` neighbouring elements. The alignment lets the compiler move them in accesses of up to 16 bytes. They are words
/// as far as possible, because the compiler assembles predicated loads of 2-byte members one by one, and waits to do
/// so.
template <typename T, int V> struct alignas(pack_alignment(V * sizeof(T))) Pack {
    using Word = std::conditional_t<V * sizeof(T) % 4 == 0, uint32_t, uint16_t>;
    Word word[V * sizeof(T) / sizeof(Word)];
};

/// Loads a pack, or zeros if it is not wanted. Nothing but the load depends on `wanted`, so that it can be
/// predicated. A branch that included the conversions would wait for each load before it came to the next.
template <typename T, int V>
__device__ void load_pack(const void *data, int64_t index, float (&value)[V], bool wanted = true)
{
    Pack<T, V> pack = {};
    T element[V];
    if (wanted)
        pack = *reinterpret_cast<const Pack<T, V> *>(static_cast<const T *>(data) + index);
    memcpy(element, pack.word, sizeof element);
    for (int i = 0; i < V; ++i)
        value[i] = to_float(element[i]);
}

template <typename T, int V> __device__ void store_pack(void *data, int64_t index, const float (&value)[V])
{
    Pack<T, V> pack;
    T element[V];
    for (int i = 0; i < V; ++i)
        element[i] = from_float<T>(value[i]);
    memcpy(pack.word, element, sizeof element);
    *reinterpret_cast<Pack<T, V> *>(static_cast<T *>(data) + index) = pack;
}

/// Loads X as it is.
template <typename T> struct Loader {
    using Element = T;
    const void *x;

    explicit Loader(const layer_norm::Call &call) : x(call.x) {}

    template <int V> __device__ void load(int64_t index, float (&value)[V], bool wanted = true) const
    {
        load_pack<T>(x, index, value, wanted);
    }

    /// Writes what the caller wants besides Y. A kernel calls it once for each pack that it has loaded.
    template <int V> __device__ void keep(int64_t, const float (&)[V]) const {}
};

/// Loads X + Residual, rounded to X's element type as an Add would round it, and keeps the sum if output 1 is wanted.
template <typename T> struct SumLoader {
    using Element = T;
    const void *x, *residual;
    void *sum;

    explicit SumLoader(const layer_norm::Call &call) : x(call.x), residual(call.residual), sum(call.sum) {}

    template <int V> __device__ void load(int64_t index, float (&value)[V], bool wanted = true) const
    {
        float other[V];
        load_pack<T>(x, index, value, wanted);
        load_pack<T>(residual, index, other, wanted);
        for (int i = 0; i < V; ++i)
            value[i] = to_float(from_float<T>(value[i] + other[i]));
    }

    template <int V> __device__ void keep(int64_t index, const float (&value)[V]) const
    {
        if (sum != nullptr)
            store_pack<T>(sum, index, value);
    }
};

/// Stores Y, converted to its element type.
template <typename Y> struct Storer {
    using Element = Y;
    void *y;

    explicit Storer(const layer_norm::Call &call) : y(call.y) {}

    template <int V> __device__ void store(int64_t index, const float (&value)[V]) const
    {
        store_pack<Y>(y, index, value);
    }
};

/// Scale or Bias, of X's element type or f32, or omitted. Deciding that in the kernel costs less than it would to
/// compile every kernel several times. It is decided without branches, which would wait for one parameter before
/// loading the next.
template <typename T> struct Parameter {
    const void *data;
    bool is_float;
    float if_omitted; // 0 if it is not omitted

    Parameter(const void *data, int32_t element_type, float if_omitted)
        : data(data), is_float(element_type == FLAGPERF_FLOAT), if_omitted(data == nullptr ? if_omitted : 0)
    {
    }

    template <int V> __device__ void load(int64_t column, float (&value)[V], bool wanted = true) const
    {
        float other[V];
        load_pack<float>(data, column, value, wanted & is_float & (data != nullptr));
        load_pack<T>(data, column, other, wanted & !is_float & (data != nullptr));
        for (int i = 0; i < V; ++i)
            value[i] += other[i] + if_omitted; // Two of these are 0.
    }
};

/// What a kernel is told of a call.
template <typename Load_, typename Store_> struct Problem {
    using Load = Load_;
    using Store = Store_;
    using T = typename Load::Element;
    Load load;
    Store store;
    Parameter<T> scale, bias;
    int64_t rows, columns;
    float epsilon;

    explicit Problem(const layer_norm::Call &call)
        : load(call), store(call), scale(call.scale, call.scale_type, 1),
          bias(call.bias, call.bias_type, 0), rows(call.rows), columns(call.columns),
          epsilon(float(call.epsilon))
    {
    }
};

// ---- Statistics ----

/// The mean of some elements and the sum of their squared deviations from it, after Welford. A large mean costs no
/// precision, as it would if squares of the elements were summed, and a constant row deviates by exactly 0.
struct Moments {
    float mean, squares, count;
};

/// Merges the moments of two disjoint sets, either of which may be empty, after Chan, Golub and LeVeque.
__device__ Moments merge(const Moments &a, const Moments &b)
{
    const float count = a.count + b.count;
    const float share = count > 0 ? __fdividef(b.count, count) : 0;
    const float delta = b.mean - a.mean;
    // The weight of an empty set is 0. It comes before the second delta, because the square of delta may be infinite.
    return {a.mean + delta * share, a.squares + b.squares + delta * (a.count * share) * delta, count};
}

/// Welford's recurrence, continued over a pack after `before` elements. Where the compiler knows `before`, it knows the
/// divisors, so that an element costs four instructions.
template <int V> __device__ void extend(Moments &moments, const float (&value)[V], int before)
{
    for (int i = 0; i < V; ++i) {
        const float delta = value[i] - moments.mean;
        moments.mean += delta * (1.0f / float(before + i + 1));
        moments.squares += delta * (value[i] - moments.mean);
    }
    moments.count = float(before + V);
}

template <int V> __device__ Moments moments_of(const float (&value)[V])
{
    Moments moments{};
    extend(moments, value, 0);
    return moments;
}

/// The moments of those packs that `is_valid` says are within the row, which are the first ones.
template <int packs, int V, typename IsValid>
__device__ Moments moments_of(const float (&value)[packs][V], IsValid is_valid)
{
    Moments moments{};
#pragma unroll
    for (int p = 0; p < packs; ++p)
        if (is_valid(p))
            extend(moments, value[p], p * V);
    return moments;
}

/// The sums over a group of `lanes` neighbouring lanes, a power of two. All lanes get the same bits. Several sums at
/// once hide each other's latency.
template <int R> __device__ void sum_lanes(float (&value)[R], int lanes)
{
#pragma unroll
    for (int offset = warp_size / 2; offset > 0; offset /= 2)
        if (offset < lanes)
            for (int r = 0; r < R; ++r)
                value[r] += __shfl_xor_sync(whole_warp, value[r], offset);
}

/// Merges the moments of a group of lanes, which have `total` elements of each row together. All at once is much
/// cheaper than pair by pair, since nothing but the sums takes more than one step. The means are summed as
/// differences from one of them, which keeps the digits of a large mean and leaves that of a constant row as it is.
template <int R> __device__ void merge_lanes(Moments (&moments)[R], int lanes, float total)
{
    float pivot[R], sum[R];
    for (int r = 0; r < R; ++r) {
        pivot[r] = __shfl_sync(whole_warp, moments[r].mean, 0, lanes);
        sum[r] = moments[r].count * (moments[r].mean - pivot[r]);
    }
    sum_lanes(sum, lanes);
    for (int r = 0; r < R; ++r) {
        const float mean = pivot[r] + __fdividef(sum[r], total), delta = moments[r].mean - mean;
        sum[r] = moments[r].squares + moments[r].count * delta * delta;
        moments[r].mean = mean;
    }
    sum_lanes(sum, lanes);
    for (int r = 0; r < R; ++r)
        moments[r].squares = sum[r];
}

/// Merges the moments of a block's threads. Every warp merges the partial results, which saves a second barrier.
__device__ void merge_block(Moments (&moments)[1], float total)
{
    __shared__ Moments partial[warp_size];
    const int lane = threadIdx.x % warp_size;
    float count[1] = {moments[0].count};
    sum_lanes(count, warp_size);
    merge_lanes(moments, warp_size, fmaxf(count[0], 1)); // A warp may have no elements.
    __syncthreads(); // Warps may still be reading the results of an earlier merge.
    if (lane == 0)
        partial[threadIdx.x / warp_size] = {moments[0].mean, moments[0].squares, count[0]};
    __syncthreads();
    moments[0] = lane < blockDim.x / warp_size ? partial[lane] : Moments{};
    merge_lanes(moments, warp_size, total);
}

/// Whether the squares left the range of f32. True also for a row with a NaN or an infinity, whose Y is NaN anyway.
__device__ bool overflowed(const Moments &moments) { return !isfinite(moments.squares); }

/// A row whose squares overflow is multiplied by this and measured again. The squares of 2^31 elements of any size are
/// then finite. What becomes 0 or subnormal is too small to matter beside the element that caused the overflow.
constexpr float rescue_factor = 0x1p-80f;

/// An f16 is less than 2^16, so that its deviations never overflow.
template <typename T> constexpr bool can_overflow = !std::is_same_v<T, __half>;

__device__ float inverse_deviation(const Moments &moments, int64_t columns, float epsilon)
{
    return rsqrtf(__fdividef(moments.squares, float(columns)) + epsilon);
}

template <int V> __device__ void multiply(float (&value)[V], float factor)
{
    for (int i = 0; i < V; ++i)
        value[i] *= factor;
}

template <int V>
__device__ void normalise(float (&value)[V], float mean, float inverse, const float (&scale)[V], const float (&bias)[V])
{
    for (int i = 0; i < V; ++i)
        value[i] = (value[i] - mean) * inverse * scale[i] + bias[i];
}

// ---- Kernels ----

/// Lets the next kernel of the stream start while this one drains, and waits for the one before, as every kernel must
/// that is launched with `cudaLaunchAttributeProgrammaticStreamSerialization`.
__device__ void overlap_launches()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
}

/// One block for each row, which it reads twice, element by element.
///
/// It is not made for extremes: squares may overflow, and a thread that sums millions of elements loses precision.
template <typename Problem> __global__ void plain_kernel(Problem problem)
{
    const int64_t first = blockIdx.x * problem.columns;
    float value[1], scale[1], bias[1];
    Moments moments[1] = {};
    for (int64_t column = threadIdx.x; column < problem.columns; column += blockDim.x) {
        problem.load.load(first + column, value);
        problem.load.keep(first + column, value);
        moments[0] = merge(moments[0], moments_of(value));
    }
    merge_block(moments, float(problem.columns));
    const float inverse = inverse_deviation(moments[0], problem.columns, problem.epsilon);
    for (int64_t column = threadIdx.x; column < problem.columns; column += blockDim.x) {
        problem.load.load(first + column, value);
        problem.scale.load(column, scale);
        problem.bias.load(column, bias);
        normalise(value, moments[0].mean, inverse, scale, bias);
        problem.store.store(first + column, value);
    }
}

/// How `register_kernel` divides its work. A group is a warp or a part of one, or a whole block if `by_block`. It takes
/// `rows` rows at once, and each of its lanes `packs` packs of `width` elements of each row.
template <int width_, int packs_, int rows_, bool by_block_> struct Tile {
    static constexpr int width = width_, packs = packs_, rows = rows_;
    static constexpr bool by_block = by_block_;
    static constexpr int largest_block = by_block ? 1024 : 128;
};

/// Normalises rows that stay in registers between their only load and their only store.
///
/// The groups of a warp take neighbouring rows, so that an access of the warp covers a contiguous range. A group has
/// two to the power of `lane_bits` lanes, unless it is a block.
template <typename Problem, typename Tile>
__global__ void __launch_bounds__(Tile::largest_block) register_kernel(Problem problem, int lane_bits)
{
    constexpr int V = Tile::width;
    const int lanes = Tile::by_block ? blockDim.x : 1 << lane_bits;
    const int lane = Tile::by_block ? threadIdx.x : threadIdx.x & (lanes - 1);
    const int group_bits = 5 - lane_bits; // of the groups in a warp
    const int64_t warp = int64_t(blockIdx.x) * (Tile::largest_block / warp_size) + threadIdx.x / warp_size;
    const int64_t first_row =
        Tile::by_block ? blockIdx.x : (warp * Tile::rows << group_bits) + (threadIdx.x % warp_size >> lane_bits);
    const int columns = int(problem.columns);
    const auto row_of = [&](int r) { return Tile::by_block ? first_row : first_row + (r << group_bits); };
    const auto column_of = [&](int p) { return (p * lanes + lane) * V; };
    const auto is_valid = [&](int p) { return column_of(p) < columns; };
    overlap_launches();

    // All loads come before anything that waits for one of them. Only a small tile has the registers to load Scale and
    // Bias early, too; it is also where their latency would show.
    constexpr bool early = Tile::packs * V <= 8;
    float value[Tile::rows][Tile::packs][V], scale[Tile::packs][V], bias[Tile::packs][V];
    const auto load_parameters = [&](int p) {
        problem.scale.load(column_of(p), scale[p], is_valid(p));
        problem.bias.load(column_of(p), bias[p], is_valid(p));
    };
#pragma unroll
    for (int r = 0; r < Tile::rows; ++r)
#pragma unroll
        for (int p = 0; p < Tile::packs; ++p)
            problem.load.load(row_of(r) * columns + column_of(p), value[r][p],
                              (row_of(r) < problem.rows) & is_valid(p));
#pragma unroll
    for (int p = 0; p < Tile::packs; ++p)
        if (early)
            load_parameters(p);

    Moments moments[Tile::rows];
    float factor[Tile::rows], inverse[Tile::rows];
    const auto measure = [&] {
#pragma unroll
        for (int r = 0; r < Tile::rows; ++r)
            moments[r] = moments_of(value[r], is_valid);
        if constexpr (Tile::by_block)
            merge_block(moments, float(columns));
        else
            merge_lanes(moments, lanes, float(columns));
    };
    measure();
    bool again = false;
#pragma unroll
    for (int r = 0; r < Tile::rows; ++r) {
        factor[r] = can_overflow<typename Problem::T> && overflowed(moments[r]) ? rescue_factor : 1;
        again |= factor[r] != 1;
#pragma unroll
        for (int p = 0; p < Tile::packs; ++p)
            if (row_of(r) < problem.rows && is_valid(p))
                problem.load.keep(row_of(r) * columns + column_of(p), value[r][p]);
    }
    // All groups of a warp measure again if one must, because the shuffles need every lane.
    if (can_overflow<typename Problem::T> && __any_sync(whole_warp, again)) {
#pragma unroll
        for (int r = 0; r < Tile::rows; ++r)
#pragma unroll
            for (int p = 0; p < Tile::packs; ++p)
                multiply(value[r][p], factor[r]);
        measure();
    }
#pragma unroll
    for (int r = 0; r < Tile::rows; ++r)
        inverse[r] = inverse_deviation(moments[r], columns, problem.epsilon * factor[r] * factor[r]);

#pragma unroll
    for (int p = 0; p < Tile::packs; ++p) {
        if (!is_valid(p))
            break;
        if (!early)
            load_parameters(p);
#pragma unroll
        for (int r = 0; r < Tile::rows; ++r) {
            if (row_of(r) >= problem.rows)
                break;
            normalise(value[r][p], moments[r].mean, inverse[r], scale[p], bias[p]);
            problem.store.store(row_of(r) * columns + column_of(p), value[r][p]);
        }
    }
}

/// One block for each row, which waits in shared memory for its second use if `in_shared`, and is loaded twice
/// otherwise.
///
/// A thread finds in shared memory what it wrote there itself, which needs no barrier.
template <typename Problem, int V>
__global__ void __launch_bounds__(1024) shared_kernel(Problem problem, bool in_shared)
{
    using T = typename Problem::T;
    constexpr int packs = 16 / V; // that a thread loads at once
    extern __shared__ uint4 row[];
    const int64_t first = blockIdx.x * problem.columns, start = threadIdx.x * V, step = blockDim.x * V;
    float several[packs][V], value[V], scale[V], bias[V];
    const auto reload = [&](int64_t column) {
        if (in_shared)
            load_pack<T>(row, column, value);
        else
            problem.load.load(first + column, value);
    };
    overlap_launches();

    Moments moments[1] = {};
    for (int64_t column = start; column < problem.columns; column += packs * step) {
        const auto is_valid = [&](int p) { return column + p * step < problem.columns; };
#pragma unroll
        for (int p = 0; p < packs; ++p)
            problem.load.load(first + column + p * step, several[p], is_valid(p));
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            if (!is_valid(p))
                break;
            problem.load.keep(first + column + p * step, several[p]);
            if (in_shared)
                store_pack<T>(row, column + p * step, several[p]);
        }
        moments[0] = merge(moments[0], moments_of(several, is_valid));
    }
    merge_block(moments, float(problem.columns));
    float factor = 1;
    if (can_overflow<T> && overflowed(moments[0])) {
        factor = rescue_factor;
        moments[0] = {};
        for (int64_t column = start; column < problem.columns; column += step) {
            reload(column);
            multiply(value, factor);
            moments[0] = merge(moments[0], moments_of(value));
        }
        merge_block(moments, float(problem.columns));
    }
    const float inverse = inverse_deviation(moments[0], problem.columns, problem.epsilon * factor * factor);
    for (int64_t column = start; column < problem.columns; column += step) {
        reload(column);
        multiply(value, factor);
        problem.scale.load(column, scale);
        problem.bias.load(column, bias);
        normalise(value, moments[0].mean, inverse, scale, bias);
        problem.store.store(first + column, value);
    }
}

// ---- Launch ----

const char *reason(cudaError_t error) { return error == cudaSuccess ? nullptr : cudaGetErrorString(error); }

/// What to launch `shared_kernel` with for a number of columns on a device.
struct Plan {
    int device = -1;
    int64_t columns = 0;
    int threads = 0, shared = 0;
};

/// Chooses the block of which a multiprocessor holds most useful threads, within its registers and shared memory. Of
/// equals it takes the smallest, whose threads wait for the fewest others; but the largest for a row that does not fit
/// into shared memory, because there are few such rows.
template <typename Kernel> cudaError_t make_plan(Kernel kernel, int width, int element_size, Plan &plan)
{
    int limit = 0;
    cudaError_t error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, plan.device);
    limit -= warp_size * int(sizeof(Moments)); // what merge_block has
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit);
    plan.shared = plan.columns <= limit / element_size ? int(plan.columns) * element_size : 0;
    int64_t most = 0;
    for (int threads = 128; threads <= 1024 && error == cudaSuccess; threads *= 2) {
        int blocks = 0;
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, size_t(plan.shared));
        const int64_t useful = blocks * std::min<int64_t>(plan.columns / width, threads);
        if (useful > most || (useful == most && plan.shared == 0)) {
            most = useful;
            plan.threads = threads;
        }
    }
    return error;
}

/// Chooses and launches a kernel for a call. What it must ask the runtime takes longer than a launch, so that a thread
/// remembers the answers that it got last.
template <typename Problem> struct Launcher {
    using T = typename Problem::T;
    const layer_norm::Call &call;
    cudaStream_t stream;
    int device, architecture;

    template <typename... Parameters, typename... Arguments>
    const char *launch(void (*kernel)(Problem, Parameters...), int64_t blocks, int threads, int shared, bool overlaps,
                       Arguments... arguments) const
    {
        if (blocks > INT_MAX)
            return "X has more rows than a grid has blocks";
        cudaLaunchAttribute overlap = {};
        overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        overlap.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(unsigned(blocks));
        config.blockDim = dim3(unsigned(threads));
        config.dynamicSmemBytes = size_t(shared);
        config.stream = stream;
        config.attrs = &overlap;
        config.numAttrs = overlaps && architecture >= 9;
        return reason(cudaLaunchKernelEx(&config, kernel, Problem(call), Parameters(arguments)...));
    }

    template <typename Tile> const char *run_lanes(int lane_bits) const
    {
        const int64_t rows = (Tile::largest_block >> lane_bits) * Tile::rows;
        return launch(register_kernel<Problem, Tile>, (call.rows + rows - 1) / rows, Tile::largest_block, 0, true,
                      lane_bits);
    }

    template <int V> const char *run_shared() const
    {
        thread_local Plan plan;
        const auto kernel = shared_kernel<Problem, V>;
        if (plan.device != device || plan.columns != call.columns) {
            Plan next = {device, call.columns};
            if (const char *why = reason(make_plan(kernel, V, sizeof(T), next)))
                return why;
            plan = next;
        }
        return launch(kernel, call.rows, plan.threads, plan.shared, true, plan.shared != 0);
    }

    /// Runs with packs of `V` elements, which tile every row at addresses that suit them.
    template <int V> const char *run_packed() const
    {
        const int64_t columns = call.columns, per_lane = columns <= 256 ? 8 : 32;
        int lane_bits = 0;
        while (lane_bits < 5 && per_lane << lane_bits < columns)
            ++lane_bits;
        if (columns <= 256) {
            // A lane with a single pack of a row has too little in flight, so that it takes two rows. But where X is
            // small, the time is the latency of a row, and the more warps share the rows, the better.
            constexpr int rows = 8 / V == 1 ? 2 : 1;
            return call.rows * columns < small_x ? run_lanes<Tile<V, 8 / V, 1, false>>(lane_bits)
                                                 : run_lanes<Tile<V, 8 / V, rows, false>>(lane_bits);
        }
        if (V * sizeof(T) < 16 && columns <= 512)
            return run_lanes<Tile<V, 16 / V, 1, false>>(5);
        if constexpr (V * sizeof(T) == 16) {
            if (columns <= 1024)
                return run_lanes<Tile<V, 32 / V, 1, false>>(lane_bits);
            const int64_t warps = (columns + 4 * V * warp_size - 1) / (4 * V * warp_size);
            const int64_t threads = warps * warp_size;
            if (threads <= 1024)
                return launch(register_kernel<Problem, Tile<V, 4, 1, true>>, call.rows, int(threads), 0, true, 0);
        }
        return run_shared<V>();
    }

    /// Whether packs of `V` elements tile every row of every tensor at multiples of their size.
    bool packs_fit(size_t V) const
    {
        const auto fits = [V](const void *data, size_t element) {
            return reinterpret_cast<uintptr_t>(data) % pack_alignment(V * element) == 0;
        };
        return call.columns % int64_t(V) == 0 && fits(call.x, sizeof(T)) && fits(call.residual, sizeof(T)) &&
               fits(call.sum, sizeof(T)) && fits(call.y, sizeof(typename Problem::Store::Element)) &&
               fits(call.scale, call.scale_type == FLAGPERF_FLOAT ? 4 : sizeof(T)) &&
               fits(call.bias, call.bias_type == FLAGPERF_FLOAT ? 4 : sizeof(T));
    }

    const char *run() const
    {
        constexpr int widest = 16 / sizeof(T), narrower = sizeof(T) == 2 ? 2 : 1; // 16 and 4 bytes
        if (call.plain)
            return launch(plain_kernel<Problem>, call.rows, 256, 0, false);
        if (packs_fit(widest))
            return run_packed<widest>();
        return packs_fit(narrower) ? run_packed<narrower>() : run_packed<1>();
    }
};

/// Calls `function` with a value of the type that `element_type` names.
template <typename Function> const char *with_type(int32_t element_type, Function function)
{
    if (element_type == FLAGPERF_FLOAT16)
        return function(__half{});
    if (element_type == FLAGPERF_BFLOAT16)
        return function(__nv_bfloat16{});
    return function(float{});
}

} // namespace

extern "C" const char *flagperf_operator_run(const FlagperfTensor *inputs, int32_t input_count, FlagperfTensor *outputs,
                                             int32_t output_count, const FlagperfAttribute *attributes,
                                             int32_t attribute_count, void *stream)
{
    layer_norm::Call call;
    if (const char *why =
            layer_norm::read_call(inputs, input_count, outputs, output_count, attributes, attribute_count, call))
        return why;
    if (call.rows == 0)
        return nullptr;
    thread_local int known_device = -1, architecture = 0;
    int device = 0;
    if (const char *why = reason(cudaGetDevice(&device)))
        return why;
    if (device != known_device) {
        if (const char *why = reason(cudaDeviceGetAttribute(&architecture, cudaDevAttrComputeCapabilityMajor, device)))
            return why;
        known_device = device;
    }
    return with_type(call.x_type, [&](auto x) {
        return with_type(call.y_type, [&](auto y) {
            using T = decltype(x);
            using Store = Storer<decltype(y)>;
            const auto on = static_cast<cudaStream_t>(stream);
            if (call.residual != nullptr)
                return Launcher<Problem<SumLoader<T>, Store>>{call, on, device, architecture}.run();
            return Launcher<Problem<Loader<T>, Store>>{call, on, device, architecture}.run();
        });
    });
}
