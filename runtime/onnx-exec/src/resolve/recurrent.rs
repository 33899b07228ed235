//! Reads the attributes of recurrent operators.

use super::Source;
use crate::OpError;
use crate::attributes::Attributes;
use crate::op::Op;
use crate::ops::Unary;
use crate::recurrent::{Cell, Direction, Recurrent};

pub(super) fn rnn(source: &Source<'_>) -> Result<Op, OpError> {
    recurrent(source, Cell::Rnn, &["Tanh"])
}

pub(super) fn gru(source: &Source<'_>) -> Result<Op, OpError> {
    let linear_before_reset = source.attributes.flag("linear_before_reset", false)?;
    recurrent(source, Cell::Gru { linear_before_reset }, &["Sigmoid", "Tanh"])
}

pub(super) fn lstm(source: &Source<'_>) -> Result<Op, OpError> {
    if source.attributes.flag("input_forget", false)? {
        return Err(OpError::unsupported("`input_forget`"));
    }
    recurrent(source, Cell::Lstm, &["Sigmoid", "Tanh", "Tanh"])
}

fn recurrent(source: &Source<'_>, cell: Cell, defaults: &[&str]) -> Result<Op, OpError> {
    let attributes = source.attributes;
    let reversed: &[bool] = match attributes.text("direction", "forward")? {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(OpError::unsupported(format!("`direction` `{other}`"))),
    };
    let names = attributes.texts("activations")?.unwrap_or_else(|| {
        let names = defaults.iter().map(|name| (*name).to_owned());
        reversed.iter().flat_map(|_| names.clone()).collect()
    });
    if names.len() != defaults.len() * reversed.len() {
        return Err(OpError::invalid_operands(format!(
            "{} activations for {} directions",
            names.len(),
            reversed.len()
        )));
    }
    let activations = activations(attributes, &names)?;
    let directions = reversed.iter().zip(activations.chunks(defaults.len()));
    // The hidden size is also that of the weights, and the first output has always been computed if it is read.
    let _ = (attributes.int("hidden_size", 0)?, attributes.int("output_sequence", 0)?);
    Ok(Op::Recurrent(Recurrent {
        cell,
        directions: directions
            .map(|(is_reverse, activations)| Direction { is_reverse: *is_reverse, activations: activations.to_vec() })
            .collect(),
        clip: if attributes.contains("clip") { Some(attributes.float("clip", 0.0)?) } else { None },
        batch_first: attributes.flag("layout", false)?,
    }))
}

/// Returns the functions of a list of names. Those with parameters take them from two further lists, in order.
fn activations(attributes: Attributes, names: &[String]) -> Result<Vec<Unary>, OpError> {
    let mut alphas = attributes.floats("activation_alpha")?.unwrap_or_default().into_iter();
    let mut betas = attributes.floats("activation_beta")?.unwrap_or_default().into_iter();
    let mut activation = |name: &String| match name.to_ascii_lowercase().as_str() {
        "relu" => Ok(Unary::Relu),
        "tanh" => Ok(Unary::Tanh),
        "sigmoid" => Ok(Unary::Sigmoid),
        "softplus" => Ok(Unary::Softplus),
        "leakyrelu" => Ok(Unary::LeakyRelu { alpha: alphas.next().unwrap_or(0.01) }),
        "elu" => Ok(Unary::Elu { alpha: alphas.next().unwrap_or(1.0) }),
        "hardsigmoid" => {
            Ok(Unary::HardSigmoid { alpha: alphas.next().unwrap_or(0.2), beta: betas.next().unwrap_or(0.5) })
        }
        _ => Err(OpError::unsupported(format!("the activation `{name}`"))),
    };
    names.iter().map(&mut activation).collect()
}
