//! The gradient of the weight of a convolution, as products of matrices whose rows are channels and whose columns are positions.
//!
//! A convolution with the gradient as its kernel computes the same, but its kernel is as large as the image: libraries are slow
//! with it.

use super::Backward;
use super::window::Window;
use crate::Attribute;

/// The most taps of which each becomes a product. More of them would make the graph large.
const TAPS_MAX: i64 = 64;

/// Values `batch,channels,…` with their sizes.
pub(super) type Planes<'a> = (&'a str, &'a [i64]);

impl Window {
    /// Adds the gradient of a weight `outputs,channels/groups,…` from the image and the gradient of the output.
    pub(super) fn weight_gradient(
        &self,
        b: &mut Backward<'_, '_>,
        image: Planes<'_>,
        g: Planes<'_>,
        groups: i64,
    ) -> String {
        let taps: i64 = self.kernel.iter().product();
        let ((_, large), (_, small)) = (image, g);
        let (channels, outputs) = (large[1] / groups, small[1] / groups);
        let positions = small[0] * small[2..].iter().product::<i64>();
        let columns = b.nodes.reshape(g.0, &[small[0], groups, outputs, -1]);
        let columns = b.nodes.transpose(&columns, &[1, 0, 3, 2]);
        let columns = b.nodes.reshape(&columns, &[groups, positions, outputs]);
        let product = if self.is_tiling(&large[2..], &small[2..]) {
            let rows = self.tiles(b, image);
            let rows = b.nodes.reshape(&rows, &[groups, channels * taps, positions]);
            b.nodes.add("MatMul", &[&rows, &columns])
        } else if taps <= TAPS_MAX {
            let of_tap = |b: &mut Backward<'_, '_>, rows: &String| {
                let rows = b.nodes.reshape(rows, &[groups, channels, positions]);
                let product = b.nodes.add("MatMul", &[&rows, &columns]);
                b.nodes.unsqueeze(&product, &[2])
            };
            let rows = self.shifted(b, image, &small[2..]);
            let products: Vec<String> = rows.iter().map(|rows| of_tap(b, rows)).collect();
            let products: Vec<&str> = products.iter().map(String::as_str).collect();
            let joined = b.nodes.add_with("Concat", &products, [("axis", Attribute::Int(2))]);
            b.nodes.reshape(&joined, &[groups, channels * taps, outputs])
        } else {
            return self.weight_gradient_by_convolution(b, image, g, groups);
        };
        let rows = b.nodes.transpose(&product, &[0, 2, 1]);
        b.nodes.reshape(&rows, &[&[small[1], channels], &self.kernel[..]].concat())
    }

    /// Returns whether every element of the image is in one window.
    fn is_tiling(&self, large: &[i64], small: &[i64]) -> bool {
        let fits = |axis: usize| large[axis] == small[axis] * self.strides[axis];
        let is_bare = self.pads().iter().all(|pad| *pad == 0) && self.strides == self.kernel;
        is_bare
            && (0..large.len()).all(fits)
            && self.dilations.iter().zip(&self.kernel).all(|(d, k)| *d == 1 || *k == 1)
    }

    /// Adds the image as `channels,taps,batch,positions`, if its windows are its tiles.
    fn tiles(&self, b: &mut Backward<'_, '_>, (image, sizes): Planes<'_>) -> String {
        let mut split = sizes[..2].to_vec();
        for (size, kernel) in sizes[2..].iter().zip(&self.kernel) {
            split.extend([size / kernel, *kernel]);
        }
        let spatial = self.kernel.len() as i64;
        let taps = (0..spatial).map(|axis| 3 + 2 * axis);
        let places = (0..spatial).map(|axis| 2 + 2 * axis);
        let order: Vec<i64> = [1].into_iter().chain(taps).chain([0]).chain(places).collect();
        let split = b.nodes.reshape(image, &split);
        b.nodes.transpose(&split, &order)
    }

