// An operator of a vendor as a plug-in of TensorRT or TensorRT-RTX (IPluginV3), compiled once for each operator: its names,
// attributes and types are those of operator.yaml, and what it computes is in the operator's library, which lies beside
// this one and has the interface of flagperf_operator.h.

#include <atomic>
#include <cstddef>
#include <cstdio>

#include "operator.h"

// Weak: a host of the library may have no TensorRT, such as its test, or may register the creator itself.
extern "C" nvinfer1::IPluginRegistry *getPluginRegistry() noexcept __attribute__((weak));
extern "C" nvinfer1::ILogger *getLogger() noexcept __attribute__((weak));

namespace {

const char DOMAIN[] = FLAGPERF_OPERATOR_DOMAIN;
const char NAME[] = FLAGPERF_OPERATOR_NAME;
// The version for which the parser looks if a node names none.
const char VERSION[] = "1";

/// The attributes that a node may have.
const std::vector<const char *> &attribute_names()
{
    static const std::vector<const char *> names = {FLAGPERF_OPERATOR_ATTRIBUTES};
    return names;
}

std::atomic<ILoggerFinder *> logger_finder{nullptr};

/// Logs an error, and returns the code that ends the call of TensorRT with a failure.
int32_t fail(const std::string &reason)
{
    const std::string text = std::string(DOMAIN) + "." + NAME + ": " + reason;
    ILoggerFinder *finder = logger_finder;
    ILogger *logger = finder ? finder->findLogger() : getLogger ? getLogger() : nullptr;
    if (logger)
        logger->log(ILogger::Severity::kERROR, text.c_str());
    else
        std::fprintf(stderr, "%s\n", text.c_str());
    return 1;
}

/// A node of the operator.
class Plugin final : public IPluginV3, public IPluginV3OneCore, public IPluginV3OneBuild, public IPluginV3OneRuntime {
public:
    explicit Plugin(std::vector<FlagperfAttribute> attributes) : operation(std::move(attributes)) {}

    IPluginCapability *getCapabilityInterface(PluginCapabilityType type) noexcept override
    {
        switch (type) {
        case PluginCapabilityType::kCORE:
            return static_cast<IPluginV3OneCore *>(this);
        case PluginCapabilityType::kBUILD:
            return static_cast<IPluginV3OneBuild *>(this);
        case PluginCapabilityType::kRUNTIME:
            return static_cast<IPluginV3OneRuntime *>(this);
        }
        return nullptr;
    }

    IPluginV3 *clone() noexcept override
    {
        auto *copy = new Plugin(operation.attributes);
        copy->input_count = input_count;
        return copy;
    }

    AsciiChar const *getPluginName() const noexcept override { return NAME; }
    AsciiChar const *getPluginVersion() const noexcept override { return VERSION; }
    AsciiChar const *getPluginNamespace() const noexcept override { return DOMAIN; }

    /// A node in a form of operator.yaml defines one value.
    int32_t getNbOutputs() const noexcept override { return 1; }

    int32_t configurePlugin(DynamicPluginTensorDesc const *, int32_t, DynamicPluginTensorDesc const *,
                            int32_t) noexcept override
    {
        return 0;
    }

    bool supportsFormatCombination(int32_t place, DynamicPluginTensorDesc const *all, int32_t input_count,
                                   int32_t) noexcept override
    {
        const PluginTensorDesc &tensor = all[place].desc;
        if (tensor.format != TensorFormat::kLINEAR || onnx_type(tensor.type) == 0)
            return false;
        if (place < input_count)
            return true;
        std::vector<int32_t> types;
        for (int32_t i = 0; i < input_count; ++i)
            types.push_back(onnx_type(all[i].desc.type));
        std::string reason;
        return operation.output_type(types, reason) == onnx_type(tensor.type);
    }

    int32_t getOutputDataTypes(DataType *outputs, int32_t, DataType const *inputs,
                               int32_t input_count) const noexcept override
    {
        std::vector<int32_t> types;
        for (int32_t i = 0; i < input_count; ++i) {
            types.push_back(onnx_type(inputs[i]));
            if (types[i] == 0)
                return fail("input " + std::to_string(i) + " has a type that plug-ins of TensorRT do not support");
        }
        std::string reason;
        const int32_t type = operation.output_type(types, reason);
        for (const auto &known : TYPES)
            if (known.onnx == type) {
                outputs[0] = known.own;
                return 0;
            }
        return fail("the type of its output is not known: " + reason);
    }

