//! Decodes the bytes of an image file to RGB pixels. JPEG files are decoded bit for bit as libjpeg-turbo decodes them,
//! because PIL uses it; the module `resize` states why single levels matter. Of the other formats, the pixels are those of PIL, too;
//! of an animation, they are those of the first frame.
//!
//! Orientation tags are ignored, as in torchvision's loaders.

use std::io::Cursor;

use flagperf_core::file_kind;
use image::codecs::bmp::BmpDecoder;
use image::codecs::gif::GifDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageError, ImageFormat};
use libjpeg_turbo_rs::{ColorSpace, Decoder, PixelFormat};

use super::pixels::CHANNELS;

/// Largest number of pixels of an image; PIL warns of decompression bombs above it. Larger images are refused before
/// memory is allocated for them.
pub const MAX_PIXELS: usize = 89_478_485;

/// Largest size of a decoded image in bytes: [`MAX_PIXELS`] with four channels of 8 bits.
const DECODED_BYTES: u64 = MAX_PIXELS as u64 * 4;

/// Decodes `file` into `rgb`, which is resized to fit, and returns the width and the height.
///
/// # Errors
/// When the file is empty, not an image of a supported format, damaged, truncated, or has too many pixels.
pub fn decode(file: &[u8], rgb: &mut Vec<u8>) -> Result<(usize, usize), String> {
    if file.is_empty() {
        return Err("the file is empty".to_owned());
    }
    match image::guess_format(file) {
        Ok(ImageFormat::Jpeg) => decode_jpeg(file, rgb),
        Ok(ImageFormat::Bmp) => decode_with("BMP", BmpDecoder::new(Cursor::new(file)), rgb),
        Ok(ImageFormat::Gif) => decode_with("GIF", GifDecoder::new(Cursor::new(file)), rgb),
        Ok(ImageFormat::Png) => decode_with("PNG", PngDecoder::new(Cursor::new(file)), rgb),
        Ok(ImageFormat::WebP) => decode_with("WebP", WebPDecoder::new(Cursor::new(file)), rgb),
        _ => Err(file_kind::reason_for(file, || {
            "unknown image format (supported: BMP, GIF, JPEG, PNG, WebP)".to_owned()
        })),
    }
}

/// Decodes a JPEG file to exactly the pixels of libjpeg-turbo, which PIL and torchvision use: when a model is unsure of
/// a photograph, its answer depends on such rounding differences.
fn decode_jpeg(file: &[u8], rgb: &mut Vec<u8>) -> Result<(usize, usize), String> {
    if !has_end_of_image(file) {
        return Err("damaged JPEG: the file is truncated".to_owned());
    }
    let damaged = |error| format!("damaged JPEG: {error}");
    let mut decoder = Decoder::new(file).map_err(damaged)?;
    let (width, height) = (usize::from(decoder.header().width), usize::from(decoder.header().height));
    check_size(width, height)?;
    match decoder.jpeg_color_space() {
        ColorSpace::Grayscale | ColorSpace::YCbCr | ColorSpace::Rgb => {}
        other => {
            return Err(format!("unsupported JPEG colour space `{other:?}` (supported: Grayscale, YCbCr, Rgb)"));
        }
    }
    decoder.set_output_format(PixelFormat::Rgb);
    rgb.resize(width * height * CHANNELS, 0);
    decoder.decode_image_into(rgb).map_err(damaged)?;
    Ok((width, height))
}

/// Returns the width and the height of a complete JPEG file in YCbCr or grey; `None` for any other file.
pub fn jpeg_size(file: &[u8]) -> Option<(usize, usize)> {
    let is_jpeg = image::guess_format(file).is_ok_and(|format| format == ImageFormat::Jpeg);
    if !is_jpeg || !has_end_of_image(file) {
        return None;
    }
    let decoder = Decoder::new(file).ok()?;
    let (width, height) = (usize::from(decoder.header().width), usize::from(decoder.header().height));
    check_size(width, height).ok()?;
    matches!(decoder.jpeg_color_space(), ColorSpace::Grayscale | ColorSpace::YCbCr).then_some((width, height))
}

/// Returns whether an end-of-image marker follows the last start of a scan; neither marker occurs inside the data of a
/// scan.
fn has_end_of_image(jpeg: &[u8]) -> bool {
    jpeg.windows(2).rev().find(|pair| matches!(pair, [0xff, 0xd9 | 0xda])) == Some(&[0xff, 0xd9])
}

