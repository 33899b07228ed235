//! Keys of a file with a fixed set of keys: name, type, default and purpose.

use serde_json::Value;

use super::entries::{check_agreement_limits, check_target, describe_node, is_target, list_alternatives, parse_bytes};
use super::file::ConfigFile;
use super::finding::{missing_key, nearest_note};
use super::scenario::read_scenario;
use super::switches::check_switches;
use super::yaml::{self, Content, Node};
use super::{Finding, Origin, Sourced, Values, list_names, nearest, parse_flops};

/// Maximum number of threads: more than any current machine has, yet they start in less than a second.
pub const THREADS_MAX: u64 = 1024;
/// Largest number of readings of the monitors per second.
const PER_SECOND_MAX: u64 = 10;

/// A key of host.yaml, configurations.yaml, training.yaml or parameters.yaml.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// Name, as in FlagPerf.
    pub name: &'static str,
    /// Type of its value.
    pub kind: ValueKind,
    /// Default as YAML; `None` when the key is required.
    pub default: Option<&'static str>,
    /// One-line description.
    pub about: &'static str,
    /// Who may set it in a file.
    pub owner: Owner,
}

/// Who may set a key in a file. `--set` may also set the keys of a case, as a departure from the standard
/// configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The user of a site, in host.yaml.
    Site,
    /// Only the author of a case: the key defines what is measured and by which rules, which is the same for every
    /// vendor.
    Case,
    /// The author of a case; a vendor's overlay may change it.
    CaseOrVendor,
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `true` or `false`, or `yes`, `no`, `on`, `off`, as in PyYAML.
    Flag,
    /// A whole number of at least 1.
    Count,
    /// The same, or null.
    OptionalCount,
    /// A number greater than 0.
    PositiveNumber,
    /// A whole number of at least 0.
    WholeNumber,
    /// A number of threads from 0 to [`THREADS_MAX`].
    Threads,
    /// A number of readings per second from 0 to 10.
    PerSecond,
    /// The seed of random values: a whole number that fits the `i64` of a script, or null.
    Seed,
    /// A TCP port, with or without quotes.
    Port,
    /// A list of ports.
    Ports,
    /// Text.
    Text,
    /// Text or null.
    OptionalText,
    /// The name of an environment variable, or null.
    Variable,
    /// A number of bytes, possibly with a unit such as `32G`; null means no limit.
    Size,
    /// A list of at least one text.
    NonEmptyTextList,
    /// A list of texts, possibly empty.
    TextList,
    /// A mapping of keys to texts.
    TextMap,
    /// A mapping of metrics to the minimum that each must reach.
    Targets,
    /// Limits of agreement, by precision.
    Limits,
    /// The switches of a case.
    Switches,
    /// How queries arrive.
    Scenario,
    /// A path below a folder: relative and without `..`.
    RelativePath,
    /// A SHA-256 in hexadecimal.
    Sha256,
    /// The same, or null.
    OptionalSha256,
    /// The name of a shared script (`lib/NAME`), or null.
    SharedScript,
    /// A `flops` expression.
    Flops,
    /// The same, or null.
    OptionalFlops,
    /// 1, 2 or null.
    OneOrTwo,
    /// One of a few words, in any letter case.
    Word(&'static [&'static str]),
    /// One of a few words, in any letter case, or null.
    OptionalWord(&'static [&'static str]),
}

