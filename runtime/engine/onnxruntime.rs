//! ONNX Runtime: a compiler in a C library that is found at run time, with its providers by name.
//!
//! Knows no vendor, and never takes another provider than the one asked for: how many nodes each got is told.

mod copy;
mod device;
mod library;
mod options;
mod placement;
mod provider;
mod replay;
mod session;
mod tensor;

use super::model;
use super::{Artifact, Engine, EngineError, Facts, Options, Roles, Session, Unavailable};
use crate::tensor::DType;

use options::Settings;
use session::OrtSession;

/// The compiler ONNX Runtime.
#[derive(Debug)]
pub struct OnnxRuntime;

impl Engine for OnnxRuntime {
    fn facts(&self) -> Facts {
        Facts {
            roles: Roles { framework: false, compiler: true },
            precisions: &[DType::F32, DType::F16],
            opset_max: 23,
            ..Facts::widest(
                "onnxruntime",
                "ONNX Runtime by its C library: processors, CUDA, TensorRT and its other providers by name",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        library::open(None).map(|library| library.version.clone())
    }

    fn check_options(&self, options: &Options) -> Result<(), EngineError> {
        Settings::read(self, options).map(drop)
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        let settings = Settings::read(self, options)?;
        let path = match artifact {
            Artifact::Onnx(path) => {
                let graph = model::read(path)?;
                model::check(self, &graph, options.precision)?;
                path
            }
            Artifact::Compiled(path) if path.extension().is_some_and(|kind| kind == "onnx" || kind == "ort") => path,
            _ => return Err(settings.refuse_artifact("an ONNX file or one that it wrote (.onnx, .ort)", artifact)),
        };
        if let Some(has) = settings.provider.lacks(options.precision) {
            return Err(EngineError::Precision { engine: self.name(), asked: options.precision, has });
        }
        OrtSession::load(path, &settings).map(|session| Box::new(session) as Box<dyn Session>)
    }
}

/// What ONNX Runtime says, as an error of ours: memory that it could not have, operators that it lacks.
fn failed<R>(error: &ort::Error<R>) -> EngineError {
    understood(error.message())
}

fn understood(message: &str) -> EngineError {
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
        let options = Options { precision, extra: serde_json::from_value(extra).unwrap(), ..Options::default() };
        OnnxRuntime.load(Artifact::Compiled(Path::new("no/such.onnx")), &options).err().unwrap().to_string()
    }

    #[test]
    fn an_unknown_provider_names_the_nearest() {
        let error = refusal(json!({"provider": "cudda"}), DType::F32);
        assert!(error.starts_with("engine `onnxruntime`: option `provider`: unknown provider `cudda` (known: cpu, "));
        assert!(error.ends_with("; nearest: cuda)"), "{error}");
    }

    #[test]
    fn an_unknown_level_of_optimisation_names_the_known_ones() {
        let error = refusal(json!({"graph_optimization": "most"}), DType::F32);
        assert!(error.ends_with("unknown level `most` (known: disabled, basic, extended, all)"), "{error}");
    }

    #[test]
    fn a_setting_that_is_no_text_is_named() {
        let error = refusal(json!({"session_options": {"a": [1]}}), DType::F32);
        assert!(
            error.ends_with("option `session_options`: `a`: `[1]` is not text, a number, true or false"),
            "{error}"
        );
    }

    /// The options that a provider is given beside the user's own.
    fn given(provider: &str, own: serde_json::Value, precision: DType) -> serde_json::Value {
        let extra = serde_json::from_value(json!({"provider": provider, "provider_options": own})).unwrap();
        let options = Options { precision, extra, ..Options::default() };
        json!(Settings::read(&OnnxRuntime, &options).unwrap().provider_options)
    }

    #[test]
    fn f32_is_neither_tf32_nor_f16_unless_it_is_asked_for() {
        let narrower = [
            ("cuda", "use_tf32", "0"),
            ("qnn", "enable_htp_fp16_precision", "0"),
            ("cann", "precision_mode", "must_keep_origin_dtype"),
            ("openvino", "precision", "FP32"),
        ];
        for (provider, option, value) in narrower {
            assert_eq!(given(provider, json!({}), DType::F32), json!({option: value}), "{provider}");
            assert_eq!(given(provider, json!({option: true}), DType::F32), json!({option: "1"}), "{provider}");
            assert_eq!(given(provider, json!({}), DType::F16), json!({}), "{provider}");
        }
    }

    #[test]
    fn a_provider_that_may_compute_f32_in_tf32_is_refused_in_f32() {
        for provider in ["tensorrt", "nvrtx"] {
            let error = refusal(json!({"provider": provider}), DType::F32);
            let expected = format!(
                "engine `onnxruntime` does not compute in `f32` (it has: f16 with provider `{provider}`, which may \
                 compute f32 in TF32 and has no option against it; f32 with `cuda`)"
            );
            assert_eq!(error, expected);
            assert!(!refusal(json!({"provider": provider}), DType::F16).contains("does not compute"), "{provider}");
        }
    }

    #[test]
    fn half_precision_on_the_processor_is_refused_rather_than_passed_off() {
        let error = refusal(json!({}), DType::F16);
        assert_eq!(error, "engine `onnxruntime` does not compute in `f16` (it has: f32 with provider `cpu`)");
    }

    #[test]
    fn a_library_that_is_not_there_or_not_onnx_runtime_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("libonnxruntime.so");
        std::fs::write(&text, b"no library").unwrap();
        for path in [Path::new("/no/such/libonnxruntime.so"), &text] {
            let options =
                Options { extra: serde_json::from_value(json!({"library_path": path})).unwrap(), ..Options::default() };
            let error = OnnxRuntime.load(Artifact::Compiled(Path::new("m.onnx")), &options).err().unwrap();
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            assert!(error.hint().contains("flagperf backend install onnxruntime"), "{}", error.hint());
        }
    }

    #[test]
    fn what_onnx_runtime_says_of_memory_and_operators_is_understood() {
        let said = "Failed to allocate memory for requested buffer of size 1048576";
        assert_eq!(understood(said), EngineError::OutOfMemory { bytes: 1 << 20 });
        let said = "Could not find an implementation for Gelu(20) node with name 'block/gelu'";
        let expected =
            EngineError::Operator { engine: "onnxruntime", op: "Gelu(20)".to_owned(), node: "block/gelu".to_owned() };
        assert_eq!(understood(said), expected);
        let said = "Load model from m.onnx failed:This is an invalid model. In Node, (\"strange\", Wobble, \"\", -1) : \
            (\"x\": tensor(float),) -> (\"y\": tensor(float),) , Error No Op registered for Wobble with domain_version of 17";
        let expected =
            EngineError::Operator { engine: "onnxruntime", op: "Wobble".to_owned(), node: "strange".to_owned() };
        assert_eq!(understood(said), expected);
        assert_eq!(understood("x"), EngineError::Failed("ONNX Runtime: x".to_owned()));
    }
}
