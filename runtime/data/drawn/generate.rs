//! The files of the drawn dataset: made once, whole or not at all.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use libjpeg_turbo_rs::{PixelFormat, Subsampling, compress};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rayon::prelude::*;

use super::picture::{self, SHAPES};
use crate::data::image_folder::DRAWN_MARK;

/// The folder that is made, beside `dataset.yaml`.
const FOLDER: &str = "generated";

/// Class folders, a line each: the class list of the dataset.
const CLASS_LIST: &str = "classes.txt";

/// Pictures in a class folder.
const PICTURES: u64 = 8;

/// Seed of everything that is random in the pictures.
const SEED: u64 = 20;

/// JPEG quality, of 100: with it a picture takes some 45 KB, as a photograph of this size does.
const QUALITY: u8 = 84;

/// A longer description or mark is none of this program's.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 16;

/// Changes whenever the same seed gives other files.
const RECIPE: u32 = 2;

/// Makes `dir/generated` when `dir` holds the description of the drawn dataset (`dataset.yaml` with
/// `generator: flagperf`) and the files are not there or are of another version. Any other directory is left alone;
/// `dir` may also be the folder `generated` itself. Processes that do this at once do not disturb each other.
///
/// # Errors
/// When the files cannot be written.
pub fn ensure(dir: &Path) -> Result<(), DrawError> {
    let home = if dir.ends_with(FOLDER) { dir.parent().unwrap_or(dir) } else { dir };
    let description =
        flagperf_onnx::read_regular_text(&home.join("dataset.yaml"), DESCRIPTION_BYTES_MAX).unwrap_or_default();
    if !description.lines().any(|line| line.trim_end() == "generator: flagperf") {
        return Ok(());
    }
    let folder = home.join(FOLDER);
    if is_current(&folder) {
        return Ok(());
    }
    generate(home, &folder).map_err(|error| DrawError { folder, reason: error.to_string() })
}

fn mark() -> String {
    format!("Drawn by flagperf: recipe {RECIPE}, seed {SEED}. May be deleted; it is made again when it is needed.\n")
}

fn is_current(folder: &Path) -> bool {
    flagperf_onnx::read_regular_text(&folder.join(DRAWN_MARK), DESCRIPTION_BYTES_MAX).is_ok_and(|text| text == mark())
}

/// Draws into a folder of its own and renames it: nobody ever sees half a dataset.
fn generate(home: &Path, folder: &Path) -> io::Result<()> {
    let unfinished = tempfile::Builder::new().prefix("generated.").tempdir_in(home)?;
    let whole = unfinished.path().join(FOLDER);
    for shape in SHAPES {
        fs::create_dir_all(whole.join(shape.name()))?;
    }
    (0..SHAPES.len() as u64 * PICTURES).into_par_iter().try_for_each(|number| {
        let shape = SHAPES[(number / PICTURES) as usize];
        let path = whole.join(shape.name()).join(format!("{}_{:02}.jpg", shape.name(), number % PICTURES));
        fs::write(path, picture_file(number)?)
    })?;
    let names: Vec<&str> = SHAPES.iter().map(|shape| shape.name()).collect();
    fs::write(whole.join(CLASS_LIST), names.join("\n") + "\n")?;
    fs::write(whole.join(DRAWN_MARK), mark())?;
    if folder.exists() && !is_current(folder) {
        fs::rename(folder, unfinished.path().join("outdated"))?;
    }
    match fs::rename(&whole, folder) {
        // Another process was faster.
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && is_current(folder) => Ok(()),
        outcome => outcome,
    }
}

fn picture_file(number: u64) -> io::Result<Vec<u8>> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    random.set_stream(number);
    let shape = SHAPES[(number / PICTURES) as usize];
    let (rgb, width, height) = picture::draw(shape, &mut random);
    compress(&rgb, width as usize, height as usize, PixelFormat::Rgb, QUALITY, Subsampling::S420)
        .map_err(io::Error::other)
}

/// The drawn dataset could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot draw the sample images in `{}`: {reason}", .folder.display())]
pub struct DrawError {
    /// The folder to be made.
    pub folder: PathBuf,
    /// Why it could not.
    pub reason: String,
}
