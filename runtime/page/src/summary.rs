//! The sums of a case that ran on several hosts or devices, from the `summary.json` beside its results.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use flagperf_core::hash::hash_bytes;
use flagperf_core::regular_file::read_regular;
use flagperf_core::run_files::SUMMARY_FILE;
use flagperf_core::text::one_line;
use flagperf_report::{Screen, summary_report};
use flagperf_result::{RECORD_BYTES_MAX, ShortTime, Summary};
use flagperf_verify::verify_summary;
use indexmap::IndexMap;

use super::result::{Check, ReadResult};

/// A summary that was read.
#[derive(Clone, Debug)]
pub struct ReadSummary {
    pub path: PathBuf,
    /// The summary, in which each replica has its short time, which the file does not have.
    pub summary: Summary,
    /// What `verify` says of it.
    pub check: Check,
    /// The indices of the results of its replicas, in their order.
    pub(super) replicas: Vec<usize>,
    /// The hint of each replica's failure; empty for one without a failure.
    hints: Vec<String>,
    /// SHA-256 of its file.
    pub(super) sha256: String,
}

impl ReadSummary {
    /// Reads the summary of each case all of whose results are among these, and verifies it unless their files are large. Returns them
    /// with a message about each that is missing or cannot be read.
    pub fn of_results<'r>(results: impl IntoIterator<Item = &'r ReadResult>) -> (Vec<Self>, Vec<String>) {
        let results: Vec<&ReadResult> = results.into_iter().collect();
        let mut cases: IndexMap<&Path, Vec<usize>> = IndexMap::new();
        for (index, result) in results.iter().enumerate() {
            let case = result.folder().and_then(Path::parent);
            case.into_iter().for_each(|case| cases.entry(case).or_default().push(index));
        }
        let (mut summaries, mut messages) = (Vec::new(), Vec::new());
        for (case, own) in cases {
            match ReadSummary::read(case, &results, &own) {
                Ok(summary) => summaries.extend(summary),
                Err(reason) => messages.push(format!("no sum: `{}`: {reason}", case.join(SUMMARY_FILE).display())),
            }
        }
        (summaries, messages)
    }

    /// Reads the summary of a case, in whose folder the results with these indices are; `None` if it has none, or only some of its
    /// results are among them.
    fn read(case: &Path, results: &[&ReadResult], own: &[usize]) -> Result<Option<Self>, String> {
        let path = case.join(SUMMARY_FILE);
        let text = match read_regular(&path, RECORD_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !has_several_devices(results, own) => {
                return Ok(None);
            }
            read => read.map_err(|error| error.to_string())?,
        };
        let mut summary: Summary =
            serde_json::from_slice(&text).map_err(|error| format!("it is not a summary: {error}"))?;
        let index = |folder: &str| own.iter().copied().find(|index| results[*index].path == case.join(folder));
        let replicas: Option<Vec<usize>> = summary.replicas.iter().map(|replica| index(&replica.folder)).collect();
        let Some(replicas) = replicas else {
            let is_there = |folder: &str| is_file_name(folder) && case.join(folder).is_dir();
            let missing = summary.replicas.iter().find(|replica| !is_there(&replica.folder));
            return missing.map_or(Ok(None), |missing| {
                Err(format!("the result `{}`, which it lists, is missing", one_line(&missing.folder)))
            });
        };
        if replicas.is_empty() {
            return Err("it lists no results".to_owned());
        }
        let own = || replicas.iter().map(|index| results[*index]);
        for (replica, result) in summary.replicas.iter_mut().zip(own()) {
            replica.short_time = ShortTime::of(&result.record);
        }
        let hint = |result: &ReadResult| result.record.failures.first().map(|failure| failure.hint.clone());
        let hints = own().map(|result| hint(result).unwrap_or_default()).collect();
        let check = match own().any(ReadResult::is_large) {
            true => Check::TooLarge,
            false => match verify_summary(case) {
                Some(report) => Check::Verified(Box::new(report)),
                None => return Err("it disappeared while it was read".to_owned()),
            },
        };
        Ok(Some(ReadSummary { sha256: hash_bytes(&text), path, summary, check, replicas, hints }))
    }

    /// Returns whether the last of its results, in the order in which they were read, has this index.
    pub fn ends_with(&self, index: usize) -> bool {
        self.replicas.iter().max() == Some(&index)
    }

    /// Returns what the end of the run printed of it, with the path as it is shown.
    pub fn text(&self, path: &Path, screen: Screen) -> String {
        summary_report(&self.summary, &self.hints, path, false, screen)
    }
}

