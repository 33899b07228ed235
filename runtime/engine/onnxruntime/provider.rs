//! The execution providers of ONNX Runtime, by short names.

use indexmap::IndexMap;
use ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProvider, ExecutionProviderDispatch};

use crate::engine::EngineError;
use crate::tensor::DType;

/// A provider that sessions can ask for.
pub(super) struct Provider {
    /// The name under `provider`.
    pub(super) name: &'static str,
    /// ONNX Runtime's own name.
    pub(super) canonical: &'static str,
    /// Whether it takes options.
    configurable: bool,
    /// Options that it is given for f32 unless the caller says otherwise: f32 is f32, and neither TF32 nor f16.
    in_f32: &'static [(&'static str, &'static str)],
    /// Whether it may compute f32 in TF32, and no option of its own forbids it.
    tf32_in_f32: bool,
    available: fn() -> ort::Result<bool>,
    build: fn(&IndexMap<String, String>) -> ExecutionProviderDispatch,
}

/// Every provider that can be asked for.
pub(super) static PROVIDERS: &[Provider] = &[
    Provider {
        name: "cpu",
        canonical: <ep::CPU as ExecutionProvider>::NAME,
        configurable: false,
        in_f32: &[],
        tf32_in_f32: false,
        available: || Ok(true),
        // With the arena, as ONNX Runtime has it by itself; without it, memory is faulted in anew each run.
        build: |_| ep::CPU::default().with_arena_allocator(true).build(),
    },
    // Its documentation has `force_fp16` as the default.
    Provider { in_f32: &[("precision_mode", "must_keep_origin_dtype")], ..provider::<ep::CANN>("cann") },
    Provider { in_f32: &[("use_tf32", "0")], ..provider::<ep::CUDA>("cuda") },
    Provider {
        name: "migraphx",
        canonical: <ep::MIGraphX as ExecutionProvider>::NAME,
        configurable: false,
        in_f32: &[],
        tf32_in_f32: false,
        available: ep::MIGraphX::is_available,
        build: |_| ep::MIGraphX::default().build(),
    },
    Provider { tf32_in_f32: true, ..provider::<ep::NVRTX>("nvrtx") },
    provider::<ep::OneDNN>("onednn"),
    // Its documentation has f16 as the default of every device but the processor.
    Provider { in_f32: &[("precision", "FP32")], ..provider::<ep::OpenVINO>("openvino") },
    // Its documentation has 1 as the default, which computes f32 in f16.
    Provider { in_f32: &[("enable_htp_fp16_precision", "0")], ..provider::<ep::QNN>("qnn") },
    provider::<ep::ROCm>("rocm"),
    Provider { tf32_in_f32: true, ..provider::<ep::TensorRT>("tensorrt") },
    provider::<ep::Vitis>("vitisai"),
    provider::<ep::XNNPACK>("xnnpack"),
];

const fn provider<E>(name: &'static str) -> Provider
where
    E: ExecutionProvider + ArbitrarilyConfigurableExecutionProvider + Default + Into<ExecutionProviderDispatch>,
{
    Provider {
        name,
        canonical: E::NAME,
        configurable: true,
        in_f32: &[],
        tf32_in_f32: false,
        available: E::is_available,
        build: |options| {
            let set = |provider: E, (key, value): (&String, &String)| provider.with_arbitrary_config(key, value);
            options.iter().fold(E::default(), set).into()
        },
    }
}

impl Provider {
    /// What it computes in instead, when it does not compute in this type but in a wider or narrower one.
    pub(super) fn lacks(&self, dtype: DType) -> Option<String> {
        let name = self.name;
        // The processor's kernels convert f16 to f32 and back.
        if dtype != DType::F32 && ["cpu", "onednn", "xnnpack"].contains(&name) {
            return Some(format!("f32 with provider `{name}`"));
        }
        (dtype == DType::F32 && self.tf32_in_f32).then(|| {
            let why = "may compute f32 in TF32 and has no option against it";
            format!("f16 with provider `{name}`, which {why}; f32 with `cuda`")
        })
    }

    /// The options that it is given by itself. Other types than f32 have none: `use_tf32` takes f16 off the tensor cores.
    pub(super) fn defaults(&self, dtype: DType) -> IndexMap<String, String> {
        let given = if dtype == DType::F32 { self.in_f32 } else { &[] };
        given.iter().map(|(option, value)| ((*option).to_owned(), (*value).to_owned())).collect()
    }

    /// The provider with its options, ready for a session; refuses to go on without it.
    ///
    /// # Errors
    /// When the opened library was built without it, or it is given options and takes none.
    pub(super) fn ready(&self, options: &IndexMap<String, String>) -> Result<ExecutionProviderDispatch, EngineError> {
        let has = |provider: &&Provider| (provider.available)().unwrap_or(false);
        if !has(&self) {
            let has: Vec<&str> = PROVIDERS.iter().filter(has).map(|provider| provider.name).collect();
            let (name, has) = (self.name, has.join(", "));
            return Err(EngineError::Failed(format!("this ONNX Runtime has no provider `{name}` (it has: {has})")));
        }
        if let (false, Some(option)) = (self.configurable, options.keys().next()) {
            let name = self.name;
            return Err(EngineError::Failed(format!("provider `{name}` takes no options here, `{option}` was given")));
        }
        Ok((self.build)(options).error_on_failure())
    }
}
