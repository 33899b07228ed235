/* The compiler @NAME@ as a plug-in. It returns zeros, as the engine `null` does: replace `load_model`, `compute` and
   `unload` with calls of the vendor's library. runtime/plugin/include/flagperf_plugin.h documents each function at its
   type; runtime/plugin/examples/affine.c also lends memory, answers questions and has a setting. To build it:

       cc -O2 -shared -fPIC -I runtime/plugin/include @FOLDER@/@NAME@.c -o @FOLDER@/lib@NAME@.so */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flagperf_plugin.h"

enum { TEXT = 256, RANK = 8, VALUES = 16 };

/* The inputs or the outputs of a model. */
typedef struct {
    uint32_t count;
    char names[VALUES][TEXT], specs[VALUES][TEXT];
    FlagperfValue values[VALUES];
} Values;

struct FlagperfSession {
    Values inputs, outputs;
};

static _Thread_local char message[2 * TEXT];
static _Thread_local FlagperfError error;

static const FlagperfError *last_error(void) { return &error; }

static FlagperfStatus fail(FlagperfStatus status, const char *what, const char *value) {
    snprintf(message, sizeof message, "%s `%.*s`", what, TEXT, value);
    error = (FlagperfError){.message = message};
    return status;
}

/* A part of the ONNX file, which is a protobuf message; and one field of it. */
typedef struct {
    const uint8_t *at, *end;
} Bytes;

typedef struct {
    uint64_t number, value;
    Bytes bytes;
} Field;

static uint64_t varint(Bytes *rest) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && rest->at < rest->end; shift += 7) {
        uint8_t byte = *rest->at++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) break;
    }
    return value;
}

/* Reads the next field; returns 0 at the end of the message. */
static int next(Bytes *rest, Field *field) {
    if (rest->at >= rest->end) return 0;
    uint64_t key = varint(rest), length = 0;
    field->number = key >> 3;
    field->value = 0;
    switch (key & 7) {
    case 0: field->value = varint(rest); break;
    case 1: length = 8; break;
    case 2: length = varint(rest); break;
    case 5: length = 4; break;
    default: return 0;
    }
    if (length > (uint64_t)(rest->end - rest->at)) return 0;
    field->bytes = (Bytes){rest->at, rest->at + length};
    rest->at += length;
    return 1;
}

/* Returns the field of this number in a message, empty if it is absent. */
static Field find(Bytes message, uint64_t number) {
    Field field;
    while (next(&message, &field))
        if (field.number == number) return field;
    return (Field){0};
}

/* Appends a text and a separator, as far as there is room. */
static void append(char *to, Bytes text, const char *separator) {
    size_t used = strlen(to);
    snprintf(to + used, TEXT - used, "%.*s%s", (int)(text.end - text.at), (const char *)text.at, separator);
}

/* Adds a ValueInfoProto: its name (1), and in its type (2, 1) the element type (1) and the sizes (2). */
static int add_value(Values *values, Bytes info) {
    static const char *const types[] = {[1] = "f32", [2] = "u8",  [3] = "i8",   [6] = "i32",
                                        [7] = "i64", [9] = "bool", [10] = "f16", [11] = "f64"};
    if (values->count == VALUES) return 0;
    char *name = values->names[values->count], *spec = values->specs[values->count];
    append(name, find(info, 1).bytes, "");
    Bytes tensor = find(find(info, 2).bytes, 1).bytes, sizes = find(tensor, 2).bytes;
    Field size;
    while (next(&sizes, &size)) {
        Bytes named = find(size.bytes, 2).bytes;
        char number[24];
        int digits = snprintf(number, sizeof number, "%llu", (unsigned long long)find(size.bytes, 1).value);
        append(spec, named.at < named.end ? named : (Bytes){(uint8_t *)number, (uint8_t *)number + digits}, ",");
    }
    uint64_t type = find(tensor, 1).value;
    if (type >= sizeof types / sizeof *types || !types[type]) return 0;
    append(spec, (Bytes){(const uint8_t *)types[type], (const uint8_t *)types[type] + strlen(types[type])}, "");
    values->values[values->count++] = (FlagperfValue){name, spec};
    return 1;
}

/* Reads the graph (7) of a ModelProto: its inputs (11) and outputs (12). A library that compiles ONNX files knows them. */
static int load_model(FlagperfSession *session, Bytes model) {
    Bytes graph = find(model, 7).bytes;
    Field field;
    while (next(&graph, &field)) {
        if (field.number == 11 && !add_value(&session->inputs, field.bytes)) return 0;
        if (field.number == 12 && !add_value(&session->outputs, field.bytes)) return 0;
    }
    return session->inputs.count > 0 && session->outputs.count > 0;
}

