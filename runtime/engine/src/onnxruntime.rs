//! ONNX Runtime: a compiler in a C library that is opened at run time, with its execution providers by name.
//!
//! Knows nothing about vendors, and never falls back to another provider than the requested one. The record contains
//! the number of nodes that each provider runs.

mod copy;
mod device;
mod library;
mod operators;
mod options;
mod placement;
mod profile;
mod provider;
mod replay;
mod request;
mod session;
mod tensor;

use super::model;
use super::{Artifact, Engine, EngineError, LoadOptions, Session, Unavailable};
use flagperf_core::description::{Delivery, EngineDescription, Roles};
use flagperf_core::tensor::DType;

use options::{OrtOptions, ProviderChoice};
use session::OrtSession;

/// The extensions of the files that ONNX Runtime loads without compiling them.
const COMPILED_EXTENSIONS: &[&str] = &["onnx", "ort"];

/// The compiler ONNX Runtime.
#[derive(Debug)]
pub struct OnnxRuntime;

impl Engine for OnnxRuntime {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            roles: Roles { framework: false, compiler: true },
            precisions: &[DType::F32, DType::F16],
            opset_max: 23,
            compiled_extensions: COMPILED_EXTENSIONS,
            delivery: Delivery::Installed,
            options: Some(options::OPTIONS),
            ..EngineDescription::unrestricted(
                "onnxruntime",
                "ONNX Runtime through its C library: CPUs, CUDA, TensorRT and its other providers by name",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        library::open(None).map(|library| library.version.clone())
    }

    fn check_with(&self, options: &LoadOptions) -> Result<String, EngineError> {
        let ProviderChoice { provider, provider_library, library } = ProviderChoice::read(self, options)?;
        let opened = library::open(library.as_deref())?;
        provider.check_available(&opened.environment, provider_library.as_deref())?;
        Ok(opened.version)
    }

    fn check_option_combinations(&self, options: &LoadOptions) -> Result<(), EngineError> {
        OrtOptions::read(self, options).map(drop)
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let settings = OrtOptions::read(self, options)?;
        let source;
        let mut declared = None;
        let path = match artifact {
            Artifact::Onnx(path) => {
                source = model::read_lowered(&self.description(), path, &options.scratch)?;
                model::check(self, &source.graph, options.precision)?;
                declared = Some(&source);
                &source.path
            }
            Artifact::Compiled(path) if self.description().accepts_compiled_name(path) => path,
            _ => return Err(settings.artifact_error("an ONNX file or a file that it wrote (.onnx, .ort)", artifact)),
        };
        if let Some(supported) = settings.provider.precision_alternative(options.precision) {
            let (engine, requested) = (self.name(), options.precision);
            let error = EngineError::Precision { engine, requested, first_tensor: None, supported };
            return Err(match declared {
                Some(source) => model::name_first_tensor(error, &source.graph),
                None => error,
            });
        }
        let graph = declared.map(|source| &source.graph);
        let session = OrtSession::load(path, &settings, graph, &options.folder)?;
        Ok(Box::new(match declared {
            Some(source) => session.with_declared(source)?,
            None => session,
        }))
    }
}

/// Converts an error of ONNX Runtime.
fn to_engine_error<R>(error: &ort::Error<R>) -> EngineError {
    classify_error(error.message())
}

