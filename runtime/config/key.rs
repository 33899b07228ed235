//! Keys of a file with fixed keys: name, type, default, and what it is for.

use serde_json::Value;

use super::entries::{found, limits, target};
use super::file::File;
use super::yaml::{self, Content, Node};
use super::{ConfigProblem, Finding, Origin, Sourced, Values, flops, known, nearest};

/// Threads that may be asked for: more than a machine of today has, and still started in less than a second.
pub const THREADS_MAX: u64 = 1024;

/// A key of host.yaml, configurations.yaml or parameters.yaml.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name, as FlagPerf has it.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// The default, as YAML; `None` when the key must be given.
    pub default: Option<&'static str>,
    /// What it is for, in one line.
    pub about: &'static str,
    /// Who may set it.
    pub owner: Owner,
}

/// Who may set a key in a file. `--set` may set what belongs to a case, as a departure from the standard configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The user of a site, in host.yaml.
    Site,
    /// The author of a case alone: it says what is measured and by which rules, the same for every vendor.
    Case,
    /// The author of a case; a vendor's overlay may change it.
    CaseOrVendor,
}

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`; `yes`, `no`, `on` and `off` too, as PyYAML reads them.
    Flag,
    /// A whole number from 1.
    Count,
    /// A whole number from 0.
    Whole,
    /// Threads: a whole number from 0 to [`THREADS_MAX`].
    Threads,
    /// What random values begin with: a whole number that a script's `i64` holds.
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
    /// Bytes: a number, or text such as `32G`; null is no limit.
    Size,
    /// A list of texts, at least one.
    Texts,
    /// A list of texts, perhaps empty.
    Names,
    /// Keys with texts.
    Map,
    /// Metrics with the least value that each must reach.
    Targets,
    /// Limits of agreement by precision.
    Limits,
    /// A `flops` expression.
    Flops,
    /// One of a few words, any letter case.
    Word(&'static [&'static str]),
}

impl Kind {
    /// What it takes, for a message.
    pub const fn expects(self) -> &'static str {
        match self {
            Kind::Flag => "true or false",
            Kind::Count => "a whole number from 1 to 4294967295",
            Kind::Whole => "a whole number from 0 to 4294967295",
            Kind::Threads => "a whole number from 0 to 1024",
            Kind::Seed => "a whole number from 0 to 9223372036854775807",
            Kind::Port => "a port from 1 to 65535",
            Kind::Ports => "a list of ports from 1 to 65535",
            Kind::Text => "a text",
            Kind::OptionalText => "a text or null",
            Kind::Variable => "the name of an environment variable, or null",
            Kind::Size => "a number of bytes from 1 such as `32G`, or null",
            Kind::Texts => "a list of texts, at least one",
            Kind::Names => "a list of texts such as `[head, norm]`",
            Kind::Map => "keys with texts",
            Kind::Targets => "metrics with the least value of each, such as `{top1: 0.76}`",
            Kind::Limits => "limits by precision, such as `{fp16: {relative_l2: 0.05}}`",
            Kind::Flops => "an expression such as `4.12e9` or `2*512*0.33e9`",
            Kind::Word(_) => "one of the words that it knows",
        }
    }

    /// The typed value of `node`; `None` when it is of another type.
    pub fn read(self, node: &Node) -> Option<Value> {
        match (self, &node.content) {
            (Kind::Texts, Content::List(items)) if !items.is_empty() => {
                items.iter().map(|i| Kind::Text.read(i)).collect()
            }
            (Kind::Names, Content::List(items)) => items.iter().map(|i| Kind::Text.read(i)).collect(),
            (Kind::Ports, Content::List(items)) => items.iter().map(|i| Kind::Port.read(i)).collect(),
            (Kind::Map, Content::Map(entries)) => {
                entries.iter().map(|(key, node)| Some((key.clone(), Kind::Text.read(node)?))).collect()
            }
            (Kind::Targets, Content::Map(entries)) => {
                entries.iter().map(|(metric, n)| target(metric, n).ok().map(|_| (metric.clone(), n.value()))).collect()
            }
            (Kind::Limits, Content::Map(entries)) => {
                entries.iter().all(|(precision, n)| limits(precision, n).is_ok()).then(|| node.value())
            }
            (_, Content::Scalar { text, plain, value }) => self.read_scalar(text, *plain, value),
            _ => None,
        }
    }

    fn read_scalar(self, text: &str, plain: bool, value: &Value) -> Option<Value> {
        let whole = |from: u64, to: u64| value.as_u64().filter(|n| (from..=to).contains(n)).map(Value::from);
        match self {
            Kind::Flag if plain => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Some(Value::Bool(true)),
                "false" | "no" | "off" => Some(Value::Bool(false)),
                _ => None,
            },
            Kind::Count => whole(1, u32::MAX.into()),
            Kind::Whole => whole(0, u32::MAX.into()),
            Kind::Threads => whole(0, THREADS_MAX),
            Kind::Seed => whole(0, i64::MAX.cast_unsigned()),
            Kind::Port => text.parse::<u16>().ok().filter(|port| *port > 0).map(Value::from),
            Kind::Text => value.as_str().map(Value::from),
            Kind::OptionalText => (value.is_null() || value.is_string()).then(|| value.clone()),
            Kind::Variable if value.is_null() => Some(Value::Null),
            Kind::Variable => value.as_str().filter(|name| is_variable(name)).map(Value::from),
            Kind::Size if value.is_null() => Some(Value::Null),
            // Some programs take 0 for no limit, and some do not: null says it.
            Kind::Size => bytes(text).filter(|bytes| *bytes > 0).map(Value::from),
            Kind::Flops => (!value.is_null()).then(|| Value::from(text)),
            Kind::Word(words) => {
                words.iter().find(|word| word.eq_ignore_ascii_case(text)).map(|word| Value::from(*word))
            }
            _ => None,
        }
    }
}

pub(super) fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Bytes of `32G`, `512m`, `1024`: powers of 1024, as Docker reads them.
fn bytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        "t" | "tb" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

impl Key {
    /// The value of `node` for this key, or what is wrong with it.
    pub(super) fn read(&self, node: &Node) -> Result<Value, ConfigProblem> {
        let value = self.kind.read(node).ok_or_else(|| self.type_problem(node))?;
        match (self.kind, value.as_str()) {
            (Kind::Flops, Some(expression)) => flops(expression).map(|_| value).map_err(ConfigProblem::Flops),
            _ => Ok(value),
        }
    }

    /// The part of `node` that a refusal is about: an entry of it that is refused by itself, else `node`.
    pub(super) fn refused_part<'n>(&self, node: &'n Node) -> &'n Node {
        let Content::Map(entries) = &node.content else { return node };
        let refused = |(name, entry): &(&String, &Node)| match self.kind {
            Kind::Targets => target(name, entry).is_err(),
            Kind::Limits => limits(name, entry).is_err(),
            _ => false,
        };
        entries.iter().find(refused).map_or(node, |(_, entry)| entry)
    }

    fn type_problem(&self, node: &Node) -> ConfigProblem {
        let found = found(node);
        match (self.kind, &node.content) {
            (Kind::Word(words), _) => ConfigProblem::Word { key: self.name.to_owned(), words: words.join(", "), found },
            (Kind::Targets, Content::Map(entries)) => entries
                .iter()
                .find_map(|(metric, entry)| target(metric, entry).err())
                .unwrap_or(ConfigProblem::Type { key: self.name.to_owned(), expects: self.kind.expects(), found }),
            (Kind::Limits, Content::Map(entries)) => entries
                .iter()
                .find_map(|(precision, entry)| limits(precision, entry).err())
                .unwrap_or(ConfigProblem::Type { key: self.name.to_owned(), expects: self.kind.expects(), found }),
            (kind, _) => ConfigProblem::Type { key: self.name.to_owned(), expects: kind.expects(), found },
        }
    }
}

/// The defaults of a table of keys.
pub(super) fn defaults(keys: &[Key]) -> Values {
    keys.iter()
        .filter_map(|key| {
            let node = yaml::parse(key.default?).ok()?;
            Some((key.name.to_owned(), Sourced::new(key.read(&node).ok()?, Origin::Default)))
        })
        .collect()
}

/// The values of a file with fixed keys; unknown keys and wrong types become findings.
pub(super) fn read_keys(keys: &[Key], file: &File, findings: &mut Vec<Finding>) -> Values {
    let mut values = Values::new();
    for (name, node) in &file.entries {
        let Some(key) = keys.iter().find(|key| key.name == name) else {
            findings.push(Finding::error(file.origin(node), unknown(keys, name)));
            continue;
        };
        if let Some(value) = read_key(key, node, file, findings) {
            values.insert(name.clone(), value);
        }
    }
    for key in keys.iter().filter(|key| key.default.is_none() && !file.entries.contains_key(key.name)) {
        findings.push(Finding::error(file.top(), ConfigProblem::Missing { key: key.name, about: key.about }));
    }
    values
}

/// The value of a key in a file; one that does not fit becomes a finding.
pub(super) fn read_key(key: &Key, node: &Node, file: &File, findings: &mut Vec<Finding>) -> Option<Sourced<Value>> {
    let refused = |problem| Finding::error(file.origin(key.refused_part(node)), problem);
    let value = key.read(node).map_err(|problem| findings.push(refused(problem))).ok()?;
    Some(Sourced::new(value, file.origin(node)))
}

fn unknown(keys: &[Key], name: &str) -> ConfigProblem {
    let names = || keys.iter().map(|key| key.name);
    ConfigProblem::UnknownKey {
        key: name.to_owned(),
        nearest: nearest(name, names()).map(str::to_owned),
        known: known(names()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PARAMETERS, SETTINGS, SITE};
    use super::*;
    use serde_json::json;

    fn read(kind: Kind, text: &str) -> Option<Value> {
        kind.read(&yaml::parse(text).unwrap())
    }

    #[test]
    fn every_key_is_documented_and_its_default_is_of_its_type() {
        for keys in [SITE, SETTINGS, PARAMETERS] {
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
            assert_eq!(read(Kind::Flag, text), Some(json!(flag)), "{text}");
        }
        assert_eq!(read(Kind::Flag, "\"true\""), None);
        assert_eq!(read(Kind::Flag, "1"), None);
    }

    #[test]
    fn numbers_ports_and_sizes_have_bounds() {
        assert_eq!(read(Kind::Count, "0"), None);
        assert_eq!(read(Kind::Count, "4294967296"), None);
        assert_eq!(read(Kind::Count, "\"8\""), None);
        assert_eq!(read(Kind::Whole, "0"), Some(json!(0)));
        assert_eq!(read(Kind::Whole, "-1"), None);
        assert_eq!(read(Kind::Threads, "0"), Some(json!(0)));
        assert_eq!(read(Kind::Threads, &THREADS_MAX.to_string()), Some(json!(THREADS_MAX)));
        assert_eq!(read(Kind::Threads, &(THREADS_MAX + 1).to_string()), None);
        assert!(Kind::Threads.expects().ends_with(&THREADS_MAX.to_string()));
        assert_eq!(read(Kind::Port, "\"22\""), Some(json!(22)));
        assert_eq!(read(Kind::Port, "22"), Some(json!(22)));
        assert_eq!(read(Kind::Port, "65536"), None);
        assert_eq!(read(Kind::Size, "32G"), Some(json!(32_u64 << 30)));
        assert_eq!(read(Kind::Size, "1024"), Some(json!(1024)));
        assert_eq!(read(Kind::Size, "99999999999999T"), None);
        assert_eq!(read(Kind::Size, "lots"), None);
        assert_eq!((read(Kind::Size, "0"), read(Kind::Size, "0G")), (None, None));
    }

    #[test]
    fn flops_may_be_text_a_whole_number_or_a_real_one() {
        for text in ["4.12e9", "\"4.12e9\"", "4120000000", "2*512*0.33e9"] {
            assert!(read(Kind::Flops, text).is_some_and(|value| value.is_string()), "{text}");
        }
        assert_eq!(read(Kind::Flops, "null"), None);
    }
}
