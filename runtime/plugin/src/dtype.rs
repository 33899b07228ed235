//! Element types: their names in specifications and their numbers in DLPack and in the interface.

use dlpark::ffi::{DLDataType, DLDataTypeCode};

use crate::abi;

/// The type of a tensor's elements.
///
/// The host's own type, `flagperf_core::tensor::DType`, is the same list. It is separate because a vendor's plug-in
/// depends on this crate alone, without the dependencies of the host; a test of `flagperf-engine` compares both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of binary32.
    BF16,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 64-bit integer.
    U64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 8-bit integer.
    U8,
    /// Boolean in one byte, 0 or 1.
    Bool,
}

/// One row for each element type: its name in specifications, bytes of an element, code in DLPack, bit in `precisions`.
const TYPES: [(DType, &str, usize, DLDataTypeCode, u32); 13] = [
    (DType::F64, "f64", 8, DLDataTypeCode::FLOAT, abi::FLAGPERF_F64),
    (DType::F32, "f32", 4, DLDataTypeCode::FLOAT, abi::FLAGPERF_F32),
    (DType::F16, "f16", 2, DLDataTypeCode::FLOAT, abi::FLAGPERF_F16),
    (DType::BF16, "bf16", 2, DLDataTypeCode::BFLOAT, abi::FLAGPERF_BF16),
    (DType::I64, "i64", 8, DLDataTypeCode::INT, 0),
    (DType::I32, "i32", 4, DLDataTypeCode::INT, 0),
    (DType::I16, "i16", 2, DLDataTypeCode::INT, 0),
    (DType::I8, "i8", 1, DLDataTypeCode::INT, 0),
    (DType::U64, "u64", 8, DLDataTypeCode::UINT, 0),
    (DType::U32, "u32", 4, DLDataTypeCode::UINT, 0),
    (DType::U16, "u16", 2, DLDataTypeCode::UINT, 0),
    (DType::U8, "u8", 1, DLDataTypeCode::UINT, 0),
    (DType::Bool, "bool", 1, DLDataTypeCode::BOOL, 0),
];

impl DType {
    /// The number of types.
    pub const COUNT: usize = TYPES.len();

    /// Returns the name in specifications: `f32`.
    pub const fn name(self) -> &'static str {
        TYPES[self as usize].1
    }

    /// Returns the type of this name.
    pub fn from_name(name: &str) -> Option<DType> {
        TYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Returns the size of an element in bytes.
    pub const fn size(self) -> usize {
        TYPES[self as usize].2
    }

    /// Returns the type in DLPack's form.
    pub fn to_dlpack(self) -> DLDataType {
        let (_, _, size, code, _) = TYPES[self as usize];
        DLDataType { code, bits: 8 * size as u8, lanes: 1 }
    }

    /// Returns the type of DLPack's form; `None` for a type that has no name in specifications.
    pub fn from_dlpack(dtype: DLDataType) -> Option<DType> {
        TYPES.iter().find(|row| row.0.to_dlpack() == dtype).map(|row| row.0)
    }

    /// Returns the type's bit in `precisions`; 0 for a type that engines do not compute in.
    pub const fn bit(self) -> u32 {
        TYPES[self as usize].4
    }

    /// Returns the types whose bits are set; `None` if an unknown bit is set.
    pub fn from_bits(bits: u32) -> Option<Vec<DType>> {
        let known = TYPES.iter().filter(|row| bits & row.4 != 0);
        let all = known.clone().fold(0, |all, row| all | row.4);
        (all == bits).then(|| known.map(|row| row.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_at_the_index_of_its_type() {
        for (index, row) in TYPES.iter().enumerate() {
            assert_eq!(row.0 as usize, index);
            assert_eq!(DType::from_name(row.0.name()), Some(row.0));
            assert_eq!(DType::from_dlpack(row.0.to_dlpack()), Some(row.0));
        }
    }

    #[test]
    fn a_dlpack_type_without_a_name_is_none() {
        assert_eq!(DType::from_dlpack(DLDataType { lanes: 4, ..DType::F32.to_dlpack() }), None);
        assert_eq!(DType::from_dlpack(DLDataType { bits: 4, ..DType::I32.to_dlpack() }), None);
    }

    #[test]
    fn bits_and_types_are_inverse_and_an_unknown_bit_is_none() {
        assert_eq!(DType::from_bits(DType::F16.bit() | DType::F32.bit()), Some(vec![DType::F32, DType::F16]));
        assert_eq!(DType::from_bits(64 | DType::F32.bit()), None);
    }
}
