//! The element types of GGUF, and how blocks of quantised numbers become f32.
//!
//! The layouts are those of ggml (`ggml-common.h`). Each product and sum is rounded to f32 in the order of ggml's Python
//! package, so that the values are equal to the bit. Knows nothing about files.

use half::f16;

use crate::DType;

/// Computes the numbers of a block of bytes.
pub(super) type Expand = fn(&[u8], &mut [f32]);

/// A supported element type. Its numbers are stored in blocks.
#[derive(Debug)]
pub(super) struct BlockType {
    /// Its number in a file.
    pub number: u32,
    pub name: &'static str,
    /// The type as which its tensors are read.
    pub dtype: DType,
    /// Numbers of a block.
    pub elements: usize,
    /// Size of a block.
    pub bytes: usize,
    /// `None` if the file has the numbers as `dtype`.
    pub expand: Option<Expand>,
}

const fn plain(number: u32, name: &'static str, dtype: DType) -> BlockType {
    BlockType { number, name, dtype, elements: 1, bytes: dtype.size(), expand: None }
}

const fn quantised(number: u32, name: &'static str, elements: usize, bytes: usize, expand: Expand) -> BlockType {
    BlockType { number, name, dtype: DType::F32, elements, bytes, expand: Some(expand) }
}

static SUPPORTED: [BlockType; 8] = [
    plain(0, "F32", DType::F32),
    plain(1, "F16", DType::F16),
    plain(30, "BF16", DType::BF16),
    quantised(2, "Q4_0", 32, 18, expand_q4_0),
    quantised(3, "Q4_1", 32, 20, expand_q4_1),
    quantised(8, "Q8_0", 32, 34, expand_q8_0),
    quantised(12, "Q4_K", 256, 144, expand_q4_k),
    quantised(14, "Q6_K", 256, 210, expand_q6_k),
];

/// The other types of ggml, for messages.
const UNSUPPORTED: [(u32, &str); 25] = [
    (6, "Q5_0"),
    (7, "Q5_1"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (13, "Q5_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

pub(super) fn find_type(number: u32) -> Option<&'static BlockType> {
    SUPPORTED.iter().find(|known| known.number == number)
}

pub(super) fn supported_names() -> impl Iterator<Item = &'static str> {
    SUPPORTED.iter().map(|kind| kind.name)
}

/// Returns the name of a type, with its number if it is not supported.
pub(super) fn type_name(number: u32) -> String {
    let unsupported = || UNSUPPORTED.iter().find(|known| known.0 == number).map_or("unknown", |known| known.1);
    find_type(number).map_or_else(|| format!("{} (number {number})", unsupported()), |known| known.name.to_owned())
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Splits bytes into the numbers of their lower halves and then those of their upper halves.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().map(|byte| byte & 15).chain(bytes.iter().map(|byte| byte >> 4))
}

fn expand_q4_0(block: &[u8], values: &mut [f32]) {
    let scale = half_at(block, 0);
    for (value, quant) in values.iter_mut().zip(nibbles(&block[2..])) {
        *value = scale * (f32::from(quant) - 8.0);
    }
}

fn expand_q4_1(block: &[u8], values: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (value, quant) in values.iter_mut().zip(nibbles(&block[4..])) {
        *value = scale * f32::from(quant) + minimum;
    }
}

fn expand_q8_0(block: &[u8], values: &mut [f32]) {
    let scale = half_at(block, 0);
    for (value, quant) in values.iter_mut().zip(&block[2..]) {
        *value = scale * f32::from(*quant as i8);
    }
}

/// Eight groups of 32 numbers, each with a scale and a minimum of 6 bits. Two groups share 32 bytes.
fn expand_q4_k(block: &[u8], values: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    let (packed, quants) = block[4..].split_at(12);
    let factors = |group: usize| match group {
        0..4 => (packed[group] & 63, packed[group + 4] & 63),
        // The upper two bits of the last four are in those of the first four.
        _ => {
            let (low, high) = (packed[group + 4], |at: usize| packed[at] >> 6 << 4);
            (low & 15 | high(group - 4), low >> 4 | high(group))
        }
    };
    for (group, values) in values.chunks_exact_mut(32).enumerate() {
        let (own_scale, own_minimum) = factors(group);
        let (scale, minimum) = (scale * f32::from(own_scale), minimum * f32::from(own_minimum));
        for (value, byte) in values.iter_mut().zip(&quants[group / 2 * 32..]) {
            *value = scale * f32::from(byte >> (group % 2 * 4) & 15) - minimum;
        }
    }
}

/// 16 groups of 16 numbers of 6 bits, each with a scale. The lower four bits and the upper two are apart; each half of
/// the block has four runs of 32 numbers, whose bits are interleaved.
fn expand_q6_k(block: &[u8], values: &mut [f32]) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, scale) = (&rest[..16], half_at(rest, 16));
    for (group, values) in values.chunks_exact_mut(16).enumerate() {
        let (half, run, side) = (group / 8, group / 2 % 4, group % 2 * 16);
        let scale = scale * f32::from(scales[group] as i8);
        let (low, high) = (&low[half * 64 + run % 2 * 32 + side..], &high[half * 32 + side..]);
        for (value, (low, high)) in values.iter_mut().zip(low.iter().zip(high)) {
            let quant = low >> (run / 2 * 4) & 15 | (high >> (run * 2) & 3) << 4;
            *value = scale * (f32::from(quant) - 32.0);
        }
    }
}