    int32_t getOutputShapes(DimsExprs const *inputs, int32_t input_count, DimsExprs const *, int32_t, DimsExprs *outputs,
                            int32_t, IExprBuilder &builder) noexcept override
    {
        std::vector<Shape> shapes(static_cast<size_t>(input_count));
        std::vector<OpenSize> open;
        for (int32_t i = 0; i < input_count; ++i) {
            shapes[i].dims.nbDims = inputs[i].nbDims;
            for (int32_t axis = 0; axis < inputs[i].nbDims; ++axis)
                if (inputs[i].d[axis]->isConstant())
                    shapes[i].dims.d[axis] = inputs[i].d[axis]->getConstantValue();
                else
                    open.push_back({i, axis});
        }
        std::string reason;
        for (Equal equal : {Equal::none, Equal::of_an_axis, Equal::all}) {
            FlagperfOutput answers[2];
            if (!operation.answer_examples(shapes, open, equal, answers, reason))
                continue;
            outputs[0].nbDims = answers[0].rank;
            for (int32_t axis = 0; axis < answers[0].rank; ++axis) {
                const int64_t sizes[2] = {answers[0].shape[axis], answers[1].shape[axis]};
                const IDimensionExpr *size = sizes[0] == sizes[1] ? builder.constant(sizes[0]) : nullptr;
                for (size_t place = 0; place < open.size() && !size; ++place)
                    if (sizes[0] == example_size(open, place, equal, 0) &&
                        sizes[1] == example_size(open, place, equal, 1))
                        size = inputs[open[place].input].d[open[place].axis];
                if (!size)
                    return fail("size " + std::to_string(axis) +
                                " of its output is computed from sizes that are not known when the engine is built; "
                                "fix the sizes of the inputs");
                outputs[0].d[axis] = size;
            }
            return 0;
        }
        return fail(reason);
    }

    int32_t onShapeChange(PluginTensorDesc const *inputs, int32_t input_count, PluginTensorDesc const *outputs,
                          int32_t output_count) noexcept override
    {
        if (output_count != 1)
            return fail("it has one output, not " + std::to_string(output_count));
        FlagperfOutput answer{};
        std::string reason;
        if (!operation.ask(described(inputs, input_count), answer, reason))
            return fail(reason);
        const Dims &declared = outputs[0].dims;
        bool same = answer.rank == declared.nbDims && answer.element_type == onnx_type(outputs[0].type);
        for (int32_t axis = 0; same && axis < declared.nbDims; ++axis)
            same = answer.shape[axis] == declared.d[axis];
        if (!same)
            return fail("its output does not have the shape and type for which the engine was built");
        this->input_count = input_count;
        return 0;
    }

    int32_t enqueue(PluginTensorDesc const *input_descriptions, PluginTensorDesc const *output_descriptions,
                    void const *const *inputs, void *const *outputs, void *, cudaStream_t stream) noexcept override
    {
        if (input_count < 0)
            return fail("onShapeChange was not called");
        const std::vector<Shape> input_shapes = described(input_descriptions, input_count);
        const std::vector<Shape> output_shapes = described(output_descriptions, 1);
        std::vector<FlagperfTensor> arguments = tensors(input_shapes), results = tensors(output_shapes);
        for (size_t i = 0; i < arguments.size(); ++i)
            arguments[i].data = const_cast<void *>(inputs[i]);
        results[0].data = outputs[0];
        const char *reason = operation.run(arguments, results[0], stream);
        return reason ? fail(reason) : 0;
    }

    IPluginV3 *attachToContext(IPluginResourceContext *) noexcept override { return clone(); }

    PluginFieldCollection const *getFieldsToSerialize() noexcept override
    {
        fields.clear();
        for (const FlagperfAttribute &attribute : operation.attributes)
            fields.emplace_back(attribute.name, &attribute.integer, PluginFieldType::kUNKNOWN, SERIALIZED_BYTES);
        collection = {int32_t(fields.size()), fields.data()};
        return &collection;
    }

    /// The bytes of an attribute in an engine: its integer and its number.
    static constexpr int32_t SERIALIZED_BYTES = sizeof(int64_t) + sizeof(double);
    static_assert(offsetof(FlagperfAttribute, number) == offsetof(FlagperfAttribute, integer) + sizeof(int64_t));

private:
    static std::vector<Shape> described(PluginTensorDesc const *descriptions, int32_t count)
    {
        std::vector<Shape> shapes;
        for (int32_t i = 0; i < count; ++i)
            shapes.push_back({descriptions[i].dims, onnx_type(descriptions[i].type)});
        return shapes;
    }

