/* Plug-ins that break the interface, one for each MODE (also one WITHOUT_ENTRY, one that NEEDS_MORE and one that EXITS), and valid ones.
   Each counts its sessions, outputs and buffers that the host has not released. */

#define _POSIX_C_SOURCE 199309L
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "flagperf_plugin.h"

enum {
    GOOD, OTHER_VERSION, SHORT_TABLE, NO_TABLE, NO_SUBMIT, NO_ROLE, NO_PRECISION, NO_NAME, ABORTS, FAULTS,
    HANGS_LOADING, UNAVAILABLE, NO_SESSION, FAILS_SILENTLY, OTHER_NAME, BAD_SPEC, MORE_OUTPUTS, NO_VALUES, HANGS,
    FAULTS_LATER, FAILS_LATER, NO_OUTPUT, OTHER_ROWS, OTHER_TYPE, UNKNOWN_TYPE, OTHER_RANK, NO_SHAPE, NEGATIVE_SHAPE,
    HUGE_SHAPE, NO_DATA, STRIDED, OFFSET, UNALIGNED, NO_STRIDES, ON_DEVICE, OTHER_DLPACK, INPUT_AS_OUTPUT, SHORT_BUFFER,
    LACKS_MEMORY_LOADING, LACKS_MEMORY, NO_NUMBERS, NO_ANSWER, NO_JSON, OTHER_QUESTION, OTHER_INPUTS, BEFORE_QUESTIONS,
    ZEROS, ZEROS_IN_ONE_SAMPLE, COMPUTES_WHILE_COPYING
};

struct FlagperfSession {
    FlagperfValue x, y[2];
};

typedef struct {
    DLManagedTensorVersioned managed;
    int64_t shape[2], strides[2];
    int deleted;
    char bytes[];
} Output;

static FlagperfError error = {.message = "it failed `on purpose`", .hint = "ask for another mode"};
static atomic_int live;

/* Returns the number of sessions, outputs and buffers that are not released. */
int flagperf_test_live(void);
int flagperf_test_live(void) { return live; }

static void hang(void) {
    for (;;) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
}

/* Causes a real memory fault: a signal that is only raised does not end a Rust program. */
static void fault(void) {
    static volatile uintptr_t nowhere = 64;
    *(volatile int *)nowhere = 1;
}

#ifdef EXITS
__attribute__((constructor)) static void leave(void) { _Exit(0); }
#endif

static const FlagperfError *last_error(void) { return MODE == FAILS_SILENTLY ? NULL : &error; }

static FlagperfStatus check(void) { return MODE == UNAVAILABLE ? FLAGPERF_UNAVAILABLE : FLAGPERF_OK; }

static FlagperfStatus load(const FlagperfLoad *load, FlagperfSession **loaded) {
    if (MODE == FAILS_SILENTLY || load->struct_size < sizeof *load) return FLAGPERF_FAILED;
    if (MODE == NO_SESSION) return FLAGPERF_OK;
    error.bytes = 3ull << 30;
    if (MODE == LACKS_MEMORY_LOADING) return FLAGPERF_OUT_OF_MEMORY;
    FlagperfSession *session = calloc(1, sizeof *session);
    session->x = (FlagperfValue){"x", "N,1000,f32"};
    session->y[0] = (FlagperfValue){MODE == OTHER_NAME ? "z" : "y", MODE == BAD_SPEC ? "N,1000,f33" : "N,1000,f32"};
    session->y[1] = (FlagperfValue){"more", "N,f32"};
    live++;
    *loaded = session;
    return FLAGPERF_OK;
}

static const FlagperfValue *inputs(FlagperfSession *session, uint32_t *count) {
    *count = 1;
    return MODE == NO_VALUES ? NULL : &session->x;
}

static const FlagperfValue *outputs(FlagperfSession *session, uint32_t *count) {
    *count = MODE == MORE_OUTPUTS ? 2 : 1;
    return session->y;
}

static FlagperfStatus lend(FlagperfSession *session, uint32_t index, uint64_t bytes, FlagperfBuffer *buffer) {
    (void)session, (void)index;
    *buffer = (FlagperfBuffer){.data = malloc(bytes), .bytes = MODE == SHORT_BUFFER ? bytes - 1 : bytes};
    live++;
    return FLAGPERF_OK;
}

static void give_back(FlagperfSession *session, FlagperfBuffer buffer) {
    (void)session;
    free(buffer.data);
    live--;
}

static void delete_output(DLManagedTensorVersioned *tensor) {
    if (((Output *)tensor)->deleted++) abort();
    free(tensor);
    live--;
}

