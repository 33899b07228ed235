//! Decomposition of GridSample into gathered elements and their weights.

use super::node_list::{NodeList, int, required};
use crate::{Attribute, DType, Node};

/// What lies outside the image.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// The elements that a point reads along one dimension of the image.
struct Tap {
    /// The index (i64).
    place: String,
    weight: String,
}

/// GridSample that reads the nearest element or interpolates between neighbours, of images with any number of dimensions.
pub(crate) fn grid_sample(nodes: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let text = |name: &str, default: &str| match node.attributes.get(name) {
        Some(Attribute::String(text)) => text.clone(),
        _ => default.to_owned(),
    };
    let is_nearest = match &*text("mode", "linear") {
        "nearest" => true,
        "linear" | "bilinear" => false,
        other => return Err(format!("`mode` is `{other}`")),
    };
    let outside = match &*text("padding_mode", "zeros") {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        other => return Err(format!("`padding_mode` is `{other}`")),
    };
    let corners = int(node, "align_corners").unwrap_or(0) != 0;
    let (x, grid) = (required(node, 0)?, required(node, 1)?);
    let sizes = |nodes: &NodeList<'_>, name: &str| -> Result<Vec<i64>, String> {
        let spec = nodes.spec(name)?;
        let sizes = spec.fixed_shape().ok_or_else(|| format!("not every size of `{name}` (`{spec}`) is known"))?;
        Ok(sizes.into_iter().map(|size| size as i64).collect())
    };
    let (image, points) = (sizes(nodes, x)?, sizes(nodes, grid)?);
    let (dtype, grid_dtype) = (nodes.spec(x)?.dtype, nodes.spec(grid)?.dtype);
    let (channels, spatial) = (image[1], &image[2..]);
    let count: i64 = points[1..points.len() - 1].iter().product();
    let list = nodes.reshape(grid, &[image[0], count, spatial.len() as i64]);
    let mut taps = vec![];
    for (axis, size) in spatial.iter().enumerate() {
        let i = (spatial.len() - 1 - axis) as i64;
        let coordinate = nodes.slice(&list, 2, [i, i + 1, 1]);
        let coordinate = nodes.reshape(&coordinate, &[image[0], 1, count]);
        let along = Axis { size: *size, corners, outside, dtype: grid_dtype }.taps(nodes, &coordinate, is_nearest);
        taps = if axis == 0 { along } else { combine(nodes, &taps, &along, *size) };
    }
    let flat = nodes.reshape(x, &[image[0], channels, -1]);
    let shape = nodes.ints(&[image[0], channels, count]);
    let mut terms = vec![];
    for Tap { place, weight } in taps {
        let places = nodes.add("Expand", &[&place, &shape]);
        let elements = nodes.add_with("GatherElements", &[&flat, &places], [("axis", Attribute::Int(2))]);
        let weight = if grid_dtype == dtype { weight } else { nodes.cast(&weight, dtype) };
        terms.push(nodes.add("Mul", &[&elements, &weight]));
    }
    let terms: Vec<&str> = terms.iter().map(String::as_str).collect();
    let sum = nodes.add("Sum", &terms);
    let shape = nodes.ints(&[&[image[0], channels], &points[1..points.len() - 1]].concat());
    nodes.define("Reshape", &[&sum, &shape], &node.outputs[0]);
    Ok(())
}

/// Adds the taps of one more dimension, of a size, to those of the dimensions before it.
fn combine(nodes: &mut NodeList<'_>, before: &[Tap], along: &[Tap], size: i64) -> Vec<Tap> {
    let size = nodes.ints(&[size]);
    let mut taps = vec![];
    for outer in before {
        let start = nodes.add("Mul", &[&outer.place, &size]);
        for inner in along {
            let place = nodes.add("Add", &[&start, &inner.place]);
            taps.push(Tap { place, weight: nodes.add("Mul", &[&outer.weight, &inner.weight]) });
        }
    }
    taps
}

/// One dimension of the image.
struct Axis {
    size: i64,
    corners: bool,
    outside: Outside,
    dtype: DType,
}

impl Axis {
    /// Adds the taps of coordinates between -1 and 1.
    fn taps(&self, nodes: &mut NodeList<'_>, coordinate: &str, is_nearest: bool) -> Vec<Tap> {
        let (length, dtype) = (self.size as f64, self.dtype);
        let [factor, offset] = if self.corners { [length - 1.0; 2] } else { [length, length - 1.0] }.map(|x| x / 2.0);
        let scaled = nodes.scale(coordinate, factor, dtype);
        let offset = nodes.number(offset, dtype);
        let mut place = nodes.add("Add", &[&scaled, &offset]);
        if is_nearest {
            place = nodes.add("Round", &[&place]);
        }
        place = match self.outside {
            Outside::Zeros => place,
            Outside::Border => self.clamp(nodes, &place),
            Outside::Reflection => {
                let reflected = self.reflect(nodes, &place);
                self.clamp(nodes, &reflected)
            }
        };
        let one = nodes.number(1.0, dtype);
        if is_nearest {
            // A reflected place of a half is rounded again.
            let place = nodes.add("Round", &[&place]);
            return vec![self.tap(nodes, &place, &one)];
        }
        let first = nodes.add("Floor", &[&place]);
        let rest = nodes.add("Sub", &[&place, &first]);
        let weight = nodes.add("Sub", &[&one, &rest]);
        let second = nodes.add("Add", &[&first, &one]);
        vec![self.tap(nodes, &first, &weight), self.tap(nodes, &second, &rest)]
    }

    /// Adds the index of a whole number, and its weight: none outside the image.
    fn tap(&self, nodes: &mut NodeList<'_>, place: &str, weight: &str) -> Tap {
        let inside = self.clamp(nodes, place);
        let index = nodes.cast(&inside, DType::I64);
        let is_inside = nodes.add("Equal", &[&inside, place]);
        let mask = nodes.cast(&is_inside, self.dtype);
        Tap { place: index, weight: nodes.add("Mul", &[weight, &mask]) }
    }

    fn clamp(&self, nodes: &mut NodeList<'_>, place: &str) -> String {
        let [low, high] = [0.0, self.size as f64 - 1.0].map(|bound| nodes.number(bound, self.dtype));
        nodes.add("Clip", &[place, &low, &high])
    }

    /// Adds places mirrored at the bounds until they lie between them.
    fn reflect(&self, nodes: &mut NodeList<'_>, place: &str) -> String {
        let (length, dtype) = (self.size as f64, self.dtype);
        let [low, range] = if self.corners { [0.0, length - 1.0] } else { [-0.5, length] };
        if range == 0.0 {
            return nodes.number(0.0, dtype);
        }
        let [bound, span, two] = [low, range, 2.0].map(|number| nodes.number(number, dtype));
        let shifted = nodes.add("Sub", &[place, &bound]);
        let distance = nodes.add("Abs", &[&shifted]);
        let ratio = nodes.add("Div", &[&distance, &span]);
        let flips = nodes.add("Floor", &[&ratio]);
        let whole = nodes.add("Mul", &[&flips, &span]);
        let rest = nodes.add("Sub", &[&distance, &whole]);
        let half = nodes.add("Div", &[&flips, &two]);
        let pairs = nodes.add("Floor", &[&half]);
        let even = nodes.add("Equal", &[&half, &pairs]);
        let back = nodes.add("Sub", &[&span, &rest]);
        let mirrored = nodes.add("Where", &[&even, &rest, &back]);
        nodes.add("Add", &[&mirrored, &bound])
    }
}
