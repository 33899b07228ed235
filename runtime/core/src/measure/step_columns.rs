//! The times of steps as columns, which is the form in which they leave the worker: a third of the size of rows.

use serde::{Deserialize, Serialize};

use super::StepTimes;
use crate::hash::OutputDigest;
use crate::units::Seconds;

/// Times of successive steps of one pass. Each column has one value per step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Columns", into = "Columns")]
pub struct StepColumns(pub Vec<StepTimes>);

/// Largest number of steps in one event; a pass with more steps has several events.
pub const STEPS_PER_EVENT: usize = 50_000;

/// Other keys are ignored: the event that contains the columns has some.
#[derive(Clone, Serialize, Deserialize)]
struct Columns {
    pass: u32,
    samples: Vec<u32>,
    load_wait_s: Vec<Seconds>,
    core_s: Vec<Seconds>,
    output_s: Vec<Seconds>,
    evaluate_s: Vec<Seconds>,
    host_s: Vec<Seconds>,
    outputs: Vec<OutputDigest>,
}

impl From<StepColumns> for Columns {
    fn from(StepColumns(steps): StepColumns) -> Self {
        let times = |part: fn(&StepTimes) -> Seconds| steps.iter().map(part).collect();
        Columns {
            pass: steps.first().map_or(0, |step| step.pass),
            samples: steps.iter().map(|step| step.samples).collect(),
            load_wait_s: times(|step| step.load_wait_s),
            core_s: times(|step| step.core_s),
            output_s: times(|step| step.output_s),
            evaluate_s: times(|step| step.evaluate_s),
            host_s: times(|step| step.host_s),
            outputs: steps.iter().map(|step| step.outputs).collect(),
        }
    }
}

impl TryFrom<Columns> for StepColumns {
    type Error = &'static str;

    /// Fails when the columns differ in length, or a time is negative or not finite.
    fn try_from(columns: Columns) -> Result<Self, Self::Error> {
        let Columns { pass, samples, load_wait_s, core_s, output_s, evaluate_s, host_s, outputs } = columns;
        let times = [&load_wait_s, &core_s, &output_s, &evaluate_s, &host_s];
        if outputs.len() != samples.len() || times.iter().any(|column| column.len() != samples.len()) {
            return Err("the columns of step times differ in length");
        }
        if times.into_iter().flatten().any(|time| !time.0.is_finite() || time.0 < 0.0) {
            return Err("a step time is negative or not finite");
        }
        let step = |row: usize| StepTimes {
            pass,
            samples: samples[row],
            load_wait_s: load_wait_s[row],
            core_s: core_s[row],
            output_s: output_s[row],
            evaluate_s: evaluate_s[row],
            host_s: host_s[row],
            outputs: outputs[row],
        };
        Ok(StepColumns((0..samples.len()).map(step).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back_exactly_as_they_were_written() {
        let steps: Vec<_> = (1..1000)
            .map(|i| StepTimes { pass: 3, samples: i, core_s: Seconds(1.0 / f64::from(i)), ..StepTimes::default() })
            .collect();
        let text = serde_json::to_string(&StepColumns(steps.clone())).unwrap();
        assert_eq!(serde_json::from_str::<StepColumns>(&text).unwrap().0, steps);
        let object = text.replacen('{', "{\"event\":\"steps\",", 1);
        assert_eq!(serde_json::from_str::<StepColumns>(&object).unwrap().0, steps);
    }

    #[test]
    fn impossible_times_and_columns_of_different_lengths_are_refused() {
        let text = serde_json::to_string(&StepColumns(vec![StepTimes::default()])).unwrap();
        let refused = |from: &str, to: &str| {
            serde_json::from_str::<StepColumns>(&text.replace(from, to)).unwrap_err().to_string()
        };
        assert_eq!(refused("\"core_s\":[0.0]", "\"core_s\":[]"), "the columns of step times differ in length");
        for wrong in ["[-1.0]", "[null]"] {
            assert_eq!(refused("[0.0]", wrong), "a step time is negative or not finite");
        }
    }
}