/// Decodes a file of this format to the pixels of PIL's `convert("RGB")`.
fn decode_with<D: ImageDecoder>(
    format: &str,
    decoder: Result<D, ImageError>,
    rgb: &mut Vec<u8>,
) -> Result<(usize, usize), String> {
    let damaged = |error| match error {
        ImageError::Unsupported(error) => format!("unsupported {format}: {error}"),
        error => format!("damaged {format}: {error}"),
    };
    let decoder = decoder.map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    let (width, height) = (width as usize, height as usize);
    check_size(width, height)?;
    if decoder.total_bytes() > DECODED_BYTES {
        return Err(format!(
            "an image of {width}x{height} pixels of {:?} is too large (at most {DECODED_BYTES} bytes when decoded)",
            decoder.color_type()
        ));
    }
    let is_grey = decoder.original_color_type() == ExtendedColorType::L16;
    let decoded = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    *rgb = match decoded {
        // PIL clips levels of 16 bits if the image is grey, and takes the upper byte otherwise.
        DynamicImage::ImageLuma16(_) | DynamicImage::ImageLumaA16(_) if is_grey => {
            let clipped = |level: u16| u8::try_from(level).unwrap_or(u8::MAX);
            decoded.into_luma16().into_raw().into_iter().flat_map(|level| [clipped(level); CHANNELS]).collect()
        }
        DynamicImage::ImageLuma16(_)
        | DynamicImage::ImageLumaA16(_)
        | DynamicImage::ImageRgb16(_)
        | DynamicImage::ImageRgba16(_) => {
            decoded.into_rgb16().into_raw().into_iter().map(|level| level.to_be_bytes()[0]).collect()
        }
        _ => decoded.into_rgb8().into_raw(),
    };
    Ok((width, height))
}

fn check_size(width: usize, height: usize) -> Result<(), String> {
    match width.checked_mul(height) {
        Some(1..=MAX_PIXELS) => Ok(()),
        _ => Err(format!("unsupported image size of {width}x{height} pixels (supported: 1 to {MAX_PIXELS} pixels)")),
    }
}

#[cfg(test)]
mod tests {
    use image::ImageEncoder;
    use image::codecs::png::PngEncoder;
    use libjpeg_turbo_rs::{Subsampling, compress};

    use super::*;

    const SIZE: (usize, usize) = (64, 48);

    fn jpeg(format: PixelFormat) -> Vec<u8> {
        let bytes = SIZE.0 * SIZE.1 * format.bytes_per_pixel();
        let levels: Vec<u8> = (0..bytes).map(|at| (at * 7 % 251) as u8).collect();
        compress(&levels, SIZE.0, SIZE.1, format, 75, Subsampling::S420).unwrap()
    }

    fn reason(file: &[u8]) -> String {
        decode(file, &mut Vec::new()).unwrap_err()
    }

