// Drives the shell as TensorRT does, without TensorRT: `test LAYER_NORM ADD_RELU`, two shells, each beside the operator's library
// for the processor under the name of that for CUDA. Prints what is wrong and fails, or prints the number of checks. Compiled with -rdynamic, so that the
// shells find this program's registry and logger.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>

#include <NvInferRuntime.h>

#include "flagperf_operator.h"

using namespace nvinfer1;

namespace {

int checks = 0, failures = 0;
std::string logged;

#define CHECK(condition)                                                                                               \
    (++checks, (condition) ? void() : (++failures, void(std::printf("line %d: %s\n", __LINE__, #condition))))

bool has(const std::string &text, const char *part)
{
    return text.find(part) != std::string::npos;
}

struct Log final : ILogger {
    void log(Severity severity, AsciiChar const *text) noexcept override
    {
        CHECK(severity == Severity::kERROR);
        logged = text;
    }
} logger;

/// Registers creators by their names.
struct Registry final : IPluginRegistry {
    std::vector<std::string> names;

    bool registerCreator(IPluginCreatorInterface &creator, AsciiChar const *const space) noexcept override
    {
        names.push_back(std::string(space) + "." + static_cast<IPluginCreatorV3One &>(creator).getPluginName());
        return true;
    }
    void setErrorRecorder(IErrorRecorder *const) noexcept override {}
    IErrorRecorder *getErrorRecorder() const noexcept override { return nullptr; }
    bool isParentSearchEnabled() const override { return false; }
    void setParentSearchEnabled(bool const) override {}
    PluginLibraryHandle loadLibrary(AsciiChar const *) noexcept override { return nullptr; }
    void deregisterLibrary(PluginLibraryHandle) noexcept override {}
    IPluginCreatorInterface *const *getAllCreators(int32_t *const) const noexcept override { return nullptr; }
    IPluginCreatorInterface *getCreator(AsciiChar const *const, AsciiChar const *const,
                                        AsciiChar const *const) noexcept override
    {
        return nullptr;
    }
    bool deregisterCreator(IPluginCreatorInterface const &) noexcept override { return false; }
    IPluginResource *acquirePluginResource(AsciiChar const *, IPluginResource *) noexcept override { return nullptr; }
    int32_t releasePluginResource(AsciiChar const *) noexcept override { return 0; }
    IPluginCreatorInterface *const *getAllCreatorsRecursive(int32_t *const) noexcept override { return nullptr; }
} registry;

/// A size, or an open one.
struct Size final : IDimensionExpr, apiv::VDimensionExpr {
    const bool constant;
    const int64_t value;

    Size(bool constant, int64_t value) : constant(constant), value(value) { IDimensionExpr::mImpl = this; }
    bool isConstant() const override { return constant; }
    int64_t getConstantValue() const override { return constant ? value : std::numeric_limits<int64_t>::min(); }
    bool isSizeTensor() const override { return false; }
};

struct Sizes final : IExprBuilder, apiv::VExprBuilder {
    std::vector<std::unique_ptr<Size>> all;

    Sizes() { IExprBuilder::mImpl = this; }
    const Size *add(bool constant, int64_t value)
    {
        all.push_back(std::make_unique<Size>(constant, value));
        return all.back().get();
    }
    IDimensionExpr const *constant(int64_t value) override { return add(true, value); }
    IDimensionExpr const *operation(DimensionOperation, IDimensionExpr const &, IDimensionExpr const &) override
    {
        return nullptr;
    }
    IDimensionExpr const *declareSizeTensor(int32_t, IDimensionExpr const &, IDimensionExpr const &) override
    {
        return nullptr;
    }
    /// Returns sizes, of which -1 are open.
    DimsExprs shape(const std::vector<int64_t> &sizes)
    {
        DimsExprs shape{int32_t(sizes.size()), {}};
        for (size_t axis = 0; axis < sizes.size(); ++axis)
            shape.d[axis] = add(sizes[axis] >= 0, sizes[axis]);
        return shape;
    }
};

Dims dims(const std::vector<int64_t> &sizes)
{
    Dims dims{int32_t(sizes.size()), {}};
    std::copy(sizes.begin(), sizes.end(), dims.d);
    return dims;
}

PluginTensorDesc tensor(const std::vector<int64_t> &sizes, DataType type, TensorFormat format = TensorFormat::kLINEAR)
{
    return {dims(sizes), type, format, -1};
}

/// A node with the interfaces that TensorRT asks for.
struct Node {
    std::unique_ptr<IPluginV3> plugin;
    IPluginV3OneCore *core = nullptr;
    IPluginV3OneBuild *build = nullptr;
    IPluginV3OneRuntime *runtime = nullptr;

    explicit Node(IPluginV3 *created) : plugin(created)
    {
        const auto interface = [&](PluginCapabilityType type) { return plugin->getCapabilityInterface(type); };
        if (!created)
            return;
        core = static_cast<IPluginV3OneCore *>(interface(PluginCapabilityType::kCORE));
        build = static_cast<IPluginV3OneBuild *>(interface(PluginCapabilityType::kBUILD));
        runtime = static_cast<IPluginV3OneRuntime *>(interface(PluginCapabilityType::kRUNTIME));
    }

    DataType output_type(const std::vector<DataType> &inputs) const
    {
        DataType type = DataType::kBOOL;
        CHECK(build->getOutputDataTypes(&type, 1, inputs.data(), int32_t(inputs.size())) == 0);
        return type;
    }

    /// Returns the output's shape, with the place of the input and the axis for an open size: 100 * input + axis + 1000.
    std::vector<int64_t> output_shape(const std::vector<std::vector<int64_t>> &inputs) const
    {
        Sizes sizes;
        std::vector<DimsExprs> shapes;
        for (const auto &input : inputs)
            shapes.push_back(sizes.shape(input));
        DimsExprs output{};
        if (build->getOutputShapes(shapes.data(), int32_t(shapes.size()), nullptr, 0, &output, 1, sizes) != 0)
            return {};
        std::vector<int64_t> result;
        for (int32_t axis = 0; axis < output.nbDims; ++axis) {
            int64_t size = output.d[axis]->getConstantValue();
            for (size_t input = 0; input < shapes.size() && !output.d[axis]->isConstant(); ++input)
                for (int32_t place = 0; place < shapes[input].nbDims; ++place)
                    if (shapes[input].d[place] == output.d[axis])
                        size = 1000 + 100 * int64_t(input) + place;
            result.push_back(size);
        }
        return result;
    }

    bool supports(int32_t place, const std::vector<PluginTensorDesc> &all) const
    {
        std::vector<DynamicPluginTensorDesc> described;
        for (const PluginTensorDesc &tensor : all)
            described.push_back({tensor, tensor.dims, tensor.dims, tensor.dims});
        return build->supportsFormatCombination(place, described.data(), int32_t(all.size()) - 1, 1);
    }

    /// Computes on `inputs`, each as long as its type and shape require.
    std::vector<char> run(const std::vector<PluginTensorDesc> &all, const std::vector<std::vector<char>> &inputs,
                          size_t output_bytes) const
    {
        const int32_t count = int32_t(inputs.size());
        std::vector<const void *> pointers;
        for (const auto &input : inputs)
            pointers.push_back(input.data());
        std::vector<char> output(output_bytes);
        void *outputs[] = {output.data()};
        CHECK(runtime->onShapeChange(all.data(), count, &all[size_t(count)], 1) == 0);
        CHECK(runtime->enqueue(all.data(), &all[size_t(count)], pointers.data(), outputs, nullptr, nullptr) == 0);
        return output;
    }
};

std::vector<char> bytes(const std::vector<float> &values)
{
    std::vector<char> result(values.size() * sizeof(float));
    std::memcpy(result.data(), values.data(), result.size());
    return result;
}

/// Returns numbers without a pattern, between -1 and 1.
std::vector<float> numbers(size_t count, uint32_t seed)
{
    std::vector<float> values;
    for (uint32_t state = seed; values.size() < count;) {
        state = state * 1664525 + 1013904223;
        values.push_back(float(int32_t(state)) / 2147483648.0f);
    }
    return values;
}

double largest_difference(const std::vector<double> &expected, const std::vector<char> &actual)
{
    double largest = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        float value;
        std::memcpy(&value, &actual[i * sizeof value], sizeof value);
        largest = std::fmax(largest, std::isnan(value) ? 1e9 : std::fabs(expected[i] - double(value)));
    }
    return largest;
}

struct Shell {
    void *library;
    IPluginCreatorV3One *creator = nullptr;

    explicit Shell(const char *path) : library(dlopen(path, RTLD_NOW | RTLD_GLOBAL))
    {
        if (!library) {
            std::printf("%s\n", dlerror());
            std::exit(1);
        }
        int32_t count = 0;
        creator = static_cast<IPluginCreatorV3One *>(
            function<IPluginCreatorInterface *const *(int32_t &)>("getCreators")(count)[0]);
        CHECK(count == 1 && std::string(creator->getInterfaceInfo().kind) == "PLUGIN CREATOR_V3ONE");
        auto reg = function<const char *()>("flagperf_register_operator");
        CHECK(reg() == nullptr && reg() == nullptr);
        CHECK(function<void(ILoggerFinder *)>("setLoggerFinder") != nullptr);
    }

    template <class Signature> Signature *function(const char *name) const
    {
        return reinterpret_cast<Signature *>(dlsym(library, name));
    }

    Node node(const std::vector<PluginField> &fields, TensorRTPhase phase = TensorRTPhase::kBUILD) const
    {
        const PluginFieldCollection collection{int32_t(fields.size()), fields.data()};
        return Node(creator->createPlugin("node", &collection, phase));
    }
};

/// A layer normalization in f64.
std::vector<double> layer_norm(const std::vector<float> &x, const std::vector<float> &scale, double epsilon)
{
    std::vector<double> y;
    for (size_t first = 0; first < x.size(); first += scale.size()) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < scale.size(); ++i)
            mean += double(x[first + i]) / double(scale.size());
        for (size_t i = 0; i < scale.size(); ++i)
            variance += std::pow(double(x[first + i]) - mean, 2) / double(scale.size());
        for (size_t i = 0; i < scale.size(); ++i)
            y.push_back((double(x[first + i]) - mean) / std::sqrt(variance + epsilon) * double(scale[i]));
    }
    return y;
}

void check_layer_norm(const Shell &shell)
{
    const auto type = [](DataType type) { return std::vector<DataType>{type, type}; };
    const DataType f32 = DataType::kFLOAT, f16 = DataType::kHALF, bf16 = DataType::kBF16;
    const int32_t axis = -1, to = FLAGPERF_FLOAT16;
    const float epsilon = 0.25f;
    const PluginField axis_field("axis", &axis, PluginFieldType::kINT32, 1);
    const PluginField epsilon_field("epsilon", &epsilon, PluginFieldType::kFLOAT32, 1);

    CHECK(std::string(shell.creator->getPluginNamespace()) == "nvidia");
    const PluginFieldCollection *names = shell.creator->getFieldNames();
    CHECK(names->nbFields == 3 && std::string(names->fields[1].name) == "epsilon");
    CHECK(!shell.node({axis_field, PluginField("epsilon", "text", PluginFieldType::kCHAR, 5)}).plugin);
    CHECK(has(logged, "nvidia.layer_norm: the attribute `epsilon` is neither an integer nor a number"));
    CHECK(!shell.node({PluginField("mode", &axis, PluginFieldType::kINT32, 1)}).plugin);
    CHECK(has(logged, "the attribute `mode` is in no form of operator.yaml"));

    const Node node = shell.node({axis_field, epsilon_field});
    CHECK(node.core && node.build && node.runtime && node.build->getNbOutputs() == 1);
    CHECK(std::string(node.core->getPluginName()) == shell.creator->getPluginName());
    CHECK(std::string(node.core->getPluginVersion()) == shell.creator->getPluginVersion());
    CHECK(std::string(node.core->getPluginNamespace()) == shell.creator->getPluginNamespace());

    for (DataType own : {f32, f16, bf16})
        CHECK(node.output_type(type(own)) == own);
    const Node converting = shell.node({axis_field, epsilon_field, PluginField("to", &to, PluginFieldType::kINT32, 1)});
    CHECK(converting.output_type(type(f32)) == f16);
    DataType unknown;
    CHECK(node.build->getOutputDataTypes(&unknown, 1, type(DataType::kBOOL).data(), 2) != 0);
    CHECK(node.build->getOutputDataTypes(&unknown, 1, type(DataType::kINT32).data(), 2) != 0);
    CHECK(has(logged, "its output has a type that operator.yaml does not list"));

    using Shape = std::vector<int64_t>;
    CHECK((node.output_shape({{2, 3, 64}, {64}}) == Shape{2, 3, 64}));
    CHECK((node.output_shape({{-1, 3, 64}, {64}}) == Shape{1000, 3, 64}));
    CHECK((node.output_shape({{-1, -1, 64}, {-1}}) == Shape{1000, 1001, 64}));

    const auto all = [&](DataType x, DataType y) {
        return std::vector<PluginTensorDesc>{tensor({2, 3, 64}, x), tensor({64}, x), tensor({2, 3, 64}, y)};
    };
    for (int32_t place = 0; place < 3; ++place)
        CHECK(node.supports(place, all(f32, f32)) && node.supports(place, all(bf16, bf16)));
    CHECK(!node.supports(2, all(f32, f16)) && converting.supports(2, all(f32, f16)));
    CHECK(!node.supports(0, {tensor({2, 3, 64}, f32, TensorFormat::kCHW32), tensor({64}, f32), tensor({1}, f32)}));
    CHECK(node.build->configurePlugin(nullptr, 0, nullptr, 0) == 0);

    const auto single = all(f32, f32);
    void *nothing[1] = {};
    CHECK(node.runtime->enqueue(single.data(), &single[2], nothing, nothing, nullptr, nullptr) != 0);
    CHECK(has(logged, "onShapeChange was not called"));
    CHECK(node.runtime->onShapeChange(single.data(), 2, &all(f32, f16)[2], 1) != 0);
    CHECK(has(logged, "does not have the shape and type for which the engine was built"));

    const std::vector<float> x = numbers(2 * 3 * 64, 1), scale = numbers(64, 2);
    const std::vector<std::vector<char>> inputs = {bytes(x), bytes(scale)};
    const std::vector<double> expected = layer_norm(x, scale, epsilon);
    const std::vector<char> y = node.run(single, inputs, x.size() * 4);
    CHECK(largest_difference(expected, y) < 1e-6);
    // The type of the output comes from the attribute, and its elements are half as long.
    CHECK(converting.run(all(f32, f16), inputs, x.size() * 2) != std::vector<char>(x.size() * 2));
    // Without elements, there may be no memory.
    CHECK(node.run({tensor({0, 64}, f32), tensor({64}, f32), tensor({0, 64}, f32)}, {{}, bytes(scale)}, 0).empty());
    // What the operator itself refuses is logged, and nothing runs.
    const std::vector<PluginTensorDesc> wrong = {tensor({6, 64}, f32), tensor({63}, f32), tensor({6, 64}, f32)};
    CHECK(node.runtime->onShapeChange(wrong.data(), 2, &wrong[2], 1) == 0);
    const void *pointers[] = {inputs[0].data(), inputs[1].data()};
    CHECK(node.runtime->enqueue(wrong.data(), &wrong[2], pointers, nothing, nullptr, nullptr) != 0);
    CHECK(has(logged, "one element for each normalised element"));

    // An engine file keeps the bytes of each field, and neither its address nor the plug-in.
    auto original = std::make_unique<Node>(shell.node({axis_field, epsilon_field}));
    std::vector<std::pair<std::string, std::vector<char>>> stored;
    std::vector<PluginFieldType> types;
    const PluginFieldCollection *fields = original->runtime->getFieldsToSerialize();
    CHECK(fields->nbFields == 2);
    for (int32_t i = 0; i < fields->nbFields; ++i) {
        const PluginField &field = fields->fields[i];
        const char *data = static_cast<const char *>(field.data);
        CHECK(field.type == PluginFieldType::kUNKNOWN); // its length is in bytes
        stored.emplace_back(field.name, std::vector<char>(data, data + field.length));
    }
    const Node clone(original->plugin->clone()), attached(original->runtime->attachToContext(nullptr));
    original.reset();
    std::vector<PluginField> loaded;
    for (const auto &[name, data] : stored)
        loaded.emplace_back(name.c_str(), data.data(), PluginFieldType::kUNKNOWN, int32_t(data.size()));
    CHECK(shell.node(loaded, TensorRTPhase::kRUNTIME).run(single, inputs, y.size()) == y);
    CHECK(clone.run(single, inputs, y.size()) == y && attached.run(single, inputs, y.size()) == y);
}

void check_add_relu(const Shell &shell)
{
    const Node node = shell.node({});
    CHECK(shell.creator->getFieldNames()->nbFields == 0 && node.runtime->getFieldsToSerialize()->nbFields == 0);
    const DataType f32 = DataType::kFLOAT;
    CHECK(node.output_type({f32, f32}) == f32);
    using Shape = std::vector<int64_t>;
    // Both inputs must have the same shape: the open sizes of an axis are equal.
    CHECK((node.output_shape({{-1, 64, -1}, {-1, 64, -1}}) == Shape{1000, 64, 1002}));
    CHECK((node.output_shape({{}, {}}).empty() && node.output_shape({{3}, {3}}) == Shape{3}));
    CHECK(node.output_shape({{2}, {3}}).empty() && has(logged, "the inputs must have the same shape"));
    const std::vector<float> a = numbers(640, 3), b = numbers(640, 4);
    std::vector<double> expected;
    for (size_t i = 0; i < a.size(); ++i)
        expected.push_back(std::fmax(0.0, double(a[i] + b[i])));
    const std::vector<PluginTensorDesc> all(3, tensor({10, 64}, f32));
    CHECK(largest_difference(expected, node.run(all, {bytes(a), bytes(b)}, a.size() * 4)) == 0);
}

} // namespace

extern "C" IPluginRegistry *getPluginRegistry() noexcept
{
    return &registry;
}

extern "C" ILogger *getLogger() noexcept
{
    return &logger;
}

int main(int, char **arguments)
{
    // Both are open at the same time with global symbols, and each finds its own operator.
    const Shell layer_norm(arguments[1]), add_relu(arguments[2]);
    check_layer_norm(layer_norm);
    check_add_relu(add_relu);
    CHECK((registry.names == std::vector<std::string>{"nvidia.layer_norm", "nvidia.add_relu"}));
    std::printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}
