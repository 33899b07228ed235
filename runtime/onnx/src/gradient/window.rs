//! Derivatives of convolutions and pools.

use super::Backward;
use super::softmax::sum_per_channel;
use crate::lower::{int, required};
use crate::{Attribute, Node, Tensor};

/// The window of a convolution or pool, by spatial dimension.
pub(super) struct Window {
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub pads_begin: Vec<i64>,
    pub pads_end: Vec<i64>,
}

impl Window {
    /// Reads a window that slides over `large`, the sizes of an image, and yields `small`.
    fn read(node: &Node, kernel: &[i64], large: &[i64], small: &[i64]) -> Result<Self, String> {
        let spatial = kernel.len();
        let ints = |name: &str, default: i64, length: usize| match node.attributes.get(name) {
            Some(Attribute::Ints(list)) if list.len() == length => list.clone(),
            _ => vec![default; length],
        };
        let (strides, dilations) = (ints("strides", 1, spatial), ints("dilations", 1, spatial));
        let mut pads_begin = ints("pads", 0, 2 * spatial);
        let mut pads_end = pads_begin.split_off(spatial);
        if let Some(Attribute::String(kind)) = node.attributes.get("auto_pad")
            && kind.starts_with("SAME")
        {
            for axis in 0..spatial {
                let reach = (small[axis] - 1) * strides[axis] + dilations[axis] * (kernel[axis] - 1) + 1;
                let total = (reach - large[axis]).max(0);
                let less = total / 2;
                let upper = kind == "SAME_UPPER";
                (pads_begin[axis], pads_end[axis]) = if upper { (less, total - less) } else { (total - less, less) };
            }
        }
        Ok(Window { kernel: kernel.to_vec(), strides, dilations, pads_begin, pads_end })
    }

    pub fn pads(&self) -> Vec<i64> {
        [&self.pads_begin[..], &self.pads_end].concat()
    }

    /// Adds the transposed convolution that gives back an image of the sizes `large` from one of the sizes `small`.
    fn transpose(
        &self,
        b: &mut Backward<'_, '_>,
        [x, weight]: [&str; 2],
        groups: i64,
        [large, small]: [&[i64]; 2],
    ) -> String {
        let (mut pads_end, mut extra) = (self.pads_end.clone(), vec![0; large.len()]);
        for axis in 0..large.len() {
            let reach = (small[axis] - 1) * self.strides[axis] + self.dilations[axis] * (self.kernel[axis] - 1) + 1;
            let missing = large[axis] + self.pads_begin[axis] + pads_end[axis] - reach;
            // What a window beyond the padded image computed, as with `ceil_mode`, is cut off.
            if missing < 0 { pads_end[axis] -= missing } else { extra[axis] = missing }
        }
        let attributes = [
            ("dilations", Attribute::Ints(self.dilations.clone())),
            ("group", Attribute::Int(groups)),
            ("kernel_shape", Attribute::Ints(self.kernel.clone())),
            ("output_padding", Attribute::Ints(extra)),
            ("pads", Attribute::Ints([&self.pads_begin[..], &pads_end].concat())),
            ("strides", Attribute::Ints(self.strides.clone())),
        ];
        b.nodes.add_with("ConvTranspose", &[x, weight], attributes)
    }
}

/// Returns the sizes of the first output.
fn output_sizes(b: &Backward<'_, '_>, node: &Node) -> Result<Vec<i64>, String> {
    let sizes = b.nodes.spec(&node.outputs[0])?.fixed_shape().ok_or("the shape of the output is not known")?;
    Ok(sizes.into_iter().map(|size| size as i64).collect())
}

/// The gradient of the image is a transposed convolution with the weight; that of the bias is a sum.
pub(crate) fn conv(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, groups) = (b.first()?, int(node, "group").unwrap_or(1));
    let (large, small, weight) = (b.sizes(node, 0)?, output_sizes(b, node)?, b.sizes(node, 1)?);
    let window = Window::read(node, &weight[2..], &large[2..], &small[2..])?;
    if b.needs(0) {
        let gradient = window.transpose(b, [&g, required(node, 1)?], groups, [&large[2..], &small[2..]]);
        b.set(0, gradient);
    }
    if b.needs(1) {
        let gradient = window.weight_gradient(b, (required(node, 0)?, &large), (&g, &small), groups);
        b.set(1, gradient);
    }
    bias(b, &g, large.len() as i64);
    Ok(())
}

