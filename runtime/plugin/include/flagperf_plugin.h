/* The interface of flagperf's engine plug-ins: a shared library that exports

       const FlagperfPlugin *flagperf_plugin(void);

   Generated from src/abi.rs of the crate flagperf-plugin; UPDATE_API=1 cargo test writes it anew. */

#ifndef FLAGPERF_PLUGIN_H
#define FLAGPERF_PLUGIN_H

#include <stdint.h>
#include "dlpack/dlpack.h"

/**
 * Version of this interface. It changes when anything here does, but for what is appended to `FlagperfPlugin` and
 * `FlagperfLoad`: that shows in `struct_size`.
 */
#define FLAGPERF_ABI_VERSION 1

/**
 * In `roles`: it can validate; the host gives it an ONNX file.
 */
#define FLAGPERF_FRAMEWORK 1

/**
 * In `roles`: it can infer.
 */
#define FLAGPERF_COMPILER 2

/**
 * In `artifacts`, and the kind of a file to load: an ONNX file, with its weights beside it when they are large. The
 * host has read it before: it is whole, its types and operator set are among those that the plug-in declares.
 */
#define FLAGPERF_ONNX 1

/**
 * In `artifacts`, and the kind of a file to load: one that the engine made earlier, which the host does not look into.
 */
#define FLAGPERF_COMPILED 2

/**
 * In `precisions`, and the type to compute in: 64 bits.
 */
#define FLAGPERF_F64 1

/**
 * Likewise: 32 bits.
 */
#define FLAGPERF_F32 2

/**
 * Likewise: 16 bits, IEEE 754.
 */
#define FLAGPERF_F16 4

/**
 * Likewise: the upper half of 32 bits.
 */
#define FLAGPERF_BF16 8

/**
 * A loaded model. What is in it is the plug-in's own.
 */
typedef struct FlagperfSession FlagperfSession;

/**
 * Why the last call that did not end with `FLAGPERF_OK` failed.
 */
typedef struct {
  /**
   * What happened: a lower-case fragment with the value in backticks. Never null.
   */
  const char *message;
  /**
   * What to do about it, or null.
   */
  const char *hint;
  /**
   * `FLAGPERF_BAD_OPTION`: the option.
   */
  const char *option;
  /**
   * `FLAGPERF_UNKNOWN_OPERATOR`: the operator.
   */
  const char *op;
  /**
   * `FLAGPERF_UNKNOWN_OPERATOR`: the node, or null.
   */
  const char *node;
  /**
   * `FLAGPERF_OUT_OF_MEMORY`: bytes asked for.
   */
  uint64_t bytes;
} FlagperfError;

/**
 * Why the last call on this thread failed. Never null after such a call; the texts stay until the next call on this
 * thread.
 */
typedef const FlagperfError *(*FlagperfLastError)(void);

/**
 * How a call ended.
 */
typedef int32_t FlagperfStatus;

/**
 * Whether the engine works on this machine: driver, device, libraries.
 */
typedef FlagperfStatus (*FlagperfCheck)(void);

/**
 * What to load, and how.
 */
typedef struct {
  /**
   * Size of this struct in the host; fields beyond it are not there.
   */
  uint32_t struct_size;
  /**
   * `FLAGPERF_ONNX` or `FLAGPERF_COMPILED`: one of those in `artifacts`.
   */
  uint32_t artifact;
  /**
   * The file. It stays as it is until the session is unloaded.
   */
  const char *path;
  /**
   * The engine's own options from the configuration: the text of one JSON object. An option that the engine does not
   * know is an error, never ignored.
   */
  const char *options;
  /**
   * Threads to compute with; 0 is as many as the process may use.
   */
  uint32_t threads;
  /**
   * Rows of a full batch. Other numbers of rows may follow when the model's first dimension is open.
   */
  uint32_t batch_size;
  /**
   * The type to compute in (`FLAGPERF_F32`): one of those in `precisions`. Computing in another one is an error.
   */
  uint32_t precision;
  /**
   * The folder of the case's logs and results, for files that are worth keeping; null when there is none.
   */
  const char *log_folder;
} FlagperfLoad;

