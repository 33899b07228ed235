//! Reads a node's attributes as the types that an operator requires, and records which ones were read.

use std::cell::RefCell;
use std::collections::HashSet;

use indexmap::IndexMap;

use super::OpError;
use flagperf_onnx::{Attribute, Tensor};

/// The attributes of one node.
#[derive(Clone, Copy)]
pub(super) struct Attributes<'a> {
    all: &'a IndexMap<String, Attribute>,
    read: &'a RefCell<HashSet<String>>,
}

impl<'a> Attributes<'a> {
    /// Returns the attributes of a node. The names of those that are read are added to `read`.
    pub fn new(all: &'a IndexMap<String, Attribute>, read: &'a RefCell<HashSet<String>>) -> Self {
        Attributes { all, read }
    }

    /// Returns whether the node has the attribute.
    pub fn contains(self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Records that an attribute is read elsewhere.
    pub fn mark(self, name: &str) {
        self.read.borrow_mut().insert(name.to_owned());
    }

    /// Returns the name of an attribute that nobody has read, except those in `ignored`.
    pub fn unread(self, ignored: impl Fn(&str) -> bool) -> Option<&'a str> {
        let read = self.read.borrow();
        self.all.keys().map(String::as_str).find(|name| !read.contains(*name) && !ignored(name))
    }

    /// Returns the attribute as converted by `read`, or `default` if it is missing.
    fn read<T>(
        self,
        name: &str,
        default: T,
        kind: &str,
        read: impl Fn(&'a Attribute) -> Option<T>,
    ) -> Result<T, OpError> {
        match self.all.get(name) {
            None => Ok(default),
            Some(attribute) => {
                self.read.borrow_mut().insert(name.to_owned());
                read(attribute).ok_or_else(|| OpError::invalid_operands(format!("attribute `{name}` is not {kind}")))
            }
        }
    }

    pub fn int(self, name: &str, default: i64) -> Result<i64, OpError> {
        self.read(name, default, "an integer", |attribute| match attribute {
            Attribute::Int(value) => Some(*value),
            _ => None,
        })
    }

    pub fn flag(self, name: &str, default: bool) -> Result<bool, OpError> {
        self.int(name, i64::from(default)).map(|value| value != 0)
    }

    pub fn float(self, name: &str, default: f64) -> Result<f64, OpError> {
        self.read(name, default, "a number", |attribute| match attribute {
            Attribute::Float(value) => Some(f64::from(*value)),
            _ => None,
        })
    }

    pub fn text(self, name: &str, default: &'a str) -> Result<&'a str, OpError> {
        self.read(name, default, "a string", |attribute| match attribute {
            Attribute::String(value) => Some(value.as_str()),
            _ => None,
        })
    }

    pub fn tensor(self, name: &str) -> Result<Option<&'a Tensor>, OpError> {
        self.read(name, None, "a tensor", |attribute| match attribute {
            Attribute::Tensor(value) => Some(Some(value)),
            _ => None,
        })
    }

    /// Reads a list of integers; a single integer is a list of one.
    pub fn ints(self, name: &str) -> Result<Option<Vec<i64>>, OpError> {
        self.read(name, None, "a list of integers", |attribute| match attribute {
            Attribute::Ints(values) => Some(Some(values.clone())),
            Attribute::Int(value) => Some(Some(vec![*value])),
            _ => None,
        })
    }

    /// Reads a list of numbers.
    pub fn floats(self, name: &str) -> Result<Option<Vec<f64>>, OpError> {
        self.read(name, None, "a list of numbers", |attribute| match attribute {
            Attribute::Floats(values) => Some(Some(values.iter().copied().map(f64::from).collect())),
            _ => None,
        })
    }

    /// Reads a list of strings.
    pub fn texts(self, name: &str) -> Result<Option<Vec<String>>, OpError> {
        self.read(name, None, "a list of strings", |attribute| match attribute {
            Attribute::Strings(values) => Some(Some(values.clone())),
            _ => None,
        })
    }

    /// Reads an integer of at least 1, if it is present.
    pub fn count(self, name: &str) -> Result<Option<usize>, OpError> {
        Ok(self.counts(name)?.and_then(|counts| counts.first().copied()))
    }

    /// Reads a list of integers, each at least 0.
    pub fn sizes(self, name: &str) -> Result<Option<Vec<usize>>, OpError> {
        self.bounded(name, 0)
    }

    /// Reads a list of integers, each at least 1.
    pub fn counts(self, name: &str) -> Result<Option<Vec<usize>>, OpError> {
        self.bounded(name, 1)
    }

    fn bounded(self, name: &str, least: usize) -> Result<Option<Vec<usize>>, OpError> {
        let Some(values) = self.ints(name)? else { return Ok(None) };
        let size = |value: &i64| usize::try_from(*value).ok().filter(|size| *size >= least);
        match values.iter().map(size).collect() {
            Some(sizes) => Ok(Some(sizes)),
            None => Err(OpError::unsupported(format!(
                "attribute `{name}` is {values:?} (each value must be at least {least})"
            ))),
        }
    }
}
