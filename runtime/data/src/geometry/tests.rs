//! Tests of the transforms that move pixels.

use super::*;
use crate::random::Epoch;
use crate::resize::ResizeScratch;

/// An image whose red is the column and whose green is the row.
fn image((width, height): Size) -> Vec<u8> {
    (0..width * height).flat_map(|at| [(at % width) as u8, (at / width) as u8, 9]).collect()
}

fn step(geometry: Geometry) -> Step {
    Step { geometry, place: 0, centre: None }
}

fn draw(sample: u64) -> SampleDraw {
    SampleDraw { sample, epoch: Epoch::default() }
}

fn applied(step: &Step, size: Size, sample: u64) -> (Vec<u8>, Size) {
    let mut out = Vec::new();
    let size = step.apply(&image(size), size, &draw(sample), &mut ResizeScratch::default(), &mut out).unwrap();
    (out, size)
}

fn reds(pixels: &[u8]) -> Vec<u8> {
    pixels.iter().step_by(3).copied().collect()
}

#[test]
fn a_crop_keeps_its_part_and_padding_surrounds_the_image() {
    let (pixels, size) = applied(&step(Geometry::Crop { left: 1, top: 2, size: (2, 1) }), (4, 4), 0);
    assert_eq!((pixels, size), (vec![1, 2, 9, 2, 2, 9], (2, 1)));
    let (pixels, size) = applied(&step(Geometry::Pad { sides: [1, 0, 2, 1], level: 7 }), (2, 1), 0);
    assert_eq!(size, (5, 2));
    assert_eq!(reds(&pixels), [7, 0, 1, 7, 7, 7, 7, 7, 7, 7]);
}

