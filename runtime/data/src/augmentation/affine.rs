//! Moves the pixels of an image by an affine map, as PIL's `Image.transform` computes it.

use super::operation::Outside;
use crate::geometry::Size;
use crate::pixels::CHANNELS;

/// How the level between pixels is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    #[default]
    Nearest,
    Bilinear,
}

/// From a point of the result to one of the source: `x = a[0] * x + a[1] * y + a[2]`, and `y` by the other three.
pub type Affine = [f64; 6];

/// Returns the map of PIL's `Image.rotate` by an angle in degrees, counterclockwise around the centre.
pub fn rotation(degrees: f64, size: Size) -> Affine {
    // PIL rounds to 15 decimals, exactly; a product with 1e15 would itself be rounded.
    let round = |number: f64| format!("{number:.15}").parse().unwrap_or(number);
    let angle = -(degrees.rem_euclid(360.0)).to_radians();
    let (cos, sin) = (round(libm::cos(angle)), round(libm::sin(angle)));
    let (x, y) = (size.0 as f64 / 2.0, size.1 as f64 / 2.0);
    [cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y]
}

/// Moves the pixels of an image of `size` from `rgb` to `out`, which has the same size.
pub fn transform(rgb: &[u8], size: Size, map: Affine, outside: Outside, out: &mut Vec<u8>) {
    out.clear();
    out.resize(rgb.len(), outside.level);
    match outside.interpolation {
        Interpolation::Bilinear => move_bilinear(rgb, size, map, out),
        // PIL has functions of their own for these two, which round differently.
        Interpolation::Nearest if map[1] == 0.0 && map[3] == 0.0 => move_axes(rgb, size, map, out),
        Interpolation::Nearest => move_nearest(rgb, size, map, out),
    }
}

fn copy_pixel(rgb: &[u8], from: usize, out: &mut [u8], to: usize) {
    out[to * CHANNELS..][..CHANNELS].copy_from_slice(&rgb[from * CHANNELS..][..CHANNELS]);
}

/// Moves columns and rows on their own: PIL's `ImagingScaleAffine`.
fn move_axes(rgb: &[u8], (width, height): Size, map: Affine, out: &mut [u8]) {
    let sources = |start: f64, step: f64, length: usize| -> Vec<Option<usize>> {
        let mut place = start + step * 0.5;
        let next = |_| {
            let found = (place >= 0.0 && (place as usize) < length).then_some(place as usize);
            place += step;
            found
        };
        (0..length).map(next).collect()
    };
    let (columns, rows) = (sources(map[2], map[0], width), sources(map[5], map[4], height));
    for (y, row) in rows.iter().enumerate() {
        for (x, column) in columns.iter().enumerate() {
            if let (Some(row), Some(column)) = (row, column) {
                copy_pixel(rgb, row * width + column, out, y * width + x);
            }
        }
    }
}

/// Takes the nearest pixels in fixed point with 16 fractional bits: PIL's `affine_fixed`.
fn move_nearest(rgb: &[u8], (width, height): Size, map: Affine, out: &mut [u8]) {
    let fixed = |number: f64| (number * 65536.0 + 0.5).floor() as i64;
    let steps = [map[0], map[1], map[3], map[4]].map(fixed);
    let start = [map[2] + map[0] * 0.5 + map[1] * 0.5, map[5] + map[3] * 0.5 + map[4] * 0.5].map(fixed);
    let inside = |place: i64, length: usize| usize::try_from(place >> 16).ok().filter(|place| *place < length);
    for y in 0..height {
        let (mut across, mut down) = (start[0] + steps[1] * y as i64, start[1] + steps[3] * y as i64);
        for x in 0..width {
            if let (Some(column), Some(row)) = (inside(across, width), inside(down, height)) {
                copy_pixel(rgb, row * width + column, out, y * width + x);
            }
            across += steps[0];
            down += steps[2];
        }
    }
}

/// Interpolates between four pixels: PIL's `bilinear_filter32RGB`. Beyond the outermost centres, the outermost pixels count.
fn move_bilinear(rgb: &[u8], (width, height): Size, map: Affine, out: &mut [u8]) {
    let clip = |place: f64, length: usize| (place.max(0.0) as usize).min(length - 1);
    for y in 0..height {
        for x in 0..width {
            let centre = (x as f64 + 0.5, y as f64 + 0.5);
            let across = map[0] * centre.0 + map[1] * centre.1 + map[2];
            let down = map[3] * centre.0 + map[4] * centre.1 + map[5];
            if across < 0.0 || across >= width as f64 || down < 0.0 || down >= height as f64 {
                continue;
            }
            let (across, down) = (across - 0.5, down - 0.5);
            let (left, top) = (across.floor(), down.floor());
            let columns = [clip(left, width), clip(left + 1.0, width)];
            let rows = [clip(top, height), clip(top + 1.0, height)];
            for channel in 0..CHANNELS {
                let level = |row: usize, column: usize| f64::from(rgb[(row * width + column) * CHANNELS + channel]);
                let between = |from: f64, to: f64, share: f64| from + (to - from) * share;
                let [upper, lower] =
                    rows.map(|row| between(level(row, columns[0]), level(row, columns[1]), across - left));
                out[(y * width + x) * CHANNELS + channel] = between(upper, lower, down - top) as u8;
            }
        }
    }
}
