//! Kernels that change the levels of pixels, as PIL's `ImageEnhance` and `ImageOps` compute them.

use crate::pixels::CHANNELS;

/// The levels that those of a channel become.
type Lookup = [u8; 256];

/// Applies the same table to all channels.
pub fn apply_lookup(rgb: &mut [u8], level: impl Fn(u8) -> u8) {
    let lookup: Lookup = std::array::from_fn(|at| level(at as u8));
    rgb.iter_mut().for_each(|value| *value = lookup[usize::from(*value)]);
}

/// Applies a table of its own to each channel, computed from how often the channel has each level.
fn apply_lookups(rgb: &mut [u8], table: impl Fn(&[usize; 256]) -> Option<Lookup>) {
    for channel in 0..CHANNELS {
        let mut counts = [0; 256];
        rgb.iter().skip(channel).step_by(CHANNELS).for_each(|level| counts[usize::from(*level)] += 1);
        if let Some(lookup) = table(&counts) {
            let levels = rgb.iter_mut().skip(channel).step_by(CHANNELS);
            levels.for_each(|level| *level = lookup[usize::from(*level)]);
        }
    }
}

/// Returns `from` for the factor 0, `to` for 1, and what lies between or beyond for others, as PIL's `Image.blend`.
pub fn blend(from: u8, to: u8, factor: f32) -> u8 {
    // The conversion cuts off the fraction and clips.
    (f32::from(from) + factor * (f32::from(to) - f32::from(from))) as u8
}

/// Returns the brightness of a pixel, as PIL's conversion to grey.
fn grey(pixel: &[u8]) -> u8 {
    let sum = u32::from(pixel[0]) * 19595 + u32::from(pixel[1]) * 38470 + u32::from(pixel[2]) * 7471;
    ((sum + 0x8000) >> 16) as u8
}

/// Multiplies the levels.
pub fn brightness(rgb: &mut [u8], factor: f32) {
    apply_lookup(rgb, |level| blend(0, level, factor));
}

/// Multiplies the distances of the levels from the mean brightness of the image.
pub fn contrast(rgb: &mut [u8], factor: f32) {
    let pixels = (rgb.len() / CHANNELS).max(1);
    let sum: u64 = rgb.chunks_exact(CHANNELS).map(|pixel| u64::from(grey(pixel))).sum();
    let mean = (sum as f64 / pixels as f64 + 0.5) as u8;
    apply_lookup(rgb, |level| blend(mean, level, factor));
}

/// Multiplies the distances of the levels from the brightness of their pixel.
pub fn saturation(rgb: &mut [u8], factor: f32) {
    for pixel in rgb.chunks_exact_mut(CHANNELS) {
        let grey = grey(pixel);
        pixel.iter_mut().for_each(|level| *level = blend(grey, *level, factor));
    }
}

/// Multiplies the distances of the levels from those of the smoothed image; `scratch` is memory to reuse.
pub fn sharpness(rgb: &mut [u8], width: usize, factor: f32, scratch: &mut Vec<u8>) {
    let stride = width * CHANNELS;
    let height = rgb.len().checked_div(stride).unwrap_or(0);
    scratch.clear();
    scratch.extend_from_slice(rgb);
    // PIL's filter leaves the outermost pixels as they are.
    for y in 1..height.saturating_sub(1) {
        let rows = [y + 1, y, y - 1].map(|row| &scratch[row * stride..][..stride]);
        for at in CHANNELS..stride.saturating_sub(CHANNELS) {
            let level = &mut rgb[y * stride + at];
            *level = blend(smooth(rows, at), *level, factor);
        }
    }
}

/// Returns the level of PIL's `ImageFilter.SMOOTH` at a place of the middle row: the weights are 5/13 and 1/13 around it.
fn smooth(rows: [&[u8]; 3], at: usize) -> u8 {
    const SIDE: f32 = 1.0 / 13.0;
    let sum = |row: &[u8], middle: f32| {
        f32::from(row[at - CHANNELS]) * SIDE + f32::from(row[at]) * middle + f32::from(row[at + CHANNELS]) * SIDE
    };
    (0.5 + sum(rows[0], SIDE) + sum(rows[1], 5.0 / 13.0) + sum(rows[2], SIDE)) as u8
}

/// Keeps the highest `bits` of each level, at most 8.
pub fn posterize(rgb: &mut [u8], bits: u32) {
    let mask = !(0xff_u8.checked_shr(bits).unwrap_or(0));
    apply_lookup(rgb, |level| level & mask);
}

/// Inverts the levels from `threshold` on.
pub fn solarize(rgb: &mut [u8], threshold: f64) {
    apply_lookup(rgb, |level| if f64::from(level) < threshold { level } else { 255 - level });
}

/// Stretches the levels of each channel to 0..=255.
pub fn auto_contrast(rgb: &mut [u8]) {
    apply_lookups(rgb, |counts| {
        let lowest = counts.iter().position(|count| *count > 0)?;
        let highest = counts.iter().rposition(|count| *count > 0)?;
        let scale = (highest > lowest).then(|| 255.0 / (highest - lowest) as f64)?;
        let offset = -(lowest as f64) * scale;
        Some(std::array::from_fn(|level| (level as f64 * scale + offset) as u8))
    });
}

/// Changes the levels of each channel so that all occur about equally often.
pub fn equalize(rgb: &mut [u8]) {
    apply_lookups(rgb, |counts| {
        let highest = counts.iter().rfind(|count| **count > 0)?;
        let step = (counts.iter().sum::<usize>() - highest) / 255;
        if step == 0 {
            return None;
        }
        let mut sum = step / 2;
        Some(std::array::from_fn(|level| {
            let found = sum / step;
            sum += counts[level];
            found.min(255) as u8
        }))
    });
}
