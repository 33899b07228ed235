//! The engine file, and beside it a description of what it was built for: an engine fits one version of one library,
//! and TensorRT's one kind of GPU.

use std::fs;
use std::path::{Path, PathBuf};

use flagperf_plugin::Error;
use serde::{Deserialize, Serialize};

use crate::flavour::{NAME, TITLE};
use crate::shapes::Profile;

/// What an engine was built for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// `TensorRT` or `TensorRT-RTX`.
    pub library: String,
    /// Its version, whole.
    pub version: String,
    /// The GPU that it was built on; none when there was none.
    pub gpu: Option<Gpu>,
    /// The file that it was built from.
    pub model: String,
    /// The type that the model computes in.
    pub precision: String,
    /// The shapes that it takes; none when they are fixed.
    pub profiles: Vec<Profile>,
}

/// A GPU, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// What it can do: `8.9`.
    pub compute_capability: String,
    /// The CUDA version of its driver: `13.0`.
    pub driver: String,
}

/// Writes an engine and its description. What is there already is replaced, as a whole.
///
/// # Errors
/// When it cannot be written.
pub fn keep(path: &Path, engine: &[u8], description: &Description) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(description).map_err(Error::failed)?;
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    // A description without its engine does no harm; the other way round it would be that of another engine.
    let written = folder.and_then(|()| fs::remove_file(path).or_else(absent)).and_then(|()| {
        fs::write(beside(path), text)?;
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, engine)?;
        fs::rename(unfinished, path)
    });
    written.map_err(|error| Error::Failed(format!("the engine `{}` cannot be kept: {error}", path.display())))
}

fn absent(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Reads an engine and, where there is one, its description: a file of somebody else's has none.
///
/// # Errors
/// When the engine cannot be read, or the description is not one.
pub fn read(path: &Path) -> Result<(Vec<u8>, Option<Description>), Error> {
    let shown = path.display();
    let engine =
        fs::read(path).map_err(|error| Error::Failed(format!("the engine `{shown}` cannot be read: {error}")))?;
    let Ok(text) = fs::read(beside(path)) else { return Ok((engine, None)) };
    let description = serde_json::from_slice(&text)
        .map_err(|error| Error::Failed(format!("`{}` is no description: {error}", beside(path).display())))?;
    Ok((engine, Some(description)))
}

/// Where the description lies.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

impl Description {
    /// Refuses an engine that fits another library or another version of it.
    ///
    /// # Errors
    /// What differs, and what to do.
    pub fn check_library(&self, path: &Path, version: &str) -> Result<(), Error> {
        same(path, &[("library", &self.library, TITLE), ("version", &self.version, version)])
    }

    /// Refuses an engine of TensorRT's that fits another GPU; those of TensorRT-RTX fit any that it takes.
    ///
    /// # Errors
    /// What differs, and what to do.
    pub fn check_gpu(&self, path: &Path, gpu: &Gpu) -> Result<(), Error> {
        let Some(built) = &self.gpu else { return Ok(()) };
        let capability = ("compute capability", built.compute_capability.as_str(), gpu.compute_capability.as_str());
        same(path, &[capability, ("GPU", &built.name, &gpu.name)])
    }
}

/// Refuses an engine of whose facts (what, there, here) one differs.
fn same(path: &Path, facts: &[(&str, &str, &str)]) -> Result<(), Error> {
    let Some((what, theirs, ours)) = facts.iter().find(|(_, theirs, ours)| theirs != ours) else { return Ok(()) };
    Err(Error::Unavailable {
        reason: format!("the engine `{}` was built for {what} `{theirs}`, here it is `{ours}`", path.display()),
        remedy: format!("`exist_compiler_path: null` has {NAME} build one that fits"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu() -> Gpu {
        Gpu { name: "NVIDIA L4".into(), compute_capability: "8.9".into(), driver: "13.0".into() }
    }

    fn description() -> Description {
        Description {
            library: TITLE.into(),
            version: "1.7.1".into(),
            gpu: Some(gpu()),
            model: "resnet50.onnx".into(),
            precision: "f16".into(),
            profiles: vec![Profile::read("x:1x3", "x:2x3", "x:4x3").unwrap()],
        }
    }

    #[test]
    fn an_engine_is_kept_with_its_description_and_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nvidia_tmp/resnet50.trt");
        for engine in [b"first".as_slice(), b"second, longer"] {
            keep(&path, engine, &description()).unwrap();
            assert_eq!(read(&path).unwrap(), (engine.to_vec(), Some(description())));
        }
        let mut names: Vec<_> =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["resnet50.trt", "resnet50.trt.json"], "nothing unfinished is left");
    }

    #[test]
    fn a_file_of_somebody_elses_has_no_description_and_a_broken_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.trt");
        assert!(read(&path).unwrap_err().to_string().contains("own.trt` cannot be read: No such file"));
        fs::write(&path, b"engine").unwrap();
        assert_eq!(read(&path).unwrap(), (b"engine".to_vec(), None));
        fs::write(beside(&path), b"{").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("own.trt.json` is no description: EOF"));
    }

    #[test]
    fn an_engine_that_fits_something_else_says_what_differs() {
        let path = Path::new("a.trt");
        let reason = |result: Result<(), Error>| match result.unwrap_err() {
            Error::Unavailable { reason, remedy } => {
                assert!(remedy.contains("exist_compiler_path: null"), "{remedy}");
                reason
            }
            error => error.to_string(),
        };
        description().check_library(path, "1.7.1").unwrap();
        let theirs = Description { version: "1.6.0".into(), ..description() };
        let said = reason(theirs.check_library(path, "1.7.1"));
        assert_eq!(said, "the engine `a.trt` was built for version `1.6.0`, here it is `1.7.1`");
        let theirs = Description { library: "TensorFish".into(), ..description() };
        assert!(reason(theirs.check_library(path, "1.7.1")).contains("library `TensorFish`, here it is `TensorRT"));
        description().check_gpu(path, &gpu()).unwrap();
        let other = Gpu { name: "NVIDIA T4".into(), compute_capability: "7.5".into(), ..gpu() };
        let said = reason(description().check_gpu(path, &other));
        assert!(said.contains("was built for compute capability `8.9`, here it is `7.5`"), "{said}");
        let said = reason(description().check_gpu(path, &Gpu { name: "NVIDIA L40".into(), ..gpu() }));
        assert!(said.contains("was built for GPU `NVIDIA L4`, here it is `NVIDIA L40`"), "{said}");
        description().check_gpu(path, &Gpu { driver: "14.0".into(), ..gpu() }).unwrap();
        Description { gpu: None, ..description() }.check_gpu(path, &other).unwrap();
    }
}
