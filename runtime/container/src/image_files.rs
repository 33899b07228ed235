//! Reads files of an image, after a run, to hash them.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{CreateContainerOptions, DownloadFromContainerOptions};
use futures_util::StreamExt;
use indexmap::IndexMap;

use super::engine::ANSWER_LIMIT;
use super::{ContainerEngine, ContainerError};

/// Time limit of reading one file.
const READ_LIMIT: Duration = Duration::from_secs(300);
/// Largest file that is read.
const BYTES_MAX: u64 = 2 << 30;

/// The files of an image, read through a container that is never started.
#[derive(Debug)]
pub struct ImageFiles {
    engine: Arc<ContainerEngine>,
    container: String,
}

impl ImageFiles {
    /// Opens the image with this id, and creates a container with these labels.
    ///
    /// # Errors
    /// When the engine does not answer, or has no such image.
    pub fn open(
        engine: &Arc<ContainerEngine>,
        image: &str,
        labels: &IndexMap<String, String>,
    ) -> Result<Self, ContainerError> {
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            cmd: Some(vec!["never-started".to_owned()]),
            labels: Some(labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect()),
            ..ContainerCreateBody::default()
        };
        let created = engine.request("create a container", ANSWER_LIMIT, async |docker| {
            docker.create_container(None::<CreateContainerOptions>, body).await
        })?;
        Ok(ImageFiles { engine: Arc::clone(engine), container: created.id })
    }

    /// Calls `read` with the content of a regular file and its size in bytes.
    ///
    /// # Errors
    /// When the image has no such regular file, it is larger than 2 GiB, or the disk is full.
    pub fn read<T>(&self, path: &Path, read: impl FnOnce(&mut dyn Read, u64) -> io::Result<T>) -> io::Result<T> {
        let mut archive = tar::Archive::new(self.archive_of(path)?);
        let mut entry = archive.entries()?.next().ok_or(io::ErrorKind::UnexpectedEof)??;
        if !entry.header().entry_type().is_file() {
            return Err(io::Error::other("not a regular file in the image"));
        }
        let size = entry.size();
        read(&mut entry, size)
    }

    /// Downloads a file as an archive, into a temporary file.
    fn archive_of(&self, path: &Path) -> io::Result<File> {
        let mut file = tempfile::tempfile()?;
        let options = DownloadFromContainerOptions { path: path.to_string_lossy().into_owned() };
        let written = self.engine.request("read a file of an image", READ_LIMIT, async |docker| {
            let mut pieces = std::pin::pin!(docker.download_from_container(&self.container, Some(options)));
            let mut room = BYTES_MAX;
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                room =
                    room.checked_sub(piece.len() as u64).ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
                file.write_all(&piece)?;
            }
            Ok(())
        });
        written.map_err(io::Error::other)?;
        file.rewind()?;
        Ok(file)
    }
}

impl Drop for ImageFiles {
    fn drop(&mut self) {
        self.engine.remove_container(&self.container);
    }
}
