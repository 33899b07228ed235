//! The options of a load.

use std::collections::BTreeMap;
use std::path::PathBuf;

use flagperf_plugin::{DType, Error};
use serde_json::Value;
use tch::Device;

use crate::group::GroupOptions;
use crate::operators::Placement;

/// The options of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct TorchOptions {
    /// The device to compute on.
    pub device: Device,
    /// Whether images use the channels-last layout (NHWC in memory; the dimensions stay in the order NCHW).
    pub channels_last: bool,
    /// Whether a run is captured as a CUDA graph for each set of input shapes, and replayed.
    pub cuda_graph: bool,
    /// Whether cuDNN fuses additions and ReLU into its convolutions where it can.
    pub fused_convolutions: bool,
    /// Whether the device computes elementwise operators in a row in one function.
    pub fused_elementwise: bool,
    /// Whether the device may compute products of fp32 in TF32. The host sets it from the case's precision.
    pub tf32: bool,
    /// The folders of the libraries of the vendor's operators, by their names. The host sets them if the graph uses operators.
    pub operators: BTreeMap<String, PathBuf>,
    /// Where the tensors lie that an operator of the vendor receives.
    pub placement: Placement,
    /// Whether runs are computed beside those of other sessions, on a stream of their own, and never captured. The host sets it.
    pub own_stream: bool,
    /// The processes that train together. The host sets it.
    pub group: Option<GroupOptions>,
}

/// The options, as the host reads them.
pub const DESCRIPTION: &str = r#"[
    {"name": "device", "kind": "text", "default": "cpu", "about": "`cpu`, `cuda` or `cuda:0`"},
    {"name": "channels_last", "kind": "boolean", "default": true, "about": "whether images are kept with channels last, as PyTorch recommends for convolutions"},
    {"name": "cuda_graph", "kind": "boolean", "default": false, "about": "whether a step is replayed as a CUDA graph"},
    {"name": "fused_convolutions", "kind": "boolean", "default": true, "about": "whether a convolution is computed together with the activation that follows it"},
    {"name": "fused_elementwise", "kind": "boolean", "default": true, "about": "whether a CUDA device computes elementwise operators in a row in one function, which libtorch compiles at the first run"},
    {"name": "tf32", "kind": "boolean", "default": false, "about": "whether products of fp32 are computed in TF32; set by the case's `precision`"},
    {"name": "operators", "kind": "map", "default": "{}", "about": "the folders of the libraries of the vendor's operators; set if the model uses operators"},
    {"name": "own_stream", "kind": "boolean", "default": false, "about": "whether runs are computed beside those of other sessions and never replayed; set for the copies and exchanges of a training"},
    {"name": "process_group", "kind": "map", "default": "{}", "about": "the processes that train the model together; set in a training on several devices"},
    {"name": "operator_memory", "kind": "choice", "values": ["plain", "guarded", "shifted"], "default": "plain", "about": "`guarded` gives the vendor's operators memory between margins and checks them after each call, `shifted` also moves it by one element; for tests"}
]"#;

/// The known names, for messages.
const KNOWN: &str = "device, channels_last, cuda_graph, fused_convolutions, fused_elementwise, tf32, operators, own_stream, process_group, operator_memory";

impl TorchOptions {
    /// Parses a JSON object. `channels_last` is true by default, as PyTorch recommends for convolutions.
    ///
    /// # Errors
    /// For an unknown option or an invalid value.
    pub fn read(text: &str) -> Result<Self, Error> {
        let given: BTreeMap<String, Value> = serde_json::from_str(text).map_err(Error::failed)?;
        let mut options = TorchOptions {
            device: Device::Cpu,
            channels_last: true,
            cuda_graph: false,
            fused_convolutions: true,
            fused_elementwise: true,
            tf32: false,
            operators: BTreeMap::new(),
            placement: Placement::Plain,
            own_stream: false,
            group: None,
        };
        for (option, value) in given {
            let option_error = |reason: String| Error::BadOption { option: option.clone(), reason };
            let target = match option.as_str() {
                _ if value.is_null() => continue,
                "device" => {
                    let device = value.as_str().and_then(device);
                    options.device = device
                        .ok_or_else(|| option_error(format!("`{value}` is not a device (known: cpu, cuda:N)")))?;
                    continue;
                }
                "operators" => {
                    let read = serde_json::from_value(value.clone());
                    options.operators = read.map_err(|error| option_error(error.to_string()))?;
                    continue;
                }
                "process_group" => {
                    let read = serde_json::from_value(value.clone());
                    options.group = Some(read.map_err(|error| option_error(error.to_string()))?);
                    continue;
                }
                "operator_memory" => {
                    options.placement = match value.as_str() {
                        Some("plain") => Placement::Plain,
                        Some("guarded") => Placement::Guarded { shifted: false },
                        Some("shifted") => Placement::Guarded { shifted: true },
                        _ => return Err(option_error(format!("`{value}` is not one of plain, guarded, shifted"))),
                    };
                    continue;
                }
                "channels_last" => &mut options.channels_last,
                "cuda_graph" => &mut options.cuda_graph,
                "fused_convolutions" => &mut options.fused_convolutions,
                "fused_elementwise" => &mut options.fused_elementwise,
                "tf32" => &mut options.tf32,
                "own_stream" => &mut options.own_stream,
                _ => return Err(option_error(format!("unknown (known: {KNOWN})"))),
            };
            *target = value.as_bool().ok_or_else(|| option_error(format!("`{value}` is not true or false")))?;
        }
        let for_devices = [("cuda_graph", options.cuda_graph), ("tf32", options.tf32)];
        let unsupported = for_devices.into_iter().find(|(_, set)| *set && options.device == Device::Cpu);
        if let Some((option, _)) = unsupported {
            let reason = "needs a CUDA device (`device` is `cpu`)".to_owned();
            return Err(Error::BadOption { option: option.to_owned(), reason });
        }
        Ok(options)
    }

