//! The table of ONNX Runtime's execution providers, by short names.

use indexmap::IndexMap;
use ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProvider, ExecutionProviderDispatch};

use crate::EngineError;
use flagperf_core::tensor::DType;

/// An execution provider with a short name.
pub(super) struct Provider {
    /// The name in the option `provider`.
    pub(super) name: &'static str,
    /// ONNX Runtime's own name.
    pub(super) canonical: &'static str,
    /// Whether the provider accepts options.
    pub(super) configurable: bool,
    /// Default options for fp32 models, so that they are computed neither in TF32 nor in fp16.
    f32_defaults: &'static [(&'static str, &'static str)],
    /// Whether the provider may compute fp32 models in TF32 and has no option to prevent it.
    may_use_tf32: bool,
    build: fn(&IndexMap<String, String>) -> ExecutionProviderDispatch,
}

/// Every provider with a short name, and with rules that keep its precision; any other is requested by its full name.
pub(super) static PROVIDERS: &[Provider] = &[
    Provider {
        name: "cpu",
        canonical: <ep::CPU as ExecutionProvider>::NAME,
        configurable: false,
        f32_defaults: &[],
        may_use_tf32: false,
        // The arena is ONNX Runtime's own default; without it, every run faults its memory in again.
        build: |_| ep::CPU::default().with_arena_allocator(true).build(),
    },
    // The documented default is `force_fp16`.
    Provider { f32_defaults: &[("precision_mode", "must_keep_origin_dtype")], ..configurable::<ep::CANN>("cann") },
    Provider { f32_defaults: &[("use_tf32", "0")], ..configurable::<ep::CUDA>("cuda") },
    Provider {
        name: "migraphx",
        canonical: <ep::MIGraphX as ExecutionProvider>::NAME,
        configurable: false,
        f32_defaults: &[],
        may_use_tf32: false,
        build: |_| ep::MIGraphX::default().build(),
    },
    Provider { may_use_tf32: true, ..configurable::<ep::NVRTX>("nvrtx") },
    configurable::<ep::OneDNN>("onednn"),
    // The documented default is FP16 on every device except the CPU.
    Provider { f32_defaults: &[("precision", "FP32")], ..configurable::<ep::OpenVINO>("openvino") },
    // The documented default is 1, which computes fp32 models in fp16.
    Provider { f32_defaults: &[("enable_htp_fp16_precision", "0")], ..configurable::<ep::QNN>("qnn") },
    configurable::<ep::ROCm>("rocm"),
    Provider { may_use_tf32: true, ..configurable::<ep::TensorRT>("tensorrt") },
    configurable::<ep::Vitis>("vitisai"),
    configurable::<ep::XNNPACK>("xnnpack"),
];

const fn configurable<E>(name: &'static str) -> Provider
where
    E: ExecutionProvider + ArbitrarilyConfigurableExecutionProvider + Default + Into<ExecutionProviderDispatch>,
{
    Provider {
        name,
        canonical: E::NAME,
        configurable: true,
        f32_defaults: &[],
        may_use_tf32: false,
        build: |options| {
            let set = |provider: E, (key, value): (&String, &String)| provider.with_arbitrary_config(key, value);
            options.iter().fold(E::default(), set).into()
        },
    }
}

impl Provider {
    /// Returns `None` when the provider computes in `dtype`, and otherwise what it supports instead.
    pub(super) fn precision_alternative(&self, dtype: DType) -> Option<String> {
        let name = self.name;
        // The CPU kernels convert fp16 to fp32 and back.
        if dtype != DType::F32 && ["cpu", "onednn", "xnnpack"].contains(&name) {
            return Some(format!("f32 with provider `{name}`"));
        }
        (dtype == DType::F32 && self.may_use_tf32).then(|| {
            let why = "may compute f32 in TF32 and has no option to prevent it";
            format!("f16 with provider `{name}`, which {why}; f32 with `cuda`")
        })
    }

    /// Returns the default options for models in `dtype`. Only fp32 has any: `use_tf32: 0` would take fp16 models off
    /// the tensor cores.
    pub(super) fn defaults(&self, dtype: DType) -> IndexMap<String, String> {
        let defaults = if dtype == DType::F32 { self.f32_defaults } else { &[] };
        defaults.iter().map(|(option, value)| ((*option).to_owned(), (*value).to_owned())).collect()
    }

    /// Returns the provider with its options, set up so that a session fails to load when the provider does not
    /// register.
    ///
    /// # Errors
    /// When the provider is given options and accepts none.
    pub(super) fn dispatch(
        &self,
        options: &IndexMap<String, String>,
    ) -> Result<ExecutionProviderDispatch, EngineError> {
        if let (false, Some(option)) = (self.configurable, options.keys().next()) {
            let name = self.name;
            return Err(EngineError::Failed(format!("provider `{name}` accepts no options, but `{option}` was given")));
        }
        Ok((self.build)(options).error_on_failure())
    }
}