    const Operator operation;
    /// The number of inputs; -1 before the first shapes.
    int32_t input_count = -1;
    std::vector<PluginField> fields;
    PluginFieldCollection collection;
};

/// Reads an attribute, as the ONNX parser gives it or as an engine contains it. Returns false if it is no single number.
bool read_attribute(const PluginField &field, FlagperfAttribute &attribute)
{
    const auto is = [&](PluginFieldType type, int32_t length) { return field.type == type && field.length == length; };
    const auto copy = [&](auto &value) { std::memcpy(&value, field.data, sizeof value); };
    int32_t integer = 0;
    float number = 0;
    if (is(PluginFieldType::kUNKNOWN, Plugin::SERIALIZED_BYTES)) {
        std::memcpy(&attribute.integer, field.data, Plugin::SERIALIZED_BYTES);
    } else if (is(PluginFieldType::kINT32, 1)) {
        copy(integer);
        attribute.integer = integer;
    } else if (is(PluginFieldType::kFLOAT32, 1)) {
        copy(number);
        attribute.number = double(number);
    } else if (is(PluginFieldType::kINT64, 1)) {
        copy(attribute.integer);
    } else if (is(PluginFieldType::kFLOAT64, 1)) {
        copy(attribute.number);
    } else {
        return false;
    }
    return true;
}

class Creator final : public IPluginCreatorV3One {
public:
    Creator()
    {
        for (const char *name : attribute_names())
            fields.emplace_back(name);
        collection = {int32_t(fields.size()), fields.data()};
    }

    AsciiChar const *getPluginName() const noexcept override { return NAME; }
    AsciiChar const *getPluginVersion() const noexcept override { return VERSION; }
    AsciiChar const *getPluginNamespace() const noexcept override { return DOMAIN; }
    PluginFieldCollection const *getFieldNames() noexcept override { return &collection; }

    IPluginV3 *createPlugin(AsciiChar const *, PluginFieldCollection const *given, TensorRTPhase) noexcept override
    {
        if (!library().missing.empty()) {
            fail(library().missing);
            return nullptr;
        }
        std::vector<FlagperfAttribute> attributes;
        for (int32_t i = 0; given && i < given->nbFields; ++i) {
            const PluginField &field = given->fields[i];
            FlagperfAttribute attribute{nullptr, 0, 0};
            // The operator's own text lives as long as the plug-in.
            for (const char *name : attribute_names())
                if (std::strcmp(name, field.name) == 0)
                    attribute.name = name;
            if (!attribute.name || !read_attribute(field, attribute)) {
                const char *reason = attribute.name ? "is neither an integer nor a number" : "is in no form of operator.yaml";
                fail("the attribute `" + std::string(field.name) + "` " + reason);
                return nullptr;
            }
            attributes.push_back(attribute);
        }
        return new Plugin(std::move(attributes));
    }

private:
    std::vector<PluginField> fields;
    PluginFieldCollection collection;
};

Creator &creator()
{
    static Creator instance;
    return instance;
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

/// Called by IPluginRegistry::loadLibrary, which registers the creators itself.
EXPORT nvinfer1::IPluginCreatorInterface *const *getCreators(int32_t &count)
{
    static nvinfer1::IPluginCreatorInterface *const creators[] = {&creator()};
    count = 1;
    return creators;
}

/// Called by IPluginRegistry::loadLibrary.
EXPORT void setLoggerFinder(nvinfer1::ILoggerFinder *finder)
{
    logger_finder = finder;
}

/// Registers the creator for hosts that open the library without IPluginRegistry::loadLibrary. Returns NULL, or the reason
/// why that is not possible, as static text. Later calls change nothing.
EXPORT const char *flagperf_register_operator()
{
    static const char *const reason = [] {
        nvinfer1::IPluginRegistry *registry = getPluginRegistry ? getPluginRegistry() : nullptr;
        if (!registry)
            return "no registry of plug-ins is in this process: open TensorRT first, with global symbols";
        return registry->registerCreator(creator(), DOMAIN) ? static_cast<const char *>(nullptr)
                                                            : "another build of the operator is registered in this process";
    }();
    return reason;
}
