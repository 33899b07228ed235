//! Paths and sources of files in the data directory.

use std::path::{Component, Path, PathBuf};

use super::Pipeline;
use crate::sandbox::Fallible;
use flagperf_data::{Pipeline as HostPipeline, SampleSource};

/// Checks that the text of `path` stays inside the data directory; links are resolved when the path is opened.
pub(in crate::packages) fn relative_path(path: &str) -> Fallible<PathBuf> {
    let stays = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.is_empty() || !Path::new(path).components().all(stays) {
        return Err(format!("path `{path}` leaves the data directory: use a path inside it, without `..`").into());
    }
    Ok(PathBuf::from(path))
}

/// Returns a pipeline without transforms.
pub(super) fn pipeline_of(source: SampleSource) -> Pipeline {
    Pipeline(HostPipeline { source, transforms: Vec::new() })
}
