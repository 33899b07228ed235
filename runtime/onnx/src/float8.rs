//! Products of numbers in FP8. Tensors have no such type: they contain the bits of the numbers as u8.

/// The operator of this project's own domain that returns `x · weightᵀ` in bf16. The matrices, `M,K` and `N,K`, contain the bits of
/// numbers in E4M3.
pub const FLOAT8_PRODUCT: &str = "Float8Product";

/// Returns the number with these bits in E4M3: a sign, an exponent of 4 bits with a bias of 7, and 3 bits of mantissa, without
/// infinities (Micikevicius et al. 2022, "FP8 Formats for Deep Learning", table 1).
pub fn from_e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = ((bits >> 3) & 15, f32::from(bits & 7) / 8.0);
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-6),
        _ => (1.0 + mantissa) * 2f32.powi(i32::from(exponent) - 7),
    };
    if bits >= 128 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_the_paper_have_its_numbers() {
        let numbers = [(0x00, 0.0), (0x01, 2f32.powi(-9)), (0x07, 0.875 * 2f32.powi(-6)), (0x08, 2f32.powi(-6))];
        for (bits, number) in numbers.into_iter().chain([(0x38, 1.0), (0x7e, 448.0), (0xfe, -448.0), (0xb9, -1.125)]) {
            assert_eq!(from_e4m3(bits), number, "{bits:#x}");
        }
        assert!(from_e4m3(0x7f).is_nan() && from_e4m3(0xff).is_nan());
    }
}