/// Returns whether a text is the name of a file in a folder, and no path that leads elsewhere.
fn is_file_name(text: &str) -> bool {
    Path::new(text).file_name().is_some_and(|name| name == text)
}

/// Returns whether several of these results are of one run of a case, which writes their sum.
fn has_several_devices(results: &[&ReadResult], own: &[usize]) -> bool {
    let mut runs: IndexMap<_, HashSet<_>> = IndexMap::new();
    for record in own.iter().map(|index| &results[*index].record) {
        runs.entry((&record.run, record.key())).or_default().insert(record.place());
    }
    runs.values().any(|places| places.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_result::testing;
    use serde_json::json;

    #[test]
    fn a_case_has_sums_if_all_of_its_results_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let case = folder.path().join("a_b_1x2");
        std::fs::create_dir(&case).unwrap();
        let mut summary = json!({"schema": 3, "run": "r", "case": "a:b:1x2", "vendor": "v", "unit": "image", "status": "ok", "validity": "unofficial",
            "replicas": [], "steps": [], "warnings": []});
        let replica = |rank: u32| {
            json!({"host": "h", "node_rank": 0, "device": rank, "folder": format!("h_noderank0_device{rank}"), "status": "ok",
            "validity": "unofficial", "reasons": [], "validity_reasons": [], "digest": null, "processor": null, "measured": []})
        };
        summary["replicas"] = json!([replica(0), replica(1)]);
        std::fs::write(case.join(SUMMARY_FILE), summary.to_string()).unwrap();
        let result = |rank: u32| {
            let path = case.join(format!("h_noderank0_device{rank}"));
            std::fs::create_dir_all(&path).unwrap();
            ReadResult {
                path,
                record: flagperf_result::Record { device: Some(rank), ..testing::record() },
                digest: None,
            }
        };
        let (found, messages) = ReadSummary::of_results(&[result(1), result(0)]);
        assert_eq!((found.len(), messages.len()), (1, 0));
        assert_eq!(found[0].replicas, [1, 0]);
        assert_ne!(found[0].check.name(), "consistent", "there are no records");
        assert!(found[0].summary.replicas[0].short_time.is_some());
        let (found, messages) = ReadSummary::of_results(&[result(1)]);
        assert_eq!((found.len(), messages.len()), (0, 0), "a part of them");
        assert!(result(1).is_part());
        let messages_of = |results: &[ReadResult]| ReadSummary::of_results(results).1.join("\n");
        std::fs::write(case.join(SUMMARY_FILE), "{\"schema\": 3,").unwrap();
        assert!(messages_of(&[result(1), result(0)]).contains("summary.json`: it is not a summary: EOF"));
        std::fs::remove_file(case.join(SUMMARY_FILE)).unwrap();
        assert!(messages_of(&[result(1), result(0)]).contains("summary.json`: No such file"));
        assert_eq!(messages_of(&[result(1)]), "", "one of several may be copied elsewhere");
        assert_eq!(messages_of(&[result(1), result(1)]), "", "two of one device are copies");
        summary["replicas"] = json!([replica(0), replica(2)]);
        std::fs::write(case.join(SUMMARY_FILE), summary.to_string()).unwrap();
        assert!(
            messages_of(&[result(1), result(0)])
                .ends_with("the result `h_noderank0_device2`, which it lists, is missing")
        );
    }
}
