//! Reads the attributes of operators that run subgraphs. The subgraphs themselves are read when the plan is made.

use super::Source;
use crate::OpError;
use crate::control::{Control, Scan};
use crate::op::Op;

pub(super) fn branch(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(control(source, Control::If))
}

pub(super) fn repeat(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(control(source, Control::Loop))
}

pub(super) fn scan(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    let axes = |name| Ok::<_, OpError>(attributes.ints(name)?.unwrap_or_default());
    let reversed = |name| Ok::<_, OpError>(axes(name)?.into_iter().map(|direction| direction != 0).collect::<Vec<_>>());
    let scan = Scan {
        inputs: attributes.sizes("num_scan_inputs")?.and_then(|count| count.first().copied()).unwrap_or(0),
        input_axes: axes("scan_input_axes")?,
        input_reversed: reversed("scan_input_directions")?,
        output_axes: axes("scan_output_axes")?,
        output_reversed: reversed("scan_output_directions")?,
    };
    Ok(control(source, Control::Scan(scan)))
}

fn control(source: &Source<'_>, control: Control) -> Op {
    control.bodies().iter().for_each(|name| source.attributes.mark(name));
    Op::Control(control)
}