/**
 * Loads, and for a compiler compiles, a model. `session` is written on success only.
 */
typedef FlagperfStatus (*FlagperfLoadModel)(const FlagperfLoad *load, FlagperfSession **session);

/**
 * An input or output of a model.
 */
typedef struct {
  /**
   * Its name in the model.
   */
  const char *name;
  /**
   * Dimensions, then the element type: `N,3,224,224,f32`. A dimension is a size, a name that stands for one size in
   * the whole model, or `?`. The types are `f64`, `f32`, `f16`, `bf16`, `i64`, `i32`, `i8`, `u8`, `bool`.
   */
  const char *spec;
} FlagperfValue;

/**
 * What the model is fed, or gives, in the order of the model. The texts stay until the session is tuned or unloaded.
 */
typedef const FlagperfValue *(*FlagperfValues)(FlagperfSession *session, uint32_t *count);

/**
 * Memory that a session lends, to be filled by the host and handed back to it as an input.
 */
typedef struct {
  /**
   * Host memory (pinned, shared, what is taken fastest), aligned to 8 bytes; null when the host's own is as good.
   */
  void *data;
  /**
   * Its size: exactly what was asked for.
   */
  uint64_t bytes;
  /**
   * The plug-in's own.
   */
  void *handle;
} FlagperfBuffer;

/**
 * Lends memory of `bytes` for the input at `index`.
 */
typedef FlagperfStatus (*FlagperfLend)(FlagperfSession *session,
                                       uint32_t index,
                                       uint64_t bytes,
                                       FlagperfBuffer *buffer);

/**
 * Takes lent memory back.
 */
typedef void (*FlagperfGiveBack)(FlagperfSession *session, FlagperfBuffer buffer);

/**
 * Begins to compute. Counts are those of the model.
 *
 * Inputs are lent: they stay as they are until `sync` has returned, and their deleters are not to be called. Each is
 * either dense, row-major and in host memory (its `manager_ctx` is null), or an output of an earlier submit of this
 * session: the very pointer.
 *
 * Outputs are the host's: it calls the deleter of each exactly once, from any thread, before the session is unloaded.
 * They are of the types and shapes that the session declares. They may be under way until `sync` has returned. One in
 * host memory (`kDLCPU`, `kDLCUDAHost`, `kDLROCMHost`) is dense, row-major and aligned to its elements, and does not
 * change until its deleter is called; any other is read by `copy_to_host` only. After a failure the host takes none.
 */
typedef FlagperfStatus (*FlagperfSubmit)(FlagperfSession *session,
                                         DLManagedTensorVersioned *const *inputs,
                                         uint32_t input_count,
                                         DLManagedTensorVersioned **outputs,
                                         uint32_t output_count);

/**
 * Waits until everything submitted is computed.
 */
typedef FlagperfStatus (*FlagperfSync)(FlagperfSession *session);

/**
 * Copies an output that is not in host memory to `to`: dense, row-major, exactly `bytes`.
 */
typedef FlagperfStatus (*FlagperfCopyToHost)(FlagperfSession *session,
                                             const DLManagedTensorVersioned *tensor,
                                             void *to,
                                             uint64_t bytes);

/**
 * Bytes in use on the device; `UINT64_MAX` when unknown.
 */
typedef uint64_t (*FlagperfDeviceMemory)(FlagperfSession *session);

/**
 * The device: `cpu`, `cuda:0 NVIDIA H200`. The text stays until the next call on the session.
 */
typedef const char *(*FlagperfDevice)(FlagperfSession *session);

/**
 * Threads that it really computes with; 0 when it does not say.
 */
typedef uint32_t (*FlagperfThreads)(FlagperfSession *session);

/**
 * Ends a session. No output and no lent memory of it is with the host any more.
 */
typedef void (*FlagperfUnload)(FlagperfSession *session);

/**
 * Answers a question of a script's about the loaded model, as JSON. `question` is a name (`layers`); `argument` is JSON,
 * `null` when there is none. The answer stays until the next call on the session.
 *
 * `FLAGPERF_BAD_OPTION` with the question as `option` when it is not one that the engine answers; `message` says which are.
 */
