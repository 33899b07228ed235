//! The roofline of a device, with the results that were measured on it (Williams, Waterman, Patterson, "Roofline: An Insightful Visual
//! Performance Model for Multicore Architectures", CACM 52, 2009).

use flagperf_core::tensor::{DType, TensorSpec};
use flagperf_report::{digits, percent};
use flagperf_result::{PhaseRecord, Record};

use super::chart::{Chart, Part};
use super::figures::{Figure, head, legend};
use super::result::text;
use super::words::Language;

const TITLE: &str = "FLOP/s over FLOP/byte";
const DESCRIPTION: &str = "Each line is the most that the measured peaks of a device allow, each dot a result.";
const NOTE: &str = "FLOP/byte are at most as many as shown: each weight is read once for a batch, and inputs and outputs are moved once; values between operators are not counted. The peaks are those of `flagperf peak`.";
/// How far the axes go beyond dots and lines: a factor.
const MARGIN: f64 = 2.0;

/// What a device reaches at most in a precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Roof {
    pub device: String,
    pub precision: String,
    /// Floating-point operations per second of a matrix product.
    pub flops_per_s: f64,
    /// Bytes per second from and to its memory.
    pub bytes_per_s: f64,
}

/// Roofs, and results that were measured on their devices.
#[derive(Clone, Debug, Default)]
pub struct Roofline {
    pub roofs: Vec<Roof>,
    pub points: Vec<RooflinePoint>,
    /// The results that are not on the figure, each with the reason.
    pub unused: Vec<String>,
}

/// A result under a roof.
#[derive(Clone, Debug)]
pub struct RooflinePoint {
    pub name: String,
    /// Index of its roof.
    pub roof: usize,
    /// Floating-point operations per byte, at most.
    pub flops_per_byte: f64,
    pub flops_per_s: f64,
}

impl Roof {
    /// Returns the most operations per second with so many operations per byte.
    fn at(&self, flops_per_byte: f64) -> f64 {
        self.flops_per_s.min(self.bytes_per_s * flops_per_byte)
    }
}

impl RooflinePoint {
    /// Returns the place of a result under a roof.
    ///
    /// # Errors
    /// When its operations, or the sizes of its tensors, are not known.
    pub fn of(record: &Record, name: String, roof: usize) -> Result<Self, String> {
        let phase = record.headline_phase().ok_or("nothing was measured")?;
        let flops_per_s = record.flops.counted_flops_per_s.ok_or("the operations of the model are unknown")?.0;
        let (batch, operations) = phase
            .measured
            .first()
            .and_then(|measured| Some((measured.batch_size, measured.multiply_adds_per_sample?)))
            .ok_or("the operations of the model are unknown")?;
        let bytes = batch_bytes(phase, batch as usize)?;
        let flops_per_byte = 2.0 * operations as f64 * f64::from(batch) / bytes;
        Ok(RooflinePoint { name, roof, flops_per_byte, flops_per_s })
    }
}

/// Returns the bytes of the weights, inputs and outputs of a batch.
fn batch_bytes(phase: &PhaseRecord, batch: usize) -> Result<f64, String> {
    let (model, engine) =
        phase.model.as_ref().zip(phase.engine.as_ref()).ok_or("the model of the result is not known")?;
    let parameters = model.parameters.ok_or("the number of parameters is not known")?;
    let size = engine.precision.parse::<DType>().map_or(4, DType::size);
    let mut bytes = parameters as f64 * size as f64;
    for (name, spec) in model.inputs.iter().chain(&model.outputs) {
        let sizes = spec.parse::<TensorSpec>().ok().and_then(|spec| spec.bytes_of_rows(batch));
        bytes += sizes.ok_or_else(|| format!("the size of `{name}` is not known"))? as f64;
    }
    Ok(bytes)
}

