//! Losses.

use super::{activation, add_node, argument_error, arithmetic, attributes, reduction};
use crate::{Attribute, BuildError, Dim, GraphBuilder, TensorSpec, Var};

/// A cross-entropy; the fields are those of `torch.nn.CrossEntropyLoss`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossEntropy {
    /// The share of every label that is spread evenly over the classes.
    pub label_smoothing: f32,
    /// The class of samples that do not count.
    pub ignore_index: Option<i64>,
}

/// The mean cross-entropy of logits `batch,classes,…`: one number. The labels are either classes `batch,…` (i64), or
/// probabilities of the shape and type of the logits, as mixup gives them.
///
/// # Errors
/// When the labels have neither shape, or smoothing or an ignored class is requested where it does not apply.
pub fn cross_entropy(
    builder: &mut GraphBuilder,
    name: &str,
    logits: &Var,
    labels: &Var,
    options: CrossEntropy,
) -> Result<Var, BuildError> {
    let CrossEntropy { label_smoothing, ignore_index } = options;
    if !(0.0..1.0).contains(&label_smoothing) {
        return Err(argument_error(
            name,
            format!("the label smoothing is {label_smoothing}, but must be at least 0 and below 1"),
        ));
    }
    if labels.spec() == logits.spec() {
        return match ignore_index {
            Some(_) => Err(argument_error(name, "labels that are probabilities have no class to ignore")),
            None => soft_cross_entropy(builder, name, logits, labels, label_smoothing),
        };
    }
    check_classes(name, logits, labels)?;
    let mut options = attributes([]);
    if let Some(class) = ignore_index {
        options.insert("ignore_index".to_owned(), Attribute::Int(class));
    }
    let op = "SoftmaxCrossEntropyLoss";
    if label_smoothing == 0.0 {
        return add_node(builder, name, op, &[Some(logits), Some(labels)], options);
    }
    let sharp = format!("{name}.sharp");
    let outputs = builder.node(&sharp, op, &[Some(logits), Some(labels)], options, 2)?;
    let [sharp, logarithms] = &outputs[..] else { unreachable!("two outputs were requested") };
    let smooth = reduction::mean(builder, &format!("{name}.classes"), logarithms, &[1], false)?;
    let smooth = mean_of_counted(builder, name, &smooth, labels, ignore_index)?;
    let sharp = arithmetic::scale(builder, &format!("{name}.scaled"), sharp, 1.0 - label_smoothing)?;
    let smooth = arithmetic::scale(builder, &format!("{name}.smoothed"), &smooth, label_smoothing)?;
    arithmetic::sub(builder, name, &sharp, &smooth)
}

/// The mean over the samples whose label is not ignored.
fn mean_of_counted(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    labels: &Var,
    ignored: Option<i64>,
) -> Result<Var, BuildError> {
    let Some(class) = ignored else { return reduction::mean(builder, &format!("{name}.mean"), x, &[], false) };
    let class = builder.constant(&format!("{name}.ignored"), crate::Tensor::scalar(class).cast(labels.spec().dtype))?;
    let counts = arithmetic::not_equal(builder, &format!("{name}.counts"), labels, &class)?;
    let counts = arithmetic::cast(builder, &format!("{name}.counted"), &counts, x.spec().dtype)?;
    let kept = arithmetic::mul(builder, &format!("{name}.kept"), x, &counts)?;
    let sum = |builder: &mut GraphBuilder, part: &str, x: &Var| {
        reduction::reduce(builder, &format!("{name}.{part}"), x, reduction::Reduction::Sum, (&[], false))
    };
    let (total, number) = (sum(builder, "total", &kept)?, sum(builder, "number", &counts)?);
    arithmetic::div(builder, &format!("{name}.mean"), &total, &number)
}

/// The cross-entropy with probabilities, of which `smoothing` is spread evenly.
fn soft_cross_entropy(
    builder: &mut GraphBuilder,
    name: &str,
    logits: &Var,
    labels: &Var,
    smoothing: f32,
) -> Result<Var, BuildError> {
    let logarithms = activation::log_softmax(builder, &format!("{name}.logarithms"), logits, 1)?;
    let product = arithmetic::mul(builder, &format!("{name}.products"), &logarithms, labels)?;
    let sum = reduction::reduce(builder, &format!("{name}.sum"), &product, reduction::Reduction::Sum, (&[1], false))?;
    let mut gain = reduction::mean(builder, &format!("{name}.gain"), &sum, &[], false)?;
    if smoothing != 0.0 {
        let smooth = reduction::mean(builder, &format!("{name}.classes"), &logarithms, &[], false)?;
        let sharp = arithmetic::scale(builder, &format!("{name}.scaled"), &gain, 1.0 - smoothing)?;
        let smooth = arithmetic::scale(builder, &format!("{name}.smoothed"), &smooth, smoothing)?;
        gain = arithmetic::add(builder, &format!("{name}.both"), &sharp, &smooth)?;
    }
    activation::neg(builder, name, &gain)
}

fn check_classes(name: &str, logits: &Var, labels: &Var) -> Result<(), BuildError> {
    let without_classes = |spec: &TensorSpec| -> Vec<Dim> {
        spec.dims.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, dim)| dim.clone()).collect()
    };
    let fits = logits.spec().dims.len() >= 2
        && !labels.spec().dtype.is_float()
        && without_classes(logits.spec()) == labels.spec().dims;
    if fits {
        return Ok(());
    }
    let reason = format!(
        "the labels `{}` are neither one class for each place of the logits `{}` nor probabilities of the same shape",
        labels.spec(),
        logits.spec()
    );
    Err(argument_error(name, reason))
}
