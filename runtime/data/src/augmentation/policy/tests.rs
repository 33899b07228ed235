//! Tests of the policies.

use std::collections::BTreeSet;

use super::*;
use crate::augmentation::tests::{Reference, reference};
use crate::random::Epoch;

const PLAIN: Outside = Outside { interpolation: Interpolation::Nearest, level: 0 };

/// Returns the magnitude that torchvision gives to an operation.
fn magnitude(operation: Operation) -> f64 {
    match operation {
        Operation::Brightness(factor)
        | Operation::Saturation(factor)
        | Operation::Contrast(factor)
        | Operation::Sharpness(factor) => factor - 1.0,
        Operation::Posterize(bits) => f64::from(bits),
        Operation::Solarize(number)
        | Operation::ShearX(number)
        | Operation::ShearY(number)
        | Operation::TranslateX(number)
        | Operation::TranslateY(number)
        | Operation::Rotate(number) => number,
        other => panic!("{other:?} has no magnitude"),
    }
}

#[test]
fn magnitudes_are_those_of_torchvision() {
    let Reference { magnitudes, .. } = reference();
    let spaces = [
        ("rand_augment", Space::standard(31)),
        ("trivial_augment_wide", Space::wide(31)),
        ("auto_augment", Space::standard(10)),
    ];
    let mut compared = 0;
    for (policy, space) in spaces {
        for kind in RAND_AUGMENT_KINDS {
            let Some((steps, is_signed)) = magnitudes[policy].get(&format!("{kind:?}")) else { continue };
            for (bin, expected) in steps.iter().enumerate() {
                let found = |is_negative| magnitude(space.operation(kind, bin, is_negative, (500, 375)).unwrap());
                assert!((found(false) - expected).abs() < 1e-6 * expected.abs().max(1.0), "{policy} {kind:?} {bin}");
                let sign = if *is_signed { -1.0 } else { 1.0 };
                assert!((found(true) - sign * expected).abs() < 1e-6 * expected.abs().max(1.0), "{policy} {kind:?}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 11 * (31 + 31 + 10));
}

fn drawn(kind: PolicyKind) -> Vec<Vec<Operation>> {
    let policy = Policy { kind, outside: PLAIN };
    (0..2000).map(|sample| policy.draw(&mut Epoch::default().stream("test", sample), (100, 50))).collect()
}

/// Returns the names of the operations that occur.
fn names(drawn: &[Vec<Operation>]) -> BTreeSet<String> {
    let name = |operation: &Operation| format!("{operation:?}").split('(').next().unwrap().to_owned();
    drawn.iter().flatten().map(name).collect()
}

#[test]
fn rand_augment_draws_operations_of_one_magnitude() {
    let drawn = drawn(PolicyKind::RandAugment { operations: 2, magnitude: 9, bins: 31 });
    assert_eq!(names(&drawn).len(), 13, "all but the identity");
    let count = drawn.iter().map(Vec::len).sum::<usize>();
    assert!((3600..3800).contains(&count), "of 4000 operations, 1 in 14 is the identity: {count}");
    let is_rotation = |operation: &&Operation| matches!(operation, Operation::Rotate(_));
    let rotations: Vec<f64> = drawn.iter().flatten().filter(is_rotation).map(|found| magnitude(*found)).collect();
    assert!(rotations.iter().all(|degrees| degrees.abs() == 9.0) && rotations.iter().any(|degrees| *degrees < 0.0));
}

#[test]
fn trivial_augment_draws_one_operation_of_any_magnitude() {
    let drawn = drawn(PolicyKind::TrivialAugmentWide { bins: 31 });
    assert_eq!((names(&drawn).len(), drawn.iter().map(Vec::len).max()), (13, Some(1)));
    let bits = drawn.iter().flatten().filter_map(|operation| match operation {
        Operation::Posterize(bits) => Some(*bits),
        _ => None,
    });
    assert_eq!(bits.collect::<BTreeSet<_>>(), (2..=8).collect());
}

#[test]
fn auto_augment_draws_the_operations_of_its_pairs() {
    let drawn = drawn(PolicyKind::AutoAugment);
    let expected = [
        "AutoContrast",
        "Contrast",
        "Equalize",
        "Invert",
        "Posterize",
        "Rotate",
        "Saturation",
        "Sharpness",
        "ShearX",
        "Solarize",
    ];
    assert_eq!(names(&drawn), expected.map(str::to_owned).into());
    assert!(drawn.iter().any(Vec::is_empty) && drawn.iter().all(|operations| operations.len() <= 2));
}
