// What the shell asks the operator: TensorRT wants the types of outputs without shapes, and their shapes without types and
// before every size is known, but the operator answers only for both. It is therefore asked about examples; the plug-in
// compares the answers with the true types and shapes before a run.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>

#include <NvInferRuntime.h>

#include "flagperf_operator.h"
#include "flagperf_operator_description.h"

namespace {

using namespace nvinfer1;

/// The operator's library.
struct Library {
    decltype(&flagperf_operator_output) output = nullptr;
    decltype(&flagperf_operator_run) run = nullptr;
    std::string missing;
};

/// Opens the library beside this one. It is never closed: work that it enqueued may still run.
Library open_library()
{
    Library library;
    Dl_info own;
    if (dladdr(reinterpret_cast<void *>(&open_library), &own) == 0) {
        library.missing = "the folder of its plug-in is not known";
        return library;
    }
    std::string path = own.dli_fname;
    path = path.substr(0, path.find_last_of('/') + 1) + "cuda.so";
    // Local, because the libraries of all operators export the same names.
    void *opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened) {
        library.output = reinterpret_cast<decltype(library.output)>(dlsym(opened, "flagperf_operator_output"));
        library.run = reinterpret_cast<decltype(library.run)>(dlsym(opened, "flagperf_operator_run"));
    }
    if (!library.output || !library.run) {
        const char *reason = dlerror();
        library.missing = "its library cannot be opened: " + (reason ? std::string(reason) : path);
    }
    return library;
}

const Library &library()
{
    static const Library opened = open_library();
    return opened;
}

/// The types that plug-ins of TensorRT and ONNX both have, with their names in operator.yaml.
constexpr struct {
    DataType own;
    int32_t onnx;
    const char *name;
} TYPES[] = {
    {DataType::kFLOAT, FLAGPERF_FLOAT, "f32"},    {DataType::kHALF, FLAGPERF_FLOAT16, "f16"},
    {DataType::kBF16, FLAGPERF_BFLOAT16, "bf16"}, {DataType::kINT64, FLAGPERF_INT64, "i64"},
    {DataType::kINT32, FLAGPERF_INT32, "i32"},    {DataType::kINT8, 3, "i8"},
};
constexpr int32_t TYPE_COUNT = sizeof TYPES / sizeof *TYPES;

/// Returns the number of a type in ONNX, or 0.
int32_t onnx_type(DataType own)
{
    for (const auto &type : TYPES)
        if (type.own == own)
            return type.onnx;
    return 0;
}

/// Returns whether the operator computes outputs of a type.
bool computes(int32_t onnx)
{
    for (const auto &type : TYPES)
        for (const char *listed : {FLAGPERF_OPERATOR_TYPES})
            if (type.onnx == onnx && std::strcmp(type.name, listed) == 0)
                return true;
    return false;
}

/// The shape and type of a tensor. TensorRT refuses a node with an omitted input, so there is always one.
struct Shape {
    Dims dims;
    int32_t type;
};

std::vector<FlagperfTensor> tensors(const std::vector<Shape> &shapes)
{
    std::vector<FlagperfTensor> result;
    for (const Shape &shape : shapes)
        result.push_back({nullptr, shape.dims.d, shape.dims.nbDims, shape.type});
    return result;
}

/// The most examples about which the operator is asked.
constexpr int64_t EXAMPLES_MAX = 1 << 20;

/// Calls `accept` with choices for every place until it returns true: first with the same choice at all places, then with
/// every combination. Returns whether it did.
template <class Accept> bool any_choice(size_t places, int32_t choices, Accept accept)
{
    std::vector<int32_t> chosen(places);
    for (int32_t same = 0; same < choices; ++same) {
        chosen.assign(places, same);
        if (accept(chosen))
            return true;
    }
    for (int64_t number = 0; number < EXAMPLES_MAX; ++number) {
        int64_t rest = number;
        for (int32_t &choice : chosen) {
            choice = int32_t(rest % choices);
            rest /= choices;
        }
        if (rest != 0)
            return false;
        if (accept(chosen))
            return true;
    }
    return false;
}

