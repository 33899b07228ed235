//! Files that consist of sections, such as vendor.yaml and dataset.yaml. [`section!`] defines a section once: its type, and
//! the table of its keys by which a file is read and its schema is written. A file with other keys, such as one for another
//! version of flagperf, is refused with the key and its line.

use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde_yaml::{Mapping, Value};

use super::entries::describe_node;
use super::file::ConfigFile;
use super::finding::{missing_key, nearest_note};
use super::yaml::{Content, Node};
use super::{Finding, Origin, ValueKind, list_names, nearest};

/// A key of a file or of one of its sections.
#[derive(Clone, Copy, Debug)]
pub struct SectionKey {
    pub name: &'static str,
    pub kind: SectionKind,
    /// The value of a key that is left out, as YAML; `None` for a key that must be given.
    pub default: Option<&'static str>,
    /// One-line description.
    pub about: &'static str,
}

/// Defines the type of a section with `KEYS`, the table of its keys. Each field has a key of the same name, or of the name
/// after `as`, and its documentation describes the key. `own` fields have no key.
macro_rules! section {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $about:literal])+
                $need:ident($($need_argument:expr),+) $field:ident $(as $key:literal)?: $type:ty,
            )+
            $(own { $($(#[$own_meta:meta])* $own_visibility:vis $own:ident: $own_type:ty,)+ })?
        }
    ) => {
        $(#[$meta])*
        #[derive(serde::Deserialize)]
        pub struct $name {
            $($(#[doc = $about])+ $(#[serde(rename = $key)])? pub $field: $type,)+
            $($($(#[$own_meta])* #[serde(skip)] $own_visibility $own: $own_type,)+)?
        }

        impl $name {
            pub const KEYS: &'static [$crate::section::SectionKey] = &[$($crate::section::SectionKey {
                name: $crate::section::key_name!($field $($key)?),
                about: concat!($($about),+).trim_ascii_start(),
                ..$crate::section::$need($($need_argument),+)
            }),+];
        }
    };
}

macro_rules! key_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

pub(super) use {key_name, section};

/// The type of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum SectionKind {
    /// A single value or a list.
    Value(ValueKind),
    /// A list of whole numbers of at least 1.
    Counts,
    /// `true` or `false`.
    Boolean,
    /// A number of bytes, or null.
    Bytes,
    /// A rate per second, or null.
    Rate,
    /// A number.
    Number,
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

pub(super) const fn required(kind: SectionKind) -> SectionKey {
    SectionKey { name: "", kind, default: None, about: "" }
}

pub(super) const fn optional(kind: SectionKind, default: &'static str) -> SectionKey {
    SectionKey { name: "", kind, default: Some(default), about: "" }
}

/// The types of most keys.
pub(super) const TEXT: SectionKind = SectionKind::Value(ValueKind::Text);
pub(super) const OPTIONAL_TEXT: SectionKind = SectionKind::Value(ValueKind::OptionalText);
pub(super) const TEXTS: SectionKind = SectionKind::Value(ValueKind::TextList);
pub(super) const TEXT_MAP: SectionKind = SectionKind::Value(ValueKind::TextMap);

/// Reads a file with the keys of a table.
pub(super) fn read_section<T: DeserializeOwned>(file: &ConfigFile, keys: &'static [SectionKey]) -> Result<T, Finding> {
    let values = Reader { file }.read_keys(keys, &file.entries, "", file.top())?;
    serde_yaml::from_value(values).map_err(|error| Finding::error(file.top(), error.to_string()))
}

/// Reads the sections of a file.
struct Reader<'f> {
    file: &'f ConfigFile,
}

impl Reader<'_> {
    /// Reads the section at `path`, which begins at `origin`. Keys that are left out have their defaults.
    fn read_keys(
        &self,
        keys: &'static [SectionKey],
        entries: &IndexMap<String, Node>,
        path: &str,
        origin: Origin,
    ) -> Result<Value, Finding> {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let mut values = Mapping::new();
        for (name, node) in entries {
            let key = keys.iter().find(|key| key.name == name);
            let unknown = || unknown_key(keys, name, &below(name)).at(self.file.origin(node));
            let value = self.read_value(key.ok_or_else(unknown)?.kind, node, &below(name))?;
            values.insert(name.as_str().into(), value);
        }
        for key in keys.iter().filter(|key| !entries.contains_key(key.name)) {
            let missing = || missing_key(&below(key.name), key.about).at(origin.clone());
            let default = serde_yaml::from_str(key.default.ok_or_else(missing)?).expect("a default is YAML");
            values.insert(key.name.into(), default);
        }
        Ok(Value::Mapping(values))
    }

    /// Reads the value of the key at `path`.
    fn read_value(&self, kind: SectionKind, node: &Node, path: &str) -> Result<Value, Finding> {
        match (kind, &node.content) {
            (SectionKind::Section(keys), Content::Map(entries)) => {
                self.read_keys(keys, entries, path, self.file.origin(node))
            }
            (SectionKind::Sections(keys), Content::Map(entries)) => {
                self.read_each(SectionKind::Section(keys), entries, path)
            }
            (SectionKind::List(keys), Content::List(items)) => {
                let section = SectionKind::Section(keys);
                let item = |(index, item)| self.read_value(section, item, &format!("{path}[{index}]"));
                Ok(Value::Sequence(items.iter().enumerate().map(item).collect::<Result<_, _>>()?))
            }
            (SectionKind::Rates, Content::Map(entries)) => self.read_each(SectionKind::Number, entries, path),
            _ if kind.accepts(node) => Ok(plain(node)),
            _ => Err(wrong_type(kind, node, path).at(self.file.origin(node))),
        }
    }

    fn read_each(&self, kind: SectionKind, entries: &IndexMap<String, Node>, path: &str) -> Result<Value, Finding> {
        let read = |(name, node): (&String, &Node)| {
            Ok((name.as_str().into(), self.read_value(kind, node, &format!("{path}.{name}"))?))
        };
        entries.iter().map(read).collect::<Result<_, _>>().map(Value::Mapping)
    }
}

/// Returns a node as a value whose mappings keep the order of the file.
fn plain(node: &Node) -> Value {
    match &node.content {
        Content::Map(entries) => {
            Value::Mapping(entries.iter().map(|(name, node)| (name.as_str().into(), plain(node))).collect())
        }
        Content::List(items) => Value::Sequence(items.iter().map(plain).collect()),
        Content::Scalar { value, .. } => serde_yaml::to_value(value).expect("a scalar is a value of YAML"),
    }
}

fn wrong_type(kind: SectionKind, node: &Node, path: &str) -> Finding {
    match kind {
        SectionKind::Value(value) => value.refused(path, node),
        _ => Finding::unplaced(format!("`{path}` must be {}, not {}", kind.expected(), describe_node(node))),
    }
}

impl SectionKind {
    /// Returns whether a value without sections has this type.
    fn accepts(self, node: &Node) -> bool {
        let value = node.value();
        match self {
            SectionKind::Value(kind) => kind.read(node).is_some(),
            SectionKind::Counts => matches!(&node.content, Content::List(items)
                if items.iter().all(|item| ValueKind::Count.read(item).is_some())),
            SectionKind::Boolean => value.is_boolean(),
            SectionKind::Bytes => value.is_null() || value.is_u64(),
            SectionKind::Rate => value.is_null() || value.is_number(),
            SectionKind::Number => value.is_number(),
            SectionKind::Options => value.is_object(),
            SectionKind::Rates | SectionKind::Section(_) | SectionKind::Sections(_) | SectionKind::List(_) => false,
        }
    }

    /// Describes the expected value, for a message.
    pub const fn expected(self) -> &'static str {
        match self {
            SectionKind::Value(kind) => kind.expected(),
            SectionKind::Counts => "a list of whole numbers of at least 1",
            SectionKind::Boolean => "true or false",
            SectionKind::Bytes => "a whole number of bytes, or null",
            SectionKind::Rate => "a number, or null",
            SectionKind::Number => "a number",
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
