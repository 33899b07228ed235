//! The attributes of recurrent operators.

use crate::ops::Unary;

/// The attributes of a recurrent operator.
#[derive(Clone, Debug)]
pub(crate) struct Recurrent {
    pub cell: Cell,
    pub directions: Vec<Direction>,
    /// The bound of the arguments of activations.
    pub clip: Option<f64>,
    /// Whether the batch is the first dimension (`layout` 1).
    pub batch_first: bool,
}

/// One direction of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    pub is_reverse: bool,
    pub activations: Vec<Unary>,
}

/// The equations of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Rnn,
    /// `linear_before_reset` states whether the reset gate is applied after the matrix product.
    Gru {
        linear_before_reset: bool,
    },
    Lstm,
}

impl Cell {
    pub fn gates(self) -> usize {
        match self {
            Cell::Rnn => 1,
            Cell::Gru { .. } => 3,
            Cell::Lstm => 4,
        }
    }
}
