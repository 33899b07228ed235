//! Activations.

use super::super::matched::Match;
use super::super::replace::Replacement;
use super::template;

pub(super) const GELU: &[&str] = &[
    "
    scaled = Div(x, 1.4142135623730951) | Mul(x, 0.7071067811865476)
    gate   = Add(Erf(scaled), 1)
    y      = Mul(Mul(x, gate), 0.5) | Mul(Mul(x, 0.5), gate) | Mul(x, Mul(gate, 0.5)) | Div(Mul(x, gate), 2)
           | Mul(Div(x, 2), gate)
    ",
    "
    cube   = Pow(x, 3) | Mul(Mul(x, x), x) | Mul(Pow(x, 2), x)
    cubic  = Mul(cube, 0.044715) | Mul(Mul(Mul(x, 0.044715), x), x)
    inner  = Mul(Add(x, cubic), 0.7978845608028654)
           | Mul(Mul(x, 0.7978845608028654), Add(Mul(Mul(x, 0.044715), x) | Mul(Mul(x, x), 0.044715), 1))
    gate   = Add(Tanh(inner), 1)
    y      = Mul(Mul(x, gate), 0.5) | Mul(Mul(x, 0.5), gate) | Mul(x, Mul(gate, 0.5)) | Mul(Div(x, 2), gate)
    ",
];

pub(super) const SWISH: &[&str] = &["
    y = Mul(x, Sigmoid(Mul(x, alpha) | x)) | Div(x, Add(Exp(Neg(Mul(x, alpha) | x)), 1))
    alpha: number
"];

pub(super) fn gelu(found: &Match<'_, '_>) -> Result<Replacement, String> {
    let kind = if found.has("inner") { "tanh" } else { "none" };
    Ok(template(&format!("y = Gelu<approximate=\"{kind}\">(x)")))
}

pub(super) fn swish(found: &Match<'_, '_>) -> Result<Replacement, String> {
    let alpha = if found.has("alpha") { "<alpha=$alpha>" } else { "" };
    Ok(template(&format!("y = Swish{alpha}(x)")))
}
