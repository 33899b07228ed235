//! Turns the hue of pixels by converting to PIL's mode HSV and back, with 8 bits for each of hue, saturation and value.

use crate::pixels::CHANNELS;

/// Adds `factor`, from -0.5 to 0.5 of a turn, to the hue of every pixel.
pub fn turn_hue(rgb: &mut [u8], factor: f64) {
    let turn = (factor * 255.0) as i32 as u8;
    for pixel in rgb.chunks_exact_mut(CHANNELS) {
        let [hue, saturation, value] = hsv([pixel[0], pixel[1], pixel[2]]);
        pixel.copy_from_slice(&rgb_of([hue.wrapping_add(turn), saturation, value]));
    }
}

/// Converts as PIL's `rgb2hsv_row`, which computes partly in f32 and partly in f64.
fn hsv([red, green, blue]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let distance = |level: u8| f32::from(most - level) / range;
    let sixth = if red == most {
        distance(blue) - distance(green)
    } else if green == most {
        (2.0 + f64::from(distance(red)) - f64::from(distance(blue))) as f32
    } else {
        (4.0 + f64::from(distance(green)) - f64::from(distance(red))) as f32
    };
    let hue = ((f64::from(sixth) / 6.0 + 1.0) % 1.0) as f32;
    let saturation = range / f32::from(most);
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, most]
}

/// Converts as PIL's `hsv2rgb`.
fn rgb_of([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let sixths = f64::from(hue) * 6.0 / 255.0;
    let sector = sixths.floor();
    let fraction = f64::from((sixths - f64::from(sector as f32)) as f32);
    let share = f64::from((f64::from(saturation) / 255.0) as f32);
    let level = |part: f64| (f64::from(value) * (1.0 - part)).round() as u8;
    let (low, falling, rising) = (level(share), level(share * fraction), level(share * (1.0 - fraction)));
    match sector as u8 % 6 {
        0 => [value, rising, low],
        1 => [falling, value, low],
        2 => [low, value, rising],
        3 => [low, falling, value],
        4 => [rising, low, value],
        _ => [value, low, falling],
    }
}
