/* An engine plug-in in plain C: y = scale * x + shift, element by element.

   It loads "compiled" files in a text format of its own. The first line is `affine`, the scale and the shift; the
   second line is the name and the specification of the input, then those of the output:

       affine 2.0 1.0
       x N,3,8,8,f32 y N,3,8,8,f32

   The plug-in lends memory for inputs, and its outputs are in host memory. Scripts can ask for its `factors` and tune
   its `shift`. To build it:

       cc -std=c11 -O2 -shared -fPIC -I runtime/plugin/include runtime/plugin/examples/affine.c -o libaffine.so */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flagperf_plugin.h"

enum { NAME = 64, RANK = 8 };

struct FlagperfSession {
    float scale, shift;
    char answer[NAME];
    char names[2][NAME], specs[2][NAME];
    FlagperfValue values[2];
};

/* An output with its shape and elements, in one allocation. */
typedef struct {
    DLManagedTensorVersioned managed;
    int64_t shape[RANK], strides[RANK];
    float elements[];
} Output;

static _Thread_local char message[256], option[NAME];
static _Thread_local FlagperfError error;

static const FlagperfError *last_error(void) { return &error; }

static FlagperfStatus fail(FlagperfStatus status, const char *what, const char *value) {
    snprintf(message, sizeof message, "%s `%s`", what, value);
    error.message = message;
    return status;
}

static void unload(FlagperfSession *session) { free(session); }

static FlagperfStatus load(const FlagperfLoad *load, FlagperfSession **loaded) {
    error.option = option;
    if (sscanf(load->options, "{\"%63[^\"]", option) == 1)
        return fail(FLAGPERF_BAD_OPTION, "unknown: this engine has no options, but was given", load->options);
    FlagperfSession *session = calloc(1, sizeof *session);
    if (!session) return fail(FLAGPERF_OUT_OF_MEMORY, "cannot allocate a session for", load->path);
    FILE *file = fopen(load->path, "r");
    int found = !file ? 0
                      : fscanf(file, "affine %f %f %63s %63s %63s %63s", &session->scale, &session->shift,
                               session->names[0], session->specs[0], session->names[1], session->specs[1]);
    if (file) fclose(file);
    if (found != 6) {
        unload(session);
        return fail(FLAGPERF_FAILED, "not a file of this engine:", load->path);
    }
    for (int i = 0; i < 2; i++) session->values[i] = (FlagperfValue){session->names[i], session->specs[i]};
    *loaded = session;
    return FLAGPERF_OK;
}

static const FlagperfValue *inputs(FlagperfSession *session, uint32_t *count) {
    *count = 1;
    return &session->values[0];
}

static const FlagperfValue *outputs(FlagperfSession *session, uint32_t *count) {
    *count = 1;
    return &session->values[1];
}

/* A device would lend pinned memory; for a processor, memory aligned to its cache lines is enough. */
static FlagperfStatus lend(FlagperfSession *session, uint32_t index, uint64_t bytes, FlagperfBuffer *buffer) {
    (void)session, (void)index;
    void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    error.bytes = bytes;
    if (!data) return fail(FLAGPERF_OUT_OF_MEMORY, "cannot allocate a buffer for", session->names[0]);
    *buffer = (FlagperfBuffer){.data = data, .bytes = bytes};
    return FLAGPERF_OK;
}

static void give_back(FlagperfSession *session, FlagperfBuffer buffer) {
    (void)session;
    free(buffer.data);
}

static void delete_output(DLManagedTensorVersioned *tensor) { free(tensor); }

static FlagperfStatus submit(FlagperfSession *session, DLManagedTensorVersioned *const *inputs, uint32_t input_count,
                             DLManagedTensorVersioned **outputs, uint32_t output_count) {
    (void)input_count, (void)output_count;
    const DLTensor *x = &inputs[0]->dl_tensor;
    size_t count = 1;
    for (int axis = 0; axis < x->ndim; axis++) count *= (size_t)x->shape[axis];
    if (x->ndim > RANK || x->dtype.code != kDLFloat || x->dtype.bits != 32)
        return fail(FLAGPERF_FAILED, "not a tensor of 32-bit floats with at most 8 dimensions:", session->names[0]);
    error.bytes = sizeof(Output) + count * sizeof(float);
    Output *y = malloc(error.bytes);
    if (!y) return fail(FLAGPERF_OUT_OF_MEMORY, "cannot allocate the output", session->names[1]);
    const float *elements = (const float *)((const char *)x->data + x->byte_offset);
    for (size_t i = 0; i < count; i++) y->elements[i] = session->scale * elements[i] + session->shift;
    y->managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .manager_ctx = session,
        .deleter = delete_output,
        .dl_tensor = {y->elements, {kDLCPU, 0}, x->ndim, x->dtype, y->shape, y->strides, 0},
    };
    memcpy(y->shape, x->shape, (size_t)x->ndim * sizeof *y->shape);
    memcpy(y->strides, x->strides, (size_t)x->ndim * sizeof *y->strides);
    outputs[0] = &y->managed;
    return FLAGPERF_OK;
}

static FlagperfStatus fail_unknown(const char *name, const char *known) {
    snprintf(option, sizeof option, "%s", name);
    error.option = option;
    return fail(FLAGPERF_BAD_OPTION, "unknown; known:", known);
}

static FlagperfStatus ask(FlagperfSession *session, const char *question, const char *argument, const char **answer) {
    (void)argument;
    if (strcmp(question, "factors") != 0) return fail_unknown(question, "factors");
    snprintf(session->answer, NAME, "{\"scale\": %g, \"shift\": %g}", session->scale, session->shift);
    *answer = session->answer;
    return FLAGPERF_OK;
}

static FlagperfStatus tune(FlagperfSession *session, const char *setting, const char *value) {
    if (strcmp(setting, "shift") != 0) return fail_unknown(setting, "shift");
    char *end;
    float shift = strtof(value, &end);
    error.option = "shift";
    if (end == value || *end) return fail(FLAGPERF_BAD_OPTION, "not a number:", value);
    session->shift = shift;
    return FLAGPERF_OK;
}

static uint32_t threads(FlagperfSession *session) {
    (void)session;
    return 1;
}

static const FlagperfPlugin plugin = {
    .abi_version = FLAGPERF_ABI_VERSION,
    .struct_size = sizeof(FlagperfPlugin),
    .name = "affine",
    .version = "1.0",
    .about = "y = scale * x + shift, element by element: an example in plain C",
    .roles = FLAGPERF_COMPILER,
    .artifacts = FLAGPERF_COMPILED,
    .precisions = FLAGPERF_F32,
    .opset_max = 17,
    .last_error = last_error,
    .load = load,
    .inputs = inputs,
    .outputs = outputs,
    .lend = lend,
    .give_back = give_back,
    .submit = submit,
    .threads = threads,
    .unload = unload,
    .ask = ask,
    .tune = tune,
    .options = "[]",
};

const FlagperfPlugin *flagperf_plugin(void) { return &plugin; }
