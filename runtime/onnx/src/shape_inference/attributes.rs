//! Reads the attributes of a node by type.
//!
//! Knows nothing about operators.

use indexmap::IndexMap;

use super::InferError;
use crate::{Attribute, Tensor};

/// The attributes of one node.
#[derive(Clone, Copy)]
pub struct Attributes<'a>(pub &'a IndexMap<String, Attribute>);

impl<'a> Attributes<'a> {
    /// Reads an integer; `None` if the node does not have the attribute.
    ///
    /// # Errors
    /// When the attribute has another type.
    pub fn int(self, name: &str) -> Result<Option<i64>, InferError> {
        self.read(name, "an integer", |attribute| match attribute {
            Attribute::Int(value) => Some(*value),
            _ => None,
        })
    }

    /// Reads a list of integers; `None` if the node does not have the attribute.
    ///
    /// # Errors
    /// When the attribute has another type.
    pub fn ints(self, name: &str) -> Result<Option<&'a [i64]>, InferError> {
        self.read(name, "a list of integers", |attribute| match attribute {
            Attribute::Ints(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    /// Reads a string; `None` if the node does not have the attribute.
    ///
    /// # Errors
    /// When the attribute has another type.
    pub fn string(self, name: &str) -> Result<Option<&'a str>, InferError> {
        self.read(name, "a string", |attribute| match attribute {
            Attribute::String(value) => Some(value.as_str()),
            _ => None,
        })
    }

    /// Reads a tensor; `None` if the node does not have the attribute.
    ///
    /// # Errors
    /// When the attribute has another type.
    pub fn tensor(self, name: &str) -> Result<Option<&'a Tensor>, InferError> {
        self.read(name, "a tensor", |attribute| match attribute {
            Attribute::Tensor(value) => Some(value),
            _ => None,
        })
    }

    /// Reads an integer that fits in 32 bits, such as an axis.
    pub fn small_int(self, name: &str) -> Result<Option<i32>, InferError> {
        self.int(name)?.map(|value| i32::try_from(value).map_err(|_| InferError::Value)).transpose()
    }

    /// Reads the number of groups of a convolution; 1 by default.
    pub fn groups(self) -> Result<usize, InferError> {
        let groups = self.int("group")?.unwrap_or(1);
        u16::try_from(groups).ok().filter(|groups| *groups > 0).map(usize::from).ok_or(InferError::Value)
    }

    /// Reads a flag: any integer except 0 is true.
    pub fn flag(self, name: &str) -> Result<bool, InferError> {
        Ok(self.int(name)?.unwrap_or(0) != 0)
    }

    /// Reads a list of sizes, all of them non-negative and small enough for symbolic arithmetic.
    pub fn sizes(self, name: &str) -> Result<Option<Vec<usize>>, InferError> {
        let Some(values) = self.ints(name)? else { return Ok(None) };
        let size = |value: &i64| u16::try_from(*value).map(usize::from).map_err(|_| InferError::Value);
        values.iter().map(size).collect::<Result<_, _>>().map(Some)
    }

    fn read<T>(
        self,
        name: &str,
        expected: &'static str,
        convert: impl Fn(&'a Attribute) -> Option<T>,
    ) -> Result<Option<T>, InferError> {
        match self.0.get(name) {
            None => Ok(None),
            Some(attribute) => {
                convert(attribute).map(Some).ok_or_else(|| InferError::Attribute { name: name.to_owned(), expected })
            }
        }
    }
}
