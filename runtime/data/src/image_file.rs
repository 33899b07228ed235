//! Reads one image file, from the disk to the values of its field.

use std::cell::RefCell;
use std::io::Read;
use std::path::Path;

use flagperf_core::regular_file::open_regular;

use super::decode::decode;
use super::geometry::Size;
use super::pixels::{CropScratch, ImageTransforms};
use super::random::SampleDraw;

/// Largest size of an image file in bytes; larger ones could not be decoded anyway.
const FILE_BYTES_MAX: u64 = 1 << 28;

/// Largest number of bytes that a thread keeps for the next sample, so that one huge image does not occupy memory
/// forever.
const SCRATCH_BYTES_MAX: usize = 64 << 20;

/// Memory that a thread reuses from image to image.
#[derive(Default)]
struct Scratch {
    file: Vec<u8>,
    rgb: Vec<u8>,
    crop: CropScratch,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Reads and decodes an image and writes its transformed values to `out`. Random transforms depend on `draw`.
/// Returns the width and the height in the file.
///
/// # Errors
/// When the file cannot be read or decoded, or the transforms do not apply to its size.
pub fn read_image(
    path: &Path,
    transforms: &ImageTransforms,
    draw: &SampleDraw,
    out: &mut [u8],
) -> Result<Size, String> {
    SCRATCH.with_borrow_mut(|scratch| {
        let read = read_into(path, transforms, draw, scratch, out);
        if scratch.file.capacity() + scratch.rgb.capacity() > SCRATCH_BYTES_MAX {
            *scratch = Scratch::default();
        }
        read
    })
}

fn read_into(
    path: &Path,
    transforms: &ImageTransforms,
    draw: &SampleDraw,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Result<Size, String> {
    read_file(path, &mut scratch.file)?;
    let size = decode(&scratch.file, &mut scratch.rgb)?;
    transforms.apply(&scratch.rgb, size, draw, &mut scratch.crop, out)?;
    Ok(size)
}

/// Reads a regular file of at most 256 MiB into `bytes`.
///
/// # Errors
/// When the file is not a regular file, too large, or cannot be read.
pub fn read_file(path: &Path, bytes: &mut Vec<u8>) -> Result<(), String> {
    let file = open_regular(path).map_err(|error| error.to_string())?;
    bytes.clear();
    file.take(FILE_BYTES_MAX + 1).read_to_end(bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("the file is larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(())
}
