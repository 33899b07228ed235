//! Attention within windows of an image, as in Swin Transformer (Liu et al. 2021).

use super::node::integers;
use super::{add, argument_error, fixed_size, gather, reshape, transpose, unsqueeze};
use crate::{BuildError, DType, GraphBuilder, Init, Tensor, TensorSpec, Var, WeightRole};

/// Added to the scores of positions that were not neighbours before the image was shifted, as the authors do.
const HIDDEN: f32 = -100.0;

/// Converts `N,H,W,C` to windows, `N,count,window height·window width,C`.
///
/// # Errors
/// When height or width is not a multiple of the window's.
pub fn window_partition(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    window: [usize; 2],
) -> Result<Var, BuildError> {
    let [height, width, channels] = image_size(name, x)?;
    let [rows, columns] = window_counts(name, [height, width], window)?;
    let shape = [rows, window[0], columns, window[1], channels].map(|size| size as i64);
    let split = reshape(builder, &format!("{name}.split"), x, &[&[0], &shape[..]].concat())?;
    let ordered = transpose(builder, &format!("{name}.ordered"), &split, &[0, 1, 3, 2, 4, 5])?;
    let shape = [rows * columns, window[0] * window[1], channels].map(|size| size as i64);
    reshape(builder, name, &ordered, &[&[0], &shape[..]].concat())
}

/// Converts windows, `N,count,window height·window width,C`, back to an image of the given height and width,
/// `N,H,W,C`.
///
/// # Errors
/// When the windows do not cover an image of that size.
pub fn window_reverse(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    (window, image): ([usize; 2], [usize; 2]),
) -> Result<Var, BuildError> {
    let [rows, columns] = window_counts(name, image, window)?;
    let channels = fixed_size(name, x, 3, "the number of channels")?;
    let shape = [rows, columns, window[0], window[1], channels].map(|size| size as i64);
    let split = reshape(builder, &format!("{name}.split"), x, &[&[0], &shape[..]].concat())?;
    let ordered = transpose(builder, &format!("{name}.ordered"), &split, &[0, 1, 3, 2, 4, 5])?;
    let shape = [image[0], image[1], channels].map(|size| size as i64);
    reshape(builder, name, &ordered, &[&[0], &shape[..]].concat())
}

/// Returns the bias of every pair of positions within a window for each head, `1,heads,L,L` with `L` positions, from
/// the weight `<name>.relative_position_bias_table` (`(2·height-1)·(2·width-1),heads`). If the image was shifted, the
/// mask of [`shifted_window_mask`] is added: `count,heads,L,L`.
///
/// # Errors
/// When the window is empty or too large.
pub fn relative_position_bias(
    builder: &mut GraphBuilder,
    name: &str,
    (window, heads): ([usize; 2], usize),
    mask: Option<&Var>,
) -> Result<Var, BuildError> {
    let [height, width] = window;
    let positions = height.checked_mul(width).filter(|positions| (1..=4096).contains(positions));
    let positions = positions.ok_or_else(|| argument_error(name, "a window must have 1 to 4096 positions"))?;
    let table = TensorSpec::new([(2 * height - 1) * (2 * width - 1), heads], DType::F32);
    let init = Init::Normal { std: 0.02 };
    let table = builder.weight(&format!("{name}.relative_position_bias_table"), table, WeightRole::Parameter, init)?;
    let index = |at: usize| {
        let (query, key) = (at / positions, at % positions);
        let rows = query / width + height - 1 - key / width;
        let columns = query % width + width - 1 - key % width;
        (rows * (2 * width - 1) + columns) as i64
    };
    let indices = (0..positions * positions).map(index).collect::<Vec<_>>();
    let indices = integers(builder, &format!("{name}.relative_position_index"), &indices)?;
    let part = |part: &str| format!("{name}.relative_position_{part}");
    let rows = gather(builder, &part("rows"), &table, &indices, 0)?;
    let square = reshape(builder, &part("square"), &rows, &[positions as i64, positions as i64, heads as i64])?;
    let ordered = transpose(builder, &part("ordered"), &square, &[2, 0, 1])?;
    let bias = unsqueeze(builder, &part("bias"), &ordered, &[0])?;
    match mask {
        Some(mask) => add(builder, &part("mask"), &bias, mask),
        None => Ok(bias),
    }
}

/// Declares the mask of the windows of an image that was rolled by `-shift`: -100 between positions that came from
/// different sides of the image. It is `count,1,L,L,f32`, for `count` windows of `L` positions.
///
/// # Errors
/// When height or width is not a multiple of the window's, or a shift is not smaller than the window.
pub fn shifted_window_mask(
    builder: &mut GraphBuilder,
    name: &str,
    image: [usize; 2],
    (window, shift): ([usize; 2], [usize; 2]),
) -> Result<Var, BuildError> {
    let [rows, columns] = window_counts(name, image, window)?;
    if shift[0] >= window[0] || shift[1] >= window[1] {
        return Err(argument_error(name, format!("the shift {shift:?} must be smaller than the window {window:?}")));
    }
    let positions = window[0] * window[1];
    let count = rows * columns;
    let elements = positions.checked_mul(positions).and_then(|all| all.checked_mul(count));
    let elements = elements.filter(|elements| *elements <= 1 << 26);
    let elements = elements.ok_or_else(|| argument_error(name, "the mask has more than 2^26 elements"))?;
    // The last window of a direction consists of a part that was not moved around and a part that was.
    let side = |axis: usize, number: usize, last: usize, at: usize| {
        usize::from(shift[axis] > 0 && number == last) * (1 + usize::from(at >= window[axis] - shift[axis]))
    };
    let region = |number: usize, position: usize| {
        let (row, column) = (number / columns, number % columns);
        (side(0, row, rows - 1, position / window[1]), side(1, column, columns - 1, position % window[1]))
    };
    let value = |at: usize| {
        let (number, pair) = (at / (positions * positions), at % (positions * positions));
        let same = region(number, pair / positions) == region(number, pair % positions);
        if same { 0.0 } else { HIDDEN }
    };
    let values = (0..elements).map(value).collect::<Vec<f32>>();
    let mask = Tensor::from_vec([count, 1, positions, positions], values).expect("one value for each pair");
    builder.constant(name, mask)
}

/// Returns height, width and channels of `N,H,W,C`.
fn image_size(name: &str, x: &Var) -> Result<[usize; 3], BuildError> {
    if x.spec().dims.len() != 4 {
        return Err(argument_error(name, format!("`{}` is not `N,H,W,C`", x.spec())));
    }
    let size = |axis, what| fixed_size(name, x, axis, what);
    Ok([size(1, "the height")?, size(2, "the width")?, size(3, "the number of channels")?])
}

/// Returns how many windows lie below and beside each other.
fn window_counts(name: &str, image: [usize; 2], window: [usize; 2]) -> Result<[usize; 2], BuildError> {
    match [0, 1].map(|axis| image[axis].checked_rem(window[axis])) {
        [Some(0), Some(0)] => Ok([image[0] / window[0], image[1] / window[1]]),
        _ => Err(argument_error(name, format!("an image of {image:?} cannot be divided into windows of {window:?}"))),
    }
}