    #[test]
    fn grey_becomes_three_equal_channels() {
        let mut rgb = vec![7; 3];
        assert_eq!(decode(&jpeg(PixelFormat::Grayscale), &mut rgb), Ok((64, 48)));
        assert_eq!(rgb.len(), 64 * 48 * 3);
        assert!(rgb.chunks_exact(3).all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]));
    }

    #[test]
    fn cmyk_is_refused_by_name() {
        let reason = reason(&jpeg(PixelFormat::Cmyk));
        assert_eq!(reason, "unsupported JPEG colour space `Cmyk` (supported: Grayscale, YCbCr, Rgb)");
    }

    #[test]
    fn a_png_is_recognised_by_its_content() {
        let levels: Vec<u8> = (0..2 * 3 * 4).collect();
        let image = image::RgbaImage::from_raw(2, 3, levels).unwrap();
        let mut file = Cursor::new(Vec::new());
        image.write_to(&mut file, ImageFormat::Png).unwrap();
        let mut rgb = Vec::new();
        assert_eq!(decode(file.get_ref(), &mut rgb), Ok((2, 3)));
        assert_eq!(rgb[..6], [0, 1, 2, 4, 5, 6], "the alpha channel is dropped, as PIL does");
    }

    /// Returns the RGB levels of a PNG with these levels of 16 bits, one row high.
    fn rgb_of_16_bits(levels: &[u16], colour: ExtendedColorType, channels: usize) -> Vec<u8> {
        let (mut file, bytes): (_, Vec<u8>) =
            (Vec::new(), levels.iter().flat_map(|level| level.to_ne_bytes()).collect());
        let width = u32::try_from(levels.len() / channels).unwrap();
        PngEncoder::new(&mut file).write_image(&bytes, width, 1, colour).unwrap();
        let mut rgb = Vec::new();
        decode(&file, &mut rgb).unwrap();
        rgb
    }

    /// The expected levels are those of Pillow 13.0 after `convert("RGB")`.
    #[test]
    fn a_png_of_16_bits_has_the_pixels_of_pillow() {
        let levels = [0, 1, 127, 128, 255, 256, 257, 0x7fff, 0x8000, 0x80ff, 0xff00, 0xffff];
        let grey: Vec<u8> =
            [0, 1, 127, 128, 255, 255, 255, 255, 255, 255, 255, 255].iter().flat_map(|l| [*l; 3]).collect();
        assert_eq!(rgb_of_16_bits(&levels, ExtendedColorType::L16, 1), grey);
        let upper = [0, 0, 0, 0, 0, 1, 1, 127, 128, 128, 255, 255];
        assert_eq!(rgb_of_16_bits(&levels, ExtendedColorType::Rgb16, 3), upper);
        assert_eq!(rgb_of_16_bits(&levels, ExtendedColorType::Rgba16, 4), [0, 0, 0, 0, 1, 1, 128, 128, 255]);
        let with_alpha: Vec<u8> = [0, 0, 0, 1, 128, 255].iter().flat_map(|level| [*level; 3]).collect();
        assert_eq!(rgb_of_16_bits(&levels, ExtendedColorType::La16, 2), with_alpha);
    }

    #[test]
    fn a_format_that_is_not_supported_is_named_with_what_to_do() {
        for (file, name) in
            [(&b"II\x2a\0\x08\0\0\0"[..], "a TIFF image"), (b"\0\0\0\x1cftypavif", "a HEIF or AVIF image")]
        {
            let expected =
                format!("it is {name}: convert it to PNG, which loses nothing (supported: BMP, GIF, JPEG, PNG, WebP)");
            assert_eq!(reason(file), expected);
        }
        assert!(reason(b"version https://git-lfs.github.com/spec/v1\n").starts_with("it is a pointer of git LFS"));
    }

    #[test]
    fn other_formats_are_recognised_by_their_content_and_a_truncated_file_is_damaged() {
        let levels: Vec<u8> = (0..40 * 30 * 3).map(|at| (at / 30 * 24 % 256) as u8).collect();
        let image = image::RgbImage::from_raw(40, 30, levels.clone()).unwrap();
        for (format, name) in [(ImageFormat::Bmp, "BMP"), (ImageFormat::Gif, "GIF"), (ImageFormat::WebP, "WebP")] {
            let mut file = Cursor::new(Vec::new());
            image.write_to(&mut file, format).unwrap();
            let (file, mut rgb) = (file.into_inner(), Vec::new());
            assert_eq!(decode(&file, &mut rgb), Ok((40, 30)), "{name}");
            // The encoder of GIF chooses colours that differ.
            assert!(name == "GIF" || rgb == levels, "{name}");
            for end in [20, file.len() / 2, file.len() - 20] {
                let found = reason(&file[..end]);
                assert!(found.starts_with(&format!("damaged {name}: ")), "{name} cut at {end}: {found}");
            }
        }
    }

    #[test]
    fn a_jpeg_truncated_anywhere_is_damaged() {
        let file = jpeg(PixelFormat::Rgb);
        assert!(decode(&file, &mut Vec::new()).is_ok());
        for end in (3..file.len() - 1).step_by(97).chain([file.len() - 2]) {
            assert!(reason(&file[..end]).starts_with("damaged JPEG: "), "cut at {end}");
        }
    }

    #[test]
    fn a_jpeg_with_a_marker_in_its_data_is_damaged() {
        let mut file = jpeg(PixelFormat::Rgb);
        let middle = file.len() * 3 / 4;
        file[middle..middle + 4].copy_from_slice(&[0xff, 0xd8, 0xff, 0xe0]);
        assert!(reason(&file).starts_with("damaged JPEG: "));
    }

    #[test]
    fn a_file_that_is_not_an_image_is_refused_with_the_supported_formats() {
        assert_eq!(reason(b""), "the file is empty");
        assert_eq!(reason(b"# A text\n"), "unknown image format (supported: BMP, GIF, JPEG, PNG, WebP)");
    }

    #[test]
    fn a_huge_image_is_refused_before_memory_is_allocated() {
        let mut file = jpeg(PixelFormat::Rgb);
        let frame = file.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        file[frame + 5..frame + 9].copy_from_slice(&[0xfd, 0xe8, 0xfd, 0xe8]);
        let mut rgb = Vec::new();
        let reason = decode(&file, &mut rgb).unwrap_err();
        assert_eq!(reason, "unsupported image size of 65000x65000 pixels (supported: 1 to 89478485 pixels)");
        assert_eq!(rgb.capacity(), 0);
    }
}
