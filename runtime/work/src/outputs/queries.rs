//! The outputs of some queries of a scenario, which are compared with those of the same samples in a pass.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use flagperf_core::metric::{Agreement, AgreementMeter, OutputAgreement};
use flagperf_core::tensor::Tensor;

use super::KeptOutputs;

/// Number of batches whose outputs are kept.
const KEPT_BATCHES: usize = 64;
/// Largest number of bytes of their outputs.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// The outputs of a batch of queries, one row per sample.
#[derive(Clone, Debug)]
pub struct QueryOutputs {
    pub samples: Vec<u64>,
    pub outputs: Vec<(String, Tensor)>,
}

/// The row of each sample in its batch of a pass, and the outputs of that batch.
type Places<'k> = HashMap<u64, (usize, &'k [(String, Tensor)])>;

/// Batches drawn at random while they are computed, each with the same probability, so that no engine can know which are compared
/// (reservoir sampling: Vitter, "Random sampling with a reservoir", ACM TOMS 11, 1985, algorithm R).
#[derive(Debug, Default)]
pub struct QuerySample {
    random: RandomState,
    seen: u64,
    kept: Vec<QueryOutputs>,
}

impl QuerySample {
    /// Considers the next batch, whose outputs are made if it is kept.
    pub fn add(&mut self, outputs: impl FnOnce() -> QueryOutputs) {
        let place = (self.random.hash_one(self.seen) % (self.seen + 1)) as usize;
        self.seen += 1;
        if self.kept.len() < KEPT_BATCHES {
            let outputs = outputs();
            let bytes =
                |kept: &QueryOutputs| kept.outputs.iter().map(|(_, tensor)| tensor.bytes().len()).sum::<usize>();
            if self.kept.is_empty() || bytes(&outputs).saturating_mul(self.kept.len() + 1) <= KEPT_BYTES_MAX {
                return self.kept.push(outputs);
            }
            if place < self.kept.len() {
                self.kept[place] = outputs;
            }
        } else if place < KEPT_BATCHES {
            self.kept[place] = outputs();
        }
    }

    /// Returns the kept outputs.
    pub fn into_kept(self) -> Vec<QueryOutputs> {
        self.kept
    }
}

impl KeptOutputs {
    /// Compares the outputs of queries, sample by sample, with those that the pass has for the same samples. If the outputs
    /// `have_tokens`, the first one of each answer is also compared by itself.
    pub fn compare_queries(&self, queries: &[QueryOutputs], have_tokens: bool) -> Agreement {
        let complete = self.batches.iter().filter(|batch| batch.tickets.len() == batch.samples as usize);
        let places: Places<'_> = complete
            .flat_map(|batch| {
                batch.tickets.iter().enumerate().map(|(row, sample)| (*sample, (row, batch.outputs.as_slice())))
            })
            .collect();
        let mut agreement = Agreement { pass: self.pass, ..Agreement::default() };
        let samples = queries.iter().flat_map(|query| &query.samples);
        agreement.samples = samples.filter(|sample| places.contains_key(sample)).count() as u64;
        if agreement.samples == 0 {
            agreement.not_compared.push("the pass kept no outputs for the samples of the queries".to_owned());
            return agreement;
        }
        for name in queries.iter().flat_map(|query| &query.outputs).map(|(name, _)| name) {
            if agreement.outputs.contains_key(name) || agreement.not_compared.iter().any(|known| known.contains(name)) {
                continue;
            }
            match compare_output(name, queries, &places, Tensor::clone) {
                Ok(figures) => drop(agreement.outputs.insert(name.clone(), figures)),
                Err(reason) => agreement.not_compared.push(reason),
            }
            // A server that sends any token at once, and the true ones later, would be within the limits of whole answers.
            if have_tokens && let Ok(figures) = compare_output(name, queries, &places, first_tokens) {
                agreement.outputs.insert(first_token_name(name), figures);
            }
        }
        agreement
    }
}

/// Returns the first token of each row of tokens; any other tensor as it is.
pub(super) fn first_tokens(rows: &Tensor) -> Tensor {
    let count = rows.shape().last().copied().unwrap_or(0);
    let first = rows.as_slice::<i64>().ok().filter(|_| count > 0);
    let first = first.map(|tokens| tokens.chunks_exact(count).map(|row| row[0]).collect::<Vec<i64>>());
    first.map_or_else(|| rows.clone(), |first| Tensor::from_vec([first.len(), 1], first).expect("one for each row"))
}

/// Returns the name under which the first tokens of an output are compared.
pub(super) fn first_token_name(output: &str) -> String {
    format!("{output}, first token")
}

