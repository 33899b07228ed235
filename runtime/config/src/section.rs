//! Files that consist of sections, such as vendor.yaml and dataset.yaml: tables of their keys, and a check of a file by
//! its table. A file with other keys, such as one for another version of flagperf, is refused with the key and its line.

use indexmap::IndexMap;

use super::entries::describe_node;
use super::file::ConfigFile;
use super::finding::{missing_key, nearest_note};
use super::yaml::{Content, Node};
use super::{Finding, Origin, ValueKind, list_names, nearest};

/// A key of a file or of one of its sections.
#[derive(Clone, Copy, Debug)]
pub struct SectionKey {
    /// Name.
    pub name: &'static str,
    /// Type of its value.
    pub kind: SectionKind,
    /// Whether the key must be given.
    pub is_required: bool,
    /// One-line description.
    pub about: &'static str,
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum SectionKind {
    /// A single value or a list.
    Value(ValueKind),
    /// `true` or `false`.
    Boolean,
    /// A number of bytes, or null.
    Bytes,
    /// A rate per second, or null.
    Rate,
    /// Rates per second, by precision.
    Rates,
    /// Options of an engine with their defaults: values of any type.
    Options,
    /// A section.
    Section(&'static [SectionKey]),
    /// Sections by name.
    Sections(&'static [SectionKey]),
    /// A list of sections.
    List(&'static [SectionKey]),
}

/// A required key.
pub(super) const fn required(name: &'static str, kind: SectionKind, about: &'static str) -> SectionKey {
    SectionKey { name, kind, is_required: true, about }
}

/// A key that may be left out.
pub(super) const fn optional(name: &'static str, kind: SectionKind, about: &'static str) -> SectionKey {
    SectionKey { name, kind, is_required: false, about }
}

/// The types of most keys.
pub(super) const TEXT: SectionKind = SectionKind::Value(ValueKind::Text);
pub(super) const OPTIONAL_TEXT: SectionKind = SectionKind::Value(ValueKind::OptionalText);
pub(super) const TEXTS: SectionKind = SectionKind::Value(ValueKind::TextList);
pub(super) const TEXT_MAP: SectionKind = SectionKind::Value(ValueKind::TextMap);

/// Checks the keys of a file and of its sections, and the types of their values.
pub(super) fn check_keys(file: &ConfigFile, keys: &'static [SectionKey]) -> Result<(), Finding> {
    Checker { file }.check_section(keys, &file.entries, "", file.top())
}

/// Checks the sections of a file.
struct Checker<'f> {
    file: &'f ConfigFile,
}

impl Checker<'_> {
    /// Checks the keys of the section at `path`, which begins at `origin`.
    fn check_section(
        &self,
        keys: &'static [SectionKey],
        entries: &IndexMap<String, Node>,
        path: &str,
        origin: Origin,
    ) -> Result<(), Finding> {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for (name, node) in entries {
            let key = keys.iter().find(|key| key.name == name);
            let unknown = || unknown_key(keys, name, &below(name)).at(self.file.origin(node));
            self.check_value(key.ok_or_else(unknown)?.kind, node, &below(name))?;
        }
        let missing = keys.iter().find(|key| key.is_required && !entries.contains_key(key.name));
        missing.map_or(Ok(()), |key| Err(missing_key(&below(key.name), key.about).at(origin)))
    }

    /// Checks the value of the key at `path`.
    fn check_value(&self, kind: SectionKind, node: &Node, path: &str) -> Result<(), Finding> {
        match (kind, &node.content) {
            (SectionKind::Section(keys), Content::Map(entries)) => {
                self.check_section(keys, entries, path, self.file.origin(node))
            }
            (SectionKind::Sections(keys), Content::Map(sections)) => sections.iter().try_for_each(|(name, section)| {
                self.check_value(SectionKind::Section(keys), section, &format!("{path}.{name}"))
            }),
            (SectionKind::List(keys), Content::List(items)) => {
                items.iter().enumerate().try_for_each(|(index, item)| {
                    self.check_value(SectionKind::Section(keys), item, &format!("{path}[{index}]"))
                })
            }
            (SectionKind::Rates, Content::Map(rates)) => rates
                .iter()
                .try_for_each(|(name, rate)| self.check_value(SectionKind::Rate, rate, &format!("{path}.{name}"))),
            (SectionKind::Options, Content::Map(_)) => Ok(()),
            (SectionKind::Value(value), _) if value.read(node).is_some() => Ok(()),
            (SectionKind::Boolean, _) if node.value().is_boolean() => Ok(()),
            (SectionKind::Bytes, _) if node.is_null() || node.value().is_u64() => Ok(()),
            (SectionKind::Rate, _) if node.is_null() || node.value().is_number() => Ok(()),
            _ => Err(wrong_type(kind, node, path).at(self.file.origin(node))),
        }
    }
}

fn wrong_type(kind: SectionKind, node: &Node, path: &str) -> Finding {
    match kind {
        SectionKind::Value(value) => value.refused(path, node),
        _ => Finding::unplaced(format!("`{path}` must be {}, not {}", kind.expected(), describe_node(node))),
    }
}

impl SectionKind {
    /// Describes the expected value, for a message.
    pub const fn expected(self) -> &'static str {
        match self {
            SectionKind::Value(kind) => kind.expected(),
            SectionKind::Boolean => "true or false",
            SectionKind::Bytes => "a whole number of bytes, or null",
            SectionKind::Rate => "a number, or null",
            SectionKind::Rates => "rates by precision, such as `{f16: 989.4e12}`",
            SectionKind::Options => "a mapping of options to their defaults",
            SectionKind::Section(_) => "a mapping of keys to values",
            SectionKind::Sections(_) => "a mapping of names to mappings",
            SectionKind::List(_) => "a list of mappings",
        }
    }
}

fn unknown_key(keys: &[SectionKey], name: &str, path: &str) -> Finding {
    let names = || keys.iter().map(|key| key.name);
    let hint = format!("known keys: {}; was the file written for another version of flagperf?", list_names(names()));
    Finding::unplaced(format!("unknown key `{path}`{}", nearest_note(nearest(name, names())))).with_hint(hint)
}