impl ValueKind {
    /// Describes the expected value, for a message.
    pub const fn expected(self) -> &'static str {
        match self {
            ValueKind::Flag => "true or false",
            ValueKind::Count => "a whole number from 1 to 4294967295",
            ValueKind::OptionalCount => "a whole number from 1 to 4294967295, or null",
            ValueKind::PositiveNumber => "a number greater than 0, such as `0.1` or `3.5e-4`",
            ValueKind::WholeNumber => "a whole number from 0 to 4294967295",
            ValueKind::Threads => "a whole number from 0 to 1024",
            ValueKind::PerSecond => "a whole number from 0 to 10",
            ValueKind::Seed => "a non-negative integer below 2^63, or null",
            ValueKind::Port => "a port from 1 to 65535",
            ValueKind::Ports => "a list of ports from 1 to 65535",
            ValueKind::Text => "a string",
            ValueKind::OptionalText => "a string or null",
            ValueKind::Variable => "the name of an environment variable, or null",
            ValueKind::Size => "a number of bytes of at least 1, such as `32G`, or null",
            ValueKind::NonEmptyTextList => "a non-empty list of strings",
            ValueKind::TextList => "a list of strings such as `[one, two]`",
            ValueKind::TextMap => "a mapping of keys to strings",
            ValueKind::Targets => "a value for each metric, such as `{top1: 0.76}`",
            ValueKind::Limits => "limits by precision, such as `{fp16: {relative_l2: 0.05}}`",
            ValueKind::Switches => "a list of switches",
            ValueKind::Scenario => "a scenario",
            ValueKind::RelativePath => "a path below the data directory, without `..`",
            ValueKind::Sha256 => "64 lower-case hexadecimal digits",
            ValueKind::OptionalSha256 => "64 lower-case hexadecimal digits or null",
            ValueKind::SharedScript => "a shared script such as `lib/classification`, or null",
            ValueKind::Flops => "an expression such as `4.12e9` or `2*512*0.33e9`",
            ValueKind::OptionalFlops => "an expression such as `4.12e9` or `2*512*0.33e9`, or null",
            ValueKind::OneOrTwo => "1, 2 or null",
            ValueKind::Word(_) => "one of the known words",
            ValueKind::OptionalWord(_) => "one of the known words, or null",
        }
    }

    /// Returns the typed value of `node`; `None` when it has another type.
    pub fn read(self, node: &Node) -> Option<Value> {
        match (self, &node.content) {
            (ValueKind::NonEmptyTextList, Content::List(items)) if !items.is_empty() => {
                items.iter().map(|i| ValueKind::Text.read(i)).collect()
            }
            (ValueKind::TextList, Content::List(items)) => items.iter().map(|i| ValueKind::Text.read(i)).collect(),
            (ValueKind::Ports, Content::List(items)) => items.iter().map(|i| ValueKind::Port.read(i)).collect(),
            (ValueKind::TextMap, Content::Map(entries)) => {
                entries.iter().map(|(key, node)| Some((key.clone(), ValueKind::Text.read(node)?))).collect()
            }
            (ValueKind::Targets, Content::Map(entries)) => {
                entries.iter().map(|(metric, n)| is_target(metric, n).then(|| (metric.clone(), n.value()))).collect()
            }
            (ValueKind::Limits, Content::Map(entries)) => {
                entries.iter().all(|(precision, n)| check_agreement_limits(precision, n).is_ok()).then(|| node.value())
            }
            (ValueKind::Switches, _) => check_switches(node).is_ok().then(|| node.value()),
            (ValueKind::Scenario, _) => serde_json::to_value(read_scenario(node).ok()?).ok(),
            (_, Content::Scalar { text, plain, value }) => self.read_scalar(text, *plain, value),
            _ => None,
        }
    }

    fn read_scalar(self, text: &str, plain: bool, value: &Value) -> Option<Value> {
        let whole = |from: u64, to: u64| value.as_u64().filter(|n| (from..=to).contains(n)).map(Value::from);
        match self {
            ValueKind::Flag if plain => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Some(Value::Bool(true)),
                "false" | "no" | "off" => Some(Value::Bool(false)),
                _ => None,
            },
            ValueKind::OptionalCount | ValueKind::OptionalFlops if value.is_null() => Some(Value::Null),
            ValueKind::Count | ValueKind::OptionalCount => whole(1, u32::MAX.into()),
            ValueKind::PositiveNumber => value.as_f64().filter(|number| *number > 0.0).map(Value::from),
            ValueKind::WholeNumber => whole(0, u32::MAX.into()),
            ValueKind::Threads => whole(0, THREADS_MAX),
            ValueKind::PerSecond => whole(0, PER_SECOND_MAX),
            ValueKind::Port => text.parse::<u16>().ok().filter(|port| *port > 0).map(Value::from),
            ValueKind::Text => value.as_str().map(Value::from),
            ValueKind::OptionalText => (value.is_null() || value.is_string()).then(|| value.clone()),
            ValueKind::RelativePath => value.as_str().filter(|path| is_relative_path(path)).map(Value::from),
            ValueKind::Seed | ValueKind::OptionalSha256 if value.is_null() => Some(Value::Null),
            ValueKind::Seed => whole(0, i64::MAX.cast_unsigned()),
            ValueKind::Sha256 | ValueKind::OptionalSha256 => {
                value.as_str().filter(|digits| is_sha256(digits)).map(Value::from)
            }
            ValueKind::SharedScript if value.is_null() => Some(Value::Null),
            ValueKind::SharedScript => value.as_str().filter(|name| is_shared_script(name)).map(Value::from),
            ValueKind::Variable if value.is_null() => Some(Value::Null),
            ValueKind::Variable => value.as_str().filter(|name| is_variable_name(name)).map(Value::from),
            ValueKind::Size if value.is_null() => Some(Value::Null),
            // Some programs read 0 as no limit and others do not, so only null means no limit.
            ValueKind::Size => parse_bytes(text).filter(|bytes| *bytes > 0).map(Value::from),
            ValueKind::OneOrTwo if value.is_null() => Some(Value::Null),
            ValueKind::OneOrTwo => whole(1, 2),
            ValueKind::Flops | ValueKind::OptionalFlops => (!value.is_null()).then(|| Value::from(text)),
            ValueKind::OptionalWord(_) if value.is_null() => Some(Value::Null),
            ValueKind::Word(words) | ValueKind::OptionalWord(words) => {
                words.iter().find(|word| word.eq_ignore_ascii_case(text)).map(|word| Value::from(*word))
            }
            _ => None,
        }
    }
}

