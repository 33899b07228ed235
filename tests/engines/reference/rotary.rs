//! Scaled rotary embeddings have the frequencies of Hugging Face's transformers.

use std::fs;

use flagperf_onnx::Model;
use flagperf_onnx::layers::{RotaryAngles, RotaryScaling};
use flagperf_script::ScriptChoice;
use serde_json::{Value, json};

use super::{folder, formula, write_tensors};
use crate::support;
use crate::support::cases::model_of_scripts;

/// The largest allowed relative error of a frequency: transformers computes them in f32, too.
const TOLERANCE: f64 = 2e-6;

fn references() -> Vec<Value> {
    let text = fs::read_to_string(folder().join("rotary.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    file["models"].as_array().unwrap().clone()
}

#[track_caller]
fn assert_frequencies(actual: impl Iterator<Item = f64>, expected: &Value) {
    let expected: Vec<f64> = expected.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect();
    let actual: Vec<f64> = actual.collect();
    assert_eq!(actual.len(), expected.len());
    for (actual, expected) in actual.into_iter().zip(expected) {
        assert!((actual / expected - 1.0).abs() <= TOLERANCE, "{actual}, not {expected}");
    }
}

#[test]
fn scaled_angles_are_those_of_transformers() {
    let references = references();
    assert_eq!(references.len(), 4);
    for reference in references {
        let scaling = &reference["scaling"];
        let number = |key: &str| scaling[key].as_f64().unwrap();
        let scaling = match scaling["rope_type"].as_str() {
            Some("linear") => RotaryScaling::Linear { factor: number("factor") },
            _ => RotaryScaling::Llama3 {
                factor: number("factor"),
                low_freq_factor: number("low_freq_factor"),
                high_freq_factor: number("high_freq_factor"),
                original_positions: number("original_max_position_embeddings") as usize,
            },
        };
        let angles = RotaryAngles {
            positions: 1,
            width: reference["width"].as_u64().unwrap() as usize,
            theta: reference["theta"].as_f64().unwrap() as f32,
            interleaved: false,
            scaling: Some(scaling),
        };
        assert_frequencies(angles.frequencies().into_iter().map(f64::from), &reference["frequencies"]);
    }
}

#[test]
fn a_case_passes_its_scaling_to_the_angles_and_to_the_comparison_with_the_configuration() {
    let checkout = support::checkout();
    let script = checkout.path().join("scripts/llama3_8b_mmlu/model.rhai");
    let text = fs::read_to_string(&script).unwrap();
    let scaling = r#"rope_scaling: #{rope_type: "llama3", factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0,
        original_max_position_embeddings: 8192}"#;
    let scaled = text.replace("tied: false", &format!("tied: false, {scaling}"));
    assert_ne!(scaled, text);
    fs::write(&script, scaled).unwrap();
    let mut settings = json!({"size": "tiny", "task": "mmlu", "prompt_length": 8, "new_tokens": 8, "temperature": 0});
    settings.as_object_mut().unwrap().extend([("top_k".to_owned(), 0.into()), ("top_p".to_owned(), 1.0.into())]);
    let create = |settings: &Value| {
        model_of_scripts(script.parent().unwrap(), settings, &ScriptChoice::default(), checkout.path())
    };
    let model = create(&settings).unwrap();
    let graph = &model.graphs[Model::SINGLE];
    let sines = graph.tensor("rotary.sines").unwrap().to_f64();
    let reference = references().into_iter().find(|reference| reference["width"] == 8).unwrap();
    // Row 1 has the sines of the frequencies, of which the first is 1 and all others are small.
    assert_frequencies(sines[4..8].iter().map(|sine| sine.asin()), &reference["frequencies"]);

    settings["weights"] = "model.safetensors".into();
    write_tensors(&checkout.path().join("model.safetensors"), &formula::weights(graph));
    create(&settings).unwrap();
    fs::write(checkout.path().join("config.json"), r#"{"rope_scaling": {"factor": 8.0, "rope_type": "linear"}}"#)
        .unwrap();
    let error = create(&settings).unwrap_err().to_string();
    let expected =
        r#"config.json` has the `rope_scaling` {"factor":8.0,"rope_type":"linear"}, but the model of this case has {"#;
    assert!(error.contains(expected), "{error}");
}
