//! Tests of the figures of object detection against those of pycocotools.

use super::*;

/// One row per box: image, category, box, and the score, or the area and whether it is a crowd.
#[derive(serde::Deserialize)]
struct Reference {
    annotations: Vec<Vec<f64>>,
    detections: Vec<Vec<f64>>,
    figures: Vec<f64>,
}

/// Reads the boxes and the figures that `tests/reference/make_detections.py` wrote.
fn reference() -> (Vec<(ImageDetections, ImageTruth)>, Vec<f64>) {
    let text = include_str!("../../../../../tests/reference/detections.json");
    let Reference { annotations, detections, figures } = serde_json::from_str(text).unwrap();
    let corners = |row: &[f64]| [row[2], row[3], row[4], row[5]];
    let image = |image: usize| {
        let of_image =
            |rows: &[Vec<f64>]| rows.iter().filter(|row| row[0] as usize == image).cloned().collect::<Vec<_>>();
        let (found, truth) = (of_image(&detections), of_image(&annotations));
        let detections = ImageDetections {
            boxes: found.iter().map(|row| corners(row)).collect(),
            scores: found.iter().map(|row| row[6]).collect(),
            classes: found.iter().map(|row| row[1] as i64).collect(),
        };
        let truth = ImageTruth {
            id: image as i64,
            boxes: truth.iter().map(|row| corners(row)).collect(),
            classes: truth.iter().map(|row| row[1] as i64).collect(),
            areas: truth.iter().map(|row| row[6]).collect(),
            crowds: truth.iter().map(|row| row[7] != 0.0).collect(),
        };
        (detections, truth)
    };
    ((1..=12).map(image).collect(), figures)
}

fn assert_near(figures: &IndexMap<String, f64>, expected: &[f64]) {
    assert_eq!(figures.keys().cloned().collect::<Vec<_>>(), DetectionMatches::names());
    for ((name, found), expected) in figures.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "{name}: {found} instead of {expected}");
    }
}

#[test]
fn the_figures_equal_those_of_pycocotools() {
    let (images, expected) = reference();
    assert_near(&coco_map(&images).unwrap().finish(), &expected);
}

#[test]
fn batches_merge_to_the_figures_of_the_whole() {
    let (images, expected) = reference();
    let mut merged = Accumulator::default();
    images.chunks(5).for_each(|batch| merged.merge(&coco_map(batch).unwrap()).unwrap());
    assert_near(&merged.finish(), &expected);
    assert_eq!(merged.observations(), 12);
}

/// One detection for each box of the truth, all of one score, of which those of the images `wrong` miss their box.
fn tied(ids: &[i64], wrong: &[i64]) -> Vec<(ImageDetections, ImageTruth)> {
    let image = |id: &i64| {
        let left = if wrong.contains(id) { 100.0 } else { 0.0 };
        let found = ImageDetections { boxes: vec![[left, 0.0, 50.0, 50.0]], scores: vec![0.5], classes: vec![1] };
        let boxes = vec![[0.0, 0.0, 50.0, 50.0]];
        (found, ImageTruth { id: *id, boxes, classes: vec![1], areas: vec![2500.0], crowds: vec![false] })
    };
    ids.iter().map(image).collect()
}

#[test]
fn equal_scores_count_in_the_order_of_the_image_ids_whatever_the_order_of_the_samples() {
    let (images, expected) = reference();
    assert_near(&coco_map(&images.into_iter().rev().collect::<Vec<_>>()).unwrap().finish(), &expected);
    // pycocotools 2.0.11 gives these figures for the same boxes.
    for (wrong, expected) in [([1, 2], 0.2524752475247525), ([3, 4], 0.504950495049505)] {
        for ids in [[1, 2, 3, 4], [4, 3, 2, 1], [3, 1, 4, 2]] {
            let mut merged = Accumulator::default();
            tied(&ids, &wrong).chunks(1).for_each(|one| merged.merge(&coco_map(one).unwrap()).unwrap());
            assert!(
                (merged.finish()["map"] - expected).abs() < 1e-12,
                "{wrong:?} wrong, {ids:?}: {:?}",
                merged.finish()
            );
        }
    }
}

#[test]
fn a_figure_over_objects_that_do_not_occur_is_left_out() {
    let truth = ImageTruth {
        id: 1,
        boxes: vec![[0.0, 0.0, 50.0, 50.0]],
        classes: vec![1],
        areas: vec![2500.0],
        crowds: vec![false],
    };
    let found = ImageDetections { boxes: truth.boxes.clone(), scores: vec![0.5], classes: vec![1] };
    let figures = coco_map(&[(found, truth)]).unwrap().finish();
    let names: Vec<&str> = figures.keys().map(String::as_str).collect();
    assert_eq!(names, ["map", "map50", "map75", "map_medium", "ar1", "ar10", "ar100", "ar_medium"]);
    assert!(figures.values().all(|value| (value - 1.0).abs() < 1e-12));
    assert!(coco_map(&[Default::default()]).unwrap().finish().is_empty(), "an image without boxes has no figure");
}

#[test]
fn numbers_that_cannot_be_compared_are_refused_with_their_image() {
    let (mut images, _) = reference();
    images[3].0.scores[1] = f64::NAN;
    let error = coco_map(&images).unwrap_err().to_string();
    assert!(error.starts_with("detection 1 of image 3 is [") && error.contains("NaN"), "{error}");
    let (mut images, _) = reference();
    images[0].1.boxes[0][2] = -1.0;
    assert!(coco_map(&images).unwrap_err().to_string().starts_with("truth 0 of image 0 is ["));
}
