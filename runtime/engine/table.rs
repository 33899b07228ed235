//! The table of engines, and looking one up by name.
//!
//! Knows no vendor: which of them a vendor offers is said in its `vendor.yaml`.

use super::Engine;
use super::candle::Candle;
use super::null::Null;
use super::onnxruntime::OnnxRuntime;
use super::openvino::OpenVino;
use super::options::nearest;
use super::plugin::Plugin;
use super::rten::Rten;
use super::sidecar::Sidecar;
use super::tract::Tract;

/// Every engine of this build, by name. An engine that cannot be used here keeps its row: `check` says why.
pub static TABLE: &[&dyn Engine] = &[&Candle, &Null, &OnnxRuntime, &OpenVino, &Plugin, &Rten, &Sidecar, &Tract];

/// The engine of this name.
///
/// # Errors
/// When there is none; the error names those that there are.
pub fn find(name: &str) -> Result<&'static dyn Engine, UnknownEngine> {
    TABLE.iter().copied().find(|engine| engine.name() == name).ok_or_else(|| UnknownEngine::new(name))
}

/// A name that no engine has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown engine `{name}` (known: {known}{})", .nearest.map(|n| format!("; nearest: {n}")).unwrap_or_default())]
pub struct UnknownEngine {
    /// The name asked for.
    pub name: String,
    /// The engine that was probably meant.
    pub nearest: Option<&'static str>,
    /// Every engine there is, separated by commas.
    pub known: String,
}

impl UnknownEngine {
    fn new(name: &str) -> Self {
        let names: Vec<&str> = TABLE.iter().map(|engine| engine.name()).collect();
        UnknownEngine { name: name.to_owned(), nearest: nearest(name, &names), known: names.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_lower_case_and_in_order() {
        let names: Vec<&str> = TABLE.iter().map(|engine| engine.name()).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert!(names.is_sorted());
        for name in names {
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{name}");
        }
    }

    #[test]
    fn every_row_is_documented_and_usable_in_some_role() {
        for engine in TABLE {
            let about = engine.facts().about;
            assert!(about.len() > 20 && !about.contains('\n') && !about.ends_with('.'), "{}: {about}", engine.name());
            assert!(engine.roles().framework || engine.roles().compiler, "{}", engine.name());
            assert!(!engine.precisions().is_empty() && engine.precisions().iter().all(|p| p.is_float()));
            assert!(engine.facts().opset_max >= 17, "{}", engine.name());
        }
    }

    #[test]
    fn an_engine_that_cannot_be_used_says_why_and_what_to_do() {
        for engine in TABLE {
            match engine.check() {
                Ok(version) => assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{}", engine.name()),
                Err(missing) => assert!(!missing.reason.is_empty() && !missing.remedy.is_empty(), "{}", engine.name()),
            }
        }
    }

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let locked = include_str!("../../Cargo.lock");
        let versions = [("flagperf", Null::VERSION), ("rten", Rten::VERSION), ("tract-onnx", Tract::VERSION)];
        for (name, version) in versions {
            assert!(locked.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")), "{name}");
        }
    }

    #[test]
    fn every_engine_is_found_by_its_name() {
        for engine in TABLE {
            assert_eq!(find(engine.name()).unwrap().name(), engine.name());
        }
    }

    #[test]
    fn unknown_engine_names_the_nearest_and_the_known_ones() {
        let error = find("nul").err().unwrap();
        assert_eq!(error.nearest, Some("null"));
        assert!(error.to_string().starts_with("unknown engine `nul` (known: "), "{error}");
        assert!(error.to_string().ends_with("; nearest: null)"), "{error}");
        assert_eq!(find("xyzzy").err().unwrap().nearest, None);
    }
}
