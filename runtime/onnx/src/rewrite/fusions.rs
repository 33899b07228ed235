//! The table of composite operators that exporters write as several nodes, with the spellings in which they do so.
//!
//! A spelling is an alternative in a pattern; a condition that a pattern cannot express is in the function of the row.

mod activation;
mod attention;
mod convolution;
mod normalization;
mod rotary;

use super::Pattern;

use super::matched::Match;
use super::replace::{Replacement, Rewrite, RewriteError};
use crate::Graph;

/// A composite operator.
pub struct Fusion {
    /// The name that scripts use: that of the operator.
    pub name: &'static str,
    /// What is fused, in a few words.
    pub about: &'static str,
    /// The patterns, which are tried one after the other.
    pub patterns: &'static [&'static str],
    /// Returns what replaces a match, or why it is not the operator.
    build: fn(&Match<'_, '_>) -> Result<Replacement, String>,
}

/// Every composite operator.
pub const FUSIONS: &[Fusion] = &[
    Fusion {
        name: "LayerNormalization",
        about: "mean and variance of the last dimensions, with or without scale and bias",
        patterns: normalization::LAYER,
        build: normalization::layer,
    },
    Fusion {
        name: "RMSNormalization",
        about: "root mean square of the last dimensions, with or without scale",
        patterns: normalization::RMS,
        build: normalization::rms,
    },
    Fusion {
        name: "Gelu",
        about: "with erf, or with the approximation by tanh",
        patterns: activation::GELU,
        build: activation::gelu,
    },
    Fusion {
        name: "Swish",
        about: "x * sigmoid(alpha * x): SiLU, and the approximation of Gelu by a sigmoid",
        patterns: activation::SWISH,
        build: activation::swish,
    },
    Fusion {
        name: "Attention",
        about: "softmax of scaled and masked products, with groups of queries",
        patterns: attention::ATTENTION,
        build: attention::attention,
    },
    Fusion {
        name: "RotaryEmbedding",
        about: "halves or neighbours of the features turned by angles",
        patterns: rotary::ROTARY,
        build: rotary::rotary,
    },
    Fusion {
        name: "Conv",
        about: "padding with zeros before a convolution, and a bias for each channel after it",
        patterns: convolution::PATTERNS,
        build: convolution::conv,
    },
];

impl Fusion {
    /// Returns the row of an operator.
    pub fn find(name: &str) -> Option<&'static Fusion> {
        FUSIONS.iter().find(|fusion| fusion.name == name)
    }

    /// Replaces every place of a graph that is written as several nodes.
    ///
    /// # Errors
    /// When a node of an older operator set has no newer form.
    pub fn apply(&self, graph: &Graph) -> Result<Rewrite, RewriteError> {
        let mut all = Rewrite::of(graph.clone());
        for text in self.patterns {
            let pattern = Pattern::parse(text).expect("a test parses every pattern of the table");
            all.replace(&pattern, &mut |found| (self.build)(found))?;
        }
        Ok(all.without_replaced_misses())
    }
}

/// Reads a replacement that is written here.
fn template(text: &str) -> Replacement {
    Replacement::parse(text).expect("a test applies every replacement of the table")
}

/// Returns the first of the last dimensions that `axes` are, counted from the end, or why they are not the last ones.
fn trailing(axes: &[i64], rank: usize) -> Result<i64, String> {
    let rank = rank as i64;
    let mut from_end: Vec<i64> = axes.iter().map(|axis| if *axis < 0 { *axis } else { axis - rank }).collect();
    from_end.sort_unstable();
    let count = from_end.len() as i64;
    let is_trailing = count > 0 && from_end.iter().copied().eq(-count..0);
    is_trailing.then_some(-count).ok_or_else(|| format!("its axes {axes:?} are not the last of {rank} dimensions"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_of_the_table_can_be_read_and_names_are_unique() {
        let mut names: Vec<&str> = FUSIONS.iter().map(|fusion| fusion.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FUSIONS.len());
        for fusion in FUSIONS {
            assert!(crate::find_operator(fusion.name).is_some(), "{}", fusion.name);
            fusion.patterns.iter().for_each(|text| drop(Pattern::parse(text).unwrap()));
        }
    }
}
