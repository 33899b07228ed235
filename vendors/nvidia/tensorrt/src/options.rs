//! The options of a load. The options that FlagPerf's configurations already use keep their names: `trt_tmp_path`,
//! `has_dynamic_axis`, `minShapes`, `optShapes`, `maxShapes`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use flagperf_plugin::Error;
use serde_json::Value;

use crate::shapes::Profile;

/// The device to compute on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// No device: the engine is built and stored, for a GPU in another machine.
    None,
    /// The GPU with this number.
    Cuda(i32),
}

/// The options of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRtOptions {
    /// The file that the engine is written to, relative to the folder of the logs.
    pub trt_tmp_path: Option<PathBuf>,
    /// The profiles that the engine is built for; empty when its shapes are fixed.
    pub profiles: Vec<Profile>,
    /// The device to compute on.
    pub device: Device,
    /// Whether a step is replayed as a CUDA graph.
    pub cuda_graph: bool,
    /// The maximum memory that one layer may use in addition to its inputs and outputs, in bytes.
    pub workspace_bytes: Option<usize>,
    /// Whether fp32 products may be computed in TF32, with a mantissa of 10 bits.
    pub tf32: bool,
    /// Libraries with additional operators.
    pub plugins: Vec<PathBuf>,
    /// The folders of the libraries of the vendor's operators, by their names. The host sets them if the graph uses operators.
    pub operators: BTreeMap<String, PathBuf>,
}

const KNOWN: [&str; 11] = [
    "trt_tmp_path",
    "has_dynamic_axis",
    "minShapes",
    "optShapes",
    "maxShapes",
    "device",
    "cuda_graph",
    "workspace_bytes",
    "tf32",
    "plugins",
    "operators",
];

/// The options, as the host reads them.
pub const DESCRIPTION: &str = r#"[
    {"name": "device", "kind": "text", "default": "cuda:0", "about": "`cuda:0`, or `none` to build and store an engine without a device"},
    {"name": "trt_tmp_path", "kind": "text", "about": "the file that the engine is stored in, relative to the folder of the logs"},
    {"name": "has_dynamic_axis", "kind": "boolean", "default": false, "about": "whether the engine is built for a range of shapes"},
    {"name": "minShapes", "kind": "text", "about": "the smallest shapes, in the notation of trtexec: `input:1x3x224x224`"},
    {"name": "optShapes", "kind": "text", "about": "the shapes that the engine is tuned for"},
    {"name": "maxShapes", "kind": "text", "about": "the largest shapes"},
    {"name": "cuda_graph", "kind": "boolean", "default": true, "about": "whether a step is replayed as a CUDA graph"},
    {"name": "workspace_bytes", "kind": "integer", "min": 0, "about": "the memory that one layer may use besides its inputs and outputs"},
    {"name": "tf32", "kind": "boolean", "default": false, "about": "whether fp32 products may be computed in TF32, with a mantissa of 10 bits; set by the case's `precision`"},
    {"name": "plugins", "kind": "list", "default": [], "about": "libraries with additional operators"},
    {"name": "operators", "kind": "map", "default": "{}", "about": "the folders of the libraries of the vendor's operators; set if the model uses operators"}
]"#;

type OptionMap = BTreeMap<String, Value>;

impl TensorRtOptions {
    /// Parses a JSON object.
    ///
    /// # Errors
    /// For an unknown option or an invalid value.
    pub fn read(text: &str) -> Result<Self, Error> {
        let given: OptionMap = serde_json::from_str(text).map_err(Error::failed)?;
        let given: OptionMap = given.into_iter().filter(|(_, value)| !value.is_null()).collect();
        if let Some(unknown) = given.keys().find(|option| !KNOWN.contains(&option.as_str())) {
            return Err(Error::unknown(unknown, &KNOWN));
        }
        let path = |value: &Value| value.as_str().filter(|path| !path.is_empty()).map(PathBuf::from);
        let bytes = |value: &Value| value.as_u64().and_then(|bytes| usize::try_from(bytes).ok());
        let folders = |value: &Value| serde_json::from_value(value.clone()).ok();
        let paths = |value: &Value| value.as_array()?.iter().map(path).collect::<Option<Vec<_>>>();
        Ok(TensorRtOptions {
            trt_tmp_path: read_option(&given, "trt_tmp_path", "the path of a file", path)?,
            profiles: read_profiles(&given)?,
            device: read_option(&given, "device", "`cuda:0` or `none`", device)?.unwrap_or(Device::Cuda(0)),
            cuda_graph: read_option(&given, "cuda_graph", "true or false", Value::as_bool)?.unwrap_or(true),
            workspace_bytes: read_option(&given, "workspace_bytes", "a number of bytes", bytes)?,
            tf32: read_option(&given, "tf32", "true or false", Value::as_bool)?.unwrap_or(false),
            plugins: read_option(&given, "plugins", "a list of libraries", paths)?.unwrap_or_default(),
            operators: read_option(&given, "operators", "a map of folders", folders)?.unwrap_or_default(),
        })
    }
}

/// Reads an option; `expected` describes its values in the error message.
fn read_option<T>(
    given: &OptionMap,
    option: &str,
    expected: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(value) = given.get(option) else { return Ok(None) };
    read(value).map(Some).ok_or_else(|| option_error(option, format!("`{value}` is not {expected}")))
}

fn option_error(option: &str, reason: String) -> Error {
    Error::BadOption { option: option.to_owned(), reason }
}

