//! The windows of convolutions and pools: computes their geometry for one input size from the attributes.

use super::OpError;
use super::ops::{Conv, Pool};

/// The attributes of a window with one or two spatial dimensions.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// `kernel_shape`, if given.
    pub kernel: Option<Vec<usize>>,
    /// `strides`, empty for ones.
    pub strides: Vec<usize>,
    /// `dilations`, empty for ones.
    pub dilations: Vec<usize>,
    /// The padding around the input.
    pub padding: Padding,
    /// Whether an incomplete last window produces an output (`ceil_mode`).
    pub ceil: bool,
}

/// The padding around the input.
#[derive(Clone, Debug)]
pub(super) enum Padding {
    /// Padding at all beginnings, then at all ends; empty for none.
    Explicit(Vec<usize>),
    /// Padding with which the output size is input / stride, rounded up.
    Same {
        /// Whether an odd entry is added at the beginning (`SAME_LOWER`) instead of the end.
        lower: bool,
    },
}

impl Default for Padding {
    fn default() -> Self {
        Padding::Explicit(Vec::new())
    }
}

impl Window {
    /// Returns the padding before and after an axis of `input` entries, for a window that spans `reach` entries.
    pub fn padding(&self, axis: usize, reach: usize, input: usize) -> (usize, usize) {
        match &self.padding {
            Padding::Explicit(pads) => {
                let half = pads.len() / 2;
                (
                    pads.get(..half).map_or(0, |before| value_for_axis(before, axis, 0)),
                    value_for_axis(&pads[half..], axis, 0),
                )
            }
            Padding::Same { lower } => {
                let stride = value_for_axis(&self.strides, axis, 1);
                let total = ((input.div_ceil(stride).max(1) - 1) * stride + reach).saturating_sub(input);
                let less = total / 2;
                if *lower { (total - less, less) } else { (less, total - less) }
            }
        }
    }

    /// Returns the geometry of a convolution over planes of this size.
    pub fn conv(&self, input: [usize; 2], kernel: [usize; 2], groups: usize) -> Conv {
        let dilations = [0, 1].map(|axis| value_for_axis(&self.dilations, axis, 1));
        let pads = [0, 1].map(|axis| self.padding(axis, dilated_size(kernel[axis], dilations[axis]), input[axis]));
        let strides = [0, 1].map(|axis| value_for_axis(&self.strides, axis, 1));
        Conv { strides, before: pads.map(|pad| pad.0), after: pads.map(|pad| pad.1), dilations, groups }
    }

    /// Returns the geometry of a pool over planes of this size.
    pub fn pool(&self, input: [usize; 2], include_pad: bool) -> Result<Pool, OpError> {
        let sizes = self.kernel.as_deref().ok_or_else(|| OpError::invalid_operands("`kernel_shape` is missing"))?;
        let kernel = [0, 1].map(|axis| value_for_axis(sizes, axis, 1));
        let Conv { strides, before, after, dilations, .. } = self.conv(input, kernel, 1);
        let mut output = [0; 2];
        for axis in [0, 1] {
            let padded = input[axis] + before[axis] + after[axis];
            let free = free_entries(padded, kernel[axis], dilations[axis])?;
            output[axis] = free / strides[axis] + 1;
            // A window that would begin in the padding at the end is omitted, as in PyTorch and ONNX.
            let more_fits = output[axis] * strides[axis] < input[axis] + before[axis];
            output[axis] += usize::from(self.ceil && !free.is_multiple_of(strides[axis]) && more_fits);
        }
        Ok(Pool { kernel, strides, before, after, dilations, output, include_pad })
    }
}

impl Conv {
    /// Returns the size of the result: floor((input + padding - dilated kernel size) / stride) + 1 in each dimension.
    ///
    /// # Errors
    /// When the kernel is larger than the padded input.
    pub fn output(&self, input: [usize; 2], kernel: [usize; 2]) -> Result<[usize; 2], OpError> {
        let mut output = [0; 2];
        for axis in [0, 1] {
            let padded = input[axis] + self.before[axis] + self.after[axis];
            output[axis] = free_entries(padded, kernel[axis], self.dilations[axis])? / self.strides[axis] + 1;
        }
        Ok(output)
    }

    pub(super) fn shape_mismatch(&self, x: &[usize], weight: &[usize]) -> OpError {
        OpError::invalid_operands(format!("input {x:?} does not match weight {weight:?} (groups: {})", self.groups))
    }
}

/// Returns the number of entries that a window spans from its first tap to its last.
pub(super) fn dilated_size(kernel: usize, dilation: usize) -> usize {
    kernel.saturating_sub(1) * dilation + 1
}

fn free_entries(padded: usize, kernel: usize, dilation: usize) -> Result<usize, OpError> {
    let reach = dilated_size(kernel, dilation);
    padded.checked_sub(reach).ok_or_else(|| {
        OpError::invalid_operands(format!("a window of size {reach} is larger than the padded input of size {padded}"))
    })
}

/// Returns the value for height (0) or width (1). With one spatial dimension, its value is that of the width, and the
/// height has the neutral value.
pub(super) fn value_for_axis(values: &[usize], axis: usize, neutral: usize) -> usize {
    (axis + values.len()).checked_sub(2).and_then(|i| values.get(i)).copied().unwrap_or(neutral)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_adds_the_odd_entry_at_the_specified_end() {
        let mut window = Window { strides: vec![2, 2], padding: Padding::Same { lower: false }, ..Window::default() };
        let conv = window.conv([224, 7], [3, 3], 1);
        assert_eq!((conv.before, conv.after), ([0, 1], [1, 1]));
        assert_eq!(conv.output([224, 7], [3, 3]).unwrap(), [112, 4]);
        window.padding = Padding::Same { lower: true };
        assert_eq!(window.conv([224, 7], [3, 3], 1).before, [1, 1]);
    }

    #[test]
    fn ceil_mode_omits_windows_that_begin_in_the_padding() {
        let mut window = Window { kernel: Some(vec![2, 2]), strides: vec![2, 2], ceil: true, ..Window::default() };
        assert_eq!(window.pool([5, 4], false).unwrap().output, [3, 2]);
        window.padding = Padding::Explicit(vec![1, 1, 1, 1]);
        assert_eq!(window.pool([5, 4], false).unwrap().output, [3, 3]);
    }

    #[test]
    fn a_window_larger_than_the_input_is_refused() {
        let window = Window { kernel: Some(vec![3]), ..Window::default() };
        let error = window.pool([1, 2], false).unwrap_err();
        assert_eq!(error.to_string(), "a window of size 3 is larger than the padded input of size 2");
    }
}
