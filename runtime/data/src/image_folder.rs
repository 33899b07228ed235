//! The dataset of images with one folder per class.

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::batch_decoder::{BatchDecoder, EncodedFile};
use super::class_list::ClassList;
use super::decode::jpeg_size;
use super::image_file::{read_file, read_image};
use super::pixels::ImageTransforms;
use super::random::{Epoch, SampleDraw};
use super::{DataError, DataRoot, Dataset, Field, FieldRole, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::hash::hexadecimal;
use flagperf_core::image_decoder::DecoderLibrary;
use flagperf_core::tensor::{DType, TensorSpec};

/// An opened folder of images: the index of its files, without pixels.
pub struct ImageFolder {
    images: PathBuf,
    folders: Vec<Folder>,
    samples: Vec<Sample>,
    fields: Vec<Field>,
    transforms: ImageTransforms,
    decoder: Option<BatchDecoder>,
    facts: DatasetFacts,
}

struct Folder {
    name: String,
    class: u32,
}

struct Sample {
    folder: u32,
    file: Box<str>,
}

impl ImageFolder {
    /// Lists the class folders in `images` and their files, both in byte order. Every file in a class folder is a
    /// sample, whatever its name. Hidden files and folders, and files outside the class folders, are ignored.
    ///
    /// # Errors
    /// When a path is missing or leaves `root`, a class folder is not in the list `classes` or contains anything but
    /// files, or there are no samples.
    pub fn open(
        root: &DataRoot,
        images: &Path,
        classes: Option<&Path>,
        transforms: ImageTransforms,
    ) -> Result<Self, DataError> {
        let folder = root.resolve(images)?;
        let list = classes.map(|file| ClassList::read(root, file)).transpose()?;
        let mut index = IndexBuilder { root, folders: Vec::new(), samples: Vec::new(), hash: Sha256::new() };
        let mut rank = 0;
        for entry in visible_entries(&folder)? {
            if !metadata_inside(root, &entry)?.is_dir() {
                continue;
            }
            let name = entry_name(&entry)?;
            let class = list.as_ref().map_or(Ok(rank), |list| list.class(&name))?;
            index.add_folder(&entry.path(), name, class)?;
            rank += 1;
        }
        if index.samples.is_empty() {
            return Err(DataError::Empty { path: folder });
        }
        let facts = root.facts(
            &folder,
            index.samples.len(),
            hexadecimal(&index.hash.finalize()),
            describe_pipeline(images, classes, &transforms),
        );
        let fields = vec![
            Field { name: "images".to_owned(), role: FieldRole::Input, spec: transforms.spec() },
            Field {
                name: "labels".to_owned(),
                role: FieldRole::Truth,
                spec: TensorSpec::new([] as [usize; 0], DType::I64),
            },
        ];
        Ok(ImageFolder {
            images: folder,
            folders: index.folders,
            samples: index.samples,
            fields,
            transforms,
            decoder: None,
            facts,
        })
    }

    /// Lets a vendor's library decode the images of whole batches.
    ///
    /// # Errors
    /// [`DataError::Transforms`] for transforms that such a library does not have.
    pub fn decoded_by(mut self, library: Arc<dyn DecoderLibrary>) -> Result<Self, DataError> {
        self.decoder = Some(BatchDecoder::new(library, self.transforms.decoder_options()?));
        Ok(self)
    }

    /// Checks what [`ImageFolder::open`] checks without listing the samples: the class folders, and whether one of them
    /// contains anything.
    ///
    /// # Errors
    /// As [`ImageFolder::open`], except for entries of class folders that are not files.
    pub fn check(root: &DataRoot, images: &Path, classes: Option<&Path>) -> Result<(), DataError> {
        let folder = root.resolve(images)?;
        let list = classes.map(|file| ClassList::read(root, file)).transpose()?;
        let mut has_sample = false;
        for entry in visible_entries(&folder)? {
            if !metadata_inside(root, &entry)?.is_dir() {
                continue;
            }
            let name = entry_name(&entry)?;
            list.as_ref().map_or(Ok(0), |list| list.class(&name))?;
            has_sample = has_sample || has_visible_entry(&entry.path())?;
        }
        if has_sample { Ok(()) } else { Err(DataError::Empty { path: folder }) }
    }
}

impl Dataset for ImageFolder {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn sample_name(&self, index: usize) -> String {
        let sample = &self.samples[index];
        format!("{}/{}", self.folders[sample.folder as usize].name, sample.file)
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.read_in_epoch(index, Epoch::default(), fields)
    }

    fn read_in_epoch(&self, index: usize, epoch: Epoch, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let (path, image) = self.write_label(index, fields)?;
        let draw = SampleDraw { sample: index as u64, epoch };
        read_image(&path, &self.transforms, &draw, image)
            .map(drop)
            .map_err(|reason| SampleError { sample: self.sample_name(index), reason })
    }

    fn batch_decoder(&self) -> Option<(&BatchDecoder, &ImageTransforms)> {
        Some((self.decoder.as_ref()?, &self.transforms))
    }

    fn read_encoded(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<Option<EncodedFile>, SampleError> {
        let failed = |reason| SampleError { sample: self.sample_name(index), reason };
        let (path, _) = self.write_label(index, fields)?;
        let mut file = Vec::new();
        read_file(&path, &mut file).map_err(failed)?;
        let Some(size) = jpeg_size(&file) else { return Ok(None) };
        let [columns, rows] = self.transforms.axis_weights(size).map_err(failed)?;
        Ok(Some(EncodedFile { file, size, columns, rows }))
    }
}

impl ImageFolder {
    /// Writes the label of a sample, and returns the path of its image and the memory for it.
    fn write_label<'a>(
        &self,
        index: usize,
        fields: &'a mut [&mut [u8]],
    ) -> Result<(PathBuf, &'a mut [u8]), SampleError> {
        let count = fields.len();
        let [image, label] = fields else {
            let reason = format!("{count} fields requested, but a sample has 2");
            return Err(SampleError { sample: self.sample_name(index), reason });
        };
        let class = i64::from(self.folders[self.samples[index].folder as usize].class);
        label.copy_from_slice(&class.to_ne_bytes());
        Ok((self.images.join(self.sample_name(index)), image))
    }
}

/// The index of a folder of images while it is built.
struct IndexBuilder<'a> {
    root: &'a DataRoot,
    folders: Vec<Folder>,
    samples: Vec<Sample>,
    hash: Sha256,
}

