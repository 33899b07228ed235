//! The return value of an evaluator: metrics, or a map of figures of the batch.

use rhai::{Dynamic, Map};

use crate::names::script_type;
use crate::packages::options::number;
use crate::packages::tensor::Tensor;
use flagperf_core::metric::{Accumulator, range};

/// Metrics over some samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(pub(crate) Accumulator);

/// Largest number of observations per call: small enough that no number of steps overflows a 64-bit count.
pub(super) const COUNT_MAX: u64 = 1 << 32;
/// Largest length of a name in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Returns `count` observations with the total `sum` as the metric `name`.
///
/// # Errors
/// When the name is not one line, the numbers are not finite, there are too many observations, or their mean is outside
/// the range of the metric.
pub(super) fn mean(name: &str, sum: f64, count: u64) -> Result<Accumulator, String> {
    if !sum.is_finite() {
        return Err(format!("the mean `{name}` has a sum of {sum}: are the outputs finite?"));
    }
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(format!("a metric's name must be one line of 1 to {NAME_BYTES_MAX} bytes"));
    }
    if count == 0 && sum != 0.0 {
        return Err(format!("the mean `{name}` has a sum of {sum} but no observations"));
    }
    if count > COUNT_MAX {
        return Err(format!("the mean `{name}` has {count} observations (at most {COUNT_MAX} per call)"));
    }
    let (mean, range) = (sum / count as f64, range(name));
    if count > 0 && !range.contains(&mean) {
        let (from, to) = (range.start(), range.end());
        let range = if *to < f64::MAX { format!("{from} to {to}") } else { format!("at least {from}") };
        return Err(format!("`{name}` is {mean}, outside its range ({range})"));
    }
    Ok(Accumulator::mean(name, sum, count))
}

fn described(value: &Dynamic) -> String {
    if value.is::<Tensor>() { "a tensor: `.item()` returns its only element".to_owned() } else { format!("`{value}`") }
}

/// Converts the return value of an evaluator. A map has the figures of the batch by name, each the mean of `rows`
/// observations. The error is the reason why it contains no metrics.
pub(crate) fn from_script(returned: &Dynamic, rows: usize) -> Result<Accumulator, String> {
    if let Some(metrics) = returned.read_lock::<Metrics>() {
        return Ok(metrics.0.clone());
    }
    let Some(map) = returned.read_lock::<Map>() else {
        let actual = script_type(returned);
        return Err(format!("`evaluator` must return metrics (`metric::...`) or a map of figures, not {actual}"));
    };
    let mut figures = Accumulator::default();
    for (name, value) in map.iter() {
        let refused = || format!("the figure `{name}` must be a number, not {}", described(value));
        let value = number(value).ok_or_else(refused)?;
        figures.merge(&mean(name, value * rows as f64, rows as u64)?).map_err(|error| error.to_string())?;
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    use flagperf_core::tensor::Tensor as HostTensor;
    use flagperf_engine::Value;

    fn reason(figures: &[(&str, f64)]) -> String {
        let map: Map = figures.iter().map(|(name, value)| ((*name).into(), Dynamic::from(*value))).collect();
        from_script(&Dynamic::from(map), 4).unwrap_err()
    }

    #[test]
    fn a_map_of_figures_counts_the_rows_of_the_batch() {
        let map = Map::from([("words".into(), Dynamic::from(2.5)), ("top1".into(), Dynamic::from(1i64))]);
        let figures = from_script(&Dynamic::from(map), 4).unwrap();
        assert_eq!((figures.finish()["words"], figures.finish()["top1"], figures.observations()), (2.5, 1.0, 4));
    }

    #[test]
    fn a_figure_outside_the_range_of_its_metric_is_refused() {
        assert_eq!(reason(&[("top1", 76.1)]), "`top1` is 76.1, outside its range (0 to 1)");
        assert_eq!(reason(&[("perplexity", 0.5)]), "`perplexity` is 0.5, outside its range (at least 1)");
        assert_eq!(mean("map", 5.0, 4).unwrap_err(), "`map` is 1.25, outside its range (0 to 1)");
        assert!(reason(&[("words", f64::NAN)]).contains("are the outputs finite?"));
    }

    #[test]
    fn anything_else_than_metrics_is_refused() {
        let expected = "`evaluator` must return metrics (`metric::...`) or a map of figures, not int";
        assert_eq!(from_script(&Dynamic::from(7i64), 1).unwrap_err(), expected);
        let map = Map::from([("words".into(), Dynamic::from("many"))]);
        assert_eq!(from_script(&map.into(), 1).unwrap_err(), "the figure `words` must be a number, not `many`");
        let map =
            Map::from([("mse".into(), Dynamic::from(Tensor::uncounted(Value::Host(HostTensor::scalar(0.5f32)))))]);
        let expected = "the figure `mse` must be a number, not a tensor: `.item()` returns its only element";
        assert_eq!(from_script(&map.into(), 1).unwrap_err(), expected);
    }
}
