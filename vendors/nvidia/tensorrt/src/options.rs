//! The options of a load. Those of FlagPerf's configurations keep their names: `trt_tmp_path`, `has_dynamic_axis`,
//! `minShapes`, `optShapes`, `maxShapes`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use flagperf_plugin::Error;
use serde_json::Value;

use crate::shapes::Profile;

/// Where to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Nowhere: the engine is built and kept, for a GPU that is elsewhere.
    None,
    /// The GPU of this number.
    Cuda(i32),
}

/// The options, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The file that the engine is kept in; counts from the folder of the logs.
    pub trt_tmp_path: Option<PathBuf>,
    /// What the engine is built for when its shapes are open: at least one profile. Empty: they are fixed.
    pub profiles: Vec<Profile>,
    /// Where to compute.
    pub device: Device,
    /// Whether a step is replayed as a CUDA graph.
    pub cuda_graph: bool,
    /// The most memory that one layer may use beside its inputs and outputs.
    pub workspace_bytes: Option<usize>,
    /// Whether products of f32 may be computed with the 10 bits of TF32.
    pub tf32: bool,
    /// Libraries with operators of their own.
    pub plugins: Vec<PathBuf>,
}

const KNOWN: [&str; 10] = [
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
];

type Given = BTreeMap<String, Value>;

impl Options {
    /// Reads the text of a JSON object.
    ///
    /// # Errors
    /// An option that is unknown, or a value that it does not take.
    pub fn read(text: &str) -> Result<Self, Error> {
        let given: Given = serde_json::from_str(text).map_err(Error::failed)?;
        let given: Given = given.into_iter().filter(|(_, value)| !value.is_null()).collect();
        if let Some(unknown) = given.keys().find(|option| !KNOWN.contains(&option.as_str())) {
            return Err(Error::unknown(unknown, &KNOWN));
        }
        let path = |value: &Value| value.as_str().filter(|path| !path.is_empty()).map(PathBuf::from);
        let bytes = |value: &Value| value.as_u64().and_then(|bytes| usize::try_from(bytes).ok());
        let paths = |value: &Value| value.as_array()?.iter().map(path).collect::<Option<Vec<_>>>();
        Ok(Options {
            trt_tmp_path: one(&given, "trt_tmp_path", "the path of a file", path)?,
            profiles: profiles(&given)?,
            device: one(&given, "device", "`cuda:0` or `none`", device)?.unwrap_or(Device::Cuda(0)),
            cuda_graph: one(&given, "cuda_graph", "true or false", Value::as_bool)?.unwrap_or(true),
            workspace_bytes: one(&given, "workspace_bytes", "a number of bytes", bytes)?,
            tf32: one(&given, "tf32", "true or false", Value::as_bool)?.unwrap_or(false),
            plugins: one(&given, "plugins", "a list of libraries", paths)?.unwrap_or_default(),
        })
    }
}