    /// Adds, for each tap, the elements that it reads, as `channels,batch,positions`.
    fn shifted(&self, b: &mut Backward<'_, '_>, (image, sizes): Planes<'_>, small: &[i64]) -> Vec<String> {
        let axes: Vec<i64> = (2..sizes.len() as i64).collect();
        let order: Vec<i64> = [1, 0].into_iter().chain(axes.iter().copied()).collect();
        let mut image = b.nodes.transpose(image, &order);
        let last =
            |axis: usize| self.dilations[axis] * (self.kernel[axis] - 1) + self.strides[axis] * (small[axis] - 1);
        let missing = |axis: usize| (last(axis) + 1 - sizes[2 + axis] - self.pads_begin[axis]).max(0);
        let ends: Vec<i64> = (0..small.len()).map(missing).collect();
        if self.pads_begin.iter().chain(&ends).any(|pad| *pad != 0) {
            let pads = b.nodes.ints(&[&[0, 0], &self.pads_begin[..], &[0, 0], &ends].concat());
            image = b.nodes.add("Pad", &[&image, &pads]);
        }
        let axes = b.nodes.ints(&axes);
        let strides = b.nodes.ints(&self.strides);
        let taps: i64 = self.kernel.iter().product();
        let slice = |tap: i64| {
            let (mut rest, mut starts) = (tap, vec![0; small.len()]);
            for axis in (0..small.len()).rev() {
                starts[axis] = rest % self.kernel[axis] * self.dilations[axis];
                rest /= self.kernel[axis];
            }
            let end = |axis: usize| starts[axis] + self.strides[axis] * (small[axis] - 1) + 1;
            let ends: Vec<i64> = (0..small.len()).map(end).collect();
            let [starts, ends] = [&starts, &ends].map(|list| b.nodes.ints(list));
            b.nodes.add("Slice", &[&image, &starts, &ends, &axes, &strides])
        };
        (0..taps).map(slice).collect()
    }

    /// Adds the same by a convolution: the image and the gradient change places with batch and channels
    /// swapped, strides and dilations change places, too.
    fn weight_gradient_by_convolution(
        &self,
        b: &mut Backward<'_, '_>,
        (image, image_sizes): Planes<'_>,
        (g, g_sizes): Planes<'_>,
        groups: i64,
    ) -> String {
        let swap: Vec<i64> = [1, 0].into_iter().chain(2..image_sizes.len() as i64).collect();
        let (batch, channels) = (image_sizes[0], image_sizes[1]);
        let image = if groups == 1 {
            b.nodes.transpose(image, &swap)
        } else {
            let spatial = &image_sizes[2..];
            let apart = b.nodes.reshape(image, &[&[batch, groups, channels / groups], spatial].concat());
            let order: Vec<i64> = [2, 1, 0].into_iter().chain(3..image_sizes.len() as i64 + 1).collect();
            let moved = b.nodes.transpose(&apart, &order);
            b.nodes.reshape(&moved, &[&[channels / groups, groups * batch], spatial].concat())
        };
        let g = b.nodes.transpose(g, &swap);
        let attributes = [
            ("dilations", Attribute::Ints(self.strides.clone())),
            ("group", Attribute::Int(groups)),
            ("kernel_shape", Attribute::Ints(g_sizes[2..].to_vec())),
            ("pads", Attribute::Ints(self.pads())),
            ("strides", Attribute::Ints(self.dilations.clone())),
        ];
        let mut product = b.nodes.add_with("Conv", &[&image, &g], attributes);
        for (axis, kernel) in self.kernel.iter().enumerate() {
            let reach = self.strides[axis] * (g_sizes[2 + axis] - 1) + 1;
            let padded = image_sizes[2 + axis] + self.pads_begin[axis] + self.pads_end[axis];
            if (padded - reach) / self.dilations[axis] + 1 != *kernel {
                product = b.nodes.slice(&product, 2 + axis as i64, [0, *kernel, 1]);
            }
        }
        b.nodes.transpose(&product, &swap)
    }
}