#[test]
fn a_letterbox_keeps_the_proportions_and_centres_the_image() {
    let letterbox = step(Geometry::Letterbox { size: (8, 8), level: 114, filter: Filter::Bilinear });
    let (pixels, size) = applied(&letterbox, (4, 2), 0);
    assert_eq!(size, (8, 8));
    let row = |y: usize| pixels[y * 24];
    assert_eq!([row(0), row(1), row(6), row(7)], [114; 4]);
    assert!((2..6).all(|y| row(y) == 0));
    let (mask, _) = letterbox.apply_to_mask(&[1, 1, 2, 2, 1, 1, 2, 2], (4, 2), &draw(0)).unwrap();
    assert_eq!(mask[2 * 8..3 * 8], [1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(mask[0], PADDED_LABEL);
}

#[test]
fn an_image_that_fits_has_the_size_of_transformers_and_is_at_the_top_left() {
    // get_size_with_aspect_ratio((height, width), 800, 1333) of transformers 5.23
    let sizes = [
        ((640, 480), (1066, 800)),
        ((480, 640), (800, 1066)),
        ((500, 500), (800, 800)),
        ((640, 427), (1199, 800)),
        ((427, 640), (800, 1199)),
        ((1000, 200), (1333, 267)),
        ((200, 1000), (267, 1333)),
        ((333, 500), (800, 1201)),
        ((2048, 1536), (1066, 800)),
        ((640, 383), (1333, 798)),
        ((1920, 1080), (1333, 750)),
        ((640, 361), (1333, 752)),
        ((97, 1201), (108, 1333)),
    ];
    for (size, expected) in sizes {
        assert_eq!(Fit { size: (1333, 1333), shorter: Some(800) }.scaled(size), expected, "{size:?}");
    }
    // There, transformers leaves 1334x600.
    assert_eq!(Fit { size: (1333, 1333), shorter: Some(800) }.scaled((1334, 600)), (1333, 600));
    // Portraits in a wide target, without a limit of the shorter side, and sides of less than a pixel.
    assert_eq!(Fit { size: (1066, 800), shorter: Some(800) }.scaled((480, 640)), (600, 800));
    assert_eq!(Fit { size: (1066, 700), shorter: None }.scaled((480, 640)), (525, 700));
    assert_eq!(Fit { size: (10, 10), shorter: None }.scaled((1, 100)), (1, 10));

    let fit = step(Geometry::Fit(Fit { size: (6, 4), shorter: None }));
    let (pixels, size) = applied(&fit, (2, 2), 0);
    assert_eq!((size, fit.filled((2, 2), &draw(0)).unwrap()), ((6, 4), (4, 4)));
    assert!(pixels.chunks_exact(18).all(|row| row[11] == 9 && row[12..] == [0; 6]), "{pixels:?}");
    let (mask, _) = fit.apply_to_mask(&[1, 1, 2, 2], (2, 2), &draw(0)).unwrap();
    assert_eq!(mask[12..18], [2, 2, 2, 2, PADDED_LABEL, PADDED_LABEL]);
}

#[test]
fn a_flip_is_the_same_for_image_and_mask_and_depends_on_seed_and_index() {
    let flip = step(Geometry::Flip { probability: 0.5, seed: 3 });
    let flipped: Vec<bool> = (0..100).map(|index| reds(&applied(&flip, (3, 1), index).0) == [2, 1, 0]).collect();
    let count = flipped.iter().filter(|flipped| **flipped).count();
    assert!((30..70).contains(&count), "{count}");
    for (index, flipped) in flipped.iter().enumerate() {
        let (mask, _) = flip.apply_to_mask(&[4, 5, 6], (3, 1), &draw(index as u64)).unwrap();
        assert_eq!(mask, if *flipped { [6, 5, 4] } else { [4, 5, 6] });
    }
    assert_eq!(applied(&step(Geometry::Flip { probability: 1.0, seed: 0 }), (2, 1), 0).0, [1, 0, 9, 0, 0, 9]);
}

#[test]
fn a_placement_is_where_the_transforms_move_a_point() {
    let steps = [
        Geometry::Letterbox { size: (8, 8), level: 0, filter: Filter::Bilinear },
        Geometry::Crop { left: 1, top: 2, size: (7, 5) },
        Geometry::Flip { probability: 1.0, seed: 0 },
    ]
    .map(step);
    let place = |(placement, size), step: &Step| step.placed(placement, size, &draw(0)).unwrap();
    let (placement, size) = steps.iter().fold((Placement::IDENTITY, (4, 2)), place);
    // The letterbox doubles 4x2 and adds two rows above, the crop takes away one column and two rows.
    assert_eq!(placement, Placement { scale: [-2.0, 2.0], shift: [7.0 + 1.0, 0.0] });
    assert_eq!(size, (7, 5));
}

#[test]
fn a_mask_is_scaled_as_pil_scales_with_the_nearest_filter() {
    let resize = step(Geometry::Resize { target: Target::Exactly((3, 1)), filter: Filter::Bicubic });
    // Image.frombytes("L", (5, 1), bytes([0, 1, 2, 3, 4])).resize((3, 1), Image.Resampling.NEAREST)
    assert_eq!(resize.apply_to_mask(&[0, 1, 2, 3, 4], (5, 1), &draw(0)).unwrap(), (vec![0, 2, 4], (3, 1)));
}

#[test]
fn an_image_that_is_too_small_or_would_be_too_large_is_refused() {
    let mut out = Vec::new();
    let mut apply = |geometry: Geometry| {
        step(geometry).apply(&image((3, 2)), (3, 2), &draw(0), &mut ResizeScratch::default(), &mut out).unwrap_err()
    };
    assert_eq!(
        apply(Geometry::Crop { left: 2, top: 0, size: (2, 2) }),
        "the image of 3x2 pixels is smaller than the crop of 2x2"
    );
    assert!(apply(Geometry::Pad { sides: [1 << 20, 1 << 20, 0, 0], level: 0 }).contains("would become"));
}

#[test]
fn a_random_crop_scales_the_same_part_of_image_mask_and_placement() {
    let range = CropRange { scale: (0.2, 0.6), ratio: (0.5, 2.0) };
    let crop = step(Geometry::RandomResizedCrop { size: (1, 1), range, filter: Filter::Bilinear });
    let size = (16, 12);
    let mut parts = std::collections::BTreeSet::new();
    for sample in 0..100 {
        let Part { left, top, size: part } = crop.map(size, &draw(sample)).unwrap().part;
        let (pixel, _) = applied(&crop, size, sample);
        // A filter that covers all columns evenly returns their mean.
        let middle = left as f64 + (part.0 as f64 - 1.0) / 2.0;
        assert!((f64::from(pixel[0]) - middle).abs() <= 1.0, "{pixel:?} {middle}");
        let labels: Vec<u8> = (0..192).collect();
        let (mask, _) = crop.apply_to_mask(&labels, size, &draw(sample)).unwrap();
        assert_eq!(usize::from(mask[0]), (top + part.1 / 2) * 16 + left + part.0 / 2);
        let (Placement { scale, shift }, _) = crop.placed(Placement::IDENTITY, size, &draw(sample)).unwrap();
        let corner = |x: usize, y: usize| [x as f64 * scale[0] + shift[0], y as f64 * scale[1] + shift[1]];
        let ends = [corner(left, top), corner(left + part.0, top + part.1)].concat();
        assert!(ends.iter().zip([0.0, 0.0, 1.0, 1.0]).all(|(found, end)| (found - end).abs() < 1e-9), "{ends:?}");
        parts.insert((left, top, part));
    }
    assert!(parts.len() > 50);
}

#[test]
fn a_random_flip_differs_from_epoch_to_epoch() {
    let flip = step(Geometry::RandomHorizontalFlip { probability: 0.5 });
    let is_flipped = |number, sample| {
        let draw = SampleDraw { sample, epoch: Epoch { seed: 1, number } };
        flip.apply_to_mask(&[1, 2], (2, 1), &draw).unwrap().0 == [2, 1]
    };
    let epoch = |number| (0..200).map(|sample| is_flipped(number, sample)).collect::<Vec<bool>>();
    let flips = [epoch(0), epoch(1)].map(|epoch| (epoch.iter().filter(|flipped| **flipped).count(), epoch));
    assert!(flips.iter().all(|(count, _)| (75..125).contains(count)), "{flips:?}");
    assert!(flips[0].1 != flips[1].1 && epoch(0) == flips[0].1);
}

/// What OpenCV and YOLOv5 make of images of [`noise`]: `tests/reference/make_letterbox.py` wrote it.
#[derive(serde::Deserialize)]
struct Letterboxes {
    resized: Vec<Resized>,
    letterboxes: Vec<Letterboxed>,
}

#[derive(serde::Deserialize)]
struct Resized {
    filter: String,
    size: Size,
    target: Size,
    pixels: String,
}

#[derive(serde::Deserialize)]
struct Letterboxed {
    size: Size,
    side: usize,
    pixels: String,
}

fn letterboxes() -> Letterboxes {
    serde_json::from_str(include_str!("../../../../tests/reference/letterbox.json")).unwrap()
}

/// The images of the script.
fn noise((width, height): Size) -> Vec<u8> {
    (0..(width * height * 3) as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Returns the pixels of an image of [`noise`] after transforms, in hexadecimal.
fn pixels_after(transforms: &[Geometry], mut size: Size) -> String {
    let mut pixels = noise(size);
    for transform in transforms {
        let mut out = Vec::new();
        let scratch = &mut ResizeScratch::default();
        size = step(transform.clone()).apply(&pixels, size, &draw(0), scratch, &mut out).unwrap();
        pixels = out;
    }
    pixels.iter().map(|level| format!("{level:02x}")).collect()
}

#[test]
fn the_filters_of_opencv_have_its_pixels() {
    for Resized { filter, size, target, pixels } in letterboxes().resized {
        let opencv = if filter == "area" { Filter::Area } else { Filter::Linear };
        let resize = Geometry::Resize { target: Target::Exactly(target), filter: opencv };
        assert_eq!(pixels_after(&[resize], size), pixels, "{filter} {size:?} to {target:?}");
    }
}

#[test]
fn an_image_for_a_validation_of_yolov5_has_its_pixels() {
    for Letterboxed { size, side, pixels } in letterboxes().letterboxes {
        let longer = Geometry::Resize { target: Target::Longer(side), filter: Filter::Area };
        let letterbox = Geometry::Letterbox { size: (side, side), level: 114, filter: Filter::Linear };
        assert_eq!(pixels_after(&[longer, letterbox], size), pixels, "{size:?} in {side}");
    }
}
