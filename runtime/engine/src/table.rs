//! The table of engines, and the lookup by name.
//!
//! The default build is pure Rust: validation runs on `interpreter`, the executor of `flagperf-onnx-exec`, and inference on
//! `rten`. Knows nothing about vendors: each `vendor.yaml` lists the engines that its vendor offers.

use super::Engine;
use super::interpreter::Interpreter;
use super::kserve::KServe;
use super::null::Null;
use super::onnxruntime::OnnxRuntime;
use super::openai::OpenAi;
use super::openvino::OpenVino;
use super::plugin::Plugin;
use super::program::Program;
use super::rten::Rten;
use super::sidecar::Sidecar;
use flagperf_core::suggestion::nearest;

/// Every engine of this build, in order of name. An engine that cannot be used on this machine keeps its row, and its
/// `check` reports the reason.
pub static TABLE: &[&dyn Engine] =
    &[&Interpreter, &KServe, &Null, &OnnxRuntime, &OpenAi, &OpenVino, &Plugin, &Program, &Rten, &Sidecar];

/// Returns the engine with this name.
///
/// # Errors
/// [`UnknownEngine`], which lists the known engines.
pub fn find(name: &str) -> Result<&'static dyn Engine, UnknownEngine> {
    TABLE.iter().copied().find(|engine| engine.name() == name).ok_or_else(|| UnknownEngine::new(name))
}

/// The engines that are part of this program and open no library.
const OWN_CODE: [&str; 3] = ["interpreter", "null", "rten"];

/// Returns whether an engine runs nothing but the code of this program.
pub fn is_own_code(name: &str) -> bool {
    OWN_CODE.contains(&name)
}

/// The error for a name that is not in the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown engine `{name}` (known: {known}{})", .nearest.map(|n| format!("; nearest: {n}")).unwrap_or_default())]
pub struct UnknownEngine {
    pub name: String,
    /// The nearest known name, if one is similar.
    pub nearest: Option<&'static str>,
    /// The names of all engines, separated by commas.
    pub known: String,
}

impl UnknownEngine {
    fn new(name: &str) -> Self {
        let names: Vec<&str> = TABLE.iter().map(|engine| engine.name()).collect();
        UnknownEngine { name: name.to_owned(), nearest: nearest(name, names.iter().copied()), known: names.join(", ") }
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
            let about = engine.description().about;
            assert!(about.len() > 20 && !about.contains('\n') && !about.ends_with('.'), "{}: {about}", engine.name());
            assert!(engine.roles().framework || engine.roles().compiler, "{}", engine.name());
            assert!(!engine.precisions().is_empty() && engine.precisions().iter().all(|p| p.is_float()));
            assert!(engine.description().opset_max >= 17, "{}", engine.name());
        }
    }

    #[test]
    fn an_unavailable_engine_reports_a_reason_and_a_remedy() {
        for engine in TABLE {
            match engine.check() {
                Ok(version) => assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{}", engine.name()),
                Err(missing) => assert!(!missing.reason.is_empty() && !missing.remedy.is_empty(), "{}", engine.name()),
            }
        }
    }

    #[test]
    fn engine_versions_match_the_lock_file() {
        let locked = include_str!("../../../Cargo.lock");
        let versions = [("flagperf", Null::VERSION), ("gemm", Interpreter::GEMM_VERSION), ("rten", Rten::VERSION)];
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
    fn an_unknown_engine_lists_the_nearest_and_the_known_ones() {
        let error = find("nul").err().unwrap();
        assert_eq!(error.nearest, Some("null"));
        assert!(error.to_string().starts_with("unknown engine `nul` (known: "), "{error}");
        assert!(error.to_string().ends_with("; nearest: null)"), "{error}");
        assert_eq!(find("xyzzy").err().unwrap().nearest, None);
    }
}