/// Recognizes failed allocations and unsupported operators in an error message of ONNX Runtime.
fn classify_error(message: &str) -> EngineError {
    let between = |begin: &str, end: &str| message.split_once(begin)?.1.split_once(end).map(|(inside, _)| inside);
    if let Some((_, bytes)) = message.split_once("requested buffer of size ") {
        let digits: String = bytes.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(bytes) = digits.parse() {
            return EngineError::OutOfMemory { bytes };
        }
    }
    let after = |words: &str| message.split_once(words).and_then(|(_, rest)| rest.split(' ').next());
    if let Some(op) = after("Could not find an implementation for ").or_else(|| after("No Op registered for ")) {
        let node = between("node with name '", "'").or_else(|| between("In Node, (\"", "\"")).unwrap_or_default();
        return EngineError::Operator { engine: "onnxruntime", op: op.to_owned(), node: node.to_owned() };
    }
    EngineError::Failed(format!("ONNX Runtime: {message}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn refusal(extra: serde_json::Value, precision: DType) -> String {
        let options =
            LoadOptions { precision, extra: serde_json::from_value(extra).unwrap(), ..LoadOptions::default() };
        OnnxRuntime.load(Artifact::Compiled(Path::new("no/such.onnx")), &options).err().unwrap().to_string()
    }

    #[test]
    fn an_unknown_provider_lists_the_nearest_known_one() {
        let error = refusal(json!({"provider": "cudda"}), DType::F32);
        assert!(error.starts_with("engine `onnxruntime`: option `provider`: unknown provider `cudda` (known: cpu, "));
        assert!(error.contains("; nearest: cuda); any other provider is requested by"), "{error}");
    }

    #[test]
    fn an_unknown_optimization_level_lists_the_known_ones() {
        let error = refusal(json!({"graph_optimization": "most"}), DType::F32);
        assert!(
            error
                .ends_with("option `graph_optimization`: unknown value `most` (known: disabled, basic, extended, all)"),
            "{error}"
        );
    }

    #[test]
    fn an_option_that_cannot_be_converted_to_a_string_is_named() {
        let error = refusal(json!({"session_options": {"a": [1]}}), DType::F32);
        let expected = "option `session_options`: `a`: `[1]` is not a string, a number, true or false";
        assert!(error.ends_with(expected), "{error}");
    }

    /// Returns the options that a provider is given, the user's own included.
    fn effective_options(provider: &str, own: serde_json::Value, precision: DType) -> serde_json::Value {
        let extra = serde_json::from_value(json!({"provider": provider, "provider_options": own})).unwrap();
        let options = LoadOptions { precision, extra, ..LoadOptions::default() };
        json!(OrtOptions::read(&OnnxRuntime, &options).unwrap().provider_options)
    }

    #[test]
    fn fp32_is_computed_in_fp32_unless_the_user_sets_another_option() {
        let narrower = [
            ("cuda", "use_tf32", "0"),
            ("qnn", "enable_htp_fp16_precision", "0"),
            ("cann", "precision_mode", "must_keep_origin_dtype"),
            ("openvino", "precision", "FP32"),
        ];
        for (provider, option, value) in narrower {
            assert_eq!(effective_options(provider, json!({}), DType::F32), json!({option: value}), "{provider}");
            if option != "use_tf32" {
                let own = effective_options(provider, json!({option: true}), DType::F32);
                assert_eq!(own, json!({option: "1"}), "{provider}");
            }
            assert_eq!(effective_options(provider, json!({}), DType::F16), json!({}), "{provider}");
        }
    }

    #[test]
    fn only_the_precision_of_the_case_decides_whether_products_are_computed_in_tf32() {
        let read = |extra: serde_json::Value, precision| {
            let extra = serde_json::from_value(extra).unwrap();
            let options = LoadOptions { precision, extra, ..LoadOptions::default() };
            let read = OrtOptions::read(&OnnxRuntime, &options);
            read.map(|options| json!(options.provider_options)).map_err(|error| error.to_string())
        };
        let cuda = |own: serde_json::Value, tf32: bool| {
            read(json!({"provider": "cuda", "provider_options": own, "tf32": tf32}), DType::F32)
        };
        assert_eq!(cuda(json!({}), true), Ok(json!({"use_tf32": "1"})));
        assert_eq!(cuda(json!({"use_tf32": 1}), true), Ok(json!({"use_tf32": "1"})));
        for (own, tf32) in [(1, false), (0, true)] {
            let error = cuda(json!({"use_tf32": own}), tf32).unwrap_err();
            let expected =
                format!("`use_tf32: {own}` contradicts the case's `precision`, which requires `use_tf32: {}`", 1 - own);
            assert!(error.contains("option `provider_options`: ") && error.contains(&expected), "{error}");
        }
        let half = json!({"provider": "cuda", "provider_options": {"use_tf32": true}});
        assert_eq!(read(half, DType::F16), Ok(json!({"use_tf32": "1"})), "it has no effect there");
        let error = read(json!({"tf32": true}), DType::F32).unwrap_err();
        assert!(
            error.ends_with("option `tf32`: provider `cpu` cannot be asked for TF32, which provider `cuda` can"),
            "{error}"
        );
        let error = read(json!({"provider_options": {"a": 1}}), DType::F32).unwrap_err();
        assert!(error.ends_with("provider `cpu` accepts no options, but `a` was given"), "{error}");
    }

    #[test]
    fn a_provider_that_may_compute_fp32_in_tf32_is_rejected_for_fp32() {
        for provider in ["tensorrt", "nvrtx"] {
            let error = refusal(json!({"provider": provider}), DType::F32);
            let expected = format!(
                "engine `onnxruntime` does not compute in `f32` (supported: f16 with provider `{provider}`, which may \
                 compute f32 in TF32 and has no option to prevent it; f32 with `cuda`)"
            );
            assert_eq!(error, expected);
            assert!(!refusal(json!({"provider": provider}), DType::F16).contains("does not compute"), "{provider}");
        }
    }

    #[test]
    fn fp16_on_the_cpu_is_rejected_rather_than_silently_widened() {
        let error = refusal(json!({}), DType::F16);
        assert_eq!(error, "engine `onnxruntime` does not compute in `f16` (supported: f32 with provider `cpu`)");
    }

    #[test]
    fn a_chosen_library_that_is_missing_or_not_onnx_runtime_is_reported_with_its_option() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("libonnxruntime.so");
        std::fs::write(&text, b"no library").unwrap();
        let check = |option: &str, path: &Path| {
            let extra = serde_json::from_value(json!({option: path, "provider": "cpu"})).unwrap();
            OnnxRuntime.check_with(&LoadOptions { extra, ..LoadOptions::default() }).err().unwrap()
        };
        for option in ["library_path", "provider_library"] {
            for path in [Path::new("/no/such/libonnxruntime.so"), &text] {
                let error = check(option, path).to_string();
                assert!(error.contains(path.to_str().unwrap()) && error.contains(&format!("`{option}`")), "{error}");
            }
        }
        let error = check("library_path", Path::new("libc.so.6"));
        assert_eq!(error.to_string(), "`libc.so.6` is not ONNX Runtime");
        assert_eq!(error.hint(), "`library_path` must name ONNX Runtime's library; null is the installed one");
    }

    #[test]
    fn out_of_memory_and_unsupported_operators_are_recognized() {
        let message = "Failed to allocate memory for requested buffer of size 1048576";
        assert_eq!(classify_error(message), EngineError::OutOfMemory { bytes: 1 << 20 });
        let message = "Could not find an implementation for Gelu(20) node with name 'block/gelu'";
        let expected =
            EngineError::Operator { engine: "onnxruntime", op: "Gelu(20)".to_owned(), node: "block/gelu".to_owned() };
        assert_eq!(classify_error(message), expected);
        let message = "Load model from m.onnx failed:This is an invalid model. In Node, (\"strange\", Wobble, \"\", -1) : \
            (\"x\": tensor(float),) -> (\"y\": tensor(float),) , Error No Op registered for Wobble with domain_version of 17";
        let expected =
            EngineError::Operator { engine: "onnxruntime", op: "Wobble".to_owned(), node: "strange".to_owned() };
        assert_eq!(classify_error(message), expected);
        assert_eq!(classify_error("x"), EngineError::Failed("ONNX Runtime: x".to_owned()));
    }
}