/// Compares a part of one output of all samples. The error says why it cannot be compared.
fn compare_output(
    name: &str,
    queries: &[QueryOutputs],
    places: &Places<'_>,
    part: fn(&Tensor) -> Tensor,
) -> Result<OutputAgreement, String> {
    let find = |outputs: &[(String, Tensor)]| outputs.iter().find(|(other, _)| other == name).map(|(_, t)| t.clone());
    let mut meter = AgreementMeter::default();
    for query in queries {
        let output = find(&query.outputs).ok_or_else(|| format!("some queries have no output `{name}`"))?;
        for (row, sample) in query.samples.iter().enumerate() {
            let Some((of_pass, outputs)) = places.get(sample) else { continue };
            let pass = find(outputs).ok_or_else(|| format!("the pass has no output `{name}`"))?;
            let rows = (output.take_rows(&[row]), pass.take_rows(&[*of_pass]));
            let has_rows = output.shape().first() == Some(&query.samples.len());
            let (true, (Ok(own), Ok(pass))) = (has_rows, rows) else {
                return Err(format!("output `{name}` (`{}`) has no row per sample", output.spec()));
            };
            if !meter.push(&part(&pass), &part(&own)) {
                let (own, pass) = (own.spec(), pass.spec());
                return Err(format!("output `{name}` of a sample is `{own}` in a query and `{pass}` in the pass"));
            }
        }
    }
    meter.finish().ok_or_else(|| format!("output `{name}` has no elements"))
}

#[cfg(test)]
mod tests {
    use super::super::KeptBatch;
    use super::*;

    fn rows(values: &[f32]) -> Vec<(String, Tensor)> {
        vec![("y".to_owned(), Tensor::from_vec([values.len(), 1], values.to_vec()).unwrap())]
    }

    fn pass() -> KeptOutputs {
        let batch = |tickets: &[u64], samples, values: &[f32]| KeptBatch {
            tickets: tickets.to_vec(),
            samples,
            outputs: rows(values),
        };
        let batches = vec![batch(&[4, 7], 2, &[0.4, 0.7]), batch(&[1], 1, &[0.1]), batch(&[8, 9], 1, &[0.8])];
        KeptOutputs { batches, ..KeptOutputs::default() }
    }

    #[test]
    fn each_sample_of_a_query_is_compared_with_its_row_in_the_pass() {
        let query = |samples: &[u64], values: &[f32]| QueryOutputs { samples: samples.to_vec(), outputs: rows(values) };
        let agreement =
            pass().compare_queries(&[query(&[1, 4, 4], &[0.1, 0.4, 0.4]), query(&[7, 8], &[0.7, 5.0])], false);
        assert_eq!((agreement.samples, agreement.outputs["y"].max_abs), (4, 0.0), "the batch with 8 is incomplete");
        let wrong = pass().compare_queries(&[query(&[1, 4], &[0.4, 0.1])], false);
        assert!((wrong.outputs["y"].max_abs - 0.3).abs() < 1e-6);
        let unknown = pass().compare_queries(&[query(&[8], &[0.8])], false);
        assert_eq!(unknown.not_compared, ["the pass kept no outputs for the samples of the queries"]);
        let sum = QueryOutputs { samples: vec![1, 4], outputs: rows(&[0.5]) };
        assert_eq!(
            pass().compare_queries(&[sum], false).not_compared,
            ["output `y` (`1,1,f32`) has no row per sample"]
        );
    }

    #[test]
    fn a_wrong_first_token_is_seen_beside_a_long_answer_that_is_right() {
        let answer = |first: i64| {
            let tokens: Vec<i64> = std::iter::once(first).chain(1..100).collect();
            vec![("tokens".to_owned(), Tensor::from_vec([1, 100], tokens).unwrap())]
        };
        let batches = vec![KeptBatch { tickets: vec![4], samples: 1, outputs: answer(0) }];
        let pass = KeptOutputs { batches, ..KeptOutputs::default() };
        let compared =
            |have_tokens| pass.compare_queries(&[QueryOutputs { samples: vec![4], outputs: answer(7) }], have_tokens);
        let agreement = compared(true);
        assert_eq!(agreement.outputs["tokens"].mismatches, Some(0.01));
        assert_eq!(agreement.outputs["tokens, first token"].mismatches, Some(1.0));
        assert_eq!(compared(false).outputs.len(), 1);
    }

    #[test]
    fn every_batch_is_kept_with_the_same_probability() {
        let mut counts = vec![0; 640];
        for _ in 0..200 {
            let mut sample = QuerySample::default();
            (0..640).for_each(|number| sample.add(|| QueryOutputs { samples: vec![number], outputs: rows(&[0.0]) }));
            let kept = sample.into_kept();
            assert_eq!(kept.len(), 64);
            kept.iter().for_each(|kept| counts[kept.samples[0] as usize] += 1);
        }
        // Each is kept 20 times on average, with a standard deviation of 4.2.
        let of = |range: std::ops::Range<usize>| counts[range].iter().sum::<i32>();
        for range in [0..64, 288..352, 576..640] {
            let kept = of(range.clone());
            assert!((1280 - 160..1280 + 160).contains(&kept), "{range:?}: {kept}");
        }
    }

    #[test]
    fn only_so_many_large_outputs_are_kept_as_fit() {
        let mut sample = QuerySample::default();
        let large = Tensor::from_vec([1, 6 << 20], vec![0.0f32; 6 << 20]).unwrap();
        (0..5).for_each(|number| {
            sample.add(|| QueryOutputs { samples: vec![number], outputs: vec![("y".to_owned(), large.clone())] });
        });
        assert_eq!(sample.into_kept().len(), 2);
    }
}
