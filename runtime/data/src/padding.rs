//! Padding: how the tokens of a sample fill fields of a fixed length, or of the length of the batch.

use super::tokens::write_field;
use super::{Field, FieldRole, OpenLength};
use flagperf_core::tensor::{DType, TensorSpec};

/// The side on which a sample is padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaddingSide {
    /// Padding follows the tokens.
    Right,
    /// Padding precedes the tokens, so that the last position is that of the last token.
    Left,
}

/// How tokens become a sample of a fixed length.
#[derive(Clone, Debug, PartialEq)]
pub struct PaddingOptions {
    /// The lengths to which samples may be padded, ascending. With several, the whole dataset has the smallest one that
    /// holds its longest sample.
    pub buckets: Vec<usize>,
    /// Whether each batch is as long as its longest sample; the bucket is then the largest length.
    pub to_batch: bool,
    /// The token that pads.
    pub pad: i64,
    /// The side on which it pads.
    pub side: PaddingSide,
    /// Whether a sample that is longer than the last bucket is cut; otherwise it is an error.
    pub truncate: bool,
}

impl PaddingOptions {
    /// Returns the largest length.
    pub fn max(&self) -> usize {
        self.buckets.last().copied().unwrap_or(1)
    }

    /// Returns the option that sets the largest length, as text: `length: 128`.
    pub fn max_option(&self) -> String {
        format!("{}: {}", if self.to_batch { "max_length" } else { "length" }, self.max())
    }

    /// Returns the smallest length that holds `longest` tokens; the largest if none does.
    pub fn bucket(&self, longest: usize) -> usize {
        self.buckets.iter().copied().find(|bucket| *bucket >= longest).unwrap_or(self.max())
    }

    /// Returns which fields are as long as the batch, if any.
    pub(super) fn open_length(&self, fields: &[usize], lengths: usize) -> Option<OpenLength> {
        let keeps_end = self.side == PaddingSide::Left;
        self.to_batch.then(|| OpenLength { fields: fields.to_vec(), lengths, keeps_end })
    }

    /// Writes `input_ids`, `attention_mask` and `lengths` of at most `length` tokens.
    pub(super) fn write_inputs(&self, ids: &[i64], length: usize, fields: &mut [&mut [u8]]) -> Result<(), String> {
        self.write(ids, length, self.pad, fields[0])?;
        self.write(&vec![1; ids.len()], length, 0, fields[1])?;
        write_field(&[ids.len() as i64], DType::I64, fields[2])
    }

    /// Writes numbers, padded with `pad` on the side of the padding.
    pub(super) fn write(&self, numbers: &[i64], length: usize, pad: i64, out: &mut [u8]) -> Result<(), String> {
        let first = if self.side == PaddingSide::Left { length.saturating_sub(numbers.len()) } else { 0 };
        let mut padded = vec![pad; length];
        let place = padded.get_mut(first..first + numbers.len());
        place.ok_or_else(|| format!("{} tokens for a field of {length}", numbers.len()))?.copy_from_slice(numbers);
        write_field(&padded, DType::I64, out)
    }
}

/// Returns the fields `input_ids`, `attention_mask` and `lengths`.
pub(super) fn input_fields(length: usize) -> Vec<Field> {
    let field = |name: &str, shape: &[usize]| Field {
        name: name.to_owned(),
        role: FieldRole::Input,
        spec: TensorSpec::new(shape.to_vec(), DType::I64),
    };
    vec![field("input_ids", &[length]), field("attention_mask", &[length]), field("lengths", &[])]
}
