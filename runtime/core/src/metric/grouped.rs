//! Accuracy of each group and the mean over the groups, such as MMLU's by subject.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::elements::{integers, unsupported};
use super::state::{MetricState, MetricSum};
use super::{Accumulator, MetricError};
use crate::tensor::{DType, Tensor};

/// Largest number of groups; MMLU has 57.
const GROUPS_MAX: usize = 90;
/// Largest length of a group's name in bytes.
const NAME_BYTES_MAX: usize = 150;

/// Hits by group, in the order of their first observation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupedHits {
    groups: IndexMap<String, MetricSum>,
}

impl GroupedHits {
    /// Adds the hits of another batch.
    ///
    /// # Errors
    /// [`MetricError::Groups`] when there are too many groups.
    pub(super) fn merge(&mut self, other: &GroupedHits) -> Result<(), MetricError> {
        other.groups.iter().try_for_each(|(group, sum)| self.add(group.clone(), sum.sum, sum.count))
    }

    fn add(&mut self, group: String, hits: f64, count: u64) -> Result<(), MetricError> {
        self.groups.entry(group).or_default().add(hits, count);
        if self.groups.len() > GROUPS_MAX { Err(MetricError::Groups(GROUPS_MAX)) } else { Ok(()) }
    }

    pub(super) fn count(&self) -> u64 {
        self.groups.values().map(|sum| sum.count).sum()
    }

    pub(super) fn names(&self, name: &str) -> Vec<String> {
        let groups = self.groups.keys().map(|group| format!("{name}[{group}]"));
        [name.to_owned(), format!("group_{name}")].into_iter().chain(groups).collect()
    }

    pub(super) fn finish(&self, name: &str) -> Vec<(String, f64)> {
        let mut all = MetricSum::default();
        let mut groups = MetricSum::default();
        for sum in self.groups.values() {
            all.add(sum.sum, sum.count);
            groups.add(sum.mean(), 1);
        }
        let means = self.groups.values().map(MetricSum::mean);
        self.names(name).into_iter().zip([all.mean(), groups.mean()].into_iter().chain(means)).collect()
    }
}

/// Computes `accuracy`, the share of rows whose prediction is the label; `group_accuracy`, the mean of the accuracies of
/// the groups, each with the same weight; and the accuracy of each group as `accuracy[NAME]`.
///
/// `predictions` and `labels`: `N` of an integer type. `groups`: `N` of an integer type, or names as `N,L,u8`: UTF-8 text
/// padded with zeros.
///
/// # Errors
/// When shapes or types differ from these, a name is not one line of text, or there are more than 90 groups.
pub fn accuracy_by_group(predictions: &Tensor, labels: &Tensor, groups: &Tensor) -> Result<Accumulator, MetricError> {
    let (&[rows], Some(wanted)) = (labels.shape(), integers(labels)) else {
        return Err(unsupported("the labels are", labels, "`N` of an integer type"));
    };
    let found = integers(predictions).filter(|_| predictions.shape() == [rows]);
    let found = found
        .ok_or_else(|| unsupported("the predictions are", predictions, &format!("`{rows}` of an integer type")))?;
    let mut hits = GroupedHits::default();
    for (row, group) in group_names(groups, rows)?.into_iter().enumerate() {
        hits.add(group, f64::from(u8::from(found[row] == wanted[row])), 1)?;
    }
    Ok(Accumulator::of("accuracy", MetricState::Groups(hits)))
}

fn group_names(groups: &Tensor, rows: usize) -> Result<Vec<String>, MetricError> {
    if let (&[n], Some(numbers)) = (groups.shape(), integers(groups))
        && n == rows
    {
        return Ok(numbers.iter().map(ToString::to_string).collect());
    }
    match *groups.shape() {
        [n, length] if n == rows && groups.dtype() == DType::U8 => {
            let name = |(row, bytes): (usize, &[u8])| {
                let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                let text = std::str::from_utf8(text).ok();
                let line = text.filter(|t| (1..=NAME_BYTES_MAX).contains(&t.len()) && !t.chars().any(char::is_control));
                line.map(str::to_owned).ok_or(MetricError::GroupName { row, max: NAME_BYTES_MAX })
            };
            groups.bytes().chunks_exact(length.max(1)).enumerate().map(name).collect()
        }
        _ => Err(unsupported(
            "the groups are",
            groups,
            &format!("`{rows}` of an integer type, or names as `{rows},L,u8`"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(values: &[i64]) -> Tensor {
        Tensor::from_vec([values.len()], values.to_vec()).unwrap()
    }

    #[test]
    fn the_mean_over_groups_gives_each_group_the_same_weight() {
        let names = Tensor::from_bytes([4, 2], DType::U8, b"laart\0t\0").unwrap();
        let names = Tensor::from_bytes([4, 2], DType::U8, &[&names.bytes()[..2], b"rtrtrt"].concat()).unwrap();
        let figures = accuracy_by_group(&ids(&[1, 2, 3, 0]), &ids(&[1, 2, 0, 1]), &names).unwrap().finish();
        assert_eq!((figures["accuracy"], figures["accuracy[la]"]), (0.5, 1.0));
        assert_eq!(figures["group_accuracy"], (1.0 + 1.0 / 3.0) / 2.0);
    }

    #[test]
    fn groups_are_merged_by_name() {
        let of = |found: &[i64], groups: &[i64]| {
            accuracy_by_group(&ids(found), &ids(&vec![1; found.len()]), &ids(groups)).unwrap()
        };
        let mut both = of(&[1, 0], &[7, 8]);
        both.merge(&of(&[1], &[8])).unwrap();
        assert_eq!(both, of(&[1, 0, 1], &[7, 8, 8]));
        assert_eq!(both.finish()["accuracy[8]"], 0.5);
        assert_eq!(both.names().collect::<Vec<_>>(), ["accuracy", "group_accuracy", "accuracy[7]", "accuracy[8]"]);
    }

    #[test]
    fn a_name_that_is_not_a_line_of_text_and_too_many_groups_are_refused() {
        let refused = |bytes: &[u8]| {
            let names = Tensor::from_bytes([1, bytes.len()], DType::U8, bytes).unwrap();
            accuracy_by_group(&ids(&[0]), &ids(&[0]), &names).unwrap_err()
        };
        for bytes in [&b"\0\0"[..], b"\xff\xfe", b"a\nb"] {
            assert_eq!(refused(bytes), MetricError::GroupName { row: 0, max: 150 });
        }
        let many: Vec<i64> = (0..100).collect();
        assert_eq!(accuracy_by_group(&ids(&many), &ids(&many), &ids(&many)).unwrap_err(), MetricError::Groups(90));
    }
}