static void unload(FlagperfSession *session) { free(session); }

static FlagperfStatus load(const FlagperfLoad *load, FlagperfSession **loaded) {
    struct stat file;
    int descriptor = open(load->path, O_RDONLY);
    if (descriptor < 0 || fstat(descriptor, &file) != 0 || file.st_size == 0)
        return fail(FLAGPERF_FAILED, "cannot read", load->path);
    uint8_t *bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (bytes == MAP_FAILED) return fail(FLAGPERF_FAILED, "cannot read", load->path);
    FlagperfSession *session = calloc(1, sizeof *session);
    int is_loaded = session && load_model(session, (Bytes){bytes, bytes + file.st_size});
    munmap(bytes, (size_t)file.st_size);
    if (!is_loaded) {
        free(session);
        return fail(FLAGPERF_FAILED, "not a model with inputs and outputs that this engine knows:", load->path);
    }
    *loaded = session;
    return FLAGPERF_OK;
}

static const FlagperfValue *inputs(FlagperfSession *session, uint32_t *count) {
    *count = session->inputs.count;
    return session->inputs.values;
}

static const FlagperfValue *outputs(FlagperfSession *session, uint32_t *count) {
    *count = session->outputs.count;
    return session->outputs.values;
}

/* An output with its shape and its elements, in one allocation. */
typedef struct {
    DLManagedTensorVersioned managed;
    int64_t shape[RANK], strides[RANK];
    _Alignas(64) uint8_t elements[];
} Output;

static void delete_output(DLManagedTensorVersioned *tensor) { free(tensor->manager_ctx); }

/* Returns the DLPack type of the last part of a spec. */
static DLDataType element_type(const char *name) {
    uint8_t code = *name == 'f' ? kDLFloat : *name == 'i' ? kDLInt : *name == 'u' ? kDLUInt : kDLBool;
    return (DLDataType){code, (uint8_t)(code == kDLBool ? 8 : atoi(name + 1)), 1};
}

/* Returns zeros for a spec such as `N,1000,f32`, in which `N` stands for the number of rows. */
static DLManagedTensorVersioned *zeros(const char *spec, int64_t rows) {
    int64_t shape[RANK], strides[RANK], count = 1;
    int rank = 0;
    for (const char *comma; (comma = strchr(spec, ',')) && rank < RANK; spec = comma + 1)
        shape[rank++] = *spec >= '0' && *spec <= '9' ? atoll(spec) : rows;
    for (int axis = rank - 1; axis >= 0; axis--) strides[axis] = count, count *= shape[axis];
    DLDataType type = element_type(spec);
    size_t bytes = (size_t)count * type.bits / 8;
    Output *output = aligned_alloc(64, (sizeof *output + bytes + 63) / 64 * 64);
    if (!output) return NULL;
    memset(output, 0, sizeof *output + bytes);
    memcpy(output->shape, shape, sizeof *shape * (size_t)rank);
    memcpy(output->strides, strides, sizeof *strides * (size_t)rank);
    output->managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .manager_ctx = output,
        .deleter = delete_output,
        .dl_tensor = {output->elements, {kDLCPU, 0}, rank, type, output->shape, output->strides, 0},
    };
    return &output->managed;
}

static FlagperfStatus compute(FlagperfSession *session, DLManagedTensorVersioned *const *inputs, uint32_t input_count,
                              DLManagedTensorVersioned **outputs, uint32_t output_count) {
    const DLTensor *first = &inputs[0]->dl_tensor;
    int64_t rows = input_count && first->ndim ? first->shape[0] : 1;
    for (uint32_t i = 0; i < output_count; i++) {
        outputs[i] = zeros(session->outputs.specs[i], rows);
        if (!outputs[i]) {
            for (uint32_t made = 0; made < i; made++) delete_output(outputs[made]);
            return fail(FLAGPERF_OUT_OF_MEMORY, "cannot allocate the output", session->outputs.specs[i]);
        }
    }
    return FLAGPERF_OK;
}

static const FlagperfPlugin plugin = {
    .abi_version = FLAGPERF_ABI_VERSION,
    .struct_size = sizeof(FlagperfPlugin),
    .name = "@NAME@",
    .version = "0.1",
    .about = "returns zeros",
    .roles = FLAGPERF_COMPILER,
    .artifacts = FLAGPERF_ONNX,
    .precisions = FLAGPERF_F32 | FLAGPERF_F16,
    .opset_max = 21,
    .last_error = last_error,
    .load = load,
    .inputs = inputs,
    .outputs = outputs,
    .submit = compute,
    .unload = unload,
    /* None besides `threads`; `options` in the header describes an entry. */
    .options = "[]",
};

const FlagperfPlugin *flagperf_plugin(void) { return &plugin; }