    /// Rejects a type that libtorch would compute in another type. Its CPU kernels always widen fp16, and widen bf16
    /// unless the CPU has bf16 instructions.
    ///
    /// # Errors
    /// [`Error::LacksPrecision`].
    pub fn check(&self, precision: DType) -> Result<(), Error> {
        match (self.device, precision) {
            (Device::Cpu, DType::F16) => Err(Error::LacksPrecision { has: supported_on_cpu() }),
            (Device::Cpu, DType::BF16) if !has_bf16_units() => Err(Error::LacksPrecision { has: supported_on_cpu() }),
            _ => Ok(()),
        }
    }
}

fn supported_on_cpu() -> String {
    if has_bf16_units() { "f32, bf16 on this CPU" } else { "f32 on this CPU" }.to_owned()
}

/// Whether this CPU has instructions that multiply bf16.
fn has_bf16_units() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512bf16");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("bf16");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

fn device(name: &str) -> Option<Device> {
    match name.split_once(':') {
        None if name == "cpu" => Some(Device::Cpu),
        Some(("cuda", index)) => index.parse().ok().map(Device::Cuda),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        TorchOptions::read(text).unwrap_err().to_string()
    }

    #[test]
    fn options_are_parsed_and_null_is_the_default() {
        let default = TorchOptions::read("{}").unwrap();
        assert_eq!(default.device, Device::Cpu);
        assert_eq!(TorchOptions::read(r#"{"device": null, "channels_last": null}"#).unwrap(), default);
        let given = r#"{"device": "cuda:1", "channels_last": false, "cuda_graph": true, "fused_convolutions": false, "tf32": true}"#;
        let expected = TorchOptions {
            device: Device::Cuda(1),
            channels_last: false,
            cuda_graph: true,
            fused_convolutions: false,
            tf32: true,
            ..default
        };
        assert_eq!(TorchOptions::read(given).unwrap(), expected);
    }

    #[test]
    fn the_error_for_an_unknown_option_or_value_contains_it() {
        assert_eq!(refusal(r#"{"devise": "cpu"}"#), format!("option `devise`: unknown (known: {KNOWN})"));
        for device in [r#""cuda""#, r#""gpu:0""#, r#""cuda:x""#, "0"] {
            let expected = format!("option `device`: `{device}` is not a device (known: cpu, cuda:N)");
            assert_eq!(refusal(&format!(r#"{{"device": {device}}}"#)), expected);
        }
        assert_eq!(refusal(r#"{"channels_last": 1}"#), "option `channels_last`: `1` is not true or false");
        for option in ["cuda_graph", "tf32"] {
            let expected = format!("option `{option}`: needs a CUDA device (`device` is `cpu`)");
            assert_eq!(refusal(&format!(r#"{{"{option}": true}}"#)), expected);
        }
    }

    #[test]
    fn fp16_on_the_cpu_is_rejected_rather_than_silently_widened() {
        let options = TorchOptions::read("{}").unwrap();
        options.check(DType::F32).unwrap();
        assert!(matches!(options.check(DType::F16), Err(Error::LacksPrecision { has }) if has.starts_with("f32")));
        assert_eq!(options.check(DType::BF16).is_ok(), has_bf16_units());
        TorchOptions { device: Device::Cuda(0), ..options }.check(DType::F16).unwrap();
    }
}
