//! Arithmetic on single elements, with the same functions for floats and integers. Integers wrap around on overflow.

use ndarray::LinalgScalar;

use super::storage::DenseElement;

/// An element of one of the types that arithmetic is written for: f64, f32, i64 and i32. Narrower types are widened
/// before and rounded after an operator.
pub(super) trait Number: DenseElement + LinalgScalar + PartialOrd {
    /// The smallest value, or negative infinity.
    const LEAST: Self;
    /// The largest value, or infinity.
    const GREATEST: Self;

    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Divides; integers are truncated towards zero. An integer divisor is not zero.
    fn divided_by(self, other: Self) -> Self;
    /// Returns the remainder with the sign of `self`. An integer divisor is not zero.
    fn remainder(self, other: Self) -> Self;
    /// Returns the remainder with the sign of `other`. An integer divisor is not zero.
    fn modulo(self, other: Self) -> Self {
        let remainder = self.remainder(other);
        let zero = Self::zero();
        match remainder == zero {
            true => other.zero_with_sign(),
            false if (remainder < zero) != (other < zero) => remainder.plus(other),
            false => remainder,
        }
    }
    /// Returns zero with the sign of the element.
    fn zero_with_sign(self) -> Self {
        Self::zero()
    }
    fn power(self, exponent: Self) -> Self;
    /// Returns an integer of the same order: equal for zeros of both signs, largest for NaN.
    fn rank(self) -> i64;
    /// Returns whether the element is not a number.
    #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
    fn is_nan(self) -> bool {
        self != self
    }
    /// Returns the smaller element, or NaN if one of them is.
    fn smaller(self, other: Self) -> Self {
        if other < self || other.is_nan() { other } else { self }
    }
    /// Returns the larger element, or NaN if one of them is.
    fn larger(self, other: Self) -> Self {
        if other > self || other.is_nan() { other } else { self }
    }
}

macro_rules! float_number {
    ($($float:ty as $bits:ty),*) => {$(
        impl Number for $float {
            const LEAST: Self = <$float>::NEG_INFINITY;
            const GREATEST: Self = <$float>::INFINITY;

            fn plus(self, other: Self) -> Self { self + other }
            fn minus(self, other: Self) -> Self { self - other }
            fn times(self, other: Self) -> Self { self * other }
            fn divided_by(self, other: Self) -> Self { self / other }
            fn remainder(self, other: Self) -> Self { self % other }
            fn power(self, exponent: Self) -> Self { self.powf(exponent) }
            fn zero_with_sign(self) -> Self { <$float>::copysign(0.0, self) }
            fn rank(self) -> i64 {
                // Adding zero makes -0 to 0. The bits of negative floats count backwards.
                let bits = (self + 0.0).to_bits() as $bits;
                let sign = bits >> (<$bits>::BITS - 1);
                i64::from(if self.is_nan() { <$bits>::MAX } else { bits ^ (sign & <$bits>::MAX) })
            }
        }
    )*};
}
float_number!(f64 as i64, f32 as i32);

macro_rules! integer_number {
    ($($integer:ty),*) => {$(
        impl Number for $integer {
            const LEAST: Self = <$integer>::MIN;
            const GREATEST: Self = <$integer>::MAX;

            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn divided_by(self, other: Self) -> Self { self.wrapping_div(other) }
            fn remainder(self, other: Self) -> Self { self.wrapping_rem(other) }
            fn rank(self) -> i64 { i64::from(self) }
            fn power(self, exponent: Self) -> Self {
                match (u32::try_from(exponent), self) {
                    (Ok(exponent), base) => base.wrapping_pow(exponent),
                    (Err(_), 1) => 1,
                    (Err(_), -1) => if exponent % 2 == 0 { 1 } else { -1 },
                    // A fraction is truncated; a huge power has wrapped around to zero or is meaningless.
                    (Err(_), _) => 0,
                }
            }
        }
    )*};
}
integer_number!(i64, i32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_have_the_sign_of_the_divisor_or_of_the_dividend() {
        assert_eq!((-7i64).modulo(3), 2);
        assert_eq!((-7i64).remainder(3), -1);
        assert_eq!(7i32.modulo(-3), -2);
        assert_eq!((-7.5f32).modulo(2.0), 0.5);
        assert_eq!(i64::MIN.remainder(-1), 0);
        assert!((-4f32).modulo(2.0).is_sign_positive() && 4f64.modulo(-2.0).is_sign_negative());
        assert!((-4f32).remainder(2.0).is_sign_negative());
    }

    #[test]
    fn integer_powers_wrap_around_and_truncate_fractions() {
        assert_eq!(3i32.power(4), 81);
        assert_eq!(2i64.power(-1), 0);
        assert_eq!((-1i64).power(-3), -1);
        assert_eq!(2i32.power(32), 0);
    }
}
