//! Images in one folder a class.

use std::cell::RefCell;
use std::fs::{self, DirEntry};
use std::io::Read;
use std::path::{Path, PathBuf};

use flagperf_onnx::open_regular;
use sha2::{Digest, Sha256};

use super::class_list::ClassList;
use super::decode::decode;
use super::pixels::{CropScratch, ImageSteps};
use super::{DataError, DataRoot, Dataset, Field, FieldRole, SampleError};
use crate::event::DatasetFacts;
use crate::hash::hexadecimal;
use crate::tensor::{DType, TensorSpec};

/// A folder of class folders with this file holds images that the project drew itself.
pub const DRAWN_MARK: &str = "DRAWN.txt";

/// A larger file is no image that could be decoded anyway.
const MAX_FILE_BYTES: u64 = 1 << 28;

/// Beyond this a thread gives its memory back after the image, so that one huge image does not stay.
const KEPT_SCRATCH_BYTES: usize = 64 << 20;

/// An opened folder of images: its index, no pixels.
pub struct ImageFolder {
    images: PathBuf,
    folders: Vec<Folder>,
    samples: Vec<Sample>,
    fields: Vec<Field>,
    steps: ImageSteps,
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

/// Memory that one thread reuses from sample to sample.
#[derive(Default)]
struct Scratch {
    file: Vec<u8>,
    rgb: Vec<u8>,
    crop: CropScratch,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl ImageFolder {
    /// Lists the class folders in `images` and their files, both in byte order. Hidden files and folders are no
    /// samples, nor are files beside the class folders; every other file is one, whatever its name.
    ///
    /// # Errors
    /// When a path is missing or leaves `root`, a class folder is not in the list `classes` or holds something else
    /// than files, or there are no samples.
    pub fn open(root: &DataRoot, images: &Path, classes: Option<&Path>, steps: ImageSteps) -> Result<Self, DataError> {
        let folder = root.resolve(images)?;
        let list = classes.map(|file| ClassList::read(root, file)).transpose()?;
        let mut index = Index { root, folders: Vec::new(), samples: Vec::new(), hash: Sha256::new() };
        let mut rank = 0;
        for entry in entries(&folder)? {
            if !index.inside(&entry)?.is_dir() {
                continue;
            }
            let name = name(&entry)?;
            let class = list.as_ref().map_or(Ok(rank), |list| list.class(&name))?;
            index.add_folder(&entry.path(), name, class)?;
            rank += 1;
        }
        if index.samples.is_empty() {
            return Err(DataError::Empty { path: folder });
        }
        let facts = DatasetFacts {
            location: folder.display().to_string(),
            samples: index.samples.len() as u64,
            index_sha256: hexadecimal(&index.hash.finalize()),
            pipeline: description(images, classes, &steps),
            synthetic: folder.join(DRAWN_MARK).exists(),
        };
        let fields = vec![
            Field { name: "images".to_owned(), role: FieldRole::Input, spec: steps.spec() },
            Field {
                name: "labels".to_owned(),
                role: FieldRole::Truth,
                spec: TensorSpec::new([] as [usize; 0], DType::I64),
            },
        ];
        Ok(ImageFolder { images: folder, folders: index.folders, samples: index.samples, fields, steps, facts })
    }

    fn read_into(&self, index: usize, image: &mut [u8], scratch: &mut Scratch) -> Result<(), String> {
        let file = open_regular(&self.images.join(self.sample_name(index))).map_err(|error| error.to_string())?;
        scratch.file.clear();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut scratch.file).map_err(|error| error.to_string())?;
        if scratch.file.len() as u64 > MAX_FILE_BYTES {
            return Err(format!("larger than {MAX_FILE_BYTES} bytes"));
        }
        let size = decode(&scratch.file, &mut scratch.rgb)?;
        self.steps.apply(&scratch.rgb, size, &mut scratch.crop, image)
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
        let failed = |reason| SampleError { sample: self.sample_name(index), reason };
        let [image, label] = fields else {
            return Err(failed(format!("{} fields asked for, a sample has 2", fields.len())));
        };
        let class = i64::from(self.folders[self.samples[index].folder as usize].class);
        label.copy_from_slice(&class.to_ne_bytes());
        SCRATCH.with_borrow_mut(|scratch| {
            let read = self.read_into(index, image, scratch);
            if scratch.file.capacity() + scratch.rgb.capacity() > KEPT_SCRATCH_BYTES {
                *scratch = Scratch::default();
            }
            read.map_err(failed)
        })
    }
}

/// The index while it is made.
struct Index<'a> {
    root: &'a DataRoot,
    folders: Vec<Folder>,
    samples: Vec<Sample>,
    hash: Sha256,
}

impl Index<'_> {
    fn add_folder(&mut self, path: &Path, name: String, class: u32) -> Result<(), DataError> {
        let folder = self.folders.len() as u32;
        for entry in entries(path)? {
            let metadata = self.inside(&entry)?;
            if !metadata.is_file() {
                return Err(DataError::NoFile { path: entry.path() });
            }
            let file = self::name(&entry)?;
            self.hash.update(format!("{name}/{file}\0{}\0{class}\n", metadata.len()));
            self.samples.push(Sample { folder, file: file.into() });
        }
        self.folders.push(Folder { name, class });
        Ok(())
    }

    /// What an entry is, after a symbolic link that stays inside the data directory.
    fn inside(&self, entry: &DirEntry) -> Result<fs::Metadata, DataError> {
        let path = entry.path();
        let metadata = entry.metadata().map_err(|error| unreadable(&path, &error))?;
        if !metadata.is_symlink() {
            return Ok(metadata);
        }
        let relative = path.strip_prefix(self.root.path()).unwrap_or(&path);
        fs::metadata(self.root.resolve(relative)?).map_err(|error| unreadable(&path, &error))
    }
}

/// The entries of a folder that are not hidden, in byte order of their names.
fn entries(folder: &Path) -> Result<Vec<DirEntry>, DataError> {
    let mut entries = fs::read_dir(folder)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(folder, &error))?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}

fn name(entry: &DirEntry) -> Result<String, DataError> {
    entry
        .file_name()
        .into_string()
        .map_err(|_| DataError::Unreadable { path: entry.path(), reason: "its name is not UTF-8".to_owned() })
}

fn unreadable(path: &Path, error: &std::io::Error) -> DataError {
    DataError::Unreadable { path: path.to_owned(), reason: error.to_string() }
}

fn description(images: &Path, classes: Option<&Path>, steps: &ImageSteps) -> Vec<String> {
    let classes = classes.map_or_else(|| "rank of the folder".to_owned(), |file| file.display().to_string());
    let mut text = vec![format!("image_folder {}, classes: {classes}", images.display())];
    text.extend_from_slice(steps.text());
    text
}

#[cfg(test)]
mod tests;
