//! Attributes of a node, read by kind.
//!
//! Knows no operator.

use indexmap::IndexMap;

use super::InferError;
use crate::{Attribute, Tensor};

/// The attributes of one node.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a IndexMap<String, Attribute>);

impl<'a> Attributes<'a> {
    pub(crate) fn int(self, name: &str) -> Result<Option<i64>, InferError> {
        self.read(name, "an integer", |attribute| match attribute {
            Attribute::Int(value) => Some(*value),
            _ => None,
        })
    }

    pub(crate) fn ints(self, name: &str) -> Result<Option<&'a [i64]>, InferError> {
        self.read(name, "a list of integers", |attribute| match attribute {
            Attribute::Ints(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    pub(crate) fn string(self, name: &str) -> Result<Option<&'a str>, InferError> {
        self.read(name, "a string", |attribute| match attribute {
            Attribute::String(value) => Some(value.as_str()),
            _ => None,
        })
    }

    pub(crate) fn tensor(self, name: &str) -> Result<Option<&'a Tensor>, InferError> {
        self.read(name, "a tensor", |attribute| match attribute {
            Attribute::Tensor(value) => Some(value),
            _ => None,
        })
    }

    /// An axis or another small number.
    pub(crate) fn small(self, name: &str) -> Result<Option<i32>, InferError> {
        self.int(name)?.map(|value| i32::try_from(value).map_err(|_| InferError::Value)).transpose()
    }

    /// Groups of a convolution: 1 unless said.
    pub(crate) fn groups(self) -> Result<usize, InferError> {
        let groups = self.int("group")?.unwrap_or(1);
        u16::try_from(groups).ok().filter(|groups| *groups > 0).map(usize::from).ok_or(InferError::Value)
    }

    /// A switch: any number but 0 is on.
    pub(crate) fn flag(self, name: &str) -> Result<bool, InferError> {
        Ok(self.int(name)?.unwrap_or(0) != 0)
    }

    /// Sizes, none of them negative and all small enough for symbolic arithmetic.
    pub(crate) fn sizes(self, name: &str) -> Result<Option<Vec<usize>>, InferError> {
        let Some(values) = self.ints(name)? else { return Ok(None) };
        let size = |value: &i64| u16::try_from(*value).map(usize::from).map_err(|_| InferError::Value);
        values.iter().map(size).collect::<Result<_, _>>().map(Some)
    }

    fn read<T>(
        self,
        name: &str,
        expected: &'static str,
        of: impl Fn(&'a Attribute) -> Option<T>,
    ) -> Result<Option<T>, InferError> {
        match self.0.get(name) {
            None => Ok(None),
            Some(attribute) => {
                of(attribute).map(Some).ok_or_else(|| InferError::Attribute { name: name.to_owned(), expected })
            }
        }
    }
}
