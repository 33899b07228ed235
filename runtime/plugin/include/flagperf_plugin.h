/* The interface of flagperf's engine plug-ins: a shared library that exports

       const FlagperfPlugin *flagperf_plugin(void);

   Generated from src/abi.rs of the crate flagperf-plugin; UPDATE_API=1 cargo test writes it anew. */

#ifndef FLAGPERF_PLUGIN_H
#define FLAGPERF_PLUGIN_H

#include <stdint.h>
#include "dlpack/dlpack.h"

/**
 * Version of this interface. It changes whenever the interface changes, except when fields are appended to
 * `FlagperfPlugin` or `FlagperfLoad`: `struct_size` shows which of their fields exist.
 */
#define FLAGPERF_ABI_VERSION 1

/**
 * In `roles`: the engine can be a framework, which runs the validation phase. The host gives it an ONNX file.
 */
#define FLAGPERF_FRAMEWORK 1

/**
 * In `roles`: the engine can be a compiler, which runs the inference phase.
 */
#define FLAGPERF_COMPILER 2

/**
 * In `artifacts`, and as the kind of a file to load: an ONNX file. Large weights are in a file beside it. The host has
 * checked that the file is complete and that the plug-in declares its floating-point types and operator set.
 */
#define FLAGPERF_ONNX 1

/**
 * In `artifacts`, and as the kind of a file to load: a file that the engine wrote earlier. The host does not read it.
 */
#define FLAGPERF_COMPILED 2

/**
 * In `artifacts` only: the engine computes the operator `Gradient` of the domain `ai.onnx.preview.training`. It then gets a
 * training step as a `FLAGPERF_ONNX` file with this operator in place of the gradients, with attentions and batch
 * normalizations (in training mode) as single operators, and with the operators `Norm` and `Update` of the domain `flagperf`,
 * which docs/decisions/42-training-step.md describes.
 */
#define FLAGPERF_GRADIENT 4

/**
 * In `artifacts` only: an output of one session may be an input of another one, as long as both compute on the same device.
 */
#define FLAGPERF_SHARED_TENSORS 8

/**
 * In `precisions`, and as the type to compute in: 64-bit floating point.
 */
#define FLAGPERF_F64 1

/**
 * In `precisions`, and as the type to compute in: 32-bit floating point.
 */
#define FLAGPERF_F32 2

/**
 * In `precisions`, and as the type to compute in: 16-bit floating point of IEEE 754.
 */
#define FLAGPERF_F16 4

/**
 * In `precisions`, and as the type to compute in: bfloat16, the upper half of 32-bit floating point.
 */
#define FLAGPERF_BF16 8

/**
 * A loaded model. Its contents belong to the plug-in.
 */
typedef struct FlagperfSession FlagperfSession;

/**
 * Why a call failed. Fields that a status does not use may be null or 0.
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
   * With `FLAGPERF_BAD_OPTION`: the name of the option, question or setting.
   */
  const char *option;
  /**
   * With `FLAGPERF_UNKNOWN_OPERATOR`: the operator.
   */
  const char *op;
  /**
   * With `FLAGPERF_UNKNOWN_OPERATOR`: the node, or null.
   */
  const char *node;
  /**
   * With `FLAGPERF_OUT_OF_MEMORY`: the number of bytes that were requested.
   */
  uint64_t bytes;
} FlagperfError;

/**
 * Returns why the last failed call on this thread failed. Not null after a failed call. The texts live until the next
 * call on this thread.
 */
typedef const FlagperfError *(*FlagperfLastError)(void);

/**
 * The result of a call.
 */
typedef int32_t FlagperfStatus;

/**
 * Checks whether the engine works on this machine: driver, device, libraries.
 */
typedef FlagperfStatus (*FlagperfCheck)(void);

/**
 * A model to load, and the settings for it.
 */
typedef struct {
  /**
   * Size of this struct in the host. Fields beyond this size do not exist.
   */
  uint32_t struct_size;
  /**
   * `FLAGPERF_ONNX` or `FLAGPERF_COMPILED`: one of those that `artifacts` declares.
   */
  uint32_t artifact;
  /**
   * The path of the model file. The file does not change until the session is unloaded.
   */
  const char *path;
  /**
   * The engine's own options from the configuration, as the text of one JSON object. An unknown option must be an
   * error; it must not be ignored.
   */
  const char *options;
  /**
   * Number of threads to compute with; 0 means as many as the process may use.
   */
  uint32_t threads;
  /**
   * Rows of a full batch. Other numbers of rows may follow if the model's first dimension is not fixed.
   */
  uint32_t batch_size;
  /**
   * The type to compute in (`FLAGPERF_F32`): one of those that `precisions` declares. The engine must not use
   * another.
   */
  uint32_t precision;
  /**
   * The folder of the case's logs and results, for files that are worth keeping; null if there is none.
   */
  const char *log_folder;
} FlagperfLoad;

