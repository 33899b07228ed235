//! Intervals of numbers, for bounds of values.
//!
//! Knows no operator.

use flagperf_onnx::{DType, Dim};

/// The largest integer of 32 bits. Intervals are symmetric: the smallest one counts as too large.
const LIMIT: f64 = i32::MAX as f64;
/// The largest size of a dimension that is open in the file: the product of two fits in 32 bits.
const OPEN_SIZE_MAX: f64 = 46_340.0;

/// What an interval follows from. That of a result is the last one among its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Basis {
    /// Constants and sizes alone.
    Model,
    /// Also numbers of the inputs, which operators limit.
    Inputs,
    /// The assumption that an integer of an input, or computed from one, fits in 32 bits.
    Assumed,
}

/// An interval that contains the numbers of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::deviations) struct Bound {
    pub(in crate::deviations) low: f64,
    pub(in crate::deviations) high: f64,
    pub(super) basis: Basis,
}

impl Bound {
    /// Returns an interval; an end that is NaN is infinite.
    pub(super) fn new(low: f64, high: f64, basis: Basis) -> Self {
        let or = |end: f64, infinite: f64| if end.is_nan() { infinite } else { end };
        Bound { low: or(low, f64::NEG_INFINITY), high: or(high, f64::INFINITY), basis }
    }

    /// Returns what is known of a value by its element type alone.
    pub(super) fn of_type(dtype: Option<DType>, depends_on_inputs: bool) -> Self {
        let basis = if depends_on_inputs { Basis::Inputs } else { Basis::Model };
        match dtype {
            Some(DType::Bool) => Bound::new(0.0, 1.0, basis),
            Some(DType::U8) => Bound::new(0.0, 255.0, basis),
            Some(DType::U16) => Bound::new(0.0, 65_535.0, basis),
            Some(DType::I16) => Bound::new(-32_768.0, 32_767.0, basis),
            Some(DType::I8) => Bound::new(-128.0, 127.0, basis),
            Some(dtype) if dtype.is_float() => Bound::new(f64::NEG_INFINITY, f64::INFINITY, basis),
            _ if depends_on_inputs => Bound::new(-LIMIT, LIMIT, Basis::Assumed),
            _ => Bound::new(-LIMIT, LIMIT, basis),
        }
    }

    /// Returns the smallest interval with all these numbers; `None` if there are none.
    pub(super) fn of_numbers(numbers: &[f64]) -> Option<Self> {
        let fold = |choose: fn(f64, f64) -> f64| numbers.iter().copied().reduce(choose);
        Some(Bound::new(fold(f64::min)?, fold(f64::max)?, Basis::Model))
    }

    /// Returns the sizes that a dimension may have.
    pub(super) fn of_size(dim: Option<&Dim>) -> Self {
        match dim.and_then(Dim::fixed) {
            Some(size) => Bound::new(size as f64, size as f64, Basis::Model),
            None => Bound::new(0.0, OPEN_SIZE_MAX, Basis::Model),
        }
    }

