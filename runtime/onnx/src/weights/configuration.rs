//! Compares what a model computes besides its weights with the `config.json` that transformers writes beside them, and
//! with the metadata of a GGUF file.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{MappedFile, WeightError, gguf, safetensors as format};

/// The largest file in bytes.
const BYTES_MAX: usize = 1 << 20;

/// What the file must have under a key if it has the key: a number, a text, or an object with such values; null if the
/// key must be absent or null.
pub type ConfigurationValue = (String, Value);

/// Compares the values of the model with the metadata of its file of weights, if that is a GGUF file, and with the
/// `config.json` beside it. Returns the path of the latter if there is one.
///
/// # Errors
/// When a file cannot be read, or has another value.
pub(super) fn check(weights: &Path, expected: &[ConfigurationValue]) -> Result<Option<PathBuf>, WeightError> {
    if expected.is_empty() {
        return Ok(None);
    }
    let file = format::open(weights)?;
    if gguf::is_gguf(file.bytes()) {
        let metadata = gguf::read_configuration(weights, file.bytes())?;
        compare(weights, expected, |key| metadata.get(key).map(|(name, value)| (*name, value)))?;
    }
    let path = weights.with_file_name("config.json");
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    let failed = |reason: String| WeightError::Configuration { path: path.clone(), reason };
    let file = MappedFile::open(&path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    if file.bytes().len() > BYTES_MAX {
        return Err(failed(format!("has more than {BYTES_MAX} bytes")));
    }
    let config: Value =
        serde_json::from_slice(file.bytes()).map_err(|error| failed(format!("is not JSON: {error}")))?;
    compare(&path, expected, |key| Some((key, value(&config, key)?)))?;
    Ok(Some(path))
}

/// Compares the values of the model with those of a file; `find` returns the file's own name of a key and its value.
fn compare<'a>(
    path: &Path,
    expected: &'a [ConfigurationValue],
    find: impl Fn(&'a str) -> Option<(&'a str, &'a Value)>,
) -> Result<(), WeightError> {
    for (key, expected) in expected {
        let actual = find(key).filter(|(_, actual)| expected.is_object() || !actual.is_null());
        let Some((name, actual)) = actual.filter(|(_, actual)| !is_equal(expected, actual)) else { continue };
        let [expected, actual] =
            [expected, actual].map(|value| if value.is_null() { "none".to_owned() } else { value.to_string() });
        let reason = format!(
            "has the `{name}` {actual}, but the model of this case has {expected}: choose the weights of this model, or \
             correct `{key}` in the script"
        );
        return Err(WeightError::Configuration { path: path.to_owned(), reason });
    }
    Ok(())
}

/// Returns whether a value is as expected. Of an object, only the keys of the expected one count.
fn is_equal(expected: &Value, actual: &Value) -> bool {
    match (expected.as_f64(), actual.as_f64(), expected) {
        (Some(expected), Some(actual), _) => (actual - expected).abs() <= 1e-9 * expected.abs(),
        // Before version 4.43, transformers called the type of a scaling `type`.
        (_, _, Value::Object(expected)) => expected.iter().all(|(key, expected)| {
            let older = if key == "rope_type" { &actual["type"] } else { &Value::Null };
            is_equal(expected, actual.get(key).unwrap_or(older))
        }),
        _ => expected == actual,
    }
}

/// Returns the value of a key. Since version 5, transformers writes what concerns rotary embeddings under `rope_parameters`.
fn value<'a>(config: &'a Value, key: &str) -> Option<&'a Value> {
    let rotary = &config["rope_parameters"];
    match key {
        "rope_scaling" if rotary["rope_type"] == "default" => Some(&Value::Null),
        "rope_scaling" if !rotary["rope_type"].is_null() => Some(rotary),
        "rope_theta" if !rotary[key].is_null() => Some(&rotary[key]),
        _ => config.get(key),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compared(text: &str) -> Result<Option<PathBuf>, String> {
        compared_with(json!({"rms_norm_eps": 1e-5, "rope_theta": 5e5, "rope_scaling": null}), text)
    }

    fn compared_with(expected: Value, text: &str) -> Result<Option<PathBuf>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), text).unwrap();
        let Value::Object(expected) = expected else { panic!("an object") };
        let expected: Vec<_> = expected.into_iter().collect();
        let weights = folder.path().join("model.safetensors");
        std::fs::write(&weights, "").unwrap();
        check(&weights, &expected).map_err(|error| {
            let text = error.to_string();
            text[text.find("config.json").unwrap()..].to_owned()
        })
    }

    #[test]
    fn a_configuration_of_the_model_may_lack_keys() {
        for text in [
            "{}",
            r#"{"rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": null}"#,
            r#"{"rope_parameters": {"rope_type": "default", "rope_theta": 500000}}"#,
        ] {
            assert!(compared(text).unwrap().is_some());
        }
        let weights = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(check(weights.path(), &[("a".to_owned(), Value::Null)]).unwrap(), None);
    }

    #[test]
    fn a_configuration_of_another_model_is_refused_with_both_values() {
        let differs = |what: &str, key: &str| {
            format!("has the {what}: choose the weights of this model, or correct `{key}` in the script")
        };
        let epsilon = "`rms_norm_eps` 1e-6, but the model of this case has 0.00001";
        let theta = "`rope_theta` 10000.0, but the model of this case has 500000.0";
        let scaling = r#"`rope_scaling` {"rope_type":"llama3"}, but the model of this case has none"#;
        for (text, reason) in [
            (r#"{"rms_norm_eps": 1e-6}"#, differs(epsilon, "rms_norm_eps")),
            (r#"{"rope_theta": 10000.0}"#, differs(theta, "rope_theta")),
            (r#"{"rope_parameters": {"rope_type": "llama3"}}"#, differs(scaling, "rope_scaling")),
            ("[", "is not JSON: EOF while parsing a list at line 1 column 1".to_owned()),
        ] {
            assert_eq!(compared(text).unwrap_err(), format!("config.json` {reason}"));
        }
    }

    #[test]
    fn the_scaling_of_rotary_embeddings_is_compared_in_the_spelling_of_each_version() {
        let expected = || json!({"rope_scaling": {"factor": 2.0, "rope_type": "linear"}});
        for text in [
            "{}",
            r#"{"rope_scaling": {"type": "linear", "factor": 2}}"#,
            r#"{"rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 2.0}}"#,
            r#"{"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}"#,
        ] {
            assert!(compared_with(expected(), text).unwrap().is_some(), "{text}");
        }
        let model = r#"but the model of this case has {"factor":2.0,"rope_type":"linear"}"#;
        for (text, actual) in [
            (r#"{"rope_scaling": null}"#, "none"),
            (r#"{"rope_parameters": {"rope_type": "default"}}"#, "none"),
            (r#"{"rope_scaling": {"factor": 4, "type": "linear"}}"#, r#"{"factor":4,"type":"linear"}"#),
            (r#"{"rope_parameters": {"factor": 2, "rope_type": "llama3"}}"#, r#"{"factor":2,"rope_type":"llama3"}"#),
        ] {
            let error = compared_with(expected(), text).unwrap_err();
            assert!(error.starts_with(&format!("config.json` has the `rope_scaling` {actual}, {model}: ")), "{error}");
        }
    }
}
