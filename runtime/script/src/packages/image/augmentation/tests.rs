//! Tests of the options of random transforms.

use rhai::Dynamic;

use crate::packages::data::Pipeline;
use crate::sandbox;
use crate::stage::Stage;
use flagperf_core::limits::Limits;
use flagperf_data::{ColorJitter, ErasedValue, Geometry, Transform};

/// Evaluates calls on a folder of images.
fn evaluate(calls: &str) -> Result<Vec<Transform>, String> {
    let services = crate::tests::services().0;
    let (engine, script) =
        sandbox::build_engine(Stage::Dataloader.packages(), Limits::default(), services, "test".into());
    let _memory = script.budget.start();
    let pipeline = engine.eval::<Dynamic>(&format!("data::image_folder(\"train\"){calls}"));
    let pipeline = pipeline.map_err(|error| error.to_string())?;
    Ok(pipeline.cast::<Pipeline>().0.transforms)
}

#[test]
fn options_have_the_defaults_of_torchvision() {
    let calls = ".random_resized_crop(224).color_jitter(#{brightness: 0.4, saturation: 2, hue: [-0.1, 0.2]})";
    let transforms = evaluate(calls).unwrap();
    let Transform::Geometry(Geometry::RandomResizedCrop { size, range, .. }) = &transforms[0] else {
        panic!("{transforms:?}");
    };
    assert_eq!((*size, range.scale, range.ratio), ((224, 224), (0.08, 1.0), (3.0 / 4.0, 4.0 / 3.0)));
    let Transform::ColorJitter(ColorJitter { brightness, contrast, saturation, hue }) = transforms[1].clone() else {
        panic!("{transforms:?}");
    };
    assert_eq!((brightness, contrast, saturation), (Some((0.6, 1.4)), None, Some((0.0, 3.0))));
    assert_eq!(hue, Some((-0.1, 0.2)));
    let Transform::RandomErasing(erasing) = evaluate(".random_erasing(0.5)").unwrap()[0].clone() else {
        panic!("no erasing");
    };
    assert_eq!((erasing.range.scale, erasing.value), ((0.02, 0.33), ErasedValue::Channels([0.0; 3])));
}

#[test]
fn values_without_a_meaning_are_refused_with_the_function() {
    for (calls, expected) in [
        (".random_resized_crop(8, #{scale: [0.5, 0.1]})", "`scale` must be two numbers, the smaller one first"),
        (".random_resized_crop(8, #{scale: [0.5, 1.5]})", "`random_resized_crop`: `scale` must be within 0 and 1"),
        (".random_resized_crop(8, #{ratio: [0.0, 1.0]})", "`ratio` must be within 0.001 and 1000"),
        (".random_resized_crop(8, #{scael: [0.5, 1.0]})", "has no option `scael`; did you mean `scale`?"),
        (".random_horizontal_flip(1.5)", "a probability must be from 0 to 1, not 1.5"),
        (".color_jitter(#{hue: 0.6})", "`color_jitter`: `hue` must be within -0.5 and 0.5"),
        (".color_jitter(#{contrast: -1})", "`color_jitter`: `contrast` must be at least 0, not `-1`"),
        (".rand_augment(#{magnitude: 31})", "`magnitude` must be below `bins`, 31, not 31"),
        (".rand_augment(#{operations: 21})", "`rand_augment` applies at most 20 operations, not 21"),
        (".trivial_augment_wide(#{bins: 1})", "`trivial_augment_wide`: `bins` must be from 2 to 1000, not 1"),
        (".auto_augment(#{interpolation: \"cubic\"})", "unknown interpolation `cubic` (known: nearest, bilinear)"),
        (".auto_augment(#{level: 256})", "the level of a pixel must be from 0 to 255, not 256"),
        (".random_erasing(0.5, #{value: \"noise\"})", "`value` must be a number, three, or \"random\", not `noise`"),
        (".mixup(0.0, 10)", "`mixup`: `alpha` must be from 0.001 to 1000, not 0"),
        (".cutmix(1.0, 0)", "`cutmix`: 1 to 1048576 classes are supported, not 0"),
    ] {
        let error = evaluate(calls).unwrap_err();
        assert!(error.contains(expected), "{calls}: {error}");
    }
}