/// The folder of shared scripts in `scripts/`; no case has this name.
pub const SHARED_SCRIPTS: &str = "lib";
/// Folder in `configs/` with the public keys of maintainers, which is no case.
pub const KEYS_FOLDER: &str = "keys";

/// Returns whether `name` names a shared script: `lib/NAME`, the file scripts/lib/NAME.rhai.
pub fn is_shared_script(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let file = name.strip_prefix(SHARED_SCRIPTS).and_then(|rest| rest.strip_prefix('/'));
    file.is_some_and(|name| !name.is_empty() && name.len() <= 64 && name.chars().all(allowed))
}

/// Returns whether each name in a path begins with at most one dot, so that the path stays below its folder.
fn is_relative_path(path: &str) -> bool {
    path.split('/').all(|name| {
        let name = name.strip_prefix('.').unwrap_or(name);
        !name.is_empty() && !name.starts_with('.')
    })
}

fn is_sha256(digits: &str) -> bool {
    digits.len() == 64 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl ConfigKey {
    /// Reads the value of `node` for this key, or returns what is wrong with it.
    ///
    /// # Errors
    /// When the value has another type or is out of range.
    pub fn read(&self, node: &Node) -> Result<Value, Finding> {
        let value = self.kind.read(node).ok_or_else(|| self.wrong_type(node))?;
        match (self.kind, value.as_str()) {
            (ValueKind::Flops | ValueKind::OptionalFlops, Some(expression)) => {
                parse_flops(expression).map(|_| value).map_err(|error| {
                    let hint = "write numbers joined by `*` and `+`, such as `4.12e9` or `2*512*0.33e9`";
                    Finding::unplaced(format!("`flops`: {error}")).with_hint(hint)
                })
            }
            _ => Ok(value),
        }
    }

    /// Returns the part of `node` to which an error refers: the first invalid entry of a mapping, or else `node`
    /// itself.
    pub(super) fn refused_part<'n>(&self, node: &'n Node) -> &'n Node {
        let Content::Map(entries) = &node.content else { return node };
        let refused = |(name, entry): &(&String, &Node)| match self.kind {
            ValueKind::Targets => !is_target(name, entry),
            ValueKind::Limits => check_agreement_limits(name, entry).is_err(),
            _ => false,
        };
        entries.iter().find(refused).map_or(node, |(_, entry)| entry)
    }

    fn wrong_type(&self, node: &Node) -> Finding {
        let of_entry = match (self.kind, &node.content) {
            (ValueKind::Targets, Content::Map(entries)) => {
                entries.iter().find_map(|(metric, entry)| check_target(self.name, metric, entry).err())
            }
            (ValueKind::Limits, Content::Map(entries)) => {
                entries.iter().find_map(|(precision, entry)| check_agreement_limits(precision, entry).err())
            }
            (ValueKind::Switches, _) => check_switches(node).err(),
            (ValueKind::Scenario, _) => read_scenario(node).err(),
            _ => None,
        };
        of_entry.unwrap_or_else(|| self.kind.refused(self.name, node))
    }
}

