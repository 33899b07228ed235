//! Rotary position embeddings.

use super::{add_node, argument_error, attributes, gather};
use crate::{Attribute, BuildError, Dim, GraphBuilder, Tensor, Var};

/// The most elements of a table.
const ELEMENTS_MAX: usize = 1 << 26;

/// The angles of a rotary embedding; the fields are those of Hugging Face's configurations. Angle `i` of position `p` is
/// `p · theta^(-2i/width)`: equation 15 of Su et al. 2021, "RoFormer".
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotaryAngles {
    /// Number of positions in the tables.
    pub positions: usize,
    /// Width of a head.
    pub width: usize,
    /// Base of the angles.
    pub theta: f32,
    /// Whether elements `2i` and `2i + 1` form a pair, instead of `i` and `i + width/2`.
    pub interleaved: bool,
    /// How the angles are scaled.
    pub scaling: Option<RotaryScaling>,
}

/// The scaling of angles for contexts longer than those of the first training. Names and formulas are those of Hugging
/// Face's `rope_scaling`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RotaryScaling {
    /// All angles are divided by the factor.
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// The scaling of Llama 3.1: angles whose wavelength is above `original_positions / low_freq_factor` are divided by
    /// the factor, those whose wavelength is below `original_positions / high_freq_factor` stay, and those between are
    /// interpolated.
    Llama3 {
        /// At least 1.
        factor: f64,
        /// Above 0.
        low_freq_factor: f64,
        /// Above `low_freq_factor`.
        high_freq_factor: f64,
        /// Number of positions in the first training.
        original_positions: usize,
    },
}

impl RotaryScaling {
    fn check(self) -> Result<(), String> {
        let (RotaryScaling::Linear { factor } | RotaryScaling::Llama3 { factor, .. }) = self;
        if !factor.is_finite() || factor < 1.0 {
            return Err(format!("the factor of the scaling must be at least 1, not {factor}"));
        }
        match self {
            RotaryScaling::Llama3 { low_freq_factor: low, high_freq_factor: high, original_positions, .. }
                if !(0.0 < low && low < high && high.is_finite() && original_positions > 0) =>
            {
                Err(format!(
                    "`low_freq_factor` ({low}) must be above 0 and below `high_freq_factor` ({high}), and \
                     `original_max_position_embeddings` ({original_positions}) above 0"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Returns the scaled frequency in radians per position.
    fn scale(self, frequency: f64) -> f64 {
        match self {
            RotaryScaling::Linear { factor } => frequency / factor,
            RotaryScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_positions } => {
                let wavelengths = original_positions as f64 * frequency / std::f64::consts::TAU;
                let kept = ((wavelengths - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / factor)
            }
        }
    }
}

impl RotaryAngles {
    /// Returns the angle of each pair of elements at position 1, in radians.
    pub fn frequencies(&self) -> Vec<f32> {
        let RotaryAngles { width, theta, scaling, .. } = *self;
        let frequency = |i: usize| theta.powf((2 * i) as f32 / width as f32).recip();
        let scaled = |frequency: f32| match scaling {
            None => frequency,
            Some(scaling) => scaling.scale(f64::from(frequency)) as f32,
        };
        (0..width / 2).map(frequency).map(scaled).collect()
    }
}

/// A rotary embedding of some positions, for any number of layers.
#[derive(Clone, Debug)]
pub struct Rotary {
    angles: RotaryAngles,
    /// Cosines and sines of the positions, `N,L,width/2`.
    tables: [Var; 2],
}

/// Declares the tables of a rotary embedding of `positions` (`N,L,i64`).
///
/// # Errors
/// When the width is odd, the tables are too large, a number of the scaling has no meaning, or the positions are not
/// `N,L,i64`.
pub fn rotary(
    builder: &mut GraphBuilder,
    name: &str,
    positions: &Var,
    angles: RotaryAngles,
) -> Result<Rotary, BuildError> {
    let RotaryAngles { positions: count, width, theta, .. } = angles;
    let half = width / 2;
    if width % 2 != 0 || theta.is_nan() || theta <= 0.0 || count.checked_mul(half).is_none_or(|all| all > ELEMENTS_MAX)
    {
        let reason = format!("the width must be even, theta above 0, positions * width / 2 at most {ELEMENTS_MAX}");
        return Err(argument_error(name, reason));
    }
    angles.scaling.map_or(Ok(()), RotaryScaling::check).map_err(|reason| argument_error(name, reason))?;
    if positions.spec().dims.len() != 2 {
        return Err(argument_error(name, format!("the positions must be `N,L,i64`, not `{}`", positions.spec())));
    }
    let frequencies = angles.frequencies();
    let mut table = |part: &str, function: fn(f32) -> f32| {
        let angles = (0..count).flat_map(|position| frequencies.iter().map(move |f| position as f32 * f));
        let values = Tensor::from_vec([count, half], angles.map(function).collect());
        let all = builder.constant(&format!("{name}.{part}"), values.expect("one value for each angle"))?;
        gather(builder, &format!("{name}.{part}_of_positions"), &all, positions, 0)
    };
    let tables = [table("cosines", f32::cos)?, table("sines", f32::sin)?];
    Ok(Rotary { angles, tables })
}

/// Rotates the pairs of elements of queries or keys, `N,heads,L,width`, by the angles of their positions.
///
/// # Errors
/// When `x` has another width or number of dimensions.
pub fn rotate(builder: &mut GraphBuilder, name: &str, x: &Var, rotary: &Rotary) -> Result<Var, BuildError> {
    let RotaryAngles { width, interleaved, .. } = rotary.angles;
    if x.spec().dims.len() != 4 || x.spec().dims[3] != Dim::Fixed(width) {
        return Err(argument_error(name, format!("`{}` is not `N,heads,L,{width}`", x.spec())));
    }
    let inputs = [Some(x), Some(&rotary.tables[0]), Some(&rotary.tables[1])];
    let attributes = attributes([("interleaved", Attribute::Int(i64::from(interleaved)))]);
    add_node(builder, name, "RotaryEmbedding", &inputs, attributes)
}