/**
 * Loads a model; a compiler also compiles it. `session` is written only on success.
 */
typedef FlagperfStatus (*FlagperfLoadModel)(const FlagperfLoad *load, FlagperfSession **session);

/**
 * An input or output of a model.
 */
typedef struct {
  /**
   * The name in the model.
   */
  const char *name;
  /**
   * The dimensions, then the element type: `N,3,224,224,f32`. A dimension is a size, a name that stands for one size
   * in the whole model, or `?`. The types are `f64`, `f32`, `f16`, `bf16`, `i64`, `i32`, `i16`, `i8`, `u64`, `u32`,
   * `u16`, `u8` and `bool`.
   */
  const char *spec;
} FlagperfValue;

/**
 * Returns the inputs or the outputs of the model, in the model's order. The texts live until the session is tuned or
 * unloaded.
 */
typedef const FlagperfValue *(*FlagperfValues)(FlagperfSession *session, uint32_t *count);

/**
 * Memory that a session lends. The host fills it and passes it back as an input.
 */
typedef struct {
  /**
   * Host memory in the form that the engine reads fastest (pinned, shared), aligned to 8 bytes; null if the host's
   * own memory serves as well.
   */
  void *data;
  /**
   * Size in bytes: exactly the size that was requested.
   */
  uint64_t bytes;
  /**
   * For the plug-in's own use.
   */
  void *handle;
} FlagperfBuffer;

/**
 * Lends memory of `bytes` bytes for the input at `index`.
 */
typedef FlagperfStatus (*FlagperfLend)(FlagperfSession *session,
                                       uint32_t index,
                                       uint64_t bytes,
                                       FlagperfBuffer *buffer);

/**
 * Takes back memory that was lent.
 */
typedef void (*FlagperfGiveBack)(FlagperfSession *session, FlagperfBuffer buffer);

/**
 * Starts to compute. The counts are those of the model.
 *
 * Inputs are borrowed: they do not change until `sync` has returned, and the plug-in must not call their deleters.
 * Each input is either dense, row-major and in host memory (its `manager_ctx` is then null), or it is an output of an
 * earlier submit of this session, passed by the same pointer.
 *
 * Outputs belong to the host: it calls the deleter of each output exactly once, from any thread, before it unloads the
 * session. Outputs have the types and shapes that the session declares. They may be incomplete until `sync` has
 * returned. An output in host memory (`kDLCPU`, `kDLCUDAHost`, `kDLROCMHost`) is dense, row-major and aligned to its
 * element size, and does not change until its deleter is called. The host reads any other output only through
 * `copy_to_host`. After a failure the host takes no outputs.
 */
typedef FlagperfStatus (*FlagperfSubmit)(FlagperfSession *session,
                                         DLManagedTensorVersioned *const *inputs,
                                         uint32_t input_count,
                                         DLManagedTensorVersioned **outputs,
                                         uint32_t output_count);

/**
 * Waits until all submitted work is complete.
 */
typedef FlagperfStatus (*FlagperfSync)(FlagperfSession *session);

/**
 * Copies an output that is not in host memory to `to`, dense and row-major. `bytes` is the exact size.
 */
typedef FlagperfStatus (*FlagperfCopyToHost)(FlagperfSession *session,
                                             const DLManagedTensorVersioned *tensor,
                                             void *to,
                                             uint64_t bytes);

/**
 * Returns the number of bytes in use on the device; `UINT64_MAX` if it is unknown.
 */
typedef uint64_t (*FlagperfDeviceMemory)(FlagperfSession *session);

/**
 * Returns the name of the device: `cpu`, `cuda:0 NVIDIA H200`. The text lives until the next call on the session.
 */
typedef const char *(*FlagperfDevice)(FlagperfSession *session);

/**
 * Returns the number of threads that actually compute; 0 if it is unknown.
 */
typedef uint32_t (*FlagperfThreads)(FlagperfSession *session);

/**
 * Ends a session. By then the host has deleted all its outputs and given back all its memory.
 */
typedef void (*FlagperfUnload)(FlagperfSession *session);

