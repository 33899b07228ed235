//! The engine file, and the file that describes what it was built for: an engine only runs with one version of one
//! library, and an engine of TensorRT only on one GPU model.

use std::fs;
use std::path::{Path, PathBuf};

use flagperf_plugin::Error;
use serde::{Deserialize, Serialize};

use crate::shapes::Profile;
use crate::variant::{NAME, TITLE};

/// The environment and the model that an engine was built for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// `TensorRT` or `TensorRT-RTX`.
    pub library: String,
    /// The library's full version.
    pub version: String,
    /// The GPU that the engine was built on; `None` when it was built without one.
    pub gpu: Option<GpuDescription>,
    /// The name of the model file.
    pub model: String,
    /// The type that the model computes in.
    pub precision: String,
    /// The shapes that the engine supports; empty when they are fixed.
    pub profiles: Vec<Profile>,
}

/// A GPU, as its driver reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDescription {
    /// The name.
    pub name: String,
    /// The compute capability: `8.9`.
    pub compute_capability: String,
    /// The CUDA version of the driver: `13.0`.
    pub driver: String,
}

/// Writes an engine and its description. An existing engine is replaced as a whole.
///
/// # Errors
/// When a file cannot be written.
pub fn write(path: &Path, engine: &[u8], description: &Description) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(description).map_err(Error::failed)?;
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    // The old engine is removed first: a description without an engine is harmless, but an engine must not be left with
    // the description of another one.
    let written = folder.and_then(|()| fs::remove_file(path).or_else(ignore_not_found)).and_then(|()| {
        fs::write(description_path(path), text)?;
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, engine)?;
        fs::rename(unfinished, path)
    });
    written.map_err(|error| Error::Failed(format!("the engine `{}` cannot be written: {error}", path.display())))
}

fn ignore_not_found(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Reads an engine and its description; `None` for a file without a description, which another program wrote.
///
/// # Errors
/// When the engine cannot be read, or the description is malformed.
pub fn read(path: &Path) -> Result<(Vec<u8>, Option<Description>), Error> {
    let engine = fs::read(path)
        .map_err(|error| Error::Failed(format!("the engine `{}` cannot be read: {error}", path.display())))?;
    let description_path = description_path(path);
    let Ok(text) = fs::read(&description_path) else { return Ok((engine, None)) };
    let description = serde_json::from_slice(&text).map_err(|error| {
        Error::Failed(format!("`{}` is not the description of an engine: {error}", description_path.display()))
    })?;
    Ok((engine, Some(description)))
}

/// Returns the path of an engine's description.
fn description_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

impl Description {
    /// Rejects an engine that was built with another library or another version of it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the difference and a remedy.
    pub fn check_library(&self, path: &Path, version: &str) -> Result<(), Error> {
        check_equal(path, &[("library", &self.library, TITLE), ("version", &self.version, version)])
    }

    /// Rejects an engine that was built on another GPU model. Only TensorRT's engines need this check; those of
    /// TensorRT-RTX run on every GPU that it supports.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the difference and a remedy.
    pub fn check_gpu(&self, path: &Path, gpu: &GpuDescription) -> Result<(), Error> {
        let Some(built) = &self.gpu else { return Ok(()) };
        let capability = ("compute capability", built.compute_capability.as_str(), gpu.compute_capability.as_str());
        check_equal(path, &[capability, ("GPU", &built.name, &gpu.name)])
    }
}

/// Rejects an engine when a property differs; each property consists of its name, the engine's value and this machine's
/// value.
fn check_equal(path: &Path, properties: &[(&str, &str, &str)]) -> Result<(), Error> {
    let Some((name, built, local)) = properties.iter().find(|(_, built, local)| built != local) else { return Ok(()) };
    Err(Error::Unavailable {
        reason: format!(
            "the engine `{}` was built for {name} `{built}`, but this machine has `{local}`",
            path.display()
        ),
        remedy: format!("set `exist_compiler_path: null` to build a new engine with `{NAME}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu() -> GpuDescription {
        GpuDescription { name: "NVIDIA L4".into(), compute_capability: "8.9".into(), driver: "13.0".into() }
    }

    fn description() -> Description {
        Description {
            library: TITLE.into(),
            version: "1.7.1".into(),
            gpu: Some(gpu()),
            model: "resnet50.onnx".into(),
            precision: "f16".into(),
            profiles: vec![Profile::parse("x:1x3", "x:2x3", "x:4x3").unwrap()],
        }
    }

    #[test]
    fn an_engine_is_written_with_its_description_and_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nvidia_tmp/resnet50.trt");
        for engine in [b"first".as_slice(), b"second, longer"] {
            write(&path, engine, &description()).unwrap();
            assert_eq!(read(&path).unwrap(), (engine.to_vec(), Some(description())));
        }
        let mut names: Vec<_> =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["resnet50.trt", "resnet50.trt.json"], "an unfinished file is left");
    }

    #[test]
    fn a_foreign_engine_has_no_description_and_a_malformed_one_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.trt");
        assert!(read(&path).unwrap_err().to_string().contains("own.trt` cannot be read: No such file"));
        fs::write(&path, b"engine").unwrap();
        assert_eq!(read(&path).unwrap(), (b"engine".to_vec(), None));
        fs::write(description_path(&path), b"{").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("own.trt.json` is not the description of an engine: EOF"), "{error}");
    }

    #[test]
    fn the_error_for_an_unsuitable_engine_contains_the_difference() {
        let path = Path::new("a.trt");
        let reason = |result: Result<(), Error>| match result.unwrap_err() {
            Error::Unavailable { reason, remedy } => {
                assert!(remedy.contains("exist_compiler_path: null"), "{remedy}");
                reason
            }
            error => error.to_string(),
        };
        description().check_library(path, "1.7.1").unwrap();
        let older = Description { version: "1.6.0".into(), ..description() };
        let message = reason(older.check_library(path, "1.7.1"));
        assert_eq!(message, "the engine `a.trt` was built for version `1.6.0`, but this machine has `1.7.1`");
        let foreign = Description { library: "TensorFish".into(), ..description() };
        let message = reason(foreign.check_library(path, "1.7.1"));
        assert!(message.contains("library `TensorFish`, but this machine has `TensorRT"), "{message}");
        description().check_gpu(path, &gpu()).unwrap();
        let other = GpuDescription { name: "NVIDIA T4".into(), compute_capability: "7.5".into(), ..gpu() };
        let message = reason(description().check_gpu(path, &other));
        assert!(message.contains("was built for compute capability `8.9`, but this machine has `7.5`"), "{message}");
        let message = reason(description().check_gpu(path, &GpuDescription { name: "NVIDIA L40".into(), ..gpu() }));
        assert!(message.contains("was built for GPU `NVIDIA L4`, but this machine has `NVIDIA L40`"), "{message}");
        description().check_gpu(path, &GpuDescription { driver: "14.0".into(), ..gpu() }).unwrap();
        Description { gpu: None, ..description() }.check_gpu(path, &other).unwrap();
    }
}
