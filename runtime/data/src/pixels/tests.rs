//! Tests of the transforms of images.

use half::f16;

use super::*;
use crate::{Filter, Fit, Geometry, Target};

const NORMALIZE: Transform = Transform::Normalize { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

fn resize(size: usize) -> Transform {
    Transform::Geometry(Geometry::Resize { target: Target::Shorter(size), filter: Filter::Bilinear })
}

fn crop_to(size: usize) -> Transform {
    Transform::Geometry(Geometry::CenterCrop((size, size)))
}

fn image_transforms(size: usize, crop: usize, dtype: DType) -> ImageTransforms {
    let transforms = [resize(size), crop_to(crop), NORMALIZE];
    ImageTransforms::new(&transforms, dtype).unwrap()
}

/// Creates an image with gradients that differ by direction and channel.
fn image(width: usize, height: usize) -> Vec<u8> {
    let level = |at: usize| {
        let (channel, x, y) = (at % 3, at / 3 % width, at / 3 / width);
        ((x * (3 + channel) + y * (7 - channel)) % 509 / 2) as u8
    };
    (0..width * height * 3).map(level).collect()
}

fn apply<T: bytemuck::Pod>(image_transforms: &ImageTransforms, rgb: &[u8], size: (usize, usize)) -> Vec<T> {
    let mut out = vec![T::zeroed(); image_transforms.size.0 * image_transforms.size.1 * 3];
    image_transforms
        .apply(rgb, size, &SampleDraw::default(), &mut CropScratch::default(), bytemuck::cast_slice_mut(&mut out))
        .unwrap();
    out
}

#[test]
fn values_are_normalised_and_ordered_by_channel() {
    let rgb = [255, 0, 51].repeat(4);
    let image_transforms = ImageTransforms::new(&[crop_to(2), NORMALIZE], DType::F32).unwrap();
    let expected = [(1.0 - 0.485) / 0.229, (0.0 - 0.456) / 0.224, (0.2 - 0.406) / 0.225f32];
    let values = apply::<f32>(&image_transforms, &rgb, (2, 2));
    for (channel, plane) in values.chunks_exact(4).enumerate() {
        assert!(plane.iter().all(|value| (value - expected[channel]).abs() < 1e-6), "{values:?}");
    }
}

#[test]
fn the_padding_of_fit_is_zero_after_normalisation_and_in_the_mask() {
    let fit = |size| Transform::Geometry(Geometry::Fit(Fit { size, shorter: None }));
    let image_transforms = ImageTransforms::new(&[fit((3, 2)), NORMALIZE], DType::F32).unwrap();
    let values = apply::<f32>(&image_transforms, &[0; 12], (2, 2));
    for (plane, mean) in values.chunks_exact(6).zip([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]) {
        let expected = [mean, mean, 0.0, mean, mean, 0.0f32];
        assert!(plane.iter().zip(expected).all(|(value, expected)| (value - expected).abs() < 1e-6), "{plane:?}");
    }
    let mask = |size: Size| {
        let mut mask = [7i64; 6];
        let bytes = bytemuck::cast_slice_mut(&mut mask);
        image_transforms.write_pixel_mask(size, &SampleDraw::default(), bytes).unwrap();
        mask
    };
    assert_eq!((mask((2, 2)), mask((3, 1)), mask((3, 2))), ([1, 1, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0], [1; 6]));
    assert_eq!(image_transforms.pixel_mask_spec().to_string(), "2,3,i64");
    let reason = refused(&[fit((3, 2)), crop_to(2)], DType::F32);
    assert!(reason.starts_with("`center_crop 2` moves pixels: place it before `fit 3x2`"), "{reason}");
}

#[test]
fn half_precision_values_are_rounded_single_precision_values() {
    let (rgb, size) = (image(300, 260), (300, 260));
    let single = apply::<f32>(&image_transforms(256, 224, DType::F32), &rgb, size);
    let half = apply::<f16>(&image_transforms(256, 224, DType::F16), &rgb, size);
    assert!(single.iter().zip(&half).all(|(single, half)| f16::from_f32(*single) == *half));
}

#[test]
fn an_image_smaller_than_the_crop_is_refused() {
    let image_transforms = ImageTransforms::new(&[crop_to(8), NORMALIZE], DType::F32).unwrap();
    let result = image_transforms.apply(
        &image(9, 7),
        (9, 7),
        &SampleDraw::default(),
        &mut CropScratch::default(),
        &mut [0; 8 * 8 * 3 * 4],
    );
    assert_eq!(result.unwrap_err(), "the image of 9x7 pixels is smaller than the crop of 8x8");
}

fn refused(transforms: &[Transform], dtype: DType) -> String {
    ImageTransforms::new(transforms, dtype).err().unwrap().to_string()
}

#[test]
fn transforms_without_a_fixed_shape_or_meaning_are_refused_with_the_reason() {
    let reason = |transforms: &[Transform]| refused(transforms, DType::F32);
    assert!(reason(&[NORMALIZE]).starts_with("these transforms do not produce an image of a fixed shape ("));
    assert!(reason(&[NORMALIZE, crop_to(4)]).starts_with("`center_crop 4` moves pixels: place it before `normalize"));
    assert!(reason(&[resize(3), crop_to(4)]).starts_with("cannot crop 4 pixels from an image resized to 3"));
    assert!(reason(&[crop_to(4), NORMALIZE, NORMALIZE]).contains("is applied twice or after `normalize`"));
    let to = Transform::To { dtype: DType::U8 };
    assert!(reason(&[crop_to(4), to.clone(), NORMALIZE]).contains("follows `to`, which must be the last transform"));
    assert!(reason(&[crop_to(4), NORMALIZE, to]).contains("the type `u8` cannot hold"));
    let bool = refused(&[crop_to(4)], DType::Bool);
    assert_eq!(bool, DataError::UnsupportedType(DType::Bool).to_string());
}

#[test]
fn transforms_compose_in_any_order_that_has_a_meaning() {
    let shape = |transforms: &[Transform]| ImageTransforms::new(transforms, DType::F32).unwrap().spec().to_string();
    let wide = Transform::Geometry(Geometry::Resize { target: Target::Exactly((8, 6)), filter: Filter::Bicubic });
    assert_eq!(shape(std::slice::from_ref(&wide)), "3,6,8,f32");
    let pad = Transform::Geometry(Geometry::Pad { sides: [1, 2, 3, 4], level: 0 });
    assert_eq!(shape(&[wide.clone(), pad, crop_to(5)]), "3,5,5,f32");
    let flip = Transform::Geometry(Geometry::Flip { probability: 0.5, seed: 1 });
    let letterbox = Transform::Geometry(Geometry::Letterbox { size: (4, 2), level: 114, filter: Filter::Bilinear });
    let to = Transform::To { dtype: DType::U8 };
    assert_eq!(shape(&[flip.clone(), letterbox, flip, to]), "3,2,4,u8");
}

#[test]
fn levels_are_scaled_or_kept_and_converted_to_the_type() {
    let rgb = [255, 0, 51];
    let scale = Transform::Scale { factor: 1.0 / 51.0 };
    let scaled = ImageTransforms::new(&[crop_to(1), scale.clone()], DType::F32).unwrap();
    assert_eq!(apply::<f32>(&scaled, &rgb, (1, 1)), [5.0, 0.0, 1.0]);
    let halves = Transform::Normalize { mean: [1.0; 3], std: [2.0; 3] };
    let both = ImageTransforms::new(&[crop_to(1), scale, halves], DType::F32).unwrap();
    assert_eq!(apply::<f32>(&both, &rgb, (1, 1)), [2.0, -0.5, 0.0]);
    let raw = ImageTransforms::new(&[crop_to(1), Transform::To { dtype: DType::I64 }], DType::F32).unwrap();
    assert_eq!(apply::<i64>(&raw, &rgb, (1, 1)), [255, 0, 51]);
}
