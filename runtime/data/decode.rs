//! From the bytes of an image file to RGB pixels.
//!
//! Orientation tags are left alone, as torchvision's loaders leave them.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::pixels::CHANNELS;

/// Larger images are refused before memory is taken for them; PIL warns of decompression bombs from here on.
pub const MAX_PIXELS: usize = 89_478_485;

/// Decodes `file` into `rgb` (resized to fit) and gives width and height.
///
/// # Errors
/// When the file is empty, no image of a known format, damaged, cut short, or has too many pixels.
pub fn decode(file: &[u8], rgb: &mut Vec<u8>) -> Result<(usize, usize), String> {
    if file.is_empty() {
        return Err("the file is empty".to_owned());
    }
    match image::guess_format(file) {
        Ok(ImageFormat::Jpeg) => decode_jpeg(file, rgb),
        Ok(format) => decode_other(file, format, rgb),
        Err(_) => Err("no image (known: JPEG, PNG)".to_owned()),
    }
}

fn decode_jpeg(file: &[u8], rgb: &mut Vec<u8>) -> Result<(usize, usize), String> {
    let damaged = |error| format!("damaged JPEG: {error}");
    let options = DecoderOptions::default()
        // Otherwise a file that is cut short decodes to grey.
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(damaged)?;
    let (width, height) = decoder.dimensions().ok_or("damaged JPEG: no dimensions")?;
    check_size(width, height)?;
    if decoder.output_buffer_size() != Some(width * height * CHANNELS) {
        return Err(format!("JPEG of colour space {:?}", decoder.input_colorspace()));
    }
    rgb.resize(width * height * CHANNELS, 0);
    decoder.decode_into(rgb).map_err(damaged)?;
    Ok((width, height))
}

fn decode_other(file: &[u8], format: ImageFormat, rgb: &mut Vec<u8>) -> Result<(usize, usize), String> {
    let damaged = |error| format!("damaged {format:?}: {error}");
    let decoder = ImageReader::with_format(Cursor::new(file), format).into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    let (width, height) = (width as usize, height as usize);
    check_size(width, height)?;
    *rgb = DynamicImage::from_decoder(decoder).map_err(damaged)?.into_rgb8().into_raw();
    Ok((width, height))
}

fn check_size(width: usize, height: usize) -> Result<(), String> {
    match width.checked_mul(height) {
        Some(1..=MAX_PIXELS) => Ok(()),
        _ => Err(format!("{width}x{height} pixels (an image has 1 to {MAX_PIXELS})")),
    }
}