impl ValueKind {
    /// Returns the error about a value of `key` that this type does not accept.
    pub(super) fn refused(self, key: &str, node: &Node) -> Finding {
        let expected = match self {
            ValueKind::Word(words) | ValueKind::OptionalWord(words) => list_alternatives(words),
            _ => self.expected().to_owned(),
        };
        Finding::unplaced(format!("`{key}` must be {expected}, not {}", self.describe_refused(node)))
    }

    /// Describes a refused value; of a list or a mapping of texts, the first part that is not a text.
    fn describe_refused(self, node: &Node) -> String {
        let is_refused = |part: &Node| ValueKind::Text.read(part).is_none();
        match (self, &node.content) {
            (ValueKind::TextList | ValueKind::NonEmptyTextList, Content::List(items)) => {
                let refused = items.iter().position(is_refused);
                refused.map(|at| format!("{} (element {})", describe_node(&items[at]), at + 1))
            }
            (ValueKind::TextMap, Content::Map(entries)) => {
                let refused = entries.iter().find(|(_, part)| is_refused(part));
                refused.map(|(key, part)| format!("{} (of `{key}`)", describe_node(part)))
            }
            _ => None,
        }
        .unwrap_or_else(|| describe_node(node))
    }
}

/// Returns the default values of a table of keys.
pub(super) fn defaults(keys: &[ConfigKey]) -> Values {
    keys.iter()
        .filter_map(|key| {
            let node = yaml::parse(key.default?).ok()?;
            Some((key.name.to_owned(), Sourced::new(key.read(&node).ok()?, Origin::Default)))
        })
        .collect()
}

/// Reads the values of a file with a fixed set of keys. Unknown keys, missing keys and wrong types become findings.
pub(super) fn read_keys(keys: &[ConfigKey], file: &ConfigFile, findings: &mut Vec<Finding>) -> Values {
    let mut values = Values::new();
    for (name, node) in &file.entries {
        let Some(key) = keys.iter().find(|key| key.name == name) else {
            findings.push(unknown_key(keys, name).at(file.origin(node)));
            continue;
        };
        if let Some(value) = read_key(key, node, file, findings) {
            values.insert(name.clone(), value);
        }
    }
    for key in keys.iter().filter(|key| key.default.is_none() && !file.entries.contains_key(key.name)) {
        findings.push(missing_key(key.name, key.about).at(file.top()));
    }
    values
}

/// Reads the value of one key of a file. A value that does not fit becomes a finding.
pub(super) fn read_key(
    key: &ConfigKey,
    node: &Node,
    file: &ConfigFile,
    findings: &mut Vec<Finding>,
) -> Option<Sourced<Value>> {
    let place = || file.origin(key.refused_part(node));
    let value = key.read(node).map_err(|finding| findings.push(finding.at(place()))).ok()?;
    Some(Sourced::new(value, file.origin(node)))
}

fn unknown_key(keys: &[ConfigKey], name: &str) -> Finding {
    let names = || keys.iter().map(|key| key.name);
    let message = format!("unknown key `{name}`{}", nearest_note(nearest(name, names())));
    Finding::unplaced(message).with_hint(format!("known keys: {}", list_names(names())))
}

#[cfg(test)]
mod tests {
    use super::super::{PARAMETERS, SETTINGS, SITE, TRAINING_SETTINGS};
    use super::*;
    use serde_json::json;

    fn read(kind: ValueKind, text: &str) -> Option<Value> {
        kind.read(&yaml::parse(text).unwrap())
    }