typedef FlagperfStatus (*FlagperfAsk)(FlagperfSession *session,
                                      const char *question,
                                      const char *argument,
                                      const char **answer);

/**
 * Changes a setting of the loaded model, for what is submitted from now on. `setting` is a name (`profile`); `value` is
 * JSON. The host then asks for inputs and outputs again.
 *
 * `FLAGPERF_BAD_OPTION` as with a question.
 */
typedef FlagperfStatus (*FlagperfTune)(FlagperfSession *session,
                                       const char *setting,
                                       const char *value);

/**
 * A plug-in: what it is, and its functions. Constant; it stays as long as the library.
 *
 * Calls on one session never overlap, but may come from different threads; only deleters may run at any time. Calls on
 * different sessions may overlap. No exception may leave a function. What is written to standard output or error is
 * kept in the host's log.
 */
typedef struct {
  /**
   * `FLAGPERF_ABI_VERSION` of the header that the plug-in was built with.
   */
  uint32_t abi_version;
  /**
   * `sizeof(FlagperfPlugin)` in that header.
   */
  uint32_t struct_size;
  /**
   * Lower-case name: `mychip`.
   */
  const char *name;
  /**
   * Version of the library behind it.
   */
  const char *version;
  /**
   * One line on what it is.
   */
  const char *about;
  /**
   * `FLAGPERF_FRAMEWORK`, `FLAGPERF_COMPILER`, or both.
   */
  uint32_t roles;
  /**
   * The kinds of files that `load` takes. A framework takes ONNX files.
   */
  uint32_t artifacts;
  /**
   * The floating-point types that it computes in.
   */
  uint32_t precisions;
  /**
   * Highest version of the ONNX operator set that it knows.
   */
  int64_t opset_max;
  /**
   * Required.
   */
  FlagperfLastError last_error;
  /**
   * Null when the engine works wherever its library loads.
   */
  FlagperfCheck check;
  /**
   * Required.
   */
  FlagperfLoadModel load;
  /**
   * Required.
   */
  FlagperfValues inputs;
  /**
   * Required.
   */
  FlagperfValues outputs;
  /**
   * Null when the host's own memory is as good as any.
   */
  FlagperfLend lend;
  /**
   * Required beside `lend`.
   */
  FlagperfGiveBack give_back;
  /**
   * Required.
   */
  FlagperfSubmit submit;
  /**
   * Null when `submit` computes to the end.
   */
  FlagperfSync sync;
  /**
   * Null when every output is in host memory.
   */
  FlagperfCopyToHost copy_to_host;
  /**
   * Null when it does not say.
   */
  FlagperfDeviceMemory device_memory;
  /**
   * Null for a processor.
   */
  FlagperfDevice device;
  /**
   * Null when it does not say.
   */
  FlagperfThreads threads;
  /**
   * Required.
   */
  FlagperfUnload unload;
  /**
   * Null when it answers no questions.
   */
  FlagperfAsk ask;
  /**
   * Null when nothing of a loaded model can be changed.
   */
  FlagperfTune tune;
} FlagperfPlugin;

/**
 * It did what it was asked to do.
 */
#define FLAGPERF_OK 0

/**
 * It did not; `message` says why.
 */
#define FLAGPERF_FAILED 1

/**
 * Something is missing on this machine; `hint` says how to get it.
 */
#define FLAGPERF_UNAVAILABLE 2

/**
 * Memory could not be had; `bytes` says how much was asked for.
 */
#define FLAGPERF_OUT_OF_MEMORY 3

/**
 * The model has an operator that the engine lacks: `op`, `node`.
 */
#define FLAGPERF_UNKNOWN_OPERATOR 4

/**
 * An option, question or setting that the engine does not know, or a value that it does not take: `option`.
 */
#define FLAGPERF_BAD_OPTION 5

/**
 * The type to compute in is declared, and lacking with this device or these options; `message` says which it has there.
 */
#define FLAGPERF_LACKS_PRECISION 6

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The one symbol that a plug-in exports: returns its table.
 */
extern const FlagperfPlugin *flagperf_plugin(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLAGPERF_PLUGIN_H */