impl IndexBuilder<'_> {
    fn add_folder(&mut self, path: &Path, name: String, class: u32) -> Result<(), DataError> {
        let folder = self.folders.len() as u32;
        for entry in visible_entries(path)? {
            let metadata = metadata_inside(self.root, &entry)?;
            if !metadata.is_file() {
                return Err(DataError::NotAFile { path: entry.path() });
            }
            let file = entry_name(&entry)?;
            self.hash.update(format!("{name}/{file}\0{}\0{class}\n", metadata.len()));
            self.samples.push(Sample { folder, file: file.into() });
        }
        self.folders.push(Folder { name, class });
        Ok(())
    }
}

/// Returns the metadata of an entry, following a symbolic link that stays inside the data directory.
fn metadata_inside(root: &DataRoot, entry: &DirEntry) -> Result<fs::Metadata, DataError> {
    let path = entry.path();
    let metadata = entry.metadata().map_err(|error| DataError::unreadable(&path, &error))?;
    if !metadata.is_symlink() {
        return Ok(metadata);
    }
    let relative = path.strip_prefix(root.path()).unwrap_or(&path);
    fs::metadata(root.resolve(relative)?).map_err(|error| DataError::unreadable(&path, &error))
}

/// Returns whether a folder contains an entry that is not hidden; stops at the first.
fn has_visible_entry(folder: &Path) -> Result<bool, DataError> {
    let entries = fs::read_dir(folder).map_err(|error| DataError::unreadable(folder, &error))?;
    Ok(entries.flatten().any(|entry| is_visible(&entry)))
}

fn is_visible(entry: &DirEntry) -> bool {
    !entry.file_name().as_encoded_bytes().starts_with(b".")
}

/// Returns the entries of a folder that are not hidden, in byte order of their names.
fn visible_entries(folder: &Path) -> Result<Vec<DirEntry>, DataError> {
    let mut entries = fs::read_dir(folder)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| DataError::unreadable(folder, &error))?;
    entries.retain(is_visible);
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}

/// Returns the names and sizes in bytes of the files in a folder that are not hidden, in byte order.
///
/// # Errors
/// When the folder cannot be read, or an entry is not a file or leads out of `root`.
pub(super) fn visible_files(root: &DataRoot, folder: &Path) -> Result<Vec<(String, u64)>, DataError> {
    let file = |entry: DirEntry| {
        let metadata = metadata_inside(root, &entry)?;
        if !metadata.is_file() {
            return Err(DataError::NotAFile { path: entry.path() });
        }
        Ok((entry_name(&entry)?, metadata.len()))
    };
    visible_entries(folder)?.into_iter().map(file).collect()
}

fn entry_name(entry: &DirEntry) -> Result<String, DataError> {
    entry
        .file_name()
        .into_string()
        .map_err(|_| DataError::Unreadable { path: entry.path(), reason: "its name is not UTF-8".to_owned() })
}

fn describe_pipeline(images: &Path, classes: Option<&Path>, transforms: &ImageTransforms) -> Vec<String> {
    let classes = classes.map_or_else(|| "rank of the folder".to_owned(), |file| file.display().to_string());
    let mut text = vec![format!("image_folder {}, classes: {classes}", images.display())];
    text.extend_from_slice(transforms.descriptions());
    text
}

#[cfg(test)]
mod tests;
