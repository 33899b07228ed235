//! The description of an engine: its name, roles, precisions, operator set, and options with type and default.
//!
//! There is one description for the engine itself, the plan, `doctor`, the check of vendor.yaml and the documentation.
//! A built-in engine describes itself with constants. An engine that a vendor brings sends the same description: a
//! plug-in in its table, a sidecar in its reply to `hello`. Knows nothing about particular engines.

mod message;
mod option;

pub use message::DescriptionMessage;
pub use option::{EngineOption, OptionKind, OptionMessage, parse_options, unknown_option_reason};

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::precision::Precision;
use crate::step::EngineRole;
use crate::tensor::DType;

/// The option with which an engine that supports TF32 computes products of f32 in it: `true` or `false`. The plan sets
/// it from `precision`, so a configuration may not.
pub const TF32_OPTION: &str = "tf32";

/// The option with which an engine computes a session beside the others of its device: `true` or `false`. The host sets it for
/// sessions that copy batches of a training to the device or exchange its states, so a configuration may not.
pub const OWN_STREAM_OPTION: &str = "own_stream";

/// The engine that starts the training program of a case and runs no model itself.
pub const PROGRAM_ENGINE: &str = "program";

/// The roles that an engine can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Whether the engine can run the validation phase; it is then given a graph.
    pub framework: bool,
    /// Whether the engine can run the inference phase; it is then given a file.
    pub compiler: bool,
}

impl Roles {
    /// Returns whether the engine can have a role.
    pub const fn includes(self, role: EngineRole) -> bool {
        match role {
            EngineRole::Framework => self.framework,
            EngineRole::Compiler => self.compiler,
        }
    }
}

/// Where the code of an engine comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is part of this program.
    BuiltIn,
    /// It is part of this program and opens a library at run time that `flagperf backend install` installs.
    Installed,
    /// The vendor brings a shared library: `library` of its entry in vendor.yaml.
    Library,
    /// The vendor brings a process: `command` of its entry in vendor.yaml.
    Command,
    /// Somebody else started a server, which the engine asks.
    Server,
}

/// A key of `config` that the Python class of a sidecar reads, found in its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigRead {
    pub key: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// Whether the class always reads it, not only on a condition.
    pub is_certain: bool,
}

/// The properties of an engine that do not depend on the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineDescription {
    /// The lower-case name, unique in the table.
    pub name: &'static str,
    /// One line about the engine, for `doctor` and the documentation.
    pub about: &'static str,
    /// The roles that the engine can have.
    pub roles: Roles,
    /// The floating-point types that the engine computes in.
    pub precisions: &'static [DType],
    /// The highest version of the standard ONNX operator set that the engine supports.
    pub opset_max: i64,
    /// Whether the engine compiles ONNX files, or what an `exist_onnx_path` names instead. If not, it loads only files
    /// that it wrote earlier.
    pub compiles: bool,
    /// Whether the engine loads files that it wrote earlier (`exist_compiler_path`).
    pub loads_compiled: bool,
    /// The extensions of those files, such as `blob`. Empty if the name does not matter.
    pub compiled_extensions: &'static [&'static str],
    /// Where the code of the engine comes from.
    pub delivery: Delivery,
    /// Whether the option `threads` has an effect.
    pub uses_threads: bool,
    /// Whether the engine is sent prompts and tells when the tokens of their answers arrive.
    pub generates_text: bool,
    /// The options besides `threads`. `None` if only the vendor's code has the list: it then checks the options when it
    /// loads a model.
    pub options: Option<&'static [EngineOption]>,
}

impl EngineDescription {
    /// A built-in engine without restrictions and without options; each engine overrides what differs.
    pub const fn unrestricted(name: &'static str, about: &'static str) -> Self {
        EngineDescription {
            name,
            about,
            roles: Roles { framework: true, compiler: true },
            precisions: &[DType::F64, DType::F32, DType::F16, DType::BF16],
            opset_max: i64::MAX,
            compiles: true,
            loads_compiled: true,
            compiled_extensions: &[],
            delivery: Delivery::BuiltIn,
            uses_threads: true,
            generates_text: false,
            options: Some(&[]),
        }
    }