/// A size that is not known when the engine is built.
struct OpenSize {
    int32_t input, axis;
};

/// Which open sizes an example makes equal.
enum class Equal { none, of_an_axis, all };

/// Returns an example of an open size. Both examples differ in the order of the sizes, and each is divisible by 1 to 10.
int64_t example_size(const std::vector<OpenSize> &open, size_t place, Equal equal, int example)
{
    const int64_t own = equal == Equal::none ? int64_t(place) : equal == Equal::of_an_axis ? open[place].axis : 0;
    return 5040 * (example == 0 ? 17 + own : 400 - 3 * own);
}

/// The operator with the attributes of a node.
class Operator {
public:
    explicit Operator(std::vector<FlagperfAttribute> attributes) : attributes(std::move(attributes)) {}

    const std::vector<FlagperfAttribute> attributes;

    /// Asks the operator for the shape and type of its output. The first refusal is in `reason`.
    bool ask(const std::vector<Shape> &inputs, FlagperfOutput &answer, std::string &reason) const
    {
        const std::vector<FlagperfTensor> arguments = tensors(inputs);
        const char *refusal = library().output(arguments.data(), int32_t(arguments.size()), attributes.data(),
                                               int32_t(attributes.size()), 0, &answer);
        if (!refusal && (answer.rank < 0 || answer.rank > Dims::MAX_DIMS))
            refusal = "its output has a rank that TensorRT does not support";
        if (!refusal && !computes(answer.element_type))
            refusal = "its output has a type that operator.yaml does not list";
        if (refusal && reason.empty())
            reason = refusal;
        return !refusal;
    }

    /// Returns the type of the output for inputs of these types, or 0.
    int32_t output_type(const std::vector<int32_t> &types, std::string &reason) const
    {
        FlagperfOutput answer{};
        for (int64_t size : {1, 5040}) {
            const auto accepts = [&](const std::vector<int32_t> &chosen) {
                std::vector<Shape> inputs;
                for (size_t i = 0; i < types.size(); ++i) {
                    Shape shape{{}, types[i]};
                    // From one dimension to as many as there may be, and then without any.
                    shape.dims.nbDims = (chosen[i] + 1) % (Dims::MAX_DIMS + 1);
                    for (int64_t &length : shape.dims.d)
                        length = size;
                    inputs.push_back(shape);
                }
                return ask(inputs, answer, reason);
            };
            if (any_choice(types.size(), Dims::MAX_DIMS + 1, accepts))
                return answer.element_type;
        }
        return 0;
    }

    /// Asks for the output's shape with two examples of the open sizes.
    bool answer_examples(std::vector<Shape> inputs, const std::vector<OpenSize> &open, Equal equal,
                         FlagperfOutput (&answers)[2], std::string &reason) const
    {
        return any_choice(inputs.size(), TYPE_COUNT, [&](const std::vector<int32_t> &chosen) {
            for (size_t i = 0; i < inputs.size(); ++i)
                inputs[i].type = TYPES[chosen[i]].onnx;
            for (int example = 0; example < 2; ++example) {
                for (size_t place = 0; place < open.size(); ++place)
                    inputs[open[place].input].dims.d[open[place].axis] = example_size(open, place, equal, example);
                answers[example] = {};
                if (!ask(inputs, answers[example], reason))
                    return false;
            }
            return answers[0].rank == answers[1].rank;
        });
    }

    /// Enqueues the operator. Returns null, or the reason why that is not possible.
    const char *run(const std::vector<FlagperfTensor> &inputs, FlagperfTensor output, void *stream) const
    {
        return library().run(inputs.data(), int32_t(inputs.size()), &output, 1, attributes.data(),
                             int32_t(attributes.size()), stream);
    }
};

} // namespace
