//! The sizes of a graph's named dimensions.

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use super::{Dim, TensorSpec};

/// The sizes of named dimensions: a name stands for the same size everywhere in a graph.
#[derive(Clone, Debug, Default)]
pub struct NamedSizes<'a>(IndexMap<&'a str, usize, RandomState>);

/// A named dimension that has two sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeConflict<'a> {
    /// The name of the dimension.
    pub name: &'a str,
    /// The size that it had first.
    pub bound: usize,
    /// The other size.
    pub actual: usize,
}

impl<'a> NamedSizes<'a> {
    /// Adds the sizes that a tensor of this shape gives to the named dimensions of its specification.
    ///
    /// # Errors
    /// The first dimension that already has another size; later dimensions are then not added.
    pub fn bind(&mut self, spec: &'a TensorSpec, shape: &[usize]) -> Result<(), SizeConflict<'a>> {
        for (dim, actual) in spec.dims.iter().zip(shape.iter().copied()) {
            if let Dim::Named(name) = dim {
                self.bind_name(name, actual)?;
            }
        }
        Ok(())
    }

    /// Adds the size of one name.
    ///
    /// # Errors
    /// When the name already has another size.
    pub fn bind_name(&mut self, name: &'a str, actual: usize) -> Result<(), SizeConflict<'a>> {
        let bound = *self.0.entry(name).or_insert(actual);
        if bound == actual { Ok(()) } else { Err(SizeConflict { name, bound, actual }) }
    }

    /// Returns the names and their sizes, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, usize)> {
        self.0.iter().map(|(name, size)| (*name, *size))
    }

    /// Returns the size of a dimension, if it is fixed or its name has one.
    pub fn size(&self, dim: &Dim) -> Option<usize> {
        match dim {
            Dim::Fixed(size) => Some(*size),
            Dim::Named(name) => self.0.get(name.as_str()).copied(),
            Dim::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_size_everywhere() {
        let specs: [TensorSpec; 2] = ["N,3,M,?,f32", "M,N,i64"].map(|text| text.parse().unwrap());
        let mut sizes = NamedSizes::default();
        assert_eq!(sizes.bind(&specs[0], &[2, 3, 5, 7]), Ok(()));
        let dims = ["N", "M", "K", "?", "9"].map(|text| sizes.size(&text.parse().unwrap()));
        assert_eq!(dims, [Some(2), Some(5), None, None, Some(9)]);
        assert_eq!(sizes.bind(&specs[1], &[5, 4]), Err(SizeConflict { name: "N", bound: 2, actual: 4 }));
        assert_eq!(sizes.bind(&specs[1], &[5, 2]), Ok(()));
    }
}
