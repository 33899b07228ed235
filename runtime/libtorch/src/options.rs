//! The options of a load: `device`, `channels_last`, `cuda_graph`, `fused_convolutions`.

use std::collections::BTreeMap;

use flagperf_plugin::{DType, Error};
use serde_json::Value;
use tch::Device;

/// The options, read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Where to compute.
    pub device: Device,
    /// Whether images are kept with their channels together (NHWC in memory, NCHW in name).
    pub channels_last: bool,
    /// Whether a run is captured as a CUDA graph for each shape of the inputs, and replayed.
    pub cuda_graph: bool,
    /// Whether cuDNN adds and rectifies within its convolutions, where it can.
    pub fused_convolutions: bool,
}

/// The names that are known, for messages.
const KNOWN: &str = "device, channels_last, cuda_graph, fused_convolutions";

impl Options {
    /// Reads the text of a JSON object. Channels come last unless that is switched off, as PyTorch recommends for
    /// convolutions.
    ///
    /// # Errors
    /// An option that is unknown, or a value that it does not take.
    pub fn read(text: &str) -> Result<Self, Error> {
        let given: BTreeMap<String, Value> = serde_json::from_str(text).map_err(Error::failed)?;
        let mut options =
            Options { device: Device::Cpu, channels_last: true, cuda_graph: false, fused_convolutions: true };
        for (option, value) in given {
            let refuse = |reason: String| Error::BadOption { option: option.clone(), reason };
            let switch = match option.as_str() {
                _ if value.is_null() => continue,
                "device" => {
                    let device = value.as_str().and_then(device);
                    options.device =
                        device.ok_or_else(|| refuse(format!("`{value}` is neither `cpu` nor `cuda:0`")))?;
                    continue;
                }
                "channels_last" => &mut options.channels_last,
                "cuda_graph" => &mut options.cuda_graph,
                "fused_convolutions" => &mut options.fused_convolutions,
                _ => return Err(refuse(format!("unknown (known: {KNOWN})"))),
            };
            *switch = value.as_bool().ok_or_else(|| refuse(format!("`{value}` is not true or false")))?;
        }
        if options.cuda_graph && options.device == Device::Cpu {
            let reason = "the processor has no CUDA graphs (`device` is `cpu`)".to_owned();
            return Err(Error::BadOption { option: "cuda_graph".to_owned(), reason });
        }
        Ok(options)
    }

    /// Refuses a type that libtorch would compute in another one. Its kernels for processors widen f16 always, and bf16
    /// unless the processor multiplies it.
    ///
    /// # Errors
    /// When it would.
    pub fn check(&self, precision: DType) -> Result<(), Error> {
        match (self.device, precision) {
            (Device::Cpu, DType::F16) => Err(Error::LacksPrecision { has: has_on_the_processor() }),
            (Device::Cpu, DType::BF16) if !multiplies_bf16() => {
                Err(Error::LacksPrecision { has: has_on_the_processor() })
            }
            _ => Ok(()),
        }
    }
}

fn has_on_the_processor() -> String {
    if multiplies_bf16() { "f32, bf16 on this processor" } else { "f32 on this processor" }.to_owned()
}

/// Whether this processor has products of bf16.
fn multiplies_bf16() -> bool {
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
        Options::read(text).unwrap_err().to_string()
    }

    #[test]
    fn options_are_read_and_null_is_the_default() {
        let default = Options::read("{}").unwrap();
        assert_eq!(default.device, Device::Cpu);
        assert_eq!(Options::read(r#"{"device": null, "channels_last": null}"#).unwrap(), default);
        let given = r#"{"device": "cuda:1", "channels_last": false, "cuda_graph": true, "fused_convolutions": false}"#;
        let expected =
            Options { device: Device::Cuda(1), channels_last: false, cuda_graph: true, fused_convolutions: false };
        assert_eq!(Options::read(given).unwrap(), expected);
    }

    #[test]
    fn an_unknown_option_or_value_is_named() {
        assert_eq!(refusal(r#"{"devise": "cpu"}"#), format!("option `devise`: unknown (known: {KNOWN})"));
        for device in [r#""cuda""#, r#""gpu:0""#, r#""cuda:x""#, "0"] {
            let expected = format!("option `device`: `{device}` is neither `cpu` nor `cuda:0`");
            assert_eq!(refusal(&format!(r#"{{"device": {device}}}"#)), expected);
        }
        assert_eq!(refusal(r#"{"channels_last": 1}"#), "option `channels_last`: `1` is not true or false");
        let graph = "option `cuda_graph`: the processor has no CUDA graphs (`device` is `cpu`)";
        assert_eq!(refusal(r#"{"cuda_graph": true}"#), graph);
    }

    #[test]
    fn half_precision_on_the_processor_is_refused_rather_than_widened() {
        let options = Options::read("{}").unwrap();
        options.check(DType::F32).unwrap();
        assert!(matches!(options.check(DType::F16), Err(Error::LacksPrecision { has }) if has.starts_with("f32")));
        assert_eq!(options.check(DType::BF16).is_ok(), multiplies_bf16());
        Options { device: Device::Cuda(0), ..options }.check(DType::F16).unwrap();
    }
}