    /// Returns the number of elements of a tensor, or of some of its dimensions. It always fits in 32 bits.
    pub(super) fn of_count<'a>(dims: impl Iterator<Item = Option<&'a Dim>>) -> Self {
        dims.map(Bound::of_size).fold(Bound::new(1.0, 1.0, Basis::Model), Bound::times).within_limit()
    }

    /// Returns whether every integer fits in 32 bits.
    pub(super) fn fits(self) -> bool {
        self.low >= -LIMIT && self.high <= LIMIT
    }

    /// Returns whether every number of another interval is among the numbers.
    pub(super) fn contains(self, other: Bound) -> bool {
        self.low <= other.low && self.high >= other.high
    }

    /// Returns whether 0 is among the numbers.
    pub(in crate::deviations) fn has_zero(self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }

    /// Returns the part that fits in 32 bits, with the assumption that all numbers do.
    pub(super) fn within_limit(self) -> Self {
        Bound::new(self.low.clamp(-LIMIT, LIMIT), self.high.clamp(-LIMIT, LIMIT), self.basis)
    }

    /// Returns the interval for positions in a dimension of this size.
    pub(super) fn positions(self) -> Self {
        Bound::new(0.0, (self.high - 1.0).max(0.0), Basis::Model)
    }

    /// Returns the interval of the absolute values.
    pub(super) fn magnitude(self) -> Self {
        let low = if self.has_zero() { 0.0 } else { self.low.abs().min(self.high.abs()) };
        Bound { low, high: self.low.abs().max(self.high.abs()), ..self }
    }

    /// Returns the same numbers where the value was selected by another one.
    pub(super) fn selected_by(self, other: Bound) -> Self {
        Bound { basis: self.basis.max(other.basis.min(Basis::Inputs)), ..self }
    }

    /// Applies a function that never decreases to both ends.
    pub(super) fn map(self, function: impl Fn(f64) -> f64) -> Self {
        Bound::new(function(self.low), function(self.high), self.basis)
    }

    /// Returns the smallest interval that contains both.
    pub(super) fn hull(self, other: Bound) -> Self {
        Bound::new(self.low.min(other.low), self.high.max(other.high), self.basis.max(other.basis))
    }

    /// Returns the larger of two numbers.
    pub(super) fn larger(self, other: Bound) -> Self {
        let larger = Bound::new(self.low.max(other.low), self.high.max(other.high), self.basis.max(other.basis));
        larger.limited()
    }

    /// Returns the smaller of two numbers.
    pub(super) fn smaller(self, other: Bound) -> Self {
        let smaller = Bound::new(self.low.min(other.low), self.high.min(other.high), self.basis.max(other.basis));
        smaller.limited()
    }

    /// Drops the assumption when an operator has limited both ends.
    fn limited(self) -> Self {
        let is_limited = self.low > -LIMIT && self.high < LIMIT;
        Bound { basis: if is_limited { self.basis.min(Basis::Inputs) } else { self.basis }, ..self }
    }

    /// Returns the negative numbers.
    pub(super) fn negative(self) -> Self {
        Bound { low: -self.high, high: -self.low, ..self }
    }

    /// Returns the sum. With an operand that is only assumed to fit, the sum is assumed to fit, too.
    pub(super) fn plus(self, other: Bound) -> Self {
        let sum = Bound::new(self.low + other.low, self.high + other.high, self.basis.max(other.basis));
        let is_assumed = sum.basis == Basis::Assumed && self.fits() && other.fits();
        if is_assumed { sum.within_limit() } else { sum }
    }

    /// Returns the sum of up to `count` such numbers.
    pub(super) fn repeated(self, count: Bound) -> Self {
        let sum = self.times(Bound { low: 0.0, ..count });
        if self.basis == Basis::Assumed && self.fits() { sum.within_limit() } else { sum }
    }

    /// Returns the product.
    pub(super) fn times(self, other: Bound) -> Self {
        let products = [self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high];
        // 0 times an infinite end: the end stands for numbers that are finite.
        let products = products.map(|product| if product.is_nan() { 0.0 } else { product });
        let end = |choose: fn(f64, f64) -> f64, first| products.into_iter().fold(first, choose);
        Bound::new(end(f64::min, f64::INFINITY), end(f64::max, f64::NEG_INFINITY), self.basis.max(other.basis))
    }

    /// Returns the quotient of numbers with a fraction.
    pub(super) fn over(self, other: Bound) -> Self {
        let reciprocal = match (other.low, other.high) {
            (low, high) if low > 0.0 || high < 0.0 => (1.0 / high, 1.0 / low),
            _ => (f64::NEG_INFINITY, f64::INFINITY),
        };
        self.times(Bound::new(reciprocal.0, reciprocal.1, other.basis))
    }

    /// Returns the quotient of integers, which is no larger than the dividend.
    pub(super) fn over_integer(self, other: Bound) -> Self {
        let high = self.magnitude().high;
        let low = if self.low >= 0.0 && other.low >= 0.0 { 0.0 } else { -high };
        Bound::new(low, high, self.basis.max(other.basis.min(Basis::Inputs)))
    }

    /// Returns the remainder of a division.
    pub(super) fn remainder(self, divisor: Bound) -> Self {
        let high = divisor.magnitude().high;
        let low = if self.low >= 0.0 && divisor.low >= 0.0 { 0.0 } else { -high };
        Bound::new(low, high, divisor.basis.max(self.basis.min(Basis::Inputs)))
    }

    /// Returns the power. `is_even` states that every exponent is an even integer.
    pub(super) fn power(self, exponent: Bound, is_even: bool) -> Self {
        let high = match exponent.low {
            low if low < 0.0 => f64::INFINITY,
            _ => self.magnitude().high.max(1.0).powf(exponent.high),
        };
        let low = if is_even || self.low >= 0.0 { 0.0 } else { -high };
        Bound::new(low, high, self.basis.max(exponent.basis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_contains_every_result_of_its_operands() {
        let bound = |low, high| Bound::new(low, high, Basis::Model);
        let ends = |bound: Bound| (bound.low, bound.high);
        let any = bound(f64::NEG_INFINITY, f64::INFINITY);
        assert_eq!(ends(bound(-2.0, 3.0).times(bound(-5.0, 1.0))), (-15.0, 10.0));
        assert_eq!(ends(any.times(bound(0.0, 0.0))), (0.0, 0.0));
        assert_eq!(ends(bound(1.0, 8.0).over(bound(2.0, 4.0))), (0.25, 4.0));
        assert_eq!(ends(bound(1.0, 8.0).over(bound(0.0, 4.0))), ends(any));
        assert_eq!(ends(bound(-7.0, 3.0).over_integer(bound(2.0, 4.0))), (-7.0, 7.0));
        assert_eq!(ends(any.power(bound(2.0, 2.0), true)), (0.0, f64::INFINITY));
        assert_eq!(ends(bound(-3.0, 2.0).power(bound(3.0, 3.0), false)), (-27.0, 27.0));
        assert_eq!(ends(bound(-3.0, 2.0).magnitude()), (0.0, 3.0));
        assert_eq!(ends(bound(-3.0, 2.0).negative()), (-2.0, 3.0));
        assert_eq!(ends(bound(0.0, 1.0).repeated(bound(8.0, 8.0))), (0.0, 8.0));
    }

    #[test]
    fn what_is_assumed_to_fit_fits_after_a_sum_and_not_after_a_product() {
        let assumed = Bound::of_type(Some(DType::I64), true);
        let [one, two] = [1.0, 2.0].map(|number| Bound::new(number, number, Basis::Model));
        assert!(assumed.plus(one).fits() && assumed.repeated(two).fits());
        assert!(!assumed.times(two).fits());
        let limited = assumed.smaller(two).larger(one);
        assert_eq!(limited, Bound::new(1.0, 2.0, Basis::Inputs));
        let largest = Bound::new(LIMIT, LIMIT, Basis::Inputs);
        assert!(!largest.plus(limited).fits());
    }
}