    #[test]
    fn every_key_is_documented_and_its_default_has_the_right_type() {
        for keys in [SITE, SETTINGS, TRAINING_SETTINGS, PARAMETERS] {
            for key in keys {
                assert!(!key.about.is_empty(), "{}", key.name);
                assert_eq!(keys.iter().filter(|other| other.name == key.name).count(), 1, "{}", key.name);
            }
            let with_default = keys.iter().filter(|key| key.default.is_some()).count();
            assert_eq!(defaults(keys).len(), with_default);
        }
    }

    #[test]
    fn flags_are_read_as_pyyaml_reads_them() {
        for (text, flag) in [("true", true), ("True", true), ("yes", true), ("off", false), ("NO", false)] {
            assert_eq!(read(ValueKind::Flag, text), Some(json!(flag)), "{text}");
        }
        assert_eq!(read(ValueKind::Flag, "\"true\""), None);
        assert_eq!(read(ValueKind::Flag, "1"), None);
    }

    #[test]
    fn numbers_ports_and_sizes_are_bounded() {
        assert_eq!(read(ValueKind::Count, "0"), None);
        assert_eq!(read(ValueKind::Count, "4294967296"), None);
        assert_eq!(read(ValueKind::Count, "\"8\""), None);
        assert_eq!(
            (read(ValueKind::OptionalCount, "null"), read(ValueKind::OptionalCount, "0")),
            (Some(json!(null)), None)
        );
        assert_eq!(read(ValueKind::PositiveNumber, "3.5e-4"), Some(json!(3.5e-4)));
        assert_eq!(
            (read(ValueKind::PositiveNumber, "1"), read(ValueKind::PositiveNumber, "0")),
            (Some(json!(1.0)), None)
        );
        assert_eq!((read(ValueKind::PositiveNumber, "-1"), read(ValueKind::PositiveNumber, "\"1\"")), (None, None));
        assert_eq!(read(ValueKind::WholeNumber, "0"), Some(json!(0)));
        assert_eq!(read(ValueKind::WholeNumber, "-1"), None);
        assert_eq!(read(ValueKind::Threads, "0"), Some(json!(0)));
        assert_eq!(read(ValueKind::Threads, &THREADS_MAX.to_string()), Some(json!(THREADS_MAX)));
        assert_eq!(read(ValueKind::Threads, &(THREADS_MAX + 1).to_string()), None);
        assert_eq!(read(ValueKind::PerSecond, "10"), Some(json!(10)));
        assert_eq!((read(ValueKind::PerSecond, "11"), read(ValueKind::PerSecond, "null")), (None, None));
        assert!(ValueKind::PerSecond.expected().ends_with(&PER_SECOND_MAX.to_string()));
        assert!(ValueKind::Threads.expected().ends_with(&THREADS_MAX.to_string()));
        assert_eq!(read(ValueKind::Port, "\"22\""), Some(json!(22)));
        assert_eq!(read(ValueKind::Port, "22"), Some(json!(22)));
        assert_eq!(read(ValueKind::Port, "65536"), None);
        assert_eq!(read(ValueKind::Size, "32G"), Some(json!(32_u64 << 30)));
        assert_eq!(read(ValueKind::Size, "1024"), Some(json!(1024)));
        assert_eq!(read(ValueKind::Size, "99999999999999T"), None);
        assert_eq!(read(ValueKind::Size, "lots"), None);
        assert_eq!((read(ValueKind::Size, "0"), read(ValueKind::Size, "0G")), (None, None));
    }

    #[test]
    fn flops_may_be_a_string_a_whole_number_or_a_real_number() {
        for text in ["4.12e9", "\"4.12e9\"", "4120000000", "2*512*0.33e9"] {
            assert!(read(ValueKind::Flops, text).is_some_and(|value| value.is_string()), "{text}");
        }
        assert_eq!(read(ValueKind::Flops, "null"), None);
        assert_eq!(read(ValueKind::OptionalFlops, "null"), Some(json!(null)));
        assert_eq!(read(ValueKind::OptionalFlops, "4.12e9"), Some(json!("4.12e9")));
    }
}