/**
 * Answers a script's question about the loaded model. `question` is a name (`layers`); `argument` and the answer are
 * JSON, and `argument` is `null` if there is none. The answer lives until the next call on the session.
 *
 * Returns `FLAGPERF_BAD_OPTION` for an unknown question, with the question as `option`; `message` lists the known
 * ones.
 */
typedef FlagperfStatus (*FlagperfAsk)(FlagperfSession *session,
                                      const char *question,
                                      const char *argument,
                                      const char **answer);

/**
 * Changes a setting of the loaded model for later submits. `setting` is a name (`profile`); `value` is JSON. The host
 * then requests the inputs and outputs again.
 *
 * Returns `FLAGPERF_BAD_OPTION` for an unknown setting, with the setting as `option`; `message` lists the known ones.
 */
typedef FlagperfStatus (*FlagperfTune)(FlagperfSession *session,
                                       const char *setting,
                                       const char *value);

/**
 * A plug-in: its description and its functions. The table is constant and lives as long as the library.
 *
 * Calls on one session never overlap, but may come from different threads; only deleters may be called at any time.
 * Calls on different sessions may overlap. No exception may leave a function. The host keeps what a plug-in writes to
 * standard output and standard error in its log.
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
   * Version of the library behind the plug-in.
   */
  const char *version;
  /**
   * One line that describes the engine.
   */
  const char *about;
  /**
   * `FLAGPERF_FRAMEWORK`, `FLAGPERF_COMPILER`, or both.
   */
  uint32_t roles;
  /**
   * The kinds of files that `load` accepts. A framework must accept ONNX files.
   */
  uint32_t artifacts;
  /**
   * The floating-point types that the engine computes in.
   */
  uint32_t precisions;
  /**
   * Highest supported version of the ONNX operator set.
   */
  int64_t opset_max;
  /**
   * Required.
   */
  FlagperfLastError last_error;
  /**
   * Null if the engine works wherever its library loads.
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
   * Null if the host's own memory serves as well.
   */
  FlagperfLend lend;
  /**
   * Required if there is `lend`.
   */
  FlagperfGiveBack give_back;
  /**
   * Required.
   */
  FlagperfSubmit submit;
  /**
   * Null if `submit` returns after all work is complete.
   */
  FlagperfSync sync;
  /**
   * Null if every output is in host memory.
   */
  FlagperfCopyToHost copy_to_host;
  /**
   * Null if the plug-in does not know it.
   */
  FlagperfDeviceMemory device_memory;
  /**
   * Null if the device is the processor.
   */
  FlagperfDevice device;
  /**
   * Null if the plug-in does not know it.
   */
  FlagperfThreads threads;
  /**
   * Required.
   */
  FlagperfUnload unload;
  /**
   * Null if the engine answers no questions.
   */
  FlagperfAsk ask;
  /**
   * Null if a loaded model has no settings.
   */
  FlagperfTune tune;
  /**
   * The options of the engine besides `threads`, as the text of a JSON array; null if the host shall not check them.
   * Then the engine rejects unknown options when it loads a model. An entry has a `name`, a `kind` (`boolean`,
   * `number`, `integer`, `text`, `choice`, `list`, `map`, `any`), `min` and `max` of a number if it has bounds, the
   * `values` of a choice, a `default`, and `about`, one sentence:
   * `[{"name": "level", "kind": "integer", "min": 0, "max": 3, "default": 2, "about": "how far the graph is rewritten"}]`.
   */
  const char *options;
} FlagperfPlugin;

/**
 * The call succeeded.
 */
#define FLAGPERF_OK 0

/**
 * The call failed; `message` describes why.
 */
#define FLAGPERF_FAILED 1

/**
 * Something is missing on this machine; `hint` describes how to get it.
 */
#define FLAGPERF_UNAVAILABLE 2

/**
 * An allocation failed; `bytes` is the number of bytes that were requested.
 */
#define FLAGPERF_OUT_OF_MEMORY 3

/**
 * The engine does not support an operator of the model; `op` and `node` name it.
 */
#define FLAGPERF_UNKNOWN_OPERATOR 4

/**
 * An option, question or setting is unknown, or its value is not accepted; `option` names it.
 */
#define FLAGPERF_BAD_OPTION 5

/**
 * The requested precision is declared, but not supported with this device or these options; `message` lists those that
 * are.
 */
#define FLAGPERF_LACKS_PRECISION 6

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The one symbol that a plug-in exports. It returns the table of the plug-in.
 */
extern const FlagperfPlugin *flagperf_plugin(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLAGPERF_PLUGIN_H */