static FlagperfStatus submit(FlagperfSession *session, DLManagedTensorVersioned *const *given, uint32_t input_count,
                             DLManagedTensorVersioned **made, uint32_t output_count) {
    (void)input_count, (void)output_count;
    if (MODE == HANGS) hang();
    if (MODE == FAULTS_LATER) fault();
    if (MODE == NO_OUTPUT) return FLAGPERF_OK;
    if (MODE == LACKS_MEMORY) return FLAGPERF_OUT_OF_MEMORY;
    made[0] = given[0];
    if (MODE == INPUT_AS_OUTPUT) return FLAGPERF_OK;
    const DLTensor *x = &given[0]->dl_tensor;
    size_t count = (size_t)(x->shape[0] * x->shape[1]), offset = MODE == OFFSET ? 64 : MODE == UNALIGNED ? 1 : 0;
    Output *out = calloc(1, sizeof *out + count * sizeof(float) + offset);
    for (size_t i = 0; i < count; i++) {
        float y = MODE == NO_NUMBERS && i < 3 ? NAN : 2 * ((const float *)x->data)[i] + 1;
        if (MODE == ZEROS || (MODE == ZEROS_IN_ONE_SAMPLE && i < 1000)) y = 0;
        memcpy(out->bytes + offset + i * sizeof y, &y, sizeof y);
    }
    out->managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .manager_ctx = session,
        .deleter = delete_output,
        .dl_tensor = {out->bytes, {kDLCPU, 0}, 2, x->dtype, out->shape, out->strides, offset},
    };
    memcpy(out->shape, x->shape, sizeof out->shape);
    memcpy(out->strides, x->strides, sizeof out->strides);
    DLTensor *y = &out->managed.dl_tensor;
    switch (MODE) {
    case OTHER_ROWS: out->shape[0]--; break;
    case OTHER_TYPE: y->dtype.code = kDLInt; break;
    case UNKNOWN_TYPE: y->dtype.lanes = 4; break;
    case OTHER_RANK: y->ndim = 1, out->strides[0] = 1; break;
    case NO_SHAPE: y->shape = NULL; break;
    case NEGATIVE_SHAPE: out->shape[1] = -1000; break;
    case HUGE_SHAPE: out->shape[1] = INT64_MAX; break;
    case NO_DATA: y->data = NULL; break;
    case STRIDED: out->strides[0] = 1, out->strides[1] = out->shape[0]; break;
    case NO_STRIDES: y->strides = NULL; break;
    case COMPUTES_WHILE_COPYING:
    case ON_DEVICE: y->device.device_type = kDLCUDA; break;
    case OTHER_DLPACK: out->managed.version.major = 9; break;
    default: break;
    }
    live++;
    made[0] = &out->managed;
    return FLAGPERF_OK;
}

static FlagperfStatus finish(FlagperfSession *session) {
    (void)session;
    return MODE == FAILS_LATER ? FLAGPERF_FAILED : FLAGPERF_OK;
}

static FlagperfStatus ask(FlagperfSession *session, const char *question, const char *argument, const char **answer) {
    (void)session;
    if (MODE == NO_JSON) *answer = "{\"layers\": ";
    if (MODE == GOOD && strcmp(question, "echo") == 0) *answer = argument;
    return MODE == OTHER_QUESTION ? FLAGPERF_BAD_OPTION : FLAGPERF_OK;
}

static FlagperfStatus tune(FlagperfSession *session, const char *setting, const char *value) {
    (void)setting;
    session->x.spec = session->y[0].spec = strcmp(value, "2") == 0 ? "2,1000,f32" : "N,1000,f32";
    if (MODE == OTHER_INPUTS) session->x.spec = "many";
    return FLAGPERF_OK;
}

static FlagperfStatus copy_late(FlagperfSession *session, const DLManagedTensorVersioned *tensor, void *data,
                                uint64_t bytes) {
    (void)session;
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    memcpy(data, tensor->dl_tensor.data, bytes);
    return FLAGPERF_OK;
}

static void unload(FlagperfSession *session) {
    free(session);
    live--;
}

static const FlagperfPlugin plugin = {
    .abi_version = MODE == OTHER_VERSION ? 99 : FLAGPERF_ABI_VERSION,
    .struct_size = MODE == SHORT_TABLE         ? 24
                   : MODE == BEFORE_QUESTIONS ? offsetof(FlagperfPlugin, ask)
                                              : sizeof(FlagperfPlugin),
    .name = MODE == NO_NAME ? NULL : "bad",
    .version = "1.0",
    .about = "breaks the interface in one way",
    .roles = MODE == NO_ROLE ? 0 : FLAGPERF_FRAMEWORK | FLAGPERF_COMPILER,
    .artifacts = FLAGPERF_ONNX | FLAGPERF_COMPILED,
    .precisions = MODE == NO_PRECISION ? 0 : FLAGPERF_F32,
    .opset_max = 24,
    .last_error = last_error,
    .check = check,
    .load = load,
    .inputs = inputs,
    .outputs = outputs,
    .lend = lend,
    .give_back = give_back,
    .submit = MODE == NO_SUBMIT ? NULL : submit,
    .sync = finish,
    .copy_to_host = MODE == COMPUTES_WHILE_COPYING ? copy_late : NULL,
    .unload = unload,
    .ask = ask,
    .tune = tune,
};

#ifdef WITHOUT_ENTRY
#define flagperf_plugin another_name
const FlagperfPlugin *flagperf_plugin(void);
#endif

const FlagperfPlugin *flagperf_plugin(void) {
#ifdef NEEDS_MORE
    void no_such_function(void);
    no_such_function();
#endif
    if (MODE == ABORTS) abort();
    if (MODE == FAULTS) fault();
    if (MODE == HANGS_LOADING) hang();
    return MODE == NO_TABLE ? NULL : &plugin;
}