fn device(value: &Value) -> Option<Device> {
    match value.as_str()? {
        "none" => Some(Device::None),
        name => name.strip_prefix("cuda:")?.parse().ok().filter(|index| *index >= 0).map(Device::Cuda),
    }
}

/// Reads the profiles: one from three strings, or several from three lists of strings.
fn read_profiles(given: &OptionMap) -> Result<Vec<Profile>, Error> {
    const SHAPES: [&str; 3] = ["minShapes", "optShapes", "maxShapes"];
    let dynamic = read_option(given, "has_dynamic_axis", "true or false", Value::as_bool)?.unwrap_or(false);
    let [min, opt, max] =
        SHAPES.map(|option| read_option(given, option, "shapes: `input:1x3x224x224`", string_or_list));
    let shapes = [min?, opt?, max?];
    if !dynamic {
        return match SHAPES.into_iter().zip(&shapes).find(|(_, shapes)| shapes.is_some()) {
            Some((option, _)) => Err(option_error(option, "requires `has_dynamic_axis: true`".to_owned())),
            None => Ok(Vec::new()),
        };
    }
    let [Some(min), Some(opt), Some(max)] = shapes else {
        let missing = SHAPES.into_iter().find(|option| !given.contains_key(*option)).unwrap_or_default();
        let reason = "required with `has_dynamic_axis: true` (example: `input:1x3x224x224`)".to_owned();
        return Err(option_error(missing, reason));
    };
    for (option, shapes) in SHAPES.into_iter().zip([&min, &opt, &max]) {
        if shapes.len() != min.len() || shapes.is_empty() {
            let reason = format!("number of profiles: `{}`, but `{}` in `minShapes`", shapes.len(), min.len());
            return Err(option_error(option, reason));
        }
    }
    let each = min.iter().zip(&opt).zip(&max);
    each.map(|((min, opt), max)| Profile::parse(min, opt, max).map_err(|(option, reason)| option_error(option, reason)))
        .collect()
}

/// Reads a string or a list of strings.
fn string_or_list(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        value => Some(vec![text(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<TensorRtOptions, String> {
        TensorRtOptions::read(&value.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_fixed_shapes_on_the_first_gpu_without_tf32() {
        let options = read(serde_json::json!({"device": null})).unwrap();
        let expected = TensorRtOptions {
            trt_tmp_path: None,
            profiles: Vec::new(),
            device: Device::Cuda(0),
            cuda_graph: true,
            workspace_bytes: None,
            tf32: false,
            plugins: Vec::new(),
            operators: BTreeMap::new(),
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn strings_define_one_profile_and_lists_define_several() {
        let options = read(serde_json::json!({
            "trt_tmp_path": "nvidia_tmp/resnet50.trt", "has_dynamic_axis": true,
            "minShapes": "input:1x3", "optShapes": "input:8x3", "maxShapes": "input:16x3",
            "device": "cuda:1", "cuda_graph": false, "workspace_bytes": 1 << 30, "tf32": true, "plugins": ["a.so"],
            "operators": {"nvidia.norm": "built/norm"},
        }))
        .unwrap();
        assert_eq!(options.trt_tmp_path.unwrap().to_str(), Some("nvidia_tmp/resnet50.trt"));
        assert_eq!(options.profiles, [Profile::parse("input:1x3", "input:8x3", "input:16x3").unwrap()]);
        assert_eq!((options.device, options.workspace_bytes), (Device::Cuda(1), Some(1 << 30)));
        assert_eq!(options.plugins, [PathBuf::from("a.so")]);
        assert_eq!(options.operators["nvidia.norm"], PathBuf::from("built/norm"));
        let two = read(serde_json::json!({
            "has_dynamic_axis": true, "minShapes": ["x:1", "x:9"], "optShapes": ["x:4", "x:16"], "maxShapes": ["x:8", "x:32"],
        }));
        assert_eq!(two.unwrap().profiles[1], Profile::parse("x:9", "x:16", "x:32").unwrap());
    }

    #[test]
    fn unknown_missing_and_useless_options_are_rejected() {
        let refusals = [
            (r#"{"devise": 1}"#, "option `devise`: unknown (known: trt_tmp_path, has_dynamic_axis,"),
            (r#"{"device": "cpu"}"#, "option `device`: `\"cpu\"` is not `cuda:0` or `none`"),
            (r#"{"device": "cuda:-1"}"#, "option `device`: `\"cuda:-1\"` is not"),
            (r#"{"minShapes": "x:1"}"#, "option `minShapes`: requires `has_dynamic_axis: true`"),
            (r#"{"has_dynamic_axis": true}"#, "option `minShapes`: required with `has_dynamic_axis: true`"),
            (
                r#"{"has_dynamic_axis": true, "minShapes": "x:1", "optShapes": ["x:1", "x:2"], "maxShapes": "x:1"}"#,
                "option `optShapes`: number of profiles: `2`, but `1` in `minShapes`",
            ),
            (
                r#"{"has_dynamic_axis": true, "minShapes": "x:2", "optShapes": "x:1", "maxShapes": "x:1"}"#,
                "option `optShapes`: `x:1` is smaller than `x:2`, or has another number of dimensions",
            ),
            (r#"{"plugins": "a.so"}"#, "option `plugins`: `\"a.so\"` is not a list of libraries"),
            (r#"{"operators": ["a"]}"#, "option `operators`: `[\"a\"]` is not a map of folders"),
            (r#"{"workspace_bytes": "1G"}"#, "option `workspace_bytes`: `\"1G\"` is not a number of bytes"),
        ];
        for (text, expected) in refusals {
            let error = TensorRtOptions::read(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
