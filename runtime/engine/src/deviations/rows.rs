//! The table of deviations. A new one is a row, with a case in `tests/reference/make_onnx_cases.py`.

use super::conditions as is;
use super::replacements as by;
use super::{ANY_OPERATOR, Deviation, NodeUse, Reaction};

use Reaction::{Refuse, Replace, Warn};

const RTEN: &[&str] = &["rten"];
const OPENVINO: &[&str] = &["openvino"];
const ONNXRUNTIME: &[&str] = &["onnxruntime"];
const LOSING_NAN: &[&str] = &["openvino", "rten"];
const ALL: &[&str] = &["interpreter", "onnxruntime", "openvino", "rten"];

/// Reasons that several rows have.
const RANDOM: &str = "draws random numbers of its own";
const LOWER_PADS: &str = "auto_pad: SAME_LOWER is computed as SAME_UPPER";
const LENGTHS: &str = "sequence_lens is ignored";
const CORNERS: &str = "align_corners uses the size of the output after rounding";

const fn row(
    engines: &'static [&'static str],
    op: &'static str,
    applies: fn(&NodeUse<'_>) -> bool,
    reason: &'static str,
    reaction: Reaction,
) -> Deviation {
    Deviation { engines, op, applies, reason, reaction }
}

const SATURATES: &str =
    "on a processor without AVX-512 VNNI, sums of two products are cut off at 16 bits: results may be far off";

