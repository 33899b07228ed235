//! Where a resized axis reads its input, and with which weights: the definitions of ONNX's operator `Resize`.

use super::super::OpError;
use super::super::result_size::check_result_size;
use flagperf_onnx::DType;

/// How a place of the result is converted to a coordinate of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    TfHalfPixelForNearest,
    TfCropAndResize,
}

/// How the nearest element is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NearestRounding {
    PreferFloor,
    PreferCeil,
    Floor,
    Ceil,
}

/// How a value between elements is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Interpolation {
    Nearest(NearestRounding),
    Linear,
    /// With the coefficient `a` of Keys 1981, "Cubic Convolution Interpolation".
    Cubic(f64),
}

/// The attributes that determine places and weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub interpolation: Interpolation,
    pub coordinates: Coordinates,
    /// Whether a reduction in size averages over all elements that it covers.
    pub antialias: bool,
    /// Whether places outside the input have the weight 0 instead of repeating the outermost element.
    pub exclude_outside: bool,
    /// The value outside the region of `TfCropAndResize`.
    pub extrapolation_value: f64,
}

/// The sizes of one axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scaling {
    pub input: usize,
    pub output: usize,
    pub scale: f64,
    /// Beginning and end of the region of `TfCropAndResize`, relative to the size.
    pub region: [f64; 2],
}

impl Scaling {
    pub fn is_identity(&self) -> bool {
        self.input == self.output && self.scale == 1.0 && self.region == [0.0, 1.0]
    }
}

/// The places that one tap reads for each entry of the result, and their weights; no weights stand for ones.
pub(super) type Tap = (Vec<usize>, Option<Vec<f64>>);

/// The sources of one axis.
pub(super) struct AxisTable {
    pub output: usize,
    pub taps: Vec<Tap>,
    /// Whether an entry of the result lies outside the input.
    pub outside: Vec<bool>,
}

impl AxisTable {
    /// Returns the weights as a matrix of `input` rows and one column for each entry of the result.
    pub fn matrix(&self, input: usize) -> Result<Vec<f64>, OpError> {
        check_result_size(&[input, self.output], DType::F64)?;
        let mut matrix = vec![0.0; input * self.output];
        for (places, weights) in &self.taps {
            for (column, place) in places.iter().enumerate() {
                matrix[place * self.output + column] += weights.as_ref().map_or(1.0, |weights| weights[column]);
            }
        }
        Ok(matrix)
    }
}

impl Sampling {
    /// Returns the sources of an axis. Its sizes are not zero.
    pub(super) fn table(&self, scaling: &Scaling) -> Result<AxisTable, OpError> {
        let coordinates: Vec<f64> = (0..scaling.output).map(|place| self.coordinate(place as f64, scaling)).collect();
        let last = (scaling.input - 1) as f64;
        let crops = self.coordinates == Coordinates::TfCropAndResize;
        let outside = coordinates.iter().map(|x| crops && !(0.0..=last).contains(x)).collect();
        let taps = match self.interpolation {
            Interpolation::Nearest(rounding) => {
                let nearest = |x: &f64| rounding.apply(*x).clamp(0.0, last) as usize;
                vec![(coordinates.iter().map(nearest).collect(), None)]
            }
            _ => self.weighted_taps(&coordinates, scaling)?,
        };
        Ok(AxisTable { output: scaling.output, taps, outside })
    }

    fn coordinate(&self, place: f64, scaling: &Scaling) -> f64 {
        let Scaling { input, output, scale, region: [start, end] } = *scaling;
        let (size, resized) = (input as f64, output as f64);
        // As in ONNX Runtime, the nearest element is found in f32: a place exactly between two elements stays there.
        let is_nearest = matches!(self.interpolation, Interpolation::Nearest(_));
        let round = |x: f64| if is_nearest { f64::from(x as f32) } else { x };
        let half_pixel = round(round((place + 0.5) / scale) - 0.5);
        match self.coordinates {
            Coordinates::HalfPixel => half_pixel,
            Coordinates::HalfPixelSymmetric => {
                let adjustment = resized / (scale * size);
                size / 2.0 * (1.0 - adjustment) + half_pixel
            }
            Coordinates::PytorchHalfPixel if output == 1 => 0.0,
            Coordinates::PytorchHalfPixel => half_pixel,
            Coordinates::AlignCorners if output == 1 => 0.0,
            Coordinates::AlignCorners => round(place * (size - 1.0) / (resized - 1.0)),
            Coordinates::Asymmetric => round(place / scale),
            Coordinates::TfHalfPixelForNearest => round((place + 0.5) / scale),
            Coordinates::TfCropAndResize if output == 1 => 0.5 * (start + end) * (size - 1.0),
            Coordinates::TfCropAndResize => {
                start * (size - 1.0) + place * (end - start) * (size - 1.0) / (resized - 1.0)
            }
        }
    }

    fn weighted_taps(&self, coordinates: &[f64], scaling: &Scaling) -> Result<Vec<Tap>, OpError> {
        // Without antialiasing, and when an axis grows, a kernel covers as many elements as it has coefficients.
        let shrink = if self.antialias { scaling.scale.min(1.0) } else { 1.0 };
        let reach = if self.interpolation == Interpolation::Linear { 1.0 } else { 2.0 };
        let first = (-reach / shrink).floor() + 1.0;
        let count = (2.0 - 2.0 * first) as usize;
        check_result_size(&[count, scaling.output], DType::F64)?;
        let mut taps: Vec<Tap> = vec![(Vec::new(), Some(Vec::new())); count];
        let last = (scaling.input - 1) as f64;
        for x in coordinates {
            let base = x.ceil() - 1.0;
            let offsets = (0..count).map(|tap| first + tap as f64);
            let mut weights: Vec<f64> = offsets.map(|at| self.kernel((base + at - x) * shrink)).collect();
            let place = |tap: usize| base + first + tap as f64;
            if self.exclude_outside {
                let inside = |tap: usize| (0.0..=last).contains(&place(tap));
                weights.iter_mut().enumerate().for_each(|(tap, weight)| {
                    if !inside(tap) {
                        *weight = 0.0
                    }
                });
            }
            let sum: f64 = weights.iter().sum();
            for (tap, (places, all)) in taps.iter_mut().enumerate() {
                places.push(place(tap).clamp(0.0, last) as usize);
                all.get_or_insert_default().push(weights[tap] / sum);
            }
        }
        Ok(taps)
    }

    /// Returns the weight of an element at a distance from the coordinate.
    fn kernel(&self, distance: f64) -> f64 {
        let x = distance.abs();
        match self.interpolation {
            Interpolation::Cubic(a) if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            Interpolation::Cubic(a) if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            Interpolation::Cubic(_) => 0.0,
            _ => (1.0 - x).max(0.0),
        }
    }
}

impl NearestRounding {
    fn apply(self, x: f64) -> f64 {
        match self {
            NearestRounding::PreferFloor => (x - 0.5).ceil(),
            NearestRounding::PreferCeil => (x + 0.5).floor(),
            NearestRounding::Floor => x.floor(),
            NearestRounding::Ceil => x.ceil(),
        }
    }
}