/// An option of one value.
fn one<T>(given: &Given, option: &str, takes: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, Error> {
    let Some(value) = given.get(option) else { return Ok(None) };
    read(value).map(Some).ok_or_else(|| refuse(option, format!("`{value}` is not {takes}")))
}

fn refuse(option: &str, reason: String) -> Error {
    Error::BadOption { option: option.to_owned(), reason }
}

fn device(value: &Value) -> Option<Device> {
    match value.as_str()? {
        "none" => Some(Device::None),
        name => name.strip_prefix("cuda:")?.parse().ok().filter(|index| *index >= 0).map(Device::Cuda),
    }
}

/// The profiles: one of three texts, or as many as there are texts in three lists.
fn profiles(given: &Given) -> Result<Vec<Profile>, Error> {
    const SHAPES: [&str; 3] = ["minShapes", "optShapes", "maxShapes"];
    let dynamic = one(given, "has_dynamic_axis", "true or false", Value::as_bool)?.unwrap_or(false);
    let [min, opt, max] = SHAPES.map(|option| one(given, option, "shapes: `input:1x3x224x224`", texts));
    let shapes = [min?, opt?, max?];
    if !dynamic {
        return match SHAPES.into_iter().zip(&shapes).find(|(_, shapes)| shapes.is_some()) {
            Some((option, _)) => Err(refuse(option, "of use with `has_dynamic_axis: true` only".to_owned())),
            None => Ok(Vec::new()),
        };
    }
    let [Some(min), Some(opt), Some(max)] = shapes else {
        let missing = SHAPES.into_iter().find(|option| !given.contains_key(*option)).unwrap_or_default();
        return Err(refuse(missing, "must be given with `has_dynamic_axis: true`: `input:1x3x224x224`".to_owned()));
    };
    for (option, texts) in SHAPES.into_iter().zip([&min, &opt, &max]) {
        if texts.len() != min.len() || texts.is_empty() {
            return Err(refuse(option, format!("is for `{}` profiles, `minShapes` for `{}`", texts.len(), min.len())));
        }
    }
    let each = min.iter().zip(&opt).zip(&max);
    each.map(|((min, opt), max)| Profile::read(min, opt, max).map_err(|(option, reason)| refuse(option, reason)))
        .collect()
}

/// One text, or a list of them.
fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        value => Some(vec![text(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<Options, String> {
        Options::read(&value.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_given_is_fixed_shapes_on_the_first_gpu_without_tf32() {
        let options = read(serde_json::json!({"device": null})).unwrap();
        let expected = Options {
            trt_tmp_path: None,
            profiles: Vec::new(),
            device: Device::Cuda(0),
            cuda_graph: true,
            workspace_bytes: None,
            tf32: false,
            plugins: Vec::new(),
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn flagperfs_keys_give_one_profile_and_lists_give_several() {
        let options = read(serde_json::json!({
            "trt_tmp_path": "nvidia_tmp/resnet50.trt", "has_dynamic_axis": true,
            "minShapes": "input:1x3", "optShapes": "input:8x3", "maxShapes": "input:16x3",
            "device": "cuda:1", "cuda_graph": false, "workspace_bytes": 1 << 30, "tf32": true, "plugins": ["a.so"],
        }))
        .unwrap();
        assert_eq!(options.trt_tmp_path.unwrap().to_str(), Some("nvidia_tmp/resnet50.trt"));
        assert_eq!(options.profiles, [Profile::read("input:1x3", "input:8x3", "input:16x3").unwrap()]);
        assert_eq!((options.device, options.workspace_bytes), (Device::Cuda(1), Some(1 << 30)));
        assert_eq!(options.plugins, [PathBuf::from("a.so")]);
        let two = read(serde_json::json!({
            "has_dynamic_axis": true, "minShapes": ["x:1", "x:9"], "optShapes": ["x:4", "x:16"], "maxShapes": ["x:8", "x:32"],
        }));
        assert_eq!(two.unwrap().profiles[1], Profile::read("x:9", "x:16", "x:32").unwrap());
    }

    #[test]
    fn what_is_unknown_missing_or_of_no_use_is_named() {
        let refusals = [
            (r#"{"devise": 1}"#, "option `devise`: unknown (known: trt_tmp_path, has_dynamic_axis,"),
            (r#"{"device": "cpu"}"#, "option `device`: `\"cpu\"` is not `cuda:0` or `none`"),
            (r#"{"device": "cuda:-1"}"#, "option `device`: `\"cuda:-1\"` is not"),
            (r#"{"minShapes": "x:1"}"#, "option `minShapes`: of use with `has_dynamic_axis: true` only"),
            (r#"{"has_dynamic_axis": true}"#, "option `minShapes`: must be given with `has_dynamic_axis: true`"),
            (
                r#"{"has_dynamic_axis": true, "minShapes": "x:1", "optShapes": ["x:1", "x:2"], "maxShapes": "x:1"}"#,
                "option `optShapes`: is for `2` profiles, `minShapes` for `1`",
            ),
            (
                r#"{"has_dynamic_axis": true, "minShapes": "x:2", "optShapes": "x:1", "maxShapes": "x:1"}"#,
                "option `optShapes`: `x:1` is less than `x:2`, or of other dimensions",
            ),
            (r#"{"plugins": "a.so"}"#, "option `plugins`: `\"a.so\"` is not a list of libraries"),
            (r#"{"workspace_bytes": "1G"}"#, "option `workspace_bytes`: `\"1G\"` is not a number of bytes"),
        ];
        for (text, expected) in refusals {
            let error = Options::read(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
