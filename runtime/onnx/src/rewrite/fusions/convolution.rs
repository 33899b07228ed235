//! What a convolution can do besides.

use super::super::matched::Match;
use super::super::replace::Replacement;
use super::template;
use crate::{Attribute, Dim, Tensor};

pub(super) const PATTERNS: &[&str] = &[
    "
    padded = Pad<mode=\"constant\">(x, pads) | Pad<mode=\"constant\">(x, pads, fill) | Pad<mode=\"constant\">(x, pads, fill | _, axes)
    y      = Conv(padded, weight) | Conv(padded, weight, bias)
    pads: constant
    axes: constant
    fill: number
    ",
    "
    sum = Conv(x, weight) | Conv(x, weight, own)
    y   = Add(sum, shift)
    own: constant
    shift: constant
    ",
];

pub(super) fn conv(found: &Match<'_, '_>) -> Result<Replacement, String> {
    if found.has("pads") { padded(found) } else { biased(found) }
}

/// A convolution whose input is padded with zeros.
fn padded(found: &Match<'_, '_>) -> Result<Replacement, String> {
    if found.number("fill").is_some_and(|fill| fill != 0.0) {
        return Err("it pads with another number than 0".to_owned());
    }
    let mut pads = found.constant("pads").ok_or("its padding is not part of the graph")?.to_f64();
    if found.has("axes") {
        let axes = found.constant("axes").ok_or("the axes of its padding are not part of the graph")?.to_f64();
        let rank = found.spec("weight").ok_or("the shape of its weight is not known")?.dims.len();
        pads = on_all_axes(&pads, &axes, rank).ok_or("the axes of its padding are not those of its input")?;
    }
    let rank = pads.len() / 2;
    if rank < 3 || pads.iter().any(|pad| *pad < 0.0) || [0, 1, rank, rank + 1].iter().any(|at| pads[*at] != 0.0) {
        return Err(format!("it pads by {pads:?}, which is not only around the spatial dimensions"));
    }
    let mut attributes = found.node().attributes.clone();
    match attributes.get("auto_pad") {
        None => {}
        Some(Attribute::String(mode)) if mode == "NOTSET" => {}
        Some(Attribute::String(mode)) if mode == "VALID" => {
            attributes.insert("auto_pad".to_owned(), Attribute::String("NOTSET".to_owned()));
        }
        Some(_) => return Err("the convolution pads by `auto_pad`".to_owned()),
    }
    let own = match attributes.get("pads") {
        Some(Attribute::Ints(own)) => own.clone(),
        _ => vec![0; 2 * (rank - 2)],
    };
    let added = pads[2..rank].iter().chain(&pads[rank + 2..]);
    let sum = own.iter().zip(added).map(|(own, pad)| own + *pad as i64).collect();
    attributes.insert("pads".to_owned(), Attribute::Ints(sum));
    let bias = if found.has("bias") { ", bias" } else { "" };
    Ok(template(&format!("y = Conv(x, weight{bias})")).with_attributes(attributes))
}

/// Returns the padding of all axes, given that of some; `None` if the axes do not exist.
fn on_all_axes(pads: &[f64], axes: &[f64], rank: usize) -> Option<Vec<f64>> {
    let mut all = vec![0.0; 2 * rank];
    for (place, axis) in axes.iter().enumerate() {
        let axis = if *axis < 0.0 { *axis + rank as f64 } else { *axis } as usize;
        *all.get_mut(axis).filter(|_| axis < rank)? = *pads.get(place)?;
        all[axis + rank] = *pads.get(place + axes.len())?;
    }
    Some(all)
}

/// A convolution after which a number is added in each channel.
fn biased(found: &Match<'_, '_>) -> Result<Replacement, String> {
    let weight = found.spec("weight").ok_or("the shape of its weight is not known")?;
    let filters = weight.dims.first().and_then(Dim::fixed).ok_or("the number of its filters is not known")?;
    let shift = found.constant("shift").ok_or("what is added is not part of the graph")?;
    // One channel, counted from the end: 1,C,1,1 or C,1,1.
    let channel = shift.shape().len() as i64 - (weight.dims.len() as i64 - 1);
    let is_channel = |(axis, size): (usize, &usize)| *size == if axis as i64 == channel { filters } else { 1 };
    if channel < 0 || !shift.shape().iter().enumerate().all(is_channel) {
        return Err(format!("what is added is `{}`, not a number for each of {filters} channels", shift.spec()));
    }
    let mut sums = shift.to_f64();
    if found.has("own") {
        let own = found.constant("own").ok_or("its own bias is not part of the graph")?.to_f64();
        sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
    }
    let bias = Tensor::from_vec([filters], sums).map_err(|error| error.to_string())?.cast(shift.dtype());
    let replacement = template("y = Conv(x, weight, bias)").with_constant("bias", bias);
    Ok(replacement.with_attributes(found.node_of("sum").attributes.clone()))
}
