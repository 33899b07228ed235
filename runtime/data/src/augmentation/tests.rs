//! The operations beside torchvision's: `tests/reference/make_augmentations.py` wrote the expected pixels.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::operation::Operation;
use super::{Interpolation, Outside};
use crate::geometry::{Part, Size};
use crate::resize::{Axis, Filter, ResizeScratch, resize};

/// What torchvision makes of an image, of a batch and of its magnitudes.
#[derive(Deserialize)]
pub struct Reference {
    size: Size,
    pixels: String,
    operations: Vec<ReferenceOperation>,
    pub mixed: ReferenceBatch,
    /// The magnitudes of each operation of each policy, and whether they have a direction.
    pub magnitudes: BTreeMap<String, BTreeMap<String, (Vec<f64>, bool)>>,
}

#[derive(Deserialize)]
struct ReferenceOperation {
    name: String,
    parameters: Vec<Value>,
    pixels: String,
}

/// Three images of `2,4,5` with labels of four classes, and their mixtures.
#[derive(Deserialize)]
pub struct ReferenceBatch {
    pub images: Vec<f32>,
    pub labels: Vec<i64>,
    pub mixup: Vec<ReferenceMixture>,
    pub cutmix: Vec<ReferenceMixture>,
}

#[derive(Deserialize)]
pub struct ReferenceMixture {
    #[serde(default)]
    pub share: f64,
    /// Left, top, right, bottom.
    #[serde(rename = "box", default)]
    pub rectangle: [usize; 4],
    pub images: Vec<f32>,
    pub labels: Vec<f32>,
}

pub fn reference() -> Reference {
    serde_json::from_str(include_str!("../../../../tests/reference/augmentations.json")).unwrap()
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap();
    (0..hexadecimal.len()).step_by(2).map(pair).collect()
}

/// Applies an operation as the file names it.
fn applied(operation: &ReferenceOperation, mut rgb: Vec<u8>, size: Size) -> Vec<u8> {
    let number = |at: usize| operation.parameters[at].as_f64().unwrap();
    let outside = match operation.parameters.get(1).and_then(Value::as_str) {
        Some("bilinear") => Outside { interpolation: Interpolation::Bilinear, level: number(2) as u8 },
        Some(_) => Outside { interpolation: Interpolation::Nearest, level: number(2) as u8 },
        None => Outside::default(),
    };
    let drawn = match operation.name.as_str() {
        "brightness" => Operation::Brightness(number(0)),
        "contrast" => Operation::Contrast(number(0)),
        "saturation" => Operation::Saturation(number(0)),
        "sharpness" => Operation::Sharpness(number(0)),
        "hue" => Operation::Hue(number(0)),
        "posterize" => Operation::Posterize(number(0) as u32),
        "solarize" => Operation::Solarize(number(0)),
        "auto_contrast" => Operation::AutoContrast,
        "equalize" => Operation::Equalize,
        "invert" => Operation::Invert,
        "shear_x" => Operation::ShearX(number(0)),
        "shear_y" => Operation::ShearY(number(0)),
        "translate_x" => Operation::TranslateX(number(0)),
        "translate_y" => Operation::TranslateY(number(0)),
        "rotate" => Operation::Rotate(number(0)),
        "resized_crop" => return resized_crop(&rgb, size, [0, 1, 2, 3, 4].map(|at| number(at) as usize)),
        "horizontal_flip" => {
            return rgb.chunks(size.0 * 3).flat_map(|row| row.chunks(3).rev().flatten().copied()).collect();
        }
        other => panic!("unknown operation {other}"),
    };
    drawn.apply(&mut rgb, size, outside, &mut Vec::new());
    rgb
}

/// Cuts out a part and resizes it as `random_resized_crop` does after its draw.
fn resized_crop(rgb: &[u8], size: Size, [top, left, height, width, side]: [usize; 5]) -> Vec<u8> {
    let part = Part { left, top, size: (width, height) };
    let mut cut = Vec::new();
    crate::geometry::cut_out(rgb, size, &part, &mut cut);
    let axis = |source| Axis { source, scaled: side, kept: 0..side };
    let mut out = vec![0; side * side * 3];
    resize(&cut, &axis(width), &axis(height), Filter::Bilinear, &mut ResizeScratch::default(), &mut out);
    out
}

#[test]
fn operations_have_the_pixels_of_torchvision() {
    let reference = reference();
    let mut worst = BTreeMap::new();
    for operation in &reference.operations {
        let found = applied(operation, bytes(&reference.pixels), reference.size);
        let expected = bytes(&operation.pixels);
        assert_eq!(found.len(), expected.len(), "{}", operation.name);
        let most = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
        let different = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
        if different > 0 {
            worst.insert(format!("{} {:?}", operation.name, operation.parameters), (most, different));
        }
    }
    assert!(reference.operations.len() > 80 && worst.is_empty(), "largest difference and number: {worst:#?}");
}