    /// Describes what the engine can do, for `doctor`: `framework and compiler; fp32, fp16`.
    pub fn capabilities(&self) -> String {
        let roles = match self.roles {
            Roles { framework: true, compiler: true } => "framework and compiler",
            Roles { framework: true, .. } => "framework",
            Roles { .. } => "compiler",
        };
        let precisions: Vec<&str> = self.supported_precisions().map(Precision::name).collect();
        format!("{roles}; {}{}", precisions.join(", "), if self.loads_compiled { "; loads compiled files" } else { "" })
    }

    /// Returns whether the engine computes in a precision; `true` for TF32 if only the vendor's code knows.
    pub fn supports(&self, precision: Precision) -> bool {
        let has_option = || self.options.is_none() || self.option(TF32_OPTION).is_some();
        self.precisions.contains(&precision.dtype()) && (precision != Precision::Tf32 || has_option())
    }

    /// Returns the precisions that the engine is known to compute in.
    pub fn supported_precisions(&self) -> impl Iterator<Item = Precision> {
        let is_known = |precision| precision != Precision::Tf32 || self.options.is_some();
        Precision::ALL.into_iter().filter(move |precision| is_known(*precision) && self.supports(*precision))
    }

    /// Returns whether the name of a file is one of a compiled file of this engine.
    pub fn accepts_compiled_name(&self, path: &Path) -> bool {
        let extension = path.extension().and_then(|extension| extension.to_str());
        self.compiled_extensions.is_empty() || extension.is_some_and(|own| self.compiled_extensions.contains(&own))
    }

