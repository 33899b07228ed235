//! A curve of values that arrive one by one, in memory of a fixed size: in a long run, neighbours become their mean.

/// Most points of a curve.
const POINTS_MAX: usize = 256;

/// The values so far.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    points: Vec<f64>,
    /// The number of values of each point.
    per_point: u32,
    /// The sum and the number of the values of the point that is not complete.
    open: (f64, u32),
    last: Option<f64>,
}

impl Default for Curve {
    fn default() -> Self {
        Curve { points: Vec::new(), per_point: 1, open: (0.0, 0), last: None }
    }
}

impl Curve {
    /// Adds a value; one that is not finite is left out.
    pub(super) fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.last = Some(value);
        self.open = (self.open.0 + value, self.open.1 + 1);
        if self.open.1 < self.per_point {
            return;
        }
        self.points.push(self.open.0 / f64::from(self.per_point));
        self.open = (0.0, 0);
        if self.points.len() == POINTS_MAX {
            self.points = self.points.chunks(2).map(mean).collect();
            self.per_point *= 2;
        }
    }

    /// Returns the newest value.
    pub(super) fn last(&self) -> Option<f64> {
        self.last
    }

    /// Returns at most `columns` points, from the first to the last: the means of neighbours.
    pub(super) fn fit(&self, columns: usize) -> Vec<f64> {
        let count = self.points.len();
        if count <= columns {
            return self.points.clone();
        }
        (0..columns)
            .map(|column| mean(&self.points[column * count / columns..(column + 1) * count / columns]))
            .collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_has_few_points_whose_mean_is_that_of_all_values() {
        let mut curve = Curve::default();
        (0..1 << 15).for_each(|value| curve.add(f64::from(value)));
        let points = curve.fit(100);
        assert!(curve.points.len() < POINTS_MAX && points.len() == 100, "{points:?}");
        assert!(points.is_sorted() && (mean(&points) / f64::from(1 << 14) - 1.0).abs() < 0.01, "{points:?}");
        assert_eq!(curve.last(), Some(f64::from((1 << 15) - 1)));
    }

    #[test]
    fn a_short_curve_has_its_own_values_and_none_that_is_not_a_number() {
        let mut curve = Curve::default();
        [2.0, f64::NAN, 4.0, f64::INFINITY].into_iter().for_each(|value| curve.add(value));
        assert_eq!(
            (curve.fit(100), curve.fit(1), curve.fit(0), curve.last()),
            (vec![2.0, 4.0], vec![3.0], vec![], Some(4.0))
        );
    }
}
