//! The files and folders of this machine that a job uses, which its container mounts read-only.

use std::path::{Path, PathBuf};

use flagperf_container::{ContainerError, socket_exposure};
use flagperf_plan::{Job, ModelInput, Task};

/// A path that the configuration of a case or a vendor names.
pub(super) struct NamedPath {
    /// What names it: "option `cache` of engine `rten`".
    pub(super) named_by: String,
    pub(super) path: PathBuf,
}

/// Returns the paths that a job uses beside its data: its model, the library of its engine, and the paths in the engine's options.
pub(super) fn named_paths(job: &Job) -> Vec<NamedPath> {
    let engine = &job.engine;
    // A model may consist of several files in its folder.
    let folder = |path: &Path| path.parent().filter(|folder| folder.parent().is_some()).unwrap_or(path).to_owned();
    let model = match &job.task {
        Task::Infer { model: ModelInput::Onnx(path) | ModelInput::Compiled(path) } => Some(folder(path)),
        _ => None,
    };
    let model = model.map(|path| NamedPath { named_by: "the path of the model".to_owned(), path });
    let library = engine.library.as_ref().map(|library| NamedPath {
        named_by: format!("`library` of engine `{}`", engine.name),
        path: engine.folder.join(library),
    });
    let options = engine.options.iter().filter_map(|(name, value)| {
        let path = PathBuf::from(value.as_str()?);
        let named_by = format!("option `{name}` of engine `{}`", engine.name);
        path.is_absolute().then_some(NamedPath { named_by, path })
    });
    model.into_iter().chain(library).chain(options).collect()
}

/// Checks that a container may see the paths that a job names. The data directory is not searched: the site names it, and it may
/// have millions of files. `engine` is the socket of the container engine.
///
/// # Errors
/// When a path is a socket or contains one.
pub(super) fn check_paths(job: &Job, engine: &Path) -> Result<(), ContainerError> {
    for NamedPath { named_by, path } in named_paths(job) {
        if let Some(reason) = socket_exposure(&path, engine) {
            return Err(ContainerError::Exposed { named_by, path, reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::testing;

    #[test]
    fn an_option_or_a_model_whose_folder_has_a_socket_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |job: &Job| check_paths(job, Path::new("/none")).map_err(|error| error.to_string());
        let mut job = testing::job();
        job.task = Task::Infer { model: ModelInput::Onnx(folder.path().join("m.onnx")) };
        job.engine.options.insert("cache".into(), folder.path().to_string_lossy().into());
        job.engine.options.insert("mode".into(), "fast".into());
        assert_eq!(refused(&job), Ok(()));
        let _listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let error = refused(&job).unwrap_err();
        assert!(error.starts_with("the path of the model names `/") && error.ends_with("/s`"), "{error}");
        job.task = testing::job().task;
        let error = refused(&job).unwrap_err();
        assert!(error.starts_with("option `cache` of engine `null` names `/"), "{error}");
        assert!(error.contains("`, which a container must not see: it contains the socket `/"), "{error}");
        job.engine.options.insert("cache".into(), "/".into());
        let error = check_paths(&job, &folder.path().join("s")).unwrap_err().to_string();
        assert!(
            error.contains(" names `/`, which a container must not see: the socket of the container engine"),
            "{error}"
        );
    }
}