/// Draws results under the roofs of their devices, with both axes logarithmic. `None` without a result.
pub(super) fn roofline_figure(found: &Roofline, language: Language) -> Option<Figure> {
    let ridge = |roof: &Roof| roof.flops_per_s / roof.bytes_per_s;
    let places = found.points.iter().map(|point| point.flops_per_byte).chain(found.roofs.iter().map(ridge));
    let rates = found.points.iter().map(|point| point.flops_per_s).chain(found.roofs.iter().map(|r| r.flops_per_s));
    found.points.first()?;
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min) / MARGIN;
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max) * MARGIN;
    let (x, y) =
        (least(&mut places.clone())..most(&mut places.clone()), least(&mut rates.clone())..most(&mut rates.clone()));
    let logarithm = |(x, y): (f64, f64)| (x.log10(), y.log10());
    let parts = found.roofs.iter().enumerate().flat_map(|(colour, roof)| {
        // A roof below the axis begins where it crosses it.
        let begin = x.start.max(y.start / roof.bytes_per_s);
        let line = [begin, ridge(roof).max(begin), x.end].map(|place| logarithm((place, roof.at(place))));
        let dots = found.points.iter().filter(|point| point.roof == colour);
        let dots = dots.map(|point| logarithm((point.flops_per_byte, point.flops_per_s))).collect();
        [Part::Line(line.to_vec(), colour), Part::Dots(dots, colour)]
    });
    let chart = Chart {
        x: x.start.log10()..x.end.log10(),
        y: y.start.log10()..y.end.log10(),
        x_label: |place| digits(10f64.powf(place)),
        y_label: |rate| with_prefix(10f64.powf(rate)),
        parts: parts.collect(),
    };
    let names: Vec<String> =
        found.roofs.iter().map(|roof| text(&format!("{}, {}", roof.device, roof.precision))).collect();
    let row = |point: &RooflinePoint| {
        let most = found.roofs[point.roof].at(point.flops_per_byte);
        vec![
            text(&point.name),
            digits(point.flops_per_byte),
            with_prefix(point.flops_per_s),
            with_prefix(most),
            percent(point.flops_per_s / most),
        ]
    };
    let unused = found.unused.iter().map(|reason| language.sentence("Not shown: {}", &[&text(reason)]));
    Some(Figure {
        title: language.word(TITLE).to_owned(),
        description: language.word(DESCRIPTION).to_owned(),
        elements: chart.elements(),
        legend: legend(names.iter()),
        note: Some(std::iter::once(language.word(NOTE).to_owned()).chain(unused).collect::<Vec<_>>().join(" ")),
        head: head(["case", "FLOP/byte", "FLOP/s", "at most", "share"], language),
        rows: found.points.iter().map(row).collect(),
    })
}

/// Returns a rate with a decimal prefix: `1.20 T`.
pub(super) fn with_prefix(rate: f64) -> String {
    let prefixes = [(1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1.0, "")];
    let (scale, prefix) = prefixes.into_iter().find(|(scale, _)| rate >= *scale).unwrap_or((1.0, ""));
    format!("{}{prefix}", digits(rate / scale))
}

#[cfg(test)]
mod tests {
    use flagperf_core::event::{EngineFacts, ModelFacts};
    use flagperf_core::step::Phase;

    use super::*;

    fn roof() -> Roof {
        Roof { device: "X".to_owned(), precision: "f16".to_owned(), flops_per_s: 1e12, bytes_per_s: 1e10 }
    }

    #[test]
    fn a_roof_rises_with_the_operations_per_byte_up_to_the_peak() {
        let roof = roof();
        assert_eq!([1.0, 100.0, 1e6].map(|place| roof.at(place)), [1e10, 1e12, 1e12]);
    }

    #[test]
    fn weights_inputs_and_outputs_of_a_batch_are_moved_once() {
        let specs = |spec: &str| [("t".to_owned(), spec.to_owned())].into_iter().collect();
        let mut phase = PhaseRecord::new(Phase::Infer);
        phase.model = Some(ModelFacts {
            parameters: Some(100),
            inputs: specs("N,3,f16"),
            outputs: specs("N,5,f32"),
            ..ModelFacts::default()
        });
        phase.engine = Some(EngineFacts { precision: "f16".to_owned(), ..EngineFacts::default() });
        assert_eq!(batch_bytes(&phase, 4), Ok(100.0 * 2.0 + 4.0 * 3.0 * 2.0 + 4.0 * 5.0 * 4.0));
        phase.model.as_mut().unwrap().inputs = specs("N,S,f16");
        assert_eq!(batch_bytes(&phase, 4), Err("the size of `t` is not known".to_owned()));
        phase.model.as_mut().unwrap().inputs = specs("N,9223372036854775807,f16");
        assert!(batch_bytes(&phase, 4).is_err(), "more than any memory");
    }

    #[test]
    fn a_result_is_beside_the_most_that_its_device_allows() {
        let point = RooflinePoint { name: "<case>".to_owned(), roof: 0, flops_per_byte: 50.0, flops_per_s: 2.5e11 };
        let found = Roofline { roofs: vec![roof()], points: vec![point], unused: vec!["b: <why>".to_owned()] };
        let figure = roofline_figure(&found, Language::English).unwrap();
        assert_eq!(figure.rows[0][1..], ["50.0", "250 G", "500 G", "50.0%"]);
        assert!(figure.elements.contains("<polyline") && figure.note.unwrap().contains("Not shown: b: <why>"));
        assert!(roofline_figure(&Roofline { points: Vec::new(), ..found }, Language::English).is_none());
    }
}