    /// The option of this name.
    pub fn option(&self, name: &str) -> Option<&'static EngineOption> {
        self.options?.iter().find(|option| option.name == name)
    }

    /// Checks one option of a load. An option that is `null` is left to the engine.
    ///
    /// # Errors
    /// Why the option is rejected, as a fragment. Options are not checked when the description does not list them.
    pub fn check_option(&self, name: &str, value: &serde_json::Value) -> Result<(), String> {
        let Some(options) = self.options else { return Ok(()) };
        match self.option(name) {
            Some(option) => option.check(value),
            None => Err(unknown_option_reason(name, options)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OPTIONS: &[EngineOption] = &[
        EngineOption { name: "level", kind: OptionKind::Choice(&["low", "high"]), default: "low", about: "a" },
        EngineOption { name: "fuse", kind: OptionKind::Boolean, default: "true", about: "b" },
        EngineOption {
            name: "streams",
            kind: OptionKind::Integer { min: Some(1), max: None },
            default: "1",
            about: "c",
        },
        EngineOption {
            name: "sleep_ms",
            kind: OptionKind::Number { min: Some(0.0), max: Some(1e3) },
            default: "0",
            about: "d",
        },
        EngineOption { name: "device", kind: OptionKind::Text, default: "cpu", about: "e" },
        EngineOption { name: "libraries", kind: OptionKind::List, default: "[]", about: "f" },
        EngineOption { name: "properties", kind: OptionKind::Map, default: "{}", about: "g" },
        EngineOption { name: "anything", kind: OptionKind::Any, default: "", about: "h" },
    ];

    fn description() -> EngineDescription {
        EngineDescription { options: Some(OPTIONS), ..EngineDescription::unrestricted("chip", "an example") }
    }

    #[test]
    fn each_value_is_checked_by_the_kind_of_its_option() {
        for (name, value) in [
            ("level", json!("high")),
            ("fuse", json!(false)),
            ("streams", json!(3)),
            ("sleep_ms", json!(0)),
            ("sleep_ms", json!(0.5)),
            ("device", json!("cuda:0")),
            ("libraries", json!(["a.so", "b.so"])),
            ("properties", json!({"A": 1, "B": "x", "C": true})),
            ("anything", json!([1, {"a": null}])),
            ("fuse", json!(null)),
        ] {
            assert_eq!(description().check_option(name, &value), Ok(()), "{name}: {value}");
        }
        for (name, value, reason) in [
            ("level", json!("hihg"), "unknown value `hihg` (known: low, high; nearest: high)"),
            ("level", json!(1), "`1` is not one of low, high"),
            ("fuse", json!("maybe"), "`\"maybe\"` is not true or false"),
            ("streams", json!(0), "`0` is not a whole number of at least 1"),
            ("streams", json!(1.5), "`1.5` is not a whole number of at least 1"),
            ("sleep_ms", json!(-1), "`-1` is not a number from 0 to 1000"),
            ("sleep_ms", json!(2000), "`2000` is not a number from 0 to 1000"),
            ("device", json!(0), "`0` is not a string"),
            ("libraries", json!("a.so"), "`\"a.so\"` is not a list of strings"),
            ("properties", json!({"A": [1]}), "`A`: `[1]` is not a string, a number, true or false"),
            (
                "levle",
                json!("low"),
                "unknown (known: level, fuse, streams, sleep_ms, device, libraries, properties, anything, threads; nearest: level)",
            ),
        ] {
            assert_eq!(description().check_option(name, &value), Err(reason.to_owned()), "{name}: {value}");
        }
    }

    #[test]
    fn options_that_nobody_listed_are_not_checked() {
        let description = EngineDescription { options: None, ..description() };
        assert_eq!(description.check_option("whatever", &json!(1)), Ok(()));
        let description = EngineDescription { options: Some(&[]), ..description };
        let reason = "unknown (known: threads)";
        assert_eq!(description.check_option("whatever", &json!(1)), Err(reason.to_owned()));
        let near = "unknown (known: threads; nearest: threads)";
        assert_eq!(description.check_option("thread", &json!(1)), Err(near.to_owned()));
    }

    #[test]
    fn a_description_survives_the_way_through_a_message() {
        let sent = serde_json::to_string(&DescriptionMessage::from(&description())).unwrap();
        let received: DescriptionMessage = serde_json::from_str(&sent).unwrap();
        assert_eq!(received.into_description(Delivery::BuiltIn), description());
    }

    #[test]
    fn equal_messages_share_one_description() {
        let message = DescriptionMessage::from(&description());
        let [first, second] = [message.clone(), message].map(|message| message.into_description(Delivery::Command));
        assert!(std::ptr::eq(first.name, second.name), "the texts are stored once");
    }

    #[test]
    fn a_list_of_options_that_means_nothing_is_rejected() {
        for (json, reason) in [
            ("{", "expected a sequence"),
            (r#"[{"name": "", "kind": "text", "about": "x"}]"#, "option 1 has an empty name"),
            (
                r#"[{"name": "a", "kind": "text", "about": "x"}, {"name": "a", "kind": "any", "about": "x"}]"#,
                "option `a` is listed twice",
            ),
            (
                r#"[{"name": "a", "kind": "choice", "values": [], "about": "x"}]"#,
                "option `a` has no values to choose from",
            ),
            (r#"[{"name": "threads", "kind": "text", "about": "x"}]"#, "option `threads` is an option of every engine"),
            (r#"[{"name": "a", "kind": "colour", "about": "x"}]"#, "option `a`: unknown variant `colour`"),
            (r#"[{"name": "a", "kind": "any"}]"#, "option `a`: missing field `about`"),
            ("[7]", "option 1: invalid type"),
            (
                r#"[{"name": "a", "kind": "integer", "min": 3, "max": 1, "about": "x"}]"#,
                "option `a` has the `min` 3, which exceeds its `max` 1",
            ),
            (
                r#"[{"name": "a", "kind": "number", "min": 0.5, "max": 0.25, "about": "x"}]"#,
                "option `a` has the `min` 0.5, which exceeds its `max` 0.25",
            ),
            (
                r#"[{"name": "batch_size", "kind": "any", "about": "x"}]"#,
                "option `batch_size` has a name that is reserved for a value of the host",
            ),
        ] {
            let error = parse_options(json, |name| name == "batch_size").unwrap_err();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }
}