/// Every known deviation, by operator. Of several rows for a node, every warning applies, and the first of the others.
#[rustfmt::skip]
pub(super) static ROWS: &[Deviation] = &[
    row(&["openvino", "rten"], ANY_OPERATOR, is::has_large_integer, "computes 64-bit integers in 32 bits", Refuse),
    row(&["openvino", "rten"], ANY_OPERATOR, is::may_exceed_32_bits, "a 64-bit integer that may need more than 32 bits is computed in 32", Warn),
    row(RTEN, "ArgMax", is::selects_first, "of equal elements, the last is selected", Replace(by::first_index)),
    row(RTEN, "ArgMin", is::selects_first, "of equal elements, the last is selected", Replace(by::first_index)),
    row(OPENVINO, "Attention", is::has_mask_in_f16, "a row whose mask excludes everything gives the mean of the values", Warn),
    row(OPENVINO, "Attention", is::has_local_window, "the size of the window is ignored", Refuse),
    row(OPENVINO, "Attention", is::is_causal_with_past, "the causal mask ignores the past", Refuse),
    row(ONNXRUNTIME, "Attention", is::has_mask_of_one_row, "a mask of one row is refused", Replace(by::attention_with_full_mask)),
    row(ONNXRUNTIME, "Attention", is::returns_products, "masked products are the smallest number in place of -inf", Warn),
    row(RTEN, "AveragePool", is::pads_at_the_lower_end, LOWER_PADS, Refuse),
    row(RTEN, "AveragePool", is::lacks_window_attributes, "needs all attributes", Replace(by::with_window_attributes)),
    row(RTEN, "BatchNormalization", is::normalizes_by_batch, "normalizes by the given statistics, not by those of the batch", Refuse),
    row(ALL, "Bernoulli", is::always, RANDOM, Warn),
    row(OPENVINO, "BitShift", is::of_signed_integers, "signed integers are shifted in another way", Refuse),
    row(RTEN, "Cast", is::casts_to_bool, "to: bool keeps other numbers than 0 and 1", Replace(by::is_not_zero)),
    row(OPENVINO, "Cast", is::widens_to_double, "infinite numbers become the largest number of f32", Warn),
    row(LOSING_NAN, "Clip", is::may_be_nan, "NaN becomes a bound", Warn),
    row(RTEN, "Conv", is::pads_at_the_lower_end, LOWER_PADS, Refuse),
    row(RTEN, "Conv", is::lacks_window_attributes, "needs all attributes", Replace(by::with_window_attributes)),
    row(RTEN, "ConvInteger", is::on_a_processor_without_vnni, SATURATES, Warn),
    row(RTEN, "ConvInteger", is::pads_at_the_lower_end, LOWER_PADS, Refuse),
    row(RTEN, "ConvInteger", is::pads_around_a_zero_point, "padding is 0 in place of the zero point", Refuse),
    row(RTEN, "ConvInteger", is::lacks_window_attributes, "needs all attributes", Replace(by::with_window_attributes)),
    row(RTEN, "ConvTranspose", is::pads_at_the_lower_end, LOWER_PADS, Refuse),
    row(RTEN, "ConvTranspose", is::lacks_window_attributes, "needs all attributes", Replace(by::with_window_attributes)),
    row(OPENVINO, "DFT", is::computes_its_axis, "an axis that is computed is ignored", Refuse),
    row(ALL, "Dropout", is::drops_at_random, RANDOM, Warn),
    row(&["openvino", "rten"], "DynamicQuantizeLinear", is::always, "multiplies by the reciprocal of the scale: may differ by one step", Warn),
    row(RTEN, "GRU", is::has_sequence_lengths, LENGTHS, Refuse),
    row(RTEN, "LSTM", is::has_sequence_lengths, LENGTHS, Refuse),
    row(OPENVINO, "LSTM", is::has_peepholes, "peepholes are ignored", Refuse),
    row(RTEN, "LogSoftmax", is::is_flattening, "computes as of operator set 13", Replace(by::flattened_softmax)),
    row(RTEN, "MatMul", is::has_vector_on_the_right, "the shape of a product with a vector", Replace(by::product_with_column)),
    row(RTEN, "MatMulInteger", is::on_a_processor_without_vnni, SATURATES, Warn),
    row(RTEN, "MatMulInteger", is::has_zero_points, "zero points", Replace(by::product_without_zero_points)),
    row(RTEN, "MaxPool", is::pads_at_the_lower_end, LOWER_PADS, Refuse),
    row(RTEN, "MaxPool", is::returns_indices, "has no indices", Replace(by::max_pool_with_indices)),
    row(RTEN, "MaxPool", is::lacks_window_attributes, "needs all attributes", Replace(by::with_window_attributes)),
    row(ONNXRUNTIME, "MaxUnpool", is::has_output_shape, "output_shape moves elements", Refuse),
    row(ALL, "Multinomial", is::always, RANDOM, Warn),
    row(RTEN, "NonMaxSuppression", is::always, "compares boxes of other classes and batches, and in the order of the input", Refuse),
    row(&["openvino", "rten"], "QuantizeLinear", is::always, "multiplies by the reciprocal of the scale: may differ by one step", Warn),
    row(ALL, "RandomNormal", is::always, RANDOM, Warn),
    row(ALL, "RandomNormalLike", is::always, RANDOM, Warn),
    row(ALL, "RandomUniform", is::always, RANDOM, Warn),
    row(ALL, "RandomUniformLike", is::always, RANDOM, Warn),
    row(RTEN, "ReduceMax", is::of_bools, "the largest of no elements is true", Refuse),
    row(OPENVINO, "ReduceMax", is::always, "of elements that are all -inf, the largest is a finite number", Warn),
    row(LOSING_NAN, "Relu", is::may_be_nan, "NaN becomes 0", Warn),
    row(RTEN, "Resize", is::is_cubic, "mode: cubic", Refuse),
    row(&["openvino", "rten"], "Resize", is::has_antialias, "antialias: 1", Refuse),
    row(OPENVINO, "Resize", is::excludes_outside, "exclude_outside: 1", Refuse),
    row(&["interpreter", "rten"], "Resize", is::aligns_corners_of_fractional_sizes, CORNERS, Refuse),
    row(&["onnxruntime", "openvino"], "Resize", is::aligns_corners_of_fractional_sizes, CORNERS, Warn),
    row(OPENVINO, "RoiAlign", is::takes_the_largest, "mode: max", Refuse),
    row(RTEN, "SequenceErase", is::always, "positions", Refuse),
    row(RTEN, "SequenceInsert", is::always, "positions", Refuse),
    row(RTEN, "Sign", is::always, "the sign of 0 is 1", Replace(by::sign)),
    row(RTEN, "Softmax", is::is_flattening, "computes as of operator set 13", Replace(by::flattened_softmax)),
    row(OPENVINO, "Slice", is::computes_its_steps, "a computed step of 0 gives no elements", Refuse),
    row(OPENVINO, "Softmax", is::over_several_dimensions, "computes as of operator set 13", Replace(by::flattened_softmax)),
    row(RTEN, "Softplus", is::always, "overflows for large numbers", Replace(by::softplus)),
    row(OPENVINO, "SpaceToDepth", is::is_in_column_row_depth_order, "mode: CRD", Refuse),
    row(OPENVINO, "Tile", is::computes_its_repeats, "repeats that are computed give undefined elements", Refuse),
    row(OPENVINO, "TopK", is::always, "of equal elements, another may be selected", Warn),
    row(RTEN, "com.microsoft.DynamicQuantizeLSTM", is::always, "sequences", Refuse),
];
