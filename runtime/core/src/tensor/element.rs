//! The Rust types of tensor elements, and their conversion.

use bytemuck::Pod;
use half::{bf16, f16};

use super::{DType, bf16_from_f64, f16_from_f64};

/// The Rust type that represents the elements of one [`DType`].
pub trait Element: Pod + Send + Sync {
    /// The element type that this Rust type represents.
    const DTYPE: DType;

    /// Returns the number as f64. Integers beyond 2^53 are rounded.
    fn to_f64(self) -> f64;

    /// Returns an integer; `None` for a float.
    fn to_integer(self) -> Option<i128>;

    /// Rounds a number to nearest even or, for integers, truncates it; the type's bounds limit it.
    fn from_f64(number: f64) -> Self;

    /// Returns the lowest bits of an integer or, for floats, the nearest number.
    fn from_integer(integer: i128) -> Self;

    /// Converts a number of any type. Floats are rounded to nearest even, and truncated when converted to integers; an integer
    /// that is too large for another type of integers keeps its lowest bits.
    #[inline(always)]
    fn convert<T: Element>(number: T) -> Self {
        match number.to_integer() {
            Some(integer) => Self::from_integer(integer),
            None => Self::from_f64(number.to_f64()),
        }
    }
}

macro_rules! element {
    ($($rust:ty => $dtype:ident: $to_f64:expr, $to_integer:expr, $from_f64:expr, $from_integer:expr;)*) => {
        $(impl Element for $rust {
            const DTYPE: DType = DType::$dtype;

            #[inline(always)]
            fn to_f64(self) -> f64 {
                $to_f64(self)
            }

            #[inline(always)]
            fn to_integer(self) -> Option<i128> {
                $to_integer(self)
            }

            #[inline(always)]
            fn from_f64(number: f64) -> Self {
                $from_f64(number)
            }

            #[inline(always)]
            fn from_integer(integer: i128) -> Self {
                $from_integer(integer)
            }
        })*
    };
}
element!(
    f64 => F64: f64::from, |_| None, f64::from, |x| x as f64;
    f32 => F32: f64::from, |_| None, |x| x as f32, |x| x as f32;
    f16 => F16: f64::from, |_| None, f16_from_f64, |x| f16_from_f64(x as f64);
    bf16 => BF16: f64::from, |_| None, bf16_from_f64, |x| bf16_from_f64(x as f64);
    i64 => I64: |x| x as f64, |x| Some(i128::from(x)), |x| x as i64, |x| x as i64;
    i32 => I32: f64::from, |x| Some(i128::from(x)), |x| x as i32, |x| x as i32;
    i16 => I16: f64::from, |x| Some(i128::from(x)), |x| x as i16, |x| x as i16;
    i8 => I8: f64::from, |x| Some(i128::from(x)), |x| x as i8, |x| x as i8;
    u64 => U64: |x| x as f64, |x| Some(i128::from(x)), |x| x as u64, |x| x as u64;
    u32 => U32: f64::from, |x| Some(i128::from(x)), |x| x as u32, |x| x as u32;
    u16 => U16: f64::from, |x| Some(i128::from(x)), |x| x as u16, |x| x as u16;
    u8 => U8: f64::from, |x| Some(i128::from(x)), |x| x as u8, |x| x as u8;
);

/// Evaluates an expression with a name for the Rust type that represents a [`DType`]; for booleans, it is `u8`.
#[macro_export]
macro_rules! with_element_type {
    ($dtype:expr, $element:ident => $result:expr) => {
        $crate::with_element_type!(@arms $dtype, $element, $result,
            F64 f64, F32 f32, F16 half::f16, BF16 half::bf16, I64 i64, I32 i32, I16 i16, I8 i8,
            U64 u64, U32 u32, U16 u16, U8 u8, Bool u8)
    };
    (@arms $dtype:expr, $element:ident, $result:expr, $($variant:ident $rust:ty),*) => {
        match $dtype {
            $($crate::tensor::DType::$variant => {
                type $element = $rust;
                $result
            })*
        }
    };
}
