//! The sizes of an operator's dimensions, by the names that FlagPerf gives them.

use indexmap::IndexMap;

use super::operators::Operator;

/// Largest size of a dimension.
const SIZE_MAX: usize = 1 << 40;

/// The size of each named dimension of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes(IndexMap<String, usize>);

/// Sizes that an operator cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The operator has no dimension of this name.
    #[error("operator `{operator}` has no dimension `{name}` (known: {known})")]
    Unknown { operator: &'static str, name: String, known: String },
    /// The size is not possible.
    #[error("dimension `{name}` of operator `{operator}` cannot be {size} (1 to {SIZE_MAX})")]
    Range { operator: &'static str, name: String, size: usize },
}

impl Sizes {
    /// Returns the sizes of an operator: those of FlagPerf, except the ones that are given.
    ///
    /// # Errors
    /// When a given size belongs to no dimension, or is not possible.
    pub fn of(operator: &Operator, given: &IndexMap<String, usize>) -> Result<Sizes, SizeError> {
        let mut sizes: IndexMap<String, usize> =
            operator.sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        for (name, size) in given {
            let Some(own) = sizes.get_mut(name) else {
                let known = operator.sizes.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
                return Err(SizeError::Unknown { operator: operator.name, name: name.clone(), known });
            };
            if !(1..=SIZE_MAX).contains(size) {
                return Err(SizeError::Range { operator: operator.name, name: name.clone(), size: *size });
            }
            *own = *size;
        }
        Ok(Sizes(sizes))
    }

    /// Returns the sizes in which each dimension that only repeats the values is as small as the table of operators says: the
    /// largest divisor of its size that is not larger.
    pub fn tile(&self, operator: &Operator) -> Sizes {
        let mut sizes = self.clone();
        for (name, largest) in operator.tiles {
            sizes.0.get_mut(*name).into_iter().for_each(|size| *size = largest_divisor(*size, *largest));
        }
        sizes
    }

    /// Returns the sizes in which every dimension is at most `largest`, for values that may repeat anyhow.
    pub fn small_tile(&self, largest: usize) -> Sizes {
        let small = |(name, size): (&String, &usize)| (name.clone(), largest_divisor(*size, largest));
        Sizes(self.0.iter().map(small).collect())
    }

    /// Returns the shape that a text such as `M,1024` describes.
    pub fn shape(&self, text: &str) -> Vec<usize> {
        let size = |name: &str| name.parse().ok().or_else(|| self.0.get(name).copied());
        text.split(',').map(|name| size(name).expect("the table of operators names its dimensions")).collect()
    }

    /// Returns the size of a dimension as a number.
    pub fn size(&self, name: &str) -> f64 {
        self.shape(name)[0] as f64
    }

    /// Returns the names and sizes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(name, size)| (name.as_str(), *size))
    }
}

/// Returns the largest divisor of a size that is at most `largest`.
fn largest_divisor(size: usize, largest: usize) -> usize {
    (1..=largest).rev().find(|divisor| size.is_multiple_of(*divisor)).unwrap_or(1)
}