/// The gradient of the image is a convolution with the same weight; that of the weight has image and gradient in each
/// other's place.
pub(crate) fn conv_transpose(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, groups) = (b.first()?, int(node, "group").unwrap_or(1));
    let (small, large, weight) = (b.sizes(node, 0)?, output_sizes(b, node)?, b.sizes(node, 1)?);
    if node.attributes.contains_key("output_shape") {
        return Err("`output_shape` is set".to_owned());
    }
    let window = Window::read(node, &weight[2..], &large[2..], &small[2..])?;
    if b.needs(0) {
        let attributes = [
            ("dilations", Attribute::Ints(window.dilations.clone())),
            ("group", Attribute::Int(groups)),
            ("kernel_shape", Attribute::Ints(window.kernel.clone())),
            ("pads", Attribute::Ints(window.pads())),
            ("strides", Attribute::Ints(window.strides.clone())),
        ];
        let mut gradient = b.nodes.add_with("Conv", &[&g, required(node, 1)?], attributes);
        for (axis, size) in small.iter().enumerate().skip(2) {
            gradient = b.nodes.slice(&gradient, axis as i64, [0, *size, 1]);
        }
        b.set(0, gradient);
    }
    if b.needs(1) {
        let gradient = window.weight_gradient(b, (&g, &large), (required(node, 0)?, &small), groups);
        b.set(1, gradient);
    }
    bias(b, &g, large.len() as i64);
    Ok(())
}

fn bias(b: &mut Backward<'_, '_>, g: &str, rank: i64) {
    if b.needs(2) {
        let gradient = sum_per_channel(b, g, rank);
        b.set(2, gradient);
    }
}

/// Returns the sizes of a pool's window.
fn kernel(node: &Node) -> Result<&[i64], String> {
    match node.attributes.get("kernel_shape") {
        Some(Attribute::Ints(sizes)) => Ok(sizes),
        _ => Err("`kernel_shape` is missing".to_owned()),
    }
}

/// The gradient goes to the element that was the maximum, the first of equal ones.
pub(crate) fn max_pool(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    if int(node, "storage_order").unwrap_or(0) != 0 {
        return Err("`storage_order` is 1".to_owned());
    }
    let (g, sizes, dtype) = (b.first()?, b.sizes(node, 0)?, b.dtype(node)?);
    let indices = b.nodes.output_of(node, 1);
    let [indices, g] = [&indices, &g].map(|x| b.nodes.reshape(x, &[-1]));
    let zeros = b.zeros_of(&[sizes.iter().product()], dtype);
    let attributes = [("axis", Attribute::Int(0)), ("reduction", Attribute::String("add".to_owned()))];
    let flat = b.nodes.add_with("ScatterElements", &[&zeros, &indices, &g], attributes);
    let gradient = b.nodes.reshape(&flat, &sizes);
    b.set(0, gradient);
    Ok(())
}

/// Each element gets its share of every window that it is in: a transposed convolution with ones for each channel.
pub(crate) fn average_pool(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, large, small, dtype) = (b.first()?, b.sizes(node, 0)?, output_sizes(b, node)?, b.dtype(node)?);
    let window = Window::read(node, kernel(node)?, &large[2..], &small[2..])?;
    let counts = window_counts(&window, int(node, "count_include_pad").unwrap_or(0) != 0, &large[2..], &small[2..]);
    let shape: Vec<usize> = small.iter().enumerate().map(|(i, size)| if i < 2 { 1 } else { *size as usize }).collect();
    let counts = Tensor::from_vec(shape, counts).expect("one count for each place of the window").cast(dtype);
    let counts = b.nodes.constant(counts);
    let share = b.nodes.add("Div", &[&g, &counts]);
    let ones: Vec<usize> = [large[1], 1].iter().chain(&window.kernel).map(|size| *size as usize).collect();
    let elements = ones.iter().product();
    let ones = Tensor::from_vec(ones, vec![1f32; elements]).expect("the length is the shape").cast(dtype);
    let ones = b.nodes.constant(ones);
    let gradient = window.transpose(b, [&share, &ones], large[1], [&large[2..], &small[2..]]);
    b.set(0, gradient);
    Ok(())
}

/// Returns by how many elements each place of the window is divided.
fn window_counts(window: &Window, with_padding: bool, large: &[i64], small: &[i64]) -> Vec<f32> {
    let mut counts = vec![1f32];
    for axis in 0..large.len() {
        let count = |place: i64| {
            let start = place * window.strides[axis] - window.pads_begin[axis];
            let [low, high] = match with_padding {
                true => [-window.pads_begin[axis], large[axis] + window.pads_end[axis]],
                false => [0, large[axis]],
            };
            let taps = (0..window.kernel[axis]).map(|tap| start + tap * window.dilations[axis]);
            taps.filter(|position| (low..high).contains(position)).count() as f32
        };
        let along: Vec<f32> = (0..small[axis]).map(count).collect();
        counts = counts.iter().flat_map(|before| along.iter().map(move |count| before * count)).collect();
    }
    counts
}

pub(crate) fn global_average_pool(b: &mut Backward<'_, '_>, node: &Node) -> Result<(), String> {
    let (g, sizes, dtype) = (b.first()?, b.sizes(node, 0)?, b.dtype(node)?);
    let count: i64 = sizes[2..].iter().product();
    let share = b.nodes.scale(&g, 1.0 / count as f64, dtype);
    let shape = b.nodes.ints(&sizes);
    let gradient = b.nodes.add("Expand", &[&share, &shape]);
    b.set(0, gradient);
    Ok(())
}
