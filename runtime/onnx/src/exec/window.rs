//! The windows of convolutions and pools: from attributes as written to geometry for one input size.

use super::OpError;
use super::ops::{Conv, Pool};

/// The attributes of a window, in one or two spatial dimensions.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// `kernel_shape`, when it is given.
    pub kernel: Option<Vec<usize>>,
    /// `strides`, empty for ones.
    pub strides: Vec<usize>,
    /// `dilations`, empty for ones.
    pub dilations: Vec<usize>,
    /// What is added around the input.
    pub padding: Padding,
    /// Whether a last window that is not full counts (`ceil_mode`).
    pub ceil: bool,
}

/// What is added around the input.
#[derive(Clone, Debug)]
pub(super) enum Padding {
    /// All beginnings, then all ends; empty for none.
    Explicit(Vec<usize>),
    /// As much that the output is input / stride; what is odd goes to the end, or to the beginning.
    Same {
        /// Whether what is odd goes to the beginning (`SAME_LOWER`).
        lower: bool,
    },
}

impl Default for Padding {
    fn default() -> Self {
        Padding::Explicit(Vec::new())
    }
}

impl Window {
    fn padding(&self, axis: usize, reach: usize, input: usize) -> (usize, usize) {
        match &self.padding {
            Padding::Explicit(pads) => {
                let half = pads.len() / 2;
                (pads.get(..half).map_or(0, |before| planar(before, axis, 0)), planar(&pads[half..], axis, 0))
            }
            Padding::Same { lower } => {
                let stride = planar(&self.strides, axis, 1);
                let total = ((input.div_ceil(stride).max(1) - 1) * stride + reach).saturating_sub(input);
                let less = total / 2;
                if *lower { (total - less, less) } else { (less, total - less) }
            }
        }
    }

    /// The geometry of a convolution over planes of this size.
    pub fn conv(&self, input: [usize; 2], kernel: [usize; 2], groups: usize) -> Conv {
        let dilations = [0, 1].map(|axis| planar(&self.dilations, axis, 1));
        let pads = [0, 1].map(|axis| self.padding(axis, reach(kernel[axis], dilations[axis]), input[axis]));
        let strides = [0, 1].map(|axis| planar(&self.strides, axis, 1));
        Conv { strides, before: pads.map(|pad| pad.0), after: pads.map(|pad| pad.1), dilations, groups }
    }

    /// The geometry of a pool over planes of this size.
    pub fn pool(&self, input: [usize; 2], include_pad: bool) -> Result<Pool, OpError> {
        let sizes = self.kernel.as_deref().ok_or_else(|| OpError::operands("`kernel_shape` is missing"))?;
        let kernel = [0, 1].map(|axis| planar(sizes, axis, 1));
        let Conv { strides, before, after, dilations, .. } = self.conv(input, kernel, 1);
        let mut output = [0; 2];
        for axis in [0, 1] {
            let padded = input[axis] + before[axis] + after[axis];
            let free = free(padded, kernel[axis], dilations[axis])?;
            output[axis] = free / strides[axis] + 1;
            // A window that would begin in the padding at the end is left out, as PyTorch and ONNX do.
            let more_fits = output[axis] * strides[axis] < input[axis] + before[axis];
            output[axis] += usize::from(self.ceil && !free.is_multiple_of(strides[axis]) && more_fits);
        }
        Ok(Pool { kernel, strides, before, after, dilations, output, include_pad })
    }
}

impl Conv {
    /// The size of the result: floor((input + padding - reach) / stride) + 1 in each dimension.
    ///
    /// # Errors
    /// When the kernel is larger than the padded input.
    pub fn output(&self, input: [usize; 2], kernel: [usize; 2]) -> Result<[usize; 2], OpError> {
        let mut output = [0; 2];
        for axis in [0, 1] {
            let padded = input[axis] + self.before[axis] + self.after[axis];
            output[axis] = free(padded, kernel[axis], self.dilations[axis])? / self.strides[axis] + 1;
        }
        Ok(output)
    }

    pub(super) fn mismatch(&self, x: &[usize], weight: &[usize]) -> OpError {
        OpError::operands(format!("input {x:?} does not fit weight {weight:?} in {} groups", self.groups))
    }
}

/// Entries that a window covers from its first tap to its last.
fn reach(kernel: usize, dilation: usize) -> usize {
    kernel.saturating_sub(1) * dilation + 1
}

fn free(padded: usize, kernel: usize, dilation: usize) -> Result<usize, OpError> {
    let reach = reach(kernel, dilation);
    padded.checked_sub(reach).ok_or_else(|| {
        OpError::operands(format!("a window over {reach} entries is larger than the padded input, {padded}"))
    })
}

/// The value for height (0) or width (1); with one spatial dimension that is the width and the height is neutral.
fn planar(values: &[usize], axis: usize, neutral: usize) -> usize {
    (axis + values.len()).checked_sub(2).and_then(|i| values.get(i)).copied().unwrap_or(neutral)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_puts_what_is_odd_at_the_named_end() {
        let mut window = Window { strides: vec![2, 2], padding: Padding::Same { lower: false }, ..Window::default() };
        let conv = window.conv([224, 7], [3, 3], 1);
        assert_eq!((conv.before, conv.after), ([0, 1], [1, 1]));
        assert_eq!(conv.output([224, 7], [3, 3]).unwrap(), [112, 4]);
        window.padding = Padding::Same { lower: true };
        assert_eq!(window.conv([224, 7], [3, 3], 1).before, [1, 1]);
    }

    #[test]
    fn ceil_mode_leaves_out_windows_that_begin_in_the_padding() {
        let mut window = Window { kernel: Some(vec![2, 2]), strides: vec![2, 2], ceil: true, ..Window::default() };
        assert_eq!(window.pool([5, 4], false).unwrap().output, [3, 2]);
        window.padding = Padding::Explicit(vec![1, 1, 1, 1]);
        assert_eq!(window.pool([5, 4], false).unwrap().output, [3, 3]);
    }

    #[test]
    fn a_window_larger_than_the_input_is_refused() {
        let window = Window { kernel: Some(vec![3]), ..Window::default() };
        let error = window.pool([1, 2], false).unwrap_err();
        assert_eq!(error.to_string(), "a window over 3 entries is larger than the padded input, 2");
    }
}
